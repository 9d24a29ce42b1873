//! What a mistake suggests is itself accepted: for every place of a scalar, many bad values, and every way to write them.
#![expect(clippy::unwrap_used, clippy::string_slice, reason = "a test fails loudly")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use policy::rows::{ROWS, Shape};
use policy::{Caller, Diagnostics, Format, Layers};

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    Toml,
    Yaml,
    Json,
    Set,
    /// The clause's own flag.
    Flag(&'static str),
}

/// A value of a document, as TOML and JSON and YAML's flow style write it alike.
const BAD: &[&str] = &[
    "0",
    "1",
    "-1",
    "1.5",
    "7",
    "30",
    "512",
    "70000",
    "99999999999999",
    "true",
    "[]",
    "[1]",
    "[true]",
    "{}",
    r#""""#,
    r#""0""#,
    r#""1""#,
    r#""-1""#,
    r#""1.5""#,
    r#""16""#,
    r#""5000""#,
    r#""0B""#,
    r#""1B""#,
    r#""1K""#,
    r#""5 mb""#,
    r#""1.0001K""#,
    r#""1.0001M""#,
    r#""3kb""#,
    r#""1.1.1M""#,
    r#""5x""#,
    r#""-5M""#,
    r#""9999P""#,
    r#""99999999999999999999999999""#,
    r#""1 kib/s""#,
    r#""0B/s""#,
    r#""1/s""#,
    r#""5000/s""#,
    r#""50MBps""#,
    r#""50mb/s""#,
    r#""0s""#,
    r#""0 sec""#,
    r#""1 sec""#,
    r#""1sec30""#,
    r#""30""#,
    r#""1.5 min""#,
    r#""0ms""#,
    r#""5ms""#,
    r#""5 msec""#,
    r#""30s1m""#,
    r#""1h30""#,
    r#""9999999d""#,
    r#""10M""#,
    r#""unlimited""#,
    r#""off""#,
    r#""None""#,
    r#""yes""#,
    r#""no""#,
    r#""Host""#,
    r#""hots""#,
    r#""dir""#,
    r#""/srv/tree""#,
    r#""./tree""#,
    r#""root""#,
    r#""Ann B""#,
    r#""a_b""#,
    r#""0x12""#,
    r#""0o999""#,
    r#""1777""#,
    r#""1-0""#,
    r#""0-5000""#,
    r#""kil""#,
    r#""dfault""#,
    r#""contaner""#,
    r#""process ""#,
    r#""selinux:""#,
    r#""overlai""#,
    r#""relative/path""#,
    r#""MY NAME""#,
    r#""GET""#,
    r#""get""#,
    r#""strng""#,
];

/// Every place of a scalar or of a list of them: its path, and what must stand beside it.
fn places() -> Vec<(String, &'static str)> {
    let mut places: Vec<(String, &str)> = Vec::new();
    for row in ROWS {
        let clause = row.clause.path();
        match row.shape {
            Shape::Workspace => {
                places.extend(["path", "at", "mode"].map(|key| (format!("{clause}.{key}"), "")));
            }
            Shape::Threshold => {
                places.extend(["cpu_percent", "memory"].map(|key| (format!("{clause}.{key}"), "")));
                places.push((format!("{clause}.for"), "cpu_percent = 80"));
            }
            Shape::EnvSet => places.push((format!("{clause}.NAME"), "")),
            Shape::Inputs => {
                let keys = ["type", "max_length", "enum", "pattern", "required"];
                places.extend(keys.map(|key| (format!("{clause}.name.{key}"), "")));
            }
            Shape::Secrets => places.push((format!("{clause}.name.from"), "hosts = [\"a.example.org\"]")),
            Shape::Tools | Shape::Free => {}
            Shape::Words(_)
            | Shape::Size
            | Shape::Rate
            | Shape::Time
            | Shape::Whole(..)
            | Shape::Cores
            | Shape::Cpuset
            | Shape::Truth
            | Shape::TruthOr(_)
            | Shape::Text
            | Shape::Texts
            | Shape::Root
            | Shape::Grants
            | Shape::Rules
            | Shape::Denials
            | Shape::HostsOf
            | Shape::Umask => places.push((clause.to_owned(), "")),
        }
    }
    places
}

/// `path` with an entry as it is written here: `key = value` in TOML, with what stands beside it.
fn document(way: Notation, path: &str, entry: &str, beside: &str) -> String {
    let (parent, _) = path.rsplit_once('.').unwrap_or(("", path));
    let steps: Vec<&str> = parent.split('.').filter(|step| !step.is_empty()).collect();
    let beside = beside.split_once(" = ");
    match way {
        Notation::Toml => {
            let head = if steps.is_empty() { String::new() } else { format!("[{parent}]\n") };
            let beside = beside.map(|(key, value)| format!("{key} = {value}\n")).unwrap_or_default();
            format!("version = 1\n{head}{beside}{entry}\n")
        }
        Notation::Yaml => {
            let mut text = "version: 1\n".to_owned();
            for (depth, step) in steps.iter().enumerate() {
                text.push_str(&format!("{}{step}:\n", "  ".repeat(depth)));
            }
            let indent = "  ".repeat(steps.len());
            if let Some((key, value)) = beside {
                text.push_str(&format!("{indent}{key}: {value}\n"));
            }
            format!("{text}{indent}{entry}\n")
        }
        Notation::Json => {
            let beside = beside.map(|(key, value)| format!("\"{key}\": {value}, ")).unwrap_or_default();
            let open: String = steps.iter().map(|step| format!("\"{step}\": {{ ")).collect();
            format!("{{ \"version\": 1, {open}{beside}{entry}{} }}", " }".repeat(steps.len()))
        }
        Notation::Set | Notation::Flag(_) => entry.to_owned(),
    }
}

/// An entry with a value.
fn entry(way: Notation, path: &str, value: &str) -> String {
    let key = path.rsplit('.').next().unwrap_or(path);
    // On a command line texts stand without quotes.
    let bare = value.trim_matches('"');
    match way {
        Notation::Toml => format!("{key} = {value}"),
        Notation::Yaml => format!("{key}: {value}"),
        Notation::Json => format!("\"{key}\": {value}"),
        Notation::Set => format!("--set {path}={bare}"),
        Notation::Flag(flag) => format!("{flag} {bare}"),
    }
}

fn load(way: Notation, text: &str) -> Result<(), Diagnostics> {
    let caller = Caller {
        dir: PathBuf::from("/srv/work"),
        home: Some(PathBuf::from("/home/ann")),
        profiles: vec!["default".to_owned(), "strict".to_owned()],
    };
    let mut layers = Layers::new(caller);
    layers.without_inputs();
    let none = |_: &Path| Err("no such file".to_owned());
    // Room for any size, and a workspace: what two clauses say of each other is not asked here.
    let ground = r#"
        version = 1
        fs = { tmp = "4K", shm = "4K", run = "4K" }
        limits = { memory = "none", disk = "none" }
        workspace.mode = "copy"
    "#;
    layers.document("ground.toml", ground, Format::Toml, Path::new("/srv"), &none);
    let mut read = |name, format| layers.document(name, text, format, Path::new("/srv"), &none);
    match way {
        Notation::Toml => read("p.toml", Format::Toml),
        Notation::Yaml => read("p.yaml", Format::Yaml),
        Notation::Json => read("p.json", Format::Json),
        Notation::Set => layers.set(text.strip_prefix("--set ").unwrap_or(text)),
        Notation::Flag(flag) => layers.flag(flag, text.strip_prefix(flag).unwrap_or(text).trim_start()),
    }
    layers.finish().map(drop)
}

/// What a fix says to write: whole entries, or values.
fn suggested(way: Notation, path: &str, fix: &str) -> Vec<String> {
    let key = path.rsplit('.').next().unwrap_or(path);
    let lead = match way {
        Notation::Toml => format!("{key} = "),
        Notation::Yaml => format!("{key}: "),
        Notation::Json => format!("\"{key}\": "),
        Notation::Set => format!("--set {path}="),
        Notation::Flag(flag) => format!("{flag} "),
    };
    if let Some(at) = fix.find(&lead) {
        return vec![fix[at..].trim_end_matches('?').to_owned()];
    }
    let value = |text: &str| entry(way, path, text);
    let in_quotes = |text: &str| value(&format!("\"{text}\""));
    let Some(said) = fix.strip_prefix("write ") else { return Vec::new() };
    if let Some(range) = said.strip_prefix("a number from ") {
        let range = range.split(',').next().unwrap();
        return range.split(" to ").map(value).collect();
    }
    if said.starts_with("one of ") || said.starts_with("[one of ") {
        return said.split('`').skip(1).step_by(2).map(in_quotes).collect();
    }
    match said.split(", without quotes").next().unwrap() {
        "true or false" => vec![value("true"), value("false")],
        word @ ("true" | "false") => vec![value(word)],
        "1.0 for one core, 0.5 for half of one" => vec![value("1.0"), value("0.5")],
        text => {
            let text = text.strip_prefix("it in quotes: ").unwrap_or(text);
            if text.starts_with(['[', '{', '"']) && !text.contains("...") { vec![value(text)] } else { Vec::new() }
        }
    }
}

/// What was found of all suggestions.
#[derive(Default)]
struct Tally {
    mistakes: usize,
    tried: BTreeSet<String>,
    refused: BTreeSet<String>,
}

impl Tally {
    /// One bad value, and all that is suggested instead.
    fn judge(&mut self, way: Notation, path: &str, beside: &str, bad: &str) {
        let Err(mistakes) = load(way, &document(way, path, &entry(way, path, bad), beside)) else { return };
        let alone = mistakes.list.len() == 1;
        for mistake in &mistakes.list {
            self.mistakes += 1;
            let item = mistake.fix.strip_prefix("write it in quotes: ").filter(|_| bad.starts_with('['));
            let better = match item {
                Some(item) => vec![entry(way, path, &format!("[{item}]"))],
                // The item of a list that was written as a text is wrong as well, and has its own mistake.
                None if mistake.fix.starts_with("write [") && !alone => Vec::new(),
                None => suggested(way, path, &mistake.fix),
            };
            for better in better {
                self.tried.insert(format!("{path} {way:?} {better}"));
                let Err(again) = load(way, &document(way, path, &better, beside)) else { continue };
                let first = again.list.first().unwrap();
                self.refused.insert(format!("{path} {way:?} {bad}: fix: {}\n    {}", mistake.fix, first.what));
            }
        }
    }
}

#[test]
fn what_a_mistake_suggests_is_accepted() {
    let mut found = Tally::default();
    for (path, beside) in places() {
        let own = ROWS.iter().find(|row| row.clause.path() == path).and_then(|row| row.flag).map(Notation::Flag);
        // What stands beside a value is not there where a flag sets it alone.
        let flags = [Some(Notation::Set), own].into_iter().flatten().filter(|_| beside.is_empty());
        for way in [Notation::Toml, Notation::Yaml, Notation::Json].into_iter().chain(flags) {
            BAD.iter().for_each(|bad| found.judge(way, &path, beside, bad));
        }
    }
    let Tally { mistakes, tried, refused } = found;
    assert!(mistakes > 5000 && tried.len() > 400, "{mistakes} {}", tried.len());
    let shown: Vec<&str> = refused.iter().map(String::as_str).collect();
    assert!(shown.is_empty(), "{} suggestions are refused:\n{}", shown.len(), shown.join("\n"));
}

/// A flag's value is a text until its clause reads it: the message says what it looks like.
#[test]
fn what_a_value_is_said_to_be_is_what_it_looks_like() {
    for (written, said) in [
        ("limits.files=1.5", "`limits.files` is a whole number, and this is a decimal number"),
        ("limits.files=many", "`limits.files` is a whole number, and this is text"),
        ("limits.files=64K", "`limits.files` is a whole number, and this is text"),
        ("limits.files=true", "`limits.files` is a whole number, and this is true or false"),
        ("limits.warn=5", "`limits.warn` is a table, and this is a whole number"),
        ("fs.noexec=1.5", "`fs.noexec` is true or false, and this is a decimal number"),
        ("limits.cpus=lots", "`limits.cpus` is a number of cores, and this is text"),
    ] {
        let found = load(Notation::Set, written).unwrap_err();
        assert_eq!(found.list.first().unwrap().what, said);
    }
    let found = load(Notation::Toml, "version = 1\nlimits.files = 1.5").unwrap_err();
    assert_eq!(found.list.first().unwrap().what, "`limits.files` is a whole number, and this is a decimal number");
}
