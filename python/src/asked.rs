//! The options of a call, apart from its buffers.

use super::codec::Codec;
use super::error::wrong;
use super::waiting::seconds;
use potluck::ReduceOp;
use potluck_foreign::Options;
use pyo3::prelude::*;

/// The arguments of a call, apart from its buffers.
pub struct Asked {
    /// The options of the call.
    pub options: Options,
    /// Whether it returns before its end.
    pub async_op: bool,
}

impl Asked {
    /// The options of all calls.
    ///
    /// # Errors
    /// ValueError for a value that is not a time.
    pub fn of(deadline: Option<f64>, best_effort: bool, async_op: bool) -> PyResult<Asked> {
        let deadline = seconds("deadline", deadline)?;
        let options = Options { deadline, best_effort, ..Options::default() };
        Ok(Asked { options, async_op })
    }

    /// The option of reductions.
    pub fn non_finite(mut self, rejected: bool) -> Asked {
        self.options.reject_non_finite = rejected;
        self
    }

    /// An option of `all_reduce`.
    pub fn coded(mut self, codec: Option<&Codec>) -> Asked {
        self.options.codec = codec.map(Codec::shared);
        self
    }

    /// An option of `all_reduce`.
    pub fn weighted(mut self, weight: Option<f64>) -> Asked {
        self.options.weight = weight;
        self
    }
}

/// The operator of this name.
///
/// # Errors
/// Argument for another name.
pub fn operator(py: Python<'_>, name: &str) -> PyResult<ReduceOp> {
    const OPS: [ReduceOp; 8] = [
        ReduceOp::Sum,
        ReduceOp::Mean,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Prod,
        ReduceOp::BitAnd,
        ReduceOp::BitOr,
        ReduceOp::BitXor,
    ];
    OPS.into_iter().find(|op| op.to_string() == name).ok_or_else(|| {
        let names = OPS.map(|op| op.to_string()).join(", ");
        wrong(py, format!("op is {name:?}, and there are {names}"))
    })
}
