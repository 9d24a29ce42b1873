//! The seccomp filter of a plan.

use policy::Policy;
use policy::value::NetMode;
use sys::seccomp::{Profile, ProfileError, Surroundings};

use crate::StartError;
use crate::host::Capabilities;
use crate::support::writes_to_host;

/// Compiles the filter. It takes microseconds, so nothing is compiled ahead.
pub(super) fn program(policy: &Policy, host: &Capabilities, container: bool) -> Result<Vec<u8>, StartError> {
    let failed = |e: ProfileError| StartError::Profile { why: e.to_string() };
    let mut profile =
        Profile::load(&policy.syscalls.profile, &surroundings(policy, host, container)).map_err(failed)?;
    for name in &policy.syscalls.allow {
        profile.allow(name).map_err(failed)?;
    }
    for name in &policy.syscalls.deny {
        profile.deny(name).map_err(failed)?;
    }
    let program = profile.compile().map_err(|e| StartError::Internal(e.to_string()))?;
    Ok(program.bytes())
}

fn surroundings(policy: &Policy, host: &Capabilities, container: bool) -> Surroundings {
    // A plain writable bind lets the payload connect to a unix socket of the host that lies below; Landlock sees that
    // from ABI 9 only. Without a mount namespace every path of the host is such a place.
    let host_in_reach = !container || (writes_to_host(policy) && host.landlock < 9);
    Surroundings {
        unix_sockets: policy.fs.sockets || !host_in_reach,
        inet_sockets: container && policy.net.mode == NetMode::Loopback,
        shared_pids: !container,
        memfd_exec: policy.fs.exec.is_none(),
    }
}
