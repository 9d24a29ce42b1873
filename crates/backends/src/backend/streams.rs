//! The payload's standard streams, as the supervisor has them.

use std::os::fd::OwnedFd;

use super::launch::Stdio;
use crate::StartError;

/// The descriptors for the payload's three streams.
pub(crate) type Inner = [OwnedFd; 3];

/// The supervisor's ends of the payload's streams.
#[derive(Debug, Default)]
pub struct Streams {
    /// Write end of its stdin (non-blocking); `None` = it has nothing to read.
    pub input: Option<OwnedFd>,
    /// Read end of its stdout (non-blocking), or the other end of the socket that it is.
    pub output: Option<OwnedFd>,
    /// Read end of its stderr (non-blocking).
    pub errors: Option<OwnedFd>,
    /// Master of its terminal, instead of the three.
    pub terminal: Option<OwnedFd>,
    /// The other end of the socket that is its stdin.
    pub socket: Option<OwnedFd>,
}

impl Streams {
    /// Both ends of what the payload is given.
    ///
    /// # Errors
    /// The host refused a pipe.
    pub(crate) fn make(stdio: Stdio) -> Result<(Self, Inner), StartError> {
        let error = |e| StartError::system("making the pipes", e);
        let null = || sys::channel::dev_null().map_err(|e| StartError::system("opening /dev/null", e));
        if let Stdio::Terminal(..) = stdio {
            return Ok((Self::default(), [null()?, null()?, null()?]));
        }
        if stdio == Stdio::Socket {
            let (ours, theirs) = sys::channel::pair().map_err(error)?;
            return Ok((Self { socket: Some(ours), ..Self::default() }, [theirs, null()?, null()?]));
        }
        let (errors, errors_inner) = sys::channel::pipe().map_err(error)?;
        if stdio == Stdio::Sockets {
            let (socket, first) = sys::channel::pair().map_err(error)?;
            let (output, second) = sys::channel::pair().map_err(error)?;
            for fd in [&output, &errors] {
                sys::channel::set_nonblocking(fd).map_err(error)?;
            }
            let streams = Self { socket: Some(socket), output: Some(output), errors: Some(errors), ..Self::default() };
            return Ok((streams, [first, second, errors_inner]));
        }
        let (output, output_inner) = sys::channel::pipe().map_err(error)?;
        let (input_inner, input, socket) = match stdio {
            Stdio::NoInput => (null()?, None, None),
            Stdio::Spoken => {
                let (socket, theirs) = sys::channel::pair().map_err(error)?;
                (theirs, None, Some(socket))
            }
            Stdio::Pipes | Stdio::Terminal(..) | Stdio::Socket | Stdio::Sockets => {
                let (read, write) = sys::channel::pipe().map_err(error)?;
                sys::channel::set_nonblocking(&write).map_err(error)?;
                (read, Some(write), None)
            }
        };
        for fd in [&output, &errors] {
            sys::channel::set_nonblocking(fd).map_err(error)?;
        }
        let streams = Self { input, output: Some(output), errors: Some(errors), terminal: None, socket };
        Ok((streams, [input_inner, output_inner, errors_inner]))
    }

    pub(crate) fn set_terminal(&mut self, master: OwnedFd) {
        self.terminal = Some(master);
    }
}
