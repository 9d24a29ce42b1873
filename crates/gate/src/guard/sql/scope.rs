//! What a name means where it stands: tables by their aliases, named queries by their scopes, columns by their tables.
//!
//! Without the catalogue it cannot be known which columns a table really has. So where columns are listed, a bare name is
//! printed with the alias of the one listed source that it can come from: a column of the same name in another table of
//! the statement, which is not listed, is then out of its reach.

use std::collections::BTreeMap;

use policy::diagnostic::quote;
use policy::guards::SqlDialect;
use sqlparser::ast::{Expr, Ident};

use super::Refusal;
use super::rules::{Columns, Rules};

/// Something that stands in `FROM`.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) key: String,
    pub(super) alias: Ident,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// A table of the database.
    Base(Columns),
    /// A query or a function; its columns where they are known.
    Derived(Option<Vec<String>>),
}

/// One `SELECT`.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    pub(super) sources: Vec<Source>,
    /// What the outputs are called, and what they are.
    pub(super) outputs: BTreeMap<String, Expr>,
}

/// One `WITH`.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub(super) recursive: bool,
    pub(super) known: Vec<(String, Option<Vec<String>>)>,
    /// Names that come later in the same `WITH`.
    pub(super) later: Vec<String>,
}

/// The scopes around the place that is judged, innermost last.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    pub(super) selects: Vec<Scope>,
    pub(super) withs: Vec<Frame>,
}

/// What a bare name is.
pub(super) enum Bare {
    /// It may stand as it is.
    Plain,
    /// It is to be printed with this alias.
    Of(Ident),
    /// It is no column that may be named.
    Unknown(String),
}

impl Scopes {
    pub(super) fn here(&mut self) -> Option<&mut Scope> {
        self.selects.last_mut()
    }

    /// The named query that a bare table name means.
    pub(super) fn with(&self, key: &str, rules: &Rules) -> Result<Option<Option<Vec<String>>>, Refusal> {
        for frame in self.withs.iter().rev() {
            if let Some((_, outputs)) = frame.known.iter().rev().find(|(known, _)| known == key) {
                return Ok(Some(outputs.clone()));
            }
            if frame.recursive && frame.later.iter().any(|later| later == key) {
                return Err(Refusal::name(
                    key,
                    "databases disagree on whether a query may be named before it is written",
                ));
            }
            let unclear = matches!(rules.dialect, SqlDialect::MySql | SqlDialect::Generic);
            let known = frame.known.iter().map(|(known, _)| known).chain(&frame.later);
            if unclear && known.into_iter().any(|known| known.eq_ignore_ascii_case(key) && known != key) {
                return Err(Refusal::name(key, "whether it is the query of that name depends on the server"));
            }
        }
        Ok(None)
    }

    /// A name without an alias.
    pub(super) fn bare(&self, key: &str, rules: &Rules) -> Result<Bare, Refusal> {
        if !rules.columns_listed {
            return Ok(Bare::Plain);
        }
        for (depth, scope) in self.selects.iter().enumerate().rev() {
            let certain: Vec<&Source> = scope.sources.iter().filter(|source| source.has(key)).collect();
            let open: Vec<&Source> = scope.sources.iter().filter(|source| source.is_open()).collect();
            match (certain.as_slice(), open.as_slice()) {
                // An open source may have the name too, and is allowed to: the database says that it is ambiguous.
                ([one], _) => return self.of(one, depth, scope, rules),
                ([_, _, ..], _) => return Ok(Bare::Plain),
                ([], [one]) if scope.sources.len() == 1 && self.is_outermost(depth) => {
                    return self.of(one, depth, scope, rules);
                }
                ([], [one]) if rules.dialect != SqlDialect::PostgreSql => return self.of(one, depth, scope, rules),
                ([], [_, ..]) => {
                    let why = "it could come from several tables: write it as `table.column`, and list the columns";
                    return Ok(Bare::Unknown(why.to_owned()));
                }
                ([], []) => {}
            }
        }
        Ok(Bare::Unknown("no table of the statement has it among its listed columns".to_owned()))
    }

    /// Whether no table of a query outside can be meant.
    fn is_outermost(&self, depth: usize) -> bool {
        self.selects.iter().take(depth).all(|scope| scope.sources.is_empty())
    }

    /// The alias by which a source is reached from here.
    fn of(&self, source: &Source, depth: usize, scope: &Scope, rules: &Rules) -> Result<Bare, Refusal> {
        // `alias.name` calls a function in PostgreSQL where there is no such column: an open table's is left bare,
        // which it can be, being the only source.
        if rules.dialect == SqlDialect::PostgreSql && !source.is_closed() {
            return Ok(Bare::Plain);
        }
        if source.alias.value.is_empty() {
            return Ok(Bare::Plain);
        }
        let same = scope.sources.iter().filter(|other| other.key == source.key).count();
        let hidden = self.selects.iter().skip(depth + 1).any(|inner| inner.sources.iter().any(|s| s.key == source.key));
        if same > 1 || hidden {
            return Err(Refusal::name(&source.key, "two tables of the statement have this name: give them aliases"));
        }
        Ok(Bare::Of(source.alias.clone()))
    }

    /// `alias.column`
    pub(super) fn qualified(&self, alias: &str, column: &str, rules: &Rules) -> Result<(), Refusal> {
        let Some(source) = self.source(alias) else {
            return Err(Refusal::name(alias, "no table of the statement is called so here"));
        };
        let shown = format!("{alias}.{column}");
        if source.has(column) {
            return Ok(());
        }
        match &source.kind {
            Kind::Base(Columns::Some(known)) => {
                let known: Vec<String> = known.iter().take(12).map(|name| quote(name)).collect();
                let instead = if known.is_empty() { "count(*)".to_owned() } else { known.join(", ") };
                Err(Refusal::column(&shown, "it is not among the listed columns of that table", &instead))
            }
            // Other databases make up names for outputs without one; none of them is a call.
            Kind::Derived(Some(_)) if !rules.columns_listed && rules.dialect != SqlDialect::PostgreSql => Ok(()),
            Kind::Derived(Some(known)) => {
                let known: Vec<String> = known.iter().take(12).map(|name| quote(name)).collect();
                Err(Refusal::column(&shown, "the query of that name has no such column", &known.join(", ")))
            }
            Kind::Base(_) | Kind::Derived(None) if rules.dialect == SqlDialect::PostgreSql => {
                let why = "PostgreSQL calls a function of that name where the table has no such column";
                Err(Refusal::column(&shown, why, "the column without its table, or `columns` in the guard"))
            }
            Kind::Base(_) | Kind::Derived(None) => Ok(()),
        }
    }

    pub(super) fn source(&self, alias: &str) -> Option<&Source> {
        self.selects.iter().rev().flat_map(|scope| scope.sources.iter()).find(|source| source.key == alias)
    }
}

impl Source {
    /// Whether it certainly has a column that may be named.
    pub(super) fn has(&self, key: &str) -> bool {
        match &self.kind {
            Kind::Base(Columns::Some(known)) => known.contains(key),
            Kind::Derived(Some(known)) => known.iter().any(|name| name == key),
            Kind::Base(Columns::All | Columns::Any) | Kind::Derived(None) => false,
        }
    }

    /// Whether all of its columns may be named, whatever they are.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.kind, Kind::Base(Columns::All | Columns::Any) | Kind::Derived(None))
    }

    /// Whether its columns are known.
    const fn is_closed(&self) -> bool {
        !self.is_open()
    }

    /// Whether `*` names nothing that may not be named.
    pub(super) const fn takes_star(&self) -> bool {
        !matches!(self.kind, Kind::Base(Columns::Some(_)))
    }
}
