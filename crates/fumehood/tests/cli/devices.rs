//! Devices of the host: what a policy gives is there and open, what it does not give is not, and what cannot be given is refused.

use serde_json::Value;

use crate::{Fixture, script};

const KVM: &str = "--set=process.devices=[\"kvm\"]";

/// Opens each of these, and asks `/dev/kvm` for the version of its interface.
const PROBE: &str = r#"
import fcntl, os, stat, sys
for path in sys.argv[1:]:
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError as error:
        print(path, error.strerror)
        continue
    print(path, fcntl.ioctl(fd, 0xAE00) if path == "/dev/kvm" else "open", stat.S_ISCHR(os.fstat(fd).st_mode))
"#;

/// A node of this mount namespace alone at the place of `/dev/kvm`, which everybody may open; `false` and the reason where there
/// is no such device, or nobody who may make one.
#[expect(clippy::print_stdout, reason = "who reads the tests sees what was left out")]
pub(super) fn open_kvm(fixture: &Fixture) -> bool {
    let make = "exec 2>&1; test -c /dev/kvm || { echo no /dev/kvm; exit 1; }; \
                mkdir node && mount -t tmpfs -o mode=755 tmpfs node && mknod -m 666 node/kvm c 10 232 && \
                mount --bind node/kvm /dev/kvm && umount -l node && rmdir node && exec 3<>/dev/kvm";
    let made = script(make, fixture).output().unwrap();
    if !made.status.success() {
        println!("skip: no node of a device can be made: {}", String::from_utf8_lossy(&made.stdout).trim());
    }
    made.status.success()
}

fn probe(fixture: &Fixture, flags: &[&str], paths: &[&str]) -> (i32, String) {
    let args = [&["run", "-q"], flags, &["--", "/usr/bin/python3", "-c", PROBE], paths].concat();
    let said = fixture.run(&args);
    (said.code, said.out + &said.err)
}

#[test]
fn kvm_is_open_where_it_is_given_and_no_other_device_is() {
    let fixture = Fixture::new();
    if !open_kvm(&fixture) {
        return;
    }
    let paths = ["/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/null"];
    let (code, said) = probe(&fixture, &[KVM], &paths);
    assert_eq!((code, said.lines().next()), (0, Some("/dev/kvm 12 True")), "{said}");
    assert!(said.contains("/dev/fuse No such file") && said.contains("/dev/net/tun No such file"), "{said}");
    assert!(said.contains("/dev/null open"), "{said}");
    // Without the clause it is not there.
    let (_, said) = probe(&fixture, &[], &paths);
    assert!(said.contains("/dev/kvm No such file"), "{said}");
    // Neither can a node be made, nor the given one be changed.
    let script = "mknod /tmp/fuse c 10 229; echo x > /dev/other; rm -f /dev/kvm; chmod 0600 /dev/kvm; test -c /dev/kvm";
    let said = fixture.run(&["run", "-q", KVM, "--", "sh", "-c", script]);
    assert_eq!(said.code, 0, "{said:?}");
    // Everybody may write to it, and so set its times, if its mount could be written to.
    let script = "touch -c /dev/kvm && echo touched; chmod 0666 /dev/kvm && echo opened; \
                  sed -n 's|.* /dev/kvm \\(r[ow]\\),.*|\\1|p' /proc/self/mountinfo";
    let said = fixture.run(&["run", "-q", KVM, "--", "sh", "-c", script]);
    assert_eq!(said.out, "ro\n", "{said:?}");
    let plan = fixture.run(&["plan", "--json", KVM]).json();
    let entry =
        plan["clauses"].as_array().unwrap().iter().find(|one| one["clause"] == "process.devices").unwrap().clone();
    assert_eq!(
        (&entry["enforcer"], &entry["value"]),
        (&"mountns:device".into(), &serde_json::json!(["kvm"])),
        "{entry}"
    );
    assert!(entry["overshoot"].to_string().contains("driver in the kernel"), "{entry}");
    // The attacks on every other device still fail, and that on this one is promised to nobody.
    let args = ["attack", "--tier", "container", KVM, "--only", "PRIV-25,PRIV-25c,FS-08,FS-09", "--json"];
    let rows = fixture.run(&args).json()["rows"].as_array().unwrap().clone();
    let result = |id: &str| rows.iter().find(|row| row["id"] == id).map(|row| row["result"].clone());
    assert_eq!(result("PRIV-25c"), Some("not-promised".into()), "{rows:?}");
    assert!(rows.iter().all(|row| row["result"] != "escaped"), "{rows:?}");
    assert!([result("PRIV-25"), result("FS-09")].contains(&Some(Value::from("held"))), "{rows:?}");
}

#[test]
fn a_device_that_cannot_be_given_is_refused_with_its_remedy() {
    let fixture = Fixture::new();
    let refused = |flags: &[&str]| {
        let said = fixture.run(&[&["plan", "--json"], flags].concat());
        let list = said.json()["refused"].as_array().cloned().unwrap_or_default();
        list.into_iter().find(|one| one["clause"] == "process.devices").unwrap_or_default()
    };
    let gone = refused(&["--set=process.devices=[\"nvidia:77\"]"]);
    assert_eq!(gone["id"], "process.devices/not-here", "{gone}");
    assert!(gone["fix"].as_str().unwrap().contains("nvidia-modprobe"), "{gone}");
    let root = refused(&["--set=process.devices=[\"nvidia:all\"]", "--set=fs.root=empty"]);
    assert_eq!(root["id"], "process.devices/other-root", "{root}");
    let tier = refused(&[KVM, "--tier", "process"]);
    assert_eq!(tier["id"], "process.devices/needs-container", "{tier}");
    for wrong in ["/dev/kvm", "nvidia:", "nvidia:01", "nvidia:256", "nvidia:-1", "all", ""] {
        let said = fixture.run(&["plan", &format!("--set=process.devices=[{wrong:?}]")]);
        assert!(said.code == 126 && said.err.contains("nvidia:NUMBER"), "{wrong}: {said:?}");
    }
}

/// In mount namespaces of their own: such a node lies in the place of the host's.
#[test]
fn a_node_that_is_another_device_or_closed_is_refused() {
    let fixture = Fixture::new();
    for (numbers, mode, id) in
        [("1 3", "666", "process.devices/not-the-device"), ("10 232", "600", "process.devices/not-open")]
    {
        let plan = format!(
            "exec 2>&1; test -c /dev/kvm && unshare -m sh -c 'mkdir node && mount -t tmpfs tmpfs node && \
             mknod -m {mode} node/kvm c {numbers} && mount --bind node/kvm /dev/kvm && umount -l node && rmdir node && \
             exec \"$1\" plan --json --set=process.devices=[\\\"kvm\\\"]' sh \"$1\""
        );
        let said = script(&plan, &fixture).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        if said.is_empty() || said.contains("ermitted") {
            println!("skip: there is no `/dev/kvm`, or nobody here makes a node: {said}");
            return;
        }
        assert!(said.contains(id), "{id}: {said}");
    }
}

/// Nodes of a mount namespace of its own in the places of those that every container shows, so that the host's are not touched;
/// then a run that does to each of them, and to its stdin, what an owner or a writer may. `$1`: the product; `HOW`: by which backend.
const CHANGE: &str = r#"
exec 2>&1
unshare -m sh -ec '
mkdir node
mount -t tmpfs -o mode=755 tmpfs node
for one in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    name=${one%%:*}; numbers=${one#*:}
    mknod -m 666 node/$name c ${numbers%:*} ${numbers#*:}
    touch -d @978307200 node/$name
    mount --bind node/$name /dev/$name
done
echo made
"$@" run -q --set=backend=$HOW -- sh -c "
    exec 2>&1
    for one in null zero full random urandom tty; do
        chmod 0600 /dev/\$one; touch -c /dev/\$one; chown 0:0 /dev/\$one
    done
    touch -c /dev/stdin; chmod 0600 /dev/stdin; touch -c /proc/cmdline; touch -c /proc/sys/kernel/random/boot_id
    echo x > /dev/null && head -c 1 /dev/zero | wc -c
" < /dev/null || echo "ended with $?"
stat -c "%n %u:%g %a %Y" node/*
' sh "$1"
"#;

#[test]
fn no_node_that_is_shown_can_be_changed_from_inside() {
    let fixture = Fixture::new();
    for how in ["native", "crun", "runsc"] {
        let set = format!("--set=backend={how}");
        let tier = if how == "runsc" { "--tier=gvisor" } else { "--tier=container" };
        if fixture.run(&["plan", tier, &set]).code != 0 {
            println!("skip: {how} is not there");
            continue;
        }
        let said = script(CHANGE, &fixture).env("HOW", format!("{how} {tier}")).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        if !said.lines().any(|line| line == "made") {
            println!("skip: no nodes can be made: {}", said.trim());
            return;
        }
        assert!(said.lines().any(|line| line == "1"), "{how}: the nodes can be read and written: {said}");
        let found: Vec<&str> = said.lines().filter(|line| line.starts_with("node/")).collect();
        let expected = ["full", "null", "random", "tty", "urandom", "zero"];
        let expected = expected.map(|name| format!("node/{name} 0:0 666 978307200"));
        // A stream that is the host's node stays one under gVisor, whose kernel sets times by it: documented for that tier.
        let is_stream = |line: &str| how == "runsc" && line.starts_with("node/null 0:0 666 ");
        let same = |(found, expected): (&&str, &String)| *found == expected || is_stream(found);
        assert!(found.len() == expected.len() && found.iter().zip(&expected).all(same), "{how}: {said}");
        assert!(std::fs::remove_dir(fixture.path("work/node")).is_ok(), "{how}");
    }
}
