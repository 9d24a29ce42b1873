//! The place of one case: folders of its own, and the product or an unconfined shell run there as one caller.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use sys::command::Command;

use crate::live::{Ended, Live};
use crate::{BackendId, CaseError, Tier, Who, check, product};

/// The ordinary user's uid and gid: no account is needed.
pub const USER: u32 = 1001;

/// Folders and a caller.
#[derive(Debug)]
pub struct Fixture {
    /// On which tier.
    pub tier: Tier,
    /// By which backend of it.
    backend: BackendId,
    /// By whom.
    pub who: Who,
    folder: tempfile::TempDir,
    calls: AtomicUsize,
}

/// Whether something has this name, a dangling link included.
#[must_use]
pub fn there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// The whole text of a small file.
///
/// # Errors
/// It cannot be read.
pub fn text(path: &Path) -> Result<String, CaseError> {
    Ok(String::from_utf8_lossy(&crate::live::bounded(path)?).into_owned())
}

/// Whether this process is root, so that it can be both callers.
#[must_use]
pub fn root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Fixture {
    /// New folders in the temporary folder.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn new(backend: BackendId, who: Who) -> Result<Self, CaseError> {
        let folder = tempfile::Builder::new().prefix("conform").tempdir()?;
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let scene = Self { tier: backend.tier, backend, who, folder, calls: AtomicUsize::new(0) };
        std::fs::create_dir(scene.work())?;
        std::fs::create_dir(scene.state())?;
        // The work belongs to the ordinary user for both callers: root runs it as its owner.
        scene.give(&scene.work())?;
        if who == Who::Rootless {
            scene.give(&scene.state())?;
        }
        Ok(scene)
    }

    /// A folder of the ordinary user.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// The product's state.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The folder around both, which nobody grants.
    #[must_use]
    pub fn outside(&self) -> &Path {
        self.folder.path()
    }

    /// Hands a path to the ordinary user.
    ///
    /// # Errors
    /// Not permitted.
    pub fn give(&self, path: &Path) -> Result<(), CaseError> {
        if root() {
            chown(path, Some(USER), Some(USER))?;
        }
        Ok(())
    }

    /// A file in the work folder (its folders are made), owned by the ordinary user.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn file(&self, name: &str, content: &str) -> Result<PathBuf, CaseError> {
        let path = self.work().join(name);
        let mut folder = self.work();
        for part in Path::new(name).parent().into_iter().flat_map(Path::components) {
            folder = folder.join(part);
            if !there(&folder) {
                std::fs::create_dir(&folder)?;
                self.give(&folder)?;
            }
        }
        std::fs::write(&path, content)?;
        self.give(&path)?;
        Ok(path)
    }

    /// A folder in the work folder.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn dir(&self, name: &str) -> Result<PathBuf, CaseError> {
        let path = self.work().join(name);
        std::fs::create_dir_all(&path)?;
        self.give(&path)?;
        Ok(path)
    }

    /// `clause=value` as flags.
    #[must_use]
    pub fn values(values: &[&str]) -> Vec<OsString> {
        values.iter().flat_map(|value| [OsString::from("--set"), OsString::from(value)]).collect()
    }

    /// The same place anew, with nothing in it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn fresh(&self) -> Result<Self, CaseError> {
        Self::new(self.backend, self.who)
    }

    /// Runs `fumehood run --json` to its end.
    ///
    /// # Errors
    /// It cannot be started, does not end, or another backend ran it.
    pub fn run(&self, flags: &[OsString], argv: &[&str]) -> Result<Ended, CaseError> {
        let ended = self.start(flags, argv)?.end()?;
        let by = ended.text("/backend");
        check(by.is_empty() || by == self.backend.name, || format!("expected {}, and {by} ran it", self.backend))?;
        Ok(ended)
    }

    /// The same with `clause=value`s and a script of the shell.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn shell(&self, values: &[&str], script: &str) -> Result<Ended, CaseError> {
        self.run(&Self::values(values), &["/bin/sh", "-c", script])
    }

    /// The same with a Python program.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn python(&self, values: &[&str], code: &str) -> Result<Ended, CaseError> {
        self.run(&Self::values(values), &["/usr/bin/python3", "-I", "-S", "-c", code])
    }

    /// The same with a program of this scene's interpreter: Python, JavaScript, or the text of a module.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn interpreted(
        &self,
        values: &[&str],
        (python, javascript): (&str, &str),
        module: &str,
    ) -> Result<Ended, CaseError> {
        let named = format!("backend={}", self.backend.name);
        let mut words: Vec<OsString> =
            ["run", "--json", "--tier", self.tier.as_str(), "--set", &named].map(Into::into).to_vec();
        words.extend(Self::values(values));
        match self.backend.name {
            "wasm" => {
                let file = self.file("main.wasm", "")?;
                std::fs::write(&file, wat::parse_str(module)?)?;
                words.push(file.into());
            }
            "quickjs" => words.extend(["--lang", "javascript", "--code", javascript].map(Into::into)),
            _ => words.extend(["--lang", "python", "--code", python].map(Into::into)),
        }
        let ended = self.product(&words)?.end()?;
        let by = ended.text("/backend");
        check(by.is_empty() || by == self.backend.name, || format!("expected {}, and {by} ran it", self.backend))?;
        Ok(ended)
    }

    /// `plan --json` of a document on a tier, by a backend of it.
    ///
    /// # Errors
    /// It cannot be started, or does not end.
    pub fn plan_of(&self, document: &Path, on: BackendId) -> Result<Ended, CaseError> {
        let named = format!("backend={}", on.name);
        let mut words: Vec<OsString> =
            ["plan", "--json", "--tier", on.tier.as_str(), "--set", &named, "-p"].map(Into::into).to_vec();
        words.push(document.into());
        self.product(&words)?.end()
    }

    /// The flags that name a backend which nobody gets unasked.
    #[must_use]
    pub fn named(&self) -> Vec<OsString> {
        let asked = backends::ALL.iter().any(|one| one.only_by_name() && one.name() == self.backend.name);
        if asked { vec!["--set".into(), format!("backend={}", self.backend.name).into()] } else { Vec::new() }
    }

    /// By which backend.
    #[must_use]
    pub const fn backend(&self) -> BackendId {
        self.backend
    }

    /// The control: the same program as the same caller, unconfined.
    ///
    /// # Errors
    /// It cannot be started, or does not end.
    pub fn bare(&self, argv: &[&str]) -> Result<Ended, CaseError> {
        self.bare_start(argv)?.end()
    }

    /// The control of a script: it must succeed.
    ///
    /// # Errors
    /// It fails, so the probe would prove nothing.
    pub fn control(&self, argv: &[&str]) -> Result<Ended, CaseError> {
        let ended = self.bare(argv)?;
        check(ended.code == Some(0), || format!("the control failed, so the probe proves nothing: {}", ended.said()))?;
        Ok(ended)
    }

    /// The control of a shell script.
    ///
    /// # Errors
    /// As [`Self::control`].
    pub fn control_shell(&self, script: &str) -> Result<Ended, CaseError> {
        self.control(&["/bin/sh", "-c", script])
    }

    /// The control of a Python program.
    ///
    /// # Errors
    /// As [`Self::control`].
    pub fn control_python(&self, code: &str) -> Result<Ended, CaseError> {
        self.control(&["/usr/bin/python3", "-I", "-S", "-c", code])
    }

    /// Starts `fumehood run --json`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, flags: &[OsString], argv: &[&str]) -> Result<Live, CaseError> {
        let mut words: Vec<OsString> = vec!["run".into(), "--json".into(), "--tier".into(), self.tier.as_str().into()];
        words.extend(self.named());
        words.extend(flags.iter().cloned());
        words.push("--".into());
        words.extend(argv.iter().map(OsString::from));
        self.product(&words)
    }

    /// Starts a run whose output passes through instead of going into a report.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_passing(&self, values: &[&str], script: &str) -> Result<Live, CaseError> {
        let mut words: Vec<OsString> = vec!["run".into(), "-q".into(), "--tier".into(), self.tier.as_str().into()];
        words.extend(self.named());
        words.extend(Self::values(values));
        words.extend(["--", "/bin/sh", "-c", script].map(OsString::from));
        self.product(&words)
    }

    /// `fumehood plan --json` with these values.
    ///
    /// # Errors
    /// It cannot be started, or does not end.
    pub fn plan(&self, values: &[&str]) -> Result<Ended, CaseError> {
        let mut words: Vec<OsString> = vec!["plan".into(), "--json".into(), "--tier".into(), self.tier.as_str().into()];
        words.extend(self.named());
        words.extend(Self::values(values));
        self.product(&words)?.end()
    }

    /// Starts the product with any words.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn product<S: AsRef<OsStr>>(&self, words: &[S]) -> Result<Live, CaseError> {
        let nothing = sys::channel::dev_null()?;
        self.product_with(words, nothing.as_fd())
    }

    /// Starts the product with this stdin.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn product_with<S: AsRef<OsStr>>(&self, words: &[S], stdin: BorrowedFd<'_>) -> Result<Live, CaseError> {
        self.begin(&self.command(product::binary()?, words), stdin)
    }

    /// Starts a program as this scene's caller, unconfined.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn bare_start(&self, argv: &[&str]) -> Result<Live, CaseError> {
        let (program, words) = argv.split_first().ok_or("no program was named")?;
        let nothing = sys::channel::dev_null()?;
        self.begin(&self.command(Path::new(program), words), nothing.as_fd())
    }

    /// Starts a program as this test's own user, whoever the scene's caller is.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn bare_as_root(&self, argv: &[&str]) -> Result<Live, CaseError> {
        let (program, words) = argv.split_first().ok_or("no program was named")?;
        let nothing = sys::channel::dev_null()?;
        self.begin(&Command::new(program).args(words).directory(self.work()), nothing.as_fd())
    }

    /// A command of this scene's caller. The ordinary user executes an open descriptor: the folder of the build may be
    /// closed to them.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, program: &Path, words: &[S]) -> Command {
        let command = if self.who == Who::Rootless && root() {
            let user = format!(
                "exec 3<\"$0\"; exec /usr/bin/setpriv --reuid {USER} --regid {USER} --clear-groups /proc/self/fd/3 \"$@\""
            );
            // A shell looks at its own name.
            let direct = format!("exec /usr/bin/setpriv --reuid {USER} --regid {USER} --clear-groups \"$0\" \"$@\"");
            let script = if program.starts_with("/usr") || program.starts_with("/bin") { direct } else { user };
            Command::new("/bin/sh").args(["-c", &script]).arg(program)
        } else {
            Command::new(program)
        };
        command
            .args(words)
            .directory(self.work())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("FUMEHOOD_STATE", self.state())
            .env("CONFORM_CANARY", "canary-of-the-caller")
    }

    /// Runs a command that needs nothing on its stdin.
    ///
    /// # Errors
    /// It cannot be started, or does not end.
    pub fn begin_and_end(&self, command: &Command) -> Result<Ended, CaseError> {
        let nothing = sys::channel::dev_null()?;
        self.begin(command, nothing.as_fd())?.end()
    }

    /// Runs a command on a terminal of ours until it ends; what it showed there.
    ///
    /// # Errors
    /// It cannot be started, or does not end within a minute.
    pub fn on_terminal(&self, command: &Command, pair: &sys::terminal::Pair) -> Result<String, CaseError> {
        let slave = pair.slave.as_fd();
        let failed = |failed: sys::spawn::SpawnError| format!("starting failed: {failed:?}");
        let child = command.start(slave, slave, slave).map_err(failed)?;
        let mut shown = Vec::new();
        let mut part = [0; 4096];
        let mut take = |shown: &mut Vec<u8>| {
            let interest = sys::channel::Interest { fd: pair.master.as_fd(), write: false };
            let time = std::time::Duration::from_millis(50);
            if sys::channel::wait(&[interest], Some(time)).is_ok_and(|ready| ready.first() == Some(&true))
                && let Ok(length) = rustix::io::read(&pair.master, &mut part)
            {
                shown.extend_from_slice(part.get(..length).unwrap_or_default());
                return length > 0;
            }
            false
        };
        let mut ended = false;
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while std::time::Instant::now() < end {
            let more = take(&mut shown);
            ended = ended || sys::pidfd::try_wait(&child.pidfd)?.is_some();
            if ended && !more {
                break;
            }
        }
        if !ended {
            sys::pidfd::send_signal(&child.pidfd, 9)?;
            return Err("it did not end on its terminal".into());
        }
        Ok(String::from_utf8_lossy(&shown).into_owned())
    }

    /// Starts a command with its outputs in files.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn begin(&self, command: &Command, stdin: BorrowedFd<'_>) -> Result<Live, CaseError> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.outside().join(format!("out-{number}")), self.outside().join(format!("err-{number}")));
        let (out_file, err_file) = (File::create(&out)?, File::create(&err)?);
        let child = command
            .start(stdin, out_file.as_fd(), err_file.as_fd())
            .map_err(|failed| format!("starting failed at {}: {}", failed.step.as_str(), failed.errno))?;
        Ok(Live::new(child, out, err))
    }
}
