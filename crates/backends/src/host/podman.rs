//! podman's service on this host: whether it is there, whose it is, and what it says of itself.

use serde_json::Value;

use super::Missing;
use super::engine::{Api, Body, Failure, Method};

/// podman's own interface.
pub(crate) const API: Api = Api { engine: "podman", socket: "/run/podman/podman.sock", prefix: "/v4.0.0/libpod" };

const INSTALL: &str = "`apt-get install podman crun` (Debian) and `systemctl enable --now podman.socket`, or drop `backend`: the native backend needs no engine";
const OF_ROOT: &str =
    "use root's service (`systemctl enable --now podman.socket`), or drop `backend`: the native backend needs no root";
/// The first release whose interface is asked.
const LEAST: u32 = 4;

/// podman's service on this host, run by root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// As it says it, e.g. `4.3.1`.
    pub version: String,
}

impl Service {
    /// One that is only spoken of, for pages that must read the same everywhere.
    pub(crate) fn assumed() -> Self {
        Self { version: "5.0.0".to_owned() }
    }

    /// Looks for it and asks it.
    ///
    /// # Errors
    /// Nobody serves its socket, somebody else than root of this host does, or what it says cannot be used.
    pub(crate) fn find() -> Result<Self, Missing> {
        let missing = |id, why: String, fix: &str| Missing { id, why, fix: fix.to_owned() };
        let failed = |failure| match failure {
            Failure::Nobody(why) => missing("podman/not-here", why, INSTALL),
            Failure::Rootless(why) => missing("podman/rootless", why, OF_ROOT),
            Failure::Elsewhere(why) => missing(
                "podman/elsewhere",
                why,
                "run fumehood where the service runs, outside of containers, or drop `backend`",
            ),
            Failure::Other(_) | Failure::OtherVersion(_) | Failure::Unknown => {
                missing("podman/unusable", format!("podman's service cannot be used: {failure}"), INSTALL)
            }
        };
        API.served_by_root().map_err(failed)?;
        read(&API.ask(Method::Get, "/info", Body::None).map_err(failed)?)
    }
}

fn read(info: &Value) -> Result<Service, Missing> {
    let unusable = |why: &str| Missing { id: "podman/unusable", why: why.to_owned(), fix: INSTALL.to_owned() };
    let version = info.pointer("/version/Version").and_then(Value::as_str);
    let version = version.ok_or_else(|| unusable("podman's service says no version"))?;
    let major = version.split('.').next().and_then(|number| number.parse::<u32>().ok());
    if major.is_none_or(|major| major < LEAST) {
        return Err(unusable(&format!(
            "podman's service is release {version}, and {LEAST}.0 is the oldest that is known"
        )));
    }
    match info.pointer("/host/security/rootless").and_then(Value::as_bool) {
        Some(false) => Ok(Service { version: version.to_owned() }),
        Some(true) | None => Err(Missing {
            id: "podman/rootless",
            why: "podman's service says that it is not root's".to_owned(),
            fix: OF_ROOT.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(version: &str, rootless: bool) -> Result<String, &'static str> {
        let info = json!({ "host": { "security": { "rootless": rootless } }, "version": { "Version": version } });
        read(&info).map(|service| service.version).map_err(|missing| missing.id)
    }

    #[test]
    fn a_service_of_root_and_of_a_known_release_is_used_and_no_other() {
        assert_eq!(said("4.3.1", false), Ok("4.3.1".to_owned()));
        assert_eq!(said("5.0.0-dev", false), Ok("5.0.0-dev".to_owned()));
        assert_eq!(said("4.3.1", true), Err("podman/rootless"));
        assert_eq!(said("3.4.4", false), Err("podman/unusable"));
        assert_eq!(said("", false), Err("podman/unusable"));
        assert_eq!(read(&json!({})).map_err(|missing| missing.id), Err("podman/unusable"));
    }
}
