//! Layer: Shells.
//!
//! An all-reduce of elements that are sent encoded, on Gloo's exchange of parts (all-to-all-v).
//!
//! Each member folds one shard: it decodes the contributions, and encodes the sum. All members,
//! also the one that made the sum, use the decoded form of it. A large buffer is cut into pieces,
//! each with a part of every shard, that are spread over a few *rails* (threads). While one rail
//! encodes, folds, decodes or waits for a credit, the others send; and while the contributions to
//! one piece are exchanged, the sums of another are distributed. The cuts are between codec blocks,
//! so they do not affect the result.

use super::collective::{Part, UNFIT, finished};
use super::context::Failure;
use super::tally::Tally;
use super::task::Reduction;
use crate::collective::{
    Block, CodecId, Finished, bytes_of, bytes_of_mut, elements_of_mut, finish, fold,
};
use crate::compression::{Codec, codec, codec_of_sums, in_whole_blocks};
use crate::topology::ring_segment;

/// The codecs of contributions and of sums.
#[derive(Clone, Copy)]
struct Coding {
    reduction: Reduction,
    own: &'static dyn Codec,
    of_sums: &'static dyn Codec,
}

/// A part of each rank's shard, indexed by rank.
type Piece<'a> = Vec<&'a mut [f32]>;

/// Smallest piece, in elements: 512 KiB.
const PIECE_MIN: usize = 128 * 1024;
/// Most pieces of a buffer. With more, little remains to overlap, and each costs the steps of two
/// collectives.
const PIECES_MAX: usize = 64;
/// The number of rails; the others use the link while one waits. Measured with 16 MiB among four
/// machines at 100 Mbit/s: four rails took as long as six; three took 4 % longer; one rail with one
/// piece took 4 % longer with a codec of 16 bits and 12 % with one of 8 bits.
const RAILS: usize = 4;

impl Part<'_> {
    /// Reduces the elements of all ranks, which are sent encoded.
    pub(super) fn reduce_encoded(
        &self,
        reduction: Reduction,
        id: CodecId,
        block: Option<Block>,
    ) -> Result<Finished, Failure> {
        let tally = Tally::new(reduction.bytes())?;
        let Some(mut block) = block else { return Ok(finished(&tally, None)) };
        let (own, of_sums) = codec(id).zip(codec_of_sums(id, self.size)).ok_or(UNFIT)?;
        let coding = Coding { reduction, own, of_sums };
        let elements = elements_of_mut::<f32>(block.writable(self.pool)?).ok_or(UNFIT)?;
        let mut rails: Vec<Vec<Piece<'_>>> = (0..RAILS).map(|_| Vec::new()).collect();
        for (index, piece) in pieces(elements, self.size).into_iter().enumerate() {
            rails[index % RAILS].push(piece);
        }
        rails.retain(|pieces| !pieces.is_empty());
        self.run(coding, rails)?;
        Ok(finished(&tally, Some(block)))
    }

    /// Runs the first rail on this thread, and each other one on a thread that ends with the call.
    fn run(&self, coding: Coding, rails: Vec<Vec<Piece<'_>>>) -> Result<(), Failure> {
        let run = |tag: usize, pieces: Vec<Piece<'_>>| {
            // Two tags per rail. The cast does not truncate: there are few rails.
            pieces
                .into_iter()
                .try_for_each(|piece| self.reduce_piece(coding, 2 * tag as u32, piece))
        };
        let mut rails = rails.into_iter().enumerate();
        let Some((first, pieces)) = rails.next() else { return Ok(()) };
        std::thread::scope(|scope| {
            let spawn = |(tag, pieces)| {
                let rail = std::thread::Builder::new().name("potluck-gloo".to_owned());
                rail.spawn_scoped(scope, move || run(tag, pieces))
                    .map_err(|_| Failure::Links(crate::collective::EngineFault::Gloo))
            };
            let others: Vec<_> = rails.map(spawn).collect();
            let own = run(first, pieces);
            // A panic is a bug of this engine.
            let ended = others.into_iter().map(|other| other?.join().unwrap_or(Err(UNFIT)));
            ended.fold(own, Result::and)
        })
    }

    /// Reduces one piece with two exchanges, `tag` and `tag` + 1, as rank m of n sees them:
    ///
    /// ```text
    /// exchange   sends to rank r           receives from rank r    then
    /// tag        own encoded part r        its encoded part m      decode, fold in rank order
    /// tag + 1    encoded sum of part m     encoded sum of part r   decode into `piece[r]`
    /// ```
    fn reduce_piece(&self, coding: Coding, tag: u32, mut piece: Piece<'_>) -> Result<(), Failure> {
        let Coding { own, of_sums, .. } = coding;
        let me = self.me.index();
        let lengths = |codec: &dyn Codec| {
            piece.iter().map(|part| codec.encoded_len(part.len())).collect::<Vec<usize>>()
        };
        let (there, back) = (lengths(own), lengths(of_sums));
        let mut encoded = self.pool.block(there.iter().sum())?;
        for (part, out) in piece.iter().zip(spans(encoded.bytes_mut(), &there)) {
            own.encode(part, out);
        }
        let mut contributions = self.pool.block(there[me] * self.size)?;
        let all_alike = vec![there[me]; self.size];
        self.context.exchange_parts(
            self.op,
            tag,
            contributions.bytes_mut(),
            &all_alike,
            encoded.bytes_mut(),
            &there,
        )?;
        self.add(coding, contributions.bytes(), piece[me])?;

        // Send to all ranks directly: in Gloo's all-gather each step waits for the one before it,
        // and for a credit.
        let mut own_sum = self.pool.block(back[me] * self.size)?;
        let (first, copies) = own_sum.bytes_mut().split_at_mut(back[me]);
        of_sums.encode(piece[me], first);
        copies.chunks_exact_mut(back[me].max(1)).for_each(|copy| copy.copy_from_slice(first));
        let mut sums = self.pool.block(back.iter().sum())?;
        let all_alike = vec![back[me]; self.size];
        self.context.exchange_parts(
            self.op,
            tag + 1,
            sums.bytes_mut(),
            &back,
            own_sum.bytes_mut(),
            &all_alike,
        )?;
        for (part, sum) in piece.iter_mut().zip(spans(sums.bytes_mut(), &back)) {
            of_sums.decode(sum, part).map_err(|_| UNFIT)?;
        }
        Ok(())
    }

    /// Decodes the contributions of all ranks to one part, concatenated in rank order, and folds
    /// them in that order.
    fn add(&self, coding: Coding, contributions: &[u8], sum: &mut [f32]) -> Result<(), Failure> {
        let Coding { reduction, own, .. } = coding;
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

/// Cuts a buffer, of which each of `size` ranks folds a shard, into pieces. The cuts are between
/// codec blocks, so a part is encoded as it would be within the whole buffer.
fn pieces(mut elements: &mut [f32], size: usize) -> Vec<Piece<'_>> {
    let count = elements.len();
    let number = (count / PIECE_MIN).clamp(1, PIECES_MAX);
    let mut pieces: Vec<Piece<'_>> = (0..number).map(|_| Vec::with_capacity(size)).collect();
    for rank in 0..size {
        let shard = ring_segment(rank, size, count);
        for (index, piece) in pieces.iter_mut().enumerate() {
            let part = ring_segment(index, number, shard.len());
            let part = in_whole_blocks(shard.start + part.start..shard.start + part.end, count);
            let (first, rest) = std::mem::take(&mut elements).split_at_mut(part.len());
            elements = rest;
            piece.push(first);
        }
    }
    pieces
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
    fn pieces_cover_the_buffer_once_in_whole_blocks() {
        for size in [1, 2, 3, 5, 16] {
            for count in
                [0, 1, size, 257, PIECE_MIN - 1, PIECE_MIN, 3 * PIECE_MIN + 77, 20 * PIECE_MIN + 1]
            {
                let mut elements = vec![0.0; count];
                let start = elements.as_ptr() as usize;
                let mut places: Vec<(usize, usize)> = Vec::new();
                for piece in pieces(&mut elements, size) {
                    assert_eq!(piece.len(), size);
                    places.extend(
                        piece.iter().map(|part| ((part.as_ptr() as usize - start) / 4, part.len())),
                    );
                }
                places.retain(|(_, len)| *len > 0);
                places.sort_unstable();
                assert_eq!(
                    places.iter().map(|(_, len)| len).sum::<usize>(),
                    count,
                    "{count} of {size}"
                );
                assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0));
                assert!(places.iter().all(|(at, _)| at % 256 == 0));
            }
        }
    }
}
