//! The places of a View that may not have all nodes.

use super::super::agreement::Effect;
use super::super::config::ElectionConfig;
use super::super::left_out::LeftOut;
use super::testing::{Open, all_of, ballot, linked_with, step, view};
use super::{Election, Input};
use crate::identity::MemberId;
use crate::protocol::{
    Heartbeat, Member, Message, Reached, Sizes, View, ViewId, member_id, view_of,
};
use std::sync::Arc;

fn sizes([members, min, max]: [usize; 3]) -> Sizes {
    Sizes::new(members, min, max).expect("they are in order")
}

/// A heartbeat of a node that reaches all of the first four.
fn beat(view: Option<ViewId>, sizes: Sizes) -> Message {
    let reached = |n| Reached { id: member_id(n), rtt_us: 0, relayed: false, radio: false };
    let reach = (1..=4).map(reached).collect();
    Message::Heartbeat(Heartbeat {
        view,
        reach,
        sizes,
        begun: view.is_some(),
        ..Heartbeat::default()
    })
}

fn hear(election: &mut Election, now: u64, from: u8, message: Message) -> Vec<Effect> {
    step(election, now, Input::Message(member_id(from), message), &mut Open(0))
}

/// The members that node 1 asks for within ten seconds, while these peers say this.
fn asks(election: &mut Election, from: u64, beats: &[(u8, Message)]) -> Option<Vec<MemberId>> {
    for now in (from..from + 10_000).step_by(20) {
        let mut effects = step(election, now, Input::Tick, &mut Open(0));
        for (from, beat) in beats {
            effects.extend(hear(election, now, *from, beat.clone()));
        }
        let asked = effects.into_iter().find_map(|effect| match effect {
            Effect::Send(_, Message::Ask(members)) => Some(members),
            _ => None,
        });
        if asked.is_some() {
            return asked;
        }
    }
    None
}

/// Node 1 in a View of the first three, which allow no more.
fn in_a_full_view() -> (Election, Arc<View>) {
    let three = sizes([2, 2, 3]);
    let mut election = linked_with(&[2, 3, 4], ElectionConfig::default(), three);
    let members = view_of(3).members.into_iter().map(|m| Member { sizes: three, ..m }).collect();
    let full = Arc::new(View { members, ..(*view(3, ballot(1, 2))).clone() });
    for n in 2..=4 {
        hear(&mut election, 0, n, beat(None, three));
    }
    for message in all_of(&full) {
        hear(&mut election, 0, 2, message);
    }
    for n in 2..=3 {
        hear(&mut election, 0, n, beat(Some(full.id()), three));
    }
    assert!(election.agreement.installed().is_some_and(|view| view.size() == 3));
    (election, full)
}

#[test]
fn nodes_that_meet_ask_for_no_more_than_the_smallest_limit() {
    let mut election = linked_with(&[2, 3, 4], ElectionConfig::default(), Sizes::default());
    let beats = [(2, sizes([2, 2, 3])), (3, Sizes::default()), (4, Sizes::default())];
    let asked = asks(&mut election, 0, &beats.map(|(n, sizes)| (n, beat(None, sizes))));
    assert_eq!(asked, Some((1..=3).map(member_id).collect()));
}

#[test]
fn a_full_view_stays_as_it_is_beside_one_that_waits() {
    let (mut election, full) = in_a_full_view();
    let (three, id) = (sizes([2, 2, 3]), Some(full.id()));
    let beats = [(2, beat(id, three)), (3, beat(id, three)), (4, beat(None, three))];
    assert_eq!(asks(&mut election, 0, &beats), None);
    // Once there is a place, it is given away.
    step(&mut election, 10_000, Input::Unreachable(member_id(3)), &mut Open(0));
    let asked = asks(&mut election, 10_000, &[beats[0].clone(), beats[2].clone()]);
    assert_eq!(asked, Some([1, 2, 4].map(member_id).to_vec()));
}

#[test]
fn a_view_that_is_too_large_is_refused() {
    let (mut election, _) = in_a_full_view();
    let four: Vec<MemberId> = (1..=4).map(member_id).collect();
    let effects = hear(&mut election, 20, 2, Message::Ask(four.clone()));
    assert!(effects.contains(&Effect::Send(member_id(2), Message::Unwilling)), "{effects:?}");
    let effects = hear(&mut election, 20, 2, Message::Prepare(ballot(5, 2), four));
    assert_eq!(effects, []);
    assert!(!election.is_frozen());
}

#[test]
fn one_that_is_left_out_knows_it_and_asks_nobody() {
    let mut election = linked_with(&[2, 3, 4], ElectionConfig::default(), Sizes::default());
    let id = Some(view(3, ballot(1, 2)).id());
    let beats = |three| [2, 3, 4].map(|n| (n, beat(id, three)));
    assert_eq!(asks(&mut election, 0, &beats(sizes([2, 2, 3]))), None);
    assert_eq!(election.left_out(10_000), Some(LeftOut::NoPlace { members: 3, most: 3 }));
    // The others allow one more.
    assert!(asks(&mut election, 10_000, &beats(sizes([2, 2, 4]))).is_some());
    assert_eq!(election.left_out(10_000), None);
}
