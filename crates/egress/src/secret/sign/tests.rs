//! The vectors are those that AWS publishes: its test suite of version 4, and the examples of the manuals of IAM and S3.

use ::http::Request;
use policy::value::{Secret, SecretSource, SecretUse, Signing};

use super::*;

const SUITE: (&str, &str) = ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
const S3: (&str, &str) = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn held((id, key): (&str, &str), token: Option<&str>, scope: Option<(&str, &str)>) -> LoadedSecret {
    let (region, service) = scope.unzip();
    let source = || SecretSource::Env("X".to_owned());
    let signing = Signing {
        key_id: source(),
        session_token: token.map(|_| source()),
        region: region.map(str::to_owned),
        service: service.map(str::to_owned),
    };
    let secret = Secret {
        from: source(),
        hosts: vec!["**.amazonaws.com".to_owned(), "s3.corp".to_owned()],
        ports: vec![443],
        methods: Vec::new(),
        paths: Vec::new(),
        put: SecretUse::Sign(signing),
        env: None,
    };
    LoadedSecret::new("aws".to_owned(), secret, &joined(id, key, token), None).unwrap()
}

fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// Signs what is asked of the host that the headers name.
fn sign(held: &LoadedSecret, parts: &mut Parts, body: Option<&[u8]>, at: &str) -> Result<String, &'static str> {
    let host = parts.headers[HOST].to_str().unwrap().to_owned();
    let to = To::Name(host);
    let (method, path) = (parts.method.to_string(), parts.uri.path().to_owned());
    let asked = RequestTarget { to: &to, port: 443, verified: true, method: &method, path: &path };
    let payload = match held.payload(&asked, parts)? {
        Some(stated) => stated,
        None => digest(body.unwrap_or_default()),
    };
    held.sign(&asked, parts, (&payload, at))?;
    Ok(parts.headers[AUTHORIZATION].to_str().unwrap().to_owned())
}

#[test]
fn it_signs_as_the_published_vectors_have_it() {
    let form = "application/x-www-form-urlencoded";
    let date = "20150830T123600Z";
    for (method, uri, more, body, signature) in [
        ("GET", "/", None, "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        (
            "GET",
            "/?Param2=value2&Param1=value1",
            None,
            "",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        ("POST", "/", None, "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        ("POST", "/", Some(form), "Param1=value1", "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"),
    ] {
        let held = held(SUITE, None, Some(("us-east-1", "service")));
        let mut headers = vec![("host", "example.amazonaws.com")];
        headers.extend(more.map(|more| ("content-type", more)));
        let mut parts = parts(method, uri, &headers);
        let said = sign(&held, &mut parts, Some(body.as_bytes()), date).unwrap();
        let names = if more.is_some() { "content-type;host;x-amz-date" } else { "host;x-amz-date" };
        assert_eq!(
            said,
            format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders={names}, Signature={signature}"
            ),
            "{method} {uri}"
        );
    }
    // Of the manual of IAM: the host says region and service.
    let typed = [("host", "iam.amazonaws.com"), ("content-type", "application/x-www-form-urlencoded; charset=utf-8")];
    let mut parts = parts("GET", "/?Action=ListUsers&Version=2010-05-08", &typed);
    let said = sign(&held(SUITE, None, None), &mut parts, None, date).unwrap();
    assert!(said.ends_with("Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"), "{said}");
}

#[test]
fn it_signs_for_s3_as_its_manual_has_it() {
    for (uri, signature) in [
        ("/?lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("/?max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ] {
        let headers = [("host", "examplebucket.s3.amazonaws.com"), ("x-amz-content-sha256", EMPTY)];
        let mut parts = parts("GET", uri, &headers);
        let said = sign(&held(S3, None, None), &mut parts, None, "20130524T000000Z").unwrap();
        assert!(said.ends_with(signature), "{uri}: {said}");
    }
}

#[test]
fn what_the_program_signed_with_its_placeholder_is_gone() {
    let own = [
        ("host", "b.s3.eu-central-1.amazonaws.com"),
        ("authorization", "AWS4-HMAC-SHA256 Credential=mine"),
        ("x-amz-date", "20000101T000000Z"),
        ("x-amz-security-token", "mine"),
        ("x-amz-acl", "  private   or so "),
    ];
    let mut parts = parts("PUT", "/a%20b", &own);
    let held = held(S3, Some("session-token"), None);
    let said = sign(&held, &mut parts, None, "20130524T000000Z").unwrap();
    assert!(said.contains("/20130524/eu-central-1/s3/aws4_request"), "{said}");
    assert!(
        said.contains("SignedHeaders=host;x-amz-acl;x-amz-content-sha256;x-amz-date;x-amz-security-token"),
        "{said}"
    );
    let one = |name: &str| parts.headers.get_all(name).into_iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(one("x-amz-security-token"), ["session-token"]);
    assert_eq!(one("x-amz-date"), ["20130524T000000Z"]);
    assert_eq!(one("x-amz-content-sha256"), ["UNSIGNED-PAYLOAD"]);
    assert_eq!(one("authorization").len(), 1);
    assert!(!format!("{:?}", parts.headers).contains("session-token"), "shown by Debug");
    assert_eq!(held.values().collect::<Vec<_>>(), [S3.1, "session-token"]);
}

#[test]
fn a_body_that_is_signed_in_pieces_and_a_place_that_nobody_says_are_refused() {
    let pieces = [("host", "b.s3.amazonaws.com"), ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")];
    assert!(sign(&held(S3, None, None), &mut parts("PUT", "/a", &pieces), None, "20130524T000000Z").is_err());
    let unsigned = [("host", "b.s3.amazonaws.com"), ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")];
    let mut kept = parts("PUT", "/a", &unsigned);
    sign(&held(S3, None, None), &mut kept, None, "20130524T000000Z").unwrap();
    assert_eq!(kept.headers["x-amz-content-sha256"], "STREAMING-UNSIGNED-PAYLOAD-TRAILER");
    let own = [("host", "s3.corp")];
    assert!(sign(&held(S3, None, None), &mut parts("GET", "/", &own), None, "20130524T000000Z").is_err());
    let given = held(S3, None, Some(("corp-1", "s3")));
    assert!(sign(&given, &mut parts("GET", "/", &own), None, "20130524T000000Z").is_ok());
    // Neither without TLS nor for another host.
    let asked = |host: &str, verified| {
        let to = To::Name(host.to_owned());
        let asked = RequestTarget { to: &to, port: 443, verified, method: "GET", path: "/" };
        given.sign(&asked, &mut parts("GET", "/", &[("host", host)]), (EMPTY, "20130524T000000Z"))
    };
    assert!(asked("s3.corp", true).is_ok() && asked("s3.corp", false).is_err() && asked("other.corp", true).is_err());
}

#[test]
fn a_host_says_region_and_service() {
    for (host, said) in [
        ("dynamodb.eu-west-1.amazonaws.com", Some(("eu-west-1", "dynamodb"))),
        ("a.b.s3.dualstack.us-west-2.amazonaws.com", Some(("us-west-2", "s3"))),
        ("b.s3-eu-west-1.amazonaws.com", Some(("eu-west-1", "s3"))),
        ("b.s3.amazonaws.com", Some(("us-east-1", "s3"))),
        ("sts.amazonaws.com", Some(("us-east-1", "sts"))),
        ("kms-fips.us-gov-west-1.amazonaws.com", Some(("us-gov-west-1", "kms"))),
        ("bedrock-runtime.us-east-1.amazonaws.com", Some(("us-east-1", "bedrock"))),
        ("S3.cn-north-1.amazonaws.com.cn.", Some(("cn-north-1", "s3"))),
        ("s3.amazonaws.com.cn", None),
        ("vpce-1.s3.us-east-1.vpce.amazonaws.com", None),
        ("amazonaws.com", None),
        ("us-east-1.amazonaws.com", None),
        ("s3.corp", None),
    ] {
        let expected = said.map(|(region, service)| (region.to_owned(), service.to_owned()));
        assert_eq!(of_host(host), expected, "{host}");
    }
}

#[test]
fn paths_and_parameters_are_written_in_one_way() {
    assert_eq!(path("/a%20b/%C3%A9/:", "s3"), "/a%20b/%C3%A9/%3A");
    assert_eq!(path("//a/../b/./c%20d/", "sqs"), "/b/c%2520d/");
    assert_eq!((path("/", "sqs"), path("/..", "sqs")), ("/".to_owned(), "/".to_owned()));
    assert_eq!(query("b&a=2&a=1&c=x+y%2f&&%41"), "A=&a=1&a=2&b=&c=x%20y%2F");
    assert!(is_presigned(&parts("GET", "/?a=1&X-Amz-Sign%61ture=1", &[])));
    assert!(!is_presigned(&parts("GET", "/?a=X-Amz-Signature", &[])));
}

#[test]
fn what_is_no_access_key_is_refused() {
    for bad in
        ["nokey", "AKID", "AKID:short", "AKID:long-enough:token:more", "A-ID:long-enough", "AKID:long-enough:short"]
    {
        assert!(parted(bad).is_err(), "{bad}");
    }
    assert_eq!(joined("AKID\n", "long-enough\n", None).as_str(), "AKID:long-enough");
    assert_eq!(parted("AKID:long-enough:long-token").unwrap().0.as_str(), "long-enough");
}
