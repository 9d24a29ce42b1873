//! `docs/reference/policy.md`, made of the rows.

use std::fmt::{self, Write as _};

use crate::net_presets::NET_PRESETS;
use crate::presets::PRESETS;
use crate::rows::{ROWS, Row, Shape};

const HEAD: &str = include_str!("reference/head.md");

/// The page.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(HEAD);
    // Writing to a `String` cannot fail.
    let written = write_presets(&mut page).and_then(|()| ROWS.iter().try_for_each(|row| write_row(&mut page, row)));
    debug_assert!(written.is_ok());
    page
}

fn write_presets(page: &mut String) -> fmt::Result {
    page.push_str("\n## Presets\n\n| name | what for |\n| --- | --- |\n");
    for preset in PRESETS {
        writeln!(page, "| `{}` | {} |", preset.name, preset.summary)?;
    }
    page.push_str("\nOf the network, in `net.presets`:\n\n| name | what for |\n| --- | --- |\n");
    for preset in NET_PRESETS {
        writeln!(page, "| `{}` | {} |", preset.name, preset.summary)?;
    }
    page.push_str("\n## Clauses\n");
    Ok(())
}

fn write_row(page: &mut String, row: &Row) -> fmt::Result {
    writeln!(page, "\n### {}\n", row.clause)?;
    writeln!(page, "{}\n", row.promise)?;
    let flag = match row.flag {
        Some("--workspace") => "`-w`, `--workspace`".to_owned(),
        Some(flag) => format!("`{flag}`"),
        None => format!("`--set {}=VALUE`", row.clause),
    };
    writeln!(page, "- **value** {}{}", shape_text(row.shape), if row.lift { ", or `none`" } else { "" })?;
    writeln!(page, "- **default** {}", default_text(row.default))?;
    writeln!(page, "- **flag** {flag}")?;
    if !row.not_promised.is_empty() {
        writeln!(page, "- **does not promise** {}", row.not_promised)?;
    }
    writeln!(page, "\n```toml\nversion = 1\n{}\n```\n", row.valid)?;
    writeln!(page, "Refused:\n\n```toml refused\nversion = 1\n{}\n```", row.invalid)
}

fn default_text(text: &str) -> String {
    match text.split_once(": ") {
        Some((value, more)) => format!("`{value}`: {more}"),
        None => format!("`{text}`"),
    }
}

fn shape_text(shape: Shape) -> String {
    match shape {
        Shape::Words(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Shape::Whole(from, to) => format!("a whole number from {from} to {to}"),
        Shape::Size => "a size: `256M`, `256MB`, `1Gi`".to_owned(),
        Shape::Rate => "a rate: `50M/s`".to_owned(),
        Shape::Time => "a duration: `500ms`, `30s`, `1m30s`".to_owned(),
        Shape::Cores => "a number of cores from 0.001 to 4096".to_owned(),
        Shape::Cpuset => "cores and ranges: `\"0-1,3\"`, or a list of numbers".to_owned(),
        Shape::Truth => "true or false".to_owned(),
        Shape::TruthOr(word) => format!("true, false or `{word}`"),
        Shape::Text => "a text".to_owned(),
        Shape::Texts => "a list of texts".to_owned(),
        Shape::Root => "`host`, `empty`, `dir:PATH`, `image:REF`".to_owned(),
        Shape::Grants => "a list of paths or of `{ from, to }`; in a flag `FROM[:TO]`".to_owned(),
        Shape::Workspace => "a table of `path`, `at` (a path inside, or `same`) and `mode` (`none`, `ro`, `rw`, `overlay`, `copy`); in a flag `PATH[:MODE]`".to_owned(),
        Shape::Threshold => "a table of `cpu_percent`, `memory` and `for`".to_owned(),
        Shape::Rules => "a list of places (`\"example.org:443\"`, `\"192.0.2.0/24\"`) or of tables of `host` or `cidr`, `ports`, `protocol` (`tcp`, `udp`), `methods`, `paths`, `address` (`IP:PORT`), `tls` (`auto`, `pass`), `decision` (`allow`, `ask`), `encoded_slashes` and `websocket` (`true`, `false`)".to_owned(),
        Shape::Denials => "a list of places, or of tables of `host` or `cidr`, and `ports`".to_owned(),
        Shape::HostsOf => "a table of lists of hosts by the absolute path of a program inside".to_owned(),
        Shape::EnvSet => "a table of names and texts; in a flag `NAME=VALUE`".to_owned(),
        Shape::Inputs => "a table by name of `type`, `max_length`, `enum`, `pattern`, `required`; in a flag `NAME=VALUE`".to_owned(),
        Shape::Secrets => "a table by name of `from` (`env:NAME`, `file:PATH`, `command:WORDS`), `hosts`, `ports` (443), `methods`, `paths`, `as` (`{ header, format, public }`, `{ basic = USER }`, `{ query = KEY }`, `placeholder`; `Authorization: Bearer` unless said) and `env`; `kind = \"aws-sigv4\"` signs instead, with `key_id`, `session_token` (sources as `from`), `region` and `service`".to_owned(),
        Shape::Umask => "octal digits as text".to_owned(),
        Shape::Tools => "a table, see [tools](tools.md); `[mcp]` beside it".to_owned(),
        Shape::Free => "a table".to_owned(),
    }
}
