//! Calls about files of a live sandbox, where a program inside has put links in the place of folders.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::House;
use crate::served::Served;

const SECRET: &str = "s3cret-of-the-host";

/// A folder of the host that everybody may read and write: the sandbox alone keeps others out of it.
struct Outside {
    folder: PathBuf,
}

impl Outside {
    fn new(house: &House) -> Self {
        let folder = house.path("outside");
        let open = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("file"), SECRET).unwrap();
        open(&house.path(""), 0o755);
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
    let house = &House::new();
    let outside = Outside::new(house);
    let served = Served::new(house);
    let key = served.key("one", &[]);
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

#[test]
fn a_link_to_a_folder_of_the_sandbox_is_followed_by_each_file_call() {
    let house = &House::new();
    let served = Served::new(house);
    let key = served.key("one", &[]);
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
    let house = &House::new();
    let served = Served::new(house);
    let key = served.key("one", &[]);
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
