//! Reserving before a call, settling after it.
//!
//! A reservation meets all demands of a call or none, whoever else reserves meanwhile, in this process or another. What was
//! reserved counts until its window ends, whatever becomes of the call or of the process: only [`Reservation::settle`]
//! (a smaller cost was reported) and [`Reservation::undo`] (the call was never made) take something back. Places among
//! those that run at once are free again when the reservation is dropped, or its process is dead.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gate::demand::{Demand, Key, MAX_DEMANDS, Want};

use super::block::Block;
use super::cell::{Cell, EXACT, Over};
use super::clock::{Clock, System};
use super::fault::LedgerFault;
use super::store::{Store, Transaction};

/// The counters of a state folder. Clones share one opening.
#[derive(Clone, Debug)]
pub struct Ledger {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    /// Places that could not be given back when their reservation ended; tried again with the next.
    owed: Mutex<Vec<Hold>>,
}

/// One demand that is not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Which of the demands.
    pub demand: usize,
    /// What is counted now: calls, millionths, or calls that run.
    pub have: u64,
    /// The limit it would pass.
    pub most: u64,
    /// When it would be met if nobody else came; none where nobody can know, or never.
    pub wait: Option<Duration>,
    /// The demand itself.
    pub want: Want,
}

/// Why nothing was reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unmet {
    /// Every demand that is not met.
    Exceeded(Vec<Exceeded>),
    /// It cannot be known.
    Fault(LedgerFault),
}

impl From<LedgerFault> for Unmet {
    fn from(fault: LedgerFault) -> Self {
        Self::Fault(fault)
    }
}

/// What a call has reserved. Dropping it ends the call: its places are free, its counts and costs stand.
#[derive(Debug)]
#[must_use = "what is reserved for a call must live as long as the call"]
pub struct Reservation {
    ledger: Ledger,
    holds: Vec<Hold>,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    demand: usize,
    key: u128,
    cell: Cell,
    stamp: u64,
}

impl Ledger {
    /// Opens the counters in `folder` (made if it is missing, its parent is not), by the machine's own clock.
    ///
    /// # Errors
    /// [`LedgerFault`]: no call that has a limit can be made.
    pub fn open(folder: &Path) -> Result<Self, LedgerFault> {
        let clock =
            System::new().map_err(|error| LedgerFault::File { path: folder.to_owned(), why: error.to_string() })?;
        Self::open_with(folder, Arc::new(clock))
    }

    /// As [`Ledger::open`], by another clock.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub fn open_with(folder: &Path, clock: Arc<dyn Clock>) -> Result<Self, LedgerFault> {
        let store = Store::open(folder, clock)?;
        Ok(Self { inner: Arc::new(Inner { store, owed: Mutex::new(Vec::new()) }) })
    }

    /// Where the counters are.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.inner.store.path()
    }

    /// Reserves all demands of one call, or none.
    ///
    /// # Errors
    /// [`Unmet`]; nothing is reserved then.
    pub fn reserve(&self, demands: &[Demand]) -> Result<Reservation, Unmet> {
        let mut reservation = Reservation { ledger: self.clone(), holds: Vec::new() };
        if demands.is_empty() {
            return Ok(reservation);
        }
        if demands.len() > MAX_DEMANDS {
            return Err(LedgerFault::TooMany.into());
        }
        let mut held = self.inner.store.lock()?;
        self.pay(&mut held)?;
        let mut exceeded = Vec::new();
        let mut holds = Vec::new();
        for (index, demand) in demands.iter().enumerate() {
            for cell in cells(&demand.want) {
                let key = cell_key(demand.key, &cell);
                let found = held.find(key)?;
                if let Err(over) = held.admits(&cell, &found.map_or(Block::EMPTY, |(_, block)| block)) {
                    exceeded.push(over.of(index, demand, &cell, held.now()));
                    continue;
                }
                // Once one demand is not met the others are looked at only, so that all are named.
                if !exceeded.is_empty() {
                    continue;
                }
                let (at, mut block) = match found {
                    Some(found) => found,
                    None => held.place(key)?,
                };
                let store = &self.inner.store;
                let stamp = cell.take(&mut block, &held.context(&|holder| store.lives(holder)));
                held.write(at, block);
                holds.push(Hold { demand: index, key, cell, stamp });
            }
        }
        if !exceeded.is_empty() {
            return Err(Unmet::Exceeded(exceeded));
        }
        held.commit()?;
        reservation.holds = holds;
        Ok(reservation)
    }

    /// Whether [`Ledger::reserve`] would succeed now. Reserves nothing.
    ///
    /// # Errors
    /// [`Unmet`], as it would be.
    pub fn look(&self, demands: &[Demand]) -> Result<(), Unmet> {
        if demands.is_empty() {
            return Ok(());
        }
        if demands.len() > MAX_DEMANDS {
            return Err(LedgerFault::TooMany.into());
        }
        let held = self.inner.store.lock()?;
        let mut exceeded = Vec::new();
        for (index, demand) in demands.iter().enumerate() {
            for cell in cells(&demand.want) {
                let found = held.find(cell_key(demand.key, &cell))?;
                if let Err(over) = held.admits(&cell, &found.map_or(Block::EMPTY, |(_, block)| block)) {
                    exceeded.push(over.of(index, demand, &cell, held.now()));
                }
            }
        }
        if exceeded.is_empty() { Ok(()) } else { Err(Unmet::Exceeded(exceeded)) }
    }

    /// What is counted now for a demand: calls, millionths in the window (or ever, where there is none), calls that run.
    ///
    /// # Errors
    /// [`LedgerFault`].
    pub fn standing(&self, key: Key, want: &Want) -> Result<u64, LedgerFault> {
        let held = self.inner.store.lock()?;
        let Some(cell) = cells(want).next() else { return Ok(0) };
        let found = held.find(cell_key(key, &cell))?;
        Ok(found.map_or(0, |(_, block)| cell.have(&block, held.now())))
    }

    /// Writes the counters to the disk: what was reserved before survives a loss of power. (A crash of any process loses
    /// nothing without it.)
    ///
    /// # Errors
    /// [`LedgerFault::File`].
    pub fn sync(&self) -> Result<(), LedgerFault> {
        self.inner.store.sync()
    }

    fn change(&self, holds: &[Hold], change: impl Fn(&Hold, &mut Block)) -> Result<(), LedgerFault> {
        let mut held = self.inner.store.lock()?;
        self.pay(&mut held)?;
        apply(&mut held, holds, change)?;
        held.commit()
    }

    /// Gives back what could not be given back before.
    fn pay(&self, held: &mut Transaction<'_>) -> Result<(), LedgerFault> {
        let mut owed = self.inner.owed.lock().unwrap_or_else(PoisonError::into_inner);
        if !owed.is_empty() {
            let me = self.inner.store.me();
            apply(held, &owed, |hold, block| hold.cell.give_back(block, hold.stamp, me))?;
            owed.clear();
        }
        Ok(())
    }
}

/// A counter that is gone (its window ended, and its place was needed) has nothing to give back to.
fn apply(held: &mut Transaction<'_>, holds: &[Hold], change: impl Fn(&Hold, &mut Block)) -> Result<(), LedgerFault> {
    for hold in holds {
        if let Some((at, mut block)) = held.find(hold.key)? {
            change(hold, &mut block);
            held.write(at, block);
        }
    }
    Ok(())
}

impl Reservation {
    /// Ends the call: for each budget (by the number of its demand) what the call did cost, if that is less than what was
    /// reserved. A cost that is more is nonsense, since the reserved one is the worst case, and changes nothing.
    ///
    /// # Errors
    /// [`LedgerFault`]: the worst case stands.
    pub fn settle(mut self, costs: &[(usize, u64)]) -> Result<(), LedgerFault> {
        let holds = std::mem::take(&mut self.holds);
        let me = self.ledger.inner.store.me();
        if holds.iter().all(|hold| !hold.is_place() && costs.iter().all(|(demand, _)| *demand != hold.demand)) {
            return Ok(());
        }
        let done = self.ledger.change(&holds, |hold, block| {
            if hold.is_place() {
                hold.cell.give_back(block, hold.stamp, me);
            }
            let reserved = match hold.cell {
                Cell::Window { cost, .. } | Cell::Total { cost, .. } => cost,
                Cell::Instants { .. } | Cell::Spans { .. } | Cell::Slots { .. } => return,
            };
            let actual = costs.iter().find(|(demand, _)| *demand == hold.demand).map_or(reserved, |(_, cost)| *cost);
            hold.cell.lower(block, hold.stamp, reserved.saturating_sub(actual));
        });
        if done.is_err() {
            self.owe(&holds);
        }
        done
    }

    /// The call was never made: everything is given back.
    ///
    /// # Errors
    /// [`LedgerFault`]: what was reserved stands.
    pub fn undo(mut self) -> Result<(), LedgerFault> {
        let holds = std::mem::take(&mut self.holds);
        let me = self.ledger.inner.store.me();
        if holds.is_empty() {
            return Ok(());
        }
        let done = self.ledger.change(&holds, |hold, block| hold.cell.give_back(block, hold.stamp, me));
        if done.is_err() {
            self.owe(&holds);
        }
        done
    }

    /// Whether it holds places among those that run at once.
    #[must_use]
    pub fn has_places(&self) -> bool {
        self.holds.iter().any(Hold::is_place)
    }

    fn owe(&self, holds: &[Hold]) {
        let mut owed = self.ledger.inner.owed.lock().unwrap_or_else(PoisonError::into_inner);
        owed.extend(holds.iter().filter(|hold| hold.is_place()));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let places: Vec<Hold> = self.holds.drain(..).filter(Hold::is_place).collect();
        let me = self.ledger.inner.store.me();
        if !places.is_empty()
            && self.ledger.change(&places, |hold, block| hold.cell.give_back(block, hold.stamp, me)).is_err()
        {
            self.owe(&places);
        }
    }
}

impl Hold {
    const fn is_place(&self) -> bool {
        matches!(self.cell, Cell::Slots { .. })
    }
}

impl Over {
    fn of(self, index: usize, demand: &Demand, cell: &Cell, now: u64) -> Exceeded {
        let most = match *cell {
            Cell::Instants { most, .. } | Cell::Spans { most, .. } | Cell::Slots { most } => u64::from(most),
            Cell::Window { most, .. } | Cell::Total { most, .. } => most,
        };
        let wait = self.free_at.map(|at| Duration::from_micros(at.saturating_sub(now)));
        Exceeded { demand: index, have: self.have, most, wait, want: demand.want }
    }
}

/// The cells that together hold a demand.
fn cells(want: &Want) -> impl Iterator<Item = Cell> {
    let micros = |ms: u64| ms.max(1).saturating_mul(1000);
    let window = |most: u32, per: u64| {
        if most <= EXACT { Cell::Instants { most, per } } else { Cell::Spans { most, per } }
    };
    let pair = match *want {
        Want::Rate { calls, per_ms, burst } => {
            let per = micros(per_ms);
            // `burst` calls within the time in which the even rate would have let through as many.
            let part = u128::from(per) * u128::from(burst);
            let short = u64::try_from(part.div_ceil(u128::from(calls.max(1)))).unwrap_or(u64::MAX);
            [Some(window(calls, per)), (burst < calls).then(|| window(burst, short.max(1)))]
        }
        Want::Budget { cost, window, total } => [
            window.map(|(most, per_ms)| Cell::Window { cost, most, per: micros(per_ms) }),
            total.map(|most| Cell::Total { cost, most }),
        ],
        Want::Concurrency(most) => [Some(Cell::Slots { most }), None],
    };
    pair.into_iter().flatten()
}

/// Cells of one demand lie apart, and so do those of a limit that was written differently before.
fn cell_key(key: Key, cell: &Cell) -> u128 {
    let (kind, most, per) = cell.kind();
    let mut number = key.get();
    for word in [kind, most, per] {
        number = (number ^ u128::from(word)).wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).rotate_left(61);
    }
    number.max(1)
}
