//! The interpreters of the language tier, as the program of a run.
//!
//! [`serve`] is what fumehood's own executable becomes inside a sandbox of the process tier. It is told its limits, tries
//! them on programs of its own, says on stdout which it has, and only then reads the program from its stdin. What an
//! interpreter has no part for is said in one line, which ends with `NEEDS`.
#![forbid(unsafe_code)]

mod ended;
mod inputs;
mod javascript;
mod modules;
mod python;
mod tools;
mod wasm;

use std::io::{Read as _, Write as _};

use policy::control::{Interpreter, Source};

use crate::ended::Ended;

/// How a line on stderr begins that says what the tier has not.
const LACKS: &str = "language tier: ";
/// How it ends.
const NEEDS: &str = "; needs tier process or stronger";
/// Stack of an interpreter. Their depth is bounded; the trees of their parsers are as deep as a program is long.
const STACK: usize = 256 << 20;
/// The largest stack, most of which nobody ever writes to.
const MAX_STACK: usize = 16 << 30;

/// Becomes an interpreter with these limits for the program on stdin, under a name and with arguments. Never returns.
///
/// # Errors
/// The limits are none, or do not hold: no program was read.
pub fn serve(limits: &str, name: &str, args: Vec<String>) -> Result<std::convert::Infallible, String> {
    let limits = Interpreter::from_line(limits)?;
    let name = name.to_owned();
    let stack = stack(&limits);
    let work = move || -> Result<Ended, String> {
        match limits.source {
            Source::Python => python::prove(&limits)?,
            Source::JavaScript => javascript::prove(&limits)?,
            Source::Wasm => wasm::prove(&limits)?,
        }
        say(&format!("{}\n", limits.to_line()))?;
        let program = program()?;
        Ok(match limits.source {
            Source::Python => python::run(program, &name, &limits),
            Source::JavaScript => javascript::run(program, &name, &limits, Some(end)),
            Source::Wasm => {
                let args = std::iter::once(name).chain(args).collect();
                wasm::run(&program, args, &limits)
            }
        })
    };
    let on = |stack| std::thread::Builder::new().stack_size(stack).spawn(work.clone());
    // A host may not promise that much.
    let thread = on(stack).or_else(|_no_room| on(STACK)).map_err(|error| error.to_string())?;
    let ended = thread.join().map_err(|_panic| "the interpreter failed".to_owned())??;
    end(&ended)
}

/// QuickJS follows some chains of objects without a look at its stack, as far as its heap has room for them: such a stack is no smaller
/// than the heap, so that what holds the memory of the run ends it first.
fn stack(limits: &Interpreter) -> usize {
    let heap = match limits.source {
        Source::JavaScript => limits.memory.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        Source::Python | Source::Wasm => 0,
    };
    STACK.saturating_add(heap).min(MAX_STACK)
}

fn say(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| error.to_string())
}

/// The program: its length, and so many bytes. What follows is its own stdin.
fn program() -> Result<Vec<u8>, String> {
    let mut input = std::io::stdin().lock();
    let mut length = [0; 8];
    input.read_exact(&mut length).map_err(|error| format!("no program came: {error}"))?;
    let length = u64::from_le_bytes(length);
    let most = Interpreter::MAX_PROGRAM;
    if usize::try_from(length).map_or(true, |length| length > most) {
        return Err(format!("the program is larger than {most} bytes"));
    }
    let mut program = Vec::new();
    input.by_ref().take(length).read_to_end(&mut program).map_err(|error| error.to_string())?;
    if u64::try_from(program.len()) == Ok(length) { Ok(program) } else { Err("the program was cut".to_owned()) }
}

/// Ends the process as the program ended.
#[expect(clippy::exit, reason = "the interpreter is a process of its own, and this is its end")]
fn end(ended: &Ended) -> ! {
    let (words, code) = match ended {
        Ended::Exited(code) => (String::new(), i32::from(*code)),
        Ended::Failed(words) => (format!("{words}\n"), 1),
        Ended::Lacks(words, what) => (format!("{words}\n{LACKS}{what}{NEEDS}\n"), 1),
        Ended::Memory(words) | Ended::Steps(words) => (format!("{words}\n"), 1),
    };
    // Nobody may be there to read it.
    drop(std::io::stdout().flush());
    drop(std::io::stderr().write_all(words.trim_start_matches('\n').as_bytes()));
    match ended {
        Ended::Memory(_) => by_signal(Interpreter::OUT_OF_MEMORY),
        Ended::Steps(_) => by_signal(Interpreter::OUT_OF_STEPS),
        Ended::Lacks(..) => by_signal(Interpreter::LACKS),
        Ended::Exited(_) | Ended::Failed(_) => {}
    }
    std::process::exit(code)
}

fn by_signal(number: i32) {
    if let Some(signal) = rustix::process::Signal::from_named_raw(number) {
        // Where it does not end this process, its code does.
        rustix::process::kill_process(rustix::process::getpid(), signal).unwrap_or_default();
    }
}
