//! Renews the links that are old, or by a key that is not accepted any more.

use super::super::data_paths::Aim;
use super::ControlPlane;
use crate::identity::MemberId;
use crate::protocol::Rank;
use crate::trace;
use std::net::SocketAddr;

/// A link to be renewed.
struct Old {
    member: MemberId,
    /// The listening address of the peer.
    to: SocketAddr,
    /// The rank of a member whose data link is old, too.
    data: Option<Rank>,
    /// Its cluster key is not accepted any more.
    is_stale: bool,
}

impl ControlPlane {
    /// Renews the links with one member, if they are old.
    pub(super) fn renew_links(&mut self) {
        if self.moves_links() || self.installed.envelope().is_some_and(|e| e.is_frozen()) {
            return;
        }
        let (now, linked) = (self.now(), &self.peers);
        self.renewals.keep(|member| linked.get(member).is_some());
        let Some(Old { member, to, data, .. }) = self.oldest_link(now) else { return };
        self.renewals.begun(now, member);
        let moves_data = data.is_some();
        trace::debug!(peer = %member, moves_data, "the links with a member get fresh keys");
        match data {
            None => _ = self.redial(member, vec![to]),
            Some(peer) => self.begin_round(Aim::FreshKeys, (peer, member), 0, vec![to]),
        }
    }

    fn oldest_link(&self, now: u64) -> Option<Old> {
        let is_stale =
            |rank: Rank| self.paths.psk_of(rank).is_some_and(|psk| !self.access.accepts(psk));
        let old =
            self.peers.iter().filter(|(_, link)| link.is_direct()).filter_map(|(id, link)| {
                let limit = self.renewals.age_max(*id);
                let rank = self.installed.rank_of(*id);
                let is_old = |rank: Rank| self.paths.age_of(rank).is_some_and(|age| age >= limit);
                let data = rank.filter(|rank| is_stale(*rank) || is_old(*rank));
                let is_stale = !self.access.accepts(link.psk()) || data.is_some_and(is_stale);
                let is_old = data.is_some() || is_stale || link.age() >= limit;
                let renews_itself = rank.is_some_and(|rank| self.paths.is_offered_by(rank));
                // The data link may be at another address.
                let mut to =
                    data.and_then(|rank| self.paths.place_of(rank)).unwrap_or(link.address);
                to.set_port(link.address.port());
                (is_old && !renews_itself).then_some(Old { member: *id, to, data, is_stale })
            });
        old.filter(|old| self.renewals.is_due(now, old.member, old.is_stale))
            .min_by_key(|old| (!old.is_stale, self.renewals.tried_at(old.member)))
    }
}
