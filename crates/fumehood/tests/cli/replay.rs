//! `fumehood replay`: the same run again, or every reason why not.

use crate::{CommandOutput, Fixture};

fn id(said: &CommandOutput) -> String {
    said.json()["run"].as_str().unwrap_or_else(|| panic!("{said:?}")).to_owned()
}

/// The ids and words of a refusal.
fn refused(said: &CommandOutput) -> Vec<(String, String)> {
    assert_eq!(said.code, 126, "{said:?}");
    let text = |reason: &serde_json::Value, key: &str| reason[key].as_str().unwrap().to_owned();
    let json = said.json();
    assert_eq!((&json["schema"], &json["outcome"]["kind"]), (&1.into(), &"refused".into()), "{json:#}");
    json["refused"].as_array().unwrap().iter().map(|one| (text(one, "id"), text(one, "what"))).collect()
}

#[test]
fn a_run_is_repeated_on_the_same_plan_and_its_end_compared() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("work/policy.toml"), "version = 1\nlimits.memory = \"200M\"\n").unwrap();
    std::fs::write(fixture.path("work/input"), "3").unwrap();
    let program = ["--", "python3", "-c", "print('x'); exit(int(open('input').read()))"];
    let asked = ["run", "--json", "-p", "policy.toml", "-w", ".", "--env", "TOKEN=hunter2", "--pids", "20"];
    let first = fixture.run(&[&asked[..], &program[..]].concat());
    assert_eq!(first.code, 3, "{first:?}");
    let run = id(&first);
    // No value of a variable is in the log.
    let log = fixture.run(&["audit", "show", "--run", &run, "--json"]);
    assert!(!log.out.contains("hunter2") && log.out.contains("TOKEN"), "{log:?}");

    let given = ["replay", &run, "--env", "TOKEN=hunter2", "--json"];
    let again = fixture.run(&[&given[..], &program[..]].concat());
    assert_eq!(again.code, 0, "{again:?}");
    let json = again.json();
    assert_eq!(json["plan"], first.json()["plan"]["digest"]);
    assert_eq!((&json["same"], &json["report"]["outcome"]["code"]), (&true.into(), &3.into()), "{json:#}");
    assert_ne!(json["report"]["run"], run.as_str());
    let unknown = json["not_recorded"].to_string();
    assert!(unknown.contains("workspace") && unknown.contains("files of the root"), "{json:#}");

    // What it reads is another: the same plan ends otherwise.
    std::fs::write(fixture.path("work/input"), "4").unwrap();
    let other = fixture.run(&[&given[..], &program[..]].concat());
    assert_eq!(other.code, 1, "{other:?}");
    let differs = &other.json()["differs"][0];
    assert_eq!((&differs["what"], &differs["then"], &differs["now"]), (&"outcome.code".into(), &3.into(), &4.into()));
    let words = fixture.run(&[&given[..4], &program[..]].concat());
    assert!(words.code == 1 && words.err.contains("differs: outcome.code: then 3, now 4"), "{words:?}");
    assert_eq!(words.out, "x\n");

    // Another program, another value, another document: each is told, and nothing runs.
    let wrong = fixture.run(&[&given[..], &["--", "python3", "-c", "print('y')"]].concat());
    assert_eq!(refused(&wrong)[0].0, "replay/other-program");
    assert_eq!(refused(&fixture.run(&given))[0].0, "replay/needs-program");
    let value = fixture.run(&[&["replay", &run, "--env", "TOKEN=other", "--json"][..], &program].concat());
    assert_eq!(refused(&value)[0].0, "replay/differs");
    let none = fixture.run(&[&["replay", &run, "--json"][..], &program].concat());
    assert!(refused(&none).iter().any(|(id, what)| id == "replay/hidden" && what.contains("--env TOKEN")), "{none:?}");
    std::fs::write(fixture.path("work/policy.toml"), "version = 1\nlimits.memory = \"201M\"\n").unwrap();
    let policy = fixture.run(&[&given[..], &program[..]].concat());
    let reasons = refused(&policy);
    assert!(reasons.iter().all(|(id, what)| id == "replay/differs" && what.contains("limits.memory")), "{reasons:?}");
    let runs = fixture.run(&["audit", "show", "--kind", "run.planned", "--json"]);
    assert_eq!(runs.json()["events"].as_array().unwrap().len(), 4, "only the four runs above were planned");
}

#[test]
fn what_is_recorded_in_full_needs_nothing_again() {
    let fixture = Fixture::new();
    let full = ["run", "--json", "--set", "audit.content=full"];
    for program in [&["--", "echo", "two words", ""][..], &["--lang", "python", "--code", "print(6 * 7)"]] {
        let first = fixture.run(&[&full[..], program].concat());
        assert_eq!(first.code, 0, "{first:?}");
        let again = fixture.run(&["replay", &id(&first), "--json"]);
        assert_eq!(again.code, 0, "{again:?}");
        assert_eq!(again.json()["report"]["stdout"], first.json()["stdout"]);
    }
    std::fs::write(fixture.path("work/a.py"), "print(1)").unwrap();
    let first = fixture.run(&[&full[..], &["a.py", "-v"]].concat());
    assert_eq!(fixture.run(&["replay", &id(&first), "--json"]).code, 0);
    std::fs::write(fixture.path("work/a.py"), "print(2)").unwrap();
    assert_eq!(refused(&fixture.run(&["replay", &id(&first), "--json"]))[0].0, "replay/other-program");
}

#[test]
fn what_cannot_be_repeated_is_refused_by_name() {
    let fixture = Fixture::new();
    let none = fixture.run(&["run", "--json", "--set", "audit.content=none", "--", "true"]);
    let said = fixture.run(&["replay", &id(&none), "--json", "--", "true"]);
    assert_eq!(refused(&said)[0].0, "replay/no-content");
    let said = fixture.run(&["replay", "r-20200101-000000-000000", "--json"]);
    assert_eq!(refused(&said)[0].0, "replay/no-run");
    assert_eq!(fixture.run(&["replay", "nonsense"]).code, 125);
    assert_eq!(fixture.run(&["replay"]).code, 125);
    // Another log decides what runs only as it was written.
    let log = fixture.state().join("audit/audit.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, text.replacen("\"landlock\":", "\"landlock\":9", 1)).unwrap();
    let said = fixture.run(&["replay", &id(&none), "--json", "--", "true"]);
    assert_eq!(refused(&said)[0].0, "replay/broken");
}
