//! `potluck demo-member`: a member of the demo's group, which is a process of its own. It reads
//! commands from its input and reports on its output.

use super::message::{Answer, Event, Failure, Membership, Order};
use super::milestone::{Milestone, all_reduced};
use super::numbers::{Numbers, hash};
use super::orders::FoldOrders;
use crate::exit::Exit;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use potluck::{Builder, Cluster, Config, Context, Error};
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// A member of the demo's group. Key and home come from the environment.
#[derive(Args, Debug)]
pub struct Member {
    #[arg(long)]
    name: String,
    /// The size of the smallest group that continues
    #[arg(long)]
    min: usize,
}

impl Member {
    /// Joins, executes commands until the end of the input, and leaves.
    pub async fn run(self) -> Result<Exit> {
        match self.live().await {
            Ok(()) => Ok(Exit::Done),
            Err(problem) => {
                emit(&Event::Failed(format!("{problem:#}")));
                Ok(Exit::Failed)
            }
        }
    }

    async fn live(self) -> Result<()> {
        let member = Builder::new(Config::loopback()).name(self.name.as_str());
        let cluster = member.min_members(self.min).join().await?;
        emit(&Event::Joined);
        let mut context = None;
        // The node has threads of its own: it runs while this one waits for a line.
        for line in std::io::stdin().lock().lines() {
            match serde_json::from_str(&line?)? {
                Order::Context { min } => {
                    let taken = timeout(PATIENCE, context_of(&cluster, min)).await;
                    let taken = taken.with_context(|| format!("no group of {min}"))??;
                    emit(&Event::Context(membership(&taken)));
                    context = Some(taken);
                }
                Order::Sum { len, seed, report_at } => {
                    let context = context.as_mut().context(NO_CONTEXT)?;
                    emit(&Event::Answered(sum(context, len, seed, report_at).await));
                }
                Order::Sync { version } => {
                    let context = context.as_mut().context(NO_CONTEXT)?;
                    emit(&Event::Answered(sync(context, version).await));
                }
            }
        }
        cluster.leave().await;
        Ok(())
    }
}

/// Prints one event. An error means that the demo has ended, and then the input ends too.
pub fn emit(event: &Event) {
    let mut out = std::io::stdout().lock();
    let line = serde_json::to_string(event).unwrap_or_default();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// The Context of the newest View, once it has at least `min` members.
async fn context_of(cluster: &Cluster, min: usize) -> Result<Context> {
    let mut changes = cluster.watch();
    loop {
        let context = cluster.context().await?;
        if context.size() >= min {
            return Ok(context);
        }
        if changes.next().await.is_none() {
            bail!("the node has left");
        }
    }
}

fn membership(context: &Context) -> Membership {
    let member = |peer: &potluck::Peer| (peer.name.as_str().to_owned(), peer.node.to_string());
    Membership {
        view: context.view(),
        members: context.members().iter().map(member).collect(),
        engine: context.engine().to_string(),
        engine_reason: context.engine_reason(),
    }
}

async fn sum(context: &mut Context, len: usize, seed: u64, report_at: Option<f64>) -> Answer {
    let (rank, numbers) = (context.rank().index(), Numbers::new(seed, context.size()));
    let mut buffer = numbers.of_rank(rank, len);
    let orders = FoldOrders::watch(context, move |context| context.fold_order::<f32>(len));
    let bytes = all_reduced(context, size_of_val(&buffer[..]));
    // Another lane of the same View, which only reads counters.
    let watched = || context.lane(u32::MAX);
    let progress = || emit(&Event::Progress);
    let mark = report_at.map(|share| Milestone::of(watched(), share, bytes, progress));
    let started = Instant::now();
    let outcome = Milestone::passed_by(mark, context.all_reduce(&mut buffer)).await;
    let seconds = started.elapsed().as_secs_f64();
    let orders = orders.seen();
    let is_exact = || orders.iter().any(|order| numbers.are_summed(order, &buffer));
    let is_right = if outcome.is_ok() { is_exact() } else { numbers.are_of(rank, &buffer) };
    let hash = hash(buffer.iter().map(|x| x.to_bits()));
    Answer { failure: outcome.as_ref().err().map(failure), is_right, hash, seconds }
}

async fn sync(context: &mut Context, version: u64) -> Answer {
    let given: Vec<u8> =
        (0..STATE_BYTES).map(|i| (i.wrapping_mul((version + 1) | 1) >> 3) as u8).collect();
    let mut state = given.clone();
    let started = Instant::now();
    let outcome = context.sync(version, &mut state).await;
    let seconds = started.elapsed().as_secs_f64();
    let is_right = outcome.is_ok() || state == given;
    let hash = hash(state.iter().copied().map(u32::from));
    Answer { failure: outcome.as_ref().err().map(failure), is_right, hash, seconds }
}

fn failure(error: &Error) -> Failure {
    Failure {
        code: error.code().to_owned(),
        message: error.to_string(),
        is_retryable: error.is_retryable(),
    }
}

/// The length of the state that a sync transfers.
pub const STATE_BYTES: u64 = 5000;

const NO_CONTEXT: &str = "a call before the first context";

/// The time limit of a Context.
const PATIENCE: Duration = Duration::from_secs(60);
