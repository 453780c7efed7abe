//! The description of one call, as the logs have it.

use serde::{Deserialize, Serialize};

/// Which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A reduction to all ranks.
    AllReduce,
    /// A reduction to the root.
    Reduce,
    /// A reduction of which each rank gets its shard.
    ReduceScatter,
    /// A copy of the root's buffer to all ranks.
    Broadcast,
    /// The buffers of all ranks, to all ranks.
    AllGather,
    /// The buffers of all ranks, to the root.
    Gather,
    /// A part for each rank, from the root.
    Scatter,
    /// A part from each rank to each rank.
    AllToAll,
    /// The buffers of all ranks, of any lengths, to all ranks.
    AllGatherUneven,
    /// A part of any length from each rank to each rank.
    AllToAllUneven,
    /// A wait for all ranks.
    Barrier,
    /// Several calls under one vote.
    Step,
    /// A message from the rank `root` to the rank `to`.
    Message,
    /// The transfer of a state.
    Sync,
    /// A minimum of flags, by which the program agrees that a lane ends.
    Control,
}

/// The operator of a reduction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// The sum.
    #[default]
    Sum,
    /// The sum divided by the number of members.
    Mean,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The product.
    Prod,
    /// The bits that all have.
    BitAnd,
    /// The bits that any has.
    BitOr,
    /// The bits that an odd number has.
    BitXor,
}

/// The type of an element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// 32-bit float.
    #[default]
    F32,
    /// 64-bit float.
    F64,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// Signed 8 bits.
    I8,
    /// Signed 32 bits.
    I32,
    /// Signed 64 bits.
    I64,
    /// Unsigned 8 bits.
    U8,
    /// Unsigned 32 bits.
    U32,
    /// Unsigned 64 bits.
    U64,
    /// Signed 16 bits.
    I16,
    /// Unsigned 16 bits.
    U16,
    /// True or false.
    Bool,
}

/// All element types.
pub const DTYPES: [DType; 13] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::Bf16,
    DType::I8,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U32,
    DType::U64,
    DType::I16,
    DType::U16,
    DType::Bool,
];

/// Evaluates an expression with `$number` bound to the Rust type of a [`DType`]. For crates that
/// use the library.
#[macro_export]
macro_rules! by_dtype {
    ($dtype:expr, $number:ident => $call:expr) => {
        $crate::by_dtype!(
            @ $dtype, $number, $call,
            F32 f32, F64 f64, F16 potluck::f16, Bf16 potluck::bf16,
            I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, Bool bool
        )
    };
    (@ $dtype:expr, $number:ident, $call:expr, $($name:ident $type:ty),*) => {
        match $dtype {
            $($crate::history::DType::$name => {
                type $number = $type;
                $call
            })*
        }
    };
}

/// The encoding of the data on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coded {
    /// None.
    #[default]
    Plain,
    /// bfloat16, which has all contributions and sums exactly.
    Bf16,
    /// Half precision, which has them exactly too.
    F16,
    /// Eight bits per element.
    Int8,
    /// Four bits per element.
    Int4,
    /// The choice of the plan, at most as coarse as eight bits.
    Auto,
}

/// One call with its arguments, which are the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct What {
    /// Which call.
    pub kind: Kind,
    /// The type of the elements.
    pub dtype: DType,
    /// The operator, of a reduction.
    pub op: Op,
    /// Elements of each rank's buffer; of `all_to_all` of each part.
    pub len: usize,
    /// The root; of a message its sender.
    pub root: usize,
    /// Of a message its receiver.
    pub to: usize,
    /// The encoding on the wire.
    pub coded: Coded,
    /// Whether it goes without the vote.
    pub best_effort: bool,
    /// The lengths of the calls of a step, each of which is a reduction by `op`.
    pub parts: Vec<usize>,
    /// The ranks of the View that call it as a sub-group, ascending; all if there are none. The
    /// ranks above are those of the group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<usize>,
}

impl What {
    /// A call of this kind without arguments.
    pub fn of(kind: Kind) -> What {
        What {
            kind,
            dtype: DType::U8,
            op: Op::Sum,
            len: 0,
            root: 0,
            to: 0,
            coded: Coded::Plain,
            best_effort: false,
            parts: Vec::new(),
            ranks: Vec::new(),
        }
    }

    /// The length of the part from one rank to another, of an uneven call: at most `len`. In an
    /// uneven all-gather, a rank contributes its part for rank 0.
    pub fn part(&self, from: usize, to: usize) -> usize {
        self.len * ((3 * from + 5 * to + self.len) % 5) / 4
    }

    /// Elements of a rank's buffer among `size` ranks.
    pub fn own_len(&self, rank: usize, size: usize) -> usize {
        match self.kind {
            Kind::AllToAll => self.len * size,
            Kind::AllGatherUneven => self.part(rank, 0),
            Kind::AllToAllUneven => (0..size).map(|to| self.part(rank, to)).sum(),
            _ => self.len,
        }
    }

    /// Those of the members of a View, given in rank order, among which it is called.
    pub fn among(&self, members: &[String]) -> Vec<String> {
        if self.ranks.is_empty() {
            return members.to_vec();
        }
        self.ranks.iter().filter_map(|rank| members.get(*rank).cloned()).collect()
    }

    /// Whether a committed call of this kind counts in the history that a sync compares. Messages,
    /// calls of sub-groups and calls by best effort do not.
    pub fn is_voted_by_all(&self) -> bool {
        !self.best_effort && self.kind != Kind::Message && self.ranks.is_empty()
    }

    /// Whether a result may differ from the exact one.
    pub fn is_rounded(&self) -> bool {
        matches!(self.coded, Coded::Int8 | Coded::Int4 | Coded::Auto)
    }
}
