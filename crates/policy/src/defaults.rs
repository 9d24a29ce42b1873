//! The policy that stands when nothing is said. It equals the preset `strict`; a test holds the two together.

use std::collections::{BTreeMap, BTreeSet};

use crate::units::{Bytes, Millis};
use crate::value::{
    Audit, Content, EnforcerDemand, Env, Fs, Limits, Net, Over, Policy, Process, Root, Sync, Syscalls, Threat, Tier,
    TierChoice, Workspace, WorkspaceMode,
};

const MIB: u64 = 1 << 20;

impl Policy {
    /// What stands when nothing is said: the values of the preset `strict`, without reading it.
    #[must_use]
    pub fn defaults() -> Self {
        Self::bare("strict")
    }

    /// What a document that says nothing means.
    pub(crate) fn bare(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            tier: TierChoice::Fixed(Tier::Container),
            backend: None,
            threat: Threat::Hostile,
            enforcer: EnforcerDemand::Any,
            prefer: BTreeSet::new(),
            fs: bare_fs(),
            workspace: Workspace { path: None, at: Some("/workspace".into()), mode: WorkspaceMode::None },
            limits: bare_limits(),
            net: Net::closed(),
            env: Env::default(),
            inputs: BTreeMap::new(),
            secrets: BTreeMap::new(),
            process: Process {
                user: "user".to_owned(),
                hostname: "sandbox".to_owned(),
                umask: 0o22,
                tty: false,
                label: None,
                devices: Vec::new(),
            },
            syscalls: Syscalls { profile: "strict".to_owned(), allow: Vec::new(), deny: Vec::new() },
            language: crate::value::Language::default(),
            commands: None,
            tools: None,
            audit: Audit { path: None, redact: Vec::new(), content: Content::Hash, sync: Sync::Batch },
            documents: crate::value::ReadFrom::default(),
        }
    }
}

const fn bare_fs() -> Fs {
    Fs {
        root: Root::Host,
        read: Vec::new(),
        write: Vec::new(),
        hide: Vec::new(),
        sockets: crate::value::Sockets::Pairs,
        landlock: None,
        exec: None,
        noexec: true,
        tmp: Bytes(64 * MIB),
        shm: Bytes(16 * MIB),
        run: Bytes(4 * MIB),
        protect: true,
    }
}

const fn bare_limits() -> Limits {
    Limits {
        wall: Some(Millis(30_000)),
        cpu_time: None,
        cpus: None,
        cpuset: None,
        memory: Some(Bytes(256 * MIB)),
        pids: Some(32),
        open_files: Some(256),
        file_size: Some(Bytes(64 * MIB)),
        disk: Some(Bytes(96 * MIB)),
        files: Some(10_000),
        output: Some(Bytes(MIB)),
        over: Over::Cut,
        io_read: None,
        io_write: None,
        idle: None,
        warn: None,
        kill: None,
    }
}
