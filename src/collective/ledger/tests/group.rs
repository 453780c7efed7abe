//! A few members whose messages the test delivers.

use super::super::*;
use crate::protocol::{RankSet, view_of};
use std::ops::Range;

/// An operation on which all agree, and the source of a sync's state.
type Agreed = (OpId, Option<SyncSource>);

/// Members whose messages arrive when the test says so.
pub struct Group {
    pub ledgers: Vec<Ledger>,
    pub wires: Vec<Vec<Vec<OpBody>>>,
    pub resolved: Vec<Vec<(OpId, Outcome)>>,
    pub agreed: Vec<Vec<Agreed>>,
    pub retired: Vec<Vec<OpId>>,
    pub cancelled: Vec<Vec<OpId>>,
    pub credits: Vec<Vec<(OpId, Rank)>>,
}

impl Group {
    pub fn of(n: u8) -> Group {
        let view = view_of(n);
        let n = usize::from(n);
        Group {
            ledgers: (0..n).map(|i| Ledger::new(&view, Rank(i as u8))).collect(),
            wires: vec![vec![Vec::new(); n]; n],
            resolved: vec![Vec::new(); n],
            agreed: vec![Vec::new(); n],
            retired: vec![Vec::new(); n],
            cancelled: vec![Vec::new(); n],
            credits: vec![Vec::new(); n],
        }
    }

    pub fn drain(&mut self, i: usize) {
        for effect in self.ledgers[i].take_effects() {
            match effect {
                LedgerEffect::Tell(body) => {
                    let audience = body.audience(self.ledgers.len());
                    let others = (0..self.ledgers.len())
                        .filter(|j| *j != i && audience.contains(Rank(*j as u8)));
                    others.for_each(|j| self.wires[i][j].push(body));
                }
                LedgerEffect::Resolved(op, outcome) => self.resolved[i].push((op, outcome)),
                LedgerEffect::Agreed(op, source) => self.agreed[i].push((op, source)),
                LedgerEffect::Retire(op) => self.retired[i].push(op),
                LedgerEffect::Cancel(op) => self.cancelled[i].push(op),
                LedgerEffect::Credit(op, rank) => self.credits[i].push((op, rank)),
            }
        }
    }

    pub fn deliver(&mut self, from: usize, to: usize) {
        self.drain(from);
        for body in std::mem::take(&mut self.wires[from][to]) {
            let rank = Rank(from as u8);
            match body {
                OpBody::Describe(d) => _ = self.ledgers[to].on_descriptor(rank, d).unwrap(),
                OpBody::Vote(op, vote) => self.ledgers[to].on_vote(rank, op, vote).unwrap(),
                OpBody::Ready(op, bytes) => self.ledgers[to].on_ready(rank, op, bytes),
                OpBody::Overdue(op) => self.ledgers[to].on_overdue(rank, op).unwrap(),
                OpBody::Resolved => {}
            }
        }
        self.drain(to);
    }

    pub fn deliver_all(&mut self) {
        let n = self.ledgers.len();
        for _ in 0..4 {
            for from in 0..n {
                (0..n).filter(|to| *to != from).for_each(|to| self.deliver(from, to));
            }
        }
    }

    /// These members report their decisions to all others.
    pub fn pass_reports(&mut self) {
        let n = self.ledgers.len();
        for from in 0..n {
            let resolved = self.ledgers[from].report_resolved(RankSet::ALL);
            for to in (0..n).filter(|to| *to != from) {
                self.ledgers[to].on_resolved(Rank(from as u8), &resolved);
            }
        }
        (0..n).for_each(|i| self.drain(i));
    }

    /// The engines of these members hold the result.
    pub fn done(&mut self, members: Range<usize>, op: OpId) {
        members.for_each(|i| self.ledgers[i].done(op, 7));
    }

    /// Requires that the operation, and no other one, has ended so on each member.
    pub fn assert_ends(&self, op: OpId, outcome: Outcome) {
        for (i, resolved) in self.resolved.iter().enumerate() {
            assert_eq!(*resolved, [(op, outcome)], "on rank {i}");
        }
    }

    pub fn begin_all(&mut self, call: Call) -> OpId {
        let ops: Vec<OpId> = (0..self.ledgers.len()).map(|i| self.begin(i, call)).collect();
        ops[0]
    }

    pub fn begin(&mut self, i: usize, call: Call) -> OpId {
        let op = self.ledgers[i].call(Lane::MAIN, call).unwrap();
        self.ledgers[i].describe(op);
        op
    }
}
