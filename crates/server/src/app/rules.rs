//! Other rules for the network of a sandbox that runs.

use std::sync::Arc;

use agent::words::Failure;
use axum::http::StatusCode;
use live::words::{Ask, Info, Replaced, RulesRefused};
use policy::value::{Net, NetMode, secrets_document};
use sandbox::PolicyLayer;

use super::{AppState, load};
use crate::answer::Problem;
use crate::backend::call;
use crate::ceiling;
use crate::keys::Key;

/// A policy of which no word is about the network would close it.
fn says_nothing() -> Problem {
    let what = "the policy says nothing of `net`, and would close the network";
    Problem { instead: "say `net.mode = \"none\"` where that is meant".to_owned(), ..Problem::invalid("policy", what) }
}

/// What the sandbox said of rules that it does not take.
fn not_taken(refused: &RulesRefused) -> Problem {
    let RulesRefused { id, clause, why, fix } = refused;
    let status = if id == "net/no-rules" { StatusCode::NOT_IMPLEMENTED } else { StatusCode::BAD_REQUEST };
    Problem::new(status, id, "the rules of the network are as they were", why, fix).about(clause)
}

/// What of `[net]` is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole table.
    All,
    /// Whom it allows; what is denied, the limits and the rest stay as they are.
    Hosts,
}

impl AppState {
    /// Replaces the rules of a sandbox's network by the `net` of a policy, below the ceiling of its key; the digest of the new ones.
    pub(crate) async fn set_rules(
        &self,
        key: &Key,
        info: &Info,
        (layers, part): (Vec<PolicyLayer>, Part),
    ) -> Result<String, Vec<Problem>> {
        let top = self.ceiling_of(key).await.map_err(|problem| vec![problem])?;
        let now = match part {
            Part::All => None,
            Part::Hosts => Some(self.present(info).await?),
        };
        let environment = Arc::clone(&self.environment);
        let judge = move || {
            let loaded = load(&layers, &environment)?;
            if part == Part::All && !loaded.origins.say("net.") {
                return Err(vec![says_nothing()]);
            }
            let (asked, secrets) = (loaded.policy.net, loaded.policy.secrets);
            // Those of E2B's `rules` were judged already.
            let secrets = (part == Part::All && !secrets.is_empty()).then(|| secrets_document(&secrets));
            let asked = match now {
                None => asked,
                Some(now) => Net { mode: asked.mode, presets: asked.presets, allow: asked.allow, ..now },
            };
            let top = top.as_ref().map(|top| &top.net);
            let mut judged = asked.clone();
            if part == Part::Hosts {
                // Roots stay those of its start, whoever asks for other hosts; a proxy that the key could not ask for carries no
                // hosts of its choice: which addresses they have is judged by the proxy alone.
                judged.ca = top.map_or_else(Vec::new, |top| top.ca.clone());
                judged.proxy = judged.proxy.filter(|_| judged.mode == NetMode::Allow);
            }
            let found = ceiling::beyond_net(top, &judged);
            if found.is_empty() { Ok((asked.document(), secrets)) } else { Err(found) }
        };
        let lost = |_| Err(vec![crate::backend::failed("the rules could not be judged").into()]);
        let (net, secrets) = tokio::task::spawn_blocking(judge).await.unwrap_or_else(lost)?;
        let ask = match part {
            Part::All => Ask::Network { net, secrets },
            // Who else replaces rules meanwhile keeps what is no part of this.
            Part::Hosts => Ask::Hosts { net },
        };
        // A supervisor lets more wait than these, so that whoever has the host is never kept out by the owners of keys.
        let _place = self.rule_changes.acquire().await;
        let done = call(&*self.sandboxes, &info.id, &ask).await;
        match done.map_err(|failure: Failure| vec![failure.into()])? {
            Replaced::Done { digest } => Ok(digest),
            Replaced::Refused(refused) => Err(vec![not_taken(&refused)]),
        }
    }

    /// The rules as they are now.
    pub(crate) async fn present(&self, info: &Info) -> Result<Net, Vec<Problem>> {
        let said: Result<serde_json::Value, Failure> = call(&*self.sandboxes, &info.id, &Ask::Rules {}).await;
        let document = said.map_err(|failure| vec![failure.into()])?;
        let unread = |_| vec![crate::backend::failed("the rules of the sandbox cannot be read").into()];
        Net::from_document(&document).map_err(unread)
    }
}
