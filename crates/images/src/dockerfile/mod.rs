//! A Dockerfile as instructions, each with its line. What is not known here is refused by name: half of a recipe makes
//! another image.

mod lines;
mod words;

pub(crate) use words::{Scope, expand};

use lines::{Line, lines};
use words::{json_words, pairs, split};

/// No Dockerfile is larger.
pub(crate) const MAX_DOCKERFILE: u64 = 1 << 20;
/// Nor has more instructions.
const MAX_INSTRUCTIONS: usize = 1000;

/// Why a Dockerfile is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// From 1.
    pub(crate) line: usize,
    /// What stands there.
    pub(crate) what: String,
    /// Why not.
    pub(crate) why: String,
}

/// A command: words, or a line for `/bin/sh -c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Words(Vec<String>),
    Shell(String),
}

impl Command {
    /// As a configuration has it.
    pub(crate) fn argv(&self) -> Vec<String> {
        match self {
            Self::Words(words) => words.clone(),
            Self::Shell(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()],
        }
    }
}

/// `COPY`, and `ADD` of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    /// Written as `ADD`, which unpacks archives.
    pub(crate) add: bool,
    pub(crate) sources: Vec<String>,
    pub(crate) to: String,
    /// A stage or an image.
    pub(crate) from: Option<String>,
    pub(crate) chown: Option<String>,
    pub(crate) chmod: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Instruction {
    From { image: String, name: Option<String> },
    Run(Command),
    Copy(Copy),
    Env(Vec<(String, String)>),
    Arg { name: String, default: Option<String> },
    User(String),
    Workdir(String),
    Cmd(Command),
    Entrypoint(Command),
    Label(Vec<(String, String)>),
    Expose(Vec<String>),
}

/// One instruction, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) line: usize,
    /// As it is written, without continuations.
    pub(crate) text: String,
    pub(crate) does: Instruction,
}

/// Reads a Dockerfile.
///
/// # Errors
/// The first thing that is not known here.
pub(crate) fn parse(text: &str) -> Result<Vec<Step>, Refused> {
    let mut steps = Vec::new();
    let mut begun = false;
    for line in lines(text)? {
        let step = step(&line)?;
        begun |= matches!(step.does, Instruction::From { .. });
        if !begun && !matches!(step.does, Instruction::Arg { .. }) {
            return Err(line.refused("only ARG may stand before the first FROM"));
        }
        steps.push(step);
        if steps.len() > MAX_INSTRUCTIONS {
            return Err(line.refused(&format!("there are more than {MAX_INSTRUCTIONS} instructions")));
        }
    }
    if begun {
        return Ok(steps);
    }
    Err(Refused { line: 1, what: "the Dockerfile".to_owned(), why: "it has no FROM".to_owned() })
}

fn step(line: &Line) -> Result<Step, Refused> {
    let (word, rest) = line.text.split_once(char::is_whitespace).unwrap_or((&line.text, ""));
    let (options, rest) = options(rest.trim());
    let known = |allowed: &[&str]| {
        let other = options.iter().find(|(name, _)| !allowed.contains(&name.as_str()));
        other.map_or(Ok(()), |(name, _)| Err(line.refused(&format!("the option `--{name}` is not known here"))))
    };
    let text = || if rest.is_empty() { Err(line.refused("nothing follows it")) } else { Ok(rest.to_owned()) };
    let does = match word.to_ascii_uppercase().as_str() {
        "FROM" => {
            known(&[])?;
            from(line, rest)?
        }
        "RUN" => {
            known(&[])?;
            Instruction::Run(command(line, rest)?)
        }
        "COPY" => {
            known(&["from", "chown", "chmod"])?;
            Instruction::Copy(copy(line, &options, rest, false)?)
        }
        "ADD" => {
            known(&["chown", "chmod"])?;
            Instruction::Copy(copy(line, &options, rest, true)?)
        }
        "ENV" => {
            known(&[])?;
            Instruction::Env(pairs(rest).map_err(|why| line.refused(why))?)
        }
        "LABEL" => {
            known(&[])?;
            Instruction::Label(pairs(rest).map_err(|why| line.refused(why))?)
        }
        "ARG" => {
            known(&[])?;
            arg(line, rest)?
        }
        "USER" => {
            known(&[])?;
            Instruction::User(text()?)
        }
        "WORKDIR" => {
            known(&[])?;
            Instruction::Workdir(text()?)
        }
        "CMD" => {
            known(&[])?;
            Instruction::Cmd(command(line, rest)?)
        }
        "ENTRYPOINT" => {
            known(&[])?;
            Instruction::Entrypoint(command(line, rest)?)
        }
        "EXPOSE" => {
            known(&[])?;
            Instruction::Expose(text()?.split_whitespace().map(str::to_owned).collect())
        }
        other => return Err(line.refused(&format!("the instruction `{other}` is not known here"))),
    };
    Ok(Step { line: line.number, text: line.text.clone(), does })
}

/// `--NAME=VALUE` in front.
fn options(mut rest: &str) -> (Vec<(String, String)>, &str) {
    let mut found = Vec::new();
    while let Some(option) = rest.strip_prefix("--") {
        let (word, after) = option.split_once(char::is_whitespace).unwrap_or((option, ""));
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        found.push((name.to_owned(), value.to_owned()));
        rest = after.trim_start();
    }
    (found, rest)
}

fn from(line: &Line, rest: &str) -> Result<Instruction, Refused> {
    let words: Vec<_> = rest.split_whitespace().collect();
    match words.as_slice() {
        [image] => Ok(Instruction::From { image: (*image).to_owned(), name: None }),
        [image, word, name] if word.eq_ignore_ascii_case("as") => {
            Ok(Instruction::From { image: (*image).to_owned(), name: Some(name.to_lowercase()) })
        }
        _ => Err(line.refused("it is `FROM IMAGE` or `FROM IMAGE AS NAME`")),
    }
}

fn command(line: &Line, rest: &str) -> Result<Command, Refused> {
    if rest.is_empty() {
        return Err(line.refused("nothing follows it"));
    }
    if rest.starts_with("<<") || rest.split_whitespace().any(|word| word.starts_with("<<") && word.len() > 2) {
        return Err(line.refused("texts after `<<` are not known here: write a script and COPY it"));
    }
    match json_words(rest) {
        Some(words) => Ok(Command::Words(words)),
        None => Ok(Command::Shell(rest.to_owned())),
    }
}

fn copy(line: &Line, options: &[(String, String)], rest: &str, add: bool) -> Result<Copy, Refused> {
    let option = |wanted: &str| options.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
    let mut words = json_words(rest).unwrap_or(split(rest).map_err(|why| line.refused(why))?);
    let (Some(to), false) = (words.pop(), words.is_empty()) else {
        return Err(line.refused("it needs what to copy, and where to"));
    };
    if words.iter().chain([&to]).any(|word| word.starts_with("<<")) {
        return Err(line.refused("texts after `<<` are not known here: write a file and COPY it"));
    }
    if let Some(address) = words.iter().find(|word| word.contains("://") || word.starts_with("git@")) {
        return Err(line.refused(&format!("`{address}` is no file of the folder: nothing is fetched")));
    }
    let chmod = match option("chmod") {
        None => None,
        Some(text) => match u32::from_str_radix(&text, 8) {
            Ok(mode) if mode <= 0o777 => Some(mode),
            Ok(_) | Err(_) => return Err(line.refused("`--chmod` takes an octal number up to 777")),
        },
    };
    Ok(Copy { add, sources: words, to, from: option("from"), chown: option("chown"), chmod })
}

fn arg(line: &Line, rest: &str) -> Result<Instruction, Refused> {
    let words = split(rest).map_err(|why| line.refused(why))?;
    let [word] = words.as_slice() else { return Err(line.refused("it is `ARG NAME` or `ARG NAME=VALUE`")) };
    let (name, default) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (word.as_str(), None),
    };
    let fits = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !fits {
        return Err(line.refused("a name has letters, digits and _"));
    }
    Ok(Instruction::Arg { name: name.to_owned(), default })
}

#[cfg(test)]
mod tests;
