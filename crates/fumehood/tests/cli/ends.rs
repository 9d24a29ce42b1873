//! A program that has run, and something of ours that fails afterwards: the report is told all the same, what failed is said,
//! and the exit code is 125.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::{CommandOutput, Fixture};

/// A run that ends when `meanwhile` has been done to its state folder.
#[expect(clippy::disallowed_methods, reason = "what it waits for is a line in a file, and the run waits for the test")]
fn run(fixture: &Fixture, flags: &[&str], meanwhile: impl FnOnce(&Path)) -> CommandOutput {
    let program = ["--", "sh", "-c", "cat; echo ran; exit 3"];
    let mut command = fixture.command(&[&["run", "-w", ".:copy"], flags, &program].concat());
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let log = fixture.state().join("audit/audit.jsonl");
    while !std::fs::read_to_string(&log).is_ok_and(|text| text.contains("run.started")) {
        assert_eq!(child.try_wait().unwrap(), None, "it waits for its input");
        std::thread::sleep(Duration::from_millis(5));
    }
    meanwhile(&fixture.state());
    drop(child.stdin.take());
    fixture.said(&child.wait_with_output().unwrap())
}

/// Nobody can write to a log whose place a folder has taken, root neither.
fn no_log(state: &Path) {
    let log = state.join("audit/audit.jsonl");
    std::fs::rename(&log, state.join("audit/aside")).unwrap();
    std::fs::create_dir(log).unwrap();
}

#[track_caller]
fn is_told(report: &Value, id: &str) {
    assert_eq!((&report["outcome"]["kind"], &report["outcome"]["code"]), (&"exited".into(), &3.into()), "{report:#}");
    assert!(report["usage"]["wall"].is_number() && report["enforcers"][0].is_object(), "{report:#}");
    let faults = report["errors"].as_array().unwrap();
    assert_eq!(faults.len(), 1, "{report:#}");
    assert_eq!(faults[0]["id"], id, "{report:#}");
}

fn written(fixture: &Fixture, name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture.path("work").join(name)).unwrap()).unwrap()
}

#[test]
fn a_log_that_fails_at_the_end_does_not_lose_the_report() {
    let fixture = Fixture::new();
    let said = run(&fixture, &[], no_log);
    assert_eq!((said.code, said.out.as_str()), (125, "ran\n"), "{said:?}");
    assert!(said.err.starts_with("exited: the program exited with 3 ("), "{said:?}");
    assert!(
        said.err.contains("used:") && said.err.contains("error: ") && said.err.contains("it is a directory"),
        "{said:?}"
    );

    let fixture = Fixture::new();
    let said = run(&fixture, &["--json"], no_log);
    assert_eq!(said.code, 125);
    let report = said.json();
    is_told(&report, "audit/not-writable");
    assert_eq!((&report["stdout"], &report["audit"]["seq"]), (&"ran\n".into(), &0.into()));

    let fixture = Fixture::new();
    let said = run(&fixture, &["-q", "--report", "report.json"], no_log);
    assert_eq!(said.code, 125);
    assert!(said.err.starts_with("error: "), "also when quiet: {said:?}");
    is_told(&written(&fixture, "report.json"), "audit/not-writable");
}

#[test]
fn changes_that_cannot_be_kept_do_not_lose_the_report() {
    let fixture = Fixture::new();
    let said = run(&fixture, &["--json"], |state| {
        std::fs::remove_dir_all(state.join("changes")).unwrap_or_default();
        std::fs::write(state.join("changes"), "").unwrap();
    });
    assert_eq!(said.code, 125, "{said:?}");
    let report = said.json();
    assert_eq!(report["outcome"]["code"], 3, "{report:#}");
    assert!(report["errors"][0]["what"].as_str().unwrap().contains("changes"), "{report:#}");
    // The log is whole, and says how it ended.
    let log = fixture.run(&["audit", "show", "--json"]).json();
    assert_eq!(log["events"].as_array().unwrap().last().unwrap()["kind"], "run.ended");
}

#[test]
fn a_report_that_cannot_be_written_is_told_on_the_other_ways() {
    let fixture = Fixture::new();
    let said = run(&fixture, &["--report", "/dev/full"], |_| {});
    assert_eq!((said.code, said.out.as_str()), (125, "ran\n"), "{said:?}");
    assert!(said.err.starts_with("exited: the program exited with 3 ("), "{said:?}");
    assert!(said.err.contains("error: the report cannot be written to `/dev/full`"), "{said:?}");
    let said = run(&Fixture::new(), &["--json", "--report", "/dev/full"], |_| {});
    assert_eq!(said.code, 125);
    is_told(&said.json(), "run/report-unwritable");
}

#[test]
fn a_full_disk_behind_stdout_leaves_the_report_where_it_was_written() {
    for flags in [&["--report", "report.json"][..], &["--json", "--report", "report.json"]] {
        let fixture = Fixture::new();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let program = ["--", "sh", "-c", "echo lost; exit 3"];
        let mut command = fixture.command(&[&["run"], flags, &program].concat());
        let mut child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(125), "{err}");
        assert!(err.contains("error: "), "{err}");
        let report = written(&fixture, "report.json");
        assert_eq!(
            (&report["outcome"]["kind"], &report["outcome"]["code"]),
            (&"exited".into(), &3.into()),
            "{report:#}"
        );
    }
}

#[test]
fn no_folder_hides_what_is_written_from_the_limit_of_disk() {
    // Deep, with a path that no system call takes, and one that only its owner's open descriptors can look into.
    let ways =
        ["mkdir('d'); os.chdir('d')", "mkdir('d' * 200); os.chdir('d' * 200)", "mkdir('d', 0o300); os.chdir('d')"];
    for way in ways {
        let code = format!(
            "import os, time\nos.chdir(os.environ['TMPDIR'])\nfor i in range(70): os.{way}\nfor i in range(40):\n    \
             open(f'{{i}}', 'wb').write(bytes(1 << 20))\n    time.sleep(0.05)"
        );
        let args = ["run", "--json", "--tier", "process", "--disk", "8M", "--", "python3", "-c", &code];
        let report = Fixture::new().run(&args).json();
        assert_eq!(report["outcome"]["limit"], "disk", "{way}: {report}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the time that passes is what is tested")]
fn a_supervisor_that_was_stopped_past_the_wall_limit_tells_the_end_that_there_was() {
    let fixture = Fixture::new();
    let program = ["--timeout", "2s", "--", "sh", "-c", "echo; sleep 0.5; exit 7"];
    let mut command = fixture.command(&[&["run", "-q"][..], &program].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let supervisor = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(supervisor, rustix::process::Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(2300));
    rustix::process::kill_process(supervisor, rustix::process::Signal::CONT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
}
