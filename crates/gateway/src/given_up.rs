//! Calls that nobody waits for any more, while their tool may still work: whoever hears that it does not says so.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

tokio::task_local! {
    static HERE: Unfinished;
}

/// A call that may be given up before its tool has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unfinished {
    over: CancellationToken,
    followed: Arc<AtomicBool>,
}

impl Unfinished {
    /// It was given up, and somebody will say when its tool works no more.
    pub(crate) fn follow(&self) {
        self.followed.store(true, Ordering::Release);
    }

    /// Whether somebody will say so.
    pub(crate) fn is_followed(&self) -> bool {
        self.followed.load(Ordering::Acquire)
    }

    /// Its tool works no more.
    pub(crate) fn end(&self) {
        self.over.cancel();
    }

    /// Whether that was said.
    pub(crate) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Becomes ready when that is said.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }
}

/// Makes a call whose end is waited for, also if it is given up.
pub(crate) async fn telling<F: Future>(unfinished: Unfinished, call: F) -> F::Output {
    HERE.scope(unfinished, call).await
}

/// The call that is being made here, where its end is waited for.
pub(crate) fn here() -> Option<Unfinished> {
    HERE.try_with(Clone::clone).ok()
}
