//! Proposer scheduling and back-off: which View a node wants, whose turn it is to propose it, when
//! to yield to another proposer, and when to try again or give up.

use super::super::agreement::Effect;
use super::super::config::Alone;
use super::peer::{Link, Peer};
use super::view_change::Attempt;
use super::{Election, LiveEnvironment, Operations};
use crate::identity::MemberId;
use crate::protocol::{Ballot, Defect, EngineKind, Message, Rank, View, ViewDigest};
use std::collections::BTreeSet;

/// A proposal that this node would make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    members: BTreeSet<MemberId>,
    /// Earliest time at which the first proposer in the queue may propose it.
    from: u64,
}

/// A new direct link must last this long before a View is replaced for its sake, because it may
/// break again.
const SETTLED_MS: u64 = 5000;

/// A node that is left behind by a View gives up the operations of its own View after this many
/// phases of a proposal.
const LEFT_BEHIND_PHASES: u64 = 3;

impl Election {
    /// Starts or gives up an attempt to change the View, if one is wanted and due.
    pub(super) fn pursue(&mut self, now: u64) {
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
    /// | a new direct link makes a better View possible | `SETTLED_MS` later |
    pub(super) fn wanted(&mut self, now: u64) -> Option<Wanted> {
        let members = self.selected(now);
        let admitted =
            members.contains(&self.me) && self.config.partition.admits(members.iter().copied());
        let is_beside =
            self.is_beside(now, &members) && !self.agreement.breaks(Defect::BeginsBeside);
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
            .map(|since| Wanted { members, from: since + SETTLED_MS })
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

    /// Whether a new View of the same members would be better: two members without a direct link
    /// now have one. They would get a data link, and perhaps all members another engine.
    fn is_outgrown(&self, view: &View) -> bool {
        let id = |rank| view.member(rank).map(|m| m.id);
        let have_one = |(a, b): &(Rank, Rank)| {
            id(*a).zip(id(*b)).is_some_and(|(a, b)| self.links.direct_both_ways(a, b))
        };
        view.no_direct_link.iter().any(have_one)
    }

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
            && !self.agreement.breaks(Defect::WaitsForItsDisk)
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
            && !self.agreement.breaks(Defect::WaitsForItsDisk)
    }

    /// How long this node has been waiting for its disk, in milliseconds; `None` if it is not.
    pub fn disk_waits_ms(&self, now: u64) -> Option<u64> {
        self.persisting_since.map(|since| now.saturating_sub(since))
    }

    pub(super) fn first_view(&self, now: u64, members: BTreeSet<MemberId>) -> Option<Wanted> {
        match (members.len(), self.config.alone) {
            (0 | 1, Alone::Waits) => None,
            (0 | 1, Alone::Forms) => Some(Wanted { members, from: self.config.damping_cap_ms.0 }),
            _ => Some(Wanted { from: self.damped(now, &members, None), members }),
        }
    }

    /// The largest set that contains this node, in which all reach each other and which direct
    /// links connect. Ties go to the set with more present members that no
    /// other one has excluded.
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
                && !self.agreement.breaks(Defect::AgreesBeside);
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
        if matches!(&self.change.attempt, Attempt::Asking { members, .. } if members.contains(&from))
        {
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

    fn is_stuck(&self, now: u64, id: MemberId) -> bool {
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
