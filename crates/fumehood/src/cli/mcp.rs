//! `fumehood mcp ...`: the gateway before MCP servers.

use std::os::unix::ffi::OsStrExt;

use broker::http::{Keys, Listen};
use broker::mcp::Gateway;
use policy::ClauseId;

use super::args::{Flag, To, Words, usage};
use super::ask::{asked_layers, named, request};
use super::flags::{POLICY, RUN as PROGRAM, SAYING};
use super::request::{Ingredient, What};
use super::spec::{Call, Spec};
use super::target::{nothing, target};
use crate::fault::{Fault, show_bytes, show_path};
use crate::mcp::{Manner, gateway as make};
use crate::state::State;
use crate::ui::Failure;

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
    words: Words::Mixed(0),
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
           Each call is a run under the policy; results carry violations. What a call changes is kept aside until applied.\n\
           Exit code 0 at the end, 125 for a failure of ours, 126 if the policy is wrong.",
    tables: &[POLICY, SERVER],
    words: Words::Mixed(0),
    hidden: false,
    run: serve,
};

fn serve(call: &mut Call<'_>) -> Result<u8, Failure> {
    let layers = asked_layers(call, 126)?;
    let agent = named(call, "agent");
    let server = crate::mcp::own_server(&layers, call.world, &agent, call.parsed.has("apply"))?;
    broker::mcp::run::handler_over_stdio(server).map_err(no_runtime)?;
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

/// A run that ends with the process that started it, and without the limits of time and output that a preset means for
/// scripts: a server talks for as long as its session lasts.
pub(super) const UPSTREAM: Spec = Spec {
    path: &["mcp", "upstream"],
    about: "Run an upstream server (used by the gateway)",
    usage: "[FLAGS] -- CMD ARGS...",
    more: "",
    tables: &[POLICY, PROGRAM, SAYING],
    words: Words::EndFlags,
    hidden: true,
    run: upstream,
};

fn gateway(call: &mut Call<'_>) -> Result<u8, Failure> {
    let layers = asked_layers(call, 126)?;
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
    let gateway = make(&layers, call.world, Manner { strict_pins, eager: !call.parsed.has("lazy") })?;
    let served = match listen {
        None => broker::mcp::run::over_stdio(gateway, &agent),
        Some(listen) => over_http(call, gateway, &listen)?,
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
    let state = State::open(&call.world.state).map_err(|error| Failure::own(error.fault()))?;
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
    let voice = call.voice;
    Ok(broker::mcp::run::over_http(gateway, listen, keys, origins, |address| {
        voice.say(&format!(
            "fumehood: listening on {address}{}; the token is in {}",
            broker::mcp::front::http::PATH,
            show_path(&token)
        ));
    }))
}

fn upstream(call: &mut Call<'_>) -> Result<u8, Failure> {
    // The gateway's death is the server's: without it nobody would end this run.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).map_err(|errno| {
        Failure::own(Fault {
            id: "mcp/tie",
            what: "a server cannot be tied to its gateway".to_owned(),
            place: "prctl(PR_SET_PDEATHSIG)".to_owned(),
            why: errno.to_string().to_lowercase(),
            fix: "report this as a fault of fumehood".to_owned(),
        })
    })?;
    let what = target(&mut call.parsed, std::io::empty())?;
    if matches!(what, What::Nothing) {
        return Err(nothing("no program was named"));
    }
    let mut request = request(call, what)?;
    let loaded = super::load::policy(&request.layers, call.world)?;
    for clause in [ClauseId::LimitsWall, ClauseId::LimitsOutput] {
        if loaded.origins.of(clause).starts_with("preset ") {
            request.layers.push(Ingredient::Set(format!("{}=none", clause.path())));
        }
    }
    crate::run::run(request, call.world, call.voice)
}
