//! Where traces go, by OpenTelemetry's usual variables. What is asked for and not built is refused by name.

use std::net::IpAddr;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;

/// Most pairs of `OTEL_RESOURCE_ATTRIBUTES` and of headers.
const MAX_PAIRS: usize = 64;
/// How long one delivery may take where nothing says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often spans are sent where nothing says otherwise.
const DELAY: Duration = Duration::from_secs(5);
/// Nor more often than this.
const MIN_DELAY: Duration = Duration::from_millis(100);

/// Where spans go, and what is said of who sends them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traces {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) target: String,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// Attributes of the resource; `service.name` is among them.
    pub(super) resource: Vec<(String, String)>,
    pub(super) timeout: Duration,
    pub(super) delay: Duration,
}

/// A variable that asks for what cannot be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The variable.
    pub variable: &'static str,
    /// What is wrong with it.
    pub why: String,
    /// What to do.
    pub fix: &'static str,
}

const fn unfit(variable: &'static str, why: String, fix: &'static str) -> Unfit {
    Unfit { variable, why, fix }
}

/// The first of these that is set to something.
fn first(get: &dyn Fn(&'static str) -> Option<String>, names: [&'static str; 2]) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| Some((name, get(name).filter(|value| !value.is_empty())?)))
}

impl Traces {
    /// What the variables of a process say; `None`: no traces are asked for.
    ///
    /// # Errors
    /// [`Unfit`]
    pub fn of(get: &dyn Fn(&'static str) -> Option<String>) -> Result<Option<Self>, Unfit> {
        let set = |name| get(name).filter(|value| !value.is_empty());
        if set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        match set("OTEL_TRACES_EXPORTER").as_deref() {
            Some("none") => return Ok(None),
            None | Some("otlp") => {}
            Some(_) => {
                let why = "traces go to an OTLP receiver or nowhere".to_owned();
                return Err(unfit("OTEL_TRACES_EXPORTER", why, "`otlp` or `none`"));
            }
        }
        let (own, common) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT");
        let Some((name, endpoint)) = first(get, [own, common]) else { return Ok(None) };
        match first(get, ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"]) {
            None => {}
            Some((_, value)) if value.strip_prefix("http/") == Some("json") => {}
            Some((variable, value)) => {
                let why = format!("`{}` is not built", value.escape_default());
                return Err(unfit(
                    variable,
                    why,
                    "`http/json`, which receivers take at the same address as `http/protobuf`",
                ));
            }
        }
        match set("OTEL_TRACES_SAMPLER").as_deref() {
            Some("always_off") => return Ok(None),
            None | Some("parentbased_always_on") => {}
            Some(_) => {
                let why = "every request is told, but those whose caller says that its trace is not sampled".to_owned();
                return Err(unfit("OTEL_TRACES_SAMPLER", why, "`parentbased_always_on` or `always_off`"));
            }
        }
        let (host, port, target) = place(&endpoint, name == common).map_err(|(why, fix)| unfit(name, why, fix))?;
        let headers = match first(get, ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"]) {
            Some((variable, text)) => headers_for(&host, variable, &text)?,
            None => Vec::new(),
        };
        let bad = |variable| unfit(variable, "it is no number of milliseconds".to_owned(), "e.g. 10000");
        let millis = |(variable, text): (&'static str, String)| {
            text.parse().map(Duration::from_millis).map_err(|_odd| bad(variable))
        };
        let timeout = first(get, ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"]);
        let delay = set("OTEL_BSP_SCHEDULE_DELAY").map(|value| ("OTEL_BSP_SCHEDULE_DELAY", value));
        Ok(Some(Self {
            host,
            port,
            target,
            headers,
            resource: resource(set("OTEL_RESOURCE_ATTRIBUTES"), set("OTEL_SERVICE_NAME"))?,
            timeout: timeout.map_or(Ok(TIMEOUT), millis)?,
            delay: delay.map_or(Ok(DELAY), millis)?.max(MIN_DELAY),
        }))
    }
}

/// Host, port and path; `base`: the path of traces is added to it.
fn place(endpoint: &str, base: bool) -> Result<(String, u16, String), (String, &'static str)> {
    const PLACE: &str = "e.g. http://127.0.0.1:4318";
    let uri: Uri = endpoint.parse().map_err(|_odd| ("it is no URL".to_owned(), PLACE))?;
    if uri.scheme_str() != Some("http") {
        let why = "only `http` is spoken to a receiver".to_owned();
        return Err((why, "the http address of a collector on this machine, which sends on by TLS"));
    }
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
    let authority = authority.ok_or_else(|| ("it has no host, or a user".to_owned(), PLACE))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let target = if base { format!("{}/v1/traces", path.trim_end_matches('/')) } else { path.to_owned() };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok((host, authority.port_u16().unwrap_or(80), target))
}

/// `NAME=VALUE` pairs, both percent-encoded.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let decoded = |text: &str| percent_decode_str(text.trim()).decode_utf8().ok().map(|text| text.into_owned());
    let parts: Vec<&str> = text.split(',').filter(|part| !part.trim().is_empty()).collect();
    if parts.len() > MAX_PAIRS {
        return None;
    }
    let pair = |part: &&str| {
        let (name, value) = part.split_once('=')?;
        Some((decoded(name)?, decoded(value)?)).filter(|(name, _)| !name.is_empty())
    };
    parts.iter().map(pair).collect()
}

/// Their values are secrets: nothing of them is told, and without TLS they do not leave this machine.
fn headers_for(host: &str, variable: &'static str, text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, Unfit> {
    let loopback = host.parse::<IpAddr>().map_or_else(|_name| host == "localhost", |address| address.is_loopback());
    if !loopback {
        let why = "headers would cross the network in the clear".to_owned();
        return Err(unfit(variable, why, "send to a collector on this machine, which adds them and sends on by TLS"));
    }
    headers(text).ok_or_else(|| {
        unfit(variable, "it is no list of NAME=VALUE that could be headers".to_owned(), "NAME=VALUE,NAME=VALUE")
    })
}

fn headers(text: &str) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let header = |(name, value): (String, String)| {
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    };
    pairs(text)?.into_iter().map(header).collect()
}

fn resource(attributes: Option<String>, name: Option<String>) -> Result<Vec<(String, String)>, Unfit> {
    let given = pairs(&attributes.unwrap_or_default()).ok_or_else(|| {
        let why = "it is no list of NAME=VALUE".to_owned();
        unfit("OTEL_RESOURCE_ATTRIBUTES", why, "NAME=VALUE,NAME=VALUE, percent-encoded where needed")
    })?;
    let (named, mut rest): (Vec<_>, Vec<_>) = given.into_iter().partition(|(key, _)| key == "service.name");
    let name = name.or_else(|| named.into_iter().next().map(|(_, value)| value));
    rest.push(("service.name".to_owned(), name.unwrap_or_else(|| "fumehood".to_owned())));
    rest.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(&str, &str)]) -> Result<Option<Traces>, Unfit> {
        Traces::of(&|name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn nothing_is_sent_that_nobody_asked_for() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        for off in [
            &[][..],
            &[("OTEL_SERVICE_NAME", "x")],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
            &[endpoint, ("OTEL_SDK_DISABLED", "true")],
            &[endpoint, ("OTEL_TRACES_EXPORTER", "none")],
            &[endpoint, ("OTEL_TRACES_SAMPLER", "always_off")],
        ] {
            assert_eq!(of(off), Ok(None), "{off:?}");
        }
        assert!(of(&[endpoint]).unwrap().is_some());
    }

    #[test]
    fn the_address_of_traces_wins_and_is_taken_as_it_is() {
        let at = |set: &[(&str, &str)]| of(set).unwrap().map(|to| (to.host, to.port, to.target)).unwrap();
        let common = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/otlp/");
        assert_eq!(at(&[common]), ("collector".to_owned(), 4318, "/otlp/v1/traces".to_owned()));
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://[::1]/t?x");
        assert_eq!(at(&[common, own]), ("::1".to_owned(), 80, "/t?x".to_owned()));
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_its_variable() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        for set in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://127.0.0.1:4318"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4318"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://user@host"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "no header=\u{1}"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a"),
        ] {
            let told = of(&[set, endpoint]).unwrap_err();
            assert_eq!(told.variable, set.0);
        }
    }

    #[test]
    fn headers_do_not_leave_this_machine_in_the_clear() {
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret");
        for (endpoint, fits) in [
            ("http://127.0.0.1:4318", true),
            ("http://[::1]:4318", true),
            ("http://localhost:4318", true),
            ("http://collector:4318", false),
            ("http://192.0.2.1:4318", false),
            ("http://localhost.example.org:4318", false),
        ] {
            let told = of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint), headers]);
            assert_eq!(told.is_ok(), fits, "{endpoint}");
            assert!(told.err().is_none_or(|told| told.variable == headers.0 && !told.why.contains("secret")));
        }
    }

    #[test]
    fn spans_are_not_sent_all_the_time() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        let delay = |value| of(&[endpoint, ("OTEL_BSP_SCHEDULE_DELAY", value)]).unwrap().unwrap().delay;
        assert_eq!([delay("0"), delay("250")].map(|delay| delay.as_millis()), [100, 250]);
    }

    #[test]
    fn a_service_has_a_name() {
        let name = |set: &[(&str, &str)]| {
            let all = [&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h")], set].concat();
            let resource = of(&all).unwrap().unwrap().resource;
            resource.into_iter().filter(|(key, _)| key == "service.name").map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(name(&[]), ["fumehood"]);
        assert_eq!(name(&[("OTEL_RESOURCE_ATTRIBUTES", "service.name=a%20b,x=y")]), ["a b"]);
        assert_eq!(name(&[("OTEL_RESOURCE_ATTRIBUTES", "service.name=a"), ("OTEL_SERVICE_NAME", "c")]), ["c"]);
    }
}
