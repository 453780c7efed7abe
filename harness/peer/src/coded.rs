//! A sequential reference for an encoded sum over a single tree.

use potluck::calls::{Coarsest, CodecId};
use potluck::plan::{Algorithm, FoldOrder, FoldSegment, FoldTree, ViewPlan, reference_sum};
use potluck::{Codec, Rank, ReduceOp};

/// The bit-exact sum of these inputs if `plan` chooses the codec; `None` if the plan does not use a
/// single tree for this size, or no codec.
pub fn coded_sum(plan: &ViewPlan, coarsest: Coarsest, inputs: &[Vec<f32>]) -> Option<Vec<f32>> {
    let bytes = size_of_val(inputs.first()?.as_slice()) as u64;
    let class = plan.classes().into_iter().find(|class| bytes <= class.bytes_max)?;
    let Algorithm::Trees(trees) = class.algorithm else { return None };
    let [tree] = &trees[..] else { return None };
    let of_sums = named(plan.codec(coarsest, bytes))?;
    let of_rank = |rank| named(plan.codec_of(rank, coarsest, bytes));
    let contribution = |(rank, input): (usize, &Vec<f32>)| {
        of_rank(rank).map_or_else(|| input.clone(), |codec| rounded(&codec, input))
    };
    let contributions: Vec<Vec<f32>> = inputs.iter().enumerate().map(contribution).collect();
    let root = tree.parents.iter().position(Option::is_none)?;
    Some(rounded(&of_sums, &sum_at(root, &tree.parents, &contributions, &of_rank)))
}

/// The sum of the contributions of a rank and its subtree, by ascending rank.
fn sum_at(
    rank: usize,
    parents: &[Option<Rank>],
    contributions: &[Vec<f32>],
    of_rank: &impl Fn(usize) -> Option<Codec>,
) -> Vec<f32> {
    let is_below = |above: usize| move |other: &usize| parents[*other] == Some(above.into());
    let part = |other: usize| {
        let has_others = (0..parents.len()).any(|third| is_below(other)(&third));
        match of_rank(other) {
            _ if other == rank => contributions[rank].clone(),
            // A partial sum is encoded before it is sent; a single contribution is encoded already.
            Some(codec) if has_others => {
                rounded(&codec, &sum_at(other, parents, contributions, of_rank))
            }
            _ => sum_at(other, parents, contributions, of_rank),
        }
    };
    let parts: Vec<Vec<f32>> = (0..parents.len())
        .filter(|other| *other == rank || is_below(rank)(other))
        .map(part)
        .collect();
    let tree = FoldTree::Sum((0..parts.len()).map(|place| FoldTree::Leaf(place.into())).collect());
    let order =
        FoldOrder { segments: vec![FoldSegment { elements: 0..contributions[rank].len(), tree }] };
    reference_sum(&order, ReduceOp::Sum, &parts)
}

fn named(id: CodecId) -> Option<Codec> {
    match id {
        CodecId::Bf16 => Some(Codec::bf16()),
        CodecId::Int8 => Some(Codec::int8()),
        CodecId::Int4 => Some(Codec::int4()),
        _ => None,
    }
}

/// The elements after encoding and decoding, as the receiver gets them.
fn rounded(codec: &Codec, elements: &[f32]) -> Vec<f32> {
    let (mut bytes, mut decoded) = (Vec::new(), vec![0.0; elements.len()]);
    codec.encode(elements, &mut bytes);
    codec.decode(&bytes, &mut decoded).map_or_else(|_| Vec::new(), |()| decoded)
}
