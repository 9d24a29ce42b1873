//! CMD-01 to CMD-20: a line that a naive judge lets through and bash runs (the control), refused by ours; and a neighbour that
//! looks alike, is harmless, and passes.

use crate::world::World;

/// What people write first: the first word is on a list, or no word is on another.
fn naive(line: &str) -> bool {
    const GOOD: &[&str] = &[
        "ls",
        "cat",
        "echo",
        "find",
        "git",
        "timeout",
        "tar",
        "awk",
        "printf",
        "bash",
        "./git",
        "PATH=./bin",
        "xargs",
        "env",
        "sort",
    ];
    const BAD: &[&str] = &["rm", "curl", "wget", "evil"];
    let first = line.split_whitespace().next().unwrap_or_default();
    let clean = line.split_whitespace().all(|word| !BAD.contains(&word));
    GOOD.contains(&first) || clean
}

/// The line passes a naive judge, bash starts `canary` for it, and ours refuses it for this reason; the neighbour passes.
fn row(world: &World, line: &str, canary: &str, id: &str, neighbour: &str) {
    assert!(naive(line), "no control: a naive judge refuses {line:?}");
    let started = world.run(line);
    assert!(started.iter().any(|words| words[0] == canary), "no control: {line:?} started {started:?}, not {canary}");
    assert_eq!(world.why(line), id, "{line:?}");
    assert!(world.allows(neighbour), "{neighbour:?}: {}", world.why(neighbour));
    let harmless = world.run(neighbour);
    assert!(!harmless.iter().any(|words| words[0] == canary), "{neighbour:?} started {harmless:?}");
}

#[test]
fn cmd_01_quotes_and_escapes_hide_no_name() {
    let world = World::new("inspect");
    for line in ["c\\url http://x", "'cu'rl http://x", "$'\\x63url' http://x", "\"c\"url http://x"] {
        row(&world, line, "curl", "commands.program/not-allowed", "c\\at 'README.md'");
    }
}

#[test]
fn cmd_02_substitutions_are_judged() {
    let world = World::new("inspect");
    for line in ["echo $(evil)", "echo \"a `evil` b\"", "cat <<E\n$(evil)\nE", "echo \"x $(echo $(evil))\""] {
        let id = if line.contains("<<") { "commands.word/unproven" } else { "commands.program/not-allowed" };
        row(&world, line, "evil", id, "echo \"$(ls | wc -l)\"");
    }
    row(&world, "echo ${x:-$(evil)}", "evil", "commands.word/unproven", "echo ${x:-none}");
    row(&world, "x='a[$(evil)]'; echo $((x))", "evil", "commands.word/unproven", "echo $((1 + 2))");
    row(&world, "x='$(evil)'; echo ${x@P}", "evil", "commands.word/unproven", "x=a; echo ${x}");
}

#[test]
fn cmd_03_a_variable_is_no_program() {
    let world = World::new("inspect");
    row(&world, "x=evil; $x -r", "evil", "commands.program/unproven", "x=$(ls); echo \"$x\"");
    row(&world, "x=ev; ${x}il", "evil", "commands.program/unproven", "x=ev; echo ${x}il");
}

#[test]
fn cmd_04_the_environment_before_a_command_is_a_list() {
    let world = World::new("inspect");
    world.put("bin/ls", &world.canary().replace("${0##*/}", "planted"));
    row(&world, "PATH=./bin ls", "planted", "commands.env/not-allowed", "LC_ALL=C ls");
    row(&world, "PATH=./bin; ls", "planted", "commands.env/not-allowed", "path=./bin; ls");
    row(
        &world,
        "echo x | { read PATH <<< ./bin; ls; }",
        "planted",
        "commands.argument/type",
        "echo x | { read path <<< ./bin; ls; }",
    );
    for line in [
        "LD_PRELOAD=./x ls",
        "GIT_SSH_COMMAND=x git log",
        "BASH_ENV=x ls",
        "PYTHONSTARTUP=x ls",
        "export PATH=.",
        "env NODE_OPTIONS=x ls",
    ] {
        assert!(!world.allows(line), "{line}");
    }
}

#[test]
fn cmd_05_words_are_not_divided_behind_the_judges_back() {
    let world = World::new("inspect");
    let neighbour = "while IFS= read -r line; do echo \"$line\"; done < a.txt";
    row(&world, "IFS=,; a=evil,-r,x; $a", "evil", "commands.env/not-allowed", neighbour);
    row(&world, "echo ok; evi''l${IFS}x", "evil", "commands.program/unproven", "echo 'a${IFS}b'");
}

#[test]
fn cmd_06_wrappers_are_judged_through() {
    let world = World::new("inspect");
    for line in ["timeout 5 evil x", "timeout -s KILL 5 nice -n 3 evil", "env LC_ALL=C timeout 5 evil"] {
        row(&world, line, "evil", "commands.program/not-allowed", "timeout -s KILL 5 nice -n 3 ls");
    }
    row(&world, "timeout 5 setsid evil", "evil", "commands.wrapper/not-allowed", "timeout 5 ls");
    row(&world, "env -S 'evil x'", "evil", "commands.argument/flag", "env LC_ALL=C ls");
    row(&world, "echo a; time evil", "evil", "commands.program/not-allowed", "time ls");
    for line in ["command evil", "exec evil", "sudo ls", "busybox ls", "watch ls", "script -c ls", "flock -c ls x"] {
        assert!(!world.allows(line), "{line}");
    }
}

#[test]
fn cmd_07_an_interpreter_gets_no_program_from_a_pipe_or_document() {
    let world = World::new("inspect");
    row(&world, "cat a.txt | sh", "sh", "commands.program/not-allowed", "cat a.txt | wc -l");
    row(&world, "echo x; sh <<E\nevil\nE", "sh", "commands.program/not-allowed", "cat <<E\nevil\nE");
    let dev = World::new("dev");
    row(&dev, "bash <<< 'evil'", "evil", "commands.argument/count", "cat <<< 'evil'");
    row(&dev, "echo evil x | bash", "evil", "commands.argument/count", "echo evil x | cat");
    assert_eq!(dev.why("python3 - <<< 'x'"), "commands.path/outside");
}

#[test]
fn cmd_08_no_name_gets_another_meaning() {
    let world = World::new("inspect");
    row(&world, "ls() { evil; }; ls", "evil", "commands.shell/definition", "ls; ls -l");
    row(&world, "trap 'evil' EXIT", "evil", "commands.builtin/evaluates", "echo 'evil' EXIT");
    row(&world, "shopt -s expand_aliases\nalias ls=evil\nls", "evil", "commands.builtin/evaluates", "echo ls=evil\nls");
    row(&world, "eval 'evil x'", "evil", "commands.builtin/evaluates", "echo 'evil x'");
    for line in ["hash -p ./x ls", "enable -f ./x y", "declare -x PATH=.", "export -n PATH"] {
        assert!(!world.allows(line), "{line}");
    }
}

#[test]
fn cmd_09_programs_do_not_run_programs() {
    let world = World::new("inspect");
    world.put("a.txt", "one\n");
    row(&world, "find . -name a.txt -exec evil {} \\;", "evil", "commands.argument/flag", "find . -name a.txt -print");
    row(
        &world,
        "find . -name a.txt -execdir evil {} +",
        "evil",
        "commands.argument/flag",
        "find . -name '*.txt' -type f",
    );
    row(&world, "awk 'BEGIN{system(\"evil\")}'", "evil", "commands.argument/type", "awk '{print $1}' a.txt");
    row(&world, "awk '{print | \"evil\"}' a.txt", "evil", "commands.argument/type", "awk '{print $1, $2}' a.txt");
    for line in ["sed '1e id' a", "rg --pre x y", "sort --compress-program=x a", "vim -c :!x", "man -P x ls", "less a"]
    {
        assert!(!world.allows(line), "{line}");
    }
}

#[test]
fn cmd_10_git_launches_nothing() {
    let world = World::new("inspect");
    row(&world, "git -c alias.s=!evil s", "evil", "commands.argument/flag", "git status");
    for line in [
        "git --exec-path=x log",
        "git fetch --upload-pack=x .",
        "git clone ext::x",
        "git diff --ext-diff",
        "git grep -Ox y",
        "git rebase -x y",
        "git bisect run x",
        "git -calias.s=!evil s",
        "git --config-env=core.pager=X log",
        "git log --format=%G?",
        // What it would write by itself.
        "git diff --output=x",
        "git log --output x",
        "git archive -o x HEAD",
        "git format-patch -o x HEAD",
        "git bundle create x HEAD",
        "git worktree add x",
        "git clone . x",
        "git init x",
        "git stash push",
        "git describe --dirty",
        "git --git-dir=x status",
        "git --work-tree=x status",
        "GIT_DIR=x git status",
        "env GIT_WORK_TREE=x git status",
    ] {
        assert!(!world.allows(line), "{line}");
    }
}

/// The repository of a workspace that came from elsewhere: its own configuration starts a program at an allowed `git status`.
#[test]
fn cmd_10_a_repositorys_own_configuration_starts_nothing() {
    use gate::command::{JudgeOptions, Judgement};
    let world = World::new("inspect");
    let git = |words: &str| {
        world.run(&format!("git init -q . && git config user.name a && git config user.email a@b && {words}"))
    };
    world.put("a.txt", "one\n");
    world.put(".gitattributes", "*.txt filter=x\n");
    git("git add a.txt && git commit -qm x && git config filter.x.clean 'evil; cat'");
    world.put("a.txt", "two\n");
    let started = world.run("git status");
    assert!(started.iter().any(|words| words[0] == "evil"), "no control: {started:?}");
    let options = JudgeOptions { root: world.work(), inspect: Some(world.work()), tree: "/".into() };
    let judge = crate::world::judge(&crate::world::policy("inspect"), options).unwrap();
    let Judgement::Refused(reasons) = judge.line("git status") else { panic!("it was allowed") };
    assert_eq!(reasons[0].id, "commands.git/configuration");
    assert!(matches!(judge.line("git status | cat"), Judgement::Refused(_)));
    // The same repository without the filter passes.
    git("git config --remove-section filter.x");
    assert!(matches!(judge.line("git status"), Judgement::Allowed { shell: false, .. }));
    // What the environment overrides: a monitor, and a pager.
    git("git config core.fsmonitor ./evil.sh");
    world.put("evil.sh", "#!/bin/sh\nevil\n");
    assert!(world.run("git status").iter().any(|words| words[0] == "evil"), "no control");
    assert!(matches!(judge.line("git status"), Judgement::Refused(_)));
    let forced: String = judge.environment().iter().map(|(name, value)| format!("export {name}='{value}'; ")).collect();
    let started = world.run(&format!("{forced} git status"));
    assert!(!started.iter().any(|words| words[0] == "evil"), "{started:?}");
}

#[test]
fn cmd_11_archives_are_listed_and_nothing_else() {
    let world = World::of(
        "version = 1\n[commands]\nprograms = [{ name = \"tar\", args = [{ flags = [\"-t,--list\", \"-v\", \"-f,--file=path\"], positional = \"path\" }] }]\n",
    );
    world.put("a.txt", "one\n");
    let line = "tar cf /dev/null --checkpoint=1 --checkpoint-action=exec=evil a.txt";
    row(&world, line, "evil", "commands.argument/flag", "tar -tf a.tar");
    let line = "tar -cf /dev/null --checkpoint=1 --checkpoint-a=exec=evil a.txt";
    row(&world, line, "evil", "commands.argument/flag", "tar -tvf a.tar");
    assert!(!world.allows("tar -tf a.tar *"), "a file may be named --checkpoint-action=exec=x");
    assert!(world.allows("tar -tf a.tar -- *"));
}

#[test]
fn cmd_12_interpreters_run_scripts_of_the_workspace_alone() {
    let dev = World::new("dev");
    row(&dev, "bash -ec 'evil x'", "evil", "commands.program/not-allowed", "bash -ec 'ls -l'");
    dev.put("evil.sh", "evil\n");
    assert!(dev.allows("bash run.sh") && dev.allows("python3 a.py") && dev.allows("python3 -Im pytest"));
    for line in [
        "python3 -c x",
        "python3 -Ic x",
        "python3 -m http.server",
        "python3 -m pip install x",
        "python3 -W error a.py",
        "python3 -X importtime a.py",
        "node -e 1",
        "node --import x a.js",
        "node -r x a.js",
        "perl -e 1",
        "ruby -r x",
        "php -r x",
        "python3",
        "python3 -",
        "python3 /dev/stdin",
    ] {
        assert!(!dev.allows(line), "{line}");
    }
}

/// A shell takes options that begin with `+`, and its line behind any of them.
#[test]
fn cmd_12_a_line_behind_options_with_a_plus_is_judged() {
    let dev = World::new("dev");
    row(&dev, "bash +e -c 'evil x'", "evil", "commands.program/not-allowed", "bash +e -c 'ls -l'");
    row(&dev, "bash +c 'evil x'", "evil", "commands.program/not-allowed", "bash +c 'ls -l'");
    row(&dev, "bash +eu -c 'evil x'", "evil", "commands.program/not-allowed", "bash -e +u -c ls");
    row(&dev, "bash + -c 'evil x'", "evil", "commands.argument/flag", "bash -c 'ls +'");
    row(&dev, "bash +O extglob -c 'evil x'", "evil", "commands.argument/flag", "bash run.sh +O extglob");
    row(&dev, "bash -c -e 'evil x'", "evil", "commands.word/unproven", "bash -e -c 'ls'");
    row(&dev, "bash -c +e 'evil x'", "evil", "commands.word/unproven", "bash +e -c 'ls'");
    dev.put("lines", "evil x\n");
    row(&dev, "bash +s < lines", "evil", "commands.argument/flag", "cat < lines");
    for line in ["bash +x -c", "bash +-c ls", "bash +o errexit -c ls", "bash \"+$x\" -c ls", "bash +ec'' 'rm -rf x'"] {
        assert!(!dev.allows(line), "{line}");
    }
    // The policy's own rules of a shell are no weaker, whatever the shell's name.
    let own =
        World::of("version = 1\n[commands]\nprograms = [{ name = \"dash\", args = [{ positional = \"path\" }] }]\n");
    assert_eq!(own.why("dash +c 'evil x'"), "commands.argument/flag");
    assert_eq!(own.why("/usr/bin/dash + -c x"), "commands.argument/flag");
    assert!(own.allows("dash run.sh"), "{}", own.why("dash run.sh"));
}

#[test]
fn a_program_may_say_which_version_it_is() {
    let names = ["python3", "python", "node", "bash", "cargo", "rustc", "make", "perl", "java", "pip"];
    let list: Vec<String> = names.iter().map(|name| format!("{{ name = \"{name}\", args = \"read-only\" }}")).collect();
    let world = World::of(&format!("version = 1\n[commands]\nprograms = [{}]\n", list.join(", ")));
    for name in ["cargo", "rustc", "java"] {
        world.plant(name);
    }
    for name in names {
        assert_ne!(world.why(&format!("{name} --version")), "commands.argument/flag", "{name}");
        for more in ["", " x", " --version x", " -c x", " -e x", " -", " -m pip"] {
            assert!(!world.allows(&format!("{name}{more}")), "{name}{more}");
        }
    }
    for line in ["python3 --version", "python3 -V", "node -v", "make --version", "perl -v"] {
        assert!(world.allows(line), "{line}: {}", world.why(line));
    }
    let wide = World::of(
        "version = 1\n[commands]\nprograms = [{ name = \"make\", args = \"workspace\" }, { name = \"perl\", args = \"workspace\" }]\n",
    );
    assert!(
        wide.allows("make --version")
            && !wide.allows("make")
            && !wide.allows("echo x | perl")
            && !wide.allows("make all")
    );
    let dev = World::new("dev");
    assert!(dev.allows("python3 --version") && dev.allows("node --version") && dev.allows("pip --version"));
    let inspect = World::new("inspect");
    for line in [
        "git branch --list",
        "git branch -l 'x*'",
        "git branch --contains main",
        "git tag -l",
        "git tag --list 'v*'",
        "git tag --points-at HEAD",
    ] {
        assert!(inspect.allows(line), "{line}: {}", inspect.why(line));
    }
    for line in [
        "git branch x",
        "git tag v1",
        "git branch -d x",
        "git branch -D x",
        "git branch -m x",
        "git branch -a x",
        "git tag -d x",
        "git branch -f x",
    ] {
        assert!(!inspect.allows(line), "{line}");
    }
}

#[test]
fn cmd_13_data_becomes_no_command() {
    let world = World::new("inspect");
    row(
        &world,
        "printf 'evil\\n' | xargs -I{} sh -c {}",
        "sh",
        "commands.program/not-allowed",
        "printf 'a\\n' | xargs -n1 basename --",
    );
    assert_eq!(world.why("printf 'evil\\n' | xargs -I{} {} x"), "commands.program/unproven");
    row(
        &world,
        "echo evil | xargs timeout 5",
        "evil",
        "commands.program/unproven",
        "echo a | xargs timeout 5 basename --",
    );
    let dev = World::new("dev");
    row(
        &dev,
        "printf '%s\\n' -c evil | xargs bash",
        "evil",
        "commands.word/unproven",
        "printf '%s\\n' -c | xargs basename --",
    );
}

#[test]
fn cmd_14_a_look_alike_is_denied_and_nothing_is_looked_up_twice() {
    let world = World::new("inspect");
    world.put("git", &world.canary().replace("${0##*/}", "planted"));
    row(&world, "./git status", "planted", "commands.program/elsewhere", "git status");
    for line in ["/tmp/git status", "../git status", "/proc/self/cwd/git status", "git/../git"] {
        assert_eq!(world.why(line), "commands.program/elsewhere", "{line}");
    }
    assert!(world.allows("/usr/bin/git status") && world.allows("/bin/git status"));
    // A plain command is executed by the path that was found, whatever `PATH` says by then.
    assert_eq!(world.judge.launch("git status").unwrap().path.to_str(), Some("/usr/bin/git"));
}

#[test]
fn cmd_15_process_substitutions_are_commands_and_dev_tcp_is_none() {
    let world = World::new("inspect");
    row(&world, "cat <(evil)", "evil", "commands.program/not-allowed", "diff <(ls a) <(ls b)");
    row(&world, "ls > >(evil)", "evil", "commands.program/not-allowed", "ls > /dev/null");
    row(&world, "cat < <(evil x)", "evil", "commands.program/not-allowed", "cat < <(ls)");
    for line in ["exec 3<>/dev/tcp/127.0.0.1/1", "cat < /dev/tcp/h/1", "echo x > /dev/udp/h/1", "cat <'/dev/t'cp/h/1"] {
        assert!(!world.allows(line), "{line}");
    }
    assert_eq!(world.why("coproc evil"), "commands.shell/definition");
}

#[test]
fn cmd_16_expansions_name_no_program_and_no_option() {
    let world = World::new("inspect");
    row(&world, "{evil,-r,x}", "evil", "commands.program/unproven", "echo {evil,-r,x}");
    world.put("bin/evil", &world.canary());
    row(&world, "./b?n/ev*", "evil", "commands.program/unproven", "ls ./b?n/ev*");
    row(&world, "~+/bin/evil", "evil", "commands.program/unproven", "echo ~+/bin/evil");
    for line in ["cat *", "git diff *", "sort *", "/???/c?rl", "!!"] {
        assert!(!world.allows(line), "{line}");
    }
    assert!(world.allows("cat -- *.txt") && world.allows("cat ./*.txt"));
}

#[test]
fn cmd_17_every_separator_separates() {
    let world = World::new("inspect");
    for line in [
        "ls\nevil x",
        "ls;evil x",
        "ls&evil x",
        "ls&&evil x",
        "ls|evil x",
        "ls|&evil x",
        "ls ||evil x; true | evil",
        "ls #\nevil x",
        "ls \\\n;evil x",
    ] {
        row(&world, line, "evil", "commands.program/not-allowed", "ls; cat a.txt # evil");
    }
    row(&world, "case a in a) ls;;& a) evil;; esac", "evil", "commands.program/not-allowed", "case a in a) ls;; esac");
    for line in ["ls\0rm", "ls\r", "ls\u{b}x", "ls\u{1b}[2K"] {
        assert_eq!(world.why(line), "commands.line/character", "{line:?}");
    }
}

#[test]
fn cmd_18_what_looks_like_a_letter_or_a_blank_is_none() {
    let world = World::new("inspect");
    world.plant("ls\u{a0}-l");
    row(&world, "ls\u{a0}-l", "ls\u{a0}-l", "commands.line/character", "ls -l");
    world.plant("l\u{455}");
    row(&world, "l\u{455} -l", "l\u{455}", "commands.program/unicode", "ls \u{455}");
    for line in ["ls \u{202e}x", "ls\u{200b}", "ls \u{2028}rm x", "cat \u{e0041}", "ls $'\\u202e'"] {
        assert_eq!(world.why(line), "commands.line/character", "{line:?}");
    }
    assert!(world.allows("grep 'gr\u{fc}n' a.txt") && world.allows("echo \u{1f600}"));
}

#[test]
fn cmd_19_lines_inside_lines_are_judged() {
    let dev = World::new("dev");
    row(&dev, "bash -c 'bash -c \"evil x\"'", "evil", "commands.program/not-allowed", "bash -c 'bash -c \"ls -l\"'");
    row(&dev, "timeout 5 bash -c 'ls; evil'", "evil", "commands.program/not-allowed", "timeout 5 bash -c 'ls; ls'");
    let deep = (0..12).fold("ls".to_owned(), |line, _| format!("echo $({line})"));
    assert_eq!(dev.why(&deep), "commands.line/too-big");
    for line in [
        "source /dev/stdin",
        ". ./f",
        "bash -ic ls",
        "su -c ls",
        "docker run x",
        "make -f -",
        "npm exec x",
        "uv run x",
        "npx x",
        "bash -c \"$x\"",
    ] {
        assert!(!dev.allows(line), "{line}");
    }
}

#[test]
fn cmd_20_what_is_written_is_judged_wherever_it_is_named() {
    let dev = World::new("dev");
    let hook = dev.work().join(".git/hooks/pre-commit");
    for line in [
        "ls > .git/hooks/pre-commit",
        "echo x >| .git/hooks/pre-commit",
        "cd .git/hooks && echo x > pre-commit",
        "echo x &> .gi\"t\"/hooks/pre-commit",
    ] {
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::os::unix::fs::chown(hook.parent().unwrap(), Some(65_534), Some(65_534)).unwrap();
        assert!(naive(line));
        dev.run(line);
        assert!(hook.exists(), "no control: {line}");
        std::fs::remove_file(&hook).unwrap();
        assert_eq!(dev.why(line), "commands.write/protected", "{line}");
    }
    assert!(dev.allows("ls > out.txt") && dev.allows("cd src && echo x > out.txt"));
    for line in [
        "ls | tee .git/config",
        "cp a .git/hooks/x",
        "cp -t .git/hooks a",
        "dd of=x",
        "ln -s a b",
        "install -m4755 a b",
        "printf -v x y",
        "mapfile x < a",
        "chmod u+s a",
    ] {
        assert!(!dev.allows(line), "{line}");
    }
}

#[test]
fn blocked_words_are_found_in_every_spelling() {
    let dev = World::new("dev");
    for line in [
        "rm -rf x",
        "rm -fr x",
        "rm -r -f x",
        "rm --recursive --force x",
        "rm -R -f x",
        "rm x -f -r",
        "r'm' -\"r\"f x",
        "timeout 5 rm -vrf x",
    ] {
        assert_eq!(dev.why(line), "commands.block/matched", "{line}");
    }
    assert!(dev.allows("rm -r x") && dev.allows("rm -f x") && dev.allows("echo 'rm -rf /'"));
    let world = World::new("inspect");
    for line in [
        "cat /etc/passwd",
        "cat /etc//passwd",
        "cat ../etc/passwd",
        "cat /etc/pass*",
        "cat /etc/[p]asswd",
        "cat < /etc/passwd",
        "grep -r x /etc",
        "sort -- /etc/passwd",
    ] {
        assert_eq!(world.why(line), "commands.block/matched", "{line}");
    }
    let wide = World::of(&crate::world::policy("inspect").replace("wrappers", "read = [\"/\"]\nwrappers"));
    assert!(wide.allows("cat /etc/hostname") && wide.allows("cat /etc/passwd.md5") && wide.allows("ls /etc"));
    assert_eq!(wide.why("cat /etc/passwd"), "commands.block/matched");
}
