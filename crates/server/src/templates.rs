//! What a sandbox is made from: E2B's stock names, templates that were built here, and our presets, as layers of a policy.

use std::path::PathBuf;

use axum::http::StatusCode;
use live::template::{Store, TemplateError};
use sandbox::PolicyLayer;

use crate::answer::Problem;

/// The template of E2B's clients when none is named.
pub(crate) const BASE: &str = "base";
/// The one of E2B's code interpreter.
pub(crate) const INTERPRETER: &str = "code-interpreter-v1";
/// The preset that it is made of.
const OF_INTERPRETER: &str = "data-analysis";

/// What `base` says over the preset `python`: a home and a `/workspace` that can be written and executed in, an own loopback
/// network, and room for tools.
const BASE_CLAUSES: &[&str] = &[
    "limits.memory=2G",
    "limits.pids=512",
    "limits.open_files=8192",
    "limits.file_size=1G",
    "limits.disk=2G",
    "limits.files=200000",
    "limits.output=64M",
    "fs.tmp=512M",
    "fs.shm=64M",
    "fs.run=16M",
    "syscalls.profile=default",
];

/// What a sandbox is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TemplateLayers {
    /// The weakest layer first.
    pub(crate) layers: Vec<PolicyLayer>,
    /// What of the state folder the layers show inside.
    pub(crate) shown: Vec<PathBuf>,
    /// The image that is its root, `NAME@sha256:HEX`.
    pub(crate) root: Option<String>,
}

/// The templates of a server.
#[derive(Clone, Debug)]
pub(crate) struct Templates {
    store: Store,
    /// An empty folder, which `/workspace` is a copy of.
    empty: PathBuf,
}

impl Templates {
    pub(crate) fn new(store: Store, empty: PathBuf) -> Self {
        Self { store, empty }
    }

    /// The template of this name.
    ///
    /// # Errors
    /// There is none; or it was built and cannot be read.
    pub(crate) fn find(&self, template: &str) -> Result<TemplateLayers, Problem> {
        let name = template.split_once(':').map_or(template, |(name, _tag)| name);
        let name = if name == "code-interpreter" { INTERPRETER } else { name };
        let mut made = match self.store.find(name) {
            // What is called as it is stock, and this is no place for another.
            _ if name == BASE => TemplateLayers { layers: base(), ..TemplateLayers::default() },
            Ok(built) => {
                let mut layers = Vec::new();
                // A recipe says what it needs beyond `base`. The stock interpreter is for E2B's clients, and as large as `base`.
                if name == INTERPRETER {
                    layers.extend(built.layers().into_iter().chain(clauses()))
                } else {
                    layers.extend(base().into_iter().chain(built.layers()))
                }
                TemplateLayers { layers, shown: built.shown(), root: built.image }
            }
            Err(TemplateError::Unknown(_) | TemplateError::Name(_)) if policy::presets::preset(name).is_some() => {
                TemplateLayers { layers: vec![PolicyLayer::Document(name.to_owned())], ..TemplateLayers::default() }
            }
            Err(TemplateError::Unknown(_)) if name == INTERPRETER => return Err(not_built(template)),
            Err(TemplateError::Unknown(_) | TemplateError::Name(_)) => return Err(self.unknown(template)),
            Err(error) => return Err(unreadable(&error)),
        };
        made.layers.extend(self.workspace());
        Ok(made)
    }

    /// The template that a sandbox of nothing but this policy has: the preset of the code interpreter says what its template is for.
    /// None where that was not built. As without a server, by the SDK: what the template has, and the limits of the policy.
    ///
    /// # Errors
    /// It was built and cannot be read.
    pub(crate) fn of_policy(&self, policy: Option<&str>) -> Result<Option<(&'static str, TemplateLayers)>, Problem> {
        if policy != Some(OF_INTERPRETER) {
            return Ok(None);
        }
        match self.store.find(INTERPRETER) {
            Ok(built) => {
                let (layers, shown) = (built.layers(), built.shown());
                Ok(Some((INTERPRETER, TemplateLayers { layers, shown, root: built.image })))
            }
            Err(TemplateError::Unknown(_)) => Ok(None),
            Err(error) => Err(unreadable(&error)),
        }
    }

    /// When one that was built here was made: milliseconds since 1970.
    pub(crate) fn built_ms(&self, template: &str) -> Option<i64> {
        // Its own name is what `base` is found by, whatever was built.
        self.store.find(template).ok().filter(|_| template != BASE).map(|built| built.built_ms)
    }

    /// A `/workspace` of its own.
    pub(crate) fn workspace(&self) -> Vec<PolicyLayer> {
        // The folder is one of ours, and shown inside as it is: empty.
        let Some(empty) = self.empty.to_str() else { return Vec::new() };
        vec![
            PolicyLayer::Flag { name: "--dangerous-read".to_owned(), value: format!("{empty}:/mnt") },
            PolicyLayer::Flag { name: "--workspace".to_owned(), value: format!("{empty}:copy") },
            PolicyLayer::Set("workspace.at=/workspace".to_owned()),
        ]
    }

    /// The languages whose kernels one that was built has; what the host adds to them is not counted.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(crate) fn languages(&self, template: &str) -> Result<Vec<String>, Problem> {
        match self.store.find(template) {
            Ok(built) => Ok(built.languages()),
            Err(TemplateError::Unknown(_)) => Err(not_built(template)),
            Err(error) => Err(unreadable(&error)),
        }
    }

    /// The names of all that can be had.
    pub(crate) fn names(&self) -> Vec<String> {
        // One that cannot be read is told to whoever names it.
        let built = self.store.list().unwrap_or_default().into_iter().map(|template| template.name);
        let presets = policy::presets::PRESETS.iter().map(|preset| preset.name.to_owned());
        let mut names: Vec<String> = std::iter::once(BASE.to_owned()).collect();
        for name in built.chain(presets) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    fn unknown(&self, template: &str) -> Problem {
        let what = format!("there is no template {}", policy::diagnostic::quote(template));
        let why = "a template is one of our own, one that `fumehood template build` made, or a preset";
        let instead = format!("one of {}", self.names().join(", "));
        Problem::new(StatusCode::BAD_REQUEST, "serve/no-such-template", what, why, &instead).about("templateID")
    }
}

/// Whether a name is that of a template that ships with the product, whether it was built or not.
pub(crate) fn is_stock(name: &str) -> bool {
    matches!(name, BASE | INTERPRETER | "code-interpreter")
}

fn clauses() -> impl Iterator<Item = PolicyLayer> {
    BASE_CLAUSES.iter().map(|clause| PolicyLayer::Set((*clause).to_owned()))
}

fn base() -> Vec<PolicyLayer> {
    std::iter::once(PolicyLayer::Document("python".to_owned())).chain(clauses()).collect()
}

fn not_built(template: &str) -> Problem {
    let what = format!("the template {} is not there", policy::diagnostic::quote(template));
    let why = "its kernels and packages were not fetched on this server yet";
    let instead = "run `fumehood template build code-interpreter-v1` there, or use `base` and run code with commands";
    Problem::cannot(StatusCode::BAD_REQUEST, "templateID", &what, why, instead)
}

fn unreadable(error: &TemplateError) -> Problem {
    let fault = error.fault();
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    Problem::new(status, fault.id, fault.what, &fault.why, &fault.fix).about("templateID")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn templates(state: &Path) -> Templates {
        Templates::new(Store::new(state), PathBuf::from("/srv/empty"))
    }

    #[test]
    fn a_template_is_ours_or_a_preset_and_nothing_else_is_one() {
        let state = tempfile::tempdir().unwrap();
        let templates = templates(state.path());
        for name in templates.names() {
            assert!(templates.find(&name).is_ok(), "{name}");
        }
        assert!(templates.find("base:default").is_ok());
        for bad in ["", "/etc/passwd", "./a.toml", "code-interpreter-v1", "Base"] {
            let problem = templates.find(bad).unwrap_err();
            assert_eq!((problem.status, &*problem.clause), (StatusCode::BAD_REQUEST, "templateID"), "{bad}");
        }
        let missing = templates.find("code-interpreter").unwrap_err();
        assert!(missing.instead.contains("fumehood template build code-interpreter-v1"), "{missing:?}");
    }

    #[test]
    fn one_that_was_built_is_shown_inside_and_has_its_own_limits_over_those_of_base() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("recipe.toml");
        std::fs::write(&file, "policy = [\"strict\"]\n[env]\nTEAM = \"research\"\n").unwrap();
        let tools = live::template::Tools::new(&sandbox::Environment::default());
        let source = live::template::Source::file(&file).unwrap();
        Store::new(state.path()).build("team", &source, &tools).unwrap();
        let templates = templates(state.path());
        assert!(templates.names().contains(&"team".to_owned()));
        let made = templates.find("team:latest").unwrap();
        assert!(made.shown.iter().all(|path| path.starts_with(state.path())) && made.shown.len() == 1, "{made:?}");
        let at = |wanted: &PolicyLayer| made.layers.iter().position(|layer| layer == wanted);
        let (below, own) =
            (at(&PolicyLayer::Document("python".to_owned())), at(&PolicyLayer::Document("strict".to_owned())));
        assert!(below.is_some() && below < own, "{made:?}");
        assert!(at(&PolicyLayer::Flag { name: "--env".to_owned(), value: "TEAM=research".to_owned() }).is_some());
    }
}
