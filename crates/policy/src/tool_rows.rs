//! One row per key of `[tools]` and `[mcp]`: from here come the JSON Schema of these tables and `docs/reference/tools.md`.

use std::fmt::{self, Write as _};

use serde_json::{Map, Value, json};

use crate::units::{SIZE_PATTERN, TIME_PATTERN};

/// What a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One of these words.
    Words(&'static [&'static str]),
    /// One of these words, or a table with the keys whose rows begin with this path.
    WordOr(&'static [&'static str], &'static str),
    /// A text.
    Text,
    /// A list of texts.
    Texts,
    /// A whole number in a range.
    Whole(u64, u64),
    /// A number of at least 0.
    Amount,
    /// true or false.
    Truth,
    /// A size with its unit.
    Size,
    /// A duration with its unit.
    Time,
    /// A JSON Schema: a table, a text of JSON, or `{ file }`.
    Schema,
    /// A table of texts.
    Names,
    /// Anything.
    Any,
    /// A list of anything.
    List,
    /// A table with the keys whose rows begin with this path.
    Table(&'static str),
    /// A list of such tables.
    Tables(&'static str),
    /// Such tables by name.
    ByName(&'static str),
    /// A guard of one of the kinds, by argument.
    Guards,
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Path of the table that it stands in.
    pub table: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub form: Form,
    /// Whether it must be there, or what counts when it is not.
    pub default: Option<&'static str>,
    /// What it does.
    pub about: &'static str,
}

const fn key(
    table: &'static str,
    name: &'static str,
    form: Form,
    default: Option<&'static str>,
    about: &'static str,
) -> Key {
    Key { table, name, form, default, about }
}

const BY: Form = Form::Words(&["session", "agent", "key", "gateway"]);
const APPROVALS: &[&str] = &["never", "first", "always"];
const DECISIONS: Form = Form::Words(&["allow", "ask", "deny"]);

/// Every key.
pub const KEYS: &[Key] = &[
    key(
        "tools",
        "default",
        Form::Words(&["deny", "ask"]),
        Some("deny"),
        "What becomes of a tool that no entry names. Of several layers the stricter counts.",
    ),
    key(
        "tools",
        "tool",
        Form::Tables("tools.tool"),
        Some("none"),
        "Entries. Those of all layers count together: a later layer adds and never takes away.",
    ),
    key(
        "tools.tool",
        "name",
        Form::Text,
        None,
        "`tool` (a function), `server.tool` (MCP; clients see `server__tool`), or a glob within one server: `server.*`, `server.get_*`. `*` alone is every tool. Compared byte for byte.",
    ),
    key(
        "tools.tool",
        "decision",
        DECISIONS,
        Some("deny"),
        "What becomes of a call that passes all the rest of this entry. Of all entries that match, deny counts before ask before allow.",
    ),
    key(
        "tools.tool",
        "effect",
        Form::Words(&["read", "write"]),
        Some("write"),
        "Whether the tool changes something. The tool's own annotations can raise it and never lower it. A write needs an entry with its exact name.",
    ),
    key(
        "tools.tool",
        "schema",
        Form::Schema,
        Some("the tool's own"),
        "JSON Schema 2020-12 of the arguments, beside the tool's own: both must fit. A table, a text of JSON, or `{ file = \"x.json\" }`, relative to the document. What it does not name is refused unless it says `additionalProperties`.",
    ),
    key(
        "tools.tool",
        "guards",
        Form::Guards,
        Some("none"),
        "What an argument must be, by its name: `to`, `message.to`, `recipients[]` (each element). A guard parses what it guards, and what it parsed is what the tool gets. An argument that is not given is not judged: the schema says what must be given. A guard of what the schema does not let in (the policy's, or the tool's own) denies every call: `tools.guard/no-argument`. `user.email` is also an argument of that name.",
    ),
    key(
        "tools.tool",
        "rules",
        Form::Tables("tools.tool.rules"),
        Some("none"),
        "Conditions in CEL. Where one is true, its decision counts if it is stricter; where one cannot be evaluated, the call is denied.",
    ),
    key(
        "tools.tool",
        "rate",
        Form::Table("tools.tool.rate"),
        Some("none"),
        "How often. All tools that a glob matches count together.",
    ),
    key(
        "tools.tool",
        "budget",
        Form::Table("tools.tool.budget"),
        Some("none"),
        "At what cost. Reserved before the call, settled after it.",
    ),
    key(
        "tools.tool",
        "concurrency",
        Form::Whole(1, 100_000),
        Some("none"),
        "How many calls at once. One that was given up counts until its tool is known to work no more.",
    ),
    key(
        "tools.tool",
        "timeout",
        Form::Time,
        Some("10m"),
        "How long one call may take. Of several entries that say so the least counts.",
    ),
    key(
        "tools.tool",
        "result",
        Form::Table("tools.tool.result"),
        Some("1M, all kinds"),
        "What may come back. Of several entries all count.",
    ),
    key(
        "tools.tool",
        "approval",
        Form::WordOr(APPROVALS, "tools.tool.approval"),
        Some("never"),
        "Whether a person is asked although the rest allows: about the first such call of a session, or about every one. A table also says who may answer: `approval.by`.",
    ),
    key(
        "tools.tool",
        "examples",
        Form::Tables("tools.tool.examples"),
        Some("none"),
        "Calls and what must become of them. Tried when the policy loads; one that comes out otherwise is a mistake. `now` is then Monday, 5 January 2026, 12:00 UTC, and every counter is 0.",
    ),
    key(
        "tools.tool.rules",
        "when",
        Form::Text,
        None,
        "The condition, over `args`, `session`, `agent`, `counters` and `now`; at most 4096 bytes.",
    ),
    key(
        "tools.tool.rules",
        "decision",
        Form::Words(&["ask", "deny"]),
        Some("deny"),
        "What becomes of calls for which it is true.",
    ),
    key("tools.tool.rules", "message", Form::Text, Some("the condition"), "What the model is told."),
    key(
        "tools.tool.approval",
        "when",
        Form::Words(APPROVALS),
        Some("never"),
        "As the word alone: whether a person is asked although the rest allows.",
    ),
    key(
        "tools.tool.approval",
        "by",
        Form::Words(&["anyone", "person"]),
        Some("`person` for writes, `anyone` for reads"),
        "Who may answer, whatever the reason for asking. `person`: somebody at a terminal, over HTTP with an approver's key, or a webhook, never the client that makes the call; it may be the agent's own. `anyone`: that client as well. Of several entries `person` counts before `anyone`.",
    ),
    key("tools.tool.rate", "calls", Form::Whole(1, 1_000_000_000), None, "Calls in any window."),
    key("tools.tool.rate", "per", Form::Time, None, "Length of the window."),
    key("tools.tool.rate", "burst", Form::Whole(1, 1_000_000_000), Some("calls"), "How many may come at once."),
    key(
        "tools.tool.rate",
        "by",
        BY,
        Some("agent"),
        "Whose calls count together. What a caller says of itself plays no part.",
    ),
    key("tools.tool.budget", "cost", Form::Amount, None, "The most that one call costs: this is reserved."),
    key(
        "tools.tool.budget",
        "reported",
        Form::Text,
        Some("none: `cost` counts"),
        "JSON Pointer into the result, where the tool says what it did cost.",
    ),
    key("tools.tool.budget", "limit", Form::Amount, Some("none"), "The most in one window; goes with `per`."),
    key("tools.tool.budget", "per", Form::Time, Some("none"), "Length of the window."),
    key("tools.tool.budget", "total", Form::Amount, Some("none"), "The most ever."),
    key("tools.tool.budget", "unit", Form::Text, Some("units"), "`usd`, `tokens`: a word for people."),
    key("tools.tool.budget", "by", BY, Some("agent"), "Whose spending counts together."),
    key("tools.tool.result", "max", Form::Size, Some("1M"), "Most bytes that reach the caller."),
    key("tools.tool.result", "redact", Form::Texts, Some("none"), "Patterns whose matches are replaced."),
    key(
        "tools.tool.result",
        "types",
        Form::Texts,
        Some("all"),
        "Kinds of content that may come back: `text`, `structured`, `image`, `audio`, `resource`, `link`.",
    ),
    key("tools.tool.examples", "tool", Form::Text, Some("the entry's name"), "The tool, where the entry is a glob."),
    key("tools.tool.examples", "args", Form::Any, Some("{}"), "Its arguments."),
    key("tools.tool.examples", "expect", DECISIONS, None, "What must come out, of the whole policy."),
    key("email", "domains", Form::Texts, Some("any"), "Domains, compared by whole labels after IDNA."),
    key("email", "subdomains", Form::Truth, Some("false"), "Whether domains below them count."),
    key(
        "path",
        "roots",
        Form::Texts,
        Some("`dangerous-roots`"),
        "Folders; the path is resolved beneath one of them by the kernel, and the resolved path is passed on.",
    ),
    key(
        "path",
        "dangerous-roots",
        Form::Texts,
        Some("none"),
        "Roots that hold more than they say: `/`, a home, `/proc`, credentials. `roots` refuses them.",
    ),
    key(
        "path",
        "access",
        Form::Words(&["read", "write"]),
        Some("read"),
        "What the path is for. `write` refuses control files at any depth, and everything in a folder of version control: the list is that of `fs.protect`, with repositories under other names and the documents of the policy, and without what git's configuration names ([guards](guards.md#path)).",
    ),
    key("path", "extensions", Form::Texts, Some("any"), "Allowed extensions, `.csv`, of the resolved file."),
    key("path", "hide", Form::Texts, Some("none"), "Globs, relative to a root, that are out of reach."),
    key("url", "schemes", Form::Texts, Some("https"), "Allowed schemes."),
    key(
        "url",
        "hosts",
        Form::Texts,
        Some("none"),
        "Allowed hosts, `example.com` or `*.example.com` (every name below it, of any depth; in `net.allow` that is `**.example.com`); `public` is any host of the public network: no private, loopback, link-local or metadata address, no name of one label or of a network's own (`.local`, `.internal`).",
    ),
    key("url", "ports", Form::List, Some("the scheme's own"), "Allowed ports."),
    key(
        "url",
        "private",
        Form::Truth,
        Some("false"),
        "Whether private, link-local, loopback and metadata addresses may be named.",
    ),
    key(
        "sql",
        "dialect",
        Form::Words(&["postgresql", "sqlite", "mysql", "generic"]),
        None,
        "Whose rules the text is read by.",
    ),
    key("sql", "statements", Form::Whole(1, 16), Some("1"), "Most statements."),
    key("sql", "read_only", Form::Truth, Some("true"), "Whether only reading is allowed."),
    key("sql", "tables", Form::Texts, Some("none"), "Tables that may be named; none allows none."),
    key(
        "sql",
        "columns",
        Form::Texts,
        Some("all of the tables"),
        "Columns that may be named, `table.column` or `table.*`.",
    ),
    key("sql", "functions", Form::Texts, Some("the harmless built-ins"), "Further functions that may be called."),
    key(
        "command",
        "root",
        Form::Text,
        None,
        "The folder in which the command runs. The other keys are those of `[commands]`.",
    ),
    key("command", "programs", Form::List, Some("none"), "As `commands.programs`."),
    key("command", "presets", Form::Texts, Some("none"), "As `commands.presets`."),
    key("command", "wrappers", Form::Texts, Some("none"), "As `commands.wrappers`."),
    key("command", "env", Form::Texts, Some("none"), "As `commands.env`."),
    key("command", "write", Form::Texts, Some("none"), "As `commands.write`."),
    key("command", "read", Form::Texts, Some("the root and `write`"), "As `commands.read`."),
    key("command", "block", Form::Texts, Some("none"), "As `commands.block`."),
    key("enum", "values", Form::List, None, "The values, compared in type and content."),
    key("number", "min", Form::Any, Some("none"), "The least; part of the range. Compared as decimals."),
    key("number", "max", Form::Any, Some("none"), "The greatest; part of the range."),
    key("number", "integer", Form::Truth, Some("false"), "Whether only whole numbers pass."),
    key("length", "min", Form::Whole(0, 1 << 40), Some("none"), "Least characters of a text, or elements of a list."),
    key("length", "max", Form::Whole(0, 1 << 40), Some("none"), "Most of them."),
    key(
        "pattern",
        "pattern",
        Form::Text,
        None,
        "A regular expression that matches the whole text, on a linear engine.",
    ),
    key(
        "mcp",
        "servers",
        Form::ByName("mcp.servers"),
        Some("none"),
        "Upstream servers, by the name that stands before the dot in tools.",
    ),
    key("mcp", "resources", Form::Texts, Some("none"), "Resources that may be listed and read: `server:glob`."),
    key(
        "mcp",
        "prompts",
        Form::Texts,
        Some("none"),
        "Prompts that may be listed and got: `server.name`, globs within one server.",
    ),
    key("mcp", "sampling", Form::Texts, Some("none"), "Servers that may ask the client's model."),
    key("mcp", "elicitation", Form::Texts, Some("none"), "Servers that may ask the client's user."),
    key("mcp", "roots", Form::Texts, Some("none"), "Servers that may learn the client's roots."),
    key(
        "mcp.servers",
        "command",
        Form::Text,
        Some("one of three"),
        "A program, started in a sandbox of its own and spoken to over its standard streams.",
    ),
    key("mcp.servers", "args", Form::Texts, Some("none"), "Its arguments."),
    key("mcp.servers", "url", Form::Text, Some("one of three"), "A server over streamable HTTP."),
    key(
        "mcp.servers",
        "headers",
        Form::Names,
        Some("none"),
        "With `url`: headers of every request, by name; each value is `env:NAME` or `WORD env:NAME`, and never the secret itself.",
    ),
    key("mcp.servers", "import", Form::Text, Some("one of three"), "A client's file of `mcpServers`, read as it is."),
    key("mcp.servers", "env", Form::Names, Some("none"), "Variables of the server, beside what its policy gives."),
    key("mcp.servers", "policy", Form::Text, Some("strict"), "The policy of its sandbox: a preset, or a file."),
];

/// Kinds of guards.
pub const KINDS: &[(&str, &str)] = &[
    ("email", "One plain address. No second one, no comment, no display name, no line break."),
    ("path", "A path that resolves beneath a root."),
    ("url", "A URL; passed on as serialised."),
    ("sql", "Statements of one database, judged on their tree and passed on as printed from it."),
    ("command", "A command line, or a list of words; judged as `[commands]` judges."),
    ("enum", "One of these values."),
    ("number", "A number within bounds."),
    ("length", "A text or list of a length."),
    ("pattern", "A text that a pattern matches as a whole."),
];

fn of(table: &str) -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(move |key| key.table == table)
}

/// The JSON Schema of `tools` or `mcp`.
pub(crate) fn schema(table: &str) -> Value {
    let properties: Map<String, Value> = of(table).map(|key| (key.name.to_owned(), described(key))).collect();
    let required: Vec<&str> = of(table).filter(|key| key.default.is_none()).map(|key| key.name).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties, "required": required })
}

fn described(key: &Key) -> Value {
    let mut schema = form(key.form);
    if let Value::Object(map) = &mut schema {
        map.insert("description".to_owned(), json!(key.about));
    }
    schema
}

fn form(form: Form) -> Value {
    match form {
        Form::Words(words) => json!({ "enum": words }),
        Form::WordOr(words, path) => json!({ "anyOf": [{ "enum": words }, schema(path)] }),
        Form::Text => json!({ "type": "string" }),
        Form::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Form::Whole(from, to) => json!({ "type": "integer", "minimum": from, "maximum": to }),
        Form::Amount => json!({ "type": "number", "minimum": 0 }),
        Form::Truth => json!({ "type": "boolean" }),
        Form::Size => json!({ "type": "string", "pattern": SIZE_PATTERN }),
        Form::Time => json!({ "type": "string", "pattern": TIME_PATTERN }),
        Form::Schema => json!({ "type": ["object", "string"] }),
        Form::Names => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        Form::Any => json!({}),
        Form::List => json!({ "type": "array" }),
        Form::Table(path) => schema(path),
        Form::Tables(path) => json!({ "type": "array", "items": schema(path) }),
        Form::ByName(path) => json!({ "type": "object", "additionalProperties": schema(path) }),
        Form::Guards => {
            // A table without a `kind` is about the parts of an argument, so no more can be said of its values here.
            let kinds: Vec<Value> = KINDS.iter().map(|(kind, about)| guard(kind, about)).collect();
            let parts = json!({ "type": "object", "not": { "properties": { "kind": { "type": "string" } }, "required": ["kind"] } });
            let any: Vec<Value> = kinds.into_iter().chain([parts]).collect();
            json!({ "type": "object", "additionalProperties": { "anyOf": any } })
        }
    }
}

fn guard(kind: &str, about: &str) -> Value {
    let mut schema = schema(kind);
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.insert("kind".to_owned(), json!({ "const": kind, "description": about }));
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.insert(0, json!("kind"));
    }
    schema
}

const HEAD: &str = include_str!("reference/tools.md");

/// `docs/reference/tools.md`.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(HEAD);
    // Writing to a `String` cannot fail.
    let written = write_tables(&mut page);
    debug_assert!(written.is_ok());
    page
}

fn write_tables(page: &mut String) -> fmt::Result {
    let tables = [
        ("tools", "`[tools]`"),
        ("tools.tool", "`[[tools.tool]]`"),
        ("tools.tool.rules", "`rules`"),
        ("tools.tool.rate", "`rate`"),
        ("tools.tool.budget", "`budget`"),
        ("tools.tool.result", "`result`"),
        ("tools.tool.approval", "`approval`"),
        ("tools.tool.examples", "`examples`"),
    ];
    for (table, title) in tables {
        writeln!(page, "\n## {title}\n")?;
        write_table(page, table)?;
    }
    page.push_str("\n## `guards`\n\n| kind | passes |\n| --- | --- |\n");
    for (kind, about) in KINDS {
        writeln!(page, "| `{kind}` | {about} |")?;
    }
    for (kind, _) in KINDS {
        writeln!(page, "\n### kind `{kind}`\n")?;
        write_table(page, kind)?;
    }
    for (table, title) in [("mcp", "`[mcp]`"), ("mcp.servers", "`[mcp.servers.NAME]`")] {
        writeln!(page, "\n## {title}\n")?;
        write_table(page, table)?;
    }
    Ok(())
}

fn write_table(page: &mut String, table: &str) -> fmt::Result {
    page.push_str("| key | value | if not written | |\n| --- | --- | --- | --- |\n");
    for Key { table: _, name, form, default, about } in of(table) {
        let default = default.unwrap_or("must be written");
        writeln!(page, "| `{name}` | {} | {default} | {about} |", shown(*form))?;
    }
    Ok(())
}

fn shown(form: Form) -> String {
    match form {
        Form::Words(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Form::WordOr(words, path) => format!("{}, or table, see `{}`", shown(Form::Words(words)), last(path)),
        Form::Text => "text".to_owned(),
        Form::Texts => "list of texts".to_owned(),
        Form::Whole(from, to) => format!("{from} to {to}"),
        Form::Amount => "number, at most six decimals".to_owned(),
        Form::Truth => "true or false".to_owned(),
        Form::Size => "size".to_owned(),
        Form::Time => "duration".to_owned(),
        Form::Schema => "table, text or `{ file }`".to_owned(),
        Form::Names => "table of texts".to_owned(),
        Form::Any => "value".to_owned(),
        Form::List => "list".to_owned(),
        Form::Table(path) => format!("table, see `{}`", last(path)),
        Form::Tables(path) => format!("list of tables, see `{}`", last(path)),
        Form::ByName(_) => "tables by name".to_owned(),
        Form::Guards => "table by argument, see `guards`".to_owned(),
    }
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}
