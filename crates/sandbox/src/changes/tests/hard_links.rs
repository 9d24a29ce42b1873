//! Hard links become separate files, which is told; but for names of one file of the host's that changed in the same way.

use super::*;

fn why(refused: &[Refused]) -> Vec<(String, &str)> {
    refused.iter().map(|refused| (refused.path.display().to_string(), refused.why.as_str())).collect()
}

#[test]
fn a_link_that_was_made_inside_is_named_and_becomes_a_file() {
    let host = Host::new(&[("old", "o")]);
    host.overlay("echo x > a; ln a b; ln old second; echo y > alone");
    host.read();
    let told = host.diff().refused;
    let expected = ["b", "second"].map(str::to_owned);
    assert_eq!(paths(&told), expected, "{told:?}");
    assert!(why(&told)[0].1.starts_with("a hard link to `a`: it becomes a file of its own"), "{told:?}");
    let Applied::Done { refused, .. } = host.apply() else { panic!("{:?}", host.apply()) };
    assert_eq!(paths(&refused), expected);
    let inode = |name| std::fs::metadata(host.work(name)).unwrap().ino();
    assert!(inode("a") != inode("b") && inode("old") != inode("second"));
    assert_eq!(std::fs::read_to_string(host.work("b")).unwrap(), "x\n");
}

#[test]
fn a_file_of_the_host_with_another_name_is_told_when_it_changes() {
    let mut host = Host::new(&[("a", "1"), ("c", "1")]);
    std::fs::hard_link(host.work("a"), host.work("b")).unwrap();
    host.begin();
    host.overlay("echo 2 > a; echo 2 > c; rm -f nothing");
    let manifest = host.read();
    assert_eq!(paths(&manifest.refused), ["a"], "{:?}", manifest.refused);
    assert!(manifest.refused[0].why.contains("any other keeps what it had"));
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert_eq!(std::fs::read_to_string(host.work("b")).unwrap(), "1", "the other name keeps what it had");
}

#[test]
fn names_of_one_file_that_changed_in_the_same_way_stay_names_of_one_file() {
    for script in [
        // Each becomes a file of its own in the layer.
        "echo 2 > d/a; echo 2 > b; echo 3 > other; echo 2 > alone",
        // One file inside as well.
        "rm d/a b; echo 2 > b; ln b d/a; echo 3 > other; echo 2 > alone",
    ] {
        let mut host = Host::new(&[("b", "1"), ("alone", "1")]);
        std::fs::create_dir(host.work("d")).unwrap();
        for name in ["d/a", "other", "rest"] {
            std::fs::hard_link(host.work("b"), host.work(name)).unwrap();
        }
        host.begin();
        host.overlay(script);
        let told = host.read().refused;
        assert_eq!(paths(&told), ["b", "d/a", "other"], "{told:?}");
        assert!(told.iter().all(|one| one.why.contains("stays a name of the same file")), "{told:?}");
        assert!(matches!(host.apply(), Applied::Done { .. }));
        let of = |name: &str| {
            let meta = std::fs::metadata(host.work(name)).unwrap();
            (meta.ino(), meta.nlink(), std::fs::read_to_string(host.work(name)).unwrap())
        };
        assert_eq!((of("b").1, of("b").2.as_str()), (2, "2\n"), "{script}");
        assert_eq!(of("b"), of("d/a"), "{script}");
        assert_eq!((of("other").1, of("other").2.as_str()), (1, "3\n"), "what became another stands alone");
        assert_eq!((of("rest").1, of("rest").2.as_str()), (1, "1"), "what did not change keeps what it had");
        assert_eq!(of("alone").1, 1, "the same contents alone are no link");
    }
}

#[test]
fn names_that_the_host_took_apart_meanwhile_stay_apart() {
    let mut host = Host::new(&[("a", "1")]);
    std::fs::hard_link(host.work("a"), host.work("b")).unwrap();
    host.begin();
    host.overlay("echo 2 > a; echo 2 > b");
    host.read();
    // The same contents in another file: no conflict.
    std::fs::remove_file(host.work("b")).unwrap();
    std::fs::write(host.work("b"), "1").unwrap();
    let mode = std::fs::metadata(host.work("a")).unwrap().permissions();
    std::fs::set_permissions(host.work("b"), mode).unwrap();
    assert!(matches!(host.apply(), Applied::Done { .. }));
    let inode = |name| std::fs::metadata(host.work(name)).unwrap().ino();
    assert_ne!(inode("a"), inode("b"));
    assert_eq!(std::fs::read_to_string(host.work("b")).unwrap(), "2\n");
}

#[test]
fn removing_one_of_two_names_is_no_link_that_is_lost() {
    let mut host = Host::new(&[("a", "1")]);
    std::fs::hard_link(host.work("a"), host.work("b")).unwrap();
    host.begin();
    host.overlay("rm a");
    let manifest = host.read();
    assert_eq!((manifest.entries.len(), manifest.refused.len()), (1, 0), "{:?}", manifest.refused);
}

/// A run has as many names for one file as it likes, and an index an entry for each.
#[test]
fn contents_that_many_entries_of_an_index_name_are_looked_at_once() {
    let mut host = Host::new(&[("a", "a\n")]);
    super::references::shell(&host, "git init -q . && git add a && git commit -qm A");
    host.begin();
    let script = "seq 10000 > big; for n in $(seq 50); do ln big l$n; done; git add .";
    host.overlay(&format!("{}{script}", super::objects::AS));
    let manifest = host.read();
    let (root, dir) = (Dir::open(&host.at("work")).unwrap(), load(&host.state, &host.run).unwrap().1);
    let blobs = dir.enter(BLOBS, Cross::No).unwrap();
    let guarding = crate::changes::guarded::Guarding::of(list(), &manifest, Some(&root), Some(&blobs));
    let index = manifest.entries.iter().find(|entry| entry.path == Path::new(".git/index")).unwrap();
    assert_eq!(guarding.why(index), None);
    assert_eq!(guarding.named.borrow().len(), 1);
}
