//! What a build says, bounded.

use serde::{Deserialize, Serialize};

/// Most entries of a build; what is said beyond them is lost, and that is said.
pub(crate) const MAX_ENTRIES: usize = 4000;
/// Longest message, bytes.
const MAX_MESSAGE: usize = 2048;

/// How much an entry matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Debug, Self::Info, Self::Warn, Self::Error].into_iter().find(|level| level.as_str() == text)
    }
}

/// One thing that was said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Milliseconds since 1970.
    pub(crate) at_ms: i64,
    pub(crate) level: Level,
    pub(crate) message: String,
    /// `base`, the number of a step, or `finalize`.
    pub(crate) step: String,
}

/// All that was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) entries: Vec<Entry>,
}

impl Log {
    /// Something more. The last entry says that there was more.
    pub(crate) fn say(&mut self, at_ms: i64, level: Level, step: &str, message: &str) {
        let at_end = self.entries.len().saturating_add(1) >= MAX_ENTRIES;
        if self.entries.len() >= MAX_ENTRIES {
            return;
        }
        let message = if at_end { "what is said from here on is not kept".to_owned() } else { short(message) };
        let level = if at_end { Level::Warn } else { level };
        self.entries.push(Entry { at_ms, level, message, step: step.to_owned() });
    }
}

fn short(message: &str) -> String {
    match message.char_indices().find(|(at, _)| *at >= MAX_MESSAGE) {
        Some((end, _)) => format!("{} ...", message.get(..end).unwrap_or_default()),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_much_is_heard_to_a_bound() {
        let mut log = Log::default();
        for _ in 0..MAX_ENTRIES * 2 {
            log.say(1, Level::Info, "1", &"\u{e9}".repeat(MAX_MESSAGE));
        }
        assert_eq!(log.entries.len(), MAX_ENTRIES);
        assert!(log.entries.iter().all(|entry| entry.message.len() <= MAX_MESSAGE + 8));
        assert_eq!(log.entries.last().map(|entry| entry.level), Some(Level::Warn));
    }
}
