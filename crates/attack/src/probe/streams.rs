//! Requests over HTTP/2 that are asked for and taken back at once (rapid reset, CVE-2023-44487).

use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::asks::{ANSWER_TIMEOUT, bytes, client_hello, resolved, said};
use super::{Entry, Probe, errno, rest};

pub(super) const PROBES: &[Entry] = &[("resets", resets)];

/// The host that rules allow.
const NAME: &str = "allowed.test";
/// Requests that are sent at once: more of them would end the connection.
const AT_ONCE: u32 = 4;

/// `ALLOWED HELLO OPENED HOW COUNT`: something that is allowed; then so many requests, each taken back at once: over one connection of
/// HTTP/2 (`streams`), or, where nobody stands between who speaks it, over one each.
fn resets(probe: &Probe) {
    probe.read("what is allowed", said(&probe.argument(0), &[bytes(&probe.argument(1))]));
    let (to, count) = (probe.argument(2), u32::try_from(probe.number(4).min(2000)).unwrap_or(0));
    let asked = if probe.argument(3) == "streams" { streams(&to, count) } else { connections(&to, count) };
    rest(ANSWER_TIMEOUT);
    match asked {
        // What was not asked for shows nothing.
        Ok(asked) if asked.saturating_mul(2) >= count => probe.found("requests", asked.to_string()),
        Ok(asked) => probe.read("requests", Err(Error::other(format!("only {asked}")))),
        Err(error) => probe.saw::<()>("requests", Err(errno(&error))),
    }
}

/// A connection for each, of which the server hears the beginning.
fn connections(to: &str, count: u32) -> Result<u32> {
    let (to, hello) = (resolved(to)?, client_hello(&[NAME.as_bytes()], "", &[]));
    let mut begun: u32 = 0;
    for number in 0..count {
        let said = TcpStream::connect_timeout(&to, ANSWER_TIMEOUT).and_then(|mut stream| stream.write_all(&hello));
        begun = begun.saturating_add(u32::from(said.is_ok()));
        // So many at once that none waits to be accepted.
        rest(Duration::from_millis(u64::from(number % 10 == 0)));
    }
    Ok(begun)
}

/// How many were asked for until nobody listened any more.
fn streams(to: &str, count: u32) -> Result<u32> {
    let mut tls = opened(to)?;
    tls.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", frame(4, 0, 0, &[]).as_slice()].concat())?;
    tls.flush()?;
    tls.sock.set_read_timeout(Some(Duration::from_millis(1)))?;
    for first in (0..count).step_by(usize::try_from(AT_ONCE).unwrap_or(1)) {
        let streams = (first..first + AT_ONCE).map(|number| 2 * number + 1);
        let piece: Vec<u8> =
            streams.flat_map(|stream| [request(stream), frame(3, 0, stream, &[0, 0, 0, 8])].concat()).collect();
        if tls.write_all(&piece).and_then(|()| tls.flush()).is_err() {
            return Ok(first);
        }
        // What is said is read, so that nobody waits for us.
        match tls.read(&mut [0; 16 << 10]) {
            Ok(0) => return Ok(first),
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(first),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(count)
}

/// TLS with whoever the program is told to trust.
fn opened(to: &str) -> Result<StreamOwned<ClientConnection, TcpStream>> {
    let trusted = std::env::var_os("SSL_CERT_FILE").ok_or(ErrorKind::NotFound)?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&std::fs::read(trusted)?).flatten());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.map_err(Error::other)?.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from(NAME).map_err(Error::other)?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(Error::other)?;
    let stream = TcpStream::connect_timeout(&resolved(to)?, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(StreamOwned::new(connection, stream))
}

fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap_or(0).to_be_bytes();
    [length.get(1..).unwrap_or_default(), &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// A request that is whole, in one frame: its fields are literals, and of no table (RFC 7541, 6.2.2).
fn request(stream: u32) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap_or(0)], text.as_bytes()].concat();
    // GET, https, the path, the host.
    let fields = [&[0x82, 0x87, 0x04][..], &text("/public/taken-back"), &[0x01], &text(NAME)].concat();
    frame(1, 0x05, stream, &fields)
}
