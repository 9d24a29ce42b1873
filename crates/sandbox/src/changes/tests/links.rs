//! Symbolic links that lead out of the workspace, by their spelling or by the links of the host.

use super::*;

#[test]
fn links_that_leave_are_refused_also_by_detour() {
    let leave = ["/etc/passwd", "../x", "a/../../x", "a/../x", "./../x", "../sub/../../x"];
    let stay = ["x", "./x", "a/b/c"];
    let host = Host::new(&[]);
    for (i, target) in leave.iter().chain(&stay).enumerate() {
        symlink(target, host.at("upper").join(format!("l{i}"))).unwrap();
    }
    std::fs::create_dir(host.at("upper").join("sub")).unwrap();
    symlink("../x", host.at("upper").join("sub/stays")).unwrap();
    host.read();
    let found = host.conflicts();
    assert_eq!(found.len(), leave.len(), "{found:?}");
    assert!(matches!(host.apply_with(&Request { leaving_links: true, ..all() }), Ok(Applied::Done { .. })));
}

#[test]
fn links_of_the_hosts_are_followed_and_what_ends_among_gits_files_is_asked_for() {
    let host = Host::new(&[("in/a", "1"), (".git/config", "")]);
    for (name, target) in
        [("ext", "/etc"), ("up", "in/../.."), ("near", "in"), ("git", ".git"), ("one", "two"), ("two", "one")]
    {
        symlink(target, host.work(name)).unwrap();
    }
    let leave = ["ext/passwd", "up/x", "one", "near/../../x"];
    let git = [".git/config", ".git", "git/config", "new/.git"];
    let stay = ["near/a", "in/a", "new/x", "gitignore"];
    for (i, target) in leave.iter().chain(&git).chain(&stay).enumerate() {
        symlink(target, host.at("upper").join(format!("l{i}"))).unwrap();
    }
    host.read();
    let found = host.conflicts();
    assert!(found.iter().all(|(_, id)| *id == "link-leaves"), "{found:?}");
    assert_eq!(found.len(), leave.len() + git.len(), "{found:?}");
}
