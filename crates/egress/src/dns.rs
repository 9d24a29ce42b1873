//! DNS on the wire, both ways: questions of programs inside and our answers; our questions outside and their answers.
//!
//! Our own reader and writer, since little is read: one question from inside (a header, a name without pointers, perhaps an OPT
//! record), and addresses from outside, whose names are skipped and never followed. A general library builds all records of a
//! packet in memory before anybody can look: 12 bytes from a hostile program that say "65,535 answers" cost it megabytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Record type A.
pub const A: u16 = 1;
/// Record type PTR.
pub const PTR: u16 = 12;
/// Record type AAAA.
pub const AAAA: u16 = 28;
const OPT: u16 = 41;
const IN: u16 = 1;
/// What we and our resolvers take in one datagram.
pub const MAX_UDP: usize = 1232;
/// What the eldest clients take.
const UDP_AT_LEAST: usize = 512;
/// Most addresses read from one answer.
const MAX_ADDRESSES: usize = 32;
/// Most records looked at in one answer.
const MAX_RECORDS: u16 = 256;

const FORMERR: u16 = 1;
const SERVFAIL: u16 = 2;
const NXDOMAIN: u16 = 3;
const NOTIMP: u16 = 4;
const REFUSED: u16 = 5;
/// Extended error "Blocked": a policy of the server forbids the name.
const BLOCKED: u16 = 15;
/// Extended error "Network Error".
const NETWORK: u16 = 23;

/// One question of a program inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Chosen by the client.
    pub id: u16,
    /// The name in lower case without the last dot, where it is one that a host can have (letters, digits, `-`, `_`); `None`:
    /// no rule can name it.
    pub name: Option<String>,
    /// Record type.
    pub kind: u16,
    /// Whether the class is IN.
    pub internet: bool,
    /// What the client takes by UDP.
    pub udp: usize,
    /// Whether it speaks EDNS, and so understands extended errors.
    edns: bool,
    recursion: bool,
    /// Name, type and class as they came: letters keep their case.
    raw: Vec<u8>,
}

/// Why bytes are no question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoQuestion {
    /// Nothing to answer: too short, or an answer itself.
    Silence,
    /// This is to be answered.
    Answer(Vec<u8>),
}

/// What a question is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// These addresses; those of another family than the question's are left out.
    Addresses(&'a [IpAddr]),
    /// The name of an address.
    Pointer(&'a str),
    /// The name is there, and has nothing of this type.
    Nothing,
    /// No such name.
    NoName,
    /// No such name, since the policy does not allow it: why, in words.
    Denied(&'a str),
    /// Not now, whatever there is: why, in words.
    Refused(&'a str),
    /// It could not be found out: why, in words.
    Failed(&'a str),
}

/// How long a program may remember an answer, in seconds: addresses of names do not change in a run, rules may.
pub const TTL: u32 = 60;

/// Reads the question of a program.
///
/// # Errors
/// What has no answer, or one that says that it was not understood.
pub fn question(bytes: &[u8]) -> Result<Question, NoQuestion> {
    let mut reader = Reader { bytes, at: 0 };
    let header = (reader.u16(), reader.u16(), reader.u16(), reader.u16(), reader.u16(), reader.u16());
    let (Some(id), Some(flags), Some(questions), Some(answers), Some(authorities), Some(more)) = header else {
        return Err(NoQuestion::Silence);
    };
    if flags & 0x8000 != 0 {
        return Err(NoQuestion::Silence);
    }
    let refused = |code| NoQuestion::Answer(bare(id, flags, code));
    if flags & 0x7800 != 0 {
        return Err(refused(NOTIMP));
    }
    if questions != 1 || answers != 0 || authorities != 0 || more > 8 {
        return Err(refused(FORMERR));
    }
    let malformed = || refused(FORMERR);
    let name = reader.plain_name().ok_or_else(malformed)?;
    let kind = reader.u16().ok_or_else(malformed)?;
    let class = reader.u16().ok_or_else(malformed)?;
    let raw = bytes.get(12..reader.at).ok_or_else(malformed)?.to_vec();
    let (mut udp, mut edns) = (UDP_AT_LEAST, false);
    for _ in 0..more {
        let record = reader.record().ok_or_else(malformed)?;
        if record.kind == OPT {
            if edns {
                return Err(malformed());
            }
            edns = true;
            udp = usize::from(record.class).clamp(UDP_AT_LEAST, MAX_UDP);
        }
    }
    let recursion = flags & 0x0100 != 0;
    Ok(Question { id, name: host(&name), kind, internet: class == IN, udp, edns, recursion, raw })
}

/// The bytes of an answer that fits into `at_most`; one that does not is cut and marked so, and the client comes again by TCP.
#[must_use]
pub fn answer(question: &Question, answer: &Answer<'_>, at_most: usize) -> Vec<u8> {
    let whole = written(question, answer);
    if whole.len() <= at_most {
        return whole;
    }
    let mut cut = written(question, &Answer::Nothing);
    if let Some(flags) = cut.get_mut(2) {
        *flags |= 0x02;
    }
    cut
}

fn written(question: &Question, answer: &Answer<'_>) -> Vec<u8> {
    let (code, records) = match answer {
        Answer::Addresses(addresses) => {
            (0, addresses.iter().filter_map(|a| address_record(question.kind, *a)).collect())
        }
        Answer::Pointer(name) => (0, vec![(PTR, wire_name(name))]),
        Answer::Nothing => (0, Vec::new()),
        Answer::NoName | Answer::Denied(_) => (NXDOMAIN, Vec::new()),
        Answer::Refused(_) => (REFUSED, Vec::new()),
        Answer::Failed(_) => (SERVFAIL, Vec::new()),
    };
    let extended = match answer {
        Answer::Denied(why) | Answer::Refused(why) => Some((BLOCKED, *why)),
        Answer::Failed(why) => Some((NETWORK, *why)),
        Answer::Addresses(_) | Answer::Pointer(_) | Answer::Nothing | Answer::NoName => None,
    };
    // An answer, with recursion at hand.
    let flags = 0x8080 | if question.recursion { 0x0100 } else { 0 } | code;
    let mut out = Vec::with_capacity(128);
    let count = u16::try_from(records.len()).unwrap_or(u16::MAX);
    for word in [question.id, flags, 1, count, 0, u16::from(question.edns)] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(&question.raw);
    for (kind, data) in records {
        // A pointer to the name of the question, which begins at byte 12.
        for word in [0xC00C, kind, IN] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&TTL.to_be_bytes());
        out.extend_from_slice(&u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
        out.extend_from_slice(&data);
    }
    if question.edns {
        out.extend_from_slice(&opt(extended));
    }
    out
}

/// The OPT record, with an extended error (RFC 8914) where there is one.
fn opt(extended: Option<(u16, &str)>) -> Vec<u8> {
    let mut out = vec![0];
    out.extend_from_slice(&OPT.to_be_bytes());
    out.extend_from_slice(&u16::try_from(MAX_UDP).unwrap_or_default().to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    let mut data = Vec::new();
    if let Some((code, why)) = extended {
        let text = why.get(..why.floor_char_boundary(200)).unwrap_or_default().as_bytes();
        let length = u16::try_from(text.len().saturating_add(2)).unwrap_or_default();
        for word in [15, length, code] {
            data.extend_from_slice(&word.to_be_bytes());
        }
        data.extend_from_slice(text);
    }
    out.extend_from_slice(&u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
    out.extend_from_slice(&data);
    out
}

fn address_record(kind: u16, address: IpAddr) -> Option<(u16, Vec<u8>)> {
    let (own, octets) = match address {
        IpAddr::V4(v4) => (A, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AAAA, v6.octets().to_vec()),
    };
    (kind == own).then_some((own, octets))
}

/// A header alone, with a code.
fn bare(id: u16, flags: u16, code: u16) -> Vec<u8> {
    let mut out = Vec::with_capacity(12);
    for word in [id, 0x8080 | (flags & 0x7900) | code, 0, 0, 0, 0] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out
}

/// Labels as a host's name in its one form; `None` if no host can be called so.
fn host(labels: &[&[u8]]) -> Option<String> {
    let texts: Option<Vec<&str>> = labels.iter().map(|label| std::str::from_utf8(label).ok()).collect();
    // A dot inside a label is none between labels.
    let texts = texts.filter(|texts| texts.iter().all(|text| !text.contains('.')))?;
    crate::host::plain(&texts.join("."))
}

fn wire_name(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len().saturating_add(2));
    for label in name.split('.') {
        let label = label.as_bytes().get(..label.len().min(63)).unwrap_or_default();
        out.push(u8::try_from(label.len()).unwrap_or_default());
        out.extend_from_slice(label);
    }
    out.push(0);
    out
}

/// The address that a PTR question asks for: `7.0.18.198.in-addr.arpa`, or 32 digits below `ip6.arpa`.
#[must_use]
pub fn reverse(name: &str) -> Option<IpAddr> {
    if let Some(rest) = name.strip_suffix(".in-addr.arpa") {
        let mut parts: Vec<&str> = rest.split('.').collect();
        parts.reverse();
        return parts.join(".").parse::<Ipv4Addr>().ok().map(IpAddr::V4);
    }
    let digits: Vec<&str> = name.strip_suffix(".ip6.arpa")?.split('.').collect();
    if digits.len() != 32 || digits.iter().any(|digit| digit.len() != 1) {
        return None;
    }
    let text: String = digits.into_iter().rev().collect();
    u128::from_str_radix(&text, 16).ok().map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)))
}

/// The question for the addresses of a name, for a resolver outside.
#[must_use]
pub fn ask(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    for word in [id, 0x0100, 1, 0, 0, 1] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(&wire_name(name));
    for word in [kind, IN] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(&opt(None));
    out
}

/// What a resolver outside answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupResult {
    /// These addresses, good for so many seconds; empty: the name has none of this kind.
    Addresses(Vec<IpAddr>, u32),
    /// There is no such name.
    NoName,
    /// Too much for a datagram: to be asked again by TCP.
    Cut,
    /// The resolver could or would not; its code.
    Failed(u16),
}

/// Reads the answer to `asked` (the bytes of [`ask`]). `None`: it is none to this question, or cannot be understood.
#[must_use]
pub fn found(asked: &[u8], bytes: &[u8]) -> Option<LookupResult> {
    let mut reader = Reader { bytes, at: 0 };
    let (id, flags) = (reader.u16()?, reader.u16()?);
    let (questions, answers) = (reader.u16()?, reader.u16()?);
    let mut own = Reader { bytes: asked, at: 0 };
    if flags & 0xF800 != 0x8000 || own.u16()? != id || questions != 1 {
        return None;
    }
    (reader.at, own.at) = (12, 12);
    let (name, same) = (reader.plain_name()?, own.plain_name()?);
    let (kind, class) = (reader.u16()?, reader.u16()?);
    let fits = name.len() == same.len() && name.iter().zip(&same).all(|(a, b)| a.eq_ignore_ascii_case(b));
    if !fits || kind != own.u16()? || class != IN {
        return None;
    }
    match flags & 0x000F {
        0 if flags & 0x0200 != 0 => return Some(LookupResult::Cut),
        0 => {}
        NXDOMAIN => return Some(LookupResult::NoName),
        code => return Some(LookupResult::Failed(code)),
    }
    let (mut addresses, mut ttl) = (Vec::new(), u32::MAX);
    for _ in 0..answers.min(MAX_RECORDS) {
        let record = reader.record()?;
        ttl = ttl.min(record.ttl);
        if record.kind == kind && record.class == IN && addresses.len() < MAX_ADDRESSES {
            addresses.push(address(kind, record.data)?);
        }
    }
    Some(LookupResult::Addresses(addresses, if answers == 0 { 0 } else { ttl }))
}

fn address(kind: u16, data: &[u8]) -> Option<IpAddr> {
    if kind == A {
        return <[u8; 4]>::try_from(data).ok().map(IpAddr::from);
    }
    <[u8; 16]>::try_from(data).ok().map(IpAddr::from)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

struct Record<'a> {
    kind: u16,
    class: u16,
    ttl: u32,
    data: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    /// A name without pointers.
    fn plain_name(&mut self) -> Option<Vec<&'a [u8]>> {
        let (mut labels, mut length) = (Vec::new(), 1_usize);
        loop {
            let count = usize::from(*self.take(1)?.first()?);
            if count == 0 {
                return Some(labels);
            }
            length = length.checked_add(count)?.checked_add(1)?;
            if count > 63 || length > 255 {
                return None;
            }
            labels.push(self.take(count)?);
        }
    }

    /// Passes over a name; a pointer ends it and is not followed.
    fn skip_name(&mut self) -> Option<()> {
        loop {
            let count = usize::from(*self.take(1)?.first()?);
            match count {
                0 => return Some(()),
                1..=63 => self.take(count).map(|_| ())?,
                192..=255 => return self.take(1).map(|_| ()),
                _ => return None,
            }
        }
    }

    fn record(&mut self) -> Option<Record<'a>> {
        self.skip_name()?;
        let (kind, class, ttl) = (self.u16()?, self.u16()?, self.u32()?);
        let length = usize::from(self.u16()?);
        Some(Record { kind, class, ttl, data: self.take(length)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asked(name: &str, kind: u16) -> Question {
        question(&ask(7, name, kind)).unwrap()
    }

    #[test]
    fn a_question_is_read_as_it_was_asked() {
        let read = asked("Api.EXAMPLE.org", AAAA);
        assert_eq!((read.id, read.name.as_deref(), read.kind), (7, Some("api.example.org"), AAAA));
        assert_eq!((read.udp, read.edns, read.recursion, read.internet), (MAX_UDP, true, true, true));
        assert!(read.raw.starts_with(b"\x03Api\x07EXAMPLE\x03org\0"), "the case of letters is kept");
    }

    #[test]
    fn names_that_no_host_has_are_told() {
        for name in ["a b.org", "b\u{fc}cher.example", "a\0.org", "*.org"] {
            assert_eq!(asked(name, A).name, None, "{name:?}");
        }
        let mut root = ask(1, "x", A);
        root.splice(12..14, []);
        assert_eq!(question(&root).unwrap().name, None, "the root");
        let long = ["a".repeat(60).as_str(); 5].join(".");
        assert!(matches!(question(&ask(1, &long, A)), Err(NoQuestion::Answer(_))), "more than 255 bytes");
    }

    #[test]
    fn what_is_no_question_is_answered_so_or_not_at_all() {
        let query = ask(0x1234, "a.example", A);
        for short in 0..12 {
            assert_eq!(question(&query[..short]), Err(NoQuestion::Silence));
        }
        let told = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = query.clone();
            change(&mut bytes);
            match question(&bytes) {
                Err(NoQuestion::Answer(bytes)) => i32::from(bytes[3] & 15),
                Err(NoQuestion::Silence) => -1,
                Ok(_) => -2,
            }
        };
        assert_eq!(told(&|b| b[2] |= 0x80), -1, "an answer");
        assert_eq!(told(&|b| b[2] |= 0x28), i32::from(NOTIMP), "an update");
        assert_eq!(told(&|b| b[5] = 2), i32::from(FORMERR), "two questions");
        assert_eq!(told(&|b| b[7] = 1), i32::from(FORMERR), "an answer in a question");
        assert_eq!(told(&|b| b[12] = 0xC0), i32::from(FORMERR), "a pointer in the name");
        assert_eq!(told(&|b| b.truncate(20)), i32::from(FORMERR), "cut");
        assert_eq!(told(&|b| b[11] = 9), i32::from(FORMERR), "nine additional records");
    }

    #[test]
    fn our_answer_is_what_a_reader_of_answers_finds() {
        let addresses = ["198.18.1.0".parse().unwrap(), "fd66::1".parse().unwrap()];
        for (kind, one) in [(A, addresses[0]), (AAAA, addresses[1])] {
            let query = ask(9, "a.example", kind);
            let bytes = answer(&question(&query).unwrap(), &Answer::Addresses(&addresses), 512);
            assert_eq!(found(&query, &bytes), Some(LookupResult::Addresses(vec![one], TTL)));
        }
        let query = ask(9, "a.example", A);
        let of = |a: &Answer<'_>| found(&query, &answer(&question(&query).unwrap(), a, 512)).unwrap();
        assert_eq!(of(&Answer::Denied("no rule")), LookupResult::NoName);
        assert_eq!(of(&Answer::Refused("too many")), LookupResult::Failed(REFUSED));
        assert_eq!(of(&Answer::NoName), LookupResult::NoName);
        assert_eq!(of(&Answer::Nothing), LookupResult::Addresses(Vec::new(), 0));
        assert_eq!(of(&Answer::Failed("no resolver")), LookupResult::Failed(SERVFAIL));
    }

    #[test]
    fn a_denial_says_why_to_who_understands_it() {
        let query = ask(9, "a.example", A);
        let said = answer(&question(&query).unwrap(), &Answer::Denied("no rule names it"), 512);
        assert!(said.windows(18).any(|w| w == b"\x00\x0fno rule names it"), "{said:?}");
        let mut old = query.clone();
        old.truncate(query.len() - 11);
        old[11] = 0;
        let said = answer(&question(&old).unwrap(), &Answer::Denied("no rule names it"), 512);
        assert!(said[11] == 0 && said.ends_with(&[0, 1, 0, 1]), "no OPT for who sent none");
    }

    #[test]
    fn an_answer_that_does_not_fit_is_cut_and_says_so() {
        let many: Vec<IpAddr> = (0..64).map(|n| IpAddr::from([198, 18, 1, n])).collect();
        let query = ask(9, "a.example", A);
        let read = question(&query).unwrap();
        let bytes = answer(&read, &Answer::Addresses(&many), 512);
        assert!(bytes.len() <= 512);
        assert_eq!(found(&query, &bytes), Some(LookupResult::Cut));
        let whole = answer(&read, &Answer::Addresses(&many), 65_535);
        assert!(matches!(found(&query, &whole), Some(LookupResult::Addresses(a, _)) if a.len() == MAX_ADDRESSES));
    }

    #[test]
    fn answers_to_something_else_are_not_taken() {
        let query = ask(9, "a.example", A);
        let right = answer(&question(&query).unwrap(), &Answer::Addresses(&[IpAddr::from([192, 0, 2, 1])]), 512);
        assert!(found(&query, &right).is_some());
        for other in
            [ask(8, "a.example", A), ask(9, "b.example", A), ask(9, "a.example", AAAA), ask(9, "a.b.example", A)]
        {
            assert_eq!(found(&other, &right), None);
        }
        assert_eq!(found(&query, &query), None, "a question is no answer");
    }

    #[test]
    fn reverse_names_are_addresses() {
        assert_eq!(reverse("7.1.18.198.in-addr.arpa"), Some(IpAddr::from([198, 18, 1, 7])));
        let v6: IpAddr = "fd66:756d:6568:6f6f::2".parse().unwrap();
        let name = "2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.f.6.f.6.8.6.5.6.d.6.5.7.6.6.d.f.ip6.arpa";
        assert_eq!(reverse(name), Some(v6));
        for none in ["1.18.198.in-addr.arpa", "example.org", "x.ip6.arpa", "256.1.1.1.in-addr.arpa", "ip6.arpa"] {
            assert_eq!(reverse(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(read) = question(&bytes) {
                for one in [Answer::Nothing, Answer::Denied("x"), Answer::Pointer("a.example")] {
                    let said = answer(&read, &one, read.udp);
                    prop_assert!(said.len() <= read.udp && said[..2] == bytes[..2]);
                }
            }
            prop_assert_eq!(found(&ask(1, "a.example", A), &bytes).is_some_and(|f| f == LookupResult::Cut), false);
        }

        #[test]
        fn every_name_of_a_host_comes_back(name in "[a-z0-9_-]{1,63}(\\.[a-zA-Z0-9-]{1,20}){0,5}\\.[a-z]{2}") {
            let lower = name.to_ascii_lowercase();
            prop_assert_eq!(asked(&name, A).name, Some(lower));
        }
    }
}
