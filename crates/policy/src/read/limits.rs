//! `[limits]`.

use super::scalar::Least;
use super::{Reader, fault};
use crate::diagnostic::quote;
use crate::document::{Node, Value};
use crate::units::{MilliCpus, Millis, ranges};
use crate::value::{Limits, Over, Threshold};

pub(crate) const LIMITS: &[&str] = &[
    "wall",
    "cpu_time",
    "cpus",
    "cpuset",
    "memory",
    "pids",
    "open_files",
    "file_size",
    "disk",
    "files",
    "output",
    "over",
    "io_read",
    "io_write",
    "idle",
    "warn",
    "kill",
];

const LEAST_TIME: Least = Least {
    value: 1,
    why: "a time of 0 would end the run before it starts; it is not a way to say unlimited",
    example: "30s",
};
const LEAST_CPU: Least = Least { value: 10, why: "no program starts within that", example: "10s" };
const LEAST_MEMORY: Least = Least {
    value: 4 << 20,
    why: "no program starts in less than 4M; 0 is not a way to say unlimited",
    example: "256M",
};
const LEAST_SIZE: Least = Least {
    value: 1,
    why: "a size of 0 would let nothing be written; it is not a way to say unlimited",
    example: "64M",
};
const LEAST_DISK: Least = Least { value: 64 << 10, why: "`/tmp` alone needs more", example: "128M" };
const ANY_SIZE: Least = Least { value: 0, why: "", example: "1M" };
pub(super) const LEAST_RATE: Least =
    Least { value: 4096, why: "a rate below one page a second stops the program", example: "50M/s" };

impl Reader<'_> {
    pub(crate) fn limits(&mut self, tree: &Node, limits: &mut Limits) {
        let Some(node) = tree.get("limits") else { return };
        if self.table("limits", node, LIMITS).is_none() {
            return;
        }
        self.put(tree, "limits.wall", &mut limits.wall, |r, p, n| r.limit(p, n, |r, p, n| r.time(p, n, LEAST_TIME)));
        self.put(tree, "limits.cpu_time", &mut limits.cpu_time, |r, p, n| {
            r.limit(p, n, |r, p, n| r.time(p, n, LEAST_CPU))
        });
        self.put(tree, "limits.idle", &mut limits.idle, |r, p, n| r.limit(p, n, |r, p, n| r.time(p, n, LEAST_TIME)));
        self.put(tree, "limits.cpus", &mut limits.cpus, |r, p, n| r.limit(p, n, Self::cpus));
        self.put(tree, "limits.cpuset", &mut limits.cpuset, |r, p, n| r.limit(p, n, Self::cpuset));
        self.put(tree, "limits.memory", &mut limits.memory, |r, p, n| {
            r.limit(p, n, |r, p, n| r.size(p, n, LEAST_MEMORY))
        });
        self.put(tree, "limits.file_size", &mut limits.file_size, |r, p, n| {
            r.limit(p, n, |r, p, n| r.size(p, n, LEAST_SIZE))
        });
        self.put(tree, "limits.disk", &mut limits.disk, |r, p, n| r.limit(p, n, |r, p, n| r.size(p, n, LEAST_DISK)));
        self.put(tree, "limits.output", &mut limits.output, |r, p, n| r.limit(p, n, |r, p, n| r.size(p, n, ANY_SIZE)));
        self.put(tree, "limits.pids", &mut limits.pids, |r, p, n| r.limit(p, n, |r, p, n| r.small(p, n, 1, 4_194_304)));
        self.put(tree, "limits.open_files", &mut limits.open_files, |r, p, n| {
            r.limit(p, n, |r, p, n| r.small(p, n, 8, 1_048_576))
        });
        self.put(tree, "limits.files", &mut limits.files, |r, p, n| {
            r.limit(p, n, |r, p, n| r.whole(p, n, 16, 1 << 40))
        });
        self.put(tree, "limits.io_read", &mut limits.io_read, |r, p, n| {
            r.limit(p, n, |r, p, n| r.rate(p, n, LEAST_RATE))
        });
        self.put(tree, "limits.io_write", &mut limits.io_write, |r, p, n| {
            r.limit(p, n, |r, p, n| r.rate(p, n, LEAST_RATE))
        });
        self.put(tree, "limits.over", &mut limits.over, |r, p, n| r.keyword(p, n, Over::WORDS));
        self.put(tree, "limits.warn", &mut limits.warn, |r, p, n| r.limit(p, n, Self::threshold));
        self.put(tree, "limits.kill", &mut limits.kill, |r, p, n| r.limit(p, n, Self::threshold));
    }

    /// A share of cores with at most three decimals, read from its text so that nothing is rounded.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to lie between 1 and 4096000 before"
    )]
    fn cpus(&mut self, path: &str, node: &Node) -> Option<MilliCpus> {
        let number = match &node.value {
            #[expect(clippy::cast_precision_loss, reason = "anything beyond 4096 is refused below")]
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            Value::Bare(text) => text.parse().ok(),
            Value::Null | Value::Bool(_) | Value::Text(_) | Value::Array(_) | Value::Table(_) => None,
        };
        let Some(number) = number else {
            self.wrong_type(path, node, "a number of cores", "write 1.0 for one core, 0.5 for half of one");
            return None;
        };
        let thousandths = number * 1000.0;
        let whole = thousandths.round();
        if (1.0..=4_096_000.0).contains(&whole) && (thousandths - whole).abs() < 1e-6 {
            return Some(MilliCpus(whole as u32));
        }
        let why = if number <= 0.0 {
            "zero or less would let nothing run"
        } else {
            "it is 0.001 to 4096 cores, in steps of 0.001"
        };
        self.note(
            path,
            node.place,
            fault("value/range", format!("`{path}` is {number}"), why, "write 1.0 for one core, 0.5 for half of one"),
        );
        None
    }

    fn cpuset(&mut self, path: &str, node: &Node) -> Option<Vec<u32>> {
        let mut list = match &node.value {
            Value::Array(items) => items.iter().filter_map(|item| self.small(path, item, 0, 4095)).collect(),
            Value::Integer(_) => vec![self.small(path, node, 0, 4095)?],
            Value::Null | Value::Bool(_) | Value::Float(_) | Value::Text(_) | Value::Bare(_) | Value::Table(_) => {
                let text = self.text(path, node)?;
                let Some(list) = cores(&text) else {
                    let what = format!("`{path}` is {}", quote(&text));
                    self.note(
                        path,
                        node.place,
                        fault(
                            "value/cores",
                            what,
                            "cores are numbers and ranges from 0 to 4095",
                            self.suggest(path, node.place, "0-1,3"),
                        ),
                    );
                    return None;
                };
                list
            }
        };
        list.sort_unstable();
        list.dedup();
        if list.is_empty() {
            self.note(
                path,
                node.place,
                fault(
                    "value/range",
                    format!("`{path}` names no core"),
                    "nothing could run",
                    self.suggest(path, node.place, "0-1"),
                ),
            );
            return None;
        }
        Some(list)
    }

    fn threshold(&mut self, path: &str, node: &Node) -> Option<Threshold> {
        let table = self.table(path, node, &["cpu_percent", "memory", "for"])?;
        let mut threshold = Threshold { cpu_percent: None, memory: None, lasting: Millis(1000) };
        if let Some(node) = table.get("cpu_percent") {
            threshold.cpu_percent = self.small(&format!("{path}.cpu_percent"), node, 1, 100);
        }
        if let Some(node) = table.get("memory") {
            threshold.memory = self.size(&format!("{path}.memory"), node, LEAST_MEMORY);
        }
        if let Some(node) = table.get("for") {
            threshold.lasting = self.time(&format!("{path}.for"), node, ANY_TIME)?;
        }
        if table.get("cpu_percent").is_none() && table.get("memory").is_none() {
            let fix = "write { cpu_percent = 80, memory = \"400M\", for = \"2s\" }";
            self.note(
                path,
                node.place,
                fault(
                    "value/incomplete",
                    format!("`{path}` watches nothing"),
                    "it needs `cpu_percent` or `memory`",
                    fix,
                ),
            );
            return None;
        }
        Some(threshold)
    }
}

const ANY_TIME: Least = Least { value: 0, why: "", example: "2s" };

fn cores(text: &str) -> Option<Vec<u32>> {
    let mut list = Vec::new();
    for range in ranges(text) {
        let (from, to) = range?;
        if from > to || to > 4095 {
            return None;
        }
        list.extend(from..=to);
        if list.len() > 8192 {
            return None;
        }
    }
    Some(list)
}
