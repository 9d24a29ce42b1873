//! One build from its beginning to what is written down of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use live::Begin;
use live::words::Info;
use tokio::time::timeout;

use super::step::{self, Inside};
use super::{HOME, begun_before, made};
use crate::answer::Problem;
use crate::app::{AppState, Order};
use crate::built::{Build, BuildRequest, BuiltTemplate, Busy, Level, Phase, Reason, Tag, Template, Work};
use crate::clock::now_ms;
use crate::keys::Key;
use crate::labels;

/// How long a build may take, waiting included; its sandbox lives no longer.
pub(super) const MAX_TIME_MS: u64 = 30 * 60 * 1000;
/// How long the sandbox may live in which what a template begins with is tried.
const TRIAL_MS: u64 = 5 * 60 * 1000;
/// The step before the first, and that after the last.
const FIRST: &str = "base";
const LAST: &str = "finalize";

/// A build and all that it needs.
pub(super) struct Building {
    pub(super) app: Arc<AppState>,
    pub(super) key: Key,
    pub(super) work: Arc<Work>,
    pub(super) asked: BuildRequest,
    /// What it begins as.
    pub(super) kept: BuiltTemplate,
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
    pub(super) async fn begin(self) -> Result<(), Problem> {
        let (id, build) = (self.template.id.clone(), self.found.id.clone());
        let begun = self.app.in_shelf(move |shelf| {
            let busy = shelf.busy(&id, &build)?;
            let change = |template: &mut Template| {
                let found = template.build_mut(&build).filter(|found| !found.begun);
                Ok(found.map(|found| found.begun = true).is_some())
            };
            let is_first = busy.is_some() && shelf.change(&id, change)?;
            Ok(busy.filter(|_| is_first))
        });
        match begun.await {
            Ok(Some(busy)) => {
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
            () = cancelled.cancelled() => Err(BuildFailure::at("", "the template was removed")),
            done = timeout(limit, self.made()) => done.unwrap_or_else(|_late| {
                Err(BuildFailure::at("", format!("it took longer than {} minutes", MAX_TIME_MS / 60_000)))
            }),
        };
        // One that is being made hears of it.
        self.work.cancelled.cancel();
        self.end_sandbox().await;
        self.written(done).await;
        self.app.works.done(&self.work.build);
        drop(busy);
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
        let hashes: Vec<String> = self.asked.copies().map(|(_, hash)| hash.to_owned()).collect();
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
            if kept.is_some() {
                let named: Vec<&str> = hashes.iter().map(String::as_str).collect();
                shelf.forget_uploads(&id, &named);
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
        let (layers, clients, said) =
            self.app.ways_out(&self.key).await.map_err(|problem| BuildFailure::at(FIRST, problem.line()))?;
        for line in said {
            self.work.say(Level::Warn, FIRST, &line);
        }
        let mut order =
            self.order(&self.kept, MAX_TIME_MS).await.map_err(|problem| BuildFailure::at(FIRST, problem.line()))?;
        let installs = installs(&order, clients);
        // What it begins with is tried at the end.
        (order.begin, order.added) = (None, layers);
        order.ours.insert(labels::BUILD.to_owned(), self.found.id.clone());
        let info = self.created(order, FIRST).await?;
        self.work.say(Level::Info, FIRST, &format!("a sandbox of {} in the tier {}", self.kept.base, info.tier));
        self.going_on(&info.id).await;
        let mut inside = Inside { building: self, id: info.id.clone(), installs, kept: self.kept.clone() };
        for (at, one) in self.asked.steps.iter().enumerate() {
            let number = at.saturating_add(1);
            let name = number.to_string();
            if self.asked.rootless.contains(&number) {
                let words = "root is the sandbox's one user here: what this step does is done as `user`";
                self.work.say(Level::Warn, &name, words);
            }
            inside.step(one, &name).await.map_err(|message| BuildFailure::at(&name, message))?;
        }
        inside.tidied(LAST).await;
        let mut kept = inside.kept;
        let taken = self.app.take_snapshot(&self.key, &info, None).await;
        let taken = taken.map_err(|problem| BuildFailure::at(LAST, problem.line()))?;
        if taken.left_out > 0 {
            let words = format!("{} files are not kept: special ones, and what lies too deep", taken.left_out);
            self.work.say(Level::Warn, LAST, &words);
        }
        self.end_sandbox().await;
        kept.snapshot = taken.id;
        kept.begin = self.begins(&kept);
        match self.tried(&kept).await {
            Ok(()) => Ok(kept),
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
        Begin { start: self.asked.start.as_ref().map(from_there), ready: self.asked.ready.as_ref().map(from_there) }
    }

    /// A sandbox of it is made, so that one that does not begin is no template.
    async fn tried(&self, kept: &BuiltTemplate) -> Result<(), BuildFailure> {
        if kept.begin == Begin::default() {
            return Ok(());
        }
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
