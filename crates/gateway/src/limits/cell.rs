//! The state of one limit in one block, and what it answers. Pure: time and the lives of processes come from outside.
//!
//! Windows are half open: what happened at `t` is counted by everything before `t + per` and by nothing from then on. Up
//! to [`EXACT`] calls each one's instant is kept; above, calls are counted in spans of `per / 42`, each of which counts
//! until its last instant is out of the window: more strictly than asked for, never less. Spending has spans of `per / 20`.

use super::block::Block;

/// Calls whose instants are kept.
pub(super) const EXACT: u32 = 22;
/// Spans of a count, two to a word, and of an amount.
const COUNTS: u64 = 44;
const AMOUNTS: u64 = 22;
/// The first word that a cell may use as it likes; before it stand key, kind and expiry.
const OWN: usize = 8;
const END: usize = 30;
const KIND: usize = 2;
const EXPIRES: usize = 3;
/// Number of entries, or number of the newest span.
const HEAD: usize = 4;
const TOTAL: usize = 5;
const NEVER: u64 = u64::MAX;

/// What one block holds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// At most so many calls in any window: instants.
    Instants { most: u32, per: u64 },
    /// At most so many calls in any window: spans.
    Spans { most: u32, per: u64 },
    /// At most so much in any window.
    Window { cost: u64, most: u64, per: u64 },
    /// At most so much ever.
    Total { cost: u64, most: u64 },
    /// At most so many at once.
    Slots { most: u32 },
}

/// Why a limit says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Over {
    /// What is counted now.
    pub(super) have: u64,
    /// When it would say yes if nothing else came; none where nobody can know.
    pub(super) free_at: Option<u64>,
}

/// Who holds a slot: index and generation of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) index: u16,
    pub(super) generation: u32,
}

/// What a limit needs to know beside its own counts.
pub(super) struct CellContext<'a> {
    /// Microseconds.
    pub(super) now: u64,
    /// This process.
    pub(super) me: Holder,
    /// Whether a process still lives.
    pub(super) lives: &'a dyn Fn(Holder) -> bool,
}

impl Cell {
    /// Cells of different geometry never share a block, so that no policy reads another's state wrongly.
    pub(super) const fn kind(&self) -> (u64, u64, u64) {
        match *self {
            Self::Instants { most, per } => (1, most as u64, per),
            Self::Spans { most, per } => (2, most as u64, per),
            Self::Window { per, .. } => (3, 0, per),
            Self::Total { .. } => (4, 0, 0),
            Self::Slots { .. } => (5, 0, 0),
        }
    }

    /// Whether one more may be taken.
    pub(super) fn admits(&self, block: &Block, context: &CellContext<'_>) -> Result<(), Over> {
        let now = context.now;
        match *self {
            Self::Instants { most, per } => {
                let counted = || instants(block).filter(|at| at.saturating_add(per) > now);
                let have = counted().count();
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                if have < most {
                    return Ok(());
                }
                let last = counted().nth(have - most).filter(|_| most > 0);
                Err(Over { have: wide(have), free_at: last.map(|at| at.saturating_add(per)) })
            }
            Self::Spans { most, per } => {
                let width = width(per, COUNTS);
                let spans =
                    || counts(block).filter(move |(span, count)| *count > 0 && counts_at(*span, width, per, now));
                over(u64::from(most), 1, spans().map(|(span, count)| (span, u64::from(count))), width, per)
            }
            Self::Window { cost, most, per } => {
                let width = width(per, AMOUNTS);
                let spans = amounts(block).filter(|(span, amount)| *amount > 0 && counts_at(*span, width, per, now));
                over(most, cost, spans, width, per)
            }
            Self::Total { cost, most } => {
                let have = block.0[TOTAL];
                let fits = have.checked_add(cost).is_some_and(|sum| sum <= most);
                if fits { Ok(()) } else { Err(Over { have, free_at: None }) }
            }
            Self::Slots { most } => {
                if has_slot(block, most, context.me) {
                    return Ok(());
                }
                // Only now, since asking for each holder's life is a call to the kernel.
                let mut swept = *block;
                sweep(&mut swept, context);
                if has_slot(&swept, most, context.me) {
                    return Ok(());
                }
                Err(Over { have: self.have(&swept, now), free_at: None })
            }
        }
    }

    /// Takes one; the caller asked [`Cell::admits`]. Answers the stamp by which it can be given back.
    pub(super) fn take(&self, block: &mut Block, context: &CellContext<'_>) -> u64 {
        let now = context.now;
        let (kind, _, _) = self.kind();
        block.0[KIND] = kind;
        match *self {
            Self::Instants { per, .. } => {
                let mut kept: Vec<u64> = instants(block).filter(|at| at.saturating_add(per) > now).collect();
                kept.push(now);
                put_instants(block, &kept);
                block.0[EXPIRES] = now.saturating_add(per);
                now
            }
            Self::Spans { per, .. } => {
                let width = width(per, COUNTS);
                let span = now / width;
                roll(block, span, COUNTS, |block, place| put_count(block, place, 0));
                let place = span % COUNTS;
                put_count(block, place, count_at(block, place).saturating_add(1));
                block.0[EXPIRES] = end_of(span, width, per);
                span
            }
            Self::Window { cost, per, .. } => {
                let width = width(per, AMOUNTS);
                let span = now / width;
                roll(block, span, AMOUNTS, |block, place| put_amount(block, place, 0));
                let place = span % AMOUNTS;
                put_amount(block, place, amount_at(block, place).saturating_add(cost));
                block.0[EXPIRES] = end_of(span, width, per);
                span
            }
            Self::Total { cost, .. } => {
                block.0[TOTAL] = block.0[TOTAL].saturating_add(cost);
                block.0[EXPIRES] = NEVER;
                0
            }
            Self::Slots { most } => {
                if !has_slot(block, most, context.me) {
                    sweep(block, context);
                }
                let place = holders(block)
                    .position(|(holder, count)| holder == context.me && count > 0)
                    .or_else(|| holders(block).position(|(_, count)| count == 0));
                if let Some(word) = place.and_then(|place| block.0.get_mut(OWN + place)) {
                    let (holder, count) = unpack(*word);
                    let count = if holder == context.me { count } else { 0 };
                    *word = pack(context.me, count.saturating_add(1));
                }
                block.0[EXPIRES] = NEVER;
                0
            }
        }
    }

    /// Gives back what was taken: the call was never made, or (for slots) it is over.
    pub(super) fn give_back(&self, block: &mut Block, stamp: u64, me: Holder) {
        match *self {
            Self::Instants { .. } => {
                let mut kept: Vec<u64> = instants(block).collect();
                if let Some(place) = kept.iter().position(|at| *at == stamp) {
                    kept.remove(place);
                }
                put_instants(block, &kept);
            }
            Self::Spans { .. } => {
                if counts(block).any(|(span, _)| span == stamp) {
                    let place = stamp % COUNTS;
                    put_count(block, place, count_at(block, place).saturating_sub(1));
                }
            }
            Self::Window { cost, .. } | Self::Total { cost, .. } => self.lower(block, stamp, cost),
            Self::Slots { .. } => {
                let place = holders(block).position(|(holder, count)| holder == me && count > 0);
                if let Some(word) = place.and_then(|place| block.0.get_mut(OWN + place)) {
                    let (holder, count) = unpack(*word);
                    *word = if count > 1 { pack(holder, count - 1) } else { 0 };
                }
                if holders(block).all(|(_, count)| count == 0) {
                    block.0[EXPIRES] = 0;
                }
            }
        }
    }

    /// Takes `less` off an amount that was taken with this stamp, if it is still counted.
    pub(super) fn lower(&self, block: &mut Block, stamp: u64, less: u64) {
        match *self {
            Self::Window { .. } => {
                if amounts(block).any(|(span, _)| span == stamp) {
                    let place = stamp % AMOUNTS;
                    put_amount(block, place, amount_at(block, place).saturating_sub(less));
                }
            }
            Self::Total { .. } => block.0[TOTAL] = block.0[TOTAL].saturating_sub(less),
            Self::Instants { .. } | Self::Spans { .. } | Self::Slots { .. } => {}
        }
    }

    /// What is counted now.
    pub(super) fn have(&self, block: &Block, now: u64) -> u64 {
        match *self {
            Self::Instants { per, .. } => wide(instants(block).filter(|at| at.saturating_add(per) > now).count()),
            Self::Spans { per, .. } => {
                let width = width(per, COUNTS);
                counts(block).filter(|(s, _)| counts_at(*s, width, per, now)).map(|(_, count)| u64::from(count)).sum()
            }
            Self::Window { per, .. } => {
                let width = width(per, AMOUNTS);
                amounts(block)
                    .filter(|(s, _)| counts_at(*s, width, per, now))
                    .fold(0, |sum, (_, amount)| sum.saturating_add(amount))
            }
            Self::Total { .. } => block.0[TOTAL],
            Self::Slots { .. } => holders(block).map(|(_, count)| u64::from(count)).sum(),
        }
    }
}

/// Whether a block holds nothing any more that counts.
pub(super) fn is_spent(block: &Block, context: &CellContext<'_>) -> bool {
    if block.0[EXPIRES] != NEVER {
        return block.0[EXPIRES] <= context.now;
    }
    let slots = Cell::Slots { most: 0 };
    block.0[KIND] == slots.kind().0 && holders(block).all(|(holder, count)| count == 0 || !(context.lives)(holder))
}

fn over(most: u64, more: u64, spans: impl Iterator<Item = (u64, u64)>, width: u64, per: u64) -> Result<(), Over> {
    let mut spans: Vec<(u64, u64)> = spans.collect();
    let have = spans.iter().fold(0_u64, |sum, (_, amount)| sum.saturating_add(*amount));
    if have.checked_add(more).is_some_and(|sum| sum <= most) {
        return Ok(());
    }
    spans.sort_unstable();
    let mut left = have;
    let free_at = spans.into_iter().find_map(|(span, amount)| {
        left -= amount.min(left);
        left.checked_add(more).is_some_and(|sum| sum <= most).then(|| end_of(span, width, per))
    });
    Err(Over { have, free_at })
}

/// So wide that the spans of one window, with the one that it begins in and the one that it ends in, have a place each.
fn width(per: u64, places: u64) -> u64 {
    per.div_ceil(places - 2).max(1)
}

/// From when on a span counts no more: its last instant is `width - 1` after its first.
fn end_of(span: u64, width: u64, per: u64) -> u64 {
    span.saturating_add(1).saturating_mul(width).saturating_sub(1).saturating_add(per)
}

fn counts_at(span: u64, width: u64, per: u64, now: u64) -> bool {
    end_of(span, width, per) > now
}

/// Makes `span` the newest; places of spans that fall out are cleared.
fn roll(block: &mut Block, span: u64, places: u64, clear: impl Fn(&mut Block, u64)) {
    let newest = block.0[HEAD];
    let passed = span.saturating_sub(newest).min(places);
    for step in 0..passed {
        clear(block, span.saturating_sub(step) % places);
    }
    block.0[HEAD] = newest.max(span);
}

/// The spans that have a place, with their numbers.
fn spans(block: &Block, places: u64) -> impl Iterator<Item = u64> {
    let newest = block.0[HEAD];
    (newest.saturating_sub(places - 1)..=newest).rev()
}

fn counts(block: &Block) -> impl Iterator<Item = (u64, u32)> {
    spans(block, COUNTS).map(|span| (span, count_at(block, span % COUNTS)))
}

fn amounts(block: &Block) -> impl Iterator<Item = (u64, u64)> {
    spans(block, AMOUNTS).map(|span| (span, amount_at(block, span % AMOUNTS)))
}

fn index(place: u64) -> usize {
    OWN + usize::try_from(place).unwrap_or(usize::MAX - OWN)
}

fn amount_at(block: &Block, place: u64) -> u64 {
    block.0.get(index(place)).copied().unwrap_or(u64::MAX)
}

fn put_amount(block: &mut Block, place: u64, amount: u64) {
    if let Some(word) = block.0.get_mut(index(place)) {
        *word = amount;
    }
}

fn count_at(block: &Block, place: u64) -> u32 {
    let word = amount_at(block, place / 2);
    let [low, high] = halves(word);
    if place.is_multiple_of(2) { low } else { high }
}

fn put_count(block: &mut Block, place: u64, count: u32) {
    let [low, high] = halves(amount_at(block, place / 2));
    let word = if place.is_multiple_of(2) { joined(count, high) } else { joined(low, count) };
    put_amount(block, place / 2, word);
}

fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}

fn joined(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn instants(block: &Block) -> impl Iterator<Item = u64> {
    let count = usize::try_from(block.0[HEAD]).unwrap_or(0);
    block.0.iter().skip(OWN).take(count.min(END - OWN)).copied()
}

fn put_instants(block: &mut Block, all: &[u64]) {
    let kept = all.len().min(END - OWN);
    for (word, at) in block.0.iter_mut().skip(OWN).zip(all.iter().skip(all.len() - kept)) {
        *word = *at;
    }
    block.0[HEAD] = wide(kept);
}

/// Whether one more fits below `most`, and there is a word to write this process into.
fn has_slot(block: &Block, most: u32, me: Holder) -> bool {
    let held: u64 = holders(block).map(|(_, count)| u64::from(count)).sum();
    held < u64::from(most) && holders(block).any(|(holder, count)| count == 0 || holder == me && count < u16::MAX)
}

fn holders(block: &Block) -> impl Iterator<Item = (Holder, u16)> {
    block.0.iter().skip(OWN).take(END - OWN).map(|word| unpack(*word))
}

fn sweep(block: &mut Block, context: &CellContext<'_>) {
    for word in block.0.iter_mut().skip(OWN).take(END - OWN) {
        let (holder, count) = unpack(*word);
        if count > 0 && holder != context.me && !(context.lives)(holder) {
            *word = 0;
        }
    }
}

fn pack(holder: Holder, count: u16) -> u64 {
    u64::from(holder.index) | u64::from(count) << 16 | u64::from(holder.generation) << 32
}

fn unpack(word: u64) -> (Holder, u16) {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    let holder = Holder { index: u16::from_le_bytes([a, b]), generation: u32::from_le_bytes([e, f, g, h]) };
    (holder, u16::from_le_bytes([c, d]))
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ME: Holder = Holder { index: 1, generation: 1 };

    fn context(now: u64) -> CellContext<'static> {
        CellContext { now, me: ME, lives: &|_| true }
    }

    /// Takes at each instant where there is room; answers the instants at which it took.
    fn run(cell: Cell, at: &[u64]) -> Vec<u64> {
        let mut block = Block::EMPTY;
        let mut taken = Vec::new();
        for now in at {
            if cell.admits(&block, &context(*now)).is_ok() {
                cell.take(&mut block, &context(*now));
                taken.push(*now);
            }
        }
        taken
    }

    /// The most that lie in any half-open window: one that begins at each of them.
    fn densest(taken: &[(u64, u64)], per: u64) -> u64 {
        let window = |from: u64| taken.iter().filter(|(at, _)| *at >= from && *at < from + per).map(|(_, n)| n).sum();
        taken.iter().map(|(at, _)| window(*at)).max().unwrap_or(0)
    }

    fn times(gaps: &[u64]) -> Vec<u64> {
        gaps.iter()
            .scan(1_000_000, |now, gap| {
                *now += gap;
                Some(*now)
            })
            .collect()
    }

    proptest! {
        #[test]
        fn no_window_holds_more_instants_than_allowed_and_none_is_refused_without_need(
            gaps in prop::collection::vec(prop_oneof![Just(0), 0..40_u64, 0..400_u64], 1..300),
            most in 1..EXACT, per in 1..500_u64,
        ) {
            let at = times(&gaps);
            let taken = run(Cell::Instants { most, per }, &at);
            let ones: Vec<_> = taken.iter().map(|t| (*t, 1)).collect();
            prop_assert!(densest(&ones, per) <= u64::from(most));
            // Greedy by brute force takes exactly the same.
            let mut greedy: Vec<u64> = Vec::new();
            for now in at {
                if greedy.iter().filter(|t| **t + per > now).count() < usize::try_from(most).unwrap() {
                    greedy.push(now);
                }
            }
            prop_assert_eq!(taken, greedy);
        }

        #[test]
        fn no_window_holds_more_than_allowed_in_spans_and_room_comes_back(
            gaps in prop::collection::vec(prop_oneof![Just(0), 0..10_u64, 0..3000_u64], 1..400),
            most in 1..60_u32, per in 1..5000_u64,
        ) {
            let mut at = times(&gaps);
            // Long after, there is room again.
            at.push(at.last().unwrap() + per + per.div_ceil(42));
            let taken = run(Cell::Spans { most, per }, &at);
            let ones: Vec<_> = taken.iter().map(|t| (*t, 1)).collect();
            prop_assert!(densest(&ones, per) <= u64::from(most));
            prop_assert_eq!(taken.last(), at.last());
        }

        #[test]
        fn no_window_holds_more_spending_than_allowed(
            steps in prop::collection::vec((0..2000_u64, 0..50_u64), 1..300), most in 0..200_u64, per in 1..5000_u64,
        ) {
            let mut block = Block::EMPTY;
            let mut now = 77;
            let mut taken = Vec::new();
            for (gap, cost) in steps {
                now += gap;
                let cell = Cell::Window { cost, most, per };
                if cell.admits(&block, &context(now)).is_ok() {
                    cell.take(&mut block, &context(now));
                    taken.push((now, cost));
                }
            }
            prop_assert!(densest(&taken, per) <= most);
        }

        #[test]
        fn the_wait_that_is_told_is_enough_and_not_too_long(
            gaps in prop::collection::vec(0..100_u64, 1..80), most in 1..12_u32, per in 1..1000_u64, exact: bool,
        ) {
            let cell = if exact { Cell::Instants { most, per } } else { Cell::Spans { most, per } };
            let mut block = Block::EMPTY;
            let mut now = 0;
            for gap in gaps {
                now += gap;
                if let Err(over) = cell.admits(&block, &context(now)) {
                    let free = over.free_at.unwrap();
                    prop_assert!(free > now);
                    prop_assert!(cell.admits(&block, &context(free)).is_ok());
                    prop_assert!(cell.admits(&block, &context(free - 1)).is_err());
                    now = free;
                }
                cell.take(&mut block, &context(now));
            }
        }
    }

    #[test]
    fn a_window_ends_at_its_instant_and_not_before() {
        let cell = Cell::Instants { most: 2, per: 60 };
        assert_eq!(run(cell, &[0, 0, 59, 60, 60, 60, 119, 120]), [0, 0, 60, 60, 120]);
        assert_eq!(run(Cell::Instants { most: 0, per: 60 }, &[0, 1000]), [0; 0]);
        assert_eq!(run(Cell::Instants { most: 1, per: 1 }, &[5, 5, 6]), [5, 6]);
    }

    #[test]
    fn time_at_its_end_wraps_nothing() {
        for cell in [
            Cell::Instants { most: 1, per: u64::MAX },
            Cell::Spans { most: 1, per: u64::MAX },
            Cell::Window { cost: 1, most: 1, per: u64::MAX },
        ] {
            assert_eq!(run(cell, &[3, 4, u64::MAX - 1]), [3], "{cell:?}");
        }
        assert_eq!(run(Cell::Spans { most: 1, per: 9 }, &[u64::MAX - 2, u64::MAX - 1]), [u64::MAX - 2]);
    }

    #[test]
    fn a_cost_that_would_overflow_is_refused() {
        let mut block = Block::EMPTY;
        let cell = Cell::Total { cost: u64::MAX, most: u64::MAX };
        cell.take(&mut block, &context(1));
        assert!(Cell::Total { cost: 1, most: u64::MAX }.admits(&block, &context(1)).is_err());
        assert!(Cell::Total { cost: 0, most: u64::MAX }.admits(&block, &context(1)).is_ok());
        let mut block = Block::EMPTY;
        Cell::Window { cost: u64::MAX, most: u64::MAX, per: 9 }.take(&mut block, &context(1));
        assert!(Cell::Window { cost: 1, most: u64::MAX, per: 9 }.admits(&block, &context(1)).is_err());
    }

    #[test]
    fn what_is_given_back_is_free_and_what_is_long_gone_is_not_given_back_twice() {
        for cell in [Cell::Instants { most: 1, per: 42 }, Cell::Spans { most: 1, per: 42 }] {
            let mut block = Block::EMPTY;
            let stamp = cell.take(&mut block, &context(100));
            cell.give_back(&mut block, stamp, ME);
            assert!(cell.admits(&block, &context(100)).is_ok());
            cell.give_back(&mut block, stamp, ME);
            cell.take(&mut block, &context(100));
            assert!(cell.admits(&block, &context(100)).is_err(), "{cell:?}");
            // A stamp of another window takes nothing away from this one.
            cell.give_back(&mut block, stamp + 10_000, ME);
            assert!(cell.admits(&block, &context(100)).is_err(), "{cell:?}");
        }
        let cell = Cell::Window { cost: 5, most: 5, per: 20 };
        let mut block = Block::EMPTY;
        let old = cell.take(&mut block, &context(1));
        cell.take(&mut block, &context(1000));
        cell.lower(&mut block, old, 5);
        assert_eq!(cell.have(&block, 1000), 5);
    }

    #[test]
    fn places_of_the_dead_are_free_and_those_of_the_living_are_not() {
        let other = Holder { index: 2, generation: 9 };
        let cell = Cell::Slots { most: 2 };
        let mut block = Block::EMPTY;
        let theirs = |now| CellContext { now, me: other, lives: &|_| true };
        cell.take(&mut block, &theirs(1));
        cell.take(&mut block, &context(1));
        assert!(cell.admits(&block, &context(1)).is_err() && !is_spent(&block, &context(u64::MAX)));
        let orphaned = CellContext { now: 1, me: ME, lives: &|holder| holder != other };
        assert!(cell.admits(&block, &orphaned).is_ok());
        cell.take(&mut block, &orphaned);
        assert_eq!(cell.have(&block, 1), 2);
        assert!(cell.admits(&block, &orphaned).is_err());
        cell.give_back(&mut block, 0, ME);
        cell.give_back(&mut block, 0, ME);
        cell.give_back(&mut block, 0, ME);
        assert!(cell.have(&block, 1) == 0 && is_spent(&block, &context(1)));
    }

    #[test]
    fn more_processes_than_fit_one_counter_are_refused_and_not_forgotten() {
        let cell = Cell::Slots { most: 1000 };
        let mut block = Block::EMPTY;
        let process = |index| CellContext { now: 1, me: Holder { index, generation: 1 }, lives: &|_| true };
        let took = (0..40).filter(|index| {
            let admitted = cell.admits(&block, &process(*index)).is_ok();
            if admitted {
                cell.take(&mut block, &process(*index));
            }
            admitted
        });
        assert_eq!(took.count(), END - OWN);
        assert_eq!(cell.have(&block, 1), wide(END - OWN));
    }
}
