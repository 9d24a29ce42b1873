//! Refusals in the words of whoever wrote the body: its fields, and what can be written there instead.

use crate::answer::Problem;

/// Clauses, the fields that they were made of, and what to do.
const FIELDS: &[(&str, &str, &str)] = &[
    ("fs.read", "HostConfig.Binds", BINDS),
    ("fs.write", "HostConfig.Binds", BINDS),
    ("fs.dangerous-read", "HostConfig.Binds", BINDS),
    ("fs.dangerous-write", "HostConfig.Binds", BINDS),
    ("workspace", "HostConfig.Tmpfs or WorkingDir", "name another place"),
    ("fs.tmp", "HostConfig.Tmpfs", LESS),
    ("fs.run", "HostConfig.Tmpfs", LESS),
    ("fs.noexec", "HostConfig.Tmpfs", "say `noexec`"),
    ("fs.shm", "HostConfig.ShmSize", LESS),
    ("fs.root", "Image", "name another image"),
    ("env", "Env", "leave the variable out, or give it another value"),
    ("process.user", "User", "name another user, or none"),
    ("process.hostname", "Hostname", "name another, or none"),
    ("net", "HostConfig.NetworkMode", "say `none`, or NetworkDisabled"),
    ("limits.memory", "HostConfig.Memory", AMOUNT),
    // What all places in memory have together.
    ("limits.disk", "HostConfig.Memory", AMOUNT),
    ("limits.cpus", "HostConfig.NanoCpus or CpuQuota", AMOUNT),
    ("limits.cpuset", "HostConfig.CpusetCpus", "name cores that this machine has"),
    ("limits.pids", "HostConfig.PidsLimit", AMOUNT),
    ("limits.open_files", "HostConfig.Ulimits (nofile)", AMOUNT),
    ("limits.file_size", "HostConfig.Ulimits (fsize)", AMOUNT),
    ("limits.cpu_time", "HostConfig.Ulimits (cpu)", AMOUNT),
];
const BINDS: &str =
    "bind a folder that is there, and that is no home, no place of the system and no socket of an engine";
const LESS: &str = "ask for a smaller size";
const AMOUNT: &str = "ask for another amount";
/// The id of what goes beyond a ceiling.
const BEYOND: &str = "serve/beyond-ceiling";

/// One line for people who know Docker's fields and no policy.
pub(super) fn line(problem: &Problem) -> String {
    let of = |clause: &&str| {
        let rest = problem.clause.strip_prefix(*clause);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let Some((_, field, instead)) = FIELDS.iter().find(|(clause, _, _)| of(clause)) else { return problem.line() };
    if &*problem.id == BEYOND {
        let why = "whoever serves this socket set a ceiling (`--docker-ceiling`), or its own stands";
        return format!("{field}: it goes beyond what a container may have here: {why}; {instead}");
    }
    let said = format!("{field}: {}: {}; {instead}", problem.what, problem.why);
    FIELDS.iter().fold(said, |said, (clause, field, _)| {
        said.replace(&format!("`{clause}`"), &format!("`{}`", field.trim_start_matches("HostConfig.")))
    })
}
