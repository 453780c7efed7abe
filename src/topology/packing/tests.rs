//! Packings of trees, against the bound of their linear program and a closed form.

use super::super::homes::{Home, Lan};
use super::super::network::Edge;
use super::*;
use crate::protocol::MEMBERS_MAX;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::num::NonZeroU32;

const SEEDS: u64 = 1000;

/// A random home of `size` machines, all of them connected.
fn any_home(size: u8, rng: &mut SmallRng) -> Home {
    let lan = |rng: &mut SmallRng| match rng.random_range(0..5) {
        0 | 1 => Lan::Wired([100, 940, 940, 2350, 9400][rng.random_range(0..5)]),
        2 | 3 => Lan::Radio(rng.random_range(20..900)),
        _ => Lan::No,
    };
    let mut home = Home::new(&(0..size).map(|_| lan(rng)).collect::<Vec<_>>(), &[]);
    for _ in 0..rng.random_range(0..=size) {
        add_cable(&mut home, rng.random_range(0..size), rng.random_range(0..size), rng);
    }
    // A machine without a network gets a cable to a machine before it, and the first machine
    // gets one to a machine in the network.
    for rank in
        (1..size).filter(|rank| home.machines[usize::from(*rank)] == Lan::No).collect::<Vec<_>>()
    {
        add_cable(&mut home, rank, rng.random_range(0..rank), rng);
    }
    let in_network = home.machines.iter().position(|lan| *lan != Lan::No).unwrap_or(0);
    add_cable(&mut home, 0, in_network as u8, rng);
    home
}

fn add_cable(home: &mut Home, a: u8, b: u8, rng: &mut SmallRng) {
    if a != b && !home.cables.iter().any(|(c, d, _)| [(a, b), (b, a)].contains(&(*c, *d))) {
        home.cables.push((a, b, [940, 9000, 16_000, 22_000][rng.random_range(0..4)]));
    }
}

/// A random network of any size and shape. In half of them ports and paths carry less in one
/// direction.
fn any_network(seed: u64) -> Network {
    let mut rng = SmallRng::seed_from_u64(seed);
    let size = rng.random_range(2..=16);
    let home = any_home(size, &mut rng);
    let mut links = home.link_map(|_| 0);
    let members = home.members();
    let pairs = members.iter().flat_map(|a| members.iter().map(move |b| (*a, *b)));
    for (from, to) in pairs.filter(|_| seed % 2 == 1) {
        let Some(mut path) = links.path(from, to) else { continue };
        path.port.receive_kbps = NonZeroU32::new(
            rng.random_range(10_000..=path.port.send_kbps.map_or(10_000, NonZeroU32::get)),
        );
        path.rate_kbps = NonZeroU32::new(rng.random_range(10_000..10_000_000))
            .filter(|_| rng.random_range(0..4) == 0);
        links.observe(from, to, path);
    }
    Network::of(&members, &links).expect("all rates are known")
}

fn network(home: &Home) -> Network {
    Network::of(&home.members(), &home.link_map(|_| 0)).expect("all rates are known")
}

/// The busy time of the busiest resource with these trees, in seconds per second, computed from
/// the network itself.
fn busiest(network: &Network, trees: &[(&[usize], f64)]) -> f64 {
    let mut busy = vec![0.0; network.resources.len()];
    for (edge, kbps) in
        trees.iter().flat_map(|(edges, kbps)| edges.iter().map(move |edge| (*edge, *kbps)))
    {
        network.edges[edge]
            .uses()
            .for_each(|used| busy[used.resource] += kbps / f64::from(used.kbps));
    }
    busy.into_iter().fold(0.0, f64::max)
}

/// The cheapest spanning tree by Prim's rule.
fn prim(network: &Network, cost: impl Fn(usize) -> f64) -> f64 {
    let (mut inside, mut sum) = (vec![network.edges[0].a], 0.0);
    while inside.len() < network.size {
        let crosses = |place: &usize| {
            inside.contains(&network.edges[*place].a) != inside.contains(&network.edges[*place].b)
        };
        let next = (0..network.edges.len())
            .filter(crosses)
            .min_by(|a, b| cost(*a).total_cmp(&cost(*b)))
            .expect("connected");
        sum += cost(next);
        let Edge { a, b, .. } = network.edges[next];
        inside.push(if inside.contains(&a) { b } else { a });
    }
    sum
}

#[test]
fn what_the_trees_carry_is_what_the_prices_allow() {
    for seed in 0..SEEDS {
        let network = any_network(seed);
        let optimum = Optimum::of(&network).unwrap_or_else(|| panic!("seed {seed}: no optimum"));
        // The time is spent on these small linear programs. Dropping trees solves at most twice
        // as many again.
        assert!(
            optimum.columns.len() <= 17 + ROUNDS_MAX / 2,
            "seed {seed}: {} trees",
            optimum.columns.len()
        );
        let all: Vec<usize> = (0..optimum.columns.len()).collect();
        let (rates, primal) =
            optimum.fastest(&all).unwrap_or_else(|| panic!("seed {seed}: no rates"));

        let carried: f64 = rates.iter().map(|(_, rate)| rate).sum();
        let trees: Vec<(&[usize], f64)> = rates
            .iter()
            .map(|(place, rate)| (&optimum.columns[*place].edges[..], rate * optimum.unit_kbps))
            .collect();
        assert!(
            trees.iter().all(|(edges, _)| network.tree(edges).is_some()),
            "seed {seed}: not all are trees"
        );
        let busiest = busiest(&network, &trees);
        assert!(busiest <= 1.0 + 1e-6, "seed {seed}: busy for {busiest}");

        let costs = Costs::new(&network).expect("edges");
        let (prices, _) =
            prices(&optimum.columns).unwrap_or_else(|| panic!("seed {seed}: no prices"));
        assert!(prices.iter().all(|price| *price >= 0.0), "seed {seed}: a price below zero");
        let price = |edge: usize| {
            costs.uses[edge].iter().map(|(resource, time)| time * prices[*resource]).sum::<f64>()
        };
        let dual = prices.iter().sum::<f64>() / prim(&network, price).min(1.0);
        for value in [primal, carried, optimum.bound] {
            assert!((value / dual - 1.0).abs() <= 1e-6, "seed {seed}: {value} is not {dual}");
        }
    }
}

#[test]
fn few_trees_carry_nearly_as_much() {
    for seed in 0..SEEDS {
        let network = any_network(seed);
        let packing = Packing::of(&network).unwrap_or_else(|| panic!("seed {seed}: no packing"));
        assert_eq!(
            packing.trees.iter().map(|share| share.ppm).sum::<u32>(),
            1_000_000,
            "seed {seed}"
        );
        let edges = |share: &TreeShare| {
            let place = |(a, b)| {
                network
                    .edges
                    .iter()
                    .position(|edge| (edge.a.min(edge.b), edge.a.max(edge.b)) == (a, b))
            };
            share
                .tree
                .edges()
                .map(|(a, b)| place((a.min(b), a.max(b))).expect("an edge"))
                .collect::<Vec<_>>()
        };
        let trees: Vec<(Vec<usize>, f64)> =
            packing.trees.iter().map(|share| (edges(share), f64::from(share.ppm) / 1e6)).collect();
        let trees: Vec<(&[usize], f64)> =
            trees.iter().map(|(edges, part)| (&edges[..], *part)).collect();
        let enough = 1.0 / busiest(&network, &trees) / packing.bound_kbps;
        assert!(
            (ENOUGH - 1e-4..=1.0 + 1e-6).contains(&enough),
            "seed {seed}: {enough} with {} trees",
            trees.len()
        );
        assert!(trees.len() <= Algorithm::TREES_MAX, "seed {seed}");
    }
}

/// The smallest time `t` per unit at which the slowest port finishes and all ports together
/// send `2 (n - 1)` buffers, none more than `n - 1`. Returned as the rate `1 / t`.
fn closed_form_kbps(ports: &[u32]) -> f64 {
    let most = ports.len() as f64 - 1.0;
    let passed = |t: f64| ports.iter().map(|kbps| (t * f64::from(*kbps)).min(most)).sum::<f64>();
    let slowest = 1.0 / f64::from(*ports.iter().min().expect("ports"));
    // `passed` is linear between kinks: find the first kink that is enough and interpolate
    // before it.
    let mut kinks: Vec<f64> =
        ports.iter().map(|kbps| most / f64::from(*kbps)).chain([0.0]).collect();
    kinks.sort_by(f64::total_cmp);
    let after = kinks.iter().position(|t| passed(*t) >= 2.0 * most).expect("enough in the end");
    let (low, high) = (kinks[after - 1], kinks[after]);
    let t = low + (high - low) * (2.0 * most - passed(low)) / (passed(high) - passed(low));
    1.0 / t.max(slowest)
}

#[test]
fn on_one_switch_it_is_the_closed_form() {
    for seed in 0..SEEDS {
        let mut rng = SmallRng::seed_from_u64(seed);
        // The rates differ enough not to be grouped.
        let ports: Vec<u32> = (0..rng.random_range(3..=16))
            .map(|_| [100, 200, 500, 940, 2350, 5000, 9400][rng.random_range(0..7)])
            .collect();
        let home = Home::new(&ports.iter().map(|mbps| Lan::Wired(*mbps)).collect::<Vec<_>>(), &[]);
        let expected = closed_form_kbps(&ports.iter().map(|mbps| mbps * 1000).collect::<Vec<_>>());
        let found = Packing::of(&network(&home)).expect("trees").bound_kbps;
        assert!(
            (found / expected - 1.0).abs() < 1e-6,
            "seed {seed}: {found} instead of {expected} for {ports:?}"
        );
    }
}

#[test]
fn the_order_in_which_facts_come_does_not_matter() {
    for seed in 0..SEEDS / 10 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let home = any_home(16, &mut rng);
        let first = Packing::of(&network(&home)).expect("trees");
        let links = home.link_map(|left| rng.random_range(0..left));
        let other =
            Packing::of(&Network::of(&home.members(), &links).expect("rates")).expect("trees");
        assert_eq!(first.trees, other.trees, "seed {seed}");
    }
}

#[test]
#[ignore = "prints times, which mean something in a release build: cargo test --release --lib -- \
    how_long --ignored --nocapture"]
fn how_long_it_takes() {
    for size in [4, 8, 12, 16, MEMBERS_MAX as u8] {
        let time_ms = |seed| {
            let network = network(&any_home(size, &mut SmallRng::seed_from_u64(seed)));
            let start = std::time::Instant::now();
            assert!(Packing::of(&network).is_some(), "seed {seed}");
            let took_ms = start.elapsed().as_secs_f64() * 1e3;
            (took_ms, Optimum::of(&network).map_or(0, |optimum| optimum.columns.len()))
        };
        let mut times: Vec<(f64, usize)> = (0..SEEDS).map(time_ms).collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let trees = times.iter().map(|(_, trees)| *trees).max();
        let [median, tenth, worst] =
            [times.len() / 2, times.len() * 9 / 10, times.len() - 1].map(|place| times[place].0);
        println!(
            "{size:2} members: {median:.2} ms, one in ten {tenth:.2} ms, worst {worst:.2} ms, up \
             to {trees:?} trees"
        );
    }
}
