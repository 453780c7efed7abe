//! The arguments of collective calls.

use crate::numbers::Input;
use potluck::ReduceOp;
use serde::Deserialize;

/// An `all_reduce`, `reduce` or `reduce_scatter`.
#[derive(Debug, Deserialize)]
pub struct Reduction {
    pub len: usize,
    #[serde(default)]
    pub seed: u64,
    #[serde(default)]
    pub op: Op,
    /// Only for `reduce`.
    #[serde(default)]
    pub root: usize,
    #[serde(default)]
    pub dtype: Type,
    #[serde(default)]
    pub codec: Coding,
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
    pub dtype: Type,
    /// Leave this many bytes of address space to the call.
    pub room: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    #[default]
    Sum,
    Mean,
    Min,
    Max,
    Prod,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Type {
    #[default]
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I32,
    I64,
    U8,
    U32,
    U64,
}

/// Evaluates an expression with `$number` bound to the Rust type of the command's dtype.
macro_rules! of_type {
    ($dtype:expr, $number:ident => $call:expr) => {
        of_type!(
            @ $dtype, $number, $call,
            F32 f32, F64 f64, F16 potluck::f16, Bf16 potluck::bf16,
            I8 i8, I32 i32, I64 i64, U8 u8, U32 u32, U64 u64
        )
    };
    (@ $dtype:expr, $number:ident, $call:expr, $($name:ident $type:ty),*) => {
        match $dtype {
            $($crate::arguments::Type::$name => {
                type $number = $type;
                $call
            })*
        }
    };
}

pub(crate) use of_type;

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Coding {
    #[default]
    None,
    Bf16,
    Int8,
    /// `Codec::auto_up_to(Int8)`.
    Auto,
}

impl Reduction {
    pub fn input(&self) -> Input {
        match (self.marked, self.awkward) {
            (true, _) => Input::Marked,
            (false, true) => Input::Awkward(self.seed),
            (false, false) => Input::Seed(self.seed),
        }
    }
}

impl Op {
    pub fn reduce(self) -> ReduceOp {
        match self {
            Op::Sum => ReduceOp::Sum,
            Op::Mean => ReduceOp::Mean,
            Op::Min => ReduceOp::Min,
            Op::Max => ReduceOp::Max,
            Op::Prod => ReduceOp::Prod,
        }
    }
}
