//! Controls that hold less than what was planned: the same mechanism with another value.

use std::path::{Path, PathBuf};

use policy::Control;
use policy::control::{CgroupLimit, Cover, Filter, Machine, Variables};
use policy::units::Bytes;
use policy::value::{Root, Threat};

/// What could be applied in the place of a control without holding it; none for a mechanism that has no value, and for what the
/// supervisor arms by itself.
pub(crate) fn values(control: &Control) -> Vec<Control> {
    let mut all = Vec::new();
    if let Control::Tmpfs { at, bytes, inodes } = control {
        all.push(Control::Tmpfs { at, bytes: twice(*bytes), inodes: *inodes });
        all.push(Control::Tmpfs { at, bytes: *bytes, inodes: twice(*inodes) });
    } else if let Control::Overlay { from, at, bytes, inodes } = control {
        let of = |bytes, inodes| Control::Overlay { from: from.clone(), at: at.clone(), bytes, inodes };
        all.extend([of(twice(*bytes), *inodes), of(*bytes, twice(*inodes))]);
        all.push(Control::Overlay { from: elsewhere(from), at: at.clone(), bytes: *bytes, inodes: *inodes });
        all.push(Control::Overlay { from: from.clone(), at: elsewhere(at), bytes: *bytes, inodes: *inodes });
    } else if let Control::Copy { from, at, size: Some((bytes, inodes)) } = control {
        let of = |size| Control::Copy { from: from.clone(), at: at.clone(), size: Some(size) };
        all.extend([of((twice(*bytes), *inodes)), of((*bytes, twice(*inodes)))]);
        all.push(Control::Copy { from: elsewhere(from), at: at.clone(), size: Some((*bytes, *inodes)) });
        all.push(Control::Copy { from: from.clone(), at: elsewhere(at), size: Some((*bytes, *inodes)) });
    } else if let Control::Mount { from, at, write } = control {
        all.extend((!write).then(|| Control::Mount { from: from.clone(), at: at.clone(), write: true }));
        all.push(Control::Mount { from: elsewhere(from), at: at.clone(), write: *write });
        all.push(Control::Mount { from: from.clone(), at: elsewhere(at), write: *write });
    } else if let Control::Root(root) = control {
        let other = if *root == Root::Empty { Root::Host } else { Root::Empty };
        let folder = if let Root::Dir(folder) = root { elsewhere(folder) } else { "/usr".into() };
        all.extend([other, Root::Dir(folder)].map(Control::Root));
    } else if let Control::User { name, id } = control {
        all.push(Control::User { name: name.clone(), id: id.saturating_add(1) });
        all.push(Control::User { name: format!("{name}x"), id: *id });
    } else if let Control::Rule { path, write } = control {
        all.extend((!write).then(|| Control::Rule { path: path.clone(), write: true }));
        all.push(Control::Rule { path: elsewhere(path), write: *write });
    } else if let Control::Executables { abi, files } = control {
        let files = files.iter().cloned().chain(["/bin/sh".into()]).collect();
        all.push(Control::Executables { abi: *abi, files });
    } else if let Control::ReadFolders { abi, folders } = control {
        // One more, and all that is shown.
        let more = folders.iter().cloned().chain(["/usr".into()]).collect();
        all.extend([more, vec!["/".into()]].map(|folders| Control::ReadFolders { abi: *abi, folders }));
    } else if let Control::WriteFolders { abi, folders } = control {
        let folders = folders.iter().cloned().chain(["/usr".into()]).collect();
        all.push(Control::WriteFolders { abi: *abi, folders });
    } else if let Control::Certificates { .. } = control {
        all.push(Control::Certificates { at: Vec::new() });
    } else if let Control::Cgroup { version, limit } = control {
        all.extend(more(limit).map(|limit| Control::Cgroup { version: *version, limit }));
    } else if let Control::Rlimit { resource, value } = control {
        let most = sys::rlimit::get(resource.number()).and_then(|(_, hard)| hard);
        // Of a caller who may have no more than that, the limit holds as well.
        let free = most.is_none_or(|most| most > *value);
        all.extend(free.then(|| Control::Rlimit { resource: *resource, value: twice(*value) }));
    } else if let Control::InMachine(inner) = control {
        all.extend(values(inner).into_iter().map(|other| Control::InMachine(Box::new(other))));
    } else if let Control::EachFile(size) = control {
        all.push(Control::EachFile(Bytes(twice(size.0))));
    } else {
        all.extend(another(control));
    }
    all.retain(|other| other != control);
    all
}

/// Of a mechanism that is more or less than no other, another one.
fn another(control: &Control) -> Option<Control> {
    let text = |name: &str| format!("{name}x");
    let other = if let Control::Hostname(name) = control {
        Control::Hostname(text(name))
    } else if let Control::Umask(mask) = control {
        Control::Umask(mask ^ 0o7)
    } else if let Control::Landlock(_) = control {
        Control::Landlock(1)
    } else if let Control::Filter(Filter::Profile(name)) = control {
        let other = if name == "python" { "strict" } else { "python" };
        Control::Filter(Filter::Profile(other.to_owned()))
    } else if let Control::Filter(Filter::Allow(_)) = control {
        Control::Filter(Filter::Allow(Vec::new()))
    } else if let Control::Covered(_) = control {
        Control::Covered(Cover::Hidden(vec!["nothing".to_owned()]))
    } else if let Control::Filter(Filter::Deny(_)) = control {
        Control::Filter(Filter::Deny(vec!["getcpu".to_owned()]))
    } else if let Control::Filter(Filter::SharedFiles { locks: true, watches }) = control {
        Control::Filter(Filter::SharedFiles { locks: false, watches: *watches })
    } else if let Control::Environment(Variables::Set(values)) = control {
        let values = values.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        Control::Environment(Variables::Set(values))
    } else if let Control::Machine(Machine::Memory(bytes)) = control {
        Control::Machine(Machine::Memory(twice(*bytes)))
    } else if let Control::Machine(Machine::Network { ipv6 }) = control {
        Control::Machine(Machine::Network { ipv6: !ipv6 })
    } else if let Control::Machine(Machine::Kernel { release, digest }) = control {
        Control::Machine(Machine::Kernel { release: text(release), digest: digest.clone() })
    } else if let Control::Machine(Machine::Emulator { program, version, accelerator, against }) = control {
        let against = if *against == Threat::Mistakes { Threat::Hostile } else { Threat::Mistakes };
        let (program, version, accelerator) = (*program, version.clone(), *accelerator);
        Control::Machine(Machine::Emulator { program, version, accelerator, against })
    } else if let Control::Device { at, major, minor } = control {
        Control::Device { at: at.clone(), major: *major, minor: minor.saturating_add(1) }
    } else if let Control::LocalRoutes { ipv6: true } = control {
        Control::LocalRoutes { ipv6: false }
    } else if let Control::Inlets(all) = control {
        let mut all = all.clone();
        all.pop();
        Control::Inlets(all)
    } else {
        return None;
    };
    Some(other)
}

/// A limit of a control group that lets more through.
fn more(limit: &CgroupLimit) -> Option<CgroupLimit> {
    Some(match limit {
        CgroupLimit::Memory(bytes) => CgroupLimit::Memory(twice(*bytes)),
        CgroupLimit::Pids(count) => CgroupLimit::Pids(count.saturating_add(1)),
        CgroupLimit::Cpu { quota_us, period_us } => {
            CgroupLimit::Cpu { quota_us: twice(*quota_us), period_us: *period_us }
        }
        CgroupLimit::IoRead { device, rate } => CgroupLimit::IoRead { device: *device, rate: twice(*rate) },
        CgroupLimit::IoWrite { device, rate } => CgroupLimit::IoWrite { device: *device, rate: twice(*rate) },
        // The machine may have no other core.
        CgroupLimit::Cpuset(_) => return None,
    })
}

/// Another folder of the scene, in which all is found that is looked for in the one that was planned.
fn elsewhere(from: &Path) -> PathBuf {
    from.with_file_name("other")
}

fn twice(value: u64) -> u64 {
    value.saturating_mul(2).max(1)
}
