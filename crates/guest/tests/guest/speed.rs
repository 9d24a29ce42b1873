//! Not a judgement, a measurement: `cargo test -p fumehood-guest --test guest -- --ignored --nocapture measure`.
#![expect(clippy::print_stdout, reason = "the numbers are the result")]

use std::time::{Duration, Instant};

use guest::config::{Config, Op};
use guest::frames::ToGuest;
use sys::spawn::Namespaces;

use crate::harness::{ALL, Sandbox, Who};
use crate::world::{container, process};

const ROUNDS: usize = 200;

#[test]
#[ignore = "prints times"]
fn measure_starts() {
    println!("guest: {} bytes", guest::ELF.len());
    for who in Who::BOTH {
        let mut lean = container(who, &["true"]);
        lean.inner_limits = false;
        lean.ops.retain(|op| !matches!(op, Op::Mask { .. } | Op::Mqueue { .. }));
        who.be(|| {
            measure(&format!("{who:?} container"), who, &container(who, &["true"]), ALL);
            measure(&format!("{who:?} container, no inner limits, masks, mqueue"), who, &lean, ALL);
            measure(&format!("{who:?} process"), who, &process(who.outside(), &["true"]), Namespaces::NONE);
        });
    }
}

fn measure(name: &str, who: Who, config: &Config, namespaces: Namespaces) {
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..ROUNDS {
        let mut sandbox = Sandbox::start_with(who, config, namespaces, &[]);
        let executed = Instant::now();
        sandbox.posture();
        times[0].push(executed.elapsed());
        let go = Instant::now();
        sandbox.say(ToGuest::Go);
        sandbox.hear();
        times[1].push(go.elapsed());
        sandbox.exited();
        times[2].push(go.elapsed());
    }
    let [posture, started, ended] = times.map(|mut times| {
        times.sort_unstable();
        let at = |part: usize| times.get(times.len() * part / 10).map_or(0, Duration::as_micros);
        format!("p10 {} median {} us", at(1), at(5))
    });
    println!("{name}: exec to posture {posture}; go to started {started}; go to reaped (true) {ended}");
}
