//! Layer: Words.
//!
//! How the members of a View encode a call: by which codec, and who goes without it.

use super::Schedule;
use crate::collective::CodecId;
use crate::view::{Rank, RankSet};
use crate::wire::{Decode, Encode, Malformed, Reader};

/// A codec, and the members that send up their trees without it, as their way is fast.
///
/// What such a member contributes counts as it is, and so does a sum that it passes on. The result
/// comes down encoded to all, as all hold the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Coding {
    codec: CodecId,
    /// Empty where there is no codec to go without.
    plain: RankSet,
}

impl Coding {
    /// Nothing is encoded.
    pub const NONE: Coding = Coding { codec: CodecId::None, plain: RankSet::EMPTY };

    /// By a codec, but of what these members send up.
    pub fn but_for(codec: CodecId, plain: RankSet) -> Coding {
        if codec == CodecId::None { Coding::NONE } else { Coding { codec, plain } }
    }

    /// How everything is encoded that is.
    pub fn codec(self) -> CodecId {
        self.codec
    }

    /// Who sends up what it has.
    pub fn plain(self) -> RankSet {
        self.plain
    }

    /// How what a rank contributes is encoded: all of it, over whichever tree it goes.
    pub fn of(self, rank: Rank) -> CodecId {
        if self.plain.contains(rank) { CodecId::None } else { self.codec }
    }

    /// Whether it is one for this schedule among `size` ranks: only trees have a way up for each
    /// member, and a codec is for somebody.
    pub fn fits(self, schedule: &Schedule, size: usize) -> bool {
        self.plain.is_empty()
            || matches!(schedule, Schedule::Trees { .. }) && self.plain.is_part_of(size)
    }
}

/// For all.
impl From<CodecId> for Coding {
    fn from(codec: CodecId) -> Coding {
        Coding::but_for(codec, RankSet::EMPTY)
    }
}

impl Encode for Coding {
    fn encode(&self, out: &mut Vec<u8>) {
        self.codec.encode(out);
        if self.codec != CodecId::None {
            self.plain.encode(out);
        }
    }
}

impl Decode for Coding {
    fn decode(r: &mut Reader<'_>) -> Result<Coding, Malformed> {
        match CodecId::decode(r)? {
            CodecId::None => Ok(Coding::NONE),
            codec => Ok(Coding { codec, plain: RankSet::decode(r)? }),
        }
    }
}
