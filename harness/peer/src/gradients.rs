//! One step of `GradientSync`.

use crate::answer::{tell, timed, verdict};
use crate::numbers::{Input, hash, input, same};
use crate::report::{self, emit};
use potluck::{Cluster, Codec, GradientSync, Result};
use serde::Deserialize;

/// Gradients of these lengths; with `coded`, in eight bits and with error feedback.
#[derive(Debug, Deserialize)]
pub struct Gradients {
    lens: Vec<usize>,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    coded: bool,
    /// Leave this many bytes of address space to the step.
    room: Option<u64>,
}

impl Gradients {
    pub async fn run(&self, cluster: &Cluster) {
        let mut sync = GradientSync::new(cluster, &self.lens);
        if self.coded {
            sync = sync.compress(Codec::int8().with_feedback());
        }
        let (rank, size) = match sync.context().await {
            Ok(context) => (context.rank().index(), context.size()),
            Err(error) => return emit(&report::error(&error)),
        };
        let of = |rank: usize, parameter: usize| -> Vec<f32> {
            input(Input::Seed(self.seed + parameter as u64), rank, self.lens[parameter])
        };
        let mut gradients: Vec<Vec<f32>> =
            (0..self.lens.len()).map(|parameter| of(rank, parameter)).collect();
        let (outcome, time) = timed(self.room, step(&mut sync, &mut gradients)).await;
        let is_right = |(parameter, gradient): (usize, &Vec<f32>)| match outcome {
            Err(_) => same(gradient, &of(rank, parameter)),
            Ok(()) => {
                let all: Vec<Vec<f32>> = (0..size).map(|rank| of(rank, parameter)).collect();
                gradient.iter().enumerate().all(|(i, mean)| {
                    let exact = all.iter().map(|one| f64::from(one[i])).sum::<f64>() / size as f64;
                    (f64::from(*mean) - exact).abs() <= if self.coded { 0.05 } else { 1e-5 }
                })
            }
        };
        let good = gradients.iter().enumerate().all(is_right);
        tell(outcome, verdict(good, "exact"), &hash(&gradients.concat()), time);
    }
}

async fn step(sync: &mut GradientSync, gradients: &mut [Vec<f32>]) -> Result<()> {
    let mut step = sync.step().await?;
    for (parameter, gradient) in gradients.iter_mut().enumerate().rev() {
        step.push(parameter, gradient);
    }
    step.finish().await
}
