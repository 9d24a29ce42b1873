//! Bounding: kinds, schema, media, patterns, visibility, size, label; in this order.
//!
//! Patterns come before what is written out and before the cut, so that neither breaks a secret in two of which each half
//! goes unseen; the size is taken last, of what goes out.

use policy::diagnostic::quote;
use policy::tools::ResultRule;
use regex::Regex;
use serde_json::{Map, Value as Json, json};
use sha2::{Digest as _, Sha256};

use super::cut::cut;
use super::redact::{pattern, redact};
use super::shape::Shapes;
use super::visible::visible;
use super::{Content, ToolFailure, ToolResult, media};

/// Under which name of `_meta` the label stands.
const LABEL: &str = "fumehood";
/// Longest message of a failure.
const MESSAGE: usize = 4096;

/// What results of a call may be.
#[derive(Clone, Debug)]
pub struct Bounds {
    most: usize,
    patterns: Vec<Regex>,
    types: Vec<String>,
}

/// A result that may be shown, and what was done to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounded {
    /// What goes out.
    pub result: ToolResult,
    /// Its bytes.
    pub size: usize,
    /// SHA-256, hex, over its canonical form.
    pub hash: String,
    /// Bytes that were cut or withheld.
    pub dropped: usize,
    /// Matches that were replaced.
    pub redacted: usize,
    /// Characters that were written out.
    pub escaped: usize,
    /// Why parts were withheld.
    pub withheld: Vec<String>,
    /// Structured content and text do not say the same.
    pub differs: bool,
}

impl Bounds {
    /// Compiles a rule.
    ///
    /// # Errors
    /// Which pattern is no regular expression, and why.
    pub fn new(rule: &ResultRule) -> Result<Self, String> {
        let mut patterns = Vec::with_capacity(rule.redact.len());
        for text in &rule.redact {
            let compiled = pattern(&text.value).map_err(|error| format!("{}: {error}", quote(&text.value)))?;
            patterns.push(compiled);
        }
        let most = usize::try_from(rule.max.0).unwrap_or(usize::MAX);
        Ok(Self { most, patterns, types: rule.types.clone() })
    }

    /// Bounds a result. `schema` is the tool's own of its structured results.
    #[must_use]
    pub fn bound(&self, result: ToolResult, schema: Option<&Json>, shapes: &Shapes) -> Bounded {
        let mut work = Work { bounds: self, dropped: 0, redacted: 0, escaped: 0, withheld: Vec::new() };
        let differs = differs(&result);
        let ToolResult { content, structured, is_error, meta } = result;
        let mut content: Vec<Content> = content.into_iter().map(|part| work.kind(part)).collect();
        let mut structured = work.structured(structured, schema, is_error, shapes);
        let mut meta = meta.map(|meta| work.json(meta));
        structured = structured.map(|value| work.json(value));
        work.texts(&mut content);
        for why in work.withheld.clone().into_iter().filter(|why| why.starts_with("structured")) {
            // It names a place in the content, and so has words of the tool in it.
            content.push(Content::Text(format!("[{}]", work.one(why))));
        }
        work.size(&mut content, &mut structured, &mut meta);
        let label = json!({ "label": "data", "dropped_bytes": work.dropped, "redacted": work.redacted });
        let is_error = is_error || work.withheld.iter().any(|why| why.starts_with("structured"));
        let mut result = ToolResult { content, structured, is_error, meta };
        let size = size(&result);
        let hash = hash(&result);
        let mut members = match result.meta.take() {
            Some(Json::Object(members)) => members,
            Some(other) => Map::from_iter([("value".to_owned(), other)]),
            None => Map::new(),
        };
        members.insert(LABEL.to_owned(), label);
        result.meta = Some(Json::Object(members));
        let Work { dropped, redacted, escaped, withheld, bounds: _ } = work;
        Bounded { result, size, hash, dropped, redacted, escaped, withheld, differs }
    }

    /// Most bytes that reach the caller.
    #[must_use]
    pub const fn most(&self) -> usize {
        self.most
    }

    /// Whether anything is replaced at all.
    #[must_use]
    pub const fn redacts(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// Whether bytes in base64 hold what the patterns name, as text. No part of them can be replaced: they would be something
    /// else then.
    #[must_use]
    pub fn reveals(&self, data: &str) -> bool {
        if self.patterns.is_empty() {
            return false;
        }
        let Some(bytes) = media::bytes(data) else { return false };
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        redact(&mut [&mut text], &self.patterns) > 0
    }

    /// A value with what the patterns name replaced and what hides written out: for the record, and for what is said beside
    /// results.
    #[must_use]
    pub fn redacted(&self, value: &Json) -> Json {
        let mut work = Work { bounds: self, dropped: 0, redacted: 0, escaped: 0, withheld: Vec::new() };
        work.json(value.clone())
    }

    /// Bounds the message of a failure.
    #[must_use]
    pub fn failure(&self, failure: ToolFailure) -> ToolFailure {
        let mut message = failure.message;
        redact(&mut [&mut message], &self.patterns);
        let mut message = visible(&message).0;
        cut(&mut [&mut message], self.most.min(MESSAGE));
        ToolFailure { message }
    }
}

struct Work<'b> {
    bounds: &'b Bounds,
    dropped: usize,
    redacted: usize,
    escaped: usize,
    withheld: Vec<String>,
}

impl Work<'_> {
    fn withhold(&mut self, why: String, size: usize) -> Content {
        self.dropped += size;
        let note = format!("[{why}]");
        self.withheld.push(why);
        Content::Text(note)
    }

    /// A part of a kind that may come back, and that is what it says.
    fn kind(&mut self, part: Content) -> Content {
        let kind = match &part {
            Content::Text(_) => "text",
            Content::Image { .. } => "image",
            Content::Audio { .. } => "audio",
            Content::ResourceText { .. } | Content::ResourceBlob { .. } => "resource",
            Content::Link { .. } => "link",
        };
        let types = &self.bounds.types;
        if !types.is_empty() && !types.iter().any(|allowed| allowed == kind) {
            return self.withhold(format!("{kind} withheld: the policy lets no such part through"), part_size(&part));
        }
        let flaw = match &part {
            Content::Image { mime, data } => media::flaw("image", mime, data),
            Content::Audio { mime, data } => media::flaw("audio", mime, data),
            Content::ResourceBlob { mime, blob, uri: _ } => {
                let is_base64 = super::media::is_base64(blob);
                let declared = mime.as_deref().and_then(|mime| {
                    let kind = ["image", "audio"].into_iter().find(|kind| mime.split('/').next() == Some(kind))?;
                    media::flaw(kind, mime, blob)
                });
                if is_base64 { declared } else { Some("resource withheld: its data is no base64".to_owned()) }
            }
            Content::Text(_) | Content::ResourceText { .. } | Content::Link { .. } => None,
        };
        let data = match &part {
            Content::Image { data, .. } | Content::Audio { data, .. } => Some(data),
            Content::ResourceBlob { blob, .. } => Some(blob),
            Content::Text(_) | Content::ResourceText { .. } | Content::Link { .. } => None,
        };
        let reveals = data.is_some_and(|data| self.bounds.reveals(data));
        self.redacted += usize::from(reveals);
        let flaw = flaw.or_else(|| reveals.then(|| format!("{kind} withheld: its data holds what the policy redacts")));
        match flaw {
            Some(why) => self.withhold(why, part_size(&part)),
            None => part,
        }
    }

    fn structured(
        &mut self,
        value: Option<Json>,
        schema: Option<&Json>,
        is_error: bool,
        shapes: &Shapes,
    ) -> Option<Json> {
        let types = &self.bounds.types;
        let Some(value) = value else {
            if schema.is_some() && !is_error {
                self.withheld.push("structured content is missing, and the tool's schema promises it".to_owned());
            }
            return None;
        };
        let allowed = types.is_empty() || types.iter().any(|allowed| allowed == "structured");
        let flaw = if !allowed {
            Some("structured content withheld: the policy lets none through".to_owned())
        } else if is_error {
            None
        } else {
            let flaw = schema.and_then(|schema| shapes.flaw(schema, &value));
            flaw.map(|why| format!("structured content withheld: {why}"))
        };
        let Some(why) = flaw else { return Some(value) };
        self.dropped += value.to_string().len();
        self.withheld.push(why);
        None
    }

    /// Every text in a value, names of members included.
    fn json(&mut self, value: Json) -> Json {
        match value {
            Json::String(text) => Json::String(self.one(text)),
            Json::Array(items) => Json::Array(items.into_iter().map(|item| self.json(item)).collect()),
            Json::Object(members) => {
                let members = members.into_iter().map(|(name, value)| (self.one(name), self.json(value)));
                Json::Object(members.collect())
            }
            plain @ (Json::Null | Json::Bool(_) | Json::Number(_)) => plain,
        }
    }

    fn one(&mut self, mut text: String) -> String {
        self.redacted += redact(&mut [&mut text], &self.bounds.patterns);
        let (text, escaped) = visible(&text);
        self.escaped += escaped;
        text
    }

    fn texts(&mut self, content: &mut [Content]) {
        self.redacted += redact(&mut bodies(content), &self.bounds.patterns);
        for body in bodies(content) {
            let (seen, escaped) = visible(body);
            self.escaped += escaped;
            *body = seen;
        }
        for part in content {
            match part {
                Content::Text(_) => {}
                Content::Image { mime, .. } | Content::Audio { mime, .. } => self.words([Some(mime)]),
                Content::ResourceText { uri, mime, .. } | Content::ResourceBlob { uri, mime, .. } => {
                    self.words([Some(uri), mime.as_mut()]);
                }
                Content::Link { uri, name, description, mime } => {
                    self.words([Some(uri), Some(name), description.as_mut(), mime.as_mut()]);
                }
            }
        }
    }

    fn words<const N: usize>(&mut self, words: [Option<&mut String>; N]) {
        for word in words.into_iter().flatten() {
            *word = self.one(std::mem::take(word));
        }
    }

    /// What cannot be cut goes out whole or not at all; texts share what is left.
    fn size(&mut self, content: &mut [Content], structured: &mut Option<Json>, meta: &mut Option<Json>) {
        let most = self.bounds.most;
        let mut taken = 0;
        let mut drop_json = |work: &mut Self, value: &mut Option<Json>, name: &str| {
            let length = value.as_ref().map_or(0, |value| value.to_string().len());
            if taken + length > most {
                work.dropped += length;
                work.withheld.push(format!("{name} withheld: {length} bytes are more than the policy lets through"));
                *value = None;
            } else {
                taken += length;
            }
        };
        drop_json(self, structured, "structured content");
        drop_json(self, meta, "`_meta`");
        for part in content.iter_mut() {
            let fixed =
                part_size(part) - bodies(std::slice::from_mut(part)).iter().map(|body| body.len()).sum::<usize>();
            if taken + fixed > most {
                *part = self
                    .withhold("a part withheld: the result is larger than the policy lets through".to_owned(), fixed);
            } else {
                taken += fixed;
            }
        }
        self.dropped += cut(&mut bodies(content), most - taken);
    }
}

/// The texts that can be cut, in order.
fn bodies(content: &mut [Content]) -> Vec<&mut String> {
    let body = |part| match part {
        &mut (Content::Text(ref mut text) | Content::ResourceText { ref mut text, .. }) => Some(text),
        Content::Image { .. } | Content::Audio { .. } | Content::ResourceBlob { .. } | Content::Link { .. } => None,
    };
    content.iter_mut().filter_map(body).collect()
}

fn part_size(part: &Content) -> usize {
    let some = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    match part {
        Content::Text(text) => text.len(),
        Content::Image { mime, data } | Content::Audio { mime, data } => mime.len() + data.len(),
        Content::ResourceText { uri, mime, text } => uri.len() + some(mime) + text.len(),
        Content::ResourceBlob { uri, mime, blob } => uri.len() + some(mime) + blob.len(),
        Content::Link { uri, name, description, mime } => uri.len() + name.len() + some(description) + some(mime),
    }
}

fn size(result: &ToolResult) -> usize {
    let json = |value: &Option<Json>| value.as_ref().map_or(0, |value| value.to_string().len());
    result.content.iter().map(part_size).sum::<usize>() + json(&result.structured) + json(&result.meta)
}

/// Over lengths and bytes of every part, so that two results with one hash are one result.
fn hash(result: &ToolResult) -> String {
    let mut hash = Sha256::new();
    let mut add = |kind: u8, words: &[&str]| {
        hash.update([kind]);
        for word in words {
            hash.update(u64::try_from(word.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(word.as_bytes());
        }
    };
    let or = |text: &Option<String>| text.clone().unwrap_or_default();
    for part in &result.content {
        match part {
            Content::Text(text) => add(1, &[text]),
            Content::Image { mime, data } => add(2, &[mime, data]),
            Content::Audio { mime, data } => add(3, &[mime, data]),
            Content::ResourceText { uri, mime, text } => add(4, &[uri, &or(mime), text]),
            Content::ResourceBlob { uri, mime, blob } => add(5, &[uri, &or(mime), blob]),
            Content::Link { uri, name, description, mime } => add(6, &[uri, name, &or(description), &or(mime)]),
        }
    }
    add(7, &[&result.structured.as_ref().map(crate::json::canonical).unwrap_or_default()]);
    add(8, &[&result.meta.as_ref().map(crate::json::canonical).unwrap_or_default()]);
    add(if result.is_error { 9 } else { 10 }, &[]);
    policy::json::hex(&hash.finalize())
}

/// Whether a text is JSON and says something else than the structured content beside it.
fn differs(result: &ToolResult) -> bool {
    let Some(structured) = &result.structured else { return false };
    let other = |part: &Content| match part {
        Content::Text(text) => {
            let value = serde_json::from_str::<Json>(text);
            value.is_ok_and(|value| (value.is_object() || value.is_array()) && value != *structured)
        }
        Content::Image { .. }
        | Content::Audio { .. }
        | Content::ResourceText { .. }
        | Content::ResourceBlob { .. }
        | Content::Link { .. } => false,
    };
    result.content.iter().any(other)
}

#[cfg(test)]
mod tests {
    use policy::units::Bytes;

    use super::*;

    fn bounds(most: u64, types: &[&str], patterns: &[&str]) -> Bounds {
        let mut bounds = Bounds::new(&ResultRule {
            max: Bytes(most),
            redact: Vec::new(),
            types: types.iter().map(|t| (*t).to_owned()).collect(),
        })
        .unwrap();
        bounds.patterns = patterns.iter().map(|p| pattern(p).unwrap()).collect();
        bounds
    }

    fn text(text: &str) -> Content {
        Content::Text(text.to_owned())
    }

    fn of(content: Vec<Content>) -> ToolResult {
        ToolResult { content, ..ToolResult::default() }
    }

    #[test]
    fn every_place_of_a_result_is_redacted_and_made_visible() {
        let secret = "sk-SECRET\u{1b}[0m";
        let all = ToolResult {
            content: vec![
                text(secret),
                Content::ResourceText { uri: secret.into(), mime: Some(secret.into()), text: secret.into() },
                Content::ResourceBlob { uri: secret.into(), mime: None, blob: "Zm9v".into() },
                Content::Link {
                    uri: secret.into(),
                    name: secret.into(),
                    description: Some(secret.into()),
                    mime: Some(secret.into()),
                },
            ],
            structured: Some(json!({"a": [secret, {secret: secret}]})),
            is_error: false,
            meta: Some(json!({"m": secret, secret: 1})),
        };
        let done = bounds(1 << 20, &[], &["sk-[A-Z]+"]).bound(all, None, &Shapes::default());
        let seen = format!("{:?}", done.result);
        assert!(!seen.contains("SECRET") && !seen.contains('\u{1b}'), "{seen}");
        assert_eq!((done.redacted, done.escaped), (14, 14));
        assert!(done.withheld.is_empty() && done.dropped == 0);
        assert_eq!(done.result.meta.unwrap()["fumehood"]["label"], "data");
    }

    #[test]
    fn bytes_that_hold_what_is_redacted_are_withheld() {
        let blob = |blob: &str| {
            of(vec![Content::ResourceBlob { uri: "x:y".into(), mime: Some("text/plain".into()), blob: blob.into() }])
        };
        let done =
            |patterns: &[&str], data: &str| bounds(1 << 20, &[], patterns).bound(blob(data), None, &Shapes::default());
        // "sk-SECRET", "plain"
        let held = done(&["sk-[A-Z]+"], "c2stU0VDUkVU");
        assert_eq!((held.redacted, held.withheld.len()), (1, 1), "{held:?}");
        assert!(!format!("{:?}", held.result).contains("c2stU0VDUkVU"));
        assert!(done(&["sk-[A-Z]+"], "cGxhaW4=").withheld.is_empty());
        assert!(done(&[], "c2stU0VDUkVU").withheld.is_empty());
    }

    #[test]
    fn the_size_counts_everything_and_is_kept() {
        let large = || ToolResult {
            content: vec![
                text(&"a".repeat(5000)),
                Content::Image { mime: "image/png".into(), data: "iVBORw0KGgoA".to_owned() + &"AAAA".repeat(500) },
                text(&"\u{1b}".repeat(500)),
                Content::Link { uri: "u".repeat(300), name: "n".repeat(300), description: None, mime: None },
            ],
            structured: Some(json!({"x": "y".repeat(800)})),
            is_error: false,
            meta: Some(json!({"x": "y".repeat(800)})),
        };
        for most in [0, 1, 60, 900, 2000, 4000, 6000, 9000, 100_000] {
            let done = bounds(most, &[], &[]).bound(large(), None, &Shapes::default());
            let most = usize::try_from(most).unwrap();
            assert!(done.size <= most, "{} > {most}", done.size);
            assert_eq!(done.dropped == 0, most == 100_000, "{most}");
        }
        let done = bounds(6000, &[], &[]).bound(
            of(vec![text(&("HEAD".to_owned() + &"x".repeat(9000) + "TAIL"))]),
            None,
            &Shapes::default(),
        );
        let Content::Text(kept) = &done.result.content[0] else { panic!() };
        assert!(
            kept.starts_with("HEAD") && kept.ends_with("TAIL") && kept.contains(&format!("{} bytes cut", done.dropped))
        );
    }

    #[test]
    fn kinds_that_are_not_let_through_and_media_that_lie_are_withheld_with_a_word() {
        let png = || Content::Image { mime: "image/png".into(), data: "iVBORw0KGgoA".into() };
        let lie = || Content::Image { mime: "image/png".into(), data: "aWdub3JlIGFsbA==".into() };
        let done = bounds(9999, &["text"], &[]).bound(of(vec![text("a"), png()]), None, &Shapes::default());
        assert_eq!(done.result.content[1], text("[image withheld: the policy lets no such part through]"));
        let blob = |mime: &str, blob: &str| Content::ResourceBlob {
            uri: "u".into(),
            mime: Some(mime.into()),
            blob: blob.into(),
        };
        let content = vec![
            png(),
            lie(),
            blob("image/png", "aWdub3Jl"),
            blob("text/plain", "***"),
            blob("text/plain", "aWdub3Jl"),
        ];
        let done = bounds(9999, &[], &[]).bound(of(content), None, &Shapes::default());
        assert_eq!(done.withheld.len(), 3);
        assert_eq!((&done.result.content[0], &done.result.content[4]), (&png(), &blob("text/plain", "aWdub3Jl")));
        let structured = ToolResult { structured: Some(json!(1)), ..of(vec![]) };
        assert_eq!(bounds(9999, &["text"], &[]).bound(structured, None, &Shapes::default()).result.structured, None);
    }

    #[test]
    fn structured_content_fits_the_tools_schema_or_is_withheld_as_an_error() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let shapes = Shapes::default();
        let run = |structured: Option<Json>, is_error: bool, schema: &Json| {
            let result = ToolResult { structured, is_error, ..of(vec![text("x")]) };
            bounds(9999, &[], &[]).bound(result, Some(schema), &shapes).result
        };
        let good = run(Some(json!({"n": 1})), false, &schema);
        assert!(!good.is_error && good.structured.is_some());
        let bad = run(Some(json!({"n": "1"})), false, &schema);
        assert!(bad.is_error && bad.structured.is_none());
        assert!(run(None, false, &schema).is_error);
        assert!(run(None, true, &schema).is_error);
        for unusable in [json!({"$ref": "https://example.com/x"}), json!({"pattern": "(?=a)"}), json!({"type": 7})] {
            assert!(run(Some(json!({"n": 1})), false, &unusable).is_error, "{unusable}");
        }
    }

    #[test]
    fn a_text_that_says_otherwise_than_the_structured_content_is_noticed() {
        let result = |body: &str| ToolResult { structured: Some(json!({"ok": true})), ..of(vec![text(body)]) };
        let differs = |body: &str| bounds(9999, &[], &[]).bound(result(body), None, &Shapes::default()).differs;
        assert!(differs("{\"ok\": false}"));
        assert!(!differs("{\"ok\":   true}") && !differs("it went well"));
    }

    #[test]
    fn a_failure_is_bounded_as_a_result_is() {
        let bounds = bounds(300, &[], &["sk-[A-Z]+"]);
        let done = bounds.failure(ToolFailure { message: "sk-ABC\u{1b}]52;c;x\u{7}".to_owned() + &"y".repeat(999) });
        assert!(done.message.starts_with("[redacted]\\u{1b}]52") && done.message.len() <= 300);
    }

    #[test]
    fn two_results_that_differ_in_any_part_have_two_hashes() {
        let hash = |result: ToolResult| bounds(9999, &[], &[]).bound(result, None, &Shapes::default()).hash;
        let one = hash(of(vec![text("ab"), text("c")]));
        assert_eq!(one.len(), 64);
        assert_ne!(one, hash(of(vec![text("a"), text("bc")])));
        assert_ne!(one, hash(ToolResult { is_error: true, ..of(vec![text("ab"), text("c")]) }));
    }
}
