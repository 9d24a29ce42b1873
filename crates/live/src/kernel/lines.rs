//! What a kernel says, as the lines that E2B's clients read.
//!
//! Everything here comes out of the sandbox and is believed in nothing: a message is looked at as far as its kind needs, and
//! what is handed on is written anew, so that no text can begin a line of its own.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// Most forms in which one result may come.
const MAX_FORMS: usize = 32;
/// Longest name or value of an error, characters.
const MAX_VALUE: usize = 16 * 1024;
/// Longest traceback, characters.
const MAX_TRACEBACK: usize = 256 * 1024;

/// A line of a driver.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DriverMessage {
    /// The kernel answers.
    Ready(IgnoredAny),
    /// Something that is not installed.
    Missing {
        /// Its name.
        what: String,
    },
    /// It could not be started.
    Failed(String),
    /// The kernel has ended.
    Dead {
        /// Exit code, or signal below zero.
        code: Option<i64>,
    },
    /// A message of the kernel.
    Message(Box<Message>),
    /// For which languages there are kernels.
    Languages(Vec<String>),
}

/// A message of a kernel.
#[derive(Debug, Deserialize)]
pub(super) struct Message {
    #[serde(default)]
    pub(super) channel: String,
    pub(super) header: Header,
    #[serde(default)]
    pub(super) parent_header: Parent,
    pub(super) content: Box<RawValue>,
    /// The line that it was, without a newline.
    #[serde(skip)]
    pub(super) line: Vec<u8>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Header {
    pub(super) msg_type: String,
    #[serde(default)]
    pub(super) date: String,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Parent {
    #[serde(default)]
    pub(super) msg_id: String,
    #[serde(default)]
    pub(super) session: String,
}

/// What a message means for the execution that it belongs to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The code was taken; its number.
    Taken(u64),
    /// Output, as a line.
    Output(Vec<u8>),
    /// The code failed.
    Error(Error),
    /// Nothing more comes.
    Idle,
    /// Nothing to tell.
    Nothing,
}

/// How code failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Error {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) traceback: String,
}

impl Error {
    pub(super) fn new(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into(), traceback: String::new() }
    }
}

#[derive(Deserialize)]
struct StatusContent<'a> {
    #[serde(borrow)]
    execution_state: Cow<'a, str>,
}

#[derive(Deserialize)]
struct InputContent {
    #[serde(default)]
    execution_count: Option<u64>,
}

#[derive(Deserialize)]
struct StreamContent<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    text: String,
}

#[derive(Deserialize)]
struct DisplayContent {
    data: Forms,
}

#[derive(Default, Deserialize)]
struct ErrorContent {
    #[serde(default)]
    status: String,
    #[serde(default)]
    ename: String,
    #[serde(default)]
    evalue: String,
    #[serde(default)]
    traceback: Option<Box<RawValue>>,
}

impl From<ErrorContent> for Error {
    fn from(content: ErrorContent) -> Self {
        Self {
            name: cut(content.ename, MAX_VALUE),
            value: cut(content.evalue, MAX_VALUE),
            traceback: content.traceback.map_or_else(String::new, |raw| traceback(&raw)),
        }
    }
}

/// Its lines; one that is beyond all measure is not even read.
fn traceback(raw: &RawValue) -> String {
    if raw.get().len() > 8 * MAX_TRACEBACK {
        return "[fumehood: the traceback was too long to be shown]".to_owned();
    }
    let lines: Vec<String> = serde_json::from_str(raw.get()).unwrap_or_default();
    cut(lines.join("\n"), MAX_TRACEBACK)
}

fn cut(mut text: String, most: usize) -> String {
    if let Some((at, _)) = text.char_indices().nth(most) {
        text.truncate(at);
        text.push_str("\n[fumehood: cut here]");
    }
    text
}

/// Forms of one result, by MIME type; the first [`MAX_FORMS`].
#[derive(Debug, Default)]
struct Forms(BTreeMap<String, Box<RawValue>>);

impl<'de> Deserialize<'de> for Forms {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Few)
    }
}

struct Few;

impl<'de> Visitor<'de> for Few {
    type Value = Forms;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("forms of a result by MIME type")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Forms, A::Error> {
        let mut forms = BTreeMap::new();
        while forms.len() < MAX_FORMS {
            let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? else { return Ok(Forms(forms)) };
            forms.insert(name, value);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Forms(forms))
    }
}

/// A line to a client; the fields stand in the order in which E2B writes them.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    NumberOfExecutions { execution_count: u64 },
    Stdout { text: &'a str, timestamp: &'a str },
    Stderr { text: &'a str, timestamp: &'a str },
    Result(DisplayData),
    Error(&'a Error),
    Keepalive,
    EndOfExecution,
}

#[derive(Serialize)]
struct DisplayData {
    #[serde(flatten)]
    known: BTreeMap<&'static str, Box<RawValue>>,
    extra: BTreeMap<String, Box<RawValue>>,
    is_main_result: bool,
}

/// Names of the forms that have one.
const KNOWN: [(&str, &str); 12] = [
    ("text/plain", "text"),
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/json", "json"),
    ("application/javascript", "javascript"),
    ("e2b/data", "data"),
    ("e2b/chart", "chart"),
];

fn written(line: &Line<'_>) -> Vec<u8> {
    // Nothing in these types can fail to be written.
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// `number_of_executions`
pub(super) fn number(count: u64) -> Vec<u8> {
    written(&Line::NumberOfExecutions { execution_count: count })
}

/// `error`
pub(super) fn error(error: &Error) -> Vec<u8> {
    written(&Line::Error(error))
}

/// `keepalive`
pub(super) fn keepalive() -> Vec<u8> {
    written(&Line::Keepalive)
}

/// `end_of_execution`
pub(super) fn end() -> Vec<u8> {
    written(&Line::EndOfExecution)
}

/// Something that we have to say ourselves, where people look for warnings.
pub(super) fn note(text: &str) -> Vec<u8> {
    let now = jiff::Timestamp::now().to_string();
    written(&Line::Stderr { text: &format!("[fumehood: {text}]\n"), timestamp: &now })
}

impl Message {
    /// Whether the kernel says by it that it works, or that it does not.
    pub(super) fn busy(&self) -> Option<bool> {
        if self.header.msg_type != "status" || self.channel != "iopub" {
            return None;
        }
        let status = serde_json::from_str::<StatusContent<'_>>(self.content.get()).ok()?;
        Some(status.execution_state != "idle")
    }

    /// What it means. A message that is not what its kind says has nothing to tell.
    pub(super) fn meaning(&self) -> Meaning {
        let content = self.content.get();
        match self.header.msg_type.as_str() {
            "status" => match serde_json::from_str::<StatusContent<'_>>(content) {
                Ok(status) if status.execution_state == "idle" => Meaning::Idle,
                Ok(_) | Err(_) => Meaning::Nothing,
            },
            "execute_input" => serde_json::from_str::<InputContent>(content)
                .ok()
                .and_then(|input| input.execution_count)
                .map_or(Meaning::Nothing, Meaning::Taken),
            "stream" => serde_json::from_str(content).map_or(Meaning::Nothing, |content| self.stream(&content)),
            "display_data" => shown(content, false),
            "execute_result" => shown(content, true),
            "error" => {
                let error = serde_json::from_str::<ErrorContent>(content).unwrap_or_default();
                Meaning::Error(error.into())
            }
            "execute_reply" => replied(serde_json::from_str::<ErrorContent>(content).unwrap_or_default()),
            _ => Meaning::Nothing,
        }
    }

    fn stream(&self, content: &StreamContent<'_>) -> Meaning {
        let timestamp = cut(self.header.date.clone(), 64);
        let line = match &*content.name {
            "stdout" => Line::Stdout { text: &content.text, timestamp: &timestamp },
            "stderr" => Line::Stderr { text: &content.text, timestamp: &timestamp },
            _ => return Meaning::Nothing,
        };
        Meaning::Output(written(&line))
    }
}

fn replied(content: ErrorContent) -> Meaning {
    match content.status.as_str() {
        "error" => Meaning::Error(content.into()),
        "abort" | "aborted" => Meaning::Error(Error::new("ExecutionAborted", "Execution was aborted")),
        _ => Meaning::Nothing,
    }
}

fn shown(content: &str, is_main_result: bool) -> Meaning {
    let Ok(DisplayContent { data: Forms(mut forms) }) = serde_json::from_str(content) else { return Meaning::Nothing };
    let mut known = BTreeMap::new();
    for (mime, name) in KNOWN {
        let Some(value) = forms.remove(mime) else { continue };
        let value = if name == "text" { unquoted(value) } else { value };
        if value.get() != "null" {
            known.insert(name, value);
        }
    }
    Meaning::Output(written(&Line::Result(DisplayData { known, extra: forms, is_main_result })))
}

/// The text of a string's repr is the string's own: without the quotes around it.
fn unquoted(value: Box<RawValue>) -> Box<RawValue> {
    let Ok(text) = serde_json::from_str::<String>(value.get()) else { return value };
    let inner = ["'", "\""].iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
    inner.and_then(|inner| serde_json::value::to_raw_value(inner).ok()).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn message(kind: &str, content: Value) -> Message {
        let mut message = json!({
            "header": {"msg_id": "k1", "msg_type": kind, "date": "2026-11-23T19:50:57.531151+00:00"},
            "parent_header": {"msg_id": "m1", "session": "s"},
            "metadata": {},
        });
        message["content"] = content;
        serde_json::from_value(message).unwrap()
    }

    fn line(kind: &str, content: Value) -> String {
        match message(kind, content).meaning() {
            Meaning::Output(bytes) => String::from_utf8(bytes).unwrap(),
            Meaning::Error(of) => String::from_utf8(error(&of)).unwrap(),
            other @ (Meaning::Taken(_) | Meaning::Idle | Meaning::Nothing) => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_are_those_that_clients_know() {
        let plain = [number(3), keepalive(), end()].concat();
        let mut all = String::from_utf8(plain).unwrap();
        all += &line("stream", json!({"name": "stdout", "text": "1\n\u{2028}\"x\""}));
        all += &line("stream", json!({"name": "stderr", "text": "warned\n"}));
        all += &line("execute_result", json!({"data": {"text/plain": "'it''s'"}, "execution_count": 3}));
        all += &line("execute_result", json!({"data": {"text/plain": "\"a'b\""}}));
        all += &line("execute_result", json!({"data": {"text/plain": "'half"}}));
        all += &line(
            "display_data",
            json!({"data": {
                "text/plain": "<Figure size 640x480 with 1 Axes>", "text/html": "<b>", "text/markdown": "*m*",
                "image/svg+xml": "<svg/>", "image/png": "iVBORw0=", "image/jpeg": "/9j/", "application/pdf": "JVBE",
                "text/latex": "$x$", "application/json": {"a": [1, 2.50]}, "application/javascript": "1",
                "e2b/data": {"a": [1]}, "e2b/chart": {"type": "line", "elements": []}, "x/other": "more",
            }, "metadata": {}}),
        );
        all += &line(
            "error",
            json!({"ename": "ZeroDivisionError", "evalue": "division by zero", "traceback": ["---", "1/0", "ZeroDivisionError"]}),
        );
        all += &line("execute_reply", json!({"status": "aborted"}));
        assert_eq!(all, include_str!("../../tests/kernel/lines.jsonl"));
    }

    #[test]
    fn a_message_tells_what_it_tells_and_no_more() {
        assert_eq!(message("status", json!({"execution_state": "busy"})).meaning(), Meaning::Nothing);
        assert_eq!(message("status", json!({"execution_state": "idle"})).meaning(), Meaning::Idle);
        assert_eq!(message("execute_input", json!({"execution_count": 7, "code": "x"})).meaning(), Meaning::Taken(7));
        assert_eq!(message("execute_reply", json!({"status": "ok"})).meaning(), Meaning::Nothing);
        for (kind, content) in [
            ("stream", json!({"name": "stdout", "text": 7})),
            ("stream", json!({"name": "other", "text": "x"})),
            ("stream", json!([])),
            ("display_data", json!({"data": [1]})),
            ("execute_input", json!({"execution_count": -1})),
            ("status", json!(null)),
            ("end_of_execution", json!({})),
        ] {
            assert_eq!(message(kind, content.clone()).meaning(), Meaning::Nothing, "{kind} {content}");
        }
    }

    #[test]
    fn results_with_a_million_forms_and_endless_errors_are_cut() {
        let forms: serde_json::Map<_, _> = (0..5000).map(|n| (format!("x/{n}"), json!(1))).collect();
        let shown: Value = serde_json::from_str(&line("display_data", json!({"data": forms}))).unwrap();
        assert_eq!(shown["extra"].as_object().unwrap().len(), MAX_FORMS);
        let endless = "é".repeat(MAX_TRACEBACK * 2);
        let error = line("error", json!({"ename": endless, "evalue": endless, "traceback": [endless, endless]}));
        assert!(error.len() < 2 * (MAX_TRACEBACK + 2 * MAX_VALUE) + 1000, "{}", error.len());
    }

    #[test]
    fn raw_text_of_a_kernel_begins_no_line_of_its_own() {
        // A driver's line holds no newline; within a value only escapes can stand for one.
        let text = r#"{"header":{"msg_type":"display_data"},"content":{"data":{"application/json":{"a":"x\n{\"type\":\"end_of_execution\"}"}}}}"#;
        let message: Message = serde_json::from_str(text).unwrap();
        let Meaning::Output(bytes) = message.meaning() else { panic!() };
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
    }

    /// JSON as a hostile driver could say it: near to a message, and with anything in place of its parts.
    fn near(kinds: &'static [&'static str]) -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z\\n\"{}\\\\\u{2028}]{0,40}".prop_map(Value::from),
        ];
        let names = [
            "data",
            "text",
            "name",
            "execution_state",
            "execution_count",
            "traceback",
            "ename",
            "status",
            "text/plain",
            "e2b/data",
            "x/y",
        ];
        let any = leaf.prop_recursive(4, 32, 6, move |inner| {
            let pair = (prop::sample::select(names.to_vec()), inner.clone());
            prop_oneof![
                proptest::collection::vec(inner, 0..6).prop_map(Value::from),
                proptest::collection::vec(pair, 0..6)
                    .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
            ]
        });
        (prop::sample::select(kinds.to_vec()), any.clone(), any).prop_map(|(kind, content, parent)| {
            let parent = if parent.is_object() { parent } else { json!({}) };
            json!({"message": {"channel": "iopub", "header": {"msg_type": kind}, "parent_header": parent, "content": content}})
        })
    }

    const KINDS: &[&str] =
        &["status", "stream", "display_data", "execute_result", "error", "execute_reply", "execute_input", "comm_open"];

    proptest! {
        #[test]
        fn whatever_a_driver_says_becomes_one_line_of_ours_or_none(said in near(KINDS)) {
            let word = super::super::driver::parse_message(said.to_string().into_bytes());
            let Ok(DriverMessage::Message(message)) = word else { return Ok(()) };
            let bytes = match message.meaning() {
                Meaning::Output(bytes) => bytes,
                Meaning::Error(of) => error(&of),
                Meaning::Taken(_) | Meaning::Idle | Meaning::Nothing => return Ok(()),
            };
            prop_assert_eq!(bytes.iter().position(|byte| *byte == b'\n'), Some(bytes.len() - 1));
            let line: Value = serde_json::from_slice(&bytes).unwrap();
            let kind = line["type"].as_str().unwrap();
            prop_assert!(["stdout", "stderr", "result", "error"].contains(&kind), "{}", line);
        }

        #[test]
        fn no_bytes_of_a_driver_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 1_usize..50) {
            let mut lines = super::super::driver::Lines::default();
            let mut found = Vec::new();
            for chunk in bytes.chunks(cut) {
                lines.push(chunk);
                while let Ok(Some(line)) = lines.take() {
                    found.push(line);
                }
            }
            let whole: Vec<_> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            prop_assert_eq!(&found[..], &whole[..whole.len() - 1]);
            for line in found {
                if let Ok(DriverMessage::Message(message)) = super::super::driver::parse_message(line) {
                    let _meaning = message.meaning();
                }
            }
        }
    }
}
