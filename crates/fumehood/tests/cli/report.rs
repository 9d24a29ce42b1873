//! The report for people: the words that it uses, and where it begins.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

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

/// What a terminal shows on which all three streams of `args` are.
fn shown(house: &House, args: &[&str]) -> String {
    let (mut master, name) = crate::terminal();
    let side = || File::options().read(true).write(true).open(&name).unwrap();
    let mut command = house.command(args);
    let mut child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
    // The last writer but the child: its end is the end of what is read.
    drop(command);
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    // EIO: nobody has the other side open any more.
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    child.wait().unwrap();
    text
}

#[test]
fn on_a_terminal_the_report_begins_on_a_line_of_its_own() {
    let house = House::new();
    let run = |flags: &[&str], program: &str| {
        shown(&house, &[&["run", "--color", "never"], flags, &["--", "sh", "-c", program]].concat())
    };
    for flags in [&[][..], &["-t"]] {
        for (program, begins) in [
            ("printf end", "end\r\nexited: "),
            ("printf 'end\\n'", "end\r\nexited: "),
            ("printf end >&2", "end\r\nexited: "),
            (":", "exited: "),
        ] {
            let text = run(flags, program);
            assert!(text.starts_with(begins), "{flags:?} {program}: {text:?}");
        }
    }
    // What counts is what was shown last, whichever stream it came from.
    let text = run(&[], "printf out; sleep 0.2; echo err >&2");
    assert!(text.starts_with("outerr\r\nexited: "), "{text:?}");
    let text = run(&[], "echo err >&2; sleep 0.2; printf out");
    assert!(text.starts_with("err\r\nout\r\nexited: "), "{text:?}");
    assert_eq!(run(&["-q"], "printf end"), "end", "nothing is said, so nothing is added");
    let text = run(&["-q", "--timeout", "300ms"], "printf end; sleep 9");
    assert!(text.starts_with("end\r\nlimit: "), "{text:?}");
    // Our own failure is told in the same place.
    let text = run(&["-q", "--report", "/dev/full"], "printf end");
    assert!(text.starts_with("end\r\nerror: the report cannot be written"), "{text:?}");
}

#[test]
fn in_a_pipe_only_stderr_itself_gets_an_end_of_line() {
    let house = House::new();
    let run = |program| house.run(&["run", "--", "sh", "-c", program]);
    let said = run("printf end");
    assert!(said.out == "end" && said.err.starts_with("exited: "), "{said:?}");
    let said = run("printf end >&2");
    assert!(said.out.is_empty() && said.err.starts_with("end\nexited: "), "{said:?}");
    let said = run("echo end >&2");
    assert!(said.err.starts_with("end\nexited: "), "{said:?}");
    house.run(&["run", "-q", "--", "sh", "-c", "printf out; printf err >&2"]).is(0, "out", "err");
    // A terminal for our words alone shows nothing of what went elsewhere.
    let (mut master, name) = crate::terminal();
    let screen = File::options().read(true).write(true).open(&name).unwrap();
    let mut command = house.command(&["run", "--color", "never", "--", "printf", "end"]);
    let mut child = command.stdout(Stdio::piped()).stderr(screen).spawn().unwrap();
    drop(command);
    let mut buffer = [0; 9];
    master.read_exact(&mut buffer[..8]).unwrap();
    assert_eq!(&buffer[..8], b"exited: ");
    child.wait().unwrap();
}

#[test]
fn what_to_do_about_a_missing_program_fits_the_root_of_the_policy() {
    let house = House::new();
    std::fs::create_dir(house.path("work/tree")).unwrap();
    let run = |flags: &[&str], program| house.run(&[&["run"], flags, &["--", program]].concat());
    let fix = |flags: &[&str], program| {
        let said = run(flags, program);
        assert_eq!(said.code, 127, "{said:?}");
        said.err.lines().find_map(|line| line.strip_prefix("  fix: ")).unwrap_or_default().to_owned()
    };
    assert_eq!(fix(&[], "nothing-here"), "name a program below /usr, or grant its folder with `--read`");
    assert_eq!(
        fix(&["--set", "fs.root=dir:./tree"], "sh"),
        "name a program below $DIR/work/tree, which is the root here, or grant its folder with `--read`"
    );
    let empty = ["--set", "fs.root=empty"];
    let all = ["--read", "/usr", "--read", "/lib", "--read", "/lib64"];
    let advice = fix(&empty, "true");
    assert!(advice.contains(&all.join(" ")), "{advice}");
    // Half of the advice is told again, and all of it works.
    assert_eq!(fix(&[&empty[..], &["--read", "/usr"]].concat(), "true"), advice);
    if all.iter().all(|word| word.starts_with('-') || std::path::Path::new(word).is_dir()) {
        assert_eq!(run(&[&empty[..], &all].concat(), "true").code, 0);
    }
}
