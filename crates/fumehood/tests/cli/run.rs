//! `fumehood run`: what its words mean, what it says, and bad input. That a clause holds is the business of conformance.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::Fixture;

fn write(fixture: &Fixture, name: impl AsRef<std::path::Path>, text: &str) {
    std::fs::write(fixture.path("work").join(name), text).unwrap();
}

#[test]
fn the_programs_streams_and_code_pass_untouched() {
    let fixture = Fixture::new();
    let said = fixture.run(&["run", "-q", "--", "sh", "-c", "printf 'a\\033[1mb'; printf e >&2; exit 7"]);
    said.is(7, "a\u{1b}[1mb", "e");
    let loud = fixture.run(&["run", "--", "sh", "-c", "exit 3"]);
    assert_eq!((loud.code, loud.out.as_str()), (3, ""));
    assert!(loud.err.starts_with("exited: the program exited with 3 (") && loud.err.contains("used:"), "{}", loud.err);
}

#[test]
fn stdin_goes_in() {
    Fixture::new().run_with_stdin(&["run", "-q", "--", "cat"], b"in\xffside").is(0, "in\u{fffd}side", "");
}

#[test]
fn a_signal_that_a_program_sends_itself_is_no_limit_that_was_reached() {
    let fixture = Fixture::new();
    let run = |signal: &str| {
        fixture.run(&["run", "--json", "--cpu-time", "10s", "--", "sh", "-c", &format!("kill -{signal} $$")])
    };
    let time = run("XCPU");
    assert_eq!((time.code, &time.json()["outcome"]["limit"]), (152, &serde_json::Value::Null), "{time:?}");
    for (signal, code) in [("XFSZ", 153), ("SYS", 159)] {
        let said = run(signal);
        assert_eq!(said.code, code, "{said:?}");
        let why = said.json()["violations"][0]["why"].to_string();
        assert!(why.contains("the program sent"), "{why}");
    }
    assert!(!run("XFSZ").json()["outcome"]["message"].to_string().contains("no limit"));
}

#[test]
fn a_signal_is_128_and_its_number() {
    let said = Fixture::new().run(&["run", "--json", "--", "sh", "-c", "kill -TERM $$"]);
    assert_eq!(said.code, 143);
    assert_eq!(said.json()["outcome"]["signal"], 15);
}

#[test]
fn signals_that_the_caller_ignores_are_not_ignored_inside() {
    let fixture = Fixture::new();
    for tier in ["container", "process"] {
        for (number, code) in [(10, 138), (37, 165)] {
            let inside = format!("kill -{number} $$; echo ignored");
            let text = format!("trap '' 1 10 37; exec \"$1\" run -q --tier {tier} -- sh -c '{inside}'");
            let said = fixture.said(&crate::script(&text, &fixture).output().unwrap());
            assert_eq!((said.code, said.out.as_str()), (code, ""), "{tier} {said:?}");
        }
    }
}

/// As `nohup` has it; the control is one that does not ignore it.
#[test]
fn who_ignores_the_end_of_the_terminal_is_not_ended_by_it() {
    for (ignores, code, printed) in [("trap '' HUP;", 0, "began\nwhole\n"), ("", 129, "began\n")] {
        let fixture = Fixture::new();
        let text = format!(
            "{ignores} \"$1\" run -q -- sh -c 'echo began; sleep 1; echo whole' >out & for n in $(seq 200); do \
             grep -q began out && break; sleep .05; done; kill -HUP $!; wait $!; echo $?; cat out"
        );
        let said = fixture.said(&crate::script(&text, &fixture).output().unwrap());
        assert_eq!(said.out, format!("{code}\n{printed}"), "{said:?}");
    }
}

/// The threads of a start are kept on processors of their own.
#[test]
fn a_program_may_run_on_every_processor_that_its_caller_may_run_on() {
    let fixture = Fixture::new();
    let outside = crate::script("nproc", &fixture).output().unwrap();
    let outside = String::from_utf8(outside.stdout).unwrap();
    for tier in ["container", "process"] {
        for _ in 0..5 {
            fixture.run(&["run", "-q", "--tier", tier, "--", "nproc"]).is(0, &outside, "");
        }
        let text = format!("exec taskset -c 0 \"$1\" run -q --tier {tier} -- nproc");
        let said = fixture.said(&crate::script(&text, &fixture).output().unwrap());
        assert_eq!((said.code, said.out.as_str()), (0, "1\n"), "{tier} {said:?}");
    }
}

#[test]
fn a_limit_is_124_and_named_also_when_quiet() {
    let fixture = Fixture::new();
    let said = fixture.run(&["run", "-q", "--timeout=300ms", "--", "sleep", "20"]);
    assert_eq!((said.code, said.out.as_str()), (124, ""));
    assert!(said.err.starts_with("limit: "), "{}", said.err);
    let json = fixture.run(&["run", "--json", "--timeout=300ms", "--", "sleep", "20"]).json();
    assert_eq!((&json["outcome"]["kind"], &json["outcome"]["limit"]), (&"limit".into(), &"wall".into()));
}

#[test]
fn scripts_are_run_by_extension_and_by_shebang() {
    let fixture = Fixture::new();
    write(&fixture, "a.sh", "echo $1-$2");
    write(&fixture, "b", "#!/bin/sh\necho shebang $1");
    fixture.run(&["run", "-q", "a.sh", "--memory", "--"]).is(0, "--memory---\n", "");
    fixture.run(&["run", "-q", "./b", "-q"]).is(0, "shebang -q\n", "");
}

#[test]
fn code_is_run_from_a_flag_and_from_stdin() {
    let fixture = Fixture::new();
    fixture.run(&["run", "-q", "--lang", "sh", "--code", "echo $1", "x y"]).is(0, "x y\n", "");
    fixture.run_with_stdin(&["run", "-q", "--lang", "sh", "-"], b"echo from stdin").is(0, "from stdin\n", "");
}

#[test]
fn names_of_any_bytes_are_scripts_too() {
    let fixture = Fixture::new();
    let names: [&[u8]; 3] = [b"new\nline.sh", b"by\xff\xfetes.sh", b"-dash.sh"];
    for name in names {
        let path = fixture.path("work").join(OsStr::from_bytes(name));
        write(&fixture, &path, "echo ran");
        let said = fixture.run(&[OsStr::new("run"), OsStr::new("-q"), path.as_os_str()]);
        said.is(0, "ran\n", "");
    }
    let odd = OsString::from_vec(b"gone\n\x1b[2J\xff.sh".to_vec());
    let said = fixture.run(&[OsStr::new("run"), &odd]);
    assert_eq!((said.code, said.out.as_str()), (127, ""));
    assert!(!said.err.contains('\u{1b}') && said.err.lines().count() == 4, "{:?}", said.err);
}

#[test]
fn a_missing_program_is_127_and_one_that_cannot_be_executed_126() {
    let fixture = Fixture::new();
    let missing = fixture.run(&["run", "--", "no-such-program"]);
    assert_eq!((missing.code, missing.out.as_str()), (127, ""), "{missing:?}");
    assert!(missing.err.contains("not there inside") && missing.err.contains("fix: "), "{}", missing.err);
    let file = fixture.run(&["run", "--", "/etc/passwd"]);
    assert_eq!(file.code, 126, "{file:?}");
    assert!(file.err.contains("may not be executed"), "{}", file.err);
}

#[test]
fn a_script_that_cannot_be_read_is_126_or_127() {
    let fixture = Fixture::new();
    assert_eq!(fixture.run(&["run", "gone.py"]).code, 127);
    std::fs::create_dir(fixture.path("work/dir.py")).unwrap();
    assert_eq!(fixture.run(&["run", "dir.py"]).code, 126);
    if !rustix::process::geteuid().is_root() {
        write(&fixture, "closed.py", "1");
        std::fs::set_permissions(fixture.path("work/closed.py"), std::fs::Permissions::from_mode(0o0)).unwrap();
        assert_eq!(fixture.run(&["run", "closed.py"]).code, 126);
    }
}

#[test]
fn nothing_to_run_and_two_programs_are_bad_usage() {
    let fixture = Fixture::new();
    for args in [&["run"][..], &["run", "--"], &["run", "--code", "1"], &["run", "--lang=sh", "--code=1", "--", "ls"]] {
        let said = fixture.run(args);
        assert_eq!((said.code, said.out.as_str()), (125, ""), "{args:?}");
        assert!(said.err.contains("fix: "), "{}", said.err);
    }
}

#[test]
fn a_terminal_that_is_not_there_is_bad_usage() {
    let said = Fixture::new().run(&["run", "-t", "--", "true"]);
    said.is(125, "", "error: `-t` needs a terminal\n  --> command line\n  why: stdin is not one\n  fix: drop `-t`\n");
    let both = Fixture::new().run(&["run", "-t", "--json", "--", "true"]);
    let ids: Vec<_> = both.json()["errors"].as_array().unwrap().iter().map(|e| e["id"].clone()).collect();
    assert_eq!(ids, ["usage/two-flags", "usage/no-terminal"]);
}

#[test]
fn json_is_one_report_with_the_output_in_it() {
    let said = Fixture::new().run(&["run", "--json", "--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let json = said.json();
    assert_eq!((&json["stdout"], &json["stderr"]), (&"out\n".into(), &"err\n".into()));
    for key in [
        "schema",
        "run",
        "policy",
        "plan",
        "tier",
        "backend",
        "outcome",
        "usage",
        "enforcers",
        "weakened",
        "violations",
        "workspace",
        "audit",
        "cut",
        "dropped",
    ] {
        assert!(json.get(key).is_some(), "{key} in {json:#}");
    }
}

#[test]
fn what_a_terminal_acts_on_is_escaped_in_json_and_the_value_is_what_was_printed() {
    let raw = "\u{9b}31m\u{202e}\u{e0041}\u{1b}[2J";
    let said = Fixture::new().run(&["run", "--json", "--", "printf", "%s", raw]);
    assert_eq!(said.json()["stdout"], raw, "{said:?}");
    assert!(said.out.contains("\\u009b31m\\u202e\\udb40\\udc41\\u001b[2J"), "{said:?}");
    assert!(!said.out.chars().any(|c| raw.contains(c) && !c.is_ascii_graphic()), "{said:?}");
}

#[test]
fn output_that_was_cut_is_told_also_when_quiet_and_marked_where_it_was() {
    let fixture = Fixture::new();
    let program = ["--", "sh", "-c", "head -c 400000 /dev/zero | tr '\\0' a; echo end"];
    let said = fixture.run(&[&["run", "-q", "--set", "limits.output=64K"], &program[..]].concat());
    assert!(said.err.contains("cut:") && said.err.contains("of output were not kept"), "{}", said.err);
    assert_eq!(said.out.matches("\n[fumehood: ").count(), 1, "{}", said.out.len());
    assert!(said.out.contains(" bytes were cut here]\n") && said.out.ends_with("end\n"), "the end is kept");
    let whole = fixture.run(&[&["run", "-q", "--set", "limits.output=1M"], &program[..]].concat());
    assert_eq!((whole.code, whole.err.as_str(), whole.out.len()), (0, "", 400_004), "nothing is said of one that fits");
}

#[test]
fn json_of_a_refusal_and_of_mistakes_names_them_all() {
    let fixture = Fixture::new();
    let refused = fixture.run(&["run", "--json", "--tier=vm", "--", "true"]);
    assert_eq!(refused.code, 126);
    assert_eq!(refused.json()["refused"][0]["id"], "fs.root/not-in-a-machine");
    let wrong = fixture.run(&["run", "--json", "--memory=5", "--pids=-1", "--", "true"]);
    assert_eq!((wrong.code, wrong.json()["refused"].as_array().unwrap().len()), (126, 2));
}

#[test]
fn absurd_limits_are_refused_before_anything_runs() {
    let fixture = Fixture::new();
    let absurd = [
        "--memory=0",
        "--memory=-1",
        "--memory=99999999999999T",
        "--pids=0",
        "--pids=4294967296",
        "--timeout=0s",
        "--timeout=1e9y",
        "--cpus=-0.5",
        "--cpus=nan",
        "--disk=1",
        "--output-limit=lots",
    ];
    for flag in absurd {
        let said = fixture.run(&["run", flag, "--", "true"]);
        assert_eq!((said.code, said.out.as_str()), (126, ""), "{flag}: {said:?}");
        assert!(said.err.contains("error: ") && said.err.contains("fix: "), "{flag}: {}", said.err);
    }
}

#[test]
fn a_weakening_is_the_first_line_even_when_quiet() {
    let fixture = Fixture::new();
    let args = [
        "run",
        "-q",
        "--tier=process",
        "-w",
        ".:rw",
        "--prefer=limits.disk",
        "--prefer=limits.files",
        "--set=fs.protect=false",
        "--",
        "true",
    ];
    let said = fixture.run(&args);
    if said.code == 126 && said.err.contains("root") {
        // Then nothing was weakened either.
        println!("skip: a workspace of root's is refused in this tier");
        return;
    }
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    assert!(said.err.starts_with("weakened: "), "{}", said.err);
}

#[test]
fn what_is_written_to_the_host_is_one_weakening_and_is_not_counted() {
    let fixture = Fixture::new();
    let run = |mode: &str, json: &str| {
        let place = format!(".:{mode}");
        let script = "dd if=/dev/zero of=big bs=1M count=3 2>/dev/null";
        let prefer = ["--prefer=limits.disk", "--prefer=limits.files", "--set=limits.files=1000"];
        fixture.run(&[&["run", json, "-w", &place], &prefer[..], &["--", "sh", "-c", script]].concat())
    };
    let said = run("rw", "-v");
    assert_eq!(said.code, 0, "{said:?}");
    let lines: Vec<_> = said.err.lines().filter(|line| line.starts_with("weakened: ")).collect();
    assert!(matches!(&lines[..], [line] if line.contains("limits.disk and limits.files: wanted ")), "{lines:?}");
    let words = said.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("disk not counted"), "{words}");
    let report = run("rw", "--json").json();
    assert_eq!(report["weakened"].as_array().map(Vec::len), Some(2), "{report:#}");
    assert!(report["usage"].as_object().is_some_and(|usage| usage["disk"].is_null()), "{report:#}");
    let layer = run("overlay", "--json").json();
    assert!(layer["usage"]["disk"].as_u64().is_some_and(|disk| disk >= 3 << 20), "{layer:#}");
}

#[test]
fn a_link_to_a_dangerous_place_is_as_dangerous() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.path(".ssh")).unwrap();
    std::fs::write(fixture.path(".ssh/id"), "KEY\n").unwrap();
    std::os::unix::fs::symlink(fixture.path(".ssh"), fixture.path("work/link")).unwrap();
    let ssh = fixture.path(".ssh").display().to_string();
    for args in
        [&["--read", "./link:/data"][..], &["-w", "link"], &["-w", "./link:ro"], &["--set", "fs.root=dir:./link"]]
    {
        let said = fixture.run(&[&["run"], args, &["--", "true"]].concat());
        assert!(said.code == 126 && said.err.contains("which leads to `$DIR/.ssh`"), "{args:?}: {said:?}");
        assert_eq!(fixture.run(&[&["plan"], args].concat()).code, 126, "{args:?}");
    }
    for args in [&["--dangerous-read", "./link:/data"][..], &["-w", "link", "--dangerous-read", &ssh]] {
        let said = fixture.run(&[&["plan"], args].concat());
        assert_eq!(said.code, 0, "it is said: {args:?}: {said:?}");
    }
}

#[test]
fn the_log_and_the_keys_are_no_workspace() {
    let fixture = Fixture::new();
    let state = fixture.path("work/state").display().to_string();
    let fixture = fixture.with("FUMEHOOD_STATE", &state);
    assert_eq!(fixture.run(&["run", "-q", "--", "true"]).code, 0);
    std::os::unix::fs::symlink(fixture.path("work/state"), fixture.path("link")).unwrap();
    for args in
        [&["-w", "."][..], &["-w", ".:rw"], &["-w", "state/keys:ro"], &["--read", "./state:/x"], &["-w", "../link"]]
    {
        let said = fixture.run(&[&["run"], args, &["--", "true"]].concat());
        assert!(said.code == 126 && said.err.contains("where fumehood keeps its log and keys"), "{args:?}: {said:?}");
    }
    assert_eq!(fixture.run(&["audit", "verify"]).code, 0);
}

#[test]
fn streams_that_are_gone_do_not_hang_or_panic() {
    let fixture = Fixture::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = fixture.command(&["run", "-q", "--", "sh", "-c", "yes | head -c 300000"]);
    let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let text = format!("\"$1\" run -q -- sh -c 'cat; exit 5' {closed}; echo $?");
        let said = fixture.said(&crate::script(&text, &fixture).output().unwrap());
        assert!(said.out.ends_with("5\n"), "{closed}: {said:?}");
    }
}

#[test]
fn a_full_disk_under_json_is_told() {
    let fixture = Fixture::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output =
        fixture.command(&["run", "--json", "--", "true"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let said = fixture.said(&output);
    assert_eq!(said.code, 125, "{said:?}");
    assert!(said.err.contains("cannot write to stdout"), "{}", said.err);
}

#[test]
fn two_mebibytes_of_arguments_go_in() {
    let fixture = Fixture::new();
    let long = "x".repeat(128 * 1024 - 1);
    let script = "for a; do n=$((n + ${#a})); done; echo $n";
    let head = ["run", "-q", "--", "sh", "-c", script, "sh"];
    let args: Vec<&str> = head.into_iter().chain(std::iter::repeat_n(long.as_str(), 14)).collect();
    let said = fixture.run(&args);
    assert_eq!((said.code, said.out), (0, format!("{}\n", 14 * (128 * 1024 - 1))), "{}", said.err);
}

#[test]
fn a_state_folder_that_cannot_be_written_refuses_the_run() {
    let fixture = Fixture::new().with("FUMEHOOD_STATE", "/proc/nowhere");
    let said = fixture.run(&["run", "--", "echo", "ran"]);
    assert!(matches!(said.code, 125 | 126) && said.out.is_empty(), "{said:?}");
    assert!(said.err.contains("FUMEHOOD_STATE"), "{}", said.err);
}

/// The guest and its groups are begun beside the planning: what a refusal finds of them goes.
#[test]
fn a_refusal_leaves_nothing_of_what_was_begun_before_it() {
    let fixture = Fixture::new();
    // A label of the module that this host does not have.
    let lsm = std::fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    let label = if lsm.contains("selinux") { "apparmor:x" } else { "selinux:u:r:t:s0" };
    for tier in ["container", "process"] {
        let said = fixture.run(&["run", "--tier", tier, "--set", &format!("process.label={label}"), "--", "true"]);
        assert_eq!(said.code, 126, "{said:?}");
        let log = std::fs::read_to_string(fixture.state().join("audit/audit.jsonl")).unwrap();
        let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        let run = last["run"].as_str().unwrap();
        assert_eq!(last["kind"], "run.refused", "{last}");
        assert_eq!(std::fs::read_dir(fixture.state().join("runs")).map_or(0, Iterator::count), 0);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        for mount in mounts.lines().filter(|line| line.contains(" - cgroup")) {
            let point = std::path::Path::new(mount.split(' ').nth(4).unwrap());
            assert!(!holds(point, run, 6), "{run} below {}", point.display());
        }
    }
}

/// Whether a folder of this name is somewhere below.
fn holds(folder: &std::path::Path, name: &str, depth: usize) -> bool {
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let below = depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir());
        entry.file_name() == name || below && holds(&entry.path(), name, depth - 1)
    })
}

#[test]
fn a_refusal_has_the_shape_of_a_report_for_those_who_read_reports() {
    let fixture = Fixture::new();
    let args =
        ["run", "--json", "--report", "r.json", "--set", "fs.root=image:x", "--set", "limits.idle=5s", "--", "true"];
    let said = fixture.run(&args);
    assert_eq!(said.code, 126, "{said:?}");
    let report = said.json();
    assert_eq!(report["schema"], 1);
    assert_eq!((&report["outcome"]["kind"], &report["outcome"]["code"]), (&"refused".into(), &126.into()), "{report}");
    assert!(report["refused"].as_array().unwrap().len() >= 2, "{report}");
    let file = std::fs::read_to_string(fixture.path("work/r.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&file).unwrap(), report);
    let plan = fixture.run(&["plan", "--json", "--set", "limits.idle=5s"]).json();
    assert_eq!(plan.as_object().unwrap().keys().collect::<Vec<_>>(), ["refused"], "`plan` keeps its own shape");
}

#[test]
fn a_threshold_that_only_warns_is_in_the_report() {
    let threshold = "limits.warn={ memory = \"5M\", for = \"100ms\" }";
    let code = "x = bytearray(30 << 20); import time; time.sleep(3)";
    let report = Fixture::new().run(&["run", "--json", "--set", threshold, "--", "python3", "-c", code]).json();
    assert_eq!(report["outcome"]["kind"], "exited", "{report}");
    assert_eq!(report["warnings"][0]["clause"], "limits.warn", "{report}");
}

#[test]
fn a_refused_socket_and_a_file_beyond_its_limit_are_violations() {
    let fixture = Fixture::new();
    let of = |code: &str| {
        fixture.run(&["run", "--json", "--set", "limits.file_size=1M", "--", "python3", "-c", code]).json()
    };
    let socket = of("import socket; socket.socket()");
    assert_eq!(socket["violations"][0]["id"], "net.mode/closed", "{socket}");
    let large = of("open('/tmp/x', 'wb').write(bytes(2 << 20))");
    assert_eq!(large["violations"][0]["id"], "limits.file_size/refused", "{large}");
    let hook = of("import os; os.chdir('/usr'); open('lib/x', 'w')");
    assert_eq!(hook["violations"][0]["what"], "lib/x", "{hook}");
}

#[test]
fn a_limit_that_only_the_supervisor_counts_is_a_violation_too() {
    // In the process tier bytes in the run's own folder are counted by looking.
    let code = "import os, time\nfor i in range(40):\n    open(os.environ['TMPDIR'] + f'/{i}', 'wb').write(bytes(1 << 20))\n    time.sleep(0.05)";
    let args = ["run", "--json", "--tier", "process", "--disk", "8M", "--", "python3", "-c", code];
    let report = Fixture::new().run(&args).json();
    assert_eq!(report["outcome"]["limit"], "disk", "{report}");
    assert_eq!(report["violations"][0]["id"], "limits.disk/full", "{report}");
}

#[test]
fn a_full_place_is_told_though_the_program_keeps_silent() {
    let fixture = Fixture::new();
    write(&fixture, "a", "a");
    let of = |args: &[&str], code: &str| {
        let args = [&["run", "--json"], args, &["--", "sh", "-c", code]].concat();
        fixture.run(&args).json()["violations"].clone()
    };
    let tmp = of(&["--set", "fs.tmp=1M"], "head -c 3000000 /dev/zero > /tmp/x 2> /dev/null; true");
    assert_eq!((&tmp[0]["id"], &tmp[0]["seen"]), (&"limits.disk/full".into(), &"kernel".into()), "{tmp}");
    assert!(
        tmp[0]["what"] == "writing more to /tmp" && tmp[0]["instead"].as_str().unwrap().contains("fs.tmp"),
        "{tmp}"
    );
    let told = of(&["--set", "fs.tmp=1M"], "head -c 3000000 /dev/zero > /tmp/x");
    assert_eq!(told.as_array().unwrap().len(), 1, "what the kernel shows needs no hint: {told}");
    let many = "i=0; while [ $i -lt 2000 ]; do : > /tmp/$i; i=$((i+1)); done 2> /dev/null";
    let files = of(&["--set", "fs.tmp=1M"], many);
    assert!(files[0]["why"].as_str().unwrap().ends_with("files and folders were in use"), "{files}");
    let layer = of(&["-w", ".:copy", "--disk", "90M"], "head -c 90000000 /dev/zero > x 2> /dev/null; true");
    assert_eq!(layer[0]["what"], "writing more to /workspace", "{layer}");
    assert_eq!(of(&["--set", "fs.tmp=1M"], "head -c 500000 /dev/zero > /tmp/x").as_array().unwrap().len(), 0);
}

#[test]
fn a_terminal_that_the_policy_asks_for_is_not_silently_absent() {
    let fixture = Fixture::new();
    write(&fixture, "p.toml", "version = 1\nname = \"p\"\n[process]\ntty = true\n");
    for tier in ["container", "process"] {
        let said = fixture.run(&["run", "--tier", tier, "-p", "p.toml", "--", "true"]);
        assert_eq!((said.code, said.out.as_str()), (125, ""), "{said:?}");
        assert!(said.err.starts_with("error: `process.tty` asks for a terminal inside\n"), "{said:?}");
        let json = fixture.run(&["run", "--json", "--tier", tier, "-p", "p.toml", "--", "true"]);
        assert_eq!((json.code, &json.json()["errors"][0]["id"]), (125, &"usage/two-flags".into()), "{json:?}");
        let plan = fixture.run(&["plan", "--json", "--tier", tier, "-p", "p.toml"]).json();
        let clauses = plan["clauses"].as_array().unwrap();
        assert!(clauses.iter().any(|one| one["clause"] == "process.tty" && one["strength"] == "kernel"), "{plan}");
        fixture
            .run(&["run", "-q", "--tier", tier, "-p", "p.toml", "--set", "process.tty=false", "--", "echo", "ran"])
            .is(0, "ran\n", "");
    }
}

#[test]
fn of_two_values_where_one_is_meant_none_is_silently_dropped() {
    let fixture = Fixture::new();
    for twice in [
        &["--lang=sh", "--code=echo 1", "--code=echo 2"][..],
        &["-w", ".", "-w", "..", "--", "true"],
        &["--report=a", "--report=b", "--", "true"],
        &["--lang=sh", "--lang=python", "--code=1"],
    ] {
        let said = fixture.run(&[&["run"], twice].concat());
        assert_eq!((said.code, said.out.as_str()), (125, ""), "{said:?}");
        assert!(said.err.contains("error: two values for `--") && said.err.contains("fix: keep one"), "{said:?}");
    }
    // Limits are layers, and lists grow.
    let said = fixture.run(&[
        "run",
        "-q",
        "--memory=1G",
        "--memory=64M",
        "--env=A=1",
        "--env=B=2",
        "--",
        "sh",
        "-c",
        "echo $A$B",
    ]);
    said.is(0, "12\n", "");
}

#[test]
fn a_remedy_can_be_followed_as_it_stands() {
    let fixture = Fixture::new();
    for (flag, fix) in [
        ("--memory", "for example --memory 256M"),
        ("--timeout", "for example --timeout 30s"),
        ("--disk", "for example --disk 128M"),
    ] {
        let said = fixture.run(&["run", flag, "0", "--", "true"]);
        assert_eq!((said.code, said.out.as_str()), (126, ""), "{said:?}");
        assert!(said.err.contains(&format!("fix: {fix}\n")), "{said:?}");
    }
    for (name, fix) in
        [("mine.toml", "; a file is written ./mine.toml\n"), ("mine", "; a file is written ./mine.toml\n")]
    {
        std::fs::write(fixture.path("work/layer.toml"), format!("version = 1\nextends = \"{name}\"\n")).unwrap();
        let said = fixture.run(&["run", "-p", "layer.toml", "--", "true"]);
        assert!(said.code == 126 && said.err.contains(fix), "{said:?}");
    }
    let said = fixture.run(&["run", "--allow-host", "https://example.org/x", "--", "true"]);
    assert!(said.code == 126 && said.err.contains("a host is a name, not an address of a page"), "{said:?}");
    let said = fixture.run(&["run", "--read", "/usr:there", "--", "true"]);
    assert!(said.code == 126 && said.err.contains("seen elsewhere inside is `FROM:/TO` in a flag"), "{said:?}");
    std::fs::write(fixture.path("work/colon.toml"), "version = 1\nfs.read = [\"/nowhere-a:/b\"]\n").unwrap();
    let said = fixture.run(&["run", "-p", "colon.toml", "--", "true"]);
    let fix = "seen elsewhere inside is { from = \"/nowhere-a\", to = \"/b\" } in a document\n";
    assert!(said.code == 126 && said.err.contains(fix), "{said:?}");
    let said = fixture.run(&["run", "-w", "/etc/passwd", "--", "true"]);
    assert!(said.code == 126 && said.err.contains("fix: name a directory\n"), "{said:?}");
    std::fs::write(fixture.path("work/latin.toml"), b"version = 1\nname = \"caf\xe9\"\n").unwrap();
    let said = fixture.run(&["run", "-p", "latin.toml", "--", "true"]);
    assert_eq!(said.code, 126, "{said:?}");
    assert!(
        said.err.contains("a byte in line 2 fits nowhere") && said.err.contains("fix: save it as UTF-8"),
        "{said:?}"
    );
    let said = fixture.run(&["run", "-p", ".", "--", "true"]);
    assert!(said.code == 126 && said.err.contains("fix: name the file in it, e.g. ./policy.toml"), "{said:?}");
    std::fs::create_dir(fixture.path("work/folder")).unwrap();
    for folder in [
        &["--", "/usr"][..],
        &["--tier=process", "--", "/usr"],
        &["-w", ".", "--", "./folder"],
        &["-w", ".", "--", "/workspace/folder"],
    ] {
        let said = fixture.run(&[&["run"], folder].concat());
        assert_eq!((said.code, said.out.as_str()), (126, ""), "{said:?}");
        assert!(said.err.contains(": it is a directory\n"), "{said:?}");
    }
    let file = fixture.run(&["run", "--", "/etc/passwd"]);
    assert!(file.code == 126 && file.err.contains("may not be executed"), "{file:?}");
}
