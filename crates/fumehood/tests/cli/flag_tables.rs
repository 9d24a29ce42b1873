//! The tables of flags, which parser, help, manual and completions share.

use std::collections::BTreeSet;

use fumehood::cli::COMMANDS;
use fumehood::cli::args::{Positionals, parse};
use fumehood::cli::flags::COMMON;
use fumehood::cli::spec::tree;

#[test]
fn no_flag_stands_twice_in_one_command() {
    for spec in COMMANDS {
        let mut seen = BTreeSet::from(["--help".to_owned(), "-h".to_owned()]);
        for flag in spec.tables.iter().copied().chain([COMMON]).flatten() {
            assert!(seen.insert(format!("--{}", flag.long)), "{:?} {}", spec.path, flag.long);
            if let Some(short) = flag.short {
                assert!(seen.insert(format!("-{}", char::from(short))), "{:?} {}", spec.path, flag.long);
            }
        }
    }
}

/// The generated command tree checks itself in debug builds; and both parsers must take the same flags.
#[test]
fn what_is_generated_and_what_is_parsed_are_the_same() {
    let mut generated = tree(COMMANDS);
    generated.build();
    for spec in COMMANDS {
        let tables: Vec<_> = spec.tables.iter().copied().chain([COMMON]).collect();
        for flag in tables.iter().copied().flatten() {
            let value = flag.value.map(|_| flag.choices.first().copied().unwrap_or("1").to_owned());
            let long = value.as_ref().map_or(format!("--{}", flag.long), |v| format!("--{}={v}", flag.long));
            let ours = parse([long.clone().into()].into_iter(), &tables, Positionals::Mixed(0));
            assert_eq!((ours.faults.len(), ours.flags.len()), (0, 1), "{long}");
            let line = std::iter::once("fumehood").chain(spec.path.iter().copied()).chain([long.as_str()]);
            let theirs = generated.clone().try_get_matches_from(line);
            assert!(theirs.is_ok(), "{long}: {theirs:?}");
        }
    }
}
