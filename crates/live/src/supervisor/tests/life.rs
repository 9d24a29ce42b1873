//! States, ends and records.

use std::sync::atomic::Ordering;

use agent::words::{Code, Request};

use super::*;
use crate::LiveError;
use crate::words::EndReason;

fn secs(seconds: f64) -> Option<Duration> {
    Some(Duration::from_secs_f64(seconds))
}

#[tokio::test]
async fn it_ends_when_it_is_told_to_and_everybody_hears_why() {
    let live = live(With::default()).await;
    let (one, other) = (live.client().await, live.client().await);
    let waiting = tokio::spawn(async move { other.call::<Info>(&Ask::Wait {}).await.unwrap() });
    let home = live.home.socket_of(&live.id);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let info = kill(&one).await;
    assert_eq!((info.state, info.reason), (State::Ended, Some(EndReason::Killed)));
    assert_eq!(waiting.await.unwrap(), info);
    let id = live.id.clone();
    let state = live.home.find(&id).unwrap();
    assert_eq!((state.state, state.reason), (State::Ended, Some(EndReason::Killed)));
    assert!(matches!(live.home.find_live(&id), Err(LiveError::Over { .. })));
    live.over().await;
    assert!(Client::connect(&home).await.is_err());
}

#[tokio::test]
async fn it_ends_when_its_life_is_over_and_its_life_can_be_changed() {
    let first = live(With { life: secs(0.1), ..With::default() }).await;
    assert_eq!(first.over().await.reason, Some(EndReason::Timeout));
    let second = live(With { life: secs(0.3), ..With::default() }).await;
    let client = second.client().await;
    let ask = |ms: u64, only_later| {
        let labels = [("moved".to_owned(), ms.to_string())].into();
        Ask::Timeout { ms, only_later, labels }
    };
    let longer: Info = client.call(&ask(60_000, false)).await.unwrap();
    let same: Info = client.call(&ask(1, true)).await.unwrap();
    assert_eq!((same.ends_ms, &same.labels), (longer.ends_ms, &longer.labels), "only later");
    assert_eq!(longer.labels["moved"], "60000", "what belongs to an end is remembered with it");
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(client.call::<Info>(&Ask::Info {}).await.unwrap().state, State::Running);
    assert_eq!(*second.run.walls.lock().unwrap(), [secs(60.0)]);
    assert!(client.call::<Info>(&ask(u64::MAX, false)).await.is_err());
    client.call::<Info>(&ask(50, false)).await.unwrap();
    assert_eq!(second.over().await.reason, Some(EndReason::Timeout));
}

#[tokio::test]
async fn it_ends_when_it_is_idle_and_not_while_something_runs_or_is_asked() {
    let live = live(With { idle: secs(0.3), ..With::default() }).await;
    let client = live.client().await;
    let mut program = client.open(&Ask::Exec(exec(&["sleep"]))).unwrap();
    program.reply().await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    program.cancel().unwrap();
    to_end(&mut program).await;
    let watch = client.open(&Request::Watch { path: "/".to_owned(), recursive: false }).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(watch);
    assert_eq!(client.call::<Info>(&Ask::Info {}).await.unwrap().state, State::Running);
    // To look at it is no use of it.
    let looks = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if client.call::<Info>(&Ask::Info {}).await.is_err() {
                break;
            }
        }
    };
    tokio::time::timeout(LONG, looks).await.expect("looking at it keeps it alive");
    assert_eq!(live.over().await.reason, Some(EndReason::Idle));
}

#[tokio::test]
async fn paused_it_answers_little_does_not_age_by_idle_and_ends_all_the_same() {
    let paused = live(With { idle: secs(0.2), life: secs(1.0), ..With::default() }).await;
    let client = paused.client().await;
    assert_eq!(client.call::<Info>(&Ask::Pause {}).await.unwrap().state, State::Paused);
    assert_eq!(client.call::<Info>(&Ask::Pause {}).await.unwrap().state, State::Paused);
    let exec = client.open(&Ask::Exec(exec(&["sleep"]))).unwrap().reply().await;
    assert_eq!(exec.unwrap_err().failure().code, Code::Paused);
    let stat = client.call::<Value>(&Request::Stat { path: "/a".to_owned(), follow: false }).await;
    assert_eq!(stat.unwrap_err().failure().code, Code::Paused);
    assert_eq!(paused.home.find(&paused.id).unwrap().state, State::Paused);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(client.call::<Info>(&Ask::Resume {}).await.unwrap().state, State::Running);
    assert_eq!(client.call::<Info>(&Ask::Pause {}).await.unwrap().state, State::Paused);
    assert_eq!(paused.over().await.reason, Some(EndReason::Timeout));

    let without = live(With::default()).await;
    without.run.freezer.store(false, Ordering::Relaxed);
    let client = without.client().await;
    let refused = client.call::<Info>(&Ask::Pause {}).await.unwrap_err().failure();
    assert_eq!((refused.code, refused.message.as_str()), (Code::Unsupported, "this host has no freezer"));
    assert_eq!(client.call::<Info>(&Ask::Info {}).await.unwrap().state, State::Running);
    kill(&client).await;
}

#[tokio::test]
async fn what_the_run_itself_ended_of_is_the_reason() {
    for (reason, limit) in [(EndReason::Limit, Some("pids")), (EndReason::Memory, Some("memory"))] {
        let live = live(With::default()).await;
        let client = live.client().await;
        let mut stream = client.open(&Ask::Exec(exec(&["sleep"]))).unwrap();
        stream.reply().await.unwrap();
        live.run.finish(reason, "the words of the run");
        let report = to_end(&mut stream).await.2;
        assert_eq!((report.outcome.as_str(), report.limit.as_deref()), ("limit", limit));
        let info = live.over().await;
        assert_eq!((info.reason, info.message.as_deref()), (Some(reason), Some("the words of the run")));
    }
}

#[tokio::test]
async fn kill_timeout_and_exec_at_once_end_with_one_reason_and_an_answer_for_each() {
    for _ in 0..20 {
        let live = live(With { life: secs(0.1), ..With::default() }).await;
        let client = live.client().await;
        tokio::time::sleep(Duration::from_millis(95)).await;
        let exec = Ask::Exec(exec(&["sleep"]));
        let ((), killed, waited) = tokio::join!(
            async {
                if let Ok(mut stream) = client.open(&exec) {
                    while stream.next().await.is_some() {}
                }
            },
            client.call::<Info>(&Ask::Kill {}),
            client.call::<Info>(&Ask::Wait {}),
        );
        let info = live.over().await;
        assert!(matches!(info.reason, Some(EndReason::Killed | EndReason::Timeout)), "{:?}", info.reason);
        for answer in [killed, waited].into_iter().flatten() {
            assert_eq!(answer.reason, info.reason);
        }
    }
}

#[tokio::test]
async fn names_are_unique_among_the_living() {
    let (folder, state) = folder();
    let named = |name| begin(&folder, &state, With { name: Some(name), ..With::default() });
    let first = named("box").await.unwrap();
    let Err(LiveError::Taken { id, .. }) = named("box").await else { panic!("two have one name") };
    assert_eq!(id, first.id);
    assert_eq!(first.home.find("box").unwrap().id, first.id);
    kill(&first.client().await).await;
    let old = first.id.clone();
    first.over().await;
    let second = named("box").await.unwrap();
    assert_eq!(second.home.find("box").unwrap().id, second.id, "the living one");
    assert_eq!(second.home.find(&old).unwrap().state, State::Ended);
    for bad in ["", "-a", "a/b", "a b", "..", ".a", "ä"] {
        let claimed = second.home.claim(Some(bad));
        assert!(matches!(claimed, Err(LiveError::Name { .. })), "{bad}");
    }
    assert!(second.home.claim(Some(&"a".repeat(64))).is_err());
    let begun = second.home.claim(Some(&"a".repeat(63))).unwrap();
    let taken = second.home.claim(Some(&"a".repeat(63)));
    assert!(matches!(taken, Err(LiveError::Taken { .. })), "one that is being begun has its name");
    drop(begun);
    kill(&second.client().await).await;
}

#[tokio::test]
async fn records_of_the_dead_are_told_and_kept_for_a_day() {
    let (_folder, state) = folder();
    let home = Home::new(&state).unwrap();
    let mut claim = home.claim(Some("gone")).unwrap();
    let id = claim.id().to_owned();
    claim.write(&info(&id)).unwrap();
    assert_eq!(home.find(&id).unwrap().state, State::Running);
    assert_eq!(home.list(false).unwrap().len(), 1);
    // One that has said its last word, and is not quite gone.
    claim.write(&Info { state: State::Ended, name: Some("gone".to_owned()), ..info(&id) }).unwrap();
    assert_eq!((home.list(false).unwrap().len(), home.find("gone").unwrap().state), (0, State::Ended));
    claim.write(&info(&id)).unwrap();
    // As kill -9 does: the lock is free, and nothing was said.
    drop(claim);
    let lost = home.find(&id).unwrap();
    assert_eq!((lost.state, lost.reason), (State::Ended, Some(EndReason::Lost)));
    assert!(lost.message.as_ref().unwrap().contains("gone without a word"));
    assert_eq!((home.list(false).unwrap().len(), home.list(true).unwrap().len()), (0, 1));
    assert_eq!(home.lost().unwrap(), std::slice::from_ref(&lost), "until somebody has said it");
    home.told(&lost).unwrap();
    assert_eq!(home.lost().unwrap(), []);
    assert_eq!(home.find(&id).unwrap().reason, Some(EndReason::Lost));
    let now = jiff::Timestamp::now();
    assert!(home.sweep(now).unwrap().removed.is_empty());
    assert_eq!(home.sweep(now + jiff::SignedDuration::from_hours(25)).unwrap().removed, [id]);
    assert_eq!(home.list(true).unwrap(), []);
    let unkept = home.claim(None).unwrap();
    drop(unkept);
    assert_eq!(state.live().unwrap().names().unwrap(), ["lock"]);
}

#[tokio::test]
async fn somebody_elses_user_is_not_answered() {
    if !rustix::process::geteuid().is_root() {
        println!("skip: only root becomes somebody else");
        return;
    }
    // The supervisor runs as another user than root would be asked as: here a child of another user asks it.
    let live = live(With::default()).await;
    let socket = live.home.socket_of(&live.id);
    for folder in socket.ancestors().take(6) {
        use std::os::unix::fs::PermissionsExt as _;
        if let Ok(there) = std::fs::metadata(folder) {
            let mode = there.permissions().mode() | 0o007;
            // The folders are 0700: opened up here, so that the check itself is what refuses.
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    }
    let asks = |uid: &str| {
        let ask = words();
        let python = format!(
            "import socket,os,sys\nos.setgid({uid})\nos.setuid({uid})\ns=socket.socket(socket.AF_UNIX)\n\
             s.connect(sys.argv[1])\ns.settimeout(10)\ntry:\n s.sendall(bytes.fromhex('{ask}'))\n print(len(s.recv(10)))\n\
             except OSError: print(0)\n"
        );
        let socket = socket.clone();
        tokio::task::spawn_blocking(move || {
            let command = sys::command::Command::new("/usr/bin/python3").arg("-c").arg(python).arg(&socket);
            let output = command.output(b"", 4096, Duration::from_secs(15)).unwrap();
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr)
        })
    };
    assert_eq!(asks("0").await.unwrap(), "10\n");
    assert_eq!(asks("65534").await.unwrap(), "0\n");
    kill(&live.client().await).await;
}

fn words() -> String {
    let ask = serde_json::to_vec(&Ask::Info {}).unwrap();
    let frame = crate::wire::encode(agent::frame::Kind::Open, 1, &ask).unwrap();
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_program_that_was_not_started_yet_when_its_sandbox_ended_is_told_as_that() {
    // An agent that answers nothing to a start.
    let live = live(With { hostile: Some(|_| Vec::new()), ..With::default() }).await;
    let client = live.client().await;
    let mut stream = client.open(&Ask::Exec(exec(&["sleep"]))).unwrap();
    assert_eq!(client.call::<Info>(&Ask::Info {}).await.unwrap().state, State::Running);
    kill(&client).await;
    let told = tokio::time::timeout(LONG, stream.reply()).await.unwrap().unwrap_err().failure();
    assert!(told.code == Code::Ended && told.message.contains("before it was started"), "{told}");
}

/// Who asks for other hosts on and on, or looks at files, is in nobody's way who closes the network.
#[tokio::test]
async fn rules_have_places_of_their_own_and_whole_tables_come_first() {
    let live = live(With::default()).await;
    let client = live.client().await;
    live.run.hold(true);
    let looks: Vec<_> = (0..2).map(|_| client.open(&Ask::Changes {}).unwrap()).collect();
    let hosts = (0..10).map(|number| client.open(&Ask::Hosts { net: number.into() }).unwrap()).collect::<Vec<_>>();
    let table = client.open(&Ask::Network { net: "closed".into(), secrets: None }).unwrap();
    assert_eq!(client.call::<Value>(&Ask::Rules {}).await.unwrap(), Value::Null, "nobody waits to read them");
    live.run.hold(false);
    let mut ends = Vec::new();
    for mut stream in looks.into_iter().chain(hosts).chain([table]) {
        let Incoming::End(end) = stream.next().await.unwrap() else { panic!("it is no end") };
        ends.push(end.map(drop).map_err(|failure| failure.code));
    }
    let mut expected = vec![Ok(()); 13];
    // One is being replaced and eight wait.
    expected[11] = Err(Code::TooMany);
    assert_eq!(ends, expected);
    let order: Vec<Value> = [0.into(), "closed".into()].into_iter().chain((1..9).map(Value::from)).collect();
    assert_eq!(*live.run.rules.lock().unwrap(), order);
    kill(&client).await;
}
