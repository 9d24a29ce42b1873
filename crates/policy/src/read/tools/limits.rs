//! What an entry counts: calls, cost, time, size.

use super::super::scalar::Least;
use super::super::{Reader, fault};
use super::spotted;
use crate::document::{Node, Value};
use crate::span::Spanned;
use crate::tools::{Budget, CountBy, Rate, ResultRule, ToolEntry};
use crate::units::Millis;

const RATE: &[&str] = &["calls", "per", "burst", "by"];
const BUDGET: &[&str] = &["cost", "reported", "limit", "per", "total", "unit", "by"];
const RESULT: &[&str] = &["max", "redact", "types"];
/// Kinds of content of a result.
const TYPES: &[(&str, &str)] = &[
    ("text", "text"),
    ("structured", "structured"),
    ("image", "image"),
    ("audio", "audio"),
    ("resource", "resource"),
    ("link", "link"),
];
const BY: &[(&str, CountBy)] =
    &[("session", CountBy::Session), ("agent", CountBy::Agent), ("key", CountBy::Key), ("gateway", CountBy::Gateway)];
const LEAST_WINDOW: Least = Least { value: 100, why: "a window below 100ms counts nothing", example: "60s" };
const LEAST_TIMEOUT: Least = Least { value: 1, why: "no tool answers within that", example: "20s" };
const LEAST_RESULT: Least = Least { value: 1, why: "nothing could come back", example: "64K" };
/// Longest time-out and window: a year.
const MAX_TIME: u64 = 366 * 24 * 3_600_000;

impl Reader<'_> {
    pub(super) fn tool_limits(&mut self, table: &Node, entry: &mut ToolEntry) {
        entry.rate = table.get("rate").and_then(|node| self.tool_rate(node));
        entry.budget = table.get("budget").and_then(|node| self.budget(node));
        entry.concurrency =
            table.get("concurrency").and_then(|node| self.small("tools.tool.concurrency", node, 1, 100_000));
        entry.timeout = table.get("timeout").and_then(|node| self.span("tools.tool.timeout", node, LEAST_TIMEOUT));
        if let Some(node) = table.get("result") {
            self.result(node, &mut entry.result);
        }
    }

    fn span(&mut self, path: &str, node: &Node, least: Least) -> Option<Millis> {
        let time = self.time(path, node, least)?;
        if time.0 > MAX_TIME {
            let why = "a year is the longest";
            self.note(path, node.place, fault("value/range", format!("`{path}` is {time}"), why, "write less"));
            return None;
        }
        Some(time)
    }

    fn tool_rate(&mut self, node: &Node) -> Option<Spanned<Rate>> {
        let path = "tools.tool.rate";
        let table = self.table(path, node, RATE)?;
        let (Some(calls), Some(per)) = (table.get("calls"), table.get("per")) else {
            let why = "a rate is a number of calls in a window";
            let fix = "write { calls = 10, per = \"60s\" }";
            self.note(path, node.place, fault("value/incomplete", "a rate needs `calls` and `per`", why, fix));
            return None;
        };
        let calls = self.small("tools.tool.rate.calls", calls, 1, 1_000_000_000);
        let per = self.span("tools.tool.rate.per", per, LEAST_WINDOW);
        let burst = match table.get("burst") {
            Some(node) => self.small("tools.tool.rate.burst", node, 1, calls.unwrap_or(1))?,
            None => calls?,
        };
        let by = match table.get("by") {
            Some(node) => self.keyword("tools.tool.rate.by", node, BY)?,
            None => CountBy::default(),
        };
        Some(spotted(Rate { calls: calls?, per: per?, burst, by }, node))
    }

    fn budget(&mut self, node: &Node) -> Option<Spanned<Budget>> {
        let path = "tools.tool.budget";
        let table = self.table(path, node, BUDGET)?;
        let mut money = |key: &str| match table.get(key) {
            Some(node) => self.amount(&format!("{path}.{key}"), node).map(Some),
            None => Some(None),
        };
        let (cost, limit, total) = (money("cost")?, money("limit")?, money("total")?);
        let per = match table.get("per") {
            Some(node) => Some(self.span("tools.tool.budget.per", node, LEAST_WINDOW)?),
            None => None,
        };
        let reported = match table.get("reported") {
            Some(node) => Some(self.pointer("tools.tool.budget.reported", node)?),
            None => None,
        };
        let unit = match table.get("unit") {
            Some(node) => self.unit(node)?,
            None => "units".to_owned(),
        };
        let by = match table.get("by") {
            Some(node) => self.keyword("tools.tool.budget.by", node, BY)?,
            None => CountBy::default(),
        };
        let mut incomplete = |what: &str, why: &str, fix: &str| {
            self.note(path, node.place, fault("value/incomplete", what, why, fix));
            None
        };
        let Some(cost) = cost else {
            let why = "it is reserved before the call, so that parallel calls cannot overspend";
            return incomplete("a budget has no `cost`", why, "write the most that one call costs: cost = 0.02");
        };
        if limit.is_some() != per.is_some() {
            let why = "a limit counts within a window; a sum for ever is `total`";
            return incomplete("a budget has one of `limit` and `per`", why, "write both, or `total`");
        }
        if limit.is_none() && total.is_none() {
            return incomplete(
                "a budget has no bound",
                "nothing would be limited",
                "write `limit` and `per`, or `total`",
            );
        }
        if [limit, total].into_iter().flatten().any(|most| most < cost) {
            return incomplete(
                "a budget is less than one call costs",
                "no call could be made",
                "raise it, or lower `cost`",
            );
        }
        Some(spotted(Budget { cost, reported, limit, per, total, unit, by }, node))
    }

    /// An amount with at most six decimals, in millionths.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to lie between 0 and 1e15 before"
    )]
    fn amount(&mut self, path: &str, node: &Node) -> Option<u64> {
        let number = match &node.value {
            #[expect(clippy::cast_precision_loss, reason = "anything beyond 1e9 is refused below")]
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            Value::Bare(text) => text.parse().ok(),
            Value::Null | Value::Bool(_) | Value::Text(_) | Value::Array(_) | Value::Table(_) => None,
        };
        let Some(number) = number else {
            self.wrong_type(path, node, "a number", "write a number, without quotes and unit");
            return None;
        };
        let millionths = number * 1e6;
        let whole = millionths.round();
        if (0.0..=1e15).contains(&whole) && (millionths - whole).abs() < 1e-3 {
            return Some(whole as u64);
        }
        let why = "amounts are 0 to 1000000000, with at most six decimals";
        self.note(path, node.place, fault("value/range", format!("`{path}` is {number}"), why, "write such an amount"));
        None
    }

    fn pointer(&mut self, path: &str, node: &Node) -> Option<String> {
        let text = self.text(path, node)?;
        if text.starts_with('/') && text.len() <= 200 {
            return Some(text);
        }
        let why = "it points into the tool's result, as JSON Pointer";
        let what = format!("`{path}` is {}", crate::diagnostic::quote(&text));
        self.note(path, node.place, fault("value/form", what, why, "write \"/_meta/cost\""));
        None
    }

    fn unit(&mut self, node: &Node) -> Option<String> {
        let path = "tools.tool.budget.unit";
        let text = self.text(path, node)?;
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if (1..=20).contains(&text.len()) && text.chars().all(fits) {
            return Some(text);
        }
        let what = format!("`{path}` is {}", crate::diagnostic::quote(&text));
        let why = "a unit is a word of at most 20 letters and digits";
        self.note(path, node.place, fault("value/form", what, why, "write \"usd\" or \"tokens\""));
        None
    }

    fn result(&mut self, node: &Node, rule: &mut ResultRule) {
        let path = "tools.tool.result";
        let Some(table) = self.table(path, node, RESULT) else { return };
        if let Some(max) = table.get("max").and_then(|node| self.size("tools.tool.result.max", node, LEAST_RESULT)) {
            rule.max = max;
        }
        if let Some(node) = table.get("redact") {
            let items = self.items("tools.tool.result.redact", node).unwrap_or_default();
            let one =
                |reader: &mut Self, item: &Node| Some(spotted(reader.pattern("tools.tool.result.redact", item)?, item));
            rule.redact = items.iter().filter_map(|item| one(self, item)).collect();
        }
        if let Some(node) = table.get("types") {
            let items = self.items("tools.tool.result.types", node).unwrap_or_default();
            let one = |reader: &mut Self, item: &Node| reader.keyword("tools.tool.result.types", item, TYPES);
            rule.types = items.iter().filter_map(|item| one(self, item)).map(str::to_owned).collect();
            if items.is_empty() {
                let why = "no answer could come back";
                let fix = "name the kinds, or leave `types` out for all";
                self.note(path, node.place, fault("value/incomplete", "`types` is an empty list", why, fix));
            }
        }
    }
}
