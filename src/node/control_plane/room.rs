//! Room for newcomers among the control links: a host that makes up identities cannot keep others
//! out.

use super::Node;
use crate::election::Input;
use crate::identity::MemberId;
use crate::trace;
use std::net::IpAddr;

/// How long the addresses of a member whose link gave way are not dialled, in milliseconds.
const ASIDE_MS: u64 = 60_000;

impl Node {
    /// If all places for links are taken and `ip` has fewer of them than another address, a link
    /// with a node there ends. Members of Views that this node may be in keep theirs.
    pub(super) fn make_room(&mut self, newcomer: MemberId, ip: IpAddr) {
        let views: Vec<_> = self.election.open_views().cloned().collect();
        let stays = |id: MemberId| views.iter().any(|view| view.contains(id));
        let Some(member) = self.peers.crowded_out_by(newcomer, ip, stays) else { return };
        trace::info!(peer = %member, "most links lead to one address: one of them gives way to a \
            newcomer");
        self.drop_link(member);
        let now = self.now();
        self.roster.set_aside(member, ASIDE_MS, now);
        self.step(Input::LinkDown(member));
        self.give_up(member);
    }
}
