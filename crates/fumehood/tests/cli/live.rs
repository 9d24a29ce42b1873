//! Live sandboxes as a person meets them: created, worked in, ended; each in a state folder of its own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::Fixture;
use crate::pool::until;

pub(crate) fn call(fixture: &Fixture, args: &[&str]) -> (i32, String, String) {
    let said = fixture.run(args);
    (said.code, said.out, said.err)
}

/// A sandbox that is ended with its test.
pub(crate) struct Live<'a> {
    pub(crate) fixture: &'a Fixture,
    pub(crate) id: String,
}

impl<'a> Live<'a> {
    pub(crate) fn new(fixture: &'a Fixture, flags: &[&str]) -> Self {
        let args: Vec<&str> = ["create"].iter().chain(flags).copied().collect();
        let (code, out, err) = call(fixture, &args);
        assert_eq!(code, 0, "{err}");
        Self { fixture, id: out.trim_end().to_owned() }
    }

    pub(crate) fn exec(&self, flags: &[&str], command: &[&str]) -> (i32, String, String) {
        let mut args = vec!["exec"];
        args.extend(flags);
        args.extend([self.id.as_str(), "--"]);
        args.extend(command);
        call(self.fixture, &args)
    }

    pub(crate) fn info(&self) -> serde_json::Value {
        serde_json::from_str(&call(self.fixture, &["info", "--json", &self.id]).1).unwrap()
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        call(self.fixture, &["kill", &self.id]);
    }
}

#[test]
fn the_id_alone_is_printed_and_what_is_left_by_one_program_is_there_for_the_next() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &["--name", "box"]);
    assert!(
        live.id.len() == 20 && live.id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()),
        "{}",
        live.id
    );
    assert_eq!(live.exec(&[], &["sh", "-c", "echo 42 > /tmp/answer; echo told >&2; exit 7"]).0, 7);
    let (code, out, _) = call(fixture, &["exec", "box", "--", "cat", "/tmp/answer"]);
    assert_eq!((code, out.as_str()), (0, "42\n"));
    let (code, _, err) = call(fixture, &["create", "--name", "box"]);
    assert!(code == 126 && err.contains("a name stands for one sandbox") && !err.contains(&live.id), "{code} {err}");
    assert_eq!(live.exec(&["--env", "A=b", "--cwd", "/tmp"], &["sh", "-c", "test $A$PWD = b/tmp"]).0, 0);
}

#[test]
fn exit_codes_are_those_of_run() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &[]);
    assert_eq!(live.exec(&[], &["sh", "-c", "kill -TERM $$"]).0, 128 + 15);
    assert_eq!(live.exec(&[], &["nosuch"]).0, 127);
    assert_eq!(live.exec(&[], &["/etc/passwd"]).0, 126);
    let began = Instant::now();
    let (code, out, _) = live.exec(&["--timeout", "300ms", "--json"], &["sh", "-c", "echo out; sleep 60 & sleep 60"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!((code, &report["outcome"]["limit"], &report["stdout"]), (124, &"wall".into(), &"out\n".into()));
    for flags in [["--memory", "1G"], ["--net", "loopback"]] {
        assert_eq!(live.exec(&flags, &["true"]).0, 125, "{flags:?}");
    }
    let (code, _, err) = call(fixture, &["create", "--set=process.tty=true"]);
    assert!(code == 126 && err.contains("no terminal of its own"), "{code} {err}");
    let (code, _, err) = call(fixture, &["exec", "a0000000000000000000", "--", "true"]);
    assert!(code == 125 && err.contains("a0000000000000000000"), "{code} {err}");
}

#[test]
fn a_killed_sandbox_leaves_nothing_and_is_told_of_and_killing_it_again_is_fine() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &[]);
    let pid = live.info()["pid"].as_u64().unwrap();
    assert_eq!(live.exec(&["-d"], &["sleep", "600"]).1, "p1\n");
    assert_eq!(call(fixture, &["kill", &live.id]).0, 0);
    assert!(!Path::new(&format!("/proc/{pid}")).exists() || is_zombie(pid), "its supervisor lives");
    assert_eq!(call(fixture, &["kill", &live.id]).0, 0);
    let (code, _, err) = live.exec(&[], &["true"]);
    assert!(code == 125 && err.contains(&live.id), "{code} {err}");
    assert_eq!((live.info()["state"].as_str(), live.info()["reason"].as_str()), (Some("ended"), Some("killed")));
    assert!(std::fs::read_dir(fixture.state().join("runs")).unwrap().next().is_none(), "a journal is left");
}

/// Nobody reaps for a caller that is gone where these tests run.
fn is_zombie(pid: u64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
}

#[test]
fn a_supervisor_that_is_killed_ends_its_sandbox_alone() {
    let fixture = &Fixture::new();
    let (one, other) = (Live::new(fixture, &[]), Live::new(fixture, &[]));
    let pid = i32::try_from(one.info()["pid"].as_u64().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
    let began = Instant::now();
    while one.info()["state"] != "ended" {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not end");
    }
    assert_eq!((&one.info()["reason"], &one.info()["ended_ms"]), (&"lost".into(), &serde_json::Value::Null));
    // However long it had lived, what is known of it stays until its end is in the log.
    let record = fixture.state().join("live").join(&one.id).join("record.json");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(26 * 60 * 60);
    std::fs::File::options().write(true).open(record).unwrap().set_modified(long_ago).unwrap();
    drop(Live::new(fixture, &[]));
    assert_eq!(other.exec(&[], &["true"]).0, 0);
    for _ in 0..2 {
        assert_eq!(call(fixture, &["gc"]).0, 0);
    }
    let log = fixture.run(&["audit", "show", "--json"]).json();
    let events = log["events"].as_array().unwrap().iter();
    let told = events.filter(|event| event["kind"] == "live.ended" && event["body"]["sandbox"] == one.id.as_str());
    let told: Vec<_> = told.map(|event| &event["body"]["reason"]).collect();
    assert_eq!(told, ["lost"], "its end is in the log, once: {log}");
    assert_eq!(other.exec(&[], &["true"]).0, 0);
}

/// The freezer of v1 lets nothing die before it thaws.
#[test]
fn a_paused_sandbox_whose_supervisor_is_killed_leaves_nothing_frozen() {
    let fixture = &Fixture::new();
    let paused = "[ -d /sys/fs/cgroup/freezer ] && { [ ! -d /sys/fs/cgroup/unified ] || umount /sys/fs/cgroup/unified; } && \
                  id=$(\"$1\" create) && \"$1\" exec -d $id -- sleep 600 >/dev/null && \"$1\" pause $id && echo $id";
    let unmounted = format!("unshare --mount --propagation private sh -c '{paused}' sh \"$1\" 2>&1");
    let said = fixture.said(&crate::script(&unmounted, fixture).output().unwrap());
    if said.code != 0 {
        eprintln!("skip: nothing here is frozen by v1: {}", said.out);
        return;
    }
    let id = said.out.lines().last().unwrap_or_default().to_owned();
    let live = Live { fixture, id };
    let pid = i32::try_from(live.info()["pid"].as_u64().unwrap()).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
    assert!(until(|| live.info()["reason"] == "lost"));
    let swept = fixture.run(&["gc", "--json"]);
    assert_eq!((swept.code, &swept.json()["kept"]), (0, &serde_json::json!([])));
    assert!(swept.out.contains("freezer"), "{}", swept.out);
}

#[test]
fn what_the_policy_may_have_stopped_is_told_as_a_run_tells_it() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &["--net", "loopback"]);
    let script = "echo 'curl: (6) Could not resolve host: example.org' >&2; exit 6";
    let (code, _, err) = live.exec(&[], &["sh", "-c", script]);
    assert!(code == 6 && err.contains("stopped: reaching the network") && err.contains("instead: "), "{err}");
    let json: serde_json::Value = serde_json::from_str(&live.exec(&["--json"], &["sh", "-c", script]).1).unwrap();
    let found = &json["violations"][0];
    assert_eq!((&found["id"], &found["seen"]), (&"net.mode/closed".into(), &"output".into()), "{json}");
    assert_eq!(
        json["violations"],
        fixture.run(&["run", "--json", "--net", "loopback", "--", "sh", "-c", script]).json()["violations"]
    );
    let (code, _, err) = live.exec(&[], &["sh", "-c", "echo fine >&2"]);
    assert_eq!((code, err.as_str()), (0, "fine\n"));
}

#[test]
fn a_default_life_is_for_who_said_none() {
    let fixture = &Fixture::new();
    std::fs::write(fixture.path("work/policy.toml"), "version = 1\nlimits.wall = \"90s\"\n").unwrap();
    let lives = |flags: &[&str]| {
        let info = Live::new(fixture, flags).info();
        let ms = |name: &str| info[name].as_i64();
        ms("ends_ms").zip(ms("created_ms")).map(|(ends, created)| (ends - created + 500) / 1000)
    };
    let default = ["--default-timeout", "5m"];
    assert_eq!(lives(&default), Some(300));
    assert_eq!(lives(&[]), None, "without it, none");
    assert_eq!(lives(&[&default[..], &["-p", "policy.toml"]].concat()), Some(90), "what the policy says");
    assert_eq!(lives(&[&default[..], &["--timeout", "60s"]].concat()), Some(60), "what is given");
}

#[test]
fn life_and_idleness_end_it_and_say_so() {
    let fixture = &Fixture::new();
    for (flags, reason) in [(["--timeout", "700ms"], "timeout"), (["--idle", "500ms"], "idle")] {
        let live = Live::new(fixture, &flags);
        assert_eq!(call(fixture, &["wait", &live.id]).0, 0);
        assert_eq!(live.info()["reason"], reason);
    }
}

#[test]
fn a_frozen_sandbox_takes_no_program() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &[]);
    let (code, _, err) = call(fixture, &["pause", &live.id]);
    if code != 0 {
        // No freezer here: refused by name.
        assert!(code == 125 && err.contains("freezer"), "{err}");
        println!("skip: no freezer here");
        return;
    }
    assert_eq!(live.info()["state"], "paused");
    assert_eq!(live.exec(&[], &["true"]).0, 125);
    assert_eq!(call(fixture, &["resume", &live.id]).0, 0);
    assert_eq!(live.exec(&[], &["true"]).0, 0);
}

#[test]
fn what_is_copied_out_arrives_under_its_new_name_and_never_through_a_planted_link() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &[]);
    let inside = |path: &str| format!("{}:{path}", live.id);
    let (here, elsewhere) = (fixture.path("here"), fixture.path("elsewhere"));
    std::fs::create_dir_all(&here).unwrap();
    std::fs::create_dir_all(&elsewhere).unwrap();
    assert_eq!(live.exec(&[], &["sh", "-c", "mkdir -p /tmp/d/deep/er && echo one > /tmp/d/f"]).0, 0);
    // Under a name that is not there yet, and over one that is.
    let new = here.join("new.txt");
    for _ in 0..2 {
        let (code, _, err) = call(fixture, &["cp", &inside("/tmp/d/f"), new.to_str().unwrap()]);
        assert_eq!((code, err.as_str(), std::fs::read_to_string(&new).unwrap().as_str()), (0, "", "one\n"));
    }
    // The first copy brings a link; the second wants to go through it.
    assert_eq!(live.exec(&[], &["sh", "-c", &format!("ln -s {} /tmp/d/a", elsewhere.display())]).0, 0);
    let target = here.join("d");
    assert_eq!(call(fixture, &["cp", "--leaving-links", &inside("/tmp/d"), target.to_str().unwrap()]).0, 0);
    assert!(target.join("deep/er").is_dir() && target.join("a").is_symlink());
    assert_eq!(
        live.exec(&[], &["sh", "-c", "rm /tmp/d/a; mkdir -p /tmp/d/a/planted; echo x > /tmp/d/a/planted/f"]).0,
        0
    );
    let (code, _, err) = call(fixture, &["cp", &inside("/tmp/d"), here.to_str().unwrap()]);
    assert!(code == 1 && err.contains("a link stands in its way"), "{code} {err}");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    // A folder that is meant to be one is made.
    std::fs::write(here.join("note"), "hello").unwrap();
    let (code, _, err) = call(fixture, &["cp", here.join("note").to_str().unwrap(), &inside("/tmp/not/there/")]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(live.exec(&[], &["cat", "/tmp/not/there/note"]).1, "hello");
    // The home folder is a link by our own doing, and no link for who copies it.
    assert_eq!(live.exec(&[], &["sh", "-c", "echo mine > ~/mine"]).0, 0);
    for (name, path) in [("one", "."), ("two", "~")] {
        let home = here.join(name);
        assert_eq!(call(fixture, &["cp", &inside(path), home.to_str().unwrap()]).0, 0);
        assert_eq!(std::fs::read_to_string(home.join("mine")).unwrap(), "mine\n", "{path}");
    }
}

#[test]
fn no_copy_leads_the_next_one_elsewhere() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &[]);
    let inside = |path: &str| format!("{}:{path}", live.id);
    let (here, elsewhere) = (fixture.path("here"), fixture.path("elsewhere"));
    std::fs::create_dir_all(&here).unwrap();
    std::fs::create_dir_all(&elsewhere).unwrap();
    let script = format!(
        "mkdir -p /tmp/d/sub && cd /tmp/d && echo x > f && ln -s {} /tmp/one && ln -s ../elsewhere /tmp/two && ln -s {} out \
         && ln -s ../../f up && ln -s sub/../../f detour && ln -s sub in && ln -s ../f sub/back",
        elsewhere.display(),
        elsewhere.display()
    );
    assert_eq!(live.exec(&[], &["sh", "-c", &script]).0, 0);
    let one = here.join("one");
    for link in ["/tmp/one", "/tmp/two"] {
        let (code, _, err) = call(fixture, &["cp", &inside(link), one.to_str().unwrap()]);
        assert!(code == 1 && err.contains("leads out of what is copied") && !one.is_symlink(), "{code} {err}");
    }
    let (code, _, err) = call(fixture, &["cp", &inside("/tmp/d"), here.to_str().unwrap()]);
    assert!(code == 1 && err.lines().count() == 3, "{code} {err}");
    let brought = |name: &str| here.join("d").join(name).is_symlink();
    assert_eq!(["in", "sub/back", "out", "up", "detour"].map(brought), [true, true, false, false, false]);
    // Who wants them gets them; the next copy goes through none that nobody wrote a slash behind.
    assert_eq!(call(fixture, &["cp", "--leaving-links", &inside("/tmp/one"), one.to_str().unwrap()]).0, 0);
    assert_eq!(std::fs::read_link(&one).unwrap(), elsewhere);
    let (code, _, err) = call(fixture, &["cp", &inside("/tmp/d/f"), one.to_str().unwrap()]);
    assert!(code == 125 && err.contains("is a link to a folder"), "{code} {err}");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    let slash = format!("{}/", one.display());
    assert_eq!(call(fixture, &["cp", &inside("/tmp/d/f"), &slash]).0, 0);
    assert_eq!(std::fs::read_to_string(elsewhere.join("f")).unwrap(), "x\n");
    // A link to what is no folder is replaced.
    std::fs::remove_file(&one).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("f"), &one).unwrap();
    assert_eq!(live.exec(&[], &["sh", "-c", "echo y > /tmp/d/f"]).0, 0);
    assert_eq!(call(fixture, &["cp", &inside("/tmp/d/f"), one.to_str().unwrap()]).0, 0);
    assert!(!one.is_symlink() && std::fs::read_to_string(elsewhere.join("f")).unwrap() == "x\n");
}

#[test]
fn what_has_a_name_that_is_no_text_is_copied_both_ways() {
    let fixture = &Fixture::new();
    let live = Live::new(fixture, &[]);
    let bytes = |parts: &[&[u8]]| OsString::from_vec(parts.concat());
    let inside = |path: &[u8]| bytes(&[live.id.as_bytes(), b":", path]);
    let here = fixture.path("here");
    std::fs::create_dir_all(here.join(bytes(&[b"th\xe9"]))).unwrap();
    std::fs::write(here.join(bytes(&[b"th\xe9/caf\xe9"])), "hello").unwrap();
    let copy = |from: &OsStr, to: &OsStr| {
        let said = fixture.run(&[OsStr::new("cp"), from, to]);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{from:?} {to:?}");
    };
    copy(here.join(bytes(&[b"th\xe9"])).as_os_str(), &inside(b"/tmp/\xff/"));
    let seen = live.exec(&[], &["sh", "-c", "cat \"$(printf '/tmp/\\377/th\\351/caf\\351')\""]);
    assert_eq!((seen.0, seen.1.as_str()), (0, "hello"), "{}", seen.2);
    copy(&inside(b"/tmp/\xff/th\xe9"), here.join(bytes(&[b"ba\xe7k"])).as_os_str());
    assert_eq!(std::fs::read(here.join(bytes(&[b"ba\xe7k/caf\xe9"]))).unwrap(), b"hello");
}
