//! Starts a contestant and waits for it. The harness is small and static, and the standard library starts
//! programs by `posix_spawn`, so that its own memory is not part of what is measured.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// No contestant may take longer: a hanging one must not stand beside the next.
const LIMIT: Duration = Duration::from_secs(30);

/// A command with the little environment that all contestants get.
#[derive(Clone, Debug)]
pub struct Line {
    /// Program and arguments.
    pub words: Vec<String>,
    /// Names and values on top of `PATH`, `HOME` and `LANG`.
    pub env: Vec<(String, String)>,
}

impl Line {
    fn command(&self) -> Option<Command> {
        let (program, arguments) = self.words.split_first()?;
        let mut command = Command::new(program);
        command.args(arguments).env_clear().stdin(Stdio::null());
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", "/root").env("LANG", "C.UTF-8");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Some(command)
    }
}

/// Milliseconds from the start to the end of one run, `None` when it failed.
pub fn timed(line: &Line) -> Option<f64> {
    let mut command = line.command()?;
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let mut child = command.spawn().ok()?;
    let status = child.wait().ok()?;
    let took = begin.elapsed();
    (status.success() && took < LIMIT).then_some(took.as_secs_f64() * 1e3)
}

/// What one run printed; the error text when it failed.
pub fn output(line: &Line) -> Result<String, String> {
    let mut command = line.command().ok_or("an empty command")?;
    let done = command.output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() {
        Ok(text(&done.stdout))
    } else {
        Err(format!("{}: {} {}", shown(done.status), text(&done.stderr), text(&done.stdout)))
    }
}

fn shown(status: ExitStatus) -> String {
    status.to_string()
}

/// Starts a run that goes on while it is looked at.
pub fn started(line: &Line) -> Option<Child> {
    let mut command = line.command()?;
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

/// One process below another, as the kernel tells it.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its id in our namespace.
    pub pid: u32,
    parent: u32,
    /// The name that the kernel shows.
    pub name: String,
}

/// A process and all below it.
pub fn tree(top: u32) -> Vec<Process> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name stands in parentheses and may hold anything; the parent is the second word behind it.
        let (Some(open), Some(close)) = (stat.find('('), stat.rfind(')')) else { continue };
        let name = stat.get(open + 1..close).unwrap_or_default().to_owned();
        let parent = stat.get(close + 1..).and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0);
        all.push(Process { pid, parent, name });
    }
    let mut found: Vec<Process> = all.iter().filter(|process| process.pid == top).cloned().collect();
    let mut next = 0;
    while let Some(pid) = found.get(next).map(|process| process.pid) {
        found.extend(all.iter().filter(|process| process.parent == pid && process.pid != pid).cloned());
        next += 1;
    }
    found
}

/// Memory of processes in KiB.
#[derive(Clone, Copy, Default)]
pub struct Memory {
    /// The proportional share of all that is mapped, pages of files among it.
    pub share: f64,
    /// Of it what no file holds, which the kernel cannot take back without swapping.
    pub own: f64,
}

/// What a process holds.
pub fn memory(pid: u32) -> Option<Memory> {
    let rollup = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("smaps_rollup")).ok()?;
    let of = |name: &str| -> Option<f64> {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").trim().parse().ok()
    };
    Some(Memory { share: of("Pss:")?, own: of("Pss_Anon:")? + of("Pss_Shmem:")? })
}
