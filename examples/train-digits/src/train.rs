//! One member's training, across Views.

use crate::alone::Alone;
use crate::digits::{Digits, Samples};
use crate::net::{Kind, Net};
use crate::trainee::{Course, Trainee};
use anyhow::{Context as _, Result, bail};
use potluck::{Cluster, Codec, Error, GradientSync};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// The parameters of a training run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub kind: Kind,
    pub seed: u64,
    /// `f32`, `bf16`, `f16`, `int8`, `int4`, `onebit`, `top10` or `top1`; with the suffix `+ef` for
    /// error feedback.
    pub codec: String,
    pub epochs: u64,
    /// The number of workers over which the samples of a step are divided.
    pub workers: usize,
    /// Record the loss after every this many steps; 0 for never.
    pub curve_every: u64,
    /// Run the same training in one process on rank 0, and compare the parameters after every step.
    pub beside: bool,
    /// Print the progress after every this many steps; 0 for never.
    pub tell_every: u64,
    /// At this step and at the first step every member waits until the group has `workers` members.
    pub hold_at: Option<u64>,
}

/// The results of a training run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trained {
    /// On the test samples, in per cent.
    pub accuracy: f64,
    /// On the training samples.
    pub loss: f64,
    pub steps: u64,
    pub seconds: f64,
    /// Steps that were repeated.
    pub retries: u64,
    /// A hash of the parameters after every step: equal only if all of them were equal.
    pub chain: String,
    /// Seconds and loss.
    pub curve: Vec<(f64, f64)>,
    /// Steps of the comparison in one process that gave the same bits.
    pub beside: u64,
    /// Steps done with fewer than `workers` members.
    pub short_handed: u64,
}

struct Training<'a> {
    cluster: &'a Cluster,
    order: &'a Order,
    train: &'a Samples,
    net: Net,
    course: Course,
    trainee: Trainee,
    alone: Option<Alone>,
    snapshots: Vec<(f64, Vec<Vec<f32>>)>,
    short_handed: u64,
    started: Instant,
}

/// Trains to the end with the members that are present.
pub async fn train(cluster: &Cluster, samples: &Samples, order: &Order) -> Result<Trained> {
    let Digits { train, test } = samples.split(order.seed);
    let mut gradients = GradientSync::new(cluster, &order.kind.lens());
    if let Some(codec) = codec(&order.codec)? {
        gradients = gradients.compress(codec);
    }
    let trainee = Trainee::new(order.kind, order.seed);
    let mut training = Training {
        cluster,
        order,
        train: &train,
        net: Net::new(order.kind)?,
        course: Course::new(order.seed, train.len(), order.workers),
        alone: order.beside.then(|| Alone { trainee: trainee.clone() }),
        trainee,
        snapshots: Vec::new(),
        short_handed: 0,
        started: Instant::now(),
    };
    let (steps, mut retries) = (order.epochs * training.course.steps(), 0);
    while training.trainee.step < steps {
        if let Err(error) = training.step(&mut gradients).await {
            match error.downcast_ref::<Error>() {
                // Repeat the step in the next View. A member that was cut off gets the others'
                // state there.
                Some(why) if why.can_renew() => {
                    retries += 1
                }
                _ => return Err(error),
            }
        }
    }
    let seconds = training.started.elapsed().as_secs_f64();
    let Training { net, trainee, alone, snapshots, short_handed, .. } = training;
    let mut curve = Vec::new();
    for (at, parameters) in &snapshots {
        curve.push((*at, f64::from(net.loss(parameters, &train)?)));
    }
    Ok(Trained {
        accuracy: net.accuracy(&trainee.parameters, &test)?,
        loss: f64::from(net.loss(&trainee.parameters, &train)?),
        steps: trainee.step,
        seconds,
        retries,
        chain: format!("{:016x}", trainee.chain),
        curve,
        beside: alone.map_or(0, |alone| alone.trainee.step),
        short_handed,
    })
}

impl Training<'_> {
    async fn step(&mut self, gradients: &mut GradientSync) -> Result<()> {
        let (workers, hold_at) = (self.order.workers, self.order.hold_at);
        let buckets = gradients.buckets().to_vec();
        let context = gradients.context().await?;
        if !context.is_in_sync() {
            let mut state = self.trainee.to_bytes();
            context.sync(self.trainee.step, &mut state).await?;
            self.trainee.load(&state)?;
        }
        if (self.trainee.step == 0 || hold_at == Some(self.trainee.step))
            && context.size() < workers
        {
            // All members wait here until the group is complete.
            return until_there_are(workers, self.cluster).await;
        }
        let fold = |bucket: std::ops::Range<usize>| {
            let len = self.order.kind.lens()[bucket.clone()].iter().sum();
            (bucket, context.fold_order::<f32>(len))
        };
        let orders: Vec<_> =
            if self.alone.is_some() { buckets.into_iter().map(fold).collect() } else { Vec::new() };

        let mut step = gradients.step().await?;
        let batch = self.train.pick(&self.course.batch(self.trainee.step, step.rank().index()));
        let (_, mut means) = self.net.gradients(&self.trainee.parameters, &batch)?;
        for (parameter, gradient) in means.iter_mut().enumerate().rev() {
            step.push(parameter, gradient);
        }
        let (rank, size) = (step.rank().index(), step.size());
        step.finish().await?;
        self.trainee.apply(&means);

        let done = self.trainee.step;
        self.short_handed += u64::from(size < workers);
        if self.order.curve_every > 0 && done.is_multiple_of(self.order.curve_every) {
            self.snapshots
                .push((self.started.elapsed().as_secs_f64(), self.trainee.parameters.clone()));
        }
        if self.order.tell_every > 0 && done.is_multiple_of(self.order.tell_every) {
            println!("step {done}");
        }
        match &mut self.alone {
            Some(alone) if rank == 0 => {
                alone.step(&self.net, self.train, &self.course, workers, &orders)?;
                if alone.trainee.chain != self.trainee.chain {
                    bail!("step {done}: one process alone comes to other parameters");
                }
            }
            _ => {}
        }
        Ok(())
    }
}

async fn until_there_are(workers: usize, cluster: &Cluster) -> Result<()> {
    let mut changes = cluster.watch();
    while changes
        .next()
        .await
        .context("the node has ended")?
        .view
        .is_none_or(|view| view.members.len() < workers)
    {}
    Ok(())
}

/// `None` for unencoded f32.
pub fn codec(name: &str) -> Result<Option<Codec>> {
    let (plain, feedback) = name.strip_suffix("+ef").map_or((name, false), |plain| (plain, true));
    let codec = match plain {
        "f32" => return Ok(None),
        "bf16" => Codec::bf16(),
        "f16" => Codec::f16(),
        "int8" => Codec::int8(),
        "int4" => Codec::int4(),
        "onebit" => Codec::one_bit().without_feedback(),
        // This percentage of the elements.
        "top10" => Codec::top_k(0.1).without_feedback(),
        "top1" => Codec::top_k(0.01).without_feedback(),
        _ => bail!("no codec {name}"),
    };
    Ok(Some(if feedback { codec.with_feedback() } else { codec }))
}
