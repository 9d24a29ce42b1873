//! A registry on this machine, honest and otherwise, and what is pulled from it.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a surprise in a test is a failed test")]

mod peer;
mod served;

use std::path::{Path, PathBuf};

use images::{ImageError, Store};
use registry::{PullError, PullOptions, pull};
use sandbox::state::{Places, State};

use served::{Behaviour, Registry, hex};

/// A store of its own.
struct Bench {
    folder: tempfile::TempDir,
    store: Store,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let euid = rustix::process::geteuid().as_raw();
        let places = Places { fumehood_state: Some(real.join("state")), euid, ..Places::default() };
        let store = Store::open(&State::open(&places).unwrap()).unwrap();
        Self { folder, store }
    }

    /// What lies in the room for downloads.
    fn waiting(&self) -> Vec<PathBuf> {
        let at = self.folder.path().canonicalize().unwrap().join("state/images/downloads");
        let Ok(entries) = std::fs::read_dir(at) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().path()).filter(|path| !path.ends_with("lock")).collect()
    }
}

fn wanted(registry: &Registry, rest: &str) -> PullOptions {
    PullOptions { reference: format!("{}/{rest}", registry.host), plain_http: true, ..PullOptions::default() }
}

fn why(done: &Result<images::Listed, PullError>) -> String {
    done.as_ref().unwrap_err().fault().to_string()
}

/// Docker's file, with one name and password.
fn login(at: &Path, host: &str) -> PathBuf {
    let path = at.join("config.json");
    // me:pass
    std::fs::write(&path, format!(r#"{{"auths":{{"{host}":{{"auth":"bWU6cGFzcw=="}}}}}}"#)).unwrap();
    path
}

#[test]
fn by_tag_by_digest_and_through_an_index_the_same_image_comes() {
    let registry = Registry::start(Behaviour::Honest);
    let bench = Bench::new();
    let first = pull(&bench.store, &wanted(&registry, "me/app:1")).unwrap();
    assert_eq!(first.names, [format!("{}/me/app:1", registry.host)]);
    assert_eq!(first.about.digest, registry.manifest);
    let root = bench.store.lease(&first.names[0]).unwrap().path().to_owned();
    assert_eq!(std::fs::read_to_string(root.join("hello")).unwrap(), "there");
    assert_eq!(bench.waiting(), Vec::<PathBuf>::new(), "what was imported is not kept twice");

    for rest in
        ["me/app:many".to_owned(), format!("me/app@{}", registry.manifest), format!("me/app@{}", registry.index)]
    {
        let name = Some("work:1".to_owned());
        let again = pull(&bench.store, &PullOptions { name, ..wanted(&registry, &rest) }).unwrap();
        assert_eq!(again.about.digest, registry.manifest, "{rest}");
        assert!(again.names.contains(&"work:1".to_owned()));
    }
    assert_eq!(bench.store.list().unwrap().len(), 1);
    // By the digest of an index it is found where it was pulled by it, and nowhere else.
    let indexed = wanted(&registry, &format!("me/app@{}", registry.index));
    pull(&bench.store, &indexed).unwrap();
    assert_eq!(bench.store.find(&indexed.reference).unwrap().about.digest, registry.manifest);
    let blobs = registry.asked().iter().filter(|line| line.contains("/blobs/")).count();
    assert_eq!(blobs, 2, "what is there does not come again");
    // Unless somebody changed it, which no use overlooks; no more than a pull that did.
    std::fs::write(root.join("hello"), "other").unwrap();
    pull(&bench.store, &wanted(&registry, "me/app:1")).unwrap();
    let unlike = std::fs::read_to_string(root.join("hello")).unwrap() != "there";
    assert_eq!(bench.store.lease(&first.names[0]).is_err(), unlike);
    pull(&bench.store, &wanted(&registry, "me/app:1")).unwrap();
    assert_eq!(std::fs::read_to_string(root.join("hello")).unwrap(), "there");
}

#[test]
fn a_token_is_asked_for_with_the_credentials_and_sent_to_nobody_else() {
    let elsewhere = Registry::start(Behaviour::Honest);
    let registry = Registry::start(Behaviour::Token { blobs_at: Some(elsewhere.host.clone()) });
    let bench = Bench::new();
    let credentials = Some(login(bench.folder.path(), &registry.host));
    let ours = wanted(&registry, "me/app:1");
    pull(&bench.store, &PullOptions { credentials, ..ours.clone() }).unwrap();
    let asked = registry.asked();
    assert!(asked.iter().any(|line| line.starts_with("/token?") && line.ends_with("Basic bWU6cGFzcw==")), "{asked:?}");
    assert!(asked.iter().any(|line| line.contains("manifests/1") && line.ends_with("Bearer right")), "{asked:?}");
    assert!(asked.iter().any(|line| line.contains("scope=repository%3Ame%2Fapp%3Apull")), "{asked:?}");
    let asked = elsewhere.asked();
    assert!(
        asked.iter().any(|line| line.contains("/blobs/")) && asked.iter().all(|line| line.ends_with(' ')),
        "{asked:?}"
    );

    // Without them it is refused; with those of another registry, too, and they are not sent.
    let bench = Bench::new();
    assert!(why(&pull(&bench.store, &ours)).contains("401"));
    let other = Some(login(bench.folder.path(), "other.example"));
    let before = registry.asked().len();
    assert!(pull(&bench.store, &PullOptions { credentials: other, ..ours.clone() }).is_err());
    assert!(registry.asked()[before..].iter().all(|line| !line.contains("Basic")));
    // Nor are those of what it mirrors sent to a mirror.
    let mirrored =
        PullOptions { reference: "docker.io/me/app:1".to_owned(), mirror: Some(registry.host.clone()), ..ours };
    let docker = Some(login(bench.folder.path(), "https://index.docker.io/v1/"));
    let before = registry.asked().len();
    assert!(pull(&bench.store, &PullOptions { credentials: docker, ..mirrored.clone() }).is_err());
    assert!(registry.asked()[before..].iter().all(|line| !line.contains("Basic")));
    let listed =
        pull(&bench.store, &PullOptions { credentials: Some(login(bench.folder.path(), &registry.host)), ..mirrored });
    assert_eq!(listed.unwrap().names, ["docker.io/me/app:1"]);
    assert!(bench.store.find("me/app:1").is_ok(), "Docker's short name finds it");
}

#[test]
fn a_blob_that_breaks_off_is_gone_on_with() {
    let registry = Registry::start(Behaviour::Breaks);
    let bench = Bench::new();
    pull(&bench.store, &wanted(&registry, "me/app:1")).unwrap();
    let asked = registry.asked();
    assert!(asked.iter().any(|line| line.contains("/blobs/") && line.contains(" bytes=")), "{asked:?}");
    // Who ignores where it should go on is read from the beginning.
    let registry = Registry::start(Behaviour::BreaksAndForgets);
    let bench = Bench::new();
    pull(&bench.store, &wanted(&registry, "me/app:1")).unwrap();
    // Whoever never sends the end is left; what came stays for the next try.
    let registry = Registry::start(Behaviour::NeverEnds);
    let bench = Bench::new();
    let done = pull(&bench.store, &wanted(&registry, "me/app:1"));
    assert!(why(&done).contains("it ends after"), "{}", why(&done));
    assert!(!bench.waiting().is_empty() && bench.store.list().unwrap().is_empty());
    assert_eq!(bench.store.sweep_unfinished().unwrap(), 1, "gc takes it");
    assert_eq!(bench.waiting(), Vec::<PathBuf>::new());
}

#[test]
fn what_is_not_what_its_digest_says_is_not_kept() {
    for (way, expected) in [
        (Behaviour::WrongBlob, "as it comes"),
        (Behaviour::LongBlob, "and more come"),
        (Behaviour::WrongManifest, "it should be"),
        (Behaviour::WrongHeader, "it should be"),
        (Behaviour::Huge, "unpacks to more than"),
        (Behaviour::Missing, "404 Not Found: no such thing"),
        (Behaviour::Loop, "redirects more than"),
        (Behaviour::ToPlain, "is not spoken to without TLS"),
        (Behaviour::ToFile, "of the kind `file:`"),
        (Behaviour::Packs, "which nobody asked for"),
        (Behaviour::OtherMachine, "it has no image for linux"),
        (Behaviour::OldKind, "which is not read"),
        (Behaviour::TwoThings, "is an index at the same time"),
        (Behaviour::Endless, "more than 4194304 bytes"),
    ] {
        let registry = Registry::start(way.clone());
        let bench = Bench::new();
        let reference = if matches!(way, Behaviour::WrongManifest) {
            format!("me/app@sha256:{}", hex(b"another"))
        } else {
            "me/app:1".to_owned()
        };
        let done = pull(&bench.store, &wanted(&registry, &reference));
        assert!(why(&done).contains(expected), "{way:?}: {}", why(&done));
        assert!(bench.store.list().unwrap().is_empty(), "{way:?}");
        // The same is pulled from who is honest: the refusal was the registry's own fault.
        let honest = Registry::start(Behaviour::Honest);
        assert!(pull(&bench.store, &wanted(&honest, "me/app:1")).is_ok(), "{way:?}");
    }
}

#[test]
fn without_tls_only_this_machine_is_asked_and_names_that_are_none_are_not() {
    let bench = Bench::new();
    let ask = |reference: &str, plain_http: bool| {
        pull(&bench.store, &PullOptions { reference: reference.to_owned(), plain_http, ..PullOptions::default() })
    };
    for host in ["192.0.2.1:5000", "registry.example", "127.0.0.1.example", "0.0.0.0:5000"] {
        let done = ask(&format!("{host}/app:1"), true);
        assert!(matches!(done, Err(PullError::Plain { .. })), "{host}: {done:?}");
    }
    for reference in ["App", "../app", "app:1:2", "http://127.0.0.1/app", ""] {
        assert!(matches!(ask(reference, true), Err(PullError::Reference { .. })), "{reference}");
    }
    let platform = Some("linux/s390x".to_owned());
    let done = pull(&bench.store, &PullOptions { reference: "app".to_owned(), platform, ..PullOptions::default() });
    assert!(matches!(done, Err(PullError::Reference { .. })));
    // With TLS asked of one that has none, nothing is sent in the clear.
    let registry = Registry::start(Behaviour::Honest);
    let done = pull(&bench.store, &PullOptions { plain_http: false, ..wanted(&registry, "me/app:1") });
    assert!(matches!(done, Err(PullError::Registry { .. })) && registry.asked().is_empty(), "{done:?}");
    let name = Some("..".to_owned());
    let done = pull(&bench.store, &PullOptions { name, ..wanted(&registry, "me/app:1") });
    assert!(matches!(done, Err(PullError::Image(ImageError::Name { .. }))) && registry.asked().is_empty());
}
