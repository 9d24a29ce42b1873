//! What somebody needs of a sandbox beside its policy, as demands that a tier holds or refuses.

use std::path::{Path, PathBuf};

use policy::value::{NetMode, Policy, Root, Tier};
use sandbox::PolicyLayer;
use serde_json::{Value, json};

/// Where programs are looked for, as inside without `env.set`.
const PATH: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// One word of `--needs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Pip,
    Net,
    Gpu,
    Fork,
    Shell,
    Node,
    Browser,
    Docker,
    Root,
    Snapshot,
}

impl Need {
    pub(crate) const ALL: [Self; 10] = [
        Self::Pip,
        Self::Net,
        Self::Gpu,
        Self::Fork,
        Self::Shell,
        Self::Node,
        Self::Browser,
        Self::Docker,
        Self::Root,
        Self::Snapshot,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Net => "net",
            Self::Gpu => "gpu",
            Self::Fork => "fork",
            Self::Shell => "shell",
            Self::Node => "node",
            Self::Browser => "browser",
            Self::Docker => "docker",
            Self::Root => "root",
            Self::Snapshot => "snapshot",
        }
    }

    /// Whether a live sandbox is wanted, of which a snapshot can be made: whoever starts one is asked, on each tier.
    pub(crate) const fn is_of_files(self) -> bool {
        match self {
            Self::Fork | Self::Snapshot => true,
            Self::Pip
            | Self::Net
            | Self::Gpu
            | Self::Shell
            | Self::Node
            | Self::Browser
            | Self::Docker
            | Self::Root => false,
        }
    }

    /// The clauses that go with it, over those of the policy: the tier says itself whether it holds them.
    pub(crate) fn clauses(self, policy: &Policy) -> Vec<PolicyLayer> {
        let set = |text: &str| PolicyLayer::Set(text.to_owned());
        let runs = || set("fs.noexec=false");
        match self {
            Self::Pip => {
                let index = PolicyLayer::Flag { name: "--allow-host".to_owned(), value: "pypi.org:443".to_owned() };
                vec![index, runs()]
            }
            // Which names is for the policy to say; whether any can be reached is asked with one.
            Self::Net if policy.net.mode != NetMode::Allow || policy.net.rules().next().is_none() => {
                vec![PolicyLayer::Flag { name: "--allow-host".to_owned(), value: "example.org".to_owned() }]
            }
            Self::Node | Self::Browser => vec![runs(), set("fs.sockets=\"own\"")],
            Self::Gpu => vec![set("process.devices=[\"nvidia:all\"]")],
            Self::Net | Self::Fork | Self::Shell | Self::Docker | Self::Root | Self::Snapshot => Vec::new(),
        }
    }

    /// Why a tier has it not, where no clause says so: as an entry of `refused`.
    pub(crate) fn missing(self, tier: Tier, policy: &Policy) -> Option<Value> {
        match self {
            Self::Docker => Some(self.refused(
                "a container engine needs mounts and namespaces inside, which every tier closes",
                "run its containers' programs as sandboxes of their own",
            )),
            Self::Root => Some(self.refused(
                "uid 0 inside is given by no tier",
                "install for the user (`pip install --user`, `npm --prefix`), or make a template with `fumehood template build`",
            )),
            Self::Shell => self.program(tier, policy, &["sh"]),
            Self::Node => self.program(tier, policy, &["node"]),
            Self::Browser => self.program(tier, policy, &["chromium", "chromium-browser", "google-chrome", "firefox"]),
            Self::Pip => self.program(tier, policy, &["python3"]),
            Self::Net | Self::Gpu | Self::Fork | Self::Snapshot => None,
        }
    }

    /// Whether one of these programs is there, and may be executed. What another root holds is not looked into.
    fn program(self, tier: Tier, policy: &Policy, names: &[&str]) -> Option<Value> {
        if tier == Tier::Language {
            return Some(
                self.refused("an interpreter starts no programs", "take the tier `process` or a stronger one"),
            );
        }
        let shown = || names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
        let in_path = || names.iter().flat_map(|name| PATH.iter().map(move |dir| Path::new(dir).join(name)));
        if let Some(only) = &policy.fs.exec
            && !in_path().any(|path| is_among(only, &path))
        {
            let why = format!("`fs.exec` lets other files be executed alone, and {} is none of them", shown());
            return Some(self.refused(&why, "add it to `fs.exec`, or drop that clause"));
        }
        if policy.fs.root != Root::Host || in_path().any(|path| path.is_file()) {
            return None;
        }
        let why = format!("{} is not installed in {}", shown(), PATH.join(", "));
        Some(self.refused(&why, "install it on this machine, or take another `fs.root`"))
    }

    fn refused(self, why: &str, fix: &str) -> Value {
        json!({
            "id": "choose/need",
            "clause": Value::Null,
            "what": format!("`--needs {}`", self.as_str()),
            "where": "--needs",
            "why": why,
            "fix": fix,
        })
    }
}

/// Whether a program is one of these files, whatever links lead to either.
fn is_among(files: &[PathBuf], program: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    files.iter().any(|file| file == program || real(file).is_some_and(|file| real(program) == Some(file)))
}
