//! What carries requests: slow clients are cut, TLS as `openssl` speaks it, sockets that somebody else opened.

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use server::http::{Listen, TlsFiles, bind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use crate::kept;
use crate::stage::{Stage, stage, stage_at};

/// Says this, then a byte each second; what was answered, and after how long it was over.
async fn dribble(address: &str, first: &str) -> (String, Duration) {
    let began = Instant::now();
    let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
    write.write_all(first.as_bytes()).await.unwrap();
    let slowly = tokio::spawn(async move {
        while write.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let mut answer = Vec::new();
    // One that is reset was cut as well.
    let over = tokio::time::timeout(Duration::from_secs(60), read.read_to_end(&mut answer)).await;
    slowly.abort();
    assert!(over.is_ok(), "never cut: {first}");
    (String::from_utf8_lossy(&answer).into_owned(), began.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_slowly_is_cut_and_who_is_only_late_is_answered() {
    let stage = stage().await;
    let address = stage.base.strip_prefix("http://").unwrap();
    let key = stage.keys.add("one", None, None).unwrap();
    let head = format!("POST /v1/sandboxes HTTP/1.1\r\nHost: {address}\r\nX-API-KEY: {key}\r\n");
    let body = format!("{head}Connection: close\r\nContent-Length: 1000\r\n\r\n");
    let late = async {
        let mut io = TcpStream::connect(address).await.unwrap();
        let mut answer = vec![0; 12];
        for part in ["GET /health HTTP/1.1\r\n", &format!("Host: {address}\r\n"), "\r\n"] {
            tokio::time::sleep(Duration::from_secs(3)).await;
            io.write_all(part.as_bytes()).await.unwrap();
        }
        io.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"HTTP/1.1 200");
    };
    let silent = async {
        let mut io = TcpStream::connect(address).await.unwrap();
        let began = Instant::now();
        assert_eq!(io.read(&mut [0; 1]).await.unwrap_or(0), 0);
        began.elapsed()
    };
    let in_head = format!("{head}X-Slow: ");
    let idle = kept::idle_for_longer_than_a_head_takes(&stage);
    let (head, body, silent, (), ()) =
        tokio::join!(dribble(address, &in_head), dribble(address, &body), silent, late, idle);
    assert!(!head.0.contains(" 200 ") && (25..55).contains(&head.1.as_secs()), "{head:?}");
    assert!(body.0.starts_with("HTTP/1.1 408") && (25..55).contains(&body.1.as_secs()), "{body:?}");
    assert!((8..40).contains(&silent.as_secs()), "{silent:?}");
}

/// A certificate for 127.0.0.1, and its key.
#[expect(clippy::disallowed_methods, reason = "a program of the machine is the other side")]
fn certificate(folder: &Path) -> TlsFiles {
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout"])
        .args([&key, Path::new("-out"), &certificate])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    TlsFiles { certificate, key }
}

/// What `openssl s_client` says and hears.
#[expect(clippy::disallowed_methods, reason = "a program of the machine is the other side")]
async fn s_client(stage: &Stage, files: &TlsFiles, flags: &[&str]) -> Output {
    let address = stage.base.split("//").nth(1).unwrap().to_owned();
    let mut command = Command::new("openssl");
    command.args(["s_client", "-verify_return_error", "-verify_ip", "127.0.0.1", "-ign_eof", "-connect", &address]);
    command.arg("-CAfile").arg(&files.certificate).args(flags);
    let asked = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let spoken = tokio::task::spawn_blocking(move || {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // One that was refused reads nothing.
        drop(input.write_all(asked.as_bytes()));
        drop(input);
        child.wait_with_output().unwrap()
    });
    tokio::time::timeout(Duration::from_secs(30), spoken).await.unwrap().unwrap()
}

fn loopback() -> Option<SocketAddr> {
    Some("127.0.0.1:0".parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_spoken_with_a_client_that_is_not_ours() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificate(folder.path());
    let listen = Listen { address: loopback(), tls: Some(files.clone()), ..Listen::default() };
    let stage = stage_at(listen, |make| Arc::new(make)).await;
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let good = s_client(&stage, &files, &["-alpn", "http/1.1"]).await;
    assert!(text(&good).contains("HTTP/1.1 200 OK") && text(&good).contains("ALPN protocol: http/1.1"), "{good:?}");
    let newer = s_client(&stage, &files, &["-alpn", "h2,http/1.1", "-tls1_3"]).await;
    assert!(text(&newer).contains("ALPN protocol: h2"), "{newer:?}");
    let old = s_client(&stage, &files, &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]).await;
    assert!(!text(&old).contains("HTTP/1.1"), "{old:?}");
    // Nothing is answered in the clear.
    let mut io = TcpStream::connect(stage.base.split("//").nth(1).unwrap()).await.unwrap();
    io.write_all(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.unwrap();
    let mut heard = Vec::new();
    drop(tokio::time::timeout(Duration::from_secs(15), io.read_to_end(&mut heard)).await.unwrap());
    assert!(!String::from_utf8_lossy(&heard).contains("HTTP/"), "{heard:?}");
    // A key that everybody may read is none.
    std::fs::set_permissions(&files.key, PermissionsExt::from_mode(0o604)).unwrap();
    let open = Listen { address: loopback(), tls: Some(files), ..Listen::default() };
    assert!(bind(open).await.unwrap_err().to_string().contains("everybody may read"));
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_that_were_opened_before_are_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let listen = Listen { inherited: vec![tcp.into(), unix.into()], ..Listen::default() };
    let _stage = stage_at(listen, |make| Arc::new(make)).await;
    let asked = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let (mut over_tcp, mut over_unix) = (String::new(), String::new());
    let mut io = TcpStream::connect(address).await.unwrap();
    io.write_all(asked.as_bytes()).await.unwrap();
    io.read_to_string(&mut over_tcp).await.unwrap();
    let mut io = UnixStream::connect(&path).await.unwrap();
    io.write_all(asked.as_bytes()).await.unwrap();
    io.read_to_string(&mut over_unix).await.unwrap();
    for answer in [over_tcp, over_unix] {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    // One that others reach is not served in the clear, whoever opened it.
    let far = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    assert!(bind(Listen { inherited: vec![far.into()], ..Listen::default() }).await.is_err());
}
