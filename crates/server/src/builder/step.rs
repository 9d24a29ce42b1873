//! One step of a build, inside its sandbox.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;

use agent::words::{Entry, FileKind, Program, Request, Skipped};
use live::client::{Incoming, Stream};
use live::words::{Ask, Exec, Report};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::HOME;
use super::run::Building;
use crate::backend;
use crate::built::{Archive, BuiltTemplate, Copy, Copying, Level, Step};

/// Bytes that are sent at once, and how many of those wait.
const PIECE: usize = 60 * 1024;
const PIECES: usize = 4;
/// A line that is longer is told in parts, bytes.
const MAX_LINE: usize = 2000;

/// Where npm keeps what it fetched.
pub(super) const CACHE: &str = "/tmp/.npm-of-build";

/// The sandbox of a build.
pub(super) struct Inside<'a> {
    building: &'a Building,
    /// Of the sandbox.
    id: String,
    /// Variables of programs in steps alone.
    installs: BTreeMap<String, String>,
    /// What runs the lines of steps.
    shell: &'static str,
    /// What the steps made of it so far.
    pub(super) kept: BuiltTemplate,
}

/// The shell of E2B's clients, and that of images without it.
const SHELL: &str = "/bin/bash";
const SMALL_SHELL: &str = "/bin/sh";

impl<'a> Inside<'a> {
    /// A sandbox that was made for a build.
    pub(super) async fn new(
        building: &'a Building,
        id: &str,
        installs: BTreeMap<String, String>,
        kept: BuiltTemplate,
    ) -> Self {
        let mut inside = Self { building, id: id.to_owned(), installs, shell: SHELL, kept };
        if inside.kind(SHELL).await.is_none() {
            inside.shell = SMALL_SHELL;
        }
        inside
    }

    /// Does a step; in words why not.
    pub(super) async fn step(&mut self, step: &Step, name: &str) -> Result<(), String> {
        if let Some(line) = self.line(step) {
            self.say(name, &line);
        }
        self.recall(step);
        match step {
            Step::Run(line) => self.run(name, line).await,
            Step::Copy(copy) => self.copy(name, copy).await,
            Step::Workdir(_) => {
                let made = Exec { program: program(&["mkdir", "-p", "--", &self.kept.workdir]), ..Exec::default() };
                self.exec(name, made).await
            }
            Step::Env(_) | Step::User => Ok(()),
        }
    }

    /// A step that an earlier build did.
    pub(super) fn cached(&mut self, step: &Step, name: &str) {
        if let Some(line) = self.line(step) {
            self.say(name, &format!("cached: {line}"));
        }
        self.recall(step);
    }

    /// What is said of a step before it is done.
    fn line(&self, step: &Step) -> Option<String> {
        match step {
            Step::Run(line) => Some(format!("RUN {line}")),
            Step::Copy(copy) => Some(format!("COPY {} {}", copy.source, copy.to)),
            Step::Env(pairs) => {
                let names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
                Some(format!("ENV {}", names.join(" ")))
            }
            Step::Workdir(path) => Some(format!("WORKDIR {}", self.absolute(path))),
            Step::User => None,
        }
    }

    /// What a step changes beside files.
    fn recall(&mut self, step: &Step) {
        match step {
            Step::Env(pairs) => self.kept.env.extend(pairs.iter().cloned()),
            Step::Workdir(path) => self.kept.workdir = self.absolute(path),
            Step::Run(_) | Step::Copy(_) | Step::User => {}
        }
    }

    /// Takes away what clients of registries kept for themselves.
    pub(super) async fn tidied(&self, step: &str) {
        let gone = Exec { program: program(&["rm", "-rf", "--", CACHE]), ..Exec::default() };
        // Where it stays it is a part of the template, and that is all.
        drop(self.exec(step, gone).await);
    }

    fn say(&self, step: &str, line: &str) {
        self.building.work.say(Level::Info, step, line);
    }

    /// A path from where programs begin.
    fn absolute(&self, path: &str) -> String {
        let path = match path.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{HOME}{rest}"),
            Some(_) | None => path.to_owned(),
        };
        Path::new(&self.kept.workdir).join(path).to_string_lossy().into_owned()
    }

    async fn run(&self, step: &str, line: &str) -> Result<(), String> {
        let mut program = program(&[self.shell, "-l", "-c", line]);
        program.env = self.installs.clone();
        program.env.extend(self.kept.env.clone());
        program.cwd = Some(self.kept.workdir.clone());
        self.exec(step, Exec { program, ..Exec::default() }).await
    }

    async fn exec(&self, step: &str, exec: Exec) -> Result<(), String> {
        let opened = backend::open(&*self.building.app.sandboxes, &self.id, &Ask::Exec(exec)).await;
        let mut stream = opened.map_err(|failure| failure.message)?;
        let (mut out, mut err) = (Lines::default(), Lines::default());
        let tell = |line: &str| self.building.work.say(Level::Info, step, line);
        while let Some(incoming) = stream.next().await {
            match incoming {
                Incoming::Out(bytes) => out.push(&bytes, &tell),
                Incoming::Err(bytes) => err.push(&bytes, &tell),
                Incoming::Event(_) => {}
                Incoming::End(end) => {
                    out.end(&tell);
                    err.end(&tell);
                    let report = end.and_then(backend::read::<Report>).map_err(|failure| failure.message)?;
                    return self.judged(step, &report);
                }
            }
        }
        Err("the sandbox of the build has ended".to_owned())
    }

    fn judged(&self, step: &str, report: &Report) -> Result<(), String> {
        if report.code == Some(0) && report.limit.is_none() {
            return Ok(());
        }
        let last = self.building.work.last_words(step).unwrap_or_default();
        let is_read_only = last.contains("Read-only file system") || last.contains("Permission denied");
        let hint = if is_read_only {
            "; programs are read-only here: install below the home folder, or build an image on the server"
        } else {
            ""
        };
        Err(format!("{}: {last}{hint}", report.message))
    }

    async fn copy(&self, step: &str, copy: &Copy) -> Result<(), String> {
        let (id, build) = (self.building.template.id.clone(), self.building.found.id.clone());
        let hash = copy.hash.clone();
        let file = self.building.app.in_shelf(move |shelf| shelf.held_upload((&id, &build), &hash)).await;
        let mut archive = Archive::new(file.map_err(|problem| problem.line())?);
        let wanted = copy.clone();
        let judged = tokio::task::spawn_blocking(move || {
            let copying = Copying::judge(&wanted, &mut archive)?;
            Ok::<_, String>((copying, archive))
        });
        let (copying, archive) = judged.await.map_err(|_lost| lost())??;
        let to = self.absolute(&copy.to);
        if copying.is_one_file() && to == self.kept.place && !copy.to.ends_with('/') {
            return Err(format!(
                "no file can be at {to}: it is the folder that a template keeps beside its home folder"
            ));
        }
        let is_folder = copy.to.ends_with('/') || !copying.is_one_file() || self.is_folder(&to).await;
        let (folder, called) = match (Path::new(&to).parent(), Path::new(&to).file_name()) {
            (Some(above), Some(name)) if !is_folder => {
                (above.to_string_lossy().into_owned(), name.to_string_lossy().into_owned())
            }
            (_, _) => (to.clone(), copying.name()),
        };
        let ask = Request::Extract { path: folder.clone() };
        let skipped = self.unpacked(&ask, copying, archive, called).await?;
        match skipped.skipped.first() {
            None => {
                self.say(step, &format!("{} files and folders in {folder}", skipped.taken));
                Ok(())
            }
            Some(first) => Err(format!("in {folder} something could not be made: {first}")),
        }
    }

    async fn is_folder(&self, path: &str) -> bool {
        self.kind(path).await == Some(FileKind::Dir)
    }

    /// What is there; none where nothing is.
    async fn kind(&self, path: &str) -> Option<FileKind> {
        let ask = Request::Stat { path: path.to_owned(), follow: true };
        let found = backend::call::<Entry>(&*self.building.app.sandboxes, &self.id, &ask).await;
        found.ok().map(|entry| entry.kind)
    }

    async fn unpacked(
        &self,
        ask: &Request,
        copying: Copying,
        mut archive: Archive,
        called: String,
    ) -> Result<Skipped, String> {
        let opened = backend::open(&*self.building.app.sandboxes, &self.id, ask).await;
        let mut stream: Stream = opened.map_err(|failure| failure.message)?;
        let (to, mut pieces): (Sender<Vec<u8>>, Receiver<Vec<u8>>) = channel(PIECES);
        let writer = tokio::task::spawn_blocking(move || {
            let mut pipe = BufWriter::with_capacity(PIECE, Pipe { to });
            copying.write(&mut archive, &called, &mut pipe)
        });
        let mut is_taken = true;
        while let Some(piece) = pieces.recv().await {
            is_taken = stream.send(&piece).await.is_ok();
            if !is_taken {
                break;
            }
        }
        // A writer that still has something ends by that.
        drop(pieces);
        let written = writer.await.map_err(|_lost| lost())?;
        if is_taken {
            written?;
            // Where the request has ended, its result says why.
            drop(stream.eof());
        }
        stream.result::<Skipped>().await.map_err(|error| error.failure().message)
    }
}

fn lost() -> String {
    "the thread that read the upload is gone".to_owned()
}

fn program(argv: &[&str]) -> Program {
    Program { argv: argv.iter().map(|word| (*word).to_owned()).collect(), ..Program::default() }
}

/// Where a thread writes what a task sends.
struct Pipe {
    to: Sender<Vec<u8>>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let piece = bytes.get(..bytes.len().min(PIECE)).unwrap_or_default();
        let sent = self.to.blocking_send(piece.to_vec());
        sent.map_err(|_gone| std::io::Error::from(std::io::ErrorKind::BrokenPipe))?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Output, line by line; of a line that was written over, the last.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
    /// What comes next is written over it, unless it ends.
    is_over: bool,
}

impl Lines {
    fn push(&mut self, bytes: &[u8], tell: &(dyn Fn(&str) + Sync)) {
        for byte in bytes {
            match byte {
                b'\n' => self.end(tell),
                b'\r' => self.is_over = true,
                byte => {
                    if std::mem::take(&mut self.is_over) {
                        self.line.clear();
                    }
                    self.line.push(*byte);
                    if self.line.len() >= MAX_LINE {
                        self.end(tell);
                    }
                }
            }
        }
    }

    fn end(&mut self, tell: &(dyn Fn(&str) + Sync)) {
        let Self { line, .. } = std::mem::take(self);
        let text = String::from_utf8_lossy(&line);
        if !text.trim().is_empty() {
            tell(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn output_is_told_line_by_line() {
        let said = Mutex::new(Vec::new());
        let tell = |line: &str| said.lock().unwrap().push(line.to_owned());
        let mut lines = Lines::default();
        lines.push(b"one\r\ntw", &tell);
        lines.push(b"o\n\n10%\r100%", &tell);
        lines.end(&tell);
        assert_eq!(*said.lock().unwrap(), ["one", "two", "100%"]);
        lines.push(&[b'x'; MAX_LINE * 3], &tell);
        assert!(said.lock().unwrap().iter().all(|line| line.len() <= MAX_LINE));
    }
}
