//! A run that would decide how the next one goes: by its policy, its log, its report, or what links of the workspace lead to.

use std::os::unix::fs::symlink;

use super::{CommandOutput, Fixture};

const RW: [&str; 4] = ["--prefer", "limits.disk", "--prefer", "limits.files"];

fn write(fixture: &Fixture, name: &str, text: &str) {
    let path = fixture.path("work").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn read(fixture: &Fixture, name: &str) -> String {
    std::fs::read_to_string(fixture.path("work").join(name)).unwrap()
}

fn run(fixture: &Fixture, options: &[&str], script: &str) -> CommandOutput {
    fixture.run(&[&["run"], options, &["--", "sh", "-c", script]].concat())
}

/// Two runs by the same command: the first one writes into the policy of both.
#[test]
fn a_run_does_not_rewrite_the_policy_of_the_next() {
    let text = "version = 1\nextends = \"python\"\n";
    let edit = |name: &str| {
        format!(
            "echo x > other; printf 'secrets.x = {{ from = \"command:/bin/touch ran\" }}\\n' >> {name} && echo edited"
        )
    };
    for name in ["fumehood.toml", "conf/mine.toml"] {
        let fixture = Fixture::new();
        write(&fixture, name, text);
        let options = |mode| [&["-q", "-p", name, "-w", mode][..], &RW].concat();
        let live = run(&fixture, &options(".:rw"), &edit(name));
        assert!(!live.out.contains("edited") && live.err.contains("Read-only file system"), "{live:?}");
        assert_eq!((read(&fixture, name).as_str(), read(&fixture, "other").as_str()), (text, "x\n"));
        // In a layer it may, and `apply` holds it.
        std::fs::remove_file(fixture.path("work/other")).unwrap();
        let layer = run(&fixture, &["-q", "-p", name, "-w", "."], &edit(name));
        assert!(layer.code == 0 && layer.out.contains("edited"), "the control: {layer:?}");
        let shown = fixture.run(&["diff"]);
        assert!(shown.out.contains("! protected: policy") || shown.out.contains("! protected: a policy"), "{shown:?}");
        let applied = fixture.run(&["apply"]);
        assert!(applied.code == 1 && applied.err.contains(name), "{applied:?}");
        assert_eq!(fixture.run(&["apply", "--", "other"]).code, 0);
        assert_eq!((read(&fixture, name).as_str(), read(&fixture, "other").as_str()), (text, "x\n"));
        assert!(!fixture.path("work/ran").exists());
    }
}

#[test]
fn what_an_extended_policy_says_is_not_rewritten_either_nor_what_a_grant_reaches() {
    let fixture = Fixture::new();
    write(&fixture, "conf/base.toml", "version = 1\nextends = \"python\"\n");
    write(&fixture, "conf/top.toml", "version = 1\nextends = \"./base.toml\"\n");
    let said =
        run(&fixture, &[&["-q", "-p", "conf/top.toml", "-w", ".:rw"][..], &RW].concat(), "echo x >> conf/base.toml");
    assert!(said.code != 0 && said.err.contains("Read-only file system"), "{said:?}");
    let grant = fixture.path("work/conf").display().to_string();
    let said = run(&fixture, &[&["-q", "-p", "conf/top.toml", "--write", &grant][..], &RW].concat(), "true");
    assert!(said.code == 126 && said.err.contains("fs.protect"), "{said:?}");
    let said = run(&fixture, &[&["-q", "-p", "python", "--write", &grant][..], &RW].concat(), "echo x >> base.toml");
    assert_ne!(said.code, 126, "the control: a folder without a policy of this run is granted: {said:?}");
}

#[test]
fn a_log_that_the_run_could_write_is_refused() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.path("log")).unwrap();
    let inside = format!("audit.path={}", fixture.path("work/new/log").display());
    let outside = format!("audit.path={}", fixture.path("log").display());
    let options = |log| [&["-q", "-w", ".:rw", "--set", log][..], &RW].concat();
    let said = run(&fixture, &options(&inside), "true");
    assert!(said.code == 126 && said.err.contains("where the log is kept"), "{said:?}");
    let grant = fixture.path("work").display().to_string();
    let said = run(&fixture, &[&["-q", "--write", &grant, "--set", &inside][..], &RW].concat(), "true");
    assert!(said.code == 126 && said.err.contains("where the log is kept"), "{said:?}");
    assert_eq!(run(&fixture, &options(&outside), "true").code, 0);
    assert!(fixture.path("log/audit.jsonl").exists());
}

#[test]
fn a_report_that_the_program_replaced_is_told() {
    let fixture = Fixture::new();
    let options = [&["-q", "-w", ".:rw", "--report", "r.json"][..], &RW].concat();
    for script in ["rm r.json; echo '{}' > r.json", "rm r.json", "mv r.json s.json; ln -s s2.json r.json"] {
        let said = run(&fixture, &options, script);
        assert!(said.code == 125 && said.err.contains("taken away while the run lasted"), "{script}: {said:?}");
        drop(std::fs::remove_file(fixture.path("work/r.json")));
    }
    // What only writes to it is written over.
    let said = run(&fixture, &options, "echo forged > r.json");
    assert!(said.code == 0 && read(&fixture, "r.json").contains("exited"), "{said:?}");
}

#[test]
fn a_link_of_the_workspace_that_leads_into_a_write_grant_is_refused() {
    for mode in [".:ro", ".:overlay"] {
        let fixture = Fixture::new();
        std::fs::create_dir_all(fixture.path("shared/claude")).unwrap();
        let grant = fixture.path("shared").display().to_string();
        let options = [&["-q", "-w", mode, "--write", &grant][..], &RW].concat();
        assert_eq!(run(&fixture, &options, "true").code, 0, "the control");
        symlink(fixture.path("shared/claude"), fixture.path("work/.claude")).unwrap();
        let said = run(&fixture, &options, "true");
        assert!(said.code == 126 && said.err.contains("would make") && said.err.contains("claude"), "{said:?}");
    }
}

#[test]
fn a_write_grant_in_which_gits_configuration_names_a_program_is_refused() {
    for mode in [".:ro", ".:overlay", ".:rw"] {
        let fixture = Fixture::new();
        std::fs::create_dir_all(fixture.path("shared/hooks")).unwrap();
        std::fs::create_dir_all(fixture.path("work/.git")).unwrap();
        let grant = fixture.path("shared").display().to_string();
        let options = [&["-q", "-w", mode, "--write", &grant][..], &RW].concat();
        let config = |text: &str| std::fs::write(fixture.path("work/.git/config"), text).unwrap();
        config("[core]\n\tbare = false\n");
        assert_eq!(run(&fixture, &options, "true").code, 0, "the control");
        for named in [format!("hooksPath = {grant}/hooks"), format!("fsmonitor = sh \\\"{grant}/later\\\"")] {
            config(&format!("[core]\n\t{named}\n"));
            let said = run(&fixture, &options, "true");
            assert!(said.code == 126 && said.err.contains("would make"), "{mode} {named}: {said:?}");
        }
    }
}

#[test]
fn a_run_that_makes_control_files_again_and_again_is_ended() {
    let fixture = Fixture::new();
    let script = "i=0; while [ $i -lt 2000 ]; do echo x > .envrc; sleep .005; i=$((i+1)); done; echo done";
    let said = run(&fixture, &[&["-w", ".:rw"][..], &RW].concat(), script);
    assert!(said.code == 125 && said.err.contains("again and again") && !said.out.contains("done"), "{said:?}");
    assert!(said.err.contains("changes/") && !fixture.path("work/.envrc").exists(), "it says where: {said:?}");
    assert_eq!(fixture.run(&["discard", "--all"]).code, 0);
    let left = std::fs::read_dir(fixture.path("state/changes")).unwrap();
    assert!(left.flatten().all(|entry| !entry.file_name().to_string_lossy().ends_with("-aside")));
}

#[test]
fn a_workspace_in_a_folder_of_control_files_is_refused_under_rw_and_held_in_a_layer() {
    let fixture = Fixture::new();
    for folder in [".config/nvim", ".vscode/x", ".github/hooks", ".husky/_"] {
        write(&fixture, &format!("{folder}/config"), "old\n");
        let place = |mode: &str| format!("{folder}{mode}");
        let said = run(&fixture, &[&["-q", "-w", &place(":rw")][..], &RW].concat(), "echo new > config");
        assert!(said.code == 126 && said.err.contains("or lies in one"), "{folder}: {said:?}");
        assert_eq!(run(&fixture, &["-q", "-w", &place(":overlay")], "echo new > config").code, 0);
        let runs = fixture.run(&["changes", "--json"]).json()["runs"].clone();
        let said = fixture.run(&["apply", runs[0]["run"].as_str().unwrap()]);
        assert!(said.code == 1 && said.err.contains("a folder of control files"), "{folder}: {said:?}");
        assert_eq!(read(&fixture, &format!("{folder}/config")), "old\n", "{folder}");
    }
    write(&fixture, ".config/other/config", "old\n");
    let said = run(&fixture, &[&["-q", "-w", ".config/other:rw"][..], &RW].concat(), "echo new > config");
    assert!(said.code == 0 && read(&fixture, ".config/other/config") == "new\n", "{said:?}");
}
