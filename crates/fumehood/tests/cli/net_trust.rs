//! Programs that read no variable trust hosts whose requests are read, whatever the root is.

use serde_json::json;

use super::image_runs::{Member, layer, saved};
use super::net::{answer, flags, words};
use super::net_tls::tls_server;
use super::{CommandOutput, Fixture, script};

/// The file of an image, and of the host, that programs read unasked.
const FILE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Every backend that shows an image, and can let hosts be reached by name.
const BACKENDS: [[&str; 2]; 5] = [
    ["--tier=container", "--set=backend=native"],
    ["--tier=container", "--set=backend=crun"],
    ["--tier=container", "--set=backend=podman"],
    ["--tier=container", "--set=backend=docker"],
    ["--tier=gvisor", "--set=backend=runsc"],
];
/// Asks without any variable; GnuTLS (wget) and OpenSSL (python3, curl) each read the system's own file.
const CLIENTS: [&[&str]; 3] = [
    &["wget", "-qO-", "--tries=1", "https://served.test/v1/x"],
    &["curl", "-sSf", "https://served.test/v1/x"],
    &[
        "python3",
        "-c",
        "import urllib.request as u; print(u.urlopen('https://served.test/v1/x', timeout=9).read().decode())",
    ],
];

/// An image `roots:1` that trusts this by itself, and whose programs are the host's.
fn imported(fixture: &Fixture, own: &str) {
    let links = ["lib", "lib64"].map(|name| (name, format!("usr/{name}")));
    let mut members = vec![Member::File(FILE.trim_start_matches('/'), own.as_bytes(), 0o644)];
    members.extend(links.iter().map(|(name, target)| Member::Link(name, target)));
    saved(&fixture.path("roots.tar"), "roots:1", &layer(members), &json!({}));
    let said = fixture.run(&["image", "import", fixture.path("roots.tar").to_str().unwrap()]);
    assert_eq!(said.code, 0, "{}", said.err);
}

/// Rules that read each request to a server which a company vouches for, and pass those to `own.test` at a port, with `more` flags.
fn reading(fixture: &Fixture, own: u16, more: &[&str]) -> Vec<String> {
    let (port, authority) = tls_server("served.test", answer);
    std::fs::write(fixture.path("corp.pem"), authority).unwrap();
    let rule = format!(
        "net.allow=[{{ host = \"own.test\", ports = [443], address = \"127.0.0.1:{own}\" }}, {{ host = \"served.test\", ports = [443], address = \"127.0.0.1:{port}\", methods = [\"GET\"], paths = [\"/v1/**\"] }}]"
    );
    let ca = format!("net.ca=[\"{}\"]", fixture.path("corp.pem").display());
    let mut all = flags(port);
    all.iter_mut().filter(|one| one.starts_with("net.allow")).for_each(|one| one.clone_from(&rule));
    all.extend(["--set".to_owned(), ca].into_iter().chain(more.iter().map(|&one| one.to_owned())));
    all
}

/// How a client ended that is given no variable: exit code and all that it said.
fn alone(fixture: &Fixture, flags: &[String], client: &[&str]) -> (i32, String) {
    let bare = [&["--", "/usr/bin/env", "-i", "PATH=/usr/bin:/bin"], client].concat();
    let said = fixture.run(&words(&["run", "-q"], flags, &bare));
    (said.code, format!("{}{}", said.out, said.err))
}

#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn installed() -> Vec<&'static [&'static str]> {
    let there = |client: &&&[&str]| std::path::Path::new("/usr/bin").join(client[0]).exists();
    let all: Vec<_> = CLIENTS.iter().filter(there).copied().collect();
    for client in CLIENTS.iter().filter(|client| !there(client)) {
        println!("skip: {} is not installed", client[0]);
    }
    assert!(!all.is_empty(), "no client of TLS is installed");
    all
}

/// Variables that programs read for a bundle: those of the contract, and of others that are known to look nowhere else.
const BUNDLES: [&str; 16] = [
    "AWS_CA_BUNDLE",
    "BUNDLE_SSL_CA_CERT",
    "CARGO_HTTP_CAINFO",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "CONDA_SSL_VERIFY",
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "JULIA_SSL_CA_ROOTS_PATH",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "PERL_LWP_SSL_CA_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
];

/// The bundle is also laid over the system's own file, so a client says nothing of a variable that is missing: each is looked for.
#[test]
fn each_variable_that_programs_read_names_the_bundle() {
    let fixture = Fixture::new();
    let flags = reading(&fixture, 9, &[]);
    let said = fixture.run(&words(&["run", "-q"], &flags, &["--", "env"]));
    assert_eq!(said.code, 0, "{said:?}");
    let mut set: Vec<&str> = said.out.lines().filter_map(|line| line.strip_suffix("=/run/fumehood/ca.pem")).collect();
    set.sort_unstable();
    assert_eq!(set, BUNDLES);
    let java = said.out.lines().find_map(|line| line.strip_prefix("JAVA_TOOL_OPTIONS="));
    assert!(java.is_some_and(|java| java.contains("trustStore=/run/fumehood/ca.jks")), "{java:?}");
    // One that the policy sets is not overruled, and without anything to trust none is there.
    let own = words(&["run", "-q", "--env", "PIP_CERT=/own.pem"], &flags, &["--", "sh", "-c", "echo $PIP_CERT"]);
    assert_eq!(fixture.run(&own).out, "/own.pem\n");
    assert!(!fixture.run(&["run", "-q", "--", "env"]).out.contains("/run/fumehood/ca"));
}

#[test]
fn programs_without_variables_trust_the_broker_on_an_image_and_not_without_the_bundle() {
    let fixture = Fixture::new();
    let (port, own) = tls_server("own.test", answer);
    imported(&fixture, &own);
    let grant = fixture.path("as-it-was");
    std::fs::create_dir_all(grant.join("certs")).unwrap();
    std::fs::write(grant.join("certs/ca-certificates.crt"), &own).unwrap();
    let shown = format!("--read={}:/etc/ssl", grant.display());
    for on in BACKENDS {
        let image = ["--set=fs.root=image:roots:1", "--read=/usr", on[0], on[1]];
        let flags = reading(&fixture, port, &image);
        let planned = fixture.run(&words(&["plan", "--json"], &flags, &[]));
        if planned.code != 0 {
            println!("skip: certificates by {on:?}: {}", planned.json()["refused"][0]["why"]);
            continue;
        }
        assert!(planned.out.contains("mountns:certificates"), "{on:?}: {}", planned.out);
        for client in installed() {
            let (code, said) = alone(&fixture, &flags, client);
            assert_eq!(code, 0, "{on:?} {client:?}: {said}");
        }
        // What the image trusts by itself it goes on trusting, and nobody inside changes it.
        let passed = ["curl", "-sSf", "https://own.test/v1/x"];
        assert_eq!(alone(&fixture, &flags, &passed).0, 0, "{on:?}: {}", alone(&fixture, &flags, &passed).1);
        let change = format!(
            "cat {FILE} >/tmp/a; echo x >{FILE} || rm -f {FILE} || mv {FILE} /tmp/x; cmp /tmp/a {FILE} && echo same"
        );
        let (_, said) = alone(&fixture, &flags, &["sh", "-c", &change]);
        assert!(said.contains("same"), "{on:?}: {said}");
        // The same root as it is: the grant is shown, the plan says that nothing is laid, and the same programs refuse.
        let flags = words(&[], &flags, &[&shown]);
        let planned = fixture.run(&words(&["plan"], &flags, &[]));
        assert!(planned.out.contains("no file of certificates"), "{on:?}: {}", planned.out);
        for client in installed() {
            let (code, said) = alone(&fixture, &flags, client);
            assert!(code != 0, "{on:?} {client:?}: {said}");
        }
        assert_eq!(alone(&fixture, &flags, &passed).0, 0, "{on:?}: the image's own is trusted");
    }
}

/// A machine whose `/etc/ssl/certs` is empty but for what `made` puts there, and that has no other store, in mounts of this run alone;
/// `None` where this host lets nobody mount.
fn on_a_machine(fixture: &Fixture, made: &str, words: &[String]) -> Option<CommandOutput> {
    let text = "unshare --mount true || exit 77; exec unshare --mount --propagation private sh -c 'program=$1 made=$2; shift 2; \
                for folder in /etc/ssl /etc/pki; do [ ! -d $folder ] || mount -t tmpfs -o mode=755 none $folder || exit 77; done; \
                mkdir -p /etc/ssl/certs && eval \"$made\" && exec \"$program\" \"$@\"' sh \"$@\"";
    let said = fixture.said(&script(text, fixture).arg(made).args(words).output().unwrap());
    (said.code != 77).then_some(said)
}

/// Where the machine has no store what is built in verifies servers, and is shown inside; a store is used alone, and one that was emptied
/// trusts nobody.
#[test]
fn a_machine_without_a_store_is_told_of_and_one_with_a_store_is_believed() {
    let fixture = Fixture::new();
    let (port, authority) = tls_server("served.test", answer);
    let store = fixture.path("store.pem");
    std::fs::write(&store, authority).unwrap();
    let rule = format!(
        "net.allow=[{{ host = \"served.test\", ports = [443], address = \"127.0.0.1:{port}\", methods = [\"GET\"] }}]"
    );
    let mut flags = flags(port);
    flags.iter_mut().filter(|one| one.starts_with("net.allow")).for_each(|one| one.clone_from(&rule));
    let on = |made: &str, first: &[&str], last: &[&str]| on_a_machine(&fixture, made, &words(first, &flags, last));
    let count = ["--", "grep", "-c", "BEGIN CERTIFICATE", "/run/fumehood/ca.pem"];
    let ask = ["--", "curl", "-sSf", "-o", "/dev/null", "-w", "%{http_code}", "https://served.test/x"];
    let note = "this machine has no store of certificates: servers are verified by Mozilla's list as it is built in (webpki-root-certs ";
    let Some(planned) = on(":", &["plan"], &[]) else { return println!("skip: no mounts can be made here") };
    assert!(planned.code == 0 && planned.out.contains(note), "{planned:?}");
    let shown = on(":", &["run", "--json"], &count).unwrap().json();
    let certificates: usize = shown["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!(certificates > 100 && shown["workspace"]["notes"].to_string().contains(note), "{shown}");
    // Nobody of the list vouches for this server: it is verified, and refused. The machine's own store vouches for it.
    let refused = on(":", &["run", "-q"], &ask).unwrap();
    assert!(refused.code != 0 && refused.out != "200", "{refused:?}");
    let has = format!("cp {} /etc/ssl/certs/ca-certificates.crt", store.display());
    let planned = on(&has, &["plan"], &[]).unwrap();
    assert!(planned.code == 0 && !planned.out.contains(note), "{planned:?}");
    let shown = on(&has, &["run", "-q"], &count).unwrap();
    assert_eq!(shown.out, "2\n", "the store's and the run's: {shown:?}");
    let asked = on(&has, &["run", "-q"], &ask).unwrap();
    assert_eq!((asked.code, asked.out.as_str()), (0, "200"), "{asked:?}");
    let emptied = on(": >/etc/ssl/certs/ca-certificates.crt", &["run"], &count).unwrap();
    assert!(emptied.code == 126 && emptied.err.contains("cannot be verified"), "{emptied:?}");
}

/// The host's own tools, and a folder as root.
#[test]
fn programs_without_variables_trust_the_broker_on_the_hosts_tools_and_on_a_folder() {
    let fixture = Fixture::new();
    let root = fixture.path("root");
    for folder in ["etc/pki/tls/certs", "etc/pki/ca-trust/extracted/pem", "usr"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    for (name, target) in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")] {
        std::os::unix::fs::symlink(target, root.join(name)).unwrap();
    }
    // As Red Hat has it.
    let bundle = "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";
    let (port, own) = tls_server("own.test", answer);
    std::fs::write(root.join(bundle), &own).unwrap();
    std::os::unix::fs::symlink(format!("/{bundle}"), root.join("etc/pki/tls/certs/ca-bundle.crt")).unwrap();
    let folder = format!("--set=fs.root=dir:{}", root.display());
    let flags = reading(&fixture, port, &[&folder, "--read=/usr"]);
    let look = ["cat", "/etc/pki/tls/certs/ca-bundle.crt"];
    let (code, said) = alone(&fixture, &flags, &look);
    let certificates = said.matches("BEGIN CERTIFICATE").count();
    assert!(code == 0 && certificates == 3, "its own, that of `net.ca`, the run's: {said}");
    let (_, said) = alone(
        &fixture,
        &flags,
        &["sh", "-c", "cmp /etc/pki/tls/certs/ca-bundle.crt /run/fumehood/ca.pem && echo same"],
    );
    assert_eq!(said, "same\n");
    // Names by hashes beside the file: a program that reads those alone would trust nobody of the run.
    let told = "programs that look for certificates in `/etc/pki/tls/certs` alone";
    let plan = |flags: &[String]| fixture.run(&words(&["plan"], flags, &[])).out;
    assert!(!plan(&flags).contains(told));
    std::fs::write(root.join("etc/pki/tls/certs/5a4d6896.0"), &own).unwrap();
    assert!(plan(&flags).contains(told), "{}", plan(&flags));
    // It names no resolver, and a folder's `/etc` is shown as it is.
    let told = "programs inside cannot look names up";
    assert!(plan(&flags).contains(told), "{}", plan(&flags));
    let ran = fixture.run(&words(&["run", "--json"], &flags, &["--", "true"])).json();
    assert!(ran["workspace"]["notes"].to_string().contains(told), "{ran}");
    let look = ["python3", "-c", "import socket; print(socket.gethostbyname('served.test'))"];
    assert_ne!(alone(&fixture, &flags, &look).0, 0);
    std::fs::write(root.join("etc/resolv.conf"), "nameserver 198.18.0.1\n").unwrap();
    assert!(!plan(&flags).contains(told), "{}", plan(&flags));
    let (code, said) = alone(&fixture, &flags, &look);
    assert!(code == 0 && said.starts_with("198.18."), "{said}");
    let flags = reading(&fixture, port, &[]);
    for client in installed() {
        let (code, said) = alone(&fixture, &flags, client);
        assert_eq!(code, 0, "{client:?}: {said}");
    }
}
