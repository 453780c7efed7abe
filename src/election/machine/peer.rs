//! The known state of one other node.

use crate::election::detector::Detector;
use crate::identity::MemberId;
use crate::protocol::{Accused, Sizes, ViewId};
use crate::report::LossReason;
use std::collections::BTreeSet;

/// The known state of one other node.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) detector: Detector,
    /// State of the control link, and since when.
    pub(super) link: Link,
    pub(super) view: Option<ViewId>,
    /// The group of its View has begun.
    pub(super) begun: bool,
    /// The sizes of the group that it asks for, once its first heartbeat is here.
    pub(super) sizes: Sizes,
    /// The relays of the link, in order from this node; empty for a direct link.
    pub(super) over: Vec<MemberId>,
    /// The members it reports as reachable.
    pub(super) reach: BTreeSet<MemberId>,
    /// Those of them it reaches through relays.
    pub(super) relayed: BTreeSet<MemberId>,
    /// Those of them it reaches over a radio of its own.
    pub(super) radios: BTreeSet<MemberId>,
    pub(super) view_since: u64,
    /// Since when it reports that it waits for its disk.
    pub(super) persisting_since: Option<u64>,
    /// It reports that it has lost a data link of its View.
    pub(super) broken: bool,
    pub(super) left: bool,
    /// How its loss was detected.
    pub(super) loss: Option<LossReason>,
    /// It has reported a View that this node is not part of, since the two last shared one.
    pub(super) in_other_view: bool,
    /// Its end of the direct link is a radio.
    pub(super) radio: bool,
    /// Since when it is heard but does not report this node as reachable.
    pub(super) deaf_since: Option<u64>,
    /// Since when it reports without a gap that it hears this node.
    pub(super) hears_since: Option<u64>,
    pub(super) shunned_until: u64,
    /// It refused this node during a repair; it is not proposed again before this time.
    pub(super) refused_until: u64,
    /// It reports that it keeps this node out of new Views until this time.
    pub(super) keeps_out_until: u64,
    /// Since when it reports that it has promised another View than it is in.
    pub(super) promised_since: Option<u64>,
    /// The members that it reports as excluded from its View.
    pub(super) accused: Vec<Accused>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Up { since: u64 },
    Down { since: u64 },
    Gone,
}

impl Peer {
    /// A relayed link may have to wait for each of its links to be re-dialled; it gets at most this
    /// many re-dial times.
    const REDIALS_MAX: u64 = 3;

    pub(super) fn alive(&self, now: u64, redial_ms: u64) -> bool {
        let links = (1 + self.over.len() as u64).min(Peer::REDIALS_MAX);
        !self.left
            && match self.link {
                Link::Up { .. } => true,
                Link::Down { since } => now < since + links * redial_ms,
                Link::Gone => false,
            }
    }

    /// Its disk has been busy for longer than any member waits. It is left out of proposals until
    /// the disk has answered.
    pub(super) fn is_stuck(&self, now: u64, persisting_ms: u64) -> bool {
        self.persisting_since.is_some_and(|since| now >= since + persisting_ms)
    }
}
