//! What a module may do, and that its limits hold.

use std::collections::BTreeMap;

use policy::control::Source;

use super::*;

fn limits() -> Interpreter {
    Interpreter {
        source: Source::Wasm,
        modules: Vec::new(),
        steps: Some(1_000_000),
        recursion: Some(200),
        memory: Some(1 << 20),
        inputs: BTreeMap::new(),
        tools: false,
    }
}

fn ended(text: &str) -> Ended {
    run(&wat::parse_str(text).unwrap(), vec!["main".to_owned(), "one".to_owned()], &limits())
}

/// A module with a memory, and a `_start` that ends with what the body leaves as a code.
fn code(imports: &str, body: &str) -> String {
    format!(
        r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32))) {imports}
        (memory (export "memory") 1) (func (export "_start") (call $exit {body})))"#
    )
}

#[test]
fn the_limits_are_proven() {
    prove(&limits()).unwrap();
    prove(&Interpreter { steps: None, memory: None, ..limits() }).unwrap();
}

#[test]
fn a_program_ends_with_its_code_and_has_its_arguments() {
    assert_eq!(ended(&code("", "(i32.const 7)")), Ended::Exited(7));
    for (number, code_of_it) in [("255", 255), ("-1", 255), ("256", 1), ("65536", 1), ("257", 1), ("0", 0)] {
        assert_eq!(ended(&code("", &format!("(i32.const {number})"))), Ended::Exited(code_of_it), "{number}");
    }
    let sizes = r#"(import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))"#;
    let count = "(i32.add (call $sizes (i32.const 0) (i32.const 4)) (i32.load (i32.const 0)))";
    assert_eq!(ended(&code(sizes, count)), Ended::Exited(2));
}

#[test]
fn files_and_sockets_are_not_there() {
    let open = r#"(import "wasi_snapshot_preview1" "path_open"
        (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))"#;
    let call = "(call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0) (i64.const 0)
        (i64.const 0) (i32.const 0) (i32.const 8))";
    assert_eq!(ended(&code(open, call)), Ended::Exited(76));
    let folder = r#"(import "wasi_snapshot_preview1" "fd_prestat_get" (func $get (param i32 i32) (result i32)))"#;
    assert_eq!(ended(&code(folder, "(call $get (i32.const 3) (i32.const 0))")), Ended::Exited(8));
    let other = r#"(import "env" "system" (func $system (param i32) (result i32)))"#;
    let said = ended(&code(other, "(call $system (i32.const 0))"));
    assert!(matches!(&said, Ended::Lacks(_, what) if what.contains("system")), "{said:?}");
    let none = r#"(import "wasi_snapshot_preview1" "nonsense" (func $system (param i32) (result i32)))"#;
    let said = ended(&code(none, "(call $system (i32.const 0))"));
    assert!(matches!(&said, Ended::Lacks(_, what) if what.contains("nonsense")), "{said:?}");
    // Twice the same is once, and with other parameters it is another.
    assert_eq!(ended(&code(&format!("{open} {}", open.replace("$open", "$other")), call)), Ended::Exited(76));
    let wrong = r#"(import "wasi_snapshot_preview1" "fd_readdir" (func (param i64)))"#;
    let said = ended(&code(wrong, "(i32.const 0)"));
    assert!(matches!(&said, Ended::Failed(words) if words.contains("fd_readdir")), "{said:?}");
}

#[test]
fn what_webassembly_has_elsewhere_is_told() {
    let thrown = r#"(module (tag $e) (func (export "_start") (throw $e)))"#;
    let said = ended(thrown);
    assert!(matches!(&said, Ended::Lacks(_, what) if what.contains("exceptions")), "{said:?}");
    let said = ended("(component)");
    assert!(matches!(&said, Ended::Lacks(_, what) if what.contains("component")), "{said:?}");
    let said = ended("(module)");
    assert!(matches!(&said, Ended::Failed(words) if words.contains("`_start`")), "{said:?}");
}

#[test]
fn a_place_outside_of_its_memory_is_refused() {
    let random = r#"(import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))"#;
    assert_eq!(ended(&code(random, "(call $random (i32.const 0) (i32.const 16))")), Ended::Exited(0));
    for (at, length) in [("65530", "16"), ("-1", "1"), ("0", "-1")] {
        let call = format!("(call $random (i32.const {at}) (i32.const {length}))");
        assert_eq!(ended(&code(random, &call)), Ended::Exited(21), "{at} {length}");
    }
    let write = r#"(import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))"#;
    let call = "(call $write (i32.const 1) (i32.const 65532) (i32.const 1) (i32.const 0))";
    assert_eq!(ended(&code(write, call)), Ended::Exited(21));
}

#[test]
fn steps_memory_tables_and_depth_end_a_program() {
    let endless = r#"(module (func (export "_start") (loop (br 0))))"#;
    assert!(matches!(ended(endless), Ended::Steps(_)));
    let grows = r#"(module (memory 1) (func (export "_start") (loop (drop (memory.grow (i32.const 1))) (br 0))))"#;
    assert!(matches!(ended(grows), Ended::Memory(_)));
    let table = r#"(module (table 1 funcref)
        (func (export "_start") (drop (table.grow (ref.null func) (i32.const 1000000)))))"#;
    assert!(matches!(ended(table), Ended::Memory(_)));
    // What it begins with is no other demand than what it grows to.
    for large in ["(memory 100)", "(memory 65536)", "(table 100000000 funcref)"] {
        let said = ended(&format!(r#"(module {large} (func (export "_start")))"#));
        assert!(matches!(&said, Ended::Memory(_)), "{large}: {said:?}");
    }
    let deep = r#"(module (func $f (export "_start") (call $f)))"#;
    assert!(matches!(ended(deep), Ended::Failed(words) if words.contains("stack")));
    assert!(matches!(ended(r#"(module (func (export "_start") unreachable))"#), Ended::Failed(_)));
}

#[test]
fn what_is_no_module_is_told() {
    for bytes in [&b""[..], b"\0asm", b"#!/bin/sh", &[0; 64]] {
        assert!(matches!(run(bytes, Vec::new(), &limits()), Ended::Failed(words) if words.contains("WebAssembly")));
    }
}
