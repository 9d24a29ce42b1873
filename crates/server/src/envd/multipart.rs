//! Bodies of uploads: unpacked where they are compressed, and their parts.

use std::io::{self, Write as _};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use flate2::write::GzDecoder;
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// How long an upload may be silent.
const SILENCE: Duration = Duration::from_secs(60);
/// Compressed bytes that are unpacked at once: what comes of them stays below 5 MiB, whatever they are.
const STEP: usize = 4096;
/// Pieces that wait to be written.
const QUEUE: usize = 4;

/// The pieces of an upload.
pub(crate) type Pieces = ReceiverStream<io::Result<Bytes>>;

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
    let (to, from) = mpsc::channel(QUEUE);
    tokio::spawn(read(request.into_body(), packing, to));
    ReceiverStream::new(from)
}

async fn read(mut body: Body, packing: Packing, to: mpsc::Sender<io::Result<Bytes>>) {
    let mut unpacker = match packing {
        Packing::Plain => None,
        Packing::Gzip => Some(GzDecoder::new(Vec::new())),
    };
    loop {
        let piece = match tokio::time::timeout(SILENCE, body.frame()).await {
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            Ok(Some(Err(_))) => return fail(&to, io::ErrorKind::ConnectionAborted, "the upload broke off").await,
            Err(_late) => return fail(&to, io::ErrorKind::TimedOut, "the upload was silent for 60 s").await,
            Ok(None) => break,
        };
        let Some(unpacker) = &mut unpacker else {
            if to.send(Ok(piece)).await.is_err() {
                return;
            }
            continue;
        };
        for step in piece.chunks(STEP) {
            if unpacker.write_all(step).is_err() {
                return fail(&to, io::ErrorKind::InvalidData, "the upload is no gzip").await;
            }
            let unpacked = std::mem::take(unpacker.get_mut());
            if !unpacked.is_empty() && to.send(Ok(unpacked.into())).await.is_err() {
                return;
            }
        }
    }
    if let Some(unpacker) = unpacker {
        match unpacker.finish() {
            Ok(rest) => {
                if to.send(Ok(rest.into())).await.is_err() {
                    // Nobody takes it any more.
                }
            }
            Err(_) => fail(&to, io::ErrorKind::InvalidData, "the gzip of the upload ends too early").await,
        }
    }
}

async fn fail(to: &mpsc::Sender<io::Result<Bytes>>, kind: io::ErrorKind, why: &'static str) {
    if to.send(Err(io::Error::new(kind, why))).await.is_err() {
        // Nobody takes it any more.
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tokio_stream::StreamExt as _;

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
}
