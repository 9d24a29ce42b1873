use std::io::Read as _;

use guest::config::{Attrs, Lowers, Op, Probe};
use guest::frames::{End, FromGuest, ToGuest};

use crate::harness::{Sandbox, Who};
use crate::world::{c, container, shell, source};

#[test]
fn the_whole_order_works_as_root_and_without_privilege() {
    for who in Who::BOTH {
        let told = who.be(|| Sandbox::run(who, &container(who, &shell("id -u; id -g; pwd; hostname; umask; ls /"))));
        assert_eq!(told.exited.end, End::Code(0), "{who:?}: {told:?}");
        assert_eq!(told.stdout, "1000\n1000\n/tmp\nsandbox\n0022\nbin\ndev\netc\nlib\nlib64\nproc\ntmp\nusr\n");
        let posture = told.posture;
        assert_eq!((posture.pid, posture.session), (1, 1));
        assert_eq!([posture.uid, posture.euid, posture.suid, posture.gid, posture.egid, posture.sgid], [1000; 6]);
        assert!(posture.no_new_privs);
        assert_eq!(posture.groups, 0, "the test itself has none");
        assert_eq!((posture.dumpable, posture.death_signal, posture.securebits), (0, 9, 0xef));
        assert_eq!(posture.capabilities, guest::frames::Capabilities::default());
        assert_eq!(posture.hostname.as_bytes(), b"sandbox");
        assert_eq!(posture.rlimits[7], (128, 128));
        assert_eq!((posture.landlock_layers, posture.seccomp_mode), (1, 0));
        // The three streams, the control socket, the children's descriptor and the payload's ruleset.
        assert_eq!((posture.descriptors.count_ones(), posture.more_descriptors), (6, false));
        assert_eq!(posture.descriptors & 0xf, 0xf);
        // What a question for each would tell, one look from outside does.
        assert_eq!((told.status.capabilities.bounding, told.status.ignored), (0, 0));
    }
}

#[test]
fn the_payload_gets_three_descriptors_no_capability_and_default_signals() {
    let text = "ls /proc/self/fd | tr '\\n' ' '; grep -E '^(Cap|Sig|NoNewPrivs|Shd)' /proc/self/status";
    for who in Who::BOTH {
        let told = who.be(|| Sandbox::run(who, &container(who, &shell(text))));
        // ls itself opens the directory as 3.
        assert!(told.stdout.starts_with("0 1 2 3 "), "{}", told.stdout);
        for line in
            ["SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"]
        {
            assert!(told.stdout.contains(line), "{line} in {}", told.stdout);
        }
    }
}

#[test]
fn the_tree_is_read_only_but_for_what_is_meant_to_be_written() {
    let text = "for f in /x /etc/x /usr/x /dev/x /tmp/x /proc/sys/kernel/hostname; do \
                (echo 1 > $f) 2>/dev/null && echo $f; done; cat /proc/keys /proc/irq/* 2>/dev/null; ls /proc/bus | wc -l";
    for who in Who::BOTH {
        let told = who.be(|| Sandbox::run(who, &container(who, &shell(text))));
        assert_eq!(told.stdout, "/tmp/x\n0\n", "{who:?}: {}", told.stderr);
    }
}

#[test]
fn no_further_namespace_can_be_made_inside() {
    for who in Who::BOTH {
        let text = "unshare --user true; cat /proc/sys/user/max_user_namespaces /proc/sys/user/max_inotify_instances; \
                    cat /proc/self/oom_score_adj";
        let told = who.be(|| Sandbox::run(who, &container(who, &shell(text))));
        assert_eq!(told.stdout, "0\n64\n500\n", "{}", told.stderr);
        assert!(told.stderr.contains("No space left"), "{}", told.stderr);
    }
}

#[test]
fn loopback_is_up_when_asked_and_down_otherwise() {
    for (who, loopback) in [(Who::Root, true), (Who::Root, false), (Who::Rootless, true), (Who::Rootless, false)] {
        let mut config = container(
            who,
            &shell(
                "python3 -c 'import socket; s=socket.socket(); s.bind((\"127.0.0.1\", 0)); \
                                                s.listen(); socket.create_connection(s.getsockname()); print(1)'",
            ),
        );
        config.loopback = loopback;
        let told = who.be(|| Sandbox::run(who, &config));
        assert_eq!(told.stdout == "1\n", loopback, "{told:?}");
    }
}

#[test]
fn an_overlay_keeps_the_host_untouched_and_its_upper_layer_is_passed_out() {
    for who in Who::BOTH {
        let folder = folder(0o777);
        std::fs::write(folder.path().join("old"), "host").unwrap();
        // Only files of a mapped owner can be copied up.
        std::os::unix::fs::chown(folder.path().join("old"), Some(who.outside()), Some(who.outside())).unwrap();
        let text = "cat /workspace/old; echo new > /workspace/new; echo changed > /workspace/old; rm -f /workspace/gone; \
                    stat -c '%a %u' /workspace; sed -n 's/.* - overlay .*/overlay/p' /proc/self/mountinfo";
        let mut config = container(who, &shell(text));
        config.sources.push(source(folder.path().to_str().unwrap()));
        config.ops.push(Op::Overlay {
            lowers: Lowers::one(5),
            path: c("/workspace"),
            size: 4 << 20,
            inodes: 100,
            attrs: Attrs::NOSUID | Attrs::NODEV,
            export: Some(7),
        });
        who.be(|| {
            let mut sandbox = Sandbox::start(who, &config);
            let Some(FromGuest::Mounted(slots)) = sandbox.hear() else { panic!("no mounts") };
            assert_eq!(slots.iter().collect::<Vec<_>>(), [7]);
            let upper = sandbox.fds.remove(0);
            let told = sandbox.finish();
            assert_eq!(told.stdout, "host777 1000\noverlay\n", "{who:?} {}", told.stderr);
            let read = |name: &str| {
                let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW;
                let file = rustix::fs::openat(&upper, name, flags, rustix::fs::Mode::empty()).unwrap();
                let mut text = String::new();
                std::fs::File::from(file).read_to_string(&mut text).unwrap();
                text
            };
            // The namespace is gone, the changes are not.
            assert_eq!((read("new"), read("old")), ("new\n".into(), "changed\n".into()));
        });
        assert_eq!(std::fs::read_to_string(folder.path().join("old")).unwrap(), "host");
        assert!(!folder.path().join("new").exists());
    }
}

#[test]
fn a_device_is_written_to_on_a_mount_that_can_only_be_read() {
    let text = "sed -n 's|.* /dev/full \\(r[ow]\\).*|\\1|p; s|.* /proc/cmdline \\(r[ow]\\).*|hidden \\1|p' /proc/self/mountinfo; \
                (head -c 1 /dev/zero > /dev/full) 2>&1 | sed 's/.*: //'; chmod 0600 /dev/full 2>&1 | sed 's/.*: //'";
    for who in Who::BOTH {
        let mut config = container(who, &shell(text));
        config.ops.push(Op::Device { path: c("/dev/full"), major: 1, minor: 7 });
        // Shown as a device too, for it hides files of /proc.
        config.ops.retain(|op| !matches!(op, Op::Bind { path, .. } if *path == c("/dev/null")));
        let root = config.ops.iter().position(|op| matches!(op, Op::Root { .. })).unwrap();
        config.ops.insert(root + 1, Op::Device { path: c("/dev/null"), major: 1, minor: 3 });
        config.ops.push(Op::Mask { path: c("/proc/cmdline"), dir: false });
        let told = who.be(|| Sandbox::run(who, &config));
        let mut lines: Vec<&str> = told.stdout.lines().collect();
        lines.sort_unstable();
        let expected = ["No space left on device", "Read-only file system", "hidden ro", "ro"];
        assert_eq!(lines, expected, "{who:?} {}", told.stderr);
    }
}

#[test]
fn the_bounds_of_an_overlay_hold() {
    let folder = folder(0o777);
    for who in Who::BOTH {
        let mut config = container(who, &shell("head -c 3M /dev/zero > /workspace/big; stat -c %s /workspace/big"));
        config.sources.push(source(folder.path().to_str().unwrap()));
        let (attrs, lowers) = (Attrs::NOSUID, Lowers::one(5));
        config.ops.push(Op::Overlay { lowers, path: c("/workspace"), size: 1 << 20, inodes: 50, attrs, export: None });
        let told = who.be(|| Sandbox::run(who, &config));
        let kept: u64 = told.stdout.trim().parse().unwrap();
        assert!(kept <= 1 << 20, "{kept}");
        assert!(told.stderr.contains("No space left"), "{}", told.stderr);
    }
}

#[test]
fn a_read_only_overlay_shows_files_but_not_the_sockets_behind_them() {
    let folder = folder(0o777);
    let listener = std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap();
    std::fs::set_permissions(folder.path().join("s"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(folder.path().join("file"), "text").unwrap();
    let text = "cat /data/file; (echo x > /data/y) 2>/dev/null || echo held; \
                python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"/data/s\"); print(\"connected\")' 2>/dev/null";
    for (who, overlay) in [(Who::Root, true), (Who::Rootless, true), (Who::Rootless, false)] {
        let mut config = container(who, &shell(text));
        config.sources.push(source(folder.path().to_str().unwrap()));
        let (path, attrs) = (c("/data"), Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV);
        config.ops.push(if overlay {
            Op::Overlay { lowers: Lowers::one(5), path, size: 0, inodes: 0, attrs, export: None }
        } else {
            Op::Bind { source: 5, path, attrs, file: false }
        });
        let told = who.be(|| Sandbox::run(who, &config));
        // The bind is the control: there the same connect works.
        let expected = if overlay { "textheld\n" } else { "textheld\nconnected\n" };
        assert_eq!(told.stdout, expected, "{who:?} {overlay}");
    }
    drop(listener);
}

#[test]
fn a_fill_is_filled_from_outside_before_its_attributes_hold() {
    let who = Who::Rootless;
    let mut config =
        container(who, &shell("cat /run/fumehood/script; (echo > /run/fumehood/x) 2>/dev/null || echo held"));
    let attrs = Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV;
    config.ops.push(Op::Fill { path: c("/run/fumehood"), size: 1 << 20, inodes: 16, attrs, slot: 3 });
    who.be(|| {
        let mut sandbox = Sandbox::start(who, &config);
        let Some(FromGuest::Mounted(slots)) = sandbox.hear() else { panic!("no mounts") };
        assert_eq!(slots.iter().collect::<Vec<_>>(), [3]);
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
        let file = rustix::fs::openat(sandbox.fds.remove(0), "script", flags, 0o644.into()).unwrap();
        rustix::io::write(&file, b"filled\n").unwrap();
        drop(file);
        sandbox.say(ToGuest::Filled);
        assert_eq!(sandbox.finish().stdout, "filled\nheld\n");
    });
}

#[test]
fn pins_and_read_only_paths_hold_in_a_writable_workspace() {
    let folder = folder(0o777);
    for dir in [".git", ".git/hooks"] {
        std::fs::create_dir(folder.path().join(dir)).unwrap();
        std::fs::set_permissions(folder.path().join(dir), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let text = "cd /workspace; for c in 'mv .git x' 'touch .git/hooks/a' 'touch .git/fine'; do eval $c 2>/dev/null && echo $c; done";
    let who = Who::Rootless;
    let mut config = container(who, &shell(text));
    config.sources.push(source(folder.path().to_str().unwrap()));
    let attrs = Attrs::NOSUID | Attrs::NODEV;
    config.ops.extend([
        Op::Bind { source: 5, path: c("/workspace"), attrs, file: false },
        Op::Pin { path: c("/workspace/.git") },
        Op::ReadOnly { path: c("/workspace/.git/hooks"), recursive: true },
    ]);
    let told = who.be(|| Sandbox::run(who, &config));
    assert_eq!(told.stdout, "touch .git/fine\n", "{}", told.stderr);
}

/// In the place of a file of a tree that can only be read, and where there is none.
#[test]
fn a_file_of_the_new_root_is_shown_at_other_places_too() {
    let folder = folder(0o777);
    std::fs::write(folder.path().join("its"), "its own\n").unwrap();
    let who = Who::Rootless;
    let mut config = container(
        who,
        &shell(
            "cat /tree/its /anew/its; for at in /tree/its /anew/its; do echo x >$at; rm -f $at; done 2>/dev/null; cat /tree/its",
        ),
    );
    config.sources.push(source(folder.path().to_str().unwrap()));
    let attrs = Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV | Attrs::NOEXEC;
    config.ops.extend([
        Op::Bind { source: 5, path: c("/tree"), attrs, file: false },
        Op::File { path: c("/given"), mode: 0o666, bytes: b"given\n".to_vec() },
        Op::BindInner { from: c("/given"), path: c("/tree/its"), attrs },
        Op::BindInner { from: c("/given"), path: c("/anew/its"), attrs },
    ]);
    let told = who.be(|| Sandbox::run(who, &config));
    assert_eq!(told.stdout, "given\n".repeat(3), "{}", told.stderr);
    assert_eq!(std::fs::read_to_string(folder.path().join("its")).unwrap(), "its own\n");
}

#[test]
fn probes_tell_the_errno_of_each_attempt() {
    let who = Who::Root;
    let mut config = container(who, &["true"]);
    config.landlock = Some(crate::world::layer(&[("/usr", crate::world::READ), ("/tmp", crate::world::ALL_FS)], 3));
    config.probes = vec![
        Probe::OpenMustFail(c("/etc/passwd")),
        Probe::OpenMustWork(c("/usr/bin/env")),
        Probe::ReadDirMustFail(c("/etc")),
        Probe::SocketMustFail { family: 99, kind: 1, protocol: 0 },
        Probe::OpenMustFail(c("/usr/bin/env")),
        Probe::SignalMustFail(1),
    ];
    let told = who.be(|| Sandbox::run(who, &config));
    let errnos: Vec<_> = told.posture.probes.iter().collect();
    assert_eq!(errnos, [libc::EACCES, 0, libc::EACCES, libc::EAFNOSUPPORT, 0, 0]);
    let held: Vec<_> = config.probes.iter().zip(errnos).map(|(probe, errno)| probe.held(errno)).collect();
    assert_eq!(held, [true, true, true, true, false, false]);
}

#[test]
fn a_detached_mount_can_be_passed_in() {
    use rustix::mount::{OpenTreeFlags, open_tree};
    let who = Who::Root;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let mount = open_tree(rustix::fs::CWD, "/usr/share", flags).unwrap();
    let mut config = container(who, &["ls", "/share/doc"]);
    config.sources.push(guest::config::Source::Fd(5));
    let attrs = Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV;
    config.ops.push(Op::Bind { source: 5, path: c("/share"), attrs, file: false });
    let told = who.be(|| Sandbox::start_with(who, &config, crate::harness::ALL, &[mount]).finish());
    assert_eq!(told.exited.end, End::Code(0), "{}", told.stderr);
}

#[test]
fn a_config_may_carry_four_megabytes_of_arguments() {
    let who = Who::Rootless;
    let mut config = container(who, &shell("echo $#; echo ${#1}"));
    config.argv.push(c("sh"));
    config.argv.extend((0..20).map(|_| c(&"a".repeat(100_000))));
    let told = who.be(|| Sandbox::run(who, &config));
    assert_eq!(told.stdout, "20\n100000\n");
}

/// A fresh folder that everybody may enter, gone at the end of its scope.
fn folder(mode: u32) -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("fumehood-guest-").tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    folder
}
