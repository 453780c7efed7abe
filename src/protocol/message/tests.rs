//! Messages of a control link: their encoding, and their largest lengths.

use super::super::lane_set::LaneSet;
use super::super::op_id::{Lane, OpId};
use super::super::op_set::OpSet;
use super::super::rate::RateStep;
use super::super::relay_frame::{Circuit, RelayBody};
use super::super::revision::{LANES_TOLD_MAX, PlanStep};
use super::super::view::{OPS_LISTED_MAX, member_id, view_of};
use super::super::vote::{LaneStates, Listed, Status};
use super::*;
use crate::wire::assert_codec;

fn many_lanes() -> LaneStates {
    let mut stateful = LaneSet::default();
    (0..100).for_each(|tag| stateful.insert(Lane::tagged(tag)));
    LaneStates { caught_up: stateful.clone(), stateful }
}

#[test]
fn every_message_survives_the_wire() {
    let view = Arc::new(view_of(3));
    let op = OpId { lane: Lane::MAIN, number: 4 };
    let mut committed = OpSet::default();
    committed.insert(CommittedOp { op: OpId { lane: Lane::MAIN, number: 77 }, digest: 5 });
    let promise = Promise {
        prev: Some(view.id()),
        rank: Some(Rank(2)),
        base: Some(History { ops: 3, lineage: [1; 32] }),
        common: Some(History { ops: 4, lineage: [2; 32] }),
        closing: Closing {
            ops: vec![Listed { op, status: Status::Done(3), is_sync: false }],
            committed,
            lanes: many_lanes(),
        },
        cut_off: true,
        accepted: Some(Accepted {
            id: view.id(),
            parent: None,
            decided_by: RankSet::of_bits(5),
            committed: vec![CommittedOp { op, digest: 9 }],
            failed: vec![FailedOp { op, failure: Failure::Disputed(Some(Rank(1))) }],
        }),
        accepted_here: Some(Rank(1)),
        is_late: true,
        if_installed: Some(History { ops: 5, lineage: [3; 32] }),
        is_behind: true,
        name: Name::from_lossy("mini"),
        stateless: true,
        engines: Engines::GLOO,
        begun: true,
        sizes: Sizes::default(),
    };
    let heartbeat = Heartbeat {
        view: Some(view.id()),
        reach: vec![
            Reached { id: member_id(1), rtt_us: 0, relayed: true, radio: false },
            Reached { id: member_id(2), rtt_us: 180, relayed: false, radio: true },
        ],
        persisting: true,
        broken: true,
        radio: true,
        keeps_out_ms: 9000,
        promised: true,
        accused: vec![Accused { id: member_id(3), breach: true }],
        begun: true,
        sizes: Sizes::default(),
    };
    let v6: SocketAddr = "[fe80::1]:47474".parse().unwrap();
    let v4: SocketAddr = "10.0.0.1:1".parse().unwrap();
    let messages = [
        Message::Heartbeat(heartbeat.clone()),
        Message::Heartbeat(Heartbeat { view: None, ..heartbeat }),
        Message::Ask(vec![member_id(1)]),
        Message::Willing,
        Message::Unwilling,
        Message::Prepare(view.ballot, vec![member_id(1)]),
        Message::Promise(view.ballot, Box::new(promise)),
        Message::Nack(view.ballot, Ballot::ZERO),
        Message::Accept(Arc::clone(&view)),
        Message::Accepted(view.id()),
        Message::Install(view.id()),
        Message::Leave,
        Message::Ping(1),
        Message::Pong(u64::MAX),
        Message::Duplicate(Duplicate { boot: Boot(7), settled: true }),
        Message::Plan(Box::new(PlanMessage {
            view: view.digest(),
            body: PlanStep::Switched { revision: 1 },
        })),
        Message::Rate(RateMessage { view: view.digest(), body: RateStep::Enough }),
        Message::Dial(view.digest()),
        Message::Relay(Box::new(RelayFrame {
            circuit: Circuit { by_sender: true, number: 3 },
            body: RelayBody::Bytes(vec![1, 2, 3]),
        })),
        Message::Post(Box::new(Post { view: view.digest(), key: "0".into(), value: vec![1; 9] })),
        Message::Peers(vec![
            PeerAddress { id: member_id(1), address: v4 },
            PeerAddress { id: member_id(2), address: v6 },
        ]),
    ];
    for message in &messages {
        assert_codec(message);
    }
}

#[test]
fn the_largest_messages_fit() {
    let op = |number| CommittedOp { op: OpId { lane: Lane::MAIN, number }, digest: u128::MAX };
    let ops: Vec<CommittedOp> = (0..OPS_DECIDED_MAX as u64).map(op).collect();
    let mut view = view_of(MEMBERS_MAX as u8);
    view.parent = Some(ViewId { ballot: Ballot::ZERO, digest: view.digest() });
    view.committed = ops.clone();
    view.plan.reason = "x".repeat(super::super::plan::Plan::REASON_BYTES_MAX);
    for member in &mut view.members {
        member.name = Name::from_lossy(&"é".repeat(Name::CHARS_MAX));
    }
    assert!(Message::Accept(Arc::new(view.clone())).to_bytes().len() < MESSAGE_BYTES_MAX);
    let listed =
        |op: &CommittedOp| Listed { op: op.op, status: Status::Done(u128::MAX), is_sync: true };
    let promise = Promise {
        prev: view.parent,
        rank: Some(Rank(2)),
        base: Some(History { ops: 0, lineage: [0; 32] }),
        common: Some(History { ops: 0, lineage: [0; 32] }),
        closing: Closing {
            ops: ops.iter().take(OPS_LISTED_MAX).map(listed).collect(),
            committed: OpSet::default(),
            lanes: many_lanes(),
        },
        cut_off: true,
        accepted: Some(Accepted {
            id: view.id(),
            parent: view.parent,
            committed: ops,
            failed: Vec::new(),
            decided_by: RankSet::ALL,
        }),
        accepted_here: Some(Rank(1)),
        is_late: true,
        if_installed: Some(History { ops: 5, lineage: [3; 32] }),
        is_behind: true,
        name: Name::from_lossy("x"),
        stateless: false,
        engines: Engines::GLOO,
        begun: true,
        sizes: Sizes::default(),
    };
    assert!(Message::Promise(view.ballot, Box::new(promise)).to_bytes().len() < MESSAGE_BYTES_MAX);
    let lanes = (0..LANES_TOLD_MAX as u64)
        .map(|lane| OpId { lane: Lane::of_view(lane), number: u64::MAX })
        .collect();
    let body = PlanStep::Held { revision: u32::MAX, next: Some(lanes) };
    assert!(
        Message::Plan(Box::new(PlanMessage { view: view.digest(), body })).to_bytes().len()
            < MESSAGE_BYTES_MAX
    );
}
