//! Layer: Words.
//!
//! What members tell each other about another plan for their View.

use crate::topology::Plan;
use crate::view::{OpId, ViewDigest};
use crate::wire::{Decode, Encode, Malformed, Reader, put_list};

/// Most lanes of one member whose numbers are told; with more of them the plan stays. 32 KiB.
pub const LANES_TOLD_MAX: usize = 2048;

/// A message about another plan, on the control link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlanMessage {
    /// The View that it is for; messages of another View are dropped.
    pub view: ViewDigest,
    /// What is said.
    pub body: PlanStep,
}

/// What is said of a plan. First rank 0 has all hold; then it says which plan comes, and from where
/// on it is used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PlanStep {
    /// Rank 0: hold the calls that you make from now on, for a plan of this revision.
    Hold {
        /// Of the plan to come.
        revision: u32,
    },
    /// The sender holds them.
    Held {
        /// Of the plan to come.
        revision: u32,
        /// The number that its next call in each of its lanes has, ascending by lane; `None` when
        /// these are too many to be told.
        next: Option<Vec<OpId>>,
    },
    /// Rank 0: everybody holds, so this is where the plan begins.
    Switch {
        /// What was held for.
        revision: u32,
        /// `None` when the plan stays as it was.
        to: Option<Box<Switch>>,
    },
    /// The sender has heard that.
    Switched {
        /// Of the plan.
        revision: u32,
    },
}

/// Another plan, and where it begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    /// Of the revision that was held for.
    pub plan: Plan,
    /// In each lane the first call that runs under it, ascending by lane; in lanes that are not
    /// named all do.
    pub first: Vec<OpId>,
}

/// In place of a plan's revision, of what is described before it is known.
pub const REVISION_UNKNOWN: u32 = u32::MAX;

impl Encode for PlanMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        self.view.encode(out);
        match &self.body {
            PlanStep::Hold { revision } => {
                out.push(1);
                out.extend_from_slice(&revision.to_le_bytes());
            }
            PlanStep::Held { revision, next } => {
                out.push(2);
                out.extend_from_slice(&revision.to_le_bytes());
                out.push(u8::from(next.is_some()));
                next.iter().for_each(|next| put_list(out, next));
            }
            PlanStep::Switch { revision, to } => {
                out.push(3);
                out.extend_from_slice(&revision.to_le_bytes());
                out.push(u8::from(to.is_some()));
                if let Some(to) = to {
                    to.plan.encode(out);
                    put_list(out, &to.first);
                }
            }
            PlanStep::Switched { revision } => {
                out.push(4);
                out.extend_from_slice(&revision.to_le_bytes());
            }
        }
    }
}

fn lanes(r: &mut Reader<'_>) -> Result<Vec<OpId>, Malformed> {
    let lanes: Vec<OpId> = r.list(LANES_TOLD_MAX)?;
    let ascending = lanes.windows(2).all(|pair| pair[0].lane < pair[1].lane);
    if ascending { Ok(lanes) } else { Err(Malformed::Inconsistent) }
}

impl Decode for PlanMessage {
    fn decode(r: &mut Reader<'_>) -> Result<PlanMessage, Malformed> {
        let view = ViewDigest::decode(r)?;
        let body = match r.u8()? {
            1 => PlanStep::Hold { revision: r.u32()? },
            2 => PlanStep::Held {
                revision: r.u32()?,
                next: if r.bool()? { Some(lanes(r)?) } else { None },
            },
            3 => {
                let (revision, has_plan) = (r.u32()?, r.bool()?);
                let mut to = || Ok(Box::new(Switch { plan: Plan::decode(r)?, first: lanes(r)? }));
                let to = if has_plan { Some(to()?) } else { None };
                if to.as_ref().is_some_and(|to| to.plan.revision != revision) {
                    return Err(Malformed::Inconsistent);
                }
                PlanStep::Switch { revision, to }
            }
            4 => PlanStep::Switched { revision: r.u32()? },
            _ => return Err(Malformed::UnknownTag),
        };
        Ok(PlanMessage { view, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Lane;
    use crate::wire::testing::assert_codec;

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
