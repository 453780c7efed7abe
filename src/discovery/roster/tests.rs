//! Tests of the roster's guarantees.

use super::super::sighting::{Tag, advert};
use super::told_addresses::TOLD_MAX;
use super::*;
use crate::identity::{JobName, Name, NodeId};
use crate::protocol::MEMBERS_MAX;
use proptest::prelude::*;
use std::collections::BTreeSet;

const TAG: Tag = [7; 8];
const ME: Boot = Boot(9999);

/// The job's tag is that of the cluster, as `advert` makes it.
fn relation(boot: Boot, tags: Tags) -> Relation {
    match tags.cluster == tag_of(boot) {
        true if tags.job == tags.cluster => Relation::SameJob,
        true => Relation::OtherJob,
        false => Relation::OtherCluster,
    }
}

fn tag_of(boot: Boot) -> Tag {
    (boot.0 ^ u64::from_be_bytes(TAG)).to_be_bytes()
}

fn roster() -> Roster {
    Roster::new(Limits::default(), AddressPolicy::Loopback, ME, relation)
}

fn ours(n: u16) -> Advert {
    advert(n, Some(tag_of(Boot(u64::from(n)))))
}

fn member(n: u16) -> MemberId {
    MemberId { node: NodeId([n as u8; 32]), boot: Boot(u64::from(n)) }
}

fn port(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn due(roster: &mut Roster, now_ms: u64) -> Vec<SocketAddr> {
    roster.due(now_ms).iter().map(|dial| dial.to).collect()
}

fn appeared(roster: &mut Roster, advert: Advert, now_ms: u64) {
    roster.sighted(Sighting::Appeared(advert), now_ms);
}

#[test]
fn a_sighting_is_dialled_at_once_and_once() {
    let mut roster = roster();
    appeared(&mut roster, ours(1), 100);
    assert_eq!(roster.next_due(100), Some(100));
    assert_eq!(
        roster.due(100),
        [Dial { to: port(40_001), expected: Some(Boot(1)), to_observer: false }]
    );
    assert_eq!((due(&mut roster, 100), roster.next_due(100)), (vec![], None));
    roster.dialled(port(40_001), DialOutcome::Failed, 200);
    assert_eq!(roster.next_due(200), Some(450));
    assert_eq!(due(&mut roster, 449), []);
    assert_eq!(due(&mut roster, 450), [port(40_001)]);
    roster.dialled(port(40_001), DialOutcome::Failed, 500);
    assert_eq!(roster.next_due(500), Some(1000));
    appeared(&mut roster, ours(1), 701);
    assert_eq!(roster.next_due(701), Some(701));
}

#[test]
fn other_clusters_and_versions_are_shown_and_never_dialled() {
    let mut roster = roster();
    let later = Advert { version: 2, ..ours(3) };
    for advert in [advert(1, None), advert(2, Some([0; 8])), later] {
        appeared(&mut roster, advert, 0);
    }
    assert_eq!((due(&mut roster, 0), roster.next_due(0)), (vec![], None));
    let shown: Vec<(u8, Boot)> =
        roster.others().map(|advert| (advert.version, advert.boot)).collect();
    assert_eq!(shown, [(1, Boot(1)), (1, Boot(2)), (2, Boot(3))]);
    roster.sighted(Sighting::Vanished { instance: advert(2, None).instance }, 1);
    assert_eq!(roster.others().count(), 2);
}

#[test]
fn a_node_of_another_job_is_dialled_only_while_this_one_waits() {
    let mut roster = roster();
    let tags = Some(Tags { cluster: tag_of(Boot(1)), job: [0; 8] });
    let other = Advert { tags, ..advert(1, None) };
    appeared(&mut roster, other.clone(), 0);
    appeared(&mut roster, ours(2), 0);
    assert_eq!(due(&mut roster, 100_000), [port(40_002)]);
    assert_eq!((roster.others().count(), roster.sees_ours()), (0, true));
    roster.set_waiting(true, 100_000);
    roster.dialled(port(40_002), DialOutcome::Authenticated(member(2)), 100_000);
    assert_eq!(roster.next_due(100_000), Some(103_000));
    assert_eq!(due(&mut roster, 103_000), [port(40_001)]);
    let says = JobMember {
        id: member(1),
        name: Name::from_lossy("n1"),
        job: JobName::parse("train").expect("a name"),
    };
    roster.meets(says.clone(), 103_010);
    roster.dialled(port(40_001), DialOutcome::OtherJob, 103_010);
    assert_eq!(roster.other_jobs(103_010).collect::<Vec<_>>(), [&says]);
    assert_eq!(roster.entries().len(), 1, "its address is forgotten after the question");
    assert_eq!(roster.next_due(103_010), Some(133_010));
    roster.set_waiting(false, 110_000);
    assert_eq!(roster.next_due(110_000), None);
    // The same node starts again with this node's job: it is one of the group's.
    appeared(&mut roster, ours(1), 120_000);
    assert_eq!(due(&mut roster, 120_000), [port(40_001)]);
    assert_eq!(roster.other_jobs(120_000).count(), 0);
    appeared(&mut roster, other, 120_500);
    assert_eq!(roster.entries().len(), 2, "a dial is in flight");
    roster.dialled(port(40_001), DialOutcome::OtherJob, 120_600);
    assert_eq!(roster.entries().len(), 1);
}

#[test]
fn a_fixed_peer_with_another_job_is_tried_again_soon() {
    let mut roster = roster();
    roster.add(port(5000), Origin::Fixed, 0);
    assert_eq!(due(&mut roster, 0), [port(5000)]);
    roster.dialled(port(5000), DialOutcome::OtherJob, 10);
    assert_eq!(roster.next_due(10), Some(5010));
}

#[test]
fn an_invitation_is_neither_dialled_nor_shown_as_a_cluster() {
    let mut roster = roster();
    for advert in [advert(1, None), ours(2)] {
        let pairing = crate::identity::Selector::of(42);
        appeared(&mut roster, Advert { pairing, ..advert }, 0);
    }
    assert_eq!((due(&mut roster, 0), roster.next_due(0)), (vec![], None));
    assert_eq!((roster.others().count(), roster.entries()), (0, vec![]));
}

#[test]
fn a_node_that_gets_the_key_moves_from_the_others_to_the_peers_and_back() {
    let mut roster = roster();
    appeared(&mut roster, advert(1, None), 0);
    appeared(&mut roster, ours(1), 1);
    assert_eq!((roster.others().count(), roster.entries().len()), (0, 1));
    appeared(&mut roster, advert(1, None), 2);
    assert_eq!((roster.others().count(), roster.entries().len()), (1, 0));
}

#[test]
fn the_own_advert_is_ignored() {
    let mut roster = roster();
    appeared(&mut roster, Advert { boot: ME, ..advert(1, Some(tag_of(ME))) }, 0);
    assert_eq!((roster.entries(), roster.others().count()), (vec![], 0));
}

#[test]
fn a_link_silences_all_addresses_of_its_boot_until_it_is_down() {
    let mut roster = roster();
    let two = Advert { addresses: vec![port(5001), port(5002)], ..ours(1) };
    appeared(&mut roster, two, 0);
    roster.add(port(5003), Origin::Fixed, 0);
    assert_eq!(due(&mut roster, 0), [port(5001), port(5002), port(5003)]);
    roster.dialled(port(5001), DialOutcome::Authenticated(member(1)), 10);
    roster.dialled(port(5002), DialOutcome::Failed, 10);
    roster.dialled(port(5003), DialOutcome::Authenticated(member(1)), 10);
    assert_eq!(roster.next_due(100_000), None);
    roster.link_down(member(1), 100_000);
    assert_eq!(due(&mut roster, 100_000), [port(5001), port(5002), port(5003)]);
}

/// Whichever end has dialled: a node that was killed is announced for a while.
#[test]
fn a_node_that_had_a_link_is_known_by_name_while_it_is_announced() {
    let mut roster = roster();
    appeared(&mut roster, ours(1), 0);
    assert_eq!(roster.evidence(port(40_001)), Some(AddressEvidence::Announced(Boot(1))));
    assert!(roster.sees_ours());
    roster.link_up(member(1));
    roster.link_down(member(1), 1000);
    assert_eq!(roster.evidence(port(40_001)), Some(AddressEvidence::Answered(member(1))));
    assert!(!roster.sees_ours());
    roster.sighted(Sighting::Vanished { instance: ours(1).instance }, 2000);
    assert_eq!(roster.evidence(port(40_001)), None);
    roster.add(port(40_001), Origin::Fixed, 3000);
    assert_eq!(roster.evidence(port(40_001)), Some(AddressEvidence::ByHand));
}

#[test]
fn a_configured_host_is_tried_when_a_dial_of_each_of_its_ports_has_ended() {
    let mut roster = roster();
    let host = port(5000).ip();
    assert!(roster.is_tried(host), "nothing is configured there");
    for to in [5000, 5001, 5002].map(port) {
        roster.add(to, Origin::Fixed, 0);
    }
    roster.add(port(5003), Origin::Gossip, 0);
    roster.add(SocketAddr::from(([10, 0, 0, 2], 5000)), Origin::Fixed, 0);
    roster.dialled(port(5000), DialOutcome::Failed, 1);
    roster.dialled(port(5001), DialOutcome::Authenticated(member(1)), 1);
    assert!(!roster.is_tried(host));
    roster.dialled(port(5002), DialOutcome::OtherNamespace, 1);
    assert!(roster.is_tried(host));
    roster.add(port(5000), Origin::Fixed, 60_000);
    assert!(roster.is_tried(host));
}

#[test]
fn an_accepted_link_silences_the_addresses_too() {
    let mut roster = roster();
    roster.link_up(member(1));
    appeared(&mut roster, ours(1), 0);
    assert_eq!(roster.next_due(0), None);
    roster.link_down(member(1), 5);
    assert_eq!(due(&mut roster, 5), [port(40_001)]);
}

#[test]
fn a_link_over_an_unproven_path_silences_only_the_address_where_it_was_made() {
    let mut roster = roster();
    // A stranger has copied the advert, and announces itself with it.
    appeared(&mut roster, Advert { addresses: vec![port(6666)], ..ours(1) }, 0);
    assert_eq!(due(&mut roster, 0), [port(6666)]);
    roster.dialled(port(6666), DialOutcome::Unproven(member(1)), 10);
    assert_eq!(roster.next_due(10), None);
    let genuine = Advert { instance: "genuine".to_owned(), ..ours(1) };
    appeared(&mut roster, genuine.clone(), 20);
    assert_eq!(due(&mut roster, 20), [port(40_001)], "a proven path is still sought");
    roster.dialled(port(40_001), DialOutcome::Failed, 30);
    assert_eq!(due(&mut roster, 100_000), [port(40_001)], "and the detour is not dialled again");
    roster.dialled(port(40_001), DialOutcome::Authenticated(member(1)), 100_010);
    assert_eq!(roster.next_due(300_000), None);
    let verified = |roster: &Roster| {
        roster.entries().into_iter().filter(|e| e.verified.is_some()).map(|e| e.address).collect()
    };
    let proven: Vec<SocketAddr> = verified(&roster);
    assert_eq!(proven, [port(40_001)]);
    roster.link_down(member(1), 300_000);
    assert_eq!(due(&mut roster, 300_000), [port(6666), port(40_001)]);
}

#[test]
fn a_detour_beside_a_proven_link_changes_nothing() {
    let mut roster = roster();
    roster.add(port(6666), Origin::Gossip, 0);
    assert_eq!(due(&mut roster, 0), [port(6666)]);
    appeared(&mut roster, ours(1), 0);
    roster.link_up(member(1));
    roster.dialled(port(6666), DialOutcome::Unproven(member(1)), 1);
    assert_eq!(roster.next_due(100_000), None);
}

#[test]
fn an_accepted_link_over_an_unproven_path_silences_no_address() {
    let mut roster = roster();
    roster.detour_up(member(1));
    appeared(&mut roster, ours(1), 0);
    assert_eq!(due(&mut roster, 0), [port(40_001)]);
    roster.dialled(port(40_001), DialOutcome::Unproven(member(1)), 1);
    roster.set_aside(member(1), 5000, 2);
    assert_eq!(roster.next_due(2), Some(60_001), "parked, and set aside");
}

#[test]
fn links_move_only_to_what_was_proven_or_told_by_the_member_itself() {
    let mut roster = roster();
    let copied = Advert { addresses: vec![port(6666)], ..ours(1) };
    let own =
        Advert { instance: "own".to_owned(), addresses: vec![port(5001), port(5002)], ..ours(1) };
    appeared(&mut roster, copied, 0);
    appeared(&mut roster, own, 0);
    assert_eq!(roster.addresses_of(member(1)).count(), 3);
    let addresses =
        |roster: &Roster| roster.own_addresses_of(member(1)).into_iter().collect::<Vec<_>>();
    assert_eq!(addresses(&roster), []);
    assert_eq!(due(&mut roster, 0).len(), 3);
    roster.dialled(port(5001), DialOutcome::Authenticated(member(1)), 1);
    roster.dialled(port(6666), DialOutcome::Unproven(member(1)), 1);
    assert_eq!(addresses(&roster), [port(5001)]);
    // The last one is announced nowhere, and the policy forbids the one before it.
    let told = [port(5002), SocketAddr::from(([10, 0, 0, 1], 5003)), port(5004)];
    roster.tells(member(1), &told, 1);
    assert_eq!(addresses(&roster), [port(5001), port(5002), port(5004)]);
    roster.tells(member(2), &[port(5001)], 1);
    assert_eq!(roster.own_addresses_of(member(2)), BTreeSet::new(), "another member is there");
    roster.link_down(member(1), 2);
    assert_eq!(addresses(&roster), [port(5001)]);
    assert_eq!(roster.own_addresses_of(member(2)), BTreeSet::from([port(5001)]));
}

#[test]
fn a_member_behind_a_detour_is_dialled_where_it_says_it_is() {
    let mut roster = roster();
    roster.tells(member(1), &[port(5001)], 0);
    assert_eq!(roster.next_due(0), None, "it has no link");
    roster.detour_up(member(1));
    roster.tells(member(1), &[port(5001)], 0);
    assert_eq!(due(&mut roster, 0), [port(5001)]);
    roster.dialled(port(5001), DialOutcome::Failed, 1);
    roster.link_up(member(1));
    assert_eq!(roster.next_due(1), None, "dialled by the other end");
    roster.link_down(member(1), 2);
    assert_eq!(roster.next_due(300), Some(300));
}

#[test]
fn a_link_local_address_is_told_without_its_scope() {
    let lan = AddressPolicy::Lan(Vec::new());
    let mut roster = Roster::new(Limits::default(), lan, ME, relation);
    let at = |text: &str| text.parse::<SocketAddr>().expect("an address of this test");
    appeared(&mut roster, Advert { addresses: vec![at("[fe80::9%4]:47474")], ..ours(1) }, 0);
    roster.tells(member(1), &[at("[fe80::9]:47474"), at("[fe80::8]:47474")], 0);
    assert_eq!(roster.own_addresses_of(member(1)), BTreeSet::from([at("[fe80::9%4]:47474")]));
}

#[test]
fn what_members_tell_of_themselves_is_bounded() {
    let mut roster = roster();
    roster.link_up(member(1));
    let many: Vec<SocketAddr> = (2000..3000).map(port).collect();
    for n in 1..1000 {
        roster.tells(member(n), &many, 0);
    }
    assert!(roster.told.boots() <= TOLD_MAX);
    assert_eq!(roster.own_addresses_of(member(1)).len(), Advert::ADDRESSES_MAX);
}

#[test]
fn a_restarted_peer_at_the_same_address_is_dialled_while_the_old_link_still_stands() {
    let mut roster = roster();
    let at = |n| Advert { addresses: vec![port(5000)], ..ours(n) };
    appeared(&mut roster, at(1), 0);
    assert_eq!(due(&mut roster, 0), [port(5000)]);
    roster.dialled(port(5000), DialOutcome::Authenticated(member(1)), 1);
    appeared(&mut roster, at(2), 1000);
    assert_eq!(due(&mut roster, 1000), [port(5000)]);
    roster.dialled(port(5000), DialOutcome::Authenticated(member(2)), 1001);
    assert_eq!(roster.next_due(60_000), None);
}

#[test]
fn an_outdated_advert_does_not_make_us_dial_a_linked_peer_for_ever() {
    let mut roster = roster();
    appeared(&mut roster, Advert { addresses: vec![port(5000)], ..ours(1) }, 0);
    assert_eq!(due(&mut roster, 0), [port(5000)]);
    roster.dialled(port(5000), DialOutcome::Authenticated(member(2)), 1);
    assert_eq!(roster.next_due(1), None);
    assert_eq!(roster.entries()[0].boots, []);
}

#[test]
fn ourselves_and_strangers_are_left_alone_for_a_minute() {
    for outcome in [DialOutcome::Myself, DialOutcome::OtherVersion(2)] {
        let mut roster = roster();
        appeared(&mut roster, ours(1), 0);
        assert_eq!(due(&mut roster, 0).len(), 1);
        roster.dialled(port(40_001), outcome, 10);
        appeared(&mut roster, ours(1), 20);
        assert_eq!(roster.next_due(20), Some(60_010));
        assert_eq!(roster.entries()[0].outcome, Some(outcome));
        appeared(&mut roster, Advert { addresses: vec![port(40_001)], ..ours(2) }, 1000);
        assert_eq!(roster.next_due(1000), Some(1000));
    }
}

#[test]
fn an_answer_with_a_wrong_byte_does_not_park_an_address_that_has_our_tag() {
    let mut roster = roster();
    appeared(&mut roster, ours(1), 0);
    assert_eq!(due(&mut roster, 0).len(), 1);
    roster.dialled(port(40_001), DialOutcome::OtherNamespace, 10);
    assert_eq!(roster.next_due(10), Some(260));
    // An address that only the user or a member has named is parked.
    roster.add(port(5000), Origin::Gossip, 20);
    assert_eq!(due(&mut roster, 20), [port(5000)]);
    roster.dialled(port(5000), DialOutcome::OtherNamespace, 30);
    assert_eq!(due(&mut roster, 260), [port(40_001)]);
    roster.dialled(port(40_001), DialOutcome::Authenticated(member(1)), 270);
    assert_eq!(roster.next_due(270), Some(60_030));
}

#[test]
fn a_good_bye_forgets_and_a_lost_link_remembers() {
    let mut roster = roster();
    for n in [1, 2] {
        appeared(&mut roster, ours(n), 0);
        assert_eq!(due(&mut roster, 0).len(), 1);
        roster.dialled(port(40_000 + n), DialOutcome::Authenticated(member(n)), 1);
    }
    roster.sighted(Sighting::Vanished { instance: ours(1).instance }, 10);
    assert_eq!(roster.entries().len(), 2);
    roster.link_down(member(1), 1000);
    roster.link_down(member(2), 1000);
    assert_eq!(due(&mut roster, 1000), [port(40_002)]);
    assert_eq!(roster.entries().len(), 1);
}

#[test]
fn strangers_get_a_burst_and_four_dials_a_second() {
    let mut roster = roster();
    (0..60).for_each(|n| appeared(&mut roster, ours(n), 0));
    assert_eq!(due(&mut roster, 0).len(), MEMBERS_MAX);
    assert_eq!(roster.next_due(0), None, "as many as a View has members are under way");
    let mut dialled = 0;
    let mut open: Vec<SocketAddr> = roster.entries().iter().map(|entry| entry.address).collect();
    for now_ms in (0..10_000).step_by(10) {
        open.drain(..).for_each(|to| roster.dialled(to, DialOutcome::Failed, now_ms));
        open = due(&mut roster, now_ms);
        dialled += open.len();
        assert!(roster.next_due(now_ms).is_none_or(|at| at > now_ms), "due leaves nothing due");
    }
    assert!((36..=40).contains(&dialled), "{dialled} dials in ten seconds");
}

#[test]
fn all_others_of_a_full_group_are_dialled_at_once() {
    let mut roster = roster();
    let others = MEMBERS_MAX as u16 - 1;
    (0..others).for_each(|n| appeared(&mut roster, ours(n), 0));
    assert_eq!(due(&mut roster, 0).len(), usize::from(others));
}

/// After a restart of all nodes, no node answers at the stored addresses.
#[test]
fn addresses_of_an_earlier_run_take_no_dials_from_those_that_are_advertised_now() {
    let mut roster = roster();
    let stored: Vec<SocketAddr> = (0..15).map(|n| port(30_000 + n)).collect();
    stored.iter().for_each(|to| roster.add(*to, Origin::Cache, 0));
    assert_eq!(due(&mut roster, 0), stored);
    (0..15).for_each(|n| appeared(&mut roster, ours(n), 10));
    assert_eq!(due(&mut roster, 10).len(), 15);
}

#[test]
fn a_direct_link_is_expected_until_its_dial_has_failed() {
    let mut roster = roster();
    let expects = |roster: &Roster, now_ms| roster.expects(Boot(1), now_ms);
    assert!(!expects(&roster, 0), "no advert");
    appeared(&mut roster, ours(1), 0);
    assert!(expects(&roster, 0), "due");
    assert!(!roster.expects(Boot(2), 0), "another boot");
    assert_eq!(due(&mut roster, 0), [port(40_001)]);
    assert!(expects(&roster, 0), "under way");
    roster.dialled(port(40_001), DialOutcome::Failed, 10);
    assert!(!expects(&roster, 10));
    assert_eq!(due(&mut roster, 260), [port(40_001)]);
    assert!(!expects(&roster, 260), "a later dial is no reason to wait");
}

#[test]
fn fixed_peers_do_not_wait_for_strangers() {
    let mut roster = roster();
    (0..60).for_each(|n| appeared(&mut roster, ours(n), 0));
    assert_eq!(due(&mut roster, 0).len(), MEMBERS_MAX);
    let fixed: Vec<SocketAddr> =
        (0..20).map(|n| SocketAddr::from(([203, 0, 113, 5], 80 + n))).collect();
    fixed.iter().for_each(|to| roster.add(*to, Origin::Fixed, 0));
    assert_eq!(due(&mut roster, 0), fixed);
}

#[test]
fn hints_are_held_to_the_policy() {
    let mut roster = roster();
    let elsewhere = SocketAddr::from(([192, 168, 1, 1], 5000));
    appeared(&mut roster, Advert { addresses: vec![elsewhere, port(22)], ..ours(1) }, 0);
    roster.add(elsewhere, Origin::Gossip, 0);
    roster.add(elsewhere, Origin::Cache, 0);
    assert_eq!(roster.entries(), []);
    // Behind a router an advert leads nowhere, and a member may name it.
    roster.set_policy(AddressPolicy::Lan(Vec::new()), 5);
    assert_eq!(due(&mut roster, 5), []);
    assert_eq!(roster.elsewhere().count(), 1);
    roster.add(elsewhere, Origin::Gossip, 5);
    assert_eq!(due(&mut roster, 5), [elsewhere]);
    roster.dialled(elsewhere, DialOutcome::Failed, 6);
    roster.set_policy(AddressPolicy::Loopback, 7);
    assert_eq!(roster.entries(), []);
}

/// 64 named peers, each with two addresses of 16 ports.
#[test]
fn as_many_fixed_peers_as_there_may_be_leave_room_for_others() {
    let mut roster = Roster::new(Limits::default(), AddressPolicy::everywhere(), ME, relation);
    let fixed = (0..64 * 2 * 16_u32).map(|n| {
        SocketAddr::from(((0x0a02_0000 + n / 16).to_be_bytes(), 47_474 + (n % 16) as u16))
    });
    fixed.clone().for_each(|to| roster.add(to, Origin::Fixed, 0));
    let other = SocketAddr::from(([10, 0, 0, 1], 47_474));
    appeared(&mut roster, Advert { addresses: vec![other], ..ours(1) }, 1);
    let known: BTreeSet<SocketAddr> = roster.entries().iter().map(|e| e.address).collect();
    assert!(fixed.chain([other]).all(|to| known.contains(&to)));
}

#[test]
fn a_flood_stays_bounded_and_does_not_displace_the_proven() {
    let mut roster = Roster::new(Limits::default(), AddressPolicy::everywhere(), ME, relation);
    let real = SocketAddr::from(([10, 0, 0, 1], 47_474));
    appeared(&mut roster, Advert { addresses: vec![real], ..ours(1) }, 0);
    assert_eq!(due(&mut roster, 0), [real]);
    roster.dialled(real, DialOutcome::Authenticated(member(1)), 1);
    roster.link_down(member(1), 2);
    for n in 0..20_000u32 {
        let boot = Boot(u64::from(n) + 10_000);
        let from = SocketAddr::from(((0x0a01_0000 + n / 30).to_be_bytes(), 2000 + (n % 30) as u16));
        let tag = tag_of(boot);
        let tags = (n % 3 != 0).then_some(Tags { cluster: tag, job: tag });
        let fake = Advert {
            instance: format!("f{n}"),
            boot,
            tags,
            addresses: vec![from],
            ..advert(0, None)
        };
        appeared(&mut roster, fake, 10 + u64::from(n));
    }
    let (entries, most) = (roster.entries(), Limits::default().entries);
    assert!(
        entries.len() <= most
            && roster.adverts.ours().count() <= most
            && roster.others().count() <= 64
    );
    assert!(entries.iter().any(|entry| entry.address == real));
    for entry in &entries {
        let same = entries
            .iter()
            .filter(|other| other.address.ip() == entry.address.ip() && other.verified.is_none())
            .count();
        assert!(same <= 8, "{same} entries of {}", entry.address.ip());
    }
    assert!(due(&mut roster, 30_000).contains(&real));
}

#[test]
fn replayed_adverts_of_one_boot_are_bounded() {
    let mut roster = roster();
    for n in 0..1000u16 {
        appeared(
            &mut roster,
            Advert { instance: format!("replay{n}"), addresses: vec![port(2000 + n)], ..ours(1) },
            u64::from(n),
        );
    }
    assert_eq!((roster.adverts.ours().count(), roster.entries().len()), (4, 4));
}

#[derive(Clone, Debug)]
enum Mention {
    Seen(u16, Vec<u16>),
    Added(u16, Origin),
    Up(u16),
}

fn mention() -> impl Strategy<Value = Mention> {
    let origin = prop_oneof![Just(Origin::Fixed), Just(Origin::Gossip), Just(Origin::Cache)];
    prop_oneof![
        (0u16..6, proptest::collection::vec(2000u16..2012, 0..4))
            .prop_map(|(n, ports)| Mention::Seen(n, ports)),
        (2000u16..2012, origin).prop_map(|(at, origin)| Mention::Added(at, origin)),
        (0u16..6).prop_map(Mention::Up),
    ]
}

fn take_in(roster: &mut Roster, mentions: &[Mention]) {
    for (number, mention) in mentions.iter().enumerate() {
        match mention {
            Mention::Seen(n, ports) => {
                let addresses = ports.iter().map(|at| port(*at)).collect();
                // One instance per content: a later advert of the same instance would replace the
                // earlier one.
                let instance = format!("{n}-{ports:?}");
                appeared(roster, Advert { instance, addresses, ..ours(*n) }, 50);
            }
            Mention::Added(at, origin) => roster.add(port(*at), *origin, 50),
            Mention::Up(n) => roster.link_up(member(*n)),
        }
        assert!(number < 100);
    }
}

proptest! {
    #[test]
    fn the_order_of_sightings_does_not_matter(
        (mentions, shuffled) in proptest::collection::vec(mention(), 0..12)
            .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
    ) {
        let no_limit = Limits { per_boot: 100, ..Limits::default() };
        let make = || Roster::new(no_limit.clone(), AddressPolicy::Loopback, ME, relation);
        let (mut one, mut two) = (make(), make());
        take_in(&mut one, &mentions);
        take_in(&mut two, &shuffled);
        prop_assert_eq!(one.entries(), two.entries());
        prop_assert_eq!(one.next_due(50), two.next_due(50));
        prop_assert_eq!(one.due(50), two.due(50));
    }

    #[test]
    fn a_dial_is_never_due_twice_nor_to_a_linked_peer(
        steps in proptest::collection::vec((mention(), 0u64..400, 0usize..4), 1..60),
    ) {
        let mut roster = roster();
        let mut open: Vec<Dial> = Vec::new();
        let mut now_ms = 0;
        for (mention, wait_ms, outcome) in steps {
            now_ms += wait_ms;
            take_in(&mut roster, &[mention]);
            for dial in roster.due(now_ms) {
                prop_assert!(open.iter().all(|other| other.to != dial.to));
                prop_assert!(dial.expected.is_none_or(|boot| !roster.links.is_proven(boot)));
                open.push(dial);
            }
            prop_assert!(roster.next_due(now_ms).is_none_or(|at| at > now_ms));
            let results = [
                DialOutcome::Failed,
                DialOutcome::Myself,
                DialOutcome::OtherNamespace,
                DialOutcome::Authenticated(member(3)),
            ];
            let result = results[outcome];
            if let Some(dial) = open.pop() {
                roster.dialled(dial.to, result, now_ms);
            }
        }
    }
}
