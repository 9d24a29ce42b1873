//! Variables, inputs, secrets where there is no broker.

use conformance::case::{EVERY, LINUX};
use conformance::{Case, CaseResult, Cell, Fixture, check};
use policy::ClauseId;

pub(crate) const CASES: &[Case] = &[
    Case {
        clause: ClauseId::EnvPass,
        backends: EVERY,
        sentence: "nothing of the caller's environment goes in but what is named",
        cell: Cell::Enforced(pass),
    },
    Case {
        clause: ClauseId::EnvSet,
        backends: EVERY,
        sentence: "a set variable stands above all others",
        cell: Cell::Enforced(set),
    },
    Case {
        clause: ClauseId::Inputs,
        backends: EVERY,
        sentence: "an input is checked, then a variable",
        cell: Cell::Enforced(inputs),
    },
    Case {
        clause: ClauseId::Secrets,
        backends: LINUX,
        sentence: "a secret is refused without a broker",
        cell: Cell::Refused(
            &["secrets={canary={from=\"env:CONFORM_CANARY\",hosts=[\"example.org\"]}}"],
            "secrets/no-broker",
        ),
    },
];

/// All that a program could see of its environment and its parents'.
const ALL: &str =
    "/usr/bin/env; cat /proc/self/environ /proc/1/environ /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; true";

fn pass(scene: &Fixture) -> CaseResult {
    let control = scene.control_shell(ALL)?;
    check(control.out().contains("canary-of-the-caller"), || control.said())?;
    let ended = scene.shell(&[], ALL)?;
    check(ended.code == Some(0) && !ended.out().contains("canary-of-the-caller"), || ended.said())?;
    check(!ended.out().contains("FUMEHOOD_STATE"), || ended.said())?;
    let named = scene.shell(&["env.pass=[\"CONFORM_CANARY\"]"], "echo $CONFORM_CANARY")?;
    check(named.out() == "canary-of-the-caller", || named.said())
}

fn set(scene: &Fixture) -> CaseResult {
    let ended = scene.shell(
        &["env.pass=[\"CONFORM_CANARY\"]", "env.set={CONFORM_CANARY=\"set\",LANG=\"C\"}"],
        "echo $CONFORM_CANARY $LANG",
    )?;
    check(ended.out() == "set C", || ended.said())?;
    let refused = scene.shell(&["env.set={LD_PRELOAD=\"/tmp/x.so\"}"], "echo ran $LD_PRELOAD")?;
    // The loader's own variables act inside only, where nothing is set-uid: set or refused, never half.
    check(refused.code == Some(126) || refused.out() == "ran /tmp/x.so", || refused.said())
}

fn inputs(scene: &Fixture) -> CaseResult {
    let declared = "inputs={count={type=\"integer\"},word={type=\"string\",max_length=5}}";
    let run = |count: &str, word: &str| {
        let mut flags = Fixture::values(&[declared]);
        for input in [format!("count={count}"), format!("word={word}")] {
            flags.extend(["--input".into(), input.into()]);
        }
        scene.run(&flags, &["/bin/sh", "-c", "echo $INPUT_COUNT $INPUT_WORD"])
    };
    let ended = run("7", "abc")?;
    check(ended.out() == "7 abc", || ended.said())?;
    for (count, word) in [("seven", "abc"), ("7", "abcdef"), ("7.5", "abc")] {
        let refused = run(count, word)?;
        check(refused.code == Some(126), || format!("{count} {word}: {}", refused.said()))?;
    }
    let mut flags = Fixture::values(&[declared]);
    flags.extend(["--input".into(), "other=1".into()]);
    let undeclared = scene.run(&flags, &["/bin/true"])?;
    check(undeclared.code == Some(126), || undeclared.said())
}
