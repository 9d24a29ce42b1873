//! What our agent reads in the machine before anything else runs there.

use std::collections::BTreeMap;
use std::time::Duration;

use agent::frame::VERSION;
use agent::words::{Hello, Request};
use sys::proc::{Mount, Status};

use super::link::Link;

/// How long an answer may take on a busy host.
const ANSWER: Duration = Duration::from_secs(30);
/// How long the machine may take to make its tree and to start its agent.
const START: Duration = Duration::from_secs(120);

/// Resources by number, and their names in `/proc/self/limits`.
const LIMITS: [(u32, &str); 10] = [
    (0, "Max cpu time"),
    (1, "Max file size"),
    (4, "Max core file size"),
    (6, "Max processes"),
    (7, "Max open files"),
    (8, "Max locked memory"),
    (11, "Max pending signals"),
    (12, "Max msgqueue size"),
    (13, "Max nice priority"),
    (14, "Max realtime priority"),
];

/// All of it.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) hello: Hello,
    pub(super) status: Status,
    pub(super) mounts: Vec<Mount>,
    /// `/proc/self/limits`.
    limits: String,
    /// Network devices by name.
    pub(super) devices: Vec<String>,
    pub(super) hostname: String,
    pub(super) release: String,
    /// Most user namespaces.
    pub(super) namespaces: String,
    /// Bytes of memory.
    pub(super) memory: u64,
    /// What is read where the certificates of the run are to be.
    pub(super) certificates: BTreeMap<String, Vec<u8>>,
}

impl Inside {
    /// Asks for all of it; the agent may be starting still.
    pub(super) fn read(link: &mut Link, certificates: &[String]) -> Result<Self, String> {
        let (hello, _) = link.ask::<Hello>(&Request::Hello { version: VERSION }, START)?;
        let mut bytes = |path: &str| -> Result<Vec<u8>, String> {
            let request = Request::Read { path: path.to_owned(), offset: 0, length: None };
            link.ask::<()>(&request, ANSWER).map(|((), data)| data).map_err(|why| format!("{path}: {why}"))
        };
        let certificates =
            certificates.iter().map(|path| Ok((path.clone(), bytes(path)?))).collect::<Result<_, String>>()?;
        let mut text = |path: &str| String::from_utf8(bytes(path)?).map_err(|_bytes| format!("{path} is no text"));
        let status = text("/proc/self/status")?;
        let mounts = text("/proc/self/mountinfo")?;
        let memory = text("/proc/meminfo")?;
        Ok(Self {
            hello,
            status: sys::proc::parse_status(&status).ok_or("/proc/self/status cannot be read")?,
            mounts: sys::proc::parse_mountinfo(&mounts).ok_or("/proc/self/mountinfo cannot be read")?,
            limits: text("/proc/self/limits")?,
            devices: names(&text("/proc/net/dev")?),
            hostname: text("/proc/sys/kernel/hostname")?.trim_end().to_owned(),
            release: text("/proc/sys/kernel/osrelease")?.trim_end().to_owned(),
            namespaces: text("/proc/sys/user/max_user_namespaces")?.trim_end().to_owned(),
            memory: sys::proc::parse_meminfo(&memory, "MemTotal").ok_or("/proc/meminfo cannot be read")?,
            certificates,
        })
    }

    /// The uppermost mount at a path.
    pub(super) fn mount(&self, at: &str) -> Result<&Mount, String> {
        self.mounts.iter().rev().find(|mount| mount.point == at).ok_or_else(|| format!("nothing is mounted at {at}"))
    }

    /// The hard limit of a resource; `None` = it has none, or is not known.
    pub(super) fn limit(&self, resource: u32) -> Option<u64> {
        let (_, name) = LIMITS.iter().find(|(number, _)| *number == resource)?;
        let line = self.limits.lines().find_map(|line| line.strip_prefix(*name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }
}

/// The names before each colon.
fn names(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        let memory = "MemTotal:         242788 kB\nMemFree: 1 kB\n";
        assert_eq!(sys::proc::parse_meminfo(memory, "MemTotal"), Some(242_788 * 1024));
        let devices = "Inter-|   Receive\n face |bytes\n    lo:       0       0\n  eth0: 1 2\n";
        assert_eq!(names(devices), ["lo", "eth0"]);
    }
}
