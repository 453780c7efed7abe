//! Proposer scheduling and back-off: whose turn it is to propose a View, when to yield to another
//! proposer, and when to try again or give up.

use super::super::agreement::Effect;
use super::Election;
use super::peer::Link;
use super::view_change::Attempt;
use crate::identity::MemberId;
use crate::protocol::{Ballot, EngineKind, Message, Mutant, ViewDigest};
use std::collections::BTreeSet;

impl Election {
    /// Starts or gives up an attempt to change the View, if one is wanted and due.
    pub(super) fn propose_when_due(&mut self, now: u64) {
        if self.leaving || self.duplicates.is_aside(now) {
            return;
        }
        self.give_up_what_takes_too_long(now);
        let Some(wanted) = self.wanted(now) else {
            if matches!(self.change.attempt, Attempt::Asking { .. }) {
                self.change.attempt = Attempt::Idle;
            }
            return;
        };
        let members: Vec<MemberId> = wanted.members.iter().copied().collect();
        let turn = self.turn(self.me, &members) as u64;
        let jitter = if turn == 0 { 0 } else { self.jitter(self.config.turn_ms / 3) };
        let due = (wanted.from + turn * self.config.turn_ms + jitter)
            .max(self.change.retry_at)
            .max(self.yielded_until(now));
        // A message over a link that is down is lost. The link will soon be up or its peer given
        // up.
        let is_down =
            |id: &MemberId| self.peers.get(id).is_some_and(|p| matches!(p.link, Link::Down { .. }));
        let all_hear = !members.iter().any(is_down);
        // Until its own disk has answered, a node cannot promise anything, even to itself.
        if self.change.attempt == Attempt::Idle
            && now >= due
            && all_hear
            && !self.agreement.is_persisting()
        {
            self.ask(now, wanted.members);
        }
    }

    /// The engine failed here: like a lost data link, this forces a new View. This node's next
    /// promise rules Gloo out.
    pub(super) fn on_engine_unfit(&mut self, now: u64, digest: ViewDigest) {
        let runs_on_gloo = self.agreement.installed().is_some_and(|v| v.runs(EngineKind::Gloo));
        if runs_on_gloo && self.agreement.installed_id().is_some_and(|id| id.digest == digest) {
            self.agreement.renounce_gloo();
            self.on_broken(now, digest);
        }
    }

    /// A member's position in the queue of proposers: the proposer of the newest known View first,
    /// then by id.
    pub(super) fn turn(&self, who: MemberId, members: &[MemberId]) -> usize {
        let views = members.iter().filter_map(|m| self.peers.get(m).and_then(|p| p.view));
        let mine = self.agreement.installed_id();
        let leader = views.chain(mine).max().map(|v| v.ballot.proposer);
        let before = |m: &&MemberId| match leader {
            Some(leader) if who == leader => false,
            Some(leader) if **m == leader => true,
            _ => **m < who,
        };
        members.iter().filter(before).count()
    }

    pub(super) fn ask(&mut self, now: u64, members: BTreeSet<MemberId>) {
        let list: Vec<MemberId> = members.iter().copied().collect();
        self.effects.extend(
            list.iter()
                .filter(|m| **m != self.me)
                .map(|m| Effect::Send(*m, Message::Ask(list.clone()))),
        );
        let until = now + self.config.ask_ms;
        self.change.attempt = Attempt::Asking { members, willing: BTreeSet::new(), until };
        self.on_willing(now, self.me);
    }

    pub(super) fn on_ask(&mut self, now: u64, from: MemberId, members: &[MemberId]) {
        let mine_first = self.change.attempt != Attempt::Idle
            && self.turn(from, members) > self.turn(self.me, members);
        let hopeless = members.iter().any(|m| self.is_stuck(now, *m))
            || !self.agreement.allows(members.len())
            || self.has_enough_without_some(now, members)
            || self.is_beside(now, &members.iter().copied().collect())
                && !self.agreement.breaks(Mutant::AgreesBeside);
        let willing = members.contains(&self.me)
            && !mine_first
            && !hopeless
            && self.would_leave(now, from, members);
        if willing {
            self.change.attempt = Attempt::Idle;
            self.agreement.withdraw();
            self.yield_to(now, from, self.config.ask_ms);
        }
        self.effects
            .push(Effect::Send(from, if willing { Message::Willing } else { Message::Unwilling }));
    }

    /// Whether this node sees a reason to replace its View by the one `from` asks for.
    pub(super) fn would_leave(&self, now: u64, from: MemberId, members: &[MemberId]) -> bool {
        let Some(view) = self.agreement.installed() else { return true };
        let alive = self.reach(now);
        // Only members can report a member as cut off; an outsider's reach does not matter.
        let cut = |m: MemberId| {
            view.contains(from) && m != from && !self.links.reachable_both_ways(from, m)
        };
        let lost = |m: MemberId| m != self.me && (!alive.contains(&m) || cut(m));
        let new = |m: &MemberId| !view.contains(*m) && alive.contains(m);
        self.is_frozen()
            || view.ballot.proposer == from
            || view.members.iter().any(|m| lost(m.id))
            // Only for a larger View: otherwise two outsiders could take a member from each other
            // forever.
            || members.len() > view.size() && members.iter().any(new)
            || self.is_out_of_step(now, view)
            || self.is_broken(view)
            || view.members.iter().all(|m| members.contains(&m.id)) && self.is_outgrown(view)
    }

    pub(super) fn on_willing(&mut self, now: u64, from: MemberId) {
        let Attempt::Asking { members, willing, .. } = &mut self.change.attempt else { return };
        if members.contains(&from) {
            willing.insert(from);
        }
        if willing.len() == members.len() {
            let members = std::mem::take(members);
            self.change.attempt = Attempt::Proposing { began: now, since: now };
            self.agreement.propose(members, &mut self.effects);
        }
    }

    pub(super) fn on_unwilling(&mut self, now: u64, from: MemberId) {
        self.note_refusal(now, from);
        if matches!(
            &self.change.attempt,
            Attempt::Asking { members, .. } if members.contains(&from)
        ) {
            // A short back-off: soon the other member sees the same loss, or this node finds that
            // it was wrong.
            self.fail(now, 40);
        }
    }

    /// During a repair, a member of a later View has refused this node. It is left out of proposals
    /// for a while, so that the members that were left behind can form a View, if there are enough
    /// of them.
    pub(super) fn note_refusal(&mut self, now: u64, from: MemberId) {
        let mine = self.agreement.installed_id();
        if self.change.repair_since.is_some()
            && let Some(peer) =
                self.peers.get_mut(&from).filter(|p| p.view.is_some() && p.view > mine)
        {
            peer.refused_until = now + self.config.phase_ms;
        }
    }

    pub(super) fn on_nack(&mut self, now: u64, ballot: Ballot, promised: Ballot) {
        let running = self.agreement.proposal().is_some();
        self.agreement.on_nack(ballot, promised);
        if running && self.agreement.proposal().is_none() {
            self.fail(now, self.config.turn_ms);
        }
    }

    pub(super) fn give_up_what_takes_too_long(&mut self, now: u64) {
        match &self.change.attempt {
            Attempt::Asking { members, willing, until } if now >= *until => {
                let silent: Vec<MemberId> = members.difference(willing).copied().collect();
                self.shun(now, &silent);
                self.fail(now, self.config.turn_ms);
            }
            Attempt::Proposing { began, since } => {
                let (began, since) = (*began, *since);
                let silent =
                    self.agreement.proposal().map_or_else(BTreeSet::new, |(_, silent)| silent);
                let is_late = |m: &MemberId| now >= self.must_answer_by(*m, began, since);
                let late: Vec<MemberId> = silent.iter().filter(|m| is_late(m)).copied().collect();
                if !late.is_empty() || silent.is_empty() && now >= since + self.config.phase_ms {
                    self.shun(now, &late);
                    self.fail(now, self.config.turn_ms);
                }
            }
            Attempt::Idle | Attempt::Asking { .. } => {}
        }
    }

    /// Gives up an attempt that includes a lost member, which cannot answer, and allows a new one
    /// at once.
    pub(super) fn give_up_on(&mut self, now: u64, gone: MemberId) {
        let involved = match &self.change.attempt {
            Attempt::Idle => false,
            Attempt::Asking { members, .. } => members.contains(&gone),
            Attempt::Proposing { .. } => {
                self.agreement.proposal().is_some_and(|(members, _)| members.contains(&gone))
            }
        };
        if involved {
            self.change.attempt = Attempt::Idle;
            self.agreement.withdraw();
            self.change.retry_at = now;
        }
    }

    /// Leaves members that did not answer out of proposals for `phase_ms`, or until they are heard
    /// again.
    pub(super) fn shun(&mut self, now: u64, silent: &[MemberId]) {
        for id in silent {
            if let Some(peer) = self.peers.get_mut(id) {
                peer.shunned_until = now + self.config.phase_ms;
            }
        }
    }

    pub(super) fn fail(&mut self, now: u64, base_ms: u64) {
        self.change.attempt = Attempt::Idle;
        self.agreement.withdraw();
        let backoff = (base_ms << self.change.failures.min(5)).min(5000);
        self.change.failures += 1;
        self.change.retry_at = now + backoff + self.jitter(base_ms);
    }

    /// Starts the timeout of the next phase: all promises are in.
    pub(super) fn next_phase(&mut self, now: u64) {
        if let Attempt::Proposing { since, .. } = &mut self.change.attempt {
            *since = now;
        }
    }

    /// Whether a member, this node included, waits for its disk.
    pub(super) fn is_persisting(&self, id: MemberId) -> bool {
        if id == self.me {
            self.agreement.is_persisting()
        } else {
            self.peers.get(&id).is_some_and(|p| p.persisting_since.is_some())
        }
    }

    /// The time at which a member that is silent in a phase of a proposal is given up. A disk that
    /// was busy before the proposal has been waited for since then; one that is busy because of the
    /// proposal has `persisting_ms` for each phase.
    fn must_answer_by(&self, id: MemberId, began: u64, phase_since: u64) -> u64 {
        if !self.is_persisting(id) {
            return phase_since + self.config.phase_ms;
        }
        let busy_since = if id == self.me {
            self.persisting_since
        } else {
            self.peers.get(&id).and_then(|p| p.persisting_since)
        };
        let since = busy_since.filter(|busy| *busy < began).unwrap_or(phase_since);
        since + self.config.persisting_ms
    }

    pub(super) fn is_stuck(&self, now: u64, id: MemberId) -> bool {
        self.peers.get(&id).is_some_and(|p| p.is_stuck(now, self.config.persisting_ms))
    }

    pub(super) fn yield_to(&mut self, now: u64, to: MemberId, for_ms: u64) {
        if to != self.me {
            self.change.yield_until = self.change.yield_until.max(now + for_ms);
            self.change.yielded_to = Some(to);
        }
    }

    /// Yields for one phase of another's proposal, and for longer while disks are waited for.
    pub(super) fn yield_to_proposer(&mut self, now: u64, to: MemberId) {
        self.yield_to(now, to, self.config.phase_ms);
        if to != self.me {
            self.change.yield_to_disks_until = now + self.config.persisting_ms;
        }
    }

    fn yielded_until(&self, now: u64) -> u64 {
        let at_their_disks = |id: &MemberId| self.is_persisting(*id) && !self.is_stuck(now, *id);
        let waits = self.agreement.is_persisting() || self.peers.keys().any(at_their_disks);
        if waits {
            self.change.yield_until.max(self.change.yield_to_disks_until)
        } else {
            self.change.yield_until
        }
    }

    /// A xorshift step (Marsaglia 2003). It only spreads retries; no rule depends on it.
    pub(super) fn jitter(&mut self, below_ms: u64) -> u64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        if below_ms == 0 { 0 } else { self.chance % below_ms }
    }
}
