//! The flags, as data: parser, help, man pages and completions all read these tables.

use super::args::{Flag, To};

/// Flags of every command.
pub const COMMON: &[Flag] = &[
    Flag::new("json", None, To::Ours, "Print one JSON value on stdout"),
    Flag::new("color", Some("WHEN"), To::Ours, "When to colour: auto (on a terminal), always, never")
        .choices(&["auto", "always", "never"]),
];

/// Flags that make a policy: `run`, `shell`, `plan`, `doctor`, `attack`, `policy check`, `policy show`.
pub const POLICY: &[Flag] = &[
    Flag::new("policy", Some("POLICY"), To::Document, "A policy document or the name of a preset; later ones win")
        .short(b'p'),
    Flag::new(
        "workspace",
        Some("PATH[:MODE]"),
        To::Clause,
        "The tree to work on; mode ro, rw, overlay (default) or copy",
    )
    .short(b'w')
    .once(),
    Flag::new("tier", Some("TIER"), To::Clause, "Strength of isolation: process, container (default), ...").choices(&[
        "language",
        "process",
        "container",
        "gvisor",
        "vm",
        "auto",
    ]),
    Flag::new("memory", Some("SIZE"), To::Clause, "Memory of the whole process tree, e.g. 512M"),
    Flag::new("cpus", Some("N"), To::Clause, "Share of processor time, e.g. 1.5"),
    Flag::new("pids", Some("N"), To::Clause, "Processes and threads at once"),
    Flag::new("timeout", Some("TIME"), To::Clause, "Wall time, e.g. 30s"),
    Flag::new("cpu-time", Some("TIME"), To::Clause, "Processor time of the whole tree"),
    Flag::new("disk", Some("SIZE"), To::Clause, "Bytes in all that is writable"),
    Flag::new("output-limit", Some("SIZE"), To::Clause, "Bytes of stdout and stderr kept"),
    Flag::new("net", Some("MODE"), To::Clause, "Network: none (default), loopback, allow")
        .choices(&["none", "loopback", "allow"]),
    Flag::new("allow-host", Some("HOST[:PORT]"), To::Clause, "A destination that may be reached; sets `--net allow`"),
    Flag::new("read", Some("FROM[:TO]"), To::Clause, "A path of the host that may be read"),
    Flag::new("write", Some("FROM[:TO]"), To::Clause, "A path of the host that may be written"),
    Flag::new("dangerous-read", Some("FROM[:TO]"), To::Clause, "As --read, also for / or credentials"),
    Flag::new("dangerous-write", Some("FROM[:TO]"), To::Clause, "As --write, also for / or credentials"),
    Flag::new("env", Some("NAME=VALUE"), To::Clause, "Set a variable inside"),
    Flag::new("pass-env", Some("NAME"), To::Clause, "Let a variable of yours in"),
    Flag::new("input", Some("NAME=VALUE"), To::Clause, "A typed input: checked, then INPUT_NAME inside"),
    Flag::new("prefer", Some("CLAUSE"), To::Clause, "A clause that may be weakened; recorded"),
    Flag::new("set", Some("CLAUSE=VALUE"), To::Set, "Any clause, e.g. limits.files=10000"),
];

/// Flags of `run` and `shell`: where the workspace begins.
pub const ON: &[Flag] =
    &[Flag::new("on", Some("RUN"), To::Ours, "Go on from the changes that this run left in the workspace").once()];

/// Flags of `run` and `plan`, beside those: what to run, and its streams.
pub const RUN: &[Flag] = &[
    Flag::new("lang", Some("LANGUAGE"), To::Ours, "Language of the code or script"),
    Flag::new("code", Some("TEXT"), To::Ours, "Code to run, in the language of --lang"),
    Flag::new("interactive", None, To::Ours, "Let a terminal be the program's stdin").short(b'i'),
    Flag::new("tty", None, To::Clause, "Give the program a terminal of its own (`process.tty`)").short(b't'),
];

/// Flags of `run`, `shell` and `plan`: how much is told, and where.
pub const SAYING: &[Flag] = &[
    Flag::new("report", Some("FILE"), To::Ours, "Write the JSON report to a file"),
    Flag::new("quiet", None, To::Ours, "Say nothing but errors and weakenings").short(b'q'),
    Flag::new("verbose", None, To::Ours, "Say also who enforced what").short(b'v'),
];

/// Flags of `doctor`.
pub const DOCTOR: &[Flag] = &[
    Flag::new("tier", Some("TIER"), To::Ours, "Look at this tier alone; the exit code is about it").choices(&[
        "language",
        "process",
        "container",
        "gvisor",
        "vm",
    ]),
    Flag::new("verbose", None, To::Ours, "List every clause of every tier").short(b'v'),
];
