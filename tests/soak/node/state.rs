//! The state of a lane: how many results it has taken in, and their digest. A sync moves it.

use potluck_harness::history::inputs::{chained, hash};

use super::Pace;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneState {
    pub version: u64,
    pub digest: u64,
}

/// Bytes before the filling.
const HEAD: usize = 24;

impl LaneState {
    /// The state with one more result.
    pub fn with(self, view: &str, k: u64, result: u64) -> LaneState {
        let digest = chained(self.digest, view, k, result);
        LaneState { version: self.version + 1, digest }
    }

    /// The bytes for a sync: of various lengths, all of which depend on the state and on the lane.
    pub fn to_bytes(self, lane: u32, pace: Pace) -> Vec<u8> {
        let len = match self.digest % 16 {
            0 => self.digest >> 8 & 0xf_ffff,
            1..4 => self.digest >> 8 & 0x7fff,
            _ => self.digest >> 8 & 0x1ff,
        } / pace.shorter as u64;
        let mut bytes = Vec::with_capacity(HEAD + len as usize);
        for word in [self.version, self.digest, u64::from(lane)] {
            bytes.extend(word.to_le_bytes());
        }
        let mut filling = self.digest;
        while bytes.len() < HEAD + len as usize {
            filling = filling.rotate_left(9).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.version;
            bytes.extend(filling.to_le_bytes());
        }
        bytes
    }

    /// The state of these bytes. Bytes that are no state of this lane give one that no member has.
    pub fn of_bytes(bytes: &[u8], lane: u32, pace: Pace) -> LaneState {
        let word = |index: usize| {
            let word = bytes.get(8 * index..8 * index + 8).and_then(|word| word.try_into().ok());
            word.map_or(0, u64::from_le_bytes)
        };
        let state = LaneState { version: word(0), digest: word(1) };
        if state.to_bytes(lane, pace) == bytes {
            state
        } else {
            LaneState { version: u64::MAX, digest: hash(bytes) }
        }
    }
}
