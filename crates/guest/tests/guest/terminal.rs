//! A terminal inside: size, Ctrl-C, resize, job control, end of file.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;

use guest::config::Size;
use guest::frames::{End, FromGuest, ToGuest};

use crate::harness::{Sandbox, Who};
use crate::world::{container, shell};

struct Shell {
    sandbox: Sandbox,
    master: File,
    seen: String,
}

impl Shell {
    fn start(who: Who, argv: &[&str]) -> Self {
        let mut config = container(who, argv);
        config.tty = Some(Size { rows: 33, cols: 77 });
        let mut sandbox = Sandbox::start(who, &config);
        assert_eq!(sandbox.hear(), Some(FromGuest::Terminal));
        let master: OwnedFd = sandbox.fds.remove(0);
        sandbox.posture();
        sandbox.go();
        Self { sandbox, master: File::from(master), seen: String::new() }
    }

    fn say(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Reads until the terminal has shown this.
    fn until(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let mut bytes = [0; 512];
            let mut fds = [rustix::event::PollFd::new(&self.master, rustix::event::PollFlags::IN)];
            let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
            assert_eq!(rustix::event::poll(&mut fds, Some(&limit)).unwrap(), 1, "waited for {text:?}: {:?}", self.seen);
            let got = self.master.read(&mut bytes).unwrap_or_else(|error| panic!("{error}: {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..got]));
        }
        let end = self.seen.find(text).unwrap() + text.len();
        self.seen.drain(..end);
    }
}

#[test]
fn a_payload_has_a_terminal_of_the_right_size_that_it_controls() {
    for who in Who::BOTH {
        who.be(|| {
            let mut shell =
                Shell::start(who, &shell("tty; stty size; echo $(stat -c %u $(tty)); : < /dev/tty && echo controls"));
            shell.until("/dev/pts/0\r\n33 77\r\n1000\r\ncontrols\r\n");
            assert_eq!(shell.sandbox.exited().end, End::Code(0));
            // Nobody holds the other side any more.
            assert_eq!(shell.master.read(&mut [0; 8]).unwrap_err().raw_os_error(), Some(libc::EIO));
        });
    }
}

#[test]
fn control_c_reaches_the_foreground_group_and_not_the_shell() {
    let who = Who::Rootless;
    who.be(|| {
        let mut shell = Shell::start(who, &["bash", "--norc", "-i"]);
        shell.say("PS1='ready> '\n");
        shell.until("\nready> ");
        shell.say("sleep 600\n");
        shell.until("sleep 600\r\n");
        settle(&shell);
        shell.say("\x03");
        shell.until("^C");
        shell.until("ready> ");
        shell.say("echo code $?\n");
        shell.until("\ncode 130\r\n");
        shell.say("exit 6\n");
        assert_eq!(shell.sandbox.exited().end, End::Code(6));
    });
}

#[test]
fn a_signal_frame_goes_to_the_foreground_group() {
    let who = Who::Rootless;
    who.be(|| {
        let mut shell = Shell::start(who, &["bash", "--norc", "-i"]);
        shell.say("PS1='ready> '\n");
        shell.until("\nready> ");
        shell.say("sleep 600\n");
        settle(&shell);
        shell.sandbox.say(ToGuest::Signal(15));
        shell.until("Terminated");
        shell.say("exit 0\n");
        assert_eq!(shell.sandbox.exited().end, End::Code(0));
    });
}

#[test]
fn jobs_stop_and_go_on() {
    let who = Who::Rootless;
    who.be(|| {
        let mut shell = Shell::start(who, &["bash", "--norc", "-i"]);
        shell.say("PS1='ready> '\n");
        shell.until("\nready> ");
        shell.say("sleep 600\n");
        settle(&shell);
        shell.say("\x1a");
        shell.until("Stopped");
        shell.until("ready> ");
        shell.say("bg; jobs\n");
        shell.until("Running");
        shell.say("kill %1; wait; exit 0\n");
        assert_eq!(shell.sandbox.exited().end, End::Code(0));
    });
}

#[test]
fn a_resize_is_seen_inside() {
    let who = Who::Rootless;
    who.be(|| {
        let mut shell =
            Shell::start(who, &shell("trap 'stty size; exit 0' WINCH; echo up; while :; do sleep 0.05; done"));
        shell.until("up\r\n");
        shell.sandbox.say(ToGuest::Resize(Size { rows: 50, cols: 120 }));
        shell.until("50 120\r\n");
        assert_eq!(shell.sandbox.exited().end, End::Code(0));
    });
}

/// Waits until `sleep` leads the foreground group.
fn settle(shell: &Shell) {
    for _ in 0..400 {
        let group = rustix::termios::tcgetpgrp(&shell.master);
        if group.is_ok_and(|group| sleeps(group.as_raw_nonzero().get())) {
            return;
        }
        pause();
    }
    panic!("the program did not come to the foreground");
}

/// Whether this process (seen from outside) executes `sleep`.
fn sleeps(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
}

fn pause() {
    let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    rustix::event::poll(&mut [], Some(&limit)).unwrap();
}
