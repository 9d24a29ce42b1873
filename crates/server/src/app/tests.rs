//! Creating over sandboxes that a test holds up: what is counted, and how long what is made lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agent::words::Failure;
use live::client::Client;
use sandbox::PolicyLayer;
use tempfile::TempDir;
use tokio::sync::Notify;

use super::*;
use crate::backend::{BoxFuture, SandboxRequest};
use crate::labels::{self, KEPT, KEPT_MS, LATEST, LIFE};

/// Where somebody is held up.
#[derive(Default)]
struct Gate {
    holds: AtomicBool,
    begun: Notify,
    go: Notify,
}

impl Gate {
    async fn pass(&self) {
        if self.holds.swap(false, Ordering::Relaxed) {
            self.begun.notify_one();
            self.go.notified().await;
        }
    }
}

/// Sandboxes that are records alone.
#[derive(Default)]
struct Stub {
    all: Mutex<Vec<Info>>,
    wanted: Mutex<Vec<SandboxRequest>>,
    lists: Gate,
    creates: Gate,
    /// A sandbox is in the list before its creation is over.
    early: AtomicBool,
    /// So many more are held by somebody, and their records are no records.
    unread: AtomicUsize,
}

fn info(id: usize, wanted: &SandboxRequest) -> Info {
    let ends = wanted.timeout_ms.map(|ms| i64::try_from(ms).unwrap());
    serde_json::from_value(serde_json::json!({
        "id": format!("s{id}"), "labels": wanted.labels, "state": "running", "run": "r", "tier": "container", "policy": "base",
        "plan": "", "created_ms": 0, "ends_ms": ends, "ends_boot_ms": ends, "pid": 1, "usage": {},
    }))
    .unwrap()
}

impl Sandboxes for Stub {
    fn list(&self, _ended: bool) -> BoxFuture<'_, Result<Vec<Info>, Failure>> {
        let all = locked(&self.all).clone();
        Box::pin(async move {
            self.lists.pass().await;
            Ok(all)
        })
    }

    fn list_and_count(&self, ended: bool) -> BoxFuture<'_, Result<(Vec<Info>, usize), Failure>> {
        Box::pin(async move { Ok((self.list(ended).await?, self.unread.load(Ordering::Relaxed))) })
    }

    fn find<'a>(&'a self, _id: &'a str) -> BoxFuture<'a, Result<Option<Info>, Failure>> {
        Box::pin(async { Ok(None) })
    }

    fn create(&self, wanted: SandboxRequest) -> BoxFuture<'_, Result<Info, Vec<Problem>>> {
        Box::pin(async move {
            let made = info(locked(&self.wanted).len(), &wanted);
            locked(&self.wanted).push(wanted);
            let is_early = self.early.load(Ordering::Relaxed);
            if is_early {
                locked(&self.all).push(made.clone());
            }
            self.creates.pass().await;
            if !is_early {
                locked(&self.all).push(made.clone());
            }
            Ok(made)
        })
    }

    fn connect<'a>(&'a self, _id: &'a str) -> BoxFuture<'a, Result<Client, Failure>> {
        Box::pin(async { Err(crate::backend::gone()) })
    }
}

struct Fixture {
    folder: TempDir,
    app: Arc<AppState>,
    stub: Arc<Stub>,
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let variables = BTreeMap::from([("FUMEHOOD_STATE".into(), state.clone().into())]);
    let environment = Environment::new(Some(folder.path().to_owned()), variables, rustix::process::geteuid().as_raw());
    let stub = Arc::new(Stub::default());
    let sandboxes: Arc<dyn Sandboxes> = Arc::<Stub>::clone(&stub);
    let app = AppState::new(sandboxes, Keys::open(&state).unwrap(), &environment, Settings::default()).unwrap();
    Fixture { folder, app: Arc::new(app.with_room(Headroom::default)), stub }
}

impl Fixture {
    fn key(&self, name: &str, wall: Option<&str>, sandboxes: Option<u32>) -> Key {
        let ceiling = wall.map(|wall| {
            let path = self.folder.path().join(format!("{name}.toml"));
            std::fs::write(&path, format!("version = 1\nextends = \"strict\"\nlimits.wall = \"{wall}\"\n")).unwrap();
            path.to_str().unwrap().to_owned()
        });
        let token = self.app.keys.add(name, ceiling, sandboxes).unwrap();
        self.app.keys.who(&token).unwrap().unwrap()
    }

    /// What becomes of two creations of a key that may have so many: the first is being made when the second looks at the list, and
    /// is there before the second has read it.
    async fn two(&self, most: u32, early: bool) -> [Result<Info, Vec<Problem>>; 2] {
        let key = self.key("two", None, Some(most));
        self.stub.early.store(early, Ordering::Relaxed);
        let one = || {
            let (app, key) = (Arc::clone(&self.app), key.clone());
            tokio::spawn(async move { app.create(&key, order(None, false), None).await })
        };
        self.stub.creates.holds.store(true, Ordering::Relaxed);
        let first = one();
        self.stub.creates.begun.notified().await;
        self.stub.lists.holds.store(true, Ordering::Relaxed);
        let second = one();
        self.stub.lists.begun.notified().await;
        self.stub.creates.go.notify_one();
        let first = first.await.unwrap();
        self.stub.lists.go.notify_one();
        [first, second.await.unwrap()]
    }
}

fn order(life_ms: Option<u64>, pauses_at_end: bool) -> Order {
    let layers = vec![PolicyLayer::Document("strict".to_owned())];
    Order { template: "strict".to_owned(), layers, life_ms, pauses_at_end, ..Order::default() }
}

#[tokio::test]
async fn a_sandbox_whose_record_nobody_can_read_counts_against_every_share() {
    let fixture = fixture();
    let (app, stub) = (&fixture.app, &fixture.stub);
    let (key, free) = (fixture.key("k", None, Some(2)), fixture.key("f", None, None));
    stub.unread.store(1, Ordering::Relaxed);
    assert!(app.create(&key, order(None, false), None).await.is_ok());
    let refused = app.create(&key, order(None, false), None).await.unwrap_err();
    assert_eq!((refused[0].status.as_u16(), &*refused[0].id), (429, "serve/too-many"));
    assert!(refused[0].what.contains("1 that cannot be read"), "{refused:?}");
    assert!(app.create(&free, order(None, false), None).await.is_ok(), "who has no share has none of it");
    stub.unread.store(0, Ordering::Relaxed);
    assert!(app.create(&key, order(None, false), None).await.is_ok());
}

#[tokio::test]
async fn a_creation_that_ends_while_another_reads_the_list_counts_against_the_share_of_the_key() {
    let [first, second] = fixture().two(1, false).await;
    assert!(first.is_ok(), "{first:?}");
    let refused = second.unwrap_err();
    assert_eq!((refused[0].status.as_u16(), &*refused[0].id), (429, "serve/too-many"));
    assert_eq!(fixture().two(2, false).await.map(|made| made.is_ok()), [true, true]);
}

#[tokio::test]
async fn one_that_is_in_the_list_and_still_on_its_way_counts_once() {
    assert_eq!(fixture().two(2, true).await.map(|made| made.is_ok()), [true, true]);
    assert_eq!(fixture().two(1, true).await.map(|made| made.is_ok()), [true, false]);
}

#[tokio::test]
async fn a_host_without_room_makes_nothing_and_says_when_to_come_again() {
    let Fixture { folder: _folder, app, stub } = fixture();
    let app = Arc::into_inner(app).unwrap().with_room(|| Headroom { memory: Some(1 << 20), processes: None });
    let token = app.keys.add("one", None, None).unwrap();
    let key = app.keys.who(&token).unwrap().unwrap();
    let refused = app.create(&key, order(None, false), None).await.unwrap_err();
    assert_eq!((refused[0].status.as_u16(), &*refused[0].id), (503, "serve/busy"));
    assert!(refused[0].retry.is_some() && locked(&stub.wanted).is_empty());
    let app = app.with_room(Headroom::default);
    assert!(app.create(&key, order(None, false), None).await.is_ok());
}

#[tokio::test]
async fn one_that_is_paused_at_its_end_fits_below_a_ceiling_and_is_kept_as_long_as_that_leaves() {
    const MINUTES: u64 = 60 * 1000;
    let fixture = fixture();
    let hour = 60 * MINUTES;
    for (wall, kept) in [(None, KEPT_MS), (Some("1h"), hour - 5 * MINUTES), (Some("30h"), KEPT_MS)] {
        let key = fixture.key(&format!("w{}", wall.unwrap_or("none")), wall, None);
        let made = fixture.app.create(&key, order(Some(5 * MINUTES), true), None).await.unwrap();
        let wanted = locked(&fixture.stub.wanted).pop().unwrap();
        assert_eq!(wanted.timeout_ms, Some(5 * MINUTES + kept), "{wall:?}");
        assert_eq!((&wanted.labels[LIFE], &wanted.labels[KEPT]), (&(5 * MINUTES).to_string(), &kept.to_string()));
        assert_eq!(labels::ends_ms(&made), Some(5 * 60 * 1000), "its caller sees its own end");
        assert_eq!((wanted.labels.contains_key(LATEST), wanted.no_links), (wall.is_some(), wall.is_some()));
        if wall.is_some() {
            // Its life is the caller's, and no longer than the wall.
            let refused = fixture.app.create(&key, order(Some(31 * hour), true), None).await.unwrap_err();
            assert_eq!((refused[0].status.as_u16(), &*refused[0].clause), (400, "timeout"), "a day is the most");
        }
    }
    let key = fixture.key("small", Some("1h"), None);
    let refused = fixture.app.create(&key, order(Some(2 * hour), true), None).await.unwrap_err();
    assert_eq!((refused[0].status.as_u16(), &*refused[0].clause), (403, "limits.wall"));
    // Who asks for no life gets the usual one, or what the ceiling allows.
    for (wall, life) in [(None, LIFE_MS), (Some("1h"), LIFE_MS), (Some("2m"), 2 * MINUTES)] {
        let key = fixture.key(&format!("d{}", wall.unwrap_or("none")), wall, None);
        fixture.app.create(&key, order(None, false), None).await.unwrap();
        assert_eq!(locked(&fixture.stub.wanted).pop().unwrap().timeout_ms, Some(life), "{wall:?}");
    }
}

#[tokio::test]
async fn what_the_server_wants_beyond_a_life_stays_below_the_ceiling() {
    let fixture = fixture();
    for (wall, all) in [(None, 90_000), (Some("70s"), 70_000)] {
        let key = fixture.key(&format!("b{}", wall.unwrap_or("none")), wall, None);
        let order = Order { beyond_ms: 30_000, ..order(Some(60_000), false) };
        fixture.app.create(&key, order, None).await.unwrap();
        assert_eq!(locked(&fixture.stub.wanted).pop().unwrap().timeout_ms, Some(all), "{wall:?}");
    }
}
