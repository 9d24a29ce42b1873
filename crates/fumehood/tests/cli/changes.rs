//! `fumehood diff | apply | discard`

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sandbox::changes::{Baseline, Bounds, Store, copy_in, read_copy};
use sandbox::state::{Dir, Places, RunId, State};

use rustix::fs::{FileType, Mode};

use crate::Fixture;

const RUN: &str = "r-20261122-013045-7f3a9c";

/// A workspace with two files, and a run that changed one, removed the other and added a third.
fn changed() -> Fixture {
    left_by(|copy| {
        std::fs::write(copy.join("kept.txt"), "two\n").unwrap();
        std::fs::remove_file(copy.join("gone.txt")).unwrap();
        std::fs::write(copy.join("new\u{1b}[2J.txt"), "n\n").unwrap();
    })
}

/// A workspace with two files, and a run that did this to its copy.
fn left_by(work_on: impl FnOnce(&Path)) -> Fixture {
    let fixture = Fixture::new();
    let (work, copy) = (fixture.path("work"), fixture.path("copy"));
    std::fs::write(work.join("kept.txt"), "one\n").unwrap();
    std::fs::write(work.join("gone.txt"), "x\n").unwrap();
    std::fs::create_dir(&copy).unwrap();
    let places = Places {
        fumehood_state: Some(fixture.state()),
        euid: rustix::process::geteuid().as_raw(),
        ..Places::default()
    };
    let state = State::open(&places).unwrap();
    let (from, into) = (Dir::open(&work).unwrap(), Dir::open(&copy).unwrap());
    let baseline: Baseline = copy_in(&from, &into, Bounds::default()).unwrap();
    work_on(&copy);
    let run: RunId = RUN.parse().unwrap();
    let started = (i64::MAX / 2, 0);
    let workspace: PathBuf = std::fs::canonicalize(&work).unwrap();
    let mut store = Store::begin(&state, &run, &workspace, &from, started, Bounds::default()).unwrap();
    read_copy(&mut store, &into, &baseline).unwrap();
    store.finish(&state).unwrap();
    fixture
}

#[test]
fn diff_shows_what_changed_and_is_1() {
    let fixture = changed();
    let said = fixture.run(&["diff"]);
    assert_eq!((said.code, said.err.as_str()), (1, ""));
    for part in [RUN, "modified file kept.txt", "-one", "+two", "removed file gone.txt", "added file new", "digest "] {
        assert!(said.out.contains(part), "{part} in {}", said.out);
    }
    assert!(!said.out.contains('\u{1b}'));
    assert_eq!(fixture.run(&["diff", RUN]), said);
    let names = fixture.run(&["diff", "--names", "--", "kept.txt"]);
    names.is(1, "kept.txt\n", "");
    // The same in colour, which is for what was added and taken away.
    let coloured = fixture.run(&["diff", "--color", "always"]).out;
    for part in ["\u{1b}[32m+two\u{1b}[0m\n", "-one\u{1b}[0m\n"] {
        assert!(coloured.contains(part), "{part:?} in {coloured:?}");
    }
    assert!(coloured.contains("modified file kept.txt\n"), "{coloured:?}");
}

#[test]
fn apply_takes_exactly_what_was_shown() {
    let fixture = changed();
    let json = fixture.run(&["diff", "--json"]).json();
    let digest = json["digest"].as_str().unwrap();
    let wrong = fixture.run(&["apply", "--digest", &digest.replace(['a', 'b', 'c', '0'], "7")]);
    assert_eq!((wrong.code, wrong.out.as_str()), (1, ""), "as a conflict: nothing is applied");
    assert!(wrong.err.contains("why: wanted "), "{}", wrong.err);
    let said = fixture.run(&["apply", "--digest", digest]);
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    assert_eq!(std::fs::read_to_string(fixture.path("work/kept.txt")).unwrap(), "two\n");
    assert!(!fixture.path("work/gone.txt").exists());
    let log = fixture.run(&["audit", "show", "--json"]).json();
    assert_eq!(log["events"][0]["kind"], "workspace.applied");
    assert_eq!(fixture.run(&["diff"]).code, 0, "nothing is left of it");
}

const GIT: &str = "export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; ";

/// What a script in the workspace says on the host.
#[track_caller]
fn on_the_host(fixture: &Fixture, text: &str) -> String {
    let said = fixture.said(&crate::script(&format!("set -e; {GIT}{text}"), fixture).output().unwrap());
    assert_eq!(said.code, 0, "{text}: {said:?}");
    said.out
}

/// A run that commits, once this was done on the host.
fn committed_while(fixture: &Fixture, mode: &str, meanwhile: &str) -> crate::CommandOutput {
    on_the_host(fixture, "git init -q -b main .; echo 1 > a; echo 1 > b; git add .; git commit -qm first");
    let program = format!("{GIT}echo up; cat; echo 2 > a; git commit -qam second");
    let options = ["run", "-p", "coding-agent", "--prefer", "limits.disk", "--prefer", "limits.files", "-w", mode];
    let mut command = fixture.command(&[&options[..], &["--", "sh", "-ec", &program]].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut up = [0; 3];
    child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    on_the_host(fixture, meanwhile);
    drop(child.stdin.take());
    fixture.said(&child.wait_with_output().unwrap())
}

#[test]
fn git_status_on_the_host_while_a_run_goes_on_is_no_conflict() {
    for mode in [".", ".:copy", ".:rw"] {
        let fixture = Fixture::new();
        let meanwhile = "before=$(stat -c %i .git/index); touch -d @1 b; git status > /dev/null; test $before != $(stat -c %i .git/index)";
        let said = committed_while(&fixture, mode, meanwhile);
        assert_eq!(said.code, 0, "{mode}: {said:?}");
        let applied = fixture.run(&["apply"]);
        assert!(applied.code == 0 || mode == ".:rw", "{mode}: {applied:?}");
        let now = on_the_host(&fixture, "git log --format=%s; cat a; git status --porcelain");
        assert_eq!(now, "second\nfirst\n2\n", "{mode}: {said:?}");
    }
    // Where it has another entry, it is one.
    let fixture = Fixture::new();
    assert_eq!(committed_while(&fixture, ".", "echo mine > mine; git add mine").code, 0);
    let applied = fixture.run(&["apply"]);
    assert!(applied.code == 1 && applied.err.contains(".git/index"), "{applied:?}");
    assert_eq!(on_the_host(&fixture, "git log --format=%s; git status --porcelain"), "first\nA  mine\n");
}

#[test]
fn an_apply_that_was_killed_is_told_until_it_is_done_again() {
    let fixture = changed();
    let half = r#"{"by":"r-20261122-013045-000000","paths":["kept.txt"]}"#;
    std::fs::write(fixture.state().join("changes").join(RUN).join("applying.json"), half).unwrap();
    let told = format!("the same `fumehood apply {RUN}` again finishes it");
    for (words, code) in [(&["diff"][..], 1), (&["diff", "--names"], 1), (&["changes"], 0), (&["gc"], 0)] {
        let said = fixture.run(words);
        assert!(said.code == code && said.err.contains(&told), "{words:?}: {said:?}");
    }
    for (words, place) in [
        (&["diff", "--json"][..], "/interrupted/run"),
        (&["changes", "--json"], "/runs/0/interrupted"),
        (&["gc", "--json"], "/interrupted/0/run"),
    ] {
        assert!(fixture.run(words).json().pointer(place).is_some(), "{words:?}");
    }
    let found = fixture.run(&["doctor", "--json"]).json();
    let is_told = |found: &serde_json::Value| {
        found["id"] == "changes/interrupted" && found["fix"].as_str().unwrap().contains(&told)
    };
    assert!(found["host"]["findings"].as_array().unwrap().iter().any(is_told), "{found}");
    assert_eq!(fixture.run(&["apply"]).code, 0);
    assert_eq!(fixture.run(&["gc"]).err, "");
    let fixture = changed();
    std::fs::write(fixture.state().join("changes").join(RUN).join("applying.json"), half).unwrap();
    let said = fixture.run(&["discard"]);
    assert!(said.err.ends_with("stays in the workspace\n"), "{said:?}");
}

#[test]
fn apply_tells_what_runs_or_is_obeyed_of_what_it_took_and_of_nothing_else() {
    let fixture = left_by(|copy| {
        for (name, text) in [("Makefile", "all:\n"), ("CLAUDE.md", "obey\n"), ("kept.txt", "two\n"), (".envrc", "x\n")]
        {
            std::fs::write(copy.join(name), text).unwrap();
        }
    });
    let said = fixture.run(&["apply", "--", "Makefile", "kept.txt"]);
    said.is(0, "", "2 paths applied to `$DIR/work`\n  ! Makefile: executes: run by make\n");
    let json = fixture.run(&["apply", "--leave-protected", "--json"]).json();
    let marks = json["marks"].as_array().unwrap();
    assert_eq!(marks.len(), 1, "{json}");
    assert_eq!((&marks[0]["path"], &marks[0]["marks"][0]["id"]), (&"CLAUDE.md".into(), &"instructs".into()));
    let said = fixture.run(&["apply", "--take-protected", ".envrc"]);
    assert!(said.err.contains("  ! .envrc: protected: shell: direnv runs it"), "{said:?}");
}

#[test]
fn many_marks_are_counted_for_a_person_and_listed_for_a_program() {
    let fixture = left_by(|copy| {
        for number in 0..25 {
            let folder = copy.join(format!("d{number:02}"));
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("Makefile"), "all:\n").unwrap();
        }
    });
    let said = fixture.run(&["apply"]);
    assert_eq!(said.err.matches("executes: run by make").count(), 20, "{said:?}");
    assert!(said.err.ends_with("  ! 5 more: `--json` has all\n"), "{said:?}");
}

/// Its names are hidden from root, who sees them, and from the run, whose user could not list them: such a folder is in no copy.
#[test]
fn a_hidden_name_in_a_folder_that_is_not_copied_is_not_there() {
    if !rustix::process::geteuid().is_root() {
        return println!("skip: who is not root is refused, since nobody knows what is there");
    }
    let fixture = Fixture::new();
    let shut = fixture.path("work/shut");
    std::fs::create_dir(&shut).unwrap();
    for path in [shut.join(".env"), fixture.path("work/.env")] {
        std::fs::write(path, "SECRET").unwrap();
    }
    rustix::fs::chmod(&shut, Mode::from_raw_mode(0o311)).unwrap();
    rustix::fs::chmod(fixture.dir.path(), Mode::from_raw_mode(0o755)).unwrap();
    for path in [fixture.path("work"), shut.clone(), shut.join(".env"), fixture.path("work/.env")] {
        std::os::unix::fs::chown(path, Some(4242), Some(4242)).unwrap();
    }
    for mode in ["copy", "overlay"] {
        let look = "cat .env shut/.env 2>/dev/null; echo done";
        let said = fixture.run(&[
            "run",
            "-q",
            "-w",
            &format!(".:{mode}"),
            "--set",
            "fs.hide=[\"**/.env\"]",
            "--",
            "sh",
            "-c",
            look,
        ]);
        said.is(0, "done\n", "");
    }
}

/// Where a grant is mounted, the copy of what the workspace has by that name would be written into it.
#[test]
fn a_grant_within_a_copy_is_refused_by_the_plan_where_the_workspace_has_that_name() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.path("work/sub")).unwrap();
    std::fs::write(fixture.path("work/sub/x"), "x").unwrap();
    let within = fixture.path("work/sub");
    let flags = |mode: &str| {
        [
            "-w".to_owned(),
            format!(".:{mode}"),
            "--set=workspace.at=same".to_owned(),
            format!("--read={}", within.display()),
        ]
    };
    for command in ["plan", "run"] {
        let said =
            fixture.run(&[&[command.to_owned()], &flags("copy")[..], &["--", "ls", "sub"].map(str::to_owned)].concat());
        assert_eq!(said.code, 126, "{said:?}");
        assert!(said.err.contains("the grant `$DIR/work/sub` is shown at `$DIR/work/sub`"), "{said:?}");
    }
    let said = fixture.run(
        &[&["run".to_owned(), "-q".to_owned()], &flags("overlay")[..], &["--", "ls", "sub"].map(str::to_owned)]
            .concat(),
    );
    said.is(0, "x\n", "");
}

#[test]
fn apply_takes_chosen_files_alone() {
    let fixture = changed();
    assert_eq!(fixture.run(&["apply", "--", "kept.txt"]).code, 0);
    assert_eq!(std::fs::read_to_string(fixture.path("work/kept.txt")).unwrap(), "two\n");
    assert!(fixture.path("work/gone.txt").exists());
    let said = fixture.run(&["apply", "--", "nowhere.txt"]);
    assert_eq!(said.code, 125);
    assert!(said.err.contains("nowhere.txt"), "{}", said.err);
}

#[test]
fn a_conflict_is_1_and_nothing_is_applied() {
    let fixture = changed();
    std::fs::write(fixture.path("work/kept.txt"), "mine\n").unwrap();
    let said = fixture.run(&["apply"]);
    assert_eq!((said.code, said.out.as_str()), (1, ""));
    assert!(said.err.starts_with("conflict: nothing was applied\n") && said.err.contains("kept.txt"), "{}", said.err);
    assert!(said.err.contains("-- FILES` takes what is named alone"), "{}", said.err);
    assert_eq!(std::fs::read_to_string(fixture.path("work/kept.txt")).unwrap(), "mine\n");
    assert!(fixture.path("work/gone.txt").exists());
    assert!(fixture.run(&["apply", "--json"]).json()["conflicts"].is_array());
}

#[test]
fn paths_that_no_system_call_takes_do_not_keep_the_rest_from_being_applied() {
    let fixture = Fixture::new();
    let code = "import os\nopen('kept', 'w').write('x')\nfor i in range(30):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)\n";
    let said = fixture.run(&["run", "-q", "-w", ".", "--", "python3", "-c", code]);
    assert_eq!(said.code, 0, "{said:?}");
    let refused = fixture.run(&["diff", "--json"]).json()["refused"][0]["why"].clone();
    assert_eq!(refused, "its path is longer than the kernel takes");
    assert_eq!(fixture.run(&["apply"]).code, 0);
    assert!(fixture.path("work/kept").exists() && fixture.path("work").join("d".repeat(200)).exists());
}

/// A workspace, and a run that left `p`, which no workspace takes over, and whatever else `more` does to the copy.
fn with_a_pipe(more: impl FnOnce(&Path)) -> Fixture {
    left_by(|copy| {
        rustix::fs::mknodat(rustix::fs::CWD, copy.join("p"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        more(copy);
    })
}

#[test]
fn where_nothing_can_be_applied_each_reason_is_told_and_it_is_1() {
    let why = "pipe";
    let fixture = with_a_pipe(|_| {});
    for args in [&["apply"][..], &["apply", "--", "p"], &["apply", "--leave-protected"]] {
        let said = fixture.run(args);
        assert_eq!((said.code, said.out.as_str()), (1, ""), "{args:?}: {said:?}");
        assert!(said.err.starts_with("conflict: nothing was applied\n  not-carried  p  "), "{said:?}");
        assert!(said.err.contains(why) && !said.err.contains("-- FILES"), "{said:?}");
    }
    let json = fixture.run(&["apply", "--json"]).json();
    assert_eq!((&json["conflicts"][0]["path"], &json["conflicts"][0]["id"]), (&"p".into(), &"not-carried".into()));
    // It did change something, and is still known.
    let said = fixture.run(&["diff"]);
    assert_eq!(said.code, 1);
    assert!(said.out.contains("not carried over:\n  p: "), "{said:?}");
    assert_eq!(fixture.run(&["discard"]).code, 0);
}

#[test]
fn protected_paths_that_are_left_and_all_there_is_are_no_application() {
    let fixture = left_by(|copy| std::fs::write(copy.join(".mcp.json"), "{}").unwrap());
    let said = fixture.run(&["apply", "--leave-protected"]);
    assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
    assert!(said.err.starts_with("conflict: nothing was applied\n  protected  .mcp.json  "), "{said:?}");
    assert!(said.err.contains("`--take-protected PATH`"), "{said:?}");
    let refused = fixture.run(&["apply"]);
    assert!(refused.err.contains("`--take-protected PATH`"), "{refused:?}");
    assert_eq!(fixture.run(&["apply", "--take-protected", ".mcp.json"]).code, 0);
}

#[test]
fn what_is_left_behind_is_told_where_the_rest_is_taken() {
    let taken = || with_a_pipe(|copy| std::fs::write(copy.join("a"), "1\n").unwrap());
    let said = taken().run(&["apply"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.err.starts_with("1 path applied to ") && said.err.contains("; 1 not carried over:\n  p: "),
        "{said:?}"
    );
    let fixture = taken();
    assert_eq!(
        fixture.run(&["apply", "--json", "--", "a"]).json()["refused"],
        serde_json::json!([]),
        "it was not asked for"
    );
    let json = taken().run(&["apply", "--json"]).json();
    assert_eq!(json["refused"][0]["path"], "p");
    // By name, it is a conflict for all that was named.
    let fixture = taken();
    let said = fixture.run(&["apply", "--", "a", "p"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("-- FILES`"), "{said:?}");
    assert!(!fixture.path("work/a").exists());
    // `diff` of a path tells what is about that path.
    assert!(!fixture.run(&["diff", "--", "a"]).out.contains("not carried over"));
    let said = fixture.run(&["diff", "--", "p"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("not carried over:\n  p: "), "{said:?}");
    let names = fixture.run(&["diff", "--names"]);
    names.is(1, "a\n", "1 path is not carried over: `fumehood diff` says why\n");
}

#[test]
fn discard_throws_away_named_files_alone() {
    let fixture = changed();
    fixture.run(&["discard", "--", "kept.txt"]).is(0, "", &format!("1 path of {RUN} is gone\n"));
    let names = fixture.run(&["diff", "--names"]);
    assert!(!names.out.contains("kept.txt") && names.out.contains("gone.txt"), "{names:?}");
    assert_eq!(fixture.run(&["apply"]).code, 0);
    assert_eq!(std::fs::read_to_string(fixture.path("work/kept.txt")).unwrap(), "one\n");
    assert!(!fixture.path("work/gone.txt").exists());
    let event = fixture.run(&["audit", "show", "--json"]).json()["events"][0].clone();
    assert_eq!((&event["kind"], &event["body"]["paths"][0]), (&"workspace.discarded".into(), &"kept.txt".into()));
    let fixture = changed();
    let said = fixture.run(&["discard", "--", "nowhere.txt"]);
    assert_eq!(said.code, 125);
    assert_eq!(fixture.run(&["diff"]).code, 1, "nothing was thrown away");
    let last = fixture.run(&["discard", "--json", "--", "."]).json();
    assert_eq!(last["paths"].as_array().map(Vec::len), Some(3));
    assert_eq!(fixture.run(&["diff"]).code, 0);
}

#[test]
fn a_damaged_list_of_changes_can_be_discarded_as_its_error_says() {
    let fixture = changed();
    std::fs::write(fixture.state().join("changes").join(RUN).join("manifest.json"), "{").unwrap();
    let said = fixture.run(&["apply", RUN]);
    assert!(said.err.contains(&format!("fix: discard it: `fumehood discard {RUN}`")), "{said:?}");
    assert_eq!(fixture.run(&["discard", RUN]).code, 0);
    assert_eq!(fixture.run(&["discard", RUN]).code, 125);
}

/// The word names a run or a workspace. Whoever names a file there means that file, and not all that the run did.
#[test]
fn a_file_in_the_place_of_a_workspace_is_bad_usage() {
    let fixture = changed();
    for command in ["diff", "apply", "discard"] {
        let said = fixture.run(&[command, "kept.txt"]);
        assert_eq!((said.code, said.out.as_str()), (125, ""), "{said:?}");
        assert!(said.err.contains(&format!("fix: `fumehood {command} -- kept.txt`")), "{said:?}");
    }
    assert_eq!(fixture.run(&["diff", "--names"]).out.lines().count(), 3);
}

#[test]
fn discard_throws_it_away_and_records_it() {
    let fixture = changed();
    let said = fixture.run(&["discard"]);
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    assert_eq!(std::fs::read_to_string(fixture.path("work/kept.txt")).unwrap(), "one\n");
    assert_eq!(fixture.run(&["discard", RUN]).code, 125);
    assert_eq!(fixture.run(&["audit", "show", "--json"]).json()["events"][0]["kind"], "workspace.discarded");
}

#[test]
fn no_changes_and_no_such_place_are_told() {
    let fixture = Fixture::new();
    for args in [&["diff", RUN][..], &["diff", "nowhere"], &["apply"], &["discard"]] {
        let said = fixture.run(args);
        assert_eq!((said.code, said.out.as_str()), (125, ""), "{args:?}");
        assert!(said.err.starts_with("error: "), "{}", said.err);
    }
}

#[test]
fn a_run_that_changed_nothing_has_a_diff_of_nothing() {
    let fixture = Fixture::new();
    let run = fixture.run(&["run", "--json", "-w", ".:copy", "--", "true"]).json();
    for args in [&["diff"][..], &["diff", "."], &["diff", run["run"].as_str().unwrap()]] {
        let said = fixture.run(args);
        assert_eq!((said.code, said.out.as_str()), (0, ""), "{args:?}: {said:?}");
        assert!(said.err.starts_with("no changes of "), "{said:?}");
    }
    assert_eq!(fixture.run(&["diff", "--json"]).json()["entries"], serde_json::json!([]));
}

#[test]
fn what_to_do_about_a_conflict_is_as_wide_as_the_terminal() {
    let fixture = changed();
    std::fs::write(fixture.path("work/kept.txt"), "three\n").unwrap();
    let wide = fixture.run(&["apply"]);
    let narrow = fixture.with("COLUMNS", "60").run(&["apply"]);
    assert_eq!((wide.code, narrow.code), (1, 1), "{narrow:?}");
    for (said, columns) in [(&wide, 100), (&narrow, 60)] {
        let fix = said.err.split_once("\n  fix: ").unwrap().1;
        assert!(fix.lines().count() > 1 && fix.lines().skip(1).all(|line| line.starts_with("       ")), "{said:?}");
        assert!(said.err.lines().all(|line| line.chars().count() <= columns), "{columns} {said:?}");
        assert!(fix.trim_end().ends_with("drops it all"), "{said:?}");
    }
}

#[test]
fn without_a_current_directory_that_is_what_is_told() {
    let fixture = changed();
    for command in ["diff", "apply", "discard"] {
        let text = format!("mkdir gone; cd gone; rmdir ../gone; exec \"$1\" {command}");
        let said = fixture.said(&crate::script(&text, &fixture).output().unwrap());
        assert_eq!(said.code, 125, "{said:?}");
        assert!(said.err.contains("error: there is no current directory\n"), "{said:?}");
        // A run that is named needs none.
        let named = format!("mkdir gone; cd gone; rmdir ../gone; exec \"$1\" diff {RUN}");
        assert_eq!(crate::script(&named, &fixture).output().unwrap().status.code(), Some(1));
    }
}

#[test]
fn a_folder_whose_path_no_call_takes_is_not_looked_into() {
    let code = "import os\nfor i in range(40): os.mkdir('d' * 250); os.chdir('d' * 250)\nfor i in range(50): os.symlink('x', f'{i}')";
    for mode in ["overlay", "copy"] {
        let fixture = Fixture::new();
        let workspace = format!(".:{mode}");
        let report = fixture.run(&["run", "--json", "-w", &workspace, "--", "python3", "-c", code]).json();
        assert_eq!(report["workspace"]["counts"]["refused"], 1, "{mode}: {}", report["workspace"]["counts"]);
    }
}

#[test]
fn a_folder_put_in_the_place_of_a_new_one_is_not_given_away() {
    if !rustix::process::geteuid().is_root() {
        return println!("skip: who is not root gives nothing away");
    }
    let names = |of: &'static str| (100..500).map(move |i| format!("{of}{i}"));
    let fixture = left_by(|copy| names("new").for_each(|name| std::fs::create_dir(copy.join(name)).unwrap()));
    let work = fixture.path("work");
    std::os::unix::fs::chown(&work, Some(1000), Some(1000)).unwrap();
    for name in names("own") {
        std::fs::create_dir_all(work.join(name).join("canary")).unwrap();
    }
    let at = Dir::open(&std::fs::canonicalize(&work).unwrap()).unwrap();
    let racer = std::thread::spawn(move || {
        let exchange = rustix::fs::RenameFlags::EXCHANGE;
        let swap = |own: &String, new: &String| rustix::fs::renameat_with(&at, own, &at, new, exchange).is_ok();
        names("own").zip(names("new")).filter(|(own, new)| (0..1_000_000).any(|_| swap(own, new))).count()
    });
    fixture.run(&["apply"]);
    assert!(racer.join().unwrap() > 0, "the race was none");
    for name in names("new").filter(|name| work.join(name).join("canary").exists()) {
        let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(work.join(&name)).unwrap());
        assert_eq!(owner, 0, "{name} was made by root");
    }
}

#[test]
fn what_waits_is_listed_and_thrown_away_at_once() {
    let fixture = Fixture::new();
    for name in ["one", "two"] {
        std::fs::create_dir(fixture.path("work").join(name)).unwrap();
    }
    let write = |workspace: &str, name: &str| {
        let said =
            fixture.run(&["run", "-q", "-w", workspace, "--", "sh", "-c", &format!("echo x >{name}; echo y >other")]);
        assert_eq!(said.code, 0, "{said:?}");
    };
    fixture.run(&["changes"]).is(0, "", "no changes wait\n");
    write("one", "a");
    write("one", "b");
    write("two", "c");
    let of = |args: &[&str]| {
        fixture.run(&[&["changes", "--json"], args].concat()).json()["runs"].as_array().unwrap().clone()
    };
    let all = of(&[]);
    let workspaces: Vec<_> =
        all.iter().map(|run| run["workspace"].as_str().unwrap().rsplit('/').next().unwrap()).collect();
    assert_eq!(workspaces, ["two", "one", "one"], "the newest comes first");
    assert!(all.iter().all(|run| run["paths"] == 2), "{all:?}");
    assert_eq!(of(&["one"]).len(), 2);
    let text = fixture.run(&["changes"]).out;
    assert!(all.iter().all(|run| text.contains(run["run"].as_str().unwrap())), "{text}");
    // What was put aside is listed too, also of a run that left nothing else.
    let run = all[0]["run"].as_str().unwrap();
    assert!(all.iter().all(|run| run["aside"].as_array().unwrap().is_empty()));
    for (run, name) in [(run, ".envrc"), (RUN, "sub%.git")] {
        let folder = fixture.state().join("changes").join(format!("{run}-aside"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(name), "").unwrap();
    }
    let rows = of(&[]);
    assert_eq!((rows.len(), &rows[0]["aside"][0], &rows[3]["run"]), (4, &".envrc".into(), &RUN.into()));
    assert_eq!(
        (&rows[3]["workspace"], &rows[3]["paths"], &rows[3]["aside"][0]),
        (&serde_json::Value::Null, &0.into(), &"sub%.git".into())
    );
    assert_eq!(of(&["one"]).len(), 2, "nobody knows of which workspace the last one is");
    let said = fixture.run(&["changes"]);
    assert!(said.out.contains(RUN) && said.err.contains(&format!("what was put aside of {run} lies in ")), "{said:?}");
    // Not both: which was meant?
    assert_eq!(fixture.run(&["discard", "--all", run]).code, 125);
    assert_eq!(fixture.run(&["discard", "--all", "--", "a"]).code, 125);
    assert_eq!(of(&[]).len(), 4);
    fixture.run(&["discard", "--all", "one"]).is(0, "", "the changes of 2 runs are gone\n");
    assert_eq!(of(&[]).len(), 2);
    fixture.run(&["discard", "--all"]).is(0, "", "the changes of 2 runs are gone\n");
    assert_eq!(of(&[]).len(), 0);
    let log = fixture.run(&["audit", "show", "--json"]).out;
    assert_eq!(log.matches("workspace.discarded").count(), 4, "each is recorded");
}
