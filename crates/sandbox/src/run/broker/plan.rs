//! The plan of the broker itself: the process tier, as strict as it goes, and the network of the host.

use std::path::Path;

use backends::{Backend, Capabilities};
use policy::control::{CgroupLimit, Control, Controls, Resource, Watch};
use policy::value::{Policy, Tier};
use policy::{Caller, Candidate, ClauseId, Format, Layers, Plan, Support};
use serde_json::json;

use super::failed;
use crate::error::Error;

/// Where the machine says which resolvers it asks.
const RESOLVERS: &str = "/etc/resolv.conf";
/// Two for each connection, and the sandbox's sockets.
const OPEN_FILES: u32 = 4096;
/// A thousand quiet connections need a few MiB, those that are opened some hundred KiB each while much goes over them.
const MAX_MEMORY: &str = "256M";
/// It is one process of one thread.
const MAX_PROCESSES: u32 = 4;
/// Thousandths of a core that it has in any case: with less it could not answer in the time that clients give it.
const LEAST_CPUS: u32 = 250;

/// Most bytes of memory that it may lock: values of secrets, in whole pages.
const MAX_LOCKED: u64 = 1 << 20;

/// Plans it, for a run with secrets or without. No clause of a document gives the host's network: it is this plan's alone. `run`: the
/// policy whose network it is, which says how much processor time there is: a program makes it work.
pub(super) fn plan(program: &Path, (run, with_secrets): (&Policy, bool), host: &Capabilities) -> Result<Plan, Error> {
    let read: Vec<&str> = Some(RESOLVERS).filter(|path| Path::new(path).exists()).into_iter().collect();
    let mut document = json!({
        "version": 1,
        "name": "broker",
        "tier": "process",
        "threat": "mistakes",
        "fs": { "read": read, "exec": [program.to_string_lossy()], "noexec": true, "protect": false },
        "limits": {
            "wall": "none", "memory": MAX_MEMORY, "pids": MAX_PROCESSES, "disk": "none", "files": "none", "output": "none",
            "file_size": "none", "open_files": OPEN_FILES,
        },
        // It resolves no path, and so asks nobody where links lead.
        "syscalls": { "profile": "default", "deny": ["readlink", "readlinkat"] },
    });
    if let Some(cpus) = run.limits.cpus.filter(|_| host.controller("cpu").is_some())
        && let Some(limits) = document.get_mut("limits").and_then(serde_json::Value::as_object_mut)
    {
        limits.insert("cpus".to_owned(), json!(f64::from(cpus.0.max(LEAST_CPUS)) / 1000.0));
    }
    let root = Path::new("/");
    let mut layers = Layers::new(Caller { dir: root.to_path_buf(), home: None, profiles: vec!["default".to_owned()] });
    let none = |_: &Path| Err("no other document belongs here".to_owned());
    layers.document("broker", &document.to_string(), Format::Json, root, &none);
    let loaded = layers.finish().map_err(|mistakes| failed(&mistakes.to_string()))?;
    let backend = process()?;
    let policy = loaded.policy_on(Tier::Process).into_owned();
    let answers = |clause: ClauseId| match own(clause, &policy, host) {
        Some(answer) => answer,
        None if with_secrets => locking(backend.support(clause, &policy, host)),
        None => backend.support(clause, &policy, host),
    };
    let on = Candidate { tier: Tier::Process, backend: backend.name(), answers: &answers };
    policy::make_plan(&loaded, on).map_err(Error::Unheld)
}

/// The same, but for how much memory it may lock, which is nothing in a run of somebody's program.
fn locking(answer: Support) -> Support {
    let Support::Held(controls) = &answer else { return answer };
    let (_, ours) = sys::rlimit::get(Resource::LockedMemory.number()).unwrap_or_default();
    let value = ours.map_or(MAX_LOCKED, |ours| ours.min(MAX_LOCKED));
    let more = |control: &Control| {
        let mut control = control.clone();
        if let Control::Rlimit { resource: Resource::LockedMemory, value: none } = &mut control {
            *none = value;
        }
        control
    };
    let mut all = controls.iter().map(more).collect::<Vec<_>>().into_iter();
    match all.next() {
        Some(first) => Support::Held(Controls::new(first, all)),
        None => answer,
    }
}

fn process() -> Result<&'static dyn Backend, Error> {
    let found = backends::ALL.iter().find(|backend| backend.tier() == Tier::Process);
    found.copied().ok_or_else(|| failed("there is no process tier here"))
}

/// What is held otherwise than in a run of somebody's program.
fn own(clause: ClauseId, policy: &Policy, host: &Capabilities) -> Option<Support> {
    // Its keeper looks at memory and processes; locks it can take on no file.
    if clause == ClauseId::LimitsMemory {
        let limit = policy.limits.memory?;
        let by_look = Control::Watch(Watch::Memory(limit));
        let control = host
            .controller("memory")
            .map_or(by_look, |version| Control::Cgroup { version, limit: CgroupLimit::Memory(limit.0) });
        return Some(Support::Held(control.into()));
    }
    if clause == ClauseId::NetMode {
        return Some(Support::Held(Control::HostNetwork.into()));
    }
    // Its program is ours and handed over as a descriptor, wherever it lies.
    if clause == ClauseId::FsExec {
        let (abi, files) = (host.landlock, policy.fs.exec.clone()?);
        let more = [Control::NoexecRules(abi)].into_iter();
        return Some(Support::Held(Controls::new(Control::Executables { abi, files }, more)));
    }
    // Its folder is empty and stays so: no byte can be written to any file.
    if clause == ClauseId::FsTmp {
        let none = Control::Rlimit { resource: Resource::FileSize, value: 0 };
        return Some(Support::Held(none.into()));
    }
    // It is part of the run, whose record this is.
    let of_record = [ClauseId::AuditPath, ClauseId::AuditRedact, ClauseId::AuditContent, ClauseId::AuditSync];
    of_record.contains(&clause).then_some(Support::NotAsked)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a program makes it do is held as what the program does.
    #[test]
    fn it_has_as_much_processor_time_as_its_run_and_a_quarter_of_a_core_at_least() {
        let host = Capabilities::probe();
        if host.controller("cpu").is_none() {
            return;
        }
        for (cpus, quota) in [("1.5", Some(150_000)), ("0.05", Some(25_000)), ("\"none\"", None)] {
            let caller = Caller { dir: "/".into(), home: None, profiles: vec!["default".to_owned()] };
            let mut layers = Layers::new(caller);
            layers.set(&format!("limits.cpus={cpus}"));
            let run = layers.finish().unwrap().policy;
            let own = plan(Path::new("/somewhere/else/fumehood"), (&run, true), &host).unwrap();
            let held = own.controls().find_map(|control| {
                let Control::Cgroup { limit: CgroupLimit::Cpu { quota_us, .. }, .. } = control else { return None };
                Some(*quota_us)
            });
            assert_eq!(held, quota, "{cpus}");
        }
    }
}
