//! Hosts as E2B's rules name them.

use axum::http::StatusCode;
use policy::value::host_matches;

use crate::answer::Problem;

/// Whether a pattern stands for all that another one does.
pub(super) fn covers(pattern: &str, other: &str) -> bool {
    pattern == other
        || (pattern.starts_with("**.") && host_matches(pattern, other.strip_prefix("**.").unwrap_or(other)))
}

/// A host as our rules write it.
pub(super) fn pattern(clause: &str, host: &str) -> Result<String, Problem> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let last = name.rsplit('.').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    // What ends with a number is an address, however it is written.
    if name.is_empty() || !name.chars().all(plain) || last.chars().all(|c| c.is_ascii_digit()) {
        let why = "it is no host: addresses are allowed for all ports there, and here only for ports that a rule names";
        return Err(cannot(clause, why));
    }
    let (host, name) = (host.to_ascii_lowercase(), name.to_ascii_lowercase());
    Ok(if name == host { host } else { format!("**.{name}") })
}

pub(super) fn cannot(clause: &str, why: &str) -> Problem {
    let instead = "leave it out, or say by `/v1` which hosts and ports are meant (`policy: {net: {...}}`)";
    Problem::cannot(StatusCode::BAD_REQUEST, clause, &format!("`{clause}` cannot be held"), why, instead)
}
