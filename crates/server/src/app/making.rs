//! Creating a sandbox: how many are on their way, what is wanted, and whether the ceiling of its key permits it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::http::StatusCode;
use live::moment::boot_ms;
use live::words::{Info, State};
use policy::json::sha256_hex;
use policy::value::Root;
use sandbox::{Capabilities, Planned, PolicyLayer, Workload};
use serde_json::{Value as Json, json};

use super::{AppState, LIFE_MS, MAX_LIFE_MS, Once, Order, load, locked, problems, read_ceiling};
use crate::admission::admit;
use crate::answer::Problem;
use crate::app::Headers;
use crate::backend::SandboxRequest;
use crate::ceiling::{self, CeilingResult};
use crate::keys::Key;
use crate::labels::{self, AT_END, BODY, HEADERS, KEPT_MS, KEY, LATEST, MADE, ONCE, PORTS, PREFIX, WAKE};
use crate::tokens::{Purpose, Tokens};

/// Most labels of a sandbox, and most bytes of one.
const MAX_LABELS: usize = 64;
const MAX_LABEL: usize = 4096;

/// What of the host the server itself shows inside.
struct Ours {
    /// The empty one first.
    folders: Vec<PathBuf>,
    /// The image that is the template's root.
    root: Option<String>,
}

impl Ours {
    /// The same as folders: where the policy's root is the template's own, its tree too.
    fn of(mut self, root: &Root) -> Vec<PathBuf> {
        if let (Root::Image(image), Some(own)) = (root, &self.root)
            && let Ok(found) = &image.found
            && found.is_kept()
            && own.ends_with(&format!("@{}", found.digest))
        {
            self.folders.push(found.tree.clone());
        }
        self.folders
    }
}

/// A creation on its way; it is none any more when this is dropped.
struct Creating<'a> {
    app: &'a AppState,
    once: Option<String>,
    key: String,
    /// Its number, by which its sandbox is known in a list.
    number: u64,
    /// The numbers of the key's that were on their way when this one began.
    before: BTreeSet<u64>,
}

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        if let Some(once) = &self.once {
            locked(&self.app.creating).remove(once);
        }
        let mut coming = locked(&self.app.coming);
        if let Some(numbers) = coming.get_mut(&self.key) {
            numbers.remove(&self.number);
        }
        coming.retain(|_, numbers| !numbers.is_empty());
    }
}

impl Creating<'_> {
    /// How many the key has or will have, this one included: each that lives, and each that was on its way before, which is in the
    /// list by now or not. One that came to nothing meanwhile counts all the same: rather one too few than one too many.
    fn count(&self, known: &[Info]) -> usize {
        let living = known.iter().filter(|info| info.state != State::Ended);
        let made: BTreeSet<&str> = known.iter().filter_map(|info| info.labels.get(MADE)).map(String::as_str).collect();
        let coming = self.before.iter().filter(|number| !made.contains(self.app.made(**number).as_str()));
        living.count().saturating_add(coming.count()).saturating_add(1)
    }
}

impl AppState {
    /// Creates a sandbox under the ceiling of a key.
    pub(crate) async fn create(&self, key: &Key, order: Order, once: Option<Once<'_>>) -> Result<Info, Vec<Problem>> {
        let began = Instant::now();
        let made = self.make(key, order, once).await;
        self.meters.created(made.is_ok(), began.elapsed());
        made
    }

    async fn make(&self, key: &Key, order: Order, once: Option<Once<'_>>) -> Result<Info, Vec<Problem>> {
        let one = |problem: Problem| vec![problem];
        let digests = once.map(|once| digests(key, &once, &self.tokens)).transpose().map_err(one)?;
        let creating = self.begin(key, digests.as_ref().map(|(once, _)| once.clone())).map_err(one)?;
        // Whether it was asked for before is also in the labels of those that ended.
        let (known, unread) = self.list_and_count(key, digests.is_some()).await.map_err(one)?;
        if let Some((once, body)) = &digests
            && let Some(info) = known.iter().find(|info| info.labels.get(ONCE) == Some(once))
        {
            return if info.labels.get(BODY) == Some(body) { Ok(info.clone()) } else { Err(vec![another_body()]) };
        }
        self.room_for(key, &creating, (&known, unread)).map_err(one)?;
        let ours = Ours {
            folders: std::iter::once(self.empty.clone()).chain(order.shown.clone()).collect(),
            root: order.root.clone(),
        };
        let (beyond_ms, added) = (order.beyond_ms, order.added.clone());
        let mut wanted = self.wanted(key, order, digests)?;
        wanted.labels.insert(MADE.to_owned(), self.made(creating.number));
        if let Some(most) = self.permitted(key, &mut wanted, (ours, beyond_ms)).await? {
            let latest = boot_ms().saturating_add(i64::try_from(most).unwrap_or(i64::MAX));
            wanted.labels.insert(LATEST.to_owned(), latest.to_string());
        }
        wanted.layers.extend(added);
        self.sandboxes.create(wanted).await
    }

    /// Who would hold each clause of a sandbox that is wanted; nothing is started.
    pub(crate) async fn plan(&self, key: &Key, order: Order) -> Result<Json, Vec<Problem>> {
        let ours = Ours {
            folders: std::iter::once(self.empty.clone()).chain(order.shown.clone()).collect(),
            root: order.root.clone(),
        };
        let beyond_ms = order.beyond_ms;
        let mut wanted = self.wanted(key, order, None)?;
        self.permitted(key, &mut wanted, (ours, beyond_ms)).await?;
        let environment = Arc::clone(&self.environment);
        let SandboxRequest { mut layers, timeout_ms, .. } = wanted;
        let life = timeout_ms.map(|ms| ("--timeout".to_owned(), format!("{ms}ms")));
        layers.extend(life.map(|(name, value)| PolicyLayer::Flag { name, value }));
        let judge = move || {
            let host = Capabilities::probe_with(environment.services());
            let planned = sandbox::plan(load(&layers, &environment)?, Workload::Nothing, &host);
            let Planned { plan, why, lints, .. } = planned.map_err(|error| problems(&error))?;
            let notes = sandbox::run::foresee(&plan, &host).map_err(|error| problems(&error))?;
            let mut told = plan.to_json();
            if let Some(map) = told.as_object_mut() {
                map.insert("why".to_owned(), json!(why));
                map.insert("lints".to_owned(), lints.iter().map(policy::Lint::to_json).collect());
                map.insert("notes".to_owned(), json!(notes));
            }
            Ok(told)
        };
        let lost = |_| Err(vec![crate::backend::failed("the policy could not be judged").into()]);
        tokio::task::spawn_blocking(judge).await.unwrap_or_else(lost)
    }

    /// Takes a place among those that are being made.
    fn begin(&self, key: &Key, once: Option<String>) -> Result<Creating<'_>, Problem> {
        if let Some(once) = &once
            && !locked(&self.creating).insert(once.clone())
        {
            let what = "a request with this Idempotency-Key is on its way";
            let why = "its answer is not known yet";
            return Err(Problem::new(StatusCode::CONFLICT, "serve/in-progress", what, why, "try again").again_in(1));
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let mut coming = locked(&self.coming);
        let numbers = coming.entry(key.name.clone()).or_default();
        // Read together with the entry: of two at once one knows of the other, whatever the list says later.
        let before = numbers.clone();
        numbers.insert(number);
        drop(coming);
        Ok(Creating { app: self, once, key: key.name.clone(), number, before })
    }

    /// What a sandbox is known by that was made by the creation of this number.
    fn made(&self, number: u64) -> String {
        format!("{} {number}", self.since_ms)
    }

    fn room_for(&self, key: &Key, creating: &Creating<'_>, known: (&[Info], usize)) -> Result<(), Problem> {
        let (known, unread) = known;
        if let Some(most) = key.sandboxes {
            // Whose record nobody can read, but somebody holds it: it may be this key's.
            let count = creating.count(known).saturating_add(unread);
            if count > usize::try_from(most).unwrap_or(usize::MAX) {
                let there = count.saturating_sub(1);
                let has = if unread == 0 { String::new() } else { format!(", with {unread} that cannot be read") };
                let what =
                    format!("this key has {there} sandboxes{has}, and {most} are the most that it may have at once");
                let why = "each key has its share of the machine";
                let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "serve/too-many", what, why, "kill some");
                return Err(problem.about("sandboxes"));
            }
        }
        self.has_room(0)
    }

    /// Whether the host has room for all that are on their way, and for so many more that the server makes otherwise.
    ///
    /// # Errors
    /// It has not, and when to try again.
    pub(crate) fn has_room(&self, more: usize) -> Result<(), Problem> {
        let coming: usize = locked(&self.coming).values().map(BTreeSet::len).sum();
        admit((self.room)(), coming.saturating_add(more))
    }

    fn wanted(
        &self,
        key: &Key,
        order: Order,
        digests: Option<(String, String)>,
    ) -> Result<SandboxRequest, Vec<Problem>> {
        let Order {
            template,
            imports,
            mut layers,
            shown: _,
            root: _,
            beyond_ms: _,
            name,
            metadata,
            env,
            life_ms,
            idle_ms,
            pauses_at_end,
            wakes,
            private_ports,
            begin,
            ours,
            added: _,
            from,
            headers,
        } = order;
        key.must_use(&template).map_err(|problem| vec![problem])?;
        let mut labels = BTreeMap::new();
        for (label, value) in metadata {
            check_label(&label, &value).map_err(|problem| vec![problem])?;
            labels.insert(label, value);
        }
        if labels.len() > MAX_LABELS {
            return Err(vec![Problem::invalid("metadata", &format!("more than {MAX_LABELS} labels"))]);
        }
        for (variable, value) in env {
            layers.push(PolicyLayer::Flag { name: "--env".to_owned(), value: format!("{variable}={value}") });
        }
        if let Some(life) = life_ms.filter(|life| *life > MAX_LIFE_MS) {
            let what = format!("a life of {life} ms is longer than {MAX_LIFE_MS} ms");
            return Err(vec![Problem::invalid("timeout", &what)]);
        }
        labels.extend(ours);
        labels.insert(KEY.to_owned(), key.mark());
        if let Some((once, body)) = digests {
            labels.insert(ONCE.to_owned(), once);
            labels.insert(BODY.to_owned(), body);
        }
        if pauses_at_end {
            labels.insert(AT_END.to_owned(), "pause".to_owned());
        }
        if wakes {
            labels.insert(WAKE.to_owned(), String::new());
        }
        if private_ports {
            labels.insert(PORTS.to_owned(), "private".to_owned());
        }
        let given = headers.map_or_else(BTreeMap::new, |Headers { given, mark }| {
            labels.insert(HEADERS.to_owned(), mark);
            given
        });
        Ok(SandboxRequest {
            owner: key.mark(),
            layers,
            no_links: key.ceiling.is_some(),
            name,
            labels,
            timeout_ms: life_ms,
            idle_ms,
            template,
            begin,
            imports,
            from,
            given,
        })
    }

    /// Whether the policy and the life are below the ceiling of the key; the policy then names what was judged, and the life is what
    /// its supervisor is told. `ours` are folders that the server itself shows inside, the empty one first; `beyond_ms` is how much
    /// longer the server itself wants it. How long the ceiling lets it live, milliseconds.
    async fn permitted(
        &self,
        key: &Key,
        wanted: &mut SandboxRequest,
        (ours, beyond_ms): (Ours, u64),
    ) -> Result<Option<u64>, Vec<Problem>> {
        let (layers, environment) = (wanted.layers.clone(), Arc::clone(&self.environment));
        let (top, life) = (key.ceiling.clone(), wanted.timeout_ms);
        let given: BTreeSet<String> = wanted.given.keys().cloned().collect();
        let judge = move || {
            let mut asked = load(&layers, &environment)?;
            // What the caller handed over itself is nothing of the host's.
            asked.policy.secrets.retain(|_, secret| !secret.variables().any(|name| given.contains(name)));
            let top = top.map(|top| read_ceiling(&[PolicyLayer::Document(top)], &environment)).transpose()?;
            let top = top.as_ref();
            let CeilingResult { mut found, layers } =
                ceiling::beyond(top, &asked.policy, &ours.of(&asked.policy.fs.root));
            let wall = top.and_then(|top| top.limits.wall).map(|wall| wall.0);
            if let Some(most) = wall.filter(|most| life.is_some_and(|life| life > *most)) {
                found.push(too_long(most));
            }
            if found.is_empty() { Ok((wall, layers)) } else { Err(found) }
        };
        let lost = |_| Err(vec![crate::backend::failed("the policy could not be judged").into()]);
        let (wall, led) = tokio::task::spawn_blocking(judge).await.unwrap_or_else(lost)?;
        wanted.layers.extend(led);
        lives(wanted, wall, beyond_ms);
        Ok(wall)
    }
}

/// What its supervisor is told of its life, which was judged: who asked for none gets the usual one, or as long a one as the ceiling
/// allows. What it is kept for beyond that, when it is paused or the server has something to tell, never passes the ceiling.
fn lives(wanted: &mut SandboxRequest, wall: Option<u64>, beyond_ms: u64) {
    let within = |ms: u64| wall.map_or(ms, |wall| wall.min(ms));
    let life = wanted.timeout_ms.unwrap_or_else(|| within(LIFE_MS));
    let pauses = wanted.labels.contains_key(AT_END);
    let all = within(life.saturating_add(if pauses { KEPT_MS } else { beyond_ms }));
    wanted.timeout_ms = Some(all);
    if let Some(wakes) = wanted.labels.get_mut(WAKE) {
        *wakes = life.to_string();
    }
    if pauses {
        wanted.labels.extend(labels::of_pausing(life, all.saturating_sub(life)));
    }
}

fn digests(key: &Key, once: &Once<'_>, tokens: &Tokens) -> Result<(String, String), Problem> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
    if !(1..=255).contains(&once.key.len()) || !once.key.bytes().all(plain) {
        return Err(Problem::invalid("Idempotency-Key", "an Idempotency-Key is 1 to 255 of [a-zA-Z0-9_-]"));
    }
    Ok((sha256_hex(format!("{} {}", key.name, once.key).as_bytes()), tokens.of(Purpose::Body, &sha256_hex(once.body))))
}

fn check_label(label: &str, value: &str) -> Result<(), Problem> {
    if label.starts_with(PREFIX) {
        let what = format!("the label {} begins with `{PREFIX}`", policy::diagnostic::quote(label));
        return Err(Problem::invalid("metadata", &what));
    }
    if label.is_empty() || label.len().saturating_add(value.len()) > MAX_LABEL {
        return Err(Problem::invalid("metadata", &format!("a label is empty, or longer than {MAX_LABEL} bytes")));
    }
    Ok(())
}

fn another_body() -> Problem {
    let what = "this Idempotency-Key came with another request before";
    let why = "a key stands for one request";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "serve/another-body", what, why, "take a new key")
}

fn too_long(most_ms: u64) -> Problem {
    let what = format!("it would live longer than {most_ms} ms");
    let why = "the ceiling of this key says so";
    Problem::new(StatusCode::FORBIDDEN, "serve/beyond-ceiling", what, why, "ask for a shorter life")
        .about("limits.wall")
}
