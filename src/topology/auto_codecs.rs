//! Layer: Words.
//!
//! Which codec a plan takes for calls that leave the choice to it.

use super::Plan;
use crate::collective::{Call, Coarsest, CodecId};
use crate::wire::{Decode, Encode, Malformed, Reader};

/// For buffers of one size class: what is taken where codecs up to a coarsest one are allowed. Chosen by whoever made the plan, so
/// that it is the same for all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AutoCodecs {
    /// In the order of [`Coarsest::ALL`]; each is nothing or one of the codecs up to that.
    taken: [CodecId; Coarsest::ALL.len()],
}

impl AutoCodecs {
    /// None at all: nothing is known of the links, or it gains too little.
    pub const NONE: AutoCodecs = AutoCodecs { taken: [CodecId::None; Coarsest::ALL.len()] };

    /// What `taken` says for each coarsest one. What that one does not allow is left out.
    pub fn new(taken: impl Fn(Coarsest) -> CodecId) -> AutoCodecs {
        let allowed = |coarsest| Some(taken(coarsest)).filter(|id| is_allowed(*id, coarsest));
        AutoCodecs { taken: Coarsest::ALL.map(|coarsest| allowed(coarsest).unwrap_or(CodecId::None)) }
    }

    /// The codec where those up to `coarsest` are allowed.
    pub fn up_to(&self, coarsest: Coarsest) -> CodecId {
        let place = Coarsest::ALL.iter().position(|other| *other == coarsest);
        place.map_or(CodecId::None, |place| self.taken[place])
    }
}

impl Plan {
    /// The same call with the codec that it is carried out with: what the plan says where the call leaves it to that.
    pub fn coded(&self, call: &Call) -> Call {
        let CodecId::Auto(coarsest) = call.codec else { return *call };
        let bytes = call.count.saturating_mul(call.dtype.bytes() as u64);
        Call { codec: self.class_for(bytes).auto.up_to(coarsest), ..*call }
    }
}

fn is_allowed(id: CodecId, coarsest: Coarsest) -> bool {
    id == CodecId::None || Coarsest::ALL.iter().any(|finer| *finer <= coarsest && finer.id() == id)
}

impl Encode for AutoCodecs {
    fn encode(&self, out: &mut Vec<u8>) {
        self.taken.iter().for_each(|id| id.encode(out));
    }
}

impl Decode for AutoCodecs {
    fn decode(r: &mut Reader<'_>) -> Result<AutoCodecs, Malformed> {
        let mut taken = [CodecId::None; Coarsest::ALL.len()];
        for (id, coarsest) in taken.iter_mut().zip(Coarsest::ALL) {
            *id = Some(CodecId::decode(r)?).filter(|id| is_allowed(*id, coarsest)).ok_or(Malformed::Inconsistent)?;
        }
        Ok(AutoCodecs { taken })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{DType, Kind, Mode, ReduceOp};
    use crate::wire::testing::assert_codec;

    #[test]
    fn only_what_is_allowed_is_taken() {
        for all in [CodecId::None, CodecId::Bf16, CodecId::Int8, CodecId::Int4, CodecId::F16, CodecId::TopK { kept: 3 }] {
            let auto = AutoCodecs::new(|_| all);
            assert_codec(&auto);
            let taken = Coarsest::ALL.map(|coarsest| auto.up_to(coarsest));
            let expected = match all {
                CodecId::Bf16 => [CodecId::Bf16; 3],
                CodecId::Int8 => [CodecId::None, CodecId::Int8, CodecId::Int8],
                CodecId::Int4 => [CodecId::None, CodecId::None, CodecId::Int4],
                _ => [CodecId::None; 3],
            };
            assert_eq!(taken, expected);
        }
        // Half precision, and int8 where bf16 is the coarsest.
        for bytes in [[2, 0, 0], [3, 0, 0], [0, 4, 0], [7, 0, 0]] {
            assert_eq!(AutoCodecs::from_bytes(&bytes), Err(Malformed::Inconsistent));
        }
    }

    #[test]
    fn a_call_that_leaves_it_to_the_plan_is_coded_by_its_size() {
        let mut plan = Plan::mesh(2);
        let small = crate::topology::PlanClass { bytes_max: 4000, ..plan.classes[0].clone() };
        plan.classes.insert(0, small);
        plan.classes[1].auto = AutoCodecs::new(Coarsest::id);
        let call =
            |codec, count| Call { kind: Kind::AllReduce(ReduceOp::Sum), dtype: DType::F32, count, codec, mode: Mode::PerOp };
        let coded = |codec, count| plan.coded(&call(codec, count)).codec;
        for coarsest in Coarsest::ALL {
            assert_eq!(coded(CodecId::Auto(coarsest), 1000), CodecId::None);
            assert_eq!(coded(CodecId::Auto(coarsest), 1001), coarsest.id());
        }
        assert_eq!(coded(CodecId::F16, 1001), CodecId::F16);
    }
}
