//! A command line as an argument: judged exactly as `[commands]` judges one, by the same judge.

use std::ffi::OsString;
use std::path::PathBuf;

use policy::commands::Commands;
use policy::diagnostic::quote;
use serde_json::Value as Json;

use super::{Flaws, Passed, kind_of};
use crate::blocked::Blocked;
use crate::command::{Judge, JudgeOptions, Judgement};

const ID: &str = "tools.guard/command";

/// `kind = "command"`: text is a line for a shell, a list of texts is executed without one.
#[derive(Debug)]
pub(crate) struct CommandJudge {
    judge: Judge,
}

impl CommandJudge {
    pub(crate) fn new(commands: &Commands, flaws: &mut Flaws<'_>) -> Option<Self> {
        // Paths in a line mean nothing without the folder that they start from; the reader of the policy demands it.
        let root = commands.root.as_ref()?.value.clone();
        let options = JudgeOptions { inspect: Some(root.clone()), root, tree: PathBuf::from("/") };
        match Judge::new(commands, flaws.documents, options) {
            Ok(judge) => Some(Self { judge }),
            Err(mistakes) => {
                flaws.list.list.extend(mistakes.list);
                None
            }
        }
    }

    pub(crate) fn pass(&self, value: &Json) -> Result<Passed, Blocked> {
        let wrong = |what: String| {
            let why = "what would be executed cannot be told";
            Blocked::new(ID, what, why, "a command line as text, or its words as a list of texts")
        };
        let judgement = match value {
            Json::String(line) => self.judge.line(line),
            Json::Array(items) if !items.is_empty() => {
                let words: Option<Vec<OsString>> = items.iter().map(|item| item.as_str().map(OsString::from)).collect();
                self.judge.argv(&words.ok_or_else(|| wrong("the list has an element that is no text".to_owned()))?)
            }
            Json::Array(_) => return Err(wrong("the list is empty".to_owned())),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Object(_) => {
                return Err(wrong(format!("the value is {}", kind_of(value))));
            }
        };
        match judgement {
            Judgement::Allowed { .. } => Ok(value.clone()),
            Judgement::Refused(reasons) => Err(joined(value, reasons)),
        }
    }
}

/// All reasons in one: the first names the id, the others follow in its words.
fn joined(value: &Json, reasons: Vec<Blocked>) -> Blocked {
    let shown = || quote(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let mut reasons = reasons.into_iter();
    let Some(mut first) = reasons.next() else {
        return Blocked::new(
            ID,
            format!("{} does not pass", shown()),
            "it cannot be proven harmless",
            "another command",
        );
    };
    for other in reasons {
        first.why.push_str(&format!("; {}: {}", other.what, other.why));
    }
    first
}
