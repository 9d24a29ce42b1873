//! What the steps of builds left, kept for builds of the same key that begin with the same steps.
//!
//! A state is a snapshot, found by the digest of all that led to it. It is its key's alone, and goes with the template whose build
//! left it. Those used longest ago go first where there are too many.

use serde::{Deserialize, Serialize};

use super::{TemplateStore, make, read, write};
use crate::answer::Problem;
use crate::clock::now_ms;

const STATES: &str = "steps.json";
/// Most states of a key, and most bytes of them.
const MAX_OF_KEY: usize = 32;
const MAX_BYTES: u64 = 4 << 30;
/// Most states of all keys: snapshots of a state folder are bounded, and others want some, too.
const MAX_ALL: usize = 96;

/// What so many steps left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepState {
    /// The key whose build it was, as its sandboxes carry it.
    pub(crate) owner: String,
    /// Digest of what it began as and of each step.
    pub(crate) digest: String,
    /// The template whose build left it.
    pub(crate) template: String,
    pub(crate) snapshot: String,
    /// Bytes of the snapshot.
    pub(crate) bytes: u64,
    /// When it was made or gone on from last: milliseconds since 1970.
    pub(crate) used_ms: i64,
}

impl TemplateStore {
    /// The state of an owner that the longest of these beginnings left, and how many steps that are: `digests` are of one step, of
    /// two, and so on.
    ///
    /// # Errors
    /// The folder cannot be read or written.
    pub(crate) fn step_state(&self, owner: &str, digests: &[String]) -> Result<Option<(usize, StepState)>, Problem> {
        let _lock = self.lock(&self.root)?;
        let mut states = self.states()?;
        let mut longest = digests.iter().enumerate().rev();
        let found = longest.find_map(|(at, digest)| {
            let state = states.iter_mut().find(|state| state.owner == owner && state.digest == *digest)?;
            state.used_ms = now_ms();
            Some((at.saturating_add(1), state.clone()))
        });
        if found.is_some() {
            self.keep_states(&states)?;
        }
        Ok(found)
    }

    /// Keeps a state; the snapshots that make room for it, or its own where it is not kept: they are to be removed.
    ///
    /// # Errors
    /// The folder cannot be read or written.
    pub(crate) fn keep_step_state(&self, state: StepState) -> Result<Vec<String>, Problem> {
        make(&self.root)?;
        let _lock = self.lock(&self.root)?;
        // Its template may have been removed meanwhile.
        if state.bytes > MAX_BYTES || self.read(&state.template)?.is_none() {
            return Ok(vec![state.snapshot]);
        }
        let mut states = self.states()?;
        let is_same = |other: &StepState| (&other.owner, &other.digest) == (&state.owner, &state.digest);
        let mut gone: Vec<StepState> = states.extract_if(.., |other| is_same(other)).collect();
        let owner = state.owner.clone();
        states.push(state);
        states.sort_by_key(|state| state.used_ms);
        loop {
            let own: Vec<&StepState> = states.iter().filter(|state| state.owner == owner).collect();
            let bytes = own.iter().fold(0_u64, |sum, state| sum.saturating_add(state.bytes));
            let is_too_much = own.len() > MAX_OF_KEY || bytes > MAX_BYTES;
            let oldest = match (is_too_much, states.len() > MAX_ALL) {
                (true, _) => states.iter().position(|state| state.owner == owner),
                (false, true) => Some(0),
                (false, false) => None,
            };
            let Some(at) = oldest.filter(|at| *at < states.len()) else { break };
            gone.push(states.remove(at));
        }
        self.keep_states(&states)?;
        Ok(gone.into_iter().map(|state| state.snapshot).collect())
    }

    /// Forgets states; their snapshots, which are to be removed.
    ///
    /// # Errors
    /// The folder cannot be read or written.
    pub(crate) fn forget_step_states(&self, is_gone: impl Fn(&StepState) -> bool) -> Result<Vec<String>, Problem> {
        if !self.root.is_dir() {
            return Ok(Vec::new());
        }
        let _lock = self.lock(&self.root)?;
        let mut states = self.states()?;
        let gone: Vec<String> = states.extract_if(.., |state| is_gone(state)).map(|state| state.snapshot).collect();
        if !gone.is_empty() {
            self.keep_states(&states)?;
        }
        Ok(gone)
    }

    /// Those of these snapshots that neither a template nor a state is made of.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn unnamed(&self, mut snapshots: Vec<String>) -> Result<Vec<String>, Problem> {
        let (templates, states) = (self.all()?, self.states()?);
        let of_templates = templates.iter().flat_map(super::Template::snapshots);
        let named: Vec<&str> = of_templates.chain(states.iter().map(|state| state.snapshot.as_str())).collect();
        snapshots.retain(|snapshot| !named.contains(&snapshot.as_str()));
        Ok(snapshots)
    }

    /// The builds that somebody is at work on, or was when its server ended.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn builds_on_their_way(&self) -> Result<Vec<String>, Problem> {
        let all = self.all()?.into_iter().flat_map(|template| template.builds);
        Ok(all.filter(super::Build::is_on_its_way).map(|build| build.id).collect())
    }

    /// What cannot be read is as none: it only saves time.
    fn states(&self) -> Result<Vec<StepState>, Problem> {
        let text = read(&self.root.join(STATES))?.unwrap_or_default();
        Ok(serde_json::from_slice(&text).unwrap_or_default())
    }

    fn keep_states(&self, states: &[StepState]) -> Result<(), Problem> {
        write(&self.root.join(STATES), &states)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Build, new_build_id};
    use super::*;

    fn shelf() -> (tempfile::TempDir, TemplateStore, String) {
        let folder = tempfile::tempdir().unwrap();
        let shelf = TemplateStore::new(folder.path());
        let build = Build { id: new_build_id().unwrap(), ..Build::default() };
        let id = shelf.wish("a", "app", build, None).unwrap().id;
        (folder, shelf, id)
    }

    fn state(owner: &str, digest: &str, template: &str, used_ms: i64) -> StepState {
        let text = |text: &str| text.to_owned();
        let snapshot = format!("{owner}-{digest}-{used_ms}");
        StepState { owner: text(owner), digest: text(digest), template: text(template), snapshot, bytes: 1, used_ms }
    }

    fn digests(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_state_is_found_by_the_longest_beginning_and_by_its_own_key_alone() {
        let (_folder, shelf, id) = shelf();
        let steps = digests(&["1", "2", "3"]);
        assert_eq!(shelf.step_state("a", &steps).unwrap(), None);
        for digest in ["1", "2"] {
            assert_eq!(shelf.keep_step_state(state("a", digest, &id, 5)).unwrap(), Vec::<String>::new());
        }
        let (count, found) = shelf.step_state("a", &steps).unwrap().unwrap();
        assert_eq!((count, found.snapshot.as_str(), found.used_ms > 5), (2, "a-2-5", true));
        assert_eq!(shelf.step_state("a", &digests(&["1", "x", "3"])).unwrap().map(|found| found.0), Some(1));
        // Another key that did the same steps, and the same key as it was before it was removed.
        for other in ["b", "a 2", ""] {
            assert_eq!(shelf.step_state(other, &steps).unwrap(), None, "{other}");
        }
        // The same again takes its place.
        assert_eq!(shelf.keep_step_state(state("a", "2", &id, 7)).unwrap(), ["a-2-5"]);
        assert_eq!(shelf.unnamed(digests(&["a-1-5", "a-2-5", "a-2-7"])).unwrap(), ["a-2-5"]);
        assert_eq!(shelf.forget_step_states(|state| state.template == id).unwrap().len(), 2);
        assert_eq!(shelf.step_state("a", &steps).unwrap(), None);
        assert_eq!(shelf.keep_step_state(state("a", "1", "t0123456789abcdef012", 5)).unwrap(), ["a-1-5"]);
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let (_folder, shelf, id) = shelf();
        for at in 0..MAX_OF_KEY {
            let kept = shelf.keep_step_state(state("a", &at.to_string(), &id, i64::try_from(at).unwrap()));
            assert_eq!(kept.unwrap(), Vec::<String>::new());
        }
        assert!(shelf.step_state("a", &digests(&["0"])).unwrap().is_some());
        assert_eq!(shelf.keep_step_state(state("a", "new", &id, 100)).unwrap(), ["a-1-1"], "0 was used since");
        // Bytes count, too, and one that is too large alone is not kept.
        let large = StepState { bytes: MAX_BYTES - 3, ..state("a", "large", &id, 200) };
        assert_eq!(shelf.keep_step_state(large).unwrap().len(), MAX_OF_KEY - 3);
        let huge = StepState { bytes: MAX_BYTES + 1, ..state("a", "huge", &id, 300) };
        assert_eq!(shelf.keep_step_state(huge).unwrap(), ["a-huge-300"]);
        // Of all keys together no more than there may be.
        let other =
            |at: usize| state(&format!("k{}", at / 10), &at.to_string(), &id, i64::try_from(at + 1000).unwrap());
        let gone: usize = (0..MAX_ALL * 2).map(|at| shelf.keep_step_state(other(at)).unwrap().len()).sum();
        assert_eq!(shelf.states().unwrap().len(), MAX_ALL);
        assert!(gone >= MAX_ALL, "{gone}");
    }
}
