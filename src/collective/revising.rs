//! The agreement on a new plan within a View, led by rank 0; two phases.
//!
//! 1. *Hold.* Every member holds its new calls, and reports the next number of each lane in
//!    which it lists a call.
//! 2. *Switch.* When all members have reported, rank 0 announces the new plan. It begins in each
//!    lane at the highest reported number. Calls below that number run under the earlier plan,
//!    because they may have begun on some member; calls from it on have begun nowhere.
//!
//! A descriptor carries its plan revision. A held call that another member has begun is therefore
//! released as soon as this member has that plan. So no operation runs under two plans, no
//! operation that has begun is disturbed, and held calls wait for messages but never for a program.
//! If a member is lost meanwhile, the View ends, and with it all held calls.
//!
//! ```text
//! lane 0:         member A next = 7, member B next = 9   ->  new plan from number 9 on
//! A's calls 7, 8: old plan, B may have begun them         A's call 9: new plan
//! ```

use crate::protocol::{LANES_TOLD_MAX, Lane, OpId, Plan, PlanStep, Rank, Switch};
use std::collections::BTreeMap;

/// A change of the plan, as rank 0 leads it. One at a time: the next one begins when this one [is
/// over](Revising::is_over).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revising {
    revision: u32,
    /// By rank: the reported next numbers; the inner `None` stands for too many lanes.
    held: Vec<Option<Option<Vec<OpId>>>>,
    /// The announcement of phase 2, once it is made.
    switch: Option<PlanStep>,
    /// By rank: whether it has acknowledged the announcement.
    switched: Vec<bool>,
}

impl Revising {
    /// A change to this revision among `size` ranks. It begins with [`hold`](Revising::hold).
    pub fn new(revision: u32, size: usize) -> Revising {
        Revising { revision, held: vec![None; size], switch: None, switched: vec![false; size] }
    }

    /// The message to all members that begins phase 1.
    pub fn hold(&self) -> PlanStep {
        PlanStep::Hold { revision: self.revision }
    }

    /// A rank holds its calls.
    pub fn on_held(&mut self, from: Rank, revision: u32, next: Option<Vec<OpId>>) {
        if let Some(held) = self.held.get_mut(from.index()).filter(|_| revision == self.revision) {
            *held = Some(next);
        }
    }

    /// The revision that it leads to.
    #[cfg(test)]
    pub(crate) fn revision(&self) -> u32 {
        self.revision
    }

    /// Whether this rank has answered the announcement, or the hold if nothing is announced yet.
    #[cfg(test)]
    pub(crate) fn has_heard(&self, from: Rank) -> (bool, bool) {
        (self.held[from.index()].is_some(), self.switched[from.index()])
    }

    /// Whether all members hold and nothing has been announced.
    pub fn is_held(&self) -> bool {
        self.held.iter().all(Option::is_some) && self.switch.is_none()
    }

    /// Announces this plan, or with `None` that the plan stays; to be called once all members hold.
    /// Returns the message to all members. If there are more lanes than a message may name, the
    /// plan stays.
    pub fn decide(&mut self, plan: Option<Plan>) -> PlanStep {
        let all: Option<Vec<&Vec<OpId>>> = self.held.iter().flatten().map(Option::as_ref).collect();
        let first = all
            .map(|all| furthest(all.into_iter().flatten()))
            .filter(|first| first.len() <= LANES_TOLD_MAX);
        let revision = self.revision;
        let to = plan
            .zip(first)
            .map(|(plan, first)| Box::new(Switch { plan: Plan { revision, ..plan }, first }));
        let switch = PlanStep::Switch { revision, to };
        self.switch = Some(switch.clone());
        switch
    }

    /// A rank has acknowledged the announcement.
    pub fn on_switched(&mut self, from: Rank, revision: u32) {
        if let Some(switched) =
            self.switched.get_mut(from.index()).filter(|_| revision == self.revision)
        {
            *switched = true;
        }
    }

    /// Whether all ranks have acknowledged the announcement.
    pub fn is_over(&self) -> bool {
        self.switched.iter().all(|switched| *switched)
    }

    /// The messages that a rank must hear again after its link was down. It answers as before.
    pub fn replay(&self) -> Vec<PlanStep> {
        [self.hold()].into_iter().chain(self.switch.clone()).collect()
    }
}

/// The highest number in each lane.
fn furthest<'a>(next: impl Iterator<Item = &'a OpId>) -> Vec<OpId> {
    let mut by_lane = BTreeMap::<Lane, u64>::new();
    for op in next {
        let number = by_lane.entry(op.lane).or_default();
        *number = op.number.max(*number);
    }
    by_lane.into_iter().map(|(lane, number)| OpId { lane, number }).collect()
}

#[cfg(test)]
mod tests;
