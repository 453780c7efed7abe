//! The end of a call: refused without a number, or decided.

use super::part_result::PartResult;
use crate::collective::{CallRefusal, SyncSource};
use crate::memory::{OutOfMemory, Staging, Target};
use crate::protocol::{CodecId, EngineFault, OpId, Outcome, Rejection};
use std::collections::BTreeMap;

/// Why a call took no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The ledger refused it.
    By(CallRefusal),
    /// A call of the lane was dropped after its vote, and the program has not fetched the result.
    Lost(OpId),
    /// This node has left the group.
    Left,
    /// The call is invalid; it does not take a place in the lane.
    Senseless(Rejection),
    /// There is no memory for the result that it would only have to take; the result stays.
    NoMemory(OutOfMemory),
}

/// A decided operation.
#[derive(Debug)]
pub struct Decided {
    /// How it ended.
    pub outcome: Outcome,
    /// The result, when it is committed and the call has one.
    pub output: Option<Staging>,
    /// For a committed step: the results of its calls, in order, without the sums of weights.
    pub parts: Vec<PartResult>,
    /// For calls that left the codec to the plan: the codec of this member's contribution.
    pub codecs: BTreeMap<OpId, CodecId>,
    /// The fault that the engine reported, if it failed here.
    pub fault: Option<EngineFault>,
    /// It was a sync.
    pub is_sync: bool,
}

impl Decided {
    /// The length of the result in bytes, for a step that of the results of its calls; `None` if
    /// there is no result.
    pub fn bytes(&self) -> Option<usize> {
        let of_parts = || self.parts.iter().map(PartResult::len).sum();
        self.output.as_ref().map(Staging::len).or((!self.parts.is_empty()).then(of_parts))
    }

    /// Copies the result out, for a step the results of its calls one after the other. `out` must
    /// have exactly [`bytes`](Decided::bytes) bytes.
    pub fn copy_to<'a>(&self, out: impl Into<Target<'a>>) {
        let mut rest = out.into();
        self.output.iter().for_each(|output| output.copy_to(rest.reborrow()));
        for part in &self.parts {
            let place = part.len().min(rest.len());
            let (own, others) = rest.split_at(place);
            part.copy_to(own);
            rest = others;
        }
    }
}

/// Whether a member's contribution counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is part of a result that every continuing member has.
    Counts,
    /// It is part of no result, and never will be.
    Void,
    /// Unknown.
    Unknown,
}

impl Fate {
    /// The fate of a decided operation's contribution.
    pub fn of(outcome: Outcome) -> Fate {
        match outcome {
            Outcome::Committed => Fate::Counts,
            // No member gets any of the differing results.
            Outcome::Aborted(_) | Outcome::DigestMismatch { .. } => Fate::Void,
            Outcome::Indeterminate => Fate::Unknown,
        }
    }
}

/// How a sync proceeds.
#[derive(Debug)]
pub enum SyncDue {
    /// Nothing to do: the member has the common state.
    Nothing,
    /// It is an ordinary call and takes a number.
    Call,
    /// The last sync of the lane has delivered a state with this digest. If the member's state has
    /// changed since, it is an ordinary call, else there is nothing to do.
    Unless(u128),
    /// A sync of the lane was dropped before it was decided here: continue that one.
    Dropped(OpId),
}

/// The next event of a sync.
#[derive(Debug)]
pub enum SyncStep {
    /// All members have called it: the state of this rank goes to all. Its length is known, unless
    /// this member is the source.
    Agreed(SyncSource),
    /// The sync was decided before that.
    Decided(Decided),
}
