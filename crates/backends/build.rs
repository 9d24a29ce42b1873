//! The rows of `resources/etc.toml` as constants: it is looked at in each start, and read here. A row that does not fit fails the
//! build.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;

/// What of the host's `/etc` is shown.
const TABLE: &str = "../../resources/etc.toml";

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// Its rows.
    show: Vec<Row>,
}

/// One `[[show]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// A name.
    path: Option<String>,
    /// What names begin with, and `*`.
    glob: Option<String>,
    /// Why a program needs it.
    why: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={TABLE}");
    let Table { show } = toml::from_str(&std::fs::read_to_string(TABLE)?)?;
    let mut text = String::from("#[rustfmt::skip]\nconst ROWS: &[Row<'static>] = &[\n");
    for row in &show {
        let row = match (&row.path, row.glob.as_deref().and_then(|glob| glob.strip_suffix('*'))) {
            (Some(name), None) if !row.why.is_empty() => format!("Row::Path({name:?})"),
            (None, Some(begins)) if !row.why.is_empty() => format!("Row::Glob({begins:?})"),
            (name, _) => {
                return Err(
                    format!("{TABLE}: {name:?}: a row has `path` or `glob` that ends with `*`, and `why`").into()
                );
            }
        };
        writeln!(text, "    {row},")?;
    }
    text.push_str("];\n");
    let folder = std::env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?;
    Ok(std::fs::write(Path::new(&folder).join("etc.rs"), text)?)
}
