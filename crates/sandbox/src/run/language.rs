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

/// What a program asks for by its text and the language tier would not let it have: for the choice of `auto` alone, which moves up
/// for it. What this overlooks the interpreter refuses.
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
    let allowed = loaded.policy.language.modules.as_deref();
    let has = |name: &str| match allowed {
        Some(list) => list.iter().any(|one| one == name),
        None => backends::LANGUAGE_MODULES.contains(&name),
    };
    imports(&text).into_iter().find(|name| !has(name)).map(|name| format!("imports `{name}`"))
}

/// The first part of what each statement of a Python program imports; a relative import is `.`. Comments and texts are left out. The
/// interpreter's own parser reads it again, inside: a program can overflow the stack of that one, which must not be ours.
fn imports(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let (mut found, mut statement) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => quoted(rest, first),
            // A line that goes on.
            '\\' => ["\\\r\n", "\\\n"].iter().find(|end| rest.starts_with(**end)).map_or(1, |end| end.len()),
            c if is_part(c) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        let (token, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        rest = after;
        match first {
            // `if x: import y` has two parts.
            '\n' | ';' | ':' => {
                found.extend(of_statement(&statement));
                statement.clear();
            }
            '#' | '\\' => {}
            c if c.is_whitespace() => {}
            _ => statement.push(token),
        }
    }
    found.extend(of_statement(&statement));
    found
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
