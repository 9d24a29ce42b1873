//! The house rules that no compiler holds: who may import whom, where `unsafe` may stand, how long a file may
//! grow, which names say nothing. One test is one rule; each names every breach and what to do instead.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

type Found = Result<Vec<String>, Box<dyn Error>>;

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
        others: Some(&["landlock", "libc", "linux-raw-sys", "rustix", "thiserror"]),
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
    Room { package: "fumehood-gateway", rooms: &["fumehood-policy", "fumehood-sys", "fumehood-gate"], others: None },
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
    // Interpreters, which run what nobody trusts: no engine, no backend, no way to the system but their own streams.
    Room {
        package: "fumehood-language",
        rooms: &["fumehood-policy"],
        others: Some(&[
            "monty",
            "monty-types",
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
        others: Some(&["base64", "jiff", "rustix", "serde", "serde_json", "sha2", "toml"]),
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

/// Where `unsafe` may stand, and why.
const UNSAFE_ROOMS: [(&str, &str); 2] = [
    ("crates/sys/", "the kernel's calls, made safe for all others"),
    ("crates/probe/", "attack payloads; nothing of the product but `attack` may import it"),
];

/// The command line, which calls all the rest of its crate; and where its program begins.
const COMMAND_LINE: &str = "crates/fumehood/src/cli/";
const MAIN: &str = "crates/fumehood/src/main.rs";

/// The gate decides, and asks the machine through this file alone: no clock, no network, no environment.
const GATE: &str = "crates/gate/src/";
const GATE_FILES: &str = "crates/gate/src/files.rs";

/// What reaches out of a pure function, in code that is not a test's.
const REACHES_OUT: [&str; 16] = [
    "std::fs",
    "std::env",
    "std::process",
    "std::io::std",
    "rustix::",
    "SystemTime",
    "Instant",
    "TcpStream",
    "UdpSocket",
    "UnixStream",
    "canonicalize()",
    "metadata()",
    ".exists()",
    ".is_file()",
    ".is_dir()",
    "read_link()",
];

/// Folders of what depends on the processor: assembly, layouts and numbers of one architecture.
const OF_A_PROCESSOR: [&str; 2] = ["crates/sys/src/arch/", "crates/probe/src/arch/"];

/// Above this a file is split along what it speaks about.
const LINES_AT_MOST: usize = 800;

/// Names that collect everything because they say nothing.
const EMPTY_NAMES: [&str; 9] = ["common", "core", "helper", "helpers", "misc", "types", "util", "utils", "stuff"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What cargo says of the workspace. Read here: the crate for it turns on features of `serde_json` that the product has
/// not, so that tests would try another reader, and each stage of the tests would build everything again.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `dev`, `build`, or nothing.
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: PathBuf,
}

#[expect(clippy::disallowed_methods, reason = "cargo needs the environment it was started with")]
fn metadata() -> Result<Metadata, Box<dyn Error>> {
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

/// The text files of the tree with one of the endings, without what builds leave and what git keeps.
fn files(endings: &[&str]) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if kind.is_dir() && name != "target" && name != ".git" && name != "node_modules" {
                folders.push(entry.path());
            } else if !kind.is_dir() && !kind.is_symlink() && endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// The source with comments, strings and character literals blanked, lines kept: what is left is code.
fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = literal_or_comment(rest);
        let (taken, after) = rest.split_at(if length == 0 { first.len_utf8() } else { length });
        if length == 0 {
            code.push_str(taken);
        } else {
            code.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        rest = after;
    }
    code
}

/// The length of the comment, string or character literal that `text` begins with; 0 if it begins with code.
fn literal_or_comment(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return text.find("*/").map_or(text.len(), |end| end + 2);
    }
    if let Some(after) = text.strip_prefix("r").filter(|after| after.starts_with(['"', '#'])) {
        let hashes = after.chars().take_while(|c| *c == '#').count();
        if after.chars().nth(hashes) == Some('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let opened = 1 + hashes + 1;
            return text.get(opened..).and_then(|t| t.find(&close)).map_or(text.len(), |at| opened + at + close.len());
        }
        return 0;
    }
    if text.starts_with('"') {
        return quoted(text, '"');
    }
    // A lifetime is no literal: a character literal closes after one character or one escape.
    let mut chars = text.chars();
    match (chars.next(), chars.next(), chars.next()) {
        (Some('\''), Some('\\'), _) => quoted(text, '\''),
        (Some('\''), Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

/// The length of a literal that opens and closes with `quote` and escapes with a backslash.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at + 1;
        }
    }
    text.len()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Whether a file lies in a room for `unsafe`.
fn may_be_unsafe(name: &str) -> bool {
    UNSAFE_ROOMS.iter().any(|(room, _)| name.starts_with(room))
}

fn unsafe_outside_its_rooms() -> Found {
    let mut found = Vec::new();
    for path in files(&[".rs"])? {
        let name = shown(&path);
        if may_be_unsafe(&name) {
            continue;
        }
        let code = code_only(&fs::read_to_string(&path)?);
        for (number, line) in code.lines().enumerate() {
            if words(line).any(|word| word == "unsafe") {
                found.push(format!("{name}:{}: `unsafe` stands outside its rooms {UNSAFE_ROOMS:?}", number + 1));
            }
        }
    }
    Ok(found)
}

fn roots_that_do_not_forbid_unsafe(metadata: &Metadata) -> Found {
    let mut found = Vec::new();
    for package in &metadata.packages {
        let product = |target: &&Target| target.kind.iter().any(|kind| matches!(kind.as_str(), "lib" | "bin"));
        for target in package.targets.iter().filter(product) {
            let path = target.src_path.strip_prefix(&metadata.workspace_root);
            if path.is_ok_and(|path| may_be_unsafe(&path.to_string_lossy())) {
                continue;
            }
            let source = fs::read_to_string(&target.src_path)?;
            if !source.contains("#![forbid(unsafe_code)]") {
                found.push(format!("{} has no `#![forbid(unsafe_code)]`", shown(&target.src_path)));
            }
        }
    }
    Ok(found)
}

/// Arguments that argue nothing: they fit any call.
const EMPTY_ARGUMENTS: [&str; 5] = ["parameters are valid", "this is safe", "is safe here", "safe because", "trust me"];

/// Each unsafe block or impl stands below a `SAFETY:` comment that says more than that it is safe.
fn unsafe_without_an_argument() -> Found {
    let mut found = Vec::new();
    for path in files(&[".rs"])?.into_iter().filter(|path| may_be_unsafe(&shown(path))) {
        let source = fs::read_to_string(&path)?;
        let lines: Vec<&str> = source.lines().collect();
        let code = code_only(&source);
        for (number, line) in code.lines().enumerate() {
            if !line.contains("unsafe {") && !line.contains("unsafe impl") {
                continue;
            }
            let argument = argument_above(&lines, number).to_lowercase();
            let says = words(&argument).filter(|word| *word != "safety").count();
            if says < 2 || EMPTY_ARGUMENTS.iter().any(|phrase| argument.contains(phrase)) {
                let place = format!("{}:{}", shown(&path), number + 1);
                found.push(format!(
                    "{place}: no `// SAFETY:` comment above it that says what is required and why it holds"
                ));
            }
        }
    }
    Ok(found)
}

/// The `SAFETY:` comment above (or at the end of) a line; empty where there is none. The comment may stand above the
/// statement whose later line opens the block.
fn argument_above(lines: &[&str], number: usize) -> String {
    let near = lines.get(number.saturating_sub(12)..=number).unwrap_or_default();
    let Some(at) = near.iter().rposition(|line| line.contains("SAFETY:")) else { return String::new() };
    let comments = near.iter().skip(at).take_while(|line| line.contains("//"));
    comments.filter_map(|line| line.split_once("//").map(|(_, text)| text)).collect::<Vec<_>>().join(" ")
}

/// Where the gate reaches out of its one file for it.
fn impure_gate() -> Found {
    let mut found = Vec::new();
    for path in files(&[".rs"])? {
        let name = shown(&path);
        let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
        if !name.starts_with(GATE) || name == GATE_FILES || is_test {
            continue;
        }
        let source = fs::read_to_string(&path)?;
        let code = code_only(&source);
        let product = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (number, line) in product.lines().enumerate() {
            if let Some(word) = REACHES_OUT.iter().find(|word| line.contains(**word)) {
                found.push(format!("{name}:{}: `{word}`: the gate asks the machine in `{GATE_FILES}`", number + 1));
            }
        }
    }
    Ok(found)
}

/// What only one processor has, in code, outside of a folder for it.
fn processors_outside_their_folders() -> Found {
    let mut found = Vec::new();
    for path in files(&[".rs"])? {
        let name = shown(&path);
        if OF_A_PROCESSOR.iter().any(|folder| name.starts_with(folder)) {
            continue;
        }
        for (number, line) in code_only(&fs::read_to_string(&path)?).lines().enumerate() {
            if let Some(word) = words(line).find(|word| names_a_processor(word)) {
                found.push(format!(
                    "{name}:{}: `{word}` stands below {} alone",
                    number + 1,
                    OF_A_PROCESSOR.join(" or ")
                ));
            }
        }
    }
    Ok(found)
}

fn names_a_processor(word: &str) -> bool {
    matches!(word, "asm" | "naked_asm" | "global_asm" | "target_arch" | "x86_64" | "x86" | "aarch64")
}

fn long_files() -> Found {
    let mut found = Vec::new();
    for path in files(&[".rs", ".py", ".sh"])? {
        let count = fs::read_to_string(&path)?.lines().count();
        if count > LINES_AT_MOST {
            found.push(format!("{} has {count} lines, at most {LINES_AT_MOST}: split it", shown(&path)));
        }
    }
    Ok(found)
}

fn empty_names() -> Found {
    let mut found = Vec::new();
    for path in files(&[".rs", ".py", ".toml"])? {
        let name = shown(&path);
        for part in Path::new(&name).components() {
            let part = Path::new(part.as_os_str());
            let stem = part.file_stem().unwrap_or_default().to_string_lossy();
            if EMPTY_NAMES.contains(&stem.as_ref()) {
                found.push(format!("{name}: `{stem}` says nothing: name what the file holds"));
            }
        }
    }
    Ok(found)
}

fn promises_without_an_issue() -> Found {
    // Spelled apart, so that this file does not breach its own rule.
    let marks = [["TO", "DO"].concat(), ["FIX", "ME"].concat()];
    let mut found = Vec::new();
    for path in files(&[".rs", ".py", ".toml", ".md"])? {
        for (number, line) in fs::read_to_string(&path)?.lines().enumerate() {
            if words(line).any(|word| marks.iter().any(|mark| mark == word)) && !line.contains('#') {
                found.push(format!("{}:{}: an open end without the number of its issue", shown(&path), number + 1));
            }
        }
    }
    Ok(found)
}

fn manifests_without_the_lint_table() -> Found {
    let mut found = Vec::new();
    for path in files(&["Cargo.toml"])?.into_iter().filter(|path| shown(path).starts_with("crates/")) {
        let manifest = fs::read_to_string(&path)?;
        if !manifest.contains("[lints]\nworkspace = true") {
            found.push(format!("{} does not take the lint table of the workspace", shown(&path)));
        }
    }
    for path in files(&["clippy.toml"])? {
        if shown(&path) != "clippy.toml" {
            found.push(format!("{} would replace the `clippy.toml` of the root without a word", shown(&path)));
        }
    }
    Ok(found)
}

/// Packages that import the attack payloads and are neither the attack nor a test of it.
fn payloads_outside_the_attack(metadata: &Metadata) -> Vec<String> {
    let may = ["fumehood-attack", "fumehood-conformance"];
    let importers = metadata.packages.iter().filter(|package| linked(package).any(|name| name == "fumehood-probe"));
    let others = importers.filter(|package| !may.contains(&package.name.as_str()));
    others.map(|package| format!("`{}` imports the attack payloads, which only the attack may", package.name)).collect()
}

/// Modules of `fumehood` beside its command line that import it.
fn importers_of_the_command_line() -> Found {
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
fn foreign_imports_of_the_payload() -> Found {
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

/// Links of documents to files of this tree that are not there.
fn broken_links() -> Found {
    let mut found = Vec::new();
    for path in files(&[".md"])? {
        let text = fs::read_to_string(&path)?;
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let folder = path.parent().unwrap_or(&path);
            if fs::symlink_metadata(folder.join(target)).is_err() {
                found.push(format!("{}: `{target}` is not there", shown(&path)));
            }
        }
    }
    Ok(found)
}

#[track_caller]
fn none(found: &[String]) {
    assert!(found.is_empty(), "{} breach(es):\n{}", found.len(), found.join("\n"));
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
fn unsafe_code_stands_in_its_rooms() {
    none(&unsafe_outside_its_rooms().expect("the tree can be read"));
    let metadata = metadata().expect("cargo metadata reads the workspace");
    none(&roots_that_do_not_forbid_unsafe(&metadata).expect("the roots can be read"));
}

#[test]
fn attack_payloads_are_imported_by_the_attack_alone() {
    none(&payloads_outside_the_attack(&metadata().expect("cargo metadata reads the workspace")));
}

#[test]
fn nobody_imports_the_command_line() {
    none(&importers_of_the_command_line().expect("the tree can be read"));
}

#[test]
fn the_gate_asks_the_machine_in_one_file() {
    none(&impure_gate().expect("the tree can be read"));
}

#[test]
fn every_unsafe_block_has_its_argument() {
    none(&unsafe_without_an_argument().expect("the tree can be read"));
}

#[test]
fn what_one_processor_has_stands_in_its_folder() {
    none(&processors_outside_their_folders().unwrap());
    let named = |code: &str| words(&code_only(code)).any(names_a_processor);
    assert!(named("core::arch::asm!(\"nop\")") && named("#[cfg(target_arch = \"riscv64\")]"));
    assert!(!named("let release = \"el9.x86_64\"; // asm!"));
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    none(&long_files().expect("the tree can be read"));
}

#[test]
fn no_file_has_a_name_that_says_nothing() {
    none(&empty_names().expect("the tree can be read"));
}

#[test]
fn no_open_end_is_without_an_issue() {
    none(&promises_without_an_issue().expect("the tree can be read"));
}

#[test]
fn every_crate_takes_the_one_lint_table() {
    none(&manifests_without_the_lint_table().expect("the tree can be read"));
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    none(&broken_links().expect("the documents can be read"));
}

/// The control of the tests above: the reader of code sees through what is no code, and only through that.
#[test]
fn words_in_comments_and_strings_are_no_code() {
    let source = "a // unsafe\n\"unsafe \\\" unsafe\" r#\"unsafe\"# 'u' b /* unsafe */ &'c unsafe_code unsafe d";
    let code = code_only(source);
    assert_eq!(code.lines().count(), source.lines().count());
    assert_eq!(words(&code).collect::<Vec<_>>(), ["a", "b", "c", "unsafe_code", "unsafe", "d"]);
}
