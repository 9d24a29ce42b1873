//! Many sandboxes and many clients of one server at once: every answer is the right one, nothing is lost, nothing is left.
//!
//! Few and for some seconds here; `FUMEHOOD_LOAD` (`SANDBOXES,CLIENTS,SECONDS`) says how many in `scripts/load`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::pool::{counts, random, seed, supervisors, until};
use crate::served::Served;
use crate::{Fixture, files_below};

/// How much of it.
struct Load {
    sandboxes: usize,
    clients: usize,
    time: Duration,
}

fn load() -> Load {
    let [sandboxes, clients, seconds] = counts("FUMEHOOD_LOAD", [10, 8, 6]);
    Load { sandboxes, clients, time: Duration::from_secs(u64::try_from(seconds).unwrap()) }
}

/// What was done, for the words at the end.
#[derive(Default)]
struct Done {
    programs: AtomicU64,
    files: AtomicU64,
    lists: AtomicU64,
    lives: AtomicU64,
    full: AtomicU64,
}

/// One client: what it asks for, and the numbers that it draws.
struct Client<'a> {
    served: &'a Served<'a>,
    key: &'a str,
    ids: &'a [String],
    done: &'a Done,
    state: u64,
    name: String,
    asked: u64,
}

impl Client<'_> {
    fn draw(&mut self, most: usize) -> usize {
        usize::try_from(random(&mut self.state, u64::try_from(most).unwrap()).as_millis()).unwrap()
    }

    fn ask(&self, line: &str, body: &Json) -> (u16, Json) {
        self.served.ask(self.key, line, body)
    }

    /// A word that nobody else has.
    fn word(&mut self) -> String {
        self.asked += 1;
        format!("{}-{}", self.name, self.asked)
    }

    fn program(&mut self, id: &str) {
        let word = self.word();
        let exec = json!({ "cmd": ["sh", "-c", "read word; echo $word"], "stdin": format!("{word}\n"), "timeout": 60 });
        let (status, ran) = self.ask(&format!("POST /v1/sandboxes/{id}/exec"), &exec);
        assert_eq!(
            (status, &ran["report"]["code"], &ran["stdout"]),
            (200, &json!(0), &json!(format!("{word}\n"))),
            "{ran}"
        );
        self.done.programs.fetch_add(1, Ordering::Relaxed);
    }

    fn file(&mut self, id: &str) {
        let word = self.word();
        let line = |method: &str| format!("{method} /v1/sandboxes/{id}/files?path={word}");
        let (status, put) = self.ask(&line("PUT"), &json!(word));
        assert_eq!(status, 200, "{put}");
        assert_eq!(self.ask(&line("GET"), &Json::Null), (200, json!(word)));
        assert_eq!(self.ask(&line("DELETE"), &Json::Null).0, 200);
        self.done.files.fetch_add(1, Ordering::Relaxed);
    }

    fn list(&self) {
        let (status, listed) = self.ask("GET /v1/sandboxes", &Json::Null);
        assert_eq!(status, 200, "{listed}");
        let there = |id: &String| {
            listed["sandboxes"]
                .as_array()
                .unwrap()
                .iter()
                .any(|one| one["id"] == id.as_str() && one["state"] == "running")
        };
        let missing: Vec<_> = self.ids.iter().filter(|id| !there(id)).collect();
        assert!(missing.is_empty(), "not listed: {missing:?}");
        self.done.lists.fetch_add(1, Ordering::Relaxed);
    }

    /// One of its own, from its beginning to its end.
    fn life(&mut self) {
        let (status, made) = self.ask("POST /v1/sandboxes", &json!({ "timeout": "20m" }));
        if status == 503 {
            // A host that is full says so; whatever lives there is not touched.
            self.done.full.fetch_add(1, Ordering::Relaxed);
            return;
        }
        assert_eq!(status, 201, "{made}");
        let id = made["id"].as_str().unwrap().to_owned();
        self.program(&id);
        assert_eq!(self.ask(&format!("DELETE /v1/sandboxes/{id}"), &Json::Null).0, 200);
        let (_, told) = self.ask(&format!("GET /v1/sandboxes/{id}"), &Json::Null);
        assert_eq!(told["state"], "ended", "{told}");
        self.done.lives.fetch_add(1, Ordering::Relaxed);
    }

    fn work(&mut self, end: Instant) {
        while Instant::now() < end {
            let id = self.ids[self.draw(self.ids.len())].clone();
            match self.draw(10) {
                0 => self.life(),
                1 => self.list(),
                2..=4 => self.file(&id),
                _ => self.program(&id),
            }
        }
    }
}

#[test]
fn many_sandboxes_and_many_clients_lose_nothing_and_leave_nothing() {
    let fixture = &Fixture::new();
    let Load { sandboxes, clients, time } = load();
    let served = Served::new(fixture);
    let key = served.key("load", &[]);
    let create = |_| {
        let (status, made) = served.ask(&key, "POST /v1/sandboxes", &json!({ "timeout": "1h" }));
        assert_eq!(status, 201, "{made}");
        made["id"].as_str().unwrap().to_owned()
    };
    let ids: Vec<String> = (0..sandboxes).map(create).collect();
    let (done, end, seed) = (Done::default(), Instant::now() + time, seed());
    println!("FUMEHOOD_FUZZ_SEED={seed}");
    std::thread::scope(|scope| {
        for number in 0..clients {
            let (served, key, ids, done) = (&served, key.as_str(), ids.as_slice(), &done);
            let state = seed.wrapping_mul(1000).wrapping_add(u64::try_from(number).unwrap());
            let name = format!("c{number}");
            scope.spawn(move || Client { served, key, ids, done, state, name, asked: 0 }.work(end));
        }
    });
    for id in &ids {
        assert_eq!(fixture.run(&["exec", id, "--", "true"]).code, 0, "{id}");
        assert_eq!(served.ask(&key, &format!("DELETE /v1/sandboxes/{id}"), &Json::Null).0, 200, "{id}");
    }
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    println!(
        "{sandboxes} sandboxes, {clients} clients, {} s: {} programs, {} files, {} lists, {} lives, {} times full",
        time.as_secs(),
        count(&done.programs),
        count(&done.files),
        count(&done.lists),
        count(&done.lives),
        count(&done.full)
    );
    assert!(count(&done.programs) > 0 && count(&done.files) > 0, "nobody came to anything");
    // Records of what ended are kept for a day; of what runs nothing is left.
    let listed = fixture.run(&["ps", "--json"]).json();
    assert_eq!(listed["sandboxes"], json!([]), "{listed}");
    assert!(until(|| files_below(&fixture.state().join("runs")).is_empty()), "{:?}", supervisors(fixture));
    assert_eq!(fixture.run(&["audit", "verify"]).code, 0);
}
