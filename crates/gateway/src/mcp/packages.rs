//! Servers that are written as a call of a registry's client (`npx -y PACKAGE`, `uvx PACKAGE`, `docker run IMAGE`): which
//! package or image that is, so that it can be fetched once and started without a registry.

use super::containers::{self, Container, Refused};
use super::servers::{Server, Transport};
use super::text::shown;

/// Where a package comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registry {
    /// The npm registry.
    Npm,
    /// The Python package index.
    Pip,
}

/// The package of a server, as its command names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Where it comes from.
    pub registry: Registry,
    /// What is installed, as the registry's client names it: `@scope/name@1.2`, `name==1.2`. The first is the server's own.
    pub specs: Vec<String>,
    /// The program in it; none: the one that the package itself names.
    pub program: Option<String>,
    /// The program's arguments.
    pub args: Vec<String>,
}

/// What a server's command would fetch at each start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromRegistry {
    /// A package, with what it needs.
    Package(Package),
    /// An image.
    Image(Container),
}

impl FromRegistry {
    /// As the command names it.
    #[must_use]
    pub fn named(&self) -> &str {
        match self {
            Self::Package(package) => package.specs.first().map(String::as_str).unwrap_or_default(),
            Self::Image(container) => &container.image,
        }
    }
}

/// How a command asks a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Npx,
    Uvx,
    Pipx,
    Images,
}

/// The client that a command is, and how many of its arguments belong to its name.
fn client(command: &str, args: &[String]) -> Option<(Client, usize)> {
    let program = command.rsplit('/').next().unwrap_or_default();
    let first = args.first().map(String::as_str).unwrap_or_default();
    let second = args.get(1).map(String::as_str).unwrap_or_default();
    match (program, first, second) {
        ("npx" | "bunx", _, _) => Some((Client::Npx, 0)),
        ("npm", "exec" | "x", _) | ("pnpm" | "yarn", "dlx", _) => Some((Client::Npx, 1)),
        ("uvx", _, _) => Some((Client::Uvx, 0)),
        ("uv", "tool", "run") => Some((Client::Uvx, 2)),
        ("uv", "x", _) => Some((Client::Uvx, 1)),
        ("pipx", "run", _) => Some((Client::Pipx, 1)),
        ("docker" | "podman", _, _) => Some((Client::Images, 0)),
        _ => None,
    }
}

/// What a server's command would fetch from a registry at each start; an error says why this one cannot be fetched once.
///
/// # Errors
/// Why its package cannot be told, or not be installed; which options of its image are not taken over.
#[must_use]
pub fn of(server: &Server) -> Option<Result<FromRegistry, Vec<Refused>>> {
    let Transport::Command { command, args } = &server.transport else { return None };
    let (client, skip) = client(command, args)?;
    let words = args.get(skip..).unwrap_or_default();
    let package = match client {
        Client::Images => return Some(containers::read(words, &server.env).map(FromRegistry::Image)),
        // What was installed before is run without asking anybody.
        Client::Npx | Client::Uvx | Client::Pipx if args.iter().any(|arg| is_offline(arg)) => return None,
        Client::Npx => npm(words),
        Client::Uvx => pip(words, "--from"),
        Client::Pipx => pip(words, "--spec"),
    };
    let fix = "install it outside, grant its folder in the server's own policy (`fs.read`), and name its program as the command";
    Some(package.map(FromRegistry::Package).map_err(|why| vec![Refused { why, fix: fix.to_owned() }]))
}

fn is_offline(arg: &str) -> bool {
    matches!(arg, "--offline" | "--no-install" | "--no")
}

/// Options before the package: what they name, and the words from the package on.
struct Split<'a> {
    /// Packages named by the option for that.
    named: Vec<String>,
    /// Packages beside.
    with: Vec<String>,
    rest: &'a [String],
}

fn split<'a>(mut words: &'a [String], quiet: &[&str], named: &[&str], with: &[&str]) -> Result<Split<'a>, String> {
    let mut split = Split { named: Vec::new(), with: Vec::new(), rest: words };
    while let Some((word, after)) = words.split_first() {
        if !word.starts_with('-') {
            break;
        }
        words = after;
        let (option, value) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        if word == "--" {
            break;
        }
        if quiet.contains(&word.as_str()) {
            continue;
        }
        let into = match (named.contains(&option), with.contains(&option)) {
            (true, _) => &mut split.named,
            (false, true) => &mut split.with,
            (false, false) => return Err(format!("its option `{}` is not known here", shown(option, 40))),
        };
        let value = match (value, words.split_first()) {
            (Some(value), _) => value.to_owned(),
            (None, Some((value, after))) => {
                words = after;
                value.clone()
            }
            (None, None) => return Err(format!("its option `{}` has no value", shown(option, 40))),
        };
        into.push(value);
    }
    split.rest = words;
    Ok(split)
}

const NO_PACKAGE: &str = "it names no package";

/// `npx [-y] [-p PACKAGE]... NAME ARGS`, and what means the same.
fn npm(words: &[String]) -> Result<Package, String> {
    let split = split(words, &["-y", "--yes", "-q", "--quiet", "--silent", "-s"], &["-p", "--package"], &[])?;
    let (name, rest) = split.rest.split_first().ok_or(NO_PACKAGE)?;
    let args = rest.strip_prefix(&["--".to_owned()]).unwrap_or(rest).to_vec();
    let (specs, program) =
        if split.named.is_empty() { (vec![name.clone()], None) } else { (split.named, Some(name.clone())) };
    Ok(Package { registry: Registry::Npm, specs, program, args })
}

/// `uvx [--from PACKAGE] [--with PACKAGE]... NAME[@VERSION] ARGS`, and what means the same.
fn pip(words: &[String], from: &str) -> Result<Package, String> {
    let split = split(words, &["-q", "--quiet", "--isolated", "--no-progress"], &[from], &["--with"])?;
    let (name, args) = split.rest.split_first().ok_or(NO_PACKAGE)?;
    let (bare, version) = name.split_once('@').map_or((name.as_str(), None), |(bare, version)| (bare, Some(version)));
    let program = bare.split(['=', '<', '>', '~', '!', '[', ' ']).next().unwrap_or_default().to_owned();
    let own = match version {
        None | Some("latest") => bare.to_owned(),
        Some(version) => format!("{bare}=={version}"),
    };
    let mut specs = if split.named.is_empty() { vec![own] } else { split.named };
    specs.extend(split.with);
    Ok(Package { registry: Registry::Pip, specs, program: Some(program), args: args.to_vec() })
}

/// Why a server cannot start as it is written, as far as its command tells, and what to do: it would be fetched from a
/// registry, which its sandbox does not reach, and would wait for that for a long time without a word.
#[must_use]
pub fn advice(server: &Server) -> Option<String> {
    let asked = of(server)?;
    let program = match &server.transport {
        Transport::Command { command, .. } => command.rsplit('/').next().unwrap_or_default(),
        Transport::Url { .. } => return None,
    };
    let by = shown(program, 40);
    Some(match asked {
        Ok(asked) => format!(
            "`{by}` fetches `{}` from a registry, which a sandbox does not reach. `fumehood mcp fetch {} -p POLICY` \
             fetches it once; it starts from there without a registry",
            shown(asked.named(), 100),
            server.name
        ),
        Err(refused) => {
            let told: Vec<String> = refused.iter().map(|one| format!("{}: {}", one.why, one.fix)).collect();
            format!(
                "`{by}` fetches it from a registry, which a sandbox does not reach, and `fumehood mcp fetch` cannot fetch \
                 it: {}",
                told.join("; ")
            )
        }
    })
}

/// The same of all that have such words, by name.
#[must_use]
pub fn notes(servers: &[Server]) -> Vec<String> {
    let note = |server: &Server| Some(format!("the server `{}`: {}", server.name, advice(server)?));
    servers.iter().filter_map(note).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn server(line: &str) -> Server {
        let (command, args) = line.split_once(' ').unwrap_or((line, ""));
        Server {
            name: "s".into(),
            transport: Transport::Command {
                command: command.into(),
                args: args.split_whitespace().map(str::to_owned).collect(),
            },
            env: BTreeMap::new(),
            policy: "node".into(),
            from: "test".into(),
            fetched: None,
        }
    }

    fn told(line: &str) -> (Vec<String>, Option<String>, String) {
        let FromRegistry::Package(package) = of(&server(line)).unwrap().unwrap() else { panic!("{line}") };
        (package.specs, package.program, package.args.join(" "))
    }

    #[test]
    fn the_package_of_a_command_is_told() {
        let specs = |list: &[&str]| list.iter().map(|spec| (*spec).to_owned()).collect::<Vec<_>>();
        let some = |name: &str| Some(name.to_owned());
        let fs = "@modelcontextprotocol/server-filesystem";
        for (line, expected) in [
            (format!("npx -y {fs} /w -v"), (specs(&[fs]), None, "/w -v".to_owned())),
            (format!("npm exec --yes -- {fs}@1 -- /w"), (specs(&[&format!("{fs}@1")]), None, "/w".to_owned())),
            ("npx -p a --package=b prog x".to_owned(), (specs(&["a", "b"]), some("prog"), "x".to_owned())),
            ("pnpm dlx a".to_owned(), (specs(&["a"]), None, String::new())),
            (
                "uvx mcp-server-git -r /w".to_owned(),
                (specs(&["mcp-server-git"]), some("mcp-server-git"), "-r /w".to_owned()),
            ),
            ("/usr/bin/uvx a@1.2".to_owned(), (specs(&["a==1.2"]), some("a"), String::new())),
            ("uvx a@latest".to_owned(), (specs(&["a"]), some("a"), String::new())),
            ("uv tool run --from p[x] --with q a b".to_owned(), (specs(&["p[x]", "q"]), some("a"), "b".to_owned())),
            ("pipx run --spec p==1 a".to_owned(), (specs(&["p==1"]), some("a"), String::new())),
        ] {
            assert_eq!(told(&line), expected, "{line}");
        }
        for line in ["node server.js", "npm start", "npx --offline x", "npx --no-install x", "uv run x", "python3 -m x"]
        {
            assert_eq!(of(&server(line)), None, "{line}");
        }
    }

    #[test]
    fn what_cannot_be_installed_is_told_with_its_reason() {
        for (line, words) in [
            ("npx", "no package"),
            ("npx -y", "no package"),
            ("npx -c x", "`-c` is not known"),
            ("npx -p", "`-p` has no value"),
            ("uvx --python 3.9 a", "`--python` is not known"),
            ("docker run -i --rm --privileged mcp/git", "`--privileged` is not taken over"),
            ("podman start -ai git", "only `run IMAGE`"),
        ] {
            let refused = of(&server(line)).unwrap().unwrap_err();
            assert!(refused.len() == 1 && refused[0].why.contains(words), "{line}: {refused:?}");
            let advice = advice(&server(line)).unwrap();
            assert!(advice.contains("cannot fetch it") && advice.contains(&refused[0].fix), "{line}: {advice}");
        }
        let advice = advice(&server("npx -y @a/b /w")).unwrap();
        assert!(advice.contains("`@a/b`") && advice.contains("`fumehood mcp fetch s -p POLICY`"), "{advice}");
        assert_eq!(notes(&[server("npx a"), server("node a")]).len(), 1);
    }

    #[test]
    fn an_image_is_told_as_a_package_is() {
        for line in ["docker run -i --rm mcp/git", "/usr/bin/podman container run mcp/git --offline"] {
            let asked = of(&server(line)).unwrap().unwrap();
            assert!(matches!(&asked, FromRegistry::Image(container) if container.image == "mcp/git"), "{asked:?}");
            let advice = advice(&server(line)).unwrap();
            assert!(
                advice.contains("fetches `mcp/git`") && advice.contains("`fumehood mcp fetch s -p POLICY`"),
                "{advice}"
            );
        }
    }
}
