//! The plan of a sub-group, which each of its members derives from the View's plan.
//!
//! Nothing of it is on the wire: the same plan, ranks and missing links give the same result on
//! every member. Each size class keeps its algorithm, narrowed to the ranks of the group:
//!
//! | the View's | the group's |
//! | --- | --- |
//! | exchange | exchange |
//! | ring | the ring without the others, in the same order |
//! | trees | each tree contracted: the parent of a rank is its nearest ancestor in the group |
//! | those of Gloo | an exchange and a ring in rank order, on the native engine |
//!
//! Where that needs a direct link that is missing, the class takes the lowest tree of direct links.

use super::planner::classes_by_rank;
use crate::protocol::{
    Algorithm, AutoCodecs, CodecId, Coding, EngineKind, GroupRanks, Plan, PlanClass, Rank, RankSet,
    Tree, TreeShare, ranks,
};

/// The plan of a group, derived from the plan of its View. Its ranks are those of the group.
/// `no_direct_link` has the pairs of the View without a direct link, with the lower rank first.
/// `None` if the direct links do not connect the group, see [`lacks_a_path`].
pub fn plan_of_group(
    plan: &Plan,
    group: GroupRanks,
    no_direct_link: &[(Rank, Rank)],
) -> Option<Plan> {
    let links = Links { group, no_direct_link };
    let tree = Tree::lowest(group.len(), |at| links.of(at))?;
    let classes = if plan.engine() == EngineKind::Gloo || group.len() < 2 {
        let classes = classes_by_rank(group.len()).into_iter();
        classes.map(|class| links.coded(plan.class_for(class.bytes_max).auto, class)).collect()
    } else {
        plan.classes.iter().map(|class| links.narrowed(class, &tree)).collect()
    };
    Some(Plan { revision: plan.revision, reason: reason(plan, group), classes })
}

/// The lowest pair of ranks of a group that its direct links do not connect; `None` if they connect
/// all. Ranks are those of the group.
pub fn lacks_a_path(group: GroupRanks, no_direct_link: &[(Rank, Rank)]) -> Option<(Rank, Rank)> {
    let links = Links { group, no_direct_link };
    let (mut reached, mut next) = (vec![Rank(0)], 0);
    while let Some(at) = reached.get(next).copied() {
        next += 1;
        let more: Vec<Rank> = links.of(at).filter(|other| !reached.contains(other)).collect();
        reached.extend(more);
    }
    ranks(group.len()).find(|rank| !reached.contains(rank)).map(|rank| (Rank(0), rank))
}

/// The direct links within a group.
#[derive(Clone, Copy)]
struct Links<'a> {
    group: GroupRanks,
    no_direct_link: &'a [(Rank, Rank)],
}

impl<'a> Links<'a> {
    fn have(self, a: Rank, b: Rank) -> bool {
        let Some((a, b)) = self.group.in_view(a).zip(self.group.in_view(b)) else { return false };
        !self.no_direct_link.contains(&(a.min(b), a.max(b)))
    }

    /// The ranks that have a direct link to this one.
    fn of(self, at: Rank) -> impl Iterator<Item = Rank> + use<'a> {
        ranks(self.group.len()).filter(move |other| *other != at && self.have(at, *other))
    }

    fn is_mesh(self) -> bool {
        ranks(self.group.len()).all(|at| self.of(at).count() + 1 == self.group.len())
    }

    /// A class of the View's plan for the group; `tree` is a tree of its direct links.
    fn narrowed(self, class: &PlanClass, tree: &Tree) -> PlanClass {
        let in_group = |rank: &Rank| self.group.in_group(*rank);
        let contract = |share: &TreeShare| TreeShare {
            tree: contracted(&share.tree, self.group),
            ppm: share.ppm,
        };
        let algorithm = match &class.algorithm {
            Algorithm::Ring { order } => {
                Algorithm::Ring { order: order.iter().filter_map(in_group).collect() }
            }
            Algorithm::Trees { trees } => {
                Algorithm::Trees { trees: trees.iter().map(contract).collect() }
            }
            other => other.clone(),
        };
        let is_linked = match algorithm.edges() {
            Some(mut edges) => edges.all(|(a, b)| self.have(a, b)),
            None => self.is_mesh(),
        };
        let algorithm = if is_linked { algorithm } else { Algorithm::tree(tree.clone()) };
        // The window suits the rates of all members.
        self.coded(class.auto, PlanClass { algorithm, window_chunks: 0, ..class.clone() })
    }

    /// A class of the group with the codecs of a class of the View. Members without a codec stay so
    /// where the group runs on trees; if none of the group has one, there is none.
    fn coded(self, auto: AutoCodecs, class: PlanClass) -> PlanClass {
        let on_trees = matches!(class.algorithm, Algorithm::Trees { .. });
        let auto = auto.map(|coding| {
            let inside = coding.plain().iter().filter_map(|rank| self.group.in_group(rank));
            let plain: RankSet = inside.collect();
            let has_codec = plain.len() < self.group.len();
            let codec = if has_codec { coding.codec() } else { CodecId::None };
            Coding::but_for(codec, if on_trees { plain } else { RankSet::EMPTY })
        });
        PlanClass { auto, ..class }
    }
}

/// A tree of the View without the ranks outside of the group. If the root is outside, one or more
/// ranks have no ancestor in the group: the lowest of them is the root, and the parent of the
/// others.
fn contracted(tree: &Tree, group: GroupRanks) -> Tree {
    let size = tree.parents.len();
    let above = |rank: Rank| std::iter::successors(tree.parent(rank), |at| tree.parent(*at));
    let nearest = |rank: Rank| above(rank).take(size).find_map(|at| group.in_group(at));
    let mut parents: Vec<Option<Rank>> = group.iter().map(nearest).collect();
    let root = parents.iter().position(Option::is_none).unwrap_or(0);
    for (_, parent) in parents.iter_mut().enumerate().filter(|(rank, _)| *rank != root) {
        parent.get_or_insert(Rank::from(root));
    }
    Tree { parents }
}

fn reason(plan: &Plan, group: GroupRanks) -> String {
    let names: Vec<String> = group.iter().map(|rank| rank.to_string()).collect();
    let names = names.join(", ");
    match plan.engine() {
        EngineKind::Gloo => format!(
            "ranks {names} of the view, on the native engine: small buffers go whole to all, \
             larger ones over a ring in rank order"
        ),
        EngineKind::Native => format!("ranks {names} of the view, by its plan: {}", plan.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::super::planner::gloo_plan;
    use super::*;
    use proptest::prelude::*;

    fn group(ranks: &[u8]) -> GroupRanks {
        GroupRanks::of(ranks.iter().copied().map(Rank).collect())
    }

    fn tree(parents: &[i8]) -> Tree {
        Tree { parents: parents.iter().map(|p| u8::try_from(*p).ok().map(Rank)).collect() }
    }

    /// The only algorithm of a group's plan, for the plan of one algorithm of its View.
    fn narrowed(algorithm: Algorithm, ranks: &[u8], no_direct_link: &[(Rank, Rank)]) -> Algorithm {
        let plan = Plan::of_one(4096, algorithm);
        let of_group = plan_of_group(&plan, group(ranks), no_direct_link).expect("it is connected");
        assert!(of_group.fits(ranks.len()), "{of_group:?}");
        of_group.classes[0].algorithm.clone()
    }

    fn ring(order: &[u8]) -> Algorithm {
        Algorithm::Ring { order: order.iter().copied().map(Rank).collect() }
    }

    #[test]
    fn a_ring_keeps_the_order_of_those_that_are_in() {
        assert_eq!(narrowed(ring(&[4, 0, 3, 1, 2]), &[1, 3, 4], &[]), ring(&[2, 1, 0]));
        assert_eq!(narrowed(Algorithm::OneShot, &[1, 3], &[]), Algorithm::OneShot);
        assert_eq!(narrowed(ring(&[4, 0, 3, 1, 2]), &[2], &[]), Algorithm::OneShot);
    }

    #[test]
    fn a_tree_is_contracted_to_those_that_are_in() {
        // 2 is the parent of 0 and 3, and 0 is the parent of 1.
        let whole = Algorithm::tree(tree(&[2, 0, -1, 2]));
        let of = |ranks: &[u8]| narrowed(whole.clone(), ranks, &[]);
        assert_eq!(of(&[1, 2, 3]), Algorithm::tree(tree(&[1, -1, 1])), "1 is below 2 now");
        assert_eq!(of(&[0, 1, 3]), Algorithm::tree(tree(&[-1, 0, 0])), "without the root");
        assert_eq!(of(&[1, 3]), Algorithm::tree(tree(&[-1, 0])), "neither is above the other");
    }

    #[test]
    fn a_pair_without_a_direct_link_is_avoided_or_named() {
        // A row of four: 0 - 1 - 2 - 3.
        let no_direct_link = [(0, 2), (0, 3), (1, 3)].map(|(a, b)| (Rank(a), Rank(b)));
        let row = Algorithm::tree(tree(&[1, -1, 1, 2]));
        assert_eq!(
            narrowed(row.clone(), &[1, 2, 3], &no_direct_link),
            Algorithm::tree(tree(&[-1, 0, 1]))
        );
        for (ranks, pair) in [(&[0, 2][..], (0, 1)), (&[0, 1, 3], (0, 2)), (&[0, 2, 3], (0, 1))] {
            let pair = (Rank(pair.0), Rank(pair.1));
            assert_eq!(lacks_a_path(group(ranks), &no_direct_link), Some(pair), "{ranks:?}");
            let plan = Plan::of_one(4096, row.clone());
            assert_eq!(plan_of_group(&plan, group(ranks), &no_direct_link), None, "{ranks:?}");
        }
        assert_eq!(lacks_a_path(group(&[0, 1, 2]), &no_direct_link), None);
        // A ring of four whose diagonals are missing: without 3 it is a row.
        let no_direct_link = [(Rank(0), Rank(2)), (Rank(1), Rank(3))];
        let row = Algorithm::tree(tree(&[1, -1, 1]));
        assert_eq!(narrowed(ring(&[0, 1, 2, 3]), &[0, 1, 2], &no_direct_link), row);
    }

    #[test]
    fn the_group_of_a_view_on_gloo_runs_natively() {
        for size in 2..=5 {
            for ranks in [&[0][..], &[0, 1], &[0, 1, 3], &[1, 2, 3, 4]] {
                let plan = gloo_plan(size.max(ranks.len() + 1));
                let of_group = plan_of_group(&plan, group(ranks), &[]).expect("a mesh");
                assert!(of_group.fits(ranks.len()) && of_group.is_for(EngineKind::Native));
            }
        }
    }

    #[test]
    fn members_without_a_codec_stay_so() {
        let coding = |plain: &[u8]| {
            Coding::but_for(CodecId::Bf16, plain.iter().copied().map(Rank).collect())
        };
        let mut plan = Plan::of_one(4096, Algorithm::tree(Tree::star(Rank(1), 4)));
        plan.classes[0].auto = AutoCodecs::new(|_| coding(&[1, 3]));
        let of = |ranks: &[u8]| {
            plan_of_group(&plan, group(ranks), &[]).expect("connected").classes[0].auto
        };
        assert_eq!(of(&[0, 2]), AutoCodecs::new(|_| coding(&[])));
        assert_eq!(of(&[0, 1, 2]), AutoCodecs::new(|_| coding(&[1])));
        assert_eq!(of(&[1, 3]), AutoCodecs::NONE);
    }

    proptest! {
        /// Whatever the tree, the group and the missing links: the plan fits, and avoids these.
        #[test]
        fn every_group_has_a_plan_that_fits_or_no_way(
            tree in crate::protocol::any_tree(7),
            bits in 1u32..127,
            no_direct_link in proptest::collection::vec((0u8..7, 0u8..7), 0..12),
        ) {
            let no_direct_link: Vec<(Rank, Rank)> = no_direct_link
                .into_iter()
                .filter(|(a, b)| a < b)
                .map(|(a, b)| (Rank(a), Rank(b)))
                .collect();
            let group = GroupRanks::of(RankSet::of_bits(bits));
            let plan = Plan::of_one(4096, Algorithm::tree(tree));
            let links = Links { group, no_direct_link: &no_direct_link };
            match plan_of_group(&plan, group, &no_direct_link) {
                Some(plan) => {
                    prop_assert!(
                        plan.fits(group.len()) && lacks_a_path(group, &no_direct_link).is_none()
                    );
                    let edges = plan.classes[0].algorithm.edges();
                    prop_assert!(edges.is_none_or(|mut e| e.all(|(a, b)| links.have(a, b))));
                }
                None => prop_assert!(lacks_a_path(group, &no_direct_link).is_some()),
            }
        }
    }
}
