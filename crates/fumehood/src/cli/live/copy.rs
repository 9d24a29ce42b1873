//! `fumehood cp`: files and folders into a live sandbox and out of it, as tar streams.
//!
//! What comes out was made by whom we do not trust: nothing is written outside of the target, no link is followed, no set-user
//! bit is kept, and what is neither file, folder nor link is left out.

use std::ffi::{OsStr, OsString};
use std::io::{Error as IoError, ErrorKind, Read, Result as IoResult, Write};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use agent::path_text;
use agent::words::{Code, Entry, FileKind, Request, Skipped};
use live::client::{Client, Error, Incoming, Stream};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use sandbox::changes::climbs;
use sandbox::fault::{show_path, show_text};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::super::args::{Flag, Positionals, To, usage};
use super::super::spec::{Call, Spec};
use super::{answered, connected, failed, home, missing, text, wait_for};
use crate::ui::Failure;

/// How deep folders are walked.
const MAX_DEPTH: usize = 256;
/// Pieces that are on the way between the two threads.
const PIECES: usize = 4;
const PIECE: usize = 64 * 1024 - 1;
/// How many of what was left out are told.
const TOLD: usize = 100;

/// Flags of this command.
const FLAGS: &[Flag] =
    &[Flag::new("leaving-links", None, To::Ours, "Out of a sandbox: take links that lead out of what is copied")];

pub(crate) const SPEC: Spec = Spec {
    path: &["cp"],
    about: "Copy files and folders into a live sandbox, or out of it",
    usage: "SRC ID:PATH | ID:PATH DST",
    more: "Into a folder that is there, under its own name; else under the name of the target. `-` is a tar stream: \
           `fumehood cp ID:PATH - | tar x`.\nNames, modes and links are kept, owners are not; no link is followed, special files \
           are left out and told. Out of a sandbox, links that lead out of what is copied are left out and told too; a target that is \
           a link to a folder needs a `/` behind it.\nExit code 0, 1 if something was left out, or 125.",
    tables: &[FLAGS],
    words: Positionals::Mixed(2),
    hidden: false,
    run,
};

/// One side of a copy.
enum Side {
    Inside(String, String),
    Here(PathBuf),
    Stream,
}

fn side(word: &OsStr) -> Result<Side, Failure> {
    if word == "-" {
        return Ok(Side::Stream);
    }
    // A path with a `/` before its first colon is one of here, as with scp.
    let bytes = word.as_bytes();
    let colon = bytes.iter().position(|byte| *byte == b':');
    let slash = bytes.iter().position(|byte| *byte == b'/');
    match colon {
        Some(colon) if colon > 0 && slash.is_none_or(|slash| slash > colon) => {
            let (id, path) = bytes.split_at(colon);
            let path = path_text::of(OsStr::from_bytes(path.get(1..).unwrap_or_default()));
            Ok(Side::Inside(text(OsStr::from_bytes(id))?, if path.is_empty() { ".".to_owned() } else { path }))
        }
        Some(_) | None => Ok(Side::Here(PathBuf::from(word))),
    }
}

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let [from, to] = call.parsed.words.as_slice() else {
        return Err(missing("a source or a target", "cp SRC ID:PATH"));
    };
    let home = home(call)?;
    let leaving = call.parsed.has("leaving-links");
    let (id, inwards, inside, here) = match (side(from)?, side(to)?) {
        (Side::Inside(id, path), Side::Here(here)) => (id, false, path, Some(here)),
        (Side::Inside(id, path), Side::Stream) => (id, false, path, None),
        (Side::Here(here), Side::Inside(id, path)) => (id, true, path, Some(here)),
        (Side::Stream, Side::Inside(id, path)) => (id, true, path, None),
        (Side::Inside(..), Side::Inside(..)) | (Side::Here(_) | Side::Stream, Side::Here(_) | Side::Stream) => {
            let what = "one side is `ID:PATH`, the other is of this machine".to_owned();
            let why = "a copy leads into a sandbox or out of it".to_owned();
            let fix = "`fumehood cp ID:PATH DST`, `fumehood cp SRC ID:PATH`".to_owned();
            return Err(Failure::own(usage("usage/two-sides", what, why, fix)));
        }
    };
    let skipped = wait_for(async {
        let (info, client) = connected(&home, &id).await?;
        let said = |error| answered(error, &info.id);
        match (inwards, here) {
            (true, Some(here)) => put(&client, here, &inside, said).await,
            (true, None) => put_stream(&client, &inside).await.map_err(said),
            (false, Some(here)) => get(&client, &inside, (here, leaving), said).await,
            (false, None) => get_stream(&client, &inside).await.map_err(said),
        }
    })?;
    for one in skipped.iter().take(TOLD) {
        call.console.eprint(&format!("left out: {}\n", show_text(one)));
    }
    Ok(u8::from(!skipped.is_empty()))
}

/// Where a copy goes: into which folder, and under which name.
async fn target(client: &Client, inside: &str, name: &OsStr) -> Result<(String, OsString), Error> {
    let stat = Request::Stat { path: inside.to_owned(), follow: true };
    match client.call::<Entry>(&stat).await {
        Ok(entry) if entry.kind == FileKind::Dir => Ok((inside.to_owned(), name.to_owned())),
        Ok(_) => Ok(parted(inside)),
        // Only a folder can have a slash behind it; it is made.
        Err(Error::Failed(failure)) if failure.code == Code::NotFound && inside.ends_with('/') => {
            Ok((inside.to_owned(), name.to_owned()))
        }
        Err(Error::Failed(failure)) if failure.code == Code::NotFound => Ok(parted(inside)),
        Err(error) => Err(error),
    }
}

fn parted(path: &str) -> (String, OsString) {
    // What came from a command line is the text of a path.
    let path = path_text::path(path).unwrap_or_else(|| PathBuf::from(path));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    (path_text::of(folder), path.file_name().unwrap_or(OsStr::new(".")).to_owned())
}

async fn put(
    client: &Client,
    here: PathBuf,
    inside: &str,
    said: impl Fn(Error) -> Failure,
) -> Result<Vec<String>, Failure> {
    let real = std::fs::symlink_metadata(&here).map_err(|error| failed(&format!("{}: {error}", show_path(&here))))?;
    let whole = here.components().next_back().is_some_and(|last| matches!(last, Component::Normal(_)));
    let named = if whole { Ok(here.clone()) } else { std::fs::canonicalize(&here) };
    let name = named.ok().and_then(|path| path.file_name().map(OsStr::to_owned)).unwrap_or_else(|| ".".into());
    let (folder, name) = target(client, inside, &name).await.map_err(&said)?;
    let (pieces, to_send) = channel(PIECES);
    let packing = tokio::task::spawn_blocking(move || {
        let mut skipped = Vec::new();
        let mut tar = tar::Builder::new(Pieces(pieces, Vec::new()));
        tar.follow_symlinks(false);
        pack(&mut tar, (&here, Path::new(&name)), &real, &mut skipped, 0)?;
        tar.into_inner()?.flush()?;
        Ok::<_, IoError>(skipped)
    });
    let sent = send(client, &folder, to_send).await;
    let packed = packing.await.map_err(|error| failed(&error))?;
    // What the sandbox said is the reason why the packing could not go on.
    let theirs = sent.map_err(&said)?;
    let mut skipped = packed.map_err(|error| failed(&error))?;
    skipped.extend(theirs);
    Ok(skipped)
}

/// Adds a file, link or folder to a tar stream.
fn pack(
    tar: &mut tar::Builder<Pieces>,
    (path, name): (&Path, &Path),
    meta: &std::fs::Metadata,
    skipped: &mut Vec<String>,
    depth: usize,
) -> IoResult<()> {
    let kind = meta.file_type();
    if !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
        skipped.push(format!("{}: it is a device, a pipe or a socket", show_path(path)));
        return Ok(());
    }
    if depth > MAX_DEPTH {
        skipped.push(format!("{}: folders are more than {MAX_DEPTH} deep", show_path(path)));
        return Ok(());
    }
    match tar.append_path_with_name(path, name) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Err(error),
        Err(error) => {
            skipped.push(format!("{}: {error}", show_path(path)));
            return Ok(());
        }
    }
    if !kind.is_dir() {
        return Ok(());
    }
    let mut names: Vec<_> = std::fs::read_dir(path)?.collect::<IoResult<Vec<_>>>()?;
    names.sort_by_key(std::fs::DirEntry::file_name);
    for entry in names {
        // One that is gone meanwhile is none.
        if let Ok(meta) = entry.metadata() {
            pack(tar, (&entry.path(), &name.join(entry.file_name())), &meta, skipped, depth.saturating_add(1))?;
        }
    }
    Ok(())
}

/// Sends a tar stream into a folder; what was left out there.
async fn send(client: &Client, folder: &str, mut pieces: Receiver<Vec<u8>>) -> Result<Vec<String>, Error> {
    let mut stream = client.open(&Request::Extract { path: folder.to_owned() })?;
    let sender = stream.sender();
    let sending = tokio::spawn(async move {
        while let Some(piece) = pieces.recv().await {
            if sender.send(&piece).await.is_err() {
                return;
            }
        }
        // One that has ended says why.
        if sender.eof().is_err() {}
    });
    let done = stream.result::<Skipped>().await;
    sending.abort();
    Ok(done?.skipped)
}

async fn put_stream(client: &Client, inside: &str) -> Result<Vec<String>, Error> {
    let (pieces, to_send) = channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let mut from = std::io::stdin().lock();
        let mut room = vec![0; PIECE];
        while let Ok(count @ 1..) = from.read(&mut room) {
            if pieces.blocking_send(room.get(..count).unwrap_or_default().to_vec()).is_err() {
                return;
            }
        }
    });
    send(client, inside, to_send).await
}

async fn get_stream(client: &Client, inside: &str) -> Result<Vec<String>, Error> {
    let mut stream = client.open(&Request::Archive { path: inside.to_owned() })?;
    let mut out = std::io::stdout();
    while let Some(incoming) = stream.next().await {
        match incoming {
            // Nothing else is to be done meanwhile.
            Incoming::Out(bytes) => {
                if out.write_all(&bytes).and_then(|()| out.flush()).is_err() {
                    return Ok(Vec::new());
                }
            }
            Incoming::Err(_) | Incoming::Event(_) => {}
            Incoming::End(ended) => return skipped_in(ended?),
        }
    }
    Err(Error::Lost)
}

fn skipped_in(value: serde_json::Value) -> Result<Vec<String>, Error> {
    let skipped: Skipped = serde_json::from_value(value).map_err(|error| Error::Protocol(error.to_string()))?;
    Ok(skipped.skipped)
}

async fn get(
    client: &Client,
    inside: &str,
    (here, leaving): (PathBuf, bool),
    said: impl Fn(Error) -> Failure,
) -> Result<Vec<String>, Failure> {
    let place = landing(&here)?;
    let stream = client.open(&Request::Archive { path: inside.to_owned() }).map_err(&said)?;
    let (pieces, to_read) = channel(PIECES);
    let unpacking = tokio::task::spawn_blocking(move || unpack(Taken(to_read, Vec::new(), 0), (&here, leaving), place));
    let received = receive(stream, pieces).await;
    let unpacked = unpacking.await.map_err(|error| failed(&error))?;
    // A sandbox that could not read it says so; then half an archive is no surprise.
    let mut skipped = received.map_err(&said)?;
    skipped.extend(unpacked.map_err(|error| failed(&error))?);
    Ok(skipped)
}

async fn receive(mut stream: Stream, pieces: Sender<Vec<u8>>) -> Result<Vec<String>, Error> {
    while let Some(incoming) = stream.next().await {
        match incoming {
            Incoming::Out(bytes) => {
                if pieces.send(bytes).await.is_err() {
                    // The unpacking says why it stopped.
                    return Ok(Vec::new());
                }
            }
            Incoming::Err(_) | Incoming::Event(_) => {}
            Incoming::End(ended) => return skipped_in(ended?),
        }
    }
    Err(Error::Lost)
}

/// Where a copy lands: a folder, and whether it keeps its own name there.
struct Landing {
    folder: OwnedFd,
    into: bool,
}

/// Opens the folder that a target is, or lies in. A target that is a link may be what an earlier copy brought: to be followed it
/// needs a `/` behind it, as the kernel has it.
fn landing(here: &Path) -> Result<Landing, Failure> {
    let said = |error: IoError| failed(&format!("{}: {error}", show_path(here)));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(here, flags, Mode::empty()) {
        Ok(folder) => return Ok(Landing { folder, into: true }),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
        Err(errno) => return Err(said(errno.into())),
    }
    if here.is_symlink() && here.is_dir() {
        let shown = show_path(here);
        return Err(Failure::own(usage(
            "usage/link-target",
            format!("`{shown}` is a link to a folder"),
            "an earlier copy may have brought it, and then a sandbox chose where it leads".to_owned(),
            format!("`{shown}/` copies into that folder; without the link the copy itself gets the name"),
        )));
    }
    let folder = here.parent().filter(|up| !up.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(said)?;
    let folder = std::fs::File::open(folder).map_err(said)?.into();
    Ok(Landing { folder, into: false })
}

/// Whether a link can lead out of what is copied, whose first part is its top: one that is the top itself does.
fn leads_out(path: &Path, target: Option<&Path>) -> bool {
    let below = path.components().filter(|part| matches!(part, Component::Normal(_))).count();
    below < 2 || target.is_none_or(|target| climbs(below.saturating_sub(2), target))
}

/// Unpacks what came out of a sandbox, at `here` or, if that is a folder, into it.
fn unpack(from: Taken, (here, leaving): (&Path, bool), Landing { folder, into }: Landing) -> IoResult<Vec<String>> {
    let mut skipped = Vec::new();
    let mut archive = tar::Archive::new(from);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let kind = entry.header().entry_type();
        let plain = kind.is_file() || kind.is_dir() || kind.is_symlink() || kind.is_hard_link();
        let inside = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !plain || !inside {
            skipped.push(format!("{}: it is no file, folder or link below the target", show_path(&path)));
            continue;
        }
        if kind.is_symlink() && !leaving && leads_out(&path, entry.link_name()?.as_deref()) {
            skipped.push(format!(
                "{}: the link leads out of what is copied (`--leaving-links` takes it)",
                show_path(&path)
            ));
            continue;
        }
        entry.set_preserve_permissions(true);
        entry.set_mask(0o7000);
        entry.set_preserve_mtime(true);
        let renamed = if into { path.clone() } else { under(&path, here) };
        if let Err(error) = place(&mut entry, &folder, &renamed, kind.is_hard_link().then_some((here, into))) {
            skipped.push(format!("{}: {error}", show_path(&path)));
        }
    }
    Ok(skipped)
}

/// The same path with its first part replaced by the last of the target.
fn under(path: &Path, here: &Path) -> PathBuf {
    let name = Path::new(here.file_name().unwrap_or(OsStr::new(".")));
    std::iter::once(name).chain(path.components().skip(1).map(|part| Path::new(part.as_os_str()))).collect()
}

/// The folder of a name below another one, made where it is missing. No part of it is a link, also not one that is put there
/// meanwhile, and so nothing is made elsewhere.
fn folder_of(folder: &OwnedFd, name: &Path, make: bool) -> IoResult<(OwnedFd, OsString)> {
    let mut parts: Vec<&OsStr> = name
        .components()
        .filter_map(|part| match part {
            Component::Normal(part) => Some(part),
            Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => None,
        })
        .collect();
    let last = parts.pop().unwrap_or(OsStr::new(".")).to_owned();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = folder.try_clone()?;
    for part in parts {
        if make {
            match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        at = rustix::fs::openat(&at, part, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::LOOP | Errno::NOTDIR => outside(),
            other => other.into(),
        })?;
    }
    Ok((at, last))
}

fn outside() -> IoError {
    IoError::new(ErrorKind::PermissionDenied, "a link stands in its way, and none is followed")
}

/// Makes one entry below a folder.
fn place(
    entry: &mut tar::Entry<'_, Taken>,
    folder: &OwnedFd,
    name: &Path,
    hard: Option<(&Path, bool)>,
) -> IoResult<()> {
    let (at, last) = folder_of(folder, name, true)?;
    let there = rustix::fs::statat(&at, &last, AtFlags::SYMLINK_NOFOLLOW).ok();
    let kind = there.map(|stat| FileType::from_raw_mode(stat.st_mode));
    if entry.header().entry_type().is_dir() && kind == Some(FileType::Symlink) {
        return Err(outside());
    }
    let Some((here, into)) = hard else {
        // By the folder that was found, and not by its path, which somebody may change meanwhile.
        let full = Path::new("/proc/self/fd").join(at.as_raw_fd().to_string()).join(&last);
        return entry.unpack(&full).map(drop);
    };
    let to = entry.link_name()?.ok_or_else(outside)?.into_owned();
    if !to.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(outside());
    }
    let (from, first) = folder_of(folder, &if into { to } else { under(&to, here) }, false)?;
    if there.is_some() {
        rustix::fs::unlinkat(&at, &last, AtFlags::empty())?;
    }
    Ok(rustix::fs::linkat(&from, &first, &at, &last, AtFlags::empty())?)
}

/// The writing end of what a thread packs.
struct Pieces(Sender<Vec<u8>>, Vec<u8>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> IoResult<usize> {
        self.1.extend(bytes);
        if self.1.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> IoResult<()> {
        let piece = std::mem::take(&mut self.1);
        if piece.is_empty() {
            return Ok(());
        }
        self.0.blocking_send(piece).map_err(|_gone| IoError::from(ErrorKind::BrokenPipe))
    }
}

/// The reading end of what a thread unpacks.
struct Taken(Receiver<Vec<u8>>, Vec<u8>, usize);

impl Read for Taken {
    fn read(&mut self, room: &mut [u8]) -> IoResult<usize> {
        if self.2 >= self.1.len() {
            match self.0.blocking_recv() {
                Some(piece) => (self.1, self.2) = (piece, 0),
                None => return Ok(0),
            }
        }
        let rest = self.1.get(self.2..).unwrap_or_default();
        let count = rest.len().min(room.len());
        for (to, from) in room.iter_mut().zip(rest) {
            *to = *from;
        }
        self.2 = self.2.saturating_add(count);
        Ok(count)
    }
}
