//! Errors in the words of the protocol.

use std::path::Path;

use rustix::io::Errno;

use crate::words::{Code, Failure};

/// Longest message, bytes.
const MAX_MESSAGE: usize = 8 * 1024;

/// A failure of one line.
pub(crate) fn failure(code: Code, message: impl AsRef<str>) -> Failure {
    let mut message: String =
        message.as_ref().chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect();
    if message.len() > MAX_MESSAGE {
        message = message.chars().take(MAX_MESSAGE / 4).chain("...".chars()).collect();
    }
    Failure::new(code, message)
}

/// What kind of failure an answer of the kernel is.
pub(crate) fn code(errno: Errno) -> Code {
    match errno {
        Errno::NOENT => Code::NotFound,
        Errno::EXIST | Errno::NOTEMPTY => Code::Exists,
        Errno::NOTDIR => Code::NotADirectory,
        Errno::ISDIR => Code::IsADirectory,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => Code::Denied,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Code::NoSpace,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::MLINK | Errno::TOOBIG => Code::TooMany,
        Errno::NAMETOOLONG | Errno::INVAL | Errno::LOOP | Errno::ILSEQ => Code::Invalid,
        Errno::NOSYS | Errno::OPNOTSUPP | Errno::XDEV => Code::Unsupported,
        _ => Code::Failed,
    }
}

/// What the kernel answered when `doing` something with a path.
pub(crate) fn at<'a>(doing: &'a str, path: &'a Path) -> impl Fn(Errno) -> Failure + 'a {
    move |errno| failure(code(errno), format!("{doing} `{}`: {}", path.display(), error_text(errno)))
}

/// An error in words, without its number.
pub(crate) fn error_text(errno: Errno) -> String {
    let text = errno.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
