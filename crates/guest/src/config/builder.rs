//! The supervisor's side: a plain struct and its encoding.

use std::ffi::{CStr, CString};

use super::{Ids, Inlet, Landlock, MAGIC, Mode, Op, Port, Probe, Rlimit, Rule, Size, Source, VERSION};

/// A source that owns its path.
pub type OwnedSource = Source<CString>;
/// An operation that owns its texts.
pub type OwnedOp = Op<CString, Vec<u8>>;
/// A Landlock rule that owns its path.
pub type OwnedRule = Rule<CString>;
/// A Landlock layer that owns its rules.
pub type OwnedLandlock = Landlock<Vec<OwnedRule>, Vec<Port>>;
/// A probe that owns its path.
pub type OwnedProbe = Probe<CString>;

/// All that the guest has to do. `Default` puts on no control at all and starts nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// How the sandbox is held together.
    pub mode: Mode,
    /// Wait for a `Mapped` frame: the supervisor writes the id maps after the exec.
    pub wait_mapped: bool,
    /// A namespace of control groups, which begins where the supervisor put the guest.
    pub new_cgroup: bool,
    /// Wait for a `Filled` frame before anything in the new root is looked at: the supervisor covers paths in a layer.
    pub wait_filled: bool,
    /// `lo` up.
    pub loopback: bool,
    /// Every IPv4 address is the sandbox's own.
    pub local_ipv4: bool,
    /// Every IPv6 address is the sandbox's own.
    pub local_ipv6: bool,
    /// A link to a virtual machine, whose packet socket is passed out behind the sockets.
    pub link: bool,
    /// No further namespaces, few inotify instances; needs an `Op::Proc`.
    pub inner_limits: bool,
    /// A session keyring of our own.
    pub new_keyring: bool,
    /// A session of our own.
    pub new_session: bool,
    /// No descriptor stays open that the config does not name.
    pub close_descriptors: bool,
    /// Every capability set empty, with securebits that keep it so.
    pub drop_capabilities: bool,
    /// no_new_privs.
    pub no_new_privs: bool,
    /// Nobody can trace or read the guest.
    pub undumpable: bool,
    /// Prove before *go* that a child under the payload's layer cannot signal the guest.
    pub prove_payload_scope: bool,
    /// The guest stays when its first program ends, and starts others when it is told to.
    pub stay: bool,
    /// setgroups to none; impossible rootless.
    pub clear_groups: bool,
    /// Signals that the supervisor ignores (bit n - 1 = signal n): they are reset, else the payload would ignore them too.
    pub ignored: u64,
    /// Identity inside.
    pub ids: Option<Ids>,
    /// Umask of the payload.
    pub umask: u32,
    /// /proc/self/oom_score_adj: raise only.
    pub oom_score_adj: Option<i32>,
    /// Nice value: raise only.
    pub nice: Option<i32>,
    /// A terminal of this size for the payload; needs an `Op::Devpts` at `/dev/pts`.
    pub tty: Option<Size>,
    /// Host name; empty = leave it.
    pub hostname: Vec<u8>,
    /// File of a process's folder in /proc that takes the label of its next program; empty = there is no label.
    pub label_file: CString,
    /// What is written there.
    pub label: Vec<u8>,
    /// Sources of mounts, opened before anything else.
    pub sources: Vec<OwnedSource>,
    /// What builds the new root; empty = stay in the host's tree (process tier).
    pub ops: Vec<OwnedOp>,
    /// Sockets that are made and passed out, in this order.
    pub inlets: Vec<Inlet>,
    /// Resource limits.
    pub rlimits: Vec<Rlimit>,
    /// The sandbox's Landlock layer.
    pub landlock: Option<OwnedLandlock>,
    /// The payload's own layer, which keeps it from the guest.
    pub payload_layer: Option<OwnedLandlock>,
    /// `struct sock_filter`s of one that asks about links; empty = nobody is asked.
    pub asking: Vec<u8>,
    /// A link that is made to prove it, in a folder which is granted; empty where nobody is asked.
    pub proof: CString,
    /// `struct sock_filter`s; empty = no filter.
    pub seccomp: Vec<u8>,
    /// Asked after all controls.
    pub probes: Vec<OwnedProbe>,
    /// The program and its arguments.
    pub argv: Vec<CString>,
    /// `KEY=VALUE`.
    pub env: Vec<CString>,
    /// Working directory; empty = `/`.
    pub cwd: CString,
    /// Where a program without `/` is searched.
    pub search: Vec<CString>,
    /// The descriptor at which the program stands, which is not looked for then.
    pub program: Option<u32>,
}

impl Config {
    /// The bytes that the guest maps.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        VERSION.put(&mut out);
        let mode: u8 = match self.mode {
            Mode::Container => 0,
            Mode::Process => 1,
            Mode::Bundle => 2,
            Mode::Runtime => 3,
        };
        mode.put(&mut out);
        self.wait_mapped.put(&mut out);
        self.new_cgroup.put(&mut out);
        self.wait_filled.put(&mut out);
        self.loopback.put(&mut out);
        self.local_ipv4.put(&mut out);
        self.local_ipv6.put(&mut out);
        self.link.put(&mut out);
        self.inner_limits.put(&mut out);
        for control in [
            self.new_keyring,
            self.new_session,
            self.close_descriptors,
            self.drop_capabilities,
            self.no_new_privs,
            self.undumpable,
            self.prove_payload_scope,
            self.stay,
        ] {
            control.put(&mut out);
        }
        self.clear_groups.put(&mut out);
        self.ignored.put(&mut out);
        self.ids.put(&mut out);
        self.umask.put(&mut out);
        self.oom_score_adj.put(&mut out);
        self.nice.put(&mut out);
        self.tty.put(&mut out);
        self.hostname.as_slice().put(&mut out);
        self.label_file.as_c_str().put(&mut out);
        self.label.as_slice().put(&mut out);
        self.sources.put(&mut out);
        self.ops.put(&mut out);
        self.inlets.put(&mut out);
        self.rlimits.put(&mut out);
        self.landlock.put(&mut out);
        self.payload_layer.put(&mut out);
        self.asking.as_slice().put(&mut out);
        self.proof.as_c_str().put(&mut out);
        self.seccomp.as_slice().put(&mut out);
        self.probes.put(&mut out);
        self.argv.put(&mut out);
        self.env.put(&mut out);
        self.cwd.as_c_str().put(&mut out);
        self.search.put(&mut out);
        self.program.put(&mut out);
        out
    }
}

/// Something with a place in the encoding.
pub(crate) trait Put {
    fn put(&self, out: &mut Vec<u8>);
}

/// A kind and its fields, in the order in which they are read.
pub(crate) fn fields(out: &mut Vec<u8>, kind: u8, fields: &[&dyn Put]) {
    kind.put(out);
    fields.iter().for_each(|field| field.put(out));
}

macro_rules! numbers {
    ($($number:ty),+) => {
        $(impl Put for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        })+
    };
}
numbers!(u8, u16, u32, i32, u64);

impl Put for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl Put for &[u8] {
    fn put(&self, out: &mut Vec<u8>) {
        length(self.len()).put(out);
        out.extend_from_slice(self);
    }
}

impl Put for &CStr {
    fn put(&self, out: &mut Vec<u8>) {
        self.to_bytes_with_nul().put(out);
    }
}

impl Put for CString {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_c_str().put(out);
    }
}

impl<T: Put> Put for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
}

impl<T: Put> Put for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        length(self.len()).put(out);
        let mut items = Vec::new();
        self.iter().for_each(|item| item.put(&mut items));
        items.as_slice().put(out);
    }
}

impl Put for Ids {
    fn put(&self, out: &mut Vec<u8>) {
        self.uid.put(out);
        self.gid.put(out);
    }
}

impl Put for Size {
    fn put(&self, out: &mut Vec<u8>) {
        self.rows.put(out);
        self.cols.put(out);
    }
}

impl Put for Inlet {
    fn put(&self, out: &mut Vec<u8>) {
        self.ipv6.put(out);
        self.udp.put(out);
        self.port.put(out);
    }
}

impl Put for Rlimit {
    fn put(&self, out: &mut Vec<u8>) {
        self.resource.put(out);
        self.value.put(out);
    }
}

/// A length that cannot be written becomes one that the guest refuses.
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
