//! The way out by a proxy of HTTP: CONNECT with the name, which the proxy resolves. What it answers is read to the end of its
//! head and no further: the next byte is the server's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use egress::wire::Hidden;
use policy::value::{Proxy, is_loopback_name};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use crate::resolver::{Resolved, Resolver};
use crate::stop::ConnectionEnd;
use crate::{copy, outside};

/// Most bytes of the head of an answer.
const MAX_ANSWER: usize = 8 << 10;

/// By what the proxy knows us, as it is sent.
pub(crate) struct Credentials(Zeroizing<String>);

impl Credentials {
    pub(crate) fn new(login: &Hidden) -> Self {
        Self(Zeroizing::new(STANDARD.encode(login.0.as_bytes())))
    }
}

/// A connection to `name` that the proxy made.
pub(crate) async fn connect(
    proxy: &Proxy,
    (name, port): (&str, u16),
    resolver: &Rc<Resolver>,
    credentials: Option<&Credentials>,
) -> Result<TcpStream, ConnectionEnd> {
    // Programs inside are told this: where the proxy is, is not theirs to know.
    let failed = |why: &str| ConnectionEnd::Failed(format!("{name} cannot be reached by the proxy: {why}"));
    // The policy names the proxy, so it may be anywhere, inside as well.
    let addresses = match proxy.host.parse::<IpAddr>() {
        Ok(address) => vec![address],
        // No resolver is asked for it: it is this machine.
        Err(_) if is_loopback_name(&proxy.host) => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        Err(_) => match resolver.find(&proxy.host).await {
            Resolved::Addresses(addresses) => addresses,
            Resolved::NoName => return Err(failed("there is no proxy of this name")),
            Resolved::Failed(why) => return Err(failed(&format!("the proxy cannot be resolved: {why}"))),
            Resolved::TooMany => return Err(failed("too many names are asked for, the proxy's among them")),
        },
    };
    let addresses: Vec<SocketAddr> = addresses.into_iter().map(|ip| SocketAddr::new(ip, proxy.port)).collect();
    let stream = outside::connect(&addresses).await.map_err(|error| failed(&error.to_string()))?;
    let broken = |error: std::io::Error| failed(&error.to_string());
    copy::all(&stream, question(credentials, name, port).as_bytes()).await.map_err(broken)?;
    match answer(&stream).await.map_err(|why| failed(&why))? {
        200..=299 => Ok(stream),
        407 => Err(failed("it does not know the login of `net.proxy`, or asks for one (407)")),
        code => Err(failed(&format!("it answered with {code}"))),
    }
}

fn question(credentials: Option<&Credentials>, name: &str, port: u16) -> Zeroizing<String> {
    let login = credentials.map(|credentials| format!("Proxy-Authorization: Basic {}\r\n", credentials.0.as_str()));
    let login = Zeroizing::new(login.unwrap_or_default());
    let login = login.as_str();
    Zeroizing::new(format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n{login}\r\n"))
}

/// The status of its answer, whose head is taken from the connection whole.
async fn answer(stream: &TcpStream) -> Result<u16, String> {
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        let before = head.len();
        let count = stream.peek(&mut buffer).await.map_err(|error| error.to_string())?;
        if count == 0 {
            return Err("it closed without an answer".to_owned());
        }
        head.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let end = head.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at.saturating_add(4));
        let of_head = end.map_or(count, |end| end.saturating_sub(before));
        take(stream, buffer.get_mut(..of_head).unwrap_or_default()).await.map_err(|error| error.to_string())?;
        match end {
            Some(end) => {
                return status(head.get(..end).unwrap_or_default()).ok_or_else(|| "it speaks no HTTP/1".to_owned());
            }
            None if head.len() > MAX_ANSWER => {
                return Err(format!("its answer has more than {MAX_ANSWER} bytes"));
            }
            None => {}
        }
    }
}

/// Takes so many bytes, which are there.
async fn take(stream: &TcpStream, mut into: &mut [u8]) -> std::io::Result<()> {
    while !into.is_empty() {
        stream.readable().await?;
        match stream.try_read(into) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => into = into.get_mut(count..).unwrap_or_default(),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The code of a status line.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let rest = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "))?;
    let (code, after) = rest.split_at_checked(3)?;
    let code: u16 =
        std::str::from_utf8(code).ok().filter(|code| code.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()?;
    (after.is_empty() || after.starts_with(b" ")).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_line_of_http_1_says_that_there_is_a_way() {
        for (head, code) in [
            ("HTTP/1.1 200 Connection established\r\n\r\n", Some(200)),
            ("HTTP/1.0 200\r\nVia: x\r\n\r\n", Some(200)),
            ("HTTP/1.1 403 Forbidden\r\n\r\n", Some(403)),
            ("HTTP/1.1 2000 OK\r\n\r\n", None),
            ("HTTP/1.1 +20 OK\r\n\r\n", None),
            ("HTTP/2 200\r\n\r\n", None),
            ("220 mail\r\n\r\n", None),
            ("\r\n\r\n", None),
        ] {
            assert_eq!(status(head.as_bytes()), code, "{head:?}");
        }
    }

    #[test]
    fn a_login_is_one_header() {
        let login = Credentials::new(&Hidden(Zeroizing::new("user:pass".to_owned())));
        let asked = question(Some(&login), "a.example", 443);
        let expected =
            "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n\r\n";
        assert_eq!(asked.as_str(), expected);
        assert!(!question(None, "a.example", 443).contains("Authorization"));
    }
}
