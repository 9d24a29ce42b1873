//! Which tools there are: what each server lists, made safe to show, pinned, and put under public names.
//!
//! Each server's part is taken once and again after it says that it changed. A server that is not there leaves a note and
//! hides its own tools only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gate::call::ToolFacts;
use policy::tools::Effect;
use serde_json::{Map, Value as Json, json};

use super::lock;
use super::names::{self, Table};
use super::pins::{self, PinState, Pinning, Version};
use super::text::{self, Cleaned};
use super::upstream::Link;

/// One tool of a server.
pub(super) struct Tool {
    /// Its server.
    pub(super) server: String,
    /// Its own name.
    pub(super) own: String,
    /// `server.tool`, as policies name it.
    pub(super) named: String,
    /// What a client sees of it, but for its name.
    pub(super) definition: Json,
    /// What it says of itself.
    pub(super) facts: ToolFacts,
    /// Its digest, as it is pinned.
    pub(super) hash: String,
    /// Whether it may be shown.
    pub(super) standing: PinState,
    /// It had hidden characters, which are written out now.
    pub(super) flagged: bool,
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tool").field("named", &self.named).field("standing", &self.standing).finish_non_exhaustive()
    }
}

/// What one server has.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// Its tools.
    pub(super) tools: Vec<Arc<Tool>>,
    /// What people should know: tools left out, a server that is not there.
    pub(super) notes: Vec<String>,
    /// By tool: with which version of the pins it was compared last, and found trusted.
    pins: Mutex<BTreeMap<String, Version>>,
}

impl Part {
    /// What there is to say of a server that has no tools now.
    #[must_use]
    pub(super) fn of_notes(notes: Vec<String>) -> Self {
        Self { notes, ..Self::default() }
    }

    /// Whether the pins still trust a tool of it. They are read only if somebody wrote them since.
    pub(super) fn is_trusted(&self, pinning: &Pinning, server: &str, reach: &Json, tool: &Tool) -> bool {
        // Looked at before they are read: what is written meanwhile is read the next time.
        let version = pinning.pins.changed();
        if version.is_some() && lock(&self.pins).get(&tool.own) == version.as_ref() {
            return true;
        }
        let trusted = pinning.pins.trusts((&pinning.scope, server), reach, &tool.own, &tool.hash).unwrap_or(false);
        if let (true, Some(version)) = (trusted, version) {
            lock(&self.pins).insert(tool.own.clone(), version);
        }
        trusted
    }
}

/// All tools, by their public names.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    /// By public name.
    pub(super) tools: Table<Arc<Tool>>,
    /// Notes of all servers.
    pub(super) notes: Vec<String>,
}

impl Catalog {
    /// Puts the parts together.
    #[must_use]
    pub(super) fn of(parts: &BTreeMap<String, Arc<Part>>) -> Self {
        let mut catalog = Self::default();
        for part in parts.values() {
            catalog.notes.extend(part.notes.iter().cloned());
            for tool in &part.tools {
                if let Some(public) = names::public(&tool.server, &tool.own) {
                    catalog.tools.add(public, |tool| tool.named.clone(), tool.clone());
                }
            }
        }
        for (public, owners) in catalog.tools.refused() {
            let owners = owners.join(", ");
            catalog
                .notes
                .push(format!("`{public}` would stand for more than one tool ({owners}): none of them is shown"));
        }
        catalog
    }
}

/// What a server offers now, for people who write a policy for it: judged by nothing, and no trust comes of looking.
pub(super) async fn offered(link: &Link, server: &str) -> Part {
    let (drafts, notes) = drafts(link, server).await;
    let mut part = Part::of_notes(notes);
    part.tools = drafts.into_iter().map(|draft| Arc::new(finish(draft, server, PinState::New))).collect();
    part
}

/// Takes the tools of a server.
pub(super) async fn take(link: &Link, server: &str, reach: &Json, pinning: &Pinning) -> Part {
    let (drafts, notes) = drafts(link, server).await;
    let mut part = Part::of_notes(notes);
    if link.has("tools") {
        pin(&mut part, server, reach, drafts, pinning);
    }
    part
}

/// The tools of a server that can be shown, and why others cannot.
async fn drafts(link: &Link, server: &str) -> (Vec<Draft>, Vec<String>) {
    let mut notes = Vec::new();
    if !link.has("tools") {
        return (Vec::new(), notes);
    }
    let listed = match link.list("tools/list", "tools").await {
        Ok((listed, note)) => {
            notes.extend(note.map(|note| format!("{server}: {note}")));
            listed
        }
        Err(failure) => {
            notes.push(format!(
                "{server}: its tools cannot be listed: {}",
                text::shown(&failure.into_rpc().message, 300)
            ));
            return (Vec::new(), notes);
        }
    };
    let mut seen: BTreeMap<String, Option<Draft>> = BTreeMap::new();
    for tool in &listed {
        match draft(tool) {
            Ok(draft) => {
                // A server that lists a name twice means one of them: nobody knows which.
                let name = draft.own.clone();
                let twice = seen.contains_key(&name);
                seen.insert(name, if twice { None } else { Some(draft) });
            }
            Err(why) => {
                let name = text::shown(tool.get("name").and_then(Json::as_str).unwrap_or("?"), 80);
                notes.push(format!("{server}: the tool `{name}` is not shown: {why}"));
            }
        }
    }
    for (name, draft) in &seen {
        if draft.is_none() {
            notes.push(format!("{server}: the tool `{name}` is not shown: it is listed twice"));
        }
    }
    (seen.into_values().flatten().collect(), notes)
}

fn pin(part: &mut Part, server: &str, reach: &Json, drafts: Vec<Draft>, pinning: &Pinning) {
    let named: Vec<(&str, &Json)> = drafts.iter().map(|draft| (draft.own.as_str(), &draft.raw)).collect();
    let now = crate::clock::now_ms() / 1000;
    let judged = pinning.pins.judge((&pinning.scope, server), reach, &named, pinning.first, now);
    let (whole, each) = match judged {
        Ok(judged) => judged,
        Err(error) => {
            part.notes.push(format!("{server}: its tools are held back, because the pins cannot be kept: {error}"));
            return;
        }
    };
    if whole == PinState::Held {
        part.notes.push(format!(
            "{server}: all its tools are held back: it is reached in another way than when it was trusted; look at \
             `fumehood mcp pins ls`, then `fumehood mcp pins accept {server}`"
        ));
    }
    for (draft, standing) in drafts.into_iter().zip(each) {
        let standing = if whole == PinState::Held { PinState::Held } else { standing };
        if standing == PinState::Held && whole != PinState::Held {
            part.notes.push(format!(
                "{server}: the tool `{}` is held back: it is not what was trusted; look at `fumehood mcp pins ls`, then \
                 `fumehood mcp pins accept {server}.{}`",
                draft.own, draft.own
            ));
        }
        part.tools.push(Arc::new(finish(draft, server, standing)));
    }
}

/// A tool that can be shown, before it is pinned.
struct Draft {
    own: String,
    raw: Json,
    shown: Json,
    flagged: bool,
}

fn draft(tool: &Json) -> Result<Draft, &'static str> {
    let own = tool.get("name").and_then(Json::as_str).ok_or("it has no name")?;
    if names::public("x", own).is_none() {
        return Err("its name is not 1 to 200 of A-Z a-z 0-9 _ - . /");
    }
    if !tool.get("inputSchema").is_some_and(Json::is_object) {
        return Err("it has no schema of its arguments");
    }
    let raw = pins::definition(tool);
    if serde_json::to_vec(&raw).map_or(usize::MAX, |bytes| bytes.len()) > pins::MAX_DEFINITION {
        return Err("its definition is larger than 128 KiB");
    }
    let mut shown = raw.clone();
    let mut flagged = false;
    if let Some(map) = shown.as_object_mut() {
        for key in ["title", "description"] {
            match map.get_mut(key) {
                Some(Json::String(words)) => {
                    let (clean, changed) = text::escaped(words);
                    *words = clean;
                    flagged |= changed;
                }
                Some(_) => return Err("its title or description is no text"),
                None => {}
            }
        }
        for key in ["inputSchema", "outputSchema", "annotations"] {
            match map.get_mut(key).map(text::clean_schema) {
                Some(Cleaned::Unsafe) => return Err("hidden characters stand in a name or value of its schema"),
                Some(Cleaned::Escaped) => flagged = true,
                Some(Cleaned::Clean) | None => {}
            }
        }
    }
    Ok(Draft { own: own.to_owned(), raw, shown, flagged })
}

fn finish(draft: Draft, server: &str, standing: PinState) -> Tool {
    let Draft { own, raw, shown, flagged } = draft;
    Tool {
        hash: pins::digest(&raw),
        named: format!("{server}.{own}"),
        facts: ToolFacts {
            effect: effect(shown.get("annotations")),
            input_schema: shown.get("inputSchema").cloned(),
            output_schema: shown.get("outputSchema").cloned(),
            ..ToolFacts::default()
        },
        server: server.to_owned(),
        own,
        definition: shown,
        standing,
        flagged,
    }
}

/// Hints may raise what the policy says, never lower it: the gate sees to that.
fn effect(annotations: Option<&Json>) -> Option<Effect> {
    let hint = |key: &str| annotations.and_then(|hints| hints.get(key)).and_then(Json::as_bool);
    match (hint("readOnlyHint"), hint("destructiveHint")) {
        (_, Some(true)) | (Some(false), _) => Some(Effect::Write),
        (Some(true), _) => Some(Effect::Read),
        (None, Some(false) | None) => None,
    }
}

impl Tool {
    /// As a client sees it.
    #[must_use]
    pub(super) fn shown(&self, public: &str, schema: Json) -> Json {
        let mut map = Map::new();
        map.insert("name".to_owned(), public.into());
        for (key, value) in self.definition.as_object().into_iter().flatten() {
            if key != "name" && key != "inputSchema" {
                map.insert(key.clone(), value.clone());
            }
        }
        map.insert("inputSchema".to_owned(), schema);
        if self.flagged {
            map.insert("_meta".to_owned(), json!({ "fumehood/flags": ["hidden-characters-escaped"] }));
        }
        Json::Object(map)
    }
}
