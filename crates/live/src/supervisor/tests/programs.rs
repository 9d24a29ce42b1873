//! Programs and those who listen to them.

use std::sync::atomic::Ordering;

use agent::words::{Code, Entry, ProgramControl, Request};
use base64::Engine as _;

use policy::report::DetectedBy;
use policy::{ClauseId, Violation};

use super::fake::Counts;
use super::*;
use crate::client::Error;
use crate::kernel::words::KernelAsk;
use crate::words::{Programs, Running, Which};

fn code(error: Error) -> Code {
    error.failure().code
}

#[tokio::test]
async fn a_program_is_reported_with_its_code() {
    let live = live(With::default()).await;
    let client = live.client().await;
    let mut stream = client.open(&Ask::Exec(exec(&["exit", "7"]))).unwrap();
    let running: Running = serde_json::from_value(stream.reply().await.unwrap()).unwrap();
    assert_eq!((running.id.as_str(), running.program.argv[0].as_str()), ("p1", "exit"));
    let (_, _, report) = to_end(&mut stream).await;
    assert_eq!((report.outcome.as_str(), report.code, report.cpu_user), ("exited", Some(7), 0.000_005));
    let missing = client.open(&Ask::Exec(exec(&["missing"]))).unwrap().reply().await;
    assert_eq!(code(missing.unwrap_err()), Code::NotFound);
    let nothing = client.open(&Ask::Exec(Exec::default())).unwrap().reply().await;
    assert_eq!(code(nothing.unwrap_err()), Code::Invalid);
    kill(&client).await;
}

#[tokio::test]
async fn what_the_broker_stopped_meanwhile_is_in_the_report_and_in_what_is_said_of_the_sandbox() {
    let live = live(With::default()).await;
    let client = live.client().await;
    let denied = |host: &str, count| Violation {
        id: "net.allow/unknown-name".to_owned(),
        clause: ClauseId::NetAllow,
        what: format!("looking up {host}"),
        why: "no rule".to_owned(),
        instead: "ask".to_owned(),
        count,
        seen: DetectedBy::Broker,
        program: None,
    };
    let stopped = |report: &Report| -> Vec<(String, u64)> {
        report.violations.iter().map(|one| (one.what.clone(), one.count)).collect()
    };
    *live.run.stopped.lock().unwrap() = Arc::from([denied("before.test", 2)]);
    // More of a kind is said only when it is asked for: the end of the program waits for it.
    *live.run.counts.lock().unwrap() = Some(Counts::Says(Arc::from([denied("before.test", 5), denied("new.test", 1)])));
    let mut stream = client.open(&Ask::Exec(exec(&["exit", "7"]))).unwrap();
    let report = to_end(&mut stream).await.2;
    assert_eq!(stopped(&report), [("looking up before.test".to_owned(), 3), ("looking up new.test".to_owned(), 1)]);
    assert_eq!((report.code, report.violations[0].seen.as_str()), (Some(7), "broker"));
    let mut stream = client.open(&Ask::Exec(exec(&["exit", "0"]))).unwrap();
    assert_eq!(stopped(&to_end(&mut stream).await.2), []);
    let info: Info = client.call(&Ask::Info {}).await.unwrap();
    assert_eq!(info.violations.iter().map(|one| one.count).collect::<Vec<_>>(), [5, 1]);
    // One that does not answer holds no end up.
    *live.run.counts.lock().unwrap() = Some(Counts::Hangs);
    let began = std::time::Instant::now();
    let mut stream = client.open(&Ask::Exec(exec(&["exit", "3"]))).unwrap();
    assert_eq!(to_end(&mut stream).await.2.code, Some(3));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    kill(&client).await;
}

#[tokio::test]
async fn a_variable_with_the_value_of_a_secret_starts_nothing() {
    let live = live(With::default()).await;
    let client = live.client().await;
    let with = |value: &str| {
        let mut asked = exec(&["exit", "0"]);
        asked.program.env.insert("TOKEN".to_owned(), value.to_owned());
        asked
    };
    let refused = client.open(&Ask::Exec(with("Bearer hunter22"))).unwrap().reply().await.unwrap_err().failure();
    assert_eq!(refused.code, Code::Secret);
    let told = refused.message;
    assert!(told.contains("`TOKEN`") && told.contains("`db`") && !told.contains("hunter22"), "{told}");
    let env = with("hunter22").program.env;
    let execute = crate::kernel::words::Execute { code: "1".to_owned(), env: env.clone(), ..Default::default() };
    let create = crate::kernel::words::NewContext { env, ..Default::default() };
    for asked in [KernelAsk::Execute(execute), KernelAsk::ContextCreate(create)] {
        assert_eq!(code(client.call::<serde_json::Value>(&asked).await.unwrap_err()), Code::Secret, "{asked:?}");
    }
    assert_eq!(to_end(&mut client.open(&Ask::Exec(with("hunter2"))).unwrap()).await.2.code, Some(0));
    kill(&client).await;
}

#[tokio::test]
async fn what_is_typed_comes_back_and_others_may_type_too() {
    let live = live(With::default()).await;
    let client = live.client().await;
    let mut stream = client.open(&Ask::Exec(exec(&["cat", "-"]))).unwrap();
    stream.reply().await.unwrap();
    let which = Which::Id("p1".to_owned());
    // More than a window, so that credit must come back.
    let sender = stream.sender();
    let typed = tokio::spawn(async move {
        for _ in 0..20 {
            sender.send(&[b'a'; 50_000]).await.unwrap();
        }
        sender
    });
    let mut out = 0;
    while out < 1_000_000 {
        let Some(Incoming::Out(bytes)) = stream.next().await else { panic!("no output") };
        out += bytes.len();
    }
    let sender = typed.await.unwrap();
    let bytes = base64::prelude::BASE64_STANDARD.encode("hello");
    client.call::<()>(&Ask::Input { which: which.clone(), bytes, tty: false }).await.unwrap();
    assert_eq!(stream.next().await, Some(Incoming::Out(b"hello".to_vec())));
    sender.eof().unwrap();
    assert_eq!(to_end(&mut stream).await.2.code, Some(0));
    let late = client.call::<()>(&Ask::CloseInput { which }).await;
    assert_eq!(code(late.unwrap_err()), Code::NotFound);
    kill(&client).await;
}

#[tokio::test]
async fn a_program_is_slowed_by_its_only_reader_and_loses_nothing() {
    let live = live(With::default()).await;
    let client = live.client().await;
    let mut stream = client.open(&Ask::Exec(exec(&["print", "20000000"]))).unwrap();
    stream.reply().await.unwrap();
    // Nobody reads: the agent may send its window twice (his and ours), and then waits.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let programs: Programs = client.call(&Ask::Programs {}).await.unwrap();
    assert!(programs.programs[0].report.is_none(), "20 MB lie somewhere");
    let (out, lost, report) = to_end(&mut stream).await;
    assert_eq!((out.len(), lost, report.output, report.dropped), (20_000_000, 0, 20_000_000, 0));
    kill(&client).await;
}

#[tokio::test]
async fn who_does_not_read_is_skipped_and_told_and_the_others_get_everything() {
    let live = live(With::default()).await;
    let (owner, other) = (live.client().await, live.client().await);
    let mut first = owner.open(&Ask::Exec(exec(&["print", "50000000"]))).unwrap();
    first.reply().await.unwrap();
    let which = Which::Pid(programs(&owner).await[0].pid);
    let mut second = other.open(&Ask::Attach { which }).unwrap();
    second.reply().await.unwrap();
    let (out, lost, _) = to_end(&mut second).await;
    // It joined when a window or two were out already.
    assert_eq!(lost, 0);
    assert!(out.len() > 49_000_000, "{}", out.len());
    let (out, lost, report) = to_end(&mut first).await;
    assert_eq!(out.len() as u64 + lost, 50_000_000);
    assert!(lost > 40_000_000, "{lost}");
    assert_eq!(report.dropped, 0, "the limit has nothing to do with it");
    kill(&owner).await;
}

#[tokio::test]
async fn a_list_of_programs_fits_its_answer_and_says_what_it_lacks() {
    let live = live(With::default()).await;
    let client = live.client().await;
    let long = "x".repeat(100 * 1024);
    let mut first = client.open(&Ask::Exec(exec(&["cat"]))).unwrap();
    first.reply().await.unwrap();
    for _ in 0..4 {
        to_end(&mut client.open(&Ask::Exec(exec(&["exit", "0", &long]))).unwrap()).await;
    }
    let all: Programs = client.call(&Ask::Programs {}).await.unwrap();
    let ids: Vec<&str> = all.programs.iter().map(|one| one.id.as_str()).collect();
    assert_eq!((ids, all.left_out), (vec!["p1", "p4", "p5"], 2), "what runs, and the newest of what ended");
    kill(&client).await;
}

async fn programs(client: &Client) -> Vec<Running> {
    client.call::<Programs>(&Ask::Programs {}).await.unwrap().programs
}

#[tokio::test]
async fn a_lost_caller_ends_his_program_and_not_one_that_he_let_go() {
    let live = live(With::default()).await;
    let client = live.client().await;
    for detach in [false, true] {
        let caller = live.client().await;
        let mut stream = caller.open(&Ask::Exec(Exec { detach, ..exec(&["sleep"]) })).unwrap();
        stream.reply().await.unwrap();
        drop((stream, caller));
    }
    let ended = async {
        loop {
            let programs = programs(&client).await;
            if programs[0].report.is_some() {
                return programs;
            }
        }
    };
    let programs = tokio::time::timeout(LONG, ended).await.unwrap();
    assert_eq!(programs[0].report.as_ref().unwrap().signal, Some(9));
    assert!(programs[1].report.is_none());
    let which = Which::Id("p2".to_owned());
    client.call::<()>(&Ask::Signal { which: which.clone(), number: 15, tree: false }).await.unwrap();
    let mut stream = client.open(&Ask::Attach { which: which.clone() }).unwrap();
    stream.reply().await.unwrap();
    assert_eq!(to_end(&mut stream).await.2.signal, Some(15));
    let again = client.call::<()>(&Ask::Signal { which, number: 15, tree: false }).await;
    assert_eq!(code(again.unwrap_err()), Code::NotFound);
    kill(&client).await;
}

#[tokio::test]
async fn a_timeout_kills_the_program_and_not_the_sandbox() {
    let live = live(With::default()).await;
    let client = live.client().await;
    let timeout_ms = Some(50);
    let mut stream = client.open(&Ask::Exec(Exec { timeout_ms, ..exec(&["sleep"]) })).unwrap();
    let report = to_end(&mut stream).await.2;
    assert_eq!((report.outcome.as_str(), report.limit.as_deref(), report.signal), ("limit", Some("wall"), Some(9)));
    assert_eq!(client.call::<Info>(&Ask::Info {}).await.unwrap().state, State::Running);
    kill(&client).await;
}

#[tokio::test]
async fn a_program_whose_time_is_over_while_it_starts_ends_by_that_limit_as_any_other() {
    let live = live(With::default()).await;
    let client = live.client().await;
    let mut stream = client.open(&Ask::Exec(Exec { timeout_ms: Some(1), ..exec(&["slow"]) })).unwrap();
    let running: Running = serde_json::from_value(stream.reply().await.unwrap()).unwrap();
    let report = to_end(&mut stream).await.2;
    assert_eq!((running.pid, report.outcome.as_str(), report.limit.as_deref()), (0, "limit", Some("wall")));
    assert_eq!(programs(&client).await[0].report.as_ref(), Some(&report));
    // What does not start for another reason is a failure, also in so short a time.
    let mut stream = client.open(&Ask::Exec(Exec { timeout_ms: Some(1000), ..exec(&["missing"]) })).unwrap();
    assert_eq!(code(stream.reply().await.unwrap_err()), Code::NotFound);
    kill(&client).await;
}

#[tokio::test]
async fn output_past_its_limit_is_cut_or_ends_the_program() {
    for (kill_over, outcome, limit) in [(false, "exited", None), (true, "limit", Some("output"))] {
        let live = live(With { output: Some(100_000), kill_over, ..With::default() }).await;
        let client = live.client().await;
        let mut stream = client.open(&Ask::Exec(exec(&["print", "3000000"]))).unwrap();
        let (out, lost, report) = to_end(&mut stream).await;
        assert_eq!((report.outcome.as_str(), report.limit.as_deref(), lost), (outcome, limit, 0));
        let note = format!("\n[fumehood: {} bytes were cut here]\n", report.dropped);
        assert_eq!(out.len() as u64 + report.dropped, report.output + note.len() as u64);
        assert!(out.len() < 110_000 && report.dropped > 0);
        // Of each program anew.
        let (out, _, _) = to_end(&mut client.open(&Ask::Exec(exec(&["print", "50000"]))).unwrap()).await;
        assert_eq!(out.len(), 50_000);
        kill(&client).await;
    }
}

#[tokio::test]
async fn memory_that_the_kernel_counted_is_told_in_the_report_that_it_hit() {
    let layers = [sandbox::PolicyLayer::Set("limits.memory=64M".to_owned())];
    let environment = sandbox::Environment::new(Some("/".into()), BTreeMap::new(), 0);
    let policy = sandbox::load(&layers, &environment, sandbox::Inputs::Later).unwrap().policy;
    let live = live(With { policy: Some(Box::new(policy)), ..With::default() }).await;
    let client = live.client().await;
    for (kills, limit) in [(0, None), (1, Some("memory"))] {
        let mut stream = client.open(&Ask::Exec(exec(&["sleep"]))).unwrap();
        stream.reply().await.unwrap();
        live.run.kills.store(kills, Ordering::Relaxed);
        stream.control(&ProgramControl::Signal { number: 9, tree: false }).unwrap();
        let report = to_end(&mut stream).await.2;
        assert_eq!(report.limit.as_deref(), limit);
        let stopped: Vec<_> =
            report.violations.iter().map(|one| (one.id.as_str(), one.seen.as_str(), one.count)).collect();
        if limit.is_none() {
            assert!(stopped.is_empty());
            continue;
        }
        assert!(report.message.ends_with("(`limits.memory` is 64M, 64 MiB were used at most)"), "{}", report.message);
        assert_eq!(stopped, [("limits.memory/oom", "kernel", 1)]);
        let [stopped] = report.violations.as_slice() else { panic!("one") };
        assert!(stopped.why.contains("64M") && stopped.instead.contains("a larger `limits.memory`"), "{stopped:?}");
    }
    kill(&client).await;
}

#[tokio::test]
async fn logs_are_the_newest_of_what_was_printed_also_when_it_is_over() {
    let live = live(With::default()).await;
    let client = live.client().await;
    let mut stream = client.open(&Ask::Exec(Exec { detach: true, ..exec(&["print", "3000000"]) })).unwrap();
    stream.reply().await.unwrap();
    let which = Which::Id("p1".to_owned());
    let mut followed = client.open(&Ask::Logs { which: which.clone(), follow: true }).unwrap();
    to_end(&mut stream).await;
    while !matches!(followed.next().await.unwrap(), Incoming::End(Ok(Value::Null))) {}
    let mut logs = client.open(&Ask::Logs { which, follow: false }).unwrap();
    let mut kept = 0;
    while let Some(Incoming::Out(bytes)) = logs.next().await {
        kept += bytes.len();
    }
    assert_eq!(kept, 1 << 20);
    kill(&client).await;
}

#[tokio::test]
async fn two_hundred_streams_at_once_do_not_wait_for_one_another() {
    let live = live(With::default()).await;
    let client = live.client().await;
    let mut asleep = Vec::new();
    for _ in 0..200 {
        asleep.push(client.open(&Ask::Exec(exec(&["sleep"]))).unwrap());
    }
    for stream in &mut asleep {
        stream.reply().await.unwrap();
    }
    assert_eq!(programs(&client).await.len(), 200);
    assert_eq!(client.call::<Entry>(&Request::Stat { path: "/a".to_owned(), follow: false }).await.unwrap().size, 3);
    let nothing = client.call::<Entry>(&Request::Stat { path: "/b".to_owned(), follow: false }).await;
    assert_eq!(code(nothing.unwrap_err()), Code::NotFound);
    kill(&client).await;
    for mut stream in asleep {
        let report = to_end(&mut stream).await.2;
        assert!(report.message.contains("ended with its sandbox"), "{}", report.message);
    }
}

#[tokio::test]
async fn bytes_go_both_ways_through_a_port_and_its_end_ends_it() {
    let live = live(With::default()).await;
    let client = live.client().await;
    let mut port = client.open(&Request::Port { port: 80 }).unwrap();
    port.reply().await.unwrap();
    for _ in 0..30 {
        port.send(&[b'x'; 40_000]).await.unwrap();
        let mut got = 0;
        while got < 40_000 {
            let Some(Incoming::Out(bytes)) = port.next().await else { panic!("no echo") };
            got += bytes.len();
        }
    }
    port.eof().unwrap();
    assert!(matches!(port.next().await, Some(Incoming::End(Ok(_)))));
    kill(&client).await;
}

#[tokio::test]
async fn a_sandbox_without_a_network_of_its_own_has_no_ports() {
    let live = live(With { tier: Some("process"), ..With::default() }).await;
    let client = live.client().await;
    let refused = client.call::<Value>(&Request::Port { port: 80 }).await.unwrap_err();
    assert!(refused.to_string().contains("no network of its own"), "{refused}");
    assert_eq!(code(refused), Code::Unsupported);
    kill(&client).await;
}

#[tokio::test]
async fn what_only_the_supervisor_may_ask_an_agent_nobody_else_may() {
    let live = live(With::default()).await;
    let client = live.client().await;
    let start = Request::Start(exec(&["exit", "0"]).program);
    for request in [start, Request::Hello { version: 1 }] {
        assert_eq!(code(client.call::<Value>(&request).await.unwrap_err()), Code::Invalid);
    }
    let odd = client.call::<Value>(&serde_json::json!({ "op": "fly" })).await;
    assert_eq!(code(odd.unwrap_err()), Code::Invalid);
    kill(&client).await;
}
