//! `fumehood policy check | show | presets`

use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use crate::Fixture;

fn write(fixture: &Fixture, name: &str, text: &str) {
    std::fs::write(fixture.path("work").join(name), text).unwrap();
}

#[test]
fn a_right_policy_is_named_with_its_digest() {
    let fixture = Fixture::new();
    write(
        &fixture,
        "p.toml",
        "version = 1\nextends = \"strict\"\n[limits]\nmemory = \"64M\"\npids = 8\ndisk = \"20M\"\n[fs]\ntmp = \"8M\"\nshm = \"1M\"\nrun = \"1M\"\n",
    );
    let said = fixture.run(&["policy", "check", "p.toml"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    assert!(said.out.starts_with("right: policy `p`, digest "), "{}", said.out);
    let json = fixture.run(&["policy", "check", "p.toml", "--json"]).json();
    assert_eq!(json["name"], "p");
    assert_eq!(json["digest"].as_str().unwrap().len(), 64);
}

#[test]
fn every_mistake_is_told_with_line_and_column() {
    let fixture = Fixture::new();
    write(&fixture, "p.toml", "version = 1\n[limits]\nmemroy = \"1G\"\npids = -1\nwall = 30\n");
    let said = fixture.run(&["policy", "check", "p.toml"]);
    assert_eq!((said.code, said.out.as_str()), (126, ""));
    for part in ["error: ", "--> p.toml:3:1", "--> p.toml:4:8", "--> p.toml:5:8", "fix: ", "why: ", "`memory`"] {
        assert!(said.err.contains(part), "{part} in {}", said.err);
    }
    assert_eq!(said.err.matches("error: ").count(), 3, "{}", said.err);
    let json = fixture.run(&["policy", "check", "--json", "p.toml"]).json();
    assert_eq!(json["refused"].as_array().unwrap().len(), 3);
}

#[test]
fn absurd_limits_are_refused_with_126() {
    let fixture = Fixture::new();
    let absurd = ["-1", "0", "99999999999999999999999T", "1e9", "lots", "", "512", "5M M", "\u{1b}[31m"];
    for value in absurd {
        let said = fixture.run(&["policy", "check", &format!("--memory={value}")]);
        assert_eq!((said.code, said.out.as_str()), (126, ""), "{value:?} {said:?}");
        assert!(said.err.contains("--> --memory") && !said.err.contains('\u{1b}'), "{value:?} {}", said.err);
    }
}

#[test]
fn show_says_where_each_value_came_from() {
    let fixture = Fixture::new();
    write(&fixture, "p.yaml", "version: 1\nlimits:\n  wall: 10s\n");
    let json = fixture.run(&["policy", "show", "-p", "p.yaml", "--pids=5", "--json"]).json();
    let of = |path: &str| {
        let clause = json["clauses"].as_array().unwrap().iter().find(|c| c["clause"] == path).unwrap();
        (clause["value"].clone(), clause["origin"].as_str().unwrap().to_owned())
    };
    assert_eq!(of("limits.wall"), (10.into(), "p.yaml:3:9".to_owned()));
    assert_eq!(of("limits.pids"), (5.into(), "--pids".to_owned()));
    assert_eq!(of("limits.memory").1, "preset strict");
    let text = fixture.run(&["policy", "show", "-p", "p.yaml"]).out;
    assert!(text.contains("limits.wall") && text.contains("10s") && text.contains("256M"), "{text}");
}

#[test]
fn presets_are_listed_and_printed() {
    let fixture = Fixture::new();
    let text = fixture.run(&["policy", "presets"]).out;
    for preset in ["strict", "python", "node", "data-analysis", "coding-agent"] {
        assert!(text.contains(preset), "{text}");
        write(&fixture, "copy.toml", &fixture.run(&["policy", "presets", preset]).out);
        let (copy, own) =
            (fixture.run(&["policy", "check", "copy.toml"]), fixture.run(&["policy", "check", "-p", preset]));
        assert_eq!((copy.code, own.code), (0, 0), "{copy:?} {own:?}");
    }
    let said = fixture.run(&["policy", "presets", "pythn"]);
    assert_eq!(said.code, 125);
    assert!(said.err.contains("fix: python"), "{}", said.err);
}

#[test]
fn documents_that_cannot_be_read_say_why() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("work").join("bytes.toml"), b"version = 1\n\xff").unwrap();
    std::fs::create_dir(fixture.path("work").join("dir.toml")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.path("work/pipe.toml"), rustix::fs::Mode::RWXU).unwrap();
    for (name, why) in [
        ("pipe.toml", "it is no regular file"),
        ("nowhere.toml", "no such file"),
        ("bytes.toml", "no UTF-8"),
        ("dir.toml", "it is a directory"),
    ] {
        let said = fixture.run(&["policy", "check", name]);
        assert_eq!((said.code, said.out.as_str()), (126, ""), "{name}");
        assert!(said.err.contains(why), "{name}: {}", said.err);
    }
}

#[test]
fn an_endless_document_is_cut_and_refused() {
    let fixture = Fixture::new();
    let link = fixture.path("work").join("endless.toml");
    std::os::unix::fs::symlink("/dev/zero", link).unwrap();
    let said = fixture.run(&["policy", "check", "endless.toml"]);
    assert_eq!((said.code, said.out.as_str()), (126, ""), "{said:?}");
}

#[test]
fn a_document_may_come_through_a_pipe() {
    let fixture = Fixture::new();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"version = 1\nname = \"piped\"\n").unwrap();
    drop(writer);
    std::os::unix::fs::symlink(
        format!("/proc/{}/fd/{}", std::process::id(), reader.as_raw_fd()),
        fixture.path("work").join("pipe.toml"),
    )
    .unwrap();
    assert_eq!(fixture.run(&["policy", "check", "--json", "pipe.toml"]).json()["name"], "piped");
}

#[test]
fn a_current_directory_that_is_gone_is_told() {
    let fixture = Fixture::new();
    let gone = fixture.path("work").join("gone");
    std::fs::create_dir(&gone).unwrap();
    let mut shell = crate::script("cd gone && rmdir ../gone && exec \"$1\" policy check -p strict", &fixture);
    let said = fixture.said(&shell.output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (125, ""), "{said:?}");
    assert!(said.err.contains("there is no current directory"), "{}", said.err);
}

#[test]
fn the_schema_is_json_with_every_table() {
    let json = Fixture::new().run(&["policy", "schema"]).json();
    for key in ["limits", "fs", "net", "workspace", "env"] {
        assert!(json["properties"][key].is_object(), "{key}");
    }
}

#[test]
fn a_required_input_is_asked_for_by_a_run_and_not_by_a_look_at_the_policy() {
    let fixture = Fixture::new();
    write(&fixture, "p.toml", "version = 1\n[inputs.q]\ntype = \"string\"\nrequired = true\n");
    assert_eq!(fixture.run(&["policy", "check", "p.toml"]).code, 0);
    assert_eq!(fixture.run(&["policy", "show", "-p", "./p.toml"]).code, 0);
    let run = fixture.run(&["run", "-p", "./p.toml", "--", "true"]);
    assert_eq!(run.code, 126, "{run:?}");
    assert!(run.err.contains("input `q` is not given"), "{run:?}");
}

#[test]
fn a_document_with_a_key_of_a_mebibyte_is_refused_within_seconds() {
    let fixture = Fixture::new();
    let key = "k".repeat(1_000_000);
    let texts = [
        ("p.toml", format!("version = 1\n\"{key}\" = 1\n")),
        ("p.json", format!("{{\"version\": 1, \"{key}\": 1}}")),
        ("p.yaml", format!("version: 1\n{key}: 1\n")),
    ];
    for (name, text) in texts {
        write(&fixture, name, &text);
        let begun = std::time::Instant::now();
        let said = fixture.run(&["policy", "check", name]);
        assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{name}: {:?}", begun.elapsed());
        assert!(said.code == 126 && said.err.contains("kkk") && said.err.len() < 2000, "{name}: {said:?}");
    }
}

#[test]
fn values_that_were_given_wrongly_are_in_no_record() {
    let fixture = Fixture::new();
    write(
        &fixture,
        "p.toml",
        "version = 1\n[inputs.pin]\ntype = \"string\"\npattern = \"[0-9]{4}\"\nrequired = true\n",
    );
    write(&fixture, "q.toml", "version = 1\n[env]\npass = [\"TOKEN=c4nary-doc\"]\n");
    write(&fixture, "n.toml", "version = 1\nenv.set = { TOKEN = 4471192388 }\n");
    write(&fixture, "m.toml", "version = 1\nlimits.pids = \"c4nary`doc\"\n");
    let slips: [(&[&str], &str); 9] = [
        (&["--set", "limits.memory=c4nary-size"], "`limits.memory` is not a quantity: `c4nary-size`"),
        (&["--set", "workspace.mode=c4nary-mode"], "c4nary-mode"),
        (&["-p", "./m.toml"], "c4nary`doc"),
        (&["-p", "./p.toml", "--input", "pin=c4nary-input"], "the value of input `pin` does not fit"),
        (&["--pass-env", "TOKEN=c4nary-flag"], "`TOKEN` with a value is not the name of a variable"),
        (&["-p", "./q.toml"], "`TOKEN` with a value is not the name of a variable"),
        (&["-p", "./n.toml"], "`env.set.TOKEN` is text, and this is a whole number"),
        (&["--env", "c4nary-env"], "what `--env` takes has no `=`"),
        (&["-p", "./p.toml", "--input", "c4nary-name"], "what `--input` takes has no `=`"),
    ];
    for (flags, told) in slips {
        let said = fixture.run(&[&["run"], flags, &["--", "true"]].concat());
        assert!(said.code == 126 && said.err.contains(told), "{flags:?}: {said:?}");
    }
    let (mut files, mut folders) = (0, vec![fixture.state()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            for secret in ["c4nary", "4471192388"] {
                let found = bytes.windows(secret.len()).any(|here| here == secret.as_bytes());
                assert!(!found, "{secret} is in {}", path.display());
            }
            files += usize::from(bytes.windows(11).any(|here| here == b"run.refused"));
        }
    }
    assert!(files > 0, "the refusals are recorded");
}

#[test]
fn a_call_that_the_kernel_has_not_is_a_mistake_before_anything_is_planned() {
    let fixture = Fixture::new();
    write(&fixture, "p.toml", "version = 1\n[syscalls]\ndeny = [\"ptraec\"]\n");
    for args in
        [&["policy", "check", "p.toml"][..], &["plan", "-p", "./p.toml"], &["run", "-p", "./p.toml", "--", "true"]]
    {
        let said = fixture.run(args);
        assert_eq!(said.code, 126, "{said:?}");
        assert!(said.err.contains("`ptraec` in `syscalls.deny` is no system call of x86-64"), "{said:?}");
        assert!(said.err.contains("p.toml:3:") && said.err.contains("did you mean `ptrace`?"), "{said:?}");
    }
}

#[test]
fn a_grant_over_a_place_of_ours_is_shown_where_it_was_written() {
    let fixture = Fixture::new();
    write(&fixture, "p.toml", "version = 1\n[fs]\ndangerous-read = [\"/proc\"]\n");
    let said = fixture.run(&["policy", "check", "p.toml"]);
    assert_eq!(said.code, 126, "{said:?}");
    assert!(said.err.contains("--> p.toml:3:"), "{said:?}");
}

#[test]
fn what_only_the_users_of_a_clause_can_tell_is_told_when_the_policy_is_checked() {
    for (clause, says) in [
        ("[commands]\nwrappers = [\"foo\"]\n", "`foo`"),
        ("[commands]\nenv = [\"LD_PRELOAD\"]\n", "`LD_PRELOAD`"),
        ("[mcp.servers.a]\nurl = \"http://192.0.2.1/mcp\"\n", "http"),
        (
            "[[tools.tool]]\nname = \"t\"\nschema = { type = \"object\", properties = { n = { maximun = 5 } } }\n",
            "`maximum`",
        ),
    ] {
        let fixture = Fixture::new();
        std::fs::write(fixture.path("work/p.toml"), format!("version = 1\n{clause}")).unwrap();
        let said = fixture.run(&["policy", "check", "p.toml"]);
        assert_eq!((said.code, said.out.as_str()), (126, ""), "{said:?}");
        assert!(said.err.contains(says), "{}", said.err);
    }
}

#[test]
fn what_a_flag_lacks_is_shown_with_what_was_given() {
    let fixture = Fixture::new();
    for (flags, fix) in [
        (["--set", "limits.memory"], "write --set limits.memory=VALUE"),
        (["--set", "nothing"], "write --set limits.files=10000"),
        (["--env", ""], "write --env NAME=VALUE, or --pass-env NAME to take the caller's"),
        (["--env", "a b"], "write --env NAME=VALUE, or --pass-env NAME to take the caller's"),
        (["--env", "A"], "write --env A=VALUE, or --pass-env A to take the caller's"),
        (["--input", ""], "write --input NAME=VALUE"),
        (["--input", "a"], "write --input a=VALUE"),
        (
            ["--policy", ""],
            "presets are strict, python, node, data-analysis, coding-agent; a file is written ./NAME.toml",
        ),
    ] {
        let said = fixture.run(&[&["plan"], &flags[..]].concat());
        assert_eq!(said.code, 126, "{said:?}");
        assert!(said.err.contains(&format!("  fix: {fix}\n")), "{flags:?} {said:?}");
    }
}

#[test]
fn an_attack_without_a_plan_tells_the_reasons_in_words() {
    let said = Fixture::new().run(&["attack", "--tier", "containr", "--memory", "1"]);
    assert_eq!((said.code, said.out.as_str()), (125, ""), "{said:?}");
    assert!(said.err.contains("why: `containr` is not a value of `tier`: it is one of "), "{said:?}");
    assert!(said.err.contains("; `limits.memory` needs a unit: "), "{said:?}");
    assert!(!said.err.contains(['{', '[']), "{said:?}");
}

const OWN: &str = "version = 1\nname = \"own\"\nlimits.pids = 7\n";

/// A fixture whose caller has a default policy.
fn with_default(text: &str) -> Fixture {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path(".config/fumehood")).unwrap();
    std::fs::write(fixture.path(".config/fumehood/policy.toml"), text).unwrap();
    fixture
}

#[test]
fn the_callers_own_policy_holds_where_none_is_named() {
    let fixture = with_default(OWN);
    let pids = |fixture: &Fixture, args: &[&str]| {
        let plan = fixture.run(&[&["plan", "--json"], args].concat()).json();
        let clauses = plan["clauses"].as_array().unwrap();
        clauses.iter().find(|clause| clause["clause"] == "limits.pids").unwrap()["value"].clone()
    };
    assert_eq!(pids(&fixture, &[]), 7);
    assert_eq!(pids(&fixture, &["--pids", "9"]), 9, "flags win over it");
    assert_eq!(pids(&fixture, &["-p", "strict"]), 32, "a named policy takes its place");
    assert_eq!(pids(&Fixture::new(), &[]), 32);
    assert!(fixture.run(&["policy", "show"]).out.contains("/.config/fumehood/policy.toml:3:"));
    let said = fixture.run(&["run", "--json", "--", "true"]).json();
    assert_eq!(said["policy"]["name"], "own", "{said:#}");
    // A file that is named stands for itself.
    std::fs::write(fixture.path("work/p.toml"), "version = 1\nname = \"other\"\n").unwrap();
    assert!(fixture.run(&["policy", "check", "p.toml"]).out.contains("policy `other`"));
    let moved = with_default(OWN).with("XDG_CONFIG_HOME", "/nowhere");
    assert_eq!(pids(&moved, &[]), 32, "its folder can be moved");
}

#[test]
fn a_default_policy_that_others_could_write_is_refused() {
    let fixture = with_default(OWN);
    let file = fixture.path(".config/fumehood/policy.toml");
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    for path in [file.clone(), fixture.path(".config/fumehood")] {
        let before = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        mode(&path, 0o777);
        let said = fixture.run(&["run", "--", "true"]);
        assert!(said.code == 126 && said.err.contains("others may write it"), "{said:?}");
        assert_eq!(fixture.run(&["run", "-q", "-p", "strict", "--", "true"]).code, 0, "another one is no matter of it");
        mode(&path, before);
    }
    assert_eq!(fixture.run(&["run", "-q", "--", "true"]).code, 0);
    // A broken one is told, never left out.
    std::fs::write(&file, "version = 1\nlimits.pidz = 7\n").unwrap();
    assert_eq!(fixture.run(&["run", "--", "true"]).code, 126);
}

#[test]
fn the_policy_of_a_workspace_is_offered_and_never_obeyed() {
    let fixture = Fixture::new();
    let text = "version = 1\nnet.mode = \"loopback\"\nlimits.pids = 9\n";
    std::fs::write(fixture.path("work/fumehood.toml"), text).unwrap();
    std::fs::create_dir(fixture.path("work/sub")).unwrap();
    std::fs::write(fixture.path("work/sub/fumehood.toml"), text).unwrap();
    for (args, name) in [
        (&["run", "-w", "."][..], "./fumehood.toml"),
        (&["run"], "fumehood.toml"),
        (&["run", "-w", "sub:ro"], "sub/fumehood.toml"),
    ] {
        let said = fixture.run(&[args, &["--", "true"]].concat());
        assert_eq!(said.code, 0, "{said:?}");
        assert!(
            said.err.contains(&format!("name it with `-p {name}`")) && said.err.contains(" of 32 processes"),
            "{said:?}"
        );
    }
    let obeyed = fixture.run(&["run", "-p", "fumehood.toml", "--", "true"]);
    assert!(!obeyed.err.contains("note:") && obeyed.err.contains(" of 9 processes"), "{obeyed:?}");
    fixture.run(&["run", "-q", "--", "true"]).is(0, "", "");
}
