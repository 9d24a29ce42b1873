//! Calls about files of a live sandbox, where a program inside has put links in the place of folders.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::Fixture;
use crate::served::Served;

const SECRET: &str = "s3cret-of-the-host";

/// A folder of the host that everybody may read and write: the sandbox alone keeps others out of it.
struct Outside {
    folder: PathBuf,
}

impl Outside {
    fn new(fixture: &Fixture) -> Self {
        let folder = fixture.path("outside");
        let open = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("file"), SECRET).unwrap();
        open(&fixture.path(""), 0o755);
        open(&folder, 0o777);
        open(&folder.join("file"), 0o666);
        Self { folder }
    }

    fn is_untouched(&self) -> bool {
        let names: Vec<_> = std::fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names == ["file"] && std::fs::read_to_string(self.folder.join("file")).unwrap() == SECRET
    }
}

/// Each call about files, of a folder `d` in the home folder. What takes the file away comes last.
const CALLS: [(&str, &str); 9] = [
    ("GET files?path=d/file", ""),
    ("GET files/stat?path=d/file&follow=true", ""),
    ("GET files/list?path=d&depth=2", ""),
    ("GET files/archive?path=d/file", ""),
    ("PUT files?path=d/new", "\"planted\""),
    ("POST files/mkdir", r#"{"path": "d/made"}"#),
    ("POST files/move", r#"{"from": "mine", "to": "d/moved"}"#),
    ("POST files/move", r#"{"from": "d/file", "to": "moved"}"#),
    ("DELETE files?path=d/moved", ""),
];

/// Without a ceiling a key has no process tier.
fn key(fixture: &Fixture, served: &Served<'_>) -> String {
    let top = fixture.path("top.toml");
    std::fs::write(&top, "version = 1\nextends = \"strict\"\ntier = \"process\"\nlimits.wall = \"5m\"\n").unwrap();
    served.key("one", &["-p", top.to_str().unwrap()])
}

/// A live sandbox of a server's.
struct Inside<'a> {
    served: &'a Served<'a>,
    key: &'a str,
    id: String,
}

impl<'a> Inside<'a> {
    fn new(served: &'a Served<'a>, key: &'a str, tier: &str) -> Self {
        let policy = json!({ "extends": "strict", "tier": tier });
        let (status, made) = served.ask(key, "POST /v1/sandboxes", &json!({ "policy": policy, "timeout": "5m" }));
        assert_eq!(status, 201, "{made}");
        Self { served, key, id: made["id"].as_str().unwrap().to_owned() }
    }

    fn call(&self, (line, body): (&str, &str)) -> (u16, Json) {
        let (method, rest) = line.split_once(' ').unwrap();
        let body = if body.is_empty() { Json::Null } else { serde_json::from_str(body).unwrap() };
        self.served.ask(self.key, &format!("{method} /v1/sandboxes/{}/{rest}", self.id), &body)
    }

    /// What each door that reads files says of a path: those of `/v1` and E2B's, the path in a query plain and encoded, and in JSON.
    fn told_of(&self, path: &str) -> Vec<(String, (u16, Json))> {
        let connect = format!("POST /sandboxes/{}/connect", self.id);
        let (_, known) = self.served.ask(self.key, &connect, &json!({ "timeout": 300 }));
        let token = known["envdAccessToken"].as_str().unwrap();
        let headers = format!(
            "E2b-Sandbox-Id: {}\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: {token}\r\nContent-Type: application/json\r\n",
            self.id
        );
        let encoded: String = path.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let mut lines = Vec::new();
        for query in [path, &encoded] {
            for what in ["files?", "files/stat?follow=true&", "files/list?depth=1&", "files/archive?"] {
                let line = format!("GET {what}path={query}");
                lines.push((line.clone(), self.call((&line, ""))));
            }
            let line = format!("GET /files?path={query}");
            lines.push((line.clone(), self.served.send(self.key, &line, &headers, "")));
        }
        for method in ["Stat", "ListDir"] {
            let line = format!("POST /filesystem.Filesystem/{method}");
            let body = json!({ "path": path }).to_string();
            lines.push((format!("{line} {body}"), self.served.send(self.key, &line, &headers, &body)));
        }
        lines
    }

    fn shell(&self, line: &str, detach: bool) {
        let exec = json!({ "cmd": ["sh", "-c", format!("cd ~ && {line}")], "detach": detach });
        let (status, ran) = self.served.ask(self.key, &format!("POST /v1/sandboxes/{}/exec", self.id), &exec);
        assert!(status < 300 && (detach || ran["report"]["code"] == 0), "{line}: {ran}");
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.served.ask(self.key, &format!("DELETE /v1/sandboxes/{}", self.id), &Json::Null);
    }
}

#[test]
fn no_link_leads_a_file_call_out_of_the_sandbox() {
    let fixture = &Fixture::new();
    let outside = Outside::new(fixture);
    let served = Served::new(fixture);
    let key = key(fixture, &served);
    let here = outside.folder.to_str().unwrap();
    for tier in ["container", "process"] {
        let inside = Inside::new(&served, &key, tier);
        let up = "../".repeat(12);
        for target in
            [here.to_owned(), format!("/proc/self/root{here}"), format!("/proc/1/root{here}"), format!("{up}{here}")]
        {
            inside.shell(&format!("rm -rf d mine; echo mine > mine && ln -s '{target}' d"), false);
            for one in CALLS {
                let (status, told) = inside.call(one);
                // Attributes of files by their names are what the process tier does not hide; an archive is empty then.
                let may_be_told = tier == "process" && (one.0.contains("stat") || one.0.contains("archive"));
                assert!(
                    (status >= 400 || may_be_told) && !told.to_string().contains(SECRET),
                    "{tier}: {target}: {one:?}: {status} {told}"
                );
                assert!(outside.is_untouched(), "{tier}: {target}: {one:?}");
            }
        }
        // The same while a program exchanges the folder for a link and back.
        let swap = format!(
            "rm -rf d; mkdir real; while :; do ln -sfn '{here}' d; ln -sfn real d; echo mine > real/file; done"
        );
        inside.shell(&swap, true);
        for one in CALLS.iter().cycle().take(60) {
            let (_, told) = inside.call(*one);
            assert!(!told.to_string().contains(SECRET) && outside.is_untouched(), "{tier}: {one:?}: {told}");
        }
    }
}

/// The path itself, without a link: of a file that everybody may read, and of what the server keeps beside the sandbox.
#[test]
fn no_path_leads_a_file_call_out_of_the_sandbox() {
    let fixture = &Fixture::new();
    let outside = Outside::new(fixture);
    let served = Served::new(fixture);
    let key = key(fixture, &served);
    let server = fixture.state().join("server");
    // What would be seen of each: in folders a name, in files what is in them.
    let mut there = vec![
        (outside.folder.clone(), r#""name":"file""#.to_owned()),
        (outside.folder.join("file"), SECRET.to_owned()),
        (server.clone(), "keys.json".to_owned()),
    ];
    for file in ["keys.json", "secret"].map(|name| server.join(name)) {
        let content = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
        there.push((file, content.split(['"', '\n']).max_by_key(|part| part.len()).unwrap().to_owned()));
    }
    for tier in ["container", "process"] {
        let inside = Inside::new(&served, &key, tier);
        // The control: by the same doors a file of the sandbox is told of and read, and a folder listed.
        inside.shell("mkdir -p d && echo mine > d/file", false);
        for (path, answered, read) in [("d/file", 9, 6), ("d/../d/file", 9, 6), ("d", 8, 2)] {
            let told = inside.told_of(path);
            let count = |is: &dyn Fn(u16, &str) -> bool| {
                told.iter().filter(|(_, (status, told))| is(*status, &told.to_string())).count()
            };
            let found = (count(&|status, _| status < 300), count(&|_, told| told.contains("mine")));
            assert_eq!(found, (answered, read), "{tier}: {path}: {told:?}");
        }
        for (place, seen) in &there {
            assert!(seen.len() >= "keys.json".len(), "nothing to be seen of {}", place.display());
            let (here, up) = (place.to_str().unwrap(), "../".repeat(12));
            for path in [here.to_owned(), format!("{up}{here}"), format!("/..{here}"), format!("d/{up}.{here}")] {
                for (line, (status, told)) in inside.told_of(&path) {
                    // As above: attributes by a name are what the process tier does not hide.
                    let may_be = tier == "process" && ["stat", "archive", "Stat"].iter().any(|one| line.contains(one));
                    assert!(status >= 400 || may_be, "{tier}: {line}: {status} {told}");
                    assert!(!told.to_string().contains(seen), "{tier}: {line}: {told}");
                }
            }
        }
    }
    assert!(outside.is_untouched());
}

#[test]
fn a_link_to_a_folder_of_the_sandbox_is_followed_by_each_file_call() {
    let fixture = &Fixture::new();
    let served = Served::new(fixture);
    let key = key(fixture, &served);
    for tier in ["container", "process"] {
        let inside = Inside::new(&served, &key, tier);
        inside.shell("mkdir real && echo mine > mine && echo one > real/file && ln -s real d", false);
        for one in CALLS {
            let (status, told) = inside.call(one);
            assert!(status < 300, "{tier}: {one:?}: {status} {told}");
        }
    }
}

#[test]
fn a_name_that_is_no_text_is_told_and_taken_with_its_bytes_as_hexadecimal_digits() {
    let fixture = &Fixture::new();
    let served = Served::new(fixture);
    let key = key(fixture, &served);
    let inside = Inside::new(&served, &key, "container");
    inside.shell("printf one > \"$(printf 'caf\\351')\"", false);
    let (status, list) = inside.call(("GET files/list?path=.", ""));
    let named = |list: &Json, name: &str| list["entries"].as_array().unwrap().iter().any(|one| one["name"] == name);
    assert!(status == 200 && named(&list, "caf\u{0}e9"), "{status} {list}");
    // In a query the bytes themselves, and what was told; in JSON what was told.
    for path in ["caf%E9", "caf%00e9"] {
        let (status, told) = inside.call((&format!("GET files/stat?path={path}"), ""));
        assert!(status == 200 && told["size"] == 3, "{path}: {status} {told}");
    }
    let (status, told) = inside.call(("POST files/move", r#"{"from": "caf\u0000e9", "to": "th\u0000e9"}"#));
    assert!(status == 200 && told["name"] == "th\u{0}e9", "{status} {told}");
    inside.shell("test \"$(cat \"$(printf 'th\\351')\")\" = one", false);
    // What writes no path is refused, and is no other path.
    for path in ["a%00", "a%00zz", "a%002fb", "%00c3%00a9"] {
        let (status, told) = inside.call((&format!("GET files/stat?path={path}"), ""));
        assert_eq!(status, 400, "{path}: {told}");
    }
}
