//! What GW-18 asks for, against the real store: several openings of one file, as processes have them. A gateway that is
//! killed while a call waits is in `sdk/python/tests/test_gateway.py`.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use policy::tools::Approval;
use serde_json::{Value as Json, json};

use super::*;

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o700)).tempdir().unwrap()
}

fn ask(args: Json) -> Ask {
    Ask {
        tool: "mail.send".into(),
        server: Some("mail".into()),
        hash: format!(
            "{:x}",
            <sha2::Sha256 as sha2::Digest>::digest(args.to_string()).iter().map(|b| u64::from(*b)).sum::<u64>()
        ) + &args.to_string(),
        args,
        rule: "tools.tool[0]".into(),
        reason: "a mail leaves the house".into(),
        agent: "local".into(),
        session: "s1".into(),
        approval: Approval::Never,
        by: policy::tools::ApprovalBy::Person,
    }
}

/// Longer than any answer here takes, on a machine that does other things as well.
fn soon() -> Duration {
    Duration::from_secs(60)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn remember(args: Wide, holder: Holder) -> Remember {
    Remember { args, holder, millis: None }
}

/// The best of several: a busy machine keeps anybody waiting, but a store that looks too seldom is never in time.
#[test]
fn an_answer_is_noticed_within_fifty_milliseconds() {
    let dir = folder();
    let (asking, answering) = (Approvals::open(dir.path()).unwrap(), Approvals::open(dir.path()).unwrap());
    let (most, end) = (Duration::from_millis(50), Instant::now() + soon());
    let mut round = 0;
    runtime().block_on(async {
        let mut took = Duration::MAX;
        while took >= most && Instant::now() < end {
            round += 1;
            let parked = asking.ask(&ask(json!({ "round": round }))).unwrap();
            let id = parked.id().to_owned();
            let waiting = tokio::spawn(async move { (parked.wait(soon()).await, Instant::now()) });
            tokio::time::sleep(Duration::from_millis(200)).await;
            let answering = answering.clone();
            let said = tokio::task::spawn_blocking(move || {
                answering.approve(&id, "alice", None).unwrap();
                Instant::now()
            })
            .await
            .unwrap();
            let (answer, heard) = waiting.await.unwrap();
            assert!(
                matches!(answer, ApprovalAnswer::Approved { ref by, remembered: None, .. } if by == "alice"),
                "{answer:?}"
            );
            took = took.min(heard.saturating_duration_since(said));
        }
        assert!(took < most, "of {round} answers the first was noticed after {took:?}");
    });
}

#[test]
fn nobody_answers_and_the_call_is_denied() {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let answer = runtime().block_on(approvals.ask(&ask(json!({}))).unwrap().wait(Duration::from_millis(80)));
    let ApprovalAnswer::TimedOut { id } = answer else { panic!("{answer:?}") };
    let late = approvals.approve(&id, "alice", None);
    assert!(matches!(late, Err(AnswerError::Over { state: State::TimedOut, .. })), "{late:?}");
    assert_eq!(approvals.get(&id).unwrap().unwrap().state, State::TimedOut);
}

#[test]
fn of_an_approval_and_a_time_out_exactly_one_wins_and_the_loser_is_told() {
    let dir = folder();
    let approvals =
        Approvals::open_with(dir.path(), Settings { most_per_session: 1000, ..Settings::default() }).unwrap();
    let other = Approvals::open(dir.path()).unwrap();
    let (mut approved, mut late) = (0, 0);
    let end = Instant::now() + soon();
    for round in 0..900_u64 {
        // A busy machine may let one side win for long: it goes on until each has.
        if round >= 60 && approved > 0 && late > 0 || Instant::now() > end {
            break;
        }
        let parked = approvals.ask(&ask(json!({ "n": round }))).unwrap();
        let id = parked.id().to_owned();
        let barrier = Arc::new(Barrier::new(2));
        let answerer = {
            let (other, id, barrier) = (other.clone(), id.clone(), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                // Around the moment at which the waiter gives up; on a busy machine that is anywhere before or after it.
                let wide = if round < 60 { 15_000 + round * 300 } else { round % 16 * 4_000 };
                let until = Instant::now() + Duration::from_micros(wide);
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                other.approve(&id, "alice", None)
            })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        barrier.wait();
        let answer = runtime.block_on(parked.wait(Duration::from_millis(20)));
        let said = answerer.join().unwrap();
        match (&answer, &said) {
            (ApprovalAnswer::Approved { .. }, Ok(_)) => approved += 1,
            (ApprovalAnswer::TimedOut { .. }, Err(AnswerError::Over { state: State::TimedOut, .. })) => late += 1,
            odd => panic!("both or none won: {odd:?}"),
        }
        let row = approvals.get(&id).unwrap().unwrap();
        assert_eq!(row.used.is_some(), answer.is_approved());
    }
    assert!(approved > 0 && late > 0, "the race went both ways: {approved} approved, {late} timed out");
}

#[test]
fn an_approval_is_used_once_however_many_wait_for_it() {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let same = ask(json!({"to": "a"}));
    let parked = approvals.ask(&same).unwrap();
    let id = parked.id().to_owned();
    parked.leave().unwrap();
    approvals.approve(&id, "alice", None).unwrap();
    // Sixteen processes come back for it at once.
    let barrier = Arc::new(Barrier::new(16));
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let (approvals, same, barrier) = (Approvals::open(dir.path()).unwrap(), same.clone(), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                match approvals.ask(&same) {
                    Ok(parked) => parked.known().is_some_and(ApprovalAnswer::is_approved),
                    Err(_) => false,
                }
            })
        })
        .collect();
    let through = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|through| *through).count();
    assert_eq!(through, 1);
}

#[test]
fn an_approval_does_not_fit_another_call_session_agent_or_server() {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let good = ask(json!({"to": "a"}));
    let parked = approvals.ask(&good).unwrap();
    let id = parked.id().to_owned();
    parked.leave().unwrap();
    approvals.approve(&id, "alice", None).unwrap();
    let others = [
        Ask { session: "s2".into(), ..good.clone() },
        Ask { agent: "other".into(), ..good.clone() },
        Ask { server: Some("evil".into()), ..good.clone() },
        Ask { server: None, ..good.clone() },
        Ask { tool: "mail.delete".into(), ..good.clone() },
        ask(json!({"to": "b"})),
        // The fields run into each other only where nothing keeps them apart.
        Ask { agent: "locals".into(), session: "1".into(), ..good.clone() },
    ];
    for other in others {
        let parked = approvals.ask(&other).unwrap();
        assert_eq!(parked.known(), None, "{other:?}");
    }
    assert!(approvals.ask(&good).unwrap().known().is_some_and(ApprovalAnswer::is_approved));
}

#[test]
fn answers_to_guessed_ids_change_nothing() {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let parked = approvals.ask(&ask(json!({}))).unwrap();
    let id = parked.id().to_owned();
    let (short, bare) = (id.get(..id.len() - 1).unwrap(), id.get(2..).unwrap());
    let guesses = [short, bare, "", "a-", "%", "a-%", "' OR '1'='1", &id.to_uppercase(), &format!("{id} ")];
    for guess in guesses {
        assert!(matches!(approvals.approve(guess, "mallory", None), Err(AnswerError::Unknown { .. })), "{guess}");
        assert!(matches!(approvals.deny(guess, "mallory", ""), Err(AnswerError::Unknown { .. })), "{guess}");
    }
    assert_eq!(approvals.get(&id).unwrap().unwrap().state, State::Waiting);
    let ids: std::collections::BTreeSet<String> =
        (0..7).map(|n| approvals.ask(&ask(json!({ "n": n }))).unwrap().id().to_owned()).collect();
    assert_eq!(ids.len(), 7);
    assert!(ids.iter().all(|id| id.len() == 28), "130 bits each: {ids:?}");
}

#[test]
fn a_flood_is_denied_and_does_not_take_the_queue_from_others() {
    let dir = folder();
    let settings = Settings { most_per_session: 3, most_per_agent: 5, most_in_total: 7, ..Settings::default() };
    let approvals = Approvals::open_with(dir.path(), settings).unwrap();
    let from = |agent: &str, session: &str, n: u32| {
        approvals.ask(&Ask { agent: agent.into(), session: session.into(), ..ask(json!({ "n": n })) })
    };
    let mut kept = Vec::new();
    for n in 0..50 {
        match from("noisy", "one", n) {
            Ok(parked) => kept.push(parked),
            Err(why) => assert_eq!(why, ApprovalError::TooMany { whose: "this session", waiting: 3 }),
        }
    }
    assert_eq!(kept.len(), 3);
    // Hopping from session to session wins two more, and the rest of the queue stays free for another agent.
    kept.extend((0..50).filter_map(|n| from("noisy", &format!("hop{n}"), n).ok()));
    assert_eq!(kept.len(), 5);
    kept.push(from("quiet", "x", 0).unwrap());
    kept.push(from("quiet", "x", 1).unwrap());
    assert_eq!(from("third", "x", 0).unwrap_err(), ApprovalError::TooMany { whose: "all agents", waiting: 7 });
    assert_eq!(approvals.list(false).unwrap().len(), 7);
    drop(kept);
    assert!(approvals.list(false).unwrap().is_empty(), "calls whose callers went away wait no more");
}

#[test]
fn a_denial_answers_the_same_question_again_and_no_other() {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let parked = approvals.ask(&ask(json!({"to": "a"}))).unwrap();
    approvals.deny(parked.id(), "alice", "not to a").unwrap();
    let answer = runtime().block_on(parked.wait(soon()));
    assert!(matches!(answer, ApprovalAnswer::Denied { ref why, .. } if why == "not to a"), "{answer:?}");
    let again = approvals.ask(&ask(json!({"to": "a"}))).unwrap_err();
    assert!(matches!(again, ApprovalError::DeniedBefore { ref by, .. } if by == "alice"), "{again:?}");
    assert_eq!(again.denial("r").id, "tools.approval/denied-before");
    assert_eq!(approvals.ask(&ask(json!({"to": "b"}))).unwrap().known(), None);
}

#[test]
fn what_waits_survives_a_restart_and_is_answered_after_it() {
    let dir = folder();
    let id = {
        let approvals = Approvals::open(dir.path()).unwrap();
        let parked = approvals.ask(&ask(json!({"to": "a"}))).unwrap();
        let id = parked.id().to_owned();
        // As after a kill: nothing was taken back, and whoever waited is gone.
        parked.leave().unwrap();
        id
    };
    let approvals = Approvals::open(dir.path()).unwrap();
    let waiting = approvals.list(false).unwrap();
    assert_eq!(waiting.iter().map(|call| call.id.as_str()).collect::<Vec<_>>(), [id.as_str()]);
    // The caller comes back before the answer: it waits for the same question, and no second one is asked.
    let parked = approvals.ask(&ask(json!({"to": "a"}))).unwrap();
    assert_eq!(parked.id(), id);
    approvals.approve(&id, "alice", None).unwrap();
    assert!(runtime().block_on(parked.wait(soon())).is_approved());
    assert_eq!(approvals.ask(&ask(json!({"to": "a"}))).unwrap().known(), None, "and it was good for one call");
}

#[test]
fn a_memory_covers_what_was_shown_and_nothing_beside_it() {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let shown = json!({"to": "a@company.com", "subject": "hello", "body": "x"});
    let parked = approvals.ask(&ask(shown.clone())).unwrap();
    let wide = remember(Wide::But(vec!["body".into()]), Holder::Agent);
    approvals.approve(parked.id(), "alice", Some(&wide)).unwrap();
    assert!(runtime().block_on(parked.wait(soon())).is_approved());
    let covered = |ask: &Ask| {
        let known = approvals.ask(ask).unwrap().known().cloned();
        matches!(known, Some(ApprovalAnswer::Approved { remembered: Some(_), .. }))
    };
    let other = |args: Json| ask(args);
    assert!(covered(&other(json!({"body": "anything", "subject": "hello", "to": "a@company.com"}))));
    assert!(covered(&Ask { session: "s9".into(), ..ask(shown.clone()) }), "the agent's other sessions");
    let not = [
        json!({"to": "a@company.com.evil", "subject": "hello", "body": "x"}),
        json!({"to": "a@company.com", "subject": "hello"}),
        json!({"to": "a@company.com", "subject": "hello", "body": "x", "bcc": "e@evil"}),
        json!({"to": ["a@company.com"], "subject": "hello", "body": "x"}),
        json!({"To": "a@company.com", "subject": "hello", "body": "x"}),
    ];
    for args in not {
        assert!(!covered(&ask(args.clone())), "{args}");
    }
    assert!(!covered(&Ask { agent: "other".into(), ..ask(shown.clone()) }));
    assert!(!covered(&Ask { tool: "mail.sends".into(), ..ask(shown.clone()) }));
    assert!(!covered(&Ask { approval: Approval::Always, ..ask(shown.clone()) }), "always means always");
    let memory = approvals.memories(false).unwrap().remove(0);
    assert_eq!(memory.uses, 2);
    assert_eq!(
        memory.to_json()["args"],
        json!({"to": {"is": "a@company.com"}, "subject": {"is": "hello"}, "body": "any"})
    );
    assert!(approvals.revoke(&memory.id, "alice").unwrap());
    assert!(!approvals.revoke(&memory.id, "alice").unwrap(), "once is enough");
    assert!(!covered(&ask(shown)), "revoked");
    assert!(approvals.memories(false).unwrap().is_empty());
    assert_eq!(approvals.memories(true).unwrap().len(), 1);
}

#[test]
fn a_memory_ends_with_its_session_its_time_and_its_policy() {
    static NOW: AtomicU64 = AtomicU64::new(1_000_000);
    fn clock() -> u64 {
        NOW.load(Ordering::Relaxed)
    }
    let dir = folder();
    let open = |bound_to: &str| {
        let settings = Settings { clock, bound_to: bound_to.to_owned(), ..Settings::default() };
        Approvals::open_with(dir.path(), settings).unwrap()
    };
    let approvals = open("policy-1 /work");
    let parked = approvals.ask(&ask(json!({"to": "a"}))).unwrap();
    approvals.approve(parked.id(), "alice", Some(&remember(Wide::Any, Holder::Session))).unwrap();
    drop(parked);
    let covers = |approvals: &Approvals, ask: &Ask| approvals.remembered(ask).unwrap().is_some();
    assert!(covers(&approvals, &ask(json!({"to": "b"}))));
    assert!(!covers(&approvals, &Ask { session: "s2".into(), ..ask(json!({"to": "b"})) }));
    assert!(!covers(&open("policy-2 /work"), &ask(json!({"to": "b"}))), "the policy changed");
    NOW.fetch_add(3_599_999, Ordering::Relaxed);
    assert!(covers(&approvals, &ask(json!({"to": "b"}))));
    NOW.fetch_add(1, Ordering::Relaxed);
    assert!(!covers(&approvals, &ask(json!({"to": "b"}))), "its time is over");
}

#[test]
fn the_first_call_of_a_session_answers_for_the_same_call_only() {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let first = Ask { approval: Approval::First, ..ask(json!({"to": "a"})) };
    let parked = approvals.ask(&first).unwrap();
    approvals.approve(parked.id(), "alice", None).unwrap();
    assert!(runtime().block_on(parked.wait(soon())).is_approved());
    assert!(approvals.ask(&first).unwrap().known().is_some_and(ApprovalAnswer::is_approved));
    assert_eq!(approvals.ask(&Ask { session: "s2".into(), ..first }).unwrap().known(), None);
    assert_eq!(approvals.ask(&Ask { approval: Approval::First, ..ask(json!({"to": "b"})) }).unwrap().known(), None);
}

#[test]
fn a_destination_is_remembered_by_its_host_and_port_and_never_wider() {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let to = |host: &str, session: &str| {
        let args = json!({"host": host, "port": 443});
        let hash = gate::json::hash(DESTINATION, &args);
        let (tool, session) = (DESTINATION.to_owned(), session.to_owned());
        Ask { tool, server: None, hash, session, approval: Approval::Never, ..ask(args) }
    };
    let parked = approvals.ask(&to("a.test", "s1")).unwrap();
    let call = parked.call().unwrap().clone();
    assert_eq!((&call.to_json()["host"], &call.to_json()["port"]), (&json!("a.test"), &json!(443)));
    for wide in [remember(Wide::Any, Holder::Agent), remember(Wide::But(vec!["host".to_owned()]), Holder::Agent)] {
        assert!(matches!(approvals.approve(&call.id, "me", Some(&wide)), Err(AnswerError::Remember { .. })));
    }
    approvals.approve(&call.id, "me", Some(&remember(Wide::Any, Holder::Session))).unwrap();
    assert!(runtime().block_on(parked.wait(soon())).is_approved());
    let known = |ask: &Ask| approvals.remembered(ask).unwrap().is_some();
    assert!(known(&to("a.test", "s1")), "this host in this run");
    assert!(!known(&to("b.test", "s1")) && !known(&to("a.test", "s2")));
}

/// `session` of a run's network is for the run, however long it lasts; with a time it is for that time, and of a tool for an hour.
#[test]
fn what_is_remembered_for_a_run_lasts_until_the_run_ends() {
    static NOW: AtomicU64 = AtomicU64::new(1_000_000);
    const HOUR: u64 = 3_600_000;
    fn clock() -> u64 {
        NOW.load(Ordering::Relaxed)
    }
    let dir = folder();
    let settings = Settings { clock, ..Settings::default() };
    let approvals = Approvals::open_with(dir.path(), settings).unwrap();
    let to = |host: &str| {
        let args = json!({"host": host, "port": 443});
        let hash = gate::json::hash(DESTINATION, &args);
        Ask { tool: DESTINATION.to_owned(), server: None, hash, session: "r-1".to_owned(), ..ask(args) }
    };
    let tool = || Ask { session: "r-1".to_owned(), ..ask(json!({"to": "a"})) };
    let session = remember(Wide::Any, Holder::Session);
    let timed = Remember { millis: Some(2 * HOUR), ..session.clone() };
    for (asked, what) in [(to("a.test"), &session), (to("b.test"), &timed), (tool(), &session)] {
        let parked = approvals.ask(&asked).unwrap();
        approvals.approve(parked.id(), "alice", Some(what)).unwrap();
    }
    let known = || [to("a.test"), to("b.test"), tool()].map(|ask| approvals.remembered(&ask).unwrap().is_some());
    let lasting = || approvals.memories(false).unwrap().iter().filter(|one| one.lasts_with_its_run()).count();
    assert_eq!((known(), lasting()), ([true, true, true], 1));
    NOW.fetch_add(HOUR, Ordering::Relaxed);
    assert_eq!(known(), [true, true, false]);
    NOW.fetch_add(9 * HOUR, Ordering::Relaxed);
    assert_eq!(known(), [true, false, false]);
    approvals.withdraw("r-2").unwrap();
    assert_eq!(known(), [true, false, false], "another run's end");
    approvals.withdraw("r-1").unwrap();
    assert_eq!((known(), approvals.memories(false).unwrap().len()), ([false; 3], 0));
}

#[test]
fn what_cannot_be_remembered_is_not_approved_either() {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let parked = approvals.ask(&ask(json!({"to": "a"}))).unwrap();
    let odd = [
        remember(Wide::But(vec!["bcc".into()]), Holder::Agent),
        Remember { args: Wide::Any, holder: Holder::Agent, millis: Some(MAX_MEMORY_MS + 1) },
        Remember { args: Wide::Any, holder: Holder::Agent, millis: Some(0) },
    ];
    for remember in odd {
        let said = approvals.approve(parked.id(), "alice", Some(&remember));
        assert!(matches!(said, Err(AnswerError::Remember { .. })), "{said:?}");
        assert_eq!(approvals.get(parked.id()).unwrap().unwrap().state, State::Waiting);
    }
    assert!(approvals.memories(true).unwrap().is_empty());
}

#[test]
fn more_than_a_person_reads_is_not_asked_about() {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let long = "x".repeat(300 << 10);
    let said = approvals.ask(&ask(json!({ "body": long }))).unwrap_err();
    assert!(matches!(said, ApprovalError::TooLarge { .. }), "{said:?}");
}

#[test]
fn a_folder_that_others_may_enter_and_a_file_of_another_kind_are_refused() {
    let dir = folder();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(Approvals::open(dir.path()), Err(StoreError::Folder { .. })));
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(dir.path().join("approvals.db"), "not a database, but long enough to be read as one".repeat(50))
        .unwrap();
    assert!(matches!(Approvals::open(dir.path()), Err(StoreError::File { .. })));
    std::fs::remove_file(dir.path().join("approvals.db")).unwrap();
    std::os::unix::fs::symlink("/tmp/elsewhere", dir.path().join("approvals.db")).unwrap();
    assert!(matches!(Approvals::open(dir.path()), Err(StoreError::File { .. })));
    std::fs::remove_file(dir.path().join("approvals.db")).unwrap();
    let approvals = Approvals::open(dir.path()).unwrap();
    drop(approvals);
    let mode = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("approvals.db"), mode("approvals.bell")), (0o600, 0o600));
}

#[test]
fn askers_are_told_of_their_sessions_calls_and_may_answer() {
    #[derive(Debug)]
    struct Says(AtomicU64);
    impl Asker for Says {
        fn asked<'a>(
            &'a self,
            call: &'a ParkedCall,
            approvals: &'a Approvals,
        ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
            Box::pin(async move {
                self.0.fetch_add(1, Ordering::Relaxed);
                approvals.approve(&call.id, "client", None).unwrap();
            })
        }
    }
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let asker = Arc::new(Says(AtomicU64::new(0)));
    let listening = approvals.listen(Some("s1"), Arc::clone(&asker) as Arc<dyn Asker>);
    let call = |ask: Ask, time| runtime().block_on(approvals.ask(&ask).unwrap().wait(time));
    let short = Duration::from_millis(150);
    assert!(call(ask(json!({"n": 1})), soon()).is_approved());
    assert!(matches!(
        call(Ask { session: "s2".into(), ..ask(json!({"n": 2})) }, short),
        ApprovalAnswer::TimedOut { .. }
    ));
    drop(listening);
    assert!(matches!(call(ask(json!({"n": 3})), short), ApprovalAnswer::TimedOut { .. }));
    assert_eq!(asker.0.load(Ordering::Relaxed), 1);
}

#[test]
fn what_a_session_asked_is_taken_back_when_it_ends_and_what_another_asked_waits() {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let parked: Vec<_> = ["s1", "s1", "s2"]
        .iter()
        .enumerate()
        .map(|(n, session)| approvals.ask(&Ask { session: (*session).into(), ..ask(json!({ "n": n })) }).unwrap())
        .collect();
    approvals.approve(parked[1].id(), "alice", None).unwrap();
    approvals.withdraw("s1").unwrap();
    let state = |at: usize| approvals.get(parked[at].id()).unwrap().unwrap().state;
    assert_eq!([0, 1, 2].map(state), [State::Cancelled, State::Cancelled, State::Waiting]);
    assert!(matches!(approvals.approve(parked[0].id(), "alice", None), Err(AnswerError::Over { .. })));
}
