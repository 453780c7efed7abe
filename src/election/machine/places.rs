//! The places of a View: the nodes that the next one has, where the sizes that nodes ask for do not
//! allow all that reach each other, and what a node knows that is left out.

use super::super::selection::{Candidate, fit, select};
use super::Election;
use super::peer::{Link, Peer};
use crate::identity::MemberId;
use crate::protocol::{View, ViewId};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Election {
    /// The least number of members that are of use to this node.
    pub(super) fn least(&self) -> usize {
        self.sizes.min_members().max(self.config.partition.members_wanted())
    }

    /// The members that the partition rule demands, where a roster is named; else 0.
    pub fn demanded(&self) -> usize {
        let partition = &self.config.partition;
        partition.roster().map_or(0, |_| partition.members_wanted())
    }

    /// The members to propose: those of the clique that one View may have. Without this node if it
    /// is left out.
    pub(super) fn selected(&mut self, now: u64) -> BTreeSet<MemberId> {
        let clique = self.clique(now);
        let candidates: Vec<Candidate> = clique.iter().map(|id| self.candidate(*id)).collect();
        if fit(candidates.iter()) {
            return clique;
        }
        let own = self.own_view();
        let has_others = candidates.iter().any(|c| c.id != self.me && c.view.is_some());
        if own.is_none() && has_others {
            // The members of a View know who has waited longest. An outsider leaves it to them.
            return BTreeSet::new();
        }
        select(own.and(self.agreement.installed_id()), &candidates)
    }

    /// The installed View, unless its members have gone on without this node.
    fn own_view(&self) -> Option<&Arc<View>> {
        self.agreement.installed().filter(|view| !self.is_left_behind(view))
    }

    /// A member waits since its link is up. Nodes without a View do not know who came first: they
    /// go by id, so that all select the same.
    fn candidate(&self, id: MemberId) -> Candidate {
        let (sizes, mine) = (self.sizes, self.agreement.installed_id());
        if id == self.me {
            return Candidate {
                id,
                sizes,
                view: mine,
                begun: self.agreement.has_begun(),
                since: 0,
            };
        }
        let peer = self.peers.get(&id);
        let up =
            peer.and_then(|p| if let Link::Up { since } = p.link { Some(since) } else { None });
        Candidate {
            id,
            sizes: peer.map_or(sizes, |p| p.sizes),
            view: peer.and_then(|p| p.view),
            begun: peer.is_some_and(|p| p.begun),
            since: up.filter(|_| mine.is_some()).unwrap_or(0),
        }
    }

    /// If a group runs that has no place for this node: its number of members, and the smallest
    /// number that one of them, or this node, allows.
    pub fn left_out(&self, now: u64) -> Option<(usize, usize)> {
        if self.agreement.has_begun() && !self.agreement.is_frozen() {
            return None;
        }
        let running = || self.answering(now).filter(|(_, _, p)| p.begun);
        let newest: ViewId = running().map(|(_, view, _)| view).max()?;
        let members: Vec<&Peer> =
            running().filter(|(_, view, _)| *view == newest).map(|(_, _, p)| p).collect();
        let allowed =
            members.iter().map(|p| p.sizes.max_members()).chain([self.sizes.max_members()]);
        let most = allowed.min()?;
        (members.len() >= most).then_some((members.len(), most))
    }
}
