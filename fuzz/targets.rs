//! What reads, what it is fed with at first, and what must hold for whatever it accepts.

pub(crate) mod policy {
    //! Policy documents in each of the three forms.
    use std::path::{Path, PathBuf};

    use policy::rows::ROWS;
    use policy::{Caller, Format, Layers};

    pub(crate) const TOKENS: &[&str] = &[
        "limits.memory = \"",
        "[limits]\n",
        "[[",
        "]]",
        "extends = [",
        "\"strict\"",
        "1Gi",
        "50M/s",
        "1m30s",
        "**/{a,b}",
        "workspace = { path = \"",
        "mode = \"overlay\"",
        "\\u0000",
        "&a *a",
        "!!str ",
        "? ",
        "- ",
        "{}",
        "[]",
        "\r",
        "\t",
        "\u{feff}",
        "\u{202e}",
        "none",
        "true",
        "version = 1\n",
        "version: 1\n",
        "{\"version\": 1,",
    ];

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        let mut seeds = Vec::new();
        for row in ROWS {
            for text in [row.valid, row.invalid] {
                seeds.push(format!("version = 1\n{text}\n").into_bytes());
            }
        }
        for preset in policy::presets::PRESETS {
            seeds.push(preset.text.as_bytes().to_vec());
        }
        seeds.push(b"{\"version\": 1, \"limits\": {\"memory\": \"1G\", \"pids\": 5}}".to_vec());
        seeds.push(
            b"version: 1\nlimits:\n  memory: 1G\nfs:\n  read:\n    - /opt\n    - from: ./a\n      to: /b\n".to_vec(),
        );
        seeds
    }

    pub(crate) fn read(bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        for format in [Format::Toml, Format::Yaml, Format::Json] {
            let caller = Caller {
                dir: PathBuf::from("/srv/work"),
                home: Some(PathBuf::from("/home/ann")),
                profiles: vec!["default".to_owned(), "strict".to_owned()],
            };
            let mut layers = Layers::new(caller);
            let none = |_: &Path| Err("no such file".to_owned());
            layers.document("p", &text, format, Path::new("/srv"), &none);
            match layers.finish() {
                Ok(loaded) => {
                    // What is accepted can be demanded and shown.
                    for (clause, _) in loaded.policy.demands() {
                        assert!(!loaded.origins.of(clause).is_empty(), "{clause}");
                    }
                    assert!(
                        loaded.policy.fs.read.iter().all(|grant| grant.from.is_absolute() && grant.to.is_absolute())
                    );
                    assert!(loaded.policy.fs.write.iter().all(|grant| grant.from.is_absolute()));
                }
                Err(mistakes) => {
                    assert!(!mistakes.list.is_empty(), "refused without a reason");
                    for mistake in &mistakes.list {
                        assert!(!mistake.what.is_empty() && !mistake.why.is_empty() && !mistake.fix.is_empty());
                        let shown = mistake.to_string();
                        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown:?}");
                    }
                }
            }
        }
    }
}

pub(crate) mod frames {
    //! Frames, both ways, as a stream.
    use guest::config::Size;
    use guest::frames::{self, Address, End, Exited, FromGuest, MAX_OWN, OwnedStart, ToGuest};

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        let mut seeds = Vec::new();
        let mut buffer = [0; MAX_OWN];
        let exited = Exited { end: End::Signal { number: 9, core: true }, utime_us: 1, stime_us: u64::MAX };
        for (frame, request) in [
            (FromGuest::Pong, 5),
            (FromGuest::Started { pid: 7 }, 6),
            (FromGuest::Exited(exited), 7),
            (FromGuest::Stopped(19), 0),
        ] {
            let length = frame.encode(Address { channel: 0, request }, &mut buffer).unwrap();
            seeds.push(buffer[..length].to_vec());
        }
        for frame in [ToGuest::Signal(15), ToGuest::Resize(Size { rows: 1, cols: 2 }), ToGuest::Go, ToGuest::Kill] {
            let at = Address { channel: 0, request: u32::from(frame.asks()) };
            let length = frame.encode(at, &mut buffer).unwrap();
            seeds.push(buffer[..length].to_vec());
        }
        let (argv, env) = (vec![c"sh".to_owned(), c"-c".to_owned()], vec![c"A=B".to_owned()]);
        let start = OwnedStart { argv, env, cwd: c"/".to_owned() };
        seeds.push(start.encode(Address { channel: 1, request: 2 }).unwrap());
        seeds.push(seeds.concat());
        seeds
    }

    pub(crate) fn read(bytes: &[u8]) {
        let mut rest = bytes;
        let mut buffer = vec![0; 1 << 17];
        while let Ok(Some((raw, length))) = frames::first(rest) {
            assert!(length > 0 && length <= rest.len(), "a frame of {length} in {} bytes", rest.len());
            // What is understood is written back as it was.
            if let Ok(frame) = FromGuest::decode(&raw) {
                let again = frame.encode(raw.at, &mut buffer).unwrap();
                assert_eq!(&buffer[..again], &rest[..length], "{frame:?}");
            }
            if let Ok(frame) = ToGuest::decode(&raw) {
                let again = frame.encode(raw.at, &mut buffer).unwrap();
                assert_eq!(&buffer[..again], &rest[..length], "{frame:?}");
            }
            rest = &rest[length..];
        }
    }
}

pub(crate) mod config {
    //! The guest's side of the config.
    use guest::config::{Attrs, Config, Lowers, Mode, Op, Probe, Rlimit, Source, View};

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        let path = || c"/some/where".to_owned();
        let full = Config {
            mode: Mode::Container,
            hostname: b"sandbox".to_vec(),
            sources: vec![Source::Fd(9)],
            ops: vec![
                Op::Root { size: 1 << 20, inodes: 77 },
                Op::File { path: path(), mode: 0o600, bytes: vec![0, 1, 255] },
                Op::Tmpfs { path: path(), size: 1, inodes: 2, mode: 0o1777, attrs: Attrs::NOEXEC, export: Some(1) },
                Op::Overlay {
                    lowers: Lowers::one(0),
                    path: path(),
                    size: 1,
                    inodes: 2,
                    attrs: Attrs::RDONLY,
                    export: Some(1),
                },
                Op::Mask { path: path(), dir: true },
                Op::Device { path: path(), major: 1, minor: 3 },
            ],
            rlimits: vec![Rlimit { resource: 7, value: u64::MAX }],
            probes: vec![Probe::OpenMustFail(path()), Probe::SocketMustFail { family: 2, kind: 1, protocol: 0 }],
            argv: vec![c"sh".to_owned(), c"-c".to_owned()],
            env: vec![c"A=b".to_owned()],
            cwd: path(),
            search: vec![c"/usr/bin".to_owned()],
            ..Config::default()
        };
        vec![full.encode(), Config::default().encode()]
    }

    pub(crate) fn read(bytes: &[u8]) {
        match View::new(bytes) {
            Ok(view) => {
                // Everything that it lends can be walked.
                let walked = view.ops.iter().count() + view.argv.iter().count() + view.env.iter().count();
                let more = view.sources.iter().count() + view.probes.iter().count() + view.rlimits.iter().count();
                assert!(walked + more <= bytes.len(), "more items than bytes");
                assert!(view.hostname.len() <= 64);
            }
            Err(malformed) => assert!(malformed.at <= bytes.len()),
        }
    }
}

pub(crate) mod proc {
    //! `mountinfo` and `status`: the kernel writes them, with names that anybody may choose.

    pub(crate) const TOKENS: &[&str] = &[
        "Uid:\t0\t0\t0\t0\n",
        "NoNewPrivs:\t1\n",
        " - tmpfs tmpfs rw",
        "\\040",
        "\\012",
        "shared:1 ",
        "master:2 ",
        " / / ",
    ];

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        ["/proc/self/mountinfo", "/proc/self/status", "/proc/1/status"]
            .into_iter()
            .filter_map(|path| std::fs::read(path).ok())
            .map(|bytes| bytes.into_iter().take(4096).collect())
            .collect()
    }

    pub(crate) fn read(bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        if let Some(mounts) = sys::proc::parse_mountinfo(&text) {
            assert!(mounts.len() <= text.lines().count());
        }
        if let Some(status) = sys::proc::parse_status(&text) {
            // Nothing is made up: what it says stands in the text.
            assert!(
                text.contains("NoNewPrivs:") && text.contains("Seccomp:") && text.contains("CapEff:"),
                "{status:?}"
            );
        }
    }
}

pub(crate) mod manifest {
    //! The list of changes of a run: `apply` writes where it says.
    use std::path::Component;

    use sandbox::state::{Places, RunId, State};

    pub(crate) const TOKENS: &[&str] = &[
        "../",
        "/etc/passwd",
        "..",
        ".",
        "\"path\":\"",
        "\"entries\":[",
        "\"schema\":1,",
        "\\u0000",
        "\"kind\":\"symlink\"",
    ];

    const RUN: &str = "r-20260102-030405-abcdef";

    pub(crate) struct Place {
        folder: tempfile::TempDir,
        state: State,
        run: RunId,
    }

    impl Place {
        pub(crate) fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let places = Places {
                fumehood_state: Some(folder.path().join("state")),
                fumehood_keys: None,
                xdg_state_home: None,
                home: None,
                euid: rustix::process::geteuid().as_raw(),
            };
            let state = State::open(&places).unwrap();
            drop(state.changes().unwrap());
            std::fs::create_dir(folder.path().join("state/changes").join(RUN)).unwrap();
            Self { folder, state, run: RUN.parse().unwrap() }
        }

        pub(crate) fn read(&self, bytes: &[u8]) {
            let file = self.folder.path().join("state/changes").join(RUN).join("manifest.json");
            std::fs::write(file, bytes).unwrap();
            let Ok((manifest, _)) = sandbox::changes::load(&self.state, &self.run) else { return };
            for entry in &manifest.entries {
                let below = entry.path.components().all(|part| matches!(part, Component::Normal(_)));
                assert!(below && entry.path.file_name().is_some(), "{:?} leaves the workspace", entry.path);
            }
            let chosen = manifest.choose(None).unwrap();
            assert_eq!(manifest.digest(&chosen).len(), 64);
        }
    }

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        let entry = r#"{"path":"a/b","change":"added","kind":"file","mode":420,"size":3,"sha256":null,"target":null,"stripped":false,"base":null,"touched":false}"#;
        let all = format!(
            r#"{{"schema":1,"run":"{RUN}","workspace":"/srv/tree","root":{{"dev":1,"ino":2}},"began":[1,2],"entries":[{entry}],"refused":[]}}"#
        );
        vec![all.into_bytes(), entry.as_bytes().to_vec()]
    }
}

pub(crate) mod audit {
    //! Lines of the log: a hash that fits is the only way to be believed.
    use policy::json::{canonical, sha256_hex};
    use sandbox::audit::{Event, NotAnEvent};
    use serde_json::Value;

    pub(crate) const TOKENS: &[&str] = &[
        "\"seq\":",
        "\"hash\":\"",
        "\\u001b[2J",
        "\"body\":{",
        "1e400",
        "-0.0",
        "\\ud800",
        "\"time\":\"",
        "\"prev\":\"",
    ];

    fn sealed(body: &str) -> String {
        let zeros = "0".repeat(64);
        let open = format!(
            r#"{{"body":{body},"kind":"run.ended","prev":"{zeros}","run":"r-20260102-030405-abcdef","seq":7,"time":"2026-01-02T03:04:05Z"}}"#
        );
        let hash = sha256_hex(open.as_bytes());
        open.replacen("\"kind\"", &format!("\"hash\":\"{hash}\",\"kind\""), 1)
    }

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        let seeds = [sealed("{}"), sealed(r#"{"a":1,"b":[true,null,"x"]}"#)];
        // The seeds are real: else mutations would only ever be refused at the door.
        for seed in &seeds {
            assert!(Event::parse(seed.as_bytes()).is_ok(), "{seed} {:?}", Event::parse(seed.as_bytes()).err());
        }
        seeds.map(String::into_bytes).to_vec()
    }

    pub(crate) fn read(bytes: &[u8]) {
        let original = seeds_of_truth();
        match Event::parse(bytes) {
            Ok(event) => {
                // An accepted line other than ours would be a forged hash.
                assert!(original.iter().any(|seed| seed.as_bytes() == bytes), "accepted: {event:?}");
            }
            Err(NotAnEvent::Shape | NotAnEvent::Spelling | NotAnEvent::Hash) => {}
        }
        if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
            let once = canonical(&value);
            let again: Value = serde_json::from_str(&once).unwrap();
            assert_eq!(canonical(&again), once, "the canonical form of the canonical form is another");
        }
    }

    fn seeds_of_truth() -> [String; 2] {
        [sealed("{}"), sealed(r#"{"a":1,"b":[true,null,"x"]}"#)]
    }
}

pub(crate) mod live {
    //! What supervisor and agent of a live sandbox say to one another, each of which may be hostile to the other.
    use agent::frame::{self, Frame, Kind, Lane};
    use agent::words::{
        Change, Ended, Entries, Entry, Exited, Hello, Processes, ProgramControl, Request, Skipped, Started,
    };
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    pub(crate) const TOKENS: &[&str] = &[
        "{\"op\":\"start\",\"argv\":[\"",
        "{\"op\":\"list\",\"path\":\"~\",\"depth\":1}",
        "{\"op\":\"write\",\"path\":\"f\",\"metadata\":{\"a\":\"b\"}}",
        "{\"op\":\"watch\",\"path\":\"/\",\"recursive\":true}",
        "{\"signal\":{\"number\":9,\"tree\":true}}",
        "{\"resize\":{\"rows\":1,\"cols\":65535}}",
        "{\"error\":{\"code\":\"no_space\",\"message\":\"",
        "{\"ok\":null}",
        "\\u0000",
        "\\ud800",
        "null",
        "-1",
        "1e400",
        "18446744073709551616",
    ];

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        let mut seeds = Vec::new();
        let exited = Exited { code: Some(7), ..Exited::default() };
        for (kind, payload) in [
            (Kind::Open, TOKENS[1].as_bytes().to_vec()),
            (Kind::Open, b"{\"op\":\"start\",\"argv\":[\"sh\"],\"env\":{\"A\":\"B\"},\"stdin\":true}".to_vec()),
            (Kind::Open, TOKENS[2].as_bytes().to_vec()),
            (Kind::Control, TOKENS[4].as_bytes().to_vec()),
            (Kind::Control, TOKENS[5].as_bytes().to_vec()),
            (Kind::Data, b"\x01bytes".to_vec()),
            (Kind::Eof, Vec::new()),
            (Kind::Cancel, Vec::new()),
            (Kind::Credit, 65536_u32.to_le_bytes().to_vec()),
            (Kind::Reply, serde_json::to_vec(&Started { pid: 5 }).unwrap()),
            (Kind::End, serde_json::to_vec(&Ended::Ok(exited)).unwrap()),
            (Kind::End, serde_json::to_vec(&Ended::Ok(Skipped::default())).unwrap()),
        ] {
            let mut bytes = Vec::new();
            assert!(frame::put(&mut bytes, Frame { kind, stream: 3, payload: &payload }));
            seeds.push(bytes);
        }
        seeds.push(seeds.concat());
        seeds
    }

    pub(crate) fn read(bytes: &[u8]) {
        let mut rest = bytes;
        while let Ok(Some((frame, length))) = frame::first(rest) {
            assert!(length > 0 && length <= rest.len(), "a frame of {length} in {} bytes", rest.len());
            let mut again = Vec::new();
            assert!(frame::put(&mut again, frame));
            assert_eq!(again, &rest[..length]);
            words(frame);
            rest = &rest[length..];
        }
        words(Frame { kind: Kind::Open, stream: 1, payload: bytes });
        words(Frame { kind: Kind::End, stream: 1, payload: bytes });
    }

    fn words(frame: Frame<'_>) {
        match frame.kind {
            Kind::Open => same::<Request>(frame.payload),
            Kind::Control => same::<ProgramControl>(frame.payload),
            Kind::Reply => {
                same::<Started>(frame.payload);
                same::<Entry>(frame.payload);
            }
            Kind::Event => {
                same::<Entries>(frame.payload);
                same::<Change>(frame.payload);
            }
            Kind::End => {
                same::<Ended<Exited>>(frame.payload);
                same::<Ended<Hello>>(frame.payload);
                same::<Ended<Processes>>(frame.payload);
                same::<Ended<Skipped>>(frame.payload);
                same::<Ended<Entry>>(frame.payload);
            }
            Kind::Data => {
                if let Some((lane, bytes)) = Lane::split(frame.payload) {
                    let mut again = Vec::new();
                    assert!(frame::put_data(&mut again, frame.stream, lane, bytes));
                }
            }
            Kind::Eof | Kind::Credit | Kind::Cancel => {}
        }
    }

    /// What is understood is written so that it is understood in the same way.
    fn same<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
        let Ok(value) = serde_json::from_slice::<T>(bytes) else { return };
        let again = serde_json::to_vec(&value).unwrap();
        assert_eq!(serde_json::from_slice::<T>(&again).unwrap(), value);
    }
}
