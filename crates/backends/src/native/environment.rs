//! The environment of the payload: ours, then inputs, then what the policy passes and sets, then what judged commands must
//! have. Nothing else goes in.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use policy::Policy;

/// Search path inside.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// `KEY=VALUE` strings, later ones having replaced earlier ones.
pub(crate) fn build(
    policy: &Policy,
    (passed, forced): (&BTreeMap<OsString, OsString>, &[(OsString, OsString)]),
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
    if let Some(term) = term {
        put(b"TERM", term.as_bytes());
    }
    for (name, input) in &policy.inputs {
        if let Some(value) = &input.value {
            put(format!("INPUT_{}", name.to_uppercase().replace(['-', '.'], "_")).as_bytes(), value.as_bytes());
        }
    }
    for name in &policy.env.pass {
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
