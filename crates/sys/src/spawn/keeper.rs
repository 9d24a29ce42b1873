//! The thread from which children are made when the caller's own may end before them.
//!
//! The kernel sends a child its parent-death signal when the *thread* that made it ends (prctl(2), `PR_SET_PDEATHSIG`).
//! The main thread ends with the process. For every other one a thread that waits for orders until then does the call:
//! only that, everything before and after it stays with the caller.
//!
//! A child inherits from it what belongs to a thread. It has the caller's ids, since threads with other ids (setresuid(2) is
//! a thread's own call) have a keeper of their own, and the caller's processors; signals but SIGCHLD are blocked; niceness, capabilities,
//! and a filter or namespace that only one thread has, are those of the thread that asked first.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::trampoline::Order;

/// Which thread makes a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    /// The calling one.
    Caller,
    /// One that lives as long as this process.
    Keeper,
}

impl Parent {
    /// One that outlives whatever it makes.
    pub(crate) fn lasting() -> Self {
        if rustix::thread::gettid() == rustix::process::getpid() { Self::Caller } else { Self::Keeper }
    }
}

struct SpawnRequest {
    order: Order,
    processors: Option<CpuSet>,
    answer: Sender<isize>,
}

struct Keeper {
    asks: Asks,
    orders: Sender<SpawnRequest>,
}

/// Whose orders it takes: a process that was forked since then has a copy of the list, and no such thread.
type Asks = (rustix::process::Pid, rustix::process::Uid, rustix::process::Gid);

static KEEPERS: Mutex<Vec<Keeper>> = Mutex::new(Vec::new());

/// Carries `order` out on the keeper and waits until it has: the number that the kernel answered.
///
/// # Errors
/// EAGAIN: there can be no such thread.
///
/// # Safety
/// As [`Order::carry_out`]; what the order points to is used until this returns, and as that says.
pub(super) unsafe fn carry_out(order: Order) -> rustix::io::Result<isize> {
    let (answer, answered) = channel();
    let asked = SpawnRequest { order, processors: sched_getaffinity(None).ok(), answer };
    orders()?.send(asked).map_err(|_gone| Errno::AGAIN)?;
    answered.recv().map_err(|_gone| Errno::AGAIN)
}

fn orders() -> rustix::io::Result<Sender<SpawnRequest>> {
    let mut keepers = KEEPERS.lock().unwrap_or_else(PoisonError::into_inner);
    let asks = (rustix::process::getpid(), rustix::process::geteuid(), rustix::process::getegid());
    if let Some(there) = keepers.iter().find(|keeper| keeper.asks == asks) {
        return Ok(there.orders.clone());
    }
    let (orders, received) = channel();
    let thread = std::thread::Builder::new().name("fumehood-spawn".to_owned()).spawn(move || wait(&received));
    thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
    keepers.push(Keeper { asks, orders: orders.clone() });
    Ok(orders)
}

fn wait(received: &Receiver<SpawnRequest>) {
    crate::signals::block_all();
    while let Ok(SpawnRequest { order, processors, answer }) = received.recv() {
        if let Some(processors) = processors {
            match sched_setaffinity(None, &processors) {
                // The caller has them, so they can be had.
                Ok(()) | Err(_) => {}
            }
        }
        // SAFETY: `carry_out` above was called with what this asks for, and waits for the answer.
        let number = unsafe { order.carry_out() };
        match answer.send(number) {
            // Whoever asked waits for it.
            Ok(()) | Err(_) => {}
        }
    }
}
