//! Who the program is, its terminal, its system calls, and what a later version judges.

use conformance::case::{BOTH, EVERY, GUEST, LINUX, PROCESS, TREES};
use conformance::fixture::text;
use conformance::{BackendId, Case, CaseResult, Cell, Fixture, Tier, check};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::ProcessUser,
        backends: TREES,
        sentence: "uid and gid are 1000 under the name that was asked",
        cell: Cell::Enforced(user),
    },
    Case {
        clause: ClauseId::ProcessUser,
        backends: PROCESS,
        sentence: "another name is refused",
        cell: Cell::Refused(&["process.user=ann"], "process.user/needs-container"),
    },
    Case {
        clause: ClauseId::ProcessHostname,
        backends: TREES,
        sentence: "the name inside is ours and the host's stays",
        cell: Cell::Enforced(hostname),
    },
    Case {
        clause: ClauseId::ProcessHostname,
        backends: PROCESS,
        sentence: "another name is refused",
        cell: Cell::Refused(&["process.hostname=elsewhere"], "process.hostname/needs-container"),
    },
    Case {
        clause: ClauseId::ProcessUmask,
        backends: LINUX,
        sentence: "new files have the mode that it leaves",
        cell: Cell::Enforced(umask),
    },
    Case {
        clause: ClauseId::ProcessTty,
        backends: LINUX,
        sentence: "the terminal is another than the caller's, with its size, whether a flag or the policy asks for it",
        cell: Cell::Enforced(tty),
    },
    Case {
        clause: ClauseId::ProcessLabel,
        backends: &[BackendId::native(Tier::Container)],
        sentence: "a label that this host cannot give is refused (`scripts/vm` shows that it is enforced where it can)",
        cell: Cell::Refused(&["process.label=selinux:fumehood_t"], "process.label/no-lsm"),
    },
    Case {
        clause: ClauseId::ProcessLabel,
        backends: PROCESS,
        sentence: "a label is refused, since its policy may forbid the end's signal",
        cell: Cell::Refused(&["process.label=selinux:fumehood_t"], "process.label/needs-container"),
    },
    Case {
        clause: ClauseId::ProcessDevices,
        backends: &[BackendId::native(Tier::Container)],
        sentence: "a device that is not there is refused (`fumehood/tests/cli/devices.rs` gives one that is)",
        cell: Cell::Refused(&["process.devices=[\"nvidia:77\"]"], "process.devices/not-here"),
    },
    Case {
        clause: ClauseId::ProcessDevices,
        backends: PROCESS,
        sentence: "a device is refused, since a node is shown by a mount",
        cell: Cell::Refused(&["process.devices=[\"kvm\"]"], "process.devices/needs-container"),
    },
    Case {
        clause: ClauseId::SyscallsProfile,
        backends: EVERY,
        sentence: "a call outside the profile fails, and one of a foreign architecture kills",
        cell: Cell::Enforced(profile),
    },
    Case {
        clause: ClauseId::SyscallsAllow,
        backends: LINUX,
        sentence: "a named call works beside the profile's",
        cell: Cell::Enforced(allow),
    },
    Case {
        clause: ClauseId::SyscallsDeny,
        backends: EVERY,
        sentence: "a named call fails though the profile has it",
        cell: Cell::Enforced(deny),
    },
    Case {
        clause: ClauseId::Commands,
        backends: LINUX,
        sentence: "only judged commands run, and they start only listed files",
        cell: Cell::Enforced(commands),
    },
    Case {
        clause: ClauseId::Commands,
        backends: GUEST,
        sentence: "what they write lands in the folders of `write`, wherever a link leads by then",
        cell: Cell::Enforced(commands_write),
    },
    Case {
        clause: ClauseId::Commands,
        backends: GUEST,
        sentence: "what they read is what `read` lists, wherever a link leads by then",
        cell: Cell::Enforced(commands_read),
    },
    Case {
        clause: ClauseId::Commands,
        backends: BOTH,
        sentence: "a root in which no program can be looked up is refused",
        cell: Cell::Refused(&["commands={presets=[\"inspect\"]}", "fs.root=empty"], "commands/no-tree"),
    },
    Case {
        clause: ClauseId::Tools,
        backends: EVERY,
        sentence: "no channel leads to a tool: no listener of the host, no descriptor that was left open",
        cell: Cell::Enforced(tools),
    },
];

fn tools(scene: &Fixture) -> CaseResult {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let code = format!(
        "
import os, socket, stat
for fd in range(3, 256):
    try: mode = os.fstat(fd).st_mode
    except OSError: continue
    if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode): raise SystemExit('descriptor %d is open' % fd)
try: socket.create_connection(('127.0.0.1', {port}), 3).sendall(b'call')
except OSError: raise SystemExit(7)"
    );
    let ended = scene.python(&["syscalls.profile=default", "tools={default=\"deny\"}"], &code)?;
    check(ended.code == Some(7) && listener.accept().is_err(), || ended.said())?;
    scene.control_python(&code)?;
    check(listener.accept().is_ok(), || "the control was not heard".to_owned())
}

/// The broker judges what is asked for; the kernel what is then started.
fn commands(scene: &Fixture) -> CaseResult {
    let inspect = Fixture::values(&["commands={presets=[\"inspect\"]}"]);
    let ended = scene.run(&inspect, &["ls", "-d", "."])?;
    check(ended.code == Some(0) && ended.out() == ".", || ended.said())?;
    let outside = scene.run(&inspect, &["ls", "-d", "/etc"])?;
    check(outside.code == Some(126) && outside.said().contains("commands.read/outside"), || outside.said())?;
    let everywhere = Fixture::values(&["commands={presets=[\"inspect\"],read=[\"/\"]}"]);
    let control = scene.run(&everywhere, &["ls", "-d", "/etc"])?;
    check(control.code == Some(0), || control.said())?;
    let mark = scene.work().join("ran");
    let touch = format!("touch {}", mark.display());
    let refused = scene.run(&inspect, &["sh", "-c", &touch])?;
    check(refused.code == Some(126), || refused.said())?;
    check(refused.said().contains("commands.program/not-allowed") && !mark.exists(), || refused.said())?;
    // A program that may be given anything: what it starts is on the kernel's list, or does not run.
    let rule = "programs=[{name=\"sh\",args=[{flags=[\"-c=any\"]}]}]";
    let script = "/usr/bin/id -u >/dev/null 2>&1; echo $?";
    let held = scene.run(&Fixture::values(&[&format!("commands={{{rule}}}")]), &["sh", "-c", script])?;
    check(held.code == Some(0) && held.out() == "126", || held.said())?;
    let control = scene.run(&Fixture::values(&[&format!("commands={{{rule},exec=false}}")]), &["sh", "-c", script])?;
    check(control.out() == "0", || control.said())
}

/// The link is made when the line was judged; the judge lets `sh` do anything.
fn commands_write(scene: &Fixture) -> CaseResult {
    let swap = "ln -s ../kept build/swapped; echo planted > build/swapped; cat kept";
    let work = "echo made > build/made && echo x | cat > $TMPDIR/x && cat $TMPDIR/x > /dev/null && cat build/made";
    let rules = ["sh", "ln", "cat"]
        .map(|name| format!("{{name=\"{name}\",args=[{{flags=[\"-c=any\",\"-s\"],positional=\"any\"}}]}}"));
    let commands = |more: &str| format!("commands={{programs=[{}],write=[\"build\"]{more}}}", rules.join(","));
    let run = |scene: &Fixture, more: &str, script: &str| {
        let workspace = "workspace={path=\".\",mode=\"rw\"}";
        let disk = "prefer=[\"limits.disk\",\"limits.files\"]";
        let values = [workspace, disk, "fs.protect=false", &commands(more)];
        scene.run(&Fixture::values(&values), &["sh", "-c", script])
    };
    scene.dir("build")?;
    let kept = scene.file("kept", "as it was")?;
    let held = run(scene, "", swap)?;
    check(text(&kept)? == "as it was" && held.out() == "as it was", || held.said())?;
    let worked = run(scene, "", work)?;
    check(worked.code == Some(0) && worked.out() == "made", || worked.said())?;
    let open = scene.fresh()?;
    open.dir("build")?;
    let kept = open.file("kept", "as it was")?;
    let control = run(&open, ",exec=false", swap)?;
    check(text(&kept)? == "planted\n", || control.said())
}

/// The link is made when the line was judged; the judge lets `sh` do anything.
fn commands_read(scene: &Fixture) -> CaseResult {
    let swap = "ln -s ../secret build/swapped; cat build/swapped; ls .";
    let work =
        "cat src/shown build/made && ls src && ls /usr/share > build/made && echo x > $TMPDIR/x && cat $TMPDIR/x";
    let rules = ["sh", "ln", "cat", "ls"]
        .map(|name| format!("{{name=\"{name}\",args=[{{flags=[\"-c=any\",\"-s\"],positional=\"any\"}}]}}"));
    let run = |more: &str, script: &str| {
        let commands = format!("commands={{programs=[{}],write=[\"build\"]{more}}}", rules.join(","));
        let values = [
            "workspace={path=\".\",mode=\"rw\"}",
            "prefer=[\"limits.disk\",\"limits.files\"]",
            "fs.protect=false",
            &commands,
        ];
        scene.dir("build")?;
        scene.dir("src")?;
        for (name, content) in [("secret", "secret"), ("src/shown", "shown "), ("build/made", "made ")] {
            scene.file(name, content)?;
        }
        let ended = scene.run(&Fixture::values(&values), &["sh", "-c", script])?;
        std::fs::remove_dir_all(scene.work().join("build"))?;
        Ok::<_, conformance::CaseError>(ended)
    };
    let listed = ",read=[\"src\"]";
    let held = run(listed, swap)?;
    let denied = held.said().matches("Permission denied").count();
    check(held.out().is_empty() && denied == 2, || held.said())?;
    let worked = run(listed, work)?;
    check(worked.code == Some(0) && worked.out() == "shown made shown\nx", || worked.said())?;
    // Without the kernel, and where `read` is not written and so is all that is shown.
    for open in [",read=[\"src\"],exec=false", ""] {
        let control = run(open, swap)?;
        check(control.out().starts_with("secret") && control.out().contains("src"), || control.said())?;
    }
    Ok(())
}

fn user(scene: &Fixture) -> CaseResult {
    let ended = scene.shell(&["process.user=ann"], "id -un; id -u; id -g; id -G; echo $HOME $USER")?;
    check(ended.out() == "ann\n1000\n1000\n1000\n/home/ann ann", || ended.said())?;
    let control = scene.control_shell("id -u")?;
    check(control.out() != "1000", || "the caller is 1000: nothing was shown".to_owned())
}

fn hostname(scene: &Fixture) -> CaseResult {
    let before = scene.control_shell("uname -n")?;
    let ended =
        scene.shell(&["process.hostname=elsewhere"], "uname -n; cat /proc/sys/kernel/hostname /etc/hostname")?;
    check(ended.out() == "elsewhere\nelsewhere\nelsewhere", || ended.said())?;
    let after = scene.control_shell("uname -n")?;
    check(before.out() == after.out() && before.out() != "elsewhere", || "the host's name changed".to_owned())
}

fn umask(scene: &Fixture) -> CaseResult {
    let probe = "cd ${TMPDIR:-.}; echo > file; mkdir folder; stat -c %a file folder";
    let control = scene.control_shell(&format!("umask 0022; {probe}"))?;
    check(control.out() == "644\n755", || control.said())?;
    let ended = scene.shell(&["process.umask=0077"], probe)?;
    check(ended.out() == "600\n700", || ended.said())
}

fn tty(scene: &Fixture) -> CaseResult {
    let size = sys::terminal::Size { rows: 33, columns: 77 };
    let pair = sys::terminal::open(size)?;
    let callers = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&pair.slave)));
    let callers = callers.map_err(|e| format!("the caller's terminal has no name: {e}"))?.display().to_string();
    let script = format!(
        "tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all; (echo by name >/dev/tty); (: <{callers}) && echo REACHED"
    );
    for way in [&["-t"][..], &["--set", "process.tty=true"]] {
        let words: Vec<&str> =
            [&["run", "-q"], way, &["--tier", scene.tier.as_str(), "--", "/bin/sh", "-c", &script]].concat();
        let command = scene.command(conformance::product::binary()?, &words);
        let seen = scene.on_terminal(&command, &pair)?;
        // In the container tier the name may be the caller's, and is that of another one.
        let container = scene.tier == Tier::Container;
        let other = |line: &str| {
            if container { line == "/dev/pts/0" } else { line.starts_with("/dev/pts/") && line != callers }
        };
        let own = seen.lines().any(|line| other(line.trim()));
        let all = own && ["33 77", "all", "by name"].iter().all(|part| seen.contains(part));
        let reached = seen.contains("REACHED") && !container;
        check(all && !reached, || format!("with {way:?} the program saw: {seen:?}"))?;
    }
    // The control: unconfined the program has the caller's own terminal.
    let bare = scene.command("/bin/sh".as_ref(), &["-c", &script]);
    let control = scene.on_terminal(&bare, &pair)?;
    let same = control.lines().any(|line| line.trim() == callers);
    // Root's may be opened by root alone.
    let reached = control.contains("REACHED") || scene.who != conformance::Who::Rootful;
    check(same && reached && control.contains("33 77"), || format!("the control saw: {control:?}"))
}

/// `syscall(2)` by number through ctypes: prints the errno, 0 for success.
pub(crate) fn call(number: u32, arguments: &str) -> String {
    format!(
        "import ctypes
c = ctypes.CDLL(None, use_errno=True)
r = c.syscall({number}{arguments})
print(0 if r >= 0 else ctypes.get_errno())"
    )
}

pub(crate) fn number(name: &str) -> Result<u32, conformance::CaseError> {
    sys::seccomp::names::number(name).ok_or_else(|| format!("no call is named {name}").into())
}

fn profile(scene: &Fixture) -> CaseResult {
    // Harmless where they succeed: a ring's parameters, a handle, a key's number.
    for (name, arguments) in [("userfaultfd", ", 1"), ("name_to_handle_at", ", -100, b'/', b'\\0'*8, b'\\0'*8, 0")] {
        let code = call(number(name)?, arguments);
        let control = scene.control_python(&code)?;
        // A kernel without it, or one that forbids it to this caller, says so otherwise than the filter.
        check(control.out() != "38", || format!("{name} is not in this kernel: {}", control.said()))?;
        let ended = scene.python(&[], &code)?;
        check(ended.out() == "38" || ended.out() == "1", || format!("{name}: {}", ended.said()))?;
        check(ended.out() != control.out(), || format!("{name} gives the same unconfined: {}", control.said()))?;
    }
    // An x32 number (bit 30): ENOSYS unconfined, the end of the program inside.
    let x32 = call(0x4000_0000 + 39, "");
    let control = scene.control_python(&x32)?;
    check(!control.out().is_empty(), || control.said())?;
    let ended = scene.python(&[], &x32)?;
    check(ended.number("/outcome/signal") == 31.0 && ended.code == Some(159), || ended.said())?;
    check(ended.violations().contains(&"syscalls/killed"), || ended.said())
}

fn allow(scene: &Fixture) -> CaseResult {
    // `strict` has no ptrace; asking about nobody is an error of the call itself, not of the filter.
    let code = call(number("kcmp")?, ", __import__('os').getpid(), __import__('os').getpid(), 0, 0, 1");
    let control = scene.control_python(&code)?;
    check(control.out() != "38", || control.said())?;
    let without = scene.python(&[], &code)?;
    check(without.out() == "38" || without.out() == "1", || without.said())?;
    let ended = scene.python(&["syscalls.allow=[\"kcmp\"]"], &code)?;
    check(ended.out() == "0", || ended.said())
}

fn deny(scene: &Fixture) -> CaseResult {
    let code = call(number("getpriority")?, ", 0, 0");
    let control = scene.control_python(&code)?;
    check(control.out() == "0", || control.said())?;
    let without = scene.python(&[], &code)?;
    check(without.out() == "0", || without.said())?;
    let ended = scene.python(&["syscalls.deny=[\"getpriority\"]"], &code)?;
    check(ended.out() == "38" || ended.out() == "1", || ended.said())?;
    check(scene.tier == Tier::Process || ended.code == Some(0), || ended.said())
}
