//! What changes in a folder.

use agent::words::{Change, ChangeKind, Code, Request};

use crate::client::Agent;

fn watch(agent: &mut Agent, path: &str, recursive: bool) -> u32 {
    let stream = agent.open(&Request::Watch { path: path.into(), recursive });
    agent.until("the watch", |agent| agent.streams[&stream].reply.is_some());
    stream
}

fn changes(agent: &Agent, stream: u32) -> Vec<(ChangeKind, String)> {
    let events = &agent.streams[&stream].events;
    let change = |event: &serde_json::Value| serde_json::from_value::<Change>(event.clone()).unwrap();
    events.iter().map(change).map(|change| (change.what, change.name)).collect()
}

#[track_caller]
fn sees(agent: &mut Agent, stream: u32, what: ChangeKind, name: &str) {
    agent.until(&format!("{what:?} {name}"), |agent| {
        changes(agent, stream).iter().any(|(seen, path)| *seen == what && path == name)
    });
}

#[test]
fn what_happens_in_a_folder_is_told_by_name() {
    let mut agent = Agent::new();
    std::fs::create_dir_all(agent.path("w/below")).unwrap();
    let stream = watch(&mut agent, "w", false);
    std::fs::write(agent.path("w/a"), "x").unwrap();
    sees(&mut agent, stream, ChangeKind::Create, "a");
    sees(&mut agent, stream, ChangeKind::Write, "a");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(agent.path("w/a"), mode).unwrap();
    sees(&mut agent, stream, ChangeKind::Chmod, "a");
    std::fs::rename(agent.path("w/a"), agent.path("w/b")).unwrap();
    sees(&mut agent, stream, ChangeKind::Rename, "a");
    sees(&mut agent, stream, ChangeKind::Create, "b");
    std::fs::remove_file(agent.path("w/b")).unwrap();
    sees(&mut agent, stream, ChangeKind::Remove, "b");
    // Not below.
    std::fs::write(agent.path("w/below/c"), "x").unwrap();
    std::fs::remove_dir_all(agent.path("w")).unwrap();
    sees(&mut agent, stream, ChangeKind::Remove, "");
    assert!(!changes(&agent, stream).iter().any(|(_, name)| name.contains("below/c")));
    agent.cancel(stream);
    assert_eq!(agent.end(stream).result::<()>().unwrap_err().code, Code::Cancelled);
}

#[test]
fn a_file_that_is_not_whole_yet_is_not_told() {
    let mut agent = Agent::new();
    std::fs::create_dir_all(agent.path("w")).unwrap();
    let stream = watch(&mut agent, "w", true);
    agent.write("w/a", b"x").unwrap();
    sees(&mut agent, stream, ChangeKind::Create, "a");
    // The control: others may begin their names so.
    std::fs::write(agent.path("w/.fumehood-theirs"), "x").unwrap();
    sees(&mut agent, stream, ChangeKind::Create, ".fumehood-theirs");
    let ours = |name: &str| name.starts_with(".fumehood-") && name != ".fumehood-theirs";
    let told = changes(&agent, stream);
    assert!(!told.iter().any(|(_, name)| ours(name)), "{told:?}");
}

#[test]
fn a_file_that_is_written_whole_is_told_as_if_it_was_written_in_its_place() {
    let mut agent = Agent::new();
    std::fs::create_dir_all(agent.path("w")).unwrap();
    let stream = watch(&mut agent, "w", true);
    let [new, write] =
        [[ChangeKind::Create, ChangeKind::Chmod, ChangeKind::Write].as_slice(), [ChangeKind::Write].as_slice()];
    let mut wanted = Vec::new();
    for (name, kinds) in [("a", new), ("a", write), ("b", new), ("b", write), ("a", write)] {
        agent.write(&format!("w/{name}"), b"x").unwrap();
        wanted.extend(kinds.iter().map(|kind| (*kind, name.to_owned())));
        agent.until("all", |agent| changes(agent, stream).len() >= wanted.len());
        assert_eq!(changes(&agent, stream), wanted);
    }
}

#[test]
fn what_is_made_while_its_folder_is_looked_through_is_told_once() {
    let mut agent = Agent::new();
    std::fs::create_dir_all(agent.path("w")).unwrap();
    let stream = watch(&mut agent, "w", true);
    for round in 0..50 {
        agent.write(&format!("w/{round}/deep/file"), b"x").unwrap();
        std::fs::write(agent.path(&format!("w/{round}/last")), "").unwrap();
        sees(&mut agent, stream, ChangeKind::Create, &format!("{round}/last"));
    }
    std::fs::write(agent.path("w/end"), "").unwrap();
    sees(&mut agent, stream, ChangeKind::Create, "end");
    let told = changes(&agent, stream);
    let created: Vec<&String> =
        told.iter().filter(|(what, _)| *what == ChangeKind::Create).map(|(_, name)| name).collect();
    let once: std::collections::BTreeSet<&String> = created.iter().copied().collect();
    assert_eq!((created.len(), once.len()), (4 * 50 + 1, 4 * 50 + 1), "{created:?}");
    for round in 0..50 {
        let write = (ChangeKind::Write, format!("{round}/deep/file"));
        assert_eq!(told.iter().filter(|one| **one == write).count(), 1, "{told:?}");
    }
}

#[test]
fn new_folders_are_watched_with_what_was_made_in_them_meanwhile() {
    let mut agent = Agent::new();
    std::fs::create_dir_all(agent.path("w/old/older")).unwrap();
    let stream = watch(&mut agent, "w", true);
    std::fs::write(agent.path("w/old/older/file"), "x").unwrap();
    sees(&mut agent, stream, ChangeKind::Create, "old/older/file");
    std::fs::create_dir_all(agent.path("w/new/deep/deeper")).unwrap();
    std::fs::write(agent.path("w/new/deep/deeper/file"), "x").unwrap();
    sees(&mut agent, stream, ChangeKind::Create, "new/deep/deeper/file");
    std::fs::write(agent.path("w/new/deep/later"), "x").unwrap();
    sees(&mut agent, stream, ChangeKind::Write, "new/deep/later");
    // A folder that went has its new name from then on.
    std::fs::rename(agent.path("w/new"), agent.path("w/other")).unwrap();
    sees(&mut agent, stream, ChangeKind::Rename, "new");
    sees(&mut agent, stream, ChangeKind::Create, "other/deep/deeper/file");
    std::fs::write(agent.path("w/other/deep/last"), "x").unwrap();
    sees(&mut agent, stream, ChangeKind::Create, "other/deep/last");
    assert!(!changes(&agent, stream).iter().any(|(_, name)| name == "new/deep/last"));
}

#[test]
fn what_cannot_be_watched_says_why() {
    let mut agent = Agent::new();
    std::fs::write(agent.path("file"), "x").unwrap();
    assert_eq!(agent.fails(&Request::Watch { path: "file".into(), recursive: false }), Code::NotADirectory);
    assert_eq!(agent.fails(&Request::Watch { path: "nothing".into(), recursive: true }), Code::NotFound);
}
