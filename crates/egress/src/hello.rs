//! The first bytes of a TLS connection: which server name they ask for.
//!
//! Read alone, not terminated: what a program and its server say to each other stays between them. Everything that could be read
//! in two ways (a name twice, a list with two names, lengths that do not add up) is refused.

/// Most bytes of a client hello that are waited for; those of browsers with post-quantum keys have about 2 KiB.
pub const MAX_HELLO: usize = 16 << 10;

/// What the first bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// Not enough to say.
    More,
    /// No TLS: the first byte begins no handshake.
    NotTls,
    /// A client hello.
    Hello(Hello),
    /// TLS, but not as it must be: what is wrong.
    Malformed(&'static str),
}

/// What a client hello asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// The server name in lower case without a trailing dot.
    pub name: Option<String>,
    /// Whether the true hello is encrypted inside this one (ECH), or pretends to be.
    pub encrypted: bool,
    /// The protocols that the client offers (ALPN), at most 16.
    pub protocols: Vec<String>,
}

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u8 = 2;
/// The random of a server hello that is a `HelloRetryRequest` (RFC 8446, 4.1.3).
const RETRY: [u8; 32] = [
    0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11, 0xBE, 0x1D, 0x8C, 0x02, 0x1E, 0x65, 0xB8, 0x91, 0xC2, 0xA2, 0x11,
    0x16, 0x7A, 0xBB, 0x8C, 0x5E, 0x07, 0x9E, 0x09, 0xE2, 0xC8, 0xA8, 0x33, 0x9C,
];
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const ECH: u16 = 0xFE0D;

/// Reads what a program sent so far.
#[must_use]
pub fn first(bytes: &[u8]) -> First {
    match bytes.first() {
        None => return First::More,
        Some(&HANDSHAKE) => {}
        Some(_) => return First::NotTls,
    }
    match message(bytes) {
        Ok(Some((body, _))) => match hello(&body) {
            Some(Ok(hello)) => First::Hello(hello),
            Some(Err(why)) => First::Malformed(why),
            None => First::Malformed("a client hello whose lengths do not add up"),
        },
        Ok(None) if bytes.len() >= MAX_HELLO => First::Malformed("a client hello that does not end"),
        Ok(None) => First::More,
        Err(why) => First::Malformed(why),
    }
}

/// How many of these bytes are the records of the client hello that they begin with; behind them is what was sent after it.
#[must_use]
pub fn length(bytes: &[u8]) -> usize {
    message(bytes).ok().flatten().map_or(0, |(_, length)| length)
}

/// What a server says to a client hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloReply {
    /// Not enough to say.
    More,
    /// Another client hello, please (`HelloRetryRequest`): its name is to be judged as well.
    Retry,
    /// Anything else: no second hello can follow that anybody could read.
    Other,
}

/// Reads what a server said so far. It is the server of an allowed name, so that it is believed: nothing has to be refused.
#[must_use]
pub fn answer(bytes: &[u8]) -> HelloReply {
    let (mut rest, mut joined) = (bytes, Vec::new());
    loop {
        if joined.first().is_some_and(|kind| *kind != SERVER_HELLO) {
            return HelloReply::Other;
        }
        // Kind, length and version, then the random.
        if let Some(random) = joined.get(6..38) {
            return if random == RETRY { HelloReply::Retry } else { HelloReply::Other };
        }
        let Some(kind) = rest.first() else { return HelloReply::More };
        // Before its hello a server may warn, of a name that it does not know.
        if ![ALERT, HANDSHAKE].contains(kind) {
            return HelloReply::Other;
        }
        let Some((head, after)) = rest.split_first_chunk::<5>() else { return HelloReply::More };
        let [kind, _, _, high, low] = *head;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let taken = after.get(..length.min(after.len())).unwrap_or_default();
        if kind == HANDSHAKE {
            joined.extend_from_slice(taken);
        }
        rest = if taken.len() < length { &[] } else { after.get(length..).unwrap_or_default() };
    }
}

/// The body of the first handshake message, put together from its records, and how many bytes these are; `None`: not all of it
/// is here.
fn message(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, &'static str> {
    let (mut rest, mut joined, mut whole_record) = (bytes, Vec::new(), true);
    loop {
        if let Some((head, body)) = joined.split_first_chunk::<4>() {
            let [kind, a, b, c] = *head;
            if kind != 1 {
                return Err("a handshake that begins with something else than a client hello");
            }
            let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX);
            if length > MAX_HELLO {
                return Err("a client hello that is too long");
            }
            if let Some((whole, more)) = body.split_at_checked(length) {
                if !more.is_empty() || !whole_record {
                    return Err("something behind a client hello in its record");
                }
                return Ok(Some((whole.to_vec(), bytes.len().saturating_sub(rest.len()))));
            }
        }
        let Some((head, after)) = rest.split_first_chunk::<5>() else { return Ok(None) };
        let [kind, major, _, high, low] = *head;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != HANDSHAKE || major != 3 || length == 0 || length > (1 << 14) {
            return Err("a record that cannot stand in a client hello");
        }
        let taken = after.get(..length.min(after.len())).unwrap_or_default();
        joined.extend_from_slice(taken);
        rest = after.get(taken.len()..).unwrap_or_default();
        if taken.len() < length {
            // The message may be whole although its record is not.
            (rest, whole_record) = (&[], false);
        }
    }
}

fn hello(body: &[u8]) -> Option<Result<Hello, &'static str>> {
    let mut reader = Reader(body);
    // Version and random, then session, cipher suites, compressions.
    reader.take(34)?;
    reader.list8()?;
    reader.list16()?;
    reader.list8()?;
    let mut hello = Hello::default();
    if reader.0.is_empty() {
        return Some(Ok(hello));
    }
    let mut extensions = Reader(reader.list16()?);
    if !reader.0.is_empty() {
        return Some(Err("bytes after the extensions of a client hello"));
    }
    let mut seen = Vec::new();
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let data = extensions.list16()?;
        if seen.contains(&kind) {
            return Some(Err("an extension twice in a client hello"));
        }
        seen.push(kind);
        match kind {
            SERVER_NAME => match server_name(data)? {
                Ok(name) => hello.name = Some(name),
                Err(why) => return Some(Err(why)),
            },
            ALPN => hello.protocols = protocols(data)?,
            ECH => hello.encrypted = true,
            _ => {}
        }
    }
    Some(Ok(hello))
}

fn server_name(data: &[u8]) -> Option<Result<String, &'static str>> {
    let mut reader = Reader(data);
    let mut list = Reader(reader.list16()?);
    let kind = list.u8()?;
    let name = list.list16()?;
    if kind != 0 || !list.0.is_empty() || !reader.0.is_empty() {
        return Some(Err("a list of server names with something else than one host name"));
    }
    Some(host(name).ok_or("a server name that no host can have"))
}

fn host(name: &[u8]) -> Option<String> {
    // With a dot at its end (RFC 6066 has none) it is another name for whoever compares letters.
    let text = std::str::from_utf8(name).ok().filter(|text| !text.ends_with('.'))?;
    crate::host::plain(text)
}

fn protocols(data: &[u8]) -> Option<Vec<String>> {
    let mut reader = Reader(data);
    let mut list = Reader(reader.list16()?);
    let mut found = Vec::new();
    while !list.0.is_empty() {
        let one = list.list8()?;
        if found.len() < 16 {
            found.push(String::from_utf8_lossy(one).into_owned());
        }
    }
    Some(found)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn list8(&mut self) -> Option<&'a [u8]> {
        let count = self.u8()?;
        self.take(usize::from(count))
    }

    fn list16(&mut self) -> Option<&'a [u8]> {
        let count = self.u16()?;
        self.take(usize::from(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with16(bytes: &[u8]) -> Vec<u8> {
        [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
    }

    fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes(), with16(data).as_slice()].concat()
    }

    fn name(name: &str) -> Vec<u8> {
        extension(SERVER_NAME, &with16(&[&[0], with16(name.as_bytes()).as_slice()].concat()))
    }

    fn handshake(extensions: &[Vec<u8>]) -> Vec<u8> {
        let body = [&[3; 34][..], &[0], &[0, 2, 0x13, 1], &[1, 0], &with16(&extensions.concat())].concat();
        [&[1, 0], with16(&body).as_slice()].concat()
    }

    fn record(bytes: &[u8]) -> Vec<u8> {
        [&[22, 3, 1], with16(bytes).as_slice()].concat()
    }

    fn read(extensions: &[Vec<u8>]) -> First {
        first(&record(&handshake(extensions)))
    }

    fn named(text: &str) -> First {
        First::Hello(Hello { name: Some(text.to_owned()), ..Hello::default() })
    }

    #[test]
    fn the_name_is_read_in_one_form() {
        for written in ["example.org", "EXAMPLE.org"] {
            assert_eq!(read(&[name(written)]), named("example.org"), "{written}");
        }
        assert!(matches!(read(&[name("example.org.")]), First::Malformed(_)));
        assert_eq!(read(&[]), First::Hello(Hello::default()));
    }

    #[test]
    fn offers_and_encryption_are_seen() {
        let offered = extension(ALPN, &with16(b"\x02h2\x08http/1.1"));
        let First::Hello(hello) = read(&[name("a.example"), offered, extension(ECH, b"x")]) else { panic!() };
        assert_eq!(hello.protocols, ["h2", "http/1.1"]);
        assert!(hello.encrypted);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let two = extension(SERVER_NAME, &with16(&[&[0, 0, 1, b'a'][..], &[0, 0, 1, b'b']].concat()));
        let other_kind = extension(SERVER_NAME, &with16(&[1, 0, 1, b'a']));
        for (bad, extensions) in [
            ("the extension twice", vec![name("a.example"), name("b.example")]),
            ("two names", vec![two]),
            ("no host name", vec![other_kind]),
            ("an empty name", vec![name("")]),
            ("a NUL", vec![name("a.example\0.evil.example")]),
            ("not ASCII", vec![name("b\u{fc}cher.example")]),
            ("a port", vec![name("a.example:443")]),
            ("two dots", vec![name("a..example")]),
            ("an address", vec![name("192.0.2.1")]),
        ] {
            assert!(matches!(read(&extensions), First::Malformed(_)), "{bad}");
        }
        let mut longer = handshake(&[name("a.example")]);
        let at = longer.len() - name("a.example").len() - 1;
        longer[at] -= 1;
        assert!(matches!(first(&record(&longer)), First::Malformed(_)), "lengths that do not add up");
    }

    #[test]
    fn a_hello_in_pieces_is_one_hello() {
        let whole = handshake(&[name("a.example")]);
        for at in 1..whole.len() {
            let pieces = [record(&whole[..at]), record(&whole[at..])].concat();
            assert_eq!(first(&pieces), named("a.example"), "cut at {at}");
        }
        let bytes = record(&whole);
        for short in 0..bytes.len() {
            assert_eq!(first(&bytes[..short]), First::More, "{short} bytes");
        }
    }

    #[test]
    fn other_beginnings_are_told() {
        assert_eq!(first(b"GET / HTTP/1.1\r\n"), First::NotTls);
        assert!(matches!(first(&record(&[2, 0, 0, 0])), First::Malformed(_)), "a server hello");
        assert!(matches!(first(&[22, 3, 1, 0, 0]), First::Malformed(_)), "an empty record");
        assert!(matches!(first(&record(&[1, 0xFF, 0, 0])), First::Malformed(_)), "16 MiB");
        let endless: Vec<u8> = record(&[[1, 0, 0x3F, 0xFF].as_slice(), &[0; 100]].concat()).repeat(1);
        let endless = [endless, record(&[0; 4000]).repeat(3), vec![22, 3, 1, 0x3F, 0xFF], vec![0; 3900]].concat();
        assert!(!matches!(first(&endless), First::Hello(_)));
    }

    /// A record of a server hello with this random.
    fn server(random: &[u8; 32]) -> Vec<u8> {
        record(&[&[2, 0][..], &with16(&[&[3, 3][..], random, &[0, 0x13, 1, 0]].concat())].concat())
    }

    #[test]
    fn a_server_that_asks_for_another_hello_is_heard() {
        let (retry, hello) = (server(&RETRY), server(&[7; 32]));
        let warning = [21, 3, 3, 0, 2, 1, 112];
        let pieces = [record(&retry[5..20]), record(&retry[20..])].concat();
        for asking in [retry.clone(), pieces, [&warning[..], &retry].concat()] {
            assert_eq!(answer(&asking), HelloReply::Retry);
            let known = (0..asking.len()).find(|short| answer(&asking[..*short]) != HelloReply::More).unwrap();
            assert_eq!(answer(&asking[..known]), HelloReply::Retry, "never anything else, however little is there");
        }
        assert_eq!(answer(&hello), HelloReply::Other);
        assert_eq!(answer(b"HTTP/1.1 400 Bad Request"), HelloReply::Other);
        assert_eq!(answer(&handshake(&[])), HelloReply::Other, "no record");
        assert_eq!(answer(&warning), HelloReply::More);
    }

    #[test]
    fn what_is_behind_a_hello_is_not_of_it() {
        let hello = record(&handshake(&[name("a.example")]));
        assert_eq!(length(&[&hello[..], b"more"].concat()), hello.len());
        assert_eq!((length(&hello[..9]), length(b"GET /")), (0, 0));
        // In one record nobody could tell which of two is meant.
        let two = record(&[handshake(&[name("a.example")]), handshake(&[name("b.example")])].concat());
        assert!(matches!(first(&two), First::Malformed(_)));
        assert!(matches!(first(&two[..hello.len()]), First::Malformed(_)), "before all of it is here");
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), tls in any::<bool>()) {
            if tls {
                bytes.splice(0..0, [22, 3, 1, 2, 0, 1, 0, 1, 252]);
            }
            prop_assert_ne!(answer(&bytes), HelloReply::Retry, "its random is nobody's chance");
            prop_assert!(length(&bytes) <= bytes.len());
            if let First::Hello(hello) = first(&bytes)
                && let Some(name) = hello.name {
                prop_assert!(crate::host::plain(&name) == Some(name));
            }
        }
    }
}
