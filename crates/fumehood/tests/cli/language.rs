//! `fumehood run --tier language`

use serde_json::{Value, json};

use crate::mcp::{Client, text};
use crate::pool::{kinds, until};
use crate::{Fixture, files_below};

/// A file in the working directory.
fn write(fixture: &Fixture, name: &str, content: impl AsRef<[u8]>) {
    std::fs::write(fixture.path("work").join(name), content).unwrap();
}

fn code(fixture: &Fixture, flags: &[&str], (language, code): (&str, &str)) -> crate::CommandOutput {
    let words: Vec<&str> = ["run", "-q", "--tier", "language"]
        .iter()
        .chain(flags)
        .chain(&["--lang", language, "--code", code])
        .copied()
        .collect();
    fixture.run(&words)
}

fn python(fixture: &Fixture, flags: &[&str], text: &str) -> crate::CommandOutput {
    code(fixture, flags, ("python", text))
}

fn javascript(fixture: &Fixture, flags: &[&str], text: &str) -> crate::CommandOutput {
    code(fixture, flags, ("js", text))
}

#[test]
fn code_scripts_and_stdin_are_run_and_an_error_is_one() {
    let fixture = Fixture::new();
    python(&fixture, &[], "print(6 * 7)").is(0, "42\n", "");
    write(&fixture, "a.py", "import json\nprint(json.dumps([1]))");
    fixture.run(&["run", "-q", "--tier", "language", "a.py"]).is(0, "[1]\n", "");
    fixture
        .run_with_stdin(&["run", "-q", "--tier", "language", "--lang", "python", "-"], b"print('in')")
        .is(0, "in\n", "");
    let said = python(&fixture, &[], "print(1)\n1 / 0");
    assert_eq!((said.code, said.out.as_str()), (1, "1\n"), "{said:?}");
    assert!(said.err.contains("line 2") && said.err.contains("ZeroDivisionError: division by zero"), "{said:?}");
}

#[test]
fn a_native_program_a_shell_and_arguments_of_python_are_refused() {
    let fixture = Fixture::new();
    write(&fixture, "a.py", "print(1)");
    for words in [&["--", "true"][..], &["--lang", "bash", "--code", "true"], &["a.py", "word"]] {
        let all: Vec<&str> = ["run", "--json", "--tier", "language"].iter().chain(words).copied().collect();
        let said = fixture.run(&all);
        assert_eq!(said.code, 126, "{said:?}");
        assert_eq!(said.json()["refused"][0]["id"], "language/no-interpreter", "{said:?}");
    }
    let said = fixture.run(&["create", "--tier", "language"]);
    assert_eq!(said.code, 126, "{said:?}");
}

#[test]
fn the_report_names_the_interpreter_and_what_it_lacks() {
    let fixture = Fixture::new();
    let words = ["run", "--json", "--tier", "language", "--lang", "python", "--code", "import numpy"];
    let json = fixture.run(&words).json();
    assert_eq!((&json["tier"], &json["backend"]), (&"language".into(), &"monty".into()), "{json}");
    assert_eq!(json["outcome"]["code"], 1, "{json}");
    assert_eq!(json["violations"][0]["id"], "language/subset", "{json}");
    assert!(json["stderr"].as_str().unwrap().contains("module 'numpy'; needs tier process or stronger"), "{json}");
    let enforcer = json["enforcers"].as_array().unwrap().iter().find(|one| one["clause"] == "tier").unwrap();
    assert!(enforcer["enforcer"].as_str().unwrap().starts_with("interpreter:monty+landlock"), "{enforcer}");
}

#[test]
fn what_the_tier_lacks_is_its_own_word_and_no_programs() {
    let fixture = Fixture::new();
    let line = "language tier: a lie; needs tier process or stronger";
    let ids = |json: &serde_json::Value| json["violations"].to_string();
    let native = ["run", "--json", "--", "sh", "-c", &format!("echo '{line}' >&2; exit 1")];
    let json = fixture.run(&native).json();
    assert!(json["stderr"].as_str().unwrap().contains(line) && !ids(&json).contains("language/subset"), "{json}");
    // A native program that ends by the interpreter's signal is one that a signal ended.
    let json = fixture.run(&["run", "--json", "--", "sh", "-c", &format!("echo '{line}' >&2; kill -16 $$")]).json();
    assert_eq!((&json["outcome"]["kind"], &json["outcome"]["signal"]), (&"signalled".into(), &16.into()), "{json}");
    assert!(!ids(&json).contains("language/subset"), "{json}");
    let words =
        ["run", "--json", "--tier", "language", "--lang", "python", "--code", &format!("raise ValueError('{line}')")];
    let json = fixture.run(&words).json();
    assert!(json["outcome"]["code"] == 1 && !ids(&json).contains("language/subset"), "{json}");
}

#[test]
fn auto_comes_to_it_with_a_program_that_fits_and_moves_up_with_a_reason() {
    let fixture = Fixture::new();
    let tier = |words: &[&str]| {
        let all: Vec<&str> =
            ["plan", "--json", "--tier", "auto", "--set", "threat=mistakes"].iter().chain(words).copied().collect();
        let json = fixture.run(&all).json();
        (json["tier"].as_str().unwrap_or_default().to_owned(), json["why"].as_str().unwrap_or_default().to_owned())
    };
    write(&fixture, "a.py", "import math\nprint(math.pi)");
    write(&fixture, "b.py", "import sys\nprint(sys.path)");
    write(&fixture, "c.py", "x = 1; import sys");
    write(&fixture, "d.py", "\"\"\"Counts,\nfrom the first to the last.\"\"\"\nprint(1)");
    assert_eq!(tier(&["a.py"]).0, "language");
    assert_eq!(tier(&["d.py"]).0, "language");
    let (up, why) = tier(&["c.py"]);
    assert!(up == "process" && why.contains("imports `sys`"), "{up}: {why}");
    // What has other results there, unless the policy says which modules the tier has.
    write(&fixture, "e.py", "import re\nprint(re.split('([,;])', 'a,b;c'))");
    write(&fixture, "f.py", "print(f'{round(2.675, 2)}', round(2.5))");
    for (file, asks) in [("e.py", "imports `re`"), ("f.py", "uses `round` with two arguments")] {
        let (up, why) = tier(&[file]);
        assert!(up == "process" && why.contains(asks), "{up}: {why}");
        let said = fixture.run(&["run", "-q", "--tier", "language", file]);
        assert_eq!(said.code, 0, "{said:?}");
    }
    for file in ["e.py", "f.py"] {
        assert_eq!(tier(&["--set", "language.modules=[\"re\"]", file]).0, "language");
    }
    // The run says it as well.
    let json = fixture.run(&["run", "--json", "--tier", "auto", "--set", "threat=mistakes", "d.py"]).json();
    let note = json["workspace"]["notes"][0].as_str().unwrap_or_default();
    assert!(json["tier"] == "language" && note.starts_with("tier: `language` is the weakest"), "{json}");
    let (up, why) = tier(&["b.py"]);
    assert!(up == "process" && why.contains("imports `sys`"), "{up}: {why}");
    let (up, why) = tier(&["--read", "/usr/share", "a.py"]);
    assert!(up == "process" && why.contains("`language` cannot hold `fs.read`"), "{up}: {why}");
    assert_eq!(tier(&["--", "true"]).0, "process");
    assert_eq!(tier(&[]).0, "process");
    // Against somebody hostile an interpreter is not meant to hold.
    let json = fixture.run(&["plan", "--json", "--tier", "auto", "a.py"]).json();
    assert_ne!(json["tier"], "language", "{json}");
}

#[test]
fn webassembly_has_its_arguments_its_stdin_and_its_exit_code() {
    let fixture = Fixture::new();
    write(&fixture, "answer.wasm", include_bytes!("../../src/run/answer.wasm"));
    fixture.run(&["run", "-q", "--tier", "language", "answer.wasm", "word"]).is(0, "42\n", "");
    let json = fixture.run(&["run", "--json", "--tier", "language", "answer.wasm"]).json();
    assert_eq!(json["backend"], "wasm", "{json}");
}

#[test]
fn a_limit_of_the_interpreters_own_is_a_violation() {
    let fixture = Fixture::new();
    // A module whose memory begins with 65536 pages; the second never ends.
    let module = |memory: &[u8], body: &[u8]| {
        let length = |bytes: &[u8], more: usize| u8::try_from(bytes.len() + more).unwrap();
        let mut all = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x05".to_vec();
        all.push(length(memory, 0));
        all.extend(memory);
        all.extend(b"\x07\x0a\x01\x06_start\0\0\x0a");
        all.extend([length(body, 4), 1, length(body, 2), 0]);
        all.extend(body);
        all.push(0x0b);
        all
    };
    write(&fixture, "large.wasm", module(&[1, 0, 0x80, 0x80, 4], &[]));
    write(&fixture, "loop.wasm", module(&[1, 0, 1], &[0x03, 0x40, 0x0c, 0, 0x0b]));
    for (set, file, limit, id) in [
        ("limits.memory=64M", "large.wasm", "memory", "limits.memory/refused"),
        ("language.steps=1000", "loop.wasm", "steps", "language.steps/taken"),
    ] {
        let said = fixture.run(&["run", "--json", "--tier", "language", "--set", set, file]);
        let json = said.json();
        assert_eq!((said.code, &json["outcome"]["limit"]), (124, &limit.into()), "{json}");
        assert_eq!(
            (&json["violations"][0]["id"], &json["violations"][0]["seen"]),
            (&id.into(), &"kernel".into()),
            "{json}"
        );
    }
}

/// A script calls the tools that the policy allows, by their names; the gate judges each call, and nothing else is had.
#[test]
fn tools_of_the_policy_are_called_and_judged() {
    let fixture = crate::mcp::with_server(Fixture::new(), "s.look", "");
    let policy = std::fs::read_to_string(fixture.path("work/p.toml")).unwrap();
    let deny = "[[tools.tool]]\nname = \"s.other\"\ndecision = \"deny\"\n";
    let policy = policy.replace("[mcp.servers.s]", &format!("{deny}[mcp.servers.s]"));
    write(&fixture, "p.toml", policy);
    let code = "found = tool('s.look', path='/opt/server/words')\nprint(found.split(' [')[0])\n\
                for name, args in [('s.other', {'path': 'x'}), ('s.count', {}), ('s.look', {'path': 1}), ('none', {})]:\n\
                \x20   try:\n        print('let through', tool(name, **args))\n\
                \x20   except PermissionError as error:\n        print('denied', name)\n\
                \x20   except RuntimeError as error:\n        print('failed', name)\n\
                for wrong in [lambda: tool(), lambda: tool('s.look', 1), lambda: tool('s.look', path={1: 2}), lambda: tool('s.look', path={1})]:\n\
                \x20   try:\n        print('let through', wrong())\n    except TypeError:\n        print('no call')\n";
    let said = python(&fixture, &["-p", "p.toml"], code);
    let out = "what it does\ndenied s.other\ndenied s.count\ndenied s.look\ndenied none\nno call\nno call\nno call\nno call\n";
    said.is(0, out, "");
    let code = "const found = tool('s.look', { path: '/opt/server/words' })\nprint(found.split(' [')[0])\n\
                for (const [name, args] of [['s.other', { path: 'x' }], ['s.count', {}], ['s.look', { path: 1 }], ['none', {}]])\n\
                \x20   try { print('let through', tool(name, args)) }\n\
                \x20   catch (e) { print(e.name === 'PermissionError' ? 'denied' : 'failed', name) }\n\
                for (const wrong of [() => tool(), () => tool('s.look', 1), () => tool('s.look', () => 0), () => tool('s.look', [1])])\n\
                \x20   try { print('let through', wrong()) } catch (e) { print(e.name === 'TypeError' ? 'no call' : e) }\n";
    javascript(&fixture, &["-p", "p.toml"], code).is(0, out, "");
    // Each is in the log, as by any other front door.
    let log = fixture.run(&["audit", "show", "--json"]).json().to_string();
    assert!(log.contains("s.look") && log.contains("s.other"), "{log}");
    // Without tools in the policy the name is none, and nothing that only looks like a call goes anywhere.
    let said = python(&fixture, &[], "tool('s.look', path='x')");
    assert!(said.code == 1 && said.err.contains("NameError"), "{said:?}");
    let said = python(&fixture, &["-p", "p.toml"], "open('/etc/passwd')");
    assert!(said.code == 1 && said.err.contains("needs tier process or stronger"), "{said:?}");
    let plan = fixture.run(&["plan", "--json", "-p", "p.toml", "--tier", "language"]).json();
    assert!(plan["clauses"].as_array().unwrap().iter().any(|one| one["clause"] == "tools"), "{plan}");
}

/// Runs code by a server: the run's id, what it printed, and what the server says.
fn ran(client: &mut Client, language: &str, code: &str) -> (String, String, String) {
    let answer = client.call("run_code", &json!({"language": language, "code": code}));
    let of = |key: &str| answer["result"]["structuredContent"][key].as_str().unwrap_or_default().to_owned();
    (of("run"), of("stdout"), text(&answer).to_owned())
}

/// The interpreter that waits: it has a journal, though no run goes on.
fn waiting(fixture: &Fixture) -> Option<String> {
    let journal = files_below(&fixture.state().join("runs")).pop();
    journal.and_then(|path| Some(path.file_stem()?.to_str()?.to_owned()))
}

#[test]
fn a_server_has_an_interpreter_ready_which_is_used_once_and_for_the_same_plan_alone() {
    let fixture = Fixture::new();
    let policy = |modules: &str| {
        let text = format!("version = 1\nextends = \"strict\"\ntier = \"language\"\nlanguage.modules = [{modules}]\n");
        write(&fixture, "p.toml", text);
    };
    policy("\"math\"");
    let mut client = Client::new(&fixture, &["mcp", "serve", "-p", "p.toml"]);
    let mut run = |code: &str| ran(&mut client, "python", code);
    let waits = || waiting(&fixture);
    let cold = ["run.planned", "run.started", "run.ended"];
    let (first, out, _) = run("import math\nx = 1\nprint(math.floor(6.5) * 7)");
    assert_eq!((out.as_str(), kinds(&fixture, &first)), ("42\n", cold.map(str::to_owned).to_vec()));
    let mut taken = String::new();
    assert!(until(|| {
        let ready = waits();
        let (id, out, said) = run("print(x)");
        assert!(out.is_empty() && said.contains("NameError"), "nothing of the first run is there: {said}");
        taken = id;
        ready.as_ref() == Some(&taken)
    }));
    assert_eq!(kinds(&fixture, &taken), ["run.planned", "run.planned", "run.started", "run.ended"]);
    let log = std::fs::read_to_string(fixture.state().join("audit/audit.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of = |event: Value| [event["body"]["digest"].to_string(), event["body"]["what"]["sha256"].to_string()];
    let planned: Vec<_> = events.filter(|it| it["run"] == taken && it["kind"] == "run.planned").map(of).collect();
    assert!(planned[0][0] == planned[1][0] && planned[0][1] != planned[1][1], "the program that ran: {planned:?}");

    // The policy's file has other words now.
    assert!(until(|| waits().is_some()));
    policy("\"json\"");
    let (other, _, said) = run("import math");
    assert!(said.contains("module 'math'"), "{said}");
    assert_eq!(kinds(&fixture, &other)[..2], cold[..2]);
    // The end of the server is that of what waits.
    assert_eq!(client.end(), 0);
    assert!(until(|| waits().is_none()));
    assert_eq!(fixture.run(&["audit", "verify"]).code, 0);
}

#[test]
fn an_interpreter_that_waits_takes_programs_of_its_own_language_alone() {
    let fixture = Fixture::new();
    write(&fixture, "p.toml", "version = 1\nextends = \"strict\"\ntier = \"language\"\n");
    let mut client = Client::new(&fixture, &["mcp", "serve", "-p", "p.toml"]);
    assert_eq!(ran(&mut client, "javascript", "x = 1; print(x)").1, "1\n");
    let mut taken = String::new();
    assert!(until(|| {
        let ready = waiting(&fixture);
        let (id, out, said) = ran(&mut client, "javascript", "print(typeof x)");
        assert_eq!(out, "undefined\n", "nothing of the first run is there: {said}");
        taken = id;
        ready.as_ref() == Some(&taken)
    }));
    assert_eq!(kinds(&fixture, &taken), ["run.planned", "run.planned", "run.started", "run.ended"]);
    assert!(until(|| waiting(&fixture).is_some()));
    let ready = waiting(&fixture);
    let (other, out, said) = ran(&mut client, "python", "print(6 * 7)");
    assert!(out == "42\n" && ready.as_ref() != Some(&other), "{said}");
    assert_eq!(kinds(&fixture, &other)[..2], ["run.planned", "run.started"]);
    assert_eq!(client.end(), 0);
    assert!(until(|| waiting(&fixture).is_none()));
}

#[test]
fn javascript_is_run_and_an_error_is_one() {
    let fixture = Fixture::new();
    javascript(&fixture, &[], "console.log(6 * 7, { a: [1n] })").is(0, "42 {\"a\":[\"1n\"]}\n", "");
    javascript(&fixture, &[], "console.error('e'); await null; print('o')").is(0, "o\n", "e\n");
    write(&fixture, "a.js", "#!/usr/bin/env node\nfunction f() { return null.x }\nf()");
    write(&fixture, "b.mjs", "export const x = 1\nconsole.log(x, this)");
    fixture.run(&["run", "-q", "--tier", "language", "b.mjs"]).is(0, "1 undefined\n", "");
    let said = fixture.run(&["run", "-q", "--tier", "language", "a.js"]);
    assert!(said.code == 1 && said.err.contains("Uncaught TypeError") && said.err.contains("a.js:"), "{said:?}");
    let said = fixture.run(&["run", "-q", "--tier", "language", "a.js", "word"]);
    assert!(said.code == 126 && said.err.contains("takes no arguments"), "{said:?}");
    let said = javascript(&fixture, &["--set", "language.recursion=100"], "1");
    assert!(said.code == 126 && said.err.contains("bounds the stack"), "{said:?}");
    // A word of the language is no variable, and no error of the program's.
    let input = "inputs.class={ type = \"string\" }";
    let said = javascript(&fixture, &["--set", input], "1");
    assert!(said.code == 126 && said.err.contains("inputs/no-variable"), "{said:?}");
    // The name of a setter would be set, and be no variable.
    let said = javascript(&fixture, &["--set", "inputs.__proto__={ type = \"string\" }"], "1");
    assert!(said.code == 126 && said.err.contains("inputs/no-variable"), "{said:?}");
    // A program that was refused memory does not go on, whatever it catches.
    let said =
        javascript(&fixture, &["--set", "limits.memory=64M"], "try { new ArrayBuffer(1e9) } catch {} print('on')");
    assert!(said.code == 124 && said.out.is_empty(), "{said:?}");
}

#[test]
fn what_javascript_lacks_is_told_and_moves_auto_up() {
    let fixture = Fixture::new();
    let words = ["run", "--json", "--tier", "language", "--lang", "javascript", "--code", "require('fs')"];
    let json = fixture.run(&words).json();
    assert_eq!((&json["backend"], &json["outcome"]["code"]), (&"quickjs".into(), &1.into()), "{json}");
    assert_eq!(json["violations"][0]["id"], "language/subset", "{json}");
    assert!(
        json["stderr"].as_str().unwrap().ends_with("language tier: 'require'; needs tier process or stronger\n"),
        "{json}"
    );
    let tier = |file: &str| {
        let json = fixture.run(&["plan", "--json", "--tier", "auto", "--set", "threat=mistakes", file]).json();
        (json["tier"].as_str().unwrap_or_default().to_owned(), json["why"].as_str().unwrap_or_default().to_owned())
    };
    write(&fixture, "a.js", "console.log([1, 2].map(x => x * x))");
    write(&fixture, "b.js", "const fs = require('fs')");
    write(&fixture, "c.mjs", "import fs from 'fs'");
    write(&fixture, "d.js", "/* c */ export * from 'fs'");
    write(&fixture, "e.js", "// fetch(1)\nclass A { fetch(u) { return u } }\nconsole.log(new A().fetch('process.x'))");
    write(&fixture, "f.js", "console.log(['b', 'C'].sort((x, y) => x.localeCompare(y)).join())");
    write(&fixture, "g.js", "console.table([1])");
    assert_eq!(tier("a.js").0, "language");
    assert_eq!(tier("e.js").0, "language");
    for (file, asks) in [
        ("b.js", "uses `require`"),
        ("c.mjs", "imports `fs`"),
        ("d.js", "imports `fs`"),
        ("f.js", "uses `localeCompare`"),
        ("g.js", "uses `console.table`"),
    ] {
        let (up, why) = tier(file);
        assert!(up == "process" && why.contains(asks), "{up}: {why}");
    }
    // By its name the tier still runs it.
    let said = fixture.run(&["run", "-q", "--tier", "language", "f.js"]);
    assert_eq!(said.code, 0, "{said:?}");
}
