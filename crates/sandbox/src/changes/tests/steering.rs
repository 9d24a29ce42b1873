//! What is held although it is on no list: what links among the control files lead to, policies, hidden paths.

use std::collections::BTreeSet;

use super::*;

/// Paths that `apply` holds.
fn held(host: &Host) -> Vec<String> {
    let conflicts = host.conflicts();
    assert!(conflicts.iter().all(|(_, id)| *id == "protected"), "{conflicts:?}");
    conflicts.into_iter().map(|(path, _)| path.display().to_string()).collect()
}

fn holding(host: &Host, policies: &[&str], hidden: &[&str]) {
    let set = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
    let lower = Dir::open(&host.at("work")).unwrap();
    let store =
        Store::begin(&host.state, &host.run, &host.at("work"), &lower, host.started, Bounds::default()).unwrap();
    let mut store = store.holding(set(policies), set(hidden));
    read_upper(&mut store, &Dir::open(&host.at("upper")).unwrap(), &lower, Path::new("")).unwrap();
    store.finish(&host.state).unwrap();
}

#[test]
fn what_links_among_control_files_lead_to_is_held_by_apply() {
    let host = Host::new(&[
        (".git/HEAD", "ref: refs/heads/main\n"),
        ("tools/hooks/a.sample", ""),
        ("tools/servers.json", "{}"),
        ("agents/settings.json", "{}"),
        ("sub/x", ""),
    ]);
    for (target, link) in [
        ("../tools/hooks", ".git/hooks"),
        ("tools/servers.json", ".mcp.json"),
        ("hop", ".claude"),
        ("agents", "hop"),
        ("../later/rc", "sub/.envrc"),
    ] {
        symlink(target, host.work(link)).unwrap();
    }
    host.overlay(
        "echo x > tools/hooks/pre-commit; echo x > tools/servers.json; echo x > agents/settings.json; \
         mkdir later; echo x > later/rc; echo fine > tools/other; mkdir agents2; ln -sfn agents2 hop",
    );
    host.read();
    assert_eq!(
        held(&host),
        ["agents/settings.json", "hop", "later/rc", "tools/hooks/pre-commit", "tools/servers.json"]
    );
    let marked = |shown: &DiffEntry| shown.marks.iter().any(|mark| mark.id == "protected");
    assert_eq!(host.diff().entries.iter().filter(|shown| marked(shown)).count(), 5);
    let Applied::Done { paths, left, .. } = host.apply_with(&Request { guarded: Guarded::Leave, ..all() }).unwrap()
    else {
        panic!("what else there is is taken")
    };
    assert!(paths.iter().any(|path| path.0 == Path::new("tools/other")) && left == 5, "{paths:?}");
    assert!(!host.work("tools/hooks/pre-commit").exists() && !host.work("later/rc").exists());
}

#[test]
fn a_folder_that_holds_what_a_link_leads_to_is_not_replaced() {
    let host = Host::new(&[("tools/claude/settings.json", "{}"), ("evil/claude/settings.json", "x")]);
    symlink("tools/claude", host.work(".claude")).unwrap();
    host.overlay("rm -r tools; ln -s evil tools");
    host.read();
    assert!(held(&host).contains(&"tools".to_owned()));
}

#[test]
fn a_policy_of_the_run_is_held_and_other_files_are_not() {
    let host = Host::new(&[("conf/mine.toml", "version = 1\n"), ("conf/other.toml", "")]);
    host.overlay("echo net.mode=1 >> conf/mine.toml; echo x >> conf/other.toml");
    holding(&host, &["conf/mine.toml"], &[]);
    assert_eq!(held(&host), ["conf/mine.toml"]);
    holding(&host, &[], &[]);
    assert!(matches!(host.apply(), Applied::Done { .. }), "one that nobody named is a file");
}

#[test]
fn a_hidden_path_is_held_and_its_text_shown_to_nobody() {
    let host = Host::new(&[(".env", "SECRET-1"), ("d/key.pem", "SECRET-2"), ("d/x", "plain")]);
    host.overlay("echo mine > .env; rm -r d");
    holding(&host, &[], &[".env", "d/key.pem"]);
    let shown = host.diff();
    let of = |path: &str| shown.entries.iter().find(|one| one.entry.path == Path::new(path)).unwrap().entry.clone();
    for path in [".env", "d/key.pem"] {
        assert_eq!(of(path).base, None, "{path}");
    }
    let json = serde_json::to_string(&shown).unwrap();
    for secret in ["SECRET-1", "SECRET-2"] {
        assert!(!json.contains(&policy::json::sha256_hex(secret.as_bytes())), "{json}");
    }
    assert!(json.contains(&policy::json::sha256_hex(b"plain")), "what is not hidden is told: {json}");
    let text = shown.text();
    assert!(!text.contains("SECRET") && text.contains("plain"), "{text}");
    assert!([".env", "d/key.pem"].iter().all(|path| held(&host).contains(&(*path).to_owned())));
    assert_eq!(std::fs::read_to_string(host.work("d/key.pem")).unwrap(), "SECRET-2");
}

#[test]
fn what_was_put_aside_goes_with_the_changes() {
    let host = Host::new(&[("a", "1")]);
    let aside = host.at("state/changes").join(format!("{}-aside", host.run));
    host.overlay("echo 2 > a");
    host.read();
    for _ in 0..2 {
        std::fs::create_dir(&aside).unwrap();
        discard(&host.state, &host.run).unwrap();
        assert!(!aside.exists());
    }
    assert!(put_aside(&host.state).unwrap().is_empty());
    std::fs::create_dir(&aside).unwrap();
    assert!(put_aside(&host.state).unwrap().is_empty(), "nothing is in it");
    for name in ["b", "a"] {
        std::fs::write(aside.join(name), "").unwrap();
    }
    let named = put_aside(&host.state).unwrap();
    assert_eq!(named.into_iter().collect::<Vec<_>>(), [(host.run.clone(), vec!["a".into(), "b".into()])]);
    assert_eq!(aside_folder(&host.state, &host.run), aside);
    discard(&host.state, &host.run).unwrap();
    assert!(!aside.exists() && discard(&host.state, &host.run).is_err());
}

#[test]
fn what_control_files_name_is_marked_and_taken() {
    let host = Host::new(&[
        (".envrc", "source scripts/env.sh\n"),
        ("scripts/env.sh", "x"),
        ("scripts/other.sh", "x"),
        ("sub/.mcp.json", r#"{"mcpServers": {"x": {"command": "node", "args": ["tools/server.js"]}}}"#),
        ("sub/tools/server.js", "x"),
    ]);
    host.overlay("for f in scripts/env.sh scripts/other.sh sub/tools/server.js; do echo y >> $f; done");
    host.read();
    let marks: Vec<(String, String)> = host
        .diff()
        .entries
        .into_iter()
        .flat_map(|shown| {
            shown.marks.into_iter().map(move |mark| (shown.name.clone(), format!("{}: {}", mark.id, mark.why)))
        })
        .collect();
    let expected = [
        ("scripts/env.sh", "executes: `.envrc` names it"),
        ("sub/tools/server.js", "executes: `sub/.mcp.json` names it"),
    ];
    assert_eq!(marks, expected.map(|(name, mark)| (name.to_owned(), mark.to_owned())));
    assert!(matches!(host.apply(), Applied::Done { .. }));
}

#[test]
fn keys_of_gits_configuration_are_shown_before_they_are_taken() {
    let config = "[core]\n\tbare = false\n[init]\n\tdefaultbranch = x\n";
    let host = Host::new(&[(".git/HEAD", "ref: refs/heads/main\n"), (".git/config", config)]);
    put(&host.at("upper"), ".git/config", "[core]\n\tbare = false\n[branch \"x\"]\n\trebase = true\n");
    host.read();
    let marks: Vec<Mark> = host.diff().entries.into_iter().flat_map(|shown| shown.marks).collect();
    let why = "`init.defaultbranch` (removed), `branch.x.rebase`".to_owned();
    assert_eq!(marks, [Mark { id: "configures", why }]);
    assert!(matches!(host.apply(), Applied::Done { .. }));
    // A name for who commits is nothing that is taken, also where the file had none.
    put(&host.at("upper"), ".git/config", "[core]\n\tbare = false\n[user]\n\tname = Other\n");
    host.read();
    assert_eq!(host.conflicts(), [(PathBuf::from(".git/config"), "protected")]);
}

/// It would be in the way of all else.
#[test]
fn a_folder_that_the_run_moved_stays_where_something_in_it_does() {
    let mut host = Host::new(&[("sub/a", "a"), ("sub/.vscode/tasks.json", "{}"), ("sub/in/b", "b")]);
    host.begin();
    host.overlay("mv sub pkg; echo c > c");
    host.read();
    let applied = host.apply_with(&Request { guarded: Guarded::Leave, ..all() }).unwrap();
    let Applied::Done { left, .. } = applied else { panic!("{applied:?}") };
    assert!(left > 0);
    let there = |name: &str| host.work(name).exists();
    assert!(there("pkg/a") && there("pkg/in/b") && there("c") && there("sub/.vscode/tasks.json"));
    assert!(!there("sub/a") && !there("sub/in"), "what else was in it is gone");
    host.conflicts();
}
