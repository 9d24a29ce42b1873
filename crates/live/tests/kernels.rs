//! The code interpreter over real kernels, as `scripts/setup kernels` installs them; without these the tests say `skip`.
//! Their sandbox is none: what is shown here is that kernels do what clients expect.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and one that is skipped says so"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::words::{Code, Failure};
use live::kernel::words::{Execute, Executed, NewContext};
use live::kernel::{Execution, Manager, Process, ProgramOutput, Programs, Settings, Starting};
use live::words::Exec;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Programs of this machine, with one folder first in their `PATH`.
#[derive(Debug)]
struct TestHost {
    bin: PathBuf,
    home: tempfile::TempDir,
}

impl Programs for TestHost {
    fn start(&self, exec: Exec) -> Starting<'_> {
        let (program, args) = exec.program.argv.split_first().unwrap();
        let own = self.bin.join(program);
        let mut command = Command::new(if own.exists() { own } else { PathBuf::from(program) });
        command.args(args).env_clear().envs(&exec.program.env).env("HOME", self.home.path());
        command.env("PATH", format!("{}:/usr/bin:/bin", self.bin.display())).env("OPENBLAS_NUM_THREADS", "1");
        command.current_dir(exec.program.cwd.as_deref().unwrap_or("/")).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let started = command.spawn();
        Box::pin(async move {
            let not_found = |error: std::io::Error| Failure::new(Code::NotFound, error.to_string());
            let mut child = started.map_err(not_found)?;
            let (input, to_program) = mpsc::channel(8);
            let (said, output) = mpsc::channel(8);
            let pipes = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            tokio::spawn(carry(child, pipes, to_program, said));
            Ok(Process { input, output })
        })
    }
}

async fn carry(
    mut child: Child,
    (mut stdin, mut stdout): (ChildStdin, ChildStdout),
    mut to_program: mpsc::Receiver<Vec<u8>>,
    said: mpsc::Sender<ProgramOutput>,
) {
    let mut buffer = vec![0; 65536];
    loop {
        tokio::select! {
            () = said.closed() => break,
            bytes = to_program.recv() => match bytes {
                Some(bytes) => stdin.write_all(&bytes).await.unwrap(),
                None => break,
            },
            read = stdout.read(&mut buffer) => match read.unwrap() {
                0 => {
                    let ended = child.wait().await.unwrap();
                    drop(said.send(ProgramOutput::Ended(ended.to_string())).await);
                    return;
                }
                length => drop(said.send(ProgramOutput::Out(buffer[..length].to_vec())).await),
            },
        }
    }
    // As a sandbox does: whoever lets go of a program ends it; the driver sees the end of its input and ends its kernel.
    drop(stdin);
    drop(timeout(Duration::from_secs(5), child.wait()).await);
}

fn manager() -> Option<Manager> {
    let cache = std::env::var_os("FUMEHOOD_CACHE").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
        Some(home.join("fumehood"))
    })?;
    let bin = cache.join("kernels/bin");
    if !bin.join("python3").exists() {
        println!("skip: real kernels: {} is not there; `scripts/setup kernels` installs it", bin.display());
        return None;
    }
    let programs = TestHost { bin, home: tempfile::tempdir().unwrap() };
    Some(Manager::new(Arc::new(programs), Settings { grace: Duration::from_secs(3), ..Settings::default() }))
}

fn code(code: &str) -> Execute {
    Execute { code: code.to_owned(), ..Execute::default() }
}

async fn lines(mut execution: Execution) -> (Vec<Value>, Executed) {
    let mut lines = Vec::new();
    let all = async {
        while let Some(line) = execution.next().await {
            lines.push(serde_json::from_slice::<Value>(&line).unwrap());
        }
        execution.end().await.unwrap()
    };
    let ended = timeout(Duration::from_secs(90), all).await.expect("no end");
    assert_eq!(lines.pop().unwrap(), json!({"type": "end_of_execution"}));
    lines.retain(|line| line["type"] != "keepalive");
    (lines, ended)
}

async fn run(manager: &Manager, ask: Execute) -> Vec<Value> {
    lines(manager.execute(ask).await.unwrap()).await.0
}

fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

fn text_of(lines: &[Value], kind: &str) -> String {
    of(lines, kind).iter().map(|line| line["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn python_keeps_its_variables_and_tells_output_results_and_errors() {
    let Some(manager) = manager() else { return };
    let first = run(&manager, code("x = 6\nprint('out')\nimport sys; print('err', file=sys.stderr)\nx * 7")).await;
    assert_eq!(first[0], json!({"type": "number_of_executions", "execution_count": 1}));
    assert_eq!((text_of(&first, "stdout").as_str(), text_of(&first, "stderr").as_str()), ("out\n", "err\n"));
    assert_eq!(of(&first, "result")[0], &json!({"type": "result", "text": "42", "extra": {}, "is_main_result": true}));
    let timestamp = of(&first, "stdout")[0]["timestamp"].as_str().unwrap();
    assert!(timestamp.starts_with("20") && timestamp.contains('T'), "{timestamp}");
    let second = run(&manager, code("'x is ' + str(x)")).await;
    assert_eq!((&second[0]["execution_count"], &second[1]["text"]), (&json!(2), &json!("x is 6")));
    let failed = run(&manager, code("1 / 0")).await;
    let error = of(&failed, "error")[0];
    assert_eq!((&error["name"], &error["value"]), (&json!("ZeroDivisionError"), &json!("division by zero")));
    assert!(error["traceback"].as_str().unwrap().contains("1 / 0"));
    let plain = run(&manager, code("{'a': [1, None]}")).await;
    assert_eq!(of(&plain, "result")[0]["json"], json!({"a": [1, null]}));
}

#[tokio::test]
async fn tables_and_figures_come_in_all_their_forms() {
    let Some(manager) = manager() else { return };
    let table = "import pandas as pd\npd.DataFrame({'t': [pd.Timestamp(0)], 'n': [1]})";
    let lines = run(&manager, code(table)).await;
    let result = of(&lines, "result")[0];
    assert_eq!(result["data"], json!({"t": ["1970-01-01T00:00:00"], "n": [1]}));
    assert!(result["html"].as_str().unwrap().contains("<table"), "{result}");
    let figure = "import matplotlib.pyplot as plt\nplt.bar(['a', 'b'], [1, 2])\nplt.xlabel('kind (x)')\nplt.title('T')\nplt.show()";
    let lines = run(&manager, code(figure)).await;
    let result = of(&lines, "result")[0];
    assert!(result["png"].as_str().unwrap().starts_with("iVBOR"), "{lines:?}");
    assert_eq!(result["is_main_result"], false);
    let chart = &result["chart"];
    assert_eq!((&chart["type"], &chart["title"], &chart["x_unit"]), (&json!("bar"), &json!("T"), &json!("x")));
    assert_eq!(chart["elements"][1], json!({"label": "b", "group": "Group 0", "value": 2.0}));
    let shown = "from IPython.display import display, HTML, Markdown, Latex\ndisplay(HTML('<b>1</b>'))\ndisplay(Markdown('*2*'))\nLatex('$3$')";
    let lines = run(&manager, code(shown)).await;
    let results = of(&lines, "result");
    assert_eq!(
        results.iter().map(|one| one["is_main_result"].as_bool().unwrap()).collect::<Vec<_>>(),
        [false, false, true]
    );
    assert_eq!((&results[0]["html"], &results[1]["markdown"]), (&json!("<b>1</b>"), &json!("*2*")));
    assert_eq!(results[2]["latex"], "$3$");
}

#[tokio::test]
async fn an_interrupt_a_timeout_and_a_restart_do_what_they_say() {
    let Some(manager) = manager() else { return };
    run(&manager, code("x = 1")).await;
    let id = manager.list().contexts[0].id.clone();
    let mut running = manager.execute(code("import time\nprint('now', flush=True)\ntime.sleep(60)")).await.unwrap();
    let began = Instant::now();
    while !String::from_utf8(running.next().await.unwrap()).unwrap().contains("now") {}
    manager.interrupt(&id).await.unwrap();
    assert_eq!(of(&lines(running).await.0, "error")[0]["name"], "KeyboardInterrupt");
    let timed = run(&manager, Execute { timeout_ms: Some(300), ..code("while True: pass") }).await;
    assert_eq!(of(&timed, "error")[0]["name"], "TimeoutError");
    let mut left = manager.execute(code("import time\ntime.sleep(60)")).await.unwrap();
    left.next().await.unwrap();
    drop(left);
    assert_eq!(of(&run(&manager, code("x")).await, "result")[0]["text"], "1", "the context lives on");
    let deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";
    let timed = run(&manager, Execute { timeout_ms: Some(300), ..code(deaf) }).await;
    assert_eq!(of(&timed, "error")[0]["name"], "TimeoutError");
    let after = run(&manager, code("x")).await;
    assert!(text_of(&after, "stderr").contains("this is a new one"));
    assert_eq!(of(&after, "error")[0]["name"], "NameError");
    run(&manager, code("x = 2")).await;
    manager.restart(&id).await.unwrap();
    assert_eq!(of(&run(&manager, code("x")).await, "error")[0]["name"], "NameError");
    assert!(began.elapsed() < Duration::from_secs(60), "nothing waited for a sleep");
}

#[tokio::test]
async fn a_kernel_that_is_killed_or_leaves_is_replaced() {
    let Some(manager) = manager() else { return };
    let killed = run(&manager, code("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")).await;
    assert_eq!(of(&killed, "error")[0]["name"], "UnexpectedEndOfExecution");
    let (after, ended) = lines(manager.execute(code("1")).await.unwrap()).await;
    assert!(text_of(&after, "stderr").contains("signal 9"), "{after:?}");
    assert!(ended.restarted);
    run(&manager, code("exit()")).await;
    // It says that it is idle before it leaves.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let (after, ended) = lines(manager.execute(code("1")).await.unwrap()).await;
    assert!(ended.restarted, "{after:?}");
}

#[tokio::test]
async fn much_output_is_bounded_and_the_kernel_goes_on() {
    let Some(manager) = manager() else { return };
    let (found, ended) = lines(manager.execute(code("for _ in range(40): print('x' * 2**20)")).await.unwrap()).await;
    let given = text_of(&found, "stdout").len();
    assert!((15 << 20..=16 << 20).contains(&given), "{given}");
    assert!(ended.truncated > 20 << 20);
    assert!(text_of(&found, "stderr").contains("ends here"));
    let large = run(&manager, code("from IPython.display import HTML\nHTML('x' * (20 << 20))")).await;
    assert!(of(&large, "result")[0]["text"].as_str().unwrap().contains("left out"), "{:.300}", large[1].to_string());
    assert_eq!(of(&run(&manager, code("1 + 1")).await, "result")[0]["text"], "2");
}

#[tokio::test]
async fn contexts_have_their_own_folder_environment_and_variables() {
    let Some(manager) = manager() else { return };
    let env = |value: &str| BTreeMap::from([("A".to_owned(), value.to_owned())]);
    let new = NewContext { cwd: Some("/usr".to_owned()), env: env("context"), ..NewContext::default() };
    let context = manager.create(new).await.unwrap();
    assert_eq!(context.cwd, "/usr");
    let ask = |text: &str| Execute { context: Some(context.id.clone()), ..code(text) };
    let show = "import os; print(os.getcwd(), os.environ.get('A'))";
    assert_eq!(text_of(&run(&manager, ask(show)).await, "stdout"), "/usr context\n");
    let tricky = "it's \"this\"; $x \u{1F600}\u{2028}";
    let once = run(&manager, Execute { env: env(tricky), ..ask(show) }).await;
    assert_eq!(text_of(&once, "stdout"), format!("/usr {tricky}\n"));
    assert_eq!(text_of(&run(&manager, ask(show)).await, "stdout"), "/usr context\n", "put back");
    assert_eq!(text_of(&run(&manager, code(show)).await, "stdout"), "/ None\n", "another context");
    assert_eq!(manager.list().contexts.len(), 2);
}

#[tokio::test]
async fn bash_keeps_its_variables_and_says_how_a_command_failed() {
    let Some(manager) = manager() else { return };
    let bash = |text: &str| Execute { language: Some("bash".to_owned()), ..code(text) };
    assert_eq!(text_of(&run(&manager, bash("A=1; echo hi")).await, "stdout"), "hi\n");
    let env = BTreeMap::from([("B".to_owned(), "it's".to_owned())]);
    assert_eq!(text_of(&run(&manager, Execute { env, ..bash("echo $A $B") }).await, "stdout"), "1 it's\n");
    assert_eq!(text_of(&run(&manager, bash("echo [$B]")).await, "stdout"), "[]\n");
    assert_eq!(of(&run(&manager, bash("false")).await, "error")[0]["value"], "1");
    let none = manager.execute(Execute { language: Some("java".to_owned()), ..code("1") }).await.unwrap_err();
    assert_eq!(none.code, Code::Unsupported);
    assert!(none.message.contains("a Jupyter kernel for java"), "{none}");
}

/// A kernel of Node's, where this machine has one.
async fn node(language: &str) -> Option<Manager> {
    let manager = manager()?;
    let found = manager.languages().await.unwrap().languages;
    assert!(found.contains(&"python".to_owned()) && found.contains(&"bash".to_owned()), "{found:?}");
    if found.contains(&language.to_owned()) {
        return Some(manager);
    }
    println!("skip: real kernels: {language}: no Node here that can execute it");
    None
}

#[tokio::test]
async fn javascript_keeps_its_variables_waits_for_promises_and_is_interrupted() {
    let Some(manager) = node("javascript").await else { return };
    let js = |text: &str| Execute { language: Some("js".to_owned()), ..code(text) };
    let first = run(&manager, js("const x = 6\nconsole.log('out'); console.error('err')\nx * 7")).await;
    assert_eq!(first[0], json!({"type": "number_of_executions", "execution_count": 1}));
    assert_eq!((text_of(&first, "stdout").as_str(), text_of(&first, "stderr").as_str()), ("out\n", "err\n"));
    assert_eq!(of(&first, "result")[0], &json!({"type": "result", "text": "42", "extra": {}, "is_main_result": true}));
    let modules =
        "import { readFileSync } from 'fs'\nimport os, * as all from 'os'\n[typeof readFileSync, os.EOL === all.EOL]";
    assert_eq!(of(&run(&manager, js(modules)).await, "result")[0]["json"], json!(["function", true]));
    let main = "async function main() { return 'x is ' + x }\nawait main()";
    assert_eq!(of(&run(&manager, js(main)).await, "result")[0]["text"], "x is 6");
    assert_eq!(of(&run(&manager, js("main()")).await, "result")[0]["text"], "x is 6", "a promise is waited for");
    let failed = run(&manager, js("null.x")).await;
    assert_eq!(of(&failed, "error")[0]["name"], "TypeError");
    assert!(!of(&failed, "error")[0]["traceback"].as_str().unwrap().contains("node:internal"), "{failed:?}");
    for endless in ["while (true) {}", "await new Promise(() => {})", "new Promise(() => {})"] {
        let timed = run(&manager, Execute { timeout_ms: Some(300), ..js(endless) }).await;
        assert_eq!(of(&timed, "error")[0]["name"], "TimeoutError", "{endless}");
    }
    let env = BTreeMap::from([("A".to_owned(), "it's".to_owned())]);
    assert_eq!(text_of(&run(&manager, Execute { env, ..js("console.log(process.env.A)") }).await, "stdout"), "it's\n");
    assert_eq!(of(&run(&manager, js("[x, process.env.A ?? 'none']")).await, "result")[0]["json"], json!([6, "none"]));
    let child =
        "require('child_process').execSync('echo sub', {stdio: 'inherit'}); await new Promise(r => setTimeout(r, 300))";
    assert_eq!(text_of(&run(&manager, js(child)).await, "stdout"), "sub\n");
    let shown =
        "await display({[Symbol.for('Jupyter.display')]: () => ({'text/html': '<b>'})}); ({_toSvg: () => '<svg/>'})";
    let results = run(&manager, js(shown)).await;
    let results = of(&results, "result");
    assert_eq!((&results[0]["html"], &results[0]["is_main_result"]), (&json!("<b>"), &json!(false)));
    assert_eq!(results[1]["svg"], "<svg/>");
    let left = run(&manager, js("process.exit(3)")).await;
    assert!(of(&left, "error")[0]["value"].as_str().unwrap().contains("exited with 3"), "{left:?}");
    assert_eq!(of(&run(&manager, js("typeof x")).await, "result")[0]["text"], "undefined", "another kernel");
}

#[tokio::test]
async fn what_node_throws_behind_the_back_of_an_execution_is_told_and_ends_nothing() {
    let Some(manager) = node("javascript").await else { return };
    let js = |text: &str| Execute { language: Some("javascript".to_owned()), ..code(text) };
    let later = "setTimeout(() => { throw new Error('later') }, 10); Promise.reject(7); await new Promise(r => setTimeout(r, 200)); 1";
    let lines = run(&manager, js(later)).await;
    assert_eq!(of(&lines, "result")[0]["text"], "1");
    let said = text_of(&lines, "stderr");
    assert!(said.contains("Uncaught Error: later") && said.contains("Uncaught (in promise)"), "{said}");
    let long = run(&manager, js("console.log('x'.repeat(3_000_000)); 'y'.repeat(20_000_000)")).await;
    assert_eq!(text_of(&long, "stdout").len(), 3_000_001);
    assert!(of(&long, "result")[0]["text"].as_str().unwrap().contains("left out"));
}

#[tokio::test]
async fn typescript_is_javascript_with_types() {
    let Some(manager) = node("typescript").await else { return };
    let ts = |text: &str| Execute { language: Some("ts".to_owned()), ..code(text) };
    let first =
        run(&manager, ts("function subtract(x: number, y: number): number { return x - y }\n\nsubtract(1, 2)")).await;
    assert_eq!(of(&first, "result")[0]["text"], "-1");
    let kept =
        "import * as fs from \"fs\"\nenum E { A = 3 }\ninterface I { a: string }\nconst i: I = { a: \"q\" }\ni.a + E.A";
    assert_eq!(of(&run(&manager, ts(kept)).await, "result")[0]["text"], "q3");
    assert_eq!(of(&run(&manager, ts("fs.existsSync(\"/\") as boolean")).await, "result")[0]["text"], "true");
    assert_eq!(of(&run(&manager, ts("let q: number = ;")).await, "error")[0]["name"], "SyntaxError");
}
