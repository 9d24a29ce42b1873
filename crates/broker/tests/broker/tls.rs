//! TLS of opened rules: what a program and a server see of it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use super::HOST;
use super::stage::{WORLD, connect, staged, web};

/// The authority that the broker trusts outside.
pub(crate) struct World(CertifiedIssuer<'static, KeyPair>);

impl World {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "the world's own");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A server with a certificate of this authority for `name`.
    pub(crate) fn server(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let signed = params.signed_by(&key, &self.0).unwrap();
        config(signed.der().clone(), &key)
    }
}

pub(crate) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) fn config(certificate: CertificateDer<'static>, key: &KeyPair) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap())
}

pub(crate) fn self_signed(name: &str) -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
    config(signed.der().clone(), &key)
}

/// A server of HTTP in TLS; [`web`] serves what is in it.
pub(crate) fn serve(config: &Arc<ServerConfig>) -> impl Fn(TcpStream) + Send + Sync + Clone + 'static {
    let config = Arc::clone(config);
    move |stream| web(StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream))
}

pub(crate) type Client = StreamOwned<ClientConnection, TcpStream>;

/// A program that trusts the run's authority alone.
pub(crate) fn client(trusted: &str, to: &str, asked: &str) -> Client {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), asked.to_owned().try_into().unwrap()).unwrap();
    StreamOwned::new(connection, connect(to, 443))
}

/// Sends, and reads one answer of a kept connection.
pub(crate) fn ask(client: &mut Client, request: &str) -> std::io::Result<String> {
    client.write_all(request.as_bytes())?;
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if length.is_none_or(|length: usize| body.len() >= length) {
                return Ok(text);
            }
        }
        let mut buffer = [0; 4096];
        match client.read(&mut buffer)? {
            0 => return Ok(text),
            count => read.extend_from_slice(&buffer[..count]),
        }
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n")
}

fn rules() -> serde_json::Value {
    let host = "*.at-93-184-216-34.example";
    json!({"allow": [
        {"host": host, "methods": ["GET"], "paths": ["/v1/**"]},
        {"host": host, "methods": ["GET"], "paths": ["/v1/socket"], "websocket": true},
    ]})
}

#[test]
fn every_request_in_tls_is_judged() {
    staged("tls::every_request_in_tls_is_judged", |stage| {
        stage.server((WORLD, 443), serve(&stage.authority.server(HOST, |_| {})));
        let mut engine = stage.broker(&rules());
        engine.ready();
        let trusted = stage.trusted.borrow().clone().unwrap();
        stage.program(|| {
            let mut kept = client(&trusted, HOST, HOST);
            let said = ask(&mut kept, &get("/v1/a")).unwrap();
            assert!(said.starts_with("HTTP/1.1 200") && said.contains("GET /v1/a HTTP/1.1"), "{said}");
            // The next requests of the same connection, which goes on after a denial.
            for (request, id) in [
                (get("/v2/a"), "net.allow/path"),
                (get("/v1/../v2"), "net.allow/path"),
                (get("/v1/%2e%2e/v2"), "net.allow/path"),
                (get("/v1/a").replace("GET", "DELETE"), "net.allow/method"),
                (get("/v1/a").replace(HOST, "b.at-93-184-216-34.example"), "net.allow/host-header"),
            ] {
                let said = ask(&mut kept, &request).unwrap();
                assert!(said.starts_with("HTTP/1.1 403") && said.contains(id), "{request}: {said}");
            }
            assert!(ask(&mut kept, &get("/v1/b")).unwrap().starts_with("HTTP/1.1 200"));
            // What could be read in two ways reaches nobody.
            let two = format!(
                "GET /v1/a HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            );
            let hosts = format!("GET /v1/a HTTP/1.1\r\nHost: {HOST}\r\nHost: {HOST}\r\n\r\n");
            let absolute = format!("GET https://evil.example/v1/a HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
            for bad in [two, hosts, absolute] {
                let said = ask(&mut client(&trusted, HOST, HOST), &bad).unwrap();
                assert!(said.starts_with("HTTP/1.1 403"), "{bad}: {said}");
            }
            // A name that is not the connection's own.
            let other = "b.at-93-184-216-34.example";
            assert!(ask(&mut client(&trusted, HOST, other), &get("/v1/a")).is_err());
        });
        for id in ["net.allow/path", "net.allow/method", "net.allow/host-header", "net.allow/server-name"] {
            assert_eq!(engine.denied(id).port, 443, "{id}");
        }
        engine.end();
    });
}

#[test]
fn servers_are_verified_and_their_failure_is_no_denial() {
    staged("tls::servers_are_verified_and_their_failure_is_no_denial", |stage| {
        let world = &stage.authority;
        let expired = world.server("expired.at-93-184-216-34.example", |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        });
        let servers = [
            ("right", world.server("right.at-93-184-216-34.example", |_| {}), true),
            ("expired", expired, false),
            ("other", world.server("another.example", |_| {}), false),
            ("self", self_signed("self.at-93-184-216-34.example"), false),
            ("unknown", World::new().server("unknown.at-93-184-216-34.example", |_| {}), false),
        ];
        let mut allow = Vec::new();
        for (at, (name, config, _)) in servers.iter().enumerate() {
            let port = 9000 + u16::try_from(at).unwrap();
            stage.server((WORLD, port), serve(config));
            let host = format!("{name}.at-93-184-216-34.example");
            let address = format!("93.184.216.34:{port}");
            allow.push(json!({"host": host, "ports": [443], "methods": ["GET"], "address": address}));
        }
        let mut engine = stage.broker(&json!({"allow": allow}));
        engine.ready();
        let trusted = stage.trusted.borrow().clone().unwrap();
        stage.program(|| {
            for (name, _, right) in &servers {
                let host = format!("{name}.at-93-184-216-34.example");
                let said = ask(&mut client(&trusted, &host, &host), &get("/").replace(HOST, &host)).unwrap();
                let status = if *right { "HTTP/1.1 200" } else { "HTTP/1.1 502" };
                assert!(said.starts_with(status) && (*right || said.contains("cannot be trusted")), "{name}: {said}");
            }
        });
        let last = engine.end();
        assert!(!last.iter().any(|frame| matches!(frame, egress::wire::FromBroker::Denied(_))), "{last:?}");
        // It is told of each why, as of one that refuses connections.
        let unreached = |frame: &egress::wire::FromBroker| match frame {
            egress::wire::FromBroker::Unreached { host, port, why } => Some((host.clone(), *port, why.clone())),
            _ => None,
        };
        let told: Vec<_> = last.iter().filter_map(unreached).collect();
        let hosts: Vec<_> = told.iter().filter_map(|(host, _, _)| host.split('.').next()).collect();
        assert_eq!(hosts, ["expired", "other", "self", "unknown"], "{told:?}");
        assert!(told.iter().all(|(_, port, why)| *port == 443 && why.contains("cannot be trusted")), "{told:?}");
    });
}

/// The same server, of HTTP/2 alone.
pub(crate) fn two_of(config: &Arc<ServerConfig>) -> Arc<ServerConfig> {
    let mut config = ServerConfig::clone(config);
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// A server of HTTP/2 that says what it was asked for, with a trailer as gRPC has them.
pub(crate) fn serve_two(config: &Arc<ServerConfig>) -> impl Fn(TcpStream) + Send + Sync + Clone + 'static {
    let config = two_of(config);
    move |stream| {
        let config = Arc::clone(&config);
        alone(async move {
            stream.set_nonblocking(true).unwrap();
            let stream = tokio::net::TcpStream::from_std(stream).unwrap();
            let stream = tokio_rustls::TlsAcceptor::from(config).accept(stream).await.unwrap();
            let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                let te = request.headers().get("te").map(|te| te.to_str().unwrap().to_owned());
                let said = format!("{} {} {:?} {te:?}", request.method(), request.uri(), request.version());
                let body = http_body_util::BodyExt::collect(request.into_body()).await?.to_bytes();
                let frames = [
                    Ok::<_, hyper::Error>(hyper::body::Frame::data(bytes::Bytes::from(said))),
                    Ok(hyper::body::Frame::data(body)),
                    Ok(hyper::body::Frame::trailers([("grpc-status", "0")].map(pair).into_iter().collect())),
                ];
                let body = http_body_util::StreamBody::new(tokio_stream::iter(frames));
                Ok::<_, hyper::Error>(http::Response::new(body))
            });
            let io = hyper_util::rt::TokioIo::new(stream);
            drop(hyper::server::conn::http2::Builder::new(Local).serve_connection(io, service).await);
        });
    }
}

fn pair((name, value): (&'static str, &'static str)) -> (http::HeaderName, http::HeaderValue) {
    (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
}

#[derive(Clone)]
struct Local;

impl<F: Future + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}

fn alone<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

/// A connection to the host, by HTTP/2, for a program that trusts this.
async fn begin_two<B>(trusted: &str) -> (hyper::client::conn::http2::SendRequest<B>, tokio::task::JoinHandle<()>)
where
    B: hyper::body::Body<Data = bytes::Bytes> + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = connect(HOST, 443);
    stream.set_nonblocking(true).unwrap();
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    let name = HOST.to_owned().try_into().unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (sender, connection) = hyper::client::conn::http2::handshake(Local, io).await.unwrap();
    (sender, tokio::task::spawn_local(async { drop(connection.await) }))
}

/// Asks by HTTP/2, all at once; status, body and `grpc-status` of each.
pub(crate) fn ask_two(trusted: &str, asked: &[(&str, &str)]) -> Vec<(u16, String, Option<String>)> {
    alone(async move {
        let (sender, driver) = begin_two(trusted).await;
        let mut answers = Vec::new();
        for (method, target) in asked {
            let request = http::Request::builder().method(*method).uri(*target).header("te", "trailers");
            // Who asks for a tunnel has no body.
            let body =
                http_body_util::Full::new(bytes::Bytes::from_static(if *method == "CONNECT" { b"" } else { b" body" }));
            answers.push(sender.clone().send_request(request.body(body).unwrap()));
        }
        let mut said = Vec::new();
        for answer in answers {
            let answer = answer.await.unwrap();
            let status = answer.status().as_u16();
            let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap();
            let trailer = body.trailers().map(|all| all["grpc-status"].to_str().unwrap().to_owned());
            said.push((status, String::from_utf8_lossy(&body.to_bytes()).into_owned(), trailer));
        }
        driver.abort();
        said
    })
}

/// A body that comes after a while.
struct Late(Option<std::pin::Pin<Box<tokio::time::Sleep>>>, Option<bytes::Bytes>);

impl hyper::body::Body for Late {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, Self::Error>>> {
        if let Some(wait) = &mut self.0 {
            std::task::ready!(wait.as_mut().poll(cx));
            self.0 = None;
        }
        std::task::Poll::Ready(self.1.take().map(|data| Ok(hyper::body::Frame::data(data))))
    }
}

/// Posts bodies, all at once on one connection of HTTP/2, each after so many milliseconds; the statuses.
pub(crate) fn post_two(trusted: &str, target: &str, after: impl Iterator<Item = u64>) -> Vec<u16> {
    alone(async move {
        let (sender, driver) = begin_two(trusted).await;
        let mut answers = Vec::new();
        for millis in after {
            let wait = Box::pin(tokio::time::sleep(std::time::Duration::from_millis(millis)));
            let body = Late(Some(wait), Some(bytes::Bytes::from_static(&[b'x'; 60 << 10])));
            let request = http::Request::post(target).body(body).unwrap();
            answers.push(tokio::task::spawn_local(sender.clone().send_request(request)));
        }
        let mut said = Vec::new();
        for answer in answers {
            said.push(answer.await.unwrap().unwrap().status().as_u16());
        }
        driver.abort();
        said
    })
}

#[test]
fn every_stream_of_http_2_is_judged_and_trailers_go_through() {
    staged("tls::every_stream_of_http_2_is_judged_and_trailers_go_through", |stage| {
        stage.server((WORLD, 443), serve_two(&stage.authority.server(HOST, |_| {})));
        let rules =
            json!({"allow": [{"host": "*.at-93-184-216-34.example", "methods": ["POST"], "paths": ["/v1/**"]}]});
        let mut engine = stage.broker(&rules);
        engine.ready();
        let trusted = stage.trusted.borrow().clone().unwrap();
        let (right, path) = (format!("https://{HOST}/v1/a"), format!("https://{HOST}/v2"));
        let other = "https://b.at-93-184-216-34.example/v1/a";
        let said = stage.program(|| {
            ask_two(&trusted, &[("POST", &right), ("GET", &right), ("POST", &path), ("POST", other), ("POST", &right)])
        });
        for at in [0, 4] {
            let (status, body, trailer) = &said[at];
            assert_eq!((*status, trailer.as_deref()), (200, Some("0")), "{body}");
            assert_eq!(*body, format!("POST {right} HTTP/2.0 Some(\"trailers\") body"));
        }
        for (at, id) in [(1, "net.allow/method"), (2, "net.allow/path"), (3, "net.allow/host-header")] {
            assert!(said[at].0 == 403 && said[at].1.contains(id), "{:?}", said[at]);
            assert_eq!(engine.denied(id).port, 443);
        }
        // Many streams, one after the other and at once.
        for _ in 0..10 {
            let said = stage.program(|| ask_two(&trusted, &[("POST", right.as_str()); 100]));
            assert!(said.iter().all(|(status, ..)| *status == 200), "{said:?}");
        }
        assert_eq!(engine.used().connections, 11, "one outside for each inside, however many streams it has");
    });
}

/// Sends a large body to a path that no rule has, and asks with more headers than may be; the answers, and how much was sent.
fn ask_much(trusted: &str) -> (Vec<(u16, String)>, usize) {
    alone(async move {
        let (mut sender, driver) = begin_two(trusted).await;
        let sent = std::rc::Rc::new(std::cell::Cell::new(0));
        let counted = std::rc::Rc::clone(&sent);
        let body = |count| {
            let counted = std::rc::Rc::clone(&counted);
            let pieces = std::iter::repeat_n(bytes::Bytes::from(vec![b'a'; 10_000]), count).map(move |piece| {
                counted.set(counted.get() + piece.len());
                Ok::<_, hyper::Error>(hyper::body::Frame::data(piece))
            });
            http_body_util::StreamBody::new(tokio_stream::iter(pieces))
        };
        let large = http::Request::post(format!("https://{HOST}/v2")).body(body(300)).unwrap();
        let mut many = http::Request::post(format!("https://{HOST}/v1/a"));
        for _ in 0..101 {
            many = many.header("x-same", "1");
        }
        let mut said = Vec::new();
        for request in [large, many.body(body(0)).unwrap()] {
            let answer = sender.send_request(request).await.unwrap();
            let status = answer.status().as_u16();
            let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
            said.push((status, String::from_utf8_lossy(&body).into_owned()));
        }
        driver.abort();
        (said, sent.get())
    })
}

#[test]
fn a_denied_body_of_http_2_is_heard_to_its_end_and_headers_are_counted() {
    staged("tls::a_denied_body_of_http_2_is_heard_to_its_end_and_headers_are_counted", |stage| {
        stage.server((WORLD, 443), serve_two(&stage.authority.server(HOST, |_| {})));
        let mut engine = stage.broker(&json!({"allow": [{"host": HOST, "methods": ["POST"], "paths": ["/v1/**"]}]}));
        engine.ready();
        let trusted = stage.trusted.borrow().clone().unwrap();
        let (said, sent) = stage.program(|| ask_much(&trusted));
        for ((status, body), id) in said.iter().zip(["net.allow/path", "net.allow/malformed"]) {
            assert!(*status == 403 && body.contains(id), "{said:?}");
        }
        assert_eq!(sent, 3_000_000);
        engine.end();
    });
}

/// A program of HTTP/2 and a server of HTTP/1 alone, and the other way round.
#[test]
fn versions_of_http_meet() {
    staged("tls::versions_of_http_meet", |stage| {
        stage.server((WORLD, 443), serve(&stage.authority.server(HOST, |_| {})));
        let mut engine = stage.broker(&rules());
        engine.ready();
        let trusted = stage.trusted.borrow().clone().unwrap();
        let right = format!("https://{HOST}/v1/a");
        let said = stage.program(|| ask_two(&trusted, &[("GET", &right), ("GET", &format!("https://{HOST}/v2"))]));
        assert!(said[0].0 == 200 && said[0].1.contains("GET /v1/a HTTP/1.1"), "{said:?}");
        assert!(said[0].1.to_lowercase().contains(&format!("host: {HOST}")), "{said:?}");
        assert_eq!(said[1].0, 403);
        for (path, expected) in [("/v1/socket", "HTTP/1.1 101"), ("/v1/other", "HTTP/1.1 403")] {
            let said = stage.program(|| {
                let upgrade = get(path).replace("\r\n\r\n", "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
                ask(&mut client(&trusted, HOST, HOST), &upgrade).unwrap()
            });
            assert!(said.starts_with(expected), "{path}: {said}");
        }
        // In HTTP/2 a socket would be opened by CONNECT, which nobody is let have.
        let said = stage.program(|| ask_two(&trusted, &[("CONNECT", HOST), ("GET", &right)]));
        assert!(said[0].0 == 403 && said[0].1.contains("net.allow/host-header") && said[1].0 == 200, "{said:?}");
        // Other rules may open what the run's authority signs for, and nothing else.
        let more = json!({"allow": [{"host": "a.other.example", "methods": ["GET"]}]});
        engine.send(&egress::wire::ToBroker::Rules { net: super::full(&more) });
        let why = engine.wait(|frame| match frame {
            egress::wire::FromBroker::Refused { why } => Some(why.clone()),
            _ => None,
        });
        assert!(why.contains("a new sandbox"), "{why}");
        engine.end();
    });
}
