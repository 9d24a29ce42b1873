//! GW-07: what a path resolves to, judged by the kernel; canaries lie outside of the root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use gate::guard::Compiled;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::{guard, text};

/// A root with work in it, a neighbour of nearly the same name, and ways out.
struct PathFixture {
    folder: tempfile::TempDir,
}

impl PathFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = fs::canonicalize(folder.path()).unwrap();
        for inner in ["work/sub", "work/.git", "work-secret", "outside"] {
            fs::create_dir_all(at.join(inner)).unwrap();
        }
        for file in [
            "work/a.csv",
            "work/sub/b.csv",
            "work/note.txt",
            "work/.git/config",
            "work/.env",
            "work-secret/c.csv",
            "outside/canary.csv",
            "outside/free.csv",
        ] {
            fs::write(at.join(file), "canary").unwrap();
        }
        symlink("../outside", at.join("work/out")).unwrap();
        symlink("../outside/canary.csv", at.join("work/link.csv")).unwrap();
        symlink(at.join("outside/canary.csv"), at.join("work/absolute.csv")).unwrap();
        symlink("sub/b.csv", at.join("work/inner.csv")).unwrap();
        symlink("note.txt", at.join("work/looks.csv")).unwrap();
        symlink(".git/config", at.join("work/config.csv")).unwrap();
        symlink("/proc/self/root", at.join("work/magic")).unwrap();
        symlink("new.csv", at.join("work/dangling.csv")).unwrap();
        symlink("loop.csv", at.join("work/loop.csv")).unwrap();
        fs::hard_link(at.join("outside/canary.csv"), at.join("work/hard.csv")).unwrap();
        mknodat(CWD, at.join("work/pipe.csv"), FileType::Fifo, Mode::from_bits_retain(0o600), 0).unwrap();
        Self { folder }
    }

    fn at(&self, path: &str) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap().join(path)
    }

    fn guard(&self, more: &str) -> Compiled {
        guard(&format!("{{ kind = \"path\", roots = [{:?}]{more} }}", self.at("work")))
    }
}

fn same(guard: &Compiled, given: &str, resolved: &Path) {
    assert_eq!(text(guard, given).map(PathBuf::from), Ok(resolved.to_owned()), "{given}");
}

/// What a check by text does: the path begins with the root and has no `..`.
fn naive(place: &PathFixture, path: &str) -> bool {
    let full = if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", place.at("work").display()) };
    full.starts_with(place.at("work").to_str().unwrap()) && !path.contains("..") && path.ends_with(".csv")
}

#[test]
fn gw_07_no_path_leads_out_of_the_root_and_work_beneath_it_passes() {
    let place = PathFixture::new();
    let read = place.guard(r#", extensions = [".csv"], hide = [".git", ".env"]"#);
    let absolute = |path: &str| place.at(path).to_str().unwrap().to_owned();
    let attacks = [
        "../outside/canary.csv".to_owned(),
        "sub/../../outside/canary.csv".to_owned(),
        "out/canary.csv".to_owned(),
        "out/../work/a.csv".to_owned(),
        "link.csv".to_owned(),
        "absolute.csv".to_owned(),
        "hard.csv".to_owned(),
        "pipe.csv".to_owned(),
        "looks.csv".to_owned(),
        "config.csv".to_owned(),
        "loop.csv".to_owned(),
        "dangling.csv".to_owned(),
        "magic/etc/passwd".to_owned(),
        "/proc/self/root/etc/passwd".to_owned(),
        absolute("work-secret/c.csv"),
        absolute("outside/canary.csv"),
        absolute("work/link.csv"),
        absolute("work/../outside/canary.csv"),
        "/etc/passwd".to_owned(),
        "/dev/null".to_owned(),
        "note.txt".to_owned(),
        ".git/config".to_owned(),
        ".env".to_owned(),
        "a.csv/".to_owned(),
        "a.csv/../note.txt".to_owned(),
        "a.csv/x.csv".to_owned(),
        "A.CSV".to_owned(),
        "a.csv\0.png".to_owned(),
        "%2e%2e/outside/canary.csv".to_owned(),
        "sub%2fb.csv".to_owned(),
        "..\\outside\\canary.csv".to_owned(),
        "\\\\host\\share\\a.csv".to_owned(),
        "//host/share/a.csv".to_owned(),
        "~/a.csv".to_owned(),
        "~root/a.csv".to_owned(),
        "C:/a.csv".to_owned(),
        "file:///etc/passwd".to_owned(),
        "a.csv.".to_owned(),
        "a.csv ".to_owned(),
        "sub./b.csv".to_owned(),
        " a.csv".to_owned(),
        "a.csv\n".to_owned(),
        "missing.csv".to_owned(),
        "sub".to_owned(),
        String::new(),
        "x/".repeat(3000),
    ];
    let passed: Vec<_> = attacks.iter().filter_map(|attack| text(&read, attack).ok().map(|to| (attack, to))).collect();
    assert!(passed.is_empty(), "{passed:#?}");
    let through = attacks.iter().filter(|attack| naive(&place, attack)).count();
    assert!(through >= 8, "the naive check lets only {through} through: it is no control");
    same(&read, "a.csv", &place.at("work/a.csv"));
    same(&read, "./sub//b.csv", &place.at("work/sub/b.csv"));
    same(&read, "sub/../a.csv", &place.at("work/a.csv"));
    same(&read, "inner.csv", &place.at("work/sub/b.csv"));
    same(&read, &absolute("work/sub/b.csv"), &place.at("work/sub/b.csv"));
}

#[test]
fn gw_07_a_write_resolves_its_folder_and_never_follows_its_last_name() {
    let place = PathFixture::new();
    let write = place.guard(r#", access = "write", extensions = [".csv"], hide = [".git"]"#);
    same(&write, "new.csv", &place.at("work/new.csv"));
    same(&write, "sub/new.csv", &place.at("work/sub/new.csv"));
    same(&write, "a.csv", &place.at("work/a.csv"));
    for attack in [
        "link.csv",
        "absolute.csv",
        "dangling.csv",
        "inner.csv",
        "hard.csv",
        "pipe.csv",
        "out/new.csv",
        "../new.csv",
        "sub/../../new.csv",
        ".git/new.csv",
        "new.txt",
        "missing/new.csv",
        "a.csv/new.csv",
        "new.csv/",
        "new.csv/.",
        "..",
        ".",
        "/",
        "magic/tmp/new.csv",
    ] {
        assert!(text(&write, attack).is_err(), "{attack}: {:?}", text(&write, attack));
    }
    assert_eq!(fs::read_to_string(place.at("outside/canary.csv")).unwrap(), "canary");
}

#[test]
fn gw_07_what_was_judged_stays_what_is_opened_when_the_name_is_exchanged() {
    let place = PathFixture::new();
    let read = place.guard("");
    let judge = read.path().unwrap();
    let opened = judge.open("a.csv").unwrap();
    fs::write(place.at("work/a.csv"), "judged").unwrap();
    fs::rename(place.at("work/a.csv"), place.at("work/moved.csv")).unwrap();
    symlink("../outside/canary.csv", place.at("work/a.csv")).unwrap();
    // The control: the name leads outside now; the descriptor does not.
    assert_eq!(fs::read_to_string(&opened.path).unwrap(), "canary");
    use std::os::fd::AsRawFd as _;
    let kept = format!("/proc/self/fd/{}", opened.place.as_raw_fd());
    assert_eq!(fs::read_to_string(kept).unwrap(), "judged");
}

#[test]
fn the_deepest_of_several_roots_counts_and_a_linked_root_is_refused() {
    let place = PathFixture::new();
    let two = guard(&format!("{{ kind = \"path\", roots = [{:?}, {:?}] }}", place.at("work"), place.at("outside")));
    same(&two, place.at("outside/free.csv").to_str().unwrap(), &place.at("outside/free.csv"));
    assert!(text(&two, place.at("work-secret/c.csv").to_str().unwrap()).is_err());
    let linked = guard(&format!("{{ kind = \"path\", roots = [{:?}] }}", place.at("work/out")));
    assert!(text(&linked, "canary.csv").unwrap_err().why.contains("leads over a link"));
    let gone = guard(&format!("{{ kind = \"path\", roots = [{:?}] }}", place.at("nowhere")));
    assert!(text(&gone, "a.csv").is_err());
}

#[test]
fn control_files_are_not_written_at_any_depth_though_they_may_be_read() {
    let place = PathFixture::new();
    let write = place.guard(", access = \"write\"");
    fs::create_dir_all(place.at("work/sub/.vscode")).unwrap();
    fs::create_dir_all(place.at("work/.git/hooks")).unwrap();
    symlink(".git", place.at("work/gitlink")).unwrap();
    for path in [
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/HEAD",
        "sub/.mcp.json",
        "sub/.vscode/tasks.json",
        ".claude",
        ".envrc",
        "sub/.git",
        ".gitattributes",
        "gitlink/config",
        "x.pth",
    ] {
        assert!(text(&write, path).is_err(), "{path}");
    }
    // What git takes for a repository without its name, what would become one, and the policy itself.
    for folder in
        ["work/lib/objects", "work/lib/refs", "work/lib/hooks", "work/half/objects", "work/half/refs", "work/linked"]
    {
        fs::create_dir_all(place.at(folder)).unwrap();
    }
    for file in ["work/lib/HEAD", "work/linked/HEAD", "work/linked/commondir", "work/p.toml"] {
        fs::write(place.at(file), "x").unwrap();
    }
    symlink("../p.toml", place.at("work/sub/q.toml")).unwrap();
    let text_of_guard = format!("{{ kind = \"path\", roots = [{:?}], access = \"write\" }}", place.at("work"));
    let (_, write) = crate::load_from(&text_of_guard, &[place.at("work/sub/q.toml")]).unwrap();
    for path in ["lib/config", "lib/hooks/post-checkout", "half/HEAD", "linked/config", "p.toml"] {
        assert!(text(&write, path).is_err(), "{path}");
    }
    same(&write, "half/config", &place.at("work/half/config"));
    same(&write, "new.csv", &place.at("work/new.csv"));
    same(&write, "sub/.gitignore", &place.at("work/sub/.gitignore"));
    same(&place.guard(""), ".git/config", &place.at("work/.git/config"));
}
