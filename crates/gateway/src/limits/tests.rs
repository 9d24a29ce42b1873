//! The ledger as a whole: many callers, a clock of the test's, damage of every kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gate::demand::{Demand, Key, MAX_DEMANDS, Want};

use super::*;

/// A clock that stands still unless it is moved.
#[derive(Debug, Default)]
struct Hand {
    elapsed: AtomicU64,
    wall: AtomicU64,
    epoch: AtomicU64,
}

impl Clock for Hand {
    fn elapsed_us(&self) -> u64 {
        self.elapsed.load(Ordering::Relaxed)
    }
    fn wall_us(&self) -> u64 {
        self.wall.load(Ordering::Relaxed)
    }
    fn epoch(&self) -> u128 {
        u128::from(self.epoch.load(Ordering::Relaxed))
    }
}

impl Hand {
    fn at(wall_seconds: u64) -> Arc<Self> {
        Arc::new(Self { wall: AtomicU64::new(wall_seconds * 1_000_000), ..Self::default() })
    }
    fn pass(&self, ms: u64) {
        self.elapsed.fetch_add(ms * 1000, Ordering::Relaxed);
        self.wall.fetch_add(ms * 1000, Ordering::Relaxed);
    }
}

fn opened(folder: &std::path::Path, clock: &Arc<Hand>) -> Result<Ledger, LedgerFault> {
    let clock: Arc<Hand> = Arc::clone(clock);
    Ledger::open_with(folder, clock)
}

fn rate(name: &str, calls: u32, per_ms: u64) -> Demand {
    Demand { rule: "r".into(), key: Key::new(&[name]), want: Want::Rate { calls, per_ms, burst: calls } }
}

fn spend(name: &str, cost: u64, window: Option<(u64, u64)>, total: Option<u64>) -> Demand {
    Demand { rule: "b".into(), key: Key::new(&[name]), want: Want::Budget { cost, window, total } }
}

fn at_once(name: &str, most: u32) -> Demand {
    Demand { rule: "c".into(), key: Key::new(&[name]), want: Want::Concurrency(most) }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn exceeded(answer: Result<Reservation, Unmet>) -> Vec<Exceeded> {
    match answer {
        Err(Unmet::Exceeded(list)) => list,
        other => panic!("{other:?}"),
    }
}

fn fault(answer: Result<Reservation, Unmet>) -> LedgerFault {
    match answer {
        Err(Unmet::Fault(fault)) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_are_counted_over_openings_and_the_wait_is_told() {
    let folder = folder();
    let clock = Hand::at(1_700_000_000);
    for opening in 0..3 {
        let ledger = opened(folder.path(), &clock).unwrap();
        ledger.reserve(&[rate("a", 3, 60_000)]).unwrap().settle(&[]).unwrap();
        clock.pass(1000);
        assert_eq!(ledger.standing(Key::new(&["a"]), &rate("a", 3, 60_000).want).unwrap(), opening + 1);
    }
    let ledger = opened(folder.path(), &clock).unwrap();
    let over = exceeded(ledger.reserve(&[rate("a", 3, 60_000)]));
    assert_eq!((over[0].have, over[0].most, over[0].wait), (3, 3, Some(Duration::from_secs(57))));
    assert_eq!(ledger.look(&[rate("a", 3, 60_000)]).unwrap_err(), Unmet::Exceeded(over));
    clock.pass(56_999);
    assert!(ledger.reserve(&[rate("a", 3, 60_000)]).is_err());
    clock.pass(1);
    ledger.look(&[rate("a", 3, 60_000)]).unwrap();
    let _fourth = ledger.reserve(&[rate("a", 3, 60_000)]).unwrap();
    assert!(ledger.reserve(&[rate("a", 3, 60_000)]).is_err());
    // Other keys are not touched, however like they look.
    let _other = ledger.reserve(&[rate("A", 3, 60_000)]).unwrap();
}

#[test]
fn a_burst_is_a_window_of_its_own() {
    let folder = folder();
    let clock = Hand::at(1);
    let ledger = opened(folder.path(), &clock).unwrap();
    let want = Want::Rate { calls: 10, per_ms: 60_000, burst: 2 };
    let demand = [Demand { rule: "r".into(), key: Key::new(&["a"]), want }];
    let mut taken = Vec::new();
    for second in 0..180_u64 {
        for _ in 0..3 {
            if let Ok(done) = ledger.reserve(&demand) {
                drop(done);
                taken.push(second);
            }
        }
        clock.pass(1000);
    }
    // Two every 12 seconds, and so never more than ten in sixty.
    assert_eq!(taken[..6], [0, 0, 12, 12, 24, 24]);
    assert_eq!(taken.len(), 30);
}

#[test]
fn all_demands_of_a_call_are_met_or_none_and_all_that_fail_are_named() {
    let folder = folder();
    let ledger = Ledger::open_with(folder.path(), Hand::at(1)).unwrap();
    let _held = ledger.reserve(&[at_once("c", 1)]).unwrap();
    let all = [rate("a", 5, 1000), spend("b", 10, Some((5, 1000)), Some(100)), at_once("c", 1)];
    let over = exceeded(ledger.reserve(&all));
    assert_eq!(over.iter().map(|e| e.demand).collect::<Vec<_>>(), [1, 2]);
    for demand in &all[..2] {
        assert_eq!(ledger.standing(demand.key, &demand.want).unwrap(), 0);
    }
    // The same counter twice in one call counts twice.
    let twice = [rate("t", 3, 1000), rate("t", 3, 1000)];
    let _two = ledger.reserve(&twice).unwrap();
    assert_eq!(ledger.standing(twice[0].key, &twice[0].want).unwrap(), 2);
    assert_eq!(exceeded(ledger.reserve(&twice)).len(), 1);
    let many: Vec<_> = (0..=MAX_DEMANDS).map(|n| rate(&n.to_string(), 1, 1000)).collect();
    assert_eq!(fault(ledger.reserve(&many)), LedgerFault::TooMany);
    let most: Vec<_> = (0..MAX_DEMANDS)
        .map(|n| Demand { want: Want::Rate { calls: 9, per_ms: 9, burst: 1 }, ..rate(&format!("m{n}"), 1, 1000) })
        .collect();
    let _most = ledger.reserve(&most).unwrap();
}

#[test]
fn a_budget_reserves_the_worst_case_and_settles_to_less_but_never_to_more() {
    let folder = folder();
    let clock = Hand::at(1);
    let ledger = opened(folder.path(), &clock).unwrap();
    let demand = spend("b", 100, Some((1000, 60_000)), Some(1600));
    let spent = || ledger.standing(demand.key, &demand.want).unwrap();
    let total = || ledger.standing(demand.key, &spend("b", 100, None, Some(1600)).want).unwrap();
    let reserve = || ledger.reserve(std::slice::from_ref(&demand));
    reserve().unwrap().settle(&[(0, 30)]).unwrap();
    assert_eq!((spent(), total()), (30, 30));
    reserve().unwrap().settle(&[(0, u64::MAX)]).unwrap();
    reserve().unwrap().settle(&[]).unwrap();
    drop(reserve().unwrap());
    reserve().unwrap().settle(&[(7, 1)]).unwrap();
    assert_eq!((spent(), total()), (430, 430));
    reserve().unwrap().undo().unwrap();
    assert_eq!((spent(), total()), (430, 430));
    // Settled after its window ended: only the total is lowered.
    let late = reserve().unwrap();
    clock.pass(70_000);
    let fresh = reserve().unwrap();
    late.settle(&[(0, 0)]).unwrap();
    assert_eq!((spent(), total()), (100, 530));
    fresh.settle(&[(0, 100)]).unwrap();
    for _ in 0..9 {
        drop(reserve().unwrap());
    }
    assert_eq!(exceeded(reserve())[0].most, 1000);
    clock.pass(70_000);
    drop(reserve().unwrap());
    let over = exceeded(reserve());
    assert_eq!((over[0].have, over[0].most, over[0].wait), (1530, 1600, None), "{over:?}");
}

#[test]
fn sixty_four_threads_get_exactly_what_the_limit_allows() {
    let folder = folder();
    let ledger = Ledger::open(folder.path()).unwrap();
    let running = AtomicU64::new(0);
    let peak = AtomicU64::new(0);
    let won = AtomicU64::new(0);
    let demands = [rate("r", 500, 3_600_000), spend("b", 7, None, Some(7 * 400)), at_once("c", 5)];
    let work = || {
        let Ok(reservation) = ledger.reserve(&demands) else { return };
        peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::yield_now();
        running.fetch_sub(1, Ordering::SeqCst);
        reservation.settle(&[(1, 6)]).unwrap();
        won.fetch_add(1, Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| (0..50).for_each(|_| work()));
        }
    });
    let won = won.into_inner();
    assert!(peak.into_inner() <= 5);
    assert!((5..=500).contains(&won), "{won}");
    assert_eq!(ledger.standing(demands[0].key, &demands[0].want).unwrap(), won);
    assert_eq!(ledger.standing(demands[1].key, &demands[1].want).unwrap(), won * 6);
    assert_eq!(ledger.standing(demands[2].key, &demands[2].want).unwrap(), 0);
}

#[test]
fn setting_the_wall_clock_frees_nothing_and_a_new_boot_goes_on_where_the_old_one_ended() {
    let folder = folder();
    let clock = Hand::at(1_000_000);
    let ledger = opened(folder.path(), &clock).unwrap();
    let demand = [rate("a", 1, 60_000)];
    drop(ledger.reserve(&demand).unwrap());
    clock.wall.fetch_add(u64::MAX / 4, Ordering::Relaxed);
    assert!(ledger.reserve(&demand).is_err());
    clock.wall.store(0, Ordering::Relaxed);
    assert!(ledger.reserve(&demand).is_err());
    clock.wall.store(1_000_000 * 1_000_000, Ordering::Relaxed);
    assert!(ledger.reserve(&demand).is_err());
    drop(ledger);
    let reboot = |wall_seconds: u64| {
        let clock = Hand::at(wall_seconds);
        clock.epoch.store(wall_seconds, Ordering::Relaxed);
        clock.elapsed.store(3, Ordering::Relaxed);
        opened(folder.path(), &clock).unwrap().reserve(&demand).is_ok()
    };
    // 30 seconds later; with the clock of 1970; 29 more; and then the last one.
    assert!(!reboot(1_000_030));
    assert!(!reboot(0));
    assert!(!reboot(29));
    assert!(reboot(61));
}

#[test]
fn another_clock_is_refused_while_the_first_is_in_use() {
    let folder = folder();
    let ledger = Ledger::open_with(folder.path(), Hand::at(5)).unwrap();
    let other = Hand::at(5);
    other.epoch.store(9, Ordering::Relaxed);
    let refused = opened(folder.path(), &other).unwrap_err();
    assert_eq!(refused.id(), "tools.ledger/clock");
    drop(ledger);
    let _now = Ledger::open_with(folder.path(), other).unwrap();
}

#[test]
fn time_that_goes_back_in_one_process_is_the_latest_that_any_saw() {
    let folder = folder();
    let clock = Hand::at(5);
    clock.pass(100_000);
    let ledger = opened(folder.path(), &clock).unwrap();
    drop(ledger.reserve(&[rate("a", 1, 50)]).unwrap());
    clock.elapsed.store(0, Ordering::Relaxed);
    assert!(ledger.reserve(&[rate("a", 1, 50)]).is_err());
    clock.elapsed.store(100_000_000 + 49_999, Ordering::Relaxed);
    assert!(ledger.reserve(&[rate("a", 1, 50)]).is_err());
    clock.elapsed.store(100_000_000 + 50_000, Ordering::Relaxed);
    drop(ledger.reserve(&[rate("a", 1, 50)]).unwrap());
}

#[test]
fn a_changed_limit_keeps_spending_and_running_calls_and_reads_no_other_shape() {
    let folder = folder();
    let ledger = Ledger::open_with(folder.path(), Hand::at(5)).unwrap();
    let _held = ledger.reserve(&[spend("b", 60, Some((100, 1000)), Some(100)), at_once("c", 5)]).unwrap();
    assert_eq!(exceeded(ledger.reserve(&[spend("b", 60, Some((110, 1000)), Some(110))])).len(), 2);
    let _raised = ledger.reserve(&[spend("b", 60, Some((120, 1000)), Some(120))]).unwrap();
    assert_eq!(exceeded(ledger.reserve(&[at_once("c", 1)]))[0].have, 1);
    // 22 are kept as instants, 23 in spans: one key, two counters.
    let _one = ledger.reserve(&[rate("r", 22, 1000)]).unwrap();
    let _two = ledger.reserve(&[rate("r", 23, 1000)]).unwrap();
}

#[test]
fn every_flipped_byte_of_what_is_used_denies_or_changes_nothing() {
    let folder = folder();
    let clock = Hand::at(5);
    let demand = [rate("a", 1, 1_000_000)];
    drop(opened(folder.path(), &clock).unwrap().reserve(&demand).unwrap());
    let path = folder.path().join("counters");
    let good = std::fs::read(&path).unwrap();
    let used: Vec<usize> = (0..good.len()).filter(|at| good[*at] != 0).collect();
    let mut corrupt = 0;
    for at in used {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        write_over(&path, &bad, at);
        let answer = opened(folder.path(), &clock).map_err(Unmet::from).and_then(|ledger| ledger.reserve(&demand));
        match answer {
            Err(Unmet::Fault(fault)) => {
                assert!(matches!(fault.id(), "tools.ledger/corrupt" | "tools.ledger/clock"), "{at}: {fault}");
                corrupt += 1;
            }
            Err(Unmet::Exceeded(_)) => {}
            Ok(_) => panic!("byte {at} opened the limit"),
        }
        write_over(&path, &good, at);
    }
    assert!(corrupt > 20, "{corrupt}");
}

/// Rewrites the first pages and the one context `at`, so that the file is as in `bytes`.
fn write_over(path: &std::path::Path, bytes: &[u8], at: usize) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&bytes[..1 << 16], 0).unwrap();
    let page = at / 4096 * 4096;
    file.write_all_at(&bytes[page..page + 4096], u64::try_from(page).unwrap()).unwrap();
}

#[test]
fn a_table_that_was_emptied_is_refused_and_one_that_was_moved_away_begins_anew() {
    let folder = folder();
    let clock = Hand::at(1_000);
    let ledger = opened(folder.path(), &clock).unwrap();
    ledger.reserve(&[spend("a", 9, None, Some(10))]).unwrap().settle(&[(0, 9)]).unwrap();
    drop(ledger);
    std::fs::write(folder.path().join("counters"), "").unwrap();
    assert!(
        matches!(opened(folder.path(), &clock), Err(LedgerFault::Corrupt { .. })),
        "what was spent is not forgotten"
    );
    std::fs::remove_file(folder.path().join("counters")).unwrap();
    assert!(opened(folder.path(), &clock).is_ok());
}

#[test]
fn a_file_of_another_length_or_kind_is_refused_with_a_remedy() {
    let folder = folder();
    let path = folder.path().join("counters");
    for bad in [&b"x"[..], &[0; 4096]] {
        std::fs::write(&path, bad).unwrap();
        let refused = Ledger::open_with(folder.path(), Hand::at(5)).unwrap_err();
        assert_eq!(refused.id(), "tools.ledger/corrupt");
        assert!(refused.parts()[2].contains("move the file away"));
    }
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &path).unwrap();
    assert_eq!(Ledger::open_with(folder.path(), Hand::at(5)).unwrap_err().id(), "tools.ledger/unusable");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert_eq!(Ledger::open_with(folder.path(), Hand::at(5)).unwrap_err().id(), "tools.ledger/unusable");
    let missing = folder.path().join("a/b");
    assert_eq!(Ledger::open(&missing).unwrap_err().id(), "tools.ledger/unusable");
}

#[test]
fn counters_that_ran_out_make_place_and_a_full_table_denies() {
    let folder = folder();
    let clock = Hand::at(5);
    let ledger = opened(folder.path(), &clock).unwrap();
    let fill = |from: u32, per_ms: u64| {
        for number in from.. {
            if let Err(unmet) = ledger.reserve(&[rate(&number.to_string(), 1, per_ms)]) {
                assert_eq!(unmet, Unmet::Fault(LedgerFault::Full { path: folder.path().join("counters") }));
                return number - from;
            }
        }
        0
    };
    let fitted = fill(0, 60_000);
    // Most of all places are used before the first key finds none.
    assert!((8_000..14_400).contains(&fitted), "{fitted}");
    // Those that are there are still held to.
    assert!(matches!(ledger.reserve(&[rate("7", 1, 60_000)]), Err(Unmet::Exceeded(_))));
    clock.pass(60_000);
    let again = fill(1_000_000, 60_000);
    assert!(again >= 8_000, "{again}");
}

#[test]
fn no_counter_is_lost_while_others_come_and_go() {
    let folder = folder();
    let clock = Hand::at(5);
    let ledger = opened(folder.path(), &clock).unwrap();
    let once = |name: String, per_ms: u64| ledger.reserve(&[rate(&name, 1, per_ms)]).map(drop);
    let long = 3_600_000;
    for number in 0..4_000 {
        once(format!("early {number}"), long).unwrap();
        once(format!("gone {number}"), 1_000).unwrap();
    }
    clock.pass(1_000);
    // These take the places of those that ran out, on every level.
    for number in 0..6_000 {
        once(format!("late {number}"), long).unwrap();
    }
    let held = |name: String| matches!(once(name, long), Err(Unmet::Exceeded(_)));
    assert!((0..4_000).all(|number| held(format!("early {number}"))));
    assert!((0..6_000).all(|number| held(format!("late {number}"))));
}

#[test]
fn a_change_that_broke_off_is_undone_by_whoever_comes_next() {
    use std::os::unix::fs::FileExt as _;
    let folder = folder();
    let clock = Hand::at(5);
    let demand = rate("a", 9, 1_000_000);
    let standing = || opened(folder.path(), &clock).unwrap().standing(demand.key, &demand.want).unwrap();
    let ledger = opened(folder.path(), &clock).unwrap();
    drop(ledger.reserve(std::slice::from_ref(&demand)).unwrap());
    drop(ledger.reserve(std::slice::from_ref(&demand)).unwrap());
    assert_eq!(ledger.standing(demand.key, &demand.want).unwrap(), 2);
    // The journal still holds what the last change began from: the counter's block and the header's.
    let file = std::fs::File::options().write(true).open(folder.path().join("counters")).unwrap();
    file.write_all_at(&2_u64.to_le_bytes(), 32 * 8).unwrap();
    assert_eq!(standing(), 1);
    assert_eq!(standing(), 1);
    // A journal that cannot be is no reason to guess.
    file.write_all_at(&9_999_u64.to_le_bytes(), 32 * 8).unwrap();
    assert_eq!(opened(folder.path(), &clock).unwrap_err().id(), "tools.ledger/corrupt");
}
