//! The kernel of machines (the vm tier), taken once out of a Debian package: by apt, which checks whose signature it has.

use std::path::{Path, PathBuf};
use std::time::Duration;

use backends::Kernel;
use sandbox::fault::Fault;
use sys::arch::KERNEL_PACKAGE;
use sys::command::Command;
use sys::pidfd::End;

use crate::environment::Environment;
use crate::folder::OwnFolder;
use crate::ui::Failure;

/// How long a download may take.
const DOWNLOAD: Duration = Duration::from_secs(600);
/// How long anything else may take.
const SHORT: Duration = Duration::from_secs(120);
/// Largest module, uncompressed, bytes.
const MAX_OUTPUT: usize = 32 << 20;
/// Where the programs are found.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Prepares a kernel from a package that is here, or from apt.
///
/// # Errors
/// What is missing or went wrong.
pub(crate) fn prepare(environment: &Environment, package: Option<&Path>) -> Result<Kernel, Failure> {
    if environment.euid != 0 {
        return Err(fault(
            "machine/not-root",
            "machines start from a kernel that only root can have prepared",
            "run it as root",
        ));
    }
    let folder = OwnFolder::new(environment, "machine", 0o755)?;
    let proxies = ["http_proxy", "https_proxy", "no_proxy"];
    let named = |name: &&str| Some(format!("{name}={}", environment.variable(name)?.to_str()?));
    let proxies: Vec<String> = proxies.iter().filter_map(named).collect();
    let file = match package {
        Some(file) => file.canonicalize().map_err(|error| failed(&format!("`{}`: {error}", file.display())))?,
        None => download(folder.path(), &proxies).map_err(|why| failed(&why))?,
    };
    unpack(folder.path(), &file).map_err(|why| failed(&why))
}

fn fault(id: &'static str, why: &str, fix: &str) -> Failure {
    Failure::own(Fault {
        id,
        what: "the kernel of machines cannot be prepared".to_owned(),
        place: "fumehood machine prepare".to_owned(),
        why: why.to_owned(),
        fix: fix.to_owned(),
    })
}

fn failed(why: &str) -> Failure {
    let fix =
        "on Debian: apt-get update; elsewhere give a kernel package of Debian for this processor by `--package FILE`";
    fault("machine/no-kernel", &sandbox::fault::show_text(why), fix)
}

/// Runs a program of the system; what it wrote.
fn run(program: &str, words: &[&str], at: &Path, variables: &[String], limit: Duration) -> Result<Vec<u8>, String> {
    let path = PATH.split(':').map(|folder| Path::new(folder).join(program)).find(|path| path.exists());
    let path = path.ok_or_else(|| format!("there is no `{program}` on this host"))?;
    let command = Command::new(path).args(words).directory(at).env("PATH", PATH).env("LC_ALL", "C");
    let command = variables.iter().fold(command, Command::variable);
    let output = command.output(&[], MAX_OUTPUT, limit).map_err(|error| error.to_string())?;
    if output.end == End::Exited(0) {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let why = if output.timed_out { "it took too long" } else { said.lines().last().unwrap_or("it failed") };
    Err(format!("`{program} {}`: {why}", words.join(" ")))
}

/// The package file, verified by apt.
fn download(folder: &Path, proxies: &[String]) -> Result<PathBuf, String> {
    let known = run("apt-cache", &["depends", KERNEL_PACKAGE], folder, &[], SHORT)?;
    let known = String::from_utf8_lossy(&known).into_owned();
    let depends = |line: &str| {
        line.trim().strip_prefix("Depends: ").filter(|name| name.starts_with("linux-image-")).map(str::to_owned)
    };
    let name = known.lines().find_map(depends).ok_or_else(|| format!("apt knows no package `{KERNEL_PACKAGE}`"))?;
    run("apt-get", &["download", "-q", &name], folder, proxies, DOWNLOAD)?;
    let listed = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    let found = listed
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "deb"));
    found.ok_or_else(|| format!("apt left no file of `{name}`"))
}

/// A file of the package by its real path: no link of the package leads root to a file of the host. The tree is ours alone,
/// so that what was judged is what is read.
fn of_package(tree: &Path, path: &Path) -> Result<PathBuf, String> {
    let real = |path: &Path| path.canonicalize().map_err(|error| format!("`{}`: {error}", path.display()));
    let (tree, found) = (real(tree)?, real(path)?);
    let plain = found.symlink_metadata().is_ok_and(|meta| meta.is_file());
    if plain && found.starts_with(&tree) {
        return Ok(found);
    }
    Err(format!("`{}` is no file of the package's own", path.display()))
}

/// Takes kernel and modules out of it. None of its scripts is run.
fn unpack(folder: &Path, file: &Path) -> Result<Kernel, String> {
    let text = file.to_str().ok_or("the package's path is no text")?;
    let named = |field: &str| -> Result<String, String> {
        let said = run("dpkg-deb", &["-f", text, field], folder, &[], SHORT)?;
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    };
    let package = format!("{} {}", named("Package")?, named("Version")?);
    run("dpkg-deb", &["-x", text, "tree"], folder, &[], SHORT)?;
    let tree = folder.join("tree");
    let listed = std::fs::read_dir(tree.join("boot")).map_err(|error| format!("the package has no kernel: {error}"))?;
    let release = listed
        .filter_map(Result::ok)
        .find_map(|entry| entry.file_name().to_str()?.strip_prefix("vmlinuz-").map(str::to_owned));
    let release = release.ok_or("the package has no kernel")?;
    let kernel = std::fs::read(of_package(&tree, &tree.join("boot").join(format!("vmlinuz-{release}")))?)
        .map_err(|error| error.to_string())?;
    let places = ["lib/modules", "usr/lib/modules"].map(|place| tree.join(place).join(&release));
    let modules = places.iter().find(|place| place.is_dir()).ok_or("the package has no modules")?;
    let built_in = modules.join("modules.builtin");
    let built_in = match built_in.exists() {
        true => std::fs::read_to_string(of_package(&tree, &built_in)?).map_err(|error| error.to_string())?,
        false => String::new(),
    };
    // QEMU needs no other form than that of the package.
    let unpacked = crate::bzimage::unpacked(&kernel).ok();
    Kernel::keep(&package, &release, (&kernel, unpacked.as_deref()), &|name| {
        let ends = format!("/{name}.ko");
        if built_in.lines().any(|line| line.ends_with(&ends)) {
            return Ok(None);
        }
        let path = backends::find_module(modules, name).ok_or_else(|| format!("the package has no module `{name}`"))?;
        let path = of_package(&tree, &path)?;
        if path.extension().is_some_and(|end| end == "xz") {
            let text = path.to_str().ok_or("a module's path is no text")?;
            return run("xz", &["-dc", text], folder, &[], SHORT).map(Some);
        }
        std::fs::read(&path).map(Some).map_err(|error| format!("`{}`: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_link_of_a_package_leads_out_of_it() {
        let kept = tempfile::tempdir().unwrap();
        let tree = kept.path();
        std::fs::create_dir_all(tree.join("boot")).unwrap();
        std::fs::write(tree.join("boot/kernel"), "k").unwrap();
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, tree.join("boot").join(name)).unwrap();
        link("/etc/passwd", "out");
        link("kernel", "own");
        link(".", "folder");
        let found = |name: &str| of_package(tree, &tree.join("boot").join(name));
        assert!(found("kernel").is_ok() && found("own") == found("kernel"));
        assert!(found("out").is_err() && found("folder").is_err() && found("none").is_err());
    }
}
