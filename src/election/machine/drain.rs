//! The drain: a promise is delayed for a while, so that operations can finish in the View.

use super::super::agreement::{Effect, Event};
use super::view_change::Drain;
use super::{Election, Operations};
use crate::identity::MemberId;
use crate::protocol::{Ballot, Message, View};

impl Election {
    pub(super) fn on_prepare(
        &mut self,
        now: u64,
        from: MemberId,
        ballot: Ballot,
        members: Vec<MemberId>,
        ops: &mut dyn Operations,
    ) {
        if !self.agreement.would_promise(from, ballot, &members) {
            self.agree(Event::Message(from, Message::Prepare(ballot, members)), ops);
            return;
        }
        if let Some(before) = self.change.draining.as_ref().filter(|d| d.ballot >= ballot) {
            if before.ballot == ballot {
                // A duplicate; the promise follows at the end of the drain.
                return;
            }
            // By the end of the drain the higher ballot will have been promised.
            self.effects.push(Effect::Send(from, Message::Nack(ballot, before.ballot)));
            return;
        }
        self.yield_to_proposer(now, from);
        // An operation that waits for a lost member or a lost link cannot finish.
        let can_finish =
            |v: &View| v.members.iter().all(|m| members.contains(&m.id)) && !self.is_broken(v);
        let nobody_lost = self.agreement.installed().is_some_and(|v| can_finish(v));
        let lower = self.change.draining.take();
        if let Some(lower) = &lower {
            self.effects.push(Effect::Send(lower.from, Message::Nack(lower.ballot, ballot)));
        }
        if nobody_lost && self.ops_in_flight > 0 && !self.is_frozen() {
            let until = lower.map_or(now + self.config.drain_ms, |lower| lower.until);
            self.change.draining = Some(Drain { from, ballot, members, until });
            return;
        }
        self.agree(Event::Message(from, Message::Prepare(ballot, members)), ops);
    }

    /// Whether another member of the installed View has promised the next one: it begins and votes
    /// no more, so operations that it has not begun cannot finish.
    pub(super) fn drains_in_vain(&self) -> bool {
        let installed = self.agreement.installed_id();
        self.peers.values().any(|p| p.promised_since.is_some() && p.view == installed)
    }

    pub(super) fn finish_drain(&mut self, ops: &mut dyn Operations) {
        if let Some(Drain { from, ballot, members, .. }) = self.change.draining.take() {
            self.agree(Event::Message(from, Message::Prepare(ballot, members)), ops);
        }
    }
}
