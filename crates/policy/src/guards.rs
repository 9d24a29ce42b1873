//! Guards: what an argument must be, by its kind. A guard parses what it guards and is never a search in text.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value as Json;

use crate::commands::Commands;
use crate::exact::Exact;
use crate::span::Spanned;

/// One guard of one argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Guard {
    /// One e-mail address.
    Email(EmailGuard),
    /// A path beneath roots.
    Path(PathGuard),
    /// A URL.
    Url(UrlGuard),
    /// SQL text.
    Sql(SqlGuard),
    /// A command line, judged as `[commands]` is.
    Command(Box<Commands>),
    /// One of these values.
    Enum(Vec<Json>),
    /// A number within bounds.
    Number(NumberGuard),
    /// Text by its length in characters, or a list by its number of elements.
    Length(LengthGuard),
    /// Text that a pattern matches as a whole, in a linear-time engine.
    Pattern(Spanned<String>),
}

/// `kind = "email"`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmailGuard {
    /// Domains, compared by whole labels after IDNA; any if empty.
    pub domains: Vec<Spanned<String>>,
    /// Whether sub-domains of them count.
    pub subdomains: bool,
}

/// What a path is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathAccess {
    /// It is read.
    #[default]
    Read,
    /// It is written, created or removed.
    Write,
}

/// `kind = "path"`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathGuard {
    /// Absolute folders; the path must resolve beneath one of them.
    pub roots: Vec<Spanned<PathBuf>>,
    /// What the path is for.
    pub access: PathAccess,
    /// Extensions with their dot, `.csv`; any if empty.
    pub extensions: BTreeSet<String>,
    /// Globs, relative to a root, that are out of reach.
    pub hide: Vec<Spanned<String>>,
}

/// `kind = "url"`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlGuard {
    /// Allowed schemes; `https` if not written.
    pub schemes: Vec<String>,
    /// Hosts, `example.com` or `*.example.com`; none allows none.
    pub hosts: Vec<Spanned<String>>,
    /// Ports; the scheme's own if empty.
    pub ports: Vec<u16>,
    /// Whether private, link-local, loopback and metadata addresses are allowed.
    pub private: bool,
}

/// The language of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlDialect {
    /// `postgresql`
    PostgreSql,
    /// `sqlite`
    Sqlite,
    /// `mysql`
    MySql,
    /// `generic`
    Generic,
}

/// `kind = "sql"`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlGuard {
    /// By which rules the text is read.
    pub dialect: SqlDialect,
    /// Most statements; 1 if not written.
    pub statements: u32,
    /// Whether only reading is allowed; true if not written.
    pub read_only: bool,
    /// Tables that may be named, `table` or `schema.table`; none allows none.
    pub tables: Vec<Spanned<String>>,
    /// Columns that may be named, `table.column` or `table.*`; all of the tables if empty.
    pub columns: Vec<Spanned<String>>,
    /// Functions that may be called beside the shipped list of harmless built-ins.
    pub functions: Vec<Spanned<String>>,
}

/// `kind = "number"`; bounds are part of the range, and are compared as decimals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumberGuard {
    /// Least value.
    pub min: Option<Exact>,
    /// Greatest value.
    pub max: Option<Exact>,
    /// Whether only whole numbers are allowed.
    pub integer: bool,
}

/// `kind = "length"`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LengthGuard {
    /// Least.
    pub min: Option<u64>,
    /// Most.
    pub max: Option<u64>,
}
