//! Where a value was written, kept beside it, so that whoever compiles it later can still point at line and column.

use crate::diagnostic::SourceLocation;
use crate::document::{self, Source, SourceSpan};

/// The place of a value in the documents. Two values are equal wherever they were written.
#[derive(Clone, Copy, Debug)]
pub struct Span(pub(crate) SourceSpan);

impl PartialEq for Span {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Span {}

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Its place.
    pub at: Span,
}

/// The documents of a policy, to turn a [`Span`] into words.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    pub(crate) sources: Vec<Source>,
    /// The files that were read for it, schemas included: whoever writes them decides what is allowed next.
    pub files: std::collections::BTreeSet<std::path::PathBuf>,
}

impl PartialEq for Documents {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Documents {
    /// The place of a part of a text value, from its bytes; of the whole where it is not written as it reads (escapes).
    #[must_use]
    pub fn locate_part(&self, spot: Span, text: &str, range: std::ops::Range<usize>) -> SourceLocation {
        let Span(place) = spot;
        let part = self.sources.get(usize::from(place.source)).and_then(|source| source.inside(place, text, range));
        self.locate(Span(part.unwrap_or(place)))
    }

    /// The place of what a JSON Pointer names within a table, list or text of JSON; of its nearest part that is there.
    #[must_use]
    pub fn locate_pointer(&self, spot: Span, pointer: &str) -> SourceLocation {
        let Span(place) = spot;
        let source = self.sources.get(usize::from(place.source));
        let found = source.and_then(|source| document::pointed(place, source, pointer));
        self.locate(Span(found.unwrap_or(place)))
    }

    /// File, line, column and the line itself.
    #[must_use]
    pub fn locate(&self, spot: Span) -> SourceLocation {
        let Span(place) = spot;
        document::locate(&self.sources, place)
    }
}
