//! Command lines: read as bash reads them, judged word by word, run as judged.
//!
//! A line is allowed only if each program that bash would start for it is known beforehand, each of its words fits the
//! table of that program, and nothing is written outside the folders of the policy. What cannot be proven is refused.
//!
//! *Does not promise*: a boundary. An allowed program does what it does; only the sandbox around it holds that.

use std::ffi::OsString;
use std::path::PathBuf;

use policy::commands::Commands;
use policy::mistake::Mistakes;
use policy::spot::Documents;

use crate::guard::Blocked;

/// Where commands are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Around {
    /// The folder in which they run, as they see it: relative paths start here.
    pub root: PathBuf,
    /// The same folder as this process sees it, to look at a repository's configuration; none if there is no such folder.
    pub inspect: Option<PathBuf>,
    /// The tree in which programs are found: `/`, or the root of the sandbox as this process sees it.
    pub tree: PathBuf,
}

/// A program as it would be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The absolute path that is executed.
    pub path: PathBuf,
    /// Its words, the name first; a word that only running could tell is shown as written.
    pub argv: Vec<String>,
    /// What its environment has beside the caller's allowlist.
    pub env: Vec<(String, String)>,
}

/// What became of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It may run.
    Allowed {
        /// Every program that it starts, in the order in which they are written.
        programs: Vec<Resolved>,
        /// Whether bash must read the line; else `programs` is the one program, to be executed without a shell.
        shell: bool,
    },
    /// It may not, and why; all reasons.
    Refused(Vec<Blocked>),
}

/// Judges command lines by one `[commands]` table.
#[derive(Debug)]
pub struct Judge {
    around: Around,
}

impl Judge {
    /// Compiles the tables that the policy names and resolves their programs.
    ///
    /// # Errors
    /// Names without a table, variables that run code, and patterns that match nothing, each at its place.
    pub fn new(commands: &Commands, documents: &Documents, around: Around) -> Result<Self, Mistakes> {
        let (_, _) = (commands, documents);
        Ok(Self { around })
    }

    /// Judges a line as bash would read it.
    #[must_use]
    pub fn line(&self, line: &str) -> Judgement {
        self.refuse(line)
    }

    /// Judges words that are executed without a shell.
    #[must_use]
    pub fn argv(&self, words: &[OsString]) -> Judgement {
        self.refuse(&words.join(std::ffi::OsStr::new(" ")).to_string_lossy())
    }

    fn refuse(&self, line: &str) -> Judgement {
        Judgement::Refused(vec![Blocked {
            id: "commands.program/not-allowed",
            what: format!("{} in {} is not allowed", policy::mistake::quote(line), self.around.root.display()),
            why: "the policy lists no program that this version can judge".to_owned(),
            instead: "nothing".to_owned(),
        }])
    }
}
