//! `fumehood bench tiers`, and the page that shows what it measured.

use serde_json::Value;

use crate::Fixture;

const COLUMNS: [(&str, &str); 6] = [
    ("start_ms", "start, ms"),
    ("python_ms", "Python start, ms"),
    ("memory", "memory, MiB"),
    ("call_ns", "system call, ns"),
    ("file_us", "new file, us"),
    ("connection_us", "connection, us"),
];
/// Where the table of the page stands.
const MARKS: [&str; 2] = ["<!-- measured: begin -->\n", "<!-- measured: end -->\n"];

#[test]
fn every_backend_has_numbers_or_a_reason_and_choose_takes_those_of_five_rounds_alone() {
    let fixture = Fixture::new();
    let kept = || std::fs::read_to_string(fixture.state().join("costs.json"));
    let said = fixture.run(&["bench", "tiers", "--rounds", "1", "--svg", "tiers.svg", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let json = said.json();
    let table = json["table"].as_array().unwrap();
    assert!(kept().is_err(), "one round is no median of five: {:?}", kept());
    let named = |row: &Value| (row["tier"].as_str().unwrap().to_owned(), row["backend"].as_str().unwrap().to_owned());
    let choice = fixture.run(&["choose", "--threat", "mistakes", "--json"]).json();
    let choices = choice["table"].as_array().unwrap();
    let mut expected = vec![("none".to_owned(), "host".to_owned())];
    expected.extend(choices.iter().map(named));
    assert_eq!(table.iter().map(named).collect::<Vec<_>>(), expected, "the host, and each backend once");
    for row in table {
        assert_eq!(row["there"] == true, row["start_ms"].is_number(), "{row}");
        for (key, _) in COLUMNS {
            assert_eq!(row[key].is_number(), row["not_measured"][key].is_null(), "{key} of {row}");
        }
        if row["there"] == true && row["tier"] == "container" {
            // One round may be lost in how much starts differ, and then says so.
            let told =
                |key: &str| row["not_measured"][key].as_str().is_some_and(|why| why.starts_with("less than starts"));
            assert!(COLUMNS.iter().all(|(key, _)| row[key].is_number() || told(key)), "{row}");
        }
        assert!(COLUMNS.iter().all(|(key, _)| row[key] != 0.0), "a difference that noise made is no number: {row}");
        // The host's own tree goes into no machine: a start is measured with our own program, and nothing else is.
        if row["backend"] == "qemu" && backends::Capabilities::probe().machine(policy::control::Emulator::Qemu).is_ok()
        {
            assert!(row["start_ms"].as_f64().is_some_and(|took| took > 0.0), "{row}");
            let others =
                ["python_ms", "call_ns", "file_us", "connection_us"].map(|key| row["not_measured"][key].as_str());
            assert!(others.iter().all(|why| why.is_some_and(|why| why.contains("a root with programs"))), "{row}");
        }
    }
    let picture = std::fs::read_to_string(fixture.path("work/tiers.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n") && picture.contains("prefers-color-scheme"));
    assert!(picture.contains("container (native)") && picture.contains("none (host)"), "{picture}");
    for wrong in ["0", "x", "1000"] {
        assert_eq!(fixture.run(&["bench", "tiers", "--rounds", wrong]).code, 125);
    }
}

/// The table of the page from what `bench tiers --json` said: `FUMEHOOD_WRITE=1` writes it.
#[test]
fn the_page_shows_what_was_measured() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/concepts/");
    let read = |name: &str| std::fs::read_to_string(format!("{docs}{name}")).unwrap();
    let measured: Value = serde_json::from_str(&read("comparison.json")).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let machine = &measured["machine"];
    let head: Vec<&str> = COLUMNS.iter().map(|(_, title)| *title).collect();
    let mut table = format!(
        "{} x {}, Linux {}, median of {} runs.\n\n| tier | backend | {} |\n| --- | --- |{}\n",
        text(&machine["processor"]),
        machine["processors"],
        text(&machine["kernel"]),
        measured["rounds"],
        head.join(" | "),
        " --- |".repeat(head.len()),
    );
    let mut missing = String::new();
    for row in measured["table"].as_array().unwrap() {
        let name = format!("`{}` | `{}`", text(&row["tier"]), text(&row["backend"]));
        if row["there"] == false {
            missing.push_str(&format!(
                "- `{}` by `{}`: {}.\n",
                text(&row["tier"]),
                text(&row["backend"]),
                text(&row["why"])
            ));
            continue;
        }
        let cell = |(key, _): &(&str, &str)| if row[*key].is_number() { row[*key].to_string() } else { "-".to_owned() };
        table.push_str(&format!("| {name} | {} |\n", COLUMNS.iter().map(cell).collect::<Vec<_>>().join(" | ")));
    }
    if !missing.is_empty() {
        table.push_str(&format!("\nNot there on that machine:\n\n{missing}"));
    }
    if measured["table"].as_array().unwrap().is_empty() {
        table = "On the machine of the project they are not measured yet.\n".to_owned();
    } else {
        table.push_str("\n![The same as a picture](../images/tiers.svg)\n");
    }
    let page = read("comparison.md");
    let (before, rest) = page.split_once(MARKS[0]).unwrap();
    let (shown, after) = rest.split_once(MARKS[1]).unwrap();
    if std::env::var_os("FUMEHOOD_WRITE").is_some() {
        let page = format!("{before}{}{table}{}{after}", MARKS[0], MARKS[1]);
        std::fs::write(format!("{docs}comparison.md"), page).unwrap();
        return;
    }
    assert_eq!(shown, table, "FUMEHOOD_WRITE=1 writes the table anew");
}
