//! `potluck bench`: measures the links of a group and its sums, beside the predictions of the plan.

mod chart;
mod links;
mod report;
mod size;
mod sums;

use crate::args::{Where, Which};
use crate::exit::{Exit, Stop};
use crate::output::Output;
use anyhow::{Context as _, Result};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use potluck::report::{NodeInfo, Topology};
use potluck::{Builder, Cluster, Context, Error, Event, EventStream};
use report::Report;
use size::Size;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout, timeout_at};

/// Measure links and sums of some machines, beside the plan's predictions; type it on each of them
///
/// The machines form a group of their own. Each link carries messages in both directions, one at a
/// time; then all sum buffers of each size. Every sum is verified, and every machine prints the
/// same table. Predictions are there for sizes from 1 MiB on, if the links between all machines are
/// measured. JSON: {ok, view, engine, plan, members: [{rank, name, node}], links: [{from, to,
/// predicted_bps, measured_bps}], sums: [{bytes, rounds, predicted_us, median_us, min_us,
/// max_us}]}; unknown values are null. Exit code 3: too few machines came; 4: one was lost.
#[derive(Args, Debug)]
pub struct Bench {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Where,
    /// How many machines, 2 to 32
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        value_parser = clap::value_parser!(u8).range(2..=32)
    )]
    members: u8,
    /// Sizes of the buffers to sum, at most 1G, as 64K,1M,64M
    #[arg(
        long,
        value_name = "SIZES",
        value_delimiter = ',',
        default_value = "4K,64K,1M,8M,64M",
        value_parser = Size::parse
    )]
    sizes: Vec<Size>,
    /// About how long each size is measured, in seconds, at most 600
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// How long to wait for the other machines, in seconds, at most 3600
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = patience)]
    wait: f64,
    /// Write a chart to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// A peer to dial besides those that are found, as host or host:port; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    peer: Vec<String>,
    /// The name of this node [default: the host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Bench {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let progress = bar(self.sizes.len());
        let cluster = self.builder().join().await?;
        let measured = tokio::select! {
            measured = self.measure(&cluster, &progress) => measured,
            _ = interrupt.recv() => Err(interrupted()),
            _ = terminate.recv() => Err(interrupted()),
        };
        progress.finish_and_clear();
        cluster.leave().await;
        let report = measured?;
        // Printed first: a file that cannot be written must not lose the measurement.
        let printed = output.result(&report, || report.to_text(output.paper()));
        if let Some(file) = &self.svg {
            std::fs::write(file, chart::svg(&report))
                .with_context(|| format!("{} cannot be written", file.display()))?;
        }
        printed?;
        Ok(Exit::Done)
    }

    /// A group of exactly as many machines, apart from all other jobs.
    fn builder(&self) -> Builder {
        let mut config = self.place.config(&self.which);
        config.peers.clone_from(&self.peer);
        config.name.clone_from(&self.name);
        let members = usize::from(self.members);
        Builder::new(config)
            .job(JOB)
            .members(members)
            .min_members(members)
            .max_members(members)
            .notices(false)
    }

    async fn measure(&self, cluster: &Cluster, progress: &ProgressBar) -> Result<Report> {
        progress.set_message(format!("waiting for {} machines", self.members));
        let events = cluster.events();
        let mut ctx = self.group(cluster, progress).await?;
        match self.measure_in(&mut ctx, cluster, progress).await {
            Err(error) => Err(lost(events, &ctx, error).await),
            measured => measured,
        }
    }

    /// Waits for the group. Says once on stderr why that takes long.
    async fn group(&self, cluster: &Cluster, progress: &ProgressBar) -> Result<Context> {
        let mut group = pin!(cluster.context_within(Duration::from_secs_f64(self.wait)));
        if let Ok(context) = timeout(LONG, &mut group).await {
            return Ok(context?);
        }
        let status = cluster.status();
        progress.suspend(|| eprintln!("still {}: {}", status.state, status.reasons().join("; ")));
        Ok(group.await?)
    }

    async fn measure_in(
        &self,
        ctx: &mut Context,
        cluster: &Cluster,
        progress: &ProgressBar,
    ) -> Result<Report> {
        progress.set_message("the links are being measured");
        // Links inside one machine are not measured.
        let settling = if self.place.loopback { Duration::ZERO } else { SETTLING };
        let topology = settled(cluster, settling).await;
        progress.inc(1);
        progress.set_message("links");
        let links = links::measure(ctx, topology.as_ref()).await?;
        let mut sums = Vec::new();
        for size in self.agreed(ctx).await? {
            progress.inc(1);
            progress.set_message(format!("sums of {size}"));
            sums.push(sums::measure(ctx, cluster, size, self.seconds).await?);
        }
        let plan = cluster.topology().map(|topology| topology.plan).unwrap_or_default();
        Ok(Report::of(ctx, plan, links, sums))
    }

    /// The sizes of rank 0: each machine was given its own.
    async fn agreed(&self, ctx: &mut Context) -> Result<Vec<Size>> {
        let mut count = [self.sizes.len() as u64];
        ctx.broadcast(0, &mut count).await?;
        let mut bytes: Vec<u64> = self.sizes.iter().map(|size| size.bytes()).collect();
        bytes.resize(usize::try_from(count[0])?.min(SIZES_MAX), 0);
        ctx.broadcast(0, &mut bytes).await?;
        bytes.into_iter().map(|bytes| Size::of(bytes).map_err(anyhow::Error::msg)).collect()
    }
}

/// The group as soon as the plan has predictions, or as it is after `settling`.
async fn settled(cluster: &Cluster, settling: Duration) -> Option<Topology> {
    let until = Instant::now() + settling;
    let mut changes = cluster.watch();
    loop {
        let topology = cluster.topology();
        let has_forecasts = topology.as_ref().is_some_and(|t| !t.forecasts.is_empty());
        if has_forecasts || !matches!(timeout_at(until, changes.next()).await, Ok(Some(_))) {
            return topology;
        }
    }
}

/// The error of a call as one that names the member that was lost, if one was. One that only left
/// is named if none was lost: it left because its own call ended the same way.
async fn lost(mut events: EventStream, ctx: &Context, error: anyhow::Error) -> anyhow::Error {
    if !error.downcast_ref::<Error>().is_some_and(Error::can_renew) {
        return error;
    }
    let until = Instant::now() + NOTICED;
    let is_member = |peer: &NodeInfo| ctx.members().iter().any(|member| member.node == peer.node);
    let mut gone = None;
    while let Ok(Some(event)) = timeout_at(until, events.next()).await {
        match event {
            // Earlier events are of earlier Views.
            Event::Installed { view, .. } if view.to_string() == ctx.view() => gone = None,
            Event::Lost { peer, .. } if is_member(&peer) => {
                gone = Some(format!("{peer} was lost"));
                break;
            }
            Event::Left(peer) if is_member(&peer) => gone = Some(format!("{peer} left")),
            _ => {}
        }
    }
    match gone {
        Some(gone) => {
            let sentence = format!("{gone}, so nothing was measured");
            Stop::with(Exit::PeerLost, "peer-lost", sentence)
        }
        None => error,
    }
}

fn interrupted() -> anyhow::Error {
    Stop::with(Exit::Interrupted, "interrupted", "interrupted")
}

/// Drawn on stderr, and only if that is a terminal.
fn bar(sizes: usize) -> ProgressBar {
    let bar = ProgressBar::new(sizes as u64 + 2);
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    number(text, 600.0)
}

fn patience(text: &str) -> std::result::Result<f64, String> {
    number(text, 3600.0)
}

fn number(text: &str, most: f64) -> std::result::Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| *n > 0.0 && *n <= most);
    number.ok_or_else(|| format!("it must be a number above 0 and at most {most}"))
}

/// The job of these groups.
const JOB: &str = "potluck-bench";

/// When a person wants to know why the group does not come about.
const LONG: Duration = Duration::from_secs(3);

/// How long the plan may take for its predictions.
const SETTLING: Duration = Duration::from_secs(60);

/// How long after a failed call the loss of a member is noticed at most.
const NOTICED: Duration = Duration::from_secs(3);

/// The sizes that rank 0 may ask for: a bound, because it is another machine.
const SIZES_MAX: usize = 64;
