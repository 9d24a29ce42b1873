//! `fumehood plan`

use crate::Fixture;

#[test]
fn a_plan_names_who_holds_each_clause() {
    let fixture = Fixture::new();
    let said = fixture.run(&["plan"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    for part in
        ["policy `strict` holds on tier container", "limits.memory", "256M", "seccomp", "preset strict", "digest "]
    {
        assert!(said.out.contains(part), "{part} in {}", said.out);
    }
    let json = fixture.run(&["plan", "--json", "--", "true"]).json();
    let keys: Vec<_> = json.as_object().unwrap().keys().take(6).map(String::as_str).collect();
    assert_eq!(keys, ["schema", "digest", "tier", "backend", "clauses", "weakened"]);
    let first = &json["clauses"][0];
    for key in ["clause", "value", "origin", "enforcer", "strength", "overshoot"] {
        assert!(first.get(key).is_some(), "{key} in {first}");
    }
}

#[test]
fn the_same_policy_has_the_same_digest_in_every_language() {
    let fixture = Fixture::new();
    let write = |name: &str, text: &str| std::fs::write(fixture.path("work").join(name), text).unwrap();
    write("p.toml", "version = 1\nname = \"p\"\n[limits]\npids = 9\nwall = \"10s\"\n");
    write("p.yaml", "version: 1\nname: p\nlimits:\n  wall: 10 s\n  pids: 9\n");
    write("p.json", r#"{"version": 1, "limits": {"wall": "10000ms", "pids": 9}, "name": "p"}"#);
    let digest = |args: &[&str]| {
        let said = fixture.run(&[&["plan", "--json"], args].concat());
        said.json()["digest"].as_str().unwrap_or_else(|| panic!("{said:?}")).to_owned()
    };
    let toml = digest(&["-p", "p.toml"]);
    assert_eq!(digest(&["-p", "p.yaml"]), toml);
    assert_eq!(digest(&["-p", "p.json"]), toml);
    assert_eq!(digest(&["--pids", "9", "--timeout=10s", "--set", "name=p"]), toml);
    assert_ne!(digest(&["--pids", "8", "--timeout=10s"]), toml);
}

#[test]
fn a_refusal_tells_every_unmet_clause_at_once() {
    let fixture = Fixture::new();
    let args = ["plan", "--tier=process", "-w", ".:overlay", "--net=loopback", "--set", "process.label=apparmor:x"];
    let said = fixture.run(&args);
    assert_eq!((said.code, said.out.as_str()), (126, ""), "{said:?}");
    assert!(said.err.starts_with("refused: tier `process` cannot hold "), "{}", said.err);
    for part in ["workspace/overlay-needs-container", "net.mode/loopback-needs-container", "process.label/", "fix: "] {
        assert!(said.err.contains(part), "{part} in {}", said.err);
    }
    let json = fixture.run(&[&args[..], &["--json"]].concat()).json();
    let refused = json["refused"].as_array().unwrap();
    assert!(refused.len() >= 3, "{json:#}");
    for key in ["id", "clause", "what", "where", "why", "fix"] {
        assert!(refused[0][key].is_string(), "{key}");
    }
}

#[test]
fn nothing_is_started_and_nothing_recorded() {
    let fixture = Fixture::new();
    assert_eq!(fixture.run(&["plan", "--lang", "sh", "--code", "touch /tmp/x"]).code, 0);
    assert!(!fixture.state().join("audit").exists());
}

#[test]
fn a_core_that_this_host_does_not_have_is_refused_before_anything_is_made() {
    let fixture = Fixture::new();
    for command in ["plan", "run"] {
        for tier in ["container", "process"] {
            let said = fixture.run(&[command, "--tier", tier, "--set", "limits.cpuset=0,4095", "--", "true"]);
            assert_eq!((said.code, said.out.as_str()), (126, ""), "{said:?}");
            assert!(said.err.contains("this host has no core 4095: those that are switched on are 0"), "{said:?}");
        }
    }
}

#[test]
fn a_folder_that_is_not_there_is_a_refusal_in_the_shape_of_any_other() {
    let fixture = Fixture::new();
    for args in
        [&["-w", "/nowhere/at/all"][..], &["--read", "/nowhere/at/all"], &["-w", ".", "--set", "workspace.at=/usr"]]
    {
        let plan = fixture.run(&[&["plan", "--json"], args, &["--", "true"]].concat());
        let run = fixture.run(&[&["run", "--json"], args, &["--", "true"]].concat());
        assert_eq!((plan.code, run.code), (126, 126), "{plan:?}");
        assert_eq!(plan.json()["refused"], run.json()["refused"], "{plan:?}");
        for key in ["id", "what", "where", "why", "fix"] {
            assert!(plan.json()["refused"][0][key].is_string(), "{key} in {plan:?}");
        }
    }
}

#[test]
fn the_plan_names_what_the_process_tier_leaves_open() {
    let fixture = Fixture::new();
    let open = |tier: &str| {
        let json = fixture.run(&["plan", "--json", "--tier", tier]).json();
        (json["not_promised"].to_string(), fixture.run(&["plan", "--tier", tier]).out)
    };
    let (json, text) = open("process");
    for part in ["links in such folders are not told", "times and attributes", "no `/dev/shm` and no `/run`"] {
        assert!(json.contains(part) && text.contains(part), "{part} in {text}");
    }
    let (json, text) = open("language");
    for part in [
        "other results than by `python3`: regular expressions are Rust's",
        "other results than by `node`: there is no `Intl`",
    ] {
        assert!(json.contains(part) && text.contains(part), "{part} in {text}");
    }
    // What is not there has no size that anything holds.
    let clauses = |tier: &str| fixture.run(&["plan", "--json", "--tier", tier]).json()["clauses"].to_string();
    for clause in ["\"fs.shm\"", "\"fs.run\""] {
        assert!(!clauses("process").contains(clause) && clauses("container").contains(clause), "{clause}");
    }
    let (json, text) = open("container");
    assert!(json == "[]" && !text.contains("not promised"), "{text}");
}

/// The product as the caller of these tests, or as the ordinary user 1000.
fn ask(fixture: &Fixture, as_user: bool, words: &[&str]) -> crate::CommandOutput {
    if !as_user {
        return fixture.run(words);
    }
    let script = "ln -f \"$1\" product 2>/dev/null || cp \"$1\" product; shift; mkdir -p ../users && chmod 755 .. && chown 1000:1000 ../users &&
                  exec setpriv --reuid 1000 --regid 1000 --clear-groups ./product \"$@\"";
    let mut command = crate::script(script, fixture);
    command.args(words).env("FUMEHOOD_STATE", fixture.path("users")).env("FUMEHOOD_IN_PRIVATE_MOUNTS", "1");
    fixture.said(&command.output().unwrap())
}

#[test]
fn links_of_a_folder_that_was_not_granted_are_told_to_nobody_on_the_process_tier() {
    let fixture = Fixture::new();
    let root = rustix::process::geteuid().is_root();
    let folder = |name: &str| {
        let folder = fixture.path(&format!("work/{name}"));
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(format!("target-of-{name}"), folder.join("link")).unwrap();
        std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        if root {
            std::os::unix::fs::chown(&folder, Some(1000), Some(1000)).unwrap();
        }
        folder.display().to_string()
    };
    let (private, granted) = (folder("private"), folder("granted"));
    let read = |more: &[&str], script: &str| {
        let flags = ["run", "-q", "--tier", "process", "--set", "syscalls.profile=default", "--read", &granted];
        ask(&fixture, root, &[&flags[..], more, &["--", "sh", "-c", script]].concat())
    };
    let open = ["--set", "syscalls.allow=[\"readlink\", \"readlinkat\"]"];
    let attack = format!(
        "readlink '{private}/link'; cd '{private}' && readlink link; readlink /proc/{}/exe",
        std::process::id()
    );
    let stopped = read(&[], &attack);
    assert!(stopped.code == 1 && stopped.out.is_empty(), "{stopped:?}");
    let open = read(&open, &attack);
    assert!(open.out.contains("target-of-private"), "it works without the control: {open:?}");
    let work = format!(
        "readlink '{granted}/link' && readlink /proc/$$/exe && readlink -f /dev/fd/../cwd && ln -s x own && readlink own"
    );
    let works = read(&[], &work);
    assert!(works.code == 0 && works.out.starts_with("target-of-granted\n/"), "{works:?}");
}

#[test]
fn a_grant_in_the_workspaces_place_is_planned_as_it_is_run() {
    let fixture = Fixture::new();
    let tree = fixture.path("work/tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("note"), "here").unwrap();
    let root = rustix::process::geteuid().is_root();
    for path in [&tree, &tree.join("note")].into_iter().filter(|_| root) {
        std::os::unix::fs::chown(path, Some(1000), Some(1000)).unwrap();
    }
    let tree = tree.display().to_string();
    let (itself, other) = (format!("{tree}:{tree}"), format!("/usr/share:{tree}"));
    let write = format!("cat '{tree}/note' && echo x >'{tree}/new' && rm '{tree}/new'");
    for as_user in [false, true].into_iter().filter(|as_user| root || !as_user) {
        for mode in ["ro", "rw", "overlay", "copy"] {
            let workspace = format!("{tree}:{mode}");
            let both = |grant: [&str; 2]| {
                let flags =
                    ["-p", "coding-agent", "-w", &workspace, "--prefer", "limits.disk", "--prefer", "limits.files"];
                let plan = ask(&fixture, as_user, &[&["plan"], &flags[..], &grant].concat());
                (
                    plan,
                    ask(&fixture, as_user, &[&["run", "-q"], &flags[..], &grant, &["--", "sh", "-c", &write]].concat()),
                )
            };
            for grant in [["--read", &tree], ["--read", &itself], ["--dangerous-read", &tree]] {
                let (plan, run) = both(grant);
                assert_eq!(plan.code, 0, "{mode} {grant:?}: {plan:?}");
                let is_written = run.code == 0;
                assert!(
                    run.out == "here" && is_written == (mode != "ro") && run.code < 124,
                    "{mode} {grant:?}: {run:?}"
                );
            }
            for grant in [["--read", &other], ["--write", &other]] {
                let (plan, run) = both(grant);
                assert!(plan.code == 126 && plan.err.contains("over the workspace"), "{mode} {grant:?}: {plan:?}");
                assert_eq!(run.code, 126, "{mode} {grant:?}: {run:?}");
            }
            let (plan, run) = both(["--write", &tree]);
            let code = if mode == "rw" { 0 } else { 126 };
            assert_eq!((plan.code, run.code), (code, code), "{mode} {plan:?} {run:?}");
        }
    }
}

/// The ends of what clauses take: a plan of them was none, or the run failed as ours.
#[test]
fn what_has_a_plan_at_the_ends_of_its_range_can_be_started() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("work/one"), "1").unwrap();
    let (disk, files) = ("limits.disk=84M", |count: u32| format!("limits.files={count}"));
    let mut rows = vec![("container", ".:ro".to_owned(), "limits.pids=4194304".to_owned(), 0)];
    rows.extend([16, 17, 30, 48].map(|count| ("container", ".:overlay".to_owned(), files(count), 0)));
    rows.extend([
        ("container", ".:copy".to_owned(), files(16), 0),
        ("container", ".:overlay".to_owned(), disk.to_owned(), 0),
        ("container", ".:copy".to_owned(), disk.to_owned(), 0),
        ("process", "one:ro".to_owned(), "limits.wall=20s".to_owned(), 126),
    ]);
    for (tier, workspace, set, code) in rows {
        let flags = ["--tier", tier, "-w", workspace.as_str(), "--set", set.as_str()];
        let (plan, run) = (
            fixture.run(&[&["plan"], &flags[..], &["--", "true"]].concat()),
            fixture.run(&[&["run", "-q"], &flags[..], &["--", "true"]].concat()),
        );
        assert_eq!(run.code, code, "{tier} {workspace} {set}: {run:?}");
        assert_eq!(plan.code, code, "{tier} {workspace} {set}: {plan:?}");
    }
}
