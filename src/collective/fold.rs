//! The arithmetic of every reduction, for all schedules and engines.
//!
//! # Determinism
//!
//! A result is `finish(fold(.. fold(a, b) .., z))`. Each step is one IEEE 754 operation per
//! element, in the order that the schedule fixes. Nothing is fused or reassociated, so optimisation
//! level and vector width do not change the bits. Each step runs under the default control word,
//! [whatever the thread's own one is](crate::os::in_default_environment). NaN payloads differ
//! between machines, so [`finish`] replaces every NaN by the type's canonical quiet one. Up to
//! that, each step is commutative, and a node may use either operand as its accumulator.
//!
//! Halves are widened to `f32` for each step, and the result is rounded once, to nearest, ties to
//! even; partial sums between members are halves too. Integers wrap around.
//!
//! `Min` and `Max` follow a total rule: NaN wins, and -0 is below +0. A `bool` is folded as its
//! byte: of 0 and 1, each operator that `bool` has makes 0 or 1.

use super::arithmetic::{Arithmetic, each};
use crate::memory::{DType, elements_of, elements_of_mut};
use crate::os::in_default_environment;
use crate::protocol::{EngineFault, ReduceOp};
use bytemuck::Pod;
use half::{bf16, f16};

/// The slices are not whole and aligned elements of their type, or differ in length. This is a bug
/// of an engine: blocks are aligned, and schedules cut them between elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit;

impl From<Misfit> for EngineFault {
    fn from(_: Misfit) -> EngineFault {
        EngineFault::Unfit
    }
}

/// `acc = acc op x`, element by element. Both slices hold whole elements of `dtype` and have the
/// same length.
///
/// # Errors
/// [`Misfit`]; `acc` is unchanged.
pub fn fold(op: ReduceOp, dtype: DType, acc: &mut [u8], x: &[u8]) -> Result<(), Misfit> {
    in_default_environment(|| match dtype {
        DType::F32 => fold_as::<f32>(op, acc, x),
        DType::F64 => fold_as::<f64>(op, acc, x),
        DType::F16 => fold_as::<f16>(op, acc, x),
        DType::Bf16 => fold_as::<bf16>(op, acc, x),
        DType::I8 => fold_as::<i8>(op, acc, x),
        DType::I16 => fold_as::<i16>(op, acc, x),
        DType::I32 => fold_as::<i32>(op, acc, x),
        DType::I64 => fold_as::<i64>(op, acc, x),
        DType::U8 | DType::Bool => fold_as::<u8>(op, acc, x),
        DType::U16 => fold_as::<u16>(op, acc, x),
        DType::U32 => fold_as::<u32>(op, acc, x),
        DType::U64 => fold_as::<u64>(op, acc, x),
    })
}

/// `into = a op b`: a copy of `a` and a [`fold`], in one pass over memory.
///
/// # Errors
/// [`Misfit`]; the contents of `into` are unspecified.
#[cfg(any(feature = "gloo", test))]
pub fn fold_pair(
    op: ReduceOp,
    dtype: DType,
    into: &mut [u8],
    a: &[u8],
    b: &[u8],
) -> Result<(), Misfit> {
    if into.len() != a.len() || a.len() != b.len() {
        return Err(Misfit);
    }
    in_default_environment(|| match (op, dtype) {
        (ReduceOp::Sum | ReduceOp::Mean, DType::F32) => each_pair::<f32>(into, a, b, f32::plus),
        (ReduceOp::Sum | ReduceOp::Mean, DType::F64) => each_pair::<f64>(into, a, b, f64::plus),
        // These steps take longer than the copy, which stays in the first-level cache.
        _ => {
            let parts = into
                .chunks_mut(FIRST_LEVEL_BYTES)
                .zip(a.chunks(FIRST_LEVEL_BYTES))
                .zip(b.chunks(FIRST_LEVEL_BYTES));
            for ((into, a), b) in parts {
                into.copy_from_slice(a);
                fold(op, dtype, into, b)?;
            }
            Ok(())
        }
    })
}

/// A multiple of every element's length; three slices of this length fit into the first-level
/// cache.
#[cfg(any(feature = "gloo", test))]
const FIRST_LEVEL_BYTES: usize = 8 * 1024;

/// Turns the folded contributions of `members` members into the result: divides a mean and makes
/// every NaN canonical. Integers are left unchanged.
///
/// # Errors
/// [`Misfit`]; `acc` is unchanged.
pub fn finish(op: ReduceOp, dtype: DType, acc: &mut [u8], members: usize) -> Result<(), Misfit> {
    in_default_environment(|| match dtype {
        DType::F32 => finish_as::<f32>(op, acc, members),
        DType::F64 => finish_as::<f64>(op, acc, members),
        DType::F16 => finish_as::<f16>(op, acc, members),
        DType::Bf16 => finish_as::<bf16>(op, acc, members),
        DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::Bool => Ok(()),
    })
}

#[cfg(any(feature = "gloo", test))]
fn each_pair<T: Arithmetic + Pod>(
    into: &mut [u8],
    a: &[u8],
    b: &[u8],
    step: impl Fn(T, T) -> T,
) -> Result<(), Misfit> {
    let into = elements_of_mut::<T>(into).ok_or(Misfit)?;
    let (a, b) = elements_of::<T>(a).zip(elements_of::<T>(b)).ok_or(Misfit)?;
    for ((into, &a), &b) in into.iter_mut().zip(a).zip(b) {
        *into = step(a, b);
    }
    Ok(())
}

fn fold_as<T: Arithmetic + Pod>(op: ReduceOp, acc: &mut [u8], x: &[u8]) -> Result<(), Misfit> {
    let (acc, x) = elements_of_mut::<T>(acc).zip(elements_of::<T>(x)).ok_or(Misfit)?;
    if acc.len() != x.len() {
        return Err(Misfit);
    }
    match op {
        ReduceOp::Sum | ReduceOp::Mean => T::add_to(acc, x),
        ReduceOp::Prod => T::multiply(acc, x),
        ReduceOp::Min => each(acc, x, T::least),
        ReduceOp::Max => each(acc, x, T::greatest),
        ReduceOp::BitAnd => each(acc, x, T::and),
        ReduceOp::BitOr => each(acc, x, T::or),
        ReduceOp::BitXor => each(acc, x, T::xor),
    }
    Ok(())
}

fn finish_as<T: Arithmetic + Pod>(
    op: ReduceOp,
    acc: &mut [u8],
    members: usize,
) -> Result<(), Misfit> {
    let acc = elements_of_mut::<T>(acc).ok_or(Misfit)?;
    match op {
        ReduceOp::Mean => acc.iter_mut().for_each(|a| *a = a.divided_by(members).canonical()),
        _ => acc.iter_mut().for_each(|a| *a = a.canonical()),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
