//! Profiles: named files of rules, put together for one start.

use std::borrow::Cow;

use super::compile::{CompileError, Program};
use super::names;
use super::rule::{Action, All, Calls, Filter, Verdict};

/// One file of `resources/seccomp`, as the build read it.
#[derive(Debug)]
struct Stored {
    name: &'static str,
    about: &'static str,
    include: &'static [&'static str],
    rules: &'static [StoredRule],
}

#[derive(Debug)]
struct StoredRule {
    calls: &'static [u32],
    why: &'static str,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// Takes the place of what was said before.
    Is(Verdict),
    /// More alternatives in which the call runs.
    Also { any: Cow<'static, [All]>, otherwise: Action },
}

/// `static FILES: &[Stored]`, sorted by name; see `build.rs`.
mod stored {
    use std::borrow::Cow;

    use super::super::rule::{Action, Condition, Test, Verdict, Width};
    use super::{Form, Stored, StoredRule};
    use crate::arch::numbers;

    include!(concat!(env!("OUT_DIR"), "/seccomp.rs"));
}

/// Calls that no policy can allow as a whole, and why.
const RESERVED: [(&[&str], &str); 6] = [
    (&["socket", "socketpair"], "the network clauses decide which sockets can be made"),
    (&["clone", "clone3", "unshare", "setns"], "new namespaces give a program capabilities over the kernel"),
    (
        &[
            "close_range",
            "fcntl",
            "fallocate",
            "ioctl",
            "setsockopt",
            "mmap",
            "memfd_create",
            "setxattr",
            "lsetxattr",
            "fsetxattr",
            "setxattrat",
            "file_setattr",
            "mbind",
            "set_mempolicy_home_node",
            "io_setup",
        ],
        "by some of its arguments a program has files, locks, blocks and memory that nobody can count",
    ),
    (&["seccomp"], "a listener would see the arguments of its children's calls"),
    (&["keyctl", "add_key", "request_key"], "keys belong to the user outside as well"),
    (&["io_uring_setup", "io_uring_enter", "io_uring_register"], "no filter sees what goes through a ring"),
];

/// Calls that no profile has as a whole and that a policy may add all the same, and what was found when they were looked at. What is
/// neither here nor open in a profile cannot be added: a kernel's newer call may be the twin of one that is held.
pub(super) const ADDABLE: [(&[&str], &str); 5] = [
    (
        &["kcmp", "pidfd_getfd", "process_vm_readv", "process_vm_writev"],
        "the kernel asks of the other process whether the caller may trace it, as for ptrace: none outside",
    ),
    (&["personality"], "weakens the program that asks, and those that it starts, alone"),
    (
        &["prlimit64"],
        "reaches the run's own processes, and hard limits only go down; narrowed where it would reach others",
    ),
    (
        &["chmod", "fchmod", "fchmodat", "fchmodat2"],
        "set-user-id bits of files that the run may change: they count nowhere inside, and show on the host where these are its own",
    ),
    (
        &["getxattrat", "listxattrat", "removexattrat", "file_getattr", "cachestat"],
        "as the older calls, which profiles have",
    ),
];

/// Why a call that nobody looked at cannot be added.
const UNKNOWN: &str = "no profile has it, and it is none of those that were looked at: what it would undo is not known";

/// Profiles that a user may name; the other files are parts of them.
const NAMED: &[&str] = &["default", "image-build", "node", "python", "strict"];

/// Parts that hold a clause by what they refuse: what they speak of cannot be allowed as a whole.
const NARROWING: &[&str] = &[
    "net/no-names",
    "shared-pids",
    "shared-files",
    "shared-locks",
    "counted-memory",
    "no-rules",
    "no-memfd",
    "gvisor",
];

/// What the surroundings of a start add to a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// AF_UNIX sockets may be made by name; without, only socketpairs.
    pub unix_sockets: bool,
    /// IPv4 and IPv6 stream and datagram sockets may be made.
    pub inet_sockets: bool,
    /// Processes outside the sandbox share the pid namespace: calls that reach another process by number are narrowed to
    /// the caller itself where Landlock does not scope them.
    pub shared_pids: bool,
    /// Files of the host are shown as they are, or cannot be written to by Landlock alone: nothing acts on them through a
    /// descriptor that only reads.
    pub shared_files: bool,
    /// Folders of the host that nobody granted can be told of: none is watched.
    pub shared_watches: bool,
    /// Locks of whole files are among that.
    pub shared_locks: bool,
    /// Processes may become undumpable: nobody counts by looking into them.
    pub undumpable: bool,
    /// Memory is counted by looking at processes and files: what shows in neither cannot be had.
    pub counted_memory: bool,
    /// Something is counted by looking, and programs make no rules of Landlock, which keep what nobody sees.
    pub no_rules: bool,
    /// Memory files may be made. Off where only named files, or none that were written, may be executed: no mount option and no
    /// Landlock rule covers them, and the dynamic loader maps them whatever they are sealed against.
    pub memfd: bool,
    /// The filter is in gVisor's kernel.
    pub gvisor: bool,
}

/// A profile cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No such profile.
    #[error("no profile `{0}`")]
    NoSuchProfile(String),
    /// Not a call of this architecture.
    #[error("`{0}` is no system call of {arch}", arch = crate::arch::NAME)]
    NoSuchCall(String),
    /// Another part of the policy decides this call by its arguments, and allowing it whole would undo that.
    #[error("`{name}` cannot be allowed as a whole: {why}")]
    Reserved {
        /// Call.
        name: String,
        /// What depends on it.
        why: &'static str,
    },
    /// A call without which no program runs.
    #[error("`{0}` cannot be denied: no program ends or starts without it")]
    Needed(String),
}

/// Rules for one start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    filter: Filter,
    /// In the order of the rules: the last about a number counts. Hardly ever read, so nothing is sorted for it.
    why: Vec<(&'static [u32], &'static str)>,
    /// Calls that a part of the surroundings narrows.
    narrowed: Vec<u32>,
}

/// The name of every profile that can be named; reads none of them.
#[must_use]
pub fn profiles() -> &'static [&'static str] {
    NAMED
}

/// (name, what it is for) of every profile that can be named.
pub fn named() -> impl Iterator<Item = (&'static str, &'static str)> {
    NAMED.iter().map(|name| (*name, file(name).map_or("", |file| file.about)))
}

fn file(name: &str) -> Option<&'static Stored> {
    stored::FILES.iter().find(|file| file.name == name)
}

/// Whether it was looked at: by whoever wrote a profile that has it whatever its arguments, or for [`ADDABLE`].
fn is_addable(name: &str, number: u32) -> bool {
    let is_in =
        |profile: &&str| Profile::load(profile, &Surroundings::default()).is_ok_and(|profile| profile.is_open(number));
    ADDABLE.iter().any(|(calls, _)| calls.contains(&name)) || NAMED.iter().any(is_in)
}

impl Profile {
    /// Puts profile `name` together for these surroundings.
    ///
    /// # Errors
    /// [`ProfileError::NoSuchProfile`].
    pub fn load(name: &str, surroundings: &Surroundings) -> Result<Self, ProfileError> {
        if !NAMED.contains(&name) {
            return Err(ProfileError::NoSuchProfile(name.to_owned()));
        }
        let filter = Filter { calls: Calls::new(), unknown: Action::Errno(38) };
        let mut profile = Self { filter, why: Vec::new(), narrowed: Vec::new() };
        profile.include(name, 0);
        let Surroundings {
            unix_sockets,
            inet_sockets,
            shared_pids,
            shared_files,
            shared_watches,
            shared_locks,
            undumpable,
            counted_memory,
            no_rules,
            memfd,
            gvisor,
        } = *surroundings;
        let parts = [
            (unix_sockets, "net/unix"),
            (inet_sockets, "net/loopback"),
            (!inet_sockets && !unix_sockets, "net/no-names"),
            (!inet_sockets, "net/no-fast-open"),
            (shared_pids, "shared-pids"),
            (shared_files, "shared-files"),
            (shared_watches, "shared-watches"),
            (shared_locks, "shared-locks"),
            (counted_memory, "counted-memory"),
            (undumpable, "undumpable"),
            (no_rules, "no-rules"),
            (!memfd, "no-memfd"),
            (gvisor, "gvisor"),
        ];
        for (_, part) in parts.iter().filter(|(wanted, _)| *wanted) {
            profile.include(part, 0);
            if NARROWING.contains(part) {
                profile.narrowed.extend(file(part).iter().flat_map(|file| file.rules).flat_map(|rule| rule.calls));
            }
        }
        if !undumpable {
            profile.narrowed.extend(names::number("prctl"));
        }
        Ok(profile)
    }

    /// Allows a call with whatever arguments.
    ///
    /// # Errors
    /// [`ProfileError::NoSuchCall`], [`ProfileError::Reserved`].
    pub fn allow(&mut self, name: &str) -> Result<(), ProfileError> {
        let number = names::number(name).ok_or_else(|| ProfileError::NoSuchCall(name.to_owned()))?;
        let reserved = |why| Err(ProfileError::Reserved { name: name.to_owned(), why });
        if let Some((_, why)) = RESERVED.iter().find(|(calls, _)| calls.contains(&name)) {
            return reserved(why);
        }
        if self.narrowed.contains(&number) {
            return reserved("another clause, or the tier itself, is held by what it may not do");
        }
        if !self.is_open(number) && !is_addable(name, number) {
            let why = self.why.iter().rev().find(|(numbers, _)| numbers.contains(&number));
            return reserved(why.map_or(UNKNOWN, |(_, why)| *why));
        }
        self.filter.calls.insert(number, Verdict::Always(Action::Allow));
        Ok(())
    }

    fn is_open(&self, number: u32) -> bool {
        matches!(self.filter.calls.get(number), Some(Verdict::Always(Action::Allow)))
    }

    /// Closes a call: it fails with EPERM.
    ///
    /// # Errors
    /// [`ProfileError::NoSuchCall`], [`ProfileError::Needed`].
    pub fn deny(&mut self, name: &str) -> Result<(), ProfileError> {
        let number = names::number(name).ok_or_else(|| ProfileError::NoSuchCall(name.to_owned()))?;
        if ["execve", "exit", "exit_group", "rt_sigreturn"].contains(&name) {
            return Err(ProfileError::Needed(name.to_owned()));
        }
        self.filter.calls.insert(number, Verdict::Always(Action::Errno(1)));
        Ok(())
    }

    /// What the filter answers to a call with these arguments.
    #[must_use]
    pub fn judge(&self, number: u32, arguments: [u64; 6]) -> Action {
        self.filter.calls.get(number).map_or(self.filter.unknown, |verdict| verdict.judge(arguments))
    }

    /// The rules.
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Why the profile treats a call as it does; `None` for calls that no rule names. Of calls that were allowed or
    /// denied by name since it tells the profile's reason.
    #[must_use]
    pub fn why(&self, name: &str) -> Option<&str> {
        let number = names::number(name)?;
        self.why.iter().rev().find(|(numbers, _)| numbers.contains(&number)).map(|(_, why)| *why)
    }

    /// Compiles it.
    ///
    /// # Errors
    /// As [`Filter::compile`].
    pub fn compile(&self) -> Result<Program, CompileError> {
        self.filter.compile()
    }

    /// Inclusions go in first; the build has checked that each exists, and that there is no circle.
    fn include(&mut self, name: &str, depth: usize) {
        const MAX_DEPTH: usize = 8;
        let Some(file) = file(name).filter(|_| depth < MAX_DEPTH) else { return };
        for other in file.include {
            self.include(other, depth.saturating_add(1));
        }
        for rule in file.rules {
            self.why.push((rule.calls, rule.why));
            for number in rule.calls {
                let verdict = match &rule.form {
                    Form::Is(verdict) => verdict.clone(),
                    Form::Also { any, otherwise } => self.widened(*number, any.clone(), *otherwise),
                };
                self.filter.calls.insert(*number, verdict);
            }
        }
    }

    /// The alternatives so far and these.
    fn widened(&self, number: u32, more: Cow<'static, [All]>, otherwise: Action) -> Verdict {
        match self.filter.calls.get(number) {
            Some(Verdict::When { any, then: Action::Allow, otherwise }) => {
                let any = any.iter().chain(more.iter()).cloned().collect();
                Verdict::When { any, then: Action::Allow, otherwise: *otherwise }
            }
            // Open as a whole, or in all but some: there is nothing to widen.
            Some(open @ (Verdict::Always(Action::Allow) | Verdict::When { .. })) => open.clone(),
            Some(Verdict::Always(Action::Errno(_) | Action::Kill)) | None => {
                Verdict::When { any: more, then: Action::Allow, otherwise }
            }
        }
    }
}
