//! The decisions of a View's proposer besides its members: the ranks, the engine and the plan.

use super::codec_choice::with_codecs;
use super::heterogeneous::Heterogeneous;
use super::link_map::LinkMap;
use super::network::Network;
use super::planner::{gloo_plan, plan, rank_order};
use crate::identity::MemberId;
use crate::protocol::{EngineChoice, EngineKind, EngineReason, Engines, Plan, Rank, View, ranks};
use std::collections::{BTreeMap, BTreeSet};

/// The ranks, engine and plan of a View.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrangement {
    /// The members in rank order.
    pub order: Vec<MemberId>,
    /// The engine, and the reason for it.
    pub engine: EngineChoice,
    /// The plan, with schedules of this engine.
    pub plan: Plan,
    /// The pairs without a direct link, lower rank first, ascending.
    pub no_direct_link: Vec<(Rank, Rank)>,
}

/// Decides ranks, engine and plan for these members, each with the engines that it offers.
/// `current` is the proposer's View, whose members keep their order. `engine_now` is the engine
/// that calls run on at present, if it is known; a plan change may have replaced the View's engine.
///
/// The engine is, by the first rule that applies:
///
/// - a single member: native;
/// - a member objects to Gloo: native, with the first objection in rank order as the reason;
/// - a pair has no direct link: native, with the first such pair as the reason;
/// - a member requires Gloo: Gloo;
/// - the links are heterogeneous, and the native plan for them is more than a tenth faster than a
///   ring in rank order: native. If that was the reason in the View before and not all links are
///   measured in this one, the reason remains until they are;
/// - otherwise: Gloo.
///
/// The same input gives the same arrangement.
pub fn arrange(
    members: &BTreeMap<MemberId, Engines>,
    current: Option<&View>,
    engine_now: Option<EngineChoice>,
    links: &LinkMap,
) -> Arrangement {
    let was_heterogeneous = engine_now
        .or(current.map(|view| view.engine))
        .is_some_and(|engine| engine.why == EngineReason::Heterogeneous);
    let current: Vec<MemberId> =
        current.map_or_else(Vec::new, |v| v.members.iter().map(|m| m.id).collect());
    let all: BTreeSet<MemberId> = members.keys().copied().collect();
    let order = rank_order(&current, &all);
    let heterogeneous = Heterogeneous::of(&order, links);
    let no_direct_link = pairs_without_direct_link(&order, links);
    let is_heterogeneous = match &heterogeneous {
        Some(heterogeneous) => heterogeneous.is_worth_it(),
        None => was_heterogeneous && order.len() > 2 && !Network::is_known(&order, links),
    };
    let engine = engine(&order, members, &no_direct_link, is_heterogeneous);
    let plan = match (engine.kind, heterogeneous) {
        (EngineKind::Gloo, _) => gloo_plan(order.len()),
        (EngineKind::Native, Some(heterogeneous)) => heterogeneous.plan,
        (EngineKind::Native, None) => plan(&order, links),
    };
    let plan = with_codecs(&order, links, plan);
    Arrangement { order, engine, plan, no_direct_link }
}

fn pairs_without_direct_link(order: &[MemberId], links: &LinkMap) -> Vec<(Rank, Rank)> {
    let ranked = || ranks(order.len()).zip(order);
    let pairs = ranked().flat_map(|a| ranked().filter(move |b| a.0 < b.0).map(move |b| (a, b)));
    let no_direct_link = pairs.filter(|((_, a), (_, b))| !links.direct_both_ways(**a, **b));
    no_direct_link.map(|((a, _), (b, _))| (a, b)).collect()
}

fn engine(
    order: &[MemberId],
    members: &BTreeMap<MemberId, Engines>,
    no_direct_link: &[(Rank, Rank)],
    is_heterogeneous: bool,
) -> EngineChoice {
    let native = |why| EngineChoice { kind: EngineKind::Native, why };
    if order.len() < 2 {
        return native(EngineReason::Alone);
    }
    if let Some(why) = ranks(order.len())
        .zip(order)
        .find_map(|(rank, id)| members.get(id).and_then(|engines| engines.objection(rank)))
    {
        return native(why);
    }
    match no_direct_link.first() {
        Some((a, b)) => native(EngineReason::Indirect(*a, *b)),
        None => {
            let wants = |(_, id): &(Rank, &MemberId)| {
                members.get(id).is_some_and(|engines| engines.wants_gloo())
            };
            match ranks(order.len()).zip(order).find(wants) {
                Some((rank, _)) => {
                    EngineChoice { kind: EngineKind::Gloo, why: EngineReason::Wanted(rank) }
                }
                None if is_heterogeneous => native(EngineReason::Heterogeneous),
                None => EngineChoice { kind: EngineKind::Gloo, why: EngineReason::AllHaveGloo },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::homes::{Home, Lan};
    use super::super::link_map::Path;
    use super::*;
    use crate::protocol::{Algorithm, member_id, view_of};

    fn linked(n: u8) -> LinkMap {
        let mut links = LinkMap::new();
        for (a, b) in (1..=n).flat_map(|a| (1..=n).map(move |b| (a, b))).filter(|(a, b)| a != b) {
            links.observe(member_id(a), member_id(b), Path::unmeasured(100));
        }
        links
    }

    fn of(engines: &[Engines], links: &LinkMap) -> Arrangement {
        let members = (1..).map(member_id).zip(engines.iter().copied()).collect();
        arrange(&members, None, None, links)
    }

    #[test]
    fn gloo_needs_all_members() {
        let all = of(&[Engines::GLOO; 3], &linked(3));
        assert_eq!(
            all.engine,
            EngineChoice { kind: EngineKind::Gloo, why: EngineReason::AllHaveGloo }
        );
        assert!(all.plan.is_for(EngineKind::Gloo) && all.plan.fits(3));
        for (odd, why) in [
            (Engines::NATIVE, EngineReason::WithoutGloo(Rank(1))),
            (Engines::GLOO.declining_gloo(), EngineReason::Declined(Rank(1))),
            (Engines::GLOO.with_failed_gloo(), EngineReason::Failed(Rank(1))),
        ] {
            let mixed = of(&[Engines::GLOO, odd, Engines::GLOO], &linked(3));
            assert_eq!(mixed.engine, EngineChoice { kind: EngineKind::Native, why });
            assert!(mixed.plan.is_for(EngineKind::Native));
        }
        assert_eq!(of(&[Engines::GLOO], &linked(1)).engine.why, EngineReason::Alone);
    }

    #[test]
    fn gloo_needs_a_direct_link_between_all() {
        let mut links = linked(3);
        // The second member stops reporting the third.
        links.set_reach(member_id(2), &BTreeSet::from([member_id(1)]));
        assert_eq!(
            of(&[Engines::GLOO; 3], &links).engine.why,
            EngineReason::Indirect(Rank(1), Rank(2))
        );
    }

    #[test]
    fn a_chain_of_cables_runs_on_the_native_engine_over_a_tree_of_neighbours() {
        let mut links = linked(4);
        for (end, others) in [(1, vec![3, 4]), (2, vec![4]), (3, vec![1]), (4, vec![1, 2])] {
            links.set_relayed(member_id(end), &others.into_iter().map(member_id).collect());
        }
        let chain = of(&[Engines::GLOO; 4], &links);
        assert_eq!(chain.no_direct_link, [(0, 2), (0, 3), (1, 3)].map(|(a, b)| (Rank(a), Rank(b))));
        assert_eq!(
            chain.engine,
            EngineChoice {
                kind: EngineKind::Native,
                why: EngineReason::Indirect(Rank(0), Rank(2))
            }
        );
        assert!(chain.plan.fits(4) && chain.plan.avoids(&chain.no_direct_link), "{:?}", chain.plan);
        assert_eq!(of(&[Engines::GLOO; 4], &linked(4)).no_direct_link, []);
    }

    #[test]
    fn small_buffers_take_few_steps_and_large_ones_the_ring() {
        let plan = of(&[Engines::GLOO; 4], &linked(4)).plan;
        assert_eq!(plan.class_for(1 << 20).algorithm, Algorithm::GlooBcube);
        assert_eq!(plan.class_for((1 << 20) + 1).algorithm, Algorithm::GlooRing);
    }

    #[test]
    fn unequal_rates_make_trees_and_equal_ones_change_nothing() {
        let with = |wired: [u32; 4]| Home::new(&wired.map(Lan::Wired), &[]).link_map(|_| 0);
        for engines in [Engines::NATIVE, Engines::GLOO] {
            let unequal = of(&[engines; 4], &with([940, 940, 940, 200]));
            assert!(
                matches!(unequal.plan.class_for(64 << 20).algorithm, Algorithm::Trees { .. }),
                "{}",
                unequal.plan.reason
            );
            assert!(unequal.plan.fits(4) && unequal.plan.is_for(unequal.engine.kind));
            assert_eq!(
                of(&[engines; 4], &with([940; 4])).engine,
                of(&[engines; 4], &linked(4)).engine
            );
        }
        let slow_one = with([940, 940, 940, 200]);
        assert_eq!(of(&[Engines::GLOO; 4], &slow_one).engine.why, EngineReason::Heterogeneous);
        let wanted = of(
            &[Engines::GLOO, Engines::GLOO, Engines::GLOO.wanting_gloo(), Engines::GLOO],
            &slow_one,
        );
        assert_eq!(
            wanted.engine,
            EngineChoice { kind: EngineKind::Gloo, why: EngineReason::Wanted(Rank(2)) }
        );
        assert!(wanted.plan.is_for(EngineKind::Gloo));
        let native = of(&[Engines::NATIVE; 4], &with([940; 4])).plan;
        assert_eq!(native.classes, of(&[Engines::NATIVE; 4], &linked(4)).plan.classes);
    }

    #[test]
    fn who_has_left_gloo_for_its_links_stays_so_until_those_of_a_newcomer_are_measured() {
        let members = (1..).map(member_id).zip([Engines::GLOO; 4]).collect();
        let before =
            |why| View { engine: EngineChoice { kind: EngineKind::Native, why }, ..view_of(3) };
        let engine =
            |view: &View, links: &LinkMap| arrange(&members, Some(view), None, links).engine.why;
        let (heterogeneous, declined) =
            (before(EngineReason::Heterogeneous), before(EngineReason::Declined(Rank(1))));
        assert_eq!(engine(&heterogeneous, &linked(4)), EngineReason::Heterogeneous);
        assert_eq!(engine(&declined, &linked(4)), EngineReason::AllHaveGloo);
        let even = Home::new(&[Lan::Wired(940); 4], &[]).link_map(|_| 0);
        assert_eq!(engine(&heterogeneous, &even), EngineReason::AllHaveGloo);
        // A plan change alone has moved the View from Gloo to native, or back.
        let on_gloo = EngineChoice { kind: EngineKind::Gloo, why: EngineReason::AllHaveGloo };
        let by_trees = EngineChoice { kind: EngineKind::Native, why: EngineReason::Heterogeneous };
        for (began, now) in [(on_gloo, by_trees), (by_trees, on_gloo)] {
            let view = View { engine: began, ..view_of(3) };
            assert_eq!(arrange(&members, Some(&view), Some(now), &linked(4)).engine, now);
            assert_eq!(arrange(&members, Some(&view), None, &linked(4)).engine, began);
        }
    }
}
