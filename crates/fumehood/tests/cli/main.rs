//! The command line as users and programs meet it: a fresh directory and environment, then all of stdout, stderr and status.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails loudly")]

mod agents;
mod approvals;
mod attack;
mod audit;
mod bench;
mod built;
mod built_again;
mod built_images;
mod changes;
mod choose;
mod commands;
mod completions;
mod devices;
mod doctor;
mod earlier;
mod ends;
mod engines;
mod events;
mod explain;
mod file_calls;
mod flag_tables;
mod full;
mod gc;
mod help;
mod hosts;
mod identity;
mod image_builds;
mod image_runs;
mod images;
mod language;
mod live;
mod live_by;
mod live_files;
mod live_reach;
mod load;
mod machine_net;
mod machines;
mod man;
mod mcp;
mod mcp_fetch;
mod mcp_http;
mod mcp_images;
mod mcp_move;
mod net;
mod net_check;
mod net_learn;
mod net_live;
mod net_tls;
mod net_trust;
mod oci;
mod plan;
mod policy;
mod pool;
mod replay;
mod report;
mod run;
mod scheduling;
mod secrets;
mod served;
mod shell;
mod spares;
mod steered;
mod streams;
mod templates;
mod tools;
mod units;
mod ways_around;

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The tiers as they are told, each once for each backend.
const TIERS: [&str; 11] = [
    "language",
    "language",
    "language",
    "process",
    "container",
    "container",
    "container",
    "container",
    "gvisor",
    "vm",
    "vm",
];

/// A fresh directory with a state folder, and nothing in the environment but what a test puts there.
struct Fixture {
    dir: tempfile::TempDir,
    env: Vec<(String, String)>,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("fh").tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        Self { dir, env: Vec::new() }
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    fn state(&self) -> PathBuf {
        self.path("state")
    }

    #[expect(clippy::disallowed_methods, reason = "a test starts the product as its users do")]
    fn command<A: AsRef<OsStr>>(&self, args: &[A]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fumehood"));
        command.args(args).env_clear().current_dir(self.path("work"));
        command.env("HOME", self.dir.path()).env("FUMEHOOD_STATE", self.state()).env("COLUMNS", "100");
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("FUMEHOOD_IN_PRIVATE_MOUNTS", "1");
        command.envs(self.env.iter().map(|(k, v)| (k, v))).stdin(Stdio::null());
        command
    }

    fn run<A: AsRef<OsStr>>(&self, args: &[A]) -> CommandOutput {
        self.said(&self.command(args).output().unwrap())
    }

    fn run_with_stdin(&self, args: &[&str], stdin: &[u8]) -> CommandOutput {
        let mut command = self.command(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let text = stdin.to_vec();
        // A program that reads nothing closes the pipe: that is no failure of the test.
        let writer = std::thread::spawn(move || pipe.write_all(&text).is_ok());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        self.said(&output)
    }

    fn said(&self, output: &Output) -> CommandOutput {
        let here = self.dir.path().to_str().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(here, "$DIR");
        let code = output.status.code().unwrap_or_else(|| 1000 + output.status.signal().unwrap_or(0));
        CommandOutput { code, out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// A Python program that has the product's path as its argument.
#[expect(clippy::disallowed_methods, reason = "a test starts the product as its users do")]
fn python(fixture: &Fixture, text: &str, product: &OsStr) -> Command {
    let mut command = Command::new("/usr/bin/env");
    let home = fixture.dir.path();
    command.args(["python3", "-c", text]).arg(product).env("FUMEHOOD_STATE", fixture.state()).env("HOME", home);
    command.current_dir(fixture.path("work")).stdin(Stdio::null());
    command
}

/// All that a call said.
#[derive(Debug, PartialEq, Eq)]
struct CommandOutput {
    /// Exit code; 1000 + n for signal n.
    code: i32,
    out: String,
    err: String,
}

impl CommandOutput {
    #[track_caller]
    fn is(&self, code: i32, out: &str, err: &str) {
        assert_eq!(self.out, out, "stdout of {self:?}");
        assert_eq!(self.err, err, "stderr of {self:?}");
        assert_eq!(self.code, code);
    }

    #[track_caller]
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// A shell script with the product as `$1`, in the work directory of `fixture`.
#[expect(clippy::disallowed_methods, reason = "some circumstances only a shell can make")]
fn script(script: &str, fixture: &Fixture) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_fumehood")]).env_clear().current_dir(fixture.path("work"));
    shell
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", fixture.dir.path())
        .env("FUMEHOOD_STATE", fixture.state());
    shell.stdin(Stdio::null());
    shell
}

/// A new terminal: the side that shows and types, and the name of the other one.
fn terminal() -> (std::fs::File, String) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    (master.into(), name)
}

/// The product at a terminal of its own; what it shows, and a way to type.
struct Terminal {
    child: Child,
    master: std::fs::File,
    /// Shown, but not looked at yet.
    rest: String,
}

impl Terminal {
    fn new(fixture: &Fixture, args: &[&str]) -> Self {
        let (master, name) = terminal();
        let side = || std::fs::File::options().read(true).write(true).open(&name).unwrap();
        let mut command = fixture.command(args);
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        Self { child, master, rest: String::new() }
    }

    /// Reads until this is shown; what was shown up to its end.
    fn until(&mut self, wanted: &str) -> String {
        use std::io::Read as _;
        let mut buffer = [0; 512];
        loop {
            if let Some((before, after)) = self.rest.split_once(wanted) {
                let seen = format!("{before}{wanted}");
                self.rest = after.to_owned();
                return seen;
            }
            let count = self.master.read(&mut buffer).unwrap_or_else(|error| panic!("{error}: {}", self.rest));
            assert!(count > 0, "{}", self.rest);
            self.rest.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }

    fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }
}

/// What a terminal shows of `args`, where `typed` was typed before the program was there.
fn on_terminal(fixture: &Fixture, args: &[&str], typed: &str) -> String {
    use std::io::{Read as _, Write as _};
    let (mut master, name) = terminal();
    let side = || std::fs::File::options().read(true).write(true).open(&name).unwrap();
    let mut command = fixture.command(args);
    command.stdin(side()).stdout(side()).stderr(side());
    master.write_all(typed.as_bytes()).unwrap();
    let mut child = command.spawn().unwrap();
    // The last writer but the child: its end is the end of what is read.
    drop(command);
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    // EIO: nobody has the other side open any more.
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    child.wait().unwrap();
    text
}

/// Every file of a directory tree.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut rest = vec![dir.to_owned()];
    while let Some(dir) = rest.pop() {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                rest.push(entry.path());
            } else {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}
