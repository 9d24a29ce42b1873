//! What surrounds the program: `[env]`, `[inputs]`, `[process]`, `[syscalls]`, `[audit]`.

use std::collections::BTreeMap;

use super::{Reader, fault, list_words};
use crate::diagnostic::{did_you_mean, quote};
use crate::document::{Node, Value};
use crate::load::is_user_name;
use crate::names::is_env_name;
use crate::value::{Audit, Content, Device, Env, Input, InputType, Process, Sync, Syscalls};

pub(crate) const ENV: &[&str] = &["pass", "set"];
pub(crate) const GIT: &[&str] = &["identity"];
/// Whose name and mail git has inside.
pub(crate) const IDENTITY: &[(&str, bool)] = &[("none", false), ("host", true)];
pub(crate) const INPUT: &[&str] = &["type", "max_length", "enum", "pattern", "required"];
pub(crate) const PROCESS: &[&str] = &["user", "hostname", "umask", "tty", "label", "devices"];
pub(crate) const SYSCALLS: &[&str] = &["profile", "allow", "deny"];
pub(crate) const AUDIT: &[&str] = &["path", "redact", "content", "sync"];

impl Reader<'_> {
    pub(crate) fn env(&mut self, tree: &Node, env: &mut Env) {
        if let Some(node) = tree.get("git")
            && self.table("git", node, GIT).is_some()
        {
            self.put(tree, "git.identity", &mut env.git_identity, |r, p, n| r.keyword(p, n, IDENTITY));
        }
        let Some(node) = tree.get("env") else { return };
        if self.table("env", node, ENV).is_none() {
            return;
        }
        if let Some(list) = node.get("pass") {
            for item in self.items("env.pass", list).unwrap_or_default() {
                let Some(name) = self.text("env.pass", item) else { continue };
                if self.env_name("env.pass", item, &name) {
                    env.pass.push(name);
                }
            }
            env.pass.sort();
            env.pass.dedup();
        }
        let Some(set) = node.get("set") else { return };
        let Value::Table(entries) = &set.value else {
            self.wrong_type("env.set", set, "a table", "write { NAME = \"value\" }");
            return;
        };
        for (key, value) in entries {
            let path = format!("env.set.{}", key.name);
            let named = Node { value: Value::Null, place: key.place };
            if !self.env_name("env.set", &named, &key.name) {
                continue;
            }
            if matches!(value.value, Value::Bool(_) | Value::Integer(_) | Value::Float(_)) {
                // Without the value, which may be a secret.
                self.wrong_type(&path, value, "text", "write it in quotes");
            } else if let Some(text) = self.text(&path, value) {
                env.set.insert(key.name.clone(), text);
            }
        }
    }

    pub(super) fn env_name(&mut self, path: &str, node: &Node, name: &str) -> bool {
        if is_env_name(name) {
            return true;
        }
        // Of `TOKEN=VALUE` the value is no part of a message: a refusal is recorded.
        let what = match name.split_once('=') {
            Some((before, _)) => format!("{} with a value is not the name of a variable", quote(before)),
            None => format!("{} is not the name of a variable", quote(name)),
        };
        let (why, fix) = if name.contains('*') {
            ("variables are taken one by one: a glob would also take what is set tomorrow", "name each")
        } else if name.contains('=') {
            ("`pass` takes names; values are given by `set`", "write it under [env.set], or --env NAME=VALUE")
        } else {
            ("names are letters, digits and _", "write it as in LANG or MY_NAME")
        };
        self.note(path, node.place, fault("value/env-name", what, why, fix));
        false
    }

    pub(crate) fn inputs(&mut self, tree: &Node, inputs: &mut BTreeMap<String, Input>) {
        let Some(node) = tree.get("inputs") else { return };
        let Value::Table(entries) = &node.value else {
            self.wrong_type("inputs", node, "a table of tables", "write [inputs.NAME]");
            return;
        };
        for (key, node) in entries {
            let path = format!("inputs.{}", key.name);
            let twin = inputs.keys().any(|known| known.eq_ignore_ascii_case(&key.name) && *known != key.name);
            if !is_env_name(&key.name) || twin {
                let what = format!("{} cannot name an input", quote(&key.name));
                let why = if twin {
                    "it becomes the same variable as another input"
                } else {
                    "it becomes the variable INPUT_NAME: letters, digits and _"
                };
                self.note(&path, key.place, fault("value/input-name", what, why, "give another name"));
                continue;
            }
            if let Some(input) = self.input(&path, node) {
                inputs.insert(key.name.clone(), input);
            }
        }
    }

    fn input(&mut self, path: &str, node: &Node) -> Option<Input> {
        let table = self.table(path, node, INPUT)?;
        let mut input = Input {
            kind: InputType::String,
            max_length: None,
            one_of: None,
            pattern: None,
            required: false,
            value: None,
        };
        let sub = |name: &str| format!("{path}.{name}");
        if let Some(node) = table.get("type") {
            input.kind = self.keyword(&sub("type"), node, InputType::WORDS)?;
        }
        if let Some(node) = table.get("max_length") {
            input.max_length = Some(self.whole(&sub("max_length"), node, 1, 1 << 17)?);
        }
        if let Some(node) = table.get("enum") {
            let path = sub("enum");
            let items = self.items(&path, node)?;
            let list: Vec<String> = items.iter().filter_map(|item| self.scalar_text(&path, item)).collect();
            if list.is_empty() {
                self.note(
                    &path,
                    node.place,
                    fault(
                        "value/incomplete",
                        format!("`{path}` allows no value"),
                        "no input would fit",
                        "list at least one",
                    ),
                );
            }
            input.one_of = Some(list);
        }
        if let Some(node) = table.get("pattern") {
            input.pattern = Some(self.pattern(&sub("pattern"), node)?);
        }
        if let Some(node) = table.get("required") {
            input.required = self.truth(&sub("required"), node)?;
        }
        if input.kind != InputType::String && (input.max_length.is_some() || input.pattern.is_some()) {
            let what = format!("`{path}` is a {} with `max_length` or `pattern`", input.kind);
            self.note(
                path,
                node.place,
                fault("value/input", what, "those judge texts", "remove them, or make it a string"),
            );
        }
        Some(input)
    }

    /// Allowed values of an input may be written as numbers.
    fn scalar_text(&mut self, path: &str, node: &Node) -> Option<String> {
        match &node.value {
            Value::Integer(number) => Some(number.to_string()),
            Value::Float(number) => Some(number.to_string()),
            Value::Bool(on) => Some(on.to_string()),
            Value::Null | Value::Text(_) | Value::Bare(_) | Value::Array(_) | Value::Table(_) => self.text(path, node),
        }
    }

    pub(crate) fn process(&mut self, tree: &Node, process: &mut Process) {
        let Some(node) = tree.get("process") else { return };
        if self.table("process", node, PROCESS).is_none() {
            return;
        }
        self.put(tree, "process.user", &mut process.user, |r, p, n| {
            let why = "it is the name of uid 1000 inside: lower-case letters, digits, _ and -, not root";
            r.fitting(p, n, why, "user", is_user_name)
        });
        self.put(tree, "process.hostname", &mut process.hostname, |r, p, n| {
            let label = |label: &str| {
                !label.is_empty()
                    && !label.starts_with('-')
                    && !label.ends_with('-')
                    && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            };
            r.fitting(p, n, "the kernel takes 1 to 63 letters, digits, - and .", "sandbox", |name| {
                name.len() <= 63 && name.split('.').all(label)
            })
        });
        self.put(tree, "process.umask", &mut process.umask, Self::umask);
        self.put(tree, "process.tty", &mut process.tty, Self::truth);
        self.put(tree, "process.label", &mut process.label, |r, p, n| r.limit(p, n, Self::label));
        self.put(tree, "process.devices", &mut process.devices, Self::devices);
    }

    fn devices(&mut self, path: &str, node: &Node) -> Option<Vec<Device>> {
        let mut list = Vec::new();
        for item in self.items(path, node)? {
            let Some(text) = self.text(path, item) else { continue };
            if let Some(device) = Device::parse(&text) {
                list.push(device);
                continue;
            }
            let what = format!("`{path}` has {}", quote(&text));
            let why = "devices are `kvm`, `nvidia:NUMBER` and `nvidia:all`";
            self.note(path, item.place, fault("value/form", what, why, "name one of these, as in [\"kvm\"]"));
        }
        list.sort_unstable();
        list.dedup();
        Some(list)
    }

    fn label(&mut self, path: &str, node: &Node) -> Option<String> {
        let why = "a label is `selinux:CONTEXT` or `apparmor:PROFILE`, of at most 240 bytes";
        let fits = |name: &str| !name.is_empty() && name.len() <= 240 && !name.chars().any(char::is_control);
        self.fitting(path, node, why, "apparmor:PROFILE", |text| {
            text.strip_prefix("selinux:").or_else(|| text.strip_prefix("apparmor:")).is_some_and(fits)
        })
    }

    fn fitting(
        &mut self,
        path: &str,
        node: &Node,
        why: &str,
        example: &str,
        fits: impl Fn(&str) -> bool,
    ) -> Option<String> {
        if !matches!(&node.value, Value::Text(_) | Value::Bare(_)) {
            self.wrong_type(path, node, "text", format!("for example {}", self.suggest(path, node.place, example)));
            return None;
        }
        let text = self.text(path, node)?;
        if fits(&text) {
            return Some(text);
        }
        let fix = self.suggest(path, node.place, example);
        self.note(path, node.place, fault("value/form", format!("`{path}` is {}", quote(&text)), why, fix));
        None
    }

    /// Octal, and said so: as text, or as `0o22`.
    fn umask(&mut self, path: &str, node: &Node) -> Option<u32> {
        let written = match &node.value {
            Value::Text(text) | Value::Bare(text) => text.clone(),
            Value::Integer(_) => self.written(node.place).to_owned(),
            Value::Null | Value::Bool(_) | Value::Float(_) | Value::Array(_) | Value::Table(_) => String::new(),
        };
        let is_text = matches!(&node.value, Value::Text(_) | Value::Bare(_));
        let digits = written.strip_prefix("0o").or(is_text.then_some(written.as_str())).unwrap_or_default();
        if let Ok(mask) = u32::from_str_radix(digits, 8)
            && mask <= 0o777
            && !digits.starts_with('+')
        {
            Some(mask)
        } else {
            let fix = self.suggest(path, node.place, "0022");
            let what = format!("`{path}` is {}", quote(if written.is_empty() { node.value.kind() } else { &written }));
            self.note(
                path,
                node.place,
                fault(
                    "value/umask",
                    what,
                    "a umask is octal, 0000 to 0777, and a bare number would be read as decimal",
                    fix,
                ),
            );
            None
        }
    }

    pub(crate) fn syscalls(&mut self, tree: &Node, syscalls: &mut Syscalls) {
        let Some(node) = tree.get("syscalls") else { return };
        if self.table("syscalls", node, SYSCALLS).is_none() {
            return;
        }
        self.put(tree, "syscalls.profile", &mut syscalls.profile, Self::profile);
        self.put(tree, "syscalls.allow", &mut syscalls.allow, Self::calls);
        self.put(tree, "syscalls.deny", &mut syscalls.deny, Self::calls);
    }

    fn profile(&mut self, path: &str, node: &Node) -> Option<String> {
        let text = self.text(path, node)?;
        if self.caller.profiles.contains(&text) {
            return Some(text);
        }
        let known: Vec<&str> = self.caller.profiles.iter().map(String::as_str).collect();
        let fix = match did_you_mean(&text, known.iter().copied()) {
            Some(near) => format!("did you mean {}?", self.suggest(path, node.place, near)),
            None => format!("profiles are {}", list_words(&known)),
        };
        let what = format!("{} is not a system call profile", quote(&text));
        self.note(path, node.place, fault("value/word", what, "profiles are data that ship with fumehood", fix));
        None
    }

    fn calls(&mut self, path: &str, node: &Node) -> Option<Vec<String>> {
        let mut list = Vec::new();
        for item in self.items(path, node)? {
            let Some(text) = self.text(path, item) else { continue };
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if !text.is_empty() && text.len() < 64 && text.chars().all(fits) {
                list.push(text);
            } else {
                let what = format!("{} is not the name of a system call", quote(&text));
                self.note(
                    path,
                    item.place,
                    fault("value/syscall", what, "names are as in syscalls(2)", "write it as in openat2"),
                );
            }
        }
        list.sort();
        list.dedup();
        Some(list)
    }

    pub(crate) fn audit(&mut self, tree: &Node, audit: &mut Audit) {
        let Some(node) = tree.get("audit") else { return };
        if self.table("audit", node, AUDIT).is_none() {
            return;
        }
        self.put(tree, "audit.path", &mut audit.path, |r, p, n| {
            let text = r.text(p, n)?;
            if text == "default" { Some(None) } else { r.host_path_text(p, n, &text).map(Some) }
        });
        self.put(tree, "audit.redact", &mut audit.redact, |r, p, n| {
            let items = r.items(p, n)?;
            Some(items.iter().filter_map(|item| r.pattern(p, item)).collect())
        });
        self.put(tree, "audit.content", &mut audit.content, |r, p, n| r.keyword(p, n, Content::WORDS));
        self.put(tree, "audit.sync", &mut audit.sync, |r, p, n| r.keyword(p, n, Sync::WORDS));
    }
}
