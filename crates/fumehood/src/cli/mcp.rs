//! `fumehood mcp ...`: the gateway before MCP servers.

use std::os::unix::ffi::OsStrExt;

use gateway::http::{Keys, Listen};
use gateway::mcp::Gateway;

use super::args::{Flag, Positionals, To, usage};
use super::ask::{asked_layers, named};
use super::default_policy::with_default;
use super::flags::POLICY;
use super::spec::{Call, Spec};
use crate::mcp::{GatewayOptions, gateway as make};
use crate::ui::{Failure, REFUSED};
use sandbox::fault::{Fault, show_bytes, show_path};
use sandbox::state::State;

const GATEWAY: &[Flag] = &[
    Flag::new(
        "pins",
        Some("HOW"),
        To::Ours,
        "Tools at first sight: trust (recorded, default) or strict (held until accepted)",
    )
    .choices(&["trust", "strict"]),
    Flag::new("agent", Some("NAME"), To::Ours, "Whose calls these are, for limits and records; default local"),
    Flag::new("lazy", None, To::Ours, "Start servers when they are needed, not with the session"),
    Flag::new(
        "listen",
        Some("ADDR"),
        To::Ours,
        "Streamable HTTP on 127.0.0.1:PORT or unix:PATH instead of stdin and stdout",
    ),
    Flag::new("allow-origin", Some("ORIGIN"), To::Ours, "With --listen: pages that may send requests; may be repeated")
        .many(),
];

pub(super) const SERVE_GATEWAY: Spec = Spec {
    path: &["mcp", "gateway"],
    about: "Stand before MCP servers: judge each call, run each server in a sandbox",
    usage: "-p POLICY [--pins strict] [--listen ADDR]",
    more: "Speaks MCP on stdin and stdout until the client closes them; with --listen over HTTP at /mcp, to those who send\n\
           the token in `tools.token` of the state folder. Servers are those of [mcp.servers] in the policy, each inside\n\
           its own sandbox; tools are shown and called as [[tools.tool]] allows.\n\
           Exit code 0 at the end, 125 for a failure of ours, 126 if the policy is wrong.",
    tables: &[POLICY, GATEWAY],
    words: Positionals::Mixed(0),
    hidden: false,
    run: gateway,
};

const SERVER: &[Flag] = &[
    Flag::new("apply", None, To::Ours, "Offer the tool `apply`, which takes changes over into the workspace"),
    Flag::new("agent", Some("NAME"), To::Ours, "Whose calls these are, for limits and records; default local"),
];

pub(super) const SERVE: Spec = Spec {
    path: &["mcp", "serve"],
    about: "Be an MCP server: code, commands and files of a workspace, each call in a sandbox",
    usage: "-p POLICY [-w PATH] [--apply]",
    more: "Tools: run_code, run_command, read_file, write_file, list_files, diff, explain_denial, and apply if asked for.\n\
           Each call is a run under the policy; results carry violations. Workload a call changes is kept aside until applied.\n\
           Exit code 0 at the end, 125 for a failure of ours, 126 if the policy is wrong.",
    tables: &[POLICY, SERVER],
    words: Positionals::Mixed(0),
    hidden: false,
    run: serve,
};

fn serve(call: &mut Call<'_>) -> Result<u8, Failure> {
    let layers = with_default(asked_layers(call, REFUSED)?, call.environment)?;
    let agent = named(call, "agent");
    let server = crate::mcp::own_server(&layers, call.environment, &agent, call.parsed.has("apply"))?;
    gateway::mcp::run::handler_over_stdio(server).map_err(no_runtime)?;
    Ok(0)
}

fn no_runtime(why: String) -> Failure {
    Failure::own(Fault {
        id: "mcp/runtime",
        what: "the front door cannot run".to_owned(),
        place: "at its start".to_owned(),
        why,
        fix: "name a free address; raise the limits of threads and open files (ulimit -u, -n)".to_owned(),
    })
}

fn gateway(call: &mut Call<'_>) -> Result<u8, Failure> {
    let layers = asked_layers(call, REFUSED)?;
    let strict_pins = match call.parsed.value("pins").map(OsStrExt::as_bytes) {
        None | Some(b"trust") => false,
        Some(b"strict") => true,
        Some(other) => {
            let what = format!("`--pins {}`", show_bytes(other));
            return Err(Failure::own(usage(
                "usage/bad-value",
                what,
                "no such choice".to_owned(),
                "trust or strict".to_owned(),
            )));
        }
    };
    let agent = named(call, "agent");
    let listen = call.parsed.value("listen").map(|address| listen(&show_bytes(address.as_bytes()))).transpose()?;
    let made = make(&layers, call.environment, GatewayOptions { strict_pins, eager: !call.parsed.has("lazy") })?;
    for note in gateway::mcp::packages::notes(&made.servers) {
        call.console.eprint(&format!("note: {note}\n"));
    }
    let served = match listen {
        None => gateway::mcp::run::over_stdio(made, &agent),
        Some(listen) => over_http(call, made, &listen)?,
    };
    served.map_err(no_runtime)?;
    Ok(0)
}

fn listen(address: &str) -> Result<Listen, Failure> {
    Listen::parse(address).map_err(|why| {
        let what = format!("cannot listen on `{address}`");
        Failure::own(usage(
            "usage/bad-value",
            what,
            why,
            "`--listen 127.0.0.1:7171`, or `--listen unix:/run/x.sock`".to_owned(),
        ))
    })
}

fn over_http(call: &Call<'_>, gateway: Gateway, listen: &Listen) -> Result<Result<(), String>, Failure> {
    let state = State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    let keys = Keys::open(state.path()).map_err(|error| {
        Failure::own(Fault {
            id: "mcp/token",
            what: "the token of the gateway cannot be used".to_owned(),
            place: show_path(&error.path),
            why: error.why.clone(),
            fix: "make it 0600 and your own, or remove it: a new one is made".to_owned(),
        })
    })?;
    let origins = call.parsed.flags.iter().filter(|(flag, _)| flag.long == "allow-origin");
    let origins = origins.filter_map(|(_, value)| value.as_ref()).map(|value| show_bytes(value.as_bytes())).collect();
    let token = state.path().join("tools.token");
    let console = call.console;
    Ok(gateway::mcp::run::over_http(gateway, listen, keys, origins, |address| {
        console.eprint(&format!(
            "fumehood: listening on {address}{}; the token is in {}",
            gateway::mcp::front::http::PATH,
            show_path(&token)
        ));
    }))
}
