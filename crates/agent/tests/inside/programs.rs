//! Programs, their streams and their ends.

use agent::words::{Code, Hello, Program, ProgramControl, Request, Size};

use crate::client::{Agent, program, shell};

const SIZE: Size = Size { rows: 33, cols: 77 };

#[test]
fn the_agent_says_who_it_is() {
    let mut agent = Agent::new();
    let hello: Hello = agent.ask(&Request::Hello { version: agent::frame::VERSION }).unwrap();
    assert_eq!((hello.uid, hello.home), (sys::caller::euid(), agent.home.path().to_str().unwrap().to_owned()));
    assert_eq!(hello.guarded, sys::landlock::abi() >= 6);
    assert_eq!(agent.fails(&Request::Hello { version: 99 }), Code::Unsupported);
    agent.close().unwrap();
}

#[test]
fn a_program_prints_and_ends() {
    let mut agent = Agent::new();
    let heard = agent.shell("echo out; echo err >&2; exit 7");
    assert_eq!((heard.text().as_str(), heard.err.as_slice(), heard.exited().code), ("out\n", &b"err\n"[..], Some(7)));
    let heard = agent.shell("kill -9 $$");
    assert_eq!((heard.exited().code, heard.exited().signal), (None, Some(9)));
    let heard = agent.shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done");
    assert!(heard.exited().user_us > 0 && heard.exited().max_rss > 4096, "{heard:?}");
    agent.close().unwrap();
}

#[test]
fn a_program_gets_its_input_environment_and_folder() {
    let mut agent = Agent::new();
    let mut cat = shell("cat; echo $WORD; pwd");
    cat.stdin = true;
    cat.env.insert("WORD".into(), "two words".into());
    cat.cwd = Some("/usr".into());
    let (stream, _) = agent.start(cat);
    agent.send(stream, b"one\n");
    agent.eof(stream);
    let heard = agent.end(stream);
    assert_eq!(heard.text(), "one\ntwo words\n/usr\n");
    // Without input it reads an empty file.
    assert_eq!(agent.shell("cat; echo end").text(), "end\n");
}

#[test]
fn a_program_inherits_nothing_of_ours() {
    let mut agent = Agent::new();
    let heard = agent.shell("ls /proc/self/fd | tr '\\n' ' '; grep -E 'Sig(Blk|Ign)' /proc/self/status");
    let text = heard.text();
    assert!(text.starts_with("0 1 2 3 "), "{text}");
    assert!(text.contains("SigBlk:\t0000000000000000") && text.contains("SigIgn:\t0000000000000000"), "{text}");
    // A writer whose reader is gone ends by the signal.
    assert_eq!(agent.shell("yes | head -1; exit 3").text(), "y\n");
}

#[test]
fn what_cannot_be_started_says_why() {
    let mut agent = Agent::new();
    std::fs::write(agent.path("plain"), "text").unwrap();
    std::fs::write(agent.path("script"), "#!/no/such/interpreter\n").unwrap();
    std::os::unix::fs::chown(agent.path("script"), None, None).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(agent.path("script"), executable).unwrap();
    let start = |program: Program| Request::Start(program);
    let path = |name: &str, agent: &Agent| program(&[agent.path(name).to_str().unwrap()]);
    assert_eq!(agent.fails(&start(program(&["/no/such"]))), Code::NotFound);
    assert_eq!(agent.fails(&start(program(&["no-such-program"]))), Code::NotFound);
    let plain = path("plain", &agent);
    assert_eq!(agent.fails(&start(plain)), Code::NotExecutable);
    let script = path("script", &agent);
    assert_eq!(agent.fails(&start(script)), Code::NotExecutable);
    assert_eq!(agent.fails(&start(program(&["/usr"]))), Code::NotExecutable);
    let nowhere = Program { cwd: Some("/no/such".into()), ..program(&["true"]) };
    assert_eq!(agent.fails(&start(nowhere)), Code::NoCwd);
    assert_eq!(agent.fails(&start(program(&[]))), Code::Invalid);
    assert_eq!(agent.fails(&start(program(&["a\0b"]))), Code::Invalid);
    // One word as long as the kernel takes no single argument.
    let long = "x".repeat(140_000);
    assert_eq!(agent.fails(&start(program(&["true", &long]))), Code::TooMany);
    // The control: it goes on.
    assert_eq!(agent.shell("echo fine").text(), "fine\n");
}

#[test]
fn a_name_is_looked_for_on_the_path_of_its_own_environment() {
    let mut agent = Agent::new();
    let file = agent.path("word");
    std::fs::write(&file, "#!/bin/sh\necho mine\n").unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut word = program(&["word"]);
    assert_eq!(agent.fails(&Request::Start(word.clone())), Code::NotFound);
    word.env.insert("PATH".into(), format!("/no/such:{}:/bin", agent.home.path().display()));
    let (stream, _) = agent.start(word);
    assert_eq!(agent.end(stream).text(), "mine\n");
}

#[test]
fn signals_reach_the_group() {
    let mut agent = Agent::new();
    let (stream, _) = agent.start(shell("trap 'echo got; exit 4' TERM; echo ready; while :; do sleep 0.05; done"));
    agent.until("ready", |agent| !agent.streams[&stream].out.is_empty());
    agent.control(stream, ProgramControl::Signal { number: 15, tree: false });
    let heard = agent.end(stream);
    assert_eq!((heard.text().as_str(), heard.exited().code), ("ready\ngot\n", Some(4)));
}

#[test]
fn a_terminal_has_a_size_echoes_and_is_controlling() {
    let mut agent = Agent::new();
    let sized =
        Program { tty: Some(SIZE), ..shell("stty size; test -n \"$TERM\" && echo term; cat; stty size </dev/tty") };
    let (stream, _) = agent.start(sized);
    agent.until("the size", |agent| agent.streams[&stream].text().contains("term"));
    agent.control(stream, ProgramControl::Resize(Size { rows: 5, cols: 6 }));
    agent.send(stream, b"hello\n\x04");
    let heard = agent.end(stream);
    assert_eq!(heard.text(), "33 77\r\nterm\r\nhello\r\nhello\r\n5 6\r\n");
    assert_eq!(heard.exited().code, Some(0));
}
