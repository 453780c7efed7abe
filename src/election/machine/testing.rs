//! Elections without a network, a disk and operations, as the tests of single rules use them.

use super::super::agreement::{Durable, Effect};
use super::super::applicant::Applicant;
use super::super::config::ElectionConfig;
use super::{Election, Input, Operations};
use crate::identity::Name;
use crate::protocol::{
    Ballot, Closing, Engines, Message, Sizes, View, ViewDigest, member_id, view_of,
};
use std::sync::Arc;

/// So many operations are open, and none ever ends.
pub(super) struct Open(pub(super) usize);

impl Operations for Open {
    fn freeze(&mut self, _: ViewDigest) -> Closing {
        Closing::default()
    }

    fn in_flight(&self) -> usize {
        self.0
    }
}

/// Node 1, with links to these nodes since time 0.
pub(super) fn linked(peers: &[u8], config: ElectionConfig) -> Election {
    linked_with(peers, config, Sizes::default())
}

/// The same, which wants a group of these sizes.
pub(super) fn linked_with(peers: &[u8], config: ElectionConfig, sizes: Sizes) -> Election {
    let name = Name::from_lossy("a");
    let applicant =
        Applicant { id: member_id(1), name, stateless: false, engines: Engines::NATIVE, sizes };
    let mut election = Election::new(applicant, Durable::default(), config);
    for peer in peers {
        election.step(0, Input::LinkUp(member_id(*peer)), &mut Open(0));
    }
    election
}

/// One step, in which every write is durable at once.
pub(super) fn step(
    election: &mut Election,
    now: u64,
    input: Input,
    ops: &mut impl Operations,
) -> Vec<Effect> {
    let mut effects = election.step(now, input, ops);
    let ticket = |e: &Effect| if let Effect::Persist(t, _) = e { Some(*t) } else { None };
    let tickets: Vec<u64> = effects.iter().filter_map(ticket).collect();
    for ticket in tickets {
        effects.extend(election.step(now, Input::Persisted(ticket), ops));
    }
    effects
}

pub(super) fn ballot(round: u64, proposer: u8) -> Ballot {
    Ballot { round, proposer: member_id(proposer) }
}

/// A View of the first `n` members.
pub(super) fn view(n: u8, ballot: Ballot) -> Arc<View> {
    Arc::new(View { ballot, ..view_of(n) })
}

/// The messages of its proposer, from the proposal of a View to its installation.
pub(super) fn all_of(view: &Arc<View>) -> [Message; 3] {
    [prepare(view), Message::Accept(Arc::clone(view)), Message::Install(view.id())]
}

pub(super) fn prepare(view: &View) -> Message {
    Message::Prepare(view.ballot, view.members.iter().map(|m| m.id).collect())
}
