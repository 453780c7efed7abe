//! Which holders of the cluster key are admitted.

use super::name::Name;
use super::node_id::NodeId;
use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Which nodes that hold the cluster key are admitted. Each node decides for itself: a node that
/// one member does not admit is in no View with that member. Nodes that are
/// [denied](crate::keys::Keys::deny) are never admitted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Trust {
    /// All of them.
    #[default]
    KeyHolders,
    /// Those that this machine knows, and those that are admitted when they are met for the first
    /// time: *trust on first use*. Each is recorded in the namespace's
    /// [list of known nodes](crate::keys::Keys::known) and reported as
    /// [`Event::FirstMet`](crate::Event::FirstMet).
    Tofu(NewcomerPolicy),
    /// Only these. A thief of the key is kept out. Each process of a machine that runs at the same
    /// time as another one has a node id of its own, see
    /// [`MachineIdentity::slot`](crate::keys::MachineIdentity::slot).
    Pinned(BTreeSet<NodeId>),
}

/// Decides about a node that is met for the first time.
#[derive(Clone)]
pub struct NewcomerPolicy(Arc<dyn Fn(&Newcomer) -> bool + Send + Sync>);

/// A node that is met for the first time. It has proved the cluster key and its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Newcomer {
    /// Its public key.
    pub node: NodeId,
    /// The name that it has chosen.
    pub name: Name,
    /// Another known node with that name: the machine has a new identity, or pretends to be that
    /// one.
    pub namesake: Option<NodeId>,
}

impl Trust {
    /// [`Tofu`](Trust::Tofu) that admits every node that it meets for the first time.
    pub fn tofu() -> Trust {
        Trust::tofu_if(|_| true)
    }

    /// [`Tofu`](Trust::Tofu) that admits and records a newcomer if `admits` returns true. Else the
    /// newcomer is refused, and asked about again when it comes again. `admits` is called on the
    /// thread that keeps the group together: it must return at once. If it panics, the newcomer is
    /// refused.
    pub fn tofu_if(admits: impl Fn(&Newcomer) -> bool + Send + Sync + 'static) -> Trust {
        Trust::Tofu(NewcomerPolicy(Arc::new(admits)))
    }
}

impl NewcomerPolicy {
    pub(crate) fn admits(&self, newcomer: &Newcomer) -> bool {
        catch_unwind(AssertUnwindSafe(|| (self.0)(newcomer))).unwrap_or(false)
    }
}

impl fmt::Debug for NewcomerPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewcomerPolicy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_that_panics_admits_nobody() {
        let newcomer =
            Newcomer { node: NodeId([1; 32]), name: Name::from_lossy("eve"), namesake: None };
        let by = |trust| match trust {
            Trust::Tofu(on_new) => on_new.admits(&newcomer),
            _ => unreachable!(),
        };
        assert!(by(Trust::tofu()));
        assert!(!by(Trust::tofu_if(|who| who.namesake.is_some())));
        assert!(!by(Trust::tofu_if(|_| panic!("a test"))));
    }
}
