//! Bodies of uploads: unpacked where they are compressed, and their parts.

use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use flate2::write::GzDecoder;
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout};
use tokio_stream::Stream;

/// How much of an upload, compressed or not, comes at least in each such time that is waited for its client, but for the last one: no
/// connection is held by a byte now and then.
const LEAST: usize = 64 * 1024;
const TIME: Duration = Duration::from_secs(60);
/// Compressed bytes that are unpacked at once: what comes of them stays below 5 MiB, whatever they are.
const STEP: usize = 4096;
/// What is to come of an upload, and the rest of it then.
type Coming = Pin<Box<dyn Future<Output = (io::Result<Option<Bytes>>, Upload)> + Send>>;

/// The pieces of an upload, each read when it is asked for: once they are dropped, nobody holds its body.
pub(crate) struct Pieces(Option<Coming>);

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pieces").field("is_over", &self.0.is_none()).finish()
    }
}

impl Stream for Pieces {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(coming) = &mut self.0 else { return Poll::Ready(None) };
        let (came, upload) = ready!(coming.as_mut().poll(cx));
        self.0 = matches!(came, Ok(Some(_))).then(|| upload.coming());
        Poll::Ready(came.transpose())
    }
}

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
}

impl Packing {
    /// # Errors
    /// The name of an encoding that is not known.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, String> {
        let given = headers.get(header::CONTENT_ENCODING).map_or(Ok("identity"), |value| value.to_str());
        match given.unwrap_or_default().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Self::Plain),
            "gzip" => Ok(Self::Gzip),
            other => Err(format!("the encoding {} is not known: gzip is", policy::diagnostic::quote(other))),
        }
    }
}

/// The bytes of a body as they come.
pub(super) fn pieces(request: Request, packing: Packing) -> Pieces {
    pieces_of(request.into_body(), packing, LEAST)
}

fn pieces_of(body: Body, packing: Packing, least: usize) -> Pieces {
    let unpacker = match packing {
        Packing::Plain => None,
        Packing::Gzip => Some(GzDecoder::new(Vec::new())),
    };
    let paced = Paced { body, least, came: 0, left: TIME };
    Pieces(Some(Upload { paced, unpacker, packed: Bytes::new() }.coming()))
}

/// The body of an upload, and how fast it has to come.
struct Paced {
    body: Body,
    least: usize,
    /// What came since it was last looked at, and how long it is waited for more until then.
    came: usize,
    left: Duration,
}

impl Paced {
    /// What comes next. Only the time counts that is spent here: who is not asked for more is not late.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let asked = Instant::now();
            match timeout(self.left, self.body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    let bytes = frame.into_data().unwrap_or_default();
                    self.left = self.left.saturating_sub(asked.elapsed());
                    self.came = self.came.saturating_add(bytes.len());
                    return Ok(Some(bytes));
                }
                Ok(Some(Err(_))) => {
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the upload broke off"));
                }
                Ok(None) => return Ok(None),
                Err(_late) if self.came < self.least => {
                    let why = "less than 64 KiB of the upload came in 60 s: send it faster";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Err(_due) => (self.came, self.left) = (0, TIME),
            }
        }
    }
}

/// An upload that is being read.
struct Upload {
    paced: Paced,
    /// Until its end, where it is packed.
    unpacker: Option<GzDecoder<Vec<u8>>>,
    /// What came and is not unpacked yet.
    packed: Bytes,
}

impl Upload {
    fn coming(mut self) -> Coming {
        Box::pin(async move { (self.next().await, self) })
    }

    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let wrong = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
        loop {
            let Some(unpacker) = &mut self.unpacker else { return self.paced.next().await };
            if self.packed.is_empty() {
                match self.paced.next().await? {
                    Some(piece) => self.packed = piece,
                    None => {
                        let rest = self.unpacker.take().map(GzDecoder::finish).transpose();
                        let rest = rest.map_err(|_cut| wrong("the gzip of the upload ends too early"))?;
                        return Ok(rest.map(Bytes::from).filter(|rest| !rest.is_empty()));
                    }
                }
            }
            let step = self.packed.split_to(STEP.min(self.packed.len()));
            unpacker.write_all(&step).map_err(|_broken| wrong("the upload is no gzip"))?;
            let unpacked = std::mem::take(unpacker.get_mut());
            if !unpacked.is_empty() {
                return Ok(Some(unpacked.into()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tokio::sync::mpsc;
    use tokio_stream::StreamExt as _;
    use tokio_stream::wrappers::ReceiverStream;

    use super::*;

    async fn unpacked(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let request = Request::new(Body::from(bytes));
        let mut pieces = pieces(request, Packing::Gzip);
        let mut all = Vec::new();
        while let Some(piece) = pieces.next().await {
            all.extend(piece?);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn what_is_packed_is_unpacked_and_what_is_not_is_refused() {
        let data: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(&data).unwrap();
        let packed = packer.finish().unwrap();
        assert_eq!(unpacked(packed.clone()).await.unwrap(), data);
        assert!(unpacked(packed[..packed.len() / 2].to_vec()).await.is_err());
        assert!(unpacked(b"plain".to_vec()).await.is_err());
    }

    /// What comes of an upload whose pieces come so many seconds after each other, and are taken with `pause` between them.
    async fn sent(steps: Vec<(u64, usize)>, pause: u64, least: usize) -> Result<usize, io::ErrorKind> {
        let (from, body) = mpsc::channel(1);
        tokio::spawn(async move {
            for (after, size) in steps {
                tokio::time::sleep(Duration::from_secs(after)).await;
                if from.send(Ok::<_, io::Error>(Bytes::from(vec![b'a'; size]))).await.is_err() {
                    return;
                }
            }
        });
        let mut pieces = pieces_of(Body::from_stream(ReceiverStream::new(body)), Packing::Plain, least);
        let mut all = 0;
        while let Some(piece) = pieces.next().await {
            all += piece.map_err(|error| error.kind())?.len();
            tokio::time::sleep(Duration::from_secs(pause)).await;
        }
        Ok(all)
    }

    #[tokio::test]
    async fn nobody_holds_the_body_of_an_upload_that_is_not_wanted() {
        let (from, body) = mpsc::channel::<io::Result<Bytes>>(1);
        let body = Body::from_stream(ReceiverStream::new(body));
        let mut pieces = pieces_of(body, Packing::Plain, LEAST);
        from.send(Ok(Bytes::from_static(b"a"))).await.unwrap();
        assert!(pieces.next().await.is_some());
        assert!(timeout(Duration::ZERO, pieces.next()).await.is_err(), "it waits for more");
        drop(pieces);
        assert!(from.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_is_not_held_open_by_a_byte_now_and_then() {
        // Without the bound it stays.
        let each = |after, size, count| vec![(after, size); count];
        assert_eq!(sent(each(50, 1, 1000), 0, 0).await, Ok(1000));
        let late = Err(io::ErrorKind::TimedOut);
        assert_eq!(sent(each(50, 1, 1000), 0, LEAST).await, late);
        // What came at first pays for its minute, and not for the day.
        let begins = [each(1, 100 * LEAST, 1), each(50, 1, 1000)].concat();
        assert_eq!((sent(begins.clone(), 0, 0).await, sent(begins, 0, LEAST).await), (Ok(100 * LEAST + 1000), late));
        // Slow, and always more; short; fast to who takes it slowly.
        assert_eq!(sent(each(50, LEAST, 30), 0, LEAST).await, Ok(30 * LEAST));
        assert_eq!(sent(each(5, 10, 10), 0, LEAST).await, Ok(100));
        assert_eq!(sent(each(1, 10, 30), 300, LEAST).await, Ok(300));
    }
}
