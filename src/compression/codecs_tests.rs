//! Properties that all codecs share.

use super::by_id::codec;
use super::codec::Codec;
#[cfg(target_arch = "x86_64")]
use super::feedback::Feedback;
#[cfg(target_arch = "x86_64")]
use super::top_k::TopK;
use crate::protocol::CodecId;
use crate::wire::Malformed;
use proptest::prelude::*;

const CODECS: [CodecId; 5] =
    [CodecId::Bf16, CodecId::F16, CodecId::Int8, CodecId::Int4, CodecId::OneBit];

fn all() -> impl Iterator<Item = (CodecId, &'static dyn Codec)> {
    CODECS.into_iter().map(|id| (id, codec(id).expect("a codec")))
}

fn encoded(codec: &dyn Codec, elements: &[f32]) -> Vec<u8> {
    // The previous contents must not show.
    let mut bytes = vec![0xa5; codec.encoded_len(elements.len())];
    codec.encode(elements, &mut bytes);
    bytes
}

fn decoded(codec: &dyn Codec, bytes: &[u8], elements: usize) -> Result<Vec<f32>, Malformed> {
    let mut out = vec![7.0; elements];
    codec.decode(bytes, &mut out).map(|()| out)
}

/// The maximum error of an element, relative to the largest magnitude in its block of 256.
fn off_by(id: CodecId) -> f32 {
    match id {
        CodecId::Int8 => 1.0 / 254.0,
        // The rotated numbers err by a fourteenth of the largest, which is at most the root of the
        // sum of squares; `int4.rs` and `one_bit.rs` have the bounds of the mean square.
        CodecId::Int4 => 16.0 * 0.76,
        CodecId::OneBit => 16.0,
        CodecId::Bf16 => 1.0 / 256.0,
        _ => 1.0 / 2048.0,
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn what_the_program_has_set_for_its_thread_does_not_show_in_the_bits() {
    let tiny = (1..=300).map(|n| f32::from_bits(n * 7919));
    let elements: Vec<f32> = tiny.chain((0..300).map(|n| 1.0 / (n as f32 + 0.3))).collect();
    let of_all = || -> Vec<(Vec<u8>, Vec<u32>)> {
        let of_one = |codec: &dyn Codec| {
            let bytes = encoded(codec, &elements);
            let back = decoded(codec, &bytes, elements.len()).expect("what it has written");
            let residual = Feedback::after(codec, &elements, Feedback::default());
            let next = residual.contribution(&elements, Vec::new());
            (
                bytes,
                back.iter().chain(residual.residual()).chain(&next).map(|x| x.to_bits()).collect(),
            )
        };
        all().map(|(_, codec)| of_one(codec)).chain([of_one(TopK::keeping(50))]).collect()
    };
    let usual = of_all();
    crate::os::under_every_control_word(|| assert_eq!(of_all(), usual));
}

proptest! {
    #[test]
    fn what_comes_back_is_near(elements in prop::collection::vec(-60_000f32..60_000.0, 0..700)) {
        for (id, codec) in all() {
            let bytes = encoded(codec, &elements);
            let back = decoded(codec, &bytes, elements.len()).expect("what it has written");
            for (block, back) in elements.chunks(256).zip(back.chunks(256)) {
                let largest = block.iter().fold(0f32, |largest, x| largest.max(x.abs()));
                for (x, y) in block.iter().zip(back) {
                    prop_assert!(
                        (x - y).abs() <= largest * off_by(id) * 1.0001,
                        "{id}: {x} came back as {y}"
                    );
                }
            }
        }
    }

    #[test]
    fn any_elements_can_be_encoded_and_decoded(
        bits in prop::collection::vec(any::<u32>(), 0..600),
    ) {
        let elements: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for (id, codec) in all() {
            let bytes = encoded(codec, &elements);
            prop_assert!(decoded(codec, &bytes, elements.len()).is_ok(), "{id}");
            prop_assert_eq!(bytes, encoded(codec, &elements));
        }
    }

    #[test]
    fn any_bytes_are_elements_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        elements in 0..600usize,
    ) {
        for (id, codec) in all() {
            let back = decoded(codec, &bytes, elements);
            prop_assert!(back.is_err() || bytes.len() == codec.encoded_len(elements), "{id}");
        }
    }
}

proptest! {
    #[test]
    fn wide_instructions_give_the_same_bits(
        bits in prop::collection::vec(any::<u32>(), 0..1100),
        magnitudes in prop::collection::vec(-1e6f32..1e6, 0..1100),
    ) {
        let anything: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        // With random bits most blocks contain an infinity or a NaN.
        for (id, codec) in all() {
            for elements in [&anything, &magnitudes] {
                let bytes = encoded(codec, elements);
                let mut plain = vec![0x5a; bytes.len()];
                codec.write(elements, &mut plain);
                prop_assert_eq!(&bytes, &plain, "{} encodes", id);
                let back = decoded(codec, &bytes, elements.len()).expect("what it has written");
                let mut plain = vec![9.0; elements.len()];
                prop_assert_eq!(codec.read(&bytes, &mut plain), Ok(()));
                let bits = |back: &[f32]| back.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&back), bits(&plain), "{} decodes", id);
            }
        }
    }
}

#[test]
fn so_many_bytes() {
    let lens = |id| {
        [0, 1, 255, 256, 257, 1024, 1025]
            .map(|elements| codec(id).expect("a codec").encoded_len(elements))
    };
    assert_eq!(lens(CodecId::F16), [0, 2, 510, 512, 514, 2048, 2050]);
    assert_eq!(lens(CodecId::Int8), [0, 5, 259, 260, 265, 1040, 1045]);
    assert_eq!(lens(CodecId::Int4), [0, 5, 132, 132, 137, 528, 533]);
    assert_eq!(lens(CodecId::OneBit), [0, 5, 36, 36, 41, 144, 149]);
}

#[test]
fn what_cannot_be_told_shows() {
    for id in [CodecId::Int8, CodecId::Int4, CodecId::OneBit] {
        let codec = codec(id).expect("a codec");
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut elements = vec![1.0; 600];
            elements[300] = bad;
            let back =
                decoded(codec, &encoded(codec, &elements), 600).expect("what it has written");
            let is_nan: Vec<bool> = back.iter().map(|x| x.is_nan()).collect();
            assert!((0..600).all(|i| is_nan[i] == (256..512).contains(&i)), "{id} {bad}");
        }
        let back =
            decoded(codec, &encoded(codec, &[1e-35, -1e-40, 0.0]), 3).expect("what it has written");
        assert_eq!(back.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), [0; 3]);
    }
}

#[test]
fn numbers_that_no_encoder_writes_are_refused() {
    let spoil = |id, elements: &[f32], at: usize, byte: u8| {
        let codec = codec(id).expect("a codec");
        let mut bytes = encoded(codec, elements);
        assert!(decoded(codec, &bytes, elements.len()).is_ok());
        bytes[at] = byte;
        decoded(codec, &bytes, elements.len())
    };
    let refused = Err(Malformed::Inconsistent);
    assert_eq!(spoil(CodecId::Int8, &[1.0, 2.0], 5, 0x80), refused, "-128");
    assert_eq!(spoil(CodecId::Int8, &[0.0, 0.0], 5, 1), refused, "a number in a block of zeros");
    assert_eq!(spoil(CodecId::Int8, &[1.0, 2.0], 3, 0xff), refused, "a negative step");
    assert_eq!(spoil(CodecId::Int4, &[1.0, 2.0], 4, 0x81), refused, "-8 above");
    assert_eq!(spoil(CodecId::Int4, &[1.0, 2.0], 4, 0x18), refused, "-8 below");
    assert_eq!(spoil(CodecId::Int4, &[1.0, 2.0, 3.0], 5, 0x17), refused, "a number too many");
    assert_eq!(spoil(CodecId::Int4, &[f32::NAN], 4, 1), refused, "a number in a block of NaNs");
}

#[test]
fn half_precision_is_that_of_the_half_crate() {
    let f16 = codec(CodecId::F16).expect("a codec");
    for bits in (0..=u32::MAX).step_by(65_537 * 3) {
        for bits in [bits, bits & 0xffff_e000 | 0x1000, bits | 0x1fff] {
            let x = f32::from_bits(bits);
            let expected =
                if x.is_nan() { 0x7e00 } else { ::half::f16::from_f32_const(x).to_bits() };
            assert_eq!(encoded(f16, &[x]), expected.to_le_bytes(), "{bits:#x}");
        }
    }
    for half in 0..=u16::MAX {
        let back = decoded(f16, &half.to_le_bytes(), 1).expect("two bytes are one element")[0];
        let x = ::half::f16::from_bits(half).to_f32_const();
        assert!(back.to_bits() == if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }, "{half:#x}");
    }
}
