//! Top-k: the elements of largest magnitude in each block of 256 are sent exactly; the others
//! are 0.
//!
//! A block with `k` sent elements is encoded as `k` positions, one ascending byte each, and then
//! their values in the same order, `f32` little-endian. Of equal magnitudes the earlier element is
//! sent. If fewer than `k` elements are not 0, zeros are sent too. A NaN counts as larger than any
//! number. If positions and values would take as much room as all elements of the block, all are
//! sent without positions.
//!
//! The sum of several members' contributions has more non-zero elements, so its codec has room for
//! all of them: no element is left out twice. Therefore every omission is known to the member whose
//! contribution it affects.

use super::blocks::BLOCK;
use super::codec::Codec;
use crate::wire::Malformed;

/// The codec that keeps `kept` elements of each block, in 5 bytes each.
#[derive(Clone, Copy, Debug)]
pub struct TopK {
    kept: usize,
}

const VALUE_BYTES: usize = size_of::<f32>();
const ENTRY_BYTES: usize = 1 + VALUE_BYTES;

/// One codec for each number of kept elements, at that index.
static ALL: [TopK; BLOCK + 1] = {
    let mut all = [TopK { kept: 0 }; BLOCK + 1];
    let mut kept = 0;
    while kept <= BLOCK {
        all[kept].kept = kept;
        kept += 1;
    }
    all
};

impl TopK {
    /// The codec that keeps `kept` elements of each block, clamped to 1..=256.
    pub fn keeping(kept: usize) -> &'static TopK {
        &ALL[kept.clamp(1, BLOCK)]
    }

    /// The number of elements sent for a block of length `len`.
    fn kept(&self, len: usize) -> usize {
        self.kept.min(len)
    }

    fn is_whole(&self, len: usize) -> bool {
        self.kept(len) * ENTRY_BYTES >= len * VALUE_BYTES
    }

    fn block_bytes(&self, len: usize) -> usize {
        if self.is_whole(len) { len * VALUE_BYTES } else { self.kept(len) * ENTRY_BYTES }
    }

    fn encode_block(&self, block: &[f32], out: &mut [u8]) {
        let values = |out: &mut [u8], chosen: &mut dyn Iterator<Item = f32>| {
            out.as_chunks_mut::<VALUE_BYTES>()
                .0
                .iter_mut()
                .zip(chosen)
                .for_each(|(out, x)| *out = x.to_le_bytes());
        };
        if self.is_whole(block.len()) {
            return values(out, &mut block.iter().copied());
        }
        let kept = self.kept(block.len());
        let mut ranked = [0u64; BLOCK];
        let ranked = &mut ranked[..block.len()];
        for (place, (rank, x)) in ranked.iter_mut().zip(block).enumerate() {
            // The keys are distinct; of equal magnitudes the earlier element has the larger key.
            *rank = u64::from(x.to_bits() & 0x7fff_ffff) << 8 | (BLOCK - 1 - place) as u64;
        }
        let least = *ranked.select_nth_unstable(block.len() - kept).1;
        let is_kept = |(place, x): &(usize, &f32)| {
            u64::from(x.to_bits() & 0x7fff_ffff) << 8 | (BLOCK - 1 - place) as u64 >= least
        };
        let chosen = || block.iter().enumerate().filter(is_kept);
        let (places, rest) = out.split_at_mut(kept);
        places.iter_mut().zip(chosen()).for_each(|(out, (place, _))| *out = place as u8);
        values(rest, &mut chosen().map(|(_, x)| *x));
    }

    fn decode_block(&self, bytes: &[u8], block: &mut [f32]) -> Result<(), Malformed> {
        if self.is_whole(block.len()) {
            for (x, bytes) in block.iter_mut().zip(bytes.as_chunks::<VALUE_BYTES>().0) {
                *x = f32::from_le_bytes(*bytes);
            }
            return Ok(());
        }
        let (places, values) =
            bytes.split_at_checked(self.kept(block.len())).ok_or(Malformed::Inconsistent)?;
        if !places.is_sorted_by(|a, b| a < b)
            || places.last().is_some_and(|last| usize::from(*last) >= block.len())
        {
            return Err(Malformed::Inconsistent);
        }
        block.fill(0.0);
        for (place, bytes) in places.iter().zip(values.as_chunks::<VALUE_BYTES>().0) {
            block[usize::from(*place)] = f32::from_le_bytes(*bytes);
        }
        Ok(())
    }
}

impl Codec for TopK {
    fn encoded_len(&self, elements: usize) -> usize {
        elements / BLOCK * self.block_bytes(BLOCK) + self.block_bytes(elements % BLOCK)
    }

    fn write(&self, elements: &[f32], out: &mut [u8]) {
        for (block, out) in elements.chunks(BLOCK).zip(out.chunks_mut(self.block_bytes(BLOCK))) {
            self.encode_block(block, out);
        }
    }

    fn read(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Malformed> {
        let mut blocks = out.chunks_mut(BLOCK).zip(bytes.chunks(self.block_bytes(BLOCK)));
        blocks.try_for_each(|(block, bytes)| self.decode_block(bytes, block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn coded(codec: &dyn Codec, elements: &[f32]) -> Vec<f32> {
        let (mut bytes, mut out) =
            (vec![0xa5; codec.encoded_len(elements.len())], vec![7.0; elements.len()]);
        codec.encode(elements, &mut bytes);
        codec.decode(&bytes, &mut out).expect("what it has written");
        out
    }

    /// A plain reference implementation.
    fn plainly(kept: usize, block: &[f32]) -> Vec<f32> {
        let mut order: Vec<usize> = (0..block.len()).collect();
        order.sort_by_key(|place| std::cmp::Reverse(block[*place].to_bits() & 0x7fff_ffff));
        let mut out = vec![0.0; block.len()];
        order.into_iter().take(kept).for_each(|place| out[place] = block[place]);
        out
    }

    proptest! {
        #[test]
        fn the_largest_are_kept_as_they_are(
            bits in prop::collection::vec(any::<u32>(), 0..600),
            few in 1usize..6,
            many in 1usize..=256,
        ) {
            let drawn: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
            let alike: Vec<f32> = bits.iter().map(|bits| (bits % 4) as f32 - 2.0).collect();
            for (kept, elements) in
                [few, many].into_iter().flat_map(|kept| [(kept, &drawn), (kept, &alike)])
            {
                let codec = TopK::keeping(kept);
                let whole = |block: &&[f32]| kept.min(block.len()) * 5 >= block.len() * 4;
                let block = |block: &[f32]| {
                    if whole(&block) { block.to_vec() } else { plainly(kept, block) }
                };
                let expected: Vec<u32> =
                    elements.chunks(256).flat_map(block).map(f32::to_bits).collect();
                prop_assert_eq!(
                    coded(codec, elements).into_iter().map(f32::to_bits).collect::<Vec<_>>(),
                    expected
                );
            }
        }

        #[test]
        fn sums_of_what_is_kept_lose_nothing(
            buffers in prop::collection::vec(prop::collection::vec(-1000i32..1000, 700), 1..6),
            kept in 1usize..80,
        ) {
            let parts: Vec<Vec<f32>> = buffers
                .iter()
                .map(|b| {
                    coded(TopK::keeping(kept), &b.iter().map(|x| *x as f32).collect::<Vec<_>>())
                })
                .collect();
            let sum: Vec<f32> = (0..700).map(|i| parts.iter().map(|part| part[i]).sum()).collect();
            prop_assert_eq!(coded(TopK::keeping(kept * parts.len()), &sum), sum);
        }
    }

    #[test]
    fn so_many_bytes() {
        let lens = |kept| {
            [0, 1, 3, 255, 256, 257, 512, 514]
                .map(|elements| TopK::keeping(kept).encoded_len(elements))
        };
        assert_eq!(lens(1), [0, 4, 5, 5, 5, 9, 10, 15]);
        assert_eq!(lens(3), [0, 4, 12, 15, 15, 19, 30, 38]);
        assert_eq!(lens(256), [0, 4, 12, 1020, 1024, 1028, 2048, 2056]);
    }

    #[test]
    fn places_that_no_encoder_writes_are_refused() {
        let codec = TopK::keeping(2);
        let with = |places: [u8; 2], len| {
            let mut bytes = vec![0; codec.encoded_len(len)];
            bytes[..2].copy_from_slice(&places);
            codec.decode(&bytes, &mut vec![0.0; len])
        };
        assert_eq!([with([0, 255], 256), with([0, 99], 100)], [Ok(()); 2]);
        for (places, len) in [([5, 5], 256), ([7, 5], 256), ([0, 100], 100), ([200, 255], 100)] {
            assert_eq!(with(places, len), Err(Malformed::Inconsistent), "{places:?} of {len}");
        }
    }

    #[test]
    fn what_is_no_number_is_seen() {
        let mut elements = vec![1000.0; 300];
        (elements[7], elements[290]) = (f32::NAN, f32::NEG_INFINITY);
        let out = coded(TopK::keeping(1), &elements);
        assert!(out[7].is_nan() && out[290] == f32::NEG_INFINITY);
        assert_eq!(out.iter().filter(|x| **x != 0.0).count(), 2);
    }
}
