//! The named steps of a start, shared by the guest (which takes them) and the supervisor (which names them in errors).

macro_rules! steps {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal, $text:literal;)+) => {
        /// One step of the start, in the order in which they are taken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Step {
            $($(#[doc = $doc])+ $name = $number,)+
        }

        impl Step {
            /// All steps, in order.
            pub const ALL: &[Step] = &[$(Step::$name),+];

            /// The name in errors, posture and documentation.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Step::$name => $text,)+
                }
            }

            /// The step of a number from the wire.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Step> {
                match number {
                    $($number => Some(Step::$name),)+
                    _ => None,
                }
            }

            /// The number on the wire.
            #[must_use]
            pub const fn number(self) -> u8 {
                match self {
                    $(Step::$name => $number,)+
                }
            }
        }
    };
}

steps! {
    /// Map and check the config. Detail: the offset of the first bad byte where it is known.
    Config = 1, "config";
    /// Close every descriptor that the config does not name.
    Descriptors = 2, "descriptors";
    /// New session, so that no terminal of the caller is ours.
    Session = 3, "session";
    /// Wait until the supervisor has written the id maps.
    Mapped = 4, "mapped";
    /// Open the sources of mounts while we still have the outside identity. Detail: index of the source.
    Sources = 5, "sources";
    /// Take the inside identity, capabilities kept, so that created files have a mapped owner.
    CreationIds = 6, "creation-ids";
    /// The mounts. Detail: index of the operation.
    Mounts = 7, "mounts";
    /// Pass descriptors out and wait until the supervisor has filled what it must.
    Exports = 8, "exports";
    /// pivot_root, detach the old root, make the new one read-only.
    Pivot = 9, "pivot";
    /// Host name.
    Hostname = 10, "hostname";
    /// The interface `lo` up.
    Loopback = 11, "loopback";
    /// No further namespaces, few inotify instances. Detail: index of the limit.
    InnerLimits = 12, "inner-limits";
    /// oom_score_adj and nice.
    Priority = 13, "priority";
    /// The pseudo terminal.
    Terminal = 14, "terminal";
    /// Resource limits. Detail: the resource.
    Rlimits = 15, "rlimits";
    /// A session keyring of our own.
    Keyring = 16, "keyring";
    /// Groups and ids.
    Ids = 17, "ids";
    /// Bounding, ambient, permitted, effective, inheritable sets empty; securebits locked.
    Capabilities = 18, "capabilities";
    /// no_new_privs.
    NoNewPrivs = 19, "no-new-privs";
    /// Not dumpable (nobody can trace or read us), death signal set again.
    Dumpable = 20, "dumpable";
    /// Landlock. Detail: index of the rule; ports count on after the paths.
    Landlock = 21, "landlock";
    /// Prove that signals do not leave the process tier's domain.
    SignalScope = 22, "signal-scope";
    /// The filter of system calls.
    Seccomp = 23, "seccomp";
    /// The probes. Detail: index of the probe.
    Probes = 24, "probes";
    /// Gather and send the posture.
    Posture = 25, "posture";
    /// Wait for *go*.
    Go = 26, "go";
    /// The payload's own Landlock layer.
    PayloadLayer = 27, "payload-layer";
    /// Session, terminal, signals, umask and descriptors of the payload.
    PayloadSetup = 28, "payload-setup";
    /// Start the payload's process.
    Spawn = 29, "spawn";
    /// The loop of init.
    Init = 30, "init";
    /// The label of the payload's program. Detail: 0 the file, 1 writing it, 2 reading it back.
    Label = 31, "label";
    /// The payload's umask.
    Umask = 32, "umask";
    /// Prove that the payload's own layer keeps it from the guest.
    PayloadScope = 33, "payload-scope";
    /// Routes and sockets of the network namespace. Detail: 0 and 1 the routes of IPv4 and IPv6, 2 and 3 reading them back,
    /// 4 the link of a machine; from 16 on, index of the socket.
    Network = 34, "network";
    /// A namespace of control groups.
    CgroupNamespace = 35, "cgroup-namespace";
    /// The filter that asks about links, and its proof. Detail: 0 dumpable, 1 the link, 2 the filter, 3 passing its listener out.
    Links = 36, "links";
}
