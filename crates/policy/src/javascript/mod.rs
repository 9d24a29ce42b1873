//! What a program of JavaScript asks for by its text, as far as tokens tell.
//!
//! The choice of a tier asks before anything runs, and the interpreter asks whether a text is a module. What is overlooked here the
//! interpreter refuses.

mod tokens;

use std::collections::BTreeSet;

use tokens::{Token, Tokens};

/// How deep parentheses and templates lie in each other before nothing more is read.
const MAX_DEPTH: usize = 10_000;

/// Names that programs of JavaScript find in Node or a browser, and that are no part of the language; sorted.
pub const ELSEWHERE: &[&str] = &[
    "AbortController",
    "AbortSignal",
    "Blob",
    "BroadcastChannel",
    "Buffer",
    "Bun",
    "ByteLengthQueuingStrategy",
    "CompressionStream",
    "CountQueuingStrategy",
    "Crypto",
    "CryptoKey",
    "CustomEvent",
    "DOMParser",
    "DecompressionStream",
    "Deno",
    "Event",
    "EventSource",
    "EventTarget",
    "File",
    "FileReader",
    "FormData",
    "HTMLElement",
    "Headers",
    "Intl",
    "MessageChannel",
    "MessageEvent",
    "MessagePort",
    "PerformanceObserver",
    "ReadableStream",
    "Request",
    "Response",
    "SharedWorker",
    "SubtleCrypto",
    "TextDecoder",
    "TextDecoderStream",
    "TextEncoder",
    "TextEncoderStream",
    "TransformStream",
    "URL",
    "URLSearchParams",
    "WebAssembly",
    "WebSocket",
    "Worker",
    "WritableStream",
    "XMLHttpRequest",
    "__dirname",
    "__filename",
    "alert",
    "cancelAnimationFrame",
    "clearImmediate",
    "clearInterval",
    "clearTimeout",
    "confirm",
    "crypto",
    "document",
    "exports",
    "fetch",
    "global",
    "indexedDB",
    "localStorage",
    "location",
    "module",
    "navigator",
    "process",
    "prompt",
    "requestAnimationFrame",
    "require",
    "self",
    "sessionStorage",
    "setImmediate",
    "setInterval",
    "setTimeout",
    "structuredClone",
    "window",
];

/// Methods whose results are those of a locale or a time zone: the interpreter has no `Intl`, and gives other ones.
const OF_A_LOCALE: &[&str] = &[
    "localeCompare",
    "toLocaleDateString",
    "toLocaleLowerCase",
    "toLocaleString",
    "toLocaleTimeString",
    "toLocaleUpperCase",
];
/// What Node and browsers keep of the last match of a regular expression, beside `$1` to `$9`.
const OF_THE_LAST_MATCH: &[&str] = &["$_", "input", "lastMatch", "lastParen", "leftContext", "rightContext"];
/// All that the console of a program has.
pub const CONSOLE: &[&str] = &["debug", "error", "info", "log", "warn"];

/// The same name, where it is one of [`ELSEWHERE`].
#[must_use]
pub fn elsewhere(name: &str) -> Option<&'static str> {
    ELSEWHERE.binary_search(&name).ok().and_then(|at| ELSEWHERE.get(at).copied())
}

/// The first thing that a program asks for and that is no part of the language: a module, or what is known to be a part of
/// a value that has another result than elsewhere or is not there; else a name of [`ELSEWHERE`] that it reads and neither declares nor sets, nor is `given`.
pub fn asks(text: &str, given: impl Fn(&str) -> bool) -> Option<String> {
    let mut tokens = Tokens::new(text).peekable();
    let mut names = Names::default();
    let mut before = [None, None];
    while let Some(token) = tokens.next() {
        let next = tokens.peek().copied();
        let part = matches!(before[1], Some(Token::Sign("." | "?.")));
        match token {
            Token::Word("import") if !part => {
                let name = match next {
                    Some(Token::Text(name)) => Some(name),
                    Some(Token::Sign("(")) => match tokens.nth(1) {
                        Some(Token::Text(name)) => Some(name),
                        _ => return Some("imports a module".to_owned()),
                    },
                    Some(Token::Sign(".")) => return Some("uses `import.meta`".to_owned()),
                    _ => None,
                };
                if let Some(name) = name {
                    return Some(format!("imports `{name}`"));
                }
            }
            // Nothing but an import or an export has a text there.
            Token::Word("from") if !part => {
                if let Some(Token::Text(name)) = next {
                    return Some(format!("imports `{name}`"));
                }
            }
            Token::Word(word) => {
                if let Some(name) = differs(word, before) {
                    return Some(format!("uses `{name}`"));
                }
                // Who only asks whether the global object has it goes on without.
                let of_global = before[0] == Some(Token::Word("globalThis")) && goes_on(next, &[".", "[", "(", "="]);
                if let Some(name) = elsewhere(word).filter(|_| !part || of_global) {
                    names.name(name, before, next);
                }
            }
            Token::Sign(sign) => names.sign(sign, next),
            Token::Text(_) | Token::Value => {}
        }
        if names.open.len() > MAX_DEPTH {
            break;
        }
        before = [before[1], Some(token)];
    }
    names.first(given).map(|name| format!("uses `{name}`"))
}

/// A part of a value that the interpreter has not, or not as Node and browsers have it.
fn differs(word: &str, before: [Option<Token<'_>>; 2]) -> Option<String> {
    if !matches!(before[1], Some(Token::Sign("." | "?."))) {
        return None;
    }
    if OF_A_LOCALE.contains(&word) {
        return Some(word.to_owned());
    }
    let of_match = || OF_THE_LAST_MATCH.contains(&word) || matches!(word.as_bytes(), [b'$', b'1'..=b'9']);
    match before[0] {
        Some(Token::Word("RegExp")) if of_match() => Some(format!("RegExp.{word}")),
        Some(Token::Word("console")) if !CONSOLE.contains(&word) => Some(format!("console.{word}")),
        _ => None,
    }
}

/// Whether it is a module, by an `import` or `export` that only modules have.
#[must_use]
pub fn is_module(text: &str) -> bool {
    let mut tokens = Tokens::new(text).peekable();
    let mut before = None;
    while let Some(token) = tokens.next() {
        let part = matches!(before, Some(Token::Sign("." | "?.")));
        let next = tokens.peek();
        let found = match token {
            Token::Word("import") => {
                matches!(next, Some(Token::Word(_) | Token::Text(_) | Token::Sign("{" | "*" | ".")))
            }
            Token::Word("export") => matches!(next, Some(Token::Word(_) | Token::Sign("{" | "*"))),
            Token::Word(_) | Token::Text(_) | Token::Value | Token::Sign(_) => false,
        };
        if found && !part {
            return true;
        }
        before = Some(token);
    }
    false
}

fn goes_on(next: Option<Token<'_>>, by: &[&str]) -> bool {
    matches!(next, Some(Token::Sign(sign)) if by.contains(&sign))
}

/// The names of [`ELSEWHERE`] in a program.
#[derive(Default)]
struct Names {
    /// Those that it reads, in order.
    read: Vec<&'static str>,
    /// Those that are its own.
    own: BTreeSet<&'static str>,
    /// The one that stands before a parenthesis: a call, or a method of this name.
    called: Option<&'static str>,
    /// That of each parenthesis that is open.
    open: Vec<Option<&'static str>>,
}

impl Names {
    fn name(&mut self, name: &'static str, before: [Option<Token<'_>>; 2], next: Option<Token<'_>>) {
        let declares = |token| matches!(token, Some(Token::Word("class" | "const" | "function" | "let" | "var")));
        let generator = before == [Some(Token::Word("function")), Some(Token::Sign("*"))];
        if declares(before[1]) || generator || goes_on(next, &["=", "=>"]) {
            self.own.insert(name);
            return;
        }
        if goes_on(next, &["("]) {
            self.called = Some(name);
            return;
        }
        let key = matches!(before[1], Some(Token::Sign("{" | ","))) && goes_on(next, &[":"]);
        let type_of = before[1] == Some(Token::Word("typeof")) && !goes_on(next, &[".", "?.", "["]);
        if !key && !type_of {
            self.read(name);
        }
    }

    /// A method has a body behind its parenthesis, and no call has.
    fn sign(&mut self, sign: &str, next: Option<Token<'_>>) {
        if sign == "(" {
            self.open.push(self.called.take());
        } else if sign == ")"
            && let Some(name) = self.open.pop().flatten()
            && !goes_on(next, &["{"])
        {
            self.read(name);
        }
    }

    fn read(&mut self, name: &'static str) {
        if !self.read.contains(&name) {
            self.read.push(name);
        }
    }

    fn first(&self, given: impl Fn(&str) -> bool) -> Option<&'static str> {
        self.read.iter().find(|name| !self.own.contains(*name) && !given(name)).copied()
    }
}

#[cfg(test)]
mod tests;
