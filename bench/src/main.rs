//! The benchmark: `bench --product FILE --alone FILE --probe FILE --work DIR --policies DIR --state DIR --results FILE [--sandlock FILE]
//! [--srt FILE] [--quick] [--only ID,ID]`. `scripts/bench` prepares all of that and calls it in a private mount namespace.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the harness starts the contestants itself and prints what it found; it is no room of the product"
)]

mod contestants;
mod experiments;
mod launch;
mod machine;
mod numbers;
mod processor;
mod results;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use contestants::{Contestant, Place, Programs, Work};
use experiments::{Effort, Gap};
use results::Measured;

/// Kinds of work that are timed inside.
const INSIDE: [&str; 6] = ["cpu", "getpid", "stat", "read", "write", "create"];

struct Asked {
    programs: Programs,
    /// The library without a command line, gate or server.
    alone: PathBuf,
    probe: PathBuf,
    work: PathBuf,
    policies: PathBuf,
    state: PathBuf,
    results: PathBuf,
    only: Vec<String>,
    quick: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("bench: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn asked() -> Result<Asked, String> {
    let mut words = std::env::args().skip(1);
    let mut asked = Asked {
        programs: Programs { fumehood: None, sandlock: None, srt: None },
        alone: PathBuf::new(),
        probe: PathBuf::new(),
        work: PathBuf::new(),
        policies: PathBuf::new(),
        state: PathBuf::new(),
        results: PathBuf::new(),
        only: Vec::new(),
        quick: false,
    };
    while let Some(word) = words.next() {
        if word == "--quick" {
            asked.quick = true;
            continue;
        }
        let value = words.next().ok_or(format!("`{word}` needs a value"))?;
        match word.as_str() {
            "--product" => asked.programs.fumehood = Some(value.into()),
            "--sandlock" => asked.programs.sandlock = Some(value.into()),
            "--srt" => asked.programs.srt = Some(value.into()),
            "--alone" => asked.alone = value.into(),
            "--probe" => asked.probe = value.into(),
            "--work" => asked.work = value.into(),
            "--policies" => asked.policies = value.into(),
            "--state" => asked.state = value.into(),
            "--results" => asked.results = value.into(),
            "--only" => asked.only = value.split(',').map(str::to_owned).collect(),
            _ => return Err(format!("`{word}` is no flag of this program")),
        }
    }
    Ok(asked)
}

/// Folders and files that the contestants share. World-readable: a contestant that gives up root must still see them.
fn prepared(asked: &Asked) -> std::io::Result<Place> {
    for (folder, mode) in [("", 0o755), ("bin", 0o755), ("tmp", 0o1777), ("bundles", 0o755), ("runtime", 0o755)] {
        let folder = asked.work.join(folder);
        fs::create_dir_all(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode))?;
    }
    let place = Place { work: asked.work.clone(), secret: asked.work.join("secret"), state: asked.state.clone() };
    fs::write(&place.secret, "nobody was granted this")?;
    let probe = place.work.join("bin/probe");
    fs::copy(&asked.probe, &probe)?;
    fs::set_permissions(&probe, fs::Permissions::from_mode(0o755))?;
    Ok(place)
}

/// A contestant by name, and what is to be told of it.
type Named = (String, String);

/// Those that run, with what the probe saw inside each; and those that do not, with the reason.
fn taking_part(asked: &Asked, place: &Place) -> (Vec<Contestant>, Vec<Named>, Vec<Named>) {
    let (found, missing) = contestants::all(place, &asked.programs, &asked.policies);
    let mut absent: Vec<Named> = missing.iter().map(|id| ((*id).to_owned(), "not installed".to_owned())).collect();
    let mut seen = Vec::new();
    let mut present = Vec::new();
    for (id, sight) in experiments::sights(&found, place) {
        if !asked.only.is_empty() && !asked.only.iter().any(|only| only == id) && id != "plain" {
            continue;
        }
        match sight {
            Ok(sight) => {
                seen.push((id.to_owned(), sight));
                present.extend(found.iter().find(|contestant| contestant.id == id).cloned());
            }
            Err(fault) => absent.push((id.to_owned(), format!("does not run: {fault}"))),
        }
    }
    (present, seen, absent)
}

fn run() -> Result<(), String> {
    let asked = asked()?;
    let place = prepared(&asked).map_err(|error| format!("`{}` cannot be prepared: {error}", asked.work.display()))?;
    let effort = if asked.quick {
        Effort { starts: 7, inside: 3, passes: 1, burst: Duration::from_millis(500), looks: 1 }
    } else {
        Effort { starts: 41, inside: 15, passes: 3, burst: Duration::from_secs(2), looks: 5 }
    };
    let before = machine::load();
    let (present, seen, absent) = taking_part(&asked, &place);
    for (id, why) in &absent {
        println!("skip: contestant {id}: {why}");
    }
    let measured = measure(&present, &place, effort)?;
    let size = |file: &Path| fs::metadata(file).ok().map(|found| found.len());
    let sizes = [asked.programs.fumehood.as_deref().and_then(size), size(&asked.alone)];
    let told = results::Told { seen, absent, sizes, before, after: machine::load(), quick: asked.quick };
    let text = results::text(&present, &measured, &told);
    println!("{text}");
    write(&asked.results, &text)
}

fn measure(present: &[Contestant], place: &Place, effort: Effort) -> Result<Measured, String> {
    let quick: Vec<Contestant> = present.iter().filter(|contestant| contestant.id != "srt").cloned().collect();
    let steps = |what: &str| eprintln!("bench: {what}");
    steps("lone starts of /bin/true");
    let lone = experiments::starts(present, place, Work::True, Gap::Lone, effort.starts)?;
    steps("starts of /bin/true back to back");
    let back = experiments::starts(&quick, place, Work::True, Gap::BackToBack, effort.starts)?;
    steps("lone starts of python3");
    let python = experiments::starts(&quick, place, Work::Python, Gap::Lone, effort.starts)?;
    steps("processor time");
    let processor = processor::time(&quick, place, effort.starts)?;
    steps("throughput");
    let one = experiments::throughput(&quick, place, 1, effort)?;
    let two = experiments::throughput(&quick, place, 2, effort)?;
    let mut inside = Vec::new();
    for word in INSIDE {
        steps(&format!("{word} inside"));
        inside.push((word, experiments::inside(&quick, place, word, effort.inside)?));
    }
    steps("memory");
    let [memory, own_memory] = experiments::memory(present, place, effort.looks)?;
    Ok(Measured { lone, back, python, processor, one, two, inside, memory, own_memory })
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("`{}` cannot be written: {error}", path.display()))
}
