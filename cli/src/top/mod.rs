//! `potluck top`: members, links, calls and events of the cluster, in the terminal while they
//! change.

mod frame;
mod group;
mod history;
mod screen;
mod source;

use crate::exit::{Exit, Stop};
use crate::output::Output;
use crate::picture::Paper;
use crate::selection::Selection;
use anyhow::Result;
use clap::Args;
use frame::{Scene, Size, frame};
use history::History;
use potluck::report::document::StatusDocument;
use screen::Screen;
use serde_json::json;
use source::Source;
use std::io::{self, IsTerminal};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Show the members, links and calls of the cluster, and the events, until q or Ctrl-C
///
/// It asks the same nodes as `potluck status`; only `calls/s` and the events are its own, from one
/// look to the next. `port` is the measured rate of a member's network port. With --once, with
/// --json and where stdout is no terminal, it shows the state and ends. JSON: {ok, namespace,
/// nodes}, with the status of each node as a node serves it. Exit code 3 if there are none.
#[derive(Args, Debug)]
pub struct Top {
    #[command(flatten)]
    selection: Selection,
    /// Print one frame and end
    #[arg(long)]
    once: bool,
    /// The width of a frame in characters, 60 to 250 [default: that of the terminal, or 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(60..=250))]
    columns: Option<u8>,
    /// The time between two frames, in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    every: u64,
}

async fn next(ticks: &mut Interval, source: &mut Source) -> Result<Vec<StatusDocument>> {
    ticks.tick().await;
    source.look().await
}

/// Wider frames are harder to read than this.
const COLUMNS_MAX: usize = 250;

impl Top {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        if self.once || output.is_json() || !io::stdout().is_terminal() {
            self.once(output).await
        } else {
            self.live(output).await
        }
    }

    async fn once(self, output: &Output) -> Result<Exit> {
        let namespace = self.selection.keys()?.namespace().to_owned();
        let found = self.selection.find(output).await?;
        if found.nodes.is_empty() {
            let sentence = format!(
                "no {} runs on this machine or answers: see `potluck status{}`",
                self.selection.described()?,
                self.selection.flag()
            );
            return Err(Stop::with(Exit::NoPeers, "not-running", sentence));
        }
        let document = json!({ "ok": true, "namespace": namespace, "nodes": found.nodes });
        output.result(&document, || {
            let scene = Scene {
                namespace: &namespace,
                nodes: &found.nodes,
                history: &History::default(),
                at: Duration::ZERO,
            };
            frame(&scene, Size { paper: self.paper(output), rows: None }).join("\n")
        })?;
        Ok(Exit::Done)
    }

    async fn live(self, output: &Output) -> Result<Exit> {
        let (mut interrupt, mut terminate, mut resized) = (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::window_change())?,
        );
        let namespace = self.selection.keys()?.namespace().to_owned();
        let (mut source, mut history) = (Source::of(self.selection.clone()), History::default());
        // The first look may fail, for example without a cluster key: then the terminal stays as
        // it is.
        let mut nodes = source.look().await?;
        let (screen, began) = (Screen::open()?, Instant::now());
        let mut keys = screen.keys();
        let every = Duration::from_secs(self.every);
        let mut ticks = interval_at(began + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let exit = loop {
            let at = began.elapsed();
            history.look(&nodes, at);
            let scene = Scene { namespace: &namespace, nodes: &nodes, history: &history, at };
            screen.show(&frame(&scene, self.size(output)))?;
            tokio::select! {
                _ = interrupt.recv() => break Exit::Interrupted,
                _ = terminate.recv() => break Exit::Done,
                Some(key) = keys.recv() => if key == b'q' { break Exit::Done },
                _ = resized.recv() => {}
                // A look that a key interrupts is repeated at the next tick.
                looked = next(&mut ticks, &mut source) => nodes = looked?,
            }
        };
        drop(screen);
        source.leave().await;
        Ok(exit)
    }

    fn paper(&self, output: &Output) -> Paper {
        let paper = output.paper();
        let columns = self.columns.map_or(paper.columns, usize::from).min(COLUMNS_MAX);
        Paper { columns, ..paper }
    }

    fn size(&self, output: &Output) -> Size {
        Size { paper: self.paper(output), rows: output.rows() }
    }
}
