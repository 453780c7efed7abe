//! Which of several `Prepare` messages is promised when operations may finish first.

use super::super::agreement::Effect;
use super::super::config::ElectionConfig;
use super::testing::{self, Open, all_of, ballot, linked, view};
use super::{Election, Input};
use crate::protocol::{Heartbeat, Message, member_id, view_of};

/// Member 1 of a View of three that has one operation open.
fn busy_member() -> Election {
    let mut election = linked(&[2, 3], ElectionConfig::default());
    for message in all_of(&view(3, ballot(1, 2))) {
        tell(&mut election, 0, 2, message);
    }
    election
}

fn prepare(round: u64, proposer: u8) -> Message {
    testing::prepare(&view(3, ballot(round, proposer)))
}

/// The messages to others.
fn tell(election: &mut Election, now: u64, from: u8, message: Message) -> Vec<(u8, Message)> {
    answers(election, now, Input::Message(member_id(from), message))
}

fn answers(election: &mut Election, now: u64, input: Input) -> Vec<(u8, Message)> {
    let effects = testing::step(election, now, input, &mut Open(1));
    let said = |effect| {
        if let Effect::Send(to, message) = effect { Some((to.node.0[0], message)) } else { None }
    };
    let routine = |message: &Message| matches!(message, Message::Heartbeat(_) | Message::Ask(_));
    effects.into_iter().filter_map(said).filter(|(_, message)| !routine(message)).collect()
}

fn promised(answers: &[(u8, Message)]) -> Vec<(u8, u64)> {
    let promise = |(to, message): &(u8, Message)| {
        if let Message::Promise(b, _) = message { Some((*to, b.round)) } else { None }
    };
    answers.iter().filter_map(promise).collect()
}

#[test]
fn the_higher_of_two_ballots_is_promised_when_the_drain_is_over_and_the_lower_one_hears_so_at_once()
{
    for (first, second) in [((5, 2), (3, 3)), ((3, 3), (5, 2))] {
        let mut election = busy_member();
        assert_eq!(tell(&mut election, 10, first.1, prepare(first.0, first.1)), []);
        let said = tell(&mut election, 20, second.1, prepare(second.0, second.1));
        assert_eq!(
            said,
            [(3, Message::Nack(ballot(3, 3), ballot(5, 2)))],
            "{first:?} then {second:?}"
        );
        // The drain time runs from the first `Prepare`.
        assert_eq!(promised(&answers(&mut election, 509, Input::Tick)), []);
        assert_eq!(promised(&answers(&mut election, 510, Input::Tick)), [(2, 5)]);
    }
}

#[test]
fn the_same_question_twice_is_answered_once() {
    let mut election = busy_member();
    for at in [10, 20] {
        assert_eq!(tell(&mut election, at, 2, prepare(5, 2)), []);
    }
    assert_eq!(promised(&answers(&mut election, 510, Input::Tick)), [(2, 5)]);
}

/// As after months in which others have made Views.
#[test]
fn a_node_that_has_missed_many_rounds_learns_them_in_steps() {
    const FAR: u64 = 5_000_000;
    // 2^20 rounds with each question.
    for (questions, round) in [(4, 2), (5, FAR)] {
        let mut election = busy_member();
        assert_eq!(tell(&mut election, 10, 2, prepare(2, 2)), []);
        (0..questions).for_each(|n| _ = tell(&mut election, 11 + n, 2, prepare(FAR, 2)));
        assert_eq!(promised(&answers(&mut election, 510, Input::Tick)), [(2, round)]);
    }
}

#[test]
fn what_would_not_be_promised_is_not_drained_for() {
    let mut election = busy_member();
    tell(&mut election, 10, 2, prepare(5, 2));
    // Not sent by its proposer, without this member, a round too far ahead, again not sent by its
    // proposer, too low.
    assert_eq!(tell(&mut election, 20, 3, prepare(9, 2)), []);
    assert_eq!(
        tell(&mut election, 20, 3, Message::Prepare(ballot(9, 3), [2, 3].map(member_id).to_vec())),
        []
    );
    assert_eq!(tell(&mut election, 20, 3, prepare(u64::MAX, 3)), []);
    assert_eq!(tell(&mut election, 20, 3, prepare(1, 1)), []);
    assert_eq!(
        tell(&mut election, 20, 3, prepare(0, 3)),
        [(3, Message::Nack(ballot(0, 3), ballot(1, 2)))]
    );
    assert_eq!(promised(&answers(&mut election, 510, Input::Tick)), [(2, 5)]);
}

/// It votes no more, so an operation that it has not begun would last until the drain is over.
#[test]
fn a_drain_ends_when_another_member_has_promised_the_next_view() {
    let mut election = busy_member();
    assert_eq!(tell(&mut election, 10, 2, prepare(5, 2)), []);
    let (view, other) = (election.agreement.installed_id(), Some(view_of(2).id()));
    let heartbeat =
        |promised, view| Message::Heartbeat(Heartbeat { view, promised, ..Heartbeat::default() });
    assert_eq!(tell(&mut election, 20, 3, heartbeat(false, view)), []);
    assert_eq!(promised(&tell(&mut election, 20, 3, heartbeat(true, other))), []);
    assert_eq!(promised(&tell(&mut election, 20, 3, heartbeat(true, view))), [(2, 5)]);
}

#[test]
fn a_member_that_promises_says_so_at_once() {
    let mut election = busy_member();
    tell(&mut election, 10, 2, prepare(5, 2));
    let effects = election.step(510, Input::Tick, &mut Open(1));
    let told = effects.iter().filter(
        |e| matches!(e, Effect::Send(_, Message::Heartbeat(heartbeat)) if heartbeat.promised),
    );
    assert_eq!(told.count(), 2, "{effects:?}");
}
