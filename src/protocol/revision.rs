//! The messages about a new plan within a View.

use super::op_id::OpId;
use super::plan::Plan;
use super::view_id::ViewDigest;
use crate::wire::{Decode, Encode, Malformed, Reader, put_list};

/// Most lanes that a message names, 32 KiB; with more lanes the plan stays.
pub const LANES_TOLD_MAX: usize = if cfg!(potluck_tight) { 2 } else { 2048 };

/// A message about a new plan, on the control link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlanMessage {
    /// The View; messages of another View are dropped.
    pub view: ViewDigest,
    /// The message's content.
    pub body: PlanStep,
}

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
        /// The number of the sender's next call in each of its lanes, ascending by lane; `None` if
        /// there are more than `LANES_TOLD_MAX` lanes.
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

/// A new plan and its beginning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    /// The plan of the agreed revision.
    pub plan: Plan,
    /// The first call in each lane that runs under the plan, ascending by lane; in lanes without an
    /// entry all calls do.
    pub first: Vec<OpId>,
}

/// A descriptor's revision if the plan was not known when it was sent.
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
