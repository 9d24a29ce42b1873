//! `docs/reference/support.md`: who holds which clause on which tier, asked of `backends::support` and nothing else.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use backends::{Assumed, Backend, Capabilities};
use policy::rows::ROWS;
use policy::{Caller, ClauseId, Controls, Format, Layers, Loaded, Support};

use crate::CaseError;

const HEAD: &str = "<!-- generated: FUMEHOOD_WRITE=1 cargo test -p fumehood-conformance --test support; do not edit -->
# Who holds which clause

Asked of the same function that plans a run, for an ordinary user on Linux 6.12 with control groups v2. *Kernel* holds
without us; *supervisor* is our process outside, which watches. What may pass before it acts stands behind it. Where no
control group can be used the answer is a line of its own. What is refused is never run: exit code 126 with this id,
and `fumehood explain ID` says more.

Every clause has its cells in `crates/conformance/tests/clauses`, proven as root and as an ordinary user.
";

/// Values whose answers differ, beside the example of each row.
const MORE: &[(ClauseId, &str)] = &[
    (ClauseId::FsRoot, "fs.root = \"host\""),
    (ClauseId::FsRoot, "fs.root = \"dir:/srv/root\""),
    (ClauseId::FsRoot, "fs.root = \"image:debian\""),
    (ClauseId::FsRead, "fs.read = [\"/opt/data\"]"),
    (ClauseId::FsSockets, "fs.sockets = false"),
    (ClauseId::FsSockets, "fs.sockets = \"own\""),
    (ClauseId::FsSockets, "fs.sockets = \"own\"\nfs.write = [\"/srv/out\"]"),
    (ClauseId::FsProtect, "workspace = { path = \"/srv/tree\", mode = \"rw\" }"),
    (ClauseId::FsProtect, "workspace = { path = \"/srv/tree\", mode = \"copy\" }"),
    (ClauseId::FsNoexec, "fs.noexec = true"),
    (ClauseId::Workspace, "workspace = { path = \"/srv/tree\", mode = \"rw\" }"),
    (ClauseId::Workspace, "workspace = { path = \"/srv/tree\", mode = \"overlay\" }"),
    (ClauseId::Workspace, "workspace = { path = \"/srv/tree\", mode = \"copy\" }"),
    (ClauseId::LimitsDisk, "workspace = { path = \"/srv/tree\", mode = \"rw\" }"),
    (ClauseId::LimitsFiles, "workspace = { path = \"/srv/tree\", mode = \"rw\" }"),
    (ClauseId::NetMode, "net.mode = \"none\""),
    (ClauseId::NetMode, "net.mode = \"loopback\""),
    (ClauseId::ProcessUser, "process.user = \"ann\""),
    (ClauseId::ProcessHostname, "process.hostname = \"elsewhere\""),
    (ClauseId::Commands, "commands = { presets = [\"inspect\"], read = [\"src\"] }"),
];

fn load(text: &str) -> Result<Loaded, CaseError> {
    let caller = Caller {
        dir: PathBuf::from("/srv/work"),
        home: Some(PathBuf::from("/home/ann")),
        profiles: vec!["default".to_owned(), "strict".to_owned()],
    };
    let mut layers = Layers::new(caller);
    let none = |_: &Path| Err("no such file".to_owned());
    layers.document("example", &format!("version = 1\n{text}\n"), Format::Toml, Path::new("/srv"), &none);
    let mut loaded = layers.finish().map_err(|mistakes| format!("{text}: {mistakes}"))?;
    // Where an image is named, it is in the store.
    loaded.set_image(Ok(policy::load::Packed::default()));
    Ok(loaded)
}

fn held(by: &Controls) -> String {
    let overshoot = by.overshoot().map(|words| format!("; may pass: {words}")).unwrap_or_default();
    format!("`{}` ({}, against {}{overshoot})", by.enforcer(), by.strength().as_str(), by.against())
}

fn answer(backend: &dyn Backend, id: ClauseId, loaded: &Loaded, assumed: Assumed) -> String {
    let policy = loaded.policy_on(backend.tier());
    if policy.demand(id).is_none() {
        return "asks for nothing".to_owned();
    }
    match backend.support(id, &policy, &Capabilities::assumed(assumed)) {
        Support::NotAsked if id == ClauseId::Backend => "the planner's: it asks no other".to_owned(),
        Support::NotAsked if matches!(id, ClauseId::Threat | ClauseId::Enforcer) => {
            "the planner's: it judges the answers of the others".to_owned()
        }
        Support::NotAsked if matches!(id, ClauseId::FsShm | ClauseId::FsRun) => {
            "no such place of its own, so no size: the plan says so".to_owned()
        }
        Support::NotAsked => "asks for nothing".to_owned(),
        Support::Held(by) => held(&by),
        Support::Unmet(unmet) => {
            let weaker = unmet.weaker.as_ref().map(|by| format!("; with `prefer`: {}", held(by))).unwrap_or_default();
            format!("refused `{}`: {}{weaker}", unmet.id, unmet.why)
        }
    }
}

/// The page.
///
/// # Errors
/// An example does not load.
pub fn page() -> Result<String, CaseError> {
    let mut page = String::from(HEAD);
    for row in ROWS {
        writeln!(page, "\n## {}", row.clause)?;
        let more = MORE.iter().filter(|(clause, _)| *clause == row.clause).map(|(_, text)| *text);
        let mut shown = Vec::new();
        for text in std::iter::once(row.valid).chain(more).filter(|text| !text.is_empty()) {
            if shown.contains(&text) {
                continue;
            }
            shown.push(text);
            let loaded = load(text)?;
            writeln!(page, "\nWith `{}`:\n", text.replace('\n', "`, `"))?;
            for backend in backends::ALL.iter().copied() {
                let (with, without) = (
                    answer(backend, row.clause, &loaded, Assumed::Groups),
                    answer(backend, row.clause, &loaded, Assumed::NoGroups),
                );
                let tier = backend.tier().as_str().to_owned();
                let tier = if backend.only_by_name() { format!("{tier} by {}", backend.name()) } else { tier };
                writeln!(page, "- {tier}: {with}")?;
                if with != without {
                    writeln!(page, "- {tier}, without a control group: {without}")?;
                }
            }
        }
    }
    Ok(page)
}
