//! What a program asks for, and what only looks so.

use super::*;

fn asks(text: &str) -> Option<String> {
    super::asks(text, |name| name == "prompt")
}

#[test]
fn names_are_sorted() {
    assert!(ELSEWHERE.is_sorted());
    assert_eq!((elsewhere("fetch"), elsewhere("Fetch")), (Some("fetch"), None));
}

/// Programs, each with what it needs that is elsewhere.
const ASKING: &[(&str, &str)] = &[
    ("import fs from 'fs'", "imports `fs`"),
    ("import 'fs'", "imports `fs`"),
    ("import * as fs from \"node:fs\"", "imports `node:fs`"),
    ("import {\n  a,\n  b as c\n} from './y.mjs'", "imports `./y.mjs`"),
    ("export { x } from './y.mjs'", "imports `./y.mjs`"),
    ("export * from 'fs'", "imports `fs`"),
    ("'use strict';import fs from 'fs'", "imports `fs`"),
    ("/* c */ import fs from 'fs'", "imports `fs`"),
    ("import('fs').then(f)", "imports `fs`"),
    ("x = import(`fs`)", "imports `fs`"),
    ("const m = await import(name)", "imports a module"),
    ("console.log(import.meta.url)", "uses `import.meta`"),
    ("const fs = require('fs')", "uses `require`"),
    ("console.log(process.argv)", "uses `process`"),
    ("process\n  .exit()", "uses `process`"),
    ("globalThis.process.exit(3)", "uses `process`"),
    ("new globalThis.URL(x)", "uses `URL`"),
    ("window.x = 1", "uses `window`"),
    ("const t = setTimeout", "uses `setTimeout`"),
    ("class B extends Worker {}", "uses `Worker`"),
    ("new URL(x)", "uses `URL`"),
    ("f(fetch)", "uses `fetch`"),
    ("f(...process)", "uses `process`"),
    ("x = { fetch }", "uses `fetch`"),
    ("if (typeof process !== 'undefined' && process.env) f()", "uses `process`"),
    ("typeof process.env", "uses `process`"),
    ("`${fetch('x')}`", "uses `fetch`"),
    ("`${{ a: `}` }.a}${alert(1)}`", "uses `alert`"),
    ("x = a / b; alert(1) / 2", "uses `alert`"),
    ("x = /[/]'/; alert(1)", "uses `alert`"),
    ("x++ / alert(1) / 2", "uses `alert`"),
    ("x = 'it\\'s'; alert(1)", "uses `alert`"),
    ("if (fetch(x)) { y() }", "uses `fetch`"),
    ("class A { fetch(u) { return fetch(u) } }", "uses `fetch`"),
    ("#!/usr/bin/env node\nrequire('fs')", "uses `require`"),
    ("n.toLocaleString('en-US')", "uses `toLocaleString`"),
    ("new Date(0)?.toLocaleDateString()", "uses `toLocaleDateString`"),
    ("new Date(0)\n  .toLocaleTimeString()", "uses `toLocaleTimeString`"),
    ("'i'.toLocaleUpperCase('tr')", "uses `toLocaleUpperCase`"),
    ("`${s.toLocaleLowerCase()}`", "uses `toLocaleLowerCase`"),
    ("xs.sort((a, b) => a.localeCompare(b))", "uses `localeCompare`"),
    ("new Intl.NumberFormat('de')", "uses `Intl`"),
    ("globalThis.Intl.Collator", "uses `Intl`"),
    ("/(a)/.exec(s); print(RegExp.$1)", "uses `RegExp.$1`"),
    ("RegExp.lastMatch", "uses `RegExp.lastMatch`"),
    ("console.table([1])", "uses `console.table`"),
    ("globalThis.console.time('x')", "uses `console.time`"),
    ("console?.group()", "uses `console.group`"),
    ("console.assert(x)", "uses `console.assert`"),
];

/// Programs that only look so.
const PLAIN: &[&str] = &[
    "",
    "a.fetch(1)",
    "a?.fetch(1)",
    "const imported = 1",
    "// fetch(1)\n/* import fs from 'fs'\n */ x",
    "my_process.x",
    "ünder.x",
    "'fetch(1)' + \"require('fs')\" + `import('fs') ${1} process.x`",
    "x = /fetch(1)/; y = [/process.x/g]",
    "class A { fetch(u) { return u } async require(x = f(1)) {} get process() { return 1 } static #module = 1 }",
    "x = { fetch(u) {}, process: 1, 'window': 2 }",
    "function fetch(u) {}\nfetch(1)",
    "fetch(1)\nasync function* fetch(u) {}",
    "const process = { argv: [] }; process.argv",
    "const self = this; self.x",
    "class Event {}\nnew Event('x')",
    "xs.map(module => 1)",
    "if (typeof require !== 'undefined' || globalThis.fetch || 'x' in globalThis) f()",
    "import_ = { import: 1, from: 'x' }; x.import('fs'); Array.from('abc')",
    "#!/usr/bin/env process.x\n1",
    "f(prompt)",
    "console.log(1); console.info(1); console.debug(1); console.warn(1); console.error(1)",
    "class A { toLocaleString() { return '' } localeCompare(b) { return 0 } }",
    "// x.localeCompare(y)\n'RegExp.$1' + `console.table(1)`",
    "x.table(1); my.console_.time; RegExp.prototype; RegExp.escape('a'); x.$1; const $1 = 2; f($1)",
    "'never ended fetch(1)\nx",
    "x = `never ended fetch(1)",
    "/* never ended fetch(1)",
];

#[test]
fn modules_and_names_that_are_elsewhere_say_what_a_program_needs() {
    let mut wrong = Vec::new();
    for (text, wanted) in ASKING {
        if asks(text).as_deref() != Some(*wanted) {
            wrong.push(format!("{text}: {:?}", asks(text)));
        }
    }
    for text in PLAIN {
        if let Some(asked) = asks(text) {
            wrong.push(format!("{text}: {asked}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_module_is_known_by_what_only_modules_have() {
    for text in [
        "import a from 'a'",
        "  import{a} from 'a'",
        "import 'a'",
        "x\nexport default 1",
        "export {}",
        "'use strict';import a from 'a'",
        "/* c */ export * from 'a'",
        "import.meta",
    ] {
        assert!(is_module(text), "{text}");
    }
    for text in [
        "import('a')",
        "imported = 1",
        "// import a",
        "exports.a = 1",
        "x = `\nimport a from 'a'\n`",
        "x = { import: 1, export: 2 }; x.import\n(1); x.export",
    ] {
        assert!(!is_module(text), "{text}");
    }
}

/// Time as the text is long, and depth that is bounded.
#[test]
fn no_text_is_too_much() {
    for part in ["(", ")", "{", "`${", "=/[", "/", "'", "\\", "/*", "fetch(", "}", "import(", "#", "."] {
        let text = part.repeat(1 << 18);
        assert!(asks(&text).is_none_or(|asked| !asked.is_empty()) && !is_module(&text), "{part}");
    }
}
