//! Layer: Shells.
//!
//! A task carried out with Gloo's collectives, in place: the block that came in goes out.

use super::context::{Context, Failure};
use super::tally::Tally;
use super::task::{Algorithm, Reduction, Task};
use crate::collective::p2p::Landed;
use crate::collective::{
    Block, CodecId, EngineFault, Finished, Pool, Staging, elements_of, elements_of_mut, finish, fold,
};
use crate::compression::{Codec, codec};
use crate::topology::{gloo_ring_chunk, ring_segment};
use crate::view::{OpId, Rank};
use std::ops::Range;
use std::sync::Arc;

/// A member's place in a collective.
pub struct Part<'a> {
    /// The context, and with it the others.
    pub context: &'a Context,
    /// Whose messages they are.
    pub op: OpId,
    /// This member.
    pub me: Rank,
    /// How many there are.
    pub size: usize,
    /// Where working memory comes from.
    pub pool: &'a Pool,
}

impl Part<'_> {
    /// Carries out `task` on this member's contribution, which is cut as [`Task::layout`] says where it contributes.
    pub fn carry_out(&self, task: &Task, input: Staging) -> Result<Finished, Failure> {
        match *task {
            Task::Reduce(reduction) => self.reduce(reduction, only(input)),
            Task::ReduceEncoded(reduction, id) => match codec(id) {
                Some(codec) => self.reduce_encoded(reduction, id, codec, only(input)),
                None => Err(Failure::Links(EngineFault::Unfit)),
            },
            Task::Broadcast { root, bytes } => self.broadcast(root, bytes, input),
            Task::Gather { bytes } => self.gather(bytes, only(input)),
            Task::Barrier => {
                self.context.barrier(self.op)?;
                Ok(finished(&Tally::new(0), None))
            }
        }
    }

    fn reduce(&self, reduction: Reduction, block: Option<Block>) -> Result<Finished, Failure> {
        let tally = Tally::new(reduction.bytes());
        let Some(mut block) = block else { return Ok(finished(&tally, None)) };
        let data = block.bytes_mut();
        // Alone nothing is folded, and so nothing finished on the way either.
        if reduction.algorithm == Algorithm::Ring && self.size > 1 {
            let last = (self.own_chunk(reduction), self.size);
            self.context.all_reduce(self.op, data, reduction, Some(last), &hook(&tally))?;
        } else {
            self.context.all_reduce(self.op, data, reduction, None, &hook(&tally))?;
            finish(reduction.op, reduction.dtype, data, self.size);
        }
        Ok(finished(&tally, Some(block)))
    }

    /// In bytes.
    fn own_chunk(&self, reduction: Reduction) -> Range<usize> {
        let width = reduction.dtype.bytes();
        let elements = gloo_ring_chunk(self.me, self.size, reduction.count, width);
        elements.start * width..elements.end * width
    }

    /// Each member adds one segment: what is added is decoded, and what is handed on is what everybody else decodes too.
    fn reduce_encoded(
        &self,
        reduction: Reduction,
        id: CodecId,
        codec: &dyn Codec,
        block: Option<Block>,
    ) -> Result<Finished, Failure> {
        let tally = Tally::new(reduction.bytes());
        let Some(mut block) = block else { return Ok(finished(&tally, None)) };
        debug_assert!(id != CodecId::None);
        let segments: Vec<Range<usize>> = (0..self.size).map(|rank| ring_segment(rank, self.size, reduction.count)).collect();
        let parts: Vec<usize> = segments.iter().map(|segment| codec.encoded_len(segment.len())).collect();
        let own = segments[self.me.index()].clone();

        let mut encoded = self.pool.block(parts.iter().sum());
        let elements = elements_of_mut::<f32>(block.bytes_mut()).ok_or(Failure::Links(EngineFault::Unfit))?;
        let mut rest = encoded.bytes_mut();
        for (segment, len) in segments.iter().zip(&parts) {
            let (head, tail) = rest.split_at_mut(*len);
            codec.encode(&elements[segment.clone()], head);
            rest = tail;
        }
        let own_bytes = parts[self.me.index()];
        let mut gathered = self.pool.block(own_bytes * self.size);
        self.context.exchange_parts(
            self.op,
            gathered.bytes_mut(),
            &vec![own_bytes; self.size],
            encoded.bytes_mut(),
            &parts,
        )?;

        self.add(reduction, codec, &gathered, own_bytes, &mut elements[own.clone()]);
        let start = parts[..self.me.index()].iter().sum::<usize>();
        codec.encode(&elements[own], &mut encoded.bytes_mut()[start..start + own_bytes]);
        self.context.all_gather_parts(self.op, encoded.bytes_mut(), &parts)?;

        let mut rest = encoded.bytes();
        for (segment, len) in segments.iter().zip(&parts) {
            let (head, tail) = rest.split_at(*len);
            decode(codec, head, &mut elements[segment.clone()])?;
            rest = tail;
        }
        Ok(finished(&tally, Some(block)))
    }

    /// Everybody's encoded `contributions`, one behind the other, added up in rank order.
    fn add(&self, reduction: Reduction, codec: &dyn Codec, contributions: &Block, each: usize, sum: &mut [f32]) {
        let mut next = vec![0.0; sum.len()];
        for rank in 0..self.size {
            let part = &contributions.bytes()[rank * each..(rank + 1) * each];
            let into = if rank == 0 { &mut *sum } else { &mut next[..] };
            let decoded = codec.decode(part, into);
            debug_assert_eq!(decoded, Ok(()), "the lengths are the codec's own");
            if rank > 0 {
                fold(reduction.op, reduction.dtype, crate::collective::bytes_of_mut(sum), crate::collective::bytes_of(&next));
            }
        }
        finish(reduction.op, reduction.dtype, crate::collective::bytes_of_mut(sum), self.size);
    }

    fn broadcast(&self, root: Rank, bytes: usize, input: Staging) -> Result<Finished, Failure> {
        let tally = Tally::new(bytes);
        if bytes == 0 {
            return Ok(finished(&tally, None));
        }
        let own = if root == self.me { only(input) } else { None };
        let mut block = own.unwrap_or_else(|| self.pool.block(bytes));
        self.context.broadcast(self.op, block.bytes_mut(), root, &hook(&tally))?;
        Ok(finished(&tally, Some(block)))
    }

    fn gather(&self, bytes: usize, own: Option<Block>) -> Result<Finished, Failure> {
        let tally = Tally::new(bytes * self.size);
        let Some(own) = own else { return Ok(finished(&tally, None)) };
        let mut block = self.pool.block(bytes * self.size);
        let start = self.me.index() * bytes;
        block.bytes_mut()[start..start + bytes].copy_from_slice(own.bytes());
        drop(own);
        self.context.all_gather(self.op, block.bytes_mut(), &hook(&tally))?;
        Ok(finished(&tally, Some(block)))
    }
}

fn only(input: Staging) -> Option<Block> {
    input.blocks.into_iter().next()
}

fn hook(tally: &Tally) -> Landed {
    let tally = tally.clone();
    Arc::new(move |offset, bytes| tally.landed(offset, bytes))
}

fn finished(tally: &Tally, block: Option<Block>) -> Finished {
    let output = Staging { blocks: block.into_iter().collect() };
    let digest = tally.finish(&output.blocks);
    Finished { output, digest }
}
