//! The environment of the payload: ours, then inputs, then what the policy passes and sets, then what judged commands must
//! have. Nothing else goes in.

use std::collections::{BTreeMap, BTreeSet};
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

/// Whether `part` of what a plan says of variables is in an environment. A name that the caller's value may take, or what judged
/// commands must have, is there with whatever value.
///
/// # Errors
/// One is not there, or has another value.
pub(crate) fn as_planned(env: &[CString], plan: &[Variables], part: &Variables, judged: bool) -> Result<(), String> {
    let nobody = BTreeMap::new();
    // Each is looked up by its name: an image may have very many.
    let of_kind = |kind: fn(&Variables) -> bool| -> BTreeSet<OsString> {
        plan.iter().filter(|one| kind(one)).flat_map(names).collect()
    };
    let set = of_kind(|one| matches!(one, Variables::Set(_)));
    let passed = of_kind(|one| matches!(one, Variables::Passed(_)));
    // Of the plan the last value of each name; what is passed has none here, and comes before what is set.
    let last: BTreeMap<OsString, OsString> = given(plan, &nobody).into_iter().collect();
    let mut there: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
    for variable in env {
        let mut parts = variable.to_bytes().splitn(2, |byte| *byte == b'=');
        if let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            there.entry(name).or_insert(value);
        }
    }
    for (name, _) in given(std::slice::from_ref(part), &nobody) {
        let found = there.get(name.as_bytes());
        let free = judged || passed.contains(&name) && !set.contains(&name);
        let planned = last.get(&name).map(|value| value.as_bytes());
        if !found.is_some_and(|found| free || planned == Some(*found)) {
            return Err(format!("`{}` has not the value of the plan", name.display()));
        }
    }
    Ok(())
}

/// The names of which a clause says something.
fn names(part: &Variables) -> Vec<OsString> {
    match part {
        Variables::Passed(names) => names.iter().map(OsString::from).collect(),
        Variables::Inputs(_) | Variables::Set(_) => {
            given(std::slice::from_ref(part), &BTreeMap::new()).into_iter().map(|(name, _)| name).collect()
        }
    }
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

    use super::{as_planned, given, told_to_runtimes};

    #[test]
    fn a_variable_that_is_lacking_or_has_another_value_is_noticed() {
        let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let env = |all: &[&str]| all.iter().map(|text| std::ffi::CString::new(*text).unwrap()).collect::<Vec<_>>();
        let set = Variables::Set(one("A", "b"));
        let plan = [set.clone()];
        assert_eq!(as_planned(&env(&["AA=c", "A=b", "PATH=/bin"]), &plan, &set, false), Ok(()));
        for wrong in [&[][..], &["A=c"], &["AA=b"], &["A"]] {
            assert!(as_planned(&env(wrong), &plan, &set, false).is_err(), "{wrong:?}");
        }
        // What judged commands must have takes the place of the policy's, and does not take it away.
        assert_eq!(as_planned(&env(&["A=c"]), &plan, &set, true), Ok(()));
        assert!(as_planned(&env(&[]), &plan, &set, true).is_err());
        // An input gives way to the caller's value and to what is set, and to nothing else.
        let input = Variables::Inputs(one("a", "x"));
        let passed = Variables::Passed(vec!["INPUT_A".to_owned()]);
        let other = env(&["INPUT_A=y"]);
        assert!(as_planned(&other, std::slice::from_ref(&input), &input, false).is_err());
        assert_eq!(as_planned(&other, &[input.clone(), passed.clone()], &input, false), Ok(()));
        let all = [input.clone(), passed, Variables::Set(one("INPUT_A", "z"))];
        assert!(as_planned(&other, &all, &input, false).is_err());
        assert_eq!(as_planned(&env(&["INPUT_A=z"]), &all, &input, false), Ok(()));
    }

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
