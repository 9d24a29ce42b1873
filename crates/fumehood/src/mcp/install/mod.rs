//! The gateway in the configuration of a client: one entry in the client's own file, put in so that the rest stays as it
//! is, kept aside as it was, and taken out again.

mod json;
mod moved;
mod toml;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::environment::Environment;
use crate::replace::replace;
use crate::ui::Failure;
use sandbox::fault::{Fault, show_path};
use sandbox::state::State;

pub use moved::{Into, Moved, give_back, take};

/// A client whose file is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// As `--client` names it.
    pub name: &'static str,
    /// Its file in a project.
    project: &'static str,
    /// Its file in the home.
    home: &'static str,
    /// The table of servers.
    table: &'static str,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    /// The same with the kind of the server in it.
    JsonTyped,
    Toml,
}

/// Every client that is known.
pub const CLIENTS: &[Client] = &[
    Client {
        name: "claude-code",
        project: ".mcp.json",
        home: ".claude.json",
        table: "mcpServers",
        form: Form::JsonTyped,
    },
    Client {
        name: "cursor",
        project: ".cursor/mcp.json",
        home: ".cursor/mcp.json",
        table: "mcpServers",
        form: Form::Json,
    },
    Client {
        name: "codex",
        project: ".codex/config.toml",
        home: ".codex/config.toml",
        table: "mcp_servers",
        form: Form::Toml,
    },
    Client {
        name: "vscode",
        project: ".vscode/mcp.json",
        home: ".config/Code/User/mcp.json",
        table: "servers",
        form: Form::JsonTyped,
    },
];

/// What is to stand in a client's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name there.
    pub name: String,
    /// Our binary.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
}

/// A change of a file, before it is made.
#[derive(Clone, Debug)]
pub struct Change {
    /// The file itself, links followed.
    pub file: PathBuf,
    /// As it is; none if it is not there.
    pub before: Option<String>,
    /// As it will be; none if it goes away.
    pub after: Option<String>,
}

/// What is kept of a change, so that it can be undone.
#[derive(Debug, Serialize, Deserialize)]
struct UndoRecord {
    file: PathBuf,
    before: Option<String>,
    /// Digest of what was written.
    after: String,
}

fn file_failure(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::own(Fault {
        id: "mcp.install/file",
        what: format!("cannot change {}", show_path(path)),
        place: show_path(path),
        why: why.to_string().to_lowercase(),
        fix: "repair the file, or name another with `--file`".to_owned(),
    })
}

impl Client {
    /// The client of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        CLIENTS.iter().find(|client| client.name == name)
    }

    /// Its file: in the project at the current directory, or the user's own.
    ///
    /// # Errors
    /// If there is no current directory or no home.
    pub fn file(&self, environment: &Environment, user: bool) -> Result<PathBuf, Failure> {
        let missing = |what: &str| file_failure(Path::new(if user { self.home } else { self.project }), what);
        if !user && self.form != Form::Toml {
            return environment
                .cwd
                .as_ref()
                .map(|dir| dir.join(self.project))
                .ok_or_else(|| missing("there is no current directory"));
        }
        // Codex trusts a project's file only after its own question: the user's is the one that counts.
        let codex = environment.variable("CODEX_HOME").filter(|_| self.form == Form::Toml).map(PathBuf::from);
        if let Some(folder) = codex.filter(|folder| folder.is_absolute()) {
            return Ok(folder.join("config.toml"));
        }
        environment.home.as_ref().map(|home| home.join(self.home)).ok_or_else(|| missing("`HOME` is not set"))
    }

    /// The change that puts the entry in, or takes it out; none if there is nothing to take out.
    ///
    /// # Errors
    /// If the file cannot be read or followed.
    pub fn change(&self, file: &Path, entry: &Entry, put: bool) -> Result<Option<Change>, Failure> {
        let (file, before) = read(file)?;
        let text = before.clone().unwrap_or_default();
        let made = self.edit(&text, &entry.name, put.then(|| self.json(entry)).as_ref());
        let made = made.map_err(|why| file_failure(&file, why))?;
        Ok(made.map(|after| Change { file, before, after: Some(after) }))
    }

    /// One entry put into the text of the file, or taken out; none if there is nothing to take out.
    fn edit(&self, text: &str, name: &str, entry: Option<&Json>) -> Result<Option<String>, String> {
        match self.form {
            Form::Json | Form::JsonTyped => json::edit(text, self.table, name, entry),
            Form::Toml => {
                let table = entry.map(::toml::Table::try_from).transpose().map_err(|error| error.to_string())?;
                toml::edit(text, name, table.as_ref())
            }
        }
    }

    /// Every server in the text of the file.
    fn entries(&self, text: &str) -> Vec<(String, Json)> {
        let read = match self.form {
            Form::Json | Form::JsonTyped => gateway::mcp::jsonc::read(text).unwrap_or_default(),
            Form::Toml => {
                text.parse().ok().and_then(|read: ::toml::Table| serde_json::to_value(read).ok()).unwrap_or_default()
            }
        };
        let servers = read.get(self.table).and_then(Json::as_object);
        servers.into_iter().flatten().map(|(name, entry)| (name.clone(), entry.clone())).collect()
    }

    /// The names of other servers in the file: the client starts them itself, past the gateway.
    #[must_use]
    pub fn others(&self, text: &str, entry: &Entry) -> Vec<String> {
        let names = self.entries(text).into_iter().map(|(name, _)| name);
        names.filter(|name| *name != entry.name).collect()
    }

    fn json(&self, entry: &Entry) -> Json {
        let mut map = serde_json::Map::new();
        if self.form == Form::JsonTyped {
            map.insert("type".to_owned(), "stdio".into());
        }
        map.insert("command".to_owned(), entry.command.as_str().into());
        map.insert("args".to_owned(), entry.args.iter().map(String::as_str).collect());
        Json::Object(map)
    }
}

/// The file itself and its text. A link (dotfiles are kept so) is followed once, here; what it leads to is what is written.
fn read(path: &Path) -> Result<(PathBuf, Option<String>), Failure> {
    match std::fs::canonicalize(path) {
        Ok(file) => {
            // A pipe in its place would be waited for.
            if !std::fs::metadata(&file).is_ok_and(|found| found.is_file()) {
                return Err(file_failure(&file, "it is no file"));
            }
            let text = std::fs::read_to_string(&file).map_err(|error| file_failure(&file, error))?;
            Ok((file, Some(text)))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if std::fs::symlink_metadata(path).is_ok() {
                return Err(file_failure(path, "it is a link that leads nowhere"));
            }
            Ok((path.to_owned(), None))
        }
        Err(error) => Err(file_failure(path, error)),
    }
}

/// Makes all changes or none; of the last one what was there is kept for an undo, if asked for.
///
/// # Errors
/// As [`Change::make`]; those made before are taken back.
pub fn make_all(changes: &[Change], state: &State, keep: bool) -> Result<(), Failure> {
    for (at, change) in changes.iter().enumerate() {
        let last = at.saturating_add(1) == changes.len();
        if let Err(failure) = change.make(state, keep && last) {
            unmake(changes.get(..at).unwrap_or_default(), state)?;
            return Err(failure);
        }
    }
    Ok(())
}

/// Takes changes back that were made.
///
/// # Errors
/// As [`Change::make`].
pub fn unmake(changes: &[Change], state: &State) -> Result<(), Failure> {
    for Change { file, before, after } in changes.iter().rev() {
        let back = Change { file: file.clone(), before: after.clone(), after: before.clone() };
        back.make(state, false)?;
    }
    Ok(())
}

impl Change {
    /// Makes the change: what was there is kept in the state folder first, and the file is replaced as a whole.
    ///
    /// # Errors
    /// If it cannot be written, or is no longer what was shown.
    pub fn make(&self, state: &State, keep: bool) -> Result<(), Failure> {
        let (_, now) = read(&self.file)?;
        if now != self.before {
            return Err(changed(&self.file));
        }
        if self.after == self.before {
            // What is kept of the change before stays: it is the way back.
            return Ok(());
        }
        if keep {
            let earlier = kept(state, &self.file, self.before.as_deref());
            let kept = UndoRecord {
                file: self.file.clone(),
                // Of two changes of ours the first one's way back counts.
                before: earlier.map_or_else(|| self.before.clone(), |kept| kept.before),
                after: digest(self.after.as_deref().unwrap_or_default()),
            };
            let text = serde_json::to_string(&kept).map_err(|error| file_failure(&self.file, error))?;
            write(&kept_path(state, &self.file), &text, 0o600)?;
        }
        match &self.after {
            None => std::fs::remove_file(&self.file).map_err(|error| file_failure(&self.file, error)),
            Some(text) => {
                let mode = std::fs::metadata(&self.file).map_or(0o600, |meta| meta.mode() & 0o777);
                if let Some(folder) = self.file.parent() {
                    std::fs::create_dir_all(folder).map_err(|error| file_failure(folder, error))?;
                }
                write(&self.file, text, mode)
            }
        }
    }
}

fn changed(file: &Path) -> Failure {
    Failure::own(Fault {
        id: "mcp.install/changed",
        what: format!("{} has changed meanwhile", show_path(file)),
        place: show_path(file),
        why: "somebody else wrote it, and that would be lost".to_owned(),
        fix: "try again".to_owned(),
    })
}

/// The change that undoes the last one: the file as it was to the byte where nobody has touched it since, else without our
/// entry; none if there is nothing to undo.
///
/// # Errors
/// If the file cannot be read or followed.
pub fn undo(client: &Client, file: &Path, entry: &Entry, state: &State) -> Result<Option<Change>, Failure> {
    let (real, now) = read(file)?;
    if let Some(kept) = kept(state, &real, now.as_deref()) {
        return Ok(Some(Change { file: real, before: now, after: kept.before }));
    }
    client.change(&real, entry, false)
}

/// Forgets what was kept for an undo.
pub fn forget(state: &State, file: &Path) {
    if std::fs::remove_file(kept_path(state, file)).is_err() {
        // There was none.
    }
}

/// What was kept of our last change of a file, if nobody has written it since.
fn kept(state: &State, file: &Path, now: Option<&str>) -> Option<UndoRecord> {
    let text = std::fs::read_to_string(kept_path(state, file)).ok()?;
    let kept: UndoRecord = serde_json::from_str(&text).ok()?;
    (kept.after == digest(now?)).then_some(kept)
}

fn kept_path(state: &State, file: &Path) -> PathBuf {
    state.path().join(format!("mcp-install-{}.json", digest(&file.to_string_lossy()).get(..16).unwrap_or_default()))
}

fn digest(text: &str) -> String {
    policy::json::sha256_hex(text.as_bytes())
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    replace(path, text, mode).map_err(|error| file_failure(path, error))
}
