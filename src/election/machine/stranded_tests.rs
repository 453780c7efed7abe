//! A View is installed after this node has long lacked enough peers, and it is broken from the
//! start.

use super::super::agreement::Effect;
use super::super::config::ElectionConfig;
use super::testing::{self, all_of, ballot, linked, prepare, view};
use super::{Election, Input, LiveEnvironment, Operations};
use crate::protocol::{
    Ballot, Closing, CommittedOp, Heartbeat, Lane, Message, OpId, OpSet, Partition, Rank, View,
    ViewDigest, member_id, view_of,
};
use std::sync::Arc;

/// Operations of the View whose installation was carried out last.
struct Open {
    view: ViewDigest,
    committed: OpSet,
}

impl Operations for Open {
    fn freeze(&mut self, view: ViewDigest) -> Closing {
        let committed = if view == self.view { self.committed } else { OpSet::default() };
        Closing { committed, ..Closing::default() }
    }

    fn in_flight(&self) -> usize {
        0
    }
}

struct Node {
    election: Election,
    ops: Open,
}

impl Node {
    /// Effects are carried out after the step that asked for them.
    fn step(&mut self, now: u64, input: Input) -> Vec<Effect> {
        let effects = testing::step(&mut self.election, now, input, &mut self.ops);
        for effect in &effects {
            if let Effect::Install(view, _) = effect {
                self.ops = Open { view: view.digest(), committed: OpSet::default() };
            }
        }
        effects
    }

    fn hear(&mut self, now: u64, message: Message) -> Vec<Effect> {
        self.step(now, Input::Message(member_id(2), message))
    }
}

/// A heartbeat of node 2 that does not report node 1 as reachable: the two can form no View.
fn deaf() -> Message {
    Message::Heartbeat(Heartbeat::default())
}

/// The View of the first two members after this one, which decides by the reports of these ranks.
fn after(view: &View, ballot: Ballot, ranks: &[u8]) -> View {
    let decided_by = ranks.iter().copied().map(Rank).collect();
    View { ballot, parent: Some(view.id()), decided_by, ..view_of(2) }
}

/// Node 1 of a roster of three, of which a majority may go on. It was stranded in its first View
/// until it froze it. Now it is in its second View, with node 2 alone, which is broken from the
/// start because node 2 does not hear it.
fn in_a_broken_view() -> (Node, u64) {
    let roster = (1..=3).map(|n| member_id(n).node).collect();
    let config =
        ElectionConfig { partition: Partition::Majority { roster }, ..ElectionConfig::default() };
    let first = view(3, ballot(1, 2));
    let second = Arc::new(after(&first, ballot(2, 2), &[0, 1]));
    let ops = Open { view: first.digest(), committed: OpSet::default() };
    let mut node = Node { election: linked(&[2, 3], config), ops };
    for message in all_of(&first) {
        node.hear(0, message);
    }
    node.ops.committed.insert(CommittedOp { op: OpId { lane: Lane::MAIN, number: 0 }, digest: 1 });
    node.step(10, Input::Unreachable(member_id(3)));
    let mut now = 10;
    while !node.election.is_frozen() {
        now += 20;
        assert!(now < 10_000, "it never gave up");
        node.hear(now, deaf());
        node.step(now, Input::Tick);
    }
    let effects: Vec<Effect> =
        all_of(&second).into_iter().flat_map(|message| node.hear(now, message)).collect();
    assert!(
        effects.iter().any(|e| matches!(e, Effect::Install(view, _) if *view == second)),
        "{effects:?}"
    );
    (node, now)
}

fn promises(effect: &Effect) -> bool {
    matches!(effect, Effect::Send(_, Message::Promise(..)))
}

#[test]
fn a_new_view_has_the_whole_time_to_find_its_members() {
    let (mut node, begin) = in_a_broken_view();
    for now in (begin..begin + 1900).step_by(20) {
        node.hear(now, deaf());
        node.step(now, Input::Tick);
        assert!(!node.election.is_frozen(), "{} ms after it began", now - begin);
    }
}

/// Operations committed in the previous View are not part of this View's report.
#[test]
fn what_a_view_reports_is_its_own() {
    let (mut node, begin) = in_a_broken_view();
    let next = view(2, ballot(3, 2));
    let effects = node.hear(begin, prepare(&next));
    let promise = effects
        .iter()
        .find_map(|e| if let Effect::Send(_, Message::Promise(_, p)) = e { Some(p) } else { None });
    let promise = promise.unwrap_or_else(|| panic!("no promise: {effects:?}"));
    assert_eq!(
        (promise.prev.map(|id| id.digest), promise.closing.committed.len()),
        (Some(node.ops.view), 0)
    );
}

/// A member of a later View votes on nothing in this one. It withholds nothing.
#[test]
fn who_has_gone_on_without_this_node_is_known() {
    let (mut node, begin) = in_a_broken_view();
    node.hear(begin, deaf());
    assert!(!node.election.has_left_behind_this_node(member_id(2)));
    let later = view(2, ballot(3, 2));
    let Message::Heartbeat(heartbeat) = deaf() else { unreachable!("a heartbeat") };
    for now in [begin, begin + 20] {
        let elsewhere = Heartbeat { view: Some(later.id()), ..heartbeat.clone() };
        node.hear(now, Message::Heartbeat(elsewhere));
    }
    assert!(node.election.has_left_behind_this_node(member_id(2)));
    // It is lost and found again, in the same View as before.
    for input in [Input::Unreachable(member_id(2)), Input::LinkUp(member_id(2))] {
        node.step(begin + 40, input);
    }
    assert!(node.election.has_left_behind_this_node(member_id(2)), "forgotten with the link");
    node.hear(begin + 60, Message::Heartbeat(Heartbeat { view: Some(later.id()), ..heartbeat }));
    assert!(node.election.has_left_behind_this_node(member_id(2)));
}

/// A member that gives up the View that it would have accepted still waits for its disk, and says
/// so: the others need not ask it again.
#[test]
fn an_acceptance_that_is_given_up_still_occupies_the_disk() {
    let (mut node, now) = in_a_broken_view();
    let next = view(2, ballot(3, 2));
    node.hear(now, prepare(&next));
    let accept = Input::Message(member_id(2), Message::Accept(next));
    let mut effects = node.election.step(now, accept, &mut node.ops);
    let write = |e: &Effect| if let Effect::Persist(t, _) = e { Some(*t) } else { None };
    let ticket = effects.iter().find_map(write).expect("a write");
    let Election { agreement, links, .. } = &mut node.election;
    agreement.cut_off(&mut LiveEnvironment { ops: &mut node.ops, links }, &mut effects);
    assert!(node.election.agreement.is_persisting());
    let effects = node.election.step(now, Input::Persisted(ticket), &mut node.ops);
    assert!(!effects.iter().any(|e| matches!(e, Effect::Send(_, Message::Accepted(_)))));
    assert!(!node.election.agreement.is_persisting());
}

/// The rounds of a group may be far above all that a newcomer knows. It learns them from
/// heartbeats.
#[test]
fn a_node_that_knows_only_low_rounds_approaches_those_of_its_peers() {
    let (running, next) = (view(2, ballot(10_000_000, 2)), view(2, ballot(10_000_001, 2)));
    let Message::Heartbeat(heartbeat) = deaf() else { unreachable!("a heartbeat") };
    for heartbeats in [0, 20] {
        let (mut node, now) = in_a_broken_view();
        for _ in 0..heartbeats {
            let elsewhere = Heartbeat { view: Some(running.id()), ..heartbeat.clone() };
            node.hear(now, Message::Heartbeat(elsewhere));
        }
        let effects = node.hear(now, prepare(&next));
        assert_eq!(effects.iter().any(promises), heartbeats > 0, "after {heartbeats}");
    }
}

/// An honest proposer sends `Accept` only for a ballot that this node has promised. One of a round
/// far above would keep the node from all ballots of the others.
#[test]
fn a_view_of_a_round_far_above_is_not_accepted() {
    for round in [10_000_000, u64::MAX] {
        let (mut node, now) = in_a_broken_view();
        let effects = node.hear(now, Message::Accept(view(2, ballot(round, 2))));
        let accepts = |e: &Effect| matches!(e, Effect::Send(_, Message::Accepted(_)));
        assert!(!effects.iter().any(accepts), "round {round}");
        let effects = node.hear(now, prepare(&view(2, ballot(3, 2))));
        assert!(effects.iter().any(promises), "round {round}");
    }
}

/// An honest proposer has this member's report about the View that they leave.
#[test]
fn a_view_that_does_not_count_this_members_report_is_not_accepted() {
    let accepts = |ranks: &[u8]| {
        let (mut node, now) = in_a_broken_view();
        let left = node.election.agreement.installed().expect("a View").clone();
        let effects = node.hear(now, Message::Accept(Arc::new(after(&left, ballot(3, 2), ranks))));
        effects.iter().any(|e| matches!(e, Effect::Send(_, Message::Accepted(_))))
    };
    assert!(accepts(&[0, 1]) && accepts(&[0]));
    assert!(!accepts(&[1]) && !accepts(&[]));
}
