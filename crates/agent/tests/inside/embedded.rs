//! The program as it is embedded, in a process of its own.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;

use agent::words::{Code, Hello, Request};
use sys::command::Command;
use sys::pidfd::End;
use sys::spawn::Child;

use crate::client::{Agent, program};

const HELLO: Request = Request::Hello { version: agent::frame::VERSION };

fn start(command: &Command, folder: &std::path::Path) -> (Agent, Child) {
    let (ours, theirs) = sys::channel::pair().unwrap();
    let log: OwnedFd = std::fs::File::create(folder.join("log")).unwrap().into();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        match command.start(theirs.as_fd(), log.as_fd(), log.as_fd()) {
            // Another test's child, between its fork and its exec, still holds the file open that was written here.
            Err(error) if error.errno.raw_os_error() == 26 && std::time::Instant::now() < end => {
                drop(sys::channel::wait(&[], Some(std::time::Duration::from_millis(10))));
            }
            child => return (Agent::of(ours), child.unwrap()),
        }
    }
}

fn installed() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("agent"), agent::ELF).unwrap();
    std::fs::set_permissions(root.path().join("agent"), std::fs::Permissions::from_mode(0o755)).unwrap();
    root
}

#[test]
fn it_needs_nothing_but_itself() {
    let root = installed();
    let chroot = Command::new("/usr/sbin/chroot").arg(root.path()).arg("/agent");
    let (mut agent, child) = start(&chroot, root.path());
    let hello: Hello = agent.ask(&HELLO).unwrap();
    assert_eq!((hello.home.as_str(), hello.cwd.as_str()), ("/", "/"));
    // No `/dev`, no `/proc`, no programs: each is told.
    assert_eq!(agent.fails(&Request::Start(program(&["/bin/true"]))), Code::NotFound);
    agent.write("/file", b"hello").unwrap();
    assert_eq!(std::fs::read(root.path().join("file")).unwrap(), b"hello");
    // The agent itself is a program that ends when it reads nothing from descriptor 0.
    let (stream, _) = agent.start(program(&["/agent"]));
    assert_eq!(agent.end(stream).exited().code, Some(0));
    agent.hang_up();
    assert_eq!(sys::pidfd::wait(&child.pidfd).unwrap().0, End::Exited(0));
}

#[test]
fn it_ends_with_its_supervisor_and_when_that_breaks_the_protocol() {
    let root = installed();
    let command = Command::new(root.path().join("agent")).env("HOME", "/tmp").env("PATH", "/usr/bin:/bin");
    let (mut agent, child) = start(&command, root.path());
    let hello: Hello = agent.ask(&HELLO).unwrap();
    assert_eq!((hello.home.as_str(), i32::try_from(hello.pid)), ("/tmp", Ok(child.pid)));
    // Its socket is not descriptor 0 any more, and its program has no other descriptor of it.
    let heard = agent.shell("ls /proc/self/fd | tr '\\n' ' '; echo $HOME");
    assert_eq!(heard.text(), "0 1 2 3 /tmp\n");
    assert_eq!(std::fs::read_link(format!("/proc/{}/fd/0", child.pid)).unwrap().to_str(), Some("/dev/null"));
    agent.write_raw(b"no frame at all, and long enough to be one");
    assert_eq!(sys::pidfd::wait(&child.pidfd).unwrap().0, End::Exited(1));
    let log = std::fs::read_to_string(root.path().join("log")).unwrap();
    assert!(log.starts_with("agent: the supervisor broke the protocol: "), "{log}");
}

#[test]
fn it_is_static_and_small() {
    assert!(agent::ELF.starts_with(b"\x7fELF"));
    // No loader is named; what the C library knows of loaders stays unused.
    let headers = agent::ELF.get(64..64 + 56 * 16).unwrap();
    assert!(headers.chunks_exact(56).all(|header| header[..4] != [3, 0, 0, 0]), "it has an interpreter");
    assert!(agent::ELF.len() < 1600 * 1024, "{} bytes", agent::ELF.len());
}

#[test]
#[ignore = "prints times"]
fn measure() {
    use std::time::Instant;
    let root = installed();
    let command = Command::new(root.path().join("agent")).env("HOME", "/tmp").env("PATH", "/usr/bin:/bin");
    let (mut agent, child) = start(&command, root.path());
    agent.ask::<Hello>(&HELLO).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.pid)).unwrap();
    println!("{}", status.lines().filter(|line| line.contains("Rss")).collect::<Vec<_>>().join("; "));
    let smaps = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", child.pid)).unwrap();
    println!(
        "{}",
        smaps
            .lines()
            .filter(|line| line.starts_with("Private") || line.starts_with("Pss:"))
            .collect::<Vec<_>>()
            .join("; ")
    );
    let rounds = 500;
    let began = Instant::now();
    for _ in 0..rounds {
        let (stream, _) = agent.start(program(&["/bin/true"]));
        agent.end(stream);
    }
    println!("true in it: {:?}", began.elapsed() / rounds);
    let null = sys::channel::dev_null().unwrap();
    let began = Instant::now();
    for _ in 0..rounds {
        let child = Command::new("/bin/true").start(null.as_fd(), null.as_fd(), null.as_fd()).unwrap();
        sys::pidfd::wait(&child.pidfd).unwrap();
    }
    println!("true plain: {:?}", began.elapsed() / rounds);
    let bytes = vec![7; 1 << 20];
    let began = Instant::now();
    for _ in 0..100 {
        agent.write("/tmp/measured", &bytes).unwrap();
        agent.read("/tmp/measured").unwrap();
    }
    println!("1 MiB written and read: {:?}", began.elapsed() / 100);
    std::fs::remove_file("/tmp/measured").unwrap();
}
