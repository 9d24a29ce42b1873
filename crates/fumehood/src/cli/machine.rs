//! `fumehood machine`: what the vm tier starts from.

use std::path::Path;

use serde_json::json;

use super::args::{Flag, Positionals, To};
use super::spec::{Call, Spec};
use crate::ui::Failure;

pub(super) const PREPARE: Spec = Spec {
    path: &["machine", "prepare"],
    about: "Prepare the kernel that machines of the vm tier start from",
    usage: "[--package FILE]",
    more: "As root, once on a host: Debian's newest kernel for virtual machines is fetched by apt, which checks its signature, and unpacked;\n\
           none of its scripts is run. Kernel and modules are kept by digest in /var/lib/fumehood-machine, and checked at each start.\n\
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
    if call.json {
        return call.console.json(&json!({ "schema": 1, "kernel": kernel })).map(|_| 0);
    }
    let text = format!("{} ({}) is prepared: sha256 {}\n", kernel.release, kernel.package, kernel.digest());
    call.console.data(text.as_bytes()).map(|_| 0)
}
