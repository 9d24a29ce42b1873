//! The environment of the payload: ours, then inputs, then what the policy passes and sets, then what judged commands must
//! have. Nothing else goes in.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use policy::Policy;

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
pub(crate) fn build(
    policy: &Policy,
    (passed, forced, trust): (&BTreeMap<OsString, OsString>, &[(OsString, OsString)], bool),
    home: &str,
    tmp: &str,
    term: Option<&OsStr>,
) -> Vec<CString> {
    let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut put = |key: &[u8], value: &[u8]| {
        all.insert(key.to_vec(), value.to_vec());
    };
    put(b"PATH", PATH.as_bytes());
    put(b"HOME", home.as_bytes());
    put(b"USER", policy.process.user.as_bytes());
    put(b"LOGNAME", policy.process.user.as_bytes());
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
    for (name, mut value) in policy.limits.memory.iter().flat_map(|limit| told_to_runtimes(limit.0)) {
        if trust && name == JAVA_OPTIONS {
            value = format!("{value} {}", trust::JAVA);
        }
        put(name.as_bytes(), value.as_bytes());
    }
    if let Some(term) = term {
        put(b"TERM", term.as_bytes());
    }
    for (name, input) in &policy.inputs {
        if let Some(value) = &input.value {
            put(format!("INPUT_{}", name.to_uppercase().replace(['-', '.'], "_")).as_bytes(), value.as_bytes());
        }
    }
    let placeholders = policy.secrets.values().filter_map(|secret| secret.env.as_ref());
    for name in policy.env.pass.iter().chain(placeholders) {
        if let Some(value) = passed.get(OsStr::new(name)) {
            put(name.as_bytes(), value.as_bytes());
        }
    }
    for (name, value) in &policy.env.set {
        put(name.as_bytes(), value.as_bytes());
    }
    // Last, so that nothing of the policy undoes it.
    for (name, value) in forced {
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
    use super::told_to_runtimes;

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
