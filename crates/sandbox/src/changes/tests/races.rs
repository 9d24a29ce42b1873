//! Workspaces that somebody changes while a run's changes are applied.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn a_folder_swapped_for_a_link_during_apply_never_leads_outside() {
    let host = Host::new(&[("d/f", "1")]);
    let outside = host.at("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("f"), "precious").unwrap();
    let (real, link) = (host.work("d"), host.at("link"));
    symlink(&outside, &link).unwrap();
    let stop = AtomicBool::new(false);
    let mut done = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // ENOENT: the name is just being exchanged by the other side.
                match rustix::fs::renameat_with(CWD, &real, CWD, &link, rustix::fs::RenameFlags::EXCHANGE) {
                    Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                    Err(errno) => panic!("{errno}"),
                }
            }
        });
        for round in 0..300 {
            let upper = host.at("upper");
            std::fs::remove_dir_all(&upper).unwrap();
            put(&upper, "d/f", &format!("run {round}"));
            put(&upper, "d/new", &format!("run {round}"));
            let lower = Dir::open(&host.at("work")).unwrap();
            let Ok(mut store) =
                Store::begin(&host.state, &host.run, &host.at("work"), &lower, (i64::MAX, 0), Bounds::default())
            else {
                continue;
            };
            let read = read_upper(&mut store, &Dir::open(&upper).unwrap(), &lower, Path::new(""));
            if read.is_ok() && store.finish(&host.state).is_ok() {
                match apply(&host.state, &host.run, &all(), list(), Timestamp::now()) {
                    Ok(Applied::Done { .. }) => done += 1,
                    Ok(Applied::Conflicts(_)) | Err(_) => {}
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(std::fs::read_to_string(outside.join("f")).unwrap(), "precious");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1, "nothing was made outside");
    assert!(done > 0, "the race must sometimes be won by the work, or it shows nothing");
}

/// What lies in it is older than the run.
#[test]
fn a_folder_that_somebody_put_in_the_place_of_another_is_not_what_the_run_changed() {
    let begun = || {
        let mut host = Host::new(&[("d/a", "1"), ("d/b", "1"), ("d/in/c", "1"), ("e/a", "1"), ("e/b", "1")]);
        for name in ["a", "b", "in/c"] {
            put(&host.at("mine"), name, "mine");
        }
        host.begin();
        host
    };
    let swap = |host: &Host, name: &str| {
        if host.work(name).exists() {
            std::fs::rename(host.work(name), host.at("before")).unwrap();
        }
        std::fs::rename(host.at("mine"), host.work(name)).unwrap();
    };
    for (script, name, found) in [
        ("echo run >> d/a; rm d/b", "d", &["d/a", "d/b"][..]),
        ("echo run >> d/in/c", "d", &["d/in/c"]),
        ("rm -r d", "d", &["d/a", "d/b", "d/in/c"]),
        ("rm -r d; mkdir d; echo run > d/a", "d", &["d/a", "d/b", "d/in/c"]),
        ("mkdir n; echo run > n/a", "n", &["n/a"]),
    ] {
        let host = begun();
        host.overlay(script);
        swap(&host, name);
        host.read();
        let touched = host.conflicts().into_iter().filter(|(_, id)| *id == "touched").map(|(path, _)| path);
        assert_eq!(touched.collect::<Vec<_>>(), found.iter().map(PathBuf::from).collect::<Vec<_>>(), "{script}");
    }
    // Somebody who saves and makes files beside is in nobody's way, nor is a folder that was moved before.
    let mut host = begun();
    swap(&host, "d");
    host.begin();
    host.overlay("echo run >> d/a; rm d/b; echo run >> e/a");
    std::fs::write(host.work("e/new"), "mine").unwrap();
    std::fs::rename(host.work("e/new"), host.work("e/b")).unwrap();
    host.read();
    assert!(matches!(host.apply(), Applied::Done { .. }));
}

#[test]
fn an_edit_that_races_with_apply_is_never_lost() {
    let host = Host::new(&[("f", "0")]);
    let stop = AtomicBool::new(false);
    let lost = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut mine = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                // An editor that saves by rename, and looks at what it saved over.
                mine += 1;
                let text = format!("mine {mine}");
                std::fs::write(host.at("draft"), &text).unwrap();
                rustix::fs::renameat(CWD, host.at("draft"), CWD, host.work("f")).unwrap();
                let now = std::fs::read_to_string(host.work("f")).unwrap();
                lost.fetch_or(now.is_empty(), Ordering::Relaxed);
            }
        });
        for round in 0..200 {
            put(&host.at("upper"), "f", &format!("run {round}"));
            let lower = Dir::open(&host.at("work")).unwrap();
            let mut store =
                Store::begin(&host.state, &host.run, &host.at("work"), &lower, (i64::MAX, 0), Bounds::default())
                    .unwrap();
            read_upper(&mut store, &Dir::open(&host.at("upper")).unwrap(), &lower, Path::new("")).unwrap();
            store.finish(&host.state).unwrap();
            drop(host.apply());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(!lost.load(Ordering::Relaxed));
    let names: Vec<_> = tree(&host.at("work")).into_iter().map(|(p, ..)| p).collect();
    assert_eq!(names, [PathBuf::from("f")], "no staging folder is left");
}

/// Whoever owns a workspace can move a folder of root's into it: what lies there is none of theirs.
#[test]
fn root_changes_nothing_in_a_folder_of_its_own_in_the_workspace_of_somebody_else() {
    if !rustix::process::geteuid().is_root() {
        return println!("skip: needs root");
    }
    for (owner, taken) in [(0, false), (4242, true)] {
        let mut host = Host::new(&[("moved/f", "of root")]);
        chown(host.at("work"), Some(4242), Some(4242)).unwrap();
        for path in ["moved", "moved/f"] {
            chown(host.work(path), Some(owner), Some(owner)).unwrap();
        }
        host.begin();
        put(&host.at("upper"), "moved/f", "planted");
        put(&host.at("upper"), "moved/new", "planted");
        host.read();
        let applied = host.apply_with(&all());
        assert_eq!(matches!(applied, Ok(Applied::Done { .. })), taken, "{applied:?}");
        let now = std::fs::read_to_string(host.work("moved/f")).unwrap();
        assert_eq!((now == "planted", host.work("moved/new").exists()), (taken, taken));
        let left: Vec<_> = tree(&host.at("work")).into_iter().map(|(path, ..)| path).collect();
        assert_eq!(left.len(), if taken { 3 } else { 2 }, "no staging folder is left: {left:?}");
    }
}
