//! Properties of the link to a peer: its silence limits (wired, radio, relayed), and whether it
//! works in both directions.

use super::super::detector::{Limits, Liveness};
use super::super::notice::Notice;
use super::Election;
use super::peer::Link;
use crate::identity::MemberId;

impl Election {
    /// Records that this machine's end of the link to `id` is a radio. A radio at either end raises
    /// the silence limits.
    pub fn set_over_radio(&mut self, id: MemberId) {
        if self.peers.contains_key(&id) && self.over_radio.insert(id) {
            self.set_limits(id);
        }
    }

    /// The silence limits of a peer. Those of a relayed link are the sum over its links.
    pub(super) fn limits_of(&self, id: MemberId) -> Limits {
        let over = self.peers.get(&id).map_or(&[][..], |p| &p.over);
        let Some(first) = over.first() else { return self.limits_of_direct(id) };
        // To 2 over [3, 4]: the direct link to 3, then the legs (3, 4) and (4, 2).
        let legs = over.iter().zip(over.iter().skip(1).chain([&id]));
        let says = |from: &MemberId, to: &MemberId| {
            self.peers.get(from).is_some_and(|p| p.radios.contains(to))
        };
        let of_leg = |(a, b): (&MemberId, &MemberId)| self.limits_if(says(a, b) || says(b, a));
        legs.map(of_leg).fold(self.limits_of_direct(*first), Limits::then)
    }

    fn limits_of_direct(&self, id: MemberId) -> Limits {
        self.limits_if(
            self.over_radio.contains(&id) || self.peers.get(&id).is_some_and(|p| p.radio),
        )
    }

    fn limits_if(&self, radio: bool) -> Limits {
        if radio { self.config.limits.or(Limits::RADIO) } else { self.config.limits }
    }

    /// Whether this peer has been silent for so long that a relayed link may replace its direct
    /// one.
    pub fn is_quiet(&self, now: u64, id: MemberId) -> bool {
        self.peers.get(&id).is_some_and(|p| p.detector.is_quiet(now))
    }

    /// Peers whose direct link is suspect, so that another path to them should be tried.
    pub fn suspects(&self, now: u64) -> impl Iterator<Item = MemberId> {
        let is_suspect = move |p: &super::peer::Peer| {
            let is_up = matches!(p.link, Link::Up { .. }) && p.over.is_empty();
            is_up && p.detector.liveness(now, self.late_ms) == Liveness::Suspect
        };
        self.peers.iter().filter(move |(_, p)| is_suspect(p)).map(|(id, _)| *id)
    }

    pub(super) fn set_limits(&mut self, id: MemberId) {
        let limits = self.limits_of(id);
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.detector.set_limits(limits);
        }
    }

    /// Updates the limits of relayed links after a link under them was found to be a radio, or not.
    pub(super) fn set_limits_of_relayed(&mut self) {
        let relayed: Vec<MemberId> =
            self.peers.iter().filter(|(_, p)| !p.over.is_empty()).map(|(id, _)| *id).collect();
        relayed.into_iter().for_each(|id| self.set_limits(id));
    }

    /// A peer that is heard and has not reported this node as reachable for its `dead_cap_ms`.
    pub fn one_way(&self, now: u64) -> Option<MemberId> {
        let deaf = |id: MemberId, since: u64| now >= since + self.limits_of(id).dead_cap_ms;
        let found = |(id, p): (&MemberId, &super::peer::Peer)| {
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
