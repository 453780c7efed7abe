//! Layer: Core.
//!
//! What a checker may ask of an agreement, and what it may forget to have fewer states.

use super::Agreement;
use crate::collective::Closing;
use crate::election::message::Message;
use crate::identity::MemberId;
use crate::view::Ballot;

impl Agreement {
    /// Whether this message changes nothing here, now and whatever comes. Answers that only tell a
    /// proposer to hurry up or to give up count as nothing.
    pub(in crate::election) fn ignores(&self, from: MemberId, message: &Message) -> bool {
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
                let waits = |p: &super::Proposal| {
                    p.ballot == id.ballot && p.view.is_some() && !p.accepted.contains(&from)
                };
                !self.proposal.as_ref().is_some_and(waits)
            }
            Message::Install(id) => {
                // Who has not accepted it has no use for it yet; only a broken rule lets it come so
                // early.
                self.outranks(promised, id.ballot)
                    || self.was_cut_off_since(id.ballot)
                    || self.is_past(id.ballot, installed)
            }
            _ => true,
        }
    }

    /// Whether it may yet install, or has installed and not left, the View of this ballot.
    pub(in crate::election) fn may_run(&self, ballot: Ballot) -> bool {
        let running =
            self.installed.as_ref().is_some_and(|v| v.ballot == ballot) && self.closing.is_none();
        let coming = self.accepted_here.as_ref().is_some_and(|v| v.ballot == ballot)
            && self.installed.as_ref().is_none_or(|v| v.ballot < ballot);
        running || coming && self.durable.promised == ballot
    }

    /// The ballot of the running proposal, and whether its View is made.
    pub(in crate::election) fn ballot(&self) -> Option<(Ballot, bool)> {
        self.proposal.as_ref().map(|p| (p.ballot, p.view.is_some()))
    }

    /// The highest ballot promised.
    pub(in crate::election) fn promised(&self) -> Ballot {
        self.durable.promised
    }

    /// The newest round heard of, for a proposer that is told of it by a `Nack`.
    pub(in crate::election) fn hear_of(&mut self, round: u64) {
        self.round_seen = self.round_seen.max(round);
    }

    /// What it reports of the View it has left.
    pub(in crate::election) fn closing(&self) -> Option<&Closing> {
        self.closing.as_ref()
    }

    /// Whether its operations have ended without an outcome.
    pub(in crate::election) fn is_cut_off(&self) -> bool {
        self.cut_off.is_some()
    }

    /// Forgets how often something was written, when nothing is being written.
    pub(in crate::election) fn forget_tickets(&mut self) {
        if self.held.is_empty() {
            self.tickets = 0;
        }
    }
}
