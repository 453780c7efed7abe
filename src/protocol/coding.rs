//! How a call is encoded: by which codec, and which members skip it.

use super::algorithm::Algorithm;
use super::codec_id::CodecId;
use super::rank::Rank;
use super::rank_set::RankSet;
use crate::wire::{Decode, Encode, Malformed, Reader};

/// A codec, and the members that send up their trees without it because their uplinks are fast.
///
/// Such a member sends its contribution, or the partial sum that it forwards, unencoded and
/// therefore exactly. The result comes down encoded to all members, so that all hold the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Coding {
    codec: CodecId,
    /// The members that skip the codec; empty if there is no codec.
    plain: RankSet,
}

impl Coding {
    /// Nothing is encoded.
    pub const NONE: Coding = Coding { codec: CodecId::None, plain: RankSet::EMPTY };

    /// Encodes with `codec`, except for the data that the members in `plain` send up.
    pub fn but_for(codec: CodecId, plain: RankSet) -> Coding {
        if codec == CodecId::None { Coding::NONE } else { Coding { codec, plain } }
    }

    /// The codec of all encoded data.
    pub fn codec(self) -> CodecId {
        self.codec
    }

    /// The members that send up unencoded data.
    pub fn plain(self) -> RankSet {
        self.plain
    }

    /// The codec of a rank's contribution, which is the same on all trees.
    pub fn of(self, rank: Rank) -> CodecId {
        if self.plain.contains(rank) { CodecId::None } else { self.codec }
    }

    /// Whether this coding is valid for this schedule among `size` ranks. Only trees have a
    /// separate uplink for each member, and at least one member must use the codec.
    pub fn fits(self, algorithm: &Algorithm, size: usize) -> bool {
        self.plain.is_empty()
            || matches!(algorithm, Algorithm::Trees { .. }) && self.plain.is_part_of(size)
    }
}

/// The codec for all members.
impl From<CodecId> for Coding {
    fn from(codec: CodecId) -> Coding {
        Coding::but_for(codec, RankSet::EMPTY)
    }
}

/// By hand: ranks follow a codec, and nothing follows none.
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
