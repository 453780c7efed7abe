//! Operations whose steps come in any order.

use super::super::input::Input;
use super::{Chance, Door, Group, bytes, f32_call, op};
use crate::memory::bytes_of;
use crate::protocol::{CallKind, EngineFault, OpId, Plan, Rank, ReduceOp};
use std::sync::Arc;

const SUM: CallKind = CallKind::AllReduce(ReduceOp::Sum);

/// A sum of all ranks.
struct Sum {
    op: OpId,
    count: usize,
    plan: Arc<Plan>,
    /// All ranks give it up, each at its own time.
    is_given_up: bool,
    inputs: Vec<Arc<Vec<f32>>>,
}

#[derive(Clone, Copy)]
enum Step {
    Begin,
    Feed,
    /// It hears that this rank has begun.
    Credit(Rank),
    Cancel,
}

impl Sum {
    /// In one of three lanes, under any plan of the engine.
    fn any(number: u64, door: &Door, size: usize, chance: &mut Chance) -> Sum {
        let mut plans = door.plans(size, 4096, chance);
        let plan = plans.swap_remove(chance.below(plans.len() as u64) as usize);
        let count = chance.below(60_000) as usize;
        // Small whole numbers, whose sums are exact in any order.
        let input = |me: usize| Arc::new(vec![me as f32 + number as f32; count]);
        let is_given_up = chance.below(3) == 0;
        let inputs = (0..size).map(input).collect();
        Sum { op: op(number % 3, number), count, plan, is_given_up, inputs }
    }

    /// The sum of the first so many ranks in each element.
    fn of_ranks(&self, ranks: usize) -> f32 {
        (0..ranks).map(|me| me as f32 + self.op.number as f32).sum()
    }

    /// Takes a step of one rank. Returns the steps that may follow, by rank.
    fn take(&self, group: &Group, me: Rank, step: Step, chance: &mut Chance) -> Vec<(Rank, Step)> {
        let (backend, input) = (&group.backends[me.index()], &self.inputs[me.index()]);
        match step {
            Step::Begin => {
                let model = Input::lent(input).model().filter(|_| chance.below(2) == 0);
                group.begin(me, self.op, f32_call(SUM, self.count), None, &self.plan, model);
                let others = group.ranks().filter(|to| *to != me);
                return others.map(|to| (to, Step::Credit(me))).chain([(me, Step::Feed)]).collect();
            }
            Step::Feed if chance.below(2) == 0 => {
                backend.feed(self.op, &Input::Borrowed(bytes_of(input)));
            }
            Step::Feed => backend.feed(self.op, &Input::lent(input)),
            Step::Credit(from) => backend.credit(self.op, from),
            Step::Cancel => backend.cancel(self.op),
        }
        Vec::new()
    }
}

pub fn starts_feeds_credits_and_ends_in_any_order(door: &Door) {
    for seed in 0..20 {
        let chance = &mut Chance(seed);
        println!("seed {seed}");
        let size = 2 + chance.below(4) as usize;
        let group = door.group(size);
        let sums: Vec<Sum> = (0..24).map(|number| Sum::any(number, door, size, chance)).collect();
        let on_all = |sum, step| group.ranks().map(move |me| (sum, me, step));
        let given_up = sums.iter().filter(|sum| sum.is_given_up);
        let begins = sums.iter().flat_map(|sum| on_all(sum, Step::Begin));
        let mut steps: Vec<(&Sum, Rank, Step)> =
            begins.chain(given_up.flat_map(|sum| on_all(sum, Step::Cancel))).collect();
        while !steps.is_empty() {
            let pick = chance.below(steps.len() as u64) as usize;
            let (sum, me, step) = steps.swap_remove(pick);
            let next = sum.take(&group, me, step, chance);
            steps.extend(next.into_iter().map(|(rank, step)| (sum, rank, step)));
        }
        for _ in 0..size * sums.len() {
            let (rank, of, result) = group.outcome();
            let sum = &sums[of.number as usize];
            match result {
                Ok(finished) => {
                    let expected = vec![sum.of_ranks(size); sum.count];
                    assert!(bytes(&finished) == bytes_of(&expected), "{of} on rank {rank}");
                }
                Err(fault) => assert!(
                    sum.is_given_up && fault == EngineFault::Cancelled,
                    "{of} on rank {rank}: {fault}"
                ),
            }
        }
        assert!(group.end().is_empty(), "an operation has ended twice");
        for sum in &sums {
            let is_as_it_was = |(me, input): (usize, &Arc<Vec<f32>>)| {
                input.iter().all(|x| *x == sum.of_ranks(me + 1) - sum.of_ranks(me))
            };
            assert!(sum.inputs.iter().enumerate().all(is_as_it_was), "lent memory was written to");
        }
    }
}
