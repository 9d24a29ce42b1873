//! GW-06: one address at an allowed domain.

use proptest::prelude::*;

use crate::{guard, stopped, text};

const ATTACKS: &[&str] = &[
    // header injection
    "a@company.com\r\nBcc: b@evil.example",
    "a@company.com\nBcc: b@evil.example,c@company.com",
    "a\r\n@company.com",
    "a@company.com\u{0}",
    "a@company.com ",
    " a@company.com",
    "a@company.com\t",
    "a\u{2028}@company.com",
    // several addresses
    "b@evil.example,a@company.com",
    "b@evil.example;a@company.com",
    "b@evil.example a@company.com",
    "b@evil.example, a@company.com",
    "group:b@evil.example,a@company.com;@company.com",
    "b@evil.example>,<a@company.com",
    // forms that programs read differently
    "b@evil.example <a@company.com>",
    "<a@company.com>",
    "\"b@evil.example\"@company.com",
    "\"b@evil.example> \"@company.com",
    "a(b@evil.example)@company.com",
    "b@evil.example(@company.com",
    "a@evil.example@company.com",
    "a@company.com@evil.example",
    "@evil.example:a@company.com",
    "a%evil.example@company.com",
    "evil.example!a@company.com",
    "=?utf-8?q?b=40evil.example=3e?=@company.com",
    "=?iso-8859-1?q?a=20b?=x@company.com",
    "|/bin/sh@company.com",
    "-oQ/tmp@company.com",
    "/etc/passwd@company.com",
    ".a@company.com",
    "a.@company.com",
    "a..b@company.com",
    "@company.com",
    // other domains
    "a@company.com.evil.example",
    "a@evil-company.com",
    "a@evilcompany.com",
    "a@sub.company.com",
    "a@company.com.",
    "a@company.co",
    "a@.company.com",
    "a@company..com",
    "a@comp\u{ad}any.com",
    "a@comp\u{200b}any.com",
    "a@company\u{3002}com",
    "a@ｃompany.com",
    "a@соmpany.com",
    "a@xn--mpany-55g3d.com",
    "a@company.com/evil.example",
    "a@company.com#evil.example",
    "a@[127.0.0.1]",
    "a@127.0.0.1",
    "a@[IPv6:::1]",
    "a@company.com\\@evil.example",
    "company.com",
    "",
];

fn long_local() -> String {
    format!("{}@company.com", "a".repeat(65))
}

#[test]
fn gw_06_no_trick_reaches_another_mailbox_and_plain_addresses_pass() {
    let guard = guard(r#"{ kind = "email", domains = ["company.com"] }"#);
    let by_suffix = stopped(&guard, ATTACKS, |attack| attack.trim().ends_with("@company.com"));
    let by_search = stopped(&guard, ATTACKS, |attack| attack.contains("@company.com"));
    assert!(by_suffix >= 15 && by_search >= 20, "the naive checks stop nearly all: {by_suffix}, {by_search}");
    assert!(text(&guard, &long_local()).is_err());
    for (given, passed) in [
        ("anna@company.com", "anna@company.com"),
        ("Anna.Berg+list@COMPANY.com", "Anna.Berg+list@company.com"),
        ("o'neil_x@company.com", "o'neil_x@company.com"),
        ("1@company.com", "1@company.com"),
    ] {
        assert_eq!(text(&guard, given).unwrap(), passed);
    }
}

#[test]
fn a_domain_of_another_script_is_compared_in_its_wire_form() {
    let guard = guard(r#"{ kind = "email", domains = ["bücher.example"] }"#);
    assert_eq!(text(&guard, "a@bücher.example").unwrap(), "a@xn--bcher-kva.example");
    assert_eq!(text(&guard, "a@xn--bcher-kva.example").unwrap(), "a@xn--bcher-kva.example");
    assert_eq!(text(&guard, "a@BÜCHER.example").unwrap(), "a@xn--bcher-kva.example");
    assert!(text(&guard, "a@bucher.example").is_err());
}

#[test]
fn sub_domains_count_where_the_guard_says_so_by_whole_labels() {
    let guard = guard(r#"{ kind = "email", domains = ["company.com"], subdomains = true }"#);
    assert!(text(&guard, "a@mail.company.com").is_ok() && text(&guard, "a@company.com").is_ok());
    for other in ["a@evilcompany.com", "a@evil-company.com", "a@company.com.evil.example", "a@.company.com"] {
        assert!(text(&guard, other).is_err(), "{other}");
    }
}

#[test]
fn a_refusal_says_what_would_pass() {
    let guard = guard(r#"{ kind = "email", domains = ["company.com"] }"#);
    let blocked = text(&guard, "a@evil.example").unwrap_err();
    assert_eq!(blocked.id, "tools.guard/email");
    assert_eq!(blocked.why, "its domain is `evil.example`, which is not allowed");
    assert_eq!(blocked.instead, "one plain address at `company.com`");
    assert!(guard.pass(&serde_json::json!(["a@company.com"])).is_err());
    assert!(guard.pass(&serde_json::json!(null)).is_err());
}

proptest! {
    #[test]
    fn what_passes_has_one_at_and_the_allowed_domain(value in "\\PC{0,40}|[a-z.@+\\-]{0,12}@company\\.com|\\PC{0,10}@company\\.com") {
        let guard = guard(r#"{ kind = "email", domains = ["company.com"] }"#);
        if let Ok(passed) = text(&guard, &value) {
            prop_assert_eq!(passed.matches('@').count(), 1);
            prop_assert!(passed.ends_with("@company.com") && passed.is_ascii());
            prop_assert!(!passed.contains(|c: char| c.is_whitespace() || c.is_control() || "<>(),;:\"%!|\\".contains(c)));
            prop_assert_eq!(text(&guard, &passed).unwrap(), passed);
        }
    }
}
