//! `fumehood image from-host` and `image debian`: images of what this machine has, or may install.

use std::path::PathBuf;

use images::{Debian, FromHost};
use policy::units::Bytes;
use sandbox::fault::show_bytes;

use super::args::{Flag, Positionals, To, usage};
use super::image::{failure, made, missing, store};
use super::spec::{Call, Spec};
use crate::ui::Failure;

pub(super) const NAME: Flag = Flag::new("tag", Some("REF"), To::Ours, "The name of the image").short(b't');
const MAX_SIZE: Flag = Flag::new("max-size", Some("SIZE"), To::Ours, "The most that it may come to (20G)");

pub(super) const FROM_HOST: Spec = Spec {
    path: &["image", "from-host"],
    about: "Make an image of this host's programs",
    usage: "-t REF [--paths PATH,...] [--max-size SIZE]",
    more: "All of /usr, or the paths below /usr and /opt that are named; of /etc, what `fumehood run` shows.\n\
           What not everybody on this host may read is left out, and so are other mounts, sockets and devices; counted.\n\
           Exit code 0; 126 if it is too large or a path is not offered, 125 if it cannot be read or kept.",
    tables: &[&[
        NAME,
        Flag::new("paths", Some("PATH,..."), To::Ours, "Only these, below /usr or /opt").many(),
        MAX_SIZE,
    ]],
    words: Positionals::Mixed(0),
    hidden: false,
    run: from_host,
};

pub(super) const DEBIAN: Spec = Spec {
    path: &["image", "debian"],
    about: "Make an image of Debian packages, without a registry",
    usage: "-t REF --packages NAME,... [--suite SUITE] [--max-size SIZE]",
    more: "This host's apt brings them, with its sources and keys and in a folder of its own: what they need, and what is\n\
           essential, comes with them. Their scripts are not run: links, users and certificates that everybody needs are\n\
           made, services and other links of alternatives are not.\n\
           Exit code 0; 126 without apt, or if it refuses a package or a signature; 125 if it cannot be kept.",
    tables: &[&[
        NAME,
        Flag::new("packages", Some("NAME,..."), To::Ours, "The packages").many(),
        Flag::new("suite", Some("SUITE"), To::Ours, "A suite that this host's apt has sources of, e.g. bookworm"),
        MAX_SIZE,
    ]],
    words: Positionals::Mixed(0),
    hidden: false,
    run: debian,
};

/// The name that the image gets.
fn name(call: &Call<'_>) -> Result<String, Failure> {
    let name = call.parsed.value("tag").map(|name| name.to_string_lossy().into_owned());
    name.ok_or_else(|| missing("-t REF is missing", "give the image a name, as `-t tools:1`"))
}

pub(super) fn max_size(call: &Call<'_>) -> Result<Option<u64>, Failure> {
    let Some(value) = call.parsed.value("max-size") else { return Ok(None) };
    let parsed = Bytes::parse(&value.to_string_lossy()).map_err(|error| {
        let what = format!("`--max-size {}`", show_bytes(value.as_encoded_bytes()));
        Failure::own(usage("usage/bad-value", what, error.why, "a size as `30G`".to_owned()))
    });
    parsed.map(|size| Some(size.0))
}

/// The parts of all values of a flag, between commas.
fn listed(call: &Call<'_>, flag: &str) -> Vec<String> {
    let values =
        call.parsed.flags.iter().filter(|(known, _)| known.long == flag).filter_map(|(_, value)| value.as_ref());
    let texts: Vec<String> = values.map(|value| value.to_string_lossy().into_owned()).collect();
    texts.iter().flat_map(|text| text.split(',')).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn from_host(call: &mut Call<'_>) -> Result<u8, Failure> {
    let name = name(call)?;
    let names = std::fs::read_dir("/etc")
        .map(|entries| entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect::<Vec<String>>());
    // A host without /etc has nothing to show of it.
    let names = names.unwrap_or_default();
    let wanted = FromHost {
        paths: listed(call, "paths").into_iter().map(PathBuf::from).collect(),
        etc: backends::shown_of_etc(&names).into_iter().map(str::to_owned).collect(),
        limit: max_size(call)?,
    };
    let image = store(call)?.from_host(&name, &wanted).map_err(|error| failure(&error))?;
    made(call, &[image])
}

fn debian(call: &mut Call<'_>) -> Result<u8, Failure> {
    let name = name(call)?;
    let packages = listed(call, "packages");
    if packages.is_empty() {
        return Err(missing("--packages is missing", "name packages, as `--packages python3,git`"));
    }
    let suite = call.parsed.value("suite").map(|suite| suite.to_string_lossy().into_owned());
    let wanted = Debian { packages, suite, limit: max_size(call)? };
    let image = store(call)?.debian(&name, &wanted).map_err(|error| failure(&error))?;
    made(call, &[image])
}
