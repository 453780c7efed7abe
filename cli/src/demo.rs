//! `potluck demo`: runs and verifies a group of real processes on this machine.

mod group;
mod member;
mod message;
mod milestone;
mod network;
mod numbers;
mod orders;
mod peer;
mod phases;
mod report;
mod scratch;

use crate::exit::Exit;
use crate::output::Output;
use anyhow::Result;
use clap::Args;
use group::Group;
use indicatif::{ProgressBar, ProgressStyle};
pub use member::Member;
use network::Network;
use phases::{Phase, Story};
use potluck::plan::EngineKind;
use report::{PhaseReport, Report};
use scratch::Scratch;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// Run several peers on this machine: they find each other, sum, lose one, go on, and take it back
///
/// All of it is done with every engine that this build has: on Gloo, and natively. Every sum is
/// compared bit for bit with a sequential one on every peer. On Linux the peers run in a network
/// namespace of their own where that is possible: nothing leaves it. Elsewhere they use 127.0.0.1
/// alone, and the system itself may report the multicast group on its other interfaces. Exit code 0
/// means that everything was verified. JSON: {ok, network: "own" | "loopback", peers, gloo, phases:
/// [{name, ok, ranks, engine, seconds, bus_gb_per_s, note}]}.
#[derive(Args, Debug)]
pub struct Demo {
    /// How many peers, 3 to 32
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = clap::value_parser!(u8).range(3..=32)
    )]
    peers: u8,
    /// Keep the peers' directories, and say where they are
    #[arg(long)]
    keep: bool,
    /// The network namespace is made already
    #[arg(long, hide = true)]
    inside: bool,
}

impl Demo {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        if !self.inside {
            // Returns only if no network namespace can be created.
            network::enter_own();
        }
        let network = if self.inside { Network::Own } else { Network::Loopback };
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let progress = spinner();
        let scratch = Scratch::new(self.keep)?;
        let mut reports = Vec::new();
        for engine in engines() {
            let mut story = Story::new(Group::new(&scratch, usize::from(self.peers), engine)?);
            let phases = tokio::select! {
                phases = phases(&mut story, engine, &progress) => phases,
                _ = interrupt.recv() => return Err(story.interrupted().await),
                _ = terminate.recv() => return Err(story.interrupted().await),
            };
            reports.extend(phases);
            progress.set_message("everybody leaves");
            story.end().await;
        }
        progress.finish_and_clear();
        let report = Report::new(network, usize::from(self.peers), reports);
        if !report.ok {
            scratch.logs().iter().for_each(|log| output.say(log));
        }
        if self.keep {
            output.say(&format!("The peers' directories are in {}", scratch.path().display()));
        }
        output.result(&report, || report.text())?;
        Ok(if report.ok { Exit::Done } else { Exit::Failed })
    }
}

/// The engines of this build; each runs all phases.
fn engines() -> Vec<EngineKind> {
    let gloo = potluck::gloo_version().map(|_| EngineKind::Gloo);
    gloo.into_iter().chain([EngineKind::Native]).collect()
}

/// Runs all phases until one fails.
async fn phases(story: &mut Story, engine: EngineKind, progress: &ProgressBar) -> Vec<PhaseReport> {
    let mut reports = Vec::new();
    for phase in Phase::ALL {
        progress.set_message(format!("{engine}: {}", phase.doing()));
        let report = match timeout(DEADLINE, story.run(phase)).await {
            Ok(Ok(report)) => report,
            Ok(Err(problem)) => PhaseReport::failed(phase, engine, format!("{problem:#}")),
            Err(_) => PhaseReport::failed(
                phase,
                engine,
                format!("not done within {} s", DEADLINE.as_secs()),
            ),
        };
        let went_well = report.ok;
        reports.push(report);
        if !went_well {
            break;
        }
    }
    let missing = Phase::ALL.into_iter().skip(reports.len());
    reports
        .extend(missing.map(|phase| PhaseReport::failed(phase, engine, "not reached".to_owned())));
    reports
}

fn spinner() -> ProgressBar {
    // Drawn on stderr, and only if that is a terminal.
    let spinner = ProgressBar::new_spinner();
    spinner.set_style(ProgressStyle::default_spinner());
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// The time limit of a phase. Two idle slow cores need a few seconds; with ten other busy processes
/// the sums alone take half a minute.
const DEADLINE: Duration = Duration::from_secs(90);
