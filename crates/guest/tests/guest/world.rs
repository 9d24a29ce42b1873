//! Configs of tests: a container and a process that a program can live in.

use std::ffi::CString;
use std::os::unix::fs::MetadataExt as _;

use guest::config::{Attrs, Config, Identity, Ids, Landlock, Mode, Op, OwnedOp, OwnedSource, Rlimit, Rule, Source};

use crate::harness::Who;

pub(crate) const SCOPES: u64 = 3;
/// All rights of paths up to ABI 7.
pub(crate) const ALL_FS: u64 = 0xffff;
/// Execute, read file, read directory.
pub(crate) const READ: u64 = 1 | 4 | 8;

pub(crate) fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

pub(crate) fn identity(path: &str) -> Identity {
    let meta = std::fs::metadata(path).unwrap();
    let dev = meta.dev();
    Identity { major: libc::major(dev), minor: libc::minor(dev), ino: meta.ino() }
}

pub(crate) fn source(path: &str) -> OwnedSource {
    Source::Path { path: c(path), is: identity(path) }
}

pub(crate) fn container(who: Who, argv: &[&str]) -> Config {
    let (devices, tmp) = (Attrs::NOSUID | Attrs::NOEXEC, Attrs::NOSUID | Attrs::NODEV);
    let bind = |source, path: &str| Op::Bind { source, path: c(path), attrs: devices, file: true };
    Config {
        mode: Mode::Container,
        wait_mapped: who == Who::Root,
        inner_limits: true,
        new_keyring: true,
        new_session: true,
        close_descriptors: true,
        drop_capabilities: true,
        no_new_privs: true,
        undumpable: true,
        prove_payload_scope: true,
        // The test harness ignores some, as the supervisor does.
        ignored: u64::MAX,
        clear_groups: who == Who::Root,
        ids: Some(Ids { uid: 1000, gid: 1000 }),
        umask: 0o022,
        oom_score_adj: Some(500),
        hostname: b"sandbox".to_vec(),
        sources: vec![
            source("/usr"),
            source("/dev/null"),
            source("/dev/zero"),
            source("/dev/urandom"),
            source("/dev/tty"),
        ],
        ops: vec![
            Op::Root { size: 1 << 20, inodes: 256 },
            Op::Bind { source: 0, path: c("/usr"), attrs: Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV, file: false },
            link("/bin", "usr/bin"),
            link("/lib", "usr/lib"),
            link("/lib64", "usr/lib64"),
            Op::File { path: c("/etc/passwd"), mode: 0o644, bytes: b"user:x:1000:1000::/:/bin/sh\n".to_vec() },
            bind(1, "/dev/null"),
            bind(2, "/dev/zero"),
            bind(3, "/dev/urandom"),
            bind(4, "/dev/tty"),
            Op::Devpts { path: c("/dev/pts"), max: 16 },
            Op::Tmpfs { path: c("/tmp"), size: 8 << 20, inodes: 1024, mode: 0o1777, attrs: tmp, export: None },
            Op::Proc { path: c("/proc") },
            Op::Mqueue { path: c("/dev/mqueue") },
            Op::Mask { path: c("/proc/keys"), dir: false },
            Op::Mask { path: c("/proc/no-such-file"), dir: false },
            Op::Mask { path: c("/proc/irq"), dir: true },
            // Of the other kind than it is said to be: it is hidden all the same.
            Op::Mask { path: c("/proc/bus"), dir: false },
            Op::ReadOnly { path: c("/proc/sys"), recursive: false },
        ],
        rlimits: vec![
            Rlimit { resource: libc::RLIMIT_CORE, value: 0 },
            Rlimit { resource: libc::RLIMIT_NOFILE, value: 128 },
        ],
        landlock: Some(layer(&[("/", ALL_FS)], SCOPES)),
        payload_layer: Some(Landlock { scoped: SCOPES, ..Landlock::default() }),
        argv: argv.iter().map(|argument| c(argument)).collect(),
        env: vec![c("PATH=/usr/bin"), c("LANG=C.UTF-8")],
        cwd: c("/tmp"),
        search: vec![c("/usr/local/bin"), c("/usr/bin")],
        ..Config::default()
    }
}

/// The process tier as user `uid` outside.
pub(crate) fn process(uid: u32, argv: &[&str]) -> Config {
    let mut layer = layer(&[("/usr", READ), ("/etc/ld.so.cache", 4), ("/dev/null", 4 | 2)], SCOPES);
    layer.handled_net = 3;
    for rule in &mut layer.rules {
        rule.is = Some(identity(rule.path.to_str().unwrap()));
    }
    Config {
        mode: Mode::Process,
        new_session: true,
        close_descriptors: true,
        drop_capabilities: true,
        no_new_privs: true,
        undumpable: true,
        prove_payload_scope: true,
        ids: Some(Ids { uid, gid: uid }),
        ignored: u64::MAX,
        clear_groups: uid != 1000,
        umask: 0o077,
        rlimits: vec![Rlimit { resource: libc::RLIMIT_NOFILE, value: 64 }],
        landlock: Some(layer),
        payload_layer: Some(Landlock { scoped: SCOPES, ..Landlock::default() }),
        argv: argv.iter().map(|argument| c(argument)).collect(),
        env: vec![c("PATH=/usr/bin")],
        search: vec![c("/usr/bin")],
        ..Config::default()
    }
}

pub(crate) fn layer(paths: &[(&str, u64)], scoped: u64) -> guest::config::OwnedLandlock {
    let rules = paths.iter().map(|(path, access)| Rule { path: c(path), access: *access, is: None }).collect();
    Landlock { handled_fs: ALL_FS, handled_net: 0, scoped, flags: 0, rules, ports: Vec::new() }
}

pub(crate) fn link(path: &str, target: &str) -> OwnedOp {
    Op::Symlink { path: c(path), target: c(target) }
}

pub(crate) fn shell(text: &str) -> [&str; 3] {
    ["sh", "-c", text]
}
