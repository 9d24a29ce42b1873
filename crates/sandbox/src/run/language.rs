//! Which of the language tier's interpreters takes what is to be run, and why none does.

use std::ffi::OsStr;
use std::path::Path;

use policy::control::Source;
use policy::value::{Tier, TierChoice};
use policy::{ClauseId, Loaded};

use crate::error::Error;
use crate::fault::Fault;
use crate::workload::{Interpreter, Workload};

/// Why no interpreter takes what is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Untaken {
    /// It is a program of the machine.
    Native,
    /// It stays, or is one of an image.
    Stays,
    /// It is written in another language.
    Language,
    /// It has arguments, which its language does not take here.
    Arguments,
}

impl Untaken {
    const fn why(self) -> &'static str {
        match self {
            Self::Native => {
                "it is a native program, and this tier has interpreters of Python, JavaScript and WebAssembly"
            }
            Self::Stays => {
                "this tier runs one program of Python, JavaScript or WebAssembly to its end, and nothing that stays"
            }
            Self::Language => "this tier has interpreters of Python, JavaScript and WebAssembly alone",
            Self::Arguments => {
                "a program of this language takes no arguments here: give inputs, which are its variables"
            }
        }
    }

    const fn fix(self) -> &'static str {
        match self {
            Self::Native | Self::Stays | Self::Language => OTHER_LANGUAGE,
            Self::Arguments => {
                "use `--tier process` or a stronger one; or `[inputs.NAME]` in the policy, and `--input NAME=VALUE`"
            }
        }
    }
}

const OTHER_LANGUAGE: &str = "use `--tier process` or a stronger one; or give Python (`--lang python`), JavaScript \
                              (`--lang javascript`) or WebAssembly (`--lang wasm`)";

/// Whether a backend of the language tier, by its name, takes what is to be run. Where that is not said, each does if the
/// policy names the tier: `auto` comes to it by a program alone.
pub(super) fn takes(backend: &str, what: &Workload, tier: TierChoice) -> bool {
    match what {
        Workload::Nothing => tier == TierChoice::Fixed(Tier::Language),
        Workload::Argv(_)
        | Workload::Shell
        | Workload::Agent(_)
        | Workload::Image
        | Workload::Code(_)
        | Workload::Script(_) => source(what).is_ok_and(|source| source.backend() == backend),
    }
}

/// Refuses by name what no interpreter takes, where the policy names the language tier or one of its interpreters.
pub(super) fn refuse(loaded: &Loaded, what: &Workload) -> Result<(), Error> {
    let own = |name: &&str| backends::ALL.iter().any(|one| one.tier() == Tier::Language && one.name() == *name);
    let named = loaded.policy.backend.map(|backend| backend.as_str()).filter(own);
    let asked = loaded.policy.tier == TierChoice::Fixed(Tier::Language) || named.is_some();
    if !asked || matches!(what, Workload::Nothing) {
        return Ok(());
    }
    let (why, fix) = match source(what) {
        Ok(source) if named.is_none_or(|name| name == source.backend()) => return Ok(()),
        Ok(source) => (format!("this program is for `{}`", source.backend()), OTHER_LANGUAGE),
        Err(untaken) => (untaken.why().to_owned(), untaken.fix()),
    };
    let (by, clause) = match named {
        Some(name) => (format!("`backend` = {name}"), ClauseId::Backend),
        None => ("tier `language`".to_owned(), ClauseId::Tier),
    };
    Err(Error::refused(Fault {
        id: "language/no-interpreter",
        what: format!("{by} cannot run it"),
        place: loaded.origins.of(clause).to_owned(),
        why,
        fix: fix.to_owned(),
    }))
}

/// Why `auto` came to no interpreter, where the threat would have let it.
pub(super) fn passed(loaded: &Loaded, what: &Workload) -> Option<&'static str> {
    let first = loaded.policy.tier == TierChoice::Auto && policy::first_tier(loaded) == Tier::Language;
    source(what).err().filter(|_| first && !matches!(what, Workload::Nothing)).map(Untaken::why)
}

/// What a program asks for by its text and the language tier would not let it have, or not with the results that it has elsewhere: for
/// the choice of `auto` alone, which moves up for it. What is not there and this overlooks the interpreter refuses.
pub(super) fn foreign(loaded: &Loaded, what: &Workload) -> Option<String> {
    if loaded.policy.tier != TierChoice::Auto {
        return None;
    }
    let source = source(what).ok().filter(|source| *source != Source::Wasm)?;
    let text = match what {
        Workload::Code(code) => code.text.clone(),
        Workload::Script(script) => super::commands::text(script, gate::command::MAX_BYTES).ok()?,
        Workload::Argv(_) | Workload::Shell | Workload::Agent(_) | Workload::Image | Workload::Nothing => return None,
    };
    let text = String::from_utf8_lossy(&text);
    if source == Source::JavaScript {
        return policy::javascript::asks(&text, |name| loaded.policy.inputs.contains_key(name));
    }
    let mut imports = imports(&text).into_iter();
    // A policy with such a list speaks of this tier, and takes its results.
    let (foreign, differs) = match loaded.policy.language.modules.as_deref() {
        Some(list) => (imports.find(|name| !list.iter().any(|one| one == name)), None),
        None => {
            let has = |name: &str| backends::LANGUAGE_MODULES.contains(&name) && name != OTHER_EXPRESSIONS;
            (imports.find(|name| !has(name)), differs(&text))
        }
    };
    foreign.map(|name| format!("imports `{name}`")).or(differs)
}

/// Methods with names of Python's own that the interpreter asks a class of the program for; it goes by any other in silence, or fails.
const METHODS: &[&str] = &[
    "__contains__",
    "__enter__",
    "__eq__",
    "__exit__",
    "__hash__",
    "__index__",
    "__init__",
    "__iter__",
    "__next__",
    "__repr__",
    "__str__",
];
/// The module whose regular expressions are Rust's in the interpreter.
const OTHER_EXPRESSIONS: &str = "re";

/// The first part of what each statement of a Python program imports; a relative import is `.`. Comments and texts are left out. The
/// interpreter's own parser reads it again, inside: a program can overflow the stack of that one, which must not be ours.
fn imports(text: &str) -> Vec<&str> {
    let (mut found, mut statement) = (Vec::new(), Vec::new());
    for token in (Tokens { rest: text }) {
        // `if x: import y` has two parts.
        if matches!(token, "\n" | ";" | ":") {
            found.extend(of_statement(&statement));
            statement.clear();
        } else {
            statement.push(token);
        }
    }
    found.extend(of_statement(&statement));
    found
}

/// What in a Python program, beside what it imports, has other results in the interpreter: `round` with two arguments, in the code of a
/// formatted text too, which rounds some numbers to others, and methods beside [`METHODS`].
fn differs(text: &str) -> Option<String> {
    // Whether each bracket that is open is that of a call of `round`.
    let mut open = Vec::new();
    let mut before = ["", ""];
    for token in (Tokens { rest: text }) {
        let of_python = || token.starts_with("__") && token.ends_with("__");
        match token {
            "(" => open.push(before[1] == "round" && !matches!(before[0], "." | "def")),
            "[" | "{" => open.push(false),
            ")" | "]" | "}" => {
                open.pop();
            }
            "," if open.last() == Some(&true) => return Some("uses `round` with two arguments".to_owned()),
            _ if before[1] == "def" && of_python() && !METHODS.contains(&token) => {
                return Some(format!("defines `{token}`"));
            }
            // Without its quotes nothing in it is such a text again.
            _ if token.starts_with(['"', '\'']) && is_formatted(before[1]) && token.contains("round") => {
                let found = differs(&token.replace(['"', '\''], " "));
                if found.is_some() {
                    return found;
                }
            }
            _ => {}
        }
        before = [before[1], token];
    }
    None
}

/// Whether a text behind this word holds code.
fn is_formatted(prefix: &str) -> bool {
    ["f", "rf", "fr"].iter().any(|word| prefix.eq_ignore_ascii_case(word))
}

/// The words, signs, texts and ends of lines of a Python program, without comments and lines that go on.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        loop {
            let first = self.rest.chars().next()?;
            let length = match first {
                '#' => self.rest.find('\n').unwrap_or(self.rest.len()),
                '"' | '\'' => quoted(self.rest, first),
                // A line that goes on.
                '\\' => ["\\\r\n", "\\\n"].iter().find(|end| self.rest.starts_with(**end)).map_or(1, |end| end.len()),
                c if is_part(c) => self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len()),
                c => c.len_utf8(),
            };
            let (token, after) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
            self.rest = after;
            if first == '\n' || !(matches!(first, '#' | '\\') || first.is_whitespace()) {
                return Some(token);
            }
        }
    }
}

fn of_statement<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    match tokens {
        ["from", module, rest @ ..] if rest.contains(&"import") => vec![module],
        ["import", names @ ..] => names.split(|token| *token == ",").filter_map(|name| name.first().copied()).collect(),
        _ => Vec::new(),
    }
}

/// How long the text is that begins here with this quote.
fn quoted(text: &str, quote: char) -> usize {
    let three: String = [quote; 3].iter().collect();
    let end = if text.starts_with(&three) { three } else { quote.to_string() };
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(end.len()) {
        if !escaped && text.get(at..).is_some_and(|rest| rest.starts_with(&end)) {
            return at.saturating_add(end.len());
        }
        if c == '\n' && end.len() == 1 && !escaped {
            return at;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// In what it is written, or why no interpreter takes it.
fn source(what: &Workload) -> Result<Source, Untaken> {
    let (interpreter, args) = match what {
        Workload::Code(code) => (&code.interpreter, &code.args),
        Workload::Script(script) => (&script.interpreter, &script.args),
        Workload::Argv(_) => return Err(Untaken::Native),
        Workload::Shell | Workload::Agent(_) | Workload::Image | Workload::Nothing => return Err(Untaken::Stays),
    };
    match written_in(interpreter) {
        Some(Source::Python | Source::JavaScript) if !args.is_empty() => Err(Untaken::Arguments),
        Some(source) => Ok(source),
        None => Err(Untaken::Language),
    }
}

/// By the name of the language, or by the program of a `#!` line and its word for `env`.
fn written_in(interpreter: &Interpreter) -> Option<Source> {
    let of_name = |name: &OsStr| match name.to_str()? {
        "python" | "python3" => Some(Source::Python),
        "javascript" | "node" | "nodejs" => Some(Source::JavaScript),
        "wasm" => Some(Source::Wasm),
        _ => None,
    };
    let words = interpreter.candidates.first().into_iter().flatten();
    of_name(OsStr::new(&interpreter.name))
        .or_else(|| words.filter_map(|word| Path::new(word).file_name()).find_map(of_name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Code;

    fn code(name: &str, words: &[&str], args: &[&str]) -> Workload {
        let candidates = vec![words.iter().map(Into::into).collect()];
        let interpreter = Interpreter { name: name.to_owned(), candidates };
        let args = args.iter().map(Into::into).collect();
        Workload::Code(Code { name: "code".to_owned(), text: Vec::new(), interpreter, args })
    }

    #[test]
    fn each_language_is_taken_by_its_own() {
        for (what, backend) in [
            (code("python", &["python3"], &[]), "monty"),
            (code("/usr/bin/env", &["/usr/bin/env", "python3"], &[]), "monty"),
            (code("/usr/bin/python3", &["/usr/bin/python3"], &[]), "monty"),
            (code("javascript", &["node"], &[]), "quickjs"),
            (code("/usr/bin/env", &["/usr/bin/env", "node"], &[]), "quickjs"),
            (code("wasm", &["wasmtime"], &["a"]), "wasm"),
        ] {
            for name in ["monty", "quickjs", "wasm"] {
                assert_eq!(takes(name, &what, TierChoice::Auto), name == backend, "{what:?} {name}");
            }
        }
    }

    #[test]
    fn every_import_of_python_is_seen_and_no_text_is_one() {
        for (text, wanted) in [
            ("import os, numpy.linalg as l; x", &["os", "numpy"][..]),
            ("    from json import loads", &["json"]),
            ("from collections.abc import (\n Mapping,\n)", &["collections"]),
            ("from . import x", &["."]),
            ("x = 1; import os", &["os"]),
            ("if True: import os", &["os"]),
            ("def f():\n    while (yield from g()): from os import path", &["os"]),
            ("import \\\n os", &["os"]),
            ("import \\\r\n os", &["os"]),
            ("x = 'a\\\\'; import os", &["os"]),
            ("x = 'a\\'; import sys'; import os", &["os"]),
            ("x = ''; import os", &["os"]),
            ("x = f'{1}'\nimport re", &["re"]),
            ("x = 'never ended\nimport os", &["os"]),
            ("\"\"\"Says what it takes,\nfrom the first to the last,\nimport 'ünder' \\\"\"\" too\n\"\"\"\nx = 1", &[]),
            ("x = (yield\nfrom g())", &[]),
            ("imported = 1 # import os", &[]),
            ("raise A from e", &[]),
            ("'''never ended\nimport os", &[]),
            ("", &[]),
        ] {
            assert_eq!(imports(text), wanted, "{text}");
        }
    }

    #[test]
    fn what_has_other_results_in_the_interpreter_is_seen() {
        for text in [
            "round(2.675, 2)",
            "print(round (x[1:2],\n 2))",
            "round(number=f(1, 2), ndigits=2)",
            "x = [round(y, 1) for y in z]",
            "print(f'{round(x, 2)} and more')",
            "print(F\"\"\"{\n'a' + str(round(x, 2))}\"\"\")",
        ] {
            assert_eq!(differs(text).as_deref(), Some("uses `round` with two arguments"), "{text}");
        }
        for name in ["__lt__", "__bool__", "__format__", "__add__", "__new__"] {
            let text = format!("class A:\n    def __init__(self): pass\n    def {name}(self): pass");
            assert_eq!(differs(&text), Some(format!("defines `{name}`")));
        }
        for text in [
            "",
            "round(2.5)",
            "round(f(1, 2))",
            "round([1, 2][0])",
            "a, b = round(x), 2",
            "# round(1, 2)\n'round(1, 2)' + 'f' + '{round(1, 2)}'",
            "print('round', 1)",
            "a.round(1, 2)",
            "def round(x, n): pass",
            "class A:\n    def __eq__(self, o): return self.__lt__\n    def __private(self): pass",
            "f'{__lt__} def __lt__'",
            "my_round(1, 2); round_(1, 2)",
            "f'{x} round'",
            ")]}round",
        ] {
            assert_eq!(differs(text), None, "{text}");
        }
        for part in ["round(", "(", ")", "f'", "f\"", "\\", "f'round(", "f\"f'"] {
            assert!(differs(&part.repeat(1 << 16)).is_none(), "{part}");
        }
    }

    #[test]
    fn where_nothing_is_run_the_tier_must_be_named() {
        assert!(takes("monty", &Workload::Nothing, TierChoice::Fixed(Tier::Language)));
        assert!(!takes("monty", &Workload::Nothing, TierChoice::Auto));
    }

    #[test]
    fn others_are_refused_with_a_reason() {
        for (what, why) in [
            (Workload::Argv(vec!["/bin/true".into()]), Untaken::Native),
            (Workload::Shell, Untaken::Stays),
            (code("bash", &["bash"], &[]), Untaken::Language),
            (code("python", &["python3"], &["a"]), Untaken::Arguments),
            (code("javascript", &["node"], &["a"]), Untaken::Arguments),
        ] {
            assert_eq!(source(&what), Err(why), "{what:?}");
            assert!(!["monty", "quickjs", "wasm"].iter().any(|name| takes(name, &what, TierChoice::Auto)), "{what:?}");
        }
    }
}
