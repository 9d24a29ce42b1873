//! The programs that run, each with its channel.

use sys::bare::Errno;

use crate::fault::{Fault, Taken};
use crate::frames::{Address, MAX_PROGRAMS};

/// A program that was started and has not ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// Its channel, and the request that asked for it.
    pub(crate) at: Address,
    /// Its first process.
    pub(crate) pid: i32,
}

/// All that run.
#[derive(Debug)]
pub(crate) struct Programs {
    running: [Option<Program>; MAX_PROGRAMS],
    /// The highest channel that was ever used: none above it is known.
    newest: u16,
}

impl Programs {
    /// The payload alone.
    pub(crate) fn new(payload: Program) -> Self {
        let mut running = [None; MAX_PROGRAMS];
        if let Some(place) = running.first_mut() {
            *place = Some(payload);
        }
        Self { running, newest: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.iter().all(Option::is_none)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.running.iter().all(Option::is_some)
    }

    /// The one of this process.
    pub(crate) fn of_process(&self, pid: i32) -> Option<Program> {
        self.running.iter().flatten().copied().find(|program| program.pid == pid)
    }

    /// The one of this channel; `None` = it has ended.
    ///
    /// # Errors
    /// `ECHRNG`: no program ever had this channel.
    pub(crate) fn of_channel(&self, channel: u16) -> Taken<Option<Program>> {
        if channel > self.newest {
            return Err(Fault { errno: Errno::ECHRNG.number(), detail: u32::from(channel) });
        }
        Ok(self.running.iter().flatten().copied().find(|program| program.at.channel == channel))
    }

    /// Opens a channel for a program that is to be started: the next new one, or one whose program has ended.
    ///
    /// # Errors
    /// `ECHRNG`: it is beyond the next new one. `EBUSY`: its program runs.
    pub(crate) fn open(&mut self, channel: u16) -> Taken {
        if self.newest.checked_add(1) == Some(channel) {
            self.newest = channel;
        }
        match self.of_channel(channel)? {
            Some(_) => Err(Fault { errno: Errno::EBUSY.number(), detail: u32::from(channel) }),
            None => Ok(()),
        }
    }

    /// Takes one more; where none fits any more it is not known afterwards, so [`Programs::is_full`] is asked first.
    pub(crate) fn add(&mut self, program: Program) {
        if let Some(place) = self.running.iter_mut().find(|place| place.is_none()) {
            *place = Some(program);
        }
    }

    /// The program of this process has ended.
    pub(crate) fn end(&mut self, pid: i32) {
        for place in self.running.iter_mut().filter(|place| place.is_some_and(|program| program.pid == pid)) {
            *place = None;
        }
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    fn program(channel: u16) -> Program {
        Program { at: Address { channel, request: 1 }, pid: 100 + i32::from(channel) }
    }

    #[test]
    fn channels_are_opened_in_order_and_again_when_their_program_has_ended() {
        let mut programs = Programs::new(program(0));
        let beyond = Fault { errno: Errno::ECHRNG.number(), detail: 2 };
        let busy = |channel| Fault { errno: Errno::EBUSY.number(), detail: channel };
        assert_eq!(programs.open(2), Err(beyond));
        assert_eq!(programs.open(0), Err(busy(0)));
        assert_eq!(programs.of_channel(1).unwrap_err().detail, 1);
        assert_eq!(programs.open(1), Ok(()));
        programs.add(program(1));
        assert_eq!((programs.open(1), programs.open(2)), (Err(busy(1)), Ok(())));
        assert_eq!(programs.of_channel(1).unwrap().unwrap().pid, 101);
        programs.end(101);
        assert!(programs.of_channel(1).unwrap().is_none() && programs.of_process(101).is_none());
        assert_eq!(programs.open(1), Ok(()));
    }

    #[test]
    fn the_table_is_full_at_its_bound_and_empty_at_the_end() {
        let mut programs = Programs::new(program(0));
        let last = u16::try_from(MAX_PROGRAMS).unwrap() - 1;
        for channel in 1..=last {
            assert!(!programs.is_full());
            programs.open(channel).unwrap();
            programs.add(program(channel));
        }
        assert!(programs.is_full());
        (0..=last).for_each(|channel| programs.end(program(channel).pid));
        assert!(programs.is_empty());
    }

    #[test]
    fn the_last_channel_has_none_behind_it() {
        let mut programs = Programs { running: [None; MAX_PROGRAMS], newest: u16::MAX };
        assert_eq!((programs.open(u16::MAX), programs.open(0)), (Ok(()), Ok(())));
    }
}
