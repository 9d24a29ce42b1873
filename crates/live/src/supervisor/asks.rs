//! What clients ask, and what is answered at once.

use std::collections::BTreeMap;
use std::time::Duration;

use agent::frame::{Kind, MAX_STREAMS, WINDOW};
use agent::words::{Code, Failure, Program as Wanted, ProgramControl, Request};
use sandbox::fault::show_text;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::carrier::Run;
use super::client::{Client, ClientId, StreamKind, failure};
use super::hub::{Hub, Note};
use super::line::To;
use super::network::RulesRequest;
use super::program::now_ms;
use crate::kernel::words::KernelAsk;
use crate::wire::Owned;
use crate::words::{Ask, EndReason, Info, NO_PORTS, State, Which};

/// The longest life that can be asked for: ten years.
const MAX_LIFE_MS: u64 = 10 * 366 * 24 * 60 * 60 * 1000;
/// So many may wait for a look at the files: the supervisor has few threads, and the end of a sandbox needs one.
const MAX_LOOKS: usize = 2;

enum ParsedRequest {
    Us(Ask),
    Kernels(KernelAsk),
    Agent(Request),
}

/// What a request says.
fn parse(payload: &[u8]) -> Result<ParsedRequest, Failure> {
    let unknown = |error: &serde_json::Error| error.to_string().starts_with("unknown variant");
    let mut asked = serde_json::from_slice(payload).map(ParsedRequest::Us);
    if asked.as_ref().is_err_and(unknown) {
        asked = serde_json::from_slice(payload).map(ParsedRequest::Kernels);
    }
    if asked.as_ref().is_err_and(unknown) {
        asked = serde_json::from_slice(payload).map(ParsedRequest::Agent);
    }
    asked.map_err(|error| failure(Code::Invalid, format!("the request is not understood: {error}")))
}

impl Hub {
    /// A frame of a client. What no client may say cuts his connection.
    pub(super) fn asked(&mut self, id: ClientId, frame: &Owned) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let stream = frame.stream;
        if frame.kind == Kind::Open {
            if client.streams.contains_key(&stream) || client.streams.len() >= MAX_STREAMS {
                return self.left(id);
            }
            if let Err(failure) = self.open(id, stream, &frame.payload)
                && let Some(client) = self.clients.get_mut(&id)
            {
                client.end(stream, Err::<(), _>(failure));
            }
            return;
        }
        match client.streams.get(&stream) {
            Some(StreamKind::Relay { line, .. }) => {
                let line = *line;
                self.pass_on(id, line, frame);
            }
            Some(StreamKind::Reader { program, role, .. }) => {
                let (program, role) = (*program, *role);
                self.heard((id, stream), program, role, frame);
            }
            Some(StreamKind::Kernel(_)) => self.for_kernels(id, frame),
            Some(StreamKind::End) if frame.kind == Kind::Cancel => {
                client.end(stream, Err::<(), _>(failure(Code::Cancelled, "it was given up")));
            }
            // What was said before its end was heard.
            Some(StreamKind::End | StreamKind::Freezer | StreamKind::Files | StreamKind::Input) | None => {}
        }
    }

    fn open(&mut self, id: ClientId, stream: u32, payload: &[u8]) -> Result<(), Failure> {
        let asked = parse(payload)?;
        let answers_always = matches!(
            asked,
            ParsedRequest::Us(
                Ask::Info {}
                    | Ask::Wait {}
                    | Ask::Kill {}
                    | Ask::Timeout { .. }
                    | Ask::Resume {}
                    | Ask::Pause {}
                    | Ask::Changes {}
                    | Ask::Network { .. }
                    | Ask::Hosts { .. }
                    | Ask::Rules {}
                    | Ask::Apply(_)
                    | Ask::Snapshot { .. }
            )
        );
        if let Some((_, message)) = self
            .ending
            .as_ref()
            .filter(|_| !matches!(asked, ParsedRequest::Us(Ask::Info {} | Ask::Wait {} | Ask::Kill {})))
        {
            return Err(failure(Code::Ended, format!("the sandbox has ended: {message}")));
        }
        if self.setup.info.state == State::Paused && !answers_always {
            return Err(failure(Code::Paused, format!("the sandbox {} is paused", self.setup.info.id)));
        }
        if !matches!(asked, ParsedRequest::Us(Ask::Info {} | Ask::Wait {} | Ask::Programs {})) {
            self.busy = Instant::now();
        }
        match asked {
            ParsedRequest::Us(ask) => self.ask(id, stream, ask),
            ParsedRequest::Kernels(ask) => self.ask_kernels((id, stream), ask),
            ParsedRequest::Agent(request) => self.relay(id, stream, &request),
        }
    }

    fn relay(&mut self, id: ClientId, stream: u32, request: &Request) -> Result<(), Failure> {
        if matches!(request, Request::Hello { .. } | Request::Start(_)) {
            return Err(failure(Code::Invalid, "only the supervisor asks that of an agent"));
        }
        // What listens there would be the host's.
        if matches!(request, Request::Port { .. }) && !self.setup.info.has_ports() {
            return Err(failure(Code::Unsupported, NO_PORTS));
        }
        let line = self.agent.open(request, To::Client(id, stream));
        let line = line.ok_or_else(|| failure(Code::TooMany, "the agent has 1,024 requests to answer"))?;
        if let Some(client) = self.clients.get_mut(&id) {
            client.streams.insert(stream, StreamKind::Relay { line, in_left: WINDOW });
        }
        Ok(())
    }

    fn ask(&mut self, id: ClientId, stream: u32, ask: Ask) -> Result<(), Failure> {
        match ask {
            Ask::Info {} => self.answer(id, stream),
            Ask::Exec(exec) => return self.exec((id, stream), exec),
            Ask::Python { code, timeout_ms } => return self.python((id, stream), code, timeout_ms),
            Ask::Attach { which } => return self.attach((id, stream), &which),
            Ask::Logs { which, follow } => return self.logs((id, stream), &which, follow),
            Ask::Programs {} => {
                let programs = self.shown();
                self.client(id, |client| client.end(stream, Ok(&programs)));
            }
            Ask::Signal { which, number, tree } => {
                self.control(&which, &ProgramControl::Signal { number, tree })?;
                self.client(id, |client| client.end(stream, Ok(())));
            }
            Ask::Resize { which, size } => {
                self.control(&which, &ProgramControl::Resize(size))?;
                self.client(id, |client| client.end(stream, Ok(())));
            }
            Ask::Input { which, bytes, tty } => return self.input((id, stream), &which, &bytes, tty),
            Ask::CloseInput { which } => {
                self.close_input(&which)?;
                self.client(id, |client| client.end(stream, Ok(())));
            }
            Ask::Kill {} => {
                self.client(id, |client| drop(client.streams.insert(stream, StreamKind::End)));
                self.end(EndReason::Killed, "it was ended by `kill`".to_owned());
            }
            Ask::Wait {} => self.client(id, |client| drop(client.streams.insert(stream, StreamKind::End))),
            Ask::Pause {} => return self.freeze((id, stream), true),
            Ask::Resume {} => return self.freeze((id, stream), false),
            Ask::Changes {} => return self.files((id, stream), |run| value(run.changes())),
            Ask::Network { net, secrets } => {
                return self.queue_rules((id, stream), RulesRequest::All { net, secrets });
            }
            Ask::Hosts { net } => return self.queue_rules((id, stream), RulesRequest::Hosts { net }),
            Ask::Rules {} => {
                let rules = self.run.rules();
                self.client(id, |client| client.end(stream, rules));
            }
            Ask::Apply(wanted) => return self.files((id, stream), move |run| value(run.apply(&wanted))),
            Ask::Snapshot { name } => {
                // As they are now: one that was made ready gets them when it is taken.
                let Info { labels, idle_ms, .. } = &self.setup.info;
                let (labels, idle_ms) = (labels.clone(), *idle_ms);
                return self.files((id, stream), move |run| value(run.snapshot(name, labels, idle_ms)));
            }
            Ask::Timeout { ms, only_later, labels } => {
                self.set_life(ms, only_later, labels)?;
                self.answer(id, stream);
            }
        }
        Ok(())
    }

    /// That no variable of a program is the value of a secret, which the policy keeps outside.
    pub(super) fn brings_no_secret(&self, env: &BTreeMap<String, String>) -> Result<(), Failure> {
        let held = |(name, value): (&String, &String)| Some((show_text(name), show_text(&self.run.secret_in(value)?)));
        env.iter().find_map(held).map_or(Ok(()), |(name, secret)| {
            let what = format!("the variable `{name}` has the value of the secret `{secret}`, which never goes inside");
            Err(failure(Code::Secret, what))
        })
    }

    /// What can be done with a client, if he is still there.
    pub(super) fn client(&mut self, id: ClientId, with: impl FnOnce(&mut Client)) {
        if let Some(client) = self.clients.get_mut(&id) {
            with(client);
        }
    }

    fn answer(&mut self, id: ClientId, stream: u32) {
        let info: Info = self.info();
        self.client(id, |client| client.end(stream, Ok(&info)));
    }

    fn control(&mut self, which: &Which, control: &ProgramControl) -> Result<(), Failure> {
        let number = self.running(which)?;
        let Some(program) = self.programs.get(&number) else { return Ok(()) };
        if matches!(control, ProgramControl::Resize(_)) && program.asked.program.tty.is_none() {
            return Err(failure(Code::Invalid, "the program has no terminal"));
        }
        let line = program.line;
        self.agent.send_frame(Kind::Control, line, &serde_json::to_vec(control).unwrap_or_default());
        Ok(())
    }

    fn freeze(&mut self, who: (ClientId, u32), frozen: bool) -> Result<(), Failure> {
        let already = (self.setup.info.state == State::Paused) == frozen;
        match &mut self.freezing {
            Some((wanted, waiting)) if *wanted == frozen => waiting.push(who),
            Some(_) => return Err(failure(Code::Failed, "it is just being paused or resumed: ask again")),
            None if already => {
                self.answer(who.0, who.1);
                return Ok(());
            }
            None => {
                self.freezing = Some((frozen, vec![who]));
                let (run, notes) = (std::sync::Arc::clone(&self.run), self.notes.clone());
                // The freezer waits for the kernel; nobody else waits with it.
                tokio::spawn(async move {
                    let done = tokio::task::spawn_blocking(move || run.freeze(frozen)).await;
                    let lost = |_| Err(failure(Code::Failed, "the freezer did not answer"));
                    let done = done.unwrap_or_else(lost);
                    // Nobody to hear it: the sandbox is over.
                    if notes.send(Note::Frozen(frozen, done)).await.is_err() {}
                });
            }
        }
        self.client(who.0, |client| drop(client.streams.insert(who.1, StreamKind::Freezer)));
        Ok(())
    }

    /// What takes its time, in a thread: nobody else waits for it.
    fn files(
        &mut self,
        (id, stream): (ClientId, u32),
        look: impl FnOnce(&dyn Run) -> Result<Value, Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        if self.reading >= MAX_LOOKS {
            return Err(failure(Code::TooMany, "others look at the files of this sandbox already: ask again"));
        }
        self.reading = self.reading.saturating_add(1);
        let (run, notes) = (std::sync::Arc::clone(&self.run), self.notes.clone());
        tokio::spawn(async move {
            let done = tokio::task::spawn_blocking(move || look(&*run)).await;
            let lost = |_| Err(failure(Code::Failed, "the thread that looked at the files is gone"));
            let done = done.unwrap_or_else(lost);
            // Nobody to hear it: the sandbox is over.
            if notes.send(Note::Files(id, stream, done)).await.is_err() {}
        });
        self.client(id, |client| drop(client.streams.insert(stream, StreamKind::Files)));
        Ok(())
    }

    /// What came of it, to who asked, if he still waits.
    pub(super) fn read_files(&mut self, id: ClientId, stream: u32, done: Result<Value, Failure>) {
        self.reading = self.reading.saturating_sub(1);
        self.tell(id, stream, done);
    }

    /// The result of what took its time, to who asked, if he still waits.
    pub(super) fn tell(&mut self, id: ClientId, stream: u32, done: Result<Value, Failure>) {
        self.busy = Instant::now();
        // What is read of a sandbox that goes away meanwhile fails in whichever way: it is told as what it is.
        let done = done.map_err(|failed| match &self.ending {
            Some((_, message)) => failure(Code::Ended, format!("the sandbox has ended: {message}")),
            None => failed,
        });
        self.client(id, |client| {
            if matches!(client.streams.get(&stream), Some(StreamKind::Files)) {
                client.end(stream, done);
            }
        });
    }

    fn set_life(&mut self, ms: u64, only_later: bool, labels: BTreeMap<String, String>) -> Result<(), Failure> {
        if ms > MAX_LIFE_MS {
            return Err(failure(Code::Invalid, "no sandbox lives for more than ten years"));
        }
        let life = Duration::from_millis(ms);
        let ends = Instant::now().checked_add(life);
        // One without an end cannot end later.
        let later = self.ends.is_some_and(|now| ends.is_some_and(|ends| ends > now));
        if only_later && !later {
            return Ok(());
        }
        if ms == 0 {
            self.end(EndReason::Timeout, "its life was over at once (`timeout`)".to_owned());
            return Ok(());
        }
        self.note_life(ms)?;
        self.ends = ends;
        self.setup.info.labels.extend(labels);
        self.setup.info.end_in(now_ms(), Some(life));
        self.run.set_wall(Some(life));
        self.write_down();
        Ok(())
    }
}

pub(super) fn value(done: Result<impl Serialize, Failure>) -> Result<Value, Failure> {
    done.map(|done| serde_json::to_value(done).unwrap_or_default())
}

/// What an `exec` may not ask.
pub(super) fn check(program: &Wanted) -> Result<(), Failure> {
    if program.argv.first().is_none_or(String::is_empty) {
        return Err(failure(Code::Invalid, "there is no program to run"));
    }
    let texts = program.argv.iter().chain(program.env.values()).chain(program.cwd.as_ref());
    if texts.chain(program.env.keys()).any(|text| text.contains('\0')) {
        return Err(failure(Code::Invalid, "no argument, variable or path can hold a zero byte"));
    }
    if program.env.keys().any(|name| name.is_empty() || name.contains('=')) {
        return Err(failure(Code::Invalid, "a variable's name is not empty and has no `=`"));
    }
    Ok(())
}
