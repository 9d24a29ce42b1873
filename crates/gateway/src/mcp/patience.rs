//! How long a list waits for servers.

use std::time::Duration;

use tokio::time::Instant;

use super::session::QUIET;

/// The longest that a list waits while no server is there at all: there is nobody to delay.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer it waits for the others when one is there.
const GRACE: Duration = Duration::from_secs(1);

/// How long one list waits. What comes later follows with a notification.
pub(super) struct Patience {
    begun: Instant,
    come: Option<Instant>,
}

impl Patience {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), come: None }
    }

    /// A server answered: with something to list, or with nothing.
    pub(super) fn saw(&mut self, something: bool) {
        if something && self.come.is_none() {
            self.come = Some(Instant::now());
        }
    }

    /// When the list is given, whether or not somebody is awaited who may still come.
    pub(super) fn until(&self, awaited: bool) -> Instant {
        if !awaited {
            return self.begun + QUIET;
        }
        let most = self.begun + LIST_TIMEOUT;
        self.come.map_or(most, |come| most.min(come + GRACE))
    }
}
