//! Links that end because a node is not admitted any more.
//!
//! See [`AccessControl`](crate::node::access_control).

use super::super::access_control::Changed;
use super::ControlPlane;
use crate::election::Input;
use crate::identity::{MemberId, NodeId};
use crate::trace;
use std::collections::BTreeSet;
use tokio::time::Instant;

/// How long the addresses of a node that is not admitted are not dialled, in milliseconds.
pub(super) const ASIDE_MS: u64 = 5000;

impl ControlPlane {
    /// Checks whether the set of admitted nodes has changed, and acts on it.
    pub(super) fn look_at_admission(&mut self, now: Instant) {
        if self.access.takes_end_of_grace(now) {
            self.end_stale_links();
        }
        let Some(Changed { denied, has_other_keys }) = self.access.look(now) else { return };
        if let Some(denied) = denied {
            self.deny(&denied);
        }
        if has_other_keys {
            self.reporter.forget_refusals();
            self.roster.set_relation(self.access.relation(), self.clock.now());
        }
    }

    fn deny(&mut self, denied: &BTreeSet<NodeId>) {
        // A member of the View may be without a link at this moment.
        let view = self.installed.session().map(|session| session.view());
        let members = view.iter().flat_map(|view| view.members.iter().map(|m| m.id));
        let here: BTreeSet<MemberId> = members
            .chain(self.peers.iter().map(|(id, _)| *id))
            .filter(|id| denied.contains(&id.node) && *id != self.me)
            .collect();
        self.end_observing(|node, _| !denied.contains(&node));
        for member in here {
            trace::info!(peer = %member, "a denied node loses its link");
            self.turn_away(member, ASIDE_MS);
        }
    }

    fn end_stale_links(&mut self) {
        let local = self.access.local();
        self.end_observing(|_, psk| local.accepts(psk));
        let stale = self.peers.iter().filter(|(_, link)| !self.access.accepts(link.psk()));
        let stale: Vec<MemberId> = stale.map(|(id, _)| *id).collect();
        for member in stale {
            trace::warn!(peer = %member, "a node that does not hold the new cluster key loses its \
                link");
            self.turn_away(member, ASIDE_MS);
        }
        let Some(session) = self.installed.session() else { return };
        let is_stale = |rank| {
            self.paths
                .data_path(rank)
                .is_some_and(|data_path| !self.access.accepts(data_path.at().psk))
        };
        if session.view().ranks().any(is_stale) {
            // The data links of the next View are made with the new key.
            self.step(Input::DataLinkLost(session.digest()));
        }
    }

    /// Ends the link of a peer that is not to have one, and its place in the View. Its addresses
    /// are not dialled for a while.
    pub(super) fn turn_away(&mut self, member: MemberId, wait_ms: u64) {
        self.drop_link(member);
        self.roster.set_aside(member, wait_ms, self.clock.now());
        self.step(Input::LinkDown(member));
        self.give_up(member);
    }
}
