//! `[net]` as the broker gets it, and the presets of rules.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use std::path::{Path, PathBuf};

use policy::net_presets::NET_PRESETS;
use policy::value::Net;
use policy::{Caller, Format, Layers};

fn net(text: &str) -> Net {
    let caller = Caller { dir: PathBuf::from("/srv"), home: None, profiles: Vec::new() };
    let mut layers = Layers::new(caller);
    let none = |_: &Path| Err("no such file".to_owned());
    layers.document("p.toml", &format!("version = 1\n{text}\n"), Format::Toml, Path::new("/srv"), &none);
    layers.finish().unwrap().policy.net
}

#[test]
fn what_the_broker_reads_is_what_was_written() {
    let written = net(r#"
        [net]
        mode = "allow"
        presets = ["npm", "github-read"]
        allow = [
          "a.test", "192.0.2.0/24", { host = "**.b.test", ports = [8443], methods = ["GET"], paths = ["/x/**"] },
          { host = "db.corp", ports = [5432], address = "[::1]:6432" }, { cidr = "192.0.2.9/32", ports = [123], protocol = "udp" },
          { host = "c.test", tls = "pass" },
        ]
        deny = ["d.a.test", { cidr = "2001:db8::/32", ports = [25] }]
        programs = { "/usr/bin/git" = ["a.test"] }
        ca = ["corp.pem"]
        proxy = "http://proxy.corp:3128"
        bandwidth = "10MB/s"
        bytes = "1000001B"
        connections = 7
    "#);
    let read = Net::from_document(&written.document()).unwrap();
    let mut expected = written.clone();
    expected.allow = written.rules().cloned().collect();
    expected.presets.clear();
    assert_eq!(read, expected);
    assert_eq!(read.document(), written.document());
    let closed = Net::closed();
    assert_eq!(Net::from_document(&closed.document()).unwrap(), closed);
}

#[test]
fn what_the_broker_reads_is_read_strictly() {
    let mut document = Net::closed().document();
    document["allow"] = serde_json::json!([{ "host": "a.test", "port": 443 }]);
    assert_eq!(Net::from_document(&document).unwrap_err().list[0].id, "key/unknown");
}

#[test]
fn each_preset_is_rules_of_which_all_are_read() {
    for preset in NET_PRESETS {
        let written = preset.text.matches("host = ").count();
        let read = net(&format!("net = {{ mode = 'allow', presets = ['{}'] }}", preset.name));
        assert!(written > 0 && read.rules().count() == written, "{}", preset.name);
        // As a document it stands alone, so that a slip in it is a mistake and not a rule less.
        let alone = format!("[net]\nmode = 'allow'\n{}", preset.text);
        assert_eq!(net(&alone).allow, read.presets[preset.name], "{}", preset.name);
    }
}
