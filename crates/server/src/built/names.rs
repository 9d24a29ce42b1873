//! Ids and names of templates that clients build.

use axum::http::StatusCode;
use policy::json::hex;

use crate::answer::Problem;

/// The tag that is meant where none is said.
pub(crate) const DEFAULT: &str = "default";
/// Longest name, and longest tag.
const MAX_NAME: usize = 63;

/// A name or an id, and a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TemplateName {
    pub(crate) name: String,
    pub(crate) tag: Option<String>,
}

impl TemplateName {
    /// The tag that is meant.
    pub(crate) fn tag(&self) -> &str {
        self.tag.as_deref().unwrap_or(DEFAULT)
    }
}

/// Reads `NAME[:TAG]`.
///
/// # Errors
/// It is none.
pub(crate) fn parse_template_name(field: &str, text: &str) -> Result<TemplateName, Problem> {
    let (name, tag) = text.split_once(':').map_or((text, None), |(name, tag)| (name, Some(tag)));
    if name.contains('/') {
        let instead = "leave out what stands before `/`: each key has its own names here";
        let problem = Problem::invalid(field, &format!("{} has a namespace", policy::diagnostic::quote(text)));
        return Err(Problem { instead: instead.to_owned(), ..problem });
    }
    if !is_name(name) || !tag.is_none_or(is_name) {
        let rule = "letters, digits, `_`, `.` and `-` after a letter or digit, 63 at most; a tag stands behind `:`";
        let what = format!("{} is no name of a template", policy::diagnostic::quote(text));
        return Err(Problem { instead: rule.to_owned(), ..Problem::invalid(field, &what) });
    }
    Ok(TemplateName { name: name.to_owned(), tag: tag.map(str::to_owned) })
}

/// A name, or a tag.
pub(crate) fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    text.len() <= MAX_NAME
        && text.bytes().all(plain)
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
}

/// Whether this is an id of ours: `t` and 19 hexadecimal digits, so that it is none of a snapshot or a sandbox.
pub(crate) fn is_id(text: &str) -> bool {
    let rest = text.strip_prefix('t');
    rest.is_some_and(|rest| rest.len() == 19 && rest.bytes().all(|byte| b"0123456789abcdef".contains(&byte)))
}

/// Whether this is an id of a build.
pub(crate) fn is_build_id(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| b"0123456789abcdef-".contains(&byte))
}

pub(crate) fn new_id() -> Result<String, Problem> {
    let digits = hex(&random::<10>()?);
    Ok(format!("t{}", digits.get(..19).unwrap_or_default()))
}

/// A version 4 UUID: clients read it as one.
pub(crate) fn new_build_id() -> Result<String, Problem> {
    let mut bytes = random::<16>()?;
    let [_, _, _, _, _, _, version, _, variant, ..] = &mut bytes;
    *version = (*version & 0x0f) | 0x40;
    *variant = (*variant & 0x3f) | 0x80;
    let digits = hex(&bytes);
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    Ok([part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-"))
}

fn random<const N: usize>() -> Result<[u8; N], Problem> {
    let mut bytes = [0; N];
    if sys::random::fill(&mut bytes) {
        return Ok(bytes);
    }
    let (what, why) = ("no id could be made", "the kernel gave no random bytes");
    Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "serve/random", what, why, "try again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_ids_are_told_from_others() {
        let found = parse_template_name("name", "my-app:v1.2").unwrap();
        assert_eq!((found.name.as_str(), found.tag()), ("my-app", "v1.2"));
        assert_eq!(parse_template_name("name", "my-app").unwrap().tag(), DEFAULT);
        for bad in ["", ":v1", "a:", "a b", "../x", "team/app", "a:b:c", "-a", "a\n", &"a".repeat(64)] {
            assert!(parse_template_name("name", bad).is_err(), "{bad}");
        }
        let id = new_id().unwrap();
        assert!(is_id(&id) && id != new_id().unwrap(), "{id}");
        let build = new_build_id().unwrap();
        assert!(is_build_id(&build) && build.as_bytes()[14] == b'4', "{build}");
        for other in ["0123456789abcdef0123", "t0123", "t/../../../etc/passwd"] {
            assert!(!is_id(other) && !is_build_id(other), "{other}");
        }
    }
}
