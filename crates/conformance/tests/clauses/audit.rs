//! The log: where it lies, what is kept and redacted, when it reaches the disk, and that no run goes without it.

use conformance::case::EVERY;
use conformance::fixture::{text, there};
use conformance::{Case, CaseResult, Cell, Fixture, Who, check};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::AuditPath,
        backends: EVERY,
        sentence: "the log lies where it was asked, holds, and shows an edit",
        cell: Cell::Enforced(path),
    },
    Case {
        clause: ClauseId::AuditPath,
        backends: EVERY,
        sentence: "a log that cannot be written refuses the run",
        cell: Cell::Enforced(unwritable),
    },
    Case {
        clause: ClauseId::AuditRedact,
        backends: EVERY,
        sentence: "what matches is in no file of ours",
        cell: Cell::Enforced(redact),
    },
    Case {
        clause: ClauseId::AuditContent,
        backends: EVERY,
        sentence: "arguments are kept whole, as a hash, or not at all",
        cell: Cell::Enforced(content),
    },
    Case {
        clause: ClauseId::AuditSync,
        backends: EVERY,
        sentence: "`each` calls for the disk at every event, `none` never",
        cell: Cell::Enforced(sync),
    },
];

fn path(scene: &Fixture) -> CaseResult {
    let folder = scene.outside().join("log");
    std::fs::create_dir(&folder)?;
    if scene.who == Who::Rootless {
        scene.give(&folder)?;
    }
    let value = format!("audit.path={}", folder.display());
    let ended = scene.shell(&[&value], "true")?;
    check(ended.code == Some(0), || ended.said())?;
    let log = folder.join("audit.jsonl");
    check(there(&log) && ended.text("/audit/file") == log.to_string_lossy(), || ended.said())?;
    let verify = || scene.product(&["audit", "verify", "--dir", &folder.to_string_lossy()])?.end();
    let held = verify()?;
    check(held.code == Some(0), || held.said())?;
    let edited = text(&log)?.replacen("container", "contained", 1).replacen("process", "processes", 1);
    std::fs::write(&log, edited)?;
    let broken = verify()?;
    check(broken.code == Some(1), || format!("an edit was not seen: {}", broken.said()))
}

fn unwritable(scene: &Fixture) -> CaseResult {
    let mark = scene.dir("mark")?.join("ran");
    let file = scene.file("nofolder", "")?;
    let value = format!("audit.path={}/log", file.display());
    let script = format!("touch {}", mark.display());
    scene.control_shell(&script)?;
    std::fs::remove_file(&mark)?;
    let ended = scene.shell(&[&value], &script)?;
    check(ended.code == Some(126) && !there(&mark), || ended.said())
}

/// Everything that the product wrote into its state.
fn everything(scene: &Fixture) -> Result<String, conformance::CaseError> {
    Ok(scene.bare_as_root(&["/bin/grep", "-r", "-h", "", &scene.state().to_string_lossy()])?.end()?.out())
}

fn redact(scene: &Fixture) -> CaseResult {
    let script = "true password=canary-4711";
    let control = scene.shell(&["audit.content=full"], script)?;
    check(control.code == Some(0) && everything(scene)?.contains("canary-4711"), || control.said())?;
    let fresh = scene.fresh()?;
    let ended = fresh.shell(&["audit.content=full", "audit.redact=[\"password=\\\\S+\"]"], script)?;
    check(ended.code == Some(0), || ended.said())?;
    let all = everything(&fresh)?;
    check(all.contains("run.ended") && !all.contains("canary-4711"), || "it was written".to_owned())
}

fn content(scene: &Fixture) -> CaseResult {
    let log = scene.state().join("audit/audit.jsonl");
    let mut before = 0;
    let mut kept = |how: &str| -> Result<String, conformance::CaseError> {
        let ended = scene.shell(&[&format!("audit.content={how}")], "true canary-4712")?;
        check(ended.code == Some(0), || ended.said())?;
        let all = text(&log)?;
        let new: String = all.chars().skip(before).collect();
        before = all.chars().count();
        Ok(new)
    };
    let (full, hash, none) = (kept("full")?, kept("hash")?, kept("none")?);
    check(full.contains("canary-4712"), || full.clone())?;
    check(!hash.contains("canary-4712") && hash.contains("\"sha256\""), || hash.clone())?;
    check(!none.contains("canary-4712") && !none.contains("\"sha256\""), || none.clone())
}

fn sync(scene: &Fixture) -> CaseResult {
    // The observer is the kernel: the calls that the supervisor makes.
    let Some(strace) = ["/usr/bin/strace"].into_iter().find(|path| there(path.as_ref())) else {
        // Without a tracer the plan and the log itself are what can be seen.
        let ended = scene.shell(&["audit.sync=each"], "true")?;
        return check(ended.enforcer("audit.sync") == Some("supervisor:audit"), || ended.said());
    };
    let product = conformance::product::binary()?.to_string_lossy().into_owned();
    let calls = |how: &str| -> Result<usize, conformance::CaseError> {
        let value = format!("audit.sync={how}");
        let trace = scene.work().join(format!("trace-{how}"));
        let trace_text = trace.to_string_lossy().into_owned();
        let words = [
            "-f",
            "-qq",
            "-e",
            "trace=fsync,fdatasync",
            "-o",
            &trace_text,
            &product,
            "run",
            "--tier",
            scene.tier.as_str(),
            "--set",
            &value,
            "--",
            "/bin/true",
        ];
        scene.begin_and_end(&scene.command(strace.as_ref(), &words))?;
        Ok(text(&trace)?.lines().filter(|line| line.contains("sync(")).count())
    };
    let (each, none) = (calls("each")?, calls("none")?);
    check(each >= 3 && none == 0, || format!("{each} and {none} calls"))
}
