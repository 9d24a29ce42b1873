//! The tools of our own server, as data: names, words for the model, schemas.

use gate::call::ToolFacts;
use policy::tools::Effect;
use serde_json::{Value as Json, json};

/// What a tool does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolAction {
    /// Code of a language in a fresh sandbox.
    RunCode,
    /// A program and its arguments in a fresh sandbox.
    RunCommand,
    /// A file, read in a sandbox.
    ReadFile,
    /// A file, written in a sandbox.
    WriteFile,
    /// A folder, listed in a sandbox.
    ListFiles,
    /// What a run changed.
    Diff,
    /// What a run changed, taken over.
    Apply,
    /// An id, explained.
    Explain,
}

/// One tool.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub deed: ToolAction,
    /// Whether it only looks.
    effect: Effect,
    about: &'static str,
    schema: fn() -> Json,
}

#[expect(clippy::needless_pass_by_value, reason = "the values are literals of the table below")]
fn object(properties: Json, required: &[&str]) -> Json {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn path() -> Json {
    json!({ "type": "string", "minLength": 1, "maxLength": 4096, "description": "Path, relative to the workspace" })
}

fn run() -> Json {
    json!({ "type": "string", "maxLength": 64, "description": "The run, as its result named it" })
}

fn args() -> Json {
    json!({ "type": "array", "maxItems": 1000, "items": { "type": "string", "maxLength": 65536 } })
}

/// Every tool.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "run_code",
        deed: ToolAction::RunCode,
        effect: Effect::Write,
        about: "Run code in a fresh sandbox. What it changes in the workspace is kept aside under the run's id: see diff, apply.",
        schema: || {
            object(
                json!({
                    "language": { "type": "string", "maxLength": 32, "description": "python, bash, javascript, ..." },
                    "code": { "type": "string", "maxLength": 1_048_576 },
                    "args": args(),
                }),
                &["language", "code"],
            )
        },
    },
    Tool {
        name: "run_command",
        deed: ToolAction::RunCommand,
        effect: Effect::Write,
        about: "Run a program in a fresh sandbox, without a shell. What it changes in the workspace is kept aside under the run's id.",
        schema: || {
            let words = "The program and its arguments, one text each";
            let item = json!({ "type": "string", "maxLength": 65536 });
            let command =
                json!({ "type": "array", "minItems": 1, "maxItems": 1000, "items": item, "description": words });
            object(json!({ "command": command }), &["command"])
        },
    },
    Tool {
        name: "read_file",
        deed: ToolAction::ReadFile,
        effect: Effect::Read,
        about: "Read a file as the sandbox sees it.",
        schema: || object(json!({ "path": path() }), &["path"]),
    },
    Tool {
        name: "write_file",
        deed: ToolAction::WriteFile,
        effect: Effect::Write,
        about: "Write a whole file. It is kept aside under the run's id until that is applied.",
        schema: || {
            object(
                json!({ "path": path(), "content": { "type": "string", "maxLength": 1_048_576 } }),
                &["path", "content"],
            )
        },
    },
    Tool {
        name: "list_files",
        deed: ToolAction::ListFiles,
        effect: Effect::Read,
        about: "List a folder as the sandbox sees it; folders end with a slash.",
        schema: || object(json!({ "path": path() }), &[]),
    },
    Tool {
        name: "diff",
        deed: ToolAction::Diff,
        effect: Effect::Read,
        about: "Show what a run changed in the workspace, with the digest that apply wants.",
        schema: || object(json!({ "run": run() }), &["run"]),
    },
    Tool {
        name: "apply",
        deed: ToolAction::Apply,
        effect: Effect::Write,
        about: "Take over into the workspace exactly what diff showed under this digest. All or nothing.",
        schema: || {
            let digest = json!({ "type": "string", "maxLength": 128, "description": "From diff" });
            object(json!({ "run": run(), "digest": digest, "files": args() }), &["run", "digest"])
        },
    },
    Tool {
        name: "explain_denial",
        deed: ToolAction::Explain,
        effect: Effect::Read,
        about: "Explain the id of a denial, refusal, violation or limit: what, why, and what to do instead.",
        schema: || object(json!({ "id": { "type": "string", "minLength": 1, "maxLength": 100 } }), &["id"]),
    },
];

impl Tool {
    /// As a client sees it.
    #[must_use]
    pub fn definition(&self) -> Json {
        let reads = self.effect == Effect::Read;
        json!({
            "name": self.name, "description": self.about, "inputSchema": (self.schema)(),
            "annotations": { "readOnlyHint": reads, "destructiveHint": self.deed == ToolAction::Apply, "openWorldHint": false },
        })
    }

    /// As the gate sees it.
    #[must_use]
    pub fn facts(&self) -> ToolFacts {
        ToolFacts { effect: Some(self.effect), input_schema: Some((self.schema)()), ..ToolFacts::default() }
    }
}

/// Whether arguments are those of the tool.
///
/// # Errors
/// What is wrong, for the model.
pub(super) fn fits(tool: &Tool, args: &Json) -> Result<(), String> {
    let schema = (tool.schema)();
    let known = schema.get("properties").and_then(Json::as_object);
    let given = args.as_object().ok_or("the arguments are no object")?;
    for (name, value) in given {
        let Some(rule) = known.and_then(|known| known.get(name)) else {
            return Err(format!("`{}` is no argument of {}", gateway::mcp::text::shown(name, 60), tool.name));
        };
        check(rule, value).map_err(|why| format!("`{name}` {why}"))?;
    }
    for name in schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str) {
        if !given.contains_key(name) {
            return Err(format!("`{name}` is missing"));
        }
    }
    Ok(())
}

/// The few words of JSON Schema that our own schemas use.
fn check(rule: &Json, value: &Json) -> Result<(), &'static str> {
    let bound = |key: &str| rule.get(key).and_then(Json::as_u64).and_then(|most| usize::try_from(most).ok());
    match (rule.get("type").and_then(Json::as_str), value) {
        (Some("string"), Json::String(text)) => {
            let length = text.chars().count();
            let fits = bound("minLength").is_none_or(|least| length >= least)
                && bound("maxLength").is_none_or(|most| length <= most);
            match (fits, text.contains('\0')) {
                (true, false) => Ok(()),
                (false, _) => Err("is too short or too long"),
                (true, true) => Err("holds a NUL"),
            }
        }
        (Some("array"), Json::Array(items)) => {
            let fits = bound("minItems").is_none_or(|least| items.len() >= least)
                && bound("maxItems").is_none_or(|most| items.len() <= most);
            if !fits {
                return Err("has too few or too many items");
            }
            items.iter().try_for_each(|item| check(rule.get("items").unwrap_or(&Json::Null), item))
        }
        _ => Err("is of another type"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(name: &str, args: &Json) -> Result<(), String> {
        fits(TOOLS.iter().find(|tool| tool.name == name).unwrap(), args)
    }

    #[test]
    fn arguments_are_those_of_the_schema_and_no_others() {
        assert_eq!(fit("run_command", &json!({"command": ["ls", "-l"]})), Ok(()));
        assert_eq!(fit("list_files", &json!({})), Ok(()));
        for (name, args) in [
            ("run_command", json!({"command": "ls -l"})),
            ("run_command", json!({"command": []})),
            ("run_command", json!({"command": ["ls", 1]})),
            ("run_command", json!({"command": ["ls"], "policy": "none"})),
            ("read_file", json!({"path": ""})),
            ("read_file", json!({"path": "a\0b"})),
            ("read_file", json!({})),
            ("run_code", json!({"language": "python", "code": 5})),
            ("diff", json!([])),
        ] {
            assert!(fit(name, &args).is_err(), "{name} {args}");
        }
    }

    #[test]
    fn every_schema_is_one_and_knows_its_required_arguments() {
        for tool in TOOLS {
            let schema = (tool.schema)();
            let properties = schema["properties"].as_object().unwrap();
            assert!(
                schema["required"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|name| properties.contains_key(name.as_str().unwrap()))
            );
            assert_eq!(schema["additionalProperties"], false);
        }
    }
}
