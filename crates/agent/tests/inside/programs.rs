//! Programs, their streams and their ends.

use agent::words::{Code, Exited, Hello, Program, ProgramControl, Request, Size};

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
    // By the name that it was asked by, where that is a link.
    std::os::unix::fs::symlink("/usr", agent.path("link")).unwrap();
    let link = agent.path("link").to_str().unwrap().to_owned();
    for (folder, word, said) in
        [(&*link, None, &*link), (&*link, Some("/"), "/usr"), (&format!("{link}/../usr"), None, "/usr")]
    {
        let mut asked = shell("pwd");
        asked.cwd = Some(folder.to_owned());
        asked.env.extend(word.map(|word: &str| ("PWD".to_owned(), word.to_owned())));
        let (stream, _) = agent.start(asked);
        assert_eq!(agent.end(stream).text(), format!("{said}\n"), "{folder}");
    }
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

#[test]
fn a_terminal_interrupts_and_a_shell_has_jobs_on_it() {
    let mut agent = Agent::new();
    let mut bash = program(&["/bin/bash", "--norc", "--noprofile", "-i"]);
    bash.tty = Some(SIZE);
    bash.env.insert("PS1".into(), "ready> ".into());
    let (stream, _) = agent.start(bash);
    let says = |agent: &mut Agent, what: &str| {
        agent.until(what, |agent| agent.streams[&stream].text().contains(what));
    };
    says(&mut agent, "ready> ");
    agent.send(stream, b"sleep 76.5; echo status=$?\n");
    // The foreground group is the sleeper's, once it is there.
    says(&mut agent, "sleep 76.5");
    agent.until("a child of the shell", |agent| {
        agent.shell("pgrep -f 'sleep 76[.]5' || true").text().lines().count() > 0
    });
    agent.send(stream, b"\x03");
    says(&mut agent, "^C");
    agent.send(stream, b"sleep 100 & jobs; kill %1; wait; echo jobs=done\n");
    says(&mut agent, "Running");
    says(&mut agent, "\njobs=done");
    agent.send(stream, b"sleep 77.5\n");
    agent.until("it", |agent| agent.shell("pgrep -f 'sleep 77[.]5' || true").text().lines().count() > 0);
    // By the API, to the foreground group as well.
    agent.control(stream, ProgramControl::Signal { number: 2, tree: false });
    agent.send(stream, b"exit 9\n");
    let heard = agent.end(stream);
    assert_eq!(heard.exited().code, Some(9), "{}", heard.text());
    assert!(!heard.text().contains("no job control"), "{}", heard.text());
}

#[test]
fn all_that_was_printed_comes_before_the_end() {
    let mut agent = Agent::new();
    for tty in [None, Some(SIZE)] {
        for _ in 0..20 {
            let (stream, _) = agent.start(Program { tty, ..shell("seq 1 3000; echo last") });
            let heard = agent.end(stream);
            assert!(heard.text().trim_end().ends_with("last"), "{tty:?} {}", heard.text().len());
            assert_eq!(heard.text().lines().count(), 3001);
        }
    }
}

#[test]
fn a_child_that_is_left_behind_holds_nobody_up_and_is_not_ended_for_its_output() {
    let mut agent = Agent::new();
    let left = agent.path("left");
    let command = format!(
        "(i=0; while [ $i -lt 20 ]; do echo noise || exit 1; sleep 0.05; i=$((i+1)); done; echo ok >{}) & echo main",
        left.display()
    );
    let began = std::time::Instant::now();
    let heard = agent.shell(&command);
    assert!(began.elapsed().as_millis() < 900, "it waited for the child");
    assert!(heard.text().contains("main\n"));
    agent.until("the child's own end", |agent| {
        agent.shell("true");
        left.exists()
    });
    // One that fills a pipe more than once goes on as well.
    let heavy = agent.path("heavy");
    agent.shell(&format!("(head -c 3000000 /dev/zero && echo ok >{}) & true", heavy.display()));
    agent.until("the heavy child's end", |_| heavy.exists());
}

#[test]
fn fifty_programs_run_at_once() {
    let mut agent = Agent::new();
    let streams: Vec<u32> = (0..50)
        .map(|number| {
            let mut reads = shell(&format!("read x; echo {number} $x"));
            reads.stdin = true;
            agent.start(reads).0
        })
        .collect();
    for stream in streams.iter().rev() {
        agent.send(*stream, b"hello\n");
    }
    for (number, stream) in streams.into_iter().enumerate() {
        assert_eq!(agent.end(stream).text(), format!("{number} hello\n"));
    }
}

/// Whether a process is there and no zombie.
fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

/// A shell that leaves a child, a double-forked one, one in a session of its own, and one in a session of its own that lost its
/// parents; their pids in files.
fn family(agent: &Agent) -> String {
    let home = agent.home.path().display();
    format!(
        "sleep 1000 & echo $! >{home}/child; (sleep 1001 & echo $! >{home}/orphan); \
         setsid sh -c 'echo $$ >{home}/session; sleep 1002' & \
         (setsid sh -c 'echo $$ >{home}/lost; exec sleep 1003' &) ; echo ready; wait; sleep 1004"
    )
}

const FAMILY: [&str; 4] = ["child", "orphan", "session", "lost"];

/// Waits for all of a family.
#[track_caller]
fn members(agent: &mut Agent) -> Vec<u32> {
    let pid = |agent: &Agent, name: &str| {
        let text = std::fs::read_to_string(agent.path(name)).unwrap_or_default();
        text.strip_suffix('\n').and_then(|pid| pid.parse::<u32>().ok())
    };
    agent.until("the family", |agent| FAMILY.iter().all(|name| pid(agent, name).is_some()));
    let all = FAMILY.iter().filter_map(|name| pid(agent, name)).collect();
    for name in FAMILY {
        std::fs::remove_file(agent.path(name)).unwrap();
    }
    all
}

/// Who knows what descends from a program by their parents, and who by their mark.
const AGENTS: [fn() -> Agent; 2] = [Agent::new, Agent::on_another_kernel];

#[test]
fn a_tree_is_ended_with_orphans_and_sessions_of_its_own() {
    for agent in AGENTS {
        a_tree_is_ended(&mut agent());
    }
}

fn a_tree_is_ended(agent: &mut Agent) {
    for cancel in [false, true] {
        let (bystander, other) = agent.start(shell("sleep 999"));
        let (stream, pid) = agent.start(shell(&family(agent)));
        let all = members(agent);
        assert!(all.iter().all(|member| lives(*member)) && lives(pid));
        if cancel {
            agent.cancel(stream);
            assert_eq!(agent.end(stream).result::<()>().unwrap_err().code, Code::Cancelled);
        } else {
            agent.control(stream, ProgramControl::Signal { number: 9, tree: true });
            assert_eq!(agent.end(stream).exited().signal, Some(9));
        }
        agent.until("their ends", |_| !all.iter().any(|member| lives(*member)) && !lives(pid));
        // The control: others go on.
        assert!(lives(other));
        agent.cancel(bystander);
        agent.end(bystander);
    }
    // The control: without `tree` the family lives on, also while another program's tree is ended.
    let (stream, _) = agent.start(shell(&family(agent)));
    let all = members(agent);
    agent.control(stream, ProgramControl::Signal { number: 9, tree: false });
    agent.end(stream);
    let (other, pid) = agent.start(shell("exec sleep 1000"));
    agent.cancel(other);
    agent.end(other);
    agent.until("the other's end", |_| !lives(pid));
    assert!(lives(all[2]) && lives(all[3]));
    for pid in all {
        drop(sys::signals::send(i32::try_from(pid).unwrap(), false, 9));
    }
}

#[test]
fn who_makes_children_and_ends_before_anybody_sees_it_is_ended_as_well() {
    for agent in AGENTS {
        who_makes_children_is_ended(&mut agent());
    }
}

fn who_makes_children_is_ended(agent: &mut Agent) {
    let file = agent.path("held");
    // All of them hold a lock. Each makes one in a session of its own and ends; it stops by itself after a while.
    let perl = "use POSIX; for (1..200000) { my $p = fork; next unless defined $p; exit 0 if $p; POSIX::setsid(); }";
    let command = format!("exec 9>{}; flock 9; perl -e '{perl}' & echo ready; exec sleep 1000", file.display());
    let (stream, _) = agent.start(shell(&command));
    agent.until("the lock", |agent| agent.streams[&stream].text().contains("ready"));
    let free = || {
        let held = std::fs::File::open(&file).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    };
    assert!(!free());
    agent.cancel(stream);
    assert_eq!(agent.end(stream).result::<()>().unwrap_err().code, Code::Cancelled);
    agent.until("the end of all of them", |agent| {
        // The agent looks again only when it is there.
        agent.read("held").is_ok() && free()
    });
    assert_eq!(agent.shell("echo again").text(), "again\n");
}

#[test]
fn a_program_whose_first_thread_has_ended_is_ended_as_well() {
    let mut agent = Agent::new();
    let file = agent.path("held");
    // It looks like one that has ended and was not waited for yet, and holds a lock all the same.
    let python = format!(
        "import ctypes, fcntl, threading, time\nheld = open('{}', 'w')\nfcntl.flock(held, fcntl.LOCK_EX)\n\
         threading.Thread(target=time.sleep, args=(1000,)).start()\nprint('ready', flush=True)\n\
         ctypes.CDLL(None).syscall(60, 0)",
        file.display()
    );
    let (stream, pid) = agent.start(shell(&format!("exec /usr/bin/python3 -I -S -c \"{python}\"")));
    agent.until("the lock", |agent| agent.streams[&stream].text().contains("ready"));
    let stat = format!("/proc/{pid}/stat");
    agent.until("the end of its first thread", |_| std::fs::read_to_string(&stat).unwrap().contains(") Z "));
    let free = || {
        let held = std::fs::File::open(&file).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    };
    assert!(!free());
    agent.cancel(stream);
    assert_eq!(agent.end(stream).result::<()>().unwrap_err().code, Code::Cancelled);
    agent.until("its end", |agent| agent.read("held").is_ok() && free());
    assert_eq!(agent.shell("echo again").text(), "again\n");
}

#[test]
fn another_signal_to_a_tree_reaches_all_of_it() {
    let mut agent = Agent::new();
    let command = "trap 'echo outer; exit 1' USR1; sh -c 'trap \"echo inner; exit 2\" USR1; echo ready; while :; do sleep 0.05; done' & while :; do sleep 0.05; done";
    let (stream, _) = agent.start(shell(command));
    agent.until("both", |agent| agent.streams[&stream].text().contains("ready"));
    agent.control(stream, ProgramControl::Signal { number: 10, tree: true });
    let heard = agent.end(stream);
    assert_eq!(heard.exited().code, Some(1));
    assert!(heard.text().contains("outer"), "{}", heard.text());
}

/// Lowered, a program's own mark would be that of a command that is over, or nobody's.
#[test]
fn a_mark_is_inherited_and_changed_by_nobody() {
    let read = "cut -d' ' -f25 /proc/self/stat";
    let lower = "import resource as r, sys\nfor limit in (r.RLIMIT_RSS, r.RLIMIT_CORE):\n  try: r.setrlimit(limit, (9, 9)); print('set')\n  except (OSError, ValueError): print('refused')";
    let lowers =
        Program { argv: ["/usr/bin/python3", "-I", "-S", "-c", lower].map(str::to_owned).to_vec(), ..shell("") };
    let answers = |agent: &mut Agent| {
        let (stream, _) = agent.start(lowers.clone());
        agent.end(stream).text()
    };
    let mut agent = Agent::on_another_kernel();
    assert_eq!(agent.shell(read).text(), format!("{}\n", 1_u64 << 50));
    let both = agent.shell(&format!("{read}; (setsid sh -c \"{read}\")")).text();
    let (mark, inherited) = both.split_once('\n').unwrap();
    assert_eq!(inherited.trim_end(), mark);
    assert_eq!(answers(&mut agent), "refused\nset\n");
    // Beside one that runs there is another one.
    let (sleeper, _) = agent.start(shell(&format!("{read}; exec sleep 1000")));
    agent.until("its mark", |agent| agent.streams[&sleeper].text().ends_with('\n'));
    assert_ne!(agent.shell(read).text(), agent.streams[&sleeper].text());
    agent.cancel(sleeper);
    agent.end(sleeper);
    // The control: where orphans are adopted there is no mark, and the limit is a program's own.
    assert_eq!(answers(&mut Agent::new()), "set\nset\n");
    assert_ne!(Agent::new().shell(read).text(), mark);
}

#[test]
fn programs_signal_one_another_and_not_the_agent() {
    for agent in AGENTS {
        let mut agent = agent();
        let hello: Hello = agent.ask(&Request::Hello { version: agent::frame::VERSION }).unwrap();
        if hello.guarded {
            only_programs_are_signalled(&mut agent, &hello);
        } else {
            println!("skip: this kernel's Landlock has no scope of signals");
        }
    }
}

fn only_programs_are_signalled(agent: &mut Agent, hello: &Hello) {
    let (sleeper, pid) = agent.start(shell("sleep 1000"));
    let own = hello.pid;
    for (what, works) in
        [(format!("kill -0 {own}"), false), (format!("kill -TERM {own}"), false), (format!("kill -TERM {pid}"), true)]
    {
        assert_eq!(agent.shell(&what).exited().code == Some(0), works, "{what}");
    }
    assert_eq!(agent.end(sleeper).exited().signal, Some(15));
    // Nor is it read: the control is another program.
    let (sleeper, pid) = agent.start(shell("exec sleep 1000"));
    for (pid, works) in [(own, false), (pid, true)] {
        let heard = agent.shell(&format!(": </proc/{pid}/mem"));
        assert_eq!(heard.exited().code == Some(0), works, "{heard:?}");
    }
    agent.cancel(sleeper);
    agent.end(sleeper);
    // The control of the whole test: without the layer the same kill reaches this process.
    let output = sys::command::Command::new("/bin/sh")
        .args(["-c", &format!("kill -0 {own}")])
        .output(b"", 100, crate::client::LIMIT)
        .unwrap();
    assert_eq!(output.end, sys::pidfd::End::Exited(0));
}

#[test]
fn programs_rename_from_folder_to_folder() {
    let mut agent = Agent::new();
    std::fs::create_dir(agent.path("one")).unwrap();
    std::fs::create_dir(agent.path("two")).unwrap();
    let home = agent.home.path().display();
    let command =
        format!("cd {home}; echo x >one/a; ln one/a two/b && perl -e 'rename \"one/a\", \"two/a\" or exit 3'");
    assert_eq!(agent.shell(&command).exited().code, Some(0));
    assert!(agent.path("two/a").exists() && agent.path("two/b").exists());
}

#[test]
fn a_starter_that_is_ended_takes_its_program_and_all_below_along_and_is_made_anew() {
    let mut agent = Agent::new();
    let (sleeper, pid) = agent.start(shell("exec sleep 1000"));
    // Its parent is its starter.
    let family = family(&agent);
    let kills = Program { stdin: true, ..shell(&format!("({family}) & read go; kill -9 $PPID; sleep 5")) };
    let (killer, _) = agent.start(kills);
    let all = members(&mut agent);
    agent.send(killer, b"go\n");
    let failure = agent.end(killer).result::<()>().unwrap_err();
    assert_eq!(failure.code, Code::Failed);
    assert!(failure.message.contains("ended the process that starts programs"), "{failure}");
    agent.until("the family's end", |_| !all.iter().any(|member| lives(*member)));
    // The control: others go on.
    assert!(lives(pid));
    assert_eq!(agent.shell("echo again").text(), "again\n");
    // Who makes the starters is the parent of each; with it all ends.
    let kills = Program { stdin: true, ..shell("read go; kill -9 $(ps -o ppid= -p $PPID); sleep 5") };
    let (killer, _) = agent.start(kills);
    agent.send(killer, b"go\n");
    for stream in [killer, sleeper] {
        let failure = agent.end(stream).result::<()>().unwrap_err();
        assert_eq!(failure.code, Code::Failed, "{failure}");
    }
    agent.until("the sleeper's end", |_| !lives(pid));
    assert_eq!(agent.shell("echo again").text(), "again\n");
}

#[test]
fn a_starter_has_one_program_at_a_time_and_goes_on_with_the_next() {
    for agent in AGENTS {
        a_starter_goes_on(&mut agent());
    }
}

fn a_starter_goes_on(agent: &mut Agent) {
    let left = agent.path("left");
    let starter = |agent: &mut Agent| agent.shell("echo $PPID").text();
    let first = starter(agent);
    // Where nobody tells that nothing is left, it is seen when no other process comes or goes: other tests have some.
    agent.until("its next program", |agent| starter(agent) == first);
    // While something that a program left behind runs, another starter has the next one.
    let leaves = format!("setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $! >{}; echo $PPID", left.display());
    let pid = || std::fs::read_to_string(&left).unwrap().trim().parse::<u32>().unwrap();
    agent.until("one that leaves something behind", |agent| {
        let is_first = agent.shell(&leaves).text() == first;
        if !is_first {
            agent.shell(&format!("kill {}", pid()));
        }
        is_first
    });
    assert_ne!(starter(agent), first);
    assert!(lives(pid()));
    agent.shell(&format!("kill {}", pid()));
    agent.until("the first one's return", |agent| starter(agent) == first);
}

#[test]
fn a_starter_that_is_stopped_keeps_nobody_waiting_and_goes_on() {
    let mut agent = Agent::new();
    // The program's own end is heard only when the starter goes on; its parent is the starter.
    let (stopper, _) = agent.start(Program { stdin: true, ..shell("read go; kill -STOP $PPID; echo stopped $PPID") });
    agent.send(stopper, b"go\n");
    agent.until("the stop", |agent| agent.streams[&stopper].text().contains("stopped"));
    let starts = agent.open(&Request::Start(shell("echo late")));
    agent.write("file", b"fine").unwrap();
    assert_eq!(agent.read("file").unwrap(), b"fine");
    // Nobody here lets it go on.
    assert_eq!(agent.end(starts).text(), "late\n");
    assert_eq!(agent.end(stopper).exited().code, Some(0));
    // Nor where all that is waited for is an end.
    let alone = agent.shell("kill -STOP $PPID; echo stopped");
    assert_eq!((alone.text(), alone.exited().code), ("stopped\n".to_owned(), Some(0)));
}

#[test]
fn a_starter_that_is_stopped_without_end_is_told_after_a_while() {
    let mut agent = Agent::new();
    // Faster than it is told to go on.
    let stops = "read go; echo begun; while kill -STOP $PPID; do :; done";
    let (stopper, pid) = agent.start(Program { stdin: true, ..shell(stops) });
    agent.send(stopper, b"go\n");
    agent.until("the stops", |agent| agent.streams[&stopper].text().contains("begun"));
    let late = agent.open(&Request::Start(shell("echo never")));
    // Where a stop comes late it may start all the same; nobody waits without end.
    if let Err(failure) = agent.end(late).result::<Exited>() {
        assert!(failure.code == Code::Failed && failure.message.contains("again and again"), "{failure}");
    }
    // Once that is over, programs start as before.
    drop(sys::signals::send(i32::try_from(pid).unwrap(), false, 9));
    assert_eq!(agent.shell("echo again").text(), "again\n");
    assert_eq!(agent.end(stopper).exited().signal, Some(9));
}

/// As in a copy of its machine: nobody hears of what was asked in the other one, what runs goes on and is ended by nobody, and
/// numbers of streams are free again.
#[test]
fn an_agent_that_forgets_who_asked_lets_programs_go_on_and_gives_all_else_up() {
    let mut agent = Agent::new();
    let done = agent.path("done");
    let mut talks = shell(&format!(
        "cat; i=0; while [ $i -lt 20000 ]; do echo 0123456789012345678901234567890; i=$((i+1)); done; sleep 1; echo $i >{}",
        done.display()
    ));
    talks.stdin = true;
    let (talks, _) = agent.start(talks);
    let written = agent.open(&Request::Write { path: "half".to_owned(), mode: None, metadata: None });
    agent.send(written, b"half of it");
    agent.slow.push(talks);
    agent.forget();
    let end = agent.end(agent::machine::ORDERS);
    assert_eq!(end.result::<()>(), Ok(()));
    let (said, events) = (agent.streams[&talks].out.len(), agent.streams.len());
    agent.streams.remove(&talks);
    agent.streams.remove(&written);
    // A frame for either of them would be one for a stream that nobody opened, and a failed test.
    agent.until("what the program does", |agent| {
        agent.shell("true").exited();
        done.exists()
    });
    assert_eq!((std::fs::read_to_string(&done).unwrap().as_str(), said, events), ("20000\n", 0, 2));
    assert!(!agent.path("half").exists());
    agent.close().unwrap();
}
