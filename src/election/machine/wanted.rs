//! The View that a node wants, and from when on it may be proposed.

use super::super::config::Alone;
use super::Election;
use super::peer::{Link, Peer};
use crate::identity::MemberId;
use crate::protocol::{Mutant, Rank, View};
use std::collections::BTreeSet;

/// A proposal that this node would make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) members: BTreeSet<MemberId>,
    /// Earliest time at which the first proposer in the queue may propose it.
    pub(super) from: u64,
}

/// A new direct link must last this long before a View is replaced for its sake, because it may
/// break again.
const LINK_LASTS_MS: u64 = 5000;

impl Election {
    /// The proposal this node wants now, if any.
    ///
    /// | situation | proposed from |
    /// | --- | --- |
    /// | no View yet | end of the damping, see `first_view` |
    /// | a member is lost, or the View is frozen | at once |
    /// | a member is in another View, or the View is broken | a fifth of a turn later |
    /// | one of these, but no View may be made | never; the node is stranded |
    /// | the members would make a View beside a running one, see `beside` | never; the same |
    /// | the group has no place for this node, see `places` | never; the same |
    /// | more members than the View has | end of the damping |
    /// | a new direct link makes a better View possible | `LINK_LASTS_MS` later |
    pub(super) fn wanted(&mut self, now: u64) -> Option<Wanted> {
        let members = self.selected(now);
        let admitted =
            members.contains(&self.me) && self.config.partition.admits(members.iter().copied());
        let is_beside =
            self.is_beside(now, &members) && !self.agreement.breaks(Mutant::BeginsBeside);
        let view = self.agreement.installed().cloned();
        let Some(view) = view else {
            return self.first_view(now, members).filter(|_| admitted && !is_beside);
        };
        let is_left_behind = self.is_left_behind(&view);
        self.left_behind_since = is_left_behind.then(|| self.left_behind_since.unwrap_or(now));
        let may_be = admitted && !(is_left_behind && members.len() < self.least());
        let lost = !self.is_intact(&view, &members) || self.must_yield(now);
        if lost || self.is_frozen() || self.is_out_of_step(now, &view) || self.is_broken(&view) {
            let from = *self.change.repair_since.get_or_insert(now);
            if !may_be || is_beside {
                self.change.stranded_since.get_or_insert(now);
                return None;
            }
            self.change.stranded_since = None;
            // A data link also closes when its member leaves the View for a proposal that has not
            // arrived here yet.
            let grace = if lost || self.is_frozen() { 0 } else { self.config.turn_ms / 5 };
            return Some(Wanted { members, from: from + grace });
        }
        self.change.repair_since = None;
        self.change.stranded_since = None;
        if may_be && members.len() > view.size() {
            return Some(Wanted { from: self.damped(now, &members, Some(&view)), members });
        }
        let since = self.is_outgrown(&view).then(|| self.change.outgrown_since.unwrap_or(now));
        self.change.outgrown_since = since;
        since
            .filter(|_| may_be && view.members.iter().all(|m| members.contains(&m.id)))
            .map(|since| Wanted { members, from: since + LINK_LASTS_MS })
    }

    pub(super) fn first_view(&self, now: u64, members: BTreeSet<MemberId>) -> Option<Wanted> {
        match (members.len(), self.config.alone) {
            (0 | 1, Alone::Waits) => None,
            (0 | 1, Alone::Forms) => Some(Wanted { members, from: self.config.damping_cap_ms.0 }),
            _ => Some(Wanted { from: self.damped(now, &members, None), members }),
        }
    }

    /// The largest set that contains this node, in which all reach each other and which direct
    /// links connect. Ties go to the set with more present members that no other one has excluded.
    /// Quarantined nodes are left out if enough others remain.
    pub(super) fn clique(&mut self, now: u64) -> BTreeSet<MemberId> {
        let wanted = self.least();
        if self.quarantine.held(now).next().is_some() {
            let without = self.clique_where(now, |election, id| !election.is_kept_out(now, id));
            if without.len() >= wanted {
                return without;
            }
        }
        self.clique_where(now, |_, _| true)
    }

    fn clique_where(
        &mut self,
        now: u64,
        may: impl Fn(&Election, MemberId) -> bool,
    ) -> BTreeSet<MemberId> {
        let shunned = |id: &MemberId| {
            self.peers.get(id).is_some_and(|p| p.shunned_until.max(p.refused_until) > now)
        };
        let is_candidate =
            |id: &MemberId| !shunned(id) && !self.is_stuck(now, *id) && may(self, *id);
        let candidates: BTreeSet<MemberId> =
            self.reach(now).into_iter().filter(is_candidate).collect();
        if let Some((known, clique)) = &self.change.clique
            && *known == candidates
        {
            return clique.clone();
        }
        self.links.set_reach(self.me, &candidates);
        let relayed = candidates
            .iter()
            .filter(|id| self.peers.get(id).is_some_and(|p| !p.over.is_empty()))
            .copied()
            .collect();
        self.links.set_relayed(self.me, &relayed);
        let present = self.agreement.installed().into_iter().flat_map(|v| &v.members);
        let mut prefer: BTreeSet<MemberId> = present.map(|m| m.id).collect();
        self.accused().for_each(|accused| _ = prefer.remove(&accused.id));
        let clique = self.links.largest_clique_with(self.me, &prefer);
        // A relay of control links may be outside the View, but bulk data takes direct links
        // between members only.
        let clique = self.links.joined_with(self.me, &clique);
        self.change.clique = Some((candidates, clique.clone()));
        clique
    }

    /// Whether all members of this View still reach each other. A larger clique without one of them
    /// does not count as a loss: nodes that have just met do not know all links yet.
    pub(super) fn is_intact(&self, view: &View, members: &BTreeSet<MemberId>) -> bool {
        let present: BTreeSet<MemberId> = view.members.iter().map(|m| m.id).collect();
        present.is_subset(members)
            || self.links.is_clique(&present)
                && self.links.joined_with(self.me, &present).len() == present.len()
    }

    /// Whether a member of this View has been in another one for longer than an installation takes.
    pub(super) fn is_out_of_step(&self, now: u64, view: &View) -> bool {
        let id = self.agreement.installed_id();
        let astray = |p: &Peer| p.view != id && now >= p.view_since + self.config.phase_ms;
        view.members.iter().filter_map(|m| self.peers.get(&m.id)).any(astray)
    }

    /// Whether this node, or a peer in the same View, says that the View is broken.
    pub(super) fn is_broken(&self, view: &View) -> bool {
        let id = self.agreement.installed_id();
        self.change.broken
            || view
                .members
                .iter()
                .filter_map(|m| self.peers.get(&m.id))
                .any(|p| p.broken && p.view == id)
    }

    /// Whether a new View of the same members would be better: two members without a direct link
    /// now have one. They would get a data link, and perhaps all members another engine.
    pub(super) fn is_outgrown(&self, view: &View) -> bool {
        let id = |rank| view.member(rank).map(|m| m.id);
        let have_one = |(a, b): &(Rank, Rank)| {
            id(*a).zip(id(*b)).is_some_and(|(a, b)| self.links.direct_both_ways(a, b))
        };
        view.no_direct_link.iter().any(have_one)
    }

    /// The end of the damping: the time to propose a View with these new members.
    pub(super) fn damped(
        &self,
        now: u64,
        members: &BTreeSet<MemberId>,
        view: Option<&View>,
    ) -> u64 {
        let new = members
            .iter()
            .filter(|id| view.is_none_or(|v| !v.contains(**id)))
            .filter_map(|id| self.peers.get(id));
        let ups: Vec<u64> = new
            .filter_map(|p| if let Link::Up { since } = p.link { Some(since) } else { None })
            .collect();
        let (first, last) =
            (ups.iter().min().copied().unwrap_or(now), ups.iter().max().copied().unwrap_or(now));
        let pick = |(rest, busy)| if self.ops_in_flight == 0 { rest } else { busy };
        (last + pick(self.config.damping_ms)).min(first + pick(self.config.damping_cap_ms))
    }
}
