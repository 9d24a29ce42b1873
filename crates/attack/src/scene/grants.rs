//! Folders of the host that are granted for writing, and what of them other programs obey.

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

/// `new`: no control file is in it; `held`: some are; `git`: it lies in a folder of git's; `workspace`: it is the workspace,
/// a second time. `{writable}` stands for it.
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
