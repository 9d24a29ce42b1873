//! The engine: seeds, mutations, time, and the input that broke something.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Longest input: far above what makes a reader go another way, short enough to try many.
const MAX_INPUT: usize = 8192;
/// No reader of ours may take this long for such an input, on the busiest machine.
const SLOW: Duration = Duration::from_secs(20);

/// Whoever takes as long as this does not come back: the input is written down and the process ended.
const HANGS: Duration = Duration::from_secs(180);

/// What is tried at the moment, and since when.
type Trying = Mutex<Option<(Instant, Vec<u8>)>>;

/// Looks after a target from beside it: what never comes back cannot be caught.
fn watch(name: &str, seed: u64, trying: Weak<Trying>) {
    let file = found(name).join(format!("{seed:016x}"));
    let name = name.to_owned();
    std::thread::spawn(move || {
        while let Some(trying) = trying.upgrade() {
            if let Some((_, input)) = trying.lock().unwrap().as_ref().filter(|(since, _)| since.elapsed() > HANGS) {
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(&file, input).unwrap();
                eprintln!("{name}: never comes back from {}, seed {seed}", file.display());
                std::process::abort();
            }
            drop(trying);
            std::thread::park_timeout(Duration::from_secs(1));
        }
    });
}

/// A generator whose whole state is one number, so that a failure is found again by its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // xorshift64* (Vigna 2016).
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { usize::try_from(self.next() >> 16).unwrap_or(0) % end }
    }
}

fn found(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/found").join(name)
}

/// Feeds `read` with seeds, with what broke it before, and with mutations until the time is over.
pub(crate) fn fuzz(name: &str, seeds: &[Vec<u8>], tokens: &[&str], read: impl Fn(&[u8])) {
    assert!(!seeds.is_empty(), "a target without a seed tries nothing");
    let number = |name: &str| -> Option<u64> { std::env::var_os(name).and_then(|text| text.to_str()?.parse().ok()) };
    let seconds = number("FUMEHOOD_FUZZ_SECONDS").unwrap_or(2);
    let most = number("FUMEHOOD_FUZZ_INPUTS").unwrap_or(u64::MAX);
    let seed = number("FUMEHOOD_FUZZ_SEED");
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()) ^ entropy());
    let mut random = Random(seed | 1);
    let trying = Arc::new(Trying::default());
    watch(name, seed, Arc::downgrade(&trying));
    let one = |input: &[u8]| {
        *trying.lock().unwrap() = Some((Instant::now(), input.to_vec()));
        let took = one(name, seed, input, &read);
        *trying.lock().unwrap() = None;
        took
    };
    let mut corpus = seeds.to_vec();
    for entry in std::fs::read_dir(found(name)).into_iter().flatten().flatten() {
        corpus.extend(std::fs::read(entry.path()));
    }
    for input in corpus.clone() {
        one(&input);
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tried = 0_u64;
    let mut longest = Duration::ZERO;
    while tried < most && Instant::now() < end {
        for _ in 0..16 {
            let input = mutated(&mut random, &corpus, tokens);
            longest = longest.max(one(&input));
            tried += 1;
            // Mutations of mutations: a few live on, so that several steps away from a seed is reached too.
            if random.below(64) == 0 && corpus.len() < 4096 {
                corpus.push(input);
            }
        }
    }
    println!("{name}: {tried} inputs, the longest took {longest:?}, seed {seed}");
}

/// Different at each start, without asking anybody.
fn entropy() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

fn one(name: &str, seed: u64, input: &[u8], read: &impl Fn(&[u8])) -> Duration {
    let began = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| read(input)));
    let took = began.elapsed();
    let slow = took > SLOW;
    if result.is_err() || slow {
        let file = found(name).join(format!("{seed:016x}"));
        std::fs::create_dir_all(found(name)).unwrap();
        std::fs::write(&file, input).unwrap();
        eprintln!("{name}: broken by {}, seed {seed}, {:?}", file.display(), took);
    }
    if let Err(panic) = result {
        resume_unwind(panic);
    }
    assert!(!slow, "{name}: one input took {took:?}");
    took
}

fn mutated(random: &mut Random, corpus: &[Vec<u8>], tokens: &[&str]) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(6) {
        let at = random.below(input.len() + 1);
        match random.below(10) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b'"', b'/'][random.below(8)],
            2 => input.insert(at, u8::try_from(random.below(256)).unwrap()),
            3 => {
                let end = (at + random.below(16)).min(input.len());
                input.drain(at..end);
            }
            4 => {
                let end = (at + random.below(64)).min(input.len());
                let part = input[at..end].to_vec();
                for _ in 0..random.below(40) {
                    input.splice(at..at, part.iter().copied());
                }
            }
            5 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                let to = (from + random.below(200)).min(other.len());
                input.splice(at..at, other[from..to].iter().copied());
            }
            6 if !tokens.is_empty() => {
                let token = tokens[random.below(tokens.len())];
                input.splice(at..at, token.bytes());
            }
            7 => input.truncate(at),
            8 if at + 8 <= input.len() => {
                let number = [0, 1, u64::MAX, u64::MAX >> 1, 1 << 31, 1 << 16, 255][random.below(7)];
                let length = [1, 2, 4, 8][random.below(4)];
                input[at..at + length].copy_from_slice(&number.to_le_bytes()[..length]);
            }
            _ => {
                let number = ["0", "-1", "18446744073709551616", "1e309", "0x7fffffff", "9007199254740993"];
                input.splice(at..at, number[random.below(number.len())].bytes());
            }
        }
        input.truncate(MAX_INPUT);
    }
    input
}
