//! An image of Debian packages: apt brings and verifies them, they are judged and unpacked as layers are, and no script of
//! theirs runs. What scripts would have made and nothing works without is made here.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir, errno_of};

use crate::apt::{Apt, packages};
use crate::decode::Budget;
use crate::error::ImageError;
use crate::made::{files, folders, write};
use crate::source::Section;
use crate::store::{Listed, Store};
use crate::unpack::{Form, MAX_UNPACKED, UnpackNotes, Unpacker};

/// Most packages that are asked for.
const MAX_ASKED: usize = 1000;
/// Links that scripts of packages make, where the target is there and nothing has the name.
const LINKS: [(&str, &str); 10] = [
    ("usr/bin/awk", "mawk"),
    ("usr/bin/nawk", "mawk"),
    ("usr/bin/which", "which.debianutils"),
    ("usr/bin/pager", "less"),
    ("usr/bin/editor", "nano"),
    ("usr/bin/vi", "vim.tiny"),
    ("usr/bin/nc", "nc.openbsd"),
    ("usr/bin/cc", "gcc"),
    ("usr/bin/c++", "g++"),
    ("usr/bin/c99", "c99-gcc"),
];
/// Copies that scripts of packages make.
const COPIES: [(&str, &str); 2] =
    [("usr/share/base-passwd/passwd.master", "etc/passwd"), ("usr/share/base-passwd/group.master", "etc/group")];
/// Certificates, each in a file; programs read them in one.
const CERTIFICATES: &str = "usr/share/ca-certificates/mozilla";
const BUNDLE: &str = "ca-certificates.crt";
/// No file that is copied is larger.
const MAX_COPIED: u64 = 1 << 20;

/// What is wanted of Debian.
#[derive(Clone, Debug, Default)]
pub struct Debian {
    /// Names of packages.
    pub packages: Vec<String>,
    /// A suite that the host's apt has sources of; all of them otherwise.
    pub suite: Option<String>,
    /// The most bytes; [`MAX_UNPACKED`] unless said.
    pub limit: Option<u64>,
}

impl Store {
    /// Makes an image of packages, of what they need, and of what Debian calls essential. Signatures are verified by the host's
    /// apt, with its sources and keys.
    ///
    /// # Errors
    /// [`ImageError::Packages`]: there is no apt, or it cannot bring them; [`ImageError::TooLarge`].
    pub fn debian(&self, name: &str, wanted: &Debian) -> Result<Listed, ImageError> {
        check(wanted)?;
        self.make(name, |stage| {
            let archives = Apt::new(&stage.dir, &stage.path, wanted.suite.as_deref())?.download(&wanted.packages)?;
            let failed = |errno| ImageError::Io { path: archives.clone(), errno };
            folders(&stage.root).and_then(|()| merge(&stage.root)).map_err(failed)?;
            let all = Dir::open(&archives).map_err(failed)?;
            let told = unpacked(&all, &archives, &stage.root, wanted.limit)?;
            // What apt brought is unpacked now, and no part of the image.
            stage.dir.remove_tree(crate::apt::FOLDER).map_err(failed)?;
            finish(&stage.root).and_then(|()| files(&stage.root)).map_err(failed)?;
            Ok(told)
        })
    }
}

/// Puts all packages of a folder over each other.
fn unpacked(all: &Dir, path: &Path, root: &Dir, limit: Option<u64>) -> Result<UnpackNotes, ImageError> {
    let failed = |errno| ImageError::Io { path: path.to_owned(), errno };
    let budget = Budget::new(limit.unwrap_or(MAX_UNPACKED));
    let mut unpacker = Unpacker::new(path, &budget, root, Form::Package);
    for package in all.names().map_err(failed)? {
        if Path::new(&package).extension().is_none_or(|extension| extension != "deb") {
            continue;
        }
        unpacker.origin = path.join(&package);
        let file = all.open_file(&package, OFlags::RDONLY, Mode::empty()).map_err(failed)?;
        let wrong = |why| ImageError::NotAnImage { path: Path::new(&package).to_owned(), why };
        let (part, section) = data_of(&file).map_err(wrong)?;
        unpacker.archive(&part, section)?;
    }
    Ok(unpacker.told)
}

/// Names are names: apt reads patterns, versions and options in the same place.
fn check(wanted: &Debian) -> Result<(), ImageError> {
    let letters = |text: &str, more: &[u8]| {
        text.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || more.contains(&b))
    };
    let is_package = |name: &str| name.len() > 1 && letters(name, b"+-.") && !name.ends_with('-');
    if wanted.packages.is_empty() || wanted.packages.len() > MAX_ASKED {
        let why = format!("1 to {MAX_ASKED} packages can be asked for, and these are {}", wanted.packages.len());
        return Err(packages(why, "name packages, as `--packages python3,git`"));
    }
    if let Some(wrong) = wanted.packages.iter().find(|name| !is_package(name)) {
        return Err(packages(
            format!("`{wrong}` is no name of a package"),
            "name packages, as `--packages python3,git`",
        ));
    }
    match &wanted.suite {
        Some(suite) if !letters(suite, b"-.") => {
            Err(packages(format!("`{suite}` is no name of a suite"), "name a suite, as `--suite bookworm`"))
        }
        Some(_) | None => Ok(()),
    }
}

/// `/bin` and such as links into `/usr`, as every Debian since 12 has them.
fn merge(root: &Dir) -> Result<(), Errno> {
    let usr = root.enter("usr", Cross::No)?;
    for name in ["bin", "lib", "lib64", "sbin"] {
        usr.make(name, Mode::RWXU)?;
        rustix::fs::fchmod(usr.enter(name, Cross::No)?, Mode::from_raw_mode(0o755))?;
        rustix::fs::symlinkat(format!("usr/{name}"), root, name)?;
    }
    Ok(())
}

/// Where the files of a package lie: an archive of the kind `ar` with `debian-binary`, `control.tar` and `data.tar`.
fn data_of(file: &File) -> Result<(String, Section<'_>), String> {
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, 0).map_err(|error| error.to_string())?;
    if magic != *b"!<arch>\n" {
        return Err("it is no Debian package".to_owned());
    }
    let mut at = 8_u64;
    // Three members are usual, and few more are known.
    for number in 0..16 {
        let mut header = [0; 60];
        file.read_exact_at(&mut header, at).map_err(|_short| "it has no `data.tar`".to_owned())?;
        let text = |from: usize, to: usize| {
            let field = String::from_utf8_lossy(header.get(from..to).unwrap_or_default());
            field.trim_end().trim_end_matches('/').to_owned()
        };
        let (name, size) = (text(0, 16), text(48, 58).parse::<u64>());
        let size = size.map_err(|_unread| format!("the size of its member `{name}` cannot be read"))?;
        at = at.saturating_add(60);
        let end = at.checked_add(size).filter(|end| *end <= length && header.ends_with(b"`\n"));
        let end = end.ok_or_else(|| format!("its member `{name}` is cut off"))?;
        if number == 0 {
            let mut version = String::new();
            let read = Section { file, at, left: size.min(16) }.read_to_string(&mut version);
            if name != "debian-binary" || read.is_err() || !version.starts_with("2.") {
                return Err("it is no Debian package of version 2".to_owned());
            }
        }
        if name == "data.tar" || name.starts_with("data.tar.") {
            return Ok((name, Section { file, at, left: size }));
        }
        at = end.saturating_add(size % 2);
    }
    Err("it has no `data.tar`".to_owned())
}

/// What scripts would have made. A name that is there stays as it is.
fn finish(root: &Dir) -> Result<(), Errno> {
    let kind = |path: &str| {
        let (above, name) = path.rsplit_once('/').unwrap_or((".", path));
        match root.enter(above, Cross::No) {
            Err(Errno::NOENT) => Ok(None),
            folder => folder?.kind(name),
        }
    };
    for (link, target) in LINKS {
        let beside = link.rsplit_once('/').map_or("", |(above, _)| above);
        if kind(link)?.is_none() && kind(&format!("{beside}/{target}"))?.is_some() {
            rustix::fs::symlinkat(target, root, link)?;
        }
    }
    for (from, to) in COPIES {
        if kind(to)?.is_none() && kind(from)? == Some(FileType::RegularFile) {
            write(root, to, &root.read(from, MAX_COPIED)?)?;
        }
    }
    for (link, target) in [("var/run", "/run"), ("var/lock", "/run/lock")] {
        if kind(link)?.is_none() {
            rustix::fs::symlinkat(target, root, link)?;
        }
    }
    certificates(root)
}

fn certificates(root: &Dir) -> Result<(), Errno> {
    let from = match root.enter(CERTIFICATES, Cross::No) {
        Err(Errno::NOENT) => return Ok(()),
        folder => folder?,
    };
    let mut to = root.enter("etc", Cross::No)?;
    for name in ["ssl", "certs"] {
        if to.make(name, Mode::RWXU)? {
            rustix::fs::fchmod(to.enter(name, Cross::No)?, Mode::from_raw_mode(0o755))?;
        }
        to = to.enter(name, Cross::No)?;
    }
    if to.kind(BUNDLE)?.is_some() {
        return Ok(());
    }
    let mut bundle = Vec::new();
    for name in from.names()? {
        let file = from.open_file(&name, OFlags::RDONLY, Mode::empty())?;
        file.take(MAX_COPIED).read_to_end(&mut bundle).map_err(|error| errno_of(&error))?;
        bundle.push(b'\n');
    }
    write(&to, BUNDLE, &bundle)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// `./lib/packed` in an archive packed with xz.
    const XZ: [&str; 3] = [
        "fd377a585a000004e6d6b4460200210116000000742fe5a3e007ff00465d00170bca07318d971470f558ea17171d670f6d25",
        "9ccde4be6ba22cf712e1556c592c86fa205c281fc4d518f7415ef3978c72e875f95b7ec013e5a2e5b95e7b93f71d7c71d800",
        "00000000fde919b7e3e577700001628010000000819d9667b1c467fb020000000004595a",
    ];

    fn xz() -> Vec<u8> {
        let digits: Vec<u8> =
            XZ.concat().chars().map(|digit| digit.to_digit(16).unwrap().try_into().unwrap()).collect();
        digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]).collect()
    }

    fn tar(entries: &[(&str, u8, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, kind, rest) in entries {
            let mut header = tar::Header::new_gnu();
            let old = header.as_old_mut();
            old.name[..name.len()].copy_from_slice(name.as_bytes());
            old.linkflag = [*kind];
            let body = if *kind == b'0' { rest.as_bytes() } else { b"" };
            if body.is_empty() {
                old.linkname[..rest.len()].copy_from_slice(rest.as_bytes());
            }
            header.set_mode(0o755);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(body.len() as u64);
            header.set_cksum();
            out.extend(header.as_bytes());
            out.extend(body);
            out.extend(vec![0; body.len().wrapping_neg() % 512]);
        }
        out.extend([0; 1024]);
        out
    }

    fn ar(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = b"!<arch>\n".to_vec();
        for (name, body) in members {
            out.extend(format!("{name:<16}0           0     0     100644  {:<10}`\n", body.len()).as_bytes());
            out.extend(*body);
            out.extend(vec![b'\n'; body.len() % 2]);
        }
        out
    }

    fn deb(name: &str, data: &[u8]) -> Vec<u8> {
        ar(&[("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), (name, data)])
    }

    fn made(packages: &[(&str, Vec<u8>)]) -> (tempfile::TempDir, Result<UnpackNotes, ImageError>) {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        for folder in ["root", "debs"] {
            fs::create_dir(real.join(folder)).unwrap();
        }
        for (name, bytes) in packages {
            fs::write(real.join("debs").join(name), bytes).unwrap();
        }
        let (root, debs) = (Dir::open(&real.join("root")).unwrap(), real.join("debs"));
        folders(&root).and_then(|()| merge(&root)).unwrap();
        let done = unpacked(&Dir::open(&debs).unwrap(), &debs, &root, None);
        finish(&root).and_then(|()| files(&root)).unwrap();
        (place, done)
    }

    #[test]
    fn packages_are_unpacked_below_usr_and_what_scripts_would_do_is_there() {
        let data = tar(&[
            ("./", b'5', ""),
            ("./bin/", b'5', ""),
            ("./bin/mawk", b'0', "awk"),
            ("./bin/again", b'1', "./bin/mawk"),
            ("./sbin/link", b'2', "../bin/mawk"),
            ("./usr/share/base-passwd/passwd.master", b'0', "root:*:0:0:root:/root:/bin/bash\n"),
            ("./usr/share/ca-certificates/mozilla/a.crt", b'0', "A"),
            ("./usr/share/ca-certificates/mozilla/b.crt", b'0', "B"),
        ]);
        let zstd = ruzstd::encoding::compress_to_vec(&data[..], ruzstd::encoding::CompressionLevel::Fastest);
        let others = deb("data.tar", &tar(&[("./etc/other", b'0', "x")]));
        let (place, done) =
            made(&[("a.deb", deb("data.tar.zst", &zstd)), ("b.deb", deb("data.tar.xz/", &xz())), ("c.deb", others)]);
        assert_eq!(done.unwrap(), UnpackNotes::default());
        let read = |name: &str| fs::read_to_string(place.path().join("root").join(name)).unwrap();
        assert_eq!((read("usr/bin/mawk").as_str(), read("usr/bin/awk").as_str()), ("awk", "awk"));
        assert_eq!((read("bin/again").as_str(), read("usr/sbin/link").as_str()), ("awk", "awk"));
        assert_eq!(read("usr/lib/packed"), "xz");
        assert_eq!(
            (read("etc/passwd").as_str(), read("etc/other").as_str()),
            ("root:*:0:0:root:/root:/bin/bash\n", "x")
        );
        assert_eq!(read("etc/ssl/certs/ca-certificates.crt"), "A\nB\n");
        assert_eq!(fs::read_link(place.path().join("root/lib")).unwrap(), Path::new("usr/lib"));
    }

    #[test]
    fn a_package_is_judged_as_a_layer_is() {
        let entry = |name: &str, kind: u8, rest: &str| deb("data.tar", &tar(&[(name, kind, rest)]));
        for (bytes, expected) in [
            (entry("./../out", b'0', "x"), "its name has `..`"),
            (entry("/etc/out", b'0', "x"), "its name is absolute"),
            (entry("./dev/sda", b'4', ""), "it is a device"),
            (entry("./usr/.wh.bin", b'0', "x"), "no layer can hold"),
            (deb("data.tar", &tar(&[("./l", b'2', "/"), ("./l/x", b'0', "x")])), "stands in its way"),
            (b"no".to_vec(), ""),
            (ar(&[("data.tar", b"")]), "version 2"),
            (ar(&[("debian-binary", b"3.0\n")]), "version 2"),
            (ar(&[("debian-binary", b"2.0\n")]), "no `data.tar`"),
            (deb("data.tar", &[])[..150].to_vec(), "no `data.tar`"),
            (deb("data.tar.xz", &xz()[..90]), "cannot be read"),
        ] {
            let (_place, done) = made(&[("a.deb", bytes)]);
            let said = done.unwrap_err().fault().to_string();
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }

    #[test]
    fn what_is_no_name_of_a_package_never_reaches_apt() {
        let ask = |name: &str, suite: Option<&str>| {
            check(&Debian { packages: vec![name.to_owned()], suite: suite.map(str::to_owned), limit: None })
        };
        for name in ["python3", "g++", "libc6-dev", "python3.11", "0ad"] {
            assert_eq!(ask(name, Some("bookworm")), Ok(()), "{name}");
        }
        for name in
            ["", "-y", "?all", "a", "git-", "git=1", "git/sid", "git:arm64", "Git", "./git.deb", "git*", "~n.", "a b"]
        {
            assert!(ask(name, None).is_err(), "{name}");
        }
        for suite in ["", "-x", "a b", "a)|(b", "a::b", "A"] {
            assert!(ask("git", Some(suite)).is_err(), "{suite}");
        }
    }
}
