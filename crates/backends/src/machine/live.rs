//! What the supervisor of a live machine holds of it beside the agent's line: orders to its emulator and to its first process.
//!
//! # Promises
//! What is written down of a machine is of one moment in which its agent and all programs stood still, by the word of its first
//! process. It goes on in every case, or is ended.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use agent::machine::Order;
use agent::words::Ended;

use super::link::Link;
use super::machine_cache::hashed;
use super::monitor::Monitor;
use super::up::{clock, most, written};
use crate::backend::Memory;

/// How long what is inside may take to stand still; the first process itself gives up after half of it.
const STANDS: Duration = Duration::from_secs(20);

/// What of a machine is the same in all that go on from it.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// See [`Memory::kind`].
    pub(super) kind: String,
    /// The image of its root, on the host.
    pub(super) root: PathBuf,
    /// See [`Memory::machine_id`].
    pub(super) machine_id: Option<String>,
    /// Bytes of memory.
    pub(super) memory: u64,
    /// It has no other disk than the root's image.
    pub(super) alone: bool,
}

/// The orders.
#[derive(Debug)]
pub(super) struct Live {
    /// None where the emulator takes no orders, of which one would be to write the machine down.
    monitor: Option<Monitor>,
    /// To the first process.
    orders: Link,
    origin: Origin,
    /// All inside stands still.
    still: bool,
    /// An order was not answered: what comes may be the answer to that one.
    lost: bool,
}

impl Live {
    pub(super) const fn new(monitor: Option<Monitor>, orders: Link, origin: Origin) -> Self {
        Self { monitor, orders, origin, still: false, lost: false }
    }

    /// Whether all inside stands still.
    pub(super) const fn is_still(&self) -> bool {
        self.still
    }

    fn order(&mut self, order: &Order) -> Result<(), String> {
        if self.lost {
            return Err("the machine's first process did not answer before".to_owned());
        }
        match self.orders.order::<()>(order, STANDS) {
            Ok(Ended::Ok(())) => Ok(()),
            Ok(Ended::Error(failure)) => Err(failure.message),
            Err(why) => {
                self.lost = true;
                Err(why)
            }
        }
    }

    /// Stops all that is inside, or nothing of it.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        let stopped = self.order(&Order::Stop {});
        self.still = stopped.is_ok();
        if !self.still {
            self.let_go();
        }
        stopped
    }

    /// Lets it go on.
    pub(super) fn go_on(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.still) {
            return Ok(());
        }
        self.order(&Order::GoOn { clock: clock() })
    }

    /// Whatever became of the order to stop: nothing stands still for ever, and the line is its supervisor's again.
    fn let_go(&mut self) {
        let order = Order::GoOn { clock: clock() };
        // Refused where nothing had stopped.
        if self.order(&order).is_err() && self.lost {
            drop(self.orders.put_order(&order));
            self.orders.flush();
        }
    }

    /// Writes down all that the machine is while it stands still.
    pub(super) fn write(&mut self, to: &mut dyn Write) -> Result<Memory, String> {
        if !self.origin.alone {
            return Err("a disk with its workspace is attached to it".to_owned());
        }
        let monitor = self.monitor.as_mut().ok_or("its emulator takes no orders")?;
        let most = most(self.origin.memory);
        let (digest, bytes) = written(monitor, |state| hashed(state, to, most))?
            .map_err(|error| format!("what the machine is could not be written down: {error}"))?;
        let Origin { kind, root, machine_id, memory: _, alone: _ } = self.origin.clone();
        Ok(Memory { kind, digest, bytes, root, machine_id })
    }
}
