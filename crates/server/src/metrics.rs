//! `/metrics`: what this server did since its start, and the sandboxes that there are, in the text format of Prometheus.
//!
//! Numbers alone, with labels from closed lists of ours: nothing that a caller or a program inside chose stands in them. The
//! names are told in `docs/reference/server.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Response, header};
use live::pool::Status;
use live::words::State;

use crate::answer::{Problem, harden};
use crate::app::AppState;
use crate::meters::{BOUNDS, Meters, Times};
use crate::nets::Counted;
use crate::request;

/// The answer to a request for `/metrics`: of an operator's key alone, on loopback too. They tell of all keys' sandboxes, and
/// others of this machine reach the port.
pub(crate) async fn answer(app: &AppState, parts: &Parts) -> Result<Response<Body>, Problem> {
    app.who(&request::token(&parts.headers))?.must_be_operator("metrics")?;
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Err(Problem::no_route(parts.uri.path()));
    }
    let mut states = BTreeMap::from([("running", 0), ("paused", 0), ("ended", 0)]);
    let infos = app.sandboxes.list(true).await?;
    for info in &infos {
        let state = match info.state {
            State::Running => "running",
            State::Paused => "paused",
            State::Ended => "ended",
        };
        *states.entry(state).or_default() += 1;
    }
    let mut page = Page::default();
    page.family(
        "sandboxes",
        "gauge",
        "Sandboxes of this state folder, of all keys; ended ones as long as they are known.",
    );
    for (state, count) in states {
        page.sample("sandboxes", &[("state", state)], count);
    }
    page.counted(&app.meters);
    page.net(app.nets.sums(&*app.sandboxes, &infos).await);
    if let Some(tracer) = &app.tracer {
        let help = "Spans that did not fit the queue or could not be delivered.";
        page.one("spans_dropped_total", "counter", help, tracer.dropped());
    }
    if let Some(pool) = &app.pool {
        page.pool(&pool());
    }
    let mut response = Response::new(Body::from(page.0));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    harden(response.headers_mut());
    Ok(response)
}

/// Text as Prometheus reads it.
#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A String takes everything.
        if writeln!(self.0, "{line}").is_err() {}
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP fumehood_{name} {help}\n# TYPE fumehood_{name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> = labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.line(format_args!("fumehood_{name}{labels} {value}"));
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    fn times(&mut self, name: &str, labels: &[(&str, &str)], times: &Times) {
        let (bucket, mut within) = (format!("{name}_bucket"), 0_u64);
        for (bound, count) in BOUNDS.iter().zip(times.counts) {
            within = within.saturating_add(count);
            self.sample(&bucket, &[labels, &[("le", &bound.to_string())]].concat(), within);
        }
        self.sample(&bucket, &[labels, &[("le", "+Inf")]].concat(), times.count);
        self.sample(&format!("{name}_sum"), labels, times.sum.as_secs_f64());
        self.sample(&format!("{name}_count"), labels, times.count);
    }

    fn counted(&mut self, meters: &Meters) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.one("received_bytes_total", "counter", "Bytes that clients sent.", load(&meters.received));
        self.one("sent_bytes_total", "counter", "Bytes that were sent to clients.", load(&meters.sent));
        self.one("execs_total", "counter", "Programs that were asked for in sandboxes.", load(&meters.execs));
        let table = meters.table();
        self.family("creates_total", "counter", "Sandboxes that were asked for, by whether they came to be.");
        self.sample("creates_total", &[("result", "created")], table.created.count);
        self.sample("creates_total", &[("result", "refused")], table.uncreated);
        self.family("create_seconds", "histogram", "From the request for a sandbox until it is there.");
        self.times("create_seconds", &[], &table.created);
        self.family("requests_total", "counter", "Requests, by who answered and with which status.");
        for ((part, status), count) in &table.requests {
            self.sample("requests_total", &[("part", part.as_str()), ("status", &status.to_string())], count);
        }
        self.family("request_seconds", "histogram", "From the head of a request until the head of its answer.");
        for (part, times) in &table.answers {
            self.times("request_seconds", &[("part", part.as_str())], times);
        }
        self.family("denials_total", "counter", "Requests that were denied or failed, by the id of the first reason.");
        for (id, count) in &table.refusals {
            self.sample("denials_total", &[("id", id)], count);
        }
    }

    fn net(&mut self, counted: Counted) {
        let Counted { sent, received, connections, lookups, denied } = counted;
        self.one("net_sent_bytes_total", "counter", "Bytes that brokers of sandboxes passed outside.", sent);
        self.one("net_received_bytes_total", "counter", "Bytes that brokers of sandboxes passed inside.", received);
        self.one("net_connections_total", "counter", "Connections that brokers passed on.", connections);
        self.one("net_lookups_total", "counter", "Names that were looked up in sandboxes.", lookups);
        self.one("net_denials_total", "counter", "Look-ups, connections and requests that brokers stopped.", denied);
    }

    fn pool(&mut self, status: &Status) {
        let Status { ready, wanted, memory, taken, cold, trouble } = status;
        self.one("pool_ready", "gauge", "Sandboxes that are ready.", ready);
        self.one("pool_wanted", "gauge", "Sandboxes that are to be ready.", wanted);
        self.one("pool_memory_bytes", "gauge", "Memory of those that are ready.", memory);
        self.one(
            "pool_hindered",
            "gauge",
            "1 while something hinders the pool from being filled.",
            u8::from(trouble.is_some()),
        );
        self.family("pool_creates_total", "counter", "Sandboxes that were created, by whether one was ready.");
        self.sample("pool_creates_total", &[("start", "ready")], taken);
        self.sample("pool_creates_total", &[("start", "cold")], cold);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn buckets_add_up_and_the_last_holds_all() {
        let mut times = Times::default();
        for millis in [0, 1, 3, 90_000] {
            times.add(Duration::from_millis(millis));
        }
        let mut page = Page::default();
        page.times("x", &[("part", "a")], &times);
        let has = |line: &str| assert!(page.0.lines().any(|found| found == line), "{line}\n{}", page.0);
        has("fumehood_x_bucket{part=\"a\",le=\"0.001\"} 2");
        has("fumehood_x_bucket{part=\"a\",le=\"0.005\"} 3");
        has("fumehood_x_bucket{part=\"a\",le=\"30\"} 3");
        has("fumehood_x_bucket{part=\"a\",le=\"+Inf\"} 4");
        has("fumehood_x_sum{part=\"a\"} 90.004");
        has("fumehood_x_count{part=\"a\"} 4");
    }

    #[test]
    fn no_label_breaks_its_line() {
        let mut page = Page::default();
        page.sample("x", &[("id", "a\"b\\c\nd")], 1);
        assert_eq!(page.0, "fumehood_x{id=\"a\\\"b\\\\c\\nd\"} 1\n");
    }
}
