//! `fumehood mcp fetch`: a server that a registry's client would fetch at each start, fetched once.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use gateway::mcp::containers::{Container, Refused};
use gateway::mcp::packages::{self, FromRegistry, Package};
use gateway::mcp::servers::Server;
use live::template::{Store, Tools};
use serde_json::json;

use registry::PullOptions;

use super::args::{Flag, Positionals, To, closest, usage};
use super::ask::asked_layers;
use super::flags::POLICY;
use super::image::store;
use super::image_pull::{REGISTRY, wanted};
use super::spec::{Call, Spec};
use crate::mcp::{fetched, pulled, servers, unfetched_failure, unfit_failure};
use crate::ui::{Failure, REFUSED, count};
use sandbox::PolicyLayer;
use sandbox::fault::{Fault, show_bytes, show_text};
use sandbox::state::State;

const ACCEPT: &[Flag] =
    &[Flag::new("accept", Some("sha256:HEX"), To::Ours, "Take the image of this digest in place of what was pinned")];

pub(super) const FETCH: Spec = Spec {
    path: &["mcp", "fetch"],
    about: "Fetch an MCP server once that `npx`, `uvx` or `docker run` would fetch at each start",
    usage: "NAME -p POLICY [--accept DIGEST]",
    more: "NAME is a server of [mcp.servers] whose command is `npx`, `uvx`, `docker run`, `podman run` or the like.\n\
           A package is fetched by pip or npm in a sandbox that reaches your registry alone, and none of its code runs meanwhile:\n\
           wheels alone, no install scripts. What was installed is pinned by its sum. `fumehood template ls` lists it; to take a\n\
           newer version, remove it by `fumehood template rm` and fetch again.\n\
           An image is pulled into the store as by `fumehood image pull`, and pinned by its digest. Where its name means another\n\
           one later, that is shown, and taken with `--accept DIGEST` alone. Folders that its entry names are granted by the\n\
           server's own policy or not at all: the lines to add are told, and without them it is not started.\n\
           Both are started by the gateway without a registry.\n\
           Exit code 0, 125 for a failure of ours, 126 if there is nothing that could be fetched, an image is refused or another\n\
           one than was pinned, or no sandbox can hold pip or npm here.",
    tables: &[POLICY, ACCEPT, REGISTRY],
    words: Positionals::Mixed(1),
    hidden: false,
    run: fetch,
};

fn fetch(call: &mut Call<'_>) -> Result<u8, Failure> {
    let layers = asked_layers(call, REFUSED)?;
    let loaded = crate::load::policy(&layers, call.environment)?;
    let all = servers(&loaded, call.environment)?;
    let server = chosen(call, &all)?;
    match packages::of(server) {
        Some(Ok(FromRegistry::Package(package))) => fetch_package(call, server, &package),
        Some(Ok(FromRegistry::Image(container))) => fetch_image(call, server, &container),
        Some(Err(why)) => Err(refused(server, "it cannot be fetched once", why)),
        None => {
            let (why, fix) = ("it is started as it is written, without a registry", "leave it as it is");
            let why = vec![Refused { why: why.to_owned(), fix: fix.to_owned() }];
            Err(refused(server, "there is nothing to fetch", why))
        }
    }
}

fn fetch_package(call: &mut Call<'_>, server: &Server, package: &Package) -> Result<u8, Failure> {
    State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    let (folder, _) = call.environment.state.state().map_err(|error| Failure::own(error.fault()))?;
    let (store, tools) = (Store::new(&folder), Tools::new(&call.environment.caller));
    let made = fetched::fetch(&store, package, Path::new(&server.from), &tools);
    let made = made.map_err(|unfit| unfit_failure(&unfit, &server.name))?;
    made.template.check().map_err(|error| Failure::own(error.fault()))?;
    let template = &made.template;
    super::template::tell_weakened(call, template);
    if call.json {
        call.console.json(&json!({
            "schema": 1, "server": server.name, "template": template.name, "installed": template.installed,
            "content": template.content, "program": made.program,
        }))?;
        return Ok(0);
    }
    let packages = count(u64::try_from(template.installed.len()).unwrap_or(u64::MAX), "package", "packages");
    let sum = template.content.get(..12).unwrap_or_default();
    let own = own_version(&package.specs, &template.installed);
    call.console.data(
        format!(
            "{}: {own}, {packages}, content {sum}, template {}\n",
            show_text(&server.name),
            show_text(&template.name)
        )
        .as_bytes(),
    )?;
    Ok(0)
}

fn fetch_image(call: &mut Call<'_>, server: &Server, container: &Container) -> Result<u8, Failure> {
    // A mistake in the server's own policy is told before anything is pulled.
    let own = crate::load::policy(&[PolicyLayer::Document(server.policy.clone())], call.environment)?.policy;
    let state = State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    let wanted = PullOptions { platform: container.platform.clone(), ..wanted(call, container.image.clone())? };
    let accepted = call.parsed.value("accept").map(|digest| show_bytes(digest.as_bytes()));
    let made = pulled::fetch(&state, &store(call)?, container, &wanted, accepted.as_deref());
    let made = made.map_err(|unfetched| unfetched_failure(&unfetched, &server.name))?;
    let (unmet, unset) = (made.unmet(&own), made.unset(&own));
    if call.json {
        call.console.json(&json!({
            "schema": 1, "server": server.name, "image": made.image, "digest": made.digest, "program": made.argv,
            "unmet": unmet, "unset": unset,
        }))?;
        return Ok(0);
    }
    for line in &unmet {
        call.console.eprint(&format!("fumehood: not started yet: {}\n", show_text(line)));
    }
    for name in &unset {
        let name = show_text(name);
        call.console.eprint(&format!(
            "note: `-e {name}`: the entry's `env` does not set it; `env.pass = [\"{name}\"]` in its policy lets yours in\n"
        ));
    }
    let (name, image) = (show_text(&server.name), show_text(&made.image));
    call.console.data(format!("{name}: {image}, {}\n", made.digest).as_bytes())?;
    Ok(0)
}

/// The server's own package among those that were installed.
fn own_version(specs: &[String], installed: &[String]) -> String {
    let plain = |text: &str| text.to_ascii_lowercase().replace('_', "-");
    let name = |text: &str| {
        let bare = text.get(1..).and_then(|rest| rest.split(['@', '=', '<', '>', '~', '!', '[', ' ']).next());
        plain(text.get(..1).unwrap_or_default()) + &plain(bare.unwrap_or_default())
    };
    let wanted = specs.first().map(|spec| name(spec)).unwrap_or_default();
    let found = installed.iter().find(|one| name(one) == wanted);
    show_text(found.map_or(wanted.as_str(), String::as_str))
}

fn chosen<'a>(call: &Call<'_>, all: &'a [Server]) -> Result<&'a Server, Failure> {
    let fetchable =
        || all.iter().filter(|server| matches!(packages::of(server), Some(Ok(_)))).map(|one| one.name.as_str());
    let names = fetchable().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let known =
        if names.is_empty() { "the policy has no server that a registry is asked for".to_owned() } else { names };
    let Some(word) = call.parsed.words.first() else {
        let what = "no server was named".to_owned();
        return Err(Failure::own(usage("mcp.fetch/unknown", what, "NAME is missing".to_owned(), known)));
    };
    let typed = show_bytes(word.as_bytes());
    all.iter().find(|server| server.name == typed).ok_or_else(|| {
        let fix = closest(&typed, fetchable()).map_or(known, |near| format!("`fumehood mcp fetch {near}`"));
        let what = format!("the policy has no server `{typed}`");
        Failure::Faults {
            code: REFUSED,
            faults: vec![usage("mcp.fetch/unknown", what, "servers are those of [mcp.servers]".to_owned(), fix)],
        }
    })
}

fn refused(server: &Server, what: &str, refused: Vec<Refused>) -> Failure {
    let fault = |Refused { why, fix }| Fault {
        id: "mcp.fetch/refused",
        what: format!("the server `{}`: {what}", server.name),
        place: server.from.clone(),
        why,
        fix,
    };
    Failure::Faults { code: REFUSED, faults: refused.into_iter().map(fault).collect() }
}
