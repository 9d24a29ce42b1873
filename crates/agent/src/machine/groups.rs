//! Two control groups of the machine's own kernel, so that everything that is the caller's can stand still: the agent with its
//! programs, and the agent by itself.
//!
//! Promises: who is in a group was put there before it was the caller's, and whatever it starts is in it too; nothing inside can
//! leave, since nothing of the hierarchy is mounted where programs are. Must not: decide when.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::init::{Fault, a_while, at};
use super::root;

/// Where the hierarchy is, in the first tree, which is covered when the agent starts.
const PLACE: &str = "/groups";
/// How long what is inside may take to stand still.
const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of one look at a file of a group.
const CHUNK: usize = 4096;
/// Most looks at who is in a group.
const LOOKS: usize = 100;

/// The groups.
pub(super) struct Groups {
    /// The agent and its programs.
    all: OwnedFd,
    /// The agent, while its programs stand still.
    alone: OwnedFd,
}

impl Groups {
    /// Makes them; nobody is in them.
    pub(super) fn make() -> Result<Self, Fault> {
        root::folder(PLACE, 0o700)?;
        root::mounted("cgroup2", PLACE, MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, "")?;
        let group = |name: &str| {
            let path = format!("{PLACE}/{name}");
            root::folder(&path, 0o700)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(&path, flags, Mode::empty()).map_err(at(path))
        };
        Ok(Self { all: group("all")?, alone: group("alone")? })
    }

    /// Puts this process among those that are to stand still.
    pub(super) fn enter(&self) -> Result<(), Fault> {
        write(&self.all, "cgroup.procs", "0").map_err(at("the agent's group"))
    }

    /// Stops everything inside, and waits until it stands still; otherwise it goes on.
    pub(super) fn stop(&self) -> Result<(), Fault> {
        let stopped = self.stopped().map_err(at("stopping what is inside"));
        if stopped.is_err() {
            self.go_on()?;
        }
        stopped
    }

    fn stopped(&self) -> Result<(), Errno> {
        write(&self.all, "cgroup.freeze", "1")?;
        let began = Instant::now();
        while !read(&self.all, "cgroup.events")?.lines().any(|line| line == "frozen 1") {
            if began.elapsed() > LIMIT {
                return Err(Errno::TIMEDOUT);
            }
            a_while();
        }
        Ok(())
    }

    /// Lets the agent go on, and none of its programs.
    pub(super) fn agent_alone(&self, agent: i32) -> Result<(), Fault> {
        write(&self.alone, "cgroup.procs", &agent.to_string()).map_err(at("the agent's own group"))
    }

    /// Lets everything go on, in one group again.
    pub(super) fn go_on(&self) -> Result<(), Fault> {
        self.gather().map_err(at("the agent's group"))?;
        write(&self.all, "cgroup.freeze", "0").map_err(at("letting what is inside go on"))
    }

    fn gather(&self) -> Result<(), Errno> {
        for _ in 0..LOOKS {
            let there = read(&self.alone, "cgroup.procs")?;
            if there.is_empty() {
                return Ok(());
            }
            for pid in there.lines() {
                match write(&self.all, "cgroup.procs", pid) {
                    // It has ended.
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Err(Errno::BUSY)
    }
}

fn write(group: &OwnedFd, file: &str, value: &str) -> Result<(), Errno> {
    let file = rustix::fs::openat(group, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, value.as_bytes()).map(drop)
}

/// The beginning of a file of a group.
fn read(group: &OwnedFd, file: &str) -> Result<String, Errno> {
    let file = rustix::fs::openat(group, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = vec![0; CHUNK];
    let count = rustix::io::read(&file, &mut bytes)?;
    bytes.truncate(count);
    let whole =
        |text: String| text.rfind('\n').map_or(String::new(), |end| text.get(..end).unwrap_or_default().to_owned());
    String::from_utf8(bytes).map(whole).map_err(|_odd| Errno::ILSEQ)
}
