//! What a start needs beside the plan.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use policy::Control;
use policy::value::Grant;

use crate::trust::{self, Certificates};

/// First descriptor of the guest after the fixed ones.
pub(crate) const FIRST_EXTRA: u32 = 5;

/// Where the payload's standard streams lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdio {
    /// Pipes of the supervisor.
    Pipes,
    /// Pipes, but nothing to read.
    NoInput,
    /// A terminal of its own, of this size (rows, columns).
    Terminal(u16, u16),
    /// A socket as its stdin, to speak with the supervisor; what it prints is thrown away.
    Socket,
    /// Sockets as its stdin and its stdout, both of which are spoken with; a pipe for its errors.
    Sockets,
    /// A socket as its stdin, by which it is spoken with; pipes for what it prints.
    Spoken,
}

/// A program of ours that is given as a descriptor, so that it needs no path inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnProgram {
    /// These bytes: a static executable.
    Bytes(&'static [u8]),
    /// A file of the host, opened at the start. In the process tier it must be among the executables of the plan.
    File(PathBuf),
}

/// What a start needs beside the plan.
#[derive(Debug)]
pub struct Launch {
    /// Run id.
    pub run: String,
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// The program itself, where it is one of ours and has no path inside: a static executable.
    pub program: Option<OwnProgram>,
    /// Shown read-only beside the policy's grants: a script, our own probe.
    pub show: Vec<Grant>,
    /// Files of ours, shown read-only below `/run/fumehood`: name and content (container tier).
    pub files: Vec<(String, Vec<u8>)>,
    /// Who is trusted inside, beyond the image's own roots.
    pub trust: Option<Trust>,
    /// A git folder that lies elsewhere, in this order: what comes later lies on top.
    pub git: Vec<GitPart>,
    /// Paths below a read-write workspace that are protected, the outermost first.
    pub protect: Vec<Protect>,
    /// What is covered inside: what the plan hides, and sockets of the host, as they were found in grants.
    pub covered: Vec<Grant>,
    /// The caller puts something into the workspace's layer before anything runs: the start waits for it.
    pub laid: bool,
    /// The paths of grants and the workspace were judged as they are: one that leads through a link is refused.
    pub no_links: bool,
    /// Values of `env.pass` that the caller has, and what stands for secrets inside.
    pub passed: BTreeMap<OsString, OsString>,
    /// Variables that judged commands must have; nothing of the policy undoes them.
    pub forced: Vec<(OsString, OsString)>,
    /// Standard streams.
    pub stdio: Stdio,
    /// `TERM` of the caller, for a terminal.
    pub term: Option<OsString>,
    /// A 0700 folder of ours, where the process tier writes; made by the caller and removed by it.
    pub tmp: Option<PathBuf>,
    /// A folder of ours for what later starts can use again; without it nothing is kept.
    pub cache: Option<PathBuf>,
    /// A folder of the caller's alone for prepared machines (vm tier); without it each one boots.
    pub machines: Option<PathBuf>,
    /// What a machine begins with instead of a boot, and goes on from: all that another one was (vm tier).
    pub memory: Option<Arc<Remembered>>,
    /// Tests of the proof alone: what is done otherwise than planned, so that the start must fail.
    #[cfg(feature = "mutation")]
    pub mutation: Mutation,
}

/// What is done otherwise than planned.
#[cfg(feature = "mutation")]
#[derive(Clone, Debug, Default)]
pub struct Mutation {
    /// These controls of the plan are left out.
    pub without: Vec<Control>,
    /// In the place of each first control of the plan the second one is applied.
    pub instead: Vec<(Control, Control)>,
    /// The guest is told something else than what was prepared, of which the proof knows nothing.
    pub told: Option<fn(&mut guest::config::Config)>,
}

/// What the caller found on the host for controls that say what to look for. It is handed to the proof by itself, beside what the
/// start is given: a start that was given less than was found leaves no evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundPaths {
    /// As [`Launch::protect`].
    pub protect: Vec<Protect>,
    /// As [`Launch::covered`].
    pub covered: Vec<Grant>,
}

impl Launch {
    /// What is applied for a control of the plan: itself, but in tests of the proof.
    #[cfg(feature = "mutation")]
    pub(crate) fn applied<'a>(&'a self, control: &'a Control) -> Option<&'a Control> {
        let Mutation { without, instead, told: _ } = &self.mutation;
        let other = instead.iter().find(|(planned, _)| planned == control).map(|(_, other)| other);
        (!without.contains(control)).then_some(other.unwrap_or(control))
    }

    /// What is applied for a control of the plan: itself.
    #[cfg(not(feature = "mutation"))]
    #[expect(clippy::unused_self, reason = "the other build has one")]
    pub(crate) const fn applied<'a>(&'a self, control: &'a Control) -> Option<&'a Control> {
        Some(control)
    }
}

/// All that a machine was at one moment, as [`super::Running::remember`] told of it, and open for reading. Whoever keeps it answers for
/// its content.
#[derive(Debug)]
pub struct Remembered {
    /// What must be the same: see [`Memory::kind`].
    pub kind: String,
    /// Its memory and its devices.
    pub state: File,
    /// The image of its root.
    pub root: File,
    /// See [`Memory::machine_id`].
    pub machine_id: Option<String>,
}

/// What is told of a machine that was written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The digest of what another machine must have in common with it to go on from there: emulator, its words, kernel, agent.
    pub kind: String,
    /// SHA-256 of what was written, in hexadecimal digits.
    pub digest: String,
    /// Bytes of it.
    pub bytes: u64,
    /// The image of its root, which goes with it.
    pub root: PathBuf,
    /// The file of the root in whose place an empty one is shown, because it is a machine's id.
    pub machine_id: Option<String>,
}

/// A git folder that lies outside the workspace; it keeps its path inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GitPart {
    /// Shown read-only.
    ReadOnly(PathBuf),
    /// Writable inside, in a layer of its own, which is handed out under this number, or ends with the run.
    Layered(PathBuf, Option<u32>),
    /// A name by which git's own pointers lead to it, or back to the workspace.
    Link {
        /// Inside.
        at: PathBuf,
        /// What it leads to, inside.
        to: PathBuf,
    },
}

impl GitPart {
    /// The folder, where it is one and no name for one.
    pub(crate) const fn folder(&self) -> Option<&PathBuf> {
        match self {
            Self::ReadOnly(path) | Self::Layered(path, _) => Some(path),
            Self::Link { .. } => None,
        }
    }
}

/// How a path below a read-write workspace is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protect {
    /// Cannot be renamed or removed.
    Pinned(PathBuf),
    /// Cannot be changed at all.
    ReadOnly(PathBuf),
    /// A folder that is changed in a layer alone, which is handed out under this number. Where the kernel layers nothing it
    /// is read-only.
    Layered(PathBuf, u32),
}

/// Root certificates that programs inside trust: those of the machine, of `net.ca`, and the run's own authority.
#[derive(Clone, Debug)]
pub struct Trust {
    /// PEM, all of them.
    pub bundle: Vec<u8>,
    /// The same as a store that Java reads.
    pub java: Vec<u8>,
}

impl Trust {
    /// What is to be read where programs look.
    pub(crate) fn certificates(&self) -> Certificates {
        Certificates::new(self.bundle.clone())
    }

    /// As files below `/run/fumehood`.
    pub(crate) fn files(&self) -> [(String, Vec<u8>); 2] {
        let of = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
        [of(trust::FILE, &self.bundle), of(trust::JAVA_FILE, &self.java)]
    }
}
