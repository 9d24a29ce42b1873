//! Other servers of a client's file, taken over into the policy: their entries move to a file beside the client's, which the
//! policy imports, and come back with `--undo`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gateway::mcp::servers::{Server, Surroundings, import};
use serde_json::{Map, Value as Json, json};

use super::{Change, Client, Entry, digest, file_failure, read};
use crate::environment::Environment;
use crate::ui::Failure;

/// The key of our own words in the file of moved servers.
const OURS: &str = "fumehood";

/// What is changed, and for whom.
#[derive(Debug)]
pub struct Moved {
    /// Every file that changes, in the order in which they are written; the client's own is the last.
    pub changes: Vec<Change>,
    /// The servers that move, as the policy will know them.
    pub moved: Vec<Server>,
    /// Those that stay with the client, each with the reason.
    pub stay: Vec<(String, String)>,
}

/// The policy that takes servers over.
#[derive(Debug)]
pub struct Into<'a> {
    /// Its file, by its full path.
    pub file: &'a Path,
    /// The servers that it has already.
    pub names: BTreeSet<String>,
}

/// The file of moved servers, beside the client's: `${workspaceFolder}` in an entry means the same there.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.file_stem().unwrap_or_default().to_os_string();
    name.push(".gated.json");
    file.with_file_name(name)
}

/// What is written at the end of the policy.
fn block(client: &Client, file: &Path, gated: &Path) -> String {
    let key = digest(&file.to_string_lossy());
    format!(
        "\n# Servers of {}, moved by `fumehood mcp install --move`; `--undo` gives them back.\n\
         [mcp.servers.moved-{}-{}]\nimport = {}\n",
        Json::from(file.to_string_lossy()),
        client.name,
        key.get(..8).unwrap_or_default(),
        // JSON's way to quote is TOML's as well.
        Json::from(gated.to_string_lossy())
    )
}

/// One entry, as if it stood in the file already.
struct One<'a> {
    text: String,
    environment: &'a Environment,
}

impl Surroundings for One<'_> {
    fn read(&self, _: &Path) -> Result<String, String> {
        Ok(self.text.clone())
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.environment.variable(name).and_then(|value| value.to_str()).map(str::to_owned)
    }
}

/// The server that an entry would be; an error says why it cannot be taken over.
fn as_server(name: &str, entry: &Json, gated: &Path, environment: &Environment) -> Result<Server, String> {
    let text = json!({ "mcpServers": { name: entry } }).to_string();
    let found = import(gated, "strict", &std::collections::BTreeMap::new(), &One { text, environment });
    let found = found.map_err(|wrong| wrong.into_iter().map(|one| one.why).collect::<Vec<_>>().join("; "))?;
    found.into_iter().next().ok_or_else(|| "it is switched off there".to_owned())
}

/// The changes that put our entry in and take the others over.
///
/// # Errors
/// If a file cannot be read or followed, or the file of moved servers is somebody else's.
pub fn take(
    client: &Client,
    change: Change,
    entry: &Entry,
    into: Into<'_>,
    environment: &Environment,
) -> Result<Moved, Failure> {
    let (gated, gated_before) = read(&beside(&change.file))?;
    let mut kept = match &gated_before {
        None => Map::new(),
        Some(text) => of_ours(&gated, text)?,
    };
    let mut text = change.after.clone().unwrap_or_default();
    let (mut moved, mut stay, mut names) = (Vec::new(), Vec::new(), into.names);
    for (name, written) in client.entries(&text) {
        if name == entry.name {
            continue;
        }
        let server = as_server(&name, &written, &gated, environment).and_then(|server| {
            let new = names.insert(server.name.clone());
            if new { Ok(server) } else { Err(format!("the policy has a server `{}` already", server.name)) }
        });
        match server {
            Err(why) => stay.push((name, why)),
            Ok(server) => {
                let without = client.edit(&text, &name, None).map_err(|why| file_failure(&change.file, why))?;
                text = without.unwrap_or(text);
                kept.insert(name, written);
                moved.push(server);
            }
        }
    }
    if moved.is_empty() {
        return Ok(Moved { changes: vec![change], moved, stay });
    }
    let (policy, policy_before) = read(into.file)?;
    let written = policy_before.clone().unwrap_or_default();
    let more = block(client, &change.file, &gated);
    let after = if written.contains(&more) { written } else { format!("{}{more}", ended(written)) };
    let gated_after = json!({ OURS: { "policy": policy }, "mcpServers": kept });
    Ok(Moved {
        changes: vec![
            Change { file: gated, before: gated_before, after: Some(format!("{gated_after:#}\n")) },
            Change { file: policy, before: policy_before, after: Some(after) },
            Change { after: Some(text), ..change },
        ],
        moved,
        stay,
    })
}

fn ended(text: String) -> String {
    if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
}

/// The entries in a file of moved servers.
fn of_ours(gated: &Path, text: &str) -> Result<Map<String, Json>, Failure> {
    let read: Json = serde_json::from_str(text).unwrap_or_default();
    if let (Some(_), Some(Json::Object(servers))) = (read.get(OURS), read.get("mcpServers")) {
        Ok(servers.clone())
    } else {
        Err(file_failure(gated, "it is not the file of servers that `mcp install --move` writes"))
    }
}

/// The changes that give moved servers back, with the change of the client's own file.
///
/// # Errors
/// If a file cannot be read or followed, or the policy was changed so that our lines are not found in it.
pub fn give_back(client: &Client, mut change: Change) -> Result<Vec<Change>, Failure> {
    let (gated, before) = read(&beside(&change.file))?;
    let Some(text) = before else { return Ok(vec![change]) };
    let mut after = change.after.unwrap_or_default();
    for (name, entry) in of_ours(&gated, &text)? {
        if client.entries(&after).iter().all(|(there, _)| *there != name) {
            let with = client.edit(&after, &name, Some(&entry)).map_err(|why| file_failure(&change.file, why))?;
            after = with.unwrap_or(after);
        }
    }
    change.after = Some(after);
    let read_again: Json = serde_json::from_str(&text).unwrap_or_default();
    let named = read_again.pointer("/fumehood/policy").and_then(Json::as_str).unwrap_or_default();
    let (policy, policy_before) = read(Path::new(named))?;
    let more = block(client, &change.file, &gated);
    let mut changes = Vec::new();
    if let Some(written) = policy_before {
        let without = written.replacen(&more, "", 1);
        if without == written && written.contains(&*gated.to_string_lossy()) {
            let why = "its lines on the moved servers are not as they were written: take them out, then again";
            return Err(file_failure(&policy, why));
        }
        changes.push(Change { file: policy, before: Some(written), after: Some(without) });
    }
    changes.extend([change, Change { file: gated, before: Some(text), after: None }]);
    Ok(changes)
}
