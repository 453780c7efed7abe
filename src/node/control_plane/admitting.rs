//! Takes up changes of who is admitted while the node runs.
//!
//! When a key is not accepted any more, the links that it admitted [are renewed](super::renewal)
//! with the other one, and no call notices. A peer that does not hold the other one loses its link
//! when [`GRACE`] is over.

use super::super::admission::Admission;
use super::Node;
use crate::election::Input;
use crate::identity::{MemberId, NODES_MAX, Namespace, Newcomer, NodeId, Trust};
use crate::link::{Hello, Refusal, Session};
use crate::report::NodeInfo;
use crate::trace;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Interval between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// How long links by a key that is not accepted any more stand while they are renewed.
pub const GRACE: Duration = Duration::from_secs(10);

/// How long the addresses of a denied node are not dialled, in milliseconds.
const ASIDE_MS: u64 = 5000;

impl Node {
    /// Whether this node's advert has changed since the last call of this method.
    pub(crate) fn has_new_advert(&mut self) -> bool {
        std::mem::take(&mut self.admitting.has_new_advert)
    }

    /// Whether a peer is admitted that has proved the cluster key and its identity. Its handshake
    /// may have begun before the last change.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn admit(&mut self, session: &Session) -> Result<(), Refusal> {
        let local = &self.config.local;
        local.admits(session.peer.id.node)?;
        let renews = self.admitting.ends_at.is_some();
        if !renews && !local.accepts(session.psk) {
            return Err(Refusal::WrongKey);
        }
        self.admit_newcomer(&session.peer)
    }

    fn admit_newcomer(&mut self, peer: &Hello) -> Result<(), Refusal> {
        let Trust::Tofu(on_new) = &self.config.trust else { return Ok(()) };
        let (node, name) = (peer.id.node, peer.name.clone());
        let known = &mut self.config.admission.known;
        if known.contains_key(&node) {
            return Ok(());
        }
        let namesake = known.iter().find(|(_, of)| *of == name.as_str()).map(|(node, _)| *node);
        let has_room = known.len() < NODES_MAX;
        if !has_room || !on_new.admits(&Newcomer { node, name: name.clone(), namesake }) {
            trace::warn!(%node, %name, has_room, "a node that was met for the first time is refused");
            return Err(Refusal::Unwelcome);
        }
        known.insert(node, name.as_str().to_owned());
        self.store.know(node, name.as_str().to_owned());
        let peer = NodeInfo { node, name: Some(name) };
        self.announce_event(crate::report::Event::FirstMet { peer, namesake });
        Ok(())
    }

    /// Looks whether somebody else is admitted now, and acts on it.
    pub(super) fn look_at_admission(&mut self, now: Instant) {
        if self.admitting.ends_at.take_if(|at| now >= *at).is_some() {
            self.end_stale_links();
        }
        if now < self.admitting.look_at {
            return;
        }
        self.admitting.look_at = now + LOOK;
        let Some(admission) = self.admitting.door.look() else { return };
        let before = std::mem::replace(&mut self.config.admission, admission.clone());
        let Admission { namespace, denied, .. } = admission;
        if denied != before.denied {
            self.deny(denied);
        }
        if namespace != before.namespace {
            self.change_keys(namespace, &before.namespace, now);
        }
    }

    fn deny(&mut self, denied: BTreeSet<NodeId>) {
        trace::info!(nodes = denied.len(), "the list of denied nodes has changed");
        // A member of the View may be without a link at this moment.
        let members = self.envelope.iter().flat_map(|e| e.view().members.iter().map(|m| m.id));
        let here: BTreeSet<MemberId> = members
            .chain(self.peers.iter().map(|(id, _)| *id))
            .filter(|id| denied.contains(&id.node) && *id != self.me)
            .collect();
        self.config.local.set_denied(denied);
        for member in here {
            trace::info!(peer = %member, "a denied node loses its link");
            self.turn_away(member);
        }
    }

    fn change_keys(&mut self, namespace: Namespace, before: &Namespace, now: Instant) {
        let (psks, boot) = (namespace.psks(), self.me.boot);
        trace::info!(keys = psks.len(), "the cluster key has changed");
        self.config.local.set_psks(psks);
        self.admitting.has_new_advert = namespace.tag(boot) != before.tag(boot);
        self.refusals.clear();
        self.roster.set_knows(move |boot, tag| namespace.knows(boot, tag), self.now());
        self.admitting.ends_at = Some(now + self.config.grace);
    }

    fn end_stale_links(&mut self) {
        let local = std::sync::Arc::clone(&self.config.local);
        let stale: Vec<MemberId> = self
            .peers
            .iter()
            .filter(|(_, link)| !local.accepts(link.psk()))
            .map(|(id, _)| *id)
            .collect();
        for member in stale {
            trace::warn!(peer = %member, "a node that does not hold the new cluster key loses its \
                link");
            self.turn_away(member);
        }
        let Some(envelope) = self.envelope.clone() else { return };
        let is_stale = |rank| self.ways.psk_of(rank).is_some_and(|psk| !local.accepts(psk));
        if envelope.view().ranks().any(is_stale) {
            // The data links of the next View are made with the new key.
            self.step(Input::DataLinkLost(envelope.digest()));
        }
    }

    /// Ends the link of a peer that is not admitted any more, and its place in the View.
    fn turn_away(&mut self, member: MemberId) {
        self.drop_link(member);
        self.roster.set_aside(member, ASIDE_MS, self.now());
        self.step(Input::LinkDown(member));
        self.give_up(member);
    }
}
