//! Callers and hosts as odd as they come: each gets a right run, or words that name what is odd and the remedy.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use crate::{CommandOutput, Fixture, script};

/// What a shell script says that has the product as `$1`.
fn said(fixture: &Fixture, text: &str) -> CommandOutput {
    fixture.said(&script(text, fixture).output().unwrap())
}

#[test]
fn a_mask_that_hides_everything_from_the_owner_breaks_nothing() {
    let fixture = Fixture::new();
    let run = said(&fixture, "umask 0777; \"$1\" run -q -- sh -c 'umask; echo x >/tmp/f; cat /tmp/f'");
    assert_eq!((run.code, run.out.as_str()), (0, "0022\nx\n"), "{run:?}");
    let mode = std::fs::metadata(fixture.state()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "the state folder is the owner's alone");
    std::fs::write(fixture.path("work/a"), "copied\n").unwrap();
    let copy = said(&fixture, "umask 0777; \"$1\" run -q --tier process -w .:copy -- sh -c 'cat a; echo new >b'");
    assert_eq!((copy.code, copy.out.as_str()), (0, "copied\n"), "{copy:?}");
}

#[test]
fn a_limit_of_file_sizes_is_told_and_does_not_kill_without_a_word() {
    let run = said(&Fixture::new(), "ulimit -f 0; \"$1\" run -q -- true");
    assert_eq!(run.code, 126, "{run:?}");
    assert!(run.err.contains("raise the limit of file sizes (`ulimit -f`)"), "{run:?}");
}

#[test]
fn too_few_descriptors_are_told_and_a_low_soft_limit_is_raised() {
    let fixture = Fixture::new();
    let few = said(&fixture, "ulimit -n 64; \"$1\" run -q -- true");
    few.is(
        126,
        "",
        "error: only 64 files may be open at once\n  --> the caller's limits\n  why: a run needs 192; nothing was run\n  \
         fix: raise the limit of open files (`ulimit -n`)\n",
    );
    let soft = said(&fixture, "ulimit -S -n 64; \"$1\" run -q -- echo ran");
    assert_eq!((soft.code, soft.out.as_str()), (0, "ran\n"), "{soft:?}");
}

#[test]
fn a_lower_limit_of_the_caller_holds_and_does_not_stop_the_start() {
    // 256 files are asked for, and the caller may have 200.
    let run = said(&Fixture::new(), "ulimit -n 200; \"$1\" run -q --set limits.open_files=256 -- sh -c 'ulimit -H -n'");
    assert_eq!((run.code, run.out.as_str()), (0, "200\n"), "{run:?}");
}

#[test]
fn a_folder_whose_name_is_no_text_is_a_workspace_in_every_mode() {
    let fixture = Fixture::new();
    let folder = fixture.path("work").join(OsStr::from_bytes(b"a\nb\xff\\c"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("f"), "hello\n").unwrap();
    for mode in ["ro", "rw", "copy", "overlay"] {
        let text = format!(
            "cd a* && \"$1\" run --json -w .:{mode} --prefer limits.disk --prefer limits.files -- sh -c 'cat f; echo new >new-{mode} || true'"
        );
        let run = said(&fixture, &text);
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
    let fixture = Fixture::new();
    let sparse = std::fs::File::create(fixture.path("work/sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    for tier in ["container", "process"] {
        let run = fixture.run(&["run", "-q", "--tier", tier, "-w", ".:copy", "--", "true"]);
        assert_eq!(run.code, 126, "{run:?}");
        assert!(run.err.contains("the workspace does not fit into its copy: it ends at `sparse`"), "{run:?}");
        assert!(run.err.contains("raise `limits.disk` and `limits.files`"), "{run:?}");
    }
    let overlay = fixture.run(&["run", "-q", "-w", ".", "--", "stat", "-c", "%s", "sparse"]);
    assert_eq!((overlay.code, overlay.out.as_str()), (0, "1099511627776\n"), "{overlay:?}");
}

#[test]
fn a_file_system_below_a_tree_is_told_and_what_was_done_beside_it_is_kept() {
    let fixture = Fixture::new();
    let mounted = "mkdir -p sub && mount -t tmpfs none sub && echo below >sub/g || exit 77; ";
    let layered =
        said(&fixture, &format!("{mounted}\"$1\" run -q -w . -- sh -c 'echo k >k; echo x >sub/h'; umount sub"));
    if layered.code == 77 {
        return println!("skip: only root mounts here");
    }
    let diff = fixture.run(&["diff", "--json"]).json();
    assert_eq!(diff["entries"][0]["name"], "k", "{layered:?} {diff}");
    let grant =
        said(&fixture, &format!("{mounted}\"$1\" run -q --read .:/m -- ls /m; code=$?; umount sub; exit $code"));
    assert_eq!(grant.code, 126, "{grant:?}");
    assert!(grant.err.contains("`/m` cannot be shown through a layer"), "{grant:?}");
    assert!(!grant.err.contains("Overlay"), "no word of our own inside: {grant:?}");
}

#[test]
fn in_the_process_tier_a_grant_of_what_else_proves_that_landlock_holds_can_be_read() {
    let fixture = Fixture::new();
    let run =
        fixture.run(&["run", "-q", "--tier", "process", "--dangerous-read", "/", "--", "test", "-r", "/etc/passwd"]);
    assert_eq!(run.code, 0, "{run:?}");
}

/// A shell script whose mounts are its own; `false` where this host lets nobody mount.
fn can_mount(fixture: &Fixture) -> bool {
    said(fixture, "exec unshare --mount sh -c 'mkdir -p m && mount -t tmpfs none m'").code == 0
}

#[test]
fn what_is_mounted_in_a_workspace_is_said_where_a_layer_or_a_copy_lacks_it() {
    let fixture = Fixture::new();
    if !can_mount(&fixture) {
        println!("skip: no mounts can be made here");
        return;
    }
    std::fs::create_dir(fixture.path("work/sub")).unwrap();
    let mounted = |words: &str| {
        let text = format!(
            "exec unshare --mount sh -c 'mount -t tmpfs none sub && echo in >sub/file && exec \"$1\" {words}' - \"$1\""
        );
        said(&fixture, &text)
    };
    for tier in ["container", "process"] {
        let copy = mounted(&format!("run --json --tier {tier} -w .:copy -- ls sub/file"));
        let note = "`sub` of the workspace is not in its copy: a file system is mounted there, and a copy does not enter those";
        assert_eq!(copy.json()["workspace"]["notes"], serde_json::json!([note]), "{copy:?}");
        let plan = mounted(&format!("plan --json --tier {tier} -w .:copy"));
        assert_eq!((plan.code, &plan.json()["notes"]), (0, &serde_json::json!([note])), "{plan:?}");
        let plain = fixture.run(&["run", "--json", "--tier", tier, "-w", ".:copy", "--", "ls", "sub"]).json();
        assert_eq!(plain["workspace"]["notes"], serde_json::json!([]), "nothing is mounted there now");
    }
    for mode in ["ro", "overlay"] {
        // Of root it is shown with other ids, by a clone without what is mounted; of the caller the kernel layers nothing.
        let run = mounted(&format!("run --json -w .:{mode} -- ls sub"));
        let plan = mounted(&format!("plan --json -w .:{mode}"));
        let note = run.json()["workspace"]["notes"][0].as_str().unwrap_or_default().to_owned();
        let refused = run.json()["refused"][0]["id"] == "run/no-layer";
        assert!(refused && run.code == 126 || note.starts_with("a file system is mounted on `sub` of"), "{run:?}");
        let json = plan.json();
        assert_eq!((plan.code, json["refused"][0]["id"] == "run/no-layer"), (run.code, refused), "{plan:?}");
        assert!(refused || json["notes"][0] == note, "{plan:?}");
    }
    let grant = mounted("plan --json --read \"$PWD\"");
    let run = mounted("run --json --read \"$PWD\" -- true");
    for said in [grant, run] {
        assert_eq!((said.code, &said.json()["refused"][0]["id"]), (126, &"run/no-layer".into()), "{said:?}");
    }
    let sockets = mounted("run -q --read \"$PWD\" --set fs.sockets=true -- cat \"$PWD/sub/file\"");
    assert_eq!((sockets.code, sockets.out.as_str()), (0, "in\n"), "without a layer it is there: {sockets:?}");
}

#[test]
fn a_grant_that_the_runs_user_could_not_read_is_refused_and_the_plan_says_so_too() {
    let fixture = Fixture::new();
    if !rustix::process::geteuid().is_root() {
        println!("skip: only what root starts is somebody else");
        return;
    }
    // Of the process tier the way to it counts too.
    let open =
        |path: &std::path::Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    open(&fixture.path(""), 0o755);
    let secret = fixture.path("work/secret");
    std::fs::write(&secret, "for root\n").unwrap();
    open(&secret, 0o600);
    for tier in ["container", "process"] {
        let grant = ["--json", "--tier", tier, "--read", secret.to_str().unwrap()];
        let run = fixture.run(&[&["run"], &grant[..], &["--", "cat", secret.to_str().unwrap()]].concat());
        let plan = fixture.run(&[&["plan"], &grant[..]].concat());
        for said in [&run, &plan] {
            let error = &said.json()["refused"][0];
            assert_eq!((said.code, &error["id"]), (126, &"run/unreadable-grant".into()), "{said:?}");
            assert!(error["why"].as_str().unwrap().contains("belongs to uid 0 with mode 0600"), "{error}");
            assert!(error["fix"].as_str().unwrap().contains("chmod o+r "), "{error}");
        }
        open(&secret, 0o604);
        let run = fixture.run(&["run", "-q", "--tier", tier, "--read", grant[4], "--", "cat", grant[4]]);
        run.is(0, "for root\n", "");
        open(&secret, 0o600);
        // The folder around it is granted: what lies below is its owner's matter, and stays shut.
        let folder = fixture.path("work");
        let run =
            fixture.run(&["run", "-q", "--tier", tier, "--read", folder.to_str().unwrap(), "--", "cat", grant[4]]);
        assert_eq!((run.code, run.out.as_str()), (1, ""), "{run:?}");
    }
    // The workspace is the run's own, whatever its files' modes are.
    fixture.run(&["run", "-q", "-w", ".", "--", "cat", "secret"]).is(0, "for root\n", "");
}

/// A control group of v2 takes the name of such a core and does not hold it; one of v1 does not take it.
#[test]
fn a_core_that_the_caller_may_not_use_is_refused() {
    let fixture = Fixture::new();
    if said(&fixture, "nproc").out != "1\n" && said(&fixture, "taskset -c 1 true").code == 0 {
        for tier in ["container", "process"] {
            let run = |cores: &str| {
                said(
                    &fixture,
                    &format!("exec taskset -c 0 \"$1\" run --tier {tier} --set limits.cpuset={cores} -- nproc"),
                )
            };
            let control = run("0");
            if control.code == 126 && control.err.contains("no-controller") {
                println!("skip: no control group holds cores here");
                return;
            }
            assert_eq!((control.code, control.out.as_str()), (0, "1\n"), "{control:?}");
            for cores in ["1", "0-1"] {
                let other = run(cores);
                assert_eq!((other.code, other.out.as_str()), (126, ""), "{tier} {cores} {other:?}");
                for words in ["core 1 is not for this run: whoever called", "may use 0\n", "limits.cpuset/not-given"] {
                    assert!(other.err.contains(words), "{tier} {cores} {other:?}");
                }
            }
        }
        return;
    }
    println!("skip: two processors are needed");
}

/// The same, where it is the caller's control group that leaves cores out.
#[test]
fn a_core_outside_the_callers_control_group_is_refused() {
    let fixture = Fixture::new();
    let all = "/sys/fs/cgroup/cpuset";
    // Made, used and removed by one shell, which goes back to where it was.
    let text = format!(
        "own={all}$(sed -n 's/^[0-9]*:cpuset://p' /proc/self/cgroup) && own=${{own%/}} && group=$own/test-$$ && \
         [ $(nproc --all) != 1 ] && mkdir \"$group\" 2>/dev/null || {{ echo none; exit; }}; \
         cat \"$own/cpuset.mems\" >\"$group/cpuset.mems\"; echo 0 >\"$group/cpuset.cpus\"; echo $$ >\"$group/tasks\"; \
         for tier in container process; do \"$1\" run -q --tier $tier --set limits.cpuset=1 -- nproc; echo $?; \
         \"$1\" run -q --tier $tier --set limits.cpuset=0 -- nproc; echo $?; done; \
         echo $$ >\"$own/tasks\"; rmdir \"$group/fumehood\" \"$group\""
    );
    let ended = said(&fixture, &text);
    if ended.out == "none\n" {
        println!("skip: no control group for cores can be made here, or there is one core");
        return;
    }
    assert_eq!(ended.out, "126\n1\n0\n126\n1\n0\n", "{ended:?}");
    assert_eq!(ended.err.matches("may use 0\n").count(), 2, "{ended:?}");
}
