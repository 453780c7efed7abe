//! The speed at which a member encodes and decodes.

use super::codec_id::{Coarsest, CodecId};
use crate::wire::{Decode, Encode, Malformed, Reader};

/// For each codec, the megabytes of `f32` that one thread of a member encodes and decodes again per
/// second; 0 if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CodingSpeed {
    /// In the order of [`Coarsest::ALL`].
    mbps: [u32; Coarsest::ALL.len()],
}

impl CodingSpeed {
    /// The speeds that `mbps` returns for each codec.
    pub fn new(mbps: impl FnMut(CodecId) -> u32) -> CodingSpeed {
        CodingSpeed { mbps: Coarsest::ALL.map(Coarsest::id).map(mbps) }
    }

    /// The speed for a codec in MB/s; `None` if it is unknown.
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
