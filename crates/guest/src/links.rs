//! The process tier's filter that asks the supervisor where links lead, and its proof: the same link, before anything is granted
//! and afterwards.

use sys::bare::{self, Errno, Fd};

use crate::fault::{At as _, Taken};
use crate::frames::FromGuest;
use crate::state::Guest;

/// Where the link of the proof leads.
const TARGET: &core::ffi::CStr = c"told";

pub(crate) fn links(guest: &mut Guest<'_>) -> Taken {
    if guest.view.asking.is_empty() {
        return Ok(());
    }
    // What is asked is read out of our memory, which a change of ids has closed; it is closed for good in the next step.
    bare::set_dumpable(true).at(0)?;
    bare::make_symlink(TARGET, Fd::CWD, guest.view.proof).at(1)?;
    let listener = bare::set_asking_filter(guest.view.asking).at(2)?;
    guest.link.tell(&FromGuest::Asking, &[listener.fd()]).at(3)?;
    // Whoever had it inside could answer in the supervisor's place.
    drop(listener);
    let mut text = [0; 16];
    guest.link_refused = bare::read_symlink(guest.view.proof, &mut text) == Err(Errno::EACCES);
    let length = bare::read_symlink(guest.view.proof, &mut text);
    guest.link_told = length.is_ok_and(|length| text.get(..length) == Some(TARGET.to_bytes()));
    Ok(())
}
