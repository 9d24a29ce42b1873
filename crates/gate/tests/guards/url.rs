//! GW-08 and GW-09: one host in one text, no inside address, each hop judged again.

use std::net::IpAddr;

use gate::guard::{UrlJudge, judge_address};
use proptest::prelude::*;

use crate::{guard, stopped, text};

const ALLOWED: &str = r#"{ kind = "url", hosts = ["example.com", "*.cdn.example.com"], schemes = ["https", "http"], ports = [443, 80, 8443] }"#;

const ATTACKS: &[&str] = &[
    // two hosts in one text
    "https://example.com@evil.example/",
    "https://example.com:443@evil.example/",
    "https://evil.example\\@example.com/",
    "https://evil.example\\.example.com/",
    "https:\\\\evil.example/example.com",
    "https://evil.example/\t@example.com/",
    "https://exam\tple.com.evil.example/",
    "https://exam\nple.com/",
    "https://example.com\n.evil.example/",
    "https://a@b@example.com/",
    "https://evil.example%2f@example.com/",
    "https://example.com%2eevil.example/",
    "https://example.com%00.evil.example/",
    "https://evil.example#@example.com/",
    "https://evil.example?@example.com/",
    "https:evil.example",
    "https:/evil.example",
    "https:///evil.example/",
    "//example.com/",
    "example.com",
    " https://example.com/",
    "https://example.com /",
    "\u{1}https://example.com/",
    // names that only look the same
    "https://example.com.evil.example/",
    "https://evilexample.com/",
    "https://example.com./",
    "https://example。com/",
    "https://ｅxample.com/",
    "https://exa\u{ad}mple.com/",
    "https://exa\u{200b}mple.com/",
    "https://ехample.com/",
    "https://example.com℀.evil.example/",
    "https://cdn.example.com/",
    "https://.cdn.example.com/",
    "https://evil.cdn.example.com.evil.example/",
    // schemes and ports
    "file:///etc/passwd",
    "file://example.com/etc/passwd",
    "gopher://example.com/",
    "data:text/html,x",
    "javascript:alert(1)",
    "ftp://example.com/",
    "HTTPS+evil://example.com/",
    "https://example.com:22/",
    "https://example.com:/",
    "https://example.com:99999/",
    "https://example.com:8443x/",
    "http://example.com:0x50/",
    // numbers
    "http://127.0.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://127.1/",
    "http://0/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[fe80::1%25eth0]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/",
    "http://①②⑦.0.0.1/",
    "",
];

#[test]
fn gw_08_no_spelling_leads_to_another_host_and_plain_urls_pass() {
    let guard = guard(ALLOWED);
    let by_search = stopped(&guard, ATTACKS, |attack| attack.contains("example.com") && attack.starts_with("http"));
    let by_prefix = stopped(&guard, ATTACKS, |attack| attack.starts_with("https://example.com"));
    assert!(by_search >= 20 && by_prefix >= 8, "the naive checks stop nearly all: {by_search}, {by_prefix}");
    for (given, passed) in [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://Example.COM/a/../b?q=1#f", "https://example.com/b?q=1#f"),
        ("https://example.com:443/", "https://example.com/"),
        ("https://example.com:8443/x", "https://example.com:8443/x"),
        ("http://a.b.cdn.example.com/ü?ü", "http://a.b.cdn.example.com/%C3%BC?%C3%BC"),
        ("https://example.com/user@host/%2e%2e/x", "https://example.com/x"),
        ("https://example.com:0443/", "https://example.com/"),
    ] {
        assert_eq!(text(&guard, given).unwrap(), passed, "{given}");
    }
}

#[test]
fn gw_09_a_redirect_is_judged_as_the_first_request_was() {
    let guard = guard(ALLOWED);
    let judge: &UrlJudge = guard.url().unwrap();
    let from = judge.judge("https://example.com/a/b").unwrap();
    let to = |location: &str| judge.judge_redirect(&from, location).map(String::from);
    assert_eq!(to("../c").unwrap(), "https://example.com/c");
    assert_eq!(to("https://x.cdn.example.com/").unwrap(), "https://x.cdn.example.com/");
    let bad = [
        "http://example.com/",
        "//evil.example/",
        "/\\evil.example/",
        "https://evil.example/",
        "http://169.254.169.254/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://user@example.com/",
        "https://example.com:22/",
        "\thttps://evil.example/",
    ];
    for location in bad {
        assert!(to(location).is_err(), "{location}");
    }
}

#[test]
fn gw_09_the_dialled_address_is_judged_whatever_the_name_was() {
    let guard = guard(ALLOWED);
    let judge = guard.url().unwrap();
    assert!(judge.judge_dial("93.184.216.34".parse().unwrap()).is_ok());
    assert_eq!(judge.judge_dial("169.254.169.254".parse().unwrap()).unwrap_err().id, "tools.guard/address");
}

#[test]
fn an_inside_host_is_allowed_only_where_the_guard_says_private() {
    let inside = guard(
        r#"{ kind = "url", schemes = ["http"], hosts = ["127.0.0.1", "localhost", "[::1]"], ports = [8080], private = true }"#,
    );
    for url in ["http://127.0.0.1:8080/", "http://localhost:8080/", "http://[::1]:8080/"] {
        assert_eq!(text(&inside, url).unwrap(), url);
    }
    assert!(text(&inside, "http://127.0.0.2:8080/").is_err());
}

const INSIDE: &[&str] = &[
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "2001:db8::1",
    "100::1",
    "64:ff9b:1::1",
    "3fff::1",
    "5f00::1",
    "4000::1",
    "1::1",
    // IPv4 in IPv6: mapped, translated, compatible, NAT64, 6to4, Teredo (client, server), ISATAP
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:10.0.0.1",
    "::127.0.0.1",
    "::10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "2001:0:7f00:1::1",
    "2607:f8b0::5efe:10.0.0.1",
    "2607:f8b0::200:5efe:127.0.0.1",
];

const OUTSIDE: &[&str] = &[
    "8.8.8.8",
    "93.184.216.34",
    "100.128.0.1",
    "172.32.0.1",
    "169.253.0.1",
    "192.169.0.1",
    "198.20.0.1",
    "11.0.0.1",
    "2606:4700:4700::1111",
    "2a00:1450:4001::1",
    "64:ff9b::808:808",
    "2002:808:808::1",
    "::ffff:8.8.8.8",
];

#[test]
fn every_inside_address_is_one_in_all_of_its_forms_and_public_ones_are_not() {
    for address in INSIDE {
        assert!(judge_address(address.parse().unwrap()).is_err(), "{address}");
    }
    for address in OUTSIDE {
        assert_eq!(judge_address(address.parse().unwrap()), Ok(()), "{address}");
    }
    let said = judge_address("64:ff9b::a9fe:a9fe".parse::<IpAddr>().unwrap()).unwrap_err().to_string();
    assert_eq!(said, "64:ff9b::a9fe:a9fe holds 169.254.169.254, which is link-local, where metadata services are");
}

proptest! {
    #[test]
    fn an_ipv4_address_is_judged_alike_in_each_ipv6_form(bits in any::<u32>()) {
        let v4 = std::net::Ipv4Addr::from_bits(bits);
        let judged = judge_address(v4.into()).is_ok();
        prop_assert_eq!(judge_address(v4.to_ipv6_mapped().into()).is_ok(), judged);
        let nat64 = std::net::Ipv6Addr::from_bits(0x0064_ff9b_u128 << 96 | u128::from(bits));
        prop_assert_eq!(judge_address(nat64.into()).is_ok(), judged);
        let six_to_four = std::net::Ipv6Addr::from_bits(0x2002_u128 << 112 | u128::from(bits) << 80);
        prop_assert_eq!(judge_address(six_to_four.into()).is_ok(), judged);
    }

    #[test]
    fn what_passes_names_an_allowed_host_to_a_parser_of_other_rules(value in "https?://[a-z@\\\\.:/#?%\\-]{0,12}example\\.com[a-z@\\\\.:/#?%]{0,10}") {
        let guard = guard(ALLOWED);
        if let Ok(passed) = text(&guard, &value) {
            // A crude reader of its own: what stands between `//` and the first of `/?#:`.
            let authority = passed.split("//").nth(1).unwrap().split(['/', '?', '#']).next().unwrap();
            let host = authority.split(':').next().unwrap();
            prop_assert!(host == "example.com" || host.ends_with(".cdn.example.com"), "{} -> {}", value, passed);
            prop_assert!(!authority.contains(['@', '\\', '%']));
            prop_assert_eq!(text(&guard, &passed).unwrap(), passed);
        }
    }
}

#[test]
fn a_metadata_service_is_an_inside_address_by_its_name_too() {
    let url = "http://metadata.google.internal/computeMetadata/v1/";
    let closed = guard(r#"{ kind = "url", schemes = ["http"], hosts = ["*.google.internal"] }"#);
    assert!(closed.pass(&serde_json::json!(url)).is_err());
    let meant = guard(r#"{ kind = "url", schemes = ["http"], hosts = ["*.google.internal"], private = true }"#);
    assert!(meant.pass(&serde_json::json!(url)).is_ok());
}

#[test]
fn any_public_host_is_one_word_and_nothing_inside_is_public() {
    let public = guard(r#"{ kind = "url", hosts = ["public"] }"#);
    for url in [
        "https://example.com/",
        "https://docs.rs/x?y",
        "https://1.1.1.1/",
        "https://[2606:4700::1111]/",
        "https://b\u{fc}cher.example.org/",
    ] {
        assert!(text(&public, url).is_ok(), "{url}");
    }
    for url in [
        "https://127.0.0.1/",
        "https://localhost/",
        "https://a.localhost/",
        "https://10.0.0.1/",
        "https://192.168.1.1/",
        "https://169.254.169.254/latest",
        "https://100.64.0.1/",
        "https://[::1]/",
        "https://[fe80::1]/",
        "https://[fd00::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://metadata.google.internal/",
        "https://router/",
        "https://public/",
        "https://nas.local/",
        "https://x.home.arpa/",
        "https://git.corp/",
        "https://kubernetes.default/",
        "https://kubernetes.default.svc/",
        "https://kubernetes.default.svc.cluster.local/",
        "https://instance-data.ec2/",
        "https://ip-10-0-0-1.ec2/",
        "https://ip-10-0-0-1.ec2.internal/",
        "https://vault.service.consul/",
        "https://hidden.onion/",
        "https://name.alt/",
        "https://x.test/",
        "https://x.invalid/",
        "https://x.example/",
        "https://nas.home/",
        "https://2130706433/",
        "http://example.com/",
        "https://example.com:8080/",
        "https://a@example.com/",
    ] {
        assert!(text(&public, url).is_err(), "{url}");
    }
    // Beside a private host, which is listed: no other private one.
    let both = guard(r#"{ kind = "url", hosts = ["public", "10.0.0.7"], private = true }"#);
    assert!(text(&both, "https://10.0.0.7/").is_ok() && text(&both, "https://example.com/").is_ok());
    assert!(text(&both, "https://10.0.0.8/").is_err() && text(&both, "https://localhost/").is_err());
}
