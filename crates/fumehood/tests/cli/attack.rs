//! `fumehood attack`: what is said, and with which exit code, where rows are named one by one.

use super::Fixture;

#[test]
fn rows_that_nothing_promises_are_told_as_such_and_prove_nothing() {
    let fixture = Fixture::new();
    // The preset has a network of its own with `lo` alone, in which routes may be asked for.
    let open = fixture.run(&["attack", "-p", "python", "--only", "NET-08"]);
    assert_eq!(open.code, 1, "{open:?}");
    assert!(open.out.contains("NET-08  not promised"), "{open:?}");
    assert!(open.err.contains("nothing was held: the chosen rows are not promised here"), "{open:?}");
    // Beside one that is held it is no failure.
    let beside = fixture.run(&["attack", "-p", "python", "--only", "NET-08,FS-01"]);
    assert_eq!((beside.code, beside.err.as_str()), (0, ""), "{beside:?}");
    // The same row where it is promised.
    let closed = fixture.run(&["attack", "-p", "strict", "--only", "NET-08"]);
    assert_eq!(closed.code, 0, "{closed:?}");
    assert_eq!(closed.err, "");
}

/// A relative policy is one wherever the campaign works meanwhile: it once skipped every row, and said that all was well.
#[test]
fn a_policy_by_a_relative_name_is_tried_and_rows_that_cannot_be_are_a_failure() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("work/p.toml"), "version = 1\nextends = \"strict\"\n").unwrap();
    let held = fixture.run(&["attack", "-p", "p.toml", "--json", "--only", "FS-01"]);
    let totals = &held.json()["totals"];
    assert_eq!((held.code, &totals["held"], &totals["rows"]), (0, &1.into(), &1.into()), "{held:?}");
    // No probe can say anything: nothing is known of the row.
    let nothing = fixture.run(&["attack", "--json", "--set", "syscalls.deny=[\"write\"]", "--only", "FS-01"]);
    let json = nothing.json();
    assert_eq!((nothing.code, &json["totals"]["skipped"]), (1, &1.into()), "{nothing:?}");
    assert_eq!(json["totals"]["held"], 0, "{json:#}");
}

#[test]
fn the_language_tier_holds_against_programs_that_the_host_runs() {
    let fixture = Fixture::new();
    let said = fixture.run(&["attack", "--tier", "language", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let json = said.json();
    assert_eq!((&json["tier"], &json["totals"]["escaped"]), (&"language".into(), &0.into()), "{json:#}");
    // Each was possible without the tier, and none was left out where its language is on this host.
    let rows = json["rows"].as_array().unwrap();
    let without_node =
        rows.iter().filter(|row| row["why"].as_str().is_some_and(|why| why.contains("no node on this host")));
    let without_node = without_node.count();
    if without_node > 0 {
        println!("skip: rows of the language tier in JavaScript: no node on this host");
    }
    assert_eq!(json["totals"]["held"].as_u64().unwrap() + without_node as u64, json["totals"]["rows"], "{json:#}");
    let ends = |id: &str| rows.iter().find(|row| row["id"] == id).unwrap()["why"].as_str().unwrap().to_owned();
    assert!(ends("RES-L1").contains("its values would have passed"), "{}", ends("RES-L1"));
    assert!(ends("RES-L3").contains("wall time"), "{}", ends("RES-L3"));
    assert!(ends("FS-L1").contains("needs tier process or stronger"), "{}", ends("FS-L1"));
}

/// One row of each kind about the network by name; all of them: `fumehood attack --net allow --only NET`.
#[test]
fn rows_about_names_are_tried_where_names_may_be_reached() {
    let fixture = Fixture::new();
    let rows = ["NET-31b", "NET-32c", "NET-34c", "NET-36", "NET-37", "NET-38", "NET-39", "NET-40", "NET-41", "NET-49"];
    let only = rows.join(",");
    let held = fixture.run(&["attack", "--net", "allow", "--json", "--only", &only]);
    assert_eq!(held.code, 0, "{held:?}");
    let tried = held.json();
    assert_eq!(tried["totals"]["held"], rows.len(), "{tried}");
    // Without a network there is no such promise to break, and nothing is held.
    let closed = fixture.run(&["attack", "--json", "--only", "NET-31b"]);
    assert_eq!((closed.code, &closed.json()["totals"]["not-promised"]), (1, &serde_json::json!(1)), "{closed:?}");
}

/// Rows that only a policy promises which demands their clause.
#[test]
fn rows_of_commands_and_of_rates_are_promised_by_the_clause_that_says_so() {
    let fixture = Fixture::new();
    let prefer = ["--prefer", "limits.disk", "--prefer", "limits.files", "--set", "threat=mistakes"];
    let tried = |flags: &[&str], row: &str| {
        let said = fixture.run(&[&["attack", "--json", "--only", row], &prefer[..], flags].concat());
        let rows = said.json()["rows"].clone();
        (rows[0]["result"].as_str().unwrap_or_default().to_owned(), format!("{said:?}"))
    };
    let commands = ["-w", ".:rw", "--set", "commands={presets=[\"inspect\"]}"];
    for tier in ["container", "process"] {
        let tier = ["--tier", tier, "--set", "fs.protect=false"];
        let (result, said) = tried(&[&commands[..], &tier].concat(), "FS-43");
        assert_eq!(result, "held", "{said}");
        let (result, said) = tried(&[&["-w", ".:rw"][..], &tier].concat(), "FS-43");
        assert_eq!(result, "not-promised", "{said}");
        let (result, said) = tried(&tier, "RES-34");
        assert_eq!(result, "held", "{said}");
    }
    let (result, said) = tried(&["-w", ".:rw"], "RES-25");
    assert_eq!(result, "not-promised", "{said}");
    let rate = ["-w", ".:rw", "--set", "limits.io_write=4M/s"];
    let plan = fixture.run(&[&["plan"], &rate[..], &prefer].concat());
    if plan.code == 126 && plan.err.contains("limits.io_write/") {
        println!("skip: RES-25: this host cannot hold `limits.io_write`");
        return;
    }
    let (result, said) = tried(&rate, "RES-25");
    // A slow or busy disk writes no faster by itself.
    assert!(result == "held" || said.contains("control did not work here"), "{said}");
}
