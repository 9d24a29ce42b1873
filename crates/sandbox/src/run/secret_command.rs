//! The command that prints a secret. It runs outside, with all that the caller may do, so nothing of it may be written by a
//! program inside.
//!
//! # Promises
//! It runs in `/`, never in a folder that programs inside write: many programs obey what lies in their own folder (`make`, `git`,
//! `python3 -m`). No word of it, and no variable that it is given, names what lies where they may write.
//! # Does not promise
//! To know what a program reads by itself, nor to read a script in its words as a shell would.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::Policy;
use zeroize::Zeroizing;

use super::writable::WritablePlaces;
use crate::environment::Environment;
use crate::fault::show_text;

/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(30);
/// Where it runs.
const FOLDER: &str = "/";
/// Folders from which the words of a command are read.
const MAX_FOLDERS: usize = 64;
/// The folder of the caller by name, which is not the command's.
const FOLDERS: [&str; 2] = ["PWD", "OLDPWD"];
/// What stands between paths, or before one, in a word, a list or a script.
const BETWEEN: [char; 14] = ['=', ':', ',', '@', ';', '&', '|', '<', '>', '(', ')', '\'', '"', '`'];

/// What a command prints, with the caller's own variables. What it says on its error stream is not repeated: it may have the value.
pub(super) fn printed(
    words: &[String],
    policy: &Policy,
    environment: &Environment,
    most: usize,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let (first, rest) = words.split_first().ok_or("names no program")?;
    let program =
        found(first, environment).ok_or_else(|| format!("runs `{}`, which is not found", show_text(first)))?;
    let here = environment.cwd.as_deref().unwrap_or(Path::new(FOLDER));
    let places = WritablePlaces::of(policy);
    let folders = folders(rest, here).ok_or_else(|| format!("names more than {MAX_FOLDERS} folders"))?;
    let named = rest.iter().find_map(|word| written_place(word, &folders, &places));
    if let Some(place) = places.met_by(&program).or(named) {
        let place = show_text(&place.to_string_lossy());
        return Err(format!("runs what lies in `{place}`, where programs inside may write"));
    }
    let rest = rest.iter().map(|word| from_root(word, here));
    let mut command = sys::command::Command::new(program).named(first).args(rest).directory(Path::new(FOLDER));
    for (name, value) in &environment.env {
        if let Some(value) = handed(name, value, &places) {
            command = command.variable(OsStr::from_bytes(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
        }
    }
    let output = command.output(b"", most, LIMIT);
    let output = output.map_err(|error| format!("runs `{}`, which cannot be started: {error}", show_text(first)))?;
    let stdout = Zeroizing::new(output.stdout);
    drop(Zeroizing::new(output.stderr));
    if output.timed_out {
        return Err(format!("runs `{}`, which did not end in {} s", show_text(first), LIMIT.as_secs()));
    }
    if output.end != sys::pidfd::End::Exited(0) {
        return Err(format!("runs `{}`, which failed ({:?})", show_text(first), output.end));
    }
    Ok(stdout)
}

/// Where a program is: a path, or a name in the caller's `PATH`.
fn found(word: &str, environment: &Environment) -> Option<PathBuf> {
    if word.contains('/') {
        let path = environment.cwd.as_deref().unwrap_or(Path::new(FOLDER)).join(word);
        return path.is_file().then_some(path);
    }
    let folders = std::env::split_paths(environment.variable("PATH")?);
    folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(word)).find(|path| path.is_file())
}

/// The folders from which a word may name something: the caller's, the command's own, and those that words name, since many
/// programs go there first (`env -C`, `git -C`, `cd` in a script). `None` where there are too many.
fn folders(words: &[String], here: &Path) -> Option<Vec<PathBuf>> {
    let mut folders = vec![here.to_owned(), PathBuf::from(FOLDER)];
    let parts: Vec<&str> = words.iter().flat_map(|word| parts_of(word)).filter(|part| !part.is_empty()).collect();
    let mut at = 0_usize;
    while let Some(folder) = folders.get(at).cloned() {
        let below = parts.iter().map(|part| folder.join(part)).filter(|path| path.is_dir());
        for real in below.filter_map(|path| path.canonicalize().ok()) {
            if !folders.contains(&real) {
                folders.push(real);
            }
        }
        if folders.len() > MAX_FOLDERS {
            return None;
        }
        at = at.saturating_add(1);
    }
    Some(folders)
}

/// In which of these places lies what a word names: by a whole path anywhere in it, or by one from any of these folders.
fn written_place<'a>(word: &str, folders: &[PathBuf], places: &'a WritablePlaces) -> Option<&'a PathBuf> {
    let parts: Vec<&str> = parts_of(word).into_iter().filter(|part| !part.is_empty()).collect();
    let near = parts.iter().flat_map(|part| folders.iter().map(move |folder| folder.join(part)));
    near.filter(|path| path.symlink_metadata().is_ok()).find_map(|path| places.met_by(&path)).or_else(|| {
        let mut far = paths_in(word).into_iter();
        far.find_map(|path| places.met_by(path))
    })
}

/// The whole paths in a word or a variable.
fn paths_in(text: &str) -> Vec<&Path> {
    parts_of(text).into_iter().filter(|part| part.starts_with('/')).map(Path::new).collect()
}

/// What may be a path in a word or a variable: the whole, and what stands between or behind the marks that part it.
fn parts_of(text: &str) -> Vec<&str> {
    let is_between = |letter: char| letter.is_whitespace() || BETWEEN.contains(&letter);
    let rests = text.match_indices(is_between).filter_map(|(at, between)| text.get(at + between.len()..));
    let parts = [text].into_iter().chain(rests).chain(text.split(is_between));
    parts.flat_map(|part| [part].into_iter().chain(glued(part))).collect()
}

/// What may be a path behind a short option (`-C/folder`, `-xf/file`), without a blank.
fn glued(word: &str) -> impl Iterator<Item = &str> {
    let short = Some(word).filter(|word| word.starts_with('-') && !word.starts_with("--"));
    let behind = short.and_then(|word| word.char_indices().nth(2)).and_then(|(at, _)| word.get(at..));
    let path = short.and_then(|word| word.find('/')).and_then(|at| word.get(at..));
    behind.into_iter().chain(path)
}

/// A word that is a path from the caller's folder, as it is from everywhere.
fn from_root(word: &str, here: &Path) -> OsString {
    let is_path = word == "." || word == ".." || word.starts_with("./") || word.starts_with("../");
    if word.is_empty() || !(is_path || here.join(word).is_file()) {
        return OsString::from(word);
    }
    here.join(word).into_os_string()
}

/// A variable as the command gets it: `PATH` without folders in these places, and no other one that names something in them.
fn handed(name: &OsStr, value: &OsStr, places: &WritablePlaces) -> Option<OsString> {
    if FOLDERS.iter().any(|folder| name == OsStr::new(folder)) {
        return None;
    }
    if name == OsStr::new("PATH") {
        let folders = std::env::split_paths(value).filter(|folder| places.met_by(folder).is_none());
        return std::env::join_paths(folders).ok();
    }
    let text = value.to_string_lossy();
    let names_none = paths_in(&text).into_iter().all(|path| places.met_by(path).is_none());
    names_none.then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use policy::{Caller, Layers};

    use super::*;

    /// What a command prints in a workspace that programs inside may write, or why it does not run.
    fn said(work: &Path, words: &[&str], variables: &[(&str, &str)]) -> Result<String, String> {
        let profiles = vec!["default".to_owned()];
        let mut layers = Layers::new(Caller { dir: work.to_owned(), home: None, profiles });
        for set in ["workspace.mode=\"rw\"".to_owned(), format!("workspace.path={work:?}")] {
            layers.set(&set);
        }
        let policy = layers.finish().unwrap().policy;
        let mut environment = Environment { cwd: Some(work.to_owned()), ..Environment::default() };
        environment.env.insert("PATH".into(), "/usr/bin:/bin".into());
        environment.env.extend(variables.iter().map(|(name, value)| (name.into(), value.into())));
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        printed(&words, &policy, &environment, 4096).map(|text| String::from_utf8(text.to_vec()).unwrap())
    }

    fn workspace() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        std::fs::create_dir(&work).unwrap();
        (folder, work)
    }

    #[test]
    fn a_command_obeys_nothing_that_lies_in_the_folder_of_the_caller() {
        let (_folder, work) = workspace();
        std::fs::write(work.join("keyring.py"), "print('planted')").unwrap();
        std::fs::write(work.join("Makefile"), "token:\n\t@echo planted\n").unwrap();
        assert_eq!(said(&work, &["pwd"], &[("PWD", work.to_str().unwrap())]).unwrap(), "/\n");
        assert!(said(&work, &["python3", "-m", "keyring", "get"], &[]).is_err());
        assert!(said(&work, &["make", "-s", "token"], &[]).is_err());
    }

    #[test]
    fn no_word_names_what_programs_inside_may_write_wherever_in_it() {
        let (folder, work) = workspace();
        std::fs::write(work.join("t.sh"), "#!/bin/sh\necho planted\n").unwrap();
        std::os::unix::fs::symlink("/usr/bin/id", work.join("link")).unwrap();
        std::os::unix::fs::symlink(&work, folder.path().join("aside")).unwrap();
        std::os::unix::fs::symlink(work.join("link"), folder.path().join("tool")).unwrap();
        let (inside, aside) = (work.to_str().unwrap(), folder.path().join("aside").display().to_string());
        let (outer, above) = (folder.path().display().to_string(), folder.path().parent().unwrap().display());
        let name = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
        for words in [
            vec!["sh".to_owned(), "t.sh".to_owned()],
            vec!["sh".to_owned(), "./t.sh".to_owned()],
            vec!["sh".to_owned(), format!("{aside}/t.sh")],
            vec!["sh".to_owned(), format!("{inside}/not-yet.sh")],
            vec!["sh".to_owned(), "-c".to_owned(), format!("cd /;{inside}/t.sh")],
            vec!["./link".to_owned()],
            vec!["env".to_owned(), format!("--chdir={inside}"), "./t.sh".to_owned()],
            vec!["env".to_owned(), format!("-C{inside}"), "true".to_owned()],
            vec!["awk".to_owned(), format!("-f{inside}/t.awk")],
            vec!["awk".to_owned(), "-ft.sh".to_owned()],
            vec!["awk".to_owned(), "--file=t.sh".to_owned()],
            vec!["env".to_owned(), format!("A=/usr/lib:{aside}/lib"), "true".to_owned()],
            vec!["tar".to_owned(), format!("-xf{inside}/a.tar")],
            // From `/`, where it runs, and from folders that words name.
            vec!["sh".to_owned(), format!("{}/t.sh", inside.trim_start_matches('/'))],
            vec!["env".to_owned(), "-C".to_owned(), outer.clone(), "sh".to_owned(), "work/t.sh".to_owned()],
            vec!["env".to_owned(), format!("--chdir={outer}"), "sh".to_owned(), "work/t.sh".to_owned()],
            vec![
                "env".to_owned(),
                format!("-C{above}"),
                "sh".to_owned(),
                "-c".to_owned(),
                format!("cd {name}; sh work/t.sh"),
            ],
            vec!["sh".to_owned(), "-c".to_owned(), format!("cd {outer}; sh work/t.sh")],
            // By a link in the workspace that another link leads to and that leads out again.
            vec![format!("{outer}/tool")],
            vec!["env".to_owned(), format!("{outer}/tool")],
        ] {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let why = said(&work, &words, &[]).unwrap_err();
            assert!(why.contains("where programs inside may write"), "{words:?}: {why}");
        }
        assert_eq!(said(&work, &["printf", "%s", "a=b:c@d"], &[]).unwrap(), "a=b:c@d");
    }

    #[test]
    fn no_variable_leads_there() {
        let (_folder, work) = workspace();
        let (lib, path) = (work.join("lib").display().to_string(), format!("{}:/usr/bin:/bin", work.display()));
        let listed = format!("/usr/lib:{lib}");
        let variables = [("PYTHONPATH", listed.as_str()), ("PATH", &path), ("BASH_ENV", &lib), ("KEPT", "/usr/lib")];
        let text = said(&work, &["env"], &variables).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["KEPT=/usr/lib", "PATH=/usr/bin:/bin"]);
    }

    #[test]
    fn a_file_beside_the_caller_is_found_all_the_same() {
        let (folder, work) = workspace();
        std::fs::write(folder.path().join("get.sh"), "echo \"$1\"").unwrap();
        let here = folder.path();
        assert_eq!(from_root("get.sh", here), here.join("get.sh").into_os_string());
        assert_eq!(from_root("work", here), OsString::from("work"));
        assert_eq!(from_root("", here), OsString::new());
        assert_eq!(said(&work, &["sh", &here.join("get.sh").display().to_string(), "a"], &[]).unwrap(), "a\n");
    }
}
