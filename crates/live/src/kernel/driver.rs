//! The programs around kernels, and the lines that pass between them and us.

use std::collections::BTreeMap;

use agent::words::{Code, Failure, Program};
use serde_json::json;
use tokio::sync::mpsc;

use super::lines::{DriverMessage, Message};
use super::programs::{Process, ProgramOutput, Programs};
use crate::words::Exec;

/// Our program around a Jupyter kernel.
const DRIVER: &str = include_str!("../../../../resources/kernels/python.py");
/// Our kernel for JavaScript and TypeScript, and the program around it.
const DRIVER_NODE: &str = include_str!("../../../../resources/kernels/node.js");
/// Starts Node: that of the template, or else that of the host.
const FIND_NODE: &str = include_str!("../../../../resources/kernels/node.sh");
/// What a Python kernel is told first.
const SETUP_PYTHON: &str = include_str!("../../../../resources/kernels/setup_python.py");
/// By it the programs of kernels are told from those of callers.
pub const SYSTEM_TAG: &str = "_system";
/// Longest line of a driver, bytes; it cuts its messages shorter by itself.
const MAX_LINE: usize = 16 << 20;

/// What a driver is told that is only to say which languages it has kernels for.
const LIST: &str = "--list";
const LIST_NODE: &str = "--list-node";
/// Most languages that a driver may name.
const MAX_LANGUAGES: usize = 64;

/// Why a driver is heard no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DriverGone(pub(super) String);

/// A driver that runs.
#[derive(Debug)]
pub(super) struct Driver {
    process: Process,
    lines: Lines,
    /// Names our messages.
    session: String,
    last: u64,
}

/// How a kernel is to be started.
#[derive(Clone, Debug)]
pub(super) struct KernelRequest {
    pub(super) language: String,
    pub(super) cwd: Option<String>,
    pub(super) env: BTreeMap<String, String>,
}

/// A language's name as it is used here.
///
/// # Errors
/// `invalid` for what can be no name.
pub(super) fn language(asked: Option<&str>) -> Result<String, Failure> {
    let name = asked.unwrap_or_default().trim().to_ascii_lowercase();
    let name = match name.as_str() {
        "" | "py" | "python3" => "python",
        "js" | "node" => "javascript",
        "ts" => "typescript",
        "sh" | "shell" => "bash",
        other => other,
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+#_-".contains(&byte);
    if name.len() > 32 || !name.bytes().all(plain) || name.starts_with('-') {
        return Err(Failure::new(Code::Invalid, "`language` is no name of a language".to_owned()));
    }
    Ok(name.to_owned())
}

/// The command line of a driver, and the program that it cannot do without.
fn command(language: &str) -> (Vec<String>, &'static str) {
    match language {
        "javascript" | "typescript" | LIST_NODE => {
            (["sh", "-c", FIND_NODE, "sh", DRIVER_NODE, language].map(str::to_owned).to_vec(), "sh")
        }
        _other => (["python3", "-I", "-c", DRIVER, language].map(str::to_owned).to_vec(), "python3"),
    }
}

/// What is wrong, where a sandbox has no kernel.
fn missing(language: &str, what: &str) -> Failure {
    let what: String = what.chars().filter(|c| !c.is_control()).take(100).collect();
    let message = format!(
        "the sandbox cannot execute {language}: it has no {what}. The template `code-interpreter-v1` has what Python, bash, \
         JavaScript and TypeScript need: `fumehood template build code-interpreter-v1`, then create the sandbox with `--template code-interpreter-v1`"
    );
    Failure::new(Code::Unsupported, message)
}

impl Driver {
    /// Starts the program around a kernel.
    async fn program(programs: &dyn Programs, wanted: &KernelRequest) -> Result<Self, Failure> {
        let (argv, needs) = command(&wanted.language);
        let program =
            Program { argv, env: wanted.env.clone(), cwd: wanted.cwd.clone(), stdin: true, ..Program::default() };
        let exec = Exec { program, tag: Some(SYSTEM_TAG.to_owned()), ..Exec::default() };
        let process = programs.start(exec).await.map_err(|failure| match failure.code.is_no_program() {
            true => missing(&wanted.language, needs),
            false => failure,
        })?;
        Ok(Self { process, lines: Lines::default(), session: super::random_word()?, last: 0 })
    }

    /// For which languages one family of drivers finds kernels; none where it cannot run at all. Bounded by whoever calls.
    async fn finds(programs: &dyn Programs, language: &str) -> Result<Vec<String>, Failure> {
        let wanted = KernelRequest { language: language.to_owned(), cwd: None, env: BTreeMap::new() };
        let mut driver = match Self::program(programs, &wanted).await {
            Ok(driver) => driver,
            Err(failure) if failure.code == Code::Unsupported => return Ok(Vec::new()),
            Err(failure) => return Err(failure),
        };
        let known = |name: &String| self::language(Some(name)).is_ok_and(|known| known == *name);
        match driver.next().await {
            Ok(DriverMessage::Languages(mut found)) => {
                found.retain(known);
                found.truncate(MAX_LANGUAGES);
                Ok(found)
            }
            Ok(
                DriverMessage::Missing { .. }
                | DriverMessage::Failed(_)
                | DriverMessage::Ready(_)
                | DriverMessage::Dead { .. }
                | DriverMessage::Message(_),
            )
            | Err(DriverGone(_)) => Ok(Vec::new()),
        }
    }

    /// Starts a kernel and waits until it answers. Bounded by whoever calls.
    pub(super) async fn start(programs: &dyn Programs, wanted: &KernelRequest) -> Result<Self, Failure> {
        let mut driver = Self::program(programs, wanted).await?;
        let failed = |message| Failure::new(Code::Failed, message);
        match driver.next().await {
            Ok(DriverMessage::Ready(_)) => {}
            Ok(DriverMessage::Missing { what }) => return Err(missing(&wanted.language, &what)),
            Ok(DriverMessage::Failed(why)) => {
                return Err(failed(format!("the kernel could not be started: {}", one_line(&why))));
            }
            Ok(DriverMessage::Dead { .. } | DriverMessage::Message(_) | DriverMessage::Languages(_)) => {
                return Err(failed("the driver of the kernel did not say that it is ready".to_owned()));
            }
            Err(DriverGone(why)) => return Err(failed(format!("the kernel could not be started: {}", one_line(&why)))),
        }
        Ok(driver)
    }

    /// A name for a message of our own to those who speak with the kernel.
    pub(super) fn name(&mut self) -> String {
        self.last = self.last.saturating_add(1);
        format!("{}_{}", self.session, self.last)
    }

    /// What the driver says next. Nothing is lost when this is dropped while it waits.
    pub(super) async fn next(&mut self) -> Result<DriverMessage, DriverGone> {
        loop {
            if let Some(line) = self.lines.take()? {
                return parse_message(line);
            }
            match self.process.output.recv().await {
                Some(ProgramOutput::Out(bytes)) => self.lines.push(&bytes),
                Some(ProgramOutput::Ended(how)) => return Err(DriverGone(how)),
                None => return Err(DriverGone("its driver is gone".to_owned())),
            }
        }
    }

    /// Asks for code to be executed; the request's id.
    pub(super) fn execute(&mut self, code: &str, silent: bool) -> (String, Vec<u8>) {
        let id = self.name();
        let header = json!({
            "msg_id": id, "username": "fumehood", "session": self.session, "msg_type": "execute_request", "version": "5.3",
        });
        let content = json!({
            "code": code, "silent": silent, "store_history": !silent, "user_expressions": {}, "stop_on_error": true,
            "allow_stdin": false,
        });
        let message = json!({"header": header, "content": content});
        let line = format!("{}\n", json!({"op": "send", "channel": "shell", "message": message}));
        (id, line.into_bytes())
    }

    /// Where bytes for the driver go.
    pub(super) fn input(&self) -> mpsc::Sender<Vec<u8>> {
        self.process.input.clone()
    }
}

/// A line as what it is.
pub(super) fn parse_message(line: Vec<u8>) -> Result<DriverMessage, DriverGone> {
    let read = serde_json::from_slice(&line);
    let mut word =
        read.map_err(|error| DriverGone(format!("its driver said what is no message ({error}), and was ended")))?;
    if let DriverMessage::Message(message) = &mut word {
        message.line = line;
    }
    Ok(word)
}

/// All languages whose kernels are found.
///
/// # Errors
/// What the start of a program can say.
pub(super) async fn languages(programs: &dyn Programs) -> Result<Vec<String>, Failure> {
    let mut found = Driver::finds(programs, LIST).await?;
    found.extend(Driver::finds(programs, LIST_NODE).await?);
    found.sort();
    found.dedup();
    Ok(found)
}

/// The line that interrupts.
pub(super) fn interrupt() -> Vec<u8> {
    b"{\"op\":\"interrupt\"}\n".to_vec()
}

/// A kernel's own words in a sentence of ours.
pub(super) fn one_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    line.chars().filter(|c| !c.is_control()).take(400).collect()
}

/// Whether a message answers a request.
pub(super) fn answers(message: &Message, id: &str) -> bool {
    message.parent_header.msg_id == id
}

/// Bytes as lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were given out.
    taken: usize,
    /// Bytes after `taken` in which there is no newline.
    looked: usize,
}

impl Lines {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    pub(super) fn take(&mut self) -> Result<Option<Vec<u8>>, DriverGone> {
        let rest = self.buffer.get(self.taken..).unwrap_or_default();
        let Some(found) = rest.iter().skip(self.looked).position(|byte| *byte == b'\n') else {
            self.looked = rest.len();
            if rest.len() > MAX_LINE {
                return Err(DriverGone("its driver said a line that has no end, and was ended".to_owned()));
            }
            // A kernel that is silent keeps no room for the largest picture that it ever showed.
            if rest.is_empty() {
                self.buffer = Vec::new();
                self.taken = 0;
            }
            return Ok(None);
        };
        let end = self.looked.saturating_add(found);
        let line = rest.get(..end).unwrap_or_default().to_vec();
        self.taken = self.taken.saturating_add(end).saturating_add(1);
        self.looked = 0;
        Ok(Some(line))
    }
}

/// What is executed in a kernel before anything else, where there is something.
pub(super) fn setup(language: &str) -> Option<&'static str> {
    (language == "python").then_some(SETUP_PYTHON)
}

/// Code that sets variables for one execution, and code that puts back what was there.
///
/// # Errors
/// `invalid` for names that no environment has; `unsupported` for languages where nobody knows how.
pub(super) fn environment(language: &str, env: &BTreeMap<String, String>) -> Result<Option<[String; 2]>, Failure> {
    if env.is_empty() {
        return Ok(None);
    }
    let is_name = |name: &str| {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        plain && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())
    };
    if let Some(name) = env.keys().find(|name| !is_name(name)) {
        let message = format!("`{}` can be no name of a variable", one_line(name));
        return Err(Failure::new(Code::Invalid, message));
    }
    if env.values().any(|value| value.contains('\0')) {
        return Err(Failure::new(Code::Invalid, "a variable cannot hold a NUL".to_owned()));
    }
    match language {
        "python" => Ok(Some(python_environment(env))),
        "bash" => Ok(Some(bash_environment(env))),
        "javascript" | "typescript" => Ok(Some(node_environment(env))),
        other => {
            let message = format!("variables of one execution cannot be set in {other}: give them to the context");
            Err(Failure::new(Code::Unsupported, message))
        }
    }
}

fn python_environment(env: &BTreeMap<String, String>) -> [String; 2] {
    // A JSON object of texts is a literal of the same meaning in Python, and in JavaScript.
    let call = |argument: &str| format!("__import__('IPython').get_ipython()._fumehood_environment({argument})");
    [call(&json!(env).to_string()), call("None")]
}

fn node_environment(env: &BTreeMap<String, String>) -> [String; 2] {
    let names = json!(env.keys().collect::<Vec<_>>());
    let set = format!(
        "globalThis.__fumehood = {names}.map(n => [n, process.env[n]]); Object.assign(process.env, {}); undefined",
        json!(env)
    );
    let reset = "for (const [n, v] of globalThis.__fumehood ?? []) { if (v === undefined) delete process.env[n]; \
                 else process.env[n] = v } undefined";
    [set, reset.to_owned()]
}

fn bash_environment(env: &BTreeMap<String, String>) -> [String; 2] {
    let set = env.iter().map(|(name, value)| {
        let value = crate::quoted(value);
        format!("[ -n \"${{{name}+x}}\" ] && __fumehood_{name}=\"${name}\"\nexport {name}={value}\n")
    });
    let reset = env.keys().map(|name| {
        format!(
            "if [ -n \"${{__fumehood_{name}+x}}\" ]; then export {name}=\"$__fumehood_{name}\"; unset __fumehood_{name}; \
             else unset {name}; fi\n"
        )
    });
    [set.collect(), reset.collect()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_the_bytes_are_cut_and_none_grows_for_ever() {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for chunk in b"{\"a\":1}\n\n{\"b\":22}\nrest".chunks(3) {
            lines.push(chunk);
            while let Some(line) = lines.take().unwrap() {
                found.push(String::from_utf8(line).unwrap());
            }
        }
        assert_eq!(found, ["{\"a\":1}", "", "{\"b\":22}"]);
        let mut endless = Lines::default();
        let mut pushed = 0;
        while pushed <= MAX_LINE {
            assert_eq!(endless.take(), Ok(None));
            endless.push(&[b'x'; 65536]);
            pushed += 65536;
        }
        assert!(endless.take().is_err());
    }

    #[test]
    fn names_of_languages_are_few_words_for_one_thing() {
        for (asked, is) in
            [(None, "python"), (Some("JS"), "javascript"), (Some(" ts "), "typescript"), (Some("r"), "r")]
        {
            assert_eq!(language(asked).unwrap(), is);
        }
        for wrong in ["--help", "a b", "é", "x/../y", &"x".repeat(33)] {
            assert_eq!(language(Some(wrong)).unwrap_err().code, Code::Invalid, "{wrong}");
        }
    }

    #[test]
    fn variables_are_quoted_and_names_that_are_code_are_refused() {
        let env = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let [set, _] = environment("bash", &env("A", "it's $(x)")).unwrap().unwrap();
        assert!(set.ends_with("export A='it'\\''s $(x)'\n"), "{set}");
        let [set, _] = environment("python", &env("A", "\"); import os #\n")).unwrap().unwrap();
        assert!(set.contains(r#"{"A":"\"); import os #\n"}"#), "{set}");
        for wrong in ["", "A;id", "1A", "A B", "A=", "é"] {
            assert_eq!(environment("bash", &env(wrong, "x")).unwrap_err().code, Code::Invalid, "{wrong}");
        }
        assert_eq!(environment("r", &env("A", "x")).unwrap_err().code, Code::Unsupported);
        assert_eq!(environment("r", &BTreeMap::new()), Ok(None));
    }
}
