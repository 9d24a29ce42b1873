//! Names of what is being made.

use crate::decode::hex;
use crate::error::ImageError;

/// A name that nothing has.
pub(crate) fn unfinished(before: &str) -> Result<String, ImageError> {
    let mut random = [0; 8];
    if !sys::random::fill(&mut random) {
        return Err(ImageError::State(sandbox::state::StateError::NoRandom));
    }
    Ok(format!("{before}{}", hex(&random)))
}
