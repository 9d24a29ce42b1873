//! Pseudo terminals.

use linux_raw_sys::general::{__NR_ioctl, O_CLOEXEC, O_NOCTTY, O_RDWR, winsize};
use linux_raw_sys::ioctl::{TIOCGPGRP, TIOCGPTPEER, TIOCSCTTY, TIOCSPTLCK, TIOCSWINSZ};

use super::errno::Result;
use super::fd::{Fd, Owned};
use super::raw::{call, read, uint, write};

/// Unlocks the other side of a master.
///
/// # Errors
/// `ENOTTY` for what is no master.
pub fn unlock_terminal(master: Fd) -> Result<()> {
    let unlocked = 0_i32;
    // SAFETY: TIOCSPTLCK reads one int.
    unsafe { call(__NR_ioctl, [master.raw(), uint(TIOCSPTLCK), read(&unlocked)]) }.map(drop)
}

/// The other side, without going by a path.
///
/// # Errors
/// `EIO` while it is locked.
pub fn terminal_of(master: Fd) -> Result<Owned> {
    // SAFETY: TIOCGPTPEER takes flags of open(2) as a number.
    unsafe { call(__NR_ioctl, [master.raw(), uint(TIOCGPTPEER), uint(O_RDWR | O_NOCTTY | O_CLOEXEC)]) }.map(Owned::new)
}

/// Rows and columns; the foreground group gets SIGWINCH when they change.
///
/// # Errors
/// `ENOTTY`.
pub fn set_terminal_size(tty: Fd, rows: u16, cols: u16) -> Result<()> {
    let size = winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: TIOCSWINSZ reads a winsize.
    unsafe { call(__NR_ioctl, [tty.raw(), uint(TIOCSWINSZ), read(&size)]) }.map(drop)
}

/// The terminal becomes the one of our session.
///
/// # Errors
/// `EPERM` when we lead no session or it has another session already.
pub fn take_terminal(tty: Fd) -> Result<()> {
    // SAFETY: TIOCSCTTY takes a number.
    unsafe { call(__NR_ioctl, [tty.raw(), uint(TIOCSCTTY), 0]) }.map(drop)
}

/// The foreground group, as the master sees it.
///
/// # Errors
/// `ENOTTY`.
pub fn foreground_group(master: Fd) -> Result<i32> {
    let mut group = 0_i32;
    // SAFETY: TIOCGPGRP writes one int.
    unsafe { call(__NR_ioctl, [master.raw(), uint(TIOCGPGRP), write(&mut group)]) }?;
    Ok(group)
}
