//! Members whose control link is being made anew or should be: it is silent, cut off, or lost.

use crate::identity::MemberId;
use std::collections::{BTreeMap, BTreeSet};

/// How often a doubtful member is dialled over other paths. After that the failure detector
/// decides.
const DOUBTS_MAX: u32 = 4;
const DOUBTS_APART_MS: u64 = 300;

/// How long a lost direct link may take to be established again while relays carry the messages: a
/// lost packet of the handshake costs 200 ms.
const AWAITED_MS: u64 = 500;

/// The redials in progress and to come. Times are in milliseconds.
#[derive(Default)]
pub(super) struct Redials {
    /// Members with a redial in progress; they are linked, or were a moment ago.
    under_way: BTreeSet<MemberId>,
    /// Members with a redial in progress that are relayed meanwhile, and until when their data
    /// links are kept.
    awaited: BTreeMap<MemberId, u64>,
    /// Members that may be alive although their link is dead.
    doubts: BTreeMap<MemberId, Doubt>,
}

#[derive(Default)]
struct Doubt {
    dialled: u32,
    /// Time of the next dial.
    next_at: u64,
}

impl Redials {
    /// The data links of the earlier View are gone.
    pub(super) fn view_changed(&mut self) {
        self.awaited.clear();
    }

    pub(super) fn is_any_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Whether a redial may start: a member has at most one at a time, because the two ends might
    /// keep different ones of two links.
    pub(super) fn begin(&mut self, member: MemberId) -> bool {
        self.under_way.insert(member)
    }

    pub(super) fn ended(&mut self, member: MemberId) {
        self.under_way.remove(&member);
    }

    /// Relays now carry the messages of a member. Returns whether a redial may restore its direct
    /// link; then its data link is kept until that is known.
    pub(super) fn awaits_direct(&mut self, now: u64, member: MemberId) -> bool {
        let is_dialled = self.under_way.contains(&member);
        if is_dialled {
            self.awaited.entry(member).or_insert(now + AWAITED_MS);
        }
        is_dialled
    }

    /// The direct link of this member is awaited no longer. Returns whether it was.
    pub(super) fn await_no_longer(&mut self, member: MemberId) -> bool {
        self.awaited.remove(&member).is_some()
    }

    /// Members whose direct link has been awaited for too long.
    pub(super) fn late(&self, now: u64) -> Vec<MemberId> {
        self.awaited.iter().filter(|(_, until)| now >= **until).map(|(id, _)| *id).collect()
    }

    /// Those of the doubtful members that are to be dialled over other paths now.
    pub(super) fn due(&mut self, now: u64, doubtful: &BTreeSet<MemberId>) -> Vec<MemberId> {
        self.doubts.retain(|member, _| doubtful.contains(member));
        let is_due = |member: &&MemberId| {
            let doubt = self.doubts.entry(**member).or_default();
            let is_due = now >= doubt.next_at && doubt.dialled < DOUBTS_MAX;
            if is_due {
                *doubt = Doubt { dialled: doubt.dialled + 1, next_at: now + DOUBTS_APART_MS };
            }
            is_due
        };
        doubtful.iter().filter(is_due).copied().collect()
    }

    /// The member has a link that works.
    pub(super) fn trust(&mut self, member: MemberId) {
        self.doubts.remove(&member);
    }
}
