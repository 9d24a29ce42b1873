//! Whether the host has room for one more sandbox: asked before it is in trouble, so that those that run stay well.

use axum::http::StatusCode;
use live::headroom::Headroom;

use crate::answer::Problem;

/// Memory that stays free, bytes.
const FREE_MEMORY: u64 = 256 << 20;
/// Memory, bytes, and processes that one which is on its way will have taken when it is there: supervisor, guest and agent. What the
/// host tells of its room has nothing of them yet.
const COMING_MEMORY: u64 = 16 << 20;
const COMING_PROCESSES: u64 = 8;
/// Seconds after which a caller may try again.
const RETRY: u32 = 2;

/// Whether so many may be made that are on their way, the one that asks included.
///
/// # Errors
/// There is no room, and when to try again.
pub(crate) fn admit(room: Headroom, coming: usize) -> Result<(), Problem> {
    let coming = u64::try_from(coming).unwrap_or(u64::MAX);
    let (memory, processes) = (coming.saturating_mul(COMING_MEMORY), coming.saturating_mul(COMING_PROCESSES));
    let busy = |clause: &str, what: &str, why: &str| {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "serve/busy", what, why, "try again soon");
        Err(problem.about(clause).again_in(RETRY))
    };
    if room.memory.is_some_and(|free| free.saturating_sub(memory) < FREE_MEMORY) {
        let why = "with one more, those that run could be ended for want of memory";
        return busy("limits.memory", "the host has too little memory left", why);
    }
    let is_full = |(there, most): (u64, u64)| there.saturating_add(processes) > most.saturating_sub(most / 8);
    if room.processes.is_some_and(is_full) {
        let why = "with one more, more than seven eighths of them exist";
        return busy("limits.pids", "the host has too few processes left", why);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_host_is_told_with_when_to_come_again() {
        let good = Headroom { memory: Some(1 << 30), processes: Some((100, 32768)) };
        assert_eq!(admit(good, 1), Ok(()));
        assert_eq!(admit(Headroom::default(), 1), Ok(()));
        for (full, clause) in [
            (Headroom { memory: Some(1 << 20), ..good }, "limits.memory"),
            (Headroom { processes: Some((30_000, 32768)), ..good }, "limits.pids"),
        ] {
            let problem = admit(full, 1).unwrap_err();
            assert_eq!((problem.status.as_u16(), &*problem.clause, problem.retry), (503, clause, Some(RETRY)));
            for answer in [problem.e2b(), problem.problem(std::slice::from_ref(&problem))] {
                let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
                assert_eq!(answer.status().as_u16(), 503);
                assert_eq!((header("should-retry"), header("retry-after")), (Some("true"), Some("2")), "{clause}");
            }
        }
    }

    #[test]
    fn what_is_on_its_way_has_taken_its_room_before_the_host_tells_of_it() {
        // Room for two, and for no third, by memory and by processes.
        let memory = Headroom { memory: Some(FREE_MEMORY + 2 * COMING_MEMORY), processes: None };
        let processes = Headroom { memory: None, processes: Some((28_672 - 2 * COMING_PROCESSES, 32_768)) };
        for (room, clause) in [(memory, "limits.memory"), (processes, "limits.pids")] {
            assert_eq!(admit(room, 2), Ok(()), "{clause}");
            assert_eq!(&*admit(room, 3).unwrap_err().clause, clause);
        }
    }
}
