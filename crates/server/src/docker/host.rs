//! `HostConfig` of a create body: amounts, files, and what nobody is given.

use std::collections::BTreeSet;

use agent::words::Size;
use policy::json::toml_text;
use policy::units::Bytes;
use policy::value::{Sockets, TierChoice};
use sandbox::PolicyLayer;
use serde_json::Value as Json;

use super::body::{BodyContext, CAPABILITIES, ContainerSpec, Reader, Refused, Workdir, inside, set};
use super::held::{Held, Place};

/// Fields that are read here, or in `body`.
const KNOWN: &[&str] = &[
    "AutoRemove",
    "Binds",
    "CapDrop",
    "CgroupnsMode",
    "ConsoleSize",
    "CpuPeriod",
    "CpuQuota",
    "CpusetCpus",
    "Init",
    "IpcMode",
    "LogConfig",
    "Memory",
    "MemorySwap",
    "MemorySwappiness",
    "Mounts",
    "NanoCpus",
    "NetworkMode",
    "PidsLimit",
    "ReadonlyRootfs",
    "RestartPolicy",
    "Runtime",
    "SecurityOpt",
    "ShmSize",
    "Tmpfs",
    "Ulimits",
];

/// Where neither the body nor the ceiling has a limit.
const MEMORY: u64 = 2 << 30;
const PIDS: u32 = 512;
const OPEN_FILES: u32 = 1024;
/// What starts a program in a sandbox that lives has some open itself.
const LEAST_OPEN_FILES: u32 = 16;
const FILE_SIZE: u64 = 1 << 30;
const FILES: u64 = 200_000;
const OUTPUT: u64 = 16 << 20;
const TMP: u64 = 256 << 20;
const SHM: u64 = 64 << 20;
const RUN: u64 = 16 << 20;
const WORK: u64 = 512 << 20;
/// Most file systems of the host have no quota for a bound folder.
const UNCOUNTED: [&str; 2] = ["limits.disk", "limits.files"];
/// The least size of a place that can be written to.
const LEAST: u64 = 1 << 20;
/// The modes of the places that are there.
const MODES: [(&str, u32); 3] = [("/tmp", 0o1777), ("/dev/shm", 0o1777), ("/run", 0o755)];
/// Period of a processor's quota where none is said, microseconds.
const PERIOD: u64 = 100_000;

/// `HostConfig`, and what of the rest matters to it.
pub(super) struct Host<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) context: &'a BodyContext<'a>,
    pub(super) top: &'a Reader<'a>,
    pub(super) workdir: &'a Workdir,
}

/// Places that are written to.
#[derive(Default)]
struct Places {
    read: Vec<(String, String)>,
    write: Vec<(String, String)>,
    tmp: Option<u64>,
    shm: Option<u64>,
    run: Option<u64>,
    /// One more, where the policy's workspace is.
    work: Option<(String, Option<u64>)>,
    /// One of them may hold programs.
    executable: bool,
    /// Of one it was asked that nothing in it is run.
    noexec: bool,
    /// Of one it was not said whether something in it may be run; with Docker nothing may.
    silent: bool,
}

/// The size of the terminal that a client has.
pub(super) fn console(host: &Reader<'_>) -> Option<Size> {
    let pair = host.fields.get("ConsoleSize")?.as_array()?;
    let side = |at: usize| u16::try_from(pair.get(at)?.as_u64()?).ok().filter(|side| (1..=1000).contains(side));
    Some(Size { rows: side(0)?, cols: side(1)? })
}

impl Host<'_> {
    pub(super) fn map(&self, mapped: &mut ContainerSpec) -> Result<(), Refused> {
        self.reader.others_say_nothing(KNOWN)?;
        self.fixed_values()?;
        self.security()?;
        for field in ["MaskedPaths", "ReadonlyPaths"] {
            // Null is Docker's own list; an empty one is none at all, as `systempaths=unconfined` asks.
            if self.reader.fields.get(field).is_some_and(|value| value.is_array()) {
                mapped
                    .warnings
                    .push(format!("{field} is not emptied: what a container sees of the system stays as it is"));
            }
        }
        let cpu_and_counts = self.amounts(mapped)?;
        let mut places = Places::default();
        self.binds(&mut places)?;
        self.tmpfs(&mut places, mapped.held.uid)?;
        self.work(&mut places);
        self.sizes(&places, mapped)?;
        self.files(&places, mapped)?;
        mapped.layers.extend(cpu_and_counts);
        Ok(())
    }

    /// Words of which one value alone says what is so anyway.
    fn fixed_values(&self) -> Result<(), Refused> {
        let host = &self.reader;
        for (field, good) in [("IpcMode", &["private", "none"][..]), ("CgroupnsMode", &["private"][..])] {
            if let Some(mode) = host.text(field)?.filter(|mode| !good.contains(mode)) {
                return Err(host.refused(field, format!("`{mode}` would share it with others; each has its own here")));
            }
        }
        if let Some(other) = host.text("Runtime")? {
            let why = format!("`{other}`: which tier holds a container says the ceiling, and no client; leave it out");
            return Err(host.refused("Runtime", why));
        }
        let policy = host.table("RestartPolicy")?.and_then(|policy| policy.get("Name"));
        if policy.is_some_and(|name| !matches!(name.as_str(), Some("" | "no")) && !name.is_null()) {
            return Err(host.refused("RestartPolicy", "nobody starts a container again here"));
        }
        let log = host.table("LogConfig")?;
        let driver = log.and_then(|log| log.get("Type")).filter(|driver| !driver.is_null());
        let driver = driver.map_or("", |driver| driver.as_str().unwrap_or("?"));
        let config = log.and_then(|log| log.get("Config"));
        if !matches!(driver, "" | "json-file") || config.is_some_and(|config| !super::body::says_nothing(config)) {
            return Err(host.refused("LogConfig", "what is printed is kept in the state folder, as `json-file`"));
        }
        if host.number("MemorySwappiness")?.is_some_and(|number| number != -1) {
            return Err(host.refused("MemorySwappiness", "there is no swap to be used"));
        }
        // Every container has an init of ours, and no capability.
        host.fields.get("Init").map_or(Ok(()), |init| match init.is_null() || init.is_boolean() {
            true => Ok(()),
            false => Err(host.refused("Init", "it is neither true nor false")),
        })?;
        for name in host.list("CapDrop")? {
            let upper = name.to_ascii_uppercase();
            let bare = upper.strip_prefix("CAP_").unwrap_or(&upper);
            if bare != "ALL" && !CAPABILITIES.contains(&bare) {
                return Err(host.refused("CapDrop", format!("`{name}` is no capability; none is there anyway")));
            }
        }
        Ok(())
    }

    fn security(&self) -> Result<(), Refused> {
        for option in self.reader.list("SecurityOpt")? {
            let is_so = matches!(
                option.as_str(),
                "no-new-privileges" | "no-new-privileges:true" | "no-new-privileges=true" | "seccomp=builtin"
            );
            if !is_so {
                let named = option.get(..60).unwrap_or(&option);
                let why = format!("`{named}`: filter and labels are ours, and stay; `no-new-privileges` always holds");
                return Err(self.reader.refused("SecurityOpt", why));
            }
        }
        Ok(())
    }

    /// Processors, processes, descriptors, files: what of these is said, and the ceiling's where nothing is.
    fn amounts(&self, mapped: &mut ContainerSpec) -> Result<Vec<PolicyLayer>, Refused> {
        let (host, most) = (&self.reader, &self.context.ceiling.limits);
        let mut layers = Vec::new();
        let cpus = self.cpus()?.or(most.cpus.map(|cpus| u64::from(cpus.0)));
        if let Some(cpus) = cpus {
            set(&mut layers, "limits.cpus", &format!("{}.{:03}", cpus / 1000, cpus % 1000));
        }
        if let Some(cores) = host.text("CpusetCpus")? {
            if !cores.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b',' | b'-')) {
                return Err(host.refused("CpusetCpus", "it is no list of cores as `0-1,3`"));
            }
            set(&mut layers, "limits.cpuset", &toml_text(cores));
        } else if let Some(cores) = &most.cpuset {
            set(&mut layers, "limits.cpuset", &format!("{cores:?}"));
        }
        let pids_asked = host.number("PidsLimit")?;
        let pids = pids_asked.filter(|pids| *pids > 0);
        let mut pids = pids.map_or_else(|| most.pids.unwrap_or(PIDS), |pids| u32::try_from(pids).unwrap_or(u32::MAX));
        let mut open_files = most.open_files.unwrap_or(OPEN_FILES);
        let mut file_size = most.file_size.map_or(FILE_SIZE, |size| size.0);
        let mut cpu_time = most.cpu_time.map(|time| time.0.div_ceil(1000));
        for (name, value) in self.ulimits()? {
            let small = u32::try_from(value).unwrap_or(u32::MAX);
            match name.as_str() {
                "nofile" => open_files = small,
                "nproc" => pids = pids.min(small),
                "fsize" => file_size = value,
                "cpu" => cpu_time = Some(value),
                // No program leaves a core behind.
                "core" if value == 0 => {}
                _ => {
                    let why = format!("`{name}`: only nofile, nproc, fsize, cpu, and core at 0 are held");
                    return Err(host.refused("Ulimits", why));
                }
            }
        }
        if open_files < LEAST_OPEN_FILES {
            let why = format!("`nofile` at {open_files}: no program can be started with less than {LEAST_OPEN_FILES}");
            return Err(host.refused("Ulimits", why));
        }
        if pids_asked.is_some_and(|asked| asked < 0) {
            mapped.warnings.push(format!("PidsLimit below zero is {pids}: nothing is unlimited here"));
        }
        let cpuset = host.text("CpusetCpus")?.map(str::to_owned).or_else(|| {
            let cores = most.cpuset.as_ref()?;
            Some(cores.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
        });
        mapped.held = Held { cpus, cpuset, pids, open_files, file_size, cpu_time, ..std::mem::take(&mut mapped.held) };
        set(&mut layers, "limits.pids", &pids.to_string());
        set(&mut layers, "limits.open_files", &open_files.to_string());
        set(&mut layers, "limits.file_size", &toml_text(&format!("{file_size}B")));
        set(&mut layers, "limits.files", &most.files.unwrap_or(FILES).to_string());
        set(&mut layers, "limits.output", &bytes(most.output.map_or(OUTPUT, |output| output.0.min(OUTPUT))));
        if let Some(seconds) = cpu_time {
            set(&mut layers, "limits.cpu_time", &toml_text(&format!("{seconds}s")));
        }
        if let TierChoice::Fixed(tier) = self.context.ceiling.tier {
            set(&mut mapped.layers, "tier", tier.as_str());
        }
        Ok(layers)
    }

    /// Thousandths of a processor.
    fn cpus(&self) -> Result<Option<u64>, Refused> {
        let host = &self.reader;
        let (nano, quota, period) = (host.amount("NanoCpus")?, host.number("CpuQuota")?, host.amount("CpuPeriod")?);
        match (nano, quota) {
            (Some(_), Some(_)) => Err(host.refused("NanoCpus", "it and CpuQuota say the same; say one of them")),
            (Some(nano), None) => Ok(Some((nano / 1_000_000).max(1))),
            (None, Some(quota)) => {
                let quota = u64::try_from(quota).map_err(|_negative| host.refused("CpuQuota", "it is below zero"))?;
                let period = period.unwrap_or(PERIOD).max(1);
                Ok(Some((quota.saturating_mul(1000) / period).max(1)))
            }
            (None, None) => Ok(None),
        }
    }

    /// The smaller of soft and hard: no program can raise it again.
    fn ulimits(&self) -> Result<Vec<(String, u64)>, Refused> {
        let wrong = |why: String| self.reader.refused("Ulimits", why);
        let mut all: Vec<(String, u64)> = Vec::new();
        for table in self.reader.tables("Ulimits")? {
            let name = table.get("Name").and_then(Json::as_str).unwrap_or_default().to_ascii_lowercase();
            if all.iter().any(|(known, _)| *known == name) {
                return Err(wrong(format!("`{name}` is there twice")));
            }
            let side = |field: &str| table.get(field).and_then(Json::as_u64);
            let value = match (side("Soft"), side("Hard")) {
                (Some(soft), Some(hard)) => soft.min(hard),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => {
                    return Err(wrong(format!("`{name}` has no number from 0 on; nothing is unlimited here")));
                }
            };
            all.push((name, value));
        }
        Ok(all)
    }

    /// Folders of the host, read-only or writable.
    fn binds(&self, places: &mut Places) -> Result<(), Refused> {
        let host = &self.reader;
        let mut targets = BTreeSet::new();
        for bind in host.list("Binds")? {
            let mut parts = bind.split(':');
            let (from, to, options) = (parts.next().unwrap_or_default(), parts.next(), parts.next().unwrap_or("rw"));
            let wrong = |why: &str| host.refused("Binds", format!("`{bind}`: {why}"));
            let Some(to) = to.filter(|_| parts.next().is_none()) else {
                return Err(wrong("it is no FROM:TO or FROM:TO:ro"));
            };
            let mut is_read_only = false;
            for option in options.split(',') {
                if option == "ro" {
                    is_read_only = true;
                } else if !["", "rw", "rprivate", "private"].contains(&option) {
                    return Err(wrong("only `ro` and `rw` are held"));
                }
            }
            targets.insert(self.bind("Binds", (from, to), is_read_only, places)?);
        }
        for mount in host.tables("Mounts")? {
            let said = Reader { fields: mount, table: "HostConfig.Mounts." };
            let text = |field: &str| said.text(field).map(Option::unwrap_or_default);
            let is_read_only = said.flag("ReadOnly")?;
            let known = ["Type", "Source", "Target", "ReadOnly"];
            let other = mount
                .iter()
                .find(|(field, value)| !known.contains(&field.as_str()) && !super::body::says_nothing(value));
            if let Some((field, _)) = other {
                return Err(host.refused("Mounts", format!("`{field}`: nothing here can hold it")));
            }
            if text("Type")? != "bind" {
                return Err(host.refused("Mounts", format!("`{}`: only `bind` is held; see also Tmpfs", text("Type")?)));
            }
            targets.insert(self.bind("Mounts", (text("Source")?, text("Target")?), is_read_only, places)?);
        }
        // Clients name the places of binds here once more; a volume of its own would need somebody who keeps it.
        let volumes = self.top.table("Volumes")?;
        let other =
            volumes.into_iter().flatten().find(|(path, _)| inside(path).is_none_or(|path| !targets.contains(&path)));
        match other {
            Some((path, _)) => {
                Err(Refused::new("Volumes", format!("`{path}`: no volumes are kept; bind a folder there")))
            }
            None => Ok(()),
        }
    }

    fn bind(
        &self,
        field: &str,
        (from, to): (&str, &str),
        is_read_only: bool,
        places: &mut Places,
    ) -> Result<String, Refused> {
        let wrong = |why: &str| self.reader.refused(field, format!("`{from}`: {why}"));
        let Some(source) = inside(from) else {
            return Err(wrong("it is no absolute path of a folder; no volumes are kept here"));
        };
        let Some(target) = inside(to).filter(|to| to != "/") else {
            return Err(wrong("the place inside is no absolute path below `/`"));
        };
        if is_read_only { &mut places.read } else { &mut places.write }.push((source, target.clone()));
        places.executable |= !is_read_only;
        Ok(target)
    }

    fn tmpfs(&self, places: &mut Places, uid: u32) -> Result<(), Refused> {
        let (mut exec, mut silent) = (false, false);
        for (path, options) in self.reader.texts("Tmpfs")? {
            let wrong = |why: String| self.reader.refused("Tmpfs", format!("`{path}`: {why}"));
            let at = inside(&path).filter(|at| at != "/");
            let at = at.ok_or_else(|| wrong("it is no absolute path below `/`".to_owned()))?;
            let mut size = None;
            silent |= !options.split(',').any(|option| matches!(option, "exec" | "noexec"));
            for option in options.split(',').filter(|option| !option.is_empty()) {
                match option.split_once('=') {
                    Some(("size", text)) => {
                        size = Some(size_of(text).ok_or_else(|| wrong(format!("`{text}` is no size")))?);
                    }
                    Some(("mode" | "uid" | "gid", _)) if is_so(option, &at, uid) => {}
                    Some(("mode" | "uid" | "gid", _)) => {
                        let mode = mode_of(&at).map_or_else(String::new, |mode| format!(", with mode {mode:o}"));
                        let why = format!(
                            "it is the user's whom all programs are, {uid} with the group of that number{mode}"
                        );
                        return Err(wrong(format!("`{option}`: {why}; leave it out")));
                    }
                    None if option == "exec" => exec = true,
                    None if option == "noexec" => places.noexec = true,
                    None if matches!(option, "rw" | "nosuid" | "nodev") => {}
                    Some(_) | None => return Err(wrong(format!("`{option}` is not held"))),
                }
            }
            match at.as_str() {
                "/tmp" => places.tmp = size,
                "/dev/shm" => places.shm = size,
                "/run" => places.run = size,
                _ if places.work.is_none() => places.work = Some((at, size)),
                _ => return Err(wrong("beside /tmp, /run and /dev/shm there can be one more".to_owned())),
            }
        }
        if exec && places.noexec {
            let why =
                "`exec` for one place and `noexec` for another: it is held for all that can be written, or for none";
            return Err(self.reader.refused("Tmpfs", why));
        }
        places.executable |= exec;
        places.silent = silent;
        Ok(())
    }

    /// Docker makes a working directory that is missing.
    fn work(&self, places: &mut Places) {
        let path = &self.workdir.path;
        let own = ["/tmp", "/run", "/dev/shm", "/var/tmp"];
        let below = |place: &str| path == place || path.strip_prefix(place).is_some_and(|rest| rest.starts_with('/'));
        let shown =
            places.read.iter().chain(&places.write).any(|(_, to)| below(to)) || own.iter().any(|own| below(own));
        if places.work.is_none() && self.workdir.asked && !shown && !(self.context.has)(path) {
            places.work = Some((path.clone(), None));
        }
    }

    /// Memory, and the places that count in it.
    fn sizes(&self, places: &Places, mapped: &mut ContainerSpec) -> Result<(), Refused> {
        let (host, fs, limits) = (&self.reader, &self.context.ceiling.fs, &self.context.ceiling.limits);
        let asked = host.amount("Memory")?;
        if let Some(swap) = host.number("MemorySwap")?
            && asked.is_none_or(|memory| u64::try_from(swap) != Ok(memory))
        {
            return Err(
                host.refused("MemorySwap", "there is no swap here; give Memory the same number, or leave it out")
            );
        }
        let memory = asked.or(limits.memory.map(|most| most.0)).unwrap_or(MEMORY);
        let shm_asked = host.amount("ShmSize")?.or(places.shm);
        let part =
            |asked: Option<u64>, silent: u64, share: u64| asked.unwrap_or(silent).min((memory / share).max(LEAST));
        let tmp = part(places.tmp, TMP.min(fs.tmp.0), 2);
        let shm = part(shm_asked, SHM.min(fs.shm.0), 4);
        let run = part(places.run, RUN.min(fs.run.0), 16);
        let (at, work_asked) = places.work.as_ref().map_or(("", None), |(at, size)| (at.as_str(), *size));
        let work = part(work_asked, WORK, 8);
        let parts = tmp.saturating_add(shm).saturating_add(run);
        let all = parts.saturating_add(work);
        let disk = limits.disk.map_or(all, |most| all.min(most.0));
        // What they all hold together ends at `limits.disk`: a place more has what the others leave of it.
        let work = work.min(disk.saturating_sub(parts));
        let places = [
            ("/tmp", places.tmp, tmp),
            ("/dev/shm", shm_asked, shm),
            ("/run", places.run, run),
            (at, work_asked, work),
        ];
        for (at, asked, size) in places {
            if asked.is_some_and(|asked| asked > size) {
                let told = format!("{at} ends at {}: what is written there counts as memory", Bytes(size));
                mapped.warnings.push(told);
            }
        }
        let place = |at: &str, size| Place { at: at.to_owned(), size, mode: mode_of(at) };
        let more = Some(place(at, work)).filter(|_| !at.is_empty() && self.is_writable(at));
        let places = [place("/tmp", tmp), place("/run", run)].into_iter().chain(more).collect();
        mapped.held = Held { memory, shm, places, ..std::mem::take(&mut mapped.held) };
        for (clause, size) in
            [("limits.memory", memory), ("fs.tmp", tmp), ("fs.shm", shm), ("fs.run", run), ("limits.disk", disk)]
        {
            set(&mut mapped.layers, clause, &bytes(size));
        }
        Ok(())
    }

    fn files(&self, places: &Places, mapped: &mut ContainerSpec) -> Result<(), Refused> {
        let is_read_only = self.reader.flag("ReadonlyRootfs")?;
        let BodyContext { image, empty, ceiling, .. } = self.context;
        let layers = &mut mapped.layers;
        set(layers, "fs.root", &toml_text(&format!("image:{}", image.digest)));
        set(layers, "fs.read", &grants(&places.read));
        set(layers, "fs.write", &grants(&places.write));
        if !places.write.is_empty() {
            for clause in UNCOUNTED {
                layers.push(PolicyLayer::Flag { name: "--prefer".to_owned(), value: clause.to_owned() });
            }
            mapped.warnings.push("what is written to binds is not counted by limits.disk and limits.files".to_owned());
        }
        let layers = &mut mapped.layers;
        set(layers, "fs.sockets", sockets_of(ceiling.fs.sockets));
        set(layers, "syscalls.profile", &toml_text(&ceiling.syscalls.profile));
        // With a read-only root and folders that hold no programs, nothing that was written is to be run.
        let noexec = ceiling.fs.noexec || places.noexec || (is_read_only && !places.executable);
        if places.silent && !noexec {
            mapped.warnings.push("`noexec`, which Docker gives to Tmpfs unasked, is not held: say it".to_owned());
        }
        if places.noexec && !places.write.is_empty() {
            mapped.warnings.push("`noexec` of Tmpfs is held for binds as well".to_owned());
        }
        mapped.held.noexec = noexec;
        set(layers, "fs.noexec", if noexec { "true" } else { "false" });
        if let Some((at, _)) = &places.work {
            let path = toml_text(&empty.to_string_lossy());
            // It is one of ours, and shown inside as it is: empty.
            let value = format!("{}:/mnt", empty.to_string_lossy());
            layers.push(PolicyLayer::Flag { name: "--dangerous-read".to_owned(), value });
            let mode = if self.is_writable(at) { "copy" } else { "ro" };
            set(layers, "workspace", &format!("{{ path = {path}, at = {}, mode = \"{mode}\" }}", toml_text(at)));
        }
        let told = if is_read_only {
            "/tmp, /run, /var/tmp and the user's home are the container's own and writable"
        } else {
            "the image is read-only; /tmp, /run, /var/tmp, the user's home, a WorkingDir that the image lacks, and binds are writable"
        };
        mapped.warnings.push(told.to_owned());
        Ok(())
    }

    /// Whether the policy's workspace is written to: a working directory that was made is read-only as the root is asked to be.
    fn is_writable(&self, at: &str) -> bool {
        let named = self.reader.fields.get("Tmpfs").and_then(Json::as_object);
        let is_tmpfs = named.into_iter().flatten().any(|(path, _)| inside(path).as_deref() == Some(at));
        is_tmpfs || !self.reader.flag("ReadonlyRootfs").unwrap_or(false)
    }
}

fn mode_of(at: &str) -> Option<u32> {
    MODES.iter().find(|(place, _)| *place == at).map(|(_, mode)| *mode)
}

/// Whether the mode or the owner that is asked for a place is the one that it has.
fn is_so(option: &str, at: &str, uid: u32) -> bool {
    match option.split_once('=') {
        Some(("mode", text)) => mode_of(at).is_some_and(|mode| u32::from_str_radix(text, 8) == Ok(mode)),
        Some((_, text)) => text.parse() == Ok(uid),
        None => false,
    }
}

const fn sockets_of(most: Sockets) -> &'static str {
    match most {
        Sockets::Pairs => "false",
        Sockets::Own | Sockets::Host => "own",
    }
}

fn grants(all: &[(String, String)]) -> String {
    let one = |(from, to): &(String, String)| format!("{{ from = {}, to = {} }}", toml_text(from), toml_text(to));
    format!("[{}]", all.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn bytes(size: u64) -> String {
    toml_text(&format!("{size}B"))
}

/// As the kernel reads `size=` of tmpfs: bytes, or with `k`, `m`, `g`.
fn size_of(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let lower = lower.strip_suffix('b').unwrap_or(&lower);
    let last = lower.chars().last()?;
    let shift = [('k', 10), ('m', 20), ('g', 30)].into_iter().find(|(unit, _)| *unit == last).map_or(0, |(_, by)| by);
    let digits = if shift == 0 { lower } else { lower.get(..lower.len().saturating_sub(1))? };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|size| *size > 0)
}
