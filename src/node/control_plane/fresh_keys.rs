//! Renews the links that are old, or by a key that is not accepted any more.

use super::super::data_path::DataPath;
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
        if self.moves_links() || self.installed.session().is_some_and(|e| e.is_frozen()) {
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

    /// Renews the links for the status by a key that is not accepted any more. The new link
    /// replaces the old one at both ends.
    pub(super) fn renew_status_links(&mut self) {
        if !self.access.changes_key() {
            return;
        }
        for dial in self.status_links.renewals(self.now()) {
            trace::debug!(to = %dial.to, "a link for the status gets the new cluster key");
            self.handshakes.dial(dial);
        }
    }

    fn oldest_link(&self, now: u64) -> Option<Old> {
        let is_stale = |data_path: &DataPath| !self.access.accepts(data_path.at().psk);
        let old =
            self.peers.iter().filter(|(_, link)| link.is_direct()).filter_map(|(id, link)| {
                let limit = self.renewals.age_max(*id);
                let rank = self.installed.rank_of(*id);
                let data_path = rank.and_then(|rank| self.paths.data_path(rank));
                let renews_itself = data_path.is_some_and(DataPath::may_be_moving);
                let data_path =
                    data_path.filter(|data_path| is_stale(data_path) || data_path.age() >= limit);
                let is_stale = !self.access.accepts(link.psk()) || data_path.is_some_and(is_stale);
                let is_old = data_path.is_some() || is_stale || link.age() >= limit;
                // The data link may be at another address.
                let mut to = data_path.map_or(link.address, |data_path| data_path.at().theirs);
                to.set_port(link.address.port());
                let data = rank.filter(|_| data_path.is_some());
                (is_old && !renews_itself).then_some(Old { member: *id, to, data, is_stale })
            });
        old.filter(|old| self.renewals.is_due(now, old.member, old.is_stale))
            .min_by_key(|old| (!old.is_stale, self.renewals.tried_at(old.member)))
    }
}
