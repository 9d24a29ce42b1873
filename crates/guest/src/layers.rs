//! A Landlock layer, from the config to the kernel. A missing path is fatal: a rule that is not there would be a
//! weaker layer in the other direction, but a plan that is not kept all the same.

use sys::bare::{self, Fd, Ruleset, Within};

use crate::config::LandlockView;
use crate::confine::{At, Taken, same};

pub(crate) fn gather(layer: &LandlockView<'_>) -> Taken<Ruleset> {
    let ruleset = Ruleset::new(layer.handled_fs, layer.handled_net, layer.scoped)?;
    for (at, rule) in layer.rules.iter().enumerate() {
        let path = bare::open_path(Fd::CWD, rule.path, Within::Anywhere).at(at)?;
        if let Some(is) = rule.is {
            same(path.fd(), is).at(at)?;
        }
        ruleset.allow_path(path.fd(), rule.access).at(at)?;
    }
    for (at, port) in layer.ports.iter().enumerate() {
        ruleset.allow_port(port.port, port.access).at(layer.rules.len().saturating_add(at))?;
    }
    Ok(ruleset)
}
