//! Layer: Core.
//!
//! Radios, and ways that work in one direction only.

use super::{Election, Input, Operations};
use crate::collective::Closing;
use crate::election::message::{Heartbeat, Reached};
use crate::election::{Applicant, Durable, Effect, ElectionConfig, Message, Notice};
use crate::engine::Engines;
use crate::identity::Name;
use crate::view::ViewDigest;
use crate::view::testing::member_id;

struct Idle;

impl Operations for Idle {
    fn freeze(&mut self, _: ViewDigest) -> Closing {
        Closing::default()
    }

    fn in_flight(&self) -> usize {
        0
    }
}

/// Node 1 with a link to node 2 since the time 0.
fn linked() -> Election {
    let applicant = Applicant { id: member_id(1), name: Name::from_lossy("a"), stateless: false, engines: Engines::NATIVE };
    let mut election = Election::new(applicant, Durable::default(), ElectionConfig::default());
    election.step(0, Input::LinkUp(member_id(2)), &mut Idle);
    election
}

fn heartbeat(reaches: &[u8], radio: bool) -> Message {
    let reach = reaches.iter().map(|n| Reached { id: member_id(*n), rtt_us: 0 }).collect();
    Message::Heartbeat(Heartbeat { view: None, reach, persisting: false, broken: false, radio })
}

/// When node 2 is given up if it says nothing any more after ten heartbeats of that kind.
fn given_up_after(election: &mut Election, radio: bool) -> u64 {
    let last = 2500;
    for now in (0..=last).step_by(50) {
        election.step(now, Input::Tick, &mut Idle);
        if now % 250 == 0 {
            election.step(now, Input::Message(member_id(2), heartbeat(&[1], radio)), &mut Idle);
        }
    }
    let mut times = (last..last + 10_000).step_by(50);
    let drops = |e: &Effect| *e == Effect::Drop(member_id(2));
    let at = times.find(|now| election.step(*now, Input::Tick, &mut Idle).iter().any(drops));
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
    election.step(10, Input::LinkUp(member_id(3)), &mut Idle);
    election.set_over_radio(member_id(3));
    let effects = election.step(260, Input::Tick, &mut Idle);
    let said = |to: u8| {
        let to_it = |e: &Effect| {
            if let Effect::Send(id, Message::Heartbeat(h)) = e { (*id == member_id(to)).then_some(h.radio) } else { None }
        };
        effects.iter().find_map(to_it)
    };
    assert_eq!((said(2), said(3)), (Some(false), Some(true)));
}

#[test]
fn a_peer_that_is_heard_and_hears_nothing_is_told_once_and_as_long_as_it_lasts() {
    let mut election = linked();
    let mut told = Vec::new();
    let mut shown = Vec::new();
    for now in (0..6000).step_by(50) {
        if now % 250 == 0 {
            let reaches: &[u8] = if now < 4000 { &[] } else { &[1] };
            election.step(now, Input::Message(member_id(2), heartbeat(reaches, false)), &mut Idle);
        }
        election.step(now, Input::Tick, &mut Idle);
        told.extend(election.take_notices().into_iter().map(|notice| (now, notice)));
        shown.extend(election.one_way(now).map(|_| now));
    }
    assert_eq!(told, [(2000, Notice::OneWay(member_id(2)))]);
    assert_eq!((shown.first(), shown.last()), (Some(&2000), Some(&3950)));
}
