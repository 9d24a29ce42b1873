//! The only place that writes to stdout and stderr.

use std::io::{ErrorKind, Write as _};

use crate::environment::Environment;
use crate::ui::{Failure, Palette, When};
use sandbox::fault::{Fault, show_json};

/// Our two streams: data goes to stdout, words to stderr.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    /// Colours of stdout.
    pub out: Palette,
    /// Colours of stderr.
    pub err: Palette,
    /// Width to wrap to.
    pub columns: usize,
}

impl Console {
    /// The console for these circumstances.
    #[must_use]
    pub fn new(environment: &Environment, when: When) -> Self {
        let decide = |terminal| when.decide(terminal, environment.variable("NO_COLOR"), environment.variable("TERM"));
        Self {
            out: decide(environment.stdout_terminal),
            err: decide(environment.stderr_terminal),
            columns: environment.columns,
        }
    }

    /// Writes words to stderr. Nobody listening is no reason to fail: the exit code says the same.
    pub fn eprint(&self, words: &str) {
        let mut err = std::io::stderr().lock();
        if err.write_all(words.as_bytes()).is_ok() && !words.ends_with('\n') && err.write_all(b"\n").is_err() {
            // The words are out but for their line's end.
        }
    }

    /// Writes data to stdout. A reader that went away (`| head`) has seen what it wanted: then the answer is `false`.
    ///
    /// # Errors
    /// `out/unwritable` (125) if the data could not be written for another reason, e.g. a full disk (ENOSPC).
    pub fn data(&self, data: &[u8]) -> Result<bool, Failure> {
        let mut out = std::io::stdout().lock();
        match out.write_all(data).and_then(|()| out.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::own(Fault {
                id: "out/unwritable",
                what: "cannot write to stdout".to_owned(),
                place: "stdout".to_owned(),
                why: error.to_string().to_lowercase(),
                fix: "make room, or send stdout elsewhere".to_owned(),
            })),
        }
    }

    /// Writes one JSON value and a line's end to stdout.
    ///
    /// # Errors
    /// As [`Console::data`].
    pub fn json(&self, value: &impl serde::Serialize) -> Result<bool, Failure> {
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        self.data(format!("{}\n", show_json(text)).as_bytes())
    }

    /// Says why there is no result, to people or programs; the exit code.
    #[must_use]
    pub fn fail(&self, failure: &Failure, json: bool) -> u8 {
        if !(json && self.json(&failure.json()).is_ok()) {
            self.eprint(&failure.text(self.err, self.columns));
        }
        failure.code()
    }
}
