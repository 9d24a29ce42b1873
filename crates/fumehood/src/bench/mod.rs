//! What each tier costs on this host: the same small programs by every backend that is there, and without any, in rounds whose
//! order changes; medians. What is not there, or takes no such program, is told with its reason.

mod picture;
mod work;

use std::time::Instant;

use backends::Capabilities;
use policy::value::{Root, Tier};
use sandbox::PolicyLayer;
use serde_json::{Value, json};

use crate::choose::{Cost, Costs, STARTS, TIERS};
use crate::environment::Environment;
use crate::folder::OwnFolder;
use crate::load;
use crate::run::trial::{Trials, own_root};
pub(crate) use picture::picture;
use work::{Served, Work};

/// One backend of a tier, or none: the host itself.
#[derive(Debug)]
pub(crate) struct Row {
    on: Option<(Tier, &'static str)>,
    /// Of each kind of work what one run of it took, in ms, or why there is no number.
    runs: Vec<(Work, Result<Vec<f64>, String>)>,
    /// Most memory inside.
    memory: Option<u64>,
}

/// A column: what is shown of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Start,
    Python,
    Memory,
    Call,
    File,
    Connection,
}

impl Column {
    pub(crate) const ALL: [Self; 6] =
        [Self::Start, Self::Python, Self::Memory, Self::Call, Self::File, Self::Connection];

    /// Its key in JSON, with its unit.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Start => "start_ms",
            Self::Python => "python_ms",
            Self::Memory => "memory",
            Self::Call => "call_ns",
            Self::File => "file_us",
            Self::Connection => "connection_us",
        }
    }

    /// Its title.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Start => "start, ms",
            Self::Python => "Python start, ms",
            Self::Memory => "memory, MiB",
            Self::Call => "system call, ns",
            Self::File => "new file, us",
            Self::Connection => "connection, us",
        }
    }

    const fn work(self) -> Work {
        match self {
            Self::Start | Self::Memory => Work::Start,
            Self::Python => Work::Python,
            Self::Call => Work::Calls,
            Self::File => Work::Files,
            Self::Connection => Work::Connections,
        }
    }
}

impl Row {
    pub(crate) fn tier(&self) -> &'static str {
        self.on.map_or("none", |(tier, _)| tier.as_str())
    }

    pub(crate) fn backend(&self) -> &'static str {
        self.on.map_or("host", |(_, backend)| backend)
    }

    fn median(&self, work: Work) -> Option<f64> {
        let runs = self.runs.iter().find(|(of, _)| *of == work)?.1.as_ref().ok()?;
        let mut runs = runs.clone();
        runs.sort_by(f64::total_cmp);
        runs.get(runs.len() / 2).copied()
    }

    /// The number of a column, in its unit: what the work takes beyond a start, for each of its steps; none where that is lost in
    /// how much starts differ.
    pub(crate) fn value(&self, column: Column) -> Option<f64> {
        let beyond = |work: Work, from: Work, unit: f64| {
            let took = (self.median(work)? - self.median(from)?) * unit / f64::from(work.steps());
            // Less than what is shown.
            (took >= 0.05).then_some(took)
        };
        let value = match column {
            Column::Start => self.median(Work::Start)?,
            Column::Python => self.median(Work::Python)?,
            #[expect(clippy::cast_precision_loss, reason = "bytes as MiB")]
            Column::Memory => self.memory? as f64 / f64::from(1 << 20),
            Column::Call => beyond(Work::Calls, Work::Start, 1e6)?,
            Column::File => beyond(Work::Files, Work::Start, 1e3)?,
            // Measured inside, without start and imports.
            Column::Connection => self.median(Work::Connections)? * 1e3 / f64::from(Work::Connections.steps()),
        };
        Some((value * 10.0).round() / 10.0)
    }

    /// Why a column has no number.
    pub(crate) fn why(&self, column: Column) -> Option<&str> {
        let failed = self.runs.iter().find(|(of, _)| *of == column.work())?.1.as_ref().err();
        let none = match column {
            Column::Call | Column::File => "less than starts differ: more rounds may tell (`--rounds N`)",
            Column::Start | Column::Python | Column::Memory | Column::Connection => "nobody counts it here",
        };
        failed.map(String::as_str).or_else(|| self.value(column).is_none().then_some(none))
    }

    /// Why the tier is not to be had here.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.why(Column::Start)
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut value = json!({
            "tier": self.tier(), "backend": self.backend(),
            "there": self.missing().is_none(), "why": self.missing(),
        });
        if let Some(map) = value.as_object_mut() {
            for column in Column::ALL {
                map.insert(column.key().to_owned(), json!(self.value(column)));
            }
            let not =
                Column::ALL.iter().filter_map(|column| Some((column.key().to_owned(), json!(self.why(*column)?))));
            map.insert("not_measured".to_owned(), Value::Object(not.collect()));
        }
        value
    }
}

/// Measures every backend in so many rounds; the caller's layers are part of each policy. What a start costs is kept for `choose`, where
/// the rounds are as many as its own.
pub(crate) fn measure(
    layers: &[PolicyLayer],
    rounds: usize,
    (environment, host): (&Environment, &Capabilities),
    tell: &dyn Fn(usize),
) -> Vec<Row> {
    let mut rows: Vec<Row> = std::iter::once(None)
        .chain(TIERS.iter().flat_map(|tier| of_tier(*tier)))
        .map(|on| Row { on, runs: Work::ALL.iter().map(|work| (*work, Ok(Vec::new()))).collect(), memory: None })
        .collect();
    let root = root_of_machines(layers, environment);
    let common = Common { layers, trials: Trials::new(environment), served: Served::begin(), root };
    for round in 0..rounds {
        tell(round);
        let count = rows.len();
        for at in 0..count {
            // Another one begins each round, and every second round goes backwards.
            let at = if round % 2 == 0 { at } else { count.saturating_sub(at).saturating_sub(1) };
            if let Some(row) = rows.get_mut(at) {
                one_round(row, &common);
            }
        }
    }
    let cost = |row: &Row| {
        let (tier, backend) = row.on?;
        Some(Cost::new((tier, backend), row.value(Column::Start)?, row.memory))
    };
    // With other clauses than the preset's it is no cost of the tier alone; of fewer rounds there is no median to rely on.
    if layers.is_empty() && rounds >= STARTS {
        Costs::keep(rows.iter().filter_map(cost).collect(), environment, host);
    }
    rows
}

fn of_tier(tier: Tier) -> impl Iterator<Item = Option<(Tier, &'static str)>> {
    backends::ALL.iter().filter(move |backend| backend.tier() == tier).map(move |backend| Some((tier, backend.name())))
}

/// What all measurements have in common.
#[derive(Debug)]
struct Common<'a> {
    layers: &'a [PolicyLayer],
    trials: Trials,
    served: Option<Served>,
    /// What machines are shown where the policy has the host's own tree, which goes into none; or why there is nothing.
    root: Option<Result<OwnFolder, String>>,
}

/// This program alone, where the policy names no other root than the host's.
fn root_of_machines(layers: &[PolicyLayer], environment: &Environment) -> Option<Result<OwnFolder, String>> {
    let is_hosts = load::policy_alone(layers, environment).is_ok_and(|loaded| loaded.policy.fs.root == Root::Host);
    let program = || environment.broker.as_deref().ok_or_else(|| "this program's own file is not known".to_owned());
    is_hosts.then(|| program().and_then(|program| own_root(program, environment).map_err(|stop| stop.sentence())))
}

fn one_round(row: &mut Row, common: &Common<'_>) {
    for (work, runs) in &mut row.runs {
        let Ok(times) = runs else { continue };
        let took = match row.on {
            None => work.on_host(common.served.as_ref()).map(|took| (took, None)),
            Some(on) => inside(*work, on, common),
        };
        match took {
            Ok((took, memory)) => {
                times.push(took);
                row.memory = row.memory.max(memory.filter(|_| *work == Work::Start));
            }
            Err(why) => *runs = Err(why),
        }
        if *work == Work::Start && runs.is_err() {
            break;
        }
    }
    // What does not start cannot do anything else either.
    if let Some((_, Err(why))) = row.runs.first() {
        let why = why.clone();
        row.runs.iter_mut().for_each(|(_, runs)| *runs = Err(why.clone()));
    }
}

/// Milliseconds of one run, from the policy to the report, and the memory that it took.
fn inside(work: Work, on: (Tier, &'static str), common: &Common<'_>) -> Result<(f64, Option<u64>), String> {
    let what = work.inside(on.1)?;
    let mut layers = common.layers.to_vec();
    layers.extend(work.clauses(common.served.as_ref())?);
    let root = common.root.as_ref().filter(|_| on.0 == Tier::Vm);
    if root.is_some() && work != Work::Start {
        return Err("a machine needs a root with programs for it: `--set fs.root=dir:PATH`".to_owned());
    }
    let root = root.map(|root| root.as_ref().map_err(Clone::clone)).transpose()?;
    let begin = Instant::now();
    let ran = match root {
        Some(root) => common.trials.machine(on.1, root, &layers),
        None => common.trials.run_this(on, &layers, what),
    };
    let report = ran.map_err(|stop| stop.sentence())?;
    let took = begin.elapsed().as_secs_f64() * 1000.0;
    let report = report.ok_or("it did not end in time")?;
    if report.pointer("/outcome/code") != Some(&json!(0)) {
        let words = report.pointer("/outcome/message").and_then(Value::as_str).unwrap_or("it failed");
        let said =
            report.get("stderr").and_then(Value::as_str).and_then(|text| text.lines().last()).unwrap_or_default();
        return Err(format!("{words} {said}").trim_end().to_owned());
    }
    let took = work.told(report.get("stdout").and_then(Value::as_str).unwrap_or_default()).unwrap_or(took);
    Ok((took, report.pointer("/usage/memory_peak").and_then(Value::as_u64)))
}
