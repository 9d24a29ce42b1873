//! What a template's sandbox begins with: a command that goes on, and one that says when all is ready.

use std::time::Duration;

use agent::words::Program;
use sandbox::fault::show_text;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout_at};

use crate::client::{Client, Incoming, Stream};
use crate::template::{Recipe, Store, TemplateError};
use crate::words::{Ask, Exec, Report};

/// A sandbox that is not ready by then is ended.
pub const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// How long one `ready` may take.
const ASKED_MS: u64 = 10_000;
/// Between one `ready` and the next.
const AGAIN: Duration = Duration::from_millis(250);
/// Bytes of the end of an output that are told.
const TOLD: usize = 2000;
/// Characters of a command line that are told.
const TOLD_OF_LINE: usize = 200;
/// Finds the program of `start` in `ps` and `logs`.
const TAG: &str = "start";

/// A word of a command line of `sh`, whatever is in it.
#[must_use]
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The commands of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// A command line for `sh` that the sandbox begins with, and that may go on as long as it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// A command line for `sh`: the sandbox is there when it exits with 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Milliseconds until it must be ready, where that is sooner than [`READY_TIMEOUT`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
}

impl Begin {
    /// What a recipe says.
    #[must_use]
    pub fn of_recipe(recipe: &Recipe) -> Self {
        Self { start: recipe.start.clone(), ready: recipe.ready.clone(), within_ms: None }
    }

    /// Those of a template; none where nothing is to be done.
    ///
    /// # Errors
    /// The template is there and cannot be read.
    pub(crate) fn of(store: &Store, template: &str) -> Result<Option<Self>, TemplateError> {
        // A server's names may have a tag, and may be those of presets.
        let name = template.split_once(':').map_or(template, |(name, _tag)| name);
        let begin = match store.find(name) {
            Ok(template) => Self::of_recipe(&template.recipe),
            Err(TemplateError::Unknown(_) | TemplateError::Name(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok((begin != Self::default()).then_some(begin))
    }

    /// Does it; in words why not.
    pub(crate) async fn run(self, client: Client) -> Result<(), String> {
        let mut started = match &self.start {
            Some(line) => {
                Some(RunningCommand { stream: start(&client, line).await?, said: Tail::default(), ended: None })
            }
            None => None,
        };
        let Some(ready) = self.ready else { return Ok(()) };
        let within = self.within_ms.map_or(READY_TIMEOUT, |ms| Duration::from_millis(ms).min(READY_TIMEOUT));
        let until = Instant::now().checked_add(within).unwrap_or_else(Instant::now);
        let mut last = "it has not ended once".to_owned();
        let all = async {
            loop {
                match asked(&client, &ready).await? {
                    None => return Ok(()),
                    Some(how) => last = how,
                }
                if let Some(started) = &mut started {
                    started.hear().await;
                    started.check()?;
                }
                sleep(AGAIN).await;
            }
        };
        let Ok(done) = timeout_at(until, all).await else {
            let said = started.map_or_else(String::new, |started| format!("; `start` said: {}", started.said.text()));
            let seconds = within.as_secs_f64();
            return Err(format!("`ready` ({}) did not succeed within {seconds} s: {last}{said}", shown(&ready)));
        };
        done
    }
}

/// A command line in words for people, cut where it is long.
fn shown(line: &str) -> String {
    let begin: String = line.chars().take(TOLD_OF_LINE).collect();
    let rest = if begin.len() < line.len() { "..." } else { "" };
    format!("{}{rest}", show_text(&begin))
}

fn shell(line: &str) -> Program {
    Program { argv: ["sh", "-c", line].map(str::to_owned).to_vec(), ..Program::default() }
}

async fn start(client: &Client, line: &str) -> Result<Stream, String> {
    let exec = Exec { program: shell(line), detach: true, tag: Some(TAG.to_owned()), ..Exec::default() };
    let failed = |error: crate::client::Error| format!("`start` could not be started: {error}");
    let mut stream = client.open(&Ask::Exec(exec)).map_err(failed)?;
    stream.reply().await.map_err(failed)?;
    Ok(stream)
}

/// Asks `ready`: none where it succeeded, else how it ended and what it said.
async fn asked(client: &Client, line: &str) -> Result<Option<String>, String> {
    let exec = Exec { program: shell(line), timeout_ms: Some(ASKED_MS), ..Exec::default() };
    let mut stream = client.open(&Ask::Exec(exec)).map_err(|error| error.to_string())?;
    let mut said = Tail::default();
    while let Some(incoming) = stream.next().await {
        match incoming {
            Incoming::Out(bytes) | Incoming::Err(bytes) => said.push(&bytes),
            Incoming::Event(_) => {}
            Incoming::End(Ok(report)) => {
                let report = serde_json::from_value::<Report>(report).map_err(|error| error.to_string())?;
                return Ok(unready(&report, &said));
            }
            Incoming::End(Err(failure)) => return Err(format!("`ready` could not be started: {}", failure.message)),
        }
    }
    Err("the sandbox has ended".to_owned())
}

/// How a `ready` ended that did not succeed, and what it said.
fn unready(report: &Report, said: &Tail) -> Option<String> {
    let how = match (report.code, &report.limit) {
        (Some(0), _limit) => return None,
        (_code, Some(_limit)) => show_text(&report.message),
        (Some(code), None) => format!("it exited with {code}"),
        (None, None) => "it was ended by a signal".to_owned(),
    };
    Some(format!("at the last {how}, and said: {}", said.text()))
}

/// The command that goes on.
struct RunningCommand {
    stream: Stream,
    said: Tail,
    /// Its exit code, or a sentence.
    ended: Option<Result<Option<i32>, String>>,
}

impl RunningCommand {
    /// What it said meanwhile.
    async fn hear(&mut self) {
        while self.ended.is_none() {
            let Ok(incoming) = timeout_at(Instant::now(), self.stream.next()).await else { return };
            match incoming {
                Some(Incoming::Out(bytes) | Incoming::Err(bytes)) => self.said.push(&bytes),
                Some(Incoming::Event(_)) => {}
                Some(Incoming::End(Ok(report))) => {
                    let report = serde_json::from_value::<Report>(report);
                    self.ended = Some(report.map(|report| report.code).map_err(|error| error.to_string()));
                }
                Some(Incoming::End(Err(failure))) => self.ended = Some(Err(failure.message)),
                None => self.ended = Some(Err("the sandbox has ended".to_owned())),
            }
        }
    }

    /// One that left something running and exited with 0 has done its work; any other end is a failure.
    fn check(&self) -> Result<(), String> {
        let how = match &self.ended {
            None | Some(Ok(Some(0))) => return Ok(()),
            Some(Ok(Some(code))) => format!("exited with {code}"),
            Some(Ok(None)) => "was ended by a signal".to_owned(),
            Some(Err(why)) => why.clone(),
        };
        Err(format!("`start` {how} before `ready` succeeded; it said: {}", self.said.text()))
    }
}

/// The end of an output.
#[derive(Debug, Default)]
struct Tail(Vec<u8>);

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let over = self.0.len().saturating_sub(TOLD);
        self.0.drain(..over);
    }

    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let text = text.trim();
        if text.is_empty() { "nothing".to_owned() } else { show_text(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_word_whatever_is_in_it() {
        assert_eq!(quoted("/a b'; rm -rf /"), "'/a b'\\''; rm -rf /'");
    }

    #[test]
    fn commands_are_those_of_the_template_under_any_of_its_names() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::new(state.path());
        let file = state.path().join("recipe.toml");
        std::fs::write(&file, "start = \"serve\"\nready = \"true\"\n").unwrap();
        let source = crate::template::Source::file(&file).unwrap();
        let tools = crate::template::Tools::new(&sandbox::Environment::default());
        store.build("team", &source, &tools).unwrap();
        let wanted = Begin { start: Some("serve".to_owned()), ready: Some("true".to_owned()), ..Begin::default() };
        assert_eq!(Begin::of(&store, "team:latest").unwrap(), Some(wanted));
        for none in ["", "base", "strict", "../x"] {
            assert_eq!(Begin::of(&store, none).unwrap(), None, "{none}");
        }
        std::fs::write(state.path().join("templates/names/broken"), "nothing").unwrap();
        assert!(Begin::of(&store, "broken").is_err(), "one that cannot be read is none without commands");
    }

    #[test]
    fn of_a_ready_its_code_and_its_last_words_are_told() {
        let mut said = Tail::default();
        said.push(b"no route\n");
        let report = |code| {
            let told = serde_json::json!({ "outcome": "exited", "code": code, "message": "", "wall": 0.0, "cpu_user": 0.0,
                "cpu_system": 0.0, "memory_peak": 0, "output": 0, "dropped": 0 });
            serde_json::from_value::<Report>(told).unwrap()
        };
        assert_eq!(unready(&report(Some(7)), &said).unwrap(), "at the last it exited with 7, and said: no route");
        assert!(unready(&report(None), &said).unwrap().contains("by a signal"));
        assert_eq!(unready(&report(Some(0)), &said), None);
        assert_eq!((shown("true"), shown(&"x".repeat(300)).len()), ("true".to_owned(), TOLD_OF_LINE + 3));
    }

    #[test]
    fn of_an_output_the_end_is_told() {
        let mut tail = Tail::default();
        assert_eq!(tail.text(), "nothing");
        tail.push(&[b'x'; 5000]);
        tail.push(b"end\n");
        assert!(tail.text().ends_with("xend") && tail.text().len() < TOLD, "{}", tail.text());
    }
}
