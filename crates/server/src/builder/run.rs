//! One build from its beginning to what is written down of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use live::Begin;
use live::words::Info;
use tokio::time::timeout;

use super::cached::Pace;
use super::step::{self, Inside};
use super::{BuildOrigin, HOME, begun_before, made};
use crate::answer::Problem;
use crate::app::{AppState, Order};
use crate::built::{Build, BuildRequest, BuiltTemplate, Busy, Level, Phase, Reason, Step, Tag, Template, Work};
use crate::clock::now_ms;
use crate::keys::Key;
use crate::labels;

/// How long a build may take, waiting included; its sandbox lives no longer.
pub(super) const MAX_TIME_MS: u64 = 30 * 60 * 1000;
/// How long the sandbox may live in which what a template begins with is tried.
const TRIAL_MS: u64 = 5 * 60 * 1000;
/// The step before the first, and that after the last.
pub(super) const FIRST: &str = "base";
const LAST: &str = "finalize";

/// A build and all that it needs.
pub(super) struct Building {
    pub(super) app: Arc<AppState>,
    pub(super) key: Key,
    pub(super) work: Arc<Work>,
    pub(super) asked: BuildRequest,
    pub(super) origin: BuildOrigin,
    /// The digest of each upload that it copies, by the hash that names it. Held for it since it began.
    pub(super) uploads: BTreeMap<String, String>,
    pub(super) found: Build,
    pub(super) template: Template,
}

/// Why it failed, and in which step.
pub(super) struct BuildFailure {
    pub(super) step: String,
    pub(super) message: String,
}

impl BuildFailure {
    fn at(step: &str, message: impl Into<String>) -> Self {
        Self { step: step.to_owned(), message: message.into() }
    }
}

fn told(problems: Vec<Problem>) -> String {
    Problem::all(problems).line()
}

impl Building {
    /// Writes down that it has begun, and goes on by itself.
    ///
    /// # Errors
    /// It cannot be written down, or somebody else builds it.
    pub(super) async fn begin(mut self) -> Result<(), Problem> {
        let (id, build) = (self.template.id.clone(), self.found.id.clone());
        let hashes = self.hashes();
        let begun = self.app.in_shelf(move |shelf| {
            let Some(busy) = shelf.busy(&id, &build)? else { return Ok(None) };
            let uploads = shelf.hold_uploads((&id, &build), &hashes)?;
            let change = |template: &mut Template| {
                let found = template.build_mut(&build).filter(|found| !found.begun);
                Ok(found.map(|found| found.begun = true).is_some())
            };
            let is_first = shelf.change(&id, change)?;
            Ok(is_first.then_some((busy, uploads)))
        });
        match begun.await {
            Ok(Some((busy, uploads))) => {
                self.uploads = uploads;
                tokio::spawn(self.whole(busy));
                Ok(())
            }
            other => {
                self.app.works.done(&self.work.build);
                other.map(drop)?;
                Err(begun_before())
            }
        }
    }

    /// All of it; `busy` is held until its end is written down.
    async fn whole(self, busy: Busy) {
        let limit = Duration::from_millis(MAX_TIME_MS);
        let cancelled = self.work.cancelled.clone();
        let done = tokio::select! {
            () = cancelled.cancelled() => Err(BuildFailure::at("", self.work.why())),
            done = timeout(limit, self.made()) => done.unwrap_or_else(|_late| {
                Err(BuildFailure::at("", format!("it took longer than {} minutes", MAX_TIME_MS / 60_000)))
            }),
        };
        // One that is being made hears of it.
        self.work.cancelled.cancel();
        self.end_sandbox().await;
        let is_cut_off = done.is_err();
        self.written(done).await;
        self.app.works.done(&self.work.build);
        drop(busy);
        if is_cut_off {
            // What cannot be taken away now is taken with the next change of keys, or the next build that is wanted.
            drop(self.app.collect().await);
        }
    }

    /// What it copies, by its hash.
    fn hashes(&self) -> BTreeSet<String> {
        self.asked.copies().map(|(_, hash)| hash.to_owned()).collect()
    }

    /// A sandbox for the build. A task of its own makes it, so that it is ended also when nobody waits for it any more.
    async fn created(&self, order: Order, step: &str) -> Result<Info, BuildFailure> {
        let (app, key, work) = (Arc::clone(&self.app), self.key.clone(), Arc::clone(&self.work));
        let making = tokio::spawn(async move {
            let made = app.create(&key, order, None).await;
            if let Ok(info) = &made {
                work.is_in(Some(info.id.clone()));
                if work.cancelled.is_cancelled() && app.kill(&info.id).await.is_err() {
                    // Its life is over soon in any case.
                }
            }
            made
        });
        let made =
            making.await.map_err(|_lost| BuildFailure::at(step, "the sandbox of the build could not be made"))?;
        made.map_err(|problems| BuildFailure::at(step, told(problems)))
    }

    /// Ends the sandbox that it was made in.
    async fn end_sandbox(&self) {
        let Some(id) = self.work.sandbox() else { return };
        if self.app.kill(&id).await.is_err() {
            // Its life is over soon in any case.
            self.work.say(Level::Warn, LAST, "the sandbox of the build could not be ended");
        }
        self.work.is_in(None);
    }

    /// Writes down what came of it.
    async fn written(&self, done: Result<BuiltTemplate, BuildFailure>) {
        let made = done.as_ref().ok().map(|kept| kept.snapshot.clone());
        let failed = done.as_ref().err();
        match failed {
            Some(failed) => self.work.say(Level::Error, &failed.step, &failed.message),
            None => self.work.say(Level::Info, LAST, "the template is ready"),
        }
        let reason = failed.map(|failed| Reason { message: failed.message.clone(), step: failed.step.clone() });
        let (id, build) = (self.template.id.clone(), self.found.id.clone());
        let (said, kept) = (self.work.said(), done.ok());
        let hashes = self.hashes();
        let written = self.app.in_shelf(move |shelf| {
            let now = now_ms();
            let change = |template: &mut Template| {
                let Some(found) = template.build_mut(&build) else { return Ok((template.clone(), Vec::new())) };
                (found.phase, found.reason) = (if kept.is_some() { Phase::Ready } else { Phase::Failed }, reason);
                (found.ended_ms, found.sandbox, found.kept) = (Some(now), None, kept.clone());
                if kept.is_some() {
                    let tags = found.tags.clone();
                    template.tags.extend(tags.into_iter().map(|tag| (tag, Tag { build: build.clone(), at_ms: now })));
                    template.updated_ms = now;
                }
                let gone = template.let_go();
                Ok((template.clone(), gone))
            };
            shelf.keep_log(&id, &build, &said)?;
            let (template, gone) = shelf.change(&id, change)?;
            if kept.is_some() && !template.awaits_other(&build, now) {
                shelf.forget_uploads(&id, &hashes);
            }
            shelf.tidy(&template);
            Ok(gone)
        });
        let gone = match written.await {
            Ok(gone) => gone,
            // The template is gone, or the disk is full: nothing of it is left.
            Err(_unwritten) => made.into_iter().collect(),
        };
        self.app.forget_snapshots(gone).await;
    }

    /// Does all steps; what came of them.
    async fn made(&self) -> Result<BuiltTemplate, BuildFailure> {
        self.work.say(Level::Debug, FIRST, "waiting for a turn");
        let turn = self.app.works.turns.clone().acquire_owned().await;
        let _turn = turn.map_err(|_closed| BuildFailure::at(FIRST, "the server ends"))?;
        let at_first = |problem: Problem| BuildFailure::at(FIRST, problem.line());
        let (kept, image) = self.begun_as().await.map_err(at_first)?;
        let (layers, clients, said) = self.app.ways_out(&self.key).await.map_err(at_first)?;
        for line in said {
            self.work.say(Level::Warn, FIRST, &line);
        }
        let mut order = self.order(&kept, MAX_TIME_MS).await.map_err(at_first)?;
        let installs = installs(&order, clients);
        // What it begins with is tried at the end.
        (order.begin, order.added) = (None, layers);
        order.ours.insert(labels::BUILD.to_owned(), self.found.id.clone());
        let digests = self.digests((&order, &kept.base), &installs, image.as_deref());
        let (info, done) = self.begun(order, &digests).await?;
        self.work.say(Level::Info, FIRST, &format!("a sandbox of {} in the tier {}", kept.base, info.tier));
        self.going_on(&info.id).await;
        let mut inside = Inside::new(self, &info.id, installs, kept).await;
        self.steps(&mut inside, &info, (&digests, done)).await?;
        inside.tidied(LAST).await;
        self.finished(inside.kept, &info, digests.last()).await
    }

    /// What it begins as, and the digest of an image. One that is not here is brought.
    async fn begun_as(&self) -> Result<(BuiltTemplate, Option<String>), Problem> {
        let name = match &self.origin {
            BuildOrigin::Here { kept, digest } => return Ok((BuiltTemplate::clone(kept), digest.clone())),
            BuildOrigin::Absent(name) => name,
        };
        self.work.say(Level::Info, FIRST, &format!("bringing the image {name}"));
        let image = self.app.pulled(&self.key, name).await?;
        let digest = image.digest.clone().unwrap_or_default();
        self.work.say(Level::Info, FIRST, &format!("the image {name} is {digest}"));
        let BuildOrigin::Here { kept, digest } = BuildOrigin::of_image(image, &self.asked) else {
            return Err(crate::backend::failed("the image is not here").into());
        };
        // As of an image that was here when the build was asked for.
        let order = self.app.order_of_kept(&self.template, &self.found, &kept)?;
        self.app.plan(&self.key, order).await.map_err(Problem::all)?;
        Ok((*kept, digest))
    }

    /// Its sandbox, and how many steps were done in it by an earlier build.
    async fn begun(&self, order: Order, digests: &[String]) -> Result<(Info, usize), BuildFailure> {
        if let Some((done, state)) = self.earlier(digests).await {
            let from = Order { from: Some(state.snapshot.clone()), ..order.clone() };
            match self.created(from, FIRST).await {
                Ok(info) => return Ok((info, done)),
                Err(failed) => {
                    let words = format!("no sandbox begins as what an earlier build left: {}", failed.message);
                    self.work.say(Level::Debug, FIRST, &words);
                    self.forget_earlier(state).await;
                }
            }
        }
        Ok((self.created(order, FIRST).await?, 0))
    }

    /// Does the steps that no earlier build did: `done` of them are.
    async fn steps(
        &self,
        inside: &mut Inside<'_>,
        info: &Info,
        (digests, done): (&[String], usize),
    ) -> Result<(), BuildFailure> {
        let mut pace = Pace::default();
        for (at, (one, digest)) in self.asked.steps.iter().zip(digests).enumerate() {
            let number = at.saturating_add(1);
            let name = number.to_string();
            if number <= done {
                inside.cached(one, &name);
                continue;
            }
            if self.asked.rootless.contains(&number) {
                let words = "root is the sandbox's one user here: what this step does is done as `user`";
                self.work.say(Level::Warn, &name, words);
            }
            let began = Instant::now();
            inside.step(one, &name).await.map_err(|message| BuildFailure::at(&name, message))?;
            // The last one's is what the template is made of.
            let is_kept = matches!(one, Step::Run(_) | Step::Copy(_)) && number < digests.len();
            if pace.step(began.elapsed()) && is_kept {
                self.keep(info, (digest, &name), &mut pace).await;
            }
        }
        Ok(())
    }

    /// The template, once a sandbox has begun as it.
    async fn finished(
        &self,
        mut kept: BuiltTemplate,
        info: &Info,
        digest: Option<&String>,
    ) -> Result<BuiltTemplate, BuildFailure> {
        let taken = self.app.take_snapshot(&self.key, info, None).await;
        let taken = taken.map_err(|problem| BuildFailure::at(LAST, problem.line()))?;
        if taken.left_out > 0 {
            let words = format!("{} files are not kept: special ones, and what lies too deep", taken.left_out);
            self.work.say(Level::Warn, LAST, &words);
        }
        self.end_sandbox().await;
        kept.snapshot.clone_from(&taken.id);
        kept.begin = self.begins(&kept);
        match self.tried(&kept).await {
            Ok(()) => {
                if let Some(digest) = digest {
                    self.keep_last(&taken, digest).await;
                }
                Ok(kept)
            }
            Err(failed) => {
                self.app.forget_snapshots(vec![kept.snapshot]).await;
                Err(failed)
            }
        }
    }

    /// Its sandbox is there, and is ended by whoever finds that we are not.
    async fn going_on(&self, sandbox: &str) {
        let (id, build, sandbox) = (self.template.id.clone(), self.found.id.clone(), sandbox.to_owned());
        let change = move |template: &mut Template| {
            if let Some(found) = template.build_mut(&build) {
                (found.phase, found.sandbox) = (Phase::Building, Some(sandbox));
            }
            Ok(())
        };
        // Where it cannot be written down its end cannot either, and that is told.
        drop(self.app.in_shelf(move |shelf| shelf.change(&id, change)).await);
    }

    async fn order(&self, kept: &BuiltTemplate, life_ms: u64) -> Result<Order, Problem> {
        let order = self.app.order_of_kept(&self.template, &self.found, kept)?;
        let life_ms = Some(self.app.life(&self.key, life_ms).await?);
        Ok(Order { life_ms, ..order })
    }

    /// The commands that each sandbox begins with, from where its programs begin.
    fn begins(&self, kept: &BuiltTemplate) -> Begin {
        let workdir = live::quoted(&kept.workdir);
        let from_there = |line: &String| format!("cd {workdir} || exit 1\n{line}");
        let (start, ready) = (self.asked.start.as_ref().map(from_there), self.asked.ready.as_ref().map(from_there));
        Begin { start, ready, within_ms: None }
    }

    /// A sandbox of it is made, so that one that does not begin is no template.
    async fn tried(&self, kept: &BuiltTemplate) -> Result<(), BuildFailure> {
        self.work.say(Level::Info, LAST, "a sandbox of it is tried");
        let mut order = self.order(kept, TRIAL_MS).await.map_err(|problem| BuildFailure::at(LAST, problem.line()))?;
        order.ours.insert(labels::BUILD.to_owned(), self.found.id.clone());
        self.created(order, LAST).await?;
        self.end_sandbox().await;
        Ok(())
    }
}

/// Variables by which clients of registries find their way, and install where a step may write.
fn installs(order: &Order, clients: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = made::has_python(&order.layers);
    let pip = if own {
        vec![("PIP_TARGET", made::python_folder())]
    } else {
        vec![("PIP_USER", "1".to_owned()), ("PIP_BREAK_SYSTEM_PACKAGES", "1".to_owned())]
    };
    let others = [
        ("PIP_NO_CACHE_DIR", "1".to_owned()),
        ("PIP_NO_INPUT", "1".to_owned()),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1".to_owned()),
        ("npm_config_prefix", format!("{HOME}/.local")),
        ("npm_config_cache", step::CACHE.to_owned()),
        ("npm_config_update_notifier", "false".to_owned()),
    ];
    let ours = pip.into_iter().chain(others).map(|(name, value)| (name.to_owned(), value));
    clients.into_iter().chain(ours).collect()
}
