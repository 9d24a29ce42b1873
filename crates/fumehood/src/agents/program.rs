//! Where an agent's program lies on this host, and what of it has to be shown inside.

use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use policy::value::TOOLS;
use sandbox::Environment;

/// The search path inside.
const INSIDE: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstalledProgram {
    /// Its real path.
    pub(crate) program: PathBuf,
    /// What has to be shown beside the host's own tools.
    pub(crate) reads: Vec<PathBuf>,
    /// Folders that are added to the search path inside.
    pub(super) folders: Vec<PathBuf>,
}

impl InstalledProgram {
    /// The search path inside.
    pub(super) fn path(&self) -> String {
        let folders = self.folders.iter().map(|folder| folder.to_string_lossy().into_owned());
        folders.chain([INSIDE.to_owned()]).collect::<Vec<_>>().join(":")
    }
}

/// Looks for a program in the caller's `PATH`.
pub(crate) fn find(name: &str, environment: &Environment) -> Option<InstalledProgram> {
    let program = in_path(name, environment)?;
    let mut found = InstalledProgram { program: program.clone(), reads: Vec::new(), folders: Vec::new() };
    let real = |path: &Option<PathBuf>| path.as_ref().and_then(|path| path.canonicalize().ok());
    let (home, cwd) = (real(&environment.home), real(&environment.cwd));
    found.show(&program, home.as_deref(), cwd.as_deref());
    if let Some(interpreter) = interpreter(&program, environment) {
        found.show(&interpreter, home.as_deref(), cwd.as_deref());
        if let Some(folder) = interpreter.parent().filter(|folder| !is_shown(folder)) {
            found.folders.push(folder.to_path_buf());
        }
    }
    Some(found)
}

impl InstalledProgram {
    /// Has a program shown, with the package or the environment that it is part of, or the packages that it was installed among;
    /// never the whole home folder. Those of the working folder are seen there, and stay to be written.
    fn show(&mut self, program: &Path, home: Option<&Path>, cwd: Option<&Path>) {
        if is_shown(program) {
            return;
        }
        let has_home = |folder: &Path| {
            home.is_some_and(|home| folder.canonicalize().map_or(true, |folder| home.starts_with(folder)))
        };
        let whole = |folder: &&Path| {
            ["package.json", "pyvenv.cfg"].iter().any(|file| folder.join(file).is_file()) && !has_home(folder)
        };
        let package = program.ancestors().skip(1).take(4).find(whole).unwrap_or(program);
        let own = |folder: &&Path| !has_home(folder) && cwd.is_none_or(|cwd| !folder.starts_with(cwd));
        let tree = packages(package).filter(own).unwrap_or(package);
        if !self.reads.iter().any(|known| tree.starts_with(known)) {
            self.reads.push(tree.to_path_buf());
        }
    }
}

/// The `node_modules` in which a package lies beside those that it needs. `npm install -g` has them inside the package instead.
fn packages(package: &Path) -> Option<&Path> {
    let named = |folder: &&Path| folder.file_name().is_some_and(|name| name == "node_modules");
    let installed = |folder: &&Path| folder.parent().is_some_and(|parent| parent.join("package.json").is_file());
    package.ancestors().filter(named).filter(installed).last()
}

fn is_shown(path: &Path) -> bool {
    TOOLS.iter().any(|tree| path.starts_with(tree))
}

fn in_path(name: &str, environment: &Environment) -> Option<PathBuf> {
    let path = environment.variable("PATH")?;
    let folders = path.as_bytes().split(|byte| *byte == b':').filter(|folder| folder.starts_with(b"/"));
    let mut tried = folders.map(|folder| Path::new(std::ffi::OsStr::from_bytes(folder)).join(name));
    let executable =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    tried.find(executable)?.canonicalize().ok()
}

/// The interpreter of a script, as `#!` names it, also by `env`.
fn interpreter(program: &Path, environment: &Environment) -> Option<PathBuf> {
    let mut head = [0; 256];
    let read = fs::File::open(program).ok()?.read(&mut head).ok()?;
    let line = head.get(..read)?.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let first = Path::new(words.next()?);
    if first.file_name().is_some_and(|name| name == "env") {
        let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        return in_path(name, environment);
    }
    // As it is written: a virtual environment is found by the link in it.
    first.is_absolute().then(|| first.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(folders: &[&Path]) -> Environment {
        let path = folders.iter().map(|folder| folder.to_str().unwrap()).collect::<Vec<_>>().join(":");
        Environment::new(None, [("PATH".into(), path.into())].into(), 0)
    }

    fn script(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_package_is_shown_whole_and_its_interpreter_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (bin, package) = (root.join("bin"), root.join("lib/node_modules/@x/y"));
        script(&package.join("cli.js"), "#!/usr/bin/env -S node --x\n");
        script(&root.join("node/bin/node"), "");
        fs::write(package.join("package.json"), "{}").unwrap();
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink("../lib/node_modules/@x/y/cli.js", bin.join("claude")).unwrap();
        let found = find("claude", &environment(&[&bin, &root.join("node/bin")])).unwrap();
        assert_eq!(found.program, package.join("cli.js"));
        assert_eq!(found.reads, [package, root.join("node/bin/node")]);
        assert!(found.path().starts_with(root.join("node/bin").to_str().unwrap()), "{found:?}");
        assert_eq!(find("codex", &environment(&[&bin])), None);
    }

    #[test]
    fn packages_that_are_installed_beside_it_are_shown_but_for_those_of_the_working_folder() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let modules = root.join("tools/node_modules");
        let reads = |environment: &Environment| find("codex", environment).unwrap().reads;
        // As npm has it, and as pnpm has it: the outermost is meant.
        for package in [modules.join("@x/y"), modules.join(".pnpm/y@1/node_modules/y")] {
            script(&package.join("bin/codex"), "");
            fs::write(package.join("package.json"), "{}").unwrap();
            let mut environment = environment(&[&package.join("bin")]);
            // Nothing says that others were installed with it.
            assert_eq!(reads(&environment), std::slice::from_ref(&package));
            fs::write(root.join("tools/package.json"), "{}").unwrap();
            assert_eq!(reads(&environment), std::slice::from_ref(&modules));
            environment.cwd = Some(root.join("tools"));
            assert_eq!(reads(&environment), [package]);
            fs::remove_file(root.join("tools/package.json")).unwrap();
        }
    }

    #[test]
    fn a_home_that_is_a_package_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let home = root.join("home");
        let program = home.join("bin/claude");
        script(&program, "");
        for folder in [&root, &home] {
            fs::write(folder.join("package.json"), "{}").unwrap();
        }
        let mut environment = environment(&[&home.join("bin")]);
        environment.home = Some(home);
        assert_eq!(find("claude", &environment).unwrap().reads, [program]);
    }

    #[test]
    fn what_every_sandbox_sees_is_not_granted() {
        let found = find("sh", &environment(&[Path::new("/usr/bin")])).unwrap();
        assert_eq!((found.reads.as_slice(), found.path().as_str()), (&[][..], INSIDE));
    }

    #[test]
    fn what_cannot_be_executed_is_not_found() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("claude"), "x").unwrap();
        assert_eq!(find("claude", &environment(&[dir.path(), Path::new("relative")])), None);
    }
}
