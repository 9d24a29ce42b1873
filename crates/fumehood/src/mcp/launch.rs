//! An upstream server in a sandbox of its own: its own policy, and nothing of our environment but what a run needs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use gateway::engine::BoxFuture;
use gateway::mcp::servers::{Server, Transport};
use gateway::mcp::upstream::process::how;
use gateway::mcp::upstream::{Ended, Launched, Program, ServerLauncher, StderrTail};
use live::template::Template;
use policy::{ClauseId, Policy};
use sandbox::{Environment, PolicyLayer, Sandbox, Sink, Stdin, Stdio, Workload};
use tokio::net::unix::pipe;

use super::pulled::Fetched;
use crate::run::in_process::{Runner, ended, is_needed, only_needed, quiet_report};
use crate::ui::{Failure, Palette};

/// Width of words that nobody shows in columns.
const WIDE: usize = 10_000;

/// What was fetched of a server, once.
#[derive(Clone, Debug)]
pub enum Origin {
    /// Packages.
    Template(Box<Template>),
    /// An image, which is its root.
    Image(Box<Fetched>),
}

/// Starts upstream servers.
#[derive(Clone, Debug)]
pub struct Launcher {
    runner: Runner,
    environment: Environment,
    /// By policy.
    asked: BTreeMap<String, ServerPolicy>,
    /// By server: what was fetched of it.
    fetched: BTreeMap<String, Origin>,
    /// What decides how the gateway's next start goes: its documents, and those of each server's policy. No server writes them.
    pub(super) documents: BTreeSet<PathBuf>,
}

/// What a server's policy says that its start depends on.
#[derive(Clone, Debug)]
struct ServerPolicy {
    policy: Policy,
    /// The variables of ours that it lets in.
    passed: Vec<OsString>,
    /// Limits that a preset means for scripts: a server talks for as long as its session lasts.
    unlimited: Vec<ClauseId>,
}

impl Launcher {
    /// A launcher for these servers of a gateway with these documents; each policy is read now, so that a mistake in it is told before
    /// a client waits.
    ///
    /// # Errors
    /// The mistakes of a policy.
    pub fn new(environment: &Environment, servers: &[Server], documents: &BTreeSet<PathBuf>) -> Result<Self, Failure> {
        let (mut asked, mut documents) = (BTreeMap::new(), documents.clone());
        for server in servers {
            if asked.contains_key(&server.policy) || matches!(server.transport, Transport::Url { .. }) {
                continue;
            }
            let loaded = crate::load::policy(&[PolicyLayer::Document(server.policy.clone())], environment)?;
            let preset = |clause: &ClauseId| loaded.origins.of(*clause).starts_with("preset ");
            let unlimited = [ClauseId::LimitsWall, ClauseId::LimitsOutput].into_iter().filter(preset).collect();
            // What its secrets are read from stays outside: only `env.pass` goes in.
            let sources = loaded.policy.secrets.values().flat_map(|secret| secret.variables());
            let passed = loaded.policy.env.pass.iter().map(String::as_str).chain(sources).map(OsString::from).collect();
            documents.extend(loaded.policy.documents.0.iter().cloned());
            asked.insert(server.policy.clone(), ServerPolicy { passed, unlimited, policy: loaded.policy });
        }
        let (runner, fetched) = (Runner::new(environment), BTreeMap::new());
        Ok(Self { runner, environment: environment.clone(), asked, fetched, documents })
    }

    /// The same with what was fetched of these servers, which their sandboxes are shown.
    #[must_use]
    pub fn with(self, fetched: BTreeMap<String, Origin>) -> Self {
        Self { fetched, ..self }
    }

    /// The policy of a server and the environment of its run. Values stay in the environment: a plan and the audit log hold
    /// what the policy says.
    fn circumstances(&self, server: &Server) -> (Vec<PolicyLayer>, Environment) {
        let asked = self.asked.get(&server.policy);
        let mut env = only_needed(&self.environment.env);
        for name in asked.iter().flat_map(|asked| &asked.passed) {
            if let Some(value) = self.environment.env.get(name) {
                env.insert(name.clone(), value.clone());
            }
        }
        // Whoever writes an entry is not the caller: what runs outside for a policy (the command of a secret) does not see them.
        let mut entries = BTreeMap::new();
        let mut layers = vec![PolicyLayer::Document(server.policy.clone())];
        match (self.fetched.get(&server.name), asked) {
            (Some(Origin::Template(template)), _) => layers.extend(template.layers()),
            (Some(Origin::Image(image)), Some(asked)) => layers.extend(image.layers(&asked.policy)),
            (Some(Origin::Image(_)), None) | (None, _) => {}
        }
        for (name, value) in &server.env {
            let flag = |name: &str, value: String| PolicyLayer::Flag { name: name.to_owned(), value };
            if is_needed(name) {
                layers.push(flag("--env", format!("{name}={value}")));
            } else {
                layers.push(flag("--pass-env", name.clone()));
                entries.insert(name.into(), value.into());
            }
        }
        let without = asked.iter().flat_map(|asked| &asked.unlimited);
        layers.extend(without.map(|clause| PolicyLayer::Set(format!("{}=none", clause.path()))));
        let mut environment = Environment::new(self.environment.cwd.clone(), env, self.environment.euid);
        environment.entries = entries;
        environment.documents.clone_from(&self.documents);
        let environment = environment.with_broker(self.environment.broker.clone()).with_images(self.environment.images);
        (layers, environment)
    }

    /// That what was fetched of a server is what it was, and that its policy gives what its entry asks for.
    fn check(&self, server: &Server) -> Result<(), String> {
        match self.fetched.get(&server.name) {
            None => Ok(()),
            Some(Origin::Template(template)) => template.check().map_err(|error| {
                let fault = error.fault();
                format!("{}; {}", fault.why, fault.fix)
            }),
            // The tree is compared with its digest when the run begins.
            Some(Origin::Image(image)) => {
                let asked = self.asked.get(&server.policy).ok_or("its policy was not read")?;
                let unmet = image.unmet(&asked.policy);
                if unmet.is_empty() { Ok(()) } else { Err(unmet.join("; ")) }
            }
        }
    }
}

impl ServerLauncher for Launcher {
    fn launch(&self, server: &Server) -> Result<Launched, String> {
        let Transport::Command { command, args } = &server.transport else {
            return Err("it is reached over HTTP, and not started".to_owned());
        };
        self.check(server)?;
        let said = |what: &str, why: &dyn std::fmt::Display| format!("{what}: {}", why.to_string().to_lowercase());
        let piped = || sys::channel::pipe().map_err(|error| said("it could not be started", &error));
        let ((stdin, to), (from, stdout), (words, stderr)) = (piped()?, piped()?, piped()?);
        let listened = |error: std::io::Error| said("it could not be listened to", &error);
        let argv = std::iter::once(command).chain(args).map(OsString::from).collect();
        let (layers, environment) = self.circumstances(server);
        let stdio = Stdio::Streams {
            stdin: Stdin::Descriptor(stdin),
            stdout: Sink::Descriptor(stdout),
            stderr: Sink::Descriptor(stderr),
        };
        let started = self.runner.with(environment).start(&layers, Workload::Argv(argv), stdio);
        let sandbox = started.map_err(|stop| {
            let words = StderrTail::of(&stop.text(Palette::PLAIN, WIDE)).last().unwrap_or_default();
            format!("{}: {words}", how(Some(i32::from(stop.code())), None))
        })?;
        Ok(Launched {
            stdin: Box::new(pipe::Sender::from_owned_fd(to).map_err(listened)?),
            stdout: Box::new(pipe::Receiver::from_owned_fd(from).map_err(listened)?),
            stderr: Box::new(pipe::Receiver::from_owned_fd(words).map_err(listened)?),
            program: Box::new(Inside(Some(sandbox))),
        })
    }
}

/// A server in its sandbox; none when its end was told.
struct Inside(Option<Sandbox>);

impl Program for Inside {
    fn wait(&mut self) -> BoxFuture<'_, Ended> {
        Box::pin(async move {
            if let Some(sandbox) = &self.0 {
                ended(sandbox).await;
            }
            match self.0.take().map(Sandbox::wait) {
                Some(Ok(finished)) => {
                    let outcome = &finished.report.outcome;
                    let (code, signal) = (outcome.exit_code(), outcome.signal);
                    let how = how(signal.is_none().then_some(code), signal);
                    Ended { how, said: quiet_report(&finished) }
                }
                Some(Err(stop)) => Ended { how: how(Some(125), None), said: Failure::from(stop).sentence() },
                None => Ended::default(),
            }
        })
    }

    fn terminate(&mut self) {
        const TERM: u8 = 15;
        if let Some(sandbox) = &self.0 {
            sandbox.signal(TERM);
        }
    }

    fn kill(&mut self) {
        if let Some(sandbox) = &self.0 {
            sandbox.kill();
        }
    }
}
