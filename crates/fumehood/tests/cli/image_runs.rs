//! Runs whose root is an image: one static program (busybox), and whatever a test puts beside it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::Fixture;
use crate::live::{Live, call};

/// A member of a layer: its name, and a file's content and mode, or a link's target.
pub(crate) enum Member<'a> {
    File(&'a str, &'a [u8], u32),
    Link(&'a str, &'a str),
    Folder(&'a str),
}

/// A tar archive of these.
pub(crate) fn tar(members: &[Member<'_>]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for member in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        match member {
            Member::File(name, body, mode) => {
                header.set_size(body.len() as u64);
                header.set_mode(*mode);
                archive.append_data(&mut header, name, *body).unwrap();
            }
            Member::Link(name, target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_mode(0o777);
                archive.append_link(&mut header, name, target).unwrap();
            }
            Member::Folder(name) => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(0o755);
                archive.append_data(&mut header, name, &[][..]).unwrap();
            }
        }
    }
    archive.into_inner().unwrap()
}

/// A docker-archive with one image of one layer.
pub(crate) fn saved(at: &Path, name: &str, layer: &[u8], config: &Value) {
    let arch = if std::env::consts::ARCH == "x86_64" { "amd64" } else { "arm64" };
    let id = format!("sha256:{}", policy::json::sha256_hex(layer));
    let config = json!({ "architecture": arch, "os": "linux", "rootfs": { "diff_ids": [id] }, "config": config });
    let manifest = json!([{ "Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"] }]);
    let members = [
        Member::File("config.json", &config.to_string().into_bytes(), 0o644),
        Member::File("manifest.json", &manifest.to_string().into_bytes(), 0o644),
        Member::File("layer.tar", layer, 0o644),
    ];
    std::fs::write(at, tar(&members)).unwrap();
}

/// Programs of busybox by their names.
pub(crate) const TOOLS: &[&str] =
    &["sh", "cat", "ls", "id", "env", "echo", "sleep", "stat", "touch", "mkdir", "rm", "cp", "true"];

/// A layer with busybox, its names, and what else is wanted.
pub(crate) fn layer(more: Vec<Member<'_>>) -> Vec<u8> {
    let busybox = std::fs::read("/bin/busybox").unwrap_or_else(|error| panic!("busybox-static is needed: {error}"));
    let names: Vec<_> = TOOLS.iter().map(|name| format!("bin/{name}")).collect();
    let links = names.iter().map(|name| Member::Link(name, "busybox"));
    let first = [Member::Folder("bin/"), Member::File("bin/busybox", &busybox, 0o755)];
    let members: Vec<_> = first.into_iter().chain(links).chain(more).collect();
    tar(&members)
}

const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\napp:x:1234:1234:app:/srv:/bin/sh";

/// Imports an image `app:1` that says how it is run.
pub(crate) fn imported(fixture: &Fixture) -> PathBuf {
    let layer = layer(vec![
        Member::File("marker", b"of the image\n", 0o644),
        Member::File("etc/passwd", PASSWD, 0o644),
        Member::File("etc/hosts", b"192.0.2.1 elsewhere\n", 0o644),
        Member::File("etc/own", b"kept\n", 0o644),
        Member::Folder("srv/"),
        Member::File("opt/tools/greet", b"#!/bin/sh\necho \"greetings $*\"\n", 0o755),
        Member::Link("lib", "usr/lib"),
        Member::File("usr/lib/data", b"of the library\n", 0o644),
        Member::Folder("home/"),
        Member::File("home/other/notes", b"notes\n", 0o644),
    ]);
    let at = fixture.path("app.tar");
    let config = json!({
        "Entrypoint": ["greet", "first"], "Cmd": ["second"], "User": "app:app", "WorkingDir": "/srv",
        "Env": ["PATH=/opt/tools:/bin", "COLOUR=blue", "INPUT_X=1"],
    });
    saved(&at, "app:1", &layer, &config);
    let said = fixture.run(&["image", "import", at.to_str().unwrap()]);
    assert_eq!(said.code, 0, "{}", said.err);
    at
}

const ROOT: &str = "--set=fs.root=image:app:1";

fn inside(fixture: &Fixture, flags: &[&str], script: &str) -> (i32, String, String) {
    let args = [&["run", "-q", ROOT], flags, &["--", "sh", "-c", script]].concat();
    let said = fixture.run(&args);
    (said.code, said.out, said.err)
}

#[test]
fn a_program_sees_the_image_and_nothing_of_the_host() {
    let fixture = Fixture::new();
    imported(&fixture);
    let (code, out, err) =
        inside(&fixture, &[], "cat /marker /etc/own /lib/data /home/other/notes; ls /; ls /usr /home");
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("of the image\nkept\nof the library\nnotes\n"), "{out}");
    let names: Vec<_> = out.lines().skip(4).collect();
    for there in ["bin", "proc", "dev", "tmp", "run", "opt", "srv", "marker"] {
        assert!(names.contains(&there), "{there} in {names:?}");
    }
    assert!(!names.contains(&"sys") && !names.contains(&"boot") && !names.contains(&"share"), "{names:?}");
    // What only the run knows is not the image's.
    let (_, out, _) = inside(&fixture, &[], "cat /etc/hosts /etc/resolv.conf; stat -c %F /etc/mtab");
    assert!(
        out.contains("127.0.0.1 localhost") && !out.contains("192.0.2.1") && out.ends_with("symbolic link\n"),
        "{out}"
    );
}

#[test]
fn a_file_of_etc_is_for_whom_its_mode_lets_read_it() {
    let fixture = Fixture::new();
    let layer = layer(vec![
        Member::File("etc/open", b"open\n", 0o644),
        Member::File("etc/shadow", b"closed\n", 0o640),
        Member::File("etc/key", b"closed\n", 0o600),
        Member::File("etc/passwd", b"app:x:1234:1234:app:/srv:/bin/sh\n", 0o600),
    ]);
    let at = fixture.path("modes.tar");
    saved(&at, "modes:1", &layer, &json!({ "Env": ["PATH=/bin"] }));
    assert_eq!(fixture.run(&["image", "import", at.to_str().unwrap()]).code, 0);
    let script = "cat /etc/open /etc/shadow /etc/key /etc/passwd";
    let said = fixture.run(&["run", "-q", "--set=fs.root=image:modes:1", "--", "sh", "-c", script]);
    assert!(said.out.starts_with("open\n"), "{said:?}");
    // Who is not root is the owner of what was unpacked.
    let read = if rustix::process::geteuid().is_root() { 0 } else { 2 };
    assert_eq!(said.out.matches("closed").count(), read, "{said:?}");
    assert!(!said.out.contains("app:x:1234"), "{said:?}");
    assert_eq!(said.err.matches("Permission denied").count(), 2_usize.saturating_sub(read), "{said:?}");
}

#[test]
fn user_environment_and_place_are_the_images_where_the_policy_says_nothing() {
    let fixture = Fixture::new();
    imported(&fixture);
    let (code, out, err) =
        inside(&fixture, &[], "id -u; id -un; echo $PWD $COLOUR $HOME; touch $HOME/x /tmp/y; greet you");
    assert_eq!((code, out.as_str()), (0, "1234\napp\n/srv blue /home/app\ngreetings you\n"), "{err}");
    let flags = ["--env=COLOUR=red", "--set=process.user=someone", "--set=inputs.x={type=\"string\"}", "--input=x=2"];
    let (code, out, err) = inside(&fixture, &flags, "id -u; id -un; echo $COLOUR $INPUT_X; cat /etc/passwd");
    assert!(code == 0 && out.starts_with("1000\nsomeone\nred 2\nroot:x:0:0:"), "{out}{err}");
    assert!(
        out.ends_with("app:x:1234:1234:app:/srv:/bin/sh\nsomeone:x:1000:1000:someone:/home/someone:/bin/sh\n"),
        "{out}"
    );
    // A workspace is where a program begins.
    std::fs::write(fixture.path("work/file"), "mine\n").unwrap();
    let (_, out, err) = inside(&fixture, &["-w", ".:copy"], "echo $PWD; cat file");
    assert_eq!(out, "/workspace\nmine\n", "{err}");
}

#[test]
fn without_a_command_the_image_says_what_runs() {
    let fixture = Fixture::new();
    imported(&fixture);
    let said = fixture.run(&["run", "-q", ROOT]);
    assert_eq!((said.code, said.out.as_str()), (0, "greetings first second\n"), "{}", said.err);
    // Code and scripts find their interpreter in the image.
    let said = fixture.run(&["run", "-q", ROOT, "--lang", "sh", "--code", "cat /marker"]);
    assert_eq!((said.code, said.out.as_str()), (0, "of the image\n"), "{}", said.err);
    let said = fixture.run(&["run", "-q"]);
    assert!(said.code == 125 && said.err.contains("no program was named"), "{}", said.err);
}

#[test]
fn user_0_of_an_image_is_an_ordinary_user() {
    let fixture = Fixture::new();
    for user in ["0", "root", "root:root", "0:0"] {
        saved(&fixture.path("zero.tar"), "zero:1", &layer(vec![]), &json!({ "User": user }));
        assert_eq!(fixture.run(&["image", "import", fixture.path("zero.tar").to_str().unwrap()]).code, 0);
        let said = fixture.run(&["run", "-q", "--set=fs.root=image:zero:1", "--", "/bin/id", "-u"]);
        assert_eq!((said.code, said.out.as_str()), (0, "1000\n"), "{user}: {}", said.err);
    }
}

#[test]
fn a_user_or_place_of_an_image_that_is_none_is_refused_until_somebody_says_another() {
    let fixture = Fixture::new();
    let rows = [
        (json!({ "User": "ghost" }), "has nobody of that name"),
        (json!({ "User": "app\nroot" }), "has nobody of that name"),
        (json!({ "User": "-1" }), "has nobody of that name"),
        (json!({ "User": "4294967295" }), "has nobody of that name"),
        (json!({ "User": "4294967296" }), "has nobody of that name"),
        (json!({ "WorkingDir": "srv" }), "no absolute path"),
        (json!({ "WorkingDir": "/srv/../etc" }), "no absolute path"),
    ];
    for (config, why) in rows {
        saved(&fixture.path("odd.tar"), "odd:1", &layer(vec![]), &config);
        assert_eq!(fixture.run(&["image", "import", fixture.path("odd.tar").to_str().unwrap()]).code, 0);
        let said = fixture.run(&["run", "-q", "--set=fs.root=image:odd:1", "--", "/bin/id", "-u"]);
        assert!(said.code == 126 && said.out.is_empty() && said.err.contains(why), "{config}: {said:?}");
        let flags = ["run", "-q", "--set=fs.root=image:odd:1", "--set=process.user=someone", "-w", ".:copy"];
        let said = fixture.run(&[&flags[..], &["--", "/bin/id", "-un"]].concat());
        assert_eq!((said.code, said.out.as_str()), (0, "someone\n"), "{config}: {said:?}");
    }
    // A number needs no line, and a name that no user has here is its number.
    for (user, id) in [("4242", "4242\n"), ("4242:7", "4242\n"), ("Odd.Name", "77\n")] {
        let people = Member::File("etc/passwd", b"Odd.Name:x:77:77::/:/bin/sh\n", 0o644);
        saved(&fixture.path("odd.tar"), "odd:1", &layer(vec![people]), &json!({ "User": user }));
        assert_eq!(fixture.run(&["image", "import", fixture.path("odd.tar").to_str().unwrap()]).code, 0);
        let said = fixture.run(&["run", "-q", "--set=fs.root=image:odd:1", "--", "/bin/id", "-u"]);
        assert_eq!((said.code, said.out.as_str()), (0, id), "{user}: {said:?}");
    }
}

#[test]
fn the_tree_cannot_be_written_and_is_shared_as_it_is() {
    let fixture = Fixture::new();
    imported(&fixture);
    let attack = "echo x > /marker; echo x > /etc/own; rm -f /marker; mkdir /new /usr/new; touch /srv/x /opt/tools/x; \
                  echo x > /proc/self/root/marker; cat /marker; echo y > /tmp/allowed && cat /tmp/allowed";
    let (_, out, err) = inside(&fixture, &[], attack);
    assert_eq!(out, "of the image\ny\n", "{err}");
    assert!(err.matches("Read-only file system").count() + err.matches("denied").count() >= 7, "{err}");
    let said = fixture.run(&["image", "inspect", "app:1"]);
    assert_eq!(said.code, 0, "the tree is what was unpacked: {}", said.err);
}

#[test]
fn links_of_an_image_lead_to_nothing_of_the_host() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("secret"), "of the host\n").unwrap();
    let secret = fixture.path("secret");
    let busybox = std::fs::read("/bin/busybox").unwrap();
    let layer = tar(&[
        Member::File("busybox", &busybox, 0o755),
        Member::Link("etc", "/etc"),
        Member::Link("home", "/home"),
        Member::Link("var", "/var"),
        Member::Link("usr", "/usr"),
        Member::Link("secret", secret.to_str().unwrap()),
    ]);
    saved(&fixture.path("links.tar"), "links:1", &layer, &json!({}));
    assert_eq!(fixture.run(&["image", "import", fixture.path("links.tar").to_str().unwrap()]).code, 0);
    let script = "/busybox cat /etc/passwd /etc/debian_version /secret /usr/lib/os-release /var/lib/dpkg/status";
    let said = fixture.run(&["run", "-q", "--set=fs.root=image:links:1", "--", "/busybox", "sh", "-c", script]);
    assert!(said.out.starts_with("root:x:0:0:root:/root:/usr/sbin/nologin\nuser:x:1000:1000:"), "{said:?}");
    assert_eq!((said.out.lines().count(), said.err.matches("can't open").count()), (3, 4), "{said:?}");
}

/// The tree in the store, which belongs to who runs this test.
fn tree(fixture: &Fixture) -> PathBuf {
    let trees = std::fs::read_dir(fixture.path("state/images/trees")).unwrap();
    trees.map(|entry| entry.unwrap().path().join("root")).next().unwrap()
}

#[test]
fn a_tree_that_was_changed_is_refused_and_the_digest_is_in_the_plan() {
    let fixture = Fixture::new();
    imported(&fixture);
    let digest =
        fixture.run(&["image", "inspect", "app:1", "--json"]).json()["image"]["digest"].as_str().unwrap().to_owned();
    let plan = fixture.run(&["plan", "--json", ROOT]).json();
    let entry = plan["clauses"].as_array().unwrap().iter().find(|entry| entry["clause"] == "fs.root").unwrap().clone();
    assert_eq!(entry["value"], json!(format!("image:app:1@{digest}")));
    assert!(entry["evidence"].to_string().contains("its digest is the image's"), "{entry}");
    // By name and digest, by digest alone.
    for root in [format!("image:app:1@{digest}"), format!("image:{digest}")] {
        let said = fixture.run(&["run", "-q", &format!("--set=fs.root={root}"), "--", "/bin/cat", "/marker"]);
        assert_eq!((said.code, said.out.as_str()), (0, "of the image\n"), "{}", said.err);
    }
    let marker = tree(&fixture).join("marker");
    let meta = marker.metadata().unwrap();
    std::fs::write(&marker, "of the enemy\n").unwrap();
    let times = std::fs::FileTimes::new().set_modified(meta.modified().unwrap());
    std::fs::File::options().write(true).open(&marker).unwrap().set_times(times).unwrap();
    let said = fixture.run(&["run", "-q", ROOT, "--", "/bin/cat", "/marker"]);
    assert!(said.code == 126 && said.out.is_empty() && said.err.contains("was changed"), "{said:?}");
    std::fs::write(&marker, "of the image\n").unwrap();
    std::fs::File::options().write(true).open(&marker).unwrap().set_times(times).unwrap();
    assert_eq!(fixture.run(&["run", "-q", ROOT, "--", "/bin/cat", "/marker"]).out, "of the image\n");
}

#[test]
fn an_unknown_image_and_the_weaker_tier_are_refused_with_their_remedy() {
    let fixture = Fixture::new();
    for args in [&["run", "--set=fs.root=image:none:1", "--", "sh"][..], &["create", "--set=fs.root=image:none:1"]] {
        let said = fixture.run(args);
        assert!(said.code == 126 && said.err.contains("no image of the store is called `none:1`"), "{said:?}");
        assert!(said.err.contains("fumehood image ls") && said.err.contains("image import"), "{said:?}");
    }
    let said = fixture.run(&["plan", "--json", "--set=fs.root=image:none:1"]);
    assert_eq!((said.code, said.json()["refused"][0]["id"].as_str()), (126, Some("fs.root/no-such-image")));
    imported(&fixture);
    let said = fixture.run(&["plan", "--json", ROOT, "--tier=process"]);
    let ids: Vec<_> = said.json()["refused"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert!(said.code == 126 && ids.contains(&json!("fs.root/needs-container")), "{ids:?}");
    let said = fixture.run(&["plan", "--json", ROOT, "--set=fs.exec=[\"/bin/sh\"]"]);
    assert_eq!((said.code, said.json()["refused"][0]["id"].as_str()), (126, Some("fs.exec/no-list")));
}

/// By the backends that take a tree as a bundle: what the image is and says holds there too.
#[test]
fn a_runtime_of_containers_shows_the_same_image() {
    let fixture = Fixture::new();
    imported(&fixture);
    for on in [["--tier=container", "--set=backend=crun"], ["--tier=gvisor", "--set=backend=runsc"]] {
        let planned = fixture.run(&["plan", "--json", ROOT, on[0], on[1]]);
        if planned.code != 0 {
            println!("skip: images by {on:?}: {}", planned.json()["refused"][0]["why"]);
            continue;
        }
        let (code, out, err) = inside(
            &fixture,
            &on,
            "id -u; id -un; echo $PWD $COLOUR $HOME; touch $HOME/x /tmp/y; greet you; cat /marker /lib/data",
        );
        let expected = "1234\napp\n/srv blue /home/app\ngreetings you\nof the image\nof the library\n";
        assert_eq!((code, out.as_str()), (0, expected), "{on:?}: {err}");
        let said = fixture.run(&["run", "-q", ROOT, on[0], on[1]]);
        assert_eq!((said.code, said.out.as_str()), (0, "greetings first second\n"), "{on:?}: {}", said.err);
        let attack = "echo x > /marker; echo x > /etc/own; rm -f /marker; mkdir /new /usr/new; touch /srv/x; cat /etc/hosts; ls /etc";
        let (_, out, _) = inside(&fixture, &on, attack);
        assert!(out.contains("localhost") && !out.contains("192.0.2.1") && !out.contains("debian_version"), "{out}");
        assert_eq!(fixture.run(&["image", "inspect", "app:1"]).code, 0, "{on:?}: the tree is what was unpacked");
        assert_eq!(std::fs::read_dir(fixture.path("work")).unwrap().count(), 0, "{on:?}");
    }
}

/// Whatever the links of an image lead to: what a runtime is told to mount and to make lies in the run's own folder.
#[test]
fn links_of_an_image_lead_a_runtime_to_nothing_of_the_host() {
    let fixture = Fixture::new();
    let outside = fixture.path("outside");
    std::fs::create_dir(&outside).unwrap();
    let target = outside.to_str().unwrap();
    let busybox = std::fs::read("/bin/busybox").unwrap();
    let mut members = vec![Member::File("busybox", &busybox, 0o755)];
    members.extend(
        ["etc", "home", "var", "run", "tmp", "proc", "dev", "srv", "usr"].map(|name| Member::Link(name, target)),
    );
    saved(&fixture.path("links.tar"), "links:1", &tar(&members), &json!({ "WorkingDir": "/srv/deep" }));
    assert_eq!(fixture.run(&["image", "import", fixture.path("links.tar").to_str().unwrap()]).code, 0);
    for on in [["--tier=container", "--set=backend=crun"], ["--tier=gvisor", "--set=backend=runsc"]] {
        let all = ["run", "-q", "--set=fs.root=image:links:1", on[0], on[1], "--", "/busybox", "cat", "/etc/hostname"];
        let said = fixture.run(&all);
        assert!(said.code == 126 || said.out == "sandbox\n", "{on:?}: {said:?}");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{on:?}");
    }
}

/// What a runtime starts is the sandbox's own first program, whatever an image or a grant would put in its place.
#[test]
fn nothing_takes_the_place_of_the_guest() {
    let fixture = Fixture::new();
    let busybox = std::fs::read("/bin/busybox").unwrap();
    let stub = "#!/busybox sh\necho the image ran as the guest >&2\n";
    let members = [
        Member::File("busybox", &busybox, 0o755),
        Member::File(".fumehood", stub.as_bytes(), 0o755),
        Member::File(".landlock-probe", b"x", 0o644),
    ];
    saved(&fixture.path("guest.tar"), "guest:1", &tar(&members), &json!({}));
    assert_eq!(fixture.run(&["image", "import", fixture.path("guest.tar").to_str().unwrap()]).code, 0);
    std::fs::write(fixture.path("stub"), stub).unwrap();
    let grant = format!("--read={}:/.fumehood", fixture.path("stub").display());
    let backends = [
        ["--tier=container", "--set=backend=native"],
        ["--tier=container", "--set=backend=crun"],
        ["--tier=gvisor", "--set=backend=runsc"],
    ];
    for on in backends {
        if fixture.run(&["plan", "--json", on[0], on[1]]).code != 0 {
            println!("skip: {on:?} is not there");
            continue;
        }
        let said = fixture.run(&[
            "run",
            "-q",
            "--set=fs.root=image:guest:1",
            on[0],
            on[1],
            "--",
            "/busybox",
            "echo",
            "inside",
        ]);
        assert_eq!((said.code, said.out.as_str()), (0, "inside\n"), "{on:?}: {}", said.err);
        let said = fixture.run(&["run", "-q", on[0], on[1], &grant, "--", "echo", "inside"]);
        let refused = said.code != 0 && said.err.contains("first program stands there");
        assert!(refused || on[1].ends_with("native") && said.out == "inside\n", "{on:?}: {said:?}");
    }
}

#[test]
fn a_live_sandbox_keeps_its_image() {
    let fixture = Fixture::new();
    imported(&fixture);
    let live = Live::new(&fixture, &[ROOT]);
    let (code, out, err) = live.exec(&[], &["sh", "-c", "cat /marker; id -un; echo $COLOUR"]);
    assert_eq!((code, out.as_str()), (0, "of the image\napp\nblue\n"), "{err}");
    let (code, _, err) = call(&fixture, &["image", "rm", "app:1"]);
    assert!(code == 125 && err.contains("is in use"), "{err}");
    drop(live);
    // Each try is a process of its own, which takes its time.
    let gone = (0..200).any(|_| call(&fixture, &["image", "rm", "app:1"]).0 == 0);
    assert!(gone, "a sandbox that ended holds nothing");
}
