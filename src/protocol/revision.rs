//! The messages about a new plan within a View.

use super::op_id::OpId;
use super::plan::Plan;
use super::view_id::ViewDigest;
use crate::wire::layout::{List, layout};
use crate::wire::{Decode, Encode, Malformed, Reader};

/// Most lanes that a message names, 40 KiB; with more lanes the plan stays.
pub const LANES_TOLD_MAX: usize = if cfg!(potluck_tight) { 2 } else { 2048 };

/// A message about a new plan, on the control link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlanMessage {
    /// The View; messages of another View are dropped.
    pub view: ViewDigest,
    /// The message's content.
    pub body: PlanStep,
}

layout!(PlanMessage { view, body });

/// The steps of a plan change: rank 0 lets all members hold, then announces the plan and the
/// numbers at which it begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PlanStep {
    /// From rank 0: hold calls made from now on, for a plan of this revision.
    Hold {
        /// The revision of the plan to come.
        revision: u32,
    },
    /// From a member: it holds its calls.
    Held {
        /// The revision of the plan to come.
        revision: u32,
        /// The number of the sender's next call in each lane of collectives in which it lists a
        /// call, ascending by lane; `None` if there are more than `LANES_TOLD_MAX` of these.
        next: Option<Vec<OpId>>,
    },
    /// From rank 0: all members hold, and the plan begins here.
    Switch {
        /// The revision for which calls are held.
        revision: u32,
        /// The new plan; `None` if the plan stays.
        to: Option<Box<Switch>>,
    },
    /// From a member: the acknowledgement of `Switch`.
    Switched {
        /// The revision.
        revision: u32,
    },
}

layout! {
    enum PlanStep {
        1 => Hold { revision },
        2 => Held { revision, next: OptionalList },
        3 => Switch { revision, to },
        4 => Switched { revision },
    }
    if PlanStep::is_consistent
}

impl PlanStep {
    fn is_consistent(&self) -> bool {
        let ascends = |calls: &[OpId]| calls.is_sorted_by(|a, b| a.lane < b.lane);
        match self {
            PlanStep::Held { next: Some(next), .. } => ascends(next),
            PlanStep::Switch { revision, to: Some(to) } => {
                to.plan.revision == *revision && ascends(&to.first)
            }
            _ => true,
        }
    }
}

/// A presence byte (0 or 1), then the list if it is 1.
struct OptionalList;

impl OptionalList {
    fn put(&self, calls: &Option<Vec<OpId>>, out: &mut Vec<u8>) {
        calls.is_some().encode(out);
        calls.iter().for_each(|calls| List(LANES_TOLD_MAX).put(calls, out));
    }

    fn read(&self, r: &mut Reader<'_>) -> Result<Option<Vec<OpId>>, Malformed> {
        Ok(if bool::decode(r)? { Some(List(LANES_TOLD_MAX).read(r)?) } else { None })
    }
}

/// A new plan and its beginning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    /// The plan of the agreed revision.
    pub plan: Plan,
    /// The first call in each lane that runs under the plan, ascending by lane; in lanes without an
    /// entry all calls do.
    pub first: Vec<OpId>,
}

layout!(Switch { plan, first: List(LANES_TOLD_MAX) });

/// A descriptor's revision if the plan was not known when it was sent.
pub const REVISION_UNKNOWN: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::super::op_id::Lane;
    use super::*;
    use crate::wire::assert_codec;

    #[test]
    fn every_step_survives_the_wire() {
        let lanes = vec![
            OpId { lane: Lane::MAIN, number: 3 },
            OpId { lane: Lane::tagged(7), number: u64::MAX },
        ];
        let bodies = [
            PlanStep::Hold { revision: 1 },
            PlanStep::Held { revision: 1, next: Some(lanes.clone()) },
            PlanStep::Held { revision: 1, next: None },
            PlanStep::Switch {
                revision: 0,
                to: Some(Box::new(Switch { plan: Plan::mesh(3), first: lanes.clone() })),
            },
            PlanStep::Switch { revision: 7, to: None },
            PlanStep::Switched { revision: 2 },
        ];
        for body in bodies {
            assert_codec(&PlanMessage { view: ViewDigest([3; 32]), body });
        }
        let twice = PlanStep::Held { revision: 1, next: Some(vec![lanes[0], lanes[0]]) };
        let bytes = PlanMessage { view: ViewDigest([3; 32]), body: twice }.to_bytes();
        assert_eq!(PlanMessage::from_bytes(&bytes), Err(Malformed::Inconsistent));
    }
}
