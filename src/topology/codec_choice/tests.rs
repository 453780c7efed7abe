//! The codecs that a plan gives to calls that leave the choice to it.

use super::super::arrangement::arrange;
use super::super::homes::{Home, Lan};
use super::super::planner::gloo_plan;
use super::*;
use crate::protocol::{CodingSpeed, Engines};
use crate::wire::assert_codec;
use std::collections::BTreeMap;

/// Wired members with these rates in Mbit/s, each of which encodes and decodes `mbps` MB/s.
fn links_of(wired: &[u32], mbps: u32) -> (Vec<MemberId>, LinkMap) {
    let home = Home::new(&wired.iter().map(|rate| Lan::Wired(*rate)).collect::<Vec<_>>(), &[]);
    let mut links = home.link_map(|_| 0);
    home.members()
        .into_iter()
        .for_each(|member| links.set_coding(member, CodingSpeed::new(|_| mbps)));
    (home.members(), links)
}

fn taken(wired: &[u32], mbps: u32, engines: Engines) -> ([CodecId; 3], Plan) {
    let (members, links) = links_of(wired, mbps);
    let members: BTreeMap<MemberId, Engines> =
        members.into_iter().map(|member| (member, engines)).collect();
    let plan = arrange(&members, None, None, &links).plan;
    (Coarsest::ALL.map(|coarsest| plan.class_for(LARGE_BYTES).auto.up_to(coarsest).codec()), plan)
}

#[test]
fn slow_links_take_the_coarsest_and_fast_ones_none() {
    let all = Coarsest::ALL.map(Coarsest::id);
    for engines in [Engines::NATIVE, Engines::GLOO] {
        for size in [2, 3, 4, 8] {
            for (rate, expected) in [(20, all), (94, all), (940, all), (25_000, [CodecId::None; 3])]
            {
                let (taken, plan) = taken(&vec![rate; size], 5000, engines);
                assert_eq!(taken, expected, "{size} of {rate} Mbit/s: {}", plan.reason);
                assert!(
                    plan.reason.contains("Codec::auto takes")
                        && plan.reason.len() <= Plan::REASON_BYTES_MAX
                );
                assert_codec(&plan);
            }
        }
    }
}

#[test]
fn a_slow_processor_makes_a_codec_not_worth_it() {
    let none = [CodecId::None; 3];
    assert_eq!(taken(&[940; 4], 100, Engines::NATIVE).0, none);
    assert_ne!(taken(&[94; 4], 100, Engines::NATIVE).0, none);
    let (members, mut links) = links_of(&[940; 4], 5000);
    links.set_coding(members[2], CodingSpeed::new(|_| 50));
    let slow = with_codecs(&members, &links, gloo_plan(4));
    assert_eq!(
        slow.class_for(LARGE_BYTES).auto,
        AutoCodecs::NONE,
        "one is enough: {}",
        slow.reason
    );
}

#[test]
fn what_is_not_known_is_not_guessed() {
    let (members, mut links) = links_of(&[94; 4], 5000);
    links.set_coding(members[3], CodingSpeed::default());
    let plan = with_codecs(&members, &links, gloo_plan(4));
    assert!(plan.classes.iter().all(|class| class.auto == AutoCodecs::NONE));
    assert!(plan.reason.contains("not known how fast"), "{}", plan.reason);
    let (members, mut links) = links_of(&[94; 4], 5000);
    for member in &members {
        for other in members.iter().filter(|other| *other != member) {
            links.observe(*member, *other, super::super::link_map::Path::unmeasured(100));
        }
    }
    assert_eq!(with_codecs(&members, &links, gloo_plan(4)), gloo_plan(4));
}

#[test]
fn another_choice_must_be_worth_it() {
    let (members, links) = links_of(&[94; 4], 5000);
    let better =
        with_better_codecs(&members, &links, &gloo_plan(4)).expect("int8 is four times as fast");
    assert_eq!(better.class_for(LARGE_BYTES).auto.up_to(Coarsest::Int8).codec(), CodecId::Int8);
    assert_eq!(with_better_codecs(&members, &links, &better), None);
    let (members, fast) = links_of(&[25_000; 4], 5000);
    let back = with_better_codecs(&members, &fast, &better)
        .expect("the links have become faster than the codec");
    assert_eq!(back.class_for(LARGE_BYTES).auto, AutoCodecs::NONE);
    assert_eq!(back.reason.matches(MARK).count(), 1, "{}", back.reason);
}

#[test]
fn unequal_links_are_told_by_their_slowest() {
    let (taken, plan) = taken(&[9400, 9400, 9400, 94], 5000, Engines::NATIVE);
    assert_eq!(taken, Coarsest::ALL.map(Coarsest::id), "{}", plan.reason);
}

/// The plan of a home whose members encode at this speed, and its coding with int8 for a large
/// buffer.
fn plain(home: &Home, mbps: u32) -> (Plan, Coding) {
    let (members, mut links) = (home.members(), home.link_map(|_| 0));
    members.iter().for_each(|member| links.set_coding(*member, CodingSpeed::new(|_| mbps)));
    let members = members.into_iter().map(|member| (member, Engines::NATIVE)).collect();
    let plan = arrange(&members, None, None, &links).plan;
    let coding = plan.class_for(LARGE_BYTES).auto.up_to(Coarsest::Int8);
    assert!(plan.fits(home.size()));
    assert_codec(&plan);
    (plan, coding)
}

fn set(ranks: &[u8]) -> RankSet {
    ranks.iter().copied().map(Rank).collect()
}

#[test]
fn a_cable_beside_a_radio_goes_without() {
    let home =
        Home::new(&[Lan::Wired(940), Lan::Wired(940), Lan::Radio(300), Lan::Radio(100)], &[]);
    let (plan, coding) = plain(&home, 5000);
    assert_eq!(coding, Coding::but_for(CodecId::Int8, set(&[0, 1])), "{}", plan.reason);
    assert!(plan.reason.contains("takes int8, but as it is from 0 to 1:"), "{}", plan.reason);
    // A slow processor makes skipping worth it too, or makes every codec too slow.
    assert_eq!(plain(&home, 500).1, coding);
    assert_eq!(plain(&home, 20).1, Coding::NONE);
}

#[test]
fn a_cable_that_is_as_slow_as_the_rest_does_not() {
    // Unencoded data would take longer at the port of the rank that adds it.
    let (plan, coding) = plain(
        &Home::new(&[Lan::Wired(940), Lan::Wired(940), Lan::Wired(940), Lan::Wired(200)], &[]),
        5000,
    );
    let Algorithm::Trees { trees } = &plan.class_for(LARGE_BYTES).algorithm else {
        panic!("{plan:?}")
    };
    let root = trees[0].tree.root(4).expect("a root");
    assert_eq!(
        (trees.len(), coding),
        (1, Coding::but_for(CodecId::Int8, set(&[root.0]))),
        "{}",
        plan.reason
    );
    assert!(plan.reason.contains("takes int8: 64 MiB"), "nobody sends as it is: {}", plan.reason);
    // Beside a slower port it does not.
    let (plan, coding) = plain(
        &Home::new(&[Lan::Wired(940), Lan::Wired(940), Lan::Wired(940), Lan::Wired(100)], &[]),
        5000,
    );
    assert_eq!(coding, Coding::but_for(CodecId::Int8, set(&[0, 1, 2])), "{}", plan.reason);
    // One star of equal links: only the root, which has no uplink, skips the codec at no cost.
    let (members, links) = links_of(&[94; 4], 5000);
    let mut plan = Plan::mesh(4);
    plan.classes[0].algorithm = Algorithm::tree(Tree::star(Rank(2), 4));
    let coded = with_codecs(&members, &links, plan);
    assert_eq!(
        coded.classes[0].auto.up_to(Coarsest::Int8),
        Coding::but_for(CodecId::Int8, set(&[2]))
    );
    // Two stars: no rank is the root of both.
    let mut plan = coded;
    let star = |root| TreeShare { tree: Tree::star(Rank(root), 4), ppm: 500_000 };
    plan.classes[0].algorithm = Algorithm::Trees { trees: vec![star(0), star(1)] };
    let coded = with_codecs(&members, &links, plan);
    assert_eq!(coded.classes[0].auto.up_to(Coarsest::Int8), CodecId::Int8.into());
}

#[test]
fn where_all_ways_are_fast_there_is_no_codec() {
    let (plan, coding) = plain(&Home::new(&[Lan::No; 3], &[(0, 1, 25_000), (1, 2, 16_000)]), 5000);
    assert_eq!(coding, Coding::NONE, "{}", plan.reason);
    assert!(plan.reason.contains("takes nothing:"), "{}", plan.reason);
}

#[test]
fn rings_and_gloo_know_no_fast_and_slow_ways() {
    for engines in [Engines::NATIVE, Engines::GLOO] {
        let (_, plan) = taken(&[94; 4], 5000, engines);
        assert!(plan.classes.iter().all(|class| {
            Coarsest::ALL.iter().all(|c| class.auto.up_to(*c).plain().is_empty())
        }));
    }
}

/// Otherwise the other members could not read the plan.
#[test]
fn a_long_reason_is_cut_and_keeps_the_sentence_about_codecs() {
    let behind = |first: u8| (first..32).step_by(3).collect::<Vec<u8>>();
    let home = Home::new(&[Lan::Wired(940); 32], &[]);
    let home = home.with_trunk(&behind(0), 100, true).with_trunk(&behind(1), 100, true);
    let (plan, _) = plain(&home, 5000);
    assert!(plan.reason.contains("Codec::auto"), "{}", plan.reason);
    assert_eq!(plan.reason.len(), Plan::REASON_BYTES_MAX, "{}", plan.reason);
}

#[test]
fn many_ways_fit_in_a_sentence() {
    let mut machines = vec![Lan::Wired(9400); 14];
    machines.extend([Lan::Radio(300), Lan::Radio(100)]);
    let (plan, coding) = plain(&Home::new(&machines, &[]), 5000);
    assert_eq!(coding.plain().len(), 14, "{}", plan.reason);
    assert!(
        plan.reason.len() <= Plan::REASON_BYTES_MAX && plan.reason.contains(" more: 64 MiB"),
        "{}",
        plan.reason
    );
}

/// The knowledge of rank 0 while calls are held for measuring: each port has been measured, but
/// not each path.
#[test]
fn ports_are_enough() {
    let members: Vec<MemberId> = Home::new(&[Lan::No; 4], &[]).members();
    let mut links = LinkMap::new();
    for (from, to) in members.iter().flat_map(|a| members.iter().map(move |b| (*a, *b))) {
        links.observe(from, to, super::super::link_map::Path::unmeasured(200));
    }
    let port = super::super::port::Port::unmeasured(crate::os::InterfaceKind::Ethernet, 0);
    for (a, b, kbps) in [
        (0, 1, 94_065),
        (1, 2, 93_978),
        (2, 3, 93_924),
        (3, 0, 94_148),
        (1, 3, 94_011),
        (0, 3, 93_851),
        (3, 1, 93_798),
        (3, 2, 94_111),
    ] {
        links.rate(members[a], members[b], port, std::num::NonZeroU32::new(kbps).expect("not 0"));
    }
    members.iter().for_each(|member| links.set_coding(*member, CodingSpeed::new(|_| 5000)));
    let plan = super::super::planner::plan(&members, &links);
    let better = with_better_codecs(&members, &links, &plan).expect("int8 is four times as fast");
    assert_eq!(better.class_for(LARGE_BYTES).auto.up_to(Coarsest::Int8).codec(), CodecId::Int8);
}
