//! One context: a kernel, and what is asked of it one after the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use agent::words::{Code, Failure};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use super::Settings;
use super::channels::{ChannelCommand, Listeners};
use super::driver::{self, Driver, DriverGone, KernelRequest, answers};
use super::lines::{self, DriverMessage, Error, Meaning, Message};
use super::out::Out;
use super::programs::Programs;
use super::shown::State;
use super::words::Executed;

/// How long between one interrupt and the next, while the kernel does not heed it.
const AGAIN: Duration = Duration::from_secs(2);

/// Something to execute.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) code: String,
    /// Code before and after, for variables of this execution alone.
    pub(super) around: Option<[String; 2]>,
    pub(super) timeout: Option<Duration>,
    pub(super) sink: mpsc::Sender<Vec<u8>>,
    pub(super) done: oneshot::Sender<Result<Executed, Failure>>,
}

/// What does not wait for its turn.
#[derive(Debug)]
pub(super) enum Urgent {
    Interrupt,
    Restart(oneshot::Sender<Result<(), Failure>>),
}

/// What runs a context. Dropped, its kernel is ended.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) id: String,
    pub(super) programs: Arc<dyn Programs>,
    pub(super) wanted: KernelRequest,
    pub(super) settings: Settings,
    pub(super) jobs: mpsc::Receiver<Job>,
    pub(super) urgent: mpsc::Receiver<Urgent>,
    pub(super) talk: mpsc::Receiver<ChannelCommand>,
    pub(super) state: Arc<State>,
    pub(super) listeners: Listeners,
    pub(super) driver: Option<Driver>,
    /// Lines that wait to be given to the driver.
    pub(super) outbox: VecDeque<Vec<u8>>,
    /// How the last kernel ended, if nobody was told yet.
    pub(super) died: Option<String>,
    /// How often those who speak with it were told something by us.
    pub(super) told: u64,
}

/// Why an execution is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Timeout,
    NobodyListens,
}

/// When an execution is to stop, and since when it is told to.
#[derive(Debug)]
struct Clock {
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    told: Option<(Why, Instant)>,
    again: Instant,
    grace: Duration,
    keepalive: Duration,
}

/// How one request to the kernel ended.
#[derive(Debug)]
enum Ended {
    Idle,
    Gone(String),
    Deaf,
    Restart(oneshot::Sender<Result<(), Failure>>),
    Removed,
}

impl Actor {
    /// Until the context is removed.
    pub(super) async fn run(mut self) {
        loop {
            self.state.connections(self.listeners.count());
            let full = self.listeners.is_full();
            let input = self.driver.as_ref().map(Driver::input);
            tokio::select! {
                biased;
                urgent = self.urgent.recv() => match urgent {
                    None => return,
                    // Code that somebody asked for in messages may be at work.
                    Some(Urgent::Interrupt) if self.state.is_busy() => interrupt(&mut self.outbox),
                    Some(Urgent::Interrupt) => {}
                    Some(Urgent::Restart(reply)) => self.restart(reply).await,
                },
                talk = self.talk.recv(), if self.outbox.is_empty() => match talk {
                    None => return,
                    Some(talk) => self.talked(talk).await,
                },
                sent = send_first(input.as_ref(), &mut self.outbox), if !self.outbox.is_empty() => {
                    if let Err(how) = sent {
                        self.lost(how);
                    }
                }
                () = self.listeners.flow(), if full => {}
                heard = idle(&mut self.driver), if !full => match heard {
                    Ok(mut message) => self.hear(&mut message),
                    Err(how) => self.lost(how),
                },
                job = self.jobs.recv() => {
                    let Some(job) = job else { return };
                    self.state.busy(true);
                    self.execute(job).await;
                    self.state.busy(false);
                }
            }
        }
    }

    fn hear(&mut self, message: &mut Message) {
        if let Some(busy) = message.busy() {
            self.state.busy(busy);
        }
        self.listeners.hear(message);
    }

    /// Somebody speaks with the kernel; one that had ended begins anew for it.
    async fn talked(&mut self, talk: ChannelCommand) {
        match talk {
            ChannelCommand::Join(listener) => self.listeners.join(listener),
            ChannelCommand::Say { number, session, line } => {
                self.listeners.speaks(number, session);
                self.state.touch();
                if self.driver.is_none() {
                    if self.start().await.is_err() {
                        // They were told that it is dead, and it still is.
                        self.tell("dead");
                        return;
                    }
                    self.tell("starting");
                }
                self.outbox.push_back(line);
            }
        }
    }

    fn tell(&mut self, state: &str) {
        self.told = self.told.saturating_add(1);
        self.listeners.status(&format!("{}_{}", self.id, self.told), state);
    }

    fn lost(&mut self, how: String) {
        self.forget();
        self.died = Some(how);
        self.state.died();
        self.tell("restarting");
    }

    fn forget(&mut self) {
        self.driver = None;
        self.outbox.clear();
    }

    async fn restart(&mut self, reply: oneshot::Sender<Result<(), Failure>>) {
        self.forget();
        self.tell("restarting");
        let started = self.start().await;
        if started.is_ok() {
            self.died = None;
        }
        // Who asked may be gone; the kernel is new all the same.
        drop(reply.send(started));
    }

    /// A kernel that is ready for code.
    async fn start(&mut self) -> Result<(), Failure> {
        let begin = async {
            let mut driver = Driver::start(&*self.programs, &self.wanted).await?;
            let Some(code) = driver::setup(&self.wanted.language) else { return Ok(driver) };
            let (id, line) = driver.execute(code, true);
            let gone = |how: &str| Failure::new(Code::Failed, format!("the kernel ended while it started: {how}"));
            driver.input().send(line).await.map_err(|_gone| gone("its driver is gone"))?;
            loop {
                match driver.next().await {
                    Ok(DriverMessage::Message(message))
                        if answers(&message, &id) && message.meaning() == Meaning::Idle =>
                    {
                        return Ok(driver);
                    }
                    Ok(DriverMessage::Dead { code }) => return Err(gone(&how_it_died(code))),
                    Ok(
                        DriverMessage::Message(_)
                        | DriverMessage::Ready(_)
                        | DriverMessage::Missing { .. }
                        | DriverMessage::Failed(_)
                        | DriverMessage::Languages(_),
                    ) => {}
                    Err(DriverGone(how)) => return Err(gone(&how)),
                }
            }
        };
        let seconds = self.settings.start.as_secs();
        let late = || Failure::new(Code::Failed, format!("the kernel was not ready within {seconds} s"));
        self.driver = Some(timeout(self.settings.start, begin).await.map_err(|_gone| late())??);
        self.state.started();
        Ok(())
    }

    async fn execute(&mut self, job: Job) {
        if job.sink.is_closed() {
            return;
        }
        let mut out = Out::new(job.sink, self.settings.output);
        let fresh = self.driver.is_none();
        if fresh && let Err(failure) = self.start().await {
            // Who asked may be gone.
            drop(job.done.send(Err(failure)));
            return;
        }
        let died = self.died.take();
        if let Some(how) = &died {
            let said = format!(
                "the kernel of this context had ended ({}): this is a new one, without its variables",
                driver::one_line(how)
            );
            out.line(lines::note(&said));
        }
        let mut clock = Clock::new(job.timeout, &self.settings);
        let ended = self.converse(&job.code, job.around.as_ref(), &mut out, &mut clock).await;
        if clock.told.is_some_and(|(why, _)| why == Why::Timeout) {
            out.error(&timed_out(&clock));
        }
        let restart = self.judge(ended, &mut out);
        let executed = Executed { context: self.id.clone(), truncated: out.truncated(), restarted: died.is_some() };
        let done = job.done;
        out.finish(move || drop(done.send(Ok(executed))));
        if let Some(reply) = restart {
            self.restart(reply).await;
        }
    }

    /// What an end means for the kernel, and for whoever waits.
    fn judge(&mut self, ended: Ended, out: &mut Out) -> Option<oneshot::Sender<Result<(), Failure>>> {
        match ended {
            Ended::Idle => None,
            Ended::Gone(how) => {
                let said = format!("the kernel ended before the execution did: {}", driver::one_line(&how));
                out.error(&Error::new("UnexpectedEndOfExecution", said));
                self.lost(how);
                None
            }
            Ended::Deaf => {
                let how = "it did not heed an interrupt, and was ended".to_owned();
                out.error(&Error::new("UnexpectedEndOfExecution", how.clone()));
                self.lost(how);
                None
            }
            Ended::Restart(reply) => {
                out.error(&Error::new("ContextRestarting", "Context was restarted"));
                Some(reply)
            }
            Ended::Removed => {
                out.error(&Error::new("UnexpectedEndOfExecution", "the context was removed"));
                None
            }
        }
    }

    /// The code, and what stands around it.
    async fn converse(&mut self, code: &str, around: Option<&[String; 2]>, out: &mut Out, clock: &mut Clock) -> Ended {
        if let Some([before, _]) = around {
            match self.request(before, true, out, clock).await {
                Ended::Idle => {}
                other @ (Ended::Gone(_) | Ended::Deaf | Ended::Restart(_) | Ended::Removed) => return other,
            }
        }
        let ended = self.request(code, false, out, clock).await;
        if !matches!(ended, Ended::Idle) {
            return ended;
        }
        if let Some([_, after]) = around {
            // However the code ended, what was set for it alone is put back; it has a time of its own.
            clock.begin_again();
            return self.request(after, true, out, clock).await;
        }
        Ended::Idle
    }

    /// One request to the kernel, until it is idle.
    async fn request(&mut self, code: &str, silent: bool, out: &mut Out, clock: &mut Clock) -> Ended {
        let Some(driver) = &mut self.driver else { return Ended::Gone("there is no kernel".to_owned()) };
        let listener = out.sink();
        let (id, line) = driver.execute(code, silent);
        // One that came too late was not for this code.
        self.outbox.retain(|line| *line != driver::interrupt());
        self.outbox.push_back(line);
        loop {
            let wake = clock.wake(out);
            let full = self.listeners.is_full();
            let input = self.driver.as_ref().map(Driver::input);
            tokio::select! {
                biased;
                urgent = self.urgent.recv() => match urgent {
                    None => return Ended::Removed,
                    Some(Urgent::Interrupt) => interrupt(&mut self.outbox),
                    Some(Urgent::Restart(reply)) => return Ended::Restart(reply),
                },
                () = sleep_until(wake) => match clock.tick(out) {
                    Tick::Nothing => {}
                    Tick::Interrupt => interrupt(&mut self.outbox),
                    Tick::GiveUp => return Ended::Deaf,
                },
                () = listener.closed(), if clock.told.is_none() => {
                    clock.tell(Why::NobodyListens);
                    interrupt(&mut self.outbox);
                }
                talk = self.talk.recv(), if self.outbox.is_empty() => match talk {
                    None => return Ended::Removed,
                    Some(talk) => self.talked(talk).await,
                },
                sent = send_first(input.as_ref(), &mut self.outbox), if !self.outbox.is_empty() => {
                    if let Err(how) = sent {
                        return Ended::Gone(how);
                    }
                }
                () = out.flow(), if out.is_full() => {}
                () = self.listeners.flow(), if full => {}
                heard = idle(&mut self.driver), if !full && !out.is_full() => match heard {
                    Ok(mut message) => {
                        let ended = answers(&message, &id) && is_last(&message, silent, out, clock);
                        self.hear(&mut message);
                        if ended {
                            return Ended::Idle;
                        }
                    }
                    Err(how) => return Ended::Gone(how),
                },
            }
        }
    }
}

/// To be interrupted; once, however often it is asked for before the driver hears it.
fn interrupt(outbox: &mut VecDeque<Vec<u8>>) {
    let line = driver::interrupt();
    if !outbox.contains(&line) {
        outbox.push_back(line);
    }
}

/// Takes a message that answers a request; whether nothing more comes.
fn is_last(message: &Message, silent: bool, out: &mut Out, clock: &Clock) -> bool {
    let meaning = clock.said(message.meaning());
    if silent { meaning == Meaning::Idle } else { out.take(meaning) }
}

/// Gives the first line that waits to the driver. Nothing is lost when this is dropped while it waits.
async fn send_first(input: Option<&mpsc::Sender<Vec<u8>>>, outbox: &mut VecDeque<Vec<u8>>) -> Result<(), String> {
    // Without a kernel nobody is there to be told.
    let Some(input) = input else {
        outbox.clear();
        return Ok(());
    };
    let permit = input.reserve().await.map_err(|_closed| "its driver is gone".to_owned())?;
    if let Some(line) = outbox.pop_front() {
        permit.send(line);
    }
    Ok(())
}

/// What is to be done when a time has come.
enum Tick {
    Nothing,
    Interrupt,
    GiveUp,
}

impl Clock {
    fn new(timeout: Option<Duration>, settings: &Settings) -> Self {
        let now = Instant::now();
        Self {
            timeout,
            deadline: timeout.and_then(|timeout| now.checked_add(timeout)),
            told: None,
            again: now,
            grace: settings.grace,
            keepalive: settings.keepalive,
        }
    }

    fn tell(&mut self, why: Why) {
        let now = Instant::now();
        self.told.get_or_insert((why, now));
        self.again = now.checked_add(AGAIN).unwrap_or(now);
    }

    /// For what comes after the code: as long as a kernel may take to heed an interrupt.
    fn begin_again(&mut self) {
        if let Some((_, since)) = &mut self.told {
            *since = Instant::now();
        } else {
            self.deadline = None;
        }
    }

    /// When to look again.
    fn wake(&self, out: &Out) -> Instant {
        let alive = out.last().checked_add(self.keepalive);
        let stop = match self.told {
            Some((_, since)) => since.checked_add(self.grace).map(|end| end.min(self.again)),
            None => self.deadline,
        };
        let soon = [alive, stop].into_iter().flatten().min();
        soon.unwrap_or_else(Instant::now)
    }

    fn tick(&mut self, out: &mut Out) -> Tick {
        let now = Instant::now();
        if now.saturating_duration_since(out.last()) >= self.keepalive {
            out.line(lines::keepalive());
        }
        match self.told {
            Some((_, since)) if now.saturating_duration_since(since) >= self.grace => Tick::GiveUp,
            Some((why, _)) if now >= self.again => {
                self.tell(why);
                Tick::Interrupt
            }
            None if self.deadline.is_some_and(|deadline| now >= deadline) => {
                self.tell(Why::Timeout);
                Tick::Interrupt
            }
            Some(_) | None => Tick::Nothing,
        }
    }

    /// An interrupt that came from a timeout is told as one.
    fn said(&self, meaning: Meaning) -> Meaning {
        match (meaning, self.told) {
            (Meaning::Error(error), Some((Why::Timeout, _))) if error.name == "KeyboardInterrupt" => {
                Meaning::Error(Error { traceback: error.traceback, ..timed_out(self) })
            }
            (meaning, _) => meaning,
        }
    }
}

fn timed_out(clock: &Clock) -> Error {
    let ms = clock.timeout.unwrap_or_default().as_millis();
    Error::new("TimeoutError", format!("the execution took longer than {ms} ms and was interrupted"))
}

fn how_it_died(code: Option<i64>) -> String {
    match code {
        Some(code) if code < 0 => match code.unsigned_abs() {
            9 => "signal 9 ended it; where nobody sent it, the memory of the sandbox was used up".to_owned(),
            signal => format!("signal {signal} ended it"),
        },
        Some(code) => format!("it exited with {code}"),
        None => "nobody knows how it ended".to_owned(),
    }
}

/// What a kernel says next, or how it ended; never, while there is none.
async fn idle(driver: &mut Option<Driver>) -> Result<Box<Message>, String> {
    let Some(driver) = driver else { return std::future::pending().await };
    loop {
        match driver.next().await {
            Ok(DriverMessage::Message(message)) => return Ok(message),
            Ok(DriverMessage::Dead { code }) => return Err(how_it_died(code)),
            Ok(
                DriverMessage::Ready(_)
                | DriverMessage::Missing { .. }
                | DriverMessage::Failed(_)
                | DriverMessage::Languages(_),
            ) => {}
            Err(DriverGone(how)) => return Err(how),
        }
    }
}
