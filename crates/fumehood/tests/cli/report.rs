//! The report for people: the words that it uses, and where it begins; and the file that it is written to.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

use crate::Fixture;

#[test]
fn limits_are_told_in_the_unit_in_which_policies_write_them() {
    let fixture = Fixture::new();
    let of = |args: &[&str]| {
        let said = fixture.run(&[&["run", "--json"], args].concat());
        let report = said.json();
        let of = |value: &serde_json::Value, key| value[key].as_str().unwrap_or_default().to_owned();
        (of(&report["outcome"], "message"), of(&report["violations"][0], "why"))
    };
    let python = |code| ["--lang", "python", "--code", code];
    let memory = of(&[&["--memory", "64M"][..], &python("b'x' * (200 << 20)")].concat());
    assert!(memory.0.contains("the limit of 64M"), "{memory:?}");
    assert!(memory.1.starts_with("the limit of 64M for the whole tree was reached"), "{memory:?}");
    let large = ["--set", "limits.file_size=100KB", "--", "sh", "-c", "dd if=/dev/zero of=/tmp/x bs=1M count=1"];
    assert_eq!(of(&large).1, "the limit of 100KB for one file was reached");
    let full = ["--set", "fs.tmp=64K", "--", "sh", "-c", "dd if=/dev/zero of=/tmp/x bs=1K count=99; exit 0"];
    assert_eq!(of(&full).1, "all of its 64K were in use");
    let output = of(&["--output-limit", "10K", "--set", "limits.over=kill", "--", "yes"]);
    assert_eq!(output.0, "output passed the limit of 10K");
    assert_eq!(of(&["--timeout", "300ms", "--", "sleep", "9"]).0, "wall time reached its limit of 300ms");
    let written =
        "open(__import__('os').environ['TMPDIR'] + '/x', 'wb').write(b'x' * 300000); __import__('time').sleep(9)";
    let written = of(&[&["--tier", "process", "--set", "fs.tmp=64K"][..], &python(written)].concat());
    assert!(written.0.ends_with(" KiB were written to TMPDIR, its size is 64K"), "{written:?}");
}

#[test]
fn on_a_terminal_the_report_begins_on_a_line_of_its_own() {
    let fixture = Fixture::new();
    let run = |flags: &[&str], program: &str| {
        crate::on_terminal(&fixture, &[&["run", "--color", "never"], flags, &["--", "sh", "-c", program]].concat(), "")
    };
    for flags in [&[][..], &["-t"]] {
        for (program, begins) in [
            ("printf end", "end\r\nexited: "),
            ("printf 'end\\n'", "end\r\nexited: "),
            ("printf end >&2", "end\r\nexited: "),
            (":", "exited: "),
        ] {
            let text = run(flags, program);
            assert!(text.starts_with(begins), "{flags:?} {program}: {text:?}");
        }
    }
    // What counts is what was shown last, whichever stream it came from.
    let text = run(&[], "printf out; sleep 0.2; echo err >&2");
    assert!(text.starts_with("outerr\r\nexited: "), "{text:?}");
    let text = run(&[], "echo err >&2; sleep 0.2; printf out");
    assert!(text.starts_with("err\r\nout\r\nexited: "), "{text:?}");
    assert_eq!(run(&["-q"], "printf end"), "end", "nothing is said, so nothing is added");
    let text = run(&["-q", "--timeout", "300ms"], "printf end; sleep 9");
    assert!(text.starts_with("end\r\nlimit: "), "{text:?}");
    // Our own failure is told in the same place.
    let text = run(&["-q", "--report", "/dev/full"], "printf end");
    assert!(text.starts_with("end\r\nerror: the report cannot be written"), "{text:?}");
}

#[test]
fn in_a_pipe_only_stderr_itself_gets_an_end_of_line() {
    let fixture = Fixture::new();
    let run = |program| fixture.run(&["run", "--", "sh", "-c", program]);
    let said = run("printf end");
    assert!(said.out == "end" && said.err.starts_with("exited: "), "{said:?}");
    let said = run("printf end >&2");
    assert!(said.out.is_empty() && said.err.starts_with("end\nexited: "), "{said:?}");
    let said = run("echo end >&2");
    assert!(said.err.starts_with("end\nexited: "), "{said:?}");
    fixture.run(&["run", "-q", "--", "sh", "-c", "printf out; printf err >&2"]).is(0, "out", "err");
    // A terminal for our words alone shows nothing of what went elsewhere.
    let (mut master, name) = crate::terminal();
    let screen = File::options().read(true).write(true).open(&name).unwrap();
    let mut command = fixture.command(&["run", "--color", "never", "--", "printf", "end"]);
    let mut child = command.stdout(Stdio::piped()).stderr(screen).spawn().unwrap();
    drop(command);
    let mut buffer = [0; 9];
    master.read_exact(&mut buffer[..8]).unwrap();
    assert_eq!(&buffer[..8], b"exited: ");
    child.wait().unwrap();
}

#[test]
fn what_to_do_about_a_missing_program_fits_the_root_of_the_policy() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.path("work/tree")).unwrap();
    let run = |flags: &[&str], program| fixture.run(&[&["run"], flags, &["--", program]].concat());
    let fix = |flags: &[&str], program| {
        let said = run(flags, program);
        assert_eq!(said.code, 127, "{said:?}");
        said.err.lines().find_map(|line| line.strip_prefix("  fix: ")).unwrap_or_default().to_owned()
    };
    let own = "or grant its folder with `--read` and name it in `PATH` (`--env PATH=..`)";
    assert_eq!(fix(&[], "nothing-here"), format!("name a program below /usr, {own}"));
    assert_eq!(
        fix(&["--set", "fs.root=dir:./tree"], "sh"),
        "name a program below $DIR/work/tree, which is the root here, or grant its folder with `--read`"
    );
    let empty = ["--set", "fs.root=empty"];
    let all = ["--read", "/usr", "--read", "/lib", "--read", "/lib64"];
    let advice = fix(&empty, "true");
    assert!(advice.contains(&all.join(" ")), "{advice}");
    // Half of the advice is told again, and all of it works.
    assert_eq!(fix(&[&empty[..], &["--read", "/usr"]].concat(), "true"), advice);
    if all.iter().all(|word| word.starts_with('-') || std::path::Path::new(word).is_dir()) {
        assert_eq!(run(&[&empty[..], &all].concat(), "true").code, 0);
    }
}

/// The first hint of a run that printed `line` on its error stream.
fn hint(fixture: &Fixture, flags: &[&str], line: &str) -> Option<(String, String)> {
    let words = [&["run", "--json"], flags, &["--", "sh", "-c", "printf '%s\\n' \"$1\" >&2", "sh", line]].concat();
    let report = fixture.run(&words).json();
    let found = report["violations"].get(0)?;
    Some((found["id"].as_str()?.to_owned(), found["why"].as_str()?.to_owned()))
}

#[test]
fn runtimes_that_find_no_network_are_told_why() {
    let fixture = Fixture::new();
    for line in [
        "npm error code ENOTFOUND",
        "Error: getaddrinfo ENOTFOUND example.org",
        "npm error request to https://registry.npmjs.org/x failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org",
        "go: example.org/x: Get \"https://proxy.golang.org/x\": dial tcp: lookup proxy.golang.org: no such host",
        // As Go 1.19 prints it inside, where names come from files alone.
        "go: github.com/pkg/errors@v0.9.1: Get \"https://proxy.golang.org/x\": dial tcp: address proxy.golang.org: no suitable address found",
        "dial tcp: lookup proxy.golang.org on [::1]:53: read udp [::1]:4->[::1]:53: read: connection refused",
        "dial tcp 192.0.2.1:443: connect: network is unreachable",
        "java.net.UnknownHostException: repo.maven.apache.org",
        "error: failed to lookup address information: Temporary failure in name resolution",
    ] {
        let (id, why) = hint(&fixture, &["--net", "loopback"], line).unwrap_or_default();
        assert_eq!(
            (id.as_str(), why.as_str()),
            ("net.mode/closed", "the policy has no network but the run's own `lo`"),
            "{line}"
        );
    }
    for line in [
        "Error: connect ECONNREFUSED 127.0.0.1:8080",
        "ModuleNotFoundError: No module named 'x'",
        "ERR_MODULE_NOT_FOUND",
    ] {
        assert_eq!(hint(&fixture, &["--net", "loopback"], line), None, "{line}");
    }
}

#[test]
fn what_may_not_be_executed_is_told_apart_from_what_is_not_granted() {
    let fixture = Fixture::new();
    let script = fixture.path("work/t.sh");
    std::fs::write(&script, "#!/bin/sh\necho ran\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let of = |noexec: &str, command: &[&str]| {
        let set = format!("fs.noexec={noexec}");
        fixture.run(&[&["run", "--json", "-w", ".", "--set", &set, "--"], command].concat()).json()
    };
    let python = "import subprocess; subprocess.run(['./t.sh'])";
    for command in [&["sh", "-c", "./t.sh; true"][..], &["env", "./t.sh"], &["python3", "-c", python]] {
        let stopped = of("true", command);
        assert_eq!(stopped["violations"][0]["id"], "fs.noexec/refused", "{stopped:#}");
        let runs = of("false", command);
        assert_eq!((&runs["stdout"], &runs["violations"]), (&"ran\n".into(), &serde_json::json!([])), "{runs:#}");
    }
}

#[test]
fn a_warning_that_names_no_path_is_no_violation() {
    let gdb = "warning: Error disabling address space randomization: Operation not permitted";
    assert_eq!(hint(&Fixture::new(), &[], gdb), None);
}

#[test]
fn a_python_program_that_is_ended_leaves_what_it_said() {
    let fixture = Fixture::new();
    let code = "import time; print('first', flush=False); time.sleep(9)";
    for preset in ["strict", "python", "coding-agent"] {
        let ended = fixture.run(&["run", "-p", preset, "--timeout", "700ms", "--", "python3", "-c", code]);
        assert_eq!((ended.code, ended.out.as_str()), (124, "first\n"), "{ended:?}");
    }
    let buffered = ["run", "--timeout", "700ms", "--env", "PYTHONUNBUFFERED=", "--", "python3", "-c", code];
    let lost = fixture.run(&buffered);
    assert_eq!((lost.code, lost.out.as_str()), (124, ""), "who sets it is not overruled: {lost:?}");
}

#[test]
fn a_clone_within_a_layer_is_told_how_it_works() {
    let fixture = Fixture::new();
    let made = "git init -q a && cd a && echo x >f && git add f && git -c user.name=a -c user.email=a@b commit -qm x";
    assert!(crate::script(made, &fixture).status().unwrap().success());
    let text = "git config --global --add safe.directory '*'; git clone -q --no-hardlinks a b && cat b/f";
    let cloned = fixture.run(&["run", "-p", "coding-agent", "-w", ".", "--", "sh", "-c", text]);
    let line = "fatal: hardlink different from source at 'copy/.git/objects/56/5968'";
    let flags = ["-w", ".", "--net", "loopback"];
    assert_eq!(hint(&fixture, &flags, line).map(|(id, _)| id).as_deref(), Some("workspace/hard-link"));
    assert_eq!(hint(&fixture, &["--net", "loopback"], line), None, "without a layer it is something else");
    assert_eq!((cloned.code, cloned.out.as_str()), (0, "x\n"), "what is advised works: {cloned:?}");
}

#[test]
fn a_repository_made_in_place_is_put_aside_and_what_is_advised_works() {
    let fixture = Fixture::new();
    let make = |at: &str| {
        format!(
            "git init -q -b main {at} && cd {at} && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one"
        )
    };
    let run = |flags: &[&str], program: &str| {
        fixture.run(&[&["run", "-p", "coding-agent", "--json"], flags, &["--", "sh", "-c", program]].concat())
    };
    let rw = ["-w", ".:rw", "--prefer", "limits.disk", "--prefer", "limits.files"];
    let report = run(&rw, &format!("{}; sleep 0.5", make("aside"))).json();
    let told = report["violations"].as_array().unwrap().iter().find(|told| told["id"] == "fs.protect/slipped");
    let instead = told.unwrap_or_else(|| panic!("{report}"))["instead"].as_str().unwrap();
    assert!(
        ["`overlay` (`-w PATH`)", "`fumehood apply --take-protected`"].iter().all(|it| instead.contains(it)),
        "{instead}"
    );
    assert!(fixture.path("work/aside").exists() && !fixture.path("work/aside/.git").exists(), "{report}");

    let layered = run(&["-w", "."], &make("taken"));
    assert_eq!(layered.code, 0, "{layered:?}");
    assert!(!fixture.path("work/taken").exists(), "nothing reaches the host unasked");
    let taken = fixture.run(&["apply", "--take-protected", "taken/.git"]);
    assert_eq!(taken.code, 0, "{taken:?}");
    let open = run(&[&rw[..], &["--set", "fs.protect=false"]].concat(), &make("open"));
    assert_eq!(open.code, 0, "{open:?}");
    for at in ["taken", "open"] {
        let log = format!("git -c safe.directory='*' -C {at} log --format=%s");
        let said = fixture.said(&crate::script(&log, &fixture).output().unwrap());
        assert_eq!((said.code, said.out.as_str()), (0, "one\n"), "{at}: {said:?}");
    }
}

#[test]
fn a_folder_that_cannot_give_its_group_says_why() {
    let fixture = Fixture::new();
    let run =
        fixture.run(&["run", "-p", "coding-agent", "-w", ".", "--", "sh", "-c", "mkdir d; chmod g+s d; chmod 775 d"]);
    assert!(run.code == 0 && run.err.contains("a set-user-id or set-group-id bit on d"), "{run:?}");
    let line = "chmod: changing permissions of 'd': Operation not permitted";
    assert_eq!(hint(&fixture, &["-w", "."], line).map(|(id, _)| id).as_deref(), Some("syscalls/set-id"));
    let line = "chmod: changing permissions of '/usr/bin/env': Operation not permitted";
    assert_ne!(hint(&fixture, &["-w", "."], line).map(|(id, _)| id).as_deref(), Some("syscalls/set-id"), "of others");
}

#[test]
fn message_queues_work_and_are_the_runs_own() {
    let fixture = Fixture::new();
    let code = "import ctypes, os
rt = ctypes.CDLL('librt.so.1', use_errno=True)
queue = rt.mq_open(b'/fumehood', os.O_RDWR | os.O_CREAT, 0o600, None)
print(queue >= 0 and rt.mq_send(queue, b'hello', 5, 0) == 0, sorted(os.listdir('/dev/mqueue')))";
    let run = |flags: &[&str]| fixture.run(&[&["run", "-q"], flags, &["--", "python3", "-c", code]].concat());
    for _ in 0..2 {
        let own = run(&["-p", "coding-agent", "-w", "."]);
        assert_eq!((own.code, own.out.as_str()), (0, "True ['fumehood']\n"), "{own:?}");
    }
    let strict = run(&[]);
    assert!(
        strict.code == 1 && strict.err.contains("/dev/mqueue"),
        "they are not shown where they are closed: {strict:?}"
    );
}

#[test]
fn a_configuration_of_git_that_is_guarded_is_told_by_the_name_of_its_clause() {
    let fixture = Fixture::new();
    let line = "error: could not lock config file .git/config: File exists";
    assert_eq!(hint(&fixture, &[], line).map(|(id, _)| id).as_deref(), Some("fs.protect/git-config"));
    assert_eq!(hint(&fixture, &["--set", "fs.protect=false"], line), None, "then it is somebody else's lock");
}

#[test]
fn a_submodule_made_in_place_is_told_what_makes_it_and_that_works() {
    let fixture = Fixture::new();
    let git = "git -c user.name=a -c user.email=a@b -c protocol.file.allow=always -c safe.directory='*'";
    let made = format!(
        "git init -q -b main lib && {git} -C lib commit -q --allow-empty -m one && git init -q -b main top && cd top && \
         {git} submodule --quiet add ../lib sub && {git} commit -qm two && cd .. && {git} clone -q top tree && chmod -R a+rX lib tree && \
         if [ \"$(id -u)\" = 0 ]; then chown -R 1000:1000 lib tree; fi"
    );
    assert!(crate::script(&made, &fixture).status().unwrap().success());
    let (tree, lib) = (fixture.path("work/tree").display().to_string(), fixture.path("work/lib").display().to_string());
    let update = format!("cd '{tree}' && {git} -c submodule.sub.url='{lib}' submodule update --init && sleep 0.5");
    let run = |flags: &[&str]| {
        let workspace = format!("{tree}{}", flags[0]);
        let words = ["run", "-p", "coding-agent", "--json", "--read", &lib, "-w", &workspace];
        fixture.run(&[&words[..], &flags[1..], &["--", "sh", "-c", &update]].concat())
    };
    let report = run(&[":rw", "--prefer", "limits.disk", "--prefer", "limits.files"]).json();
    let told = report["violations"].as_array().unwrap().iter().find(|told| told["id"] == "fs.protect/slipped");
    let instead = told.unwrap_or_else(|| panic!("{report}"))["instead"].as_str().unwrap();
    assert!(instead.contains("`git submodule update --init`") && !instead.contains("new repository"), "{instead}");
    assert!(!fixture.path("work/tree/sub/.git").exists(), "{report}");

    let restored =
        format!("cd '{tree}' && rm -rf sub && mkdir sub && if [ \"$(id -u)\" = 0 ]; then chown 1000:1000 sub; fi");
    assert!(crate::script(&restored, &fixture).status().unwrap().success());
    let layered = run(&[""]);
    assert_eq!(layered.code, 0, "{layered:?}");
    let id = layered.json()["run"].as_str().unwrap().to_owned();
    let taken = fixture.run(&["apply", &id, "--take-protected", ".git", "--take-protected", "sub/.git"]);
    assert_eq!(taken.code, 0, "{taken:?}");
    let log = format!("git -c safe.directory='*' -C '{tree}/sub' log --format=%s");
    let said = fixture.said(&crate::script(&log, &fixture).output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (0, "one\n"), "{said:?}");
}

#[test]
fn a_control_file_is_told_apart_from_a_place_that_is_read_only() {
    let fixture = Fixture::new();
    let rw = ["-w", ".:rw", "--prefer", "limits.disk", "--prefer", "limits.files"];
    let of = |line: &str| hint(&fixture, &rw, line).unwrap_or_default().0;
    assert_eq!(of("sh: 1: cannot create .envrc: Read-only file system"), "fs.protect/read-only");
    assert_eq!(of("touch: cannot touch '/usr/x': Read-only file system"), "fs.write/read-only");
}

#[test]
fn the_report_goes_to_a_file_too() {
    let fixture = Fixture::new();
    assert_eq!(fixture.run(&["run", "-q", "--report", "r.json", "--", "true"]).code, 0);
    let text = std::fs::read(fixture.path("work/r.json")).unwrap();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&text).unwrap()["outcome"]["kind"], "exited");
}

#[test]
fn a_report_that_cannot_be_written_is_told_before_anything_runs() {
    let fixture = Fixture::new();
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.path("work/pipe"), rustix::fs::Mode::RWXU).unwrap();
    std::fs::create_dir(fixture.path("work/folder")).unwrap();
    std::os::unix::fs::symlink("nowhere", fixture.path("work/link")).unwrap();
    for (place, why) in [
        ("pipe", "a pipe that nobody reads"),
        ("folder", "is a directory"),
        ("no/such/dir.json", "no such file"),
        ("link", "a link that leads nowhere"),
    ] {
        let said = fixture.run(&["run", "--report", place, "--", "echo", "ran"]);
        assert!(said.code == 125 && said.err.contains(why) && said.err.contains("nothing was run"), "{said:?}");
        assert_eq!(said.out, "", "{place}");
    }
    assert!(!fixture.path("work/nowhere").exists());
    // Open to be read before it is written, and to its end.
    let text = "exec 3<> pipe; \"$1\" run -q --report pipe -- true; exec 4< pipe 3>&-; cat <&4";
    let read = fixture.said(&crate::script(text, &fixture).output().unwrap());
    assert_eq!(read.json()["outcome"]["kind"], "exited", "a pipe with a reader: {read:?}");
}

#[test]
fn a_report_follows_no_link_that_a_program_left() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("work/victim"), "precious").unwrap();
    std::fs::create_dir(fixture.path("work/w")).unwrap();
    let run = |more: &[&str], code: &str| {
        let mut args = vec!["run", "-w", ".:rw", "--prefer", "limits.disk", "--prefer", "limits.files"];
        if !more.contains(&"--report") {
            args.extend(["--report", "out.json"]);
        }
        args.extend(more);
        let mut command = fixture.command(&[&args[..], &["--", "sh", "-c", code]].concat());
        fixture.said(&command.current_dir(fixture.path("work/w")).output().unwrap())
    };
    let plant = run(&[], "ln -sf ../victim out.json");
    assert!(plant.code == 125 && plant.err.contains("taken away while the run lasted"), "{plant:?}");
    let planted = std::fs::symlink_metadata(fixture.path("work/w/out.json")).unwrap();
    assert!(planted.is_symlink(), "the control: a program can leave a link");
    // The file that was opened has lost its name, and nothing else was written.
    let later = run(&[], "true");
    assert!(later.code == 125 && later.err.contains("a link leads it out of"), "{later:?}");
    let refused = run(&["--memory", "0"], "true");
    assert!(refused.code == 126 && refused.err.contains("a link leads it out of"), "{refused:?}");
    // The same name by other ways: back from above, and through a link of the caller's own.
    std::os::unix::fs::symlink(fixture.path("work/w"), fixture.path("work/way")).unwrap();
    for way in ["../w/out.json", "../way/out.json", "./../../work/w/out.json"] {
        let later = run(&["--report", way], "true");
        assert!(later.code == 125 && later.err.contains("a link leads it out of"), "{way}: {later:?}");
    }
    let mut above = fixture.command(&[
        "run",
        "-w",
        "./w:rw",
        "--prefer",
        "limits.disk",
        "--prefer",
        "limits.files",
        "--report",
        "way/out.json",
        "--",
        "true",
    ]);
    let above = fixture.said(&above.current_dir(fixture.path("work")).output().unwrap());
    assert!(above.code == 125 && above.err.contains("a link leads it out of"), "{above:?}");
    // A folder that a program has exchanged for a link leads out as well.
    assert_eq!(run(&["--report", "../fine.json"], "rm out.json; ln -s .. up").code, 0, "outside of what it may write");
    let up = run(&["--report", "up/victim"], "true");
    assert!(up.code == 125 && up.err.contains("a link leads it out of"), "{up:?}");
    assert_eq!(std::fs::read_to_string(fixture.path("work/victim")).unwrap(), "precious");
}
