//! One blob, from where a try before broke off, into its place once its digest is right.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::time::Duration;

use images::ImageError;
use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sandbox::state::{Dir, errno_of};
use sha2::{Digest as _, Sha256};

use crate::client::{Client, Pace};
use crate::descriptor::{BLOBS, Descriptor, hex_of};
use crate::error::PullError;

/// How often one blob is asked for again where the connection breaks.
const TRIES: u32 = 8;
const PAUSE: Duration = Duration::from_millis(300);

/// What has come so far.
struct Part {
    file: File,
    hash: Sha256,
    count: u64,
}

impl Part {
    fn open(dir: &Dir, name: &str) -> io::Result<Self> {
        let file = dir.open_file(name, OFlags::RDWR | OFlags::CREATE, Mode::from_raw_mode(0o600))?;
        let mut part = Self { file, hash: Sha256::new(), count: 0 };
        let mut buffer = vec![0; 128 << 10];
        loop {
            let read = part.file.read(&mut buffer)?;
            let bytes = buffer.get(..read).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(part);
            }
            part.hash.update(bytes);
            part.count = part.count.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        }
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.hash.update(bytes);
        self.count = self.count.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(())
    }

    fn begin_again(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        (self.hash, self.count) = (Sha256::new(), 0);
        Ok(())
    }
}

/// Brings a blob into the layout.
pub(crate) async fn fetch(client: &Client, dir: &Dir, wanted: &Descriptor) -> Result<(), PullError> {
    let hex = hex_of(client, &wanted.digest)?;
    let (name, place) = (format!("part-{hex}"), format!("{BLOBS}/{hex}"));
    let io = |error: &io::Error| ImageError::Io { path: name.clone().into(), errno: errno_of(error) };
    // What has its place had its digest; whoever imports reads it again.
    match dir.open_file(&place, OFlags::RDONLY, Mode::empty()) {
        Ok(_) => return Ok(()),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(ImageError::Io { path: place.into(), errno }.into()),
    }
    let mut part = Part::open(dir, &name).map_err(|error| io(&error))?;
    if part.count > wanted.size {
        part.begin_again().map_err(|error| io(&error))?;
    }
    let mut tries = 0;
    while part.count < wanted.size {
        tries += 1;
        match more(client, wanted, &mut part).await {
            Err(PullError::Registry { passing: true, .. }) if tries < TRIES => {
                tokio::time::sleep(PAUSE.saturating_mul(tries)).await;
            }
            done => done?,
        }
    }
    let found = part.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    if found != hex {
        let gone = dir.remove_tree(&name).map_err(|errno| ImageError::Io { path: name.clone().into(), errno });
        gone?;
        return Err(differs(&wanted.digest, &format!("it is sha256:{found} as it comes")));
    }
    rustix::fs::renameat(dir, name.as_str(), dir, place.as_str()).map_err(|errno| io(&errno.into()).into())
}

/// One answer, as far as it goes.
async fn more(client: &Client, wanted: &Descriptor, part: &mut Part) -> Result<(), PullError> {
    let io = |error: &io::Error| ImageError::Io { path: wanted.digest.clone().into(), errno: errno_of(error) };
    let mut answer = client.get(&format!("blobs/{}", wanted.digest), "", part.count).await?;
    if part.count > 0 && !goes_on(&answer, part.count) {
        part.begin_again().map_err(|error| io(&error))?;
    }
    let mut pace = Pace::new();
    while let Some(bytes) = answer.chunk().await.map_err(|error| client.broken(&error))? {
        pace.goes_on(client, bytes.len())?;
        let after = part.count.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if after > wanted.size {
            return Err(differs(&wanted.digest, &format!("it has {} bytes, and more come", wanted.size)));
        }
        part.add(&bytes).map_err(|error| io(&error))?;
    }
    if part.count < wanted.size {
        return Err(client.cut(part.count, wanted.size));
    }
    Ok(())
}

/// Whether an answer begins where it should.
fn goes_on(answer: &Response, from: u64) -> bool {
    let range = answer.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
    answer.status() == StatusCode::PARTIAL_CONTENT
        && range.is_some_and(|range| range.starts_with(&format!("bytes {from}-")))
}

fn differs(what: &str, why: &str) -> PullError {
    ImageError::Digest { what: what.to_owned(), why: why.to_owned() }.into()
}
