//! Queries made at random from names that shadow each other: whatever passes reads listed columns only, as SQLite sees it.

use crate::corpus::{guard, judge};
use crate::sqlite::beyond;

/// xorshift: the same queries each time, by seed. Beside it the names that tables have where the query stands.
struct Dice(u64, Vec<String>);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides).unwrap()).unwrap()
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }

    fn query(&mut self, depth: usize) -> String {
        let with = if depth > 0 && self.roll(4) == 0 {
            let recursive = if self.roll(3) == 0 { "RECURSIVE " } else { "" };
            let (name, inner) = (self.name(), self.query(depth - 1));
            format!("WITH {recursive}{name} AS ({inner}) ")
        } else {
            String::new()
        };
        let outside = self.1.len();
        let from = self.from(depth);
        let items: Vec<String> = (0..=self.roll(2)).map(|_| self.item(depth)).collect();
        let mut query = format!("{with}SELECT {} FROM {from}", items.join(", "));
        if self.roll(2) == 0 {
            query += &format!(" WHERE {}", self.value(depth));
        }
        if self.roll(4) == 0 {
            query += &format!(" GROUP BY {}", self.column());
        }
        if self.roll(6) == 0 && depth > 0 {
            query += &format!(" UNION {}", self.query(depth - 1));
        } else if self.roll(3) == 0 {
            query += &format!(" ORDER BY {}", self.value(0));
        }
        self.1.truncate(outside);
        query
    }

    fn name(&mut self) -> &'static str {
        self.pick(&["customers", "orders", "secrets", "a", "b", "c"])
    }

    fn column(&mut self) -> String {
        let column = self.pick(&["id", "id", "id", "id", "name", "secret", "total", "x", "x", "parent_id"]);
        match self.roll(5) {
            0 => format!("{}.{column}", self.name()),
            1 | 2 if !self.1.is_empty() => {
                let at = self.roll(self.1.len());
                format!("{}.{column}", self.1[at])
            }
            _ => column.to_owned(),
        }
    }

    fn item(&mut self, depth: usize) -> String {
        match self.roll(16) {
            0 => "*".to_owned(),
            1 => format!("{}.*", self.name()),
            2 => format!("count({})", self.column()),
            3 | 4 => format!("{} AS {}", self.value(depth), self.pick(&["x", "y", "secret", "id"])),
            _ => self.column(),
        }
    }

    fn from(&mut self, depth: usize) -> String {
        let mut from = self.table(depth);
        for _ in 0..self.roll(3) {
            let table = self.table(depth);
            from += &match self.roll(5) {
                0 => format!(", {table}"),
                1 => format!(" JOIN {table} USING ({})", self.pick(&["id", "secret", "x"])),
                2 => format!(" NATURAL JOIN {table}"),
                3 => format!(" LEFT JOIN {table} ON {}", self.value(0)),
                _ => format!(" JOIN {table} ON {}", self.value(depth)),
            };
        }
        from
    }

    fn table(&mut self, depth: usize) -> String {
        let table = match self.roll(8) {
            0 | 1 if depth > 0 => format!("({})", self.query(depth - 1)),
            2 => format!("json_each({})", self.column()),
            _ => {
                let names = [
                    "customers",
                    "customers",
                    "customers",
                    "orders",
                    "orders",
                    "categories",
                    "categories",
                    "secrets",
                    "a",
                ];
                self.pick(&names).to_owned()
            }
        };
        let alias = if self.roll(2) == 0 && !table.contains('(') { table.clone() } else { self.name().to_owned() };
        self.1.push(alias.clone());
        if alias == table { table } else { format!("{table} AS {alias}") }
    }

    fn value(&mut self, depth: usize) -> String {
        match self.roll(8) {
            0 if depth > 0 => format!("EXISTS ({})", self.query(depth - 1)),
            1 if depth > 0 => format!("{} IN ({})", self.column(), self.query(depth - 1)),
            2 if depth > 0 => format!("({})", self.query(depth - 1)),
            3 => format!("{} = {}", self.column(), self.column()),
            4 => format!("upper({})", self.column()),
            5 => format!("CASE WHEN {} IS NULL THEN {} ELSE 1 END", self.column(), self.column()),
            _ => self.column(),
        }
    }
}

#[test]
fn whatever_is_made_of_shadowing_names_reads_listed_columns_only() {
    let (with, without) = (guard("sqlite", true), guard("sqlite", false));
    let mut dice = Dice(0x2545_f491_4f6c_dd1d, Vec::new());
    let (mut passed, mut ran, mut wrong) = (0, 0, Vec::new());
    let cases: usize = std::env::var("FUMEHOOD_SQL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(4_000);
    for _ in 0..cases {
        let query = dice.query(2);
        for (guard, columns) in [(&with, true), (&without, false)] {
            let Ok(printed) = judge(guard, &query) else { continue };
            passed += 1;
            let (beyond, prepared) = beyond(&printed, columns);
            ran += usize::from(prepared);
            if !beyond.is_empty() {
                wrong.push(format!("columns {columns}: {query}\n    {printed}\n    {beyond:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {passed}:\n{}", wrong.len(), wrong.join("\n"));
    println!("{passed} pass, {ran} of them run");
    assert!(passed > cases / 20 && ran > cases / 50, "{passed} pass, {ran} run: too few to show anything");
}
