//! The programs that `exec` started: they belong to the supervisor, and clients only listen.

use std::time::Duration;

use agent::frame::{Kind, Lane, MAX_DATA, WINDOW};
use agent::words::{Code, Ended, Exited, Failure, ProgramControl, Request, Started};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tokio::time::Instant;

use super::asks::check;
use super::client::{ClientId, Role, StreamKind, end_frame, failure};
use super::hub::Hub;
use super::line::To;
use super::program::{Input, MAX_INPUT, Program, Stage, Written, bound};
use super::pump::Pump;
use super::stopped;
use crate::wire::{self, Owned};
use crate::words::{EndReason, Exec, Programs, Report, State, Which};

/// Most who listen to one program.
const MAX_READERS: usize = 64;
/// Most bytes of output that are kept of programs that are over, and most of those.
const MAX_KEPT: usize = 8 << 20;
const MAX_OVER: usize = 64;
/// Most bytes of output that are kept of all programs, those that run included.
const MAX_KEPT_IN_ALL: usize = 32 << 20;
/// Most bytes of a list of programs: it fits a frame with what stands around it.
const SHOWN: usize = 224 * 1024;
/// A program that was killed is gone by then, or its agent is none.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);
/// The kernel's count of what memory ended is read so long after a SIGKILL that nobody of us sent.
const COUNTED: Duration = Duration::from_millis(120);

impl Hub {
    /// Starts a program for a client.
    pub(super) fn exec(&mut self, who: (ClientId, u32), exec: Exec) -> Result<(), Failure> {
        check(&exec.program)?;
        self.brings_no_secret(&exec.program.env)?;
        let number = self.last_program.saturating_add(1);
        let line = self.agent.open(&Request::Start(exec.program.clone()), To::Program(number));
        let line = line.ok_or_else(|| failure(Code::TooMany, "1,024 programs and requests are under way"))?;
        self.last_program = number;
        let system = self.is_ours(who.0);
        // What a kernel says is counted by execution.
        let mut program = Program::new(number, line, exec, self.setup.output.filter(|_| !system));
        program.system = system;
        program.owner = Some(who);
        program.readers.insert(who);
        program.oom_before = self.run.oom_kills();
        program.stopped_before = self.run.violations();
        self.programs.insert(number, program);
        self.listen(who, number, Role::Owner);
        Ok(())
    }

    pub(super) fn listen(&mut self, who: (ClientId, u32), number: u64, role: Role) {
        let pump = Pump::new(who.1);
        let what = StreamKind::Reader { program: number, role, pump, in_left: WINDOW };
        self.client(who.0, |client| drop(client.streams.insert(who.1, what)));
    }

    fn join(&mut self, number: u64, who: (ClientId, u32)) {
        if let Some(program) = self.programs.get_mut(&number) {
            program.readers.insert(who);
        }
    }

    /// The program that is meant, whether it runs or is over.
    fn known(&self, which: &Which) -> Result<u64, Failure> {
        let meant = |program: &&Program| match which {
            Which::Id(word) => program.id() == *word,
            Which::Pid(pid) => program.pid == *pid,
            Which::Tag(tag) => program.asked.tag.as_ref() == Some(tag),
        };
        let found = || {
            self.programs
                .values()
                .rev()
                .filter(|program| program.stage != Stage::Starting && !program.system)
                .filter(meant)
        };
        let running = found().find(|program| !program.is_over());
        let number = running.or_else(|| found().next()).map(|program| program.number);
        number.ok_or_else(|| failure(Code::NotFound, "no such program runs in the sandbox"))
    }

    /// The program that is meant, if it runs.
    pub(super) fn running(&self, which: &Which) -> Result<u64, Failure> {
        let number = self.known(which)?;
        match self.programs.get(&number) {
            Some(program) if !program.is_over() => Ok(number),
            Some(_) | None => Err(failure(Code::NotFound, "the program has ended")),
        }
    }

    /// All that are known.
    pub(super) fn shown(&self) -> Programs {
        let there = self.programs.values().filter(|program| program.stage != Stage::Starting && !program.system);
        let mut there: Vec<&Program> = there.collect();
        there.sort_by_key(|program| (program.is_over(), std::cmp::Reverse(program.number)));
        let (mut room, mut all) = (SHOWN, Programs::default());
        let mut fitting = Vec::new();
        for program in there {
            let shown = program.shown();
            // And a comma.
            let size = serde_json::to_vec(&shown).map_or(SHOWN, |words| words.len().saturating_add(1));
            match room.checked_sub(size) {
                Some(left) => {
                    room = left;
                    fitting.push((program.number, shown));
                }
                None => all.left_out = all.left_out.saturating_add(1),
            }
        }
        fitting.sort_by_key(|(number, _)| *number);
        all.programs = fitting.into_iter().map(|(_, shown)| shown).collect();
        all
    }

    /// Somebody wants to listen, and to write.
    pub(super) fn attach(&mut self, who: (ClientId, u32), which: &Which) -> Result<(), Failure> {
        let number = self.known(which)?;
        let Some(program) = self.programs.get_mut(&number) else { return Ok(()) };
        let (shown, report) = (program.shown(), program.report.clone());
        if report.is_none() && program.readers.len() >= MAX_READERS {
            return Err(failure(Code::TooMany, "64 others listen to it"));
        }
        self.client(who.0, |client| client.reply(who.1, &shown));
        match report {
            Some(report) => self.client(who.0, |client| client.end(who.1, Ok(&report))),
            None => {
                self.join(number, who);
                self.listen(who, number, Role::Attached);
                self.refill(number);
            }
        }
        Ok(())
    }

    /// What is kept of a program's output, and what comes.
    pub(super) fn logs(&mut self, who: (ClientId, u32), which: &Which, follow: bool) -> Result<(), Failure> {
        let number = self.known(which)?;
        let Some(program) = self.programs.get(&number) else { return Ok(()) };
        if program.readers.len() >= MAX_READERS {
            return Err(failure(Code::TooMany, "64 others listen to it"));
        }
        let (lanes, over) = (program.log(), program.is_over());
        self.listen(who, number, Role::Logs);
        if follow && !over {
            self.join(number, who);
        }
        self.client(who.0, |client| {
            if let Some(StreamKind::Reader { pump, .. }) = client.streams.get_mut(&who.1) {
                for (lane, bytes) in lanes.iter().filter(|(_, bytes)| !bytes.is_empty()) {
                    pump.push(*lane, bytes);
                }
                if over || !follow {
                    pump.close(end_frame(who.1, Ok(())).unwrap_or_default());
                }
            }
            client.flow(who.1);
        });
        Ok(())
    }

    /// A frame of the agent about a program.
    pub(super) fn of_program(&mut self, number: u64, frame: &Owned) {
        match frame.kind {
            Kind::Reply => {
                let pid = serde_json::from_slice::<Started>(&frame.payload).map_or(0, |started| started.pid);
                self.started(number, pid);
            }
            Kind::Data => self.printed(number, &frame.payload),
            Kind::Credit => self.feed(number),
            Kind::End => self.ended(number, &frame.payload),
            // The end of its output is told by its end; the rest was judged.
            Kind::Eof | Kind::Event | Kind::Open | Kind::Control | Kind::Cancel => {}
        }
    }

    fn started(&mut self, number: u64, pid: u32) {
        let Some(program) = self.programs.get_mut(&number) else { return };
        program.pid = pid;
        program.stage = Stage::Running;
        let (shown, owner) = (program.shown(), program.owner);
        if let Some((client, stream)) = owner {
            self.client(client, |client| client.reply(stream, &shown));
        }
    }

    fn printed(&mut self, number: u64, payload: &[u8]) {
        let Some(program) = self.programs.get_mut(&number) else { return };
        let Some((lane, bytes)) = Lane::split(payload) else { return };
        let now = program.budget.take(lane, bytes).to_vec();
        let over = program.budget.exceeded() && self.setup.kill_over && program.limit.is_none();
        if over {
            let limit = self.setup.output.unwrap_or_default();
            program.limit = Some(("output", format!("it printed more than {limit} bytes (`limits.output`)")));
        }
        self.hand_out(number, lane, &now);
        if over {
            self.kill_tree(number);
        }
        self.refill(number);
    }

    /// To the log, and to all who listen.
    fn hand_out(&mut self, number: u64, lane: Lane, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let Some(program) = self.programs.get_mut(&number) else { return };
        program.keep(lane, bytes);
        let kept: usize = self.programs.values().map(Program::kept_bytes).sum();
        if kept > MAX_KEPT_IN_ALL {
            let mut all: Vec<_> = self.programs.values_mut().map(|one| (one.is_over(), &mut one.kept)).collect();
            // More than must be, so that it is not done for each piece again.
            bound(&mut all, MAX_KEPT_IN_ALL - MAX_KEPT_IN_ALL / 8);
        }
        let Some(program) = self.programs.get_mut(&number) else { return };
        for (id, stream) in &program.readers {
            let Some(client) = self.clients.get_mut(id) else { continue };
            if let Some(StreamKind::Reader { pump, .. }) = client.streams.get_mut(stream) {
                pump.push(lane, bytes);
            }
            client.flow(*stream);
        }
    }

    /// Lets the program print more. While the one is there whose `exec` it is, it is as fast as the fastest who listens, and
    /// who is too far behind that one is skipped. A program that was let go waits for nobody.
    pub(super) fn refill(&mut self, number: u64) {
        let Some(program) = self.programs.get(&number).filter(|program| !program.is_over()) else { return };
        let waiting =
            program.readers.iter().filter_map(|(id, stream)| match self.clients.get(id)?.streams.get(stream)? {
                StreamKind::Reader { pump, role: Role::Owner | Role::Attached, .. } => Some(pump.waiting()),
                StreamKind::Reader { .. }
                | StreamKind::Relay { .. }
                | StreamKind::End
                | StreamKind::Freezer
                | StreamKind::Files
                | StreamKind::Input
                | StreamKind::Kernel(_) => None,
            });
        let held = program.owner.and_then(|_| waiting.min()).unwrap_or_default();
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        let owed = WINDOW.saturating_sub(self.agent.out_left(program.line)).saturating_sub(held);
        if owed >= WINDOW / 4 {
            self.agent.credit(program.line, owed);
        }
    }

    fn ended(&mut self, number: u64, payload: &[u8]) {
        let Some(program) = self.programs.get_mut(&number) else { return };
        match serde_json::from_slice::<Ended<Exited>>(payload) {
            Ok(Ended::Ok(exited)) => {
                // 137 is what a shell says of a child that was killed.
                let killed = exited.signal == Some(9) || exited.code == Some(137);
                if killed && program.limit.is_none() && program.patience.is_none() {
                    let at = Instant::now().checked_add(COUNTED).unwrap_or_else(Instant::now);
                    program.stage = Stage::Ending(exited, at);
                } else {
                    let report = program.judge(&exited, false);
                    self.count_stopped(number, report);
                }
            }
            Ok(Ended::Error(failed)) if program.stage == Stage::Starting && program.is_too_late(&failed) => {
                let mut report = program.judge(&Exited::default(), false);
                "its time was over before it was started (`--timeout`)".clone_into(&mut report.message);
                // Whoever waits for a program hears of one, and how it ended, as he does where it ran for a moment.
                self.started(number, 0);
                self.count_stopped(number, report);
            }
            Ok(Ended::Error(failed)) if program.stage == Stage::Starting => self.not_started(number, &failed),
            Ok(Ended::Error(failed)) => {
                let mut report = program.judge(&Exited::default(), false);
                if report.limit.is_none() {
                    (report.outcome, report.message) = ("failed".to_owned(), failed.message);
                }
                self.count_stopped(number, report);
            }
            // It was judged to be one.
            Err(_) => {}
        }
    }

    fn not_started(&mut self, number: u64, failed: &Failure) {
        let Some(program) = self.programs.remove(&number) else { return };
        let body = json!({ "error": failed.code });
        let told = self.note_exec(&program, &body).err().unwrap_or_else(|| failed.clone());
        if let Some((client, stream)) = program.owner {
            self.client(client, |client| client.end(stream, Err::<(), _>(told)));
        }
        self.answer_input(program.input);
        self.busy = Instant::now();
        if self.waiting == Some(number) {
            self.waiting = None;
        }
    }

    /// A program is over: the last of its output, its report, and the record.
    pub(super) fn conclude(&mut self, number: u64, mut report: Report) {
        let Some(program) = self.programs.get_mut(&number) else { return };
        report.dropped = program.budget.dropped();
        let tails = program.budget.tails();
        for (lane, bytes) in tails {
            self.hand_out(number, lane, &bytes);
        }
        let Some(mut program) = self.programs.remove(&number) else { return };
        if let Some(policy) = &self.setup.policy {
            report.hints = program.hints(policy);
        }
        report.violations = stopped::between(&program.stopped_before, &self.run.violations());
        if report.limit.as_deref() == Some("memory") {
            self.tell_memory(&mut report, program.oom_before);
        }
        let body = json!({
            "outcome": report.outcome, "code": report.code, "signal": report.signal, "limit": report.limit,
        });
        // Before anybody hears how it ended: what is in no record is not told as done.
        let told = self.note_exec(&program, &body).map(|()| &report);
        program.stage = Stage::Ended;
        program.report = Some(report.clone());
        for (id, stream) in std::mem::take(&mut program.readers) {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            if let Some(StreamKind::Reader { pump, role, .. }) = client.streams.get_mut(&stream) {
                let end = match *role {
                    Role::Logs => end_frame(stream, Ok(())),
                    Role::Owner | Role::Attached => end_frame(stream, told.clone()),
                };
                pump.close(end.unwrap_or_default());
            }
            client.flow(stream);
        }
        let input = std::mem::take(&mut program.input);
        self.programs.insert(number, program);
        self.answer_input(input);
        self.busy = Instant::now();
        self.forget();
        self.warmed(number);
    }

    /// Of programs that are over, the oldest are forgotten.
    fn forget(&mut self) {
        let over = |hub: &Self| hub.programs.values().filter(|one| one.is_over()).map(|one| one.number).next();
        loop {
            let kept: usize = self.programs.values().filter(|one| one.is_over()).map(Program::kept_bytes).sum();
            let number = self.programs.values().filter(|one| one.is_over()).count();
            match over(self) {
                Some(oldest) if number > 1 && (kept > MAX_KEPT || number > MAX_OVER) => {
                    self.programs.remove(&oldest);
                }
                Some(_) | None => break,
            }
        }
    }

    /// The sandbox is over, and the program with it.
    pub(super) fn sweep_along(&mut self, number: u64, limit: Option<&str>, message: &str) {
        let Some(program) = self.programs.get(&number) else { return };
        let report = match program.stage {
            // Whoever waits for its start has heard nothing of it yet.
            Stage::Starting => {
                let why = format!("it ended with its sandbox, before it was started: {message}");
                return self.not_started(number, &failure(Code::Ended, why));
            }
            Stage::Ending(exited, _) => program.judge(&exited, limit == Some("memory")),
            Stage::Counting(_) => match &program.verdict {
                Some(report) => report.clone(),
                None => program.swept_along(limit, message),
            },
            Stage::Running | Stage::Ended => program.swept_along(limit, message),
        };
        self.conclude(number, report);
    }

    /// Kills all that descend from a program; its end comes from the agent.
    pub(super) fn kill_tree(&mut self, number: u64) {
        let Some(program) = self.programs.get_mut(&number) else { return };
        if program.is_over() || program.patience.is_some() {
            return;
        }
        program.patience = Instant::now().checked_add(KILL_TIMEOUT);
        self.agent.cancel(program.line, false);
    }

    /// After a pause, what was killed has its time again.
    pub(super) fn forgive(&mut self) {
        for program in self.programs.values_mut() {
            program.patience = program.patience.and_then(|_| Instant::now().checked_add(KILL_TIMEOUT));
        }
    }

    /// When something is due about a program.
    pub(super) fn due(&self, program: &Program) -> Option<Instant> {
        match program.stage {
            Stage::Ended => None,
            Stage::Ending(_, at) | Stage::Counting(at) => Some(at),
            Stage::Starting | Stage::Running if self.setup.info.state == State::Paused => None,
            Stage::Starting | Stage::Running => program.patience.or(program.deadline),
        }
    }

    /// It is due.
    pub(super) fn program_due(&mut self, number: u64, now: Instant) {
        let kills = self.run.oom_kills();
        let Some(program) = self.programs.get_mut(&number) else { return };
        if let Stage::Ending(exited, _) = program.stage {
            let report = program.judge(&exited, kills > program.oom_before);
            return self.count_stopped(number, report);
        }
        if matches!(program.stage, Stage::Counting(_)) {
            return self.counted(number);
        }
        if program.patience.is_some_and(|at| at <= now) {
            return self.end(EndReason::Agent, "the agent does not end a program that it was to kill".to_owned());
        }
        let seconds = Duration::from_millis(program.asked.timeout_ms.unwrap_or_default()).as_secs_f64();
        program.deadline = None;
        program.limit.get_or_insert(("wall", format!("it ran for {seconds} s (`--timeout`)")));
        self.kill_tree(number);
    }

    /// What somebody who listens says.
    pub(super) fn heard(&mut self, who: (ClientId, u32), number: u64, role: Role, frame: &Owned) {
        let (id, stream) = who;
        match frame.kind {
            Kind::Credit => {
                let more = wire::credit_of(&frame.payload);
                self.client(id, |client| {
                    if let Some(StreamKind::Reader { pump, .. }) = client.streams.get_mut(&stream) {
                        pump.credit(more);
                    }
                    client.flow(stream);
                });
                self.refill(number);
            }
            Kind::Data => self.typed(who, number, role, &frame.payload),
            Kind::Eof if role != Role::Logs => self.queue(number, Input::Eof),
            Kind::Control if role != Role::Logs => self.controlled(number, &frame.payload),
            Kind::Cancel => self.given_up(who, number, role),
            Kind::Eof | Kind::Control => {}
            Kind::Open | Kind::Reply | Kind::Event | Kind::End => self.left(id),
        }
    }

    fn controlled(&mut self, number: u64, payload: &[u8]) {
        let Some(program) = self.programs.get(&number).filter(|program| !program.is_over()) else { return };
        if let Ok(control) = serde_json::from_slice::<ProgramControl>(payload) {
            let words = serde_json::to_vec(&control).unwrap_or_default();
            self.agent.send_frame(Kind::Control, program.line, &words);
        }
    }

    fn given_up(&mut self, who: (ClientId, u32), number: u64, role: Role) {
        let stays = self.programs.get(&number).is_some_and(|program| program.asked.detach || program.is_over());
        if role == Role::Owner && !stays {
            // He hears how it ended.
            return self.kill_tree(number);
        }
        self.client(who.0, |client| client.end(who.1, Err::<(), _>(failure(Code::Cancelled, "it was given up"))));
        self.reader_left(number, who, role);
    }

    /// Bytes for a program.
    fn typed(&mut self, who: (ClientId, u32), number: u64, role: Role, payload: &[u8]) {
        let (id, stream) = who;
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(StreamKind::Reader { in_left, .. }) = client.streams.get_mut(&stream) else { return };
        let bytes = match Lane::split(payload) {
            Some((Lane::In, bytes)) if role != Role::Logs => bytes,
            Some((Lane::In | Lane::Out | Lane::Err, _)) | None => return self.left(id),
        };
        let Some(left) = u32::try_from(bytes.len()).ok().and_then(|length| in_left.checked_sub(length)) else {
            return self.left(id);
        };
        *in_left = left;
        let reads = self.programs.get(&number).is_some_and(|one| one.has_input() && !one.closed && !one.is_over());
        if reads {
            self.queue(number, Input::Bytes(bytes.to_vec(), Written::Data(id, stream)));
        } else {
            // Nobody reads it: it is as if it was read.
            self.written_back(&Written::Data(id, stream), bytes.len(), true);
        }
    }

    /// `input`
    pub(super) fn input(&mut self, who: (ClientId, u32), which: &Which, bytes: &str, tty: bool) -> Result<(), Failure> {
        let invalid = |_| failure(Code::Invalid, "the bytes are not base64");
        let bytes = BASE64_STANDARD.decode(bytes).map_err(invalid)?;
        let number = self.running(which)?;
        let Some(program) = self.programs.get_mut(&number) else { return Ok(()) };
        if !program.has_input() || program.closed {
            return Err(failure(Code::Invalid, "the program has no input, or it was closed"));
        }
        if tty && program.asked.program.tty.is_none() {
            return Err(failure(Code::Invalid, "the program has no terminal"));
        }
        if program.asked_input.saturating_add(bytes.len()) > MAX_INPUT {
            return Err(failure(Code::TooMany, "4 MiB of input wait for the program"));
        }
        program.asked_input = program.asked_input.saturating_add(bytes.len());
        self.client(who.0, |client| drop(client.streams.insert(who.1, StreamKind::Input)));
        self.queue(number, Input::Bytes(bytes, Written::Ask(who.0, who.1)));
        Ok(())
    }

    /// `close_input`
    pub(super) fn close_input(&mut self, which: &Which) -> Result<(), Failure> {
        let number = self.running(which)?;
        match self.programs.get(&number) {
            Some(program) if !program.has_input() => Err(failure(Code::Invalid, "the program has no input")),
            Some(_) | None => {
                self.queue(number, Input::Eof);
                Ok(())
            }
        }
    }

    pub(super) fn queue(&mut self, number: u64, input: Input) {
        if let Some(program) = self.programs.get_mut(&number).filter(|one| one.has_input() && !one.is_over()) {
            program.input.push_back(input);
            self.feed(number);
        }
    }

    /// Hands on what a program takes.
    fn feed(&mut self, number: u64) {
        loop {
            let Some(program) = self.programs.get_mut(&number) else { return };
            let line = program.line;
            let may = self.agent.line(line).map_or(0, |line| line.in_left);
            let most = usize::try_from(may).unwrap_or(usize::MAX).min(MAX_DATA - 1);
            let (sent, written, all) = match program.input.pop_front() {
                None => return,
                Some(Input::Eof) => {
                    program.closed = true;
                    self.agent.send_frame(Kind::Eof, line, b"");
                    continue;
                }
                // What comes after its end is for nobody.
                Some(Input::Bytes(bytes, written)) if program.closed => (bytes.len(), written, true),
                Some(Input::Bytes(bytes, written)) if most == 0 && !bytes.is_empty() => {
                    program.input.push_front(Input::Bytes(bytes, written));
                    return;
                }
                Some(Input::Bytes(mut bytes, written)) => {
                    let rest = bytes.split_off(bytes.len().min(most));
                    if !bytes.is_empty() && !self.agent.data(line, &bytes) {
                        return;
                    }
                    let all = rest.is_empty();
                    if !all {
                        program.input.push_front(Input::Bytes(rest, written));
                    }
                    (bytes.len(), written, all)
                }
            };
            if matches!(written, Written::Ask(..)) {
                program.asked_input = program.asked_input.saturating_sub(sent);
            }
            self.written_back(&written, sent, all);
        }
    }

    /// Tells who wrote it.
    fn written_back(&mut self, written: &Written, sent: usize, all: bool) {
        match *written {
            Written::Data(id, stream) => {
                let more = u32::try_from(sent).unwrap_or(u32::MAX);
                self.client(id, |client| {
                    if let Some(StreamKind::Reader { in_left, .. }) = client.streams.get_mut(&stream) {
                        *in_left = in_left.saturating_add(more);
                        client.send(wire::credit(stream, more));
                    }
                });
            }
            Written::Ask(id, stream) if all => self.client(id, |client| client.end(stream, Ok(()))),
            Written::Ask(..) | Written::Nobody => {}
        }
    }

    /// Input for a program that is over.
    fn answer_input(&mut self, input: std::collections::VecDeque<Input>) {
        for one in input {
            if let Input::Bytes(_, Written::Ask(id, stream)) = one {
                let over = failure(Code::NotFound, "the program has ended");
                self.client(id, |client| client.end(stream, Err::<(), _>(over)));
            }
        }
    }
}
