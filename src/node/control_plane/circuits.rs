//! The circuits of a node, and its search for lost members.

use crate::identity::MemberId;
use crate::relay::{Answering, Seeker, Switch, Tunnels};
use std::collections::BTreeMap;

/// This node's circuits and its search for lost members.
pub(super) struct Relays {
    pub(super) switch: Switch,
    pub(super) tunnels: Tunnels,
    pub(super) seeker: Seeker,
    /// Members whose link has ended: until when the search is urgent, in milliseconds, and the
    /// state of the direct dial.
    pub(super) lost: BTreeMap<MemberId, (u64, DirectDial)>,
    pub(super) answering: Answering,
}

/// The state of the direct dial of a member whose link has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectDial {
    UnderWay,
    /// Not started, or failed.
    Over,
}

impl Relays {
    pub(super) fn new(me: MemberId, tunnels: Tunnels) -> Relays {
        Relays {
            switch: Switch::new(me),
            tunnels,
            seeker: Seeker::new(me),
            lost: BTreeMap::new(),
            answering: Answering::default(),
        }
    }
}
