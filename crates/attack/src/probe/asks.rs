//! Tries on a broker of the network: what a program can say to a server that rules allow in part, and to a resolver.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{Entry, Probe, errno, rest};

pub(super) const PROBES: &[Entry] = &[
    ("say", say),
    ("hello", hello),
    ("question", question),
    ("moves", moves),
    ("datagram", datagram),
    ("crowd", crowd),
    ("flood", flood),
    ("halves", halves),
    ("afterwards", afterwards),
    ("names", names),
];

/// How long an answer is waited for.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_millis(900);
/// Longer than a broker keeps an answer that is good for no time.
const FORGOTTEN: Duration = Duration::from_millis(5400);
/// Most bytes of an answer.
const MAX_ANSWER: usize = 256 << 10;

/// Where a name or an address with a port leads; as the C library reads it, so that `0177.1` is an address as well.
pub(super) fn resolved(to: &str) -> std::io::Result<SocketAddr> {
    to.to_socket_addrs()?.next().ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// Bytes of a text in which `\xNN` stands for one.
pub(super) fn bytes(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, after) = part.split_at_checked(2).unwrap_or((part, ""));
        out.push(u8::from_str_radix(digits, 16).unwrap_or(b'?'));
        out.extend_from_slice(after.as_bytes());
    }
    out
}

/// Says these pieces one after the other, and reads what comes back.
pub(super) fn said(to: &str, pieces: &[Vec<u8>]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&resolved(to)?, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(Duration::from_millis(150)))?;
    for piece in pieces {
        stream.write_all(piece)?;
        rest(Duration::from_millis(40));
    }
    let (mut all, begun, mut part) = (Vec::new(), Instant::now(), [0; 8192]);
    while begun.elapsed() < ANSWER_TIMEOUT && all.len() < MAX_ANSWER {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => all.extend_from_slice(part.get(..length).unwrap_or_default()),
            Err(_) if !all.is_empty() => break,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// `ALLOWED HELLO TO PIECE...`: something that is allowed, then the pieces of one connection.
fn say(probe: &Probe) {
    probe.read("what is allowed", said(&probe.argument(0), &[bytes(&probe.argument(1))]));
    let pieces: Vec<Vec<u8>> = (3..probe.args.len()).map(|at| bytes(&probe.argument(at))).collect();
    probe.read("what is not", said(&probe.argument(2), &pieces));
}

/// `TO HELLO TOKEN NAME HOW`: a client hello of TLS 1.3 for the right name that carries the first word, and one for another
/// name, or written in another way, that carries the token.
fn hello(probe: &Probe) {
    let to = probe.argument(0);
    let right = client_hello(&[b"allowed.test"], &probe.argument(1), &[]);
    probe.read("the right name", said(&to, &[right]));
    let (token, name) = (probe.argument(2), probe.argument(3));
    let sent = match probe.argument(4).as_str() {
        "none" => vec![client_hello(&[], &token, &[])],
        "two" => vec![client_hello(&[b"allowed.test", name.as_bytes()], &token, &[])],
        // Encrypted client hello (RFC 9849), outer.
        "encrypted" => vec![client_hello(&[b"allowed.test"], &token, &[(0xfe0d, &[0, 0, 1, 0, 1, 7, 0, 0, 0, 0])])],
        "repeated" => {
            let second = server_name(&[name.as_bytes()]);
            vec![client_hello(&[b"allowed.test"], &token, &[(0, &second)])]
        }
        // One byte of the name in each record.
        "fragmented" => vec![fragmented(&client_hello(&[name.as_bytes()], &token, &[]))],
        "after" => vec![b"\x16\x03\x01\x00\x02\x01\x00".to_vec(), token.into_bytes()],
        // The right name first, and another one in the hello that the server asks for.
        "retried" => {
            vec![client_hello(&[b"allowed.test"], "first", &[]), client_hello(&[name.as_bytes()], &token, &[])]
        }
        "old" => vec![[b"\x80\x2e\x01\x03\x01", token.as_bytes()].concat()],
        "raw" => vec![token.into_bytes()],
        "slow" => client_hello(&[name.as_bytes()], &token, &[]).chunks(40).map(<[u8]>::to_vec).collect(),
        _ => vec![client_hello(&[name.as_bytes()], &token, &[])],
    };
    probe.read("another name", said(&to, &sent));
}

fn sized(width: usize, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(0).to_be_bytes();
    [length.get(4 - width..).unwrap_or_default(), body].concat()
}

fn server_name(names: &[&[u8]]) -> Vec<u8> {
    let list: Vec<u8> = names.iter().flat_map(|name| [&[0], sized(2, name).as_slice()].concat()).collect();
    sized(2, &list)
}

pub(super) fn client_hello(names: &[&[u8]], word: &str, more: &[(u16, &[u8])]) -> Vec<u8> {
    let extension = |kind: u16, body: &[u8]| [&kind.to_be_bytes(), sized(2, body).as_slice()].concat();
    let mut extensions = Vec::new();
    if !names.is_empty() {
        extensions.extend(extension(0, &server_name(names)));
    }
    extensions.extend(extension(43, &[2, 3, 4]));
    // A ticket of an earlier session: bytes of the client's own.
    extensions.extend(extension(35, word.as_bytes()));
    for (kind, body) in more {
        extensions.extend(extension(*kind, body));
    }
    let body = [
        &[3, 3][..],
        &[7; 32],
        &sized(1, &[9; 32]),
        &sized(2, &[0x13, 1, 0x13, 2]),
        &sized(1, &[0]),
        &sized(2, &extensions),
    ]
    .concat();
    let handshake = [&[1][..], &sized(3, &body)].concat();
    [&[0x16, 3, 1][..], &sized(2, &handshake)].concat()
}

/// The same in many records; what the server is to know it by, at the end, is in one.
fn fragmented(hello: &[u8]) -> Vec<u8> {
    let handshake = hello.get(5..).unwrap_or_default();
    let (first, last) = handshake.split_at(handshake.len().saturating_sub(40));
    first.chunks(3).chain([last]).flat_map(|part| [&[0x16, 3, 1][..], &sized(2, part)].concat()).collect()
}

/// `RESOLVER ALLOWED NAME TYPE CLASS HOW`: a question that is allowed, then one that is not. `.` in a name ends a label, `\xNN` is a
/// byte of one.
fn question(probe: &Probe) {
    let to = probe.argument(0);
    probe.saw("what is allowed", asked(&to, &packet(&probe.argument(1), 1, 1, ""), false));
    let number = |at| u16::try_from(probe.number(at)).unwrap_or(0);
    let how = probe.argument(5);
    let packet = packet(&probe.argument(2), number(3), number(4), &how);
    probe.saw(format!("type {} of {}", probe.argument(3), how), asked(&to, &packet, how == "tcp"));
}

fn packet(name: &str, kind: u16, class: u16, how: &str) -> Vec<u8> {
    let questions = if how == "two" { 2 } else { 1 };
    let more = u8::from(how == "option");
    let mut packet = vec![0x12, 0x34, 1, 0, 0, questions, 0, 0, 0, 0, 0, more];
    for _ in 0..questions {
        for label in name.split('.').filter(|label| !label.is_empty()) {
            packet.extend(sized(1, &bytes(label)));
        }
        packet.push(0);
        packet.extend(kind.to_be_bytes());
        packet.extend(class.to_be_bytes());
    }
    if how == "option" {
        // EDNS with an option for experiments that carries bytes.
        packet.extend(b"\x00\x00\x29\x10\x00\x00\x00\x00\x00\x00\x08\xfd\xe9\x00\x04data");
    }
    packet
}

/// Whether a question is answered with a record.
fn asked(to: &str, packet: &[u8], stream: bool) -> Result<(), Errno> {
    let answer = answer(to, packet, stream)?;
    let no_error = answer.get(3).is_some_and(|byte| byte & 0x0f == 0);
    let records = answer.get(6..8).is_some_and(|count| count != [0, 0]);
    if no_error && records { Ok(()) } else { Err(Errno::CONNREFUSED) }
}

/// What a resolver says to a question.
fn answer(to: &str, packet: &[u8], stream: bool) -> Result<Vec<u8>, Errno> {
    let told = |error: std::io::Error| errno(&error);
    if stream {
        let answer = said(to, &[sized(2, packet)]).map_err(told)?;
        Ok(answer.get(2..).unwrap_or_default().to_vec())
    } else {
        let to = resolved(to).map_err(told)?;
        let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).map_err(told)?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(told)?;
        socket.connect(to).and_then(|()| socket.send(packet)).map_err(told)?;
        let mut text = vec![0; 4096];
        let length = socket.recv(&mut text).map_err(|_silent| Errno::CONNREFUSED)?;
        text.truncate(length);
        Ok(text)
    }
}

/// The one address that a resolver has for a name, of a type.
fn address(resolver: &str, name: &str, kind: u16) -> Option<IpAddr> {
    let said = answer(resolver, &packet(name, kind, 1, ""), false).ok()?;
    // One answer and nothing after it: its bytes are the last.
    if said.get(6..12)? != [0, 1, 0, 0, 0, 0] {
        return None;
    }
    let last = |count: usize| said.get(said.len().checked_sub(count)?..);
    match kind {
        1 => <[u8; 4]>::try_from(last(4)?).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(last(16)?).ok().map(IpAddr::from),
    }
}

/// `ALLOWED HELLO RESOLVER NAME PORT TEXT`: something that is allowed; then a name that moves: looked up, and once what was said
/// of it is no longer good, looked up again and spoken to, where it is now or at what stood for it before.
fn moves(probe: &Probe) {
    probe.read("what is allowed", said(&probe.argument(0), &[bytes(&probe.argument(1))]));
    let found = || [28, 1].map(|kind| address(&probe.argument(2), &probe.argument(3), kind)).into_iter().flatten();
    let before: Vec<IpAddr> = found().collect();
    rest(FORGOTTEN);
    let mut places: Vec<IpAddr> = found().collect();
    places.extend(before);
    for place in places {
        let port = u16::try_from(probe.number(4)).unwrap_or(0);
        let answer = said(&SocketAddr::new(place, port).to_string(), &[bytes(&probe.argument(5))]);
        let is_there = answer.as_ref().is_ok_and(|answer| !answer.is_empty());
        probe.read(place.to_string(), answer);
        if is_there {
            return;
        }
    }
}

/// `ALLOWED HELLO TO TOKEN`: something that is allowed, then a datagram to an address and port.
fn datagram(probe: &Probe) {
    probe.read("what is allowed", said(&probe.argument(0), &[bytes(&probe.argument(1))]));
    let sent = resolved(&probe.argument(2)).and_then(|to| {
        let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
        socket.send_to(probe.argument(3).as_bytes(), to)
    });
    rest(Duration::from_millis(300));
    probe.saw("datagram", sent.map_err(|error| errno(&error)));
}

/// `TO HELLO COUNT TOKEN`: holds so many connections, of which the first says what is allowed, and says the token on one more.
fn crowd(probe: &Probe) {
    let to = probe.argument(0);
    let open = || TcpStream::connect_timeout(&resolved(&to)?, ANSWER_TIMEOUT);
    let first = open().and_then(|mut stream| stream.write_all(probe.argument(1).as_bytes()).map(|()| stream));
    let mut held: Vec<TcpStream> = first.into_iter().collect();
    held.extend((1..probe.number(2).min(64)).filter_map(|_| open().ok()));
    rest(Duration::from_millis(200));
    probe.read("one connection more", said(&to, &[probe.argument(3).into_bytes()]));
    drop(held);
}

/// `TO HELLO KIB TOKEN`: what is allowed, then so many bytes more, then the token.
fn flood(probe: &Probe) {
    let kib = usize::try_from(probe.number(2).min(200)).unwrap_or(0);
    let much = vec![b'x'; kib << 10];
    probe.read(
        "after so many bytes",
        said(&probe.argument(0), &[probe.argument(1).into_bytes(), much, probe.argument(3).into_bytes()]),
    );
}

/// `TO HELLO COUNT TEXT`: so many connections that begin to say a text and never end it, and what is allowed beside them.
fn halves(probe: &Probe) {
    let (to, text) = (probe.argument(0), bytes(&probe.argument(3)));
    let open = || TcpStream::connect_timeout(&resolved(&to)?, ANSWER_TIMEOUT);
    let begun =
        (0..probe.number(2).min(200)).map(|_| open().and_then(|mut stream| stream.write_all(&text).map(|()| stream)));
    let held: Vec<TcpStream> = begun.filter_map(Result::ok).collect();
    probe.saw(format!("{} half texts", held.len()), if held.is_empty() { Err(Errno::CONNREFUSED) } else { Ok(()) });
    probe.read("what is allowed", said(&to, &[bytes(&probe.argument(1))]));
    rest(ANSWER_TIMEOUT);
    drop(held);
}

/// `TO HELLO TEXT`: what is allowed; then, for a while, a text again and again, at the same address.
fn afterwards(probe: &Probe) {
    let Ok(to) = resolved(&probe.argument(0)).map(|to| to.to_string()) else { return };
    probe.read("what is allowed", said(&to, &[bytes(&probe.argument(1))]));
    rest(ANSWER_TIMEOUT);
    for _ in 0..4 {
        probe.read("afterwards", said(&to, &[bytes(&probe.argument(2))]));
        rest(Duration::from_millis(300));
    }
}

/// `ALLOWED HELLO RESOLVER NAME TOKEN COUNT`: what is allowed; then so many names below one, each with the token, in a second or two.
fn names(probe: &Probe) {
    probe.read("what is allowed", said(&probe.argument(0), &[bytes(&probe.argument(1))]));
    let (name, token) = (probe.argument(3), probe.argument(4));
    let sent = resolved(&probe.argument(2)).and_then(|to| {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        for count in 0..probe.number(5).min(1000) {
            socket.send_to(&packet(&format!("{token}.{count}.{name}"), 1, 1, ""), to)?;
            // So many at once that none is lost.
            rest(Duration::from_millis(u64::from(count % 20 == 0)));
        }
        Ok(())
    });
    rest(ANSWER_TIMEOUT);
    probe.saw("names", sent.map_err(|error| errno(&error)));
}
