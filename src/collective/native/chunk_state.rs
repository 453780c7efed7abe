//! The state of one chunk of an operation: which contributions have come, and their sum so far.

use super::partial_sum::PartialSum;
use crate::protocol::{EngineFault, Rank, RankSet};

/// The state of one chunk.
#[derive(Default)]
pub struct ChunkState {
    /// One bit per contributor whose contribution has arrived or is being received.
    came: RankSet,
    /// The number of contributors in `sum`.
    folded: usize,
    sum: Option<PartialSum>,
    /// Contributions that wait for their turn, with their index among the contributors.
    waiting: Vec<(usize, PartialSum)>,
    /// The result is here or is being received.
    landed: bool,
}

impl ChunkState {
    /// The state after the end of its operation: it expects nothing.
    pub fn ended() -> ChunkState {
        ChunkState { came: RankSet::ALL, landed: true, ..ChunkState::default() }
    }

    /// Whether the contribution of this contributor has arrived or is being received.
    pub fn has_come(&self, contributor: usize) -> bool {
        self.came.contains(Rank::from(contributor))
    }

    /// The contribution of this contributor arrives. False if it had arrived before.
    pub fn comes(&mut self, contributor: usize) -> bool {
        self.came.insert(Rank::from(contributor))
    }

    /// Whether the result is here or is being received.
    pub fn has_landed(&self) -> bool {
        self.landed
    }

    /// The result arrives. False if it had arrived before.
    pub fn lands(&mut self) -> bool {
        !std::mem::replace(&mut self.landed, true)
    }

    /// Adds a contribution, and folds all whose turn has come, in the order of the contributors.
    /// Example with three contributors, arrivals 2, 0, 1: contribution 2 waits, 0 becomes the sum,
    /// 1 is folded and then the waiting 2.
    ///
    /// # Errors
    /// Those of `fold`.
    pub fn add(
        &mut self,
        contributor: usize,
        contribution: PartialSum,
        fold: impl Fn(PartialSum, PartialSum) -> Result<PartialSum, EngineFault>,
    ) -> Result<(), EngineFault> {
        self.waiting.push((contributor, contribution));
        while let Some(next) = self.waiting.iter().position(|(index, _)| *index == self.folded) {
            let (_, contribution) = self.waiting.swap_remove(next);
            self.folded += 1;
            self.sum = Some(match self.sum.take() {
                Some(sum) => fold(sum, contribution)?,
                None => contribution,
            });
        }
        Ok(())
    }

    /// Takes the sum, once, if it has the contributions of so many contributors.
    pub fn take_sum_of(&mut self, contributors: usize) -> Option<PartialSum> {
        if self.folded < contributors { None } else { self.sum.take() }
    }
}
