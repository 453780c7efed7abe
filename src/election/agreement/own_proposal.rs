//! The proposal that this node leads: from the promises of all members to their acceptances.

use super::environment::Environment;
use super::proposal::Proposal;
use super::{Agreement, Effect};
use crate::identity::MemberId;
use crate::protocol::{Ballot, Message, Mutant, Promise, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Agreement {
    /// The members of the running proposal, and those that have not answered its current phase.
    pub(crate) fn proposal(&self) -> Option<(&BTreeSet<MemberId>, BTreeSet<MemberId>)> {
        let proposal = self.proposal.as_ref()?;
        let answered = |m: &&MemberId| match proposal.view {
            None => !proposal.promises.contains_key(m),
            Some(_) => !proposal.accepted.contains(m),
        };
        Some((&proposal.members, proposal.members.iter().filter(answered).copied().collect()))
    }

    /// Starts a ballot for these members; this node must be one of them.
    pub(crate) fn propose(&mut self, members: BTreeSet<MemberId>, effects: &mut Vec<Effect>) {
        if !self.partition.admits(members.iter().copied()) {
            return;
        }
        let round = self.round_seen.max(self.durable.promised.round) + 1;
        self.round_seen = round;
        let ballot = Ballot { round, proposer: self.me };
        let message = Message::Prepare(ballot, members.iter().copied().collect());
        effects.extend(members.iter().map(|m| Effect::Send(*m, message.clone())));
        self.proposal = Some(Proposal {
            ballot,
            members,
            promises: BTreeMap::new(),
            view: None,
            accepted: BTreeSet::new(),
        });
    }

    /// Gives up the running proposal. Promises stay binding.
    pub(crate) fn withdraw(&mut self) {
        self.proposal = None;
    }

    pub(super) fn on_promise(
        &mut self,
        from: MemberId,
        ballot: Ballot,
        promise: Promise,
        environment: &dyn Environment,
        effects: &mut Vec<Effect>,
    ) {
        let Some(proposal) = &mut self.proposal else { return };
        if proposal.ballot != ballot || proposal.view.is_some() || !proposal.members.contains(&from)
        {
            return;
        }
        proposal.promises.insert(from, promise);
        if proposal.promises.len() < proposal.members.len() {
            return;
        }
        let view = Arc::new(proposal.draft(self.installed.as_deref(), environment, self.mutation));
        // While the promises came in, the members may have lost their direct links: no plan leads
        // to all of them any more, and no member would accept such a View.
        if !view.is_consistent() {
            self.proposal = None;
            return;
        }
        effects.extend(
            proposal.members.iter().map(|m| Effect::Send(*m, Message::Accept(Arc::clone(&view)))),
        );
        proposal.view = Some(view);
    }

    pub(in crate::election) fn on_nack(&mut self, ballot: Ballot, promised: Ballot) {
        self.see(promised.round);
        if self.proposal.as_ref().is_some_and(|p| p.ballot == ballot) {
            self.proposal = None;
        }
    }

    pub(super) fn on_accepted(&mut self, from: MemberId, id: ViewId, effects: &mut Vec<Effect>) {
        let Some(proposal) = &mut self.proposal else { return };
        if proposal.view.as_ref().is_none_or(|v| v.id() != id) || !proposal.members.contains(&from)
        {
            return;
        }
        proposal.accepted.insert(from);
        let early = self.mutation.has(Mutant::EarlyInstall)
            && 2 * proposal.accepted.len() > proposal.members.len();
        if proposal.accepted.len() < proposal.members.len() && !early {
            return;
        }
        let members = std::mem::take(&mut proposal.members);
        self.proposal = None;
        if self.durable.promised == id.ballot {
            effects.extend(members.iter().map(|m| Effect::Send(*m, Message::Install(id))));
        }
    }
}
