//! The audit log as the broker sees it.

use std::borrow::Cow;
use std::fmt;

use gateway::record::{Event, Record};
use policy::value::{Audit, Content};
use serde_json::Value as Json;

use sandbox::audit::{Kind, Log, Options, Redactor};

/// Writes the broker's events into the audit log.
pub(super) struct Recorder {
    log: Log,
    content: Content,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("log", &self.log.path()).finish()
    }
}

impl Recorder {
    /// A recorder of this log, which keeps of arguments what `content` says.
    #[must_use]
    pub(super) fn new(log: Log, content: Content) -> Self {
        Self { log, content }
    }
}

impl Record for Recorder {
    fn append(&self, event: &Event) -> Result<(), String> {
        let kind = Kind::parse(event.kind).ok_or_else(|| format!("`{}` is no kind of event", event.kind))?;
        let body = kept(&event.body, self.content);
        self.log.append("", &kind, &body).map(|_| ()).map_err(|error| error.to_string())
    }
}

/// The body without what the policy does not want kept: `hash` keeps no arguments and nothing that quotes them, `none` not
/// even the hash, by which whoever guesses right would know.
fn kept(body: &Json, content: Content) -> Cow<'_, Json> {
    let hidden: &[&str] = match content {
        Content::Full => return Cow::Borrowed(body),
        Content::Hash => &["args"],
        Content::None => &["args", "hash", "result_hash"],
    };
    let mut body = body.clone();
    if let Json::Object(map) = &mut body {
        map.retain(|key, _| !hidden.contains(&key.as_str()));
        for reason in map.get_mut("reasons").and_then(Json::as_array_mut).into_iter().flatten() {
            if let Json::Object(reason) = reason {
                reason.remove("what");
            }
        }
    }
    Cow::Owned(body)
}

/// The log as a policy wants it.
#[must_use]
pub(super) fn options(audit: &Audit) -> Options {
    Options { sync: audit.sync, redact: Redactor::new(&audit.redact), ..Options::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_policy_does_not_want_kept_is_not_in_the_event() {
        let reasons = json!([{ "id": "tools.guard/email", "what": "`a@evil.example` does not pass" }]);
        let body = json!({ "tool": "t", "args": { "to": "a@evil.example" }, "hash": "h", "reasons": reasons });
        assert_eq!(*kept(&body, Content::Full), body);
        let hashed = kept(&body, Content::Hash).into_owned();
        assert_eq!(hashed, json!({ "tool": "t", "hash": "h", "reasons": [{ "id": "tools.guard/email" }] }));
        let none = kept(&body, Content::None).into_owned();
        assert_eq!(none, json!({ "tool": "t", "reasons": [{ "id": "tools.guard/email" }] }));
    }
}
