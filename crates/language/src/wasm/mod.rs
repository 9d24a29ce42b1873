//! WebAssembly by wasmi, with WASI preview 1 and nothing of the host behind it.

mod wasi;

use policy::control::Interpreter;
use wasmi::errors::{ErrorKind, InstantiationError, MemoryError, TableError};
use wasmi::{Config, Engine, Error, Linker, Module, Store, StoreLimits, StoreLimitsBuilder, TrapCode};

use crate::ended::Ended;
use wasi::State;

/// Most memories and tables of one program.
const MANY: usize = 16;
/// Bytes of a page, and most pages of a memory.
const PAGE: u64 = 65_536;
const MAX_PAGES: u64 = 65_535;
/// Bytes of an element of a table.
const ELEMENT: u64 = 16;

/// What a program's store holds.
pub(crate) struct StoreData {
    pub(crate) state: State,
    limits: StoreLimits,
}

/// A module with a memory of one page, whose `_start` has this body, of at most a hundred bytes.
fn module(body: &[u8]) -> Vec<u8> {
    let length = |more: usize| u8::try_from(body.len().saturating_add(more)).unwrap_or(u8::MAX);
    let mut all = vec![
        0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, // header
        1, 4, 1, 0x60, 0, 0, // type 0: () -> ()
        3, 2, 1, 0, // function 0 of type 0
        5, 3, 1, 0, 1, // memory 0: at least one page
        7, 10, 1, 6, b'_', b's', b't', b'a', b'r', b't', 0, 0, // export "_start"
    ];
    // One body without locals, and its end.
    all.extend([10, length(4), 1, length(2), 0]);
    all.extend_from_slice(body);
    all.push(0x0b);
    all
}

/// `_start` calls itself.
const DEEP: &[u8] = &[0x10, 0];
/// A loop without an end.
const ENDLESS: &[u8] = &[0x03, 0x40, 0x0c, 0, 0x0b];

/// The memory grows by so many pages at once, and what comes of it is dropped.
fn grows(pages: u64) -> Vec<u8> {
    let mut body = vec![0x41];
    let mut left = pages;
    // A signed number, seven bits at a time.
    loop {
        let low = u8::try_from(left & 0x7f).unwrap_or_default();
        left >>= 7;
        let last = left == 0 && low & 0x40 == 0;
        body.push(if last { low } else { low | 0x80 });
        if last {
            break;
        }
    }
    body.extend([0x40, 0, 0x1a]);
    body
}

/// Tries the limits.
///
/// # Errors
/// One does not hold; in words.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other end is a limit that did not hold")]
pub(crate) fn prove(limits: &Interpreter) -> Result<(), String> {
    let unstepped = Interpreter { steps: None, ..limits.clone() };
    match run(&module(DEEP), Vec::new(), &unstepped) {
        Ended::Failed(_) => {}
        other => return Err(format!("`language.recursion` does not hold: {other:?}")),
    }
    if let Some(bytes) = limits.memory {
        // At once, so that the limit is tried and nothing of that size is made.
        let pages = (bytes / PAGE).saturating_add(1).min(MAX_PAGES);
        match run(&module(&grows(pages)), Vec::new(), &unstepped) {
            Ended::Memory(_) => {}
            other => return Err(format!("`limits.memory` does not hold for one memory: {other:?}")),
        }
    }
    if limits.steps.is_some() {
        // The least that a policy can ask for ends it long before its depth does.
        match run(&module(ENDLESS), Vec::new(), &Interpreter { steps: Some(10), memory: None, ..limits.clone() }) {
            Ended::Steps(_) => {}
            other => return Err(format!("`language.steps` does not hold: {other:?}")),
        }
    }
    Ok(())
}

fn engine(limits: &Interpreter) -> Engine {
    let mut config = Config::default();
    config.set_max_recursion_depth(
        limits.recursion.map_or(usize::MAX, |depth| usize::try_from(depth).unwrap_or(usize::MAX)),
    );
    config.consume_fuel(limits.steps.is_some());
    Engine::new(&config)
}

fn store_limits(limits: &Interpreter) -> StoreLimits {
    let most = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut builder = StoreLimitsBuilder::new().instances(1).memories(MANY).tables(MANY).trap_on_grow_failure(true);
    if let Some(bytes) = limits.memory {
        builder = builder.memory_size(most(bytes)).table_elements(most(bytes / ELEMENT));
    }
    builder.build()
}

/// Runs a program. `args` begin with its name.
pub(crate) fn run(program: &[u8], args: Vec<String>, limits: &Interpreter) -> Ended {
    let engine = engine(limits);
    let module = match Module::new(&engine, program) {
        Ok(module) => module,
        Err(error) => return unread(&error),
    };
    let mut linker = Linker::new(&engine);
    let missing = match wasi::link(&mut linker, &module) {
        Ok(missing) => missing,
        Err(error) => return Ended::Failed(error.to_string()),
    };
    if let Some(what) = missing {
        return Ended::Lacks(
            format!("the module imports {what}, which is not WASI preview 1"),
            format!("import {what}"),
        );
    }
    let held = StoreData { state: State::new(args), limits: store_limits(limits) };
    let mut store = Store::new(&engine, held);
    store.limiter(|held| &mut held.limits);
    if let Some(steps) = limits.steps
        && let Err(error) = store.set_fuel(steps)
    {
        return Ended::Failed(error.to_string());
    }
    let instance = match linker.instantiate_and_start(&mut store, &module) {
        Ok(instance) => instance,
        Err(error) => return failed(&error),
    };
    let Ok(start) = instance.get_typed_func::<(), ()>(&store, "_start") else {
        return Ended::Failed(
            "the module exports no function `_start` that takes nothing and gives nothing".to_owned(),
        );
    };
    match start.call(&mut store, ()) {
        Ok(()) => Ended::Exited(0),
        Err(error) => failed(&error),
    }
}

/// What is no module, or one of a WebAssembly that has more than this one.
fn unread(error: &Error) -> Ended {
    let why = error.to_string();
    let words = format!("it is no WebAssembly module that can run here: {why}");
    // The reader names each proposal that it knows and that is not in force.
    let more = ["not enabled", "component"].iter().any(|part| why.contains(part));
    if more { Ended::Lacks(words, why.replace(char::is_control, " ")) } else { Ended::Failed(words) }
}

fn failed(error: &Error) -> Ended {
    if let Some(code) = error.i32_exit_status() {
        // Cut as POSIX does it, and no failure is a success.
        let cut = u8::try_from(code & 0xff).unwrap_or(1);
        return Ended::Exited(if cut == 0 && code != 0 { 1 } else { cut });
    }
    let words = format!("the program ended: {error}");
    if is_limited(error.kind()) {
        return Ended::Memory(words);
    }
    match error.as_trap_code() {
        Some(TrapCode::OutOfFuel) => Ended::Steps(words),
        Some(TrapCode::GrowthOperationLimited | TrapCode::OutOfSystemMemory) => Ended::Memory(words),
        Some(_) | None => Ended::Failed(words),
    }
}

/// Whether a memory or table could not be as large at the start as the module has it.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other error is no limit of ours")]
fn is_limited(kind: &ErrorKind) -> bool {
    let (memory, table) = match kind {
        ErrorKind::Instantiation(InstantiationError::FailedToInstantiateMemory(error)) => (Some(error), None),
        ErrorKind::Instantiation(InstantiationError::FailedToInstantiateTable(error)) => (None, Some(error)),
        _ => (None, None),
    };
    matches!(memory, Some(MemoryError::ResourceLimiterDeniedAllocation | MemoryError::OutOfSystemMemory))
        || matches!(table, Some(TableError::ResourceLimiterDeniedAllocation | TableError::OutOfSystemMemory))
}

#[cfg(test)]
mod tests;
