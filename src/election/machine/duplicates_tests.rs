//! Two processes with one identity: which of them keeps its place.

use super::super::agreement::Effect;
use super::super::config::ElectionConfig;
use super::super::detector::Limits;
use super::testing::{self, Open, linked};
use super::{Election, Input};
use crate::identity::{Boot, MemberId};
use crate::protocol::{Message, member_id};

fn step(election: &mut Election, now: u64, input: Input) -> Vec<Effect> {
    testing::step(election, now, input, &mut Open(0))
}

/// The process of node 2 that has a link since time 0.
fn holder() -> MemberId {
    member_id(2)
}

/// Another process of node 2.
fn newcomer() -> MemberId {
    MemberId { boot: Boot(holder().boot.0 + 1), ..holder() }
}

/// Node 1, which node 2 has dialled as a second process, and the numbers of the pings to the first.
fn contested(now: u64) -> (Election, Vec<u64>) {
    let mut election = linked(&[2], ElectionConfig::default());
    let effects = step(&mut election, now, Input::LinkUp(newcomer()));
    (election, pings(&effects))
}

fn pings(effects: &[Effect]) -> Vec<u64> {
    let ping = |effect: &Effect| match effect {
        Effect::Send(to, Message::Ping(number)) if *to == holder() => Some(*number),
        _ => None,
    };
    effects.iter().filter_map(ping).collect()
}

/// Ticks in this interval. Returns the effects.
fn pass(election: &mut Election, from: u64, to: u64) -> Vec<Effect> {
    (from..=to).step_by(20).flat_map(|now| step(election, now, Input::Tick)).collect()
}

fn is_refused(effects: &[Effect]) -> bool {
    let told =
        |e: &Effect| matches!(e, Effect::Send(to, Message::Duplicate(_)) if *to == newcomer());
    effects.iter().any(told) && effects.contains(&Effect::Drop(newcomer()))
}

fn has_a_place(election: &Election, process: MemberId, now: u64) -> bool {
    election.reach(now).contains(&process)
}

/// A busy process, or one behind a Wi-Fi that saves power, answers late.
#[test]
fn a_process_keeps_its_place_until_it_is_dead() {
    for limits in [Limits::WIRED, Limits::RADIO] {
        let config = ElectionConfig { limits, ..ElectionConfig::default() };
        let mut election = linked(&[2], config);
        let asked = pings(&step(&mut election, 0, Input::LinkUp(newcomer())));
        let late = limits.suspect_floor_ms * 19 / 10;
        let before = pass(&mut election, 20, late);
        assert!(!before.contains(&Effect::Drop(holder())) && !is_refused(&before));
        let answer = Input::Message(holder(), Message::Pong(asked[0]));
        assert!(is_refused(&step(&mut election, late, answer)), "{limits:?}");
        assert!(has_a_place(&election, holder(), late));
    }
}

#[test]
fn a_process_that_is_silent_for_too_long_is_succeeded() {
    let (mut election, _) = contested(0);
    let effects = pass(&mut election, 20, Limits::WIRED.dead_cap_ms + 20);
    assert!(effects.contains(&Effect::Drop(holder())) && !is_refused(&effects));
    assert!(has_a_place(&election, newcomer(), Limits::WIRED.dead_cap_ms + 20));
}

/// A link that is dialled again in time is no end of its process, which is asked again: the first
/// question may have been lost.
#[test]
fn a_process_whose_link_comes_back_keeps_its_place() {
    for breaks_first in [true, false] {
        let mut election = linked(&[2], ElectionConfig::default());
        let inputs = [Input::LinkDown(holder()), Input::LinkUp(newcomer())];
        let order = if breaks_first { [0, 1] } else { [1, 0] };
        for place in order {
            step(&mut election, 100, inputs[place].clone());
        }
        assert!(!has_a_place(&election, newcomer(), 100), "it waits");
        let asked = pings(&step(&mut election, 200, Input::LinkUp(holder())));
        let answer = Input::Message(holder(), Message::Pong(asked[0]));
        assert!(is_refused(&step(&mut election, 210, answer)));
        assert!(has_a_place(&election, holder(), 210));
    }
}

#[test]
fn a_process_whose_link_does_not_come_back_is_succeeded() {
    let redial_ms = ElectionConfig::default().redial_ms;
    let (mut election, _) = contested(0);
    step(&mut election, 100, Input::LinkDown(holder()));
    pass(&mut election, 120, 100 + redial_ms + 20);
    assert!(has_a_place(&election, newcomer(), 100 + redial_ms + 20));

    let (mut election, _) = contested(0);
    step(&mut election, 100, Input::Unreachable(holder()));
    assert!(has_a_place(&election, newcomer(), 100), "nobody listens there any more");
}
