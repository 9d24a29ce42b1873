//! The request to the service manager, over a real bus, answered by a manager of our own that does what systemd does.
//! In a process of its own, since this process is moved.
#![cfg(feature = "systemd")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "a test: helpers of one are not marked as tests, and the bus hands values over"
)]

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sys::cgroup::systemd::{DelegationError, delegate, settle_in_own};
use sys::command::Command;
use sys::proc::Process;
use zbus::{OwnedObjectPath, OwnedVariant};

const LIMIT: Duration = Duration::from_secs(60);

struct Manager {
    parent: PathBuf,
    moves: bool,
}

type Aux = Vec<(String, Vec<(String, OwnedVariant)>)>;

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Manager {
    fn start_transient_unit(
        &self,
        name: &str,
        mode: &str,
        properties: Vec<(String, OwnedVariant)>,
        aux: Aux,
    ) -> zbus::fdo::Result<OwnedObjectPath> {
        let given: HashMap<String, OwnedVariant> = properties.into_iter().collect();
        let delegate = bool::try_from(given["Delegate"].clone()).unwrap();
        let pids = Vec::<u32>::try_from(given["PIDs"].clone()).unwrap();
        // Zero is whoever asks, as in systemd: that is this process, which is also the manager.
        if mode != "fail" || !delegate || pids != [0] || !aux.is_empty() || name.contains("bad") {
            return Err(zbus::fdo::Error::AccessDenied("not this one".into()));
        }
        if self.moves {
            let scope = self.parent.join(name);
            std::fs::create_dir(&scope).unwrap();
            std::fs::write(scope.join("cgroup.procs"), std::process::id().to_string()).unwrap();
        }
        Ok(OwnedObjectPath::try_from("/org/freedesktop/systemd1/job/1").unwrap())
    }
}

fn own_group() -> String {
    let all = Process::own().unwrap().cgroups().unwrap();
    all.into_iter().find(|one| one.controllers.is_empty()).unwrap().path
}

fn wait_for(path: &Path) {
    let deadline = Instant::now() + LIMIT;
    while !path.exists() {
        assert!(Instant::now() < deadline, "{} did not come", path.display());
    }
}

fn serve(socket: &Path, parent: &Path, moves: bool) -> zbus::Connection {
    zbus::block_on(async {
        zbus::connection::Builder::address(format!("unix:path={}", socket.display()).as_str())
            .serve_at("/org/freedesktop/systemd1", Manager { parent: parent.to_owned(), moves })
            .name("org.freedesktop.systemd1")
            .build()
            .await
            .unwrap()
    })
}

#[test]
fn a_scope_is_asked_for_waited_for_and_left_for_a_leaf() {
    let mounts = Process::own().unwrap().mounts().unwrap();
    let unified = mounts.iter().find(|mount| mount.kind == "cgroup2" && mount.root == "/");
    let daemon = Path::new("/usr/bin/dbus-daemon");
    let (Some(unified), true) = (unified, daemon.exists() && sys::caller::euid() == 0) else {
        println!("skip: needs root, a cgroup2 mount and dbus-daemon");
        return;
    };
    let before = own_group();
    let parent = Path::new(&unified.point).join(before.trim_start_matches('/'));
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("bus");
    let config = folder.path().join("bus.conf");
    let text = format!(
        "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\" \
         \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\"><busconfig><listen>unix:path={}</listen>\
         <policy context=\"default\"><allow send_destination=\"*\"/>\
         <allow receive_sender=\"*\"/><allow own=\"*\"/></policy></busconfig>",
        socket.display()
    );
    std::fs::write(&config, text).unwrap();
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    let null = null.as_fd();
    let bus = Command::new(daemon).arg("--nofork").arg(format!("--config-file={}", config.display()));
    let bus = bus.start(null, null, null).unwrap();
    wait_for(&socket);
    let unit = format!("sys-test-{}.scope", std::process::id());

    // A bus that takes connections and says nothing.
    let silent = folder.path().join("silent");
    let _listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
    let silence = delegate(&silent, &unit, "leaf", Duration::from_millis(50));
    assert!(matches!(silence, Err(DelegationError::NoAnswer { .. })));

    // No manager, then a manager that refuses, then one that only says yes.
    assert!(matches!(delegate(&socket, &unit, "leaf", LIMIT), Err(DelegationError::Refused { .. })));
    let idle = serve(&socket, &parent, false);
    assert!(matches!(delegate(&socket, "bad.scope", "leaf", LIMIT), Err(DelegationError::Refused { .. })));
    let late = delegate(&socket, &unit, "leaf", Duration::from_millis(50));
    assert!(matches!(late, Err(DelegationError::NotMoved { .. })));
    assert_eq!(own_group(), before);
    zbus::block_on(idle.close()).unwrap();

    let manager = serve(&socket, &parent, true);
    let scope = delegate(&socket, &unit, "leaf", LIMIT).unwrap();
    assert_eq!(scope, format!("{}/{unit}", before.trim_end_matches('/')));
    assert_eq!(own_group(), format!("{scope}/leaf"));
    assert_eq!(std::fs::read_to_string(parent.join(&unit).join("cgroup.procs")).unwrap(), "");

    std::fs::write(parent.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    std::fs::remove_dir(parent.join(&unit).join("leaf")).unwrap();
    std::fs::remove_dir(parent.join(&unit)).unwrap();
    a_group_that_was_given_to_this_process_alone_is_settled_in(&parent);
    zbus::block_on(manager.close()).unwrap();
    sys::pidfd::send_signal(&bus.pidfd, 9).unwrap();
    sys::pidfd::wait(&bus.pidfd).unwrap();
}

/// As a service with `Delegate=yes` finds itself. Part of the test above, since it moves this process as well.
fn a_group_that_was_given_to_this_process_alone_is_settled_in(parent: &Path) {
    let given = tempfile::Builder::new().prefix("sys-given-").tempdir_in(parent).unwrap().keep();
    let (before, own) = (own_group(), std::process::id().to_string());
    std::fs::write(given.join("cgroup.procs"), &own).unwrap();
    assert!(!settle_in_own("leaf").unwrap(), "nobody has given it");
    rustix::fs::setxattr(&given, "user.delegate", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    let other = Command::new("/usr/bin/sleep").arg("600").start(null.as_fd(), null.as_fd(), null.as_fd()).unwrap();
    assert!(!settle_in_own("leaf").unwrap(), "somebody else is in it");
    sys::pidfd::send_signal(&other.pidfd, 9).unwrap();
    sys::pidfd::wait(&other.pidfd).unwrap();
    assert!(settle_in_own("leaf").unwrap());
    assert!(own_group().ends_with("/leaf") && std::fs::read_to_string(given.join("cgroup.procs")).unwrap().is_empty());
    assert!(!settle_in_own("leaf").unwrap(), "it is done");

    std::fs::write(parent.join("cgroup.procs"), &own).unwrap();
    assert_eq!(own_group(), before);
    std::fs::remove_dir(given.join("leaf")).unwrap();
    std::fs::remove_dir(given).unwrap();
}
