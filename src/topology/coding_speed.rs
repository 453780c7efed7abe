//! Layer: Words.
//!
//! How fast a member encodes and decodes.

use crate::collective::{Coarsest, CodecId};
use crate::wire::{Decode, Encode, Malformed, Reader};

/// Megabytes of `f32` that a member encodes and decodes in a second, each byte once there and once
/// back, by one thread; 0 where that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodingSpeed {
    /// In the order of [`Coarsest::ALL`].
    mbps: [u32; Coarsest::ALL.len()],
}

impl CodingSpeed {
    /// What `mbps` says of each codec.
    pub fn new(mbps: impl FnMut(CodecId) -> u32) -> CodingSpeed {
        CodingSpeed { mbps: Coarsest::ALL.map(Coarsest::id).map(mbps) }
    }

    /// Of a codec; `None` when it is not known.
    pub fn mbps(&self, codec: CodecId) -> Option<u32> {
        let place = Coarsest::ALL.iter().position(|coarsest| coarsest.id() == codec)?;
        Some(self.mbps[place]).filter(|mbps| *mbps > 0)
    }
}

impl Encode for CodingSpeed {
    fn encode(&self, out: &mut Vec<u8>) {
        self.mbps.iter().for_each(|mbps| out.extend_from_slice(&mbps.to_le_bytes()));
    }
}

impl Decode for CodingSpeed {
    fn decode(r: &mut Reader<'_>) -> Result<CodingSpeed, Malformed> {
        Ok(CodingSpeed { mbps: [r.u32()?, r.u32()?, r.u32()?] })
    }
}
