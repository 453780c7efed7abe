//! Keeping to one history: the Views that a node must not begin, because a View that it can join is
//! running beside it.
//!
//! A node that was away, was left behind or has just started waits to be admitted by the members of
//! the running View that answer it. It makes no View with others that are outside as well. If no
//! member answers within the timeout after which silence means death, the network counts as
//! partitioned.
//!
//! Only [`Partition::Continue`] needs this: under the other rules two Views cannot run at once.

use super::super::elsewhere::{Report, joins_one, reporters, to_join};
use super::Election;
use super::peer::{Link, Peer};
use crate::identity::MemberId;
use crate::protocol::{Partition, View, ViewId};
use std::collections::BTreeSet;

/// For how long a single member is believed that its View is running, in milliseconds. Each other
/// member of a running View is heard sooner, directly or over a relay.
const BELIEVED_ALONE_MS: u64 = 10_000;

impl Election {
    /// Whether a View of these members would begin a second history beside a running View.
    pub(super) fn is_beside(&self, now: u64, members: &BTreeSet<MemberId>) -> bool {
        if self.config.partition != Partition::Continue {
            return false;
        }
        let running = self.running_elsewhere(now);
        let joins_one = joins_one(members, &running, |id| self.view_of(id));
        !joins_one && (!running.is_empty() || self.waits_for_members(now, members))
    }

    /// Whether a running View keeps this node out, so that this node must leave its own View. If
    /// each of two Views keeps a member of the other one out, the older View ends.
    pub(super) fn must_yield(&self, now: u64) -> bool {
        !self.keeping_out(now).is_empty()
    }

    /// A member that keeps this node out of a running View, and for how long in milliseconds.
    pub fn kept_out_by(&self, now: u64) -> Option<(MemberId, u64)> {
        let left = |p: &Peer| p.keeps_out_until.checked_sub(now).filter(|left| *left > 0);
        let keeps = self.answering(now).filter_map(|(id, _, p)| Some((id, left(p)?)));
        keeps.max_by_key(|(_, left)| *left)
    }

    /// The first contact after this node had none: the others may be heard a little later.
    pub(super) fn on_contact(&mut self, now: u64) {
        if self.reach(now).is_empty() {
            self.returns(now);
        }
    }

    /// This node has been away from its View, if it has one that it cannot continue alone.
    pub(super) fn returns(&mut self, now: u64) {
        if self.agreement.installed().is_some_and(|view| view.size() > 1) {
            self.change.returning_until = now + self.config.limits.dead_cap_ms;
        }
    }

    /// Whether this node has just returned, and a member of its View is not among these.
    fn waits_for_members(&self, now: u64, members: &BTreeSet<MemberId>) -> bool {
        let is_there = |m: MemberId| members.iter().any(|id| id.node == m.node);
        let all_there = |view: &View| view.members.iter().all(|m| is_there(m.id));
        now < self.change.returning_until
            && self.agreement.installed().is_some_and(|view| !all_there(view))
    }

    /// The running Views that this node has to join before it makes one with others. A node that
    /// has a View has to join those that keep it out, too.
    pub(super) fn running_elsewhere(&self, now: u64) -> BTreeSet<ViewId> {
        let running = to_join(self.agreement.has_begun(), &self.reports(now));
        running.into_iter().chain(self.keeping_out(now)).collect()
    }

    /// The reports of Views that have begun. A View that has not begun has no history to lose.
    fn reports(&self, now: u64) -> Vec<Report> {
        let mine = self.agreement.installed();
        let report = |(from, view, p): (MemberId, ViewId, &Peer)| Report {
            from,
            view,
            is_believed: now < p.view_since + BELIEVED_ALONE_MS && !self.is_kept_out(now, from),
            keeps_out: p.keeps_out_until > now,
            is_full: self.is_full(now, view),
            has_gone_on: mine.is_some_and(|mine| self.is_successor(mine, from)),
        };
        self.answering(now).filter(|(_, _, p)| p.begun).map(report).collect()
    }

    /// Whether this peer was in `view` with this node, and is in a later View without it.
    fn is_successor(&self, view: &View, id: MemberId) -> bool {
        view.contains(id) && self.has_gone_on(view, id)
    }

    /// The running Views that keep this node out. Not among them is a View of which this node keeps
    /// a member out, if this node's View is the newer one. One member alone does not end a View.
    fn keeping_out(&self, now: u64) -> BTreeSet<ViewId> {
        let Some(mine) = self.agreement.installed_id() else { return BTreeSet::new() };
        let reports = self.reports(now);
        let is_held =
            |view| reports.iter().any(|r| r.view == view && self.is_kept_out(now, r.from));
        let yields_to = |view: ViewId| view > mine || !is_held(view);
        reports
            .iter()
            .filter(|r| r.keeps_out)
            .map(|r| r.view)
            .filter(|view| *view != mine && reporters(&reports, *view) > 1 && yields_to(*view))
            .collect()
    }

    /// The peers that hear this node and have a View other than its own, each with that View.
    pub(super) fn answering(&self, now: u64) -> impl Iterator<Item = (MemberId, ViewId, &Peer)> {
        let mine = self.agreement.installed_id();
        let answers = move |p: &Peer| {
            let is_up = matches!(p.link, Link::Up { .. });
            is_up
                && p.deaf_since.is_none()
                && !p.left
                && !p.is_stuck(now, self.config.persisting_ms)
        };
        let elsewhere = move |p: &Peer| p.view.filter(|view| Some(*view) != mine);
        self.peers
            .iter()
            .filter(move |(_, p)| answers(p))
            .filter_map(move |(id, p)| Some((*id, elsewhere(p)?, p)))
    }

    fn view_of(&self, id: MemberId) -> Option<ViewId> {
        if id == self.me {
            return self.agreement.installed_id();
        }
        self.peers.get(&id).and_then(|p| p.view)
    }
}
