//! The bits of codecs, compared with those in the repository, see
//! [`collective::golden`](crate::collective::golden).

use super::by_id::codec;
use crate::collective::{compare, digest_of, random_bits};
use crate::memory::bytes_of;
use crate::protocol::CodecId;

/// Lengths in elements: none, some, one block of 256 and its neighbours, several.
const LENGTHS: [usize; 7] = [0, 1, 31, 255, 256, 257, 5000];

/// Numbers of all magnitudes that gradients have, subnormal ones among them.
fn numbers() -> impl Iterator<Item = f32> {
    random_bits(7).map(|bits| {
        let magnitude = 2f32.powi(-((bits >> 32) as i32 & 15));
        match bits & 31 {
            0 => 0.0,
            1 => -0.0,
            2 => f32::from_bits(bits as u32 & 0x007f_ffff),
            _ => (bits as u32 as i32) as f32 / i32::MAX as f32 * magnitude,
        }
    })
}

/// Numbers that no gradient should have.
fn extremes() -> impl Iterator<Item = f32> {
    random_bits(8).map(|bits| f32::from_bits(bits as u32))
}

#[test]
fn codecs_have_the_bits_of_the_golden_file() {
    let codecs = [
        CodecId::Bf16,
        CodecId::F16,
        CodecId::Int8,
        CodecId::Int4,
        CodecId::OneBit,
        CodecId::TopK { kept: 1 },
        CodecId::TopK { kept: 100 },
    ];
    let mut lines = Vec::new();
    for id in codecs {
        let codec = codec(id).expect("a codec");
        for len in LENGTHS {
            for (name, elements) in [
                ("numbers", numbers().take(len).collect::<Vec<f32>>()),
                ("extremes", extremes().take(len).collect()),
            ] {
                let mut encoded = vec![0; codec.encoded_len(len)];
                codec.encode(&elements, &mut encoded);
                let mut decoded = vec![0.0; len];
                codec.decode(&encoded, &mut decoded).expect("what it has written");
                lines.push(format!(
                    "{id} {len} {name} {:032x} {:032x}",
                    digest_of(&encoded),
                    digest_of(bytes_of(&decoded))
                ));
            }
        }
    }
    compare("codecs.txt", include_str!("../../tests/golden/codecs.txt"), &lines);
}
