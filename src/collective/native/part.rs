//! Layer: Shells.
//!
//! Bytes of one chunk on their way: contributions, sums of some of them, and what of it is sent.

use crate::collective::canvas::{Claim, Piece};
use crate::collective::{Block, DType, Pool, ReduceOp, fold};
use std::sync::Arc;

/// A contribution, or the sum of some.
pub enum Part {
    /// In a block, which may be on its way to a peer as well.
    Block(Arc<Block>),
    /// In its place in the result.
    InPlace(Claim),
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
            Part::InPlace(claim) => claim.bytes(),
        }
    }

    /// Folds two into one: into the place in the result, where one is there, else into a block that nobody else reads, else
    /// into a copy.
    pub fn fold(self, other: Part, op: ReduceOp, dtype: DType, pool: &Pool) -> Part {
        let (mut sum, with) = match (self, other) {
            (sum @ Part::InPlace(_), with) | (with, sum @ Part::InPlace(_)) => (sum, with),
            (Part::Block(mut a), Part::Block(mut b)) => match (writable(&mut a), writable(&mut b)) {
                (true, _) => (Part::Block(a), Part::Block(b)),
                (false, true) => (Part::Block(b), Part::Block(a)),
                (false, false) => (Part::new(copy(&a, pool)), Part::Block(b)),
            },
        };
        match &mut sum {
            Part::InPlace(claim) => fold(op, dtype, claim.bytes_mut(), with.bytes()),
            Part::Block(block) => match Arc::get_mut(block) {
                Some(block) => fold(op, dtype, block.bytes_mut(), with.bytes()),
                None => debug_assert!(false, "it was seen to that nobody else has it"),
            },
        }
        sum
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

fn writable(block: &mut Arc<Block>) -> bool {
    Arc::get_mut(block).is_some_and(|block| !block.is_lent())
}

fn copy(block: &Block, pool: &Pool) -> Block {
    let mut copy = pool.block(block.len());
    copy.bytes_mut().copy_from_slice(block.bytes());
    copy
}
