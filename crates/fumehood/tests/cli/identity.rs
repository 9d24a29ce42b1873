//! `git.identity`: name and mail of the caller's git, and nothing else of it.

use super::Fixture;

const COMMIT: &str = "git init -q r && cd r && git commit -q --allow-empty -m x && git log -1 --format='%an <%ae> %cn <%ce>'; \
                      git config --get alias.st; git config --get core.pager";

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    let config = "[user]\n\tname = Ann Example\n\temail = ann@example.org\n[alias]\n\tst = status\n[core]\n\tpager = sh -c 'id'\n";
    std::fs::write(fixture.path(".gitconfig"), config).unwrap();
    fixture
}

#[test]
fn commits_inside_bear_the_name_of_the_caller_where_the_policy_says_so() {
    let fixture = fixture();
    let run = |flags: &[&str]| {
        fixture.run(&[&["run", "-q", "-p", "coding-agent", "-w", "."], flags, &["--", "sh", "-c", COMMIT]].concat())
    };
    let with = run(&["--set", "git.identity=host"]);
    assert_eq!(
        with.out, "Ann Example <ann@example.org> Ann Example <ann@example.org>\n",
        "nothing else goes in: {with:?}"
    );
    let without = run(&[]);
    assert!(!without.out.contains("Ann") && without.err.contains("tell me who you are"), "{without:?}");
    let hint = fixture.run(&["run", "--json", "-p", "coding-agent", "-w", ".", "--", "sh", "-c", COMMIT]).json();
    let told = hint["violations"].as_array().unwrap().iter().find(|told| told["id"] == "env.set/git-identity");
    let instead = told.unwrap_or_else(|| panic!("{hint}"))["instead"].as_str().unwrap();
    assert!(instead.contains("git.identity = \"host\""), "{instead}");
    let own = run(&["--set", "git.identity=host", "--env", "GIT_AUTHOR_NAME=Bot"]);
    assert_eq!(own.out, "Bot <ann@example.org> Ann Example <ann@example.org>\n", "{own:?}");
}

#[test]
fn the_plan_shows_what_goes_in_and_a_host_without_an_identity_is_told_of() {
    let fixture = fixture();
    let clause = |fixture: &Fixture| {
        let plan = fixture.run(&["plan", "--json", "--set", "git.identity=host"]).json();
        let found = plan["clauses"].as_array().unwrap().iter().find(|clause| clause["clause"] == "env.set").cloned();
        (found, plan["lints"].to_string())
    };
    let (set, lints) = clause(&fixture);
    let set = set.unwrap();
    assert_eq!(set["value"]["GIT_AUTHOR_EMAIL"], "ann@example.org", "{set:#}");
    assert!(set["origin"].as_str().unwrap().contains("git.identity") && !lints.contains("git/no-identity"), "{set:#}");
    let (set, lints) = clause(&Fixture::new());
    assert!(set.is_none() && lints.contains("git/no-identity"), "{lints}");
    let wrong = fixture.run(&["plan", "--set", "git.identity=guest"]);
    assert!(wrong.code == 126 && wrong.err.contains("`none`") || wrong.err.contains("host"), "{wrong:?}");
    assert_eq!(fixture.run(&["plan", "--set", "git.name=x"]).code, 126);
}
