//! A copy of an agent's settings without what may be a secret: text files of known forms, and of these what no name calls one.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use serde_json::Value;

use super::preset::Agent;

/// Most files of one agent.
const MAX_FILES: usize = 2000;
/// Most bytes of one file.
const MAX_FILE: u64 = 1 << 20;
/// Folders below folders.
const MAX_DEPTH: usize = 8;
/// What follows `Bearer` and is shorter is a word of prose.
const MIN_CREDENTIALS: usize = 8;
/// Fewest characters of a word that is taken for a random one, and of a part of an address.
const MIN_RANDOM: usize = 20;
const MIN_RANDOM_PART: usize = 16;
/// So often such a word goes from letters to digits or back.
const MIN_TURNS: usize = 4;
/// Words in the name of a file or a value that is left out.
const SECRET: [&str; 20] = [
    "apikey",
    "api_key",
    "api-key",
    "token",
    "secret",
    "password",
    "passwd",
    "credential",
    "oauth",
    "auth",
    "cookie",
    "private",
    "account",
    "bearer",
    "jwt",
    "passphrase",
    "pwd",
    "accesskey",
    "access_key",
    "access-key",
];

/// How keys of vendors begin.
const KEYS: [&str; 7] = ["sk-", "AIza", "ghp_", "github_pat_", "glpat-", "xoxb-", "AKIA"];

/// Copies what is there; how many files and values were left out.
///
/// # Errors
/// The copy cannot be written.
pub(super) fn copy(home: &Path, agent: &Agent, to: &Path) -> io::Result<usize> {
    let mut copy = Copy { leave: &agent.leave, files: 0, left: 0 };
    for name in &agent.home {
        let to = to.join(name);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        copy.any(&home.join(name), &to, 0)?;
    }
    Ok(copy.left)
}

struct Copy<'a> {
    leave: &'a [String],
    files: usize,
    left: usize,
}

impl Copy<'_> {
    /// A file or a folder; links are not followed, and what cannot be read is left out.
    fn any(&mut self, from: &Path, to: &Path, depth: usize) -> io::Result<()> {
        let Ok(meta) = from.symlink_metadata() else { return Ok(()) };
        let name = from.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let unwanted = self.leave.contains(&name) || is_secret(&name);
        if unwanted || depth > MAX_DEPTH || self.files >= MAX_FILES {
            self.left += 1;
            return Ok(());
        }
        if meta.is_dir() {
            fs::create_dir_all(to)?;
            for entry in fs::read_dir(from).into_iter().flatten().flatten() {
                self.any(&entry.path(), &to.join(entry.file_name()), depth + 1)?;
            }
            return Ok(());
        }
        self.files += 1;
        match meta.is_file().then(|| text(from)).flatten() {
            Some(text) => match self.cleaned(&name, &text) {
                Some(clean) => fs::write(to, clean),
                None => self.leave(),
            },
            None => self.leave(),
        }
    }

    fn leave(&mut self) -> io::Result<()> {
        self.left += 1;
        Ok(())
    }

    /// A text without its secrets; none where its form is not known.
    fn cleaned(&mut self, name: &str, text: &str) -> Option<String> {
        match name.rsplit('.').next()? {
            "md" | "txt" => Some(self.prose(text)),
            "json" => {
                let mut value: Value = serde_json::from_str(text).ok()?;
                self.top(&mut value);
                self.json(&mut value);
                serde_json::to_string_pretty(&value).ok()
            }
            "toml" => {
                let mut value = serde_json::to_value(text.parse::<toml::Table>().ok()?).ok()?;
                self.top(&mut value);
                self.json(&mut value);
                toml::to_string(&value).ok()
            }
            "yml" | "yaml" => Some(self.yaml(text)),
            _ => None,
        }
    }

    /// Prose without the lines that have a key in them: of what it calls a secret it only speaks.
    fn prose(&mut self, text: &str) -> String {
        let lines = || text.split_inclusive('\n');
        self.left += lines().filter(|line| holds_key(line)).count();
        lines().filter(|line| !holds_key(line)).collect()
    }

    /// Takes away what an agent keeps in one file under a name that is left out, but for numbers and switches.
    fn top(&mut self, value: &mut Value) {
        if let Value::Object(map) = value {
            let (before, leave) = (map.len(), self.leave);
            map.retain(|name, value| !leave.contains(name) || value.is_number() || value.is_boolean());
            self.left += before.saturating_sub(map.len());
        }
    }

    /// Takes away what a name calls a secret, but for numbers and switches, and texts that look like one.
    fn json(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                let before = map.len();
                map.retain(|name, value| {
                    let is_small = value.is_number() || value.is_boolean();
                    let goes = holds_key(name) || value.as_str().is_some_and(holds_secret);
                    (is_small || !is_secret(name)) && !goes
                });
                self.left += before.saturating_sub(map.len());
                map.values_mut().for_each(|value| self.json(value));
            }
            Value::Array(list) => {
                let before = list.len();
                // What follows a flag is its value.
                let mut is_value = false;
                list.retain(|value| {
                    let text = value.as_str();
                    let goes = text.is_some_and(|text| is_value || holds_secret(text));
                    is_value = text.is_some_and(|text| text.starts_with('-') && !text.contains('=') && is_secret(text));
                    !goes
                });
                self.left += before.saturating_sub(list.len());
                list.iter_mut().for_each(|value| self.json(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Line by line: what calls itself a secret, anywhere in the line, goes, with the lines below it that are deeper, and lists that belong to it.
    fn yaml(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut within: Option<usize> = None;
        for line in text.lines() {
            let content = line.trim_start();
            let depth = line.len().saturating_sub(content.len());
            if within
                .is_some_and(|above| content.is_empty() || depth > above || depth == above && content.starts_with('-'))
            {
                continue;
            }
            within = (is_secret(content) || content.contains("sk-") || holds_key(content)).then_some(depth);
            if within.is_some() {
                self.left += 1;
                continue;
            }
            out.push_str(line);
            out.push('\n');
        }
        out
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    name == ".env" || SECRET.iter().any(|word| name.contains(word))
}

/// Whether a text has a secret in it: by what stands before `=` or `:`, or by how it begins.
fn holds_secret(text: &str) -> bool {
    text.contains(['=', ':']) && is_secret(text) || holds_key(text)
}

/// Whether a word in it begins as the keys of vendors do, is a token of three parts (JWT), follows `Bearer` or `Basic`, is random, or is
/// the login of an address; or an address in it is one that whoever knows it may use.
fn holds_key(text: &str) -> bool {
    let words = |others: &'static [char]| text.split(move |c: char| !c.is_ascii_alphanumeric() && !others.contains(&c));
    words(&['-', '_']).any(|word| KEYS.iter().any(|key| word.starts_with(key)))
        || words(&['-', '_', '.']).any(|word| word.starts_with("eyJ") && word.matches('.').count() >= 2)
        || words(&[]).any(is_random)
        || holds_credentials(text)
        || text.split("://").skip(1).any(is_a_key_itself)
        || text.split("://").zip(text.split("://").skip(1)).any(|(before, rest)| has_login(before, rest))
}

/// Whether something stands in it as behind `Authorization:`.
fn holds_credentials(text: &str) -> bool {
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || ['"', '\'', ':', '='].contains(&c)).collect();
    let is_scheme = |word: &str| ["bearer", "basic"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme));
    let is_long = |word: &str| word.len() >= MIN_CREDENTIALS && word.chars().any(|c| c.is_ascii_digit());
    words.iter().zip(words.iter().skip(1)).any(|(scheme, word)| is_scheme(scheme) && is_long(word))
}

/// Whether a word is of letters of both cases and digits as nobody writes them.
fn is_random(word: &str) -> bool {
    let has = |is: fn(&u8) -> bool| word.as_bytes().iter().any(is);
    word.len() >= MIN_RANDOM && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && turns(word) >= MIN_TURNS
}

/// How often a word goes from letters to digits or back.
fn turns(word: &str) -> usize {
    word.bytes().zip(word.bytes().skip(1)).filter(|(one, next)| one.is_ascii_digit() != next.is_ascii_digit()).count()
}

/// Whether an address, of which this is what stands behind `://`, is one that whoever knows it may use: by a signature or a key in its
/// query, by a random part of its path, or as one of those to which programs post (webhooks).
fn is_a_key_itself(rest: &str) -> bool {
    let end = |c: char| c.is_whitespace() || ['"', '\'', '<', '>', '`', ')', '|'].contains(&c);
    let address = rest.split(end).next().unwrap_or_default();
    let (place, query) = address.split_once(['?', '#']).unwrap_or((address, ""));
    let is_named = |name: &str| {
        let name = name.to_lowercase();
        is_secret(&name) || name.ends_with("signature") || ["sig", "sas", "key", "code"].contains(&name.as_str())
    };
    let mut values = query.split(['&', '#', ';']).filter_map(|part| part.split_once('='));
    let is_hook = place.to_lowercase().contains("hook");
    let is_part = |part: &str| {
        let words = || part.split(|c: char| !c.is_ascii_alphanumeric());
        let is_long = |word: &str| word.len() >= MIN_RANDOM_PART && turns(word) >= MIN_TURNS;
        let is_uuid = words().map(str::len).eq([8, 4, 4, 4, 12]);
        is_uuid || words().any(is_long) || is_hook && part.len() >= MIN_CREDENTIALS && turns(part) > 0
    };
    values.any(|(name, value)| is_named(name) && value.len() >= MIN_CREDENTIALS)
        || place.split('/').skip(1).any(is_part)
}

/// Whether an address has a login: a password, or of the web whatever stands before its `@`.
fn has_login(before: &str, rest: &str) -> bool {
    let authority = rest.split(|c: char| c.is_whitespace() || ['/', '?', '#', '"', '\'', '<', '>'].contains(&c)).next();
    let Some((login, _)) = authority.and_then(|authority| authority.rsplit_once('@')) else { return false };
    let is_web = ["http", "https"].iter().any(|scheme| before.to_ascii_lowercase().ends_with(scheme));
    !login.is_empty() && (login.contains(':') || is_web)
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    let read = fs::File::open(path).ok()?.take(MAX_FILE + 1).read_to_string(&mut text).ok()?;
    (u64::try_from(read).ok()? <= MAX_FILE).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::agents;

    const CANARY: &str = "sk-canary-0123456789";

    #[test]
    fn settings_go_along_and_secrets_stay() {
        let (home, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let claude = agents().iter().find(|agent| agent.name == "claude").unwrap();
        let file = |name: &str, text: &str| {
            let path = home.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file(
            ".claude/settings.json",
            &format!(r#"{{"model":"x","maxTokens":5,"env":{{"MY_API_KEY":"{CANARY}","A":"1"}}}}"#),
        );
        file(".claude/.credentials.json", CANARY);
        file(".claude/agents/a.md", "be brief");
        file(".claude/projects/p.json", CANARY);
        file(".claude/history.jsonl", CANARY);
        file(".claude/broken.json", CANARY);
        file(
            ".claude.json",
            &format!(r#"{{"oauthAccount":{{"x":"{CANARY}"}},"primaryApiKey":"{CANARY}","theme":"dark"}}"#),
        );
        file("elsewhere.json", CANARY);
        std::os::unix::fs::symlink("../elsewhere.json", home.path().join(".claude/link.json")).unwrap();
        let left = copy(home.path(), claude, to.path()).unwrap();
        let read = |name: &str| fs::read_to_string(to.path().join(name)).unwrap();
        let settings: Value = serde_json::from_str(&read(".claude/settings.json")).unwrap();
        assert_eq!(settings, serde_json::json!({ "model": "x", "maxTokens": 5, "env": { "A": "1" } }));
        assert_eq!(
            serde_json::from_str::<Value>(&read(".claude.json")).unwrap(),
            serde_json::json!({ "theme": "dark" })
        );
        assert_eq!(read(".claude/agents/a.md"), "be brief");
        for name in [".credentials.json", "projects", "history.jsonl", "broken.json", "link.json"] {
            assert!(!to.path().join(".claude").join(name).exists(), "{name}");
        }
        assert_eq!(left, 8);
    }

    #[test]
    fn toml_and_yaml_lose_what_a_key_calls_a_secret() {
        let mut copy = Copy { leave: &[], files: 0, left: 0 };
        let toml = copy.cleaned("c.toml", &format!("model = 'x'\n[mcp.env]\nX_TOKEN = '{CANARY}'\nB = '2'\n")).unwrap();
        assert!(!toml.contains(CANARY) && toml.contains("model") && toml.contains('B'), "{toml}");
        let text = format!(
            "model: x\nopenai-api-key: {CANARY}\napi-key:\n- {CANARY}\n-  {CANARY}\nanthropic-api-key: |\n  {CANARY}\n\n  {CANARY}\nedit: y\n#set: {CANARY}\n"
        );
        assert_eq!(copy.cleaned("a.yml", &text).unwrap(), "model: x\nedit: y\n");
        for text in ["set-env:\n  - GEMINI_API_KEY=AIza\n", "set-env: X_API_KEY=AIza\n", "env: {api_key: AIza}\n"] {
            let clean = Copy { leave: &[], files: 0, left: 0 }.cleaned("a.yml", text).unwrap();
            assert!(!clean.contains("AIza"), "{clean}");
        }
        assert_eq!(copy.cleaned("a.sqlite", "x"), None);
        assert_eq!(copy.left, 5);
    }

    #[test]
    fn what_looks_like_a_token_or_a_login_stays_under_whatever_name() {
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl";
        let mut copy = Copy { leave: &[], files: 0, left: 0 };
        let text = serde_json::json!({
            "a": jwt, "b": "https://u:p4ssw0rd@h.test/x", "c": "Bearer abcdef0123", "d": "https://t0ken@h.test", "jwt": "x1",
            "bearerValue": "x2", "passphrase": "x3", "e": format!("x {jwt} y"), "https://u:pw@h.test/": {}, "f": "Basic dXNlcjpwdw0x",
            "args": ["--header", "X: Bearer abcdef0123", "postgres://u:p4ss@db.test/x", "ssh://git@h.test/x", "bearer of news"],
            "url": "https://h.test/@scope", "model": "x", "mail": "a@b.test",
        });
        let clean: Value = serde_json::from_str(&copy.cleaned("a.json", &text.to_string()).unwrap()).unwrap();
        let wanted = serde_json::json!({
            "args": ["--header", "ssh://git@h.test/x", "bearer of news"],
            "url": "https://h.test/@scope", "model": "x", "mail": "a@b.test",
        });
        assert_eq!((clean, copy.left), (wanted, 12));
        let prose = format!("Say no token.\nproxy: http://u:pw@h.test\nuse {jwt}\nBearer tokens are fine.\n");
        let mut copy = Copy { leave: &[], files: 0, left: 0 };
        assert_eq!(copy.cleaned("a.md", &prose).unwrap(), "Say no token.\nBearer tokens are fine.\n");
        let yaml = format!("a: {jwt}\nproxy: http://u:pw@h.test\nmodel: x\n");
        assert_eq!(copy.cleaned("a.yml", &yaml).unwrap(), "model: x\n");
        assert_eq!(copy.left, 4);
    }

    #[test]
    fn an_address_that_is_a_key_itself_stays_and_others_go_along() {
        let hooks = [
            "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
            "https://discord.com/api/webhooks/112233445566778899/Zq83LmX0vTa7Pw2k9dRb-_x",
            "https://x.webhook.office.com/webhookb2/11111111-2222-3333-4444-555555555555@x/IncomingWebhook/ab12cd34",
            "https://maker.ifttt.test/trigger/x/with/zq83lmx0vta7pw2k9d",
            "https://hc-ping.test/11111111-2222-3333-4444-555555555555",
            "https://h.test/a?sv=1&sig=Zq83LmX0vTa7",
            "https://h.test/a?code=Zq83LmX0vTa7#x",
            "https://h.test/a?X-Amz-Signature=0123456789ab",
            "curl -H 'X-Key: Zq83LmX0vTa7Pw2k9dRb' https://h.test",
        ];
        let plain = [
            "https://h.test/v1/models/claude-sonnet-4-20250514",
            "https://docs.h.test/webhooks/using-webhooks?page=2",
            "https://h.test/a/b/0123456789/c?sort=name&sig=1",
            "https://h.test/openai/deployments/gpt4o20240806",
            "mcp__Server2__ReadTheWholeFileAtOnce",
        ];
        let left = |texts: &[&str]| {
            let mut copy = Copy { leave: &[], files: 0, left: 0 };
            let json = copy.cleaned("a.json", &serde_json::json!({ "all": texts }).to_string()).unwrap();
            let prose = copy.cleaned("a.md", &texts.join("\n")).unwrap();
            let yaml =
                copy.cleaned("a.yml", &texts.iter().map(|text| format!("- {text}\n")).collect::<String>()).unwrap();
            texts.iter().filter(|text| [&json, &prose, &yaml].iter().any(|clean| clean.contains(**text))).count()
        };
        assert_eq!((left(&hooks), left(&plain)), (0, plain.len()));
    }

    #[test]
    fn texts_are_judged_and_what_is_left_out_is_no_key_either() {
        let leave = ["projects".to_owned(), "debug".to_owned()];
        let mut copy = Copy { leave: &leave, files: 0, left: 0 };
        let text = serde_json::json!({
            "projects": { "/p": { "history": ["x"] } }, "debug": true,
            "command": "task-runner", "args": ["--api-key", "A1", "--token=A2", "X_API_KEY=A3", "-y"],
            "key": "sk-A4", "url": "https://h/?k=AIzaA5", "permissions": { "deny": ["Read(./secrets/**)"] },
        });
        let clean: Value = serde_json::from_str(&copy.cleaned("a.json", &text.to_string()).unwrap()).unwrap();
        let wanted = serde_json::json!({
            "debug": true, "command": "task-runner", "args": ["--api-key", "-y"],
            "permissions": { "deny": ["Read(./secrets/**)"] },
        });
        assert_eq!((clean, copy.left), (wanted, 6));
    }
}
