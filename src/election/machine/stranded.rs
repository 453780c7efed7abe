//! A node that is stranded: its View must be replaced, and no View may be made. This file decides
//! when the node gives up the operations of its View.

use super::peer::{Link, Peer};
use super::view_change::Attempt;
use super::{Election, LiveEnvironment, Operations};
use crate::identity::MemberId;
use crate::protocol::{Mutant, View};

/// A node that is left behind by a View gives up the operations of its own View after this many
/// phases of a proposal.
const LEFT_BEHIND_PHASES: u64 = 3;

impl Election {
    /// If this node is stranded: how many members of its View are reachable, itself included.
    /// Stranded means that the View must be replaced and no View may be made. Members that are in a
    /// later View do not count.
    pub fn stranded(&self, now: u64) -> Option<usize> {
        let view = self.agreement.installed().filter(|_| self.change.stranded_since.is_some())?;
        let alive = self.reach(now);
        let is_here =
            |id: MemberId| id == self.me || alive.contains(&id) && !self.has_gone_on(view, id);
        Some(view.members.iter().filter(|m| is_here(m.id)).count())
    }

    /// Whether a member of this View reports a later View without this node. The open operations
    /// are decided there; a part below `min_members` could only guess their outcome.
    pub(super) fn is_left_behind(&self, view: &View) -> bool {
        view.members.iter().any(|m| self.has_gone_on(view, m.id))
    }

    pub(super) fn has_gone_on(&self, view: &View, id: MemberId) -> bool {
        let is_in_a_later_one =
            |p: &Peer| p.in_other_view && p.view.is_some_and(|theirs| theirs.ballot > view.ballot);
        self.peers
            .get(&id)
            .is_some_and(|p| matches!(p.link, Link::Up { .. }) && is_in_a_later_one(p))
    }

    /// When this node is stranded, or frozen with a stuck disk: ends the open operations as
    /// indeterminate, because others may decide them elsewhere. Without open operations it only
    /// freezes the View.
    pub(super) fn give_up_when_stranded(&mut self, now: u64, ops: &mut dyn Operations) {
        if !(self.is_stranded(now) || self.is_frozen() && self.disk_is_stuck(now)) {
            return;
        }
        let mut environment = LiveEnvironment { ops, links: &self.links };
        if self.ops_in_flight > 0 {
            self.agreement.cut_off(&mut environment, &mut self.effects);
            self.change.attempt = Attempt::Idle;
        } else {
            self.agreement.freeze(&mut environment);
        }
    }

    /// Whether no View that could decide the operations of this one can be expected any more.
    fn is_stranded(&self, now: u64) -> bool {
        // No View decides them after the View that follows, so this node need not wait for a place
        // in a View. A single member that reports a View that is not there is replaced before this.
        let is_late = |since| now >= since + LEFT_BEHIND_PHASES * self.config.phase_ms;
        if self.left_behind_since.is_some_and(is_late)
            && !self.agreement.breaks(Mutant::WaitsForItsDisk)
        {
            return true;
        }
        // Members of a later View either admit this node as quickly as any joiner, or refuse it for
        // longer than this.
        let is_left_behind = self.must_yield(now)
            || self.agreement.installed().is_some_and(|view| self.is_left_behind(view));
        let patience =
            if is_left_behind { self.config.damping_cap_ms.0 } else { self.config.phase_ms };
        self.change.stranded_since.is_some_and(|since| now >= since + patience)
    }

    /// Whether the others have stopped waiting for this node's disk and go on without it.
    fn disk_is_stuck(&self, now: u64) -> bool {
        self.disk_waits_ms(now).is_some_and(|ms| ms >= self.config.persisting_ms)
            && !self.agreement.breaks(Mutant::WaitsForItsDisk)
    }

    /// How long this node has been waiting for its disk, in milliseconds; `None` if it is not.
    pub fn disk_waits_ms(&self, now: u64) -> Option<u64> {
        self.persisting_since.map(|since| now.saturating_sub(since))
    }
}
