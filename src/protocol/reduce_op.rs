//! The operations of a reduction.

use crate::wire::Malformed;
use std::fmt;

/// The reduction operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ReduceOp {
    /// Sum; integers wrap around (modulo 2 to the number of bits).
    Sum,
    /// Sum divided by the number of members of the View. Floats only.
    Mean,
    /// Least value; NaN wins, -0 is below +0.
    Min,
    /// Greatest value; NaN wins, -0 is below +0.
    Max,
    /// Product; integers wrap around (modulo 2 to the number of bits).
    Prod,
}

impl ReduceOp {
    const ALL: [ReduceOp; 5] =
        [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod];

    pub(super) fn tag(self) -> u8 {
        match self {
            ReduceOp::Sum => 1,
            ReduceOp::Mean => 2,
            ReduceOp::Min => 3,
            ReduceOp::Max => 4,
            ReduceOp::Prod => 5,
        }
    }

    pub(super) fn of_tag(tag: u8) -> Result<ReduceOp, Malformed> {
        ReduceOp::ALL.into_iter().find(|op| op.tag() == tag).ok_or(Malformed::UnknownTag)
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Mean => "mean",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Prod => "prod",
        })
    }
}
