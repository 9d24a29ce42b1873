//! `fumehood template`: what sandboxes can have beside the host's own tools.

use std::path::Path;

use images::{Debian, ImageError};
use jiff::Timestamp;
use live::Home;
use live::template::{Source, Store, Template, TemplateError, Tools};
use policy::json::sha256_hex;
use policy::value::Root;
use serde_json::{Value, json};

use super::args::{Flag, Positionals, To, usage};
use super::spec::{Call, Spec};
use crate::ui::{Failure, Table, count};
use sandbox::PolicyLayer;
use sandbox::fault::show_text;
use sandbox::state::State;

/// What images of templates are called, each with a part of a digest of its list of packages.
const IMAGES: &str = "fumehood-template";

pub(super) const BUILD: Spec = Spec {
    path: &["template", "build"],
    about: "Make a template: packages and files that sandboxes are shown",
    usage: "NAME",
    more: "Without `-f`, NAME is one that ships with Fumehood: `code-interpreter-v1`.\n\
           Packages are fetched by pip and npm in sandboxes that reach your registry alone, and none of their code runs: wheels\n\
           alone, no install scripts. Packages of Debian (`packages.apt`) are an image, as by `fumehood image debian`, and the root\n\
           of its sandboxes. The same recipe is made once. Where it has `ready`, a sandbox of it is created and ended, and nothing\n\
           is kept unless `ready` succeeds there. Exit code 0, 125 if it could not be made, or 126 if no sandbox can hold pip or\n\
           npm here, or one of it did not begin.",
    tables: &[&[
        Flag::new("file", Some("FILE"), To::Ours, "The recipe (TOML)").short(b'f'),
        Flag::new("ready-timeout", Some("TIME"), To::Ours, "Until when `ready` must succeed (2m, which is the most)"),
    ]],
    words: Positionals::Mixed(1),
    hidden: false,
    run: build,
};

pub(super) const LS: Spec = Spec {
    path: &["template", "ls"],
    about: "List the templates that are there",
    usage: "",
    more: "",
    tables: &[],
    words: Positionals::Mixed(0),
    hidden: false,
    run: ls,
};

pub(super) const RM: Spec = Spec {
    path: &["template", "rm"],
    about: "Remove templates",
    usage: "NAME...",
    more: "One that a sandbox was made from stays as long as that lives. Exit code 0, or 125 if one could not be removed.",
    tables: &[],
    words: Positionals::Mixed(100),
    hidden: false,
    run: rm,
};

fn failure(error: &TemplateError) -> Failure {
    error.error().into()
}

/// Says which limits of its build this host held less strictly than is asked for.
pub(super) fn tell_weakened(call: &Call<'_>, template: &Template) {
    for weakened in &template.weakened {
        call.console.eprint(&format!("fumehood: weakened: {}", show_text(weakened)));
    }
}

fn store(call: &Call<'_>) -> Result<Store, Failure> {
    State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    let (folder, _) = call.environment.state.state().map_err(|error| Failure::own(error.fault()))?;
    Ok(Store::new(&folder))
}

/// The template of this name, for whoever creates a sandbox of it.
pub(super) fn find(call: &Call<'_>, name: &str) -> Result<Template, Failure> {
    store(call)?.find(name).map_err(|error| failure(&error))
}

fn names(call: &Call<'_>) -> Result<Vec<String>, Failure> {
    let names: Vec<String> = call.parsed.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if names.is_empty() {
        let (what, why) = ("there is no name of a template", "NAME is missing");
        let fix = "`fumehood template ls` lists those that are there".to_owned();
        return Err(Failure::own(usage("usage/no-template", what.to_owned(), why.to_owned(), fix)));
    }
    Ok(names)
}

fn shown(template: &Template) -> Value {
    json!({
        "name": template.name, "digest": template.digest, "installed": template.installed,
        "built": time(template), "image": template.image, "policy": template.recipe.policy, "weakened": template.weakened,
    })
}

fn time(template: &Template) -> String {
    if template.built_ms == 0 {
        return "-".to_owned();
    }
    Timestamp::from_millisecond(template.built_ms).map_or_else(|_| "-".to_owned(), |time| format!("{time:.0}"))
}

fn build(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (names, within_ms) = (names(call)?, super::live::time(call, "ready-timeout")?);
    let name = names.first().map(String::as_str).unwrap_or_default();
    let source = match call.parsed.value("file") {
        Some(file) => Source::file(Path::new(file)),
        None => Source::stock(name),
    };
    let source = with_debian(call, source.map_err(|error| failure(&error))?)?;
    let tools = Tools::new(&call.environment.caller);
    let store = store(call)?;
    let made = store.make(name, &source, &tools).map_err(|error| failure(&error))?;
    // Whoever waits for `ready` is not to be the first who learns that it never comes.
    if made.template().recipe.ready.is_some()
        && let Some(code) = super::live::tried(call, made.template(), within_ms)?
    {
        return Ok(code);
    }
    let template = made.keep().map_err(|error| failure(&error))?;
    tell_weakened(call, &template);
    if call.json {
        call.console.json(&json!({"schema": 1, "template": shown(&template)}))?;
        return Ok(0);
    }
    let packages = count(u64::try_from(template.installed.len()).unwrap_or(u64::MAX), "package", "packages");
    let digest = template.digest.get(..12).unwrap_or_default();
    call.console.data(format!("{} {digest}, {packages}\n", show_text(&template.name)).as_bytes())?;
    Ok(0)
}

/// The same with the image of its Debian packages, which is made once for a list of them.
fn with_debian(call: &Call<'_>, source: Source) -> Result<Source, Failure> {
    let mut packages = source.recipe().packages.apt.clone();
    if packages.is_empty() {
        return Ok(source);
    }
    let documents: Vec<_> = source.recipe().policy.iter().cloned().map(PolicyLayer::Document).collect();
    let root = crate::load::policy(&documents, call.environment)?.policy.fs.root;
    if root != Root::Host {
        return Err(Failure::own(usage(
            "usage/template-root",
            "the recipe has packages.apt, and a policy with another root".to_owned(),
            "the root of its sandboxes is the image of these packages, and there is one root".to_owned(),
            "name a policy without `fs.root`, or leave packages.apt out and put the packages into that image"
                .to_owned(),
        )));
    }
    packages.sort();
    packages.dedup();
    let store = super::image::store(call)?;
    let sum = sha256_hex(packages.join("\n").as_bytes());
    let name = format!("{IMAGES}:{}", sum.get(..16).unwrap_or_default());
    let image = match store.find(&name) {
        Ok(image) => image,
        Err(ImageError::None { .. }) => {
            let wanted = Debian { packages, ..Debian::default() };
            store.debian(&name, &wanted).map_err(|error| super::image::failure(&error))?
        }
        Err(error) => return Err(super::image::failure(&error)),
    };
    Ok(source.with_image(format!("{name}@{}", image.about.digest)))
}

fn ls(call: &mut Call<'_>) -> Result<u8, Failure> {
    let templates = store(call)?.list().map_err(|error| failure(&error))?;
    if call.json {
        let all: Vec<_> = templates.iter().map(shown).collect();
        call.console.json(&json!({"schema": 1, "templates": all}))?;
        return Ok(0);
    }
    let mut table = Table::new(&["name", "digest", "packages", "built"]);
    for template in &templates {
        let (packages, built) = (template.installed.len().to_string(), time(template));
        let digest = template.digest.get(..12).unwrap_or_default();
        table.painted([(&show_text(&template.name), None), (digest, None), (&packages, None), (&built, None)]);
    }
    let text = table.render(call.console.out, 0, call.console.columns);
    call.console.data(text.as_bytes())?;
    Ok(0)
}

fn rm(call: &mut Call<'_>) -> Result<u8, Failure> {
    let store = store(call)?;
    let state = State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    let live = Home::new(&state).and_then(|home| home.list(false)).map_err(|error| Failure::own(error.fault()))?;
    let live: Vec<(String, String)> = live.into_iter().map(|info| (info.id, info.template)).collect();
    for name in names(call)? {
        store.remove(&name, &live).map_err(|error| failure(&error))?;
    }
    Ok(0)
}
