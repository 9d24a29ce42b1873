//! `fumehood doctor`, also where the host is in a bad state.

use crate::House;

fn check(said: &crate::Said) -> serde_json::Value {
    assert!(matches!(said.code, 0 | 1), "{said:?}");
    assert_eq!(said.err, "");
    let json = said.json();
    assert_eq!((json["schema"].as_u64(), json["ok"].as_bool()), (Some(1), Some(said.code == 0)));
    assert_eq!(json["default"], "container");
    let tiers: Vec<_> = json["host"]["tiers"].as_array().unwrap().iter().map(|t| t["tier"].clone()).collect();
    assert_eq!(tiers, ["process", "container"]);
    json
}

fn findings(json: &serde_json::Value) -> Vec<&str> {
    json["host"]["findings"].as_array().unwrap().iter().map(|f| f["id"].as_str().unwrap()).collect()
}

#[test]
fn every_tier_is_told_with_its_score() {
    let house = House::new();
    let said = house.run(&["doctor"]);
    assert!(matches!(said.code, 0 | 1) && said.err.is_empty(), "{said:?}");
    for part in ["Linux ", "process by native: ", "container (default) by native: ", " of 100", "files ", "resources "]
    {
        assert!(said.out.contains(part), "{part} in {}", said.out);
    }
    let long = house.run(&["doctor", "-v"]).out;
    assert!(long.contains("limits.memory") && long.contains("syscalls.profile"), "{long}");
    let json = check(&house.run(&["doctor", "--json"]));
    for tier in json["host"]["tiers"].as_array().unwrap() {
        // What has a plan was tried, and a trial that failed is told.
        assert_eq!(tier["refused"].as_array().unwrap().is_empty(), tier["proof"].is_object(), "{}", tier["tier"]);
    }
}

#[test]
fn a_state_folder_that_cannot_be_had_is_a_finding() {
    let house = House::new().with("FUMEHOOD_STATE", "/proc/nowhere");
    let json = check(&house.run(&["doctor", "--json"]));
    assert!(findings(&json).iter().any(|id| id.starts_with("state/")), "{json:#}");
}

/// Needs a mount namespace of its own, which the runner of the tests gives.
#[test]
fn missing_proc_and_sys_are_findings_and_no_panic() {
    let house = House::new();
    let script = "unshare --mount --propagation private sh -c 'umount -l /sys; mount -t tmpfs none /proc; \
                  mount -t tmpfs none /sys; exec \"$1\" doctor --json' sh \"$1\"";
    let said = house.said(&crate::script(script, &house).output().unwrap());
    if said.err.contains("Operation not permitted") && said.out.is_empty() {
        // Without the right to mount nothing can be taken away from the product.
        return;
    }
    assert_eq!(said.code, 1);
    let json = check(&said);
    for id in ["host/no-proc", "host/no-sys"] {
        assert!(findings(&json).contains(&id), "{id} in {json:#}");
    }
}
