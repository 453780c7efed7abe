//! The operations of a reduction.

use crate::sentences::sentences;
use crate::wire::layout::layout;

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

layout!(tags ReduceOp { 1 => Sum, 2 => Mean, 3 => Min, 4 => Max, 5 => Prod });

sentences! {
    ReduceOp {
        Sum => "sum",
        Mean => "mean",
        Min => "min",
        Max => "max",
        Prod => "prod",
    }
}
