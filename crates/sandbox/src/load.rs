//! Documents and flags become one policy: the reading that `policy` may not do itself.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use policy::diagnostic::{Diagnostic, SourceLocation, did_you_mean};
use policy::document::MAX_BYTES;
use policy::tools::Reach;
use policy::value::{NetMode, ReadFrom};
use policy::{Caller, ClauseId, Diagnostics, Layers, Loaded, Policy};
use rustix::fs::{Mode, OFlags};

use crate::environment::{Environment, TRUST_STORES};
use crate::error::Error;
use crate::fault::Fault;
use crate::identity;
use crate::image;
use crate::links;

/// One layer of a policy, as the user gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyLayer {
    /// The name of a preset, or the path of a document.
    Document(String),
    /// A flag of a clause, e.g. `--memory` and `512M`.
    Flag {
        /// With its dashes.
        name: String,
        /// As typed.
        value: String,
    },
    /// `CLAUSE=VALUE`
    Set(String),
}

/// Whether the inputs of a policy must be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// Now: something is to be run.
    Now,
    /// Later: the policy is only looked at.
    Later,
}

/// The policy that these layers make, the weakest first. What `[tools]` says of calls is judged by whoever has a gate.
///
/// # Errors
/// [`Error::Mistakes`] with everything that is wrong, or a current directory that is gone.
pub fn load(layers: &[PolicyLayer], environment: &Environment, inputs: Inputs) -> Result<Loaded, Error> {
    let dir = here(environment, "flags and presets are relative to it")?.to_owned();
    let mut made = Layers::new(Caller { dir, home: environment.home.clone(), profiles: profiles() });
    links::ours(environment).into_iter().for_each(|folder| made.keep_private(folder));
    if inputs == Inputs::Later {
        made.without_inputs();
    }
    let documents = RefCell::new(BTreeSet::new());
    let read = |path: &Path| {
        documents.borrow_mut().insert(path.to_owned());
        read(path)
    };
    for layer in layers {
        match layer {
            PolicyLayer::Document(value) => made.policy(value, &read),
            PolicyLayer::Flag { name, value } => made.flag(name, value),
            PolicyLayer::Set(assignment) => made.set(assignment),
        }
    }
    let mut loaded = made.finish().map_err(Error::Mistakes)?;
    loaded.documents.files = documents.take();
    loaded.policy.documents = ReadFrom(loaded.documents.files.clone());
    loaded.policy.documents.0.extend(trusts(&loaded.policy, environment));
    calls_exist(&loaded)?;
    links::lead_nowhere_dangerous(&loaded, environment)?;
    links::log_is_out_of_reach(&loaded)?;
    identity::take(&mut loaded, environment);
    image::take(&mut loaded, environment.images, &environment.state);
    Ok(loaded)
}

/// Files that say which servers get what the policy sends, its secrets too, and who is confined how: as much a part of it as its
/// documents.
fn trusts(policy: &Policy, environment: &Environment) -> Vec<PathBuf> {
    let stores = if policy.net.mode == NetMode::Allow { stores(environment) } else { Vec::new() };
    let servers = policy.tools.iter().flat_map(|tools| tools.mcp.servers.values());
    let of_servers = servers.flat_map(|server| {
        let import = match &server.value.reach {
            Reach::Import(path) => Some(path.clone()),
            Reach::Command { .. } | Reach::Url { .. } => None,
        };
        // A preset is no file.
        let policy = Some(PathBuf::from(&server.value.policy.value)).filter(|path| path.is_absolute());
        import.into_iter().chain(policy)
    });
    let beside = environment.documents.iter().cloned();
    policy.net.ca.iter().cloned().chain(stores).chain(of_servers).chain(beside).collect()
}

/// What the variables of a store of certificates name, as whoever verifies servers reads them: a file, and a list of folders, from
/// where the caller stands; with the links in such a folder, which lead where they like.
fn stores(environment: &Environment) -> Vec<PathBuf> {
    let [file, folders] = TRUST_STORES.map(|name| environment.variable(name));
    let here = environment.cwd.as_deref().unwrap_or(Path::new("/"));
    let named = |path: &PathBuf| !path.as_os_str().is_empty();
    let file = file.map(PathBuf::from).filter(named).map(|path| here.join(path));
    let folders = folders.into_iter().flat_map(std::env::split_paths).filter(named).map(|path| here.join(path));
    let mut all: Vec<PathBuf> = file.into_iter().collect();
    for folder in folders {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
        all.extend(links.map(|link| link.path()));
        all.push(folder);
    }
    all
}

/// Where the caller stands, or why it matters that there is no such place.
///
/// # Errors
/// The directory was removed.
pub fn here<'a>(environment: &'a Environment, matters: &str) -> Result<&'a Path, Error> {
    environment.cwd.as_deref().ok_or_else(|| {
        Error::failed(Fault {
            id: "state/no-directory",
            what: "there is no current directory".to_owned(),
            place: ".".to_owned(),
            why: format!("it was removed, or cannot be read; {matters}"),
            fix: "change to a directory that is there".to_owned(),
        })
    })
}

/// A call that the kernel does not know can be neither allowed nor denied; `policy` has no table of them.
fn calls_exist(loaded: &Loaded) -> Result<(), Error> {
    let syscalls = &loaded.policy.syscalls;
    let lists = [(ClauseId::SyscallsAllow, &syscalls.allow), (ClauseId::SyscallsDeny, &syscalls.deny)];
    let named = lists.iter().flat_map(|(clause, names)| names.iter().map(move |name| (*clause, name)));
    let unknown = named.filter(|(_, name)| sys::seccomp::names::number(name).is_none());
    let list: Vec<Diagnostic> = unknown
        .map(|(clause, name)| Diagnostic {
            id: "value/syscall".to_owned(),
            clause: Some(clause),
            what: format!("`{name}` in `{clause}` is no system call of {}", sys::arch::NAME),
            at: SourceLocation {
                name: loaded.origins.of(clause).to_owned(),
                line_column: None,
                excerpt: String::new(),
            },
            why: "what the kernel does not know can be neither allowed nor denied".to_owned(),
            fix: did_you_mean(name, sys::seccomp::names::all()).map_or_else(
                || "remove it; names are those of `man 2 syscalls`".to_owned(),
                |near| format!("did you mean `{near}`?"),
            ),
        })
        .collect();
    if list.is_empty() { Ok(()) } else { Err(Error::Mistakes(Diagnostics { list })) }
}

/// The names of the system call profiles that ship with the product.
#[must_use]
pub fn profiles() -> Vec<String> {
    sys::seccomp::profiles().iter().map(|name| (*name).to_owned()).collect()
}

/// The kernel's own file system of pipes without a name.
const PIPES: u64 = 0x5049_5045;

/// The text of a document. A pipe that we hold is read as well (`-p <(generate)`), but never more than a document may have.
fn read(path: &Path) -> Result<String, String> {
    let say = |error: std::io::Error| error.to_string().to_lowercase();
    // Asked before it is opened: to open a FIFO waits for whoever writes to it, and to open a device may act.
    let facts = std::fs::metadata(path).map_err(say)?;
    // A pipe without a name has a writer, or ends at once; it is only reached through a descriptor.
    let unnamed = || rustix::fs::statfs(path).is_ok_and(|place| u64::try_from(place.f_type) == Ok(PIPES));
    let held = facts.file_type().is_fifo() && unnamed();
    if facts.is_dir() {
        return Err("it is a directory".to_owned());
    }
    if !facts.is_file() && !held {
        return Err("it is no regular file, and reading it might never end".to_owned());
    }
    // What is exchanged meanwhile is opened without waiting, and then ends at once.
    let flags = if held { OFlags::empty() } else { OFlags::NONBLOCK | OFlags::NOCTTY };
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| say(errno.into()))?);
    let mut bytes = Vec::new();
    // One byte more, so that `policy` sees that it is too long and says so with its place.
    let most = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut bytes).map_err(say)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let lines = error.as_bytes().iter().take(good).filter(|byte| **byte == b'\n').count();
            Err(format!("it is no UTF-8 text: a byte in line {} fits nowhere", lines.saturating_add(1)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_trusted_is_a_part_of_the_policy() {
        let mut environment = Environment { cwd: Some(PathBuf::from("/")), ..Environment::default() };
        environment.env.insert("SSL_CERT_FILE".into(), "/w/roots.pem".into());
        let read_from = |sets: &[&str]| {
            let layers: Vec<_> = sets.iter().map(|set| PolicyLayer::Set((*set).to_owned())).collect();
            load(&layers, &environment, Inputs::Later).unwrap().policy.documents.0
        };
        assert_eq!(read_from(&[]), BTreeSet::new());
        let with = ["net.mode=allow", "net.allow=[\"a.test\"]", "net.ca=[\"/w/corp.pem\"]"];
        assert_eq!(read_from(&with), ["/w/corp.pem", "/w/roots.pem"].map(PathBuf::from).into());
    }

    #[test]
    fn a_store_is_read_as_whoever_verifies_servers_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let (here, at) = (folder.path(), |name: &str| folder.path().join(name));
        std::fs::create_dir(at("certs")).unwrap();
        std::fs::write(at("certs/plain.0"), "").unwrap();
        std::os::unix::fs::symlink("../corp.pem", at("certs/link.0")).unwrap();
        let named = |variables: &[(&str, &str)]| {
            let mut environment = Environment { cwd: Some(here.to_owned()), ..Environment::default() };
            environment.env.extend(variables.iter().map(|(name, value)| (name.into(), value.into())));
            stores(&environment)
        };
        assert_eq!(named(&[("SSL_CERT_FILE", "corp.pem"), ("SSL_CERT_DIR", "")]), [at("corp.pem")]);
        let folders = [at("certs/link.0"), at("certs"), PathBuf::from("/nowhere")];
        assert_eq!(named(&[("SSL_CERT_FILE", ""), ("SSL_CERT_DIR", "certs::/nowhere")]), folders);
    }
}
