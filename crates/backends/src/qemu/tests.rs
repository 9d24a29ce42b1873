//! Prepared machines over a real emulator; skipped by name where the host has none, or no prepared kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use agent::machine::Begun;
use policy::Control;

use super::*;

/// An emulator that was let go, with what it was prepared of.
type Up = (Box<dyn crate::Running>, start::Rest, OwnedFd, OwnedFd);

struct Place {
    folder: tempfile::TempDir,
    host: Capabilities,
    plan: Plan,
    runs: std::cell::Cell<u32>,
}

impl Place {
    fn new() -> Option<Self> {
        let host = Capabilities::probe();
        if let Err(missing) = host.machine() {
            eprintln!("skip: prepared machines: {}", missing.why);
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        for name in ["root", "machines"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let caller = policy::Caller { dir: PathBuf::from("/"), home: None, profiles: vec!["default".to_owned()] };
        let mut layers = policy::Layers::new(caller);
        let root = folder.path().join("root");
        let text = format!("version = 1\ntier = \"vm\"\nfs.root = \"dir:{}\"\n", root.display());
        let none = |_: &Path| Err("no such file".to_owned());
        layers.document("case", &text, policy::Format::Toml, Path::new("/"), &none);
        let loaded = layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let policy = loaded.policy_on(Tier::Vm).into_owned();
        let answers = |clause: &Clause<'_>| Qemu.support(clause, &policy, &host);
        let on = policy::Candidate { tier: Tier::Vm, backend: "qemu", answers: &answers };
        let plan = policy::make_plan(&loaded, on).unwrap();
        Some(Self { folder, host, plan, runs: std::cell::Cell::new(0) })
    }

    /// An emulator, as far as *go*.
    fn up(&self) -> Up {
        let number = self.runs.get();
        self.runs.set(number + 1);
        let tmp = self.folder.path().join(format!("run{number}"));
        std::fs::create_dir(&tmp).unwrap();
        let launch = Launch {
            run: format!("prepared{}x{number}", std::process::id()),
            argv: vec!["true".into()],
            program: None,
            show: Vec::new(),
            files: vec![("given".to_owned(), b"content".to_vec())],
            trust: None,
            git: Vec::new(),
            protect: Vec::new(),
            covered: Vec::new(),
            laid: false,
            no_links: false,
            passed: BTreeMap::new(),
            forced: Vec::new(),
            stdio: crate::Stdio::NoInput,
            term: None,
            tmp: Some(tmp),
            cache: None,
            machines: Some(self.folder.path().join("machines")),
            #[cfg(feature = "mutation")]
            without: Vec::new(),
            #[cfg(feature = "mutation")]
            instead: Vec::new(),
        };
        let prepared = prepare::prepare(&self.plan, &self.host, &launch).unwrap();
        let armed: Vec<Control> =
            prepared.outer.controls().filter(|control| matches!(control, Control::Watch(_))).cloned().collect();
        let started = start::start(prepared, &self.host).unwrap();
        let (emulator, rest, (orders, line, _errors)) = started.emulated(&armed).unwrap();
        (emulator, rest, orders, line)
    }

    /// A machine of a run of its own, and whether it begins with the memory of another.
    fn begun(&self) -> (Begun, bool) {
        let (emulator, mut rest, orders, line) = self.up();
        let from_memory = rest.kept.is_some();
        let (_link, begun) = up::begun(&mut rest, orders, line).unwrap();
        emulator.end();
        (begun, from_memory)
    }

    fn kept(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("machines")).unwrap().count()
    }
}

/// One after the other over one emulator's machines, since each boot takes a whole processor for seconds.
#[test]
fn prepared_machines() {
    let Some(place) = Place::new() else { return };
    have_random_numbers_of_their_own(&place);
    answer_nobody_before(&place);
    are_left_alone_where_they_are_not_whole(&place);
}

/// The attack, that machines which began with the same memory have the same random numbers, works as long as they have taken no
/// bytes of their own, and not afterwards. `FUMEHOOD_RESTORES` says how many begin so; decision 0075 has what 200 said.
fn have_random_numbers_of_their_own(place: &Place) {
    let wanted = std::env::var_os("FUMEHOOD_RESTORES").map(|text| text.to_str().unwrap().parse().unwrap());
    let (first, from_memory) = place.begun();
    assert!(!from_memory);
    assert_eq!(place.kept(), 1, "the first one boots, and is kept as it was when it waited");
    let mut all = vec![first];
    for _ in 0..wanted.unwrap_or(3) {
        let (next, from_memory) = place.begun();
        assert!(from_memory, "it is none of them");
        all.push(next);
    }
    let before: BTreeSet<_> = all.iter().map(|begun| begun.before).collect();
    let after: BTreeSet<_> = all.iter().map(|begun| begun.after).collect();
    println!("{} machines with one memory: {} random numbers before, {} after", all.len(), before.len(), after.len());
    // The kernel renews its key by itself now and then, also just before: that some are the same shows that this is no rule.
    assert!(before.len() < all.len(), "{before:?}");
    assert_eq!(after.len(), all.len(), "{after:?}");
    assert!(before.is_disjoint(&after));
    assert_eq!(place.kept(), 1);
}

/// One that waits answers no request but the one that brings random bytes, and that one is answered as before.
fn answer_nobody_before(place: &Place) {
    let (emulator, mut rest, orders, line) = place.up();
    let mut link = link::Link::new(line).unwrap();
    up::waiting(&mut rest, orders, &mut link).unwrap();
    // The first of the numbers is the one that brings the bytes: this one has none.
    let refused = inside::Inside::read(&mut link).unwrap_err();
    assert!(refused.contains("waits for random bytes of its own"), "{refused}");
    emulator.end();
    let (emulator, mut rest, orders, line) = place.up();
    let (mut link, _begun) = up::begun(&mut rest, orders, line).unwrap();
    let inside = inside::Inside::read(&mut link).unwrap();
    assert_eq!(inside.status.uid, [1000; 4]);
    assert!(inside.mount(agent::machine::OURS).is_ok(), "the run's own files are shown");
    emulator.end();
}

/// One that was changed, or of which a part is missing, is not used: the machine boots, and is kept in its place.
fn are_left_alone_where_they_are_not_whole(place: &Place) {
    let only = std::fs::read_dir(place.folder.path().join("machines")).unwrap().next().unwrap().unwrap().path();
    std::fs::OpenOptions::new().write(true).open(&only).unwrap().set_len(1 << 20).unwrap();
    let (emulator, mut rest, orders, line) = place.up();
    assert!(rest.kept.is_none(), "it boots");
    up::begun(&mut rest, orders, line).unwrap();
    emulator.end();
    let (emulator, rest, ..) = place.up();
    assert!(rest.kept.is_some(), "and is kept");
    emulator.end();
}
