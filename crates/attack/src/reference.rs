//! The catalogue as a page, `docs/reference/attacks.md`.

use std::fmt::Write as _;

use crate::row::{Group, Oracle, Row};

const HEAD: &str = "# Attacks\n\n\
`fumehood attack` tries each row twice: unconfined, where it must succeed, and then in your sandbox. Who judges stands outside. \
A row is *held* when it was stopped, *escaped* when it was possible though promised, *not promised* when your policy or tier \
does not promise it, and *skipped* when nothing can be concluded: the control did not work on this machine, or it failed for \
another reason. Every try is harmless where it succeeds: bounded in memory, processes, files and time, and nothing of the host \
is changed for good. Against the tier `vm` each row starts a machine of its own.\n\n\
Judges: *canary* (a random secret must not appear in what came out), *listener* (somebody on the host must hear nothing), \
*file* (the host's files stay as they are), *processes* (a survey from the host), *measured* (usage), *kernel* (what `/proc` of \
the host says of the program), *errno* (the answer inside, compared with the answer unconfined).\n\n\
This page is generated from `resources/attacks`; `cargo test -p fumehood-attack attacks_page` writes it anew with `FUMEHOOD_BLESS=1`.\n";

const LANGUAGE: &str = "\n# Against the language tier\n\n\
`fumehood attack --tier language`: each row is a program in Python or JavaScript. The control is the host's own `python3` or `node`, \
where it must work.\n";

/// The page: the rows against tiers that run programs, and those against the language tier.
#[must_use]
pub fn page(rows: &[Row], language: &[Row]) -> String {
    let mut text = HEAD.to_owned();
    tables(&mut text, rows);
    text.push_str(LANGUAGE);
    tables(&mut text, language);
    text
}

fn tables(text: &mut String, rows: &[Row]) {
    for group in [Group::Res, Group::Fs, Group::Net, Group::Priv, Group::Info, Group::Pers] {
        let mut part = format!(
            "\n## {}\n\n| id | tried | shows | held by | promised by | judge |\n| --- | --- | --- | --- | --- | --- |\n",
            group.title()
        );
        if !rows.iter().any(|row| row.group() == group) {
            continue;
        }
        for row in rows.iter().filter(|row| row.group() == group) {
            let line = format!(
                "| {} | {} | {} | {} | {} | {} |\n",
                row.id,
                cell(&row.title),
                cell(&row.shows),
                cell(&row.held_by),
                cell(&promised(row)),
                oracle(row.oracle)
            );
            part.push_str(&line);
        }
        text.push_str(&part);
    }
    // Writing to a string cannot fail.
    if writeln!(text, "\n{} rows.", rows.len()).is_err() {
        text.clear();
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn promised(row: &Row) -> String {
    let mut parts: Vec<String> = row.clauses.iter().map(|clause| format!("`{clause}`")).collect();
    for (path, values) in &row.when {
        let values: Vec<_> = values.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
        parts.push(if values.is_empty() {
            format!("no `{path}`")
        } else {
            format!("`{path}` {}", values.join(" or "))
        });
    }
    if parts.is_empty() {
        parts.push("the tier".to_owned());
    }
    let mut text = parts.join(", ");
    if !row.not_promised.is_empty() {
        text.push_str(&format!("; tiers {}: {}", row.tiers.join(", "), row.not_promised));
    }
    text
}

const fn oracle(oracle: Oracle) -> &'static str {
    match oracle {
        Oracle::Canary => "canary",
        Oracle::Listener => "listener",
        Oracle::File => "file",
        Oracle::Processes => "processes",
        Oracle::Measured => "measured",
        Oracle::Kernel => "kernel",
        Oracle::Errno => "errno",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{catalogue, language};

    #[test]
    fn the_attacks_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/attacks.md");
        let fresh = page(&catalogue().unwrap(), &language().unwrap());
        if std::env::var_os("FUMEHOOD_BLESS").is_some() {
            std::fs::create_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
            std::fs::write(path, &fresh).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), fresh, "FUMEHOOD_BLESS=1 writes it anew");
    }
}
