//! Output, rates, idle time, thresholds.

use conformance::case::{EVERY, GUEST};
use conformance::{Case, CaseResult, Cell, Fixture, check};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::LimitsOutput,
        backends: EVERY,
        sentence: "head and tail are kept, the rest is counted",
        cell: Cell::Enforced(cut),
    },
    Case {
        clause: ClauseId::LimitsOver,
        backends: EVERY,
        sentence: "`kill` ends the run at the limit",
        cell: Cell::Enforced(kill),
    },
    Case {
        clause: ClauseId::LimitsOver,
        backends: EVERY,
        sentence: "`cut` lets the program end by itself",
        cell: Cell::Enforced(cut),
    },
    Case {
        clause: ClauseId::LimitsIoRead,
        backends: GUEST,
        sentence: "a rate is held by the controller, or refused without one",
        cell: Cell::Controller("io", &["limits.io_read=4M/s"], "limits.io_read/no-controller", io_read),
    },
    Case {
        clause: ClauseId::LimitsIoWrite,
        backends: GUEST,
        sentence: "a rate is held by the controller, or refused without one",
        cell: Cell::Controller("io", &["limits.io_write=4M/s", MISTAKES], "limits.io_write/no-controller", io_write),
    },
    Case {
        clause: ClauseId::LimitsIdle,
        backends: EVERY,
        sentence: "a single run does not idle: refused",
        cell: Cell::Refused(&["limits.idle=10s"], "limits.idle/no-live"),
    },
    Case {
        clause: ClauseId::LimitsWarn,
        backends: EVERY,
        sentence: "usage above it is told, and the run goes on",
        cell: Cell::Enforced(warn),
    },
    Case {
        clause: ClauseId::LimitsKill,
        backends: EVERY,
        sentence: "usage above it ends the run with a reason of its own",
        cell: Cell::Enforced(threshold),
    },
];

/// Groups of the older kind do not count what is written later, so that a hostile program hides there.
const MISTAKES: &str = "threat=mistakes";

const CHATTER: &str = "echo head; i=0; while [ $i -lt 2000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; echo tail; exit 3";

fn cut(scene: &Fixture) -> CaseResult {
    let room = scene.shell(&["limits.output=1M"], CHATTER)?;
    check(room.code == Some(3) && room.out().len() > 80_000, || room.said())?;
    let ended = scene.shell(&["limits.output=8K"], CHATTER)?;
    check(ended.code == Some(3) && ended.out().len() <= 8192 + 256, || {
        format!("{} {}", ended.out().len(), ended.said())
    })?;
    check(ended.out().starts_with("head\n") && ended.out().ends_with("tail"), || ended.said())?;
    let told = ended.report.get("cut") == Some(&true.into()) && ended.number("/dropped") > 70_000.0;
    check(told, || ended.said())
}

fn kill(scene: &Fixture) -> CaseResult {
    let ended = scene.shell(&["limits.output=8K", "limits.over=kill"], &format!("{CHATTER}; sleep 20"))?;
    // The shell itself would have ended with 3.
    let script = CHATTER.replace("exit 3", "sleep 20");
    let waiting = scene.shell(&["limits.output=8K", "limits.over=kill"], &script)?;
    check(waiting.code == Some(124) && waiting.limit() == "output", || waiting.said())?;
    check(matches!(ended.code, Some(3 | 124)), || ended.said())
}

/// Reads or writes 12 MiB past the page cache, on the file system of the work folder.
fn direct(scene: &Fixture, clause: &str, write: bool) -> CaseResult {
    let folder = scene.dir("rates")?;
    let path = folder.join("disk");
    scene
        .control_shell(&format!("dd if=/dev/zero of={0} bs=1M count=12 conv=fsync && chmod 666 {0}", path.display()))?;
    let probe = if write {
        format!("dd if=/dev/zero of={} bs=1M count=12 conv=notrunc oflag=direct", path.display())
    } else {
        format!("dd if={} of=/dev/null bs=1M iflag=direct", path.display())
    };
    let control = scene.control_shell(&probe)?;
    let rate = format!("{clause}=4M/s");
    let grant = format!("fs.write=[\"{}\"]", folder.display());
    let ended = scene.shell(&[&rate, &grant, MISTAKES, "prefer=[\"limits.disk\",\"limits.files\"]"], &probe)?;
    check(ended.code == Some(0), || ended.said())?;
    check(ended.took.as_millis() > 1800 && control.took < ended.took, || {
        format!("{:?} inside, {:?} outside", ended.took, control.took)
    })
}

fn io_read(scene: &Fixture) -> CaseResult {
    direct(scene, "limits.io_read", false)
}

fn io_write(scene: &Fixture) -> CaseResult {
    direct(scene, "limits.io_write", true)
}

const BUSY: &str = "
import time
end = time.monotonic() + SECONDS
while time.monotonic() < end: pass
print('over')
";

fn warn(scene: &Fixture) -> CaseResult {
    let quiet = scene.python(&["limits.warn={cpu_percent=90,for=\"200ms\"}"], "print('over')")?;
    let log = scene.state().join("audit/audit.jsonl");
    check(quiet.out() == "over" && !conformance::fixture::text(&log)?.contains("run.threshold"), || quiet.said())?;
    let busy = BUSY.replace("SECONDS", "2");
    let ended = scene.python(&["limits.warn={cpu_percent=5,for=\"200ms\"}"], &busy)?;
    check(ended.code == Some(0) && ended.out() == "over", || ended.said())?;
    check(conformance::fixture::text(&log)?.contains("run.threshold"), || "the log does not tell it".to_owned())
}

fn threshold(scene: &Fixture) -> CaseResult {
    let room = scene.python(&["limits.kill={memory=\"200M\",for=\"200ms\"}"], &BUSY.replace("SECONDS", "1"))?;
    check(room.out() == "over", || room.said())?;
    let ended = scene.python(&["limits.kill={cpu_percent=5,for=\"200ms\"}"], &BUSY.replace("SECONDS", "25"))?;
    check(ended.code == Some(124) && ended.limit() == "threshold", || ended.said())?;
    check(ended.took.as_secs() < 20, || format!("{:?}", ended.took))
}
