//! The catalogue: one row is one way out that somebody may try.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the rows are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Group {
    /// Exhausting the machine.
    Res,
    /// Files.
    Fs,
    /// Network.
    Net,
    /// Privilege.
    Priv,
    /// Information.
    Info,
    /// Persistence.
    Pers,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Res, Self::Fs, Self::Net, Self::Priv, Self::Info, Self::Pers];

    /// What the ids of its rows begin with.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Res => "RES",
            Self::Fs => "FS",
            Self::Net => "NET",
            Self::Priv => "PRIV",
            Self::Info => "INFO",
            Self::Pers => "PERS",
        }
    }

    /// What it is called for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Res => "exhausting the machine",
            Self::Fs => "files",
            Self::Net => "network",
            Self::Priv => "privilege",
            Self::Info => "information",
            Self::Pers => "persistence",
        }
    }
}

/// Who judges, always from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Oracle {
    /// A random secret must not appear in what came out.
    Canary,
    /// A listener on the host must hear nothing.
    Listener,
    /// Files of the host must stay as they are: content, mode, owner, inode, links.
    File,
    /// A survey of the host's processes.
    Processes,
    /// Usage measured from outside.
    Measured,
    /// State of the kernel read from outside.
    Kernel,
    /// The errno inside, where the unconfined probe got none.
    Errno,
}

/// How the unconfined control runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Control {
    /// As an ordinary user, beside the host's processes.
    #[default]
    User,
    /// As the caller in new mount, pid, ipc, uts and network namespaces: for what only root may, without reaching the host.
    Private,
    /// As the caller, unchanged.
    Caller,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Stable id, e.g. `FS-01`; a letter tells variants apart.
    pub id: String,
    /// What somebody tries.
    pub title: String,
    /// What a success would show.
    pub shows: String,
    /// Clauses that promise that it fails; all must be demanded. Empty: the tier itself promises it.
    #[serde(default)]
    pub clauses: Vec<String>,
    /// Values of clauses with which the promise is made, by path.
    #[serde(default)]
    pub when: BTreeMap<String, Vec<serde_json::Value>>,
    /// The mechanism with which the promise is made, where a plan may do without it and says so.
    #[serde(default)]
    pub enforcer: Option<String>,
    /// Tiers that promise it.
    #[serde(default = "native")]
    pub tiers: Vec<String>,
    /// Why the other tiers do not.
    #[serde(default)]
    pub not_promised: String,
    /// Who judges.
    pub oracle: Oracle,
    /// What is laid out and how it is judged.
    pub scene: String,
    /// What is tried.
    pub probe: String,
    /// Its arguments; `{name}` stands for what the scene lays out.
    #[serde(default)]
    pub args: Vec<String>,
    /// How the control runs.
    #[serde(default)]
    pub control: Control,
    /// Clauses set for this row, so that it stays small: only those that the policy demands. `{name}` stands for what the scene lays
    /// out.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// What holds it, for the reference.
    pub held_by: String,
}

fn native() -> Vec<String> {
    vec!["process".to_owned(), "container".to_owned(), "gvisor".to_owned(), "vm".to_owned()]
}

impl Row {
    /// The group, from the id.
    #[must_use]
    pub fn group(&self) -> Group {
        let named = |group: &&Group| self.id.split('-').next() == Some(group.prefix());
        Group::ALL.iter().find(named).copied().unwrap_or(Group::Pers)
    }
}

#[derive(Deserialize)]
struct File {
    row: Vec<Row>,
}

macro_rules! resource {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../resources/attacks/", $name))
    };
}

/// The files of the catalogue, in its order.
const CATALOGUE: [&str; 7] = [
    resource!("res.toml"),
    resource!("fs.toml"),
    resource!("net.toml"),
    resource!("names.toml"),
    resource!("priv.toml"),
    resource!("info.toml"),
    resource!("pers.toml"),
];

/// The rows against the language tier.
///
/// # Errors
/// As [`catalogue`].
pub fn language() -> Result<Vec<Row>, toml::de::Error> {
    toml::from_str::<File>(resource!("language.toml")).map(|file| file.row)
}

/// Every row against tiers that run programs, in the order of the catalogue.
///
/// # Errors
/// The built-in text is broken: a fault of ours.
pub fn catalogue() -> Result<Vec<Row>, toml::de::Error> {
    let mut rows = Vec::new();
    for text in CATALOGUE {
        rows.extend(toml::from_str::<File>(text)?.row);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::{probe, scene};

    #[test]
    fn every_group_has_its_rows() {
        let rows = catalogue().unwrap();
        let count = |group| rows.iter().filter(|row| row.group() == group).count();
        for (group, least) in [
            (Group::Res, 20),
            (Group::Fs, 25),
            (Group::Net, 80),
            (Group::Priv, 25),
            (Group::Info, 18),
            (Group::Pers, 18),
        ] {
            assert!(count(group) >= least, "{group:?}: {}", count(group));
        }
    }

    #[test]
    fn rows_against_the_language_tier_are_programs_and_what_is_looked_at() {
        let rows = language().unwrap();
        assert!(rows.len() >= 15);
        for row in rows {
            assert_eq!(row.tiers, ["language"], "{}", row.id);
            assert!(["python", "javascript"].contains(&row.probe.as_str()), "{}", row.id);
            assert!(["told", "made", "heard", "endless"].contains(&row.scene.as_str()), "{}", row.id);
            assert!(!row.args.is_empty() && !row.not_promised.is_empty(), "{}", row.id);
        }
    }

    #[test]
    fn an_id_stands_once_and_names_its_group() {
        let rows = [catalogue().unwrap(), language().unwrap()].concat();
        let ids: BTreeSet<_> = rows.iter().map(|row| &row.id).collect();
        assert_eq!(ids.len(), rows.len());
        for row in &rows {
            let (group, number) = row.id.split_once('-').unwrap();
            assert!(["RES", "FS", "NET", "PRIV", "INFO", "PERS"].contains(&group), "{}", row.id);
            assert!(
                number.len() <= 3 && number.trim_start_matches('L').starts_with(|c: char| c.is_ascii_digit()),
                "{}",
                row.id
            );
        }
    }

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    fn ids() -> BTreeSet<String> {
        [catalogue().unwrap(), language().unwrap()].concat().into_iter().map(|row| row.id).collect()
    }

    /// The files in a folder and below it whose names end so.
    fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(files(&path, ending));
            } else if path.extension().is_some_and(|it| it == ending) {
                found.push(path);
            }
        }
        found
    }

    #[test]
    fn no_file_of_the_folder_is_left_out_and_no_id_stands_in_two() {
        let mut seen = BTreeSet::new();
        let all = files(&Path::new(ROOT).join("resources/attacks"), "toml");
        for path in &all {
            for row in toml::from_str::<File>(&fs::read_to_string(path).unwrap()).unwrap().row {
                assert!(seen.insert(row.id.clone()), "{}: {} is the id of another row too", path.display(), row.id);
            }
        }
        let unread: Vec<String> = seen.difference(&ids()).cloned().collect();
        assert!(unread.is_empty(), "a file in resources/attacks is not read, name it in `CATALOGUE`: {unread:?}");
    }

    /// Words that have the shape of an id.
    fn named(text: &str) -> impl Iterator<Item = &str> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        words.filter(|word| {
            word.split_once('-').is_some_and(|(group, number)| {
                ["RES", "FS", "NET", "PRIV", "INFO", "PERS"].contains(&group)
                    && number.trim_start_matches('L').starts_with(|c: char| c.is_ascii_digit())
            })
        })
    }

    #[test]
    fn documents_name_rows_that_there_are() {
        let all = ids();
        let said = "rows FS-01, NET-999 (and `RES-L01`), not CVE-2024-3446, FS-ONLY or PRIV";
        assert_eq!(named(said).collect::<Vec<_>>(), ["FS-01", "NET-999", "RES-L01"]);
        let root = Path::new(ROOT);
        let top = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
        let mut pages: Vec<PathBuf> = top.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
        pages.extend(files(&root.join("docs"), "md"));
        let mut count = 0;
        for page in pages {
            for id in named(&fs::read_to_string(&page).unwrap()) {
                assert!(all.contains(id), "{}: there is no row `{id}`", page.display());
                count += 1;
            }
        }
        assert!(count >= all.len(), "only {count} ids are named, and the page of attacks has {}", all.len());
    }

    #[test]
    fn every_row_names_a_probe_a_scene_and_clauses_that_exist() {
        let clauses: BTreeSet<_> = policy::clause::ClauseId::ALL.iter().map(|clause| clause.path()).collect();
        for row in catalogue().unwrap() {
            assert!(probe::find(&row.probe).is_some(), "{}: probe `{}`", row.id, row.probe);
            assert!(scene::known(&row.scene), "{}: scene `{}`", row.id, row.scene);
            for clause in row.clauses.iter().chain(row.when.keys()).chain(row.set.keys()) {
                let clause = clause.strip_prefix("workspace.").map_or(clause.as_str(), |_| "workspace");
                assert!(clauses.contains(clause), "{}: clause `{clause}`", row.id);
            }
            assert_eq!(row.not_promised.is_empty(), row.tiers.len() == 4, "{}: why not in each tier", row.id);
        }
    }
}
