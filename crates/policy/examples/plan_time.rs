//! How long a run waits for its plan: `strict` and four flags, read, planned, digested.
#![expect(clippy::print_stdout, reason = "an example that prints")]

use std::path::PathBuf;
use std::time::Instant;

use policy::Control;
use policy::plan::Support;
use policy::value::Tier;
use policy::{Caller, Candidate, ClauseId, Layers, choose};

fn once(preset: Option<&str>) -> usize {
    let caller = Caller {
        dir: PathBuf::from("/srv/work"),
        home: Some(PathBuf::from("/home/ann")),
        profiles: ["default", "node", "python", "strict"].map(str::to_owned).to_vec(),
    };
    let mut layers = Layers::new(caller);
    if let Some(name) = preset {
        layers.policy(name, &|_: &std::path::Path| Err("no such file".to_owned()));
    }
    layers.flag("--memory", "512M");
    layers.flag("--timeout", "10s");
    layers.flag("--pids", "64");
    layers.flag("--read", "/opt/data:/data");
    let held = |_: ClauseId| Support::Held(Control::NoNewPrivs.into());
    let candidate = Candidate { tier: Tier::Container, backend: "native", answers: &held };
    layers.finish().map_or(0, |loaded| choose(&loaded, &[candidate]).map_or(0, |choice| choice.plan.entries.len()))
}

fn main() {
    for preset in [None, Some("python"), Some("coding-agent")] {
        let first = Instant::now();
        let entries = once(preset);
        let cold = first.elapsed();
        let mut times: Vec<_> = (0..2000)
            .map(|_| {
                let start = Instant::now();
                assert_eq!(once(preset), entries, "each plan is the same");
                start.elapsed()
            })
            .collect();
        times.sort();
        let at = |index: usize| times.get(index).copied().unwrap_or_default();
        let name = preset.unwrap_or("strict");
        println!("{name:<14} cold {cold:?}, median {:?}, p90 {:?}, {entries} clauses", at(1000), at(1800));
    }
}
