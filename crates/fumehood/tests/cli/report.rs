//! The report for people: the words that it uses, and where it begins.

use crate::House;

#[test]
fn limits_are_told_in_the_unit_in_which_policies_write_them() {
    let house = House::new();
    let of = |args: &[&str]| {
        let said = house.run(&[&["run", "--json"], args].concat());
        let report = said.json();
        let of = |value: &serde_json::Value, key| value[key].as_str().unwrap_or_default().to_owned();
        (of(&report["outcome"], "message"), of(&report["violations"][0], "why"))
    };
    let python = |code| ["--lang", "python", "--code", code];
    let memory = of(&[&["--memory", "64M"][..], &python("b'x' * (200 << 20)")].concat());
    assert!(memory.0.contains("the limit of 64M"), "{memory:?}");
    assert!(memory.1.starts_with("the limit of 64M for the whole tree was reached"), "{memory:?}");
    let large = ["--set", "limits.file_size=100KB", "--", "sh", "-c", "dd if=/dev/zero of=/tmp/x bs=1M count=1"];
    assert_eq!(of(&large).1, "the limit of 100KB for one file was reached");
    let full = ["--set", "fs.tmp=64K", "--", "sh", "-c", "dd if=/dev/zero of=/tmp/x bs=1K count=99; exit 0"];
    assert_eq!(of(&full).1, "all of its 64K were in use");
    let output = of(&["--output-limit", "10K", "--set", "limits.over=kill", "--", "yes"]);
    assert_eq!(output.0, "output passed the limit of 10K");
    assert_eq!(of(&["--timeout", "300ms", "--", "sleep", "9"]).0, "wall time reached its limit of 300ms");
    let written =
        "open(__import__('os').environ['TMPDIR'] + '/x', 'wb').write(b'x' * 300000); __import__('time').sleep(9)";
    let written = of(&[&["--tier", "process", "--set", "fs.tmp=64K"][..], &python(written)].concat());
    assert!(written.0.ends_with(" KiB were written to TMPDIR, its size is 64K"), "{written:?}");
}
