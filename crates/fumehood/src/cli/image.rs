//! `fumehood image`: what was packed elsewhere, kept as trees.

use std::path::Path;

use images::{ImageError, Listed, Store};
use sandbox::fault::show_text;
use sandbox::quantity;
use serde_json::json;

use super::args::{Flag, Positionals, To, usage};
use super::image_make::max_size;
use super::spec::{Call, Spec};
use crate::changes::state;
use crate::ui::{Failure, Role, Table, count};

pub(super) const IMPORT: Spec = Spec {
    path: &["image", "import"],
    about: "Unpack images from an OCI layout or a docker-archive into the store",
    usage: "PATH [--max-size SIZE]",
    more: "PATH is the folder or the uncompressed archive of an OCI layout, or what `docker save` writes; its names are kept.\n\
           Everything is judged: what leads out of the tree, devices, pipes and wrong digests refuse the image whole.\n\
           All files are yours afterwards; set-user-id and extended attributes are taken off, and counted.\n\
           Exit code 0; 126 if an image is refused, then nothing is kept; 125 if it cannot be read or kept.",
    tables: &[&[Flag::new(
        "max-size",
        Some("SIZE"),
        To::Ours,
        "The most that each may unpack to (20G, and 200 times its packed size)",
    )]],
    words: Positionals::Mixed(1),
    hidden: false,
    run: import,
};

pub(super) const LS: Spec = Spec {
    path: &["image", "ls"],
    about: "List the images of the store",
    usage: "",
    more: "Exit code 0, also when there is none. With --json: {schema, images}.",
    tables: &[],
    words: Positionals::Mixed(0),
    hidden: false,
    run: list,
};

pub(super) const RM: Spec = Spec {
    path: &["image", "rm"],
    about: "Remove images of the store",
    usage: "REF...",
    more: "A name goes alone, and takes the image with it if it was the last; a digest goes with all its names.\n\
           Exit code 0; 125 at the first that is not there or in use.",
    tables: &[],
    words: Positionals::Mixed(100),
    hidden: false,
    run: remove,
};

pub(super) const INSPECT: Spec = Spec {
    path: &["image", "inspect"],
    about: "Show what an image is and says, and read all of its tree again",
    usage: "REF",
    more: "REF is a name, or `sha256:` with the whole digest.\n\
           Exit code 0; 125 if there is no such image; 126 if its tree is not what was unpacked.",
    tables: &[],
    words: Positionals::Mixed(1),
    hidden: false,
    run: inspect,
};

pub(super) const EXPORT: Spec = Spec {
    path: &["image", "export"],
    about: "Write an image of the store as an OCI layout",
    usage: "REF PATH",
    more: "PATH is made: an archive if it ends in `.tar`, else a folder; `skopeo` and `podman load` read both.\n\
           One layer, uncompressed, in which all is root's: one tree gives one digest, wherever it is written.\n\
           Exit code 0; 125 if PATH is there or cannot be written; 126 if the image was changed in the store.",
    tables: &[],
    words: Positionals::Mixed(2),
    hidden: false,
    run: export,
};

pub(super) fn failure(error: &ImageError) -> Failure {
    Failure::judged(error.is_refusal(), error.fault())
}

pub(super) fn store(call: &Call<'_>) -> Result<Store, Failure> {
    Store::open(&state(call.environment)?).map_err(|error| failure(&error))
}

pub(super) fn missing(what: &str, fix: &str) -> Failure {
    Failure::own(usage("usage/no-image", "there is no image to work on".to_owned(), what.to_owned(), fix.to_owned()))
}

pub(super) fn references(call: &Call<'_>) -> Result<Vec<String>, Failure> {
    if call.parsed.words.is_empty() {
        return Err(missing("REF is missing", "`fumehood image ls` lists those that are there"));
    }
    Ok(call.parsed.words.iter().map(|word| word.to_string_lossy().into_owned()).collect())
}

fn import(call: &mut Call<'_>) -> Result<u8, Failure> {
    let Some(path) = call.parsed.words.first() else {
        return Err(missing(
            "PATH is missing",
            "`fumehood image import PATH`, with what `docker save` writes or an OCI layout",
        ));
    };
    let done = store(call)?.import(Path::new(path), max_size(call)?).map_err(|error| failure(&error))?;
    made(call, &done)
}

/// Says what was put into the store, and what is not as it was.
pub(super) fn made(call: &mut Call<'_>, done: &[Listed]) -> Result<u8, Failure> {
    if call.json {
        return call.console.json(&json!({ "schema": 1, "images": done })).map(|_| 0);
    }
    for image in done {
        let told = &image.about.told;
        let notes = [
            (told.owners, "entry had another owner", "entries had other owners"),
            (
                told.set_id,
                "entry lost set-user-id, set-group-id or its sticky bit",
                "entries lost set-user-id, set-group-id or their sticky bits",
            ),
            (told.attributes, "entry lost extended attributes", "entries lost extended attributes"),
            (told.left_out, "entry of the host was left out", "entries of the host were left out"),
        ];
        for (number, one, many) in notes.into_iter().filter(|(number, _, _)| *number > 0) {
            call.console.eprint(&format!("{}\n", count(number, one, many)));
        }
        if !told.unheeded.is_empty() {
            call.console.eprint(&format!("asked for, and not done here: {}\n", told.unheeded.join(", ")));
        }
    }
    let text = table(done).render(call.console.out, 0, call.console.columns);
    call.console.data(text.as_bytes()).map(|_| 0)
}

fn export(call: &mut Call<'_>) -> Result<u8, Failure> {
    let reference = references(call)?.swap_remove(0);
    let Some(path) = call.parsed.words.get(1) else {
        return Err(missing("PATH is missing", "`fumehood image export REF PATH`, with a PATH that is not there"));
    };
    let path = Path::new(path);
    let digest = store(call)?.export(&reference, path).map_err(|error| failure(&error))?;
    if call.json {
        let path = path.to_string_lossy();
        return call.console.json(&json!({ "schema": 1, "path": path, "digest": digest })).map(|_| 0);
    }
    call.console.data(format!("{digest}\n").as_bytes()).map(|_| 0)
}

fn list(call: &mut Call<'_>) -> Result<u8, Failure> {
    let all = store(call)?.list().map_err(|error| failure(&error))?;
    if call.json {
        return call.console.json(&json!({ "schema": 1, "images": all })).map(|_| 0);
    }
    let text = table(&all).render(call.console.out, 0, call.console.columns);
    call.console.data(text.as_bytes()).map(|_| 0)
}

fn table(images: &[Listed]) -> Table {
    let mut table = Table::new(&["name", "digest", "files", "size"]);
    for image in images {
        let digest = image.about.digest.get(..19).unwrap_or_default();
        let none = ["-".to_owned()];
        let names = if image.names.is_empty() { &none[..] } else { &image.names };
        for name in names {
            table.painted([
                (&show_text(name), Some(Role::Name)),
                (digest, None),
                (&image.about.files.to_string(), None),
                (&quantity::bytes(image.about.bytes), None),
            ]);
        }
    }
    table
}

fn remove(call: &mut Call<'_>) -> Result<u8, Failure> {
    let store = store(call)?;
    let named = references(call)?;
    for reference in &named {
        store.remove(reference).map_err(|error| failure(&error))?;
    }
    if call.json { call.console.json(&json!({ "schema": 1, "removed": named })).map(|_| 0) } else { Ok(0) }
}

fn inspect(call: &mut Call<'_>) -> Result<u8, Failure> {
    let store = store(call)?;
    let reference = references(call)?.swap_remove(0);
    let image = store.find(&reference).map_err(|error| failure(&error))?;
    store.lease_read_again(&reference).map_err(|error| failure(&error))?;
    if call.json {
        return call.console.json(&json!({ "schema": 1, "image": image })).map(|_| 0);
    }
    let about = &image.about;
    let words = |words: &Option<Vec<String>>| words.as_deref().unwrap_or_default().join(" ");
    let word = |word: &Option<String>| word.clone().unwrap_or_default();
    let mut lines = vec![
        ("digest", about.digest.clone()),
        ("tree", format!("{} (read again now)", about.tree)),
        ("files", about.files.to_string()),
        ("size", quantity::bytes(about.bytes)),
        ("layers", about.layers.len().to_string()),
        ("user", word(&about.config.user)),
        ("workdir", word(&about.config.working_dir)),
        ("entrypoint", words(&about.config.entrypoint)),
        ("cmd", words(&about.config.cmd)),
        ("not done here", about.told.unheeded.join(", ")),
    ];
    lines.extend(image.names.iter().map(|name| ("name", name.clone())));
    lines.extend(about.config.env.iter().flatten().map(|variable| ("env", variable.clone())));
    let mut table = Table::new(&["", ""]);
    for (what, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        table.painted([(*what, Some(Role::Weak)), (&show_text(value), None)]);
    }
    call.console.data(table.render(call.console.out, 0, call.console.columns).as_bytes()).map(|_| 0)
}
