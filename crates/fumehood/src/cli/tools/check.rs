//! `fumehood tools check`: one call, judged and explained, and not made.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;

use gate::json::{MAX_BYTES, read};
use gate::rules::Counters;
use gate::{Call as ToolCall, Caller, Reason, ToolFacts, ToolJudgement, Verdict};
use policy::diagnostic::quote;
use policy::tools::{Decision, Effect};
use serde_json::Value as Json;

use super::{gated, role};
use crate::cli::args::{Flag, Positionals, To, usage};
use crate::cli::ask::named;
use crate::cli::flags::POLICY;
use crate::cli::spec::{Call, Spec};
use crate::ui::{Failure, Role};
use sandbox::fault::{Fault, show_bytes, show_text};

const CALL: &[Flag] = &[
    Flag::new("tool", Some("NAME"), To::Ours, "The tool: `tool`, or `server.tool`"),
    Flag::new("args", Some("JSON"), To::Ours, "Its arguments as JSON, @FILE, or - for stdin; {} if not given"),
    Flag::new("tool-schema", Some("JSON"), To::Ours, "The tool's own schema, as it would bring it: JSON, @FILE or -"),
    Flag::new("tool-effect", Some("EFFECT"), To::Ours, "What the tool says of itself: read or write")
        .choices(&["read", "write"]),
    Flag::new("agent", Some("NAME"), To::Ours, "Who calls, for conditions; default local"),
    Flag::new("session", Some("NAME"), To::Ours, "In which session, for conditions; default local"),
];

pub(in crate::cli) const SPEC: Spec = Spec {
    path: &["tools", "check"],
    about: "Judge one call of a tool and explain the decision; nothing is called and nothing counted",
    usage: "--tool NAME --args JSON|@FILE|- -p POLICY [FLAGS]",
    more: "Exit code 0 if the call is allowed, 1 if it is denied, 3 if somebody is asked, 126 if the policy is wrong,\n\
           125 for a failure of ours. With --json: {schema, tool, decision, rule, reasons, instead, args, hash}; `args` are\n\
           those that the tool would get, and `hash` is what an approval is bound to. Rates and budgets are not looked at.\n\
           Example: fumehood tools check --tool mail.send --args '{\"to\": \"a@company.com\"}' -p policy.toml",
    tables: &[POLICY, CALL],
    words: Positionals::Mixed(0),
    hidden: false,
    run,
};

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let Some(tool) = call.parsed.value("tool").map(|tool| tool.to_string_lossy().into_owned()) else {
        let why = "a decision is about one tool".to_owned();
        return Err(Failure::own(usage("usage/no-tool", "no `--tool`".to_owned(), why, "--tool NAME".to_owned())));
    };
    let (_, _, gate) = gated(call)?;
    let caller = Caller { agent: named(call, "agent"), session: named(call, "session"), key: None };
    let facts = facts(call)?;
    let args = match call.parsed.value("args") {
        Some(value) => read(&text("--args", value)?),
        None => Ok(Json::Object(serde_json::Map::new())),
    };
    let judged = args.map(|args| {
        let now = gateway::clock::now_ms();
        let one = ToolCall { tool: &tool, args, caller: &caller, facts: &facts, counters: Counters::default(), now };
        gate.judge(&one)
    });
    let (verdict, judged) = match judged {
        Ok(judged) => (judged.verdict.clone(), Some(judged)),
        Err(flaw) => (Verdict::unreadable(&flaw), None),
    };
    if call.json {
        let mut json = verdict.to_json();
        if let Json::Object(map) = &mut json {
            map.insert("schema".to_owned(), Json::from(1));
            map.insert("tool".to_owned(), Json::from(tool));
        }
        call.console.json(&json)?;
    } else {
        call.console.data(describe(call, &tool, &verdict, judged.as_ref()).as_bytes())?;
    }
    Ok(match verdict.decision {
        Decision::Allow => 0,
        Decision::Deny => 1,
        Decision::Ask => 3,
    })
}

/// What the tool would say of itself.
fn facts(call: &Call<'_>) -> Result<ToolFacts, Failure> {
    let effect = match call.parsed.value("tool-effect").map(OsStr::as_bytes) {
        None => None,
        Some(b"read") => Some(Effect::Read),
        Some(b"write") => Some(Effect::Write),
        Some(other) => {
            let what = format!("`--tool-effect {}`", show_bytes(other));
            let fault = usage("usage/bad-value", what, "no such effect".to_owned(), "read or write".to_owned());
            return Err(Failure::own(fault));
        }
    };
    let input_schema = match call.parsed.value("tool-schema") {
        None => None,
        Some(value) => Some(read(&text("--tool-schema", value)?).map_err(|flaw| {
            let what = format!("`--tool-schema` is not JSON: {}", flaw.what);
            Failure::own(usage("usage/bad-value", what, flaw.why.to_owned(), flaw.fix.to_owned()))
        })?),
    };
    Ok(ToolFacts { effect, input_schema, ..ToolFacts::default() })
}

/// The text itself, the content of `@FILE`, or stdin for `-`: one word of a command line ends at 128 KiB.
fn text(flag: &str, value: &OsStr) -> Result<String, Failure> {
    let shown = show_bytes(value.as_bytes());
    let failed = |why: String| {
        Failure::own(Fault {
            id: "usage/unreadable",
            what: format!("`{flag} {shown}` cannot be read"),
            place: flag.to_owned(),
            why,
            fix: "JSON, @FILE, or - for stdin".to_owned(),
        })
    };
    let say = |error: std::io::Error| failed(error.to_string().to_lowercase());
    // One byte more than is read, so that the reader says that it is too long.
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    match value.as_bytes() {
        b"-" => std::io::stdin().lock().take(most).read_to_end(&mut bytes).map_err(say)?,
        [b'@', path @ ..] => {
            File::open(OsStr::from_bytes(path)).map_err(say)?.take(most).read_to_end(&mut bytes).map_err(say)?
        }
        plain => {
            bytes.extend_from_slice(plain);
            bytes.len()
        }
    };
    String::from_utf8(bytes).map_err(|_not_text| failed("it is no UTF-8 text".to_owned()))
}

fn describe(call: &Call<'_>, tool: &str, verdict: &Verdict, judged: Option<&ToolJudgement>) -> String {
    let paint = |role, text: &str| call.console.out.paint(role, text);
    let mut out =
        format!("{} {}\n", paint(role(verdict.decision), verdict.decision.as_str()), paint(Role::Name, &quote(tool)));
    let mut line = |label: &str, text: &str| {
        if !text.is_empty() {
            out.push_str(&format!("  {} {}\n", paint(Role::Aside, &format!("{label:<9}")), show_text(text)));
        }
    };
    for Reason { id, rule, at, decision, what, why, instead } in &verdict.reasons {
        // What is weaker than the decision explains nothing.
        if *decision != verdict.decision {
            continue;
        }
        line("rule:", &at.as_ref().map_or_else(|| rule.clone(), |at| format!("{rule} ({at})")));
        line("what:", what);
        line("why:", why);
        if instead != why {
            line("instead:", instead);
        }
        line("id:", id);
    }
    if let Some(args) = &verdict.args {
        line("args:", &policy::json::canonical(args));
    }
    line("hash:", verdict.hash.as_deref().unwrap_or_default());
    if let Some(judged) = judged.filter(|_| verdict.decision != Decision::Deny) {
        let counted: Vec<&str> = judged.limits.iter().map(|demand| &*demand.rule).collect();
        line("counted:", &counted.join(", "));
    }
    out
}
