//! `fumehood serve`: live sandboxes over HTTP.

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use live::Home;
use live::create::{Created, Layer, Request};
use live::pool::{self, Pool};
use live::words::Info;
use policy::units::{Bytes, UnitError};
use registry::PullOptions;
use sandbox::Environment;
use sandbox::fault::{Fault, show_bytes};
use sandbox::state::State;
use server::answer::{Problem, refused};
use server::app::AppState;
use server::backend::{Images, SandboxRequest};
use server::folder::{Create, Folder};
use server::http::{Listen, Server, Settings, TlsFiles, bind, serve};
use server::keys::Keys;
use server::traces::{Traces, Unfit};

use super::approvals::Served;
use super::args::{Flag, Positionals, To, usage};
use super::docker::LocalImages;
use super::image_pull::credentials;
use super::keys;
use super::serve::told_to_stop;
use super::spec::{Call, Spec};
use super::systemd;
use crate::ui::Failure;

const SERVE: &[Flag] = &[
    Flag::new(
        "listen",
        Some("WHERE"),
        To::Ours,
        "IP:PORT (default 127.0.0.1:7710; 0 takes a free one); with TLS also one that others reach",
    ),
    Flag::new("tls-cert", Some("FILE"), To::Ours, "Encrypt by this certificate (PEM, with those up to its root)"),
    Flag::new("tls-key", Some("FILE"), To::Ours, "Its key (PEM), not readable by everybody"),
    Flag::new("socket", Some("PATH"), To::Ours, "Also a unix socket, made 0600"),
    Flag::new(
        "docker-socket",
        Some("PATH"),
        To::Ours,
        "Also a unix socket for Docker's clients (DOCKER_HOST), made 0600",
    ),
    Flag::new("docker-ceiling", Some("POLICY"), To::Ours, "The policy that no container of it exceeds"),
    Flag::new(
        "image-mirror",
        Some("HOST[:PORT][/PATH]"),
        To::Ours,
        "Bring images from this registry instead (`keys add --pull`, Docker's clients)",
    ),
    Flag::new("image-plain-http", None, To::Ours, "Bring them without TLS, from a registry of this machine alone"),
    Flag::new("image-max-size", Some("SIZE"), To::Ours, "The most that one may have packed, and unpack to (20G)"),
    Flag::new("pool", Some("N"), To::Ours, "Keep up to N sandboxes ready of what was asked for lately; default 0"),
    Flag::new("pool-memory", Some("SIZE"), To::Ours, "Most memory of those that are ready; default 512M"),
    Flag::new("domain", Some("NAME"), To::Ours, "A name of which every PORT-ID.NAME leads here, e.g. box.example"),
];

pub(super) const SPEC: Spec = Spec {
    path: &["serve"],
    about: "Serve live sandboxes over HTTP, to E2B's clients and to your own",
    usage: "[--listen WHERE] [--tls-cert FILE --tls-key FILE] [--socket PATH] [--docker-socket PATH] [--domain NAME] [--pool N]",
    more: "Clients of E2B need three variables: E2B_API_URL and E2B_SANDBOX_URL (where this listens) and E2B_API_KEY (`fumehood\n\
           keys add`). Sandboxes outlive the server: the next one finds them all. `/v1/openapi.json` lists our own requests.\n\
           Started by systemd with a socket it listens on that one (LISTEN_FDS), and says when it is ready (NOTIFY_SOCKET).\n\
           Ends with SIGINT or SIGTERM. Exit code 0 at the end, 125 for a failure of ours.",
    tables: &[SERVE],
    words: Positionals::Mixed(0),
    hidden: false,
    run,
};

/// The program that we are, whatever its file is called by now.
const OURSELVES: &str = "/proc/self/exe";
/// Most sandboxes that are kept ready.
const MAX_READY: usize = 1000;
/// So many files the server itself has open at most, where the host lets it: each connection is one, and a limit of 1,024 is usual.
const OPEN_FILES: u64 = 65_536;
/// Stack of a thread that only waits, bytes.
const REAPER_STACK: usize = 64 << 10;

/// Where it is to listen, for people.
fn places(listen: &Listen) -> String {
    let address = listen.address.map(|address| address.to_string());
    let files =
        [&listen.socket, &listen.docker].into_iter().flatten().map(|path| show_bytes(path.as_os_str().as_bytes()));
    address.into_iter().chain(files).collect::<Vec<_>>().join(", ")
}

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    sys::rlimit::raise_own_open_files(OPEN_FILES);
    let listen = listen(call)?;
    let place = places(&listen);
    let domain = call.parsed.value("domain").map(|name| show_bytes(name.as_bytes()));
    let keys = keys::open(call)?;
    let state = State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    let home = Home::new(&state).map_err(|error| Failure::own(error.fault()))?;
    let failed = |what: &str, place: &str, error: &std::io::Error| {
        let why = error.to_string().to_lowercase();
        let fix = "another port or path, fewer open files, or a free descriptor".to_owned();
        Failure::own(Fault { id: "serve/listen", what: what.to_owned(), place: place.to_owned(), why, fix })
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed("the server cannot run", "at its start", &error))?;
    let environment = Arc::new(sandboxed(call.environment));
    let pool = Arc::new(pool(call, &environment, keys.clone())?);
    let folder = Folder::new(home, creator(Arc::clone(&pool)));
    let settings = Settings { domain };
    let app = AppState::new(Arc::new(folder), keys, &environment, settings).map_err(|error| keys::unusable(&error))?;
    let app = app.with_approvals(Arc::new(Served((*environment).clone())));
    let app = match traces(call)? {
        Some(traces) => app.with_traces(traces),
        None => app,
    };
    let told = Arc::clone(&pool);
    let app = app.with_pool(Arc::new(move || told.status()));
    let images: Arc<dyn Images> = Arc::new(images(call, &environment)?);
    let server = Server::new(app.with_images(Arc::clone(&images)));
    let server = match &listen.docker {
        Some(_) => with_docker(call, server, images)?,
        None => server,
    };
    runtime.block_on(async {
        let listeners = bind(listen).await.map_err(|error| failed("cannot listen there", &place, &error))?;
        let told = told_to_stop();
        for address in listeners.addresses() {
            call.console.eprint(&format!("listening on {address}\n"));
        }
        systemd::notify(call.environment, "READY=1");
        let stop = async {
            told.await;
            systemd::notify(call.environment, "STOPPING=1");
        };
        serve(listeners, server, stop).await;
        Ok::<(), Failure>(())
    })?;
    runtime.shutdown_background();
    pool.stop();
    Ok(0)
}

/// The caller's images, and how registries are asked for others.
fn images(call: &Call<'_>, caller: &Environment) -> Result<LocalImages, Failure> {
    let environment = crate::environment::Environment { caller: caller.clone(), ..call.environment.clone() };
    let mirror = call.parsed.value("image-mirror").map(|value| show_bytes(value.as_bytes()));
    let (plain_http, credentials) = (call.parsed.has("image-plain-http"), credentials(&environment));
    let limit = size(call, "image-max-size")?;
    let registries = PullOptions { mirror, plain_http, credentials, limit, ..PullOptions::default() };
    Ok(LocalImages { environment, registries })
}

/// A size that a flag says.
fn size(call: &Call<'_>, flag: &str) -> Result<Option<u64>, Failure> {
    let Some(text) = call.parsed.value(flag).map(|value| show_bytes(value.as_bytes())) else { return Ok(None) };
    let bad =
        |error: UnitError| Failure::own(usage("usage/bad-value", format!("`--{flag} {text}`"), error.why, error.fix));
    Ok(Some(Bytes::parse(&text).map_err(bad)?.0))
}

/// Docker's interface over the caller's images.
fn with_docker(call: &Call<'_>, server: Server, images: Arc<dyn Images>) -> Result<Server, Failure> {
    let ceiling = call.parsed.value("docker-ceiling").map(|value| named(call, value));
    let made = server.with_docker(images, ceiling);
    made.map_err(|problems| {
        let what = "Docker's clients cannot be served".to_owned();
        let why = problems.iter().map(Problem::line).collect::<Vec<_>>().join("; also ");
        let fix = "end another server, or see `fumehood policy check` for `--docker-ceiling`".to_owned();
        Failure::own(Fault { id: "serve/docker", what, place: "--docker-socket".to_owned(), why, fix })
    })
}

/// A preset by its name, a document by its absolute path: as a key's ceiling.
fn named(call: &Call<'_>, value: &std::ffi::OsStr) -> String {
    let text = show_bytes(value.as_bytes());
    if policy::presets::preset(&text).is_some() {
        return text;
    }
    call.environment.cwd.clone().unwrap_or_default().join(Path::new(value)).to_string_lossy().into_owned()
}

/// Where traces go, by OpenTelemetry's variables.
fn traces(call: &Call<'_>) -> Result<Option<Traces>, Failure> {
    let variable = |name: &'static str| call.environment.variable(name).map(|value| show_bytes(value.as_bytes()));
    Traces::of(&variable).map_err(|Unfit { variable, why, fix }| {
        let what = format!("traces cannot be sent as `{variable}` asks for");
        Failure::own(Fault { id: "serve/traces", what, place: variable.to_owned(), why, fix: fix.to_owned() })
    })
}

/// What is kept ready for those who have a key. What hinders it is told on stderr, by which a service manager keeps it.
fn pool(call: &Call<'_>, environment: &Environment, keys: Keys) -> Result<Pool, Failure> {
    let value = |name: &str| call.parsed.value(name).map(|value| show_bytes(value.as_bytes()));
    let wrong = |flag: &str, text: &str, why: String, fix: &str| {
        Failure::own(usage("usage/bad-value", format!("`--{flag} {text}`"), why, fix.to_owned()))
    };
    let mut settings = pool::Settings::default();
    if let Some(text) = value("pool") {
        let count = text.parse().ok().filter(|count| *count <= MAX_READY);
        let bad = || wrong("pool", &text, format!("it is no number up to {MAX_READY}"), "e.g. `--pool 8`");
        settings.count = count.ok_or_else(bad)?;
    }
    if let Some(memory) = size(call, "pool-memory")? {
        if value("pool").is_none() {
            let what = "`--pool-memory` belongs to `--pool`".to_owned();
            let why = "without `--pool N` nothing is kept ready".to_owned();
            return Err(Failure::own(usage("usage/two-flags", what, why, "give both, or neither".to_owned())));
        }
        settings.memory = memory;
    }
    let tell: pool::Tell = Box::new(|words| drop(std::io::stderr().write_all(format!("{words}\n").as_bytes())));
    let is_owner: pool::IsOwner = Box::new(move |owner| keys.has_owner(owner));
    Pool::new(Path::new(OURSELVES), environment, settings, (tell, is_owner))
        .map_err(|error| Failure::own(error.fault()))
}

/// The caller in a folder that stays: sandboxes outlive the one in which the server was started.
fn sandboxed(environment: &Environment) -> Environment {
    let mut theirs = Environment { cwd: Some(PathBuf::from("/")), ..environment.clone() };
    theirs.env.retain(|name, _| !systemd::OURS.iter().any(|ours| name == *ours));
    theirs
}

fn listen(call: &Call<'_>) -> Result<Listen, Failure> {
    let text = call.parsed.value("listen").map_or_else(|| "127.0.0.1:7710".to_owned(), |v| show_bytes(v.as_bytes()));
    let wrong = |why: &str| {
        let fix = "127.0.0.1:PORT or [::1]:PORT; for others a certificate, or a proxy with TLS".to_owned();
        Failure::own(usage("usage/bad-value", format!("`--listen {text}`"), why.to_owned(), fix))
    };
    let address: SocketAddr = text.parse().map_err(|_unparsed| wrong("it is no IP:PORT"))?;
    let path = |flag: &str| {
        let folder = call.environment.cwd.clone().unwrap_or_default();
        call.parsed.value(flag).map(|path| folder.join(Path::new(path)))
    };
    let tls = match (path("tls-cert"), path("tls-key")) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        (_, _) => {
            let what = "`--tls-cert` and `--tls-key` belong together".to_owned();
            let why = "a certificate is nothing without its key".to_owned();
            return Err(Failure::own(usage("usage/two-flags", what, why, "give both".to_owned())));
        }
    };
    if !address.ip().is_loopback() && tls.is_none() {
        return Err(wrong("others could reach it, and nothing is encrypted without --tls-cert and --tls-key"));
    }
    let inherited = systemd::sockets(call.environment).map_err(|why| {
        let what = "the sockets of systemd cannot be taken over".to_owned();
        let fix = "start it as resources/systemd/fumehood.service does, or without LISTEN_PID".to_owned();
        Failure::own(Fault { id: "serve/listen", what, place: "LISTEN_FDS".to_owned(), why, fix })
    })?;
    // Where a socket was handed over, no other is opened but by name.
    let address = (inherited.is_empty() || call.parsed.value("listen").is_some()).then_some(address);
    Ok(Listen { address, socket: path("socket"), docker: path("docker-socket"), tls, inherited })
}

fn creator(pool: Arc<Pool>) -> Create {
    Arc::new(move |wanted| {
        let owner = wanted.owner.clone();
        match pool.create(&owner, &request(wanted)) {
            Ok(Ok(created)) => Ok(adopted(created)),
            Ok(Err(refusal)) => Err(refused(refusal.code, &refusal.json)),
            Err(error) => {
                let fault = error.fault();
                let status = 500;
                Err(vec![Problem::of(status, fault.id, fault.what, &fault.why, &fault.fix)])
            }
        }
    })
}

fn request(wanted: SandboxRequest) -> Request {
    let SandboxRequest {
        owner: _,
        layers,
        no_links,
        name,
        labels,
        timeout_ms,
        idle_ms,
        template,
        begin,
        imports,
        from,
        given,
    } = wanted;
    let mut layers: Vec<Layer> = layers.into_iter().map(Layer::from).collect();
    layers.extend(timeout_ms.map(|ms| Layer::Flag("--timeout".to_owned(), format!("{ms}ms"))));
    Request { layers, no_links, name, labels, idle_ms, template, begin, imports, from, given, ..Request::default() }
}

/// A supervisor is a child of ours: when it ends, its zombie is taken away, by a thread that waits for nothing else.
fn adopted(created: Created) -> Info {
    let info = created.info.clone();
    let thread = std::thread::Builder::new().name("reaper".to_owned()).stack_size(REAPER_STACK);
    // Without a thread the zombie stays as long as we do, and nothing else.
    drop(thread.spawn(move || created.reap()));
    info
}
