//! Who may import whom.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;

use super::source::{code_only, files, root, shown};
use super::{Findings, none};

/// A room of the workspace: its package, the rooms it may import, and, where the room is kept small on purpose,
/// the only other packages it may import.
struct Room {
    package: &'static str,
    rooms: &'static [&'static str],
    others: Option<&'static [&'static str]>,
}

/// docs/decisions/0034-rooms.md. A new edge is a decision about the design: it is made here, in a commit of its own.
const ROOMS: [Room; 19] = [
    Room {
        package: "fumehood-policy",
        rooms: &[],
        // Pure libraries: no system calls, no clock, no runtime.
        others: Some(&[
            "annotate-snippets",
            "globset",
            // What `serde-saphyr` reads YAML with: its events carry the place of every key.
            "granit-parser",
            // Logins of proxies are written as in URLs.
            "percent-encoding",
            "regex",
            "schemars",
            "serde",
            "serde-saphyr",
            "serde_json",
            "sha2",
            "strsim",
            "thiserror",
            "toml",
        ]),
    },
    Room {
        package: "fumehood-sys",
        rooms: &[],
        // `serde` and `toml` read the filter profiles when it is built; the trait of the heaps of `rquickjs` is an unsafe one.
        others: Some(&["landlock", "libc", "linux-raw-sys", "rquickjs", "rustix", "serde", "thiserror", "toml"]),
    },
    // Attack payloads; nothing of the product but `attack` may import it.
    Room { package: "fumehood-probe", rooms: &[], others: Some(&["libc", "rustix"]) },
    Room { package: "fumehood-guest", rooms: &["fumehood-sys"], others: Some(&[]) },
    Room {
        package: "fumehood-backends",
        // The agent: what starts programs in a machine, as bytes and as a protocol.
        rooms: &["fumehood-policy", "fumehood-sys", "fumehood-guest", "fumehood-agent"],
        // No command line, no audit, no signatures.
        others: Some(&["globset", "serde", "serde_json", "sha2", "thiserror", "toml"]),
    },
    Room {
        package: "fumehood-gate",
        rooms: &["fumehood-policy"],
        // Parsers and engines of rules; `rustix` for the one module that asks where a path leads (`GATE_FILES`).
        others: Some(&[
            "base64",
            "brush-parser",
            "cel",
            "globset",
            "idna",
            "jiff",
            "jsonschema",
            "regex",
            "rustix",
            "serde",
            "serde_json",
            "sha2",
            "sqlparser",
            "toml",
            "url",
        ]),
    },
    Room {
        package: "fumehood-gateway",
        // `egress`: what a server says back of our headers is overwritten by what the broker overwrites secrets by.
        rooms: &["fumehood-policy", "fumehood-sys", "fumehood-gate", "fumehood-egress"],
        others: None,
    },
    Room {
        package: "fumehood-sandbox",
        // The gate, since a run judges its own command: a caller could forget to. `egress`, to speak with the broker.
        rooms: &[
            "fumehood-policy",
            "fumehood-sys",
            "fumehood-guest",
            "fumehood-backends",
            "fumehood-gate",
            "fumehood-egress",
        ],
        // No command line, no terminal's colours, no runtime, no gateway.
        others: Some(&[
            "base64",
            "ed25519-dalek",
            // Objects of git are packed by it.
            "flate2",
            "globset",
            "jiff",
            "regex",
            "rustix",
            // The machine's roots, by which opened servers are verified.
            "rustls-native-certs",
            "serde",
            "serde_json",
            // Of Java's store of certificates.
            "sha1",
            "sha2",
            "similar",
            // What a snapshot is made of.
            "tar",
            "thiserror",
            "toml",
            // Roots for machines that have no store.
            "webpki-root-certs",
            "zeroize",
        ]),
    },
    // Unpacks what others packed, and says what its images are to a run: it starts nothing.
    Room {
        package: "fumehood-images",
        rooms: &["fumehood-policy", "fumehood-sandbox", "fumehood-sys"],
        others: Some(&[
            "flate2",
            "globset",
            "lzma-rust2",
            "rustix",
            "ruzstd",
            "serde",
            "serde_json",
            "sha2",
            "tar",
            "thiserror",
        ]),
    },
    // Asks registries, and leaves what comes to the store: no engine, no policy.
    Room {
        package: "fumehood-registry",
        rooms: &["fumehood-images", "fumehood-sandbox"],
        others: Some(&[
            "base64",
            "reqwest",
            "rustix",
            "rustls",
            "serde",
            "serde_json",
            "sha2",
            "thiserror",
            "tokio",
            "url",
        ]),
    },
    Room {
        package: "fumehood-egress",
        rooms: &["fumehood-policy"],
        // Pure libraries that read what programs send, and those that sign certificates and requests: no runtime, no socket.
        others: Some(&[
            "base64",
            "hmac",
            "http",
            "httparse",
            "percent-encoding",
            "rcgen",
            "serde",
            "serde_json",
            "sha2",
            "zeroize",
        ]),
    },
    // The process that holds a sandbox's sockets: no engine, no backend.
    Room { package: "fumehood-broker", rooms: &["fumehood-egress", "fumehood-policy", "fumehood-sys"], others: None },
    // Interpreters, which run what nobody trusts: no engine, no backend, no way to the system but their own streams. `sys`, for the
    // heap of one.
    Room {
        package: "fumehood-language",
        rooms: &["fumehood-policy", "fumehood-sys"],
        others: Some(&[
            "monty",
            "monty-types",
            "rquickjs",
            "ruff_python_ast",
            "ruff_python_parser",
            "ruff_text_size",
            "rustix",
            "serde_json",
            "wasmi",
        ]),
    },
    // The protocol of live sandboxes, and the program inside that speaks it: no runtime, no policy.
    Room {
        package: "fumehood-agent",
        rooms: &["fumehood-sys"],
        others: Some(&["rustix", "serde", "serde_json", "tar"]),
    },
    Room {
        package: "fumehood-live",
        rooms: &["fumehood-agent", "fumehood-policy", "fumehood-sandbox", "fumehood-sys"],
        others: None,
    },
    Room {
        package: "fumehood-server",
        rooms: &["fumehood-agent", "fumehood-live", "fumehood-policy", "fumehood-sandbox", "fumehood-sys"],
        others: None,
    },
    // Starts sandboxes as anybody does, and tries to get out of them: no command line, no gateway, no backend.
    Room {
        package: "fumehood-attack",
        rooms: &["fumehood-policy", "fumehood-probe", "fumehood-sandbox", "fumehood-sys"],
        // `rustls`: a program of HTTP/2 speaks it in TLS.
        others: Some(&["base64", "jiff", "rustix", "rustls", "serde", "serde_json", "sha2", "toml"]),
    },
    Room {
        package: "fumehood",
        rooms: &[
            "fumehood-policy",
            "fumehood-sys",
            "fumehood-guest",
            "fumehood-backends",
            "fumehood-gate",
            "fumehood-gateway",
            "fumehood-sandbox",
            "fumehood-agent",
            "fumehood-live",
            "fumehood-server",
            "fumehood-attack",
            "fumehood-egress",
            "fumehood-broker",
            "fumehood-language",
            "fumehood-images",
            "fumehood-registry",
        ],
        others: None,
    },
    Room {
        package: "fumehood-conformance",
        rooms: &[
            "fumehood-policy",
            "fumehood-sys",
            "fumehood-guest",
            "fumehood-backends",
            "fumehood-gate",
            "fumehood-gateway",
            "fumehood-sandbox",
            "fumehood-agent",
            "fumehood-live",
            "fumehood-server",
            "fumehood-egress",
            "fumehood-broker",
            "fumehood-language",
            "fumehood-images",
            "fumehood-registry",
            "fumehood-probe",
            "fumehood-attack",
            "fumehood",
        ],
        others: None,
    },
];

/// What the programs inside a sandbox are made of: the guest of nothing but our own calls, the agent of its room.
const PAYLOAD_MAY_IMPORT: [&str; 3] = ["fumehood-sys", "fumehood-guest", "fumehood-agent"];

/// The command line, which calls all the rest of its crate; and where its program begins.
const COMMAND_LINE: &str = "crates/fumehood/src/cli/";
const MAIN: &str = "crates/fumehood/src/main.rs";

/// What cargo says of the workspace. Read here: the crate for it turns on features of `serde_json` that the product has
/// not, so that tests would try another reader, and each stage of the tests would build everything again.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_root: PathBuf,
}

#[derive(Deserialize)]
pub(crate) struct Package {
    name: String,
    dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
}

#[derive(Deserialize)]
pub(crate) struct Dependency {
    name: String,
    /// `dev`, `build`, or nothing.
    kind: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Target {
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

#[expect(clippy::disallowed_methods, reason = "cargo needs the environment it was started with")]
pub(crate) fn metadata() -> Result<Metadata, Box<dyn Error>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let said = std::process::Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()?;
    if !said.status.success() {
        return Err(String::from_utf8_lossy(&said.stderr).into());
    }
    Ok(serde_json::from_slice(&said.stdout)?)
}

/// The names of what a package is linked with: tests may import what they need, the product may not.
fn linked(package: &Package) -> impl Iterator<Item = &str> {
    package.dependencies.iter().filter(|d| d.kind.as_deref() != Some("dev")).map(|d| d.name.as_str())
}

fn foreign_imports(metadata: &Metadata) -> Vec<String> {
    let mut found = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let Some(room) = ROOMS.iter().find(|room| room.package == name) else {
            found.push(format!("`{name}` has no row in ROOMS: say what it may import"));
            continue;
        };
        for import in linked(package) {
            let ours = ROOMS.iter().any(|room| room.package == import);
            let allowed = if ours {
                room.rooms.contains(&import)
            } else {
                room.others.is_none_or(|others| others.contains(&import))
            };
            if !allowed {
                found.push(format!("`{name}` imports `{import}`, which docs/decisions/0034-rooms.md does not give it"));
            }
        }
    }
    found
}

/// Packages that import the attack payloads and are neither the attack nor a test of it.
fn payloads_outside_the_attack(metadata: &Metadata) -> Vec<String> {
    let may = ["fumehood-attack", "fumehood-conformance"];
    let importers = metadata.packages.iter().filter(|package| linked(package).any(|name| name == "fumehood-probe"));
    let others = importers.filter(|package| !may.contains(&package.name.as_str()));
    others.map(|package| format!("`{}` imports the attack payloads, which only the attack may", package.name)).collect()
}

/// Modules of `fumehood` beside its command line that import it.
fn importers_of_the_command_line() -> Findings {
    let mut found = Vec::new();
    for path in files(&[".rs"])? {
        let name = shown(&path);
        if !name.starts_with("crates/fumehood/src/") || name.starts_with(COMMAND_LINE) || name == MAIN {
            continue;
        }
        let code = code_only(&fs::read_to_string(&path)?);
        for (number, line) in code.lines().enumerate().filter(|(_, line)| line.contains("cli::")) {
            found.push(format!("{name}:{}: `{}`: nobody imports the command line", number + 1, line.trim()));
        }
    }
    Ok(found)
}

/// The payload has a manifest of its own, which cargo's metadata does not show.
fn foreign_imports_of_the_payload() -> Findings {
    let mut found = Vec::new();
    for path in files(&["manifest.in"])? {
        let manifest: toml::Table = toml::from_str(&fs::read_to_string(&path)?)?;
        for section in ["dependencies", "build-dependencies"] {
            let Some(imports) = manifest.get(section).and_then(toml::Value::as_table) else { continue };
            for (key, value) in imports {
                let name = value.get("package").and_then(toml::Value::as_str).unwrap_or(key);
                let alias = matches!(name, "sys" | "guest");
                if !alias && !PAYLOAD_MAY_IMPORT.contains(&name) {
                    found.push(format!("{}: the payload imports `{name}`", shown(&path)));
                }
                if value.get("default-features").and_then(toml::Value::as_bool) != Some(false) {
                    found.push(format!("{}: `{name}` needs `default-features = false`", shown(&path)));
                }
            }
        }
    }
    Ok(found)
}

#[test]
fn every_crate_imports_only_what_its_room_may() {
    none(&foreign_imports(&metadata().expect("cargo metadata reads the workspace")));
}

#[test]
fn the_payload_imports_our_own_calls_alone() {
    none(&foreign_imports_of_the_payload().expect("the payload's manifest can be read"));
}

#[test]
fn attack_payloads_are_imported_by_the_attack_alone() {
    none(&payloads_outside_the_attack(&metadata().expect("cargo metadata reads the workspace")));
}

#[test]
fn nobody_imports_the_command_line() {
    none(&importers_of_the_command_line().expect("the tree can be read"));
}
