//! `run --on RUN`: a run that goes on from the changes of an earlier one.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::{CommandOutput, Fixture};

/// Changes of every kind.
const FIRST: &str = "
import os, shutil
open('kept', 'w').write('two'); os.chmod('kept', 0o640)
os.remove('gone'); shutil.rmtree('old')
os.makedirs('new/deep'); open('new/deep/f', 'w').write('f'); os.chmod('new/deep/f', 0o755)
os.symlink('../kept', 'new/link')
os.remove('swapped'); os.mkdir('swapped'); open('swapped/in', 'w').write('in')
shutil.rmtree('folder'); open('folder', 'w').write('a file')
open('closed/more', 'w').write('more')
os.chmod('mode', 0o700)
";

/// All that is in the workspace, as a line each.
const LOOK: &str = "
import os, stat
for d, ds, fs in os.walk('.'):
    ds.sort()
    for n in sorted(ds + fs):
        p = os.path.join(d, n); s = os.lstat(p)
        k = os.readlink(p) if stat.S_ISLNK(s.st_mode) else '' if stat.S_ISDIR(s.st_mode) else open(p).read()
        print(p, oct(s.st_mode), k)
";

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    let work = fixture.path("work");
    for folder in ["old/inner", "folder", "closed", "mode", "around"] {
        std::fs::create_dir_all(work.join(folder)).unwrap();
    }
    for name in ["kept", "gone", "old/inner/x", "swapped", "folder/y", "closed/z", "around/w"] {
        std::fs::write(work.join(name), "one").unwrap();
    }
    std::fs::set_permissions(work.join("closed"), std::fs::Permissions::from_mode(0o775)).unwrap();
    fixture
}

fn go(fixture: &Fixture, manner: &[&str], code: &str) -> CommandOutput {
    fixture.run(&[&["run", "--json"], manner, &["--", "python3", "-c", code]].concat())
}

fn id(said: &CommandOutput) -> String {
    assert_eq!(said.code, 0, "{said:?}");
    said.json()["run"].as_str().unwrap().to_owned()
}

/// The first reason why nothing ran.
fn reason(said: &CommandOutput) -> serde_json::Value {
    let json = said.json();
    json.get("refused").or_else(|| json.get("errors")).unwrap_or_else(|| panic!("{said:?}"))[0].clone()
}

fn seen(said: &CommandOutput) -> String {
    assert_eq!(said.code, 0, "{said:?}");
    said.json()["stdout"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_goes_on_where_another_ended_and_its_changes_hold_both() {
    for (tier, mode) in [("container", "overlay"), ("container", "copy"), ("process", "copy")] {
        let fixture = fixture();
        let workspace = format!(".:{mode}");
        let manner = ["--tier", tier, "-w", &workspace];
        let first = go(&fixture, &manner, &format!("{FIRST}{LOOK}"));
        let run = id(&first);
        let on = [&manner[..], &["--on", &run]].concat();
        // Nothing but what the first one did, and it is no more than that which is kept.
        let looked = go(&fixture, &on, LOOK);
        assert_eq!(seen(&looked), seen(&first), "{tier} {mode}");
        assert_ne!(seen(&go(&fixture, &manner, LOOK)), seen(&first), "without, it begins anew");
        let names = |run: &str| fixture.run(&["diff", "--names", run]).out;
        assert_eq!(names(&id(&looked)), names(&id(&first)), "{tier} {mode}");
        // A third goes on from the second, changes what was changed and puts back what was gone.
        let run = id(&looked);
        let on = [&manner[..], &["--on", &run]].concat();
        let more = "open('kept', 'a').write('!'); open('gone', 'w').write('back'); open('around/v', 'w').write('v')\n";
        let third = go(&fixture, &on, &format!("{more}{LOOK}"));
        assert_eq!(fixture.run(&["apply", &id(&third)]).code, 0, "{tier} {mode}");
        let read = |name: &str| std::fs::read_to_string(fixture.path("work").join(name)).unwrap();
        assert_eq!([read("kept"), read("gone"), read("around/v"), read("folder")], ["two!", "back", "v", "a file"]);
        assert!(!fixture.path("work/old").exists() && fixture.path("work/swapped/in").exists());
        assert_eq!(seen(&go(&fixture, &manner, LOOK)), seen(&third), "{tier} {mode}: the host has what the run saw");
        let log = fixture.run(&["audit", "show", "--json"]).json();
        let events = log["events"].as_array().unwrap();
        let told = events.iter().filter(|one| one["body"]["what"]["on"]["run"] == id(&first).as_str());
        assert_eq!(told.count(), 1, "{tier} {mode}: the log says on what it went on");
    }
}

#[test]
fn a_run_does_not_go_on_over_what_somebody_changed_meanwhile() {
    type Change = fn(&Fixture);
    let changes: [(&str, Change); 6] = [
        ("kept", |fixture| std::fs::write(fixture.path("work/kept"), "mine").unwrap()),
        ("gone", |fixture| std::fs::write(fixture.path("work/gone"), "mine").unwrap()),
        ("old", |fixture| std::fs::write(fixture.path("work/old/mine"), "mine").unwrap()),
        ("new/deep/f", |fixture| {
            std::fs::create_dir_all(fixture.path("work/new/deep")).unwrap();
            std::fs::write(fixture.path("work/new/deep/f"), "mine").unwrap();
        }),
        // A folder where the run put a link, and nothing was before.
        ("new/link", |fixture| {
            std::fs::create_dir_all(fixture.path("work/new/link")).unwrap();
            std::fs::write(fixture.path("work/new/link/mine"), "mine").unwrap();
        }),
        // A folder of the host's that is a link out of the workspace by now.
        ("closed", |fixture| {
            std::fs::rename(fixture.path("work/closed"), fixture.path("elsewhere")).unwrap();
            symlink(fixture.path("elsewhere"), fixture.path("work/closed")).unwrap();
        }),
    ];
    for (name, change) in changes {
        for mode in ["overlay", "copy"] {
            let fixture = fixture();
            let workspace = format!(".:{mode}");
            let run = id(&go(&fixture, &["-w", &workspace], FIRST));
            let on = ["-w", workspace.as_str(), "--on", run.as_str()];
            assert_eq!(go(&fixture, &on, "pass").code, 0, "as long as nobody did anything");
            change(&fixture);
            let said = go(&fixture, &on, "print('it ran')");
            assert_eq!(said.code, 126, "{name} {mode}: {said:?}");
            let error = reason(&said);
            assert_eq!(error["id"], "run/on-moved", "{name} {mode}: {said:?}");
            assert!(error["why"].as_str().unwrap().contains(name), "{name} {mode}: {said:?}");
            assert!(!said.out.contains("it ran"));
            assert!(!fixture.path("elsewhere/more").exists());
            // Without it nothing is in the way.
            assert_eq!(go(&fixture, &["-w", &workspace], "pass").code, 0, "{name} {mode}");
        }
    }
}

#[test]
fn what_was_applied_already_is_no_conflict() {
    let fixture = fixture();
    let run = id(&go(&fixture, &["-w", "."], FIRST));
    assert_eq!(fixture.run(&["apply", &run, "--", "kept", "folder"]).code, 0);
    let said = go(&fixture, &["-w", ".", "--on", &run], "print(open('kept').read(), open('new/deep/f').read())");
    assert_eq!(seen(&said), "two f\n");
}

#[test]
fn a_run_that_has_no_place_for_earlier_changes_is_refused() {
    let fixture = fixture();
    let run = id(&go(&fixture, &["-w", "."], FIRST));
    std::fs::create_dir(fixture.path("other")).unwrap();
    let other = fixture.path("other").to_str().unwrap().to_owned();
    for (manner, id, code) in [
        (vec!["-w", ".:rw", "--prefer", "limits.disk", "--prefer", "limits.files"], "run/on-mode", 126),
        (vec!["-w", ".:ro"], "run/on-mode", 126),
        (vec![], "run/on-mode", 126),
        (vec!["-w", other.as_str()], "run/on-workspace", 126),
        (vec!["-w", ".", "--set", "fs.hide=[\"new\"]"], "run/on-hidden", 126),
        (vec!["-w", ".", "--set", "limits.files=16"], "changes/too-large", 126),
    ] {
        let said = go(&fixture, &[&manner[..], &["--on", &run]].concat(), "print('it ran')");
        assert_eq!(said.code, code, "{manner:?}: {said:?}");
        assert_eq!(reason(&said)["id"], id, "{manner:?}: {said:?}");
    }
    assert_eq!(reason(&go(&fixture, &["-w", ".", "--on", "newest"], "pass"))["id"], "usage/no-run");
    let unknown = go(&fixture, &["-w", ".", "--on", "r-20200101-000000-000000"], "pass");
    assert_eq!(reason(&unknown)["id"], "changes/none", "{unknown:?}");
    assert_eq!(fixture.run(&["plan", "--on", &run]).code, 125, "a plan knows nothing of it");
}

#[test]
fn a_content_that_is_not_what_was_kept_is_not_used() {
    let fixture = fixture();
    let run = id(&go(&fixture, &["-w", "."], FIRST));
    let blobs = fixture.state().join("changes").join(&run).join("blobs");
    for blob in std::fs::read_dir(&blobs).unwrap().map(Result::unwrap) {
        std::fs::write(blob.path(), "bad").unwrap();
    }
    let said = go(&fixture, &["-w", ".", "--on", &run], "print('it ran')");
    assert_eq!(reason(&said)["id"], "changes/damaged", "{said:?}");
    assert!(!said.out.contains("it ran"));
}

/// What hides a name in a folder must not change the folder: `apply` would open it on the host.
#[test]
fn a_folder_in_which_something_is_hidden_keeps_its_mode() {
    for mode in ["overlay", "copy"] {
        let fixture = fixture();
        std::fs::write(fixture.path("work/closed/.env"), "secret").unwrap();
        std::fs::set_permissions(fixture.path("work/closed"), std::fs::Permissions::from_mode(0o700)).unwrap();
        let workspace = format!(".:{mode}");
        let hide = ["-w", workspace.as_str(), "--set", "fs.hide=[\"**/.env\"]"];
        let said = go(&fixture, &hide, "import os; print(oct(os.stat('closed').st_mode), os.listdir('closed'))");
        assert_eq!(seen(&said), "0o40700 ['z']\n", "{mode}");
        assert_eq!(fixture.run(&["diff", &id(&said)]).code, 0, "nothing was changed");
        let run = id(&go(&fixture, &hide, "open('closed/more', 'w')"));
        let on = [&hide[..], &["--on", &run]].concat();
        let said = go(&fixture, &on, "import os; print(oct(os.stat('closed').st_mode), sorted(os.listdir('closed')))");
        assert_eq!(seen(&said), "0o40700 ['more', 'z']\n", "{mode}");
    }
}

/// The tier that runs programs on a kernel of its own has a copy too; where it cannot be had, nothing is shown here.
#[test]
fn a_run_on_gvisor_goes_on_as_well() {
    let fixture = fixture();
    let manner = ["--tier", "gvisor", "-w", ".:copy"];
    let first = go(&fixture, &manner, &format!("{FIRST}{LOOK}"));
    if first.code == 126 {
        println!("skip: no gVisor here");
        return;
    }
    let run = id(&first);
    assert_eq!(seen(&go(&fixture, &[&manner[..], &["--on", &run]].concat(), LOOK)), seen(&first));
}

/// What the earlier run's policy held: its documents, and what it hid.
#[test]
fn what_an_earlier_run_held_is_held_still() {
    let fixture = Fixture::new();
    std::fs::write(
        fixture.path("work/mine.toml"),
        "version = 1\nextends = \"coding-agent\"\n[fs]\nhide = [\"secret*\"]\n",
    )
    .unwrap();
    std::fs::write(fixture.path("work/secret.txt"), "the host's").unwrap();
    let code = "open('mine.toml', 'w').write('version = 1'); open('secret.txt', 'w').write('x'); open('plain', 'w').write('x')";
    let first = id(&go(&fixture, &["-p", "mine.toml", "-w", "."], code));
    let second = id(&go(&fixture, &["-w", ".", "--on", &first], "pass"));
    let applied = fixture.run(&["apply", &second, "--leave-protected"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    assert!(fixture.path("work/plain").exists(), "{applied:?}");
    assert_eq!(std::fs::read_to_string(fixture.path("work/secret.txt")).unwrap(), "the host's");
    assert_ne!(std::fs::read_to_string(fixture.path("work/mine.toml")).unwrap(), "version = 1");
}
