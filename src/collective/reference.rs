//! The reference result of a reduction, computed one element at a time from a [`FoldOrder`].
//!
//! It shares no loop with the fast code on purpose and is as plain as possible, so that the two can
//! be compared bit for bit.

use super::arithmetic::Arithmetic;
use crate::os::in_default_environment;
use crate::protocol::{FoldOrder, FoldTree, ReduceOp};
use std::cmp::Ordering;

/// The result of reducing `inputs`, one buffer per rank and all of the same length, in `order`.
///
/// Elements that no segment covers keep the first input's value. Integers have no mean; for them it
/// is the sum.
pub fn reference<T: Arithmetic + PartialOrd>(
    order: &FoldOrder,
    op: ReduceOp,
    inputs: &[Vec<T>],
) -> Vec<T> {
    let mut result = inputs.first().cloned().unwrap_or_default();
    in_default_environment(|| {
        for segment in &order.segments {
            for i in segment.elements.clone() {
                let folded = value(&segment.tree, op, inputs, i);
                let scaled =
                    if op == ReduceOp::Mean { folded.divided_by(inputs.len()) } else { folded };
                result[i] = scaled.canonical();
            }
        }
    });
    result
}

fn value<T: Arithmetic + PartialOrd>(
    tree: &FoldTree,
    op: ReduceOp,
    inputs: &[Vec<T>],
    i: usize,
) -> T {
    match tree {
        FoldTree::Leaf(rank) => inputs[rank.index()][i],
        FoldTree::Sum(parts) => {
            let values = parts.iter().map(|part| value(part, op, inputs, i));
            // No plan contains an empty sum; it evaluates to zero.
            values.reduce(|acc, x| step(op, acc, x)).unwrap_or(T::ZERO)
        }
    }
}

fn step<T: Arithmetic + PartialOrd>(op: ReduceOp, a: T, b: T) -> T {
    match (op, a.partial_cmp(&b)) {
        (ReduceOp::Sum | ReduceOp::Mean, _) => a.plus(b),
        (ReduceOp::Prod, _) => a.times(b),
        (ReduceOp::BitAnd, _) => a.and(b),
        (ReduceOp::BitOr, _) => a.or(b),
        (ReduceOp::BitXor, _) => a.xor(b),
        // Only a NaN differs from itself.
        (_, None) => {
            if a.partial_cmp(&a).is_none() {
                a
            } else {
                b
            }
        }
        (ReduceOp::Min, Some(Ordering::Less)) | (ReduceOp::Max, Some(Ordering::Greater)) => a,
        (_, Some(Ordering::Equal)) => tie(op, a, b),
        _ => b,
    }
}

/// The one of two equal values whose sign the total rule prefers. They differ only if both are
/// zeros of a float.
fn tie<T: Arithmetic>(op: ReduceOp, a: T, b: T) -> T {
    let a_is_negative = crate::memory::bytes_of(&[a]).last().is_some_and(|byte| byte & 0x80 != 0);
    if a_is_negative == (op == ReduceOp::Min) { a } else { b }
}
