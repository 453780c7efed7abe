//! Surveys of simulated networks.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

#[test]
fn an_exchange_that_is_not_answered_is_given_up_in_the_end() {
    let known =
        |(a, b): Pair| Some(if a.min(b) == Rank(0) && a.max(b) == Rank(1) { 900 } else { 300 });
    let mut survey = Survey::new(3, known);
    let (mut now, mut exchanges) = (0, 0);
    while let Some(probe) = survey.begin(now) {
        match probe {
            Probe::Spare(_) => panic!("nothing is to spare"),
            Probe::Together(pairs) => {
                let is_over = survey.on_rate_together(now, pairs[0], 100);
                assert!(survey.stations().is_empty() && !is_over);
                exchanges += 1;
            }
            Probe::Alone(pair) => assert!(survey.on_rate(now, pair, known(pair).expect("of each"))),
        }
        now += PATIENCE_MS;
        survey.tick(now);
        now = now.max(survey.rest_until);
    }
    assert!(survey.is_over() && survey.stations().is_empty());
    assert_eq!(exchanges, 20, "ten for each of two");
}

/// Completes the survey of a network whose paths carry the rates `kbps`. Returns the single bursts
/// in order, each with whether the survey was good for a plan afterwards.
fn walk(survey: &mut Survey, kbps: impl Fn(Pair) -> u32) -> Vec<(Pair, bool)> {
    let (mut order, mut now) = (Vec::new(), 100_000);
    while !survey.is_over() {
        now = survey.rest_until.max(now + 1000);
        assert!(now < 10_000_000, "it does not end: {:?}", survey.wanted());
        let probe = survey.begin(now).expect("it is not over");
        assert_eq!(survey.begin(now), None, "one at a time");
        match probe {
            Probe::Spare(_) => panic!("nothing is to spare"),
            Probe::Alone(pair) => {
                assert!(survey.on_rate(now, pair, kbps(pair)));
                order.push((pair, survey.is_good_for_a_plan()));
            }
            Probe::Together(pairs) => {
                assert!(!survey.on_rate(now, pairs[0], kbps(pairs[0])), "another one is awaited");
                let is_over: Vec<bool> = pairs
                    .iter()
                    .rev()
                    .map(|pair| survey.on_rate_together(now, *pair, kbps(*pair)))
                    .collect();
                assert_eq!(is_over.iter().position(|over| *over), Some(pairs.len() - 1));
                if let Some((_, is_good)) = order.last_mut() {
                    *is_good = survey.is_good_for_a_plan();
                }
            }
        }
    }
    order
}

fn slower_of(ports: &[u32]) -> impl Fn(Pair) -> u32 + '_ {
    |(a, b)| ports[a.index()].min(ports[b.index()])
}

#[test]
fn every_port_meets_one_that_is_no_slower_before_a_plan_is_made() {
    for ports in [
        vec![940, 940, 300, 100],
        vec![100, 940, 100, 940, 300],
        vec![100; 3],
        (1..=16).map(|n| n * 100).collect(),
    ] {
        let (size, mut survey) = (ports.len(), Survey::new(ports.len(), |_| None));
        let order = walk(&mut survey, slower_of(&ports));
        let good_after = order.iter().position(|(_, good)| *good).expect("good in the end") + 1;
        assert!(good_after <= 3 * size, "{good_after} of {size} members");
        let seen = &order[..good_after];
        for rank in ranks(size) {
            let most = |of: &dyn Fn(Pair) -> bool| {
                seen.iter()
                    .filter(|(pair, _)| of(*pair))
                    .map(|(pair, _)| slower_of(&ports)(*pair))
                    .max()
            };
            // Except for the fastest port, which cannot show more than the second fastest.
            let expected = ports
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != rank.index())
                .map(|(_, kbps)| *kbps)
                .max();
            let expected = Some(ports[rank.index()]).min(expected);
            assert_eq!(
                (most(&|pair| pair.0 == rank), most(&|pair| pair.1 == rank)),
                (expected, expected),
                "{ports:?} {rank}"
            );
        }
        let paths: BTreeSet<Pair> = order.iter().map(|(pair, _)| *pair).collect();
        assert_eq!(paths.len(), size * (size - 1), "in the end each path");
        assert!(
            order.len() <= paths.len() + 4 * (size - 1),
            "some twice more, for what rests on them"
        );
    }
}

#[test]
fn rates_of_an_earlier_run_are_good_for_a_plan_and_measured_again_after_all_others() {
    let ports = [940, 300, 100];
    let rate = slower_of(&ports);
    // One path is new, and one has become slower meanwhile.
    let (new, slower) = ((Rank(2), Rank(1)), (Rank(0), Rank(1)));
    let known = |pair: Pair| (pair != new).then(|| rate(pair));
    let recalled = rank_pairs(3).filter(|pair| *pair != new);
    let mut survey = Survey::new(3, known).with_recalled(recalled);
    assert!(!survey.is_over());
    let now = |pair| if pair == slower { 50 } else { rate(pair) };
    let order = walk(&mut survey, now);
    assert!(order[0] == (new, true), "{order:?}");
    let again: BTreeSet<Pair> = order[1..].iter().map(|(pair, _)| *pair).collect();
    assert_eq!(again, rank_pairs(3).filter(|pair| *pair != new).collect());
    assert_eq!(survey.rates[&slower], 50, "an older rate does not count any more");
}

#[test]
fn a_path_of_an_earlier_run_that_gives_no_rate_is_given_up_and_keeps_the_old_one() {
    let mut survey = Survey::new(2, |_| Some(900)).with_recalled(rank_pairs(2));
    let mut now = 0;
    while let Some(Probe::Alone(pair)) = survey.begin(now) {
        assert!(survey.on_rate(now, pair, 0));
        now = survey.rest_until;
    }
    assert!(survey.is_over() && survey.rates.values().all(|kbps| *kbps == 900));
}

#[test]
fn what_a_busy_processor_hides_is_found_before_a_plan_is_made() {
    let (mut at_the_plan, mut at_the_end) = (0, 0);
    for seed in 0..200 {
        let mut rng = SmallRng::seed_from_u64(seed);
        // Equal ports; half of the bursts show too little.
        let mut survey = Survey::new(4, |_| None).with_known_segments();
        let is_right = |survey: &Survey| survey.rates.values().all(|kbps| !is_less(*kbps, 940));
        let (mut now, mut was_good, mut sent) = (0, false, BTreeMap::<Pair, u32>::new());
        while let Some(Probe::Alone(pair)) = survey.begin(now) {
            let rates_measured = survey.rates_measured();
            *sent.entry(pair).or_default() += 1;
            let kbps = if rng.random_bool(0.5) { 940 } else { rng.random_range(300..940) };
            assert!(
                survey.on_rate(now, pair, kbps) && survey.rates_measured() == rates_measured + 1
            );
            let is_good = survey.is_good_for_a_plan();
            at_the_plan += u32::from(is_good && !was_good && is_right(&survey));
            (now, was_good) = (now + 1, was_good || is_good);
        }
        at_the_end += u32::from(survey.is_over() && is_right(&survey));
        assert!(sent.values().all(|bursts| *bursts <= 6), "seed {seed}: {sent:?}");
    }
    assert!(at_the_plan >= 180 && at_the_end >= 180, "{at_the_plan} and {at_the_end} of 200");
}

#[test]
fn without_a_switch_every_cable_is_measured_and_nothing_else() {
    let no_direct_link = [(Rank(0), Rank(2)), (Rank(0), Rank(3)), (Rank(1), Rank(3))];
    let mut survey = Survey::new(4, |_| None).without(&no_direct_link);
    let order = walk(&mut survey, |_| 940);
    assert_eq!(
        order.iter().map(|(_, good)| *good).collect::<Vec<_>>(),
        [false, false, false, false, false, true]
    );
    assert!(order.iter().all(|((a, b), _)| a.0.abs_diff(b.0) == 1), "{order:?}");
}

#[test]
fn a_survey_ends_whichever_direct_links_and_radios_there_are() {
    for size in [4, 5] {
        let pairs: Vec<Pair> = rank_pairs(size).filter(|(a, b)| a < b).collect();
        for missing in 0..1_u32 << pairs.len() {
            let is_missing = |(at, _): &(usize, &Pair)| missing >> at & 1 == 1;
            let no_direct_link: Vec<Pair> =
                pairs.iter().enumerate().filter(is_missing).map(|(_, pair)| *pair).collect();
            for radios in 0..1_u32 << size {
                let mut survey = Survey::new(size, |_| None).without(&no_direct_link);
                let is_radio = |rank: &Rank| radios >> rank.index() & 1 == 1;
                ranks(size).filter(is_radio).for_each(|rank| survey.is_radio(rank));
                walk(&mut survey, |_| 940);
            }
        }
    }
}

#[test]
fn what_is_known_is_not_measured_again_and_what_is_odd_is() {
    let known = |pair: Pair| (pair != (Rank(1), Rank(2))).then_some(940);
    let mut survey = Survey::new(4, known);
    assert!(!survey.is_good_for_a_plan());
    assert_eq!(walk(&mut survey, |_| 940).len(), 1);
    let mut survey = Survey::new(4, known);
    let order = walk(&mut survey, |_| 300);
    let odd = order.iter().filter(|(pair, _)| *pair == (Rank(1), Rank(2))).count();
    assert_eq!(odd, 3, "{order:?}");
    let times = |pair: Pair| order.iter().filter(|(other, _)| *other == pair).count();
    assert!(rank_pairs(4).all(|pair| times(pair) <= 3), "{order:?}");
}

#[test]
fn what_is_known_of_an_earlier_view_is_good_for_a_plan_though_it_is_tried_again() {
    let slow = (Rank(1), Rank(2));
    let kbps = |pair: Pair| if pair == slow { 500 } else { 940 };
    let mut survey = Survey::new(4, |pair| Some(kbps(pair)));
    assert!(survey.is_good_for_a_plan() && !survey.is_over());
    // The path is doubtful: once it is measured anew, a plan waits until it is trusted.
    assert_eq!(walk(&mut survey, kbps)[..3], [(slow, false), (slow, false), (slow, true)]);
    // A burst without a rate changes nothing.
    let mut survey = Survey::new(4, |pair| Some(kbps(pair)));
    assert_eq!(survey.begin(0), Some(Probe::Alone(slow)));
    assert!(survey.on_rate(1, slow, 0) && survey.is_good_for_a_plan());
    // A new rate replaces the known one, even if it is lower. If calls are held for a plan, the
    // ports are known well enough for one.
    assert_eq!(survey.begin(1 + REST_MS), Some(Probe::Alone(slow)));
    assert!(
        survey.on_rate(300, slow, 100) && survey.knows_the_ports() && !survey.is_good_for_a_plan()
    );
    assert_eq!(survey.rates[&slow], 100);
}

#[test]
fn nobody_waits_for_the_bursts_of_a_radio_to_say_the_same() {
    let mut rng = SmallRng::seed_from_u64(7);
    let mut survey = Survey::new(4, |_| None);
    (1..4).for_each(|station| survey.is_radio(Rank(station)));
    let (mut now, mut bursts) = (0, 0);
    while let Some(probe) = survey.begin(now) {
        now += 1000;
        let Probe::Alone(pair) = probe else {
            survey.tick(now + PATIENCE_MS);
            now = survey.rest_until;
            continue;
        };
        bursts += 1;
        survey.on_rate(now, pair, rng.random_range(20..90));
        assert_eq!(survey.is_good_for_a_plan(), survey.knows_the_ports());
    }
    assert!(bursts <= 3 * 12, "{bursts} bursts");
}

#[test]
fn a_path_that_has_become_another_one_is_measured_again() {
    let mut survey = Survey::new(4, |_| Some(940)).with_known_segments();
    assert!(survey.is_over());
    let pair = (Rank(1), Rank(2));
    survey.again(pair);
    assert!(!survey.is_over() && !survey.is_good_for_a_plan());
    assert_eq!(walk(&mut survey, |_| 940), [(pair, true)]);
}

#[test]
fn what_is_given_up_or_not_answered_is_tried_again_but_not_for_ever() {
    let mut survey = Survey::new(3, |_| None);
    let first = survey.begin(0);
    let Some(Probe::Alone(pair)) = first else { panic!("{first:?} before any path is known") };
    let first = || Some(Probe::Alone(pair));
    assert!(survey.on_rate(10, pair, 0) && !survey.on_rate(10, pair, 0));
    assert_eq!((survey.begin(10), survey.begin(10 + REST_MS)), (None, first()));
    survey.tick(10 + REST_MS + PATIENCE_MS - 1);
    assert_eq!(survey.begin(20_000), None, "still under way");
    survey.tick(20_000);
    assert_eq!(
        (survey.begin(20_000 + REST_MS), survey.begin(20_000 + 2 * REST_MS)),
        (None, first()),
        "twice as long"
    );
    survey.on_rate(20_000, pair, 940);
    survey.leave((Rank(2), Rank(1)));
    let order = walk(&mut survey, |_| 0);
    assert_eq!(order.len(), 4 * Tries::MAX as usize);
}

#[test]
fn calls_that_come_between_for_minutes_do_not_use_up_what_a_path_is_given() {
    let mut survey = Survey::new(2, |_| None);
    let (mut now, mut bursts) = (0, 0);
    while now < 180_000 {
        if let Some(Probe::Alone(pair)) = survey.begin(now) {
            bursts += 1;
            assert!(survey.on_rate(now + 10, pair, 0));
        }
        now += 20;
    }
    assert!((20..Tries::MAX).contains(&bursts) && !survey.knows_the_ports(), "{bursts} bursts");
    // Now calls are held.
    survey.is_undisturbed(now);
    for _ in 0..2 {
        now += REST_MS;
        let Some(Probe::Alone(pair)) = survey.begin(now) else { panic!("it rests for longer") };
        assert!(survey.on_rate(now, pair, 940));
    }
    assert!(survey.knows_the_ports());
}

/// Makes this many spare bursts, each with the rate `kbps`, and returns their paths.
fn spare(survey: &mut Survey, bursts: usize, kbps: impl Fn(Pair) -> u32) -> Vec<Pair> {
    let burst = |number: usize| {
        let now = 10_000_000 + 1000 * number as u64;
        let Some(Probe::Spare(pair)) = survey.begin_spare(now) else { panic!("no burst to spare") };
        assert_eq!((survey.begin_spare(now), survey.begin(now)), (None, None), "one at a time");
        assert!(survey.is_over(), "nothing waits for it");
        assert!(survey.on_rate(now, pair, kbps(pair)));
        pair
    };
    (0..bursts).map(burst).collect()
}

/// A spare burst can show too little. If its rate comes late it must not count as one that was
/// measured for the plan, which would replace the findings of an earlier View.
#[test]
fn a_spare_burst_that_comes_late_takes_nothing_away() {
    let mut survey = Survey::new(2, |_| Some(1_000_000));
    let Some(Probe::Spare(pair)) = survey.begin_spare(0) else { panic!("no burst to spare") };
    survey.tick(PATIENCE_MS);
    let rest = PATIENCE_MS + REST_MS;
    assert!(!survey.on_rate(rest, pair, 400_000), "it is not awaited any more");
    assert_eq!((survey.rates[&pair], survey.tries(pair).most()), (1_000_000, None));
    // One that shows more counts all the same.
    let Some(Probe::Spare(other)) = survey.begin_spare(rest) else { panic!("no burst to spare") };
    survey.tick(rest + PATIENCE_MS);
    assert!(!survey.on_rate(rest + PATIENCE_MS, other, 2_000_000));
    assert!(survey.has_risen() && survey.rates[&other] == 2_000_000);
}

#[test]
fn bursts_to_spare_go_over_each_path_in_turn_the_slowest_first() {
    let ports = [940, 100, 940, 300];
    let mut survey = Survey::new(4, |_| None);
    assert_eq!(survey.begin_spare(0), None, "something is unknown");
    survey.leave((Rank(0), Rank(2)));
    walk(&mut survey, slower_of(&ports));
    let before = survey.rates.clone();
    // A burst may always show too little.
    let first = spare(&mut survey, 11, |pair| slower_of(&ports)(pair) / 2);
    let rates: Vec<u32> = first.iter().map(|pair| before[pair]).collect();
    assert!(rates.is_sorted() && first.iter().collect::<BTreeSet<_>>().len() == 11, "{first:?}");
    assert_eq!(spare(&mut survey, 11, slower_of(&ports)), first, "and again");
    assert_eq!((survey.rates == before, survey.has_risen()), (true, false));
}

#[test]
fn after_a_burst_to_spare_that_tells_nothing_comes_a_rest_and_another_path() {
    let mut survey = Survey::new(3, |(_, to)| Some(if to == Rank(2) { 100 } else { 900 }));
    walk(&mut survey, |(_, to)| if to == Rank(2) { 100 } else { 900 });
    let now = 10_000_000;
    let to_the_slow = |from: u8| Probe::Spare((Rank(from), Rank(2)));
    assert_eq!(survey.begin_spare(now), Some(to_the_slow(0)));
    assert!(survey.on_rate(now, (Rank(0), Rank(2)), 0));
    assert_eq!(survey.begin_spare(now), None);
    assert_eq!(survey.begin_spare(now + REST_MS), Some(to_the_slow(1)));
    survey.tick(now + REST_MS + PATIENCE_MS);
    assert_eq!(survey.begin_spare(now + REST_MS + PATIENCE_MS), None, "nobody answered");
    assert!(survey.begin_spare(now + PATIENCE_MS + 3 * REST_MS).is_some() && !survey.has_risen());
}

#[test]
fn a_path_that_has_become_faster_has_those_beside_it_measured_again() {
    let (before, after) = ([940, 100, 940, 300], [940, 940, 940, 300]);
    let mut survey = Survey::new(4, |_| None);
    walk(&mut survey, slower_of(&before));
    let [risen] = spare(&mut survey, 1, slower_of(&after))[..] else { panic!("one") };
    assert!(survey.has_risen() && !survey.has_risen() && !survey.is_over());
    let again: BTreeSet<Pair> =
        walk(&mut survey, slower_of(&after)).into_iter().map(|(pair, _)| pair).collect();
    let beside = |pair: &Pair| pair.0 == Rank(1) || pair.1 == Rank(1);
    assert!(
        rank_pairs(4)
            .filter(|pair| beside(pair) && *pair != risen)
            .all(|pair| again.contains(&pair)),
        "{again:?}"
    );
    let known: Vec<u32> = rank_pairs(4).map(|pair| survey.rates[&pair]).collect();
    assert_eq!(known, rank_pairs(4).map(slower_of(&after)).collect::<Vec<u32>>());
    assert!(survey.is_good_for_a_plan() && survey.stations().is_empty());
}

/// A burst that is disturbed shows a part of the new rate.
#[test]
fn a_spare_burst_that_shows_too_little_is_repeated_beside_faster_paths() {
    let (before, after) = ([940, 100, 940, 300], [940, 940, 940, 300]);
    let mut survey = Survey::new(4, |_| None);
    walk(&mut survey, slower_of(&before));
    let [risen] = spare(&mut survey, 1, |_| 200)[..] else { panic!("one") };
    assert!(survey.has_risen());
    walk(&mut survey, slower_of(&after));
    assert_eq!(survey.rates[&risen], slower_of(&after)(risen));
    assert_eq!(survey.tries(risen).most(), Some(slower_of(&after)(risen)));
}

/// A port becomes faster when all single bursts are over.
#[test]
fn a_path_that_shows_more_beside_others_is_measured_alone_again() {
    let (before, after) = ([300, 100, 300, 300], [300; 4]);
    let (mut survey, mut now, mut together) = (Survey::new(4, |_| None), 0, BTreeSet::new());
    while !survey.is_over() {
        now = survey.rest_until.max(now + 1000);
        let ports = if together.is_empty() { &before } else { &after };
        match survey.begin(now).expect("it is not over") {
            Probe::Alone(pair) => _ = survey.on_rate(now, pair, slower_of(ports)(pair)),
            Probe::Together(pairs) => {
                together.extend(pairs.iter().copied());
                for pair in pairs {
                    survey.on_rate_together(now, pair, slower_of(&after)(pair));
                }
            }
            Probe::Spare(_) => panic!("nothing is to spare"),
        }
    }
    let slow: Vec<Pair> =
        together.into_iter().filter(|pair| slower_of(&before)(*pair) < 300).collect();
    assert!(!slow.is_empty(), "a slow port is measured beside others");
    for pair in slow {
        assert_eq!((survey.rates[&pair], survey.tries(pair).most()), (300, Some(300)), "{pair:?}");
    }
}

#[test]
fn what_cannot_be_measured_is_left_also_when_something_beside_it_has_risen() {
    let mut survey = Survey::new(3, |_| Some(100)).without(&[(Rank(1), Rank(2))]);
    walk(&mut survey, |_| 100);
    spare(&mut survey, 1, |_| 900);
    assert!(survey.has_risen());
    let again = walk(&mut survey, |_| 900);
    assert!(
        !again.is_empty() && again.iter().all(|(pair, _)| pair.0 == Rank(0) || pair.1 == Rank(0)),
        "{again:?}"
    );
}

#[test]
fn a_radio_that_was_found_gets_no_bursts_to_spare() {
    // One member is wired; the three others share a radio channel.
    let rates = |(a, b): Pair| if a == Rank(0) || b == Rank(0) { 300 } else { 150 };
    let (mut survey, mut now) = (Survey::new(4, |_| None), 0);
    while !survey.is_over() {
        now += 1000;
        match survey.begin(now).expect("it is not over") {
            Probe::Alone(pair) => _ = survey.on_rate(now, pair, rates(pair)),
            Probe::Together(pairs) => {
                for pair in pairs {
                    survey.on_rate_together(now, pair, rates(pair) / 2);
                }
            }
            Probe::Spare(_) => panic!("nothing is to spare"),
        }
    }
    assert!(!survey.stations().is_empty());
    let spared = survey.begin_spare(now + 1000);
    assert!(spared.is_none(), "{spared:?} of {:?}", survey.stations());
}

#[test]
fn a_known_radio_gets_no_bursts_to_spare() {
    let mut survey = Survey::new(3, |_| Some(500));
    [Rank(0), Rank(2)].into_iter().for_each(|rank| survey.is_radio(rank));
    walk(&mut survey, |_| 500);
    assert_eq!(survey.begin_spare(10_000_000), None);
}

/// The rates of a home with a power line between the even and the odd ranks, over which both
/// directions take turns.
fn over_a_power_line(pairs: &[Pair]) -> Vec<u32> {
    let crosses = |pair: &&Pair| pair.0.index() % 2 != pair.1.index() % 2;
    let share = 300 / pairs.iter().filter(crosses).count().max(1) as u32;
    pairs.iter().map(|pair| if crosses(&pair) { share } else { 940 }).collect()
}

#[test]
fn a_half_duplex_segment_is_no_medium_of_the_ports_behind_it() {
    let (mut survey, mut now) = (Survey::new(4, |_| None), 0);
    while !survey.is_over() {
        now = survey.rest_until.max(now + 1000);
        match survey.begin(now).expect("it is not over") {
            Probe::Alone(pair) => _ = survey.on_rate(now, pair, over_a_power_line(&[pair])[0]),
            Probe::Together(pairs) => {
                for (pair, kbps) in pairs.iter().zip(over_a_power_line(&pairs)) {
                    survey.on_rate_together(now, *pair, kbps);
                }
            }
            Probe::Spare(_) => panic!("nothing is to spare"),
        }
    }
    let sides = [[0, 2], [1, 3]].map(|side| side.into_iter().map(Rank).collect());
    assert_eq!(survey.segments(), [Division { sides, kbps: [300; 2], is_half: true }]);
    assert_eq!(survey.stations(), []);
}

#[test]
fn the_air_between_stations_is_no_segment() {
    // Two wired members and two stations of one access point.
    let rate = |(a, b): Pair| match (a.index() < 2, b.index() < 2) {
        (true, true) => 940,
        (false, false) => 150,
        _ => 300,
    };
    let (mut survey, mut now) = (Survey::new(4, |_| None), 0);
    while !survey.is_over() {
        now = survey.rest_until.max(now + 1000);
        match survey.begin(now).expect("it is not over") {
            Probe::Alone(pair) => _ = survey.on_rate(now, pair, rate(pair)),
            Probe::Together(pairs) => {
                let by_air = pairs.iter().filter(|pair| rate(**pair) < 940).count().max(1) as u32;
                for pair in &pairs {
                    let kbps = if rate(*pair) < 940 { rate(*pair) / by_air } else { 940 };
                    survey.on_rate_together(now, *pair, kbps);
                }
            }
            Probe::Spare(_) => panic!("nothing is to spare"),
        }
    }
    assert_eq!(survey.segments(), []);
    assert_eq!(survey.stations().len(), 2);
}
