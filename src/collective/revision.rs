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

/// What is said of a plan. First rank 0 proposes it, and all hold; then it says from where on it is used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PlanStep {
    /// Rank 0: whoever hears of this plan holds the calls that it makes from now on.
    Propose(Box<Plan>),
    /// The sender holds them.
    Held {
        /// Of the plan it has heard of.
        revision: u32,
        /// The number that its next call in each of its lanes has, ascending by lane; `None` when these are too many to be told.
        next: Option<Vec<OpId>>,
    },
    /// Rank 0: everybody holds, so this is where the plan begins.
    Switch {
        /// Of the plan.
        revision: u32,
        /// In each lane the first call that runs under it; in lanes that are not named all do. `None` when the plan stays as it was.
        first: Option<Vec<OpId>>,
    },
    /// The sender has heard that.
    Switched {
        /// Of the plan.
        revision: u32,
    },
}

impl Encode for PlanMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        self.view.encode(out);
        match &self.body {
            PlanStep::Propose(plan) => {
                out.push(1);
                plan.encode(out);
            }
            PlanStep::Held { revision, next } => {
                out.push(2);
                put_lanes(out, *revision, next.as_deref());
            }
            PlanStep::Switch { revision, first } => {
                out.push(3);
                put_lanes(out, *revision, first.as_deref());
            }
            PlanStep::Switched { revision } => {
                out.push(4);
                out.extend_from_slice(&revision.to_le_bytes());
            }
        }
    }
}

fn put_lanes(out: &mut Vec<u8>, revision: u32, lanes: Option<&[OpId]>) {
    out.extend_from_slice(&revision.to_le_bytes());
    out.push(u8::from(lanes.is_some()));
    if let Some(lanes) = lanes {
        put_list(out, lanes);
    }
}

fn lanes(r: &mut Reader<'_>) -> Result<Option<Vec<OpId>>, Malformed> {
    let lanes: Option<Vec<OpId>> = if r.bool()? { Some(r.list(LANES_TOLD_MAX)?) } else { None };
    let ascending = lanes.iter().flat_map(|lanes| lanes.windows(2)).all(|pair| pair[0].lane < pair[1].lane);
    if ascending { Ok(lanes) } else { Err(Malformed::Inconsistent) }
}

impl Decode for PlanMessage {
    fn decode(r: &mut Reader<'_>) -> Result<PlanMessage, Malformed> {
        let view = ViewDigest::decode(r)?;
        let body = match r.u8()? {
            1 => PlanStep::Propose(Box::new(Plan::decode(r)?)),
            2 => PlanStep::Held { revision: r.u32()?, next: lanes(r)? },
            3 => PlanStep::Switch { revision: r.u32()?, first: lanes(r)? },
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
        let lanes = vec![OpId { lane: Lane::MAIN, number: 3 }, OpId { lane: Lane::tagged(7), number: u64::MAX }];
        let bodies = [
            PlanStep::Propose(Box::new(Plan::mesh(3))),
            PlanStep::Held { revision: 1, next: Some(lanes.clone()) },
            PlanStep::Held { revision: 1, next: None },
            PlanStep::Switch { revision: 2, first: Some(Vec::new()) },
            PlanStep::Switch { revision: u32::MAX, first: None },
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
