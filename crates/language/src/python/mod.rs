//! Python by Monty: no system to ask, and limits on depth and on the size of each value.

use std::borrow::Cow;
use std::io::Write as _;

use monty::{MontyRun, RunProgress};
use monty_types::{
    CompileOptions, ExcType, ExtFunctionResult, MontyException, MontyObject, NameLookupResult, PrintWriter,
    PrintWriterCallback, ResourceLimits, ResourceTracker,
};
use policy::control::Interpreter;

use crate::ended::Ended;
use crate::inputs::{self, Input};
use crate::modules;
use crate::tools::{MAX_CALLS, NAME};

mod tools;

/// A module that the interpreter knows and no policy can allow.
const NEVER: &str = "os";
/// Names of Python that the interpreter has not: a program that uses them means a whole Python.
const BUILTINS: &[&str] = &[
    "BaseExceptionGroup",
    "BlockingIOError",
    "BrokenPipeError",
    "BufferError",
    "BytesWarning",
    "ChildProcessError",
    "ConnectionAbortedError",
    "ConnectionError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "DeprecationWarning",
    "EOFError",
    "EncodingWarning",
    "EnvironmentError",
    "ExceptionGroup",
    "FloatingPointError",
    "FutureWarning",
    "GeneratorExit",
    "IOError",
    "ImportWarning",
    "IndentationError",
    "InterruptedError",
    "PendingDeprecationWarning",
    "ProcessLookupError",
    "ReferenceError",
    "ResourceWarning",
    "RuntimeWarning",
    "StopAsyncIteration",
    "SyntaxWarning",
    "SystemError",
    "TabError",
    "UnicodeError",
    "UnicodeTranslateError",
    "UnicodeWarning",
    "UserWarning",
    "Warning",
    "__builtins__",
    "__file__",
    "__import__",
    "aiter",
    "anext",
    "ascii",
    "breakpoint",
    "bytearray",
    "callable",
    "classmethod",
    "compile",
    "complex",
    "copyright",
    "credits",
    "delattr",
    "dir",
    "eval",
    "exec",
    "exit",
    "format",
    "globals",
    "help",
    "input",
    "issubclass",
    "license",
    "locals",
    "memoryview",
    "open",
    "quit",
    "staticmethod",
    "super",
    "vars",
];

/// Types of Python whose methods are named by the type, too (`key=str.lower`), where the interpreter has few.
const TYPES: &[&str] = &["bytes", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple"];
/// Those methods.
const METHODS: &[&str] = &[
    "add",
    "append",
    "capitalize",
    "casefold",
    "count",
    "endswith",
    "find",
    "format",
    "from_bytes",
    "fromhex",
    "get",
    "index",
    "intersection",
    "isalnum",
    "isalpha",
    "isdigit",
    "islower",
    "isspace",
    "isupper",
    "items",
    "join",
    "keys",
    "lower",
    "lstrip",
    "maketrans",
    "pop",
    "replace",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "union",
    "upper",
    "values",
    "zfill",
];

/// Tries the limits.
///
/// # Errors
/// One does not hold; in words.
pub(crate) fn prove(limits: &Interpreter) -> Result<(), String> {
    let depth = "def f(n):\n    try:\n        return f(n + 1)\n    except RecursionError:\n        return n\nf(1)";
    let depth = match evaluate(depth, limits)? {
        Ok(MontyObject::Int(depth)) => depth,
        other => return Err(format!("`language.recursion` does not hold: {other:?}")),
    };
    if limits.recursion.is_none_or(|most| depth > i64::from(most)) {
        return Err(format!("`language.recursion` is {:?}, and calls went {depth} deep", limits.recursion));
    }
    if let Some(most) = limits.memory {
        let one = evaluate(&format!("x = 'x' * {}\nlen(x)", most.saturating_add(1)), limits)?;
        if !one.as_ref().is_err_and(out_of_memory) {
            return Err(format!("`limits.memory` does not hold for one value: {one:?}"));
        }
    }
    if !limits.modules.iter().any(|name| name == NEVER) && refused(&format!("import {NEVER}"), limits).is_none() {
        return Err("`language.modules` does not hold".to_owned());
    }
    let imports: String = limits.modules.iter().map(|name| format!("import {name}\n")).collect();
    match evaluate(&imports, limits)? {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("a module that is allowed is not there: {error}")),
    }
}

fn evaluate(text: &str, limits: &Interpreter) -> Result<Result<MontyObject, MontyException>, String> {
    let program = MontyRun::new(text.to_owned(), "proof.py", Vec::new(), CompileOptions::default());
    let program = program.map_err(|error| error.to_string())?;
    Ok(program.run(Vec::new(), tracker(limits), PrintWriter::Disabled))
}

fn tracker(limits: &Interpreter) -> ResourceTracker {
    ResourceTracker::new(ResourceLimits {
        max_memory: limits.memory.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        max_recursion_depth: limits.recursion.map_or(usize::MAX, |depth| usize::try_from(depth).unwrap_or(usize::MAX)),
        // What is asked for by name counts beside calls.
        max_suspensions: if limits.tools { MAX_CALLS } else { 0 },
        ..ResourceLimits::default()
    })
}

/// Runs a program.
pub(crate) fn run(program: Vec<u8>, name: &str, limits: &Interpreter) -> Ended {
    let text = match String::from_utf8(program) {
        Ok(text) => text,
        Err(error) => return Ended::Failed(format!("SyntaxError: {name} is not UTF-8: {}", error.utf8_error())),
    };
    if let Some(name) = refused(&text, limits) {
        let allowed = limits.modules.join(", ");
        let words = format!("ModuleNotFoundError: module '{name}' is not allowed; `language.modules` are: {allowed}");
        return Ended::Lacks(words, format!("module '{name}'"));
    }
    let (names, values): (Vec<_>, Vec<_>) = match variables(limits) {
        Ok(variables) => limits.tools.then(tools::function).into_iter().chain(variables).unzip(),
        Err(why) => return Ended::Failed(why),
    };
    let parsed = modules::imported(&text).is_some();
    let program = match MontyRun::new(text, name, names, CompileOptions::default()) {
        Ok(program) if parsed => program,
        // Whose imports could not be read is not run.
        Ok(_) => return Ended::Failed(format!("SyntaxError: {name} cannot be read")),
        Err(error) => return failed(&error),
    };
    let ended = if limits.tools {
        to_its_end(program, values, limits)
    } else {
        program.run(values, tracker(limits), PrintWriter::Callback(&mut Out)).map(drop)
    };
    match ended {
        Ok(()) => Ended::Exited(0),
        Err(error) => failed(&error),
    }
}

/// Runs a program that may call tools; whatever else it asks for is not there.
fn to_its_end(program: MontyRun, values: Vec<MontyObject>, limits: &Interpreter) -> Result<(), MontyException> {
    let mut out = Out;
    let mut progress = program.start(values, tracker(limits), PrintWriter::Callback(&mut out))?;
    loop {
        let print = PrintWriter::Callback(&mut out);
        progress = match progress {
            RunProgress::Complete(_) => return Ok(()),
            RunProgress::FunctionCall(call) if call.object_id.is_none() && call.function_name == NAME => {
                match tools::call(&call.args, &call.kwargs) {
                    Ok(result) => call.resume(result, print)?,
                    Err(error) => call.resume(error, print)?,
                }
            }
            RunProgress::FunctionCall(call) => {
                let name = call.function_name.clone();
                call.resume(ExtFunctionResult::NotFound(name), print)?
            }
            RunProgress::NameLookup(lookup) => lookup.resume(NameLookupResult::Undefined, print)?,
            RunProgress::OsCall(call) => call.resume(no_system(), print)?,
            RunProgress::ResolveFutures(_) => return Err(no_system()),
        };
    }
}

fn no_system() -> MontyException {
    MontyException::new(ExcType::NotImplementedError, Some("OS function 'system' is not implemented".to_owned()))
}

/// The first module that a program imports and may not. A program that is no Python imports none.
fn refused(text: &str, limits: &Interpreter) -> Option<String> {
    modules::imported(text)?.into_iter().find(|name| !limits.modules.contains(name))
}

/// The inputs of the policy, as variables.
fn variables(limits: &Interpreter) -> Result<Vec<(String, MontyObject)>, String> {
    let value = |input| match input {
        Input::Integer(number) => MontyObject::Int(number),
        Input::Number(number) => MontyObject::Float(number),
        Input::Boolean(yes) => MontyObject::Bool(yes),
        Input::Text(text) => MontyObject::String(text),
    };
    Ok(inputs::of(limits)?.into_iter().map(|(name, input)| (name, value(input))).collect())
}

fn out_of_memory(error: &MontyException) -> bool {
    error.exc_type() == ExcType::MemoryError && error.message().is_some_and(|m| m.starts_with("memory limit exceeded"))
}

fn failed(error: &MontyException) -> Ended {
    let words = error.to_string();
    if out_of_memory(error) {
        return Ended::Memory(words);
    }
    if error.exc_type() == ExcType::SystemExit {
        // A text is what Python prints before it exits with 1; numbers the interpreter does not take.
        return error.message().map_or(Ended::Exited(0), |text| Ended::Failed(text.to_owned()));
    }
    match lack(error) {
        Some(what) => Ended::Lacks(words, what),
        None => Ended::Failed(words),
    }
}

/// What a whole Python would have, and this one has not.
fn lack(error: &MontyException) -> Option<String> {
    let (kind, message) = (error.exc_type(), error.message().unwrap_or_default());
    let quoted = |at: usize| message.split('\'').nth(at).unwrap_or_default();
    let is = |wanted: ExcType, part: &str| kind == wanted && message.contains(part);
    if is(ExcType::ModuleNotFoundError, "No module named") {
        return Some(format!("module '{}'", quoted(1)));
    }
    if is(ExcType::NotImplementedError, "monty") || is(ExcType::SyntaxError, "monty") {
        return Some(message.rsplit_once("yet support ").map_or(message, |(_, what)| what).to_owned());
    }
    if is(ExcType::NotImplementedError, "OS function") {
        return Some(format!("the system ('{}')", quoted(1)));
    }
    let unsupported = message.contains("not yet support") || message.contains("is not supported");
    if unsupported && matches!(kind, ExcType::NotImplementedError | ExcType::TypeError) && !raised_by_program(error) {
        return Some(message.to_owned());
    }
    if let Some(what) = message.strip_prefix("Internal error in monty: ").filter(|_| kind == ExcType::RuntimeError) {
        return Some(what.to_owned());
    }
    if is(ExcType::NameError, "is not defined") && BUILTINS.contains(&quoted(1)) {
        return Some(format!("'{}'", quoted(1)));
    }
    if is(ExcType::AttributeError, "'module' object has no attribute") {
        return Some(format!("'{}' of a module", quoted(3)));
    }
    if is(ExcType::AttributeError, "module '") || is(ExcType::ImportError, "cannot import name") {
        return Some(message.to_owned());
    }
    let of_python = || TYPES.contains(&quoted(1)) && METHODS.contains(&quoted(3));
    if is(ExcType::AttributeError, "type object '") && of_python() {
        return Some(format!("'{}.{}'", quoted(1), quoted(3)));
    }
    if is(ExcType::ValueError, "pow() 2nd argument cannot be negative") && !raised_by_program(error) {
        return Some("inverses by pow()".to_owned());
    }
    if kind == ExcType::TypeError && !raised_by_program(error) {
        // Python has slices there.
        if message == "list indices must be integers or slices, not slice" {
            return Some("slices that are set".to_owned());
        }
        if let Some(what) = lacks_operator(message) {
            return Some(what);
        }
    }
    // What Python says of no text and of no whole number.
    if ["for %: 'str'", "for %: 'bytes'"].iter().any(|part| is(ExcType::TypeError, part)) {
        return Some("formatting by '%'".to_owned());
    }
    is(ExcType::TypeError, "'int' object cannot be interpreted as an integer")
        .then(|| "whole numbers of more than 64 bits in this function".to_owned())
}

/// An operator that Python has for two of its own types, and of which the interpreter says that nobody has.
fn lacks_operator(message: &str) -> Option<String> {
    let (operator, types, compared) = match message.strip_prefix("unsupported operand type(s) for ") {
        Some(rest) => rest.split_once(": ").map(|(operator, types)| (operator, types, false))?,
        None => {
            let (operator, types) = message.strip_prefix('\'')?.split_once("' not supported between instances of ")?;
            (operator, types, true)
        }
    };
    let (left, right) = types.strip_prefix('\'')?.strip_suffix('\'')?.split_once("' and '")?;
    let both = |list: &[&str]| list.contains(&left) && list.contains(&right);
    let (whole, numbers) = (both(&["bool", "int"]), both(&["bool", "int", "float"]));
    let sets = both(&["set", "frozenset", "dict_keys", "dict_items"]);
    let plain = operator.strip_suffix('=').filter(|_| !compared).unwrap_or(operator);
    let has = match plain {
        "+" | "*" | "/" | "//" | "%" | "**" | "** or pow()" | "divmod()" => numbers,
        "-" => numbers || sets,
        "<<" | ">>" => whole,
        "&" | "^" => whole || sets,
        "|" => whole || sets || both(&["dict"]) || (both(&["type", "NoneType"]) && left != right) || both(&["type"]),
        "<" | "<=" | ">" | ">=" => numbers || sets,
        _ => false,
    };
    has.then(|| format!("'{operator}' of '{left}' and '{right}'"))
}

/// Whether a `raise` of the program's own made it.
fn raised_by_program(error: &MontyException) -> bool {
    let line = error.traceback().last().and_then(|frame| frame.preview_line.as_deref());
    line.is_some_and(|line| line.trim_start().starts_with("raise"))
}

/// What a program prints goes straight to stdout.
struct Out;

impl PrintWriterCallback for Out {
    fn stdout_write(&mut self, output: Cow<'_, str>) -> Result<(), MontyException> {
        let written = std::io::stdout().lock().write_all(output.as_bytes());
        written.map_err(|error| MontyException::new(ExcType::OSError, Some(error.to_string())))
    }

    fn stdout_push(&mut self, end: char) -> Result<(), MontyException> {
        self.stdout_write(Cow::Borrowed(end.encode_utf8(&mut [0; 4])))
    }
}

#[cfg(test)]
mod tests;
