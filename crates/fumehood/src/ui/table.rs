//! Columns of text, and text in lines.

use unicode_width::UnicodeWidthStr as _;

use crate::ui::{Palette, Role};

/// Rows of cells under a head. Cells must be harmless already (see `escape`).
#[derive(Debug)]
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<(String, Option<Role>)>>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    /// Adds a row of plain cells.
    pub fn row<const N: usize>(&mut self, cells: [&str; N]) {
        self.rows.push(cells.iter().map(|c| ((*c).to_owned(), None)).collect());
    }

    /// Adds a row with roles.
    pub fn painted<const N: usize>(&mut self, cells: [(&str, Option<Role>); N]) {
        self.rows.push(cells.iter().map(|(c, role)| ((*c).to_owned(), *role)).collect());
    }

    /// Whether there is nothing to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table, `indent` spaces in. The last column is wrapped to `columns`, under itself; the others keep their width.
    #[must_use]
    pub fn render(&self, palette: Palette, indent: usize, columns: usize) -> String {
        let mut widths: Vec<usize> = self.head.iter().map(|h| h.width()).collect();
        for row in &self.rows {
            for (width, (cell, _)) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let before: usize = widths.iter().rev().skip(1).map(|w| w + 2).sum();
        let room = columns.saturating_sub(indent + before).max(24);
        let mut out = String::new();
        if self.head.iter().any(|h| !h.is_empty()) {
            let head: Vec<_> = self.head.iter().map(|h| ((*h).to_owned(), Some(Role::Aside))).collect();
            line(&mut out, &head, &widths, (palette, indent, room));
        }
        for row in &self.rows {
            line(&mut out, row, &widths, (palette, indent, room));
        }
        out
    }
}

/// One row, on as many lines as its last cell needs.
fn line(out: &mut String, row: &[(String, Option<Role>)], widths: &[usize], how: (Palette, usize, usize)) {
    let (palette, indent, room) = how;
    let mut text = " ".repeat(indent);
    let mut column = indent;
    let last = row.len().saturating_sub(1);
    for (i, ((cell, role), width)) in row.iter().zip(widths).enumerate() {
        let paint = |part: &str| role.map_or_else(|| part.to_owned(), |role| palette.paint(role, part));
        if i < last {
            text.push_str(&paint(cell));
            text.push_str(&" ".repeat(width.saturating_sub(cell.width()) + 2));
            column += width + 2;
        } else {
            let mut lines = wrap(cell, room).into_iter();
            text.push_str(&paint(&lines.next().unwrap_or_default()));
            for more in lines {
                text.push('\n');
                text.push_str(&" ".repeat(column));
                text.push_str(&paint(&more));
            }
        }
    }
    out.push_str(text.trim_end());
    out.push('\n');
}

/// `text` in lines of at most `width` columns, broken at spaces; a longer word stands alone, unbroken, so that it can be copied.
#[must_use]
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let wide = word.width();
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
            used = wide;
        } else if used + 1 + wide <= width {
            line.push(' ');
            line.push_str(word);
            used += 1 + wide;
        } else {
            lines.push(word.to_owned());
            used = wide;
        }
    }
    lines
}

/// `text` behind what stands before it (`width` columns wide), wrapped under itself.
#[must_use]
pub fn hang(before: &str, width: usize, text: &str, columns: usize) -> String {
    let mut lines = wrap(text, columns.saturating_sub(width)).into_iter();
    let mut out = format!("{before}{}\n", lines.next().unwrap_or_default());
    for line in lines {
        out.push_str(&format!("{}{line}\n", " ".repeat(width)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_also_under_wide_letters() {
        let mut table = Table::new(&["a", "b"]);
        table.row(["日本", "x"]);
        table.row(["abcdef", "y"]);
        assert_eq!(table.render(Palette::PLAIN, 2, 80), "  a       b\n  日本    x\n  abcdef  y\n");
    }

    #[test]
    fn the_last_column_wraps_under_itself() {
        let mut table = Table::new(&["", ""]);
        table.row(["name", "one two three four five six seven"]);
        assert_eq!(table.render(Palette::PLAIN, 0, 30), "name  one two three four five\n      six seven\n");
    }

    #[test]
    fn a_long_word_is_not_broken() {
        assert_eq!(wrap("a /very/long/path b", 5), ["a", "/very/long/path", "b"]);
    }
}
