//! Queries of the model checker, and ways to reduce its number of states.

use super::Agreement;
use crate::identity::MemberId;
use crate::protocol::{Ballot, Closing, Message};

impl Agreement {
    /// Whether this message changes nothing here, now or later. Replies that only make a proposer
    /// hurry or give up are not counted as changes.
    pub(crate) fn ignores(&self, from: MemberId, message: &Message) -> bool {
        let promised = self.durable.promised;
        let installed = self.installed.as_ref().map_or(Ballot::ZERO, |v| v.ballot);
        match message {
            Message::Prepare(ballot, _) => self.is_past(*ballot, promised),
            Message::Promise(ballot, _) => !self.proposal.as_ref().is_some_and(|p| {
                p.ballot == *ballot && p.view.is_none() && !p.promises.contains_key(&from)
            }),
            Message::Accept(view) => {
                let here = self.accepted_here.as_ref().is_some_and(|v| v.ballot == view.ballot);
                here || self.outranks(promised, view.ballot)
                    || self.was_cut_off_since(view.ballot)
                    || self.is_past(view.ballot, installed)
            }
            Message::Accepted(id) => {
                let waits = |p: &super::proposal::Proposal| {
                    p.ballot == id.ballot && p.view.is_some() && !p.accepted.contains(&from)
                };
                !self.proposal.as_ref().is_some_and(waits)
            }
            Message::Install(id) => {
                // A member that has not accepted the View cannot use the message yet; only a
                // mutant sends it so early.
                self.outranks(promised, id.ballot)
                    || self.was_cut_off_since(id.ballot)
                    || self.is_past(id.ballot, installed)
            }
            _ => true,
        }
    }

    /// Whether it has installed the View of this ballot and not left it, or may still install it.
    pub(crate) fn may_run(&self, ballot: Ballot) -> bool {
        let running =
            self.installed.as_ref().is_some_and(|v| v.ballot == ballot) && self.closing.is_none();
        let coming = self.accepted_here.as_ref().is_some_and(|v| v.ballot == ballot)
            && self.installed.as_ref().is_none_or(|v| v.ballot < ballot);
        running || coming && self.durable.promised == ballot
    }

    /// The ballot of the running proposal, and whether its View has been drafted.
    pub(crate) fn ballot(&self) -> Option<(Ballot, bool)> {
        self.proposal.as_ref().map(|p| (p.ballot, p.view.is_some()))
    }

    /// The highest promised ballot.
    pub(crate) fn promised(&self) -> Ballot {
        self.durable.promised
    }

    /// Raises the highest round seen, as a `Nack` would.
    pub(crate) fn hear_of(&mut self, round: u64) {
        self.round_seen = self.round_seen.max(round);
    }

    /// Its report on the View it has frozen.
    pub(crate) fn closing(&self) -> Option<&Closing> {
        self.closing.as_ref()
    }

    /// Whether its open operations have ended as indeterminate.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.cut_off.is_some()
    }

    /// Resets the ticket counter when no write is pending.
    pub(crate) fn forget_tickets(&mut self) {
        if self.held.is_empty() {
            self.tickets = 0;
        }
    }
}
