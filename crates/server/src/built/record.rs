//! What is written down of a template and of its builds.

use std::collections::{BTreeMap, BTreeSet};

use live::Begin;
use serde::{Deserialize, Serialize};

/// So long after it was asked for a build may begin with what was sent for it: as long as the address for an upload holds.
const AWAITED_MS: i64 = 3_600_000;

/// A template of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Template {
    pub(crate) id: String,
    /// The key that made it, as its sandboxes carry it.
    pub(crate) owner: String,
    pub(crate) name: String,
    /// Which build each tag means.
    pub(crate) tags: BTreeMap<String, Tag>,
    /// The oldest first.
    pub(crate) builds: Vec<Build>,
    /// Milliseconds since 1970.
    pub(crate) created_ms: i64,
    pub(crate) updated_ms: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tag {
    pub(crate) build: String,
    /// When it was set: milliseconds since 1970.
    pub(crate) at_ms: i64,
}

/// How far a build is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Phase {
    /// Its files are awaited, or its turn.
    #[default]
    Waiting,
    Building,
    Ready,
    Failed,
}

impl Phase {
    /// As E2B's clients read it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Failed => "error",
        }
    }
}

/// Why a build failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reason {
    pub(crate) message: String,
    /// `base`, the number of a step from 1 on, or `finalize`.
    pub(crate) step: String,
}

/// One build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Build {
    pub(crate) id: String,
    /// The tags that it gets when it is ready.
    pub(crate) tags: Vec<String>,
    pub(crate) phase: Phase,
    /// It was told what to do.
    #[serde(default)]
    pub(crate) begun: bool,
    pub(crate) created_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Reason>,
    /// The sandbox that it is made in, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<String>,
    /// Limits of its sandboxes: processors, and MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpus: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_mib: Option<u64>,
    /// What came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<BuiltTemplate>,
}

/// What a sandbox is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BuiltTemplate {
    /// The template of the server, or `image:REF`, that it began as.
    pub(crate) base: String,
    /// The one place beside the home folder that can be written to.
    pub(crate) place: String,
    /// The snapshot with its files; empty while it is built.
    pub(crate) snapshot: String,
    /// Variables of every program.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Where programs begin.
    pub(crate) workdir: String,
    /// `PATH` of the image that it began as, where that says one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// What a sandbox begins with.
    #[serde(default)]
    pub(crate) begin: Begin,
}

impl Build {
    /// Whether somebody is at work on it, or was when its server ended.
    pub(crate) const fn is_on_its_way(&self) -> bool {
        self.begun && matches!(self.phase, Phase::Waiting | Phase::Building)
    }
}

impl Template {
    /// The build of this id.
    pub(crate) fn build(&self, id: &str) -> Option<&Build> {
        self.builds.iter().find(|build| build.id == id)
    }

    /// The same, to be changed.
    pub(crate) fn build_mut(&mut self, id: &str) -> Option<&mut Build> {
        self.builds.iter_mut().find(|build| build.id == id)
    }

    /// The build that a tag means, once it is ready.
    pub(crate) fn tagged(&self, tag: &str) -> Option<(&Build, &BuiltTemplate)> {
        let build = self.build(&self.tags.get(tag)?.build).filter(|build| build.phase == Phase::Ready)?;
        Some((build, build.kept.as_ref()?))
    }

    /// Whether its name alone means something.
    pub(crate) fn is_ready(&self) -> bool {
        self.tagged(super::names::DEFAULT).is_some()
    }

    /// The newest build that is ready, else the newest.
    pub(crate) fn newest(&self) -> Option<&Build> {
        self.builds.iter().rfind(|build| build.phase == Phase::Ready).or_else(|| self.builds.last())
    }

    /// Builds that nobody needs any more, the oldest first: without a tag, and not on their way.
    pub(crate) fn stale(&self) -> impl Iterator<Item = &Build> {
        let tagged: BTreeSet<&str> = self.tags.values().map(|tag| tag.build.as_str()).collect();
        let is_over = |build: &&Build| !build.is_on_its_way();
        self.builds.iter().filter(is_over).filter(move |build| !tagged.contains(build.id.as_str()))
    }

    /// Whether another build than this one may still want what was sent for it: one on its way, or one that was asked for lately.
    pub(crate) fn awaits_other(&self, build: &str, now_ms: i64) -> bool {
        let is_new = |other: &Build| {
            !other.begun && other.phase == Phase::Waiting && now_ms.saturating_sub(other.created_ms) < AWAITED_MS
        };
        self.builds.iter().any(|other| other.id != build && (other.is_on_its_way() || is_new(other)))
    }

    /// Takes away what was made by builds that no tag means any more: their snapshots.
    pub(crate) fn let_go(&mut self) -> Vec<String> {
        let tagged: BTreeSet<String> = self.tags.values().map(|tag| tag.build.clone()).collect();
        let untagged = self.builds.iter_mut().filter(|build| !tagged.contains(&build.id));
        untagged.filter_map(|build| Some(build.kept.take()?.snapshot)).filter(|id| !id.is_empty()).collect()
    }

    /// All of its snapshots.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &str> {
        let kept = self.builds.iter().filter_map(|build| build.kept.as_ref());
        kept.map(|kept| kept.snapshot.as_str()).filter(|id| !id.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(id: &str) -> Build {
        let kept = Some(BuiltTemplate { snapshot: format!("s-{id}"), ..BuiltTemplate::default() });
        Build { id: id.to_owned(), phase: Phase::Ready, begun: true, kept, ..Build::default() }
    }

    #[test]
    fn a_tag_means_a_build_that_is_ready_and_what_no_tag_means_is_let_go() {
        let failed = Build { id: "c".to_owned(), phase: Phase::Failed, begun: true, ..Build::default() };
        let mut template = Template { builds: vec![ready("a"), ready("b"), failed], ..Template::default() };
        let tag = |build: &str| Tag { build: build.to_owned(), at_ms: 1 };
        template.tags = [("default".to_owned(), tag("b")), ("bad".to_owned(), tag("c"))].into();
        assert_eq!(template.tagged("default").map(|(build, _)| build.id.as_str()), Some("b"));
        assert_eq!((template.tagged("bad"), template.tagged("none")), (None, None));
        assert_eq!(template.stale().map(|build| build.id.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(template.let_go(), ["s-a"]);
        assert_eq!(template.let_go(), Vec::<String>::new());
        assert_eq!(template.snapshots().collect::<Vec<_>>(), ["s-b"]);
    }
}
