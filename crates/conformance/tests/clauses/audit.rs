//! Later.
use conformance::Case;
pub(crate) const CASES: &[Case] = &[];
