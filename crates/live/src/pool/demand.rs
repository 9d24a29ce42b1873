//! What was asked for lately, and so what is to be ready.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::Settings;
use super::spare::{NotMade, Spare, SpareLook};
use crate::create::Request;

/// As many are ready as were asked for in this time.
const LATELY: Duration = Duration::from_secs(60);
/// What was not asked for in this time is not wanted any more.
const EVER: Duration = Duration::from_secs(600);
/// Most shapes that are remembered.
const SHAPES: usize = 256;
/// After a failure the next try waits at least so long, and twice as long each time.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(60);
/// After a taking nothing is made for so long while half of what is wanted is ready: a start takes the processors from the
/// first program of who took one.
pub(super) const CALM: Duration = Duration::from_millis(50);
/// Of so many the memory is looked at in one go.
const LOOKS: usize = 32;

/// What makes sandboxes interchangeable: whose they are, and what they are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) owner: String,
    /// Without what is said when one is taken.
    pub(super) request: Request,
}

impl Shape {
    /// The shape of a request; none of what is made for one caller alone.
    pub(super) fn of(owner: &str, request: &Request) -> Option<Self> {
        let Request {
            layers,
            no_links,
            name: _,
            labels: _,
            idle_ms: _,
            template,
            begin,
            from,
            imports,
            given,
            columns: _,
            colour: _,
        } = request;
        let (layers, template, begin) = (layers.clone(), template.clone(), begin.clone());
        let imports = imports.clone();
        let request = Request { layers, no_links: *no_links, template, begin, imports, ..Request::default() };
        (from.is_none() && given.is_empty()).then(|| Self { owner: owner.to_owned(), request })
    }
}

struct Entry {
    shape: Shape,
    /// When it was asked for, the newest last.
    asked: VecDeque<Instant>,
    /// The oldest first.
    ready: VecDeque<Spare>,
    /// No new try before this, after a failure or after one that ended by itself.
    wait: Option<(Instant, Duration)>,
    /// What one of them holds, bytes, and when that was seen.
    weight: Option<(u64, Instant)>,
}

impl Entry {
    /// What one more of them will hold, as far as one was seen lately.
    fn weight(&self, at: Instant) -> Option<u64> {
        self.weight.filter(|(_, seen)| at.saturating_duration_since(*seen) < EVER).map(|(bytes, _)| bytes)
    }

    /// What its modules take is not known yet: the first one shows it, before there are others.
    fn is_unknown(&self, at: Instant) -> bool {
        self.shape.request.imports.is_some() && !self.ready.is_empty() && self.weight(at).is_none()
    }

    fn wants(&self, at: Instant) -> usize {
        let within = |time: Duration| self.asked.iter().filter(|asked| at.duration_since(**asked) < time).count();
        // What was asked for once may never be again: an owner who never asks twice fills no pool.
        if within(EVER) < 2 { 0 } else { within(LATELY).max(1) }
    }

    /// None could be made ready, or one did not last: the next try waits.
    fn failed(&mut self, at: Instant) {
        let wait = self.wait.map_or(FIRST_WAIT, |(_, before)| before.saturating_mul(2).min(MAX_WAIT));
        self.wait = at.checked_add(wait).map(|until| (until, wait));
    }
}

/// Whether so many that are ready can wait for more of them.
const fn has_half(ready: usize, target: usize) -> bool {
    ready >= target.div_ceil(2)
}

/// All shapes, the one that was asked for last at the end.
#[derive(Default)]
pub(super) struct Demand {
    entries: Vec<Entry>,
    /// When one was taken last.
    taken: Option<Instant>,
}

impl Demand {
    /// Somebody asked for this; at most so many times are remembered.
    pub(super) fn asked(&mut self, shape: Shape, at: Instant, most: usize) {
        let known = self.entries.iter().position(|entry| entry.shape == shape);
        let mut entry = match known {
            Some(known) => self.entries.remove(known),
            None => Entry { shape, asked: VecDeque::new(), ready: VecDeque::new(), wait: None, weight: None },
        };
        entry.asked.push_back(at);
        if entry.asked.len() > most.max(2) {
            entry.asked.pop_front();
        }
        self.entries.push(entry);
    }

    /// One that is ready.
    pub(super) fn take(&mut self, shape: &Shape, at: Instant) -> Option<Spare> {
        let entry = self.entries.iter_mut().find(|entry| entry.shape == *shape)?;
        let spare = entry.ready.pop_front()?;
        self.taken = Some(at);
        Some(spare)
    }

    /// One of these was whole when it was taken: the next one is made without a pause.
    pub(super) fn lasted(&mut self, shape: &Shape) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.shape == *shape) {
            entry.wait = None;
        }
    }

    /// How many are ready, and their memory in bytes.
    pub(super) fn ready(&self) -> (usize, u64) {
        let spares = || self.entries.iter().flat_map(|entry| &entry.ready);
        (spares().count(), spares().map(|spare| spare.memory).sum())
    }

    /// How many are to be ready.
    pub(super) fn wanted(&self, at: Instant, most: usize) -> usize {
        self.targets(at, most).iter().sum()
    }

    /// How many of each shape are to be ready. No owner has more than its share while others want something too, and no shape more
    /// than another that is wanted as often: who asks for two in turn finds both.
    fn targets(&self, at: Instant, most: usize) -> Vec<usize> {
        let wants: Vec<usize> = self.entries.iter().map(|entry| entry.wants(at)).collect();
        let wanting = || self.entries.iter().zip(&wants).filter(|(_, wants)| **wants > 0);
        let owners: BTreeSet<&str> = wanting().map(|(entry, _)| entry.shape.owner.as_str()).collect();
        let share = (most / owners.len().max(1)).max(usize::from(most > 0));
        let mut left = most;
        let mut has: BTreeMap<&str, usize> = BTreeMap::new();
        let mut targets = vec![0; self.entries.len()];
        // One to each in turn, to what was asked for last first.
        for round in 1..=most {
            for ((entry, wants), target) in self.entries.iter().zip(&wants).zip(&mut targets).rev() {
                let has = has.entry(entry.shape.owner.as_str()).or_default();
                if *wants >= round && *has < share && left > 0 {
                    (*target, *has, left) = (round, *has + 1, left - 1);
                }
            }
        }
        targets
    }

    /// Whether who took one last has had time for a first program.
    pub(super) fn is_calm(&self, at: Instant) -> bool {
        self.taken.is_none_or(|taken| at.duration_since(taken) >= CALM)
    }

    /// What is to be made next: of what lacks most, and fits into the memory that they may have if anything does.
    pub(super) fn next(&self, at: Instant, (most, memory): (usize, u64)) -> Option<Shape> {
        let (targets, held) = (self.targets(at, most), self.ready().1);
        let is_calm = self.is_calm(at);
        let lacks = self.entries.iter().zip(targets).map(|(entry, target)| {
            let ready = entry.ready.len();
            let is_early = entry.is_unknown(at) || (!is_calm && has_half(ready, target));
            let waits = entry.wait.is_some_and(|(until, _)| until > at) || is_early;
            let lack = if waits { 0 } else { target.saturating_sub(ready) };
            (lack > 0 && held.saturating_add(entry.weight(at).unwrap_or(0)) < memory, lack, entry)
        });
        let (_, lack, entry) = lacks.max_by_key(|(fits, lack, _)| (*fits, *lack))?;
        (lack > 0).then(|| entry.shape.clone())
    }

    /// One was made ready, or could not be. What is refused is forgotten: who asks for it again is told so, and nothing is kept for it.
    pub(super) fn made(&mut self, shape: &Shape, made: Result<Spare, NotMade>, at: Instant) {
        let Some(known) = self.entries.iter().position(|entry| entry.shape == *shape) else { return };
        match (made, self.entries.get_mut(known)) {
            (Ok(spare), Some(entry)) => {
                if shape.request.imports.is_none() {
                    entry.weight = Some((spare.memory, at));
                }
                entry.ready.push_back(spare);
            }
            (Err(NotMade::Hindered(_)), Some(entry)) => entry.failed(at),
            // Those that are ready are compared when they are taken, and end when nobody wants them.
            (Err(NotMade::Refused(_)), Some(entry)) => entry.asked.clear(),
            (_, None) => {}
        }
    }

    /// Those that are to be looked at.
    pub(super) fn due(&self, at: Instant) -> Vec<SpareLook> {
        let spares = self.entries.iter().flat_map(|entry| &entry.ready);
        spares.filter(|spare| spare.is_due(at)).map(Spare::to_look_at).take(LOOKS).collect()
    }

    /// So much the one with this supervisor holds, if it is still here, and whether what it was made of is another now.
    pub(super) fn weighed(&mut self, pid: i32, (memory, is_stale): (u64, bool), at: Instant) {
        for entry in &mut self.entries {
            let Some(spare) = entry.ready.iter_mut().find(|spare| spare.pid() == pid) else { continue };
            spare.weighed((memory, is_stale), at);
            if spare.is_settled() {
                entry.weight = Some((memory, at));
            }
        }
    }

    /// How much memory there will be with one more of a shape, as far as that is known.
    pub(super) fn with_one_more(&self, shape: &Shape, at: Instant) -> u64 {
        let entry = self.entries.iter().find(|entry| entry.shape == *shape);
        self.ready().1.saturating_add(entry.and_then(|entry| entry.weight(at)).unwrap_or(0))
    }

    /// For whom something is kept.
    pub(super) fn owners(&self) -> BTreeSet<String> {
        self.entries.iter().map(|entry| entry.shape.owner.clone()).collect()
    }

    /// What was kept for those who are nobody any more.
    pub(super) fn of_these(&mut self, gone: &BTreeSet<String>) -> Vec<Spare> {
        let theirs = |entry: &mut Entry| gone.contains(&entry.shape.owner);
        self.entries.extract_if(.., theirs).flat_map(|entry| entry.ready).collect()
    }

    /// Those that are too old, made of what is another now, ended by themselves, more than are wanted, or more than may have memory; what nobody asks for any more
    /// is forgotten.
    pub(super) fn surplus(&mut self, at: Instant, settings: Settings) -> Vec<Spare> {
        let targets = self.targets(at, settings.count);
        let mut found = Vec::new();
        for (entry, target) in self.entries.iter_mut().zip(targets) {
            let is_good =
                |spare: &Spare| at.duration_since(spare.since) <= settings.age && !spare.is_stale && !spare.has_ended();
            let (good, old): (Vec<_>, Vec<_>) = std::mem::take(&mut entry.ready).into_iter().partition(is_good);
            entry.ready = good.into();
            if old.iter().any(Spare::has_ended) {
                entry.failed(at);
            }
            found.extend(old);
            while entry.ready.len() > target {
                found.extend(entry.ready.pop_front());
            }
        }
        // What was asked for last stays longest.
        while self.ready().1 > settings.memory {
            let Some(entry) = self.entries.iter_mut().find(|entry| !entry.ready.is_empty()) else { break };
            found.extend(entry.ready.pop_back());
        }
        let too_many = self.entries.len().saturating_sub(SHAPES);
        found.extend(self.entries.drain(..too_many).flat_map(|entry| entry.ready));
        self.entries.retain(|entry| {
            !entry.ready.is_empty() || entry.asked.back().is_some_and(|asked| at.duration_since(*asked) < EVER)
        });
        found
    }

    /// All of them.
    pub(super) fn all(&mut self) -> Vec<Spare> {
        std::mem::take(&mut self.entries).into_iter().flat_map(|entry| entry.ready).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(owner: &str, memory: &str) -> Shape {
        let layers = vec![crate::create::Layer::Set(format!("limits.memory={memory}"))];
        Shape { owner: owner.to_owned(), request: Request { layers, ..Request::default() } }
    }

    fn later(at: Instant, seconds: u64) -> Instant {
        at + Duration::from_secs(seconds)
    }

    #[test]
    fn as_many_are_wanted_as_were_asked_for_lately_and_none_of_what_was_asked_for_once() {
        let (mut demand, at) = (Demand::default(), Instant::now());
        demand.asked(shape("a", "1G"), at, 8);
        assert_eq!((demand.wanted(at, 8), demand.next(at, (8, u64::MAX))), (0, None));
        demand.asked(shape("a", "1G"), at, 8);
        demand.asked(shape("a", "1G"), at, 8);
        assert_eq!((demand.wanted(at, 8), demand.wanted(at, 2)), (3, 2));
        assert_eq!(demand.wanted(later(at, 61), 8), 1, "one stays for a while");
        assert_eq!(demand.wanted(later(at, 601), 8), 0);
        assert_eq!(demand.wanted(at, 0), 0, "a pool of none");
    }

    #[test]
    fn no_owner_takes_the_share_of_another() {
        let (mut demand, at) = (Demand::default(), Instant::now());
        for _ in 0..20 {
            demand.asked(shape("greedy", "1G"), at, 8);
            demand.asked(shape("greedy", "2G"), at, 8);
        }
        assert_eq!(demand.wanted(at, 8), 8);
        demand.asked(shape("modest", "1G"), at, 8);
        demand.asked(shape("modest", "1G"), at, 8);
        let targets = demand.targets(at, 8);
        assert_eq!((targets.iter().sum::<usize>(), targets.last()), (6, Some(&2)), "{targets:?}");
    }

    #[test]
    fn two_that_are_asked_for_in_turn_are_both_ready() {
        let (mut demand, at) = (Demand::default(), Instant::now());
        for _ in 0..8 {
            demand.asked(shape("a", "1G"), at, 8);
            demand.asked(shape("a", "2G"), at, 8);
        }
        assert_eq!(demand.targets(at, 8), [4, 4]);
        // What is wanted less leaves its part to the other.
        for _ in 0..2 {
            demand.asked(shape("a", "3G"), at, 8);
        }
        assert_eq!(demand.targets(at, 8), [3, 3, 2]);
        assert_eq!(demand.targets(at, 1), [0, 0, 1]);
    }

    #[test]
    fn after_a_failure_the_next_try_waits_longer_each_time() {
        let (mut demand, at) = (Demand::default(), Instant::now());
        let wanted = shape("a", "1G");
        demand.asked(wanted.clone(), at, 8);
        demand.asked(wanted.clone(), at, 8);
        assert_eq!(demand.next(at, (8, u64::MAX)), Some(wanted.clone()));
        let failed = || Err(NotMade::Hindered(String::new()));
        demand.made(&wanted, failed(), at);
        assert_eq!((demand.next(at, (8, u64::MAX)), demand.next(later(at, 1), (8, u64::MAX)).is_some()), (None, true));
        demand.made(&wanted, failed(), later(at, 1));
        assert_eq!(
            (demand.next(later(at, 2), (8, u64::MAX)), demand.next(later(at, 3), (8, u64::MAX)).is_some()),
            (None, true)
        );
    }

    #[test]
    fn what_is_refused_and_whose_owner_is_gone_is_wanted_no_more() {
        let (mut demand, at) = (Demand::default(), Instant::now());
        let (bad, good) = (shape("a", "1G"), shape("b", "1G"));
        for wanted in [&bad, &bad, &good, &good] {
            demand.asked(wanted.clone(), at, 8);
        }
        demand.made(&bad, Err(NotMade::Refused(String::new())), at);
        assert_eq!((demand.next(at, (8, u64::MAX)), demand.wanted(at, 8)), (Some(good), 2));
        assert_eq!(demand.owners(), ["a", "b"].map(str::to_owned).into());
        assert!(demand.of_these(&["b".to_owned()].into()).is_empty());
        assert_eq!((demand.next(at, (8, u64::MAX)), demand.wanted(at, 8)), (None, 0));
    }

    #[test]
    fn after_a_taking_what_is_empty_is_filled_at_once_and_all_else_a_moment_later() {
        let (mut demand, at) = (Demand { taken: Some(Instant::now()), ..Demand::default() }, Instant::now());
        let wanted = shape("a", "1G");
        (0..4).for_each(|_| demand.asked(wanted.clone(), at, 8));
        assert!(!demand.is_calm(at));
        assert_eq!(demand.next(at, (8, u64::MAX)), Some(wanted), "nothing is ready: who asks next would start cold");
        assert!(demand.is_calm(later(at, 1)));
        assert_eq!(
            [(0, 1), (1, 4), (2, 4), (1, 1)].map(|(ready, target)| has_half(ready, target)),
            [false, false, true, true]
        );
    }

    #[test]
    fn only_one_that_was_whole_when_it_was_taken_ends_the_pause() {
        let (mut demand, at) = (Demand::default(), Instant::now());
        let wanted = shape("a", "1G");
        (0..2).for_each(|_| demand.asked(wanted.clone(), at, 8));
        demand.made(&wanted, Err(NotMade::Hindered(String::new())), at);
        demand.asked(wanted.clone(), at, 8);
        assert_eq!(demand.next(at, (8, u64::MAX)), None);
        demand.lasted(&wanted);
        assert_eq!(demand.next(at, (8, u64::MAX)), Some(wanted));
    }

    #[test]
    fn what_is_said_at_the_taking_makes_no_other_shape_and_all_else_does() {
        let request = shape("a", "1G").request;
        let named = Request { name: Some("n".to_owned()), idle_ms: Some(1), ..request.clone() };
        assert_eq!(Shape::of("a", &named), Shape::of("a", &request));
        assert_ne!(Shape::of("b", &request), Shape::of("a", &request), "another owner");
        assert_ne!(Shape::of("a", &Request { template: "t".to_owned(), ..request.clone() }), Shape::of("a", &request));
        assert_ne!(Shape::of("a", &Request { layers: Vec::new(), ..request.clone() }), Shape::of("a", &request));
        let given = [("TOKEN".to_owned(), sandbox::Hidden("value".to_owned().into()))].into();
        assert_eq!(Shape::of("a", &Request { given, ..request.clone() }), None, "a secret of its own");
        assert_eq!(Shape::of("a", &Request { from: Some("s".to_owned()), ..request }), None, "files of its own");
    }
}
