//! Remembered approvals: what a person was shown, widened argument by argument where the person said so.
//!
//! A pattern is made from one parked call and from nothing else, so it always covers exactly what was on the screen:
//! each argument either has that very value or may have any. There is no prefix and no glob over text. It holds for the
//! agent (or the one session) of that call, for the policy and workspace that it was made under, and until it expires.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::call::{is_destination, time};

/// What is remembered with an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remember {
    /// Which arguments it covers.
    pub args: Wide,
    /// Whose calls it covers.
    pub holder: Holder,
    /// For how long, in milliseconds. Where nothing is said: an hour, or in one run's network until the run ends.
    pub millis: Option<u64>,
}

/// Which arguments a memory covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wide {
    /// Whatever they are.
    Any,
    /// These very values, but for the named arguments, which may have any.
    But(Vec<String>),
}

/// Whose calls a memory covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The agent, in all its sessions.
    Agent,
    /// The one session.
    Session,
}

/// What is remembered without a time lasts an hour.
pub(super) const MEMORY_MS: u64 = 3600 * 1000;
/// Longest life of a memory: 30 days.
pub const MAX_MEMORY_MS: u64 = 30 * 24 * 3600 * 1000;

/// Which arguments a remembered approval covers.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Whatever they are.
    Any,
    /// Exactly these arguments: a value, or `None` for any value. An argument that is not here is not covered.
    Args(BTreeMap<String, Option<Json>>),
}

impl Pattern {
    /// The pattern that a person makes of a call.
    ///
    /// # Errors
    /// Why not: a wildcard for an argument that the call does not have covers something that nobody saw.
    pub fn of(wide: &Wide, args: &Json) -> Result<Self, String> {
        let Wide::But(any) = wide else { return Ok(Self::Any) };
        let Json::Object(args) = args else { return Err("the arguments are no object".to_owned()) };
        if let Some(odd) = any.iter().find(|name| !args.contains_key(*name)) {
            return Err(format!("the call has no argument {}", policy::diagnostic::quote(odd)));
        }
        let part = |(name, value): (&String, &Json)| (name.clone(), (!any.contains(name)).then(|| value.clone()));
        Ok(Self::Args(args.iter().map(part).collect()))
    }

    /// Whether it covers these arguments.
    #[must_use]
    pub fn covers(&self, args: &Json) -> bool {
        let Self::Args(wanted) = self else { return true };
        let Json::Object(args) = args else { return false };
        args.len() == wanted.len()
            && args.iter().all(|(name, value)| match wanted.get(name) {
                Some(Some(exact)) => gate::json::canonical(exact) == gate::json::canonical(value),
                Some(None) => true,
                None => false,
            })
    }

    /// `"any"`, or `{"to": {"is": "a@b.c"}, "body": "any"}`.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let Self::Args(args) = self else { return json!("any") };
        let part = |(name, value): (&String, &Option<Json>)| {
            (name.clone(), value.as_ref().map_or_else(|| json!("any"), |value| json!({ "is": value })))
        };
        Json::Object(args.iter().map(part).collect::<Map<_, _>>())
    }

    /// What [`Pattern::to_json`] wrote; `None` for anything else, which then covers nothing.
    pub(super) fn from_json(json: &Json) -> Option<Self> {
        let any = |json: &Json| json.as_str() == Some("any");
        if any(json) {
            return Some(Self::Any);
        }
        let part = |(name, value): (&String, &Json)| {
            let value = match value.as_object() {
                Some(table) if table.len() == 1 => Some(table.get("is")?.clone()),
                Some(_) => return None,
                None if any(value) => None,
                None => return None,
            };
            Some((name.clone(), value))
        };
        json.as_object()?.iter().map(part).collect::<Option<_>>().map(Self::Args)
    }
}

/// A remembered approval.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// `m-` and 26 characters.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// Its server.
    pub server: Option<String>,
    /// Whose calls it covers.
    pub agent: String,
    /// The session, where it covers one only.
    pub session: Option<String>,
    /// Which arguments it covers.
    pub pattern: Pattern,
    /// Digest of the policy, and the workspace.
    pub bound_to: String,
    /// When it was made.
    pub created: u64,
    /// When it ends.
    pub expires: u64,
    /// Who agreed.
    pub by: String,
    /// The parked call that it was made from.
    pub call: String,
    /// When it was revoked, and by whom.
    pub revoked: Option<(u64, String)>,
    /// How many calls it has let through.
    pub uses: u64,
}

impl Memory {
    /// Whether it lasts until the one run ends whose network it is about: no time was said.
    #[must_use]
    pub fn lasts_with_its_run(&self) -> bool {
        let is_longest = self.expires == self.created.saturating_add(MAX_MEMORY_MS);
        is_longest && self.session.is_some() && is_destination(&self.tool, self.server.as_deref())
    }

    /// The form of `approvals remembered --json` and HTTP.
    #[must_use]
    pub fn to_json(&self) -> Json {
        json!({
            "id": self.id, "tool": self.tool, "server": self.server, "agent": self.agent, "session": self.session,
            "args": self.pattern.to_json(), "bound_to": self.bound_to, "created": time(self.created),
            "expires": time(self.expires), "by": self.by, "call": self.call, "uses": self.uses,
            "revoked": self.revoked.as_ref().map(|(at, by)| json!({ "at": time(*at), "by": by })),
        })
    }
}
