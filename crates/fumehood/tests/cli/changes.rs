//! `fumehood diff | apply | discard`

use std::path::PathBuf;

use fumehood::changes::{Baseline, Bounds, Store, copy_in, read_copy};
use fumehood::state::{Dir, Places, RunId, State};

use crate::House;

const RUN: &str = "r-20261122-013045-7f3a9c";

/// A workspace with two files, and a run that changed one, removed the other and added a third.
fn changed() -> House {
    let house = House::new();
    let (work, copy) = (house.path("work"), house.path("copy"));
    std::fs::write(work.join("kept.txt"), "one\n").unwrap();
    std::fs::write(work.join("gone.txt"), "x\n").unwrap();
    std::fs::create_dir(&copy).unwrap();
    let places =
        Places { fumehood_state: Some(house.state()), euid: rustix::process::geteuid().as_raw(), ..Places::default() };
    let state = State::open(&places).unwrap();
    let (from, into) = (Dir::open(&work).unwrap(), Dir::open(&copy).unwrap());
    let baseline: Baseline = copy_in(&from, &into, Bounds::default(), None).unwrap();
    std::fs::write(copy.join("kept.txt"), "two\n").unwrap();
    std::fs::remove_file(copy.join("gone.txt")).unwrap();
    std::fs::write(copy.join("new\u{1b}[2J.txt"), "n\n").unwrap();
    let run: RunId = RUN.parse().unwrap();
    let started = (i64::MAX / 2, 0);
    let workspace: PathBuf = std::fs::canonicalize(&work).unwrap();
    let mut store = Store::begin(&state, &run, &workspace, &from, started, Bounds::default()).unwrap();
    read_copy(&mut store, &into, &baseline).unwrap();
    store.finish(&state).unwrap();
    house
}

#[test]
fn diff_shows_what_changed_and_is_1() {
    let house = changed();
    let said = house.run(&["diff"]);
    assert_eq!((said.code, said.err.as_str()), (1, ""));
    for part in [RUN, "modified file kept.txt", "-one", "+two", "removed file gone.txt", "added file new", "digest "] {
        assert!(said.out.contains(part), "{part} in {}", said.out);
    }
    assert!(!said.out.contains('\u{1b}'));
    assert_eq!(house.run(&["diff", RUN]), said);
    let names = house.run(&["diff", "--names", "--", "kept.txt"]);
    names.is(1, "kept.txt\n", "");
}

#[test]
fn apply_takes_exactly_what_was_shown() {
    let house = changed();
    let json = house.run(&["diff", "--json"]).json();
    let digest = json["digest"].as_str().unwrap();
    let wrong = house.run(&["apply", "--digest", &digest.replace(['a', 'b', 'c', '0'], "7")]);
    assert_eq!((wrong.code, wrong.out.as_str()), (1, ""), "as a conflict: nothing is applied");
    assert!(wrong.err.contains("why: wanted "), "{}", wrong.err);
    let said = house.run(&["apply", "--digest", digest]);
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    assert_eq!(std::fs::read_to_string(house.path("work/kept.txt")).unwrap(), "two\n");
    assert!(!house.path("work/gone.txt").exists());
    let log = house.run(&["audit", "show", "--json"]).json();
    assert_eq!(log["events"][0]["kind"], "workspace.applied");
    assert_eq!(house.run(&["diff"]).code, 0, "nothing is left of it");
}

#[test]
fn apply_takes_chosen_files_alone() {
    let house = changed();
    assert_eq!(house.run(&["apply", "--", "kept.txt"]).code, 0);
    assert_eq!(std::fs::read_to_string(house.path("work/kept.txt")).unwrap(), "two\n");
    assert!(house.path("work/gone.txt").exists());
    let said = house.run(&["apply", "--", "nowhere.txt"]);
    assert_eq!(said.code, 125);
    assert!(said.err.contains("nowhere.txt"), "{}", said.err);
}

#[test]
fn a_conflict_is_1_and_nothing_is_applied() {
    let house = changed();
    std::fs::write(house.path("work/kept.txt"), "mine\n").unwrap();
    let said = house.run(&["apply"]);
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    assert!(said.err.starts_with("conflict: nothing was applied\n") && said.err.contains("kept.txt"), "{}", said.err);
    assert!(said.err.contains("-- FILES` takes what is named alone"), "{}", said.err);
    assert_eq!(std::fs::read_to_string(house.path("work/kept.txt")).unwrap(), "mine\n");
    assert!(house.path("work/gone.txt").exists());
    assert!(house.run(&["apply", "--json"]).json()["conflicts"].is_array());
}

#[test]
fn paths_that_no_system_call_takes_do_not_keep_the_rest_from_being_applied() {
    let house = House::new();
    let code = "import os\nopen('kept', 'w').write('x')\nfor i in range(30):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)\n";
    let said = house.run(&["run", "-q", "-w", ".", "--", "python3", "-c", code]);
    assert_eq!(said.code, 0, "{said:?}");
    let refused = house.run(&["diff", "--json"]).json()["refused"][0]["why"].clone();
    assert_eq!(refused, "its path is longer than the kernel takes");
    assert_eq!(house.run(&["apply"]).code, 0);
    assert!(house.path("work/kept").exists() && house.path("work").join("d".repeat(200)).exists());
}

#[test]
fn discard_throws_it_away_and_records_it() {
    let house = changed();
    let said = house.run(&["discard"]);
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    assert_eq!(std::fs::read_to_string(house.path("work/kept.txt")).unwrap(), "one\n");
    assert_eq!(house.run(&["discard", RUN]).code, 125);
    assert_eq!(house.run(&["audit", "show", "--json"]).json()["events"][0]["kind"], "workspace.discarded");
}

#[test]
fn no_changes_and_no_such_place_are_told() {
    let house = House::new();
    for args in [&["diff", RUN][..], &["diff", "nowhere"], &["apply"], &["discard"]] {
        let said = house.run(args);
        assert_eq!((said.code, said.out.as_str()), (125, ""), "{args:?}");
        assert!(said.err.starts_with("error: "), "{}", said.err);
    }
}

#[test]
fn a_run_that_changed_nothing_has_a_diff_of_nothing() {
    let house = House::new();
    let run = house.run(&["run", "--json", "-w", ".:copy", "--", "true"]).json();
    for args in [&["diff"][..], &["diff", "."], &["diff", run["run"].as_str().unwrap()]] {
        let said = house.run(args);
        assert_eq!((said.code, said.out.as_str()), (0, ""), "{args:?}: {said:?}");
        assert!(said.err.starts_with("no changes of "), "{said:?}");
    }
    assert_eq!(house.run(&["diff", "--json"]).json()["entries"], serde_json::json!([]));
}
