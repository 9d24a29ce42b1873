//! SQL: parsed by the rules of its own database, judged node by node, printed again from what was judged.
//!
//! *Promises*: a statement passes only if every node of its tree is of a kind on a list, every table, column and function is one
//! that may be named, and the printed statement is read back as the same tree. That text is what the tool gets: comments,
//! escapes and names of the original are gone, so that nothing is left for another parser to see differently. For
//! PostgreSQL calls, operators and constants are printed so that neither `search_path` nor settings change their meaning.
//!
//! *Does not promise*: cost. A join, a recursion or a pattern can run for hours, and no text tells: set a statement time-out and a bound
//! on rows in the database. Triggers, rules, views and row security do what they do. Always pair it with a role of
//! least rights and a read-only connection.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "lists of what passes: every other kind of node, those that the parser learns later too, is refused"
)]

mod expression;
mod from;
mod projected;
mod qualify;
mod query;
mod rules;
mod scope;
mod statement;
mod visitor;
mod written;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use policy::diagnostic::quote;
use policy::guards::{SqlDialect, SqlGuard};
use serde_json::Value as Json;
use sqlparser::ast::Statement;
use sqlparser::dialect::{Dialect, GenericDialect, MySqlDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::parser::{Parser, ParserError};

use super::{Blocked, Flaws, Passed, text};
use rules::Rules;
use scope::Scopes;
use visitor::{Node, Visitor};

/// Nesting that the parser follows; printing adds parentheses, so reading back follows more.
const MAX_DEPTH: usize = 100;
const MAX_DEPTH_BACK: usize = 800;
/// How operators are printed for PostgreSQL: a text that has it is one of ours, or wants to be.
const OURS: &str = "OPERATOR(";
/// Bytes of a printed statement: rewriting a range or a list writes its operand again.
const MAX_PRINTED: usize = 1 << 18;
/// Bytes of text whose tree cannot be deep.
const SMALL: usize = 256;
/// Bytes of stack for all others; only what is used is ever there.
const STACK: usize = 64 << 20;
/// Answers that are kept: a model repeats itself, and parsing costs more than all other guards.
const MAX_KEPT: usize = 64;

/// A part of a statement that does not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    id: &'static str,
    /// `the table `secrets``
    what: String,
    why: String,
    instead: String,
}

impl Refusal {
    pub(super) fn node(what: &str, why: &str) -> Self {
        let instead = "a plain SELECT".to_owned();
        Self { id: "tools.guard/sql-statement", what: what.to_owned(), why: why.to_owned(), instead }
    }

    pub(super) fn name(name: &str, why: &str) -> Self {
        let instead = "plain names of tables and columns".to_owned();
        Self { id: "tools.guard/sql-name", what: format!("the name {}", quote(name)), why: why.to_owned(), instead }
    }

    pub(super) fn column(name: &str, why: &str, instead: &str) -> Self {
        let (what, instead) = (format!("the column {}", quote(name)), instead.to_owned());
        Self { id: "tools.guard/sql-column", what, why: why.to_owned(), instead }
    }

    pub(super) fn text(what: &str, why: &str) -> Self {
        let instead = "one plain statement, without comments".to_owned();
        Self { id: "tools.guard/sql-text", what: what.to_owned(), why: why.to_owned(), instead }
    }
}

/// `kind = "sql"`, compiled.
#[derive(Debug)]
pub(crate) struct SqlJudge {
    rules: Rules,
    statements: usize,
    kept: Mutex<VecDeque<(String, Result<String, Refusal>)>>,
}

/// Judges a tree while walking it; names are completed on the way.
pub(super) struct Walk<'r> {
    rules: &'r Rules,
    scopes: Scopes,
    seen: Counts,
}

/// How many nodes of each kind there are: what the judge saw must be all that there is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    statements: usize,
    queries: usize,
    factors: usize,
    expressions: usize,
}

impl Visitor for Counts {
    fn before(&mut self, node: &Node<'_>) -> Result<(), Refusal> {
        match node {
            Node::Statement => self.statements += 1,
            Node::Query => self.queries += 1,
            Node::Factor(_) => self.factors += 1,
            Node::Expr(_) => self.expressions += 1,
            Node::Value(_) | Node::Ident(_) => {}
        }
        Ok(())
    }
}

/// Every name of a statement, wherever it stands.
struct Names<'r> {
    rules: &'r Rules,
}

impl Visitor for Names<'_> {
    fn before(&mut self, node: &Node<'_>) -> Result<(), Refusal> {
        if let Node::Ident(ident) = node { self.rules.key(ident).map(drop) } else { Ok(()) }
    }
}

impl SqlJudge {
    pub(crate) fn new(guard: &SqlGuard, flaws: &mut Flaws<'_>) -> Option<Self> {
        let rules = Rules::new(guard, flaws)?;
        let statements = usize::try_from(guard.statements).unwrap_or(usize::MAX);
        Some(Self { rules, statements, kept: Mutex::default() })
    }

    pub(crate) fn pass(&self, value: &Json) -> Result<Passed, Blocked> {
        let given = text(value, "tools.guard/sql-text", "a statement")?;
        let answer = self.remembered(given).unwrap_or_else(|| {
            let answer =
                if given.len() > SMALL || given.contains(OURS) { self.judge_apart(given) } else { self.judge(given) };
            self.remember(given, &answer);
            answer
        });
        answer.map(Json::String).map_err(|Refusal { id, what, why, instead }| Blocked { id, what, why, instead })
    }

    fn remembered(&self, given: &str) -> Option<Result<String, Refusal>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(text, _)| text == given).map(|(_, answer)| answer.clone())
    }

    fn remember(&self, given: &str, answer: &Result<String, Refusal>) {
        // Long texts cost more to keep than to judge again.
        if given.len() > 4096 {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((given.to_owned(), answer.clone()));
        kept.truncate(MAX_KEPT);
    }

    /// On a stack of its own: a tree is walked, compared and dropped as deep as it is, and callers' stacks are small.
    fn judge_apart(&self, given: &str) -> Result<String, Refusal> {
        crate::stack::run(STACK, || self.judge(given))
            .unwrap_or_else(|_| Err(Refusal::text("the statement", "there was no memory to judge it")))
    }

    /// The statement as the tool gets it.
    fn judge(&self, given: &str) -> Result<String, Refusal> {
        let dialect = self.dialect();
        written::judge(given, dialect, self.rules.dialect)?;
        // What this judge passes on comes back as it is, because the gate judges once more what guards made of a value.
        let is_ours = self.rules.dialect == SqlDialect::PostgreSql && given.contains(OURS);
        let words = is_ours.then(|| written::without_operators(given, dialect)).flatten();
        let mut statements = match words {
            Some(words) => parsed(Parser::new(dialect).with_recursion_limit(MAX_DEPTH_BACK).with_tokens(words))?,
            None => parse(given, dialect, MAX_DEPTH)?,
        };
        if statements.is_empty() || statements.len() > self.statements {
            let what = format!("{} statements in one text", statements.len());
            let why = if self.statements == 1 { "one is allowed" } else { "fewer are allowed" };
            return Err(Refusal::text(&what, why));
        }
        for statement in &mut statements {
            let before = statement.clone();
            if let Err(refusal) = self.judge_one(statement) {
                *statement = before;
                self.judge_projected(statement).ok_or(refusal)?;
            }
        }
        let printed = print(&statements);
        if printed.len() > MAX_PRINTED {
            return Err(Refusal::text(
                "the statement",
                "it becomes too long when its ranges and lists are written out",
            ));
        }
        // The text that is passed on must mean the tree that was judged, to a reader who starts from the text.
        let unlike = || Refusal::text("the statement", "it cannot be printed so that it is read back as the same");
        let Ok(again) = parse(&printed, dialect, MAX_DEPTH_BACK) else { return Err(unlike()) };
        if again != statements || print(&again) != printed {
            return Err(unlike());
        }
        if self.rules.dialect != SqlDialect::PostgreSql {
            return Ok(printed);
        }
        statements.iter_mut().try_for_each(qualify::comparisons)?;
        let qualified = print(&statements);
        if written::without_operators(&qualified, dialect) == written::sql_words(&printed, dialect) {
            Ok(qualified)
        } else {
            Err(unlike())
        }
    }

    /// Once more, with the columns of each table written out; none if that does not help either.
    fn judge_projected(&self, statement: &mut Statement) -> Option<()> {
        if self.rules.dialect != SqlDialect::PostgreSql || self.rules.columns_listed {
            return None;
        }
        projected::columns(statement, &self.rules).ok().filter(|made| *made)?;
        self.judge_one(statement).ok()
    }

    fn judge_one(&self, statement: &mut Statement) -> Result<(), Refusal> {
        let mut there = Counts::default();
        visitor::through(statement, &mut there)?;
        // Names that nothing looks up, such as those of windows, too.
        visitor::through(statement, &mut Names { rules: &self.rules })?;
        let mut walk = Walk { rules: &self.rules, scopes: Scopes::default(), seen: Counts::default() };
        walk.statement(statement)?;
        if walk.seen != there {
            return Err(Refusal::node("the statement", "a part of it is of a kind that is not judged"));
        }
        if self.rules.dialect == SqlDialect::PostgreSql {
            qualify::statement(statement, &self.rules)?;
        }
        Ok(())
    }

    fn dialect(&self) -> &'static dyn Dialect {
        match self.rules.dialect {
            SqlDialect::PostgreSql => &PostgreSqlDialect {},
            SqlDialect::Sqlite => &SQLiteDialect {},
            SqlDialect::MySql => &MySqlDialect {},
            SqlDialect::Generic => &GenericDialect {},
        }
    }
}

fn print(statements: &[Statement]) -> String {
    statements.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn parse(text: &str, dialect: &dyn Dialect, depth: usize) -> Result<Vec<Statement>, Refusal> {
    parsed(Parser::new(dialect).with_recursion_limit(depth).try_with_sql(text).map_err(unread)?)
}

fn parsed(mut parser: Parser<'_>) -> Result<Vec<Statement>, Refusal> {
    parser.parse_statements().map_err(unread)
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn unread(error: ParserError) -> Refusal {
    let why = error.to_string().chars().take(200).collect::<String>();
    Refusal::text("the text", &format!("it is no statement of this database: {}", why.to_lowercase()))
}
