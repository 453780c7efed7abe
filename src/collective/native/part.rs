//! Layer: Shells.
//!
//! Bytes of one chunk on their way: contributions, sums of some of them, and what of it is sent.

use crate::collective::canvas::{Claim, Piece};
use crate::collective::{Block, DType, Misfit, Pool, ReduceOp, fold};
use crate::copying::copy;
use std::sync::Arc;

/// A contribution, or the sum of some.
pub enum Part {
    /// In a block, which may be on its way to a peer as well.
    Block(Arc<Block>),
    /// In its place in the result.
    InPlace(Claim),
    /// This rank's own, copied to where the result will be: it is added to something else, and then
    /// the place is free.
    Staged(Claim),
}

/// What a frame carries; shared, never copied.
#[derive(Clone)]
pub enum Payload {
    /// A contribution or a sum of some, or something encoded.
    Block(Arc<Block>),
    /// A part of the result.
    Piece(Piece),
}

impl Part {
    /// What a caller has lent, or nobody else has.
    pub fn new(block: Block) -> Part {
        Part::Block(Arc::new(block))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Part::Block(block) => block.bytes(),
            Part::InPlace(claim) | Part::Staged(claim) => claim.bytes(),
        }
    }

    /// Folds two into one: into the place in the result, where one is there, else into a block that
    /// nobody else reads, else into a copy.
    ///
    /// # Errors
    /// [`Misfit`]: they are not whole elements, or not equally many.
    pub fn fold(
        self,
        other: Part,
        op: ReduceOp,
        dtype: DType,
        pool: &Pool,
    ) -> Result<Part, Misfit> {
        let self_first = matches!(self, Part::InPlace(_))
            || !matches!(other, Part::InPlace(_)) && self.is_writable();
        let (mut sum, with) = if self_first { (self, other) } else { (other, self) };
        if !sum.is_writable() {
            sum = sum.copied(pool);
        }
        match &mut sum {
            Part::InPlace(claim) | Part::Staged(claim) => {
                fold(op, dtype, claim.bytes_mut(), with.bytes())?;
            }
            // It was seen to that nobody else has it.
            Part::Block(block) => {
                let block = Arc::get_mut(block).ok_or(Misfit)?;
                fold(op, dtype, block.bytes_mut(), with.bytes())?;
            }
        }
        with.give_back();
        Ok(sum)
    }

    fn is_writable(&self) -> bool {
        match self {
            // Nobody else has it, so what is counted now does not grow.
            Part::Block(block) => Arc::strong_count(block) == 1 && !block.is_lent(),
            Part::InPlace(_) => true,
            Part::Staged(_) => false,
        }
    }

    fn copied(self, pool: &Pool) -> Part {
        let mut another = pool.block(self.bytes().len());
        copy(another.bytes_mut(), self.bytes());
        self.give_back();
        Part::new(another)
    }

    fn give_back(self) {
        if let Part::Staged(claim) = self {
            claim.give_back();
        }
    }
}

impl Payload {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Payload::Block(block) => block.bytes(),
            Payload::Piece(piece) => piece.bytes(),
        }
    }
}
