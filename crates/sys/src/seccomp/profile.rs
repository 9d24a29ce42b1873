//! Profiles: named files of rules, put together for one start.

use std::collections::BTreeMap;

use super::compile::{CompileError, Program};
use super::names;
use super::rule::{Action, Filter, Verdict};
use super::syntax::{self, Rule};

/// (name, text) of every file in `resources/seccomp`.
const FILES: &[(&str, &str)] = &[
    ("base", include_str!("../../../../resources/seccomp/base.toml")),
    ("closed", include_str!("../../../../resources/seccomp/closed.toml")),
    ("default", include_str!("../../../../resources/seccomp/default.toml")),
    ("net/loopback", include_str!("../../../../resources/seccomp/net/loopback.toml")),
    ("net/no-fast-open", include_str!("../../../../resources/seccomp/net/no-fast-open.toml")),
    ("net/unix", include_str!("../../../../resources/seccomp/net/unix.toml")),
    ("no-memfd-exec", include_str!("../../../../resources/seccomp/no-memfd-exec.toml")),
    ("node", include_str!("../../../../resources/seccomp/node.toml")),
    ("python", include_str!("../../../../resources/seccomp/python.toml")),
    ("shared-pids", include_str!("../../../../resources/seccomp/shared-pids.toml")),
    ("strict", include_str!("../../../../resources/seccomp/strict.toml")),
];

/// Profiles that a user may name; the other files are parts of them.
const NAMED: &[&str] = &["default", "node", "python", "strict"];

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
    /// Memory files may be executed. Off where only named files may: no mount option and no Landlock rule covers them.
    pub memfd_exec: bool,
}

/// A profile cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No such profile.
    #[error("no profile `{0}`")]
    NoSuchProfile(String),
    /// Not a call of x86-64.
    #[error("`{0}` is no system call of x86-64")]
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
    /// An embedded file does not parse; a test keeps this from happening.
    #[error("profile `{file}`: {what}")]
    Broken {
        /// File.
        file: String,
        /// What is wrong.
        what: String,
    },
}

/// Rules for one start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    filter: Filter,
    why: BTreeMap<u32, String>,
}

/// The name of every profile that can be named; reads none of them.
#[must_use]
pub fn profiles() -> &'static [&'static str] {
    NAMED
}

/// (name, what it is for) of every profile that can be named.
pub fn named() -> impl Iterator<Item = (&'static str, String)> {
    NAMED.iter().map(|name| {
        let about = text_of(name).and_then(|text| syntax::parse(text).ok()).map(|file| file.about);
        (*name, about.unwrap_or_default())
    })
}

fn text_of(name: &str) -> Option<&'static str> {
    FILES.binary_search_by_key(&name, |(known, _)| known).ok().and_then(|at| FILES.get(at)).map(|(_, text)| *text)
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
        let filter = Filter { calls: BTreeMap::new(), unknown: Action::Errno(38) };
        let mut profile = Self { filter, why: BTreeMap::new() };
        profile.include(name, 0)?;
        let Surroundings { unix_sockets, inet_sockets, shared_pids, memfd_exec } = *surroundings;
        let parts = [
            (unix_sockets, "net/unix"),
            (inet_sockets, "net/loopback"),
            (!inet_sockets, "net/no-fast-open"),
            (shared_pids, "shared-pids"),
            (!memfd_exec, "no-memfd-exec"),
        ];
        for (_, part) in parts.iter().filter(|(wanted, _)| *wanted) {
            profile.include(part, 0)?;
        }
        Ok(profile)
    }

    /// Allows a call with whatever arguments.
    ///
    /// # Errors
    /// [`ProfileError::NoSuchCall`], [`ProfileError::Reserved`].
    pub fn allow(&mut self, name: &str) -> Result<(), ProfileError> {
        let number = names::number(name).ok_or_else(|| ProfileError::NoSuchCall(name.to_owned()))?;
        let why = match name {
            "socket" | "socketpair" => Some("the network clauses decide which sockets can be made"),
            "clone" | "clone3" | "unshare" | "setns" => {
                Some("new namespaces give a program capabilities over the kernel")
            }
            "seccomp" => Some("a listener would see the arguments of its children's calls"),
            "io_uring_setup" | "io_uring_enter" | "io_uring_register" => {
                Some("no filter sees what goes through a ring")
            }
            _ => None,
        };
        if let Some(why) = why {
            return Err(ProfileError::Reserved { name: name.to_owned(), why });
        }
        self.put(number, Verdict::Always(Action::Allow), "allowed by name");
        Ok(())
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
        self.put(number, Verdict::Always(Action::Errno(1)), "denied by name");
        Ok(())
    }

    /// The rules.
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Why a call is treated as it is; `None` for calls that no rule names.
    #[must_use]
    pub fn why(&self, name: &str) -> Option<&str> {
        self.why.get(&names::number(name)?).map(String::as_str)
    }

    /// Compiles it.
    ///
    /// # Errors
    /// As [`Filter::compile`].
    pub fn compile(&self) -> Result<Program, CompileError> {
        self.filter.compile()
    }

    fn put(&mut self, number: u32, verdict: Verdict, why: &str) {
        self.filter.calls.insert(number, verdict);
        self.why.insert(number, why.to_owned());
    }

    fn include(&mut self, name: &str, depth: usize) -> Result<(), ProfileError> {
        const DEEPEST: usize = 8;
        let broken = |what: String| ProfileError::Broken { file: name.to_owned(), what };
        let text =
            text_of(name).filter(|_| depth < DEEPEST).ok_or_else(|| broken("no such file, or a circle".into()))?;
        let file = syntax::parse(text).map_err(|error| broken(error.to_string()))?;
        for other in &file.include {
            self.include(other, depth.saturating_add(1))?;
        }
        for rule in &file.rules {
            self.add(rule).map_err(broken)?;
        }
        Ok(())
    }

    fn add(&mut self, rule: &Rule) -> Result<(), String> {
        if rule.why.is_empty() || rule.calls.is_empty() {
            return Err(format!("a rule without `why` or without `calls`: {:?}", rule.calls));
        }
        let unknown = syntax::unknown_names(rule);
        if !unknown.is_empty() {
            return Err(format!("no calls of x86-64: {unknown:?}"));
        }
        let alternatives = |texts: &[String]| {
            texts.iter().map(|text| syntax::conditions(text).map_err(|error| error.what)).collect::<Result<Vec<_>, _>>()
        };
        for number in rule.calls.iter().filter_map(|name| names::number(name)) {
            let verdict =
                match (rule.action.as_str(), rule.allow.is_empty(), rule.deny.is_empty(), rule.also.is_empty()) {
                    ("", true, true, true) => Verdict::Always(Action::Allow),
                    (text, true, true, true) => Verdict::Always(action(text)?),
                    ("", false, true, true) => Verdict::When {
                        any: alternatives(&rule.allow)?,
                        then: Action::Allow,
                        otherwise: action(&rule.otherwise)?,
                    },
                    ("", true, false, true) => Verdict::When {
                        any: alternatives(&rule.deny)?,
                        then: action(&rule.otherwise)?,
                        otherwise: Action::Allow,
                    },
                    ("", true, true, false) => self.widened(number, alternatives(&rule.also)?, &rule.otherwise)?,
                    (_, _, _, _) => {
                        return Err(format!(
                            "a rule may have one of `action`, `allow`, `deny`, `also`: {:?}",
                            rule.calls
                        ));
                    }
                };
            self.put(number, verdict, &rule.why);
        }
        Ok(())
    }

    /// The alternatives so far and these.
    fn widened(&self, number: u32, more: Vec<super::rule::All>, otherwise: &str) -> Result<Verdict, String> {
        match self.filter.calls.get(&number) {
            Some(Verdict::When { any, then: Action::Allow, otherwise }) => {
                let any = any.iter().cloned().chain(more).collect();
                Ok(Verdict::When { any, then: Action::Allow, otherwise: *otherwise })
            }
            Some(Verdict::Always(Action::Errno(_) | Action::Kill)) | None => {
                Ok(Verdict::When { any: more, then: Action::Allow, otherwise: action(otherwise)? })
            }
            Some(Verdict::Always(Action::Allow) | Verdict::When { .. }) => {
                Err("`also` widens only what is closed or allowed in part".into())
            }
        }
    }
}

fn action(text: &str) -> Result<Action, String> {
    syntax::action(text).ok_or_else(|| format!("`{text}` is no action"))
}

#[cfg(test)]
pub(super) fn files() -> &'static [(&'static str, &'static str)] {
    FILES
}
