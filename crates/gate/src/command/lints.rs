//! Rules that are legal and probably not meant: programs that run what they are given, allowed to be given anything.

use super::table::{Kind, Table};

/// Run their operands, or a file that those name, beside the interpreters with a table.
const INTERPRETERS: &[&str] = &[
    "ash", "awk", "bash", "bun", "busybox", "cmake", "csh", "dash", "deno", "docker", "ed", "emacs", "erl", "ex",
    "expect", "fish", "gawk", "gdb", "ghci", "go", "guile", "irb", "java", "jshell", "julia", "kubectl", "ksh", "less",
    "lua", "luajit", "make", "man", "mawk", "more", "mysql", "nawk", "ninja", "node", "nodejs", "npm", "npx", "octave",
    "perl", "php", "pip", "pnpm", "podman", "psql", "python", "rake", "ruby", "runghc", "scp", "sh", "sqlite", "ssh",
    "tar", "tclsh", "uv", "uvx", "vi", "view", "vim", "wish", "yarn", "zsh",
];

/// Flags whose value is run, by program; `*` stands for every interpreter.
const RUN_THEIR_VALUE: &[(&str, &[&str])] = &[
    ("*", &["-c", "-e", "-E", "-r", "--command", "--eval", "--exec", "--print"]),
    ("find", &["-exec", "-execdir", "-ok", "-okdir"]),
    ("fd", &["-x", "-X", "--exec", "--exec-batch"]),
    ("git", &["-c", "--config-env", "--exec-path", "--upload-pack", "--receive-pack", "--ext-diff", "--textconv"]),
    ("rsync", &["-e", "--rsh", "--rsync-path"]),
    ("rg", &["--pre", "--hostname-bin"]),
    ("sort", &["--compress-program"]),
    ("ssh", &["-o", "-F"]),
    ("scp", &["-o", "-S", "-F"]),
    ("split", &["--filter"]),
    ("tar", &["-I", "--use-compress-program", "--to-command", "--checkpoint-action", "--rsh-command"]),
    ("zip", &["-TT", "--unzip-command"]),
];

/// What is too wide in the policy's own rules of a program, in words; `interprets`: its shipped table says so.
pub(super) fn too_wide(name: &str, interprets: bool, table: &Table) -> Option<String> {
    // `python3.11`, `lua5.4`, `gcc-12`: a version is no other program.
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    let interprets = interprets || INTERPRETERS.contains(&plain);
    if interprets && table.positional.as_ref().is_some_and(is_free) {
        return Some("may be given any words".to_owned());
    }
    let runs = |flag: &str| {
        let of = |who: &str| who == plain || (who == "*" && interprets);
        RUN_THEIR_VALUE.iter().any(|(who, flags)| of(who) && flags.contains(&flag))
    };
    let free = table.flags.iter().filter(|flag| flag.value.as_ref().is_some_and(is_free));
    let found = free.flat_map(|flag| &flag.names).find(|flag| runs(flag));
    let within = || table.subs.values().find_map(|sub| too_wide(name, interprets, sub));
    found.map(|flag| format!("may be given `{flag}` with anything behind it")).or_else(within)
}

fn is_free(kind: &Kind) -> bool {
    matches!(kind, Kind::Any | Kind::Word)
}
