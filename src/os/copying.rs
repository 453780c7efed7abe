//! Fast copies of bulk data.

/// Copies `from` to `to`.
///
/// For long copies glibc 2.36 uses `rep movsb`, which does not read the lines that it replaces. But
/// on an AMD Zen 3 processor it was measured up to 25 times slower if the target lies 1 to 31 bytes
/// after the source, modulo 4096, and records and chunks have arbitrary alignment. There the copy
/// is made in pieces.
///
/// # Panics
/// If the lengths differ.
pub fn copy(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "a copy is as long as what it is of");
    let piece_bytes = piece_bytes(to.as_ptr(), from.as_ptr());
    to.chunks_mut(piece_bytes)
        .zip(from.chunks(piece_bytes))
        .for_each(|(to, from)| to.copy_from_slice(from));
}

/// The longest copy from one address to another that is fast.
pub fn piece_bytes(to: *const u8, from: *const u8) -> usize {
    let behind = to.addr().wrapping_sub(from.addr()) % 4096;
    if (1..32).contains(&behind) { PIECE_BYTES } else { usize::MAX }
}

/// The copy for a part of a buffer of so many bytes.
pub fn copy_of(buffer_bytes: usize) -> fn(&mut [u8], &[u8]) {
    if buffer_bytes >= STREAMED_BYTES_MIN { stream } else { copy }
}

/// Copies `from` to `to` past the caches: an ordinary store first reads the line that it replaces,
/// and the copy of a large buffer displaces the data used next. Two to four times as fast as
/// [`copy`] for buffers that fill the caches. On processors other than x86-64 it is the same.
///
/// # Panics
/// If the lengths differ.
pub fn stream(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "a copy is as long as what it is of");
    let unaligned = to.as_ptr().align_offset(LINE_BYTES).min(to.len());
    let whole = (to.len() - unaligned) / LINE_BYTES * LINE_BYTES;
    let (to_head, to_rest) = to.split_at_mut(unaligned);
    let (from_head, from_rest) = from.split_at(unaligned);
    let (to_lines, to_tail) = to_rest.split_at_mut(whole);
    let (from_lines, from_tail) = from_rest.split_at(whole);
    copy(to_head, from_head);
    stream_lines(to_lines, from_lines);
    copy(to_tail, from_tail);
}

/// Streams whole lines to an aligned target.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "stores past the caches have no safe function")]
fn stream_lines(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    if to.is_empty() {
        return;
    }
    assert!(to.as_ptr().cast::<__m128i>().is_aligned() && to.len() == from.len());
    for (to, from) in to.chunks_exact_mut(LINE_BYTES).zip(from.chunks_exact(LINE_BYTES)) {
        let (to, from) = (to.as_mut_ptr().cast::<__m128i>(), from.as_ptr().cast::<__m128i>());
        // SAFETY: both have four vectors; the target is aligned, as was just asserted, and the
        // source need not be. All processors of this architecture have these instructions.
        unsafe {
            let line: [__m128i; 4] = std::array::from_fn(|i| _mm_loadu_si128(from.add(i)));
            line.into_iter().enumerate().for_each(|(i, v)| _mm_stream_si128(to.add(i), v));
        }
    }
    // Other threads must see these stores before all later ones.
    // SAFETY: as above.
    unsafe { _mm_sfence() };
}

#[cfg(not(target_arch = "x86_64"))]
fn stream_lines(to: &mut [u8], from: &[u8]) {
    copy(to, from);
}

/// Half of the length from which glibc uses `rep movsb`.
const PIECE_BYTES: usize = 2048;
/// A cache line.
const LINE_BYTES: usize = 64;
/// Buffers from this size on do not stay in the caches anyway.
const STREAMED_BYTES_MIN: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_where_it_belongs() {
        for len in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 10 * PIECE_BYTES, 65_487] {
            let from: Vec<u8> = (0..len).map(|i| (i * 31 + i / 251) as u8).collect();
            for copies in [copy, stream] {
                let mut to = vec![0; len];
                copies(&mut to, &from);
                assert_eq!(to, from);
            }
        }
    }

    #[test]
    fn a_stream_begins_and_ends_anywhere() {
        let from: Vec<u8> = (0..400).map(|i| i as u8).collect();
        for (start, end) in
            (0..130).flat_map(|start| (start..=start + 200).map(move |e| (start, e)))
        {
            let mut to = vec![0xee; 400];
            let place = start + 1..end + 1;
            stream(&mut to[place.clone()], &from[start..end]);
            assert_eq!(to[place.clone()], from[start..end]);
            let beside = to[..place.start].iter().chain(&to[place.end..]);
            assert!(beside.copied().all(|byte| byte == 0xee), "{start}..{end}");
        }
    }

    /// `cargo test --release --lib -- wherever_the_target_lies --nocapture` prints the speed, and
    /// that of a single `memcpy`.
    #[test]
    fn wherever_the_target_lies() {
        use std::hint::black_box;
        use std::time::Instant;

        const LEN: usize = 65_487;
        let from = vec![1; LEN + 8192];
        let mut to = vec![0; LEN + 8192];
        let start = (from.as_ptr().align_offset(4096), to.as_ptr().align_offset(4096));
        for behind in [0, 2, 16, 32, 64] {
            let from = &from[start.0..start.0 + LEN];
            let mut speed = |copies: fn(&mut [u8], &[u8])| {
                let to = &mut to[start.1 + behind..start.1 + behind + LEN];
                let began = Instant::now();
                (0..200).for_each(|_| copies(black_box(to), black_box(from)));
                assert_eq!(to, from);
                (200 * LEN) as f64 / began.elapsed().as_nanos() as f64
            };
            let (pieces, one) = (speed(copy), speed(|to, from| to.copy_from_slice(from)));
            println!("{behind:2} bytes behind: {pieces:.1} GB/s in pieces, {one:.1} GB/s in one");
        }
    }
}
