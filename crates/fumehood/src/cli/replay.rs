//! `fumehood replay`: a recorded run once more, on the same plan, and what is another this time.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use sandbox::fault::{show_bytes, show_text};
use sandbox::state::RunId;

use super::args::{Flag, Positionals, To, usage};
use super::ask::asked_layers;
use super::spec::{Call, Spec};
use crate::replay::{ReplayInputs, replay};
use crate::run::refused_as_run;
use crate::ui::{Detail, FAILED, Failure, REFUSED, Role, View, fault, report};

const FLAGS: &[Flag] = &[
    Flag::new("dir", Some("DIR"), To::Ours, "The folder of the log, where `audit.path` moved it"),
    Flag::new("env", Some("NAME=VALUE"), To::Clause, "The value of a variable that the run set; it is never recorded"),
    Flag::new("input", Some("NAME=VALUE"), To::Clause, "The value of an input of the run; it is never recorded"),
    Flag::new("lang", Some("LANGUAGE"), To::Ours, "Language of the code or script"),
    Flag::new("code", Some("TEXT"), To::Ours, "The code of the run"),
];

pub(super) const SPEC: Spec = Spec {
    path: &["replay"],
    about: "Run what the audit log recorded once more, on the same plan, and say what is another",
    usage: "RUN [--env NAME=VALUE]... [-- CMD ARGS... | -- SCRIPT ARGS...]",
    more: "The documents and flags of the record are read again, where the run was started. Nothing is run unless the plan has the digest of the \
           record, the program is the recorded one, and the log is intact; else each clause that has another value or holder is told, and which \
           fact of the host is another.\n\n\
           The log keeps the SHA-256 of commands and code unless `audit.content = \"full\"`: then give the program again, and it is compared. \
           Never recorded are values of variables, inputs and secrets, standard input, and files; what of it the run needs is told.\n\n\
           Exit codes:\n  \
             0    it ended as then: outcome, violations, amount of output, changed paths\n  \
             1    it ended otherwise; what is another is told\n  \
             125  a failure of fumehood itself, or bad usage\n  \
             126  it would not be the same run, or is refused; nothing was run\n\n\
           With --json: {schema, run, plan, same, differs [{what, then, now}], not_recorded, report}; a refusal as that of `run`.\n\
           Example: `fumehood replay r-20261122-022119-b83197 -- python3 analysis.py`",
    tables: &[FLAGS],
    words: Positionals::MixedThenMore(1),
    hidden: false,
    run,
};

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    again(call).or_else(|stop| refused_as_run(stop, call.console, call.json))
}

fn again(call: &mut Call<'_>) -> Result<u8, Failure> {
    let run = named(call.parsed.words.first().map(std::ffi::OsString::as_os_str))?;
    let own = |flag: &str| call.parsed.value(flag).map(OsStr::to_os_string);
    let log = own("dir").map(PathBuf::from);
    let log = log.map(|dir| call.environment.cwd.as_deref().map_or_else(|| dir.clone(), |cwd| cwd.join(&dir)));
    let given = ReplayInputs {
        log,
        values: asked_layers(call, REFUSED)?,
        language: own("lang"),
        code: own("code"),
        words: call.parsed.after.take(),
        keep: call.json,
    };
    let replayed = replay(&run, &given, call.environment)?;
    let failed = !replayed.finished.failed.is_empty();
    if call.json {
        call.console.json(&replayed.to_json(&run))?;
    } else {
        call.console.eprint(&told(call, &replayed));
    }
    Ok(match (failed, replayed.differs.is_empty()) {
        (true, _) => FAILED,
        (false, true) => 0,
        (false, false) => 1,
    })
}

fn named(word: Option<&OsStr>) -> Result<RunId, Failure> {
    let id = word.and_then(|word| word.to_str()).and_then(|word| word.parse().ok());
    id.ok_or_else(|| {
        let what = match word {
            Some(word) => format!("`{}` names no run", show_bytes(word.as_bytes())),
            None => "no run was named".to_owned(),
        };
        let fix = "`fumehood audit show --kind run.planned` lists them".to_owned();
        Failure::own(usage("usage/no-run", what, "a run's id begins with `r-`".to_owned(), fix))
    })
}

fn told(call: &Call<'_>, replayed: &crate::replay::ReplayResult) -> String {
    let palette = call.console.err;
    let finished = &replayed.finished;
    let view = View {
        report: &finished.report,
        plan: Some(&finished.plan),
        dropped: finished.dropped(),
        detail: Detail::Normal,
        palette,
        columns: call.console.columns,
    };
    let mut out: String = finished.not_started.iter().chain(&finished.failed).map(|why| fault(why, palette)).collect();
    out.push_str(&report(&view));
    for words in &replayed.not_recorded {
        out.push_str(&format!("{} {}\n", palette.paint(Role::Aside, "not recorded:"), show_text(words)));
    }
    for (what, then, now) in &replayed.differs {
        let (then, now) = (show_text(&then.to_string()), show_text(&now.to_string()));
        out.push_str(&format!("{} {what}: then {then}, now {now}\n", palette.paint(Role::Bad, "differs:")));
    }
    if replayed.differs.is_empty() {
        out.push_str(&format!("{} it ended as recorded\n", palette.paint(Role::Good, "same:")));
    }
    out
}
