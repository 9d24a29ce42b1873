//! What is in force, asked of the kernel and not remembered.

use sys::bare::{self, Fd, Owned};

use crate::confine::Guest;
use crate::frames::{Capabilities, MAX_LABEL, MAX_RLIMITS, Posture};
use crate::text::Text;

const RLIMIT_NOFILE: usize = 7;

/// Everything but the filter and the probes.
pub(crate) fn gather(guest: &Guest<'_>) -> bare::Result<Posture> {
    let [uid, euid, suid] = bare::users()?;
    let [gid, egid, sgid] = bare::groups()?;
    let [inheritable, permitted, effective] = bare::capabilities()?;
    let (name, len) = bare::hostname()?;
    let rlimits = rlimits()?;
    let descriptors = rlimits.get(RLIMIT_NOFILE).map_or(256, |(soft, _)| u32::try_from(*soft).unwrap_or(u32::MAX));
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
            bounding: bare::bounding()?,
            // Only what is both permitted and inheritable can be ambient (capabilities(7)): else 42 needless questions.
            ambient: if permitted & inheritable == 0 { 0 } else { bare::ambient()? },
        },
        securebits: bare::securebits()?,
        hostname: Text::new(name.get(..len).unwrap_or(&[])),
        label: Text::default(),
        rlimits,
        descriptors,
        more_descriptors,
        cwd_ino: bare::status(Fd::CWD, c".")?.ino,
        root_ino: bare::status(Fd::CWD, c"/")?.ino,
        landlock_layers: guest.layers,
        signal_scope_proven: guest.scope_proven,
        probes: crate::frames::ProbeErrnos::default(),
    })
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

fn rlimits() -> bare::Result<[(u64, u64); MAX_RLIMITS]> {
    let mut all = [(0, 0); MAX_RLIMITS];
    for (resource, limit) in (0..).zip(&mut all) {
        *limit = bare::limit(resource)?;
    }
    Ok(all)
}
