//! Silence limits of radio and relayed links, and one-way links.

use super::super::agreement::Effect;
use super::super::config::ElectionConfig;
use super::super::notice::Notice;
use super::testing::{self, Open};
use super::{Election, Input};
use crate::protocol::{Heartbeat, Message, Reached, member_id};

/// Node 1, with a link to node 2 since time 0.
fn linked() -> Election {
    testing::linked(&[2], ElectionConfig::default())
}

fn heartbeat(reaches: &[u8], radio: bool) -> Message {
    let reach = reaches.iter().map(|n| reached(*n, false)).collect();
    Message::Heartbeat(Heartbeat { reach, radio, ..Heartbeat::default() })
}

fn reached(n: u8, radio: bool) -> Reached {
    Reached { id: member_id(n), rtt_us: 0, relayed: false, radio }
}

/// Time from the last of ten heartbeats of node 2 to its loss, in milliseconds.
fn given_up_after(election: &mut Election, radio: bool) -> u64 {
    let last = 2500;
    for now in (0..=last).step_by(50) {
        election.step(now, Input::Tick, &mut Open(0));
        if now % 250 == 0 {
            election.step(now, Input::Message(member_id(2), heartbeat(&[1], radio)), &mut Open(0));
        }
    }
    let mut times = (last..last + 10_000).step_by(50);
    let drops = |e: &Effect| *e == Effect::Drop(member_id(2));
    let at = times.find(|now| election.step(*now, Input::Tick, &mut Open(0)).iter().any(drops));
    at.expect("it is given up at some time") - last
}

#[test]
fn whoever_is_at_either_end_of_a_radio_is_waited_for_longer() {
    assert_eq!(given_up_after(&mut linked(), false), 1550);
    let mut mine = linked();
    mine.set_over_radio(member_id(2));
    assert_eq!(given_up_after(&mut mine, false), 4050);
    assert_eq!(given_up_after(&mut linked(), true), 4050);
}

#[test]
fn the_other_end_is_told_of_this_ends_radio() {
    let mut election = linked();
    election.step(10, Input::LinkUp(member_id(3)), &mut Open(0));
    election.set_over_radio(member_id(3));
    let effects = election.step(260, Input::Tick, &mut Open(0));
    assert!(!told(&effects, 2).radio && told(&effects, 3).radio);
}

/// The heartbeat to this node.
fn told(effects: &[Effect], to: u8) -> &Heartbeat {
    let mut heartbeats = effects.iter().filter_map(|effect| match effect {
        Effect::Send(id, Message::Heartbeat(heartbeat)) if *id == member_id(to) => Some(heartbeat),
        _ => None,
    });
    heartbeats.next().expect("a heartbeat")
}

#[test]
fn a_peer_that_is_heard_and_hears_nothing_is_told_once_and_as_long_as_it_lasts() {
    let mut election = linked();
    let mut told = Vec::new();
    let mut shown = Vec::new();
    for now in (0..6000).step_by(50) {
        if now % 250 == 0 {
            let reaches: &[u8] = if now < 4000 { &[] } else { &[1] };
            election.step(
                now,
                Input::Message(member_id(2), heartbeat(reaches, false)),
                &mut Open(0),
            );
        }
        election.step(now, Input::Tick, &mut Open(0));
        told.extend(election.take_notices().into_iter().map(|notice| (now, notice)));
        shown.extend(election.one_way(now).map(|_| now));
    }
    assert_eq!(told, [(2000, Notice::OneWay(member_id(2)))]);
    assert_eq!((shown.first(), shown.last()), (Some(&2000), Some(&3950)));
}

/// Node 1 with direct links to 3 and 4, and a link to 2 relayed by `over` in this order.
fn relayed(over: &[u8]) -> Election {
    let mut election = testing::linked(&[3, 4], ElectionConfig::default());
    election.step(
        0,
        Input::RelayUp(member_id(2), over.iter().copied().map(member_id).collect()),
        &mut Open(0),
    );
    election
}

/// Heartbeat of a relay about its own links: (member, radio).
fn station(reaches: &[(u8, bool)]) -> Message {
    let reach = reaches.iter().map(|(n, radio)| reached(*n, *radio)).collect();
    Message::Heartbeat(Heartbeat { reach, ..Heartbeat::default() })
}

/// Time from the last heartbeat of node 2 to its loss while its relays live on, in milliseconds.
fn given_up_through(election: &mut Election, radio: bool) -> u64 {
    let last = 2500;
    let mut at = None;
    for now in (0..last + 20_000).step_by(50) {
        let effects = election.step(now, Input::Tick, &mut Open(0));
        at = at.or(effects.contains(&Effect::Drop(member_id(2))).then_some(now));
        for from in [3, 4] {
            election.step(
                now,
                Input::Message(
                    member_id(from),
                    station(&[(1, false), (2, radio), (7 - from, false)]),
                ),
                &mut Open(0),
            );
        }
        if now % 250 == 0 && now <= last {
            election.step(now, Input::Message(member_id(2), heartbeat(&[1], false)), &mut Open(0));
        }
    }
    at.expect("it is given up at some time") - last
}

#[test]
fn a_link_through_others_may_be_silent_for_as_long_as_all_links_on_the_way() {
    // One wired link is suspect after 750 ms and dead after twice that, at most 2 s. Limits add up
    // over the links: two links are dead after 3 s.
    assert_eq!(given_up_through(&mut relayed(&[3]), false), 3050);
    assert_eq!(given_up_through(&mut relayed(&[3, 4]), false), 4550);
    // The last link is a radio, as its relay reports.
    assert_eq!(given_up_through(&mut relayed(&[3]), true), 5550);
}

#[test]
fn others_hear_which_links_are_passed_on_and_a_direct_one_takes_over() {
    let mut election = relayed(&[3]);
    let told = |effects: &[Effect]| {
        let reach = told(effects, 3).reach.iter();
        reach.map(|r| (r.id.node.0[0], r.relayed)).collect::<Vec<_>>()
    };
    let effects = election.step(260, Input::Tick, &mut Open(0));
    assert_eq!(told(&effects), [(2, true), (3, false), (4, false)]);
    let (me, two) = (member_id(1), member_id(2));
    assert!(
        !election.links().is_direct(me, two) && election.suspects(900).count() == 2,
        "only direct links are suspect"
    );
    let effects = election.step(300, Input::LinkUp(two), &mut Open(0));
    assert_eq!(told(&effects), [(2, false), (3, false), (4, false)]);
    assert!(election.links().is_direct(me, two));
}

#[test]
fn a_silent_direct_link_is_suspect_before_it_is_given_up() {
    let mut election = linked();
    let mut suspect = Vec::new();
    let mut quiet = None;
    for now in (0..3000).step_by(50) {
        election.step(now, Input::Tick, &mut Open(0));
        suspect.extend(election.suspects(now).map(|_| now));
        quiet = quiet.or(election.is_quiet(now, member_id(2)).then_some(now));
    }
    assert_eq!((quiet, suspect.first(), suspect.last()), (Some(400), Some(&800), Some(&1500)));
}

/// How long node 2 still counts as reachable after its link went down, in milliseconds.
fn waited_for(election: &mut Election, late_ms: u64) -> u64 {
    election.step(980, Input::Tick, &mut Open(0));
    election.step(1000, Input::LinkDown(member_id(2)), &mut Open(0));
    let reaches = |election: &Election, now| election.reach(now).contains(&member_id(2));
    for now in (1020 + late_ms..).step_by(20) {
        for n in [3, 4] {
            election.step(now, Input::Heard(member_id(n)), &mut Open(0));
        }
        election.step(now, Input::Tick, &mut Open(0));
        if !reaches(election, now) {
            return now - 1000;
        }
    }
    unreachable!("nobody waits for ever")
}

#[test]
fn a_link_through_others_has_as_long_to_come_back_as_the_links_on_the_way() {
    assert_eq!(waited_for(&mut linked(), 0), 300);
    assert_eq!(waited_for(&mut relayed(&[3]), 0), 600);
    assert_eq!(waited_for(&mut relayed(&[3, 4]), 0), 900);
    // A node that did not run did not re-dial either.
    assert!(waited_for(&mut linked(), 400) > 500);
}
