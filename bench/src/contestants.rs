//! Who takes part, and how each is asked for the same work: host programs read-only, a temporary folder in
//! memory, no network. What each gives beyond or below that is told in the results by what the probe sees.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::launch::Line;

/// What is run inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// `/bin/true`
    True,
    /// `python3 -c 'print(1)'`
    Python,
    /// `sleep 2`, to be looked at meanwhile.
    Sleep,
    /// The probe with one word.
    Probe(&'static str),
    /// The probe says what it sees.
    See,
}

/// One way to run a program.
#[derive(Clone, Debug)]
pub struct Contestant {
    /// Short name, also in tables.
    pub id: &'static str,
    kind: Kind,
    /// Starts in tens of milliseconds or more: fewer rounds are enough.
    pub slow: bool,
}

#[derive(Clone, Debug)]
enum Kind {
    Plain,
    /// A command line in front of the work.
    Prefix(Vec<String>),
    /// An OCI runtime, with a bundle for each work and worker.
    Runtime(PathBuf),
}

/// Folders of one benchmark run.
#[derive(Clone, Debug)]
pub struct Place {
    /// On a file system in memory, world-readable: the probe, bundles, `tmp`.
    pub work: PathBuf,
    /// A file that nobody was granted.
    pub secret: PathBuf,
    /// Where the product keeps its state: on a disk, as it would be.
    pub state: PathBuf,
}

impl Place {
    fn probe(&self) -> String {
        shown(&self.work.join("bin/probe"))
    }

    fn tmp(&self) -> String {
        shown(&self.work.join("tmp"))
    }
}

/// Where programs of the contestants are.
#[derive(Debug)]
pub struct Programs {
    /// The product.
    pub fumehood: Option<PathBuf>,
    /// sandlock, as its registry has it.
    pub sandlock: Option<PathBuf>,
    /// srt, as its registry has it.
    pub srt: Option<PathBuf>,
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn on_path(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/usr/sbin", "/usr/local/bin"].iter().map(|folder| Path::new(folder).join(name)).find(|p| p.exists())
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// All that can be found, and the names of those that cannot.
pub fn all(place: &Place, programs: &Programs, policies: &Path) -> (Vec<Contestant>, Vec<&'static str>) {
    let mut found = vec![Contestant { id: "plain", kind: Kind::Plain, slow: false }];
    let mut missing = Vec::new();
    let bin = shown(&place.work.join("bin"));
    if let Some(program) = &programs.fumehood {
        for (id, tier) in [("fumehood", "container"), ("fumehood-process", "process")] {
            let policy = policies.join(format!("{tier}.toml"));
            let line = format!("{} run -q -p {} --read {bin} --", program.display(), policy.display());
            found.push(Contestant { id, kind: Kind::Prefix(words(&line)), slow: false });
        }
    } else {
        missing.push("fumehood");
    }
    if let Some(program) = on_path("bwrap") {
        let line = format!(
            "{} --unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/sbin /sbin \
             --symlink usr/lib /lib --symlink usr/lib64 /lib64 --ro-bind {bin} {bin} --proc /proc --dev /dev --tmpfs /tmp",
            program.display()
        );
        found.push(Contestant { id: "bubblewrap", kind: Kind::Prefix(words(&line)), slow: false });
    } else {
        missing.push("bubblewrap");
    }
    if let Some(program) = &programs.sandlock {
        let grants =
            format!("-r /usr -r /lib -r /lib64 -r /bin -r /dev -r /proc -r {bin} -w /dev/null -w {}", place.tmp());
        let alone = format!("{} run --no-supervisor {grants} --", program.display());
        found.push(Contestant { id: "sandlock-alone", kind: Kind::Prefix(words(&alone)), slow: false });
        let whole = format!("{} run -m 256M -P 64 {grants} --", program.display());
        found.push(Contestant { id: "sandlock", kind: Kind::Prefix(words(&whole)), slow: false });
    } else {
        missing.push("sandlock");
    }
    for id in ["crun", "runc"] {
        match on_path(id) {
            Some(program) => found.push(Contestant { id, kind: Kind::Runtime(program), slow: true }),
            None => missing.push(id),
        }
    }
    match &programs.srt {
        Some(program) => found.push(Contestant { id: "srt", kind: Kind::Prefix(vec![shown(program)]), slow: true }),
        None => missing.push("srt"),
    }
    (found, missing)
}

impl Contestant {
    /// The command line for a work; `worker` tells runs apart that go on at the same time.
    pub fn line(&self, place: &Place, work: Work, worker: usize) -> io::Result<Line> {
        let inner = work_words(place, work);
        let outside_tmp = match self.kind {
            Kind::Plain => true,
            Kind::Prefix(_) => self.id.starts_with("sandlock"),
            Kind::Runtime(_) => false,
        };
        let mut env = if outside_tmp { vec![("PROBE_TMP".to_owned(), place.tmp())] } else { Vec::new() };
        if self.id.starts_with("fumehood") {
            env.push(("FUMEHOOD_STATE".to_owned(), shown(&place.state)));
        }
        let words = match &self.kind {
            Kind::Plain => inner,
            Kind::Prefix(prefix) => [prefix.clone(), inner].concat(),
            Kind::Runtime(program) => {
                let name = format!("{}-{worker}-{}", self.id, work_name(work));
                let bundle = bundle(place, &name, &inner)?;
                let root = place.work.join("runtime").join(self.id);
                [shown(program), "--root".into(), shown(&root), "run".into(), "--bundle".into(), shown(&bundle), name]
                    .into()
            }
        };
        Ok(Line { words, env })
    }
}

fn work_name(work: Work) -> &'static str {
    match work {
        Work::True => "true",
        Work::Python => "python",
        Work::Sleep => "sleep",
        Work::Probe(word) => word,
        Work::See => "see",
    }
}

fn work_words(place: &Place, work: Work) -> Vec<String> {
    match work {
        Work::True => words("/bin/true"),
        Work::Python => ["/usr/bin/python3", "-c", "print(1)"].map(str::to_owned).into(),
        Work::Sleep => words("/bin/sleep 2"),
        Work::Probe(word) => vec![place.probe(), word.to_owned()],
        Work::See => vec![place.probe(), "see".to_owned(), shown(&place.secret)],
    }
}

/// An OCI bundle with the same sights as bubblewrap's: namespaces, no capabilities, limits of memory and processes.
/// No seccomp filter, as runtimes have none unless an engine above them brings one.
fn bundle(place: &Place, name: &str, inner: &[String]) -> io::Result<PathBuf> {
    let folder = place.work.join("bundles").join(name);
    if folder.join("config.json").exists() {
        return Ok(folder);
    }
    let bin = shown(&place.work.join("bin"));
    let root = folder.join("rootfs");
    for made in ["usr", "proc", "dev", "tmp", "sys", "etc"] {
        fs::create_dir_all(root.join(made))?;
    }
    fs::create_dir_all(root.join(bin.trim_start_matches('/')))?;
    for link in ["bin", "sbin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{link}"), root.join(link))?;
    }
    let arguments: Vec<String> = inner.iter().map(|word| format!("\"{word}\"")).collect();
    let sets: Vec<String> = ["bounding", "effective", "inheritable", "permitted", "ambient"]
        .iter()
        .map(|set| format!("\"{set}\":[]"))
        .collect();
    let config = format!(
        r#"{{"ociVersion":"1.0.2","hostname":"bench","root":{{"path":"rootfs","readonly":true}},
"process":{{"terminal":false,"user":{{"uid":0,"gid":0}},"cwd":"/","noNewPrivileges":true,
"args":[{}],"env":["PATH=/usr/bin:/bin"],"capabilities":{{{}}}}},
"mounts":[{{"destination":"/proc","type":"proc","source":"proc"}},
{{"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid","mode=755"]}},
{{"destination":"/dev/pts","type":"devpts","source":"devpts"}},
{{"destination":"/tmp","type":"tmpfs","source":"tmpfs","options":["nosuid","nodev","size=64m"]}},
{{"destination":"/usr","type":"bind","source":"/usr","options":["rbind","ro"]}},
{{"destination":"{bin}","type":"bind","source":"{bin}","options":["rbind","ro"]}}],
"linux":{{"namespaces":[{{"type":"pid"}},{{"type":"network"}},{{"type":"ipc"}},{{"type":"uts"}},{{"type":"mount"}},{{"type":"cgroup"}}],
"resources":{{"memory":{{"limit":268435456}},"pids":{{"limit":64}}}},"cgroupsPath":"/fumehood-bench-{name}"}}}}"#,
        arguments.join(","),
        sets.join(",")
    );
    fs::write(folder.join("config.json"), config)?;
    Ok(folder)
}
