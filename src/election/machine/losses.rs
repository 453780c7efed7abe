//! Layer: Core.
//!
//! Which members a new View has gained or lost, and the quarantine of members that are lost
//! repeatedly.

use super::Election;
use super::peers::Link;
use crate::election::agreement::Effect;
use crate::election::notice::Notice;
use crate::events::Loss;
use crate::identity::{MemberId, NodeId};
use crate::status::KeptOut;
use crate::view::View;

impl Election {
    /// The nodes in quarantine, the remaining time of each in milliseconds, and the reason.
    pub fn quarantined(&self, now: u64) -> impl Iterator<Item = (NodeId, u64, KeptOut)> {
        self.quarantine.held(now)
    }

    /// Compares the new View with the previous one and reports joins, mergers, leaves and losses.
    pub(super) fn compare_members(&mut self, now: u64, view: &View) {
        let next: Vec<MemberId> =
            view.members.iter().map(|m| m.id).filter(|id| *id != self.me).collect();
        let apart: Vec<MemberId> = next.iter().copied().filter(|id| self.was_apart(*id)).collect();
        let before = self.members.replace(next.clone());
        let is_merger = before.is_some() && apart.len() > 1;
        let before = before.unwrap_or_default();
        for id in next.iter().filter(|id| !(before.contains(id) || is_merger && apart.contains(id)))
        {
            self.note(Notice::Joined(*id));
        }
        if is_merger {
            self.note(Notice::Merged(apart));
        }
        self.tell_losses(now, &before, view);
        self.count_losses(now, before, view);
    }

    fn was_apart(&mut self, id: MemberId) -> bool {
        self.peers.get_mut(&id).is_some_and(|p| std::mem::take(&mut p.apart))
    }

    fn tell_losses(&mut self, now: u64, before: &[MemberId], view: &View) {
        for id in before.iter().filter(|id| !view.contains(**id)) {
            let peer = self.peers.get(id);
            let expelled = self.quarantine.expels(id.node, now).and_then(loss_of);
            let notice = match peer {
                Some(peer) if peer.left => Notice::Left(*id),
                _ => {
                    let loss = expelled.or(peer.and_then(|p| p.loss)).unwrap_or(Loss::Unreached);
                    Notice::Lost(*id, loss)
                }
            };
            self.note(notice);
        }
    }

    /// Counts the losses of members that did not announce it. When a View splits, the smaller part
    /// is to blame, so a node in the smaller part counts nothing.
    fn count_losses(&mut self, now: u64, before: Vec<MemberId>, view: &View) {
        let (kept, gone): (Vec<MemberId>, Vec<MemberId>) =
            before.into_iter().partition(|id| view.contains(*id));
        // `kept` does not include this node.
        if 2 * (kept.len() + 1) < kept.len() + gone.len() + 1 {
            return;
        }
        for id in gone {
            // If the peer is forgotten, this node itself was away.
            let to_blame = self.peers.get(&id).is_some_and(|p| !p.left);
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
    /// A member that has promised another View does not vote in this one any more. So nobody is
    /// excluded where the View must be replaced in any case, nor while it waits for its disk. If it
    /// waits for long, the View is replaced because of that.
    pub(super) fn on_withheld(&mut self, now: u64, id: MemberId, effects: &mut Vec<Effect>) {
        let is_member = self.agreement.installed().is_some_and(|v| v.contains(id));
        let may_have_promised =
            self.is_frozen() || self.repair_since.is_some() || self.is_persisting(id);
        if !is_member || may_have_promised || self.quarantine.expels(id.node, now).is_some() {
            return;
        }
        let (times, why) = (self.config.quarantine_ms, KeptOut::WithheldVote);
        if let Some(ms) = self.quarantine.expel(id.node, now, times, why) {
            self.note(Notice::Quarantined(id.node, ms));
        }
        effects.push(Effect::Drop(id));
        self.on_lost(now, id, Loss::Withheld, effects);
    }

    /// Counts that a node broke the protocol. Its link is closed each time, and it may come back at
    /// once; but a member that does it again and again is neither lost nor of use, so it is excluded.
    pub(super) fn on_breach(&mut self, now: u64, id: MemberId, effects: &mut Vec<Effect>) {
        if self.quarantine.expels(id.node, now).is_some() {
            return;
        }
        let Some(ms) = self.quarantine.breached(id.node, now, self.config.quarantine_ms) else {
            return;
        };
        self.note(Notice::Quarantined(id.node, ms));
        let is_member = self.agreement.installed().is_some_and(|v| v.contains(id));
        if is_member && !self.is_frozen() {
            self.on_lost(now, id, Loss::BrokeProtocol, effects);
        }
    }

    /// Whether this member is heard, and says that it hears this node.
    pub fn hears_this_node(&self, now: u64, id: MemberId) -> bool {
        let peer = self.peers.get(&id).filter(|p| matches!(p.link, Link::Up { .. }));
        peer.is_some_and(|p| !p.detector.is_quiet(now) && p.deaf_since.is_none())
    }

    /// Whether this member of the installed View reports a later one without this node. It answers
    /// nothing about operations of the earlier View any more.
    pub fn has_left_behind_this_node(&self, id: MemberId) -> bool {
        self.agreement.installed().is_some_and(|view| self.has_gone_on(view, id))
    }

    /// Whether some of these are excluded by quarantine and enough others remain.
    pub(super) fn has_enough_without_some(&self, now: u64, members: &[MemberId]) -> bool {
        let kept_out = members.iter().filter(|m| self.is_kept_out(now, **m)).count();
        kept_out > 0 && members.len() - kept_out >= self.config.partition.members_wanted()
    }
}

/// How a member was lost that is excluded for this reason; `None` if the reason does not say it.
fn loss_of(why: KeptOut) -> Option<Loss> {
    match why {
        KeptOut::LostOften => None,
        KeptOut::WithheldVote => Some(Loss::Withheld),
        KeptOut::BrokeProtocol => Some(Loss::BrokeProtocol),
    }
}
