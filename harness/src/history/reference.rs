//! The result that a call must have, computed one element after the other.

use std::ops::Range;

use super::inputs::{Inputs, Key, hash, put, put_quotient};
use super::what::{Coded, Kind, Op, What};

/// The required buffer and result of a call that succeeded, on one rank.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// The buffer has this hash.
    Buffer(u64),
    /// The buffer is as before, and the result has this hash.
    Result(u64),
    /// The buffer is as before, and there is no result.
    Nothing,
    /// The elements of the buffer are these, up to this error.
    Near(Vec<f64>, f64),
    /// The elements of the buffer are these, up to errors with at most this root mean square.
    Noisy(Vec<f64>, f64),
}

/// A call of a View, from which the contributions of all members follow.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The seed of the run.
    pub seed: u64,
    /// The View.
    pub view: &'a str,
    /// The lane.
    pub lane: u32,
    /// The number of the call among those of the program in this lane and View.
    pub k: u64,
    /// The members of the View in rank order.
    pub members: &'a [String],
}

impl Place<'_> {
    fn inputs(&self, what: &What, rank: usize, part: usize) -> Inputs {
        let node = self.members.get(rank).map_or("", String::as_str);
        Key::of(self.seed, self.view, self.lane, self.k, part).inputs(node, what.dtype, what.op)
    }

    /// The buffer or result that a rank must have after a call that succeeded. `flags` are the
    /// members' contributions to a control call.
    pub fn expected(&self, what: &What, rank: usize, flags: &[u8]) -> Expected {
        let (size, len) = (self.members.len(), what.len);
        let is_root = rank == what.root;
        match what.kind {
            Kind::AllReduce if what.is_rounded() => self.near(what),
            Kind::AllReduce => Expected::Buffer(hash(&self.reduced(what, 0, 0..len))),
            Kind::Reduce if is_root => Expected::Buffer(hash(&self.reduced(what, 0, 0..len))),
            Kind::ReduceScatter => {
                Expected::Result(hash(&self.reduced(what, 0, shard(rank, size, len))))
            }
            Kind::Broadcast => Expected::Buffer(hash(&self.given(what, what.root, 0, 0..len))),
            Kind::AllGather => Expected::Result(hash(&self.gathered(what))),
            Kind::Gather if is_root => Expected::Result(hash(&self.gathered(what))),
            Kind::Scatter => Expected::Buffer(hash(&self.given(
                what,
                what.root,
                1,
                rank * len..(rank + 1) * len,
            ))),
            Kind::AllToAll => {
                let mine = rank * len..(rank + 1) * len;
                let parts = (0..size).flat_map(|from| self.given(what, from, 0, mine.clone()));
                Expected::Result(hash(&parts.collect::<Vec<u8>>()))
            }
            Kind::AllGatherUneven => {
                let whole = |from| self.given(what, from, 0, 0..what.part(from, 0));
                Expected::Result(hash(&(0..size).flat_map(whole).collect::<Vec<u8>>()))
            }
            Kind::AllToAllUneven => {
                let part = |from| {
                    let start = (0..rank).map(|to| what.part(from, to)).sum();
                    self.given(what, from, 0, start..start + what.part(from, rank))
                };
                Expected::Result(hash(&(0..size).flat_map(part).collect::<Vec<u8>>()))
            }
            Kind::Step => {
                let parts = what.parts.iter().enumerate();
                let all = parts.flat_map(|(part, len)| self.reduced(what, part, 0..*len));
                Expected::Buffer(hash(&all.collect::<Vec<u8>>()))
            }
            Kind::Message if rank == what.to => {
                Expected::Buffer(hash(&self.given(what, what.root, 0, 0..len)))
            }
            Kind::Control => {
                Expected::Buffer(hash(&[flags.iter().copied().min().unwrap_or_default()]))
            }
            Kind::Reduce | Kind::Gather | Kind::Message | Kind::Barrier | Kind::Sync => {
                Expected::Nothing
            }
        }
    }

    /// The buffer of a member before the call.
    pub fn given(&self, what: &What, rank: usize, part: usize, elements: Range<usize>) -> Vec<u8> {
        let inputs = self.inputs(what, rank, part);
        let mut bytes = Vec::with_capacity(elements.len() * 8);
        elements.for_each(|index| put(&mut bytes, what.dtype, inputs.at(index)));
        bytes
    }

    fn gathered(&self, what: &What) -> Vec<u8> {
        (0..self.members.len()).flat_map(|from| self.given(what, from, 0, 0..what.len)).collect()
    }

    fn reduced(&self, what: &What, part: usize, elements: Range<usize>) -> Vec<u8> {
        let inputs = self.all(what, part);
        let mut bytes = Vec::with_capacity(elements.len() * 8);
        for index in elements {
            let folded = folded(&inputs, what.op, index);
            match what.op {
                Op::Mean => put_quotient(&mut bytes, what.dtype, folded, inputs.len().max(1)),
                _ => put(&mut bytes, what.dtype, folded),
            }
        }
        bytes
    }

    fn all(&self, what: &What, part: usize) -> Vec<Inputs> {
        (0..self.members.len()).map(|rank| self.inputs(what, rank, part)).collect()
    }

    /// A codec with one step size for 256 elements errs by half a step, for each contribution, for
    /// the sum, and for partial sums where members are forwarded. With four bits it does so after a
    /// rotation, so its error is noise with an eighth of the root mean square of the rounded
    /// values.
    fn near(&self, what: &What) -> Expected {
        let inputs = self.all(what, 0);
        let exact: Vec<f64> =
            (0..what.len).map(|index| folded(&inputs, what.op, index) as f64).collect();
        let size = self.members.len() as f64;
        if what.coded == Coded::Int4 {
            // The mean square of a contribution is 24, and that of a sum 24 for each. There are as
            // many contributions as members, and at most as many sums. Twice the usual noise.
            return Expected::Noisy(exact, 2.0 * (24.0 * size * (1.0 + size) / 64.0).sqrt());
        }
        // Contributions are at most 8, and the last term is for their errors in the sums.
        Expected::Near(exact, 8.0 * size / 254.0 * (2.0 + size) * (1.0 + 2.0 / 254.0))
    }
}

/// All contributions to one element; of a mean, the sum.
fn folded(inputs: &[Inputs], op: Op, index: usize) -> i64 {
    let values = inputs.iter().map(|inputs| inputs.at(index));
    match op {
        Op::Sum | Op::Mean => values.sum(),
        Op::Min => values.min().unwrap_or_default(),
        Op::Max => values.max().unwrap_or_default(),
        Op::Prod => values.product(),
        Op::BitAnd => values.reduce(|a, b| a & b).unwrap_or_default(),
        Op::BitOr => values.fold(0, |a, b| a | b),
        Op::BitXor => values.fold(0, |a, b| a ^ b),
    }
}

/// The range of a buffer that a rank gets: in rank order, as even as whole elements allow.
pub fn shard(rank: usize, size: usize, len: usize) -> Range<usize> {
    let cut = |rank: usize| rank * len / size.max(1);
    cut(rank)..cut(rank + 1)
}
