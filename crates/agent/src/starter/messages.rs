//! What the agent and its starters say to one another: a length (u32) and JSON, and descriptors beside an order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::frame::MAX_WORDS;
use crate::words::{Exited, Failure};

/// A program to start; its descriptors come along: 0, 1 and 2, or a terminal alone.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) id: u64,
    pub(crate) argv: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: Option<String>,
    pub(crate) tty: bool,
}

/// What a starter says, and the maker of starters its first word.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum StarterMessage {
    /// It is there, under this number; whether its programs are kept from signalling the agent, and whether what they leave behind
    /// carries a mark, because the kernel lets nobody adopt it.
    Ready {
        guarded: bool,
        marks: bool,
        pid: i32,
    },
    Started {
        id: u64,
        pid: i32,
    },
    Failed {
        id: u64,
        failure: Failure,
    },
    /// The program has ended; whether something that it left behind still runs.
    Exited {
        id: u64,
        exited: Exited,
        left: bool,
    },
    /// Nothing that the last program left behind runs any more.
    Empty,
}
/// The bytes of a message.
pub(crate) fn encode(message: &impl Serialize) -> Option<Vec<u8>> {
    let words = serde_json::to_vec(message).ok()?;
    let length = u32::try_from(words.len()).ok()?;
    Some([&length.to_le_bytes(), &words[..]].concat())
}

/// Takes the first message out of what came: `Ok(None)` = more is needed.
///
/// # Errors
/// It is no such message.
pub(crate) fn decode<T: for<'a> Deserialize<'a>>(inbox: &mut Vec<u8>) -> Result<Option<T>, ()> {
    let Some((length, rest)) = inbox.split_first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    // A request and the little that is added to it.
    if length > 2 * MAX_WORDS {
        return Err(());
    }
    let Some(words) = rest.get(..length) else { return Ok(None) };
    let message = serde_json::from_slice(words).map_err(drop)?;
    inbox.drain(..length.saturating_add(4));
    Ok(Some(message))
}
