//! The peers of the demo as a group: start, agreement on a View, sums.

use super::message::{Answer, Membership, Order};
use super::peer::{Peer, Place};
use super::scratch::Scratch;
use anyhow::{Context, Result, ensure};
use potluck::keys::ClusterKey;
use potluck::plan::EngineKind;
use std::path::PathBuf;
use std::time::Duration;
use zeroize::Zeroizing;

/// The running peers, and the homes of all.
pub struct Group {
    homes: Vec<Home>,
    key: Zeroizing<String>,
    /// The engine that all peers are configured to use.
    pub engine: EngineKind,
    pub peers: Vec<Peer>,
}

struct Home {
    name: String,
    home: PathBuf,
    log: PathBuf,
}

/// A View that all running peers report.
pub struct Agreed {
    pub view: String,
    pub engine: String,
    pub size: usize,
}

impl Group {
    /// A group without running peers.
    pub fn new(scratch: &Scratch, size: usize, engine: EngineKind) -> Result<Group> {
        let home = |i: usize| {
            let (name, own) = (format!("peer{i}"), format!("{engine}-peer{i}"));
            Home { home: scratch.home(&own), log: scratch.log(&own), name }
        };
        let homes = (1..=size).map(home).collect();
        Ok(Group { homes, key: ClusterKey::generate()?.to_text(), engine, peers: Vec::new() })
    }

    /// The number of peers when all run.
    pub fn size(&self) -> usize {
        self.homes.len()
    }

    /// Starts the peer at this index. Does not wait.
    pub fn start(&mut self, place: usize) -> Result<()> {
        let Home { name, home, log } = self.homes.get(place).context("there is no such place")?;
        // One member less is still a group: the survivors must continue after one is killed.
        let min = self.size() - 1;
        let peer = Peer::start(&Place { name, home, log }, min, &self.key, self.engine)?;
        self.peers.push(peer);
        Ok(())
    }

    /// Sends all peers the same command.
    pub async fn tell_all(&mut self, order: &Order) -> Result<()> {
        for peer in &mut self.peers {
            peer.tell(order).await?;
        }
        Ok(())
    }

    /// The end of each peer's call, in the order of [`Group::peers`].
    pub async fn answers(&mut self) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        for peer in &mut self.peers {
            answers.push(peer.answer().await?);
        }
        Ok(answers)
    }

    /// Waits until all running peers are in one View without others.
    pub async fn agree(&mut self) -> Result<Agreed> {
        let size = self.peers.len();
        loop {
            let contexts = self.contexts().await?;
            let first = &contexts[0];
            if first.members.len() == size && contexts.iter().all(|c| c.view == first.view) {
                ensure!(
                    contexts.iter().all(|c| c.members == first.members),
                    "one View with different members: {contexts:?}"
                );
                ensure!(
                    first.engine == self.engine.to_string(),
                    "a View on {}: {}",
                    first.engine,
                    first.engine_reason
                );
                let (view, engine) = (first.view.clone(), first.engine.clone());
                return Ok(Agreed { view, engine, size });
            }
            // Polls the condition: some peers still report a View that is being replaced.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn contexts(&mut self) -> Result<Vec<Membership>> {
        self.tell_all(&Order::Context { min: self.peers.len() }).await?;
        let mut contexts = Vec::new();
        for peer in &mut self.peers {
            contexts.push(peer.context().await?);
        }
        Ok(contexts)
    }

    /// One `all_reduce` by all running peers. Each peer checks its result bit for bit, and the
    /// results are compared. Returns the seconds from the last call to the result, or `None` if the
    /// View was replaced meanwhile.
    pub async fn all_reduce(&mut self, len: usize, seed: u64) -> Result<Option<f64>> {
        self.tell_all(&Order::Sum { len, seed, report_at: None }).await?;
        let answers = self.answers().await?;
        Ok(self.judge(&answers)?.then(|| {
            // The last caller has waited the shortest time, and no result exists before all have
            // called.
            answers.iter().map(|answer| answer.seconds).fold(f64::INFINITY, f64::min)
        }))
    }

    /// Whether all peers have the sum. False if all were told to retry; any other outcome is an
    /// error.
    pub fn judge(&self, answers: &[Answer]) -> Result<bool> {
        for (answer, peer) in answers.iter().zip(&self.peers) {
            ensure!(answer.is_right, "{} found its buffer damaged: {answer:?}", peer.name());
        }
        if answers.iter().all(|answer| answer.failure.is_none()) {
            ensure!(
                answers.iter().all(|answer| answer.hash == answers[0].hash),
                "the peers hold different sums: {answers:?}"
            );
            return Ok(true);
        }
        let is_told_again =
            |answer: &Answer| answer.failure.as_ref().is_some_and(|failure| failure.is_retryable);
        ensure!(
            answers.iter().all(is_told_again),
            "the peers do not agree on the outcome: {answers:?}"
        );
        Ok(false)
    }
}
