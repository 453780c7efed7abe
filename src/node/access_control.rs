//! Which nodes may link with this one, and how often they may propose a View.
//!
//! The admission files may change while the node runs. When a key is not accepted any more, the
//! links that it admitted get fresh keys, and no call notices. A peer that does not hold the other
//! key loses its link when [`GRACE`] is over.

use super::admission::{Admission, Admissions};
use super::proposals::Proposals;
use crate::discovery::{Relation, Tags};
use crate::identity::{Boot, NODES_MAX, Namespace, Newcomer, NodeId, Trust};
use crate::link::{Hello, Local, PskNumber, Refusal, SecureChannel};
use crate::trace;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Interval between two looks at the admission files.
const LOOK: Duration = Duration::from_millis(500);

/// How long links by a key that is not accepted any more stand while they are renewed.
pub const GRACE: Duration = Duration::from_secs(10);

/// Decides which nodes are admitted.
pub(super) struct AccessControl {
    local: Arc<Local>,
    trust: Trust,
    admission: Admission,
    door: Box<dyn Admissions>,
    look_at: Instant,
    has_new_advert: bool,
    /// When links by a key that is not accepted any more end.
    ends_at: Option<Instant>,
    grace: Duration,
    proposals: Proposals,
}

/// A change of the admitted nodes.
pub(super) struct Changed {
    /// All nodes that are denied now, if they are other ones.
    pub(super) denied: Option<BTreeSet<NodeId>>,
    /// The cluster has other keys now.
    pub(super) has_other_keys: bool,
}

impl AccessControl {
    /// For the handshakes of `local`, which then admit as `admission` and `trust` say.
    pub(super) fn new(
        local: Arc<Local>,
        trust: Trust,
        admission: Admission,
        door: Box<dyn Admissions>,
        grace: Duration,
    ) -> AccessControl {
        local.set_denied(admission.denied.clone());
        if let Trust::Pinned(nodes) = &trust {
            local.pin(nodes.clone());
        }
        AccessControl {
            local,
            trust,
            admission,
            door,
            look_at: Instant::now(),
            has_new_advert: false,
            ends_at: None,
            grace,
            proposals: Proposals::default(),
        }
    }

    /// The keys and the hello of this node.
    pub(super) fn local(&self) -> Arc<Local> {
        Arc::clone(&self.local)
    }

    pub(super) fn namespace(&self) -> &Namespace {
        &self.admission.namespace
    }

    /// The tags of the cluster and the job in this node's announcement.
    pub(super) fn tags(&self) -> Tags {
        let (namespace, hello) = (self.namespace(), &self.local.hello);
        let boot = hello.id.boot;
        let job = match hello.observer {
            true => namespace.observer_tag(boot),
            false => namespace.job_tag(boot, &hello.job),
        };
        Tags { cluster: namespace.tag(boot), job }
    }

    /// How the tags of other nodes are read, until the keys change.
    pub(super) fn relation(&self) -> impl Fn(Boot, Tags) -> Relation + Send + 'static {
        let (namespace, hello) = (self.namespace().clone(), self.local.hello.clone());
        move |boot, tags| match Relation::of(&namespace, &hello.job, boot, tags) {
            // An observer dials the nodes of all jobs.
            Relation::OtherJob | Relation::Observer if hello.observer => Relation::SameJob,
            relation => relation,
        }
    }

    /// Lets this node be announced again.
    pub(super) fn announce_again(&mut self) {
        self.has_new_advert = true;
    }

    /// Whether this node's advert has changed since the last call of this method.
    pub(super) fn takes_new_advert(&mut self) -> bool {
        std::mem::take(&mut self.has_new_advert)
    }

    /// Whether links by this key stay.
    pub(super) fn accepts(&self, psk: PskNumber) -> bool {
        self.local.accepts(psk)
    }

    /// Whether a peer is admitted that has proved the cluster key and its identity. Its handshake
    /// may have begun before the last change. Returns the node if it is met for the first time and
    /// that makes a difference.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn admit(&mut self, session: &SecureChannel) -> Result<Option<Newcomer>, Refusal> {
        self.local.admits(session.peer.id.node)?;
        if self.ends_at.is_none() && !self.local.accepts(session.psk) {
            return Err(Refusal::WrongKey);
        }
        self.admit_newcomer(&session.peer)
    }

    fn admit_newcomer(&mut self, peer: &Hello) -> Result<Option<Newcomer>, Refusal> {
        let Trust::Tofu(on_new) = &self.trust else { return Ok(None) };
        let (node, name) = (peer.id.node, peer.name.clone());
        let known = &mut self.admission.known;
        if known.contains_key(&node) {
            return Ok(None);
        }
        let namesake = known.iter().find(|(_, of)| *of == name.as_str()).map(|(node, _)| *node);
        let has_room = known.len() < NODES_MAX;
        let newcomer = Newcomer { node, name, namesake };
        if !has_room || !on_new.admits(&newcomer) {
            let name = &newcomer.name;
            trace::warn!(%node, %name, has_room, "a node that was met first now is refused");
            return Err(Refusal::Unwelcome);
        }
        known.insert(node, newcomer.name.as_str().to_owned());
        Ok(Some(newcomer))
    }

    /// Whether the proposal of a View that `from` makes now is within its bound; then it counts.
    pub(super) fn admits_proposal(&mut self, now_ms: u64, from: NodeId) -> bool {
        self.proposals.admit(now_ms, from)
    }

    /// Whether the cluster key has changed, and links by the old one have not ended yet.
    pub(super) fn changes_key(&self) -> bool {
        self.ends_at.is_some()
    }

    /// Whether links by a key that is not accepted any more end now.
    pub(super) fn takes_end_of_grace(&mut self, now: Instant) -> bool {
        self.ends_at.take_if(|at| now >= *at).is_some()
    }

    /// Checks whether the set of admitted nodes has changed, if it is time. The handshakes follow
    /// at once.
    pub(super) fn look(&mut self, now: Instant) -> Option<Changed> {
        if now < self.look_at {
            return None;
        }
        self.look_at = now + LOOK;
        let next = self.door.look()?;
        let before = std::mem::replace(&mut self.admission, next);
        let Admission { namespace, denied, .. } = self.admission.clone();
        let denied = (denied != before.denied).then_some(denied);
        if let Some(denied) = &denied {
            trace::info!(nodes = denied.len(), "the list of denied nodes has changed");
            self.local.set_denied(denied.clone());
        }
        let has_other_keys = namespace != before.namespace;
        if has_other_keys {
            self.change_keys(&namespace, &before.namespace, now);
        }
        Some(Changed { denied, has_other_keys })
    }

    fn change_keys(&mut self, namespace: &Namespace, before: &Namespace, now: Instant) {
        let (psks, boot) = (namespace.psks(), self.local.hello.id.boot);
        trace::info!(keys = psks.len(), "the cluster key has changed");
        self.local.set_psks(psks);
        self.has_new_advert = namespace.tag(boot) != before.tag(boot);
        self.ends_at = Some(now + self.grace);
    }
}
