//! `fumehood doctor`, also where the host is in a bad state.

use crate::Fixture;

fn check(said: &crate::CommandOutput) -> serde_json::Value {
    assert!(matches!(said.code, 0 | 1), "{said:?}");
    assert_eq!(said.err, "");
    let json = said.json();
    assert_eq!((json["schema"].as_u64(), json["ok"].as_bool()), (Some(1), Some(said.code == 0)));
    assert_eq!(json["default"], "container");
    let tiers: Vec<_> = json["host"]["tiers"].as_array().unwrap().iter().map(|t| t["tier"].clone()).collect();
    assert_eq!(tiers, crate::TIERS);
    json
}

fn findings(json: &serde_json::Value) -> Vec<&str> {
    json["host"]["findings"].as_array().unwrap().iter().map(|f| f["id"].as_str().unwrap()).collect()
}

#[test]
fn every_tier_is_told_with_what_it_holds() {
    let fixture = Fixture::new();
    let said = fixture.run(&["doctor"]);
    assert!(matches!(said.code, 0 | 1) && said.err.is_empty(), "{said:?}");
    let parts = [
        "Linux ",
        "process by native: ",
        "container (default) by native: ",
        " by the kernel, ",
        "files ",
        "resources ",
    ];
    for part in parts {
        assert!(said.out.contains(part), "{part} in {}", said.out);
    }
    let long = fixture.run(&["doctor", "-v"]).out;
    assert!(long.contains("limits.memory") && long.contains("syscalls.profile"), "{long}");
    let json = check(&fixture.run(&["doctor", "--json"]));
    for tier in json["host"]["tiers"].as_array().unwrap() {
        // What has a plan was tried, and a trial that failed is told.
        let to_try = tier["refused"].as_array().unwrap().is_empty() && tier["tier"] != "vm";
        assert_eq!(to_try, tier["proof"].is_object(), "{}", tier["tier"]);
        // Numbers that can be counted again in the list of clauses.
        let sum = |name: &str| {
            tier["domains"].as_array().unwrap().iter().map(|domain| domain[name].as_u64().unwrap()).sum::<u64>()
        };
        let rows = tier["clauses"].as_array().unwrap();
        // The choice of a tier is no demand by itself.
        let with = |strength: &str| {
            rows.iter().filter(|row| row["strength"] == strength && row["clause"] != "tier").count() as u64
        };
        assert_eq!(sum("watching"), with("supervisor"), "{tier:#}");
        assert_eq!(sum("kernel"), with("kernel") + with("broker"), "{tier:#}");
    }
}

/// What is said of the groups is what the clauses are told by; a bus that does not answer is no reason to fail.
#[test]
fn where_the_control_groups_come_from_agrees_with_who_holds_memory() {
    let bus = Fixture::new();
    let folder = bus.path("runtime");
    std::fs::create_dir(&folder).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(folder.join("bus")).unwrap();
    let fixture = Fixture::new().with("XDG_RUNTIME_DIR", folder.to_str().unwrap());
    for fixture in [Fixture::new(), fixture] {
        let json = check(&fixture.run(&["doctor", "--json"]));
        let groups = json["host"]["groups"].as_str().unwrap();
        let tiers = json["host"]["tiers"].as_array().unwrap();
        // A machine's memory is its own.
        let of_groups = tiers.iter().filter(|tier| tier["tier"] != "vm");
        let rows = of_groups.flat_map(|tier| tier["clauses"].as_array().unwrap());
        let memory: Vec<_> = rows.filter(|row| row["clause"] == "limits.memory").collect();
        assert!(!memory.is_empty() && ["own-group", "delegated-group", "none"].contains(&groups), "{groups}");
        for row in memory {
            let by_group = row["enforcer"].as_str().is_some_and(|by| by.starts_with("cgroup-"));
            assert_eq!(by_group, groups != "none", "{groups}: {row}");
        }
    }
}

#[test]
fn a_state_folder_that_cannot_be_had_is_a_finding() {
    let fixture = Fixture::new().with("FUMEHOOD_STATE", "/proc/nowhere");
    let json = check(&fixture.run(&["doctor", "--json"]));
    assert!(findings(&json).iter().any(|id| id.starts_with("state/")), "{json:#}");
}

/// Needs a mount namespace of its own, which the runner of the tests gives.
#[test]
fn missing_proc_and_sys_are_findings_and_no_panic() {
    let fixture = Fixture::new();
    let script = "unshare --mount --propagation private sh -c 'umount -l /sys; mount -t tmpfs none /proc; \
                  mount -t tmpfs none /sys; exec \"$1\" doctor --json' sh \"$1\"";
    let said = fixture.said(&crate::script(script, &fixture).output().unwrap());
    if said.err.contains("Operation not permitted") && said.out.is_empty() {
        println!("skip: nobody here mounts, so nothing can be taken away from the product");
        return;
    }
    assert_eq!(said.code, 1);
    let json = check(&said);
    for id in ["host/no-proc", "host/no-sys"] {
        assert!(findings(&json).contains(&id), "{id} in {json:#}");
    }
}

#[test]
fn one_tier_is_looked_at_alone_and_the_exit_code_is_about_it() {
    let fixture = Fixture::new();
    let all = check(&fixture.run(&["doctor", "--json"]));
    for (tier, backends) in [("process", 1), ("container", 4)] {
        let said = fixture.run(&["doctor", "--tier", tier, "--json"]);
        let json = said.json();
        let tiers = json["host"]["tiers"].as_array().unwrap();
        assert_eq!((tiers.len(), &tiers[0]["tier"]), (backends, &tier.into()), "{said:?}");
        let same = all["host"]["tiers"].as_array().unwrap().iter().find(|row| row["tier"] == tier).unwrap();
        assert_eq!(tiers[0]["refused"], same["refused"]);
        let held = tiers[0]["proof"]["held"] == true;
        assert_eq!((said.code, &json["ok"]), (i32::from(!held), &held.into()), "{said:?}");
        let text = fixture.run(&["doctor", "--tier", tier]);
        assert_eq!(text.out.matches(" by native: ").count(), 1, "{text:?}");
    }
}

#[test]
fn a_tier_that_there_is_not_is_told_with_those_that_there_are() {
    for (typed, fix) in [
        ("containr", "did you mean `--tier container`?"),
        ("nonsense", "write one of `language`, `process`, `container`, `gvisor`, `vm`"),
    ] {
        Fixture::new().run(&["doctor", "--tier", typed]).is(
            125,
            "",
            &format!(
                "error: `--tier {typed}`: no tier that could be looked at\n  --> command line\n  why: the tiers of this version are \
                 `language`, `process`, `container`, `gvisor`, `vm`\n  fix: {fix}\n"
            ),
        );
    }
}

/// Each sandbox is compared with what /proc shows of it: without one, or with another's, nothing starts.
#[test]
fn a_missing_or_foreign_proc_is_a_refusal_with_its_remedy() {
    for (id, way) in [
        ("host/foreign-proc", "unshare --mount --pid --fork sh -c"),
        (
            "host/no-proc",
            "unshare --mount --propagation private sh -c 'mount -t tmpfs none /proc; exec \"$0\" \"$@\"' sh -c",
        ),
    ] {
        for tier in ["process", "container"] {
            let fixture = Fixture::new();
            let commands = format!(
                "\"$1\" run --tier {tier} -- true; echo $?; \"$1\" plan --tier {tier} >/dev/null; echo $?; \
                 \"$1\" doctor --tier {tier} --json"
            );
            let said =
                fixture.said(&crate::script(&format!("{way} '{commands}' sh \"$1\""), &fixture).output().unwrap());
            if said.out.is_empty() {
                println!("skip: no namespaces can be made here");
                return;
            }
            assert!(said.out.starts_with("126\n126\n{"), "{id} {tier}: {said:?}");
            assert_eq!(said.err.matches("fix:  mount -t proc proc /proc").count(), 2, "{id} {tier}: {said:?}");
            assert_eq!(said.err.matches(&format!("explain {id}")).count(), 2, "{id} {tier}: {said:?}");
            let json: serde_json::Value = serde_json::from_str(said.out.strip_prefix("126\n126\n").unwrap()).unwrap();
            assert!(findings(&json).contains(&id), "{json:#}");
        }
    }
}
