//! Layer: Core.
//!
//! How rank 0 brings another plan into its View.
//!
//! Every member holds the calls that it makes from then on and tells how far its lanes have come.
//! When all have, rank 0 says which plan comes, and that it begins at the highest of these numbers:
//! below it everything runs under the plan before, as it may have begun somewhere, and nothing
//! above has begun anywhere. What another member has begun tells by itself under which plan, and is
//! held no longer than until that plan is here. So no operation runs under two plans, none that has
//! begun is disturbed, and what is held waits for messages and never for a program. If a member is
//! lost meanwhile the View ends, and everything held with it.

use super::revision::{LANES_TOLD_MAX, PlanStep, Switch};
use crate::topology::Plan;
use crate::view::{Lane, OpId, Rank};
use std::collections::BTreeMap;

/// A change of the plan, as rank 0 leads it. One at a time: the next one begins when this one [is
/// over](Revising::is_over).
#[derive(Clone, Debug)]
pub struct Revising {
    revision: u32,
    /// What each rank has said of its lanes.
    held: Vec<Option<Option<Vec<OpId>>>>,
    /// What was said last.
    switch: Option<PlanStep>,
    /// Who has heard it.
    switched: Vec<bool>,
}

impl Revising {
    /// For a plan of this revision, among so many ranks. Begins with [`hold`](Revising::hold).
    pub fn new(revision: u32, size: usize) -> Revising {
        Revising { revision, held: vec![None; size], switch: None, switched: vec![false; size] }
    }

    /// What everybody is to be told first.
    pub fn hold(&self) -> PlanStep {
        PlanStep::Hold { revision: self.revision }
    }

    /// A rank holds its calls.
    pub fn on_held(&mut self, from: Rank, revision: u32, next: Option<Vec<OpId>>) {
        if let Some(held) = self.held.get_mut(from.index()).filter(|_| revision == self.revision) {
            *held = Some(next);
        }
    }

    /// Whether everybody holds, and nothing has been decided.
    pub fn is_held(&self) -> bool {
        self.held.iter().all(Option::is_some) && self.switch.is_none()
    }

    /// Once all hold: this plan comes, or none. Gives what everybody is to be told. With more lanes
    /// than can be told none comes.
    pub fn decide(&mut self, plan: Option<Plan>) -> PlanStep {
        let all: Option<Vec<&Vec<OpId>>> = self.held.iter().flatten().map(Option::as_ref).collect();
        let first = all
            .map(|all| furthest(all.into_iter().flatten()))
            .filter(|first| first.len() <= LANES_TOLD_MAX);
        let revision = self.revision;
        let to = plan
            .zip(first)
            .map(|(plan, first)| Box::new(Switch { plan: Plan { revision, ..plan }, first }));
        let switch = PlanStep::Switch { revision, to };
        self.switch = Some(switch.clone());
        switch
    }

    /// A rank has heard what was decided.
    pub fn on_switched(&mut self, from: Rank, revision: u32) {
        if let Some(switched) =
            self.switched.get_mut(from.index()).filter(|_| revision == self.revision)
        {
            *switched = true;
        }
    }

    /// Whether everybody has.
    pub fn is_over(&self) -> bool {
        self.switched.iter().all(|switched| *switched)
    }

    /// What a rank whose link was down has to hear again. It answers as before.
    pub fn replay(&self) -> Vec<PlanStep> {
        [self.hold()].into_iter().chain(self.switch.clone()).collect()
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
    use crate::collective::revision::REVISION_UNKNOWN;
    use crate::collective::{
        Call, CodecId, DType, Descriptor, Kind, Ledger, LedgerEffect, Mode, OpBody, ReduceOp,
    };
    use crate::view::testing::view_of;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use std::collections::VecDeque;

    const SUM: Call = Call {
        kind: Kind::AllReduce(ReduceOp::Sum),
        dtype: DType::F32,
        count: 10,
        codec: CodecId::None,
        mode: Mode::PerOp,
    };
    const LANES: u64 = 3;

    /// Members whose messages about plans travel in order, and are lost when a link breaks, which
    /// rank 0 then makes up for.
    struct Group {
        ledgers: Vec<Ledger>,
        revising: Option<Revising>,
        /// From rank 0 to each, and back.
        down: Vec<VecDeque<PlanStep>>,
        up: Vec<VecDeque<PlanStep>>,
        revisions: u32,
        /// By member, the highest revision whose plan it has.
        heard: Vec<u32>,
        /// By member and lane, how far its program is.
        called: Vec<[u64; LANES as usize]>,
        /// Described by whom, and not heard of yet by whom.
        described: Vec<(usize, usize, Descriptor)>,
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

        /// Rank 0 makes up its mind, when it may.
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

        /// A member hears what rank 0 has said.
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
                        ledger
                            .switch(revision, to.map(|to| to.first).as_deref())
                            .expect("it was held");
                    }
                    PlanStep::Switched { revision }
                }
                step => panic!("not from rank 0: {step:?}"),
            };
            self.up[rank].push_back(answer);
        }

        /// Rank 0 hears what a member has answered.
        fn hear_answer(&mut self, rank: usize) {
            let (Some(step), Some(revising)) = (self.up[rank].pop_front(), &mut self.revising)
            else {
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

        /// A program calls; who is ahead of another one by as much as may be in flight waits for
        /// it.
        fn call(&mut self, rank: usize, lane: usize) {
            let least = self.called.iter().map(|called| called[lane]).min().expect("members");
            if self.called[rank][lane] < least + 16 {
                let op = self.ledgers[rank].call(Lane(lane as u64), SUM).expect("it may be called");
                assert_eq!(op.number, self.called[rank][lane]);
                self.called[rank][lane] += 1;
            }
        }

        /// A member begins the first of its calls that may begin, and says so.
        fn begin(&mut self, rank: usize, lane: usize) {
            let numbers = 0..self.called[rank][lane];
            let begun = |op: OpId| {
                self.described
                    .iter()
                    .any(|(from, _, descriptor)| (*from, descriptor.op) == (rank, op))
            };
            let mut ops = numbers.map(|number| OpId { lane: Lane(lane as u64), number });
            let Some(op) =
                ops.find(|op| self.ledgers[rank].revision_of(*op).is_some() && !begun(*op))
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

        /// A member hears what another one has begun.
        fn hear_begun(&mut self, place: usize) {
            if let Some((from, to, descriptor)) = self.described.get(place).copied() {
                self.ledgers[to]
                    .on_descriptor(Rank(from as u8), descriptor)
                    .expect("an honest member");
            }
        }

        fn assert_agreed(&self, seed: u64) {
            for (lane, called) in (0..LANES as usize)
                .map(|lane| (lane, self.called.iter().map(move |called| called[lane])))
            {
                for number in 0..called.max().expect("members") {
                    let op = OpId { lane: Lane(lane as u64), number };
                    let callers = self
                        .ledgers
                        .iter()
                        .zip(&self.called)
                        .filter(|(_, called)| called[lane] > number);
                    let mut known: Vec<u32> =
                        callers.filter_map(|(ledger, _)| ledger.revision_of(op)).collect();
                    known.dedup();
                    assert!(known.len() <= 1, "seed {seed}: {op:?} runs under {known:?}");
                    // Another member may have heard of the plan earlier, and begun.
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
        let mut switched = 0;
        for seed in 0..400 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let size = rng.random_range(2..=5);
            let mut group = Group::new(size);
            for _ in 0..300 {
                let rank = rng.random_range(0..size);
                match rng.random_range(0..28) {
                    0 => group.propose(),
                    1 => group.break_link(rank),
                    2..8 => group.hear(rank),
                    8..14 => group.hear_answer(rank),
                    14..16 => group.decide(),
                    16..20 => group.begin(rank, rng.random_range(0..LANES as usize)),
                    20..22 => group.hear_begun(rng.random_range(0..1 + group.described.len())),
                    _ => group.call(rank, rng.random_range(0..LANES as usize)),
                }
                group.assert_agreed(seed);
            }
            // Nothing but messages is needed to get on.
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
                    ledger.revision_of(OpId { lane: Lane(*lane), number: *number }).is_none()
                });
                assert_eq!(held.count(), 0, "seed {seed}: rank {rank} holds calls for ever");
                assert_eq!(ledger.revision(), group.revisions, "seed {seed}");
            }
            switched += group.revisions;
        }
        assert!(switched > 400, "{switched} changes show little");
    }

    #[test]
    fn with_too_many_lanes_to_be_told_the_plan_stays() {
        let mut revising = Revising::new(1, 2);
        revising.on_held(Rank(0), 1, Some(Vec::new()));
        assert!(!revising.is_held());
        revising.on_held(Rank(1), 1, None);
        assert!(revising.is_held());
        assert_eq!(
            revising.decide(Some(Plan::mesh(2))),
            PlanStep::Switch { revision: 1, to: None }
        );
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
        assert_eq!(
            [before, known, unknown].map(|op| ledger.revision_of(op)),
            [Some(0), None, None]
        );
        ledger.on_descriptor(Rank(1), descriptor(known, 0)).expect("an honest member");
        ledger
            .on_descriptor(Rank(1), descriptor(unknown, REVISION_UNKNOWN))
            .expect("an honest member");
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
        assert!(
            ledger.switch(1, Some(&[])).is_err(),
            "a call that has begun would change its plan"
        );
        ledger
            .switch(1, Some(&[OpId { lane: Lane::MAIN, number: 1 }]))
            .expect("nothing has begun there");
        assert!(ledger.hold(1).is_err(), "it has been");
    }
}
