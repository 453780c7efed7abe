//! An all-reduce of elements that are sent encoded, on Gloo's exchange of parts (all-to-all-v).
//!
//! Each member folds one shard: it decodes the contributions, and encodes the sum. All members,
//! also the one that made the sum, use the decoded form of it. A large buffer is cut into pieces,
//! each with a part of every shard, that are spread over a few [rails](super::rails). While one
//! rail encodes, folds, decodes or waits for a credit, the others send; and while the contributions
//! to one piece are exchanged, the sums of another are distributed. The cuts are between codec
//! blocks, so they do not affect the result.

use super::collective::{Participant, finished};
use super::context::{Context, Failure, UNFIT};
use super::result_digest::ResultDigest;
use super::task::Reduction;
use crate::collective::{Finished, finish, fold};
use crate::compression::{Codec, codec, codec_of_sums, in_whole_blocks};
use crate::memory::{Block, Pool, ResultBuffer, bytes_of, bytes_of_mut, elements_of_mut};
use crate::protocol::{CodecId, OpId, ring_segment};
use std::ops::Range;
use std::sync::Arc;

/// An encoded all-reduce, as all threads that work on it see it.
struct Encoded {
    context: Arc<Context>,
    op: OpId,
    me: usize,
    size: usize,
    pool: Pool,
    coding: Coding,
    /// At first the contribution, in the end the result. Its parts are those of [`cuts`].
    result_buffer: Arc<ResultBuffer>,
    /// The number of pieces.
    pieces: usize,
}

/// The codecs of contributions and of sums.
#[derive(Clone, Copy)]
struct Coding {
    reduction: Reduction,
    own: &'static dyn Codec,
    of_sums: &'static dyn Codec,
}

/// Smallest piece, in elements: 512 KiB.
const PIECE_MIN: usize = 128 * 1024;
/// Most pieces of a buffer. With more, little remains to overlap, and each costs the steps of two
/// collectives.
const PIECES_MAX: usize = 64;
/// The number of rails; the others use the link while one waits. Measured with 16 MiB among four
/// machines at 100 Mbit/s: four rails took as long as six; three took 4 % longer; one rail with one
/// piece took 4 % longer with a codec of 16 bits and 12 % with one of 8 bits.
const RAILS: usize = 4;

impl Participant<'_> {
    /// Reduces the elements of all ranks, which are sent encoded.
    pub(super) fn reduce_encoded(
        &self,
        reduction: Reduction,
        id: CodecId,
        block: Option<Block>,
    ) -> Result<Finished, Failure> {
        let result_digest = ResultDigest::new(reduction.bytes())?;
        let Some(block) = block else { return Ok(finished(&result_digest, None)) };
        let (own, of_sums) = codec(id).zip(codec_of_sums(id, self.size)).ok_or(UNFIT)?;
        let pieces = pieces_of(reduction.count);
        let lengths = cuts(reduction.count, self.size, pieces)
            .map(|part| part.len() * reduction.dtype.bytes());
        let result_buffer =
            ResultBuffer::new(block.into_memory(self.pool)?, lengths)?.ok_or(UNFIT)?;
        let encoded = Encoded {
            context: Arc::clone(self.context),
            op: self.op,
            me: self.me.index(),
            size: self.size,
            pool: self.pool.clone(),
            coding: Coding { reduction, own, of_sums },
            result_buffer: Arc::clone(&result_buffer),
            pieces,
        };
        let rails = pieces.min(RAILS);
        self.rails.run(rails, move |rail| {
            // Two tags per rail. The cast does not truncate: there are few rails.
            let mut own = (rail..pieces).step_by(rails);
            own.try_for_each(|piece| encoded.reduce_piece(2 * rail as u32, piece))
        })?;
        Ok(finished(&result_digest, Some(Block::result(result_buffer).ok_or(UNFIT)?)))
    }
}

impl Encoded {
    /// Reduces one piece with two exchanges, `tag` and `tag` + 1, as rank m of n sees them. Part r
    /// is that of rank r's shard:
    ///
    /// ```text
    /// exchange   sends to rank r           receives from rank r    then
    /// tag        own encoded part r        its encoded part m      decode, fold in rank order
    /// tag + 1    encoded sum of part m     encoded sum of part r   decode into part r
    /// ```
    fn reduce_piece(&self, tag: u32, index: usize) -> Result<(), Failure> {
        let Coding { own, of_sums, .. } = self.coding;
        let me = self.me;
        let writers =
            (0..self.size).map(|rank| self.result_buffer.claim(rank * self.pieces + index));
        let mut writers = writers.collect::<Option<Vec<_>>>().ok_or(UNFIT)?;
        let parts = writers.iter_mut().map(|writer| elements_of_mut::<f32>(writer.bytes_mut()));
        let mut piece = parts.collect::<Option<Vec<_>>>().ok_or(UNFIT)?;
        let lengths = |codec: &dyn Codec| {
            piece.iter().map(|part| codec.encoded_len(part.len())).collect::<Vec<usize>>()
        };
        let (there, back) = (lengths(own), lengths(of_sums));
        let mut encoded = self.pool.block(there.iter().sum())?;
        for (part, out) in piece.iter().zip(spans(encoded.bytes_mut(), &there)) {
            own.encode(part, out);
        }
        let mut contributions = self.pool.block(there[me] * self.size)?;
        self.exchange(tag, &mut contributions, &vec![there[me]; self.size], &mut encoded, &there)?;
        self.add(contributions.bytes(), piece[me])?;

        // Send to all ranks directly: in Gloo's all-gather each step waits for the one before it,
        // and for a credit.
        let mut own_sum = self.pool.block(back[me] * self.size)?;
        let (first, copies) = own_sum.bytes_mut().split_at_mut(back[me]);
        of_sums.encode(piece[me], first);
        copies.chunks_exact_mut(back[me].max(1)).for_each(|copy| copy.copy_from_slice(first));
        let mut sums = self.pool.block(back.iter().sum())?;
        self.exchange(tag + 1, &mut sums, &back, &mut own_sum, &vec![back[me]; self.size])?;
        for (part, sum) in piece.iter_mut().zip(spans(sums.bytes_mut(), &back)) {
            of_sums.decode(sum, part).map_err(|_| UNFIT)?;
        }
        writers.into_iter().for_each(|writer| _ = writer.land());
        Ok(())
    }

    fn exchange(
        &self,
        tag: u32,
        out: &mut Block,
        out_bytes: &[usize],
        input: &mut Block,
        input_bytes: &[usize],
    ) -> Result<(), Failure> {
        let (out, input) = (out.bytes_mut(), input.bytes_mut());
        self.context.exchange_parts(self.op, tag, out, out_bytes, input, input_bytes)
    }

    /// Decodes the contributions of all ranks to one part, concatenated in rank order, and folds
    /// them in that order.
    fn add(&self, contributions: &[u8], sum: &mut [f32]) -> Result<(), Failure> {
        let Coding { reduction, own, .. } = self.coding;
        let each = own.encoded_len(sum.len());
        let mut next = self.pool.elements::<f32>(sum.len())?;
        for rank in 0..self.size {
            let part = &contributions[rank * each..(rank + 1) * each];
            let into = if rank == 0 { &mut *sum } else { &mut next };
            own.decode(part, into).map_err(|_| UNFIT)?;
            if rank > 0 {
                fold(reduction.op, reduction.dtype, bytes_of_mut(sum), bytes_of(&next))?;
            }
        }
        Ok(finish(reduction.op, reduction.dtype, bytes_of_mut(sum), self.size)?)
    }
}

/// The number of pieces of a buffer of `count` elements.
fn pieces_of(count: usize) -> usize {
    (count / PIECE_MIN).clamp(1, PIECES_MAX)
}

/// The parts of a buffer of `count` elements, in order: the shard of each of `size` ranks, cut into
/// as many pieces. The cuts are between codec blocks, so a part is encoded as it would be within
/// the whole buffer.
fn cuts(count: usize, size: usize, pieces: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    (0..size * pieces).map(move |part| {
        let shard = ring_segment(part / pieces, size, count);
        let part = ring_segment(part % pieces, pieces, shard.len());
        in_whole_blocks(shard.start + part.start..shard.start + part.end, count)
    })
}

/// Consecutive slices of these lengths.
fn spans<'a>(mut bytes: &'a mut [u8], lengths: &'a [usize]) -> impl Iterator<Item = &'a mut [u8]> {
    lengths.iter().map(move |length| {
        let (first, rest) = std::mem::take(&mut bytes).split_at_mut(*length);
        bytes = rest;
        first
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_cover_the_buffer_once_in_whole_blocks() {
        for size in [1, 2, 3, 5, 16] {
            for count in
                [0, 1, size, 257, PIECE_MIN - 1, PIECE_MIN, 3 * PIECE_MIN + 77, 20 * PIECE_MIN + 1]
            {
                let pieces = pieces_of(count);
                let parts: Vec<Range<usize>> = cuts(count, size, pieces).collect();
                assert_eq!(parts.len(), size * pieces);
                let mut end = 0;
                for part in &parts {
                    assert_eq!(part.start, end, "{count} of {size}");
                    assert!(part.is_empty() || part.start.is_multiple_of(256));
                    end = part.end;
                }
                assert_eq!(end, count, "{count} of {size}");
            }
        }
    }
}
