//! The host's apt, asked for packages and all that they need: with its sources and its keys, and a state of its own, so that
//! nothing of the host is changed and no hook of the host runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode};
use sandbox::state::{Cross, Dir};
use sys::command::{Command, Output};
use sys::pidfd::End;

use crate::error::ImageError;
use crate::layout::architecture;
use crate::made::write;

/// Its folder in ours.
pub(crate) const FOLDER: &str = "apt";
const APT_GET: &str = "/usr/bin/apt-get";
/// Longest that one call may take.
const LIMIT: Duration = Duration::from_secs(3600);
/// Bytes that are kept of what it says.
const KEPT: usize = 1 << 20;
/// Read behind all of the host's settings.
const SETTINGS: &str = "\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear AptCli::Hooks;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
APT::Cmd::Pattern-Only \"true\";
APT::Get::AllowUnauthenticated \"false\";
APT::Get::Assume-Yes \"true\";
APT::Install-Recommends \"false\";
APT::Sandbox::User \"root\";
Acquire::AllowInsecureRepositories \"false\";
Acquire::AllowDowngradeToInsecureRepositories \"false\";
Acquire::AllowWeakRepositories \"false\";
Acquire::Languages \"none\";
Acquire::Retries \"2\";
Acquire::http::Timeout \"60\";
Acquire::https::Timeout \"60\";
Debug::NoLocking \"true\";
Dir::Cache::archives \"archives/\";
Dir::Cache::pkgcache \"\";
Dir::Cache::srcpkgcache \"\";
";

fn at(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

/// A state of apt's in a folder of ours.
pub(crate) struct Apt {
    path: PathBuf,
    suite: Option<String>,
}

impl Apt {
    /// Prepares the folder, and has the lists of packages brought into it.
    pub(crate) fn new(above: &Dir, path: &Path, suite: Option<&str>) -> Result<Self, ImageError> {
        if rustix::fs::accessat(rustix::fs::CWD, APT_GET, rustix::fs::Access::EXEC_OK, AtFlags::empty()).is_err() {
            let why = format!("this host has no `{APT_GET}`");
            return Err(packages(why, "use a host with apt, or `fumehood image pull` and `import`"));
        }
        let failed = |errno| ImageError::Io { path: path.to_owned(), errno };
        let below =
            ["state", "state/lists/", "state/lists/partial", "cache", "cache/archives/", "cache/archives/partial"];
        for folder in [FOLDER.to_owned()].into_iter().chain(below.iter().chain(&["log", "tmp"]).map(|name| at(name))) {
            let folder = folder.trim_end_matches('/');
            let (up, name) = folder.rsplit_once('/').unwrap_or((".", folder));
            above.enter(up, Cross::No).and_then(|up| up.make(name, Mode::RWXU)).map_err(failed)?;
        }
        write(above, &at("settings"), SETTINGS.as_bytes()).map_err(failed)?;
        // Nothing is installed there.
        write(above, &at("status"), b"").map_err(failed)?;
        let apt = Self { path: path.join(FOLDER), suite: suite.map(str::to_owned) };
        apt.run(&["update"])?;
        apt.has_suite()?;
        Ok(apt)
    }

    /// Brings packages, what they need, and what Debian calls essential; the folder that they are in.
    pub(crate) fn download(&self, wanted: &[String]) -> Result<PathBuf, ImageError> {
        let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
        // What a package may need without saying so. Debian's names of processors are those of images.
        let essential = format!("?and(?essential,?architecture({}))", architecture());
        self.run(&[&["install", "--download-only", "--", &essential], &wanted[..]].concat())?;
        Ok(self.path.join("cache").join("archives"))
    }

    fn has_suite(&self) -> Result<(), ImageError> {
        let Some(suite) = &self.suite else { return Ok(()) };
        let targets = self.run(&["indextargets", "--format", "$(CODENAME) $(SUITE)"])?;
        if String::from_utf8_lossy(&targets.stdout).split_whitespace().any(|known| known == suite) {
            return Ok(());
        }
        let why = format!("the host's apt has no source of the suite `{suite}`");
        Err(packages(why, "add a source with its key to `/etc/apt/sources.list.d`, or leave `--suite` out"))
    }

    fn run(&self, words: &[&str]) -> Result<Output, ImageError> {
        let at = |name: &str| self.path.join(name);
        let option = |key: &str, name: &str| format!("{key}={}", at(name).display());
        let mut command = Command::new(APT_GET).directory(&self.path).arg("-q").arg("-c").arg(at("settings"));
        for (key, name) in
            [("Dir::State", "state"), ("Dir::State::status", "status"), ("Dir::Cache", "cache"), ("Dir::Log", "log")]
        {
            command = command.arg("-o").arg(option(key, name));
        }
        if let Some(suite) = &self.suite {
            let release = format!("APT::Default-Release=/^{}(|-security|-updates)$/", suite.replace('.', "\\."));
            command = command.arg("-o").arg(release);
        }
        let command = command
            .args(words)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("HOME", at("tmp"))
            .env("TMPDIR", at("tmp"));
        let done = command.output(b"", KEPT, LIMIT).map_err(|error| packages(error.to_string(), "look at apt"))?;
        if done.end == End::Exited(0) && !done.timed_out {
            return Ok(done);
        }
        Err(packages(complaint(&done), "look at the names of the packages, and at the sources of apt on this host"))
    }
}

/// What apt itself says.
fn complaint(done: &Output) -> String {
    if done.timed_out {
        return format!("apt did not end within {} s", LIMIT.as_secs());
    }
    let text = String::from_utf8_lossy(&done.stderr);
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("E: ")).take(5).collect();
    if lines.is_empty() { "apt failed, and did not say why".to_owned() } else { lines.join("; ") }
}

pub(crate) fn packages(why: String, fix: &'static str) -> ImageError {
    ImageError::Packages { why, fix }
}
