//! What holds for every policy: layers, digests, units, and no panic on any text.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a surprise in a test is a failed test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use policy::Control;
use policy::plan::Support;
use policy::rows::ROWS;
use policy::units::{Bytes, BytesPerSecond, Millis};
use policy::value::Tier;
use policy::{Caller, Candidate, ClauseId, Diagnostics, Format, Layers, Loaded};
use proptest::prelude::*;

fn caller() -> Caller {
    Caller {
        dir: PathBuf::from("/srv/work"),
        home: Some(PathBuf::from("/home/ann")),
        profiles: ["default", "strict"].map(str::to_owned).to_vec(),
    }
}

fn nothing(_: &Path) -> Result<String, String> {
    Err("no such file".to_owned())
}

fn load(documents: &[(&str, Format)], flags: &[(&str, String)]) -> Result<Loaded, Diagnostics> {
    let mut layers = Layers::new(caller());
    for (index, (text, format)) in documents.iter().enumerate() {
        layers.document(&format!("p{index}"), text, *format, Path::new("/srv/work"), &nothing);
    }
    for (path, value) in flags {
        layers.set(&format!("{path}={value}"));
    }
    layers.finish()
}

fn digests(loaded: &Loaded) -> (String, String) {
    let held = |_: ClauseId| Support::Held(Control::NoNewPrivs.into());
    let plan = policy::make_plan(loaded, Candidate { tier: Tier::Container, backend: "test", answers: &held }).unwrap();
    (plan.digest().to_owned(), plan.policy_digest().to_owned())
}

/// Settings whose values never contradict one another, as TOML values.
fn settings() -> impl Strategy<Value = BTreeMap<&'static str, String>> {
    let text = |words: &'static [&'static str]| prop::sample::select(words).prop_map(|word| format!("{word:?}"));
    let options: Vec<BoxedStrategy<(&'static str, String)>> = vec![
        (300u64..4000).prop_map(|n| ("limits.memory", format!("\"{n}M\""))).boxed(),
        (1u32..5000).prop_map(|n| ("limits.pids", n.to_string())).boxed(),
        (1u64..100_000).prop_map(|n| ("limits.wall", format!("\"{n}ms\""))).boxed(),
        (1u32..8000).prop_map(|n| ("limits.cpus", format!("{:.3}", f64::from(n) / 1000.0))).boxed(),
        text(&["none", "loopback", "allow"]).prop_map(|w| ("net.mode", w)).boxed(),
        text(&["any", "kernel"]).prop_map(|w| ("enforcer", w)).boxed(),
        any::<bool>().prop_map(|on| ("fs.noexec", on.to_string())).boxed(),
        prop::collection::vec("[a-z]{1,8}", 0..4)
            .prop_map(|names| {
                (
                    "fs.read",
                    format!("[{}]", names.iter().map(|n| format!("\"/opt/{n}\"")).collect::<Vec<_>>().join(", ")),
                )
            })
            .boxed(),
        "[A-Z][A-Z0-9_]{0,8}".prop_map(|name| ("env.pass", format!("[\"{name}\"]"))).boxed(),
        "[ -~é€😀]{0,12}".prop_map(|value| ("env.set.VALUE", serde_json::to_string(&value).unwrap())).boxed(),
    ];
    prop::collection::vec(prop::strategy::Union::new(options), 0..8).prop_map(|list| list.into_iter().collect())
}

fn as_toml(settings: &BTreeMap<&str, String>) -> String {
    let lines: Vec<String> = settings.iter().map(|(path, value)| format!("{path} = {value}")).collect();
    format!("version = 1\n{}\n", lines.join("\n"))
}

fn as_json(settings: &BTreeMap<&str, String>) -> String {
    let mut root = serde_json::json!({ "version": 1 });
    for (path, value) in settings {
        let mut node = &mut root;
        for name in path.split('.') {
            node = node.as_object_mut().unwrap().entry(name).or_insert_with(|| serde_json::json!({}));
        }
        *node = serde_json::from_str(value).unwrap();
    }
    serde_json::to_string_pretty(&root).unwrap()
}

/// Block style by hand; texts in JSON's quotes are YAML's too.
fn as_yaml(settings: &BTreeMap<&str, String>) -> String {
    let mut out = String::from("---\nversion: 1 # comment\n");
    let mut open: Vec<&str> = Vec::new();
    for (path, value) in settings {
        let names: Vec<&str> = path.split('.').collect();
        let folders = &names[..names.len() - 1];
        let shared = open.iter().zip(folders).take_while(|(a, b)| a == b).count();
        for (depth, name) in folders.iter().enumerate().skip(shared) {
            out.push_str(&format!("{}{name}:\n", "  ".repeat(depth)));
        }
        open = folders.to_vec();
        out.push_str(&format!("{}{}: {value}\n", "  ".repeat(folders.len()), names[names.len() - 1]));
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_policy_has_the_same_digest_in_every_language_and_by_flags(settings in settings()) {
        let (toml, json, yaml) = (as_toml(&settings), as_json(&settings), as_yaml(&settings));
        let flags: Vec<(&str, String)> = settings.iter().map(|(path, value)| (*path, value.clone())).collect();
        let by_toml = digests(&load(&[(&toml, Format::Toml)], &[]).unwrap());
        prop_assert_eq!(&by_toml, &digests(&load(&[(&json, Format::Json)], &[]).unwrap()));
        prop_assert_eq!(&by_toml, &digests(&load(&[(&yaml, Format::Yaml)], &[]).unwrap()), "{}", yaml);
        prop_assert_eq!(&by_toml, &digests(&load(&[], &flags).unwrap()));
    }

    #[test]
    fn a_different_limit_has_a_different_digest(a in 300u64..4000, b in 300u64..4000) {
        let with = |n: u64| digests(&load(&[], &[("limits.memory", format!("{n}M"))]).unwrap());
        prop_assert_eq!(a == b, with(a).0 == with(b).0);
        prop_assert_eq!(a == b, with(a).1 == with(b).1);
    }

    #[test]
    fn of_two_layers_the_upper_decides_and_the_lower_fills(below in settings(), above in settings()) {
        let layered = load(&[(&as_toml(&below), Format::Toml), (&as_toml(&above), Format::Toml)], &[]).unwrap();
        let mut merged = below.clone();
        merged.extend(above.clone());
        let once = load(&[(&as_toml(&merged), Format::Toml)], &[]).unwrap();
        prop_assert_eq!(digests(&layered), digests(&once));
        let flags: Vec<(&str, String)> = above.into_iter().collect();
        let by_flags = load(&[(&as_toml(&below), Format::Toml)], &flags).unwrap();
        prop_assert_eq!(digests(&by_flags), digests(&once));
    }

    #[test]
    fn quantities_are_read_back_as_they_are_shown(size in 0u64..=1 << 50, time in 0u64..300_000_000_000) {
        prop_assert_eq!(Bytes::parse(&Bytes(size).to_string()), Ok(Bytes(size)));
        prop_assert_eq!(Millis::parse(&Millis(time).to_string()), Ok(Millis(time)));
        prop_assert_eq!(BytesPerSecond::parse(&BytesPerSecond(size).to_string()), Ok(BytesPerSecond(size)));
    }

    #[test]
    fn no_text_makes_units_panic(text in "\\PC{0,30}", number in "[0-9. ]{0,40}(K|M|Gi|s|ms|h| )?") {
        for text in [&text, &number] {
            let _sizes = (Bytes::parse(text), Millis::parse(text), BytesPerSecond::parse(text));
        }
    }

    #[test]
    fn no_text_makes_a_document_panic(text in "\\PC{0,200}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let lossy = String::from_utf8_lossy(&bytes).into_owned();
        for text in [&text, &lossy] {
            for format in [Format::Toml, Format::Yaml, Format::Json] {
                if let Err(mistakes) = load(&[(text, format)], &[]) {
                    let _shown = (mistakes.to_string(), mistakes.to_json());
                }
            }
            let mut layers = Layers::new(caller());
            layers.set(text);
            for flag in ["--read", "--memory", "--env", "--input", "--workspace", "--allow-host", "--prefer", "--cpus", "--net"] {
                layers.flag(flag, text);
            }
            let _outcome = layers.finish();
        }
    }

    #[test]
    fn no_mutation_of_a_good_document_panics(
        row in 0..ROWS.len(), at in any::<prop::sample::Index>(), cut in 0usize..4, put in "\\PC{0,3}", settings in settings()
    ) {
        let seed = format!("version = 1\n{}\n", ROWS[row].valid);
        for (text, format) in [(seed, Format::Toml), (as_json(&settings), Format::Json), (as_yaml(&settings), Format::Yaml)] {
            let mut chars: Vec<char> = text.chars().collect();
            let start = at.index(chars.len());
            let end = (start + cut).min(chars.len());
            chars.splice(start..end, put.chars());
            let mutated: String = chars.into_iter().collect();
            match load(&[(&mutated, format)], &[]) {
                Ok(loaded) => { let _shown = (loaded.show_text(), loaded.show_json()); }
                Err(mistakes) => prop_assert!(!mistakes.list.is_empty()),
            }
        }
    }
}

#[test]
fn hostile_documents_are_refused_quickly() {
    let deep_json = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let wide_json = format!("{{{}\"z\":1}}", (0..60_000).map(|n| format!("\"k{n}\":1,")).collect::<String>());
    let bomb = (1..10).fold("a0: &a0 [x]\n".to_owned(), |text, n| {
        let refs = vec![format!("*a{}", n - 1); 9].join(", ");
        format!("{text}a{n}: &a{n} [{refs}]\n")
    });
    let deep_yaml = "- ".repeat(50_000) + "x";
    let deep_flow = "[".repeat(50_000);
    let deep_toml = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    let dotted = format!("{} = 1", vec!["a"; 50_000].join("."));
    let start = std::time::Instant::now();
    for (text, format) in [
        (deep_json.as_str(), Format::Json),
        (&wide_json, Format::Json),
        (&bomb, Format::Yaml),
        (&deep_yaml, Format::Yaml),
        (&deep_flow, Format::Yaml),
        (&deep_toml, Format::Toml),
        (&dotted, Format::Toml),
    ] {
        assert!(load(&[(text, format)], &[]).is_err());
    }
    let spent = start.elapsed();
    assert!(spent.as_secs() < 60, "{spent:?}");
}

#[test]
fn canonical_json_is_that_of_rfc_8785() {
    let mut value: serde_json::Value = serde_json::from_str(
        r#"{"numbers":[0,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"€$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false],"\ufb33":1,"\ud83d\ude00":2,"\u20ac":3}"#,
    )
    .unwrap();
    // serde_json reads the last digit of this one wrongly; Rust does not.
    value["numbers"][0] = "333333333.33333329".parse::<f64>().unwrap().into();
    assert_eq!(
        policy::json::canonical(&value),
        "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\",\"€\":3,\"😀\":2,\"\u{fb33}\":1}"
    );
    assert_eq!(
        policy::json::digest(&serde_json::json!({})),
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    );
}

#[test]
fn the_ground_is_the_preset_strict() {
    let strict = Layers::new(caller()).finish().unwrap();
    // What stands without any document is not read from the preset, for speed: here the two are held together.
    let text = policy::presets::PRESETS[0].text;
    let again = load(&[(text, Format::Toml)], &[]).unwrap();
    assert_eq!(digests(&strict), digests(&again));
    assert_eq!(policy::Policy::defaults(), strict.policy);
    assert_eq!(again.policy, strict.policy);
    assert_eq!(again.policy.name, "strict");
}
