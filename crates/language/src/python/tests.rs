//! What the interpreter runs, what it refuses, and that its limits hold against programs that grow.

use std::collections::BTreeMap;

use policy::control::Source;

use super::*;

fn limits() -> Interpreter {
    Interpreter {
        source: Source::Python,
        modules: ["json", "math", "re"].map(str::to_owned).to_vec(),
        steps: None,
        recursion: Some(200),
        memory: Some(8 << 20),
        inputs: BTreeMap::new(),
        tools: false,
    }
}

fn ended(text: &str) -> Ended {
    run(text.as_bytes().to_vec(), "main.py", &limits())
}

#[test]
fn the_limits_are_proven_and_a_lack_of_one_is_seen() {
    prove(&limits()).unwrap();
    let wrong = |change: fn(&mut Interpreter)| {
        let mut limits = limits();
        change(&mut limits);
        prove(&limits).unwrap_err()
    };
    assert!(wrong(|limits| limits.modules.push("subprocess".to_owned())).contains("subprocess"));
    // The proof tries a value of this size, which nothing would then stop.
    assert!(evaluate("len('x' * 10)", &Interpreter { memory: None, ..limits() }).unwrap().is_ok());
}

#[test]
fn what_the_tier_is_for_runs() {
    for text in [
        "assert 1 + 1 == 2",
        "import math\nassert math.floor(math.sqrt(17)) == 4",
        "import json\nassert json.loads('[1, {\"a\": null}]') == [1, {'a': None}]",
        "import re\nassert re.findall(r'\\d+', 'a1b22') == ['1', '22']",
        "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\nassert fib(15) == 610",
        "assert sorted([3, 1, 2], key=lambda x: -x) == [3, 2, 1]",
        "assert {k: v for k, v in zip('ab', [1, 2])} == {'a': 1, 'b': 2}",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    assert 'zero' in str(e)",
        "x = 'x' * 1000000\nassert len(x) == 1000000",
    ] {
        assert_eq!(ended(text), Ended::Exited(0), "{text}");
    }
}

#[test]
fn an_error_of_the_program_has_its_traceback() {
    let Ended::Failed(words) = ended("def f():\n    return 1 / 0\nf()") else { panic!("it did not fail") };
    assert!(words.contains("line 2") && words.ends_with("ZeroDivisionError: division by zero"), "{words}");
    assert!(matches!(ended("x ="), Ended::Failed(words) if words.contains("SyntaxError")));
    // As Python has it: a text is printed, and the code is 1.
    assert_eq!(ended("raise SystemExit('3')"), Ended::Failed("3".to_owned()));
    assert_eq!(ended("raise SystemExit"), Ended::Exited(0));
}

#[test]
fn the_host_is_not_there_to_be_asked() {
    for text in [
        "open('/etc/passwd').read()",
        "import os",
        "import subprocess",
        "from os import environ",
        "import socket",
        "import sys",
        "__import__('os')",
        "eval('1')",
        "exec('import os')",
        "input()",
        "def f():\n    yield 1\n",
        "math = 1\nif math: import pathlib",
    ] {
        let ended = ended(text);
        assert!(matches!(&ended, Ended::Lacks(..)), "{text}: {ended:?}");
    }
    for (text, what) in [
        ("format(1, 'd')", "'format'"),
        ("raise UnicodeError('x')", "'UnicodeError'"),
        ("class A:\n    def __init__(self):\n        super().__init__()\nA()", "'super'"),
        ("raise SystemExit(3)", "exceptions can only be called with zero or one string argument"),
        ("raise KeyError(1, 2)", "exceptions can only be called with zero or one string argument"),
        ("import re\nre.VERBOSE", "'VERBOSE' of a module"),
        ("import json\njson.load(1)", "module 'json' has no attribute 'load'"),
        ("'%d' % 1", "formatting by '%'"),
        ("b'%d' % 1", "formatting by '%'"),
        ("import math\nmath.isqrt(10**40)", "whole numbers of more than 64 bits in this function"),
        ("pow(2, 3, mod=5)", "pow() does not yet support keyword arguments"),
        ("1 @ 2", "matrix multiplication (@) is not supported"),
        ("import re\nre.sub('a', lambda m: 'b', 'a')", "callable replacement is not yet supported in re.sub()"),
        ("sum(x > 3 for x in [1, 4])", "'+' of 'int' and 'bool'"),
        ("{1: 2} | {2: 3}", "'|' of 'dict' and 'dict'"),
        ("int | None", "'|' of 'type' and 'NoneType'"),
        ("{1} <= {1, 2}", "'<=' of 'set' and 'set'"),
        ("2 ** 64 % 7.5", "'%' of 'int' and 'float'"),
        ("divmod(2 ** 64, 2.5)", "'divmod()' of 'int' and 'float'"),
        ("x = [1, 2]\nx[0:1] = [3]", "slices that are set"),
        ("pow(3, -1, 7)", "inverses by pow()"),
        ("sorted(['B', 'a'], key=str.lower)", "'str.lower'"),
        ("int.from_bytes(b'a', 'big')", "'int.from_bytes'"),
    ] {
        let ended = ended(text);
        assert!(matches!(&ended, Ended::Lacks(_, lacks) if lacks == what), "{text}: {ended:?}");
    }
    // What Python has not either is a mistake of the program.
    for text in
        ["1 + 'a'", "None + 1", "'a' < 1", "{1} + {2}", "[1] - [1]", "1.5 & 1", "[1]['a']", "str.lowr", "int | 3"]
    {
        assert!(matches!(ended(text), Ended::Failed(_)), "{text}");
    }
    assert!(matches!(
        ended("raise TypeError(\"unsupported operand type(s) for +: 'int' and 'bool'\")"),
        Ended::Failed(_)
    ));
    // What a program says of itself is no word of the interpreter's.
    for text in ["raise NotImplementedError('csv is not yet supported')", "raise TypeError('csv is not supported')"] {
        assert!(matches!(ended(text), Ended::Failed(_)), "{text}");
    }
    for text in ["().__class__.__bases__[0].__subclasses__()", "(lambda: 0).__globals__", "(1).__reduce_ex__(2)"] {
        let ended = ended(text);
        assert!(matches!(&ended, Ended::Failed(words) if words.contains("AttributeError")), "{text}: {ended:?}");
    }
}

#[test]
fn one_value_does_not_grow_past_the_limit() {
    for text in [
        "'x' * 10**9",
        "[0] * 10**9",
        "b'x' * 10**9",
        "10 ** 10 ** 8",
        "1 << 10 ** 10",
        "'a'.replace('a', 'b' * 10**8)",
        "'x'.ljust(10**9)",
        "list(range(10**18))",
        "x = 'ab'\nwhile True: x = x + x",
        "'{:>1000000000}'.format(1)",
        "f'{1:>1000000000}'",
        "bytes(10**10)",
    ] {
        let ended = ended(text);
        assert!(matches!(&ended, Ended::Memory(_)), "{text}: {ended:?}");
    }
    // The limit is no exception of the program's: it cannot go on.
    let caught = "try:\n    'x' * 10**9\nexcept BaseException:\n    pass\nfinally:\n    print('on')";
    assert!(matches!(ended(caught), Ended::Memory(_)));
}

#[test]
fn depth_ends_and_expressions_of_regular_expressions_too() {
    for (text, word) in [
        ("def f(n): return f(n + 1)\nf(0)", "RecursionError"),
        ("import json\njson.loads('[' * 100000)", "recursion"),
        ("import re\nre.match('(a|a)*\\\\1$', 'a' * 40 + 'b')", "PatternError"),
    ] {
        let ended = ended(text);
        assert!(matches!(&ended, Ended::Failed(words) if words.contains(word)), "{text}: {ended:?}");
    }
    let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(matches!(ended(&deep), Ended::Failed(words) if words.contains("nested")));
}

#[test]
fn inputs_of_other_types_are_told() {
    let limits = Interpreter { inputs: BTreeMap::from([("never_given".to_owned(), "integer".to_owned())]), ..limits() };
    let ended = run(b"pass".to_vec(), "main.py", &limits);
    assert!(matches!(&ended, Ended::Failed(why) if why.contains("never_given")), "{ended:?}");
}
