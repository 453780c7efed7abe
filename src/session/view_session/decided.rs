//! The end of a call: refused without a number, or decided.

use crate::collective::CallRefusal;
use crate::memory::{OutOfMemory, Staging};
use crate::protocol::{CodecId, EngineFault, OpId, Outcome, Rank, Rejection};
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
    /// For a committed step: the results of its calls, in order.
    pub parts: Vec<Staging>,
    /// For calls that left the codec to the plan: the codec of this member's contribution.
    pub codecs: BTreeMap<OpId, CodecId>,
    /// The fault that the engine reported, if it failed here.
    pub fault: Option<EngineFault>,
    /// It was a sync.
    pub is_sync: bool,
}

impl Decided {
    /// The length of the [whole](Decided::whole) result in bytes; `None` if there is no result.
    pub fn bytes(&self) -> Option<usize> {
        let of_parts = || self.parts.iter().map(Staging::len).sum();
        self.output.as_ref().map(Staging::len).or((!self.parts.is_empty()).then(of_parts))
    }

    /// The result; for a step, the results of its calls concatenated.
    pub fn whole(self) -> Option<Staging> {
        if self.parts.is_empty() {
            return self.output;
        }
        Some(Staging { blocks: self.parts.into_iter().flat_map(|part| part.blocks).collect() })
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
    /// A sync of the lane was dropped before it was decided here: continue that one.
    Dropped(OpId),
    /// A sync of an earlier View was dropped and has committed. This is its result; this View may
    /// still need a sync of its own.
    Kept(Decided),
    /// There is such a result, and no memory for it; it stays.
    Lacks(OutOfMemory),
}

/// The next event of a sync.
#[derive(Debug)]
pub enum SyncStep {
    /// All members have called it: the state of this rank, of this many bytes, goes to all.
    Agreed(Rank, u64),
    /// The sync was decided before that.
    Decided(Decided),
}
