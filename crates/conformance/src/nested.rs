//! The confinement of an unprivileged container around the product: a filter that forbids namespaces and mounts.

use std::borrow::Cow;

use sys::seccomp::rule::{Action, Calls, Condition, Filter, Test, Verdict, Width};
use sys::seccomp::{Program, names};

use crate::CaseError;

/// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET (linux/sched.h).
const NEW: u64 = 0x7e02_0000;
const EPERM: u16 = 1;
const ENOSYS: u16 = 38;

/// The filter: everything passes but new namespaces and mounts; `clone3`, whose flags lie in memory, is not there, as
/// container engines do it.
///
/// # Errors
/// A call has no number here, or the filter does not compile.
pub fn program() -> Result<Program, CaseError> {
    let number = |name: &str| names::number(name).ok_or_else(|| CaseError::from(format!("no call is named {name}")));
    let mut filter = Filter { calls: Calls::new(), unknown: Action::Allow };
    for name in ["unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fsmount"] {
        filter.calls.insert(number(name)?, Verdict::Always(Action::Errno(EPERM)));
    }
    filter.calls.insert(number("clone3")?, Verdict::Always(Action::Errno(ENOSYS)));
    let none =
        Condition { argument: 0, width: Width::Long, test: Test::MaskedIn { mask: NEW, values: Cow::Borrowed(&[0]) } };
    let plain = Verdict::When {
        any: Cow::Owned(vec![Cow::Owned(vec![none])]),
        then: Action::Allow,
        otherwise: Action::Errno(EPERM),
    };
    filter.calls.insert(number("clone")?, plain);
    Ok(filter.compile()?)
}

/// Does it on a thread of its own under the filter, which all that it starts inherits.
///
/// # Errors
/// The filter cannot be installed, or what `act` says.
pub fn under<T: Send>(filter: &Program, act: impl FnOnce() -> Result<T, CaseError> + Send) -> Result<T, CaseError> {
    std::thread::scope(|scope| {
        let confined = scope.spawn(|| {
            sys::bare::set_no_new_privs().map_err(|errno| CaseError::from(format!("no_new_privs: {errno:?}")))?;
            sys::seccomp::apply(filter)?;
            act()
        });
        confined.join().unwrap_or_else(|_panic| Err("the thread under the filter panicked".into()))
    })
}
