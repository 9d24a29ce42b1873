//! Command lines: what passes, what does not, and that what passes starts only what was judged.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails loudly")]

mod attacks;
mod disk;
mod random;
mod world;

use gate::command::{Judgement, Resolved};
use serde::Deserialize;
use world::World;

#[derive(Deserialize)]
struct Corpus {
    group: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    policy: String,
    #[expect(dead_code, reason = "it is there for people")]
    about: String,
    allow: Vec<String>,
    deny: Vec<String>,
    stricter: Vec<String>,
}

fn corpus() -> Vec<Group> {
    toml::from_str::<Corpus>(include_str!("corpus.toml")).unwrap().group
}

#[test]
fn every_line_of_the_corpus_is_judged_as_it_says() {
    let mut wrong = Vec::new();
    let mut counted = (0, 0);
    for group in corpus() {
        let world = World::new(&group.policy);
        counted = (counted.0 + group.allow.len(), counted.1 + group.deny.len());
        for line in &group.allow {
            if let Judgement::Refused(reasons) = world.judge.line(line) {
                let said: Vec<String> = reasons.iter().map(|r| format!("{}: {}; {}", r.id, r.what, r.why)).collect();
                wrong.push(format!("{} should allow {line:?}\n    {}", group.policy, said.join("\n    ")));
            }
        }
        for line in &group.deny {
            if world.allows(line) {
                wrong.push(format!("{} should refuse {line:?}", group.policy));
            }
        }
    }
    assert!(counted.0 >= 200 && counted.1 >= 300, "{counted:?}");
    assert!(wrong.is_empty(), "{} of {counted:?}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn lines_are_read_where_bash_reads_them() {
    let mut differ = Vec::new();
    for group in corpus() {
        let world = World::new(&group.policy);
        for line in group.allow.iter().chain(&group.deny) {
            let ours = world.why(line) != "commands.line/syntax";
            let known = group.stricter.contains(line) && !ours;
            if ours != world::bash_reads(line) && !known {
                differ.push(format!("{line:?}: we {}", if ours { "read it" } else { "do not" }));
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// Whether a started program is one that was judged, with its words.
fn judged(started: &[String], programs: &[Resolved]) -> bool {
    let special =
        |word: &String| word.starts_with("/dev/fd/") || word.contains(['$', '*', '?', '[', '`', '(', '{', '~', '"']);
    programs.iter().any(|program| {
        let name = program.argv[0].rsplit('/').next().unwrap();
        if name != started[0] {
            return false;
        }
        let mut rest = program.argv[1..].iter();
        program.argv.iter().any(special) || started[1..].iter().all(|word| rest.any(|known| known == word))
    })
}

#[test]
fn what_is_allowed_starts_only_what_was_judged() {
    let (mut wrong, mut ran) = (Vec::new(), 0);
    for group in corpus() {
        let world = World::new(&group.policy);
        for name in ["a.txt", "b.txt", "src/a.py", "src/main.rs", "README.md", "run.sh", "list"] {
            world.put(name, "one\ntwo three\n");
        }
        for line in &group.allow {
            // A program named by its absolute path is the host's own.
            let Judgement::Allowed { programs, shell } = world.judge.line(line) else { continue };
            if line.contains("/usr/bin/") {
                continue;
            }
            let mut alone = world.run(line);
            ran += alone.len();
            for started in alone.iter().filter(|started| !judged(started, &programs)) {
                wrong.push(format!("{line:?} (shell: {shell}) started {started:?}, judged {programs:?}"));
            }
            if shell {
                // As we would run it ourselves; what runs side by side is noted in any order.
                let mut whole = world.run(&gate::command::as_one(line));
                alone.sort();
                whole.sort();
                if alone != whole {
                    wrong.push(format!("{line:?} alone started {alone:?}, and as one {whole:?}"));
                }
            }
        }
    }
    assert!(ran > 150, "only {ran} programs ran: the canaries do not work");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn one_plain_command_needs_no_shell_and_gets_what_its_table_puts_in() {
    let world = World::new("inspect");
    let launch = world.judge.launch("git -C src diff \"a b\"").unwrap();
    assert_eq!(launch.path.to_str(), Some("/usr/bin/git"));
    assert_eq!(
        launch.argv,
        ["git", "-C", "src", "diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "a b"]
    );
    // A later word would win: git would enter submodules, and do what their configurations say.
    for sub in ["status", "diff", "log", "show"] {
        assert!(!world.allows(&format!("git {sub} --ignore-submodules=none")), "{sub}");
        assert!(world.allows(&format!("git {sub} --ignore-submodules=all")), "{sub}");
    }
    let value = |name: &str| launch.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert_eq!(value("GIT_OPTIONAL_LOCKS"), Some("0"));
    assert_eq!(value("GIT_CONFIG_KEY_0"), Some("core.fsmonitor"));
    let count: usize = value("GIT_CONFIG_COUNT").unwrap().parse().unwrap();
    assert!(value(&format!("GIT_CONFIG_VALUE_{}", count - 1)).is_some());
    let launch = world.judge.launch("timeout 5 git log").unwrap();
    assert_eq!(launch.argv[..4], ["timeout", "5", "/usr/bin/git", "log"], "the inner name is resolved as well");
    let launch = world.judge.launch("ls | wc -l").unwrap();
    assert_eq!(launch.argv, ["bash", "--noprofile", "--norc", "-c", "{ ls | wc -l\n}"]);
    let launch = world.judge.launch("LC_ALL=C sort a").unwrap();
    assert!(launch.env.contains(&("LC_ALL".to_owned(), "C".to_owned())));
}

#[test]
fn words_without_a_shell_are_judged_as_they_are() {
    let world = World::new("inspect");
    let argv = |words: &[&str]| world.judge.argv(&words.iter().map(Into::into).collect::<Vec<_>>());
    assert!(matches!(argv(&["ls", "$x", "*"]), Judgement::Allowed { shell: false, .. }));
    assert!(matches!(argv(&["timeout", "5", "ls"]), Judgement::Allowed { .. }));
    for words in [
        &["rm", "x"][..],
        &[],
        &[""],
        &["timeout", "5", "rm", "x"],
        &["sort", "-o", "x"],
        &["./ls"],
        &["ls", "a\0b"],
        &["ls", "a\rb"],
        &["cat", "/etc/passwd"],
        &["find", ".", "-exec", "rm", ";"],
        &["eval", "ls"],
        &["cd", "src"],
    ] {
        assert!(matches!(argv(words), Judgement::Refused(_)), "{words:?}");
    }
}

#[test]
fn rules_of_the_policys_own_are_as_strict_as_tables() {
    let world = World::of(
        "version = 1\n[commands]\nwrite = [\"out\"]\nprograms = [\n\
         { name = \"tar\", args = [{ flags = [\"-t,--list\", \"-v\", \"-f,--file=path\"], positional = \"path\", most = 1 }] },\n\
         { name = \"make\", args = [{ sub = \"test\" }, { sub = \"lint\", flags = [\"--fix\"], positional = \"/[a-z]+/\" }] },\n\
         { name = \"tool\", args = [{ positional = \"any\" }] },\n]\n",
    );
    for line in ["tar -tf a.tar", "tar -tvf a.tar x", "tar --list --file=a.tar", "make test", "make lint --fix abc"] {
        assert_ne!(world.why(line), "commands.argument/flag", "{line}");
        assert!(world.allows(line), "{line}: {}", world.why(line));
    }
    for (line, id) in [
        ("tar -xf a.tar", "commands.argument/flag"),
        ("tar -tf a --checkpoint-action=exec=x", "commands.argument/flag"),
        ("tar -tf a --checkpoint-a=exec=x", "commands.argument/flag"),
        ("tar -I x -tf a", "commands.argument/flag"),
        ("tar -tf a b c", "commands.argument/count"),
        ("make install", "commands.argument/sub-command"),
        ("make test x", "commands.argument/type"),
        ("make lint ABC", "commands.argument/type"),
        ("make -f - test", "commands.argument/flag"),
        ("make", "commands.argument/count"),
        ("tool --anything", "commands.argument/flag"),
        ("tool x", "commands.program/not-found"),
        ("ls > out/x; rm x", "commands.program/not-allowed"),
    ] {
        assert_eq!(world.why(line), id, "{line}");
    }
}

#[test]
fn mistakes_are_told_at_line_and_column() {
    let options = || gate::command::JudgeOptions { root: "/w".into(), inspect: None, tree: "/".into() };
    for (text, id, at) in [
        ("programs = [{ name = \"rm\", args = \"read-only\" }]", "commands/no-table", "policy.toml:3:13"),
        ("programs = [{ name = \"frobnicate\", args = \"workspace\" }]", "commands/no-table", "policy.toml:3:13"),
        ("programs = [{ name = \"env\", args = [] }]", "commands/wrapper", "policy.toml:3:13"),
        ("presets = [\"inspect\"]\nwrappers = [\"docker\"]", "commands/wrapper", "policy.toml:4:13"),
        ("presets = [\"inspect\"]\nenv = [\"LC_ALL\", \"LD_PRELOAD\"]", "commands/variable", "policy.toml:4:18"),
        ("presets = [\"inspekt\"]", "value/word", "policy.toml:3:12"),
        ("programs = [\"ls\"]", "value/incomplete", "policy.toml:3:13"),
        ("programs = [{ name = \"../ls\", args = [] }]", "commands/program", "policy.toml:3:22"),
        ("programs = [{ name = \"ls\", args = [{ flags = [\"l\"] }] }]", "commands/flag", "policy.toml:3:47"),
        ("programs = [{ name = \"ls\", args = [{ flags = [\"-l=number\"] }] }]", "commands/type", "policy.toml:3:47"),
        ("programs = [{ name = \"ls\", args = [{ positional = \"/(/\" }] }]", "commands/pattern", "policy.toml:3:51"),
        ("write = [\"../x\"]", "commands/write", "policy.toml:3:10"),
        ("block = [\"rm *\"]", "commands/block", "policy.toml:3:10"),
        ("env = [\"A[0]\"]", "commands/variable", "policy.toml:3:8"),
        ("root = \"/x\"", "key/unknown", "policy.toml:3:1"),
    ] {
        let mistakes = world::judge(&format!("version = 1\n[commands]\n{text}\n"), options()).unwrap_err();
        let found: Vec<String> = mistakes.list.iter().map(|m| format!("{} {}", m.id, m.at)).collect();
        assert_eq!(found, [format!("{id} {at}")], "{text}");
    }
}

#[test]
fn an_interpreter_that_may_be_given_anything_is_a_lint_and_a_rule_with_types_is_not() {
    let options = || gate::command::JudgeOptions { root: "/w".into(), inspect: None, tree: "/".into() };
    for (rule, wide) in [
        ("{ name = \"bash\", args = [{ positional = \"any\" }] }", true),
        ("{ name = \"/usr/bin/python3.11\", args = [{ positional = \"word\" }] }", true),
        ("{ name = \"perl\", args = [{ flags = [\"-e=any\"], positional = \"none\" }] }", true),
        ("{ name = \"git\", args = [{ sub = \"log\", flags = [\"-c=word\"] }] }", true),
        ("{ name = \"find\", args = [{ flags = [\"-exec=any\"], positional = \"path\" }] }", true),
        ("{ name = \"bash\", args = [{ positional = \"/^build/[a-z]+[.]sh$/\" }] }", false),
        ("{ name = \"git\", args = [{ sub = \"log\", flags = [\"-c\", \"-n=int\"] }] }", false),
        ("{ name = \"ls\", args = [{ positional = \"any\" }] }", false),
        ("{ name = \"head\", args = [{ flags = [\"-c=any\"] }] }", false),
    ] {
        let judge = world::judge(&format!("version = 1\n[commands]\nprograms = [{rule}]\n"), options()).unwrap();
        let found: Vec<String> = judge.lints().iter().map(|lint| format!("{} {}", lint.id, lint.at)).collect();
        let expected: &[&str] = if wide { &["commands/interpreter policy.toml:3:13"] } else { &[] };
        assert_eq!(found, expected, "{rule}");
    }
}

#[test]
fn the_kernels_list_has_the_programs_and_what_runs_them() {
    let world = World::new("dev");
    let list: Vec<String> = world.judge.executables(false).iter().map(|path| path.display().to_string()).collect();
    for name in ["/usr/bin/pytest", "/usr/bin/git", "/usr/bin/timeout", "/usr/bin/rm"] {
        assert!(list.iter().any(|path| path == name), "{name} is missing in {list:?}");
    }
    for name in ["/usr/bin/curl", "/usr/bin/perl", "/usr/bin/tar"] {
        assert!(!list.iter().any(|path| path == name), "{name} is in {list:?}");
    }
}
