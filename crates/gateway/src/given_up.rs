//! Calls that nobody waits for any more, while their tool may still work: whoever hears that it does not says so.

use std::future::Future;

use tokio_util::sync::CancellationToken;

tokio::task_local! {
    static OVER: CancellationToken;
}

/// Makes a call; `over` is to be cancelled when its tool is known to work no more, should the call be given up.
pub(crate) async fn telling<F: Future>(over: CancellationToken, call: F) -> F::Output {
    OVER.scope(over, call).await
}

/// What to cancel when the tool of the call that is being made here works no more.
pub(crate) fn over() -> Option<CancellationToken> {
    OVER.try_with(Clone::clone).ok()
}
