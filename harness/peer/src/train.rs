//! The training loop of the library's documentation, with synthetic gradients.

use crate::numbers::{Input, hash, input};
use crate::peer::context_after;
use crate::report::{emit, ms};
use potluck::{Cluster, Context, Error, Result, SharedState};
use serde::Deserialize;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// How often its bytes were made, and taken.
    saves: AtomicU64,
    loads: u64,
}

impl Training {
    /// Trains to the end; an error that a new Context does not cure ends the run.
    pub async fn run(&self, cluster: &Cluster) -> Result<Value> {
        let started = Instant::now();
        let weights = vec![0.0; self.len];
        let mut model = Model { step: 0, weights, saves: AtomicU64::new(0), loads: 0 };
        let mut retries = 0;
        let steps = cluster.elastic(&mut model, async |ctx, model| {
            let step = self.step(cluster, ctx, model).await;
            if let Err(error) = &step {
                retries += 1;
                let (code, message) = (error.code(), error.to_string());
                emit(&json!({
                    "event": "retry", "step": model.step, "code": code, "message": message,
                }));
            }
            step
        });
        let size = steps.await?;
        Ok(json!({
            "event": "trained",
            "step": model.step,
            "hash": hash(&model.weights),
            "retries": retries,
            "size": size,
            "saves": model.saves.into_inner(),
            "loads": model.loads,
            "ms": ms(started.elapsed()),
        }))
    }

    /// One step. Ends with the size of the group.
    async fn step(
        &self,
        cluster: &Cluster,
        ctx: &mut Context,
        model: &mut Model,
    ) -> Result<ControlFlow<usize>> {
        if self.hold_at == Some(model.step) && ctx.size() < self.hold_for.unwrap_or(0) {
            emit(&json!({"event": "hold", "step": model.step, "size": ctx.size()}));
            context_after(cluster, &ctx.view()).await?;
            return Err(Error::ViewChanged);
        }
        tokio::time::sleep(Duration::from_millis(self.step_ms)).await;
        let mut gradients: Vec<f32> =
            input(Input::Seed(self.seed ^ (model.step << 20)), ctx.rank().index(), self.len);
        ctx.all_reduce(&mut gradients).mean().await?;
        for (weight, gradient) in model.weights.iter_mut().zip(&gradients) {
            *weight -= 0.01 * (gradient + 0.1 * *weight);
        }
        model.step += 1;
        self.report(ctx, model);
        Ok(if model.step < self.steps {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(ctx.size())
        })
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

impl SharedState for Model {
    fn save(&self, out: &mut Vec<u8>) {
        self.saves.fetch_add(1, Ordering::Relaxed);
        self.step.save(out);
        self.weights.save(out);
    }

    fn load(&mut self, saved: &mut &[u8]) -> std::io::Result<()> {
        self.loads += 1;
        self.step.load(saved)?;
        self.weights.load(saved)
    }
}
