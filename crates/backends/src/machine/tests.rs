//! Prepared machines over a real emulator; skipped by name where the host has none, or no prepared kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::machine::SeedReply;
use policy::Control;

use super::*;
use crate::{Memory, Remembered, Running as _};

/// Who reads it has the kernel draw random bytes.
const DRAWS: &str = "/proc/sys/kernel/random/uuid";

/// An emulator that was let go, with what it was prepared of.
type Up = (Box<dyn crate::Running>, start::Rest, OwnedFd, OwnedFd);

struct FsSize {
    folder: tempfile::TempDir,
    host: Capabilities,
    plan: Plan,
    runs: std::cell::Cell<u32>,
}

impl FsSize {
    fn new() -> Option<Self> {
        let host = Capabilities::probe();
        if let Err(missing) = host.machine(Emulator::Qemu) {
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
        let answers = |clause: ClauseId| Machines(Emulator::Qemu).support(clause, &policy, &host);
        let on = policy::Candidate { tier: Tier::Vm, backend: "qemu", answers: &answers };
        let plan = policy::make_plan(&loaded, on).unwrap();
        Some(Self { folder, host, plan, runs: std::cell::Cell::new(0) })
    }

    /// An emulator, as far as *go*.
    fn up(&self) -> Up {
        self.up_with(false, None).unwrap()
    }

    /// The same; of a live sandbox, or of one that goes on from what another one was.
    fn up_with(&self, live: bool, memory: Option<Arc<Remembered>>) -> Result<Up, StartError> {
        let number = self.runs.get();
        self.runs.set(number + 1);
        let tmp = self.folder.path().join(format!("run{number}"));
        std::fs::create_dir(&tmp).unwrap();
        let program = live.then_some(crate::OwnProgram::Bytes(agent::ELF));
        let stdio = if live { crate::Stdio::Socket } else { crate::Stdio::NoInput };
        let launch = Launch { program, stdio, memory, ..self.launch(Some(tmp)) };
        let prepared = prepare::prepare(&self.plan, &self.host, &launch)?;
        let armed: Vec<Control> =
            prepared.outer.controls().filter(|control| matches!(control, Control::Watch(_))).cloned().collect();
        let started = start::start(prepared, &self.host).unwrap();
        let (emulator, rest, lines, _errors) = started.emulated(&armed).unwrap();
        let start::Lines::Sockets(orders, line) = lines else { panic!("QEMU has sockets") };
        Ok((emulator, rest, orders, line))
    }

    /// Of a run of one program, in this folder.
    fn launch(&self, tmp: Option<PathBuf>) -> Launch {
        let (number, place) = (self.runs.get(), self.folder.path().file_name().unwrap().to_str().unwrap());
        Launch {
            // Other tests run beside it.
            run: format!("prepared{}x{number}", place.trim_start_matches('.')),
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
            tmp,
            cache: None,
            machines: Some(self.folder.path().join("machines")),
            memory: None,
            #[cfg(feature = "mutation")]
            mutation: crate::backend::Mutation::default(),
        }
    }

    /// A machine of a run of its own, and whether it begins with the memory of another.
    fn begun(&self) -> (SeedReply, bool) {
        let (emulator, mut rest, orders, line) = self.up();
        let from_memory = rest.kept.is_some();
        let (_monitor, _link, begun) =
            up::begun(&mut rest, start::Lines::Sockets(orders, line), emulator.pid()).unwrap();
        emulator.end();
        (begun, from_memory)
    }

    fn kept(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("machines")).unwrap().count()
    }
}

/// What is prepared of a machine by a plan in which it runs on KVM.
fn on_kvm(place: &FsSize) -> Result<prepare::Prepared, StartError> {
    use policy::control::{Accelerator, Controls, Machine};
    let on_kvm = |control: &Control| {
        let Control::Machine(Machine::Emulator { program, version, accelerator: _, against }) = control else {
            return control.clone();
        };
        let (version, against) = (version.clone(), *against);
        Control::Machine(Machine::Emulator { program: *program, version, accelerator: Accelerator::Kvm, against })
    };
    let mut plan = place.plan.clone();
    for entry in &mut plan.entries {
        let mut all = entry.controls.iter().map(on_kvm).collect::<Vec<_>>().into_iter();
        entry.controls = Controls::new(all.next().unwrap(), all);
    }
    prepare::prepare(&plan, &place.host, &place.launch(None))
}

#[test]
fn what_was_planned_on_kvm_starts_on_nothing_else() {
    let Some(place) = FsSize::new() else { return };
    let open = place.host.device(policy::value::Device::Kvm);
    match (open, on_kvm(&place)) {
        (Err(missing), Err(StartError::Kvm { why, .. })) => assert!(why.ends_with(&missing.why), "{why}"),
        (Ok(_), Ok(prepared)) => {
            let words = prepared.words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ");
            assert!(words.contains("-accel kvm -cpu host,vmx=off,svm=off "), "{words}");
            assert!(prepared.outer.controls().any(|control| matches!(control, Control::Device { .. })));
        }
        (open, prepared) => panic!("{open:?}: {:?}", prepared.map(|prepared| prepared.words)),
    }
    let prepared = prepare::prepare(&place.plan, &place.host, &place.launch(None)).unwrap();
    assert!(prepared.words.iter().any(|word| word.to_str().unwrap().starts_with("tcg,")));
    assert!(!prepared.outer.controls().any(|control| matches!(control, Control::Device { .. })));
}

/// One after the other over one emulator's machines, since each boot takes a whole processor for seconds.
#[test]
fn prepared_machines() {
    let Some(place) = FsSize::new() else { return };
    have_random_numbers_of_their_own(&place);
    answer_nobody_before(&place);
    are_left_alone_where_they_are_not_whole(&place);
}

/// A live machine that waits for its supervisor, and what leads into it.
fn lives(place: &FsSize) -> (start::Rest, Box<dyn crate::Running>, monitor::Monitor, link::Link, SeedReply) {
    let (emulator, mut rest, orders, line) = place.up_with(true, None).unwrap();
    let (monitor, mut link, begun) = up::begun(&mut rest, start::Lines::Sockets(orders, line), emulator.pid()).unwrap();
    inside::Inside::read(&mut link, &[]).unwrap();
    (rest, emulator, monitor.unwrap(), link, begun)
}

/// Has the agent's kernel draw random bytes, and tells them; none where the agent does not answer.
fn drawn(agent: &mut link::Link) -> Option<Vec<u8>> {
    let draws = agent::words::Request::Read { path: DRAWS.to_owned(), offset: 0, length: None };
    agent.ask::<()>(&draws, Duration::from_secs(5)).ok().map(|((), bytes)| bytes)
}

/// One that goes on from what was written.
fn copy_of(place: &FsSize, memory: &Memory, state: &Path) -> Result<Up, StartError> {
    let open = |path: &Path| std::fs::File::open(path).unwrap();
    let (kind, machine_id) = (memory.kind.clone(), memory.machine_id.clone());
    let remembered = Remembered { kind, state: open(state), root: open(&memory.root), machine_id };
    place.up_with(true, Some(Arc::new(remembered)))
}

/// A disk that is full.
struct Full;

impl std::io::Write for Full {
    fn write(&mut self, _bytes: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The attack, that copies of a live machine have the same random numbers, works for as long as they have taken no bytes of their
/// own; nothing of the caller's runs in them before that.
#[test]
fn copies_of_a_live_machine_have_random_numbers_of_their_own() {
    let Some(place) = FsSize::new() else { return };
    let (rest, emulator, monitor, link, first) = lives(&place);
    let mut running = running::Running::live(emulator, (link, Some(monitor)), rest.origin).unwrap();
    let socket = running.take_streams().socket.unwrap();
    sys::channel::set_nonblocking(&socket).unwrap();
    let mut agent = link::Link::new(socket).unwrap();
    // Each copy draws from the same key: it is as good as new, and the kernel makes no other one by itself for seconds.
    drawn(&mut agent).unwrap();
    let full = running.remember(&mut Full).unwrap_err();
    assert!(full.contains("could not be written down"), "{full}");
    drawn(&mut agent).unwrap();
    let path = place.folder.path().join("state");
    let memory = running.remember(&mut std::fs::File::create_new(&path).unwrap()).unwrap();
    assert_eq!(memory.bytes, path.metadata().unwrap().len());
    drawn(&mut agent).unwrap();
    let mut all = vec![first];
    for _ in 0..3 {
        let (emulator, mut rest, orders, line) = copy_of(&place, &memory, &path).unwrap();
        let (_monitor, mut link, begun) =
            up::begun(&mut rest, start::Lines::Sockets(orders, line), emulator.pid()).unwrap();
        // The agent answers, and has nobody beside it before *go*.
        inside::Inside::read(&mut link, &[]).unwrap();
        up::gone_on(&mut link).unwrap();
        drawn(&mut link).unwrap();
        emulator.end();
        all.push(begun);
    }
    let before: BTreeSet<_> = all.iter().skip(1).map(|begun| begun.before).collect();
    let after: BTreeSet<_> = all.iter().map(|begun| begun.after).collect();
    println!("copies of a live machine: {} random numbers before, {} after", before.len(), after.len());
    assert!(before.len() < 3, "the kernel renews its key by itself now and then, and not always: {before:?}");
    assert_eq!(after.len(), all.len(), "{after:?}");
    assert!(before.is_disjoint(&after));
    let (emulator, mut rest, orders, line) = copy_of(&place, &memory, &path).unwrap();
    let mut link = link::Link::new(line).unwrap();
    let _monitor = up::waiting(&mut rest, orders, &mut link).unwrap();
    assert_eq!(drawn(&mut link), None, "nobody inside answers before it has bytes of its own");
    emulator.end();
    let other = copy_of(&place, &Memory { kind: "another".to_owned(), ..memory }, &path).unwrap_err();
    assert!(matches!(other, StartError::OtherMachine), "{other}");
    Box::new(running).end();
}

/// The control: where nobody stops what is inside, it goes on in each copy at once, and draws what the others draw.
#[test]
fn copies_in_which_nothing_stands_still_share_their_random_numbers() {
    let Some(place) = FsSize::new() else { return };
    let (rest, emulator, mut monitor, mut link, _begun) = lives(&place);
    drawn(&mut link).unwrap();
    let path = place.folder.path().join("state");
    let mut file = std::fs::File::create_new(&path).unwrap();
    let written = up::written(&mut monitor, |state| machine_cache::hashed(state, &mut file, u64::MAX)).unwrap();
    let live::Origin { kind, root, machine_id, .. } = rest.origin;
    let (digest, bytes) = written.unwrap();
    let memory = Memory { kind, digest, bytes, root, machine_id };
    let mut all = Vec::new();
    for _ in 0..3 {
        let (emulator, mut rest, orders, line) = copy_of(&place, &memory, &path).unwrap();
        let mut link = link::Link::new(line).unwrap();
        let _monitor = up::waiting(&mut rest, orders, &mut link).unwrap();
        all.push(drawn(&mut link).unwrap());
        emulator.end();
    }
    let different: BTreeSet<_> = all.iter().collect();
    println!("copies in which nothing stood still: {} random numbers of {}", different.len(), all.len());
    assert!(different.len() < all.len(), "{all:?}");
    emulator.end();
}

/// The attack, that machines which began with the same memory have the same random numbers, works as long as they have taken no
/// bytes of their own, and not afterwards. `FUMEHOOD_RESTORES` says how many begin so; decision 0075 has what 200 said.
fn have_random_numbers_of_their_own(place: &FsSize) {
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
fn answer_nobody_before(place: &FsSize) {
    let (emulator, mut rest, orders, line) = place.up();
    let mut link = link::Link::new(line).unwrap();
    let _monitor = up::waiting(&mut rest, orders, &mut link).unwrap();
    // The first of the numbers is the one that brings the bytes: this one has none.
    let refused = inside::Inside::read(&mut link, &[]).unwrap_err();
    assert!(refused.contains("waits for random bytes of its own"), "{refused}");
    emulator.end();
    let (emulator, mut rest, orders, line) = place.up();
    let (_monitor, mut link, _begun) =
        up::begun(&mut rest, start::Lines::Sockets(orders, line), emulator.pid()).unwrap();
    let inside = inside::Inside::read(&mut link, &[]).unwrap();
    assert_eq!(inside.status.uid, [1000; 4]);
    assert!(inside.mount(agent::machine::OURS).is_ok(), "the run's own files are shown");
    emulator.end();
}

/// One that was changed, or of which a part is missing, is not used: the machine boots, and is kept in its place.
fn are_left_alone_where_they_are_not_whole(place: &FsSize) {
    let only = std::fs::read_dir(place.folder.path().join("machines")).unwrap().next().unwrap().unwrap().path();
    std::fs::OpenOptions::new().write(true).open(&only).unwrap().set_len(1 << 20).unwrap();
    let (emulator, mut rest, orders, line) = place.up();
    assert!(rest.kept.is_none(), "it boots");
    up::begun(&mut rest, start::Lines::Sockets(orders, line), emulator.pid()).unwrap();
    emulator.end();
    let (emulator, rest, ..) = place.up();
    assert!(rest.kept.is_some(), "and is kept");
    emulator.end();
}
