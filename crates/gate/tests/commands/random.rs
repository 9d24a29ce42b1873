//! No text stops the judge: no panic, no end of the stack, no long thinking; and what it allows it allows again.

use std::time::{Duration, Instant};

use crate::world::World;

/// No line takes seconds; a busy machine may take them.
const HANGS: Duration = Duration::from_secs(60);

/// xorshift: the same lines at every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(below.max(1)).unwrap()).unwrap()
    }
}

const PARTS: &[&str] = include!("tokens.in");

#[test]
fn random_lines_are_answered() {
    let world = World::new("dev");
    let mut random = Random(0x5eed_cafe_f00d_1234);
    let end = Instant::now() + Duration::from_secs(15);
    let mut count = 0_u32;
    // Some hundreds on any machine, and more where there is time.
    while count < 500 || Instant::now() < end && count < 40_000 {
        let line: String = (0..1 + random.next(24))
            .map(|_| PARTS[random.next(PARTS.len())])
            .collect::<Vec<_>>()
            .join(if random.next(2) == 0 { "" } else { " " });
        let begun = Instant::now();
        let once = world.judge.line(&line);
        assert!(begun.elapsed() < HANGS, "{line:?} took {:?}", begun.elapsed());
        if count.is_multiple_of(16) {
            assert_eq!(once, world.judge.line(&line), "{line:?}");
        }
        count += 1;
    }
}

#[test]
fn a_here_document_that_ends_with_an_expansion_is_refused_at_once() {
    let world = World::new("dev");
    for line in [
        "cat <<$(  ",
        "cat <<-$(",
        "cat << \"a $(",
        "cat <<e$( x",
        "cat <<`",
        "cat <<\\\n$(",
        "cat <<'a'$(ls\n)",
        "cat <<${x\n",
    ] {
        assert!(!world.allows(line), "{line}");
    }
    assert!(world.allows("cat <<E\na\nE\n"));
}

#[test]
fn brackets_that_nothing_closes_are_refused_before_the_parser_reads_them_again_and_again() {
    let world = World::new("dev");
    for part in ["ta[$*r1844674407", "a[", "a[']'", "a[\"]\"", "[", "$[", "${a["] {
        let line = format!("ls {}", part.repeat(23));
        let why = world.why(&line);
        assert!(why.starts_with("commands.line/"), "{line}: {why}");
        // As many as are read are read at once.
        let _either = world.allows(&format!("ls {}", part.repeat(10)));
    }
    let many = (0..30).map(|n| format!("'a[{n}]' \"b[{n}]\" 'c['")).collect::<Vec<_>>().join(" ");
    assert!(world.allows(&format!("ls {many}")), "{many}");
}

#[test]
fn a_descriptor_that_is_no_number_is_refused_and_ends_nothing() {
    let world = World::new("dev");
    for line in [
        "ls 9007199254740993>o",
        "18446744073709551616<i ls",
        "ls 99999\\\n99999>|o",
        "ls $(ls 4294967296>&2)",
        "bash -c 'ls 2147483648>o'",
        "ls;99999999999<<E\nE",
    ] {
        assert!(!world.allows(line), "{line}");
    }
    for line in ["cat 25<740993< x", "ls >1>o", "ls > 1>o", "cat <<<5<x", "ls<<< {x}>f"] {
        assert!(!world.allows(line) && !crate::world::bash_reads(line), "{line}");
    }
    assert!(world.allows("ls 2>&1>o") && world.allows("ls '<5>' '>1>'"));
    // Digits at the end of a name are no descriptor.
    assert!(world.allows("ls report-20260102123456>o"));
    assert!(world.allows("ls 20260102123456 >o 2>&1"));
}

#[test]
fn what_the_parser_would_read_again_and_again_is_refused_at_once() {
    let world = World::new("dev");
    for line in [
        "(".repeat(60),
        format!("(({}", "(".repeat(58)),
        "( ".repeat(60),
        format!("{}ls;ls{}", "(".repeat(30), ")".repeat(30)),
        format!("(({}1;{}))", "( 1 + ".repeat(40), ")".repeat(40)),
        format!("for (({};;{})); do ls; done", "(".repeat(30), "(".repeat(30)),
        format!("[[ a =~ {} ]]", "(".repeat(60)),
        format!("[[ a =~ {}b ]]", "(c".repeat(60)),
        "((a;) ".repeat(40),
        "( case a in a) ".repeat(40),
        format!("{}ls{}", "case a in a) ".repeat(40), "; esac".repeat(40)),
        format!("{}ls{}", "case a in a) ls esac; ".repeat(40), "; esac".repeat(40)),
        format!("bash -c '{}'", "(".repeat(60)),
        format!("ls $({})", "(".repeat(60)),
        format!("ls `{}`", "(".repeat(60)),
        format!("{}{}", "x() (".repeat(60), "ls"),
    ] {
        let begun = Instant::now();
        assert!(!world.allows(&line), "{line}");
        assert!(begun.elapsed() < HANGS, "{line:?} took {:?}", begun.elapsed());
    }
    assert!(world.allows("(ls; (ls; (ls; (ls))))"));
    assert!(world.allows(&format!("ls '{}'", "(".repeat(60))));
}

#[test]
fn a_pattern_that_bash_takes_for_the_end_is_no_way_round_the_judge() {
    let world = World::new("dev");
    let mut ran = 0;
    for line in [
        "( case x in x) ls;; esac | evil )\nls;; esac )",
        "( case x in esac | evil )\nls;; esac )",
        "( case x in x) ls;; esac & evil )\nls;; esac )",
        "( case x in (x) ls;; esac | evil )\nls;; esac )",
        "{ case x in x) ls;; esac | ( evil )\nls;; esac; }",
        "if ls; then case x in x) ls;; esac | evil\n",
    ] {
        assert!(!world.allows(line), "{line:?}");
        let evil = |line: &str| world.run(line).iter().any(|words| words[0] == "evil");
        ran += usize::from(evil(line));
        assert!(!evil(&gate::command::as_one(line)), "read as one it runs nothing: {line:?}");
    }
    // As a control: bash does run what stands behind, although it cannot read the rest.
    assert!(ran >= 2, "{ran}");
    assert!(world.allows("case esac in x) ls;; \"esac\") ls;; esac"));
}

#[test]
fn changed_lines_of_the_corpus_are_answered() {
    let world = World::new("inspect");
    let mut random = Random(0x0bad_5eed_0bad_5eed);
    let lines: Vec<String> =
        crate::corpus().into_iter().flat_map(|group| group.allow.into_iter().chain(group.deny)).collect();
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        let mut line: Vec<char> = lines[random.next(lines.len())].chars().collect();
        for _ in 0..1 + random.next(4) {
            let at = random.next(line.len());
            match random.next(3) {
                0 => drop((!line.is_empty()).then(|| line.remove(at))),
                1 => line.insert(at, char::from(u8::try_from(random.next(128)).unwrap())),
                _ => line.extend(PARTS[random.next(PARTS.len())].chars()),
            }
        }
        let line: String = line.into_iter().collect();
        drop(world.judge.line(&line));
    }
}

#[test]
fn deep_and_long_lines_are_answered_in_time() {
    let world = World::new("inspect");
    for (open, close) in [
        ("(", ")"),
        ("{ ", "; }"),
        ("$(", ")"),
        ("if ", "; then :; fi"),
        ("\"$(", ")\""),
        ("`", "`"),
        ("${x:-", "}"),
        ("[[ ! ", " ]]"),
        ("[[ ( ", " ) ]]"),
        ("while ", "; do :; done"),
        ("case x in x) ", ";; esac"),
        ("! ", ""),
        ("time ", ""),
        ("<(", ")"),
        ("((", "))"),
        ("$((", "))"),
        ("a=", ""),
        ("ls | ", ""),
        ("ls && ", ""),
        ("ls; ", ""),
        ("timeout 5 ", ""),
        ("bash -c '", "'"),
        ("<<E ", "\nE"),
        ("{a,", "}"),
        ("\\", ""),
        ("'", "'"),
        ("x() { ", "; }"),
        ("echo \"", "\""),
        ("for i in ", "; do :; done"),
        ("[[ a && ", " ]]"),
        ("if ls; then ", "; fi"),
        ("f=1 ", ""),
        (">f ", ""),
        ("env ", ""),
    ] {
        for times in [10, 100, 255, 2_000, 20_000] {
            let line = format!("{}ls{}", open.repeat(times), close.repeat(times));
            let begun = Instant::now();
            drop(world.judge.line(&line));
            assert!(begun.elapsed() < HANGS, "{open:?} {times} times took {:?}", begun.elapsed());
        }
    }
}
