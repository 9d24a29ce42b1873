//! A start that did not come about, as its reader needs it: nothing was run, and here is what to change.

use backends::{Shut, StartError};

use crate::fault::{Fault, show_path, show_text};

const DOCTOR: &str = "`fumehood doctor` may know why";
const OURS: &str = "please report this with `fumehood doctor --json`";
const CALLS: &str = "change `syscalls.allow` or `syscalls.deny`";
const BEFORE: &str = "before the program was started";

/// Id, where, why, fix; what failed is the text of the error itself.
type FaultTexts = (&'static str, String, String, String);

/// What is said of it.
pub(crate) fn of(error: &StartError) -> Fault {
    let (id, place, why, fix) = said(error);
    let why = format!("{}; nothing was run", sentence(&show_text(&why)));
    Fault { id, what: show_text(&error.to_string()), place: show_text(&place), why, fix: show_text(&fix) }
}

/// The system's words, which begin like a sentence, within one of ours.
fn sentence(words: &str) -> String {
    let first = words.chars().next().filter(|_| words.contains("(os error "));
    first.map_or_else(
        || words.to_owned(),
        |first| {
            let rest = words.get(first.len_utf8()..).unwrap_or_default();
            format!("{}{rest}", first.to_lowercase())
        },
    )
}

/// What to write where a colon was meant to part two paths: `FROM:TO` is one word in a flag alone, where the latter is a path
/// inside; in a document the colon belongs to the name.
fn elsewhere(path: &str) -> String {
    const SEEN: &str = "; what is to be seen elsewhere inside is";
    match path.rsplit_once(":/").filter(|(from, _)| !from.is_empty()) {
        Some((from, to)) => format!("{SEEN} {{ from = \"{from}\", to = \"/{to}\" }} in a document"),
        None if path.contains(':') => {
            format!("{SEEN} `FROM:/TO` in a flag, {{ from = \"FROM\", to = \"/TO\" }} in a document")
        }
        None => String::new(),
    }
}

fn said(error: &StartError) -> FaultTexts {
    let clause = |name: &str| format!("`{name}`");
    let before = || BEFORE.to_owned();
    let ours = || OURS.to_owned();
    match error {
        StartError::Path { clause: of, why, path, .. } => {
            let to = elsewhere(&path.to_string_lossy());
            ("run/path", clause(of), why.clone(), format!("check the path, or take it out of the policy{to}"))
        }
        StartError::Etc { why, .. } => {
            let fix = "in an image of your own (`fumehood image build`) move them into a folder below it, which is shown whole, and leave links to them".to_owned();
            ("run/image-etc", clause("fs.root"), why.clone(), fix)
        }
        StartError::Special { clause: of, .. } => {
            let why = "a socket, a named pipe or a block device reaches out of the sandbox".to_owned();
            let fix = "grant the directory around it with `fs.sockets`, or nothing".to_owned();
            ("run/special-file", clause(of), why, fix)
        }
        StartError::NotADirectory { clause: of, .. } => {
            let why = "only a directory can be shown as a tree".to_owned();
            ("run/not-a-directory", clause(of), why, "name a directory".to_owned())
        }
        StartError::Unreadable(shut) => unreadable(shut),
        StartError::NotTheDevice { .. } => {
            let why = "it would be shown inside under that name".to_owned();
            ("run/device", "/dev of this host".to_owned(), why, "repair /dev of this host".to_owned())
        }
        StartError::Layer { why, .. } => {
            let fix = "of a workspace: mode `copy` or `rw`; of a grant: name the folders in it one by one, or set `fs.sockets = true`, which shows it without a layer, and with it the host's unix sockets".to_owned();
            ("run/no-layer", "the tree inside".to_owned(), why.clone(), fix)
        }
        StartError::Mapping { why, .. } => {
            let fix =
                "give it to an ordinary user (chown), use `--tier container`, or workspace mode `copy`".to_owned();
            ("run/workspace-of-root", "what the run may write".to_owned(), why.clone(), fix)
        }
        StartError::Namespaces { why } => {
            let fix = "`fumehood doctor` names the setting; or use the weaker `--tier process`".to_owned();
            ("run/namespaces", "tier `container`".to_owned(), why.clone(), fix)
        }
        StartError::Network { why } => {
            let fix = "load the kernel's module for pairs of interfaces (`modprobe veth`), in a container give root `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`; or use `--tier container`".to_owned();
            ("run/network", clause("net.mode"), why.clone(), fix)
        }
        StartError::Kvm { why, fix } => ("run/kvm", "/dev/kvm".to_owned(), why.clone(), fix.clone()),
        StartError::RealTime { why } => {
            let why = format!("no limit holds such a program, and it could not be reset: {why}");
            let fix = "start fumehood as an ordinary program (`chrt -o 0 fumehood run ...`)".to_owned();
            ("run/real-time", "the caller's scheduling policy".to_owned(), why, fix)
        }
        StartError::Posture(differences) => {
            ("run/posture", "the guest, as it and the kernel show it".to_owned(), differences.join("; "), ours())
        }
        StartError::OtherMachine => {
            let why = "the emulator, the machine's kernel, this version, or what the machine is given (memory, processors, limits, user, environment, filter) is another than then, or it ran on KVM and this one does not, or the other way round, or on another processor".to_owned();
            let fix = "create it with the flags, the variables and on the host that the snapshot was made with, or make another snapshot".to_owned();
            ("run/other-machine", "the snapshot".to_owned(), why, fix)
        }
        StartError::Label { why } => {
            let fix = "load the profile in enforce mode (`apparmor_parser -r FILE`, `aa-enforce NAME`), or the policy module of the type; or remove `process.label`".to_owned();
            ("run/label", clause("process.label"), why.clone(), fix)
        }
        StartError::Profile { why } => ("run/profile", clause("syscalls"), why.clone(), CALLS.to_owned()),
        StartError::Links { why } => no_listener(why),
        StartError::Guest { why, .. } | StartError::System { why, .. } => {
            ("run/start", before(), why.clone(), DOCTOR.to_owned())
        }
        StartError::Internal(why) => ("run/start", before(), why.clone(), ours()),
    }
}

/// Nobody can be asked where links lead.
fn no_listener(why: &str) -> FaultTexts {
    let why = format!("a filter that is on already has a listener of its own, or lets none be made: {why}");
    let fix = "start fumehood outside of that sandbox, use `--tier container`, or say `syscalls.allow = [\"readlink\", \"readlinkat\"]`: then links of folders that were not granted are read".to_owned();
    ("run/no-listener", "tier `process`".to_owned(), why, fix)
}

/// A grant that would be visible but unreadable.
fn unreadable(Shut { path, at, owner, mode, uid, folder, others }: &Shut) -> FaultTexts {
    let root = if *others { ", since what root starts does not run as root" } else { "" };
    let (shut, right) = match (at == path, folder) {
        (true, true) => ("it".to_owned(), "rx"),
        (true, false) => ("it".to_owned(), "r"),
        (false, _) => (show_path(at), "x"),
    };
    let why = format!("{shut} belongs to uid {owner} with mode {mode:04o}, and the run is uid {uid}{root}");
    let fix = if *others && at != path {
        let folder = show_text(&at.display().to_string());
        format!("`--tier container` shows it without the folders above it; or `chmod o+{right} {folder}`")
    } else if *others {
        format!(
            "`chmod o+{right} {}`, or copy it into the workspace, whose owner the run is",
            show_text(&at.display().to_string())
        )
    } else {
        "ask its owner for the right to read it, or take it out of the policy".to_owned()
    };
    ("run/unreadable-grant", "`fs.read`".to_owned(), why, fix)
}
