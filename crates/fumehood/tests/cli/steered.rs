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

/// `out/p.toml -> work/link.toml -> out/real.toml`: whoever turns the link between them has the next run read another policy.
#[test]
fn a_link_of_the_workspace_on_the_way_to_a_policy_is_not_turned() {
    let fixture = Fixture::new();
    let (link, real) = (fixture.path("work/link.toml"), fixture.path("out/real.toml"));
    std::fs::create_dir(fixture.path("out")).unwrap();
    std::fs::write(&real, "version = 1\nextends = \"python\"\n").unwrap();
    symlink(&real, &link).unwrap();
    symlink(&link, fixture.path("out/p.toml")).unwrap();
    let policy = fixture.path("out/p.toml").display().to_string();
    let turn = "echo version = 1 > mine.toml; ln -sf mine.toml free; ln -sf mine.toml link.toml; echo turned";
    let options = |mode| [&["-q", "-p", policy.as_str(), "-w", mode][..], &RW].concat();
    run(&fixture, &options(".:rw"), turn);
    assert_eq!(std::fs::read_link(&link).unwrap(), real);
    assert_eq!(std::fs::read_link(fixture.path("work/free")).unwrap().to_str(), Some("mine.toml"), "the control");
    let layer = run(&fixture, &options("."), "rm link.toml free; cp mine.toml link.toml; echo turned");
    assert!(layer.code == 0 && layer.out.contains("turned"), "{layer:?}");
    let applied = fixture.run(&["apply"]);
    assert!(applied.code == 1 && applied.err.contains("link.toml"), "{applied:?}");
    assert_eq!(std::fs::read_link(&link).unwrap(), real);
    // In a grant nothing can be held.
    let grant = fixture.path("work").display().to_string();
    let said = run(&fixture, &[&["-q", "-p", policy.as_str(), "--write", &grant][..], &RW].concat(), "true");
    assert!(said.code == 126 && said.err.contains("link.toml"), "{said:?}");
}

/// As whoever verifies servers reads the two variables: a file, and a list of folders, from where the caller stands.
#[test]
fn no_store_of_certificates_that_a_variable_names_is_written() {
    let net = ["--set", "net.mode=allow", "--set", "net.allow=[\"a.test\"]"];
    let script = "echo x >> corp.pem; echo x > certs/new.0; mkdir -p later && echo x > later/new.0; ln -sf new.0 certs/link.0; true";
    let with = |variable: &str, value: &str| {
        let fixture = Fixture::new();
        let value = value.replace("WORK", &fixture.path("work").display().to_string());
        let fixture = fixture.with(variable, &value);
        write(&fixture, "corp.pem", "");
        write(&fixture, "certs/old.0", "");
        write(&fixture, "apart/real.pem", "");
        symlink("../apart/real.pem", fixture.path("work/certs/link.0")).unwrap();
        fixture
    };
    let written = |fixture: &Fixture| {
        let link = std::fs::read_link(fixture.path("work/certs/link.0")).unwrap();
        let there = |name: &str| fixture.path("work").join(name).exists();
        let turned = link.to_str() != Some("../apart/real.pem");
        [read(fixture, "corp.pem") == "x\n", there("certs/new.0"), turned, there("later/new.0")]
    };
    for (variable, value, free) in [
        ("LANG", "C", [true, true, true, true]),
        ("SSL_CERT_FILE", "WORK/corp.pem", [false, true, true, true]),
        ("SSL_CERT_FILE", "corp.pem", [false, true, true, true]),
        ("SSL_CERT_DIR", "certs", [true, false, false, true]),
        ("SSL_CERT_DIR", "WORK/certs", [true, false, false, true]),
        ("SSL_CERT_DIR", "/etc/ssl/certs:WORK/certs", [true, false, false, true]),
        ("SSL_CERT_DIR", "/etc/ssl/certs:later", [true, true, true, false]),
    ] {
        let fixture = with(variable, value);
        let said = run(&fixture, &[&["-q", "-w", ".:rw"][..], &net, &RW].concat(), script);
        assert_eq!((said.code, written(&fixture)), (0, free), "{variable}={value}: {said:?}");
    }
    // What a link in such a folder leads to, which lies in another one.
    let fixture = with("SSL_CERT_DIR", "certs");
    let options = [&["-q", "-w", ".:rw"][..], &net, &RW].concat();
    let said = run(&fixture, &options, "echo x > apart/other; echo x > apart/real.pem");
    assert!(read(&fixture, "apart/real.pem").is_empty() && read(&fixture, "apart/other") == "x\n", "{said:?}");
    run(&fixture, &[&["-q", "-w", "."][..], &net].concat(), "echo x > certs/new.0");
    let applied = fixture.run(&["apply"]);
    assert!(applied.code == 1 && applied.err.contains("certs/new.0"), "{applied:?}");
    let grant = fixture.path("work/certs").display().to_string();
    let said = run(&fixture, &[&["-q", "--write", &grant][..], &net, &RW].concat(), "true");
    assert!(said.code == 126 && said.err.contains("would make"), "{said:?}");
    // What cannot be held is refused.
    write(&fixture, "certs/.git/HEAD", "ref: refs/heads/main\n");
    for fixture in [fixture, with("SSL_CERT_DIR", ".")] {
        let said = run(&fixture, &options, "true");
        assert!(said.code == 126 && said.err.contains("decides how runs are confined or whom they trust"), "{said:?}");
    }
}

/// Servers of an import are started by the gateway as it says, and a program of such a server is confined as its policy says.
#[test]
fn what_a_policy_names_of_servers_is_not_rewritten() {
    let fixture = Fixture::new();
    let text = "version = 1\n[mcp.servers.team]\nimport = \"./servers.json\"\npolicy = \"./inside.toml\"\n\
                [[tools.tool]]\nname = \"a.b\"\ndecision = \"allow\"\n";
    let (servers, inside) = ("{\"mcpServers\":{\"a\":{\"command\":\"cat\"}}}", "version = 1\n");
    for (name, text) in [("gw.toml", text), ("servers.json", servers), ("inside.toml", inside)] {
        write(&fixture, name, text);
    }
    let script = "for name in gw.toml servers.json inside.toml other; do echo x >> $name; done; true";
    let said = run(&fixture, &[&["-q", "-p", "gw.toml", "-w", ".:rw"][..], &RW].concat(), script);
    assert_eq!([read(&fixture, "servers.json"), read(&fixture, "inside.toml")], [servers, inside], "{said:?}");
    assert_eq!((read(&fixture, "gw.toml").as_str(), read(&fixture, "other").as_str()), (text, "x\n"), "{said:?}");
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
