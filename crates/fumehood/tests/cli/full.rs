//! A state folder on a disk that is full: what is told is true, and what could not be begun is not left.

use crate::{CommandOutput, Fixture, script};

/// What a script says that has a small disk at `$disk`, the state folder on it, and the functions `fill` and `grow`.
/// `None` where this host lets nobody mount.
#[expect(clippy::print_stdout, reason = "what was skipped is part of the report of the test")]
pub(crate) fn on_a_small_disk(fixture: &Fixture, size: &str, text: &str) -> Option<CommandOutput> {
    let text = format!(
        "exec unshare --mount --propagation private sh -c 'disk=$PWD/disk; mkdir $disk; \
         mount -t tmpfs -o size={size} none $disk || exit 77; export FUMEHOOD_STATE=$disk/state; \
         fill() {{ dd if=/dev/zero of=$disk/fill bs=1K 2>/dev/null; }}; grow() {{ mount -o remount,size=1M $disk; }}; \
         {text}' sh \"$1\""
    );
    let said = fixture.said(&script(&text, fixture).output().unwrap());
    if said.code == 77 {
        println!("skip: no mounts can be made here");
        return None;
    }
    Some(said)
}

#[test]
fn a_run_that_could_not_be_begun_leaves_nothing_that_counts_as_one() {
    let fixture = Fixture::new();
    let text =
        "\"$1\" run -q -- true || exit; fill; \"$1\" run -q -- true; echo $?; ls $disk/state/runs; \"$1\" gc 2>&1";
    let Some(said) = on_a_small_disk(&fixture, "64K", text) else { return };
    assert!(said.err.contains("why: the disk is full"), "{said:?}");
    assert!(said.out.starts_with("126\n") && said.out.contains(" 0 runs live\n"), "{said:?}");
    assert!(!said.out.contains(".json"), "{said:?}");
}

#[test]
fn changes_for_which_there_is_no_room_are_told_as_that() {
    for tier in ["container", "process"] {
        let fixture = Fixture::new();
        std::fs::write(fixture.path("work/a"), "1\n").unwrap();
        let flags = if tier == "container" { "-w .:overlay" } else { "--tier process -w .:copy" };
        let inside = "head -c 900000 /dev/zero >big";
        let text = format!("mkdir w; cd w; \"$1\" run -q {flags} -- sh -c \"{inside}\"");
        let Some(said) = on_a_small_disk(&fixture, "700K", &text) else { return };
        assert_eq!(said.code, 125, "{said:?}");
        assert!(said.err.contains("cannot be written") && said.err.contains("why: the disk is full"), "{said:?}");
        assert!(said.err.contains("fix: free some space") && !said.err.contains("readable"), "{said:?}");
    }
}

/// What fills the disk while a run lasts does not cost its commits: room for them was kept.
#[test]
fn a_disk_that_is_full_at_the_end_costs_no_commit() {
    let fixture = Fixture::new();
    let git = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b";
    let inside = "touch began; until [ -e filled ]; do sleep .05; done; git add began && git commit -qm inside";
    let text = format!(
        "{git}; mkdir w; cd w; git init -q -b main; git commit -q --allow-empty -m first; \
         (until [ -e began ]; do sleep .05; done; fill; touch filled) & \
         \"$1\" run -q -w .:rw --env GIT_AUTHOR_NAME=a --env GIT_AUTHOR_EMAIL=a@b --env GIT_COMMITTER_NAME=a --env GIT_COMMITTER_EMAIL=a@b \
         --prefer limits.disk --prefer limits.files -- sh -c \"{inside}\"; echo code $?; git log --format=%s; \"$1\" audit verify"
    );
    let Some(said) = on_a_small_disk(&fixture, "40M", &text) else { return };
    assert!(said.out.contains("code 0\ninside\nfirst\nintact: "), "{said:?}");
}

/// Wherever the disk ends, the log is whole, and its key too, as soon as there is room again.
#[test]
fn a_disk_that_was_full_at_any_moment_is_no_sign_of_tampering() {
    for kilobytes in (4..60).step_by(4) {
        let fixture = Fixture::new();
        let text = "\"$1\" run -q -- true; grow; \"$1\" run -q -- true || exit; ls $disk/state/keys; \
                    \"$1\" audit verify";
        let Some(said) = on_a_small_disk(&fixture, &format!("{kilobytes}K"), text) else { return };
        assert_eq!(said.code, 0, "{kilobytes}: {said:?}");
        assert!(said.out.contains("audit.pub\n") && !said.out.contains("audit.key."), "{kilobytes}: {said:?}");
        assert!(said.out.contains("intact: ") && said.out.contains("signed with key "), "{kilobytes}: {said:?}");
    }
}

/// A live sandbox on a full disk ends, since its log cannot be written, and its record says why; one that cannot be begun leaves
/// nothing, and as soon as there is room everything is as ever.
#[test]
fn a_live_sandbox_says_why_it_ended_on_a_full_disk() {
    let fixture = Fixture::new();
    let text = "id=$(\"$1\" create) || exit; fill; \"$1\" create; echo created $?; \"$1\" exec $id -- true; \"$1\" wait $id; \
                \"$1\" ps -a --json; \"$1\" kill $id; echo killed $?; rm $disk/fill; echo left $(ls $disk/state/runs | wc -l); \
                id=$(\"$1\" create) && \"$1\" exec $id -- echo again && \"$1\" kill $id; \"$1\" audit verify; echo verified $?";
    let Some(said) = on_a_small_disk(&fixture, "1M", text) else { return };
    assert!(said.out.contains("created 126\n"), "{said:?}");
    assert!(said.out.contains("the audit log cannot be written"), "{said:?}");
    assert!(!said.out.contains("gone without a word"), "{said:?}");
    assert!(said.out.contains("killed 0\nleft 0\n"), "{said:?}");
    assert!(said.out.contains("again\n") && said.out.contains("verified 0\n"), "{said:?}");
}
