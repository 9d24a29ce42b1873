//! The machine's one network device: its other side takes every address for its own, and nobody else is there.

use std::time::{Duration, Instant};

use sys::bare::{self, Errno};

use super::init::{Fault, LOOK, call, is_one_of};
use super::{NETWORK, Network};

/// How long the device may take to appear.
const APPEARS: Duration = Duration::from_secs(60);

/// Whether a module finds it, by the name of its file.
pub(super) fn is_module(name: &str) -> bool {
    is_one_of(name, NETWORK)
}

/// Makes it the way to everything, when it has been found.
pub(super) fn join(network: &Network) -> Result<(), Fault> {
    let began = Instant::now();
    loop {
        match bare::join_link(network.ipv6) {
            Err(Errno::ENODEV) if began.elapsed() < APPEARS => drop(rustix::event::poll(&mut [], Some(&LOOK))),
            joined => return joined.map_err(call("the network device")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_known_by_their_names() {
        for (file, of_network) in [
            ("/modules/10-virtio_net.ko", true),
            ("/modules/09-net_failover.ko", true),
            ("/modules/06-virtio_blk.ko", false),
            ("/modules/05-virtio_console.ko", false),
        ] {
            assert_eq!(is_module(file), of_network, "{file}");
        }
    }
}
