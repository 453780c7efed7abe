//! The map of links: which members reach each other, and which rates outlast a link.

use super::testing::{links_of, path};
use super::*;
use crate::protocol::member_id;
use proptest::prelude::*;

fn ids(numbers: &[u8]) -> BTreeSet<MemberId> {
    numbers.iter().map(|n| member_id(*n)).collect()
}

fn links_without(n: u8, cut: &[(u8, u8)]) -> LinkMap {
    links_of(n, |a, b| (!cut.contains(&(a, b))).then_some(200))
}

#[test]
fn one_way_is_not_reach() {
    let (a, b) = (member_id(1), member_id(2));
    let mut links = LinkMap::new();
    links.observe(a, b, path(300));
    assert!(!links.reachable_both_ways(a, b) && links.reachable_both_ways(a, a));
    assert_eq!((links.rtt_us(a, b), links.rtt_us(b, a)), (Some(300), Some(300)));
    links.observe(b, a, path(500));
    assert!(links.reachable_both_ways(b, a));
    assert_eq!((links.rtt_us(a, b), links.path(a, b)), (Some(500), Some(path(300))));
    links.observe(a, a, path(1));
    assert_eq!(links.path(a, a), None);
}

#[test]
fn a_report_replaces_the_one_before_and_keeps_measured_paths() {
    let (a, b, c) = (member_id(1), member_id(2), member_id(3));
    let mut links = links_without(3, &[]);
    links.set_reach(a, &ids(&[1, 2, 4]));
    assert!(links.reachable_both_ways(a, b) && !links.reachable_both_ways(a, c));
    assert_eq!(links.path(a, b), Some(path(200)));
    links.set_reach(member_id(4), &ids(&[1]));
    assert!(links.reachable_both_ways(a, member_id(4)));
    assert_eq!(links.path(a, member_id(4)), None);
    links.set_reach(a, &BTreeSet::new());
    assert!(!links.reachable_both_ways(a, b) && links.reachable_both_ways(b, c));
}

#[test]
fn what_was_measured_of_a_way_outlasts_the_link_that_it_was_measured_over() {
    let (a, b) = (member_id(1), member_id(2));
    let (port, kbps) =
        (Port::unmeasured(InterfaceKind::Ethernet, 7), NonZeroU32::new(940_000).expect("not zero"));
    let mut links = links_of(2, |_, _| Some(200));
    links.rate(a, b, port, kbps);
    // For a moment no member reaches another.
    links.set_reach(a, &BTreeSet::new());
    links.set_reach(b, &BTreeSet::new());
    assert_eq!((links.path(a, b), links.path(b, a)), (None, None));
    // A rate that arrives while the link is being re-established is not lost either.
    links.rate(b, a, port, kbps);
    links.set_reach(a, &ids(&[2]));
    links.set_way(b, a, false);
    links.round_trip(a, b, 300, Some(port));
    links.round_trip(b, a, 400, None);
    let measured = |rtt_us| Path { port, rate_kbps: Some(kbps), ..Path::unmeasured(rtt_us) };
    assert_eq!(links.path(a, b), Some(measured(300)));
    assert_eq!(links.path(b, a), Some(measured(400)));
    let other = Port::unmeasured(InterfaceKind::Wifi, 8);
    links.round_trip(a, b, 300, Some(other));
    assert_eq!(
        links.path(a, b),
        Some(Path { port: other, ..Path::unmeasured(300) }),
        "another port is another path"
    );
    links.forget(a);
    assert_eq!(links.path(b, a), None);
    // The same machine starts another process.
    let again = MemberId { boot: member_id(9).boot, ..a };
    assert_ne!(again, a);
    links.set_reach(b, &[again].into());
    assert_eq!(links.path(b, again), Some(measured(400)), "its paths are the same");
    links.set_reach(again, &ids(&[2]));
    assert_eq!(links.path(again, b), None, "of an unmeasured path nothing is kept");
    // The new process has proven its path before the old one is given up.
    links.set_reach(a, &ids(&[2]));
    links.round_trip(again, b, 500, Some(port));
    links.set_reach(a, &BTreeSet::new());
    links.forget(a);
    assert_eq!(links.rtt_us(again, b), Some(500), "the path of the new process is not the old's");
}

#[test]
fn what_was_known_at_the_end_counts_at_the_next_start_until_it_is_measured_again() {
    let (a, b, c) = (member_id(1), member_id(2), member_id(3));
    let kbps = |kbps| NonZeroU32::new(kbps).expect("not zero");
    let port = Port::unmeasured(InterfaceKind::Ethernet, 7);
    let mut links = links_of(3, |_, _| Some(200));
    for (from, to, rate) in [(a, b, 100_000), (b, a, 90_000), (a, c, 5_000)] {
        links.rate(from, to, port, kbps(rate));
    }
    links.segments_follow(&[a, b, c]);
    links.set_coding(c, CodingSpeed::new(|_| 5000));
    let sides = [[a.node, b.node].into(), [c.node].into()];
    links.cross(Segment { sides, kbps: [kbps(5_000), kbps(6_000)], is_half: false });
    let known = links.known_paths();

    let mut later = LinkMap::new();
    later.recall(known.clone());
    assert_eq!(later.path(a, b), None, "there is no link yet");
    assert_eq!(later.known_paths(), known, "it is kept even if nobody comes");
    assert_eq!(later.coding(c), CodingSpeed::new(|_| 5000));
    let [a, b, c] = [a, b, c].map(|member| MemberId { boot: member_id(9).boot, ..member });
    later.set_reach(b, &[a].into());
    later.round_trip(a, b, 300, Some(port));
    let is_recalled = true;
    let recalled = Path { port, rate_kbps: Some(kbps(100_000)), is_recalled, rtt_us: 300 };
    assert_eq!(later.path(a, b), Some(recalled));
    assert_eq!(later.rtt_us(b, a), Some(300));
    assert!(later.are_segments_known(&[a, b, c]) && later.segments() == links.segments());
    later.rate(b, a, port, kbps(80_000));
    let measured = Path { is_recalled: false, rate_kbps: Some(kbps(80_000)), rtt_us: 200, port };
    assert_eq!(later.path(b, a), Some(measured));
    later.round_trip(a, b, 300, Some(Port { number: 8, ..port }));
    assert_eq!(later.path(a, b).and_then(|path| path.rate_kbps), None, "another cable");
}

#[test]
fn no_more_is_kept_of_the_absent_than_of_two_views() {
    let port = Port::unmeasured(InterfaceKind::Ethernet, 1);
    let mut links = LinkMap::new();
    let here = [member_id(1), member_id(2)];
    let kbps = NonZeroU32::new(1000).expect("not zero");
    links.set_reach(here[0], &here.into());
    links.rate(here[0], here[1], port, kbps);
    for n in (3..=254).chain(3..=254) {
        let comer = MemberId { boot: member_id(n).boot, ..member_id(n) };
        links.set_reach(comer, &here.into());
        here.iter().for_each(|to| links.rate(comer, *to, port, kbps));
        here.iter().for_each(|from| links.rate(*from, comer, port, kbps));
        links.set_coding(comer, CodingSpeed::new(|_| 5000));
        links.forget(comer);
        assert!(links.paths.len() <= KnownPaths::PATHS_MAX, "{}", links.paths.len());
        assert!(links.coding.len() <= KnownPaths::NODES_MAX, "{}", links.coding.len());
    }
    assert!(links.path(here[0], here[1]).is_some());
}

#[test]
fn who_is_reached_through_others_is_in_the_group_and_has_no_direct_link() {
    let (a, b, c) = (member_id(1), member_id(2), member_id(3));
    let mut links = links_without(3, &[]);
    links.set_relayed(a, &ids(&[3]));
    assert!(
        links.is_clique(&ids(&[1, 2, 3]))
            && !links.is_mesh(&ids(&[1, 2, 3]))
            && links.is_mesh(&ids(&[2, 3]))
    );
    // One of the two has not reported it yet.
    assert!(!links.direct_both_ways(a, c) && links.is_direct(c, a));
    links.observe(a, c, path(900));
    assert!(!links.is_direct(a, c), "a round trip does not make it direct");
    assert_eq!(links.joined_with(a, &ids(&[1, 2, 3])), ids(&[1, 2, 3]));
    assert_eq!(
        links.joined_with(a, &ids(&[1, 3])),
        ids(&[1]),
        "nobody passes bulk data on between them"
    );
    links.set_relayed(a, &BTreeSet::new());
    assert!(links.direct_both_ways(a, c) && links.is_mesh(&ids(&[1, 2, 3])));
    assert!(!links.without([(b, a)]).direct_both_ways(a, b) && links.direct_both_ways(a, b));
}

#[test]
fn a_shared_medium_belongs_to_a_port_and_stays_with_what_is_measured_of_it() {
    let (a, b, c) = (member_id(1), member_id(2), member_id(3));
    let mut links = links_of(3, |_, _| Some(200));
    let cell = |links: &LinkMap, to| links.path(a, to).expect("a path").port.cell;
    let kbps = NonZeroU32::new(940_000).expect("not zero");
    links.rate(a, c, Port::unmeasured(InterfaceKind::Ethernet, 7), kbps);
    links.share(a, 0, 3);
    assert_eq!((cell(&links, b), cell(&links, c)), (Some(3), None), "c is reached by another port");
    links.rate(a, b, Port::unmeasured(InterfaceKind::Ethernet, 0), kbps);
    assert_eq!(cell(&links, b), Some(3));
    links.rate(a, b, Port::unmeasured(InterfaceKind::Ethernet, 8), kbps);
    assert_eq!(cell(&links, b), None, "another port is another medium");
    links.share(a, 8, 0);
    links.forget_rates(&[a, b, c]);
    assert_eq!(cell(&links, b), None);
    links.rate(a, b, Port::unmeasured(InterfaceKind::Wifi, 9), kbps);
    links.forget_rates(&[a, b]);
    assert_eq!(cell(&links, b), Some(0), "a radio is one without being measured");
    links.share(member_id(9), 0, 0);
}

#[test]
fn the_forgotten_are_gone_both_ways() {
    let mut links = links_without(3, &[]);
    links.forget(member_id(2));
    assert_eq!(
        (links.path(member_id(1), member_id(2)), links.path(member_id(2), member_id(1))),
        (None, None)
    );
    assert!(links.is_clique(&ids(&[1, 3])) && !links.is_clique(&ids(&[1, 2, 3])));
    links.forget(member_id(9));
}

#[test]
fn the_largest_clique_wins_over_preference_and_preference_over_ids() {
    // 1 reaches 2, 3 and 4, 5; no member of one pair reaches a member of the other.
    let cut = [(2, 4), (2, 5), (3, 4), (3, 5)];
    let me = member_id(1);
    let links = links_without(5, &cut);
    assert_eq!(links.largest_clique_with(me, &BTreeSet::new()), ids(&[1, 2, 3]));
    assert_eq!(links.largest_clique_with(me, &ids(&[5])), ids(&[1, 4, 5]));
    let links = links_without(6, &[&cut[..], &[(4, 6), (5, 6)]].concat());
    assert_eq!(links.largest_clique_with(me, &ids(&[4, 5])), ids(&[1, 2, 3, 6]));
    assert_eq!(links_of(3, |_, _| None).largest_clique_with(me, &ids(&[2])), ids(&[1]));
}

#[test]
fn a_crowd_is_cut_to_a_view_with_the_preferred_in_it() {
    let links = links_without(60, &[]);
    let group = links.largest_clique_with(member_id(40), &ids(&[58, 59]));
    let expected: Vec<u8> = (1..MEMBERS_MAX as u8 - 2).chain([40, 58, 59]).collect();
    assert_eq!(group, ids(&expected));
}

#[test]
fn the_worst_graph_ends() {
    // Moon and Moser 1965: groups of three without edges inside have the most maximal cliques.
    let links = links_of(31, |a, b| (a == 1 || (a - 2) / 3 != (b - 2) / 3).then_some(200));
    let group = links.largest_clique_with(member_id(1), &ids(&[3]));
    assert_eq!(group, ids(&[1, 3, 5, 8, 11, 14, 17, 20, 23, 26, 29]));
}

/// The best group with member 1 among `n` members, by trying all groups.
fn by_trying_all(links: &LinkMap, n: u8, prefer: &BTreeSet<MemberId>) -> BTreeSet<MemberId> {
    let groups = (0u32..1 << (n - 1)).map(|mask| {
        let others = (2..=n).filter(|i| mask >> (i - 2) & 1 == 1).map(member_id);
        others.chain([member_id(1)]).collect::<BTreeSet<_>>()
    });
    let cliques = groups.filter(|group| links.is_clique(group));
    let merit = |group: &BTreeSet<MemberId>| (group.len(), group.intersection(prefer).count());
    cliques.max_by(|a, b| merit(a).cmp(&merit(b)).then_with(|| b.cmp(a))).unwrap_or_default()
}

proptest! {
    #[test]
    fn the_search_is_exact(n in 2u8..=10, edges: u64, one_way: u64, preferred: u16) {
        let place = |a: u8, b: u8| u32::from(b - 1) * u32::from(b - 2) / 2 + u32::from(a - 1);
        let mut links = links_of(n, |a, b| (edges >> (place(a, b) % 64) & 1 == 1).then_some(200));
        for b in 2..=n {
            if one_way >> b & 3 == 3 {
                links.observe(member_id(1), member_id(b), path(1));
            }
        }
        let prefer: BTreeSet<_> =
            (1..=n).filter(|i| preferred >> i & 1 == 1).map(member_id).collect();
        prop_assert_eq!(
            links.largest_clique_with(member_id(1), &prefer),
            by_trying_all(&links, n, &prefer)
        );
    }
}
