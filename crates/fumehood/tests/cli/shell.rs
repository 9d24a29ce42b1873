//! `fumehood shell`

use crate::House;

#[test]
fn a_shell_without_a_terminal_is_bad_usage() {
    let said = House::new().run(&["shell"]);
    assert_eq!((said.code, said.out.as_str()), (125, ""));
    assert!(said.err.starts_with("error: `shell` needs a terminal\n"), "{}", said.err);
}

#[test]
fn a_shell_takes_no_words() {
    let said = House::new().run(&["shell", "bash"]);
    assert_eq!(said.code, 125);
    assert!(said.err.contains("`bash` is one word too many"), "{}", said.err);
}
