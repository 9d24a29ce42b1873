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
        proxy = "http://us%40er:pass-word@Proxy.corp:3128"
        bandwidth = "10MB/s"
        bytes = "1000001B"
        connections = 7
    "#);
    let read = Net::from_document(&written.document()).unwrap();
    let mut expected = written.clone();
    expected.allow = written.rules().cloned().collect();
    expected.presets.clear();
    // The login goes another way.
    assert!(expected.proxy.take_if(|proxy| proxy.login.is_some()).is_some());
    assert!(!written.document().to_string().contains("pass-word") && !format!("{written:?}").contains("pass-word"));
    let place = read.proxy.as_ref().map(ToString::to_string);
    assert_eq!(place.as_deref(), Some("http://proxy.corp:3128"));
    expected.proxy.clone_from(&read.proxy);
    assert_eq!(read, expected);
    assert_eq!(read.document(), written.document());
    let closed = Net::closed();
    assert_eq!(Net::from_document(&closed.document()).unwrap(), closed);
}

#[test]
fn rules_as_clauses_take_the_place_of_all_below() {
    let under = |below: &str, rules: &Net| {
        let caller = Caller { dir: PathBuf::from("/srv"), home: None, profiles: Vec::new() };
        let mut layers = Layers::new(caller);
        let none = |_: &Path| Err("no such file".to_owned());
        layers.document("p.toml", &format!("version = 1\n{below}\n"), Format::Toml, Path::new("/srv"), &none);
        layers.flag("--allow-host", "before.test");
        rules.layers().iter().for_each(|layer| layers.set(layer));
        layers.finish().unwrap().policy.net
    };
    let wide = r#"net = { mode = "allow", presets = ["npm"], allow = ["wide.test"], deny = ["d.test"], unknown = "ask",
        bandwidth = "1M/s", bytes = "1G", connections = 9, ca = ["corp.pem"], proxy = "http://u:p@proxy.corp:3128" }"#
        .replace('\n', " ");
    let rules = net(r#"net = { mode = "allow", presets = ["go"], deny = [{ cidr = "192.0.2.0/24", ports = [25] }], bytes = "1000001B",
        allow = ["a.test", { host = "b.test", ports = [8443], methods = ["GET"], paths = ["/x/\"y\"/**"] },
            { host = "db.corp", ports = [5432], address = "[::1]:6432" }] }"#.replace('\n', " ").as_str());
    for narrow in [&rules, &Net::closed()] {
        let read = under(&wide, narrow);
        let below = net(&wide);
        let expected = Net {
            allow: narrow.rules().cloned().collect(),
            presets: std::collections::BTreeMap::new(),
            ca: below.ca,
            proxy: below.proxy,
            ..narrow.clone()
        };
        assert_eq!(read, expected);
    }
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
