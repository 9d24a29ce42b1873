//! What a server may not tell its clients: the values of our own headers, which it was sent and they were not.

use std::collections::BTreeMap;

use egress::secret::LEAST;
use egress::secret::scrub::Forms;
use policy::value::NO_CREDENTIALS;
use serde_json::{Map, Value as Json};

/// Headers by which clients choose among a server's tools, or the revision: their words stand in what it answers, names of tools
/// among them, and without these nothing could be called.
const CHOICES: [&str; 4] = ["mcp-protocol-version", "x-mcp-exclude-tools", "x-mcp-tools", "x-mcp-toolsets"];

/// Parts of names of headers whose values are credentials, whatever these look like.
const CREDENTIALS: [&str; 11] =
    ["auth", "cookie", "credential", "key", "pass", "pat", "pwd", "secret", "session", "signature", "token"];
/// Most bytes of an ordinary word: what is longer may be a credential of words.
const MAX_WORD: usize = 24;

/// The values of headers, in the forms in which a server may say them back, as the broker of a sandbox searches for its secrets.
#[derive(Debug)]
pub(super) struct HeaderMask(Forms);

impl HeaderMask {
    /// Those of these headers; but for headers in which nobody is asked for a credential, and for ordinary words in headers whose
    /// names say nothing of one: they stand in names of tools and in texts of their own accord.
    ///
    /// # Errors
    /// A value has more parts than are searched for; without a word of it.
    pub(super) fn of(headers: &BTreeMap<String, String>) -> Result<Self, String> {
        let is_plain = |name: &str| NO_CREDENTIALS.iter().chain(&CHOICES).any(|plain| name.eq_ignore_ascii_case(plain));
        let hidden =
            headers.iter().filter(|(name, value)| !is_plain(name) && (is_of_credentials(name) || !is_word(value)));
        let names: Vec<&String> = hidden.map(|(name, _)| name).collect();
        let forms = |names: &[&String]| {
            Forms::of_headers(names.iter().filter_map(|name| headers.get(*name)).map(String::as_str))
        };
        for name in &names {
            forms(&[name]).map_err(|why| format!("its header `{name}` {why}"))?;
        }
        forms(&names).map(Self).map_err(str::to_owned)
    }

    /// A frame without them. Its id stays: by it an answer finds its request, and no client sees it.
    pub(super) fn frame(&self, frame: Json) -> Json {
        let Json::Object(parts) = frame else { return self.value(frame) };
        let without = |(key, part)| if key == "id" { (key, part) } else { (key, self.value(part)) };
        Json::Object(parts.into_iter().map(without).collect())
    }

    /// A text without them.
    pub(super) fn text(&self, text: String) -> String {
        if text.len() < LEAST {
            return text;
        }
        let mut bytes = text.into_bytes();
        self.0.mask(&mut bytes);
        // Of a character that is of a value in another charset a part may be left.
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn value(&self, value: Json) -> Json {
        match value {
            Json::String(text) => Json::String(self.text(text)),
            Json::Number(number) => {
                let (digits, written) = (self.text(number.to_string()), number.to_string());
                if digits == written { Json::Number(number) } else { Json::String(digits) }
            }
            Json::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Json::Object(map) => {
                let without = |(key, value)| (self.text(key), self.value(value));
                Json::Object(map.into_iter().map(without).collect::<Map<_, _>>())
            }
            Json::Null | Json::Bool(_) => value,
        }
    }
}

/// Whether the name of a header says that it has a credential.
fn is_of_credentials(name: &str) -> bool {
    let name = name.to_lowercase();
    CREDENTIALS.iter().any(|part| name.contains(part))
}

/// Whether a value is one ordinary word, or a name of a few: letters of one case, or with a large one at their beginning.
fn is_word(value: &str) -> bool {
    let is_plain = |word: &str| {
        let rest = word.strip_prefix(|first: char| first.is_ascii_uppercase()).unwrap_or(word);
        word.bytes().all(|byte| byte.is_ascii_uppercase()) || rest.bytes().all(|byte| byte.is_ascii_lowercase())
    };
    value.trim().len() <= MAX_WORD && value.trim().split(['-', '_', '.', ' ']).all(is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(headers: &[(&str, &str)]) -> HeaderMask {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        HeaderMask::of(&headers.collect()).unwrap()
    }

    #[test]
    fn a_value_and_what_a_server_reads_of_it_is_in_no_part_of_a_frame() {
        let ours =
            of(&[("Authorization", "Bearer sk-live-Zq83LmX0"), ("X-Number", "4096819200"), ("Accept", "text/html")]);
        let frame = json!({
            "jsonrpc": "2.0", "id": "sk-live-Zq83LmX0", "result": {
                "content": [{ "type": "text", "text": "you came with Bearer sk-live-Zq83LmX0\u{fc}" }],
                "structuredContent": { "sk-live-Zq83LmX0": [4096819200_u64, 4096819201_u64, null, true] },
                "json": "{\"key\":\"\\u0073k-live-Zq83LmX0\"}", "hex": "736b2d6c6976652d5a7138334c6d5830", "takes": "text/html",
            },
        });
        let expected = json!({
            "jsonrpc": "2.0", "id": "sk-live-Zq83LmX0", "result": {
                "content": [{ "type": "text", "text": "you came with ***********************\u{fc}" }],
                "structuredContent": { "****************": ["**********", 4096819201_u64, null, true] },
                "json": "{\"key\":\"*********************\"}", "hex": "********************************", "takes": "text/html",
            },
        });
        assert_eq!(ours.frame(frame.clone()), expected);
        assert_eq!(of(&[]).frame(frame.clone()), frame, "the control");
        assert_eq!(of(&[("X-Key", "short")]).frame(frame.clone()), frame, "no ordinary text is taken for one");
        let tools = of(&[("X-MCP-Toolsets", "issues,pull_requests"), ("X-Api-Key", "code_security")]);
        assert_eq!(tools.text("list_pull_requests of code_security".to_owned()), "list_pull_requests of *************");
        // An ordinary word is a credential by the name of its header alone.
        for (name, value, is_hidden) in [
            ("X-Team", "platform", false),
            ("X-Team", "Data-Platform", false),
            ("X-Env", "PRODUCTION", false),
            ("X-Team", "platform7", true),
            ("X-Team", "pLatform", true),
            ("X-Team", "correct-horse-battery-staple", true),
            ("X-Api-Key", "platform", true),
            ("Authorization", "Basic platform", true),
            ("Session-Id", "platform", true),
        ] {
            let text = format!("list_{value}_items");
            assert_eq!(of(&[(name, value)]).text(text.clone()) != text, is_hidden, "{name}: {value}");
        }
        let basic = of(&[("Authorization", "Basic c3ZjOmh1bnRlcjItaHVudGVyMg==")]);
        assert_eq!(basic.text("no hunter2-hunter2".to_owned()), "no ***************");
    }

    #[test]
    fn what_has_too_many_parts_is_refused_by_its_name_alone() {
        let value = (0..33).map(|n| format!("name{n}=1234 ")).collect::<String>();
        let why = HeaderMask::of(&BTreeMap::from([("Cookie".to_owned(), value)])).unwrap_err();
        assert!(why.contains("`Cookie` has more than 32") && !why.contains("name1"), "{why}");
    }
}
