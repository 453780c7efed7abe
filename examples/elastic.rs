//! Training that continues while machines join and leave.
//!
//! Start it in two or three terminals, kill one with `kill -9`, and start it again:
//!
//! ```text
//! cargo run --example elastic -- --loopback --steps 2000
//! ```
//!
//! On several machines omit `--loopback`; they need the cluster key. `--steps` is the number of
//! steps, `--min` the minimum number of members (2), `ELASTIC_PAUSE_MS` the simulated computing
//! time of a step in milliseconds (10).
//!
//! The model is a toy: eight weights that learn a known linear function from synthetic samples. The
//! part to copy is [`train`].

use anyhow::{Result, anyhow, bail};
use potluck::{Builder, Cluster, Config, Context, SharedState};
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

const WEIGHTS: usize = 8;
const BATCH: u64 = 16;
const RATE: f32 = 0.05;

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::read()?;
    let cluster = options.builder.clone().join().await?;
    println!("waiting for the others");
    let model = train(&cluster, &options).await?;
    println!(
        "done: {} steps, error {:.6}, weights {:08x}",
        model.step,
        model.error(),
        model.fingerprint()
    );
    cluster.leave().await;
    Ok(())
}

/// The loop of every elastic program: do steps, and go on in the next View when the group has
/// changed.
async fn train(cluster: &Cluster, options: &Options) -> Result<Model> {
    let mut model = Model::new();
    let mut view = String::new();
    let steps = cluster.elastic(&mut model, async |ctx, model| {
        if view != ctx.view() {
            view = ctx.view();
            greet(ctx, model);
        }
        let mut gradient = model.gradient(ctx.rank().index(), ctx.size());
        ctx.all_reduce(&mut gradient).mean().await.inspect_err(|error| {
            println!("step {}: {error}", model.step);
        })?;
        // The model changes only after the last call of the step has committed on all members.
        model.apply(&gradient);
        if model.step.is_multiple_of(100) {
            println!("step {}: error {:.6}", model.step, model.error());
        }
        tokio::time::sleep(options.pause).await;
        Ok(if model.step < options.steps { Continue(()) } else { Break(()) })
    });
    steps.await.map_err(|error| anyhow!("training cannot go on: {error}"))?;
    Ok(model)
}

fn greet(ctx: &Context, model: &Model) {
    let names: Vec<String> = ctx.members().iter().map(|member| member.name.to_string()).collect();
    println!(
        "step {}: rank {} of {} in view {} with {}",
        model.step,
        ctx.rank(),
        ctx.size(),
        ctx.view(),
        names.join(", ")
    );
}

/// Eight weights, and the number of steps done.
struct Model {
    step: u64,
    weights: [f32; WEIGHTS],
}

/// The state that a late member receives.
impl SharedState for Model {
    fn save(&self, out: &mut Vec<u8>) {
        self.step.save(out);
        self.weights.save(out);
    }

    fn load(&mut self, saved: &mut &[u8]) -> std::io::Result<()> {
        self.step.load(saved)?;
        self.weights.load(saved)
    }
}

impl Model {
    /// Equal on every node, so nodes that start together agree from the first step on.
    fn new() -> Model {
        Model { step: 0, weights: [0.0; WEIGHTS] }
    }

    /// The mean gradient over this member's part of the step's samples.
    fn gradient(&self, rank: usize, size: usize) -> [f32; WEIGHTS] {
        let mut gradient = [0.0; WEIGHTS];
        for i in 0..BATCH {
            let sample = sample((self.step * size as u64 + rank as u64) * BATCH + i);
            let miss: f32 = (0..WEIGHTS).map(|k| (self.weights[k] - target(k)) * sample[k]).sum();
            (0..WEIGHTS).for_each(|k| gradient[k] += miss * sample[k] / BATCH as f32);
        }
        gradient
    }

    fn apply(&mut self, gradient: &[f32; WEIGHTS]) {
        self.weights.iter_mut().zip(gradient).for_each(|(weight, slope)| *weight -= RATE * slope);
        self.step += 1;
    }

    /// The distance between the weights and those of the true function.
    fn error(&self) -> f32 {
        (0..WEIGHTS).map(|k| (self.weights[k] - target(k)).powi(2)).sum::<f32>().sqrt()
    }

    /// A checksum over all bits; at the end it is the same in every terminal.
    fn fingerprint(&self) -> u32 {
        self.weights
            .iter()
            .fold(17, |sum: u32, weight| sum.wrapping_mul(31).wrapping_add(weight.to_bits()))
    }
}

fn target(k: usize) -> f32 {
    k as f32 - 3.5
}

/// Pseudo-random numbers between -1 and 1 (SplitMix64), equal on every machine.
fn sample(number: u64) -> [f32; WEIGHTS] {
    std::array::from_fn(|k| {
        let mut x = (number * WEIGHTS as u64 + k as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
}

struct Options {
    builder: Builder,
    steps: u64,
    pause: Duration,
}

impl Options {
    fn read() -> Result<Options> {
        let pause_ms = std::env::var("ELASTIC_PAUSE_MS")
            .map_or(Ok(10), |text| text.parse())
            .map_err(|error| anyhow!("ELASTIC_PAUSE_MS: {error}"))?;
        let mut options = Options {
            builder: Builder::new(Config::home()),
            steps: 1000,
            pause: Duration::from_millis(pause_ms),
        };
        let mut min_members = 2;
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut number = || {
                arguments
                    .next()
                    .unwrap_or_default()
                    .parse::<u64>()
                    .map_err(|error| anyhow!("{argument} NUMBER: {error}"))
            };
            match argument.as_str() {
                "--loopback" => {
                    options.builder = Builder::new(Config::loopback()).open_lan("elastic");
                }
                "--steps" => options.steps = number()?,
                "--min" => min_members = number()? as usize,
                _ => bail!("usage: elastic [--loopback] [--steps NUMBER] [--min NUMBER]"),
            }
        }
        options.builder = options.builder.min_members(min_members);
        Ok(options)
    }
}
