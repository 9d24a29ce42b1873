//! Servers that are written as `docker run OPTIONS IMAGE ARGS`, or as podman has it: which image that is, and what its options
//! ask for.
//!
//! Options are read as Docker reads them (single letters together, `--name=value`, nothing after the image), since whatever is
//! read otherwise could move the place where the image stands. One that says what a sandbox has anyway is taken over; one that
//! a policy has no clause for, or that opens the host, is refused, with the clause that a person would write instead. Folders
//! of the host are never granted by an entry: they are told, and held against the policy when the server starts.

mod options;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use policy::json::toml_text;

use super::text::shown;
use options::{Known, Means};

/// The image of a server, and what the options before it ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// As the command names it.
    pub image: String,
    /// The image of this name that the store has, and no registry is asked (`--pull never`).
    pub is_local: bool,
    /// `OS/ARCH`.
    pub platform: Option<String>,
    /// What runs instead of the image's ENTRYPOINT and CMD; empty: the arguments alone.
    pub entrypoint: Option<String>,
    /// Arguments, instead of the image's CMD if there are any.
    pub args: Vec<String>,
    /// Variables, of the options and of the entry's own environment where an option names one.
    pub env: BTreeMap<String, String>,
    /// Variables that an option names and the entry has no value for.
    pub unset: Vec<String>,
    /// Clauses that say the same as an option, `CLAUSE=VALUE`.
    pub clauses: Vec<String>,
    /// No network is asked for (`--network none`).
    pub is_offline: bool,
    /// Folders that are to be seen inside.
    pub folders: Vec<Folder>,
    /// Where its program begins.
    pub workdir: Option<String>,
}

/// A folder that an option wants to be seen inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// On the host; none for a volume, which Docker keeps.
    pub from: Option<String>,
    /// Inside.
    pub to: String,
    /// It is written to.
    pub is_writable: bool,
}

/// The lines of a policy that grant these folders.
#[must_use]
pub fn grants(folders: &[&Folder]) -> Vec<String> {
    let line = |(clause, is_writable): (&str, bool)| {
        let these = folders.iter().filter(|folder| folder.is_writable == is_writable);
        let grants: Vec<String> = these
            .map(|Folder { from, to, .. }| {
                format!("{{ from = {}, to = {} }}", toml_text(from.as_deref().unwrap_or("FOLDER")), toml_text(to))
            })
            .collect();
        (!grants.is_empty()).then(|| format!("{clause} = [{}]", grants.join(", ")))
    };
    [("fs.read", false), ("fs.write", true)].into_iter().filter_map(line).collect()
}

/// Why a server cannot be fetched, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub why: String,
    /// What to do.
    pub fix: String,
}

impl Refused {
    fn new(why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { why: why.into(), fix: fix.into() }
    }
}

/// What is read so far.
struct Reading<'a> {
    /// The environment of the entry: Docker's own, which it hands on where an option says so.
    env: &'a BTreeMap<String, String>,
    container: Container,
    refused: Vec<Refused>,
}

/// The words after `docker`.
///
/// # Errors
/// Every option that is not taken over; what is written otherwise than Docker takes it.
pub(super) fn read(words: &[String], env: &BTreeMap<String, String>) -> Result<Container, Vec<Refused>> {
    let Some(words) = after_run(words) else {
        let why = "only `run IMAGE` is read of it";
        return Err(vec![Refused::new(why, "write it as `docker run -i --rm IMAGE ARGS`")]);
    };
    let mut reading = Reading { env, container: Container::default(), refused: Vec::new() };
    let rest = match reading.options(words) {
        Ok(rest) => rest,
        Err(stop) => {
            // What follows could be its value, or the image.
            reading.refused.push(stop);
            return Err(reading.refused);
        }
    };
    match rest.split_first() {
        Some((image, args)) if image.starts_with(|first: char| first.is_ascii_alphanumeric()) => {
            reading.container.image.clone_from(image);
            reading.container.args = args.to_vec();
        }
        Some((other, _)) => {
            let why = format!("`{}` names no image", shown(other, 80));
            reading.refused.push(Refused::new(why, "write the image as `ghcr.io/owner/name:tag`"));
        }
        None => reading.refused.push(Refused::new("it names no image", "write the image after the options")),
    }
    if reading.refused.is_empty() { Ok(reading.container) } else { Err(reading.refused) }
}

fn after_run(words: &[String]) -> Option<&[String]> {
    let (first, rest) = words.split_first()?;
    let (first, rest) = if first == "container" { rest.split_first()? } else { (first, rest) };
    (first == "run").then_some(rest)
}

impl Reading<'_> {
    /// Reads all options; the words from the image on.
    fn options<'w>(&mut self, mut words: &'w [String]) -> Result<&'w [String], Refused> {
        while let Some((word, after)) = words.split_first() {
            let Some(option) = word.strip_prefix('-').filter(|option| !option.is_empty()) else { break };
            if option == "-" {
                return Ok(after);
            }
            words = match option.strip_prefix('-') {
                Some(long) => self.long(long, after)?,
                None => self.letters(option, after)?,
            };
        }
        Ok(words)
    }

    /// `--name`, `--name value` or `--name=value`, without the dashes.
    fn long<'w>(&mut self, text: &str, after: &'w [String]) -> Result<&'w [String], Refused> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let written = format!("--{}", shown(name, 40));
        let known = options::ALL.iter().find(|known| known.long == name).ok_or_else(|| unknown(&written))?;
        self.take(known, &written, value, after)
    }

    /// `-it`, `-eNAME`, `-e NAME` or `-e=NAME`, without the dash.
    fn letters<'w>(&mut self, text: &str, after: &'w [String]) -> Result<&'w [String], Refused> {
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            let written = format!("-{}", shown(&letter.to_string(), 10));
            let known = options::ALL.iter().find(|known| known.short == Some(letter));
            let known = known.ok_or_else(|| unknown(&written))?;
            let rest = letters.as_str();
            let value = rest.strip_prefix('=').filter(|value| !value.is_empty());
            if value.is_none() && known.means.is_switch() {
                self.take(known, &written, None, after)?;
                continue;
            }
            let value = value.or(Some(rest).filter(|rest| !rest.is_empty()));
            return self.take(known, &written, value, after);
        }
        Ok(after)
    }

    /// Takes one option; the words after it and its value.
    fn take<'w>(
        &mut self,
        known: &Known,
        written: &str,
        value: Option<&str>,
        after: &'w [String],
    ) -> Result<&'w [String], Refused> {
        if known.means.is_switch() {
            let text = value.unwrap_or("true");
            let on = boolean(text).ok_or_else(|| {
                Refused::new(format!("its option `{written}` is neither on nor off"), format!("write `{written}`"))
            })?;
            if let (Means::NoSwitch(fix), true) = (&known.means, on) {
                self.refused.push(not_taken(written, fix));
            }
            return Ok(after);
        }
        let (value, after) = match (value, after.split_first()) {
            (Some(value), _) => (value, after),
            (None, Some((value, after))) => (value.as_str(), after),
            (None, None) => {
                return Err(Refused::new(format!("its option `{written}` has no value"), "write its value after it"));
            }
        };
        match &known.means {
            Means::Switch | Means::NoSwitch(_) | Means::Anything => {}
            Means::Only(values, _) if values.contains(&value) => {}
            Means::Only(_, fix) => self.refused.push(not_taken(&format!("{written} {}", shown(value, 60)), fix)),
            Means::Clause(line) => {
                let fix = format!("take it out, and write `{}` into the server's own policy", line(value));
                self.refused.push(not_taken(&format!("{written} {}", shown(value, 60)), &fix));
            }
            Means::Read(read) => {
                if let Err(refused) = read(self, value) {
                    self.refused.push(Refused { why: format!("its option `{written}`: {}", refused.why), ..refused });
                }
            }
        }
        Ok(after)
    }
}

fn unknown(written: &str) -> Refused {
    let why = format!("its option `{written}` is not known here");
    Refused::new(
        why,
        "take it out; what it asks for is a clause of the server's own policy, or nothing that a sandbox gives",
    )
}

fn not_taken(written: &str, fix: &str) -> Refused {
    Refused::new(format!("its option `{written}` is not taken over"), fix)
}

/// As Go reads it.
fn boolean(text: &str) -> Option<bool> {
    let known = [("1", true), ("t", true), ("true", true), ("0", false), ("f", false), ("false", false)];
    // `tRUE` is none there either, and nobody writes it.
    let lower = text.to_ascii_lowercase();
    known.iter().find(|(word, _)| *word == lower).map(|(_, on)| *on)
}
