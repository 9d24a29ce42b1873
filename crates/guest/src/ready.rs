//! What a program's first process is made of, mapped before there is any.

use core::ffi::CStr;

use sys::bare::{self, Errno, Pointers, Stack};

use crate::config::{List, View};
use crate::frames::MAX_TEXTS;

/// What a program's first process is made of; mapped before the filter, while the supervisor judges the posture.
pub(crate) struct Ready<'a> {
    pub(crate) arguments: Pointers<'a>,
    pub(crate) environment: Pointers<'a>,
    pub(crate) stack: Stack,
}

impl<'a> Ready<'a> {
    /// With the payload's texts; where the guest stays, with room for those of any other program.
    pub(crate) fn new(view: &View<'a>) -> bare::Result<Self> {
        let room = |texts: usize| if view.stay { texts.max(MAX_TEXTS) } else { texts };
        let empty = Self {
            arguments: Pointers::new(room(view.argv.len()))?,
            environment: Pointers::new(room(view.env.len()))?,
            stack: Stack::new()?,
        };
        match empty.filled(view.argv, view.env) {
            (ready, true) => Ok(ready),
            (_, false) => Err(Errno::E2BIG),
        }
    }

    /// With these texts instead; false if there is no room for all of them.
    pub(crate) fn filled<'b>(self, argv: List<'b, &'b CStr>, env: List<'b, &'b CStr>) -> (Ready<'b>, bool) {
        let (arguments, all) = self.arguments.filled(argv.iter());
        let (environment, of_both) = self.environment.filled(env.iter());
        (Ready { arguments, environment, stack: self.stack }, all && of_both)
    }

    /// With none.
    pub(crate) fn emptied(self) -> Ready<'static> {
        let arguments = self.arguments.filled(core::iter::empty()).0;
        let environment = self.environment.filled(core::iter::empty()).0;
        Ready { arguments, environment, stack: self.stack }
    }
}
