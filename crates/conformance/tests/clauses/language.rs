//! The language tier: what its interpreters hold by themselves, and that all else is held by what holds it on the process tier.

use conformance::case::{COUNTING, EVERY, INTERPRETERS, MONTY, PROCESS, QUICKJS, SCRIPTS, WASM};
use conformance::{Case, CaseResult, Cell, Ended, Fixture, check};
use policy::ClauseId;
use policy::rows::ROWS;
use serde_json::Value;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::Tier,
        backends: INTERPRETERS,
        sentence: "a program has no file, no other program and no socket to ask for",
        cell: Cell::Enforced(nothing_of_the_host),
    },
    Case {
        clause: ClauseId::LimitsMemory,
        backends: INTERPRETERS,
        sentence: "what would pass it ends the run",
        cell: Cell::Enforced(memory),
    },
    Case {
        clause: ClauseId::LimitsWall,
        backends: INTERPRETERS,
        sentence: "a program that never ends is ended",
        cell: Cell::Enforced(wall),
    },
    Case {
        clause: ClauseId::LimitsOutput,
        backends: SCRIPTS,
        sentence: "output past it is cut",
        cell: Cell::Enforced(output),
    },
    Case {
        clause: ClauseId::Inputs,
        backends: SCRIPTS,
        sentence: "inputs are variables of their types",
        cell: Cell::Enforced(inputs),
    },
    Case {
        clause: ClauseId::Inputs,
        backends: SCRIPTS,
        sentence: "one that could be no variable of the program is refused",
        cell: Cell::Refused(&["inputs.class={ type = \"string\" }"], "inputs/no-variable"),
    },
    Case {
        clause: ClauseId::EnvSet,
        backends: WASM,
        sentence: "it is held by what holds it on the process tier",
        cell: Cell::Enforced(|scene| behind(scene, ClauseId::EnvSet)),
    },
    Case {
        clause: ClauseId::EnvPass,
        backends: WASM,
        sentence: "it is held by what holds it on the process tier",
        cell: Cell::Enforced(|scene| behind(scene, ClauseId::EnvPass)),
    },
    Case {
        clause: ClauseId::EnvSet,
        backends: SCRIPTS,
        sentence: "variables that no program of it could see are refused",
        cell: Cell::Refused(&["env.set.A=b"], "language/needs-process"),
    },
    Case {
        clause: ClauseId::EnvPass,
        backends: SCRIPTS,
        sentence: "variables that no program of it could see are refused",
        cell: Cell::Refused(&["env.pass=[\"LANG\"]"], "language/needs-process"),
    },
    Case {
        clause: ClauseId::FsRead,
        backends: INTERPRETERS,
        sentence: "a file that no program of it could read is refused",
        cell: Cell::Refused(&["fs.read=[\"/usr/share\"]"], "language/needs-process"),
    },
    Case {
        clause: ClauseId::FsWrite,
        backends: INTERPRETERS,
        sentence: "a file that no program of it could write is refused",
        cell: Cell::Refused(&["fs.write=[\".\"]"], "language/needs-process"),
    },
    Case {
        clause: ClauseId::Workspace,
        backends: INTERPRETERS,
        sentence: "a workspace that no program of it could see is refused",
        cell: Cell::Refused(&["workspace={ path = \".\", mode = \"ro\" }"], "language/needs-process"),
    },
    Case {
        clause: ClauseId::FsHide,
        backends: INTERPRETERS,
        sentence: "what hides parts of a workspace is refused with it",
        cell: Cell::Refused(
            &["workspace={ path = \".\", mode = \"copy\" }", "fs.hide=[\"**/.env\"]"],
            "language/needs-process",
        ),
    },
    Case {
        clause: ClauseId::FsExec,
        backends: INTERPRETERS,
        sentence: "a list of executables is refused: there is nothing that could start one",
        cell: Cell::Refused(&["fs.exec=[\"/bin/true\"]"], "language/needs-process"),
    },
    Case {
        clause: ClauseId::Commands,
        backends: INTERPRETERS,
        sentence: "a policy of commands is refused: there is nothing that could start one",
        cell: Cell::Enforced(|scene| unplanned(scene, "commands = { presets = [\"inspect\"] }")),
    },
    Case {
        clause: ClauseId::ProcessTty,
        backends: INTERPRETERS,
        sentence: "a terminal is refused",
        cell: Cell::Enforced(|scene| unplanned(scene, "process.tty = true")),
    },
    Case {
        clause: ClauseId::FsRoot,
        backends: INTERPRETERS,
        sentence: "another root is refused",
        cell: Cell::Refused(&["fs.root=empty"], "language/needs-process"),
    },
    Case {
        clause: ClauseId::LanguageModules,
        backends: MONTY,
        sentence: "a program that imports another module is not started",
        cell: Cell::Enforced(modules),
    },
    Case {
        clause: ClauseId::LanguageModules,
        backends: MONTY,
        sentence: "a module that the interpreter has not is refused",
        cell: Cell::Refused(&["language.modules=[\"subprocess\"]"], "language.modules/unknown"),
    },
    Case {
        clause: ClauseId::LanguageModules,
        backends: WASM,
        sentence: "modules of Python are refused",
        cell: Cell::Refused(&["language.modules=[\"math\"]"], "language.modules/python-alone"),
    },
    Case {
        clause: ClauseId::LanguageModules,
        backends: QUICKJS,
        sentence: "modules of Python are refused",
        cell: Cell::Refused(&["language.modules=[\"math\"]"], "language.modules/python-alone"),
    },
    Case {
        clause: ClauseId::LanguageRecursion,
        backends: QUICKJS,
        sentence: "an interpreter that bounds the stack and counts no calls refuses it",
        cell: Cell::Refused(&["language.recursion=100"], "language.recursion/not-counted"),
    },
    Case {
        clause: ClauseId::LanguageSteps,
        backends: WASM,
        sentence: "a program ends when it took them all",
        cell: Cell::Enforced(steps),
    },
    Case {
        clause: ClauseId::LanguageSteps,
        backends: SCRIPTS,
        sentence: "an interpreter that counts none refuses it",
        cell: Cell::Refused(&["language.steps=1000000"], "language.steps/not-counted"),
    },
    Case {
        clause: ClauseId::LanguageRecursion,
        backends: COUNTING,
        sentence: "calls do not go deeper",
        cell: Cell::Enforced(recursion),
    },
    Case {
        clause: ClauseId::LanguageModules,
        backends: EVERY,
        sentence: "a tier without an interpreter refuses it",
        cell: Cell::Refused(&["language.modules=[\"math\"]"], "language/needs-language"),
    },
    Case {
        clause: ClauseId::LanguageSteps,
        backends: EVERY,
        sentence: "a tier without an interpreter refuses it",
        cell: Cell::Refused(&["language.steps=1000000"], "language/needs-language"),
    },
    Case {
        clause: ClauseId::LanguageRecursion,
        backends: EVERY,
        sentence: "a tier without an interpreter refuses it",
        cell: Cell::Refused(&["language.recursion=100"], "language/needs-language"),
    },
];

/// One case for each clause for which the interpreters have the process tier behind them.
macro_rules! behind {
    ($($clause:ident)+) => {
        pub(crate) const BEHIND: &[Case] = &[$(Case {
            clause: ClauseId::$clause,
            backends: INTERPRETERS,
            sentence: "it is held, or refused, by what holds or refuses it on the process tier",
            cell: Cell::Enforced(|scene| behind(scene, ClauseId::$clause)),
        },)+];
    };
}

behind! {
    Backend Threat Enforcer FsSockets FsLandlock FsNoexec FsTmp FsShm FsRun FsProtect LimitsWall LimitsCpuTime LimitsCpus
    LimitsCpuset LimitsMemory LimitsPids LimitsOpenFiles LimitsFileSize LimitsDisk LimitsFiles LimitsOutput LimitsOver
    LimitsIoRead LimitsIoWrite LimitsIdle LimitsWarn LimitsKill NetMode NetPresets NetAllow NetDeny NetUnknown NetPrograms
    NetDns NetCa NetProxy NetBandwidth NetBytes NetConnections Inputs Secrets ProcessUser ProcessHostname ProcessUmask
    ProcessLabel ProcessDevices SyscallsProfile SyscallsAllow SyscallsDeny Tools AuditPath AuditRedact AuditContent AuditSync
}

const NOTHING: &str = r#"(module (func (export "_start")))"#;

/// Who holds a clause in a plan, or why it is refused.
fn answer(planned: &Ended, clause: ClauseId) -> Vec<Value> {
    let list = |key: &str| planned.report.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let of_clause = |entry: &Value| entry.get("clause").and_then(Value::as_str) == Some(clause.path());
    let held = list("clauses").into_iter().filter(of_clause);
    let held =
        held.map(|entry| serde_json::json!([entry.get("enforcer"), entry.get("evidence"), entry.get("against")]));
    let refused = list("refused").into_iter().filter(of_clause).filter_map(|entry| entry.get("id").cloned());
    held.chain(refused).collect()
}

/// Refused when it is planned; a run meets another reason first.
fn unplanned(scene: &Fixture, line: &str) -> CaseResult {
    let document = scene.file("policy.toml", &format!("version = 1\n{line}\n"))?;
    let planned = scene.plan_of(&document, scene.backend())?;
    let ids = planned.refusals();
    check(planned.code == Some(126) && ids.iter().any(|id| id == "language/needs-process"), || planned.said())
}

fn behind(scene: &Fixture, clause: ClauseId) -> CaseResult {
    let row = ROWS.iter().find(|row| row.clause == clause).ok_or("the clause has no row")?;
    // What names another backend is asked of this one.
    let said = if clause == ClauseId::Backend { "" } else { row.valid };
    let document = scene.file("policy.toml", &format!("version = 1\n{said}\n"))?;
    let process = PROCESS.first().ok_or("there is no process tier")?;
    let (here, there) = (scene.plan_of(&document, scene.backend())?, scene.plan_of(&document, *process)?);
    check(answer(&here, clause) == answer(&there, clause), || {
        format!("{:?} and on the process tier {:?}", answer(&here, clause), answer(&there, clause))
    })?;
    check(here.code == Some(0) || here.code == Some(126), || here.said())
}

fn nothing_of_the_host(scene: &Fixture) -> CaseResult {
    let file = scene.file("secret", "canary")?;
    let read = format!("print(open({:?}).read())", file.display().to_string());
    check(scene.control_python(&read)?.out() == "canary", || "the control read nothing".to_owned())?;
    let open = r#"(module
        (import "wasi_snapshot_preview1" "path_open" (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") 1) (data (i32.const 0) "/etc/passwd")
        (func (export "_start") (call $exit (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 11)
            (i32.const 0) (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 100)))))"#;
    let javascript = format!("print(require('fs').readFileSync({:?}, 'utf8'))", file.display().to_string());
    let ended = scene.interpreted(&[], (&read, &javascript), open)?;
    let code = if scene.backend().name == "wasm" { 76 } else { 1 };
    check(ended.code == Some(code) && !ended.out().contains("canary"), || ended.said())?;
    let legitimate = scene.interpreted(&[], ("print(6 * 7)", "console.log(6 * 7)"), NOTHING)?;
    check(legitimate.code == Some(0), || legitimate.said())?;
    let says = SCRIPTS.contains(&scene.backend());
    check(!says || legitimate.out() == "42", || legitimate.said())?;
    let other = r#"(module (import "env" "system" (func (param i32))) (func (export "_start")))"#;
    for texts in [
        ("import os", "import os from 'os'"),
        ("import subprocess", "require('child_process')"),
        ("import socket", "await import('net')"),
    ] {
        let ended = scene.interpreted(&[], texts, other)?;
        check(ended.code == Some(1) && ended.violations().contains(&"language/subset"), || ended.said())?;
    }
    Ok(())
}

fn memory(scene: &Fixture) -> CaseResult {
    let grows = r#"(module (memory 1) (func (export "_start") (loop (drop (memory.grow (i32.const 16))) (br 0))))"#;
    for texts in [
        ("x = 'x' * 10 ** 9", "try { new ArrayBuffer(1e9) } catch {}"),
        (
            "x = []\nwhile True:\n    x.append('y' * 10000)",
            "let x = []; while (true) x.push('y'.repeat(10000) + x.length)",
        ),
    ] {
        let ended = scene.interpreted(&["limits.memory=64M", "limits.wall=30s"], texts, grows)?;
        check(ended.code == Some(124) && ended.limit() == "memory", || ended.said())?;
    }
    let fits = scene.interpreted(
        &["limits.memory=64M"],
        ("print(len('x' * 10 ** 6))", "print('x'.repeat(1e6).length)"),
        NOTHING,
    )?;
    check(fits.code == Some(0), || fits.said())
}

fn wall(scene: &Fixture) -> CaseResult {
    let endless = r#"(module (func (export "_start") (loop (br 0))))"#;
    let ended = scene.interpreted(&["limits.wall=1s"], ("while True: pass", "while (true) {}"), endless)?;
    check(ended.code == Some(124) && ended.limit() == "wall", || ended.said())
}

fn output(scene: &Fixture) -> CaseResult {
    let ended =
        scene.interpreted(&["limits.output=10K"], ("print('x' * 100000)", "print('x'.repeat(100000))"), NOTHING)?;
    check(ended.code == Some(0) && ended.out().len() <= 10 << 10, || format!("{} bytes came", ended.out().len()))
}

fn inputs(scene: &Fixture) -> CaseResult {
    let document = "version = 1\n[inputs.n]\ntype = \"integer\"\n[inputs.who]\n";
    let file = scene.file("policy.toml", document)?;
    let file = file.display().to_string();
    let (lang, code) = if QUICKJS.contains(&scene.backend()) {
        ("javascript", "if (n + 1 !== 42) throw n\nprint(who.toUpperCase())")
    } else {
        ("python", "assert n + 1 == 42\nprint(who.upper())")
    };
    let words = [
        "run", "--json", "--tier", "language", "-p", &file, "--input", "n=41", "--input", "who=ann", "--lang", lang,
        "--code", code,
    ];
    let ended = scene.product(&words)?.end()?;
    check(ended.code == Some(0) && ended.out() == "ANN", || ended.said())
}

fn modules(scene: &Fixture) -> CaseResult {
    let allowed =
        scene.interpreted(&["language.modules=[\"math\"]"], ("import math\nprint(math.floor(2.5))", ""), NOTHING)?;
    check(allowed.code == Some(0) && allowed.out() == "2", || allowed.said())?;
    for text in ["print('on')\nimport json", "def f():\n    from json import loads\nprint('on')"] {
        let refused = scene.interpreted(&["language.modules=[\"math\"]"], (text, ""), NOTHING)?;
        check(refused.code == Some(1) && refused.out().is_empty(), || refused.said())?;
    }
    Ok(())
}

fn steps(scene: &Fixture) -> CaseResult {
    let endless = r#"(module (func (export "_start") (loop (br 0))))"#;
    let ended = scene.interpreted(&["language.steps=1000000"], ("", ""), endless)?;
    check(ended.code == Some(124) && ended.limit() == "steps", || ended.said())?;
    let few = scene.interpreted(&["language.steps=1000000"], ("", ""), NOTHING)?;
    check(few.code == Some(0), || few.said())
}

fn recursion(scene: &Fixture) -> CaseResult {
    let (text, deep) = ("def f(n): return f(n + 1)\nf(0)", r#"(module (func $f (export "_start") (call $f)))"#);
    let ended = scene.interpreted(&["language.recursion=50"], (text, ""), deep)?;
    check(ended.code == Some(1), || ended.said())?;
    let shallow = "def f(n): return n if n == 0 else f(n - 1)\nprint(f(40))";
    let fits = scene.interpreted(&["language.recursion=50"], (shallow, ""), NOTHING)?;
    check(fits.code == Some(0), || fits.said())
}
