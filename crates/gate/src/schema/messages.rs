//! What a validator found, in words for the model that made the call.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use policy::diagnostic::{did_you_mean, quote};
use serde_json::Value as Json;

use super::SchemaError;

/// A part of the arguments that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Stable id, `tools.schema/unknown-property`.
    pub id: &'static str,
    /// The part, `args.message.to`.
    pub part: String,
    /// JSON Pointer into the schema, to the keyword.
    pub pointer: String,
    /// What is wrong.
    pub what: String,
    /// Why.
    pub why: String,
    /// What would fit.
    pub instead: String,
}

/// What the schema of schemas says of a schema.
pub(super) fn meta(schema: &Json) -> Vec<SchemaError> {
    // Its structure was walked before: this looks at the types of keywords' values.
    let flaw = |error: ValidationError<'_>| SchemaError {
        id: "tools.schema/malformed",
        pointer: error.instance_path().to_string(),
        what: "the schema is not JSON Schema".to_owned(),
        why: one_line(&error.to_string()),
        fix: "write it as JSON Schema 2020-12".to_owned(),
    };
    jsonschema::draft202012::meta::validate(schema).err().map(flaw).into_iter().collect()
}

pub(super) fn one_line(text: &str) -> String {
    let text: String = text.lines().next().unwrap_or_default().chars().take(300).collect();
    policy::diagnostic::quote(&text).trim_matches('`').to_owned()
}

pub(super) fn unusable(why: &str) -> Misfit {
    Misfit {
        id: "tools.schema/unusable",
        part: "args".to_owned(),
        pointer: String::new(),
        what: "the schema of this tool cannot be used".to_owned(),
        why: why.to_owned(),
        instead: "nothing until the schema is mended".to_owned(),
    }
}

pub(super) fn too_long() -> Misfit {
    Misfit {
        id: "tools.schema/work",
        part: "args".to_owned(),
        pointer: String::new(),
        what: "to check these arguments would take too long".to_owned(),
        why: "the schema refers to itself in several branches, and the arguments are nested deep".to_owned(),
        instead: "arguments that are nested less deep".to_owned(),
    }
}

/// `args.rows[2].name` of `/rows/2/name`.
fn part(pointer: &str, args_like_index: bool) -> String {
    let mut out = String::from("args");
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        if args_like_index && !step.is_empty() && step.bytes().all(|c| c.is_ascii_digit()) {
            out.push_str(&format!("[{step}]"));
        } else {
            out.push('.');
            out.push_str(&step);
        }
    }
    out
}

/// One error of the validator.
pub(super) fn misfit(error: &ValidationError<'_>, schema: &Json) -> Misfit {
    let pointer = error.schema_path().to_string();
    let part = part(error.instance_path().as_str(), true);
    let shown = quote(&policy::json::canonical(error.instance()));
    let holder = pointer.rsplit_once('/').and_then(|(holder, _)| schema.pointer(holder)).unwrap_or(schema);
    let (id, what, why, instead) = text_of(error, &part, &shown, holder);
    Misfit { id, part, pointer, what, why, instead }
}

type Text = (&'static str, String, String, String);

fn text_of(error: &ValidationError<'_>, part: &str, shown: &str, holder: &Json) -> Text {
    let is = || format!("{} is {shown}", quote(part));
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "kinds of another library: those without words of their own follow"
    )]
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => unknown(part, unexpected, holder),
        ValidationErrorKind::FalseSchema => {
            let why = "the schema names nothing of that kind, and unknown arguments are refused".to_owned();
            let what = format!("{} may not be given", quote(part));
            ("tools.schema/unknown-property", what, why, "leave it out".to_owned())
        }
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            let what = format!("{} is missing", quote(&format!("{part}.{name}")));
            ("tools.schema/missing", what, "the schema requires it".to_owned(), format!("give {}", quote(name)))
        }
        ValidationErrorKind::Type { kind } => {
            let wanted = kinds(kind);
            let what = format!("{} is {}", quote(part), with_value(error.instance(), shown));
            let why = format!("the schema wants {wanted}, and nothing is converted");
            ("tools.schema/type", what, why, format!("give {wanted}"))
        }
        ValidationErrorKind::Enum { options } => {
            let all = options.as_array().into_iter().flatten().take(20).map(policy::json::canonical);
            let instead = format!("one of {}", quote(&all.collect::<Vec<_>>().join(", ")));
            ("tools.schema/value", is(), "the schema lists what it may be".to_owned(), instead)
        }
        ValidationErrorKind::Constant { expected_value } => {
            let only = quote(&policy::json::canonical(expected_value));
            ("tools.schema/value", is(), "the schema names the only value".to_owned(), format!("give {only}"))
        }
        ValidationErrorKind::Pattern { pattern } => {
            let instead = format!("text that {} matches", quote(pattern));
            ("tools.schema/pattern", is(), "the pattern does not match".to_owned(), instead)
        }
        ValidationErrorKind::Format { format } => {
            let instead = format!("text in the format {}", quote(format));
            ("tools.schema/format", is(), format!("it is no {}", quote(format)), instead)
        }
        other => bounds(other).map_or_else(
            || {
                let what = format!("{} does not fit", quote(part));
                let keyword = quote(other.keyword());
                let why = format!("the schema's {keyword} is not met by {shown}");
                ("tools.schema/misfit", what, why, format!("a value that meets {keyword}"))
            },
            |(id, why, instead)| (id, is(), why, instead),
        ),
    }
}

/// What is too small, too large, too short or too long.
fn bounds(kind: &ValidationErrorKind) -> Option<(&'static str, String, String)> {
    let range = |why: String, instead: String| Some(("tools.schema/range", why, instead));
    let length = |why: &str, instead: String| Some(("tools.schema/length", why.to_owned(), instead));
    #[expect(clippy::wildcard_enum_match_arm, reason = "the rest of another library's kinds bounds nothing")]
    match kind {
        ValidationErrorKind::Maximum { limit } => {
            range(format!("at most {limit} is allowed"), format!("{limit} or less"))
        }
        ValidationErrorKind::Minimum { limit } => {
            range(format!("at least {limit} is allowed"), format!("{limit} or more"))
        }
        ValidationErrorKind::ExclusiveMaximum { limit } => {
            range(format!("less than {limit} is allowed"), format!("less than {limit}"))
        }
        ValidationErrorKind::ExclusiveMinimum { limit } => {
            range(format!("more than {limit} is allowed"), format!("more than {limit}"))
        }
        ValidationErrorKind::MultipleOf { multiple_of } => {
            range(format!("multiples of {multiple_of} are allowed"), format!("a multiple of {multiple_of}"))
        }
        ValidationErrorKind::MaxLength { limit } => {
            length("the text is too long", format!("at most {limit} characters"))
        }
        ValidationErrorKind::MinLength { limit } => {
            length("the text is too short", format!("at least {limit} characters"))
        }
        ValidationErrorKind::MaxItems { limit } => length("the list is too long", format!("at most {limit} elements")),
        ValidationErrorKind::MinItems { limit } => {
            length("the list is too short", format!("at least {limit} elements"))
        }
        _ => None,
    }
}

fn unknown(part: &str, unexpected: &[String], holder: &Json) -> Text {
    let known: Vec<&str> = holder
        .get("properties")
        .and_then(Json::as_object)
        .into_iter()
        .flat_map(|all| all.keys().map(String::as_str))
        .collect();
    let first = unexpected.first().map(String::as_str).unwrap_or_default();
    let names: Vec<String> = unexpected.iter().take(10).map(|name| quote(&format!("{part}.{name}"))).collect();
    let instead = match did_you_mean(first, known.iter().copied()) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None if known.is_empty() => "leave it out".to_owned(),
        None => {
            format!("leave it out; there are {}", quote(&known.into_iter().take(30).collect::<Vec<_>>().join(", ")))
        }
    };
    let (verb, why) = if matches!(names.len(), 0 | 1) {
        ("is not known", "the schema does not name it, and unknown arguments are refused")
    } else {
        ("are not known", "the schema does not name them, and unknown arguments are refused")
    };
    ("tools.schema/unknown-property", format!("{} {verb}", names.join(", ")), why.to_owned(), instead)
}

fn kinds(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => type_name(&kind.to_string()).to_owned(),
        TypeKind::Multiple(kinds) => {
            kinds.iter().map(|kind| type_name(&kind.to_string()).to_owned()).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn type_name(kind: &str) -> &str {
    match kind {
        "string" => "text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "an object",
        other => other,
    }
}

fn with_value(value: &Json, shown: &str) -> String {
    match value {
        Json::Null => "null".to_owned(),
        Json::Bool(_) => format!("the truth value {shown}"),
        Json::Number(_) => format!("the number {shown}"),
        Json::String(_) => format!("the text {shown}"),
        Json::Array(_) => "a list".to_owned(),
        Json::Object(_) => "an object".to_owned(),
    }
}
