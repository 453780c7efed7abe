//! The descriptors of one call, by rank.

use crate::protocol::{Call, Descriptor, Mismatch, Rank, RankSet};

/// The descriptors that the ranks have sent for one call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Calls {
    /// The ranks that take part.
    participants: RankSet,
    by_rank: Vec<Option<Descriptor>>,
}

impl Calls {
    pub(super) fn new(participants: RankSet, size: usize) -> Calls {
        Calls { participants, by_rank: vec![None; size] }
    }

    pub(super) fn of(&self, rank: Rank) -> Option<Call> {
        self.by_rank[rank.index()].map(|d| d.call)
    }

    pub(super) fn descriptor(&self, rank: Rank) -> Option<Descriptor> {
        self.by_rank[rank.index()]
    }

    /// Records the descriptor of `rank`. `Some(true)` if it is the first, `Some(false)` if it
    /// repeats the first, `None` if it contradicts it.
    pub(super) fn note(&mut self, rank: Rank, descriptor: Descriptor) -> Option<bool> {
        let known = &mut self.by_rank[rank.index()];
        match *known {
            None => {
                *known = Some(descriptor);
                Some(true)
            }
            Some(same) => (same == descriptor).then_some(false),
        }
    }

    pub(super) fn said(&self) -> impl Iterator<Item = (Rank, Call)> {
        self.by_rank.iter().enumerate().filter_map(|(i, d)| Some((Rank(i as u8), (*d)?.call)))
    }

    /// The participants without a descriptor.
    pub(super) fn missing(&self) -> impl Iterator<Item = Rank> {
        self.participants.iter().filter(|rank| self.descriptor(*rank).is_none())
    }

    pub(super) fn are_complete(&self) -> bool {
        self.missing().next().is_none()
    }

    /// The lowest rank with a descriptor, and the lowest rank that contradicts it.
    pub(super) fn mismatch(&self) -> Option<Mismatch> {
        let mut calls = self.said();
        let lower = calls.next()?;
        let higher = calls.find(|(_, call)| !call.agrees(&lower.1))?;
        Some(Mismatch { lower, higher })
    }
}
