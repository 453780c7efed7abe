//! The places of a View: which nodes the next View has, if the sizes that they ask for do not admit
//! all nodes that reach each other; and the reason why a node gets no place.

use super::super::left_out::LeftOut;
use super::super::selection::{Candidate, fit, select};
use super::Election;
use super::peer::{Link, Peer};
use crate::identity::MemberId;
use crate::protocol::{MEMBERS_MAX, View, ViewId};
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

    /// The members to propose: those of the clique that one View may have. The set is without this
    /// node if it gets no place, and empty if the members of another View decide about it.
    pub(super) fn selected(&mut self, now: u64) -> BTreeSet<MemberId> {
        let has_to_join = self.own_view().is_none() && !self.running_elsewhere(now).is_empty();
        if has_to_join && self.left_out(now).is_some() {
            return BTreeSet::new();
        }
        let clique = self.clique(now);
        let candidates: Vec<Candidate> = clique.iter().map(|id| self.candidate(*id)).collect();
        let own = self.own_view().and(self.agreement.installed_id());
        let selected = select(own, &candidates);
        match own {
            Some(_) => selected,
            None if selected == clique => selected,
            // The members of a View know which node has waited longest. An outsider leaves it to
            // them.
            None if has_to_join => BTreeSet::new(),
            None => self.selected_without_view(candidates),
        }
    }

    /// The same for a node without a View that has none to join.
    fn selected_without_view(&self, mut candidates: Vec<Candidate>) -> BTreeSet<MemberId> {
        let me = self.candidate(self.me);
        candidates.retain(|c| c.id == self.me || fit([me, *c].iter()));
        if candidates.iter().any(|c| c.id != self.me && c.view.is_some()) {
            return BTreeSet::new();
        }
        select(None, &candidates)
    }

    /// The installed View, unless its members have gone on without this node.
    fn own_view(&self) -> Option<&Arc<View>> {
        self.agreement.installed().filter(|view| !self.is_left_behind(view))
    }

    /// A member waits since its link is up. Nodes without a View do not know the order of arrival:
    /// they go by id, so that all select the same.
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

    /// If a group runs that does not take this node, although it is admitted: why.
    pub fn left_out(&self, now: u64) -> Option<LeftOut> {
        let is_enough = |view: &Arc<View>| view.is_enough_for(self.least());
        if self.agreement.installed().is_some_and(is_enough) && !self.agreement.is_frozen() {
            return None;
        }
        // A View that this node is about to install has a place for it.
        let is_coming = |id| self.agreement.open_views().any(|view| view.id() == id);
        let running = self.answering(now).filter(|(_, view, p)| p.begun && !is_coming(*view));
        let views: BTreeSet<ViewId> = running.map(|(_, view, _)| view).collect();
        let has_place = |view: &&ViewId| !self.is_full(now, **view);
        let view = *views.iter().rev().find(has_place).or(views.last())?;
        let (members, most) = (self.known_members(now, view).count(), self.most(now, view));
        if members >= most {
            return Some(LeftOut::NoPlace { members, most });
        }
        // Others that wait as well may come with it.
        let waiting = self.reach(now).iter().filter(|id| self.has_no_group(**id)).count();
        let present = (members + waiting + 1).min(most);
        let goes_on = self.known_members(now, view).any(|p| p.sizes.min_members() <= present);
        (goes_on && present < self.sizes.min_members()).then_some(LeftOut::TooFew { present })
    }

    /// Whether this running View, of which this node is no member, has no place for it.
    pub(super) fn is_full(&self, now: u64, view: ViewId) -> bool {
        self.known_members(now, view).count() >= self.most(now, view)
    }

    /// The smallest number of members that one of this View, or this node, allows.
    fn most(&self, now: u64, view: ViewId) -> usize {
        let allowed = self.known_members(now, view).map(|p| p.sizes.max_members());
        allowed.min().unwrap_or(MEMBERS_MAX).min(self.sizes.max_members())
    }

    /// The peers that report this View.
    fn known_members(&self, now: u64, view: ViewId) -> impl Iterator<Item = &Peer> {
        self.answering(now).filter(move |(_, theirs, _)| *theirs == view).map(|(_, _, p)| p)
    }

    fn has_no_group(&self, id: MemberId) -> bool {
        self.peers.get(&id).is_some_and(|p| !p.begun)
    }
}
