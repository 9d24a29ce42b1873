//! What error lines of programs tell.

use super::{is_word_of_shell, large_file, path_of, tells_of_execution};

#[test]
fn a_file_that_is_too_large_is_told_the_limit_that_it_reached() {
    for (disk, words) in [("64M", "the limit of 64M"), ("\"none\"", "the limit of 4G")] {
        let caller = policy::Caller { dir: "/".into(), home: None, profiles: Vec::new() };
        let mut layers = policy::Layers::new(caller);
        layers.set("limits.file_size=4G");
        layers.set(&format!("limits.disk={disk}"));
        let told = large_file(&layers.finish().unwrap().policy);
        assert!(told.why.starts_with(words) && told.instead.contains("limits.disk") == (disk == "64M"), "{told:?}");
    }
}

#[test]
fn a_command_of_a_shell_is_no_path() {
    for (line, is_word) in [
        ("sh: 1: kill: Operation not permitted", true),
        ("sh: can't kill pid 1: Operation not permitted", true),
        ("chmod: changing permissions of 'kill': Operation not permitted", false),
        ("sh: 1: ./kill: Operation not permitted", false),
    ] {
        let path = path_of(line, &["Operation not permitted"]).unwrap();
        assert_eq!(is_word_of_shell(line, path), is_word, "{line}");
    }
}

#[test]
fn executing_is_told_from_writing() {
    let of = |line: &str, before: &str| tells_of_execution(line, before, "./x");
    for line in [
        "sh: 1: ./x: Permission denied",
        "bash: line 1: ./x: Permission denied",
        "env: \u{2018}./x\u{2019}: Permission denied",
        "Error: spawn ./x EACCES",
    ] {
        assert!(of(line, ""), "{line}");
    }
    assert!(of("PermissionError: [Errno 13] Permission denied: './x'", "  raise child_exception_type(errno_num)"));
    for line in [
        "sh: 1: cannot create ./x: Permission denied",
        "PermissionError: [Errno 13] Permission denied: './x'",
        "cat: ./x: Permission denied",
    ] {
        assert!(!of(line, ""), "{line}");
    }
}

#[test]
fn paths_are_found_in_the_usual_error_shapes() {
    let denied = &["Permission denied"];
    assert_eq!(path_of("cat: /etc/shadow: Permission denied", denied), Some("/etc/shadow"));
    assert_eq!(path_of("PermissionError: [Errno 13] Permission denied: '/etc/my file'", denied), Some("/etc/my file"));
    assert_eq!(path_of("all is well in /etc/shadow", denied), None);
    for (line, path) in [
        ("sh: 1: cannot create .git/hooks/pre-commit: Permission denied", Some(".git/hooks/pre-commit")),
        ("sh: 1: cannot create a.txt: Permission denied", Some("a.txt")),
        ("mkdir: cannot create directory \u{2018}/my x\u{2019}: Permission denied", Some("/my x")),
        ("touch: cannot touch './a b': Permission denied", Some("./a b")),
        ("Error: EACCES: Permission denied, open '/x/y'", Some("/x/y")),
        ("PermissionError: [Errno 13] Permission denied", None),
        ("Permission denied", None),
        ("warning: disabling randomization: Permission denied", None),
        ("bash: line 1: a.txt: Permission denied", Some("a.txt")),
        ("warning: unable to unlink '.gitmodules': Permission denied", Some(".gitmodules")),
        ("rm: cannot remove \u{2018}.envrc\u{2019}: Permission denied", Some(".envrc")),
    ] {
        assert_eq!(path_of(line, denied), path, "{line}");
    }
}
