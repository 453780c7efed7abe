//! `potluck peers`: a line for each node of the cluster.

mod peer;
mod text;

use crate::document::neighbour_text;
use crate::exit::{Exit, Stop};
use crate::output::Output;
use crate::selection::{Found, Selection};
use anyhow::Result;
use clap::Args;
use peer::{PeerDocument, peers_of, reasons_of};
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

/// List the nodes of the cluster: how this machine reaches them, and their state
///
/// It asks the same nodes as `potluck status`. With `potluck up` on this machine, or without any
/// node here, that is the whole cluster; otherwise it is the programs of this machine and the nodes
/// that they know. Nodes that are known and not linked are listed too, with the reason if one is
/// known, and below them all reasons why members are missing or calls wait.
///
/// JSON: {ok, running, namespace, peers: [{name, node, job, here, observer, process, addresses,
/// link, port, view, state, state_text, why}], reasons, neighbours}. `link` is the connection of a
/// node of this machine: {from, address, through, forwarded, interface, kind, shared, rtt_us,
/// rate_bps}; `port` has the measurements of the group at the node: {kind, rtt_us, rate_bps};
/// `view` is {id, rank, members}. Each is null if it is not known. Exit code 3 if there are no
/// peers.
#[derive(Args, Debug)]
pub struct Peers {
    #[command(flatten)]
    selection: Selection,
    /// Wait until there are so many nodes that are no observers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    wait: Option<u16>,
    /// How long to wait, in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "wait",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    within: u64,
}

impl Peers {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        let until = Instant::now() + Duration::from_secs(self.within);
        let wanted = usize::from(self.wait.unwrap_or(0));
        let (found, peers) = loop {
            let found = self.selection.find(output).await?;
            let mut peers = peers_of(&found);
            peers.retain(|peer| peer.job.as_ref().is_none_or(|job| self.selection.admits(job)));
            let present = peers.iter().filter(|peer| peer.is_program()).count();
            if present >= wanted {
                break (found, peers);
            }
            if Instant::now() >= until {
                let sentence = format!(
                    "{present} of {wanted} nodes are here after {} s: see `potluck status`",
                    self.within
                );
                return Err(Stop::with(Exit::NoPeers, "too-few", sentence));
            }
            tokio::time::sleep(PAUSE).await;
        };
        self.show(&found, &peers, output)
    }

    fn show(&self, found: &Found, peers: &[PeerDocument], output: &Output) -> Result<Exit> {
        let (reasons, neighbours) = (reasons_of(found), found.neighbours());
        let document = json!({
            "ok": true,
            "running": !found.here.is_empty(),
            "namespace": self.selection.keys()?.namespace(),
            "peers": peers,
            "reasons": reasons,
            "neighbours": neighbours,
        });
        output.result(&document, || {
            let mut lines = text::table(peers, output.paper());
            if peers.is_empty() {
                lines.push("No node of this cluster answers.".to_owned());
                lines.extend(neighbours.iter().map(neighbour_text));
            }
            lines.extend(reasons.iter().map(|reason| format!("  {reason}")));
            lines.join("\n")
        })?;
        Ok(if peers.is_empty() { Exit::NoPeers } else { Exit::Done })
    }
}

/// Nodes tell observers their status once per second at most.
const PAUSE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod documents_tests;
