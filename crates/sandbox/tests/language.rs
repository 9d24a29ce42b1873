//! An interpreter that does not say the plan's limits is never given the program.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sandbox::{Capabilities, Code, Environment, Error, Inputs, Interpreter, Options, PolicyLayer, Stdio, Workload};

fn start(place: &Path, interpreter: Option<&str>) -> Error {
    let variables = [("PATH", "/usr/bin:/bin".into()), ("FUMEHOOD_STATE", place.join("state"))];
    let env: BTreeMap<OsString, OsString> =
        variables.into_iter().map(|(name, value)| (name.into(), value.into_os_string())).collect();
    let environment = Environment::new(Some(place.to_owned()), env, rustix::process::geteuid().as_raw());
    let environment = environment.with_broker(interpreter.map(PathBuf::from));
    let host = Capabilities::probe();
    let layers = [PolicyLayer::Document("strict".to_owned()), PolicyLayer::Set("tier=language".to_owned())];
    let loaded = sandbox::load(&layers, &environment, Inputs::Now).unwrap();
    let python = Interpreter { name: "python".to_owned(), candidates: vec![vec!["python3".into()]] };
    let code = Code { name: "a.py".to_owned(), text: b"print(1)".to_vec(), interpreter: python, args: Vec::new() };
    let planned = sandbox::plan(loaded, Workload::Code(code), &host).unwrap();
    sandbox::start(planned, &environment, &host, Options::new(Stdio::kept())).unwrap_err()
}

#[test]
fn one_that_says_something_else_or_nothing_is_a_posture_mismatch() {
    let place = tempfile::tempdir().unwrap();
    // `echo` says its words, of which the limits are a part; `true` ends without one.
    for (program, words) in [("/bin/echo", "the interpreter has the limits"), ("/bin/true", "did not say its limits")] {
        let Error::Failed(faults) = start(place.path(), Some(program)) else { panic!("{program} was let go") };
        assert_eq!(faults[0].id, "run/posture", "{faults:?}");
        assert!(faults[0].why.contains(words), "{faults:?}");
    }
}

#[test]
fn without_an_interpreter_it_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let Error::Refused(faults) = start(place.path(), None) else { panic!("it was started") };
    assert_eq!(faults[0].id, "language/no-program");
}
