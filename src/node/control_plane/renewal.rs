//! Fresh keys for links that live long.
//!
//! The keys of a link come from its handshake. Inside the link they only go forward, so whoever
//! reads the memory of a node once could decrypt all that the link carries afterwards. Therefore a
//! link that is a day old is replaced by a new one over the same path, with a new key exchange: the
//! data link moves as to another path, then the control link is redialled. No call notices. The
//! same is done at once with links of a cluster key that is not accepted any more, relayed ones
//! included.

use super::Node;
use super::ways::{Aim, Round};
use crate::identity::MemberId;
use crate::link::PskNumber;
use crate::protocol::Rank;
use crate::trace;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// When a link gets fresh keys.
pub const RENEW_AFTER: Duration = Duration::from_secs(24 * 3600);

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

impl Node {
    /// Renews the links with one member, if they are old. The member of the two with the smaller
    /// node id does this; if it cannot dial, the other one does when they are twice as old.
    pub(super) fn renew_links(&mut self) {
        let now = self.now();
        if self.ways.is_busy() || self.envelope.as_ref().is_some_and(|e| e.is_frozen()) {
            return;
        }
        let linked = &self.peers;
        self.renewals.retain(|member, _| linked.get(*member).is_some());
        let Some(Old { member, to, data, .. }) = self.oldest_link(now) else { return };
        self.renewals.insert(member, now);
        let moves_data = data.is_some();
        trace::debug!(peer = %member, moves_data, "the links with a member get fresh keys");
        match data {
            None => _ = self.redial(member, vec![to]),
            Some(peer) => {
                let rest = VecDeque::from([to]);
                self.begin_round(Round::of(Aim::FreshKeys, peer, member, 0, rest));
            }
        }
    }

    fn oldest_link(&self, now: u64) -> Option<Old> {
        let view = self.envelope.as_ref().map(|e| e.view());
        let accepts = |psk: PskNumber| self.config.local.accepts(psk);
        let old =
            self.peers.iter().filter(|(_, link)| link.is_direct()).filter_map(|(id, link)| {
                let limit = self.age_max(*id);
                let rank = view.and_then(|view| view.rank_of(*id));
                let is_stale = |rank: Rank| self.ways.psk_of(rank).is_some_and(|psk| !accepts(psk));
                let is_old = |rank: Rank| self.ways.age_of(rank).is_some_and(|age| age >= limit);
                let data = rank.filter(|rank| is_stale(*rank) || is_old(*rank));
                let is_stale = !accepts(link.psk()) || data.is_some_and(is_stale);
                let is_old = data.is_some() || is_stale || link.age() >= limit;
                let renews_itself = rank.is_some_and(|rank| self.ways.is_offered_by(rank));
                // The data link may be at another address.
                let mut to = data.and_then(|rank| self.ways.place_of(rank)).unwrap_or(link.address);
                to.set_port(link.address.port());
                (is_old && !renews_itself).then_some(Old { member: *id, to, data, is_stale })
            });
        let pause = self.config.renew_after / RETRIES;
        let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        let is_due = |old: &Old| {
            let pause = if old.is_stale { pause.min(PRESSING_MS) } else { pause };
            self.renewals.get(&old.member).is_none_or(|at| now >= at + pause)
        };
        old.filter(is_due)
            .min_by_key(|old| (!old.is_stale, self.renewals.get(&old.member).copied()))
    }

    fn age_max(&self, member: MemberId) -> Duration {
        let after = self.config.renew_after;
        if self.me.node < member.node { after } else { 2 * after }
    }
}

/// The pause between two tries to renew a link whose cluster key is not accepted any more, in
/// milliseconds.
const PRESSING_MS: u64 = 500;

/// Tries per [`RENEW_AFTER`]: one every half hour.
const RETRIES: u32 = 48;
