//! Lists, names, and what is removed.

use super::*;

/// The attack: a sandbox by the name of another's id, or of its run, is what is found by it.
#[test]
fn no_sandbox_is_named_like_an_id() {
    let id = new_id().unwrap();
    for name in [&*id, "r-20261122-013045-7f3a9c", "", "-a", "a/b"] {
        assert!(!is_name(name), "{name}");
    }
    let near = [id.split_at(1).1, "r-20261122-013045", "r-box", "a", "Postgres.1_x-y"];
    for name in near.into_iter().chain([&*format!("{id}-")]) {
        assert!(is_name(name), "{name}");
    }
}

fn home(folder: &std::path::Path) -> Home {
    let euid = rustix::process::geteuid().as_raw();
    let places = sandbox::state::Places { fumehood_state: Some(folder.to_owned()), euid, ..Default::default() };
    Home::new(&State::open(&places).unwrap()).unwrap()
}

/// Ids with their folder, as those leave that ended long ago and were told: `count` of them.
fn ended(home: &Home, count: usize, days: u64) -> Vec<String> {
    let made = |_| {
        let id = new_id().unwrap();
        std::fs::create_dir(home.path.join(&id)).unwrap();
        std::fs::write(home.path.join(&id).join(RECORD), "{}").unwrap();
        let file = File::open(home.path.join(&id).join(RECORD)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(days * 86_400)).unwrap();
        id
    };
    (0..count).map(made).collect()
}

#[test]
fn what_is_being_begun_is_listed_as_soon_as_it_lives_and_what_has_ended_is_asked_once() {
    let folder = tempfile::tempdir().unwrap();
    let home = home(folder.path());
    let begun = home.claim(None).unwrap();
    let gone = ended(&home, 1, 0);
    // The moment between its folder and its lock.
    let early = new_id().unwrap();
    std::fs::create_dir(home.path.join(&early)).unwrap();
    assert!(home.list(false).unwrap().is_empty());
    let known = || home.ended.lock().unwrap().iter().cloned().collect::<Vec<_>>();
    assert_eq!(known(), gone, "neither the one that is begun nor the one without a record");
    std::fs::remove_dir_all(home.path.join(&gone[0])).unwrap();
    assert!(home.list(false).unwrap().is_empty());
    assert_eq!(known(), [""; 0], "what has no folder is forgotten");
    drop(begun);
}

#[test]
fn one_record_that_cannot_be_read_takes_no_list_away_and_a_want_of_descriptors_takes_every_list() {
    let folder = tempfile::tempdir().unwrap();
    let home = home(folder.path());
    let begun = home.claim(None).unwrap();
    std::fs::create_dir(home.path.join(begun.id()).join(RECORD)).unwrap();
    assert_eq!([home.list(false).unwrap(), home.list(true).unwrap()], [[], []]);
    assert!(home.find(begun.id()).is_err(), "who asks for that one is told");
    assert_eq!(home.list_and_count(false).unwrap().1, 1, "and whoever counts counts it");
    std::fs::remove_dir(home.path.join(begun.id()).join(RECORD)).unwrap();
    assert_eq!(home.list_and_count(false).unwrap().1, 0, "one that is being begun is counted elsewhere");
}

/// The attack: a key's sandbox of whose record nothing can be made was none of those that the key has.
#[test]
fn what_somebody_holds_is_counted_though_its_record_is_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let home = home(folder.path());
    let begun = home.claim(None).unwrap();
    std::fs::write(home.path.join(begun.id()).join(RECORD), "{\"schema\": 1").unwrap();
    for all in [true, false] {
        assert_eq!(home.list_and_count(all).unwrap(), (Vec::new(), 1));
    }
    assert!(matches!(home.find(begun.id()), Err(LiveError::Folder { errno: Errno::BADMSG, .. })));
    let id = begun.id().to_owned();
    let _kept = std::mem::ManuallyDrop::new(begun);
    // Of one that nobody holds nothing runs: other tests have children that may hold the lock for a moment.
    std::fs::remove_file(home.path.join(&id).join(LOCK)).unwrap();
    assert_eq!(home.list_and_count(false).unwrap(), (Vec::new(), 0));
}

#[test]
fn what_is_being_begun_is_counted_apart_from_what_lives() {
    let folder = tempfile::tempdir().unwrap();
    let home = home(folder.path());
    let _begun = [home.claim(None).unwrap(), home.claim(Some("box")).unwrap()];
    ended(&home, 1, 0);
    let swept = home.sweep(Timestamp::now()).unwrap();
    assert_eq!((swept.live, swept.begun), (0, 2));
}

#[test]
fn what_is_too_old_goes_with_a_start_that_is_not_just_after_another() {
    let folder = tempfile::tempdir().unwrap();
    let home = home(folder.path());
    drop(home.claim(None).unwrap());
    for moment in [SystemTime::now() - SWEEP_EVERY, SystemTime::now() + Duration::from_secs(3600)] {
        let old = ended(&home, 3, 2);
        let there = || old.iter().filter(|id| home.path.join(id).exists()).count();
        drop(home.claim(None).unwrap());
        assert_eq!(there(), 3, "just after another");
        File::options().write(true).open(home.path.join(ALL)).unwrap().set_modified(moment).unwrap();
        drop(home.claim(None).unwrap());
        assert_eq!(there(), 0);
    }
}
