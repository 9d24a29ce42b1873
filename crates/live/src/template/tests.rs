//! Templates made by clients of registries that are none: scripts that leave what the real ones leave.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use super::*;

struct House {
    folder: tempfile::TempDir,
    store: Store,
    tools: Tools,
}

/// A `python3` whose `-m venv` makes a folder with a Python that only installs.
const PYTHON: &str = r#"#!/bin/sh
echo "$*" >> "$0.calls"
[ "$3" = venv ] || exit 9
mkdir -p "$4/bin" "$4/lib/python3.11/site-packages"
echo "home = /usr/bin" > "$4/pyvenv.cfg"
cat > "$4/bin/python3" <<'IN'
#!/bin/sh
venv=${0%/bin/python3}
case "$*" in *broken*) echo "ERROR: no such version" >&2; exit 1 ;; esac
printf '%s\n' "$@" > "$venv/arguments"
printf '#!%s/bin/python3\nprint(1)\n' "$venv" > "$venv/bin/tool"
chmod 700 "$venv/bin/tool"
mkdir -m 700 "$venv/lib/python3.11/site-packages/numpy-2.4.6.dist-info"
ln -s /etc/passwd "$venv/link"
IN
chmod 700 "$4/bin/python3"
"#;

fn house() -> House {
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("python3");
    fs::write(&python, PYTHON).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    let tools = Tools { python, limit: Duration::from_secs(30), ..Tools::new(BTreeMap::new()) };
    House { store: Store::new(&state), folder, tools }
}

impl House {
    fn source(&self, text: &str) -> Source {
        let path = self.folder.path().join("template.toml");
        fs::write(&path, text).unwrap();
        Source::file(&path).unwrap()
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.folder.path().join("python3.calls")).map_or(0, |calls| calls.lines().count())
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
    let house = house();
    let made = house.store.build("one", &house.source(NUMPY), &house.tools).unwrap();
    let again = house.store.build("two", &house.source(NUMPY), &house.tools).unwrap();
    assert_eq!((house.calls(), &again.digest, again.name.as_str()), (1, &made.digest, "two"));
    assert_eq!(house.store.find("one").unwrap(), made);
    assert_eq!(made.installed, ["numpy==2.4.6"]);
    let other = house.store.build("one", &house.source(&NUMPY.replace("\"1\"", "\"2\"")), &house.tools).unwrap();
    assert_ne!(other.digest, made.digest);
    assert_eq!(house.left().len(), 3, "{:?}", house.left());
    let live = [("box".to_owned(), "two:latest".to_owned())];
    assert!(matches!(house.store.remove("two", &live), Err(TemplateError::Used { by, .. }) if by == ["box"]));
    house.store.remove("two", &[("box".to_owned(), "other".to_owned())]).unwrap();
    assert_eq!(house.left(), [other.digest.as_str(), "names"], "nothing leads to it any more");
    assert!(matches!(house.store.find("two"), Err(TemplateError::Unknown(_))));
    assert!(matches!(house.store.remove("two", &[]), Err(TemplateError::Unknown(_))));
}

#[test]
fn two_names_for_one_thing_keep_it_until_both_are_gone() {
    let house = house();
    for name in ["one", "two"] {
        house.store.build(name, &house.source(NUMPY), &house.tools).unwrap();
    }
    // One who lives by the other name is shown the same folder.
    let live = [("box".to_owned(), "two".to_owned())];
    assert!(matches!(house.store.remove("one", &live), Err(TemplateError::Used { .. })));
    house.store.remove("one", &[]).unwrap();
    assert_eq!(house.store.find("two").unwrap().installed.len(), 1);
    let names: Vec<_> = house.store.list().unwrap().into_iter().map(|template| template.name).collect();
    assert_eq!(names, ["base", "two"]);
}

#[test]
fn what_is_made_is_readable_for_all_and_names_the_place_where_it_is_seen() {
    let house = house();
    let made = house.store.build("one", &house.source(NUMPY), &house.tools).unwrap();
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
fn layers_show_it_and_put_its_programs_first() {
    let house = house();
    fs::write(house.folder.path().join("x.py"), "x").unwrap();
    let text = format!("{NUMPY}[files]\n\"/opt/x.py\" = \"x.py\"\n");
    let made = house.store.build("one", &house.source(&text), &house.tools).unwrap();
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
    fs::write(house.folder.path().join("x.py"), "y").unwrap();
    let changed = house.store.build("one", &house.source(&text), &house.tools).unwrap();
    assert_ne!(changed.digest, made.digest, "a file is part of the content");
    assert_eq!(house.store.find("base").unwrap().layers(), []);
}

#[test]
fn a_build_that_fails_leaves_nothing_and_says_why() {
    let house = house();
    let broken = house.source("packages.pip = [\"broken\"]");
    let error = house.store.build("one", &broken, &house.tools).unwrap_err();
    assert!(error.to_string().contains("ERROR: no such version"), "{error}");
    assert_eq!(house.left(), ["names"]);
    let none = Tools { python: PathBuf::from("/none/python3"), ..house.tools.clone() };
    assert!(matches!(house.store.build("one", &house.source(NUMPY), &none), Err(TemplateError::Tools { .. })));
    assert!(matches!(house.store.find("one"), Err(TemplateError::Unknown(_))));
    let fault = house.store.find("code-interpreter-v1").unwrap_err().fault();
    assert_eq!(fault.fix, "`fumehood template build code-interpreter-v1`");
}

#[test]
fn content_that_is_not_what_was_installed_is_noticed() {
    let house = house();
    let made = house.store.build("one", &house.source(NUMPY), &house.tools).unwrap();
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
        assert!(matches!(house.store.find("one").unwrap().check(), Err(TemplateError::Content(_))), "{name}");
        drop((fs::remove_file(&tool), fs::remove_file(folder.join("venv/more"))));
        fs::write(&tool, &text).unwrap();
        fs::set_permissions(&tool, mode.clone()).unwrap();
    }
    made.check().unwrap();
}

#[test]
fn names_lead_nowhere_else() {
    let house = house();
    for name in ["", "..", "../x", "a/b", ".hidden", "-f", "a b", &"x".repeat(64)] {
        assert!(matches!(house.store.find(name), Err(TemplateError::Name(_))), "{name}");
        assert!(matches!(house.store.build(name, &house.source(NUMPY), &house.tools), Err(TemplateError::Name(_))));
    }
    assert_eq!(house.calls(), 0);
}

#[test]
fn stock_recipes_are_right() {
    for (name, _) in STOCK {
        Source::stock(name).unwrap();
    }
    assert!(matches!(Source::stock("other"), Err(TemplateError::Unknown(_))));
}
