//! JavaScript by QuickJS-NG: the language and nothing around it, a heap with a bound, and a stack with one.

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::rc::Rc;

use policy::control::Interpreter;
use rquickjs::context::EvalOptions;
use rquickjs::promise::PromiseState;
use rquickjs::{Coerced, Context, Ctx, Error, Exception, Function, Persistent, Result, Runtime, Value};
use sys::javascript::Heap;

use crate::ended::Ended;
use crate::inputs::{self, Input};

mod tools;

/// Gives a program `console` and `print`.
const PRELUDE: &str = include_str!("prelude.js");
/// Its name, by which it leaves its own calls out of what it shows.
const PRELUDE_NAME: &str = "fumehood:console";
/// Most of the thread's stack that calls, the parser, JSON and regular expressions take, bytes.
const MAX_STACK: usize = 2 << 20;
/// The largest block of memory that the proof asks for.
const MAX_BLOCK: u64 = 1 << 30;
/// The largest whole number that is one in JavaScript.
const MAX_WHOLE: u64 = (1 << 53) - 1;

/// Tries the limits.
///
/// # Errors
/// One does not hold; in words.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other end is a limit that did not hold")]
pub(crate) fn prove(limits: &Interpreter) -> std::result::Result<(), String> {
    let bare = Interpreter { memory: None, inputs: std::collections::BTreeMap::new(), tools: false, ..limits.clone() };
    match evaluate(&without_anything(), "proof.js", &bare, Heap::new(None)).0 {
        Ended::Exited(0) => {}
        other => return Err(format!("the interpreter has what it may not have: {other:?}")),
    }
    let Some(most) = limits.memory else { return Ok(()) };
    // Blocks that nobody writes to: the limit is tried, and nothing of that size is made.
    let block = most.saturating_add(1).min(MAX_BLOCK);
    let count = (most / block).saturating_add(1);
    let text =
        format!("let a = []; try {{ for (let i = 0; i < {count}; i++) a.push(new ArrayBuffer({block})) }} catch {{}}");
    match evaluate(&text, "proof.js", &Interpreter { memory: limits.memory, ..bare }, Heap::new(limits.memory)).0 {
        Ended::Memory(_) => Ok(()),
        other => Err(format!("`limits.memory` does not hold for all values together: {other:?}")),
    }
}

/// A program that fails where calls have no bound, a name of a system is there, or a module can be loaded.
fn without_anything() -> String {
    format!(
        "const f = () => 1 + f();\ntry {{ f(); throw 'calls' }} catch (e) {{ if (!(e instanceof RangeError)) throw e }}\n\
         for (const name of {:?}) if (name in globalThis) throw name;\n\
         await import('std').then(() => {{ throw 'a module' }}, () => 0)",
        policy::javascript::ELSEWHERE
    )
}

/// Runs a program. `end` ends the process where it is refused memory: none of it, and nothing of QuickJS, goes on without.
pub(crate) fn run(program: Vec<u8>, name: &str, limits: &Interpreter, end: Option<fn(&Ended) -> !>) -> Ended {
    let text = match String::from_utf8(program) {
        Ok(text) => text,
        Err(error) => return Ended::Failed(format!("SyntaxError: {name} is not UTF-8: {}", error.utf8_error())),
    };
    if let Some((before, _)) = text.split_once('\0') {
        let line = before.split('\n').count();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count().saturating_add(1);
        let why = "a NUL character is not taken in a program; in a text write \\0";
        return Ended::Failed(format!("Uncaught SyntaxError: {why}\n    at {name}:{line}:{column}"));
    }
    let mut heap = Heap::new(limits.memory);
    if let Some(end) = end {
        let passed = Ended::Memory(passed(limits));
        heap = heap.ending(Box::new(move || end(&passed)));
    }
    let (ended, engine) = evaluate(&text, name, limits, heap);
    // The process ends: nobody looks for what its values leave behind.
    let _kept = ManuallyDrop::new(engine);
    ended
}

/// What a program runs in; made and used by one thread, whose stack it measures.
struct Engine {
    /// Promises that were rejected and that nobody listens to, with their reasons; they go before their context.
    rejected: Rejected,
    context: Context,
    runtime: Runtime,
}

type Kept = Persistent<Value<'static>>;
type Rejected = Rc<RefCell<Vec<(Kept, Kept)>>>;

/// Runs a program to its end, jobs included.
fn evaluate(text: &str, name: &str, limits: &Interpreter, heap: Heap) -> (Ended, Option<Engine>) {
    let refused = heap.refused();
    let (ended, engine) = match Engine::new(heap) {
        Ok(engine) => (engine.run(text, name, limits, &refused), Some(engine)),
        Err(error) => (Ended::Failed(error.to_string()), None),
    };
    // A program cannot hide it by what it does then.
    if refused.get() {
        return (Ended::Memory(passed(limits)), engine);
    }
    (ended, engine)
}

fn passed(limits: &Interpreter) -> String {
    let most = limits.memory.map_or_else(|| "what the machine has".to_owned(), |bytes| format!("{bytes} bytes"));
    format!("out of memory: the values of the program would have passed {most}")
}

impl Engine {
    fn new(heap: Heap) -> Result<Self> {
        let refused = heap.refused();
        let runtime = Runtime::new_with_alloc(heap)?;
        runtime.set_max_stack_size(MAX_STACK);
        runtime.set_interrupt_handler(Some(Box::new(move || refused.get())));
        let rejected = Rejected::default();
        let list = Rc::clone(&rejected);
        runtime.set_host_promise_rejection_tracker(Some(Box::new(move |ctx, promise, reason, handled| {
            let promise = Persistent::save(&ctx, promise);
            let mut list = list.borrow_mut();
            if handled {
                // It was the last one, as a rule.
                if let Some(at) = list.iter().rposition(|(one, _)| *one == promise) {
                    list.remove(at);
                }
            } else {
                list.push((promise, Persistent::save(&ctx, reason)));
            }
        })));
        let context = Context::full(&runtime)?;
        Ok(Self { rejected, context, runtime })
    }

    fn run(&self, text: &str, name: &str, limits: &Interpreter, refused: &Rc<Cell<bool>>) -> Ended {
        let inputs = match inputs::of(limits) {
            Ok(inputs) => inputs,
            Err(why) => return Ended::Failed(why),
        };
        let large = |input: &Input| matches!(input, Input::Integer(number) if number.unsigned_abs() > MAX_WHOLE);
        if let Some((name, _)) = inputs.iter().find(|(_, input)| large(input)) {
            return Ended::Failed(format!("input `{name}` is larger than the whole numbers of JavaScript"));
        }
        let begun = self.context.with(|ctx| {
            let show = match prepared(&ctx, inputs, limits.tools) {
                Ok(show) => show,
                Err(error) => return Err(Ended::Failed(error.to_string())),
            };
            let begun = begin(&ctx, text, name).map_err(|error| uncaught(&show, thrown(&ctx, &error)))?;
            // What was thrown before the first `await` ends it before any job.
            if let Some(promise) = begun.as_promise()
                && promise.state() == PromiseState::Rejected
                && let Some(Err(error)) = promise.result::<Value<'_>>()
            {
                return Err(uncaught(&show, thrown(&ctx, &error)));
            }
            Ok((Persistent::save(&ctx, show), Persistent::save(&ctx, begun)))
        });
        let (show, begun) = match begun {
            Ok(begun) => begun,
            Err(ended) => {
                self.rejected.take();
                return ended;
            }
        };
        let mut failed = None;
        while !refused.get() {
            match self.runtime.execute_pending_job() {
                Ok(true) => {}
                Ok(false) => break,
                Err(job) => {
                    failed = Some(job.0.with(|ctx| Persistent::save(&ctx, ctx.catch())));
                    break;
                }
            }
        }
        let reason = failed.or(self.rejected.take().into_iter().next().map(|(_, reason)| reason));
        self.context.with(|ctx| {
            let (show, begun) = match (show.restore(&ctx), begun.restore(&ctx)) {
                (Ok(show), Ok(begun)) => (show, begun),
                (Err(error), _) | (_, Err(error)) => return Ended::Failed(error.to_string()),
            };
            match reason.map(|reason| reason.restore(&ctx)) {
                Some(Ok(reason)) => return uncaught(&show, Ok(reason)),
                Some(Err(error)) => return Ended::Failed(error.to_string()),
                None => {}
            }
            match begun.as_promise().map(rquickjs::Promise::state) {
                Some(PromiseState::Pending) => {
                    Ended::Failed("the program awaits what nothing of it will bring about".to_owned())
                }
                Some(PromiseState::Resolved | PromiseState::Rejected) | None => Ended::Exited(0),
            }
        })
    }
}

/// Gives the program its functions and variables; what shows a value comes back.
fn prepared<'js>(ctx: &Ctx<'js>, inputs: Vec<(String, Input)>, tools: bool) -> Result<Function<'js>> {
    let write = Function::new(ctx.clone(), |ctx: Ctx<'_>, errors: bool, text: String| {
        let written = match errors {
            true => std::io::stderr().lock().write_all(text.as_bytes()),
            false => std::io::stdout().lock().write_all(text.as_bytes()),
        };
        written.map_err(|error| Exception::throw_message(&ctx, &error.to_string()))
    })?;
    let mut options = EvalOptions::default();
    options.filename = Some(PRELUDE_NAME.to_owned());
    let prelude: Function<'js> = ctx.eval_with_options(PRELUDE, options)?;
    let show = prelude.call((write,))?;
    let globals = ctx.globals();
    for (name, input) in inputs {
        match input {
            Input::Integer(number) => globals.set(name, number)?,
            Input::Number(number) => globals.set(name, number)?,
            Input::Boolean(yes) => globals.set(name, yes)?,
            Input::Text(text) => globals.set(name, text)?,
        }
    }
    if tools {
        tools::give(ctx)?;
    }
    Ok(show)
}

/// Runs it until it ends or waits.
fn begin<'js>(ctx: &Ctx<'js>, text: &str, name: &str) -> Result<Value<'js>> {
    let module = name.ends_with(".mjs") || policy::javascript::is_module(text);
    let mut options = EvalOptions::default();
    options.global = !module;
    options.strict = module;
    // A module may wait without it.
    options.promise = !module;
    options.filename = Some(name.to_owned());
    ctx.eval_with_options(text, options)
}

/// What was thrown, or words where it is no value.
fn thrown<'js>(ctx: &Ctx<'js>, error: &Error) -> std::result::Result<Value<'js>, String> {
    if error.is_exception() { Ok(ctx.catch()) } else { Err(error.to_string()) }
}

/// How what nobody caught ends a program.
fn uncaught<'js>(show: &Function<'js>, value: std::result::Result<Value<'js>, String>) -> Ended {
    let value = match value {
        Ok(value) => value,
        Err(words) => return Ended::Failed(words),
    };
    let words = show.call::<_, String>((value.clone(),)).unwrap_or_else(|_none| "what cannot be shown".to_owned());
    let words = format!("Uncaught {words}");
    let part = |name: &str| value.as_object()?.get::<_, Coerced<String>>(name).ok().map(|text| text.0);
    let what = value.is_error().then(|| lack(&part("name")?, &part("message")?)).flatten();
    match what {
        Some(what) => Ended::Lacks(words, what),
        None => Ended::Failed(words),
    }
}

/// What a program finds elsewhere, and not here.
fn lack(kind: &str, message: &str) -> Option<String> {
    if kind != "ReferenceError" {
        return None;
    }
    let name = message.strip_suffix(" is not defined").and_then(policy::javascript::elsewhere);
    // In one line, whatever it is called.
    let module = || {
        let name = message.strip_prefix("could not load module '")?.strip_suffix('\'')?;
        Some(format!("module '{}'", name.replace(char::is_control, " ")))
    };
    name.map(|name| format!("'{name}'")).or_else(module)
}

#[cfg(test)]
mod tests;
