//! The values of `[secrets]`: read once, outside, when a run starts, and handed to its broker alone.
//!
//! # Promises
//! No value is part of a plan, a report, a record, a message or the environment of a process; what holds one is wiped, and not
//! swapped out: from when it is known whole until the broker has it here, and then there.
//! # Does not promise
//! That pieces are not swapped out in the moments in which a value is read from its source, and written to the broker; nor that its
//! source keeps it to itself: the caller's own variable stays where it is.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use egress::secret::{LoadedSecret, MAX_VALUE, sign};
use egress::wire::{Hidden, Secrets};
use policy::control::Control;
use policy::value::{Root, Secret, SecretSource, SecretUse, TOOLS, WorkspaceMode, secrets_document};
use policy::{Plan, Policy};
use sys::memory::Locked;
use zeroize::Zeroizing;

use super::secret_command;
use super::secret_marks::Marks;
use super::writable::WritablePlaces;
use crate::environment::Environment;
use crate::error::Error;
use crate::fault::{Fault, show_text};

/// What is read at most: a value, the end of its line, and a byte that shows that it is too long.
const MAX_READ: usize = MAX_VALUE + 3;
/// Random bytes of a placeholder.
const RANDOM: usize = 16;

/// Values that are kept in locked memory until the broker has them.
#[derive(Debug, Default)]
pub(super) struct LockedSecrets {
    pub(super) secrets: Secrets,
    /// Their pages; gone after the values are wiped.
    pub(super) pages: Vec<Locked>,
    /// By what they are known again when they are wiped.
    pub(super) marks: Marks,
}

/// A value in locked memory.
struct LockedText {
    text: Zeroizing<String>,
    pages: Locked,
}

/// Why a value cannot be used, without a word of it.
struct Unread {
    why: String,
    /// What helps, where it is not the source that has to be mended.
    fix: Option<&'static str>,
}

impl From<String> for Unread {
    fn from(why: String) -> Self {
        Self { why, fix: None }
    }
}

impl From<&'static str> for Unread {
    fn from(why: &'static str) -> Self {
        Self::from(why.to_owned())
    }
}

impl LockedText {
    fn new(text: Zeroizing<String>) -> Result<Self, Unread> {
        let unlocked = |error: sys::error::Error| Unread {
            why: format!("cannot be kept in locked memory ({})", error.errno),
            fix: Some("raise RLIMIT_MEMLOCK where fumehood is started (`ulimit -l`, `LimitMEMLOCK=` of a unit)"),
        };
        let pages = sys::memory::lock(text.as_bytes()).map_err(unlocked)?;
        Ok(Self { text, pages })
    }
}

/// Reads the values that a plan asks for.
///
/// # Errors
/// Every one that cannot be read or used, without a word of it.
pub(super) fn read(plan: &Plan, environment: &Environment) -> Result<LockedSecrets, Error> {
    let LockedSecrets { secrets: mut all, mut pages, marks: _ } = LockedSecrets::default();
    if !plan.controls().any(|control| *control == Control::Secrets) {
        return Ok(LockedSecrets::default());
    }
    let mut marks = Marks::new().ok_or_else(not_random)?;
    let secrets = &plan.policy.secrets;
    let mut faults = Vec::new();
    for (name, secret) in secrets {
        let placeholder = secret.env.is_some().then(placeholder).transpose()?;
        match value((name, secret), placeholder.clone(), (&plan.policy, environment), &mut marks) {
            Ok(value) => {
                all.values.insert(name.clone(), Hidden(value.text));
                pages.push(value.pages);
                all.placeholders.extend(placeholder.map(|text| (name.clone(), text)));
            }
            Err(why) => faults.push(unread(name, &secret.from, &why)),
        }
    }
    all.table = secrets_document(secrets);
    if faults.is_empty() { Ok(LockedSecrets { secrets: all, pages, marks }) } else { Err(Error::Refused(faults)) }
}

/// The variables that hold placeholders.
pub(super) fn variables(policy: &Policy, secrets: &Secrets) -> BTreeMap<OsString, OsString> {
    let one = |(name, secret): (&String, &Secret)| {
        Some((OsString::from(secret.env.as_ref()?), OsString::from(secrets.placeholders.get(name)?)))
    };
    policy.secrets.iter().filter_map(one).collect()
}

/// What stands for a value inside: random, so that it is nobody's else, and of characters that programs take in a token.
fn placeholder() -> Result<String, Error> {
    let mut bytes = [0; RANDOM];
    if !sys::random::fill(&mut bytes) {
        return Err(not_random());
    }
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("fumehood-{hex}"))
}

fn not_random() -> Error {
    Error::failed(Fault {
        id: "secrets/unread",
        what: "no random bytes can be had".to_owned(),
        place: "secrets".to_owned(),
        why: "getrandom(2) is not let through".to_owned(),
        fix: "let it through".to_owned(),
    })
}

/// The value of one, as it can be used; by its mark it is known again.
fn value(
    (name, secret): (&str, &Secret),
    placeholder: Option<String>,
    (policy, environment): (&Policy, &Environment),
    marks: &mut Marks,
) -> Result<LockedText, Unread> {
    let mut value = found_in(&secret.from, policy, environment)?;
    if let SecretUse::Sign(signing) = &secret.put {
        let also = |what: &str, source: &SecretSource| {
            let told = |Unread { why, fix }| Unread {
                why: format!("cannot be used: its {what} ({}) {why}", named(source)),
                fix,
            };
            found_in(source, policy, environment).map_err(told)
        };
        let id = also("key_id", &signing.key_id)?;
        let token = signing.session_token.as_ref().map(|token| also("session_token", token)).transpose()?;
        let token = token.as_ref().map(|token| token.text.as_str());
        value = LockedText::new(sign::joined(&id.text, &value.text, token))?;
    }
    // The broker's own reading of it, so that what it would refuse is refused before anything is started.
    let loaded = LoadedSecret::new(String::new(), secret.clone(), &value.text, placeholder)?;
    for hidden in loaded.values() {
        if let Some(variable) = shown_by(hidden, policy, environment) {
            let why = format!("stands in the variable `{variable}` too, which the policy shows inside");
            return Err(Unread { why, fix: Some("leave that variable out of `env.set`, `env.pass` and the inputs") });
        }
        marks.add(name, hidden.as_bytes());
    }
    Ok(value)
}

/// A variable of the program's that has a value, whatever it is called outside.
fn shown_by<'a>(text: &str, policy: &'a Policy, environment: &Environment) -> Option<&'a String> {
    let has = |value: &OsStr| value.to_string_lossy().contains(text);
    let set = policy.env.set.iter().find(|(_, value)| has(OsStr::new(value))).map(|(name, _)| name);
    let given =
        || policy.inputs.iter().find(|(_, input)| input.value.as_ref().is_some_and(|value| has(OsStr::new(value))));
    let passed = || policy.env.pass.iter().find(|name| environment.value(name).is_some_and(has));
    set.or_else(|| given().map(|(name, _)| name)).or_else(passed)
}

/// Whether a value can be kept as a secret that is a whole header of requests; `public`: one that everybody may see.
///
/// # Errors
/// Why not, without a word of it.
pub fn fits_header(name: &str, value: &str, public: bool) -> Result<(), &'static str> {
    let secret = Secret {
        from: SecretSource::Env(String::new()),
        hosts: vec!["example.org".to_owned()],
        ports: vec![443],
        methods: Vec::new(),
        paths: Vec::new(),
        put: SecretUse::Header { name: name.to_owned(), format: "{}".to_owned(), public },
        env: None,
    };
    LoadedSecret::new(String::new(), secret, value, None).map(drop)
}

/// The text that a source has.
fn found_in(from: &SecretSource, policy: &Policy, environment: &Environment) -> Result<LockedText, Unread> {
    let bytes = match from {
        SecretSource::Env(name) => {
            if let Some(Hidden(value)) = environment.given.get(name) {
                return LockedText::new(value.clone());
            }
            let value = environment.value(name).ok_or("is not set")?;
            Zeroizing::new(value.as_bytes().to_vec())
        }
        SecretSource::File(path) => from_file(path, policy, &environment.copied)?,
        SecretSource::Command(words) => secret_command::printed(words, policy, environment, MAX_READ)?,
    };
    let text = std::str::from_utf8(&bytes).map_err(|_not_text| "is no text")?;
    LockedText::new(Zeroizing::new(text.to_owned()))
}

/// A source, as it may be shown.
fn named(from: &SecretSource) -> String {
    match from {
        SecretSource::Env(name) => format!("env:{name}"),
        SecretSource::File(path) => format!("file:{}", show_text(&path.to_string_lossy())),
        // An argument may be one itself.
        SecretSource::Command(words) => format!("command:{}", show_text(words.first().map_or("", String::as_str))),
    }
}

fn from_file(path: &Path, policy: &Policy, copied: &[PathBuf]) -> Result<Zeroizing<Vec<u8>>, String> {
    let told = |error: &std::io::Error| format!("cannot be read: {error}");
    let real = path.canonicalize().map_err(|error| told(&error))?;
    let mounts = crate::mounts::Mounts::default();
    let copied = copied.iter().filter_map(|path| path.canonicalize().ok());
    if let Some(shown) = shown(policy).into_iter().chain(copied).find(|place| mounts.shows(place, &real)) {
        return Err(format!("lies in `{}`, which the policy shows inside", show_text(&shown.to_string_lossy())));
    }
    // Whoever may turn a link on the way says which of the caller's files the next run reads.
    if let Some(place) = WritablePlaces::of(policy).met_by(path) {
        let place = show_text(&place.to_string_lossy());
        return Err(format!("is reached by a link in `{place}`, where programs inside may write"));
    }
    // Neither a pipe that nobody writes to nor a device may hold the start up.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(&real).map_err(|error| told(&error))?;
    let stat = file.metadata().map_err(|error| told(&error))?;
    if !stat.is_file() {
        return Err("is no regular file".to_owned());
    }
    // Where its other names are nobody can say: one may lie where programs inside read.
    let names = stat.nlink();
    if names > 1 {
        return Err(format!("has {names} names (hard links), and the policy may show another of them inside"));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_READ));
    file.take(MAX_READ as u64).read_to_end(&mut bytes).map_err(|error| told(&error))?;
    Ok(bytes)
}

/// Places of the host that the program can read.
fn shown(policy: &Policy) -> Vec<PathBuf> {
    let workspace = policy.workspace.path.iter().filter(|_| policy.workspace.mode != WorkspaceMode::None);
    let grants = policy.fs.read.iter().chain(&policy.fs.write).map(|grant| &grant.from);
    let root: Vec<PathBuf> = match &policy.fs.root {
        Root::Host => TOOLS.iter().map(PathBuf::from).chain(shown_of_etc()).collect(),
        root @ (Root::Dir(_) | Root::Image(_) | Root::Empty) => root.tree().map(Path::to_owned).into_iter().collect(),
    };
    workspace.chain(grants).chain(&root).filter_map(|path| path.canonicalize().ok()).collect()
}

/// What of the host's `/etc` stands in the one inside.
fn shown_of_etc() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/etc").into_iter().flatten();
    let names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    backends::shown_of_etc(&names).into_iter().map(|name| Path::new("/etc").join(name)).collect()
}

fn unread(name: &str, from: &SecretSource, Unread { why, fix }: &Unread) -> Fault {
    let of_source = match from {
        SecretSource::Env(name) => format!("set `{name}` to the secret where fumehood is started"),
        SecretSource::File(_) => {
            "write the secret, on one line, into a file of one name where the policy shows nothing of it".to_owned()
        }
        SecretSource::Command(_) => "mend the command: it prints the secret, on one line, and ends with 0".to_owned(),
    };
    Fault {
        id: "secrets/unread",
        what: format!("`secrets.{}` cannot be used", show_text(name)),
        place: named(from),
        why: format!("the secret {why}"),
        fix: fix.map_or(of_source, str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use policy::{Caller, Layers};

    use super::*;

    /// How long this test may take when it is started again.
    const LIMIT: Duration = Duration::from_secs(30);

    /// Set where this test was started again with no right to lock.
    const AGAIN: &str = "FUMEHOOD_NO_MEMLOCK";
    const VALUE: &str = "0123456789abcdef";

    /// A value that a caller gave, one of a file and one that a command prints.
    fn each() -> Vec<Result<LockedText, Unread>> {
        let root = PathBuf::from("/");
        let layers = Layers::new(Caller { dir: root.clone(), home: None, profiles: vec!["default".to_owned()] });
        let policy = layers.finish().unwrap().policy;
        let mut environment = Environment { cwd: Some(root), ..Environment::default() };
        environment.given.insert("GIVEN".to_owned(), Hidden(Zeroizing::new(VALUE.to_owned())));
        environment.env.insert("PATH".into(), "/usr/bin:/bin".into());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, VALUE).unwrap();
        let command = ["printf", VALUE].map(str::to_owned).to_vec();
        let sources = [SecretSource::Env("GIVEN".to_owned()), SecretSource::File(file), SecretSource::Command(command)];
        sources.iter().map(|source| found_in(source, &policy, &environment)).collect()
    }

    /// Whether the kernel keeps the page in memory in which this text begins.
    fn is_locked(text: &str) -> bool {
        let (at, mut inside) = (text.as_ptr().addr(), false);
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
            let range = line.split_ascii_whitespace().next().and_then(|word| word.split_once('-'));
            if let Some((Some(from), Some(to))) = range.map(|(from, to)| (number(from), number(to))) {
                inside = (from..to).contains(&at);
            } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.split_ascii_whitespace().any(|flag| flag == "lo");
            }
        }
        panic!("it is mapped somewhere")
    }

    /// Starts one test again by `unshare`, with a variable by which it knows; it passes.
    fn passes_again(words: impl Iterator<Item = String>, (name, value): (&str, &OsStr)) {
        let mut command = sys::command::Command::new("/usr/bin/unshare").args(words.collect::<Vec<_>>());
        for (name, value) in std::env::vars_os().chain([(name.into(), value.to_owned())]) {
            command = command.variable(OsStr::from_bytes(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
        }
        let output = command.output(b"", 1 << 16, LIMIT).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.end == sys::pidfd::End::Exited(0) && said.contains("1 passed"), "{said}");
    }

    /// A value is in locked memory for as long as it is held, whatever its source, and no run starts where none can be locked.
    #[test]
    fn a_value_that_is_held_is_locked_or_refused() {
        if std::env::var_os(AGAIN).is_some() {
            for refused in each() {
                let Err(unread) = refused else { panic!("it was taken") };
                let fault = unread_fault(&unread);
                assert!(fault.why.contains("locked memory") && fault.fix.contains("RLIMIT_MEMLOCK"), "{fault:?}");
                assert!(!format!("{fault:?}").contains(VALUE));
            }
            return;
        }
        let beside = VALUE.to_owned();
        for found in each() {
            let Ok(value) = found else { panic!("it can be read") };
            assert!(value.text.as_str() == VALUE && is_locked(&value.text));
        }
        assert!(!is_locked(&beside), "nothing is locked for ever");
        let own = std::env::current_exe().unwrap();
        let words =
            ["--user", "--map-root-user", "--", "prlimit", "--memlock=0:0", "--", own.to_str().unwrap(), "--exact"];
        let test = "run::secrets::tests::a_value_that_is_held_is_locked_or_refused";
        let words = words.into_iter().chain([test, "--nocapture"]).map(str::to_owned);
        passes_again(words, (AGAIN, OsStr::new("1")));
    }

    /// Parts of the host's `/etc` stand inside, and so do all folders of its tools.
    #[test]
    fn a_file_of_the_hosts_own_that_stands_inside_is_refused() {
        let caller = Caller { dir: PathBuf::from("/"), home: None, profiles: vec!["default".to_owned()] };
        let mut policy = Layers::new(caller).finish().unwrap().policy;
        assert!(policy.fs.root == Root::Host && policy.workspace.mode == WorkspaceMode::None);
        for name in ["/etc/ld.so.cache", "/etc/ssl/openssl.cnf", "/usr/bin/env", "/lib64/ld-linux-x86-64.so.2"] {
            if Path::new(name).exists() {
                let why = from_file(Path::new(name), &policy, &[]).unwrap_err();
                assert!(why.contains("which the policy shows inside"), "{name}: {why}");
            }
        }
        let shadow = from_file(Path::new("/etc/shadow"), &policy, &[]);
        assert!(!shadow.is_err_and(|why| why.contains("shows inside")), "this is no part that is shown");
        policy.fs.root = Root::Empty;
        assert!(!shown(&policy).iter().any(|place| place.starts_with("/etc")));
    }

    /// `work/token -> aside/token`: whoever may turn that link has the next run read what it likes of the caller's.
    #[test]
    fn a_file_that_a_link_leads_to_which_programs_inside_may_turn_is_refused() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let (work, at) = (folder.path().join("work"), |name: &str| folder.path().join(name));
        for name in ["work", "aside"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("aside/token"), VALUE).unwrap();
        symlink("../aside/token", at("work/token")).unwrap();
        // One that leads there, and a folder by which the way goes.
        symlink(at("work/token"), at("aside/far")).unwrap();
        symlink("../aside", at("work/folder")).unwrap();
        let read = |mode: &str, name: &str| {
            let mut layers =
                Layers::new(Caller { dir: work.clone(), home: None, profiles: vec!["default".to_owned()] });
            for set in [format!("workspace.mode={mode:?}"), format!("workspace.path={work:?}")] {
                layers.set(&set);
            }
            from_file(&at(name), &layers.finish().unwrap().policy, &[])
        };
        for (mode, name) in ["rw", "overlay", "copy"]
            .iter()
            .flat_map(|mode| ["work/token", "aside/far", "work/folder/token"].map(|name| (mode, name)))
        {
            let why = read(mode, name).unwrap_err();
            assert!(why.contains("where programs inside may write"), "{mode} {name}: {why}");
        }
        assert_eq!(read("rw", "aside/token").unwrap().as_slice(), VALUE.as_bytes());
        assert_eq!(read("ro", "work/token").unwrap().as_slice(), VALUE.as_bytes(), "nobody inside turns it");
    }

    /// What another mount of its folder shows is shown: the policy here shows `bm` alone.
    #[test]
    fn a_file_that_another_mount_shows_is_refused() {
        const FOLDER: &str = "FUMEHOOD_BOUND";
        if let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) {
            let mut layers =
                Layers::new(Caller { dir: folder.clone(), home: None, profiles: vec!["default".to_owned()] });
            layers.set(&format!("fs.read=[{:?}]", folder.join("bm")));
            let policy = layers.finish().unwrap().policy;
            assert!(
                from_file(&folder.join("sub/k"), &policy, &[]).unwrap_err().contains("which the policy shows inside")
            );
            assert_eq!(from_file(&folder.join("k"), &policy, &[]).unwrap().as_slice(), VALUE.as_bytes());
            let copied = [folder.clone()];
            assert!(from_file(&folder.join("k"), &policy, &copied).unwrap_err().contains("which the policy shows"));
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        for name in ["sub", "bm"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        for name in ["sub/k", "k"] {
            std::fs::write(folder.path().join(name), VALUE).unwrap();
        }
        let script = "cd \"$1\" && mount --bind sub bm && exec \"$2\" --exact \"$3\" --nocapture";
        let test = "run::secrets::tests::a_file_that_another_mount_shows_is_refused";
        let (folder, own) = (folder.path().canonicalize().unwrap(), std::env::current_exe().unwrap());
        let words = ["--user", "--map-root-user", "--mount", "--", "sh", "-c", script, "sh"].map(str::to_owned);
        let more = [folder.to_str().unwrap(), own.to_str().unwrap(), test].map(str::to_owned);
        passes_again(words.into_iter().chain(more), (FOLDER, folder.as_os_str()));
    }

    #[test]
    fn a_value_that_another_variable_shows_is_refused() {
        let mut layers =
            Layers::new(Caller { dir: PathBuf::from("/"), home: None, profiles: vec!["default".to_owned()] });
        let (rule, secret) =
            ("net.allow=[\"api.test\"]", r#"secrets={ api = { from = "env:API", hosts = ["api.test"] } }"#);
        for set in ["net.mode=allow", rule, secret, "env.pass=[\"OTHER\"]", "env.set={ MINE = \"a\" }"] {
            layers.set(set);
        }
        let mut policy = layers.finish().unwrap().policy;
        let mut environment = Environment::default();
        environment.env.insert("API".into(), VALUE.into());
        let read = |policy: &Policy, environment: &Environment| {
            let secret = ("api", &policy.secrets["api"]);
            let found = value(secret, None, (policy, environment), &mut Marks::new().unwrap());
            found.map(drop).map_err(|why| unread_fault(&why))
        };
        environment.env.insert("OTHER".into(), "another".into());
        assert!(read(&policy, &environment).is_ok());
        environment.env.insert("OTHER".into(), format!("Bearer {VALUE}").into());
        let fault = read(&policy, &environment).unwrap_err();
        assert!(fault.why.contains("`OTHER`") && !format!("{fault:?}").contains(VALUE), "{fault:?}");
        environment.env.remove(OsStr::new("OTHER"));
        policy.env.set.insert("MINE".to_owned(), VALUE.to_owned());
        assert!(read(&policy, &environment).unwrap_err().why.contains("`MINE`"));
        policy.env.set.clear();
        let (value, kind) = (Some(VALUE.to_owned()), policy::value::InputType::String);
        let input =
            policy::value::Input { kind, max_length: None, one_of: None, pattern: None, required: false, value };
        policy.inputs.insert("given".to_owned(), input);
        assert!(read(&policy, &environment).unwrap_err().why.contains("`given`"));
        policy.inputs.clear();
        policy.env.set.insert("MINE".to_owned(), VALUE.to_owned());
        // What a server reads by itself is no less secret, nor is what signs beside the key.
        environment.env.insert("API".into(), format!("Bearer {VALUE}").into());
        assert!(read(&policy, &environment).unwrap_err().why.contains("`MINE`"));
        let mut signs =
            Layers::new(Caller { dir: PathBuf::from("/"), home: None, profiles: vec!["default".to_owned()] });
        let secret = "secrets={ api = { kind = \"aws-sigv4\", from = \"env:KEY\", key_id = \"env:ID\", session_token = \
                      \"env:API\", region = \"eu-west-1\", service = \"s3\", hosts = [\"api.test\"] } }";
        for set in ["net.mode=allow", rule, secret] {
            signs.set(set);
        }
        let mut signs = signs.finish().unwrap().policy;
        environment.env.insert("API".into(), VALUE.into());
        environment.env.insert("KEY".into(), "fedcba9876543210".into());
        environment.env.insert("ID".into(), "AKIDEXAMPLE".into());
        assert!(read(&signs, &environment).is_ok());
        signs.env.set.insert("MINE".to_owned(), VALUE.to_owned());
        assert!(read(&signs, &environment).unwrap_err().why.contains("`MINE`"));
    }

    fn unread_fault(why: &Unread) -> Fault {
        unread("api", &SecretSource::Env("GIVEN".to_owned()), why)
    }
}
