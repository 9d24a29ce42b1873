//! The filter of a document against ours: what it closes is closed here as well.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use sys::seccomp::rule::Action;
use sys::seccomp::{Profile, Surroundings, names};

use super::fields::{Refused, Table};

/// The profile that containers get; see `FIXED_CLAUSES` of the document.
const PROFILE: &str = "default";
/// Calls that a program needs to end, beside those that no run can do without.
const NEEDED: [&str; 2] = ["exit", "rt_sigreturn"];
/// Families of sockets that the kernel knows, and some that it does not.
const FAMILIES: u64 = 64;
/// The protocol of netlink(7) that engines close by its number.
const AUDIT: u64 = 9;
/// Flags of clone(2) that threads have: `CLONE_THREAD`, `CLONE_FILES`.
const THREAD: u64 = 0x1_0400;

/// A test of an argument.
#[derive(Clone, Copy, Debug)]
struct Condition {
    argument: usize,
    /// Of [`Test::Masked`] the mask.
    value: u64,
    other: u64,
    test: Test,
}

/// As libseccomp names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Not,
    Less,
    AtMost,
    Equal,
    AtLeast,
    More,
    Masked,
}

impl Condition {
    const fn fits(&self, is: u64) -> bool {
        match self.test {
            Test::Not => is != self.value,
            Test::Less => is < self.value,
            Test::AtMost => is <= self.value,
            Test::Equal => is == self.value,
            Test::AtLeast => is >= self.value,
            Test::More => is > self.value,
            Test::Masked => is & self.value == self.other,
        }
    }
}

/// One rule about a call.
#[derive(Clone, Debug)]
struct Rule {
    open: bool,
    /// All of them.
    conditions: Vec<Condition>,
}

/// Calls of our profile that the document's filter closes: where arguments decide, those that ours would let through for
/// arguments that the document's does not.
pub(super) fn denied(filter: &Table<'_>) -> Result<Vec<&'static str>, Refused> {
    let silent = || filter.refused("defaultAction", "a filter says what becomes of the calls that it does not name");
    let default = filter.text("defaultAction")?.ok_or_else(silent)?;
    // Errnos, notes and other architectures, which are closed here, change nothing of what is open.
    filter.others_say_nothing(&["defaultAction", "defaultErrnoRet", "architectures", "archMap", "syscalls"])?;
    let default = is_open(filter, "defaultAction", default)?;
    let all = rules(filter)?;
    // Unix sockets are closed, since the root is somebody else's.
    let surroundings = Surroundings { inet_sockets: true, undumpable: true, ..Surroundings::default() };
    let ours =
        Profile::load(PROFILE, &surroundings).map_err(|error| filter.refused("defaultAction", error.to_string()))?;
    let none = Vec::new();
    let passes = |name: &&'static str| {
        let Some(number) = names::number(name) else { return false };
        let rules = all.get(*name).unwrap_or(&none);
        let lets_more =
            |arguments: &[u64; 6]| ours.judge(number, *arguments) == Action::Allow && !lets(default, rules, arguments);
        let narrow = rules.iter().any(|rule| !rule.conditions.is_empty());
        match (narrow, samples(name, rules)) {
            (true, Some(samples)) => samples.iter().any(lets_more),
            (true, None) => !lets_always(default, rules),
            (false, _) => !lets(default, rules, &[0; 6]),
        }
    };
    // What ours never lets through needs no closing.
    let ever = |name: &&'static str| {
        let verdict = names::number(name).and_then(|number| ours.filter().calls.get(number));
        !matches!(verdict, None | Some(sys::seccomp::rule::Verdict::Always(Action::Errno(_) | Action::Kill)))
    };
    let denied: Vec<&'static str> = names::all().filter(ever).filter(passes).collect();
    match denied.iter().find(|name| NEEDED.contains(name) || backends::needs_call(name)) {
        Some(name) => {
            Err(filter.refused("syscalls", format!("it closes `{name}`, and no container here runs without")))
        }
        None => Ok(denied),
    }
}

/// Arguments that stand for all that matter of a call; none where they do not decide each of these rules.
fn samples(name: &str, rules: &[Rule]) -> Option<Vec<[u64; 6]>> {
    let first = |value| [value, 0, 0, 0, 0, 0];
    let samples = match name {
        // Ours opens no family and no protocol beyond.
        "socket" => (0..FAMILIES)
            .flat_map(|family| [1, 2, 3].map(|kind| [[family, kind, 0, 0, 0, 0], [family, kind, AUDIT, 0, 0, 0]]))
            .flatten()
            .collect(),
        // Ours opens two values.
        "personality" => (0..u32::BITS).map(|bit| 1 << bit).chain([0, 0xffff_ffff]).map(first).collect(),
        // Ours tells threads by two flags, and otherwise looks for flags one by one.
        "clone" => {
            (0..u64::BITS).flat_map(|bit| [1 << bit, (1 << bit) | THREAD]).chain([0, THREAD]).map(first).collect()
        }
        _ => return None,
    };
    rules.iter().all(|rule| decide(name, rule, rules)).then_some(samples)
}

/// Whether the samples of a call stand for all arguments that this rule tells apart. Engines do not agree on two conditions about
/// one argument.
fn decide(name: &str, rule: &Rule, rules: &[Rule]) -> bool {
    let once = |one: &Condition| rule.conditions.iter().filter(|other| other.argument == one.argument).count() == 1;
    let decided = |one: &Condition| match (name, one.argument) {
        // An `int`, of which the kernel sees no more: all families beyond are alike.
        ("socket", 0) => one.value < FAMILIES,
        ("socket", 2) => one.value == AUDIT && matches!(one.test, Test::Equal | Test::Not),
        ("personality", 0) => true,
        ("clone", 0) => {
            let alike = |other: &Condition| other.value == one.value;
            one.test == Test::Masked && one.other == 0 && rules.iter().flat_map(|rule| &rule.conditions).all(alike)
        }
        _ => false,
    };
    rule.conditions.iter().all(|one| once(one) && decided(one))
}

/// What the document's filter says to these arguments; where one rule opens and another closes, that it is closed.
fn lets(default: bool, rules: &[Rule], arguments: &[u64; 6]) -> bool {
    let fits = |rule: &&Rule| {
        let fits = |one: &Condition| one.fits(arguments.get(one.argument).copied().unwrap_or(0));
        rule.conditions.iter().all(fits)
    };
    let mut fitting = rules.iter().filter(fits).peekable();
    (default || fitting.peek().is_some()) && fitting.all(|rule| rule.open)
}

/// Whether it lets a call through whatever the arguments.
fn lets_always(default: bool, rules: &[Rule]) -> bool {
    rules.iter().all(|rule| rule.open) && (default || rules.iter().any(|rule| rule.conditions.is_empty()))
}

fn rules<'a>(filter: &Table<'a>) -> Result<BTreeMap<&'a str, Vec<Rule>>, Refused> {
    let mut all: BTreeMap<&str, Vec<Rule>> = BTreeMap::new();
    for rule in filter.tables("syscalls")? {
        rule.others_say_nothing(&["names", "action", "errnoRet", "errno", "args", "comment", "includes", "excludes"])?;
        let open = is_open(&rule, "action", rule.text("action")?.unwrap_or_default())?;
        let conditions: Vec<Condition> = rule.tables("args")?.iter().map(condition).collect::<Result<_, _>>()?;
        for name in rule.texts("names")? {
            all.entry(name).or_default().push(Rule { open, conditions: conditions.clone() });
        }
    }
    Ok(all)
}

fn condition(args: &Table<'_>) -> Result<Condition, Refused> {
    args.others_say_nothing(&["index", "value", "valueTwo", "op"])?;
    let number = |field: &str| match args.said(field).map(Json::as_u64) {
        Some(Some(number)) => Ok(number),
        None => Ok(0),
        Some(None) => Err(args.refused(field, "it is no whole number")),
    };
    let test = match args.text("op")?.unwrap_or_default() {
        "SCMP_CMP_NE" => Test::Not,
        "SCMP_CMP_LT" => Test::Less,
        "SCMP_CMP_LE" => Test::AtMost,
        "SCMP_CMP_EQ" => Test::Equal,
        "SCMP_CMP_GE" => Test::AtLeast,
        "SCMP_CMP_GT" => Test::More,
        "SCMP_CMP_MASKED_EQ" => Test::Masked,
        other => return Err(args.refused("op", format!("`{other}` is not known here"))),
    };
    let argument = usize::try_from(number("index")?).ok().filter(|index| *index < 6);
    let argument = argument.ok_or_else(|| args.refused("index", "a call has six arguments"))?;
    Ok(Condition { argument, value: number("value")?, other: number("valueTwo")?, test })
}

fn is_open(table: &Table<'_>, field: &str, action: &str) -> Result<bool, Refused> {
    match action {
        "SCMP_ACT_ALLOW" | "SCMP_ACT_LOG" => Ok(true),
        "SCMP_ACT_ERRNO" | "SCMP_ACT_KILL" | "SCMP_ACT_KILL_THREAD" | "SCMP_ACT_KILL_PROCESS" | "SCMP_ACT_TRAP" => {
            Ok(false)
        }
        other => Err(table.refused(field, format!("`{other}` is not held here"))),
    }
}
