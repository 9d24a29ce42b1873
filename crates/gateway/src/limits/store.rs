//! The table of cells: a file that processes share, and a lock without which nobody looks at it.
//!
//! A page is a set: one line of 15 keys, and a block for each. The key says in which page of each level its block may be,
//! so that a search reads a handful of pages and nothing is ever moved; levels double in size and are taken into use one
//! by one. Blocks that are about to change are copied to a journal first: whoever takes the lock after a crash puts them
//! back, and the reservation that broke off never was. Each block carries a sum.
//!
//! INVARIANT: a key is at one place only; it is looked for wherever it can be before it is given a place. A place of a page
//! passes from key to key and is never given up, and a key goes on to the next level only where its page is full: so a page
//! with room ends the search, and pages of a level that is not needed yet are not even read (a read page is memory).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, poll};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use sys::table::{SharedCounters, is_byte_locked, try_lock_byte};

use super::block::{Block, WORDS};
use super::cell::{Cell, CellContext, Holder, is_spent};
use super::clock::Clock;
use super::fault::LedgerFault;

/// `fumeHLG1`
const MAGIC: u64 = 0x3147_4c48_656d_7566;
const SLOTS: usize = 15;
const PAGE: usize = (SLOTS + 1) * WORDS;
const FIRST_LEVEL: usize = 64;
/// 244,800 counters in 64 MiB; in tests few, so that it is soon full.
const LEVELS: usize = if cfg!(test) { 4 } else { 8 };
/// Header, journal, then the pages of all levels.
const HEADER: usize = 4096;
const LENGTH: usize = HEADER + FIRST_LEVEL * ((1 << LEVELS) - 1) * PAGE;
/// Words of the header's block.
const AT_MAGIC: usize = 0;
const AT_LEVELS: usize = 1;
const AT_EPOCH: usize = 2;
const AT_OFFSET: usize = 4;
const AT_LAST: usize = 5;
const AT_WALL: usize = 6;
/// Beside it: how many blocks the journal holds, and the generations of processes.
const AT_JOURNALLED: usize = 32;
const AT_GENERATIONS: usize = 64;
const PROCESSES: usize = 256;
const JOURNAL: usize = 512;
/// Place and block.
const ENTRY: usize = 1 + WORDS;
const MAX_ENTRIES: usize = (HEADER - JOURNAL) / ENTRY;
/// How long the lock is waited for.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The table, open.
#[derive(Debug)]
pub(super) struct Store {
    words: SharedCounters,
    lives: File,
    path: PathBuf,
    clock: Arc<dyn Clock>,
    me: Holder,
    inner: Mutex<()>,
}

/// The table while its lock is held: what is read, and what will be written when it is left.
pub(super) struct Transaction<'a> {
    store: &'a Store,
    header: Block,
    now: u64,
    /// In the order in which they were first changed; few.
    changed: Vec<(usize, Block)>,
    _thread: MutexGuard<'a, ()>,
}

impl Drop for Transaction<'_> {
    #[expect(
        clippy::let_underscore_must_use,
        reason = "unlocking an open descriptor cannot fail, and drop cannot tell"
    )]
    fn drop(&mut self) {
        let _ = flock(self.store.words.file(), FlockOperation::Unlock);
    }
}

impl Store {
    /// Opens the table in `folder`, made if it is missing.
    pub(super) fn open(folder: &Path, clock: Arc<dyn Clock>) -> Result<Self, LedgerFault> {
        let path = folder.join("counters");
        let failed = |path: &Path, why: String| LedgerFault::File { path: path.to_owned(), why };
        match rustix::fs::mkdir(folder, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(folder, errno.to_string())),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let dir = rustix::fs::open(folder, flags, Mode::empty()).map_err(|e| failed(folder, e.to_string()))?;
        let was_there = rustix::fs::statat(&dir, "counters", AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let open = |name: &str| -> Result<File, LedgerFault> {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let failed = |errno: Errno| failed(&folder.join(name), errno.to_string());
            let file = rustix::fs::openat(&dir, name, flags, MODE).map_err(failed)?;
            let stat = rustix::fs::fstat(&file).map_err(failed)?;
            if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
                return Err(failed(Errno::INVAL));
            }
            Ok(File::from(file))
        };
        let (table, lives) = (open("counters")?, open("processes")?);
        let stated = table.metadata().map_err(|e| failed(&path, e.to_string()))?.len();
        if stated != 0 && stated != bytes(LENGTH) {
            return Err(LedgerFault::Corrupt { path, why: "it has another length than it was made with" });
        }
        let words = SharedCounters::map(table, LENGTH).map_err(|e| failed(&path, e.to_string()))?;
        let me = Holder { index: 0, generation: 0 };
        let mut store = Self { words, lives, path, clock, me, inner: Mutex::new(()) };
        store.me = store.enter(was_there)?;
        Ok(store)
    }

    /// Takes a process number, and sets the table's clock to ours.
    fn enter(&self, was_there: bool) -> Result<Holder, LedgerFault> {
        let mut held = self.lock()?;
        let epoch = self.clock.epoch();
        let wall = self.clock.wall_us();
        // A byte of the other file says that something was counted here: a table that is empty all the same was emptied, by
        // somebody or by a crash of the machine. Who wants to begin anew moves the file away.
        let counted = self.lives.metadata().map_err(|error| self.failed(&error))?.len() > 0;
        if held.header.is_fresh() && was_there && counted {
            return Err(LedgerFault::Corrupt { path: self.path.clone(), why: "it is empty, and was not" });
        }
        if held.header.is_fresh() {
            self.words.allocate(0, HEADER).map_err(|e| self.failed(&e))?;
            held.header.0[AT_MAGIC] = MAGIC;
            held.header.0[AT_LEVELS] = 1;
            held.set_epoch(epoch);
            held.header.0[AT_OFFSET] = wall.wrapping_sub(self.clock.elapsed_us());
            held.header.0[AT_WALL] = wall;
        } else if held.epoch() != epoch {
            // A new boot, most often; nobody of the old one is alive.
            for index in 0..PROCESSES {
                if self.is_taken(index)? {
                    return Err(LedgerFault::Clock { path: self.path.clone() });
                }
            }
            let passed = wall.saturating_sub(held.header.0[AT_WALL]);
            let now = held.header.0[AT_LAST].saturating_add(passed);
            held.set_epoch(epoch);
            held.header.0[AT_OFFSET] = now.wrapping_sub(self.clock.elapsed_us());
        }
        held.read_clock();
        let mut me = None;
        for index in 0..PROCESSES {
            let byte = u32::try_from(index).unwrap_or(u32::MAX);
            if try_lock_byte(&self.lives, byte).map_err(|e| self.failed(&e))? {
                me = Some(index);
                break;
            }
        }
        let index = me.ok_or_else(|| LedgerFault::Processes { path: self.path.clone() })?;
        let generation = self.word(AT_GENERATIONS + index)?;
        let next = u32::try_from(generation.load(Ordering::Relaxed)).unwrap_or(0).wrapping_add(1).max(1);
        generation.store(u64::from(next), Ordering::Relaxed);
        held.commit()?;
        if !counted {
            self.lives.set_len(1).map_err(|error| self.failed(&error))?;
        }
        Ok(Holder { index: u16::try_from(index).unwrap_or(u16::MAX), generation: next })
    }

    pub(super) const fn me(&self) -> Holder {
        self.me
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what is in memory to the disk.
    pub(super) fn sync(&self) -> Result<(), LedgerFault> {
        rustix::fs::fdatasync(self.words.file()).map_err(|errno| self.failed(&errno))
    }

    /// Whether a process that holds slots is still there. What cannot be asked counts as alive.
    pub(super) fn lives(&self, holder: Holder) -> bool {
        if holder == self.me {
            return true;
        }
        let index = usize::from(holder.index);
        let now = self.word(AT_GENERATIONS + index).map(|word| word.load(Ordering::Relaxed));
        let same = now.is_ok_and(|generation| generation == u64::from(holder.generation));
        index >= PROCESSES || same && self.is_taken(index).unwrap_or(true)
    }

    fn is_taken(&self, index: usize) -> Result<bool, LedgerFault> {
        let byte = u32::try_from(index).unwrap_or(u32::MAX);
        is_byte_locked(&self.lives, byte).map_err(|e| self.failed(&e))
    }

    /// Takes the lock, undoes what a dead process left half done, and reads the clock.
    pub(super) fn lock(&self) -> Result<Transaction<'_>, LedgerFault> {
        let thread = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.take_flock()?;
        let mut held = Transaction { store: self, header: Block::EMPTY, now: 0, changed: Vec::new(), _thread: thread };
        self.undo()?;
        held.header = Block::read(self.block(0)?);
        let header = &held.header;
        if header.is_fresh() {
            return Ok(held);
        }
        if !header.is_whole() || header.0[AT_MAGIC] != MAGIC || header.0[AT_LEVELS] > bytes(LEVELS) / 8 {
            return Err(self.corrupt("its header is not as it was written"));
        }
        if self.me.generation != 0 && held.epoch() != self.clock.epoch() {
            return Err(LedgerFault::Clock { path: self.path.clone() });
        }
        held.read_clock();
        Ok(held)
    }

    fn take_flock(&self) -> Result<(), LedgerFault> {
        let begun = Instant::now();
        let mut wait = 20_000;
        for turn in 0_u32.. {
            match flock(self.words.file(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(()),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => return Err(self.failed(&errno)),
            }
            if begun.elapsed() > LOCK_TIMEOUT {
                break;
            }
            // The lock is held for microseconds: give way first, sleep only when that did not help.
            if turn < 16 {
                std::thread::yield_now();
                continue;
            }
            let pause = Timespec { tv_sec: 0, tv_nsec: wait };
            match poll(&mut [], Some(&pause)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed(&errno)),
            }
            wait = (wait * 2).min(1_000_000);
        }
        Err(LedgerFault::Busy { path: self.path.clone() })
    }

    /// Puts back what the journal kept, newest first.
    fn undo(&self) -> Result<(), LedgerFault> {
        let count = self.word(AT_JOURNALLED)?;
        let entries = usize::try_from(count.load(Ordering::Acquire)).unwrap_or(usize::MAX);
        if entries == 0 {
            return Ok(());
        }
        if entries > MAX_ENTRIES {
            return Err(self.corrupt("its journal is longer than it can be"));
        }
        for entry in (0..entries).rev() {
            let from = JOURNAL + entry * ENTRY;
            let place = usize::try_from(self.word(from)?.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
            let old = Block::read(self.range(from + 1, WORDS)?);
            // After a loss of power the journal itself may be torn: then the sums of the blocks have the last word.
            if place.is_multiple_of(WORDS) && (old.is_whole() || old.is_fresh()) {
                for (to, word) in self.block(place)?.iter().zip(old.0) {
                    to.store(word, Ordering::Relaxed);
                }
            }
        }
        fence(Ordering::Release);
        count.store(0, Ordering::Release);
        Ok(())
    }

    fn range(&self, from: usize, count: usize) -> Result<&[AtomicU64], LedgerFault> {
        let end = from.saturating_add(count);
        self.words.words().get(from..end).ok_or_else(|| self.corrupt("it names a place beyond its end"))
    }

    fn word(&self, at: usize) -> Result<&AtomicU64, LedgerFault> {
        self.words.words().get(at).ok_or_else(|| self.corrupt("it names a place beyond its end"))
    }

    fn block(&self, at: usize) -> Result<&[AtomicU64], LedgerFault> {
        self.range(at, WORDS)
    }

    fn corrupt(&self, why: &'static str) -> LedgerFault {
        LedgerFault::Corrupt { path: self.path.clone(), why }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> LedgerFault {
        LedgerFault::File { path: self.path.clone(), why: error.to_string() }
    }
}

impl Transaction<'_> {
    /// Microseconds; never less than any process that used the table saw before.
    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    /// The block of a key, if it has one.
    pub(super) fn find(&self, key: u128) -> Result<Option<(usize, Block)>, LedgerFault> {
        for level in 0..self.levels() {
            let page = page_of(key, level);
            let line = self.line(page)?;
            if let Some(slot) = keys(&line).position(|other| other == key) {
                let at = page + (slot + 1) * WORDS;
                let block = self.read(at)?;
                if !block.is_whole() || key_of(&block) != key {
                    return Err(self.store.corrupt("a counter in it has a wrong sum"));
                }
                return Ok(Some((at, block)));
            }
            if keys(&line).any(|other| other == 0) {
                break;
            }
        }
        Ok(None)
    }

    /// A block for a key that has none: a free one, or one whose counts all ran out.
    pub(super) fn place(&mut self, key: u128) -> Result<(usize, Block), LedgerFault> {
        loop {
            for level in 0..self.levels() {
                if let Some(found) = self.place_in(page_of(key, level), key)? {
                    return Ok(found);
                }
            }
            if self.levels() >= LEVELS {
                return Err(LedgerFault::Full { path: self.store.path.clone() });
            }
            self.header.0[AT_LEVELS] += 1;
        }
    }

    fn place_in(&mut self, page: usize, key: u128) -> Result<Option<(usize, Block)>, LedgerFault> {
        let mut line = self.line(page)?;
        if line.is_fresh() {
            self.store.words.allocate(page, PAGE).map_err(|e| self.store.failed(&e))?;
        }
        let mut free = keys(&line).position(|other| other == 0);
        if free.is_none() {
            for slot in 0..SLOTS {
                let block = self.read(page + (slot + 1) * WORDS)?;
                if block.is_whole() && is_spent(&block, &self.context(&|holder| self.store.lives(holder))) {
                    free = Some(slot);
                    break;
                }
            }
        }
        let Some(slot) = free else { return Ok(None) };
        let [low, high] = split(key);
        for (word, half) in line.0.iter_mut().skip(slot * 2).zip([low, high]) {
            *word = half;
        }
        let at = page + (slot + 1) * WORDS;
        let mut block = Block::EMPTY;
        (block.0[0], block.0[1]) = (low, high);
        self.write(page, line);
        self.write(at, block);
        Ok(Some((at, block)))
    }

    pub(super) fn context<'b>(&self, lives: &'b dyn Fn(Holder) -> bool) -> CellContext<'b> {
        CellContext { now: self.now, me: self.store.me, lives }
    }

    /// Whether a cell has room, without changing anything.
    pub(super) fn admits(&self, cell: &Cell, block: &Block) -> Result<(), super::cell::Over> {
        cell.admits(block, &self.context(&|holder| self.store.lives(holder)))
    }

    pub(super) fn write(&mut self, at: usize, block: Block) {
        match self.changed.iter_mut().find(|(place, _)| *place == at) {
            Some((_, staged)) => *staged = block,
            None => self.changed.push((at, block)),
        }
    }

    /// Makes all changes, or (if we die on the way) none.
    pub(super) fn commit(mut self) -> Result<(), LedgerFault> {
        self.header.0[AT_LAST] = self.now;
        self.header.0[AT_WALL] = self.store.clock.wall_us();
        let header = self.header;
        self.write(0, header);
        if self.changed.len() > MAX_ENTRIES {
            return Err(LedgerFault::TooMany);
        }
        for (entry, (at, _)) in self.changed.iter().enumerate() {
            let from = JOURNAL + entry * ENTRY;
            self.store.word(from)?.store(u64::try_from(*at).unwrap_or(u64::MAX), Ordering::Relaxed);
            let old = self.store.block(*at)?;
            for (to, word) in self.store.range(from + 1, WORDS)?.iter().zip(old) {
                to.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
        // The journal is whole before it counts, it counts before the first block changes, and it ends after the last.
        let count = self.store.word(AT_JOURNALLED)?;
        count.store(u64::try_from(self.changed.len()).unwrap_or(u64::MAX), Ordering::Release);
        fence(Ordering::Release);
        for (at, block) in &self.changed {
            block.write(self.store.block(*at)?);
        }
        count.store(0, Ordering::Release);
        Ok(())
    }

    fn levels(&self) -> usize {
        usize::try_from(self.header.0[AT_LEVELS]).unwrap_or(0).min(LEVELS)
    }

    fn epoch(&self) -> u128 {
        joined(self.header.0[AT_EPOCH], self.header.0[AT_EPOCH + 1])
    }

    fn set_epoch(&mut self, epoch: u128) {
        [self.header.0[AT_EPOCH], self.header.0[AT_EPOCH + 1]] = split(epoch);
    }

    fn read_clock(&mut self) {
        let here = self.store.clock.elapsed_us().wrapping_add(self.header.0[AT_OFFSET]);
        self.now = here.max(self.header.0[AT_LAST]);
    }

    fn read(&self, at: usize) -> Result<Block, LedgerFault> {
        match self.changed.iter().find(|(place, _)| *place == at) {
            Some((_, staged)) => Ok(staged.sealed()),
            None => Ok(Block::read(self.store.block(at)?)),
        }
    }

    fn line(&self, page: usize) -> Result<Block, LedgerFault> {
        let line = self.read(page)?;
        if line.is_fresh() || line.is_whole() {
            Ok(line)
        } else {
            Err(self.store.corrupt("a line of keys in it has a wrong sum"))
        }
    }
}

/// The page of a level that a key belongs to; other bits for each level, so that what collides in one does not in the next.
fn page_of(key: u128, level: usize) -> usize {
    let pages = FIRST_LEVEL << level;
    let before = FIRST_LEVEL * ((1 << level) - 1);
    let turned = key.rotate_right(u32::try_from(level).unwrap_or(0) * 16);
    let [low, _] = split(turned);
    let page = usize::try_from(low & u64::from(u32::MAX)).unwrap_or(0) & (pages - 1);
    HEADER + (before + page) * PAGE
}

fn keys(line: &Block) -> impl Iterator<Item = u128> {
    line.0.chunks_exact(2).take(SLOTS).map(|pair| if let [low, high] = pair { joined(*low, *high) } else { 0 })
}

const fn key_of(block: &Block) -> u128 {
    joined(block.0[0], block.0[1])
}

const fn joined(low: u64, high: u64) -> u128 {
    low as u128 | (high as u128) << 64
}

fn split(key: u128) -> [u64; 2] {
    let mask = u128::from(u64::MAX);
    [u64::try_from(key & mask).unwrap_or(0), u64::try_from(key >> 64).unwrap_or(0)]
}

fn bytes(words: usize) -> u64 {
    u64::try_from(words).unwrap_or(u64::MAX).saturating_mul(8)
}
