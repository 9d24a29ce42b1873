//! One stage of a build, step by step.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use sandbox::state::Dir;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::files::Source;
use super::tree::{Problem, copy_all, folder_at};
use super::{Done, Run, Works, again, kept, refused};
use crate::config::Defaults;
use crate::decode::hex;
use crate::dockerfile::{Command, Copy, Instruction, Scope, Step, expand};
use crate::error::ImageError;
use crate::runs::people;
use crate::store::{Lease, Stage};

/// What a stage begins with.
pub(super) enum Base<'a> {
    Nothing,
    Image(Box<Lease>),
    Stage(&'a Done),
}

/// Where the tree of the steps so far is.
enum TreeSource {
    /// As the base has it.
    Base,
    /// Under this key, from an earlier build.
    Kept(Dir),
    /// In the stage's own folder.
    Here,
}

pub(super) struct Building<'w, 'a> {
    works: &'w mut Works<'a>,
    base: Base<'w>,
    tree: &'w Stage,
    at: TreeSource,
    /// Folders that are made when something is next done in the tree.
    folders: Vec<PathBuf>,
    config: Defaults,
    key: String,
    globals: &'w Scope,
    args: Scope,
    told: bool,
}

/// An absolute path as it is written, without `.` and `..`.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

/// The folder in which everything happens that says no other.
const NO_WORKDIR: &str = "/";

impl<'w, 'a> Building<'w, 'a> {
    pub(super) fn new(works: &'w mut Works<'a>, base: Base<'w>, tree: &'w Stage, globals: &'w Scope) -> Self {
        let (config, key) = match &base {
            Base::Nothing => (Defaults::default(), hex(&Sha256::digest(b"scratch"))),
            Base::Image(lease) => (lease.about().config.clone(), hex(&Sha256::digest(lease.about().digest.as_bytes()))),
            Base::Stage(done) => (done.config.clone(), done.key.clone()),
        };
        let (at, folders, args) = (TreeSource::Base, Vec::new(), Scope::new());
        Self { works, base, tree, at, folders, config, key, globals, args, told: false }
    }

    /// Does a step. `from` finds a stage before this one.
    pub(super) fn step<'d>(&mut self, step: &Step, from: &dyn Fn(&str) -> Option<&'d Done>) -> Result<(), ImageError> {
        let scope = self.scope();
        let words = |text: &str| expand(text, &scope).map_err(|why| refused(Some(step), why));
        match &step.does {
            Instruction::Run(command) => return self.run(step, command),
            Instruction::Copy(copy) => {
                let sources = copy.sources.iter().map(|source| words(source)).collect::<Result<_, _>>()?;
                let copy = Copy { sources, to: words(&copy.to)?, ..copy.clone() };
                return self.copy(step, &copy, from);
            }
            Instruction::Env(pairs) => {
                let env = self.config.env.get_or_insert_default();
                for (name, value) in pairs {
                    let (name, value) = (words(name)?, words(value)?);
                    env.retain(|line| line.split('=').next() != Some(name.as_str()));
                    env.push(format!("{name}={value}"));
                }
            }
            Instruction::Arg { name, default } => {
                let value = self.works.argument(step, name, default.as_deref(), &scope)?;
                let value = value.or_else(|| self.globals.get(name).cloned());
                self.args.extend(value.map(|value| (name.clone(), value)));
            }
            Instruction::User(user) => self.config.user = Some(words(user)?),
            Instruction::Workdir(path) => {
                let path = without_dots(&Path::new(self.workdir()).join(words(path)?));
                self.key = self.next(&["WORKDIR", &path.to_string_lossy()]);
                self.config.working_dir = Some(path.to_string_lossy().into_owned());
                self.folders.push(path);
            }
            Instruction::Cmd(command) => self.config.cmd = Some(command.argv()),
            Instruction::Entrypoint(command) => {
                self.config.entrypoint = Some(command.argv());
                // One of the base was for its own entry point.
                self.config.cmd = None;
            }
            Instruction::Label(pairs) => {
                let labels = self.config.labels.get_or_insert_default();
                for (name, value) in pairs {
                    labels.insert(words(name)?, words(value)?);
                }
            }
            Instruction::Expose(ports) => {
                let exposed = self.config.exposed_ports.get_or_insert_default();
                for port in ports {
                    let port = words(port)?;
                    let port = if port.contains('/') { port } else { format!("{port}/tcp") };
                    exposed.insert(port, json!({}));
                }
            }
            Instruction::From { .. } => return Err(refused(Some(step), "a stage ends before the next FROM")),
        }
        self.works.steps.begins(step.line, &step.text, false);
        Ok(())
    }

    /// The configuration and the key of what is now in the stage's folder.
    pub(super) fn finish(mut self) -> Result<(Defaults, String), ImageError> {
        self.here()?;
        Ok((self.config, self.key))
    }

    /// Variables of the image are stronger than arguments of the build.
    fn scope(&self) -> Scope {
        let mut scope = self.args.clone();
        scope.extend(self.env());
        scope
    }

    fn env(&self) -> BTreeMap<String, String> {
        let lines = self.config.env.iter().flatten();
        lines.filter_map(|line| line.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn workdir(&self) -> &str {
        self.config.working_dir.as_deref().unwrap_or(NO_WORKDIR)
    }

    fn next(&self, words: &[&str]) -> String {
        let mut hash = Sha256::new();
        hash.update(json!([self.key, words]).to_string());
        hex(&hash.finalize())
    }

    /// Takes the tree that is kept under the key, if there is one and it may be taken.
    fn takes_kept(&mut self, step: &Step) -> bool {
        let kept = if self.works.build.anew { None } else { kept::tree(self.works.store, &self.key) };
        self.works.steps.begins(step.line, &step.text, kept.is_some());
        let Some(tree) = kept else { return false };
        self.folders.clear();
        self.at = TreeSource::Kept(tree);
        true
    }

    fn keeps(&self, step: &Step) -> Result<(), ImageError> {
        let copy = self.works.store.new_stage()?;
        kept::keep(self.works.store, &self.key, self.tree, &copy).map_err(|problem| self.failed(Some(step), problem))
    }

    /// Puts the tree into the stage's own folder.
    fn here(&mut self) -> Result<(), ImageError> {
        let root = &self.tree.root;
        let failed = |problem| self.failed(None, problem);
        let kernel = |errno| Problem::Kernel(self.tree.path.clone(), errno);
        let from = match &self.at {
            TreeSource::Here => None,
            TreeSource::Kept(tree) => Some(again(tree)),
            TreeSource::Base => match &self.base {
                Base::Nothing => None,
                Base::Image(lease) => Some(Dir::open(lease.path())),
                Base::Stage(done) => Some(again(&done.tree.root)),
            },
        };
        if let Some(from) = from {
            let from = from.map_err(|errno| failed(kernel(errno)))?;
            // What a step did that is not behind the kept one.
            for name in root.names().map_err(|errno| failed(kernel(errno)))? {
                root.remove_tree(&name).map_err(|errno| failed(kernel(errno)))?;
            }
            copy_all(&from, root).map_err(failed)?;
        }
        self.at = TreeSource::Here;
        for path in std::mem::take(&mut self.folders) {
            folder_at(&self.tree.root, &path).map_err(|problem| self.failed(None, problem))?;
        }
        Ok(())
    }

    fn run(&mut self, step: &Step, command: &Command) -> Result<(), ImageError> {
        let mut env = self.args.clone();
        env.extend(self.env());
        let (argv, user) = (command.argv(), self.config.user.clone().unwrap_or_default());
        let said = json!([argv, env, user, self.workdir(), self.works.steps.policy()]).to_string();
        self.key = self.next(&["RUN", &said]);
        if self.takes_kept(step) {
            return Ok(());
        }
        self.here()?;
        // Where a step can write: the root itself is the sandbox's.
        let standard = crate::made::folders(&self.tree.root);
        standard.map_err(|errno| self.failed(None, Problem::Kernel(self.tree.path.clone(), errno)))?;
        let user = self.person(step, &user)?;
        let workdir = self.workdir().to_owned();
        let run = Run { root: &self.tree.path.join("root"), argv, env, user, workdir: &workdir };
        let done = self.works.steps.run(&run);
        done.map_err(|why| ImageError::Step { line: step.line, what: step.text.clone(), why })?;
        self.keeps(step)
    }

    /// Name and number of a user; `None` is root.
    fn person(&self, step: &Step, user: &str) -> Result<Option<(String, u32)>, ImageError> {
        let user = user.split(':').next().unwrap_or_default();
        if ["", "0", "root"].contains(&user) {
            return Ok(None);
        }
        let people = people(&self.tree.path.join("root"));
        let known = match user.parse::<u32>() {
            Ok(number) => {
                let name = people.iter().find(|(_, known)| *known == number).map(|(name, _)| name.clone());
                Some((name.unwrap_or_else(|| "user".to_owned()), number))
            }
            Err(_no_number) => people.iter().find(|(name, _)| name == user).cloned(),
        };
        let unknown = || refused(Some(step), format!("the tree's `passwd` has no user `{user}`"));
        // The last number of all is nobody's: the kernel takes it for none.
        let known = known.filter(|(_, number)| *number < u32::MAX);
        known.map(|known| Some(known).filter(|(_, number)| *number != 0)).ok_or_else(unknown)
    }

    fn copy<'d>(
        &mut self,
        step: &Step,
        copy: &Copy,
        from: &dyn Fn(&str) -> Option<&'d Done>,
    ) -> Result<(), ImageError> {
        if copy.chown.is_some() && !self.told {
            self.told = true;
            self.works.steps.tells("owners are not kept (--chown): every file belongs to who builds");
        }
        let lease;
        let dir;
        let source = match copy.from.as_deref() {
            None => Source::Folder(self.works.context),
            Some(name) => match from(name) {
                Some(done) => Source::Tree(&done.tree.root),
                None => {
                    lease = self.works.store.lease(name)?;
                    let failed = |errno| self.failed(None, Problem::Kernel(lease.path().to_owned(), errno));
                    dir = Dir::open(lease.path()).map_err(failed)?;
                    Source::Tree(&dir)
                }
            },
        };
        let taken = source.taken(copy).map_err(|problem| self.failed(Some(step), problem))?;
        let mut hash = Sha256::new();
        source.digest(&taken, &mut hash).map_err(|problem| self.failed(Some(step), problem))?;
        let mode = copy.chmod.map(|mode| format!("{mode:o}")).unwrap_or_default();
        let workdir = self.workdir().to_owned();
        self.key = self.next(&["COPY", &workdir, &copy.to, &mode, &hex(&hash.finalize())]);
        if self.takes_kept(step) {
            return Ok(());
        }
        self.here()?;
        let done = source.copy(&taken, copy, &workdir, &self.tree.root);
        done.map_err(|problem| self.failed(Some(step), problem))?;
        self.keeps(step)
    }

    /// What went wrong with files: in words it is the Dockerfile's, else the kernel's.
    fn failed(&self, step: Option<&Step>, problem: Problem) -> ImageError {
        match problem {
            Problem::Words(why) => refused(step, why),
            Problem::Kernel(path, errno) => match step {
                Some(step) => {
                    refused(Some(step), format!("`{}`: {}", path.display(), errno.to_string().to_lowercase()))
                }
                None => ImageError::Io { path: self.tree.path.join(path), errno },
            },
        }
    }
}
