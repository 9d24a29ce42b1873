//! Patterns of paths, as policies have them.

use policy::wild::matches;

/// Whether a path (as [`crate::http::path`] gives it) is what a glob names: `*` is part of a segment, `**` any number of
/// segments.
#[must_use]
pub fn path(glob: &str, path: &str) -> bool {
    let (glob, path): (Vec<&str>, Vec<&str>) = (glob.split('/').collect(), path.split('/').collect());
    matches(
        &glob,
        &path,
        |one| *one == "**",
        |glob, segment| {
            let (glob, segment): (Vec<char>, Vec<char>) = (glob.chars().collect(), segment.chars().collect());
            matches(&glob, &segment, |one| *one == '*', |a, b| a == b)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wildcards_of_paths_stand_for_parts_or_segments() {
        for (glob, text, fits) in [
            ("/a", "/a", true),
            ("/a", "/a/", false),
            ("/a", "/ab", false),
            ("/*", "/a", true),
            ("/*", "/", true),
            ("/*", "/a/b", false),
            ("/a*c", "/abbc", true),
            ("/a*c", "/ab/c", false),
            ("/simple/**", "/simple/x/y", true),
            ("/simple/**", "/simple/", true),
            ("/simple/**", "/simple", true),
            ("/simple/**", "/simplex", false),
            ("/**", "/", true),
            ("/**/x.whl", "/x.whl", true),
            ("/**/x.whl", "/a/b/x.whl", true),
            ("/**/x.whl", "/a/b/x.whl/c", false),
            ("/repos/*/*/issues", "/repos/o/r/issues", true),
            ("/repos/*/*/issues", "/repos/o/issues", false),
            ("/a/**/b/**/c", "/a/1/b/2/b/3/c", true),
        ] {
            assert_eq!(path(glob, text), fits, "{glob} {text}");
        }
        let (glob, text) = (format!("/{}b", "*a".repeat(200)), format!("/{}", "a".repeat(4000)));
        assert!(!path(&glob, &text), "and it ends");
    }

    proptest! {
        #[test]
        fn a_path_is_what_its_own_text_names(text in "(/[a-c.]{0,3}){1,4}", cut in 0_usize..4) {
            prop_assert!(path(&text, &text) && path("/**", &text));
            let segments: Vec<&str> = text.split('/').take(cut + 1).collect();
            let below = format!("{}/**", segments.join("/"));
            prop_assert!(path(&below, &text), "{} {}", below, text);
        }
    }
}
