//! Layer: Words.
//!
//! Why a call makes no sense, whatever the other members do.

use super::call::DType;
use std::fmt;

/// Why a call makes no sense as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// The mean of integers: most often it is none.
    MeanOfIntegers(DType),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::MeanOfIntegers(dtype) => {
                write!(f, "there is no mean of {dtype}; take the sum and divide it as you need it")
            }
        }
    }
}
