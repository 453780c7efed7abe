//! The result of one call of a step.

use crate::collective::{divide, is_weight_sum};
use crate::memory::{DType, Staging, Target};

/// The result of one call of a step.
#[derive(Debug)]
pub struct PartResult {
    /// The bytes that the engine has made, elements of this type.
    pub(super) output: Staging,
    pub(super) dtype: DType,
    /// The sum of the weights, if it is the sum of a weighted mean.
    pub(super) weights: Option<f64>,
}

impl PartResult {
    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.output.len()
    }

    /// Copies the result out, divided by the sum of the weights if there is one. `out` must have
    /// exactly [`len`](PartResult::len) bytes.
    pub fn copy_to<'a>(&self, out: impl Into<Target<'a>>) {
        self.copy_to_all([out.into()]);
    }

    /// Like [`copy_to`](PartResult::copy_to), to several buffers one after the other; each has
    /// whole elements.
    pub fn copy_to_all<'a>(&self, outs: impl IntoIterator<Item = Target<'a>>) {
        let mut outs: Vec<Target<'_>> = outs.into_iter().collect();
        self.output.copy_to_all(outs.iter_mut().map(Target::reborrow));
        if let Some(sum) = self.weights {
            outs.iter_mut().for_each(|out| divide(sum, self.dtype, out.bytes_mut()));
        }
    }

    /// As a sum of weights, by which a mean can be divided.
    pub(super) fn weight_sum(output: &Staging) -> Option<f64> {
        let mut sum = [0; 8];
        (output.len() == sum.len()).then(|| output.copy_to(&mut sum[..]))?;
        Some(f64::from_le_bytes(sum)).filter(|sum| is_weight_sum(*sum))
    }
}
