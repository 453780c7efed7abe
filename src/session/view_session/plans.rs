//! The plans of a View: its first one and the later revisions.
//!
//! The members agree by lane and number under which revision a call runs, see
//! [`Revising`](crate::collective::Revising). A call made during that agreement is held with a copy
//! of its input. A separate thread hands it to the engine afterwards, because the copy may be large
//! and the control plane must not do it.

use crate::memory::Block;
use crate::protocol::{Call, OpId, Plan, Rank};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The plans under which calls may run, and the held calls whose plan is not known yet.
pub(super) struct Plans {
    /// By revision.
    pub(super) known: BTreeMap<u32, Arc<Plan>>,
    pub(super) held: Vec<(Begun, Option<Block>)>,
}

/// A call on its way to the engine.
#[derive(Clone, Copy)]
pub(super) enum Begun {
    /// A call with its own number.
    Whole(OpId, Call),
    /// A call of a step.
    Part(OpId, Call),
    /// A sync's state transfer from this rank, of this many bytes.
    Sync(OpId, Call, (Rank, u64)),
}

impl Begun {
    pub(super) fn call(self) -> (OpId, Call) {
        match self {
            Begun::Whole(op, call) | Begun::Part(op, call) | Begun::Sync(op, call, _) => (op, call),
        }
    }

    pub(super) fn source(self) -> Option<(Rank, u64)> {
        if let Begun::Sync(_, _, source) = self { Some(source) } else { None }
    }
}

impl Plans {
    pub(super) fn new(first: &Plan) -> Plans {
        Plans {
            known: BTreeMap::from([(first.revision, Arc::new(first.clone()))]),
            held: Vec::new(),
        }
    }

    pub(super) fn of(&self, revision: u32) -> Arc<Plan> {
        // The ledger names only revisions whose plan `switch` has stored, and `switch` keeps each
        // plan that the ledger may still name.
        self.known
            .get(&revision)
            .or(self.known.values().next())
            .cloned()
            .expect("the plan of the View is always used")
    }

    /// The number of held calls.
    #[cfg(test)]
    pub(super) fn held_now(&self) -> usize {
        self.held.len()
    }

    /// Takes what is held of an operation that is decided: its input is not wanted any more.
    pub(super) fn no_longer_wanted(
        &mut self,
        whole: OpId,
    ) -> impl Iterator<Item = (Begun, Option<Block>)> {
        self.held.extract_if(.., move |(begun, _)| begun.call().0.whole() == whole)
    }

    /// The View has ended: held calls are decided without the engine.
    pub(super) fn forget_held(&mut self) {
        self.held.clear();
    }
}
