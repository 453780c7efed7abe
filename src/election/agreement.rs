//! The safety rules of Views: a three-step view change with durable ballots, after Paxos (Lamport
//! 1998) and virtual synchrony (Birman and Joseph 1987). No rule depends on time.
//!
//! A proposer asks every wanted member to *promise* a ballot. A member that promises freezes its
//! View for good and reports its state. With all promises the proposer derives the next View and
//! asks all members to *accept* it; with all acceptances it tells them to *install* it. Promises
//! and acceptances are sent only once they are durable.

mod durable;
mod environment;
#[cfg(test)]
mod inspection;
mod own_proposal;
mod own_report;
mod proposal;

use super::applicant::Applicant;
use super::recovery;
use crate::identity::MemberId;
use crate::protocol::{
    Accepted, Ballot, Closing, EngineKind, History, LaneSet, Message, Mutant, Mutation, Partition,
    Promise, View, ViewDigest, ViewId,
};
pub use durable::Durable;
pub(crate) use environment::Environment;
use proposal::Proposal;
use std::collections::VecDeque;
use std::sync::Arc;

/// The largest rise of the highest round seen with one message: too little for a member to exhaust
/// the rounds. A node that has missed more rounds learns them in steps, one with each message.
const ROUND_JUMP_MAX: u64 = if cfg!(potluck_tight) { 4 } else { 1 << 20 };

/// An action that a step asks for. Actions are carried out in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send a message over the control link to this member; drop it if there is no link.
    Send(MemberId, Message),
    /// Make this state durable, then feed the ticket back as `Persisted`.
    Persist(u64, Durable),
    /// Install this View. `Decides` says how the operations of the previous View end.
    Install(Arc<View>, Decides),
    /// End the open operations as indeterminate: this node can make no View that would decide them.
    CutOff,
    /// Close the control link to this member.
    Drop(MemberId),
}

/// How a new View ends the open operations of this member's previous View.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decides {
    /// The new View's parent is that View: its list of committed operations decides.
    Parent,
    /// The new View has another parent: open operations stay indeterminate.
    Nothing,
}

/// An input of the agreement rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// A message from this member, or from this node itself. Messages that are not about ballots
    /// are ignored.
    Message(MemberId, Message),
    /// A data link bound to this View was opened by another member.
    DataLink(ViewDigest),
    /// The state with this ticket, and every earlier one, is durable.
    Persisted(u64),
}

/// The agreement rules of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Agreement {
    me: MemberId,
    applicant: Applicant,
    partition: Partition,
    durable: Durable,
    /// The newest accepted View itself, if this boot accepted it.
    accepted_here: Option<Arc<View>>,
    installed: Option<Arc<View>>,
    /// Cached `ViewId` of `installed`.
    installed_id: Option<ViewId>,
    /// The report made when the installed View was frozen; `None` while it runs.
    closing: Option<Closing>,
    /// Lanes in which programs sync, as this member has seen in all its Views.
    stateful: LaneSet,
    /// If this member lacked a state when it installed its View: the lanes that it had synced by
    /// then, since it came into a View without the common history.
    catching_up: Option<LaneSet>,
    /// Set when open operations of the installed View ended here as indeterminate: the ballot
    /// promised at that time. Views of ballots up to it may rely on results that this member has
    /// given up, so it neither accepts nor installs them.
    cut_off: Option<Ballot>,
    /// This member's history when it installed its View.
    base: Option<History>,
    round_seen: u64,
    proposal: Option<Proposal>,
    /// The replies that wait until the state of their ticket is durable; `None` for one that is not
    /// wanted any more.
    held: VecDeque<(u64, Option<(MemberId, Message)>)>,
    tickets: u64,
    mutation: Mutation,
}

impl Agreement {
    pub(crate) fn new(applicant: Applicant, durable: Durable) -> Agreement {
        Agreement {
            me: applicant.id,
            applicant,
            partition: Partition::default(),
            round_seen: durable.promised.round,
            durable,
            accepted_here: None,
            installed: None,
            installed_id: None,
            closing: None,
            stateful: LaneSet::default(),
            catching_up: None,
            cut_off: None,
            base: None,
            proposal: None,
            held: VecDeque::new(),
            tickets: 0,
            mutation: Mutation::NONE,
        }
    }

    /// The same rules with one mutant.
    #[cfg(test)]
    pub(crate) fn with(mut self, mutation: Mutation) -> Agreement {
        self.mutation = mutation;
        self
    }

    /// One step. Effects must be carried out in order; messages to this node itself are fed back as
    /// events.
    pub(crate) fn step(&mut self, event: Event, environment: &mut dyn Environment) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Message(from, message) => {
                self.on_message(from, message, environment, &mut effects);
            }
            Event::DataLink(digest) => self.on_data_link(digest, &mut effects),
            Event::Persisted(ticket) => self.on_persisted(ticket, &mut effects),
        }
        effects
    }

    fn on_message(
        &mut self,
        from: MemberId,
        message: Message,
        environment: &mut dyn Environment,
        effects: &mut Vec<Effect>,
    ) {
        match message {
            Message::Prepare(ballot, members) => {
                self.on_prepare(from, ballot, &members, environment, effects);
            }
            Message::Promise(ballot, promise) => {
                self.on_promise(from, ballot, *promise, environment, effects);
            }
            Message::Nack(ballot, promised) => self.on_nack(ballot, promised),
            Message::Accept(view) => self.on_accept(from, &view, environment, effects),
            Message::Accepted(id) => self.on_accepted(from, id, effects),
            Message::Install(id) => self.on_install(id, effects),
            _ => {}
        }
    }

    /// Sets the partition rule: a View that it forbids is neither proposed, promised nor accepted.
    pub(super) fn with_partition(self, partition: Partition) -> Agreement {
        Agreement { partition, ..self }
    }

    /// Gloo has failed on this node: its next promises say so.
    pub(super) fn renounce_gloo(&mut self) {
        self.applicant.engines = self.applicant.engines.with_failed_gloo();
    }

    /// Whether a test has broken this rule.
    pub(super) fn breaks(&self, mutant: Mutant) -> bool {
        self.mutation.has(mutant)
    }

    /// Whether this node may be in a View of so many members.
    pub(super) fn allows(&self, members: usize) -> bool {
        members <= self.applicant.sizes.max_members()
    }

    /// Whether the group of the installed View has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.installed.as_ref().is_some_and(|view| view.begun)
    }

    pub(crate) fn installed(&self) -> Option<&Arc<View>> {
        self.installed.as_ref()
    }

    pub(crate) fn installed_id(&self) -> Option<ViewId> {
        self.installed_id
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.closing.is_some()
    }

    /// Whether a write for a promise or an acceptance is under way.
    pub(super) fn is_persisting(&self) -> bool {
        !self.held.is_empty()
    }

    /// The Views that a data link may belong to: the installed one unless frozen, and an accepted
    /// one until a higher ballot is promised.
    pub(crate) fn open_views(&self) -> impl Iterator<Item = &Arc<View>> {
        let installed = self.installed.iter().filter(|_| self.closing.is_none());
        installed.chain(self.accepted_here.iter().filter(|v| self.durable.promised == v.ballot))
    }

    /// Ends the open operations of the installed View as indeterminate here. Later promises still
    /// report the results of this member, but no other member shares its history any more.
    pub(crate) fn cut_off(&mut self, environment: &mut dyn Environment, effects: &mut Vec<Effect>) {
        self.freeze(environment);
        self.cut_off = Some(self.durable.promised);
        // A waiting acceptance must not leave: with it the others, and this node, could install a
        // View that relies on the results given up here. Its write still keeps the disk from the
        // next one.
        let is_acceptance = |(_, message): &mut (_, _)| matches!(message, Message::Accepted(_));
        self.held.iter_mut().for_each(|(_, reply)| _ = reply.take_if(is_acceptance));
        self.proposal = None;
        effects.push(Effect::CutOff);
    }

    fn on_persisted(&mut self, ticket: u64, effects: &mut Vec<Effect>) {
        while self.held.front().is_some_and(|(t, _)| *t <= ticket) {
            if let Some((_, Some((to, message)))) = self.held.pop_front() {
                effects.push(Effect::Send(to, message));
            }
        }
    }

    /// Whether this `Prepare` would be answered with a promise.
    pub(super) fn would_promise(
        &self,
        from: MemberId,
        ballot: Ballot,
        members: &[MemberId],
    ) -> bool {
        self.may_answer(from, ballot, members) && ballot > self.durable.promised
    }

    fn may_answer(&self, from: MemberId, ballot: Ballot, members: &[MemberId]) -> bool {
        self.is_meant(from, ballot, members) && self.is_near(ballot)
    }

    /// Whether the round of this ballot may follow from those that this member has seen.
    fn is_near(&self, ballot: Ballot) -> bool {
        ballot.round <= self.round_seen.saturating_add(ROUND_JUMP_MAX)
    }

    fn is_meant(&self, from: MemberId, ballot: Ballot, members: &[MemberId]) -> bool {
        from == ballot.proposer
            && members.contains(&self.me)
            && self.allows(members.len())
            && self.partition.admits(members.iter().copied())
    }

    /// Learns that a View of this round exists. A node that knows only rounds far below approaches
    /// it in steps, until it may answer ballots of the next rounds.
    pub(super) fn approach(&mut self, round: u64) {
        self.see(round.saturating_sub(ROUND_JUMP_MAX / 2));
    }

    fn see(&mut self, round: u64) {
        let reach = self.round_seen.saturating_add(ROUND_JUMP_MAX);
        self.round_seen = self.round_seen.max(round.min(reach));
    }

    fn on_prepare(
        &mut self,
        from: MemberId,
        ballot: Ballot,
        members: &[MemberId],
        environment: &mut dyn Environment,
        effects: &mut Vec<Effect>,
    ) {
        if !self.is_meant(from, ballot, members) {
            return;
        }
        let is_answered = self.may_answer(from, ballot, members);
        self.see(ballot.round);
        if !is_answered {
            return;
        }
        if ballot == self.durable.promised {
            // A duplicate: it has been answered.
            return;
        }
        if self.outranks(self.durable.promised, ballot) {
            effects.push(Effect::Send(from, Message::Nack(ballot, self.durable.promised)));
            return;
        }
        self.freeze(environment);
        let promise = Promise {
            accepted: self.durable.accepted.clone(),
            accepted_here: self.rank_in(self.accepted_here.as_deref()),
            is_late: self.late_view().is_some(),
            if_installed: self.late_view().and_then(|view| self.history_in(view)),
            ..self.promise()
        };
        self.durable.promised = ballot;
        self.persist(Some((from, Message::Promise(ballot, Box::new(promise)))), effects);
    }

    fn can_run(&self, view: &View) -> bool {
        [EngineKind::Native, EngineKind::Gloo]
            .into_iter()
            .all(|kind| !view.runs(kind) || self.applicant.engines.can_run(kind))
    }

    fn on_accept(
        &mut self,
        from: MemberId,
        view: &Arc<View>,
        environment: &mut dyn Environment,
        effects: &mut Vec<Effect>,
    ) {
        // A proposer knows the engines of every member from the promises, so an honest one never
        // proposes an engine that is missing here.
        if from != view.ballot.proposer || !view.contains(self.me) || !self.can_run(view) {
            return;
        }
        // An honest proposer has this member's promise, so it is near. A promise of a round far
        // above would keep this member from all ballots of the others.
        if !self.is_near(view.ballot) {
            return;
        }
        // Nor one that this member does not allow, or that stops a group that has begun.
        if !self.partition.admits(view.members.iter().map(|m| m.id))
            || !self.allows(view.size())
            || self.has_begun() && !view.begun && !self.mutation.has(Mutant::ForgetsBeginning)
        {
            return;
        }
        if self.outranks(self.durable.promised, view.ballot) || self.was_cut_off_since(view.ballot)
        {
            effects.push(Effect::Send(from, Message::Nack(view.ballot, self.durable.promised)));
            return;
        }
        if self.installed.as_ref().is_some_and(|v| self.is_past(view.ballot, v.ballot))
            || self.accepted_here.as_ref() == Some(view)
        {
            return;
        }
        self.install_late(view, environment, effects);
        let closing = self.freeze(environment);
        let is_parent = |installed: &&Arc<View>| view.parent == Some(installed.id());
        if let Some(parent) = self.installed.as_ref().filter(is_parent) {
            let is_ignored =
                parent.rank_of(self.me).is_some_and(|me| !view.decided_by.contains(me));
            if is_ignored || recovery::omits_committed(&view.committed, &closing) {
                // The proposer lies. Another one will make a View.
                return;
            }
        }
        let id = view.id();
        self.round_seen = self.round_seen.max(view.ballot.round);
        self.durable.promised = view.ballot;
        self.durable.accepted = Some(Accepted {
            id,
            parent: view.parent,
            committed: view.committed.clone(),
            failed: view.failed.clone(),
            decided_by: view.decided_by,
        });
        self.accepted_here = Some(Arc::clone(view));
        self.persist(Some((from, Message::Accepted(id))), effects);
    }

    /// Installs the accepted View. Any member that has installed it may send this, because
    /// installation implies that all members have accepted.
    pub(super) fn on_install(&mut self, id: ViewId, effects: &mut Vec<Effect>) {
        let Some(view) = self.accepted_here.clone().filter(|v| v.id() == id) else { return };
        if self.was_cut_off_since(id.ballot) {
            return;
        }
        if self.durable.promised == id.ballot
            && !self.installed.as_ref().is_some_and(|v| self.is_past(id.ballot, v.ballot))
        {
            self.install(view, effects);
        }
    }

    /// The opener of a data link has installed its View, so this member may install it too.
    fn on_data_link(&mut self, digest: ViewDigest, effects: &mut Vec<Effect>) {
        if let Some(id) =
            self.accepted_here.as_ref().map(|v| v.id()).filter(|id| id.digest == digest)
        {
            self.on_install(id, effects);
        }
    }

    /// If this member accepted the parent of `next` and missed its installation, it installs the
    /// parent now: `next` proves that some member has installed it. The View stays frozen and
    /// empty; it only decides the operations of the View before.
    fn install_late(
        &mut self,
        next: &View,
        environment: &mut dyn Environment,
        effects: &mut Vec<Effect>,
    ) {
        let Some(view) = self.late_view().cloned() else { return };
        if next.parent == Some(view.id()) {
            self.freeze(environment);
            self.install(view, effects);
            self.closing = Some(Closing::default());
        }
    }

    /// The View that this member has accepted in this boot, not yet installed, and may still
    /// install.
    fn late_view(&self) -> Option<&Arc<View>> {
        let newer =
            |view: &Arc<View>| self.installed.as_ref().is_none_or(|v| v.ballot < view.ballot);
        self.accepted_here
            .as_ref()
            .filter(|view| newer(view) && !self.was_cut_off_since(view.ballot))
    }

    fn install(&mut self, view: Arc<View>, effects: &mut Vec<Effect>) {
        let prev = self.installed_id;
        let decides =
            if prev.is_some() && view.parent == prev { Decides::Parent } else { Decides::Nothing };
        self.base = self.history_in(&view);
        self.catching_up = self.still_to_catch_up(&view);
        self.closing = None;
        self.cut_off = None;
        self.installed_id = Some(view.id());
        self.installed = Some(Arc::clone(&view));
        if self.proposal.as_ref().is_some_and(|p| p.ballot <= view.ballot) {
            self.proposal = None;
        }
        effects.push(Effect::Install(view, decides));
    }

    /// Freezes the installed View: no further vote counts in it.
    pub(super) fn freeze(&mut self, environment: &mut dyn Environment) -> Closing {
        let Some(id) = self.installed_id else { return Closing::default() };
        let closing = self.closing.get_or_insert_with(|| environment.freeze(id.digest));
        self.stateful.extend(&closing.lanes.stateful);
        closing.clone()
    }

    /// Makes the state durable; the reply is held back until then.
    fn persist(&mut self, reply: Option<(MemberId, Message)>, effects: &mut Vec<Effect>) {
        if self.mutation.has(Mutant::PromiseNotDurable) {
            effects.extend(reply.map(|(to, message)| Effect::Send(to, message)));
            return;
        }
        self.tickets += 1;
        self.held.extend(reply.map(|reply| (self.tickets, Some(reply))));
        let accepted = self
            .durable
            .accepted
            .clone()
            .filter(|_| !self.mutation.has(Mutant::AcceptedNotDurable));
        effects.push(Effect::Persist(self.tickets, Durable { accepted, ..self.durable.clone() }));
    }

    /// Whether the View of this ballot may rely on results that this member has given up since.
    fn was_cut_off_since(&self, ballot: Ballot) -> bool {
        self.cut_off.is_some_and(|last| ballot <= last) && !self.mutation.has(Mutant::CutOffGoesOn)
    }

    fn outranks(&self, a: Ballot, b: Ballot) -> bool {
        if self.mutation.has(Mutant::NoTieBreak) { a.round > b.round } else { a > b }
    }

    /// Whether a ballot is too late once `after` has been reached.
    fn is_past(&self, ballot: Ballot, after: Ballot) -> bool {
        ballot == after || self.outranks(after, ballot)
    }
}
