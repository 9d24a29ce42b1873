//! Hard links become separate files, which is told.

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
    assert!(manifest.refused[0].why.contains("keeps what it had"));
    assert!(matches!(host.apply(), Applied::Done { .. }));
    assert_eq!(std::fs::read_to_string(host.work("b")).unwrap(), "1", "the other name keeps what it had");
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
