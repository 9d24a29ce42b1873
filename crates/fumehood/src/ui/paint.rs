//! Colour, which never carries meaning alone.

use std::ffi::OsStr;

use anstyle::{AnsiColor, Effects, Style};

/// When to colour: `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// On a terminal, unless `NO_COLOR` or `TERM=dumb` says otherwise.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl When {
    /// The decision for one stream.
    #[must_use]
    pub fn decide(self, terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> Palette {
        let on = match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => terminal && no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|t| t != "dumb"),
        };
        Palette { on }
    }
}

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Something went wrong, or was stopped.
    Bad,
    /// Something is less than was wanted.
    Weak,
    /// Something holds.
    Good,
    /// A name to look for.
    Name,
    /// Less important than the rest.
    Aside,
}

/// Whether a stream is coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Palette {
    on: bool,
}

impl Palette {
    /// No colour.
    pub const PLAIN: Self = Self { on: false };

    /// Whether colours are used.
    #[must_use]
    pub const fn is_on(self) -> bool {
        self.on
    }

    /// `text`, in the colour of its role.
    #[must_use]
    pub fn paint(self, role: Role, text: &str) -> String {
        if !self.on || text.is_empty() {
            return text.to_owned();
        }
        let style = match role {
            Role::Bad => Style::new().fg_color(Some(AnsiColor::Red.into())).effects(Effects::BOLD),
            Role::Weak => Style::new().fg_color(Some(AnsiColor::Yellow.into())).effects(Effects::BOLD),
            Role::Good => Style::new().fg_color(Some(AnsiColor::Green.into())),
            Role::Name => Style::new().effects(Effects::BOLD),
            Role::Aside => Style::new().effects(Effects::DIMMED),
        };
        format!("{style}{text}{style:#}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_terminals_that_want_it() {
        let no = Some(OsStr::new("1"));
        let dumb = Some(OsStr::new("dumb"));
        assert!(When::Auto.decide(true, None, None).is_on());
        assert!(When::Auto.decide(true, Some(OsStr::new("")), None).is_on());
        assert!(!When::Auto.decide(false, None, None).is_on());
        assert!(!When::Auto.decide(true, no, None).is_on());
        assert!(!When::Auto.decide(true, None, dumb).is_on());
        assert!(When::Always.decide(false, no, dumb).is_on());
        assert!(!When::Never.decide(true, None, None).is_on());
    }
}
