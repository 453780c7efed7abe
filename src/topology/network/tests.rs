//! The model of a network that measured rates give.

use super::super::forecast::forecast_us;
use super::super::homes::Home;
use super::super::homes::Lan::{No, Radio, Wired};
use super::super::link_map::links_of;
use super::*;
use crate::protocol::{Algorithm, member_id};

fn network(home: &Home) -> Network {
    Network::of(&home.members(), &home.link_map(|_| 0)).expect("all rates are known")
}

/// Sets the measured rate from one member to another, in one direction.
fn measure(links: &mut LinkMap, from: u8, to: u8, kbps: u32) {
    let path = links.path(member_id(from), member_id(to)).expect("a path");
    links.observe(
        member_id(from),
        member_id(to),
        Path { rate_kbps: NonZeroU32::new(kbps), ..path },
    );
}

fn kbps(network: &Network, from: u8, to: u8) -> Vec<u32> {
    network.direct(Rank(from), Rank(to)).expect("an edge").1.iter().map(|busy| busy.kbps).collect()
}

#[test]
fn a_port_of_which_nobody_knows_a_rate_is_enough_to_know_nothing() {
    let members: Vec<MemberId> = (1..=3).map(member_id).collect();
    let mut links = links_of(3, |_, _| Some(200));
    assert_eq!(Network::of(&members, &links), None);
    for (from, to) in [(1, 2), (2, 1), (1, 3)] {
        measure(&mut links, from, to, 940_000);
        assert_eq!(Network::of(&members, &links), None, "nobody knows what 3 sends");
    }
    measure(&mut links, 3, 1, 100_000);
    let network = Network::of(&members, &links).expect("every port has sent and received");
    assert_eq!(
        kbps(&network, 1, 2),
        [940_000, 940_000],
        "nobody measured it, but both ports are known"
    );
    assert_eq!(
        (kbps(&network, 2, 1), kbps(&network, 0, 2)),
        (vec![100_000, 940_000], vec![940_000, 940_000])
    );
    links.set_reach(member_id(2), &[member_id(1)].into());
    links.set_reach(member_id(2), &[member_id(1), member_id(3)].into());
    assert_eq!(Network::of(&members, &links), None, "2 says it reaches 3, and nothing of the way");
}

#[test]
fn a_path_that_carries_less_than_its_ports_is_busy_itself() {
    let members: Vec<MemberId> = (1..=3).map(member_id).collect();
    let mut links = links_of(3, |_, _| Some(200));
    for (from, to) in [(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)] {
        measure(&mut links, from, to, if from == 2 && to == 3 { 300_000 } else { 900_000 });
    }
    let network = Network::of(&members, &links).expect("all rates");
    assert_eq!(kbps(&network, 1, 2), [900_000, 900_000, 300_000]);
    assert_eq!(kbps(&network, 2, 1), [900_000, 900_000]);
    assert!(!network.is_even());
}

#[test]
fn what_goes_from_station_to_station_takes_the_air_twice() {
    let network = network(&Home::new(&[Radio(600), Radio(300), Wired(940)], &[]));
    assert_eq!(network.resources, [Resource::Air, Resource::Send, Resource::Receive]);
    let air = |kbps| Use { resource: 0, kbps };
    assert_eq!(network.direct(Rank(0), Rank(1)).expect("an edge").1, [air(600_000), air(300_000)]);
    assert_eq!(
        network.direct(Rank(0), Rank(2)).expect("an edge").1,
        [air(600_000), Use { resource: 2, kbps: 940_000 }]
    );
}

#[test]
fn a_path_that_was_measured_from_station_to_station_has_both_hops_in_it() {
    let members: Vec<MemberId> = (1..=3).map(member_id).collect();
    let mut links = links_of(3, |_, _| Some(200));
    for (from, to, kbps) in [
        (1, 2, 600_000),
        (2, 1, 600_000),
        (1, 3, 300_000),
        (3, 1, 300_000),
        (2, 3, 190_000),
        (3, 2, 210_000),
    ] {
        measure(&mut links, from, to, kbps);
    }
    let before = Network::of(&members, &links).expect("all rates");
    assert!(
        before.resources.contains(&Resource::Path) && !before.resources.contains(&Resource::Air)
    );
    links.share(member_id(2), 0, 0);
    links.share(member_id(3), 0, 0);
    let network = Network::of(&members, &links).expect("all rates");
    assert_eq!(network.resources, [Resource::Send, Resource::Receive, Resource::Air]);
    // Similar rates are replaced by their median.
    assert_eq!((kbps(&network, 1, 2), kbps(&network, 2, 1)), (vec![190_000], vec![190_000]));
    assert_eq!(kbps(&network, 0, 1), [600_000, 600_000]);
    let forecast_s = |network: &Network, root| {
        let tree = Tree::star(Rank(root), 3);
        forecast_us(network, &Algorithm::tree(tree), 75_000_000, 1 << 18).expect("links") / 1e6
    };
    // 600 Mbit in each direction: over rank 0 they use the air twice at 600 and twice at 300
    // Mbit/s.
    assert!((6.0..6.1).contains(&forecast_s(&network, 0)), "{}", forecast_s(&network, 0));
    assert!((2.0..2.1).contains(&forecast_s(&before, 0)), "before anybody knew of the air");
    assert!((8.3..8.5).contains(&forecast_s(&network, 1)), "{}", forecast_s(&network, 1));
}

#[test]
fn even_is_one_port_for_all_of_one_make_and_rate() {
    let cable = 16_000;
    assert!(network(&Home::new(&[Wired(940); 4], &[])).is_even());
    assert!(network(&Home::new(&[Radio(300); 4], &[])).is_even());
    let mixed = [Wired(300), Radio(300), Radio(300)];
    let triangle = [(0, 1, cable), (1, 2, cable), (2, 0, cable)];
    for heterogeneous in [
        Home::new(&[Wired(940), Wired(940), Wired(200)], &[]),
        Home::new(&mixed, &[]),
        Home::new(&[No; 3], &triangle),
        Home::new(&[No; 3], &triangle[..2]),
        Home::new(&[Wired(940); 3], &[(0, 1, 940)]),
    ] {
        assert!(!network(&heterogeneous).is_even(), "{heterogeneous:?}");
    }
}

#[test]
fn noise_is_no_difference() {
    let noisy = [Wired(1010), Wired(940), Wired(870), Wired(955)];
    assert!(network(&Home::new(&noisy, &[])).is_even());
    let counts_as = alike(vec![100, 81, 79, 66, 1, 40_000]);
    assert_eq!(counts_as.values().copied().collect::<Vec<_>>(), [4, 66, 66, 81, 81, 40_000]);
}

#[test]
fn a_path_that_is_only_reported_is_at_a_port_that_is_known() {
    let mut links = LinkMap::new();
    let ranks = [1, 2, 3, 4];
    for (a, b) in
        ranks.iter().flat_map(|a| ranks.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b)
    {
        links.observe(member_id(a), member_id(b), Path::unmeasured(200));
    }
    let members = ranks.map(member_id);
    let port = Port::unmeasured(InterfaceKind::Ethernet, 2);
    for (from, to) in [(1, 2), (2, 3), (3, 4)] {
        links.rate(member_id(from), member_id(to), port, NonZeroU32::new(94_000).expect("not 0"));
    }
    assert_eq!(
        Network::of(&members, &links),
        None,
        "nothing is known of what the first receives and the last sends"
    );
    links.rate(member_id(4), member_id(1), port, NonZeroU32::new(93_000).expect("not 0"));
    let network = Network::of(&members, &links).expect("each port was seen both ways");
    assert!(network.is_even() && network.is_mesh(), "{network:?}");
    // A separate cable appears in the model once it is measured.
    links.rate(
        member_id(1),
        member_id(3),
        Port::unmeasured(InterfaceKind::Thunderbolt, 9),
        NonZeroU32::new(16_000_000).expect("not 0"),
    );
    links.rate(
        member_id(3),
        member_id(1),
        Port::unmeasured(InterfaceKind::Thunderbolt, 9),
        NonZeroU32::new(16_000_000).expect("not 0"),
    );
    assert!(!Network::of(&members, &links).expect("all ports").is_even());
}
