//! `Cluster::elastic`: the same state on every member while members come and go.

use super::on::{On, builder, fresh, joined};
use anyhow::{Context as _, Result, ensure};
use potluck::calls::Rejection;
use potluck::{Cluster, Context, Error, SharedState};
use std::ops::ControlFlow::{Break, Continue};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::watch;
use tokio::task::JoinSet;

const STEPS: u64 = 60;
const LEN: usize = 20_001;
/// Before this step rank 2 of the first View leaves, and before the next one another node comes.
const LEAVES_AT: u64 = 20;
const COMES_AT: u64 = 40;

/// A model that counts how often its bytes are made and taken.
#[derive(Default)]
struct Model {
    step: u64,
    weights: Vec<f32>,
    saves: AtomicU64,
    loads: u64,
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

impl Model {
    fn new() -> Model {
        Model { weights: vec![1.0; LEN], ..Model::default() }
    }

    fn gradient(&self, rank: usize) -> Vec<f32> {
        let slope = |(i, w): (usize, &f32)| ((i + rank) as f32 / 7.0).sin() - w * 0.1;
        self.weights.iter().enumerate().map(slope).collect()
    }

    fn apply(&mut self, mean: &[f32]) {
        self.weights.iter_mut().zip(mean).for_each(|(weight, slope)| *weight += 0.05 * slope);
        self.step += 1;
    }
}

/// Says how far the group is.
type Told = watch::Sender<u64>;

/// Trains to the end, or until this node is told to leave at a step.
async fn train(cluster: Cluster, told: Told, until: u64) -> Result<Model> {
    let (mut model, node) = (Model::new(), cluster.clone());
    let end = cluster.elastic(&mut model, async move |ctx, model| {
        told.send_modify(|step| *step = (*step).max(model.step));
        if model.step >= until {
            return Ok(Break(()));
        }
        if model.step == COMES_AT && ctx.size() < 3 {
            return until_there_are(3, &node).await;
        }
        let mut gradient = model.gradient(ctx.rank().index());
        ctx.all_reduce(&mut gradient).weighted(1.0 + ctx.rank().index() as f64).await?;
        model.apply(&gradient);
        Ok(if model.step < STEPS { Continue(()) } else { Break(()) })
    });
    end.await?;
    cluster.leave().await;
    Ok(model)
}

/// Waits for a View of so many members, and lets the loop go on in it.
async fn until_there_are<B>(
    members: usize,
    cluster: &Cluster,
) -> potluck::Result<std::ops::ControlFlow<B>> {
    let mut changes = cluster.watch();
    let is_there = |status: &potluck::Status| {
        status.view.as_ref().is_some_and(|view| view.members.len() >= members)
    };
    while !is_there(&changes.next().await.ok_or(Error::Closed)?) {}
    Err(Error::ViewChanged)
}

/// Three nodes begin, one leaves, and another one comes: the last three end with the same bits, and
/// a state is made for the newcomer only.
pub async fn goes_on(on: On) -> Result<()> {
    let (namespace, (told, mut step)) = (fresh("elastic"), watch::channel(0));
    let mut tasks = JoinSet::new();
    let nodes = joined(on, &namespace, 3, 2).await?;
    for cluster in &nodes {
        super::on::of_size(cluster, 3).await?;
    }
    for (number, cluster) in nodes.into_iter().enumerate() {
        let until = if number == 2 { LEAVES_AT } else { STEPS };
        tasks.spawn(train(cluster, told.clone(), until));
    }
    step.wait_for(|step| *step >= COMES_AT).await?;
    let newcomer = builder(on, &namespace, 2).join().await?;
    tasks.spawn(train(newcomer, told, STEPS));
    let mut models = Vec::new();
    while let Some(model) = tasks.join_next().await {
        models.push(model??);
    }
    let (left, stayed): (Vec<_>, Vec<_>) = models.into_iter().partition(|m| m.step < STEPS);
    ensure!(left.len() == 1 && left[0].step == LEAVES_AT, "{} have left", left.len());
    let bits = |model: &Model| model.weights.iter().map(|w| w.to_bits()).collect::<Vec<_>>();
    ensure!(stayed.len() == 3 && stayed.iter().all(|m| bits(m) == bits(&stayed[0])), "differ");
    let count = |model: &Model| (model.saves.load(Ordering::Relaxed), model.loads);
    let counts: Vec<(u64, u64)> = stayed.iter().map(count).collect();
    let (saves, loads) = counts.iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    ensure!(count(&left[0]) == (0, 0) && loads == 1 && (1..4).contains(&saves), "{counts:?}");
    Ok(())
}

/// An error that a new Context does not cure ends the loop. A state that cannot be loaded does too.
pub async fn ends(cluster: Cluster, context: Context) -> Result<()> {
    let (rank, mut state) = (context.rank().index(), (0u64, vec![1.0f32; 3]));
    let mismatch = cluster.elastic(&mut state, async move |ctx, (steps, numbers)| {
        *steps += 1;
        let len = if *steps == 3 && rank == 1 { 2 } else { 3 };
        ctx.all_reduce(&mut numbers[..len]).await?;
        Ok(Continue::<()>(()))
    });
    let error = mismatch.await.err().context("it has no end")?;
    ensure!(matches!(error, Error::Mismatch(_)) && state.0 == 3, "{error:?} at {}", state.0);
    let mut value = 5u32;
    let end = cluster.elastic(&mut value, async |ctx, value| {
        let mut sum = [*value];
        ctx.all_reduce(&mut sum).await?;
        Ok(Break(sum[0]))
    });
    ensure!(end.await? == 10 && value == 5, "the value of the break");
    let refused = Error::Rejected(Rejection::State);
    ensure!(!refused.can_renew(), "{refused}");
    Ok(())
}
