//! The ledger among processes: this test starts itself again as its own children.
//!
//! A child is the same binary with `child` as the filter; what it does stands in a file, since a test takes no arguments.
#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gate::demand::{Demand, Key, Want};
use gateway::limits::{Ledger, Reservation};

/// Where a child finds its orders: its working directory.
const ORDERS: &str = "orders";

fn demands() -> [Demand; 3] {
    let demand = |name: &str, want| Demand { rule: "r".into(), key: Key::new(&[name]), want };
    [
        demand("rate", Want::Rate { calls: 300, per_ms: 3_600_000, burst: 300 }),
        demand("budget", Want::Budget { cost: 5, window: Some((100_000, 3_600_000)), total: Some(5 * 10_000) }),
        demand("places", Want::Concurrency(4)),
    ]
}

#[expect(clippy::disallowed_methods, reason = "a test starts itself, with nothing in its environment")]
fn start(folder: &Path, number: usize, orders: &str) -> Child {
    let own = folder.join(format!("child-{number}"));
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join(ORDERS), format!("{orders}\n{}", folder.join("limits").display())).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
        .current_dir(&own)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn lines(folder: &Path, number: usize) -> usize {
    let text = std::fs::read_to_string(folder.join(format!("child-{number}/won"))).unwrap_or_default();
    text.lines().count()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::yield_now();
    }
}

/// What a child does; started by the others only.
#[test]
#[ignore = "a part of the other tests"]
fn child() {
    let Ok(orders) = std::fs::read_to_string(ORDERS) else { return };
    let (what, folder) = orders.split_once('\n').unwrap();
    let ledger = Ledger::open(&PathBuf::from(folder)).unwrap();
    let mut won = std::fs::File::create("won").unwrap();
    let demands = demands();
    match what {
        "compete" => {
            for _ in 0..400 {
                if let Ok(reservation) = ledger.reserve(&demands) {
                    won.write_all(b"x\n").unwrap();
                    reservation.settle(&[(1, 3)]).unwrap();
                }
            }
        }
        "hold" => {
            let _held: Vec<Reservation> = (0..2).map(|_| ledger.reserve(&demands).unwrap()).collect();
            won.write_all(b"x\nx\n").unwrap();
            // Until we are killed, or our parent is gone.
            let mut rest = String::new();
            std::io::stdin().read_line(&mut rest).unwrap();
        }
        // Reserves on and on, so that being killed hits it anywhere, in the middle of a change as well.
        "churn" => loop {
            let key = Key::new(&["churn", &won.metadata().unwrap().len().to_string()]);
            won.write_all(b"x").unwrap();
            for _ in 0..50 {
                let want = Want::Rate { calls: 1000, per_ms: 60_000, burst: 1000 };
                let own = Demand { rule: "r".into(), key, want };
                drop(ledger.reserve(&[own, demands[2].clone()]));
            }
        },
        other => panic!("{other}"),
    }
}

#[test]
fn processes_together_get_exactly_what_the_limit_allows_and_a_restart_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let children: Vec<Child> = (0..8).map(|number| start(folder.path(), number, "compete")).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let won: usize = (0..8).map(|number| lines(folder.path(), number)).sum();
    assert_eq!(won, 300);
    let ledger = Ledger::open(&folder.path().join("limits")).unwrap();
    let [rate, budget, places] = demands();
    assert_eq!(ledger.standing(rate.key, &rate.want).unwrap(), 300);
    assert_eq!(ledger.standing(budget.key, &budget.want).unwrap(), 900);
    assert_eq!(ledger.standing(places.key, &places.want).unwrap(), 0);
    assert!(ledger.reserve(&demands()).is_err());
}

#[test]
fn what_a_killed_process_reserved_still_counts_and_the_places_it_held_are_free() {
    let folder = tempfile::tempdir().unwrap();
    let mut killed: Vec<Child> = (0..2).map(|number| start(folder.path(), number, "hold")).collect();
    until("the children hold their places", || (0..2).all(|number| lines(folder.path(), number) == 2));
    let ledger = Ledger::open(&folder.path().join("limits")).unwrap();
    let [rate, budget, places] = demands();
    assert!(ledger.reserve(std::slice::from_ref(&places)).is_err());
    killed[0].kill().unwrap();
    killed[0].wait().unwrap();
    let mine: Vec<Reservation> = (0..2).map(|_| ledger.reserve(std::slice::from_ref(&places)).unwrap()).collect();
    assert!(ledger.reserve(std::slice::from_ref(&places)).is_err());
    assert_eq!(ledger.standing(rate.key, &rate.want).unwrap(), 4);
    assert_eq!(ledger.standing(budget.key, &budget.want).unwrap(), 20);
    drop(mine);
    killed[1].kill().unwrap();
    killed[1].wait().unwrap();
    assert_eq!(
        (0..9).filter_map(|_| ledger.reserve(std::slice::from_ref(&places)).ok()).count(),
        9,
        "each is let go at once"
    );
    let all: Vec<Reservation> = (0..4).map(|_| ledger.reserve(std::slice::from_ref(&places)).unwrap()).collect();
    assert!(ledger.reserve(&[places]).is_err());
    drop(all);
}

#[test]
fn processes_that_are_killed_anywhere_leave_counters_that_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let [_, _, places] = demands();
    for round in 0..40_u64 {
        let mut churning = start(folder.path(), 0, "churn");
        until("the child counts", || {
            folder.path().join("child-0/won").metadata().is_ok_and(|m| m.len() > 3 + round % 7)
        });
        let pause = Instant::now();
        while pause.elapsed() < Duration::from_micros(137 * round) {
            std::hint::spin_loop();
        }
        churning.kill().unwrap();
        churning.wait().unwrap();
        let ledger = Ledger::open(&folder.path().join("limits")).unwrap();
        for key in 0..8_u32 {
            let want = Want::Rate { calls: 1000, per_ms: 60_000, burst: 1000 };
            ledger.standing(Key::new(&["churn", &key.to_string()]), &want).unwrap();
        }
        let all: Vec<Reservation> = (0..4).map(|_| ledger.reserve(std::slice::from_ref(&places)).unwrap()).collect();
        assert!(ledger.reserve(std::slice::from_ref(&places)).is_err());
        drop(all);
        std::fs::remove_file(folder.path().join("child-0/won")).unwrap();
    }
}
