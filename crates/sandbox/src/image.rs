//! The image that a policy names as root: looked up when the policy is read, demanded by its digest when something starts.
//!
//! The store is another crate's, which imports this one: whoever reads the circumstances of a caller puts it into the
//! [`Environment`](crate::Environment). Without one every image is refused.

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread::JoinHandle;

use policy::load::Packed;
use policy::value::{ImageNotFound, Root};
use policy::{Control, Loaded, Plan};

use crate::error::Error;
use crate::fault::Fault;
use crate::state::Places;

/// A store of images.
pub trait Images: Debug + Send + Sync {
    /// What a name means now, and what the image says of itself. Its tree is not read.
    ///
    /// # Errors
    /// Why it means nothing.
    fn find(&self, places: &Places, name: &str) -> Result<Packed, ImageNotFound>;

    /// The tree of the image with this digest, after all of it was read, now or before it was sealed in this boot; it stays for as long as what is returned lives.
    ///
    /// # Errors
    /// There is none any more, or it is not what was unpacked.
    fn lease(&self, places: &Places, digest: &str) -> Result<LeasedTree, Fault>;
}

/// A tree that is what was unpacked.
#[derive(Debug)]
pub struct LeasedTree {
    /// Where it lies.
    pub tree: PathBuf,
    /// What keeps it in the store.
    pub held: OwnedFd,
}

/// Puts what an image means into the policy that names it.
pub(crate) fn take(loaded: &mut Loaded, images: Option<&dyn Images>, places: &Places) {
    let Root::Image(image) = &loaded.policy.fs.root else { return };
    if let Some(images) = images {
        let means = images.find(places, &image.name);
        loaded.set_image(means);
    }
}

/// The image of a plan, on its way to be proven: by a thread of its own, while the guest is made ready.
#[derive(Debug)]
pub(crate) struct Demanded {
    control: Control,
    tree: PathBuf,
    name: String,
    proof: JoinHandle<Result<LeasedTree, Fault>>,
}

/// Demands the image of a plan; nothing where it has none. [`Demanded::proven`] must be asked before *go*.
pub(crate) fn demand(
    plan: &Plan,
    images: Option<&'static dyn Images>,
    places: &Places,
) -> Result<Option<Demanded>, Error> {
    let Root::Image(image) = &plan.policy.fs.root else { return Ok(None) };
    if !plan.policy.fs.root.is_kept() && image.found.is_ok() {
        return Ok(None);
    }
    let (Some(images), Ok(found)) = (images, &image.found) else {
        return Err(Error::refused(lost(&image.name, "whoever starts it has no store of images")));
    };
    let (places, digest) = (places.clone(), found.digest.clone());
    let lease = move || images.lease(&places, &digest);
    let proof = std::thread::Builder::new().name("fumehood-image".to_owned()).spawn(lease);
    let proof = proof.map_err(|error| Error::refused(lost(&image.name, &error.to_string())))?;
    let control = Control::ImageTree(found.digest.clone());
    Ok(Some(Demanded { control, tree: found.tree.clone(), name: image.name.clone(), proof }))
}

impl Demanded {
    /// Waits until the tree is proven. What is returned must live as long as the run.
    pub(crate) fn proven(self) -> Result<(Control, LeasedTree), Error> {
        let Self { control, tree, name, proof } = self;
        let leased = proof.join().map_err(|_panic| Error::refused(lost(&name, "the proof of its tree broke off")))?;
        let leased = leased.map_err(Error::refused)?;
        if leased.tree != tree {
            return Err(Error::refused(lost(&name, "its tree lies elsewhere than when it was planned")));
        }
        Ok((control, leased))
    }
}

fn lost(name: &str, why: &str) -> Fault {
    Fault {
        id: "fs.root/no-images",
        what: format!("the image `{}` cannot be had", crate::fault::show_text(name)),
        place: "`fs.root`".to_owned(),
        why: why.to_owned(),
        fix: "start it again, by `fumehood run` or `create`".to_owned(),
    }
}
