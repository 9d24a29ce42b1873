//! Images built of a Dockerfile. Each step that changes the tree has a key: a digest over the step before it, what it says and
//! what it copies. A tree that is kept under that key is taken instead of doing the step again.
//!
//! # Promises
//! Nothing outside the store is written. What a step copies is found beneath the folder, or beneath another stage, through no
//! link; where it is put is found as the image's programs would find it, and never outside the tree. No code of the image is
//! run by this crate: [`Steps::run`] does, in a sandbox.

mod files;
mod kept;
mod stage;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use sandbox::state::{Cross, Dir};

use crate::config::{Defaults, ON_BUILD, SHELL};
use crate::dockerfile::{Instruction, MAX_DOCKERFILE, Scope, Step, expand, parse};
use crate::error::ImageError;
use crate::store::{Listed, Stage, Store};
use crate::unpack::UnpackNotes;

use files::Context;
use stage::{Base, Building};

/// What is to be built.
#[derive(Clone, Debug, Default)]
pub struct Build {
    /// The folder that `COPY` takes from.
    pub folder: PathBuf,
    /// The Dockerfile; otherwise `Dockerfile` of the folder.
    pub file: Option<PathBuf>,
    /// What the image is to be called.
    pub name: String,
    /// Values of `ARG`.
    pub args: BTreeMap<String, String>,
    /// The stage that is wanted; otherwise the last one.
    pub target: Option<String>,
    /// No step is taken from an earlier build.
    pub anew: bool,
}

/// What `RUN` asks for.
#[derive(Debug)]
pub struct Run<'a> {
    /// The tree, which is to be `/`.
    pub root: &'a Path,
    /// What runs.
    pub argv: Vec<String>,
    /// With which variables.
    pub env: BTreeMap<String, String>,
    /// As whom: a name and its number in the tree's `passwd`; `None` is root.
    pub user: Option<(String, u32)>,
    /// Where.
    pub workdir: &'a str,
}

/// Who shows what is done, and runs what an image wants to be run.
pub trait Steps {
    /// A step begins: its line, its text, and whether its tree was there from an earlier build.
    fn begins(&mut self, line: usize, text: &str, kept: bool);

    /// Something that is not as it is written; in words.
    fn tells(&mut self, words: &str);

    /// Runs something in the tree.
    ///
    /// # Errors
    /// It did not end well; in words.
    fn run(&mut self, run: &Run<'_>) -> Result<(), String>;

    /// What [`Steps::run`] would do beside what it is asked: under another policy the same step is another one.
    fn policy(&self) -> String;
}

impl Store {
    /// Builds an image, and keeps it under its name.
    ///
    /// # Errors
    /// Why nothing was kept.
    pub fn build(&self, build: &Build, steps: &mut dyn Steps) -> Result<Listed, ImageError> {
        let recipe = parse(&text(build)?).map_err(|refused| ImageError::Dockerfile {
            line: refused.line,
            what: refused.what,
            why: refused.why,
        })?;
        let context = Context::open(&build.folder)?;
        self.make_with(&build.name, |last| Works { store: self, build, context: &context, steps }.all(&recipe, last))
    }
}

fn text(build: &Build) -> Result<String, ImageError> {
    let path = build.file.clone().unwrap_or_else(|| build.folder.join("Dockerfile"));
    let io = |errno| ImageError::Io { path: path.clone(), errno };
    let folder =
        Dir::open(path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."))).map_err(io)?;
    let name = path
        .file_name()
        .ok_or_else(|| ImageError::NotAnImage { path: path.clone(), why: "it names no file".to_owned() })?;
    let bytes = folder.read(name, MAX_DOCKERFILE).map_err(io)?;
    String::from_utf8(bytes).map_err(|_bytes| ImageError::Dockerfile {
        line: 1,
        what: "the Dockerfile".to_owned(),
        why: "it is no UTF-8 text".to_owned(),
    })
}

/// One build.
struct Works<'a> {
    store: &'a Store,
    build: &'a Build,
    context: &'a Context,
    steps: &'a mut dyn Steps,
}

/// The steps of one stage, and what it is called.
struct Part<'a> {
    base: String,
    name: Option<&'a str>,
    from: &'a Step,
    steps: &'a [Step],
}

/// A stage that is done.
struct Done {
    tree: Stage,
    config: Defaults,
    key: String,
}

impl Works<'_> {
    fn all(&mut self, recipe: &[Step], last: &Stage) -> Result<(UnpackNotes, Defaults), ImageError> {
        self.taken(recipe);
        let (globals, parts) = self.parts(recipe)?;
        let wanted = self.wanted(&parts)?;
        let needed = needed(&parts, wanted);
        let mut done: BTreeMap<usize, Done> = BTreeMap::new();
        for (index, part) in parts.iter().enumerate().filter(|(index, _)| needed.contains(index)) {
            self.steps.begins(part.from.line, &part.from.text, false);
            let place = if index == wanted { None } else { Some(self.store.new_stage()?) };
            let finished = self.stage(&parts, &done, part, place.as_ref().unwrap_or(last), &globals)?;
            match place {
                None => return Ok((UnpackNotes::default(), finished.0)),
                Some(tree) => done.insert(index, Done { tree, config: finished.0, key: finished.1 }),
            };
        }
        Err(refused(recipe.first(), "no stage is left to build"))
    }

    /// Values that no `ARG` takes: most likely another name was meant.
    fn taken(&mut self, recipe: &[Step]) {
        let takes = |given: &str| {
            recipe.iter().any(|step| matches!(&step.does, Instruction::Arg { name, .. } if name == given))
        };
        let lost: Vec<&str> = self.build.args.keys().map(String::as_str).filter(|given| !takes(given)).collect();
        if !lost.is_empty() {
            self.steps.tells(&format!("no ARG takes the value of: {}", lost.join(", ")));
        }
    }

    /// The stages, and the arguments before the first.
    fn parts<'s>(&self, recipe: &'s [Step]) -> Result<(Scope, Vec<Part<'s>>), ImageError> {
        let is_from = |step: &Step| matches!(step.does, Instruction::From { .. });
        let first = recipe.iter().position(is_from).unwrap_or(recipe.len());
        let (before, mut rest) = recipe.split_at(first);
        let mut globals = Scope::new();
        for step in before {
            if let Instruction::Arg { name, default } = &step.does {
                let value = self.argument(step, name, default.as_deref(), &globals)?;
                globals.extend(value.map(|value| (name.clone(), value)));
            }
        }
        let mut parts = Vec::new();
        while let Some((from, after)) = rest.split_first() {
            let end = after.iter().position(is_from).unwrap_or(after.len());
            let (steps, next) = after.split_at(end);
            if let Instruction::From { image, name } = &from.does {
                let base = expand(image, &globals).map_err(|why| refused(Some(from), why))?;
                parts.push(Part { base, name: name.as_deref(), from, steps });
            }
            rest = next;
        }
        Ok((globals, parts))
    }

    fn argument(
        &self,
        step: &Step,
        name: &str,
        default: Option<&str>,
        scope: &Scope,
    ) -> Result<Option<String>, ImageError> {
        match (self.build.args.get(name), default) {
            (Some(given), _) => Ok(Some(given.clone())),
            (None, Some(default)) => expand(default, scope).map(Some).map_err(|why| refused(Some(step), why)),
            (None, None) => Ok(None),
        }
    }

    /// Which stage is wanted.
    fn wanted(&self, parts: &[Part<'_>]) -> Result<usize, ImageError> {
        let last = parts.len().saturating_sub(1);
        let Some(target) = &self.build.target else { return Ok(last) };
        find(parts, target, parts.len()).ok_or_else(|| ImageError::Dockerfile {
            line: 1,
            what: format!("--target {target}"),
            why: "no stage has this name".to_owned(),
        })
    }

    /// Builds one stage into a tree; its configuration and its key.
    fn stage(
        &mut self,
        parts: &[Part<'_>],
        done: &BTreeMap<usize, Done>,
        part: &Part<'_>,
        tree: &Stage,
        globals: &Scope,
    ) -> Result<(Defaults, String), ImageError> {
        let index = parts.iter().position(|other| std::ptr::eq(other, part)).unwrap_or_default();
        let base = match find(parts, &part.base, index).and_then(|index| done.get(&index)) {
            Some(earlier) => Base::Stage(earlier),
            None if part.base == "scratch" => Base::Nothing,
            None => {
                let lease = self.store.lease(&part.base)?;
                self.heeds(part.from, &lease.about().told.unheeded)?;
                Base::Image(Box::new(lease))
            }
        };
        let mut building = Building::new(self, base, tree, globals);
        for step in part.steps {
            let from = |name: &str| find(parts, name, index).and_then(|index| done.get(&index));
            building.step(step, &from)?;
        }
        building.finish()
    }

    /// What a base asks for that nothing here does. Some of it would make another image.
    fn heeds(&mut self, from: &Step, unheeded: &[String]) -> Result<(), ImageError> {
        let changes = |word: &&String| [ON_BUILD, SHELL].contains(&word.as_str());
        if let Some(word) = unheeded.iter().find(changes) {
            return Err(refused(Some(from), format!("the image has `{word}`, which is not known here")));
        }
        if !unheeded.is_empty() {
            self.steps.tells(&format!("not taken from the image of line {}: {}", from.line, unheeded.join(", ")));
        }
        Ok(())
    }
}

/// A stage before `end`, by its name or number.
fn find(parts: &[Part<'_>], name: &str, end: usize) -> Option<usize> {
    let named = |part: &Part<'_>| part.name.is_some_and(|own| own.eq_ignore_ascii_case(name));
    let before = parts.get(..end)?;
    before.iter().position(named).or_else(|| name.parse().ok().filter(|number| *number < end))
}

/// The stages without which the wanted one cannot be built.
fn needed(parts: &[Part<'_>], wanted: usize) -> BTreeSet<usize> {
    let mut needed = BTreeSet::new();
    let mut open = vec![wanted];
    while let Some(index) = open.pop() {
        let Some(part) = parts.get(index).filter(|_| needed.insert(index)) else { continue };
        let copied = part.steps.iter().filter_map(|step| match &step.does {
            Instruction::Copy(copy) => copy.from.as_deref(),
            Instruction::From { .. }
            | Instruction::Run(_)
            | Instruction::Env(_)
            | Instruction::Arg { .. }
            | Instruction::User(_)
            | Instruction::Workdir(_)
            | Instruction::Cmd(_)
            | Instruction::Entrypoint(_)
            | Instruction::Label(_)
            | Instruction::Expose(_) => None,
        });
        open.extend(copied.chain([part.base.as_str()]).filter_map(|name| find(parts, name, index)));
    }
    needed
}

/// A step that is refused.
fn refused(step: Option<&Step>, why: impl Into<String>) -> ImageError {
    let (line, what) = step.map_or((1, "the Dockerfile".to_owned()), |step| (step.line, step.text.clone()));
    ImageError::Dockerfile { line, what, why: why.into() }
}

/// Opens a folder of a tree that is known to be there.
fn again(dir: &Dir) -> Result<Dir, rustix::io::Errno> {
    dir.enter(".", Cross::No)
}

/// Flags of a new file.
const NEW: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL);
/// Mode of what is being written.
const OWN: Mode = Mode::from_raw_mode(0o600);
