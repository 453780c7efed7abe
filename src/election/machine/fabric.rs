//! Layer: Core.
//!
//! What is known of the way to a peer: how patient one has to be on it, and whether it works in both directions.

use super::Election;
use super::peers::Link;
use crate::election::detector::Limits;
use crate::election::notice::Notice;
use crate::identity::MemberId;

impl Election {
    /// This machine's end of the link to `id` is a radio. Either end makes both more patient.
    pub fn set_over_radio(&mut self, id: MemberId) {
        if self.peers.contains_key(&id) && self.over_radio.insert(id) {
            self.set_limits(id);
        }
    }

    pub(super) fn limits_of(&self, id: MemberId) -> Limits {
        let theirs = self.peers.get(&id).is_some_and(|p| p.radio);
        if theirs || self.over_radio.contains(&id) { self.config.limits.or(Limits::RADIO) } else { self.config.limits }
    }

    pub(super) fn set_limits(&mut self, id: MemberId) {
        let limits = self.limits_of(id);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.detector.set_limits(limits);
        }
    }

    /// A peer that is heard and has not heard this node for as long as it takes to be dead.
    pub fn one_way(&self, now: u64) -> Option<MemberId> {
        let deaf = |id: MemberId, since: u64| now >= since + self.limits_of(id).dead_cap_ms;
        let found = |(id, p): (&MemberId, &super::Peer)| {
            let is_up = matches!(p.link, Link::Up { .. });
            p.deaf_since.filter(|since| is_up && deaf(*id, *since)).map(|_| *id)
        };
        self.peers.iter().find_map(found)
    }

    pub(super) fn watch_for_one_way(&mut self, now: u64) {
        let found = self.one_way(now);
        if let Some(id) = found.filter(|_| found != self.one_way_told) {
            self.note(Notice::OneWay(id));
        }
        self.one_way_told = found;
    }
}
