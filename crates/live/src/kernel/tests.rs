//! The manager over programs that are none: kernels that answer by a script, also those that break every rule.

use std::sync::atomic::AtomicUsize;

use serde_json::json;
use tokio::time::{Instant, timeout};

use super::*;
use crate::words::Exec;

/// Kernels whose code is what they do.
#[derive(Debug, Default)]
struct Fake {
    started: AtomicUsize,
    living: Arc<AtomicUsize>,
    /// Said in place of `ready`.
    first: Option<Value>,
}

impl Programs for Fake {
    fn start(&self, exec: Exec) -> Starting<'_> {
        assert_eq!(exec.tag.as_deref(), Some(SYSTEM_TAG));
        assert!(exec.program.stdin && !exec.detach);
        Box::pin(async move {
            if exec.program.cwd.as_deref() == Some("/none") {
                return Err(Failure::new(Code::NoCwd, "/none is not there".to_owned()));
            }
            let lists = exec.program.argv.last().is_some_and(|word| word.starts_with("--list"));
            self.started.fetch_add(usize::from(!lists), Ordering::Relaxed);
            let (input, to_kernel) = mpsc::channel(8);
            let (said, output) = mpsc::channel(8);
            let usual = if lists {
                json!({"languages": ["bash", "javascript", "python"]})
            } else {
                json!({"ready": {"pid": 7}})
            };
            let first = self.first.clone().unwrap_or(usual);
            let living = Arc::clone(&self.living);
            living.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let closed = said.clone();
                tokio::select! {
                    () = closed.closed() => {}
                    _ = kernel(first, to_kernel, said) => {}
                }
                living.fetch_sub(1, Ordering::Relaxed);
            });
            Ok(Process { input, output })
        })
    }
}

type Gone = mpsc::error::SendError<ProgramOutput>;

async fn say(to: &mpsc::Sender<ProgramOutput>, value: &Value) -> Result<(), Gone> {
    to.send(ProgramOutput::Out(format!("{value}\n").into_bytes())).await
}

async fn kernel(first: Value, mut from: mpsc::Receiver<Vec<u8>>, to: mpsc::Sender<ProgramOutput>) -> Result<(), Gone> {
    say(&to, &first).await?;
    let mut count = 0;
    while let Some(bytes) = from.recv().await {
        let asked: Value = serde_json::from_slice(&bytes).unwrap();
        if asked["op"] != "send" {
            continue;
        }
        let id = asked["message"]["header"]["msg_id"].as_str().unwrap().to_owned();
        let message = |kind: &str, content: Value| {
            json!({"message": {"channel": "iopub", "header": {"msg_type": kind}, "parent_header": {"msg_id": id},
                "content": content}})
        };
        let code = asked["message"]["content"]["code"].as_str().unwrap().to_owned();
        say(&to, &message("status", json!({"execution_state": "busy"}))).await?;
        if asked["message"]["content"]["silent"] != true {
            count += 1;
            say(&to, &message("execute_input", json!({"execution_count": count}))).await?;
            match code.split_once(' ').unwrap_or((&code, "")) {
                ("hang", _) => {
                    from.recv().await;
                    say(&to, &message("error", json!({"ename": "KeyboardInterrupt", "evalue": "", "traceback": []})))
                        .await?;
                }
                ("stubborn", _) => {
                    from.recv().await;
                    from.recv().await;
                }
                ("deaf", _) => std::future::pending().await,
                ("reply", _) => {
                    let session = &asked["message"]["header"]["session"];
                    let reply = json!({"message": {"channel": "shell", "header": {"msg_type": "execute_reply"},
                        "parent_header": {"msg_id": id, "session": session}, "content": {"status": "ok"}}});
                    say(&to, &reply).await?;
                }
                ("die", _) => return say(&to, &json!({"dead": {"code": -9}})).await,
                ("vanish", _) => return to.send(ProgramOutput::Ended("signal 9 ended the program".to_owned())).await,
                ("garbage", what) => to.send(ProgramOutput::Out(format!("{what}\n").into_bytes())).await?,
                ("endless", _) => loop {
                    to.send(ProgramOutput::Out(vec![b'x'; 60_000])).await?;
                },
                ("flood", _) => {
                    for _ in 0..100 {
                        say(&to, &message("stream", json!({"name": "stdout", "text": "x".repeat(10_000)}))).await?;
                    }
                }
                ("others", _) => {
                    let mut other = message("status", json!({"execution_state": "idle"}));
                    other["message"]["parent_header"]["msg_id"] = json!("another");
                    say(&to, &other).await?;
                    say(&to, &message("comm_open", json!({"x": [1]}))).await?;
                    say(&to, &json!({"ready": {}})).await?;
                }
                ("exit", _) => {
                    say(&to, &message("status", json!({"execution_state": "idle"}))).await?;
                    return say(&to, &json!({"dead": {"code": 0}})).await;
                }
                _ => {}
            }
            say(&to, &message("stream", json!({"name": "stdout", "text": code}))).await?;
        }
        say(&to, &message("status", json!({"execution_state": "idle"}))).await?;
    }
    Ok(())
}

fn quick() -> Settings {
    let ms = Duration::from_millis;
    Settings {
        output: 100_000,
        start: ms(5000),
        grace: ms(300),
        keepalive: ms(100),
        patience: ms(500),
        ..Settings::default()
    }
}

fn manager() -> (Manager, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    (Manager::new(Arc::clone(&fake) as Arc<dyn Programs>, quick()), fake)
}

fn code(code: &str) -> Execute {
    Execute { code: code.to_owned(), ..Execute::default() }
}

async fn lines(mut execution: Execution) -> (Vec<Value>, Result<Executed, Failure>) {
    let mut lines = Vec::new();
    let all = async {
        while let Some(line) = execution.next().await {
            assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
            lines.push(serde_json::from_slice::<Value>(&line).unwrap());
        }
        execution.end().await
    };
    let ended = timeout(Duration::from_secs(20), all).await.expect("no end");
    if ended.is_ok() {
        assert_eq!(lines.pop().unwrap(), json!({"type": "end_of_execution"}));
    }
    lines.retain(|line| line["type"] != "keepalive");
    (lines, ended)
}

async fn run(manager: &Manager, ask: Execute) -> (Vec<Value>, Result<Executed, Failure>) {
    lines(manager.execute(ask).await.unwrap()).await
}

fn error_of(lines: &[Value]) -> &str {
    lines.iter().find(|line| line["type"] == "error").map_or("", |line| line["name"].as_str().unwrap())
}

#[tokio::test]
async fn the_first_execution_makes_the_default_context_and_the_next_one_finds_it() {
    let (manager, fake) = manager();
    let (first, ended) = run(&manager, code("a")).await;
    assert_eq!(first[0], json!({"type": "number_of_executions", "execution_count": 1}));
    assert_eq!(first[1]["text"], "a");
    assert_eq!(first.len(), 2);
    let (second, _) = run(&manager, Execute { language: Some("Python".to_owned()), ..code("b") }).await;
    assert_eq!(second[0]["execution_count"], 2);
    let contexts = manager.list().contexts;
    assert_eq!(contexts.len(), 1);
    assert_eq!((contexts[0].language.as_str(), contexts[0].default), ("python", true));
    assert_eq!((ended.unwrap().context, contexts[0].id.len()), (contexts[0].id.clone(), 32));
    assert_eq!(fake.started.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn many_at_once_make_one_default_context_and_are_executed_one_after_the_other() {
    let (manager, fake) = manager();
    let all: Vec<_> = (0..20)
        .map(|n| {
            let manager = manager.clone();
            tokio::spawn(async move { run(&manager, code(&format!("n{n}"))).await })
        })
        .collect();
    let mut numbers = Vec::new();
    for one in all {
        let (lines, _) = one.await.unwrap();
        assert_eq!(lines.len(), 2, "nothing of another execution: {lines:?}");
        numbers.push(lines[0]["execution_count"].as_u64().unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=20).collect::<Vec<_>>());
    assert_eq!(fake.started.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_queue_has_an_end() {
    let (manager, _) = manager();
    let context = manager.create(NewContext::default()).await.unwrap();
    let ask = |text: &str| Execute { context: Some(context.id.clone()), ..code(text) };
    let hanging = manager.execute(ask("hang")).await.unwrap();
    let mut waiting = Vec::new();
    let refused = loop {
        match manager.execute(ask("x")).await {
            Ok(execution) => waiting.push(execution),
            Err(refused) => break refused,
        }
        assert!(waiting.len() <= MAX_QUEUED + 1);
    };
    assert_eq!(refused.code, Code::TooMany);
    drop(hanging);
    for execution in waiting {
        assert_eq!(lines(execution).await.0.len(), 2);
    }
}

#[tokio::test]
async fn who_goes_away_interrupts_and_the_kernel_lives_on() {
    let (manager, fake) = manager();
    let mut hanging = manager.execute(code("hang")).await.unwrap();
    hanging.next().await.unwrap();
    assert!(manager.list().contexts[0].busy);
    drop(hanging);
    let (lines, ended) = run(&manager, code("a")).await;
    assert_eq!(lines[0]["execution_count"], 2, "the same kernel");
    assert!(!ended.unwrap().restarted);
    assert_eq!(fake.started.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_interrupt_ends_the_code_and_not_the_kernel() {
    let (manager, fake) = manager();
    let mut hanging = manager.execute(code("hang")).await.unwrap();
    hanging.next().await.unwrap();
    let id = manager.list().contexts[0].id.clone();
    manager.interrupt(&id).await.unwrap();
    let (found, _) = lines(hanging).await;
    assert_eq!(error_of(&found), "KeyboardInterrupt");
    assert_eq!(fake.started.load(Ordering::Relaxed), 1);
    assert_eq!(manager.interrupt("none").await.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn a_timeout_interrupts_and_one_that_is_not_heeded_ends_the_kernel() {
    let (manager, fake) = manager();
    let (found, _) = run(&manager, Execute { timeout_ms: Some(50), ..code("hang") }).await;
    assert_eq!(error_of(&found), "TimeoutError");
    assert_eq!(fake.started.load(Ordering::Relaxed), 1);
    let began = Instant::now();
    let (found, _) = run(&manager, Execute { timeout_ms: Some(50), ..code("deaf") }).await;
    assert_eq!(error_of(&found), "TimeoutError");
    assert!(began.elapsed() < Duration::from_secs(3));
    let (found, ended) = run(&manager, code("a")).await;
    assert!(found[0]["text"].as_str().unwrap().contains("did not heed an interrupt"), "{found:?}");
    assert_eq!(found[1]["execution_count"], 1, "a new kernel");
    assert!(ended.unwrap().restarted);
    assert_eq!((fake.started.load(Ordering::Relaxed), fake.living.load(Ordering::Relaxed)), (2, 1));
}

#[tokio::test]
async fn silence_is_broken_by_keepalive() {
    let (manager, _) = manager();
    let mut hanging = manager.execute(code("hang")).await.unwrap();
    hanging.next().await.unwrap();
    assert_eq!(hanging.next().await.unwrap(), b"{\"type\":\"keepalive\"}\n");
    assert_eq!(hanging.next().await.unwrap(), b"{\"type\":\"keepalive\"}\n");
}

#[tokio::test]
async fn a_kernel_that_dies_is_told_of_and_the_next_execution_has_a_new_one() {
    let (manager, fake) = manager();
    for (how, said) in [
        ("die", "signal 9 ended it"),
        ("vanish", "signal 9 ended the program"),
        ("garbage {\"type\":", "what is no message"),
        ("garbage {\"message\":{}}", "what is no message"),
        ("garbage \u{0}\u{1}", "what is no message"),
        ("endless", "no end"),
    ] {
        let (found, _) = run(&manager, code(how)).await;
        assert_eq!(error_of(&found), "UnexpectedEndOfExecution", "{how}");
        let value = found.last().unwrap()["value"].as_str().unwrap().to_owned();
        assert!(value.contains(said), "{how}: {value}");
        let (found, ended) = run(&manager, code("a")).await;
        assert!(found[0]["text"].as_str().unwrap().contains("this is a new one"), "{how}");
        assert!(ended.unwrap().restarted);
        let (found, ended) = run(&manager, code("a")).await;
        assert_eq!((found.len(), ended.unwrap().restarted), (2, false), "told once");
    }
    assert_eq!(fake.living.load(Ordering::Relaxed), 1, "none is left behind");
}

#[tokio::test]
async fn code_that_leaves_the_kernel_is_no_failure_but_the_next_execution_says_so() {
    let (manager, _) = manager();
    let (found, _) = run(&manager, code("exit")).await;
    assert_eq!(error_of(&found), "");
    let (found, ended) = run(&manager, code("a")).await;
    assert!(found[0]["text"].as_str().unwrap().contains("it exited with 0"), "{found:?}");
    assert!(ended.unwrap().restarted);
}

#[tokio::test]
async fn what_belongs_to_nobody_is_not_given_to_anybody() {
    let (manager, _) = manager();
    let (found, _) = run(&manager, code("others")).await;
    assert_eq!(found.len(), 2, "{found:?}");
}

#[tokio::test]
async fn output_has_a_limit_and_its_excess_is_counted() {
    let (manager, _) = manager();
    let (found, ended) = run(&manager, code("flood")).await;
    let given: usize = found.iter().map(|line| line.to_string().len()).sum();
    assert!((80_000..120_000).contains(&given), "{given}");
    let truncated = ended.unwrap().truncated;
    assert!((900_000..1_010_000).contains(&truncated), "{truncated}");
    let notes = found.iter().filter(|line| line["type"] == "stderr").count();
    assert_eq!(notes, 1);
    // The next one has its own.
    assert_eq!(run(&manager, code("a")).await.1.unwrap().truncated, 0);
}

#[tokio::test]
async fn who_does_not_read_holds_up_the_kernel_and_not_the_others() {
    let (manager, _) = manager();
    let slow = manager.execute(code("flood")).await.unwrap();
    let other = manager.create(NewContext::default()).await.unwrap();
    let (found, _) = run(&manager, Execute { context: Some(other.id), ..code("a") }).await;
    assert_eq!(found.len(), 2);
    assert!(lines(slow).await.1.unwrap().truncated > 0);
}

#[tokio::test]
async fn a_restart_ends_what_runs_and_keeps_the_id_and_a_removal_ends_everything() {
    let (manager, fake) = manager();
    let context = manager.create(NewContext::default()).await.unwrap();
    let ask = |text: &str| Execute { context: Some(context.id.clone()), ..code(text) };
    for how in ["hang", "deaf"] {
        let mut running = manager.execute(ask(how)).await.unwrap();
        running.next().await.unwrap();
        assert_eq!(manager.restart(&context.id).await.unwrap().id, context.id);
        assert_eq!(error_of(&lines(running).await.0), "ContextRestarting");
        let (found, ended) = run(&manager, ask("a")).await;
        assert_eq!((found[0]["execution_count"].as_u64(), ended.unwrap().restarted), (Some(1), false));
    }
    let mut running = manager.execute(ask("deaf")).await.unwrap();
    running.next().await.unwrap();
    let waiting = manager.execute(ask("a")).await.unwrap();
    manager.remove(&context.id).unwrap();
    assert_eq!(error_of(&lines(running).await.0), "UnexpectedEndOfExecution");
    assert_eq!(lines(waiting).await.1.unwrap_err().code, Code::Cancelled);
    assert_eq!(manager.remove(&context.id).unwrap_err().code, Code::NotFound);
    assert_eq!(manager.execute(ask("a")).await.unwrap_err().message, format!("Context {} not found", context.id));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fake.living.load(Ordering::Relaxed), 0, "its kernel is ended");
}

#[tokio::test]
async fn variables_of_one_execution_are_set_before_and_put_back_after() {
    let (manager, _) = manager();
    let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
    let (found, _) = run(&manager, Execute { env: env.clone(), ..code("a") }).await;
    assert_eq!(found.len(), 2, "what is around it is not seen: {found:?}");
    let bad = BTreeMap::from([("A;".to_owned(), "1".to_owned())]);
    assert_eq!(manager.execute(Execute { env: bad, ..code("a") }).await.unwrap_err().code, Code::Invalid);
}

#[tokio::test]
async fn a_sandbox_without_kernels_says_what_is_missing() {
    for (first, kind, said) in [
        (json!({"missing": {"what": "ipykernel"}}), Code::Unsupported, "it has no ipykernel"),
        (json!({"failed": "no sockets\nfs.sockets = \"own\""}), Code::Failed, "fs.sockets"),
        (json!({"dead": {"code": 1}}), Code::Failed, "did not say that it is ready"),
    ] {
        let fake = Arc::new(Fake { first: Some(first), ..Fake::default() });
        let manager = Manager::new(Arc::clone(&fake) as Arc<dyn Programs>, quick());
        let failure = manager.execute(code("1")).await.unwrap_err();
        assert_eq!(failure.code, kind);
        assert!(failure.message.contains(said) && !failure.message.contains('\n'), "{failure}");
        assert!(manager.list().contexts.is_empty());
    }
    let (manager, fake) = manager();
    let failure =
        manager.create(NewContext { cwd: Some("/none".to_owned()), ..NewContext::default() }).await.unwrap_err();
    assert_eq!(failure.code, Code::NoCwd);
    assert_eq!(fake.started.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn contexts_have_a_most_and_failed_ones_do_not_count() {
    let (manager, _) = manager();
    for _ in 0..3 {
        assert!(manager.create(NewContext { cwd: Some("/none".to_owned()), ..NewContext::default() }).await.is_err());
    }
    for _ in 0..MAX_CONTEXTS {
        manager.create(NewContext::default()).await.unwrap();
    }
    assert_eq!(manager.create(NewContext::default()).await.unwrap_err().code, Code::TooMany);
    let both = Execute { context: Some("x".to_owned()), language: Some("python".to_owned()), ..code("1") };
    assert_eq!(manager.execute(both).await.unwrap_err().code, Code::Invalid);
}

#[tokio::test]
async fn asks_are_answered_as_words_and_lines() {
    let (manager, _) = manager();
    let ask = |value: Value| serde_json::from_value::<KernelAsk>(value).unwrap();
    let all = async |asked: KernelAsk| {
        let (to, mut answers) = mpsc::channel(1);
        let task = tokio::spawn({
            let manager = manager.clone();
            async move { manager.answer(asked, mpsc::unbounded_channel().1, to).await }
        });
        let mut data = Vec::new();
        while let Some(answer) = answers.recv().await {
            match answer {
                KernelReply::Data(bytes) => data.extend(bytes),
                KernelReply::Taken(_) => panic!("nothing was said"),
                KernelReply::End(end) => return (String::from_utf8(data).unwrap(), end),
            }
        }
        task.await.unwrap();
        panic!("no end");
    };
    let (lines, end) = all(ask(json!({"op": "execute", "code": "a"}))).await;
    assert!(lines.ends_with("{\"type\":\"end_of_execution\"}\n"));
    let id = end.unwrap()["context"].as_str().unwrap().to_owned();
    let (_, end) = all(ask(json!({"op": "contexts"}))).await;
    assert_eq!(end.unwrap()["contexts"][0]["id"], json!(id));
    let (_, end) = all(ask(json!({"op": "context_create", "language": "bash"}))).await;
    assert_eq!(end.unwrap()["language"], "bash");
    let (_, end) = all(ask(json!({"op": "context_restart", "id": id}))).await;
    assert_eq!(end.unwrap()["id"], json!(id));
    assert_eq!(all(ask(json!({"op": "context_interrupt", "id": id}))).await.1, Ok(Value::Null));
    assert_eq!(all(ask(json!({"op": "context_remove", "id": id}))).await.1, Ok(Value::Null));
    assert_eq!(all(ask(json!({"op": "context_remove", "id": id}))).await.1.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn a_default_context_starts_where_its_first_execution_says() {
    let (manager, _fake) = manager();
    run(&manager, Execute { cwd: Some("/home/user".to_owned()), ..code("a") }).await.1.unwrap();
    run(&manager, Execute { cwd: Some("/elsewhere".to_owned()), ..code("b") }).await.1.unwrap();
    run(&manager, Execute { language: Some("bash".to_owned()), ..code("c") }).await.1.unwrap();
    let cwds: Vec<String> = manager.list().contexts.into_iter().map(|context| context.cwd).collect();
    assert_eq!(cwds, ["/home/user", "/"]);
}

#[tokio::test]
async fn default_contexts_are_listed_before_their_first_use_and_have_their_kernels_with_it() {
    let (manager, fake) = manager();
    let made = manager.create(NewContext::default()).await.unwrap().id;
    let used = run(&manager, Execute { language: Some("bash".to_owned()), ..code("a") }).await.1.unwrap().context;
    assert_eq!(manager.list().contexts.into_iter().map(|one| one.id).collect::<Vec<_>>(), [used.clone(), made.clone()]);
    manager.remove(&used).unwrap();
    let defaults = ["python", "javascript", "r"].map(str::to_owned).to_vec();
    let wanted = ListContexts { defaults, cwd: Some("/home/user".to_owned()) };
    let listed = manager.list_with(wanted.clone()).await.unwrap().contexts;
    let shown: Vec<_> = listed.iter().map(|one| (one.language.as_str(), one.cwd.as_str(), one.default)).collect();
    assert_eq!(
        shown,
        [("python", "/home/user", true), ("javascript", "/home/user", true), ("python", "/", false)],
        "there is no kernel for r"
    );
    assert_eq!((listed[2].id.as_str(), fake.started.load(Ordering::Relaxed)), (made.as_str(), 2), "none was started");
    let id = &listed[1].id;
    let executed = run(&manager, Execute { context: Some(id.clone()), ..code("a") }).await.1.unwrap();
    assert_eq!((&executed.context, executed.restarted), (id, false));
    let executed = run(&manager, Execute { language: Some("javascript".to_owned()), ..code("b") }).await.1.unwrap();
    assert_eq!((&executed.context, fake.started.load(Ordering::Relaxed)), (id, 3));
    let again = manager.list_with(wanted).await.unwrap().contexts;
    let ids = |all: &[Context]| all.iter().map(|one| one.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&listed));
    manager.remove(id).unwrap();
}

fn spoken(session: &str, code: &str) -> Vec<u8> {
    let header = json!({"msg_id": format!("{session}-{code}"), "msg_type": "execute_request", "session": session});
    json!({"channel": "shell", "header": header, "content": {"code": code}}).to_string().into_bytes()
}

async fn heard(channels: &mut Channels, until: &str) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let line = timeout(Duration::from_secs(20), channels.next()).await.expect("silence").expect("an end");
        let value: Value = serde_json::from_slice(&line).unwrap();
        let message = value["message"].clone();
        let state = message["content"]["execution_state"].as_str().unwrap_or_default().to_owned();
        all.push(message);
        if state == until {
            return all;
        }
    }
}

#[tokio::test]
async fn who_speaks_in_messages_hears_all_that_is_published_and_answers_to_himself_alone() {
    let (manager, _) = manager();
    let context =
        manager.create(NewContext { language: Some("answering".to_owned()), ..NewContext::default() }).await.unwrap();
    let mut one = manager.channels(&context.id).await.unwrap();
    let mut other = manager.channels(&context.id).await.unwrap();
    one.say(&spoken("one", "reply")).await.unwrap();
    let (first, second) = (heard(&mut one, "idle").await, heard(&mut other, "idle").await);
    let channels =
        |all: &[Value]| all.iter().map(|one| one["channel"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert!(channels(&first).contains(&"shell".to_owned()), "{first:?}");
    assert!(!channels(&second).contains(&"shell".to_owned()), "{second:?}");
    assert_eq!(first.iter().filter(|one| one["channel"] == "iopub").count(), second.len());
    assert_eq!(manager.list().contexts[0].connections, 2);
    // What is executed otherwise is published to them too, and their messages are nothing to it.
    let (lines, _) = run(&manager, Execute { context: Some(context.id.clone()), ..code("b") }).await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(heard(&mut one, "idle").await.iter().all(|message| message["channel"] == "iopub"));
    assert_eq!(one.say(b"{}").await.unwrap_err().code, Code::Invalid);
    manager.remove(&context.id).unwrap();
    while one.next().await.is_some() {}
}

#[tokio::test]
async fn a_kernel_that_ends_is_told_in_messages_and_begins_anew_with_the_next() {
    let (manager, fake) = manager();
    let context = manager.create(NewContext::default()).await.unwrap();
    let mut one = manager.channels(&context.id).await.unwrap();
    one.say(&spoken("one", "die")).await.unwrap();
    heard(&mut one, "restarting").await;
    assert!(manager.list().contexts[0].dead);
    one.say(&spoken("one", "a")).await.unwrap();
    let all = heard(&mut one, "idle").await;
    assert_eq!(all[0]["content"]["execution_state"], "starting", "{all:?}");
    assert!(!manager.list().contexts[0].dead);
    assert_eq!(fake.started.load(Ordering::Relaxed), 2);
    manager.restart(&context.id).await.unwrap();
    heard(&mut one, "restarting").await;
}

#[tokio::test]
async fn who_reads_nothing_holds_a_kernel_up_for_some_time_and_no_longer() {
    let (manager, _) = manager();
    let context = manager.create(NewContext::default()).await.unwrap();
    let mut idle = manager.channels(&context.id).await.unwrap();
    let (lines, _) = run(&manager, Execute { context: Some(context.id.clone()), ..code("flood") }).await;
    assert!(lines.len() > 5, "{}", lines.len());
    let mut got = 0;
    while idle.next().await.is_some() {
        got += 1;
    }
    assert!(got < 50, "{got}");
}

#[tokio::test]
async fn so_many_speak_with_one_kernel_and_no_more() {
    let (manager, _) = manager();
    let context = manager.create(NewContext::default()).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..MAX_CHANNELS {
        let mut one = manager.channels(&context.id).await.unwrap();
        one.say(&spoken("s", "a")).await.unwrap();
        heard(&mut one, "idle").await;
        held.push(one);
        held.iter_mut().for_each(|one| while one.from.try_recv().is_ok() {});
    }
    assert_eq!(manager.channels(&context.id).await.unwrap_err().code, Code::TooMany);
}
