//! The images of `fumehood serve`, for Docker's clients and for templates: the caller's store, its registries, its builds.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use images::{Build, ImageError, Listed, NamePattern, OfCaller, Store};
use registry::PullOptions;
use sandbox::Images as _;
use sandbox::fault::Fault;
use sandbox::state::State;
use server::answer::Problem;
use server::backend::{Image, Images, Recipe};

use super::image_build::{Builds, built};
use crate::environment::Environment;
use crate::ui::{Failure, Palette};

/// The fewest digits that stand for a digest: as many as Docker's clients show.
const SHORT: usize = 12;

/// The store of whoever serves.
#[derive(Clone, Debug)]
pub(super) struct LocalImages {
    pub(super) environment: Environment,
    /// How registries are asked.
    pub(super) registries: PullOptions,
}

fn problem(fault: &Fault, is_refusal: bool) -> Problem {
    let status = if is_refusal { 400 } else { 500 };
    Problem::of(status, fault.id, fault.what.clone(), &fault.why, &fault.fix)
}

fn unkept(error: &ImageError) -> Problem {
    problem(&error.fault(), error.is_refusal())
}

impl LocalImages {
    fn store(&self) -> Result<Store, Problem> {
        let state = State::open(&self.environment.state).map_err(|error| problem(&error.fault(), false))?;
        Store::open(&state).map_err(|error| unkept(&error))
    }

    /// With what only its tree says.
    fn image(&self, listed: Listed) -> Image {
        let Listed { names, about } = listed;
        let config = about.config;
        // One whose tree is gone is listed, and cannot be run.
        let packed = OfCaller.find(&self.environment.state, &about.digest).ok();
        let (people, tree) = packed.map(|packed| (packed.people, packed.found.tree)).unwrap_or_default();
        Image {
            digest: about.digest,
            names,
            bytes: about.bytes,
            layers: about.layers,
            user: config.user,
            env: config.env.unwrap_or_default(),
            workdir: config.working_dir,
            entrypoint: config.entrypoint.unwrap_or_default(),
            cmd: config.cmd.unwrap_or_default(),
            labels: config.labels.unwrap_or_default(),
            people,
            tree,
        }
    }
}

/// `NAME@sha256:HEX` means the digest, and so do its digits.
fn meant(reference: &str) -> String {
    let word = reference.rsplit_once('@').map_or(reference, |(_, digest)| digest);
    let is_hex = word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex { format!("sha256:{word}") } else { word.to_owned() }
}

impl Images for LocalImages {
    fn list(&self) -> Result<Vec<Image>, Problem> {
        let all = self.store()?.list().map_err(|error| unkept(&error))?;
        Ok(all.into_iter().map(|listed| self.image(listed)).collect())
    }

    fn find(&self, reference: &str) -> Result<Option<Image>, Problem> {
        let store = self.store()?;
        for word in [reference.to_owned(), meant(reference)] {
            match store.find(&word) {
                Ok(listed) => return Ok(Some(self.image(listed))),
                Err(ImageError::None { .. }) => {}
                Err(error) => return Err(unkept(&error)),
            }
        }
        let digits = reference.strip_prefix("sha256:").unwrap_or(reference);
        if digits.len() < SHORT || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let all = store.list().map_err(|error| unkept(&error))?;
        let begins =
            |listed: &Listed| listed.about.digest.strip_prefix("sha256:").is_some_and(|hex| hex.starts_with(digits));
        Ok(all.into_iter().find(begins).map(|listed| self.image(listed)))
    }

    fn remove(&self, reference: &str) -> Result<(), Problem> {
        self.store()?.remove(reference).map_err(|error| unkept(&error))
    }

    fn is_among(&self, name: &str, patterns: &[String]) -> bool {
        patterns.iter().filter_map(|text| NamePattern::parse(text)).any(|pattern| pattern.means(name))
    }

    fn pull(&self, reference: &str) -> Result<Image, Problem> {
        let wanted = PullOptions { reference: reference.to_owned(), ..self.registries.clone() };
        let listed = registry::pull(&self.store()?, &wanted);
        Ok(self.image(listed.map_err(|error| problem(&error.fault(), error.is_refusal()))?))
    }

    fn build(&self, recipe: &Recipe, tell: &mut dyn FnMut(&str)) -> Result<Image, Problem> {
        let folder = recipe.archive.with_extension("d");
        let done = unpacked(&recipe.archive, &folder).and_then(|()| self.built(recipe, &folder, tell));
        if std::fs::remove_dir_all(&folder).is_err() {
            // It was never made.
        }
        done
    }
}

impl LocalImages {
    fn built(&self, recipe: &Recipe, folder: &Path, tell: &mut dyn FnMut(&str)) -> Result<Image, Problem> {
        let wanted = Build {
            folder: folder.to_owned(),
            file: recipe.file.as_deref().map(|file| beneath(folder, file)).transpose()?,
            name: recipe.name.clone(),
            args: recipe.args.clone(),
            target: recipe.target.clone(),
            anew: recipe.anew,
        };
        let (reader, writer) = std::io::pipe().map_err(|error| unpackable(&error.to_string()))?;
        let store = self.store()?;
        let listed = std::thread::scope(|scope| {
            let builds = Builds {
                asked: Vec::new(),
                environment: &self.environment,
                screen: OwnedFd::from(writer),
                quiet: false,
            };
            let building = scope.spawn(move || built(&store, &wanted, builds));
            for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
                tell(&format!("{}\n", String::from_utf8_lossy(&line)));
            }
            building.join()
        });
        match listed {
            Ok(Ok(listed)) => Ok(self.image(listed)),
            Ok(Err(failure)) => Err(told(failure)),
            Err(_panicked) => Err(unpackable("the build broke off")),
        }
    }
}

fn told(failure: Failure) -> Problem {
    let text = failure.text(Palette::PLAIN, 100);
    match failure.into_faults().first() {
        Some(fault) => problem(fault, true),
        None => {
            Problem::of(400, "serve/refused", text.trim().to_owned(), "a step of the build was refused", "change it")
        }
    }
}

fn unpackable(why: &str) -> Problem {
    let what = "the archive of the build cannot be unpacked";
    Problem::of(400, "image/context", what, why, "send a tar archive of files, folders and links")
}

/// A file of the context, through no link that leads out of it.
fn beneath(folder: &Path, file: &str) -> Result<PathBuf, Problem> {
    let path = Path::new(file);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let found = folder.join(path);
    let whole = |path: &Path| std::fs::canonicalize(path).ok();
    if plain && whole(&found).zip(whole(folder)).is_some_and(|(found, folder)| found.starts_with(folder)) {
        return Ok(found);
    }
    Err(unpackable(&format!("there is no Dockerfile `{file}` in it")))
}

/// Unpacks what a client sent, into a folder of its own and through no link out of it.
fn unpacked(archive: &Path, folder: &Path) -> Result<(), Problem> {
    let io = |error: std::io::Error| unpackable(&error.to_string());
    std::fs::create_dir(folder).map_err(io)?;
    let mut archive = tar::Archive::new(File::open(archive).map_err(io)?);
    for entry in archive.entries().map_err(io)? {
        let mut entry = entry.map_err(io)?;
        let kind = entry.header().entry_type();
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if kind.is_pax_global_extensions() {
            continue;
        }
        if !(kind.is_file() || kind.is_dir() || kind.is_symlink() || kind.is_hard_link()) {
            return Err(unpackable(&format!("`{name}` is no file, folder or link")));
        }
        if !entry.unpack_in(folder).map_err(io)? {
            return Err(unpackable(&format!("`{name}` leads out of it")));
        }
    }
    Ok(())
}
