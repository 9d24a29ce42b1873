//! What a supervisor knows and decides. Nothing here waits: each note is dealt with at once, and what is to be said is queued.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent::frame::Kind;
use agent::words::{Code, Ended, Failure, Hello, Request};
use sandbox::audit::Kind as Event;
use serde_json::json;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use super::Setup;
use super::carrier::{Finish, Run};
use super::client::{Client, ClientId, Role, StreamKind, end_frame, failure};
use super::kernel::{Kernels, RequestOrigin};
use super::line::{Agent, Breach, To};
use super::network::RulesQueue;
use super::program::{Program, now_ms};
use super::stopped;
use crate::kernel::KernelReply;
use crate::wire::{Owned, encode};
use crate::words::{EndReason, Info, State};

/// An agent that has not said who it is by then is none.
const HELLO: Duration = Duration::from_secs(10);
/// When the agent is gone, its run says why within this time, or is ended.
const GONE: Duration = Duration::from_secs(3);

/// Something that happened.
#[derive(Debug)]
pub(super) enum Note {
    /// A client said something.
    Asked(ClientId, Owned),
    /// A client is gone.
    Left(ClientId),
    /// The agent said something.
    Agent(Owned),
    /// The agent said what is no frame.
    Broke(String),
    /// The agent is gone.
    Gone,
    /// A context answers.
    Kernel(RequestOrigin, KernelReply),
    /// The freezer has answered.
    Frozen(bool, Result<(), Failure>),
    /// What was stopped is counted, for a program that has ended.
    Counted(u64),
    /// What was asked of the files is done: for whom, and what came of it.
    Files(ClientId, u32, Result<serde_json::Value, Failure>),
    /// What came of rules that a client asked for.
    Rules(ClientId, u32, Result<serde_json::Value, Failure>),
}

/// The supervisor's mind.
pub(super) struct Hub {
    pub(super) setup: Setup,
    pub(super) run: Arc<dyn Run>,
    pub(super) agent: Agent,
    pub(super) clients: BTreeMap<ClientId, Client>,
    pub(super) programs: BTreeMap<u64, Program>,
    pub(super) last_program: u64,
    /// Where code is executed; none before the agent has said who it is.
    pub(super) kernels: Option<Kernels>,
    pub(super) notes: Sender<Note>,
    /// Why it is being ended.
    pub(super) ending: Option<(EndReason, String)>,
    /// When it is over, whatever happens.
    pub(super) ends: Option<Instant>,
    /// When something was asked, or ran, last.
    pub(super) busy: Instant,
    /// The freezer is at work for these: what they asked, and who.
    pub(super) freezing: Option<(bool, Vec<(ClientId, u32)>)>,
    /// So many look at the files, or wait for that.
    pub(super) reading: usize,
    /// Who waits for other rules of the network.
    pub(super) rules: RulesQueue,
    /// The agent is to have said by then who it is.
    hello: Option<Instant>,
    /// The agent is gone, and its run is to have ended by then.
    gone: Option<Instant>,
    /// The end of the run, when nothing of it is left.
    pub(super) over: bool,
    /// What a Python that waits has imported; none = none waits.
    pub(super) imports: Option<Vec<String>>,
    /// The program that waits for code.
    pub(super) waiting: Option<u64>,
    /// It is ready and nobody's yet: nothing of it is written down.
    pub(super) spare: bool,
}

impl Hub {
    pub(super) fn new(setup: Setup, run: Arc<dyn Run>, agent: Agent, notes: Sender<Note>) -> Self {
        let now = Instant::now();
        let ends = setup.life.and_then(|life| now.checked_add(life));
        Self {
            setup,
            run,
            agent,
            clients: BTreeMap::new(),
            programs: BTreeMap::new(),
            last_program: 0,
            kernels: None,
            notes,
            ending: None,
            ends,
            busy: now,
            freezing: None,
            reading: 0,
            rules: RulesQueue::default(),
            hello: None,
            gone: None,
            over: false,
            imports: None,
            waiting: None,
            spare: false,
        }
    }

    /// Asks the agent who it is.
    pub(super) fn greet(&mut self) {
        self.hello = Instant::now().checked_add(HELLO);
        let asked = self.agent.open(&Request::Hello { version: agent::frame::VERSION }, To::Hello);
        if asked.is_none() {
            self.end(EndReason::Failed, "the agent could not be asked who it is".to_owned());
        }
    }

    /// Whether the agent has said who it is.
    pub(super) const fn is_ready(&self) -> bool {
        self.setup.info.agent.is_some()
    }

    /// All about the sandbox, now.
    pub(super) fn info(&self) -> Info {
        let violations = stopped::last(&self.run.violations());
        Info { usage: self.run.usage(), violations, ..self.setup.info.clone() }
    }

    /// Deals with a note.
    pub(super) fn hear(&mut self, note: Note) {
        match note {
            Note::Asked(client, frame) => self.asked(client, &frame),
            Note::Left(client) => self.left(client),
            Note::Agent(frame) => {
                if let Err(Breach(what)) = self.told(&frame) {
                    self.end(EndReason::Agent, format!("the agent broke the protocol: {what}"));
                }
            }
            Note::Broke(what) => self.end(EndReason::Agent, format!("the agent broke the protocol: {what}")),
            Note::Gone => self.gone = self.gone.or_else(|| Instant::now().checked_add(GONE)),
            Note::Kernel(asker, said) => self.kernel_said(asker, said),
            Note::Counted(number) => self.counted(number),
            Note::Frozen(frozen, done) => self.frozen(frozen, &done),
            Note::Files(client, stream, done) => self.read_files(client, stream, done),
            Note::Rules(client, stream, done) => self.set_rules(client, stream, done),
        }
        self.cut_the_stuck();
    }

    /// Clients that take nothing for too long.
    fn cut_the_stuck(&mut self) {
        let stuck: Vec<_> = self.clients.iter().filter(|(_, client)| client.stuck).map(|(id, _)| *id).collect();
        for id in stuck {
            self.left(id);
        }
    }

    /// A frame of the agent.
    fn told(&mut self, frame: &Owned) -> Result<(), Breach> {
        if self.ending.is_some() {
            return Ok(());
        }
        match self.agent.judge(frame)? {
            To::Hello => self.greeted(frame),
            To::Client(client, stream) => {
                self.relayed(client, stream, frame);
                Ok(())
            }
            To::Program(number) => {
                self.of_program(number, frame);
                Ok(())
            }
            To::Nobody => Ok(()),
        }
    }

    fn greeted(&mut self, frame: &Owned) -> Result<(), Breach> {
        let said = match serde_json::from_slice::<Ended<Hello>>(&frame.payload) {
            Ok(Ended::Ok(hello)) if hello.version == agent::frame::VERSION => hello,
            Ok(Ended::Ok(hello)) => return Err(Breach(format!("it speaks version {} of the protocol", hello.version))),
            Ok(Ended::Error(failure)) => return Err(Breach(format!("it does not say who it is: {failure}"))),
            Err(error) => return Err(Breach(error.to_string())),
        };
        self.hello = None;
        self.setup.info.agent = Some(said);
        Ok(())
    }

    /// Ends the sandbox, for the first reason that is given.
    pub(super) fn end(&mut self, reason: EndReason, message: String) {
        if self.ending.is_none() {
            self.ending = Some((reason, message));
            self.run.kill();
        }
    }

    /// Writes down how it is. A record that cannot be written is as it was; what it says of the end is lost then.
    pub(super) fn write_down(&mut self) {
        if self.spare {
            return;
        }
        let info = self.info();
        if self.setup.claim.write(&info).is_err() {}
    }

    /// When something is due.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.ending.is_some() {
            return None;
        }
        let programs = self.programs.values().filter_map(|program| self.due(program));
        [self.ends, self.hello, self.gone, self.idle()].into_iter().flatten().chain(programs).min()
    }

    /// When it has been idle for too long.
    fn idle(&self) -> Option<Instant> {
        let works = self.programs.values().any(|program| !program.is_over() && !program.system);
        if works
            || self.kernels_work()
            || self.agent.is_used()
            || self.freezing.is_some()
            || self.reading > 0
            || self.rules.is_busy()
            || self.setup.info.state != State::Running
        {
            return None;
        }
        self.busy.checked_add(self.setup.idle?)
    }

    /// Does what is due.
    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.ending.is_some() {
            return;
        }
        if due(self.ends) {
            return self.end(EndReason::Timeout, "its life was over (`--timeout`)".to_owned());
        }
        if due(self.hello) {
            return self.end(EndReason::Agent, "the agent did not say who it is within 10 s".to_owned());
        }
        if due(self.gone) {
            return self.end(EndReason::Agent, "the agent is gone".to_owned());
        }
        if due(self.idle()) {
            let idle = self.setup.idle.unwrap_or_default().as_secs_f64();
            return self.end(EndReason::Idle, format!("nothing was asked of it and nothing ran for {idle} s"));
        }
        let programs: Vec<_> =
            self.programs.iter().filter(|(_, program)| due(self.due(program))).map(|(id, _)| *id).collect();
        for number in programs {
            self.program_due(number, now);
        }
    }

    /// The freezer has answered.
    fn frozen(&mut self, frozen: bool, done: &Result<(), Failure>) {
        let Some((_, waiting)) = self.freezing.take() else { return };
        if done.is_ok() {
            self.setup.info.state = if frozen { State::Paused } else { State::Running };
            self.busy = Instant::now();
            self.forgive();
            self.write_down();
        }
        let info = self.info();
        for (client, stream) in waiting {
            if let Some(client) = self.clients.get_mut(&client) {
                client.end(stream, done.clone().map(|()| &info));
            }
        }
    }

    /// A client is gone: what he asked for is given up, but what he let go.
    pub(super) fn left(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(&id) else { return };
        client.cut();
        for (stream, what) in client.streams {
            match what {
                StreamKind::Relay { line, .. } => self.agent.cancel(line, true),
                StreamKind::Reader { program, role, .. } => self.reader_left(program, (id, stream), role),
                // A request to a context ends with it.
                StreamKind::End
                | StreamKind::Freezer
                | StreamKind::Files
                | StreamKind::Input
                | StreamKind::Kernel(_) => {}
            }
        }
    }

    /// Nothing of the run is left: the last words to everybody.
    pub(super) fn finish(&mut self, finish: Finish) {
        let (reason, message) = self.why(&finish);
        let limit = match reason {
            EndReason::Timeout => Some("wall".to_owned()),
            EndReason::Memory => Some("memory".to_owned()),
            EndReason::Limit => {
                finish.report.as_ref().and_then(|report| report.pointer("/outcome/limit")?.as_str().map(str::to_owned))
            }
            EndReason::Killed
            | EndReason::Idle
            | EndReason::Agent
            | EndReason::Signal
            | EndReason::Lost
            | EndReason::Failed => None,
        };
        self.ending.get_or_insert((reason, message.clone()));
        let running: Vec<u64> = self.programs.values().filter(|one| !one.is_over()).map(|one| one.number).collect();
        for number in running {
            self.sweep_along(number, limit.as_deref(), &message);
        }
        let info = &mut self.setup.info;
        info.state = State::Ended;
        info.reason = Some(reason);
        info.message = Some(message.clone());
        info.ended_ms = Some(now_ms());
        info.report = finish.report;
        let body = json!({ "sandbox": info.id, "reason": reason, "message": message });
        // It has ended all the same; its record says how.
        drop(self.record(&Event::live_ended(), &body));
        // One that never began leaves nothing.
        if self.setup.info.agent.is_some() {
            self.write_down();
        }
        self.setup.claim.close_socket();
        self.last_words(&message);
        self.over = true;
    }

    fn why(&self, finish: &Finish) -> (EndReason, String) {
        let known = match finish.reason {
            EndReason::Limit | EndReason::Memory | EndReason::Timeout | EndReason::Failed => true,
            EndReason::Killed | EndReason::Idle | EndReason::Agent | EndReason::Signal | EndReason::Lost => false,
        };
        match &self.ending {
            // What the run itself saw happened before we did anything about it.
            Some((EndReason::Agent, _)) if known => (finish.reason, finish.message.clone()),
            Some((reason, message)) => (*reason, message.clone()),
            None if self.gone.is_some() && !known => (EndReason::Agent, "the agent is gone".to_owned()),
            None => (finish.reason, finish.message.clone()),
        }
    }

    /// Everybody who still waits for something is told.
    fn last_words(&mut self, message: &str) {
        let info = self.info();
        for client in self.clients.values_mut() {
            for (stream, what) in std::mem::take(&mut client.streams) {
                let ended = || failure(Code::Ended, format!("the sandbox has ended: {message}"));
                match what {
                    StreamKind::End => client.send(end_frame(stream, Ok(&info))),
                    StreamKind::Relay { .. }
                    | StreamKind::Freezer
                    | StreamKind::Files
                    | StreamKind::Input
                    | StreamKind::Kernel(_) => {
                        client.send(end_frame(stream, Err::<(), _>(ended())));
                    }
                    StreamKind::Reader { mut pump, .. } => {
                        pump.flush();
                        pump.close(end_frame(stream, Err::<(), _>(ended())).unwrap_or_default());
                        pump.flow().0.into_iter().for_each(|frame| client.send(Some(frame)));
                    }
                }
            }
        }
    }

    /// Writes an event down. A log that fails while a sandbox lives ends it.
    ///
    /// # Errors
    /// It cannot be recorded: what was asked for is not done, or not answered as done.
    pub(super) fn record(&mut self, kind: &Event, body: &serde_json::Value) -> Result<(), Failure> {
        let Some(log) = &self.setup.log else { return Ok(()) };
        let Err(error) = log.append(&self.setup.info.run, kind, body) else { return Ok(()) };
        let why = error.fault().why;
        let message = format!("the audit log cannot be written: {why}");
        self.end(EndReason::Failed, message.clone());
        Err(failure(Code::Failed, message))
    }

    /// Forwards what the agent says to who asked for it.
    fn relayed(&mut self, id: ClientId, stream: u32, frame: &Owned) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let line = frame.stream;
        match frame.kind {
            Kind::End => {
                client.streams.remove(&stream);
                client.send(encode(Kind::End, stream, &frame.payload));
                self.busy = Instant::now();
            }
            Kind::Credit => {
                let more = crate::wire::credit_of(&frame.payload);
                if let Some(StreamKind::Relay { in_left, .. }) = client.streams.get_mut(&stream) {
                    *in_left = in_left.saturating_add(more);
                }
                client.send(encode(Kind::Credit, stream, &frame.payload));
            }
            Kind::Event if client.is_behind() => {
                // Events are not counted by windows: who does not read them loses the request, and nobody waits.
                let behind = failure(Code::TooMany, "more happened than was read: ask again");
                client.end(stream, Err::<(), _>(behind));
                self.agent.cancel(line, true);
            }
            Kind::Reply | Kind::Event | Kind::Data | Kind::Eof => {
                client.send(encode(frame.kind, stream, &frame.payload));
            }
            // The agent may not say these, which was judged.
            Kind::Open | Kind::Control | Kind::Cancel => {}
        }
    }

    /// A client's frame for a request that is relayed.
    pub(super) fn pass_on(&mut self, id: ClientId, line: u32, frame: &Owned) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(StreamKind::Relay { in_left, .. }) = client.streams.get_mut(&frame.stream) else { return };
        match frame.kind {
            Kind::Data => {
                let bytes = frame.payload.get(1..).unwrap_or_default();
                let left = u32::try_from(bytes.len()).ok().and_then(|length| in_left.checked_sub(length));
                let fits = frame.payload.first() == Some(&0) && left.is_some();
                *in_left = left.unwrap_or_default();
                if !fits || !self.agent.data(line, bytes) {
                    self.left(id);
                }
            }
            Kind::Credit => self.agent.credit(line, crate::wire::credit_of(&frame.payload)),
            Kind::Eof => self.agent.send_frame(Kind::Eof, line, b""),
            Kind::Cancel => self.agent.cancel(line, false),
            Kind::Control => self.agent.send_frame(Kind::Control, line, &frame.payload),
            Kind::Open | Kind::Reply | Kind::Event | Kind::End => self.left(id),
        }
    }

    /// Somebody does not listen to a program any more.
    pub(super) fn reader_left(&mut self, number: u64, who: (ClientId, u32), role: Role) {
        let Some(program) = self.programs.get_mut(&number) else { return };
        program.readers.remove(&who);
        if role == Role::Owner {
            program.owner = None;
            if !program.asked.detach {
                self.kill_tree(number);
            }
        }
        self.refill(number);
    }
}
