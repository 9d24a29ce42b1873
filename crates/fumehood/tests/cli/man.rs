//! `fumehood man`

use crate::{Fixture, files_below};

#[test]
fn a_page_is_roff_with_its_flags() {
    let said = Fixture::new().run(&["man", "audit", "verify"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert!(said.out.contains(".TH fumehood-audit-verify 1") && said.out.contains(r"\-\-key"), "{}", said.out);
}

#[test]
fn all_pages_are_written_into_a_directory() {
    let fixture = Fixture::new();
    let said = fixture.run(&["man", "--dir", "."]);
    assert_eq!((said.code, said.out.as_str()), (0, ""));
    let pages = files_below(&fixture.path("work"));
    let names: Vec<_> = pages.iter().map(|p| p.file_name().unwrap().to_str().unwrap()).collect();
    for page in ["fumehood.1", "fumehood-audit.1", "fumehood-audit-show.1", "fumehood-explain.1"] {
        assert!(names.contains(&page), "{names:?}");
    }
}

#[test]
fn a_directory_that_is_not_there_is_a_clear_failure() {
    let said = Fixture::new().run(&["man", "--dir", "nowhere"]);
    assert_eq!((said.code, said.out.as_str()), (125, ""));
    assert!(said.err.contains("error: cannot write a manual page\n  --> `nowhere/fumehood"), "{}", said.err);
}
