//! Where programs look for the certificates that they trust, and what a root has there.

use std::path::{Path, PathBuf};

use guest::config::Attrs;
use policy::value::{Policy, Root};
use sys::paths::{self, Kind};
use sys::proc::Process;

/// The bundle below `/run/fumehood`.
pub(crate) const FILE: &str = agent::machine::CERTIFICATES;
/// The same, as programs are told of it.
pub(crate) const BUNDLE: &str = "/run/fumehood/ca.pem";
/// Java's store below `/run/fumehood`.
pub(crate) const JAVA_FILE: &str = "ca.jks";
/// How Java is told of it.
pub(crate) const JAVA: &str = "-Djavax.net.ssl.trustStore=/run/fumehood/ca.jks";
/// Variables that name a bundle: OpenSSL, Python and requests, pip, Node, curl, git, cargo, the SDKs of AWS and Google, Deno,
/// gRPC, Nix, Ruby's bundler, Perl, Julia, conda. A policy that sets one is not overruled.
pub(crate) const VARIABLES: [&str; 16] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "DENO_CERT",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "NIX_SSL_CERT_FILE",
    "BUNDLE_SSL_CA_CERT",
    "PERL_LWP_SSL_CA_FILE",
    "JULIA_SSL_CA_ROOTS_PATH",
    "CONDA_SSL_VERIFY",
];

/// Files of certificates that programs read without being told, by where distributions have them: Debian, Alpine and Arch; NixOS; SUSE;
/// Red Hat, by two names; OpenSSL, by its own name and by Debian's.
const FILES: [&str; 7] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/lib/ssl/cert.pem",
];
/// Where OpenSSL looks: a folder of certificates by hashed names, and the file beside it, which it reads first; Debian's, its own, Red
/// Hat's.
const OPENSSL: [(&str, &str); 3] = [
    ("/usr/lib/ssl/certs", "/usr/lib/ssl/cert.pem"),
    ("/etc/ssl/certs", "/etc/ssl/cert.pem"),
    ("/etc/pki/tls/certs", "/etc/pki/tls/cert.pem"),
];
/// Where this machine may have the certificates that are trusted where no variable says so: files, and folders of them.
pub fn system_stores() -> impl Iterator<Item = &'static Path> {
    let beside = OPENSSL.into_iter().flat_map(|(folder, file)| [folder, file]).filter(|place| !FILES.contains(place));
    FILES.into_iter().chain(beside).map(Path::new)
}
/// Most entries of such a folder that are looked at.
const MAX_ENTRIES: usize = 4096;
/// What is the run's own, whatever a root has there.
pub(crate) const OURS: [&str; 7] = ["/proc", "/sys", "/dev", "/tmp", "/run", "/home", "/var/tmp"];
/// Most bytes of a root's own file.
pub(crate) const MAX_FILE: usize = 4 << 20;
/// How the bundle is mounted in the place of a file.
pub(crate) const ATTRS: Attrs = Attrs::RDONLY.and(Attrs::NOSUID).and(Attrs::NODEV).and(Attrs::NOEXEC);

/// What the run trusts, as it is to be read inside.
#[derive(Debug)]
pub(crate) struct Certificates(Vec<u8>);

impl Certificates {
    pub(crate) const fn new(bundle: Vec<u8>) -> Self {
        Self(bundle)
    }

    /// Whether a process reads them at a place, and nothing else.
    pub(crate) fn are_read(&self, process: &Process, at: &Path) -> bool {
        let place = process.place_at(&at.to_string_lossy());
        let found = place.and_then(|place| paths::read_place(place, self.0.len()));
        found.is_ok_and(|found| found == self.0)
    }
}

/// Which paths inside the bundle is laid on: every file of certificates that the root has, by its path without links, where neither a
/// place of the run nor something that the policy shows is in front of it. `None`: this run trusts what its root does, and nothing else.
pub(crate) fn places(policy: &Policy) -> Option<Vec<PathBuf>> {
    if !policy.adds_trust() {
        return None;
    }
    let Some(tree) = tree(&policy.fs.root) else { return Some(Vec::new()) };
    let mut all = files(&tree);
    all.retain(|path| !is_shown(policy, path));
    Some(all)
}

/// Whether the policy shows something at a path, or above it.
pub(crate) fn is_shown(policy: &Policy, path: &Path) -> bool {
    let mut shown = policy.fs.read.iter().chain(&policy.fs.write).map(|grant| &grant.to).chain(policy.workspace_at());
    shown.any(|other| path.starts_with(other))
}

/// Folders of a root in which OpenSSL finds certificates by hashed names, where the file that it reads beside them is none that the
/// bundle is laid on.
#[must_use]
pub fn hashed_certificates_of(policy: &Policy) -> Vec<PathBuf> {
    let (Some(laid), Some(tree)) = (places(policy), tree(&policy.fs.root)) else { return Vec::new() };
    let (mut hashed, mut reached) = (Vec::new(), Vec::new());
    for (folder, file) in OPENSSL {
        let Some(folder) = found(&tree, Path::new(folder), Kind::Folder) else { continue };
        if found(&tree, Path::new(file), Kind::File).is_some_and(|file| laid.contains(&file)) {
            reached.push(folder);
        } else if !is_shown(policy, &folder) && has_hashed(&tree, &folder) {
            hashed.push(folder);
        }
    }
    // By two names it is one folder.
    hashed.retain(|folder| !reached.contains(folder));
    hashed.sort();
    hashed.dedup();
    hashed
}

/// Whether a folder of a tree has a name that OpenSSL computes of a certificate.
fn has_hashed(tree: &Path, folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(tree.join(folder.strip_prefix("/").unwrap_or(folder))) else { return false };
    let is_hash = |name: &str| {
        let digits = |text: &str, is: fn(&u8) -> bool| !text.is_empty() && text.as_bytes().iter().all(is);
        let parts = name.split_once('.');
        parts.is_some_and(|(hash, number)| {
            hash.len() == 8 && digits(hash, u8::is_ascii_hexdigit) && digits(number, u8::is_ascii_digit)
        })
    };
    entries.take(MAX_ENTRIES).filter_map(Result::ok).any(|entry| entry.file_name().to_str().is_some_and(is_hash))
}

/// Whether this machine has a file of certificates that can be read, whatever is in it.
#[must_use]
pub fn host_has_certificates() -> bool {
    let is_file = |name: &&&str| std::fs::metadata(name).is_ok_and(|found| found.is_file());
    FILES.iter().filter(is_file).any(|name| std::fs::File::open(name).is_ok())
}

/// What a root's own files of certificates say. None of the host's: that is said by what programs of the host are told of it.
#[must_use]
pub fn certificates_of(root: &Root) -> Vec<Vec<u8>> {
    let Some(tree) = tree(root).filter(|_| *root != Root::Host) else { return Vec::new() };
    let read = |path: &PathBuf| paths::read_place(paths::open_place_within(&tree, path).ok()?, MAX_FILE).ok();
    files(&tree).iter().filter_map(read).collect()
}

/// The folder of the host that programs see as their root. An image that is being built has its own files, which its programs change.
fn tree(root: &Root) -> Option<PathBuf> {
    let folder = match root {
        Root::Host => Path::new("/"),
        Root::Dir(folder) => folder,
        Root::Image(image) => image.found.as_ref().ok().filter(|found| !found.built)?.tree.as_path(),
        Root::Empty => return None,
    };
    folder.canonicalize().ok()
}

/// The files of certificates that programs find in a tree, by their paths there without links.
fn files(tree: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = FILES.iter().filter_map(|name| found(tree, Path::new(name), Kind::File)).collect();
    all.retain(|path| !OURS.iter().any(|ours| path.starts_with(ours)));
    all.sort();
    all.dedup();
    all
}

/// The file or folder that a path leads to within a tree, as its path there without links.
pub(crate) fn found(tree: &Path, path: &Path, kind: Kind) -> Option<PathBuf> {
    let place = paths::open_place_within(tree, path).ok()?;
    let fits = paths::facts(&place).ok()?.kind == kind;
    let path = paths::path_of(&place).ok().filter(|_| fits)?;
    Some(Path::new("/").join(path.strip_prefix(tree).ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::support::policy_of;

    /// What the bundle is laid on in a folder with these files and links.
    fn laid(files: &[&str], links: &[(&str, &str)], more: &str) -> Vec<String> {
        of(files, links, more).0
    }

    /// The same, and folders of hashed names that it does not reach.
    fn of(files: &[&str], links: &[(&str, &str)], more: &str) -> (Vec<String>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        files.iter().for_each(|name| std::fs::write(at(name), "A").unwrap());
        links.iter().for_each(|(name, target)| symlink(target, at(name)).unwrap());
        let mut policy = policy_of(&format!(
            "net = {{ mode = 'allow', allow = [{{ host = 'a.test', ports = [443], methods = ['GET'] }}] }}\n{more}"
        ));
        let tree = folder.path().to_owned();
        let found = policy::value::StoredImage { tree, ..Default::default() };
        policy.fs.root = Root::Image(policy::value::Image { name: "x".to_owned(), found: Ok(found) });
        let all = places(&policy).unwrap();
        let own = certificates_of(&policy.fs.root).len();
        assert!(own <= all.len() || !more.is_empty(), "{own} {all:?}");
        let text = |all: Vec<PathBuf>| all.iter().map(|path| path.display().to_string()).collect();
        (text(all), text(hashed_certificates_of(&policy)))
    }

    /// An OpenSSL that has no file beside its folder reads the folder alone.
    #[test]
    fn a_folder_of_hashed_names_beside_which_nothing_is_laid_is_told() {
        let (file, hash) = ("etc/ssl/certs/ca-certificates.crt", "etc/ssl/certs/5a4d6896.0");
        let link = ("usr/lib/ssl/certs", "/etc/ssl/certs");
        let told = |files: &[&str], links: &[(&str, &str)], more: &str| of(files, links, more).1;
        assert_eq!(told(&[file, hash], &[link], ""), ["/etc/ssl/certs"], "the file is another program's");
        assert_eq!(told(&[hash], &[], ""), ["/etc/ssl/certs"], "there is no file at all");
        let read = ("usr/lib/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt");
        assert!(told(&[file, hash], &[link, read], "").is_empty(), "its file is the run's");
        let alpine = ("etc/ssl/cert.pem", "certs/ca-certificates.crt");
        assert!(told(&[file, hash], &[alpine], "").is_empty());
        for other in
            ["etc/ssl/certs/README", "etc/ssl/certs/5a4d6896", "etc/ssl/certs/5a4d689.0", "etc/ssl/certs/5a4d6896.r"]
        {
            assert!(told(&[file, other], &[link], "").is_empty(), "{other} is no such name");
        }
        let grant = "fs.read = [{ from = '/usr', to = '/etc/ssl' }]";
        assert!(told(&[file, hash], &[link], grant).is_empty(), "what is granted is not looked into");
    }

    /// By the list that the page has: without its variable such a client does not trust what the broker opens.
    #[test]
    fn programs_are_told_of_the_bundle_by_the_variables_that_the_page_names() {
        let page = include_str!("../../../docs/concepts/network.md");
        let (_, list) = page.split_once("which variables name (").unwrap();
        let (list, _) = list.split_once(')').unwrap();
        let mut told: Vec<&str> = list.split(',').map(|name| name.trim().trim_matches('`')).collect();
        let mut set = VARIABLES.to_vec();
        told.sort_unstable();
        set.sort_unstable();
        assert_eq!(told, set);
    }

    #[test]
    fn the_bundle_is_laid_on_what_each_distribution_has() {
        let none: [&str; 0] = [];
        assert_eq!(laid(&[], &[], ""), none);
        let of = "etc/ssl/certs/ca-certificates.crt";
        let debian = ("usr/lib/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt");
        assert_eq!(laid(&[of], &[debian], ""), ["/etc/ssl/certs/ca-certificates.crt"]);
        let alpine = ("etc/ssl/cert.pem", "certs/ca-certificates.crt");
        assert_eq!(laid(&[of], &[alpine], ""), ["/etc/ssl/certs/ca-certificates.crt"]);
        let real = "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";
        let red_hat = [
            ("etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
            ("etc/ssl/cert.pem", "/etc/pki/tls/certs/ca-bundle.crt"),
        ];
        assert_eq!(laid(&[real], &red_hat, ""), ["/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"]);
        let suse = ("etc/ssl/ca-bundle.pem", "../../var/lib/ca-certificates/ca-bundle.pem");
        assert_eq!(
            laid(&["var/lib/ca-certificates/ca-bundle.pem"], &[suse], ""),
            ["/var/lib/ca-certificates/ca-bundle.pem"]
        );
    }

    /// A link of an image leads to nothing of the host's, and what the policy shows is shown as it is.
    #[test]
    fn nothing_is_laid_outside_of_the_tree_or_on_what_a_policy_shows() {
        let none: [&str; 0] = [];
        let out = ("etc/ssl/cert.pem", "../../../../../../../../etc/passwd");
        assert_eq!(laid(&[], &[out], ""), none);
        assert_eq!(laid(&["etc/ssl/cert.pem/x"], &[], ""), none, "a folder");
        assert_eq!(laid(&["run/c"], &[("etc/ssl/cert.pem", "/run/c")], ""), none, "a place of the run");
        let grant = "fs.read = [{ from = '/usr', to = '/etc/ssl' }]";
        assert_eq!(laid(&["etc/ssl/cert.pem"], &[], grant), none);
        assert_eq!(places(&policy_of("net = { mode = 'allow', allow = ['a.test'] }")), None);
        let empty = policy_of("net = { mode = 'allow', ca = ['/a.pem'] }\nfs.root = 'empty'");
        assert_eq!(places(&empty), Some(Vec::new()));
    }
}
