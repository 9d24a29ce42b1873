//! What the flags of `run`, `shell` and `plan` mean: a [`Request`], or all that is wrong with them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::args::{Flag, Parsed, To, closest, usage};
use super::request::{Field, FlagValue, How, Ingredient, Request, What};
use super::spec::Call;
use crate::fault::{Fault, show_bytes};
use crate::ui::Failure;

/// The modes of a workspace, as `-w PATH:MODE` spells them.
const MODES: &[&str] = &["none", "ro", "rw", "overlay", "copy"];

/// The request of a call whose program is already known.
///
/// # Errors
/// 125 for flags that contradict each other or miss their terminal, 126 for values that are none.
pub fn request(call: &Call<'_>, what: What) -> Result<Request, Failure> {
    let Parsed { flags, .. } = &call.parsed;
    let has = |long| call.parsed.has(long);
    let shell = matches!(what, What::Shell);
    let (tty, quiet, verbose) = (has("tty") || shell, has("quiet"), has("verbose"));
    let mut wrong = Vec::new();
    if tty && call.json {
        wrong.push(contradiction("-t", "--json", "a terminal mixes stdout and stderr, and a report holds them apart"));
    }
    if quiet && verbose {
        wrong.push(contradiction("-q", "-v", "one says less, the other more"));
    }
    if tty && !call.world.stdin_terminal {
        wrong.push(usage(
            "usage/no-terminal",
            if shell { "`shell` needs a terminal" } else { "`-t` needs a terminal" }.to_owned(),
            "stdin is not one".to_owned(),
            if shell { "`fumehood run -- bash` reads commands from stdin" } else { "drop `-t`" }.to_owned(),
        ));
    }
    let code = if wrong.is_empty() { 126 } else { 125 };
    let mut layers = documents(flags);
    if has("allow-host") && !has("net") {
        // A destination makes no sense without a network; `--net` may still say otherwise, and is then told so.
        layers.push(Ingredient::Flag {
            key: "net.mode".to_owned(),
            how: How::Replace,
            value: FlagValue::Text("allow".to_owned()),
            origin: "--allow-host".to_owned(),
        });
    }
    for (flag, value) in flags {
        match ingredients(flag, value.as_deref()) {
            Ok(more) => layers.extend(more),
            Err(fault) => wrong.push(fault),
        }
    }
    if !wrong.is_empty() {
        return Err(Failure { code, faults: wrong });
    }
    Ok(Request {
        layers,
        what,
        interactive: has("interactive") || shell,
        tty,
        quiet,
        verbose,
        json: call.json,
        report: call.parsed.value("report").map(PathBuf::from),
        color: call.color,
    })
}

/// Documents are weaker than flags, wherever they stand on the line.
fn documents(flags: &[(&'static Flag, Option<std::ffi::OsString>)]) -> Vec<Ingredient> {
    let document = |(flag, value): &(&Flag, Option<std::ffi::OsString>)| match (flag.to, value) {
        (To::Document, Some(value)) => Some(Ingredient::Document(value.clone())),
        _ => None,
    };
    flags.iter().filter_map(document).collect()
}

/// What one flag says about the policy.
fn ingredients(flag: &Flag, value: Option<&OsStr>) -> Result<Vec<Ingredient>, Fault> {
    if matches!(flag.to, To::Ours | To::Document) {
        return Ok(Vec::new());
    }
    let origin = format!("--{}", flag.long);
    let bytes = value.unwrap_or_default().as_bytes();
    let text = std::str::from_utf8(bytes).map_err(|error| {
        bad(flag, bytes, &error.to_string(), "a path that is no text can be reached by a link whose name is")
    })?;
    let one = |key: &str, how: How, value: FlagValue| Ingredient::Flag {
        key: key.to_owned(),
        how,
        value,
        origin: origin.clone(),
    };
    let text_of = |text: &str| FlagValue::Text(text.to_owned());
    let pair = || {
        let (name, value) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| bad(flag, bytes, "there is no name before a `=`", &format!("--{} NAME=VALUE", flag.long)))?;
        Ok((name, value))
    };
    Ok(match flag.to {
        To::Ours | To::Document => Vec::new(),
        To::Value(key) => vec![one(key, How::Replace, FlagValue::Typed(text.to_owned()))],
        To::Item(key) => vec![one(key, How::Append, text_of(text))],
        To::Grant(key) => vec![one(key, How::Append, grant(text))],
        To::Pair(key) => {
            let (name, value) = pair()?;
            vec![one(&format!("{key}.{name}"), How::Replace, text_of(value))]
        }
        To::Any => {
            let (name, value) = pair()?;
            vec![one(name, How::Replace, FlagValue::Typed(value.to_owned()))]
        }
        To::Workspace => {
            let (path, mode) = workspace(flag, text, |path| Path::new(path).exists())?;
            vec![one("workspace.path", How::Replace, text_of(path)), one("workspace.mode", How::Replace, text_of(mode))]
        }
        To::Host => vec![one("net.allow", How::Append, host(flag, text)?)],
    })
}

/// `FROM[:TO]`. The second path is absolute, so a colon in the first one does no harm.
fn grant(text: &str) -> FlagValue {
    match text.rfind(":/").filter(|at| *at > 0).and_then(|at| Some((text.get(..at)?, text.get(at + 1..)?))) {
        Some((from, to)) => {
            FlagValue::Table(vec![("from", Field::Text(from.to_owned())), ("to", Field::Text(to.to_owned()))])
        }
        None => FlagValue::Text(text.to_owned()),
    }
}

/// `PATH[:MODE]`. A colon may belong to the path: what follows the last one is a mode if it is one, and a mistake if
/// it looks like one and no such path is there.
fn workspace<'a>(flag: &Flag, text: &'a str, exists: impl Fn(&str) -> bool) -> Result<(&'a str, &'a str), Fault> {
    const DEFAULT: &str = "overlay";
    let Some((path, mode)) = text.rsplit_once(':') else { return Ok((text, DEFAULT)) };
    if MODES.contains(&mode) && !path.is_empty() {
        return Ok((path, mode));
    }
    if mode.contains('/') || exists(text) {
        return Ok((text, DEFAULT));
    }
    let fix = closest(mode, MODES.iter().copied()).map_or_else(
        || "ro, rw, overlay or copy".to_owned(),
        |best| format!("--{} {}:{best}", flag.long, show_bytes(path.as_bytes())),
    );
    Err(bad(flag, text.as_bytes(), &format!("`{}` is no mode", show_bytes(mode.as_bytes())), &fix))
}

/// `HOST[:PORT]`; an IPv6 address stands in brackets.
fn host(flag: &Flag, text: &str) -> Result<FlagValue, Fault> {
    let field = |host: &str| ("host", Field::Text(host.to_owned()));
    let bare = text.ends_with(']') || !text.contains(':');
    if bare {
        return Ok(FlagValue::Table(vec![field(text)]));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    match port.parse::<u16>() {
        Ok(port) if port > 0 && !host.is_empty() => {
            Ok(FlagValue::Table(vec![field(host), ("ports", Field::Numbers(vec![port]))]))
        }
        Ok(_) | Err(_) => {
            let why = format!("`{}` is no port from 1 to 65535", show_bytes(port.as_bytes()));
            Err(bad(flag, text.as_bytes(), &why, &format!("--{} example.org:443", flag.long)))
        }
    }
}

/// A value that is none.
fn bad(flag: &Flag, value: &[u8], why: &str, fix: &str) -> Fault {
    Fault {
        id: "usage/bad-clause-value",
        what: format!("`--{} {}` is not understood", flag.long, show_bytes(value)),
        place: format!("--{}", flag.long),
        why: why.to_owned(),
        fix: fix.to_owned(),
    }
}

fn contradiction(one: &str, other: &str, why: &str) -> Fault {
    usage("usage/two-flags", format!("both `{one}` and `{other}`"), why.to_owned(), "keep one".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Words, parse};
    use crate::cli::flags::{POLICY, RUN};
    use crate::cli::world::World;
    use crate::ui::{Voice, When};

    fn asked(world: &World, args: &[&str]) -> Result<Request, Failure> {
        let parsed = parse(args.iter().map(Into::into), &[POLICY, RUN], Words::EndFlags);
        assert_eq!(parsed.faults, []);
        let voice = Voice::new(world, When::Never);
        request(&Call { world, voice, json: false, color: When::Never, parsed }, What::Nothing)
    }

    fn layers(args: &[&str]) -> Vec<String> {
        let shown = |layer: Ingredient| match layer {
            Ingredient::Document(name) => format!("document {}", name.display()),
            Ingredient::Flag { key, how, value, origin } => format!("{origin}: {key} {how:?} {value:?}"),
        };
        asked(&World::default(), args).unwrap().layers.into_iter().map(shown).collect()
    }

    #[test]
    fn flags_are_stronger_than_documents_wherever_they_stand() {
        let got = layers(&["--memory", "1G", "-p", "a.toml", "-p", "python"]);
        assert_eq!(got[..2], ["document a.toml", "document python"]);
        assert_eq!(got[2], r#"--memory: limits.memory Replace Typed("1G")"#);
    }

    #[test]
    fn each_kind_of_flag_says_what_it_means() {
        let got = layers(&[
            "--read=./m:/models",
            "--write=a:b",
            "--env=A=b=c",
            "--input=q=",
            "--set=limits.files=10",
            "--prefer=limits.disk",
            "--allow-host=a.org:443",
            "--allow-host=[::1]",
            "-w",
            "x:ro",
            "-wy",
        ]);
        let expected = [
            r#"--allow-host: net.mode Replace Text("allow")"#,
            r#"--read: fs.read Append Table([("from", Text("./m")), ("to", Text("/models"))])"#,
            r#"--write: fs.write Append Text("a:b")"#,
            r#"--env: env.set.A Replace Text("b=c")"#,
            r#"--input: inputs.q Replace Text("")"#,
            r#"--set: limits.files Replace Typed("10")"#,
            r#"--prefer: prefer Append Text("limits.disk")"#,
            r#"--allow-host: net.allow Append Table([("host", Text("a.org")), ("ports", Numbers([443]))])"#,
            r#"--allow-host: net.allow Append Table([("host", Text("[::1]"))])"#,
            r#"--workspace: workspace.path Replace Text("x")"#,
            r#"--workspace: workspace.mode Replace Text("ro")"#,
            r#"--workspace: workspace.path Replace Text("y")"#,
            r#"--workspace: workspace.mode Replace Text("overlay")"#,
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn bad_values_are_told_together_and_with_126() {
        let failure =
            asked(&World::default(), &["--env", "A", "-w", "/:overlya", "--allow-host", "a:99999", "--set", "=1"]);
        let failure = failure.unwrap_err();
        assert_eq!((failure.code, failure.faults.len()), (126, 4));
        assert_eq!(failure.faults[1].fix, "--workspace /:overlay");
    }

    #[test]
    fn contradictions_are_bad_usage() {
        let failure = asked(&World::default(), &["-t", "-q", "-v", "--env", "A"]).unwrap_err();
        let ids: Vec<_> = failure.faults.iter().map(|f| f.id).collect();
        assert_eq!(failure.code, 125);
        assert_eq!(ids, ["usage/two-flags", "usage/no-terminal", "usage/bad-clause-value"]);
    }
}
