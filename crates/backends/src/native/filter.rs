//! The seccomp filter of a plan, and the attempts that prove it.

use guest::config::OwnedProbe as Probe;
use sys::bare::{EPERM, answered};
use sys::seccomp::rule::Action;
use sys::seccomp::{Profile, ProfileError, Surroundings, names};

use super::blueprint::Blueprint;
use super::words;
use crate::StartError;

/// A filter, and what the kernel must answer when it is in force.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    profile: Profile,
    pub(crate) program: Vec<u8>,
    pub(crate) probes: Vec<Probe>,
    /// The calls that the policy names and that are tried.
    named: Vec<(String, u32, [u64; 6])>,
}

/// What the guest cannot do without once the filter is on; a run without one of them would start, and not end.
const NEEDED: &[&str] = &[
    "prctl",
    "recvmsg",
    "sendmsg",
    "ppoll",
    "read",
    "wait4",
    "close_range",
    "clone",
    "setsid",
    "landlock_restrict_self",
    "rt_sigprocmask",
    "execve",
    "kill",
    "dup3",
    "exit_group",
    // What every program needs to begin, and its folder to be entered.
    "mmap",
    "openat",
    "chdir",
];

/// Whether no run can do without a call, so that it cannot be denied.
#[must_use]
pub fn needs_call(name: &str) -> bool {
    NEEDED.contains(&name)
}

const NOWHERE: u64 = 0;
const NO_DESCRIPTOR: u64 = u64::MAX;

/// For each file of rules a call that it closes and one that it leaves open, with arguments that do nothing when the call
/// runs. Which of them is refused is asked of the profile, so that no second list says what a filter does.
const ATTEMPTS: &[(&str, [u64; 6])] = &[
    // base
    ("getppid", [0; 6]),
    ("fchmod", [NO_DESCRIPTOR, 0o6000, 0, 0, 0, 0]),
    ("fallocate", [NO_DESCRIPTOR, 1, 0, 1, 0, 0]),
    POOL,
    // closed
    ("userfaultfd", [0xffff_ffff, 0, 0, 0, 0, 0]),
    ("setns", [NO_DESCRIPTOR, 0, 0, 0, 0, 0]),
    ("io_uring_setup", [0, NOWHERE, 0, 0, 0, 0]),
    // strict
    ("vmsplice", [NO_DESCRIPTOR, NOWHERE, 0, 0, 0, 0]),
    ("fgetxattr", [NO_DESCRIPTOR, NOWHERE, NOWHERE, 0, 0, 0]),
    // attributes
    LARGE_ATTRIBUTE,
    // default, python, node: 8 asks for a listener, 4095 is no request
    ("seccomp", [1, 8, NOWHERE, 0, 0, 0]),
    ("ptrace", [4095, 0, NOWHERE, NOWHERE, 0, 0]),
    WATCH,
    // shared-pids: 255 is no resource, 7 is RLIMIT_NOFILE
    ("prlimit64", [4095, 255, NOWHERE, NOWHERE, 0, 0]),
    ("prlimit64", [0, 7, NOWHERE, NOWHERE, 0, 0]),
    // shared-files: a lease; shared-locks
    LEASE,
    LOCK,
    // undumpable (4): 2 is no value of it; counted-memory: a mapping of no bytes; no-rules: a rule set of no size
    UNDUMPABLE,
    UNCOUNTED,
    RULES,
    // no-memfd: 8 is MFD_NOEXEC_SEAL
    MEMORY_FILE,
    SEALED_FILE,
    // net: 255 is no type of socket
    UNIX,
    DATAGRAMS,
    ("socketpair", [1, 1, 0, NOWHERE, 0, 0]),
    ("bind", [NO_DESCRIPTOR, NOWHERE, 0, 0, 0, 0]),
    ("sendto", [NO_DESCRIPTOR, NOWHERE, 0, 0x2000_0000, NOWHERE, 0]),
    ("sendto", [NO_DESCRIPTOR, NOWHERE, 0, 0, NOWHERE, 0]),
    // 0xf0 are flags that no socket has
    ("socket", [2, 0xf1, 0, 0, 0, 0]),
    // gvisor: no signal to the first process, whose description lies nowhere
    ("rt_sigqueueinfo", [1, 0, NOWHERE, 0, 0, 0]),
    // image-build: the audit log's socket, with flags that no socket has
    ("socket", [16, 0xf3, 9, 0, 0, 0]),
];

const UNIX: (&str, [u64; 6]) = ("socket", [1, 255, 0, 0, 0, 0]);
const INET: [(&str, [u64; 6]); 2] = [("socket", [2, 1, 0, 0, 0, 0]), ("socket", [10, 1, 0, 0, 0, 0])];
const DATAGRAMS: (&str, [u64; 6]) = ("socketpair", [1, 2, 0, NOWHERE, 0, 0]);
const OTHERS_LIMIT: (&str, [u64; 6]) = ("prlimit64", [4095, 255, NOWHERE, NOWHERE, 0, 0]);

const LEASE: (&str, [u64; 6]) = ("fcntl", [NO_DESCRIPTOR, 1024, 0, 0, 0, 0]);
const LOCK: (&str, [u64; 6]) = ("flock", [NO_DESCRIPTOR, 0, 0, 0, 0, 0]);
const WATCH: (&str, [u64; 6]) = ("inotify_add_watch", [NO_DESCRIPTOR, NOWHERE, 0, 0, 0, 0]);
const UNDUMPABLE: (&str, [u64; 6]) = ("prctl", [4, 2, 0, 0, 0, 0]);
const UNCOUNTED: (&str, [u64; 6]) = ("mmap", [0, 0, 0, 0x21, NO_DESCRIPTOR, 0]);
const POOL: (&str, [u64; 6]) = ("memfd_create", [NOWHERE, 4, 0, 0, 0, 0]);
const LARGE_ATTRIBUTE: (&str, [u64; 6]) = ("fsetxattr", [NO_DESCRIPTOR, NOWHERE, NOWHERE, 1024, 0, 0]);
const RULES: (&str, [u64; 6]) = ("landlock_create_ruleset", [NOWHERE, 0, 0, 0, 0, 0]);
const MEMORY_FILE: (&str, [u64; 6]) = ("memfd_create", [NOWHERE, 0, 0, 0, 0, 0]);
const SEALED_FILE: (&str, [u64; 6]) = ("memfd_create", [NOWHERE, 8, 0, 0, 0, 0]);

/// Of [`ATTEMPTS`] what gVisor's kernel lacks, and answers as a filter answers what it does not know.
pub(crate) const LACKED: [&str; 2] = ["vmsplice", "userfaultfd"];

/// Most calls of a policy that are tried one by one; there is room for so many answers.
const MAX_NAMED: usize = 32;

/// Compiles the filter. It takes microseconds, so nothing is compiled ahead. `None`: the plan has none.
pub(crate) fn build(blueprint: &Blueprint) -> Result<Option<Built>, StartError> {
    let failed = |e: ProfileError| StartError::Profile { why: e.to_string() };
    let Some(name) = &blueprint.profile else { return Ok(None) };
    let surroundings = Surroundings {
        unix_sockets: !blueprint.no_unix,
        inet_sockets: !blueprint.no_inet,
        shared_pids: blueprint.shared_pids,
        // What Landlock alone keeps from being written to is read, and a descriptor that reads is enough for some requests.
        shared_files: blueprint.shared_files || blueprint.folders.write.is_some(),
        shared_watches: blueprint.shared_watches,
        shared_locks: blueprint.shared_locks,
        undumpable: !blueprint.visible,
        counted_memory: blueprint.counted_memory,
        no_rules: blueprint.visible && !blueprint.agent,
        // A memory file is writable, no mount option covers it, and the dynamic loader maps it even where it cannot be executed.
        memfd: blueprint.exec.is_none() && !blueprint.noexec,
        gvisor: blueprint.own_kernel,
    };
    let mut profile = Profile::load(name, &surroundings).map_err(failed)?;
    for name in &blueprint.allow {
        profile.allow(name).map_err(failed)?;
    }
    for name in &blueprint.deny {
        if needs_call(name) {
            let why = format!("`{name}` cannot be denied: the guest starts, watches and ends the program by it");
            return Err(StartError::Profile { why });
        }
        profile.deny(name).map_err(failed)?;
    }
    let program = profile.compile().map_err(|e| StartError::Internal(e.to_string()))?.bytes();
    let named = named(blueprint);
    // Another kernel may lack Landlock, and has no part in what is counted by looking.
    let tried = |(name, _): &&(&str, _)| *name != RULES.0 || !blueprint.other_kernel();
    let of_groups = ATTEMPTS.iter().filter(tried).filter_map(|(name, args)| probe(&profile, name, *args));
    let of_names = named.iter().filter_map(|(name, _, args)| probe(&profile, name, *args));
    let probes = of_groups.chain(of_names).collect();
    Ok(Some(Built { profile, program, probes, named }))
}

/// The calls that the policy names and that can be tried. One that is to be open is tried first from here, where no filter is on:
/// what this kernel refuses, or does not have, would be refused inside as well, and says nothing of the filter. Another kernel
/// than this one is asked for those alone that it surely has.
fn named(blueprint: &Blueprint) -> Vec<(String, u32, [u64; 6])> {
    let here = !blueprint.other_kernel();
    let known = |name: &str| ATTEMPTS.iter().any(|(other, _)| *other == name) && !LACKED.contains(&name);
    let reached = |number: u32, args: &[u64; 6]| sys::bare::attempt(number, args).is_ok_and(|errno| answered(0, errno));
    let open = blueprint.allow.iter().map(|name| (name, true));
    let closed = blueprint.deny.iter().map(|name| (name, false));
    let tried = open.chain(closed).filter_map(|(name, open)| {
        let number = names::number(name)?;
        let args = sys::bare::harmless(number)?;
        let sure = !open || if here { reached(number, &args) } else { known(name) };
        sure.then(|| (name.clone(), number, args))
    });
    tried.take(MAX_NAMED).collect()
}

fn probe(profile: &Profile, name: &str, args: [u64; 6]) -> Option<Probe> {
    let number = names::number(name)?;
    let action = profile.judge(number, args);
    let errno = match action {
        Action::Allow => 0,
        Action::Errno(errno) => i32::from(errno),
        // Nothing is attempted that would end the guest.
        Action::Kill => return None,
    };
    Some(Probe::Call { number, args, errno })
}

impl Built {
    /// Whether unix sockets by name are among what is refused.
    pub(crate) fn closes_unix(&self) -> bool {
        self.refuses(UNIX) && self.refuses(DATAGRAMS)
    }

    /// Whether sockets of IP are among what is refused.
    pub(crate) fn closes_inet(&self) -> bool {
        INET.into_iter().all(|attempt| self.refuses(attempt))
    }

    /// Whether limits of other processes are among what is refused.
    pub(crate) fn closes_others(&self) -> bool {
        self.refuses(OTHERS_LIMIT)
    }

    /// Whether POSIX message queues can be made.
    pub(crate) fn opens_queues(&self) -> bool {
        self.says("mq_open", true)
    }

    /// Whether memory files are among what is refused, sealed against being executed or not.
    pub(crate) fn closes_memory_files(&self) -> bool {
        self.refuses(MEMORY_FILE) && self.refuses(SEALED_FILE)
    }

    /// Whether leases on files are among what is refused.
    pub(crate) fn closes_leases(&self) -> bool {
        self.refuses(LEASE)
    }

    /// Whether watching folders is among what is refused.
    pub(crate) fn closes_watches(&self) -> bool {
        self.refuses(WATCH)
    }

    /// Whether locks of whole files are among what is refused.
    pub(crate) fn closes_locks(&self) -> bool {
        self.refuses(LOCK)
    }

    /// Whether becoming undumpable is among what is refused.
    pub(crate) fn closes_undumpable(&self) -> bool {
        self.refuses(UNDUMPABLE)
    }

    /// Whether rules of Landlock are among what is refused.
    pub(crate) fn closes_rules(&self) -> bool {
        self.refuses(RULES)
    }

    /// Whether memory that nobody can count is among what is refused.
    pub(crate) fn closes_uncounted(&self) -> bool {
        self.refuses(UNCOUNTED)
    }

    fn refuses(&self, (name, args): (&str, [u64; 6])) -> bool {
        names::number(name).is_some_and(|number| self.profile.judge(number, args) != Action::Allow)
    }

    /// Whether a call is open, or closed, whatever its arguments.
    pub(crate) fn says(&self, name: &str, open: bool) -> bool {
        let judged = names::number(name).map(|number| self.profile.judge(number, [0; 6]));
        judged.is_some_and(|action| (action == Action::Allow) == open)
    }

    /// The evidence of calls that a policy opens or closes by name: what the attempt at each was answered, as `answer` knows it;
    /// of those that are not tried, what the filter says that was put on.
    ///
    /// # Errors
    /// One is otherwise, or was not tried.
    pub(crate) fn named(
        &self,
        names: &[String],
        open: bool,
        answer: impl Fn(u32, &[u64; 6]) -> Option<i32>,
    ) -> Result<(), String> {
        for name in names {
            match self.named.iter().find(|(known, ..)| known == name) {
                Some((_, number, args)) => {
                    let errno = answer(*number, args).ok_or_else(|| format!("`{name}` was not tried"))?;
                    if !answered(if open { 0 } else { EPERM }, errno) {
                        return Err(format!(
                            "`{name}` was tried, and the kernel's answer was: {}",
                            words::answer(errno)
                        ));
                    }
                }
                None if self.says(name, open) => {}
                None => return Err(format!("`{name}` is {}", if open { "closed" } else { "open" })),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::folders::Folders;

    /// With and without each part, every profile has attempts that are refused and some that are not.
    #[test]
    fn every_profile_can_be_proven() {
        for profile in sys::seccomp::profiles() {
            for bits in 0..128_u8 {
                let blueprint = Blueprint {
                    profile: Some((*profile).to_owned()),
                    no_inet: bits & 1 != 0,
                    no_unix: bits & 2 != 0,
                    shared_pids: bits & 4 != 0,
                    exec: (bits & 8 != 0).then(Vec::new),
                    visible: bits & 16 != 0,
                    counted_memory: bits & 32 != 0,
                    shared_files: bits & 64 != 0,
                    shared_locks: bits & 64 != 0,
                    shared_watches: bits & 64 != 0,
                    ..Blueprint::default()
                };
                let built = build(&blueprint).unwrap().unwrap();
                let refused = |probe: &&Probe| matches!(probe, Probe::Call { errno, .. } if *errno != 0);
                let closed = built.probes.iter().filter(refused).count();
                assert!(closed >= 3 && closed < built.probes.len(), "{profile} {bits}: {closed}");
                assert_eq!(built.probes.len(), ATTEMPTS.len(), "{profile} {bits}");
                assert_eq!((built.closes_unix(), built.closes_others()), (bits & 2 != 0, bits & 4 != 0));
                assert_eq!(built.closes_inet(), bits & 1 != 0, "{profile} {bits}");
                assert_eq!((built.closes_leases(), built.closes_locks()), (bits & 64 != 0, bits & 64 != 0));
                assert_eq!(built.closes_watches(), bits & 64 != 0 || *profile == "strict", "{profile} {bits}");
                let hidden = (built.closes_undumpable(), built.closes_rules(), built.closes_uncounted());
                assert_eq!(hidden, (bits & 16 != 0, bits & 16 != 0, bits & 32 != 0), "{profile} {bits}");
                assert_eq!(built.closes_memory_files(), bits & 8 != 0, "{profile} {bits}");
            }
        }
    }

    /// Each file of rules changes the answer to an attempt at a call of which it speaks: that it is in force is seen.
    #[test]
    fn every_file_of_rules_is_proven_by_an_attempt() {
        /// A profile, and what is otherwise around it.
        type Rules = (&'static str, fn(&mut Blueprint));
        // With the file and without it; of what every profile takes in, against a profile that knows no call at all.
        let pairs: [(&str, Rules, Option<Rules>); 21] = [
            ("base", ("strict", |_| ()), None),
            ("closed", ("strict", |_| ()), None),
            ("attributes", ("node", |_| ()), Some(("strict", |_| ()))),
            ("default", ("default", |_| ()), Some(("node", |_| ()))),
            ("image-build", ("image-build", |_| ()), Some(("default", |_| ()))),
            ("node", ("node", |_| ()), Some(("strict", |_| ()))),
            ("python", ("python", |_| ()), Some(("strict", |_| ()))),
            ("strict", ("strict", |_| ()), Some(("node", |_| ()))),
            ("net/loopback", ("strict", |_| ()), Some(("strict", |b| b.no_inet = true))),
            ("net/no-fast-open", ("strict", |b| b.no_inet = true), Some(("strict", |_| ()))),
            (
                "net/no-names",
                ("strict", |b| (b.no_inet, b.no_unix) = (true, true)),
                Some(("strict", |b| b.no_inet = true)),
            ),
            ("net/unix", ("strict", |_| ()), Some(("strict", |b| b.no_unix = true))),
            ("shared-pids", ("default", |b| b.shared_pids = true), Some(("default", |_| ()))),
            ("shared-files", ("default", |b| b.folders.write = Some(Vec::new())), Some(("default", |_| ()))),
            ("shared-watches", ("default", |b| b.shared_watches = true), Some(("default", |_| ()))),
            ("shared-locks", ("default", |b| b.shared_locks = true), Some(("default", |_| ()))),
            ("undumpable", ("default", |_| ()), Some(("default", |b| b.visible = true))),
            ("counted-memory", ("default", |b| b.counted_memory = true), Some(("default", |_| ()))),
            ("no-rules", ("default", |b| b.visible = true), Some(("default", |b| (b.visible, b.agent) = (true, true)))),
            ("no-memfd", ("default", |b| b.noexec = true), Some(("default", |_| ()))),
            ("gvisor", ("default", |b| b.own_kernel = true), Some(("default", |_| ()))),
        ];
        let built = |(profile, change): Rules| {
            let mut blueprint = Blueprint { profile: Some(profile.to_owned()), ..Blueprint::default() };
            change(&mut blueprint);
            build(&blueprint).unwrap().unwrap()
        };
        // What must be answered, as the guest is told.
        let wanted = |built: &Built, name: &str, args: [u64; 6]| probe(&built.profile, name, args).unwrap();
        let unknown = |name: &str, args| Probe::Call { number: names::number(name).unwrap(), args, errno: 38 };
        let mut proven = Vec::new();
        for (file, with, without) in pairs {
            let text = std::fs::read_to_string(rules().join(format!("{file}.toml"))).unwrap();
            let (with, without) = (built(with), without.map(built));
            let changes = |(name, args): &&(&str, [u64; 6])| {
                let other = without.as_ref().map_or_else(|| unknown(name, *args), |other| wanted(other, name, *args));
                text.contains(&format!("\"{name}\"")) && wanted(&with, name, *args) != other
            };
            assert!(ATTEMPTS.iter().any(|attempt| changes(&attempt)), "nothing is tried of {file}");
            proven.push(file.to_owned());
        }
        let mut files = Vec::new();
        for folder in ["", "net/"] {
            let listed = std::fs::read_dir(rules().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
            let named = listed.filter_map(|name| Some(name.to_str()?.strip_suffix(".toml")?.to_owned()));
            files.extend(named.map(|name| format!("{folder}{name}")));
        }
        files.sort();
        proven.sort();
        assert_eq!(files, proven, "each file of resources/seccomp has its row here");
    }

    fn rules() -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../resources/seccomp")
    }

    /// The dynamic loader maps a memory file that cannot be executed: under a clause about executing none is made.
    #[test]
    fn no_memory_file_is_made_where_a_clause_is_about_executing() {
        let of = |exec: Option<Vec<std::path::PathBuf>>, noexec: bool| {
            let profile = Some("default".to_owned());
            build(&Blueprint { profile, exec, noexec, ..Blueprint::default() }).unwrap().unwrap()
        };
        let memfd = names::number("memfd_create").unwrap();
        // CLOEXEC, ALLOW_SEALING, HUGETLB, NOEXEC_SEAL, EXEC.
        for flags in [0, 1, 2, 4, 8, 9, 16] {
            let judged = |built: &Built| built.profile.judge(memfd, [NOWHERE, flags, 0, 0, 0, 0]);
            // Of huge pages there is none anywhere.
            let open = if flags == 4 { Action::Errno(12) } else { Action::Allow };
            assert_eq!(judged(&of(None, false)), open, "{flags}");
            for closed in [of(Some(Vec::new()), false), of(None, true)] {
                assert_eq!(judged(&closed), Action::Errno(1), "{flags}");
            }
        }
    }

    /// No limit of memory counts a pool of huge pages, nor what an ACL holds.
    #[test]
    fn nothing_of_a_pool_of_huge_pages_and_no_large_attribute_can_be_had() {
        for profile in sys::seccomp::profiles() {
            for counted_memory in [false, true] {
                let blueprint =
                    Blueprint { profile: Some((*profile).to_owned()), counted_memory, ..Blueprint::default() };
                let built = build(&blueprint).unwrap().unwrap();
                let judged = |name: &str, args| built.profile.judge(names::number(name).unwrap(), args);
                // MAP_PRIVATE, MAP_ANONYMOUS, MAP_HUGETLB, and the size of its pages.
                for flags in [0x22, 0x4_0022, 0x5400_0000 | 0x4_0022] {
                    let open = judged("mmap", [0, 1 << 21, 3, flags, NO_DESCRIPTOR, 0]) == Action::Allow;
                    assert_eq!(open, flags == 0x22, "{profile} {flags:x}");
                }
                for size in [1, 1023, 1024, 1 << 16, 1 << 32] {
                    let set = ["setxattr", "lsetxattr", "fsetxattr"].map(|name| judged(name, [3, 0, 0, size, 0, 0]));
                    let open = *profile != "strict" && size < 1024;
                    assert!(set.iter().all(|action| (*action == Action::Allow) == open), "{profile} {size}");
                }
            }
        }
    }

    /// Where only some folders of a writable tree may be written to, the rest is not written to through a descriptor that reads.
    #[test]
    fn what_acts_on_a_file_that_is_only_read_is_closed_where_folders_are_listed() {
        let of = |write: Option<Vec<std::path::PathBuf>>| {
            let (profile, folders) = (Some("default".to_owned()), Folders { read: None, write });
            build(&Blueprint { profile, folders, ..Blueprint::default() }).unwrap().unwrap()
        };
        let (open, closed) = (of(None), of(Some(Vec::new())));
        assert!(!open.closes_leases() && closed.closes_leases());
        let ioctl = names::number("ioctl").unwrap();
        // FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_ENABLE_VERITY.
        for request in [0x4008_6602, 0x4004_6602, 0x4080_6685] {
            let args = [NO_DESCRIPTOR, request, 0, 0, 0, 0];
            assert_eq!(open.profile.judge(ioctl, args), Action::Allow, "{request:x}");
            assert_eq!(closed.profile.judge(ioctl, args), Action::Errno(1), "{request:x}");
        }
        // Locks and watches are no writing: they stay as everywhere.
        assert!(!closed.closes_locks() && !closed.closes_watches());
    }

    /// What is named is tried where that is harmless, and what is tried decides: no answer, or another one, is no evidence.
    #[test]
    fn a_named_call_is_tried_and_its_answer_decides() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (allow, deny) = (names(&["ptrace", "getcpu"]), names(&["chmod", "bpf"]));
        let profile = Some("default".to_owned());
        let blueprint = Blueprint { profile, allow: allow.clone(), deny: deny.clone(), ..Blueprint::default() };
        let built = build(&blueprint).unwrap().unwrap();
        assert_eq!(built.probes.len(), ATTEMPTS.len() + 2);
        let chmod = names::number("chmod").unwrap();
        let answers = |refused: i32| move |number, _: &[u64; 6]| Some(if number == chmod { refused } else { 3 });
        assert_eq!(built.named(&allow, true, answers(1)), Ok(()));
        assert_eq!(built.named(&deny, false, answers(1)), Ok(()));
        assert!(built.named(&deny, false, answers(14)).unwrap_err().contains("`chmod` was tried"));
        assert!(built.named(&allow, true, |_, _| Some(1)).unwrap_err().contains("`ptrace` was tried"));
        assert!(built.named(&deny, false, |_, _| None).unwrap_err().contains("not tried"));
        // Of `bpf` nobody can tell who refused it: the filter that was put on says it.
        assert!(built.named(&names(&["bpf"]), true, answers(1)).unwrap_err().contains("closed"));
        // On another kernel nothing is tried that it may lack.
        let elsewhere =
            build(&Blueprint { own_kernel: true, allow: names(&["getcwd"]), ..blueprint }).unwrap().unwrap();
        assert_eq!(elsewhere.probes.len(), ATTEMPTS.len());
    }

    /// More than there is room for are not tried, and not left out of the filter.
    #[test]
    fn there_is_room_for_every_answer() {
        let deny: Vec<String> = sys::seccomp::names::all()
            .filter(|name| !NEEDED.contains(name) && !["exit", "rt_sigreturn"].contains(name))
            .map(str::to_owned)
            .collect();
        let blueprint = Blueprint { profile: Some("default".to_owned()), deny, ..Blueprint::default() };
        let built = build(&blueprint).unwrap().unwrap();
        assert_eq!(built.probes.len(), ATTEMPTS.len() + MAX_NAMED);
        assert!(built.probes.len() + 8 <= guest::config::MAX_PROBES);
    }

    #[test]
    fn every_attempt_is_one_that_the_guest_makes() {
        for (name, args) in ATTEMPTS {
            let number = names::number(name).unwrap();
            assert!(sys::bare::can_attempt(number, args), "{name}");
        }
    }

    /// What the guest itself calls once the filter is on runs under every profile: else it could not say so, start the
    /// program, or end it.
    #[test]
    fn every_profile_lets_the_guest_do_its_work() {
        // With the arguments that matter to a filter: CLONE_VM, CLONE_VFORK and SIGCHLD; TIOCSCTTY; PR_GET_SECCOMP.
        let arguments = |name: &str| match name {
            "clone" => vec![[0x100 | 0x4000 | 17, 0, 0, 0, 0, 0]],
            "ioctl" => [0x540e, 0x540f, 0x5414].map(|request| [0, request, 0, 0, 0, 0]).to_vec(),
            "prctl" => vec![[21, 0, 0, 0, 0, 0]],
            _ => vec![[0; 6]],
        };
        // A socket is a probe: whether it can be had is what is asked.
        let works =
            |name: &str, action| if name == "socket" { action != Action::Kill } else { action == Action::Allow };
        for profile in sys::seccomp::profiles() {
            for bits in 0..128_u8 {
                let surroundings = Surroundings {
                    unix_sockets: bits & 1 == 0,
                    inet_sockets: bits & 2 == 0,
                    shared_pids: bits & 4 != 0,
                    shared_files: bits & 64 != 0,
                    shared_watches: bits & 64 != 0,
                    shared_locks: bits & 64 != 0,
                    undumpable: bits & 16 != 0,
                    counted_memory: bits & 32 != 0,
                    no_rules: bits & 16 != 0,
                    memfd: bits & 8 == 0,
                    gvisor: bits & 4 != 0,
                };
                let built = Profile::load(profile, &surroundings).unwrap();
                for name in guest::CALLS_AFTER_SECCOMP {
                    let number = names::number(name).unwrap();
                    let all = arguments(name).into_iter().all(|arguments| works(name, built.judge(number, arguments)));
                    assert!(all, "{profile} {bits}: {name}");
                }
            }
        }
    }
}
