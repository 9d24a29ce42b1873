//! How a run ended: one word that tells a limit, a signal, the program and ourselves apart, and one sentence.

use policy::control::Interpreter;
use policy::report::Limit;
use policy::{Bytes, Outcome, OutcomeKind};

use super::violations::limit_of;

/// What is known when nothing is left running.
#[derive(Clone, Debug, Default)]
pub(super) struct ExitFacts {
    /// Exit code of the payload, when it exited.
    pub(super) code: Option<i32>,
    /// Signal that ended the payload.
    pub(super) signal: Option<i32>,
    /// The limit for which the supervisor ended the run, and what it measured.
    pub(super) ended_for: Option<(Limit, String)>,
    /// Kernel out-of-memory kills in the tree.
    pub(super) oom_kills: u64,
    /// `limits.memory`.
    pub(super) memory: Option<Bytes>,
    /// Processor time reached its limit.
    pub(super) cpu_reached: bool,
    /// Files have a limit.
    pub(super) file_limited: bool,
    /// The payload is an interpreter of ours, which no program of it can make send a signal.
    pub(super) interpreted: bool,
    /// The caller had everything killed.
    pub(super) killed: bool,
    /// The caller asked us to stop, with this signal.
    pub(super) interrupted: Option<i32>,
}

/// Judges the end of a run. A limit outranks the way in which the payload died of it.
#[must_use]
pub(super) fn judge(facts: &ExitFacts) -> Outcome {
    if let Some((limit, message)) = &facts.ended_for {
        return limited(*limit, message.clone(), facts);
    }
    if facts.oom_kills > 0 {
        let limit = limit_of(facts.memory);
        return limited(Limit::Memory, format!("the kernel ended it: memory of the tree reached {limit}"), facts);
    }
    match (facts.code, facts.signal) {
        // RLIMIT_CPU's own signal (setrlimit(2)); a program that has not used so much sent it itself.
        (_, Some(24)) if facts.cpu_reached => {
            limited(Limit::CpuTime, "processor time of one process reached the limit (SIGXCPU)".to_owned(), facts)
        }
        (_, Some(Interpreter::OUT_OF_MEMORY)) if facts.interpreted => {
            let limit = limit_of(facts.memory);
            limited(Limit::Memory, format!("the interpreter ended it: its values would have passed {limit}"), facts)
        }
        (_, Some(Interpreter::OUT_OF_STEPS)) if facts.interpreted => {
            limited(Limit::Steps, "the interpreter ended it: all of `language.steps` were taken".to_owned(), facts)
        }
        (_, Some(Interpreter::LACKS)) if facts.interpreted => exited(1),
        (_, Some(signal)) => Outcome {
            kind: OutcomeKind::Signalled,
            code: None,
            signal: Some(signal),
            limit: None,
            message: signalled(signal, facts),
        },
        (Some(code), None) => exited(code),
        // The guest died with all others, and said nothing.
        (None, None) if facts.killed => Outcome {
            kind: OutcomeKind::Signalled,
            code: None,
            signal: Some(9),
            limit: None,
            message: signalled(9, facts),
        },
        (None, None) => Outcome {
            kind: OutcomeKind::Failed,
            code: Some(125),
            signal: None,
            limit: None,
            message: "the guest ended without saying how the program did".to_owned(),
        },
    }
}

fn exited(code: i32) -> Outcome {
    let message = format!("the program exited with {code}");
    Outcome { kind: OutcomeKind::Exited, code: Some(code), signal: None, limit: None, message }
}

fn limited(limit: Limit, message: String, facts: &ExitFacts) -> Outcome {
    Outcome { kind: OutcomeKind::Limit, code: facts.code, signal: facts.signal, limit: Some(limit), message }
}

fn signalled(signal: i32, facts: &ExitFacts) -> String {
    let name = signal_name(signal);
    match facts.interrupted {
        Some(by) if by == signal || signal == 9 => {
            format!("ended by {name} after {} was asked for from outside", signal_name(by))
        }
        // RLIMIT_FSIZE's own, or the program's: the kernel does not tell.
        Some(_) | None if signal == 25 && facts.file_limited => {
            format!("{name} ended the program: a file would have passed its limit, or the program sent it itself")
        }
        Some(_) | None => format!("{name} ended the program; no limit of the policy was reached"),
    }
}

/// The kernel's name of a signal (signal(7)).
#[must_use]
pub(super) fn signal_name(signal: i32) -> String {
    const NAMES: [(i32, &str); 18] = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (10, "SIGUSR1"),
        (11, "SIGSEGV"),
        (12, "SIGUSR2"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
        (31, "SIGSYS"),
    ];
    let name = NAMES.iter().find(|(number, _)| *number == signal);
    name.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oom_kill_is_a_memory_limit_and_not_a_sigkill() {
        let facts = ExitFacts { signal: Some(9), oom_kills: 1, memory: Some(Bytes(1 << 20)), ..ExitFacts::default() };
        let outcome = judge(&facts);
        assert_eq!((outcome.kind, outcome.limit, outcome.exit_code()), (OutcomeKind::Limit, Some(Limit::Memory), 124));
    }

    #[test]
    fn a_signal_that_a_program_can_send_itself_is_a_limit_only_where_that_was_reached() {
        let ended = |signal, cpu_reached, file_limited| {
            judge(&ExitFacts { signal: Some(signal), cpu_reached, file_limited, ..ExitFacts::default() })
        };
        assert_eq!((ended(24, true, true).limit, ended(24, true, true).exit_code()), (Some(Limit::CpuTime), 124));
        assert_eq!((ended(24, false, true).limit, ended(24, false, true).exit_code()), (None, 152));
        assert!(ended(24, false, true).message.contains("no limit"));
        assert_eq!((ended(25, false, true).limit, ended(25, false, true).exit_code()), (None, 153));
        assert!(!ended(25, false, true).message.contains("no limit"));
        assert!(ended(25, false, false).message.contains("no limit"));
    }

    #[test]
    fn a_sigkill_without_a_limit_is_a_signal() {
        let outcome = judge(&ExitFacts { signal: Some(9), ..ExitFacts::default() });
        assert_eq!((outcome.kind, outcome.exit_code()), (OutcomeKind::Signalled, 137));
    }

    #[test]
    fn an_oom_kill_of_a_child_ends_the_run_though_the_program_exited_with_zero() {
        let outcome = judge(&ExitFacts { code: Some(0), oom_kills: 1, ..ExitFacts::default() });
        assert_eq!(outcome.exit_code(), 124);
    }

    #[test]
    fn an_interpreter_says_by_its_signal_which_limit_it_was() {
        for (signal, limit) in [(Interpreter::OUT_OF_MEMORY, Limit::Memory), (Interpreter::OUT_OF_STEPS, Limit::Steps)]
        {
            let ended = |interpreted| judge(&ExitFacts { signal: Some(signal), interpreted, ..ExitFacts::default() });
            assert_eq!((ended(true).limit, ended(true).exit_code()), (Some(limit), 124));
            // A native program may send itself what it likes.
            assert_eq!((ended(false).limit, ended(false).exit_code()), (None, 128 + signal));
        }
    }

    #[test]
    fn what_an_interpreter_lacks_ends_as_an_error_of_the_program() {
        let ended =
            |interpreted| judge(&ExitFacts { signal: Some(Interpreter::LACKS), interpreted, ..ExitFacts::default() });
        assert_eq!((ended(true).kind, ended(true).exit_code()), (OutcomeKind::Exited, 1));
        assert_eq!((ended(false).kind, ended(false).exit_code()), (OutcomeKind::Signalled, 144));
    }

    #[test]
    fn the_programs_own_124_is_told_apart_by_its_kind() {
        let outcome = judge(&ExitFacts { code: Some(124), ..ExitFacts::default() });
        assert_eq!((outcome.kind, outcome.exit_code()), (OutcomeKind::Exited, 124));
    }

    #[test]
    fn whoever_is_killed_at_the_callers_word_died_of_a_signal() {
        let outcome = judge(&ExitFacts { killed: true, interrupted: Some(2), ..ExitFacts::default() });
        assert_eq!((outcome.kind, outcome.exit_code()), (OutcomeKind::Signalled, 137));
        assert_eq!(outcome.message, "ended by SIGKILL after SIGINT was asked for from outside");
    }

    #[test]
    fn a_silent_guest_is_our_failure() {
        assert_eq!(judge(&ExitFacts::default()).exit_code(), 125);
    }
}
