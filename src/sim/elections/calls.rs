//! Operations: calls of the programs, messages between the ledgers, and outcomes.

use super::super::claims::{Act, Claim, Ending, Scope};
use super::world::World;
use crate::collective::LedgerEffect;
use crate::election::Input;
use crate::identity::MemberId;
use crate::memory::DType;
use crate::protocol::{
    AbortReason, Call, CodecId, Kind, Lane, Message, Mode, OpBody, OpId, OpMessage, Outcome,
    ReduceOp, View, ViewId,
};
use std::sync::Arc;

const SUM: Call = Call {
    kind: Kind::AllReduce(ReduceOp::Sum),
    dtype: DType::F32,
    count: 8,
    codec: CodecId::None,
    mode: Mode::PerOp,
};
const BEST_EFFORT: Lane = Lane(100);

impl World {
    /// Sets the longest time an engine takes for a result.
    pub(crate) fn engines(&mut self, ms: u64) {
        self.engine_ms = ms;
    }

    /// Calls one all_reduce on this node. Its engine finishes when all members have described
    /// theirs, or up to `engine_ms` later.
    pub(crate) fn call(&mut self, n: u8) {
        self.call_as(n, Lane::MAIN, SUM);
    }

    /// Calls an all_reduce in a lane with this tag.
    pub(super) fn call_in(&mut self, n: u8, lane: u32) {
        self.call_as(n, Lane::tagged(lane), SUM);
    }

    pub(crate) fn sync(&mut self, n: u8, version: u64) {
        self.call_as(n, Lane::MAIN, Call { kind: Kind::Sync { version }, dtype: DType::U8, ..SUM });
    }

    /// Calls a `sync` in a lane with this tag.
    pub(super) fn sync_in(&mut self, n: u8, lane: u32) {
        self.call_as(
            n,
            Lane::tagged(lane),
            Call { kind: Kind::Sync { version: 0 }, dtype: DType::U8, ..SUM },
        );
    }

    /// Calls a step of two parts.
    pub(super) fn step(&mut self, n: u8) {
        self.call_as(n, Lane::MAIN, Call { kind: Kind::Step { parts: 2 }, ..SUM });
    }

    /// Both ends call a message if they are in the same View.
    pub(super) fn message(&mut self, a: u8, b: u8) {
        let rank =
            |n: u8| self.nodes.get(&n).and_then(|node| node.book.view.as_ref()?.rank_of(node.id()));
        let (Some(from), Some(to)) = (rank(a), rank(b)) else { return };
        if self.nodes[&a].book.view == self.nodes[&b].book.view {
            let call = Call { kind: Kind::Message { from, to, tag: 7 }, ..SUM };
            for end in [a, b] {
                self.call_as(end, Lane::MAIN.messages(from, to), call);
            }
        }
    }

    /// Calls a best-effort operation, in a lane of its own.
    pub(super) fn best_effort(&mut self, n: u8) {
        self.call_as(n, BEST_EFFORT, Call { mode: Mode::BestEffort, ..SUM });
    }

    /// Aborts all open operations of this node, as after a deadline or a dropped future.
    pub(crate) fn give_up(&mut self, n: u8) {
        let Some(ledger) = self.nodes.get_mut(&n).and_then(|node| node.book.ledger.as_mut()) else {
            return;
        };
        let open: Vec<OpId> = ledger.undecided().collect();
        open.into_iter().for_each(|op| ledger.abort(op, AbortReason::Deadline));
        self.spread(n);
    }

    pub(super) fn call_as(&mut self, n: u8, lane: Lane, call: Call) {
        let Some(node) = self.nodes.get_mut(&n).filter(|node| node.alive) else { return };
        let Some(ledger) = node.book.ledger.as_mut() else { return };
        match ledger.call(lane, call) {
            Ok(op) => {
                if let Kind::Step { parts } = call.kind {
                    (0..parts).for_each(|i| {
                        _ = ledger.describe_part(op.part(i), Call { mode: Mode::PerStep, ..SUM });
                    });
                }
                ledger.describe(op);
            }
            Err(refusal) => self.tell_story(n, || format!("call refused: {refusal:?}")),
        }
        self.spread(n);
    }

    pub(super) fn results_due(&mut self) {
        for n in self.living() {
            let now = self.now;
            let Some(node) = self.nodes.get_mut(&n).filter(|node| node.paused.is_none()) else {
                continue;
            };
            let due: Vec<OpId> =
                node.book.results.iter().filter(|(_, at)| **at <= now).map(|(op, _)| *op).collect();
            for op in &due {
                node.book.results.remove(op);
                if let Some(ledger) = &mut node.book.ledger {
                    ledger.done(*op, u128::from(op.number));
                }
            }
            if !due.is_empty() {
                self.spread(n);
            }
        }
    }

    pub(super) fn on_op(&mut self, n: u8, from: MemberId, message: &OpMessage) {
        let Some(node) = self.nodes.get_mut(&n) else { return };
        let Some(rank) = node.book.view.as_ref().and_then(|v| v.rank_of(from)) else { return };
        let Some(ledger) = node.book.ledger.as_mut().filter(|l| l.view() == message.view) else {
            return;
        };
        let is_honest = ledger.hear(rank, message).is_ok();
        self.history.expect(Claim::Honest, is_honest);
        self.spread(n);
    }

    /// Carries out the effects of the node's ledger.
    pub(super) fn spread(&mut self, n: u8) {
        loop {
            let Some(node) = self.nodes.get_mut(&n) else { return };
            let Some(ledger) = node.book.ledger.as_mut() else { return };
            let effects = ledger.take_effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.carry_out_op(n, &effect);
            }
        }
        if let Some(node) =
            self.nodes.get_mut(&n).filter(|node| node.alive && node.paused.is_none())
        {
            // Tells the election that the number of operations in flight may have changed.
            let effects =
                node.election.step(self.now - node.behind, Input::Heard(node.id()), &mut node.book);
            effects.into_iter().for_each(|effect| self.carry_out(n, effect));
        }
    }

    pub(super) fn carry_out_op(&mut self, n: u8, effect: &LedgerEffect) {
        match *effect {
            LedgerEffect::Tell(body) => self.tell(n, body),
            LedgerEffect::Agreed(op, _) => self.agreed(n, op),
            LedgerEffect::Resolved(op, outcome) => {
                let book = &self.nodes[&n].book;
                if let (Some(view), Some(ledger)) = (book.view.clone(), &book.ledger) {
                    let ending = Ending::of(ledger, op, outcome);
                    self.ended(n, &view, op, ending, None);
                }
            }
            LedgerEffect::Credit(..) | LedgerEffect::Cancel(_) | LedgerEffect::Retire(_) => {}
        }
    }

    pub(super) fn agreed(&mut self, n: u8, op: OpId) {
        let after = if self.engine_ms == 0 { 0 } else { self.random(self.engine_ms) };
        let at = self.now + after;
        let Some(node) = self.nodes.get_mut(&n) else { return };
        if after > 0 {
            node.book.results.insert(op, at);
        } else if let Some(ledger) = node.book.ledger.as_mut() {
            ledger.done(op, u128::from(op.number));
        }
    }

    pub(super) fn tell(&mut self, n: u8, body: OpBody) {
        let Some(node) = self.nodes.get_mut(&n) else { return };
        let me = node.id();
        let (Some(ledger), Some(view)) = (&mut node.book.ledger, node.book.view.clone()) else {
            return;
        };
        let audience = body.audience(view.size());
        let message = Message::Op(OpMessage {
            view: ledger.view(),
            body,
            resolved: ledger.report_resolved(audience),
            enclosed: None,
        });
        let may_speak = !ledger.is_frozen();
        self.history.expect(Claim::FrozenStays, may_speak);
        let others = view
            .members
            .iter()
            .enumerate()
            .filter(|(rank, m)| audience >> rank & 1 == 1 && m.id != me);
        for (_, member) in others {
            self.send(n, member.id, &message);
        }
    }

    /// Reports the operations decided here to the rest of the View, as the driver does with every
    /// heartbeat.
    pub(super) fn report_resolved(&mut self, n: u8) {
        if self.nodes[&n]
            .book
            .ledger
            .as_ref()
            .is_some_and(|ledger| !ledger.is_frozen() && !ledger.resolved().is_empty())
        {
            self.tell(n, OpBody::Resolved);
        }
    }

    pub(super) fn replay(&mut self, n: u8, to: u8) {
        let to = self.nodes[&to].id();
        let Some(book) = self.nodes.get_mut(&n).map(|node| &mut node.book) else { return };
        let rank = book.view.as_ref().and_then(|view| view.rank_of(to));
        let (Some(ledger), Some(rank)) = (&mut book.ledger, rank) else { return };
        let bodies = ledger.replay(rank);
        let message = |body| {
            Message::Op(OpMessage {
                view: ledger.view(),
                body,
                resolved: ledger.resolved(),
                enclosed: None,
            })
        };
        let messages: Vec<Message> = bodies.into_iter().map(message).collect();
        messages.iter().for_each(|message| self.send_again(n, to, message));
    }

    pub(super) fn ended(
        &mut self,
        n: u8,
        view: &Arc<View>,
        op: OpId,
        mut ending: Ending,
        next: Option<ViewId>,
    ) {
        let id = self.nodes[&n].id();
        self.committed += u64::from(ending.outcome == Outcome::Committed);
        self.tell_story(n, || format!("{op} of {}: {ending}", view.ballot.round));
        if op.lane == BEST_EFFORT {
            ending.scope = Scope::Local;
        }
        let by_votes = next.is_none() && ending.outcome == Outcome::Committed;
        if by_votes && op.lane != BEST_EFFORT && op.lane.ends().is_none() {
            self.committed_in(n, view);
        }
        self.history.note(id, &Act::Ended { op: (view.id(), op), ending, next });
    }
}
