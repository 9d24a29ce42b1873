//! `fumehood choose`

use serde_json::Value;

use crate::Fixture;

fn row<'a>(json: &'a Value, tier: &str) -> &'a Value {
    json["table"].as_array().unwrap().iter().find(|row| row["tier"] == tier).unwrap()
}

#[test]
fn each_tier_answers_and_the_choice_is_one_that_has_a_plan() {
    let fixture = Fixture::new();
    for (threat, least) in [("mistakes", "language"), ("hostile", "container")] {
        let said = fixture.run(&["choose", "--threat", threat, "--json"]);
        let json = said.json();
        let tiers: Vec<_> = json["table"].as_array().unwrap().iter().map(|row| row["tier"].clone()).collect();
        assert_eq!(tiers, crate::TIERS);
        for row in json["table"].as_array().unwrap() {
            assert_eq!(row["holds"] == true, row["refused"].as_array().unwrap().is_empty(), "{row}");
            assert_eq!(row["measured"] == true, row["start_ms"].is_number(), "{row}");
            for reason in row["refused"].as_array().unwrap() {
                assert!(reason["why"].is_string() && reason["fix"].is_string(), "{reason}");
            }
        }
        if said.code == 0 {
            // What is chosen runs; what stands below it is meant against less.
            let tier = json["choice"]["tier"].as_str().unwrap();
            assert!(row(&json, tier)["holds"] == true && row(&json, tier)["measured"] == true, "{json}");
            let set = format!("threat={threat}");
            let code = ["run", "-q", "--tier", tier, "--set", &set, "--lang", "python", "--code", "pass"];
            let ran = fixture.run(&code);
            assert_eq!(ran.code, 0, "{ran:?}");
            assert!(least != "container" || tier != "process", "{json}");
        } else {
            assert_eq!((said.code, &json["choice"]), (126, &Value::Null));
        }
    }
}

#[test]
fn several_parties_are_not_put_on_one_kernel() {
    let said = Fixture::new().run(&["choose", "--threat", "multi-tenant", "--json"]);
    let json = said.json();
    // A kernel of its own where the host has one, else nothing.
    let chosen = if row(&json, "gvisor")["holds"] == true { (0, "gvisor".into()) } else { (126, Value::Null) };
    assert_eq!((said.code, json["choice"]["tier"].clone()), chosen, "{json}");
    for tier in ["process", "container"] {
        let why = row(&json, tier)["refused"].to_string();
        assert!(why.contains("needs the tier `gvisor` or a stronger one"), "{why}");
    }
}

#[test]
fn a_need_moves_the_choice_up_or_says_what_is_missing() {
    let fixture = Fixture::new();
    let json = fixture.run(&["choose", "--threat", "mistakes", "--needs", "net", "--json"]).json();
    let process = &row(&json, "process")["refused"];
    assert!(process.as_array().unwrap().iter().any(|reason| reason["clause"] == "net.mode"), "{process}");
    assert_ne!(json["choice"]["tier"], "process");
    let gpu = fixture.run(&["choose", "--needs", "gpu", "--json"]).json();
    let why = &row(&gpu, "process")["refused"];
    assert!(why.as_array().unwrap().iter().any(|reason| reason["clause"] == "process.devices"), "{why}");
    for need in ["docker", "root"] {
        let said = fixture.run(&["choose", "--needs", need, "--json"]);
        assert_eq!(said.code, 126, "{said:?}");
        assert!(said.out.contains(&format!("--needs {need}")), "{said:?}");
    }
}

#[test]
fn a_program_that_may_not_be_executed_is_missing() {
    let fixture = Fixture::new();
    let why = |needs: &str, exec: &str| {
        let json = fixture.run(&["choose", "--needs", needs, "--set", &format!("fs.exec=[{exec:?}]"), "--json"]).json();
        row(&json, "container")["refused"].to_string()
    };
    assert!(why("shell", "/usr/bin/env").contains("`fs.exec` lets other files be executed alone"));
    assert!(why("pip", "/usr/bin/env").contains("`python3` is none of them"));
    // By whatever name: the file that `sh` leads to is the shell.
    let real = std::fs::canonicalize("/bin/sh").unwrap();
    assert!(!why("shell", real.to_str().unwrap()).contains("fs.exec"));
}

#[test]
fn what_is_to_be_copied_must_be_able_to_stand_still() {
    let fixture = Fixture::new();
    let json = fixture.run(&["choose", "--needs", "snapshot", "--json"]).json();
    let refused = row(&json, "container")["refused"].to_string().contains("freezer");
    // `snapshot` refuses it there, and no choice says otherwise.
    assert_eq!(row(&json, "vm")["holds"], false, "{json}");
    // The start itself says what is true on this host.
    let id = fixture.run(&["create"]).out.trim_end().to_owned();
    assert_eq!(fixture.run(&["snapshot", &id]).code != 0, refused, "{json}");
    assert_eq!(fixture.run(&["kill", &id]).code, 0);
}

/// What a row says is what happens: each one that holds is planned and, where files of a live sandbox are needed, created, kept
/// and forked; and none that holds there is missing.
#[test]
fn every_row_that_holds_is_accepted_where_it_is_asked_for() {
    let fixture = Fixture::new();
    for threat in ["mistakes", "hostile", "multi-tenant"] {
        for needs in ["shell", "fork", "snapshot"] {
            let json = fixture.run(&["choose", "--threat", threat, "--needs", needs, "--json"]).json();
            for row in json["table"].as_array().unwrap() {
                let (tier, backend) = (row["tier"].as_str().unwrap(), row["backend"].as_str().unwrap());
                let on = ["--tier", tier, &format!("--set=backend={backend}"), &format!("--set=threat={threat}")];
                let is_live = needs != "shell" && tier != "vm";
                let asked = if is_live { "create" } else { "plan" };
                let said = fixture.run(&[&[asked][..], &on].concat());
                let holds = row["holds"] == true;
                assert!(said.code == 0 || !holds, "{threat} {needs} {row}: {said:?}");
                if said.code != 0 || !is_live {
                    continue;
                }
                let id = said.out.trim_end();
                let kept = fixture.run(&[needs, id]);
                assert!(kept.code == 0 || !holds, "{threat} {needs} {row}: {kept:?}");
                for id in kept.out.lines().filter(|_| needs == "fork").chain([id]) {
                    assert_eq!(fixture.run(&["kill", id]).code, 0);
                }
            }
        }
    }
}

#[test]
fn a_workspace_of_the_host_is_nothing_that_could_be_kept() {
    const MAY_BE_WEAKER: &str = "--set=prefer=[\"limits.disk\",\"limits.files\"]";
    let fixture = Fixture::new();
    let json = fixture.run(&["choose", "--needs", "snapshot", "-w", ".:rw", MAY_BE_WEAKER, "--json"]).json();
    assert!(row(&json, "container")["refused"].to_string().contains("run/no-changes"), "{json}");
}

#[test]
fn a_backend_that_is_not_built_is_refused_with_its_reason_whoever_is_asked() {
    let fixture = Fixture::new();
    for (name, why, instead) in [("runc", "its threads count as processes of the program", "`crun`")] {
        let set = format!("backend={name}");
        for command in ["run", "create", "plan", "choose"] {
            let mut words = vec![command, "--json", "--set", &set];
            words.extend_from_slice(if command == "run" { &["--", "true"] } else { &[] });
            let said = fixture.run(&words);
            assert_eq!(said.code, 126, "{command} {name}: {said:?}");
            let all = format!("{}{}", said.out, said.err);
            for part in [name, why, instead] {
                assert!(all.contains(part), "{command} {name}: `{part}` in {all}");
            }
            // `choose` speaks of every row, and names no backend that could be taken.
            let id = if command == "choose" { "\"choice\": null" } else { "backend/not-built" };
            assert!(all.replace("\":null", "\": null").contains(id), "{command} {name}: {all}");
        }
    }
}

#[test]
fn what_is_mistyped_is_told() {
    let fixture = Fixture::new();
    let said = fixture.run(&["choose", "--needs", "shell,pipp"]);
    assert!(said.code == 125 && said.err.contains("did you mean `pip`?"), "{said:?}");
    let said = fixture.run(&["choose", "--set", "limits.memory=7X"]);
    assert!(said.code == 126 && said.err.contains("7X"), "{said:?}");
    let json = fixture.run(&["choose", "--json", "--set", "limits.memory=7X"]).json();
    assert_eq!(
        (&json["schema"], &json["outcome"]["kind"], &json["outcome"]["code"]),
        (&1.into(), &"refused".into(), &126.into())
    );
    assert_eq!(json["refused"].as_array().unwrap().len(), 1, "{json:#}");
}

#[test]
fn costs_are_kept_for_this_host_alone() {
    let fixture = Fixture::new();
    let measured = |args: &[&str]| fixture.run(args).json()["table"].clone();
    let said = fixture.run(&["choose", "--threat", "mistakes", "--json"]);
    assert!(said.err.starts_with("measuring what a start costs by ") && said.err.lines().count() == 1, "{said:?}");
    assert_eq!(fixture.run(&["choose", "--threat", "mistakes", "--json"]).err, "", "what is known is not measured");
    let first = said.json()["table"].clone();
    assert_eq!(measured(&["choose", "--threat", "mistakes", "--json"]), first);
    let file = fixture.state().join("costs.json");
    let mut kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for cost in kept["costs"].as_array_mut().unwrap() {
        cost["start_ms"] = 1e9.into();
    }
    std::fs::write(&file, kept.to_string()).unwrap();
    let told = |table: &Value| table.to_string().contains("1000000000.0");
    assert!(told(&measured(&["choose", "--threat", "mistakes", "--json"])), "what is kept is taken");
    kept["key"] = "another host".into();
    std::fs::write(&file, kept.to_string()).unwrap();
    assert!(!told(&measured(&["choose", "--threat", "mistakes", "--json"])), "another host's is not");
    std::fs::write(&file, "{").unwrap();
    assert!(!told(&measured(&["choose", "--threat", "mistakes", "--json"])), "nor is what cannot be read");
}
