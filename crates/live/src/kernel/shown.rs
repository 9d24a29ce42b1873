//! What is known of a context from outside while it works.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use super::words::Context;

/// How a context stands.
#[derive(Debug, Default)]
pub(super) struct State {
    busy: AtomicBool,
    dead: AtomicBool,
    connections: AtomicUsize,
    last_ms: AtomicI64,
}

impl State {
    pub(super) fn busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
        self.touch();
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// Something passed.
    pub(super) fn touch(&self) {
        self.last_ms.store(jiff::Timestamp::now().as_millisecond(), Ordering::Relaxed);
    }

    pub(super) fn died(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.busy(false);
    }

    pub(super) fn started(&self) {
        self.dead.store(false, Ordering::Relaxed);
        self.touch();
    }

    pub(super) fn connections(&self, count: usize) {
        self.connections.store(count, Ordering::Relaxed);
    }

    /// The context with how it stands.
    pub(super) fn of(&self, context: &Context) -> Context {
        Context {
            busy: self.busy.load(Ordering::Relaxed),
            dead: self.dead.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            last_ms: self.last_ms.load(Ordering::Relaxed),
            ..context.clone()
        }
    }
}
