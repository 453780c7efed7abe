//! Which members a new View has gained or lost, and the quarantine of members that are lost
//! repeatedly.

use super::super::agreement::Effect;
use super::super::notice::Notice;
use super::Election;
use super::peer::Link;
use crate::identity::{MemberId, NodeId};
use crate::protocol::{Accused, View};
use crate::report::{LossReason, QuarantineReason};

/// How long a member says without a gap that it hears this node, before that counts against it.
pub(super) const HEARS_MS: u64 = 2000;

impl Election {
    /// The nodes in quarantine, the remaining time of each in milliseconds, and the reason.
    pub fn quarantined(&self, now: u64) -> impl Iterator<Item = (NodeId, u64, QuarantineReason)> {
        self.quarantine.held(now)
    }

    /// Compares the new View with the previous one and reports joins, mergers, leaves and losses.
    pub(super) fn compare_members(&mut self, now: u64, view: &View) {
        let next: Vec<MemberId> =
            view.members.iter().map(|m| m.id).filter(|id| *id != self.me).collect();
        let in_other_view: Vec<MemberId> =
            next.iter().copied().filter(|id| self.was_in_other_view(*id)).collect();
        let before = self.members.replace(next.clone());
        let is_merger = before.is_some() && in_other_view.len() > 1;
        let before = before.unwrap_or_default();
        for id in next
            .iter()
            .filter(|id| !(before.contains(id) || is_merger && in_other_view.contains(id)))
        {
            self.note(Notice::Joined(*id));
        }
        if is_merger {
            self.note(Notice::Merged(in_other_view));
        }
        let is_larger = is_the_larger_part(&before, view);
        if is_larger {
            self.adopt_exclusions(now, &before, view);
        }
        // The reports end with the View that they are about.
        self.peers.values_mut().for_each(|p| p.accused.clear());
        self.tell_losses(now, &before, view);
        if is_larger {
            self.count_losses(now, &before, view);
        }
    }

    fn was_in_other_view(&mut self, id: MemberId) -> bool {
        self.peers.get_mut(&id).is_some_and(|p| std::mem::take(&mut p.in_other_view))
    }

    fn tell_losses(&mut self, now: u64, before: &[MemberId], view: &View) {
        for id in before.iter().filter(|id| !view.contains(**id)) {
            let peer = self.peers.get(id);
            let expelled = self.quarantine.expels(id.node, now).and_then(loss_of);
            let notice = match peer {
                Some(peer) if peer.left => Notice::Left(*id),
                _ => {
                    let loss =
                        expelled.or(peer.and_then(|p| p.loss)).unwrap_or(LossReason::Unreached);
                    Notice::Lost(*id, loss)
                }
            };
            self.note(notice);
        }
    }

    /// Counts the losses of members that did not announce it.
    fn count_losses(&mut self, now: u64, before: &[MemberId], view: &View) {
        for id in before.iter().filter(|id| !view.contains(**id)) {
            // If the peer is forgotten, this node itself was away.
            let to_blame = self.peers.get(id).is_some_and(|p| !p.left);
            if to_blame
                && let Some(ms) = self.quarantine.lost(id.node, now, self.config.quarantine_ms)
            {
                self.note(Notice::Quarantined(id.node, ms));
            }
        }
    }

    /// Whether `id` is excluded by quarantine. A member of the installed View is excluded only for
    /// a vote that it withholds, or for breaking the protocol again and again.
    pub(super) fn is_kept_out(&self, now: u64, id: MemberId) -> bool {
        let is_member = || self.agreement.installed().is_some_and(|v| v.contains(id));
        self.quarantine.holds(id.node, now)
            && (self.quarantine.expels(id.node, now).is_some() || !is_member())
    }

    /// How long `id` is still kept out of new Views, in milliseconds; 0 if it is not.
    pub(super) fn keeps_out_ms(&self, now: u64, id: MemberId) -> u32 {
        if !self.is_kept_out(now, id) {
            return 0;
        }
        let left = self.quarantine.left_ms(id.node, now);
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// Excludes a member that withholds its vote, because it keeps every call of the View open: its
    /// link ends, its quarantine begins, and the View must be replaced.
    ///
    /// A member that has promised another View does not vote in this one any more. So a member is
    /// not excluded while it says so, or waits for its disk.
    pub(super) fn on_withheld(&mut self, now: u64, id: MemberId) {
        let is_member = self.agreement.installed().is_some_and(|v| v.contains(id));
        let may_not_vote = self.is_frozen() || self.is_persisting(id) || self.promises(now, id);
        if !is_member || may_not_vote || self.quarantine.expels(id.node, now).is_some() {
            return;
        }
        self.exclude(now, id, QuarantineReason::WithheldVote);
        self.effects.push(Effect::Drop(id));
        self.on_lost(now, id, LossReason::Withheld);
    }

    /// Whether a member says that it has promised another View. Where this View need not be
    /// replaced, it may say so for as long as a proposal may wait for a disk.
    fn promises(&self, now: u64, id: MemberId) -> bool {
        let since = self.peers.get(&id).and_then(|p| p.promised_since);
        let may = |since: u64| {
            self.change.repair_since.is_some() || now < since + self.config.persisting_ms
        };
        since.is_some_and(may)
    }

    /// The other members of the installed View that this node has excluded from it.
    pub(super) fn excluded_members(&self, now: u64) -> Vec<Accused> {
        let members = self.agreement.installed().into_iter().flat_map(|v| &v.members);
        let others = members.map(|m| m.id).filter(|id| *id != self.me);
        let accused = |id: MemberId| {
            let why = self.quarantine.expels(id.node, now)?;
            Some(Accused { id, breach: why == QuarantineReason::BrokeProtocol })
        };
        others.filter_map(accused).collect()
    }

    /// The members of the installed View that another member reports as excluded.
    pub(super) fn accused(&self) -> impl Iterator<Item = Accused> {
        let members = self.agreement.installed().into_iter().flat_map(|v| &v.members);
        let reports = members.filter_map(|m| self.peers.get(&m.id)).flat_map(|p| &p.accused);
        reports.copied()
    }

    /// A member of the new View that has excluded one of the previous View had a reason: all keep
    /// that one out, and tell the same reason.
    fn adopt_exclusions(&mut self, now: u64, before: &[MemberId], view: &View) {
        let stay = self.peers.iter().filter(|(id, _)| view.contains(**id));
        let reports: Vec<Accused> = stay.flat_map(|(_, p)| &p.accused).copied().collect();
        let are_gone = |a: &&Accused| before.contains(&a.id) && !view.contains(a.id);
        for Accused { id, breach } in reports.iter().filter(are_gone) {
            self.exclude(
                now,
                *id,
                if *breach {
                    QuarantineReason::BrokeProtocol
                } else {
                    QuarantineReason::WithheldVote
                },
            );
        }
    }

    /// Begins the quarantine of a member for this reason, unless it is excluded already.
    fn exclude(&mut self, now: u64, id: MemberId, why: QuarantineReason) {
        if self.quarantine.expels(id.node, now).is_none()
            && let Some(ms) = self.quarantine.expel(id.node, now, self.config.quarantine_ms, why)
        {
            self.note(Notice::Quarantined(id.node, ms));
        }
    }

    /// Counts that a node broke the protocol. Its link is closed each time, and it may come back at
    /// once; but a member that does it again and again is neither lost nor of use, so it is
    /// excluded.
    pub(super) fn on_breach(&mut self, now: u64, id: MemberId) {
        if self.quarantine.expels(id.node, now).is_some() {
            return;
        }
        let Some(ms) = self.quarantine.breached(id.node, now, self.config.quarantine_ms) else {
            return;
        };
        self.note(Notice::Quarantined(id.node, ms));
        let is_member = self.agreement.installed().is_some_and(|v| v.contains(id));
        if is_member && !self.is_frozen() {
            self.on_lost(now, id, LossReason::BrokeProtocol);
        }
    }

    /// Whether this member is heard, and has said without a gap for [`HEARS_MS`] that it hears this
    /// node. A network may hold heartbeats back and deliver them at once: then the member heard
    /// this node long ago, and its answers are behind them.
    pub fn hears_this_node(&self, now: u64, id: MemberId) -> bool {
        let peer = self.peers.get(&id).filter(|p| matches!(p.link, Link::Up { .. }));
        let says_so = |since: u64| now >= since + HEARS_MS;
        peer.is_some_and(|p| !p.detector.is_quiet(now) && p.hears_since.is_some_and(says_so))
    }

    /// Whether this member of the installed View reports a later one without this node. It answers
    /// nothing about operations of the earlier View any more.
    pub fn has_left_behind_this_node(&self, id: MemberId) -> bool {
        self.agreement.installed().is_some_and(|view| self.has_gone_on(view, id))
    }

    /// Whether some of these are excluded by quarantine and enough others remain.
    pub(super) fn has_enough_without_some(&self, now: u64, members: &[MemberId]) -> bool {
        let kept_out = members.iter().filter(|m| self.is_kept_out(now, **m)).count();
        kept_out > 0 && members.len() - kept_out >= self.least()
    }
}

/// Whether the new View has at least half of the previous one, whose other members are given. When
/// a View splits, the smaller part is to blame, so a node in the smaller part blames no member.
fn is_the_larger_part(before: &[MemberId], view: &View) -> bool {
    let kept = before.iter().filter(|id| view.contains(**id)).count();
    2 * (kept + 1) > before.len()
}

/// How a member was lost that is excluded for this reason; `None` if the reason does not say it.
fn loss_of(why: QuarantineReason) -> Option<LossReason> {
    match why {
        QuarantineReason::LostOften => None,
        QuarantineReason::WithheldVote => Some(LossReason::Withheld),
        QuarantineReason::BrokeProtocol => Some(LossReason::BrokeProtocol),
    }
}
