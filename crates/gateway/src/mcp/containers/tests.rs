use super::*;

fn env() -> BTreeMap<String, String> {
    BTreeMap::from([("TOKEN".to_owned(), "of the entry".to_owned()), ("DOCKER_HOST".to_owned(), "tcp://x".to_owned())])
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn taken(line: &str) -> Container {
    read(&words(line), &env()).unwrap_or_else(|refused| panic!("{line}: {refused:?}"))
}

fn refused(line: &str) -> Vec<Refused> {
    read(&words(line), &env()).map_or_else(|refused| refused, |taken| panic!("{line}: {taken:?}"))
}

fn lines(container: &Container) -> Vec<String> {
    grants(&container.folders.iter().collect::<Vec<_>>())
}

#[test]
fn the_entries_of_known_servers_are_taken_over() {
    let github = taken("run -i --rm -e TOKEN ghcr.io/github/github-mcp-server");
    assert_eq!(github.image, "ghcr.io/github/github-mcp-server");
    assert_eq!(github.env, BTreeMap::from([("TOKEN".to_owned(), "of the entry".to_owned())]), "and nothing else of it");
    assert_eq!(Container { image: String::new(), env: BTreeMap::new(), ..github }, Container::default());

    let git = taken(
        "run --rm -i --mount type=bind,src=/home/me/repo,dst=/repo,readonly --init --pull=always mcp/git -r /repo -v",
    );
    assert_eq!((git.image.as_str(), git.args.join(" ")), ("mcp/git", "-r /repo -v".to_owned()));
    let folder = Folder { from: Some("/home/me/repo".to_owned()), to: "/repo".to_owned(), is_writable: false };
    assert_eq!(git.folders, [folder]);
    assert_eq!(lines(&git), ["fs.read = [{ from = \"/home/me/repo\", to = \"/repo\" }]"]);
    assert!(taken("container run --rm x").env.is_empty() && !git.is_local);
}

#[test]
fn options_are_read_as_docker_reads_them() {
    for line in [
        "run -ie TOKEN img a",
        "run -ieTOKEN img a",
        "run -i -e=TOKEN img a",
        "run -i --env=TOKEN img a",
        "run -i --env TOKEN -- img a",
        "run -i=true --rm=false --read-only -qe TOKEN img a",
    ] {
        let container = taken(line);
        assert_eq!((container.image.as_str(), container.args.join(" ").as_str()), ("img", "a"), "{line}");
        assert_eq!(container.env.len(), 1, "{line}");
    }
    // What follows an option that has a value is its value, whatever it looks like.
    let container = taken("run --name --privileged --label -v img --network host");
    assert_eq!((container.image.as_str(), container.args.join(" ").as_str()), ("img", "--network host"));
    let container = taken("run -e A=1 -e A=2 -e B=x=y -e NONE -e TOKEN -e TOKEN=own img");
    let text = |name: &str| container.env.get(name).map(String::as_str);
    assert_eq!((text("A"), text("B"), text("TOKEN"), text("NONE")), (Some("2"), Some("x=y"), Some("own"), None));
    assert_eq!(container.unset, ["NONE"]);
    let container = taken(
        "run --entrypoint /bin/serve -w /srv/x/ -u node:node -h box --network none --platform linux/amd64 --pull never img",
    );
    assert_eq!((container.entrypoint.as_deref(), container.workdir.as_deref()), (Some("/bin/serve"), Some("/srv/x")));
    assert_eq!(container.clauses, ["process.user=\"node\"", "process.hostname=\"box\""]);
    assert!(container.is_offline && container.is_local && container.platform.is_some());
    assert_eq!(taken("run -u 1000:1000 img").clauses, ["process.user=\"user\""]);
    assert!(!taken("run --net bridge img").is_offline && taken("run --net none --net bridge img").is_offline);
}

#[test]
fn folders_are_told_and_never_granted() {
    for (option, line) in [
        ("-v /a:/b", "fs.write = [{ from = \"/a\", to = \"/b\" }]"),
        ("-v/a:/b:ro,z", "fs.read = [{ from = \"/a\", to = \"/b\" }]"),
        ("--volume=/a:/b/:rw", "fs.write = [{ from = \"/a\", to = \"/b\" }]"),
        ("-v data:/b", "fs.write = [{ from = \"FOLDER\", to = \"/b\" }]"),
        ("-v /b", "fs.write = [{ from = \"FOLDER\", to = \"/b\" }]"),
        ("--mount type=bind,source=/a\"b,target=/b", "fs.write = [{ from = \"/a\\\"b\", to = \"/b\" }]"),
        ("--mount src=data,destination=/b,ro=true", "fs.read = [{ from = \"FOLDER\", to = \"/b\" }]"),
        ("--mount type=bind,SRC=/a,dst=/b,readonly=false", "fs.write = [{ from = \"/a\", to = \"/b\" }]"),
    ] {
        let container = taken(&format!("run -i {option} img"));
        assert_eq!(lines(&container), [line], "{option}");
        assert!(container.clauses.is_empty(), "{option}");
    }
    let all = [
        "fs.read = [{ from = \"/a\", to = \"/b\" }]",
        "fs.write = [{ from = \"/c\", to = \"/d\" }, { from = \"/e\", to = \"/f\" }]",
    ];
    assert_eq!(lines(&taken("run -v /c:/d -v /a:/b:ro -v /e:/f img")), all, "one line for each clause");
    assert!(taken("run --tmpfs /tmp --mount type=tmpfs,dst=/run img").folders.is_empty());
}

#[test]
fn what_opens_the_host_or_has_no_clause_is_refused_with_what_to_write() {
    for (option, words) in [
        ("--privileged", "no clause of a policy"),
        ("--privileged=1", "no clause of a policy"),
        ("-it", "a terminal"),
        ("-d", "stdin and stdout"),
        ("--cap-add SYS_ADMIN", "no clause of a policy"),
        ("--network host", "`net.mode = \"allow\"`"),
        ("--net=container:x", "`net.mode = \"allow\"`"),
        ("--pid host", "nothing of the host's"),
        ("--ipc=host", "nothing of the host's"),
        ("--userns=host", "nothing of the host's"),
        ("--security-opt seccomp=unconfined", "nothing of the host's"),
        ("-p 80:80", "no port of a sandbox"),
        ("-P", "no port of a sandbox"),
        ("-v /var/run/docker.sock:/var/run/docker.sock", "has the machine"),
        ("--mount type=bind,src=/run/podman/podman.sock,dst=/x", "has the machine"),
        ("-v /a:/b:shared", "`ro` or `rw`"),
        ("-v /a:/b:ro:x", "/FROM:/TO"),
        ("-v /a:b", "absolute path"),
        ("-v /a:/../etc", "absolute path"),
        ("-v /a:/", "absolute path"),
        ("--mount type=npipe,dst=/x", "type=bind"),
        ("--mount type=bind,src=/a,dst=/b,bind-propagation=shared", "type=bind"),
        ("--tmpfs /data", "`/tmp` and `/run`"),
        ("--env-file .env", "the entry's `env`"),
        ("-u root", "take it out"),
        ("-u 0:0", "take it out"),
        ("-u 999", "`process.user = \"NAME\"`"),
        ("-u node:staff", "`process.user = \"NAME\"`"),
        ("-w x", "absolute path"),
        ("-m 512m", "`limits.memory = \"512M\"`"),
        ("--memory=1073741824", "`limits.memory = \"1073741824B\"`"),
        ("--memory=;rm", "`limits.memory = \"512M\"`"),
        ("--pids-limit 10", "`limits.pids = 10`"),
        ("--cpus 1.5", "`limits.cpus = 1.5`"),
        ("--cpus NaN", "`limits.cpus = 1.0`"),
        ("--gpus all", "`process.devices = [\"nvidia:all\"]`"),
        ("--add-host a:1.2.3.4", "`net.allow = "),
        ("--restart always", "the gateway starts"),
        ("-e A-B=x", "letters, digits"),
        ("-e =x", "letters, digits"),
        ("--pull sometimes", "`always`"),
    ] {
        let found = refused(&format!("run -i {option} img"));
        assert!(found.len() == 1 && found[0].fix.contains(words), "{option}: {found:?}");
    }
    let found = refused("run --privileged --network host -m 1g img");
    assert_eq!(found.len(), 3, "all of them at once: {found:?}");
    let shown = format!("{:?}", refused("run -e 1X=s3cret img"));
    assert!(!shown.contains("s3cret"), "{shown}");
}

/// Nothing that a hostile entry writes moves the place where the image stands, or is taken for something else.
#[test]
fn what_is_not_known_could_hide_the_image_and_ends_the_reading() {
    for (line, words) in [
        ("run --unknown img x", "`--unknown` is not known"),
        ("run --unknown=1 --privileged img", "`--unknown` is not known"),
        ("run -iz img", "`-z` is not known"),
        ("run -i=perhaps img", "neither on nor off"),
        ("run -i= img", "`-=` is not known"),
        ("run --rm= img", "neither on nor off"),
        ("run ---rm img", "`---rm` is not known"),
        ("run --=x img", "`--` is not known"),
        ("run -i --name", "has no value"),
        ("run -e", "has no value"),
        ("run -i", "names no image"),
        ("run", "names no image"),
        ("run -i -", "`-` names no image"),
        ("run -- --privileged", "`--privileged` names no image"),
        ("run /etc/passwd", "names no image"),
        ("run -\u{1b}[2J img", "is not known"),
        ("exec -i box server", "only `run IMAGE`"),
        ("--host tcp://x run img", "only `run IMAGE`"),
        ("compose run img", "only `run IMAGE`"),
        ("", "only `run IMAGE`"),
        ("container", "only `run IMAGE`"),
    ] {
        let found = refused(line);
        assert!(found.last().is_some_and(|last| last.why.contains(words)), "{line}: {found:?}");
        assert!(!found[0].why.contains('\u{1b}'), "{line}");
    }
    // Words may hold blanks.
    let found = read(&["run".to_owned(), "--name=a b".to_owned(), "img --privileged".to_owned()], &env()).unwrap();
    assert_eq!(found.image, "img --privileged", "one word, which no registry can have");
}
