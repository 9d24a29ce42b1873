//! `fumehood`, `--help`, `help`, `--version`, and words that are no command.

use crate::Fixture;

#[test]
fn no_command_is_bad_usage_and_shows_what_there_is() {
    let said = Fixture::new().run::<&str>(&[]);
    assert_eq!((said.code, said.out.as_str()), (125, ""));
    for command in ["explain", "audit", "completions", "man"] {
        assert!(said.err.contains(&format!("\n  {command}")), "{}", said.err);
    }
}

#[test]
fn help_that_was_asked_for_is_data() {
    let fixture = Fixture::new();
    let flag = fixture.run(&["explain", "--help"]);
    assert_eq!((flag.code, flag.err.as_str()), (0, ""));
    assert!(flag.out.starts_with("Explain the id of a refusal"), "{}", flag.out);
    assert!(flag.out.contains("Example: `fumehood explain"));
    assert_eq!(fixture.run(&["help", "explain"]), flag);
    assert!(!fixture.run(&["explain", "-h"]).out.contains("Example:"));
    assert_eq!(fixture.run(&["--help"]), fixture.run(&["help"]));
    assert_eq!(fixture.run(&["help", "audit"]).out, fixture.run(&["audit", "--help"]).out);
    assert!(fixture.run(&["audit", "-h"]).out.contains("verify"));
}

#[test]
fn version_is_one_line() {
    Fixture::new().run(&["--version"]).is(0, concat!("fumehood ", env!("CARGO_PKG_VERSION"), "\n"), "");
}

#[test]
fn an_unknown_command_is_refused_with_the_nearest_one() {
    let fixture = Fixture::new();
    fixture.run(&["explian"]).is(
        125,
        "",
        "error: unknown command `explian`\n  --> command line\n  why: no command has this name\n  fix: `fumehood explain`\n",
    );
    let said = fixture.run(&["audit", "verfiy"]);
    assert_eq!((said.code, said.out.as_str()), (125, ""));
    assert!(said.err.contains("fix: `fumehood audit verify`"), "{}", said.err);
    assert_eq!(fixture.run(&["audit"]).code, 125);
    assert_eq!(fixture.run(&["help", "nonsense"]).code, 125);
}

#[test]
fn all_mistakes_of_a_line_are_told_at_once() {
    let said = Fixture::new().run(&["explain", "--jsno", "-z", "a", "b", "--color", "pink"]);
    assert_eq!((said.code, said.out.as_str()), (125, ""));
    let count = said.err.matches("error: ").count();
    assert_eq!(count, 4, "{}", said.err);
    assert!(said.err.contains("fix: `--json`") && said.err.contains("auto, always or never"), "{}", said.err);
}

#[test]
fn mistakes_are_data_where_json_was_asked_for() {
    let said = Fixture::new().run(&["explain", "--json", "--bogus"]);
    assert_eq!((said.code, said.err.as_str()), (125, ""));
    let json = said.json();
    assert_eq!(json["errors"][0]["id"], "usage/unknown-flag");
    assert_eq!(json["code"], 125);
}

#[test]
fn a_hostile_argument_cannot_act_on_the_terminal() {
    let said = Fixture::new().run(&["\u{1b}[2J\u{202e}x\n"]);
    assert_eq!(said.code, 125);
    assert!(!said.err.contains('\u{1b}') && !said.err.contains('\u{202e}'), "{:?}", said.err);
    assert_eq!(said.err.lines().count(), 4);
}

#[test]
fn colour_is_only_where_it_was_asked_for() {
    let fixture = Fixture::new();
    assert!(!fixture.run(&["explain", "nope"]).err.contains('\u{1b}'));
    assert!(fixture.run(&["explain", "nope", "--color=always"]).err.contains("\u{1b}[1m\u{1b}[31merror:"));
    assert!(!fixture.run(&["explain", "nope", "--color=never"]).err.contains('\u{1b}'));
}

#[test]
fn programs_are_told_in_json_what_is_no_command() {
    for args in [&["polcy", "--json"][..], &["policy", "nope", "--json", "x"]] {
        let said = Fixture::new().run(args);
        assert_eq!((said.code, said.err.as_str()), (125, ""), "{said:?}");
        assert_eq!(said.json()["errors"][0]["id"], "usage/unknown-command");
    }
}

/// The examples are what somebody tries first: each is run as it stands.
#[test]
fn the_examples_of_run_work_as_they_stand() {
    let fixture = Fixture::new();
    let write = |name: &str, text: &str| std::fs::write(fixture.path("work").join(name), text).unwrap();
    write("script.py", "import sys\nprint(sum(int(line) for line in open(sys.argv[1])) if sys.argv[1:] else 6)\n");
    write("analysis.py", "print(6)\n");
    write("input.csv", "2\n4\n");
    let help = fixture.run(&["run", "--help"]).out;
    let examples: Vec<&str> = help.split_once("Examples:").unwrap().1.lines().map(str::trim).collect();
    let examples: Vec<&str> = examples.into_iter().filter(|line| line.contains("fumehood run")).collect();
    assert!(examples.len() >= 4, "{help}");
    for example in examples {
        let text = example.replace("fumehood", "\"$1\"").replace("generate", "echo 'echo 6'");
        let said = fixture.said(&crate::script(&text, &fixture).output().unwrap());
        assert_eq!(said.code, 0, "{example}: {said:?}");
        assert!(["6\n", "18446744073709551616\n"].contains(&said.out.as_str()), "{example}: {said:?}");
    }
}
