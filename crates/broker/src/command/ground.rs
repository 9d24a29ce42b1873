//! What words may say about the world: paths, folders that may be written, variables, blocked words.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use policy::mistake::quote;

use super::block::Block;
use super::options::{Check, blocked};
use super::scripts;
use super::table::{Data, Kind};
use super::words::{Value, Word};
use crate::guard::Blocked;

/// The world of one judge.
#[derive(Debug)]
pub(super) struct Ground {
    /// Where commands run.
    pub(super) root: PathBuf,
    /// Folders that may be written, absolute.
    pub(super) write: Vec<PathBuf>,
    /// Variables that may be assigned.
    pub(super) env: BTreeSet<String>,
    /// What is refused whatever allows it.
    pub(super) blocks: Vec<Block>,
    pub(super) data: &'static Data,
}

/// Folders in which a command may run: a line that goes somewhere else may also have failed to.
pub(super) type Folders = BTreeSet<PathBuf>;

impl Ground {
    /// Whether a word is what its place wants.
    pub(super) fn fits(&self, program: &str, check: &Check<'_>, folders: &Folders) -> Result<(), Blocked> {
        let Check { word, kind, role, operand } = check;
        let text = word.text();
        let good = match kind {
            Kind::None => false,
            Kind::Any | Kind::Module | Kind::Line => true,
            Kind::Path => return self.read_path(program, word, *operand),
            Kind::WritePath => return self.write_path(program, word, folders),
            Kind::Inside | Kind::Folder => return self.inside(program, word, kind, folders),
            Kind::Rev => return self.revision(program, word, folders),
            Kind::Word => text.is_some_and(|text| !text.is_empty()),
            Kind::Int => text.is_some_and(|text| number(text).is_some_and(str::is_empty)),
            Kind::Size => text.is_some_and(|text| {
                number(text)
                    .is_some_and(|unit| unit.chars().all(|c| c.is_ascii_alphabetic() || c == '%') && unit.len() <= 3)
            }),
            Kind::Duration => text.is_some_and(duration),
            Kind::Mode => text.is_some_and(mode),
            Kind::Sed => text.is_some_and(scripts::sed),
            Kind::AwkPrint => text.is_some_and(scripts::awk),
            Kind::Jq => text.is_some_and(scripts::jq),
            Kind::GitFormat => text.is_some_and(scripts::git_format),
            Kind::Assignment => return self.assignment(program, word),
            Kind::Variable => text.is_some_and(|name| self.is_own(name) || self.env.contains(name)),
            Kind::Status => {
                word.raw == "$?"
                    || word.raw == "\"$?\""
                    || text.is_some_and(|text| number(text).is_some_and(str::is_empty))
            }
            Kind::Pattern(pattern) => text.is_some_and(|text| pattern.is_match(text)),
        };
        if good {
            return Ok(());
        }
        let id = if text.is_none() { "commands.word/unproven" } else { "commands.argument/type" };
        let what = if *operand && matches!(kind, Kind::None) {
            format!("`{program}` takes no {role}")
        } else {
            format!("{role} of `{program}` is {}", quote(&word.shown()))
        };
        Err(blocked(id, what, "the word that stands here is judged by its type", kind.wanted()))
    }

    /// A file that is read. The line says which; where it only says how it is found, nothing may be blocked.
    fn read_path(&self, program: &str, word: &Word, operand: bool) -> Result<(), Blocked> {
        let fits = match &word.value {
            Value::Literal(_) => true,
            // `Blocks` looks at what a pattern could match.
            Value::Glob(_) => operand,
            Value::One(_) => !self.blocks.iter().any(Block::is_path),
            Value::Many => operand && !self.blocks.iter().any(Block::is_path),
        };
        if fits {
            return Ok(());
        }
        let what = format!("{} of `{program}` is a path that only running tells", quote(&word.raw));
        let why = if operand {
            "the policy blocks paths, and this could become one of them"
        } else {
            "it may become several words"
        };
        Err(blocked("commands.word/unproven", what, why, "write the path out"))
    }

    /// The places that a word means, from each folder where the command may run; none if it has `..` or is not known.
    fn places(&self, word: &Word, folders: &Folders) -> Option<Vec<PathBuf>> {
        let text = match &word.value {
            Value::Literal(text) => text.clone(),
            Value::Glob(parts) => parts.iter().map(|(c, _)| *c).collect(),
            Value::One(_) | Value::Many => return None,
        };
        let path = Path::new(&text);
        if text.is_empty() || path.components().any(|part| part == Component::ParentDir) {
            return None;
        }
        Some(folders.iter().map(|folder| tidy(&folder.join(path))).collect())
    }

    fn inside(&self, program: &str, word: &Word, kind: &Kind, folders: &Folders) -> Result<(), Blocked> {
        let below = |places: Vec<PathBuf>| places.iter().all(|place| place.starts_with(&self.root));
        let known = matches!(word.value, Value::Literal(_)) || matches!(kind, Kind::Inside);
        if known && word.text() != Some("-") && self.places(word, folders).is_some_and(below) {
            return Ok(());
        }
        let what =
            format!("{} of `{program}` does not certainly lie below `{}`", quote(&word.shown()), self.root.display());
        Err(blocked(
            "commands.path/outside",
            what,
            "what it runs or enters must be part of the workspace",
            kind.wanted(),
        ))
    }

    /// What git may look at: nothing outside, where `git diff` would compare files of the host.
    fn revision(&self, program: &str, word: &Word, folders: &Folders) -> Result<(), Blocked> {
        let text: String = match &word.value {
            Value::Literal(text) => text.clone(),
            Value::Glob(parts) => parts.iter().map(|(c, _)| *c).collect(),
            Value::One(_) | Value::Many => String::new(),
        };
        let climbs = text.split(['/', ':']).any(|part| part == "..");
        let absolute = text.starts_with('/') && !tidy(Path::new(&text)).starts_with(&self.root);
        let _ = folders;
        if !text.is_empty() && !climbs && !absolute {
            return Ok(());
        }
        let what = format!("{} of `{program}` is neither a revision nor a path of the workspace", quote(&word.shown()));
        Err(blocked(
            "commands.path/outside",
            what,
            "git also compares files that belong to no repository",
            Kind::Rev.wanted(),
        ))
    }

    /// A file that is written: in a folder of `write`, from wherever the command runs, and no control file.
    pub(super) fn write_path(&self, program: &str, word: &Word, folders: &Folders) -> Result<(), Blocked> {
        let shown = quote(&word.shown());
        let nowhere = || match self.write.as_slice() {
            [] => "nothing: `commands.write` names no folder".to_owned(),
            list => list.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", "),
        };
        let Some(places) = self.places(word, folders) else {
            let what = format!("`{program}` would write to {shown}");
            let why = "a path that is not written out, or has `..`, may be anywhere";
            return Err(blocked("commands.write/unproven", what, why, nowhere()));
        };
        if let Some(part) = places.iter().find_map(|place| self.protected(place, &word.value)) {
            let what = format!("`{program}` would write to {shown}");
            let why = format!("`{part}` is a control file: what stands there is read or run without being asked");
            return Err(blocked("commands.write/protected", what, why, "another place"));
        }
        let allowed = |place: &PathBuf| self.write.iter().any(|folder| place.starts_with(folder));
        if places.iter().all(allowed) {
            return Ok(());
        }
        let what = format!("`{program}` would write to {shown}");
        Err(blocked("commands.write/outside", what, "`commands.write` does not have it", nowhere()))
    }

    /// A part of the path that nobody writes. Case is not looked at, since some file systems do not either.
    fn protected(&self, place: &Path, value: &Value) -> Option<String> {
        let rest = place.strip_prefix(&self.root).unwrap_or(place);
        let hit = |part: &str| {
            let lower = part.to_lowercase();
            let listed = self.data.protected.contains(&lower);
            let ends = self.data.protected_endings.iter().any(|ending| lower.ends_with(ending.as_str()));
            // `.g*` could be `.git`.
            let pattern = matches!(value, Value::Glob(_)) && lower.starts_with('.') && lower.contains(['*', '?', '[']);
            listed || ends || pattern
        };
        rest.components()
            .map(|part| part.as_os_str().to_string_lossy())
            .find(|part| hit(part))
            .map(|part| part.into_owned())
    }

    /// A name that is the line's own: in small letters, so that it is in nobody's environment.
    pub(super) fn is_own(&self, name: &str) -> bool {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(plain)
            && !self.data.taken.iter().any(|taken| name.starts_with(taken.as_str()))
    }

    /// `NAME=VALUE` before a command or as a word of `env` and `export`.
    pub(super) fn assignment(&self, program: &str, word: &Word) -> Result<(), Blocked> {
        let head = word.head();
        let name = match (head.split_once('='), word.text()) {
            (Some((name, _)), _) => name.to_owned(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => String::new(),
        };
        self.variable(program, &name)
    }

    /// A variable that programs will see.
    pub(super) fn variable(&self, program: &str, name: &str) -> Result<(), Blocked> {
        if self.env.contains(name) {
            return Ok(());
        }
        let what = format!("the variable {} is set for `{program}`", quote(name));
        let why = if self.data.is_never(name) {
            "it makes programs run other code, or lines mean something else"
        } else {
            "variables change what programs do, so only listed ones may be set"
        };
        let instead = match self.env.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>() {
            list if list.is_empty() => "no variable: `commands.env` is empty".to_owned(),
            list => list.join(", "),
        };
        Err(blocked("commands.env/not-allowed", what, why, instead))
    }

    /// Where `cd` may lead from here.
    pub(super) fn enter(&self, word: &Word, folders: &Folders) -> Folders {
        self.places(word, folders).unwrap_or_default().into_iter().chain(folders.iter().cloned()).collect()
    }
}

/// Without `.` and double slashes; `..` is refused before.
pub(super) fn tidy(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// The rest behind a number.
fn number(text: &str) -> Option<&str> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    (rest.len() < digits.len() && digits.len().saturating_sub(rest.len()) <= 18).then_some(rest)
}

fn duration(text: &str) -> bool {
    let digits = text.strip_suffix(['s', 'm', 'h', 'd']).unwrap_or(text);
    !digits.is_empty() && digits.len() <= 12 && digits.chars().all(|c| c.is_ascii_digit() || c == '.') && digits != "."
}

/// Permissions without set-user-id, set-group-id and the sticky bit.
fn mode(text: &str) -> bool {
    let octal = text.len() == 3 || text.len() == 4 && text.starts_with('0');
    let symbolic = |part: &str| {
        let who = part.trim_start_matches(['u', 'g', 'o', 'a']);
        let rights = who.strip_prefix(['+', '-', '=']);
        rights.is_some_and(|rights| !rights.is_empty() && rights.chars().all(|c| matches!(c, 'r' | 'w' | 'x' | 'X')))
    };
    octal && text.chars().all(|c| ('0'..='7').contains(&c)) || text.split(',').all(symbolic)
}
