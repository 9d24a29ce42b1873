//! Runs `cases/*.md`: prose, documents, flags, and beside them what must come out.
//!
//! A case is a `##` heading. Blocks: ```` ```toml NAME ```` (or yaml, json) give documents, ```` ```flags ```` one flag
//! a line. `show` lists lines that `policy show` must have, `error` is the whole text of the mistakes, `lint` the ids of
//! all lints, `refused` the whole text of the refusal by the backend of these tests (see `backend`), `plan` lines of a
//! plan by it. A document named `policy.*` is loaded; others can be extended.

#![expect(clippy::expect_used, reason = "a malformed case is a failed test")]
#![expect(clippy::wildcard_enum_match_arm, reason = "the backend of these tests holds all but what a case is about")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use policy::control::{Control, Controls, Filter, Watch};
use policy::plan::{Support, Unmet};
use policy::value::{NetMode, Policy, Tier};
use policy::{Caller, Candidate, ClauseId, Layers, choose};

#[derive(Default)]
struct Case {
    title: String,
    documents: BTreeMap<String, String>,
    blocks: BTreeMap<String, String>,
}

fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("## ") {
            cases.push(Case { title: title.to_owned(), ..Case::default() });
        }
        let Some(fence) = line.strip_prefix("```").filter(|fence| !fence.is_empty()) else { continue };
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let body = body.join("\n");
        let case = cases.last_mut().expect("a block stands below a heading");
        match fence.split_once(' ') {
            Some((_, name)) => case.documents.insert(name.to_owned(), body + "\n"),
            None => case.blocks.insert(fence.to_owned(), body),
        };
    }
    cases
}

/// A host on which the process tier has no namespaces, and disk limits on host folders are only watched.
fn backend(tier: Tier, policy: &Policy) -> impl Fn(ClauseId) -> Support {
    let held = |control: Control| Support::Held(control.into());
    move |clause| match clause {
        ClauseId::Tier | ClauseId::Backend | ClauseId::Threat | ClauseId::Enforcer => Support::NotAsked,
        ClauseId::LimitsDisk if policy.writes_to_host() => Support::Unmet(Unmet {
            id: "limits.disk/rw-without-quota",
            why: "no quota on the file system of `/srv/work`".to_owned(),
            fix: "workspace mode `overlay`, or put the folder on xfs with prjquota".to_owned(),
            weaker: policy.limits.disk.map(|total| Control::EachFile(total).into()),
        }),
        ClauseId::NetMode if policy.net.mode == NetMode::Allow => no_broker(),
        ClauseId::NetAllow | ClauseId::NetDns | ClauseId::NetBandwidth => no_broker(),
        ClauseId::NetMode if policy.net.mode == NetMode::Loopback && tier == Tier::Process => Support::Unmet(Unmet {
            id: "net.mode/loopback-of-host",
            why: "without a network namespace `lo` is the host's".to_owned(),
            fix: "tier = \"container\", or net.mode = \"none\"".to_owned(),
            weaker: None,
        }),
        ClauseId::LimitsMemory => {
            let limit = policy.limits.memory.expect("it is asked for");
            let closing = [Filter::Visible, Filter::CountedMemory].map(Control::Filter);
            Support::Held(Controls::new(Control::Watch(Watch::Memory(limit)), closing))
        }
        ClauseId::LimitsCpuTime => {
            let limit = policy.limits.cpu_time.expect("it is asked for");
            held(Control::Watch(Watch::CpuTime { limit, counted: false }))
        }
        ClauseId::LimitsWall => held(Control::Watch(Watch::Wall(policy.limits.wall.expect("it is asked for")))),
        _ => held(Control::NoNewPrivs),
    }
}

fn no_broker() -> Support {
    Support::Unmet(Unmet {
        id: "net/no-broker",
        why: "no backend here has a broker".to_owned(),
        fix: "net.mode = \"none\" or \"loopback\"".to_owned(),
        weaker: None,
    })
}

fn load(case: &Case) -> Result<policy::Loaded, policy::Diagnostics> {
    let caller = Caller {
        dir: PathBuf::from("/srv/work"),
        home: Some(PathBuf::from("/home/ann")),
        profiles: ["default", "node", "python", "strict"].map(str::to_owned).to_vec(),
    };
    let documents = &case.documents;
    let loader = |path: &Path| {
        let name = path.strip_prefix("/srv/work").ok().and_then(Path::to_str).unwrap_or_default();
        documents.get(name).cloned().ok_or_else(|| "no such file".to_owned())
    };
    let mut layers = Layers::new(caller);
    for name in documents.keys().filter(|name| name.starts_with("policy")) {
        layers.policy(name, &loader);
    }
    for line in case.blocks.get("flags").map(String::as_str).unwrap_or_default().lines() {
        let (flag, value) = line.split_once(' ').unwrap_or((line, ""));
        match flag {
            "--policy" => layers.policy(value, &loader),
            "--set" => layers.set(value),
            flag => layers.flag(flag, value),
        }
    }
    layers.finish()
}

fn judge(case: &Case) -> Result<(), String> {
    let has = |text: &str, wanted: &str| {
        let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(squeeze).collect();
        match wanted.lines().map(squeeze).find(|line| !lines.contains(line)) {
            Some(line) => Err(format!("no line `{line}` in\n{text}")),
            None => Ok(()),
        }
    };
    let same = |got: &str, wanted: &str| {
        if got.trim_end() == wanted { Ok(()) } else { Err(format!("got\n{got}\nwanted\n{wanted}")) }
    };
    let loaded = match (load(case), case.blocks.get("error")) {
        (Ok(loaded), None) => loaded,
        (Err(mistakes), Some(wanted)) => return same(&mistakes.to_string(), wanted),
        (Ok(_), Some(_)) => return Err("it was not refused".to_owned()),
        (Err(mistakes), None) => return Err(mistakes.to_string()),
    };
    let ids: Vec<&str> = loaded.lints.iter().map(|lint| lint.id).collect();
    same(&ids.join("\n"), case.blocks.get("lint").map(String::as_str).unwrap_or_default())?;
    if let Some(wanted) = case.blocks.get("show") {
        has(&loaded.show_text(), wanted)?;
    }
    let (process, container) = (backend(Tier::Process, &loaded.policy), backend(Tier::Container, &loaded.policy));
    let candidates = [
        Candidate { tier: Tier::Process, backend: "native", answers: &process },
        Candidate { tier: Tier::Container, backend: "native", answers: &container },
    ];
    match (choose(&loaded, &candidates), case.blocks.get("plan"), case.blocks.get("refused")) {
        (Ok(choice), Some(wanted), None) => has(&format!("{}why: {}\n", choice.plan.to_text(), choice.why), wanted),
        (Err(refusal), None, Some(wanted)) => same(&refusal.to_text(), wanted),
        (_, None, None) => Ok(()),
        (Ok(choice), ..) => Err(format!("it was planned:\n{}", choice.plan.to_text())),
        (Err(refusal), ..) => Err(refusal.to_text()),
    }
}

#[test]
fn auto_takes_the_tier_that_holds_everything_before_one_that_is_weaker() {
    let caller = Caller { dir: PathBuf::from("/srv/work"), home: None, profiles: vec!["default".to_owned()] };
    let mut layers = Layers::new(caller);
    layers.flag("--tier", "auto");
    layers.set("threat=mistakes");
    layers.flag("--prefer", "limits.wall");
    let loaded = layers.finish().unwrap();
    let held = |_: ClauseId| Support::Held(Controls::from(Control::NoNewPrivs));
    let weaker = |clause: ClauseId| match clause {
        ClauseId::LimitsWall => Support::Unmet(Unmet {
            id: "limits.wall/test",
            why: "nobody watches".to_owned(),
            fix: "watch".to_owned(),
            weaker: Some(Controls::from(Control::NoNewPrivs)),
        }),
        other => held(other),
    };
    let process = Candidate { tier: Tier::Process, backend: "native", answers: &weaker };
    let both =
        choose(&loaded, &[process, Candidate { tier: Tier::Container, backend: "native", answers: &held }]).unwrap();
    assert_eq!((both.plan.tier, both.plan.weakened.len()), (Tier::Container, 0));
    assert!(both.why.contains("`process` holds `limits.wall` weaker than asked"), "{}", both.why);
    let alone = choose(&loaded, &[process]).unwrap();
    assert_eq!((alone.plan.tier, alone.plan.weakened.len()), (Tier::Process, 1));
    assert!(alone.why.contains("no tier holds all of it"), "{}", alone.why);
}

#[test]
fn cases_come_out_as_they_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let (mut count, mut failures) = (0, Vec::new());
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        for case in cases(&std::fs::read_to_string(&file).unwrap()) {
            count += 1;
            if let Err(why) = judge(&case) {
                failures.push(format!("=== {}: {}\n{why}", file.file_name().unwrap().to_string_lossy(), case.title));
            }
        }
    }
    assert!(count >= 40, "only {count} cases were found");
    assert!(failures.is_empty(), "{} of {count}\n{}", failures.len(), failures.join("\n\n"));
}
