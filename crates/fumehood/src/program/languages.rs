//! The languages that a script or a piece of code can be in, and the programs that run them.

use std::ffi::OsString;

use sandbox::Interpreter;

/// One language.
#[derive(Debug)]
pub struct Language {
    /// `--lang`, first the name and then what else people call it.
    pub names: &'static [&'static str],
    /// Extensions; the first one names code that has no file.
    pub extensions: &'static [&'static str],
    /// Command lines before the script's name; the first whose program exists inside is used.
    pub programs: &'static [&'static [&'static str]],
}

/// All of them.
pub const LANGUAGES: &[Language] = &[
    Language { names: &["python", "py", "python3"], extensions: &["py"], programs: &[&["python3"], &["python"]] },
    Language { names: &["sh"], extensions: &["sh"], programs: &[&["sh"]] },
    Language { names: &["bash", "shell"], extensions: &["bash"], programs: &[&["bash"]] },
    Language { names: &["zsh"], extensions: &["zsh"], programs: &[&["zsh"]] },
    Language { names: &["fish"], extensions: &["fish"], programs: &[&["fish"]] },
    Language {
        names: &["javascript", "js", "node"],
        extensions: &["js", "mjs", "cjs"],
        programs: &[&["node"], &["nodejs"], &["bun", "run"], &["deno", "run"]],
    },
    Language {
        // Node strips types by itself from 22.18 on; older ones say so in their error.
        names: &["typescript", "ts"],
        extensions: &["ts", "mts", "cts"],
        programs: &[&["deno", "run"], &["bun", "run"], &["tsx"], &["node"]],
    },
    Language { names: &["ruby", "rb"], extensions: &["rb"], programs: &[&["ruby"]] },
    Language { names: &["perl", "pl"], extensions: &["pl"], programs: &[&["perl"]] },
    Language { names: &["php"], extensions: &["php"], programs: &[&["php"]] },
    Language {
        names: &["lua"],
        extensions: &["lua"],
        programs: &[&["lua"], &["lua5.4"], &["lua5.3"], &["lua5.1"], &["luajit"]],
    },
    Language { names: &["r", "R", "rscript"], extensions: &["R", "r"], programs: &[&["Rscript"]] },
    Language { names: &["julia", "jl"], extensions: &["jl"], programs: &[&["julia"]] },
    Language { names: &["awk"], extensions: &["awk"], programs: &[&["awk", "-f"]] },
    Language { names: &["sed"], extensions: &["sed"], programs: &[&["sed", "-f"]] },
    Language { names: &["tcl"], extensions: &["tcl"], programs: &[&["tclsh"]] },
    Language { names: &["elixir", "exs"], extensions: &["exs"], programs: &[&["elixir"]] },
    Language {
        names: &["wasm", "webassembly"],
        extensions: &["wasm"],
        programs: &[&["wasmtime"], &["wasmer", "run"], &["wasmedge"], &["iwasm"]],
    },
    Language { names: &["guile", "scheme", "scm"], extensions: &["scm"], programs: &[&["guile", "-s"]] },
];

/// The language with this name.
#[must_use]
pub(super) fn by_name(name: &str) -> Option<&'static Language> {
    LANGUAGES.iter().find(|language| language.names.contains(&name))
}

/// The language with this extension.
#[must_use]
pub(super) fn by_extension(extension: &str) -> Option<&'static Language> {
    LANGUAGES.iter().find(|language| language.extensions.contains(&extension))
}

impl Language {
    /// Its first name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// The file name for code that has none.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("code.{}", self.extensions.first().copied().unwrap_or("txt"))
    }

    /// How to find its interpreter inside.
    #[must_use]
    pub fn interpreter(&self) -> Interpreter {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect();
        Interpreter { name: self.name().to_owned(), candidates: self.programs.iter().map(|p| words(p)).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_and_no_extension_stands_for_two_languages() {
        for words in [|l: &Language| l.names, |l: &Language| l.extensions] {
            let mut all: Vec<_> = LANGUAGES.iter().flat_map(words).collect();
            all.sort_unstable();
            let n = all.len();
            all.dedup();
            assert_eq!(all.len(), n);
        }
        assert!(LANGUAGES.iter().all(|l| !l.names.is_empty() && !l.extensions.is_empty() && !l.programs.is_empty()));
    }
}
