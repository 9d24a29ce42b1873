//! What COPY puts inside: the archive that a client sent, judged member by member and written anew, with the names that its files
//! get inside. Whoever sent it may have written it as he likes.
//!
//! Promises: what is written has no name and no hard link outside of where it is unpacked, nothing but files, folders and links,
//! and no more than the bounds. Links are text: where they lead is the sandbox's own business.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom, Write};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use globset::{GlobBuilder, GlobMatcher};
use sandbox::members::{Kind, Member, Members};
use tar::{Builder, EntryType, Header};

use super::steps::Copy;

/// Most bytes that an upload may unpack to, and most members.
const MAX_UNPACKED: u64 = 2 << 30;
const MAX_MEMBERS: u64 = 200_000;
/// Deepest member, and longest name in bytes.
const MAX_DEPTH: usize = 64;
const MAX_NAME: usize = 4096;
/// What a packed archive begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// An archive as a client sent it.
pub(crate) struct Archive(File);

impl Archive {
    pub(crate) const fn new(file: File) -> Self {
        Self(file)
    }

    /// Its members, from the first one on.
    fn members(&mut self) -> io::Result<Members<BufReader<Box<dyn Read + '_>>>> {
        let mut begin = [0; 2];
        self.0.seek(SeekFrom::Start(0))?;
        let count = self.0.read(&mut begin)?;
        self.0.seek(SeekFrom::Start(0))?;
        let packed = count == begin.len() && begin == GZIP;
        let plain: Box<dyn Read> =
            if packed { Box::new(MultiGzDecoder::new(BufReader::new(&self.0))) } else { Box::new(&self.0) };
        Ok(Members::new(BufReader::new(plain)))
    }
}

/// A copy whose archive was judged.
pub(crate) struct Copying {
    pattern: Pattern,
    mode: Option<u32>,
    /// What the pattern matched: whether each is a folder.
    matched: BTreeMap<Vec<String>, bool>,
}

/// What a COPY names, part by part.
struct Pattern(Vec<GlobMatcher>);

impl Pattern {
    fn new(source: &str) -> Result<Self, String> {
        let parts = source.split('/').filter(|part| !part.is_empty() && *part != ".");
        let glob = |part: &str| {
            let built = GlobBuilder::new(part).literal_separator(true).backslash_escape(true).build();
            built.map(|glob| glob.compile_matcher()).map_err(|error| format!("`{source}`: {}", error.kind()))
        };
        parts.map(glob).collect::<Result<_, _>>().map(Self)
    }

    fn matches(&self, path: &[String]) -> bool {
        self.0.iter().zip(path).all(|(part, name)| part.is_match(Path::new(name)))
    }
}

/// The parts of a member's name.
fn parts(name: &[u8]) -> Result<Vec<String>, String> {
    let text = std::str::from_utf8(name).map_err(|_bytes| "its name is no UTF-8".to_owned())?;
    if text.len() > MAX_NAME || text.contains('\0') {
        return Err("its name is too long, or has a zero in it".to_owned());
    }
    if text.starts_with('/') {
        return Err("its name is absolute".to_owned());
    }
    let parts: Vec<String> =
        text.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect();
    if parts.iter().any(|part| part == "..") {
        return Err("its name has `..` in it".to_owned());
    }
    if parts.len() > MAX_DEPTH { Err(format!("it lies more than {MAX_DEPTH} folders deep")) } else { Ok(parts) }
}

fn told(member: &Member, why: &str) -> String {
    let name = String::from_utf8_lossy(member.name.get(..200).unwrap_or(&member.name)).into_owned();
    format!("{} in the upload: {why}", policy::diagnostic::quote(&name))
}

fn unreadable(error: &io::Error) -> String {
    format!("the upload is no tar archive: {error}")
}

impl Copying {
    /// Judges an archive for a copy; in words why it is refused.
    pub(crate) fn judge(copy: &Copy, archive: &mut Archive) -> Result<Self, String> {
        let pattern = Pattern::new(&copy.source)?;
        let mut copying = Self { pattern, mode: copy.mode, matched: BTreeMap::new() };
        let (mut bytes, mut count) = (0_u64, 0_u64);
        let mut members = archive.members().map_err(|error| unreadable(&error))?;
        while let Some(member) = members.next_member().map_err(|error| unreadable(&error))? {
            count = count.saturating_add(1);
            bytes = bytes.saturating_add(member.size);
            if count > MAX_MEMBERS || bytes > MAX_UNPACKED {
                let most = MAX_UNPACKED >> 30;
                return Err(format!(
                    "the upload has more than {MAX_MEMBERS} members, or unpacks to more than {most} GiB"
                ));
            }
            copying.one(&member).map_err(|why| told(&member, &why))?;
        }
        if copying.matched.is_empty() {
            return Err(format!("nothing in the upload is called {}", policy::diagnostic::quote(&copy.source)));
        }
        Ok(copying)
    }

    fn one(&mut self, member: &Member) -> Result<(), String> {
        let path = parts(&member.name)?;
        let named = self.pattern.0.len();
        let is_folder = member.kind == Kind::Folder;
        if let Kind::Other(what) = &member.kind {
            return Err(format!("it is {what}: only files, folders and links are copied"));
        }
        if !self.pattern.matches(&path) || (path.len() < named && !is_folder) {
            return Err("the step does not name it".to_owned());
        }
        if let Kind::Link(target) = &member.kind {
            // What it is another name of must have been judged, too.
            let target = parts(target)?;
            if target.len() < named || !self.pattern.matches(&target) {
                return Err("it is another name of something that the step does not name".to_owned());
            }
        }
        if let Some(top) = path.get(..named) {
            let below = path.len() > named;
            let was = self.matched.entry(top.to_vec()).or_insert(is_folder || below);
            if below && !*was {
                return Err("something above it is no folder".to_owned());
            }
        }
        Ok(())
    }

    /// Whether it is one file, which may get another name.
    pub(crate) fn is_one_file(&self) -> bool {
        self.matched.len() == 1 && self.matched.values().all(|folder| !folder)
    }

    /// The name that its one file has.
    pub(crate) fn name(&self) -> String {
        self.matched.keys().next().and_then(|path| path.last()).cloned().unwrap_or_default()
    }

    /// What a member is called inside, below the folder that is copied to; none of a folder above what is copied.
    fn called(&self, path: &[String], called: &str) -> Option<Vec<String>> {
        let (top, below) = path.split_at_checked(self.pattern.0.len())?;
        if self.matched.get(top) == Some(&true) {
            return Some(below.to_vec());
        }
        let own = if self.is_one_file() { called.to_owned() } else { top.last()?.clone() };
        Some(vec![own])
    }

    /// Writes it as a tar stream whose names begin at the folder that is copied to; `called`: the name of its one file.
    pub(crate) fn write(&self, archive: &mut Archive, called: &str, to: &mut impl Write) -> Result<(), String> {
        let failed = |error: io::Error| error.to_string();
        let mut builder = Builder::new(to);
        let mut members = archive.members().map_err(|error| unreadable(&error))?;
        while let Some(member) = members.next_member().map_err(|error| unreadable(&error))? {
            let path = parts(&member.name)?;
            // The folder that is copied to is there already.
            let Some(name) = self.called(&path, called).filter(|name| !name.is_empty()) else { continue };
            let mut header = Header::new_gnu();
            header.set_mtime(u64::try_from(member.modified).unwrap_or(0));
            let mode = self.mode.unwrap_or(member.mode & 0o777);
            let name = name.join("/");
            match &member.kind {
                Kind::File => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_mode(mode);
                    header.set_size(member.size);
                    builder.append_data(&mut header, &name, (&mut members).take(member.size)).map_err(failed)?;
                }
                Kind::Folder => {
                    header.set_entry_type(EntryType::Directory);
                    // Whoever made it enters it.
                    header.set_mode(mode | 0o700);
                    header.set_size(0);
                    builder.append_data(&mut header, &name, io::empty()).map_err(failed)?;
                }
                Kind::Symlink(target) => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_mode(0o777);
                    header.set_size(0);
                    let target =
                        std::str::from_utf8(target).map_err(|_bytes| told(&member, "its target is no UTF-8"))?;
                    builder.append_link(&mut header, &name, target).map_err(failed)?;
                }
                Kind::Link(target) => {
                    header.set_entry_type(EntryType::Link);
                    header.set_mode(mode);
                    header.set_size(0);
                    let target = self.called(&parts(target)?, called).unwrap_or_default().join("/");
                    builder.append_link(&mut header, &name, &target).map_err(failed)?;
                }
                Kind::Other(_) => {}
            }
        }
        builder.into_inner().and_then(|to| to.flush()).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kind, name, and content or target.
    type Row<'a> = (EntryType, &'a str, &'a str);

    fn archive(rows: &[Row<'_>], packed: bool) -> Archive {
        let mut builder = Builder::new(Vec::new());
        for (kind, name, text) in rows {
            let mut header = Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o4644);
            // As it is: `tar` would refuse to write some of these names.
            let bytes = name.as_bytes();
            header.as_gnu_mut().unwrap().name[..bytes.len()].copy_from_slice(bytes);
            if kind.is_symlink() || kind.is_hard_link() {
                header.as_gnu_mut().unwrap().linkname[..text.len()].copy_from_slice(text.as_bytes());
                header.set_size(0);
            } else {
                header.set_size(u64::try_from(text.len()).unwrap());
            }
            header.set_cksum();
            let content: &[u8] = if kind.is_file() { text.as_bytes() } else { b"" };
            builder.append(&header, content).unwrap();
        }
        let mut bytes = builder.into_inner().unwrap();
        if packed {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(&bytes).unwrap();
            bytes = gzip.finish().unwrap();
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        Archive::new(file)
    }

    fn copy(source: &str, mode: Option<u32>) -> Copy {
        Copy { source: source.to_owned(), to: "/home/user".to_owned(), mode, hash: String::new() }
    }

    /// Names, modes and contents of what comes inside.
    fn copied(source: &str, rows: &[Row<'_>], called: &str) -> Result<Vec<(String, u32, String)>, String> {
        let mut archive = archive(rows, rows.len().is_multiple_of(2));
        let copying = Copying::judge(&copy(source, None), &mut archive)?;
        let mut bytes = Vec::new();
        copying.write(&mut archive, called, &mut bytes)?;
        let mut members = Members::new(bytes.as_slice());
        let mut found = Vec::new();
        while let Some(member) = members.next_member().unwrap() {
            let mut text = String::new();
            match &member.kind {
                Kind::Symlink(target) | Kind::Link(target) => text = String::from_utf8_lossy(target).into_owned(),
                Kind::File => drop(members.read_to_string(&mut text).unwrap()),
                Kind::Folder | Kind::Other(_) => {}
            }
            found.push((String::from_utf8(member.name).unwrap(), member.mode, text));
        }
        Ok(found)
    }

    const FILE: EntryType = EntryType::Regular;
    const DIR: EntryType = EntryType::Directory;

    fn names(found: Result<Vec<(String, u32, String)>, String>) -> Vec<String> {
        found.unwrap().into_iter().map(|(name, ..)| name.trim_end_matches('/').to_owned()).collect()
    }

    #[test]
    fn files_get_the_names_that_docker_gives_them() {
        let one = copied("src/app.py", &[(FILE, "src/app.py", "1")], "main.py").unwrap();
        assert_eq!(one, [("main.py".to_owned(), 0o644, "1".to_owned())], "set-user-id is gone, too");
        let tree = [(DIR, "src", ""), (FILE, "./src/a", "1"), (DIR, "src/in", ""), (FILE, "src/in/b", "2")];
        assert_eq!(names(copied("src/", &tree, "x")), ["a", "in", "in/b"]);
        assert_eq!(names(copied(".", &tree, "x")), ["src", "src/a", "src/in", "src/in/b"]);
        assert_eq!(names(copied("src/*", &tree[1..], "x")), ["a", "b"], "of folders, what they hold");
        assert_eq!(names(copied("*.py", &[(FILE, "a.py", ""), (FILE, "b.py", "")], "x")), ["a.py", "b.py"]);
        let links = [(FILE, "d/a", "1"), (EntryType::Link, "d/b", "d/a"), (EntryType::Symlink, "d/c", "../../x")];
        let found = copied("d", &links, "x").unwrap();
        assert_eq!(found.iter().map(|row| row.2.as_str()).collect::<Vec<_>>(), ["1", "a", "../../x"]);
    }

    #[test]
    fn an_archive_that_leads_elsewhere_is_refused() {
        for (source, rows) in [
            (".", &[(FILE, "../x", "1")][..]),
            (".", &[(FILE, "/etc/cron.d/x", "1")]),
            (".", &[(FILE, "a/../../x", "1")]),
            (".", &[(EntryType::Link, "x", "../../etc/shadow")]),
            ("a", &[(FILE, "a/x", "1"), (EntryType::Link, "a/y", "b/secret")]),
            (".", &[(EntryType::Char, "null", "")]),
            (".", &[(EntryType::Fifo, "pipe", "")]),
            // Files that the step does not name would come in beside it.
            ("app.py", &[(FILE, "app.py", "1"), (FILE, ".bashrc", "1")]),
            ("a/*.py", &[(FILE, "a/x.sh", "1")]),
            ("a", &[(FILE, "a", "1"), (FILE, "a/b", "1")]),
            ("app.py", &[]),
        ] {
            let refused = copied(source, rows, "x");
            assert!(refused.is_err(), "{source}: {refused:?}");
        }
        let deep = "d/".repeat(49) + "x";
        assert!(copied(".", &[(FILE, &deep, "1")], "x").is_ok());
        let mut garbage = tempfile::tempfile().unwrap();
        garbage.write_all(&[7; 2000]).unwrap();
        assert!(Copying::judge(&copy(".", None), &mut Archive::new(garbage)).is_err());
    }

    #[test]
    fn what_unpacks_to_too_much_is_refused_without_unpacking_it() {
        let mut header = Header::new_gnu();
        header.set_entry_type(FILE);
        header.set_path("big").unwrap();
        header.set_size(MAX_UNPACKED + 1);
        header.set_cksum();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(header.as_bytes()).unwrap();
        let refused = Copying::judge(&copy(".", None), &mut Archive::new(file)).map(drop).unwrap_err();
        assert!(refused.contains("2 GiB"), "{refused}");
    }

    #[test]
    fn a_mode_of_the_step_is_that_of_all_of_it() {
        let mut archive = archive(&[(DIR, "d", ""), (DIR, "d/e", ""), (FILE, "d/e/f", "1")], false);
        let copying = Copying::judge(&copy("d", Some(0o640)), &mut archive).unwrap();
        let mut bytes = Vec::new();
        copying.write(&mut archive, "x", &mut bytes).unwrap();
        let mut members = Members::new(bytes.as_slice());
        let mut modes = Vec::new();
        while let Some(member) = members.next_member().unwrap() {
            modes.push(member.mode & 0o7777);
        }
        assert_eq!(modes, [0o740, 0o640]);
    }
}
