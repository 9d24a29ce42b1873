//! Docker's daemon on this host: whether it is there, whose it is, by which runtime it starts containers, and what it says of itself.

use std::path::Path;

use serde_json::Value;

use super::docker_client::{DockerClient, Named, shown};
use super::engine::{Api, Body, Failure, Method};
use super::{Missing, Runtime};

/// Where root's daemon listens: on most hosts the second is the first.
const SOCKETS: [&str; 2] = ["/run/docker.sock", "/var/run/docker.sock"];
/// Versions of the interface that are spoken, the oldest first: with the number that the daemon says, and what paths begin with.
const VERSIONS: [((u32, u32), &str); 2] = [((1, 41), "/v1.41"), ((1, 44), "/v1.44")];

const INSTALL: &str = "`apt-get install docker.io` (Debian) and `systemctl enable --now docker`, or drop `backend`: the native backend needs no engine";
const RELEASE: &str =
    "install a release of Docker from 20.10 on (`docker version` says which one runs), or drop `backend`";
const OF_ROOT: &str =
    "use root's own daemon (`systemctl enable --now docker`), or drop `backend`: the native backend needs no root";

/// Docker's daemon on this host, run by root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// As it says it, e.g. `20.10.24`.
    pub version: String,
    pub(crate) api: Api,
    /// The runtime that containers are asked for with, and the daemon's own name of it.
    pub runtime: (String, Runtime),
    pub(crate) bounds: Bounds,
}

/// Which limits the daemon says that it can hold in a group of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) memory: bool,
    pub(crate) swap: bool,
    pub(crate) pids: bool,
}

impl Daemon {
    /// One that is only spoken of, for pages that must read the same everywhere.
    pub(crate) fn assumed() -> Self {
        Self {
            version: "28.0.0".to_owned(),
            api: at(SOCKETS[0], VERSIONS[0].1),
            runtime: ("crun".to_owned(), Runtime::assumed()),
            bounds: Bounds { memory: true, swap: true, pids: true },
        }
    }

    /// Looks for it and asks it.
    ///
    /// # Errors
    /// The caller's is another one, or cannot be told; nobody serves its socket, somebody else than root of this host does, or what it
    /// says cannot be used.
    pub(crate) fn find(client: &DockerClient) -> Result<Self, Missing> {
        let missing = |id, why: String, fix: &str| Missing { id, why, fix: fix.to_owned() };
        let named = client.named().map_err(|why| {
            let why = format!("which daemon Docker's client would ask cannot be told: {why}");
            missing("docker/elsewhere", why, "mend what is named, or `docker context use default`; or drop `backend`")
        })?;
        if let Some(Named { host, by, unset }) = named.filter(|named| is_elsewhere(&named.host)) {
            let (host, own) = (shown(&host), SOCKETS[0]);
            let why = format!("{by} is `{host}`, and only root's own daemon of this host is asked, at {own}");
            return Err(missing("docker/elsewhere", why, &format!("{unset}, or drop `backend`")));
        }
        let failed = |failure| match failure {
            Failure::Nobody(why) => missing("docker/not-here", why, INSTALL),
            Failure::Rootless(why) => missing("docker/rootless", why, OF_ROOT),
            Failure::Elsewhere(why) => missing(
                "docker/elsewhere",
                why,
                "run fumehood where the daemon runs, outside of containers, or drop `backend`",
            ),
            Failure::OtherVersion(why) => missing("docker/other-version", why, RELEASE),
            Failure::Other(_) | Failure::Unknown => {
                missing("docker/unusable", format!("Docker's daemon cannot be used: {failure}"), INSTALL)
            }
        };
        let api = api().map_err(failed)?;
        read(api, &api.ask(Method::Get, "/info", Body::None).map_err(failed)?, Runtime::called)
    }
}

/// Whether what the caller's client would ask is another daemon.
fn is_elsewhere(host: &str) -> bool {
    !SOCKETS.iter().any(|socket| host.strip_prefix("unix://") == Some(socket))
}

const fn at(socket: &'static str, prefix: &'static str) -> Api {
    Api { engine: "Docker", socket, prefix }
}

/// How root's daemon is asked, if root serves it.
pub(crate) fn api() -> Result<Api, Failure> {
    let there = SOCKETS.into_iter().find(|socket| Path::new(socket).exists());
    let socket = there.unwrap_or(SOCKETS[0]);
    let any = at(socket, "");
    any.served_by_root()?;
    let said = any.ask(Method::Get, "/version", Body::None)?;
    Ok(at(socket, spoken(&said)?))
}

/// The first version of ours that is none too old and none too new for the daemon.
fn spoken(said: &Value) -> Result<&'static str, Failure> {
    let number = |name: &str| {
        let (major, minor) = said.get(name)?.as_str()?.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    };
    let (Some(least), Some(most)) = (number("MinAPIVersion"), number("ApiVersion")) else {
        return Err(Failure::Other("it does not say which versions of its interface it speaks".to_owned()));
    };
    let spoken = VERSIONS.into_iter().find(|(version, _)| (least..=most).contains(version)).map(|(_, prefix)| prefix);
    spoken.ok_or_else(|| {
        Failure::OtherVersion(format!(
            "Docker's daemon speaks the versions {}.{} to {}.{} of its interface, and neither 1.41 nor 1.44 is among them",
            least.0, least.1, most.0, most.1
        ))
    })
}

fn read(api: Api, info: &Value, called: impl Fn(&Path) -> Option<Runtime>) -> Result<Daemon, Missing> {
    let unusable = |why: &str| Missing { id: "docker/unusable", why: why.to_owned(), fix: INSTALL.to_owned() };
    let version = info.get("ServerVersion").and_then(Value::as_str);
    let version = version.ok_or_else(|| unusable("Docker's daemon says no version"))?.to_owned();
    let options =
        info.get("SecurityOptions").and_then(Value::as_array).ok_or_else(|| unusable("it says no options"))?;
    if options.iter().filter_map(Value::as_str).any(|option| option.starts_with("name=rootless")) {
        return Err(Missing {
            id: "docker/rootless",
            why: "Docker's daemon says that it is not root's".to_owned(),
            fix: OF_ROOT.to_owned(),
        });
    }
    let runtime = runtime(info, called).ok_or_else(|| Missing {
        id: "docker/no-runtime",
        why: "Docker's daemon has neither `crun` nor `runc` among its runtimes, by a path that root alone can write".to_owned(),
        fix: "`apt-get install crun` and `\"runtimes\": { \"crun\": { \"path\": \"/usr/bin/crun\" } }` in /etc/docker/daemon.json, or drop \
              `backend`"
            .to_owned(),
    })?;
    let can = |name: &str| info.get(name).and_then(Value::as_bool) == Some(true);
    let bounds = Bounds { memory: can("MemoryLimit"), swap: can("SwapLimit"), pids: can("PidsLimit") };
    Ok(Daemon { version, api, runtime, bounds })
}

/// The daemon's own runtime, unless that has faults that are known and another one has none.
fn runtime(info: &Value, called: impl Fn(&Path) -> Option<Runtime>) -> Option<(String, Runtime)> {
    let usual = info.get("DefaultRuntime").and_then(Value::as_str)?;
    let all = info.get("Runtimes")?.as_object()?;
    let own = all.iter().filter(|(name, _)| *name == usual);
    let others = all.iter().filter(|(name, _)| *name != usual);
    let mut faulty = None;
    for (name, said) in own.chain(others) {
        // With words of the administrator's it is another one.
        let plain = said.get("runtimeArgs").is_none_or(|words| words.as_array().is_some_and(Vec::is_empty));
        let path = said.get("path").and_then(Value::as_str).filter(|_| plain && !name.contains('.'));
        let Some(found) = path.and_then(|path| called(Path::new(path))) else { continue };
        if found.faults().next().is_none() {
            return Some((name.clone(), found));
        }
        faulty.get_or_insert((name.clone(), found));
    }
    faulty
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(info: &Value) -> Result<String, &'static str> {
        let called = |path: &Path| (path.ends_with("crun")).then(Runtime::assumed);
        read(at(SOCKETS[0], "/v1.41"), info, called).map(|daemon| daemon.runtime.0).map_err(|missing| missing.id)
    }

    #[test]
    fn a_daemon_of_root_with_a_runtime_that_is_known_is_used_and_no_other() {
        let info = |options: Value, runtimes: Value| json!({ "ServerVersion": "20.10.24", "SecurityOptions": options, "DefaultRuntime": "runc", "Runtimes": runtimes });
        let crun = json!({ "path": "/usr/bin/crun" });
        let all = json!({ "runc": { "path": "runc" }, "mine": crun, "io.containerd.runc.v2": crun });
        assert_eq!(said(&info(json!(["name=seccomp,profile=default"]), all.clone())), Ok("mine".to_owned()));
        assert_eq!(said(&info(json!(["name=rootless"]), all)), Err("docker/rootless"));
        for without in [
            json!({ "runc": { "path": "runc" } }),
            json!({ "crun": { "path": "crun", "runtimeArgs": ["--debug"] } }),
            json!({}),
        ] {
            assert_eq!(said(&info(json!([]), without)), Err("docker/no-runtime"));
        }
        assert_eq!(said(&json!({})), Err("docker/unusable"));
        assert_eq!(said(&json!({ "ServerVersion": "1", "SecurityOptions": null })), Err("docker/unusable"));
    }

    #[test]
    fn another_daemon_of_the_callers_is_refused_by_its_name() {
        for own in ["unix:///run/docker.sock", "unix:///var/run/docker.sock"] {
            assert!(!is_elsewhere(own), "{own}");
        }
        for other in
            ["tcp://10.0.0.1:2375", "ssh://host", "unix:///run/user/1000/docker.sock", "unix://run/docker.sock"]
        {
            let missing =
                Daemon::find(&DockerClient { host: Some(other.to_owned()), ..DockerClient::default() }).unwrap_err();
            assert!(missing.id == "docker/elsewhere" && missing.why.contains(other), "{missing:?}");
        }
    }

    #[test]
    fn the_interface_is_one_that_both_speak() {
        let said = |least: &str, most: &str| spoken(&json!({ "MinAPIVersion": least, "ApiVersion": most }));
        assert_eq!(said("1.12", "1.41").unwrap(), "/v1.41");
        assert_eq!(said("1.24", "1.51").unwrap(), "/v1.41");
        assert_eq!(said("1.44", "1.52").unwrap(), "/v1.44");
        for (least, most) in [("1.12", "1.40"), ("1.45", "1.60")] {
            let Err(Failure::OtherVersion(why)) = said(least, most) else { panic!("{least} to {most} is spoken") };
            assert!(why.contains(&format!("{least} to {most}")), "{why}");
        }
        assert!(matches!(spoken(&json!({})), Err(Failure::Other(_))));
    }
}
