//! `fumehood machine`: what the vm tier starts from.

use std::path::Path;

use policy::control::Emulator;
use sandbox::Capabilities;
use sandbox::fault::show_text;
use serde_json::json;

use super::args::{Flag, Positionals, To};
use super::doctor::try_kvm;
use super::spec::{Call, Spec};
use crate::ui::Failure;

pub(super) const PREPARE: Spec = Spec {
    path: &["machine", "prepare"],
    about: "Prepare the kernel that machines of the vm tier start from",
    usage: "[--package FILE]",
    more: "As root, once on a host: Debian's newest kernel for virtual machines is fetched by apt, which checks its signature, and unpacked;\n\
           none of its scripts is run. Kernel and modules are kept by digest in /var/lib/fumehood-machine, and checked at each start.\n\
           Where there is a KVM, a machine is tried on it then, for at most a minute: root's machines run on it where that holds.\n\
           Exit code 0; 125 if it cannot be had or kept.",
    tables: &[&[Flag::new(
        "package",
        Some("FILE"),
        To::Ours,
        "A kernel package of Debian for this processor that is here already",
    )]],
    words: Positionals::Mixed(0),
    hidden: false,
    run: prepare,
};

fn prepare(call: &mut Call<'_>) -> Result<u8, Failure> {
    let package = call.parsed.value("package").map(Path::new);
    let kernel = crate::machine::prepare(call.environment, package)?;
    // For root's own machines. Others try it themselves, since it is open to them or not.
    try_kvm(call.environment);
    let on_kvm = Capabilities::probe_with(call.environment.services()).kvm(Emulator::Qemu);
    if call.json {
        let lacks = on_kvm.err().map(|missing| json!({ "why": missing.why, "fix": missing.fix }));
        let said = json!({ "schema": 1, "kernel": kernel, "kvm": lacks.is_none(), "no_kvm": lacks });
        return call.console.json(&said).map(|_| 0);
    }
    let runs = match on_kvm {
        Ok(()) => "root's machines run on KVM".to_owned(),
        Err(lacks) => format!(
            "root's machines run on QEMU's software processor: {}; {}",
            show_text(&lacks.why),
            show_text(&lacks.fix)
        ),
    };
    let text = format!("{} ({}) is prepared: sha256 {}\n{runs}\n", kernel.release, kernel.package, kernel.digest());
    call.console.data(text.as_bytes()).map(|_| 0)
}
