//! Layer: Shells.
//!
//! An all-reduce of what travels encoded, with Gloo's exchange of parts.
//!
//! Each member adds one shard: what is added is decoded, and what is handed on is what everybody
//! else decodes too. A large buffer goes in pieces, a part of every shard each, on a few *rails*:
//! while one encodes, adds, decodes or waits for a credit the others send, and while the
//! contributions to one piece come together the sums of the one before are handed on. How it is cut
//! does not show in the result, as it is cut between blocks.

use super::collective::{Part, UNFIT, finished};
use super::context::Failure;
use super::tally::Tally;
use super::task::Reduction;
use crate::collective::{
    Block, CodecId, Finished, bytes_of, bytes_of_mut, elements_of_mut, finish, fold,
};
use crate::compression::{Codec, codec, codec_of_sums, in_whole_blocks};
use crate::topology::ring_segment;

/// How contributions and sums are written.
#[derive(Clone, Copy)]
struct Coding {
    reduction: Reduction,
    own: &'static dyn Codec,
    of_sums: &'static dyn Codec,
}

/// A part of each rank's shard, by rank.
type Piece<'a> = Vec<&'a mut [f32]>;

/// At least so many elements are worth a piece of their own: 512 KiB.
const PIECE_MIN: usize = 128 * 1024;
/// With more of them there is little left that does not overlap, and each costs the steps of two
/// collectives.
const PIECES_MAX: usize = 64;
/// What one of them waits for, the others use. With four of them 16 MiB among four machines with
/// 100 Mbit/s took as long as with six, with three 4 % longer, with one and one piece 4 % with 16
/// bits and 12 % with 8.
const RAILS: usize = 4;

impl Part<'_> {
    /// Adds everybody's elements, which travel encoded.
    pub(super) fn reduce_encoded(
        &self,
        reduction: Reduction,
        id: CodecId,
        block: Option<Block>,
    ) -> Result<Finished, Failure> {
        let tally = Tally::new(reduction.bytes());
        let Some(mut block) = block else { return Ok(finished(&tally, None)) };
        let (own, of_sums) = codec(id).zip(codec_of_sums(id, self.size)).ok_or(UNFIT)?;
        let coding = Coding { reduction, own, of_sums };
        let elements = elements_of_mut::<f32>(block.bytes_mut()).ok_or(UNFIT)?;
        let mut rails: Vec<Vec<Piece<'_>>> = (0..RAILS).map(|_| Vec::new()).collect();
        for (index, piece) in pieces(elements, self.size).into_iter().enumerate() {
            rails[index % RAILS].push(piece);
        }
        rails.retain(|pieces| !pieces.is_empty());
        self.run(coding, rails)?;
        Ok(finished(&tally, Some(block)))
    }

    /// The first rail on this thread, the others on threads that end with it.
    fn run(&self, coding: Coding, rails: Vec<Vec<Piece<'_>>>) -> Result<(), Failure> {
        let run = |tag: usize, pieces: Vec<Piece<'_>>| {
            // Two each. The cast loses nothing: there are few.
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
            // A panic is a bug of this engine's.
            let ended = others.into_iter().map(|other| other?.join().unwrap_or(Err(UNFIT)));
            ended.fold(own, Result::and)
        })
    }

    /// Adds one piece, each rank its part, by calls of this tag and the next one.
    fn reduce_piece(&self, coding: Coding, tag: u32, mut piece: Piece<'_>) -> Result<(), Failure> {
        let Coding { own, of_sums, .. } = coding;
        let me = self.me.index();
        let lengths = |codec: &dyn Codec| {
            piece.iter().map(|part| codec.encoded_len(part.len())).collect::<Vec<usize>>()
        };
        let (there, back) = (lengths(own), lengths(of_sums));
        let mut encoded = self.pool.block(there.iter().sum());
        for (part, out) in piece.iter().zip(spans(encoded.bytes_mut(), &there)) {
            own.encode(part, out);
        }
        let mut contributions = self.pool.block(there[me] * self.size);
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

        // Straight to everybody: in Gloo's all-gather each step waits for the one before, and for a
        // credit.
        let mut own_sum = self.pool.block(back[me] * self.size);
        let (first, copies) = own_sum.bytes_mut().split_at_mut(back[me]);
        of_sums.encode(piece[me], first);
        copies.chunks_exact_mut(back[me].max(1)).for_each(|copy| copy.copy_from_slice(first));
        let mut sums = self.pool.block(back.iter().sum());
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

    /// Everybody's encoded contributions to one part, one behind the other, added up in rank order.
    fn add(&self, coding: Coding, contributions: &[u8], sum: &mut [f32]) -> Result<(), Failure> {
        let Coding { reduction, own, .. } = coding;
        let each = own.encoded_len(sum.len());
        let mut next = vec![0.0; sum.len()];
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

/// The pieces of a buffer of which each of `size` ranks adds a shard: cut between blocks, so that a
/// part is encoded as it would be in the whole.
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

/// Consecutive stretches of these lengths.
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
