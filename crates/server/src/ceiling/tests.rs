//! What stays below a ceiling, and what only seems to.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use policy::value::Policy;
use sandbox::{Environment, PolicyLayer};
use tempfile::TempDir;

use super::{CeilingResult, beyond};
use crate::app;

fn policy(clauses: &[&str]) -> Policy {
    let state = tempfile::tempdir().unwrap();
    let environment = Environment {
        state: sandbox::state::Places { fumehood_state: Some(state.path().into()), ..Default::default() },
        cwd: Some("/".into()),
        ..Environment::default()
    };
    let layers: Vec<_> = clauses.iter().map(|text| PolicyLayer::Set((*text).to_owned())).collect();
    app::load(&layers, &environment).unwrap().policy
}

/// The clauses in which a policy is beyond a ceiling.
fn clauses(ceiling: Option<&Policy>, asked: &Policy, ours: &[PathBuf]) -> Vec<String> {
    beyond(ceiling, asked, ours).found.iter().map(|problem| problem.clause.to_string()).collect()
}

/// `work` with a folder `sub` and what leads out of it, and `other`; where it is without links.
fn tree() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for name in ["work/sub", "work/secrets/deep", "work/conf/keys", "other"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    std::fs::write(root.join("work/.env"), "TOKEN=1").unwrap();
    std::fs::write(root.join("work/tool"), "").unwrap();
    symlink(root.join("other"), root.join("work/out")).unwrap();
    symlink(root.join("work/sub"), root.join("work/within")).unwrap();
    symlink(root.join("work/secrets"), root.join("work/plain")).unwrap();
    symlink(root.join("work"), root.join("entry")).unwrap();
    let root = root.to_str().unwrap().to_owned();
    (folder, root)
}

#[test]
fn a_path_counts_as_what_its_links_lead_to_and_the_run_is_told_that() {
    let (_folder, root) = tree();
    let text = |clause: &str, path: &str| match clause {
        "workspace" => format!("workspace={{ path = \"{root}/{path}\", mode = \"rw\" }}"),
        _ => format!("{clause}=[\"{root}/{path}\"]"),
    };
    for clause in ["workspace", "fs.read", "fs.write"] {
        // The ceiling's own path may be a link: its owner wrote it.
        for top in ["work", "entry"] {
            let ceiling = policy(&[&text(clause, top)]);
            let judged = |path: &str| beyond(Some(&ceiling), &policy(&[&text(clause, path)]), &[]);
            for path in ["work/out", "work/none", "other", "entry/out"] {
                let CeilingResult { found, .. } = judged(path);
                assert_eq!(found.len(), 1, "{clause} {top} {path}");
                assert_eq!((found[0].status.as_u16(), &*found[0].id), (403, "serve/beyond-ceiling"));
                assert_eq!(&*found[0].clause, clause, "{path}");
            }
            assert_eq!(judged("work/sub"), CeilingResult::default(), "{clause} {top}");
            let CeilingResult { found, layers } = judged("work/within");
            assert!(found.is_empty(), "{clause} {top}: {found:?}");
            let told = match clause {
                "workspace" => format!("workspace.path=\"{root}/work/sub\""),
                _ => format!("{clause}=[{{ from = \"{root}/work/sub\", to = \"{root}/work/within\" }}]"),
            };
            assert_eq!(layers, [PolicyLayer::Set(told)]);
            // Another link in its place leads nowhere else.
            let asked = text(clause, "work/within");
            let PolicyLayer::Set(led) = &layers[0] else { panic!("{layers:?}") };
            let told = policy(&[&asked, led]);
            let from = if clause == "fs.write" { told.fs.write.first() } else { told.fs.read.first() };
            let from = from.map(|grant| &grant.from).or(told.workspace.path.as_ref());
            assert_eq!(from, Some(&PathBuf::from(format!("{root}/work/sub"))), "{clause}");
        }
    }
}

#[test]
fn both_spellings_of_a_list_are_said_anew_and_what_is_ours_is_named_without_links() {
    let (_folder, root) = tree();
    let ours = [PathBuf::from(format!("{root}/entry"))];
    let ceiling = policy(&[&format!("fs.read=[\"{root}/work\"]")]);
    let asked = policy(&[
        &format!("fs.read=[\"{root}/work/within\", \"{root}/work/tool\"]"),
        &format!("fs.dangerous-read=[{{ from = \"{root}/entry\", to = \"/mnt\" }}]"),
    ]);
    let CeilingResult { found, layers } = beyond(Some(&ceiling), &asked, &ours);
    assert!(found.is_empty(), "{found:?}");
    let set = PolicyLayer::Set;
    assert_eq!(
        layers,
        [
            set(format!(
                "fs.read=[{{ from = \"{root}/work/sub\", to = \"{root}/work/within\" }}, \"{root}/work/tool\"]"
            )),
            set(format!("fs.dangerous-read=[{{ from = \"{root}/work\", to = \"/mnt\" }}]")),
        ]
    );
}

#[test]
fn what_a_ceiling_hides_is_neither_granted_by_itself_nor_under_another_name() {
    let (_folder, root) = tree();
    let hide = "fs.hide=[\"secrets\", \"conf/keys\", \"**/.env\"]";
    let ceiling = policy(&[&format!("fs.read=[\"{root}/work\"]"), hide]);
    let judged = |grant: &str| clauses(Some(&ceiling), &policy(&[&format!("fs.read=[{grant}]"), hide]), &[]);
    for path in ["work", "work/sub", "work/tool"] {
        assert_eq!(judged(&format!("\"{root}/{path}\"")), [""; 0], "{path}");
    }
    // Of `conf` the glob `conf/keys` would hide nothing any more.
    for path in ["work/secrets", "work/secrets/deep", "work/.env", "work/plain", "work/conf", "work/conf/keys"] {
        assert_eq!(judged(&format!("\"{root}/{path}\"")), ["fs.read"], "{path}");
    }
    for (path, to) in [("work/.env", "/tmp/env2"), ("work/sub", "/data"), ("work", "/data")] {
        assert_eq!(judged(&format!("{{ from = \"{root}/{path}\", to = \"{to}\" }}")), ["fs.read"], "{path}");
    }
}

#[test]
fn what_a_ceiling_hides_in_its_workspace_stays_hidden_in_a_part_of_it() {
    let (_folder, root) = tree();
    let hide = "fs.hide=[\"secrets\", \"/work/sub/key\"]";
    let workspace =
        |path: &str, at: &str| format!("workspace={{ path = \"{root}/{path}\", at = \"{at}\", mode = \"copy\" }}");
    let ceiling = policy(&[&workspace("work", "/work"), hide]);
    let judged = |path: &str, at: &str| clauses(Some(&ceiling), &policy(&[&workspace(path, at), hide]), &[]);
    for (path, at) in
        [("work", "/work"), ("work/sub", "/work/sub"), ("work/conf", "/work"), ("work/conf", "/elsewhere")]
    {
        assert_eq!(judged(path, at), [""; 0], "{path} at {at}");
    }
    for (path, at) in
        [("work/secrets", "/work/secrets"), ("work/plain", "/work"), ("work", "/elsewhere"), ("work/sub", "/work")]
    {
        assert_eq!(judged(path, at), ["workspace"], "{path} at {at}");
    }
}

#[test]
fn nothing_takes_the_place_of_a_program_that_a_ceiling_lets_be_executed() {
    let (_folder, root) = tree();
    let exec = "fs.exec=[\"/opt/bin/tool\", \"/usr/bin/cat\"]";
    let ceiling = policy(&[&format!("fs.read=[\"{root}/work\"]"), exec]);
    let judged = |clause: &str, ours: &[PathBuf]| clauses(Some(&ceiling), &policy(&[clause, exec]), ours);
    assert_eq!(judged(&format!("fs.read=[\"{root}/work\"]"), &[]), [""; 0]);
    let named = format!("fs.read=[{{ from = \"{root}/work/tool\", to = \"/usr/bin/cat\" }}]");
    assert_eq!(judged(&named, &[]), ["fs.read"]);
    // Also not what is written to the empty folder of the server.
    let ours = [Path::new(&root).join("other")];
    let empty = |at: &str| format!("workspace={{ path = \"{root}/other\", at = \"{at}\", mode = \"copy\" }}");
    assert_eq!(judged(&empty("/workspace"), &ours), [""; 0]);
    for at in ["/opt/bin", "/opt/bin/tool", "/srv"] {
        assert_eq!(judged(&empty(at), &ours), ["workspace"], "{at}");
    }
}

#[test]
fn no_file_of_a_template_takes_the_place_of_a_program_that_a_ceiling_lets_be_executed() {
    let (_folder, root) = tree();
    symlink(format!("{root}/work/tool"), format!("{root}/other/link")).unwrap();
    let listed = format!("fs.exec=[\"{root}/work/tool\", \"/opt/fumehood/template/venv/bin/python3\"]");
    let (ceiling, without) = (policy(&[&listed]), policy(&[]));
    let ours = [PathBuf::from(format!("{root}/other")), PathBuf::from(format!("{root}/work/sub"))];
    let judged = |ceiling: &Policy, exec: &str, at: &str| {
        let grant = format!("fs.dangerous-read=[{{ from = \"{root}/work/sub\", to = \"{at}\" }}]");
        clauses(Some(ceiling), &policy(&[&grant, exec]), &ours)
    };
    // On the program, on a name that leads to it, and on a folder above it.
    for at in [format!("{root}/work/tool"), format!("{root}/other/link"), format!("{root}/work"), "/opt".to_owned()] {
        assert_eq!(judged(&ceiling, &listed, &at), ["fs.exec"], "{at}");
        assert_eq!(judged(&without, &listed, &at), [""; 0], "no list, nothing to be held: {at}");
    }
    for at in ["/opt/fumehood/template", "/opt/x.py", &format!("{root}/work/other")] {
        assert_eq!(judged(&ceiling, &listed, at), [""; 0], "{at}");
    }
}

#[test]
fn without_a_ceiling_no_device_of_the_host_is_had() {
    let asked = policy(&["process.devices=[\"kvm\"]"]);
    assert_eq!(clauses(None, &asked, &[]), ["process.devices"]);
    let ceiling = policy(&["process.devices=[\"kvm\"]"]);
    assert_eq!(clauses(Some(&ceiling), &asked, &[]), [""; 0]);
    assert_eq!(clauses(None, &policy(&[]), &[]), [""; 0]);
}

#[test]
fn a_rule_may_be_narrower_than_the_ceilings_and_not_wider() {
    let rule = |more: &str| {
        let allow = format!("net.allow=[{{ host = \"api.corp\", ports = [80, 443]{more} }}]");
        policy(&["net.mode=\"allow\"", "syscalls.profile=default", &allow])
    };
    let (any, reads) = (rule(""), rule(", methods = [\"GET\", \"HEAD\"], paths = [\"/a/**\", \"/b\"]"));
    for narrower in
        [", methods = [\"GET\"], paths = [\"/b\"]", ", methods = [\"HEAD\", \"GET\"], paths = [\"/a/**\", \"/b\"]"]
    {
        assert_eq!(clauses(Some(&any), &rule(narrower), &[]), [""; 0], "{narrower}");
        assert_eq!(clauses(Some(&reads), &rule(narrower), &[]), [""; 0], "{narrower}");
    }
    let asks = ", methods = [\"GET\"], paths = [\"/b\"], decision = \"ask\"";
    assert_eq!(clauses(Some(&reads), &rule(asks), &[]), [""; 0]);
    assert_eq!(clauses(Some(&rule(asks)), &rule(", methods = [\"GET\"], paths = [\"/b\"]"), &[]), ["net.allow"]);
    for wider in [
        "",
        ", methods = [\"GET\"]",
        ", paths = [\"/b\"]",
        ", methods = [\"POST\"], paths = [\"/b\"]",
        ", methods = [\"GET\"], paths = [\"/c\"]",
        ", methods = [\"GET\"], paths = [\"/b\"], websocket = true",
        ", methods = [\"GET\"], paths = [\"/b\"], encoded_slashes = true",
    ] {
        assert_eq!(clauses(Some(&reads), &rule(wider), &[]), ["net.allow"], "{wider}");
    }
}

#[test]
fn what_a_network_may_carry_is_asked_for_where_there_is_one() {
    let ceiling = policy(&[
        "net.mode=\"allow\"",
        "syscalls.profile=default",
        "net.allow=[\"api.corp\"]",
        "net.bytes=1M",
        "net.connections=4",
        "net.bandwidth=1M/s",
    ]);
    let judged = |asked: &[&str]| clauses(Some(&ceiling), &policy(asked), &[]);
    assert_eq!(judged(&["net.mode=loopback"]), [""; 0]);
    assert_eq!(judged(&["net.mode=none"]), [""; 0]);
    let open = ["net.mode=\"allow\"", "syscalls.profile=default", "net.allow=[\"api.corp\"]"];
    assert_eq!(judged(&open), ["net.bandwidth", "net.bytes", "net.connections"]);
    let less = [&open[..], &["net.bytes=1M", "net.connections=2", "net.bandwidth=1M/s"]].concat();
    assert_eq!(judged(&less), [""; 0]);
}

/// Attacks of a key without a ceiling: a list of programs that names a file of the host, a call that reaches the keys of whoever
/// serves, and a tier on which modes of the host's files can be changed.
#[test]
fn without_a_ceiling_nothing_leads_to_the_host_by_what_is_executed_called_or_named_as_a_tier() {
    let (_folder, root) = tree();
    let judged = |asked: &[&str]| clauses(None, &policy(asked), &[]);
    for path in ["work/tool", "work/none", "work", "out"] {
        assert_eq!(judged(&[&format!("fs.exec=[\"/usr/bin\", \"{root}/{path}\"]")]), ["fs.exec"], "{path}");
    }
    assert_eq!(judged(&["fs.exec=[\"/usr/bin/env\", \"/bin/sh\"]"]), [""; 0]);
    assert_eq!(judged(&["syscalls.allow=[\"kcmp\"]"]), ["syscalls.allow"]);
    assert_eq!(judged(&["tier=process"]), ["tier"]);
    assert_eq!(judged(&["tier=auto", "threat=mistakes"]), ["tier"]);
    for tier in [&["tier=auto"][..], &["tier=container"], &["tier=gvisor"], &["tier=auto", "threat=multi-tenant"]] {
        assert_eq!(judged(tier), [""; 0], "{tier:?}");
    }
}

/// `auto` of a ceiling takes no tier that is not meant against its threat, and lets none be named either.
#[test]
fn a_ceiling_that_takes_any_tier_takes_none_that_its_threat_rules_out() {
    let judged = |ceiling: &[&str], asked: &[&str]| clauses(Some(&policy(ceiling)), &policy(asked), &[]);
    for (threat, below, beyond) in [
        ("mistakes", &["language", "process", "container", "auto"][..], &[][..]),
        ("hostile", &["container", "gvisor", "vm", "auto"], &["language", "process"]),
        ("multi-tenant", &["gvisor", "vm", "auto"], &["language", "process", "container"]),
    ] {
        let threat = format!("threat={threat}");
        let of = |tier: &str| judged(&["tier=auto", &threat], &[&format!("tier={tier}"), &threat]);
        for tier in below {
            assert_eq!(of(tier), [""; 0], "{threat} {tier}");
        }
        for tier in beyond {
            assert_eq!(of(tier), ["tier"], "{threat} {tier}");
        }
    }
    // What names a tier is held to it; `auto` against the same threat comes to no weaker one.
    assert_eq!(judged(&["tier=container"], &["tier=auto"]), [""; 0]);
    assert_eq!(judged(&["tier=gvisor"], &["tier=auto"]), ["tier"]);
    assert_eq!(judged(&["tier=process", "threat=mistakes"], &["tier=auto", "threat=mistakes"]), [""; 0]);
    assert_eq!(judged(&["tier=container", "threat=mistakes"], &["tier=auto", "threat=mistakes"]), ["tier"]);
}
