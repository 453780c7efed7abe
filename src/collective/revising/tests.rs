//! A change of the plan among members whose messages and calls interleave by chance, and among
//! members that break its rules.

use super::super::ledger::{Ledger, LedgerEffect};
use super::*;
use crate::memory::DType;
use crate::protocol::{
    Call, CallKind, Descriptor, OpBody, REVISION_UNKNOWN, RankSet, ReduceOp, Vote, view_of,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::VecDeque;

const SUM: Call = Call::new(CallKind::AllReduce(ReduceOp::Sum), DType::F32, 10);
const LANES: u64 = 3;

/// Members whose messages about plans arrive in order. A broken link loses them; rank 0 then
/// repeats them.
struct Group {
    ledgers: Vec<Ledger>,
    revising: Option<Revising>,
    /// `down`: from rank 0 to each member; `up`: back.
    down: Vec<VecDeque<PlanStep>>,
    up: Vec<VecDeque<PlanStep>>,
    revisions: u32,
    /// By member: the highest revision whose plan it has.
    heard: Vec<u32>,
    /// By member and lane: the number of its program's next call.
    called: Vec<[u64; LANES as usize]>,
    /// Descriptors in flight: sender, receiver, content.
    described: Vec<(usize, usize, Descriptor)>,
    /// By lane: the number of its first operation that is not over.
    ended: [u64; LANES as usize],
}

impl Group {
    fn new(size: usize) -> Group {
        let view = view_of(size as u8);
        Group {
            ledgers: (0..size as u8).map(|rank| Ledger::new(&view, Rank(rank))).collect(),
            revising: None,
            down: vec![VecDeque::new(); size],
            up: vec![VecDeque::new(); size],
            revisions: 0,
            heard: vec![0; size],
            called: vec![[0; LANES as usize]; size],
            described: Vec::new(),
            ended: [0; LANES as usize],
        }
    }

    fn propose(&mut self) {
        if self.revising.is_some() {
            return;
        }
        self.revisions += 1;
        let revising = Revising::new(self.revisions, self.ledgers.len());
        self.tell_all(&revising.hold());
        self.revising = Some(revising);
    }

    /// Rank 0 decides, if all members hold.
    fn decide(&mut self) {
        let size = self.ledgers.len();
        if let Some(revising) = self.revising.as_mut().filter(|revising| revising.is_held()) {
            let switch = revising.decide(Some(Plan::mesh(size)));
            self.tell_all(&switch);
        }
    }

    fn tell_all(&mut self, step: &PlanStep) {
        self.down.iter_mut().for_each(|queue| queue.push_back(step.clone()));
    }

    /// A member handles the next message of rank 0.
    fn hear(&mut self, rank: usize) {
        let Some(step) = self.down[rank].pop_front() else { return };
        let ledger = &mut self.ledgers[rank];
        let answer = match step {
            PlanStep::Hold { revision } if ledger.is_past(revision) => {
                PlanStep::Switched { revision }
            }
            PlanStep::Hold { revision } => PlanStep::Held {
                revision,
                next: ledger.hold(revision).expect("it is the next one"),
            },
            PlanStep::Switch { revision, to } => {
                if !ledger.is_past(revision) {
                    self.heard[rank] = revision;
                    ledger.switch(revision, to.map(|to| to.first).as_deref()).expect("it was held");
                }
                PlanStep::Switched { revision }
            }
            step => panic!("not from rank 0: {step:?}"),
        };
        self.up[rank].push_back(answer);
    }

    /// Rank 0 handles the next answer of a member.
    fn hear_answer(&mut self, rank: usize) {
        let (Some(step), Some(revising)) = (self.up[rank].pop_front(), &mut self.revising) else {
            return;
        };
        let from = Rank(rank as u8);
        match step {
            PlanStep::Held { revision, next } => revising.on_held(from, revision, next),
            PlanStep::Switched { revision } => revising.on_switched(from, revision),
            step => panic!("not from a member: {step:?}"),
        }
        if self.revising.as_ref().is_some_and(Revising::is_over) {
            self.revising = None;
        }
    }

    fn break_link(&mut self, rank: usize) {
        self.down[rank].clear();
        self.up[rank].clear();
        if let Some(revising) = &self.revising {
            self.down[rank].extend(revising.replay());
        }
    }

    /// A program makes a call, unless it is 16 calls ahead of the slowest member.
    fn call(&mut self, rank: usize, lane: usize) {
        let least = self.called.iter().map(|called| called[lane]).min().expect("members");
        if self.called[rank][lane] < least + 16 {
            let op =
                self.ledgers[rank].call(Lane::of_view(lane as u64), SUM).expect("it may be called");
            assert_eq!(op.number, self.called[rank][lane]);
            self.called[rank][lane] += 1;
        }
    }

    /// A member begins the first of its calls whose plan is known, and announces it.
    fn begin(&mut self, rank: usize, lane: usize) {
        let numbers = 0..self.called[rank][lane];
        let begun = |op: OpId| {
            self.described.iter().any(|(from, _, descriptor)| (*from, descriptor.op) == (rank, op))
        };
        let mut ops = numbers.map(|number| OpId { lane: Lane::of_view(lane as u64), number });
        let Some(op) = ops.find(|op| self.ledgers[rank].revision_of(*op).is_some() && !begun(*op))
        else {
            return;
        };
        self.ledgers[rank].describe(op);
        for effect in self.ledgers[rank].take_effects() {
            if let LedgerEffect::Tell(OpBody::Describe(descriptor)) = effect {
                self.described.extend(
                    (0..self.ledgers.len())
                        .filter(|to| *to != rank)
                        .map(|to| (rank, to, descriptor)),
                );
            }
        }
    }

    /// A member handles another one's descriptor.
    fn hear_begun(&mut self, place: usize) {
        if let Some((from, to, descriptor)) = self.described.get(place).copied() {
            self.ledgers[to].on_descriptor(Rank(from as u8), descriptor).expect("an honest member");
        }
    }

    /// If all members have begun the first operation of this lane that is not over, it commits,
    /// and no member lists it any more.
    fn end(&mut self, lane: usize) {
        let size = self.ledgers.len();
        let op = OpId { lane: Lane::of_view(lane as u64), number: self.ended[lane] };
        let about: Vec<_> = self.described.iter().filter(|(_, _, d)| d.op == op).copied().collect();
        if about.len() < size * (size - 1) {
            return;
        }
        for (from, to, descriptor) in about {
            let heard = self.ledgers[to].on_descriptor(Rank(from as u8), descriptor);
            heard.expect("an honest member");
        }
        self.ledgers.iter_mut().for_each(|ledger| ledger.done(op, 1));
        for (to, ledger) in self.ledgers.iter_mut().enumerate() {
            for from in (0..size).filter(|from| *from != to).map(|from| Rank(from as u8)) {
                ledger.on_vote(from, op, Vote::Done { digest: 1 }).expect("an honest member");
                ledger.on_resolved(from, &[op]);
            }
            assert!(ledger.report_resolved(RankSet::ALL).contains(&op), "{op:?} is not over");
            ledger.take_effects();
        }
        self.ended[lane] += 1;
    }

    fn assert_agreed(&self, seed: u64) {
        for (lane, called) in (0..LANES as usize)
            .map(|lane| (lane, self.called.iter().map(move |called| called[lane])))
        {
            for number in self.ended[lane]..called.max().expect("members") {
                let op = OpId { lane: Lane::of_view(lane as u64), number };
                let callers = self
                    .ledgers
                    .iter()
                    .zip(&self.called)
                    .filter(|(_, called)| called[lane] > number);
                let mut known: Vec<u32> =
                    callers.filter_map(|(ledger, _)| ledger.revision_of(op)).collect();
                known.dedup();
                assert!(known.len() <= 1, "seed {seed}: {op:?} runs under {known:?}");
                // Another member may have had the plan earlier and begun the call.
                for (rank, ledger) in self
                    .ledgers
                    .iter()
                    .enumerate()
                    .filter(|(rank, _)| self.called[*rank][lane] > number)
                {
                    let runs_under = ledger.revision_of(op).unwrap_or(0);
                    assert!(
                        runs_under <= self.heard[rank],
                        "seed {seed}: {rank} runs {op:?} by a plan that it has not heard of"
                    );
                }
            }
        }
    }
}

#[test]
fn no_operation_runs_under_two_plans_and_nothing_is_held_for_ever() {
    let (mut switched, mut ended) = (0, 0);
    for seed in 0..400 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let size = rng.random_range(2..=5);
        let mut group = Group::new(size);
        for _ in 0..300 {
            let rank = rng.random_range(0..size);
            match rng.random_range(0..32) {
                0 => group.propose(),
                1 => group.break_link(rank),
                2..8 => group.hear(rank),
                8..14 => group.hear_answer(rank),
                14..16 => group.decide(),
                16..20 => group.begin(rank, rng.random_range(0..LANES as usize)),
                28..32 => group.end(rng.random_range(0..LANES as usize)),
                20..22 => group.hear_begun(rng.random_range(0..1 + group.described.len())),
                _ => group.call(rank, rng.random_range(0..LANES as usize)),
            }
            group.assert_agreed(seed);
        }
        // Messages alone must be enough to make progress.
        while group.down.iter().chain(&group.up).any(|queue| !queue.is_empty())
            || group.revising.is_some()
        {
            group.decide();
            (0..size).for_each(|rank| {
                group.hear(rank);
                group.hear_answer(rank);
            });
        }
        group.assert_agreed(seed);
        for ((rank, ledger), called) in group.ledgers.iter().enumerate().zip(&group.called) {
            let ops = (0..LANES)
                .flat_map(|lane| (0..called[lane as usize]).map(move |number| (lane, number)));
            let held = ops.filter(|(lane, number)| {
                ledger.revision_of(OpId { lane: Lane::of_view(*lane), number: *number }).is_none()
            });
            assert_eq!(held.count(), 0, "seed {seed}: rank {rank} holds calls for ever");
            assert_eq!(ledger.revision(), group.revisions, "seed {seed}");
        }
        switched += group.revisions;
        ended += group.ended.iter().sum::<u64>();
    }
    assert!(ended > 1000, "{ended} operations that are over show little");
    assert!(switched > 400, "{switched} changes show little");
}

#[test]
fn with_too_many_lanes_to_be_told_the_plan_stays() {
    let mut revising = Revising::new(1, 2);
    revising.on_held(Rank(0), 1, Some(Vec::new()));
    assert!(!revising.is_held());
    revising.on_held(Rank(1), 1, None);
    assert!(revising.is_held());
    assert_eq!(revising.decide(Some(Plan::mesh(2))), PlanStep::Switch { revision: 1, to: None });
    let mut ledger = Ledger::new(&view_of(2), Rank(0));
    assert_eq!(ledger.hold(1), Ok(Some(Vec::new())));
    let op = ledger.call(Lane::MAIN, SUM).expect("it may be called");
    assert_eq!(ledger.revision_of(op), None);
    ledger.switch(1, None).expect("it was held");
    assert_eq!((ledger.revision_of(op), ledger.revision()), (Some(0), 0));
}

#[test]
fn what_another_member_has_begun_is_not_held() {
    let mut ledger = Ledger::new(&view_of(2), Rank(0));
    ledger.hold(1).expect("the next one");
    let [before, known, unknown] = [0, 1, 2].map(|number| OpId { lane: Lane::MAIN, number });
    let descriptor = |op, plan_revision| Descriptor { op, call: SUM, plan_revision };
    ledger.on_descriptor(Rank(1), descriptor(before, 0)).expect("an honest member");
    for _ in 0..3 {
        ledger.call(Lane::MAIN, SUM).expect("it may be called");
    }
    assert_eq!([before, known, unknown].map(|op| ledger.revision_of(op)), [Some(0), None, None]);
    ledger.on_descriptor(Rank(1), descriptor(known, 0)).expect("an honest member");
    ledger.on_descriptor(Rank(1), descriptor(unknown, REVISION_UNKNOWN)).expect("an honest member");
    assert_eq!([known, unknown].map(|op| ledger.revision_of(op)), [Some(0), None]);
    assert_eq!(ledger.moving(), 2);
}

#[test]
fn a_rank_0_that_breaks_the_rules_is_found_out() {
    let mut ledger = Ledger::new(&view_of(2), Rank(1));
    assert!(ledger.switch(1, None).is_err(), "nothing is held");
    ledger.call(Lane::MAIN, SUM).expect("it may be called");
    ledger.hold(1).expect("the next one");
    assert!(ledger.hold(2).is_err(), "one at a time");
    assert!(ledger.switch(1, Some(&[])).is_err(), "a call that has begun would change its plan");
    ledger
        .switch(1, Some(&[OpId { lane: Lane::MAIN, number: 1 }]))
        .expect("nothing has begun there");
    assert!(ledger.hold(1).is_err(), "it has been");
}
