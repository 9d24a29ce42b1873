//! Every command of the documents, run as it stands there.
//!
//! A page is one session of bash, by an ordinary user in an empty folder. Its blocks in order:
//!
//! - a block whose fence names a file (` ```toml policy.toml `) is written to it;
//! - each `$ ` line of a `console` block is run. Its exit code is 0, or the one of its remark (`# exit code 1`). Where lines
//!   follow, they are its output, stdout and stderr as they come; `...` stands for anything, on a line of its own for any
//!   lines;
//! - a `sh` or `bash` block is run as a whole, and ends with 0; so is a `python` block, as `programs` says.
//!
//! What needs a program of this host is run where that is, and a line of `sudo` where this test is root; where not, it is told.
//! What a stage runs instead, and what is run beside an engine of containers alone, stands in `stages`. A row of a table that no
//! document needs any more is a failure.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use conformance::{BackendId, Fixture, Tier, Who, product};

use crate::Read;
use crate::blocks::{Block, blocks, root};
use crate::programs::{Trial, trial};
use crate::stages::{BY_ENGINE, ELSEWHERE, engine};

/// Commands that need something of the host beside the product: a program, or a socket at its place. A line of `sudo` is run by
/// root, in a session of its own.
const NEEDS: &[(&str, &str)] = &[
    (r#"sudo fumehood run --tier gvisor -- python3 -c 'print(open("/proc/version").read())'"#, "runsc"),
    ("sudo fumehood run --set backend=crun -- id -u", "crun"),
    ("fumehood attack --against bwrap --only NET-01", "bwrap"),
];

/// What stays in the foreground: it runs beside the rest of its page, once it has said this, and is ended with the page.
const SERVERS: &[(&str, &str)] = &[
    ("fumehood tools serve -p policy.toml --tool mail.send=send.py --tool mail.delete=delete.py", "people the one in"),
    ("fumehood tools serve -p policy.toml --listen unix:/run/user/1000/fumehood.sock", "people the one in"),
    (
        "fumehood tools serve -p policy.toml --tool mail.send=send.py --sandbox python --listen 127.0.0.1:8732 \
         --webhook https://hooks.example.org/fumehood --webhook-secret-file hook.key",
        "people the one in",
    ),
    ("fumehood serve", "listening on"),
    ("fumehood audit tail", "run.ended"),
    ("fumehood approvals watch", "waiting"),
];

/// A policy for the tool of programs in Python.
const MAIL: &str = r#"cat >policy.toml <<'POLICY'
version = 1

[[tools.tool]]
name = "mail.send"
decision = "allow"
effect = "write"
guards.to = { kind = "email", domains = ["company.com"] }
POLICY
"#;

/// Names that a document makes up, and what prints the one that is meant.
const MADE_UP: &[(&str, &str)] = &[
    ("a-7f3k9m", "fumehood approvals ls --json | grep -o '\"a-[a-z0-9]*' | head -n 1 | tr -d '\"'"),
    ("m-2c8xq0", "fumehood approvals remembered --json | grep -o '\"m-[a-z0-9]*' | tail -n 1 | tr -d '\"'"),
    ("/run/user/1000", "echo \"$HOME\""),
    ("IMAGE", "echo docker.io/library/small:1"),
    ("NAME", "echo one"),
    // No runtime but ours sets this where an engine did not ask for it.
    ("CMD", "echo /bin/busybox grep -q NoNewPrivs:.1 /proc/self/status"),
    ("r-20261122-022119-b83197", "fumehood audit show --json | grep -o 'r-[0-9]*-[0-9]*-[0-9a-f]*' | tail -n 1"),
];

/// What a reader has done before a page's commands.
const BEFORE: &[(&str, &str)] = &[
    (
        "docs/concepts/approvals.md",
        r#"call() { printf '{"id":%d,"op":"call","tool":"mail.send","args":{"to":"ann%d@company.com","body":"hello"},"here":true}\n' $1 $1; }
(for n in 1 2 3 4; do call $n; done; sleep 60) | fumehood tools serve -p policy.toml --stdio >/dev/null 2>&1 &
for _ in $(seq 100); do fumehood approvals ls | grep -c waiting | grep -q 4 && break; sleep 0.1; done
"#,
    ),
    ("sdk/python/README.md", MAIL),
    ("docs/reference/python.md", MAIL),
    ("README.md", BUILT),
    ("docs/install.md", BUILT),
    (
        "docs/reference/oci.md",
        r#"mount -t tmpfs -o mode=755 tmpfs /usr/local/bin
trap 'umount -l /usr/local/bin' EXIT
if [ -n "$FUMEHOOD_OWN_PODMAN$FUMEHOOD_OWN_CONTAINERD" ]; then
  image=docker.io/library/small:1
  fumehood image from-host -t $image --paths /usr/bin/busybox >/dev/null && fumehood image export $image small.tar >/dev/null
fi
if [ -n "$FUMEHOOD_OWN_PODMAN" ]; then
  podman() { command podman --root "$HOME/store" --runroot "$HOME/run" --tmpdir "$HOME/tmp" --storage-driver vfs --events-backend none "$@"; }
  podman --cgroup-manager cgroupfs load -q -i small.tar >/dev/null
fi
if [ -n "$FUMEHOOD_OWN_CONTAINERD" ]; then
  PATH=$PATH:$FUMEHOOD_OWN_CONTAINERD
  ctr images import small.tar >/dev/null
fi
"#,
    ),
];

/// The product, where `cargo build` puts it.
const BUILT: &str = r#"mkdir -p target/x86_64-unknown-linux-gnu/release
cp "$(command -v fumehood)" target/x86_64-unknown-linux-gnu/release/
"#;

/// Files that a reader has, where the page shows no other of that name.
const FILES: &[(&str, &str)] = &[
    ("script.py", "print('mean', sum([3, 5, 10]) / 3)\n"),
    (
        "analysis.py",
        "import csv, json, sys\nrows = list(csv.DictReader(open(sys.argv[1])))\n\
         json.dump({'rows': len(rows)}, open('summary.json', 'w'))\nopen('notes.txt', 'w').write('checked\\n')\n",
    ),
    ("data.csv", "day,count\nMon,3\nTue,5\n"),
    ("send.py", "import json, sys\nprint('sent to', json.load(sys.stdin)['to'])\n"),
    ("hook.key", "0123456789abcdef0123456789abcdef\n"),
    ("delete.py", "import json, sys\nprint('deleted', json.load(sys.stdin)['id'])\n"),
];

/// One thing that is run.
struct Step {
    place: String,
    /// As it stands in the document, its remark left out.
    text: String,
    code: i32,
    /// The lines that the document shows; none if it shows none.
    output: Vec<String>,
}

/// A page: what is written and what is run.
#[derive(Default)]
struct Page {
    name: String,
    /// It is root's session.
    root: bool,
    files: Vec<(String, String)>,
    steps: Vec<Step>,
}

fn listed<'a>(table: &'a [(&str, &'a str)], text: &str) -> Option<&'a str> {
    table.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
}

/// The steps of a `console` block.
fn console(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (number, line) in block.lines.iter().enumerate() {
        let Some(command) = line.strip_prefix("$ ") else {
            if let Some(step) = steps.last_mut() {
                step.output.push(line.clone());
            }
            continue;
        };
        let (text, remark) = command.split_once(" # ").unwrap_or((command, ""));
        let code = remark.split_once("exit code ").and_then(|(_, rest)| {
            rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok())
        });
        steps.push(Step {
            place: format!("{}:{}", block.page, block.line + number + 1),
            text: text.trim_end().to_owned(),
            code: code.unwrap_or(0),
            output: Vec::new(),
        });
    }
    steps
}

/// A program in Python that is run here: its file, and the step.
fn program(block: &Block) -> Option<((String, String), Step)> {
    let (place, name) = (block.place(), format!("block-{}.py", block.line));
    let (command, before, after) = match trial(block)? {
        Trial::Run { before, after } => ("python3", *before, *after),
        Trial::AsRoot { after } => ("sudo python3", "", *after),
        Trial::Stage { .. } => return None,
    };
    let text = format!("{command} -B {name}");
    let code = format!("{before}{}\n{after}\n", block.lines.join("\n"));
    Some(((name, code), Step { place, text, code: 0, output: Vec::new() }))
}

fn pages() -> Read<Vec<Page>> {
    let mut pages: Vec<Page> = Vec::new();
    for block in blocks()? {
        if pages.last().is_none_or(|page| page.name != block.page) {
            pages.push(Page { name: block.page.clone(), ..Page::default() });
        }
        let Some(page) = pages.last_mut() else { continue };
        if let Some(name) = block.file() {
            page.files.push((name.to_owned(), block.lines.join("\n") + "\n"));
        }
        match block.language() {
            "console" => page.steps.extend(console(&block)),
            "sh" | "bash" => {
                let (place, text) = (block.place(), block.lines.join("\n"));
                page.steps.push(Step { place, text, code: 0, output: Vec::new() });
            }
            "python" => {
                if let Some((file, step)) = program(&block) {
                    page.files.push(file);
                    page.steps.push(step);
                }
            }
            _ => {}
        }
    }
    let of_root = of_root(&mut pages);
    pages.extend(of_root);
    pages.retain(|page| !page.steps.is_empty());
    Ok(pages)
}

/// Takes out what is not run here; beside an engine of containers, the pages that need none are run elsewhere.
fn leave_what_runs_here(pages: &mut Vec<Page>) {
    let engine = engine();
    let by = |step: &Step| listed(BY_ENGINE, &step.text);
    if let Some(engine) = engine {
        pages.retain(|page| page.steps.iter().any(|step| by(step) == Some(engine)));
    }
    for page in &mut *pages {
        let elsewhere = |step: &Step| ELSEWHERE.iter().any(|(text, ..)| *text == step.text);
        page.steps.retain(|step| !elsewhere(step) && by(step).is_none_or(|by| Some(by) == engine) && is_there(step));
    }
    pages.retain(|page| !page.steps.is_empty());
}

/// What `sudo` stands before, each as a page of root's.
fn of_root(pages: &mut [Page]) -> Vec<Page> {
    let mut found = Vec::new();
    for page in pages {
        let (of_root, own) =
            std::mem::take(&mut page.steps).into_iter().partition(|step| step.text.starts_with("sudo "));
        page.steps = own;
        found.push(Page { name: page.name.clone(), root: true, files: page.files.clone(), steps: of_root });
    }
    found
}

/// Whether this host has what a command needs; told by name if not.
#[expect(clippy::print_stdout, reason = "skips are told")]
fn is_there(step: &Step) -> bool {
    let need = listed(NEEDS, &step.text);
    let program = |name: &str| {
        let places = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        places.iter().any(|place| Path::new(place).join(name).exists())
    };
    let lacks = match need {
        Some(need) if !program(need) => Some(need),
        Some(_) | None => (step.text.starts_with("sudo ") && !conformance::fixture::root()).then_some("root"),
    };
    if let Some(lacks) = lacks {
        println!("skip: {}: `{}` needs {lacks}", step.place, step.text);
    }
    lacks.is_none()
}

/// The page's session. Output and exit code of each step are kept in files of its number.
#[expect(clippy::disallowed_methods, reason = "what a stage with an engine of its own says")]
fn session(page: &Page, scene: &Fixture, bin: &Path) -> Result<String, std::fmt::Error> {
    let mut script = String::new();
    let (home, out) = (scene.outside().join("home"), scene.outside().join("steps"));
    let bin = bin.display();
    writeln!(script, "export HOME='{}' PATH='{bin}':$PATH PYTHONPATH='{bin}/python'", home.display())?;
    writeln!(script, "steps='{}'\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT", out.display())?;
    let engines =
        std::env::vars().filter(|(name, _)| name.starts_with("FUMEHOOD_OWN_") || name == "CONTAINERD_NAMESPACE");
    for (name, value) in engines {
        writeln!(script, "export {name}='{value}'")?;
    }
    script.push_str(listed(BEFORE, &page.name).unwrap_or_default());
    for (number, step) in page.steps.iter().enumerate() {
        let mut text = step.text.strip_prefix("sudo ").unwrap_or(&step.text).to_owned();
        for (made_up, real) in MADE_UP {
            text = text.replace(made_up, &format!("$({real})"));
        }
        let files = format!(">\"$steps/{number}.out\" 2>&1 </dev/null");
        if let Some(ready) = listed(SERVERS, &step.text) {
            writeln!(script, "{text} {files} &")?;
            writeln!(
                script,
                "for _ in $(seq 300); do grep -q '{ready}' \"$steps/{number}.out\" && break; sleep 0.1; done"
            )?;
            writeln!(script, "grep -q '{ready}' \"$steps/{number}.out\"; echo $? >\"$steps/{number}.code\"")?;
        } else {
            writeln!(script, "{{ {text}\n}} {files}; echo $? >\"$steps/{number}.code\"")?;
        }
    }
    Ok(script)
}

/// Whether a line is what the document shows: `...` is anything.
fn line_fits(shown: &str, line: &str) -> bool {
    let mut parts = shown.split("...");
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    false
}

/// Whether these lines are what the document shows: a line `...` is any number of lines.
fn lines_fit(shown: &[&str], lines: &[&str]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((&"...", rest)) => {
            (0..=lines.len()).any(|skip| lines.get(skip..).is_some_and(|left| lines_fit(rest, left)))
        }
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, left)| line_fits(first, line) && lines_fit(rest, left))
        }
    }
}

fn trimmed(text: &str) -> Vec<&str> {
    text.trim_end().lines().map(str::trim_end).collect()
}

/// What is wrong with one step, by what it left.
fn wrong_step(step: &Step, code: &str, output: &str) -> Option<String> {
    let show = |what: &str| Some(format!("{}: `{}` {what}; its output:\n{}", step.place, step.text, output.trim_end()));
    match code.trim().parse::<i32>() {
        Err(_) => return show("was not reached, or its session was ended in it"),
        Ok(code) if code != step.code => return show(&format!("ended with {code}, not {}", step.code)),
        Ok(_) => {}
    }
    let shown = step.output.join("\n");
    if step.output.is_empty() || lines_fit(&trimmed(&shown), &trimmed(output)) {
        return None;
    }
    show(&format!("printed something else than\n{shown}\n"))
}

/// Runs a page; what is wrong with it.
fn try_page(page: &Page, bin: &Path) -> Read<Vec<String>> {
    let who = if page.root { Who::Rootful } else { Who::Rootless };
    let scene = Fixture::new(BackendId::native(Tier::Container), who).map_err(|error| error.to_string())?;
    let given = FILES.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    for (name, text) in given.chain(page.files.iter().cloned()) {
        let path = scene.file(&name, &text).map_err(|error| error.to_string())?;
        if name.ends_with(".key") {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        }
    }
    let steps = scene.outside().join("steps");
    for folder in [&steps, &scene.outside().join("home")] {
        fs::create_dir(folder)?;
        scene.give(folder).map_err(|error| error.to_string())?;
    }
    let script = session(page, &scene, bin)?;
    // What root mounts is its session's alone; an engine is to see it, and lives with this test in a namespace of their own.
    let command = if page.root && engine().is_none() {
        scene.command(Path::new("/usr/bin/unshare"), &["--mount", "/bin/bash", "-c", &script])
    } else {
        scene.command(Path::new("/bin/bash"), &["-c", &script])
    };
    let ended = scene.begin_and_end(&command);
    let left = |number: usize, what: &str| {
        fs::read(steps.join(format!("{number}.{what}"))).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let mut found = Vec::new();
    for (number, step) in page.steps.iter().enumerate() {
        let (code, output) = (left(number, "code").unwrap_or_default(), left(number, "out").unwrap_or_default());
        found.extend(wrong_step(step, &code, &output));
    }
    match ended {
        Err(error) => found.push(format!("{}: {error}", page.name)),
        Ok(ended) if !found.is_empty() && !ended.stderr.is_empty() => {
            found.push(format!("{}: the session said: {}", page.name, String::from_utf8_lossy(&ended.stderr)));
        }
        Ok(_) => {}
    }
    Ok(found)
}

/// The product and our package for Python in a folder that every user may read.
fn installed() -> Read<tempfile::TempDir> {
    let folder = tempfile::Builder::new().prefix("docs-bin").tempdir()?;
    let everybody = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.path(), everybody.clone())?;
    let program = folder.path().join("fumehood");
    fs::copy(product::binary().map_err(|error| error.to_string())?, &program)?;
    fs::set_permissions(&program, everybody)?;
    for part in ["fumehood", "fumehood/tools"] {
        let to = folder.path().join("python").join(part);
        fs::create_dir_all(&to)?;
        for entry in fs::read_dir(root().join("sdk/python/src").join(part))? {
            let path = entry?.path();
            if let Some(name) = path.file_name().filter(|_| path.is_file()) {
                fs::copy(&path, to.join(name))?;
            }
        }
    }
    Ok(folder)
}

#[test]
fn every_command_of_the_documents_does_what_they_show() {
    let mut pages = pages().expect("the documents can be read");
    leave_what_runs_here(&mut pages);
    let steps: usize = pages.iter().map(|page| page.steps.len()).sum();
    let least = if engine().is_some() { (1, 1) } else { (10, 50) };
    assert!(
        pages.len() >= least.0 && steps >= least.1,
        "{} pages, {steps} commands: the search is broken",
        pages.len()
    );
    let bin = installed().expect("the product can be copied");
    // $FUMEHOOD_PAGE tries those alone whose name holds it.
    let only = std::env::var_os("FUMEHOOD_PAGE").unwrap_or_default();
    let only = only.to_string_lossy();
    let mut found = Vec::new();
    for page in pages.iter().filter(|page| page.name.contains(only.as_ref())) {
        found.extend(try_page(page, bin.path()).expect("a page can be tried"));
    }
    crate::none(&found);
}

#[test]
fn every_row_of_what_is_not_run_is_needed() {
    let blocks = blocks().expect("the documents can be read");
    let steps: Vec<Step> = blocks.iter().filter(|block| block.language() == "console").flat_map(console).collect();
    let exact = BY_ENGINE.iter().chain(NEEDS).chain(SERVERS).map(|(text, _)| *text);
    let exact = exact.chain(ELSEWHERE.iter().map(|(text, ..)| *text));
    let exact = exact.filter(|text| !steps.iter().any(|step| step.text == *text));
    let named = MADE_UP.iter().chain(FILES).map(|(name, _)| *name);
    let named = named.filter(|name| !steps.iter().any(|step| step.text.contains(name)));
    let pages = BEFORE.iter().map(|(page, _)| *page).filter(|page| !root().join(page).is_file());
    let unused: Vec<String> = exact.chain(named).chain(pages).map(|row| format!("no document has `{row}`")).collect();
    crate::none(&unused);
}

#[test]
fn a_wrong_output_code_or_end_is_found() {
    let step = |code, output: &[&str]| Step {
        place: "page:1".to_owned(),
        text: "fumehood plan".to_owned(),
        code,
        output: output.iter().map(|line| (*line).to_owned()).collect(),
    };
    let fits = |step: &Step, code: &str, output: &str| wrong_step(step, code, output).is_none();
    assert!(fits(&step(0, &[]), "0\n", "anything\n"));
    assert!(!fits(&step(0, &[]), "1\n", "anything\n"), "another exit code was taken");
    assert!(!fits(&step(0, &[]), "", ""), "a command that was not reached was taken");
    let shown = ["run r-... in ...", "", "...", "+6.0"];
    assert!(fits(&step(1, &shown), "1\n", "run r-1 in /a\n\nadded\n@@\n+6.0\n"));
    for wrong in
        ["run x-1 in /a\n\nadded\n+6.0\n", "run r-1 in /a\n\nadded\n+6.1\n", "run r-1 in /a\n\n+6.0\nmore\n", ""]
    {
        assert!(!fits(&step(1, &shown), "1\n", wrong), "{wrong:?} was taken");
    }
    assert!(line_fits("a...b", "a, b") && !line_fits("a...b", "a, c") && !line_fits("a b", "a b c"));
}
