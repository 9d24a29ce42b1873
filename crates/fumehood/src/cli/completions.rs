//! `fumehood completions SHELL`

use clap_complete::Shell;

use super::args::{Positionals, closest, usage};
use super::spec::{Call, Spec, tree};
use crate::ui::Failure;
use sandbox::fault::show_bytes;
use std::os::unix::ffi::OsStrExt as _;

const SHELLS: &[(&str, Shell)] = &[
    ("bash", Shell::Bash),
    ("elvish", Shell::Elvish),
    ("fish", Shell::Fish),
    ("powershell", Shell::PowerShell),
    ("zsh", Shell::Zsh),
];

pub(super) const SPEC: Spec = Spec {
    path: &["completions"],
    about: "Print completions for a shell",
    usage: "bash|elvish|fish|powershell|zsh",
    more: "Example: `fumehood completions bash > /etc/bash_completion.d/fumehood`",
    tables: &[],
    words: Positionals::Mixed(1),
    hidden: false,
    run: completions,
};

fn completions(call: &mut Call<'_>) -> Result<u8, Failure> {
    let typed = call.parsed.words.first().map(|w| show_bytes(w.as_bytes())).unwrap_or_default();
    let Some((_, shell)) = SHELLS.iter().find(|(name, _)| *name == typed) else {
        let names = || SHELLS.iter().map(|(name, _)| *name);
        let known = names().collect::<Vec<_>>().join(", ");
        let best = closest(&typed, names()).map_or(known, |best| format!("`fumehood completions {best}`"));
        let what = if typed.is_empty() { "no shell named".to_owned() } else { format!("unknown shell `{typed}`") };
        return Err(Failure::own(usage(
            "usage/bad-value",
            what,
            "there are completions for five shells".to_owned(),
            best,
        )));
    };
    let mut script = Vec::new();
    clap_complete::generate(*shell, &mut tree(super::COMMANDS), "fumehood", &mut script);
    if call.json {
        let text = String::from_utf8_lossy(&script);
        call.console.json(&serde_json::json!({ "schema": 1, "shell": typed, "script": text }))?;
    } else {
        call.console.data(&script)?;
    }
    Ok(0)
}
