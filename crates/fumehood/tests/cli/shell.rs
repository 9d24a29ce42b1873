//! `fumehood shell`

use crate::Fixture;

#[test]
fn a_shell_without_a_terminal_is_bad_usage() {
    let said = Fixture::new().run(&["shell"]);
    assert_eq!((said.code, said.out.as_str()), (125, ""));
    assert!(said.err.starts_with("error: `shell` needs a terminal\n"), "{}", said.err);
}

#[test]
fn a_shell_takes_no_words() {
    let said = Fixture::new().run(&["shell", "bash"]);
    assert_eq!(said.code, 125);
    assert!(said.err.contains("`bash` is one word too many"), "{}", said.err);
}

#[test]
fn what_was_typed_while_the_sandbox_started_is_not_lost() {
    let fixture = Fixture::new();
    let typed = "echo it-is-$((40 + 2))\nexit 0\n";
    for args in [&["shell", "--color", "never"][..], &["run", "-t", "--", "sh"]] {
        let shown = crate::on_terminal(&fixture, args, typed);
        assert!(shown.contains("it-is-42"), "{args:?}: {shown:?}");
    }
}

#[test]
fn the_time_of_a_preset_does_not_end_a_shell_and_that_of_a_user_does() {
    let fixture = Fixture::new();
    // The presets' own time would be told beside what was used.
    let used = |args: &[&str]| {
        let shown = crate::on_terminal(&fixture, &[&["shell", "--color", "never"], args].concat(), "exit 0\n");
        let line = shown.lines().find(|line| line.contains("used:")).unwrap_or_default().to_owned();
        line.split(',').next().unwrap_or_default().to_owned()
    };
    for preset in ["strict", "python"] {
        let line = used(&["-p", preset]);
        assert!(line.contains("time ") && !line.contains(" of "), "{line}");
    }
    assert!(used(&["--timeout", "9s"]).ends_with(" of 9 s"));
    std::fs::write(fixture.path("work/p.toml"), "version = 1\nlimits.wall = \"8s\"\n").unwrap();
    assert!(used(&["-p", "p.toml"]).ends_with(" of 8 s"));
    let ended = crate::on_terminal(&fixture, &["shell", "--color", "never", "--timeout", "300ms"], "sleep 9\n");
    assert!(ended.contains("limit: wall time reached its limit of 300ms"), "{ended:?}");
}

#[test]
fn a_screen_says_where_output_is_cut_and_a_preset_cuts_no_shell() {
    let fixture = Fixture::new();
    let cut = crate::on_terminal(&fixture, &["run", "-t", "--output-limit", "4K", "--", "seq", "3000"], "");
    assert!(cut.contains("[fumehood: `limits.output` is reached, nothing more is shown]"), "{cut:?}");
    assert!(cut.contains("of output were not kept: its limit is `limits.output`") && !cut.contains("2999"), "{cut:?}");
    // The presets' limit is 1 MiB.
    let typed = "seq 200000 | tail -c 1200000\necho an-$((1 + 1))\nexit 0\n";
    let shown = crate::on_terminal(&fixture, &["shell", "--color", "never"], typed);
    assert!(shown.contains("an-2") && !shown.contains("nothing more is shown"), "{} bytes", shown.len());
}

#[test]
fn an_interpreter_that_got_no_input_is_told_how_it_gets_some() {
    let fixture = Fixture::new();
    let told = "it was given no input: `-t` gives it your terminal";
    let shown = |args: &[&str]| crate::on_terminal(&fixture, &[&["run", "--color", "never"], args].concat(), "");
    assert!(shown(&["--", "sh"]).contains(told), "{:?}", shown(&["--", "sh"]));
    for args in [&["--", "true"][..], &["--", "sh", "-c", "true"], &["-q", "--", "sh"]] {
        assert!(!shown(args).contains(told), "{args:?}");
    }
    let given = crate::on_terminal(&fixture, &["run", "--color", "never", "-t", "--", "sh"], "exit\n");
    assert!(!given.contains(told), "{given:?}");
}
