//! The programs that are measured: short, the same on every tier, and of what every system has.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use sandbox::{PolicyLayer, Workload};
use sys::command::Command;
use sys::pidfd::End;

use crate::program::code;
use crate::run::trial::answer;

/// The longest that a program may take on the host.
const LIMIT: Duration = Duration::from_secs(30);
/// Bytes that `dd` copies one by one: a read and a write each.
const COPIED: u32 = 100_000;
const FILES: u32 = 500;
const CONNECTIONS: u32 = 50;
/// The name of our server inside.
const NAME: &str = "bench.test";

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The shortest program that prints a number.
    Start,
    /// The same in Python.
    Python,
    /// System calls that do nothing.
    Calls,
    /// Files are made and removed.
    Files,
    /// Requests to a server by its name, each over a connection of its own.
    Connections,
}

impl Work {
    pub(super) const ALL: [Self; 5] = [Self::Start, Self::Python, Self::Calls, Self::Files, Self::Connections];

    /// What one number is divided by.
    pub(super) const fn steps(self) -> u32 {
        match self {
            Self::Start | Self::Python => 1,
            Self::Calls => COPIED * 2,
            Self::Files => FILES,
            Self::Connections => CONNECTIONS,
        }
    }

    fn argv(self, to: (&str, u16)) -> Vec<String> {
        let sh = |text: String| ["/bin/sh", "-c", &text].map(str::to_owned).to_vec();
        match self {
            Self::Start => sh("echo $((6 * 7))".to_owned()),
            Self::Python => ["python3", "-c", "print(6 * 7)"].map(str::to_owned).to_vec(),
            Self::Calls => sh(format!("dd if=/dev/zero of=/dev/null bs=1 count={COPIED} 2>/dev/null")),
            Self::Files => sh(format!(
                "cd \"${{TMPDIR:-/tmp}}\" && i=0; while [ $i -lt {FILES} ]; do : >fh-bench-$i; i=$((i + 1)); done; rm fh-bench-*"
            )),
            Self::Connections => {
                let (host, port) = to;
                let text = format!(
                    "import socket, time\nbegin = time.perf_counter()\nfor i in range({CONNECTIONS}):\n    s = socket.create_connection(('{host}', {port}), 9)\n    \
                     s.sendall(b'GET / HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n')\n    while s.recv(4096): pass\n    s.close()\n\
                     print('ms', (time.perf_counter() - begin) * 1000)"
                );
                ["python3", "-c", &text].map(str::to_owned).to_vec()
            }
        }
    }

    /// What is run inside.
    ///
    /// # Errors
    /// The backend takes no such program.
    pub(super) fn inside(self, backend: &str) -> Result<Workload, String> {
        if !matches!(backend, "monty" | "quickjs" | "wasm") {
            return Ok(Workload::Argv(self.argv((NAME, 80)).into_iter().map(Into::into).collect()));
        }
        match self {
            Self::Start => answer(backend).map_err(|stop| stop.sentence()),
            Self::Python if backend == "monty" => {
                code("python", b"print(6 * 7)".to_vec(), Vec::new()).map_err(|stop| stop.sentence())
            }
            Self::Python | Self::Calls | Self::Files | Self::Connections => {
                Err("a program of this backend has no such thing".to_owned())
            }
        }
    }

    /// What its policy has beside the caller's.
    ///
    /// # Errors
    /// There is no server to reach.
    pub(super) fn clauses(self, served: Option<&Served>) -> Result<Vec<PolicyLayer>, String> {
        if self != Self::Connections {
            return Ok(Vec::new());
        }
        let port = served.ok_or(NO_SERVER)?.port;
        let rule = format!("net.allow=[{{ host = \"{NAME}\", ports = [80], address = \"127.0.0.1:{port}\" }}]");
        Ok(["net.mode=allow".to_owned(), rule].map(PolicyLayer::Set).to_vec())
    }

    /// Milliseconds that a program told itself.
    pub(super) fn told(self, stdout: &str) -> Option<f64> {
        stdout.trim().strip_prefix("ms ")?.parse().ok().filter(|_| self == Self::Connections)
    }

    /// Milliseconds without any sandbox.
    ///
    /// # Errors
    /// The program is not there, or failed.
    pub(super) fn on_host(self, served: Option<&Served>) -> Result<f64, String> {
        let port = if self == Self::Connections { served.ok_or(NO_SERVER)?.port } else { 0 };
        let words = self.argv(("127.0.0.1", port));
        let program = if words.first().is_some_and(|word| word == "python3") {
            ["/usr/local/bin/python3", "/usr/bin/python3"]
                .into_iter()
                .find(|path| std::path::Path::new(path).exists())
                .ok_or("python3 is not there")?
        } else {
            "/bin/sh"
        };
        let command = Command::new(program).args(words.iter().skip(1)).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        let begin = Instant::now();
        let output = command.output(b"", 4096, LIMIT).map_err(|error| error.to_string())?;
        let took = begin.elapsed().as_secs_f64() * 1000.0;
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.end != End::Exited(0) {
            return Err("it failed on the host".to_owned());
        }
        Ok(self.told(&stdout).unwrap_or(took))
    }
}

const NO_SERVER: &str = "no server could be started on the host's loopback";

/// A server of the shortest answers, for as long as the process lives.
#[derive(Debug)]
pub(super) struct Served {
    port: u16,
}

impl Served {
    pub(super) fn begin() -> Option<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        let port = listener.local_addr().ok()?.port();
        let answer = move || {
            for mut stream in listener.incoming().flatten() {
                let mut head = [0; 1024];
                // One small request comes in one piece; what does not is answered all the same.
                let answered = stream.read(&mut head).and_then(|_| {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                });
                drop(answered);
            }
        };
        std::thread::Builder::new().name("fumehood-bench".to_owned()).spawn(answer).ok()?;
        Some(Self { port })
    }
}
