//! A live sandbox in whose agent's place a shell stands: it reads lines from the socket and writes to it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use sandbox::{Capabilities, Environment, Inputs, Options, PolicyLayer, Sandbox, Stdio, Workload};

/// A live sandbox of this tier, and the socket to its agent.
pub(crate) struct Live {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) sandbox: Sandbox,
    pub(crate) socket: BufReader<UnixStream>,
}

impl Live {
    /// With this folder for its state and all else.
    pub(crate) fn within(folder: tempfile::TempDir, set: &[&str]) -> Self {
        let variables = [("PATH", "/usr/bin:/bin".into()), ("FUMEHOOD_STATE", folder.path().join("state"))];
        let env: BTreeMap<OsString, OsString> =
            variables.into_iter().map(|(name, value)| (name.into(), value.into_os_string())).collect();
        let euid = rustix::process::geteuid().as_raw();
        let environment = Environment::new(Some(folder.path().to_owned()), env, euid);
        let host = Capabilities::probe();
        let mut layers = vec![PolicyLayer::Document("strict".to_owned())];
        layers.extend(set.iter().map(|set| PolicyLayer::Set((*set).to_owned())));
        let loaded = sandbox::load(&layers, &environment, Inputs::Now).unwrap();
        let shell: &'static [u8] = Box::leak(std::fs::read("/bin/sh").unwrap().into_boxed_slice());
        let planned = sandbox::plan(loaded, Workload::Agent(shell), &host).unwrap();
        let mut sandbox = sandbox::start(planned, &environment, &host, Options::new(Stdio::Socket)).unwrap();
        let socket = UnixStream::from(sandbox.take_socket().unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert!(sandbox.take_socket().is_none());
        Self { folder, sandbox, socket: BufReader::new(socket) }
    }

    /// What this line of shell answers.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.socket.get_mut().write_all(format!("{{ {line}; }} >&0 2>&0\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.socket.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}
