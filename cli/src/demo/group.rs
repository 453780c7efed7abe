//! The peers of the demo as a group: start, agreement on a View, sums.

use super::peer::Peer;
use super::scratch::Scratch;
use anyhow::{Context, Result, ensure};
use potluck::keys::ClusterKey;
use potluck::plan::EngineKind;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use zeroize::Zeroizing;

/// The running peers, and the homes of all.
pub struct Group {
    places: Vec<Place>,
    key: Zeroizing<String>,
    /// The engine that all peers are configured to use.
    pub engine: EngineKind,
    pub peers: Vec<Peer>,
}

/// The parts of a peer that remain when it is restarted.
struct Place {
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
        let place = |i: usize| {
            let (name, own) = (format!("peer{i}"), format!("{engine}-peer{i}"));
            Place { home: scratch.home(&own), log: scratch.log(&own), name }
        };
        let places = (1..=size).map(place).collect();
        Ok(Group { places, key: ClusterKey::generate()?.to_text(), engine, peers: Vec::new() })
    }

    /// The number of peers when all run.
    pub fn size(&self) -> usize {
        self.places.len()
    }

    /// Starts the peer at this index and tells it to join. Does not wait.
    pub async fn start(&mut self, place: usize) -> Result<()> {
        let at = self.places.get(place).context("there is no such place")?;
        // One member less is still a group: the survivors must continue after one is killed.
        let join = json!({ "do": "join", "min": self.size() - 1 });
        // Added before any `await`, so that ending the group ends this peer too.
        self.peers.push(Peer::start(&at.name, &at.home, &at.log, &self.key, self.engine)?);
        self.peers.last_mut().context("it was just added")?.tell(&join).await
    }

    /// Sends all peers the same command.
    pub async fn tell_all(&mut self, order: &Value) -> Result<()> {
        for peer in &mut self.peers {
            peer.tell(order).await?;
        }
        Ok(())
    }

    /// The next event of each peer, in the order of [`Group::peers`].
    pub async fn event_of_all(&mut self, wanted: &str) -> Result<Vec<Value>> {
        let mut events = Vec::new();
        for peer in &mut self.peers {
            events.push(peer.event(&[wanted]).await?);
        }
        Ok(events)
    }

    /// Waits until all running peers are in one View without others.
    pub async fn agree(&mut self) -> Result<Agreed> {
        let size = self.peers.len();
        loop {
            self.tell_all(&json!({ "do": "context", "min": size, "within_s": 60 })).await?;
            let contexts = self.event_of_all("context").await?;
            let first = &contexts[0];
            if first["size"] == size && contexts.iter().all(|c| c["view"] == first["view"]) {
                ensure!(
                    contexts.iter().all(|c| c["members"] == first["members"]),
                    "one View with different members: {contexts:?}"
                );
                let text = |field: &str| first[field].as_str().unwrap_or("?").to_owned();
                ensure!(
                    first["engine"] == self.engine.to_string(),
                    "a View on {}: {}",
                    first["engine"],
                    first["engine_reason"]
                );
                return Ok(Agreed { view: text("view"), engine: text("engine"), size });
            }
            // Some peers still report a View that is being replaced.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// One `all_reduce` by all running peers. Each peer checks its result bit for bit, and the
    /// results are compared. Returns the seconds from the last call to the result, or `None` if the
    /// View was replaced meanwhile.
    pub async fn all_reduce(&mut self, len: usize, seed: u64) -> Result<Option<f64>> {
        self.tell_all(&json!({ "do": "all_reduce", "len": len, "seed": seed, "op": "sum" }))
            .await?;
        let done = self.event_of_all("done").await?;
        Ok(self.judge(&done)?.then(|| {
            // The last caller has waited the shortest time, and no result exists before all have
            // called.
            done.iter().filter_map(|d| d["ms"].as_f64()).fold(f64::INFINITY, f64::min) / 1e3
        }))
    }

    /// Whether all peers have the sum. False if all were told to retry; any other outcome is an
    /// error.
    pub fn judge(&self, done: &[Value]) -> Result<bool> {
        for (event, peer) in done.iter().zip(&self.peers) {
            let verdict = event["verdict"].as_str().unwrap_or("?");
            let good = verdict == if event["ok"] == true { "exact" } else { "untouched" };
            ensure!(good, "{} found its buffer {verdict}: {event}", peer.name());
        }
        if done.iter().all(|d| d["ok"] == true) {
            ensure!(
                done.iter().all(|d| d["hash"] == done[0]["hash"]),
                "the peers hold different sums: {done:?}"
            );
            return Ok(true);
        }
        let same = done.iter().all(|d| d["ok"] == false && d["retryable"] == true);
        ensure!(same, "the peers do not agree on the outcome: {done:?}");
        Ok(false)
    }
}
