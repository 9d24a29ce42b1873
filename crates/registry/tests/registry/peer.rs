//! Debian's registry and skopeo, where they are installed: what others push is pulled.

use std::path::Path;
use std::time::{Duration, Instant};

use registry::pull;
use rustix::fd::AsFd as _;
use sys::command::Command;
use sys::pidfd::End;

use super::Bench;

const REGISTRY: &str = "/usr/bin/docker-registry";
const SKOPEO: &str = "/usr/bin/skopeo";

#[test]
fn what_skopeo_pushes_to_debians_registry_is_pulled() {
    if !Path::new(REGISTRY).exists() || !Path::new(SKOPEO).exists() {
        return println!("skip: `docker-registry` and `skopeo` are not both installed");
    }
    let bench = Bench::new();
    let at = |name: &str| bench.folder.path().join(name);
    // The port is free now; who takes it meanwhile makes this test fail, and loudly.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: 127.0.0.1:{port}}}\n",
        at("registry").display()
    );
    std::fs::write(at("config.yml"), config).unwrap();
    let null = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
    let command = Command::new(REGISTRY).args(["serve".as_ref(), at("config.yml").as_os_str()]);
    let _served = command.start(null.as_fd(), null.as_fd(), null.as_fd()).unwrap();
    let begun = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the registry does not answer");
    }

    let wanted = images::FromHost { paths: vec!["/usr/bin/env".into(), "/usr/bin/id".into()], ..Default::default() };
    let made = bench.store.from_host("tools:1", &wanted).unwrap();
    bench.store.export("tools:1", &at("out")).unwrap();
    let to = format!("docker://127.0.0.1:{port}/me/tools:1");
    let from = format!("oci:{}:tools:1", at("out").display());
    let pushed = Command::new(SKOPEO)
        .env("TMPDIR", bench.folder.path())
        .args(["--insecure-policy", "copy", "--dest-tls-verify=false", &from, &to])
        .output(b"", 1 << 16, Duration::from_secs(60))
        .unwrap();
    assert_eq!(pushed.end, End::Exited(0), "{}", String::from_utf8_lossy(&pushed.stderr));
    let other = Bench::new();
    let reference = format!("127.0.0.1:{port}/me/tools:1");
    let wanted = registry::PullOptions { reference, plain_http: true, ..Default::default() };
    let pulled = pull(&other.store, &wanted).unwrap();
    assert_eq!(pulled.about.tree, made.about.tree, "the same tree, packed by somebody else");
}
