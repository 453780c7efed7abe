//! Observers: those of this node, and what this node observes if it is one.

use super::super::observed::Told;
use super::super::reporter::Complaint;
use super::ControlPlane;
use super::evictions::ASIDE_MS;
use crate::identity::{MemberId, NodeId};
use crate::link::{PskNumber, SecureChannel, Stream};
use crate::report::Event;
use crate::report::document::StatusDocument;
use crate::trace;
use std::io;

/// How long a node is not dialled that has ended its link: it may have too many observers.
const AGAIN_MS: u64 = 2000;

impl ControlPlane {
    /// An observer has linked with this node.
    pub(super) fn on_observer(&mut self, stream: Box<dyn Stream>, channel: SecureChannel) {
        match self.admit(&channel) {
            Ok(()) => {
                trace::debug!(observer = %channel.peer.id, "an observer is here");
                self.observers.serve(stream, channel);
            }
            Err(refusal) => self.count(refusal),
        }
    }

    /// This observer has linked with a node.
    pub(super) fn observe(&mut self, stream: Box<dyn Stream>, channel: SecureChannel) {
        self.reporter.learn_name(channel.peer.id.node, channel.peer.name.clone());
        self.observed.observe(stream, channel);
    }

    /// An observed node has said this, or its link has ended.
    pub(super) fn on_observed(
        &mut self,
        node: MemberId,
        link: u64,
        document: Result<Box<StatusDocument>, io::ErrorKind>,
    ) {
        match self.observed.told(node, link, document) {
            Told::Status => self.reporter.settle(node),
            Told::Left => {
                self.roster.set_aside(node, ASIDE_MS, self.clock.now());
                self.reporter.settle(node);
                self.reporter.tell(Event::Left(self.reporter.who(node.node)));
            }
            Told::Refusal => self.complain(node, Complaint::NotAdmitted),
            Told::Silence => self.complain(node, Complaint::Silent),
            Told::End => self.roster.set_aside(node, AGAIN_MS, self.clock.now()),
        }
        self.publish_observed();
    }

    /// The link with a node has ended before it was of use.
    fn complain(&mut self, node: MemberId, complaint: Complaint) {
        let at = self.roster.own_addresses_of(node).into_iter().next();
        if let Some(at) = at {
            self.reporter.complain(node, at, complaint);
        }
        self.roster.set_aside(node, AGAIN_MS, self.clock.now());
    }

    /// The status first: a reader that hears of the documents finds the one that fits.
    fn publish_observed(&mut self) {
        self.publish();
        self.reporter.publish_observed(self.observed.documents());
    }

    /// Ends the links that are there to observe, in both directions, with nodes or by keys for
    /// which `stays` returns false.
    pub(super) fn end_observing(&mut self, stays: impl Fn(NodeId, PskNumber) -> bool) {
        self.observers.retain(&stays);
        let gone = self.observed.retain(|id, psk| stays(id.node, psk));
        if gone.is_empty() {
            return;
        }
        for node in gone {
            self.roster.set_aside(node, ASIDE_MS, self.clock.now());
        }
        self.publish_observed();
    }
}
