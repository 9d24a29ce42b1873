//! HTTP as it comes from inside: where its messages begin and end, and what their paths mean.

pub mod framing;
pub mod path;

pub use policy::value::is_spelling;
