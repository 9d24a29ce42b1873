//! `fumehood explain`

use std::collections::BTreeSet;
use std::path::Path;

use crate::{Fixture, files_below};

#[test]
fn an_id_is_explained_in_three_parts() {
    Fixture::new().run(&["explain", "usage/no-program"]).is(
        0,
        "usage/no-program\n\
         \x20 what: There is nothing to run.\n\
         \x20 why:  No command follows `--`, and there is neither a script nor code.\n\
         \x20 fix:  `fumehood run -- CMD ARGS`, `fumehood run script.py`, or `fumehood run --lang python --code\n\
         \x20       '...'`.\n",
        "",
    );
}

#[test]
fn json_has_the_same_parts() {
    let json = Fixture::new().run(&["explain", "usage/no-program", "--json"]).json();
    let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["schema", "id", "what", "why", "fix"]);
}

#[test]
fn an_unknown_id_names_the_nearest() {
    let said = Fixture::new().run(&["explain", "usage/no-progam"]);
    assert_eq!((said.code, said.out.as_str()), (125, ""));
    assert!(said.err.contains("fix: `fumehood explain usage/no-program`"), "{}", said.err);
}

/// Ids are literals of the form `"area/name"` in the code: each must have an entry, and each entry an id in the code.
#[test]
fn every_id_in_the_code_is_explained_and_no_other() {
    let listed: BTreeSet<String> = {
        let json = Fixture::new().run(&["explain", "--json"]).json();
        json["ids"].as_object().unwrap().keys().cloned().collect()
    };
    let used = ids_in_the_code();
    let unexplained: Vec<_> = used.difference(&listed).collect();
    let unused: Vec<_> = listed.difference(&used).collect();
    assert!(unexplained.is_empty(), "without an entry in resources/explain.toml: {unexplained:#?}");
    assert!(unused.is_empty(), "in resources/explain.toml, but in no code: {unused:#?}");
}

/// What help texts, pages and explanations call an id is one that can be asked for.
#[test]
fn every_id_that_help_or_a_page_names_is_known() {
    let known: BTreeSet<String> = {
        let json = Fixture::new().run(&["explain", "--json"]).json();
        json["ids"].as_object().unwrap().keys().cloned().collect()
    };
    let areas: BTreeSet<&str> = known.iter().filter_map(|id| Some(id.split_once('/')?.0)).collect();
    let asked = regex::Regex::new(r"explain ([a-z_.]+/[a-z0-9-]+)").unwrap();
    let quoted = regex::Regex::new(r"[`\x22]([a-z_]+(?:\.[a-z_]+)?/[a-z0-9]+(?:-[a-z0-9]+)*)[`\x22]").unwrap();
    let mut named = 0;
    for (place, text) in texts() {
        let explained = asked.captures_iter(&text).map(|c| c[1].to_owned());
        let of_an_area = |id: &String| id.split_once('/').is_some_and(|(area, _)| areas.contains(area)) && is_an_id(id);
        for id in explained.chain(quoted.captures_iter(&text).map(|c| c[1].to_owned()).filter(of_an_area)) {
            named += 1;
            assert!(known.contains(&id), "{place} names `{id}`, which nobody explains");
        }
    }
    assert!(named > 10, "the search found only {named}");
}

/// Everything that names ids to readers: each command's help, the pages, the explanations themselves.
fn texts() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let fixture = Fixture::new();
    let help = fumehood::cli::COMMANDS.iter().filter(|spec| !spec.hidden).map(|spec| {
        let words = [&["help"][..], spec.path].concat();
        (format!("`{}`", words.join(" ")), fixture.run(&words).out)
    });
    let mut files: Vec<_> =
        ["docs", "examples", "sdk/python/src"].iter().flat_map(|folder| files_below(&root.join(folder))).collect();
    files.extend(
        ["README.md", "ARCHITECTURE.md", "SECURITY.md", "sdk/python/README.md", "resources/explain.toml"]
            .map(|name| root.join(name)),
    );
    let pages =
        files.into_iter().filter(|file| file.extension().is_some_and(|e| e == "md" || e == "toml" || e == "py"));
    help.chain(pages.map(|file| (file.display().to_string(), std::fs::read_to_string(&file).unwrap()))).collect()
}

/// Areas of ids; a new area has to be added here, which the test below sees to.
fn ids_in_the_code() -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pattern = regex::Regex::new(r#""((?:[a-z_]+(?:\.[a-z_]+)?)/[a-z0-9]+(?:-[a-z0-9]+)*)""#).unwrap();
    // Test code in a file of its own is only declared here, and code follows.
    let declared = regex::Regex::new(r"#\[cfg\(test\)\]\s+mod [a-z_]+;").unwrap();
    let mut ids = BTreeSet::new();
    const ROOMS: [&str; 13] = [
        "policy", "backends", "sandbox", "gate", "gateway", "live", "server", "egress", "broker", "images", "registry",
        "attack", "fumehood",
    ];
    for room in ROOMS {
        for file in files_below(&crates.join(room).join("src")) {
            // Scenes and probes of attacks are full of paths, and say nothing to users.
            let is_stage = file.components().any(|c| c.as_os_str() == "scene" || c.as_os_str() == "probe");
            let is_test = file.file_name().is_some_and(|n| n == "tests.rs")
                || file.components().any(|c| c.as_os_str() == "tests");
            if file.extension().is_none_or(|e| e != "rs") || is_test || is_stage {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            // What follows is test code: its literals are not said to users.
            let text = declared.replace_all(&text, "");
            let text = text.split("\n#[cfg(test)]").next().unwrap_or_default();
            ids.extend(pattern.captures_iter(text).map(|c| c[1].to_owned()).filter(|id| is_an_id(id)));
        }
    }
    assert!(ids.len() > 10, "the search found only {ids:?}");
    ids
}

/// Other literals with one slash: paths of /proc, /sys and /dev, media types.
fn is_an_id(text: &str) -> bool {
    const PATHS: &[&str] = &[
        "application/",
        "apt/",
        "multipart/",
        "attr/",
        "venv/",
        "audio/",
        "bin/",
        "blobs/",
        "cache/",
        "dev/",
        "etc/",
        "fd/",
        "fdinfo/",
        "hooks/",
        "image/avif",
        "image/bmp",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "info/",
        "kernel/",
        "lib/",
        "mnt/",
        "ns/",
        "proc/",
        "pts/",
        "self/",
        "sys/",
        "tmp/",
        "usr/",
        "var/",
    ];
    /// Methods of MCP, and keys of its `_meta`.
    const METHODS: &[&str] = &[
        "completion/",
        "elicitation/",
        "fumehood/",
        "logging/",
        "notifications/",
        "prompts/",
        "ref/",
        "resources/",
        "roots/",
        "sampling/",
        "server/",
        "subscriptions/",
        "text/",
        "tools/call",
        "tools/list",
    ];
    !PATHS.iter().chain(METHODS).any(|path| text.starts_with(path))
}
