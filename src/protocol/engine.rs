//! The engines, a node's offer of them, and the choice for a View.

use super::rank::{MEMBERS_MAX, Rank};
use crate::wire::layout::layout;
use crate::wire::{Decode, Encode, Malformed, Reader};
use derive_more::Display;

/// The engine that transfers and reduces a View's bulk data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
#[non_exhaustive]
pub enum EngineKind {
    /// potluck's own engine.
    #[display("native")]
    Native,
    /// Gloo's collectives over potluck's own links.
    #[display("gloo")]
    Gloo,
}

layout!(tags EngineKind { 1 => Native, 2 => Gloo });

/// The engines that a node offers, as wire bits. Unknown bits are preserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct Engines(pub u8);

layout!(Engines(bits));

/// The engine that a View starts with, and the reason. The View's proposer chooses it and sends it
/// with the View. If all members have Gloo and none requires it, later plans may switch engines,
/// see [`View::runs`](super::view::View::runs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EngineChoice {
    /// The engine.
    pub kind: EngineKind,
    /// The reason.
    pub why: EngineReason,
}

layout!(EngineChoice { kind, why } if |choice| choice.fits(MEMBERS_MAX));

/// Why a View runs on its engine. Ranks are those of the View.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineReason {
    /// Every member has Gloo, and all pairs have direct links.
    AllHaveGloo,
    /// The View has one member.
    Alone,
    /// This member was built without Gloo.
    WithoutGloo(Rank),
    /// This member is configured not to use Gloo.
    Declined(Rank),
    /// Gloo has failed on this member.
    Failed(Rank),
    /// These two members have no direct link.
    Indirect(Rank, Rank),
    /// The links are so heterogeneous that the native engine's plan is more than a tenth faster
    /// than a ring in rank order.
    Heterogeneous,
    /// Every member has Gloo, and this one requires it regardless of the links.
    Wanted(Rank),
}

#[cfg_attr(not(feature = "gloo"), allow(dead_code, reason = "a build without Gloo offers none"))]
impl Engines {
    /// Only potluck's own engine.
    pub const NATIVE: Engines = Engines(1);
    /// Both engines; Gloo is offered.
    pub const GLOO: Engines = Engines(1 | HAS_GLOO);

    /// Gloo is available but must not be used.
    #[must_use]
    pub fn declining_gloo(self) -> Engines {
        Engines(self.0 | DECLINES_GLOO)
    }

    /// Gloo is available and is to be used even if the links suit the native engine better.
    #[must_use]
    pub fn wanting_gloo(self) -> Engines {
        Engines(self.0 | WANTS_GLOO)
    }

    /// Whether the node requires Gloo regardless of the links.
    pub fn wants_gloo(self) -> bool {
        self.0 & WANTS_GLOO != 0
    }

    /// Gloo is available but has failed.
    #[must_use]
    pub fn with_failed_gloo(self) -> Engines {
        Engines(self.0 | GLOO_FAILED)
    }

    /// Whether the node has this engine. A View must not name any other engine to it.
    pub fn can_run(self, kind: EngineKind) -> bool {
        match kind {
            EngineKind::Native => self.0 & Engines::NATIVE.0 != 0,
            EngineKind::Gloo => self.0 & HAS_GLOO != 0,
        }
    }

    /// The reason why the node at this rank prevents Gloo, if it does.
    pub fn objection(self, rank: Rank) -> Option<EngineReason> {
        if !self.can_run(EngineKind::Gloo) {
            Some(EngineReason::WithoutGloo(rank))
        } else if self.0 & DECLINES_GLOO != 0 {
            Some(EngineReason::Declined(rank))
        } else if self.0 & GLOO_FAILED != 0 {
            Some(EngineReason::Failed(rank))
        } else {
            None
        }
    }
}

const HAS_GLOO: u8 = 2;
const DECLINES_GLOO: u8 = 4;
const GLOO_FAILED: u8 = 8;
const WANTS_GLOO: u8 = 16;

impl EngineChoice {
    /// The native engine, for a single member.
    #[cfg(any(test, fuzzing))]
    pub const NATIVE: EngineChoice =
        EngineChoice { kind: EngineKind::Native, why: EngineReason::Alone };

    /// Whether its ranks are below `size` and the reason matches the engine.
    pub fn fits(&self, size: usize) -> bool {
        let known = |rank: Rank| rank.index() < size;
        match self.why {
            EngineReason::AllHaveGloo => self.kind == EngineKind::Gloo,
            EngineReason::Wanted(rank) => self.kind == EngineKind::Gloo && known(rank),
            EngineReason::Alone | EngineReason::Heterogeneous => self.kind == EngineKind::Native,
            EngineReason::WithoutGloo(rank)
            | EngineReason::Declined(rank)
            | EngineReason::Failed(rank) => self.kind == EngineKind::Native && known(rank),
            EngineReason::Indirect(a, b) => self.kind == EngineKind::Native && known(a) && known(b),
        }
    }
}

impl EngineReason {
    /// The reason in a sentence; `name` returns the display name of a rank.
    pub fn sentence(&self, name: impl Fn(Rank) -> String) -> String {
        match *self {
            EngineReason::AllHaveGloo => {
                "every member has Gloo and reaches all others directly".to_owned()
            }
            EngineReason::Alone => "one member has nobody to talk to".to_owned(),
            EngineReason::WithoutGloo(rank) => format!("{} was built without Gloo", name(rank)),
            EngineReason::Declined(rank) => format!("{} was told not to use Gloo", name(rank)),
            EngineReason::Failed(rank) => format!("Gloo has failed on {}", name(rank)),
            EngineReason::Indirect(a, b) => {
                format!("{} and {} have no direct link", name(a), name(b))
            }
            EngineReason::Heterogeneous => {
                "the links differ, and a plan of the native engine suits them better".to_owned()
            }
            EngineReason::Wanted(rank) => {
                format!("every member has Gloo, and {} was told to use it", name(rank))
            }
        }
    }

    fn parts(self) -> [u8; 3] {
        match self {
            EngineReason::AllHaveGloo => [1, 0, 0],
            EngineReason::Alone => [2, 0, 0],
            EngineReason::WithoutGloo(rank) => [3, rank.0, 0],
            EngineReason::Declined(rank) => [4, rank.0, 0],
            EngineReason::Failed(rank) => [5, rank.0, 0],
            EngineReason::Indirect(a, b) => [6, a.0, b.0],
            EngineReason::Heterogeneous => [7, 0, 0],
            EngineReason::Wanted(rank) => [8, rank.0, 0],
        }
    }
}

/// By hand: each reason has three bytes, whether it names two ranks or none.
impl Encode for EngineReason {
    fn encode(&self, out: &mut Vec<u8>) {
        self.parts().encode(out);
    }
}

impl Decode for EngineReason {
    fn decode(r: &mut Reader<'_>) -> Result<EngineReason, Malformed> {
        let parts: [u8; 3] = r.array()?;
        let (a, b) = (Rank(parts[1]), Rank(parts[2]));
        let all = [
            EngineReason::AllHaveGloo,
            EngineReason::Alone,
            EngineReason::WithoutGloo(a),
            EngineReason::Declined(a),
            EngineReason::Failed(a),
            EngineReason::Indirect(a, b),
            EngineReason::Heterogeneous,
            EngineReason::Wanted(a),
        ];
        all.into_iter().find(|why| why.parts() == parts).ok_or(Malformed::UnknownTag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::assert_codec;

    #[test]
    fn every_choice_survives_the_wire() {
        for why in [EngineReason::AllHaveGloo, EngineReason::Wanted(Rank(2))] {
            assert_codec(&EngineChoice { kind: EngineKind::Gloo, why });
        }
        for why in [
            EngineReason::Alone,
            EngineReason::WithoutGloo(Rank(3)),
            EngineReason::Declined(Rank(0)),
            EngineReason::Failed(Rank(15)),
            EngineReason::Indirect(Rank(1), Rank(2)),
            EngineReason::Heterogeneous,
        ] {
            assert_codec(&EngineChoice { kind: EngineKind::Native, why });
        }
    }

    #[test]
    fn a_choice_that_contradicts_its_reason_is_refused() {
        let mut bytes =
            EngineChoice { kind: EngineKind::Gloo, why: EngineReason::AllHaveGloo }.to_bytes();
        bytes[0] = 1;
        assert_eq!(EngineChoice::from_bytes(&bytes), Err(Malformed::Inconsistent));
        assert_eq!(
            EngineChoice::from_bytes(&[1, 3, MEMBERS_MAX as u8, 0]),
            Err(Malformed::Inconsistent),
            "no such rank"
        );
    }

    #[test]
    fn the_first_thing_that_keeps_a_node_from_gloo_is_named() {
        let rank = Rank(2);
        assert_eq!(Engines::GLOO.objection(rank), None);
        assert_eq!(Engines::NATIVE.objection(rank), Some(EngineReason::WithoutGloo(rank)));
        assert_eq!(
            Engines::GLOO.declining_gloo().objection(rank),
            Some(EngineReason::Declined(rank))
        );
        assert_eq!(
            Engines::GLOO.with_failed_gloo().objection(rank),
            Some(EngineReason::Failed(rank))
        );
    }
}
