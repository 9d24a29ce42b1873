//! Stacks of their own for parsers that call themselves for each nesting, and for trees that are dropped as deep as they are.

use std::io;
use std::thread::Builder;

/// Runs a closure on a stack of so many bytes; only what is used is ever there.
///
/// A panic goes on in the caller: nothing here turns one into an answer. In the product a panic ends the process at once
/// (`panic = "abort"`), so what might make a foreign parser panic is refused before the parser sees it.
///
/// # Errors
/// There is no memory for the stack, or no thread.
pub(crate) fn run<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = Builder::new().name("parser".to_owned()).stack_size(bytes).spawn_scoped(scope, work)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
