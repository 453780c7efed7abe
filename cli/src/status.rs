//! `potluck status`: what the running node knows, or what is on the network.

use crate::args::{Where, Which};
use crate::document::{InterfaceDocument, NeighbourDocument, gloo_line};
use crate::exit::Exit;
use crate::output::Output;
use crate::status_socket;
use anyhow::Result;
use clap::Args;
use potluck::{Keys, Surroundings, look_around};
use serde_json::json;
use std::time::Duration;

/// Show the group as the running `potluck up` sees it; when none runs, who is on the network
///
/// JSON with a node: {ok, running: true, node, name, namespace, open, port, state, state_text, view, peers, interfaces,
/// reasons, alone, duplicates, quarantined, counters, gloo}. Without: {ok, running: false, namespace, neighbours, interfaces, gloo} and exit code 3.
#[derive(Args, Debug)]
pub struct Ask {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Where,
}

impl Ask {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        let config = self.place.config(&self.which);
        let keys = Keys::of(&config)?;
        if let Some(status) = status_socket::ask(&keys).await? {
            output.result(&status, || status.text())?;
            return Ok(Exit::Done);
        }
        output.say(&format!("No `potluck up` runs for namespace {}; looking around for 2 s ...", keys.namespace()));
        let seen = look_around(config, LOOK).await?;
        let neighbours: Vec<NeighbourDocument> = seen.neighbours.iter().map(NeighbourDocument::from).collect();
        let interfaces: Vec<InterfaceDocument> = seen.interfaces.iter().map(InterfaceDocument::from).collect();
        let document = json!({
            "ok": true,
            "running": false,
            "namespace": keys.namespace(),
            "neighbours": neighbours,
            "interfaces": interfaces,
            "gloo": potluck::gloo_version(),
        });
        output.result(&document, || text(&seen, &neighbours))?;
        Ok(Exit::NoPeers)
    }
}

fn text(seen: &Surroundings, neighbours: &[NeighbourDocument]) -> String {
    let mut lines: Vec<String> = neighbours.iter().map(line).collect();
    if lines.is_empty() {
        lines.push("Nobody announces itself.".to_owned());
    }
    lines.extend(seen.interfaces.iter().map(|report| format!("  {report}")));
    lines.push(gloo_line(potluck::gloo_version().as_deref()));
    lines.join("\n")
}

fn line(neighbour: &NeighbourDocument) -> String {
    let whose = match neighbour.cluster.as_str() {
        "ours" => "a node of this cluster".to_owned(),
        "other-version" => format!("a node that speaks protocol {}: run the same version on both", neighbour.version),
        "none" => "a node without a cluster".to_owned(),
        _ => "a node of another cluster: `potluck join` enters it with its key".to_owned(),
    };
    format!("{}  {whose}", neighbour.addresses.join(" "))
}

/// Two nodes that start together may hear each other only after a second.
pub const LOOK: Duration = Duration::from_secs(2);
