//! Where a text of a request leads.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode};
use rustix::io::Errno;

use super::failure::{at, failure};
use crate::path_text;
use crate::words::{Code, Failure};

/// Most links that one path may lead through, as in the kernel.
const MAX_LINKS: usize = 40;

/// The absolute path of a text: absolute, `~` and below it, or relative to the home folder.
pub(crate) fn absolute(text: &str, home: &Path) -> Result<PathBuf, Failure> {
    let wanted = path_text::path(text).filter(|path| !path.as_os_str().is_empty());
    let wanted = wanted.ok_or_else(|| failure(Code::Invalid, "a path is needed, without a zero byte"))?;
    let path = wanted.strip_prefix("~").map_or_else(|_| home.join(&wanted), |below| home.join(below));
    // Without `.` and doubled slashes; `..` is the kernel's, since a link may stand before it.
    Ok(path.components().filter(|part| *part != Component::CurDir).collect())
}

/// The folder and the name of what a request is about; `/`, `.` and `..` are nothing that could be made or removed.
pub(crate) fn parts(path: &Path) -> Result<(&Path, &std::ffi::OsStr), Failure> {
    let parts = path.parent().zip(path.file_name());
    parts.ok_or_else(|| failure(Code::Invalid, format!("`{}` is no name in a folder", path.display())))
}

/// Makes the folders of a path that are not there.
pub(crate) fn make_folders(path: &Path) -> Result<(), Failure> {
    let mut missing = Vec::new();
    let mut folder = Some(path);
    while let Some(one) = folder {
        match rustix::fs::stat(one) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => break,
            Ok(_) => return Err(at("making the folder", one)(Errno::NOTDIR)),
            Err(Errno::NOENT) => missing.push(one),
            Err(errno) => return Err(at("looking at", one)(errno)),
        }
        folder = one.parent();
    }
    for one in missing.into_iter().rev() {
        match rustix::fs::mkdir(one, Mode::from_raw_mode(0o755)) {
            // Somebody else made it meanwhile; if it is no folder, the next call tells.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(at("making the folder", one)(errno)),
        }
    }
    Ok(())
}

/// Where a path leads when the links at its end are followed; the last part need not be there.
pub(crate) fn followed(path: &Path) -> Result<PathBuf, Failure> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                let target = rustix::fs::readlink(&path, Vec::new()).map_err(at("following", &path))?;
                let target =
                    PathBuf::from(<OsString as std::os::unix::ffi::OsStringExt>::from_vec(target.into_bytes()));
                path = path.parent().unwrap_or(Path::new("/")).join(target);
            }
            Ok(_) | Err(Errno::NOENT) => return Ok(path),
            Err(errno) => return Err(at("looking at", &path)(errno)),
        }
    }
    Err(at("following", &path)(Errno::LOOP))
}
