//! Frames on a byte stream, sealed and in the clear: cut, flipped, too long, and in any pieces.

use super::super::handshake::channel_pair;
use super::super::testing::header;
use super::*;
use crate::memory::Pool;
use std::io::Cursor;

fn halves() -> (Sealer, Opener) {
    let (a, b) = channel_pair();
    (a.into_halves().0, b.into_halves().1)
}

fn marked(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn nothing_of_a_marked_payload_is_seen_in_sealed_frames() {
    let (sealer, _) = halves();
    let payload = marked(2 * FULL_BYTES + 5000);
    let seen = written_by(Some(sealer), &payload);
    assert!(seen.len() > payload.len());
    let windows: std::collections::BTreeSet<&[u8]> = payload.windows(16).collect();
    assert!(!seen.windows(16).any(|w| windows.contains(w)));
    // Control: in the clear the windows are found.
    let clear = written_by(None, &payload);
    assert!(clear.windows(16).any(|w| windows.contains(w)));
}

#[test]
fn the_bytes_added_are_few() {
    let (sealer, _) = halves();
    let seen = written_by(Some(sealer), &marked(1 << 18));
    assert_eq!(seen.len(), (1 << 18) + DataHeader::BYTES + 5 * 18);
}

#[test]
fn frames_cut_at_any_record_or_byte_are_an_end() {
    for sealed in [true, false] {
        let payload = marked(FULL_BYTES + 40);
        let whole = written(sealed, &payload).0;
        let ends = (0..200).chain(whole.len() - 200..whole.len());
        for end in ends.step_by(7) {
            let (bytes, opener) = written(sealed, &payload);
            let error = FrameReader::new(Cursor::new(&bytes[..end]), opener)
                .recv(&Pool::new())
                .expect_err("cut");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{end} bytes");
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_sealed_frame_ends_the_link() {
    let payload = marked(FULL_BYTES + 40);
    for at in (0..100).chain(FULL_BYTES..FULL_BYTES + 60) {
        let (mut bytes, opener) = written(true, &payload);
        bytes[at] ^= 1;
        assert!(
            FrameReader::new(Cursor::new(bytes.as_slice()), opener).recv(&Pool::new()).is_err(),
            "byte {at}"
        );
    }
}

#[test]
fn a_frame_of_four_gigabytes_is_refused_without_a_block() {
    let mut huge = header(0).to_bytes();
    huge[28..].copy_from_slice(&u32::MAX.to_le_bytes());
    let pool = Pool::new();
    let error =
        FrameReader::new(Cursor::new(huge.as_slice()), None).recv(&pool).expect_err("too long");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let (mut sealer, opener) = halves();
    let mut sealed = [0; 2 + 48];
    sealer.seal(&huge, &mut sealed[2..]).expect("room enough");
    sealed[0] = 48;
    let error = FrameReader::new(Cursor::new(sealed.as_slice()), Some(opener))
        .recv(&pool)
        .expect_err("too long");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert_eq!(pool.idle_bytes(), 0, "a block was made");
}

#[test]
fn a_record_that_does_not_fit_its_header_is_refused() {
    let (mut sealer, opener) = halves();
    let mut plain = header(100).to_bytes().to_vec();
    plain.extend_from_slice(&[0; 99]);
    let mut sealed = vec![0; 2 + plain.len() + TAG_BYTES];
    let n = sealer.seal(&plain, &mut sealed[2..]).expect("room enough");
    sealed[..2].copy_from_slice(&(n as u16).to_le_bytes());
    let error = FrameReader::new(Cursor::new(sealed.as_slice()), Some(opener))
        .recv(&Pool::new())
        .expect_err("short");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_wrong_length_is_the_callers_error_and_writes_nothing() {
    let mut writer = FrameWriter::new(Vec::new(), None, Threads::One);
    let error = writer.send(&header(3), b"four").expect_err("refused");
    assert_eq!(
        (error.kind(), writer.into_inner().expect("nothing failed").len()),
        (io::ErrorKind::InvalidInput, 0)
    );
}

/// Returns as many bytes per read as the next entry of `pieces`, cyclically.
struct InPieces<'a> {
    bytes: &'a [u8],
    pieces: std::iter::Cycle<std::slice::Iter<'a, usize>>,
}

impl Source for InPieces<'_> {
    fn read(&mut self, wanted: usize, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        assert!(
            wanted > 0 && into.iter().map(|part| part.len()).sum::<usize>() >= wanted,
            "room for the wanted bytes"
        );
        let piece = self.pieces.next().copied().unwrap_or_default().min(self.bytes.len());
        let read = io::Read::read_vectored(&mut &self.bytes[..piece], into)?;
        self.bytes = &self.bytes[read..];
        Ok(read)
    }
}

#[test]
fn in_whatever_pieces_the_bytes_come_the_frames_are_the_same() {
    let sizes = [
        0,
        5,
        FULL_BYTES,
        AHEAD_BYTES - 60,
        FULL_BYTES - 1,
        1 << 18,
        3 * FULL_BYTES + 9,
        AHEAD_BYTES,
        40_000,
        1 << 18,
    ];
    for sealed in [true, false] {
        for pieces in [
            &[1, 1000][..],
            &[7],
            &[AHEAD_BYTES, 3],
            &[FULL_BYTES + TAG_BYTES],
            &[65_000, 600],
            &[1 << 20],
        ] {
            let (sealer, opener) = halves();
            let mut writer = FrameWriter::new(Vec::new(), sealed.then_some(sealer), Threads::One);
            sizes
                .iter()
                .for_each(|len| writer.send(&header(*len), &marked(*len)).expect("written"));
            let bytes = writer.into_inner().expect("written");
            let from = InPieces { bytes: &bytes, pieces: pieces.iter().cycle() };
            let mut reader = FrameReader::new(from, sealed.then_some(opener));
            for len in sizes {
                let (got, block) = reader.recv(&Pool::new()).expect("whole");
                assert!(
                    got == header(len) && block.bytes() == marked(len),
                    "{len} bytes by {pieces:?}"
                );
            }
            assert_eq!(
                reader.recv(&Pool::new()).expect_err("the end").kind(),
                io::ErrorKind::UnexpectedEof
            );
        }
    }
}

#[test]
fn a_payload_that_is_skipped_takes_no_byte_of_the_next_frame() {
    let sizes = [0, 5, FULL_BYTES, AHEAD_BYTES, 1 << 18, 3 * FULL_BYTES + 9, PAYLOAD_BYTES_MAX];
    for (sealed, piece) in [(true, 7), (true, 70_000), (false, 7), (false, 70_000)] {
        let (sealer, opener) = halves();
        let mut writer = FrameWriter::new(Vec::new(), sealed.then_some(sealer), Threads::One);
        for len in sizes {
            writer.send(&header(len), &marked(len)).expect("written");
            writer.send(&header(100), &marked(100)).expect("written");
        }
        let bytes = writer.into_inner().expect("written");
        let pieces = [piece];
        let from = InPieces { bytes: &bytes, pieces: pieces.iter().cycle() };
        let mut reader = FrameReader::new(from, sealed.then_some(opener));
        for len in sizes {
            assert_eq!(reader.header().expect("authentic"), header(len));
            reader.skip(len).expect("it is whole");
            let (got, block) = reader.recv(&Pool::new()).expect("authentic");
            assert!(got == header(100) && block.bytes() == marked(100), "after {len} bytes");
        }
        assert!(reader.header().is_err(), "the end");
    }
}

#[test]
fn a_payload_that_is_skipped_must_be_whole_and_as_long_as_it_says() {
    for sealed in [true, false] {
        let (bytes, opener) = written(sealed, &marked(FULL_BYTES + 40));
        let mut reader = FrameReader::new(Cursor::new(&bytes[..bytes.len() - 1]), opener);
        reader.header().expect("it is there");
        let error = reader.skip(FULL_BYTES + 40).expect_err("cut");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
    let (bytes, opener) = written(true, &marked(FULL_BYTES + 40));
    let mut reader = FrameReader::new(Cursor::new(&bytes), opener);
    reader.header().expect("it is there");
    assert!(reader.skip(FULL_BYTES + 39).is_err());
}

fn written(sealed: bool, payload: &[u8]) -> (Vec<u8>, Option<Opener>) {
    let (sealer, opener) = halves();
    (written_by(sealed.then_some(sealer), payload), sealed.then_some(opener))
}

fn written_by(sealer: Option<Sealer>, payload: &[u8]) -> Vec<u8> {
    let mut writer = FrameWriter::new(Vec::new(), sealer, Threads::One);
    writer.send(&header(payload.len()), payload).expect("written");
    writer.into_inner().expect("written")
}

#[test]
fn under_pressure_the_frames_are_the_same() {
    let (sealer, opener) = halves();
    let sizes = [
        0,
        5,
        FULL_BYTES,
        FULL_BYTES - 1,
        1 << 18,
        3 * FULL_BYTES + 9,
        PAYLOAD_BYTES_MAX,
        1,
        1 << 18,
    ];
    let mut writer = FrameWriter::new(Vec::new(), Some(sealer), Threads::Two);
    for (n, len) in sizes.into_iter().cycle().take(50).enumerate() {
        if n == 7 {
            writer.press();
        }
        writer.send(&header(len), &marked(len)).expect("written");
    }
    let bytes = writer.into_inner().expect("written");
    let mut reader = FrameReader::new(Cursor::new(bytes.as_slice()), Some(opener));
    for len in sizes.into_iter().cycle().take(50) {
        let (got, block) = reader.recv(&Pool::new()).expect("authentic");
        assert!(got == header(len) && block.bytes() == marked(len), "{len} bytes");
    }
    assert_eq!(
        reader.recv(&Pool::new()).expect_err("the end").kind(),
        io::ErrorKind::UnexpectedEof
    );
}
