//! What the documents say, tried: policies are read by the product's own reader, commands are run, links followed, exit
//! codes compared with each other, with `--help` and with the names of the report.

mod blocks;
mod commands;
mod pages;
mod programs;
mod stages;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use fumehood::cli::COMMANDS;
use fumehood::cli::args::{Help, parse};
use fumehood::cli::flags::COMMON;
use fumehood::cli::spec::{Spec, help};
use fumehood::ui::Palette;
use policy::report::Limit;
use policy::{Caller, Format, Layers};

use blocks::{blocks, documents, root, shown};

type Read<T> = Result<T, Box<dyn Error>>;

/// Exit codes of `run`, word by word as they were promised. A change here is a change of the contract.
const CODES: [(&str, &str); 5] = [
    ("0-123, 128+n", "the program's own; killed by signal n"),
    (
        "124",
        "a limit ended it; `outcome` names which (`wall`, `cpu_time`, `memory`, `pids` when fatal, `disk` when fatal, `output`, `threshold`, `steps`)",
    ),
    ("125", "Fumehood's own failure, posture mismatch included"),
    ("126", "refused (no plan), or the program is not executable (told apart in the report and message)"),
    ("127", "program not found inside"),
];

/// The page that has the whole contract, and the first screen, which has it in short.
const CODES_PAGE: &str = "docs/concepts/report.md";
const FIRST_SCREEN: &str = "README.md";

/// Every limit that can end a run. The match breaks when one is added, so that the list cannot lag behind.
const LIMITS: [Limit; 8] = [
    Limit::Wall,
    Limit::CpuTime,
    Limit::Memory,
    Limit::Pids,
    Limit::Disk,
    Limit::Output,
    Limit::Threshold,
    Limit::Steps,
];

const fn spelling(limit: Limit) -> &'static str {
    match limit {
        Limit::Wall => "wall",
        Limit::CpuTime => "cpu_time",
        Limit::Memory => "memory",
        Limit::Pids => "pids",
        Limit::Disk => "disk",
        Limit::Output => "output",
        Limit::Threshold => "threshold",
        Limit::Steps => "steps",
    }
}

/// Reads a policy as `policy check` would, in a folder that nobody has.
fn mistakes(text: &str) -> Option<String> {
    let caller = Caller {
        dir: PathBuf::from("/srv/work"),
        home: Some(PathBuf::from("/home/ann")),
        profiles: sys::seccomp::profiles().iter().map(|name| (*name).to_owned()).collect(),
    };
    let mut layers = Layers::new(caller);
    let none = |_: &Path| Err("no such file".to_owned());
    layers.document("policy.toml", text, Format::Toml, Path::new("/srv/work"), &none);
    layers.finish().err().map(|mistakes| mistakes.to_string())
}

/// A command line into words: single quotes hold together; a remark, a redirection or a pipe ends it.
fn words(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<String> = None;
    let mut quoted = false;
    for c in line.chars().chain([' ']) {
        match (c, quoted) {
            ('\'', _) => {
                quoted = !quoted;
                open.get_or_insert_default();
            }
            (' ', false) => found.extend(open.take()),
            (c, _) => open.get_or_insert_default().push(c),
        }
    }
    let end = found.iter().position(|word| ["#", ">", "|", "&"].contains(&word.as_str())).unwrap_or(found.len());
    found.truncate(end);
    found
}

/// The command that words begin with, and what follows its name.
fn command(words: &[String]) -> Option<(&'static Spec, &[String])> {
    let fits = |spec: &&&Spec| spec.path.iter().copied().eq(words.iter().take(spec.path.len()).map(String::as_str));
    let spec = COMMANDS.iter().filter(|spec| !spec.hidden).find(fits)?;
    words.get(spec.path.len()..).map(|rest| (*spec, rest))
}

/// What is wrong with one line of a `console` block.
fn wrong_line(line: &str) -> Option<String> {
    let words = words(line.strip_prefix("sudo ").unwrap_or(line));
    let (first, rest) = words.split_first()?;
    if first != "fumehood" {
        let script = first.starts_with("scripts/") && !root().join(first).is_file();
        return script.then(|| format!("`{first}` is not there"));
    }
    let Some((spec, args)) = command(rest) else { return Some(format!("no command `{}`", rest.join(" "))) };
    let tables: Vec<_> = spec.tables.iter().copied().chain([COMMON]).collect();
    let parsed = parse(args.iter().map(OsString::from), &tables, spec.words);
    if let Some(fault) = parsed.faults.first() {
        return Some(format!("{} ({})", fault.what, fault.why));
    }
    let text = help(spec, Help::Long, Palette::PLAIN, 100);
    let ours = args.iter().take_while(|word| *word != "--").filter(|word| word.starts_with('-') && word.len() > 1);
    let unknown = ours.map(|word| word.split('=').next().unwrap_or(word)).find(|flag| !text.contains(*flag));
    unknown.map(|flag| format!("`{flag}` is not in `fumehood {} --help`", spec.path.join(" ")))
}

/// The rows of the first table below a heading row that begins with `| code |`.
fn code_rows(page: &str) -> Read<Vec<(String, String)>> {
    let text = fs::read_to_string(root().join(page))?;
    let table = text.lines().skip_while(|line| !line.starts_with("| code |") && !line.starts_with("| exit code |"));
    let rows = table.skip(2).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| -> Option<(String, String)> {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        Some((cells.next()?.to_owned(), cells.next()?.to_owned()))
    };
    Ok(rows.filter_map(cells).collect())
}

#[track_caller]
fn none(found: &[String]) {
    assert!(found.is_empty(), "{} mistake(s):\n{}", found.len(), found.join("\n"));
}

#[test]
fn every_policy_in_the_documents_is_read_or_refused_as_its_fence_says() {
    let mut blocks = blocks().expect("the documents can be read");
    blocks.retain(|block| block.language() == "toml");
    assert!(blocks.len() > 50, "only {} policies found: the search is broken", blocks.len());
    let mut found = Vec::new();
    for block in &blocks {
        let wants_refusal = block.fence.split(' ').any(|word| word == "refused");
        match (mistakes(&block.lines.join("\n")), wants_refusal) {
            (Some(mistakes), false) => found.push(format!("{}: {mistakes}", block.place())),
            (None, true) => found.push(format!("{}: it says `refused`, and is right", block.place())),
            (Some(_), true) | (None, false) => {}
        }
    }
    none(&found);
}

#[test]
fn every_command_in_the_documents_exists_with_its_flags() {
    let blocks = blocks().expect("the documents can be read");
    let mut found = Vec::new();
    let mut tried = BTreeMap::from([("console", 0), ("text", 0)]);
    for block in &blocks {
        let Some(tried) = tried.get_mut(block.language()) else { continue };
        // A text may show a command with or without its prompt, beside anything else.
        let is_text = block.language() == "text";
        let plain = |line: &'_ str| line.starts_with("fumehood ") || line.starts_with("sudo fumehood ");
        for line in &block.lines {
            let Some(line) = line.strip_prefix("$ ").or(is_text.then_some(line)) else { continue };
            if is_text && !plain(line) {
                continue;
            }
            // What may be left out, or stands more than once, is tried as well.
            let line = &if is_text { line.replace("...", "").replace(['[', ']'], "") } else { line.to_owned() };
            *tried += usize::from(plain(line));
            found.extend(wrong_line(line).map(|why| format!("{}: `{line}`: {why}", block.place())));
        }
    }
    assert!(tried["console"] > 20 && tried["text"] > 10, "only {tried:?} commands found: the search is broken");
    none(&found);
}

/// What is wrong with code, by the language's own reader; none where that is not installed.
fn wrong_python(code: &str) -> Option<String> {
    let read = "import ast, sys; ast.parse(sys.stdin.read())";
    let command = sys::command::Command::new("/usr/bin/python3").args(["-I", "-c", read]);
    let output = command.output(code.as_bytes(), 64 * 1024, std::time::Duration::from_secs(60)).ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.end != sys::pidfd::End::Exited(0)).then_some(said)
}

#[test]
fn every_program_in_python_of_the_documents_can_be_read() {
    if !Path::new("/usr/bin/python3").exists() {
        println!("skip: programs in Python of the documents: there is no python3");
        return;
    }
    let mut blocks = blocks().expect("the documents can be read");
    blocks.retain(|block| block.language() == "python");
    assert!(blocks.len() > 8, "only {} programs found: the search is broken", blocks.len());
    let wrong = |block: &blocks::Block| Some(format!("{}: {}", block.place(), wrong_python(&block.lines.join("\n"))?));
    none(&blocks.iter().filter_map(wrong).collect::<Vec<_>>());
    assert!(wrong_python("with box as:\n  pass").is_some(), "what is no Python was taken");
}

#[test]
fn a_command_or_flag_that_does_not_exist_is_found() {
    for line in [
        "fumehood flee",
        "fumehood run --teir vm -- true",
        "sudo fumehood run --teir gvisor -- true",
        "fumehood diff --memory 1G",
        "scripts/nothing",
    ] {
        assert!(wrong_line(line).is_some(), "`{line}` was taken");
    }
}

#[test]
fn every_relative_link_leads_to_a_file() {
    let mut found = Vec::new();
    let mut followed = 0;
    for path in documents().expect("the documents can be listed") {
        let text = fs::read_to_string(&path).expect("a document can be read");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            followed += 1;
            if !path.parent().unwrap_or(&path).join(target).exists() {
                found.push(format!("{}: `{target}` is not there", shown(&path)));
            }
        }
    }
    assert!(followed > 10, "only {followed} links found: the search is broken");
    none(&found);
}

/// `ARCHITECTURE.md` and the guides answer questions by naming files: the files must be there.
#[test]
fn every_file_that_the_documents_name_is_there() {
    let mut found = Vec::new();
    let mut named = 0;
    for path in documents().expect("the documents can be listed") {
        let text = fs::read_to_string(&path).expect("a document can be read");
        for name in text.split('`').skip(1).step_by(2) {
            let ours = ["crates/", "resources/", "scripts/", "examples/", "bench/", "docs/", ".ci/"];
            if !ours.iter().any(|start| name.starts_with(start)) || name.contains([' ', '*', ':', '{']) {
                continue;
            }
            named += 1;
            if !root().join(name).exists() {
                found.push(format!("{}: `{name}` is not there", shown(&path)));
            }
        }
    }
    assert!(named > 20, "only {named} names found: the search is broken");
    none(&found);
}

/// The flow, "to change X" and where a decision is carried out name files below `crates/`.
#[test]
fn every_module_of_the_flow_is_there() {
    let mut text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page can be read");
    for path in documents().expect("the documents can be listed") {
        let page = fs::read_to_string(&path).expect("a document can be read");
        let named = ["\n## Where\n", "\n## To change X, go to Y\n"].iter().find_map(|heading| page.split_once(heading));
        text.extend(named.map(|(_, section)| section));
    }
    let rooms =
        ["policy/", "backends/", "guest/", "sys/", "gate/", "gateway/", "sandbox/", "fumehood/", "conformance/"];
    let names: Vec<&str> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| rooms.iter().any(|room| name.starts_with(room)) && !name.contains(' '))
        .collect();
    assert!(names.len() > 80, "only {} modules found: the search is broken", names.len());
    let missing: Vec<String> =
        names.into_iter().filter(|name| !root().join("crates").join(name).exists()).map(str::to_owned).collect();
    none(&missing);
}

#[test]
fn the_exit_codes_are_the_contracts() {
    let page = code_rows(CODES_PAGE).expect("the page can be read");
    let contract: Vec<(String, String)> = CODES.map(|(code, words)| (code.to_owned(), words.to_owned())).to_vec();
    assert_eq!(page, contract);
}

#[test]
fn first_screen_and_help_have_the_same_exit_codes() {
    let codes: Vec<&str> = CODES.iter().map(|(code, _)| *code).collect();
    let short = code_rows(FIRST_SCREEN).expect("the page can be read");
    assert_eq!(short.iter().map(|(code, _)| code.as_str()).collect::<Vec<_>>(), codes);
    let (run, _) = command(&["run".to_owned()]).expect("there is a command `run`");
    let text = help(run, Help::Long, Palette::PLAIN, 100);
    for code in codes {
        assert!(text.contains(code), "`fumehood run --help` does not name {code}");
    }
}

#[test]
fn the_limits_that_end_a_run_are_those_of_the_report() {
    let (_, words) = CODES.iter().find(|(code, _)| *code == "124").expect("124 has a row");
    let named: BTreeSet<&str> = words.split('`').skip(1).step_by(2).filter(|name| *name != "outcome").collect();
    assert_eq!(named, LIMITS.map(spelling).into_iter().collect());
    for limit in LIMITS {
        assert_eq!(serde_json::to_value(limit).expect("a limit has a spelling"), spelling(limit));
    }
}

/// "201 attacks" is true or the test fails.
#[test]
fn the_number_of_attacks_in_the_documents_is_that_of_the_catalogue() {
    let mut rows = 0;
    for entry in fs::read_dir(root().join("resources/attacks")).expect("the catalogue can be listed") {
        let text = fs::read_to_string(entry.expect("an entry can be read").path()).expect("a page can be read");
        rows += text.lines().filter(|line| *line == "[[row]]").count();
    }
    for (page, words) in [(FIRST_SCREEN, "attacks against your policy"), ("CHANGELOG.md", "rows with control")] {
        let text = fs::read_to_string(root().join(page)).expect("the page can be read");
        assert!(text.contains(&format!("{rows} {words}")), "{page} does not say `{rows} {words}`");
    }
}
