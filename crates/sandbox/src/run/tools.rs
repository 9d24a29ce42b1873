//! Tools that a program of the language tier calls: it has a socket for that and for nothing else, and what comes by it is
//! hostile. Each call is made by whoever starts the run, who lets a gate judge it.

use std::fmt::Debug;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Longest line, both ways.
const MAX_LINE: u64 = 4 << 20;

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoResult {
    /// The gate denies it; in words.
    Denied(String),
    /// The tool failed, or could not be run; in words.
    Failed(String),
}

/// Who makes the calls of a program, each one judged.
pub trait Tools: Debug + Send + Sync {
    /// Calls a tool with arguments as the program wrote them. Called by a thread of the run's own, one call after the other.
    ///
    /// # Errors
    /// There is no result.
    fn call(&self, tool: &str, args: &Map<String, Value>) -> Result<Value, NoResult>;

    /// The run is over: what was started for calls ends.
    fn end(&self) {}
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    tool: String,
    args: Map<String, Value>,
}

/// Serves calls until the program is gone, in a thread of its own.
///
/// # Errors
/// There can be no further thread.
pub(super) fn serve(socket: OwnedFd, tools: Option<Arc<dyn Tools>>) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("fumehood-tools".to_owned());
    thread.spawn(move || calls(UnixStream::from(socket), tools.as_deref())).map(drop)
}

/// Whatever is no call ends it: the program is then told that nobody answers.
fn calls(socket: UnixStream, tools: Option<&dyn Tools>) {
    sys::signals::block_all();
    let Ok(mut answers) = socket.try_clone() else { return };
    let mut lines = BufReader::new(socket);
    loop {
        let mut line = Vec::new();
        let read = lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        if read.is_err() || line.pop() != Some(b'\n') {
            return;
        }
        let Ok(Call { tool, args }) = serde_json::from_slice(&line) else { return };
        let result = match tools {
            Some(tools) => tools.call(&tool, &args),
            None => Err(NoResult::Failed("whoever started this run has no tools".to_owned())),
        };
        let answer = match result {
            Ok(result) => json!({ "result": result }),
            Err(NoResult::Denied(why)) => json!({ "denied": why }),
            Err(NoResult::Failed(why)) => json!({ "failed": why }),
        };
        let mut text = answer.to_string();
        if text.len() as u64 >= MAX_LINE {
            text = json!({ "failed": "the result is larger than a program of this tier can take" }).to_string();
        }
        text.push('\n');
        if answers.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Echo;

    impl Tools for Echo {
        fn call(&self, tool: &str, args: &Map<String, Value>) -> Result<Value, NoResult> {
            match tool {
                "echo" => Ok(json!(args)),
                "large" => Ok(json!("x".repeat(5 << 20))),
                _ => Err(NoResult::Denied(format!("{tool} is not allowed"))),
            }
        }
    }

    /// What is answered to these bytes, until nobody answers any more.
    fn said(bytes: &[u8], tools: Option<Arc<dyn Tools>>) -> String {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        serve(theirs.into(), tools).unwrap();
        ours.write_all(bytes).unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn calls_are_answered_in_their_order_and_what_is_none_ends_it() {
        let tools = || Some(Arc::new(Echo) as Arc<dyn Tools>);
        let call = |tool: &str| format!("{{\"tool\":\"{tool}\",\"args\":{{\"n\":1}}}}\n");
        let all = call("echo") + &call("other") + &call("large");
        let answers = said(all.as_bytes(), tools());
        let lines: Vec<&str> = answers.lines().collect();
        assert_eq!(lines.len(), 3, "{answers}");
        assert_eq!(lines[..2], ["{\"result\":{\"n\":1}}", "{\"denied\":\"other is not allowed\"}"]);
        assert!(lines[2].contains("larger than a program"), "{}", lines[2]);
        for wrong in
            ["x\n", "{}\n", "{\"tool\":1,\"args\":{}}\n", "{\"tool\":\"echo\",\"args\":{},\"more\":1}\n", "{\"tool\""]
        {
            assert_eq!(said(format!("{wrong}{}", call("echo")).as_bytes(), tools()), "", "{wrong}");
        }
        assert!(said(call("echo").as_bytes(), None).contains("has no tools"));
    }
}
