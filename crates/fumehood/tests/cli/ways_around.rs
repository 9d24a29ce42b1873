//! Ways around what a plan says, each seen to work once: what is held now, and that the same work passes where it may.

use crate::Fixture;

const PREFER: [&str; 4] = ["--prefer", "limits.disk", "--prefer", "limits.files"];

/// A script that copies a program to where it may write, and executes what lies at another path.
fn copy_and_execute(to: &str, from: &str) -> String {
    format!("cp /bin/true {to}/x || exit 60; {from}/x || exit 70; exit 0")
}

#[test]
fn what_can_be_written_cannot_be_executed_through_another_place() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path("work/tree/out")).unwrap();
    // As root the process tier gives up its rights, and writes to nothing of root's.
    for folder in ["work/tree", "work/tree/out"] {
        let owned = std::os::unix::fs::chown(fixture.path(folder), Some(1000), Some(1000));
        drop(owned.or_else(|refused| if refused.raw_os_error() == Some(1) { Ok(()) } else { Err(refused) }));
    }
    let tree = fixture.path("work/tree").to_str().unwrap().to_owned();
    let shown_twice = |noexec: &str| {
        let write = format!("{tree}:/w");
        let set = format!("fs.noexec={noexec}");
        let script = copy_and_execute("/w", &tree);
        let mut args = vec!["run", "-q", "--write", &write, "--read", &tree, "--set", &set];
        args.extend(PREFER);
        args.extend(["--", "sh", "-c", &script]);
        fixture.run(&args).code
    };
    assert_eq!(shown_twice("true"), 70, "written through one mount, executed through the other");
    assert_eq!(shown_twice("false"), 0, "where it may be executed, it is");
    let below = |noexec: &str| {
        let (out, set) = (format!("{tree}/out"), format!("fs.noexec={noexec}"));
        let script = copy_and_execute(&out, &out);
        let mut args = vec!["run", "-q", "--tier", "process", "--read", &tree, "--write", &out, "--set", &set];
        args.extend(PREFER);
        args.extend(["--", "sh", "-c", &script]);
        fixture.run(&args).code
    };
    assert_eq!(below("true"), 70, "Landlock adds the rights of a path up");
    assert_eq!(below("false"), 0);
}

#[test]
fn a_writable_place_among_the_hosts_programs_is_refused_where_nothing_writable_may_be_executed() {
    let fixture = Fixture::new();
    for tier in ["container", "process"] {
        let mut args = vec!["run", "-q", "--tier", tier, "--set", "net.mode=none", "--write", "/usr/src"];
        args.extend(PREFER);
        args.extend(["--", "true"]);
        let run = fixture.run(&args);
        assert_eq!(run.code, 126, "{tier}: {run:?}");
    }
}

#[test]
fn a_memory_file_cannot_be_executed_where_nothing_writable_may_be() {
    let fixture = Fixture::new();
    let program = "import os, sys
try:
    fd = os.memfd_create('m', 0)
except PermissionError:
    sys.exit(70)
os.write(fd, open('/bin/true', 'rb').read())
os.execv(f'/proc/self/fd/{fd}', ['true'])";
    let run = |noexec: &str| {
        let set = format!("fs.noexec={noexec}");
        fixture.run(&["run", "-q", "--set", &set, "--lang", "python", "--code", program]).code
    };
    assert_eq!((run("true"), run("false")), (70, 0));
}

/// The kernel charges an ACL to nobody, and a pool of huge pages to no limit of memory.
#[test]
fn memory_that_no_limit_counts_cannot_be_had() {
    // Pages of 8 KiB are in no pool: without a filter the kernel says EINVAL, whether it has one or not.
    let program = "import mmap, os, struct
file = os.environ.get('FILE', '/tmp/file')
open(file, 'w').close()
def entry(kind, who=0xffffffff): return struct.pack('<HHI', kind, 7, who)
def acl(users): return struct.pack('<I', 2) + entry(1) + entry(2, os.getuid()) * users + entry(4) + entry(16) + entry(32)
def said(work, *args, **more):
    try: work(*args, **more)
    except OSError as error: return error.errno
    return 0
def give(users): return said(os.setxattr, file, 'system.posix_acl_access', acl(users))
def have(flags): return said(mmap.mmap, -1, 1 << 21, flags=flags)
print(give(100), give(8000), have(0x22), have(0x40022 | 13 << 26))
os.unlink(file)";
    let fixture = Fixture::new();
    let inside = fixture.run(&["run", "-q", "--set", "syscalls.profile=python", "--lang", "python", "--code", program]);
    assert_eq!(inside.out, "0 28 0 12\n", "{inside:?}");
    let file = format!("/dev/shm/fumehood-test-{}", std::process::id());
    #[expect(clippy::disallowed_methods, reason = "what the same program has without a sandbox")]
    let bare = std::process::Command::new("python3").args(["-c", program]).env("FILE", file).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&bare.stdout), "0 0 0 22\n", "{bare:?}");
}

#[test]
fn what_the_guest_needs_cannot_be_denied_and_what_a_clause_narrows_cannot_be_allowed() {
    let fixture = Fixture::new();
    for call in ["kill", "wait4", "prctl", "ppoll"] {
        let run = fixture.run(&["run", "-q", "--set", &format!("syscalls.deny=[\"{call}\"]"), "--", "true"]);
        assert_eq!(run.code, 126, "{call}: {run:?}");
        assert!(run.err.contains(call), "{run:?}");
    }
    for call in ["shmget", "prlimit64"] {
        let set = format!("syscalls.allow=[\"{call}\"]");
        let process = fixture.run(&["run", "-q", "--tier", "process", "--set", &set, "--", "true"]);
        assert_eq!(process.code, 126, "{call}: {process:?}");
        let container = fixture.run(&["run", "-q", "--set", &set, "--", "true"]);
        assert_eq!(container.code, 0, "{call}: {container:?}");
    }
    let only = "fs.exec=[\"/usr/bin/true\"]";
    let run = fixture.run(&["run", "-q", "--set", only, "--set", "syscalls.allow=[\"memfd_create\"]", "--", "true"]);
    assert_eq!(run.code, 126, "{run:?}");
}

#[test]
fn what_is_hidden_is_covered_before_anything_looks_at_it() {
    let fixture = Fixture::new();
    for number in 0..600 {
        let folder = fixture.path(&format!("work/{number}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(".env"), "secret\n").unwrap();
    }
    std::fs::create_dir(fixture.path("other")).unwrap();
    let grant = format!("{}:/workspace/599", fixture.path("other").to_str().unwrap());
    for _ in 0..5 {
        let hidden = fixture.run(&[
            "run",
            "-q",
            "-w",
            ".",
            "--read",
            &grant,
            "--set",
            "fs.hide=[\"**/.env\"]",
            "--",
            "sh",
            "-c",
            "cat /workspace/*/.env",
        ]);
        assert!(!hidden.out.contains("secret"), "{hidden:?}");
    }
    let shown = fixture.run(&["run", "-q", "-w", ".", "--", "sh", "-c", "cat /workspace/*/.env | head -1"]);
    assert_eq!(shown.out, "secret\n", "{shown:?}");
}

#[test]
fn a_link_that_cannot_be_hidden_is_a_refusal_before_anything_runs() {
    let fixture = Fixture::new();
    for name in ["work", "grant"] {
        std::fs::create_dir_all(fixture.path(name)).unwrap();
        std::fs::write(fixture.path(name).join("a.pem"), "secret\n").unwrap();
        std::os::unix::fs::symlink("a.pem", fixture.path(name).join("link.pem")).unwrap();
    }
    let grant = fixture.path("grant");
    let grant = grant.to_str().unwrap();
    let script = format!("cat {grant}/a.pem /workspace/a.pem; ls {grant} /workspace");
    let run = |command: &str, glob: &str, shown: &[&str]| {
        let set = format!("fs.hide=[\"{glob}\"]");
        let program: &[&str] = if command == "run" { &["--", "sh", "-c", &script] } else { &[] };
        fixture.run(&[&[command, "--set", &set], shown, program].concat())
    };
    for command in ["plan", "run"] {
        let refused = run(command, "**/*.pem", &["--read", grant]);
        assert_eq!(refused.code, 126, "{refused:?}");
        assert!(refused.err.contains("link.pem` cannot be hidden") && refused.err.contains("fix: "), "{refused:?}");
    }
    let one = run("run", "**/a.pem", &["--read", grant]);
    assert!(!one.out.contains("secret") && one.out.contains("link.pem"), "{one:?}");
    let layer = run("run", "**/*.pem", &["-w", "."]);
    assert!(!layer.out.contains("secret") && !layer.out.contains("link.pem"), "{layer:?}");
    let unhidden = run("run", "**/*.env", &["--read", grant]);
    assert!(unhidden.out.contains("secret"), "{unhidden:?}");
}

#[test]
fn what_is_granted_is_not_hidden_by_its_own_name() {
    let fixture = Fixture::new();
    for name in ["work/sub", "grant/sub", "other"] {
        std::fs::create_dir_all(fixture.path(name)).unwrap();
        std::fs::write(fixture.path(name).join(".env"), "secret\n").unwrap();
    }
    let path = |name: &str| fixture.path(name).to_str().unwrap().to_owned();
    let (grant, file) = (path("grant"), path("other/.env"));
    let in_workspace = format!("{}:/workspace/sub", path("other"));
    let in_grant = format!("{}:{grant}/sub", path("other"));
    let run = |command: &str, glob: &str, shown: &[&str]| {
        let set = format!("fs.hide=[\"{glob}\"]");
        let script = format!("cat {grant}/.env {grant}/sub/.env {file} /workspace/sub/.env .env");
        let program: &[&str] = if command == "run" { &["--", "sh", "-c", &script] } else { &[] };
        fixture.run(&[&[command, "--set", &set], shown, program].concat())
    };
    for command in ["plan", "run"] {
        for (glob, shown) in [
            (grant.as_str(), &["--read", grant.as_str()][..]),
            (&format!("{grant}*"), &["--read", &grant]),
            ("/workspace", &["-w", "."]),
            ("/workspace", &["-w", ".:copy"]),
            ("/workspace/sub", &["-w", ".", "--read", &in_workspace]),
            ("sub", &["-w", ".", "--read", &in_workspace]),
            (&format!("{grant}/sub"), &["--read", &grant, "--read", &in_grant]),
            ("**/.env", &["--read", &file]),
        ] {
            let refused = run(command, glob, shown);
            assert_eq!(refused.code, 126, "{command} {glob} {shown:?}: {refused:?}");
            assert!(refused.err.contains("is shown and hidden at once"), "{glob}: {refused:?}");
            assert!(!refused.out.contains("secret"), "{glob}: {refused:?}");
        }
    }
    let below = run("run", "**/.env", &["-w", ".", "--read", &grant]);
    assert!(!below.out.contains("secret"), "what lies below is hidden: {below:?}");
    let unhidden = run("run", "**/*.pem", &["-w", ".", "--read", &grant]);
    assert!(unhidden.out.contains("secret"), "without the clause it is read: {unhidden:?}");
}

#[test]
fn a_read_only_grant_in_a_writable_one_is_held() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path("work/tree/ro")).unwrap();
    let (tree, ro) = (fixture.path("work/tree"), fixture.path("work/tree/ro"));
    let (tree, ro) = (tree.to_str().unwrap(), ro.to_str().unwrap());
    let run = |args: &[&str]| {
        let script = format!("touch {ro}/new && exit 60; exit 0");
        let mut all = vec!["run", "-q"];
        all.extend(args);
        all.extend(PREFER);
        all.extend(["--", "sh", "-c", &script]);
        fixture.run(&all).code
    };
    assert_eq!(run(&["--read", ro, "--write", tree]), 0, "whatever the order of the flags, it lies on top");
    assert_eq!(run(&["--write", tree, "--read", ro]), 0);
    assert_eq!(run(&["--write", tree]), 60, "without the promise it can be written to");
    assert_eq!(run(&["--read", ro]), 0);
}

#[test]
fn a_session_keyring_that_was_revoked_keeps_nobody_from_running() {
    let fixture = Fixture::new();
    // KEYCTL_JOIN_SESSION_KEYRING and KEYCTL_REVOKE of the session's, then the product.
    let script = "import ctypes, os, sys
libc = ctypes.CDLL(None)
if libc.syscall(250, 1, 0) < 0 or libc.syscall(250, 3, ctypes.c_int(-3)) < 0: sys.exit(77)
os.execv(sys.argv[1], [sys.argv[1], 'run', '-q', '--', 'true'])";
    let mut command = fixture.command::<&str>(&[]);
    let product = command.get_program().to_owned();
    command = crate::python(&fixture, script, &product);
    let ended = command.output().unwrap();
    assert_eq!(fixture.said(&ended).code, 0, "{:?}", fixture.said(&ended));
}

#[test]
fn a_folder_that_is_granted_for_reading_and_for_writing_can_be_written() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.path("work/both")).unwrap();
    let prefer = ["--prefer", "limits.disk", "--prefer", "limits.files"];
    for grants in [["--read", "both", "--write", "both"], ["--write", "both", "--read", "both"]] {
        let script =
            ["--", "sh", "-c", "echo x >> \"$0\"/file", fixture.path("work/both").to_str().unwrap()].map(str::to_owned);
        let args: Vec<String> =
            ["run"].iter().chain(&grants).chain(&prefer).map(|word| (*word).to_owned()).chain(script).collect();
        let said = fixture.run(&args);
        assert_eq!(said.code, 0, "{said:?}");
    }
    assert_eq!(std::fs::read_to_string(fixture.path("work/both/file")).unwrap(), "x\nx\n");
}

#[test]
fn the_preset_for_agents_says_how_it_wants_a_workspace_that_is_written_in_place() {
    let fixture = Fixture::new();
    let write = ["--", "sh", "-c", "echo x > made"];
    let said = fixture.run(&[&["run", "-p", "coding-agent", "-w", ".:rw"], &write[..]].concat());
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(std::fs::read_to_string(fixture.path("work/made")).unwrap(), "x\n");
    let told = said.err.matches("limits.disk").count();
    assert!(told <= 1, "told once: {said:?}");
    // The control: what is demanded is refused where the file system has no quota.
    let demanded =
        fixture.run(&[&["run", "-p", "coding-agent", "-w", ".:rw", "--set", "prefer=[]"], &write[..]].concat());
    assert_eq!(demanded.code, if told == 1 { 126 } else { 0 }, "{demanded:?}");
}

#[test]
fn an_absolute_path_to_be_hidden_that_lies_in_nothing_shown_is_a_mistake() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.path("grant")).unwrap();
    std::fs::write(fixture.path("grant/key.pem"), "secret\n").unwrap();
    let grant = fixture.path("grant").to_str().unwrap().to_owned();
    let run = |command: &str, path: &str| {
        let hide = format!("fs.hide=[\"{path}\"]");
        fixture.run(&[command, "--read", &grant, "--set", &hide, "--", "cat", &format!("{grant}/key.pem")])
    };
    for command in ["plan", "run"] {
        for path in [format!("{grant}2/key.pem"), "/nowhere/**/*.pem".to_owned()] {
            let refused = run(command, &path);
            assert_eq!(refused.code, 126, "{path}: {refused:?}");
            assert!(refused.err.contains("it lies in nothing that is shown"), "{refused:?}");
            assert!(!refused.out.contains("secret"), "{refused:?}");
        }
    }
    let hidden = run("run", &format!("{grant}/*.pem"));
    assert_eq!((hidden.code, hidden.out.as_str()), (0, ""), "an empty mount lies on it: {hidden:?}");
    assert_eq!(run("run", "**/*.env").out, "secret\n", "without the clause it is read");
}

/// An executable of this name below the test's own folder, first in the caller's `PATH`.
fn own_toolchain(fixture: Fixture) -> Fixture {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = fixture.path("tools/bin");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("python3"), "#!/bin/sh\necho own\n").unwrap();
    std::fs::set_permissions(folder.join("python3"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    fixture.with("PATH", &path)
}

#[test]
fn a_toolchain_of_the_callers_that_is_another_inside_is_told() {
    let fixture = own_toolchain(Fixture::new());
    let folder = fixture.path("tools/bin").to_str().unwrap().to_owned();
    let words = "`python3` is `/usr/bin/python3` inside, and `$DIR/tools/bin/python3` where you stand";
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for args in [&["--", "python3", "-c", "print(6 * 7)"][..], &["--lang", "python", "--code", "print(6 * 7)"]] {
        let said = fixture.run(&[&["run"][..], args].concat());
        assert!(said.out == "42\n" && one_line(&said.err).contains(words), "{said:?}");
        assert!(one_line(&fixture.run(&[&["plan"][..], args].concat()).out).contains(words));
    }
    // What the words say to do, and what is the same program anyhow.
    let path = format!("PATH={folder}:/usr/bin:/bin");
    let granted =
        fixture.run(&["run", "--read", &folder, "--set", "fs.noexec=false", "--env", &path, "--", "python3", "-V"]);
    assert!(granted.out == "own\n" && !one_line(&granted.err).contains("where you stand"), "{granted:?}");
    for args in [["run", "--", "true"], ["run", "--", "/usr/bin/true"]] {
        let said = fixture.run(&args);
        assert!(said.code == 0 && !one_line(&said.err).contains("where you stand"), "{said:?}");
    }
}

/// Removed files that nothing has but a call that sends them and waits for room. Counted are the calls that still wait.
const KEEPS: &str = r"
import array, os, socket, threading, time
one, other = socket.socketpair()
one.setblocking(False)
try:
    while True: one.send(bytes(65536))
except BlockingIOError: pass
one.setblocking(True)
def send(number):
    try: one.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [number]))])
    except OSError: pass
calls = []
for number in range(100, 106):
    path = os.environ['TMPDIR'] + '/' + str(number)
    with open(path, 'wb') as file:
        file.write(bytes(4 << 20)), file.flush()
        os.dup2(file.fileno(), number)
    calls.append(threading.Thread(target=send, args=[number], daemon=True))
    calls[-1].start()
    time.sleep(0.1)
    os.unlink(path), os.close(number)
for _ in range(30):
    if any(call.is_alive() for call in calls): time.sleep(0.1)
print(sum(call.is_alive() for call in calls), flush=True)
os._exit(0)";

#[test]
fn a_call_that_waits_lets_go_of_removed_files_where_disk_is_counted_by_looking() {
    let fixture = Fixture::new();
    let run = |set| {
        let args = ["run", "--tier", "process", "--disk", "12M", "--set", "fs.tmp=8M", "--set", set];
        fixture.run(&[&args[..], &["--lang", "python", "--code", KEEPS]].concat())
    };
    let kept = run("threat=mistakes");
    assert_eq!((kept.code, kept.out.as_str()), (0, "6\n"), "{kept:?}");
    let let_go = run("threat=hostile");
    assert_eq!((let_go.code, let_go.out.as_str()), (0, "0\n"), "{let_go:?}");
}

/// Calls that wait through many looks, by the C library itself: Python would begin one anew that was interrupted.
const WAITS: &str = r"
import ctypes, os, select, socket, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def waits(name, call, *args):
    begun = time.monotonic()
    got = getattr(libc, call)(*args)
    told.append((name, got, time.monotonic() - begun > 1, ctypes.get_errno() if got < 0 else 0))
def ask(number): return (ctypes.c_int * 2)(number, select.POLLIN)
told = []
piped, pipe = os.pipe()
full, filled = os.pipe()
os.set_blocking(filled, False)
try:
    while True: os.write(filled, bytes(4096))
except BlockingIOError: pass
os.set_blocking(filled, True)
one, other = socket.socketpair()
never, nobody = socket.socketpair()
buffer = ctypes.create_string_buffer(4096)
calls = [
    ('read', 'read', piped, buffer, 1), ('write', 'write', filled, buffer, 4096), ('recv', 'recv', one.fileno(), buffer, 1, 0),
    ('poll', 'poll', ask(piped), 1, -1), ('in time', 'poll', ask(never.fileno()), 1, 1500),
]
threads = [threading.Thread(target=waits, args=call) for call in calls]
for thread in threads: thread.start()
time.sleep(1.2)
os.write(pipe, b'ab'), other.send(b'x'), os.read(full, 65536)
for thread in threads: thread.join()
print(sorted(told))";

#[test]
fn calls_of_several_threads_wait_through_looks_as_without() {
    let fixture = Fixture::new();
    for threat in ["threat=hostile", "threat=mistakes"] {
        let said = fixture.run(&["run", "--tier", "process", "--set", threat, "--lang", "python", "--code", WAITS]);
        let all = [("in time", 0), ("poll", 1), ("read", 1), ("recv", 1), ("write", 4096)];
        let all: Vec<String> = all.iter().map(|(name, got)| format!("('{name}', {got}, True, 0)")).collect();
        assert_eq!((said.code, said.out), (0, format!("[{}]\n", all.join(", "))), "{threat}: {}", said.err);
    }
}
