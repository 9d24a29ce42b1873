//! What the guest was doing, in words for people: no error of a start shows how a value is written in the program.

use std::time::Duration;

use guest::config::{Inlet, OwnedOp as Op, OwnedProbe as Probe, OwnedSource as Source};
use guest::frames::{FrameError, FromGuest};
use sys::pidfd::End;

/// A path that the guest was given, in backticks.
pub(super) fn path(path: &std::ffi::CStr) -> String {
    format!("`{}`", sys::proc::shown(path.to_bytes()))
}

/// Where a mount comes from.
pub(super) fn source(source: &Source) -> String {
    match source {
        Source::Path { path: at, is: _ } => format!("opening {}", path(at)),
        Source::Fd(number) => format!("taking the tree with other ids, descriptor {number}"),
    }
}

/// One operation of the tree.
pub(super) fn op(op: &Op) -> String {
    let (doing, at) = match op {
        Op::Root { .. } => return "making the new root".to_owned(),
        Op::Dir { path, .. } => ("making the folder", path),
        Op::File { path, .. } => ("writing the file", path),
        Op::Symlink { path, .. } => ("making the link", path),
        Op::Tmpfs { path, .. } => ("mounting a tmpfs on", path),
        Op::Bind { path, .. } | Op::BindInner { path, .. } => ("binding on", path),
        Op::Overlay { path, .. } => ("layering over", path),
        Op::Fill { path, .. } => ("mounting the place of a copy on", path),
        Op::Devpts { path, .. } => ("mounting terminals on", path),
        Op::Proc { path } => ("mounting processes on", path),
        Op::Mqueue { path } => ("mounting message queues on", path),
        Op::Device { path, .. } => ("showing the device", path),
        Op::Mask { path, .. } => ("hiding", path),
        Op::ReadOnly { path, .. } => ("making read-only", path),
        Op::Pin { path } => ("holding in place", path),
        Op::SetAttr { path, .. } => ("setting the attributes of", path),
    };
    format!("{doing} {}", path(at))
}

/// What a probe asks for.
pub(super) fn probe(probe: &Probe) -> String {
    match probe {
        Probe::OpenMustFail(at) => format!("opening {} must fail", path(at)),
        Probe::OpenMustWork(at) => format!("opening {} must work", path(at)),
        Probe::ReadDirMustFail(at) => format!("listing {} must fail", path(at)),
        Probe::SocketMustFail { family, kind, protocol } => {
            format!("a socket of family {family}, type {kind}, protocol {protocol} must fail")
        }
        Probe::SignalMustFail(pid) => format!("a signal to process {pid} must fail"),
        Probe::Call { number, args: _, errno: 0 } => format!("call {number} must reach the kernel"),
        Probe::Call { number, args: _, errno } => format!("call {number} must be refused with errno {errno}"),
    }
}

/// The link of a machine.
pub(super) const LINK: &str = "making the link to a machine: the kernel needs pairs of interfaces and packet sockets (the modules `veth` and `af_packet`)";

/// A socket for the broker.
pub(super) fn inlet(inlet: &Inlet) -> String {
    let (transport, family) = (if inlet.udp { "UDP" } else { "TCP" }, if inlet.ipv6 { "IPv6" } else { "IPv4" });
    format!("making the socket for {transport} over {family}, port {}", inlet.port)
}

/// What the kernel answered.
pub(super) fn answer(errno: i32) -> String {
    if errno == 0 {
        "it worked".to_owned()
    } else {
        std::io::Error::from_raw_os_error(errno).to_string().to_lowercase()
    }
}

/// Bytes of the guest that are no frame.
pub(super) fn no_frame(error: FrameError) -> String {
    match error {
        FrameError::TooLong(length) => format!("a frame of {length} bytes is longer than any may be"),
        FrameError::Version(version) => format!("a frame has version {version}, which is not ours"),
        FrameError::Kind(kind) => format!("a frame has kind {kind}, which no guest sends"),
        FrameError::Payload(kind) => format!("a frame of kind {kind} does not hold what it should"),
        FrameError::Channel(channel) => format!("a frame is about program {channel}, which nobody asked for"),
        FrameError::Request(request) => format!("a frame answers request {request}, which nobody made"),
    }
}

/// A frame, by what it tells.
pub(super) const fn frame(frame: &FromGuest) -> &'static str {
    match frame {
        FromGuest::Mounted(_) => "that the mounts are made",
        FromGuest::Terminal => "that the terminal is there",
        FromGuest::Posture(_) => "what is in force",
        FromGuest::Failed { .. } => "that a step failed",
        FromGuest::Started { .. } => "that the program runs",
        FromGuest::ExecFailed { .. } => "that the program did not start",
        FromGuest::Exited(_) => "that the program ended",
        FromGuest::Stopped(_) => "that the program was stopped",
        FromGuest::Continued => "that the program goes on",
        FromGuest::Pong => "that it is there",
        FromGuest::Sockets(_) => "that sockets are made",
        FromGuest::Asking => "that it asks about links",
        FromGuest::Settled => "that nothing can change the mounts any more",
    }
}

/// How the guest ended.
pub(super) fn end(end: End) -> String {
    match end {
        End::Exited(code) => format!("it ended with code {code}"),
        End::Signalled { signal, core: _ } => format!("signal {signal} ended it"),
    }
}

/// A time that was waited for.
pub(super) fn time(limit: Duration) -> String {
    match (limit.as_secs(), limit.subsec_millis()) {
        (seconds, 0) => format!("{seconds} s"),
        (0, millis) => format!("{millis} ms"),
        (seconds, millis) => format!("{seconds}.{millis:03} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reads_like_a_value_of_the_program() {
        let ops = [
            Op::Root { size: 1, inodes: 1 },
            Op::Dir { path: c"/a b".into(), mode: 0 },
            Op::Mask { path: c"/proc/kcore".into(), dir: false },
        ];
        let mut said: Vec<String> = ops.iter().map(op).collect();
        said.push(source(&Source::Fd(5)));
        said.push(probe(&Probe::OpenMustFail(c"/etc/passwd".into())));
        said.push(probe(&Probe::SocketMustFail { family: 2, kind: 1, protocol: 0 }));
        said.extend(
            [
                FrameError::TooLong(9),
                FrameError::Version(9),
                FrameError::Kind(9),
                FrameError::Payload(9),
                FrameError::Channel(9),
                FrameError::Request(9),
            ]
            .map(no_frame),
        );
        said.push(end(End::Signalled { signal: 9, core: false }));
        said.push(time(Duration::from_millis(1500)));
        for text in &said {
            assert!(!text.contains(['{', '}', '(', ')', '\n', '"', ':']), "{text}");
        }
        assert_eq!(said.last().unwrap(), "1.500 s");
        assert_eq!(op(&ops[2]), "hiding `/proc/kcore`");
    }
}
