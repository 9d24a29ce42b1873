//! References of git's, each in its file and all in `packed-refs`: names as git itself makes them, and no more believed of a list than
//! what the objects say.

use std::collections::BTreeSet;

use policy::json::hex;
use policy::protected::folded;

use crate::fault::{is_unsafe_to_show, show_short};

/// Why a name is held that looks like a commit's id.
pub(super) const TAKEN_FOR_ID: &str = "git takes the name for it where somebody writes the beginning of a commit's id";

/// How the list begins.
const HEAD: &[u8] = b"# pack-refs with:";

/// Why `packed-refs` may not take the place of another: references that replace objects show other contents under ids that were
/// reviewed; and a list that git does not read is the end of all branches.
pub(super) fn packed_refs(before: &[u8], now: &[u8]) -> Option<String> {
    let (mut names, mut strange) = (Vec::new(), None);
    let head = lines(now).next().filter(|line| line.starts_with(HEAD));
    let mut may_peel = false;
    let whole = now.strip_suffix(b"\n").unwrap_or_default();
    for line in lines(whole).skip(usize::from(head.is_some())).filter(|_| !now.is_empty()) {
        let reference = at_space(line).filter(|(hash, name)| is_hash(hash) && is_refname(name));
        if reference.is_none() && !(may_peel && line.strip_prefix(b"^").is_some_and(is_hash)) {
            strange = strange.or(Some(line));
        }
        may_peel = reference.is_some();
        names.extend(reference.map(|(_, name)| name));
    }
    if let Some(line) = strange {
        return Some(format!(
            "its line {} is none that is understood here, and git stops at one that it does not know: a list that the host's own git writes \
             is taken (`git pack-refs --all` with that version)",
            show_short(line)
        ));
    }
    if !(now.is_empty() || now.ends_with(b"\n")) {
        return Some("its last line has no end: git does not read such a list".to_owned());
    }
    // git looks for a name where it would stand.
    if head.is_some_and(is_sorted) && !names.is_sorted() {
        return Some("it says that it is sorted, and is not: git would not find what stands elsewhere".to_owned());
    }
    let is_known = |line: &[u8]| {
        let rest = line.strip_prefix(b"^").unwrap_or(line);
        line.is_empty() || is_hash(rest) || at_space(line).is_some_and(|(id, _)| is_hash(id))
    };
    let is_head = |line: &[u8]| line.starts_with(HEAD);
    if let Some(line) = lines(before)
        .enumerate()
        .find(|(at, line)| (*at != 0 || !is_head(line)) && !is_known(line))
        .map(|(_, line)| line)
    {
        return Some(format!(
            "the list that the host has is not understood here (its line {}), and what it says with that would be lost: `git pack-refs --all` on the host writes it anew",
            show_short(line)
        ));
    }
    let mut once = BTreeSet::new();
    if !names.iter().all(|name| once.insert(name)) {
        return Some("it has a name twice: what git takes it for depends on how it looks".to_owned());
    }
    let replaces = |line: &&[u8]| {
        let name = at_space(line).and_then(|(_, name)| name.strip_prefix(b"refs/"));
        name.and_then(|name| name.split(|byte| *byte == b'/').next()).is_some_and(is_replace)
    };
    let replaced = lines(now).filter(replaces).any(|line| !lines(before).any(|known| known == line));
    if replaced {
        return Some("it replaces objects: git would show others under ids that were reviewed".to_owned());
    }
    let known: BTreeSet<&[u8]> = lines(before).filter_map(at_space).map(|(_, known)| known).collect();
    let mut new = names.into_iter().filter(|name| !is_hosts(name) && !known.contains(name));
    new.find_map(|name| new_name(&name.split(|byte| *byte == b'/').collect::<Vec<_>>())).map(str::to_owned)
}

/// Why a name that the host has not is held.
pub(super) fn new_name(parts: &[&[u8]]) -> Option<&'static str> {
    let is_taken =
        matches!(parts, [b"refs", b"heads" | b"tags", _, ..]) && parts != [&b"refs"[..], b"heads", b"git-annex"];
    if is_id(parts) || parts.last().is_some_and(|name| is_described(name)) {
        Some(TAKEN_FOR_ID)
    } else if matches!(parts, [_, _, name] if *name == b"HEAD" || name.ends_with(b"_HEAD")) {
        Some("git has a file of its own of that name, and takes the one or the other")
    } else if !is_taken {
        Some("of references only branches and tags are taken: others change what git shows, or what it does")
    } else if !parts.iter().all(|part| is_plain_text(part)) {
        Some("its name has characters that a shell or a terminal acts on: prompts and scripts write it out")
    } else {
        None
    }
}

/// Letters, digits and what is nothing to a shell.
fn is_plain_text(name: &[u8]) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() && !is_unsafe_to_show(c) || "._-+@=,#:/".contains(c);
    std::str::from_utf8(name).is_ok_and(|name| name.chars().all(is_plain))
}

/// As `git describe` calls a commit: `v1.0-3-g0123abc`.
fn is_described(name: &[u8]) -> bool {
    let mut parts = name.rsplit(|byte| *byte == b'-');
    let id = parts.next().and_then(|last| last.strip_prefix(b"g")).unwrap_or_default();
    let count = parts.next().unwrap_or_default();
    let is_count = !count.is_empty() && count.iter().all(u8::is_ascii_digit);
    is_count && parts.next().is_some() && id.len() >= 4 && id.iter().all(u8::is_ascii_hexdigit)
}

/// What git on the host keeps by itself.
fn is_hosts(name: &[u8]) -> bool {
    let mut parts = name.strip_prefix(b"refs/").unwrap_or_default().split(|byte| *byte == b'/');
    matches!(parts.next(), Some(b"stash" | b"remotes"))
}

/// The list that is taken: of the run's its branches, and what the host's has not, which is judged; of the host's all that is no branch
/// (tags, `refs/notes`, `refs/remotes`), for whoever changes such a file is held; and nothing of which objects tags stand for, for git
/// believes it, and looks at the tags where it is not there. What `loose` says that a file of the host's names is in it so, or not at all:
/// git packed it inside.
#[must_use]
pub fn merged(before: &[u8], now: &[u8], loose: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let is_branch = |name: &[u8]| name.starts_with(b"refs/heads/") && name != b"refs/heads/git-annex";
    let known: BTreeSet<&[u8]> =
        lines(before).filter_map(at_space).map(|(_, name)| name).filter(|name| !is_branch(name)).collect();
    let is_reference = |line: &&[u8]| !line.is_empty() && !line.starts_with(b"^") && !line.starts_with(b"#");
    let is_taken = |line: &&[u8]| {
        let Some((id, name)) = at_space(line).filter(|(_, name)| !is_branch(name)) else { return true };
        loose(name).map_or_else(|| !is_hosts(name) && !known.contains(name), |is| id_of(id) == Some(is))
    };
    let mut all: Vec<&[u8]> = lines(now).filter(is_reference).filter(is_taken).collect();
    let taken: BTreeSet<&[u8]> = all.iter().copied().filter_map(at_space).map(|(_, name)| name).collect();
    let is_kept = |line: &&[u8]| at_space(line).is_some_and(|(_, name)| !is_branch(name) && !taken.contains(name));
    all.extend(lines(before).filter(is_reference).filter(is_kept));
    let head = lines(now).next().filter(|line| line.starts_with(HEAD));
    let sorted = head.is_some_and(is_sorted);
    if sorted {
        all.sort_by_key(|line| at_space(line).map(|(_, name)| name));
    }
    let head: &[u8] = match (head, sorted) {
        (None, _) => b"",
        (Some(_), true) => b"# pack-refs with: sorted \n",
        (Some(_), false) => b"# pack-refs with: \n",
    };
    let mut kept = head.to_vec();
    for line in all {
        kept.extend_from_slice(line);
        kept.push(b'\n');
    }
    kept
}

/// A list in which `moved` says where references are instead: elsewhere, or nowhere any more.
#[must_use]
pub fn followed(list: &[u8], moved: impl Fn(&[u8], &[u8]) -> Option<Option<Vec<u8>>>) -> Vec<u8> {
    let mut kept = Vec::with_capacity(list.len());
    let mut is_peeled_left = true;
    for line in list.split_inclusive(|byte| *byte == b'\n') {
        let reference = at_space(line.trim_ascii_end()).filter(|(id, _)| is_hash(id));
        let Some((id, name)) = reference else {
            // Of what object a tag stood for that is elsewhere nothing is said.
            if is_peeled_left || !line.starts_with(b"^") {
                kept.extend_from_slice(line);
            }
            continue;
        };
        let is = moved(name, id);
        is_peeled_left = is.is_none();
        match is {
            None => kept.extend_from_slice(line),
            Some(Some(id)) => kept.extend([hex(&id).as_bytes(), b" ", name, b"\n"].concat()),
            Some(None) => {}
        }
    }
    kept
}

/// The branches of a list, and what they name.
pub fn branches_of(list: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    references_of(list).filter(|(name, _)| name.starts_with(b"refs/heads/"))
}

/// All that a list names, and what it is.
pub fn references_of(list: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines(list).filter_map(at_space).map(|(hash, name)| (name, hash)).filter(|(_, hash)| is_hash(hash))
}

fn lines(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b'\n')
}

fn is_sorted(head: &[u8]) -> bool {
    head.split(|byte| *byte == b' ').any(|word| word == b"sorted")
}

/// In any case and spelling that some file system takes for the same.
pub(super) fn is_replace(name: &[u8]) -> bool {
    folded(name).eq_ignore_ascii_case(b"replace")
}

fn at_space(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|byte| *byte == b' ')?;
    Some((line.get(..at)?, line.get(at.checked_add(1)?..)?))
}

/// A name that git would give (`git check-ref-format --branch`): another one is an option, or a revision, where somebody writes it
/// into a command.
fn is_refname(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(b"refs/") else { return false };
    let is_ambiguous = [&b"heads/HEAD"[..], b"tags/HEAD"].contains(&rest);
    !is_ambiguous && rest.split(|byte| *byte == b'/').all(is_plain_part)
}

/// Whether somebody who writes a commit's id, or the beginning of one as git shows it, would get this reference (`refs/tags/NAME`, or
/// `refs/remotes/NAME/HEAD`).
pub(super) fn is_id(parts: &[&[u8]]) -> bool {
    let is_id = |name: &[u8]| (7..=64).contains(&name.len()) && name.iter().all(u8::is_ascii_hexdigit);
    match parts {
        [b"refs", name] | [b"refs", _, name] | [b"refs", b"remotes", name, ..] => is_id(name),
        [_, ..] | [] => false,
    }
}

/// A part of such a name.
pub(super) fn is_plain_part(part: &[u8]) -> bool {
    let plain = |byte: &u8| *byte > b' ' && *byte != 0x7f && !b"~^:?*[\\".contains(byte);
    let has = |two: &[u8]| part.windows(2).any(|here| here == two);
    !part.is_empty()
        && part.iter().all(plain)
        && !part.starts_with(b"-")
        && !part.starts_with(b".")
        && !part.ends_with(b".")
        && !part.ends_with(b".lock")
        && part != b"@"
        && !has(b"..")
        && !has(b"@{")
}

/// A branch, or a commit.
pub(super) fn is_plain_head(head: &[u8]) -> bool {
    let head = head.trim_ascii_end();
    match head.strip_prefix(b"ref: ") {
        Some(name) => is_refname(name) && name.starts_with(b"refs/heads/") && is_plain_text(name),
        None => is_hash(head),
    }
}

/// The branch that a `HEAD` names.
#[must_use]
pub fn branch_of(head: &[u8]) -> Option<String> {
    let name = head.trim_ascii_end().strip_prefix(b"ref: refs/heads/")?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// The id that a reference has.
#[must_use]
pub fn id_of(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii_end();
    policy::json::unhex(std::str::from_utf8(text).ok().filter(|_| is_hash(text))?)
}

/// As git writes an id.
pub(super) fn is_hash(text: &[u8]) -> bool {
    matches!(text.len(), 40 | 64) && text.iter().all(u8::is_ascii_hexdigit)
}

#[cfg(test)]
mod tests {
    use super::super::gitdir::{Kind, objection};
    use super::*;

    #[test]
    fn a_head_names_a_branch_or_a_commit() {
        for head in ["ref: refs/heads/main\n", "0123456789012345678901234567890123456789\n"] {
            assert_eq!(objection(Kind::Head, b"", head.as_bytes()), None, "{head}");
        }
        for head in [
            "",
            "x",
            "ref: refs/replace/0123",
            "ref: refs/remotes/origin/main",
            "ref: refs/tags/v1",
            "ref: refs/heads/$(id)",
            "ref: ../x",
            "ref: refs/",
            "ref: refs/heads/../../x",
            "ref: refs/heads/a b",
            "ref: refs/heads/--upload-pack=touch${IFS}x;git-upload-pack",
            "ref: refs/heads/.x",
            "ref: refs/heads/x.lock",
            "ref: refs/heads/x@{1}",
            "ref: refs/heads/x/",
            "ref: refs/heads/HEAD",
            "0123",
        ] {
            assert!(objection(Kind::Head, b"", head.as_bytes()).is_some(), "{head}");
        }
    }
    #[test]
    fn a_reference_leads_to_a_reference_and_none_replaces_objects() {
        let sum = "01234567".repeat(5);
        for text in [format!("{sum}\n"), sum.clone()] {
            assert_eq!(objection(Kind::Reference, b"", text.as_bytes()), None, "{text}");
        }
        for text in [
            "",
            "ref: refs/heads/x\n",
            "ref: hooks/pre-commit\n",
            "ref: shallow",
            "ref:commondir\n",
            " ref: info/grafts",
            "ref: refs/../config",
        ] {
            assert!(objection(Kind::Reference, b"", text.as_bytes()).is_some(), "{text}");
        }
        let list = |name: &str| {
            format!("# pack-refs with: peeled\n{sum} refs/heads/\u{e9}\n{sum} refs/tags/v1\n^{sum}\n{sum} {name}\n")
        };
        assert_eq!(objection(Kind::PackedRefs, b"", list("refs/heads/x").as_bytes()), None);
        let replaced = list(&format!("refs/replace/{sum}"));
        assert!(objection(Kind::PackedRefs, list("refs/heads/x").as_bytes(), replaced.as_bytes()).is_some());
        assert_eq!(objection(Kind::PackedRefs, replaced.as_bytes(), replaced.as_bytes()), None, "the host has it");
        let id = list("refs/tags/a8f9508");
        let said = objection(Kind::PackedRefs, list("refs/heads/x").as_bytes(), id.as_bytes());
        assert_eq!(said.as_deref(), Some(TAKEN_FOR_ID));
        assert_eq!(objection(Kind::PackedRefs, id.as_bytes(), id.as_bytes()), None, "the host has it");
        for name in
            ["config", "refs/../config", "refs/heads/a b", "refs/heads/-x", "refs/tags/a?b", "refs/heads/a//b", ""]
        {
            assert!(objection(Kind::PackedRefs, b"", list(name).as_bytes()).is_some(), "{name}");
        }
        for name in [
            "refs/heads/$(id)",
            "refs/heads/a\u{202e}b",
            "refs/notes/commits",
            "refs/bisect/bad",
            "refs/tags/v1-3-ga8f9",
            "refs/tags/ORIG_HEAD",
        ] {
            assert!(objection(Kind::PackedRefs, b"", list(name).as_bytes()).is_some(), "{name}");
            assert_eq!(objection(Kind::PackedRefs, list(name).as_bytes(), list(name).as_bytes()), None, "{name}");
        }
        let header = "# pack-refs with: peeled fully-peeled sorted \n";
        for taken in ["", header, &format!("{header}{sum} refs/tags/a\n^{sum}\n{sum} refs/tags/b\n")] {
            assert_eq!(objection(Kind::PackedRefs, b"", taken.as_bytes()), None, "{taken}");
        }
        // At the first of these git stops, and in the last it does not find `b`.
        for held in [
            format!("{sum} refs/heads/x"),
            format!("^{sum}\n"),
            format!("{sum} refs/heads/x\n^{sum}\n^{sum}\n"),
            format!("# x\n{sum} refs/heads/x\n"),
            format!("{sum} refs/heads/x\n# x\n"),
            format!("\n{sum} refs/heads/x\n"),
            format!("{header}{sum} refs/tags/b\n{sum} refs/tags/a\n"),
            format!("{header}{sum} refs/tags/a\n{} refs/tags/a\n", "12345678".repeat(5)),
            format!("{sum} refs/tags/a\n= {sum}\n"),
            format!("{sum} refs/tags/a\n{sum} refs/heads/x\n{sum} refs/tags/a\n"),
        ] {
            assert!(objection(Kind::PackedRefs, b"", held.as_bytes()).is_some(), "{held}");
        }
    }

    #[test]
    fn words_of_a_newer_git_at_the_head_of_a_list_are_left_out_and_lines_of_it_are_named() {
        let sum = "01234567".repeat(5);
        let newer = format!("# pack-refs with: peeled newer sorted \n{sum} refs/heads/x\n");
        assert_eq!(objection(Kind::PackedRefs, b"", newer.as_bytes()), None);
        assert_eq!(
            merged(b"", newer.as_bytes(), |_| None),
            format!("# pack-refs with: sorted \n{sum} refs/heads/x\n").as_bytes()
        );
        let (line, plain) = (format!("{newer}={}\n", "x".repeat(1000)), format!("{sum} refs/heads/x\n"));
        let said = objection(Kind::PackedRefs, b"", line.as_bytes()).unwrap();
        assert!(said.contains("`=xxx") && said.contains("git pack-refs --all") && said.len() < 500, "{said}");
        let said = objection(Kind::PackedRefs, line.as_bytes(), plain.as_bytes()).unwrap();
        assert!(said.contains("the host") && said.contains("lost"), "{said}");
    }

    #[test]
    fn what_tags_stand_for_is_left_to_their_objects() {
        let (one, other) = ("01".repeat(20), "23".repeat(20));
        let list = format!(
            "# pack-refs with: peeled fully-peeled sorted \n{one} refs/heads/x\n{one} refs/tags/v1\n^{other}\n"
        );
        let left = format!("# pack-refs with: sorted \n{one} refs/heads/x\n{one} refs/tags/v1\n");
        let none = |_: &[u8]| None;
        assert_eq!(merged(b"", list.as_bytes(), none), left.as_bytes());
        assert_eq!(merged(b"", left.as_bytes(), none), left.as_bytes());
        let (one, two) = ("01".repeat(20), "23".repeat(20));
        let host = format!("{one} refs/heads/main\n{one} refs/remotes/origin/main\n");
        let run = format!(
            "# pack-refs with: peeled fully-peeled sorted \n{two} refs/heads/main\n{two} refs/remotes/origin/main\n{two} refs/stash\n{two} refs/tags/a\n"
        );
        let both = format!(
            "# pack-refs with: sorted \n{two} refs/heads/main\n{one} refs/remotes/origin/main\n{two} refs/tags/a\n"
        );
        assert_eq!(merged(host.as_bytes(), run.as_bytes(), none), both.as_bytes());
        // Of what is no branch the host's lines stay, whether they were changed or removed.
        let others = ["refs/heads/git-annex", "refs/notes/commits", "refs/tags/v1", "refs/x"];
        let list = |id: &str| others.map(|name| format!("{id} {name}\n")).concat();
        let host = format!("# pack-refs with: sorted \n{}", list(&one));
        for run in [list(&two), String::new()] {
            let run = format!("# pack-refs with: sorted \n{run}");
            assert_eq!(merged(host.as_bytes(), run.as_bytes(), none), host.as_bytes());
        }
        assert_eq!(merged(b"", b"# pack-refs with: peeled\n", none), b"# pack-refs with: \n");
        assert_eq!(merged(b"", b"", none), b"");
        // What a file of the host's says is in it so, whatever an older list says, or as that says.
        let loose = |name: &[u8]| (name == b"refs/notes/commits").then(|| vec![0x23; 20]);
        let run = |id: &str| format!("{id} refs/notes/commits\n");
        for (host, run, taken) in [
            (String::new(), run(&two), run(&two)),
            (run(&one), run(&two), run(&two)),
            (run(&one), run(&one), run(&one)),
            (String::new(), run(&one), String::new()),
        ] {
            assert_eq!(merged(host.as_bytes(), run.as_bytes(), loose), taken.as_bytes(), "{host} {run}");
        }
    }
}
