//! Steps that an earlier build of the same key did: a build goes on from the state that they left, and leaves such states.
//!
//! Promises: a state is found by all that led to it, what was copied and what the steps could reach included, and by no other key;
//! what cannot be kept as it was, or cannot be gone on from, is done again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use live::create::Layer;
use live::words::{Info, Snapshotted};
use policy::json::sha256_hex;
use serde_json::json;

use super::run::{Building, FIRST};
use crate::answer::Problem;
use crate::app::Order;
use crate::built::{Level, Step, StepState};
use crate::clock::now_ms;

/// What the digests are of is written so; another way of doing steps counts on.
const FORMAT: u32 = 1;
/// Keeping that takes no longer is done after each step that may change files.
const CHEAP: Duration = Duration::from_millis(250);

/// When the last state was kept, and what has happened since.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// How long it took.
    keeping: Duration,
    /// How long the steps since then took.
    since: Duration,
}

impl Pace {
    /// A step took so long: whether it is worth keeping what it left. Where much is to be kept, not more time goes into that than
    /// into the steps.
    pub(super) fn step(&mut self, took: Duration) -> bool {
        self.since = self.since.saturating_add(took);
        self.keeping <= CHEAP || self.since >= self.keeping
    }

    pub(super) fn kept(&mut self, took: Duration) {
        (self.keeping, self.since) = (took, Duration::ZERO);
    }
}

impl Building {
    /// The digest of each beginning of the steps: of one, of two, and so on. `order` is the sandbox that they are done in, `installs`
    /// their variables.
    pub(super) fn digests(
        &self,
        (order, base): (&Order, &str),
        installs: &BTreeMap<String, String>,
        image: Option<&str>,
    ) -> Vec<String> {
        let layers: Vec<Layer> = order.layers.iter().chain(&order.added).cloned().map(Layer::from).collect();
        // A template of the server that was built again is another one under the same name.
        let built = self.app.templates.built_ms(base);
        let first = json!([FORMAT, self.key.mark(), layers, order.from, built, image, installs]);
        let mut last = sha256_hex(first.to_string().as_bytes());
        let mut next = |step: &Step| {
            let content = match step {
                Step::Copy(copy) => self.uploads.get(&copy.hash),
                Step::Run(_) | Step::Env(_) | Step::Workdir(_) | Step::User => None,
            };
            last = sha256_hex(json!([last, step, content]).to_string().as_bytes());
            last.clone()
        };
        self.asked.steps.iter().map(&mut next).collect()
    }

    /// The state that an earlier build left of the first steps, and how many they are.
    pub(super) async fn earlier(&self, digests: &[String]) -> Option<(usize, StepState)> {
        let owner = self.key.mark();
        let digests: Vec<String> = digests.iter().take(self.asked.reusable).cloned().collect();
        let found = self.app.in_shelf(move |shelf| shelf.step_state(&owner, &digests)).await;
        found.unwrap_or_else(|problem| {
            self.work.say(Level::Debug, FIRST, &format!("earlier steps are not looked for: {}", problem.line()));
            None
        })
    }

    /// A state that no sandbox begins as is none.
    pub(super) async fn forget_earlier(&self, state: StepState) {
        let gone = self.app.in_shelf(move |shelf| shelf.forget_step_states(|known| *known.snapshot == state.snapshot));
        if let Ok(gone) = gone.await {
            self.app.forget_snapshots(gone).await;
        }
    }

    /// Keeps what the steps so far left.
    pub(super) async fn keep(&self, info: &Info, (digest, step): (&str, &str), pace: &mut Pace) {
        let began = Instant::now();
        match self.app.take_snapshot(&self.key, info, None).await {
            Ok(taken) => self.keep_as(&taken, digest).await,
            Err(problem) => {
                let words = format!("what this step left is not kept for later builds: {}", problem.line());
                self.work.say(Level::Debug, step, &words);
            }
        }
        pace.kept(began.elapsed());
    }

    async fn keep_as(&self, taken: &Snapshotted, digest: &str) {
        let gone = if taken.left_out > 0 {
            // What lacks something is not what the steps left.
            vec![taken.id.clone()]
        } else {
            self.known_as(taken, digest).await.unwrap_or_else(|_unwritten| vec![taken.id.clone()])
        };
        self.app.forget_snapshots(gone).await;
    }

    /// The snapshot that the template is made of is also what its last step left.
    pub(super) async fn keep_last(&self, taken: &Snapshotted, digest: &str) {
        if taken.left_out == 0
            && let Ok(mut gone) = self.known_as(taken, digest).await
        {
            // The template has it, whether it is kept as a state or not.
            gone.retain(|snapshot| *snapshot != taken.id);
            self.app.forget_snapshots(gone).await;
        }
    }

    /// A snapshot becomes the state of the steps of this digest; which snapshots are to be removed for it.
    async fn known_as(&self, taken: &Snapshotted, digest: &str) -> Result<Vec<String>, Problem> {
        let state = StepState {
            owner: self.key.mark(),
            digest: digest.to_owned(),
            template: self.template.id.clone(),
            snapshot: taken.id.clone(),
            bytes: taken.bytes,
            used_ms: now_ms(),
        };
        self.app.in_shelf(move |shelf| shelf.keep_step_state(state)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeping_takes_no_more_time_than_the_steps_unless_it_takes_little() {
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        assert!(pace.step(ms(1)));
        pace.kept(ms(20));
        assert!(pace.step(ms(1)));
        pace.kept(ms(3000));
        assert!(!pace.step(ms(1000)) && !pace.step(ms(1000)) && pace.step(ms(1000)));
    }
}
