//! The process tier. Cargo's runner gives the whole test a pid namespace, so that a kill(-1) that escapes its scope
//! would be seen (it would kill the test) and could harm nobody else.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use guest::config::Probe;
use guest::frames::End;
use sys::pidfd;
use sys::spawn::Namespaces;

use crate::harness::{RunResult, Sandbox, Who};
use crate::world::{c, process, shell};

fn uid(who: Who) -> u32 {
    who.outside()
}

fn run(who: Who, text: &str) -> RunResult {
    let config = process(uid(who), &shell(text));
    who.be(|| Sandbox::start_with(who, &config, Namespaces::NONE, &[]).finish())
}

#[test]
fn the_whole_order_works_as_root_and_without_privilege() {
    for who in Who::BOTH {
        let told = run(who, "id -u; umask; cat /etc/passwd; ls /root /home; exit 4");
        assert_eq!(told.exited.end, End::Code(4), "{told:?}");
        assert_eq!(told.stdout, format!("{}\n0077\n", uid(who)));
        let posture = told.posture;
        assert!(posture.signal_scope_proven && posture.device_refused && posture.no_new_privs);
        assert_eq!([posture.uid, posture.suid, posture.gid, posture.sgid], [uid(who); 4]);
        assert_eq!((posture.dumpable, posture.death_signal, posture.landlock_layers), (0, 0, 1));
        let capabilities = posture.capabilities;
        assert_eq!([capabilities.permitted, capabilities.effective, capabilities.ambient], [0; 3]);
        // Whoever has no privilege cannot give the bounding set away.
        assert_eq!(told.status.capabilities.bounding == 0, who == Who::Root);
        assert_eq!(told.status.ignored, 0);
    }
}

#[test]
fn kill_of_everybody_reaches_the_sandbox_alone() {
    for who in Who::BOTH {
        // A bystander with the very id that the sandbox has.
        let mut bystander = bystander(uid(who));
        let config = process(uid(who), &shell("(setsid sleep 6001 &) ; (setsid sleep 6002 &); echo up; sleep 6003"));
        who.be(|| {
            let mut sandbox = Sandbox::start_with(who, &config, Namespaces::NONE, &[]);
            sandbox.posture();
            let payload = sandbox.go();
            assert_eq!(sandbox.line(), "up");
            wait_until(|| ["6001", "6002", "6003"].iter().all(|time| sleeps(time)));
            assert!(Sandbox::alive(payload));
            // As if the supervisor had died.
            sandbox.control = None;
            assert_eq!(pidfd::wait(&sandbox.child.pidfd).unwrap().0, pidfd::End::Exited(125));
            assert!(!Sandbox::alive(payload));
        });
        assert!(!["6001", "6002", "6003"].iter().any(|time| sleeps(time)));
        assert!(bystander.try_wait().unwrap().is_none());
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }
}

#[test]
fn orphans_die_when_the_payload_ends() {
    for who in Who::BOTH {
        let started = Instant::now();
        let told = run(who, "(setsid sleep 700 &) ; (setsid sh -c 'sleep 701 & sleep 702' &) ; sleep 0.1; exit 5");
        assert_eq!(told.exited.end, End::Code(5));
        assert!(started.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn the_payload_can_signal_neither_the_guest_nor_its_supervisor_nor_others_of_its_user() {
    for who in Who::BOTH {
        let mut bystander = bystander(uid(who));
        let text = format!(
            "for p in $PPID {} {} -1; do kill -0 $p 2>/dev/null && echo reached $p; done; sleep 5 & kill $! && echo own",
            std::process::id(),
            bystander.id()
        );
        let told = run(who, &text);
        // kill -1 finds the shell's own domain and succeeds there; it reaches nobody outside.
        let lines: Vec<&str> = told.stdout.lines().filter(|line| *line != "reached -1").collect();
        assert_eq!(lines, ["own"], "{told:?}");
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }
}

#[test]
fn the_payload_can_neither_trace_nor_read_the_guest() {
    for who in Who::BOTH {
        let text = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nguest = os.getppid()\n\
                    print(libc.ptrace(16, guest, 0, 0), ctypes.get_errno(), libc.ptrace(0x4206, guest, 0, 0))";
        let config = process(uid(who), &["python3", "-c", text]);
        let told = who.be(|| Sandbox::start_with(who, &config, Namespaces::NONE, &[]).finish());
        assert_eq!(told.stdout, format!("-1 {} -1\n", libc::EPERM), "{}", told.stderr);
    }
}

#[test]
fn probes_see_what_landlock_denies() {
    let who = Who::Root;
    let mut config = process(uid(who), &["true"]);
    let me = i32::try_from(std::process::id()).unwrap();
    config.probes = vec![
        Probe::OpenMustFail(c("/etc/passwd")),
        Probe::OpenMustWork(c("/dev/null")),
        Probe::ReadDirMustFail(c("/")),
        Probe::SignalMustFail(me),
    ];
    let told = who.be(|| Sandbox::start_with(who, &config, Namespaces::NONE, &[]).finish());
    let held = config.probes.iter().zip(told.posture.probes.iter()).all(|(probe, errno)| probe.held(errno));
    assert!(held, "{:?}", told.posture.probes);
    assert_eq!(told.posture.probes.len(), 4);
}

#[test]
fn a_path_of_the_host_that_is_another_one_now_is_refused() {
    use guest::frames::FromGuest;
    use guest::step::Step;
    let mut config = process(54321, &["true"]);
    config.landlock.as_mut().unwrap().rules[1].is = Some(crate::world::identity("/etc/hosts"));
    let mut sandbox = Sandbox::start_with(Who::Root, &config, Namespaces::NONE, &[]);
    let failed = FromGuest::Failed { step: Step::Landlock, errno: libc::ESTALE, detail: 1 };
    assert_eq!(sandbox.hear(), Some(failed));
}

#[expect(clippy::disallowed_methods, reason = "a bystander is no sandbox: it is what must not be reached")]
fn bystander(uid: u32) -> std::process::Child {
    use std::os::unix::process::CommandExt as _;
    let mut child = std::process::Command::new("/usr/bin/sleep")
        .arg("603")
        .uid(uid)
        .gid(uid)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.as_mut().unwrap().flush().unwrap();
    child
}

/// Whether `sleep TIME` runs anywhere.
fn sleeps(time: &str) -> bool {
    let command = format!("sleep\0{time}\0");
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes.filter_map(|path| std::fs::read_to_string(path.join("cmdline")).ok()).any(|line| line == command)
}

fn wait_until(ready: impl Fn() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < Duration::from_secs(60));
        let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        rustix::event::poll(&mut [], Some(&limit)).unwrap();
    }
}
