//! Where a value was written, kept beside it, so that whoever compiles it later can still point at line and column.

use crate::document::{Place, Source};
use crate::mistake::Where;

/// The place of a value in the documents. Two values are equal wherever they were written.
#[derive(Clone, Copy, Debug)]
pub struct Spot(pub(crate) Place);

impl PartialEq for Spot {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Spot {}

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spotted<T> {
    /// The value.
    pub value: T,
    /// Its place.
    pub at: Spot,
}

/// The documents of a policy, to turn a [`Spot`] into words.
#[derive(Clone, Debug, Default)]
pub struct Documents {
    pub(crate) sources: Vec<Source>,
}

impl PartialEq for Documents {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Documents {
    /// File, line, column and the line itself.
    #[must_use]
    pub fn locate(&self, spot: Spot) -> Where {
        let Spot(place) = spot;
        match self.sources.get(usize::from(place.source)) {
            Some(source) => source.place_of(crate::read::offset(place.start)..crate::read::offset(place.end)),
            None => Where { name: crate::load::GROUND.to_owned(), line_column: None, excerpt: String::new() },
        }
    }
}
