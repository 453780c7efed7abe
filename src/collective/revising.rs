//! Layer: Core.
//!
//! How rank 0 brings another plan into its View.
//!
//! It proposes the plan, and every member holds the calls that it makes from then on and tells which numbers its lanes have come to. When
//! all have, the highest of them is where the plan begins: below it everything runs under the plan before, as it may have begun
//! somewhere, and nothing above has begun anywhere. So no operation runs under two plans, none that has begun is disturbed, and
//! what is held waits for two messages and never for a program. If a member is lost meanwhile the View ends, and everything held with it.

use super::revision::{LANES_TOLD_MAX, PlanStep};
use crate::topology::Plan;
use crate::view::{Lane, OpId, Rank};
use std::collections::BTreeMap;

/// A change of the plan, as rank 0 leads it. One at a time: the next one begins when this one [is over](Revising::is_over).
#[derive(Clone, Debug)]
pub struct Revising {
    plan: Plan,
    /// What each rank has said of its lanes.
    held: Vec<Option<Option<Vec<OpId>>>>,
    /// What was said last, when all have.
    switch: Option<PlanStep>,
    /// Who has heard it.
    switched: Vec<bool>,
}

impl Revising {
    /// Proposes a plan to so many ranks.
    pub fn new(plan: Plan, size: usize) -> Revising {
        Revising { plan, held: vec![None; size], switch: None, switched: vec![false; size] }
    }

    /// A rank holds its calls. Gives what everybody is to be told when it was the last.
    pub fn on_held(&mut self, from: Rank, revision: u32, next: Option<Vec<OpId>>) -> Option<PlanStep> {
        if revision != self.plan.revision || self.switch.is_some() {
            return None;
        }
        *self.held.get_mut(from.index())? = Some(next);
        let held: Vec<&Option<Vec<OpId>>> = self.held.iter().flatten().collect();
        if held.len() < self.held.len() {
            return None;
        }
        let all: Option<Vec<&Vec<OpId>>> = held.into_iter().map(Option::as_ref).collect();
        let first = all.map(|all| furthest(all.into_iter().flatten())).filter(|first| first.len() <= LANES_TOLD_MAX);
        self.switch = Some(PlanStep::Switch { revision, first });
        self.switch.clone()
    }

    /// A rank has heard where the plan begins.
    pub fn on_switched(&mut self, from: Rank, revision: u32) {
        if let Some(switched) = self.switched.get_mut(from.index()).filter(|_| revision == self.plan.revision) {
            *switched = true;
        }
    }

    /// Whether everybody has.
    pub fn is_over(&self) -> bool {
        self.switched.iter().all(|switched| *switched)
    }

    /// What a rank whose link was down has to hear again. It answers as before.
    pub fn replay(&self) -> Vec<PlanStep> {
        [PlanStep::Propose(Box::new(self.plan.clone()))].into_iter().chain(self.switch.clone()).collect()
    }
}

/// In each lane the highest number.
fn furthest<'a>(next: impl Iterator<Item = &'a OpId>) -> Vec<OpId> {
    let mut by_lane = BTreeMap::<Lane, u64>::new();
    for op in next {
        let number = by_lane.entry(op.lane).or_default();
        *number = op.number.max(*number);
    }
    by_lane.into_iter().map(|(lane, number)| OpId { lane, number }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{Call, CodecId, DType, Kind, Ledger, Mode, ReduceOp};
    use crate::view::testing::view_of;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::collections::VecDeque;

    const SUM: Call =
        Call { kind: Kind::AllReduce(ReduceOp::Sum), dtype: DType::F32, count: 10, codec: CodecId::None, mode: Mode::PerOp };
    const LANES: u64 = 3;

    fn plan(size: usize, revision: u32) -> Plan {
        Plan { revision, ..Plan::mesh(size) }
    }

    /// Members whose messages about plans travel in order, and are lost when a link breaks, which rank 0 then makes up for.
    struct Group {
        ledgers: Vec<Ledger>,
        revising: Option<Revising>,
        /// From rank 0 to each, and back.
        down: Vec<VecDeque<PlanStep>>,
        up: Vec<VecDeque<PlanStep>>,
        revisions: u32,
        /// By member and lane, how far its program is.
        called: Vec<[u64; LANES as usize]>,
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
                called: vec![[0; LANES as usize]; size],
            }
        }

        fn propose(&mut self) {
            if self.revising.is_some() {
                return;
            }
            self.revisions += 1;
            let plan = plan(self.ledgers.len(), self.revisions);
            self.revising = Some(Revising::new(plan.clone(), self.ledgers.len()));
            self.tell_all(&PlanStep::Propose(Box::new(plan)));
        }

        fn tell_all(&mut self, step: &PlanStep) {
            self.down.iter_mut().for_each(|queue| queue.push_back(step.clone()));
        }

        /// A member hears what rank 0 has said.
        fn hear(&mut self, rank: usize) {
            let Some(step) = self.down[rank].pop_front() else { return };
            let ledger = &mut self.ledgers[rank];
            let answer = match step {
                PlanStep::Propose(plan) if ledger.is_past(plan.revision) => PlanStep::Switched { revision: plan.revision },
                PlanStep::Propose(plan) => {
                    PlanStep::Held { revision: plan.revision, next: ledger.hold(plan.revision).expect("it is the next one") }
                }
                PlanStep::Switch { revision, first } => {
                    if !ledger.is_past(revision) {
                        ledger.switch(revision, first.as_deref()).expect("it was held");
                    }
                    PlanStep::Switched { revision }
                }
                step => panic!("not from rank 0: {step:?}"),
            };
            self.up[rank].push_back(answer);
        }

        /// Rank 0 hears what a member has answered.
        fn hear_answer(&mut self, rank: usize) {
            let (Some(step), Some(revising)) = (self.up[rank].pop_front(), &mut self.revising) else { return };
            let from = Rank(rank as u8);
            match step {
                PlanStep::Held { revision, next } => {
                    if let Some(switch) = revising.on_held(from, revision, next) {
                        self.tell_all(&switch);
                    }
                }
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

        /// A program calls; who is ahead of another one by as much as may be in flight waits for it.
        fn call(&mut self, rank: usize, lane: usize) {
            let least = self.called.iter().map(|called| called[lane]).min().expect("members");
            if self.called[rank][lane] < least + 16 {
                let op = self.ledgers[rank].call(Lane(lane as u64), SUM).expect("it may be called");
                assert_eq!(op.number, self.called[rank][lane]);
                self.called[rank][lane] += 1;
            }
        }

        fn assert_agreed(&self, seed: u64) {
            for (lane, called) in (0..LANES as usize).map(|lane| (lane, self.called.iter().map(move |called| called[lane]))) {
                for number in 0..called.max().expect("members") {
                    let op = OpId { lane: Lane(lane as u64), number };
                    let callers = self.ledgers.iter().zip(&self.called).filter(|(_, called)| called[lane] > number);
                    let mut known: Vec<u32> = callers.filter_map(|(ledger, _)| ledger.revision_of(op)).collect();
                    known.dedup();
                    assert!(known.len() <= 1, "seed {seed}: {op:?} runs under {known:?}");
                }
            }
        }
    }

    #[test]
    fn no_operation_runs_under_two_plans_and_nothing_is_held_for_ever() {
        let mut switched = 0;
        for seed in 0..400 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let size = rng.random_range(2..=5);
            let mut group = Group::new(size);
            for _ in 0..300 {
                let rank = rng.random_range(0..size);
                match rng.random_range(0..20) {
                    0 => group.propose(),
                    1 => group.break_link(rank),
                    2..8 => group.hear(rank),
                    8..14 => group.hear_answer(rank),
                    _ => group.call(rank, rng.random_range(0..LANES as usize)),
                }
                group.assert_agreed(seed);
            }
            // Nothing but messages is needed to get on.
            while group.down.iter().chain(&group.up).any(|queue| !queue.is_empty()) {
                (0..size).for_each(|rank| {
                    group.hear(rank);
                    group.hear_answer(rank);
                });
            }
            assert!(group.revising.is_none(), "seed {seed}: a change never ends");
            group.assert_agreed(seed);
            for ((rank, ledger), called) in group.ledgers.iter().enumerate().zip(&group.called) {
                let ops = (0..LANES).flat_map(|lane| (0..called[lane as usize]).map(move |number| (lane, number)));
                let held = ops.filter(|(lane, number)| ledger.revision_of(OpId { lane: Lane(*lane), number: *number }).is_none());
                assert_eq!(held.count(), 0, "seed {seed}: rank {rank} holds calls for ever");
                assert_eq!(ledger.revision(), group.revisions, "seed {seed}");
            }
            switched += group.revisions;
        }
        assert!(switched > 400, "{switched} changes show little");
    }

    #[test]
    fn with_too_many_lanes_to_be_told_the_plan_stays() {
        let mut revising = Revising::new(plan(2, 1), 2);
        assert_eq!(revising.on_held(Rank(0), 1, Some(Vec::new())), None);
        assert_eq!(revising.on_held(Rank(1), 1, None), Some(PlanStep::Switch { revision: 1, first: None }));
        let mut ledger = Ledger::new(&view_of(2), Rank(0));
        assert_eq!(ledger.hold(1), Ok(Some(Vec::new())));
        let op = ledger.call(Lane::MAIN, SUM).expect("it may be called");
        assert_eq!(ledger.revision_of(op), None);
        ledger.switch(1, None).expect("it was held");
        assert_eq!((ledger.revision_of(op), ledger.revision()), (Some(0), 0));
    }

    #[test]
    fn a_rank_0_that_breaks_the_rules_is_found_out() {
        let mut ledger = Ledger::new(&view_of(2), Rank(1));
        assert!(ledger.switch(1, None).is_err(), "nothing is held");
        ledger.call(Lane::MAIN, SUM).expect("it may be called");
        ledger.hold(1).expect("the next one");
        assert!(ledger.hold(2).is_err(), "one at a time");
        assert!(ledger.switch(1, Some(&[])).is_err(), "a call that has begun would change its plan");
        ledger.switch(1, Some(&[OpId { lane: Lane::MAIN, number: 1 }])).expect("nothing has begun there");
        assert!(ledger.hold(1).is_err(), "it has been");
    }
}
