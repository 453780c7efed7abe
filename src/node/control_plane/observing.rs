//! The links for the status: the consequences of the messages of nodes over them.

use super::super::look_back::{Known, LookBack};
use super::super::reporter::Complaint;
use super::super::status_links::Outcome;
use super::super::told::Told;
use super::ControlPlane;
use super::control_path::Dialled;
use super::evictions::ASIDE_MS;
use crate::identity::{MemberId, NodeId};
use crate::link::{PskNumber, SecureChannel, Stream};
use crate::report::{Event, Sight};
use crate::trace;
use std::io;
use std::net::SocketAddr;
use tokio::sync::oneshot;

/// How long a node is not dialled that has ended its link: it may have too many observers.
const AGAIN_MS: u64 = 2000;

impl ControlPlane {
    /// A node has linked with this one because at least one of them observes.
    pub(super) fn on_status_link(
        &mut self,
        stream: Box<dyn Stream>,
        channel: SecureChannel,
        address: SocketAddr,
        dialled: Dialled,
    ) {
        if let Err(refusal) = self.admit(&channel) {
            return self.count(refusal);
        }
        let peer = channel.peer.id;
        trace::debug!(%peer, ?dialled, observer = channel.peer.observer, "linked for the status");
        self.reporter.learn_name(peer.node, channel.peer.name.clone());
        let first = self.me.node.min(peer.node);
        let dialler = if dialled == Dialled::ByMe { self.me.node } else { peer.node };
        self.roster.link_up(peer);
        if let Some(gone) = self.status_links.take(stream, channel, address, dialler == first) {
            self.roster.set_aside(gone, ASIDE_MS, self.clock.now());
        }
    }

    /// A node has told something over a link for the status, or that link has ended.
    pub(super) fn on_told(&mut self, node: MemberId, number: u64, told: Told) {
        let outcome = self.status_links.on_told(node, number, &told);
        match outcome {
            Outcome::Stale => return,
            Outcome::Heard => self.reporter.forget_complaints(node.node),
            Outcome::Left => {
                self.reporter.forget_complaints(node.node);
                self.roster.set_aside(node, ASIDE_MS, self.clock.now());
                self.reporter.tell(Event::Left(self.reporter.who(node.node)));
            }
            Outcome::Refused(at) => self.complain(node, at, Complaint::NotAdmitted),
            Outcome::Silent(at) => self.complain(node, at, Complaint::Silent),
            Outcome::Ended => self.roster.set_aside(node, AGAIN_MS, self.clock.now()),
        }
        match told {
            Told::LookedBack(answer) => {
                self.reporter.looked_back(node.node, Some(Sight::from(*answer)));
            }
            Told::End(io::ErrorKind::TimedOut) => self.reporter.looked_back(node.node, None),
            _ if outcome != Outcome::Heard => self.reporter.will_not_look_back(node.node),
            _ => {}
        }
        self.publish_observed();
    }

    /// A node asks this one to look back.
    pub(super) fn on_look_back(
        &self,
        node: MemberId,
        mut dial: Vec<SocketAddr>,
        reply: oneshot::Sender<Known>,
    ) {
        dial.retain(|to| self.roster.may_dial(*to));
        // The receiver may be gone, with its link.
        let _ = reply.send(Known { hears: self.roster.hears(node.boot), dial });
    }

    /// Asks all observed nodes to look back, and announces this node again: one that has missed its
    /// announcement hears it now.
    pub(crate) fn ask_to_look_back(&mut self) {
        self.access.announce_again();
        let dial = self.network.own_addresses().iter().map(ToString::to_string).collect();
        let asked = self.status_links.look_back(&LookBack::of(dial));
        self.reporter.begin_look_back(asked.iter().map(|id| id.node));
    }

    /// The link with a node has ended before it was of use.
    fn complain(&mut self, node: MemberId, at: SocketAddr, complaint: Complaint) {
        self.reporter.complain(node, at, complaint);
        self.roster.set_aside(node, AGAIN_MS, self.clock.now());
    }

    /// The status first: a reader that hears of the documents finds the one that fits.
    fn publish_observed(&mut self) {
        self.publish();
        self.reporter.publish_observed(self.status_links.documents());
    }

    /// Ends the links for the status with nodes, or by keys, for which `stays` returns false.
    pub(super) fn end_observing(&mut self, stays: impl Fn(NodeId, PskNumber) -> bool) {
        let gone = self.status_links.retain(&stays);
        if gone.is_empty() {
            return;
        }
        for node in gone {
            self.roster.set_aside(node, ASIDE_MS, self.clock.now());
            self.reporter.will_not_look_back(node.node);
        }
        self.publish_observed();
    }
}
