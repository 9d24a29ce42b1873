//! The first process between the supervisor and the agent: it carries their frames, whole ones alone, and takes those of
//! [`ORDERS`] for itself.
//!
//! # Promises
//! Between an [`Order::Stop`] and what lets the agent go on nothing of the agent's is carried, so that a copy of the machine that
//! was made meanwhile begins between two frames. In a copy nobody runs before it has random bytes of its own, and what its agent
//! says to whoever asked in the first machine is dropped until the agent knows that those are gone.
//! # Must not
//! Believe the agent: what it may not say ends the machine.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::begin::{self, renewed};
use super::groups::Groups;
use super::init::{Fault, a_while, at};
use super::{ORDERS, Order, SeedReply};
use crate::files::failure::failure;
use crate::frame::{self, Frame, Kind};
use crate::words::{Code, Ended};

/// Read at once.
const CHUNK: usize = 64 * 1024;
/// Nothing more is read for a side while so much waits for it.
const FULL: usize = 256 * 1024;
/// How long the supervisor may take for the agent's last words.
const REST: Duration = Duration::from_secs(5);

/// What goes on inside.
enum Doing {
    /// All of it goes on.
    Runs,
    /// All of it stands still.
    Still,
    /// The agent alone goes on, and still answers whoever asked in another machine; what is to be said when it does not.
    Forgets(SeedReply),
    /// The agent alone goes on.
    Alone,
}

/// One of the two.
struct Side {
    socket: OwnedFd,
    /// What it said, as far as it is no whole frame.
    said: Vec<u8>,
    /// What it is to be told.
    waiting: Vec<u8>,
    /// It says and takes nothing more.
    gone: bool,
}

/// The first process' part of the line.
pub(super) struct Relay {
    supervisor: Side,
    agent: Side,
    groups: Groups,
    /// The agent's process.
    pid: i32,
    doing: Doing,
}

impl Side {
    fn new(socket: OwnedFd) -> Result<Self, Errno> {
        let flags = rustix::fs::fcntl_getfl(&socket)?;
        rustix::fs::fcntl_setfl(&socket, flags | OFlags::NONBLOCK)?;
        Ok(Self { socket, said: Vec::new(), waiting: Vec::new(), gone: false })
    }

    fn interest(&self, reads: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, reads && !self.gone);
        flags.set(PollFlags::OUT, !self.waiting.is_empty() && !self.gone);
        flags
    }

    fn fill(&mut self) {
        let mut part = vec![0; CHUNK];
        match rustix::io::read(&self.socket, &mut part) {
            Ok(0) => self.gone = true,
            Ok(count) => self.said.extend_from_slice(part.get(..count).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.gone = true,
        }
    }

    fn flush(&mut self) {
        while !self.waiting.is_empty() && !self.gone {
            match rustix::io::write(&self.socket, &self.waiting) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.gone = true,
            }
        }
    }

    /// The next whole frame that it said.
    fn next(&mut self) -> Result<Option<(Kind, u32, Vec<u8>)>, Fault> {
        let whole = frame::first(&self.said).map_err(|_odd| at("the line through the first process")(Errno::PROTO))?;
        let Some((frame, length)) = whole else { return Ok(None) };
        let found = (frame.kind, frame.stream, self.said.get(..length).unwrap_or_default().to_vec());
        self.said.drain(..length);
        Ok(Some(found))
    }

    fn tell(&mut self, kind: Kind, payload: &[u8]) {
        let fits = frame::put(&mut self.waiting, Frame { kind, stream: ORDERS, payload });
        debug_assert!(fits, "texts of ours");
    }
}

impl Relay {
    /// Between the supervisor's port and the agent of this process.
    pub(super) fn new(port: OwnedFd, agent: OwnedFd, groups: Groups, pid: i32) -> Result<Self, Fault> {
        let side = |socket| Side::new(socket).map_err(at("the line through the first process"));
        Ok(Self { supervisor: side(port)?, agent: side(agent)?, groups, pid, doing: Doing::Runs })
    }

    /// Until the agent is gone, of which `ends` tells; the port again.
    pub(super) fn run(mut self, ends: &OwnedFd) -> (OwnedFd, Result<(), Fault>) {
        let done = self.carry(ends);
        (self.supervisor.socket, done)
    }

    fn carry(&mut self, ends: &OwnedFd) -> Result<(), Fault> {
        loop {
            let [supervisor, agent, ended] = self.wait(ends)?;
            if supervisor.contains(PollFlags::OUT) {
                self.supervisor.flush();
            }
            if agent.contains(PollFlags::OUT) {
                self.agent.flush();
            }
            if !supervisor.difference(PollFlags::OUT).is_empty() {
                self.hear_the_supervisor()?;
            }
            if !agent.difference(PollFlags::OUT).is_empty() {
                self.agent.fill();
            }
            self.hear_the_agent()?;
            if !ended.is_empty() {
                return self.carry_the_rest();
            }
            if self.agent.gone && self.supervisor.waiting.is_empty() {
                return Ok(());
            }
        }
    }

    /// What the agent said before it ended.
    fn carry_the_rest(&mut self) -> Result<(), Fault> {
        let mut there = true;
        while there && !self.agent.gone {
            let before = self.agent.said.len();
            self.agent.fill();
            there = self.agent.said.len() > before;
            self.hear_the_agent()?;
        }
        let began = Instant::now();
        while !self.supervisor.waiting.is_empty() && !self.supervisor.gone && began.elapsed() < REST {
            a_while();
            self.supervisor.flush();
        }
        Ok(())
    }

    /// What each of the three is ready for.
    fn wait(&self, ends: &OwnedFd) -> Result<[PollFlags; 3], Fault> {
        let reads_agent = !matches!(self.doing, Doing::Still) && self.supervisor.waiting.len() < FULL;
        let wanted = [
            (&self.supervisor.socket, self.supervisor.interest(self.agent.waiting.len() < FULL)),
            (&self.agent.socket, self.agent.interest(reads_agent)),
            (ends, PollFlags::IN),
        ];
        // A side of which nothing is wanted would only say again and again that it is gone.
        let mut list: Vec<PollFd<'_>> = wanted
            .iter()
            .filter(|(_, flags)| !flags.is_empty())
            .map(|(fd, flags)| PollFd::from_borrowed_fd(fd.as_fd(), *flags))
            .collect();
        match rustix::event::poll(&mut list, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok([PollFlags::empty(); 3]),
            Err(errno) => return Err(at("waiting on the line")(errno)),
        }
        let mut found = list.iter().map(PollFd::revents);
        Ok(wanted.map(|(_, flags)| if flags.is_empty() { flags } else { found.next().unwrap_or(PollFlags::empty()) }))
    }

    fn hear_the_supervisor(&mut self) -> Result<(), Fault> {
        self.supervisor.fill();
        if self.supervisor.gone {
            if matches!(self.doing, Doing::Still) {
                // Between two machines: its end of the port is not open yet.
                self.supervisor.gone = false;
                a_while();
                return Ok(());
            }
            return Err(Fault::of("the supervisor is gone"));
        }
        while let Some((kind, stream, whole)) = self.supervisor.next()? {
            if stream != ORDERS {
                self.agent.waiting.extend_from_slice(&whole);
                continue;
            }
            let order = whole.get(frame::HEADER..).map(serde_json::from_slice::<Order>);
            let Some(Ok(order)) = order.filter(|_| kind == Kind::Open) else {
                return Err(Fault::of("an order that there is not"));
            };
            self.obey(order);
        }
        self.agent.flush();
        Ok(())
    }

    /// Does what it is told, and says so.
    fn obey(&mut self, order: Order) {
        let done = match (order, &self.doing) {
            (Order::Stop {}, Doing::Runs) => self.groups.stop().map(|()| Doing::Still),
            (Order::GoOn { clock }, Doing::Still | Doing::Alone) => {
                begin::set(clock).and_then(|()| self.groups.go_on()).map(|()| Doing::Runs)
            }
            (Order::Renew { seed, clock }, Doing::Still) => renewed(seed, clock).and_then(|begun| {
                // First of what the agent reads, behind what it was told before.
                self.agent.tell(Kind::Open, b"{}");
                self.agent.flush();
                self.groups.agent_alone(self.pid).map(|()| Doing::Forgets(begun))
            }),
            (Order::Stop {} | Order::GoOn { .. } | Order::Renew { .. }, _) => Err(Fault::of("not now")),
        };
        match done {
            // Answered by the agent.
            Ok(forgets @ Doing::Forgets(_)) => self.doing = forgets,
            Ok(doing) => {
                self.doing = doing;
                self.answer(&Ended::Ok(()));
            }
            Err(Fault(why)) => self.answer(&Ended::<()>::Error(failure(Code::Failed, why))),
        }
    }

    fn answer(&mut self, ended: &impl serde::Serialize) {
        let words = serde_json::to_vec(ended).unwrap_or_default();
        self.supervisor.tell(Kind::End, &words);
        self.supervisor.flush();
    }

    fn hear_the_agent(&mut self) -> Result<(), Fault> {
        while !matches!(self.doing, Doing::Still) {
            let Some((kind, stream, whole)) = self.agent.next()? else { break };
            match &self.doing {
                Doing::Forgets(begun) if stream == ORDERS && kind == Kind::End => {
                    let begun = *begun;
                    self.doing = Doing::Alone;
                    self.answer(&Ended::Ok(begun));
                }
                // An answer to whoever asked in the other machine.
                Doing::Forgets(_) if stream != ORDERS => {}
                Doing::Runs | Doing::Alone if stream != ORDERS => {
                    self.supervisor.waiting.extend_from_slice(&whole);
                }
                Doing::Runs | Doing::Still | Doing::Forgets(_) | Doing::Alone => {
                    return Err(Fault::of("the agent answers what nobody asked"));
                }
            }
        }
        self.supervisor.flush();
        Ok(())
    }
}
