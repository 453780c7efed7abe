//! The admission to the cluster. It may change while a node runs: a cluster changes its key, and
//! users deny nodes.

use crate::identity::{Namespace, NodeId, Nodes};
use std::collections::BTreeSet;

/// The keys and nodes that are admitted at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The cluster, with its keys.
    pub namespace: Namespace,
    /// Nodes that are refused, whatever key they hold.
    pub denied: BTreeSet<NodeId>,
    /// Nodes that were met before, if that makes a difference.
    pub known: Nodes,
}

impl Admission {
    /// Admits every node of this cluster.
    pub fn to(namespace: Namespace) -> Admission {
        Admission { namespace, denied: BTreeSet::new(), known: Nodes::new() }
    }
}

/// The source of [`Admission`].
pub trait Admissions: Send {
    /// The new admission if it has changed since the last look. `None` if it has not, or if it
    /// cannot be read. Blocks no longer than looking at a few small files takes.
    fn look(&mut self) -> Option<Admission>;
}

/// An admission that never changes.
pub struct Settled;

impl Admissions for Settled {
    fn look(&mut self) -> Option<Admission> {
        None
    }
}
