//! What can go wrong with images.

use std::path::PathBuf;

use rustix::io::Errno;
use sandbox::fault::{Fault, show_path, show_text};
use sandbox::state::StateError;

/// A failure with an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The state folder.
    #[error(transparent)]
    State(#[from] StateError),
    /// What was named is no image that can be read.
    #[error("{} is no image that can be imported", show_path(path))]
    NotAnImage {
        /// What was named.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// An entry of a layer may not be unpacked.
    #[error("the image is refused: the entry `{}`", show_text(entry))]
    Entry {
        /// Its name.
        entry: String,
        /// Why.
        why: String,
    },
    /// Something is not what its digest or size says.
    #[error("`{}` is not what the image says it is", show_text(what))]
    Digest {
        /// Which part.
        what: String,
        /// What differs.
        why: String,
    },
    /// It unpacks to too much.
    #[error("the image unpacks to more than {limit} bytes")]
    TooLarge {
        /// The most.
        limit: u64,
    },
    /// There is no such image.
    #[error("there is no image `{}`", show_text(reference))]
    None {
        /// What was asked for.
        reference: String,
    },
    /// Something runs on it.
    #[error("the image `{}` is in use", show_text(reference))]
    InUse {
        /// Which.
        reference: String,
    },
    /// Its tree is not what was unpacked, or what is written of it is not what it says.
    #[error("the image {digest} was changed in the store")]
    Changed {
        /// Its digest.
        digest: String,
    },
    /// Packages cannot be had.
    #[error("the packages cannot be had")]
    Packages {
        /// Why.
        why: String,
        /// What to do.
        fix: &'static str,
    },
    /// No image can have this name.
    #[error("`{}` cannot be the name of an image", show_text(name))]
    Name {
        /// The name.
        name: String,
    },
    /// A Dockerfile has what is not known here, or asks for what cannot be done.
    #[error("the Dockerfile is refused in line {line}: `{}`", show_text(what))]
    Dockerfile {
        /// From 1.
        line: usize,
        /// What stands there.
        what: String,
        /// Why.
        why: String,
    },
    /// What a step of a Dockerfile runs did not end well.
    #[error("the step in line {line} failed: `{}`", show_text(what))]
    Step {
        /// From 1.
        line: usize,
        /// What stands there.
        what: String,
        /// How it ended.
        why: String,
    },
    /// What would be written is there.
    #[error("{} is there already", show_path(path))]
    Exists {
        /// What.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("{} cannot be read or written", show_path(path))]
    Io {
        /// Where.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl ImageError {
    /// Whether the image itself is what is refused (exit code 126), and not something around it.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        match self {
            Self::NotAnImage { .. }
            | Self::Entry { .. }
            | Self::Digest { .. }
            | Self::TooLarge { .. }
            | Self::Packages { .. }
            | Self::Changed { .. }
            | Self::Dockerfile { .. } => true,
            Self::State(_)
            | Self::None { .. }
            | Self::InUse { .. }
            | Self::Step { .. }
            | Self::Name { .. }
            | Self::Exists { .. }
            | Self::Io { .. } => false,
        }
    }

    /// What, where, why and fix.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let say = |id, place: String, why: &str| Fault::of(self, id, place, why, self.fix());
        match self {
            Self::State(error) => error.fault(),
            Self::NotAnImage { path, why } => say("image/not-an-image", show_path(path), why),
            Self::Entry { entry, why } => say("image/entry", show_text(entry), why),
            Self::Digest { what, why } => say("image/digest", show_text(what), why),
            Self::TooLarge { .. } => {
                let why = "at most 20 GiB, and 200 times the packed size, unless said";
                say("image/too-large", "its layers".to_owned(), why)
            }
            Self::None { reference } => {
                say("image/none", show_text(reference), "no image of the store has this name or digest")
            }
            Self::InUse { reference } => say("image/in-use", show_text(reference), "a run has its tree"),
            Self::Changed { digest } => {
                say("image/changed", digest.clone(), "what lies in the store is not what was imported")
            }
            Self::Packages { why, fix: _ } => say("image/packages", "apt".to_owned(), why),
            Self::Name { name } => {
                let why = "a name begins with a letter or digit, has at most 255 characters of a-z, A-Z, 0-9 and \
                           `._:/+-`, and does not look like a digest";
                say("image/name", show_text(name), why)
            }
            Self::Dockerfile { line, what: _, why } => say("image/dockerfile", format!("line {line}"), why),
            Self::Step { line, what: _, why } => say("image/step", format!("line {line}"), why),
            Self::Exists { path } => say("image/exists", show_path(path), "nothing is written over"),
            Self::Io { path, errno } => say("image/io", show_path(path), &errno.to_string().to_lowercase()),
        }
    }

    const fn fix(&self) -> &'static str {
        match self {
            // The state folder says it itself.
            Self::State(_) => "",
            Self::NotAnImage { .. } => {
                "name the folder or the uncompressed archive of an OCI layout, or what `docker save` writes"
            }
            Self::Entry { .. } => "make the image without this entry; nothing of it was kept",
            Self::Digest { .. } => "get the image again; nothing of it was kept",
            Self::TooLarge { .. } => "say `--max-size SIZE` if you know the image; nothing of it was kept",
            Self::None { .. } => "take one from `fumehood image ls`, or pull or import it",
            Self::InUse { .. } => "wait until that run has ended",
            Self::Changed { .. } => {
                "remove the image (`fumehood image rm`), import it again, and look who writes into the state folder"
            }
            Self::Packages { fix, .. } => fix,
            Self::Name { .. } => "use another name, as `work:1`",
            Self::Dockerfile { .. } => {
                "write it otherwise; nothing was kept (docs/concepts/images.md has what is known)"
            }
            Self::Step { .. } => {
                "look at what it said (RUN makes no new names directly in `/`: a WORKDIR before it does); steps before it are kept"
            }
            Self::Exists { .. } => "name a path that is not there, or remove what is",
            Self::Io { .. } => "look at the room, the owner and the mode of what lies there",
        }
    }
}
