//! Host paths whose grant gives away more than it says: it needs a `dangerous-` spelling.
//!
//! Judged by name alone. Backends judge the resolved path once more with [`why`], since a link may lead here.

use std::path::{Path, PathBuf};

use crate::diagnostic::quote;

/// Below a home folder: keys, tokens and the settings of tools that act on the user's behalf.
const CREDENTIALS: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/op",
    ".config/doctl",
    ".config/rclone",
    ".config/containers",
    ".config/systemd",
    ".config/autostart",
    ".config/google-chrome",
    ".config/chromium",
    ".config/github-copilot",
    ".config/goose",
    ".config/opencode",
    ".config/fumehood",
    ".local/state/fumehood",
    ".local/share/keyrings",
    ".mozilla",
    ".kube",
    ".docker",
    ".colima",
    ".podman",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".cargo/credentials.toml",
    ".cargo/credentials",
    ".gem/credentials",
    ".m2/settings.xml",
    ".terraform.d",
    ".vault-token",
    ".pgpass",
    ".my.cnf",
    ".password-store",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".claude",
    ".claude.json",
    ".codex",
    ".gemini",
    ".cursor",
    ".aider.conf.yml",
    ".continue",
    ".copilot",
    ".config/Code",
    ".config/git/credentials",
    ".config/1Password",
    ".config/sops",
    ".config/age",
    ".config/rustic",
    ".config/restic",
    ".config/borg",
    ".config/ngrok",
    ".config/argocd",
    ".config/heroku",
    ".config/flyctl",
    ".config/stripe",
    ".config/pulumi",
    ".config/huggingface",
    ".config/composer",
    ".config/keepassxc",
    ".config/Bitwarden",
    ".config/Signal",
    ".config/helm",
    ".cache/huggingface/token",
    ".local/share/kwalletd",
    ".local/share/opencode",
    ".Xauthority",
    ".ICEauthority",
    ".s3cfg",
    ".boto",
    ".oci",
    ".mylogin.cnf",
    ".composer/auth.json",
    ".gradle/gradle.properties",
    ".databricks.cfg",
    ".snowflake",
    ".pulumi",
    ".pki",
    ".thunderbird",
    ".ethereum",
    ".bitcoin",
    ".electrum",
    ".psql_history",
    ".node_repl_history",
    ".smbcredentials",
    ".davfs2",
    ".msmtprc",
    ".fetchmailrc",
    ".argocd",
    ".ngrok2",
    ".cloudflared",
    ".wrangler",
    ".tsh",
    ".saml2aws",
    ".okta",
    ".awsvault",
    ".minikube",
    ".rancher",
    ".step",
    ".chef",
    ".kaggle",
    ".config/solana",
    ".fly",
    ".netlify",
    ".vercel",
    ".stripe",
    ".supabase",
];

/// Whole trees of the kernel.
const KERNEL: &[(&str, &str)] = &[
    ("/proc", "it shows every process of the host, and through some of them its files"),
    ("/sys", "it shows and steers the host's kernel"),
    ("/dev", "it holds the host's devices"),
];

/// Places outside homes. The last word: whether a folder above is as dangerous (`/tmp` is too useful to be).
const HOST: &[(&str, &str, bool)] = &[
    ("/run/docker.sock", "whoever speaks to a container engine is root on the host", true),
    ("/var/run/docker.sock", "whoever speaks to a container engine is root on the host", true),
    ("/run/podman", "whoever speaks to a container engine acts as its user on the host", true),
    ("/var/run/podman", "whoever speaks to a container engine acts as its user on the host", true),
    ("/run/containerd", "whoever speaks to a container engine is root on the host", true),
    ("/var/run/containerd", "whoever speaks to a container engine is root on the host", true),
    ("/run/crio", "whoever speaks to a container engine is root on the host", true),
    ("/var/run/crio", "whoever speaks to a container engine is root on the host", true),
    ("/run/k3s", "whoever speaks to a container engine is root on the host", true),
    ("/run/buildkit", "whoever speaks to a container engine is root on the host", true),
    ("/run/dbus", "the system bus starts services on the host", true),
    ("/var/run/dbus", "the system bus starts services on the host", true),
    ("/run/systemd", "the service manager starts programs on the host", true),
    ("/run/user", "it holds the sockets of every logged-in session", true),
    ("/var/run/user", "it holds the sockets of every logged-in session", true),
    ("/run/secrets", "it holds credentials", true),
    ("/var/run/secrets", "it holds credentials", true),
    ("/var/lib/docker", "it holds the files of every container of the host", true),
    ("/var/lib/containers", "it holds the files of every container of the host", true),
    ("/var/lib/containerd", "it holds the files of every container of the host", true),
    ("/var/lib/kubelet", "it holds the credentials of every pod of the host", true),
    ("/var/lib/fumehood", "it holds the audit log and the keys", true),
    ("/etc/shadow", "it holds password hashes", true),
    ("/etc/gshadow", "it holds password hashes", true),
    ("/etc/sudoers", "it says who becomes root", true),
    ("/etc/sudoers.d", "it says who becomes root", true),
    ("/etc/ssh", "it holds the host's private keys", true),
    ("/etc/kubernetes", "it holds the credentials of the cluster", true),
    ("/boot", "it holds the kernel that starts next", true),
    ("/tmp/.X11-unix", "whoever speaks to the display reads the keyboard", false),
];

/// Why a grant of this path is dangerous; `None` = it is not known to be. `private` is where our own log and keys lie.
#[must_use]
pub fn why(path: &Path, home: Option<&Path>, private: &[PathBuf]) -> Option<String> {
    known(path, home).or_else(|| {
        let ours = private.iter().find(|ours| path.starts_with(ours) || ours.starts_with(path))?;
        Some(format!("it is or contains {}, where fumehood keeps its log and keys", quote(&ours.to_string_lossy())))
    })
}

fn known(path: &Path, home: Option<&Path>) -> Option<String> {
    if path == Path::new("/") {
        return Some("it is the whole host".to_owned());
    }
    if let Some((_, why)) = KERNEL.iter().find(|(place, _)| path.starts_with(place)) {
        return Some((*why).to_owned());
    }
    for (place, why, above) in HOST {
        if path.starts_with(place) {
            return Some((*why).to_owned());
        }
        if *above && Path::new(place).starts_with(path) {
            return Some(format!("it contains `{place}`: {why}"));
        }
    }
    in_home(path, home)
}

fn in_home(path: &Path, home: Option<&Path>) -> Option<String> {
    // A home of `/`, as daemons have, would make every path one of a home.
    let own = home.filter(|home| home.parent().is_some());
    if own.is_some_and(|home| home.starts_with(path)) {
        return Some("it is your home or contains it, with keys, tokens and histories".to_owned());
    }
    if path == Path::new("/home") || path == Path::new("/root") {
        return Some("it is a home or contains them, with keys, tokens and histories".to_owned());
    }
    let home = own.filter(|home| path.starts_with(home)).map(Path::to_path_buf).or_else(|| other_home(path))?;
    let below = path.strip_prefix(&home).ok()?;
    if below.as_os_str().is_empty() {
        return Some("it is somebody's home, with keys, tokens and histories".to_owned());
    }
    for place in CREDENTIALS {
        if below.starts_with(place) {
            return Some(format!("`~/{place}` holds credentials, history or settings of tools that act for you"));
        }
        if Path::new(place).starts_with(below) {
            return Some(format!(
                "it contains `~/{place}`, which holds credentials or settings of tools that act for you"
            ));
        }
    }
    None
}

/// The home folder by the usual names that a path lies in: `/root`, `/home/NAME`.
fn other_home(path: &Path) -> Option<PathBuf> {
    if path.starts_with("/root") {
        return Some(PathBuf::from("/root"));
    }
    let name = path.strip_prefix("/home").ok()?.components().next()?;
    Some(Path::new("/home").join(name))
}
