//! Scenes whose judge is what the kernel says of the probe, read from the host while it runs.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::fs::{Mode, OFlags};

use super::{Layout, Scene, SceneVerdict};
use crate::confined::{Moment, Observed, ProbeCall};
use crate::probe::Try;
use crate::survey::{Task, field};

/// What is read of one process.
#[derive(Clone, Debug, Default)]
struct Snapshot {
    status: String,
    limits: String,
    mountinfo: String,
    cgroup: String,
    descriptors: Option<Vec<String>>,
    namespaces: Vec<(String, String)>,
    oom: String,
    /// Mount points that are folders: in a file nothing can be made.
    folders: Vec<String>,
}

impl Snapshot {
    fn of(task: &Task) -> Self {
        let link = |name: &str| std::fs::read_link(task.path(name)).map(|l| l.to_string_lossy().into_owned());
        let descriptors = std::fs::read_dir(task.path("fd"))
            .map(|folder| folder.flatten().filter_map(|e| e.file_name().into_string().ok()).collect());
        let kinds = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
        let mountinfo = task.read("mountinfo").unwrap_or_default();
        let is_folder = |place: &&str| std::fs::metadata(task.path(&format!("root{place}"))).is_ok_and(|m| m.is_dir());
        let places = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
        let folders = places.filter(is_folder).map(str::to_owned).collect();
        Self {
            folders,
            status: task.status.clone(),
            limits: task.read("limits").unwrap_or_default(),
            mountinfo,
            cgroup: task.read("cgroup").unwrap_or_default(),
            descriptors: descriptors.ok(),
            namespaces: kinds
                .iter()
                .filter_map(|kind| Some(((*kind).to_owned(), link(&format!("ns/{kind}")).ok()?)))
                .collect(),
            oom: task.read("oom_score_adj").unwrap_or_default().trim().to_owned(),
        }
    }

    fn field(&self, name: &str) -> &str {
        field(&self.status, name).unwrap_or_default()
    }

    /// The hard limit of this name in `limits`.
    fn hard(&self, name: &str) -> Option<u64> {
        let line = self.limits.lines().find_map(|line| line.strip_prefix(name))?;
        let word = line.split_whitespace().nth(1)?;
        if word == "unlimited" { Some(u64::MAX) } else { word.parse().ok() }
    }
}

struct Posture {
    check: String,
    held: Option<Rc<OwnedFd>>,
    seen: Option<Snapshot>,
}

/// `detail`: what is checked.
pub(super) fn make(_: &mut Layout<'_>, detail: &str) -> io::Result<Box<dyn Scene>> {
    let null = || rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let held = if detail == "descriptors" { Some(Rc::new(null()?)) } else { None };
    Ok(Box::new(Posture { check: detail.to_owned(), held, seen: None }))
}

impl Scene for Posture {
    fn arrange(&mut self, call: &mut ProbeCall) {
        call.fds.extend(self.held.iter().map(|fd| (Rc::clone(fd), 9)));
        call.groups = self.check == "groups";
    }

    fn watch(&mut self, moment: &Moment<'_>) {
        if let Some(task) = moment.tasks.first() {
            let seen = Snapshot::of(task);
            // Of a process that is just ending half is gone: an earlier look told more.
            if self.seen.is_none() || !seen.limits.is_empty() {
                self.seen = Some(seen);
            }
        }
    }

    fn judge(&mut self, _observed: &Observed, _tries: &[Try]) -> SceneVerdict {
        let Some(seen) = &self.seen else {
            return SceneVerdict::Unclear("the probe was not seen from outside".to_owned());
        };
        judged(&self.check, seen)
    }
}

/// What a check needs and cannot be read proves nothing.
fn unreadable(check: &str, seen: &Snapshot) -> bool {
    match check {
        "core" | "pending" | "real-time" | "nice" | "locked" | "files" | "file-size" => seen.limits.is_empty(),
        "descriptors" => seen.descriptors.is_none(),
        "set-id-mounts" | "device-mounts" => seen.mountinfo.is_empty() || seen.folders.is_empty(),
        "namespaces" => seen.namespaces.len() < 7,
        "oom" => seen.oom.is_empty(),
        _ => seen.status.is_empty(),
    }
}

fn judged(check: &str, seen: &Snapshot) -> SceneVerdict {
    if check == "swap" {
        return swap(seen);
    }
    if unreadable(check, seen) {
        return SceneVerdict::Unclear("the kernel does not let this caller read it from outside".to_owned());
    }
    let any_bit = |names: &[&str]| -> Vec<String> {
        names
            .iter()
            .filter(|n| seen.field(n).bytes().any(|b| b != b'0'))
            .map(|n| format!("{n} {}", seen.field(n)))
            .collect()
    };
    let wrong: Vec<String> = match check {
        "capabilities" => any_bit(&["CapEff", "CapPrm", "CapInh", "CapAmb"]),
        // Who has no privilege may not clear the set; then nothing that a program executes may fill from it.
        "bounding" if seen.field("NoNewPrivs") == "1" && any_bit(&["CapPrm", "CapAmb"]).is_empty() => Vec::new(),
        "bounding" => any_bit(&["CapBnd"]),
        "root" => {
            let ids = ["Uid", "Gid"].iter().flat_map(|name| seen.field(name).split_whitespace());
            if ids.clone().any(|id| id == "0") { vec![format!("uid {}", seen.field("Uid"))] } else { Vec::new() }
        }
        "groups" => {
            let own = seen.field("Gid").split_whitespace().next().unwrap_or_default().to_owned();
            let more: Vec<_> = seen.field("Groups").split_whitespace().filter(|group| *group != own).collect();
            if more.is_empty() { Vec::new() } else { vec![format!("groups {}", more.join(" "))] }
        }
        "no-new-privs" => unless(seen.field("NoNewPrivs") == "1", "NoNewPrivs", seen.field("NoNewPrivs")),
        "seccomp" => unless(seen.field("Seccomp") == "2", "Seccomp", seen.field("Seccomp")),
        "descriptors" => {
            let more: Vec<_> =
                seen.descriptors.iter().flatten().filter(|fd| !["0", "1", "2"].contains(&fd.as_str())).collect();
            more.iter().map(|fd| format!("descriptor {fd}")).collect()
        }
        "core" => over(seen, "Max core file size", 1),
        "pending" => over(seen, "Max pending signals", 1024),
        "real-time" => over(seen, "Max realtime priority", 0),
        "nice" => over(seen, "Max nice priority", 19),
        "locked" => over(seen, "Max locked memory", 1 << 20),
        "files" => over(seen, "Max open files", 64),
        "file-size" => over(seen, "Max file size", 1 << 20),
        "oom" => {
            if seen.oom.starts_with('-') {
                vec![format!("oom_score_adj {}", seen.oom)]
            } else {
                Vec::new()
            }
        }
        "set-id-mounts" => writable_mounts_without(seen, "nosuid"),
        "device-mounts" => writable_mounts_without(seen, "nodev"),
        "namespaces" => same_namespaces(seen),
        _ => return SceneVerdict::Unclear("no such check".to_owned()),
    };
    if wrong.is_empty() {
        SceneVerdict::Stopped(format!("read from outside: {}", shown(check, seen)))
    } else {
        SceneVerdict::Possible(wrong.into_iter().take(3).collect::<Vec<_>>().join(", "))
    }
}

fn shown(check: &str, seen: &Snapshot) -> String {
    match check {
        "capabilities" => format!("CapEff {}", seen.field("CapEff")),
        "bounding" => format!("CapBnd {}, NoNewPrivs {}", seen.field("CapBnd"), seen.field("NoNewPrivs")),
        "root" => format!("uid {}", seen.field("Uid").split_whitespace().next().unwrap_or_default()),
        "no-new-privs" => "NoNewPrivs 1".to_owned(),
        "seccomp" => format!("Seccomp 2, {} filter(s)", seen.field("Seccomp_filters")),
        "namespaces" => format!("{} namespaces of its own", seen.namespaces.len()),
        _ => format!("{check} as promised, cgroup {}", seen.cgroup.lines().last().unwrap_or_default()),
    }
}

/// Whether its group may use the disk as memory; where the host has no swap that cannot be told.
fn swap(seen: &Snapshot) -> SceneVerdict {
    let areas = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    if areas.lines().count() < 2 {
        return SceneVerdict::Unclear("this host has no swap".to_owned());
    }
    let number = |path: String| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let group = |line: &str| line.splitn(3, ':').nth(2).unwrap_or("/").to_owned();
    for line in seen.cgroup.lines() {
        if line.split(':').nth(1).is_some_and(|names| names.split(',').any(|name| name == "memory")) {
            let folder = format!("/sys/fs/cgroup/memory{}", group(line));
            let limits = [format!("{folder}/memory.limit_in_bytes"), format!("{folder}/memory.memsw.limit_in_bytes")];
            let [memory, both] = limits.map(number);
            let closed = number(format!("{folder}/memory.swappiness")) == Some(0) || (both.is_some() && both == memory);
            let said = format!("swap of its group: {}", if closed { "none" } else { "as the host's" });
            return if closed { SceneVerdict::Stopped(said) } else { SceneVerdict::Possible(said) };
        }
        if line.starts_with("0::") && number(format!("/sys/fs/cgroup{}/memory.swap.max", group(line))) == Some(0) {
            return SceneVerdict::Stopped("memory.swap.max of its group is 0".to_owned());
        }
    }
    SceneVerdict::Possible("no group bounds its swap".to_owned())
}

fn unless(good: bool, name: &str, value: &str) -> Vec<String> {
    if good { Vec::new() } else { vec![format!("{name} {value}")] }
}

fn over(seen: &Snapshot, name: &str, most: u64) -> Vec<String> {
    match seen.hard(name) {
        Some(value) if value <= most => Vec::new(),
        Some(u64::MAX) => vec![format!("{name} unlimited")],
        Some(value) => vec![format!("{name} {value}")],
        None => vec![format!("{name} unknown")],
    }
}

/// Terminals and queues: device nodes are what the one is for, and the other holds none.
const DEVICES: [&str; 2] = ["/dev/pts", "/dev/mqueue"];

/// Mounts that may be written and lack an option.
fn writable_mounts_without(seen: &Snapshot, option: &str) -> Vec<String> {
    let lines = seen.mountinfo.lines();
    lines
        .filter_map(|line| {
            let fields: Vec<_> = line.split(' ').collect();
            let (place, options) = (fields.get(4)?, fields.get(5)?);
            let options: Vec<_> = options.split(',').collect();
            (options.contains(&"rw")
                && !DEVICES.contains(place)
                && seen.folders.iter().any(|folder| folder == place)
                && !options.contains(&option))
            .then(|| format!("{place} without {option}"))
        })
        .collect()
}

/// Namespaces that are those of this process.
fn same_namespaces(seen: &Snapshot) -> Vec<String> {
    let same = |kind: &str, link: &str| {
        std::fs::read_link(format!("/proc/self/ns/{kind}")).is_ok_and(|own| own.to_string_lossy() == link)
    };
    seen.namespaces
        .iter()
        .filter(|(kind, link)| same(kind, link))
        .map(|(kind, _)| format!("the host's {kind}"))
        .collect()
}
