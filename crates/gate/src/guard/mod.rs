//! Typed guards: each parses the value that it guards, judges what was parsed, and passes on what it judged.
//!
//! *Promises*: what the tool gets is what was judged, never the text beside it: a URL as serialised, a path as resolved,
//! a statement as printed from its tree. What cannot be parsed does not pass. *Does not promise*: that the world
//! stays as it was judged: names are looked up again by whoever dials ([`judge_address`]), files can be renamed after the check
//! (the sandbox is the boundary), and what a query costs cannot be seen in it.

mod address;
mod command;
mod email;
mod path;
mod scalar;
mod sql;
mod url;

use policy::diagnostic::{Diagnostic, Diagnostics};
use policy::guards::Guard;
use policy::span::{Documents, Span};
use serde_json::Value as Json;

use crate::blocked::Blocked;
pub use address::{AddressFault, judge_address};
pub use path::{Opened, PathJudge};
pub use url::UrlJudge;

/// A value that passed: what the tool gets (a guard may normalise: a URL as serialised, a path as resolved).
pub type Passed = Json;

/// A guard, ready to judge: patterns compiled, names normalised.
#[derive(Debug)]
pub struct Compiled {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Email(email::EmailJudge),
    Path(PathJudge),
    Url(UrlJudge),
    Sql(Box<sql::SqlJudge>),
    Command(Box<command::CommandJudge>),
    Enum(scalar::Choices),
    Number(scalar::Bounds),
    Length(scalar::Lengths),
    Pattern(scalar::Whole),
}

impl Compiled {
    /// Compiles a guard.
    ///
    /// # Errors
    /// Everything in it that cannot be compiled, each at the place where it was written.
    pub fn new(guard: &Guard, documents: &Documents) -> Result<Self, Diagnostics> {
        let mut flaws = Flaws { documents, list: Diagnostics::default() };
        let kind = match guard {
            Guard::Email(guard) => email::EmailJudge::new(guard, &mut flaws).map(Kind::Email),
            Guard::Path(guard) => PathJudge::new(guard, &mut flaws).map(Kind::Path),
            Guard::Url(guard) => UrlJudge::new(guard, &mut flaws).map(Kind::Url),
            Guard::Sql(guard) => sql::SqlJudge::new(guard, &mut flaws).map(|judge| Kind::Sql(Box::new(judge))),
            Guard::Command(commands) => {
                command::CommandJudge::new(commands, &mut flaws).map(|judge| Kind::Command(Box::new(judge)))
            }
            Guard::Enum(values) => Some(Kind::Enum(scalar::Choices::new(values))),
            Guard::Number(guard) => Some(Kind::Number(scalar::Bounds::new(guard))),
            Guard::Length(guard) => Some(Kind::Length(scalar::Lengths::new(guard))),
            Guard::Pattern(pattern) => scalar::Whole::new(pattern, &mut flaws).map(Kind::Pattern),
        };
        match kind {
            Some(kind) if flaws.list.list.is_empty() => Ok(Self { kind }),
            Some(_) | None => Err(flaws.list),
        }
    }

    /// The judge of a URL guard, for whoever dials: it judges redirects and addresses.
    #[must_use]
    pub fn url(&self) -> Option<&UrlJudge> {
        if let Kind::Url(judge) = &self.kind { Some(judge) } else { None }
    }

    /// The judge of a path guard, for tools that run in this process and take a descriptor.
    #[must_use]
    pub fn path(&self) -> Option<&PathJudge> {
        if let Kind::Path(judge) = &self.kind { Some(judge) } else { None }
    }

    /// Judges a value.
    ///
    /// # Errors
    /// Why it does not pass, and what would.
    pub fn pass(&self, value: &Json) -> Result<Passed, Blocked> {
        match &self.kind {
            Kind::Email(judge) => judge.pass(value),
            Kind::Path(judge) => judge.pass(value),
            Kind::Url(judge) => judge.pass(value),
            Kind::Sql(judge) => judge.pass(value),
            Kind::Command(judge) => judge.pass(value),
            Kind::Enum(judge) => judge.pass(value),
            Kind::Number(judge) => judge.pass(value),
            Kind::Length(judge) => judge.pass(value),
            Kind::Pattern(judge) => judge.pass(value),
        }
    }
}

/// Gathers what is wrong with guards, at the places where they were written.
pub(crate) struct Flaws<'a> {
    pub(crate) documents: &'a Documents,
    pub(crate) list: Diagnostics,
}

impl Flaws<'_> {
    pub(crate) fn note(
        &mut self,
        at: Span,
        id: &str,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let at = self.documents.locate(at);
        let clause = Some(policy::ClauseId::Tools);
        let mistake = Diagnostic { id: id.to_owned(), clause, what: what.into(), at, why: why.into(), fix: fix.into() };
        self.list.list.push(mistake);
    }
}

/// The text of a value, or the refusal of one of another type.
pub(crate) fn text<'v>(value: &'v Json, id: &'static str, wanted: &str) -> Result<&'v str, Blocked> {
    value.as_str().ok_or_else(|| {
        let what = format!("the value is {}, not text", kind_of(value));
        Blocked::new(id, what, "a value of another type would have to be guessed at", format!("give {wanted} as text"))
    })
}

pub(crate) const fn kind_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "a number",
        Json::String(_) => "text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}
