//! Layer: Core.
//!
//! A View whose members are all here, and which rank 0 has found to be on the wrong engine.

use super::{Election, Input, Operations};
use crate::collective::Closing;
use crate::election::message::{Heartbeat, Reached};
use crate::election::{Applicant, Durable, Effect, ElectionConfig, Message};
use crate::engine::Engines;
use crate::identity::Name;
use crate::view::testing::{member_id, view_of};
use crate::view::{View, ViewDigest};
use std::sync::Arc;

/// Nothing is open.
struct Idle;

impl Operations for Idle {
    fn freeze(&mut self, _: ViewDigest) -> Closing {
        Closing::default()
    }

    fn in_flight(&self) -> usize {
        0
    }
}

/// Member `me` of a View of three, linked with both others.
fn member(me: u8) -> (Election, Arc<View>) {
    let applicant = Applicant { id: member_id(me), name: Name::from_lossy("a"), stateless: false, engines: Engines::GLOO };
    let mut election = Election::new(applicant, Durable::default(), ElectionConfig::default());
    let view = Arc::new(view_of(3));
    for other in others(me) {
        step(&mut election, 0, Input::LinkUp(member_id(other)));
    }
    for message in [
        Message::Prepare(view.ballot, [1, 2, 3].map(member_id).to_vec()),
        Message::Accept(Arc::clone(&view)),
        Message::Install(view.id()),
    ] {
        step(&mut election, 0, Input::Message(view.ballot.proposer, message));
    }
    for other in others(me) {
        hear(&mut election, 0, other, &view, false);
    }
    (election, view)
}

fn others(me: u8) -> impl Iterator<Item = u8> {
    (1..=3).filter(move |other| *other != me)
}

/// The disk is instant.
fn step(election: &mut Election, now: u64, input: Input) -> Vec<Effect> {
    let mut effects = election.step(now, input, &mut Idle);
    let tickets: Vec<u64> = effects.iter().filter_map(|e| if let Effect::Persist(t, _) = e { Some(*t) } else { None }).collect();
    effects.extend(tickets.into_iter().flat_map(|t| election.step(now, Input::Persisted(t), &mut Idle)));
    effects
}

/// A heartbeat of somebody who reaches everybody.
fn hear(election: &mut Election, now: u64, from: u8, view: &View, outgrown: bool) -> Vec<Effect> {
    let reach = others(from).map(|id| Reached { id: member_id(id), rtt_us: 100, relayed: false, radio: false }).collect();
    let heartbeat = Heartbeat { view: Some(view.id()), reach, persisting: false, broken: false, outgrown, radio: false };
    step(election, now, Input::Message(member_id(from), Message::Heartbeat(heartbeat)))
}

fn asks(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Send(_, Message::Ask(_))))
}

/// What it answers when `from` wants a View of the same members.
fn answer(election: &mut Election, now: u64, from: u8) -> Option<Message> {
    let question = Message::Ask([1, 2, 3].map(member_id).to_vec());
    let effects = step(election, now, Input::Message(member_id(from), question));
    let verdict = |effect| {
        if let Effect::Send(_, message @ (Message::Willing | Message::Unwilling)) = effect { Some(message) } else { None }
    };
    effects.into_iter().find_map(verdict)
}

#[test]
fn rank_0_asks_at_once_for_a_view_of_the_same_members() {
    let (mut first, view) = member(1);
    assert!(!asks(&step(&mut first, 10, Input::Outgrown(view_of(2).digest()))), "that View is another one");
    assert!(!asks(&step(&mut first, 15, Input::Tick)), "nothing is wrong");
    let effects = step(&mut first, 20, Input::Outgrown(view.digest()));
    let told = |effect: &Effect| matches!(effect, Effect::Send(_, Message::Heartbeat(heartbeat)) if heartbeat.outgrown);
    assert_eq!(effects.iter().filter(|effect| told(effect)).count(), 2, "{effects:?}");
    assert!(asks(&effects) || asks(&step(&mut first, 40, Input::Tick)));
}

#[test]
fn others_believe_it_of_rank_0_and_of_nobody_else() {
    let (mut election, view) = member(2);
    assert_eq!(answer(&mut election, 10, 3), Some(Message::Unwilling));
    hear(&mut election, 20, 3, &view, true);
    assert_eq!(answer(&mut election, 30, 3), Some(Message::Unwilling), "rank 2 has not measured anything");
    hear(&mut election, 40, 1, &view, true);
    assert_eq!(answer(&mut election, 50, 3), Some(Message::Willing));
    let (mut election, _) = member(2);
    let earlier = view_of(2);
    hear(&mut election, 40, 1, &earlier, true);
    assert_eq!(answer(&mut election, 50, 3), Some(Message::Unwilling), "it spoke of another View");
}
