//! `fumehood mcp fetch`: a server that a registry's client would fetch at each start, installed once.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use gateway::mcp::packages;
use gateway::mcp::servers::Server;
use live::template::{Store, Tools};
use serde_json::json;

use super::args::{Words, closest, usage};
use super::ask::asked_layers;
use super::flags::POLICY;
use super::spec::{Call, Spec};
use crate::mcp::{fetched, servers, unfit_failure};
use crate::ui::{Failure, count};
use sandbox::fault::{Fault, show_bytes, show_text};
use sandbox::state::State;

pub(super) const FETCH: Spec = Spec {
    path: &["mcp", "fetch"],
    about: "Install an MCP server that `npx` or `uvx` would fetch at each start",
    usage: "NAME -p POLICY",
    more: "NAME is a server of [mcp.servers] whose command is `npx`, `uvx` or the like. Its package is fetched by pip or npm in a sandbox\n\
           that reaches your registry alone, and none of its code runs meanwhile: wheels alone, no install scripts. What was\n\
           installed is pinned by its sum, and started by the gateway without a registry. `fumehood template ls` lists it; to take a newer version, remove it by\n\
           `fumehood template rm` and fetch again.\n\
           Exit code 0, 125 for a failure of ours, 126 if there is nothing that could be fetched or no sandbox can hold pip or npm here.",
    tables: &[POLICY],
    words: Words::Mixed(1),
    hidden: false,
    run: fetch,
};

fn fetch(call: &mut Call<'_>) -> Result<u8, Failure> {
    let layers = asked_layers(call, 126)?;
    let loaded = crate::load::policy(&layers, call.environment)?;
    let all = servers(&loaded, call.environment)?;
    let server = chosen(call, &all)?;
    let package = match packages::of(server) {
        Some(Ok(package)) => package,
        Some(Err(why)) => return Err(refused(server, "it cannot be installed once", why)),
        None => {
            return Err(refused(
                server,
                "there is nothing to fetch",
                "it is started as it is written, without a registry".to_owned(),
            ));
        }
    };
    State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    let (folder, _) = call.environment.state.state().map_err(|error| Failure::own(error.fault()))?;
    let (store, tools) = (Store::new(&folder), Tools::new(&call.environment.caller));
    let made = fetched::fetch(&store, &package, Path::new(&server.from), &tools);
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
            code: 126,
            faults: vec![usage("mcp.fetch/unknown", what, "servers are those of [mcp.servers]".to_owned(), fix)],
        }
    })
}

fn refused(server: &Server, what: &str, why: String) -> Failure {
    let fix = "leave it as it is, or write its command as `npx PACKAGE ARGS` or `uvx PACKAGE ARGS`; what is installed otherwise \
               is granted in the server's own policy (`fs.read`)";
    let fault = Fault {
        id: "mcp.fetch/refused",
        what: format!("the server `{}`: {what}", server.name),
        place: server.from.clone(),
        why,
        fix: fix.to_owned(),
    };
    Failure::Faults { code: 126, faults: vec![fault] }
}
