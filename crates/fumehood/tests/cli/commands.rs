//! `fumehood commands check`, and `commands` of a run

use crate::House;

const POLICY: &str =
    "version = 1\n[commands]\npresets = [\"inspect\"]\nwrappers = [\"env\"]\nblock = [\"/etc/passwd\"]\n";

fn house() -> House {
    let house = House::new();
    std::fs::write(house.path("work").join("p.toml"), POLICY).unwrap();
    house
}

#[test]
fn an_allowed_line_shows_what_would_be_started() {
    let said = house().run(&["commands", "check", "-p", "p.toml", "ls -l | wc -l"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    assert_eq!(said.out, "allowed: read by bash\n  /usr/bin/ls -l\n  /usr/bin/wc -l\n");
    let said = house().run(&["commands", "check", "-p", "p.toml", "--", "ls", "-l", "$x"]);
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "allowed: executed without a shell\n  /usr/bin/ls -l $x\n"),
        "{said:?}"
    );
}

#[test]
fn a_refused_line_says_why_and_what_would_be_allowed() {
    let said = house().run(&["commands", "check", "-p", "p.toml", "cat /etc//passwd"]);
    assert_eq!(said.code, 1, "{said:?}");
    let expected = "refused: `cat /etc//passwd` is blocked\n  why: `commands.block` has `/etc/passwd`\n  fix: another command\n  id:  commands.block/matched\n";
    assert!(said.out.starts_with(expected), "{}", said.out);
    assert!(said.out.contains("id:  commands.read/outside"), "{}", said.out);
    let json = house().run(&["commands", "check", "-p", "p.toml", "--json", "c\\url x"]).json();
    assert_eq!(json["decision"], "deny");
    assert_eq!(json["reasons"][0]["id"], "commands.program/not-allowed");
}

#[test]
fn a_policy_without_commands_and_a_call_without_a_line_are_told_apart() {
    let said = house().run(&["commands", "check", "ls"]);
    assert_eq!(said.code, 126, "{said:?}");
    assert!(said.err.contains("the policy has no `commands`"), "{}", said.err);
    let said = house().run(&["commands", "check", "-p", "p.toml"]);
    assert_eq!(said.code, 125, "{said:?}");
}

#[test]
fn a_run_is_refused_before_anything_starts_and_a_shell_always() {
    let said = house().run(&["run", "-p", "p.toml", "--", "touch", "x"]);
    assert_eq!((said.code, said.out.as_str()), (126, ""), "{said:?}");
    assert!(said.err.contains("the program `touch` is not allowed"), "{}", said.err);
    let said = house().run(&["run", "-p", "p.toml", "--lang", "bash", "--code", "ls; touch x"]);
    assert_eq!(said.code, 126, "{said:?}");
    let said = house().run(&["run", "-p", "p.toml", "--lang", "python", "--code", "print(1)"]);
    assert_eq!(said.code, 126, "{said:?}");
}

#[test]
fn a_plan_names_broker_and_kernel() {
    let said = house().run(&["plan", "-p", "p.toml", "--", "ls"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("broker:commands+landlock:"), "{}", said.out);
    let json = house().run(&["plan", "--json", "-p", "p.toml", "--", "ls"]).json();
    let clauses = json["clauses"].as_array().unwrap();
    let of = |name: &str| clauses.iter().find(|clause| clause["clause"] == name).unwrap();
    assert_eq!(of("commands")["strength"], "broker");
    assert_eq!(of("fs.exec")["strength"], "kernel");
    assert_eq!(of("fs.exec")["origin"], "commands (p.toml:3:11)");
}
