//! What the guest knows and holds, from its first step to its last.

use sys::bare::{Owned, Ruleset, Witness};

use crate::config::View;
use crate::frames::{Address, Posture};
use crate::link::{Inbox, Link};
use crate::mounts::{Tree, wants_scratch};
use crate::ready::Ready;

/// The master and the other side.
pub(crate) struct Terminal {
    pub(crate) master: Owned,
    pub(crate) slave: Option<Owned>,
}

/// All that the guest knows.
pub(crate) struct Guest<'a> {
    pub(crate) view: View<'a>,
    pub(crate) link: Link,
    pub(crate) inbox: Inbox,
    /// The payload's channel, and the request by which it was started.
    pub(crate) first: Address,
    pub(crate) children: Option<Owned>,
    pub(crate) terminal: Option<Terminal>,
    pub(crate) payload_layer: Option<(Ruleset, u32)>,
    pub(crate) layers: u8,
    pub(crate) device_refused: bool,
    pub(crate) scope_proven: bool,
    pub(crate) payload_scope_proven: bool,
    pub(crate) keyring_replaced: bool,
    /// A link was not told before its folder was granted, and was afterwards.
    pub(crate) link_refused: bool,
    pub(crate) link_told: bool,
    pub(crate) inner_limits: bool,
    /// Foreign addresses of IPv4 and IPv6 were seen to lead here.
    pub(crate) local: [bool; 2],
    /// Made before *go*, while the supervisor judges.
    pub(crate) ready: Option<Ready<'a>>,
    /// The kernel's word for the label that the next program gets.
    pub(crate) label: Option<Owned>,
    pub(crate) tree: Tree,
    pub(crate) witness: Option<Witness>,
    pub(crate) posture: Posture,
}

impl<'a> Guest<'a> {
    /// Before its first step.
    pub(crate) fn new(view: View<'a>, link: Link) -> Self {
        Self {
            tree: Tree::new(view.ops.iter().any(|op| wants_scratch(&op))),
            view,
            link,
            inbox: Inbox::default(),
            first: Address::default(),
            children: None,
            terminal: None,
            payload_layer: None,
            layers: 0,
            device_refused: false,
            scope_proven: false,
            payload_scope_proven: false,
            keyring_replaced: false,
            link_refused: false,
            link_told: false,
            inner_limits: false,
            local: [false; 2],
            ready: None,
            label: None,
            witness: None,
            posture: Posture::default(),
        }
    }
}
