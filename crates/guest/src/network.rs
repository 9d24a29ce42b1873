//! The network of a sandbox that reaches hosts by a broker: every address leads to the sandbox itself, where sockets wait whose
//! descriptors the broker has. They are made while we may, and passed out before anything else of ours is. Where the program is an
//! emulator, its machine's frames come here by a link.
//!
//! On another kernel than Linux they were made outside, and so was the way to them: there we see whether it leads to them.

use sys::bare::{self, Errno, Fd, Owned};

use crate::config::Mode;
use crate::fault::{At as _, Taken};
use crate::frames::FromGuest;
use crate::state::Guest;

/// Descriptors that go with one message.
const BATCH: usize = 16;
/// Addresses for documentation (RFC 5737, RFC 3849), of which no sandbox has one of its own.
const FOREIGN_IPV4: [u8; 16] = [198, 51, 100, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const FOREIGN_IPV6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// The broker always listens there, for questions about names.
const DNS: u16 = 53;
/// Details of this step: the link of a machine, and the first socket.
const LINK: usize = 4;
const FIRST_INLET: usize = 16;

pub(crate) fn network(guest: &mut Guest<'_>) -> Taken {
    let wanted = [(guest.view.local_ipv4, false, &FOREIGN_IPV4), (guest.view.local_ipv6, true, &FOREIGN_IPV6)];
    for (at, (_, ipv6, address)) in wanted.into_iter().enumerate().filter(|(_, (asked, ..))| *asked) {
        let local = match guest.view.mode {
            Mode::Bundle => bare::reach(address, ipv6, DNS).at(at).map(|()| true)?,
            Mode::Container | Mode::Process | Mode::Runtime => {
                bare::add_local_route(ipv6).at(at)?;
                bare::is_local(address, ipv6).at(at.saturating_add(2))?
            }
        };
        if let Some(seen) = guest.local.get_mut(at) {
            *seen = local;
        }
    }
    inlets(guest)
}

fn inlets(guest: &Guest<'_>) -> Taken {
    let mut batch: [Option<Owned>; BATCH] = [const { None }; BATCH];
    let mut filled = 0_usize;
    for (at, inlet) in guest.view.inlets.iter().enumerate() {
        let made = bare::inlet(inlet.ipv6, inlet.udp, inlet.port).at(at.saturating_add(FIRST_INLET))?;
        if let Some(place) = batch.get_mut(filled) {
            *place = Some(made);
        }
        filled = filled.saturating_add(1);
        if filled == BATCH {
            pass(guest, &mut batch)?;
            filled = 0;
        }
    }
    // Never with a full batch: that was passed out.
    if let Some(place) = batch.get_mut(filled).filter(|_| guest.view.link) {
        *place = Some(bare::make_link(guest.view.local_ipv6).at(LINK)?);
    }
    pass(guest, &mut batch)
}

/// Passes out what there is, and closes it here.
fn pass(guest: &Guest<'_>, batch: &mut [Option<Owned>; BATCH]) -> Taken {
    let mut fds = [Fd::new(0); BATCH];
    let mut count = 0_usize;
    for (place, made) in fds.iter_mut().zip(batch.iter().flatten()) {
        *place = made.fd();
        count = count.saturating_add(1);
    }
    if count == 0 {
        return Ok(());
    }
    let told = u8::try_from(count).or(Err(Errno::E2BIG))?;
    guest.link.tell(&FromGuest::Sockets(told), fds.get(..count).unwrap_or(&[]))?;
    *batch = [const { None }; BATCH];
    Ok(())
}
