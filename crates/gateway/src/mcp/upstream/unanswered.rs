//! Servers whose call was given up: whoever was told to stop may work on, and most answer nothing that was cancelled. So the
//! place of such a call is free when its server has answered all the same, or has ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Link, Upstream};
use crate::given_up::Unfinished;
use crate::mcp::servers::Transport;

/// How long a server may take to say that it stopped, before it is ended.
const WORD: Duration = Duration::from_secs(5);
/// How long its other calls are waited for then: as long as a call may take where no entry says how long.
const OTHERS: Duration = Duration::from_secs(600);
/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// A server behind HTTP is nobody's to end: its place is free after this.
const FAR: Duration = Duration::from_secs(60);

/// A call on its way. If it is dropped before its server answered, the server is seen to.
pub(in crate::mcp) struct OnItsWay {
    upstream: Arc<Upstream>,
    link: Arc<Link>,
    unfinished: Option<Unfinished>,
}

impl OnItsWay {
    pub(in crate::mcp) fn new(upstream: &Arc<Upstream>, link: &Arc<Link>) -> Self {
        Self { upstream: upstream.clone(), link: link.clone(), unfinished: crate::given_up::here() }
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        let given_up = self.unfinished.take().filter(|one| one.is_followed() && !one.is_over());
        if let (Some(unfinished), Ok(runtime)) = (given_up, tokio::runtime::Handle::try_current()) {
            let (upstream, link) = (self.upstream.clone(), self.link.clone());
            match &self.upstream.server.transport {
                // Of the gateway's own tasks: they end with it, as its servers do.
                Transport::Command { .. } => drop(self.upstream.tasks.spawn(upstream.see_to(link, unfinished))),
                Transport::Url { .. } => drop(runtime.spawn(async move {
                    let _told = tokio::time::timeout(FAR, unfinished.over()).await;
                    unfinished.end();
                })),
            }
        }
    }
}

impl Upstream {
    /// Waits until a server has ended a call that was given up, or ends the server, with no other call of it if that can be.
    async fn see_to(self: Arc<Self>, link: Arc<Link>, unfinished: Unfinished) {
        let since = Instant::now();
        let quiet = async {
            tokio::time::sleep(WORD).await;
            while link.peer.asking() > 0 && since.elapsed() < OTHERS {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = unfinished.over() => return,
            () = link.peer.closed() => return,
            () = self.stop.cancelled() => return,
            () = quiet => {}
        }
        link.peer.close(
            "it was ended, since a call of it was cancelled or took too long, it did not say that it stopped, and \
             `concurrency` counts who works",
        );
    }
}
