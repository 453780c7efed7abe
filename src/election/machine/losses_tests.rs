//! Members that are excluded for their behaviour, by this node and by others.

use super::super::agreement::Effect;
use super::super::config::ElectionConfig;
use super::super::notice::Notice;
use super::losses::HEARS_MS;
use super::testing::{self, Open, all_of, ballot, linked};
use super::{Election, Input};
use crate::protocol::{Accused, Heartbeat, Message, Reached, View, member_id, view_of};
use crate::report::{LossReason, QuarantineReason};
use std::sync::Arc;

fn step(election: &mut Election, now: u64, input: Input) -> Vec<Effect> {
    testing::step(election, now, input, &mut Open(0))
}

fn hear(election: &mut Election, now: u64, from: u8, message: Message) -> Vec<Effect> {
    step(election, now, Input::Message(member_id(from), message))
}

fn install(election: &mut Election, now: u64, view: &Arc<View>) -> Vec<Effect> {
    let from = view.ballot.proposer.node.0[0];
    all_of(view).into_iter().flat_map(|message| hear(election, now, from, message)).collect()
}

/// A View of members 1 to 3, or without some of them.
fn view(round: u64, proposer: u8, members: &[u8]) -> Arc<View> {
    let mut view = View { ballot: ballot(round, proposer), ..view_of(3) };
    view.members.retain(|m| members.contains(&m.id.node.0[0]));
    Arc::new(view)
}

/// Member 1 of a View of three, and the time at which all is well.
fn member_of_three() -> (Election, u64) {
    let mut election = linked(&[2, 3], ElectionConfig::default());
    install(&mut election, 0, &view(1, 1, &[1, 2, 3]));
    for peer in [2, 3] {
        let beat = beat(&election, &[1, 5 - peer]);
        hear(&mut election, 10, peer, Message::Heartbeat(beat));
    }
    step(&mut election, 10, Input::Tick);
    assert!(election.agreement.installed().is_some() && !election.is_frozen());
    (election, 10)
}

/// A heartbeat from this node's View, of a member that reaches these.
fn beat(election: &Election, reaches: &[u8]) -> Heartbeat {
    let reached = |n: &u8| Reached { id: member_id(*n), rtt_us: 100, relayed: false, radio: false };
    Heartbeat {
        view: election.agreement.installed_id(),
        reach: reaches.iter().map(reached).collect(),
        ..Heartbeat::default()
    }
}

/// Whether member 2 is excluded now because it withholds its vote.
fn excludes(election: &Election, now: u64) -> bool {
    let effects = step(&mut election.clone(), now, Input::Withheld(member_id(2)));
    effects.contains(&Effect::Drop(member_id(2)))
}

/// A member that has promised another View votes on nothing in this one. While it says so, or waits
/// for its disk, that is no reason to exclude it; but it cannot say so for ever.
#[test]
fn a_member_that_has_promised_another_view_withholds_nothing() {
    let (mut election, begin) = member_of_three();
    assert!(excludes(&election, begin));
    let well = beat(&election, &[1, 3]);
    let beats = |election: &mut Election, now, of_2: &Heartbeat| {
        let of_3 = beat(election, &[1, 2]);
        hear(election, now, 2, Message::Heartbeat(of_2.clone()));
        hear(election, now, 3, Message::Heartbeat(of_3));
        step(election, now, Input::Tick);
    };
    beats(&mut election, begin, &Heartbeat { persisting: true, ..well.clone() });
    assert!(!excludes(&election, begin), "it waits for its disk");
    beats(&mut election, begin, &well);
    assert!(excludes(&election, begin));
    let promised = Heartbeat { promised: true, ..well };
    let end = begin + ElectionConfig::default().persisting_ms;
    for now in (begin..end).step_by(50) {
        beats(&mut election, now, &promised);
        assert!(!excludes(&election, now), "it has promised another View");
    }
    beats(&mut election, end, &promised);
    assert!(excludes(&election, end), "a promise leads to a View, or ends");
    // Where the View must be replaced, the next one decides.
    step(&mut election, end, Input::Unreachable(member_id(3)));
    assert!(!excludes(&election, end), "this node tries to replace the View, too");
}

/// Members 2 and 3 are in a later View without member 1, and now and then lose their links with it.
/// Its operations end all the same, although there are times at which it could propose a View.
#[test]
fn a_node_that_is_left_behind_waits_for_no_place_before_it_gives_up_its_operations() {
    let (mut election, begin) = member_of_three();
    let later = view(2, 3, &[2, 3]);
    let config = ElectionConfig::default();
    let given_up = (begin..begin + 60_000).step_by(50).find(|now| {
        let mut effects = Vec::new();
        for peer in [2, 3] {
            let there = Heartbeat { view: Some(later.id()), ..beat(&election, &[1, 5 - peer]) };
            effects.extend(hear(&mut election, *now, peer, Message::Heartbeat(there)));
            if now % 500 == 0 {
                effects.extend(hear(&mut election, *now, peer, Message::Unwilling));
            }
        }
        effects.extend(step(&mut election, *now, Input::Tick));
        election.is_frozen()
    });
    let given_up = given_up.expect("it gives up") - begin;
    assert!(given_up <= 3 * config.phase_ms + 100, "after {given_up} ms");
}

/// Member 3 has excluded member 2, for this reason, and member 2 still reaches this node. This node
/// proposes the View that follows, and hears of the exclusion before it has a reason of its own.
fn after_an_exclusion(accused: Vec<Accused>) -> (Election, u64, Vec<Effect>) {
    let (mut election, now) = member_of_three();
    let cut = Heartbeat { accused, ..beat(&election, &[1]) };
    let mut effects = hear(&mut election, now, 3, Message::Heartbeat(cut));
    effects.extend(step(&mut election, now, Input::Tick));
    (election, now, effects)
}

fn asks(effects: &[Effect], members: [u8; 2]) -> bool {
    let ask = Message::Ask(members.map(member_id).to_vec());
    effects.iter().any(|e| matches!(e, Effect::Send(_, message) if *message == ask))
}

#[test]
fn of_two_members_that_part_the_excluded_one_goes() {
    let (.., effects) = after_an_exclusion(Vec::new());
    assert!(asks(&effects, [1, 2]), "the smaller id: {effects:?}");
    let accused = vec![Accused { id: member_id(2), breach: false }];
    let (.., effects) = after_an_exclusion(accused);
    assert!(asks(&effects, [1, 3]), "{effects:?}");
}

#[test]
fn all_that_go_on_keep_an_excluded_member_out_for_the_same_reason() {
    for (breach, why, loss) in [
        (false, QuarantineReason::WithheldVote, LossReason::Withheld),
        (true, QuarantineReason::BrokeProtocol, LossReason::BrokeProtocol),
    ] {
        let (mut election, now, _) = after_an_exclusion(vec![Accused { id: member_id(2), breach }]);
        assert_eq!(election.quarantined(now).next(), None, "a report alone keeps nobody out");
        let next = view(2, 3, &[1, 3]);
        // Member 3 is in the next View first, and there it excludes no member.
        let there = Heartbeat { view: Some(next.id()), ..beat(&election, &[1]) };
        hear(&mut election, now, 3, Message::Heartbeat(there));
        install(&mut election, now, &next);
        assert_eq!(election.agreement.installed_id(), Some(next.id()));
        let kept_out: Vec<_> = election.quarantined(now).map(|(id, _, why)| (id, why)).collect();
        assert_eq!(kept_out, [(member_id(2).node, why)]);
        let lost = Notice::Lost(member_id(2), loss);
        let notices = election.take_notices();
        assert!(notices.contains(&lost), "{notices:?}");
    }
}

/// A member must not be excluded for an answer that is still held back.
#[test]
fn heartbeats_that_were_held_back_do_not_show_that_a_member_hears_this_node() {
    let (mut election, mut now) = member_of_three();
    let beats = |election: &mut Election, now: &mut u64, until: u64| {
        while *now < until {
            *now += 100;
            let beat = beat(election, &[1, 3]);
            hear(election, *now, 2, Message::Heartbeat(beat));
            step(election, *now, Input::Tick);
        }
    };
    beats(&mut election, &mut now, 3000);
    assert!(election.hears_this_node(now, member_id(2)));
    // Nothing for a second, then all at once.
    for _ in 0..10 {
        now += 100;
        step(&mut election, now, Input::Tick);
    }
    for _ in 0..10 {
        let beat = beat(&election, &[1, 3]);
        hear(&mut election, now, 2, Message::Heartbeat(beat));
    }
    assert!(!election.hears_this_node(now, member_id(2)));
    let until = now + HEARS_MS;
    beats(&mut election, &mut now, until);
    assert!(election.hears_this_node(now, member_id(2)));
}
