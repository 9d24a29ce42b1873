//! Configs and frames: what one side writes the other reads, and no bytes make either panic.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::ffi::CString;

use guest::config::{
    Attrs, Config, Identity, Ids, Inlet, Landlock, Lowers, Mode, Op, Port, Probe, Rlimit, Rule, Size, Source, View,
};
use guest::frames::{
    Address, End, ExecFailure, Exited, FrameError, FromGuest, MAX_FRAME, MAX_OWN, MAX_PAYLOAD, MAX_TEXTS, OwnedStart,
    Posture, Raw, Slots, ToGuest, VERSION, first,
};
use guest::step::Step;
use proptest::prelude::*;

fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn every_op() -> Vec<Op<CString, Vec<u8>>> {
    let (attrs, size, inodes) = (Attrs::RDONLY | Attrs::NOSYMFOLLOW, 1 << 30, 77);
    let path = || c("/some/where");
    let lowers = Lowers::new(&[3, 1]).unwrap();
    vec![
        Op::Root { size, inodes },
        Op::Dir { path: path(), mode: 0o700 },
        Op::File { path: path(), mode: 0o600, bytes: vec![0, 1, 255] },
        Op::Symlink { path: path(), target: c("") },
        Op::Tmpfs { path: path(), size, inodes, mode: 0o1777, attrs, export: None },
        Op::Tmpfs { path: path(), size, inodes, mode: 0o700, attrs, export: Some(6) },
        Op::Bind { source: 1, path: path(), attrs, file: true },
        Op::Overlay { lowers, path: path(), size, inodes, attrs, export: Some(4) },
        Op::Overlay { lowers, path: path(), size: 0, inodes, attrs, export: None },
        Op::Fill { path: path(), size, inodes, attrs, slot: 5 },
        Op::Devpts { path: path(), max: 4 },
        Op::Proc { path: path() },
        Op::Mqueue { path: path() },
        Op::Mask { path: path(), dir: true },
        Op::ReadOnly { path: path(), recursive: true },
        Op::Pin { path: path() },
        Op::BindInner { from: path(), path: path(), attrs: Attrs::RDONLY },
        Op::SetAttr { path: path(), attrs, recursive: false },
        Op::Device { path: path(), major: 1, minor: 3 },
    ]
}

fn everything() -> Config {
    let path = || c("/some/where");
    let is = Identity { major: 8, minor: 1, ino: u64::MAX };
    Config {
        mode: Mode::Process,
        wait_mapped: true,
        new_cgroup: true,
        wait_filled: true,
        loopback: true,
        local_ipv4: true,
        local_ipv6: false,
        link: true,
        inner_limits: true,
        new_keyring: true,
        new_session: true,
        close_descriptors: false,
        drop_capabilities: true,
        no_new_privs: false,
        undumpable: true,
        prove_payload_scope: true,
        stay: true,
        clear_groups: true,
        ignored: 1 << 63 | 1 << 12,
        ids: Some(Ids { uid: 1000, gid: 1001 }),
        umask: 0o27,
        oom_score_adj: Some(-5),
        nice: Some(19),
        tty: Some(Size { rows: 1, cols: 65535 }),
        hostname: b"host".to_vec(),
        label_file: c("attr/exec"),
        label: b"a label".to_vec(),
        sources: vec![Source::Path { path: path(), is }, Source::Fd(9)],
        ops: every_op(),
        inlets: vec![Inlet { ipv6: true, udp: false, port: 443 }, Inlet { ipv6: false, udp: true, port: 0 }],
        rlimits: vec![Rlimit { resource: 7, value: u64::MAX }],
        landlock: Some(Landlock {
            handled_fs: 0xffff,
            handled_net: 3,
            scoped: 3,
            flags: 1,
            rules: vec![Rule { path: path(), access: 12, is: Some(is) }, Rule { path: path(), access: 1, is: None }],
            ports: vec![Port { port: 443, access: 2 }],
        }),
        payload_layer: Some(Landlock { scoped: 2, ..Landlock::default() }),
        asking: vec![6, 0, 0, 0, 0, 0, 0xc0, 0x7f],
        proof: c"/tmp/link".to_owned(),
        seccomp: vec![6; 16],
        probes: vec![
            Probe::OpenMustFail(path()),
            Probe::OpenMustWork(path()),
            Probe::ReadDirMustFail(path()),
            Probe::SocketMustFail { family: 2, kind: 1, protocol: 262 },
            Probe::SignalMustFail(-1),
        ],
        argv: vec![c("a"), c("")],
        env: vec![c("K=V")],
        cwd: c("/tmp"),
        search: vec![c("/bin"), c("/usr/bin")],
        program: Some(7),
    }
}

#[test]
fn a_config_is_read_as_it_was_built() {
    let config = everything();
    let bytes = config.encode();
    let view = View::new(&bytes).unwrap();
    assert_eq!(
        (view.mode, view.wait_mapped, view.loopback, view.inner_limits, view.new_keyring, view.clear_groups, view.stay),
        (Mode::Process, true, true, true, true, true, true)
    );
    assert_eq!((view.ids, view.umask, view.oom_score_adj), (config.ids, config.umask, config.oom_score_adj));
    assert_eq!((view.ignored, view.program, view.new_cgroup), (config.ignored, config.program, true));
    assert_eq!((view.nice, view.tty, view.hostname), (config.nice, config.tty, &config.hostname[..]));
    assert_eq!((view.label_file, view.label), (config.label_file.as_c_str(), &config.label[..]));
    // The encodings of both forms are the same bytes, so their text form tells whether the values are.
    fn same<T: std::fmt::Debug, U: std::fmt::Debug>(read: impl Iterator<Item = T>, built: &[U]) {
        let read: Vec<String> = read.map(|one| format!("{one:?}")).collect();
        let built: Vec<String> = built.iter().map(|one| format!("{one:?}")).collect();
        assert_eq!(read, built);
    }
    same(view.sources.iter(), &config.sources);
    same(view.ops.iter(), &config.ops);
    same(view.rlimits.iter(), &config.rlimits);
    same(view.probes.iter(), &config.probes);
    same(view.argv.iter(), &config.argv);
    same(view.env.iter(), &config.env);
    same(view.search.iter(), &config.search);
    let (read, built) = (view.landlock.unwrap(), config.landlock.unwrap());
    assert_eq!(
        (read.handled_fs, read.handled_net, read.scoped, read.flags),
        (built.handled_fs, built.handled_net, built.scoped, built.flags)
    );
    same(read.rules.iter(), &built.rules);
    same(read.ports.iter(), &built.ports);
    assert_eq!(view.payload_layer.unwrap().scoped, 2);
    assert_eq!((view.seccomp, view.cwd), (&config.seccomp[..], config.cwd.as_c_str()));
    assert_eq!((view.asking, view.proof), (&config.asking[..], config.proof.as_c_str()));
}

#[test]
fn a_config_that_is_cut_anywhere_is_malformed() {
    let bytes = everything().encode();
    for len in 0..bytes.len() {
        assert!(View::new(&bytes[..len]).is_err(), "{len}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(View::new(&longer).is_err());
}

#[test]
fn another_version_is_malformed() {
    let mut bytes = everything().encode();
    bytes[4] += 1;
    assert!(View::new(&bytes).is_err());
}

#[test]
fn more_than_the_tables_hold_is_malformed() {
    let sources = Config { sources: vec![Source::Fd(9); 513], ..Config::default() };
    assert!(View::new(&sources.encode()).is_err());
    let probes = Config { probes: vec![Probe::SignalMustFail(1); 73], ..Config::default() };
    assert!(View::new(&probes.encode()).is_err());
    let fill = Op::Fill { path: c("/x"), size: 1, inodes: 1, attrs: Attrs::NONE, slot: 1 };
    assert!(View::new(&Config { ops: vec![fill.clone(); 16], ..Config::default() }.encode()).is_ok());
    assert!(View::new(&Config { ops: vec![fill; 17], ..Config::default() }.encode()).is_err());
}

fn every_frame() -> Vec<FromGuest> {
    let mut slots = Slots::default();
    for number in 0..16 {
        assert!(slots.push(number));
    }
    assert!(!slots.push(16));
    let mut posture = Posture { pid: 1, hostname: guest::Text::new(&[b'h'; 64]), ..Posture::default() };
    (0..72).for_each(|errno| assert!(posture.probes.push(errno)));
    assert!(!posture.probes.push(1));
    posture.label = guest::Text::new(&[b'l'; 255]);
    posture.rlimits[15] = (1, u64::MAX);
    let mut frames = vec![
        FromGuest::Mounted(slots),
        FromGuest::Terminal,
        FromGuest::Posture(posture),
        FromGuest::Started { pid: -1 },
        FromGuest::Stopped(19),
        FromGuest::Continued,
        FromGuest::Pong,
        FromGuest::Settled,
        FromGuest::Asking,
        FromGuest::Sockets(16),
    ];
    frames.extend(Step::ALL.iter().map(|step| FromGuest::Failed { step: *step, errno: 22, detail: u32::MAX }));
    let failures = [
        ExecFailure::NotFound,
        ExecFailure::NotExecutable,
        ExecFailure::NoInterpreter,
        ExecFailure::Cwd,
        ExecFailure::Resources,
    ];
    frames.extend(failures.map(|which| FromGuest::ExecFailed { errno: 2, which }));
    let ends =
        [End::Code(0), End::Code(255), End::Signal { number: 9, core: false }, End::Signal { number: 64, core: true }];
    frames.extend(ends.map(|end| FromGuest::Exited(Exited { end, utime_us: 1, stime_us: u64::MAX })));
    frames
}

/// An address that a frame of the guest can have.
fn address(frame: &FromGuest) -> Address {
    match frame {
        FromGuest::Started { .. } | FromGuest::ExecFailed { .. } | FromGuest::Exited(_) => {
            Address { channel: u16::MAX, request: u32::MAX }
        }
        FromGuest::Stopped(_) | FromGuest::Continued => Address { channel: 5, request: 0 },
        FromGuest::Pong => Address { channel: 0, request: 6 },
        FromGuest::Mounted(_)
        | FromGuest::Terminal
        | FromGuest::Posture(_)
        | FromGuest::Failed { .. }
        | FromGuest::Sockets(_)
        | FromGuest::Asking
        | FromGuest::Settled => Address::default(),
    }
}

/// All addresses of one kind or another.
const ADDRESSES: [Address; 4] = [
    Address { channel: 0, request: 0 },
    Address { channel: 0, request: 1 },
    Address { channel: 1, request: 0 },
    Address { channel: 1, request: 1 },
];

#[test]
fn every_frame_is_read_as_it_was_written_and_waits_until_it_is_whole() {
    for frame in every_frame() {
        let at = address(&frame);
        let mut bytes = [0; MAX_OWN];
        let len = frame.encode(at, &mut bytes).unwrap();
        for cut in 0..len {
            assert_eq!(first(&bytes[..cut]), Ok(None));
            assert_eq!(frame.encode(at, &mut [0; MAX_OWN][..cut]), None);
        }
        let (raw, read) = first(&bytes).unwrap().unwrap();
        assert_eq!((raw.at, read), (at, len));
        assert_eq!(FromGuest::decode(&raw), Ok(frame));
    }
}

fn small_frames() -> [ToGuest<'static>; 7] {
    let size = Size { rows: 9, cols: 8 };
    [
        ToGuest::Mapped,
        ToGuest::Filled,
        ToGuest::Go,
        ToGuest::Signal(15),
        ToGuest::Resize(size),
        ToGuest::Kill,
        ToGuest::Ping,
    ]
}

#[test]
fn what_the_supervisor_says_is_read_as_it_was_written() {
    for frame in small_frames() {
        let at = Address { channel: 0, request: u32::from(frame.asks()) };
        let mut bytes = [0; 64];
        frame.encode(at, &mut bytes).unwrap();
        let (raw, _) = first(&bytes).unwrap().unwrap();
        assert_eq!((ToGuest::decode(&raw), raw.at), (Ok(frame), at));
    }
}

/// What a frame's kind does not have is neither written nor read: an answer without a request, a question about a program
/// that is not there.
#[test]
fn a_frame_has_the_channel_and_the_request_that_its_kind_has() {
    let refused = |kind, payload: &[u8], at: Address| {
        let raw = Raw { kind, at, payload };
        let told = FromGuest::decode(&raw).err();
        let said = ToGuest::decode(&raw).err();
        [told, said].map(|error| matches!(error, Some(FrameError::Channel(_) | FrameError::Request(_))))
    };
    for frame in every_frame() {
        let fits = address(&frame);
        let mut bytes = [0; MAX_OWN];
        let len = frame.encode(fits, &mut bytes).unwrap();
        let (payload, kind) = (&bytes[12..len], bytes[5]);
        for at in ADDRESSES {
            let good = (fits.channel != 0 || at.channel == 0) && (fits.request == 0) == (at.request == 0);
            assert_eq!(frame.encode(at, &mut [0; MAX_OWN]).is_some(), good, "{frame:?} {at:?}");
            assert_eq!(refused(kind, payload, at)[0], !good, "{frame:?} {at:?}");
        }
    }
    for frame in small_frames() {
        let own = Address { channel: 0, request: u32::from(frame.asks()) };
        let mut bytes = [0; 64];
        let len = frame.encode(own, &mut bytes).unwrap();
        for at in ADDRESSES {
            let any_channel = matches!(frame, ToGuest::Signal(_));
            let good = (any_channel || at.channel == 0) && frame.asks() == (at.request != 0);
            assert_eq!(frame.encode(at, &mut [0; 64]).is_some(), good, "{frame:?} {at:?}");
            assert_eq!(refused(bytes[5], &bytes[12..len], at)[1], !good, "{frame:?} {at:?}");
        }
    }
    for at in ADDRESSES {
        assert_eq!(start(&["true"]).encode(at).is_some(), at.channel == 1 && at.request == 1, "{at:?}");
    }
}

const AT: Address = Address { channel: 1, request: 2 };

fn start(argv: &[&str]) -> OwnedStart {
    OwnedStart { argv: argv.iter().map(|text| c(text)).collect(), env: vec![c("A=B"), c("")], cwd: c("/tmp") }
}

#[test]
fn a_start_is_read_as_it_was_written_and_not_without_a_program_or_when_it_is_too_long() {
    let owned = start(&["sh", "-c", ""]);
    let bytes = owned.encode(AT).unwrap();
    for cut in 0..bytes.len() {
        assert_eq!(first(&bytes[..cut]), Ok(None));
    }
    let (raw, len) = first(&bytes).unwrap().unwrap();
    assert_eq!((raw.at, len), (AT, bytes.len()));
    let ToGuest::Start(read) = ToGuest::decode(&raw).unwrap() else { panic!("no start") };
    let argv: Vec<CString> = read.argv.iter().map(CString::from).collect();
    let env: Vec<CString> = read.env.iter().map(CString::from).collect();
    assert_eq!(OwnedStart { argv, env, cwd: CString::from(read.cwd) }, owned);
    assert_eq!(start(&[]).encode(AT), None);
    // Three lists' heads and the longest text that still fits.
    let room = |owned: &OwnedStart| MAX_FRAME - owned.encode(AT).unwrap().len();
    let longest = "x".repeat(room(&start(&[""])));
    assert_eq!(start(&[&longest]).encode(AT).unwrap().len(), MAX_FRAME);
    assert_eq!(start(&[&format!("{longest}x")]).encode(AT), None);
    // As many texts as fit have a place in the guest's tables.
    let most = vec![""; MAX_TEXTS + 1];
    assert_eq!(OwnedStart { env: Vec::new(), cwd: c(""), ..start(&most) }.encode(AT), None);
}

#[test]
fn a_start_that_is_cut_or_longer_or_has_no_program_is_malformed() {
    let bytes = start(&["sh", "-c", ":"]).encode(AT).unwrap();
    let decode = |payload: &[u8]| ToGuest::decode(&Raw { kind: 8, at: AT, payload }).err();
    let payload = &bytes[12..];
    for cut in 0..payload.len() {
        assert_eq!(decode(&payload[..cut]), Some(FrameError::Payload(8)), "{cut}");
    }
    assert_eq!(decode(&[payload, &[0]].concat()), Some(FrameError::Payload(8)));
    // Two empty lists and an empty text.
    let nothing = [&[0; 16][..], &[1, 0, 0, 0, 0]].concat();
    assert_eq!(decode(&nothing), Some(FrameError::Payload(8)));
    assert_eq!(decode(payload), None);
}

#[test]
fn a_frame_that_is_too_long_or_of_another_version_is_an_error_at_once() {
    let header = |len: u32, version: u8| [&len.to_le_bytes()[..], &[version, 1, 0, 0, 0, 0, 0, 0]].concat();
    let most = u32::try_from(MAX_PAYLOAD).unwrap();
    assert_eq!(first(&header(most, VERSION)), Ok(None));
    assert_eq!(first(&header(most + 1, VERSION)), Err(FrameError::TooLong(most + 1)));
    assert_eq!(first(&header(0, VERSION - 1)), Err(FrameError::Version(VERSION - 1)));
    assert_eq!(first(&header(0, VERSION + 1)), Err(FrameError::Version(VERSION + 1)));
}

#[test]
fn a_payload_with_a_byte_too_many_or_a_value_that_nobody_writes_is_an_error() {
    let none = Address::default();
    let decode = |kind, payload: &[u8]| FromGuest::decode(&Raw { kind, at: none, payload });
    assert_eq!(decode(9, &[]), Ok(FromGuest::Continued));
    assert_eq!(decode(9, &[0]), Err(FrameError::Payload(9)));
    assert_eq!(decode(0, &[]), Err(FrameError::Kind(0)));
    assert_eq!(decode(4, &[99, 0, 0, 0, 0, 0, 0, 0, 0]), Err(FrameError::Payload(4)));
    let signal = |number| ToGuest::decode(&Raw { kind: 4, at: none, payload: &[number] }).err();
    assert_eq!((signal(0), signal(65)), (Some(FrameError::Payload(4)), Some(FrameError::Payload(4))));
}

#[test]
fn steps_have_distinct_names_and_numbers_in_order() {
    let names: std::collections::BTreeSet<_> = Step::ALL.iter().map(|step| step.name()).collect();
    assert_eq!(names.len(), Step::ALL.len());
    assert!(Step::ALL.is_sorted());
    assert!(Step::ALL.iter().all(|step| Step::from_number(step.number()) == Some(*step)));
    assert_eq!((Step::from_number(0), Step::from_number(200)), (None, None));
}

#[test]
fn the_embedded_program_is_small_static_and_needs_no_loader() {
    let elf = guest::ELF;
    assert!(elf.len() < 72 * 1024, "{} bytes", elf.len());
    let number = |at: usize, len: usize| {
        elf[at..at + len].iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
    };
    assert_eq!((&elf[..4], number(16, 2)), (&b"\x7fELF"[..], 2), "an executable at a fixed address");
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let kinds: Vec<usize> = (0..count).map(|at| number(table + at * size, 4)).collect();
    // PT_DYNAMIC and PT_INTERP.
    assert!(!kinds.contains(&2) && !kinds.contains(&3), "{kinds:?}");
    for at in (0..count).filter(|at| kinds[*at] == 1) {
        assert_ne!(number(table + at * size + 4, 4) & 3, 3, "a segment is writable and executable");
    }
}

#[test]
fn the_payload_is_locked_to_the_versions_of_the_workspace() {
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let (inner, outer) = (read("payload/lock.in"), read("../../Cargo.lock"));
    let packages = |text: &str| text.split("[[package]]").skip(1).map(str::to_owned).collect::<Vec<_>>();
    let version = |package: &String| {
        let field = |name: &str| package.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        (field("name = ").unwrap(), field("version = ").unwrap())
    };
    let outer: Vec<_> = packages(&outer).iter().map(version).collect();
    for package in packages(&inner).iter().map(version).filter(|(name, _)| !name.contains("payload")) {
        assert!(outer.contains(&package), "{package:?}: copy the version of the workspace's lock file");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_config_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let with_start = [b"FHgc\x01\0\0\0", &bytes[..]].concat();
        for bytes in [&bytes, &with_start] {
            walk(bytes);
        }
    }

    #[test]
    fn no_change_of_a_good_config_makes_it_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = everything().encode();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        walk(&bytes);
    }

    #[test]
    fn no_bytes_make_a_frame_panic(
        kind in 0_u8..13,
        at in prop::sample::select(&ADDRESSES[..]),
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let (length, channel, request) = (u32::try_from(bytes.len()).unwrap(), at.channel, at.request);
        let header = [&length.to_le_bytes()[..], &[VERSION, kind], &channel.to_le_bytes(), &request.to_le_bytes()];
        let whole = [&header.concat()[..], &bytes].concat();
        for bytes in [&bytes, &whole] {
            if let Ok(Some((raw, len))) = first(bytes) {
                prop_assert!(len <= bytes.len());
                // What can be read can be written again, and is then the same.
                if let Ok(frame) = FromGuest::decode(&raw) {
                    let mut again = [0; MAX_OWN];
                    let length = frame.encode(raw.at, &mut again).unwrap();
                    prop_assert_eq!(&again[..length], &bytes[..len]);
                }
                if let Ok(frame) = ToGuest::decode(&raw) {
                    let mut again = [0; MAX_OWN];
                    let length = frame.encode(raw.at, &mut again).unwrap();
                    prop_assert_eq!(&again[..length], &bytes[..len]);
                }
            }
        }
    }
    #[test]
    fn any_texts_of_a_start_come_through(
        argv in proptest::collection::vec("[^\\x00]{0,40}", 1..20),
        env in proptest::collection::vec("[^\\x00]{0,40}", 0..20),
        cwd in "[^\\x00]{0,40}",
        channel in 1_u16..,
        request in 1_u32..,
    ) {
        let texts = |texts: &[String]| texts.iter().map(|text| c(text)).collect::<Vec<_>>();
        let owned = OwnedStart { argv: texts(&argv), env: texts(&env), cwd: c(&cwd) };
        let bytes = owned.encode(Address { channel, request }).unwrap();
        let (raw, _) = first(&bytes).unwrap().unwrap();
        prop_assert_eq!(raw.at, Address { channel, request });
        let Ok(ToGuest::Start(read)) = ToGuest::decode(&raw) else { panic!("no start") };
        let read = OwnedStart {
            argv: read.argv.iter().map(CString::from).collect(),
            env: read.env.iter().map(CString::from).collect(),
            cwd: CString::from(read.cwd),
        };
        prop_assert_eq!(read, owned);
    }

    #[test]
    fn no_change_of_a_good_start_is_read_as_something_that_nobody_writes(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = start(&["sh", "-c", "exit 3"]).encode(AT).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(Some((raw, len))) = first(&bytes) && let Ok(frame) = ToGuest::decode(&raw) {
            let mut again = [0; MAX_OWN];
            let length = frame.encode(raw.at, &mut again).unwrap();
            prop_assert_eq!(&again[..length], &bytes[..len]);
        }
    }
}

/// Reads all that a config has.
fn walk(bytes: &[u8]) {
    if let Ok(view) = View::new(bytes) {
        let items = view.sources.iter().count()
            + view.ops.iter().count()
            + view.rlimits.iter().count()
            + view.probes.iter().count()
            + view.argv.iter().count()
            + view.env.iter().count()
            + view.search.iter().count();
        assert!(items <= bytes.len());
    }
}
