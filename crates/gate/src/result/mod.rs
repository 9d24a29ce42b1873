//! What a tool answers, before and after it is bounded.
//!
//! Promises of [`Bounds::bound`], over text, structured content, resources, links and `_meta` alike: what the patterns
//! name is replaced, also where it is spread over two parts or broken up by marks that cannot be seen; nothing that comes
//! out acts on a terminal, hides, or turns the direction of text; a picture is what it says it is; structured content fits
//! the tool's own schema; all of it together has at most so many bytes, head and tail kept and the loss named; it is
//! labelled as data; bytes (base64) in which a pattern matches are withheld. Does not promise: to recognise a secret that is
//! encoded in another way (base64 in a text, another language), nor that a model
//! does not do what a text tells it.

mod bounds;
mod cut;
mod media;
mod redact;
mod shape;
mod visible;

use serde_json::{Value as Json, json};

pub use bounds::{Bounded, Bounds};
pub use shape::Shapes;

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

impl Content {
    /// In the shape of MCP; what is not known is null.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Self::Text(text) => json!({ "type": "text", "text": text }),
            Self::Image { mime, data } => json!({ "type": "image", "mimeType": mime, "data": data }),
            Self::Audio { mime, data } => json!({ "type": "audio", "mimeType": mime, "data": data }),
            Self::ResourceText { uri, mime, text } => {
                json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime, "text": text } })
            }
            Self::ResourceBlob { uri, mime, blob } => {
                json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime, "blob": blob } })
            }
            Self::Link { uri, name, description, mime } => json!({
                "type": "resource_link", "uri": uri, "name": name, "description": description, "mimeType": mime,
            }),
        }
    }
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
