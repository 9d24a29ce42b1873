//! Whom a text is about that cannot be read as a message: answers with `NaN` in them, cut off, too deep, or in a batch. Whoever
//! waits for such an answer is told at once; nothing else of the text is used.

use serde_json::Value as Json;

use super::wire::Id;

/// Most ids that are taken from one text.
const MAX: usize = 256;

/// The ids of the answers in a text: of its object, or of the objects of its list. One that has two ids, or a method, is none.
#[must_use]
pub(super) fn answers(text: &[u8]) -> Vec<Id> {
    let mut scan = Scan { text, at: 0, depth: 0, base: 1, open: Open::default(), found: Vec::new() };
    if text.trim_ascii_start().starts_with(b"[") {
        scan.base = 2;
    }
    scan.run();
    scan.found
}

/// What is known of the object that is open.
#[derive(Default)]
struct Open {
    ids: usize,
    id: Option<Id>,
    is_request: bool,
}

struct Scan<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
    /// How deep the members of a message lie.
    base: usize,
    open: Open,
    found: Vec<Id>,
}

impl Scan<'_> {
    fn run(&mut self) {
        while let Some(byte) = self.text.get(self.at) {
            match byte {
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => {
                    if self.depth == self.base && *byte == b'}' {
                        self.close();
                    }
                    self.depth = self.depth.saturating_sub(1);
                }
                b'"' => {
                    let text = self.string();
                    if self.depth == self.base && self.next_is_colon() {
                        self.member(text);
                    }
                    continue;
                }
                _ => {}
            }
            self.at = self.at.saturating_add(1);
        }
        // Cut off: what it began to answer is known all the same.
        if self.depth >= self.base {
            self.close();
        }
    }

    fn close(&mut self) {
        let Open { ids, id, is_request } = std::mem::take(&mut self.open);
        if let (1, Some(id), false) = (ids, id, is_request)
            && self.found.len() < MAX
        {
            self.found.push(id);
        }
    }

    /// A string with its quotes, from where we are; we stand behind it then.
    fn string(&mut self) -> std::ops::Range<usize> {
        let begin = self.at;
        let mut at = begin.saturating_add(1);
        while let Some(byte) = self.text.get(at) {
            at = at.saturating_add(1);
            if *byte == b'"' {
                break;
            }
            if *byte == b'\\' {
                at = at.saturating_add(1);
            }
        }
        self.at = at.min(self.text.len());
        begin..self.at
    }

    fn next_is_colon(&self) -> bool {
        self.text.get(self.at..).unwrap_or_default().trim_ascii_start().starts_with(b":")
    }

    fn member(&mut self, name: std::ops::Range<usize>) {
        // Names are read as JSON: `"i\u0064"` is one of an id too.
        let name = self.text.get(name).and_then(|name| serde_json::from_slice::<String>(name).ok());
        if name.as_deref() == Some("method") {
            self.open.is_request = true;
        } else if name.as_deref() == Some("id") {
            self.open.ids = self.open.ids.saturating_add(1);
            self.open.id = self.value();
        }
    }

    /// The id behind a colon. It is only looked at: the scan goes over it again.
    fn value(&self) -> Option<Id> {
        let rest = self.text.get(self.at..)?.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        let mut value = serde_json::Deserializer::from_slice(rest.get(..rest.len().min(1024))?).into_iter::<Json>();
        Id::of(&value.next()?.ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<Id> {
        answers(text.as_bytes())
    }

    #[test]
    fn the_answers_of_an_unreadable_text_are_known_by_their_ids() {
        let one = vec![Id::Number(7)];
        for text in [
            r#"{"jsonrpc":"2.0","id":7,"result":{"a":NaN,"b":-Infinity}}"#,
            r#"{"result":{"id":9,"a":[{"id":8}],"b":NaN},"id": 7}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"a":"cut o"#,
            r#"{"i\u0064":7,"result":NaN,}"#,
            r#"{"id":7,"result":{"text":"\"id\":8}"}} and more"#,
            r#"[{"id":7,"result":{}},{"id":8,"method":"x"},{"id":1,"id":2,"result":{}}]"#,
        ] {
            assert_eq!(of(text), one, "{text}");
        }
        assert_eq!(of(r#"[{"id":7,"result":NaN},{"id":"x","error":{}}]"#), [Id::Number(7), Id::Text("x".into())]);
        let deep = format!(r#"{{"id":7,"result":{}1{}}}"#, "[".repeat(5000), "]".repeat(5000));
        assert_eq!(of(&deep), one);
    }

    #[test]
    fn requests_noise_and_what_has_two_ids_answer_nobody() {
        for text in [
            "",
            "{",
            "[",
            "noise \"id\":7",
            "7",
            r#"{"id":7,"method":"x","params":NaN}"#,
            r#"{"id":7,"id":7,"result":NaN}"#,
            r#"{"id":7.5,"result":NaN}"#,
            r#"{"id":null,"result":NaN}"#,
            r#"{"result":{"id":7,"x":NaN}}"#,
            r#""{"id":7}""#,
            "{\"id\\",
            "{\"id\":",
        ] {
            assert_eq!(of(text), [], "{text}");
        }
    }
}
