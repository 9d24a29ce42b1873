//! Streams that are closed, full or gone.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use crate::Fixture;

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let fixture = Fixture::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = fixture.command(&["explain"]).stdout(OwnedFd::from(writer)).output().unwrap();
    fixture.said(&output).is(0, "", "");
}

#[test]
fn nobody_reading_our_words_does_not_change_the_code() {
    let fixture = Fixture::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = fixture.command(&["explain", "nope"]).stderr(OwnedFd::from(writer)).status().unwrap();
    assert_eq!(status.code(), Some(125));
}

#[test]
fn a_full_disk_under_stdout_is_told() {
    let fixture = Fixture::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = fixture.command(&["explain"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let said = fixture.said(&output);
    assert_eq!(said.code, 125);
    assert!(said.err.contains("error: cannot write to stdout"), "{}", said.err);
}

#[test]
fn closed_streams_do_no_harm() {
    let fixture = Fixture::new();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let script = format!("\"$1\" explain usage/no-program {closed}; \"$1\" explain nope {closed}; echo $?");
        let output = crate::script(&script, &fixture).output().unwrap();
        let said = fixture.said(&output);
        assert!(said.out.ends_with("125\n"), "{closed}: {said:?}");
        assert!(!said.err.contains("panicked"), "{said:?}");
    }
}

#[test]
fn a_command_line_of_two_mebibytes_is_taken() {
    let fixture = Fixture::new();
    let long = "x".repeat(128 * 1024 - 1);
    let args: Vec<&str> = std::iter::once("explain").chain(std::iter::repeat_n(long.as_str(), 14)).collect();
    let said = fixture.run(&args);
    assert_eq!(said.code, 125);
    assert_eq!(said.err.matches("one word too many").count(), 13);
}

#[test]
fn output_that_cannot_be_handed_on_is_told() {
    let fixture = Fixture::new();
    let said = fixture.said(&crate::script("\"$1\" run -q -- echo lost >/dev/full", &fixture).output().unwrap());
    assert_eq!(said.code, 125, "{said:?}");
    assert!(said.err.contains("what the program wrote to stdout could not all be handed on"), "{said:?}");
    // A reader that has enough is no failure.
    let said = fixture.said(&crate::script("\"$1\" run -q -- yes | head -1", &fixture).output().unwrap());
    said.is(0, "y\n", "");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "signals are sent until the run heeds one")]
fn a_reader_that_never_reads_does_not_make_a_run_deaf() {
    let fixture = Fixture::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = fixture.command(&["run", "-q", "--", "head", "-c", "200000", "/dev/zero"]);
    let mut child = command.stdout(OwnedFd::from(writer)).stderr(Stdio::null()).spawn().unwrap();
    // A signal that came before there is more than the pipe holds would end a program that lost nothing.
    let full = || rustix::io::ioctl_fionread(&reader).is_ok_and(|held| held >= 60_000);
    for _ in 0..1200 {
        if full() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(full(), "it wrote nothing");
    let ended = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        child.try_wait().unwrap()
    });
    child.kill().unwrap();
    assert_eq!(ended.map(|status| status.code()), Some(Some(125)), "what was lost is told");
    drop(reader);
}

/// Both streams lead to one pipe that nobody reads: of its last page `poll` says twice that there is room.
#[test]
#[expect(clippy::disallowed_methods, reason = "what ends by itself, and when, is what is tested")]
fn limits_are_held_while_nobody_reads_the_one_pipe_of_both_streams() {
    let fixture = Fixture::new();
    for before in [0, 4096, 8192] {
        let (reader, writer) = std::io::pipe().unwrap();
        let own = format!("4{}.{}", std::process::id(), before);
        let program = format!(
            "head -c {before} /dev/zero; (head -c 300000 /dev/zero &); (head -c 300000 /dev/zero >&2 &); exec sleep {own}"
        );
        let mut command = fixture.command(&["run", "-q", "--timeout", "1s", "--", "sh", "-c", &program]);
        command.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut child = command.spawn().unwrap();
        drop(command);
        let is_there = || {
            std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
                std::fs::read(process.path().join("cmdline"))
                    .is_ok_and(|line| line == format!("sleep\0{own}\0").as_bytes())
            })
        };
        let begun = std::time::Instant::now();
        let mut ran = false;
        while (!ran || is_there()) && begun.elapsed() < Duration::from_secs(30) {
            ran = ran || is_there();
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(ran && !is_there(), "{before}: nobody ended it");
        let read = std::thread::spawn(move || std::io::copy(&mut { reader }, &mut std::io::sink()));
        assert_eq!(child.wait().unwrap().code(), Some(124));
        assert!(read.join().unwrap().unwrap() > 0);
    }
}

/// Ctrl-Z is for the program that one types to: who is stopped holds no limit.
#[test]
#[expect(clippy::disallowed_methods, reason = "the time that passes is what is tested")]
fn a_supervisor_is_not_stopped_from_a_terminal() {
    let fixture = Fixture::new();
    for number in [rustix::process::Signal::TSTP, rustix::process::Signal::TTIN, rustix::process::Signal::TTOU] {
        let mut command = fixture.command(&["run", "-q", "--timeout", "1s", "--", "sh", "-c", "echo; exec sleep 30"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), number).unwrap();
        let begun = std::time::Instant::now();
        while child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let ended = child.try_wait().unwrap();
        drop(child.kill());
        assert_eq!(ended.and_then(|ended| ended.code()), Some(124), "{number:?}");
    }
}
