//! `potluck status`: asks the running node, or lists the nodes on the network.

use crate::args::{Where, Which};
use crate::document::{InterfaceDocument, NeighbourDocument, StatusDocument, gloo_line};
use crate::exit::{Exit, Stop};
use crate::output::Output;
use crate::{picture, status_socket};
use anyhow::{Context, Result};
use clap::Args;
use potluck::keys::Keys;
use potluck::report::Scan;
use potluck::scan;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Show the group as the running `potluck up` sees it; when none runs, who is on the network
///
/// JSON with a node: {ok, running: true, node, name, namespace, open, port, state, state_text,
/// view, peers, interfaces, reasons, alone, duplicates, quarantined, topology, counters, gloo}.
/// Without: {ok, running: false, namespace, neighbours, interfaces, gloo} and exit code 3.
/// `topology` is what the pictures show: {view, me, engine, plan, plan_revision, slowest, members,
/// links, forecasts}, null while there is no group.
#[derive(Args, Debug)]
pub struct Ask {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Where,
    /// Draw who is connected to whom, how fast, and what the plan does with it
    #[arg(long, conflicts_with = "dot")]
    graph: bool,
    /// Write the same as a picture to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print the same for Graphviz: `potluck status --dot | dot -Tpng > group.png`
    #[arg(long)]
    dot: bool,
}

impl Ask {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        let config = self.place.config(&self.which);
        let keys = Keys::of(&config)?;
        if self.dot && output.is_json() {
            return Err(Stop::usage(
                "--dot and --json cannot both be on stdout; --json has the same under `topology`",
            ));
        }
        if let Some(status) = status_socket::ask(&keys).await? {
            return self.show(&status, output);
        }
        if self.wants_picture() {
            let flag = self.which.flag();
            let namespace = keys.namespace();
            let sentence = format!(
                "no node of namespace {namespace} runs on this machine, so there is nothing to \
                 draw: potluck up{flag}"
            );
            return Err(Stop::with(Exit::NoPeers, "not-running", sentence));
        }
        output.say(&format!(
            "No `potluck up` runs for namespace {}; looking around for 2 s ...",
            keys.namespace()
        ));
        let seen = scan(config, LOOK).await?;
        let neighbours: Vec<NeighbourDocument> =
            seen.neighbours.iter().map(NeighbourDocument::from).collect();
        let interfaces: Vec<InterfaceDocument> =
            seen.interfaces.iter().map(InterfaceDocument::from).collect();
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

impl Ask {
    fn wants_picture(&self) -> bool {
        self.graph || self.dot || self.svg.is_some()
    }

    fn show(&self, status: &StatusDocument, output: &Output) -> Result<Exit> {
        let Some(graph) = status.topology.as_ref().filter(|_| self.wants_picture()) else {
            if self.dot || self.svg.is_some() {
                let sentence = format!("there is no group to draw yet: {}", status.state_text);
                return Err(Stop::with(Exit::NoPeers, "no-group", sentence));
            }
            output.result(status, || status.text())?;
            return Ok(Exit::Done);
        };
        if let Some(file) = &self.svg {
            std::fs::write(file, picture::svg(graph))
                .with_context(|| format!("cannot write {}", file.display()))?;
            output.say(&format!("Wrote {}", file.display()));
        }
        match (self.dot, self.graph) {
            (true, _) => output.result(status, || picture::dot(graph))?,
            (false, true) => output.result(status, || picture::drawn(graph, output.paper()))?,
            (false, false) if output.is_json() => output.result(status, String::new)?,
            (false, false) => {}
        }
        Ok(Exit::Done)
    }
}

fn text(seen: &Scan, neighbours: &[NeighbourDocument]) -> String {
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
        "other-version" => format!(
            "a node that speaks protocol {}: run the same version on both",
            neighbour.version
        ),
        "none" => "a node without a cluster".to_owned(),
        "invitation" => {
            "an invitation: `potluck join CODE` with the code that is shown there".to_owned()
        }
        _ => "a node of another cluster: `potluck join` enters it with its key".to_owned(),
    };
    format!("{}  {whose}", neighbour.addresses.join(" "))
}

/// Two nodes that start together may take a second until they hear each other.
pub const LOOK: Duration = Duration::from_secs(2);
