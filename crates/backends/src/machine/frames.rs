//! The frames of a machine's network device, carried between the emulator and the network namespace of its own sandbox.
//!
//! # Promises
//! What a machine sends reaches that namespace and no other place, where every address is the namespace's own and the only sockets
//! are the broker's. Neither emulator nor machine has the packet socket: they say whole frames, of which those of IP and ARP are
//! carried. Nothing waits here: a frame that is not taken at once is lost, as on any network.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use serde_json::json;
use sys::channel::Interest;

use super::monitor::Monitor;
use crate::StartError;

/// Longest frame of the link: 1500 bytes, and the header of Ethernet.
const MAX_FRAME: usize = 1514;
/// Header of Ethernet: two addresses and what it carries.
const HEADER: usize = 14;
/// IPv4, ARP, IPv6.
const CARRIED: [[u8; 2]; 3] = [[8, 0], [8, 6], [0x86, 0xdd]];
/// Frames of one side that are carried before the other has its turn.
const TURN: usize = 64;
/// What the emulator knows the socket by.
const NAME: &str = "frames";
/// Its words: the machine's only network device, and the hub to which the socket is joined when it has come.
pub(super) const WORDS: [(&str, &str); 2] =
    [("-netdev", "hubport,id=device,hubid=0"), ("-device", "virtio-net-pci,netdev=device,romfile=")];

/// Carries frames until the emulator is gone; its end of the pair.
///
/// # Errors
/// No pair of sockets can be had, or no thread.
pub(super) fn carry(link: OwnedFd) -> Result<OwnedFd, StartError> {
    let failed = |what: &'static str| move |error: sys::error::Error| StartError::system(what, error);
    let (ours, theirs) = sys::channel::packets().map_err(failed("making the machine's network"))?;
    for fd in [&link, &ours] {
        sys::channel::set_nonblocking(fd).map_err(failed("making the machine's network"))?;
    }
    let (link, ours) = (File::from(link), File::from(ours));
    let thread = std::thread::Builder::new().name("fumehood-frames".to_owned()).spawn(move || {
        // A signal is for the caller's threads.
        sys::signals::block_all();
        run(&link, &ours);
    });
    thread.map(|_| theirs).map_err(|error| StartError::system("making a thread", error))
}

/// Has the emulator join its end to the machine's device.
pub(super) fn join(monitor: &mut Monitor, end: &OwnedFd) -> Result<(), String> {
    monitor.give(NAME, end.as_fd())?;
    monitor.order("netdev_add", &json!({ "type": "dgram", "id": NAME, "local": { "type": "fd", "str": NAME } }))?;
    monitor.order("netdev_add", &json!({ "type": "hubport", "id": "joined", "hubid": 0, "netdev": NAME }))
}

fn run(link: &File, emulator: &File) {
    loop {
        let interests = [link, emulator].map(|file| Interest { fd: file.as_fd(), write: false });
        if sys::channel::wait(&interests, None).is_err() {
            return;
        }
        if !(turn(link, emulator) && turn(emulator, link)) {
            return;
        }
    }
}

/// Carries what is there, but not more than a turn; false when nothing can come any more.
fn turn(mut from: &File, mut to: &File) -> bool {
    // One byte more than a frame may have: longer ones are known by it.
    let mut frame = [0; MAX_FRAME + 1];
    for _ in 0..TURN {
        match from.read(&mut frame) {
            Ok(0) => return false,
            Ok(count) => {
                let frame = frame.get(..count).unwrap_or_default();
                if is_carried(frame) {
                    // Who does not take it now has lost it; that the emulator is gone is heard from its side.
                    drop(to.write(frame));
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
    true
}

fn is_carried(frame: &[u8]) -> bool {
    let kind = frame.get(HEADER - 2..HEADER);
    frame.len() <= MAX_FRAME && CARRIED.iter().any(|carried| kind == Some(carried))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: [u8; 2], length: usize) -> Vec<u8> {
        let mut frame = vec![7; length];
        frame[12..14].copy_from_slice(&kind);
        frame
    }

    #[test]
    fn whole_frames_of_ip_are_carried_both_ways_and_nothing_else_is() {
        let (inner, link) = sys::channel::packets().unwrap();
        let emulator = File::from(carry(link).unwrap());
        let link = File::from(inner);
        let mut buffer = [0; 4096];
        let odd = [frame([0x81, 0], 60), frame([0x80, 0x35], 60), frame([8, 0], MAX_FRAME + 1), vec![8; 13]];
        for good in [frame([8, 0], 60), frame([8, 6], 60), frame([0x86, 0xdd], MAX_FRAME), frame([8, 0], HEADER)] {
            for (mut from, mut to) in [(&emulator, &link), (&link, &emulator)] {
                odd.iter().for_each(|bad| assert_eq!(from.write(bad).unwrap(), bad.len()));
                from.write_all(&good).unwrap();
                let count = to.read(&mut buffer).unwrap();
                assert_eq!(buffer.get(..count), Some(good.as_slice()));
            }
        }
        // With the emulator all is gone, so that nothing holds the namespace any more.
        drop(emulator);
        assert_eq!((&link).read(&mut buffer).unwrap(), 0);
    }

    #[test]
    fn frames_that_nobody_takes_are_lost_and_hold_nobody_up() {
        let (inner, link) = sys::channel::packets().unwrap();
        let emulator = File::from(carry(link).unwrap());
        let mut link = File::from(inner);
        for _ in 0..5000 {
            link.write_all(&frame([8, 0], MAX_FRAME)).unwrap();
        }
        (&emulator).write_all(&frame([8, 6], 60)).unwrap();
        let mut buffer = [0; 4096];
        assert_eq!(link.read(&mut buffer).unwrap(), 60, "the other way is as free as before");
    }
}
