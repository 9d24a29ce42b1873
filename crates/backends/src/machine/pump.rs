//! Between the supervisor of a live sandbox and the agent in its machine, who speak the same protocol: whole frames both ways, into
//! which nothing is read. The supervisor judges what comes out, as on every tier.
//!
//! Orders to the machine's first process go over the same line, on a stream of their own. While what is inside is to stand still,
//! nothing else is sent there: a copy of the machine that is made meanwhile holds no half of a request.
//!
//! Bounded: nothing more is read of a side before all that it said has been carried on, but a part of one frame.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use agent::frame::{self, HEADER};
use agent::machine::{ORDERS, Order};
use sys::channel::Interest;

use super::link::Link;

/// Read at once.
const CHUNK: usize = 64 * 1024;

/// One of the three.
#[derive(Debug)]
struct Side {
    from: File,
    to: File,
    /// What it said, as far as it is no whole frame.
    said: Vec<u8>,
    /// What it is to be told.
    waiting: Vec<u8>,
}

/// The thread's own.
#[derive(Debug)]
pub(super) struct Pump {
    machine: Side,
    supervisor: Side,
    orders: Side,
    control: OwnedFd,
    /// What is inside stands still, or is just about to.
    still: bool,
}

/// Whether a side goes on.
type Goes = Result<(), std::io::Error>;

/// Who a descriptor is waited for.
#[derive(Clone, Copy)]
enum Source {
    Control,
    FromMachine,
    FromSupervisor,
    FromOrders,
    ToMachine,
    ToSupervisor,
    ToOrders,
}

impl Side {
    fn new(socket: File) -> Result<Self, std::io::Error> {
        Ok(Self { from: socket.try_clone()?, to: socket, said: Vec::new(), waiting: Vec::new() })
    }

    fn fill(&mut self) -> Goes {
        let before = self.said.len();
        self.said.resize(before.saturating_add(CHUNK), 0);
        let read = self.from.read(self.said.get_mut(before..).unwrap_or_default());
        self.said.truncate(before.saturating_add(*read.as_ref().unwrap_or(&0)));
        match passing(read)? {
            Some(0) => Err(ErrorKind::UnexpectedEof.into()),
            Some(_) | None => Ok(()),
        }
    }

    fn flush(&mut self) -> Goes {
        if !self.waiting.is_empty()
            && let Some(count) = passing(self.to.write(&self.waiting))?
        {
            self.waiting.drain(..count);
        }
        Ok(())
    }

    /// The whole frames that it said: each stream, and its bytes.
    fn whole(&mut self) -> Result<Vec<(u32, Vec<u8>)>, std::io::Error> {
        let mut frames = Vec::new();
        let mut taken = 0;
        while let Some(rest) = self.said.get(taken..) {
            let odd = |error: frame::FrameError| std::io::Error::new(ErrorKind::InvalidData, error.to_string());
            let Some((frame, length)) = frame::first(rest).map_err(odd)? else { break };
            frames.push((frame.stream, rest.get(..length).unwrap_or_default().to_vec()));
            taken = taken.saturating_add(length);
        }
        self.said.drain(..taken);
        Ok(frames)
    }
}

/// What was done now; `None` where it is to be tried again.
fn passing(done: std::io::Result<usize>) -> Result<Option<usize>, std::io::Error> {
    match done {
        Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(None),
        other => other.map(Some),
    }
}

impl Pump {
    /// Between the agent, a supervisor's socket and another one for orders, none of which blocks.
    pub(super) fn new(
        link: Link,
        (supervisor, orders): (OwnedFd, OwnedFd),
        control: OwnedFd,
    ) -> Result<Self, std::io::Error> {
        let (to, from, said) = link.into_parts();
        let machine = Side { from, to, said, waiting: Vec::new() };
        let (supervisor, orders) = (Side::new(File::from(supervisor))?, Side::new(File::from(orders))?);
        Ok(Self { machine, supervisor, orders, control, still: false })
    }

    /// Until one side is gone. Then the others hear it, and the engine that there is nothing left to hear.
    pub(super) fn run(mut self) {
        // What came with the answers to other questions.
        let mut goes = self.sort();
        while goes.is_ok() {
            let ready: Vec<Source> = {
                let (interests, sources) = self.interests();
                let Ok(ready) = sys::channel::wait(&interests, None) else { return };
                sources.into_iter().zip(ready).filter(|(_, is)| *is).map(|(source, _)| source).collect()
            };
            goes = ready.into_iter().try_for_each(|source| self.step(source));
        }
    }

    fn interests(&self) -> (Vec<Interest<'_>>, Vec<Source>) {
        let (machine, supervisor, orders) = (&self.machine, &self.supervisor, &self.orders);
        let said_all = supervisor.waiting.is_empty() && orders.waiting.is_empty();
        let told_all = machine.waiting.is_empty();
        let wanted = [
            (true, self.control.as_fd(), false, Source::Control),
            (said_all, machine.from.as_fd(), false, Source::FromMachine),
            (told_all && !self.still, supervisor.from.as_fd(), false, Source::FromSupervisor),
            (told_all, orders.from.as_fd(), false, Source::FromOrders),
            (!told_all, machine.to.as_fd(), true, Source::ToMachine),
            (!supervisor.waiting.is_empty(), supervisor.to.as_fd(), true, Source::ToSupervisor),
            (!orders.waiting.is_empty(), orders.to.as_fd(), true, Source::ToOrders),
        ];
        let wanted = wanted.into_iter().filter(|(wanted, ..)| *wanted);
        wanted.map(|(_, fd, write, source)| (Interest { fd, write }, source)).unzip()
    }

    fn step(&mut self, source: Source) -> Goes {
        match source {
            Source::Control => return self.obeyed(),
            Source::FromMachine => self.machine.fill()?,
            Source::FromSupervisor => self.supervisor.fill()?,
            Source::FromOrders => self.orders.fill()?,
            Source::ToMachine => return self.machine.flush(),
            Source::ToSupervisor => return self.supervisor.flush(),
            Source::ToOrders => return self.orders.flush(),
        }
        self.sort()
    }

    /// Carries what was said to whom it is for.
    fn sort(&mut self) -> Goes {
        for (stream, bytes) in self.machine.whole()? {
            let to = if stream == ORDERS { &mut self.orders } else { &mut self.supervisor };
            to.waiting.extend_from_slice(&bytes);
        }
        for (_, bytes) in self.orders.whole()? {
            let order = bytes.get(HEADER..).and_then(|words| serde_json::from_slice::<Order>(words).ok());
            self.still = matches!(order, Some(Order::Stop {}));
            self.machine.waiting.extend_from_slice(&bytes);
        }
        // What it has said already waits with it for the next order.
        if !self.still {
            for (stream, bytes) in self.supervisor.whole()? {
                if stream == ORDERS {
                    return Err(ErrorKind::InvalidInput.into());
                }
                self.machine.waiting.extend_from_slice(&bytes);
            }
        }
        self.machine.flush()?;
        self.supervisor.flush()?;
        self.orders.flush()
    }

    /// The engine ends a machine from outside, and its signals are for single programs: nothing that it says is for the agent.
    fn obeyed(&self) -> Goes {
        let mut part = [0; 4096];
        match sys::channel::receive(&self.control, &mut part, true) {
            Ok(received) if received.count > 0 => Ok(()),
            Err(error) if error.is_again() => Ok(()),
            Ok(_) | Err(_) => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agent::frame::{Frame, Kind};

    use super::*;

    struct Line {
        machine: OwnedFd,
        supervisor: OwnedFd,
        orders: OwnedFd,
        _control: OwnedFd,
    }

    fn line() -> Line {
        let pair = || {
            let (ours, theirs) = sys::channel::pair().unwrap();
            sys::channel::set_nonblocking(&theirs).unwrap();
            (ours, theirs)
        };
        let ((machine, inner), (supervisor, second), (orders, third), (control, last)) =
            (pair(), pair(), pair(), pair());
        let pump = Pump::new(Link::new(inner).unwrap(), (second, third), last).unwrap();
        std::thread::spawn(move || pump.run());
        Line { machine, supervisor, orders, _control: control }
    }

    fn frame(kind: Kind, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert!(frame::put(&mut bytes, Frame { kind, stream, payload }));
        bytes
    }

    fn order(order: &Order) -> Vec<u8> {
        frame(Kind::Open, ORDERS, &serde_json::to_vec(order).unwrap())
    }

    /// All that comes within a moment.
    fn heard(from: &OwnedFd) -> Vec<u8> {
        let mut all = Vec::new();
        let interest = || sys::channel::Interest { fd: from.as_fd(), write: false };
        while sys::channel::wait(&[interest()], Some(Duration::from_millis(200))).unwrap() == [true] {
            let mut part = [0; 4096];
            let count = sys::channel::receive(from, &mut part, true).unwrap().count;
            if count == 0 {
                break;
            }
            all.extend_from_slice(&part[..count]);
        }
        all
    }

    #[test]
    fn while_all_stands_still_only_orders_go_in_and_no_half_of_a_frame_does() {
        let line = line();
        let request = frame(Kind::Open, 1, b"{\"op\":\"hello\"}");
        sys::channel::send(&line.supervisor, &request).unwrap();
        assert_eq!(heard(&line.machine), request);
        let (half, rest) = request.split_at(12);
        sys::channel::send(&line.supervisor, half).unwrap();
        assert_eq!(heard(&line.machine), b"", "a half is kept");
        let stop = order(&Order::Stop {});
        sys::channel::send(&line.orders, &stop).unwrap();
        assert_eq!(heard(&line.machine), stop);
        sys::channel::send(&line.supervisor, rest).unwrap();
        assert_eq!(heard(&line.machine), b"", "it waits");
        let (end, other) = (frame(Kind::End, ORDERS, b"{\"ok\":null}"), frame(Kind::End, 1, b"{}"));
        sys::channel::send(&line.machine, &[other.clone(), end.clone()].concat()).unwrap();
        assert_eq!((heard(&line.orders), heard(&line.supervisor)), (end, other));
        let on = order(&Order::GoOn { clock: (1, 2) });
        sys::channel::send(&line.orders, &on).unwrap();
        assert_eq!(heard(&line.machine), [on, request].concat());
    }

    #[test]
    fn nobody_but_who_may_gives_orders_and_what_is_no_frame_ends_it() {
        for (from_machine, bytes) in [(false, order(&Order::Stop {})), (true, vec![0xff; 64]), (false, vec![0xff; 64])]
        {
            let line = line();
            let to = if from_machine { &line.machine } else { &line.supervisor };
            sys::channel::send(to, &bytes).unwrap();
            let mut part = [0; 16];
            // Its end is heard on every side.
            assert_eq!(sys::channel::receive(&line.orders, &mut part, false).unwrap().count, 0);
        }
    }
}
