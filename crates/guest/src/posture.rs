//! What is in force, asked of the kernel and not remembered.

use sys::bare::{self, Errno, Owned};

use crate::config::Mode;
use crate::frames::{Capabilities, MAX_LABEL, MAX_RLIMITS, Posture};
use crate::state::Guest;
use crate::text::Text;

const RLIMIT_NOFILE: u32 = 7;

/// Everything but the filter and the probes.
pub(crate) fn gather(guest: &Guest<'_>) -> bare::Result<Posture> {
    let [uid, euid, suid] = bare::users()?;
    let [gid, egid, sgid] = bare::groups()?;
    let [inheritable, permitted, effective] = bare::capabilities()?;
    let (name, len) = bare::hostname()?;
    let rlimits = rlimits(guest)?;
    let (descriptors, _) = bare::limit(RLIMIT_NOFILE)?;
    let descriptors = u32::try_from(descriptors).unwrap_or(u32::MAX);
    let (descriptors, more_descriptors) = bare::open_bitmap(descriptors)?;
    Ok(Posture {
        pid: bare::pid(),
        session: bare::session()?,
        uid,
        euid,
        suid,
        gid,
        egid,
        sgid,
        groups: bare::group_count()?,
        no_new_privs: bare::no_new_privs()?,
        seccomp_mode: 0,
        dumpable: bare::dumpable()?,
        death_signal: bare::death_signal()?,
        capabilities: Capabilities {
            inheritable,
            permitted,
            effective,
            // Only what is both permitted and inheritable can be ambient (capabilities(7)): else 42 needless questions.
            ambient: if permitted & inheritable == 0 { 0 } else { bare::ambient()? },
        },
        securebits: securebits(guest.view.mode)?,
        umask: bare::umask(),
        hostname: Text::new(name.get(..len).unwrap_or(&[])),
        label: Text::default(),
        rlimits,
        descriptors,
        more_descriptors,
        landlock_layers: guest.layers,
        device_refused: guest.device_refused,
        signal_scope_proven: guest.scope_proven,
        payload_scope_proven: guest.payload_scope_proven,
        keyring_replaced: guest.keyring_replaced,
        link_refused: guest.link_refused,
        link_told: guest.link_told,
        inner_limits: guest.inner_limits,
        local_ipv4: guest.local[0],
        local_ipv6: guest.local[1],
        landlock_rules: guest.view.landlock.map_or(0, |layer| count(layer.rules.len())),
        variables: count(guest.view.env.len()),
        probes: crate::frames::ProbeErrnos::default(),
    })
}

/// A kernel that is not Linux need not know of them.
fn securebits(mode: Mode) -> bare::Result<u32> {
    match (mode, bare::securebits()) {
        (Mode::Bundle, Err(Errno::EINVAL)) => Ok(0),
        (Mode::Bundle | Mode::Runtime | Mode::Container | Mode::Process, bits) => bits,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The label that the next program gets; the descriptor is closed before the open ones are counted.
pub(crate) fn label(file: Option<Owned>) -> bare::Result<Text<MAX_LABEL>> {
    let Some(file) = file else { return Ok(Text::default()) };
    // More room than the answer may have: what does not fit must differ from what was planned.
    let mut bytes = [0; MAX_LABEL + 1];
    let length = bare::read_some(file.fd(), &mut bytes)?;
    let said = bytes.get(..length).unwrap_or(&[]);
    let end = said.iter().position(|byte| matches!(byte, 0 | b'\n')).unwrap_or(said.len());
    Ok(Text::new(said.get(..end).unwrap_or(&[])))
}

/// Those that were set; what nobody planned is compared with nothing.
fn rlimits(guest: &Guest<'_>) -> bare::Result<[(u64, u64); MAX_RLIMITS]> {
    let mut all = [(0, 0); MAX_RLIMITS];
    for limit in guest.view.rlimits.iter() {
        let place = usize::try_from(limit.resource).ok().and_then(|at| all.get_mut(at)).ok_or(Errno::EINVAL)?;
        *place = bare::limit(limit.resource)?;
    }
    Ok(all)
}
