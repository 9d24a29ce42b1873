//! What arguments may name: paths, folders that may be written, variables, blocked words.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use policy::diagnostic::quote;

use super::block::Block;
use super::options::{Check, blocked};
use super::places::{Places, lexical};
use super::scripts;
use super::table::{Data, Kind};
use super::words::{Value, Word};
use crate::blocked::Blocked;
use crate::control_files::ControlFiles;

/// What arguments are judged against.
#[derive(Debug)]
pub(super) struct ArgumentRules {
    /// Where commands run.
    pub(super) root: PathBuf,
    /// Folders that may be written, absolute.
    pub(super) write: Vec<PathBuf>,
    /// What may be read, absolute; `/` is everything.
    pub(super) read: Vec<PathBuf>,
    /// Where paths lead.
    pub(super) places: Places,
    /// Variables that may be assigned.
    pub(super) env: BTreeSet<String>,
    /// What nobody writes.
    pub(super) control_files: ControlFiles,
    /// What is refused whatever allows it.
    pub(super) blocks: Vec<Block>,
    pub(super) data: &'static Data,
}

/// Whether a word of it is judged by where it leads.
const fn is_place(kind: &Kind) -> bool {
    matches!(kind, Kind::Path | Kind::PathSpec | Kind::WritePath | Kind::Inside | Kind::Folder | Kind::Rev)
}

/// Folders in which a command may run: a line that goes somewhere else may also have failed to.
pub(super) type Folders = BTreeSet<PathBuf>;

impl ArgumentRules {
    /// Whether a word is what its place wants.
    pub(super) fn fits(&self, program: &str, check: &Check<'_>, folders: &Folders) -> Result<(), Blocked> {
        let Check { word, kind, role, operand } = check;
        let text = word.text();
        // bash itself reads folders for it, whatever the program does with the names.
        if matches!(word.value, Value::Glob(_)) && !is_place(kind) {
            self.read_names(program, word, folders)?;
        }
        let good = match kind {
            Kind::None => false,
            Kind::Any | Kind::Module | Kind::Line => true,
            Kind::Path => return self.read_path(program, word, *operand, folders),
            Kind::PathSpec => return self.path_spec(program, word, folders),
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

    /// A pattern of files that bash replaces by their names.
    pub(super) fn read_names(&self, program: &str, word: &Word, folders: &Folders) -> Result<(), Blocked> {
        if self.reads_all() { Ok(()) } else { self.read_path(program, word, true, folders) }
    }

    /// A file that is read, as an argument or by a redirection: below what may be read, as it is written and where it leads.
    pub(super) fn read_path(
        &self,
        program: &str,
        word: &Word,
        operand: bool,
        folders: &Folders,
    ) -> Result<(), Blocked> {
        if self.reads_all() {
            return self.read_anything(program, word, operand);
        }
        let instead = || {
            let list: Vec<String> = self.read.iter().map(|path| format!("`{}`", path.display())).collect();
            format!("a path below {}; in the policy, `commands.read`", list.join(", "))
        };
        if !matches!((&word.value, operand), (Value::Literal(_), _) | (Value::Glob(_), true)) {
            let what = format!("{} of `{program}` is a path that only running tells", quote(&word.raw));
            let why = "it could be any file, and `commands.read` does not have all of them";
            return Err(blocked("commands.word/unproven", what, why, "write the path out, or a pattern of files"));
        }
        if matches!(word.text(), Some("-" | "/dev/null" | "/dev/stdin" | PIPE)) {
            return Ok(());
        }
        for folder in folders {
            let found = self.places.expand(folder, word).unwrap_or_default();
            let leads = |place: &PathBuf| match self.places.real(place) {
                Some(real) if self.may_read(&real) && self.may_read(&lexical(place)) => None,
                Some(real) => Some(format!("it leads to `{}`, which `commands.read` does not have", real.display())),
                None => Some("its links have no end".to_owned()),
            };
            let why = if found.is_empty() {
                Some("it matches too many files to look at".to_owned())
            } else {
                found.iter().find_map(leads)
            };
            if let Some(why) = why {
                let what = format!("`{program}` would read {}", quote(&word.shown()));
                return Err(blocked("commands.read/outside", what, why, instead()));
            }
        }
        Ok(())
    }

    /// Where everything may be read. Where the line only says how a file is found, nothing may be blocked.
    fn read_anything(&self, program: &str, word: &Word, operand: bool) -> Result<(), Blocked> {
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

    fn reads_all(&self) -> bool {
        self.read.iter().any(|place| place == Path::new("/"))
    }

    fn may_read(&self, place: &Path) -> bool {
        self.is_below(place, &self.read)
    }

    /// Whether a resolved path lies in one of these. A folder of the workspace is where it is written: its own links are the
    /// workspace's word. One outside is the policy's, which may lead elsewhere (`/var/run`).
    fn is_below(&self, place: &Path, folders: &[PathBuf]) -> bool {
        let elsewhere = |folder: &PathBuf| {
            !folder.starts_with(&self.root) && self.places.real(folder).is_some_and(|real| place.starts_with(real))
        };
        folders.iter().any(|folder| place.starts_with(folder) || elsewhere(folder))
    }

    /// A program that follows links below the folders that it is given: a link in them that leads out of what may be read.
    pub(super) fn read_below(&self, program: &str, word: &Word, folders: &Folders) -> Result<(), Blocked> {
        if self.reads_all() {
            return Ok(());
        }
        let below = |folder: &PathBuf| self.places.expand(folder, word).unwrap_or_default();
        let out = |place: PathBuf| self.places.link_out(&place, |real| self.may_read(real));
        let Some(link) = folders.iter().flat_map(below).find_map(out) else { return Ok(()) };
        let what = format!("`{program}` would follow the links below {}", quote(&word.shown()));
        let why = format!("`{}` leads out of `commands.read`, or is too big to look through", link.display());
        Err(blocked("commands.read/outside", what, why, "the same without following links"))
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
        let leads = |folder: &PathBuf| {
            let found = self.places.expand(folder, word).unwrap_or_default();
            let real = |place: &PathBuf| self.places.real(place).is_some_and(|real| real.starts_with(&self.root));
            !found.is_empty() && found.iter().all(real)
        };
        if known
            && word.text() != Some("-")
            && self.places(word, folders).is_some_and(below)
            && folders.iter().all(leads)
        {
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
        let refused = |place: &Path, leads: &str| {
            let what = format!("`{program}` would write to {shown}");
            if let Some(why) = self.protected(place, &word.value) {
                return Some(blocked("commands.write/protected", what, format!("{leads}{why}"), "another place"));
            }
            let outside = !self.is_below(place, &self.write);
            let why = format!("{leads}`commands.write` does not have it");
            outside.then(|| blocked("commands.write/outside", what, why, nowhere()))
        };
        if let Some(reason) = places.iter().find_map(|place| refused(place, "")) {
            return Err(reason);
        }
        // The same once more for where each of them leads.
        for folder in folders {
            let found = self.places.expand(folder, word).unwrap_or_default();
            let real: Option<Vec<PathBuf>> = found.iter().map(|place| self.places.real(place)).collect();
            let Some(real) = real.filter(|real| !real.is_empty()) else {
                let what = format!("`{program}` would write to {shown}");
                let why = "its links have no end, or it matches too many files to look at";
                return Err(blocked("commands.write/unproven", what, why, nowhere()));
            };
            let leads = |place: &PathBuf| refused(place, &format!("it leads to `{}`: ", place.display()));
            if let Some(reason) = real.iter().find_map(leads) {
                return Err(reason);
            }
        }
        Ok(())
    }

    /// Files that are put into a folder: what stands there under their names may be a link that leads out.
    pub(super) fn put_into(
        &self,
        program: &str,
        target: &Word,
        names: &[Option<String>],
        folders: &Folders,
        deep: bool,
    ) -> Result<(), Blocked> {
        let allowed = |real: &Path| self.is_below(real, &self.write) && self.protected(real, &target.value).is_none();
        for place in folders.iter().flat_map(|folder| self.places.expand(folder, target).unwrap_or_default()) {
            let all_known: Option<Vec<&String>> = names.iter().map(Option::as_ref).collect();
            let bad = match all_known {
                // What the names become is not known: whatever is there may be meant.
                None => self.places.link_out(&place, allowed),
                Some(names) => names.into_iter().map(|name| place.join(name)).find_map(|inner| {
                    let leads_out = !self.places.real(&inner).is_some_and(|real| allowed(&real));
                    if leads_out { Some(inner) } else { self.places.link_out(&inner, allowed).filter(|_| deep) }
                }),
            };
            if let Some(bad) = bad {
                let what = format!("`{program}` would write to {}", quote(&target.shown()));
                let why =
                    format!("`{}` is a control file, leads out of `commands.write`, or is too big", bad.display());
                return Err(blocked("commands.write/outside", what, why, "another folder"));
            }
        }
        Ok(())
    }

    /// The names under which a source is put into a folder; none for one that is only known when it runs, or whose content is put.
    pub(super) fn names_of(&self, word: &Word, folders: &Folders) -> Vec<Option<String>> {
        let content = word.text().is_none_or(|text| matches!(text.rsplit('/').next(), Some("." | "..")));
        if content && !matches!(word.value, Value::Glob(_)) {
            return vec![None];
        }
        let found = folders.iter().flat_map(|folder| self.places.expand(folder, word).unwrap_or_default());
        found.map(|place| place.file_name().map(|name| name.to_string_lossy().into_owned())).collect()
    }

    /// A path that git writes: as any, but `:` at its beginning starts it somewhere else, or turns it round.
    fn path_spec(&self, program: &str, word: &Word, folders: &Folders) -> Result<(), Blocked> {
        if word.head().starts_with(':') {
            let what = format!("`{program}` would write to {}", quote(&word.shown()));
            let why = "`:` at the beginning is no path: it starts at the top, or means all but this";
            return Err(blocked("commands.write/unproven", what, why, "a path"));
        }
        self.write_path(program, word, folders)
    }

    /// Whether a program may write anywhere in the workspace.
    pub(super) fn writes_all(&self) -> bool {
        self.is_below(&self.root, &self.write)
    }

    /// Why nobody writes a path.
    fn protected(&self, place: &Path, value: &Value) -> Option<String> {
        let rest = place.strip_prefix(&self.root).unwrap_or(place);
        // `.g*` could be `.git`.
        let hidden = |part: &str| part.starts_with('.') && part.contains(['*', '?', '[']);
        let pattern = matches!(value, Value::Glob(_)).then(|| {
            let mut parts = rest.components().map(|part| part.as_os_str().to_string_lossy());
            parts.find(|part| hidden(part)).map(|part| format!("`{part}` could be a control file"))
        });
        pattern.flatten().or_else(|| self.control_files.why(rest, self.places.outside(place).as_deref()))
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

/// What bash makes of `<(...)`.
pub(super) const PIPE: &str = "/dev/fd/63";

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
