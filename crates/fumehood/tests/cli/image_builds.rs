//! `fumehood image build`, from an image that is one static program.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use serde_json::json;

use crate::image_runs::{Member, layer, saved};
use crate::{CommandOutput, Fixture};

/// A fixture with an image `base:1`, and a folder to build in.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    let names = ["chown", "grep", "sed", "nc", "mount", "ln"].map(|name| format!("bin/{name}"));
    let mut more: Vec<_> = names.iter().map(|name| Member::Link(name, "busybox")).collect();
    more.push(Member::File("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644));
    more.push(Member::File("etc/group", b"root:x:0:\n", 0o644));
    more.push(Member::File("etc/shadow", b"root:*:::::::\n", 0o600));
    let at = fixture.path("base.tar");
    saved(&at, "base:1", &layer(more), &json!({ "Env": ["PATH=/bin:/usr/bin"], "Cmd": ["/bin/sh"] }));
    assert_eq!(fixture.run(&["image", "import", at.to_str().unwrap()]).code, 0);
    fs::create_dir(fixture.path("work/app")).unwrap();
    fixture
}

fn write(fixture: &Fixture, name: &str, text: &str) {
    let path = fixture.path("work/app").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn build(fixture: &Fixture, flags: &[&str], dockerfile: &str) -> CommandOutput {
    write(fixture, "Dockerfile", dockerfile);
    fixture.run(&[&["image", "build", "-t", "app:1"], flags, &["app"]].concat())
}

#[track_caller]
fn built(fixture: &Fixture, flags: &[&str], dockerfile: &str) -> CommandOutput {
    let said = build(fixture, flags, dockerfile);
    assert_eq!(said.code, 0, "{}", said.err);
    said
}

fn inside(fixture: &Fixture, script: &str) -> String {
    let said = fixture.run(&["run", "-q", "--set=fs.root=image:app:1", "--", "sh", "-c", script]);
    assert_eq!(said.code, 0, "{}", said.err);
    said.out
}

#[test]
fn a_dockerfile_becomes_an_image_that_runs() {
    let fixture = fixture();
    write(&fixture, "main.sh", "#!/bin/sh\necho \"$GREETING from $PWD as $(id -un)\"\n");
    write(&fixture, "lib/one", "1\n");
    write(&fixture, "lib/two", "2\n");
    write(&fixture, "lib/secret.key", "no\n");
    write(&fixture, ".dockerignore", "**/*.key\n*.md\n!README.md\n");
    write(&fixture, "README.md", "kept\n");
    write(&fixture, "NOTES.md", "left\n");
    let said = built(
        &fixture,
        &["--build-arg", "WHO=you"],
        "ARG TAG=1\n\
         FROM base:${TAG} AS first\n\
         ARG WHO=nobody\n\
         RUN mkdir -p /opt/out && echo \"built for $WHO by $(id -u)\" > /opt/out/words\n\
         FROM base:1\n\
         ENV GREETING=\"hello there\" N=1\n\
         WORKDIR /srv/app\n\
         RUN echo app:x:1500:1500::/srv:/bin/sh >> /etc/passwd && echo app:x:1500: >> /etc/group && chown -R app:app /srv/app && id -u > by\n\
         COPY --chmod=755 main.sh ./\n\
         COPY lib *.md docs/\n\
         COPY --from=first --chown=app:app /opt/out/words /srv/\n\
         RUN [\"/bin/sed\", \"-i\", \"s/built/made/\", \"/srv/words\"]\n\
         USER app\n\
         LABEL a=b\n\
         EXPOSE 8080\n\
         ENTRYPOINT [\"/srv/app/main.sh\"]\n",
    );
    assert!(said.out.contains("app:1") && said.err.contains("owners are not kept"), "{said:?}");
    let ran = fixture.run(&["run", "-q", "--set=fs.root=image:app:1"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "hello there from /srv/app as app\n"), "{}", ran.err);
    assert_eq!(
        inside(&fixture, "id -u; cat /srv/words by; ls docs; stat -c %a main.sh"),
        "1500\nmade for you by 0\n0\nREADME.md\none\ntwo\n755\n"
    );
    let image = fixture.run(&["image", "inspect", "app:1", "--json"]).json()["image"].clone();
    assert_eq!(image["config"]["Labels"], json!({ "a": "b" }));
    assert_eq!(image["config"]["ExposedPorts"], json!({ "8080/tcp": {} }));
    // What was built is the same when it is built anew.
    let again =
        built(&fixture, &["--build-arg", "WHO=you"], &fs::read_to_string(fixture.path("work/app/Dockerfile")).unwrap());
    assert_eq!(again.err.matches("(kept)").count(), 6, "{}", again.err);
    assert_eq!(again.out, said.out);
}

/// What the refusal says to do is done here, and helps.
#[test]
fn an_etc_of_many_small_files_is_refused_with_what_helps() {
    let fixture = fixture();
    let many = "FROM base:1\nRUN i=0; while [ $i -lt 600 ]; do echo $i >/etc/f$i; i=$((i+1)); done\n";
    built(&fixture, &[], many);
    let said = fixture.run(&["run", "--json", "--set=fs.root=image:app:1", "--", "true"]);
    let refused = &said.json()["refused"][0];
    assert_eq!((said.code, &refused["id"]), (126, &"run/image-etc".into()), "{said:?}");
    assert!(refused["fix"].as_str().unwrap().contains("a folder below it"), "{refused}");
    let moved =
        "RUN mkdir /etc/more && for f in /etc/f*; do n=${f##*/}; busybox mv $f /etc/more/ && ln -s more/$n $f; done";
    built(&fixture, &[], &format!("{many}{moved}\n"));
    assert_eq!(inside(&fixture, "cat /etc/f7 /etc/f599"), "7\n599\n");
}

#[test]
fn steps_are_done_again_where_something_changed() {
    let fixture = fixture();
    write(&fixture, "a", "1\n");
    let recipe = "FROM base:1\nRUN echo first >> /opt/log\nCOPY a /a\nRUN cat /a >> /opt/log\n";
    let kept = |said: &CommandOutput| said.err.matches("(kept)").count();
    assert_eq!(kept(&built(&fixture, &[], recipe)), 0);
    assert_eq!(kept(&built(&fixture, &[], recipe)), 3);
    assert_eq!(kept(&built(&fixture, &["--no-cache"], recipe)), 0);
    write(&fixture, "a", "2\n");
    assert_eq!(kept(&built(&fixture, &[], recipe)), 1);
    assert_eq!(inside(&fixture, "cat /opt/log"), "first\n2\n");
    // Under another policy a run is another step.
    assert_eq!(kept(&built(&fixture, &["--memory=2G"], recipe)), 0);
    // A kept tree that was changed is not taken.
    for step in fs::read_dir(fixture.path("state/images/steps")).unwrap() {
        fs::write(step.unwrap().path().join("root/etc/passwd"), "enemy:x:0:0::/:/bin/sh\n").unwrap();
    }
    assert_eq!(kept(&built(&fixture, &[], recipe)), 0);
    assert_eq!(inside(&fixture, "cat /etc/passwd").matches("enemy").count(), 0);
}

#[test]
fn run_is_a_sandbox_that_sees_the_tree_alone() {
    let fixture = fixture();
    fs::write(fixture.path("secret"), "of the host\n").unwrap();
    let secret = fixture.path("secret").display().to_string();
    let state = fixture.state().display().to_string();
    let attack = format!(
        "RUN ! cat {secret} && ! ls {state} && ! cat /etc/debian_version && ! ls /usr/lib/os-release \
         && ! nc -w 1 192.0.2.1 80 </dev/null && ! mount -t tmpfs x /mnt && ! env | grep CANARY && echo fine > /opt/fine\n"
    );
    let fixture = fixture.with("CANARY", "of the caller");
    built(&fixture, &[], &format!("FROM base:1\n{attack}"));
    assert_eq!(inside(&fixture, "cat /opt/fine"), "fine\n");
    // The same words outside reach all of it.
    assert!(Path::new(&secret).exists() && Path::new(&state).exists());
    let said = build(&fixture, &["--timeout=1s"], "FROM base:1\nRUN sleep 50\n");
    assert!(said.code == 125 && said.err.contains("line 2") && said.err.contains("limit of 1s"), "{}", said.err);
    let said = build(&fixture, &[], "FROM base:1\nRUN mkdir /new\n");
    assert!(said.code == 125 && said.err.contains("a WORKDIR before it does"), "{}", said.err);
    built(&fixture, &[], "FROM base:1\nWORKDIR /new\nRUN mkdir /new/folder\n");
    built(&fixture, &[], "FROM base:1\nWORKDIR /new/one\nWORKDIR ../two/.\nRUN test \"$PWD\" = /new/two\n");
    assert_eq!(inside(&fixture, "pwd"), "/new/two\n");
    let said = build(&fixture, &[], "FROM base:1\nRUN exit 7\n");
    assert!(said.code == 125 && said.err.contains("exited with 7"), "{}", said.err);
    for flags in [&["-w", "."][..], &["--set=fs.root=empty"], &["--tier=process"]] {
        let said = build(&fixture, flags, "FROM base:1\nRUN true\n");
        assert!(said.code == 125 && said.err.contains("RUN sees the tree"), "{}", said.err);
    }
}

#[test]
fn what_a_step_does_to_the_list_of_name_servers_leads_nothing_out() {
    let fixture = fixture();
    let secret = fixture.path("secret");
    fs::write(&secret, "of the host\n").unwrap();
    write(&fixture, "names", "own\n");
    for change in [
        format!("rm /etc/resolv.conf && ln -s {} /etc/resolv.conf && busybox chmod 555 /etc", secret.display()),
        "rm /etc/resolv.conf && mkdir -p /etc/resolv.conf/in && busybox chmod 0 /etc/resolv.conf".to_owned(),
        "grep -q 198.18 /etc/resolv.conf".to_owned(),
    ] {
        let recipe = format!(
            "FROM base:1 AS first\nCOPY --chmod=604 names /etc/resolv.conf\nRUN {change}\n\
             FROM base:1\nCOPY --from=first /etc/resolv.conf /opt/was\n"
        );
        built(&fixture, &["--allow-host", "example.org"], &recipe);
        assert_eq!(fs::read_to_string(&secret).unwrap(), "of the host\n", "{change}");
        assert_eq!(inside(&fixture, "cat /opt/was; stat -c %a /opt/was"), "own\n604\n", "{change}");
    }
}

#[test]
fn no_link_leads_a_copy_out() {
    let fixture = fixture();
    fs::write(fixture.path("secret"), "of the host\n").unwrap();
    write(&fixture, "file", "mine\n");
    symlink(fixture.path("secret"), fixture.path("work/app/link")).unwrap();
    symlink(fixture.dir.path(), fixture.path("work/app/folder")).unwrap();
    for source in ["folder/secret", "../../secret"] {
        let said = build(&fixture, &[], &format!("FROM base:1\nCOPY {source} /x/\n"));
        assert!(said.code == 126 && said.err.contains("line 2"), "{source}: {}", said.err);
    }
    // A link is copied as the text that it is, and found by the image's programs alone.
    built(&fixture, &[], "FROM base:1\nCOPY link folder /opt/\nRUN ! cat /opt/link && ! ls /opt/folder/\n");
    // One in the tree leads within the tree.
    let outside = fixture.path("outside");
    fs::create_dir(&outside).unwrap();
    let recipe = format!(
        "FROM base:1\nRUN ln -s {0} /opt/out && ln -s / /opt/root && ln -s ../../../../.. /opt/up\n\
         COPY file /opt/out/a\nCOPY file /opt/root/srv/b\nCOPY file /opt/up/srv/c\n",
        outside.display()
    );
    let base = fs::read_dir(&outside).unwrap().count();
    let said = build(&fixture, &[], &recipe);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!((fs::read_dir(&outside).unwrap().count(), base), (0, 0));
    assert_eq!(inside(&fixture, "cat /srv/b /srv/c"), "mine\nmine\n");
}

#[test]
fn a_refused_recipe_leaves_nothing_and_says_its_line() {
    let fixture = fixture();
    write(&fixture, "archive", "\u{1f}x");
    fs::write(fixture.path("work/app/archive"), b"\x1f\x8b\x08").unwrap();
    let table = [
        ("FROM base:1\nVOLUME /x\n", 126, "line 2"),
        ("FROM base:1\nCOPY nothing /x\n", 126, "called `nothing`"),
        ("FROM base:1\nADD archive /x\n", 126, "ADD would unpack"),
        ("FROM base:1\nCOPY archive Dockerfile /x\n", 126, "must end in `/`"),
        ("FROM base:1\nUSER nobody\nRUN true\n", 126, "no user `nobody`"),
        ("FROM base:1\nRUN busybox mkfifo /opt/pipe\n", 126, "line 2"),
        ("FROM none:1\n", 125, "no image `none:1`"),
        ("FROM base:1\nCOPY --from=none:1 a b\n", 125, "no image `none:1`"),
    ];
    for (recipe, code, words) in table {
        let said = build(&fixture, &[], recipe);
        assert!(said.code == code && said.err.contains(words), "{recipe}: {said:?}");
    }
    let said = build(&fixture, &["--target=no"], "FROM base:1\n");
    assert!(said.code == 126 && said.err.contains("no stage has this name"), "{}", said.err);
    let names = fixture.run(&["image", "ls", "--json"]).json();
    assert_eq!(names["images"].as_array().unwrap().len(), 1, "{names}");
    let left = fs::read_dir(fixture.path("state/images")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with(".new-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn scratch_and_stages_that_are_not_needed() {
    let fixture = fixture();
    write(&fixture, "tool", "#!/bin/busybox sh\necho tool\n");
    fs::set_permissions(fixture.path("work/app/tool"), fs::Permissions::from_mode(0o755)).unwrap();
    let recipe = "FROM base:1 AS never\nRUN exit 1\n\
                  FROM base:1 AS tools\nRUN true\n\
                  FROM scratch AS last\nCOPY --from=tools /bin/busybox /bin/busybox\nCOPY tool /bin/\nCMD [\"/bin/tool\"]\n\
                  FROM last AS other\nCMD [\"/nothing\"]\n";
    built(&fixture, &["--target", "last", "-q"], recipe);
    let ran = fixture.run(&["run", "-q", "--set=fs.root=image:app:1"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "tool\n"), "{}", ran.err);
}

/// The recipe of the guides, whole, on an image of Debian's packages under the name that it is written with.
#[test]
fn the_recipe_of_the_guides_builds_on_debian_packages_and_runs() {
    let fixture = Fixture::new();
    let said = fixture.run(&["image", "debian", "-t", "python:3.11-slim", "--packages", "python3-minimal,passwd"]);
    if said.code == 126 && said.err.contains("image/packages") || said.err.contains("apt") && said.code != 0 {
        println!("skip: no packages can be had: {}", said.err.lines().next().unwrap_or_default());
        return;
    }
    assert_eq!(said.code, 0, "{}", said.err);
    fs::create_dir(fixture.path("work/app")).unwrap();
    write(
        &fixture,
        "runner.py",
        "import os, pwd, sys\nprint(pwd.getpwuid(os.getuid()).pw_name, os.getuid(), os.getcwd(), sys.argv[1:])\nprint(open('code.txt').read())\n",
    );
    write(&fixture, "code.txt", "of the folder");
    built(
        &fixture,
        &[],
        "FROM python:3.11-slim\n\
         RUN useradd --create-home --uid 1234 --shell /usr/sbin/nologin sandbox\n\
         WORKDIR /sandbox\n\
         COPY --chown=sandbox:sandbox runner.py code.txt ./\n\
         USER sandbox\n\
         ENTRYPOINT [\"python3\", \"/sandbox/runner.py\"]\n\
         CMD [\"--timeout\", \"30\"]\n",
    );
    let said = fixture.run(&["run", "-q", "--set=fs.root=image:app:1"]);
    let expected = "sandbox 1234 /sandbox ['--timeout', '30']\nof the folder\n";
    assert_eq!((said.code, said.out.as_str()), (0, expected), "{}", said.err);
}
