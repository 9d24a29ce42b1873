//! What a build is asked to do, read strictly: what cannot be done is refused before anything is.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use axum::http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::uploads::is_hash;
use crate::answer::Problem;
use crate::json;
use crate::templates::{BASE, INTERPRETER};

/// Most steps of a build.
const MAX_STEPS: usize = 200;
/// Longest command line and longest path, bytes.
const MAX_COMMAND: usize = 65_536;
/// Longest command that a sandbox begins with, as in a recipe, bytes.
const MAX_BEGIN: usize = 8192;
const MAX_PATH: usize = 4096;
/// Most variables of a build, and most bytes of one with its name.
const MAX_VARIABLES: usize = 200;
const MAX_VARIABLE: usize = 32_768;

/// Where programs may write without being told so, and what is written is kept.
const OPEN: [&str; 3] = ["/home/user", "/tmp", "/var/tmp"];
/// The place beside them, unless a build names another.
const PLACE: &str = "/workspace";
/// Places that are the sandbox's own or the host's programs; none of them can be a build's.
const TAKEN: [&str; 16] = [
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "mnt", "proc", "root", "run", "sbin",
    "sys", "usr",
];
/// Folders in which others lie that are not the build's: the place is one below them.
const SHARED: [&str; 2] = ["opt", "var"];
/// Where templates of the server are shown.
const OURS: &str = "/opt/fumehood";

/// What a template begins as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BuildBase {
    /// A template by its name.
    Template(String),
    /// An image of the server's store.
    Image(String),
}

/// Files that are put inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Copy {
    /// As the client wrote it: a path or pattern in its folder.
    pub(crate) source: String,
    pub(crate) to: String,
    /// Permissions of all of them.
    pub(crate) mode: Option<u32>,
    pub(crate) hash: String,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Step {
    Copy(Copy),
    Run(String),
    Env(Vec<(String, String)>),
    Workdir(String),
    /// Nothing changes: a sandbox has one user.
    User,
}

/// A step as it was read.
struct ReadStep {
    step: Step,
    /// It is to be root's.
    is_root: bool,
    /// It is to be done whatever an earlier build left.
    is_forced: bool,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BuildRequest {
    pub(crate) from: BuildBase,
    pub(crate) steps: Vec<Step>,
    /// So many of them, from the first on, may be taken from an earlier build.
    pub(crate) reusable: usize,
    pub(crate) start: Option<String>,
    pub(crate) ready: Option<String>,
    /// Steps that are to be root's: they are the sandbox's user's.
    pub(crate) rootless: Vec<usize>,
    /// The place beside the home folder that they write to; none where they name none.
    pub(crate) place: Option<String>,
}

impl BuildRequest {
    /// The files that it copies, by their hash, and the index of each step.
    pub(crate) fn copies(&self) -> impl Iterator<Item = (usize, &str)> {
        self.steps.iter().enumerate().filter_map(|(at, step)| match step {
            Step::Copy(copy) => Some((at, copy.hash.as_str())),
            Step::Run(_) | Step::Env(_) | Step::Workdir(_) | Step::User => None,
        })
    }
}

/// Reads a request.
///
/// # Errors
/// What of it cannot be done, by its field.
pub(crate) fn asked(body: &Map<String, Json>) -> Result<BuildRequest, Problem> {
    json::acted_on(body, &["fromImage", "fromTemplate", "force", "steps", "startCmd", "readyCmd"])?;
    let is_forced = json::flag(body, "force")?.unwrap_or(false);
    let list = match body.get("steps") {
        None | Some(Json::Null) => &Vec::new(),
        Some(Json::Array(list)) => list,
        Some(_) => return Err(Problem::invalid("steps", "`steps` is no list")),
    };
    if list.len() > MAX_STEPS {
        return Err(Problem::invalid("steps", &format!("there are more than {MAX_STEPS} steps")));
    }
    let (mut steps, mut rootless, mut variables) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut reusable = if is_forced { 0 } else { list.len() };
    for (at, one) in list.iter().enumerate() {
        let number = at.saturating_add(1);
        let read = step(one).map_err(|problem| problem.below(&format!("steps[{at}]")))?;
        if let Step::Env(pairs) = &read.step {
            variables.extend(pairs.iter().cloned());
        }
        if read.is_root {
            rootless.push(number);
        }
        if read.is_forced {
            reusable = reusable.min(at);
        }
        steps.push(read.step);
    }
    if variables.len() > MAX_VARIABLES {
        return Err(Problem::invalid("steps", &format!("there are more than {MAX_VARIABLES} variables")));
    }
    let command = |field: &str| match json::text(body, field)?.filter(|text| !text.trim().is_empty()) {
        Some(text) if text.len() > MAX_BEGIN => {
            Err(Problem::invalid(field, &format!("`{field}` is longer than {MAX_BEGIN} bytes")))
        }
        Some(text) => line(field, text).map(Some),
        None => Ok(None),
    };
    let place = place(&steps)?;
    Ok(BuildRequest {
        from: from(body)?,
        steps,
        reusable,
        start: command("startCmd")?,
        ready: command("readyCmd")?,
        rootless,
        place,
    })
}

/// E2B's own images are those that our templates of the same names stand for.
fn from(body: &Map<String, Json>) -> Result<BuildBase, Problem> {
    let word = |field: &str| Ok::<_, Problem>(json::text(body, field)?.filter(|text| !text.is_empty()));
    match (word("fromTemplate")?, word("fromImage")?) {
        (Some(_), Some(_)) => Err(Problem::invalid("fromImage", "both `fromImage` and `fromTemplate`")),
        (Some(template), None) => Ok(BuildBase::Template(template.to_owned())),
        (None, None) => Ok(BuildBase::Template(BASE.to_owned())),
        (None, Some(image)) => {
            let name = image.split_once([':', '@']).map_or(image, |(name, _)| name);
            let ours = match name.strip_prefix("docker.io/").unwrap_or(name) {
                "e2bdev/base" => Some(BASE),
                "e2bdev/code-interpreter" => Some(INTERPRETER),
                _ => None,
            };
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
            if image.len() > MAX_PATH || !image.chars().all(plain) {
                return Err(Problem::invalid("fromImage", "`fromImage` is no name of an image"));
            }
            Ok(ours.map_or_else(|| BuildBase::Image(image.to_owned()), |ours| BuildBase::Template(ours.to_owned())))
        }
    }
}

/// What clients do themselves by a step of theirs, and send with it.
const CLIENTS: [&str; 3] = ["forceUpload", "resolveSymlinks", "gzip"];

fn step(step: &Json) -> Result<ReadStep, Problem> {
    let Json::Object(step) = step else { return Err(Problem::invalid("type", "a step is no table")) };
    json::acted_on(step, &[&["type", "args", "filesHash", "force"][..], &CLIENTS].concat())?;
    let is_forced = json::flag(step, "force")?.unwrap_or(false);
    let (step, is_root) = kind(step)?;
    Ok(ReadStep { step, is_root, is_forced })
}

/// What a step does, and whether it is to be root's.
fn kind(step: &Map<String, Json>) -> Result<(Step, bool), Problem> {
    let args = json::list(step, "args")?;
    let word = |at: usize| args.get(at).map(String::as_str).filter(|text| !text.is_empty());
    let kind = json::text(step, "type")?.unwrap_or_default();
    let most = match kind {
        "COPY" => 4,
        "RUN" => 2,
        "WORKDIR" | "USER" => 1,
        _ => usize::MAX,
    };
    if args.len() > most || (args.is_empty() && kind != "ENV") {
        return Err(Problem::invalid("args", &format!("`{kind}` has {} arguments", args.len())));
    }
    let missing = || Problem::invalid("args", &format!("an argument of `{kind}` is empty"));
    match kind {
        "COPY" => {
            let is_root = user(word(2))?;
            let hash = json::text(step, "filesHash")?.filter(|hash| is_hash(hash));
            let hash = hash.ok_or_else(|| Problem::invalid("filesHash", "`filesHash` is no SHA-256"))?;
            let (source, to) = (source(word(0).ok_or_else(missing)?)?, path(word(1).ok_or_else(missing)?)?);
            Ok((Step::Copy(Copy { source, to, mode: mode(word(3))?, hash: hash.to_owned() }), is_root))
        }
        "RUN" => Ok((Step::Run(line("args", word(0).ok_or_else(missing)?)?), user(word(1))?)),
        "ENV" => Ok((Step::Env(variables(&args)?), false)),
        "WORKDIR" => Ok((Step::Workdir(path(word(0).ok_or_else(missing)?)?), false)),
        "USER" => Ok((Step::User, user(Some(word(0).ok_or_else(missing)?))?)),
        other => {
            let what = format!("{} is no kind of step", policy::diagnostic::quote(other));
            let (why, instead) = ("this server does COPY, RUN, ENV, WORKDIR and USER", "say it by one of these");
            Err(Problem::cannot(StatusCode::BAD_REQUEST, "type", &what, why, instead))
        }
    }
}

/// Whether it is root.
fn user(name: Option<&str>) -> Result<bool, Problem> {
    match name.map(|name| name.split_once(':').map_or(name, |(user, _group)| user)) {
        None | Some("user" | "1000") => Ok(false),
        Some("root" | "0") => Ok(true),
        Some(other) => {
            let what = format!("there is no user {}", policy::diagnostic::quote(other));
            let why = "a sandbox has one user, `user`, and steps for `root` are done as that one";
            Err(Problem::cannot(StatusCode::BAD_REQUEST, "args", &what, why, "leave the user out"))
        }
    }
}

fn line(field: &str, text: &str) -> Result<String, Problem> {
    if text.len() > MAX_COMMAND || text.contains('\0') {
        return Err(Problem::invalid(
            field,
            &format!("a command line is longer than {MAX_COMMAND} bytes, or has a zero in it"),
        ));
    }
    Ok(text.to_owned())
}

/// A path inside: absolute, or below the working directory.
fn path(text: &str) -> Result<String, Problem> {
    let climbs = Path::new(text).components().any(|part| part == Component::ParentDir);
    if text.len() > MAX_PATH || text.contains('\0') || climbs {
        let what = format!("{} is no path inside: it is too long, or has `..` in it", policy::diagnostic::quote(text));
        return Err(Problem::invalid("args", &what));
    }
    Ok(text.to_owned())
}

/// What is copied: a relative path or pattern.
fn source(text: &str) -> Result<String, Problem> {
    let beyond = |part| !matches!(part, Component::Normal(_) | Component::CurDir);
    if text.len() > MAX_PATH || text.contains('\0') || Path::new(text).components().any(beyond) {
        let what = format!("{} leads out of the folder of the build", policy::diagnostic::quote(text));
        return Err(Problem::invalid("args", &what));
    }
    if text.contains("**") {
        let (what, why) = ("`**` in the source of COPY is not served", "the folders between would be lost");
        return Err(Problem::cannot(StatusCode::BAD_REQUEST, "args", what, why, "copy the folder"));
    }
    Ok(text.to_owned())
}

fn mode(text: Option<&str>) -> Result<Option<u32>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.map(Some).ok_or_else(|| Problem::invalid("args", "a mode is up to 0777, in octal digits"))
}

fn variables(args: &[String]) -> Result<Vec<(String, String)>, Problem> {
    let pair = |pair: &[String]| match pair {
        [name, value] => {
            let fits = !name.is_empty()
                && !name.contains(['=', '\0'])
                && !value.contains('\0')
                && name.len().saturating_add(value.len()) <= MAX_VARIABLE;
            fits.then(|| (name.clone(), value.clone()))
        }
        _ => None,
    };
    let pairs: Option<Vec<_>> = args.chunks(2).map(pair).collect();
    let what = format!("ENV is names and values in turn, of {MAX_VARIABLE} bytes at most");
    pairs.ok_or_else(|| Problem::invalid("args", &what))
}

/// The one place beside the home folder that the steps name; a template has no other that can be written to.
fn place(steps: &[Step]) -> Result<Option<String>, Problem> {
    let named = steps.iter().filter_map(|step| match step {
        Step::Copy(copy) => Some(copy.to.as_str()),
        Step::Workdir(path) => Some(path.as_str()),
        Step::Run(_) | Step::Env(_) | Step::User => None,
    });
    let mut found: Option<String> = None;
    for path in named.filter(|path| path.starts_with('/')) {
        if OPEN.iter().any(|open| Path::new(path).starts_with(open)) {
            continue;
        }
        let place = place_of(path).ok_or_else(|| read_only(path))?;
        match &found {
            Some(other) if *other != place => return Err(two_places(other, &place)),
            Some(_) => {}
            None => found = Some(place),
        }
    }
    Ok(found)
}

/// The place that a path lies in; none where that is not a build's to have.
fn place_of(path: &str) -> Option<String> {
    let mut parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    let top = parts.next().filter(|top| !TAKEN.contains(top))?;
    let place = if SHARED.contains(&top) { format!("/{top}/{}", parts.next()?) } else { format!("/{top}") };
    (place != OURS).then_some(place)
}

/// The place of a template that names none.
pub(crate) fn usual_place() -> String {
    PLACE.to_owned()
}

fn read_only(path: &str) -> Problem {
    let what = format!("nothing can be written at {}", policy::diagnostic::quote(path));
    let why =
        "the programs of a sandbox are read-only here: a template keeps its home folder, `/tmp` and one more place";
    let instead = "copy it below `/home/user`, or build an image on the server (`fumehood image build`)";
    Problem::cannot(StatusCode::BAD_REQUEST, "steps", &what, why, instead)
}

fn two_places(one: &str, other: &str) -> Problem {
    let what = format!("both `{one}` and `{other}` are to be written to");
    let why = "a template keeps its home folder, `/tmp` and one more place";
    let instead = "use one of them, or folders below `/home/user`";
    Problem::cannot(StatusCode::BAD_REQUEST, "steps", &what, why, instead)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "what is asked is written where it is judged")]
    fn read(body: Json) -> Result<BuildRequest, Problem> {
        asked(body.as_object().unwrap())
    }

    fn one(kind: &str, args: &[&str]) -> Result<BuildRequest, Problem> {
        let hash = "a".repeat(64);
        read(json!({ "steps": [{ "type": kind, "args": args, "filesHash": hash, "force": false }] }))
    }

    #[test]
    fn steps_are_read_as_the_clients_write_them() {
        let hash = "0".repeat(64);
        let body = json!({
            "fromImage": "e2bdev/base", "force": false, "startCmd": "serve", "readyCmd": "",
            "steps": [
                { "type": "COPY", "args": ["app.py", "app.py", "", "0755"], "force": false, "filesHash": hash },
                { "type": "RUN", "args": ["pip install six", "root"], "force": false },
                { "type": "ENV", "args": ["A", "1", "B", ""], "force": false },
                { "type": "WORKDIR", "args": ["/code/x"], "force": false },
                { "type": "USER", "args": ["user"], "force": false },
            ],
        });
        let found = read(body).unwrap();
        assert_eq!(found.from, BuildBase::Template("base".to_owned()));
        assert_eq!((found.start.as_deref(), found.ready.as_deref()), (Some("serve"), None));
        assert_eq!((found.rootless, found.place.as_deref(), found.steps.len()), (vec![2], Some("/code"), 5));
        let Some(Step::Copy(copy)) = found.steps.first() else { panic!("{:?}", found.steps) };
        assert_eq!((copy.mode, copy.to.as_str()), (Some(0o755), "app.py"));
        assert_eq!(
            read(json!({ "fromImage": "python:3.12" })).unwrap().from,
            BuildBase::Image("python:3.12".to_owned())
        );
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_its_step() {
        for (kind, args) in [
            ("COPY", &["../x", "/home/user", "", ""][..]),
            ("COPY", &["/etc/passwd", "x", "", ""]),
            ("COPY", &["a/**/b", "x", "", ""]),
            ("COPY", &["a", "../../etc", "", ""]),
            ("COPY", &["a", "b", "daemon", ""]),
            ("COPY", &["a", "b", "", "4755"]),
            ("COPY", &["a", "/usr/bin/sudo", "", ""]),
            ("COPY", &["a"]),
            ("RUN", &[]),
            ("RUN", &["true", "nobody"]),
            ("ENV", &["A"]),
            ("ENV", &["A=B", "1"]),
            ("WORKDIR", &["/"]),
            ("WORKDIR", &["/etc/x"]),
            ("WORKDIR", &["/opt"]),
            ("WORKDIR", &["/opt/fumehood/template/venv"]),
            ("WORKDIR", &["/home/other"]),
            ("USER", &["www-data"]),
            ("VOLUME", &["/x"]),
        ] {
            let problem = one(kind, args).unwrap_err();
            assert_eq!(problem.status, StatusCode::BAD_REQUEST, "{kind} {args:?}");
        }
        assert!(read(json!({ "fromImageRegistry": { "type": "registry", "username": "a" } })).is_err());
        assert!(read(json!({ "fromImage": "x\"]\nfs.root=1" })).is_err());
        for (path, place) in [("/opt/app/x", "/opt/app"), ("/app", "/app"), ("//srv/./x", "/srv")] {
            assert_eq!(one("WORKDIR", &[path]).unwrap().place.as_deref(), Some(place));
        }
        let two = json!([{ "type": "WORKDIR", "args": ["/a"] }, { "type": "WORKDIR", "args": ["/b"] }]);
        assert!(read(json!({ "steps": two })).unwrap_err().line().contains("`/a` and `/b`"));
        let short = json!([{ "type": "COPY", "args": ["a", "b", "", ""], "filesHash": "../../x" }]);
        assert_eq!(&*read(json!({ "steps": short })).unwrap_err().clause, "steps[0].filesHash");
    }
}
