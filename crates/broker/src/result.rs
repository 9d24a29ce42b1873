//! What a tool answers, before and after it is bounded.

use serde_json::Value as Json;

/// One part of a result, in the shapes of MCP; other front doors use `Text` and `structured`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Text.
    Text(String),
    /// A picture.
    Image {
        /// `image/png`.
        mime: String,
        /// Base64.
        data: String,
    },
    /// Sound.
    Audio {
        /// `audio/wav`.
        mime: String,
        /// Base64.
        data: String,
    },
    /// A resource, embedded as text.
    ResourceText {
        /// Its name.
        uri: String,
        /// Its type.
        mime: Option<String>,
        /// Its content.
        text: String,
    },
    /// A resource, embedded as bytes.
    ResourceBlob {
        /// Its name.
        uri: String,
        /// Its type.
        mime: Option<String>,
        /// Base64.
        blob: String,
    },
    /// The name of a resource.
    Link {
        /// Its name.
        uri: String,
        /// A word for people.
        name: String,
        /// More words.
        description: Option<String>,
        /// Its type.
        mime: Option<String>,
    },
}

/// What a tool answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolResult {
    /// Parts, in order.
    pub content: Vec<Content>,
    /// `structuredContent`, or the value of a function.
    pub structured: Option<Json>,
    /// The tool says that it failed.
    pub is_error: bool,
    /// `_meta`.
    pub meta: Option<Json>,
}

/// The tool could not be run, or broke off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFailure {
    /// What happened; bounded and escaped as a result is.
    pub message: String,
}
