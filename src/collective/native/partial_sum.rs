//! The bytes of one chunk on its way: contributions, partial sums, and payloads of frames.

use super::super::fold::{Misfit, fold};
use crate::memory::{Block, DType, OutOfMemory, PartWriter, Pool, WrittenPart};
use crate::os::copy;
use crate::protocol::{EngineFault, ReduceOp};
use std::sync::Arc;

/// A contribution or a partial sum.
pub enum PartialSum {
    /// In a block, which a frame in flight may share.
    Block(Arc<Block>),
    /// In its place in the result.
    InPlace(PartWriter),
    /// This rank's own contribution, parked in the chunk's place in the result. It is added to
    /// another contribution; then the place is free again.
    Staged(PartWriter),
}

/// The payload of a frame; shared, never copied.
#[derive(Clone)]
pub enum Payload {
    /// A contribution, a partial sum, or encoded data.
    Block(Arc<Block>),
    /// A chunk of the result.
    WrittenPart(WrittenPart),
}

impl PartialSum {
    /// A contribution in a block that is lent by the caller or has no other owner.
    pub fn new(block: Block) -> PartialSum {
        PartialSum::Block(Arc::new(block))
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            PartialSum::Block(block) => block.bytes(),
            PartialSum::InPlace(writer) | PartialSum::Staged(writer) => writer.bytes(),
        }
    }

    /// Folds two sums into one. The sum is written to the first of these that exists: the place in
    /// the result, a block without another reader, a copy.
    ///
    /// # Errors
    /// [`EngineFault::Unfit`] if they are not whole elements or differ in length,
    /// [`EngineFault::Memory`].
    pub fn fold(
        self,
        other: PartialSum,
        op: ReduceOp,
        dtype: DType,
        pool: &Pool,
    ) -> Result<PartialSum, EngineFault> {
        let self_first = matches!(self, PartialSum::InPlace(_))
            || !matches!(other, PartialSum::InPlace(_)) && self.is_writable();
        let (mut sum, with) = if self_first { (self, other) } else { (other, self) };
        if !sum.is_writable() {
            sum = sum.copied(pool)?;
        }
        match &mut sum {
            PartialSum::InPlace(writer) | PartialSum::Staged(writer) => {
                fold(op, dtype, writer.bytes_mut(), with.bytes())?;
            }
            // `is_writable` or the copy ensures that no other reference exists.
            PartialSum::Block(block) => {
                let block = Arc::get_mut(block).ok_or(Misfit)?;
                fold(op, dtype, block.bytes_mut(), with.bytes())?;
            }
        }
        with.give_back();
        Ok(sum)
    }

    fn is_writable(&self) -> bool {
        match self {
            // A count of 1 cannot grow meanwhile: `self` holds the only reference.
            PartialSum::Block(block) => Arc::strong_count(block) == 1 && !block.is_lent(),
            PartialSum::InPlace(_) => true,
            PartialSum::Staged(_) => false,
        }
    }

    fn copied(self, pool: &Pool) -> Result<PartialSum, OutOfMemory> {
        let mut another = pool.block(self.bytes().len())?;
        copy(another.bytes_mut(), self.bytes());
        self.give_back();
        Ok(PartialSum::new(another))
    }

    fn give_back(self) {
        if let PartialSum::Staged(writer) = self {
            writer.give_back();
        }
    }
}

impl Payload {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Payload::Block(block) => block.bytes(),
            Payload::WrittenPart(piece) => piece.bytes(),
        }
    }
}
