//! Tests of the proof alone: something is left out of every run of the command line. No product is built with it.

use std::sync::OnceLock;

use policy::Plan;
use sandbox::Options;

/// What is done otherwise than planned.
pub type Change = fn(&Plan, &mut Options);

static CHANGE: OnceLock<Change> = OnceLock::new();

/// From here on every run is changed; whoever asks first counts.
pub fn set(change: Change) {
    CHANGE.get_or_init(|| change);
}

pub(crate) fn apply(plan: &Plan, options: &mut Options) {
    CHANGE.get().iter().for_each(|change| change(plan, options));
}
