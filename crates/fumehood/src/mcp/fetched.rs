//! MCP servers that were fetched from a registry once: a template of packages each, checked at every start against what was
//! installed, and started from there without a network.

use std::path::Path;

use gateway::mcp::packages::{Package, Registry};
use gateway::mcp::servers::{Server, Transport};
use live::template::{INSIDE, Packages, Source, Store, Template, TemplateError, Tools};
use policy::json::sha256_hex;

/// Characters of a package's name that are kept in the name of its template.
const MAX_NAME: usize = 40;

/// Why a package gives no server.
#[derive(Debug)]
pub enum Unfit {
    /// The template could not be made or read.
    Template(TemplateError),
    /// There is no such program in it.
    Program(String),
}

impl From<TemplateError> for Unfit {
    fn from(error: TemplateError) -> Self {
        Self::Template(error)
    }
}

/// A server that was fetched.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// What was installed.
    pub template: Template,
    /// Its program, as its sandbox sees it.
    pub program: String,
}

/// The name of the template of a package: readable, and one for each list of packages.
#[must_use]
pub fn template_name(package: &Package) -> String {
    let first = package.specs.first().map(String::as_str).unwrap_or_default();
    let last = first.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let readable: String = last.chars().map(plain).take(MAX_NAME).collect();
    let kind = match package.registry {
        Registry::Npm => "npm",
        Registry::Pip => "pip",
    };
    let mut sum = sha256_hex(format!("{kind}\n{}", package.specs.join("\n")).as_bytes());
    sum.truncate(8);
    let readable = readable.trim_matches('-');
    format!("mcp-{}-{sum}", readable.strip_prefix("mcp-").unwrap_or(readable))
}

/// Installs a package, unless it is there.
///
/// # Errors
/// [`Unfit`]
pub fn fetch(store: &Store, package: &Package, place: &Path, tools: &Tools) -> Result<Fetched, Unfit> {
    let mut packages = Packages::default();
    match package.registry {
        Registry::Npm => packages.npm.clone_from(&package.specs),
        Registry::Pip => packages.pip.clone_from(&package.specs),
    }
    let name = template_name(package);
    let template = match store.find(&name) {
        Err(TemplateError::Unknown(_)) => store.build(&name, &Source::packages(packages, place)?, tools)?,
        other => other?,
    };
    of(template, package)
}

/// What was fetched of a package before; none if nothing was.
///
/// # Errors
/// [`Unfit`]
pub fn find(store: &Store, package: &Package) -> Result<Option<Fetched>, Unfit> {
    match store.find(&template_name(package)) {
        Ok(template) => of(template, package).map(Some),
        Err(TemplateError::Unknown(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn of(template: Template, package: &Package) -> Result<Fetched, Unfit> {
    let folder = template.folder().unwrap_or(Path::new("/"));
    let bin = match package.registry {
        Registry::Npm => "node/node_modules/.bin",
        Registry::Pip => "venv/bin",
    };
    let name = match &package.program {
        Some(name) => name.clone(),
        None => named_by_package(folder, package)?,
    };
    // A name and no path, and there: links of npm's lead to the file itself.
    if name.contains('/') || name.starts_with('.') || !folder.join(bin).join(&name).exists() {
        return Err(Unfit::Program(format!("no program `{name}` was installed")));
    }
    Ok(Fetched { program: format!("{INSIDE}/{bin}/{name}"), template })
}

/// The program that `npx PACKAGE` runs: its only one, or the one of its own name.
fn named_by_package(folder: &Path, package: &Package) -> Result<String, Unfit> {
    let spec = package.specs.first().map(String::as_str).unwrap_or_default();
    let name = spec.char_indices().skip(1).find(|(_, c)| *c == '@').and_then(|(at, _)| spec.get(..at)).unwrap_or(spec);
    let plain = name.rsplit('/').next().unwrap_or(name);
    let text = std::fs::read_to_string(folder.join("node/node_modules").join(name).join("package.json"));
    let read: serde_json::Value = text.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let programs: Vec<String> = match read.get("bin") {
        Some(serde_json::Value::String(_)) => return Ok(plain.to_owned()),
        Some(serde_json::Value::Object(bins)) => bins.keys().cloned().collect(),
        Some(_) | None => Vec::new(),
    };
    if let [only] = programs.as_slice() {
        return Ok(only.clone());
    }
    if programs.iter().any(|program| program == plain) {
        return Ok(plain.to_owned());
    }
    Err(Unfit::Program(if programs.is_empty() {
        format!("the package `{name}` has no program")
    } else {
        let all = programs.join("`, `");
        format!("the package `{name}` has several programs: `{all}`; name one by `npx -p {name} PROGRAM`")
    }))
}

/// The server as it is started: from what was fetched.
pub fn start_from(server: &mut Server, fetched: &Fetched, package: Package) {
    server.fetched = Some(package.specs.join(" "));
    server.transport = Transport::Command { command: fetched.program.clone(), args: package.args };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(specs: &[&str], program: Option<&str>) -> Package {
        let specs = specs.iter().map(|spec| (*spec).to_owned()).collect();
        Package { registry: Registry::Npm, specs, program: program.map(str::to_owned), args: Vec::new() }
    }

    #[test]
    fn a_name_is_readable_and_of_these_packages_alone() {
        let one = template_name(&package(&["@modelcontextprotocol/server-filesystem"], None));
        assert!(one.starts_with("mcp-server-filesystem-") && one.len() < 64, "{one}");
        assert_ne!(one, template_name(&package(&["@other/server-filesystem"], None)));
        assert_ne!(one, template_name(&package(&["@modelcontextprotocol/server-filesystem@1"], None)));
        assert_ne!(
            one,
            template_name(&Package {
                registry: Registry::Pip,
                ..package(&["@modelcontextprotocol/server-filesystem"], None)
            })
        );
    }

    #[test]
    fn the_program_of_a_package_is_its_only_one_or_that_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("node/node_modules/@a/b");
        std::fs::create_dir_all(&at).unwrap();
        for (text, expected) in [
            (r#"{"bin": "x.js"}"#, Some("b")),
            (r#"{"bin": {"c": "x.js"}}"#, Some("c")),
            (r#"{"bin": {"b": "x.js", "c": "y.js"}}"#, Some("b")),
            (r#"{"bin": {"d": "x.js", "c": "y.js"}}"#, None),
            ("{}", None),
        ] {
            std::fs::write(at.join("package.json"), text).unwrap();
            for spec in ["@a/b", "@a/b@1.2"] {
                let found = named_by_package(folder.path(), &package(&[spec], None)).ok();
                assert_eq!(found.as_deref(), expected, "{text}");
            }
        }
    }
}
