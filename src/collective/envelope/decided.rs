//! Layer: Core.
//!
//! What becomes of a call: it takes no number, or it is decided.

use crate::collective::{CallRefusal, CodecId, EngineFault, Outcome, Rejection, Staging};
use crate::view::{OpId, Rank};
use std::collections::BTreeMap;

/// Why a call took no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The ledger says so.
    By(CallRefusal),
    /// A call of the lane was dropped after its vote, and nobody has asked for its result.
    Lost(OpId),
    /// This node has left the group.
    Left,
    /// It makes no sense, and has not even a place in the lane.
    Senseless(Rejection),
}

/// A decided operation.
#[derive(Debug)]
pub struct Decided {
    /// How it ended.
    pub outcome: Outcome,
    /// The result, when it is committed and the call has one.
    pub output: Option<Staging>,
    /// Of a step that is committed: the results of its calls in order.
    pub parts: Vec<Staging>,
    /// Of the calls whose codec was left to the plan: by which one this member's contribution was
    /// encoded.
    pub codecs: BTreeMap<OpId, CodecId>,
    /// What the engine reported, if it failed here.
    pub fault: Option<EngineFault>,
    /// It was a sync.
    pub is_sync: bool,
}

impl Decided {
    /// The bytes of the [whole](Decided::whole) result; `None` when there is none.
    pub fn bytes(&self) -> Option<usize> {
        let of_parts = || self.parts.iter().map(Staging::len).sum();
        self.output.as_ref().map(Staging::len).or((!self.parts.is_empty()).then(of_parts))
    }

    /// The result; of a step, those of its calls behind each other.
    pub fn whole(self) -> Option<Staging> {
        if self.parts.is_empty() {
            return self.output;
        }
        Some(Staging { blocks: self.parts.into_iter().flat_map(|part| part.blocks).collect() })
    }
}

/// Whether what a member has handed in counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in a result that everybody has who goes on.
    Counts,
    /// It is in none, and never will be.
    Void,
    /// It may count, or not.
    Unknown,
}

impl Fate {
    /// That of a decided operation.
    pub fn of(outcome: Outcome) -> Fate {
        match outcome {
            Outcome::Committed => Fate::Counts,
            // Of results that differ none is given to anybody.
            Outcome::Aborted(_) | Outcome::DigestMismatch => Fate::Void,
            Outcome::Indeterminate => Fate::Unknown,
        }
    }
}

/// What a sync has to do.
#[derive(Debug)]
pub enum SyncDue {
    /// Nothing: the member has the state that all have.
    Nothing,
    /// It is a call as others are, and takes a number.
    Call,
    /// A sync of the lane was dropped before it was decided here: it is that one.
    Dropped(OpId),
    /// One of an earlier View was dropped and has counted. This is what it brought; what there is
    /// to do in this View is another question.
    Kept(Decided),
}

/// What a sync waits for next.
#[derive(Debug)]
pub enum SyncStep {
    /// All have come: the state of this rank, of this many bytes, goes to everybody.
    Agreed(Rank, u64),
    /// It ended before that.
    Decided(Decided),
}
