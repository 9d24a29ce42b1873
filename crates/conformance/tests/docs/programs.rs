//! Programs in Python of the documents: which are run as they stand, behind what a reader has, and which a stage of
//! `scripts/test` runs with the clients that they are for.

use std::collections::BTreeSet;
use std::fs;

use crate::blocks::{Block, blocks, root};
use crate::stages;

/// How a program is tried.
pub(crate) enum Trial {
    /// It is run in its page's session, between these lines.
    Run { before: &'static str, after: &'static str },
    /// The same in root's session: a `diff` of a sandbox that lives needs a freezer, which an ordinary user may lack.
    AsRoot { after: &'static str },
    /// A stage runs this script, and the script these files, which make every call of the program's with its keywords.
    Stage { name: &'static str, script: &'static str, cases: &'static [&'static str] },
}

const ALONE: Trial = Trial::Run { before: "", after: "" };

const E2B: &[&str] = &["sdk/e2b/cases.py", "sdk/e2b/interpreter.py", "sdk/e2b/builds.py", "sdk/e2b/harness.py"];

/// A page, a word of the program, and how it is tried. Programs that a fence gives a name to are run by the commands of their
/// page.
pub(crate) const PROGRAMS: &[(&str, &str, Trial)] = &[
    ("sdk/python/README.md", "from fumehood import Sandbox, run", ALONE),
    ("sdk/python/README.md", "from fumehood.tools import", ALONE),
    ("docs/reference/python.md", "done = run(", Trial::AsRoot { after: "assert done.stdout == '42\\n', done" }),
    ("docs/reference/python.md", "from fumehood.tools import", ALONE),
    ("docs/reference/python.md", "openai_answer(gate, ", Trial::Run { before: ANSWERS, after: ANSWERED }),
    ("docs/reference/http.md", "verify(secret", Trial::Run { before: DELIVERY, after: VERIFIED }),
    (
        "docs/reference/docker.md",
        "docker.from_env()",
        Trial::Stage { name: "Docker's clients", script: "scripts/docker-clients", cases: &["sdk/docker/cases.py"] },
    ),
    (
        "docs/reference/server.md",
        "from e2b_code_interpreter import",
        Trial::Stage { name: "E2B's clients", script: "scripts/e2b", cases: E2B },
    ),
    (
        "docs/reference/server.md",
        "from e2b import Sandbox, Template",
        Trial::Stage { name: "E2B's clients", script: "scripts/e2b", cases: E2B },
    ),
];

/// One answer of a model in both forms: a call that the policy allows, and one that it denies.
const ANSWERS: &str = r#"from types import SimpleNamespace
from fumehood.tools import Gateway

gate, messages = Gateway("policy.toml"), []

@gate.tool("mail.send", effect="write")
def send_mail(to: str) -> str:
    return f"sent to {to}"

call = {"name": "mail__send", "arguments": '{"to": "ann@company.com"}'}
use = {"id": "2", "type": "tool_use", "name": "mail__send", "input": {"to": "ann@company.com.evil.example"}}
message = {"tool_calls": [{"id": "1", "type": "function", "function": call}]}
response = SimpleNamespace(choices=[SimpleNamespace(message=message)], content=[use])
"#;

const ANSWERED: &str = r#"
made, denied = messages[0], messages[1]["content"][0]
assert "sent to ann" in made["content"] and denied["is_error"], messages
"#;

/// A delivery as the page describes it.
const DELIVERY: &str = r#"import hashlib, hmac, time

secret, body, now = b"0123456789abcdef", b'{"event": "approval.asked"}', str(int(time.time()))
signature = hmac.new(secret, b"v1." + now.encode() + b"." + body, hashlib.sha256).hexdigest()
headers = {"Fumehood-Timestamp": now, "Fumehood-Signature": "v1=" + signature}
"#;

const VERIFIED: &str = r#"
def said(body, then=now):
    return verify(secret, then, headers["Fumehood-Signature"], body)

assert said(body) and not said(body + b" ") and not said(body, str(int(now) - 301))
"#;

/// How a block is tried.
pub(crate) fn trial(block: &Block) -> Option<&'static Trial> {
    let text = block.lines.join("\n");
    PROGRAMS.iter().find(|(page, word, _)| *page == block.page && text.contains(word)).map(|(.., trial)| trial)
}

/// The calls of methods in code (`.run(`), and keywords of calls (`mem_limit=`).
fn calls(code: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for (at, c) in code.char_indices() {
        let (before, after) = (code.get(..at).unwrap_or_default(), code.get(at + 1..).unwrap_or_default());
        let begin = before.rfind(|c| !is_name(c)).map_or(0, |at| at + 1);
        let (rest, name) = before.split_at(begin);
        let is_method = c == '(' && rest.ends_with('.');
        let is_keyword = c == '=' && rest.ends_with(['(', ' ', ',']) && !after.starts_with([' ', '=']);
        if !name.is_empty() && is_method {
            found.insert(format!(".{name}("));
        } else if !name.is_empty() && is_keyword {
            found.insert(format!("{name}="));
        }
    }
    found
}

#[test]
fn every_program_of_the_documents_is_run_or_a_stage_runs_what_it_calls() {
    let blocks = blocks().expect("the documents can be read");
    let lists = stages::lists().expect("the lists of stages can be read");
    let programs: Vec<&Block> = blocks.iter().filter(|block| block.language() == "python").collect();
    let mut found = Vec::new();
    for block in programs.iter().filter(|block| block.file().is_none()) {
        let Some(trial) = trial(block) else {
            found.push(format!("{}: nothing runs it: `PROGRAMS` has no row for it", block.place()));
            continue;
        };
        let Trial::Stage { name, script, cases } = trial else { continue };
        found.extend(stages::says(&lists, name, script).err());
        let read = |path: &&str| fs::read_to_string(root().join(path)).expect("the cases can be read");
        let cases: String = cases.iter().map(read).collect();
        let missing = calls(&block.lines.join("\n")).into_iter().filter(|call| !cases.contains(call.as_str()));
        found.extend(missing.map(|call| format!("{}: no case of the stage `{name}` has `{call}`", block.place())));
    }
    for (page, word, _) in PROGRAMS {
        let fits = |block: &&&Block| block.page == *page && block.lines.join("\n").contains(word);
        if programs.iter().filter(fits).count() != 1 {
            found.push(format!("{page}: not one program has `{word}`"));
        }
    }
    crate::none(&found);
}

#[test]
fn calls_and_keywords_of_a_program_are_found() {
    let found = calls("box = client.containers.run(\n    \"a\", mem_limit=\"1m\", user=\"1\")\nif a == b: f(x)\nc = d");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [".run(", "mem_limit=", "user="]);
}
