//! The promise, as whoever calls the product meets it: a run from which any one control of its plan was left out ends with exit code
//! 125 and says so, and its program never ran.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "what is left out is said")]

#[path = "../../../backends/tests/mutation/cases.rs"]
#[expect(dead_code, reason = "machines, each of whose runs boots one, are left to that test")]
mod cases;
#[path = "../../../backends/tests/mutation/variants.rs"]
#[expect(dead_code, reason = "what is left out is named by the program that leaves it out")]
mod variants;

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use cases::{CASES, Case};
use serde_json::Value;

/// One run.
#[derive(Debug)]
struct Told {
    code: Option<i32>,
    report: Value,
    /// Of the plan.
    controls: usize,
    /// What was left out.
    without: String,
    err: String,
}

/// The folder of a case, with its document.
fn scene(case: &Case) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for name in ["", "state", "work", "work/.git", "work/build", "read", "read/etc", "read/etc/ssl", "write"] {
        std::fs::create_dir_all(at.join(name)).unwrap();
        std::fs::set_permissions(at.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        chown(at.join(name), Some(1000), Some(1000)).unwrap();
    }
    for name in ["read/.env", "write/.env", "work/Makefile"] {
        std::fs::write(at.join(name), "hidden").unwrap();
        chown(at.join(name), Some(1000), Some(1000)).unwrap();
    }
    let text = case.text.replace('@', at.to_str().unwrap());
    std::fs::write(at.join("policy.toml"), format!("version = 1\n{text}\n")).unwrap();
    if case.root {
        chown(at.join("state"), Some(0), Some(0)).unwrap();
    }
    folder
}

/// The side of a new terminal that a program has; whoever holds the other one reads it.
fn terminal() -> (std::fs::File, std::fs::File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    (master.into(), std::fs::File::options().read(true).write(true).open(name).unwrap())
}

/// Runs a program by a document, with something left out.
#[expect(clippy::disallowed_methods, reason = "a test starts the product as its users do")]
fn run(case: &Case, at: &Path, mutation: &str) -> Told {
    let report = at.join("state/report.json");
    drop(std::fs::remove_file(&report));
    let mut command = Command::new(env!("CARGO_BIN_EXE_fumehood-mutated"));
    command.args(["run", "-p"]).arg(at.join("policy.toml"));
    if case.terminal {
        command.arg("--report").arg(&report);
    } else {
        command.arg("--json");
    }
    match case.name {
        name if name.starts_with("language") => command.args(["--lang", "python", "--code", "1"]),
        _ if case.text.contains("inspect") && case.text.contains("read = [\"build\"]") => {
            command.args(["--", "ls", "build"])
        }
        _ if case.text.contains("inspect") => command.args(["--", "ls"]),
        _ if case.text.contains("commands") => command.args(["--", "git", "--version"]),
        _ => command.args(["--", "/bin/true"]),
    };
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", at).env("FUMEHOOD_STATE", at.join("state"));
    command.env("KEY", "not-a-secret").env("MUTATION", mutation).current_dir(at);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if !case.root {
        command.uid(1000).gid(1000);
    }
    let mut held = None;
    if case.terminal {
        let (master, side) = terminal();
        command.stdin(side.try_clone().unwrap()).stdout(side);
        held = Some(master);
    }
    let output = command.output().unwrap();
    drop((command, held));
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    let said = err.lines().find_map(|line| line.strip_prefix("mutation: ")?.split_once(" controls, without: "));
    let (controls, without) = said.unwrap_or_else(|| panic!("{}: {output:?}", case.name));
    let report = if case.terminal { std::fs::read(&report).unwrap_or_default() } else { output.stdout };
    Told {
        code: output.status.code(),
        report: serde_json::from_slice(&report).unwrap_or_default(),
        controls: controls.parse().unwrap(),
        without: without.to_owned(),
        err: err.clone(),
    }
}

/// What is wrong with how a run ended that must have failed.
fn wrong(case: &Case, told: &Told) -> Option<String> {
    // Whom the kernel gives no namespace of users it gives no other: as on a host that has none, which is nothing that failed.
    let refused = !case.root && told.without == "Namespace::User" && told.code == Some(126);
    let outcome = &told.report["outcome"];
    let fails = told.code == Some(125) && outcome["kind"] == "failed" && outcome["code"] == 125;
    let says = told.report["errors"].as_array().is_some_and(|errors| !errors.is_empty());
    (!(refused || fails && says)).then(|| format!("{told:?} {}", told.err))
}

/// Why this host cannot run a case.
fn lacking(case: &Case) -> Option<String> {
    let host = sandbox::Capabilities::probe();
    match case.name.split(',').next()? {
        "gvisor" => host.runsc().err().map(|missing| missing.why),
        "crun" => host.crun().err().map(|missing| missing.why),
        "podman" => host.podman().err().map(|missing| missing.why),
        "docker" => host.docker().err().map(|missing| missing.why),
        "device" => {
            let open = Path::new("/dev/kvm").metadata().is_ok_and(|meta| meta.permissions().mode() & 0o006 == 0o006);
            (!open).then(|| "/dev/kvm is not there, or not open to everybody".to_owned())
        }
        _ => None,
    }
}

#[test]
#[ignore = "beside a service of podman's: a stage of its own"]
fn a_run_without_any_one_control_of_its_plan_ends_with_125() {
    let here = CASES.iter().filter(|case| !case.name.ends_with("the network of the host"));
    let all: Vec<Seen> = std::thread::scope(|scope| {
        let all: Vec<_> = here.map(|case| scope.spawn(|| each(case))).collect();
        all.into_iter().map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let unnoticed: Vec<&str> = all.iter().flat_map(|seen| &seen.unnoticed).map(String::as_str).collect();
    assert!(unnoticed.is_empty(), "{}", unnoticed.join("\n"));
    let seen: BTreeSet<String> = all.into_iter().flat_map(|seen| seen.variants).collect();
    // No clause of a document gives the network of the host, each run of a machine boots one, `Command` gives a program no groups to
    // keep, and no profile is enforced here; the tests of starts have them, and the rest is known where.
    let elsewhere = variants::ELSEWHERE.iter().map(|(variant, ..)| *variant);
    let elsewhere =
        elsewhere.chain(variants::OF_A_MACHINE.iter().copied()).chain(["HostNetwork", "KeptGroups", "Label"]);
    let lacked = CASES.iter().filter(|case| lacking(case).is_some()).flat_map(|case| variants::only_of(case.name));
    let skipped: BTreeSet<&str> = elsewhere.chain(lacked.copied()).collect();
    let expected: BTreeSet<String> =
        variants::all().into_iter().filter(|name| !skipped.contains(name.as_str())).collect();
    assert_eq!(seen, expected, "every variant is left out of a run once");
}

/// What came of a case.
#[derive(Default)]
struct Seen {
    /// The variants that were left out.
    variants: BTreeSet<String>,
    /// What ended otherwise than it must.
    unnoticed: Vec<String>,
}

/// Leaves each control of a case out once.
fn each(case: &Case) -> Seen {
    let mut seen = Seen::default();
    if let Some(why) = lacking(case) {
        println!("skip: {}: {why}", case.name);
        return seen;
    }
    let folder = scene(case);
    let whole = run(case, folder.path(), "nothing");
    assert_eq!(whole.code, Some(0), "{}: nothing is missing: {whole:?}", case.name);
    for number in 0..whole.controls {
        let told = run(case, folder.path(), &number.to_string());
        // An ordinary user has no capability to begin with.
        if case.root || told.without != "NoCapabilities" {
            seen.unnoticed.extend(wrong(case, &told).map(|why| format!("{}: {why}", case.name)));
            seen.variants.insert(told.without);
        }
    }
    seen
}

#[test]
fn a_run_that_was_given_less_than_was_found_ends_with_125() {
    let case = CASES.iter().find(|case| case.name == "container, written directly").unwrap();
    let folder = scene(case);
    // Sockets are what such a policy covers.
    let _sockets =
        ["a", "b"].map(|name| std::os::unix::net::UnixListener::bind(folder.path().join("write").join(name)));
    assert_eq!(run(case, folder.path(), "nothing").code, Some(0));
    for mutation in ["nothing protected", "less protected", "nothing covered", "less covered"] {
        let told = run(case, folder.path(), mutation);
        assert_eq!(wrong(case, &told), None);
        assert_eq!(told.report["errors"][0]["id"], "run/posture", "{told:?}");
    }
}

#[test]
fn a_run_to_which_everything_is_granted_and_whose_layer_judges_no_files_ends_with_125() {
    let case =
        Case { name: "process", root: true, terminal: false, text: "tier = \"process\"\nfs.dangerous-read = [\"/\"]" };
    let folder = scene(&case);
    assert_eq!(run(&case, folder.path(), "nothing").code, Some(0));
    let told = run(&case, folder.path(), "signals alone");
    assert_eq!(wrong(&case, &told), None);
    assert!(told.report.to_string().contains("nothing was seen to be refused"), "{told:?}");
}

/// What the tests leave out by a program of their own, no environment of the product's leaves out.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test starts the product as its users do")]
fn the_product_has_no_such_way() {
    let case = CASES.iter().find(|case| case.name == "container, ordinary user").unwrap();
    let folder = scene(&Case { root: true, ..*case });
    let mut command = Command::new(env!("CARGO_BIN_EXE_fumehood"));
    command.args(["run", "--json", "-p"]).arg(folder.path().join("policy.toml")).args(["--", "/bin/true"]);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", folder.path()).env("MUTATION", "1");
    let output = command.env("FUMEHOOD_STATE", folder.path().join("state")).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("mutation"), "{output:?}");
}
