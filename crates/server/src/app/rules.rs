//! Other rules for the network of a sandbox that runs.

use std::sync::Arc;

use agent::words::Failure;
use live::words::{Ask, Info, Replaced};
use policy::value::Net;
use sandbox::PolicyLayer;

use super::{AppState, load};
use crate::answer::Problem;
use crate::backend::call;
use crate::ceiling;
use crate::keys::Key;

/// What of `[net]` is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole table.
    All,
    /// Whom it allows; what is denied, the limits and the rest stay as they are.
    Hosts,
}

impl AppState {
    /// Replaces the rules of a sandbox's network by the `net` of a policy, below the ceiling of its key.
    pub(crate) async fn set_rules(
        &self,
        key: &Key,
        info: &Info,
        (layers, part): (Vec<PolicyLayer>, Part),
    ) -> Result<Replaced, Vec<Problem>> {
        let top = self.ceiling_of(key).await.map_err(|problem| vec![problem])?;
        let now = match part {
            Part::All => None,
            Part::Hosts => Some(self.present(info).await?),
        };
        let environment = Arc::clone(&self.environment);
        let judge = move || {
            let asked = load(&layers, &environment)?.policy.net;
            let asked = match now {
                None => asked,
                Some(now) => Net { mode: asked.mode, presets: asked.presets, allow: asked.allow, ..now },
            };
            let top = top.as_ref().map(|top| &top.net);
            let mut judged = asked.clone();
            if part == Part::Hosts {
                // Roots and proxy stay those of its start, whoever asks for other hosts.
                judged.ca = top.map_or_else(Vec::new, |top| top.ca.clone());
                judged.proxy = top.and_then(|top| top.proxy.clone());
            }
            let found = ceiling::beyond_net(top, &judged);
            if found.is_empty() { Ok(asked.document()) } else { Err(found) }
        };
        let lost = |_| Err(vec![crate::backend::failed("the rules could not be judged").into()]);
        let net = tokio::task::spawn_blocking(judge).await.unwrap_or_else(lost)?;
        call(&*self.sandboxes, &info.id, &Ask::Network { net }).await.map_err(|failure| vec![failure.into()])
    }

    /// The rules as they are now.
    pub(crate) async fn present(&self, info: &Info) -> Result<Net, Vec<Problem>> {
        let said: Result<serde_json::Value, Failure> = call(&*self.sandboxes, &info.id, &Ask::Rules {}).await;
        let document = said.map_err(|failure| vec![failure.into()])?;
        let unread = |_| vec![crate::backend::failed("the rules of the sandbox cannot be read").into()];
        Net::from_document(&document).map_err(unread)
    }
}
