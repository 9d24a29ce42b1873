//! The files of a live sandbox from outside: shown, taken, kept, and made again.

use crate::live::{Live, call};
use crate::{CommandOutput, Fixture};

/// Tier and mode of the workspace.
const LAYERED: [(&str, &str); 3] = [("container", "overlay"), ("container", "copy"), ("process", "copy")];

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    for (name, text) in [("kept", "old"), ("gone", "old"), ("deep/one", "old"), ("deep/two", "old")] {
        let path = fixture.path("work").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    fixture
}

fn create<'a>(fixture: &'a Fixture, (tier, mode): (&str, &str), more: &[&str]) -> Live<'a> {
    let workspace = format!(".:{mode}");
    let flags = [&["--tier", tier, "-w", &workspace, "--disk", "64M"], more].concat();
    Live::new(fixture, &flags)
}

/// Whether files can be read at one moment here; where not, each way to ask for it is refused by name.
#[expect(clippy::print_stdout, reason = "who reads the tests sees what was left out")]
fn freezes(live: &Live<'_>) -> bool {
    if call(live.fixture, &["pause", &live.id]).0 == 0 {
        assert_eq!(call(live.fixture, &["resume", &live.id]).0, 0);
        return true;
    }
    for command in ["diff", "apply", "snapshot", "fork"] {
        let (code, out, err) = call(live.fixture, &[command, &live.id]);
        assert!(code == 125 && out.is_empty() && err.contains("control group"), "{command}: {code} {out} {err}");
    }
    println!("skip: no freezer here");
    false
}

#[track_caller]
fn done(said: &CommandOutput) -> String {
    assert_eq!(said.code, 0, "{said:?}");
    said.out.trim_end().to_owned()
}

/// What a program sees of workspace, home folder and `/tmp`.
fn seen(live: &Live<'_>) -> String {
    let script =
        "find . | sort; cat kept deep/new; cat \"$HOME/mine\" \"${TMPDIR:-/tmp}/note\"; readlink link; stat -c %a tool";
    let (code, out, err) = live.exec(&[], &["sh", "-c", script]);
    assert_eq!(code, 0, "{err}");
    out
}

const WORK: &str = "echo new > kept; rm -r gone; rm deep/one; echo n > deep/new; ln -s kept link; echo x > tool; chmod 751 tool; \
                    echo home > \"$HOME/mine\"; echo tmp > \"${TMPDIR:-/tmp}/note\"";

#[test]
fn changes_are_shown_and_taken_while_it_goes_on_and_cannot_be_thrown_away() {
    for kind in LAYERED {
        let fixture = &fixture();
        let live = create(fixture, kind, &[]);
        if !freezes(&live) {
            continue;
        }
        let names = |expected: &[&str]| {
            let (code, out, err) = call(fixture, &["diff", "--names", &live.id]);
            assert_eq!(
                (code, out.lines().collect::<Vec<_>>()),
                (i32::from(!expected.is_empty()), expected.to_vec()),
                "{err}"
            );
        };
        names(&[]);
        assert_eq!(
            live.exec(&[], &["sh", "-c", "echo a > added; echo new > kept; rm gone; echo all: > Makefile"]).0,
            0
        );
        names(&["Makefile", "added", "gone", "kept"]);
        // Before it is taken, the host has what it had.
        assert_eq!(std::fs::read_to_string(fixture.path("work/kept")).unwrap(), "old");
        let (code, _, err) = call(fixture, &["discard", &live.id]);
        assert!(code == 125 && err.contains("fumehood kill"), "{code} {err}");
        // One that goes on does not keep the changes of others from being thrown away.
        assert_eq!(fixture.run(&["run", "-q", "-w", ".:copy", "--", "touch", "other"]).code, 0);
        let (code, _, err) = call(fixture, &["discard", "--all"]);
        assert!(code == 0 && err.contains("of 1 run are gone"), "{code} {err}");
        let (code, _, err) = call(fixture, &["apply", &live.id, "--digest", &"0".repeat(64)]);
        assert!(code == 1 && err.contains("that were shown"), "{code} {err}");
        let (code, _, err) = call(fixture, &["apply", &live.id, "--", "kept", "gone", "Makefile"]);
        assert!(code == 0 && err.contains("3 paths applied") && err.contains("! Makefile: executes: "), "{code} {err}");
        assert_eq!(std::fs::read_to_string(fixture.path("work/kept")).unwrap(), "new\n");
        assert!(!fixture.path("work/gone").exists() && !fixture.path("work/added").exists());
        names(&["added"]);
        // What was taken is recorded under the run, and the sandbox goes on.
        let events = call(fixture, &["audit", "show", "--json"]).1;
        assert_eq!(events.matches("workspace.applied").count(), 1, "{events}");
        assert_eq!(live.exec(&[], &["sh", "-c", "cat kept added; echo b > later"]).1, "new\na\n");
        // Somebody else's work is a conflict.
        std::fs::write(fixture.path("work/later"), "theirs").unwrap();
        let (code, _, err) = call(fixture, &["apply", &live.id]);
        assert!(code == 1 && err.contains("later"), "{code} {err}");
        assert_eq!(std::fs::read_to_string(fixture.path("work/later")).unwrap(), "theirs");
        assert_eq!(call(fixture, &["kill", &live.id]).0, 0);
        assert_eq!(call(fixture, &["discard", &live.id]).0, 0);
        names(&[]);
    }
}

#[test]
fn what_is_made_of_a_snapshot_is_what_that_was_and_its_own_from_then_on() {
    for kind in LAYERED {
        let fixture = &fixture();
        let live = create(fixture, kind, &["--label", "a=b", "--idle", "1h", "--env", "WORD=value-of-word"]);
        if !freezes(&live) {
            continue;
        }
        assert_eq!(live.exec(&[], &["sh", "-c", WORK]).0, 0);
        let before = seen(&live);
        let id = done(&fixture.run(&["snapshot", &live.id, "--name", "base"]));
        let (code, _, err) = call(fixture, &["snapshot", &live.id, "--name", "base"]);
        assert!(code == 125 && err.contains("a name stands for one snapshot") && !err.contains(&id), "{code} {err}");
        assert!(err.contains("something of this name is there already"), "{err}");
        assert!(call(fixture, &["snapshots"]).1.contains("base"));
        let listed = call(fixture, &["snapshots", "--json"]).1;
        assert!(listed.contains("base") && !listed.contains("value-of-word"), "{listed}");
        // What comes later is no part of it.
        assert_eq!(live.exec(&[], &["sh", "-c", "echo later > kept; touch more"]).0, 0);
        let other = Live::new(fixture, &["--from", "base", "--name", "other", "--timeout", "10m"]);
        assert_eq!(seen(&other), before, "{kind:?}");
        assert_eq!(
            other.exec(&[], &["sh", "-c", "echo $WORD; find . -newermt 2020-01-01 -name kept"]).1,
            "value-of-word\n./kept\n"
        );
        let info = other.info();
        assert_eq!((&info["name"], &info["tier"]), (&"other".into(), &kind.0.into()));
        assert_eq!((&info["idle_ms"], &info["labels"]), (&3_600_000.into(), &serde_json::Value::Null));
        assert!(info["ends_ms"].is_u64());
        assert_eq!(other.exec(&[], &["sh", "-c", "echo other > kept"]).0, 0);
        assert_eq!(live.exec(&[], &["cat", "kept"]).1, "later\n");
        let (_, changed, _) = call(fixture, &["diff", "--names", &other.id]);
        assert_eq!(changed, call(fixture, &["diff", "--names", &live.id]).1.replace("more\n", ""));
        done(&fixture.run(&["snapshots", "--rm", "base"]));
        assert_eq!(call(fixture, &["create", "--from", "base"]).0, 125);
        assert_eq!(call(fixture, &["snapshots", "--rm", "base"]).0, 125);
    }
}

/// Whether a `sleep` runs inside.
const SLEEPS: [&str; 3] = ["sh", "-c", "grep -qx sleep /proc/[0-9]*/comm"];

#[test]
fn a_fork_prints_an_id_a_line_and_leaves_no_snapshot() {
    let fixture = &fixture();
    let live = create(fixture, LAYERED[0], &["--name", "first", "--label", "a=b"]);
    if !freezes(&live) {
        return;
    }
    assert_eq!(live.exec(&[], &["sh", "-c", WORK]).0, 0);
    assert_eq!(live.exec(&["-d"], &["sleep", "600"]).0, 0);
    assert_eq!(live.exec(&[], &SLEEPS).0, 0);
    let ids = done(&fixture.run(&["fork", "first", "-n", "2"]));
    let forks: Vec<Live<'_>> = ids.lines().map(|id| Live { fixture, id: id.to_owned() }).collect();
    assert_eq!(forks.len(), 2);
    for fork in &forks {
        assert_eq!(seen(fork), seen(&live));
        let info = fork.info();
        assert!(info["name"].is_null() && info["labels"].is_null(), "{info}");
        assert_eq!(info["policy"], live.info()["policy"]);
        assert_eq!(fork.exec(&[], &SLEEPS).0, 1, "programs do not go along");
    }
    assert_eq!(fixture.run(&["snapshots", "--json"]).json()["snapshots"], serde_json::json!([]));
    assert_eq!(call(fixture, &["fork", "first", "-n", "0"]).0, 125);
}

#[test]
fn a_snapshot_that_does_not_fit_ends_the_new_sandbox_and_says_why() {
    let fixture = &fixture();
    let live = create(fixture, LAYERED[0], &[]);
    if !freezes(&live) {
        return;
    }
    assert_eq!(live.exec(&[], &["sh", "-c", "head -c 8000000 /dev/urandom > large"]).0, 0);
    done(&fixture.run(&["snapshot", &live.id, "--name", "large"]));
    let alone = |code: i32, flags: &[&str], words: &str| {
        let said = fixture.run(&[&["create", "--from", "large"], flags].concat());
        assert!(said.code == code && said.out.is_empty() && said.err.contains(words), "{flags:?} {said:?}");
        assert_eq!(fixture.run(&["ps", "--json"]).json()["sandboxes"].as_array().unwrap().len(), 1);
    };
    // No room: it ends while it is filled.
    alone(125, &["--disk", "1M"], "did not become");
    alone(126, &["--tier", "process", "-w", ".:copy"], "tier");
    alone(126, &["-w", ".:ro"], "no layer");
    alone(125, &["--template", "base"], "--template");
    // The control: with room it is made.
    let made = Live::new(fixture, &["--from", "large"]);
    assert_eq!(made.exec(&[], &["stat", "-c", "%s", "large"]).1, "8000000\n");
    // From another folder a relative path would be another one.
    std::fs::create_dir(fixture.path("work/elsewhere")).unwrap();
    let from = |flags: &[&str]| {
        let mut command = fixture.command(&[&["create", "--from", "large"], flags].concat());
        fixture.said(&command.current_dir(fixture.path("work/elsewhere")).output().unwrap())
    };
    let said = from(&["-w", ".:copy"]);
    assert!(said.code == 125 && said.err.contains("another folder"), "{said:?}");
    let made = Live { fixture, id: done(&from(&["--timeout", "1m"])) };
    assert_eq!(made.exec(&[], &["cat", "kept"]).1, "old");
}

#[test]
fn changes_of_one_without_a_workspace_are_no_fault_of_the_host() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &[]);
    let (code, _, err) = call(fixture, &["diff", &live.id]);
    assert!(code == 125 && err.contains("it has no workspace") && err.contains("-w PATH"), "{err}");
    assert!(!err.contains("doctor"), "{err}");
}
