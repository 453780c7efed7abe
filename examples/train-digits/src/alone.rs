//! The same training in one process: it computes every worker's gradient and adds them in the
//! group's fold order.

use crate::digits::Samples;
use crate::net::Net;
use crate::trainee::{Course, Trainee};
use anyhow::Result;
use potluck::ReduceOp;
use potluck::plan::{FoldOrder, reference_sum};
use std::ops::Range;

/// The model that a group trains, trained by one process for comparison.
pub struct Alone {
    pub trainee: Trainee,
}

impl Alone {
    /// One step with `workers` batches. `buckets` contains the parameters that the group reduces as
    /// one buffer, with the fold order of that buffer.
    pub fn step(
        &mut self,
        net: &Net,
        train: &Samples,
        course: &Course,
        workers: usize,
        buckets: &[(Range<usize>, FoldOrder)],
    ) -> Result<()> {
        let trainee = &mut self.trainee;
        let gradients = (0..workers).map(|worker| {
            let batch = train.pick(&course.batch(trainee.step, worker));
            Ok(net.gradients(&trainee.parameters, &batch)?.1)
        });
        let gradients: Vec<Vec<Vec<f32>>> = gradients.collect::<Result<_>>()?;
        let mut means = gradients[0].clone();
        for (bucket, order) in buckets {
            let inputs: Vec<Vec<f32>> =
                gradients.iter().map(|all| all[bucket.clone()].concat()).collect();
            let mut mean = reference_sum(order, ReduceOp::Mean, &inputs).into_iter();
            means[bucket.clone()].iter_mut().flatten().zip(&mut mean).for_each(|(to, x)| *to = x);
        }
        trainee.apply(&means);
        Ok(())
    }
}
