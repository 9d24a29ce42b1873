//! Templates made by clients of registries that are none: scripts that leave what the real ones leave, in sandboxes as theirs.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use sandbox::Environment;
use sys::command::Command;

use super::*;

struct Fixture {
    folder: tempfile::TempDir,
    store: Store,
    tools: Tools,
}

/// A `python3` whose `-m venv` makes a folder with a Python that only installs: itself, by another name.
const PYTHON: &str = r#"#!/bin/sh
if [ "$3" = venv ]; then
  mkdir -p "$4/bin" "$4/lib/python3.11/site-packages"
  echo "home = /usr/bin" > "$4/pyvenv.cfg"
  ln -s "$0" "$4/bin/python3"
  exit
fi
[ "$3" = pip ] || exit 9
venv=${0%/bin/python3}
case "$*" in *broken*) echo "ERROR: no such version" >&2; exit 1 ;; esac
printf '%s\n' "$@" > "$venv/arguments"
printf '#!%s/bin/python3\nprint(1)\n' "$venv" > "$venv/bin/tool"
chmod 700 "$venv/bin/tool"
mkdir -m 700 "$venv/lib/python3.11/site-packages/numpy-2.4.6.dist-info"
ln -s /etc/passwd "$venv/link"
"#;

/// An `npm` that leaves its arguments, and the list of what it would have installed.
const NPM: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do
  printf '%s\n' "$1" >> "$TMPDIR/arguments"
  [ "$1" = --prefix ] && prefix=$2
  shift
done
mkdir -p "$prefix/node_modules/typescript"
echo '{"packages": {"node_modules/typescript": {"version": "5.0.2"}}}' > "$prefix/node_modules/.package-lock.json"
cp "$TMPDIR/arguments" "$prefix/arguments"
"#;

/// Where a test's own programs are shown inside: `/tmp` is the sandbox's.
const PLACE: &str = "/var/tmp";

fn fixture() -> Fixture {
    let folder = tempfile::tempdir_in(PLACE).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let (python, npm) = (program("python3", PYTHON), program("npm", NPM));
    let state = folder.path().join("state");
    private(&state).unwrap();
    // Nobody asks a registry: a broker is only there where the whole program is.
    let env = [("FUMEHOOD_STATE", state.to_str().unwrap()), ("PIP_NO_INDEX", "1"), ("npm_config_offline", "true")];
    let env: BTreeMap<_, _> = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let caller = Environment::new(None, env, rustix::process::geteuid().as_raw());
    let tools = Tools { python, npm, limit: Duration::from_secs(30), ..Tools::new(&caller) };
    Fixture { store: Store::new(&state), folder, tools }
}

impl Fixture {
    fn source(&self, text: &str) -> Source {
        let path = self.folder.path().join("template.toml");
        fs::write(&path, text).unwrap();
        Source::file(&path).unwrap()
    }

    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path().join("state/templates")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

const NUMPY: &str = "policy = [\"python\"]\nenv.A = \"1\"\n[packages]\npip = [\"numpy==2.4.6\", \"six\"]\n";

#[test]
fn a_template_is_made_once_and_kept_by_its_content() {
    let fixture = fixture();
    let made = fixture.store.build("one", &fixture.source(NUMPY), &fixture.tools).unwrap();
    let again = fixture.store.build("two", &fixture.source(NUMPY), &fixture.tools).unwrap();
    assert_eq!((again.built_ms, &again.digest, again.name.as_str()), (made.built_ms, &made.digest, "two"));
    assert_eq!(fixture.store.find("one").unwrap(), made);
    assert_eq!(made.installed, ["numpy==2.4.6"]);
    let other = fixture.store.build("one", &fixture.source(&NUMPY.replace("\"1\"", "\"2\"")), &fixture.tools).unwrap();
    assert_ne!(other.digest, made.digest);
    assert_eq!(fixture.left().len(), 3, "{:?}", fixture.left());
    let live = [("box".to_owned(), "two:latest".to_owned())];
    assert!(matches!(fixture.store.remove("two", &live), Err(TemplateError::Used { by, .. }) if by == ["box"]));
    fixture.store.remove("two", &[("box".to_owned(), "other".to_owned())]).unwrap();
    assert_eq!(fixture.left(), [other.digest.as_str(), "names"], "nothing leads to it any more");
    assert!(matches!(fixture.store.find("two"), Err(TemplateError::Unknown(_))));
    assert!(matches!(fixture.store.remove("two", &[]), Err(TemplateError::Unknown(_))));
}

#[test]
fn what_is_not_kept_leaves_nothing_and_takes_nothing_from_a_name_that_leads_to_the_same() {
    let fixture = fixture();
    let made = |name: &str| drop(fixture.store.make(name, &fixture.source(NUMPY), &fixture.tools).unwrap());
    made("one");
    assert_eq!(fixture.left(), ["names"]);
    let kept = fixture.store.build("two", &fixture.source(NUMPY), &fixture.tools).unwrap();
    made("one");
    made("two");
    assert_eq!(fixture.store.find("two").unwrap(), kept);
    assert!(kept.folder().unwrap().join(RECORD).exists());
    assert!(matches!(fixture.store.find("one"), Err(TemplateError::Unknown(_))));
}

#[test]
fn two_names_for_one_thing_keep_it_until_both_are_gone() {
    let fixture = fixture();
    for name in ["one", "two"] {
        fixture.store.build(name, &fixture.source(NUMPY), &fixture.tools).unwrap();
    }
    // One who lives by the other name is shown the same folder.
    let live = [("box".to_owned(), "two".to_owned())];
    assert!(matches!(fixture.store.remove("one", &live), Err(TemplateError::Used { .. })));
    fixture.store.remove("one", &[]).unwrap();
    assert_eq!(fixture.store.find("two").unwrap().installed.len(), 1);
    let names: Vec<_> = fixture.store.list().unwrap().into_iter().map(|template| template.name).collect();
    assert_eq!(names, ["base", "two"]);
}

#[test]
fn what_is_made_is_readable_for_all_and_names_the_place_where_it_is_seen() {
    let fixture = fixture();
    let made = fixture.store.build("one", &fixture.source(NUMPY), &fixture.tools).unwrap();
    let folder = made.folder.unwrap();
    let tool = folder.join("venv/bin/tool");
    assert_eq!(fs::read_to_string(&tool).unwrap(), format!("#!{INSIDE}/venv/bin/python3\nprint(1)\n"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&tool), mode(&folder), mode(&folder.join("venv/pyvenv.cfg"))), (0o755, 0o755, 0o644));
    assert_eq!(mode(&folder.join("venv/lib/python3.11/site-packages/numpy-2.4.6.dist-info")), 0o755);
    let arguments = fs::read_to_string(folder.join("venv/arguments")).unwrap();
    assert!(arguments.contains("--only-binary=:all:\n--\nnumpy==2.4.6\nsix\n"), "{arguments}");
}

#[test]
fn npm_runs_no_script_and_its_packages_are_found_first() {
    let fixture = fixture();
    let text = "[packages]\nnpm = [\"typescript@5\"]\npip = [\"six\"]\n";
    let made = fixture.store.build("one", &fixture.source(text), &fixture.tools).unwrap();
    assert_eq!(made.installed, ["numpy==2.4.6", "typescript@5.0.2"]);
    let folder = made.folder().unwrap();
    let arguments = fs::read_to_string(folder.join("node/arguments")).unwrap();
    assert!(arguments.starts_with("install\n--ignore-scripts\n"), "{arguments}");
    assert!(arguments.ends_with(&format!("--prefix\n{INSIDE}/node\n")), "{arguments}");
    let flag = |name: &str, value: String| PolicyLayer::Flag { name: name.to_owned(), value };
    let expected = vec![
        flag("--dangerous-read", format!("{}:{INSIDE}", folder.display())),
        flag("--env", format!("NODE_PATH={INSIDE}/node/node_modules")),
        flag("--env", format!("PATH={INSIDE}/venv/bin:{INSIDE}/node/node_modules/.bin:{PATH}")),
    ];
    assert_eq!(made.layers(), expected);
    let parts: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(parts.len(), 4, "what a client needed meanwhile is gone: {parts:?}");
}

/// A client that whoever answered it has taken over: what it could do to the caller. It leaves what came of it in its folder.
const TAKEN: &str = r#"#!/bin/bash
for word; do [ "$last" = --prefix ] && prefix=$word; last=$word; done
cat FOLDER/secret > "$prefix/read" 2>/dev/null
echo planted > FOLDER/planted 2>/dev/null
(exec 3<>/dev/tcp/127.0.0.1/PORT) 2>/dev/null && echo connected > "$prefix/connected"
printf '#!/bin/sh\necho executed' > "$prefix/written"; chmod 755 "$prefix/written"
"$prefix/written" > "$prefix/executed" 2>/dev/null
ln -s FOLDER/secret "$prefix/../template.json" 2>/dev/null && echo linked > "$prefix/linked"
mkdir -p "$prefix/node_modules" && ln -s FOLDER/secret "$prefix/node_modules/.package-lock.json"
echo "$CALLERS" > "$prefix/variable"
exit 0
"#;

#[test]
fn a_client_that_was_taken_over_reaches_nothing_of_the_caller() {
    let fixture = fixture();
    let folder = fixture.folder.path();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    fs::write(folder.join("secret"), "{\"packages\": {\"secret\": {\"version\": \"1\"}}}").unwrap();
    fs::write(folder.join("npm"), TAKEN.replace("FOLDER", folder.to_str().unwrap()).replace("PORT", &port)).unwrap();
    let found = |prefix: &Path| {
        let text = |name: &str| fs::read_to_string(prefix.join(name)).unwrap_or_default().trim().to_owned();
        ["read", "connected", "executed", "linked", "variable"].map(text).map(|text| !text.is_empty())
    };
    // The control: without a sandbox all of it is done.
    let plain = folder.join("plain/node");
    fs::create_dir_all(&plain).unwrap();
    let call = Command::new(folder.join("npm")).env("PATH", "/usr/bin:/bin").env("CALLERS", "x");
    let call = call.args(["install", "--prefix"]).arg(&plain);
    call.output(b"", 4096, Duration::from_secs(30)).unwrap();
    assert_eq!((found(&plain), folder.join("planted").exists()), ([true; 5], true));
    fs::remove_file(folder.join("planted")).unwrap();

    let mut tools = fixture.tools.clone();
    tools.caller.env.insert("CALLERS".into(), "x".into());
    let made = fixture.store.build("one", &fixture.source("packages.npm = [\"x\"]"), &tools).unwrap();
    assert_eq!((found(&made.folder().unwrap().join("node")), folder.join("planted").exists()), ([false; 5], false));
    assert!(made.installed.is_empty(), "a link leads the reader of its list to no file of the host: {made:?}");
}

#[test]
fn without_a_way_to_hold_it_a_registry_is_not_asked() {
    let fixture = fixture();
    let mut tools = fixture.tools.clone();
    tools.caller.env.remove(std::ffi::OsStr::new("npm_config_offline"));
    let source = fixture.source("packages.npm = [\"x\"]");
    // Without a broker there is no network by name, and none is taken instead.
    let error = fixture.store.build("one", &source, &tools).unwrap_err();
    assert!(matches!(error.error(), sandbox::Error::Failed(faults) if faults[0].id == "net/no-program"), "{error:?}");
    // A way out that the broker does not know is refused by its name.
    tools.caller.env.insert("https_proxy".into(), "socks5://127.0.0.1:1080".into());
    let error = fixture.store.build("one", &source, &tools).unwrap_err();
    assert!(error.error().is_refusal() && error.fault().id == "template/sandbox", "{error:?}");
    assert_eq!(fixture.left(), ["names"]);
}

#[test]
fn layers_show_it_and_put_its_programs_first() {
    let fixture = fixture();
    fs::write(fixture.folder.path().join("x.py"), "x").unwrap();
    let text = format!("{NUMPY}[files]\n\"/opt/x.py\" = \"x.py\"\n");
    let made = fixture.store.build("one", &fixture.source(&text), &fixture.tools).unwrap();
    let folder = made.folder.clone().unwrap().display().to_string();
    let flag = |name: &str, value: String| PolicyLayer::Flag { name: name.to_owned(), value };
    let expected = vec![
        PolicyLayer::Document("python".to_owned()),
        flag("--dangerous-read", format!("{folder}:{INSIDE}")),
        flag("--dangerous-read", format!("{folder}/files/0:/opt/x.py")),
        flag("--env", format!("PATH={INSIDE}/venv/bin:{PATH}")),
        flag("--env", "A=1".to_owned()),
    ];
    assert_eq!(made.layers(), expected);
    assert_eq!(fs::read_to_string(format!("{folder}/files/0")).unwrap(), "x");
    fs::write(fixture.folder.path().join("x.py"), "y").unwrap();
    let changed = fixture.store.build("one", &fixture.source(&text), &fixture.tools).unwrap();
    assert_ne!(changed.digest, made.digest, "a file is part of the content");
    assert_eq!(fixture.store.find("base").unwrap().layers(), []);
}

#[test]
fn a_build_that_fails_leaves_nothing_and_says_why() {
    let fixture = fixture();
    let broken = fixture.source("packages.pip = [\"broken\"]");
    let error = fixture.store.build("one", &broken, &fixture.tools).unwrap_err();
    assert!(error.to_string().contains("ERROR: no such version"), "{error}");
    assert_eq!(fixture.left(), ["names"]);
    let none = Tools { python: PathBuf::from("/usr/bin/no-such-python3"), ..fixture.tools.clone() };
    assert!(matches!(fixture.store.build("one", &fixture.source(NUMPY), &none), Err(TemplateError::Tools { .. })));
    assert!(matches!(fixture.store.find("one"), Err(TemplateError::Unknown(_))));
    let fault = fixture.store.find("code-interpreter-v1").unwrap_err().fault();
    assert_eq!(fault.fix, "`fumehood template build code-interpreter-v1`");
}

#[test]
fn content_that_is_not_what_was_installed_is_noticed() {
    let fixture = fixture();
    let made = fixture.store.build("one", &fixture.source(NUMPY), &fixture.tools).unwrap();
    assert_eq!(made.content.len(), 64);
    let folder = made.folder().unwrap().to_owned();
    let tool = folder.join("venv/bin/tool");
    let (text, mode) = (fs::read(&tool).unwrap(), fs::metadata(&tool).unwrap().permissions());
    let changes: [(&str, &dyn Fn()); 5] = [
        ("content", &|| fs::write(&tool, "print(2)").unwrap()),
        ("a file more", &|| fs::write(folder.join("venv/more"), "").unwrap()),
        ("a file less", &|| fs::remove_file(&tool).unwrap()),
        ("executable no more", &|| fs::set_permissions(&tool, fs::Permissions::from_mode(0o644)).unwrap()),
        ("a link in its place", &|| {
            fs::remove_file(&tool).unwrap();
            std::os::unix::fs::symlink("/bin/true", &tool).unwrap();
        }),
    ];
    for (name, change) in changes {
        made.check().unwrap();
        change();
        assert!(matches!(fixture.store.find("one").unwrap().check(), Err(TemplateError::Content(_))), "{name}");
        drop((fs::remove_file(&tool), fs::remove_file(folder.join("venv/more"))));
        fs::write(&tool, &text).unwrap();
        fs::set_permissions(&tool, mode.clone()).unwrap();
    }
    made.check().unwrap();
}

#[test]
fn names_lead_nowhere_else() {
    let fixture = fixture();
    for name in ["", "..", "../x", "a/b", ".hidden", "-f", "a b", &"x".repeat(64)] {
        assert!(matches!(fixture.store.find(name), Err(TemplateError::Name(_))), "{name}");
        assert!(matches!(
            fixture.store.build(name, &fixture.source(NUMPY), &fixture.tools),
            Err(TemplateError::Name(_))
        ));
    }
    assert!(!fixture.folder.path().join("state/templates").exists());
}

#[test]
fn stock_recipes_are_right() {
    for (name, _) in STOCK {
        Source::stock(name).unwrap();
    }
    assert!(matches!(Source::stock("other"), Err(TemplateError::Unknown(_))));
}

#[test]
fn what_is_told_as_installed_lies_in_the_folder_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
    let listed = |lib: &str| {
        fs::create_dir_all(outside.join("site-packages/secret-1.0.dist-info")).unwrap();
        fs::create_dir_all(inside.join("venv/lib/python3/site-packages/numpy-2.0.dist-info")).unwrap();
        let link = inside.join(lib);
        if fs::symlink_metadata(&link).is_ok() {
            fs::remove_dir_all(&link).unwrap();
        }
        let target = match lib {
            "venv/lib" => folder.path().to_owned(),
            "venv/lib/python4" => outside.clone(),
            _ => outside.join("site-packages"),
        };
        std::os::unix::fs::symlink(target, &link).unwrap();
        let found = build::installed(&inside);
        fs::remove_file(&link).unwrap();
        found
    };
    assert_eq!(listed("venv/lib/python4"), ["numpy==2.0"]);
    assert!(listed("venv/lib/python3/site-packages").is_empty());
    assert!(listed("venv/lib").is_empty());
}
