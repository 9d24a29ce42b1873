//! What a build makes of a recipe that runs nothing.

use std::fs;

use images::{Build, ImageError, Listed, Run, Steps};
use serde_json::json;

use super::packed::*;

/// Keeps what it is told, and runs nothing.
#[derive(Default)]
struct Told(Vec<String>);

impl Steps for Told {
    fn begins(&mut self, _line: usize, _text: &str, _kept: bool) {}

    fn tells(&mut self, words: &str) {
        self.0.push(words.to_owned());
    }

    fn run(&mut self, run: &Run<'_>) -> Result<(), String> {
        Err(format!("nothing is run: {:?}", run.argv))
    }

    fn policy(&self) -> String {
        String::new()
    }
}

fn built(bench: &Bench, recipe: &str) -> (Result<Listed, ImageError>, Vec<String>) {
    built_with(bench, recipe, &[])
}

fn built_with(bench: &Bench, recipe: &str, args: &[(&str, &str)]) -> (Result<Listed, ImageError>, Vec<String>) {
    let folder = bench.path("context");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("Dockerfile"), recipe).unwrap();
    let mut told = Told::default();
    let args = args.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let build = Build { folder, name: "made:1".to_owned(), args, ..Build::default() };
    (bench.store.build(&build, &mut told), told.0)
}

#[test]
fn what_a_base_asks_for_and_nothing_here_does_is_counted_and_told_or_refused() {
    let bench = Bench::new();
    let layers = [plain(&[file("a", "x")])];
    let base = |said: serde_json::Value| {
        let mut config = config(&layers);
        config["config"] = said;
        let layout = Layout::with(&bench.path("layout"), &layers, &config, "base:1");
        bench.store.import(&layout.0, None).unwrap().remove(0).about.told.unheeded
    };
    for (said, word) in [(json!({ "OnBuild": ["RUN exit 7"] }), "ONBUILD"), (json!({ "Shell": ["/bin/no"] }), "SHELL")]
    {
        assert_eq!(base(said), [word]);
        let why = built(&bench, "FROM base:1\nENV A=b\n").0.unwrap_err().fault();
        assert!(why.id == "image/dockerfile" && why.why.contains(&format!("`{word}`")), "{why}");
    }
    let rest = json!({ "Volumes": { "/data": {} }, "Healthcheck": { "Test": ["CMD", "x"] }, "StopSignal": "SIGINT" });
    assert_eq!(base(rest), ["HEALTHCHECK", "STOPSIGNAL", "VOLUME"]);
    let (done, told) = built(&bench, "FROM base:1\nENV A=b\n");
    assert_eq!(done.unwrap().about.told.unheeded, Vec::<String>::new(), "it has none of it");
    assert_eq!(told, ["not taken from the image of line 1: HEALTHCHECK, STOPSIGNAL, VOLUME"]);
    // What says nothing asks for nothing.
    let nothing = json!({ "OnBuild": null, "Shell": [], "Volumes": {}, "StopSignal": "", "Env": ["A=b"] });
    assert_eq!(base(nothing), Vec::<String>::new());
    let (done, told) = built(&bench, "FROM base:1\nENV B=c\n");
    assert_eq!((done.unwrap().about.config.env, told), (Some(vec!["A=b".to_owned(), "B=c".to_owned()]), Vec::new()));
}

#[test]
fn a_value_that_no_arg_takes_is_told() {
    let bench = Bench::new();
    let recipe = "ARG BASE=scratch\nFROM ${BASE}\nARG WHO\nENV A=$WHO\n";
    let (done, told) = built_with(&bench, recipe, &[("WHO", "you"), ("BASE", "scratch")]);
    assert_eq!((done.unwrap().about.config.env, told), (Some(vec!["A=you".to_owned()]), Vec::new()));
    let (done, told) = built_with(&bench, recipe, &[("WH0", "you"), ("other", "")]);
    assert!(done.is_ok(), "it is built all the same");
    assert_eq!(told, ["no ARG takes the value of: WH0, other"]);
}
