//! What an MCP server of the policy offers: it is started in its sandbox, asked, and ended.

use std::os::unix::ffi::OsStrExt as _;

use gate::call::Caller;
use gateway::engine::ToolUnavailable;
use gateway::mcp::upstream_pool::{Offered, UpstreamPool};
use policy::tools::Effect;

use crate::cli::args::{Flag, To, usage};
use crate::cli::ask::asked_layers;
use crate::cli::spec::Call;
use crate::mcp::{GatewayOptions, gateway};
use crate::ui::{Failure, REFUSED, Role};
use sandbox::fault::{Fault, show_bytes, show_text};

pub(super) const SERVER: &[Flag] =
    &[Flag::new("server", Some("NAME"), To::Ours, "What this MCP server of the policy offers; it is started for that")];

/// A server, its tools, and notes.
pub(super) type Offers = (String, Vec<Offered>, Vec<String>);

/// What the server offers that was named; none if none was named.
pub(super) fn offered(call: &Call<'_>) -> Result<Option<Offers>, Failure> {
    let Some(server) = call.parsed.value("server").map(|name| show_bytes(name.as_bytes())) else { return Ok(None) };
    let layers = asked_layers(call, REFUSED)?;
    let made = gateway(&layers, call.environment, GatewayOptions { strict_pins: false, eager: false })?;
    let names = made.servers.iter().map(|server| server.name.clone()).collect::<Vec<_>>().join(", ");
    let pool = UpstreamPool::new(made);
    let caller = Caller { agent: "local".to_owned(), session: "offered".to_owned(), key: None };
    // Told before it is waited for: such a client goes on asking for a minute, and says nothing.
    if let Some(advice) = pool.advice(&server) {
        let label = call.console.err.paint(Role::Weak, "note:");
        call.console.eprint(&format!("{label} {}. It is tried all the same\n", show_text(&advice)));
    }
    let runtime = gateway::mcp::run::runtime().map_err(|why| not_there(&server, why.to_string()))?;
    let found = runtime.block_on(async {
        let found = pool.offered(&server, &caller).await;
        pool.end_all().await;
        found
    });
    runtime.shutdown_background();
    match found {
        Ok((tools, notes)) => Ok(Some((server, tools, notes))),
        Err(ToolUnavailable::NoServer) => {
            let names = if names.is_empty() { "the policy names none in [mcp.servers]".to_owned() } else { names };
            let what = format!("the policy has no server `{server}`");
            Err(Failure::own(usage("usage/bad-value", what, "a server is named as in [mcp.servers]".to_owned(), names)))
        }
        Err(ToolUnavailable::NotThere(why)) => Err(not_there(&server, why)),
        Err(ToolUnavailable::Held | ToolUnavailable::Full) => {
            Err(not_there(&server, "it cannot be asked now".to_owned()))
        }
    }
}

fn not_there(server: &str, why: String) -> Failure {
    Failure::own(Fault {
        id: "tools.ls/server",
        what: format!("the server `{}` cannot be asked what it offers", show_text(server)),
        place: "at its start".to_owned(),
        why,
        fix: "look at its command and its own policy: `fumehood run -p POLICY -- COMMAND` shows all that it says"
            .to_owned(),
    })
}

/// What a tool says of itself, which is a hint and no promise.
pub(super) const fn says(tool: &Offered) -> &'static str {
    match tool.facts.effect {
        Some(Effect::Read) => "read",
        Some(Effect::Write) => "write",
        None => "nothing",
    }
}

/// The names of its arguments.
pub(super) fn arguments(tool: &Offered) -> Vec<&str> {
    let properties = tool.facts.input_schema.as_ref().and_then(|schema| schema.get("properties"));
    let properties = properties.and_then(serde_json::Value::as_object);
    properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

/// The first words of its description, on one line.
pub(super) fn summary(tool: &Offered, most: usize) -> String {
    let line = tool.description.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut text: String = line.chars().take(most).collect();
    if text.len() < line.len() {
        text.push('…');
    }
    show_text(&text)
}
