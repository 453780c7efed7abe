//! Operations: calls of the programs, messages between the ledgers, and outcomes.

use super::super::claims::{Act, Claim, Ending};
use super::world::World;
use crate::collective::LedgerEffect;
use crate::election::Input;
use crate::identity::MemberId;
use crate::memory::DType;
use crate::protocol::{
    AbortReason, Call, CallKind, Lane, Message, OpBody, OpId, OpMessage, Rank, RankSet, ReduceOp,
    View, ViewId,
};
use std::sync::Arc;

const SUM: Call = Call::new(CallKind::AllReduce(ReduceOp::Sum), DType::F32, 8);

impl World {
    /// Calls one all_reduce on this node. Its engine finishes when all members have described
    /// theirs, or up to `engine_ms` later.
    pub(super) fn call(&mut self, n: u8) {
        self.call_as(n, SUM);
    }

    pub(super) fn sync(&mut self, n: u8, version: u64) {
        self.call_as(n, Call { kind: CallKind::Sync { version }, dtype: DType::U8, ..SUM });
    }

    /// Aborts all open operations of this node, as after a deadline or a dropped future.
    pub(super) fn give_up(&mut self, n: u8) {
        let node = self.nodes.get_mut(&n);
        let Some(ledger) = node.and_then(|node| node.session.ledger.as_mut()) else { return };
        let open: Vec<OpId> = ledger.undecided().collect();
        open.into_iter().for_each(|op| ledger.abort(op, AbortReason::Deadline));
        self.spread(n);
    }

    fn call_as(&mut self, n: u8, call: Call) {
        let Some(node) = self.nodes.get_mut(&n).filter(|node| node.alive) else { return };
        let Some(ledger) = node.session.ledger.as_mut() else { return };
        match ledger.call(Lane::MAIN, call) {
            Ok(op) => {
                ledger.describe(op);
            }
            Err(refusal) => self.log(n, &format!("call refused: {refusal:?}")),
        }
        self.spread(n);
    }

    pub(super) fn results_due(&mut self) {
        for n in self.living() {
            let now = self.now;
            let Some(node) = self.nodes.get_mut(&n).filter(|node| node.paused.is_none()) else {
                continue;
            };
            let due: Vec<OpId> = node
                .session
                .results
                .iter()
                .filter(|(_, at)| **at <= now)
                .map(|(op, _)| *op)
                .collect();
            for op in &due {
                node.session.results.remove(op);
                if let Some(ledger) = &mut node.session.ledger {
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
        let Some(rank) = node.session.view.as_ref().and_then(|v| v.rank_of(from)) else { return };
        let Some(ledger) = node.session.ledger.as_mut().filter(|l| l.view() == message.view) else {
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
            let Some(ledger) = node.session.ledger.as_mut() else { return };
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
            let effects = node.election.step(
                self.now - node.behind,
                Input::Heard(node.id()),
                &mut node.session,
            );
            effects.into_iter().for_each(|effect| self.carry_out(n, effect));
        }
    }

    fn carry_out_op(&mut self, n: u8, effect: &LedgerEffect) {
        match *effect {
            LedgerEffect::Tell(body) => self.tell(n, body),
            LedgerEffect::Agreed(op, _) => self.agreed(n, op),
            LedgerEffect::Resolved(op, outcome) => {
                let session = &self.nodes[&n].session;
                if let (Some(view), Some(ledger)) = (session.view.clone(), &session.ledger) {
                    let ending = Ending::of(ledger, op, outcome);
                    self.ended(n, &view, op, ending, None);
                }
            }
            LedgerEffect::Credit(..) | LedgerEffect::Cancel(_) | LedgerEffect::Retire(_) => {}
        }
    }

    fn agreed(&mut self, n: u8, op: OpId) {
        let after = if self.engine_ms == 0 { 0 } else { self.random(self.engine_ms) };
        let at = self.now + after;
        let Some(node) = self.nodes.get_mut(&n) else { return };
        if after > 0 {
            node.session.results.insert(op, at);
        } else if let Some(ledger) = node.session.ledger.as_mut() {
            ledger.done(op, u128::from(op.number));
        }
    }

    fn tell(&mut self, n: u8, body: OpBody) {
        let Some(node) = self.nodes.get_mut(&n) else { return };
        let me = node.id();
        let (Some(ledger), Some(view)) = (&mut node.session.ledger, node.session.view.clone())
        else {
            return;
        };
        let audience = body.audience(view.size());
        let message = Message::Op(OpMessage {
            view: ledger.view(),
            body,
            resolved: ledger.report_resolved(audience),
            enclosed: None,
        });
        let is_open = !ledger.is_frozen();
        self.history.expect(Claim::FrozenStays, is_open);
        let others = view
            .members
            .iter()
            .enumerate()
            .filter(|(rank, m)| audience.contains(Rank::from(*rank)) && m.id != me);
        for (_, member) in others {
            self.send(n, member.id, &message);
        }
    }

    pub(super) fn replay(&mut self, n: u8, to: u8) {
        let to = self.nodes[&to].id();
        let Some(session) = self.nodes.get_mut(&n).map(|node| &mut node.session) else { return };
        let rank = session.view.as_ref().and_then(|view| view.rank_of(to));
        let (Some(ledger), Some(rank)) = (&mut session.ledger, rank) else { return };
        let bodies = ledger.replay(rank);
        let message = |body| {
            Message::Op(OpMessage {
                view: ledger.view(),
                body,
                resolved: ledger.report_resolved(RankSet::EMPTY.with(rank)),
                enclosed: None,
            })
        };
        let messages: Vec<Message> = bodies.into_iter().map(message).collect();
        messages.iter().for_each(|message| self.send(n, to, message));
    }

    pub(super) fn ended(
        &mut self,
        n: u8,
        view: &Arc<View>,
        op: OpId,
        ending: Ending,
        next: Option<ViewId>,
    ) {
        let id = self.nodes[&n].id();
        self.log(n, &format!("{op} of {}: {ending}", view.ballot.round));
        self.history.note(id, &Act::Ended { op: (view.id(), op), ending, next });
    }
}
