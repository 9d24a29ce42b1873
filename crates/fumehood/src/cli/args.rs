//! Arguments against a table of flags: what was typed, not yet what it means.
//!
//! One table serves this parser, the help texts, the man pages and the completions. The parser goes on after a mistake, so
//! that all of them are told at once; and it costs microseconds, where building a full command tree costs a visible part of
//! a start.

pub use crate::ui::{closest, usage};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use sandbox::fault::{Fault, show_bytes};

/// One flag.
#[derive(Debug, PartialEq, Eq)]
pub struct Flag {
    /// `--long`
    pub long: &'static str,
    /// `-s`
    pub short: Option<u8>,
    /// Name of its value, if it takes one.
    pub value: Option<&'static str>,
    /// The words that its value may be, if they are few; for completions.
    pub choices: &'static [&'static str],
    /// What it does, in one line.
    pub help: &'static str,
    /// What it does to the policy.
    pub to: To,
    /// How often it may be given.
    pub times: Times,
}

/// How often a flag may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Two values contradict each other, and which of them is meant cannot be told.
    Once,
    /// Each adds to the others, or the later one is a layer over the earlier.
    Many,
}

/// What a flag does to the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Nothing: it is about our own behaviour.
    Ours,
    /// It sets a clause: which one and how, `policy` knows.
    Clause,
    /// `CLAUSE=VALUE`: any clause.
    Set,
    /// A document or preset.
    Document,
}

impl Flag {
    /// A flag without short form that sets a key.
    #[must_use]
    pub const fn new(long: &'static str, value: Option<&'static str>, to: To, help: &'static str) -> Self {
        let times = if matches!(to, To::Ours) && value.is_some() { Times::Once } else { Times::Many };
        Self { long, short: None, value, choices: &[], help, to, times }
    }

    /// The same with a short form.
    #[must_use]
    pub const fn short(self, short: u8) -> Self {
        Self { short: Some(short), ..self }
    }

    /// The same, to be given as often as one likes.
    #[must_use]
    pub const fn many(self) -> Self {
        Self { times: Times::Many, ..self }
    }

    /// The same, to be given once.
    #[must_use]
    pub const fn once(self) -> Self {
        Self { times: Times::Once, ..self }
    }

    /// The same with the words that complete it.
    #[must_use]
    pub const fn choices(self, choices: &'static [&'static str]) -> Self {
        Self { choices, ..self }
    }
}

/// Where words end flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positionals {
    /// The first word ends the flags: what follows belongs to it.
    EndFlags,
    /// Words and flags mix; at most this many words. `--` ends the flags alone, as everywhere.
    Mixed(usize),
    /// As `Mixed`, and what follows `--` is of another kind.
    MixedThenMore(usize),
}

/// What was typed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Flags in order, with their values.
    pub flags: Vec<(&'static Flag, Option<OsString>)>,
    /// Words that are no flags.
    pub words: Vec<OsString>,
    /// What follows `--`, if it was there.
    pub after: Option<Vec<OsString>>,
    /// `-h` (short) or `--help`.
    pub help: Option<Help>,
    /// What cannot be understood.
    pub faults: Vec<Fault>,
}

/// How much help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Help {
    /// `-h`
    Short,
    /// `--help`
    Long,
}

impl Parsed {
    /// Whether a flag was given.
    #[must_use]
    pub fn has(&self, long: &str) -> bool {
        self.flags.iter().any(|(flag, _)| flag.long == long)
    }

    /// The last value of a flag.
    #[must_use]
    pub fn value(&self, long: &str) -> Option<&OsStr> {
        self.flags.iter().rev().find(|(flag, _)| flag.long == long).and_then(|(_, value)| value.as_deref())
    }

    /// Takes a word, of at most so many.
    fn positional(&mut self, word: OsString, most: usize) {
        if self.words.len() < most {
            self.words.push(word);
        } else {
            self.faults.push(surplus(&word, most));
        }
    }
}

/// Reads arguments against tables of flags. Diagnostics go to `faults`.
#[must_use]
pub fn parse(args: impl Iterator<Item = OsString>, tables: &[&'static [Flag]], words: Positionals) -> Parsed {
    let mut parsed = Parsed::default();
    let mut args = args.peekable();
    while let Some(arg) = args.next() {
        let bytes = arg.as_bytes();
        if bytes == b"--" {
            match words {
                Positionals::EndFlags | Positionals::MixedThenMore(_) => parsed.after = Some(args.collect()),
                Positionals::Mixed(most) => args.for_each(|word| parsed.positional(word, most)),
            }
            break;
        }
        if let Some(name) = bytes.strip_prefix(b"--") {
            long(&mut parsed, name, tables, &mut args);
        } else if bytes.len() > 1 && bytes.starts_with(b"-") {
            cluster(&mut parsed, bytes.get(1..).unwrap_or_default(), tables, &mut args);
        } else {
            match words {
                Positionals::EndFlags => {
                    parsed.words.push(arg);
                    parsed.words.extend(args);
                    break;
                }
                Positionals::Mixed(most) | Positionals::MixedThenMore(most) => parsed.positional(arg, most),
            }
        }
    }
    twice(&mut parsed);
    parsed
}

/// Two values where one is meant: neither is silently dropped.
fn twice(parsed: &mut Parsed) {
    let mut seen: Vec<(&'static str, &Option<OsString>)> = Vec::new();
    let mut faults: Vec<Fault> = Vec::new();
    for (flag, value) in parsed.flags.iter().filter(|(flag, _)| flag.times == Times::Once) {
        match seen.iter().find(|(long, _)| *long == flag.long) {
            Some((_, first)) if *first == value => {}
            Some(_) if faults.iter().any(|fault| fault.what.ends_with(&format!("`--{}`", flag.long))) => {}
            Some(_) => faults.push(usage(
                "usage/flag-twice",
                format!("two values for `--{}`", flag.long),
                "one call takes one, and which is meant cannot be told".to_owned(),
                "keep one".to_owned(),
            )),
            None => seen.push((flag.long, value)),
        }
    }
    parsed.faults.append(&mut faults);
}

type Rest<'a, I> = &'a mut std::iter::Peekable<I>;

/// `--name`, `--name=value`, `--name value`.
fn long<I: Iterator<Item = OsString>>(parsed: &mut Parsed, text: &[u8], tables: &[&'static [Flag]], rest: Rest<'_, I>) {
    let (name, value) = match text.iter().position(|b| *b == b'=') {
        Some(i) => (text.get(..i).unwrap_or_default(), text.get(i + 1..).map(|v| OsString::from_vec(v.to_vec()))),
        None => (text, None),
    };
    if name == b"help" {
        parsed.help = Some(Help::Long);
        return;
    }
    let Some(flag) = flags(tables).find(|flag| flag.long.as_bytes() == name) else {
        parsed.faults.push(unknown_long(name, tables));
        // `--unknown 5`: the 5 is most likely its value, not a script.
        if value.is_none() && rest.peek().is_some_and(|next| looks_like_a_number(next)) {
            rest.next();
        }
        return;
    };
    match (flag.value, value) {
        (None, None) => parsed.flags.push((flag, None)),
        (None, Some(value)) => parsed.faults.push(needless(flag, &value)),
        (Some(_), Some(value)) => parsed.flags.push((flag, Some(value))),
        (Some(_), None) => take(parsed, flag, rest),
    }
}

/// `-it`, `-w.`, `-w .`, `-w=.`
fn cluster<I: Iterator<Item = OsString>>(
    parsed: &mut Parsed,
    text: &[u8],
    tables: &[&'static [Flag]],
    rest: Rest<'_, I>,
) {
    for (i, letter) in text.iter().enumerate() {
        if *letter == b'h' {
            parsed.help = parsed.help.or(Some(Help::Short));
            continue;
        }
        let Some(flag) = flags(tables).find(|flag| flag.short == Some(*letter)) else {
            parsed.faults.push(unknown_short(text, i, tables));
            return;
        };
        let tail = text.get(i + 1..).unwrap_or_default();
        match flag.value {
            None => parsed.flags.push((flag, None)),
            Some(_) if tail.is_empty() => return take(parsed, flag, rest),
            Some(_) => {
                let value = tail.strip_prefix(b"=").unwrap_or(tail);
                parsed.flags.push((flag, Some(OsString::from_vec(value.to_vec()))));
                return;
            }
        }
    }
}

/// The value in the next argument. A flag is no value, but a negative number is: its clause says what is wrong with it.
fn take<I: Iterator<Item = OsString>>(parsed: &mut Parsed, flag: &'static Flag, rest: Rest<'_, I>) {
    let is_value = |next: &OsString| {
        let bytes = next.as_bytes();
        bytes == b"-" || !bytes.starts_with(b"-") || looks_like_a_number(next)
    };
    match rest.next_if(is_value) {
        Some(value) => parsed.flags.push((flag, Some(value))),
        None => parsed.faults.push(missing(flag)),
    }
}

fn looks_like_a_number(arg: &OsStr) -> bool {
    let bytes = arg.as_bytes();
    bytes.strip_prefix(b"-").unwrap_or(bytes).first().is_some_and(u8::is_ascii_digit)
}

fn flags(tables: &[&'static [Flag]]) -> impl Iterator<Item = &'static Flag> {
    tables.iter().copied().flatten()
}

fn unknown_long(name: &[u8], tables: &[&'static [Flag]]) -> Fault {
    let typed = show_bytes(name);
    let best = closest(&typed, flags(tables).map(|flag| flag.long));
    let fix = best.map_or_else(
        || "see `--help`; for the program's own flags put `--` before it".to_owned(),
        |best| format!("`--{best}`"),
    );
    usage("usage/unknown-flag", format!("unknown flag `--{typed}`"), "no flag has this name".to_owned(), fix)
}

fn unknown_short(cluster: &[u8], at: usize, tables: &[&'static [Flag]]) -> Fault {
    let whole = show_bytes(cluster);
    let letter = show_bytes(cluster.get(at..=at).unwrap_or_default());
    let fix = match flags(tables).find(|flag| flag.long == whole) {
        Some(flag) => format!("`--{}`", flag.long),
        None => "see `--help`; for the program's own flags put `--` before it".to_owned(),
    };
    usage(
        "usage/unknown-flag",
        format!("unknown flag `-{letter}` in `-{whole}`"),
        "no flag has this letter".to_owned(),
        fix,
    )
}

fn missing(flag: &Flag) -> Fault {
    let value = flag.value.unwrap_or("VALUE");
    usage(
        "usage/missing-value",
        format!("`--{}` needs a value", flag.long),
        "nothing follows it, or another flag".to_owned(),
        format!("`--{0} {value}`, or `--{0}={value}` if the value begins with `-`", flag.long),
    )
}

fn needless(flag: &Flag, value: &OsStr) -> Fault {
    usage(
        "usage/needless-value",
        format!("`--{}` takes no value", flag.long),
        format!("`{}` was given", show_bytes(value.as_bytes())),
        format!("`--{}`", flag.long),
    )
}

fn surplus(word: &OsStr, most: usize) -> Fault {
    let takes = match most {
        0 => "no words".to_owned(),
        1 => "one word".to_owned(),
        n => format!("{n} words"),
    };
    usage(
        "usage/surplus-word",
        format!("`{}` is one word too many", show_bytes(word.as_bytes())),
        format!("the command takes {takes} beside its flags"),
        "see `--help`".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: &[Flag] = &[
        Flag::new("memory", Some("SIZE"), To::Clause, "memory"),
        Flag::new("workspace", Some("PATH"), To::Clause, "workspace").short(b'w'),
        Flag::new("tty", None, To::Ours, "terminal").short(b't'),
        Flag::new("interactive", None, To::Ours, "stdin").short(b'i'),
    ];

    fn parsed(words: Positionals, args: &[&str]) -> Parsed {
        parse(args.iter().map(OsString::from), &[TABLE], words)
    }

    fn shown(parsed: &Parsed) -> Vec<String> {
        let value = |v: &Option<OsString>| v.as_ref().map_or(String::new(), |v| format!("={}", v.display()));
        parsed.flags.iter().map(|(flag, v)| format!("{}{}", flag.long, value(v))).collect()
    }

    #[test]
    fn what_help_says_may_be_repeated_may_be() {
        let all = crate::cli::COMMANDS.iter().flat_map(|spec| spec.tables.iter().copied().flatten());
        let repeated: Vec<&Flag> = all.filter(|flag| flag.help.contains("may be repeated")).collect();
        assert!(repeated.len() >= 5, "{}", repeated.len());
        for flag in repeated {
            assert_eq!(flag.times, Times::Many, "--{}", flag.long);
        }
    }

    #[test]
    fn two_values_for_one_flag_are_refused_and_the_same_value_twice_is_one() {
        const ONE: &[Flag] = &[
            Flag::new("code", Some("TEXT"), To::Ours, "code"),
            Flag::new("any", Some("TEXT"), To::Ours, "any").many(),
            Flag::new("tree", Some("PATH"), To::Clause, "tree").once(),
            Flag::new("layer", Some("SIZE"), To::Clause, "layer"),
            Flag::new("quiet", None, To::Ours, "quiet").short(b'q'),
        ];
        let faults = |args: &[&str]| -> Vec<String> {
            let parsed = parse(args.iter().map(OsString::from), &[ONE], Positionals::EndFlags);
            parsed.faults.into_iter().map(|fault| fault.what).collect()
        };
        assert_eq!(faults(&["--code=1", "--code", "2", "--code=3"]), ["two values for `--code`"]);
        assert_eq!(
            faults(&["--tree=a", "--tree=b", "--code=1", "--code=2"]),
            ["two values for `--tree`", "two values for `--code`"]
        );
        for fine in [&["--code=1", "--code=1"][..], &["--any=1", "--any=2"], &["--layer=1", "--layer=2"], &["-q", "-q"]]
        {
            assert_eq!(faults(fine), Vec::<String>::new(), "{fine:?}");
        }
        assert_eq!(faults(&["--code=1", "--", "--code=2"]), Vec::<String>::new(), "what follows is the program's");
    }

    #[test]
    fn every_spelling_of_a_value_is_understood() {
        for args in [&["--memory", "1G"][..], &["--memory=1G"]] {
            assert_eq!(shown(&parsed(Positionals::EndFlags, args)), ["memory=1G"]);
        }
        for args in [&["-w", "."][..], &["-w."], &["-w=."], &["--workspace", "."]] {
            assert_eq!(shown(&parsed(Positionals::EndFlags, args)), ["workspace=."]);
        }
        assert_eq!(shown(&parsed(Positionals::EndFlags, &["-itw", "."])), ["interactive", "tty", "workspace=."]);
    }

    #[test]
    fn the_first_word_ends_the_flags() {
        let p = parsed(Positionals::EndFlags, &["-i", "x.py", "--memory", "--", "-t"]);
        assert_eq!(shown(&p), ["interactive"]);
        assert_eq!(p.words, ["x.py", "--memory", "--", "-t"]);
        assert_eq!(p.after, None);
    }

    #[test]
    fn two_dashes_end_the_flags_and_are_remembered() {
        let p = parsed(Positionals::EndFlags, &["-i", "--", "-t", "--"]);
        assert_eq!((p.words.len(), p.after), (0, Some(vec!["-t".into(), "--".into()])));
    }

    #[test]
    fn words_and_flags_mix_where_the_command_says_so() {
        let p = parsed(Positionals::MixedThenMore(1), &["a", "-i", "b", "--", "c"]);
        assert_eq!(p.words, ["a"]);
        assert_eq!(p.after, Some(vec!["c".into()]));
        assert_eq!(p.faults.len(), 1);
        assert_eq!(p.faults[0].what, "`b` is one word too many");
    }

    #[test]
    fn where_nothing_else_can_follow_two_dashes_words_do() {
        let p = parsed(Positionals::Mixed(2), &["a", "--", "-i", "c"]);
        assert_eq!((p.words, p.after), (vec!["a".into(), "-i".into()], None));
        assert!(p.flags.is_empty());
        assert_eq!(p.faults[0].what, "`c` is one word too many");
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let p = parsed(Positionals::EndFlags, &["--memroy", "5", "--tty=yes", "-x", "--memory"]);
        let ids: Vec<_> = p.faults.iter().map(|f| f.id).collect();
        assert_eq!(ids, ["usage/unknown-flag", "usage/needless-value", "usage/unknown-flag", "usage/missing-value"]);
        assert_eq!(p.faults[0].fix, "`--memory`");
        assert!(p.words.is_empty());
    }

    #[test]
    fn a_negative_number_is_a_value_and_a_flag_is_not() {
        assert_eq!(shown(&parsed(Positionals::EndFlags, &["--memory", "-5"])), ["memory=-5"]);
        let p = parsed(Positionals::EndFlags, &["--memory", "-i"]);
        assert_eq!((shown(&p), p.faults.len()), (vec!["interactive".to_owned()], 1));
    }

    #[test]
    fn bytes_that_are_no_text_stay_as_they_are() {
        let odd = OsString::from_vec(b"--workspace=\xff".to_vec());
        let p = parse([odd].into_iter(), &[TABLE], Positionals::EndFlags);
        assert_eq!(p.value("workspace"), Some(OsStr::from_bytes(b"\xff")));
    }
}
