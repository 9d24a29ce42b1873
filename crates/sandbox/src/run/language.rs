//! Which of the language tier's interpreters takes what is to be run, and why none does.

use std::ffi::OsStr;
use std::path::Path;

use policy::control::{Interpreter as Limits, Source};
use policy::value::{Tier, TierChoice};
use policy::{ClauseId, Loaded};

use crate::error::Error;
use crate::fault::Fault;
use crate::workload::{Interpreter, Workload};

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
    let why = match source(what) {
        Ok(source) if named.is_none_or(|name| name == source.backend()) => return Ok(()),
        Ok(source) => format!("this program is for `{}`", source.backend()),
        Err(why) => why.to_owned(),
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
        fix: "use `--tier process` or a stronger one; or give Python (`--lang python`), JavaScript (`--lang javascript`) or \
              WebAssembly (`--lang wasm`)"
            .to_owned(),
    }))
}

/// Why `auto` came to no interpreter, where the threat would have let it.
pub(super) fn passed(loaded: &Loaded, what: &Workload) -> Option<&'static str> {
    let first = loaded.policy.tier == TierChoice::Auto && policy::first_tier(loaded) == Tier::Language;
    source(what).err().filter(|_| first && !matches!(what, Workload::Nothing))
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
        return text.lines().find_map(asks);
    }
    let allowed = loaded.policy.language.modules.as_deref();
    let has = |name: &str| match allowed {
        Some(list) => list.iter().any(|one| one == name),
        None => backends::LANGUAGE_MODULES.contains(&name),
    };
    text.lines().flat_map(begins).find(|name| !has(name)).map(|name| format!("imports `{name}`"))
}

/// What a line of JavaScript asks for: a module, or a name that is no part of the language and stands as if it were called or had
/// parts. A comment that looks so moves a program up too.
fn asks(line: &str) -> Option<String> {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("import").filter(|after| !after.starts_with(part)) {
        let quoted = after.split(['\'', '"', '`']).nth(1);
        return Some(quoted.map_or_else(|| "imports a module".to_owned(), |name| format!("imports `{name}`")));
    }
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let (word, after) = rest.split_at(rest.find(|c| !part(c)).unwrap_or(rest.len()));
        if word.is_empty() {
            before = first;
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
            continue;
        }
        let used = after.trim_start().starts_with(['(', '.', '[', ';', ',', ')', '?']);
        if before != '.' && used && Limits::NOT_JAVASCRIPT.contains(&word) {
            return Some(format!("uses `{word}`"));
        }
        if word == "import" && after.trim_start().starts_with('(') {
            return Some("imports a module".to_owned());
        }
        before = ' ';
        rest = after;
    }
    None
}

/// What a line imports, if it begins with that.
fn begins(line: &str) -> Vec<String> {
    let first = |module: &str| module.trim().split([' ', '.', ';', '#']).next().unwrap_or_default().to_owned();
    let line = line.trim_start();
    if let Some(rest) = line.strip_prefix("from ") {
        return vec![first(rest)];
    }
    line.strip_prefix("import ").map(|rest| rest.split(',').map(first).collect()).unwrap_or_default()
}

/// In what it is written, or why no interpreter takes it.
fn source(what: &Workload) -> Result<Source, &'static str> {
    let (interpreter, args) = match what {
        Workload::Code(code) => (&code.interpreter, &code.args),
        Workload::Script(script) => (&script.interpreter, &script.args),
        Workload::Argv(_) => {
            return Err("it is a native program, and this tier has interpreters of Python, JavaScript and WebAssembly");
        }
        Workload::Shell | Workload::Agent(_) | Workload::Image | Workload::Nothing => {
            return Err(
                "this tier runs one program of Python, JavaScript or WebAssembly to its end, and nothing that stays",
            );
        }
    };
    match written_in(interpreter) {
        Some(Source::Python | Source::JavaScript) if !args.is_empty() => {
            Err("a program of this language takes no arguments here: give inputs, which are its variables")
        }
        Some(source) => Ok(source),
        None => Err("this tier has interpreters of Python, JavaScript and WebAssembly alone"),
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
    fn lines_that_begin_with_an_import_say_what_they_need() {
        assert_eq!(begins("import os, numpy.linalg as l; x"), ["os", "numpy"]);
        assert_eq!(begins("    from json import loads"), ["json"]);
        assert_eq!(begins("imported = 1"), [""; 0]);
    }

    #[test]
    fn names_of_javascript_that_are_elsewhere_say_what_a_program_needs() {
        for (line, wanted) in [
            ("import fs from 'fs'", "imports `fs`"),
            ("import('fs').then(f)", "imports `fs`"),
            ("const m = await import(name)", "imports a module"),
            ("const fs = require('fs')", "uses `require`"),
            ("console.log(process.argv)", "uses `process`"),
            ("new URL(x)", "uses `URL`"),
            ("f(fetch)", "uses `fetch`"),
        ] {
            assert_eq!(asks(line).as_deref(), Some(wanted), "{line}");
        }
        for line in
            ["process the data", "a.fetch(1)", "const imported = 1", "// a module", "my_process.x", "ünder.x", ""]
        {
            assert_eq!(asks(line), None, "{line}");
        }
    }

    #[test]
    fn where_nothing_is_run_the_tier_must_be_named() {
        assert!(takes("monty", &Workload::Nothing, TierChoice::Fixed(Tier::Language)));
        assert!(!takes("monty", &Workload::Nothing, TierChoice::Auto));
    }

    #[test]
    fn others_are_refused_with_a_reason() {
        let mut whys = std::collections::BTreeSet::new();
        for what in [
            Workload::Argv(vec!["/bin/true".into()]),
            Workload::Shell,
            code("bash", &["bash"], &[]),
            code("python", &["python3"], &["a"]),
            code("javascript", &["node"], &["a"]),
        ] {
            whys.insert(source(&what).unwrap_err());
            assert!(!["monty", "quickjs", "wasm"].iter().any(|name| takes(name, &what, TierChoice::Auto)), "{what:?}");
        }
        assert_eq!(whys.len(), 4);
    }
}
