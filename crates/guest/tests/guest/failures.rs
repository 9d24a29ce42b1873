//! Every step that can fail is made to fail, and names itself.

use guest::config::{Attrs, Config, Landlock, Lowers, Mode, Op, Rlimit, Size, Source};
use guest::frames::FromGuest;
use guest::step::Step;
use sys::pidfd;
use sys::spawn::Namespaces;

use crate::harness::{ALL, Sandbox, Who};
use crate::world::{c, container, identity, layer, link};

/// Starts with a changed config; the step, errno and detail of the failure.
fn failure(who: Who, namespaces: Namespaces, change: impl FnOnce(&mut Config) + Send) -> (Step, i32, u32) {
    let mut config = container(who, &["true"]);
    change(&mut config);
    who.be(|| {
        let mut sandbox = Sandbox::start_with(who, &config, namespaces, &[]);
        let failed = loop {
            match sandbox.hear() {
                Some(FromGuest::Failed { step, errno, detail }) => break (step, errno, detail),
                Some(FromGuest::Mounted(_) | FromGuest::Terminal) => {}
                other => panic!("instead of a failure: {other:?}"),
            }
        };
        assert_eq!(pidfd::wait(&sandbox.child.pidfd).unwrap().0, pidfd::End::Exited(125));
        failed
    })
}

fn mount_failure(op: guest::config::OwnedOp) -> (Step, i32, u32) {
    let at = u32::try_from(container(Who::Rootless, &[]).ops.len()).unwrap();
    let (step, errno, detail) = failure(Who::Rootless, ALL, |config| config.ops.push(op));
    assert_eq!(detail, at);
    (step, errno, detail - at)
}

#[test]
fn a_config_without_a_program_is_refused() {
    assert_eq!(failure(Who::Rootless, ALL, |config| config.argv.clear()), (Step::Config, libc::EINVAL, 0));
}

#[test]
fn a_descriptor_that_is_one_of_ours_is_no_source() {
    for number in [0, 3, 4, 100_000] {
        let failed = failure(Who::Rootless, ALL, |config| config.sources.push(Source::Fd(number)));
        assert_eq!(failed, (Step::Descriptors, libc::EBADF, 0));
    }
}

#[test]
fn a_container_whose_guest_is_not_init_is_refused() {
    let without_pid = Namespaces::USER.and(Namespaces::MOUNT);
    assert_eq!(failure(Who::Rootless, without_pid, |_| {}), (Step::Session, 0, 1));
}

#[test]
fn a_source_that_is_missing_changed_or_behind_a_link_is_refused() {
    let other = Source::Path { path: c("/usr"), is: identity("/etc") };
    assert_eq!(failure(Who::Rootless, ALL, |config| config.sources.push(other)), (Step::Sources, libc::ESTALE, 5));
    let missing = Source::Path { path: c("/no/such"), is: identity("/etc") };
    assert_eq!(failure(Who::Rootless, ALL, |config| config.sources.push(missing)), (Step::Sources, libc::ENOENT, 5));
    let behind = Source::Path { path: c("/bin/sh"), is: identity("/bin/sh") };
    assert_eq!(failure(Who::Rootless, ALL, |config| config.sources.push(behind)), (Step::Sources, libc::ELOOP, 5));
    let link = Source::Path { path: c("/lib64"), is: identity("/lib64") };
    assert_eq!(failure(Who::Rootless, ALL, |config| config.sources.push(link)), (Step::Sources, libc::ELOOP, 5));
}

#[test]
fn an_id_that_is_not_mapped_cannot_be_taken() {
    let ids = |config: &mut Config| config.ids = Some(guest::config::Ids { uid: 1001, gid: 1000 });
    assert_eq!(failure(Who::Rootless, ALL, ids), (Step::CreationIds, libc::EINVAL, 3));
    let groups = |config: &mut Config| config.clear_groups = true;
    assert_eq!(failure(Who::Rootless, ALL, groups), (Step::CreationIds, libc::EPERM, 0));
}

#[test]
fn a_mount_names_its_operation() {
    let attrs = Attrs::NONE;
    let (size, inodes) = (1 << 20, 10);
    let bind = |source, path: &str| Op::Bind { source, path: c(path), attrs, file: false };
    let overlay = |export| {
        let lowers = Lowers::one(99);
        Op::Overlay { lowers, path: c("/o"), size, inodes, attrs, export }
    };
    for (op, errno) in [
        (bind(99, "/x"), libc::EBADF),
        (bind(0, "/used-twice"), libc::EBADF),
        (Op::Dir { path: c("relative"), mode: 0o755 }, libc::EINVAL),
        (Op::Dir { path: c("/a/.."), mode: 0o755 }, libc::EINVAL),
        (Op::Dir { path: c("/bin/through-a-link"), mode: 0o755 }, libc::ELOOP),
        (Op::Dir { path: c("/bin"), mode: 0o755 }, libc::ELOOP),
        (Op::Mask { path: c("/lib64"), dir: true }, libc::ELOOP),
        (Op::Dir { path: c("/etc/passwd"), mode: 0o755 }, libc::ENOTDIR),
        (Op::File { path: c("/etc/passwd"), mode: 0o644, bytes: vec![] }, libc::EEXIST),
        (link("/etc/passwd", "x"), libc::EEXIST),
        (Op::Root { size, inodes }, libc::EEXIST),
        (Op::ReadOnly { path: c("/missing"), recursive: true }, libc::ENOENT),
        (Op::Pin { path: c("/missing") }, libc::ENOENT),
        (Op::BindInner { from: c("/missing"), path: c("/etc/passwd"), attrs }, libc::ENOENT),
        (Op::BindInner { from: c("/bin"), path: c("/etc/passwd"), attrs }, libc::ELOOP),
        (Op::BindInner { from: c("/etc/passwd"), path: c("/bin/x"), attrs }, libc::ELOOP),
        (Op::SetAttr { path: c("/etc"), attrs, recursive: false }, libc::EINVAL),
        (overlay(None), libc::EBADF),
        // Not by its path alone: what is there must be the device.
        (Op::Device { path: c("/dev/full"), major: 1, minor: 3 }, libc::ENXIO),
        (Op::Device { path: c("/dev/no-such"), major: 1, minor: 3 }, libc::ENOENT),
        (Op::Device { path: c("/dev/null"), major: 1, minor: 3 }, libc::EEXIST),
        (Op::ReadOnly { path: c("/proc/no-such"), recursive: true }, libc::ENOENT),
    ] {
        assert_eq!(mount_failure(op.clone()), (Step::Mounts, errno, 0), "{op:?}");
    }
}

#[test]
fn nothing_is_masked_by_a_null_that_is_missing_or_another_file() {
    let masked = |null: Option<guest::config::OwnedOp>| {
        let change = move |config: &mut Config| {
            config.ops.retain(|op| !matches!(op, Op::Bind { source: 1, .. }));
            config.ops.splice(1..1, null);
        };
        let (step, errno, _) = failure(Who::Rootless, ALL, change);
        assert_eq!((step, errno), (Step::Mounts, libc::ENXIO));
    };
    masked(None);
    masked(Some(Op::File { path: c("/dev/null"), mode: 0o666, bytes: vec![] }));
    masked(Some(link("/dev/null", "/proc/sys/kernel/core_pattern")));
    masked(Some(Op::Device { path: c("/dev/zero"), major: 1, minor: 3 }));
}

#[test]
fn the_steps_after_the_mounts_name_themselves() {
    type Change = fn(&mut Config);
    let cases: [(Change, Step, i32, u32); 11] = [
        (|config| config.hostname = vec![b'a'; 65], Step::Config, libc::EPROTO, 0),
        (
            |config| config.ops.retain(|op| !matches!(op, Op::Proc { .. } | Op::Mask { .. } | Op::ReadOnly { .. })),
            Step::InnerLimits,
            libc::ENOENT,
            0,
        ),
        (|config| (config.label_file, config.label) = (c("attr/no-such"), b"x".to_vec()), Step::Label, libc::ENOENT, 0),
        (|config| config.label = b"a label without its file".to_vec(), Step::Config, libc::EPROTO, 0),
        (|config| config.oom_score_adj = Some(1001), Step::Priority, libc::EINVAL, 0),
        (|config| config.nice = Some(-20), Step::Priority, libc::EACCES, 1),
        (
            |config| {
                config.ops.retain(|op| !matches!(op, Op::Devpts { .. }));
                config.tty = Some(Size { rows: 1, cols: 1 });
            },
            Step::Terminal,
            libc::ENOENT,
            0,
        ),
        (|config| config.rlimits = vec![Rlimit { resource: 99, value: 1 }], Step::Rlimits, libc::EINVAL, 99),
        (|config| config.landlock = Some(layer(&[("/usr", 4), ("/missing", 4)], 0)), Step::Landlock, libc::ENOENT, 1),
        (
            |config| config.landlock = Some(Landlock { handled_fs: 1 << 60, ..layer(&[], 0) }),
            Step::Landlock,
            libc::EINVAL,
            0,
        ),
        (|config| config.seccomp = vec![0; 12], Step::Seccomp, libc::EINVAL, 0),
    ];
    for (change, step, errno, detail) in cases {
        let failed = failure(Who::Rootless, ALL, change);
        assert_eq!((failed.0, failed.1), (step, errno));
        // Where a config is malformed is an offset.
        assert!(step == Step::Config || failed.2 == detail, "{failed:?}");
    }
}

#[test]
fn a_host_name_needs_its_own_namespace() {
    let without = Namespaces::USER.and(Namespaces::MOUNT).and(Namespaces::PID).and(Namespaces::IPC);
    assert_eq!(failure(Who::Rootless, without, |_| {}), (Step::Hostname, libc::EPERM, 0));
    let lo = |config: &mut Config| {
        config.hostname.clear();
        config.loopback = true;
    };
    assert_eq!(failure(Who::Rootless, without, lo), (Step::Loopback, libc::EPERM, 0));
}

#[test]
fn a_payload_layer_that_the_kernel_does_not_know_is_refused_before_go() {
    let change = |config: &mut Config| {
        config.payload_layer = Some(Landlock { scoped: 1 << 40, ..Landlock::default() });
    };
    assert_eq!(failure(Who::Rootless, ALL, change), (Step::PayloadScope, libc::EINVAL, 0));
}

#[test]
fn the_process_tier_is_refused_without_a_signal_scope_and_as_root() {
    let start = |uid: u32, scoped: u64| {
        let mut config = crate::world::process(uid, &["true"]);
        config.mode = Mode::Process;
        if let Some(layer) = &mut config.landlock {
            layer.scoped = scoped;
        }
        let mut sandbox = Sandbox::start_with(Who::Root, &config, Namespaces::NONE, &[]);
        sandbox.hear()
    };
    let failed = |detail| Some(FromGuest::Failed { step: Step::SignalScope, errno: 0, detail });
    assert_eq!(start(54321, 1), failed(0));
    assert_eq!(start(0, 3), failed(1));
}
