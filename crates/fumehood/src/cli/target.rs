//! What the words of a call ask to run: a command, a script of the host, or code.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use sandbox::Workload;

use super::args::{Parsed, usage};
use crate::program::{given, language, nothing, read_all, script};
use crate::ui::Failure;

/// What the words of a call mean. `stdin` is read only for code on it.
///
/// # Errors
/// 125 for words that mean nothing or contradict each other, 126 for a script that cannot be read, 127 for one that is not there.
pub(super) fn target(parsed: &mut Parsed, stdin: impl std::io::Read) -> Result<Workload, Failure> {
    let language = parsed.value("lang").map(language).transpose()?;
    let code = parsed.value("code").map(OsStr::to_os_string);
    let words = std::mem::take(&mut parsed.words);
    match (code, parsed.after.take()) {
        (Some(_), Some(_)) => Err(two_programs("`--code`", "a command after `--`")),
        (Some(code), None) => given(code.into_vec(), language, words),
        (None, Some(argv)) if argv.is_empty() => Err(nothing("nothing follows `--`")),
        (None, Some(_)) if !words.is_empty() => Err(two_programs("a script", "a command after `--`")),
        (None, Some(_)) if language.is_some() => Err(two_programs("`--lang`", "a command after `--`")),
        (None, Some(argv)) => Ok(Workload::Argv(argv)),
        (None, None) => {
            let mut words = words.into_iter();
            match words.next() {
                None => Ok(Workload::Nothing),
                Some(word) if word == "-" => given(read_all(stdin)?, language, words.collect()),
                Some(word) => script(PathBuf::from(word), language, words.collect()),
            }
        }
    }
}

fn two_programs(one: &str, other: &str) -> Failure {
    Failure::own(usage(
        "usage/two-programs",
        format!("both {one} and {other}"),
        "one run has one program".to_owned(),
        format!("drop {one}, or {other}"),
    ))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;

    use super::*;
    use crate::cli::args::{Positionals, parse};
    use crate::cli::flags::{POLICY, RUN, SAYING};

    fn what(args: &[&str], stdin: &[u8]) -> Result<Workload, Failure> {
        let mut parsed = parse(args.iter().map(OsString::from), &[POLICY, RUN, SAYING], Positionals::EndFlags);
        assert_eq!(parsed.faults, []);
        target(&mut parsed, stdin)
    }

    fn refused(args: &[&str]) -> (u8, &'static str) {
        let Err(Failure::Faults { code, faults }) = what(args, b"") else { panic!("{args:?} was taken") };
        (code, faults[0].id)
    }

    #[test]
    fn after_two_dashes_stands_a_command() {
        let Workload::Argv(argv) = what(&["--", "x.py", "-t"], b"").unwrap() else { panic!("not a command") };
        assert_eq!(argv, ["x.py", "-t"]);
    }

    #[test]
    fn a_shebang_outranks_the_extension() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sh");
        fs::write(&path, "#! /usr/bin/env  bash -e \nexit 3\n").unwrap();
        let Workload::Script(script) = what(&[path.to_str().unwrap(), "-v", "--"], b"").unwrap() else {
            panic!("no script")
        };
        assert_eq!(script.interpreter.candidates, [["/usr/bin/env", "bash -e"]]);
        assert_eq!(script.args, ["-v", "--"]);
    }

    #[test]
    fn an_extension_names_the_language_and_lang_outranks_both() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.py");
        fs::write(&path, "print(1)").unwrap();
        let path = path.to_str().unwrap();
        let Workload::Script(script) = what(&[path], b"").unwrap() else { panic!("no script") };
        assert_eq!(script.interpreter.candidates, [["python3"], ["python"]]);
        let Workload::Script(script) = what(&["--lang", "ruby", path], b"").unwrap() else { panic!("no script") };
        assert_eq!(script.interpreter.name, "ruby");
    }

    #[test]
    fn code_comes_by_flag_or_stdin() {
        let Workload::Code(code) = what(&["--lang=py", "--code=print(1)", "a"], b"").unwrap() else {
            panic!("no code")
        };
        assert_eq!((code.name.as_str(), code.text.as_slice(), code.args.len()), ("code.py", &b"print(1)"[..], 1));
        let Workload::Code(code) = what(&["--lang", "bash", "-"], b"echo \xff").unwrap() else { panic!("no code") };
        assert_eq!(code.text, b"echo \xff");
    }

    #[test]
    fn what_cannot_be_meant_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prog");
        fs::write(&path, "\x7fELF").unwrap();
        assert_eq!(refused(&[path.to_str().unwrap()]), (125, "usage/not-a-script"));
        assert_eq!(refused(&[dir.path().to_str().unwrap()]), (126, "script/unreadable"));
        assert_eq!(refused(&["/nowhere/at/all.py"]), (127, "script/missing"));
        assert_eq!(refused(&["--code", "1"]), (125, "usage/no-language"));
        assert_eq!(refused(&["-"]), (125, "usage/no-language"));
        assert_eq!(refused(&["--lang", "pyhton", "-"]), (125, "usage/unknown-language"));
        assert_eq!(refused(&["--lang", "sh", "--code", "1", "--", "true"]), (125, "usage/two-programs"));
        assert_eq!(refused(&["--"]), (125, "usage/no-program"));
    }

    #[test]
    fn a_fifo_as_a_script_does_not_hang() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe.py");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(refused(&[path.to_str().unwrap()]), (126, "script/unreadable"));
    }
}
