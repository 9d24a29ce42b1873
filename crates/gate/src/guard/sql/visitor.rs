//! The one walk over a tree that everything goes by: it counts, checks names, and writes anew.
//!
//! The parser's own walk is compiled once more for every type of visitor and once more for visitors that write, each time for
//! every node that its grammar has: 0.5 MB of the program for six of them. Here one type walks, and is told at run time for whom.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Ident, Query, Statement, TableFactor, ValueWithSpan, VisitMut, VisitorMut};

use super::Refusal;

/// What wants to see the nodes of a tree: before their children, after them, or both.
pub(super) trait Visitor {
    /// Before what is in `node`; `Err` ends the walk.
    fn before(&mut self, node: &Node<'_>) -> Result<(), Refusal> {
        let _children_alone_matter = node;
        Ok(())
    }

    /// After what is in `node`, which may become another; `Err` ends the walk.
    fn after(&mut self, node: Node<'_>) -> Result<(), Refusal> {
        let _children_come_first = node;
        Ok(())
    }
}

/// A node of a kind that somebody looks at.
pub(super) enum Node<'n> {
    Statement,
    Query,
    Factor(&'n mut TableFactor),
    Expr(&'n mut Expr),
    Value(&'n mut ValueWithSpan),
    Ident(&'n mut Ident),
}

/// Shows every node under `tree` to `look`.
///
/// # Errors
/// The first one of `look`.
pub(super) fn through(tree: &mut impl VisitMut, look: &mut dyn Visitor) -> Result<(), Refusal> {
    let mut walk = VisitorAdapter { look, refused: None };
    match tree.visit(&mut walk) {
        ControlFlow::Continue(()) | ControlFlow::Break(()) => walk.refused.map_or(Ok(()), Err),
    }
}

struct VisitorAdapter<'l> {
    look: &'l mut dyn Visitor,
    refused: Option<Refusal>,
}

impl VisitorAdapter<'_> {
    fn told(&mut self, said: Result<(), Refusal>) -> ControlFlow<()> {
        match said {
            Ok(()) => ControlFlow::Continue(()),
            Err(refusal) => {
                self.refused = Some(refusal);
                ControlFlow::Break(())
            }
        }
    }

    fn before(&mut self, node: &Node<'_>) -> ControlFlow<()> {
        let said = self.look.before(node);
        self.told(said)
    }

    fn after(&mut self, node: Node<'_>) -> ControlFlow<()> {
        let said = self.look.after(node);
        self.told(said)
    }
}

impl VisitorMut for VisitorAdapter<'_> {
    type Break = ();

    fn pre_visit_statement(&mut self, _: &mut Statement) -> ControlFlow<()> {
        self.before(&Node::Statement)
    }

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.before(&Node::Query)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.before(&Node::Factor(factor))
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.after(Node::Factor(factor))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.before(&Node::Expr(expr))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.after(Node::Expr(expr))
    }

    fn post_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        self.after(Node::Value(value))
    }

    fn pre_visit_ident(&mut self, ident: &mut Ident) -> ControlFlow<()> {
        self.before(&Node::Ident(ident))
    }
}
