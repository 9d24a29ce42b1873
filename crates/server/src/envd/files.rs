//! `/files`: the bytes of files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use agent::words::{Code, Entry, Failure, Request as Ask};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use live::client::{Error, Incoming, Stream};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc::Sender;
use tokio_stream::StreamExt as _;

use super::content::{CutStream, broken};
use super::multipart::{Packing, Pieces, pieces};
use super::{Context, plain, plain_failure};
use crate::answer::{harden, json_response};
use crate::request::Query;
use crate::{backend, clock};

/// What a file's metadata may be: bytes of a key, and of all.
const MAX_KEY: usize = 246;
const MAX_METADATA: usize = 4096;
/// Most files of one upload.
const MAX_FILES: usize = 10_000;

type HttpResult = Result<Response<Body>, Box<Response<Body>>>;

fn refused<T>(status: StatusCode, message: &str) -> Result<T, Box<Response<Body>>> {
    Err(Box::new(plain(status, message)))
}

/// Answers a request for files.
pub(super) async fn answer(context: &Context, request: Request) -> Response<Body> {
    let query = Query::of(request.uri());
    if let Err(why) = context.check_user(request.headers(), query.get("username")) {
        return plain(StatusCode::UNAUTHORIZED, &why);
    }
    let path = query.get("path").unwrap_or_default().to_owned();
    let answered = match *request.method() {
        Method::GET | Method::HEAD => {
            let (parts, _body) = request.into_parts();
            read(context, &path, &parts.method, &parts.headers).await
        }
        Method::POST => write(context, &path, request).await,
        _ => refused(StatusCode::METHOD_NOT_ALLOWED, "files are read by GET and written by POST"),
    };
    answered.unwrap_or_else(|response| *response)
}

/// What a failure is called here.
fn failure(context: &Context, path: &str, failure: &Failure) -> Box<Response<Body>> {
    let shown = policy::diagnostic::quote(path);
    let response = match failure.code {
        Code::NotFound => plain(StatusCode::NOT_FOUND, &format!("path {shown} does not exist")),
        Code::IsADirectory => plain(StatusCode::BAD_REQUEST, &format!("path {shown} is a directory")),
        Code::Exists
        | Code::NotADirectory
        | Code::Denied
        | Code::Secret
        | Code::Invalid
        | Code::NoSpace
        | Code::TooMany
        | Code::NotExecutable
        | Code::NoCwd
        | Code::Unsupported
        | Code::Closed
        | Code::Cancelled
        | Code::Paused
        | Code::Ended
        | Code::Failed => plain_failure(context.id(), failure),
    };
    Box::new(response)
}

/// The bytes that a request wants: from the first, how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    All,
    Some { first: u64, length: u64 },
    Unsatisfiable,
}

/// One range of bytes; of several, or of what is no range, all.
fn part(headers: &HeaderMap, size: u64) -> Part {
    let asked =
        headers.get(header::RANGE).and_then(|value| value.to_str().ok()).and_then(|text| text.strip_prefix("bytes="));
    let Some((first, last)) = asked.filter(|text| !text.contains(',')).and_then(|text| text.split_once('-')) else {
        return Part::All;
    };
    let (first, last) = (first.trim(), last.trim());
    let (first, last) = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => (first, last.min(size.saturating_sub(1))),
        (Ok(first), Err(_)) if last.is_empty() => (first, size.saturating_sub(1)),
        (Err(_), Ok(suffix)) if first.is_empty() && suffix > 0 => (size.saturating_sub(suffix), size.saturating_sub(1)),
        (Err(_), Ok(_)) if first.is_empty() => return Part::Unsatisfiable,
        (_, _) => return Part::All,
    };
    if first >= size {
        Part::Unsatisfiable
    } else {
        Part::Some { first, length: last.saturating_sub(first).saturating_add(1) }
    }
}

/// What the conditions of a request come to on a file that was changed last then: the status of an answer without it.
fn unmet(headers: &HeaderMap, modified: i64) -> Option<StatusCode> {
    let time = |name| headers.get(name).and_then(|value| clock::parse_http_date(value.to_str().ok()?));
    // Files have no tags here: none is the one that was meant.
    if headers.get(header::IF_MATCH).is_some_and(|tags| tags != "*")
        || time(header::IF_UNMODIFIED_SINCE).is_some_and(|until| until < modified)
    {
        return Some(StatusCode::PRECONDITION_FAILED);
    }
    let since = time(header::IF_MODIFIED_SINCE).filter(|_| !headers.contains_key(header::IF_NONE_MATCH));
    since.is_some_and(|since| modified <= since).then_some(StatusCode::NOT_MODIFIED)
}

/// Whether a part of a file that was changed last then is a part of what its reader has.
fn fits(headers: &HeaderMap, modified: i64) -> bool {
    let known = |value: &HeaderValue| value.to_str().is_ok_and(|date| clock::parse_http_date(date) == Some(modified));
    headers.get(header::IF_RANGE).is_none_or(known)
}

/// Headers that say something of a file as it is before it is read.
const LOOKS: [header::HeaderName; 4] =
    [header::RANGE, header::IF_MATCH, header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE];

async fn read(context: &Context, path: &str, method: &Method, headers: &HeaderMap) -> HttpResult {
    let accept = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let packed = refuses_identity(accept);
    if packed && !takes_gzip(accept) {
        return refused(StatusCode::NOT_ACCEPTABLE, "files are sent as they are, or as gzip");
    }
    let asked = context.path(path);
    let told = |told: &Failure| failure(context, path, told);
    let mut wanted = (0, None);
    let mut whole = None;
    if *method == Method::HEAD || LOOKS.iter().any(|name| headers.contains_key(name)) {
        let ask = Ask::Stat { path: asked.clone(), follow: true };
        let entry =
            backend::call::<Entry>(&*context.app.sandboxes, context.id(), &ask).await.map_err(|why| told(&why))?;
        if entry.kind == agent::words::FileKind::Dir {
            return Err(told(&Failure::new(Code::IsADirectory, String::new())));
        }
        let modified = entry.modified.0;
        if let Some(status) = unmet(headers, modified) {
            let mut response = of_file(&entry, Body::empty(), 0);
            *response.status_mut() = status;
            return Ok(response);
        }
        if *method == Method::HEAD {
            return Ok(of_file(&entry, Body::empty(), if packed { 0 } else { entry.size }));
        }
        let part = if packed || !fits(headers, modified) { Part::All } else { part(headers, entry.size) };
        match part {
            Part::All => {}
            Part::Some { first, length } => {
                wanted = (first, Some(length));
                whole = Some(entry.size);
            }
            Part::Unsatisfiable => return Ok(unsatisfiable(entry.size)),
        }
    }
    let ask = Ask::Read { path: asked, offset: wanted.0, length: wanted.1 };
    let opened = backend::open(&*context.app.sandboxes, context.id(), &ask).await;
    let mut stream = opened.map_err(|why| told(&why))?;
    let entry = backend::reply::<Entry>(&mut stream).await.map_err(|why| told(&why))?;
    let (to, body) = CutStream::body(context.app.cut_of(context.id()));
    if packed {
        tokio::spawn(send_packed(stream, to));
        let mut response = of_file(&entry, body, 0);
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        return Ok(response);
    }
    tokio::spawn(send(stream, to));
    let length = wanted.1.unwrap_or(entry.size);
    let mut response = of_file(&entry, body, length);
    if let (Some(size), Some(length)) = (whole, wanted.1) {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let last = wanted.0.saturating_add(length).saturating_sub(1);
        let range = format!("bytes {}-{last}/{size}", wanted.0);
        if let Ok(range) = HeaderValue::from_str(&range) {
            response.headers_mut().insert(header::CONTENT_RANGE, range);
        }
    }
    Ok(response)
}

/// How much an `Accept-Encoding` wants this encoding, 0 to 1; none where it does not name it.
fn weight(accept: &str, encoding: &str) -> Option<f32> {
    let accept = accept.to_ascii_lowercase().replace(' ', "");
    accept.split(',').find_map(|part| {
        let (name, weight) = part.split_once(";q=").unwrap_or((part, "1"));
        (name == encoding).then(|| weight.parse().unwrap_or(0.0))
    })
}

/// Whether an `Accept-Encoding` wants nothing that is not packed.
fn refuses_identity(accept: &str) -> bool {
    weight(accept, "identity").or_else(|| weight(accept, "*")).is_some_and(|weight| weight <= 0.0)
}

fn takes_gzip(accept: &str) -> bool {
    weight(accept, "gzip").or_else(|| weight(accept, "*")).is_some_and(|weight| weight > 0.0)
}

fn unsatisfiable(size: u64) -> Response<Body> {
    let mut response = plain(StatusCode::RANGE_NOT_SATISFIABLE, "the file has no such bytes");
    if let Ok(range) = HeaderValue::from_str(&format!("bytes */{size}")) {
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    response
}

fn of_file(entry: &Entry, body: Body, length: u64) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if let Some(Ok(date)) = clock::http_date(entry.modified.0).map(|date| HeaderValue::from_str(&date)) {
        headers.insert(header::LAST_MODIFIED, date);
    }
    // Files of the kernel have no length, and bytes all the same.
    if length > 0 {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    let plain: String =
        entry.name.chars().map(|c| if c.is_ascii_graphic() && c != '"' && c != '\\' { c } else { '_' }).collect();
    let encoded = percent_encoding::utf8_percent_encode(&entry.name, percent_encoding::NON_ALPHANUMERIC);
    if let Ok(name) = HeaderValue::from_str(&format!("inline; filename=\"{plain}\"; filename*=UTF-8''{encoded}")) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    harden(headers);
    response
}

/// Sends the bytes of a file; what breaks on the way breaks the answer off.
pub(crate) async fn send(mut stream: Stream, to: Sender<std::io::Result<Bytes>>) {
    loop {
        let piece = match stream.next().await {
            Some(Incoming::Out(bytes)) => Ok(bytes.into()),
            Some(Incoming::End(Ok(_))) => return,
            Some(Incoming::Event(_) | Incoming::Err(_)) => continue,
            Some(Incoming::End(Err(_))) | None => Err(broken()),
        };
        let is_broken = piece.is_err();
        if to.send(piece).await.is_err() || is_broken {
            return;
        }
    }
}

/// The same, packed.
async fn send_packed(stream: Stream, to: Sender<std::io::Result<Bytes>>) {
    let (from, mut pieces) = tokio::sync::mpsc::channel(1);
    tokio::spawn(send(stream, from));
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    while let Some(piece) = pieces.recv().await {
        let packed = piece.and_then(|piece| packer.write_all(&piece)).map(|()| std::mem::take(packer.get_mut()));
        let is_broken = packed.is_err();
        if packed.as_ref().is_ok_and(Vec::is_empty) {
            continue;
        }
        if to.send(packed.map(Bytes::from)).await.is_err() || is_broken {
            return;
        }
    }
    // Who hung up needs no end.
    drop(to.send(packer.finish().map(Bytes::from)).await);
}

async fn write(context: &Context, path: &str, request: Request) -> HttpResult {
    let packing = match Packing::of(request.headers()) {
        Ok(packing) => packing,
        Err(why) => return refused(StatusCode::BAD_REQUEST, &why),
    };
    let metadata = match metadata(request.headers()) {
        Ok(metadata) => metadata,
        Err(why) => return refused(StatusCode::BAD_REQUEST, &why),
    };
    let kind =
        request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
    let plain_kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let mut written = Vec::new();
    match plain_kind.as_str() {
        "application/octet-stream" => {
            if path.is_empty() {
                return refused(StatusCode::BAD_REQUEST, "`path` is missing");
            }
            let mut pieces = pieces(request, packing);
            written.push(one(context, path, &metadata, &mut Source::Raw(&mut pieces)).await?);
        }
        "multipart/form-data" => {
            let Ok(boundary) = multer::parse_boundary(&kind) else {
                return refused(StatusCode::BAD_REQUEST, "the multipart body names no boundary");
            };
            let mut parts = multer::Multipart::new(pieces(request, packing), boundary);
            let mut seen = BTreeSet::new();
            loop {
                let mut part = match parts.next_field().await {
                    Ok(Some(part)) => part,
                    Ok(None) => break,
                    Err(error) => {
                        return refused(StatusCode::BAD_REQUEST, &format!("the multipart body is wrong: {error}"));
                    }
                };
                if part.name() != Some("file") {
                    continue;
                }
                let name = if path.is_empty() { part.file_name().unwrap_or_default() } else { path }.to_owned();
                if name.is_empty() || !seen.insert(name.clone()) || seen.len() > MAX_FILES {
                    let message = format!("{} is no path, or stands twice", policy::diagnostic::quote(&name));
                    return refused(StatusCode::BAD_REQUEST, &message);
                }
                written.push(one(context, &name, &metadata, &mut Source::Part(&mut part)).await?);
            }
        }
        _ => return refused(StatusCode::BAD_REQUEST, "send application/octet-stream or multipart/form-data"),
    }
    Ok(json_response(StatusCode::OK, &Json::Array(written)))
}

/// Where the bytes of one file come from.
enum Source<'a, 'b> {
    Raw(&'a mut Pieces),
    Part(&'a mut multer::Field<'b>),
}

impl Source<'_, '_> {
    async fn next(&mut self) -> Result<Option<Bytes>, String> {
        match self {
            Self::Raw(pieces) => pieces.next().await.transpose().map_err(|error| error.to_string()),
            Self::Part(part) => part.chunk().await.map_err(|error| error.to_string()),
        }
    }
}

/// Writes one file; what breaks on the way leaves nothing behind.
async fn one(
    context: &Context,
    path: &str,
    metadata: &Option<BTreeMap<String, String>>,
    source: &mut Source<'_, '_>,
) -> Result<Json, Box<Response<Body>>> {
    let told = |told: Failure| failure(context, path, &told);
    let ask = Ask::Write { path: context.path(path), mode: None, metadata: metadata.clone() };
    let mut stream = backend::open(&*context.app.sandboxes, context.id(), &ask).await.map_err(told)?;
    loop {
        match source.next().await {
            Ok(Some(bytes)) => {
                // It ended already: the end says why.
                if stream.send(&bytes).await.is_err() {
                    break;
                }
            }
            Ok(None) => {
                if stream.eof().is_err() {
                    // As above.
                }
                break;
            }
            Err(why) => return refused(StatusCode::BAD_REQUEST, &why),
        }
    }
    let entry = stream.result::<Entry>().await.map_err(Error::failure).map_err(told)?;
    let mut shown = json!({ "path": entry.path, "name": entry.name, "type": "file" });
    if let (false, Some(shown)) = (entry.metadata.is_empty(), shown.as_object_mut()) {
        shown.insert("metadata".to_owned(), json!(entry.metadata));
    }
    Ok(shown)
}

/// `X-Metadata-KEY: value`
fn metadata(headers: &HeaderMap) -> Result<Option<BTreeMap<String, String>>, String> {
    let mut found = BTreeMap::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix("x-metadata-") else { continue };
        let value = value.to_str().ok().filter(|value| value.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        let value = value.ok_or_else(|| format!("the metadata `{key}` is no printable ASCII"))?;
        if key.is_empty() || key.len() > MAX_KEY {
            return Err(format!("a key of metadata has 1 to {MAX_KEY} bytes"));
        }
        found.insert(key.to_ascii_lowercase(), value.to_owned());
    }
    let all: usize = found.iter().map(|(key, value)| key.len().saturating_add(value.len())).sum();
    if all > MAX_METADATA {
        return Err(format!("the metadata has more than {MAX_METADATA} bytes"));
    }
    Ok((!found.is_empty()).then_some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse::<header::HeaderName>().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn ranges_are_those_of_the_standard() {
        let of = |range: &str, size| part(&headers(&[("range", range)]), size);
        assert_eq!(of("bytes=0-3", 10), Part::Some { first: 0, length: 4 });
        assert_eq!(of("bytes=4-", 10), Part::Some { first: 4, length: 6 });
        assert_eq!(of("bytes=-3", 10), Part::Some { first: 7, length: 3 });
        assert_eq!(of("bytes=8-99", 10), Part::Some { first: 8, length: 2 });
        assert_eq!(of("bytes=-99", 10), Part::Some { first: 0, length: 10 });
        for bad in ["bytes=10-", "bytes=10-12", "bytes=-0"] {
            assert_eq!(of(bad, 10), Part::Unsatisfiable, "{bad}");
        }
        for all in ["bytes=0-1,3-4", "lines=1-2", "bytes=3-1", "bytes=a-b"] {
            assert_eq!(of(all, 10), Part::All, "{all}");
        }
        assert_eq!(part(&HeaderMap::new(), 10), Part::All);
    }

    #[test]
    fn conditions_go_by_the_last_change_in_whole_seconds() {
        let (then, later) = ("Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:38 GMT");
        let at = 784_111_777;
        let of = |name: &'static str, value: &str, modified| unmet(&headers(&[(name, value)]), modified);
        assert_eq!(of("if-modified-since", then, at), Some(StatusCode::NOT_MODIFIED));
        assert_eq!(of("if-modified-since", then, at + 1), None);
        assert_eq!(of("if-unmodified-since", then, at + 1), Some(StatusCode::PRECONDITION_FAILED));
        assert_eq!((of("if-unmodified-since", later, at), of("if-modified-since", "now", at)), (None, None));
        assert_eq!(of("if-match", "\"a\"", at), Some(StatusCode::PRECONDITION_FAILED));
        let both = headers(&[("if-modified-since", then), ("if-none-match", "\"a\"")]);
        assert_eq!(unmet(&both, at), None, "a tag counts more than a time, and this file has none");
        let part = |value: &str| fits(&headers(&[("if-range", value)]), at);
        assert!(part(then) && !part(later) && !part("\"a\"") && fits(&HeaderMap::new(), at));
    }

    #[test]
    fn metadata_is_bounded_and_plain() {
        let read = |pairs: &[(&'static str, &str)]| metadata(&headers(pairs));
        assert_eq!(read(&[("x-other", "v")]), Ok(None));
        assert_eq!(
            read(&[("x-metadata-Key", "a b")]),
            Ok(Some(BTreeMap::from([("key".to_owned(), "a b".to_owned())])))
        );
        assert!(read(&[("x-metadata-k", &"v".repeat(4096))]).is_err());
        assert!(read(&[("x-metadata-k", "a\tb")]).is_err());
    }

    #[test]
    fn only_who_wants_it_packed_alone_is_refused() {
        assert!(
            !refuses_identity("gzip, deflate")
                && !refuses_identity("identity")
                && !refuses_identity("gzip;q=1.0, *;q=0.5")
        );
        assert!(
            refuses_identity("gzip, identity;q=0")
                && refuses_identity("gzip, *;q=0")
                && !refuses_identity("identity, *;q=0")
        );
        assert!(takes_gzip("gzip, *;q=0") && takes_gzip("*, identity;q=0.0") && takes_gzip("gzip;q=0.5,br"));
        assert!(!takes_gzip("br, identity;q=0") && !takes_gzip("gzip;q=0, *") && !takes_gzip(""));
    }
}
