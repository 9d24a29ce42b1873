//! `fumehood tools serve`: the gate over HTTP, or over a pipe.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gate::call::Caller;
use gateway::engine::Engine;
use gateway::http::webhook::Webhook;
use gateway::http::{Keys, Listen, bind};
use gateway::pipe::Pipe;
use tokio::io::BufReader;
use tokio::signal::unix::{SignalKind, signal};

use super::args::{Flag, Positionals, To, usage};
use super::ask::{asked_layers, named};
use super::flags::POLICY;
use super::spec::{Call, Spec};
use crate::serve::{Commands, ToolServer, tool_server};
use crate::ui::{Failure, REFUSED};
use sandbox::fault::{Fault, show_bytes, show_path, show_text};
use sandbox::state::State;

const SERVE: &[Flag] = &[
    Flag::new(
        "listen",
        Some("WHERE"),
        To::Ours,
        "127.0.0.1:PORT (default 127.0.0.1:8731; 0 takes a free one), or unix:PATH",
    ),
    Flag::new(
        "stdio",
        None,
        To::Ours,
        "Speak lines of JSON on stdin and stdout instead, for the program that started us",
    ),
    Flag::new("answers", None, To::Ours, "With --stdio: that program sends answers too, where no person must answer"),
    Flag::new("agent", Some("NAME"), To::Ours, "Whose calls these are with --stdio; default local"),
    Flag::new("agent-key", Some("NAME=FILE"), To::Ours, "One more agent, with a token of its own; may be repeated")
        .many(),
    Flag::new("allow-origin", Some("ORIGIN"), To::Ours, "A page that may send requests; may be repeated").many(),
    Flag::new(
        "tool",
        Some("NAME=FILE"),
        To::Ours,
        "A program that is the tool NAME: JSON in, JSON out; may be repeated",
    )
    .many(),
    Flag::new("sandbox", Some("POLICY"), To::Ours, "The policy that those programs run under; default strict"),
    Flag::new("webhook", Some("URL"), To::Ours, "Tell this URL of each call that waits for a person"),
    Flag::new(
        "webhook-secret-file",
        Some("FILE"),
        To::Ours,
        "The key of the webhook's signatures; made if it is missing",
    ),
];

pub(super) const SPEC: Spec = Spec {
    path: &["tools", "serve"],
    about: "Stand before tools that are called over HTTP or from a program",
    usage: "-p POLICY [--listen WHERE | --stdio] [--tool NAME=FILE]... [--webhook URL --webhook-secret-file FILE]",
    more: "Tokens lie in the state folder: `tools.token` for agents, `approvals.token` for people; both are made at first use.\n\
           docs/reference/http.md has every request. Ends with SIGINT or SIGTERM, or when the pipe is closed.\n\
           Exit code 0 at the end, 125 for a failure of ours, 126 if the policy is wrong.",
    tables: &[POLICY, SERVE],
    words: Positionals::Mixed(0),
    hidden: false,
    run: serve,
};

fn serve(call: &mut Call<'_>) -> Result<u8, Failure> {
    let layers = asked_layers(call, REFUSED)?;
    contradictions(call)?;
    let tools = Arc::new(tool_server(&layers, call.environment, commands(call)?)?);
    for note in tools.notes() {
        call.console.eprint(&format!("note: {note}\n"));
    }
    let webhook = webhook(call)?;
    let _telling = webhook.map(|webhook| tools.approvals().listen(None, Arc::new(webhook)));
    let runtime =
        gateway::mcp::run::runtime().map_err(|error| failed("the gate cannot run", "at its start", &error))?;
    let done = runtime.block_on(async {
        let done = if call.parsed.has("stdio") {
            over_pipe(call, Arc::clone(&tools)).await
        } else {
            over_http(call, Arc::clone(&tools)).await
        };
        tools.end().await;
        done
    });
    // Programs that still run end with us; a thread that reads stdin is not waited for.
    runtime.shutdown_background();
    done.map(|()| 0)
}

fn contradictions(call: &Call<'_>) -> Result<(), Failure> {
    let has = |flag| call.parsed.has(flag);
    let both = |one: &str, other: &str, why: &str| {
        let what = format!("`--{one}` and `--{other}`");
        Err(Failure::own(usage("usage/two-flags", what, why.to_owned(), "keep one".to_owned())))
    };
    for http in ["listen", "agent-key", "allow-origin"] {
        if has("stdio") && has(http) {
            return both("stdio", http, "nobody connects to a pipe");
        }
    }
    for pipe in ["answers", "agent"] {
        if !has("stdio") && has(pipe) {
            let what = format!("`--{pipe}` without `--stdio`");
            let why = "over HTTP tokens say who calls and who answers".to_owned();
            return Err(Failure::own(usage("usage/two-flags", what, why, "drop it, or see --agent-key".to_owned())));
        }
    }
    if has("webhook") != has("webhook-secret-file") {
        let what = "`--webhook` and `--webhook-secret-file` belong together".to_owned();
        let why = "what is not signed could come from anybody".to_owned();
        return Err(Failure::own(usage("usage/two-flags", what, why, "give both".to_owned())));
    }
    Ok(())
}

/// `NAME=FILE` of each such flag.
fn pairs(call: &Call<'_>, long: &str) -> Result<Vec<(String, PathBuf)>, Failure> {
    let dir = call.environment.cwd.clone().unwrap_or_default();
    let given = call.parsed.flags.iter().filter(|(flag, _)| flag.long == long);
    given
        .map(|(_, value)| {
            let bytes = value.as_deref().map(OsStr::as_bytes).unwrap_or_default();
            let cut = bytes.iter().position(|byte| *byte == b'=').filter(|cut| *cut > 0 && *cut + 1 < bytes.len());
            let parts = cut.and_then(|cut| Some((std::str::from_utf8(bytes.get(..cut)?).ok()?, bytes.get(cut + 1..)?)));
            match parts {
                Some((name, file)) => Ok((name.to_owned(), dir.join(Path::new(OsStr::from_bytes(file))))),
                None => Err(Failure::own(usage(
                    "usage/bad-value",
                    format!("`--{long} {}`", show_bytes(bytes)),
                    "it is not NAME=FILE".to_owned(),
                    format!("--{long} NAME=FILE"),
                ))),
            }
        })
        .collect()
}

fn commands(call: &Call<'_>) -> Result<Commands, Failure> {
    let mut files = BTreeMap::new();
    for (name, file) in pairs(call, "tool")? {
        if !gate::names::is_name(&name) {
            let why = "a tool's name has ASCII letters, digits and `_./-`".to_owned();
            return Err(Failure::own(usage(
                "usage/bad-value",
                format!("`--tool {name}=...`"),
                why,
                "--tool mail.send=send.py".to_owned(),
            )));
        }
        if !std::fs::metadata(&file).is_ok_and(|found| found.is_file()) {
            let why = "there is no such file".to_owned();
            let fault = usage(
                "usage/unreadable",
                format!("`--tool {name}`: {}", show_path(&file)),
                why,
                "check the path".to_owned(),
            );
            return Err(Failure::own(fault));
        }
        if let Some(first) = files.insert(name.clone(), file) {
            let what = format!("two programs for `{name}`");
            let why = format!("the first is {}", show_path(&first));
            return Err(Failure::own(usage("usage/two-flags", what, why, "keep one".to_owned())));
        }
    }
    let policy =
        call.parsed.value("sandbox").map_or_else(|| "strict".to_owned(), |policy| show_bytes(policy.as_bytes()));
    // A mistake in it is told now, and not to the first who calls.
    let loaded = crate::load::policy(&[sandbox::PolicyLayer::Document(policy.clone())], call.environment)?;
    Ok(Commands::new(files, (policy, loaded.policy.documents.0), call.environment))
}

fn webhook(call: &Call<'_>) -> Result<Option<Webhook>, Failure> {
    let (Some(url), Some(file)) = (call.parsed.value("webhook"), call.parsed.value("webhook-secret-file")) else {
        return Ok(None);
    };
    let file = call.environment.cwd.clone().unwrap_or_default().join(Path::new(file));
    let url = show_bytes(url.as_bytes());
    // The gate goes on without it, so this is all that the operator hears of it.
    let complain = Box::new(|why: &str| {
        if writeln!(std::io::stderr(), "note: {}", show_text(why)).is_err() {
            // Nobody reads.
        }
    });
    Webhook::new(&url, &file, complain).map(Some).map_err(|why| {
        Failure::own(Fault {
            id: "tools/webhook",
            what: format!("`{url}` cannot be told of calls"),
            place: show_path(&file),
            why,
            fix: "an https URL, and a file that only you may read; `http` on the loopback".to_owned(),
        })
    })
}

async fn over_pipe(call: &Call<'_>, tools: Arc<ToolServer>) -> Result<(), Failure> {
    let agent = named(call, "agent");
    let session =
        gateway::mcp::run::session_id().map_err(|why| failed_with("no session can be made", "getrandom(2)", why))?;
    let pipe = Pipe {
        hello: tools.about.clone(),
        caller: Caller { agent, session, key: None },
        answers: call.parsed.has("answers"),
        engine: tools,
    };
    let serving =
        gateway::pipe::serve(pipe, BufReader::with_capacity(1 << 16, tokio::io::stdin()), tokio::io::stdout());
    tokio::select! {
        done = serving => done.map_err(|error| failed("the pipe broke", "stdin and stdout", &error)),
        () = told_to_stop() => Ok(()),
    }
}

async fn over_http(call: &Call<'_>, tools: Arc<ToolServer>) -> Result<(), Failure> {
    let text = call.parsed.value("listen").map_or_else(|| "127.0.0.1:8731".to_owned(), |v| show_bytes(v.as_bytes()));
    let listen = Listen::parse(&text).map_err(|why| {
        let fix = "127.0.0.1:PORT, [::1]:PORT or unix:/PATH; a proxy with TLS for others".to_owned();
        Failure::own(usage("usage/bad-value", format!("`--listen {text}`"), why, fix))
    })?;
    let state = State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    let key = |error: gateway::http::KeyError| {
        let fix = "a file that only you may read (0600), or none: it is then made".to_owned();
        let place = show_path(&error.path);
        Failure::own(Fault { id: "tools/token", what: "a token cannot be used".to_owned(), place, why: error.why, fix })
    };
    let mut keys = Keys::open(state.path()).map_err(key)?;
    for (name, file) in pairs(call, "agent-key")? {
        keys.agent(&name, &file).map_err(key)?;
    }
    let origins = call.parsed.flags.iter().filter(|(flag, _)| flag.long == "allow-origin");
    let origins = origins.filter_map(|(_, value)| value.as_ref()?.to_str().map(str::to_owned)).collect();
    let listener = bind(&listen).await.map_err(|error| failed("cannot listen there", &text, &error))?;
    let stop = told_to_stop();
    call.console.eprint(&format!(
        "listening on {}\n  agents send the token in {}, people the one in {}\n",
        listener.address(),
        show_path(&state.path().join("tools.token")),
        show_path(&state.path().join("approvals.token")),
    ));
    let engine: Arc<dyn Engine> = tools;
    gateway::http::serve(listener, engine, keys, origins, stop)
        .await
        .map_err(|error| failed("the listener broke", &text, &error))
}

/// SIGINT or SIGTERM, heard from the call on, so that none is missed that comes as soon as we say that we are there. Where neither
/// can be heard, only the end of the pipe or SIGKILL ends us. Must be called within a tokio runtime.
pub(super) fn told_to_stop() -> impl Future<Output = ()> + Send + 'static {
    let heard = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async {
        let (Ok(mut interrupt), Ok(mut terminate)) = heard else { return std::future::pending().await };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}

fn failed(what: &str, place: &str, error: &std::io::Error) -> Failure {
    failed_with(what, place, error.to_string().to_lowercase())
}

fn failed_with(what: &str, place: &str, why: String) -> Failure {
    let fix = "another port or path, fewer open files, or a free descriptor".to_owned();
    Failure::own(Fault { id: "tools/serve", what: what.to_owned(), place: place.to_owned(), why, fix })
}
