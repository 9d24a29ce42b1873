//! What control files other than git's name in a workspace: the script that an `.envrc` sources, the server that `.mcp.json` starts, the
//! hook of an agent's settings. Whoever obeys the file runs what it names, and asks about the file alone.
//!
//! It is no control file: work consists of editing it. So it is marked, and nothing is held for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::git::resolve;
use super::gitdir::DATA;
use super::links::files;
use super::list::{List, Protected, Shape};
use super::plan::{Top, expand};
use super::words::{modules, of_command};
use crate::state::{Cross, Dir};

/// Larger files are data.
const MAX_SIZE: u64 = 256 << 10;
/// So many files are looked at in one folder of control files, and so many words kept of all.
const MAX_FILES: usize = 256;
const MAX_NAMED: usize = 200_000;
/// So many bytes are read of all, and so many of names kept.
const MAX_READ: usize = 64 << 20;
const MAX_KEPT: usize = 64 << 20;
/// So many folders are looked at.
const MAX_FOLDERS: usize = 1000;
/// What editors run when a folder is opened: the rest of their folders names files for other reasons.
const OF_EDITORS: [&str; 4] =
    [".vscode/tasks.json", ".zed/tasks.json", ".devcontainer.json", ".devcontainer/devcontainer.json"];
/// Text for people, and what programs wrote down.
const NO_COMMANDS: [&str; 6] = ["md", "mdc", "txt", "log", "jsonl", "lock"];

/// The paths that control files in these folders of a workspace name, each with the file that does. All are relative to the workspace;
/// whether anything is there is not asked.
pub fn mentioned<'a>(
    root: &Path,
    below: &Dir,
    list: &List,
    folders: impl IntoIterator<Item = &'a Path>,
) -> BTreeMap<PathBuf, PathBuf> {
    let folders: BTreeSet<&Path> = folders.into_iter().collect();
    let mut found = BTreeMap::new();
    let (mut unread, mut room) = (MAX_READ, MAX_KEPT);
    let inner = |path: &PathBuf| {
        let inner = path.strip_prefix(root).ok().filter(|inner| !inner.as_os_str().is_empty());
        inner.map(Path::to_owned)
    };
    for folder in folders.into_iter().take(MAX_FOLDERS) {
        let Ok(dir) = below.enter(folder, Cross::Yes) else { continue };
        let top = Top::of(&dir);
        let listed = list.path.iter().filter(|entry| runs(entry)).map(|entry| (entry.pattern.as_str(), entry.kind));
        let of_editors = OF_EDITORS.iter().map(|pattern| (*pattern, Shape::File));
        for (pattern, kind) in listed.chain(of_editors).filter(|(pattern, _)| top.may_have(pattern)) {
            let of_it = expand(&dir, &top, pattern).into_iter().flat_map(|path| control_files(&dir, path, kind));
            for file in of_it {
                let Ok(text) = dir.read(&file, MAX_SIZE) else { continue };
                let Some(rest) = unread.checked_sub(text.len()) else { return found };
                unread = rest;
                let named = named(&root.join(folder), &file, &String::from_utf8_lossy(&text));
                let by = folder.join(&file);
                let left = MAX_NAMED.saturating_sub(found.len());
                let named = named.iter().filter_map(inner).take(left).map(|inner| (inner, by.clone()));
                if !keep(&mut found, named, &mut room) {
                    return found;
                }
            }
        }
    }
    found
}

/// Keeps names with who names them, as long as there is room for their bytes; false when there is none any more.
fn keep(
    found: &mut BTreeMap<PathBuf, PathBuf>,
    named: impl Iterator<Item = (PathBuf, PathBuf)>,
    room: &mut usize,
) -> bool {
    for (inner, by) in named {
        let length = inner.as_os_str().len().saturating_add(by.as_os_str().len());
        let Some(rest) = room.checked_sub(length) else { return false };
        *room = rest;
        found.entry(inner).or_insert(by);
    }
    true
}

/// Whether an entry of the list is of what names commands.
fn runs(entry: &Protected) -> bool {
    match entry.category.as_str() {
        "shell" | "agent" => true,
        "version control" => entry.kind == Shape::File || entry.pattern.contains("hook") || entry.pattern == ".husky",
        _other => false,
    }
}

fn control_files(dir: &Dir, path: PathBuf, kind: Shape) -> Vec<PathBuf> {
    if kind == Shape::File {
        return vec![path];
    }
    let all = files(dir, &path, &DATA, FileType::RegularFile).into_iter();
    let is_text = |file: &PathBuf| file.extension().is_some_and(|end| NO_COMMANDS.iter().any(|one| end == *one));
    all.filter(|file| !is_text(file)).take(MAX_FILES).collect()
}

/// The words of a text that may be paths, from the folder that it stands for, and from its own.
fn named(folder: &Path, file: &Path, text: &str) -> BTreeSet<PathBuf> {
    let spaced = text.replace(['"', '\'', '\\', '[', ']'], " ");
    let mut words: BTreeSet<String> = of_command(&spaced).words.into_iter().collect();
    words.extend(of_command(&text.replace(['"', '\'', '\\'], "")).words);
    for name in modules(&spaced) {
        words.extend([format!("{name}.py"), format!("{name}/__main__.py"), format!("{name}/__init__.py")]);
    }
    let own = folder.join(file);
    let from = [folder, own.parent().unwrap_or(folder)];
    let is_word = |word: &&String| word.bytes().any(|byte| byte.is_ascii_alphanumeric());
    let paths = words.iter().filter(is_word).flat_map(|word| from.map(|from| resolve(from, Path::new(word))));
    paths.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protect::list;

    #[test]
    fn what_control_files_run_is_known_and_what_they_speak_of_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let command =
            r#"{"hooks": {"SessionStart": [{"hooks": [{"command": "$CLAUDE_PROJECT_DIR/scripts/start.sh"}]}]}}"#;
        for (path, text) in [
            (".envrc", "source scripts/env.sh\n"),
            (".mcp.json", r#"{"mcpServers": {"x": {"command": "node", "args": ["tools/server.js"]}}}"#),
            (".claude/settings.json", command),
            (".claude/agents/a.md", "look at src/main.rs"),
            (".vscode/tasks.json", r#"{"tasks": [{"command": "${workspaceFolder}/scripts/task.sh"}]}"#),
            (".vscode/settings.json", r#"{"x": "src/lib.rs"}"#),
            (".husky/pre-commit", "python3 -m checks.run && sh ../outside.sh"),
            ("sub/.envrc", "PATH_add bin\n. ./env.sh\n"),
        ] {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), text).unwrap();
        }
        let below = Dir::open(&root).unwrap();
        let found = mentioned(&root, &below, list(), [Path::new(""), Path::new("sub"), Path::new("none")]);
        for (path, by) in [
            ("scripts/env.sh", ".envrc"),
            ("tools/server.js", ".mcp.json"),
            ("scripts/start.sh", ".claude/settings.json"),
            ("scripts/task.sh", ".vscode/tasks.json"),
            ("checks/run.py", ".husky/pre-commit"),
            ("outside.sh", ".husky/pre-commit"),
            ("sub/env.sh", "sub/.envrc"),
        ] {
            assert_eq!(found.get(Path::new(path)).map(PathBuf::as_path), Some(Path::new(by)), "{path}: {found:?}");
        }
        for path in ["src/main.rs", "src/lib.rs", "env.sh", "scripts/other.sh"] {
            assert!(!found.contains_key(Path::new(path)), "{path}");
        }
    }
}
