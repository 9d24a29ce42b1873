//! Spans against a receiver of the tests' own.

use axum::http::{Method, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

fn settings(port: u16) -> Traces {
    let set = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}")),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-token=a%20b".to_owned()),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1000".to_owned()),
        ("OTEL_BSP_SCHEDULE_DELAY", "20".to_owned()),
    ];
    Traces::of(&|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone())).unwrap().unwrap()
}

fn parts(path: &str, parent: Option<&str>) -> Parts {
    let mut request = Request::builder().method(Method::POST).uri(path);
    if let Some(parent) = parent {
        request = request.header("traceparent", parent);
    }
    request.body(()).unwrap().into_parts().0
}

fn answer(status: StatusCode) -> Response<Body> {
    Response::builder().status(status).body(Body::empty()).unwrap()
}

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[test]
fn the_trace_of_a_caller_goes_on_and_what_is_none_begins_one() {
    let begun = Tracer::begin(&parts("/v1/x", Some(PARENT)), Part::Native).unwrap();
    assert_eq!(hex(&begun.trace), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(begun.parent.map(|id| hex(&id)).as_deref(), Some("b7ad6b7169203331"));
    assert!(Tracer::begin(&parts("/", Some(&PARENT.replace("-01", "-00"))), Part::Other).is_none(), "not sampled");
    for odd in [
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7-b7ad-01",
        "",
    ] {
        let begun = Tracer::begin(&parts("/", Some(odd)), Part::Other).unwrap();
        assert!(begun.parent.is_none() && hex(&begun.trace) != "0af7651916cd43dd8448eb211c80319c", "{odd}");
    }
    let twice = Request::builder().header("traceparent", PARENT).header("traceparent", PARENT).body(()).unwrap();
    assert!(Tracer::begin(&twice.into_parts().0, Part::Other).unwrap().parent.is_none());
}

#[test]
fn a_span_holds_no_query_and_no_path_of_a_program() {
    let told = |path: &str, part| {
        let begun = Tracer::begin(&parts(path, None), part).unwrap();
        span(&begun, [1; 8], part, &answer(StatusCode::BAD_GATEWAY), Duration::from_millis(3)).to_string()
    };
    let ours = told("/v1/sandboxes?secret=1", Part::Native);
    assert!(ours.contains("\"/v1/sandboxes\"") && !ours.contains("secret"), "{ours}");
    assert!(ours.contains("\"status\":{\"code\":2}"), "{ours}");
    let theirs = told("/secret/path", Part::Sandbox);
    assert!(!theirs.contains("secret"), "{theirs}");
    assert!(told(&format!("/{}", "x".repeat(5000)), Part::Native).len() < 1000);
}

#[tokio::test]
async fn spans_reach_a_receiver() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (tracer, exporter) = pair(settings(listener.local_addr().unwrap().port()));
    let running = tokio::spawn(exporter.run(std::future::pending()));
    let begun = Tracer::begin(&parts("/v1/x", Some(PARENT)), Part::Native).unwrap();
    tracer.end(&begun, Part::Native, &answer(StatusCode::OK), Duration::from_millis(5));
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut said = String::new();
    while !said.contains("service.name") {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await.unwrap();
        assert_ne!(count, 0, "{said}");
        said.push_str(std::str::from_utf8(&part[..count]).unwrap());
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n") && head.contains("x-token: a b"), "{head}");
    let body: Value = serde_json::from_str(body).unwrap();
    let span = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!((&span["parentSpanId"], &span["kind"]), (&json!("b7ad6b7169203331"), &json!(2)), "{body}");
    assert_eq!(span["name"], "POST native");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(tracer.dropped(), 0);
    running.abort();
}

/// The attack: a receiver that takes connections and never answers, and one that is not there.
#[tokio::test]
async fn a_receiver_that_hangs_holds_no_request_up_and_takes_no_memory() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (tracer, exporter) = pair(settings(listener.local_addr().unwrap().port()));
    let running = tokio::spawn(exporter.run(std::future::pending()));
    let begun = Tracer::begin(&parts("/v1/x", None), Part::Native).unwrap();
    let began = std::time::Instant::now();
    for _ in 0..10 * MAX_WAITING {
        tracer.end(&begun, Part::Native, &answer(StatusCode::OK), Duration::ZERO);
        tokio::task::yield_now().await;
    }
    assert!(tracer.dropped() > 0, "what does not fit is dropped and counted");
    assert!(began.elapsed() < Duration::from_secs(30));
    running.abort();
    drop(listener);
    let (tracer, exporter) = pair(settings(1));
    let running = tokio::spawn(exporter.run(std::future::pending()));
    tracer.end(&begun, Part::Native, &answer(StatusCode::OK), Duration::ZERO);
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while tracer.dropped() == 0 && std::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(tracer.dropped(), 1);
    running.abort();
}

#[tokio::test]
async fn an_end_waits_for_nobody() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut slow = settings(listener.local_addr().unwrap().port());
    slow.timeout = Duration::from_secs(60);
    slow.delay = Duration::from_secs(60);
    let (tracer, exporter) = pair(slow);
    let begun = Tracer::begin(&parts("/v1/x", None), Part::Native).unwrap();
    tracer.end(&begun, Part::Native, &answer(StatusCode::OK), Duration::ZERO);
    let ended = tokio::time::timeout(Duration::from_secs(20), exporter.run(std::future::ready(()))).await;
    assert!(ended.is_ok());
}
