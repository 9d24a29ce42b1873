//! What a Dockerfile means, and what is refused in one.

use super::*;

fn refused(text: &str) -> (usize, String) {
    let refused = parse(text).expect_err(text);
    (refused.line, refused.why)
}

fn one(text: &str) -> Instruction {
    parse(&format!("FROM scratch\n{text}")).unwrap_or_else(|refused| panic!("{text}: {refused:?}")).swap_remove(1).does
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn lines_go_on_and_comments_are_gone() {
    let text = "# syntax=docker/dockerfile:1\nARG V=1\nfrom base:${V} as Build\n\n# said\nRUN one \\\n  # within\n\n  && two\nCMD [\"a\", \"b c\"]\n";
    let steps = parse(text).unwrap();
    assert_eq!(steps.iter().map(|step| step.line).collect::<Vec<_>>(), [2, 3, 6, 10]);
    assert_eq!(steps[1].does, Instruction::From { image: "base:${V}".to_owned(), name: Some("build".to_owned()) });
    assert_eq!(steps[2].does, Instruction::Run(Command::Shell("one   && two".to_owned())));
    assert_eq!(steps[3].does, Instruction::Cmd(Command::Words(words(&["a", "b c"]))));
}

#[test]
fn a_line_goes_on_with_its_blanks_and_not_behind_two_backslashes() {
    let run = |text: &str| {
        let steps = parse(&format!("FROM scratch\n{text}")).unwrap();
        let of =
            |step: &Step| if let Instruction::Run(Command::Shell(line)) = &step.does { line.clone() } else { panic!() };
        steps.iter().skip(1).map(of).collect::<Vec<_>>()
    };
    assert_eq!(run("RUN echo hello\\\n    world"), ["echo hello    world"]);
    assert_eq!(run("  RUN apt-get install -y\\ \t\n  git\\\n\\\n# said\n\n ok  \n"), ["apt-get install -y  git ok"]);
    assert_eq!(run("RUN echo a\\\\\nRUN echo b"), ["echo a\\\\", "echo b"]);
    assert_eq!(run("RUN echo a\\\\\\\nRUN echo b\\"), ["echo a\\\\\\", "echo b"]);
    assert_eq!(parse("\u{feff}FROM scratch").unwrap().len(), 1, "a mark of byte order");
}

#[test]
fn pairs_have_quotation_marks_and_an_old_form() {
    let pairs = |text: &str| {
        let Instruction::Env(pairs) = one(text) else { panic!("{text} is no ENV") };
        pairs
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(
        pairs("ENV A=b C=\"d e\" F='g $H' I=j\\ k"),
        [pair("A", "b"), pair("C", "d e"), pair("F", "g \\$H"), pair("I", "j k")]
    );
    assert_eq!(pairs("ENV A b  c"), [pair("A", "b  c")]);
}

#[test]
fn variables_stand_for_their_values() {
    let scope = Scope::from([("A".to_owned(), "1".to_owned()), ("EMPTY".to_owned(), String::new())]);
    for (text, value) in [
        ("$A/${A}x$B.", "1/1x."),
        ("${B:-no}${A:-no}${EMPTY:-no}", "no1no"),
        ("${A:+yes}${B:+yes}", "yes"),
        ("\\$A \\n $", "$A \\n $"),
        ("${B:-${A}}${B:-$A}${A:+x$A}${B:+$A}", "11x1"),
        ("${B:-${EMPTY:-${A:+deep}}}}", "deep}"),
        ("{$A}${A}}", "{1}1}"),
    ] {
        assert_eq!(expand(text, &scope).as_deref(), Ok(value), "{text}");
    }
    let deep = format!("{}{}", "${B:-".repeat(100_000), "}".repeat(100_000));
    for text in ["${A", "${}", "${A#x}", "${A-x}", "${B:-${A}", "${B:-$A", "${B:-${A#x}}", &deep] {
        assert!(expand(text, &scope).is_err(), "{}", text.chars().take(20).collect::<String>());
    }
    // What doubles with each line stays within what a program can be given.
    let mut scope = Scope::from([("A".to_owned(), "x".repeat(100))]);
    let doubled = (0..20).try_for_each(|_| {
        let twice = expand("$A$A", &scope)?;
        scope.insert("A".to_owned(), twice);
        Ok::<_, &str>(())
    });
    assert!(doubled.unwrap_err().contains("longer than"));
}

#[test]
fn copies_have_options() {
    let Instruction::Copy(copy) = one("COPY --from=build --chown=a:b --chmod=755 x \"y z\" /to/") else { panic!() };
    assert_eq!((copy.sources, copy.to.as_str(), copy.chmod), (words(&["x", "y z"]), "/to/", Some(0o755)));
    assert_eq!((copy.from.as_deref(), copy.chown.as_deref(), copy.add), (Some("build"), Some("a:b"), false));
}

#[test]
fn what_is_not_known_is_refused_with_its_line() {
    let table = [
        ("FROM scratch\nONBUILD RUN x", 2, "the instruction `ONBUILD` is not known here"),
        ("FROM scratch\nHEALTHCHECK NONE", 2, "`HEALTHCHECK`"),
        ("FROM scratch\n\nVOLUME /x", 3, "`VOLUME`"),
        ("FROM scratch\nSHELL [\"bash\"]", 2, "`SHELL`"),
        ("FROM --platform=linux/arm64 scratch", 1, "`--platform`"),
        ("FROM scratch\nRUN --mount=type=cache,target=/x y", 2, "`--mount`"),
        ("FROM scratch\nRUN --network=host y", 2, "`--network`"),
        ("FROM scratch\nCOPY --link a b", 2, "`--link`"),
        ("FROM scratch\nADD --from=x a b", 2, "`--from`"),
        ("FROM scratch\nADD https://example.org/x /x", 2, "nothing is fetched"),
        ("FROM scratch\nADD git@example.org:x /x", 2, "nothing is fetched"),
        ("FROM scratch\nRUN <<EOF\nx\nEOF", 2, "`<<`"),
        ("FROM scratch\nCOPY <<EOF /x\nx\nEOF", 2, "`<<`"),
        ("FROM scratch\nCOPY --chmod=4755 a b", 2, "octal number up to 777"),
        ("FROM scratch\nCOPY a", 2, "where to"),
        ("FROM scratch\nENV A=\"b", 2, "never closed"),
        ("FROM scratch\nENV A", 2, "NAME=VALUE"),
        ("FROM scratch\nARG A B", 2, "ARG NAME"),
        ("FROM scratch\nARG A-B", 2, "letters"),
        ("FROM scratch\nUSER", 2, "nothing follows"),
        ("FROM a b", 1, "FROM IMAGE"),
        ("RUN x", 1, "before the first FROM"),
        ("# escape=`\nFROM x", 1, "lets a line go on"),
        ("ARG A", 1, "no FROM"),
        ("", 1, "no FROM"),
    ];
    for (text, line, why) in table {
        let (found, said) = refused(text);
        assert!(found == line && said.contains(why), "{text:?}: {found}: {said}");
    }
}
