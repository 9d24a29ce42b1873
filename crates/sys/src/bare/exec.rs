//! execve(2) from texts that already lie in memory with their NUL.

use core::ffi::CStr;
use core::marker::PhantomData;

use linux_raw_sys::general::{__NR_execve, __NR_execveat, AT_EMPTY_PATH};

use super::errno::{Errno, Result};
use super::fd::Fd;
use super::memory::map_words;
use super::raw::{call, read, text, uint};

/// A NULL-terminated table of texts.
#[derive(Debug)]
pub struct Pointers<'a> {
    // INVARIANT: the words are addresses of C strings that live for 'a, then at least one 0.
    words: &'static mut [usize],
    used: usize,
    texts: PhantomData<&'a CStr>,
}

impl<'a> Pointers<'a> {
    /// Room for `capacity` texts, mapped for good.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(capacity: usize) -> Result<Self> {
        let words = map_words(capacity.checked_add(1).ok_or(Errno::ENOMEM)?)?;
        Ok(Self { words, used: 0, texts: PhantomData })
    }

    /// These texts instead of those before, in the same room; false if there is none for all of them beside the final NULL.
    pub fn filled<'b>(self, texts: impl Iterator<Item = &'b CStr>) -> (Pointers<'b>, bool) {
        let Self { words, used, texts: _ } = self;
        words.iter_mut().take(used).for_each(|word| *word = 0);
        let mut filled = Pointers { words, used: 0, texts: PhantomData };
        let last = filled.words.len().saturating_sub(1);
        for one in texts {
            let Some(place) = filled.words.get_mut(filled.used).filter(|_| filled.used < last) else {
                return (filled, false);
            };
            *place = text(one);
            filled.used = filled.used.saturating_add(1);
        }
        (filled, true)
    }
}

/// Becomes another program; returns only to say why not.
pub fn execve(path: &CStr, arguments: &Pointers<'_>, environment: &Pointers<'_>) -> Errno {
    // SAFETY: a C string and two tables of C strings that end with NULL, by their invariant.
    let failed = unsafe { call(__NR_execve, [text(path), read(&*arguments.words), read(&*environment.words)]) };
    failed.err().unwrap_or(Errno::EIO)
}

/// Becomes the program that stands at a descriptor; returns only to say why not.
pub fn execute_descriptor(program: Fd, arguments: &Pointers<'_>, environment: &Pointers<'_>) -> Errno {
    let (argv, envp) = (read(&*arguments.words), read(&*environment.words));
    // SAFETY: an empty C string and two tables of C strings that end with NULL, by their invariant.
    let failed = unsafe { call(__NR_execveat, [program.raw(), text(c""), argv, envp, uint(AT_EMPTY_PATH)]) };
    failed.err().unwrap_or(Errno::EIO)
}
