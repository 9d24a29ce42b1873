//! Packages into a folder: each client of a registry is a run of its own, which writes to that folder and nowhere else, and
//! reaches its registry and nothing else. No code of a package is run even there.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::OutcomeKind;
use policy::json::toml_text;
use sandbox::fault::show_text;
use sandbox::{Capabilities, Environment, Finished, Inputs, Options, PolicyLayer, Stdio, Workload};

use super::settings::{Client, Registry, Settings};
use super::{INSIDE, Recipe, TemplateError};

/// Where the host's Python and npm are, and for whom they run.
#[derive(Clone, Debug)]
pub struct Tools {
    /// The Python that a sandbox sees under the same path.
    pub python: PathBuf,
    /// npm.
    pub npm: PathBuf,
    /// The caller: what his configuration says of registries and proxies is handed on, his files and variables are not.
    pub caller: Environment,
    /// How long one client may take.
    pub limit: Duration,
}

/// Where a client keeps what it needs no more when it has ended; on disk, since it may be as large as what is installed.
const SCRATCH: &str = "/opt/fumehood/scratch";
/// What a client may use. The folder lies on the host's disk: without quotas there only the size of each file is held.
const LIMITS: &[&str] = &[
    "name=template build",
    "fs.noexec=true",
    "limits.memory=4G",
    "limits.disk=16G",
    "limits.files=2000000",
    "limits.file_size=4G",
    "limits.pids=512",
    "limits.open_files=4096",
    "limits.output=256K",
];
/// Largest list of npm's that is read, bytes.
const MAX_LIST: u64 = 64 << 20;
/// Nobody counts what is written to the folder while it is written, unless its file system does.
const PREFERRED: [&str; 2] = ["limits.disk", "limits.files"];

impl Tools {
    /// The usual ones.
    #[must_use]
    pub fn new(caller: &Environment) -> Self {
        let (python, npm) = (PathBuf::from("/usr/bin/python3"), PathBuf::from("/usr/bin/npm"));
        // Nothing of a build is relative to where the caller stands.
        let caller = Environment { cwd: Some(PathBuf::from("/")), ..caller.clone() };
        Self { python, npm, caller, limit: Duration::from_secs(3600) }
    }

    /// Runs a client of a registry, with a place for what it needs meanwhile.
    fn run(&self, folder: &Path, call: &Call<'_>) -> Result<Vec<String>, TemplateError> {
        let scratch = folder.join(".scratch");
        let failed = |error: std::io::Error| TemplateError::state(&scratch, &error);
        fs::create_dir(&scratch).map_err(failed)?;
        let weaker = self.client(folder, &scratch, call)?;
        fs::remove_dir_all(&scratch).map_err(failed)?;
        Ok(weaker)
    }

    /// Runs a client of a registry; what of its limits was weaker than is asked for.
    fn client(&self, folder: &Path, scratch: &Path, call: &Call<'_>) -> Result<Vec<String>, TemplateError> {
        let (what, settings) = (call.what, Settings::read(call.client, &self.caller));
        let refused = |error| TemplateError::Sandbox { what, error: Box::new(error) };
        let layers = self.layers(folder, scratch, call, &settings);
        let mut loaded = sandbox::load(&layers, &self.caller, Inputs::Now).map_err(refused)?;
        let env = &mut loaded.policy.env.set;
        env.extend(["TMPDIR", "npm_config_cache"].map(|name| (name.to_owned(), SCRATCH.to_owned())));
        env.extend(settings.env);
        let program = call.program.as_os_str().to_owned();
        let argv = std::iter::once(program).chain(call.args.iter().map(OsString::from)).collect();
        let host = Capabilities::probe_with(self.caller.services());
        let planned = sandbox::plan(loaded, Workload::Argv(argv), &host).map_err(refused)?;
        let weaker = planned.plan.weakened.iter();
        let weaker = weaker.map(|one| format!("{}: {} ({})", one.clause, one.got, one.why)).collect();
        let started = sandbox::start(planned, &self.caller, &host, Options::new(Stdio::kept())).map_err(refused)?;
        let finished = started.wait().map_err(refused)?;
        if let Some(fault) = &finished.not_started {
            return Err(TemplateError::Tools { what, why: format!("{}: {}", fault.what, fault.why) });
        }
        let outcome = &finished.report.outcome;
        if outcome.kind == OutcomeKind::Exited && outcome.code == Some(0) {
            return Ok(weaker);
        }
        Err(TemplateError::Packages { what, why: last_words(&finished) })
    }

    /// The policy of a client.
    fn layers(&self, folder: &Path, scratch: &Path, call: &Call<'_>, settings: &Settings) -> Vec<PolicyLayer> {
        let set = |text: String| PolicyLayer::Set(text);
        let flag = |name: &str, value: String| PolicyLayer::Flag { name: name.to_owned(), value };
        let mut layers = vec![PolicyLayer::Document(call.client.preset().to_owned())];
        layers.extend(LIMITS.iter().map(|limit| set((*limit).to_owned())));
        layers.push(set(format!("limits.wall={}ms", self.limit.as_millis())));
        layers.extend(PREFERRED.iter().map(|clause| flag("--prefer", (*clause).to_owned())));
        // They lie in the state folder, which is dangerous to show; this part of it is what is made. What we write ourselves (the
        // record, the recipe's files) lies beside it, where no client can put a link.
        let part = call.client.part();
        layers.push(flag("--dangerous-write", format!("{}:{INSIDE}/{part}", folder.join(part).display())));
        layers.push(flag("--dangerous-write", format!("{}:{SCRATCH}", scratch.display())));
        let own = [&self.python, &self.npm].into_iter().filter(|path| !path.starts_with("/usr") && path.exists());
        for path in own.chain(&settings.shown) {
            layers.push(flag("--read", path.display().to_string()));
        }
        if !call.asks || (!settings.usual && settings.registries.is_empty()) {
            layers.push(set("net.mode=none".to_owned()));
            return layers;
        }
        layers.push(set("net.mode=allow".to_owned()));
        if settings.usual {
            layers.push(set(format!("net.presets=[{}]", toml_text(call.client.registry()))));
        }
        let rules: Vec<String> = settings.registries.iter().map(rule).collect();
        layers.push(set(format!("net.allow=[{}]", rules.join(", "))));
        let files: Vec<String> = settings.ca.iter().map(|path| toml_text(&path.display().to_string())).collect();
        layers.push(set(format!("net.ca=[{}]", files.join(", "))));
        layers.extend(settings.proxy.iter().map(|proxy| set(format!("net.proxy={}", toml_text(proxy)))));
        layers
    }
}

/// One call of a client.
struct Call<'a> {
    client: Client,
    /// Its name, for people.
    what: &'static str,
    /// As the sandbox sees it.
    program: PathBuf,
    args: Vec<&'a str>,
    /// It asks a registry.
    asks: bool,
}

/// A registry of the caller's as a rule of `net.allow`.
pub(super) fn rule(registry: &Registry) -> String {
    let port = registry.port;
    if let Ok(address) = registry.host.parse::<std::net::IpAddr>() {
        let length = if address.is_ipv4() { 32 } else { 128 };
        return format!("{{ cidr = \"{address}/{length}\", ports = [{port}] }}");
    }
    let address = registry.address.map(|address| format!(", address = \"{address}\"")).unwrap_or_default();
    format!("{{ host = {}, ports = [{port}]{address} }}", toml_text(&registry.host))
}

/// Why a client failed: what it was refused, and its own words.
fn last_words(finished: &Finished) -> String {
    let outcome = &finished.report.outcome;
    if outcome.kind != OutcomeKind::Exited {
        return show_text(&outcome.message);
    }
    let shown = |line: &str| show_text(&line.chars().take(300).collect::<String>());
    let text = [finished.stdout.bytes.as_slice(), &finished.stderr.bytes].concat();
    let text = String::from_utf8_lossy(&text);
    let errors = text.lines().filter(|line| line.starts_with("ERROR") || line.contains("npm error"));
    let mut said: Vec<String> = errors.take(3).map(shown).collect();
    if said.is_empty() {
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        said.push(shown(last.unwrap_or("it said nothing")));
    }
    let denied = finished.report.violations.iter().filter(|one| one.id.starts_with("net."));
    said.extend(denied.take(3).map(|one| shown(&format!("{}: {}", one.what, one.why))));
    said.join("; ")
}

/// Everything of a recipe, in this folder; what of the limits was weaker than is asked for.
pub(super) fn build(recipe: &Recipe, folder: &Path, tools: &Tools) -> Result<Vec<String>, TemplateError> {
    let mut weaker = Vec::new();
    for (client, names) in [(Client::Pip, &recipe.packages.pip), (Client::Npm, &recipe.packages.npm)] {
        if names.is_empty() {
            continue;
        }
        let part = folder.join(client.part());
        fs::create_dir(&part).map_err(|error| TemplateError::state(&part, &error))?;
        weaker.extend(match client {
            Client::Pip => pip(names, folder, tools)?,
            Client::Npm => npm(names, folder, tools)?,
        });
    }
    readable(folder).map_err(|error| TemplateError::state(folder, &error))?;
    weaker.sort();
    weaker.dedup();
    Ok(weaker)
}

fn pip(names: &[String], folder: &Path, tools: &Tools) -> Result<Vec<String>, TemplateError> {
    let client = Client::Pip;
    let venv = format!("{INSIDE}/{}", client.part());
    let (program, args) = (tools.python.clone(), vec!["-I", "-m", "venv", &venv]);
    tools.run(folder, &Call { client, what: "python3 -m venv", program, args, asks: false })?;
    // One call alone: what it installs could be run by the next one (`.pth`).
    let mut args = vec!["-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"];
    args.extend(["--no-cache-dir", "--only-binary=:all:", "--"]);
    args.extend(names.iter().map(String::as_str));
    let program = PathBuf::from(&venv).join("bin/python3");
    tools.run(folder, &Call { client, what: "pip install", program, args, asks: true })
}

fn npm(names: &[String], folder: &Path, tools: &Tools) -> Result<Vec<String>, TemplateError> {
    let client = Client::Npm;
    let node = format!("{INSIDE}/{}", client.part());
    let mut args = vec!["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"];
    args.extend(["--loglevel=error", "--prefix", &node, "--"]);
    args.extend(names.iter().map(String::as_str));
    tools.run(folder, &Call { client, what: "npm install", program: tools.npm.clone(), args, asks: true })
}

/// Whoever the sandbox's user is: he reads it, and executes what its maker could.
fn readable(folder: &Path) -> std::io::Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let kind = fs::symlink_metadata(&path)?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let execute = if kind.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
                fs::set_permissions(&path, fs::Permissions::from_mode(execute))?;
            }
        }
    }
    Ok(())
}

/// What was installed, each with its version.
pub(super) fn installed(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut take = |folder: PathBuf| {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some((name, version)) = name.strip_suffix(".dist-info").and_then(|name| name.rsplit_once('-')) {
                found.push(format!("{name}=={version}"));
            }
        }
    };
    // Whatever a link led to would be told as what was installed.
    for version in own(folder, "venv/lib").into_iter().flat_map(fs::read_dir).flatten().flatten() {
        let packages = Path::new("venv/lib").join(version.file_name()).join("site-packages");
        own(folder, packages).into_iter().for_each(&mut take);
    }
    if let Some(lock) = list_of_npm(folder) {
        let lock: serde_json::Value = serde_json::from_slice(&lock).unwrap_or_default();
        let packages = lock.get("packages").and_then(serde_json::Value::as_object);
        for (path, package) in packages.into_iter().flatten() {
            let version = package.get("version").and_then(serde_json::Value::as_str).unwrap_or("?");
            let name = path.rsplit_once("node_modules/").map_or(path.as_str(), |(_, name)| name);
            found.push(format!("{name}@{version}"));
        }
    }
    found.sort();
    found
}

/// A path in the folder that is there itself: no part of it is a link, which could lead to any place of the host.
fn own(folder: &Path, path: impl AsRef<Path>) -> Option<PathBuf> {
    let path = path.as_ref();
    let there = fs::canonicalize(folder.join(path)).ok()?;
    (there == fs::canonicalize(folder).ok()?.join(path)).then_some(there)
}

/// What npm says that it installed.
fn list_of_npm(folder: &Path) -> Option<Vec<u8>> {
    let path = own(folder, "node/node_modules/.package-lock.json")?;
    let facts = fs::symlink_metadata(&path).ok()?;
    (facts.is_file() && facts.len() <= MAX_LIST).then(|| fs::read(&path).ok()).flatten()
}
