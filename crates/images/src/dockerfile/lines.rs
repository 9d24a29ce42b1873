//! Lines of a Dockerfile: comments are gone, and what goes on over line ends is one.

use super::Refused;

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Where it begins, from 1.
    pub(super) number: usize,
    pub(super) text: String,
}

impl Line {
    pub(super) fn refused(&self, why: &str) -> Refused {
        const MAX_SHOWN: usize = 80;
        let what: String = self.text.chars().take(MAX_SHOWN).collect();
        Refused { line: self.number, what, why: why.to_owned() }
    }
}

pub(super) fn lines(text: &str) -> Result<Vec<Line>, Refused> {
    let mut all = Vec::new();
    let mut open: Option<Line> = None;
    // A mark of byte order is none of the text.
    for (index, raw) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
        let number = index.saturating_add(1);
        if let Some(comment) = raw.trim_start().strip_prefix('#') {
            directive(number, comment, all.is_empty() && open.is_none())?;
            continue;
        }
        if raw.trim().is_empty() {
            continue;
        }
        // Blanks in front stay where a line goes on: they are within the instruction.
        let raw = if open.is_some() { raw } else { raw.trim_start() };
        let (line, goes_on) = match goes_on(raw) {
            Some(line) => (line, true),
            None => (raw, false),
        };
        let mut whole = match open.take() {
            Some(mut before) => {
                before.text.push_str(line);
                before
            }
            None => Line { number, text: line.to_owned() },
        };
        if goes_on {
            open = Some(whole);
        } else {
            whole.text = whole.text.trim_end().to_owned();
            all.push(whole);
        }
    }
    // A line that would go on and has nothing behind it ends there.
    all.extend(open);
    Ok(all)
}

/// A line that goes on, without what says so. Of two backslashes at the end the last one says nothing.
fn goes_on(line: &str) -> Option<&str> {
    line.trim_end_matches([' ', '\t']).strip_suffix('\\').filter(|line| !line.ends_with('\\'))
}

/// `# escape=` before the first instruction changes what follows, so it is not passed over.
fn directive(number: usize, comment: &str, first: bool) -> Result<(), Refused> {
    let named = comment.split_once('=').map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim()));
    match named {
        Some((name, value)) if first && name == "escape" && value != "\\" => Err(Refused {
            line: number,
            what: format!("#{comment}"),
            why: "only `\\` lets a line go on here".to_owned(),
        }),
        Some(_) | None => Ok(()),
    }
}
