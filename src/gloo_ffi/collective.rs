//! Runs a task with Gloo's collectives.

use super::context::{Context, Failure, UNFIT};
use super::overlay::Overlay;
use super::p2p::Landed;
use super::rails::Rails;
use super::result_digest::ResultDigest;
use super::task::{GlooAlgorithm, Reduction, Task, UnevenParts};
use crate::collective::{Finished, Misfit, finish, fold, fold_pair};
use crate::memory::{Block, OutOfMemory, Pool, Staging};
use crate::os::copy;
use crate::protocol::{OpId, Rank, gloo_ring_chunk, ring_segment};
use std::ops::Range;
use std::sync::Arc;

impl From<Misfit> for Failure {
    fn from(_: Misfit) -> Failure {
        UNFIT
    }
}

impl From<OutOfMemory> for Failure {
    fn from(lack: OutOfMemory) -> Failure {
        Failure::Links(lack.into())
    }
}

/// One member in one collective.
pub struct Participant<'a> {
    /// The connected context.
    pub context: &'a Arc<Context>,
    /// The helpers of the View.
    pub rails: &'a Arc<Rails>,
    /// The operation that its messages belong to.
    pub op: OpId,
    /// This member's rank.
    pub me: Rank,
    /// The number of ranks.
    pub size: usize,
    /// The pool for working memory.
    pub pool: &'a Pool,
}

impl Participant<'_> {
    /// Runs `task` with this member's contribution, which has [`Task::input_bytes`]. `None` if that
    /// is 0, or the member contributes nothing.
    pub fn carry_out(&self, task: &Task, own: Option<Block>) -> Result<Finished, Failure> {
        match *task {
            Task::Reduce(reduction) => self.reduce(reduction, own),
            Task::ReduceEncoded(reduction, id) => self.reduce_encoded(reduction, id, own),
            Task::Broadcast { root, bytes } => self.broadcast(root, bytes, own),
            Task::Gather { bytes } => self.gather(bytes, own),
            Task::ReduceTo(reduction, root) => self.reduce_to(reduction, root, own),
            Task::ReduceScatter(reduction) => self.reduce_scatter(reduction, own),
            Task::GatherTo { root, bytes } => self.gather_to(root, bytes, own),
            Task::Scatter { root, bytes } => self.scatter(root, bytes, own),
            Task::AllToAll { .. } => self.all_to_all(own),
            Task::GatherUneven(ref parts) => self.gather_uneven(&parts.received, own.as_ref()),
            Task::AllToAllUneven(ref parts) => self.all_to_all_uneven(parts, own),
            Task::Message { from, to, bytes } => self.message(from, to, bytes, own),
            Task::Barrier => {
                self.context.barrier(self.op)?;
                Ok(finished(&ResultDigest::new(0)?, None))
            }
        }
    }

    fn reduce(&self, reduction: Reduction, block: Option<Block>) -> Result<Finished, Failure> {
        let result_digest = ResultDigest::new(reduction.bytes())?;
        let Some(block) = block else { return Ok(finished(&result_digest, None)) };
        if reduction.algorithm == GlooAlgorithm::Exchange && self.size > 1 {
            return self.exchange(reduction, &block);
        }
        // A single rank exchanges and folds nothing: Gloo would not fill a fresh buffer, and no
        // fold would finish the result. So it works in place.
        let alone = self.size < 2;
        let fresh = if alone { None } else { self.pool.like(&block)? };
        let (mut block, overlay) = match fresh {
            Some(fresh) => (fresh, Some(Arc::new(Overlay::new(block)))),
            None => (block, None),
        };
        let own = self.own_chunk(reduction).filter(|_| !alone);
        let is_ring = own.is_some();
        let landed = landed(&result_digest, is_ring, overlay.as_ref());
        let data = block.writable(self.pool)?;
        self.context.all_reduce(self.op, data, reduction, own, overlay.as_ref(), &landed)?;
        if !is_ring {
            finish(reduction.op, reduction.dtype, data, self.size)?;
        }
        Ok(finished(&result_digest, Some(block)))
    }

    /// All-reduce by exchange: every rank receives all buffers and folds them in rank order.
    fn exchange(&self, reduction: Reduction, own: &Block) -> Result<Finished, Failure> {
        let Reduction { op, dtype, .. } = reduction;
        let bytes = own.len();
        let mut all = self.pool.block(bytes * self.size)?;
        self.context.exchange(self.op, own.bytes(), all.bytes_mut())?;
        let of = |rank: usize| {
            if rank == self.me.index() {
                own.bytes()
            } else {
                &all.bytes()[rank * bytes..(rank + 1) * bytes]
            }
        };
        let mut block = match self.pool.like(own)? {
            Some(like) => like,
            None => self.pool.block(bytes)?,
        };
        let sum = block.bytes_mut();
        fold_pair(op, dtype, sum, of(0), of(1))?;
        (2..self.size).try_for_each(|rank| fold(op, dtype, sum, of(rank)))?;
        finish(op, dtype, sum, self.size)?;
        Ok(finished(&ResultDigest::new(bytes)?, Some(block)))
    }

    /// The byte range whose last fold happens on this rank; only for a ring.
    fn own_chunk(&self, reduction: Reduction) -> Option<Range<usize>> {
        let GlooAlgorithm::Ring { segment_bytes } = reduction.algorithm else { return None };
        let width = reduction.dtype.bytes();
        let elements =
            gloo_ring_chunk(self.me.index(), self.size, reduction.count, width, segment_bytes);
        Some(elements.start * width..elements.end * width)
    }

    /// Reduce-scatter: every rank folds one shard, in rank order, and keeps it. Gloo's newer
    /// collectives have no reduce-scatter.
    fn reduce_scatter(
        &self,
        reduction: Reduction,
        block: Option<Block>,
    ) -> Result<Finished, Failure> {
        let Some(mut block) = block else { return Ok(distinct(None)) };
        let shards = Shards::plain(reduction, self.size);
        self.add_shard(reduction, &shards, block.writable(self.pool)?)?;
        let own = &block.bytes()[shards.span(self.me.index())];
        let mut shard = self.pool.block(own.len())?;
        copy(shard.bytes_mut(), own);
        Ok(distinct(Some(shard)))
    }

    /// Reduce to one rank: every rank folds one shard and sends it to the root.
    fn reduce_to(
        &self,
        reduction: Reduction,
        root: Rank,
        block: Option<Block>,
    ) -> Result<Finished, Failure> {
        let Some(mut block) = block else { return Ok(distinct(None)) };
        let shards = Shards::plain(reduction, self.size);
        self.add_shard(reduction, &shards, block.writable(self.pool)?)?;
        let own = shards.span(self.me.index());
        let (mut to, nothing) = (vec![0; self.size], vec![0; self.size]);
        to[root.index()] = own.len();
        let mut out = self.at(root, reduction.bytes())?;
        let from = if out.is_some() { &shards.bytes } else { &nothing };
        let room = out.as_mut().map_or(&mut [][..], Block::bytes_mut);
        let own = &mut block.writable(self.pool)?[own];
        self.context.exchange_parts(self.op, 0, room, from, own, &to)?;
        Ok(distinct(out))
    }

    /// Folds all contributions to this rank's shard into the shard's place in `data`.
    fn add_shard(
        &self,
        reduction: Reduction,
        shards: &Shards,
        data: &mut [u8],
    ) -> Result<(), Failure> {
        let (me, each) = (self.me.index(), shards.bytes[self.me.index()]);
        let mut contributions = self.pool.block(each * self.size)?;
        self.context.exchange_parts(
            self.op,
            0,
            contributions.bytes_mut(),
            &vec![each; self.size],
            data,
            &shards.bytes,
        )?;
        self.fold_all(reduction, contributions.bytes(), &mut data[shards.span(me)])
    }

    /// Folds the contributions of all ranks into `sum`. `contributions` holds one part per rank,
    /// each as long as `sum`, in rank order.
    fn fold_all(
        &self,
        reduction: Reduction,
        contributions: &[u8],
        sum: &mut [u8],
    ) -> Result<(), Failure> {
        let each = sum.len();
        copy(sum, &contributions[..each]);
        for part in contributions[each..].chunks_exact(each.max(1)) {
            fold(reduction.op, reduction.dtype, sum, part)?;
        }
        Ok(finish(reduction.op, reduction.dtype, sum, self.size)?)
    }

    /// Memory for a result that only the root has.
    fn at(&self, root: Rank, bytes: usize) -> Result<Option<Block>, OutOfMemory> {
        (root == self.me).then(|| self.pool.block(bytes)).transpose()
    }

    fn gather_to(&self, root: Rank, bytes: usize, own: Option<Block>) -> Result<Finished, Failure> {
        let Some(own) = own else { return Ok(distinct(None)) };
        let mut out = self.at(root, bytes * self.size)?;
        self.context.gather(self.op, own.bytes(), out.as_mut().map(Block::bytes_mut), root)?;
        Ok(distinct(out))
    }

    fn scatter(&self, root: Rank, bytes: usize, parts: Option<Block>) -> Result<Finished, Failure> {
        if bytes == 0 {
            return Ok(distinct(None));
        }
        let mut out = self.pool.block(bytes)?;
        let parts = parts.filter(|_| root == self.me);
        self.context.scatter(self.op, parts.as_ref().map(Block::bytes), out.bytes_mut(), root)?;
        Ok(distinct(Some(out)))
    }

    fn all_to_all(&self, own: Option<Block>) -> Result<Finished, Failure> {
        let Some(own) = own else { return Ok(distinct(None)) };
        let mut out = self.pool.block(own.len())?;
        self.context.all_to_all(self.op, own.bytes(), out.bytes_mut())?;
        Ok(distinct(Some(out)))
    }

    fn all_to_all_uneven(
        &self,
        parts: &UnevenParts,
        own: Option<Block>,
    ) -> Result<Finished, Failure> {
        let mut own = own.map_or_else(|| self.pool.block(0), Ok)?;
        let mut out = self.pool.block(parts.received.iter().sum())?;
        let (room, sent) = (out.bytes_mut(), own.writable(self.pool)?);
        self.context.exchange_parts(self.op, 0, room, &parts.received, sent, &parts.sent)?;
        Ok(distinct(Some(out).filter(|out| out.len() > 0)))
    }

    fn gather_uneven(&self, lengths: &[usize], own: Option<&Block>) -> Result<Finished, Failure> {
        let total = lengths.iter().sum();
        let result_digest = ResultDigest::new(total)?;
        if total == 0 {
            return Ok(finished(&result_digest, None));
        }
        let mut out = self.pool.block(total)?;
        let own = own.map_or(&[][..], Block::bytes);
        self.context.exchange_uneven(self.op, own, out.bytes_mut(), lengths)?;
        let start = lengths[..self.me.index()].iter().sum::<usize>();
        copy(&mut out.bytes_mut()[start..start + own.len()], own);
        Ok(finished(&result_digest, Some(out)))
    }

    fn message(
        &self,
        from: Rank,
        to: Rank,
        bytes: usize,
        own: Option<Block>,
    ) -> Result<Finished, Failure> {
        if bytes == 0 {
            return Ok(distinct(None));
        }
        if self.me == from {
            self.context.send(self.op, own.ok_or(UNFIT)?.bytes(), to)?;
            return Ok(distinct(None));
        }
        let mut out = self.pool.block(bytes)?;
        self.context.recv(self.op, out.bytes_mut(), from)?;
        Ok(distinct(Some(out)))
    }

    fn broadcast(&self, root: Rank, bytes: usize, own: Option<Block>) -> Result<Finished, Failure> {
        let result_digest = ResultDigest::new(bytes)?;
        if bytes == 0 {
            return Ok(finished(&result_digest, None));
        }
        let own = own.filter(|_| root == self.me);
        let mut block = own.map_or_else(|| self.pool.block(bytes), Ok)?;
        self.context.broadcast(self.op, block.writable(self.pool)?, root, &hook(&result_digest))?;
        Ok(finished(&result_digest, Some(block)))
    }

    fn gather(&self, bytes: usize, own: Option<Block>) -> Result<Finished, Failure> {
        let result_digest = ResultDigest::new(bytes * self.size)?;
        let Some(own) = own else { return Ok(finished(&result_digest, None)) };
        let mut block = self.pool.block(bytes * self.size)?;
        let start = self.me.index() * bytes;
        copy(&mut block.bytes_mut()[start..start + bytes], own.bytes());
        drop(own);
        self.context.all_gather(self.op, block.bytes_mut(), &hook(&result_digest))?;
        Ok(finished(&result_digest, Some(block)))
    }
}

/// The length in bytes of the shard that each rank folds, by rank.
struct Shards {
    bytes: Vec<usize>,
}

impl Shards {
    fn plain(reduction: Reduction, size: usize) -> Shards {
        let bytes =
            |rank| ring_segment(rank, size, reduction.count).len() * reduction.dtype.bytes();
        Shards { bytes: (0..size).map(bytes).collect() }
    }

    /// The byte range of a rank's shard in the buffer.
    fn span(&self, rank: usize) -> Range<usize> {
        let start = self.bytes[..rank].iter().sum::<usize>();
        start..start + self.bytes[rank]
    }
}

/// The callback of an all-reduce for received bytes: they count as written, and in a ring they are
/// part of the result.
fn landed(result_digest: &ResultDigest, is_result: bool, overlay: Option<&Arc<Overlay>>) -> Landed {
    let (result_digest, overlay) = (result_digest.clone(), overlay.cloned());
    Arc::new(move |offset, bytes, before| {
        if let Some(overlay) = &overlay {
            overlay.wrote(offset + before..offset + bytes.len());
        }
        if is_result {
            result_digest.landed(offset, bytes, before);
        }
    })
}

fn hook(result_digest: &ResultDigest) -> Landed {
    let result_digest = result_digest.clone();
    Arc::new(move |offset, bytes, before| result_digest.landed(offset, bytes, before))
}

/// A result that differs between ranks by definition, so its digest is 0.
fn distinct(block: Option<Block>) -> Finished {
    Finished { output: Staging { blocks: block.into_iter().collect() }, digest: 0 }
}

pub(super) fn finished(result_digest: &ResultDigest, block: Option<Block>) -> Finished {
    let output = Staging { blocks: block.into_iter().collect() };
    let digest = result_digest.finish(&output.blocks);
    Finished { output, digest }
}
