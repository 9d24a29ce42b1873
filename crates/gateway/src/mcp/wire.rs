//! JSON-RPC messages as MCP frames them: what is well-formed, and how much of it is taken at once.
//!
//! Ids are compared with their type: `1` and `"1"` are two ids. Batches are gone from the protocol since 2025-06-18 and are
//! refused, because a batch would hide calls from whoever counts frames.

use serde_json::{Map, Value as Json, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Most bytes of one message from a client.
pub const MAX_FROM_CLIENT: usize = 4 << 20;
/// Most bytes of one message from an upstream server.
pub const MAX_FROM_SERVER: usize = 16 << 20;
/// Most bytes of an id that is text.
const MAX_ID: usize = 256;

/// `Invalid Request`
pub const INVALID_REQUEST: i64 = -32600;
/// `Method not found`
pub const METHOD_NOT_FOUND: i64 = -32601;
/// `Invalid params`
pub const INVALID_PARAMS: i64 = -32602;
/// `Internal error`
pub const INTERNAL: i64 = -32603;
/// `Parse error`
pub const PARSE: i64 = -32700;
/// A resource that is not there, up to 2025-11-25.
pub const NO_RESOURCE: i64 = -32002;
/// Too much at once, or an upstream that is not there.
pub const UNAVAILABLE: i64 = -32000;
/// Header and body say two things (2026-07-28).
pub const HEADER_MISMATCH: i64 = -32020;
/// The client cannot do what the call needs (2026-07-28).
pub const MISSING_CAPABILITY: i64 = -32021;
/// No such revision (2026-07-28).
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// The id of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id {
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
}

impl Id {
    /// The id that a JSON value is; fractions, null, long texts and numbers beyond 2^53 are none: readers of JSON take
    /// different numbers for those, so an answer under one would be another's, or unreadable.
    #[must_use]
    pub fn of(value: &Json) -> Option<Self> {
        match value {
            Json::Number(number) => number.as_i64().filter(|id| id.unsigned_abs() <= 1 << 53).map(Self::Number),
            Json::String(text) if text.len() <= MAX_ID => Some(Self::Text(text.clone())),
            Json::Null | Json::Bool(_) | Json::String(_) | Json::Array(_) | Json::Object(_) => None,
        }
    }

    /// As it stands on the wire.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Self::Number(number) => Json::from(*number),
            Self::Text(text) => Json::from(text.as_str()),
        }
    }
}

/// The id to answer to of a text that is not taken as a message, if it has exactly one: two are refused just since one
/// reader takes the first and another the last. Nothing else of this reading is used.
#[must_use]
pub(crate) fn id_of_refused(text: &str) -> Option<Id> {
    // A reader of a struct refuses a field that stands twice.
    #[derive(serde::Deserialize)]
    struct Addressed {
        id: Json,
    }
    // A struct is read from an array too, and that is no message with an id.
    let object = text.trim_start().starts_with('{');
    let Addressed { id } = object.then(|| serde_json::from_str(text).ok())??;
    Id::of(&id)
}

/// An error answer.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    /// By JSON-RPC and MCP.
    pub code: i64,
    /// For people.
    pub message: String,
    /// More, for programs.
    pub data: Option<Json>,
}

impl RpcError {
    /// An error without data.
    #[must_use]
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The same with data.
    #[must_use]
    pub fn with(self, data: Json) -> Self {
        Self { data: Some(data), ..self }
    }

    /// A method that is not there, or not allowed.
    #[must_use]
    pub fn no_method(method: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("method not found: {}", super::text::shown(method, 100)))
    }

    /// `{code, message, data}`
    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut map = Map::new();
        map.insert("code".to_owned(), self.code.into());
        map.insert("message".to_owned(), self.message.as_str().into());
        if let Some(data) = &self.data {
            map.insert("data".to_owned(), data.clone());
        }
        Json::Object(map)
    }
}

/// What an answer says.
pub type Outcome = Result<Json, RpcError>;

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Somebody wants an answer.
    Request {
        /// Its id, in the space of its sender.
        id: Id,
        /// Its method.
        method: String,
        /// An object; null if there were none.
        params: Json,
    },
    /// Somebody tells something.
    Notification {
        /// Its method.
        method: String,
        /// An object; null if there were none.
        params: Json,
    },
    /// An answer.
    Response {
        /// The id of the request that it answers.
        id: Id,
        /// The answer.
        outcome: Outcome,
    },
}

/// Why a JSON value is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The id to answer to, if it had one.
    pub id: Option<Id>,
    /// Why.
    pub why: &'static str,
}

impl Message {
    /// Reads a JSON value as a message.
    ///
    /// # Errors
    /// [`Malformed`] for a batch, another version, a wrong shape.
    pub fn read(value: Json) -> Result<Self, Malformed> {
        let Json::Object(mut map) = value else {
            return Err(Malformed { id: None, why: "a message is one object; batches are not spoken" });
        };
        let id = map.get("id").map(Id::of);
        let wrong = |why| Err(Malformed { id: id.clone().flatten(), why });
        if map.get("jsonrpc").and_then(Json::as_str) != Some("2.0") {
            return wrong("`jsonrpc` is not \"2.0\"");
        }
        let params = map.remove("params").unwrap_or(Json::Null);
        match (map.remove("method"), id.clone()) {
            (Some(Json::String(method)), id) => {
                if !matches!(params, Json::Null | Json::Object(_)) {
                    return wrong("`params` is no object");
                }
                match id {
                    Some(Some(id)) => Ok(Self::Request { id, method, params }),
                    Some(None) => wrong("`id` is neither a whole number nor a short text"),
                    None => Ok(Self::Notification { method, params }),
                }
            }
            (Some(_), _) => wrong("`method` is no text"),
            (None, Some(Some(id))) => match (map.remove("result"), map.remove("error")) {
                (Some(result), None) => Ok(Self::Response { id, outcome: Ok(result) }),
                (None, Some(error)) => Ok(Self::Response { id, outcome: Err(read_error(&error)) }),
                (None, None) | (Some(_), Some(_)) => wrong("an answer has either `result` or `error`"),
            },
            (None, _) => wrong("it is neither a request nor an answer to one"),
        }
    }
}

fn read_error(error: &Json) -> RpcError {
    RpcError {
        code: error.get("code").and_then(Json::as_i64).unwrap_or(INTERNAL),
        message: error.get("message").and_then(Json::as_str).unwrap_or("an error without words").to_owned(),
        data: error.get("data").cloned(),
    }
}

/// A request as it stands on the wire.
#[must_use]
pub fn request(id: &Id, method: &str, params: Json) -> Json {
    let mut map = envelope();
    map.insert("id".to_owned(), id.to_json());
    map.insert("method".to_owned(), method.into());
    if !params.is_null() {
        map.insert("params".to_owned(), params);
    }
    Json::Object(map)
}

/// A notification as it stands on the wire.
#[must_use]
pub fn notification(method: &str, params: Json) -> Json {
    let mut map = envelope();
    map.insert("method".to_owned(), method.into());
    if !params.is_null() {
        map.insert("params".to_owned(), params);
    }
    Json::Object(map)
}

/// An answer as it stands on the wire.
#[must_use]
pub fn response(id: &Id, outcome: Outcome) -> Json {
    let mut map = envelope();
    map.insert("id".to_owned(), id.to_json());
    match outcome {
        Ok(result) => map.insert("result".to_owned(), result),
        Err(error) => map.insert("error".to_owned(), error.to_json()),
    };
    Json::Object(map)
}

/// An error that answers no known request.
#[must_use]
pub fn error_without_id(error: &RpcError) -> Json {
    json!({ "jsonrpc": "2.0", "id": null, "error": error.to_json() })
}

fn envelope() -> Map<String, Json> {
    let mut map = Map::new();
    map.insert("jsonrpc".to_owned(), "2.0".into());
    map
}

/// Reads lines, never more of one than a bound.
#[derive(Debug)]
pub struct Lines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    most: usize,
}

/// What came.
#[derive(Debug)]
pub enum Line<'a> {
    /// A line without its end; never empty.
    Full(&'a [u8]),
    /// A line that passes the bound; what follows of it is unread.
    TooLong,
    /// The other side closed, or reading failed.
    End,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines of `read`, each of at most `most` bytes.
    pub fn new(read: R, most: usize) -> Self {
        Self { read: BufReader::with_capacity(64 << 10, read), line: Vec::new(), most }
    }

    /// The next line. Not safe to drop half-way: one task owns it.
    pub async fn next(&mut self) -> Line<'_> {
        // A long line does not keep its memory for the short ones that follow.
        if self.line.capacity() > 1 << 20 {
            self.line = Vec::new();
        }
        self.line.clear();
        loop {
            let Ok(available) = self.read.fill_buf().await else { return Line::End };
            if available.is_empty() {
                return Line::End;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = available.get(..end.unwrap_or(available.len())).unwrap_or_default();
            if self.line.len().saturating_add(taken.len()) > self.most {
                return Line::TooLong;
            }
            self.line.extend_from_slice(taken);
            let consumed = end.map_or(available.len(), |at| at.saturating_add(1));
            self.read.consume(consumed);
            if end.is_some() {
                if self.line.ends_with(b"\r") {
                    self.line.pop();
                }
                if !self.line.trim_ascii().is_empty() {
                    return Line::Full(&self.line);
                }
                self.line.clear();
            }
        }
    }

    /// Skips the rest of a line that was too long; false at the end of the stream.
    pub async fn skip(&mut self) -> bool {
        loop {
            let Ok(available) = self.read.fill_buf().await else { return false };
            if available.is_empty() {
                return false;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let consumed = end.map_or(available.len(), |at| at.saturating_add(1));
            self.read.consume(consumed);
            if end.is_some() {
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Message, &'static str> {
        Message::read(serde_json::from_str(text).unwrap()).map_err(|malformed| malformed.why)
    }

    #[test]
    fn ids_keep_their_type() {
        assert_ne!(Id::of(&json!(1)), Id::of(&json!("1")));
        assert_eq!(Id::of(&json!(1.5)), None);
        assert_eq!(Id::of(&Json::Null), None);
        assert_eq!(Id::of(&json!(1_i64 << 53)), Some(Id::Number(1 << 53)));
        assert_eq!([(1_i64 << 53) + 1, i64::MIN, i64::MAX].map(|id| Id::of(&json!(id))), [None, None, None]);
        assert_eq!(Id::of(&json!("x".repeat(300))), None);
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_reason() {
        assert!(read(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#).unwrap_err().contains("batches"));
        assert!(read(r#"{"id":1,"method":"ping"}"#).unwrap_err().contains("jsonrpc"));
        assert!(read(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#).unwrap_err().contains("whole number"));
        assert!(read(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#).unwrap_err().contains("params"));
        assert!(read(r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#).unwrap_err().contains("either"));
        assert!(read(r#"{"jsonrpc":"2.0","id":1}"#).unwrap_err().contains("either"));
    }

    #[tokio::test]
    async fn a_line_never_takes_more_memory_than_its_bound() {
        let text = format!("short\r\n\n{}\nnext\n{}", "x".repeat(100), "y".repeat(1000));
        let mut lines = Lines::new(text.as_bytes(), 64);
        assert!(matches!(lines.next().await, Line::Full(b"short")));
        assert!(matches!(lines.next().await, Line::TooLong));
        assert!(lines.skip().await);
        assert!(matches!(lines.next().await, Line::Full(b"next")));
        assert!(matches!(lines.next().await, Line::TooLong));
        assert!(!lines.skip().await);
        assert!(lines.line.capacity() < 1024);
    }
}
