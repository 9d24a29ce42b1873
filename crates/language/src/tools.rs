//! Calls of tools: a line of JSON goes out by the socket that is stdin, and a line comes back. Whoever has the other end lets
//! the policy's gate judge each call; nothing of that is here.

use std::io::{BufRead as _, Read as _};

use serde_json::{Map, Value as Json, json};

/// What a program calls.
pub(crate) const NAME: &str = "tool";
/// Most calls of one program.
pub(crate) const MAX_CALLS: usize = 100_000;
/// Longest line, both ways.
const MAX_LINE: usize = 4 << 20;

/// Why a call has no result.
#[derive(Debug)]
pub(crate) enum NoResult {
    /// The gate denies it.
    Denied(String),
    /// The tool failed, or nobody answers.
    Failed(String),
    /// The arguments are more than a line.
    TooLarge,
}

/// Calls a tool.
pub(crate) fn call(tool: &str, args: &Map<String, Json>) -> Result<Json, NoResult> {
    let line = json!({ "tool": tool, "args": args }).to_string();
    if line.len() > MAX_LINE {
        return Err(NoResult::TooLarge);
    }
    let mut answer = asked(line).map_err(NoResult::Failed)?;
    let words = |name: &str| answer.get(name).and_then(Json::as_str).map(str::to_owned);
    if let Some(why) = words("denied") {
        return Err(NoResult::Denied(why));
    }
    if let Some(why) = words("failed") {
        return Err(NoResult::Failed(why));
    }
    Ok(answer.get_mut("result").map(Json::take).unwrap_or_default())
}

/// One line there, one line back.
fn asked(mut line: String) -> Result<Json, String> {
    line.push('\n');
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(rustix::stdio::stdin(), rest) {
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(format!("nobody takes calls of tools: {errno}")),
        }
    }
    let mut answer = Vec::new();
    let most = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
    let mut input = std::io::stdin().lock().take(most);
    input.read_until(b'\n', &mut answer).map_err(|error| format!("the answer of a tool was lost: {error}"))?;
    if answer.pop() != Some(b'\n') {
        return Err("the answer of a tool was lost".to_owned());
    }
    serde_json::from_slice(&answer).map_err(|error| format!("the answer of a tool cannot be read: {error}"))
}
