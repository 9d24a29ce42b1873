//! Streams that are closed, full or gone.

use std::fs::File;
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
