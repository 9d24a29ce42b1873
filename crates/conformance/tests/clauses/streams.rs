//! What goes in and out: exit codes, stdin, closed descriptors, long arguments, signals of the caller.

use std::io::Write as _;
use std::os::fd::AsFd as _;

use conformance::case::{BOTH, EVERY, LINUX};
use conformance::fixture::there;
use conformance::{Case, CaseResult, Cell, Fixture, check, product};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::Tier,
        backends: EVERY,
        sentence: "exit codes pass, and each of ours has its own word",
        cell: Cell::Enforced(exit_codes),
    },
    Case {
        clause: ClauseId::Tier,
        backends: EVERY,
        sentence: "the caller's descriptors do not go in",
        cell: Cell::Enforced(descriptors),
    },
    Case {
        clause: ClauseId::Tier,
        backends: EVERY,
        sentence: "stdin comes through a pipe, and its end too",
        cell: Cell::Enforced(stdin),
    },
    Case {
        clause: ClauseId::Tier,
        backends: LINUX,
        sentence: "standard streams are opened by their names too",
        cell: Cell::Enforced(by_name),
    },
    Case {
        clause: ClauseId::Tier,
        backends: BOTH,
        sentence: "a stdin that is /dev/null is that inside too, and not a pipe in which something might still come",
        cell: Cell::Enforced(no_input),
    },
    Case {
        clause: ClauseId::Tier,
        backends: BOTH,
        sentence: "closed standard descriptors are nothing to read and nothing to write",
        cell: Cell::Enforced(closed),
    },
    Case {
        clause: ClauseId::Tier,
        backends: EVERY,
        sentence: "arguments of 1 MiB arrive whole",
        cell: Cell::Enforced(long_arguments),
    },
    Case {
        clause: ClauseId::Tier,
        backends: BOTH,
        sentence: "more arguments than the kernel takes are told, and nothing is left",
        cell: Cell::Enforced(too_long_arguments),
    },
    Case {
        clause: ClauseId::Tier,
        backends: EVERY,
        sentence: "a signal of the caller reaches the program's own handler",
        cell: Cell::Enforced(forwarded),
    },
    Case {
        clause: ClauseId::Tier,
        backends: EVERY,
        sentence: "a program that ignores signals ends at the third",
        cell: Cell::Enforced(insistent),
    },
    Case {
        clause: ClauseId::ProcessTty,
        backends: BOTH,
        sentence: "`-t` without a terminal is our failure or a refusal, and nothing runs",
        cell: Cell::Enforced(no_terminal),
    },
];

fn exit_codes(scene: &Fixture) -> CaseResult {
    for code in [0, 1, 42, 123, 124, 126, 255] {
        let ended = scene.shell(&[], &format!("exit {code}"))?;
        check(ended.code == Some(code) && ended.text("/outcome/kind") == "exited", || ended.said())?;
    }
    for signal in [9, 15, 11] {
        let ended = scene.shell(&[], &format!("kill -{signal} $$"))?;
        check(ended.code == Some(128 + signal) && ended.text("/outcome/kind") == "signalled", || ended.said())?;
    }
    let missing = scene.run(&[], &["no-such-program"])?;
    check(missing.code == Some(127), || missing.said())?;
    let file = scene.file("tree/plain", "not a program")?;
    let grant = format!("fs.read=[\"{}\"]", scene.work().join("tree").display());
    let plain = scene.run(&Fixture::values(&[&grant]), &[&file.to_string_lossy()])?;
    let told = plain.refusals().is_empty() && plain.text("/outcome/message").contains("may not be executed");
    check(plain.code == Some(126) && told, || plain.said())?;
    let usage = scene.product(&["run", "--no-such-flag"])?.end()?;
    check(usage.code == Some(125), || usage.said())
}

/// A quiet run by the backend that is tried.
fn by(scene: &Fixture) -> Vec<String> {
    let named = scene.named().into_iter().map(|word| word.to_string_lossy().into_owned());
    ["run", "-q", "--tier", scene.tier.as_str()].map(str::to_owned).into_iter().chain(named).collect()
}

fn descriptors(scene: &Fixture) -> CaseResult {
    let secret = scene.file("secret", "canary-8812")?;
    let probe = "cat <&7; ls /proc/self/fd 2>/dev/null | wc -l; true";
    let control = scene.control_shell(&format!("exec 7<{}; {probe}", secret.display()))?;
    check(control.out().contains("canary-8812"), || control.said())?;
    // `exec` in the shell leaves 7 open for the product, which must not pass it on.
    let product = product::binary()?;
    let by = by(scene);
    let script = format!(
        "exec 7<{}; exec {} {} -- /bin/bash -c 'cat <&7; echo over'",
        secret.display(),
        product.display(),
        by.join(" ")
    );
    let shell = scene.command("/bin/sh".as_ref(), &["-c", &script]);
    let ended = scene.begin_and_end(&shell)?;
    check(ended.out() == "over" && !ended.said().contains("canary-8812"), || ended.said())
}

fn stdin(scene: &Fixture) -> CaseResult {
    let (read, write) = sys::channel::pipe()?;
    let by = by(scene);
    let words = by.iter().map(String::as_str).chain(["--", "/bin/sh", "-c", "cat; echo over"]);
    let live = scene.product_with(&words.collect::<Vec<_>>(), read.as_fd())?;
    drop(read);
    let mut pipe = std::fs::File::from(write);
    pipe.write_all(b"from the caller\n")?;
    live.says("from the caller")?;
    drop(pipe);
    let ended = live.end()?;
    check(ended.out() == "from the caller\nover" && ended.code == Some(0), || ended.said())
}

/// `>/dev/stderr` is what scripts write, and log files of servers are links to.
fn by_name(scene: &Fixture) -> CaseResult {
    let script = "echo out >/dev/stdout && echo err >/dev/stderr && echo more >>/proc/self/fd/1";
    let ended = scene.shell(&[], script)?;
    let said = (ended.text("/stdout"), ended.text("/stderr"));
    check(ended.code == Some(0) && said == ("out\nmore\n", "err\n"), || ended.said())
}

/// Programs look: `rg` without a path searches what a pipe brings, and the folder otherwise.
fn no_input(scene: &Fixture) -> CaseResult {
    let look = "import os, stat; m = os.fstat(0); print('pipe' if stat.S_ISFIFO(m.st_mode) else m.st_rdev == os.makedev(1, 3))";
    let by = by(scene);
    let words: Vec<&str> =
        by.iter().map(String::as_str).chain(["--", "/usr/bin/python3", "-I", "-S", "-c", look]).collect();
    let nothing = scene.product(&words)?.end()?;
    check(nothing.out() == "True", || nothing.said())?;
    let (read, write) = sys::channel::pipe()?;
    let piped = scene.product_with(&words, read.as_fd())?;
    drop((read, write));
    let piped = piped.end()?;
    check(piped.out() == "pipe", || format!("the control: {}", piped.said()))
}

fn closed(scene: &Fixture) -> CaseResult {
    let product = product::binary()?.display().to_string();
    let tier = scene.tier.as_str();
    let mark = scene.dir("mark")?;
    let grant = format!("'fs.write=[\"{}\"]'", mark.display());
    for (number, closing) in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"].into_iter().enumerate() {
        let script = format!(
            "{product} run -q --tier {tier} --set {grant} --prefer limits.disk --prefer limits.files -- /bin/sh -c \
             'cat; echo out; echo err >&2; : > {}/{number}; exit 7' {closing}",
            mark.display()
        );
        let ended = scene.begin_and_end(&scene.command("/bin/sh".as_ref(), &["-c", &script]))?;
        check(ended.code == Some(7), || format!("{closing}: {}", ended.said()))?;
        check(there(&mark.join(number.to_string())), || format!("{closing}: the program did not run"))?;
    }
    Ok(())
}

fn long_arguments(scene: &Fixture) -> CaseResult {
    // One argument takes at most 128 KiB (MAX_ARG_STRLEN), so 16 of 64 KiB.
    let long = "x".repeat(64 << 10);
    let mut argv = vec!["/bin/sh", "-c", "cat /proc/self/cmdline | wc -c; echo $# ${#1}", "name"];
    argv.extend([long.as_str(); 16]);
    let control = scene.bare(&argv)?;
    let ended = scene.run(&[], &argv)?;
    check(ended.code == Some(0) && ended.out().ends_with("16 65536"), || ended.said().chars().take(400).collect())?;
    check(control.out().ends_with("16 65536"), || "the control lost some".to_owned())
}

fn too_long_arguments(scene: &Fixture) -> CaseResult {
    // 2 MiB are more than the kernel's quarter of the stack: the product itself cannot be started with them from a
    // shell, so they come as a script that builds them inside.
    let script = "import os
try: os.execv('/bin/true', ['true'] + ['x' * 65536] * 40)
except OSError as e: print('errno', e.errno)";
    let control = scene.control_python(script)?;
    let ended = scene.python(&[], script)?;
    check(ended.out() == control.out() && ended.out() == "errno 7", || ended.said())
}

const HANDLER: &str = "trap 'echo handled; exit 9' TERM; echo up; while :; do sleep 0.05; done";

fn forwarded(scene: &Fixture) -> CaseResult {
    let live = scene.start_passing(&["limits.wall=30s"], HANDLER)?;
    live.says("up")?;
    live.signal(15)?;
    let ended = live.end()?;
    check(ended.code == Some(9) && ended.out() == "up\nhandled", || ended.said())
}

fn insistent(scene: &Fixture) -> CaseResult {
    let live = scene.start_passing(&["limits.wall=60s"], "trap '' TERM INT; echo up; while :; do sleep 0.05; done")?;
    live.says("up")?;
    // Two that come while the supervisor does not run are one to it: three are sent so often that three are heard.
    let gone = conformance::live::until(std::time::Duration::from_secs(30), || {
        let sent = (0..3).all(|_| {
            conformance::live::pause(std::time::Duration::from_millis(60));
            live.signal(15).is_ok()
        });
        !sent || live.below().is_empty()
    });
    let ended = live.end()?;
    check(gone && ended.code != Some(124), || ended.said())
}

fn no_terminal(scene: &Fixture) -> CaseResult {
    let words = ["run", "-q", "-t", "--tier", scene.tier.as_str(), "--", "/bin/sh", "-c", "echo ran"];
    let ended = scene.product(&words)?.end()?;
    check(matches!(ended.code, Some(125 | 126)) && !ended.out().contains("ran"), || ended.said())
}
