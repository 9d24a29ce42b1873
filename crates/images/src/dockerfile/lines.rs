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
    for (index, raw) in text.lines().enumerate() {
        let number = index.saturating_add(1);
        let line = raw.trim();
        if let Some(comment) = line.strip_prefix('#') {
            directive(number, comment, all.is_empty() && open.is_none())?;
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let (line, goes_on) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
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
