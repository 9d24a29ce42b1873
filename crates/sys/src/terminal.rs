//! Terminals: an own pair, raw mode that is always given back, window sizes.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::{OptionalActions, Termios, Winsize};

use crate::error::{ErrorContext as _, Result};

/// Rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// A pair: what is written to one end is read from the other, with a line discipline between.
#[derive(Debug)]
pub struct Pair {
    /// The side of whoever shows it.
    pub master: OwnedFd,
    /// The side of the program.
    pub slave: OwnedFd,
}

/// Opens a pair with this size, both close-on-exec and nobody's controlling terminal.
///
/// # Errors
/// ENOSPC: no more terminals. ENOENT: no devpts is mounted at `/dev/pts`.
pub fn open(size: Size) -> Result<Pair> {
    let object = || "/dev/ptmx".to_owned();
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags).named("openpt", object)?;
    rustix::pty::unlockpt(&master).named("unlockpt", object)?;
    // By descriptor, not by name: the name could be another terminal in this mount namespace.
    let slave = match rustix::pty::ioctl_tiocgptpeer(&master, flags) {
        // gVisor's kernel, which has no such request and one devpts alone.
        Err(Errno::NOTTY) => {
            let name = rustix::pty::ptsname(&master, Vec::new()).named("ptsname", object)?;
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            rustix::fs::open(name, flags, Mode::empty()).named("open", || "/dev/pts".to_owned())?
        }
        slave => slave.named("ioctl(TIOCGPTPEER)", object)?,
    };
    resize(&master, size)?;
    Ok(Pair { master, slave })
}

/// Whether a descriptor is a terminal.
pub fn is(fd: impl AsFd) -> bool {
    rustix::termios::isatty(fd)
}

/// The size of a terminal.
///
/// # Errors
/// ENOTTY.
pub fn size(fd: impl AsFd) -> Result<Size> {
    let size = rustix::termios::tcgetwinsize(fd).named("ioctl(TIOCGWINSZ)", || "terminal".into())?;
    Ok(Size { rows: size.ws_row, columns: size.ws_col })
}

/// Changes the size; the foreground group of the other side gets SIGWINCH.
///
/// # Errors
/// ENOTTY.
pub fn resize(fd: impl AsFd, size: Size) -> Result<()> {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(fd, size).named("ioctl(TIOCSWINSZ)", || "terminal".into())
}

/// A terminal in raw mode. Dropping it gives the former mode back, whatever happened meanwhile.
#[derive(Debug)]
pub struct Raw {
    terminal: OwnedFd,
    before: Termios,
}

impl Raw {
    /// Puts `terminal` into raw mode: every byte passes, nothing is echoed, no key makes a signal.
    ///
    /// # Errors
    /// ENOTTY; EIO: this process is in the background of it.
    pub fn enter(terminal: impl AsFd) -> Result<Self> {
        let object = || "terminal".to_owned();
        // A descriptor of its own: it can give the mode back even when the caller's is closed.
        let terminal = rustix::io::fcntl_dupfd_cloexec(&terminal, 3).named("fcntl(F_DUPFD_CLOEXEC)", object)?;
        let before = rustix::termios::tcgetattr(&terminal).named("tcgetattr", object)?;
        let mut raw = before.clone();
        raw.make_raw();
        // `Now`, not `Flush`: what was typed before the start belongs to the program.
        rustix::termios::tcsetattr(&terminal, OptionalActions::Now, &raw).named("tcsetattr", object)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        match rustix::termios::tcsetattr(&self.terminal, OptionalActions::Now, &self.before) {
            // A terminal that has hung up has no mode to give back.
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::termios::LocalModes;

    const SIZE: Size = Size { rows: 33, columns: 77 };

    #[test]
    fn a_pair_has_its_size_and_carries_bytes() {
        let pair = open(SIZE).unwrap();
        assert!(is(&pair.slave));
        assert_eq!(size(&pair.slave).unwrap(), SIZE);
        resize(&pair.master, Size { rows: 5, columns: 6 }).unwrap();
        assert_eq!(size(&pair.slave).unwrap(), Size { rows: 5, columns: 6 });
        rustix::io::write(&pair.slave, b"hello").unwrap();
        let mut bytes = [0; 16];
        assert_eq!(rustix::io::read(&pair.master, &mut bytes).unwrap(), 5);
    }

    #[test]
    fn raw_mode_ends_with_its_guard() {
        let pair = open(SIZE).unwrap();
        let echoes = || rustix::termios::tcgetattr(&pair.slave).unwrap().local_modes.contains(LocalModes::ECHO);
        assert!(echoes());
        let raw = Raw::enter(&pair.slave).unwrap();
        assert!(!echoes());
        drop(raw);
        assert!(echoes());
        assert!(Raw::enter(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
