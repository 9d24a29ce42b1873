//! `fumehood man [COMMAND]`: the manual, as roff.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use super::args::{Flag, Positionals, To, usage};
use super::spec::{Call, Spec, tree};
use crate::ui::Failure;
use sandbox::fault::{Fault, show_bytes, show_path};

const FLAGS: &[Flag] = &[Flag::new("dir", Some("DIR"), To::Ours, "Write one page per command into this directory")];

pub(super) const SPEC: Spec = Spec {
    path: &["man"],
    about: "Print the manual page of a command",
    usage: "[COMMAND] [--dir DIR]",
    more: "Example: `fumehood man run | man -l -`",
    tables: &[FLAGS],
    words: Positionals::Mixed(2),
    hidden: false,
    run: man,
};

fn man(call: &mut Call<'_>) -> Result<u8, Failure> {
    let pages = pages()?;
    if let Some(dir) = call.parsed.value("dir") {
        return write(dir, &pages, call);
    }
    let typed = call.parsed.words.iter().map(OsString::as_os_str).collect::<Vec<_>>().join(OsStr::new("-"));
    let name =
        if typed.is_empty() { "fumehood".to_owned() } else { format!("fumehood-{}", show_bytes(typed.as_bytes())) };
    let Some((_, page)) = pages.iter().find(|(page, _)| *page == name) else {
        return Err(Failure::own(usage(
            "usage/unknown-command",
            format!("no manual page `{name}`"),
            "no command has this name".to_owned(),
            "`fumehood --help` lists them".to_owned(),
        )));
    };
    if call.json {
        call.console.json(&serde_json::json!({ "schema": 1, "name": name, "roff": String::from_utf8_lossy(page) }))?;
    } else {
        call.console.data(page)?;
    }
    Ok(0)
}

/// Every page with its name.
fn pages() -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut root = tree(super::COMMANDS);
    root.build();
    let mut pages = Vec::new();
    let mut rest = vec![(String::from("fumehood"), root)];
    while let Some((name, command)) = rest.pop() {
        for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
            rest.push((format!("{name}-{}", below.get_name()), below.clone()));
        }
        let mut page = Vec::new();
        let titled = command.name(name.clone());
        clap_mangen::Man::new(titled).render(&mut page).map_err(|error| {
            Failure::own(Fault {
                id: "out/unwritable",
                what: format!("cannot make the page `{name}`"),
                place: "memory".to_owned(),
                why: error.to_string().to_lowercase(),
                fix: "report this as a fault of fumehood".to_owned(),
            })
        })?;
        pages.push((name, page));
    }
    pages.sort();
    Ok(pages)
}

fn write(dir: &OsStr, pages: &[(String, Vec<u8>)], call: &Call<'_>) -> Result<u8, Failure> {
    let dir = std::path::Path::new(dir);
    for (name, page) in pages {
        let path = dir.join(format!("{name}.1"));
        std::fs::write(&path, page).map_err(|error| {
            Failure::own(Fault {
                id: "out/unwritable",
                what: "cannot write a manual page".to_owned(),
                place: show_path(&path),
                why: error.to_string().to_lowercase(),
                fix: "name a directory that exists and that you may write".to_owned(),
            })
        })?;
    }
    if call.json {
        let names: Vec<_> = pages.iter().map(|(name, _)| name).collect();
        call.console.json(&serde_json::json!({ "schema": 1, "pages": names }))?;
    } else {
        call.console.eprint(&format!(
            "{} in {}",
            crate::ui::count(u64::try_from(pages.len()).unwrap_or(u64::MAX), "page", "pages"),
            show_path(dir)
        ));
    }
    Ok(0)
}
