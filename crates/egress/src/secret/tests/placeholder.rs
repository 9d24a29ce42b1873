//! Where the program places a value, it says as well how its readers read it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use policy::value::SecretUse;

use super::{VALUE, held, parts};
use crate::denial::To;
use crate::secret::{LoadedSecret, RequestTarget};

#[test]
fn a_body_whose_readers_would_not_read_the_value_is_refused() {
    let stand_in = "fumehood-fcdc";
    let held = LoadedSecret::new("n".to_owned(), held(SecretUse::Placeholder).secret, VALUE, Some(stand_in.to_owned()))
        .unwrap();
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
    let around = [utf16("{\"key\":\""), stand_in.as_bytes().to_vec(), utf16("\"}")].concat();
    let part = |head: &str| format!("--b\r\n{head}\r\n\r\n{stand_in}\r\n--b--\r\n").into_bytes();
    let text = |text: &str| text.replace('@', stand_in).into_bytes();
    for (media, body) in [
        ("application/json", around),
        ("application/json", text("{\"key\":@e-3}")),
        ("application/json", text("{\"key\":\"\\u@\"}")),
        ("application/json", text("{\"key\":\"\\@\"}")),
        ("application/x-www-form-urlencoded", text("key=%@")),
        ("application/x-www-form-urlencoded", text("key=%4@")),
        ("application/x-www-form-urlencoded", text("key=%u00@")),
        ("text/html", text("&#x@")),
        ("text/html", text("&#x00000000000@")),
        ("application/x-www-form-urlencoded", text("json={%5C@")),
        ("application/x-www-form-urlencoded", text("json={%5Cu006@")),
        ("application/x-www-form-urlencoded", text("key=%25@")),
        ("application/x-www-form-urlencoded", text("key=%252525252525@")),
        ("application/json", text("{\"json\":\"\\u005c@\"}")),
        ("application/json", text("{\"json\":\"\\u005Cu006@\"}")),
        ("application/grpc-web-text", text("@")),
        ("application/xml", text("<?xml version='1.0' encoding='utf-16'?><a>@</a>")),
        ("multipart/form-data; boundary=b", part("Content-Type: text/plain; charset=utf-16le")),
        ("multipart/form-data; boundary=b", part("Content-Transfer-Encoding: base64")),
    ] {
        assert!(held.in_body(media, &body).is_err(), "{media} {}", String::from_utf8_lossy(&body));
        // Without it the body is nobody's business.
        let other = String::from_utf8_lossy(&body).replace(stand_in, "x").into_bytes();
        assert_eq!(held.in_body(media, &other), Ok(None), "{media}");
    }
    for (media, body) in [
        ("application/json", text("{\"key\":\"a\\n@\"}")),
        ("application/json", text("{\"key\":\"\\u00e4@\"}")),
        ("application/json", text("{\"key\":\"\\u00e4 \\\"@\"}")),
        ("text/xml", text("<a encoding=\"base64\">@</a>")),
        ("application/x-ndjson", text("{\"key\":\"@\"}\n{\"key\":1}\n")),
        ("application/x-www-form-urlencoded", text("a=%20&key=@&b=%2F")),
        ("text/plain; charset=utf-8", text("a @ b")),
        ("application/xml", text("<?xml version=\"1.0\" encoding=\"UTF-8\"?><a>@</a>")),
        ("multipart/form-data; boundary=b", part("Content-Type: text/plain; charset=utf-8")),
        ("multipart/form-data; boundary=b", part("Content-Transfer-Encoding: 8bit")),
        ("application/x-www-form-urlencoded", text("a=100%25&key=@")),
        ("", text("100%\nkey: @")),
    ] {
        assert!(
            held.in_body(media, &body).is_ok_and(|with| with.is_some()),
            "{media} {}",
            String::from_utf8_lossy(&body)
        );
    }
}

#[test]
fn what_a_server_would_decode_holds_no_placeholder() {
    let stand_in = "fumehood-fcdc";
    let held = LoadedSecret::new(
        "n".to_owned(),
        held(SecretUse::Placeholder).secret,
        "0123456789abcdef",
        Some(stand_in.to_owned()),
    )
    .unwrap();
    let to = To::Name("api.test".to_owned());
    let asked = RequestTarget { to: &to, port: 443, verified: true, method: "GET", path: "/v1/a" };
    let put = |uri: &str, header: &str| held.put(&asked, &mut parts(uri, &[("authorization", header)]));
    for (uri, header) in [
        ("https://a.example/v1/a", "Basic YWI6fumehood-fcdc"),
        ("https://a.example/v1/a", "basic fumehood-fcdcAAA"),
        ("https://a.example/v1/a", "Bearer %fumehood-fcdc"),
        ("https://a.example/v1/a?k=%fumehood-fcdc", "x"),
        ("https://a.example/v1/a?k=%4fumehood-fcdc", "x"),
    ] {
        assert!(put(uri, header).is_err(), "{uri} {header}");
    }
    let pair = format!("Basic {}", STANDARD.encode("user:fumehood-fcdc"));
    for (uri, header) in [
        ("https://a.example/v1/a", "Bearer fumehood-fcdc"),
        ("https://a.example/v1/a", "Basic fumehood-fcdc"),
        ("https://a.example/v1/a", pair.as_str()),
        ("https://a.example/v1/a?a=%20b&k=fumehood-fcdc", "x"),
    ] {
        assert_eq!(put(uri, header), Ok(true), "{uri} {header}");
    }
}
