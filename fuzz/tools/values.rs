//! Addresses, links, paths, names, and what a person is shown: what passes is one value, and every reader takes it for that.

use std::path::{Path, PathBuf};

use gate::guard::Compiled;
use gate::names::{self, Public};
use gateway::approvals::{Pattern, Wide, sanitize, sanitize_text};
use gateway::mcp::jsonc;
use serde_json::{Value as Json, json};

pub(crate) const TOKENS: &[&str] = &[
    "@company.com",
    "@",
    "https://",
    "http://",
    "//",
    "\\",
    "/..",
    "../",
    "/./",
    "%2e%2e/",
    "%00",
    "%",
    "#",
    "?",
    ":443",
    ":",
    "user:pw@",
    "api.company.com",
    "127.0.0.1",
    "0x7f.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "169.254.169.254",
    "\u{ff0e}",
    "\u{3002}",
    "\u{ad}",
    "\u{200b}",
    "\u{202e}",
    "xn--",
    "ß",
    "\t",
    "\n",
    "\r\nBcc: x@evil.example",
    "\"a b\"",
    "(comment)",
    "<a@b.c>",
    "=?utf-8?q?",
    ".",
    "..",
    "-",
    "out/",
    "link.csv",
    "sub/",
    "a.csv",
    ".git/",
    ".env",
    "s__",
    "__",
    "mail.",
    "*",
    "\u{1b}[2J",
    "а",
    "\u{301}",
];

pub(crate) struct Place {
    folder: tempfile::TempDir,
    root: PathBuf,
    email: Compiled,
    url: Compiled,
    reads: Compiled,
    writes: Compiled,
    pattern: Compiled,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = std::fs::canonicalize(folder.path()).unwrap();
        for inner in ["work/sub", "work/.git", "work-secret", "outside"] {
            std::fs::create_dir_all(at.join(inner)).unwrap();
        }
        for file in
            ["work/a.csv", "work/sub/b.csv", "work/.git/config", "work/.env", "work-secret/c.csv", "outside/canary.csv"]
        {
            std::fs::write(at.join(file), "canary").unwrap();
        }
        for (to, name) in [
            ("../outside", "out"),
            ("../outside/canary.csv", "link.csv"),
            ("sub/b.csv", "inner.csv"),
            ("/proc/self/root", "magic"),
            ("sub", "down"),
        ] {
            std::os::unix::fs::symlink(to, at.join("work").join(name)).unwrap();
        }
        let root = at.join("work");
        let path = |access: &str| {
            super::guard(&format!(
                "{{ kind = \"path\", roots = [{:?}], access = \"{access}\", extensions = [\".csv\"], hide = [\".git\", \".env\"] }}",
                root.display().to_string()
            ))
        };
        Self {
            email: super::guard("{ kind = \"email\", domains = [\"company.com\", \"müller.example\"] }"),
            url: super::guard(
                "{ kind = \"url\", schemes = [\"https\"], hosts = [\"api.company.com\", \"*.data.example\"] }",
            ),
            reads: path("read"),
            writes: path("write"),
            pattern: super::guard("{ kind = \"pattern\", pattern = \"[a-z]+-[0-9]{1,4}\" }"),
            root,
            folder,
        }
    }

    pub(crate) fn seeds(&self) -> Vec<Vec<u8>> {
        let root = self.root.display();
        let mut seeds: Vec<String> = [
            "ann@company.com",
            "Ann.O'Hara+x@COMPANY.com",
            "a@xn--mller-kva.example",
            "a@evil.example",
            "a@company.com,b@evil.example",
            "https://api.company.com/v1/x?y=1#z",
            "https://a.data.example/",
            "https://api.company.com@evil.example/",
            "https://api.company.com:443/a/../b",
            "https://evil.example\\@api.company.com",
            "a.csv",
            "sub/b.csv",
            "inner.csv",
            "down/b.csv",
            "new.csv",
            "sub/../a.csv",
            "out/canary.csv",
            "mail.send",
            "mail.*",
            "mail__send",
            "ticket-42",
            "{\"a\": 1, // x\n \"b\": [1, 2,], /* y */ }",
            "plain words",
            "p\u{430}ypal",
            "\u{1b}]0;t\u{7}",
        ]
        .map(str::to_owned)
        .to_vec();
        seeds.extend([format!("{root}/a.csv"), format!("{root}/sub/new.csv"), format!("{root}-secret/c.csv")]);
        // Each guard lets something in: else mutations would only ever be refused at the door.
        for (guard, seed) in [
            (&self.email, &seeds[0]),
            (&self.url, &seeds[5]),
            (&self.reads, &seeds[25]),
            (&self.writes, &seeds[26]),
            (&self.pattern, &seeds[20]),
        ] {
            assert!(guard.pass(&json!(seed)).is_ok(), "{seed}: {:?}", guard.pass(&json!(seed)));
        }
        seeds.into_iter().map(String::into_bytes).collect()
    }

    pub(crate) fn read(&self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.address(&text);
        self.link(&text);
        self.paths(&text);
        if passed(&self.pattern, &text).is_some() {
            let (word, number) = text.split_once('-').expect("a dash");
            assert!(
                word.bytes().all(|c| c.is_ascii_lowercase()) && number.bytes().all(|c| c.is_ascii_digit()),
                "{text:?}"
            );
        }
        tool_names(&text);
        screens(&text);
        comments(&text);
    }

    fn address(&self, text: &str) {
        let Some(address) = passed(&self.email, text) else { return };
        let (local, domain) = address.split_once('@').expect("an address");
        assert!(["company.com", "xn--mller-kva.example"].contains(&domain), "{text:?}: {address}");
        assert!(
            !local.is_empty() && local.bytes().all(|c| c.is_ascii_graphic() && !b"\"(),:;<>@[\\]".contains(&c)),
            "{address}"
        );
    }

    fn link(&self, text: &str) {
        let Some(link) = passed(&self.url, text) else { return };
        // As the simplest reader of links takes it: no rule of WHATWG in it.
        let rest = link.strip_prefix("https://").unwrap_or_else(|| panic!("{link}"));
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let below = host.strip_suffix(".data.example").is_some_and(|name| !name.is_empty());
        assert!(host == "api.company.com" || below, "{text:?}: {link}");
        assert!(link.bytes().all(|c| c.is_ascii_graphic()) && !link.contains('\\'), "{text:?}: {link}");
    }

    /// What passes lies beneath the root, by the kernel's own word; nothing outside was made.
    fn paths(&self, text: &str) {
        for (guard, writes) in [(&self.reads, false), (&self.writes, true)] {
            let Some(path) = passed(guard, text) else { continue };
            let path = Path::new(&path);
            let real = if writes {
                let parent = std::fs::canonicalize(path.parent().unwrap()).unwrap();
                parent.join(path.file_name().unwrap())
            } else {
                std::fs::canonicalize(path).unwrap()
            };
            assert_eq!(real, path, "{text:?}");
            assert!(
                real.starts_with(&self.root) && real.starts_with(std::fs::canonicalize(self.folder.path()).unwrap()),
                "{text:?}: {real:?}"
            );
            assert!(real.extension().is_some_and(|extension| extension == "csv"), "{text:?}: {real:?}");
            assert!(
                !real.strip_prefix(&self.root).unwrap().components().any(|part| part.as_os_str() == ".git"),
                "{real:?}"
            );
            assert!(!std::fs::symlink_metadata(path).is_ok_and(|facts| facts.is_symlink()), "{text:?}: {real:?}");
        }
    }
}

/// What passes passes again, unchanged: a value has one form.
fn passed(guard: &Compiled, text: &str) -> Option<String> {
    let value = guard.pass(&json!(text)).ok()?;
    assert_eq!(guard.pass(&value), Ok(value.clone()), "{text:?}");
    Some(value.as_str().expect("a text").to_owned())
}

fn tool_names(text: &str) {
    let (server, tool) = text.split_once('.').map_or((None, text), |(server, tool)| (Some(server), tool));
    let mut public = Public::default();
    let Ok(name) = public.insert(server, tool) else { return };
    assert!(names::is_name(text), "{text:?}");
    assert!(
        (1..=64).contains(&name.len()) && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-".contains(&c)),
        "{name:?}"
    );
    assert_eq!(public.tool(&name), Some(text));
    assert!(names::matches(text, text) && names::matches("*", text));
    if let Some(server) = server {
        assert!(names::matches(&format!("{server}.*"), text) && !names::matches(&format!("{server}x.*"), text));
    }
}

/// A person sees nothing that acts on the terminal, hides, or turns round; and remembers what was seen and nothing else.
fn screens(text: &str) {
    let seen = sanitize(text);
    assert_eq!(seen.text, sanitize_text(text));
    let acts = |c: char| c.is_control() && c != '\n' && c != '\t' || gateway::mcp::text::hides(c);
    assert!(!seen.text.chars().any(acts), "{:?}", seen.text);
    if seen.notes.is_empty() {
        assert_eq!(seen.text, text, "changed without a word");
    }
    let (cleaned, _) = gateway::mcp::text::escaped(text);
    assert!(!cleaned.chars().any(gateway::mcp::text::hides), "{cleaned:?}");
    let args = json!({"a": text, "b": [text, 1]});
    let exact = Pattern::of(&Wide::But(Default::default()), &args).unwrap();
    assert!(exact.covers(&args) && !exact.covers(&json!({"a": format!("{text}x"), "b": [text, 1]})));
    let wide = Pattern::of(&Wide::But(["a".to_owned()].into()), &args).unwrap();
    assert!(wide.covers(&json!({"a": 0, "b": [text, 1]})) && !wide.covers(&json!({"a": 0, "b": [text, 2]})));
    assert!(!wide.covers(&json!({"a": text, "b": [text, 1], text: 1})) || ["a", "b"].contains(&text));
}

/// A client's file: what is JSON is read as JSON is, and what is read comes back to the byte.
fn comments(text: &str) {
    let read = jsonc::read(text);
    if let Ok(tree) = jsonc::parse(text) {
        assert_eq!(tree.to_string(), text.strip_prefix('\u{feff}').unwrap_or(text));
    }
    if let Ok(value) = serde_json::from_str::<Json>(text) {
        assert_eq!(read, Ok(value), "{text:?}");
    }
}
