//! What the log says of a program that `exec` started, and of code that a context was given: as much of its words as `audit.content`
//! wants kept.

use agent::words::Failure;
use policy::value::Content;
use sandbox::audit::Kind;
use serde_json::{Map, Value, json};

use super::hub::Hub;
use super::program::Program;
use crate::kernel::words::Execute;

/// What was run: its digest, and the text where all is to be kept.
fn kept(content: Content, digested: &[u8], text: impl FnOnce() -> (&'static str, Value)) -> Map<String, Value> {
    let mut map = Map::new();
    if content != Content::None {
        map.insert("sha256".to_owned(), Value::from(policy::json::sha256_hex(digested)));
    }
    if content == Content::Full {
        let (key, text) = text();
        map.insert(key.to_owned(), text);
    }
    map
}

impl Hub {
    fn content(&self) -> Content {
        self.setup.policy.as_ref().map_or(Content::Hash, |policy| policy.audit.content)
    }

    fn about(&self, what: Map<String, Value>) -> Map<String, Value> {
        let sandbox = ("sandbox".to_owned(), Value::from(self.setup.info.id.as_str()));
        std::iter::once(sandbox).chain(what).collect()
    }

    /// One event for each `exec`: which, how it ended, and what it was. Of its variables no value is ever kept.
    ///
    /// # Errors
    /// As [`Hub::record`].
    pub(super) fn note_exec(&mut self, program: &Program, how: &Value) -> Result<(), Failure> {
        let wanted = &program.asked.program;
        let what = serde_json::to_vec(&(&wanted.argv, &wanted.env)).unwrap_or_default();
        let mut body = self.about(kept(self.content(), &what, || ("words", json!(wanted.argv))));
        body.insert("program".to_owned(), Value::from(program.id()));
        body.insert("ended".to_owned(), how.clone());
        self.record(&Kind::live_exec(), &Value::Object(body))
    }

    /// One event for each piece of code that a context is given, before it is executed.
    ///
    /// # Errors
    /// As [`Hub::record`]; it is not executed then.
    pub(super) fn note_code(&mut self, asked: &Execute) -> Result<(), Failure> {
        let text = || ("text", Value::from(asked.code.as_str()));
        let mut body = self.about(kept(self.content(), asked.code.as_bytes(), text));
        body.insert("context".to_owned(), json!(asked.context));
        body.insert("language".to_owned(), json!(asked.language));
        self.record(&Kind::live_code(), &Value::Object(body))
    }

    /// Its end is moved (`limits.wall` of its plan), before it is: to so many milliseconds from now.
    ///
    /// # Errors
    /// As [`Hub::record`]; the end stays where it was.
    pub(super) fn note_life(&mut self, ms: u64) -> Result<(), Failure> {
        let body = self.about(Map::from_iter([("life_ms".to_owned(), Value::from(ms))]));
        self.record(&Kind::live_timeout(), &Value::Object(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_kept_as_the_policy_wants() {
        let keys = |content| kept(content, b"a", || ("words", json!(["a"]))).keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(Content::None), [""; 0]);
        assert_eq!(keys(Content::Hash), ["sha256"]);
        assert_eq!(keys(Content::Full), ["sha256", "words"]);
    }
}
