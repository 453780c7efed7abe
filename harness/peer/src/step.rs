//! Several sums under one vote.

use crate::answer::{tell, timed, verdict};
use crate::call::Calls;
use crate::milestone::{Milestone, all_reduced};
use crate::numbers::{Input, hash, input, is_exact, same};
use crate::orders::FoldOrders;
use crate::report::progress;
use potluck::ReduceOp;
use serde::Deserialize;

/// A step with sums of these lengths.
#[derive(Debug, Deserialize)]
pub struct Step {
    lens: Vec<usize>,
    #[serde(default)]
    seed: u64,
    /// Report when this share of the expected received bytes has arrived, 0 to 1.
    report_at: Option<f64>,
    /// Leave this many bytes of address space to the step.
    room: Option<u64>,
}

impl Calls<'_> {
    pub async fn step(self, s: &Step) {
        let rank = self.context.rank().index();
        let from = |i: usize| Input::Seed(s.seed.wrapping_add(i as u64));
        let given: Vec<Vec<f32>> =
            s.lens.iter().enumerate().map(|(i, len)| input(from(i), rank, *len)).collect();
        let mut buffers = given.clone();
        let orders = s.lens.iter().map(|len| self.orders::<f32>(*len)).collect::<Vec<_>>();
        let bytes = all_reduced(self.context, s.lens.iter().sum::<usize>() * size_of::<f32>());
        let mark = s
            .report_at
            .map(|share| Milestone::of(self.context.lane(u32::MAX), share, bytes, progress));
        let calls = async {
            let mut step = self.context.step();
            for buffer in &mut buffers {
                step.all_reduce(buffer);
            }
            Milestone::passed_by(mark, step.commit()).await
        };
        let (outcome, time) = timed(s.room, calls).await;
        let orders: Vec<_> = orders.iter().map(FoldOrders::seen).collect();
        let size = self.context.size();
        let is_right = |(i, buffer): (usize, &Vec<f32>)| match outcome {
            Ok(()) => is_exact(size, &orders[i], ReduceOp::Sum, from(i), buffer),
            Err(_) => same(buffer, &given[i]),
        };
        let good = buffers.iter().enumerate().all(is_right);
        tell(outcome, verdict(good, "exact"), &hash(&buffers.concat()), time);
    }
}
