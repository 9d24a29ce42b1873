use std::sync::Arc;

use ::http::Request;
use ::http::request::Parts;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use policy::value::{Secret, SecretSource, SecretUse};
use proptest::prelude::*;
use zeroize::Zeroizing;

use super::scrub::{Forms, Scrub};
use super::windows::Windows;
use super::{LoadedSecret, RequestTarget, is_in_other_charset, searchable};
use crate::denial::To;

mod placeholder;

const VALUE: &str = "s3cr3t/+\"value? x";
const STAND_IN: &str = "fumehood-0123456789abcdef";

fn held(put: SecretUse) -> LoadedSecret {
    let secret = Secret {
        from: SecretSource::Env("TOKEN".to_owned()),
        hosts: vec!["api.test".to_owned()],
        ports: vec![80, 443],
        methods: vec!["GET".to_owned()],
        paths: vec!["/v1/**".to_owned()],
        put,
        env: None,
    };
    LoadedSecret::new("token".to_owned(), secret, VALUE, Some(STAND_IN.to_owned())).unwrap()
}

fn bearer() -> LoadedSecret {
    held(SecretUse::Header { name: "authorization".to_owned(), format: "Bearer {}".to_owned(), public: false })
}

fn parts(uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn put(held: &LoadedSecret, parts: &mut Parts) -> bool {
    let to = To::Name("api.test".to_owned());
    let asked = RequestTarget { to: &to, port: 443, verified: true, method: "GET", path: "/v1/a" };
    held.put(&asked, parts).unwrap()
}

fn loaded(value: &str, format: &str) -> Result<LoadedSecret, &'static str> {
    let LoadedSecret { secret, .. } = bearer();
    let put = SecretUse::Header { name: "x-key".to_owned(), format: format.to_owned(), public: false };
    LoadedSecret::new("token".to_owned(), Secret { put, ..secret }, value, None)
}

fn masked(held: &LoadedSecret, text: &str) -> String {
    let mut text = text.as_bytes().to_vec();
    Forms::of([held]).mask(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn what_a_server_says_back_of_a_part_is_overwritten() {
    let bearer = loaded("Bearer Zq83LmX0vTa7Pw2k", "{}").unwrap();
    assert_eq!(masked(&bearer, "{\"token\": \"Zq83LmX0vTa7Pw2k\"}"), "{\"token\": \"****************\"}");
    for (value, format) in [("Basic c3ZjOmh1bnRlcjItaHVudGVyMg==", "{}"), ("c3ZjOmh1bnRlcjItaHVudGVyMg==", "Basic {}")]
    {
        assert_eq!(masked(&loaded(value, format).unwrap(), "no hunter2-hunter2!"), "no ***************!");
    }
    let cookie = loaded("session=Zq83LmX0vTa7; theme=dark", "{}").unwrap();
    assert_eq!(masked(&cookie, "dark Zq83LmX0vTa7"), "dark ************");
    // Digits of an id are written as the server likes.
    assert_eq!(masked(&loaded("550E8400-E29B", "{}").unwrap(), "key 550e8400-e29b"), "key *************");
    // HTTP cuts it, and the server says back what is left.
    for blank in ["sk-live-Zq83LmX0 ", " sk-live-Zq83LmX0", "sk-live-Zq83LmX0\u{a0}\n"] {
        assert_eq!(loaded(blank, "{}").unwrap_err(), "begins or ends with a blank");
    }
}

/// What everybody may see is put, and nothing more is asked of the request or of its answer.
#[test]
fn a_public_header_is_put_and_searched_for_nowhere() {
    let header = |public| SecretUse::Header { name: "accept".to_owned(), format: "{}".to_owned(), public };
    for (public, encoding) in [(true, "gzip"), (false, "identity")] {
        let held = held(header(public));
        let mut parts = parts("/v1/a", &[("Accept", "text/html"), ("Accept-Encoding", "gzip")]);
        assert!(put(&held, &mut parts));
        assert_eq!(parts.headers["accept"], VALUE);
        assert_eq!(parts.headers["accept-encoding"], encoding);
        assert_eq!((held.values().next().is_none(), masked(&held, VALUE) == VALUE), (public, public));
    }
    let LoadedSecret { secret, .. } = bearer();
    let short =
        |public| LoadedSecret::new("n".to_owned(), Secret { put: header(public), ..secret.clone() }, "en", None);
    assert!(short(true).is_ok() && short(false).is_err());
}

#[test]
fn letters_of_base64_that_share_bits_with_a_value_are_overwritten_too() {
    let value = "Zq83LmX0vTa7Pw2k";
    let held = loaded(value, "{}").unwrap();
    for before in ["", "u", "us", "usr"] {
        for behind in ["", ":", ":p", ":pw"] {
            let coded = STANDARD.encode(format!("{before}{value}{behind}"));
            let text = masked(&held, &format!("<{coded}>"));
            // Of a letter that is left all six bits are of what stands beside it.
            let bits = before.len() * 8..(before.len() + value.len()) * 8;
            for (place, (was, is)) in coded.bytes().zip(text.bytes().skip(1)).enumerate() {
                let of_value = place * 6 < bits.end && (place + 1) * 6 > bits.start;
                assert!(was == b'=' || (is == b'*') == of_value, "{before} {behind}: {coded} {text} at {place}");
            }
            let mut scrub = Scrub::new(Arc::new(Forms::of([&held])));
            let mut piecewise: Vec<u8> = format!("<{coded}>").bytes().flat_map(|byte| scrub.push(&[byte])).collect();
            piecewise.extend(scrub.finish());
            assert_eq!(String::from_utf8(piecewise).unwrap(), text);
        }
    }
}

#[test]
fn a_header_replaces_all_that_the_program_sent() {
    let mut parts = parts("/v1/a", &[("Authorization", "mine"), ("authorization", "other"), ("range", "bytes=0-3")]);
    assert!(put(&bearer(), &mut parts));
    let all: Vec<_> = parts.headers.get_all("authorization").iter().map(|v| v.as_bytes().to_vec()).collect();
    assert_eq!(all, [format!("Bearer {VALUE}").into_bytes()]);
    assert_eq!(parts.headers.get("accept-encoding").unwrap(), "identity");
    assert!(parts.headers.get("range").is_none());
    assert!(!format!("{:?}", parts.headers).contains("s3cr3t"), "shown by Debug");
}

#[test]
fn wishes_for_an_answer_that_cannot_be_searched_are_taken_away() {
    let mut asked = parts(
        "/v1/a",
        &[
            ("Accept", "text/plain;charset=utf-16le, a/b; q=0.5; x=\"1,2;charset\"; Charset = cp037"),
            ("Accept", "text/html"),
            ("accept.charset", "utf-16"),
            ("Accept_Encoding", "gzip"),
            ("If_Range", "x"),
        ],
    );
    searchable(&mut asked.headers);
    let all: Vec<_> = asked.headers.get_all("accept").iter().map(|value| value.to_str().unwrap()).collect();
    assert_eq!(all, ["text/plain, a/b; q=0.5", "text/html"]);
    assert_eq!(asked.headers.len(), 3, "{:?}", asked.headers);
    for (media, is_other) in [
        ("text/plain", false),
        ("text/plain; charset=UTF-8", false),
        ("text/html;charset=\"iso-8859-1\"", false),
        ("text/html; charset=", false),
        ("text/plain;charset=UTF-16LE", true),
        ("text/plain; a=\";\"; charset=\"cp037\"", true),
        ("text/plain; charset=utf-7", true),
    ] {
        let told = parts("/", &[("content-type", media)]);
        assert_eq!(is_in_other_charset(&told.headers), is_other, "{media}");
    }
}

#[test]
fn nothing_is_put_where_one_of_host_port_method_path_or_tls_does_not_fit() {
    let fitting = |host: &str, port, verified, method: &str, path: &str| {
        let to = To::Name(host.to_owned());
        let mut parts = parts("/", &[]);
        let asked = RequestTarget { to: &to, port, verified, method, path };
        let is_put = bearer().put(&asked, &mut parts).unwrap();
        assert_eq!(is_put, parts.headers.contains_key("authorization"));
        is_put
    };
    assert!(fitting("api.test", 443, true, "GET", "/v1/a"));
    assert!(fitting("api.test", 80, false, "GET", "/v1/%61"), "plain HTTP where `ports` says so");
    assert!(fitting("api.test", 443, true, "GET", "/v1/@s%2fn"), "each of its two readings fits");
    for (host, port, verified, method, path) in [
        ("evil.test", 443, true, "GET", "/v1/a"),
        ("x.api.test", 443, true, "GET", "/v1/a"),
        ("api.test", 8443, true, "GET", "/v1/a"),
        ("api.test", 443, false, "GET", "/v1/a"),
        ("api.test", 443, true, "POST", "/v1/a"),
        ("api.test", 443, true, "get", "/v1/a"),
        ("api.test", 443, true, "GET", "/v2/a"),
        ("api.test", 443, true, "GET", "/v1/../v2"),
        ("api.test", 443, true, "GET", "/v1/%2e%2e/v2"),
        // A server that decodes it takes it for a path that fits, and another one does not; or it climbs.
        ("api.test", 443, true, "GET", "/v1%2fa"),
        ("api.test", 443, true, "GET", "/v1/..%2fv2"),
    ] {
        assert!(!fitting(host, port, verified, method, path), "{host} {port} {verified} {method} {path}");
    }
    // A port of its own is meant for TLS, and nothing goes to it without.
    let own = LoadedSecret { secret: Secret { ports: vec![8443], ..bearer().secret }, ..bearer() };
    let to = To::Name("api.test".to_owned());
    for verified in [true, false] {
        let asked = RequestTarget { to: &to, port: 8443, verified, method: "GET", path: "/v1/a" };
        assert_eq!(own.fits(&asked), verified);
    }
    let to = To::Address("192.0.2.1".parse().unwrap());
    assert!(!bearer().is_for(&to, 443), "an address has no name");
}

#[test]
fn what_the_program_sent_by_another_spelling_is_replaced_as_well() {
    let key = held(SecretUse::Header { name: "x-api-key".to_owned(), format: "{}".to_owned(), public: false });
    let mut one = parts("/v1/a", &[("X_Api_Key", "mine"), ("x.api-key", "mine"), ("x-api-key2", "2")]);
    assert!(put(&key, &mut one));
    let mut names: Vec<_> = one.headers.keys().map(::http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept-encoding", "x-api-key", "x-api-key2"]);

    let query = held(SecretUse::Query("key".to_owned()));
    for (sent, left) in [
        ("x=1;key=2&y=3", "x=1&y=3&"),
        ("key=1;x=2;;z", "x=2;;z&"),
        ("x=a;;b;c&;", "x=a;;b;c&;&"),
        ("k%65y=1;k%65y", ""),
    ] {
        let mut one = parts(&format!("/v1/a?{sent}"), &[]);
        assert!(put(&query, &mut one));
        assert_eq!(one.uri.query(), Some(format!("{left}key=s3cr3t%2F%2B%22value%3F%20x").as_str()), "{sent}");
    }
}

#[test]
fn basic_and_query() {
    let mut one = parts("/v1/a", &[("authorization", "mine")]);
    assert!(put(&held(SecretUse::Basic("me".to_owned())), &mut one));
    let coded = STANDARD.encode(format!("me:{VALUE}"));
    assert_eq!(one.headers.get("authorization").unwrap(), &format!("Basic {coded}"));

    let mut two = parts("/v1/a?x=1&key=mine&k%65y=other&keys=2", &[]);
    assert!(put(&held(SecretUse::Query("key".to_owned())), &mut two));
    assert_eq!(two.uri.to_string(), "/v1/a?x=1&keys=2&key=s3cr3t%2F%2B%22value%3F%20x");
}

#[test]
fn a_placeholder_is_replaced_where_it_was_sent_and_stays_elsewhere() {
    let held = held(SecretUse::Placeholder);
    let coded = format!("basic {}", STANDARD.encode(format!("me:{STAND_IN}")));
    let url = format!("/v1/a?k={STAND_IN}");
    let mut one = parts(&url, &[("x-key", STAND_IN), ("authorization", &coded)]);
    assert!(put(&held, &mut one));
    assert_eq!(one.headers.get("x-key").unwrap(), VALUE);
    let coded = STANDARD.encode(format!("me:{VALUE}"));
    assert_eq!(one.headers.get("authorization").unwrap(), &format!("Basic {coded}"));
    assert_eq!(one.uri.query(), Some("k=s3cr3t%2F%2B%22value%3F%20x"));

    let mut none = parts("/v1/a", &[("x-key", "another")]);
    assert!(!put(&held, &mut none));
    assert!(none.headers.get("accept-encoding").is_none());

    let to = To::Name("evil.test".to_owned());
    let mut wrong = parts("/v1/a", &[("x-key", STAND_IN)]);
    let asked = RequestTarget { to: &to, port: 443, verified: true, method: "GET", path: "/v1/a" };
    assert!(!held.put(&asked, &mut wrong).unwrap());
    assert_eq!(wrong.headers.get("x-key").unwrap(), STAND_IN);
}

#[test]
fn what_cannot_be_a_secret_is_refused_without_being_said() {
    let new = |value: &str, put| {
        let secret = held(SecretUse::Placeholder).secret;
        LoadedSecret::new("n".to_owned(), Secret { put, ..secret }, value, None).map(|held| held.value)
    };
    let query = || SecretUse::Query("k".to_owned());
    assert_eq!(new("12345678\n", query()).unwrap().as_str(), "12345678");
    let long = "x".repeat(super::MAX_VALUE.saturating_add(1));
    for bad in ["", "\n", "1234567", "1234\r\n5678", "12345678\n\n", "1234567\u{0}8", long.as_str()] {
        assert!(new(bad, query()).is_err(), "{bad:?}");
    }
    assert!(new("12345678", SecretUse::Placeholder).is_err(), "no placeholder");
}

#[test]
fn a_value_that_is_not_ascii_is_masked_as_others_read_and_write_it() {
    let value = "p\u{e4}ssw\u{f6}rt-\u{20ac}-1";
    let forms = Forms::of([&LoadedSecret::new("n".to_owned(), bearer().secret, value, None).unwrap()]);
    let misread: String = value.bytes().map(char::from).collect();
    for form in [
        value,
        misread.as_str(),
        "p\\u00e4ssw\\u00f6rt-\\u20ac-1",
        "p\\u00E4ssw\\u00F6rt-\\u20AC-1",
        "p\\u00c3\\u00a4ssw",
    ] {
        let mut text = format!("a {form} b").into_bytes();
        assert_eq!(forms.mask(&mut text), !form.ends_with("ssw"), "{form}");
    }
    let mut whole: Vec<u8> = misread
        .chars()
        .flat_map(|one| match one.is_ascii() {
            true => vec![u8::try_from(one).unwrap()],
            false => format!("\\u{:04x}", u32::from(one)).into_bytes(),
        })
        .collect();
    assert!(forms.mask(&mut whole) && whole.iter().all(|byte| *byte == b'*'), "{}", String::from_utf8_lossy(&whole));
}

#[test]
fn a_value_that_is_not_ascii_is_masked_in_latin_1_too() {
    let forms = |value: &str| Forms::of([&LoadedSecret::new("n".to_owned(), bearer().secret, value, None).unwrap()]);
    let whole = |value: &str, text: &[u8]| {
        let mut said = [b"<", text, b">"].concat();
        assert!(forms(value).mask(&mut said), "{value}");
        assert_eq!(said, [b"<".as_slice(), &vec![b'*'; text.len()], b">"].concat(), "{value}");
    };
    whole("Gr\u{fc}\u{df}e-aus-K\u{f6}ln", b"Gr\xfc\xdfe-aus-K\xf6ln");
    whole("Gr\u{fc}\u{df}e-aus-K\u{f6}ln", b"Gr%FC%dfe-aus-K%f6ln");
    whole("\u{20ac}\u{161}\u{178}-12345", b"\x80\x9a\x9f-12345");
    // Small and large letters are one beyond ASCII, too.
    whole("GR\u{dc}\u{c4}E-aus-K\u{d6}ln", "gr\u{fc}\u{e4}e-aus-k\u{f6}ln".as_bytes());
    whole("gr\u{fc}\u{e4}e-aus-K\u{f6}ln", b"GR\xdc\xc4E-AUS-K\xd6LN");
    // What Latin-1 cannot say, and a word with other letters.
    assert!(!forms("\u{4f60}\u{597d}-\u{fc}-12345").mask(&mut b"??-\xfc-12345".to_vec()));
    assert!(!forms("Gr\u{fc}\u{df}e-aus-K\u{f6}ln").mask(&mut b"Gr\xfc\xdee-aus-K\xf6ln".to_vec()));
}

#[test]
fn no_quotes_decide_what_a_charset_is() {
    let hidden = "text/plain;x=\"a\\\";charset=utf-16le;y=\"b\"";
    let mut headers = ::http::HeaderMap::new();
    headers.insert("content-type", hidden.parse().unwrap());
    assert!(is_in_other_charset(&headers));
    for (accept, left) in [
        (hidden, "text/plain"),
        ("text/html, text/plain;q=0.5;charset=utf-16", "text/html, text/plain;q=0.5"),
        ("application/json;v=1", "application/json;v=1"),
    ] {
        headers.insert("accept", accept.parse().unwrap());
        searchable(&mut headers);
        assert_eq!(headers.get("accept").unwrap(), left);
    }
    for plain in ["text/plain; charset=utf-8", "text/plain; charset=\"ISO-8859-1\"", "text/plain; charset="] {
        headers.insert("content-type", plain.parse().unwrap());
        assert!(!is_in_other_charset(&headers), "{plain}");
    }
}

#[test]
fn each_form_of_a_value_is_masked_and_nothing_else() {
    let forms = Forms::of([&bearer()]);
    for form in [
        VALUE.to_owned(),
        "s3cr3t%2F%2B%22value%3F%20x".to_owned(),
        "s3cr3t%2f%2b%22value%3f%20x".to_owned(),
        "s3cr3t%2F%2B%22value%3F+x".to_owned(),
        "s3cr3t/+\\\"value? x".to_owned(),
        "s3cr3t\\/+\\\"value? x".to_owned(),
        "7333637233742f2b2276616c75653f2078".to_owned(),
        "7333637233742F2B2276616C75653F2078".to_owned(),
    ] {
        let mut text = format!("<{form}>").into_bytes();
        assert!(forms.mask(&mut text));
        assert_eq!(text, format!("<{}>", "*".repeat(form.len())).into_bytes(), "{form}");
    }
    for user in ["", "a", "ab", "abc"] {
        let mut text = STANDARD.encode(format!("{user}:{VALUE}:z")).into_bytes();
        assert!(forms.mask(&mut text), "after {user:?}");
        let shown = text.iter().filter(|byte| **byte != b'*').count();
        assert!(shown < 13, "{}", String::from_utf8_lossy(&text));
    }
    let mut harmless = b"s3cr3t/ and value".to_vec();
    assert!(!forms.mask(&mut harmless));
}

/// A value with what writers of JSON and of addresses differ about.
const ODD: &str = "abc??>???+DEF&gh/ij<k>'l!(m)*n%25\\u0041 o";

fn odd() -> Forms {
    Forms::of([&LoadedSecret::new("n".to_owned(), bearer().secret, ODD, None).unwrap()])
}

/// The value, each byte of which is written so.
fn each(writing: impl Fn(u8) -> String) -> String {
    ODD.bytes().map(writing).collect()
}

#[test]
fn a_value_is_masked_whatever_of_it_a_writer_escapes() {
    let forms = odd();
    let escaped = |among: &'static str, writing: fn(u8) -> String| {
        each(|byte| if among.contains(char::from(byte)) { writing(byte) } else { char::from(byte).to_string() })
    };
    // As in JSON, where a backslash has to be escaped too.
    let json = |among: &'static str, writing: fn(u8) -> String| escaped(among, writing).replace("\\u0041", "\\\\u0041");
    let coded = STANDARD.encode(ODD);
    assert!(coded.contains('/') && coded.contains('+'), "{coded}");
    for form in [
        ODD.to_owned(),
        // Go, then .NET.
        json("&<>", |byte| format!("\\u{byte:04x}")),
        json("&<>+'", |byte| format!("\\u{byte:04X}")),
        each(|byte| format!("\\u{byte:04x}")),
        each(|byte| format!("\\u{byte:04X}")),
        each(|byte| format!("%{byte:02x}")),
        each(|byte| format!("%{byte:02X}")),
        // JavaScript's `encodeURIComponent`, and a link that encodes some letters alone.
        escaped("?+&/<>%\\ ", |byte| format!("%{byte:02X}")),
        escaped("<> ", |byte| format!("%{byte:02X}")),
        each(|byte| if byte & 1 == 0 { format!("%{byte:02x}") } else { format!("\\u{byte:04X}") }),
        each(|byte| if byte & 1 == 0 { format!("{byte:02x}") } else { format!("{byte:02X}") }),
    ] {
        let mut text = format!("<{form}\"").into_bytes();
        assert!(forms.mask(&mut text), "{form}");
        assert_eq!(text, format!("<{}\"", "*".repeat(form.len())).into_bytes(), "{form}");
    }
    for form in
        [coded.replace('/', "\\/"), coded.replace('/', "%2f").replace('+', "%2B"), coded.replace('+', "\\u002b")]
    {
        let mut text = form.clone().into_bytes();
        assert!(forms.mask(&mut text) && text.iter().filter(|byte| **byte != b'*').count() < 5, "{form}");
    }
    assert!(forms.is_in_name(&format!("x-{}", each(|byte| format!("%{byte:02x}")))));
    for harmless in ["%", "\\u006", "abc??>???+DEF", "%61%62%63??>???+DEF", "\\u0061bc%3F?>???%2bDEF%26gX"] {
        assert!(!forms.mask(&mut harmless.as_bytes().to_vec()), "{harmless}");
    }
}

#[test]
fn an_escaped_value_in_pieces_is_masked_and_nothing_stays_behind() {
    for form in [ODD.to_owned(), each(|byte| format!("\\u{byte:04x}")), each(|byte| format!("%{byte:02X}"))] {
        let text = format!("a\\{form}%2").into_bytes();
        let (mut scrub, mut out) = (Scrub::new(Arc::new(odd())), Vec::new());
        for byte in &text {
            out.extend(scrub.push(std::slice::from_ref(byte)));
        }
        out.extend(scrub.finish());
        assert_eq!(out, format!("a\\{}%2", "*".repeat(form.len())).into_bytes(), "{form}");
    }
}

#[test]
fn how_much_is_held_back_says_nothing_of_a_value() {
    let token = || LoadedSecret::new("n".to_owned(), bearer().secret, "sk-live-Zq83LmX0vTa7Pw2k", None).unwrap();
    let given =
        |secret: &LoadedSecret, text: &str| Scrub::new(Arc::new(Forms::of([secret]))).push(text.as_bytes()).len();
    for (secret, guesses) in [
        (token(), ["#sk-live-Zq83LmX", "#sk-live-Zq83Lmx", "#%73k%2dlive", "#0123456789abcde"]),
        (bearer(), ["#s3cr3t/+", "#s3cr3t/-", "# anything", "#\n"]),
    ] {
        let counts = guesses.map(|guess| (given(&secret, guess), guess.len()));
        assert!(
            counts.iter().all(|(out, length)| length - out
                == if secret.values().any(|value| value == VALUE) { *length } else { length - 1 }),
            "{counts:?}"
        );
    }
    // What can be in no token lets all before it go: an event, a line, a whole object.
    for text in ["data: sk-live-Zq83LmX\n\n", "{\"said\":\"sk-live-Zq83LmX\"}"] {
        assert_eq!(given(&token(), text), text.len());
    }
    // What is longer than any form goes on.
    assert_eq!(given(&token(), &"a".repeat(10_000)), 10_000 - 1024);
}

/// However much of a value a text has, as long as it is not all: no place of it is looked at.
#[test]
fn no_letter_of_a_value_makes_a_text_take_longer() {
    let token = "sk-live-Zq83LmX0vTa7Pw2k";
    let hex: String = token.bytes().map(|byte| format!("{byte:02x}")).collect();
    for form in [token, hex.as_str(), &STANDARD.encode(token)] {
        let windows = Windows::of(std::iter::once(Zeroizing::new(form.as_bytes().to_vec())));
        let told = |text: &str| {
            let mut places = Vec::new();
            windows.places(text.as_bytes(), 6, |_, range| places.push(range));
            places
        };
        // Some of the first digits are no part of the window: they may be the end of an escape.
        for end in 5..form.len() {
            let (begin, rest) = form.split_at(end);
            for text in [begin.repeat(3), rest.to_owned(), format!("{begin}!")] {
                assert!(told(&text).is_empty(), "{text}");
            }
        }
        assert_eq!(told(&format!("%{form}\\u00")).len(), 1, "{form}");
    }
}

#[test]
fn capital_digits_that_are_escaped_and_quotes_of_programs_are_masked() {
    let value = "Tr0ub4dor'\"&pass";
    let forms = Forms::of([&LoadedSecret::new("n".to_owned(), bearer().secret, value, None).unwrap()]);
    let digits: String = value.bytes().map(|byte| format!("{byte:02X}")).collect();
    for form in [
        "Tr0ub4dor\\'\\\"&pass".to_owned(),
        "Tr0ub4dor\\'\"&pass".to_owned(),
        "Tr0ub4dor''\"&pass".to_owned(),
        digits.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        digits.bytes().map(|byte| format!("\\u{byte:04x}")).collect(),
    ] {
        let mut text = form.clone().into_bytes();
        assert!(forms.mask(&mut text) && text.iter().all(|byte| *byte == b'*'), "{form}");
    }
}

/// Values whose letters are read as escapes, or as the end of one.
const AWKWARD: [&str; 8] = [
    ODD,
    "deadbeefCAFE0123",
    "u0041\\u0041xx%25%41",
    "''''\"\"\"\"",
    "p\u{e4}ss 'w\u{f6}rd\u{1f600}",
    "\\/\\/\\/aa//bb",
    "25252525%41",
    "sk-live-Zq83LmX0vTa7Pw2k",
];

/// A character in one of its writings.
fn written(character: char, how: u8) -> String {
    let (mut bytes, mut units) = ([0; 4], [0; 2]);
    let plain = character.encode_utf8(&mut bytes).to_owned();
    match how {
        0 => plain.bytes().map(|byte| format!("%{byte:02X}")).collect(),
        1 => character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        2 if "\"\\/'".contains(character) => format!("\\{plain}"),
        2 if character == ' ' => "+".to_owned(),
        _ => plain,
    }
}

proptest! {
    #[test]
    fn what_is_found_by_windows_is_what_a_look_at_each_place_finds(
        which in 0..AWKWARD.len(),
        coded in 0..3_u8,
        how in prop::collection::vec(0..8_u8, 120),
        before in "[%\\\\u0425dDA/'\" ]{0,12}",
        after in "[%\\\\u0425dDA/'\" ]{0,6}",
        left in 0..3_usize,
    ) {
        let value = AWKWARD[which];
        let forms = Forms::of([&LoadedSecret::new("n".to_owned(), bearer().secret, value, None).unwrap()]);
        let form = match coded {
            0 => value.to_owned(),
            1 => value.bytes().map(|byte| format!("{byte:02X}")).collect(),
            _ => STANDARD.encode(format!("{}{value}", "x".repeat(left))),
        };
        let characters = form.chars().zip(how.iter().cycle());
        let writing: String = characters.map(|(character, how)| written(character, *how)).collect();
        let text = format!("{before}{writing}{after}").into_bytes();
        let (mut fast, mut slow) = (text.clone(), text.clone());
        prop_assert!(forms.mask(&mut fast));
        forms.mask_slowly(&mut slow);
        prop_assert_eq!(
            String::from_utf8_lossy(&fast), String::from_utf8_lossy(&slow), "{}", String::from_utf8_lossy(&text)
        );
    }
}

proptest! {
    #[test]
    fn pieces_come_out_as_the_whole_would(before in "[s3crt/]{0,9}", after in "[s3crt/]{0,9}", cuts in prop::collection::vec(1_usize..6, 0..20)) {
        let forms = Forms::of([&bearer()]);
        let text = format!("{before}{VALUE}{after}").into_bytes();
        let mut whole = text.clone();
        prop_assert!(forms.mask(&mut whole));
        let (mut scrub, mut out, mut rest) = (Scrub::new(Arc::new(forms)), Vec::new(), text.as_slice());
        for cut in cuts {
            let (piece, left) = rest.split_at(cut.min(rest.len()));
            out.extend(scrub.push(piece));
            rest = left;
        }
        out.extend(scrub.push(rest));
        out.extend(scrub.finish());
        prop_assert!(scrub.found());
        prop_assert_eq!(out, whole);
    }
}
