//! `potluck status`: asks the nodes of this machine, or lists those on the network.

use crate::document::{gloo_line, neighbour_text, status_text};
use crate::exit::{Exit, Stop};
use crate::output::Output;
use crate::picture;
use crate::selection::{Found, Selection};
use anyhow::{Context, Result};
use clap::Args;
use potluck::keys::Keys;
use potluck::report::document::{GraphDocument, InterfaceDocument, StatusDocument};
use potluck::report::{Activity, InterfaceReport};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Show the nodes here and those that `potluck up` observes; when none runs, ask the others
///
/// Every program that has joined a group answers, and every `potluck up`, which knows the whole
/// cluster. If none runs on this machine, it looks for nodes for 2 s, and observes those that it
/// finds for at most 2 s. JSON with a node: {ok, running: whether one runs on this machine, node,
/// name, process, namespace, job, open, port, observer, state, state_text, sizes, view, peers,
/// interfaces, reasons, other_jobs, alone, duplicates, unlinked, quarantined, topology, observed,
/// counters, gloo, here, cluster}. It is of one node, of the largest group; `here` lists all of
/// this machine and `cluster` all that are known: {job, process, name, node, state}. Where none
/// runs on this machine, `neighbours` lists the announced nodes. Without any node: {ok, running:
/// false, namespace, key: whether this machine has the cluster key, neighbours, interfaces, gloo}
/// and exit code 3. `topology` has the data of the pictures: {view, me, engine, plan,
/// plan_revision, slowest, members, links, forecasts}, null while there is no group.
#[derive(Args, Debug)]
pub struct Ask {
    #[command(flatten)]
    selection: Selection,
    /// Draw the links between nodes, their rates, and their use by the plan
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
        if self.dot && output.is_json() {
            return Err(Stop::usage(
                "--dot and --json cannot both be on stdout; --json has the same under `topology`",
            ));
        }
        let found = self.selection.find(output).await?;
        if !found.nodes.is_empty() {
            return self.show(&found, output);
        }
        if self.wants_picture() {
            let sentence = format!(
                "no {} runs on this machine or is observed, so there is nothing to draw: start \
                 your program{}",
                self.selection.described()?,
                self.selection.flag()
            );
            return Err(Stop::with(Exit::NoPeers, "not-running", sentence));
        }
        show_neighbours(&found, &self.selection.keys()?, output)
    }

    fn wants_picture(&self) -> bool {
        self.graph || self.dot || self.svg.is_some()
    }

    /// Shows the nodes, which are at least one.
    fn show(&self, found: &Found, output: &Output) -> Result<Exit> {
        let (here, nodes, neighbours) = (&found.here, &found.nodes, found.neighbours());
        let graphs = graphs_of(nodes);
        let one = || match graphs[..] {
            [graph] => Ok(graph),
            [] => {
                let states: Vec<&str> = nodes.iter().map(|node| node.state_text.as_str()).collect();
                let sentence = format!("there is no group to draw yet: {}", states.join("; "));
                Err(Stop::with(Exit::NoPeers, "no-group", sentence))
            }
            _ => Err(Stop::usage(format!(
                "there are several groups; choose a job by --job: {}",
                jobs_of(nodes)
            ))),
        };
        let drawing = match &self.svg {
            Some(file) => Some((file, picture::svg(one()?))),
            None => None,
        };
        let mut document = document_of(here, nodes)?;
        if !neighbours.is_empty() {
            document["neighbours"] = serde_json::to_value(neighbours)?;
        }
        match (self.dot, self.graph) {
            (true, _) => {
                let graph = one()?;
                output.result(&document, || picture::dot(graph))?;
            }
            (false, true) if !graphs.is_empty() => output.result(&document, || {
                let drawn = graphs.iter().map(|graph| picture::drawn(graph, output.paper()));
                drawn.collect::<Vec<_>>().join("\n\n")
            })?,
            (false, false) if self.svg.is_some() && !output.is_json() => {}
            _ => output.result(&document, || {
                nodes.iter().map(status_text).collect::<Vec<_>>().join("\n\n")
            })?,
        }
        // Written last: a file that cannot be written must not lose the result.
        if let Some((file, svg)) = drawing {
            std::fs::write(file, svg)
                .with_context(|| format!("cannot write {}", file.display()))?;
            output.say(&format!("Wrote {}", file.display()));
        }
        Ok(Exit::Done)
    }
}

/// The groups of these nodes, each once.
fn graphs_of(nodes: &[StatusDocument]) -> Vec<&GraphDocument> {
    let mut graphs: Vec<&GraphDocument> = Vec::new();
    for graph in nodes.iter().filter_map(|node| node.topology.as_ref()) {
        if graphs.iter().all(|known| known.view != graph.view) {
            graphs.push(graph);
        }
    }
    graphs
}

/// The jobs of these nodes, as a list.
pub fn jobs_of(nodes: &[StatusDocument]) -> String {
    let jobs: BTreeSet<&str> = nodes.iter().map(|node| node.job.as_str()).collect();
    jobs.into_iter().collect::<Vec<_>>().join(", ")
}

/// The document of the node in the largest group, with lists of the nodes here and of all.
fn document_of(here: &[StatusDocument], nodes: &[StatusDocument]) -> Result<Value> {
    let size = |node: &&StatusDocument| node.view.as_ref().map_or(0, |view| view.members.len());
    // The first of several: `max_by_key` would give the last.
    let first = nodes.iter().rev().max_by_key(size).context("at least one")?;
    let list = |nodes: &[StatusDocument]| -> Value {
        let entries = nodes.iter().map(|node| {
            let StatusDocument { job, process, name, node, state, .. } = node;
            json!({ "job": job, "process": process, "name": name, "node": node, "state": state })
        });
        entries.collect()
    };
    let mut document = serde_json::to_value(first)?;
    document["running"] = json!(!here.is_empty());
    document["here"] = list(here);
    document["cluster"] = list(nodes);
    Ok(document)
}

/// Lists the announced nodes, where no node answers.
fn show_neighbours(found: &Found, keys: &Keys, output: &Output) -> Result<Exit> {
    let neighbours = found.neighbours();
    let looked = || found.seen.iter().flat_map(|seen| &seen.interfaces);
    let interfaces: Vec<InterfaceDocument> = looked().map(InterfaceDocument::from).collect();
    let document = json!({
        "ok": true,
        "running": false,
        "namespace": keys.namespace(),
        "key": keys.cluster_key()?.is_some(),
        "neighbours": neighbours,
        "interfaces": interfaces,
        "gloo": potluck::gloo_version(),
    });
    output.result(&document, || {
        let mut lines: Vec<String> = neighbours.iter().map(neighbour_text).collect();
        let is_used = |on: &&InterfaceReport| !matches!(on.activity, Activity::Skipped(_));
        if looked().all(|on| !is_used(&on)) {
            lines.push("This machine has no network: no interface is up.".to_owned());
        } else if lines.is_empty() {
            lines.push("Nobody announces itself.".to_owned());
        }
        let shown = looked().filter(|report| !report.is_not_asked());
        lines.extend(shown.map(|report| format!("  {report}")));
        lines.push(gloo_line(potluck::gloo_version().as_deref()));
        lines.join("\n")
    })?;
    Ok(Exit::NoPeers)
}
