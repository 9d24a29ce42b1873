//! A Python that has imported and waits: code that keeps no state runs in it at once. Each is used for one piece of code, by the
//! caller of this sandbox, and thrown away with its end; then the next one is started.

use std::collections::BTreeMap;
use std::time::Duration;

use agent::words::{Code, Failure, Program as Wanted, Request};
use tokio::time::Instant;

use super::client::{ClientId, Role, failure};
use super::hub::Hub;
use super::line::To;
use super::program::{Budget, Input, Program, Stage, Written, now_ms};
use crate::words::Exec;

/// What it runs before there is code.
const RUNNER: &str = include_str!("warm.py");
/// The answer repeats the code, and has to fit a frame.
const MAX_CODE: usize = 128 << 10;
/// Names of modules: so many, and so long.
const MAX_NAMES: usize = 64;
const MAX_NAME: usize = 128;

/// Whether a text is the name of a module: `[A-Za-z_][A-Za-z0-9_]*`, joined by dots.
#[must_use]
pub fn is_module(name: &str) -> bool {
    let word = |word: &str| {
        let first = word.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
        first && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    name.len() <= MAX_NAME && name.split('.').all(word)
}

/// Whether these can be imported: names of modules, not too many.
#[must_use]
pub fn are_modules(names: &[String]) -> bool {
    names.len() <= MAX_NAMES && names.iter().all(|name| is_module(name))
}

impl Hub {
    /// Starts the next one, if one is to wait and none does.
    pub(super) fn warm_up(&mut self) {
        let waits = self.waiting.and_then(|number| self.programs.get(&number)).is_some_and(|one| !one.is_over());
        let Some(imports) = self.imports.as_ref().filter(|_| !waits && self.ending.is_none()) else { return };
        let argv = ["python3", "-c", RUNNER].into_iter().map(str::to_owned).chain(imports.iter().cloned()).collect();
        let program = Wanted { argv, stdin: true, ..Wanted::default() };
        let number = self.last_program.saturating_add(1);
        // One that cannot be asked for now is asked for with the code.
        let Some(line) = self.agent.open(&Request::Start(program.clone()), To::Program(number)) else { return };
        self.last_program = number;
        let mut program = Program::new(number, line, Exec { program, ..Exec::default() }, None);
        // Until there is code it is nobody's: not shown, and no work.
        program.system = true;
        self.programs.insert(number, program);
        self.waiting = Some(number);
    }

    /// Runs code in the one that waits, or in one that is started now.
    pub(super) fn python(
        &mut self,
        who: (ClientId, u32),
        code: String,
        timeout_ms: Option<u64>,
    ) -> Result<(), Failure> {
        if self.imports.is_none() {
            let what = "no Python waits in this sandbox: it was created without `imports`; run `python3 -c CODE`";
            return Err(failure(Code::Unsupported, what));
        }
        if code.len() > MAX_CODE {
            let what = "the code is longer than 128 KiB: write it to a file, and run that";
            return Err(failure(Code::Invalid, what));
        }
        self.warm_up();
        let limit = self.setup.output;
        let (oom, stopped) = (self.run.oom_kills(), self.run.violations());
        let full = || failure(Code::TooMany, "1,024 programs and requests are under way");
        let number = self.waiting.take().ok_or_else(full)?;
        let program = self.programs.get_mut(&number).ok_or_else(full)?;
        // From now on it is as if `python3 -c CODE` had been started.
        program.asked = Exec {
            program: Wanted {
                argv: vec!["python3".to_owned(), "-c".to_owned(), code.clone()],
                env: BTreeMap::new(),
                stdin: true,
                ..Wanted::default()
            },
            timeout_ms,
            ..Exec::default()
        };
        program.system = false;
        program.began = Instant::now();
        program.started_ms = now_ms();
        program.deadline = timeout_ms.and_then(|ms| program.began.checked_add(Duration::from_millis(ms)));
        program.budget = Budget::new(limit);
        program.kept = Default::default();
        (program.oom_before, program.stopped_before) = (oom, stopped);
        program.owner = Some(who);
        program.readers.insert(who);
        let (shown, runs) = (program.shown(), program.stage == Stage::Running);
        self.listen(who, number, Role::Owner);
        if runs {
            self.client(who.0, |client| client.reply(who.1, &shown));
        }
        self.queue(number, Input::Bytes(code.into_bytes(), Written::Nobody));
        self.queue(number, Input::Eof);
        Ok(())
    }

    /// A program is over: the next one gets ready, unless this one was it and could not.
    pub(super) fn warmed(&mut self, number: u64) {
        if self.waiting == Some(number) {
            self.waiting = None;
        } else if self.waiting.is_none() {
            self.warm_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    /// How `python3` ends, with these arguments and this to read, in a folder with a module that tells when it is taken apart: its code,
    /// what it printed, and what it said.
    #[expect(clippy::disallowed_methods, reason = "the host's own Python, as a control")]
    fn ended(folder: &Path, args: &[&str], input: &str) -> (Option<i32>, String, String) {
        let mut command = Command::new("python3");
        command.args(args).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr).replace("\"<code>\"", "\"<string>\""))
    }

    #[test]
    fn it_ends_as_that_code_alone_would_and_takes_apart_nothing_that_it_imported() {
        let folder = tempfile::tempdir().unwrap();
        let module =
            "import os\nclass Torn:\n    def __del__(self, write=os.write): write(2, b'torn')\ntorn = Torn()\n";
        std::fs::write(folder.path().join("torn.py"), module).unwrap();
        for code in [
            "print('out')",
            "import sys; print('out'); sys.exit(7)",
            "import sys; sys.exit('words')",
            "import sys; sys.exit(-1)",
            "def f():\n    1 / 0\nf()",
            "no code",
            "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
            "import threading, time\nthreading.Thread(target=lambda: time.sleep(60), daemon=True).start()",
            "import atexit; atexit.register(print, 'bye')",
            "import sys; file = open('kept', 'w'); file.write('kept'); keep = [file]; keep.append(keep)",
            "class A:\n    def __del__(self): print('gone', word)\nword = 'whole'\na = A()",
            "import ctypes; ctypes.CDLL(None).printf(b'C')",
            "import sys; sys.stdout.close(); sys.exit(3)",
            "import typing\nclass A: x: 'int'\nclass B: y: 'A'\nprint(typing.get_type_hints(B))",
            "print(sorted(name for name in globals() if name != '__annotations__'), __name__)",
        ] {
            let plain = ended(folder.path(), &["-c", code], "");
            assert_eq!(ended(folder.path(), &["-c", RUNNER, "torn"], code), plain, "{code}");
        }
        assert_eq!(std::fs::read(folder.path().join("kept")).unwrap(), b"kept");
        // The control.
        assert_eq!(ended(folder.path(), &["-c", "import torn"], "").2, "torn");
    }

    #[test]
    fn a_name_of_a_module_is_no_code_and_no_flag() {
        for good in ["pandas", "os.path", "_x1"] {
            assert!(is_module(good), "{good}");
        }
        for bad in ["", "a b", "-c", "os;x", "1a", "a..b", ".a", "a\n"] {
            assert!(!is_module(bad), "{bad}");
        }
        assert!(!are_modules(&vec!["a".to_owned(); MAX_NAMES + 1]));
    }
}
