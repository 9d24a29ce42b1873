//! File systems that are mounted below a workspace or a grant: a layer and a copy show the tree without them, which is
//! said and not left to be found out.

use std::cell::OnceCell;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use policy::Policy;
use policy::value::{Tier, WorkspaceMode};

use crate::fault::show_path;

/// Options by which an overlay is made of folders.
const LAYERS: [&str; 5] = ["lowerdir", "lowerdir+", "datadir", "datadir+", "upperdir"];
/// Folders that one may show, with those of overlays of overlays.
const MAX_LAYERS: usize = 256;

/// What is mounted on this host, read once and only when somebody asks. Nothing where this kernel's list cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Mounts(OnceCell<Vec<sys::proc::Mount>>);

impl Mounts {
    fn all(&self) -> impl Iterator<Item = &sys::proc::Mount> {
        let read = || sys::proc::Process::own().and_then(|own| own.mounts()).unwrap_or_default();
        self.0.get_or_init(read).iter()
    }

    /// Whether a folder shows a path that has no link in it, also by another mount of the same file system (`mount --bind`), or as a
    /// layer of an overlay.
    pub(super) fn shows(&self, folder: &Path, path: &Path) -> bool {
        let mut folders = vec![folder.to_owned()];
        let mut at = 0_usize;
        while let Some(next) = folders.get(at).filter(|_| at < MAX_LAYERS) {
            if self.shows_itself(next, path) {
                return true;
            }
            let layers = self.layers(next).into_iter().filter(|layer| !folders.contains(layer)).collect::<Vec<_>>();
            folders.extend(layers);
            at = at.saturating_add(1);
        }
        // Of so many nobody can say.
        folders.len() > MAX_LAYERS
    }

    /// The folders of which overlays at, above and below this folder are made, as far as this one shows them.
    fn layers(&self, folder: &Path) -> Vec<PathBuf> {
        let mut layers = Vec::new();
        for mount in self.all().filter(|mount| mount.kind == "overlay") {
            let point = Path::new(&mount.point);
            let below = match (folder.strip_prefix(point), point.starts_with(folder)) {
                (Ok(below), _) => below,
                (Err(_), true) => Path::new(""),
                (Err(_), false) => continue,
            };
            let top = Path::new(mount.root.trim_start_matches('/')).join(below);
            let values = LAYERS.iter().flat_map(|option| mount.super_values(option));
            let of = values.flat_map(|value| parted(&value));
            // What is not there was mounted elsewhere: of a container, by its host.
            layers.extend(of.filter_map(|layer| layer.join(&top).canonicalize().ok()));
        }
        layers
    }

    fn shows_itself(&self, folder: &Path, path: &Path) -> bool {
        let Some((device, at)) = self.location(path) else { return path.starts_with(folder) };
        let below = self.below(folder).into_iter().map(|point| folder.join(point));
        let mut shown = [folder.to_owned()].into_iter().chain(below).filter_map(|place| self.location(&place));
        path.starts_with(folder) || shown.any(|(other, top)| other == device && at.starts_with(top))
    }

    /// Other places in which the same is to be seen, or a part of it, with where that is below the path: the same file system is mounted
    /// there too (`mount --bind`). A mount that covers one of them is not known here.
    pub(crate) fn elsewhere(&self, path: &Path) -> Vec<(PathBuf, PathBuf)> {
        let Some((device, at)) = self.location(path) else { return Vec::new() };
        let same = self.all().filter(|mount| mount.device == device);
        let seen = same.filter_map(|mount| {
            let (root, point) = (Path::new(&mount.root), Path::new(&mount.point));
            let above = at.strip_prefix(root).ok().map(|below| (joined(point, below), PathBuf::new()));
            above.or_else(|| Some((point.to_owned(), root.strip_prefix(&at).ok()?.to_owned())))
        });
        seen.filter(|(place, _)| !place.starts_with(path)).collect()
    }

    /// Where in a folder the same is to be seen as at a path out of it, which has no link in it: the same file system is mounted there
    /// too, or the folder is of what is seen there.
    pub(crate) fn within(&self, folder: &Path, path: &Path) -> Option<PathBuf> {
        let (device, at) = self.location(path)?;
        let places = self.below(folder).into_iter().map(|point| folder.join(point)).chain([folder.to_owned()]);
        places.into_iter().find_map(|place| {
            let (_, top) = self.location(&place).filter(|(other, _)| *other == device)?;
            at.strip_prefix(top).ok().map(|below| joined(&place, below))
        })
    }

    /// On which device a path is, and where on it.
    fn location(&self, path: &Path) -> Option<((u32, u32), PathBuf)> {
        let path = PathBuf::from(sys::proc::shown(path.as_os_str().as_bytes()));
        let over = self.all().filter_map(|mount| Some((mount, path.strip_prefix(&mount.point).ok()?)));
        // Of several in one place the last one is on top.
        let (mount, rest) = over.max_by_key(|(mount, _)| Path::new(&mount.point).components().count())?;
        Some((mount.device, joined(Path::new(&mount.root), rest)))
    }

    /// Where something is mounted below a folder, relative to it.
    pub(super) fn below(&self, root: &Path) -> Vec<PathBuf> {
        let root = PathBuf::from(sys::proc::shown(root.as_os_str().as_bytes()));
        let points = self.all();
        let points = points.filter_map(|mount| Path::new(&mount.point).strip_prefix(&root).ok());
        let mut points: Vec<_> = points.filter(|point| *point != Path::new("")).map(Path::to_owned).collect();
        points.sort();
        points.dedup();
        points
    }

    /// What a layer over the workspace does not show, in words.
    pub(super) fn unseen(&self, policy: &Policy, tier: Tier, root: &Path) -> Vec<String> {
        let layered = matches!(policy.workspace.mode, WorkspaceMode::Ro | WorkspaceMode::Overlay);
        if tier == Tier::Container && layered {
            self.below(root).iter().map(|at| beneath(at)).collect()
        } else {
            Vec::new()
        }
    }
}

/// Without a slash at the end.
fn joined(folder: &Path, below: &Path) -> PathBuf {
    if below == Path::new("") { folder.to_owned() } else { folder.join(below) }
}

/// [`Mounts::unseen`], for one who asks once.
pub(super) fn unseen(policy: &Policy, tier: Tier, root: &Path) -> Vec<String> {
    Mounts::default().unseen(policy, tier, root)
}

/// Folders of a list, in which `\:` is a colon of a name.
fn parted(list: &str) -> Vec<PathBuf> {
    let (mut parts, mut escaped) = (vec![String::new()], false);
    for letter in list.chars() {
        let is_end = letter == ':' && !escaped;
        escaped = letter == '\\' && !escaped;
        if is_end {
            parts.push(String::new());
        } else if !escaped && let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    parts.into_iter().filter(|part| part.starts_with('/')).map(PathBuf::from).collect()
}

fn beneath(at: &Path) -> String {
    format!(
        "a file system is mounted on {} of the workspace: inside stands what lies beneath it, mostly an empty folder; \
         grant it by itself (`--read`), or use `-w PATH:rw`",
        show_path(at)
    )
}

/// What a copy of the workspace lacks, in words.
pub(super) fn not_copied(at: &Path, why: &str) -> String {
    format!("{} of the workspace is not in its copy: {why}", show_path(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_twice_is_known_by_its_other_places_and_by_those_of_its_parts() {
        let line = |device: &str, root: &str, point: &str| format!("30 20 {device} {root} {point} rw - ext4 none rw\n");
        let lines = [
            line("8:1", "/", "/"),
            line("8:1", "/root/keys", "/srv/b"),
            line("8:2", "/", "/mnt/disk"),
            line("8:2", "/people/me", "/home/me"),
        ];
        let mounts = Mounts(OnceCell::from(sys::proc::parse_mountinfo(&lines.concat()).unwrap()));
        let places = |path: &str| {
            let told = mounts.elsewhere(Path::new(path)).into_iter();
            told.map(|(place, part)| format!("{} {}", place.display(), part.display())).collect::<Vec<_>>()
        };
        assert_eq!(places("/srv/b/x"), ["/root/keys/x "]);
        assert_eq!(places("/root/keys"), ["/srv/b "]);
        assert_eq!(places("/root"), ["/srv/b keys"]);
        assert_eq!(places("/mnt/disk/people/me/.ssh"), ["/home/me/.ssh "]);
        assert_eq!(places("/mnt/disk/people"), ["/home/me me"]);
        assert_eq!(places("/home/me/work"), ["/mnt/disk/people/me/work "]);
        assert_eq!(places("/opt"), [""; 0]);
    }

    #[test]
    fn a_folder_shows_what_another_mount_shows_of_the_same_place() {
        let line = |device: &str, root: &str, point: &str| format!("30 20 {device} {root} {point} rw - ext4 none rw\n");
        let lines = [
            line("8:1", "/", "/"),
            line("8:2", "/", "/data"),
            line("8:1", "/home/u/sub", "/home/u/bm"),
            line("8:1", "/home/u/keys/one", "/srv/ws/one"),
            line("8:1", "/srv/ws/deep", "/mnt"),
        ];
        let mounts = Mounts(OnceCell::from(sys::proc::parse_mountinfo(&lines.concat()).unwrap()));
        for (folder, path, shows) in [
            ("/home/u/bm", "/home/u/sub/k", true),
            ("/home/u/sub", "/home/u/bm/k", true),
            ("/srv/ws", "/home/u/keys/one", true),
            ("/srv/ws", "/home/u/keys/two", false),
            ("/srv/ws", "/mnt/k", true),
            ("/srv/ws/other", "/mnt/k", false),
            ("/home/u/bm", "/home/u/k", false),
            ("/data", "/home/u/sub/k", false),
            ("/home/u", "/home/u/bm/k", true),
        ] {
            assert_eq!(mounts.shows(Path::new(folder), Path::new(path)), shows, "{folder} {path}");
        }
    }

    #[test]
    fn what_is_mounted_twice_has_a_place_in_a_folder_of_either() {
        let line = |device: &str, root: &str, point: &str| format!("30 20 {device} {root} {point} rw - ext4 none rw\n");
        let lines = [
            line("8:1", "/", "/"),
            line("8:1", "/srv", "/mnt/all"),
            line("8:1", "/srv/ws/part", "/mnt/part"),
            line("8:2", "/", "/data"),
            line("8:2", "/hooks", "/srv/ws/deep/in"),
        ];
        let mounts = Mounts(OnceCell::from(sys::proc::parse_mountinfo(&lines.concat()).unwrap()));
        for (path, place) in [
            ("/mnt/all/ws/x/y", Some("/srv/ws/x/y")),
            ("/mnt/all/ws", Some("/srv/ws")),
            ("/mnt/part/x", Some("/srv/ws/part/x")),
            ("/data/hooks/pre-commit", Some("/srv/ws/deep/in/pre-commit")),
            ("/mnt/all/other/x", None),
            ("/data/other", None),
            ("/etc", None),
        ] {
            assert_eq!(mounts.within(Path::new("/srv/ws"), Path::new(path)), place.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn a_folder_shows_the_layers_of_an_overlay() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        for name in ["keys:1/sub", "up", "work", "beside"] {
            std::fs::create_dir_all(top.join(name)).unwrap();
        }
        let here = top.display();
        let lines = format!(
            "20 1 8:1 / / rw - ext4 none rw\n30 20 0:9 / {here}/work rw - overlay none rw,lowerdir={here}/keys\\134:1:{here}/not,upperdir={here}/up\n"
        );
        let mounts = Mounts(OnceCell::from(sys::proc::parse_mountinfo(&lines).unwrap()));
        for (shown, path, shows) in [
            ("work", "keys:1/k", true),
            ("work", "up/k", true),
            ("work/sub", "keys:1/sub/k", true),
            ("work/sub", "keys:1/k", false),
            ("work", "beside/k", false),
            ("beside", "up/k", false),
        ] {
            assert_eq!(mounts.shows(&top.join(shown), &top.join(path)), shows, "{shown} {path}");
        }
    }

    #[test]
    fn what_is_mounted_below_is_found_and_neither_the_folder_itself_nor_its_neighbour() {
        let line = |point: &str| format!("30 20 0:25 / {point} rw,relatime - tmpfs none rw\n");
        let text: String =
            ["/", "/a", "/a/in/deep", "/a/in", "/a/in", "/ab", "/b/a", "/a/with\\040space"].map(line).concat();
        let mounts = Mounts(OnceCell::from(sys::proc::parse_mountinfo(&text).unwrap()));
        let expected = ["in", "in/deep", "with space"].map(PathBuf::from);
        assert_eq!(mounts.below(Path::new("/a")), expected);
        assert_eq!(mounts.below(Path::new("/b")), [PathBuf::from("a")]);
        assert_eq!(mounts.below(Path::new("/ab")), Vec::<PathBuf>::new());
    }
}
