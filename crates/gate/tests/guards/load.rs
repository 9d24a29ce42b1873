//! Diagnostics in guards are found when the policy loads, at their line and column.

use crate::load;

/// The guard stands on line 6; the column is that of what is wrong.
#[track_caller]
fn mistaken(guard: &str, wrong: &str, says: &str) {
    let mistakes = load(guard).err().unwrap_or_else(|| panic!("{guard} loads"));
    let column = "guards.value = ".len() + guard.find(wrong).unwrap() + 1;
    let place = format!("policy.toml:6:{column}");
    let found =
        mistakes.list.iter().any(|mistake| mistake.at.to_string() == place && mistake.to_string().contains(says));
    assert!(found, "wanted {says:?} at {place}:\n{mistakes}");
}

#[test]
fn every_mistake_is_named_at_its_place() {
    mistaken(r#"{ kind = "emial" }"#, "\"emial\"", "did you mean kind = \"email\"?");
    mistaken(r#"{ kind = "email", hosts = ["a"] }"#, "hosts", "`hosts` is not a key of");
    mistaken(r#"{ kind = "email", domans = ["a.b"] }"#, "domans", "did you mean `domains`?");
    mistaken(r#"{ kind = "email", domains = ["@company.com"] }"#, "\"@company", "write company.com");
    mistaken(r#"{ kind = "email", domains = ["*.company.com"] }"#, "\"*.", "subdomains = true");
    mistaken(r#"{ kind = "email", domains = ["a_b..c"] }"#, "\"a_b", "labels");
    mistaken(r#"{ kind = "email", domains = ["ｃompany.com"] }"#, "\"ｃompany", "IDNA makes another name of it");
    mistaken(r#"{ kind = "email", domains = ["xn--zz.com"] }"#, "\"xn--", "stands for no name");
    mistaken(r#"{ kind = "email", domains = [] }"#, "[]", "nothing could pass it");
    mistaken(r#"{ kind = "path" }"#, "{", "no `roots`");
    mistaken(r#"{ kind = "path", roots = ["data"] }"#, "\"data\"", "write /srv/data");
    mistaken(r#"{ kind = "path", roots = ["/srv/../etc"] }"#, "\"/srv", "write it without `..`");
    mistaken(r#"{ kind = "path", roots = ["/srv"], access = "rw" }"#, "\"rw\"", "`read`, `write`");
    mistaken(r#"{ kind = "path", roots = ["/srv"], extensions = ["csv"] }"#, "\"csv\"", "write .csv");
    mistaken(r#"{ kind = "path", roots = ["/srv"], hide = ["[a"] }"#, "\"[a\"", "is not a glob");
    mistaken(r#"{ kind = "url" }"#, "{", "no `hosts`");
    mistaken(r#"{ kind = "url", hosts = ["https://a.example"] }"#, "\"https:", "write the name alone");
    mistaken(r#"{ kind = "url", hosts = ["a.example:8443"] }"#, "\"a.example:", "ports = [8443]");
    mistaken(r#"{ kind = "url", hosts = ["*.org"] }"#, "\"*.org", "it would allow hosts of everybody");
    mistaken(r#"{ kind = "url", hosts = ["a.example"], ports = [0] }"#, "0]", "1 to 65535");
    mistaken(r#"{ kind = "url", hosts = ["a.example"], schemes = ["HTTPS://"] }"#, "\"HTTPS", "write https");
    mistaken(r#"{ kind = "url", hosts = ["a.example"], schemes = ["file"] }"#, "\"file\"", "only schemes with a host");
    mistaken(r#"{ kind = "url", hosts = ["169.254.169.254"] }"#, "\"169", "private = true");
    mistaken(r#"{ kind = "url", hosts = ["metadata.google.internal"] }"#, "\"meta", "private = true");
    mistaken(r#"{ kind = "sql", dialect = "sqlite", tables = ["*"] }"#, "\"*", "by its name");
    mistaken(r#"{ kind = "sql", dialect = "sqlite", tables = ["or*"] }"#, "\"or*", "by its name");
    mistaken(r#"{ kind = "sql", dialect = "sqlite", tables = ["t"], columns = ["t.a*"] }"#, "\"t.a", "by its name");
    mistaken(r#"{ kind = "url", hosts = ["localhost"] }"#, "\"localhost", "this host itself");
    mistaken(r#"{ kind = "url", hosts = ["0x7f.1"] }"#, "\"0x7f", "write an address as");
    mistaken(r#"{ kind = "sql", tables = ["t"] }"#, "{", "no `dialect`");
    mistaken(r#"{ kind = "sql", dialect = "postgres" }"#, "\"postgres\"", "did you mean dialect = \"postgresql\"?");
    mistaken(r#"{ kind = "sql", dialect = "sqlite", tables = ["a.b.c"] }"#, "\"a.b.c\"", "`table` or `schema.table`");
    mistaken(
        r#"{ kind = "sql", dialect = "sqlite", tables = ["t"], columns = ["u.x"] }"#,
        "\"u.x\"",
        "add \"u\" to tables",
    );
    mistaken(r#"{ kind = "sql", dialect = "sqlite", statements = 0 }"#, "0 }", "1 to 16");
    mistaken(r#"{ kind = "sql", dialect = "sqlite", functions = ["load_extension"] }"#, "\"load_ext", "only lets read");
    mistaken(r#"{ kind = "enum", values = [] }"#, "[]", "nothing could pass it");
    mistaken(r#"{ kind = "enum", values = ["a", "a"] }"#, "\"a\"]", "twice");
    mistaken(r#"{ kind = "enum", values = [["a"]] }"#, "[\"a\"]", "text, a number, true or false");
    mistaken(r#"{ kind = "number" }"#, "{", "every number would pass");
    mistaken(r#"{ kind = "number", min = 2, max = 1.5 }"#, "2,", "nothing lies between them");
    mistaken(r#"{ kind = "number", max = "5" }"#, "\"5\"", "without quotes");
    mistaken(r#"{ kind = "number", max = nan }"#, "nan", "a decimal number");
    mistaken(r#"{ kind = "length", min = -1 }"#, "-1", "can be 0 to");
    mistaken(r#"{ kind = "length", min = 3, max = 1 }"#, "3", "nothing lies between them");
    mistaken(r#"{ kind = "pattern", pattern = "a)(b" }"#, "\"a)(b\"", "is not a regular expression");
    mistaken(r#"{ kind = "pattern", pattern = "(?=a)b" }"#, "\"(?=a", "look-around");
    mistaken(r#"{ kind = "pattern", pattern = "" }"#, "\"\"", "the pattern is empty");
    mistaken(r#"{ kind = "command", presets = ["inspect"] }"#, "{", "no `root`");
}

#[test]
fn all_mistakes_are_told_at_once() {
    let mistakes =
        load(r#"{ kind = "url", hosts = ["*.org", "a b"], ports = [0, 70000], schemes = ["FTP"] }"#).unwrap_err();
    assert_eq!(mistakes.list.len(), 5, "{mistakes}");
}
