//! Plans for heterogeneous links, against the bound of each home.

use super::super::arrangement::arrange;
use super::super::codec_choice::CodecChoice;
use super::super::fluid::simulated_s;
use super::super::homes::Lan::{No, Radio, Wired};
use super::super::homes::{Home, Lan};
use super::super::link_map::links_of;
use super::*;
use crate::protocol::{
    Coarsest, CodecId, Coding, CodingSpeed, EngineKind, Engines, MEMBERS_MAX, rank_pairs,
};
use crate::wire::Encode;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::Instant;

/// The plan that a proposer makes for a home, on the native engine.
fn plan_for(home: &Home) -> Plan {
    let (members, links) = (home.members(), home.link_map(|_| 0));
    Heterogeneous::of(&members, &links)
        .map_or_else(|| plan(&members, &links), |heterogeneous| heterogeneous.plan)
}

/// 100 MB of f32.
const COUNT: u64 = 25_000_000;
/// The same size in Mbit.
const MBIT: f64 = 800.0;

/// A home, and the shortest possible time in which it can reduce [`COUNT`] elements, in
/// seconds.
struct Case {
    name: &'static str,
    home: Home,
    bound_s: f64,
}

fn case(name: &'static str, machines: &[Lan], cables: &[(u8, u8, u32)], bound_s: f64) -> Case {
    Case { name, home: Home::new(machines, cables), bound_s }
}

/// Gigabit and 10 Gigabit Ethernet carry 940 and 9400 Mbit/s, Thunderbolt 16 Gbit/s.
///
/// The bounds are derived by hand from four limits:
///
/// - Every machine sends its contribution and receives the result, each once through its port.
/// - All `n` machines together send `2 (n - 1)` buffers.
/// - All traffic of a station uses the air.
/// - An island of machines has only its exits.
fn cases() -> Vec<Case> {
    const TB: u32 = 16_000;
    let (wired, radio) = (Wired(940), Radio(600));
    let air = |rates: &[f64]| 2.0 * MBIT * rates.iter().map(|rate| 1.0 / rate).sum::<f64>();
    let wired_4 = [wired; 4];
    let many = [Wired(2350), Wired(2350), wired, wired, wired, radio, Radio(300), Radio(150)];
    let fast_and_slow =
        [Wired(9400), Wired(2350), Wired(2350), Wired(2350), wired, wired, wired, wired];
    vec![
        case("4 wired", &wired_4, &[], 1.5 * MBIT / 940.0),
        case(
            "2 wired, 2 stations",
            &[wired, wired, Radio(300), Radio(100)],
            &[],
            air(&[300.0, 100.0]),
        ),
        case("1 of 4 wired is slow", &[wired, wired, wired, Wired(200)], &[], MBIT / 200.0),
        case(
            "4 stations",
            &[radio, Radio(400), Radio(300), Radio(150)],
            &[],
            air(&[200.0, 400.0, 300.0, 150.0]),
        ),
        case(
            "a cable to a laptop",
            &[wired, radio, Radio(400), Radio(300)],
            &[(0, 1, TB)],
            air(&[400.0, 300.0]),
        ),
        case("a chain of 3 cables", &[No; 3], &[(0, 1, TB), (1, 2, TB)], MBIT / 16e3),
        case("a triangle of cables", &[No; 3], &[(0, 1, TB), (1, 2, TB), (2, 0, TB)], MBIT / 24e3),
        case("8 mixed", &many, &[(2, 5, TB)], air(&[300.0, 150.0])),
        case("A: a chain of 4", &[No; 4], &[(0, 1, TB), (1, 2, TB), (2, 3, TB)], MBIT / 16e3),
        case(
            "B: a ring of 4",
            &[No; 4],
            &[(0, 1, TB), (1, 2, TB), (2, 3, TB), (3, 0, TB)],
            MBIT / 16e3 * 0.75,
        ),
        case(
            "C: 2 pairs, a port each",
            &[wired, No, wired, No],
            &[(0, 1, TB), (2, 3, TB)],
            MBIT / 940.0,
        ),
        case("D: 2 pairs, all wired", &wired_4, &[(0, 1, TB), (2, 3, TB)], MBIT / 940.0 / 2.0),
        case(
            "E: 2 pairs, all stations",
            &[radio; 4],
            &[(0, 1, TB), (2, 3, TB)],
            air(&[600.0, 600.0]),
        ),
        case("F: a chain and a machine", &wired_4, &[(0, 1, TB), (1, 2, TB)], MBIT / 940.0),
        case("G: 10, 2.5 and 1 Gbit/s", &fast_and_slow, &[], MBIT / 940.0),
    ]
}

#[test]
fn no_home_is_more_than_a_twentieth_above_its_bound() {
    for Case { name, home, bound_s } in cases() {
        let plan = plan_for(&home);
        assert!(plan.fits(home.size()), "{name}");
        let seconds = simulated_s(&home, &plan, COUNT);
        println!(
            "{name:25} bound {bound_s:7.3} s  plan {seconds:7.3} s  {:.3}  {}",
            seconds / bound_s,
            plan.reason
        );
        assert!(
            (0.999..=1.05).contains(&(seconds / bound_s)),
            "{name}: {seconds} s of {bound_s} s, {}",
            plan.reason
        );

        let network = Network::of(&home.members(), &home.link_map(|_| 0)).expect("all rates");
        let class = plan.class_for(COUNT * 4);
        let forecast_us = forecast_us(&network, &class.algorithm, COUNT * 4, class.chunk_bytes)
            .expect("direct links");
        assert!(
            (0.99..=1.07).contains(&(forecast_us / 1e6 / seconds)),
            "{name}: {seconds} s forecast as {forecast_us} us"
        );
    }
}

/// Three to nine machines with up to three cables between them, at rates that differ enough to
/// be distinguished.
fn any_home(rng: &mut SmallRng) -> Home {
    let size: u8 = rng.random_range(3..=9);
    let lan = |rng: &mut SmallRng| match rng.random_range(0..2) {
        0 => Wired([940, 940, 2350, 9400][rng.random_range(0..4)]),
        _ => Radio([80, 150, 300, 450, 600][rng.random_range(0..5)]),
    };
    let mut home = Home::new(&(0..size).map(|_| lan(rng)).collect::<Vec<_>>(), &[]);
    for _ in 0..rng.random_range(0..4) {
        let (a, b) = (rng.random_range(0..size), rng.random_range(0..size));
        if a != b && home.path(a, b).is_some_and(|path| path.busy.len() > 1) {
            home.cables.push((a, b, [9400, 16_000, 22_000][rng.random_range(0..3)]));
        }
    }
    home
}

#[test]
fn homes_drawn_at_random_are_near_their_bounds_too() {
    let ratio = |seed| {
        let home = any_home(&mut SmallRng::seed_from_u64(seed));
        let network = Network::of(&home.members(), &home.link_map(|_| 0)).expect("all rates");
        let bound_s = MBIT * 1000.0 / Packing::of(&network).expect("trees").bound_kbps;
        let seconds = simulated_s(&home, &plan_for(&home), COUNT);
        assert!(
            (0.999..=1.15).contains(&(seconds / bound_s)),
            "seed {seed}: {seconds} s of {bound_s} s for {home:?}"
        );
        seconds / bound_s
    };
    let mut ratios: Vec<f64> = (0..60).map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    println!(
        "{} homes: median {:.3}, worst {:.3}",
        ratios.len(),
        ratios[ratios.len() / 2],
        ratios[ratios.len() - 1]
    );
}

#[test]
fn the_same_facts_in_any_order_give_the_same_bytes() {
    let mut rng = SmallRng::seed_from_u64(7);
    let drawn = (0..20).map(|seed| any_home(&mut SmallRng::seed_from_u64(seed)));
    for home in cases().into_iter().map(|case| case.home).chain(drawn.collect::<Vec<_>>()) {
        let members = home.members().into_iter().map(|id| (id, Engines::NATIVE)).collect();
        let bytes = |links: &LinkMap| arrange(&members, None, None, links).plan.to_bytes();
        let first = bytes(&home.link_map(|_| 0));
        for _ in 0..3 {
            assert_eq!(bytes(&home.link_map(|left| rng.random_range(0..left))), first, "{home:?}");
        }
    }
}

#[test]
fn without_a_full_mesh_only_neighbours_talk() {
    for case in cases() {
        let (plan, pairs) = (plan_for(&case.home), case.home.size() * (case.home.size() - 1));
        let direct = |from: Rank, to: Rank| case.home.path(from.0, to.0).is_some();
        let is_mesh = rank_pairs(case.home.size()).filter(|(a, b)| direct(*a, *b)).count() == pairs;
        assert_eq!(
            plan.classes.iter().any(|class| class.algorithm == Algorithm::OneShot),
            is_mesh,
            "{}",
            case.name
        );
        for class in &plan.classes {
            let Algorithm::Trees { trees } = &class.algorithm else { continue };
            let mut edges = trees.iter().flat_map(|share| share.tree.edges());
            assert!(edges.all(|(a, b)| direct(a, b)), "{}", case.name);
        }
    }
}

#[test]
fn as_many_roots_as_members_fit_in_a_sentence() {
    let size = MEMBERS_MAX as u8;
    let cables: Vec<(u8, u8, u32)> =
        (0..size).map(|rank| (rank, (rank + 1) % size, 16_000)).collect();
    let plan = plan_for(&Home::new(&[No; MEMBERS_MAX], &cables));
    assert!(
        plan.fits(MEMBERS_MAX)
            && matches!(
                &plan.class_for(u64::MAX).algorithm,
                Algorithm::Trees { trees } if trees.len() > 10
            )
    );
    assert!(plan.reason.len() <= Plan::REASON_BYTES_MAX, "{}", plan.reason);
}

/// Prints how long the planner takes, see docs/benchmarks.md.
#[test]
fn homes_of_all_sizes_have_a_plan_near_their_bound() {
    for size in [2, 4, 8, 16, MEMBERS_MAX] {
        let mut rng = SmallRng::seed_from_u64(size as u64);
        let rates = [100, 250, 500, 940, 2350];
        let machines: Vec<Lan> = (0..size).map(|_| Wired(rates[rng.random_range(0..5)])).collect();
        let home = Home::new(&machines, &[]);
        let (members, links) = (home.members(), home.link_map(|_| 0));
        let began = Instant::now();
        let plan = best_plan(&members, &links, false);
        let took = began.elapsed();
        let network = Network::of(&members, &links).expect("all rates");
        let bound_s = MBIT * 1000.0 / Packing::of(&network).expect("trees").bound_kbps;
        let times = simulated_s(&home, &plan, COUNT) / bound_s;
        println!("{size} machines: planned in {took:?}, {times:.3} times the bound");
        assert!(plan.fits(size) && times <= 1.15, "{times} for {home:?}: {}", plan.reason);
    }
}

#[test]
fn another_plan_must_be_worth_it() {
    let links = |wired: [u32; 4]| Home::new(&wired.map(Wired), &[]).link_map(|_| 0);
    let members = Home::new(&[No; 4], &[]).members();
    let ring = plan(&members, &links_of(4, |_, _| Some(200)));
    let for_slow = better_plan(&members, &links([940, 940, 940, 200]), &ring, false)
        .expect("a ring waits for the slow one");
    assert!(matches!(for_slow.class_for(64 << 20).algorithm, Algorithm::Trees { .. }));
    assert_eq!(better_plan(&members, &links([940, 940, 940, 200]), &for_slow, false), None);
    assert_eq!(
        better_plan(&members, &links([940, 940, 940, 180]), &for_slow, false),
        None,
        "about as it was"
    );
    assert_eq!(better_plan(&members, &links([940; 4]), &ring, false), None);
    assert_eq!(
        better_plan(&members, &links_of(4, |_, _| Some(200)), &for_slow, false),
        None,
        "nothing is known"
    );
    let again = better_plan(&members, &links([940; 4]), &for_slow, false)
        .expect("a hub has three times as much to do");
    assert_eq!(again.classes, ring.classes);
    let other = better_plan(&members, &links([940, 940, 940, 20]), &for_slow, false);
    assert_eq!(other, None, "the same tree is the best one still");
}

#[test]
fn members_that_have_gloo_leave_it_for_trees_alone_and_come_back() {
    let links = |wired: [u32; 4]| Home::new(&wired.map(Wired), &[]).link_map(|_| 0);
    let members = Home::new(&[No; 4], &[]).members();
    let (even, slow) = (links([940; 4]), links([940, 940, 940, 200]));
    let gloo = best_plan(&members, &even, true);
    assert_eq!((gloo.engine(), gloo.is_for(EngineKind::Gloo)), (EngineKind::Gloo, true));
    assert_eq!(better_plan(&members, &even, &gloo, true), None);
    assert_eq!(
        better_plan(&members, &links([940, 940, 940, 900]), &gloo, true),
        None,
        "not worth it"
    );
    let trees =
        better_plan(&members, &slow, &gloo, true).expect("Gloo's ring waits for the slow one");
    assert_eq!((trees.engine(), &trees), (EngineKind::Native, &best_plan(&members, &slow, false)));
    assert_eq!(better_plan(&members, &slow, &trees, true), None);
    assert_eq!(better_plan(&members, &even, &trees, true), Some(gloo), "as fast as any");
}

#[test]
fn where_there_is_nothing_to_choose_or_to_go_by_there_is_no_such_plan() {
    let heterogeneous = |home: &Home| Heterogeneous::of(&home.members(), &home.link_map(|_| 0));
    assert_eq!(heterogeneous(&Home::new(&[Wired(940), Wired(200)], &[])), None);
    assert_eq!(heterogeneous(&Home::new(&[Wired(940); 4], &[])), None);
    assert_eq!(
        heterogeneous(&Home::new(&[Wired(940), Wired(200), No], &[])),
        None,
        "one is not connected"
    );
    let home = Home::new(&[Wired(940), Wired(940), Wired(200)], &[]);
    assert_eq!(
        Heterogeneous::of(&home.members(), &links_of(3, |_, _| Some(200))),
        None,
        "nothing is measured"
    );
}

#[test]
fn trees_reach_the_bound_that_is_counted_by_hand() {
    for Case { name, home, bound_s } in cases() {
        let network = Network::of(&home.members(), &home.link_map(|_| 0)).expect("all rates");
        let packing = Packing::of(&network).expect("trees");
        let found_s = MBIT * 1000.0 / packing.bound_kbps;
        assert!((found_s / bound_s - 1.0).abs() < 1e-6, "{name}: {found_s} s, by hand {bound_s} s");
    }
}

/// The travel and the coding time of 100 MB in a home, in seconds: without a codec, with int8,
/// and with the plan's choice; and that choice. `None` if the plan has no trees.
fn coded_s(home: &Home) -> Option<([[f64; 2]; 3], Coding)> {
    let (members, mut links) = (home.members(), home.link_map(|_| 0));
    members.iter().for_each(|member| links.set_coding(*member, CodingSpeed::new(|_| 5000)));
    let plan = best_plan(&members, &links, false);
    let class = plan.class_for(COUNT * 4);
    assert!(plan.fits(home.size()) && plan.reason.len() <= Plan::REASON_BYTES_MAX, "{plan:?}");
    let (Algorithm::Trees { .. }, taken) = (&class.algorithm, class.auto.up_to(Coarsest::Int8))
    else {
        return None;
    };
    let choice = CodecChoice::new(&members, &links, &plan).expect("a network");
    let seconds = |coding| {
        choice
            .travel_and_coding_us(class, COUNT * 4, coding)
            .expect("all speeds")
            .map(|us| us / 1e6)
    };
    Some(([Coding::NONE, CodecId::Int8.into(), taken].map(seconds), taken))
}

fn most(seconds: [f64; 2]) -> f64 {
    seconds[0].max(seconds[1])
}

/// Members with fast uplinks skip the codec; this prints the time that it saves, see
/// docs/decisions.md.
#[test]
fn who_goes_without_a_codec_costs_no_time() {
    let mut exact = 0;
    for Case { name, home, .. } in cases() {
        let Some(([plain, all, some], taken)) = coded_s(&home) else { continue };
        let told = |[travel, coding]: [f64; 2]| format!("{travel:.2} s, {coding:.2} s");
        println!(
            "| {name} | {:.2} s | {} | {} | {} without {:?}",
            plain[0],
            told(all),
            told(some),
            taken.codec(),
            taken.plain()
        );
        if taken.codec() == CodecId::Int8 {
            assert!(
                most(some) <= 1.03 * most(all) && some[1] < all[1],
                "{name}: {some:?} after {all:?}"
            );
            exact += taken.plain().len();
        }
    }
    assert!(exact >= 20, "{exact} members go without");
    for seed in 0..60 {
        let home = any_home(&mut SmallRng::seed_from_u64(seed));
        let Some(([plain, all, some], taken)) = coded_s(&home) else { continue };
        match taken.codec() {
            CodecId::Int8 => assert!(
                most(some) <= 1.03 * most(all),
                "seed {seed}: {some:?} after {all:?} for {home:?}"
            ),
            _ => assert!(most(some) <= most(plain), "seed {seed}"),
        }
    }
}

/// Homes with segments. Unless said otherwise, machines at odd ranks are behind the trunk.
fn homes_with_segments() -> Vec<Case> {
    let split = |name, size: u8, port: u32, trunk: u32, is_half: bool, bound_s: f64| {
        let behind: Vec<u8> = (0..size).filter(|rank| rank % 2 == 1).collect();
        let home = Home::new(&vec![Wired(port); usize::from(size)], &[]);
        Case { name, home: home.with_trunk(&behind, trunk, is_half), bound_s }
    };
    // Each side sends at least its own sum over the trunk and receives the result.
    let once = |mbps: f64| MBIT / mbps;
    // The machines together send 2 (n - 1) buffers.
    let ring = |n: f64, mbps: f64| 2.0 * (n - 1.0) / n * MBIT / mbps;
    vec![
        split("2+2 at 1 G, 1 G between", 4, 940, 940, false, ring(4.0, 940.0)),
        split("4+4 at 1 G, 1 G between", 8, 940, 940, false, ring(8.0, 940.0)),
        split("8+8 at 1 G, 1 G between", 16, 940, 940, false, ring(16.0, 940.0)),
        split("2+2 at 2.5 G, 1 G between", 4, 2350, 940, false, once(940.0)),
        split("4+4 at 2.5 G, 1 G between", 8, 2350, 940, false, once(940.0)),
        split("2+2 over a power line", 4, 940, 300, true, 2.0 * once(300.0)),
        split("4+4 over a mesh backhaul", 8, 940, 400, true, 2.0 * once(400.0)),
        split("4 ranks on each of two hosts at 1 G", 8, 20_000, 940, false, once(940.0)),
        split("4 ranks on each of two hosts at 10 G", 8, 20_000, 9400, false, once(9400.0)),
        Case {
            name: "3+1 over a power line",
            home: Home::new(&[Wired(940); 4], &[]).with_trunk(&[3], 300, true),
            bound_s: 2.0 * once(300.0),
        },
        Case {
            name: "2+2+2+2 on four switches in a row",
            home: Home::new(&[Wired(2350); 8], &[])
                .with_trunk(&[0, 4], 940, false)
                .with_trunk(&[0, 4, 1, 5], 940, false)
                .with_trunk(&[3, 7], 470, false),
            bound_s: once(470.0),
        },
    ]
}

#[test]
fn with_segments_no_home_is_more_than_a_tenth_above_its_bound() {
    for Case { name, home, bound_s } in homes_with_segments() {
        let plan = plan_for(&home);
        assert!(plan.fits(home.size()), "{name}");
        let seconds = simulated_s(&home, &plan, COUNT);
        let network = Network::of(&home.members(), &home.link_map(|_| 0)).expect("all rates");
        let class = plan.class_for(COUNT * 4);
        let forecast_us = forecast_us(&network, &class.algorithm, COUNT * 4, class.chunk_bytes)
            .expect("direct links");
        let unknowing = plan_for(&Home { trunks: Vec::new(), ..home.clone() });
        let before = simulated_s(&home, &unknowing, COUNT);
        println!(
            "{name:38} bound {bound_s:7.3} s  plan {seconds:7.3} s  {:.3}, forecast {:.3}; without \
             segments {before:.3} s  {}",
            seconds / bound_s,
            forecast_us / 1e6,
            plan.reason
        );
        assert!((0.999..=1.10).contains(&(seconds / bound_s)), "{name}: {}", plan.reason);
        assert!((0.9..=1.25).contains(&(forecast_us / 1e6 / seconds)), "{name}: {forecast_us}");
    }
}

/// A window covers twice the round trip to the root. Rings and radios have none.
#[test]
fn trees_of_wires_have_a_window_for_their_round_trip() {
    let window = |lan: &[Lan], rtt_us: u32| {
        let home = Home::new(lan, &[]);
        let (members, mut links) = (home.members(), home.link_map(|_| 0));
        for (from, to) in rank_pairs(members.len()) {
            links.round_trip(members[from.index()], members[to.index()], rtt_us, None);
        }
        let plan = Heterogeneous::of(&members, &links).map(|found| found.plan);
        plan.map(|plan| plan.class_for(1 << 20).clone())
    };
    let wired = [Wired(940), Wired(940), Wired(940), Wired(200)];
    for rtt_us in [200, 1_000, 20_000] {
        let class = window(&wired, rtt_us).expect("a plan");
        assert!(matches!(class.algorithm, Algorithm::Trees { .. }));
        // At 200 Mbit/s.
        let window_us = f64::from(class.window_chunks * class.chunk_bytes) * 8.0 / 200.0;
        let (least, most) = (2.0 * f64::from(rtt_us), 2.0 * f64::from(rtt_us) + 20_000.0);
        assert!((least..most).contains(&window_us), "{rtt_us}: {window_us} us");
    }
    let by_air = window(&[Wired(940), Wired(940), Radio(600), Radio(100)], 1_000);
    assert_eq!(by_air.map_or(0, |class| class.window_chunks), 0);
}

#[test]
fn chunks_are_small_where_they_take_long_and_large_where_they_do_not() {
    let chunk_kib = |mbps: [u32; 4], bytes: u64| {
        let plan = plan_for(&Home::new(&mbps.map(Wired), &[]));
        plan.class_for(bytes).chunk_bytes / 1024
    };
    let (slow, fast) = ([940, 940, 940, 200], [9400, 9400, 9400, 4700]);
    for (bytes, least, most) in [(1 << 20, 16, 64), (64 << 20, 64, 256)] {
        let [slow, fast] = [slow, fast].map(|mbps| chunk_kib(mbps, bytes));
        assert!((least..most).contains(&slow) && fast == most, "{bytes}: {slow} and {fast} KiB");
    }
}
