//! Layer: Core.
//!
//! What a reduction must give, worked out one element at a time from a [`FoldOrder`].
//!
//! Written apart from the fast loops on purpose, in the plainest way there is, so that they can be compared bit for bit.

use super::call::ReduceOp;
use super::fold::Arithmetic;
use crate::topology::{FoldOrder, FoldTree};

/// The result of reducing `inputs`, one buffer per rank and all of one length, in `order`.
///
/// Elements that no segment covers stay at the first input's value.
pub fn reference<T: Arithmetic + PartialOrd>(order: &FoldOrder, op: ReduceOp, inputs: &[Vec<T>]) -> Vec<T> {
    let mut result = inputs.first().cloned().unwrap_or_default();
    for segment in &order.segments {
        for i in segment.elements.clone() {
            let folded = value(&segment.tree, op, inputs, i);
            let scaled = if op == ReduceOp::Mean { folded.over(inputs.len()) } else { folded };
            result[i] = scaled.canonical();
        }
    }
    result
}

fn value<T: Arithmetic + PartialOrd>(tree: &FoldTree, op: ReduceOp, inputs: &[Vec<T>], i: usize) -> T {
    match tree {
        FoldTree::Leaf(rank) => inputs[rank.index()][i],
        FoldTree::Sum(parts) => {
            let mut values = parts.iter().map(|part| value(part, op, inputs, i));
            let first = values.next().unwrap_or(T::NAN);
            values.fold(first, |acc, x| step(op, acc, x))
        }
    }
}

fn step<T: Arithmetic + PartialOrd>(op: ReduceOp, a: T, b: T) -> T {
    if matches!(op, ReduceOp::Sum | ReduceOp::Mean) {
        return a.plus(b);
    }
    match (a.partial_cmp(&b), op) {
        (None, _) => T::NAN,
        (Some(std::cmp::Ordering::Less), ReduceOp::Min) | (Some(std::cmp::Ordering::Greater), ReduceOp::Max) => a,
        (Some(std::cmp::Ordering::Equal), _) => tie(op, a, b),
        _ => b,
    }
}

/// Of two equal values the one whose sign the total rule prefers; they differ only when both are zero.
fn tie<T: Arithmetic>(op: ReduceOp, a: T, b: T) -> T {
    let a_is_negative = super::element::bytes_of(&[a]).last().is_some_and(|byte| byte & 0x80 != 0);
    if a_is_negative == (op == ReduceOp::Min) { a } else { b }
}
