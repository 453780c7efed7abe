//! The training loop of the library's documentation, with synthetic gradients.

use crate::numbers::{Input, hash, input};
use crate::peer::context_after;
use crate::report::{emit, ms};
use potluck::{Cluster, Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The parameters of a training run.
#[derive(Debug, Deserialize)]
pub struct Training {
    steps: u64,
    len: usize,
    #[serde(default)]
    seed: u64,
    /// Simulated computing time per step.
    #[serde(default)]
    step_ms: u64,
    /// Steps between two `step` events. Default 10.
    report_every: Option<u64>,
    /// Before this step every member waits...
    hold_at: Option<u64>,
    /// ...until the group has this many members.
    hold_for: Option<usize>,
}

/// Parameters and the number of steps done.
struct Model {
    step: u64,
    weights: Vec<f32>,
}

impl Training {
    /// Trains to the end; an error that is not retryable ends the run.
    pub async fn run(&self, cluster: &Cluster) -> Result<Value> {
        let started = Instant::now();
        let mut model = Model { step: 0, weights: vec![0.0; self.len] };
        let mut retries = 0;
        let mut ctx = cluster.context().await?;
        while model.step < self.steps {
            if self.hold_at == Some(model.step) && ctx.size() < self.hold_for.unwrap_or(0) {
                emit(&json!({"event": "hold", "step": model.step, "size": ctx.size()}));
                ctx = context_after(cluster, &ctx.view()).await?;
                continue;
            }
            match self.step(&mut ctx, &mut model).await {
                Ok(()) => self.report(&ctx, &model),
                Err(e) if e.is_retryable() => {
                    emit(&json!({
                        "event": "retry",
                        "step": model.step,
                        "code": e.code(),
                        "message": e.to_string(),
                    }));
                    retries += 1;
                    ctx = ctx.renewed().await?;
                }
                // This member was cut off; the others have the state.
                Err(e) if e.code() == "indeterminate" => {
                    retries += 1;
                    ctx = ctx.renewed().await?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(json!({
            "event": "trained",
            "step": model.step,
            "hash": hash(&model.weights),
            "retries": retries,
            "size": ctx.size(),
            "ms": ms(started.elapsed()),
        }))
    }

    async fn step(&self, ctx: &mut Context, model: &mut Model) -> Result<()> {
        let mut state = model.to_bytes();
        ctx.sync(model.step, &mut state).await?;
        model.load(&state);
        if model.step >= self.steps {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(self.step_ms)).await;
        let mut gradients: Vec<f32> =
            input(Input::Seed(self.seed ^ (model.step << 20)), ctx.rank().index(), self.len);
        ctx.all_reduce(&mut gradients).mean().await?;
        for (weight, gradient) in model.weights.iter_mut().zip(&gradients) {
            *weight -= 0.01 * (gradient + 0.1 * *weight);
        }
        model.step += 1;
        Ok(())
    }

    fn report(&self, ctx: &Context, model: &Model) {
        if model.step.is_multiple_of(self.report_every.unwrap_or(10).max(1)) {
            emit(&json!({
                "event": "step",
                "step": model.step,
                "size": ctx.size(),
                "rank": ctx.rank().index(),
                "hash": hash(&model.weights),
            }));
        }
    }
}

impl Model {
    fn to_bytes(&self) -> Vec<u8> {
        let weights = self.weights.iter().flat_map(|weight| weight.to_le_bytes());
        self.step.to_le_bytes().into_iter().chain(weights).collect()
    }

    fn load(&mut self, bytes: &[u8]) {
        let Some((step, weights)) = bytes.split_first_chunk::<8>() else { return };
        self.step = u64::from_le_bytes(*step);
        self.weights =
            weights.as_chunks::<4>().0.iter().map(|weight| f32::from_le_bytes(*weight)).collect();
    }
}
