//! What a template is made from: a file that somebody wrote, read strictly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::TemplateError;

/// Longest file of a recipe, bytes.
pub(super) const MAX_RECIPE: u64 = 256 * 1024;
/// Most packages of one kind.
const MAX_PACKAGES: usize = 500;
/// Longest command line, bytes.
const MAX_COMMAND: usize = 8192;

/// A recipe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Presets, or policy documents by absolute path, that a sandbox of it has below what its caller says.
    #[serde(default)]
    pub policy: Vec<String>,
    /// What is installed.
    #[serde(default)]
    pub packages: Packages,
    /// Absolute path inside -> file beside the recipe.
    #[serde(default)]
    pub files: BTreeMap<String, PathBuf>,
    /// Variables of every program inside.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// A command line for `sh` that each sandbox of it begins with, and that may go on as long as the sandbox does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// A command line for `sh`: the sandbox is there when it exits with 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
}

/// Packages by the client that installs them, each as that client names it: `numpy==2.4.6`, `typescript@5`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packages {
    /// From the registry of Python packages; wheels alone.
    #[serde(default)]
    pub pip: Vec<String>,
    /// From the npm registry; install scripts are not run.
    #[serde(default)]
    pub npm: Vec<String>,
    /// Packages of Debian: the root of its sandboxes is an image that holds them, and not the host's programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apt: Vec<String>,
}

impl Recipe {
    /// Reads a recipe.
    ///
    /// # Errors
    /// [`TemplateError::Recipe`]: what it says is wrong.
    pub fn parse(text: &str, place: &Path) -> Result<Self, TemplateError> {
        let wrong = |why: String| TemplateError::Recipe { place: place.to_owned(), why };
        let recipe: Self = toml::from_str(text).map_err(|error| wrong(error.to_string().replace('\n', " ")))?;
        recipe.check().map_err(wrong)?;
        Ok(recipe)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let lists = [("pip", &self.packages.pip), ("npm", &self.packages.npm)];
        for (kind, list) in lists {
            if list.len() > MAX_PACKAGES {
                return Err(format!("packages.{kind} has more than {MAX_PACKAGES} entries"));
            }
            if let Some(name) = list.iter().find(|name| !is_package(name)) {
                let why =
                    "a package is named by the registry's name for it, with a version: no option, path or address";
                return Err(format!("packages.{kind} has `{}`: {why}", name.escape_default()));
            }
        }
        let Packages { pip, npm, apt } = &self.packages;
        if apt.len() > MAX_PACKAGES {
            return Err(format!("packages.apt has more than {MAX_PACKAGES} entries"));
        }
        if let Some(name) = apt.iter().find(|name| !is_debian(name)) {
            let why = "a package of Debian is named by lower-case letters, digits, `+`, `-` and `.`, without a version";
            return Err(format!("packages.apt has `{}`: {why}", name.escape_default()));
        }
        let for_the_host = !pip.is_empty() || !npm.is_empty();
        if for_the_host && !apt.is_empty() {
            return Err(
                "packages.apt stands beside packages.pip or packages.npm: those are made for this host's Python and \
                        Node, and the image of Debian's packages has its own"
                    .to_owned(),
            );
        }
        if let Some(path) = self.files.keys().find(|path| !is_place(path)) {
            return Err(format!(
                "files has `{}`: an absolute path inside is needed, without `..` or `:`",
                path.escape_default()
            ));
        }
        let is_name = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
        if let Some(name) = self.env.keys().find(|name| !is_name(name)) {
            return Err(format!("env has `{}`, which can be no variable", name.escape_default()));
        }
        let is_command = |line: &&String| !line.trim().is_empty() && line.len() <= MAX_COMMAND && !line.contains('\0');
        if let Some(line) = [&self.start, &self.ready].into_iter().flatten().find(|line| !is_command(line)) {
            let begin: String = line.chars().take(20).collect();
            return Err(format!(
                "`{}` is no command line for `sh` of up to {MAX_COMMAND} bytes",
                begin.escape_default()
            ));
        }
        let is_policy = |layer: &&String| !layer.contains('/') || layer.starts_with('/');
        if let Some(layer) = self.policy.iter().find(|layer| !is_policy(layer)) {
            return Err(format!(
                "policy has `{}`: name a preset, or a document by its absolute path",
                layer.escape_default()
            ));
        }
        Ok(())
    }
}

/// No option of the client, no path and no address: a registry's name, with what may stand behind it.
fn is_package(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-=<>!~^*,[]@/ ".contains(c);
    let scoped = name.strip_prefix('@').map(|rest| rest.split_once('/'));
    let body = match scoped {
        Some(None) => return false,
        Some(Some((_, body))) => body,
        None => name,
    };
    let begins = |text: &str| text.starts_with(|c: char| c.is_ascii_alphanumeric());
    name.len() <= 200
        && name.chars().all(plain)
        && begins(name.strip_prefix('@').unwrap_or(name))
        && begins(body)
        // `pkg @ address`, `user/repository` and npm's `name@..` (a folder) would leave the registry.
        && !body.contains('/')
        && !body.contains(" @")
        && !body.split('@').skip(1).any(|version| version.trim_start().starts_with('.'))
        && !is_archive(body)
}

/// A name of Debian's.
fn is_debian(name: &str) -> bool {
    let small = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (2..=100).contains(&name.len())
        && name.bytes().all(|byte| small(byte) || b"+-.".contains(&byte))
        && name.bytes().next().is_some_and(small)
        // apt would take these for what is to be removed or installed.
        && !name.ends_with(['-', '+'])
}

/// Both clients take a name that ends so for a file, with extras behind it too.
fn is_archive(name: &str) -> bool {
    let ends = ["whl", "zip", "tar", "tgz", "tbz", "txz", "tlz", "tar.gz", "tar.bz2", "tar.xz", "tar.lz", "tar.lzma"];
    let name = name.split_once('[').map_or(name, |(name, _)| name).trim_end().to_ascii_lowercase();
    ends.iter().any(|end| name.strip_suffix(end).is_some_and(|rest| rest.ends_with('.')))
}

fn is_place(path: &str) -> bool {
    let parts_are_plain = path.split('/').skip(1).all(|part| !part.is_empty() && part != "." && part != "..");
    path.starts_with('/') && parts_are_plain && !path.contains([':', '\0', '\n'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Recipe, TemplateError> {
        Recipe::parse(text, Path::new("/x/template.toml"))
    }

    #[test]
    fn a_recipe_is_read_and_what_it_does_not_know_is_an_error() {
        let recipe = parse(
            "policy = [\"python\"]\nenv.A = \"1\"\nfiles.\"/opt/x.py\" = \"x.py\"\n[packages]\npip = [\"numpy==2.4.6\"]\nnpm = [\"@types/node@22\"]",
        )
        .unwrap();
        assert_eq!((recipe.policy[0].as_str(), recipe.packages.pip.len(), recipe.packages.npm.len()), ("python", 1, 1));
        for wrong in
            ["what = 1", "[packages]\ngem = []", "policy = 1", "x", "policy = [\"./p.toml\"]", "env.\"A=\" = \"1\""]
        {
            assert!(matches!(parse(wrong), Err(TemplateError::Recipe { .. })), "{wrong}");
        }
        let commands = parse("start = \"serve\"\nready = \"test -e x\"").unwrap();
        assert_eq!((commands.start.as_deref(), commands.ready.as_deref()), (Some("serve"), Some("test -e x")));
        for wrong in ["start = \"\"", "ready = \" \"", "start = \"a\\u0000b\""] {
            assert!(matches!(parse(wrong), Err(TemplateError::Recipe { .. })), "{wrong}");
        }
        assert_eq!(parse("packages.apt = [\"jq\", \"libstdc++6\"]").unwrap().packages.apt.len(), 2);
        for wrong in
            ["packages.apt = [\"jq\"]\npackages.pip = [\"six\"]", "packages.apt = [\"jq\"]\npackages.npm = [\"x\"]"]
        {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains("has its own"), "{error}");
        }
        for bad in ["-o=x", "jq=1", "jq/sid", "jq-", "g++", "../x", "JQ", "a b", "*", "x", ""] {
            let refused = parse(&format!("packages.apt = [\"{bad}\"]"));
            assert!(matches!(refused, Err(TemplateError::Recipe { .. })), "{bad}");
        }
    }

    #[test]
    fn the_recipe_of_the_reference_page_is_one() {
        let page = include_str!("../../../../docs/reference/kernels.md");
        let (_, rest) = page.split_once("```text\n").unwrap();
        let recipe = parse(rest.split_once("```").unwrap().0).unwrap();
        assert_eq!((recipe.packages.pip.len(), recipe.files.len(), recipe.env.len()), (2, 1, 1));
    }

    #[test]
    fn packages_are_names_and_nothing_that_leads_elsewhere() {
        for good in [
            "numpy",
            "numpy==2.4.6",
            "e2b-charts>=1,<2",
            "uvicorn[standard]~=0.3",
            "typescript@5",
            "@types/node@22.1",
            "semver@~7.1",
            "zipp",
            "tar@7",
        ] {
            assert!(is_package(good), "{good}");
        }
        for bad in [
            "",
            "-r x",
            "--index-url=x",
            "./x",
            "/x",
            "../x",
            "git+https://x/y",
            "https://x/y.whl",
            "x @ file:///y",
            "user/repo",
            "@a/b/c",
            "@a",
            "@/b",
            "x;y",
            "x\ny",
            "a $(b)",
            "name@..",
            "name@.",
            "@types/node@..",
            "name@ .x",
            "name@x.tgz",
            "x.TAR.GZ",
            "x.whl",
            "x.zip[extra]",
        ] {
            assert!(!is_package(bad), "{bad}");
        }
        for bad in ["x", "/a/../b", "/a//b", "/a:b", "/"] {
            assert!(!is_place(bad), "{bad}");
        }
        assert!(is_place("/opt/a b.txt"));
    }
}
