//! Rows against the language tier: a probe is a program in Python or JavaScript. The control is the host's own `python3` or `node`,
//! where it must work; inside it is given to the interpreter of the tier.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use sandbox::{Capabilities, Code, Environment, Error, Inputs, Interpreter, Options, PolicyLayer, Stdio, Workload};
use serde_json::Value;
use sys::channel::Interest;

use crate::judge::{Outcome, Verdict};
use crate::launch::{self, Start};
use crate::row::Row;
use crate::stage::{Stage, random};

/// A language that rows are written in.
struct Written {
    /// As rows and the tier name it.
    name: &'static str,
    /// The control's interpreter, and where it is looked for.
    program: &'static str,
    places: [&'static str; 2],
    /// What stands before the program's text.
    flags: &'static [&'static str],
    /// Prints a text.
    print: &'static str,
}

const PYTHON: Written = Written {
    name: "python",
    program: "python3",
    places: ["/usr/bin/python3", "/usr/local/bin/python3"],
    flags: &["-I", "-c"],
    print: "print",
};
const JAVASCRIPT: Written = Written {
    name: "javascript",
    program: "node",
    places: ["/usr/bin/node", "/usr/local/bin/node"],
    flags: &["-e"],
    print: "console.log",
};

impl Written {
    fn of(row: &Row) -> &'static Self {
        if row.probe == JAVASCRIPT.name { &JAVASCRIPT } else { &PYTHON }
    }

    /// A program for the interpreter of the tier.
    fn workload(&self, code: &str) -> Workload {
        let interpreter = Interpreter { name: self.name.to_owned(), candidates: vec![vec![self.program.into()]] };
        Workload::Code(Code {
            name: "attack".to_owned(),
            text: code.as_bytes().to_vec(),
            interpreter,
            args: Vec::new(),
        })
    }
}

/// The longest that a control takes whose program is one without an end.
const ENDLESS: Duration = Duration::from_secs(4);
/// The longest that another may take: the host's interpreters start slowly on a machine that has much to do.
const LIMIT: Duration = Duration::from_secs(30);
/// What a run may take that its own limits must end before.
const END: Duration = Duration::from_secs(20);

/// Who is attacked, and from where.
#[derive(Debug)]
pub struct Tier<'a> {
    /// The policy.
    pub layers: &'a [PolicyLayer],
    /// The caller.
    pub environment: &'a Environment,
    /// What is known of this host.
    pub host: &'a Capabilities,
    /// Folder for stages.
    pub base: &'a Path,
    /// The copy of our program that everybody may execute.
    pub program: &'a Path,
}

/// What one run of a program showed from outside.
struct Observation {
    /// The row's secret came out.
    told: bool,
    /// The file was made.
    made: bool,
    /// Somebody connected.
    heard: bool,
    /// It did not end by itself.
    endless: bool,
    /// Of a run inside: how it ended, in words.
    end: String,
}

impl Tier<'_> {
    /// Tries one row.
    #[must_use]
    pub fn judge(&self, row: &Row) -> Verdict {
        let mut verdict = Verdict::untried(row);
        let possible = |seen: &Observation| match row.scene.as_str() {
            "told" => seen.told,
            "made" => seen.made,
            "heard" => seen.heard,
            _ => seen.endless,
        };
        match self.once(row, false) {
            Ok(seen) if possible(&seen) => {
                verdict.control = format!("the host's {} does it", Written::of(row).program);
            }
            Ok(_) => {
                let program = Written::of(row).program;
                verdict.why = format!("control did not work here: the host's {program} does not do it either");
                return verdict;
            }
            Err(why) => {
                verdict.why = format!("control could not be run: {why}");
                return verdict;
            }
        }
        (verdict.result, verdict.why) = match self.once(row, true) {
            Ok(seen) if possible(&seen) => (Outcome::Escaped, seen.end),
            Ok(seen) => (Outcome::Held, seen.end),
            Err(why) => (Outcome::Skipped, format!("could not be run: {why}")),
        };
        verdict
    }

    fn once(&self, row: &Row, inside: bool) -> Result<Observation, String> {
        let words = |error: std::io::Error| error.to_string();
        let stage = Stage::make(self.base, self.environment.euid == 0).map_err(words)?;
        let token = random().map_err(words)?;
        let secret = stage.file("secret.txt", &token).map_err(words)?;
        let folder = stage.folder("open").map_err(words)?;
        let file = folder.join("made");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(words)?;
        listener.set_nonblocking(true).map_err(words)?;
        let port = listener.local_addr().map_err(words)?.port().to_string();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        // A program that only has to come to its end says the token as its two halves, so that its text is not taken for it.
        let (first, second) = token.split_at(token.len() / 2);
        let said = format!("{}('{first}' + '{second}')", Written::of(row).print);
        let fill = |code: &str| {
            code.replace("{secret}", &text(&secret))
                .replace("{file}", &text(&file))
                .replace("{port}", &port)
                .replace("{say}", &said)
        };
        let code = row.args.first().map(|code| fill(code)).unwrap_or_default();
        let (stdout, endless, end) = if inside {
            self.inside(row, &code)?
        } else {
            let before = row.args.get(1).cloned().unwrap_or_default();
            let limit = if row.scene == "endless" { ENDLESS } else { LIMIT };
            self.bare((Written::of(row), limit), &format!("{before}{code}"), &folder)?
        };
        let told = stdout.windows(token.len()).any(|part| part == token.as_bytes());
        Ok(Observation { told, made: file.exists(), heard: listener.accept().is_ok(), endless, end })
    }

    /// By the host's interpreter, as an ordinary user.
    fn bare(
        &self,
        (written, limit): (&Written, Duration),
        code: &str,
        folder: &Path,
    ) -> Result<(Vec<u8>, bool, String), String> {
        let place = written.places.into_iter().find(|path| Path::new(path).exists());
        let place = place.ok_or_else(|| format!("no {} on this host", written.program))?;
        let mut argv: Vec<OsString> = vec![self.program.into(), "__control".into(), "user".into(), place.into()];
        argv.extend(written.flags.iter().chain([&code]).map(OsString::from));
        let start = Start { argv, env: Vec::new(), directory: folder, stdin: None, fds: &[], limit, marker: "" };
        let observed = launch::run(&start, &mut |_| ()).map_err(|fault| fault.what)?;
        Ok((observed.stdout, observed.timed_out, String::new()))
    }

    /// By the interpreter of the tier; how it ended is what its report says.
    fn inside(&self, row: &Row, code: &str) -> Result<(Vec<u8>, bool, String), String> {
        let mut layers = self.layers.to_vec();
        layers.extend(row.set.iter().map(|(clause, value)| PolicyLayer::Set(format!("{clause}={value}"))));
        let stopped = |stop: Error| crate::ours::reasons(&stop);
        let loaded = sandbox::load(&layers, self.environment, Inputs::Now).map_err(stopped)?;
        let planned = sandbox::plan(loaded, Written::of(row).workload(code), self.host).map_err(stopped)?;
        let sandbox =
            sandbox::start(planned, self.environment, self.host, Options::new(Stdio::kept())).map_err(stopped)?;
        let (begun, end) = (Instant::now(), [Interest { fd: sandbox.ended(), write: false }]);
        let ended = sys::channel::wait(&end, Some(END)).is_ok_and(|ready| ready.first() == Some(&true));
        if !ended {
            sandbox.kill();
        }
        let finished = sandbox.wait().map_err(stopped)?;
        let report = finished.to_json();
        let part = |pointer: &str| report.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        if !matches!(part("/outcome/kind").as_str(), "exited" | "limit") && ended {
            return Err(part("/outcome/message"));
        }
        let last = part("/stderr").lines().last().unwrap_or_default().to_owned();
        let end = format!("{} after {} ms; {last}", part("/outcome/message"), begun.elapsed().as_millis());
        Ok((finished.stdout.bytes, !ended, end.trim_end_matches("; ").to_owned()))
    }
}

/// A program in Python for the interpreter of the tier.
#[must_use]
pub fn python(code: &str) -> Workload {
    PYTHON.workload(code)
}
