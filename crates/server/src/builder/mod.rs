//! Building the templates of clients: each is made in a live sandbox of its key, by steps, and is the files that this leaves.
//!
//! Promises: a build may do what a sandbox of its key may, and reach registries of packages where its ceiling lets it; it ends in
//! time, and its sandbox with it; whoever did not ask for it neither sees nor uses what comes of it.

mod cached;
mod image;
mod made;
mod run;
mod step;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use live::template::registries;
use policy::json::toml_text;
use sandbox::PolicyLayer;
use serde_json::{Map, Value as Json};

use crate::answer::Problem;
use crate::app::{AppState, load};
use crate::built::{
    Build, BuildBase, BuildRequest, BuiltTemplate, Entry, Phase, Reason, Template, TemplateName, TemplateStore, Work,
    asked, is_build_id, new_build_id, usual_place,
};
use crate::ceiling;
use crate::clock::now_ms;
use crate::keys::Key;

use image::BaseImage;
use run::Building;

/// The home folder of every sandbox that a template is built in.
const HOME: &str = "/home/user";
/// What an image is named by as a base.
const IMAGE: &str = "image:";

/// What a build begins as.
#[derive(Clone, Debug)]
enum BuildOrigin {
    /// What is here; of an image, its digest.
    Here { kept: Box<BuiltTemplate>, digest: Option<String> },
    /// An image that is to be brought first.
    Absent(String),
}

impl BuildOrigin {
    fn of_image(image: BaseImage, asked: &BuildRequest) -> Self {
        let BaseImage { base, digest, path } = image;
        let place = asked.place.clone().unwrap_or_else(usual_place);
        Self::Here { kept: Box::new(BuiltTemplate { path, place, ..begun_as(base) }), digest }
    }
}

/// What has nothing but its base.
fn begun_as(base: String) -> BuiltTemplate {
    BuiltTemplate { base, place: usual_place(), workdir: HOME.to_owned(), ..BuiltTemplate::default() }
}

/// What a client says of a template that it wants to build.
#[derive(Clone, Debug)]
pub(crate) struct TemplateRequest {
    pub(crate) name: TemplateName,
    pub(crate) tags: Vec<String>,
    pub(crate) cpus: Option<u64>,
    pub(crate) memory_mib: Option<u64>,
}

impl AppState {
    /// Does what blocks, with the templates that clients built.
    pub(crate) async fn in_shelf<T: Send + 'static>(
        &self,
        work: impl FnOnce(&TemplateStore) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let shelf = self.shelf.clone();
        let worked = tokio::task::spawn_blocking(move || work(&shelf));
        worked.await.unwrap_or_else(|_lost| Err(crate::backend::failed("it could not be done").into()))
    }

    /// A build that is wanted, of a template that is there or is made.
    pub(crate) async fn wish(&self, key: &Key, wish: TemplateRequest) -> Result<(Template, String), Problem> {
        key.must_build()?;
        let TemplateRequest { name, tags, cpus, memory_mib } = wish;
        if self.templates.names().contains(&name.name) || crate::templates::is_stock(&name.name) {
            let what = format!("{} is a template of this server", policy::diagnostic::quote(&name.name));
            return Err(Problem { instead: "take another name".to_owned(), ..Problem::invalid("name", &what) });
        }
        self.sweep().await?;
        let (owner, most, id) = (key.mark(), key.builds, new_build_id()?);
        let build = Build { id: id.clone(), tags, created_ms: now_ms(), cpus, memory_mib, ..Build::default() };
        let template = self.in_shelf(move |shelf| shelf.wish(&owner, &name.name, build, most)).await?;
        Ok((template, id))
    }

    /// Ends the builds of keys that are gone, and takes away what was theirs. To be called each second or so.
    pub(crate) async fn follow_keys(&self) {
        let Ok(keys) = self.keys.known() else { return };
        let owners: Vec<String> = keys.iter().map(Key::mark).collect();
        for work in self.works.all() {
            if !owners.contains(&work.owner) {
                work.cancel("the key that asked for it was removed");
            }
        }
        if self.works.follows(owners) && self.sweep().await.is_err() {
            self.works.follow_again();
        }
    }

    /// Takes away what belonged to keys that are gone, and what builds left that were cut off.
    async fn sweep(&self) -> Result<(), Problem> {
        let keys = self.keys.clone();
        let orphans = self.in_shelf(move |shelf| {
            let Ok(keys) = keys.list() else { return Ok((Vec::new(), Vec::new())) };
            let owners: Vec<String> = keys.iter().map(Key::mark).collect();
            shelf.sweep()?;
            let states = shelf.forget_step_states(|state| !owners.contains(&state.owner))?;
            Ok((shelf.orphans(&owners)?, states))
        });
        let (orphans, states) = orphans.await?;
        self.forget_snapshots(states).await;
        for orphan in orphans {
            self.take_away(&orphan).await?;
        }
        self.collect().await
    }

    /// Takes away the snapshots that builds left which were cut off before they wrote them down.
    pub(crate) async fn collect(&self) -> Result<(), Problem> {
        // Listed first: whatever a build has made by now it has written down, or it is on its way.
        let of_builds = self.in_state(|state| {
            let all = sandbox::snapshot::list(state).map_err(|error| crate::snapshots::problem(&error))?;
            Ok(all.into_iter().filter_map(|about| Some((crate::snapshots::build_of(&about)?, about.id))).collect())
        });
        let of_builds: Vec<(String, String)> = of_builds.await?;
        let left = self.in_shelf(move |shelf| {
            let busy = shelf.builds_on_their_way()?;
            Ok(of_builds.into_iter().filter(|(build, _)| !busy.contains(build)).map(|(_, id)| id).collect())
        });
        self.forget_snapshots(left.await?).await;
        Ok(())
    }

    /// The template of a key that a word names by id or name.
    pub(crate) async fn built(&self, key: &Key, word: &str) -> Result<Option<Template>, Problem> {
        let (owner, word) = (key.mark(), word.to_owned());
        let Some(template) = self.in_shelf(move |shelf| shelf.find(&owner, &word)).await? else { return Ok(None) };
        self.settled(template).await.map(Some)
    }

    /// All of a key.
    pub(crate) async fn all_built(&self, key: &Key) -> Result<Vec<Template>, Problem> {
        let owner = key.mark();
        let mut all = Vec::new();
        for template in self.in_shelf(move |shelf| shelf.list(&owner)).await? {
            all.push(self.settled(template).await?);
        }
        Ok(all)
    }

    /// The same, once what a server left in the middle is told as failed.
    async fn settled(&self, template: Template) -> Result<Template, Problem> {
        let runs = |build: &&Build| build.is_on_its_way();
        let lost: Vec<String> = template.builds.iter().filter(runs).map(|build| build.id.clone()).collect();
        if lost.iter().all(|build| self.works.get(build).is_some()) {
            return Ok(template);
        }
        let id = template.id.clone();
        let settle = move |shelf: &TemplateStore| {
            let mut left = Vec::new();
            for build in lost {
                // Another server may be at it.
                let Some(_held) = shelf.busy(&id, &build)? else { continue };
                left.extend(shelf.change(&id, |template| Ok(give_up(template, &build)))?);
            }
            let now = shelf.change(&id, |template| Ok(template.clone()))?;
            shelf.tidy(&now);
            Ok((now, left))
        };
        let (now, left) = self.in_shelf(settle).await?;
        for sandbox in left {
            if self.kill(&sandbox).await.is_err() {
                // It has ended.
            }
        }
        Ok(now)
    }

    /// A build of a key's template, and what it said so far.
    pub(crate) async fn build_of(
        &self,
        key: &Key,
        (id, build): (&str, &str),
    ) -> Result<(Template, Build, Vec<Entry>), Problem> {
        // Asked first: one that ends in between has kept what it said.
        let work = self.works.get(build).filter(|work| work.owner == key.mark());
        let template = self.built(key, id).await?.ok_or_else(|| crate::built::no_such(id))?;
        let found = template.build(build).cloned().ok_or_else(|| no_build(build))?;
        if let Some(work) = work.filter(|_| matches!(found.phase, Phase::Waiting | Phase::Building)) {
            return Ok((template, found, work.said()));
        }
        let (id, build) = (template.id.clone(), found.id.clone());
        let said = self.in_shelf(move |shelf| shelf.log(&id, &build)).await?;
        Ok((template, found, said))
    }

    /// Begins a build; it goes on by itself.
    pub(crate) async fn begin_build(
        self: &Arc<Self>,
        key: &Key,
        (id, build): (&str, &str),
        body: &Map<String, Json>,
    ) -> Result<(), Problem> {
        key.must_build()?;
        let asked = asked(body)?;
        let template = self.built(key, id).await?.ok_or_else(|| crate::built::no_such(id))?;
        let found = template.build(build).filter(|_| is_build_id(build)).ok_or_else(|| no_build(build))?.clone();
        if found.begun {
            return Err(begun_before());
        }
        self.uploads_are_there(&template.id, &asked).await?;
        let origin = self.origin(key, &asked).await?;
        if let BuildOrigin::Here { kept, .. } = &origin {
            // Whatever is refused of it is refused now, and not in the middle.
            let order = self.order_of_kept(&template, &found, kept)?;
            self.plan(key, order).await.map_err(Problem::all)?;
        }
        let work = Work::new(&key.mark(), &template.id, &found.id);
        let work = self.works.take(work).ok_or_else(too_many_at_once)?;
        let (app, key, uploads) = (Arc::clone(self), key.clone(), BTreeMap::new());
        Building { app, key, work, asked, origin, uploads, found, template }.begin().await
    }

    async fn uploads_are_there(&self, id: &str, asked: &BuildRequest) -> Result<(), Problem> {
        let copies = asked.copies().map(|(at, hash)| (at, hash.to_owned()));
        let (id, copies): (_, Vec<_>) = (id.to_owned(), copies.collect());
        let missing = self.in_shelf(move |shelf| Ok(copies.into_iter().find(|(_, hash)| !shelf.has_upload(&id, hash))));
        let Some((at, _)) = missing.await? else { return Ok(()) };
        let field = format!("steps[{at}].filesHash");
        Err(Problem::invalid(&field, "no files were sent for this hash, or not to this template"))
    }

    /// What a build begins as.
    async fn origin(&self, key: &Key, asked: &BuildRequest) -> Result<BuildOrigin, Problem> {
        let mut kept = match &asked.from {
            BuildBase::Image(name) => {
                return Ok(match self.image_for(key, name).await? {
                    Some(image) => BuildOrigin::of_image(image, asked),
                    None => BuildOrigin::Absent(name.clone()),
                });
            }
            BuildBase::Template(word) => match self.ready(key, word).await? {
                Some((_, _, kept)) => kept,
                None => {
                    let known = self.templates.find(word).map(drop);
                    known.map_err(|problem| problem.about("fromTemplate"))?;
                    begun_as(word.clone())
                }
            },
        };
        if let Some(place) = asked.place.clone().filter(|place| *place != kept.place) {
            if !kept.snapshot.is_empty() {
                let what = format!("nothing can be written at `{place}`");
                let why =
                    format!("the template that it begins as has `{}` beside its home folder, and no more", kept.place);
                let instead = "use that place, or folders below `/home/user`";
                return Err(Problem::cannot(StatusCode::BAD_REQUEST, "steps", &what, &why, instead));
            }
            kept.place = place;
        }
        // What its sandboxes begin with is said anew.
        Ok(BuildOrigin::Here { kept: Box::new(BuiltTemplate { begin: live::Begin::default(), ..kept }), digest: None })
    }

    /// How programs of a build reach registries; none where the ceiling of the key does not let them. And what is to be said of it.
    async fn ways_out(&self, key: &Key) -> Result<(Vec<PolicyLayer>, BTreeMap<String, String>, Vec<String>), Problem> {
        let top = self.ceiling_of(key).await?;
        let environment = Arc::clone(self.environment());
        let judge = move || {
            let found = registries(&environment);
            let mut said: Vec<String> = Vec::new();
            let left_out = found.left_out.iter();
            said.extend(
                left_out
                    .map(|client| format!("{client} reaches no registry: the server's settings for it hold a login")),
            );
            if found.layers.is_empty() {
                return Ok((Vec::new(), BTreeMap::new(), said));
            }
            let mut net = load(&found.layers, &environment).map_err(Problem::all)?.policy.net;
            let top = top.map(|top| top.net);
            // How the server itself reaches them is not the key's to say.
            net.ca = top.as_ref().map_or_else(Vec::new, |top| top.ca.clone());
            net.proxy = top.as_ref().and_then(|top| top.proxy.clone());
            let beyond = match &top {
                Some(top) => !ceiling::beyond_net(Some(top), &net).is_empty(),
                None => false,
            };
            if beyond {
                said.push(
                    "steps have no network: the ceiling of this key does not let them reach registries".to_owned(),
                );
                return Ok((Vec::new(), BTreeMap::new(), said));
            }
            Ok((found.layers, found.env, said))
        };
        let lost = |_| Err(crate::backend::failed("the registries could not be read").into());
        tokio::task::spawn_blocking(judge).await.unwrap_or_else(lost)
    }
}

/// A build that nobody is at work on any more; the sandbox that it was made in.
fn give_up(template: &mut Template, build: &str) -> Option<String> {
    let build = template.build_mut(build)?;
    if !matches!(build.phase, Phase::Waiting | Phase::Building) {
        return None;
    }
    build.phase = Phase::Failed;
    build.ended_ms = Some(now_ms());
    let message = "the server ended while it was built: build it again".to_owned();
    build.reason = Some(Reason { message, step: String::new() });
    build.sandbox.take()
}

fn no_build(build: &str) -> Problem {
    let what = format!("build {} not found", policy::diagnostic::quote(build));
    let why = "this template has no build of this id";
    Problem::new(StatusCode::NOT_FOUND, "serve/no-such-build", what, why, "`POST /v3/templates` makes one")
}

fn begun_before() -> Problem {
    let (what, why) = ("this build was begun before", "a build is done once");
    let instead = "ask for its status, or for another one (`POST /v3/templates`)";
    Problem::new(StatusCode::CONFLICT, "serve/in-progress", what, why, instead)
}

fn too_many_at_once() -> Problem {
    let (what, why) = ("this key has two builds on their way", "each takes a share of the machine");
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "serve/too-many", what, why, "wait for one to end").again_in(10)
}

/// A clause with a text as its value.
fn set(clause: &str, text: &str) -> PolicyLayer {
    PolicyLayer::Set(format!("{clause}={}", toml_text(text)))
}
