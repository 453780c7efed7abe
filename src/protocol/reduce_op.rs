//! The operations of a reduction.

use crate::wire::layout::layout;
use derive_more::Display;

/// The reduction operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[non_exhaustive]
pub enum ReduceOp {
    /// Sum; integers wrap around (modulo 2 to the number of bits).
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
    /// Product; integers wrap around (modulo 2 to the number of bits).
    #[display("prod")]
    Prod,
}

layout!(tags ReduceOp { 1 => Sum, 2 => Mean, 3 => Min, 4 => Max, 5 => Prod });
