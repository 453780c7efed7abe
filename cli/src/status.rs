//! `potluck status`: asks the nodes of this machine, or lists those on the network.

use crate::args::{Where, Which};
use crate::document::{NeighbourDocument, gloo_line, status_text};
use crate::exit::{Exit, Stop};
use crate::output::Output;
use crate::picture;
use anyhow::{Context, Result};
use clap::Args;
use potluck::keys::Keys;
use potluck::report::document::{GraphDocument, InterfaceDocument, StatusDocument};
use potluck::report::{LocalNodes, Membership, Scan};
use potluck::{Config, Observer, local_nodes, scan};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Show the nodes of this machine and what `potluck up` observes; when none runs, ask the others
///
/// Every program that has joined a group answers, and every `potluck up`, which knows the whole
/// cluster. If none runs on this machine, it observes the cluster itself for at most 2 s. JSON with
/// a node: {ok, running: whether one runs on this machine, node, name, process, namespace, job,
/// open, port, state, state_text, view, peers, interfaces, reasons, other_jobs, alone, duplicates,
/// quarantined, topology, counters, gloo, here}. It is of one node, of the largest group; `here`
/// lists all of this machine and `cluster` all that are known: {job, process, name, node, state}.
/// Where none runs on this machine, `neighbours` lists what was announced. Without any node: {ok,
/// running: false, namespace, key: whether this machine has the cluster key, neighbours, interfaces,
/// gloo} and exit code 3.
/// `topology` is what the pictures show: {view, me, engine, plan, plan_revision, slowest, members,
/// links, forecasts}, null while there is no group.
#[derive(Args, Debug)]
pub struct Ask {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Where,
    /// Only nodes of this job
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
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
        let LocalNodes { nodes, silent, .. } = local_nodes(config.clone()).await?;
        for socket in &silent {
            output.say(&format!(
                "A program does not answer at {}: it is stopped, or of another version",
                socket.display()
            ));
        }
        let known = self.with_observed(&nodes);
        if !known.is_empty() {
            return self.show(&self.of_job(nodes), &known, &[], output);
        }
        let (flag, namespace) = (self.which.flag(), keys.namespace());
        let of_job = self.job.as_ref().map(|job| format!(" of job {job}")).unwrap_or_default();
        output.say(&format!(
            "No node{of_job} of namespace {namespace} runs on this machine; looking around for 2 s \
             ..."
        ));
        let seen = scan(config.clone(), LOOK).await?;
        let others = self.of_job(observe(config, &seen).await);
        if !others.is_empty() {
            return self.show(&[], &others, &neighbours_of(&seen), output);
        }
        if self.wants_picture() {
            let sentence = format!(
                "no node{of_job} of namespace {namespace} runs on this machine or is observed, so \
                 there is nothing to draw: start your program{flag}"
            );
            return Err(Stop::with(Exit::NoPeers, "not-running", sentence));
        }
        let has_key = keys.cluster_key()?.is_some();
        if !has_key {
            output.say(&format!(
                "This machine has no cluster key: `potluck up{flag}` makes one on the first \
                 machine, `potluck join CODE{flag}` takes that of another one"
            ));
        }
        show_neighbours(&seen, (namespace, has_key), output)
    }

    /// These nodes of this machine, and those that the observers among them observe.
    fn with_observed(&self, here: &[StatusDocument]) -> Vec<StatusDocument> {
        let mut all = here.to_vec();
        for node in here.iter().flat_map(|node| &node.observed) {
            if all.iter().all(|known| known.node != node.node) {
                all.push(node.clone());
            }
        }
        self.of_job(all)
    }

    fn of_job(&self, mut nodes: Vec<StatusDocument>) -> Vec<StatusDocument> {
        nodes.retain(|node| self.job.as_ref().is_none_or(|job| *job == node.job));
        nodes
    }

    fn wants_picture(&self) -> bool {
        self.graph || self.dot || self.svg.is_some()
    }

    /// Shows the nodes, which are at least one; `here` are those of this machine. `neighbours` are
    /// those whose announcements were received, if that was asked for.
    fn show(
        &self,
        here: &[StatusDocument],
        nodes: &[StatusDocument],
        neighbours: &[NeighbourDocument],
        output: &Output,
    ) -> Result<Exit> {
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
        if let Some(file) = &self.svg {
            std::fs::write(file, picture::svg(one()?))
                .with_context(|| format!("cannot write {}", file.display()))?;
            output.say(&format!("Wrote {}", file.display()));
        }
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

fn jobs_of(nodes: &[StatusDocument]) -> String {
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

/// What the nodes of this cluster say that a scan has found, within two seconds.
async fn observe(config: Config, seen: &Scan) -> Vec<StatusDocument> {
    let ours = seen.neighbours.iter().filter(|n| n.membership == Membership::Ours).count();
    if ours == 0 {
        return Vec::new();
    }
    // What hinders it has hindered the scan, or is a wrong key, which the scan tells too.
    let Ok(mut observer) = Observer::start(config).await else { return Vec::new() };
    let all_answer = async { while observer.nodes().len() < ours && observer.changed().await {} };
    // Those that have not answered in time are not shown.
    let _ = tokio::time::timeout(LOOK, all_answer).await;
    let nodes = observer.nodes();
    observer.leave().await;
    nodes
}

fn neighbours_of(seen: &Scan) -> Vec<NeighbourDocument> {
    seen.neighbours.iter().map(NeighbourDocument::from).collect()
}

fn show_neighbours(
    seen: &Scan,
    (namespace, has_key): (&str, bool),
    output: &Output,
) -> Result<Exit> {
    let neighbours = neighbours_of(seen);
    let interfaces: Vec<InterfaceDocument> =
        seen.interfaces.iter().map(InterfaceDocument::from).collect();
    let document = json!({
        "ok": true,
        "running": false,
        "namespace": namespace,
        "key": has_key,
        "neighbours": neighbours,
        "interfaces": interfaces,
        "gloo": potluck::gloo_version(),
    });
    output.result(&document, || text(seen, &neighbours))?;
    Ok(Exit::NoPeers)
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
