//! Layers: what wins, where values come from, and what is refused.

use std::path::{Path, PathBuf};

use policy::{Caller, ClauseId, Diagnostics, Format, Layers, Loaded};

fn caller() -> Caller {
    Caller {
        dir: PathBuf::from("/srv/work"),
        home: Some(PathBuf::from("/home/ann")),
        profiles: ["default", "node", "python", "strict"].map(str::to_owned).to_vec(),
    }
}

fn nothing(_: &Path) -> Result<String, String> {
    Err("no such file".to_owned())
}

fn toml(text: &str) -> Result<Loaded, Diagnostics> {
    let mut layers = Layers::new(caller());
    layers.document("policy.toml", text, Format::Toml, Path::new("/srv/policies"), &nothing);
    layers.finish()
}

#[test]
fn strict_is_what_stands_when_nothing_is_said() {
    let loaded = Layers::new(caller()).finish().unwrap();
    assert_eq!(loaded.policy.name, "strict");
    assert_eq!(loaded.policy.limits.memory, Some(policy::Bytes(256 << 20)));
    assert_eq!(loaded.origins.of(ClauseId::LimitsMemory), "preset strict");
    assert_eq!(loaded.lints, []);
}

#[test]
fn every_preset_is_sound_and_without_lints() {
    for preset in policy::presets::PRESETS {
        let mut layers = Layers::new(caller());
        layers.policy(preset.name, &nothing);
        let loaded = layers.finish().unwrap_or_else(|mistakes| panic!("{}: {mistakes}", preset.name));
        assert_eq!(loaded.policy.name, preset.name);
        assert_eq!(loaded.lints, [], "{}", preset.name);
    }
}

#[test]
fn flags_win_over_documents_whatever_the_order_of_calls() {
    let mut layers = Layers::new(caller());
    layers.flag("--memory", "512M");
    layers.document("p.toml", "version = 1\nlimits.memory = \"1G\"\n", Format::Toml, Path::new("/srv"), &nothing);
    let loaded = layers.finish().unwrap();
    assert_eq!(loaded.policy.limits.memory, Some(policy::Bytes(512 << 20)));
    assert_eq!(loaded.origins.of(ClauseId::LimitsMemory), "--memory");
}

#[test]
fn a_missing_unit_is_told_with_its_place_and_fix() {
    let mistakes = toml("version = 1\n[limits]\nmemory = 512\n").unwrap_err();
    assert_eq!(
        mistakes.to_string(),
        "error: `limits.memory` needs a unit\n  --> policy.toml:3:10   memory = 512\n  why: 512 could be bytes or MiB\n  fix: memory = \"512M\""
    );
}

#[test]
fn folders_of_ours_are_as_dangerous_as_credentials() {
    for (grant, refused) in [("/srv/state/audit", true), ("/srv", true), ("/srv/other", false)] {
        let mut layers = Layers::new(caller());
        layers.keep_private(PathBuf::from("/srv/state"));
        layers.flag("--read", grant);
        assert_eq!(layers.finish().is_err(), refused, "{grant}");
    }
}
