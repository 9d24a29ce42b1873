//! `fumehood approvals`: what agents wait for, and the answers.
//!
//! Whoever may read the state folder may answer; a sandbox never can. Each answer is in the audit log before it counts.

mod page;
mod served;
mod watch;

use std::os::unix::ffi::OsStrExt as _;

use gateway::approvals::{AnswerError, Approvals, Holder, ParkedCall, Remember, Wide};
use policy::units::Millis;
use serde_json::{Value as Json, json};

pub(super) use served::Served;

use super::args::{Flag, Positionals, To, usage};
use super::spec::{Call, Spec};
use crate::approvals::unusable;
use crate::ui::Failure;
use sandbox::Environment;
use sandbox::audit::{Kind, Log, Options};
use sandbox::fault::{show_bytes, show_text};
use sandbox::state::State;

const ALL: &[Flag] = &[Flag::new("all", None, To::Ours, "Also what was answered, or is no longer in force")];
const REMEMBER: &[Flag] = &[
    Flag::new(
        "remember",
        Some("WHAT"),
        To::Ours,
        "Approve also: the same arguments, the tool, the tool in this session",
    )
    .choices(&["args", "tool", "session"]),
    Flag::new(
        "any",
        Some("ARGUMENT"),
        To::Ours,
        "With `--remember args`: this argument may be anything; may be repeated",
    )
    .many(),
    Flag::new(
        "for",
        Some("TIME"),
        To::Ours,
        "How long that is remembered, at most 30 days; default 1h, for `session` of a run's network until it ends",
    ),
];
const WHY: &[Flag] = &[Flag::new("why", Some("TEXT"), To::Ours, "What the agent is told")];

const CODES: &str = "Exit code 0; 1 if the answer does not count, because somebody or the time was first; \
                     125 if there is no such call, or the store cannot be used.";

pub(super) const LS: Spec = Spec {
    path: &["approvals", "ls"],
    about: "List the calls that wait for an answer",
    usage: "[--all]",
    more: "Exit code 0, also when nothing waits. With --json: {schema, calls}.",
    tables: &[ALL],
    words: Positionals::Mixed(0),
    hidden: false,
    run: list,
};

pub(super) const SHOW: Spec = Spec {
    path: &["approvals", "show"],
    about: "Show one call with all that would reach the tool",
    usage: "ID",
    more: "An id may be cut short while it fits one call only. Characters that hide, turn or deceive are written out.",
    tables: &[],
    words: Positionals::Mixed(1),
    hidden: false,
    run: show,
};

pub(super) const APPROVE: Spec = Spec {
    path: &["approvals", "approve"],
    about: "Agree to a call, once",
    usage: "ID [--remember args [--any ARGUMENT]... | --remember tool|session] [--for TIME]",
    more: CODES,
    tables: &[REMEMBER],
    words: Positionals::Mixed(1),
    hidden: false,
    run: approve,
};

pub(super) const DENY: Spec = Spec {
    path: &["approvals", "deny"],
    about: "Refuse a call",
    usage: "ID [--why TEXT]",
    more: CODES,
    tables: &[WHY],
    words: Positionals::Mixed(1),
    hidden: false,
    run: deny,
};

pub(super) const WATCH: Spec = Spec {
    path: &["approvals", "watch"],
    about: "Be asked about calls as they come",
    usage: "",
    more: "On a terminal each call is shown and waits for `y`, `n`, `d` (details), `s` (later) or `q`. Elsewhere, and with\n\
           --json, each change is one line on stdout: {event, call}. Ends when its reader goes away.",
    tables: &[],
    words: Positionals::Mixed(0),
    hidden: false,
    run: watch::watch,
};

pub(super) const REMEMBERED: Spec = Spec {
    path: &["approvals", "remembered"],
    about: "List the approvals that were remembered",
    usage: "[--all]",
    more: "With --json: {schema, remembered}.",
    tables: &[ALL],
    words: Positionals::Mixed(0),
    hidden: false,
    run: remembered,
};

pub(super) const REVOKE: Spec = Spec {
    path: &["approvals", "revoke"],
    about: "Take a remembered approval back",
    usage: "ID",
    more: "Exit code 0, 1 if it was not in force any more, 125 if there is none of this id.",
    tables: &[],
    words: Positionals::Mixed(1),
    hidden: false,
    run: revoke,
};

/// The store, and the log that answers are written to.
struct ReviewContext {
    approvals: Approvals,
    log: Log,
    /// Who answers, for the record.
    by: String,
}

impl ReviewContext {
    fn open(environment: &Environment, by: String) -> Result<Self, Failure> {
        let state = State::open(&environment.state).map_err(|error| Failure::own(error.fault()))?;
        // The log comes first: what cannot be recorded is not said.
        let log = Log::open(&state, None, Options::default()).map_err(|error| Failure::own(error.fault()))?;
        let approvals = Approvals::open(state.path()).map_err(|error| unusable(&error))?;
        Ok(Self { approvals, log, by })
    }

    /// Says yes or no, recorded before it counts; and recorded again if it did not.
    fn say(&self, call: &ParkedCall, said: &ReviewAnswer) -> Result<Result<ParkedCall, AnswerError>, Failure> {
        let kind = match said {
            ReviewAnswer::Yes(_) => "approval.approved",
            ReviewAnswer::No(_) => "approval.denied",
        };
        let remember = match said {
            ReviewAnswer::Yes(Some(Remember { args, holder, millis })) => json!({
                "args": match args { Wide::Any => json!("any"), Wide::But(any) => json!({ "any": any }) },
                "for": match holder { Holder::Agent => "agent", Holder::Session => "session" },
                "seconds": millis.map(|millis| millis / 1000),
            }),
            ReviewAnswer::Yes(None) | ReviewAnswer::No(_) => Json::Null,
        };
        let body = json!({
            "id": call.id, "tool": call.tool, "hash": call.hash, "agent": call.agent, "session": call.session,
            "by": self.by, "remember": remember,
        });
        self.record(kind, &body)?;
        let answer = match said {
            ReviewAnswer::Yes(remember) => self.approvals.approve(&call.id, &self.by, remember.as_ref()),
            ReviewAnswer::No(why) => self.approvals.deny(&call.id, &self.by, why),
        };
        if let Err(lost) = &answer {
            self.record("approval.lost", &json!({ "id": call.id, "by": self.by, "why": lost.to_string() }))?;
        }
        Ok(answer)
    }

    fn record(&self, kind: &str, body: &Json) -> Result<(), Failure> {
        let Some(kind) = Kind::parse(kind) else { return Ok(()) };
        self.log.append("", &kind, body).map(|_| ()).map_err(|error| Failure::own(error.fault()))
    }
}

/// An answer.
enum ReviewAnswer {
    Yes(Option<Remember>),
    No(String),
}

fn open(call: &Call<'_>) -> Result<Approvals, Failure> {
    let state = State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    Approvals::open(state.path()).map_err(|error| unusable(&error))
}

fn review(call: &Call<'_>) -> Result<ReviewContext, Failure> {
    ReviewContext::open(call.environment, format!("uid {}", call.environment.euid))
}

/// The one call or memory whose id begins with what was typed.
fn the_one<T>(call: &Call<'_>, all: Vec<T>, id: impl Fn(&T) -> &str) -> Result<T, Failure> {
    let typed = call.parsed.words.first().map(|word| show_bytes(word.as_bytes())).unwrap_or_default();
    let fits = |one: &T| id(one) == typed || (typed.len() >= 6 && id(one).starts_with(&typed));
    let mut found = all.into_iter().filter(fits);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (none_or_first, _) => Err(Failure::own(usage(
            "approvals/unknown",
            if typed.is_empty() { "an id is needed".to_owned() } else { format!("`{typed}` names no call") },
            if none_or_first.is_some() {
                "several ids begin so"
            } else {
                "nothing of this id is kept; six letters are the least"
            }
            .to_owned(),
            "`fumehood approvals ls --all`, or `fumehood approvals remembered --all`".to_owned(),
        ))),
    }
}

fn list(call: &mut Call<'_>) -> Result<u8, Failure> {
    let calls = open(call)?.list(call.parsed.has("all")).map_err(|error| unusable(&error))?;
    if call.json {
        let calls: Vec<_> = calls.iter().map(ParkedCall::to_json).collect();
        call.console.json(&json!({ "schema": 1, "calls": calls }))?;
    } else if calls.is_empty() {
        call.console.eprint("nothing waits for an answer\n");
    } else {
        call.console.data(page::table(&calls, call.console.out, call.console.columns).as_bytes())?;
    }
    Ok(0)
}

fn show(call: &mut Call<'_>) -> Result<u8, Failure> {
    let calls = open(call)?.list(true).map_err(|error| unusable(&error))?;
    let one = the_one(call, calls, |one| &one.id)?;
    if call.json {
        call.console.json(&json!({ "schema": 1, "call": one.to_json() }))?;
    } else {
        call.console.data(page::details(&one, call.console.out).as_bytes())?;
    }
    Ok(0)
}

fn approve(call: &mut Call<'_>) -> Result<u8, Failure> {
    let said = ReviewAnswer::Yes(remember(call)?);
    answer(call, &said)
}

fn deny(call: &mut Call<'_>) -> Result<u8, Failure> {
    let said = ReviewAnswer::No(call.parsed.value("why").map(|why| show_bytes(why.as_bytes())).unwrap_or_default());
    answer(call, &said)
}

fn answer(call: &Call<'_>, said: &ReviewAnswer) -> Result<u8, Failure> {
    let review = review(call)?;
    let calls = review.approvals.list(true).map_err(|error| unusable(&error))?;
    let one = the_one(call, calls, |one| &one.id)?;
    let (code, text, json) = match review.say(&one, said)? {
        Ok(done) => {
            let text = format!("{}: {} ({})\n", done.state.as_str(), show_text(&done.tool), done.id);
            (0, text, json!({ "schema": 1, "call": done.to_json() }))
        }
        Err(AnswerError::Store(error)) => return Err(unusable(&error)),
        Err(lost @ AnswerError::Remember { .. }) => {
            let fix = "remember what the call has, for at most 30 days".to_owned();
            let what = "this cannot be remembered".to_owned();
            return Err(Failure::own(usage("approvals/remember", what, lost.to_string(), fix)));
        }
        Err(lost @ (AnswerError::Over { .. } | AnswerError::Unknown { .. })) => {
            (1, format!("too late: {lost}\n"), json!({ "schema": 1, "lost": lost.to_string() }))
        }
    };
    if call.json {
        call.console.json(&json).map(|_| ())?
    } else {
        call.console.eprint(&text)
    }
    Ok(code)
}

/// `--remember`, `--any`, `--for`
fn remember(call: &Call<'_>) -> Result<Option<Remember>, Failure> {
    let bad = |what: String, why: &str, fix: &str| {
        Err(Failure::own(usage("usage/bad-value", what, why.to_owned(), fix.to_owned())))
    };
    let given = call.parsed.flags.iter().filter(|(flag, _)| flag.long == "any");
    let any: Vec<String> = given.filter_map(|(_, value)| value.as_ref()?.to_str().map(str::to_owned)).collect();
    let (args, holder) = match call.parsed.value("remember").map(|word| word.as_bytes()) {
        None if any.is_empty() && !call.parsed.has("for") => return Ok(None),
        None => {
            return bad(
                "`--any` and `--for` alone".to_owned(),
                "they say what is remembered, and how long",
                "add `--remember args`",
            );
        }
        Some(b"args") => (Wide::But(any.clone()), Holder::Agent),
        Some(b"tool") => (Wide::Any, Holder::Agent),
        Some(b"session") => (Wide::Any, Holder::Session),
        Some(other) => {
            return bad(format!("`--remember {}`", show_bytes(other)), "no such choice", "args, tool or session");
        }
    };
    if !any.is_empty() && args == Wide::Any {
        return bad("`--any` without `--remember args`".to_owned(), "the others take any arguments already", "drop it");
    }
    let Some(text) = call.parsed.value("for").map(|text| show_bytes(text.as_bytes())) else {
        return Ok(Some(Remember { args, holder, millis: None }));
    };
    match Millis::parse(&text) {
        Ok(Millis(millis)) => Ok(Some(Remember { args, holder, millis: Some(millis) })),
        Err(_) => bad(format!("`--for {text}`"), "it is no duration", "--for 1h"),
    }
}

fn remembered(call: &mut Call<'_>) -> Result<u8, Failure> {
    let memories = open(call)?.memories(call.parsed.has("all")).map_err(|error| unusable(&error))?;
    if call.json {
        let memories: Vec<_> = memories.iter().map(gateway::approvals::Memory::to_json).collect();
        call.console.json(&json!({ "schema": 1, "remembered": memories }))?;
    } else if memories.is_empty() {
        call.console.eprint("nothing is remembered\n");
    } else {
        call.console.data(page::memories(&memories, call.console.out, call.console.columns).as_bytes())?;
    }
    Ok(0)
}

fn revoke(call: &mut Call<'_>) -> Result<u8, Failure> {
    let review = review(call)?;
    let memories = review.approvals.memories(true).map_err(|error| unusable(&error))?;
    let one = the_one(call, memories, |one| &one.id)?;
    review.record("approval.revoked", &json!({ "id": one.id, "tool": one.tool, "by": review.by }))?;
    let done = review.approvals.revoke(&one.id, &review.by).map_err(|error| unusable(&error))?;
    if call.json {
        call.console.json(&json!({ "schema": 1, "id": one.id, "revoked": done }))?;
    } else if done {
        call.console.eprint(&format!("revoked: {} ({})\n", show_text(&one.tool), one.id));
    } else {
        call.console.eprint(&format!("{} was not in force any more\n", one.id));
    }
    Ok(u8::from(!done))
}
