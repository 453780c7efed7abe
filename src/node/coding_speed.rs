//! How fast this machine encodes and decodes, measured once per process. Takes less than a
//! millisecond in an optimised build.

use crate::compression::codec;
use crate::protocol::{CodecId, CodingSpeed};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

static SPEED: OnceLock<CodingSpeed> = OnceLock::new();

/// Measures the speed, unless that was done before.
pub(super) fn measure() {
    SPEED.get_or_init(|| CodingSpeed::new(mbps));
}

/// The measured speed, or the default (nothing known) before the measurement.
pub(super) fn known() -> CodingSpeed {
    SPEED.get().copied().unwrap_or_default()
}

fn mbps(id: CodecId) -> u32 {
    let Some(codec) = codec(id) else { return 0 };
    let mut elements: Vec<f32> = (0..ELEMENTS).map(|i| (i % 509) as f32 - 250.3).collect();
    let mut bytes = vec![0; codec.encoded_len(ELEMENTS)];
    let mut once = || {
        let began = Instant::now();
        codec.encode(&elements, &mut bytes);
        // Decodes the bytes that it has just written.
        let _ = codec.decode(&bytes, &mut elements);
        began.elapsed()
    };
    // The processor may be busy for a moment, so the shortest try counts.
    let shortest = (0..TRIES).map(|_| once()).min().unwrap_or(Duration::MAX);
    let bytes_per_us =
        (ELEMENTS * size_of::<f32>()) as f64 / shortest.as_secs_f64().max(1e-7) / 1e6;
    // A cast saturates, and 0 would mean unknown.
    (bytes_per_us as u32).max(1)
}

/// The elements and their encoding fit into the second-level cache, as a chunk does.
const ELEMENTS: usize = 16 * 1024;
const TRIES: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Coarsest;

    #[test]
    fn it_is_measured_once() {
        measure();
        let first = known();
        println!("measured: {first:?}");
        assert!(
            Coarsest::ALL.iter().all(|coarsest| first.mbps(coarsest.id()).is_some()),
            "{first:?}"
        );
        measure();
        assert_eq!(known(), first);
    }
}
