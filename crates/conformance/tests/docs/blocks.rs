//! The documents for people, and the fenced blocks in them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Read;

/// A fenced block: where it begins, what its fence says, what is in it.
pub(crate) struct Block {
    /// The document, from the root of the repository.
    pub page: String,
    /// The line of the fence.
    pub line: usize,
    /// Its language, and what follows that.
    pub fence: String,
    pub lines: Vec<String>,
}

impl Block {
    /// For people.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    pub(crate) fn language(&self) -> &str {
        self.fence.split(' ').next().unwrap_or_default()
    }

    /// The file that the reader is meant to have: the fence names it behind the language.
    pub(crate) fn file(&self) -> Option<&str> {
        self.fence.split(' ').nth(1).filter(|word| word.contains('.'))
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The documents for people: those at the root, of `docs`, of `examples`, of `bench` and of the package for Python.
pub(crate) fn documents() -> Read<Vec<PathBuf>> {
    let mut found = Vec::new();
    for (folder, deep) in [("", false), ("docs", true), ("examples", true), ("bench", false), ("sdk/python", false)] {
        let mut folders = vec![root().join(folder)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                if deep && path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|ending| ending == "md") {
                    found.push(path);
                }
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Every block of every document, in order.
pub(crate) fn blocks() -> Read<Vec<Block>> {
    let mut found = Vec::new();
    for path in documents()? {
        let text = fs::read_to_string(&path)?;
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let Some(fence) = line.strip_prefix("```").filter(|fence| !fence.is_empty()) else { continue };
            let lines = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").map(str::to_owned);
            let (page, fence, lines) = (shown(&path), fence.to_owned(), lines.collect());
            found.push(Block { page, line: number + 1, fence, lines });
        }
    }
    Ok(found)
}
