//! The nodes that a command shows: those of this machine and those that they observe; when none
//! runs, those that answer an observer of its own.

use crate::args::{Where, Which};
use crate::document::NeighbourDocument;
use crate::output::Output;
use anyhow::Result;
use clap::Args;
use potluck::keys::Keys;
use potluck::report::document::StatusDocument;
use potluck::report::{LocalNodes, Membership, Scan};
use potluck::{Config, Observer, local_nodes, scan};
use std::time::Duration;

/// Which nodes.
#[derive(Args, Clone, Debug)]
pub struct Selection {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Where,
    /// Only nodes of this job
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
}

/// The selected nodes.
#[derive(Debug, Default)]
pub struct Found {
    /// Those of this machine.
    pub here: Vec<StatusDocument>,
    /// The same, and those that they or this command observe.
    pub nodes: Vec<StatusDocument>,
    /// The announcements on the network; `None` if a node of this machine was asked.
    pub seen: Option<Scan>,
}

impl Selection {
    /// The configuration of the cluster.
    pub fn config(&self) -> Config {
        self.place.config(&self.which)
    }

    /// The keys of the cluster on this machine.
    ///
    /// # Errors
    /// The namespace or the home directory is unusable.
    pub fn keys(&self) -> Result<Keys> {
        Ok(Keys::of(&self.config())?)
    }

    /// For example `node of job train of namespace default`.
    pub fn described(&self) -> Result<String> {
        let of_job = self.job.as_ref().map(|job| format!(" of job {job}")).unwrap_or_default();
        Ok(format!("node{of_job} of namespace {}", self.keys()?.namespace()))
    }

    /// The option of the namespace as typed after a potluck command.
    pub fn flag(&self) -> String {
        self.which.flag()
    }

    /// Asks the nodes of this machine. If none runs, looks around for two seconds and observes the
    /// nodes found for two more.
    pub async fn find(&self, output: &Output) -> Result<Found> {
        let described = self.described()?;
        let local = self.local(output).await?;
        if !local.nodes.is_empty() {
            return Ok(local);
        }
        output.say(&format!("No {described} runs on this machine; looking around for 2 s ..."));
        self.around(output).await
    }

    /// Looks around for two seconds, and observes the nodes found for two more.
    pub async fn around(&self, output: &Output) -> Result<Found> {
        let seen = scan(self.config(), LOOK).await?;
        let nodes = self.of_job(observe(self.config(), &seen).await);
        if self.keys()?.cluster_key()?.is_none() {
            let flag = self.flag();
            output.say(&format!(
                "This machine has no cluster key: `potluck up{flag}` makes one on the first \
                 machine, `potluck join CODE{flag}` takes that of another one"
            ));
        }
        Ok(Found { here: Vec::new(), nodes, seen: Some(seen) })
    }

    /// Asks the nodes of this machine only, and names those that do not answer.
    pub async fn local(&self, output: &Output) -> Result<Found> {
        let LocalNodes { mut nodes, silent, .. } = local_nodes(self.config()).await?;
        for socket in &silent {
            output.say(&format!(
                "A program does not answer at {}: it is stopped, or of another version",
                socket.display()
            ));
        }
        // The observer of another command may have heard of no node yet.
        nodes.retain(|node| !node.observer || node.job != LOOK_JOB);
        let known = self.with_observed(&nodes);
        Ok(Found { here: self.of_job(nodes), nodes: known, seen: None })
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

    /// Those of the selected job.
    pub fn of_job(&self, mut nodes: Vec<StatusDocument>) -> Vec<StatusDocument> {
        nodes.retain(|node| self.admits(&node.job));
        nodes
    }

    /// Whether nodes of this job are selected.
    pub fn admits(&self, job: &str) -> bool {
        self.job.as_ref().is_none_or(|only| only == job)
    }
}

impl Found {
    /// The announcements on the network, if those were asked for.
    pub fn neighbours(&self) -> Vec<NeighbourDocument> {
        let seen = self.seen.iter().flat_map(|seen| &seen.neighbours);
        seen.map(NeighbourDocument::from).collect()
    }
}

/// The documents of the nodes of this cluster that a scan has found, if they come within two
/// seconds.
async fn observe(mut config: Config, seen: &Scan) -> Vec<StatusDocument> {
    let ours = seen.neighbours.iter().filter(|n| n.membership == Membership::Ours).count();
    if ours == 0 {
        return Vec::new();
    }
    config.job = Some(LOOK_JOB.to_owned());
    // Its error is also one of the scan, or is a wrong key, which the scan tells too.
    let Ok(mut observer) = Observer::start(config).await else { return Vec::new() };
    let all_answer = async { while observer.nodes().len() < ours && observer.changed().await {} };
    // Those that have not answered in time are not shown.
    let _ = tokio::time::timeout(LOOK, all_answer).await;
    let nodes = observer.nodes();
    observer.leave().await;
    nodes
}

/// The job of observers of commands that only look: they are no `potluck up`.
pub const LOOK_JOB: &str = "potluck-look";

/// Two nodes that start together may take a second until they hear each other.
pub const LOOK: Duration = Duration::from_secs(2);
