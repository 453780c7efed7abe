//! Contests between processes with one identity.

use crate::identity::{MemberId, NodeId};
use std::collections::BTreeMap;

/// State about duplicate identities, this node's own and others'.
#[derive(Clone, Debug, Default)]
pub(super) struct Duplicates {
    /// The newcomer that waits for a place, by the holder of the link. At most one for each link.
    pub(super) contests: BTreeMap<MemberId, Contest>,
    pub(super) probes: u64,
    /// By node: when a second process with its identity was last refused here while the first
    /// lived.
    pub(super) seen: BTreeMap<NodeId, u64>,
    pub(super) own_at: Option<u64>,
    pub(super) aside_until: u64,
}

impl Duplicates {
    /// Whether messages of this peer are ignored: it is a newcomer without a place, or this node
    /// has stepped aside.
    pub(super) fn are_at_odds(&self, now: u64, with: MemberId) -> bool {
        self.is_aside(now) || self.contests.values().any(|c| c.newcomer == with)
    }

    pub(super) fn forget_contests(&mut self) {
        self.contests.clear();
    }

    pub(super) fn is_aside(&self, now: u64) -> bool {
        now < self.aside_until
    }
}

#[derive(Clone, Debug)]
pub(super) struct Contest {
    pub(super) newcomer: MemberId,
    /// The relays of its link.
    pub(super) over: Vec<MemberId>,
    /// The number of the ping to the holder.
    pub(super) number: u64,
}
