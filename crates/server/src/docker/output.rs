//! What a main program prints and reads: `logs`, `attach`, and the connection that a client takes over.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use agent::words::{ProgramControl, Size};
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, Response, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio_stream::wrappers::ReceiverStream;

use super::container::{Container, Phase};
use super::create::nothing;
use super::log::{Lane, Piece, Reader};
use super::{Docker, DockerError, HttpResult, OfDocker, told, yes};
use crate::clock;
use crate::places::Busy;
use crate::request::Query;

/// How often it is looked whether a client has read a head, and for how long.
const LOOK: Duration = Duration::from_millis(1);
const SLOW: Duration = Duration::from_secs(5);
/// Pieces that wait to be sent.
const QUEUE: usize = 8;

/// A connection that is no longer HTTP.
pub(super) type Wire = TokioIo<hyper::upgrade::Upgraded>;

/// Which of what was printed is wanted, and how.
struct LogOptions {
    out: bool,
    err: bool,
    raw: bool,
    timestamps: bool,
    since_ms: i64,
    until_ms: i64,
    /// A line is not over, of each stream.
    within: [bool; 2],
}

impl LogOptions {
    fn of(query: &Query, raw: bool) -> Result<Self, DockerError> {
        let time = |name: &str, otherwise: i64| match query.get(name) {
            None | Some("" | "0") => Ok(otherwise),
            Some(text) => {
                let seconds = text.parse::<f64>().ok().map(|seconds| format!("{:.0}", seconds * 1000.0));
                let parsed = seconds.and_then(|ms| ms.parse().ok()).or_else(|| clock::parse_ms(text));
                parsed.ok_or_else(|| told(StatusCode::BAD_REQUEST, format!("`{name}={text}` is no time")))
            }
        };
        let wanted = Self {
            out: yes(query, "stdout")?,
            err: yes(query, "stderr")?,
            raw,
            timestamps: yes(query, "timestamps")?,
            since_ms: time("since", i64::MIN)?,
            until_ms: time("until", i64::MAX)?,
            within: [false; 2],
        };
        if wanted.out || wanted.err {
            return Ok(wanted);
        }
        Err(told(StatusCode::BAD_REQUEST, "you must choose at least one stream"))
    }

    fn has(&self, piece: &Piece) -> bool {
        let lane = match piece.lane {
            Lane::Out => self.out,
            Lane::Err => self.err,
        };
        lane && (self.since_ms..=self.until_ms).contains(&piece.at_ms)
    }

    /// As it goes out.
    fn written(&mut self, piece: &Piece) -> Vec<u8> {
        let bytes = if self.timestamps { self.stamped(piece) } else { piece.bytes.clone() };
        if self.raw { bytes } else { Piece::framed(piece.lane, &bytes) }
    }

    fn stamped(&mut self, piece: &Piece) -> Vec<u8> {
        let [out, err] = &mut self.within;
        let within = match piece.lane {
            Lane::Out => out,
            Lane::Err => err,
        };
        let mut bytes = Vec::new();
        for line in piece.bytes.split_inclusive(|byte| *byte == b'\n') {
            if !*within {
                bytes.extend(format!("{} ", clock::rfc3339(piece.at_ms)).bytes());
            }
            bytes.extend(line);
            *within = !line.ends_with(b"\n");
        }
        bytes
    }
}

fn content_type(raw: bool) -> HeaderValue {
    HeaderValue::from_static(if raw {
        "application/vnd.docker.raw-stream"
    } else {
        "application/vnd.docker.multiplexed-stream"
    })
}

pub(super) async fn logs(State(docker): State<Arc<Docker>>, Path(word): Path<String>, uri: Uri) -> HttpResult {
    let container = docker.find(&word)?;
    let query = Query::of(&uri);
    let raw = container.record().program.tty.is_some();
    let mut wanted = LogOptions::of(&query, raw)?;
    let follow = yes(&query, "follow")?;
    let lines = match query.get("tail") {
        None | Some("" | "all" | "-1") => None,
        Some(text) => {
            let number = text
                .parse::<usize>()
                .map_err(|_no| told(StatusCode::BAD_REQUEST, format!("`tail={text}` is no number")))?;
            Some(number)
        }
    };
    let (to, from) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(QUEUE);
    tokio::spawn(async move {
        let mut start = 0;
        if let Some(lines) = lines {
            start = container.log.end();
            for piece in tail(container.log.read(0, false), start, lines, &wanted).await {
                if to.send(Ok(Bytes::from(wanted.written(&piece)))).await.is_err() {
                    return;
                }
            }
        }
        let mut reader = container.log.read(start, follow);
        loop {
            let piece = tokio::select! {
                () = to.closed() => return,
                piece = reader.next() => piece,
            };
            let Some(piece) = piece else { return };
            if wanted.has(&piece) && to.send(Ok(Bytes::from(wanted.written(&piece)))).await.is_err() {
                return;
            }
        }
    });
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(from)));
    response.headers_mut().insert(header::CONTENT_TYPE, content_type(raw));
    Ok(response)
}

/// The last lines of what was printed before this place.
async fn tail(mut reader: Reader, end: u64, lines: usize, wanted: &LogOptions) -> Vec<Piece> {
    let mut all = Vec::new();
    if lines == 0 {
        return all;
    }
    while reader.at() < end
        && let Some(piece) = reader.next().await
    {
        if wanted.has(&piece) {
            all.push(piece);
        }
    }
    let mut left = lines;
    let mut is_last = true;
    for at in (0..all.len()).rev() {
        let Some(piece) = all.get_mut(at) else { break };
        let mut cut = None;
        for (place, byte) in piece.bytes.iter().enumerate().rev() {
            // The end of the last line begins no other.
            if *byte == b'\n' && !std::mem::take(&mut is_last) {
                left = left.saturating_sub(1);
                if left == 0 {
                    cut = Some(place.saturating_add(1));
                    break;
                }
            }
            is_last = false;
        }
        if let Some(cut) = cut {
            piece.bytes.drain(..cut);
            all.drain(..at);
            break;
        }
    }
    all
}

/// Writes pieces to a connection until the end.
pub(super) async fn hand(mut reader: Reader, raw: bool, lanes: (bool, bool), mut to: WriteHalf<Wire>) {
    while let Some(piece) = reader.next().await {
        let wanted = match piece.lane {
            Lane::Out => lanes.0,
            Lane::Err => lanes.1,
        };
        if wanted && put(&mut to, piece.lane, raw, &piece.bytes).await.is_err() {
            return;
        }
    }
    if to.shutdown().await.is_err() {
        // Nobody reads.
    }
}

pub(super) async fn put(
    to: &mut (impl AsyncWrite + Unpin),
    lane: Lane,
    raw: bool,
    bytes: &[u8],
) -> std::io::Result<()> {
    if raw {
        to.write_all(bytes).await?;
    } else {
        to.write_all(&Piece::framed(lane, bytes)).await?;
    }
    to.flush().await
}

/// Whether a client asks for what [`taken_over`] gives.
pub(super) fn can_be_taken_over(request: &Request) -> Result<(), DockerError> {
    if request.headers().contains_key(header::UPGRADE) {
        return Ok(());
    }
    let message = "fumehood wants `Connection: Upgrade` and `Upgrade: tcp` here, as Docker's clients send it";
    Err(told(StatusCode::BAD_REQUEST, message))
}

/// Answers that the connection is the client's from now on, and gives it to `work`.
pub(super) fn taken_over<F>(
    mut request: Request,
    raw: bool,
    work: impl FnOnce(Wire) -> F + Send + 'static,
) -> HttpResult
where
    F: Future<Output = ()> + Send + 'static,
{
    can_be_taken_over(&request)?;
    let busy = request.extensions_mut().remove::<Arc<Busy>>();
    let connection = request.extensions_mut().remove::<OfDocker>();
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgraded.await {
            head_is_read(connection).await;
            work(TokioIo::new(upgraded)).await;
        }
        drop(busy);
    });
    let mut response = nothing(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("tcp"));
    headers.insert(header::CONTENT_TYPE, content_type(raw));
    Ok(response)
}

/// Waits until the client has read the head of the answer: docker-py loses what it reads together with it.
async fn head_is_read(connection: Option<OfDocker>) {
    let Some(OfDocker(connection)) = connection else { return };
    let is_read = || sys::channel::unread_by_peer(connection.as_fd()).is_ok_and(|left| left == 0);
    let all = async {
        while !is_read() {
            tokio::time::sleep(LOOK).await;
        }
    };
    // One that reads nothing for so long gets what comes all the same.
    drop(tokio::time::timeout(SLOW, all).await);
}

/// Output as it comes, and input, where the client asks for them.
pub(super) async fn attach(
    State(docker): State<Arc<Docker>>,
    Path(word): Path<String>,
    request: Request,
) -> HttpResult {
    let container = docker.find(&word)?;
    let query = Query::of(request.uri());
    let record = container.record();
    let raw = record.program.tty.is_some();
    let lanes = (yes(&query, "stdout")?, yes(&query, "stderr")?);
    let start = if yes(&query, "logs")? { 0 } else { container.log.end() };
    let reader = container.log.read(start, yes(&query, "stream")?);
    let writes = yes(&query, "stdin")? && (record.program.stdin || raw);
    taken_over(request, raw, move |wire| async move {
        let (from, to) = tokio::io::split(wire);
        let printed = hand(reader, raw, lanes, to);
        tokio::pin!(printed);
        if !writes {
            return printed.await;
        }
        tokio::select! {
            () = &mut printed => return,
            () = typed(&container, from, record.stdin_once) => {}
        }
        printed.await;
    })
}

/// Carries what a client writes to the program, as soon as it runs.
async fn typed(container: &Container, mut from: ReadHalf<Wire>, closes: bool) {
    let mut phase = container.phase.subscribe();
    if phase.wait_for(|phase| *phase != Phase::Created).await.is_err() {
        return;
    }
    let Some(input) = container.input() else { return };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if input.send(buffer.get(..count).unwrap_or_default()).await.is_err() {
            return;
        }
    }
    if closes && input.eof().is_err() {
        // It has ended.
    }
}

/// Rows and columns of a query.
pub(super) fn size(uri: &Uri) -> Result<ProgramControl, DockerError> {
    let query = Query::of(uri);
    let side =
        |name: &str| query.get(name).and_then(|text| text.parse::<u16>().ok()).filter(|side| (1..=1000).contains(side));
    let size = side("h").zip(side("w")).map(|(rows, cols)| ProgramControl::Resize(Size { rows, cols }));
    size.ok_or_else(|| told(StatusCode::BAD_REQUEST, "`h` and `w` are numbers from 1 to 1000"))
}

pub(super) async fn resize(State(docker): State<Arc<Docker>>, Path(word): Path<String>, uri: Uri) -> HttpResult {
    let container = docker.find(&word)?;
    let size = size(&uri)?;
    let sent = container.input().is_some_and(|input| input.control(&size).is_ok());
    if sent || container.phase() == Phase::Created {
        return Ok(nothing(StatusCode::OK));
    }
    Err(told(StatusCode::CONFLICT, format!("container {word} has no terminal now")))
}

#[cfg(test)]
mod tests {
    use super::super::log::Log;
    use super::*;

    fn all() -> LogOptions {
        LogOptions {
            out: true,
            err: true,
            raw: true,
            timestamps: false,
            since_ms: 0,
            until_ms: i64::MAX,
            within: [false; 2],
        }
    }

    #[tokio::test]
    async fn the_last_lines_are_counted_over_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::open(folder.path().join("log"), false);
        for piece in [&b"a\nb"[..], b"b\nc\n", b"d\n"] {
            log.append(Lane::Out, piece);
        }
        for (lines, shown) in [(0, ""), (1, "d\n"), (2, "c\nd\n"), (3, "bb\nc\nd\n"), (9, "a\nbb\nc\nd\n")] {
            let pieces = tail(log.read(0, false), log.end(), lines, &all()).await;
            let text: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.bytes).collect();
            assert_eq!(String::from_utf8_lossy(&text), shown, "{lines}");
        }
    }

    #[test]
    fn each_line_has_its_time_once() {
        let mut wanted = LogOptions { timestamps: true, ..all() };
        let piece = |bytes: &[u8]| Piece { lane: Lane::Out, at_ms: 0, bytes: bytes.to_vec() };
        let first = wanted.written(&piece(b"a\nb"));
        let second = wanted.written(&piece(b"c\n"));
        let stamp = "1970-01-01T00:00:00.000Z ";
        assert_eq!(String::from_utf8_lossy(&first), format!("{stamp}a\n{stamp}b"));
        assert_eq!(second, b"c\n");
    }
}
