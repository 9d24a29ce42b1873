//! Whether the host has room for one more sandbox: asked before it is in trouble, so that those that run stay well.

use axum::http::StatusCode;
use live::room::Room;

use crate::answer::Problem;

/// Memory that stays free, bytes.
const FREE_MEMORY: u64 = 256 << 20;
/// Seconds after which a caller may try again.
const RETRY: u32 = 2;

/// Whether one more may be made.
///
/// # Errors
/// There is no room, and when to try again.
pub(crate) fn admit(room: Room) -> Result<(), Problem> {
    let busy = |clause: &str, what: &str, why: &str| {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "serve/busy", what, why, "try again soon");
        Err(problem.about(clause).again_in(RETRY))
    };
    if room.memory.is_some_and(|free| free < FREE_MEMORY) {
        let why = "with one more, those that run could be ended for want of memory";
        return busy("limits.memory", "the host has too little memory left", why);
    }
    if room.processes.is_some_and(|(there, most)| there > most.saturating_sub(most / 8)) {
        return busy("limits.pids", "the host has too few processes left", "seven eighths of them exist");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_host_is_told_with_when_to_come_again() {
        let good = Room { memory: Some(1 << 30), processes: Some((100, 32768)) };
        assert_eq!(admit(good), Ok(()));
        assert_eq!(admit(Room::default()), Ok(()));
        for (full, clause) in [
            (Room { memory: Some(1 << 20), ..good }, "limits.memory"),
            (Room { processes: Some((30_000, 32768)), ..good }, "limits.pids"),
        ] {
            let problem = admit(full).unwrap_err();
            assert_eq!((problem.status.as_u16(), &*problem.clause, problem.retry), (503, clause, Some(RETRY)));
        }
    }
}
