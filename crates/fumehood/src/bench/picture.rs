//! The table as a picture: a panel for each column, a bar for each row, readable on a light page and on a dark one.

use std::fmt::Write as _;

use super::{Column, Row};

const WIDTH: u32 = 860;
const BAR: u32 = 18;
const LEFT: u32 = 170;
const ROOM: u32 = 560;
const HEAD: u32 = 44;

/// The text of an SVG file.
pub(crate) fn picture(rows: &[Row], about: &str) -> String {
    let shown: Vec<Vec<(String, f64)>> = Column::ALL.iter().map(|column| bars(rows, *column)).collect();
    let lines: usize = shown.iter().filter(|bars| !bars.is_empty()).map(|bars| bars.len().saturating_add(2)).sum();
    let height = HEAD.saturating_add(u32::try_from(lines).unwrap_or(0).saturating_mul(BAR + 4)).saturating_add(16);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"What each tier costs\">\n\
         <style>text{{font:13px system-ui,sans-serif;fill:#1f2328}}.t{{font-weight:600}}.n{{fill:#59636e}}.b{{fill:#2f6f9f}}.h{{fill:#8c959f}}\
         @media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.n{{fill:#9198a1}}.b{{fill:#6cb0e0}}.h{{fill:#6e7681}}}}</style>\n\
         <text class=\"n\" x=\"8\" y=\"20\">{}; bars are logarithmic, less is better</text>\n",
        escaped(about)
    );
    let mut y = HEAD;
    for (column, bars) in Column::ALL.iter().zip(&shown).filter(|(_, bars)| !bars.is_empty()) {
        line(
            &mut out,
            format_args!("<text class=\"t\" x=\"8\" y=\"{}\">{}</text>", y.saturating_add(13), column.title()),
        );
        y = y.saturating_add(BAR + 4);
        let positive = || bars.iter().map(|(_, value)| value.max(0.1));
        let (least, most) = (positive().fold(f64::MAX, f64::min), positive().fold(0.1, f64::max));
        for (name, value) in bars {
            // The least has a bar that can be seen, the most the whole room.
            let part = if most > least { (value.max(0.1) / least).ln() / (most / least).ln() } else { 1.0 };
            let length = 12.0 + part * f64::from(ROOM - 12);
            let class = if name.starts_with("none") { "h" } else { "b" };
            let base = y.saturating_add(13);
            line(&mut out, format_args!("<text x=\"8\" y=\"{base}\">{}</text>", escaped(name)));
            line(
                &mut out,
                format_args!(
                    "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{y}\" width=\"{length:.0}\" height=\"{BAR}\" rx=\"2\"/>"
                ),
            );
            line(
                &mut out,
                format_args!(
                    "<text class=\"n\" x=\"{:.0}\" y=\"{base}\">{value}</text>",
                    f64::from(LEFT) + length + 8.0
                ),
            );
            y = y.saturating_add(BAR + 4);
        }
        y = y.saturating_add(BAR + 4);
    }
    out.push_str("</svg>\n");
    out
}

fn bars(rows: &[Row], column: Column) -> Vec<(String, f64)> {
    rows.iter().filter_map(|row| Some((format!("{} ({})", row.tier(), row.backend()), row.value(column)?))).collect()
}

/// Writing to a `String` cannot fail.
fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let written = writeln!(out, "{text}");
    debug_assert!(written.is_ok(), "a string takes all");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
