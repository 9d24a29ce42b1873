//! Servers of the host that the cases of the network meet.

use std::net::TcpListener;

use conformance::Fixture;

/// Runs Python in the container with these rules and a server of the host that answers each connection with `hello` and
/// then repeats what it hears; `NAME` in the code is its name inside.
pub(super) fn with_server(
    scene: &Fixture,
    more: &[&str],
    code: &str,
) -> Result<conformance::Ended, conformance::CaseError> {
    with_rule(scene, answer, "", more, code)
}

/// The same with another server, and more keys of the rule.
pub(super) fn with_rule(
    scene: &Fixture,
    server: fn(std::net::TcpStream),
    keys: &str,
    more: &[&str],
    code: &str,
) -> Result<conformance::Ended, conformance::CaseError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let rule =
        format!("net.allow=[{{ host = \"served.test\", ports = [80, 7001], address = \"127.0.0.1:{port}\"{keys} }}]");
    let values: Vec<&str> =
        ["syscalls.profile=default", "net.mode=allow", &rule].into_iter().chain(more.iter().copied()).collect();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serve = || {
            while let Ok((stream, _)) = listener.accept() {
                if over.load(std::sync::atomic::Ordering::Acquire) {
                    return;
                }
                scope.spawn(move || server(stream));
            }
        };
        scope.spawn(serve);
        let ended = scene.python(&values, code);
        over.store(true, std::sync::atomic::Ordering::Release);
        drop(std::net::TcpStream::connect(("127.0.0.1", port)));
        ended
    })
}

pub(super) fn answer(mut stream: std::net::TcpStream) {
    let said = std::io::Write::write_all(&mut stream, b"hello");
    let copied = stream.try_clone().and_then(|mut back| std::io::copy(&mut stream, &mut back));
    drop((said, copied));
}

/// Answers one request of HTTP.
pub(super) fn page(mut stream: std::net::TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && std::io::Read::read(&mut stream, &mut byte).is_ok_and(|read| read == 1) {
        head.extend_from_slice(&byte);
    }
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    drop(std::io::Write::write_all(&mut stream, answer));
}

/// Says whether a request of HTTP has the caller's canary, and the request.
pub(crate) fn seen(mut stream: std::net::TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && std::io::Read::read(&mut stream, &mut byte).is_ok_and(|read| read == 1) {
        head.extend_from_slice(&byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let body = format!("{} {head}", if head.contains("canary-of-the-caller") { "seen" } else { "not seen" });
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    drop(std::io::Write::write_all(&mut stream, answer.as_bytes()));
}

/// Answers a CONNECT, and then as [`answer`] does what is connected to.
pub(crate) fn tunnel(mut stream: std::net::TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && std::io::Read::read(&mut stream, &mut byte).is_ok_and(|read| read == 1) {
        head.extend_from_slice(&byte);
    }
    let asked = head.starts_with(b"CONNECT only.test:22 HTTP/1.1\r\n");
    let login = String::from_utf8_lossy(&head).contains("\r\nProxy-Authorization: Basic dTpwYXNzLXdvcmQ=\r\n");
    let said: &[u8] = if asked && login { b"HTTP/1.1 200 OK\r\n\r\n" } else { b"HTTP/1.1 403 no\r\n\r\n" };
    if std::io::Write::write_all(&mut stream, said).is_ok() && asked {
        answer(stream);
    }
}
