//! `fumehood oci` as an engine calls it: a bundle, a monitor that waits for the process of the pid file, and podman itself in the
//! stage that has it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::image_runs::TOOLS;
use crate::{Fixture, python};

/// A monitor: it adopts what `create` leaves, starts it, and waits for its end.
const MONITOR: &str = r#"
import ctypes, json, os, subprocess, sys
product, root, bundle, name, then = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:]
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
log = bundle + "/log"
def oci(*words, **more):
    return subprocess.run([product, "oci", "--root", root, "--log", log, "--log-format=json", *words], text=True, capture_output=True, **more)
def status():
    return json.loads(oci("state", name).stdout)["status"]
out, err = open(bundle + "/out", "wb"), open(bundle + "/err", "wb")
made = subprocess.run([product, "oci", "--root", root, "--log", log, "--log-format=json", "create", "--bundle", bundle,
                       "--pid-file", bundle + "/pid", name], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
told = {"create": made.returncode, "states": []}
if made.returncode == 0:
    pid = int(open(bundle + "/pid").read())
    told["states"].append(status())
    told["again"] = oci("create", "--bundle", bundle, name).returncode
    if "unstarted" not in then:
        told["start"] = oci("start", name).returncode
    if "kill" in then:
        told["states"].append(status())
        told["delete of a running one"] = oci("delete", name).returncode
        oci("kill", name, "KILL")
    if "unstarted" in then:
        oci("kill", name, "TERM")
    if "crash" in then:
        os.kill(pid, 9)
    told["code"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    told["states"].append(status())
    told["kill of an ended one"] = oci("kill", name, "9").returncode
    told["list"] = [one["id"] for one in json.loads(oci("list", "--format", "json").stdout)]
    told["delete"] = oci("delete", name).returncode
told["unknown"] = [oci("state", name).returncode, oci("delete", name).returncode, oci("delete", "--force", name).returncode]
told["log"] = open(log).read() if os.path.exists(log) else ""
told["out"], told["err"] = open(bundle + "/out").read(), open(bundle + "/err").read()
print(json.dumps(told))
"#;

/// A bundle whose program is this script of busybox.
fn bundle(fixture: &Fixture, script: &str, change: impl FnOnce(&mut Value)) -> PathBuf {
    let bundle = fixture.path("bundle");
    let bin = bundle.join("rootfs/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::copy("/bin/busybox", bin.join("busybox"))
        .unwrap_or_else(|error| panic!("busybox-static is needed: {error}"));
    for name in TOOLS.iter().chain(&["mount", "grep", "wc", "tr", "readlink"]) {
        std::os::unix::fs::symlink("busybox", bin.join(name)).unwrap();
    }
    let kinds = ["pid", "network", "ipc", "uts", "mount", "cgroup"].map(|kind| json!({ "type": kind }));
    let mut document = json!({
        "ociVersion": "1.0.2",
        "process": { "user": { "uid": 0, "gid": 0 }, "args": ["/bin/sh", "-c", script], "env": ["PATH=/bin"], "cwd": "/" },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": "box",
        "linux": { "namespaces": kinds, "resources": { "memory": { "limit": 134_217_728 }, "pids": { "limit": 16 } } },
    });
    change(&mut document);
    std::fs::write(bundle.join("config.json"), document.to_string()).unwrap();
    bundle
}

fn monitored(fixture: &Fixture, bundle: &Path, then: &[&str]) -> Value {
    let mut command = python(fixture, MONITOR, env!("CARGO_BIN_EXE_fumehood").as_ref());
    command.arg(fixture.path("engine")).arg(bundle).arg("one").args(then);
    let said = fixture.said(&command.output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    said.json()
}

/// Engines call a runtime as root.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skip: only root creates containers");
    }
    root
}

#[test]
fn a_bundle_runs_with_the_engines_streams_and_its_exit_code() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    let bundle = bundle(&fixture, "id -u; cat /etc/hostname; readlink /dev/stdin; echo told >&2; exit 7", |_| {});
    let told = monitored(&fixture, &bundle, &[]);
    assert_eq!((&told["create"], &told["start"]), (&json!(0), &json!(0)), "{told:#}");
    assert_eq!((told["states"].clone(), told["code"].clone()), (json!(["created", "stopped"]), json!(7)), "{told:#}");
    assert_eq!(
        (told["out"].as_str(), told["err"].as_str()),
        (Some("0\nbox\n/proc/self/fd/0\n"), Some("told\n")),
        "{told:#}"
    );
    assert_eq!((told["again"].clone(), told["kill of an ended one"].clone()), (json!(125), json!(125)), "{told:#}");
    assert_eq!((told["list"].clone(), told["delete"].clone()), (json!(["one"]), json!(0)), "{told:#}");
    assert_eq!(told["unknown"], json!([125, 125, 0]), "{told:#}");
    assert!(!fixture.path("engine/one").exists());
}

/// As of other runtimes: an engine hears that there is no such program, and the container has ended.
#[test]
fn a_program_that_is_not_there_is_an_error_of_start() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    let nothing = |document: &mut Value| document["process"]["args"] = json!(["/bin/none"]);
    let told = monitored(&fixture, &bundle(&fixture, "", nothing), &[]);
    assert_eq!((&told["create"], &told["start"], &told["code"]), (&json!(0), &json!(125), &json!(127)), "{told:#}");
    assert_eq!((&told["states"], &told["delete"]), (&json!(["created", "stopped"]), &json!(0)), "{told:#}");
    assert!(told["log"].as_str().unwrap().contains("/bin/none"), "{told:#}");
}

/// Who is root inside has nothing of root's: each line is an attempt that works for root of the host.
#[test]
fn a_program_has_no_privilege_and_sees_nothing_of_the_host() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    std::fs::write(fixture.path("outside"), "secret").unwrap();
    let script = format!(
        "touch /x && echo root-written; touch /bin/x && echo bin-written; mount -t tmpfs t /tmp && echo mounted; \
         cat {} && echo seen; cat /proc/kcore && echo kcore; grep -c : /proc/net/dev; \
         grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'; touch /tmp/x && echo tmp",
        fixture.path("outside").display()
    );
    let told = monitored(&fixture, &bundle(&fixture, &script, |_| {}), &[]);
    let wanted = "1\nCapEff:0000000000000000\nCapBnd:0000000000000000\nNoNewPrivs:1\nSeccomp:2\ntmp\n";
    assert_eq!(told["out"].as_str(), Some(wanted), "{told:#}");
}

/// The filter of a document closes a call that ours leaves open; without it the call works.
#[test]
fn a_filter_of_the_document_is_in_force() {
    if !is_root() {
        return;
    }
    for (closed, out) in [(true, "no\n"), (false, "made\n")] {
        let fixture = Fixture::new();
        let bundle = bundle(&fixture, "mkdir /tmp/x 2>/dev/null && echo made || echo no", |document| {
            let names = if closed { json!(["mkdir", "mkdirat"]) } else { json!(["swapon"]) };
            let rule = json!({ "names": names, "action": "SCMP_ACT_ERRNO" });
            document["linux"]["seccomp"] = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule] });
        });
        let told = monitored(&fixture, &bundle, &[]);
        assert_eq!(told["out"].as_str(), Some(out), "{told:#}");
    }
}

#[test]
fn a_field_that_is_not_held_refuses_the_container_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    let told =
        monitored(&fixture, &bundle(&fixture, "echo ran", |document| document["root"]["readonly"] = json!(false)), &[]);
    assert_eq!((told["create"].clone(), told["out"].as_str()), (json!(126), Some("")), "{told:#}");
    assert!(told["err"].as_str().unwrap().contains("`root.readonly` cannot be had"), "{told:#}");
    let line: Value = serde_json::from_str(told["log"].as_str().unwrap().lines().next().unwrap()).unwrap();
    assert_eq!(line["level"], "error");
    assert!(line["msg"].as_str().unwrap().contains("root.readonly"), "{line}");
    assert!(!fixture.path("engine/one").exists());
}

#[test]
fn a_container_is_killed_before_and_after_its_start() {
    if !is_root() {
        return;
    }
    for (then, code, states) in
        [("kill", 137, json!(["created", "running", "stopped"])), ("unstarted", 143, json!(["created", "stopped"]))]
    {
        let fixture = Fixture::new();
        let told = monitored(&fixture, &bundle(&fixture, "sleep 1000", |_| {}), &[then]);
        assert_eq!((told["code"].clone(), told["states"].clone()), (json!(code), states), "{told:#}");
        if then == "kill" {
            assert_eq!(told["delete of a running one"], 125, "{told:#}");
        }
    }
}

/// The group that an engine names is entered, and gone with the container.
#[test]
fn the_engines_group_holds_the_container() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    let group = format!("/fumehood-test-{}", std::process::id());
    let told = monitored(
        &fixture,
        &bundle(&fixture, "true", |document| document["linux"]["cgroupsPath"] = json!(group.clone())),
        &[],
    );
    assert_eq!((told["code"].clone(), told["delete"].clone()), (json!(0), json!(0)), "{told:#}");
    assert_eq!(left(&group), Vec::<PathBuf>::new());
}

/// Where a group is still there.
fn left(group: &str) -> Vec<PathBuf> {
    std::fs::read_dir("/sys/fs/cgroup")
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path().join(group.trim_start_matches('/'))))
        .filter(|path| path.exists())
        .collect()
}

/// Neither a supervisor that was killed nor a refusal leaves a group.
#[test]
fn no_group_is_left_by_a_crash_or_a_refusal() {
    if !is_root() {
        return;
    }
    for crashes in [true, false] {
        let fixture = Fixture::new();
        let group = format!("/fumehood-test-{}-{crashes}", std::process::id());
        let bundle = bundle(&fixture, "sleep 1000", |document| {
            document["linux"]["cgroupsPath"] = json!(group.clone());
            if !crashes {
                document["hostname"] = json!("no name of a host");
            }
        });
        let told = monitored(&fixture, &bundle, &["crash"]);
        if crashes {
            assert_eq!((told["code"].clone(), told["delete"].clone()), (json!(-9), json!(0)), "{told:#}");
        } else {
            assert_ne!(told["create"], 0, "{told:#}");
            assert!(told["err"].as_str().unwrap().contains("hostname"), "{told:#}");
        }
        assert_eq!(left(&group), Vec::<PathBuf>::new(), "{told:#}");
    }
}

/// A socket that a program of the host listens on within the root can be reached from outside, and not from within.
#[test]
fn a_socket_in_the_root_is_not_reached() {
    const REACH: &str = r#"
import socket, sys
def told(name, attempt):
    try:
        attempt()
        print(name)
    except PermissionError:
        print("no " + name)
def inet():
    server = socket.create_server(("127.0.0.1", 0))
    socket.create_connection(server.getsockname()).close()
told("socket", lambda: socket.socket(socket.AF_UNIX).connect(sys.argv[1]))
told("pair", socket.socketpair)
told("inet", inet)
"#;
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    let bundle = bundle(&fixture, "", |document| {
        document["process"]["args"] = json!(["/usr/bin/python3", "-c", REACH, "/srv/socket"]);
        document["mounts"] =
            json!([{ "destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"] }]);
    });
    let root = bundle.join("rootfs");
    for name in ["lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name)).unwrap();
    }
    std::fs::create_dir(root.join("srv")).unwrap();
    let socket = root.join("srv/socket");
    let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let outside = fixture.said(&python(&fixture, REACH, socket.as_os_str()).output().unwrap());
    assert_eq!((outside.code, outside.out.as_str()), (0, "socket\npair\ninet\n"), "{outside:?}");
    let told = monitored(&fixture, &bundle, &[]);
    assert_eq!(told["out"].as_str(), Some("no socket\npair\ninet\n"), "{told:#}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test starts the product as its users do")]
fn only_root_creates_and_starts() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    for word in ["create", "start"] {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", env!("CARGO_BIN_EXE_fumehood"), "oci", "--root"]).arg(fixture.path("engine"));
        let said = fixture.said(&command.args([word, "one"]).output().unwrap());
        assert_eq!(said.code, 125, "{said:?}");
        assert!(said.err.contains("is root's alone"), "{said:?}");
        assert!(!fixture.path("engine").exists());
    }
}

/// An engine that knows nothing of us, with a store of its own: its clients see the code, the words and the refusal.
#[test]
fn podman_runs_what_is_held_and_says_what_is_refused() {
    const ENGINE: &str = "
        engine() { podman --root $HOME/store --runroot $HOME/run --tmpdir $HOME/tmp --storage-driver vfs \
            --cgroup-manager cgroupfs --events-backend none --runtime $HOME/fumehood-oci \"$@\"; }
        begin() { engine run --network none --cgroup-parent $GROUP \"$@\"; }
        root=$HOME/bundle/rootfs
        begin --rm --read-only --rootfs $root /bin/sh -c 'id -u; touch /x || exit 7'; echo $?
        begin --rm --rootfs $root /bin/sh -c 'echo ran'; echo $?
        begin --name long -d --read-only --rootfs $root /bin/sh -c 'echo up; sleep 1000' >/dev/null
        for _ in $(seq 100); do engine logs long | grep up && break; sleep 0.1; done
        engine kill long >/dev/null; engine wait long; engine rm long >/dev/null; engine ps -aq
        find /sys/fs/cgroup -path \"*$GROUP/*\" -type d ! -name conmon
        for _ in $(seq 100); do
            find /sys/fs/cgroup -depth -path \"*$GROUP*\" -type d -exec rmdir {} + 2>/dev/null && break; sleep 0.1
        done";
    if !is_root() {
        return;
    }
    if std::env::var_os("FUMEHOOD_OWN_PODMAN").is_none() {
        return println!("skip: podman starts containers of its own below scripts/with-podman alone");
    }
    let fixture = Fixture::new();
    bundle(&fixture, "", |_| {});
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fumehood"), fixture.path("fumehood-oci")).unwrap();
    let group = format!("/fumehood-test-{}-podman", std::process::id());
    let said = fixture.said(&crate::script(ENGINE, &fixture).env("GROUP", &group).output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (0, "0\n7\n126\nup\n137\n"), "{said:?}");
    assert!(said.err.contains("`root.readonly` cannot be had"), "{said:?}");
    assert_eq!(left(&group), Vec::<PathBuf>::new());
}

/// containerd by its own client, with an image that we exported: codes, words, limits, a kill from outside, refusals; nothing stays.
#[test]
fn containerd_runs_what_is_held_and_says_what_is_refused() {
    const ENGINE: &str = "
        store=$CONTAINERD_NAMESPACE
        begin() { ctr run --read-only --runc-binary $HOME/fumehood-oci \"$@\"; }
        shown=type=bind,src=$HOME/work,dst=/mnt,options=rbind
        ctr images import $HOME/exported.tar >/dev/null
        begin --rm $IMAGE words sh -c 'id -u; touch /x || exit 7'; echo $?
        for limit in 33554432 134217728; do
            begin --rm --memory-limit $limit $IMAGE memory sh -c 'busybox dd if=/dev/zero of=/dev/null bs=64M count=1 && echo had'; echo $?
        done
        begin --rm --mount $shown:ro $IMAGE shown sh -c 'cat /mnt/told; touch /mnt/x || exit 8'; echo $?
        begin --rm --mount $shown:rw $IMAGE writable sh -c 'echo ran'; echo $?
        begin --rm --net-host $IMAGE network sh -c 'echo ran'; echo $?
        ctr run --rm --runc-binary $HOME/fumehood-oci $IMAGE root sh -c 'echo ran'; echo $?
        begin --detach --null-io --cpus 0.5 $IMAGE long sh -c 'while :; do :; done'
        for _ in $(seq 200); do
            find /sys/fs/cgroup -path \"*/$store/*\" -name cpu.stat -exec cat {} + | grep -q 'nr_throttled [1-9]' && echo slowed && break
            sleep 0.1
        done
        ctr tasks kill --signal KILL long
        for _ in $(seq 200); do ctr tasks ls | grep -q 'long.*STOPPED' && break; sleep 0.1; done
        ctr tasks delete long; echo $?; ctr containers delete long
        ctr tasks ls -q; ctr containers ls -q; ls /run/containerd/runc/$store; grep /run/containerd/state /proc/self/mountinfo
        find /sys/fs/cgroup -path \"*/$store/*\" -type d";
    const IMAGE: &str = "docker.io/library/small:1";
    if !is_root() {
        return;
    }
    let Some(programs) = std::env::var_os("FUMEHOOD_OWN_CONTAINERD") else {
        return println!("skip: containerd starts containers of its own below scripts/with-containerd alone");
    };
    let fixture = Fixture::new();
    std::fs::write(fixture.path("work/told"), "told\n").unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fumehood"), fixture.path("fumehood-oci")).unwrap();
    let (saved, exported) = (fixture.path("saved.tar"), fixture.path("exported.tar"));
    crate::image_runs::saved(&saved, IMAGE, &crate::image_runs::layer(Vec::new()), &json!({ "Env": ["PATH=/bin"] }));
    for words in [&["import", saved.to_str().unwrap()][..], &["export", IMAGE, exported.to_str().unwrap()]] {
        let said = fixture.run(&[&["image"], words].concat());
        assert_eq!(said.code, 0, "{said:?}");
    }
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display());
    let store = std::env::var_os("CONTAINERD_NAMESPACE").unwrap();
    let mut engine = crate::script(ENGINE, &fixture);
    engine.env("PATH", path).env("CONTAINERD_NAMESPACE", store).env("IMAGE", IMAGE);
    let said = fixture.said(&engine.output().unwrap());
    let wanted = "0\n7\n124\nhad\n0\ntold\n8\n1\n1\n1\nslowed\n0\n";
    assert_eq!(said.out.as_str(), wanted, "{said:?}");
    for words in [
        "would be written to on the host",
        "without `network`",
        "`root.readonly` cannot be had",
        "task long exit with non-zero exit code 137",
    ] {
        assert!(said.err.contains(words), "{words}: {said:?}");
    }
}

/// What cannot be read may be of one that runs.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test starts the product as its users do")]
fn a_record_that_cannot_be_read_is_not_forgotten() {
    let fixture = Fixture::new();
    let record = fixture.path("engine/one/state.json");
    std::fs::create_dir_all(record.parent().unwrap()).unwrap();
    std::fs::write(&record, "{").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fumehood"));
    command.args(["oci", "--root"]).arg(fixture.path("engine")).args(["delete", "--force", "one"]);
    let said = fixture.said(&command.output().unwrap());
    assert_eq!(said.code, 125, "{said:?}");
    assert!(record.exists());
}
