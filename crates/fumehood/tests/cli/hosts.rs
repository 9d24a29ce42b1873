//! Callers and hosts as odd as they come: each gets a right run, or words that name what is odd and the remedy.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use crate::{House, Said, script};

/// What a shell script says that has the product as `$1`.
fn said(house: &House, text: &str) -> Said {
    house.said(&script(text, house).output().unwrap())
}

#[test]
fn a_mask_that_hides_everything_from_the_owner_breaks_nothing() {
    let house = House::new();
    let run = said(&house, "umask 0777; \"$1\" run -q -- sh -c 'umask; echo x >/tmp/f; cat /tmp/f'");
    assert_eq!((run.code, run.out.as_str()), (0, "0022\nx\n"), "{run:?}");
    let mode = std::fs::metadata(house.state()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "the state folder is the owner's alone");
    std::fs::write(house.path("work/a"), "copied\n").unwrap();
    let copy = said(&house, "umask 0777; \"$1\" run -q --tier process -w .:copy -- sh -c 'cat a; echo new >b'");
    assert_eq!((copy.code, copy.out.as_str()), (0, "copied\n"), "{copy:?}");
}

#[test]
fn a_limit_of_file_sizes_is_told_and_does_not_kill_without_a_word() {
    let run = said(&House::new(), "ulimit -f 0; \"$1\" run -q -- true");
    assert_eq!(run.code, 126, "{run:?}");
    assert!(run.err.contains("raise the limit of file sizes (`ulimit -f`)"), "{run:?}");
}

#[test]
fn too_few_descriptors_are_told_and_a_low_soft_limit_is_raised() {
    let house = House::new();
    let few = said(&house, "ulimit -n 64; \"$1\" run -q -- true");
    few.is(
        126,
        "",
        "error: only 64 files may be open at once\n  --> the caller's limits\n  why: a run needs 192; nothing was run\n  \
         fix: raise the limit of open files (`ulimit -n`)\n",
    );
    let soft = said(&house, "ulimit -S -n 64; \"$1\" run -q -- echo ran");
    assert_eq!((soft.code, soft.out.as_str()), (0, "ran\n"), "{soft:?}");
}

#[test]
fn a_lower_limit_of_the_caller_holds_and_does_not_stop_the_start() {
    // 256 files are asked for, and the caller may have 200.
    let run = said(&House::new(), "ulimit -n 200; \"$1\" run -q --set limits.open_files=256 -- sh -c 'ulimit -H -n'");
    assert_eq!((run.code, run.out.as_str()), (0, "200\n"), "{run:?}");
}

#[test]
fn a_folder_whose_name_is_no_text_is_a_workspace_in_every_mode() {
    let house = House::new();
    let folder = house.path("work").join(OsStr::from_bytes(b"a\nb\xff\\c"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("f"), "hello\n").unwrap();
    for mode in ["ro", "rw", "copy", "overlay"] {
        let text = format!(
            "cd a* && \"$1\" run --json -w .:{mode} --prefer limits.disk --prefer limits.files -- sh -c 'cat f; echo new >new-{mode} || true'"
        );
        let run = said(&house, &text);
        let report = run.json();
        assert_eq!((run.code, &report["stdout"]), (0, &serde_json::json!("hello\n")), "{mode}: {run:?}");
        if matches!(mode, "copy" | "overlay") {
            assert_eq!(report["workspace"]["changes"][0]["path"], format!("new-{mode}"), "{mode}: {run:?}");
        }
    }
    assert!(folder.join("new-rw").exists(), "`rw` wrote it");
}

#[test]
fn a_workspace_that_does_not_fit_into_its_copy_is_refused_at_once_with_the_remedy() {
    let house = House::new();
    let sparse = std::fs::File::create(house.path("work/sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    for tier in ["container", "process"] {
        let run = house.run(&["run", "-q", "--tier", tier, "-w", ".:copy", "--", "true"]);
        assert_eq!(run.code, 126, "{run:?}");
        assert!(run.err.contains("the workspace does not fit into its copy: it ends at `sparse`"), "{run:?}");
        assert!(run.err.contains("raise `limits.disk` and `limits.files`"), "{run:?}");
    }
    let overlay = house.run(&["run", "-q", "-w", ".", "--", "stat", "-c", "%s", "sparse"]);
    assert_eq!((overlay.code, overlay.out.as_str()), (0, "1099511627776\n"), "{overlay:?}");
}

#[test]
fn a_file_system_below_a_tree_is_told_and_what_was_done_beside_it_is_kept() {
    let house = House::new();
    let mounted = "mkdir -p sub && mount -t tmpfs none sub && echo below >sub/g || exit 77; ";
    let layered = said(&house, &format!("{mounted}\"$1\" run -q -w . -- sh -c 'echo k >k; echo x >sub/h'; umount sub"));
    if layered.code == 77 {
        return; // Only root can mount here.
    }
    let diff = house.run(&["diff", "--json"]).json();
    assert_eq!(diff["entries"][0]["name"], "k", "{layered:?} {diff}");
    let grant = said(&house, &format!("{mounted}\"$1\" run -q --read .:/m -- ls /m; code=$?; umount sub; exit $code"));
    assert_eq!(grant.code, 126, "{grant:?}");
    assert!(grant.err.contains("`/m` cannot be shown through a layer"), "{grant:?}");
    assert!(!grant.err.contains("Overlay"), "no word of our own inside: {grant:?}");
}

#[test]
fn in_the_process_tier_a_grant_of_what_else_proves_that_landlock_holds_can_be_read() {
    let house = House::new();
    let run =
        house.run(&["run", "-q", "--tier", "process", "--dangerous-read", "/", "--", "test", "-r", "/etc/passwd"]);
    assert_eq!(run.code, 0, "{run:?}");
}
