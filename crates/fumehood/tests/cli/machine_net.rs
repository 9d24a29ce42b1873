//! Hosts by name from within a machine, with a real client: opened TLS, a secret that is not inside, and rules of a live sandbox.

use std::io::{Read as _, Write as _};
use std::path::Path;

use crate::Fixture;
use crate::live::{Live, call};
use crate::machines::root;
use crate::net::words;
use crate::net_tls::{Tls, tls_server};
use crate::secrets::{Sent, VALUE};

/// The machine's root with curl in it and all that it is linked with; nothing where there are no machines, or no curl.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
#[expect(clippy::disallowed_methods, reason = "the host says what curl is linked with")]
fn root_with_curl(fixture: &Fixture) -> Option<String> {
    let value = root(fixture)?;
    let curl = Path::new("/usr/bin/curl");
    if !curl.exists() {
        println!("skip: the network of machines: there is no `/usr/bin/curl`");
        return None;
    }
    let listed = std::process::Command::new("ldd").arg(curl).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let linked = listed.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
    for file in linked.chain([curl]) {
        let to = fixture.path("root").join(file.strip_prefix("/").unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(file, to).unwrap();
    }
    // What the root trusts by itself: somebody else.
    let (_, own, _) = echoing();
    std::fs::create_dir_all(fixture.path("root/etc/ssl")).unwrap();
    std::fs::write(fixture.path("root/etc/ssl/cert.pem"), own).unwrap();
    for name in ["env", "grep", "cmp"] {
        std::os::unix::fs::symlink("busybox", fixture.path("root/bin").join(name)).unwrap();
    }
    Some(value)
}

/// Says back what it is asked, by TLS; its port, the certificate of who vouches for it, and what it was sent.
fn echoing() -> (u16, String, Sent) {
    let sent = Sent::default();
    let all = Sent::clone(&sent);
    let answer = move |mut stream: Tls| {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let said = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{head}", head.len());
        all.lock().unwrap().push(head);
        drop(stream.write_all(said.as_bytes()));
        drop(stream.flush());
    };
    let (port, authority) = tls_server("served.test", answer);
    (port, authority, sent)
}

const ASK: &str = "
curl -sS -m 60 -H \"Authorization: Bearer $TOKEN\" https://served.test/x | grep -c 'Bearer \\*\\*\\*'
curl -sS -m 60 -o /dev/null -w '%{http_code}\\n' -X POST https://served.test/x
curl -s -m 60 https://other.test/ || echo no name $?
curl -s -m 60 https://192.0.2.1/ || echo no way $?
env | grep -c canary-
cmp /etc/ssl/cert.pem /run/fumehood/ca.pem && env -u CURL_CA_BUNDLE -u SSL_CERT_FILE curl -sS -m 60 --cacert /etc/ssl/cert.pem -o /dev/null -w '%{http_code}\\n' https://served.test/y
echo x >/etc/ssl/cert.pem || grep -c 'BEGIN CERTIFICATE' /etc/ssl/cert.pem";

#[test]
fn a_client_in_a_machine_reaches_the_named_host_alone_and_never_has_the_secret() {
    let fixture = Fixture::new().with("API_TOKEN", VALUE);
    let Some(root) = root_with_curl(&fixture) else { return };
    let (port, authority, sent) = echoing();
    let pem = fixture.path("corp.pem");
    std::fs::write(&pem, authority).unwrap();
    let rule = format!(
        "net.allow=[{{ host = \"served.test\", ports = [443], address = \"127.0.0.1:{port}\", methods = [\"GET\"] }}]"
    );
    let secret = "secrets={ api = { from = \"env:API_TOKEN\", hosts = [\"served.test\"], env = \"TOKEN\" } }";
    let ca = format!("net.ca=[\"{}\"]", pem.display());
    let sets = [root.as_str(), "net.mode=allow", &rule, secret, &ca, "limits.wall=5m"];
    let flags: Vec<String> = sets.into_iter().flat_map(|set| ["--set".to_owned(), set.to_owned()]).collect();
    let said = fixture.run(&words(&["run", "--json", "--tier=vm"], &flags, &["--", "sh", "-c", ASK]));
    let report = said.json();
    assert_eq!(report["stdout"], "1\n403\nno name 6\nno way 35\n0\n200\n3\n", "{report}");
    let got = sent.lock().unwrap().clone();
    assert!(got.len() == 2 && got[0].contains(&format!("uthorization: Bearer {VALUE}\r\n")), "{got:?}");
    for id in ["net.allow/method", "net.allow/unknown-name", "net.allow/unknown-address"] {
        let told = |one: &serde_json::Value| one["id"] == id && one["seen"] == "broker";
        assert!(report["violations"].as_array().unwrap().iter().any(told), "{id} in {report}");
    }
    assert!(!format!("{said:?}").contains(VALUE), "{said:?}");
    assert!(fixture.run(&["audit", "show", "--net"]).out.contains("egress.denied"));
    // A live one, whose rules are replaced while it runs.
    let flags: Vec<&str> = std::iter::once("--tier=vm").chain(flags.iter().map(String::as_str)).collect();
    let live = Live::new(&fixture, &flags);
    let ask = ["sh", "-c", "curl -sS -m 60 -o /dev/null -w '%{http_code}' https://served.test/x"];
    let (code, out, err) = live.exec(&[], &ask);
    assert_eq!((code, out.as_str()), (0, "200"), "{err}");
    let (code, _, err) = call(&fixture, &["net", "set", "--net", "none", &live.id]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(live.exec(&[], &ask).0, 6, "its name is none any more");
    let (code, _, err) = call(&fixture, &["snapshot", &live.id]);
    assert!(code == 125 && err.contains("no snapshot of this machine"), "{code} {err}");
    assert_eq!(call(&fixture, &["kill", &live.id]).0, 0);
}
