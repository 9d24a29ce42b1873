//! A Landlock layer, from the config to the kernel. A missing path is fatal: a rule that is not there would be a
//! weaker layer in the other direction, but a plan that is not kept all the same.

use core::ffi::CStr;

use sys::bare::{self, CloseList, Errno, Fd, Owned, Ruleset, Within};

use crate::config::LandlockView;
use crate::fault::{At as _, Taken};
use crate::identity::same;

/// A device that every program may open and that none needs to call.
const NULL: &CStr = c"/dev/null";

/// Puts a layer on this process. Whether a call of a device that had answered before is refused under it: no rule of the process tier
/// lets a device be called, whatever is granted. Asked before the filter, which may know no such call.
pub(crate) fn put_on(layer: &LandlockView<'_>) -> Taken<bool> {
    let before = bare::call_device(NULL);
    gather(layer)?.restrict_self(layer.flags)?;
    Ok(before == Err(Errno::ENOTTY) && bare::call_device(NULL) == Err(Errno::EACCES))
}

pub(crate) fn gather(layer: &LandlockView<'_>) -> Taken<Ruleset> {
    let ruleset = Ruleset::new(layer.handled_fs, layer.handled_net, layer.scoped)?;
    let mut open = CloseList::default();
    for (at, rule) in layer.rules.iter().enumerate() {
        let path = open_one(rule.path, &mut open).at(at)?;
        if let Some(is) = rule.is {
            same(path.fd(), is).at(at)?;
        }
        ruleset.allow_path(path.fd(), rule.access).at(at)?;
        open.add(path);
    }
    for (at, port) in layer.ports.iter().enumerate() {
        ruleset.allow_port(port.port, port.access).at(layer.rules.len().saturating_add(at))?;
    }
    Ok(ruleset)
}

/// One more path, where the others need not be closed for it: the limit of descriptors holds already.
fn open_one(path: &CStr, open: &mut CloseList) -> bare::Result<Owned> {
    match bare::open_path(Fd::CWD, path, Within::Anywhere) {
        Err(Errno::EMFILE) => {
            open.close();
            bare::open_path(Fd::CWD, path, Within::Anywhere)
        }
        opened => opened,
    }
}
