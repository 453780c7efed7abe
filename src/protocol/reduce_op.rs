//! The operations of a reduction.

use crate::wire::layout::layout;
use derive_more::Display;

/// The reduction operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[non_exhaustive]
pub enum ReduceOp {
    /// Sum; integers wrap around (modulo 2 to the number of bits). Not of `bool`.
    #[display("sum")]
    Sum,
    /// Sum divided by the number of members of the View. Floats only.
    #[display("mean")]
    Mean,
    /// Least value; NaN wins, -0 is below +0.
    #[display("min")]
    Min,
    /// Greatest value; NaN wins, -0 is below +0.
    #[display("max")]
    Max,
    /// Product; integers wrap around (modulo 2 to the number of bits). Not of `bool`.
    #[display("prod")]
    Prod,
    /// And of the bits. Integers and `bool` only.
    #[display("bit_and")]
    BitAnd,
    /// Or of the bits. Integers and `bool` only.
    #[display("bit_or")]
    BitOr,
    /// Exclusive or of the bits. Integers and `bool` only.
    #[display("bit_xor")]
    BitXor,
}

layout! {
    tags ReduceOp {
        1 => Sum, 2 => Mean, 3 => Min, 4 => Max, 5 => Prod, 6 => BitAnd, 7 => BitOr, 8 => BitXor,
    }
}

#[cfg(test)]
impl ReduceOp {
    /// All of them.
    pub(crate) const ALL: [ReduceOp; 8] = [
        ReduceOp::Sum,
        ReduceOp::Mean,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Prod,
        ReduceOp::BitAnd,
        ReduceOp::BitOr,
        ReduceOp::BitXor,
    ];
}
