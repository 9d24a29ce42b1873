//! Why there is no template, as it is told to people and programs.

use std::path::{Path, PathBuf};

use sandbox::fault::{Fault, show_path, show_text};

use super::STOCK;

/// Why there is no template.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// Nothing has this name.
    #[error("there is no template `{0}`")]
    Unknown(String),
    /// A name that can be none.
    #[error("`{0}` can be no name of a template")]
    Name(String),
    /// The recipe is wrong.
    #[error("the recipe {place} is wrong: {why}")]
    Recipe {
        /// Where it lies.
        place: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The recipe asks for what is not made here.
    #[error("the recipe {place} asks for `{what}`, which `fumehood template build` alone makes")]
    Unsupported {
        /// Where it lies.
        place: PathBuf,
        /// Its key.
        what: &'static str,
    },
    /// Sandboxes that live were made from it.
    #[error("the template `{name}` is in use: {}", by.join(", "))]
    Used {
        /// Its name.
        name: String,
        /// Their ids.
        by: Vec<String>,
    },
    /// The sandbox of a client of a registry was refused, or failed.
    #[error("`{what}` was not run, since it cannot be held in a sandbox here")]
    Sandbox {
        /// Which client.
        what: &'static str,
        /// Why there is no run.
        error: Box<sandbox::Error>,
    },
    /// A client of a registry could not be started.
    #[error("`{what}` could not be started: {why}")]
    Tools {
        /// Which one.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// A client of a registry failed.
    #[error("`{what}` failed: {why}")]
    Packages {
        /// Which one.
        what: &'static str,
        /// Its own words.
        why: String,
    },
    /// It does not hold any more what was installed.
    #[error("`{0}` does not hold any more what was installed")]
    Content(String),
    /// The state folder could not be used.
    #[error("{place}: {why}")]
    State {
        /// Where.
        place: PathBuf,
        /// Why.
        why: String,
    },
}

impl TemplateError {
    pub(super) fn state(place: &Path, error: &std::io::Error) -> Self {
        Self::State { place: place.to_owned(), why: error.to_string() }
    }

    /// Why there is no template, as why there is no run: a sandbox that was refused says so by its own words.
    #[must_use]
    pub fn error(&self) -> sandbox::Error {
        match self {
            Self::Sandbox { error, .. } => (**error).clone(),
            Self::Unknown(_)
            | Self::Name(_)
            | Self::Recipe { .. }
            | Self::Unsupported { .. }
            | Self::Used { .. }
            | Self::Tools { .. }
            | Self::Packages { .. }
            | Self::Content(_)
            | Self::State { .. } => sandbox::Error::Failed(vec![self.fault()]),
        }
    }

    /// The same as it is told to people and programs.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let (id, place, fix) = match self {
            Self::Unknown(name) => {
                let stock = STOCK.iter().any(|(stock, _)| stock == name);
                let fix = match stock {
                    true => format!("`fumehood template build {}`", show_text(name)),
                    false => {
                        "`fumehood template ls` lists those that are there; `template build NAME -f FILE` makes one"
                            .to_owned()
                    }
                };
                ("template/unknown", show_text(name), fix)
            }
            Self::Name(name) => {
                let fix = "a letter or digit, then letters, digits, `_`, `.` and `-`; 63 characters at most".to_owned();
                ("template/name", show_text(name), fix)
            }
            Self::Recipe { place, .. } => {
                ("template/recipe", show_path(place), "write it as the reference page of templates says".to_owned())
            }
            Self::Unsupported { place, .. } => ("template/unsupported", show_path(place), "leave it out".to_owned()),
            Self::Used { by, .. } => {
                let first = by.first().map(|id| show_text(id)).unwrap_or_default();
                (
                    "template/used",
                    "the template's folder, which they are shown".to_owned(),
                    format!("`fumehood kill {first}`, and those after it, first"),
                )
            }
            Self::Sandbox { what, .. } => {
                let fix = "`fumehood doctor` says what the container tier needs on this host".to_owned();
                ("template/sandbox", (*what).to_owned(), fix)
            }
            Self::Tools { what, .. } => {
                let fix = "install it on the host: the Debian packages are python3-venv and npm".to_owned();
                ("template/tools", (*what).to_owned(), fix)
            }
            Self::Packages { what, .. } => {
                let fix = "name packages and versions that the registry has, for pip as wheels for this Python; \
                           `python3 -m venv` needs the Debian package python3-venv"
                    .to_owned();
                ("template/packages", (*what).to_owned(), fix)
            }
            Self::Content(name) => {
                let fix = format!("`fumehood template rm {}`, then make it anew", show_text(name));
                ("template/content", show_text(name), fix)
            }
            Self::State { place, .. } => (
                "template/state",
                show_path(place),
                "make room there, or name another folder by FUMEHOOD_STATE".to_owned(),
            ),
        };
        let what = match self {
            Self::Used { .. } => "the template is not removed".to_owned(),
            Self::Unknown(_)
            | Self::Name(_)
            | Self::Recipe { .. }
            | Self::Unsupported { .. }
            | Self::Sandbox { .. }
            | Self::Tools { .. }
            | Self::Packages { .. }
            | Self::Content(_)
            | Self::State { .. } => "the template cannot be had".to_owned(),
        };
        Fault { id, what, place, why: show_text(&self.to_string()), fix }
    }
}
