//! A layer that is read more than once, while its sandbox lives.

use crate::changes::tests::{Host, changes, put, tree};
use crate::changes::*;
use crate::state::{Dir, StateError};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn reread(host: &Host, known: Known) -> Result<Manifest, ChangesError> {
    let lower = Dir::open(&host.at("work")).unwrap();
    let store = Store::begin(&host.state, &host.run, &host.at("work"), &lower, host.started, Bounds::default());
    let mut store = store.unwrap().knowing(known);
    match read_upper(&mut store, &Dir::open(&host.at("upper")).unwrap(), &lower, Path::new("")) {
        Ok(()) => store.finish(&host.state),
        Err(error) => {
            store.abandon(&host.state).unwrap();
            Err(error)
        }
    }
}

#[test]
fn what_a_covered_folder_hides_is_removed_however_deep() {
    let host =
        Host::new(&[("dir/sub/gone", "1"), ("dir/sub/stays", "2"), ("dir/other", "3"), ("dir/sub/deep/in", "4")]);
    host.overlay("rm -r dir; mkdir -p dir/sub/deep; echo new > dir/sub/stays");
    let inside = [("dir", ""), ("dir/sub", ""), ("dir/sub/deep", ""), ("dir/sub/stays", "new\n")];
    let removed = host.read().entries.iter().filter(|entry| entry.change == Change::Removed).count();
    assert_eq!(removed, 3);
    assert!(matches!(host.apply_all(), Applied::Done { .. }));
    let names: Vec<_> = tree(&host.at("work")).into_iter().map(|(path, _, text)| (path, text)).collect();
    let expected = inside.map(|(name, text)| (name.into(), text.as_bytes().to_vec()));
    assert_eq!(names, expected, "the host has what was inside");
    assert_eq!(changes(&host.read()), []);
}

#[test]
fn a_large_file_that_is_the_same_is_no_change() {
    let host = Host::new(&[]);
    let large = "x".repeat(9 << 20);
    put(&host.at("work"), "large", &large);
    put(&host.at("upper"), "large", &large);
    assert_eq!(changes(&host.read()), []);
    put(&host.at("upper"), "large", &format!("y{}", large.get(1..).unwrap()));
    assert_eq!(changes(&host.read()), [("large".to_owned(), Change::Modified)]);
}

#[test]
fn what_is_as_it_was_is_not_copied_again() {
    let host = Host::new(&[]);
    put(&host.at("upper"), "one", "1");
    put(&host.at("upper"), "two", "2");
    let blobs = || {
        let files = std::fs::read_dir(host.at("state/changes").join(host.run.as_str()).join(BLOBS)).unwrap();
        let inode = |file: std::fs::DirEntry| std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
        files.map(|file| inode(file.unwrap())).collect::<std::collections::BTreeSet<_>>()
    };
    let first = host.read();
    let kept = blobs();
    assert_eq!((host.read(), kept.len()), (first, 2));
    assert_eq!(blobs(), kept);
    put(&host.at("upper"), "two", "3");
    host.read();
    assert_eq!((blobs().len(), blobs().intersection(&kept).count()), (2, 1));
    assert_eq!(changes(&host.read()).len(), 2);
    assert!(matches!(host.apply_all(), Applied::Done { .. }));
    assert_eq!(tree(&host.at("work")).into_iter().map(|(_, _, text)| text).collect::<Vec<_>>(), [b"1", b"3"]);
}

#[test]
fn what_is_covered_for_the_run_is_no_removal_by_it() {
    let host = Host::new(&[("secret", "1"), ("gone", "2")]);
    host.overlay("rm secret gone");
    let covered = ["secret".into()].into();
    let gone = [("gone".to_owned(), Change::Removed)];
    assert_eq!(changes(&reread(&host, Known { covered, ..Known::default() }).unwrap()), gone);
    assert_eq!(changes(&reread(&host, Known::default()).unwrap()).len(), 2, "without the rule it is one");
}

#[test]
fn reading_that_was_given_up_leaves_what_there_was() {
    let host = Host::new(&[("old", "1")]);
    put(&host.at("upper"), "new", "2");
    let over = Known { until: Until { ended: Arc::new(AtomicBool::new(true)), at: None }, ..Known::default() };
    let ended = ChangesError::Ended { run: host.run.to_string() };
    assert_eq!(reread(&host, over.clone()), Err(ended.clone()));
    assert!(!host.at("state/changes").join(host.run.as_str()).exists(), "nothing was there");
    let first = reread(&host, Known::default()).unwrap();
    put(&host.at("upper"), "newer", "3");
    assert_eq!(reread(&host, over), Err(ended));
    let (kept, _) = load(&host.state, &host.run).unwrap();
    assert_eq!(kept, first);
    assert_eq!(std::fs::read_dir(host.at("state/changes").join(host.run.as_str()).join(BLOBS)).unwrap().count(), 1);
    assert!(matches!(host.apply_all(), Applied::Done { .. }));
}

#[test]
fn a_full_disk_leaves_what_there_was() {
    let host = Host::new(&[]);
    put(&host.at("upper"), "new", "2");
    if !host.fill_state(256 << 10) {
        println!("skip: no mount here");
        return;
    }
    let first = reread(&host, Known::default()).unwrap();
    put(&host.at("upper"), "large", &"x".repeat(1 << 20));
    let full = reread(&host, Known::default());
    let is_full = |error: &ChangesError| {
        matches!(error, ChangesError::State(StateError::NotWritable { errno: Errno::NOSPC, .. }))
    };
    assert!(is_full(&full.unwrap_err()));
    assert_eq!(load(&host.state, &host.run).unwrap().0, first);
    let blobs = host.at("state/changes").join(host.run.as_str()).join(BLOBS);
    assert_eq!(std::fs::read_dir(blobs).unwrap().count(), 1);
    std::fs::remove_file(host.at("upper").join("large")).unwrap();
    assert_eq!(reread(&host, Known::default()).unwrap(), first);
}
