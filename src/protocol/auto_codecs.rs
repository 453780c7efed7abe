//! The codecs that a plan selects for calls that leave the choice to it.

use super::algorithm::Algorithm;
use super::codec_id::Coarsest;
use super::coding::Coding;
use crate::wire::{Decode, Encode, Malformed, Reader};

/// The codecs for buffers of one size class: one choice for each coarsest codec that a call may
/// allow. The member that makes the plan chooses them, so they are the same for all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AutoCodecs {
    /// In the order of [`Coarsest::ALL`]. Each is no codec, or one that is at most as coarse as its
    /// position allows.
    taken: [Coding; Coarsest::ALL.len()],
}

impl AutoCodecs {
    /// No codecs: the links are unknown, or a codec would gain too little.
    pub const NONE: AutoCodecs = AutoCodecs { taken: [Coding::NONE; Coarsest::ALL.len()] };

    /// The choices that `taken` returns for each coarsest codec. A codec that is coarser than
    /// allowed is replaced by none.
    pub fn new<C: Into<Coding>>(taken: impl Fn(Coarsest) -> C) -> AutoCodecs {
        let allowed =
            |coarsest| Some(taken(coarsest).into()).filter(|coding| is_allowed(*coding, coarsest));
        AutoCodecs {
            taken: Coarsest::ALL.map(|coarsest| allowed(coarsest).unwrap_or(Coding::NONE)),
        }
    }

    /// The choice for calls that allow codecs up to `coarsest`.
    pub fn up_to(&self, coarsest: Coarsest) -> Coding {
        let place = Coarsest::ALL.iter().position(|other| *other == coarsest);
        place.map_or(Coding::NONE, |place| self.taken[place])
    }

    /// The same choices, each changed by `change`.
    pub fn map(&self, change: impl Fn(Coding) -> Coding) -> AutoCodecs {
        AutoCodecs::new(|coarsest| change(self.up_to(coarsest)))
    }

    /// Whether all choices are valid for this schedule among `size` ranks.
    pub(super) fn fits(&self, algorithm: &Algorithm, size: usize) -> bool {
        self.taken.iter().all(|coding| coding.fits(algorithm, size))
    }
}

fn is_allowed(coding: Coding, coarsest: Coarsest) -> bool {
    coding == Coding::NONE
        || Coarsest::ALL.iter().any(|finer| *finer <= coarsest && finer.id() == coding.codec())
}

/// By hand: the allowed values depend on the position.
impl Encode for AutoCodecs {
    fn encode(&self, out: &mut Vec<u8>) {
        self.taken.iter().for_each(|coding| coding.encode(out));
    }
}

impl Decode for AutoCodecs {
    fn decode(r: &mut Reader<'_>) -> Result<AutoCodecs, Malformed> {
        let mut taken = [Coding::NONE; Coarsest::ALL.len()];
        for (coding, coarsest) in taken.iter_mut().zip(Coarsest::ALL) {
            *coding = Some(Coding::decode(r)?)
                .filter(|coding| is_allowed(*coding, coarsest))
                .ok_or(Malformed::Inconsistent)?;
        }
        Ok(AutoCodecs { taken })
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Plan, PlanClass};
    use super::*;
    use crate::memory::DType;
    use crate::protocol::{Call, CallKind, CodecId, Rank, RankSet, ReduceOp, Tree};
    use crate::wire::assert_codec;
    use proptest::prelude::*;

    fn sum(codec: CodecId, count: u64) -> Call {
        Call { codec, ..Call::new(CallKind::AllReduce(ReduceOp::Sum), DType::F32, count) }
    }

    #[test]
    fn only_what_is_allowed_is_taken() {
        for all in [
            CodecId::None,
            CodecId::Bf16,
            CodecId::Int8,
            CodecId::Int4,
            CodecId::F16,
            CodecId::OneBit,
            CodecId::TopK { kept: 3 },
        ] {
            let auto = AutoCodecs::new(|_| all);
            assert_codec(&auto);
            let taken = Coarsest::ALL.map(|coarsest| auto.up_to(coarsest).codec());
            let expected = match all {
                CodecId::Bf16 => [CodecId::Bf16; 3],
                CodecId::Int8 => [CodecId::None, CodecId::Int8, CodecId::Int8],
                CodecId::Int4 => [CodecId::None, CodecId::None, CodecId::Int4],
                _ => [CodecId::None; 3],
            };
            assert_eq!(taken, expected);
        }
        // F16 and one bit, which are not allowed at all, and int8 where bf16 is the coarsest.
        for codecs in [[2, 0, 0], [3, 0, 0], [0, 4, 0], [7, 0, 0], [0, 0, 9]] {
            let bytes = [&codecs[..], &RankSet::EMPTY.to_bytes()].concat();
            assert_eq!(AutoCodecs::from_bytes(&bytes), Err(Malformed::Inconsistent));
        }
    }

    #[test]
    fn a_call_that_leaves_it_to_the_plan_is_coded_by_its_size() {
        let mut plan = Plan::mesh(2);
        let small = PlanClass { bytes_max: 4000, ..plan.classes[0].clone() };
        plan.classes.insert(0, small);
        plan.classes[1].auto = AutoCodecs::new(Coarsest::id);
        let coded = |codec, count| plan.coding(&sum(codec, count)).codec();
        for coarsest in Coarsest::ALL {
            assert_eq!(coded(CodecId::Auto(coarsest), 1000), CodecId::None);
            assert_eq!(coded(CodecId::Auto(coarsest), 1001), coarsest.id());
        }
        assert_eq!(coded(CodecId::F16, 1001), CodecId::F16);
    }

    /// A plan with one star of three ranks, in which these ranks skip the codec.
    fn trees(plain: &[u8]) -> Plan {
        let mut plan = Plan::mesh(3);
        plan.classes[0].algorithm = Algorithm::tree(Tree::star(Rank(1), 3));
        plan.classes[0].auto = AutoCodecs::new(|coarsest| {
            Coding::but_for(coarsest.id(), plain.iter().copied().map(Rank).collect())
        });
        plan
    }

    #[test]
    fn who_goes_without_a_codec_is_told() {
        let plan = trees(&[0, 1]);
        assert_codec(&plan);
        assert!(plan.fits(3));
        let coding = |codec| plan.coding(&sum(codec, 9));
        let of = |codec| [0, 1, 2].map(|rank| coding(codec).of(Rank(rank)));
        assert_eq!(
            of(CodecId::Auto(Coarsest::Int8)),
            [CodecId::None, CodecId::None, CodecId::Int8]
        );
        assert_eq!(
            of(CodecId::Int8),
            [CodecId::Int8; 3],
            "a codec that is named applies everywhere"
        );
        // Without a codec no rank can skip it.
        assert_eq!(
            Coding::but_for(CodecId::None, coding(CodecId::Auto(Coarsest::Int8)).plain()),
            Coding::NONE
        );
    }

    #[test]
    fn who_goes_without_a_codec_is_a_part_of_a_tree() {
        assert!(trees(&[]).fits(3) && trees(&[2]).fits(3));
        assert!(!trees(&[3]).fits(3), "no rank of this View");
        assert!(!trees(&[0, 1, 2]).fits(3), "a codec for nobody");
        for algorithm in [
            Algorithm::OneShot,
            Algorithm::Ring { order: [0, 1, 2].map(Rank).into() },
            Algorithm::GlooRing,
        ] {
            let mut plan = trees(&[0]);
            plan.classes[0].algorithm = algorithm;
            assert!(!plan.fits(3), "a member has no way of its own there");
            plan.classes[0].auto = AutoCodecs::new(Coarsest::id);
            assert!(plan.fits(3));
        }
    }

    proptest! {
        /// Decoded bytes are either refused or encode to the same bytes again, and their sets of
        /// ranks are checked against the schedule.
        #[test]
        fn a_wrong_part_is_refused(
            plain: [u32; 3], taken in 0usize..8, place: prop::sample::Index, byte: u8,
        ) {
            let part = |place: usize| RankSet::of_bits(plain[place]);
            let coding = |coarsest: Coarsest| {
                let place = Coarsest::ALL.iter().position(|other| *other == coarsest).unwrap_or(0);
                let is_taken = taken & 1 << place != 0;
                if is_taken { Coding::but_for(coarsest.id(), part(place)) } else { Coding::NONE }
            };
            let mut bytes = AutoCodecs::new(coding).to_bytes();
            let place = place.index(bytes.len());
            bytes[place] = byte;
            if let Ok(auto) = AutoCodecs::from_bytes(&bytes) {
                prop_assert_eq!(auto.to_bytes(), bytes);
                let mut plan = trees(&[]);
                plan.classes[0].auto = auto;
                let is_part =
                    |ranks: Vec<usize>| ranks.len() < 3 && ranks.iter().all(|rank| *rank < 3);
                let parts = Coarsest::ALL.map(|coarsest| {
                    auto.up_to(coarsest).plain().iter().map(Rank::index).collect()
                });
                prop_assert_eq!(plan.fits(3), parts.into_iter().all(is_part));
            }
        }
    }
}
