//! Real clients of TLS under rules of methods and paths, and a server of TLS for tests.

use std::net::TcpListener;
use std::path::Path;

use super::Fixture;
use super::net::{answer, flags, words};
use super::secrets::READ_ALL;

fn served_by_tls() -> (u16, String) {
    tls_server("served.test", answer)
}

/// TLS of a server's side.
pub(super) type Tls = rustls::StreamOwned<rustls::ServerConnection, std::net::TcpStream>;

/// A server of HTTPS on the machine's own loopback; its port, and the certificate of who vouches for it.
pub(super) fn tls_server(name: &str, answer: impl Fn(Tls) + Clone + Send + 'static) -> (u16, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "a company's own");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    let authority = rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
    let names = vec![name.to_owned()];
    let leaf = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key.into())
        .unwrap();
    let config = std::sync::Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(std::sync::Arc::clone(&config)).unwrap();
            let stream = rustls::StreamOwned::new(connection, stream.unwrap());
            let answer = answer.clone();
            std::thread::spawn(move || answer(stream));
        }
    });
    (port, authority.pem())
}

/// Real clients that know of nothing: each trusts the run's authority by the bundle or the variable that it always reads, and
/// each of their requests is judged. Without a rule that opens, the same clients verify the server themselves.
#[test]
fn clients_of_tls_are_judged_and_trust_the_broker() {
    let (fixture, (port, authority)) = (Fixture::new(), served_by_tls());
    let folder = tempfile::tempdir().unwrap();
    let pem = folder.path().join("corp.pem");
    std::fs::write(&pem, authority).unwrap();
    let ca = format!("net.ca=[\"{}\"]", pem.display());
    let rule = |more: &str| {
        format!("net.allow=[{{ host = \"served.test\", ports = [443], address = \"127.0.0.1:{port}\"{more} }}]")
    };
    let set = |rule: String| -> Vec<String> {
        let mut all = flags(port);
        all.iter_mut().filter(|one| one.starts_with("net.allow")).for_each(|one| one.clone_from(&rule));
        all.extend(["--set".to_owned(), ca.clone()]);
        all
    };
    let narrow = set(rule(", methods = [\"GET\"], paths = [\"/v1/**\"]"));
    let python = "
import urllib.request as u, urllib.error as e
for method, path in [('GET', '/v1/y'), ('GET', '/v2'), ('POST', '/v1/y')]:
    try: print(u.urlopen(u.Request('https://served.test' + path, method=method), timeout=9).status)
    except e.HTTPError as error: print(error.code)";
    let curl =
        "for one in '' '-X POST'; do curl -sS -o /dev/null -w '%{http_code}\\n' $one https://served.test/v1/x; done
        env -u CURL_CA_BUNDLE -u SSL_CERT_FILE curl -sS -o /dev/null -w '%{http_code}\\n' https://served.test/v2";
    let node = "const https = require('https');
        const ask = path => new Promise(done => https.get('https://served.test' + path, r => { r.resume(); done(r.statusCode) }));
        (async () => { for (const path of ['/v1/x', '/v2', '/v3']) console.log(await ask(path)) })()";
    let clients: [(&[&str], &str); 3] = [
        (&["python3", "-c", python], "200\n403\n403\n"),
        (&["sh", "-c", curl], "200\n403\n403\n"),
        (&["node", "-e", node], "200\n403\n403\n"),
    ];
    let there = |name: &str| ["/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(name).exists());
    for (client, wanted) in clients.into_iter().filter(|(client, _)| there(client[0])) {
        let said = fixture.run(&words(&["run", "--json"], &narrow, &[&["--"], client].concat()));
        let report = said.json();
        assert_eq!(report["stdout"], wanted, "{client:?}: {report}");
        assert!(report["violations"].to_string().contains("net.allow/path"), "{report}");
    }
    // As a whole it is passed: the program sees the server's own certificate, which `net.ca` vouches for.
    let whole = set(rule(""));
    let said = fixture.run(&words(&["run", "--json"], &whole, &["--", "python3", "-c", python]));
    assert_eq!(said.json()["stdout"], "200\n200\n200\n", "{said:?}");
    // Who does not vouch for it is not believed: neither by the broker, nor by the program.
    for (flags, wanted) in [(narrow, "502"), (whole, "CERTIFICATE_VERIFY_FAILED")] {
        let without = flags.iter().position(|one| *one == ca).unwrap();
        let flags = [&flags[..without - 1], &flags[without + 1..]].concat();
        let said = fixture.run(&words(&["run", "--json"], &flags, &["--", "python3", "-c", python]));
        assert!(said.json().to_string().contains(wanted), "{wanted}: {said:?}");
    }
}

/// Looks for a key in what a program inside can read, and for the certificate that stands for it; neither form fits itself.
const LOOK: &str = "
import re
forms = {'key': re.compile(rb'PRIVATE[ ]KEY'), 'certificate': re.compile(rb'BEGIN[ ]CERTIFICATE')}
found = set()
def look(what, data): found.update(name for name, form in forms.items() if form.search(data))";

/// Files below a folder in which this text stands.
fn having(folder: &Path, text: &[u8]) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(having(&path, text));
        } else if kind.is_file() && std::fs::read(&path).is_ok_and(|all| all.windows(text.len()).any(|at| at == text)) {
            found.push(path);
        }
    }
    found
}

/// The key of the authority by which TLS is opened is in memory outside, and in no file: neither inside nor in the state folder.
#[test]
fn the_key_that_opens_tls_is_in_no_file() {
    let (fixture, (port, _)) = (Fixture::new(), served_by_tls());
    let rule = format!(
        "net.allow=[{{ host = \"served.test\", ports = [443], address = \"127.0.0.1:{port}\", methods = [\"GET\"] }}]"
    );
    let mut all = flags(port);
    all.iter_mut().filter(|one| one.starts_with("net.allow")).for_each(|one| one.clone_from(&rule));
    let id = fixture.run(&words(&["create"], &all, &[])).out.trim_end().to_owned();
    let code = format!("{LOOK}{READ_ALL}\nprint(sorted(found))");
    let scan = || fixture.run(&["exec", &id, "--", "python3", "-c", &code]).out;
    // Its certificate is found inside, so that the key would be.
    assert_eq!(scan(), "['certificate']\n");
    let form = ["PRIVATE", "KEY"].join(" ");
    assert_eq!(having(&fixture.state(), form.as_bytes()), [] as [&Path; 0]);
    let write = format!("open('/tmp/x', 'w').write(' '.join({:?}.split('-')))", "PRIVATE-KEY");
    assert_eq!(fixture.run(&["exec", &id, "--", "python3", "-c", &write]).code, 0);
    assert_eq!(scan(), "['certificate', 'key']\n", "one that is there is found");
    std::fs::write(fixture.state().join("x.pem"), &form).unwrap();
    assert_eq!(having(&fixture.state(), form.as_bytes()).len(), 1);
    assert_eq!(fixture.run(&["kill", &id]).code, 0);
}
