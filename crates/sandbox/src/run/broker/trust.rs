//! Who is trusted: by the broker outside, and by the programs inside.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use egress::authority;
use egress::wire::Opening;
use policy::Plan;

use crate::environment::TRUST_STORES;
use crate::error::Error;
use crate::fault::{Fault, show_path};

/// Most bytes of one file of `net.ca`.
const MAX_CA: u64 = 256 << 10;
/// Which list is built in, as is said where it is used.
const BUILT_IN: &str = "webpki-root-certs 1.0.11";

/// What a run trusts beyond its image.
pub(in crate::run) struct Trust {
    /// Shown inside.
    pub(in crate::run) inside: backends::Trust,
    /// Told to the broker; `None`: nothing is opened.
    pub(super) opening: Option<Opening>,
    /// What whoever reads the report should know of it, in words.
    pub(in crate::run) note: Option<String>,
}

/// Roots by which servers outside are verified, beside those of `net.ca`.
struct Roots {
    /// In PEM.
    text: String,
    /// The machine has no store, and these are the ones that are built in.
    built_in: bool,
}

/// Makes the authority of a run and the roots that are trusted with it; `None`: the plan opens nothing and adds no root.
///
/// # Errors
/// A file of `net.ca` cannot be used, the machine trusts nobody, or no key can be made.
pub(in crate::run) fn of(plan: &Plan) -> Result<Option<Trust>, Error> {
    let net = &plan.policy.net;
    let secrets = plan.policy.secrets.values().flat_map(|secret| secret.hosts.iter().map(String::as_str));
    let names = authority::names(net, secrets);
    if !super::is_planned(plan) || names.is_empty() && net.ca.is_empty() {
        return Ok(None);
    }
    let added = net.ca.iter().map(|path| added(path)).collect::<Result<String, _>>()?;
    let machine = machine();
    let note = machine.note();
    if machine.text.is_empty() && added.is_empty() {
        return Err(no_roots());
    }
    // Programs go on trusting what their root does.
    let own = own(&backends::certificates_of(&plan.policy.fs.root));
    let mut bundle = if own.is_empty() { machine.text.clone() } else { own };
    bundle.push_str(&added);
    let roots = machine.text + &added;
    let opening = (!names.is_empty()).then(|| authority::make(names, roots)).transpose();
    let opening = opening.map_err(|why| super::failed(&format!("its authority: {why}")))?;
    bundle.extend(opening.iter().map(|opening| opening.certificate.as_str()));
    let certificates = certificates(&bundle).map_err(|why| super::failed(&why))?;
    let java = super::java::store(certificates.iter().map(Vec::as_slice));
    let java = java.ok_or_else(|| super::failed("a certificate is too long for Java's store"))?;
    Ok(Some(Trust { inside: backends::Trust { bundle: bundle.into_bytes(), java }, opening, note }))
}

/// What whoever reads the plan should know of whom it trusts, in words.
pub(in crate::run) fn foreseen(plan: &Plan) -> Vec<String> {
    if !plan.policy.adds_trust() || !super::is_planned(plan) {
        return Vec::new();
    }
    let folders = backends::hashed_certificates_of(&plan.policy);
    let untrusted = folders.iter().map(|folder| {
        format!(
            "programs that look for certificates in {} alone (OpenSSL, where no variable such as `SSL_CERT_FILE` is passed on) trust \
             no host whose requests are read: the names of files there are hashes of certificates, and the run can add none",
            show_path(folder)
        )
    });
    machine().note().into_iter().chain(untrusted).collect()
}

/// The roots of the machine, or of the store that a variable names; those that are built in where there is none.
fn machine() -> Roots {
    // What of the store cannot be read is not trusted.
    let found = rustls_native_certs::load_native_certs().certs;
    let named = TRUST_STORES.iter().any(|name| std::env::var_os(name).is_some());
    Roots::of(found.iter().map(AsRef::as_ref), || named || backends::host_has_certificates())
}

impl Roots {
    /// `found`: what the store has; `is_there`: there is one. One that has nobody in it is meant so: whoever takes authorities out of
    /// it does not want them from elsewhere.
    fn of<'a>(found: impl Iterator<Item = &'a [u8]>, is_there: impl FnOnce() -> bool) -> Self {
        let text: String = found.map(pem).collect();
        if !text.is_empty() || is_there() {
            return Self { text, built_in: false };
        }
        Self { text: webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|one| pem(one)).collect(), built_in: true }
    }

    fn note(&self) -> Option<String> {
        self.built_in.then(|| {
            format!(
                "this machine has no store of certificates: servers are verified by Mozilla's list as it is built in ({BUILT_IN}), \
                 which programs inside trust too where their root has no certificates of its own"
            )
        })
    }
}

/// What the root's own files of certificates say, each certificate once. What cannot be read in them is not trusted.
fn own(files: &[Vec<u8>]) -> String {
    let mut all = std::collections::BTreeSet::new();
    for file in files {
        let text = String::from_utf8_lossy(file);
        all.extend(parts(&text).filter_map(Result::ok));
    }
    all.iter().map(|certificate| pem(certificate)).collect()
}

fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while let Some((line, after)) = rest.split_at_checked(64) {
        out.push_str(line);
        out.push('\n');
        rest = after;
    }
    if !rest.is_empty() {
        out.push_str(rest);
        out.push('\n');
    }
    out + "-----END CERTIFICATE-----\n"
}

/// The certificates of one file of `net.ca`, and nothing else that is in it: a key beside them stays outside.
fn added(path: &Path) -> Result<String, Error> {
    use std::io::Read as _;
    let unusable = |why: String| {
        Error::refused(Fault {
            id: "net.ca/unusable",
            what: format!("{} cannot be used", show_path(path)),
            place: "`net.ca`".to_owned(),
            why,
            fix: "name a readable file of certificates in PEM".to_owned(),
        })
    };
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| unusable(error.to_string().to_lowercase()))?;
    let read = file.take(MAX_CA + 1).read_to_string(&mut text);
    let read = read.map_err(|error| unusable(error.to_string().to_lowercase()))?;
    if u64::try_from(read).unwrap_or(u64::MAX) > MAX_CA {
        return Err(unusable(format!("it has more than {MAX_CA} bytes")));
    }
    let out: String = certificates(&text).map_err(unusable)?.iter().map(|der| pem(der)).collect();
    if out.is_empty() { Err(unusable("there is no certificate in it".to_owned())) } else { Ok(out) }
}

/// The certificates (DER) of a text in PEM.
fn certificates(text: &str) -> Result<Vec<Vec<u8>>, String> {
    parts(text).collect()
}

fn parts(text: &str) -> impl Iterator<Item = Result<Vec<u8>, String>> {
    let one = |part: &str| {
        let body: String =
            part.split("-----END").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().concat();
        STANDARD.decode(body).map_err(|error| format!("a certificate in it: {error}"))
    };
    text.split("-----BEGIN CERTIFICATE-----").skip(1).map(one)
}

fn no_roots() -> Error {
    Error::refused(Fault {
        id: "net.ca/no-roots",
        what: "the servers of opened hosts cannot be verified".to_owned(),
        place: "`net.allow`".to_owned(),
        why: "the store of this machine, or the one that `SSL_CERT_FILE` or `SSL_CERT_DIR` names, has no certificate that can be read"
            .to_owned(),
        fix: "put certificates into it (`ca-certificates`), or name some in `net.ca`".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_goes_on_trusting_what_it_did_and_what_it_cannot_say_is_left_out() {
        let broken = "# a comment\n-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        let files = [format!("{broken}{}", pem(b"two")), format!("{}{}", pem(b"two"), pem(b"one"))];
        let files = files.map(String::into_bytes);
        assert_eq!(own(&files), format!("{}{}", pem(b"one"), pem(b"two")));
        assert_eq!(own(&[broken.as_bytes().to_vec()]), "");
    }

    #[test]
    fn what_is_built_in_is_used_where_there_is_no_store_and_nowhere_else() {
        let none = || std::iter::empty::<&[u8]>();
        let built_in = Roots::of(none(), || false);
        let all = certificates(&built_in.text).unwrap();
        assert!(all.len() > 100 && all.iter().all(|one| one.first() == Some(&0x30)), "{} certificates", all.len());
        assert!(built_in.built_in && built_in.note().unwrap().contains(BUILT_IN));
        let emptied = Roots::of(none(), || true);
        assert_eq!((emptied.text.as_str(), emptied.note()), ("", None), "who took all out means it");
        let store = Roots::of([&b"one"[..]].into_iter(), || panic!("not asked"));
        assert_eq!((store.text, store.built_in), (pem(b"one"), false));
    }

    #[test]
    fn the_list_is_the_one_whose_name_is_said() {
        let locked = include_str!("../../../../../Cargo.lock");
        let (name, version) = BUILT_IN.split_once(' ').unwrap();
        assert!(locked.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n")), "{BUILT_IN}");
    }

    #[test]
    fn of_a_file_only_certificates_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("corp.pem");
        let key = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
        std::fs::write(&path, format!("{key}{}{}", pem(&[1; 100]), pem(b"two"))).unwrap();
        assert_eq!(added(&path).unwrap(), format!("{}{}", pem(&[1; 100]), pem(b"two")));
        for bad in ["", key, "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
            std::fs::write(&path, bad).unwrap();
            assert!(added(&path).is_err(), "{bad}");
        }
        assert!(added(&folder.path().join("none")).is_err());
    }
}
