//! The promise, by construction: whatever one control of a plan is left out of a start, the start fails before *go*.
//!
//! Each plan is first started whole, so that a failure below comes from the control that is missing and from nothing else.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use backends::{Capabilities, Launch, Protect, StartError, Stdio};
use policy::value::{Tier, WorkspaceMode};
use policy::{Caller, Candidate, Clause, Control, Format, Layers, Plan};

/// A policy that reaches some of the controls, and who starts it.
struct Case {
    name: &'static str,
    root: bool,
    terminal: bool,
    text: &'static str,
}

/// Together they have every control but those of [`NOT_HERE`].
const CASES: &[Case] = &[
    Case {
        name: "container, overlay, every limit",
        root: true,
        terminal: false,
        // Control groups v1 hold writes against mistakes alone.
        text: r#"
            prefer = ["limits.io_write"]
            workspace = { path = "@/work", mode = "overlay" }
            [fs]
            read = ["@/read"]
            hide = ["**/.env"]
            [limits]
            wall = "20s"
            cpu_time = "10s"
            cpus = 1.0
            cpuset = "0"
            memory = "128M"
            pids = 16
            open_files = 64
            file_size = "8M"
            disk = "40M"
            files = 4000
            output = "1M"
            io_read = "50M/s"
            io_write = "50M/s"
            warn = { cpu_percent = 80, for = "2s" }
            kill = { cpu_percent = 95, for = "10s" }
            [env]
            set = { A = "b" }
            [syscalls]
            allow = ["ptrace"]
            deny = ["fchmod"]
        "#,
    },
    Case {
        name: "container, copy, only executables, terminal",
        root: true,
        terminal: true,
        text: r#"
            workspace = { path = "@/work", mode = "copy" }
            fs.exec = ["/bin/true"]
            process = { tty = true, hostname = "elsewhere", umask = "0027" }
            net.mode = "loopback"
        "#,
    },
    Case {
        name: "container, hosts by name",
        root: true,
        terminal: false,
        text: r#"
            net = { mode = "allow", allow = ["a.test", "b.test:8443"], proxy = "http://127.0.0.1:3128" }
        "#,
    },
    Case {
        name: "container, written directly",
        root: true,
        terminal: false,
        text: r#"
            prefer = ["limits.disk", "limits.files"]
            workspace = { path = "@/work", mode = "rw" }
            fs = { write = ["@/write"], sockets = "own" }
            limits.file_size = "8M"
        "#,
    },
    Case {
        name: "container, ordinary user",
        root: false,
        terminal: false,
        text: r#"
            prefer = ["limits.memory", "limits.pids"]
            workspace = { path = "@/work", mode = "overlay" }
            fs.read = ["@/read"]
        "#,
    },
    Case {
        name: "gvisor, copy",
        root: true,
        terminal: false,
        text: r#"
            tier = "gvisor"
            workspace = { path = "@/work", mode = "copy" }
            fs.read = ["@/read"]
            limits = { cpu_time = "10s", cpus = 1.0, memory = "256M" }
            syscalls = { allow = ["ptrace"], deny = ["fchmod"] }
        "#,
    },
    Case {
        name: "crun, copy, every limit",
        root: true,
        terminal: true,
        text: r#"
            backend = "crun"
            workspace = { path = "@/work", mode = "copy" }
            process = { tty = true, hostname = "elsewhere", umask = "0027" }
            fs.read = ["@/read"]
            limits = { cpu_time = "10s", cpus = 1.0, cpuset = "0", memory = "128M", pids = 16, open_files = 64 }
            syscalls = { allow = ["ptrace"], deny = ["fchmod"] }
        "#,
    },
    Case {
        name: "crun, overlay",
        root: true,
        terminal: false,
        text: r#"
            backend = "crun"
            workspace = { path = "@/work", mode = "overlay" }
            fs.hide = ["**/.env"]
        "#,
    },
    Case {
        name: "crun, hosts by name",
        root: true,
        terminal: false,
        text: r#"
            backend = "crun"
            workspace = { path = "@/work", mode = "ro" }
            fs.exec = ["/bin/true"]
            net = { mode = "allow", allow = ["a.test", "b.test:8443"] }
        "#,
    },
    Case {
        name: "podman, copy, every limit",
        root: true,
        terminal: true,
        text: r#"
            backend = "podman"
            workspace = { path = "@/work", mode = "copy" }
            process = { tty = true, hostname = "elsewhere", umask = "0027" }
            fs.read = ["@/read"]
            limits = { cpu_time = "10s", cpus = 1.0, cpuset = "0", memory = "128M", pids = 16, open_files = 64 }
            syscalls = { allow = ["ptrace"], deny = ["fchmod"] }
        "#,
    },
    Case {
        name: "podman, overlay, hosts by name",
        root: true,
        terminal: false,
        text: r#"
            backend = "podman"
            workspace = { path = "@/work", mode = "overlay" }
            fs.hide = ["**/.env"]
            net = { mode = "allow", allow = ["a.test", "b.test:8443"] }
        "#,
    },
    Case {
        name: "process, copy",
        root: true,
        terminal: false,
        text: r#"
            tier = "process"
            workspace = { path = "@/work", mode = "copy" }
            fs.read = ["@/read"]
            limits.cpu_time = "10s"
        "#,
    },
    Case {
        name: "process, ordinary user, terminal",
        root: false,
        terminal: true,
        text: r#"
            tier = "process"
            workspace = { path = "@/work", mode = "ro" }
            prefer = ["limits.disk", "limits.files"]
            fs = { noexec = true, exec = ["/bin/true"], write = ["@/write"] }
            process.tty = true
        "#,
    },
];

/// Variants that no case above has, and why.
const NOT_HERE: &[(&str, &str)] = &[
    (
        "Device",
        "needs a node that a run may open: `fumehood/tests/cli/devices.rs` makes one, and has the run without it",
    ),
    ("Label", "needs AppArmor or SELinux on the host"),
    ("CommandGate", "judged before there is a plan: the command line's tests hold it"),
    ("Interpreter", "it is fumehood's own executable: `sandbox/tests/language.rs` starts others in its place"),
    ("ImageTree", "the sandbox reads the tree: the command line's tests hold it"),
    ("ToolGate", "a run has no channel to a tool"),
    ("Secrets", "the broker is started by the sandbox: its tests hold it"),
    ("HostNetwork", "no document asks for it: the broker's own plan has it, which every run with a broker starts"),
];

/// What the caller could change; a control that is missing is our own failure.
const fn blames_the_caller(error: &StartError) -> bool {
    matches!(
        error,
        StartError::Path { .. }
            | StartError::Special { .. }
            | StartError::NotADirectory { .. }
            | StartError::Unreadable(_)
            | StartError::Profile { .. }
            | StartError::Mapping { .. }
            | StartError::Layer { .. }
    )
}

/// The names of the variants of `Control`, as `Debug` writes them.
const VARIANTS: &[&str] = &[
    "Namespace",
    "Root",
    "ImageTree",
    "User",
    "Device",
    "Hostname",
    "NoInnerNamespaces",
    "NoNewPrivs",
    "NoCapabilities",
    "NoGroups",
    "KeptGroups",
    "RunMark",
    "NoDescriptors",
    "Undumpable",
    "Session",
    "Keyring",
    "SignalScope",
    "PayloadScope",
    "Umask",
    "Terminal",
    "Label",
    "Mount",
    "ReadOnlyOverlay",
    "Overlay",
    "Copy",
    "Tmpfs",
    "Hide",
    "Covered",
    "ProtectedMounts",
    "ProtectedAtApply",
    "NoexecMounts",
    "NoexecRules",
    "Executables",
    "Landlock",
    "Rule",
    "Filter",
    "Cgroup",
    "Rlimit",
    "EachFile",
    "Watch",
    "OwnKernel",
    "Environment",
    "LocalRoutes",
    "Inlets",
    "Broker",
    "Proxy",
    "Secrets",
    "HostNetwork",
    "Interpreter",
    "Audit",
    "CommandGate",
    "ToolGate",
];

/// The name of a control's variant: a new one does not compile until it is here, and in [`VARIANTS`].
const fn variant(control: &Control) -> &'static str {
    match control {
        Control::Namespace(_) => "Namespace",
        Control::Root(_) => "Root",
        Control::ImageTree(_) => "ImageTree",
        Control::User { .. } => "User",
        Control::Device { .. } => "Device",
        Control::Hostname(_) => "Hostname",
        Control::NoInnerNamespaces => "NoInnerNamespaces",
        Control::NoNewPrivs => "NoNewPrivs",
        Control::NoCapabilities => "NoCapabilities",
        Control::NoGroups => "NoGroups",
        Control::KeptGroups(_) => "KeptGroups",
        Control::RunMark => "RunMark",
        Control::NoDescriptors => "NoDescriptors",
        Control::Undumpable => "Undumpable",
        Control::Session => "Session",
        Control::Keyring => "Keyring",
        Control::SignalScope => "SignalScope",
        Control::PayloadScope => "PayloadScope",
        Control::Umask(_) => "Umask",
        Control::Terminal { .. } => "Terminal",
        Control::Label(_) => "Label",
        Control::Mount { .. } => "Mount",
        Control::ReadOnlyOverlay => "ReadOnlyOverlay",
        Control::Overlay { .. } => "Overlay",
        Control::Copy { .. } => "Copy",
        Control::Tmpfs { .. } => "Tmpfs",
        Control::Hide(_) => "Hide",
        Control::Covered(_) => "Covered",
        Control::ProtectedMounts => "ProtectedMounts",
        Control::ProtectedAtApply => "ProtectedAtApply",
        Control::NoexecMounts => "NoexecMounts",
        Control::NoexecRules(_) => "NoexecRules",
        Control::Executables { .. } => "Executables",
        Control::Landlock(_) => "Landlock",
        Control::Rule { .. } => "Rule",
        Control::Filter(_) => "Filter",
        Control::Cgroup { .. } => "Cgroup",
        Control::Rlimit { .. } => "Rlimit",
        Control::EachFile(_) => "EachFile",
        Control::Watch(_) => "Watch",
        Control::OwnKernel { .. } => "OwnKernel",
        Control::Environment => "Environment",
        Control::LocalRoutes { .. } => "LocalRoutes",
        Control::Inlets(_) => "Inlets",
        Control::Broker => "Broker",
        Control::Proxy => "Proxy",
        Control::Secrets => "Secrets",
        Control::HostNetwork => "HostNetwork",
        Control::Interpreter(_) => "Interpreter",
        Control::Machine(_) => "Machine",
        Control::InMachine(_) => "InMachine",
        Control::Audit => "Audit",
        Control::CommandGate => "CommandGate",
        Control::ToolGate => "ToolGate",
    }
}

fn is_file_size(control: &Control) -> bool {
    control.name() == "rlimit:fsize"
}

/// Runs `work` on a thread that has a supplementary group to lose.
fn as_root<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            rustix::thread::set_thread_groups(&[rustix::process::Gid::from_raw(4)]).unwrap();
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs `work` as uid 1000, with a supplementary group, on a thread of its own: the C library would change all threads.
fn as_user<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    use rustix::process::{DumpableBehavior, Gid, Uid};
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let (uid, gid) = (Uid::from_raw(1000), Gid::from_raw(1000));
            rustix::thread::set_thread_groups(&[Gid::from_raw(4)]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn plan(text: &str, host: &Capabilities) -> Plan {
    let profiles = sys::seccomp::profiles().iter().map(|name| (*name).to_owned()).collect();
    let caller = Caller { dir: PathBuf::from("/srv"), home: None, profiles };
    let mut layers = Layers::new(caller);
    let none = |_: &Path| Err("no such file".to_owned());
    layers.document("case", &format!("version = 1\n{text}\n"), Format::Toml, Path::new("/srv"), &none);
    let loaded = layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let answers: Vec<_> = backends::ALL
        .iter()
        .map(|backend| {
            let policy = loaded.policy_on(backend.tier()).into_owned();
            let ask = move |clause: &Clause<'_>| backend.support(clause, &policy, host);
            (backend.tier(), backend.name(), ask)
        })
        .collect();
    let candidates: Vec<Candidate<'_>> =
        answers.iter().map(|(tier, backend, ask)| Candidate { tier: *tier, backend, answers: ask }).collect();
    policy::choose(&loaded, &candidates).unwrap_or_else(|refusal| panic!("{}", refusal.to_text())).plan
}

/// A control that the supervisor holds itself.
fn is_ours(control: &Control) -> bool {
    matches!(control.evidence(), policy::control::Evidence::Armed(_))
}

/// Goes as far as *go* and ends the guest.
fn start(plan: &Plan, case: &Case, host: &Capabilities, folder: &Path, without: &[Control]) -> Result<(), StartError> {
    static RUNS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let tmp = folder.join(format!("run-{number}"));
    std::fs::create_dir(&tmp).unwrap();
    let protect = if plan.policy.workspace.mode == WorkspaceMode::Rw {
        vec![Protect::ReadOnly(".git".into())]
    } else {
        Vec::new()
    };
    let covers = plan.controls().any(|control| matches!(control, Control::Covered(_)));
    let grants = plan.policy.fs.read.iter().chain(&plan.policy.fs.write).filter(|_| covers);
    let covered = grants.map(|grant| policy::value::Grant {
        from: grant.from.join(".env"),
        to: grant.to.join(".env"),
        dangerous: false,
    });
    let launch = Launch {
        run: format!("mutation-{}-{number}", std::process::id()),
        argv: vec!["/bin/true".into()],
        program: None,
        show: Vec::new(),
        files: Vec::new(),
        trust: None,
        git: Vec::new(),
        protect,
        covered: covered.collect(),
        laid: false,
        passed: BTreeMap::new(),
        forced: Vec::new(),
        stdio: if case.terminal { Stdio::Terminal(24, 80) } else { Stdio::NoInput },
        term: None,
        tmp: (plan.tier == Tier::Process || backends::of(plan)?.wants_folder()).then(|| tmp.clone()),
        cache: None,
        machines: None,
        without: without.to_vec(),
    };
    let prepared = backends::of(plan)?.prepare(plan, host, &launch)?;
    if let Some(to) = prepared.copy_to() {
        std::fs::create_dir(to).unwrap();
    }
    let armed: Vec<Control> =
        plan.controls().filter(|control| is_ours(control) && !without.contains(control)).cloned().collect();
    let mut started = prepared.start(host)?;
    let layers = started.layers()?;
    if !layers.is_empty() && (plan.policy.workspace.mode == WorkspaceMode::Copy || started.waits()) {
        started.filled()?;
    }
    drop(layers);
    drop(started.sockets()?);
    started.verify(&armed).map(drop)
}

fn distinct(plan: &Plan) -> Vec<Control> {
    let mut all: Vec<Control> = Vec::new();
    for control in plan.controls() {
        if !all.contains(control) {
            all.push(control.clone());
        }
    }
    all
}

/// The variants that were left out one by one; what nobody noticed.
fn mutate(case: &Case, folder: &Path) -> (BTreeSet<&'static str>, Vec<String>) {
    std::os::unix::fs::chown(folder, Some(1000), Some(1000)).unwrap();
    for name in ["work", "work/.git", "read", "write"] {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(1000), Some(1000)).unwrap();
    }
    for name in ["read/.env", "write/.env"] {
        std::fs::write(folder.join(name), "hidden").unwrap();
    }
    let text = case.text.replace('@', folder.to_str().unwrap());
    let work = || {
        let host = Capabilities::probe();
        let plan = plan(&text, &host);
        start(&plan, case, &host, folder, &[]).unwrap_or_else(|e| panic!("{}: nothing is missing: {e:?}", case.name));
        let (mut seen, mut unnoticed) = (BTreeSet::new(), Vec::new());
        let all = distinct(&plan);
        for control in &all {
            seen.insert(variant(control));
            if !case.root && plan.tier == Tier::Process && *control == Control::NoCapabilities {
                // An ordinary user has none to begin with: seen to be missed as root alone.
                continue;
            }
            // Two clauses may ask for the same limit of a file: it is missing only where both are left out.
            let same: Vec<Control> = all
                .iter()
                .filter(|other| *other == control || is_file_size(other) && is_file_size(control))
                .cloned()
                .collect();
            match start(&plan, case, &host, folder, &same) {
                Ok(()) => unnoticed.push(format!("{}: nobody noticed that {control:?} is missing", case.name)),
                // As on a host that has none of them.
                Err(StartError::Namespaces { .. }) if variant(control) == "Namespace" => {}
                Err(error) if blames_the_caller(&error) => {
                    unnoticed.push(format!("{}: without {control:?} it is a refusal: {error:?}", case.name));
                }
                Err(_noticed) => {}
            }
        }
        (seen, unnoticed)
    };
    if case.root { as_root(work) } else { as_user(work) }
}

#[test]
fn a_start_without_any_one_control_of_its_plan_fails() {
    let (mut seen, mut unnoticed) = (BTreeSet::new(), Vec::new());
    // Where there is no `runsc`, `crun` or service of podman's its case is not run, and what it alone has is not expected.
    let runsc = Capabilities::probe().runsc().is_ok();
    let crun = Capabilities::probe().crun().is_ok();
    let podman = Capabilities::probe().podman().is_ok();
    let there = |case: &&Case| match case.name {
        name if name.starts_with("gvisor") => runsc,
        name if name.starts_with("crun") => crun,
        name if name.starts_with("podman") => podman,
        _ => true,
    };
    for case in CASES.iter().filter(there) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let (variants, missed) = mutate(case, folder.path());
        seen.extend(variants);
        unnoticed.extend(missed);
    }
    assert!(unnoticed.is_empty(), "{}", unnoticed.join("\n"));
    let expected: BTreeSet<&str> =
        VARIANTS.iter().copied().filter(|name| !NOT_HERE.iter().any(|(other, _)| other == name)).collect();
    let expected: BTreeSet<&str> = expected.into_iter().filter(|name| runsc || *name != "OwnKernel").collect();
    assert_eq!(seen, expected, "every variant is left out once");
}
