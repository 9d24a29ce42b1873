//! From layers of documents and flags to one validated policy, with the origin of every clause.

use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};

use crate::clause::ClauseId;
use crate::document::DEFAULT_ORIGIN;
use crate::lint::Lint;
use crate::value::{Grant, ImageNotFound, Policy, Root, StoredImage, Tier, Workspace, WorkspaceMode};

/// What the caller knows and this crate may not ask for.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The current directory, absolute: flags and presets are relative to it.
    pub dir: PathBuf,
    /// The caller's home, if there is one.
    pub home: Option<PathBuf>,
    /// Names of the seccomp profiles that exist.
    pub profiles: Vec<String>,
}

/// Reads documents on behalf of this crate.
pub trait Loader {
    /// The text of a file, or why it cannot be had, in words (`no such file`).
    ///
    /// # Errors
    /// Why the file cannot be read, in lower-case words.
    fn load(&self, path: &Path) -> Result<String, String>;
}

impl<F: Fn(&Path) -> Result<String, String>> Loader for F {
    fn load(&self, path: &Path) -> Result<String, String> {
        self(path)
    }
}

/// Where the effective value of each clause came from, in words: `preset strict`, `policy.toml:14:10`, `--memory`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins {
    pub(crate) list: Vec<String>,
}

impl Origins {
    /// The origin of one clause.
    #[must_use]
    pub fn of(&self, id: ClauseId) -> &str {
        self.list.get(id as usize).map_or(DEFAULT_ORIGIN, String::as_str)
    }

    /// Whether a layer says something of a clause whose path begins so; what a preset `strict` says is what holds without a word.
    #[must_use]
    pub fn say(&self, beginning: &str) -> bool {
        ClauseId::ALL.iter().any(|id| id.path().starts_with(beginning) && self.of(*id) != DEFAULT_ORIGIN)
    }

    pub(crate) fn add(&mut self, id: ClauseId, origin: &str) {
        if let Some(known) = self.list.get_mut(id as usize) {
            if known == DEFAULT_ORIGIN {
                known.clear();
            } else {
                known.push_str(", ");
            }
            known.push_str(origin);
        }
    }
}

/// A policy that passed every check that needs no host.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The policy.
    pub policy: Policy,
    /// Where its values came from.
    pub origins: Origins,
    /// Legal, but probably not meant.
    pub lints: Vec<Lint>,
    /// What was read, for those who compile values later and must point at them.
    pub documents: crate::span::Documents,
    /// Whether `workspace.at` was written; otherwise it follows the tier.
    pub(crate) at_given: bool,
}

impl Loaded {
    /// Makes these the only executables, as the clause `commands` demands; of a list that the policy has already, what is in both.
    pub fn allow_only(&mut self, executables: Vec<PathBuf>) {
        let both = match self.policy.fs.exec.take() {
            Some(own) => own.into_iter().filter(|path| executables.contains(path)).collect(),
            None => executables,
        };
        self.policy.fs.exec = Some(both);
        let origin = format!("commands ({})", self.origins.of(ClauseId::Commands));
        self.origins.add(ClauseId::FsExec, &origin);
    }

    /// `git.identity = "host"`: the name and mail of the caller's git become those of commits made inside. What the policy
    /// sets or passes itself stays.
    pub fn set_git_identity(&mut self, name: Option<&str>, mail: Option<&str>) {
        const ROLES: [&str; 2] = ["AUTHOR", "COMMITTER"];
        let env = &mut self.policy.env;
        let values = [("NAME", name), ("EMAIL", mail)];
        for (what, value) in values.into_iter().filter_map(|(what, value)| Some((what, value?))) {
            for variable in ROLES.map(|role| format!("GIT_{role}_{what}")) {
                if !env.pass.contains(&variable) {
                    env.set.entry(variable).or_insert_with(|| value.to_owned());
                }
            }
        }
        const HOST: &str = "git.identity = host";
        if name.is_some() || mail.is_some() {
            self.origins.add(ClauseId::EnvSet, HOST);
        }
        if name.is_none() || mail.is_none() {
            self.lints.push(Lint {
                id: "git/no-identity",
                clause: ClauseId::EnvSet,
                what: "git on this host has no `user.name` or no `user.email`".to_owned(),
                at: HOST.to_owned(),
                why: "a commit inside would fail for want of an identity".to_owned(),
                fix: "`git config --global user.name NAME`, and `user.email`; or set GIT_AUTHOR_NAME and so on by `--env`"
                    .to_owned(),
            });
        }
    }

    /// What the image that is the root means here, and what it says of how it is run: that counts where no layer says
    /// anything. A user 0 of an image is nobody's wish.
    pub fn set_image(&mut self, means: Result<Packed, ImageNotFound>) {
        let at = self.origins.of(ClauseId::FsRoot).to_owned();
        let unsaid = self.origins.of(ClauseId::ProcessUser).starts_with("preset ");
        let policy = &mut self.policy;
        let Root::Image(image) = &mut policy.fs.root else { return };
        let packed = match means {
            Ok(packed) => packed,
            Err(lacking) => {
                image.found = Err(lacking);
                return;
            }
        };
        let Packed { mut found, env, user, people } = packed;
        let origin = format!("image:{} ({at})", image.name);
        let wish = user.filter(|_| unsaid).map_or(Ok(None), |user| person(&user, &people));
        let at = found.workdir.as_deref().filter(|_| policy.workspace.path.is_none());
        let wish = match wish.and_then(|wish| at.map_or(Ok(()), is_place).map(|()| wish)) {
            Ok(wish) => wish,
            Err(lacking) => {
                image.found = Err(lacking);
                return;
            }
        };
        if let Some((name, number)) = wish {
            (policy.process.user, found.user) = (name, Some(number));
            self.origins.add(ClauseId::ProcessUser, &origin);
        } else {
            found.user = people
                .iter()
                .find(|(name, number)| *name == policy.process.user && is_person(*number))
                .map(|one| one.1);
        }
        // With a workspace nothing begins there, and what is no place is not made.
        if found.workdir.as_deref().is_some_and(|at| is_place(at).is_err()) {
            found.workdir = None;
        }
        image.found = Ok(found);
        let said = |name: &str| {
            let secrets = policy.secrets.values().filter_map(|secret| secret.env.as_deref());
            policy.env.pass.iter().map(String::as_str).chain(secrets).any(|known| known == name)
                || (name.starts_with("INPUT_") && !policy.inputs.is_empty())
        };
        let before = policy.env.set.len();
        for (name, value) in env.into_iter().filter(|(name, _)| !said(name)) {
            policy.env.set.entry(name).or_insert(value);
        }
        if policy.env.set.len() > before {
            self.origins.add(ClauseId::EnvSet, &origin);
        }
    }

    /// The policy as it stands on a tier: where `workspace.at` was not said, the process tiers keep the path. Where a tree of
    /// its own is shown, grants of what the workspace shows there already are left out: one mount would cover the other.
    #[must_use]
    pub fn policy_on(&self, tier: Tier) -> Cow<'_, Policy> {
        let at = default_at(tier);
        let mut policy = Cow::Borrowed(&self.policy);
        if !self.at_given && policy.workspace.at != at {
            policy.to_mut().workspace.at.clone_from(&at);
        }
        // Process tiers add up what may be done to a path, and have their copy elsewhere.
        let Workspace { path, mode, .. } = &self.policy.workspace;
        let has_own_tree = at.is_some() && path.is_some();
        let fs = &self.policy.fs;
        let repeats = |grant: &Grant| is_the_workspace(&policy.workspace, grant);
        let writes = *mode == WorkspaceMode::Rw;
        if has_own_tree && (fs.read.iter().any(repeats) || (writes && fs.write.iter().any(repeats))) {
            let Policy { fs, workspace, .. } = policy.to_mut();
            fs.read.retain(|grant| !is_the_workspace(workspace, grant));
            fs.write.retain(|grant| !writes || !is_the_workspace(workspace, grant));
        }
        policy
    }
}

/// Whether a grant is of the workspace itself, at the place where that is shown.
pub(crate) fn is_the_workspace(workspace: &Workspace, grant: &Grant) -> bool {
    workspace.path.as_ref() == Some(&grant.from) && workspace.place() == Some(&grant.to)
}

/// An image as it lies in a store, and what it says of how it is run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// What its name means.
    pub found: StoredImage,
    /// Variables.
    pub env: Vec<(String, String)>,
    /// `NAME` or `NUMBER`, with `:GROUP` or without.
    pub user: Option<String>,
    /// Names and numbers of its `passwd`.
    pub people: Vec<(String, u32)>,
}

/// Name and number of whom an image wants to be run as; none for user 0.
fn person(user: &str, people: &[(String, u32)]) -> Result<Option<(String, u32)>, ImageNotFound> {
    let user = user.split(':').next().unwrap_or_default();
    if matches!(user, "" | "root") {
        return Ok(None);
    }
    let is_number = user.bytes().all(|byte| byte.is_ascii_digit());
    let known = match user.parse::<u32>().ok().filter(|_| is_number) {
        Some(number) => {
            let name = people.iter().find(|(_, known)| *known == number).map(|(name, _)| name.as_str());
            Some((name.unwrap_or("user").to_owned(), number))
        }
        None => people.iter().find(|(name, _)| name == user).cloned(),
    };
    // Who it is, the number says; a name that none can have here stays outside.
    match known.map(|(name, number)| (if is_user_name(&name) { name } else { "user".to_owned() }, number)) {
        Some((_, 0)) => Ok(None),
        Some(known) if is_person(known.1) => Ok(Some(known)),
        Some(_) | None => Err(ImageNotFound {
            id: "fs.root/image-user",
            why: format!(
                "the image is to be run as `{}`, and its `etc/passwd` has nobody of that name",
                user.escape_debug()
            ),
            fix: "say who: `--set process.user=NAME`".to_owned(),
        }),
    }
}

/// Whether a program can begin there.
fn is_place(at: &Path) -> Result<(), ImageNotFound> {
    if at.is_absolute() && at.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_))) {
        return Ok(());
    }
    Err(ImageNotFound {
        id: "fs.root/image-workdir",
        why: format!(
            "the image's WORKDIR `{}` is no absolute path without `..`",
            at.display().to_string().escape_debug()
        ),
        fix: "use a workspace, which is where a program begins then: `-w PATH`".to_owned(),
    })
}

/// Whether a number can be a user's; the kernel takes the last one for none.
const fn is_person(number: u32) -> bool {
    number != 0 && number < u32::MAX
}

/// Whether a user inside may have this name.
pub(crate) fn is_user_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_lowercase() || c == '_';
    name.len() <= 32
        && name.starts_with(first)
        && name.chars().all(|c| first(c) || c.is_ascii_digit() || c == '-')
        && name != "root"
}

/// Tiers without a mount namespace cannot move the workspace.
pub(crate) fn default_at(tier: Tier) -> Option<PathBuf> {
    match tier {
        Tier::Language | Tier::Process => None,
        Tier::Container | Tier::Gvisor | Tier::Vm => Some(PathBuf::from("/workspace")),
    }
}
