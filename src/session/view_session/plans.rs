//! The plans of a View: its first one and the later revisions.
//!
//! The members agree by lane and number under which revision a call runs, see
//! [`Revising`](crate::collective::Revising). A call made during that agreement is held with a copy
//! of its input. A separate thread hands it to the engine afterwards, because the copy may be large
//! and the control plane must not do it.

use crate::memory::Block;
use crate::protocol::{Call, Lane, OpId, Plan, Rank, View};
use crate::topology::plan_of_group;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The plans under which calls may run, and the held calls whose plan is not known yet.
pub(super) struct Plans {
    /// By revision.
    pub(super) known: BTreeMap<u32, Arc<Plan>>,
    /// Those of sub-groups, derived from these, by revision and by a lane of the group. At most
    /// [`GROUPS_MAX`].
    of_groups: BTreeMap<(u32, Lane), Arc<Plan>>,
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

/// Most plans of sub-groups that are kept. More are derived again.
const GROUPS_MAX: usize = 64;

impl Plans {
    pub(super) fn new(first: &Plan) -> Plans {
        Plans {
            known: BTreeMap::from([(first.revision, Arc::new(first.clone()))]),
            of_groups: BTreeMap::new(),
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

    /// Like [`of`](Plans::of), for a call in this lane of the View: the plan of the lane's group.
    pub(super) fn in_lane(&mut self, revision: u32, lane: Lane, view: &View) -> Arc<Plan> {
        let whole = self.of(revision);
        if !lane.is_of_group() {
            return whole;
        }
        let key = (revision, lane.caller().with_tag(0));
        if let Some(plan) = self.of_groups.get(&key) {
            return Arc::clone(plan);
        }
        let narrowed = plan_of_group(&whole, lane.group(view.size()), &view.no_direct_link);
        // No Context has a group that its direct links do not connect.
        let plan = narrowed.map_or(whole, Arc::new);
        if self.of_groups.len() >= GROUPS_MAX {
            self.of_groups.clear();
        }
        self.of_groups.insert(key, Arc::clone(&plan));
        plan
    }

    /// Forgets all plans but those of these revisions.
    pub(super) fn keep(&mut self, is_used: impl Fn(u32) -> bool) {
        self.known.retain(|revision, _| is_used(*revision));
        self.of_groups.retain(|(revision, _), _| is_used(*revision));
    }

    /// The number of held calls.
    #[cfg(test)]
    pub(super) fn held_now(&self) -> usize {
        self.held.len()
    }

    /// Takes the held calls of a decided operation: their input is not wanted any more.
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
