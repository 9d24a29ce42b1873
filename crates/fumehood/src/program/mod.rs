//! What is to run: a script of the host, or code, and the interpreter of either.

mod languages;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::ui::{Failure, REFUSED, closest, usage};
pub use languages::{LANGUAGES, Language};
use languages::{by_extension, by_name};
use sandbox::fault::{Fault, show_bytes, show_path};
use sandbox::{Code, Interpreter, Script, Workload};

/// The longest `#!` line that Linux reads (BINPRM_BUF_SIZE, since 5.1).
const SHEBANG: usize = 256;
/// The most code taken from stdin.
const STDIN: u64 = 16 << 20;

/// The failure of a command that needs something to run.
#[must_use]
pub fn nothing(what: &str) -> Failure {
    Failure::own(usage(
        "usage/no-program",
        what.to_owned(),
        "there is nothing to run".to_owned(),
        "`fumehood run -- CMD ARGS`, `fumehood run script.py`, or `--lang python --code '...'`".to_owned(),
    ))
}

/// A language by any of its names.
///
/// # Errors
/// No such language.
pub(crate) fn language(name: &OsStr) -> Result<&'static Language, Failure> {
    let shown = show_bytes(name.as_bytes());
    name.to_str().and_then(by_name).ok_or_else(|| {
        let known = || LANGUAGES.iter().flat_map(|l| l.names).copied();
        let fix = match closest(&shown, known()) {
            Some(best) => format!("`--lang {best}`"),
            None => format!("one of {}", LANGUAGES.iter().map(Language::name).collect::<Vec<_>>().join(", ")),
        };
        Failure::own(usage(
            "usage/unknown-language",
            format!("unknown language `{shown}`"),
            "no interpreter is known for it".to_owned(),
            fix,
        ))
    })
}

/// Code in a language, by any of its names.
///
/// # Errors
/// No such language, or too much code.
pub fn code(name: &str, text: Vec<u8>, args: Vec<OsString>) -> Result<Workload, Failure> {
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > STDIN {
        return Err(Failure::own(Fault {
            id: "script/unreadable",
            what: "the code is too long".to_owned(),
            place: "the call".to_owned(),
            why: "more than 16 MiB".to_owned(),
            fix: "give it as a file".to_owned(),
        }));
    }
    given(text, Some(language(OsStr::new(name))?), args)
}

/// Code that was given as such.
///
/// # Errors
/// Nobody said in which language.
pub(crate) fn given(
    text: Vec<u8>,
    language: Option<&'static Language>,
    args: Vec<OsString>,
) -> Result<Workload, Failure> {
    let Some(language) = language else {
        return Err(Failure::own(usage(
            "usage/no-language",
            "code without a language".to_owned(),
            "code has no name whose extension could tell".to_owned(),
            "`--lang python` (or sh, bash, javascript, ruby, ...)".to_owned(),
        )));
    };
    Ok(Workload::Code(Code { name: language.file_name(), text, interpreter: language.interpreter(), args }))
}

/// Code from stdin.
///
/// # Errors
/// It cannot be read, or there is too much.
pub(crate) fn read_all(stdin: impl std::io::Read) -> Result<Vec<u8>, Failure> {
    let fault = |what: String, why: String, fix: &str| {
        Failure::own(Fault { id: "script/unreadable", what, place: "stdin".to_owned(), why, fix: fix.to_owned() })
    };
    let mut text = Vec::new();
    let read = stdin.take(STDIN + 1).read_to_end(&mut text);
    read.map_err(|e| {
        fault(
            "cannot read code from stdin".to_owned(),
            e.to_string().to_lowercase(),
            "give it with `--code`, or as a file",
        )
    })?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > STDIN {
        return Err(fault("code on stdin is too long".to_owned(), "more than 16 MiB".to_owned(), "give it as a file"));
    }
    Ok(text)
}

/// A script of the host. Opened here once: what was judged is what runs.
///
/// # Errors
/// It is not there, cannot be read, or is no script.
pub fn script(path: PathBuf, language: Option<&'static Language>, args: Vec<OsString>) -> Result<Workload, Failure> {
    let file = open(&path)?;
    let interpreter = match (language, shebang(&file, &path)?) {
        (Some(language), _) => language.interpreter(),
        (None, Some(interpreter)) => interpreter,
        (None, None) => match path.extension().and_then(OsStr::to_str).and_then(by_extension) {
            Some(language) => language.interpreter(),
            None => return Err(not_a_script(&path)),
        },
    };
    Ok(Workload::Script(Script { path, file, interpreter, args }))
}

fn open(path: &Path) -> Result<File, Failure> {
    let failure = |code, id, why: String, fix: String| Failure::Faults {
        code,
        faults: vec![Fault {
            id,
            what: format!("cannot read the script {}", show_path(path)),
            place: "command line".to_owned(),
            why,
            fix,
        }],
    };
    // O_NONBLOCK: a FIFO named as a script must not hang us before any limit holds.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let flags = i32::from_ne_bytes(flags.bits().to_ne_bytes());
    let opened = File::options().read(true).custom_flags(flags).open(path).and_then(|f| f.metadata().map(|m| (f, m)));
    match opened {
        Ok((file, meta)) if meta.is_file() => Ok(file),
        Ok((_, meta)) => {
            let kind = if meta.is_dir() { "a directory" } else { "no regular file" };
            let fix = "name a script, or put `--` before a command".to_owned();
            Err(failure(REFUSED, "script/unreadable", format!("it is {kind}"), fix))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // With an extension it was meant as a script.
            let fix = match path.extension() {
                Some(_) => "check the path".to_owned(),
                None => format!(
                    "check the path; a program inside follows `--`: `fumehood run -- {} ...`",
                    show_path(path).trim_matches('`')
                ),
            };
            Err(failure(127, "script/missing", "no such file on the host".to_owned(), fix))
        }
        Err(error) => {
            let fix = "make it readable for you, or name another one".to_owned();
            Err(failure(REFUSED, "script/unreadable", error.to_string().to_lowercase(), fix))
        }
    }
}

/// The interpreter of a `#!` line, split as Linux does: the program, and the rest of the line as one argument.
fn shebang(file: &File, path: &Path) -> Result<Option<Interpreter>, Failure> {
    use std::os::unix::fs::FileExt as _;
    let mut head = [0u8; SHEBANG];
    let read = file.read_at(&mut head, 0).map_err(|error| Failure::Faults {
        code: REFUSED,
        faults: vec![Fault {
            id: "script/unreadable",
            what: format!("cannot read the script {}", show_path(path)),
            place: "command line".to_owned(),
            why: error.to_string().to_lowercase(),
            fix: "check the file system it lies on".to_owned(),
        }],
    })?;
    let head = head.get(..read).unwrap_or_default();
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(None) };
    let line = line.split(|b| *b == b'\n').next().unwrap_or_default().trim_ascii();
    let (program, rest) = match line.iter().position(|b| *b == b' ' || *b == b'\t') {
        Some(i) => (line.get(..i).unwrap_or_default(), line.get(i..).unwrap_or_default().trim_ascii()),
        None => (line, &b""[..]),
    };
    if program.is_empty() || program.contains(&0) || rest.contains(&0) {
        return Ok(None);
    }
    let words = [program, rest].into_iter().filter(|w| !w.is_empty()).map(|w| OsStr::from_bytes(w).to_os_string());
    Ok(Some(Interpreter { name: show_bytes(program), candidates: vec![words.collect()] }))
}

fn not_a_script(path: &Path) -> Failure {
    let shown = show_path(path);
    Failure::own(usage(
        "usage/not-a-script",
        format!("{shown} is not known to be a script"),
        "its extension is none of a known language, and it does not begin with `#!`".to_owned(),
        format!("`--lang LANGUAGE` for a script; `fumehood run -- {} ...` for a program", shown.trim_matches('`')),
    ))
}
