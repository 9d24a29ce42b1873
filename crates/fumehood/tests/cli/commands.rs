//! `fumehood commands check`, and `commands` of a run

use crate::Fixture;

const POLICY: &str =
    "version = 1\n[commands]\npresets = [\"inspect\"]\nwrappers = [\"env\"]\nblock = [\"/etc/passwd\"]\n";

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("work").join("p.toml"), POLICY).unwrap();
    fixture
}

#[test]
fn an_allowed_line_shows_what_would_be_started() {
    let said = fixture().run(&["commands", "check", "-p", "p.toml", "ls -l | wc -l"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    assert_eq!(said.out, "allowed: read by bash\n  /usr/bin/ls -l\n  /usr/bin/wc -l\n");
    let said = fixture().run(&["commands", "check", "-p", "p.toml", "--", "ls", "-l", "$x"]);
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "allowed: executed without a shell\n  /usr/bin/ls -l $x\n"),
        "{said:?}"
    );
}

#[test]
fn a_refused_line_says_why_and_what_would_be_allowed() {
    let said = fixture().run(&["commands", "check", "-p", "p.toml", "cat /etc//passwd"]);
    assert_eq!(said.code, 1, "{said:?}");
    let expected = "refused: `cat /etc//passwd` is blocked\n  why: `commands.block` has `/etc/passwd`\n  fix: another command\n  id:  commands.block/matched\n";
    assert!(said.out.starts_with(expected), "{}", said.out);
    assert!(said.out.contains("id:  commands.read/outside"), "{}", said.out);
    let json = fixture().run(&["commands", "check", "-p", "p.toml", "--json", "c\\url x"]).json();
    assert_eq!(json["decision"], "deny");
    assert_eq!(json["reasons"][0]["id"], "commands.program/not-allowed");
}

#[test]
fn a_policy_without_commands_and_a_call_without_a_line_are_told_apart() {
    let said = fixture().run(&["commands", "check", "ls"]);
    assert_eq!(said.code, 126, "{said:?}");
    assert!(said.err.contains("the policy has no `commands`"), "{}", said.err);
    let said = fixture().run(&["commands", "check", "-p", "p.toml"]);
    assert_eq!(said.code, 125, "{said:?}");
}

#[test]
fn a_run_is_refused_before_anything_starts_and_a_shell_always() {
    let said = fixture().run(&["run", "-p", "p.toml", "--", "touch", "x"]);
    assert_eq!((said.code, said.out.as_str()), (126, ""), "{said:?}");
    assert!(said.err.contains("the program `touch` is not allowed"), "{}", said.err);
    let said = fixture().run(&["run", "-p", "p.toml", "--lang", "bash", "--code", "ls; touch x"]);
    assert_eq!(said.code, 126, "{said:?}");
    let said = fixture().run(&["run", "-p", "p.toml", "--lang", "python", "--code", "print(1)"]);
    assert_eq!(said.code, 126, "{said:?}");
}

#[test]
fn a_plan_names_broker_and_kernel() {
    let said = fixture().run(&["plan", "-p", "p.toml", "--", "ls"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("broker:commands+landlock:"), "{}", said.out);
    let json = fixture().run(&["plan", "--json", "-p", "p.toml", "--", "ls"]).json();
    let clauses = json["clauses"].as_array().unwrap();
    let of = |name: &str| clauses.iter().find(|clause| clause["clause"] == name).unwrap();
    assert_eq!(of("commands")["strength"], "broker");
    assert_eq!(of("fs.exec")["strength"], "kernel");
    assert_eq!(of("fs.exec")["origin"], "commands (p.toml:3:11)");
}

/// What is written by programs that no text tells of: git's own files, a script's, and a link that is made after the judgement.
#[test]
fn the_kernel_holds_where_judged_programs_write() {
    let fixture = Fixture::new();
    let policy = "version = 1\n[commands]\nprograms = [{ name = \"git\", args = \"workspace\" }, { name = \"python3\", args = \"workspace\" }]\nwrite = [\"build\"]\n";
    std::fs::write(fixture.path("work/p.toml"), policy).unwrap();
    let mut made = crate::script(
        "git init -q -b main . && mkdir build && echo 1 > kept && git add kept && git -c user.name=a -c user.email=a@b commit -qm one && echo 2 > kept",
        &fixture,
    );
    assert!(made.env("GIT_CONFIG_GLOBAL", "/dev/null").status().unwrap().success());
    let tool = "import os, sys, tempfile
open('build/made', 'w').write('made')
with tempfile.TemporaryFile() as f: f.write(b'x')
open('/dev/null', 'w').write('x')
os.symlink('../kept', 'build/link')
for path in ['build/link', 'kept', 'new'] + sys.argv[1:]:
    try: open(path, 'w').write('planted')
    except PermissionError as e: print(path, e.strerror)
print(open('kept').read(), end='')
";
    std::fs::write(fixture.path("work/tool.py"), tool).unwrap();
    let flags = ["run", "-q", "-p", "p.toml", "-w", ".", "--"];
    let said = fixture.run(&[&flags[..], &["python3", "tool.py"]].concat());
    let denied = |path: &str| format!("{path} Permission denied\n");
    let expected = [denied("build/link"), denied("kept"), denied("new"), "2\n".to_owned()].concat();
    assert_eq!((said.code, said.out.as_str()), (0, expected.as_str()), "{said:?}");
    let git = fixture.run(&[&flags[..], &["git", "add", "kept"]].concat());
    assert_eq!(git.code, 0, "git writes its own files: {git:?}");
    // Where git only looks, nobody writes to its folder.
    std::fs::write(fixture.path("work/p.toml"), policy.replacen("workspace", "read-only", 1)).unwrap();
    let said = fixture.run(&[&flags[..], &["python3", "tool.py", ".git/planted"]].concat());
    assert!(said.code == 0 && said.out.contains(&denied(".git/planted")), "{said:?}");
    let looked = fixture.run(&[&flags[..], &["git", "status", "--short"]].concat());
    assert!(looked.code == 0 && looked.out.contains(" M kept"), "{looked:?}");
}

/// What is read by programs that no text tells of: a link that is made after the judgement, what a script opens, git's own files.
#[test]
fn the_kernel_holds_what_judged_programs_read() {
    let fixture = Fixture::new();
    let policy = |presets: &str, read: &str| {
        let python = "programs = [{ name = \"python3\", args = \"workspace\" }]";
        let text = format!("version = 1\n[commands]\npresets = [{presets}]\n{python}\nwrite = [\"build\"]\n{read}\n");
        std::fs::write(fixture.path("work/p.toml"), text).unwrap();
    };
    let mut made = crate::script(
        "git init -q -b main . && mkdir build src && echo 1 > secret && echo 1 > src/shown && git add . && git -c user.name=a -c user.email=a@b commit -qm one && echo 2 > src/shown",
        &fixture,
    );
    assert!(made.env("GIT_CONFIG_GLOBAL", "/dev/null").status().unwrap().success());
    let tool = "import os, tempfile
os.symlink('../secret', 'build/link')
with tempfile.TemporaryFile() as f: f.write(b'x')
for path in ['build/link', 'secret', '.', '/', '.git/HEAD', 'build', 'src/shown', 'tool.py', '/etc/passwd', '/usr/share', '/proc/self/status']:
    try: os.listdir(path) if os.path.isdir(path) else open(path).read()
    except PermissionError: print(path)
";
    std::fs::write(fixture.path("work/tool.py"), tool).unwrap();
    let run = |more: &[&str], argv: &[&str]| {
        fixture.run(&[&["run", "-q", "-p", "p.toml", "-w", "."], more, &["--"], argv].concat())
    };
    let denied = |more: &[&str]| {
        let said = run(more, &["python3", "tool.py"]);
        assert_eq!(said.code, 0, "{said:?}");
        said.out
    };
    let (git, listed) = ("\"inspect\", \"git-readonly\"", "read = [\"src\", \"tool.py\"]");
    policy(git, listed);
    assert_eq!(denied(&[]), "build/link\nsecret\n.\n/\n", "git is run, so its folder is read");
    let looked = run(&[], &["git", "status", "--short", "src"]);
    assert_eq!((looked.code, looked.out.as_str()), (0, " M src/shown\n"), "{looked:?}");
    let shown = run(&[], &["cat", "src/shown"]);
    assert_eq!((shown.code, shown.out.as_str()), (0, "2\n"), "{shown:?}");
    let plan = fixture.run(&["plan", "-p", "p.toml", "-w", ".", "--", "cat", "src/shown"]);
    assert!(plan.out.contains(":read") && plan.out.contains("attributes"), "{plan:?}");
    // The controls: the broker alone, a policy that lists everything, and one without a list.
    assert_eq!(denied(&["--set", "commands.exec=false"]), "");
    policy(git, "read = [\"/\"]");
    assert_eq!(denied(&[]), "");
    policy(git, "");
    assert_eq!(denied(&[]), "");
    policy("\"inspect\"", listed);
    assert_eq!(denied(&[]), "build/link\nsecret\n.\n/\n.git/HEAD\n", "nobody runs git");
}

#[test]
fn what_is_to_be_read_and_is_not_there_or_behind_a_link_and_a_place_that_is_read_anyhow_are_refused() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path("work/src")).unwrap();
    std::os::unix::fs::symlink("src", fixture.path("work/link")).unwrap();
    let run = |read: &str, more: &[&str]| {
        let text = format!("version = 1\n[commands]\npresets = [\"inspect\"]\nread = [{read}]\n");
        std::fs::write(fixture.path("work/p.toml"), text).unwrap();
        fixture.run(&[&["run", "-q", "-p", "p.toml", "-w", ".:ro"], more, &["--", "true"]].concat())
    };
    for wrong in ["\"absent\"", "\"link\"", "\"src/absent\""] {
        let refused = run(wrong, &[]);
        assert!(refused.code == 126 && refused.err.contains("`commands.read`"), "{wrong}: {refused:?}");
    }
    assert_eq!(run("\"src\", \"src/absent\"", &[]).code, 0, "what lies around it is listed");
    let places =
        [&["--set", "workspace.at=/tmp/w"][..], &["--read", "/usr/share"], &["--read", "/usr/share:/etc/misc"]];
    for within in places {
        let refused = run("\"src\"", within);
        assert!(refused.code == 126 && refused.err.contains("commands/within-own"), "{within:?}: {refused:?}");
        let open = run("\"src\"", &[within, &["--set", "commands.exec=false"]].concat());
        assert_eq!(open.code, 0, "{within:?}: {open:?}");
        assert_eq!(run("\"/\"", within).code, 0, "{within:?}");
    }
    assert_eq!(run("\"src\"", &["--read", "/usr/share:/opt/misc"]).code, 0);
}

#[test]
fn a_folder_to_write_to_that_is_not_there_and_a_place_that_is_written_to_anyhow_are_refused() {
    let fixture = Fixture::new();
    let policy = "version = 1\n[commands]\npresets = [\"inspect\"]\nwrite = [\"build\"]\n";
    std::fs::write(fixture.path("work/p.toml"), policy).unwrap();
    let run = |more: &[&str]| fixture.run(&[&["run", "-q", "-p", "p.toml", "-w", "."], more, &["--", "true"]].concat());
    let missing = run(&[]);
    assert!(missing.code == 126 && missing.err.contains("commands.write"), "{missing:?}");
    std::fs::create_dir(fixture.path("work/build")).unwrap();
    assert_eq!(run(&[]).code, 0);
    let within = run(&["--set", "workspace.at=/tmp/w"]);
    assert!(within.code == 126 && within.err.contains("commands/within-own"), "{within:?}");
    // Shown where it lies it is there too, since the tests' folders lie below /tmp.
    let same = run(&["--set", "workspace.at=same"]);
    let own = fixture.path("work").starts_with("/tmp");
    assert!(!own || same.code == 126 && same.err.contains("commands/within-own"), "{same:?}");
    assert_eq!(run(&["--set", "workspace.at=/srv/w"]).code, 0);
    let everything = run(&["--set", "workspace.at=/tmp/w", "--set", "commands.exec=false"]);
    assert_eq!(everything.code, 0, "{everything:?}");
}

/// Landlock judges how a file is opened: a lease and the flags of an inode need a descriptor that reads, and no more.
#[test]
fn a_file_outside_the_folders_to_write_to_is_not_acted_on_through_a_descriptor_that_reads() {
    let fixture = Fixture::new();
    let policy =
        "version = 1\n[commands]\nprograms = [{ name = \"python3\", args = \"workspace\" }]\nwrite = [\"build\"]\n";
    std::fs::write(fixture.path("work/p.toml"), policy).unwrap();
    std::fs::create_dir(fixture.path("work/build")).unwrap();
    std::fs::write(fixture.path("work/kept"), "2\n").unwrap();
    // FS_IOC_SETFLAGS with FS_NODUMP_FL, and FS_IOC_ENABLE_VERITY without arguments.
    let tool = "import fcntl, os, struct
fd = os.open('kept', os.O_RDONLY)
def tell(what, act):
    try: act(); print(what, 0)
    except OSError as e: print(what, e.errno)
tell('lease', lambda: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK))
tell('flags', lambda: fcntl.ioctl(fd, 0x40086602, struct.pack('Q', 0x40)))
tell('verity', lambda: fcntl.ioctl(fd, 0x40806685, bytes(128)))
tell('lock', lambda: fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB))
";
    std::fs::write(fixture.path("work/tool.py"), tool).unwrap();
    let run = |exec: &str| {
        let exec = format!("commands.exec={exec}");
        let args = ["run", "-q", "-p", "p.toml", "-w", ".", "--set", "workspace.at=/srv/w", "--set", &exec, "--"];
        fixture.run(&[&args[..], &["python3", "tool.py"]].concat())
    };
    let held = run("true");
    assert_eq!((held.code, held.out.as_str()), (0, "lease 22\nflags 1\nverity 1\nlock 0\n"), "{held:?}");
    // The control: where the kernel holds no list of folders, a lease is had.
    let open = run("false");
    assert!(open.code == 0 && open.out.starts_with("lease 0\n") && !open.out.contains("flags 1\n"), "{open:?}");
}

/// A listed interpreter writes a program into memory, sealed against being executed, and has the dynamic loader map it.
#[test]
fn a_listed_interpreter_starts_no_other_program_from_memory() {
    let fixture = Fixture::new();
    let tool = "import os, sys
try: fd = os.memfd_create('m', 8)
except PermissionError: sys.exit(70)
os.write(fd, open(os.path.realpath(sys.executable), 'rb').read())
os.set_inheritable(fd, True)
loader = '/lib64/ld-linux-x86-64.so.2'
os.execv(loader, [loader, f'/proc/self/fd/{fd}', '-c', ''])";
    let run = |set: &[&str]| fixture.run(&[&["run", "-q"], set, &["--", "/usr/bin/python3", "-c", tool]].concat());
    let python = std::fs::canonicalize("/usr/bin/python3").unwrap();
    let exec = format!("fs.exec=[\"{}\"]", python.display());
    let listed = run(&["--set", "fs.noexec=false", "--set", &exec]);
    assert_eq!(listed.code, 70, "{listed:?}");
    let noexec = run(&["--set", "fs.noexec=true"]);
    assert_eq!(noexec.code, 70, "{noexec:?}");
    // The control: without a clause about executing it runs.
    let open = run(&["--set", "fs.noexec=false"]);
    assert_eq!(open.code, 0, "{open:?}");
}
