//! The option tables of programs: shipped data (`resources/commands`), and the rules that a policy writes itself.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use policy::commands::{ArgRule, FlagRule};
use regex::Regex;
use serde::Deserialize;

/// StartContext a program reads its words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Style {
    /// Options and operands mix; `--` ends the options.
    #[default]
    Gnu,
    /// The first operand ends the options.
    Posix,
    /// Every word is an operand.
    Raw,
    /// Places, then an expression.
    Find,
    /// `test`: an expression.
    Test,
}

/// What a word must be.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// No word may stand here.
    None,
    /// Any text.
    Any,
    /// A word of the line itself, not empty.
    Word,
    /// A whole number.
    Int,
    /// A number with a unit.
    Size,
    /// A number with a unit of time.
    Duration,
    /// What `chmod` takes, without set-user-id and the like.
    Mode,
    /// A path that is read; `-` is stdin.
    Path,
    /// A path that is read, below the folder where commands run.
    Inside,
    /// A folder below it, to go to.
    Folder,
    /// A path that is written.
    WritePath,
    /// A path of its work tree that git writes.
    PathSpec,
    /// What git takes for a revision or a path of its work tree.
    Rev,
    /// A format of git that runs nothing.
    GitFormat,
    /// A script of sed that reads and writes no file and runs nothing.
    Sed,
    /// A program of awk that prints fields.
    AwkPrint,
    /// A program of jq that reads its input alone.
    Jq,
    /// A command line.
    Line,
    /// A module of Python with a table of its own.
    Module,
    /// `NAME=VALUE`, or a name, from `env`.
    Assignment,
    /// A variable of the line's own.
    Variable,
    /// A number of bash: literal, or its last status.
    Status,
    /// Text that this matches as a whole.
    Pattern(Regex),
}

impl Kind {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(pattern) = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')).filter(|_| text.len() > 2)
        {
            let whole = regex::RegexBuilder::new(&format!(r"\A(?:{pattern})\z")).size_limit(1 << 18).build();
            return whole.map(Self::Pattern).map_err(|error| error.to_string());
        }
        Ok(match text {
            "none" => Self::None,
            "any" => Self::Any,
            "word" => Self::Word,
            "int" => Self::Int,
            "size" => Self::Size,
            "duration" => Self::Duration,
            "mode" => Self::Mode,
            "path" => Self::Path,
            "inside" => Self::Inside,
            "folder" => Self::Folder,
            "write-path" => Self::WritePath,
            "path-spec" => Self::PathSpec,
            "rev" => Self::Rev,
            "git-format" => Self::GitFormat,
            "sed" => Self::Sed,
            "awk-print" => Self::AwkPrint,
            "jq" => Self::Jq,
            "line" => Self::Line,
            "module" => Self::Module,
            "assignment" => Self::Assignment,
            "variable" => Self::Variable,
            "status" => Self::Status,
            other => return Err(format!("`{other}` is no type")),
        })
    }

    /// What such a word looks like, for people.
    pub(super) fn wanted(&self) -> String {
        match self {
            Self::None => "nothing".to_owned(),
            Self::Any => "any text".to_owned(),
            Self::Word => "a word written as it is".to_owned(),
            Self::Int => "a whole number".to_owned(),
            Self::Size => "a number, with a unit if you like: 10K".to_owned(),
            Self::Duration => "a time such as 30s".to_owned(),
            Self::Mode => "a mode such as 644 or u+x".to_owned(),
            Self::Path => "a path written as it is, or a pattern that cannot begin with `-`".to_owned(),
            Self::Inside | Self::Folder => "a path below the folder where commands run, without `..`".to_owned(),
            Self::WritePath | Self::PathSpec => "a path in a folder of `commands.write`".to_owned(),
            Self::Rev => "a revision, or a path below the folder where commands run".to_owned(),
            Self::GitFormat => "a format without `%G` and signatures".to_owned(),
            Self::Sed => "a script of s, y, p, d, q, n, =, with addresses".to_owned(),
            Self::AwkPrint => "a program such as '{print $1, $3}'".to_owned(),
            Self::Jq => "a filter of its input alone".to_owned(),
            Self::Line => "a command line between quotes".to_owned(),
            Self::Module => "a module that the policy allows".to_owned(),
            Self::Assignment => "a variable of `commands.env`".to_owned(),
            Self::Variable => "a variable in small letters, or one of `commands.env`".to_owned(),
            Self::Status => "a number".to_owned(),
            Self::Pattern(pattern) => {
                let text = pattern.as_str();
                let text = text.strip_prefix(r"\A(?:").and_then(|rest| rest.strip_suffix(r")\z")).unwrap_or(text);
                format!("what matches /{text}/")
            }
        }
    }
}

/// One option.
#[derive(Clone, Debug)]
pub(super) struct Flag {
    /// Every spelling; the first one stands for all.
    pub(super) names: Vec<String>,
    /// The type of its value.
    pub(super) value: Option<Kind>,
    /// Whether the value may be left out, and is joined otherwise.
    pub(super) optional: bool,
}

impl Flag {
    fn parse(text: &str) -> Result<Self, String> {
        let FlagRule { names, value, optional } = FlagRule::parse(text)?;
        let value = value.map(Kind::parse).transpose()?;
        Ok(Self { names: names.into_iter().map(str::to_owned).collect(), value, optional })
    }

    /// The spelling that stands for all.
    pub(super) fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }
}

/// What a program may be given.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) style: Style,
    pub(super) flags: Vec<Flag>,
    pub(super) lead: Vec<Kind>,
    pub(super) lead_unless: Vec<String>,
    pub(super) positional: Option<Kind>,
    pub(super) last: Option<Kind>,
    pub(super) last_unless: Vec<String>,
    pub(super) least: usize,
    pub(super) least_unless: Vec<String>,
    pub(super) most: Option<usize>,
    pub(super) digits: bool,
    /// Flags with which operands are patterns of what is listed.
    pub(super) lists_with: Vec<String>,
    /// Whether it is refused without a flag.
    pub(super) needs_flag: bool,
    pub(super) shallow: bool,
    pub(super) command: bool,
    pub(super) assignments: bool,
    pub(super) appends: bool,
    pub(super) clears: bool,
    pub(super) interpreter: bool,
    pub(super) repository: bool,
    pub(super) writes_all: bool,
    pub(super) into: bool,
    pub(super) follows: Vec<String>,
    pub(super) rewrites: Vec<String>,
    pub(super) modules: Vec<String>,
    pub(super) insert: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) helpers: Vec<String>,
    pub(super) subs: BTreeMap<String, Arc<Table>>,
}

/// A table as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Written {
    style: Option<Style>,
    flags: Vec<String>,
    lead: Vec<String>,
    lead_unless: Vec<String>,
    positional: Option<String>,
    last: Option<String>,
    last_unless: Vec<String>,
    least: usize,
    least_unless: Vec<String>,
    most: Option<usize>,
    digits: bool,
    lists_with: Vec<String>,
    version: Vec<String>,
    shallow: bool,
    command: bool,
    assignments: bool,
    appends: bool,
    clears: bool,
    interpreter: bool,
    repository: bool,
    writes_all: bool,
    into: bool,
    follows: Vec<String>,
    wrapper: bool,
    builtin: bool,
    only: Option<String>,
    same: Option<String>,
    rewrites: Vec<String>,
    modules: Vec<String>,
    insert: Vec<String>,
    env: BTreeMap<String, String>,
    config: Vec<(String, String)>,
    helpers: Vec<String>,
    subs: BTreeMap<String, Written>,
    workspace: Option<Box<Written>>,
}

impl Written {
    fn table(&self) -> Result<Table, String> {
        let kinds = |list: &[String]| list.iter().map(|text| Kind::parse(text)).collect::<Result<Vec<_>, _>>();
        let kind = |text: &Option<String>| text.as_deref().map(Kind::parse).transpose();
        let mut env: Vec<(String, String)> = self.env.clone().into_iter().collect();
        if !self.config.is_empty() {
            env.push(("GIT_CONFIG_COUNT".to_owned(), self.config.len().to_string()));
            for (at, (key, value)) in self.config.iter().enumerate() {
                env.push((format!("GIT_CONFIG_KEY_{at}"), key.clone()));
                env.push((format!("GIT_CONFIG_VALUE_{at}"), value.clone()));
            }
        }
        let subs = self.subs.iter().map(|(name, sub)| Ok((name.clone(), Arc::new(sub.table()?))));
        Ok(Table {
            style: self.style.unwrap_or_default(),
            flags: self.flags.iter().map(|text| Flag::parse(text)).collect::<Result<_, _>>()?,
            lead: kinds(&self.lead)?,
            lead_unless: self.lead_unless.clone(),
            positional: kind(&self.positional)?,
            last: kind(&self.last)?,
            last_unless: self.last_unless.clone(),
            least: self.least,
            least_unless: self.least_unless.clone(),
            most: self.most,
            digits: self.digits,
            lists_with: self.lists_with.clone(),
            needs_flag: false,
            shallow: self.shallow,
            command: self.command,
            assignments: self.assignments,
            appends: self.appends,
            clears: self.clears,
            interpreter: self.interpreter,
            repository: self.repository,
            writes_all: self.writes_all,
            into: self.into,
            follows: self.follows.clone(),
            rewrites: self.rewrites.clone(),
            modules: self.modules.clone(),
            insert: self.insert.clone(),
            env,
            helpers: self.helpers.clone(),
            subs: subs.collect::<Result<_, String>>()?,
        })
    }

    /// The form that only says which version it is, where its tables would otherwise run what it is given.
    fn only_version(&self) -> Result<Option<Table>, String> {
        if self.version.is_empty() {
            return Ok(None);
        }
        let flags = self.version.iter().map(|text| Flag::parse(text)).collect::<Result<_, _>>()?;
        Ok(Some(Table { style: Style::Gnu, flags, needs_flag: true, ..Table::default() }))
    }

    /// With what `args = "workspace"` adds.
    fn widened(&self) -> Self {
        let mut wide = self.clone();
        wide.flags.extend(self.version.iter().cloned());
        if let Some(more) = &self.workspace {
            wide.flags.extend(more.flags.iter().cloned());
            wide.rewrites.extend(more.rewrites.iter().cloned());
            wide.subs.extend(more.subs.clone());
            wide.positional = more.positional.clone().or(wide.positional);
            wide.most = more.most.or(wide.most);
        }
        wide
    }
}

/// The tables of one program.
#[derive(Clone, Debug, Default)]
pub(super) struct Shipped {
    /// `args = "read-only"`, where it has a harmless form.
    pub(super) read_only: Option<Arc<Table>>,
    /// `args = "workspace"`
    pub(super) workspace: Arc<Table>,
}

/// All shipped data.
#[derive(Debug, Default)]
pub(super) struct Data {
    pub(super) programs: BTreeMap<String, Shipped>,
    pub(super) wrappers: BTreeMap<String, Arc<Table>>,
    /// Words of bash itself.
    pub(super) builtins: BTreeMap<String, Arc<Table>>,
    /// Of wrappers, those that bash runs itself.
    pub(super) shell_wrappers: Vec<String>,
    pub(super) presets: BTreeMap<String, Preset>,
    /// Variables that nothing lets through; `*` at the end.
    pub(super) never: Vec<String>,
    /// Names in small letters that are not the line's own.
    pub(super) taken: Vec<String>,
}

/// A shipped set.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Preset {
    pub(super) programs: BTreeMap<String, Args>,
    pub(super) wrappers: Vec<String>,
}

/// Which of its tables a program has in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Args {
    /// The harmless one.
    ReadOnly,
    /// The one that writes in `write`.
    Workspace,
}

macro_rules! resources {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../resources/commands/", $folder, "/", $name, ".toml")))),+]
    };
}

/// Every file of tables; a test compares the list with the folder.
pub(super) const PROGRAMS: &[(&str, &str)] = resources!("programs":
    "files", "find", "git", "interpreters", "python", "system", "text", "wrappers", "shell");
/// Every preset.
pub(super) const PRESETS: &[(&str, &str)] = resources!("presets": "git-readonly", "inspect", "python-dev");
const OTHERS: &[(&str, &str)] = resources!(".": "environment");

/// The shipped data, or what is wrong with it.
pub(super) static DATA: LazyLock<Result<Data, String>> = LazyLock::new(load);

fn load() -> Result<Data, String> {
    let mut data = Data::default();
    let mut same = Vec::new();
    for (file, text) in PROGRAMS {
        let tables: BTreeMap<String, Written> = toml::from_str(text).map_err(|error| format!("{file}: {error}"))?;
        for (name, written) in tables {
            let told = |error: String| format!("{file}: {name}: {error}");
            if let Some(other) = &written.same {
                same.push((name, other.clone()));
                continue;
            }
            let version = written.only_version().map_err(told)?.map(Arc::new);
            // Without any other flag or sub-command that is all it may do, in whichever form.
            let workspace = match &version {
                Some(version) if written.flags.is_empty() && written.subs.is_empty() => version.clone(),
                Some(_) | None => Arc::new(written.widened().table().map_err(told)?),
            };
            if written.wrapper {
                if written.builtin {
                    data.shell_wrappers.push(name.clone());
                }
                data.wrappers.insert(name, workspace);
            } else if written.builtin {
                data.builtins.insert(name, workspace);
            } else {
                let read_only = written
                    .only
                    .is_none()
                    .then(|| written.table().map(Arc::new))
                    .transpose()
                    .map_err(told)?
                    .or(version);
                data.programs.insert(name, Shipped { read_only, workspace });
            }
        }
    }
    for (name, other) in same {
        let tables = data.programs.get(&other).cloned().ok_or_else(|| format!("{name}: no table is named {other}"))?;
        data.programs.insert(name, tables);
    }
    for (name, text) in PRESETS {
        let preset: Preset = toml::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        data.presets.insert((*name).to_owned(), preset);
    }
    for (name, text) in OTHERS {
        let lists: BTreeMap<String, Vec<String>> = toml::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        for (list, values) in lists {
            match list.as_str() {
                "never" => data.never = values,
                "taken" => data.taken = values,
                other => return Err(format!("{name}: `{other}` is no list")),
            }
        }
    }
    Ok(data)
}

impl Data {
    /// Whether a variable makes other code run, whoever sets it.
    pub(super) fn is_never(&self, name: &str) -> bool {
        self.never.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        })
    }
}

/// A table of the policy's own rules.
pub(super) fn from_rules(rules: &[ArgRule]) -> Result<Table, String> {
    let mut whole = Table::default();
    for rule in rules {
        let table = Table {
            flags: rule.flags.iter().map(|flag| Flag::parse(&flag.value)).collect::<Result<_, _>>()?,
            positional: rule.positional.as_ref().map(|text| Kind::parse(&text.value)).transpose()?,
            most: rule.most.and_then(|most| usize::try_from(most).ok()),
            ..Table::default()
        };
        match &rule.sub {
            Some(sub) => {
                whole.subs.insert(sub.clone(), Arc::new(table));
            }
            None => {
                whole.flags.extend(table.flags);
                whole.positional = table.positional.or(whole.positional);
                whole.most = table.most.or(whole.most);
            }
        }
    }
    if !whole.subs.is_empty() {
        whole.style = Style::Posix;
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_reads_and_every_preset_names_tables() {
        let data = DATA.as_ref().unwrap();
        assert!(data.programs.len() > 80, "{}", data.programs.len());
        for (preset, Preset { programs, wrappers }) in &data.presets {
            for (name, args) in programs {
                let shipped = data.programs.get(name).unwrap_or_else(|| panic!("{preset}: {name} has no table"));
                assert!(
                    *args == Args::Workspace || shipped.read_only.is_some(),
                    "{preset}: {name} has no read-only table"
                );
            }
            assert!(wrappers.iter().all(|name| data.wrappers.contains_key(name)), "{preset}");
            // Whose own folder git reads is decided by the name of the preset.
            assert_eq!(programs.contains_key("git"), preset == policy::commands::GIT_PRESET, "{preset}");
        }
        let names: Vec<&str> = data.presets.keys().map(String::as_str).collect();
        let mut known = policy::commands::PRESETS.to_vec();
        known.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn every_file_of_the_folder_is_part_of_the_product() {
        for (folder, list) in [("programs", PROGRAMS), ("presets", PRESETS)] {
            let path = format!("{}/../../resources/commands/{folder}", env!("CARGO_MANIFEST_DIR"));
            let mut found: Vec<String> = std::fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
                .collect();
            found.sort();
            let mut listed: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
            listed.sort_unstable();
            assert_eq!(found, listed);
        }
    }

    #[test]
    fn no_read_only_table_has_a_flag_that_writes_or_runs() {
        // The words of security.md and anchors/tools.md: none of them may ever come into a read-only table.
        const OUT: &[(&str, &[&str])] = &[
            ("sort", &["-o", "--output", "-T", "--compress-program", "--files0-from"]),
            ("find", &["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprintf", "-fls", "-files0-from"]),
            ("sed", &["-i", "--in-place", "-f", "--file"]),
            ("rg", &["--pre", "-f", "--file", "--hostname-bin", "-z"]),
            ("git", &["-c", "--config-env", "--exec-path", "-p", "--git-dir", "--work-tree"]),
            ("date", &["-s", "--set", "-f", "--file", "-r"]),
            ("file", &["-C", "-m", "-f", "--magic-file"]),
            ("xxd", &["-r"]),
            ("tree", &["-o"]),
            ("diff", &["--to-file", "--from-file"]),
            ("grep", &["-f", "--file"]),
            ("jq", &["-f", "--from-file", "--rawfile", "--slurpfile", "-L"]),
        ];
        let data = DATA.as_ref().unwrap();
        for (program, out) in OUT {
            let table = data.programs[*program].read_only.as_ref().unwrap();
            let all = std::iter::once(table).chain(table.subs.values());
            for name in all.flat_map(|table| &table.flags).flat_map(|flag| &flag.names) {
                let sub_only = *program == "git" && ["-c", "-p", "--git-dir"].contains(&name.as_str());
                assert!(!out.contains(&name.as_str()) || sub_only, "{program} {name}");
            }
        }
        for (sub, table) in &data.programs["git"].read_only.as_ref().unwrap().subs {
            for bad in
                ["--output", "-O", "--open-files-in-pager", "--ext-diff", "--textconv", "--contents", "--upload-pack"]
            {
                assert!(table.flags.iter().all(|flag| !flag.names.iter().any(|name| name == bad)), "git {sub} {bad}");
            }
        }
    }
}
