//! A server that is a program: whoever launches it puts it into a sandbox of its own.
//!
//! Three tasks: one writes frames, one reads them, one waits for the end. A frame that passes the bound, or text that is no
//! JSON again and again, ends the child: a server that cannot be understood is not listened to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value as Json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::BoxFuture;
use crate::mcp::peer::{Handler, Outlet, Peer};
use crate::mcp::text;
use crate::mcp::unread;
use crate::mcp::wire::{self, Id, Line, Lines, MAX_FROM_SERVER, RpcError};

/// Frames that wait for a slow reader.
const QUEUE: usize = 256;
/// Lines in a row that are no messages before a server is given up.
const MAX_NOISE: u32 = 64;
/// Bytes of stderr that are kept.
const KEPT: usize = 16 << 10;
/// Characters of one line that are shown.
const MAX_LINE: usize = 1000;
/// A server that closed its output may end by itself for this long, and again after a signal.
const GRACE: Duration = Duration::from_secs(2);
/// The same for one that we end. Both together fit into the two seconds that clients wait between their own signal and SIGKILL,
/// which would end it without either.
const LAST_GRACE: Duration = Duration::from_millis(900);

/// A server that was started, with its streams.
pub struct Launched {
    /// What it reads.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// What it answers.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// What it says beside.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// The program itself.
    pub program: Box<dyn Program>,
}

/// A program that runs. Dropping it ends it.
pub trait Program: Send {
    /// Waits for its end. A wait that is given up may be begun again.
    fn wait(&mut self) -> BoxFuture<'_, Ended>;

    /// Asks it to end.
    fn terminate(&mut self);

    /// Ends it.
    fn kill(&mut self);
}

/// How a program ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// In words.
    pub how: String,
    /// What its sandbox says of that, line by line.
    pub said: String,
}

impl std::fmt::Debug for Launched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Launched").finish_non_exhaustive()
    }
}

impl Launched {
    /// A child process, whose streams are pipes of ours; nothing confines it.
    ///
    /// # Errors
    /// It has no streams.
    pub fn of(mut child: Child) -> Result<Self, String> {
        let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = streams else { return Err("it has no streams".to_owned()) };
        Ok(Self {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            program: Box::new(child),
        })
    }
}

impl Program for Child {
    fn wait(&mut self) -> BoxFuture<'_, Ended> {
        Box::pin(async move {
            let how = match Child::wait(self).await {
                Ok(status) => {
                    use std::os::unix::process::ExitStatusExt as _;
                    how(status.code(), status.signal())
                }
                Err(error) => format!("its end could not be seen: {}", error.to_string().to_lowercase()),
            };
            Ended { how, said: String::new() }
        })
    }

    fn terminate(&mut self) {
        if let Some(pid) = self.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw)
            && rustix::process::kill_process(pid, rustix::process::Signal::TERM).is_err()
        {
            // It ended just now: `wait` says so.
        }
    }

    fn kill(&mut self) {
        if self.start_kill().is_err() {
            // It ended just now.
        }
    }
}

/// The last that a server said on its stderr.
#[derive(Clone, Debug, Default)]
pub struct StderrTail {
    kept: Arc<Mutex<VecDeque<u8>>>,
}

impl StderrTail {
    fn add(&self, bytes: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let excess = kept.len().saturating_sub(KEPT);
        kept.drain(..excess);
    }

    /// All that was kept, escaped.
    #[must_use]
    pub fn all(&self) -> String {
        let bytes: Vec<u8> = self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        text::escaped(&String::from_utf8_lossy(&bytes)).0
    }

    /// The words of somebody who said this and no more.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let words = Self::default();
        words.add(text.as_bytes());
        words
    }

    /// The lines that were kept and say something; of a refusal of ours the clauses that it is about, and what helps.
    #[must_use]
    pub fn last(&self) -> Option<String> {
        let all = self.all();
        let ours = |line: &&str| line.starts_with("error:") || line.starts_with("refused:");
        let Some(first) = all.lines().rfind(ours) else {
            // All of them: what happened seldom stands in the last.
            let kept = all.lines().filter(|line| !line.trim().is_empty());
            let shown: Vec<_> = kept.map(|line| text::shown(line.trim_end(), MAX_LINE)).collect();
            return (!shown.is_empty()).then(|| shown.join(" | "));
        };
        let after = all.lines().rev().take_while(|line| *line != first).collect::<Vec<_>>();
        let indented = after.into_iter().rev().take_while(|line| line.starts_with("  ")).map(str::trim);
        let told = indented.filter(|line| !line.starts_with("more:") && !line.starts_with("or:"));
        let lines: Vec<&str> = std::iter::once(first).chain(told).collect();
        Some(text::shown(&lines.join("; "), 1500))
    }
}

/// A queue of frames to one writer.
#[derive(Debug)]
pub struct Queue(pub mpsc::Sender<Json>);

impl Outlet for Queue {
    fn send<'a>(&'a self, message: Json, _: Option<&'a Id>) -> BoxFuture<'a, bool> {
        Box::pin(async move { self.0.send(message).await.is_ok() })
    }

    fn offer(&self, message: Json, _: Option<&Id>) -> bool {
        self.0.try_send(message).is_ok()
    }
}

/// The peer that speaks to a server which was started, and what it says on its stderr. The server lives until `stop`.
pub fn converse(
    launched: Launched,
    handler: Arc<dyn Handler>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> (Peer, StderrTail) {
    let Launched { stdin, stdout, stderr, program } = launched;
    let words = StderrTail::default();
    let (sender, receiver) = mpsc::channel(QUEUE);
    let peer = Peer::new(Arc::new(Queue(sender)), handler);
    let quit = stop.child_token();
    tasks.spawn(write(receiver, stdin, quit.clone()));
    let heard = tasks.spawn(read(stdout, peer.clone(), quit.clone()));
    let said = tasks.spawn(listen(stderr, words.clone()));
    let (ends, last) = (peer.clone(), words.clone());
    let ours = stop.clone();
    tasks.spawn(async move {
        let Ended { how, said: told } = wait(program, &quit, &ours).await;
        // What it said last is read before its end is told; where somebody else holds its streams, what was read has to do.
        let listening = said.abort_handle();
        let both = async {
            drop(heard.await);
            drop(said.await);
        };
        if !ours.is_cancelled() {
            drop(tokio::time::timeout(GRACE, both).await);
        }
        listening.abort();
        last.add(told.as_bytes());
        let why = match last.last() {
            Some(words) => format!("{how}: {words}"),
            None => how,
        };
        ends.close(&why);
        ends.works_no_more();
    });
    (peer, words)
}

/// Writes frames, as many at once as wait; ends with the queue, with `quit`, or when nobody reads.
pub async fn write(mut frames: mpsc::Receiver<Json>, mut to: impl AsyncWrite + Unpin, quit: CancellationToken) {
    let mut bytes = Vec::with_capacity(8 << 10);
    loop {
        let first = tokio::select! {
            frame = frames.recv() => frame,
            () = quit.cancelled() => None,
        };
        let Some(first) = first else { break };
        bytes.clear();
        append(&mut bytes, &first);
        while bytes.len() < 64 << 10
            && let Ok(next) = frames.try_recv()
        {
            append(&mut bytes, &next);
        }
        let written = async {
            to.write_all(&bytes).await?;
            to.flush().await
        };
        let done = tokio::select! {
            done = written => done.is_ok(),
            () = quit.cancelled() => false,
        };
        if !done {
            break;
        }
        if bytes.capacity() > 1 << 20 {
            bytes = Vec::with_capacity(8 << 10);
        }
    }
}

fn append(bytes: &mut Vec<u8>, frame: &Json) {
    let before = bytes.len();
    if serde_json::to_writer(&mut *bytes, frame).is_ok() {
        bytes.push(b'\n');
    } else {
        bytes.truncate(before);
    }
}

/// Reads frames of a server until it ends or cannot be understood.
async fn read(from: impl AsyncRead + Unpin, peer: Peer, quit: CancellationToken) {
    let mut lines = Lines::new(from, MAX_FROM_SERVER);
    let mut noise = 0_u32;
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = peer.closed() => break,
        };
        match line {
            Line::Full(line) => {
                // Servers do print to their stdout now and then: text that is no JSON is passed over, but not for ever.
                let understood = match serde_json::from_slice::<Json>(line) {
                    Ok(Json::Array(_)) => unread(line, "batches are not spoken", &peer),
                    Ok(value) => peer.accept_silently(value),
                    Err(error) => unread(line, &error.to_string(), &peer),
                };
                noise = if understood { 0 } else { noise.saturating_add(1) };
                if noise >= MAX_NOISE {
                    peer.close("it prints what is no message");
                    break;
                }
            }
            Line::TooLong => {
                peer.close(&format!("a message of it is longer than {MAX_FROM_SERVER} bytes"));
                break;
            }
            Line::End => break,
        }
    }
    quit.cancel();
}

/// No message, but answers may be in it: whoever waits for them is told so. Never a message.
fn unread(line: &[u8], why: &str, peer: &Peer) -> bool {
    for id in unread::answers(line) {
        let why = format!("it cannot be read: {}", text::shown(why, 200));
        peer.accept_silently(wire::response(&id, Err(RpcError::new(wire::INVALID_REQUEST, why))));
    }
    false
}

async fn listen(mut from: impl AsyncRead + Unpin, words: StderrTail) {
    let mut buffer = vec![0; 4096];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 {
            break;
        }
        words.add(buffer.get(..count).unwrap_or_default());
    }
}

/// Waits for the end, or brings it about: its input is closed (by the writer), then it is asked, then it is killed. `ours`: it
/// is ended by us, and not by itself.
async fn wait(mut program: Box<dyn Program>, quit: &CancellationToken, ours: &CancellationToken) -> Ended {
    let ended = tokio::select! {
        ended = program.wait() => Some(ended),
        () = quit.cancelled() => None,
    };
    if let Some(ended) = ended {
        return ended;
    }
    let grace = || if ours.is_cancelled() { LAST_GRACE } else { GRACE };
    if let Ok(ended) = tokio::time::timeout(grace(), program.wait()).await {
        return ended;
    }
    program.terminate();
    if let Ok(ended) = tokio::time::timeout(grace(), program.wait()).await {
        return ended;
    }
    program.kill();
    drop(tokio::time::timeout(GRACE, program.wait()).await);
    Ended { how: "it did not end and was killed".to_owned(), said: String::new() }
}

/// An exit code of `fumehood run`, or a signal, in words.
#[must_use]
pub fn how(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (Some(124), _) => "a limit ended it".to_owned(),
        (Some(126), _) => "its sandbox was refused, or the program cannot be executed".to_owned(),
        (Some(127), _) => "its program is not there inside the sandbox".to_owned(),
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => "it ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_its_clauses_and_what_helps_and_other_last_words_are_the_last_lines() {
        let of = |text: &str| StderrTail::of(text).last();
        let refused = "starting\nrefused: tier `container` cannot hold 1 of 22 clauses on this host; nothing ran\n  \
                       limits.disk  `limits.disk` = 1G   (preset node)\n    why:  it has no quota\n    fix:  use /tmp\n    \
                       or:   --prefer limits.disk\n    more: fumehood explain x\n";
        assert_eq!(
            of(refused).unwrap(),
            "refused: tier `container` cannot hold 1 of 22 clauses on this host; nothing ran; \
             limits.disk  `limits.disk` = 1G   (preset node); why:  it has no quota; fix:  use /tmp"
        );
        assert_eq!(of("one\ntwo\n\n").unwrap(), "one | two");
        assert_eq!(of("1\n2\n3\n4\n5\n6\n7\n8\u{1b}\n").unwrap(), "1 | 2 | 3 | 4 | 5 | 6 | 7 | 8\\u{1b}");
        let many: Vec<String> = (0..9000).map(|line| format!("line {line}")).collect();
        let all = of(&many.join("\n")).unwrap();
        assert!(all.ends_with("line 8998 | line 8999") && all.contains(" | line 8000 | "), "what was kept is shown");
        assert_eq!(of("error: x\nlater\n").unwrap(), "error: x");
        assert_eq!(of(""), None);
    }
}
