//! A small supervisor: starts the guest, speaks frames with it, collects what the payload writes.

use std::fs::File;
use std::io::{IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use guest::config::Config;
use guest::frames::{Address, Exited, FromGuest, Posture, ToGuest, first};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use sys::pidfd;
use sys::spawn::{Child, IdMaps, IdRange, Namespaces, Spawn, write_id_maps};

pub(crate) const ALL: Namespaces = Namespaces::USER
    .and(Namespaces::MOUNT)
    .and(Namespaces::PID)
    .and(Namespaces::NET)
    .and(Namespaces::IPC)
    .and(Namespaces::UTS);

/// The request of whatever asks about the first program.
pub(crate) const REQUEST: u32 = 7;

/// Who the supervisor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Root, who maps an unused id after the start.
    Root,
    /// Uid 1000, who maps itself.
    Rootless,
}

impl Who {
    pub(crate) const BOTH: [Self; 2] = [Self::Root, Self::Rootless];

    /// The id that the payload has outside.
    pub(crate) fn outside(self) -> u32 {
        match self {
            Self::Root => 54321,
            Self::Rootless => 1000,
        }
    }

    /// Runs `work` on a thread of its own with this identity.
    pub(crate) fn be<T: Send>(self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                if self == Self::Rootless {
                    become_user();
                }
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// A change of ids takes the files of `/proc/self` from the whole process until it is dumpable again: no start of another
/// thread, whose child writes its own id maps there, may fall between.
static IDS: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn ids_alone() -> std::sync::MutexGuard<'static, ()> {
    IDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Changes this thread alone: the C library would change all of them.
fn become_user() {
    let _alone = ids_alone();
    use rustix::process::{Gid, Uid};
    let (uid, gid) = (Uid::from_raw(1000), Gid::from_raw(1000));
    rustix::thread::set_thread_groups(&[]).unwrap();
    rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
    rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
    // The change of ids gave our files in /proc, the id maps among them, to root.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable).unwrap();
}

/// Both ends of the payload's standard streams and of the control socket.
pub(crate) struct Sandbox {
    pub(crate) child: Child,
    pub(crate) control: Option<UnixStream>,
    pub(crate) stdin: Option<File>,
    stdout: File,
    stderr: File,
    received: Vec<u8>,
    /// Descriptors that came along, in order.
    pub(crate) fds: Vec<OwnedFd>,
}

/// All that a whole run told.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) posture: Posture,
    /// The guest from outside, after its posture.
    pub(crate) status: sys::proc::Status,
    pub(crate) exited: Exited,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

impl Sandbox {
    pub(crate) fn start(who: Who, config: &Config) -> Self {
        Self::start_with(who, config, ALL, &[])
    }

    /// Starts the guest in these namespaces, with extra descriptors from 5 on.
    pub(crate) fn start_with(who: Who, config: &Config, namespaces: Namespaces, extra: &[OwnedFd]) -> Self {
        let program = sys::memfd::program(c"fumehood-guest", guest::ELF).unwrap();
        Self::start_program(who, config, namespaces, extra, &program)
    }

    fn start_program(who: Who, config: &Config, namespaces: Namespaces, extra: &[OwnedFd], program: &OwnedFd) -> Self {
        let bytes = sys::memfd::data(c"config", &config.encode()).unwrap();
        let (control, theirs) = UnixStream::pair().unwrap();
        control.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let ((stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr)) = (pipe(), pipe(), pipe());
        let mut fds = vec![(stdin.as_fd(), 0), (stdout.as_fd(), 1), (stderr.as_fd(), 2)];
        fds.push((theirs.as_fd(), 3));
        fds.push((bytes.as_fd(), 4));
        fds.extend((5..).zip(extra).map(|(number, fd)| (fd.as_fd(), number)));
        let mapped = namespaces.has(Namespaces::USER);
        let spawn = Spawn {
            namespaces,
            cgroup: None,
            tasks: &[],
            cgroup_namespace: false,
            mounts: &[],
            id_maps: match who {
                Who::Rootless if mapped => {
                    IdMaps::BySelf { outside_uid: 1000, outside_gid: 1000, inside_uid: 1000, inside_gid: 1000 }
                }
                Who::Root | Who::Rootless => IdMaps::Later,
            },
            time_offsets: None,
            ambient: if mapped { 0x1ff_ffff_ffff } else { 0 },
            fds: &fds,
            program: program.as_fd(),
            argv: &[c"fumehood-guest"],
        };
        let alone = ids_alone();
        let child = spawn.start().unwrap();
        drop(alone);
        if config.wait_mapped {
            let map = [IdRange { inside: 1000, outside: who.outside(), count: 1 }];
            write_id_maps(child.pid, &map, &map, false).unwrap();
        }
        let mut sandbox = Self {
            child,
            control: Some(control),
            stdin: Some(File::from(to_stdin)),
            stdout: File::from(from_stdout),
            stderr: File::from(from_stderr),
            received: Vec::new(),
            fds: Vec::new(),
        };
        if config.wait_mapped {
            sandbox.say(ToGuest::Mapped);
        }
        sandbox
    }

    /// About the first program, or none.
    pub(crate) fn say(&mut self, frame: ToGuest<'_>) {
        self.say_at(Address { channel: 0, request: if frame.asks() { REQUEST } else { 0 } }, frame);
    }

    pub(crate) fn say_at(&mut self, at: Address, frame: ToGuest<'_>) {
        let mut bytes = [0; 64];
        let len = frame.encode(at, &mut bytes).unwrap();
        self.control.as_mut().unwrap().write_all(&bytes[..len]).unwrap();
    }

    /// The next frame, which must be about the first program or none; `None` = the guest closed its end.
    pub(crate) fn hear(&mut self) -> Option<FromGuest> {
        let (at, frame) = self.hear_at()?;
        assert!(at.channel == 0 && [0, REQUEST].contains(&at.request), "{at:?} {frame:?}");
        Some(frame)
    }

    /// The next frame and its address.
    pub(crate) fn hear_at(&mut self) -> Option<(Address, FromGuest)> {
        loop {
            if let Some((raw, len)) = first(&self.received).unwrap() {
                let (at, frame) = (raw.at, FromGuest::decode(&raw).unwrap());
                self.received.drain(..len);
                if frame == FromGuest::Settled {
                    continue;
                }
                return Some((at, frame));
            }
            let mut bytes = [0; 4096];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let control = self.control.as_ref().unwrap();
            let flags = RecvFlags::CMSG_CLOEXEC;
            let got = rustix::net::recvmsg(control, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)
                .unwrap_or_else(|error| panic!("no frame within a minute: {error}"));
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    self.fds.extend(fds);
                }
            }
            if got.bytes == 0 {
                return None;
            }
            self.received.extend_from_slice(&bytes[..got.bytes]);
        }
    }

    /// Everything up to the posture; frames before it are skipped.
    pub(crate) fn posture(&mut self) -> Posture {
        loop {
            match self.hear() {
                Some(FromGuest::Posture(posture)) => return posture,
                Some(FromGuest::Mounted(_) | FromGuest::Terminal) => {}
                other => panic!("instead of a posture: {other:?}"),
            }
        }
    }

    /// Says go; the payload's pid inside.
    pub(crate) fn go(&mut self) -> i32 {
        self.say(ToGuest::Go);
        match self.hear() {
            Some(FromGuest::Started { pid }) => pid,
            other => panic!("instead of a start: {other:?}"),
        }
    }

    /// The end, which comes after everything was reaped.
    pub(crate) fn exited(&mut self) -> Exited {
        loop {
            match self.hear() {
                Some(FromGuest::Exited(exited)) => {
                    assert_eq!(pidfd::wait(&self.child.pidfd).unwrap().0, pidfd::End::Exited(0));
                    return exited;
                }
                Some(FromGuest::Stopped(_) | FromGuest::Continued | FromGuest::Pong) => {}
                other => panic!("instead of the end: {other:?}"),
            }
        }
    }

    /// Reads one line of the payload's standard output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let mut byte = [0];
        while self.stdout.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(char::from(byte[0]));
        }
        line
    }

    /// All that is left of the payload's output, to its end.
    pub(crate) fn output(&mut self) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        self.stdout.read_to_end(&mut out).unwrap();
        self.stderr.read_to_end(&mut err).unwrap();
        (String::from_utf8_lossy(&out).into_owned(), String::from_utf8_lossy(&err).into_owned())
    }

    /// A whole run without input.
    pub(crate) fn run(who: Who, config: &Config) -> RunResult {
        Self::start(who, config).finish()
    }

    /// From the start to the end, without input.
    pub(crate) fn finish(mut self) -> RunResult {
        self.stdin = None;
        let posture = self.posture();
        let status = sys::proc::Process::open(self.child.pid).and_then(|guest| guest.status()).unwrap();
        self.go();
        let (stdout, stderr) = self.output();
        let exited = self.exited();
        RunResult { posture, status, exited, stdout, stderr }
    }

    /// Whether a process that was started inside is still there, seen from outside.
    pub(crate) fn alive(pid: i32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // A failed test must not leave its guest behind.
        let _ended = pidfd::send_signal(&self.child.pidfd, 9);
    }
}
