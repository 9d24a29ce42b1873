//! What the interpreter runs, what it refuses, and that its limits hold against programs that grow.

use std::collections::BTreeMap;

use policy::control::Source;

use super::*;

fn limits() -> Interpreter {
    Interpreter {
        source: Source::JavaScript,
        modules: Vec::new(),
        steps: None,
        recursion: None,
        memory: Some(32 << 20),
        inputs: BTreeMap::new(),
        tools: false,
    }
}

/// On a thread whose stack is as large as that of [`crate::serve`].
fn on_its_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    on_the_stack_of(&limits(), work)
}

fn on_the_stack_of<T: Send + 'static>(limits: &Interpreter, work: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(crate::stack(limits)).spawn(work).unwrap().join().unwrap()
}

fn ended(text: &str) -> Ended {
    let text = text.as_bytes().to_vec();
    on_its_stack(move || run(text, "main.js", &limits(), None))
}

#[test]
fn the_limits_are_proven_and_a_lack_of_one_is_seen() {
    for memory in [None, Some(1 << 20), Some(32 << 20), Some(5 << 30)] {
        let limits = Interpreter { memory, ..limits() };
        assert_eq!(on_its_stack(move || prove(&limits)), Ok(()), "{memory:?}");
    }
    // The proof makes blocks that pass the limit, which nothing else would then stop.
    let unlimited = Interpreter { memory: None, ..limits() };
    let block = "new ArrayBuffer(64 << 20)".as_bytes().to_vec();
    assert_eq!(on_its_stack(move || run(block, "main.js", &unlimited, None)), Ended::Exited(0));
    // It fails where a name is there that should not be.
    let there = format!("globalThis.process = 1;\n{}", without_anything());
    assert!(matches!(ended(&there), Ended::Failed(words) if words == "Uncaught process"));
    let bounded = without_anything().replace("1 + f()", "1");
    assert!(matches!(ended(&bounded), Ended::Failed(words) if words == "Uncaught calls"));
}

#[test]
fn the_console_has_what_the_choice_of_a_tier_takes_it_to_have() {
    let has =
        format!("if (Object.keys(console).sort().join() !== '{}') throw 1", policy::javascript::CONSOLE.join(","));
    assert_eq!(ended(&has), Ended::Exited(0));
}

#[test]
fn what_the_tier_is_for_runs() {
    for text in [
        "if (1 + 1 !== 2) throw 1",
        "if (Math.floor(Math.sqrt(17)) !== 4) throw 1",
        "if (JSON.stringify(JSON.parse('[1, {\"a\": null}]')) !== '[1,{\"a\":null}]') throw 1",
        "if ('a1b22'.match(/\\d+/g).join() !== '1,22') throw 1",
        "const fib = n => n < 2 ? n : fib(n - 1) + fib(n - 2); if (fib(15) !== 610) throw 1",
        "if (2n ** 100n !== 1267650600228229401496703205376n) throw 1",
        "if (new Map([[1, 2]]).get(1) !== 2 || ![...new Set('aab')].includes('b')) throw 1",
        "class A { #x = 1; get x() { return this.#x } }; if (new A().x !== 1) throw 1",
        "if (new Date(0).toISOString() !== '1970-01-01T00:00:00.000Z') throw 1",
        "if (new Float64Array([1, 2]).reduce((a, b) => a + b) !== 3) throw 1",
        "try { null.x } catch (e) { if (!(e instanceof TypeError)) throw 1 }",
        "x = 5; var y = x; if (globalThis.y !== 5) throw 1",
        "let done = 0; Promise.resolve().then(() => done++); await null; await null; if (done !== 1) throw 1",
        "async function f() { return 1 }; f().then(v => { if (v !== 1) throw 1 }).catch(() => 0)",
        "const late = Promise.reject(1); queueMicrotask(() => late.catch(() => 0))",
        "export const x = 1; if (this !== undefined) throw 1",
        "#!/usr/bin/env node\nif (typeof require !== 'undefined') throw 1",
        "if (new Function('return 6 * 7')() !== 42 || eval('1 + 1') !== 2) throw 1",
        "let text = ''; for (let i = 0; i < 100000; i++) text += 'x'; if (text.length !== 100000) throw 1",
        "console.log(); print(undefined, null, 1n, Symbol('s'), [1], { a: [1n] }, new Map([[1, 2]]), print, '\\ud800')",
        "const o = {}; o.o = o; console.log(o, Object.create(null), new Proxy({}, {}), { toJSON() { throw 1 } })",
        "console.error(new TypeError('x'), { toString() { throw 1 } }, new (class A extends Error {})('a'))",
        // Whatever a value does, printing it is no error.
        "const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); console.log(proxy, [proxy], { proxy })",
        "const { proxy, revoke } = Proxy.revocable(() => 0, {}); revoke(); console.log(proxy)",
        "console.log({ get [Symbol.toStringTag]() { throw 1 } }, { get a() { throw 1 } }, { toJSON() { throw 1 } })",
        "const e = new Error('x'); Object.defineProperty(e, 'stack', { get() { throw 1 } }); console.log(e)",
        "console.log(Object.defineProperty(() => 0, 'name', { get() { throw 1 } }), Object.assign(new Error, { name: Symbol() }))",
        "Array.prototype.map = String.prototype.split = Set.prototype.add = JSON.stringify = null; console.log({}, new Error('x'))",
        "const a = performance.now(); if (!(a >= 0 && a < 1e7 && performance.now() >= a)) throw a",
        "if (Math.abs(performance.timeOrigin + performance.now() - Date.now()) > 1e4) throw performance.timeOrigin",
    ] {
        assert_eq!(ended(text), Ended::Exited(0), "{text}");
    }
}

#[test]
fn an_error_of_the_program_has_its_message_and_its_stack() {
    let mut wrong = Vec::new();
    for (text, words) in [
        (
            "function f() {\n  return null.x\n}\nf()",
            &["Uncaught TypeError: cannot read property 'x' of null", "at f (main.js:"][..],
        ),
        ("let x =", &["Uncaught SyntaxError", "main.js:1"]),
        ("throw 'a text'", &["Uncaught a text"]),
        ("throw { code: 3 }", &["Uncaught {\"code\":3}"]),
        ("throw null", &["Uncaught null"]),
        ("throw -0", &["Uncaught -0"]),
        ("const o = { a: [1n] }; o.o = o; throw o", &["Uncaught {\"a\":[\"1n\"],\"o\":\"[Circular]\"}"]),
        ("const a = [1], o = [a, { a }, a]; o.push(o); throw o", &["Uncaught [[1],{\"a\":[1]},[1],\"[Circular]\"]"]),
        ("const m = new Map(); m.set('m', [m, m]); throw m", &["Uncaught Map [[\"m\",[{},{}]]]"]),
        ("Promise.reject(new Error('late'))", &["Uncaught Error: late"]),
        ("queueMicrotask(() => { throw new Error('job') })", &["Uncaught Error: job"]),
        ("await null; throw new RangeError('after')", &["Uncaught RangeError: after"]),
        ("await new Promise(() => 0)", &["awaits what nothing"]),
        ("throw new Proxy({}, { get() { throw 1 } })", &["Uncaught"]),
        ("throw { get name() { throw 1 }, get message() { throw 1 } }", &["Uncaught"]),
        ("let x\nprint('ü\0b')", &["Uncaught SyntaxError: a NUL", "main.js:2:9"]),
        ("throw new ReferenceError('could not load the list')", &["ReferenceError: could not load the list"]),
        ("if (true) {\n  never_there()\n}", &["ReferenceError: never_there is not defined"]),
    ] {
        let Ended::Failed(said) = ended(text) else { panic!("{text}: it did not fail") };
        if !words.iter().all(|part| said.contains(part)) {
            wrong.push(format!("{text}: {said}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(matches!(run(vec![0xff], "main.js", &limits(), None), Ended::Failed(words) if words.contains("UTF-8")));
    // An error that was made while it was printed says nothing of what prints.
    let made = ended("let e; console.log({ toJSON() { e = new Error('seen') } }); throw e");
    assert!(
        matches!(&made, Ended::Failed(words) if words.contains("toJSON (main.js:1") && !words.contains("fumehood")),
        "{made:?}"
    );
    // What comes after a failure is not run.
    let ended = ended("Promise.resolve().then(() => { throw 'job' }); throw 'first'");
    assert_eq!(ended, Ended::Failed("Uncaught first".to_owned()));
}

#[test]
fn the_host_is_not_there_to_be_asked() {
    for (text, what) in [
        ("require('fs').readFileSync('/etc/passwd')", "'require'"),
        ("import fs from 'fs'", "module 'fs'"),
        ("import { readFile } from \"node:fs/promises\"\nreadFile('x')", "module 'node:fs/promises'"),
        ("await import('os')", "module 'os'"),
        ("import('std').then(m => m.open('/etc/passwd'))", "module 'std'"),
        ("new Function('return process')().env", "'process'"),
        ("fetch('http://127.0.0.1')", "'fetch'"),
        ("setTimeout(() => 0, 1)", "'setTimeout'"),
        ("Buffer.from('x')", "'Buffer'"),
        ("Deno.readTextFile('x')", "'Deno'"),
        ("(async () => { await null; module.exports = {} })()", "'module'"),
        ("import('a\\nb')", "module 'a b'"),
        ("/* c */ import fs from 'fs'", "module 'fs'"),
        ("'use strict';export * from 'fs'", "module 'fs'"),
        ("new AbortSignal()", "'AbortSignal'"),
        ("class A extends EventTarget {}", "'EventTarget'"),
        ("self.x", "'self'"),
    ] {
        let ended = ended(text);
        assert!(matches!(&ended, Ended::Lacks(_, lacks) if lacks == what), "{text}: {ended:?}");
    }
    // Who asks whether something is there, and goes on without, is told that it is not.
    assert_eq!(ended("if (typeof process !== 'undefined' || globalThis.fetch) throw 1"), Ended::Exited(0));
    assert_eq!(ended("try { require('x') } catch {}"), Ended::Exited(0));
    // `tool` is there where the policy has tools alone.
    assert!(matches!(ended("tool('x')"), Ended::Failed(words) if words.contains("tool is not defined")));
}

#[test]
fn values_do_not_grow_past_the_limit() {
    let mut wrong = Vec::new();
    for text in [
        "let s = 'ab', a = []; while (true) { s = s + s.length; a.push(s.split('')) }",
        "let a = []; while (true) a.push('y'.repeat(10000) + a.length)",
        "new Array(1e9).fill(0)",
        "let f = () => 1; for (let i = 0; i < 2e4; i++) f = f.bind(null, i); f()",
        "new ArrayBuffer(1 << 30)",
        "new Uint8Array(1e9)",
        "[...Array(1e8).keys()]",
        "let a = []; while (true) a = [a, a.concat(a)]",
        "let o = {}; for (let i = 0; ; i++) o['k' + i] = i",
        "const m = new Map(); for (let i = 0; ; i++) m.set(i, {})",
        "const f = () => { const big = new Array(1000).fill(1); return () => big }; const all = []; while (true) all.push(f())",
        "let t = 'x'; for (;;) t = `${t}${t}${t}`",
        "[1, 2, 3].sort(() => { globalThis.all ??= []; for (;;) all.push({}) })",
        "const next = () => Promise.resolve().then(() => { all.push(new Array(1000).fill(0)); next() }); const all = []; next()",
        "JSON.parse('[' + '0,'.repeat(5000000) + '0]')",
        "JSON.stringify('\\u0001'.repeat(2e7))",
        "'x'.repeat(1e7).split('').map(c => c + c)",
        "'a'.repeat(1e7).replace(/a/g, 'b'.repeat(100))",
        "const b = 2n ** 500000n, a = []; while (true) a.push(b + 1n)",
        "'x'.padStart(5e8)",
        "const g = function* () { for (;;) yield {} }; [...g()]",
        "Symbol('x'.repeat(1e8))",
        "const p = new Proxy({}, { ownKeys() { return Array.from({ length: 1e8 }, (_, i) => 'k' + i) } }); Object.keys(p)",
        "eval('x'.repeat(5e7))",
        "/(?:a|b)*c/.test('ab'.repeat(5e6))",
        "const w = []; for (;;) w.push(new WeakRef({}), new FinalizationRegistry(() => 0))",
        "structured = []; for (;;) structured.push(new Error('x'.repeat(100)))",
    ] {
        let ended = ended(text);
        if !matches!(&ended, Ended::Memory(words) if words.contains("33554432 bytes")) {
            wrong.push(format!("{text}: {ended:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn who_was_refused_memory_does_not_go_on() {
    for text in [
        "try { new ArrayBuffer(1 << 30) } catch {}",
        "try { new ArrayBuffer(1 << 30) } catch {} while (true) {}",
        "try { new ArrayBuffer(1 << 30) } finally { while (true) {} }",
        "const again = () => Promise.resolve().then(again); try { new ArrayBuffer(1 << 30) } catch {} again()",
        "try { new ArrayBuffer(1 << 30) } catch { throw new Error('mine') }",
        "Promise.reject(1).catch(() => new ArrayBuffer(1 << 30)).catch(() => 0)",
        "Error.prepareStackTrace = () => { for (;;) {} }; new ArrayBuffer(1 << 30)",
    ] {
        let ended = ended(text);
        assert!(matches!(&ended, Ended::Memory(_)), "{text}: {ended:?}");
    }
    // No program says it of itself.
    for text in
        ["throw new InternalError('out of memory')", "class A extends InternalError {}; throw new A('out of memory')"]
    {
        assert!(matches!(ended(text), Ended::Failed(_)), "{text}");
    }
}

#[test]
fn depth_ends_as_an_error() {
    let mut wrong = Vec::new();
    for text in [
        "const f = n => 1 + f(n + 1); f(0)",
        "JSON.parse('['.repeat(1e6))",
        "JSON.parse('{\"a\":'.repeat(1e6))",
        "let o = []; for (let i = 0; i < 1e5; i++) o = [o]; JSON.stringify(o)",
        "let o = []; for (let i = 0; i < 1e5; i++) o = [o]; String(o)",
        "let o = []; for (let i = 0; i < 1e5; i++) o = [o]; o.flat(Infinity)",
        "const o = { get x() { return this.x } }; o.x",
        "const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.x",
        "let p = {}; for (let i = 0; i < 1e5; i++) p = new Proxy(p, {}); p.x",
        "class A { constructor() { new A() } }; new A()",
        "const a = [2, 1]; const s = () => a.toSorted(s); s()",
        "eval('('.repeat(1e6))",
        "eval('['.repeat(1e6))",
        "eval('{'.repeat(1e6))",
        "eval('!'.repeat(1e6) + '1')",
        "eval('x => '.repeat(1e5) + '1')",
        "eval('`${'.repeat(1e5))",
        "eval('if (1) '.repeat(1e5) + '1')",
        "eval('2 ** '.repeat(1e5) + '1')",
        "new RegExp('('.repeat(2e5) + ')'.repeat(2e5))",
        "new RegExp('(?='.repeat(2e5) + ')'.repeat(2e5))",
        "const g = function* () { yield* g() }; [...g()]",
        "[0].reduce(function f() { return [0, 0].reduce(f) }, 0); [0, 0].reduce(function f() { return [0, 0].reduce(f) })",
        "'x'.replace(/x/, function f() { return 'x'.replace(/x/, f) })",
        "const e = { toString: () => `${e}` }; `${e}`",
        "Reflect.construct(function f() { return Reflect.construct(f, []) }, [])",
    ] {
        let ended = ended(text);
        let told =
            matches!(&ended, Ended::Failed(words) if words.contains("RangeError") || words.contains("SyntaxError"));
        if !told {
            wrong.push(format!("{text}: {ended:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    for text in [
        // Long, and not deep.
        &format!("const x = {}1", "1 + ".repeat(50_000)),
        &format!("const a = {{}}; a.b = () => a; a{}", ".b()".repeat(20_000)),
        // Deep, and only to be let go.
        "let o = null; for (let i = 0; i < 1e5; i++) o = { o }; o = null",
        "let p = Promise.resolve(); for (let i = 0; i < 4e4; i++) p = p.then(() => 0); await p",
        // A text that is lengthened on both ends is a tree, which the engine makes anew, all of it, whenever it is 60 deep: time as
        // the square of the count at any stack, 4 s for 32,000 and more than a minute for 100,000. Here it is made anew some
        // hundred times.
        "let s = ''; for (let i = 0; i < 4e3; i++) s = 'a' + s + 'b'; s.length",
    ] {
        assert_eq!(ended(text), Ended::Exited(0), "{}", text.chars().take(60).collect::<String>());
    }
}

/// Chains that QuickJS follows without a look at its stack: the heap has no room for one that the stack has none for.
#[test]
fn a_chain_that_is_not_counted_fits_the_stack() {
    let limits = Interpreter { memory: Some(512 << 20), ..limits() };
    for (made, way) in [(1_000_000, "drop(0)"), (1_000_000, "take(2)")] {
        let text = format!("let it = [1].values(); for (let i = 0; i < {made}; i++) it = it.{way}; it.next()");
        let held = limits.clone();
        let ended = on_the_stack_of(&limits, move || run(text.into_bytes(), "main.js", &held, None));
        assert!(matches!(ended, Ended::Exited(0) | Ended::Memory(_)), "{way}: {ended:?}");
    }
}

#[test]
fn inputs_of_other_types_are_told() {
    let limits = Interpreter { inputs: BTreeMap::from([("never_given".to_owned(), "integer".to_owned())]), ..limits() };
    let ended = run(b"0".to_vec(), "main.js", &limits, None);
    assert!(matches!(&ended, Ended::Failed(why) if why.contains("never_given")), "{ended:?}");
}

/// Names that are set and then are another thing are refused where the policy is read (`JAVASCRIPT_WORDS`); these are all.
#[test]
fn every_other_name_is_a_variable() {
    let text = "const wrong = []; for (let o = globalThis; o !== null; o = Object.getPrototypeOf(o))
        for (const [name, one] of Object.entries(Object.getOwnPropertyDescriptors(o)))
            if (one.set !== undefined || (one.get === undefined && !one.writable)) wrong.push(name);
        throw wrong.sort().join()";
    assert_eq!(ended(text), Ended::Failed("Uncaught Infinity,NaN,__proto__,undefined".to_owned()));
}

#[test]
fn a_module_is_known_by_its_name_or_its_text() {
    for (name, text, ends) in [
        ("a.mjs", "if (this !== undefined) throw 1", Ended::Exited(0)),
        ("a.js", "export {}; if (this !== undefined) throw 1", Ended::Exited(0)),
        ("a.js", "const x = `\nexport {}\n`; if (this === undefined) throw 1", Ended::Exited(0)),
    ] {
        let text_of = text.as_bytes().to_vec();
        assert_eq!(on_its_stack(move || run(text_of, name, &limits(), None)), ends, "{name}: {text}");
    }
}
