//! What the guest says is in force. The supervisor compares it with the plan and with what the kernel shows outside.

use crate::config::MAX_PROBES;
use crate::text::Text;
use crate::wire::{Reader, Writer};

/// Resource limits of Linux.
pub const MAX_RLIMITS: usize = 16;
/// Longest label that is read back, with what the kernel says of its mode.
pub const MAX_LABEL: usize = 255;

/// Capability sets, as capget(2) and prctl(2) give them. The bounding set is read from outside: there it is one line, and
/// here a question for each capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Inheritable.
    pub inheritable: u64,
    /// Permitted.
    pub permitted: u64,
    /// Effective.
    pub effective: u64,
    /// Ambient.
    pub ambient: u64,
}

/// One errno for each probe of the config, in order; 0 = the attempt worked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeErrnos {
    errnos: [i32; MAX_PROBES],
    count: u8,
}

impl Default for ProbeErrnos {
    fn default() -> Self {
        Self { errnos: [0; MAX_PROBES], count: 0 }
    }
}

impl ProbeErrnos {
    /// Adds one; false if there is no room.
    #[must_use]
    pub fn push(&mut self, errno: i32) -> bool {
        match self.errnos.get_mut(usize::from(self.count)) {
            Some(place) => {
                *place = errno;
                self.count = self.count.saturating_add(1);
                true
            }
            None => false,
        }
    }

    /// The errnos.
    pub fn iter(&self) -> impl Iterator<Item = i32> + '_ {
        self.errnos.iter().take(usize::from(self.count)).copied()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// What is in force in the guest, read back from the kernel after every step but `go`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Posture {
    /// As the guest sees itself; 1 in a pid namespace.
    pub pid: i32,
    /// Session.
    pub session: i32,
    /// Real user.
    pub uid: u32,
    /// Effective user.
    pub euid: u32,
    /// Saved user.
    pub suid: u32,
    /// Real group.
    pub gid: u32,
    /// Effective group.
    pub egid: u32,
    /// Saved group.
    pub sgid: u32,
    /// How many supplementary groups.
    pub groups: u32,
    /// no_new_privs.
    pub no_new_privs: bool,
    /// PR_GET_SECCOMP: 0 none, 2 filter; -errno if the filter itself refused the question.
    pub seccomp_mode: i32,
    /// PR_GET_DUMPABLE; 0 = nobody may trace or read us.
    pub dumpable: i32,
    /// PR_GET_PDEATHSIG.
    pub death_signal: i32,
    /// Capabilities.
    pub capabilities: Capabilities,
    /// Securebits.
    pub securebits: u32,
    /// Umask.
    pub umask: u32,
    /// Host name.
    pub hostname: Text<64>,
    /// The label that the next program gets, as the kernel says it; empty = none was asked for.
    pub label: Text<MAX_LABEL>,
    /// Soft and hard value of every limit that the config names; 0 for the others.
    pub rlimits: [(u64, u64); MAX_RLIMITS],
    /// Bit n = descriptor n is open, up to 63.
    pub descriptors: u64,
    /// A descriptor above 63 is open.
    pub more_descriptors: bool,
    /// How many Landlock layers the guest put on itself.
    pub landlock_layers: u8,
    /// A call of a device that had answered before the layer was refused under it (process tier).
    pub device_refused: bool,
    /// The signal scope was proven with a witness (process tier).
    pub signal_scope_proven: bool,
    /// A child under the payload's layer could not signal the guest.
    pub payload_scope_proven: bool,
    /// The session keyring is another one than before.
    pub keyring_replaced: bool,
    /// A link was refused before anything was granted (process tier).
    pub link_refused: bool,
    /// The same link was told after its folder was granted (process tier).
    pub link_told: bool,
    /// Every limit of the user namespace reads back as it was written.
    pub inner_limits: bool,
    /// The kernel routes a foreign IPv4 address to the sandbox itself.
    pub local_ipv4: bool,
    /// The kernel routes a foreign IPv6 address to the sandbox itself.
    pub local_ipv6: bool,
    /// How many rules the sandbox's Landlock layer has.
    pub landlock_rules: u32,
    /// How many variables the payload will have.
    pub variables: u32,
    /// Probes.
    pub probes: ProbeErrnos,
}

impl Posture {
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        for number in [self.pid, self.session, self.seccomp_mode, self.dumpable, self.death_signal] {
            w.i32(number);
        }
        for id in
            [self.uid, self.euid, self.suid, self.gid, self.egid, self.sgid, self.groups, self.securebits, self.umask]
        {
            w.u32(id);
        }
        w.u8(u8::from(self.no_new_privs));
        w.u8(self.landlock_layers);
        w.u8(u8::from(self.device_refused));
        w.u8(u8::from(self.signal_scope_proven));
        w.u8(u8::from(self.payload_scope_proven));
        w.u8(u8::from(self.keyring_replaced));
        w.u8(u8::from(self.link_refused));
        w.u8(u8::from(self.link_told));
        w.u8(u8::from(self.inner_limits));
        w.u8(u8::from(self.local_ipv4));
        w.u8(u8::from(self.local_ipv6));
        w.u32(self.landlock_rules);
        w.u32(self.variables);
        w.u8(u8::from(self.more_descriptors));
        let sets = &self.capabilities;
        for set in [sets.inheritable, sets.permitted, sets.effective, sets.ambient] {
            w.u64(set);
        }
        w.u64(self.descriptors);
        for (soft, hard) in self.rlimits {
            w.u64(soft);
            w.u64(hard);
        }
        let hostname = self.hostname.as_bytes();
        w.u8(u8::try_from(hostname.len()).unwrap_or(0));
        w.put(hostname);
        let label = self.label.as_bytes();
        w.u8(u8::try_from(label.len()).unwrap_or(0));
        w.put(label);
        w.u8(self.probes.count);
        self.probes.iter().for_each(|errno| w.u16(u16::try_from(errno).unwrap_or(u16::MAX)));
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Option<Self> {
        let [pid, session, seccomp_mode, dumpable, death_signal] = [r.i32()?, r.i32()?, r.i32()?, r.i32()?, r.i32()?];
        let [uid, euid, suid, gid, egid, sgid, groups, securebits, umask] =
            [r.u32()?, r.u32()?, r.u32()?, r.u32()?, r.u32()?, r.u32()?, r.u32()?, r.u32()?, r.u32()?];
        let no_new_privs = r.flag()?;
        let landlock_layers = r.u8()?;
        let device_refused = r.flag()?;
        let signal_scope_proven = r.flag()?;
        let payload_scope_proven = r.flag()?;
        let keyring_replaced = r.flag()?;
        let link_refused = r.flag()?;
        let link_told = r.flag()?;
        let inner_limits = r.flag()?;
        let local_ipv4 = r.flag()?;
        let local_ipv6 = r.flag()?;
        let landlock_rules = r.u32()?;
        let variables = r.u32()?;
        let more_descriptors = r.flag()?;
        let capabilities =
            Capabilities { inheritable: r.u64()?, permitted: r.u64()?, effective: r.u64()?, ambient: r.u64()? };
        let descriptors = r.u64()?;
        let mut rlimits = [(0, 0); MAX_RLIMITS];
        for limit in &mut rlimits {
            *limit = (r.u64()?, r.u64()?);
        }
        let hostname = usize::from(r.u8()?);
        let hostname = Text::new(r.take(hostname).filter(|name| name.len() <= 64)?);
        let label = usize::from(r.u8()?);
        let label = Text::new(r.take(label)?);
        let mut probes = ProbeErrnos::default();
        for _ in 0..r.u8()? {
            if !probes.push(r.u16()?.into()) {
                return None;
            }
        }
        Some(Self {
            pid,
            session,
            uid,
            euid,
            suid,
            gid,
            egid,
            sgid,
            groups,
            no_new_privs,
            seccomp_mode,
            dumpable,
            death_signal,
            capabilities,
            securebits,
            umask,
            hostname,
            label,
            rlimits,
            descriptors,
            more_descriptors,
            landlock_layers,
            device_refused,
            signal_scope_proven,
            payload_scope_proven,
            keyring_replaced,
            link_refused,
            link_told,
            inner_limits,
            local_ipv4,
            local_ipv6,
            landlock_rules,
            variables,
            probes,
        })
    }
}
