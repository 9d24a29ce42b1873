//! `fumehood completions SHELL`

use std::process::Stdio;

use crate::Fixture;

#[test]
fn every_shell_gets_every_command() {
    let fixture = Fixture::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let said = fixture.run(&["completions", shell]);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{shell}");
        for word in ["explain", "verify", "completions", "color"] {
            assert!(said.out.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn bash_reads_its_script() {
    let fixture = Fixture::new();
    let script = fixture.path("completions");
    std::fs::write(&script, fixture.run(&["completions", "bash"]).out).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the shell is the judge of the script")]
    let mut bash = std::process::Command::new("bash");
    let status = bash.arg("-n").arg(&script).stderr(Stdio::inherit()).status().unwrap();
    assert!(status.success());
}

#[test]
fn an_unknown_shell_names_the_known() {
    let said = Fixture::new().run(&["completions", "bahs"]);
    assert_eq!(said.code, 125);
    assert!(said.err.contains("fix: `fumehood completions bash`"), "{}", said.err);
    assert!(Fixture::new().run(&["completions"]).err.contains("no shell named"));
}
