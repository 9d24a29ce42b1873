//! What a run asks of the store: what a name means, and the tree behind a digest.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use policy::load::Packed;
use policy::value::{ImageNotFound, StoredImage};
use rustix::io::Errno;
use sandbox::fault::Fault;
use sandbox::state::{Cross, Dir, Places, State};
use sandbox::{Images, LeasedTree};

use crate::error::ImageError;
use crate::resolve::digest_of;
use crate::store::{Listed, Store};

/// The store of whoever runs something.
#[derive(Clone, Copy, Debug)]
pub struct OfCaller;

/// Largest list of accounts that is read.
const MAX_PASSWD: u64 = 1 << 20;

impl Images for OfCaller {
    fn find(&self, places: &Places, name: &str) -> Result<Packed, ImageNotFound> {
        let state = State::open(places).map_err(|error| lacking(error.fault()))?;
        // A digest of an index names what was pulled by it, and only a pull gives such names.
        let found = Store::open(&state).and_then(|store| match packed(&store, name) {
            Err(ImageError::None { .. }) => packed(&store, meant(name)),
            found => found,
        });
        found.map_err(|error| {
            if !matches!(error, ImageError::None { .. }) {
                return lacking(error.fault());
            }
            ImageNotFound {
                id: "fs.root/no-such-image",
                why: format!("no image of the store is called `{}`", sandbox::fault::show_text(name)),
                fix: "take one from `fumehood image ls`, or import it: `fumehood image import PATH`".to_owned(),
            }
        })
    }

    fn lease(&self, places: &Places, digest: &str) -> Result<LeasedTree, Fault> {
        let state = State::open(places).map_err(|error| error.fault())?;
        let leased = Store::open(&state).and_then(|store| store.lease(digest)).map_err(|error| error.fault())?;
        let tree = leased.path().to_owned();
        Ok(LeasedTree { tree, held: OwnedFd::from(leased) })
    }
}

/// `NAME@sha256:HEX` means the digest.
fn meant(name: &str) -> &str {
    name.rsplit_once('@').and_then(|(_, digest)| digest_of(digest)).unwrap_or(name)
}

fn lacking(fault: Fault) -> ImageNotFound {
    let Fault { id, what, why, fix, .. } = fault;
    ImageNotFound { id, why: format!("{what}: {why}"), fix }
}

fn packed(store: &Store, reference: &str) -> Result<Packed, ImageError> {
    let Listed { names: _, about } = store.find(reference)?;
    let tree = store.tree(&about.digest)?;
    let config = about.config;
    let command = config.entrypoint.into_iter().chain(config.cmd).flatten();
    let found = StoredImage {
        digest: about.digest,
        user: None,
        workdir: config.working_dir.filter(|at| !at.is_empty()).map(PathBuf::from),
        command: command.collect(),
        built: false,
        lent: false,
        tree: tree.clone(),
    };
    let env = config.env.into_iter().flatten().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        let fits = |text: &str| !text.contains('\0');
        (!name.is_empty() && fits(name) && fits(value)).then(|| (name.to_owned(), value.to_owned()))
    });
    Ok(Packed { found, env: env.collect(), user: config.user, people: people(&tree) })
}

/// Names and numbers of the tree's `etc/passwd`, found through no link.
pub(crate) fn people(tree: &std::path::Path) -> Vec<(String, u32)> {
    let read =
        |tree| -> Result<Vec<u8>, Errno> { Dir::open(tree)?.enter("etc", Cross::No)?.read("passwd", MAX_PASSWD) };
    let text = read(tree).unwrap_or_default();
    let line = |line: &str| {
        let mut fields = line.split(':');
        Some((fields.next()?.to_owned(), fields.nth(1)?.parse().ok()?))
    };
    String::from_utf8_lossy(&text).lines().filter_map(line).collect()
}
