//! Random walks of a few members with small limits. Whatever they call and give up, and whichever
//! links break, every call ends on all members, and no member keeps anything for long.

use super::*;
use crate::protocol::{GroupRanks, OpMessage};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const BOUNDS: LedgerBounds = LedgerBounds { in_flight: 4, listed: 6 };

/// A step of a walk. The numbers choose a member, another one, and one of what there is.
#[derive(Clone, Copy, Debug)]
enum Step {
    Call { member: usize, to: usize, lane: usize, is_described: bool },
    Describe { member: usize, nth: usize },
    Finish { member: usize, nth: usize },
    GiveUp { member: usize, nth: usize },
    Expire { member: usize, nth: usize },
    Deliver { member: usize, to: usize },
    Report { member: usize },
    BreakLink { member: usize, to: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pick = || (0..64_usize, 0..64_usize);
    let call =
        (pick(), 0..4_usize, any::<bool>()).prop_map(|((member, to), lane, is_described)| {
            Step::Call { member, to, lane, is_described }
        });
    let step = prop_oneof![
        6 => call,
        2 => pick().prop_map(|(member, nth)| Step::Describe { member, nth }),
        3 => pick().prop_map(|(member, nth)| Step::Finish { member, nth }),
        4 => pick().prop_map(|(member, nth)| Step::GiveUp { member, nth }),
        1 => pick().prop_map(|(member, nth)| Step::Expire { member, nth }),
        20 => pick().prop_map(|(member, to)| Step::Deliver { member, to }),
        4 => (0..64_usize).prop_map(|member| Step::Report { member }),
        1 => pick().prop_map(|(member, to)| Step::BreakLink { member, to }),
    ];
    proptest::collection::vec(step, 0..600)
}

/// Members, and links that keep the order of messages.
struct Network {
    ledgers: Vec<Ledger>,
    /// By sender and receiver.
    wires: Vec<Vec<VecDeque<OpMessage>>>,
    agreed: Vec<BTreeSet<OpId>>,
    ends: Vec<BTreeMap<OpId, Outcome>>,
}

impl Network {
    fn of(n: usize) -> Network {
        let view = view_of(n as u8);
        let ledger = |i| Ledger::new(&view, Rank(i as u8)).within(BOUNDS);
        Network {
            ledgers: (0..n).map(ledger).collect(),
            wires: vec![vec![VecDeque::new(); n]; n],
            agreed: vec![BTreeSet::new(); n],
            ends: vec![BTreeMap::new(); n],
        }
    }

    fn size(&self) -> usize {
        self.ledgers.len()
    }

    fn tell(&mut self, i: usize, body: OpBody) {
        let (audience, ledger) = (body.audience(self.wires.len()), &mut self.ledgers[i]);
        let resolved = ledger.report_resolved(audience);
        let message = OpMessage { view: ledger.view(), body, resolved, enclosed: None };
        for rank in audience.without(Rank(i as u8)).iter() {
            self.wires[i][rank.index()].push_back(message.clone());
        }
    }

    fn carry_out_effects(&mut self, i: usize) {
        for effect in self.ledgers[i].take_effects() {
            match effect {
                LedgerEffect::Tell(body) => self.tell(i, body),
                LedgerEffect::Agreed(op, _) => _ = self.agreed[i].insert(op),
                LedgerEffect::Resolved(op, outcome) => {
                    assert_eq!(self.ends[i].insert(op, outcome), None, "{op:?} ended twice");
                }
                _ => {}
            }
        }
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let Some(message) = self.wires[from][to].pop_front() else { return };
        let heard = self.ledgers[to].hear(Rank(from as u8), &message);
        assert_eq!(heard, Ok(()), "rank {to} takes rank {from} for a liar: {message:?}");
        self.carry_out_effects(to);
    }

    fn deliver_all(&mut self) {
        while self.wires.iter().flatten().any(|wire| !wire.is_empty()) {
            for (from, to) in pairs(self.size()) {
                self.deliver(from, to);
            }
        }
    }

    /// The link loses the messages in flight, and both ends replay theirs over the next one.
    fn break_link(&mut self, a: usize, b: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.wires[from][to].clear();
            let ledger = &mut self.ledgers[from];
            let (view, bodies) = (ledger.view(), ledger.replay(Rank(to as u8)));
            for body in bodies {
                let resolved = ledger.report_resolved(RankSet::EMPTY.with(Rank(to as u8)));
                let message = OpMessage { view, body, resolved, enclosed: None };
                self.wires[from][to].push_back(message);
            }
        }
    }

    fn undecided(&self, i: usize) -> Vec<OpId> {
        self.ledgers[i].undecided().collect()
    }

    fn finish(&mut self, i: usize, op: OpId) {
        if self.agreed[i].contains(&op) {
            self.ledgers[i].done(op, 7);
        }
        self.carry_out_effects(i);
    }

    fn give_up(&mut self, i: usize, op: OpId) {
        self.ledgers[i].abort(op, AbortReason::Dropped);
        self.carry_out_effects(i);
    }

    fn take(&mut self, step: Step) {
        let n = self.size();
        let other = |member: usize, to: usize| (member % n + 1 + to % (n - 1)) % n;
        let nth = |of: Vec<OpId>, nth: usize| (!of.is_empty()).then(|| of[nth % of.len()]);
        match step {
            Step::Call { member, to, lane, is_described } => {
                let (i, to) = (member % n, Rank(other(member, to) as u8));
                let from = Rank(i as u8);
                let message = Call { kind: CallKind::Message { from, to, tag: 1 }, ..SUM };
                let group = GroupRanks::of([Rank(0), Rank(1)].into_iter().collect());
                let (lane, call) = match lane {
                    0 => (Lane::MAIN, SUM),
                    1 if i < 2 => (Lane::of_group(group, 7, n), SUM),
                    1 | 2 => (Lane::tagged(7), SUM),
                    _ => (Lane::MAIN.messages(from, to), message),
                };
                if let (Ok(op), true) = (self.ledgers[i].call(lane, call), is_described) {
                    self.ledgers[i].describe(op);
                }
                self.carry_out_effects(i);
            }
            Step::Describe { member, nth: chosen } => {
                let i = member % n;
                if let Some(op) = nth(self.undecided(i), chosen) {
                    self.ledgers[i].describe(op);
                    self.carry_out_effects(i);
                }
            }
            Step::Finish { member, nth: chosen } => {
                let op = nth(self.undecided(member % n), chosen);
                op.into_iter().for_each(|op| self.finish(member % n, op));
            }
            Step::GiveUp { member, nth: chosen } => {
                let op = nth(self.undecided(member % n), chosen);
                op.into_iter().for_each(|op| self.give_up(member % n, op));
            }
            Step::Expire { member, nth: chosen } => {
                if let Some(op) = nth(self.undecided(member % n), chosen) {
                    self.ledgers[member % n].expire(op);
                    self.carry_out_effects(member % n);
                }
            }
            Step::Deliver { member, to } => self.deliver(member % n, other(member, to)),
            Step::Report { member } => self.tell(member % n, OpBody::Resolved),
            Step::BreakLink { member, to } => self.break_link(member % n, other(member, to)),
        }
    }

    /// Nothing hinders them any more: what all have called ends well, the rest is given up.
    fn rest(&mut self) {
        self.deliver_all();
        for i in 0..self.size() {
            for op in self.undecided(i) {
                self.finish(i, op);
                self.give_up(i, op);
            }
        }
        self.deliver_all();
        // Each report names some of what is decided.
        for _ in 0..10 {
            (0..self.size()).for_each(|i| self.tell(i, OpBody::Resolved));
            self.deliver_all();
        }
    }
}

fn pairs(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).flat_map(move |i| (0..n).map(move |j| (i, j))).filter(|(i, j)| i != j)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn every_call_ends_alike_on_all_and_is_forgotten(n in 2..5_usize, steps in steps()) {
        let mut network = Network::of(n);
        for step in steps {
            network.take(step);
        }
        network.rest();
        for (i, ledger) in network.ledgers.iter().enumerate() {
            let called: Vec<_> = ledger.entries.iter().filter(|(_, e)| e.call.is_some()).collect();
            prop_assert!(called.is_empty(), "rank {i} still lists {called:?}");
            prop_assert!(ledger.entries.is_empty(), "rank {i} keeps {:?}", ledger.entries);
            prop_assert!(ledger.again.iter().all(BTreeSet::is_empty));
        }
        for (i, j) in pairs(n) {
            let takes_part = |op: &OpId| op.lane.participants(n).contains(Rank(j as u8));
            for (op, end) in network.ends[i].iter().filter(|(op, _)| takes_part(op)) {
                let other = network.ends[j].get(op);
                let committed = Outcome::Committed;
                prop_assert_eq!(
                    *end == committed,
                    other == Some(&committed),
                    "{:?} on ranks {} and {}: {:?}, {:?}",
                    op,
                    i,
                    j,
                    end,
                    other
                );
            }
        }
    }
}
