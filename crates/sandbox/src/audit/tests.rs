//! The log under attack, under load and after a crash.
#![expect(clippy::disallowed_methods, reason = "these tests start themselves again as other processes")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use policy::value::Sync;
use serde_json::json;

use super::*;
use crate::state::{Places, State};

struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn state(&self) -> State {
        open_state(self.folder.path())
    }

    fn log(&self) -> Log {
        Log::open(&self.state(), None, quick()).unwrap()
    }

    fn active(&self) -> PathBuf {
        self.folder.path().join("state/audit/audit.jsonl")
    }

    fn verdict(&self) -> Verdict {
        verify(&self.state(), None, None).unwrap()
    }

    fn broken_at(&self) -> u64 {
        self.verdict().broken.expect("a broken log").seq
    }

    /// A log of `count` events.
    fn filled(count: u64) -> Self {
        let home = Self::new();
        let log = home.log();
        for i in 0..count {
            log.append("r-1", &Kind::run_started(), &json!({ "i": i })).unwrap();
        }
        home
    }

    fn edit(&self, change: impl FnOnce(Vec<String>) -> Vec<String>) {
        let text = std::fs::read_to_string(self.active()).unwrap();
        let lines = change(text.lines().map(str::to_owned).collect());
        std::fs::write(self.active(), lines.into_iter().map(|l| l + "\n").collect::<String>()).unwrap();
    }
}

fn open_state(folder: &std::path::Path) -> State {
    let places = Places {
        fumehood_state: Some(folder.join("state")),
        euid: rustix::process::geteuid().as_raw(),
        ..Places::default()
    };
    State::open(&places).unwrap()
}

fn quick() -> Options {
    Options { sync: Sync::None, ..Options::default() }
}

#[test]
fn a_chain_of_events_verifies_and_goes_on_after_reopening() {
    let home = Home::filled(3);
    let pointer = home.log().append("r-2", &Kind::run_ended(), &json!({})).unwrap();
    let verdict = home.verdict();
    assert_eq!((pointer.seq, verdict.events, verdict.broken), (4, 4, None));
    assert_eq!(verdict.head, pointer.hash);
    let mode = |p: PathBuf| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(home.active()), mode(home.folder.path().join("state"))), (0o600, 0o700));
}

#[test]
fn an_edited_middle_event_is_found_and_named() {
    let home = Home::filled(9);
    home.edit(|lines| lines.into_iter().map(|l| l.replace("\"i\":4}", "\"i\":5}")).collect());
    assert_eq!(home.broken_at(), 5);
}

#[test]
fn an_edit_with_its_hash_computed_again_is_found_at_the_next_event() {
    let home = Home::filled(9);
    home.edit(|mut lines| {
        let old = Event::parse(lines[4].as_bytes()).unwrap();
        let forged =
            event::Unsealed { seq: 5, time: &old.time, run: &old.run, kind: &old.kind, body: "{}", prev: &old.prev };
        lines[4] = forged.seal().0.trim_end().to_owned();
        lines
    });
    assert_eq!(home.broken_at(), 6);
}

#[test]
fn a_removed_a_moved_and_a_repeated_event_are_found() {
    for (change, bad) in [
        (
            (|mut l: Vec<String>| {
                l.remove(3);
                l
            }) as fn(Vec<String>) -> Vec<String>,
            4,
        ),
        (
            |mut l| {
                l.swap(2, 6);
                l
            },
            3,
        ),
        (
            |mut l| {
                let again = l[5].clone();
                l.insert(6, again);
                l
            },
            7,
        ),
        (
            |mut l| {
                l.remove(0);
                l
            },
            1,
        ),
    ] {
        let home = Home::filled(9);
        home.edit(change);
        assert_eq!(home.broken_at(), bad);
    }
}

#[test]
fn a_truncation_past_a_checkpoint_is_found_even_if_the_log_is_gone() {
    let home = Home::filled(9);
    assert_eq!(home.log().checkpoint().unwrap().unwrap().seq, 9);
    assert_eq!(home.verdict().sealed_to, 9);
    home.edit(|mut lines| {
        lines.truncate(6);
        lines
    });
    assert_eq!(home.broken_at(), 7);
    std::fs::remove_file(home.active()).unwrap();
    assert_eq!(home.broken_at(), 1);
}

#[test]
fn a_checkpoint_is_signed_about_every_so_many_events_but_never_before_go() {
    let home = Home::filled(CHECKPOINT_EVERY + 3);
    assert_eq!(home.verdict().checkpoints, 0, "run.started waits for nothing");
    let log = home.log();
    for _ in 0..2 * CHECKPOINT_EVERY {
        log.append("r", &Kind::run_ended(), &json!({})).unwrap();
    }
    let verdict = home.verdict();
    assert_eq!((verdict.checkpoints, verdict.sealed_to, verdict.broken), (3, 3 * CHECKPOINT_EVERY, None));
}

#[test]
fn a_young_log_is_signed_at_its_first_end_and_whenever_it_has_doubled() {
    let home = Home::filled(2);
    assert_eq!(home.verdict().checkpoints, 0, "nothing before go is signed");
    let log = home.log();
    let sealed: Vec<u64> = (3..=30)
        .map(|_| {
            log.append("r", &Kind::run_ended(), &json!({})).unwrap();
            home.verdict().sealed_to
        })
        .collect();
    let expected: Vec<u64> =
        (3..=30_u64).map(|seq| [24, 12, 6, 3].into_iter().find(|sealed| seq >= *sealed).unwrap()).collect();
    assert_eq!(sealed, expected);
    home.edit(|mut lines| {
        lines.truncate(20);
        lines
    });
    assert_eq!(home.broken_at(), 21, "what was cut off is missed");
}

#[test]
fn a_log_rewritten_from_the_start_is_found_by_its_checkpoint() {
    let home = Home::filled(5);
    home.log().checkpoint().unwrap();
    std::fs::remove_file(home.active()).unwrap();
    let log = home.log();
    for _ in 0..7 {
        log.append("", &Kind::gc(), &json!("forged")).unwrap();
    }
    assert_eq!(home.broken_at(), 5);
}

#[test]
fn a_forged_checkpoint_and_one_by_another_key_are_found() {
    let home = Home::filled(5);
    home.log().checkpoint().unwrap();
    let keys = home.folder.path().join("state/keys");
    let file = std::fs::read_dir(&keys)
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.extension().is_some_and(|e| e == "jsonl"));
    let file = file.unwrap();
    let good = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, good.replace("\"seq\":5", "\"seq\":4")).unwrap();
    assert!(home.verdict().broken.unwrap().why.contains("signature"));
    std::fs::write(&file, &good).unwrap();
    assert_eq!(home.verdict().broken, None);
    let other = verify(&home.state(), None, Some(&"ab".repeat(32))).unwrap();
    assert!(other.broken.unwrap().why.contains("another key"));
    let mode = std::fs::metadata(keys.join("audit.key")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let home = Home::filled(1);
    home.log().checkpoint().unwrap();
    let key = home.folder.path().join("state/keys/audit.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(home.log().checkpoint(), Err(AuditError::Key { .. })));
}

#[test]
fn rotation_carries_the_chain_over_and_a_missing_file_is_found() {
    let home = Home::new();
    let log = Log::open(&home.state(), None, Options { rotate_at: 4096, ..quick() }).unwrap();
    for i in 0..60 {
        log.append("r", &Kind::run_started(), &json!({ "i": i })).unwrap();
    }
    let state = home.state();
    let files = archives(&state.audit().unwrap()).unwrap();
    assert!(files.len() > 2, "{files:?}");
    let verdict = home.verdict();
    assert_eq!((verdict.events, verdict.broken), (60, None));
    assert_eq!(verdict.sealed_to, files.last().unwrap().0);
    assert_eq!(show(&state, None, &Filter { limit: Some(50), ..Filter::default() }).unwrap().len(), 50);
    let first = files[0].0;
    std::fs::remove_file(home.folder.path().join("state/audit").join(&files[1].1)).unwrap();
    assert_eq!(home.broken_at(), first + 1);
}

#[test]
fn a_crash_between_rotation_and_the_next_event_keeps_the_chain() {
    let home = Home::filled(5);
    let audit = home.folder.path().join("state/audit");
    std::fs::rename(home.active(), audit.join(archive_name(5))).unwrap();
    home.log().append("", &Kind::gc(), &json!(1)).unwrap();
    assert_eq!((home.verdict().events, home.verdict().broken), (6, None));
}

#[test]
fn a_torn_last_line_is_cut_off_and_that_is_recorded() {
    let home = Home::filled(4);
    let whole = std::fs::metadata(home.active()).unwrap().len();
    for torn in [&b"{\"body\":{\"i\""[..], &[0; 9000], b"x"] {
        let before = home.verdict().events;
        OpenOptions::new().append(true).open(home.active()).unwrap().write_all(torn).unwrap();
        assert_eq!((home.verdict().torn, home.verdict().broken), (torn.len() as u64, None));
        home.log().append("", &Kind::gc(), &json!(1)).unwrap();
        let verdict = home.verdict();
        assert_eq!((verdict.events, verdict.torn, verdict.broken), (before + 2, 0, None));
    }
    assert!(std::fs::metadata(home.active()).unwrap().len() > whole);
    let told = show(&home.state(), None, &Filter { kind: Some("audit".into()), ..Filter::default() }).unwrap();
    assert_eq!(told.iter().map(|e| e.body["bytes"].as_u64().unwrap()).collect::<Vec<_>>(), [12, 9000, 1]);
}

#[test]
fn a_whole_last_line_that_is_no_event_refuses_the_run() {
    let home = Home::filled(2);
    OpenOptions::new().append(true).open(home.active()).unwrap().write_all(b"hello\n").unwrap();
    let error = Log::open(&home.state(), None, quick()).unwrap_err();
    assert!(matches!(error, AuditError::Damaged { .. }), "{error:?}");
    assert!(error.fault().fix.contains("audit verify"));
}

#[test]
fn a_log_that_is_a_link_or_a_pipe_is_refused_without_hanging() {
    let home = Home::new();
    let audit = home.folder.path().join("state/audit");
    drop(home.state().audit().unwrap());
    std::os::unix::fs::symlink("/dev/null", audit.join("audit.jsonl")).unwrap();
    assert!(matches!(Log::open(&home.state(), None, quick()), Err(AuditError::Write { .. })));
    std::fs::remove_file(home.active()).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, home.active(), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    assert!(matches!(Log::open(&home.state(), None, quick()), Err(AuditError::Write { .. })));
}

#[test]
fn a_full_disk_is_an_error_and_leaves_no_half_event() {
    let home = Home::new();
    let audit = home.folder.path().join("state/audit");
    drop(home.state().audit().unwrap());
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k,mode=0700", "none"]).arg(&audit).status().unwrap();
    assert!(mounted.success(), "these tests run under scripts/private-mounts");
    let log = home.log();
    let mut good = 0;
    let error = loop {
        match log.append("r", &Kind::run_started(), &json!({ "text": "x".repeat(3000) })) {
            Ok(_) => good += 1,
            Err(error) => break error,
        }
        assert!(good < 100);
    };
    let verdict = home.verdict();
    let fault = error.fault();
    drop(log);
    assert!(Command::new("umount").arg(&audit).status().unwrap().success());
    assert_eq!((verdict.events, verdict.torn, verdict.broken), (good, 0, None));
    assert!(fault.why.contains("full") && fault.fix.contains("FUMEHOOD_STATE"), "{fault}");
}

#[test]
fn show_filters_by_run_kind_and_time_and_tail_sees_what_comes() {
    let home = Home::filled(3);
    let log = home.log();
    let state = home.state();
    let mut follow = Follow::new(&state, None, Filter::default()).unwrap();
    assert_eq!(follow.next_within(Duration::ZERO).unwrap(), None);
    log.append("r-2", &Kind::parse("tool.denied").unwrap(), &json!({})).unwrap();
    assert_eq!(follow.next_within(Duration::from_secs(60)).unwrap().unwrap().kind, "tool.denied");
    let count = |filter: Filter| show(&state, None, &filter).unwrap().len();
    assert_eq!(count(Filter { run: Some("r-2".into()), ..Filter::default() }), 1);
    assert_eq!(count(Filter { kind: Some("run".into()), ..Filter::default() }), 3);
    assert_eq!(count(Filter { kind: Some("ru".into()), ..Filter::default() }), 0);
    assert_eq!(count(Filter { since: Some("2100-01-01T00:00:00Z".parse().unwrap()), ..Filter::default() }), 0);
    assert_eq!(count(Filter { since: Some("2000-01-01T00:00:00Z".parse().unwrap()), ..Filter::default() }), 4);
}

#[test]
fn redaction_covers_the_name_of_the_run_too() {
    let home = Home::new();
    let options = Options { redact: Redactor::new(&["s3cret".into()]), ..quick() };
    let log = Log::open(&home.state(), None, options).unwrap();
    log.append("s3cret", &Kind::gc(), &json!({ "a": "xs3crety\u{1b}" })).unwrap();
    let text = std::fs::read_to_string(home.active()).unwrap();
    assert!(!text.contains("s3cret") && text.contains("x[redacted]y\\\\u{1b}"), "{text}");
}

#[test]
fn batch_syncs_when_the_last_one_is_old_and_never_before_go() {
    let home = Home::new();
    let marker = home.folder.path().join("state/audit/synced");
    let log = Log::open(&home.state(), None, Options::default()).unwrap();
    log.append("r", &Kind::run_planned(), &json!({})).unwrap();
    assert!(std::fs::metadata(&marker).is_err());
    log.append("r", &Kind::run_ended(), &json!({})).unwrap();
    let first = std::fs::metadata(&marker).unwrap().modified().unwrap();
    let old = first - Duration::from_secs(60);
    OpenOptions::new().write(true).open(&marker).unwrap().set_modified(old).unwrap();
    log.append("r", &Kind::run_ended(), &json!({})).unwrap();
    assert!(std::fs::metadata(&marker).unwrap().modified().unwrap() > old);
}

const ROLE: &str = "FUMEHOOD_TEST_APPENDER";

/// Starts this test program again as another process that appends until it is ended or has `count` events.
fn appender(home: &Home, count: u64) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "audit::tests::appender_process", "--ignored", "--nocapture"])
        .env(ROLE, format!("{count} {}", home.folder.path().display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "started by other tests as a process of its own"]
fn appender_process() {
    let role = std::env::var(ROLE).unwrap();
    let (count, folder) = role.split_once(' ').unwrap();
    let log =
        Log::open(&open_state(std::path::Path::new(folder)), None, Options { rotate_at: 40_000, ..quick() }).unwrap();
    for i in 0..count.parse().unwrap() {
        log.append("r", &Kind::run_started(), &json!({ "pid": std::process::id(), "i": i, "pad": "x".repeat(200) }))
            .unwrap();
    }
}

#[test]
fn thirty_two_processes_and_eight_threads_append_at_once() {
    let home = Home::new();
    let log = home.log();
    let mut others: Vec<_> = (0..32).map(|_| appender(&home, 20)).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).for_each(|i| drop(log.append("t", &Kind::gc(), &json!(i)).unwrap())));
            scope.spawn(|| {
                let own = home.log();
                (0..20).for_each(|i| drop(own.append("t", &Kind::gc(), &json!(i)).unwrap()));
            });
        }
    });
    assert!(others.iter_mut().all(|child| child.wait().unwrap().success()));
    let verdict = home.verdict();
    assert_eq!((verdict.events, verdict.broken), (40 * 20, None));
    assert!(!archives(&home.state().audit().unwrap()).unwrap().is_empty());
}

#[test]
fn kill_minus_nine_in_the_middle_of_appends_breaks_nothing() {
    let home = Home::new();
    for round in 0..12_u64 {
        let mut child = appender(&home, 1_000_000);
        let patience = Instant::now();
        let before = home.verdict().events;
        while home.verdict().events <= before + round && patience.elapsed() < Duration::from_secs(120) {}
        child.kill().unwrap();
        child.wait().unwrap();
        home.log().append("", &Kind::gc(), &json!(round)).unwrap();
        let verdict = home.verdict();
        assert_eq!(verdict.broken, None);
        assert!(verdict.events > before);
    }
}

#[test]
fn a_write_torn_at_any_byte_is_recovered() {
    let home = Home::filled(2);
    let whole = std::fs::read(home.active()).unwrap();
    let first = whole.iter().position(|&b| b == b'\n').unwrap() + 1;
    for cut in (first..whole.len()).step_by(7) {
        std::fs::write(home.active(), &whole[..cut]).unwrap();
        let log = home.log();
        // Of a kind that never signs: what is written here again and again was signed otherwise.
        log.append("", &Kind::run_started(), &json!(cut)).unwrap();
        assert_eq!(home.verdict().broken, None, "cut at {cut}");
    }
    let file = OpenOptions::new().write(true).open(home.active()).unwrap();
    file.write_all_at(b"X", 30).unwrap();
    assert_eq!(home.broken_at(), 1);
}

#[test]
#[ignore = "a measurement"]
fn measure_one_append() {
    let home = Home::new();
    let body = json!({ "policy": "strict", "tier": "container", "enforcers": ["cgroup-v1:memory", "seccomp", "netns"], "digest": "0".repeat(64) });
    let state = home.state();
    home.log().append("r", &Kind::run_started(), &body).unwrap();
    let rounds = 3000;
    let begin = Instant::now();
    for _ in 0..rounds {
        drop(Log::open(&state, None, quick()).unwrap());
    }
    let open = begin.elapsed() / rounds;
    let log = home.log();
    let begin = Instant::now();
    for _ in 0..rounds {
        log.append("r-20261122-013045-7f3a9c", &Kind::run_started(), &body).unwrap();
    }
    println!("open {open:?}, append {:?}", begin.elapsed() / rounds);
}
