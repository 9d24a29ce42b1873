//! A caller with a real-time scheduling policy (sched(7)).

use crate::Fixture;

/// 0 is the ordinary one.
const OWN_POLICY: &str = "import os; print(os.sched_getscheduler(0))";

const CALLERS: [(&str, &str); 4] = [
    ("first in, first out", "chrt -f 5"),
    ("round robin", "chrt -r 5"),
    ("deadline", "chrt -d -T 20000000 -D 100000000 -P 100000000 0"),
    ("first in, first out, reset by the caller", "chrt -R -f 5"),
];

/// What `run` says when it is started by `caller`; `None` where this host allows no such caller.
#[expect(clippy::print_stdout, reason = "what was skipped is part of the report of the test")]
fn started_by(caller: &str, flags: &str) -> Option<crate::CommandOutput> {
    let fixture = Fixture::new();
    let may = crate::script(&format!("{caller} true"), &fixture).output().unwrap();
    if !may.status.success() {
        println!("skip: this host does not let the test do `{caller}`");
        return None;
    }
    let text = format!("exec {caller} \"$1\" run -q {flags} -- python3 -c '{OWN_POLICY}'");
    Some(fixture.said(&crate::script(&text, &fixture).output().unwrap()))
}

/// Else it escapes `limits.cpus`, which holds ordinary programs alone, and keeps the supervisor, which is to end it, from
/// ever running.
#[test]
fn a_program_is_never_a_real_time_one() {
    for (name, caller) in CALLERS {
        for tier in ["container", "process"] {
            let Some(said) = started_by(caller, &format!("--tier {tier}")) else { continue };
            assert_eq!((said.code, said.out.as_str()), (0, "0\n"), "{name} {tier} {said:?}");
        }
    }
}

/// A group of processors with no budget for real-time programs takes none (EINVAL).
#[test]
fn a_share_of_processors_is_held_for_real_time_callers_as_for_others() {
    for (name, caller) in CALLERS {
        for tier in ["container", "process"] {
            let flags = format!("--tier {tier} --cpus 0.5");
            let Some(control) = started_by("chrt -o 0", &flags) else { continue };
            // Where no group can be had it is refused, whoever calls.
            if control.code != 0 {
                println!("skip: no share of the processor can be held on the {tier} tier: {}", control.err.trim());
                continue;
            }
            let Some(said) = started_by(caller, &flags) else { continue };
            assert_eq!(said, control, "{name} {tier}");
        }
    }
}

/// The kernel lets a deadline program without privilege neither fork nor become another.
#[test]
fn a_caller_that_cannot_be_kept_from_the_program_is_refused() {
    let caller = "chrt -d -T 20000000 -D 100000000 -P 100000000 0 setpriv --bounding-set=-sys_nice";
    let Some(said) = started_by(caller, "") else { return };
    assert_eq!((said.code, said.out.as_str()), (126, ""), "{said:?}");
    for part in [
        "real-time scheduling policy",
        "giving up the real-time scheduling policy",
        "fix: start fumehood",
        "`chrt -o 0 fumehood run ...`",
    ] {
        assert!(said.err.contains(part), "{part} in {}", said.err);
    }
}
