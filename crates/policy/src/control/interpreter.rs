//! What an interpreter of the language tier holds by itself, as it is told and as it says it back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What an interpreter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Python.
    Python,
    /// JavaScript.
    JavaScript,
    /// WebAssembly with WASI preview 1.
    Wasm,
}

impl Source {
    /// The backend that takes it.
    #[must_use]
    pub const fn backend(self) -> &'static str {
        match self {
            Self::Python => "monty",
            Self::JavaScript => "quickjs",
            Self::Wasm => "wasm",
        }
    }
}

/// An interpreter and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interpreter {
    /// What it takes.
    pub source: Source,
    /// The modules that may be imported, sorted.
    pub modules: Vec<String>,
    /// Most steps; `None` = not counted.
    pub steps: Option<u64>,
    /// Deepest call; `None` = as deep as the interpreter's stack, whose bound is no number of calls.
    pub recursion: Option<u32>,
    /// Bytes that one value, one memory or one table may have, or all values together where the interpreter has a heap of its own;
    /// what the run has together is held outside.
    pub memory: Option<u64>,
    /// Inputs that are variables of the program, each with its type.
    pub inputs: BTreeMap<String, String>,
    /// The program can call tools of the policy, each call judged by its gate.
    pub tools: bool,
}

impl Interpreter {
    /// The largest program, bytes.
    pub const MAX_PROGRAM: usize = 64 << 20;
    /// The signal by which an interpreter ends itself when a value would pass `memory`: no program of it can send one.
    pub const OUT_OF_MEMORY: i32 = 10;
    /// As above, for `steps`.
    pub const OUT_OF_STEPS: i32 = 12;
    /// The signal by which it says that the program needs what the tier has not (SIGSTKFLT, which nothing else uses); its last
    /// line on stderr says what.
    pub const LACKS: i32 = 16;

    /// In one line, without its end.
    #[must_use]
    pub fn to_line(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// From such a line.
    ///
    /// # Errors
    /// It is none; in words.
    pub fn from_line(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_every_limit_and_nothing_else_is_taken() {
        let one = Interpreter {
            source: Source::Python,
            modules: vec!["math".to_owned()],
            steps: None,
            recursion: Some(100),
            memory: Some(1 << 20),
            inputs: BTreeMap::from([("n".to_owned(), "integer".to_owned())]),
            tools: true,
        };
        assert_eq!(Interpreter::from_line(&one.to_line()), Ok(one.clone()));
        assert!(Interpreter::from_line(&one.to_line().replace("recursion", "depth")).is_err());
    }
}
