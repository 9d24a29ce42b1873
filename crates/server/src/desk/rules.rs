//! Other rules for the network of a sandbox that runs.

use std::sync::Arc;

use live::words::{Ask, Info, Replaced};
use sandbox::PolicyLayer;

use super::{Desk, load};
use crate::answer::Problem;
use crate::backend::call;
use crate::ceiling;
use crate::keys::Key;

impl Desk {
    /// Replaces the rules of a sandbox's network by the `net` of a policy, below the ceiling of its key.
    pub(crate) async fn set_rules(
        &self,
        key: &Key,
        info: &Info,
        layers: Vec<PolicyLayer>,
    ) -> Result<Replaced, Vec<Problem>> {
        let top = self.ceiling_of(key).await.map_err(|problem| vec![problem])?;
        let environment = Arc::clone(&self.environment);
        let judge = move || {
            let asked = load(&layers, &environment)?.policy.net;
            let found = ceiling::beyond_net(top.as_ref().map(|top| &top.net), &asked);
            if found.is_empty() { Ok(asked.document()) } else { Err(found) }
        };
        let lost = |_| Err(vec![crate::backend::failed("the rules could not be judged").into()]);
        let net = tokio::task::spawn_blocking(judge).await.unwrap_or_else(lost)?;
        call(&*self.sandboxes, &info.id, &Ask::Network { net }).await.map_err(|failure| vec![failure.into()])
    }
}
