//! What of a folder other programs obey: of one that is granted for writing, of what git's configuration names, of a submodule.

use std::io;
use std::path::PathBuf;

use super::host::Unchanged;
use super::{Layout, Scene, SceneVerdict};
use crate::confined::{Observed, ProbeCall};
use crate::probe::Try;

/// A folder granted for writing, with names in it that must stay as they are.
struct Writable {
    folder: PathBuf,
    names: Unchanged,
}

/// `new`: no control file is in it; `held`: some are; `git`: it lies in a folder of git's; `named`: git's configuration names it
/// for hooks; `workspace`: it is the workspace, a second time. `{writable}` stands for it.
pub(super) fn writable(layout: &mut Layout<'_>, detail: &str) -> io::Result<Box<dyn Scene>> {
    let stage = layout.stage;
    let (folder, names): (PathBuf, &[&str]) = match detail {
        "held" => {
            let folder = stage.folder("writable")?;
            stage.file("writable/.mcp.json", "{}\n")?;
            for name in ["writable/sub", "writable/sub/.git"] {
                stage.folder(name)?;
            }
            stage.file("writable/sub/.git/HEAD", "ref: refs/heads/main\n")?;
            stage.file("writable/sub/.git/config", "[core]\n\tbare = false\n")?;
            (folder, &[".mcp.json", "sub/.git/config"])
        }
        "named" => {
            stage.file("ws/.git/config", "[core]\n\thooksPath = ../writable\n")?;
            (stage.folder("writable")?, &["pre-commit"])
        }
        "git" => (layout.workspace.join(".git/hooks"), &["pre-commit"]),
        "workspace" => (layout.workspace.clone(), &[".git/config"]),
        _ => (stage.folder("writable")?, &[".mcp.json", ".envrc", "sub/.git/config", ".vscode/tasks.json"]),
    };
    layout.words.insert("writable", folder.to_string_lossy().into_owned());
    let names = Unchanged::of(names.iter().map(|name| folder.join(name)).collect());
    Ok(Box::new(Writable { folder, names }))
}

impl Scene for Writable {
    fn arrange(&mut self, call: &mut ProbeCall) {
        call.write.push(self.folder.clone());
    }

    fn refused(&self, why: &str) -> Option<SceneVerdict> {
        why.contains("fs.protect").then(|| SceneVerdict::Stopped("such a grant is refused, with the reason".to_owned()))
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        self.names.judge(observed, tries)
    }
}

/// What git's configuration names: ``: hooks, in a file that it includes, as projects ship one; `user`: hooks, in the person's own
/// configuration; `command`: a program that a shell finds where it goes first.
pub(super) fn named(layout: &mut Layout<'_>, detail: &str) -> io::Result<Box<dyn Scene>> {
    let stage = layout.stage;
    for name in ["ws/tools", "ws/tools/hooks"] {
        stage.folder(name)?;
    }
    stage.file("ws/tools/hooks/pre-commit", "#!/bin/sh\n")?;
    let hooks = "[core] # of the project\n\thooksPath = tools/hooks\n";
    let names: &[&str] = match detail {
        "user" => {
            // The folder above the workspace may be a home folder.
            stage.file(".gitconfig", hooks)?;
            &["tools/hooks"]
        }
        "command" => {
            stage.file("ws/.git/config", "[core]\n\tfsmonitor = \"cd tools && ./watch\"\n")?;
            stage.file("ws/tools/watch", "#!/bin/sh\n")?;
            &["tools/watch"]
        }
        _ => {
            let include = "[core]\n\trepositoryformatversion = 0\n[include]\n\tpath = ../project.gitconfig\n";
            stage.file("ws/.git/config", include)?;
            stage.file("ws/project.gitconfig", hooks)?;
            &["project.gitconfig", "tools/hooks"]
        }
    };
    let names = names.iter().map(|name| layout.workspace.join(name));
    Ok(Box::new(Unchanged::of(names.collect())))
}

/// The folder of a submodule in git's, with a name whose last part is also one of git's folders.
pub(super) fn submodule(layout: &mut Layout<'_>, name: &str) -> io::Result<Box<dyn Scene>> {
    let stage = layout.stage;
    let mut folder = "ws/.git/modules".to_owned();
    stage.folder(&folder)?;
    for part in name.split('/').chain(["refs"]) {
        folder = format!("{folder}/{part}");
        stage.folder(&folder)?;
    }
    let at = |file: &str| format!("ws/.git/modules/{name}/{file}");
    stage.folder(&at("objects"))?;
    stage.file(&at("HEAD"), "ref: refs/heads/main\n")?;
    stage.file(&at("config"), "[core]\n\trepositoryformatversion = 0\n")?;
    let names =
        ["index", "packed-refs", "ORIG_HEAD"].map(|file| layout.workspace.join(format!(".git/modules/{name}/{file}")));
    Ok(Box::new(Unchanged::of(names.to_vec())))
}
