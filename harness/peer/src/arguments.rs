//! The arguments of collective calls.

use crate::numbers::Input;
use potluck::ReduceOp;
use potluck_harness::history::{Coded, DType, Op};
use serde::Deserialize;

/// An `all_reduce`, `reduce` or `reduce_scatter`.
#[derive(Debug, Deserialize)]
pub struct Reduction {
    pub len: usize,
    #[serde(default)]
    pub seed: u64,
    #[serde(default)]
    op: Op,
    /// Only for `reduce`.
    #[serde(default)]
    pub root: usize,
    #[serde(default)]
    pub dtype: DType,
    #[serde(default)]
    pub codec: Coded,
    /// If the plan chooses the codec: compare the bits with a reference for that codec.
    #[serde(default)]
    pub reference: bool,
    pub deadline_ms: Option<u64>,
    /// Report when this share of the expected received bytes has arrived, 0 to 1.
    pub report_at: Option<f64>,
    /// Polls before the call is dropped or leaked. Default 3.
    pub polls: Option<u32>,
    /// The input is the repeated `MARK`.
    #[serde(default)]
    pub marked: bool,
    /// The input contains NaNs, infinities and subnormals.
    #[serde(default)]
    pub awkward: bool,
    /// Use `all_reduce_owned`.
    #[serde(default)]
    pub owned: bool,
    /// Leave this many bytes of address space to the call.
    pub room: Option<u64>,
    /// Only for `all_reduce`: call it in the sub-group of these ranks.
    #[serde(default)]
    pub group: Vec<usize>,
}

/// A collective without reduction. `len` is the length of one rank's part.
#[derive(Debug, Deserialize)]
pub struct Copying {
    pub len: usize,
    #[serde(default)]
    pub seed: u64,
    #[serde(default)]
    pub root: usize,
    #[serde(default)]
    pub dtype: DType,
    /// Leave this many bytes of address space to the call.
    pub room: Option<u64>,
}

impl Reduction {
    pub fn input(&self) -> Input {
        match (self.marked, self.awkward) {
            (true, _) => Input::Marked,
            (false, true) => Input::Awkward(self.seed),
            (false, false) => Input::Seed(self.seed),
        }
    }

    pub fn op(&self) -> ReduceOp {
        match self.op {
            Op::Sum => ReduceOp::Sum,
            Op::Mean => ReduceOp::Mean,
            Op::Min => ReduceOp::Min,
            Op::Max => ReduceOp::Max,
            Op::Prod => ReduceOp::Prod,
            Op::BitAnd => ReduceOp::BitAnd,
            Op::BitOr => ReduceOp::BitOr,
            Op::BitXor => ReduceOp::BitXor,
        }
    }
}
