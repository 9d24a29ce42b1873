//! The environment of the payload: ours, then inputs, then what the policy passes and sets, then what judged commands must
//! have. Nothing else goes in.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use policy::control::Variables;

use super::blueprint::Blueprint;
use crate::backend::Launch;
use crate::trust;

/// Folders of `PATH` in which a program is looked for.
const MAX_FOLDERS: usize = 64;

/// Search path inside.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Where a program without `/` is looked for: the `PATH` that it will have. What is not absolute would depend on the folder.
pub(crate) fn search(variables: &[CString]) -> Vec<CString> {
    let path = variables.iter().find_map(|variable| variable.to_bytes().strip_prefix(b"PATH="));
    let folders = path.unwrap_or(PATH.as_bytes()).split(|byte| *byte == b':').filter(|folder| folder.starts_with(b"/"));
    folders.take(MAX_FOLDERS).map(|folder| CString::new(folder).unwrap_or_default()).collect()
}

/// What the Java machine reads in whichever program it runs.
const JAVA_OPTIONS: &str = "JAVA_TOOL_OPTIONS";

/// `KEY=VALUE` strings, later ones having replaced earlier ones.
pub(crate) fn build(blueprint: &Blueprint, launch: &Launch, home: &str, tmp: &str) -> Vec<CString> {
    let (user, trust) = (blueprint.user_name(), launch.trust.is_some());
    let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut put = |key: &[u8], value: &[u8]| {
        all.insert(key.to_vec(), value.to_vec());
    };
    put(b"PATH", PATH.as_bytes());
    put(b"HOME", home.as_bytes());
    put(b"USER", user.as_bytes());
    put(b"LOGNAME", user.as_bytes());
    put(b"LANG", b"C.UTF-8");
    put(b"TMPDIR", tmp.as_bytes());
    // A Python program that is ended at a limit leaves all that it said, and not all but its last 8 KiB.
    put(b"PYTHONUNBUFFERED", b"1");
    for name in trust::VARIABLES.iter().filter(|_| trust) {
        put(name.as_bytes(), trust::BUNDLE.as_bytes());
    }
    if trust {
        put(JAVA_OPTIONS.as_bytes(), trust::JAVA.as_bytes());
    }
    for (name, mut value) in blueprint.memory().into_iter().flat_map(told_to_runtimes) {
        if trust && name == JAVA_OPTIONS {
            value = format!("{value} {}", trust::JAVA);
        }
        put(name.as_bytes(), value.as_bytes());
    }
    if let Some(term) = &launch.term {
        put(b"TERM", term.as_bytes());
    }
    for (name, value) in given(&blueprint.variables, &launch.passed) {
        put(name.as_bytes(), value.as_bytes());
    }
    // Last, so that nothing of the policy undoes it.
    for (name, value) in &launch.forced {
        put(name.as_bytes(), value.as_bytes());
    }
    all.into_iter()
        .map(|(mut key, value)| {
            key.push(b'=');
            key.extend(value);
            // Names and values with a NUL are refused with the policy; the kernel could not carry one either.
            CString::new(key).unwrap_or_default()
        })
        .collect()
}

/// What the clauses give, in the order in which later ones replace earlier ones: inputs, what is passed, what is set.
fn given(all: &[Variables], passed: &BTreeMap<OsString, OsString>) -> Vec<(OsString, OsString)> {
    let (mut inputs, mut named, mut set) = (Vec::new(), Vec::new(), Vec::new());
    for variables in all {
        match variables {
            Variables::Inputs(values) => inputs.extend(values.iter().map(|(name, value)| {
                let name = format!("INPUT_{}", name.to_uppercase().replace(['-', '.'], "_"));
                (name.into(), value.into())
            })),
            Variables::Passed(names) => {
                let there = |name: &String| Some((name.into(), passed.get(OsStr::new(name))?.clone()));
                named.extend(names.iter().filter_map(there));
            }
            Variables::Set(values) => set.extend(values.iter().map(|(name, value)| (name.into(), value.into()))),
        }
    }
    inputs.into_iter().chain(named).chain(set).collect()
}

/// What runtimes with a heap of their own are told of `limits.memory`: else they size it by the memory of the machine, and
/// are ended at the limit with garbage that they had not collected yet. Who sets one of these is not overruled.
fn told_to_runtimes(limit: u64) -> [(&'static str, String); 3] {
    // The Java machine takes a quarter of it as its heap, as on a machine of that size. V8 has memory besides its old
    // space: code, buffers, stacks. Go counts all but what the kernel keeps for it.
    let three_quarters = limit / 4 * 3;
    [
        (JAVA_OPTIONS, format!("-XX:MaxRAM={limit}")),
        ("NODE_OPTIONS", format!("--max-old-space-size={}", (three_quarters >> 20).max(1))),
        ("GOMEMLIMIT", (limit / 10 * 9).to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::OsString;

    use policy::control::Variables;

    use super::{given, told_to_runtimes};

    #[test]
    fn of_one_name_what_is_set_counts_and_what_nobody_has_is_not_there() {
        let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        // In the order of the clauses `set` would not come last.
        let all = [
            Variables::Set(one("A", "set")),
            Variables::Inputs(one("of-run.1", "input")),
            Variables::Passed(vec!["A".to_owned(), "B".to_owned(), "INPUT_OF_RUN_1".to_owned(), "MISSING".to_owned()]),
        ];
        let passed = [("A", "caller"), ("B", "caller"), ("INPUT_OF_RUN_1", "caller"), ("OTHER", "caller")];
        let passed = passed.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let last: BTreeMap<OsString, OsString> = given(&all, &BTreeMap::from(passed)).into_iter().collect();
        let wanted = [("A", "set"), ("B", "caller"), ("INPUT_OF_RUN_1", "caller")];
        assert_eq!(last, BTreeMap::from(wanted.map(|(name, value)| (name.into(), value.into()))));
    }

    #[test]
    fn runtimes_are_told_of_less_than_the_limit() {
        let told = told_to_runtimes(1 << 30).map(|(name, value)| format!("{name}={value}"));
        let wanted = [
            "JAVA_TOOL_OPTIONS=-XX:MaxRAM=1073741824",
            "NODE_OPTIONS=--max-old-space-size=768",
            "GOMEMLIMIT=966367638",
        ];
        assert_eq!(told, wanted);
    }
}
