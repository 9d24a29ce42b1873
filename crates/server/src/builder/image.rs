//! Images that clients name for their templates to begin as: which of them a key may have, and how one comes here that is not.
//!
//! Promises: without a word of the key's ceiling there is none; an image of the store is known by the names that it has there, and
//! not by the one that it was asked for with; nothing is brought from a registry that the ceiling does not name, or where it does
//! not say that images are brought; a template stays what its name meant when it was built.

use std::sync::Arc;

use axum::http::StatusCode;
use policy::value::{Image as RootImage, Root};

use super::IMAGE;
use crate::answer::Problem;
use crate::app::AppState;
use crate::backend::{Image, Images};
use crate::keys::Key;

/// What an image of the key's list is named by as a base, before its name and digest.
pub(super) const LISTED: &str = "listed:";

/// An image that a template may begin as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BaseImage {
    /// What names it as a base.
    pub(super) base: String,
    /// The digest that this means now; none where the root of the ceiling means no image now.
    pub(super) digest: Option<String>,
    /// Its `PATH`.
    pub(super) path: Option<String>,
}

impl AppState {
    /// The image that a key's template is to begin as; none where it is to be brought first.
    ///
    /// # Errors
    /// Its ceiling does not name it, or the store cannot be read.
    pub(super) async fn image_for(&self, key: &Key, name: &str) -> Result<Option<BaseImage>, Problem> {
        let top = self.ceiling_of(key).await?;
        let root = top.and_then(|top| match top.fs.root {
            Root::Image(image) => Some(image),
            Root::Host | Root::Empty | Root::Dir(_) => None,
        });
        let (images, key, name) = (self.images.clone(), key.clone(), name.to_owned());
        let chosen = tokio::task::spawn_blocking(move || match images {
            Some(images) => choose(&*images, &key, root.as_ref(), &name),
            None => of_ceiling(root.as_ref(), &name).map(Some).ok_or_else(|| beyond(&key, &name)),
        });
        chosen.await.unwrap_or_else(|_lost| Err(crate::backend::failed("the store of images could not be read").into()))
    }

    /// The same, brought from its registry: [`Self::image_for`] said that it may be.
    ///
    /// # Errors
    /// Why it is not here.
    pub(super) async fn pulled(&self, key: &Key, name: &str) -> Result<BaseImage, Problem> {
        let Some(images) = self.images.as_ref().map(Arc::clone) else { return Err(beyond(key, name)) };
        let (key, name) = (key.clone(), name.to_owned());
        let pulled = tokio::task::spawn_blocking(move || {
            let image = images.pull(&name)?;
            listed(&*images, &key, &image).ok_or_else(|| beyond(&key, &name))
        });
        pulled.await.unwrap_or_else(|_lost| Err(crate::backend::failed("the pull broke off").into()))
    }
}

fn choose(images: &dyn Images, key: &Key, root: Option<&RootImage>, name: &str) -> Result<Option<BaseImage>, Problem> {
    let found = images.find(name)?;
    if let Some(base) = found.as_ref().and_then(|image| listed(images, key, image)).or_else(|| of_ceiling(root, name)) {
        return Ok(Some(base));
    }
    match images.is_among(name, patterns(key)) {
        false => Err(beyond(key, name)),
        // One of the same digest that has no name of the list is not taken for it: its registry says whether it is.
        true if key.pull => Ok(None),
        true => Err(absent(name)),
    }
}

/// An image of the store, if it is called there as the ceiling says. By its digest, so that it stays the one that was judged.
fn listed(images: &dyn Images, key: &Key, image: &Image) -> Option<BaseImage> {
    let name = image.names.iter().find(|name| images.is_among(name, patterns(key)))?;
    let plain = name.split_once('@').map_or(name.as_str(), |(plain, _digest)| plain);
    let path = image.env.iter().rev().find_map(|line| line.strip_prefix("PATH=")).map(str::to_owned);
    Some(BaseImage { base: format!("{LISTED}{plain}@{}", image.digest), digest: Some(image.digest.clone()), path })
}

/// The ceiling's own root, by its own name: whether a policy may have it is judged with the rest of it.
fn of_ceiling(root: Option<&RootImage>, name: &str) -> Option<BaseImage> {
    let root = root.filter(|root| root.name == name)?;
    let digest = root.found.as_ref().ok().map(|found| found.digest.clone());
    Some(BaseImage { base: format!("{IMAGE}{name}"), digest, path: None })
}

fn patterns(key: &Key) -> &[String] {
    key.images.as_deref().unwrap_or_default()
}

/// The same answer whether the store has it or not.
fn beyond(key: &Key, name: &str) -> Problem {
    let what = format!("no template of this key may begin as the image {}", policy::diagnostic::quote(name));
    let why = "each key has a ceiling, and it names the images that templates may begin as (`--images`)";
    let instead = match patterns(key) {
        [] => "begin as a template (`fromTemplate`), or use a key of `fumehood keys add --images PATTERNS`".to_owned(),
        patterns => format!("one of {}", patterns.join(", ")),
    };
    Problem::new(StatusCode::BAD_REQUEST, "serve/beyond-ceiling", what, why, &instead).about("images")
}

fn absent(name: &str) -> Problem {
    let what = format!("the image {} is not in the store of this server", policy::diagnostic::quote(name));
    let why = "nothing is brought from a registry where the ceiling of the key does not say so (`--pull`)";
    let instead = "`fumehood image pull` it there, or use a key of `fumehood keys add --images PATTERNS --pull`";
    Problem::new(StatusCode::BAD_REQUEST, "serve/beyond-ceiling", what, why, instead).about("pull")
}

#[cfg(test)]
mod tests {
    use policy::value::StoredImage;

    use super::*;
    use crate::backend::Recipe;

    /// A store with these images, where a pattern is a prefix of a name.
    struct Few(Vec<Image>);

    impl Images for Few {
        fn list(&self) -> Result<Vec<Image>, Problem> {
            Ok(self.0.clone())
        }

        fn find(&self, reference: &str) -> Result<Option<Image>, Problem> {
            let is_it = |image: &&Image| {
                image.names.iter().any(|name| name == reference) || reference.ends_with(image.digest.as_str())
            };
            Ok(self.0.iter().find(is_it).cloned())
        }

        fn remove(&self, _reference: &str) -> Result<(), Problem> {
            Ok(())
        }

        fn is_among(&self, name: &str, patterns: &[String]) -> bool {
            patterns.iter().any(|pattern| name.starts_with(pattern))
        }

        fn pull(&self, reference: &str) -> Result<Image, Problem> {
            Err(absent(reference))
        }

        fn build(&self, _recipe: &Recipe, _tell: &mut dyn FnMut(&str)) -> Result<Image, Problem> {
            Err(absent(""))
        }
    }

    fn image(digest: &str, names: &[&str]) -> Image {
        let env = vec!["A=1".to_owned(), "PATH=/opt/go/bin:/bin".to_owned()];
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Image { digest: digest.to_owned(), names, env, ..Image::default() }
    }

    fn key(images: &[&str], pull: bool) -> Key {
        let folder = tempfile::tempdir().unwrap();
        let keys = crate::keys::Keys::open(folder.path()).unwrap();
        let images = (!images.is_empty()).then(|| images.iter().map(|text| (*text).to_owned()).collect());
        let rights = crate::keys::Rights { images, pull, ..crate::keys::Rights::default() };
        keys.add_with("one", rights).unwrap();
        keys.list().unwrap().remove(0)
    }

    #[test]
    fn an_image_is_the_keys_if_its_ceiling_names_it_and_is_brought_if_that_says_so() {
        let (python, secret) = ("sha256:aa", "sha256:bb");
        let store = Few(vec![image(python, &["python:3", "python@sha256:index"]), image(secret, &["secret:1"])]);
        let ask = |key: &Key, name: &str| choose(&store, key, None, name);
        let refused = |key: &Key, name: &str| ask(key, name).unwrap_err().clause;
        for name in ["python:3", "secret:1", "absent:1", python] {
            assert_eq!(&*refused(&key(&[], false), name), "images", "{name}");
        }
        let lists = key(&["python"], false);
        let found = ask(&lists, "python:3").unwrap().unwrap();
        assert_eq!(found.base, "listed:python:3@sha256:aa");
        assert_eq!((found.digest.as_deref(), found.path.as_deref()), (Some(python), Some("/opt/go/bin:/bin")));
        assert_eq!(ask(&lists, python).unwrap().unwrap().base, found.base, "by its digest it is the same");
        // The digest of another image, under a name of the list and by itself: what it is called in the store counts.
        assert_eq!(&*refused(&lists, &format!("python@{secret}")), "pull");
        assert_eq!(&*refused(&lists, secret), "images");
        assert_eq!((&*refused(&lists, "secret:1"), &*refused(&lists, "absent:1")), ("images", "images"));
        assert_eq!(&*refused(&lists, "python:4"), "pull", "it is not there, and may not be brought");
        let brings = key(&["python"], true);
        assert_eq!(ask(&brings, "python:4").unwrap(), None);
        assert_eq!(ask(&brings, &format!("python@{secret}")).unwrap(), None, "its registry is asked");
        assert_eq!((&*refused(&brings, "absent:1"), &*refused(&brings, secret)), ("images", "images"));
        // The ceiling's own root, by its own name.
        let found = Ok(StoredImage { digest: secret.to_owned(), ..StoredImage::default() });
        let root = RootImage { name: "secret:1".to_owned(), found };
        let own = choose(&store, &key(&[], false), Some(&root), "secret:1").unwrap().unwrap();
        assert_eq!((own.base.as_str(), own.digest.as_deref()), ("image:secret:1", Some(secret)));
        assert!(choose(&store, &key(&[], false), Some(&root), "python:3").is_err());
    }
}
