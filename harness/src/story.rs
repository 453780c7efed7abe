//! Steps of fault tests: how a group gets into a fault, and how it recovers.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::group::{Group, PATIENCE};
use crate::outcome::{all_exact, all_failed, all_failed_as};
use crate::peer::with_if;

impl Group {
    /// Creates a common history: without one, a new member has nothing to catch up with.
    pub fn remember(&mut self) -> Result<()> {
        self.sum(1001, 0)
    }

    /// All nodes make this call, with bit-identical results that are exact.
    pub fn exact(&mut self, order: &Value) -> Result<()> {
        all_exact(&self.all(order, "done")?)
    }

    /// An exact sum of this many elements.
    pub fn sum(&mut self, len: usize, seed: u64) -> Result<()> {
        self.sum_of(|_| true, len, seed)
    }

    /// Like [`sum`](Group::sum), for the nodes whose index `takes_part`.
    pub fn sum_of(
        &mut self,
        takes_part: impl Fn(usize) -> bool,
        len: usize,
        seed: u64,
    ) -> Result<()> {
        let order = json!({"do": "all_reduce", "len": len, "seed": seed});
        all_exact(&self.some(takes_part, &order, "done")?)
    }

    /// All nodes call `order`; returns when the node at `watched` has received this share of the
    /// expected bytes.
    pub fn on_the_way(&mut self, watched: usize, order: &Value, share: f64) -> Result<()> {
        self.on_the_way_of(self.peers.len(), watched, order, share)
    }

    /// Like [`on_the_way`](Group::on_the_way), for a call of the first `callers` nodes.
    pub fn on_the_way_of(
        &mut self,
        callers: usize,
        watched: usize,
        order: &Value,
        share: f64,
    ) -> Result<()> {
        for (index, peer) in self.peers.iter_mut().enumerate().take(callers) {
            peer.order(&with_if(index == watched, order, "report_at", share))?;
        }
        self.peers[watched].event("progress", PATIENCE)?;
        Ok(())
    }

    /// The next View of exactly these nodes, and a correct result in it.
    pub fn go_on(&mut self, takes_part: impl Fn(usize) -> bool + Copy) -> Result<()> {
        self.meet_of(takes_part)?;
        self.sum_of(takes_part, 100_001, 0)
    }

    /// The survivor of two waits alone and reports that; a program that asks for a context gets an
    /// error.
    pub fn waits_alone(&mut self, survivor: usize) -> Result<()> {
        let alone = |status: &Value| {
            status["state"]
                .as_str()
                .is_some_and(|state| state.starts_with("1 of 2 here; waiting for one more"))
        };
        self.peers[survivor].status_where(alone, PATIENCE)?;
        let event = self.peers[survivor].ask(
            &json!({"do": "context", "min": 2, "within_s": 0.5}),
            "error",
            PATIENCE,
        )?;
        ensure!(event["code"] == "not-enough-peers", "{event}");
        Ok(())
    }

    /// The node at `newcomer` is in one View with all others. The View needs a sync, and the
    /// others' state wins.
    pub fn synced(&mut self, newcomer: usize) -> Result<()> {
        let contexts = self.meet()?;
        ensure!(
            contexts.iter().all(|c| c["in_sync"] == false),
            "a newcomer is in sync with veterans: {contexts:?}"
        );
        let refused = self.all(&json!({"do": "all_reduce", "len": 10}), "done")?;
        all_failed(&refused, "needs-sync")?;
        self.each(|index| {
            // The newcomer's version is higher, but its history is shorter.
            let version = if index == newcomer { 9 } else { 3 };
            json!({"do": "sync", "version": version, "bytes": 4096 * version, "seed": version})
        })?;
        let events = self.events(|_| true, "synced", PATIENCE)?;
        all_exact(&events)?;
        for (index, event) in events.iter().enumerate() {
            ensure!(event["kept_own"] == (index != newcomer), "the wrong state won: {events:?}");
        }
        Ok(())
    }

    /// All nodes are in one View again and complete an operation, with retries as a program makes
    /// them. Nodes that have seen the same outcomes, `others` and `own`, hold the same state;
    /// otherwise a sync is required.
    pub fn catch_up(&mut self, others: &[Value], own: &Value) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        let in_sync = self.meet_in_sync()?;
        ensure!(
            !in_sync || others.iter().all(|other| other["ok"] == own["ok"]),
            "in sync, with {others:?} and {own}"
        );
        let mut needs_sync = !in_sync;
        loop {
            let mut done = Vec::new();
            if needs_sync {
                done = self.all(&json!({"do": "sync", "version": 1, "bytes": 4096}), "synced")?;
            }
            if done.iter().all(|event| event["ok"] == true) {
                all_exact(&done)?;
                done = self.all(&json!({"do": "all_reduce", "len": 1001}), "done")?;
            }
            if done.iter().all(|event| event["ok"] == true) {
                return all_exact(&done);
            }
            let failed: Vec<Value> =
                done.into_iter().filter(|event| event["ok"] == false).collect();
            all_failed_as(&failed, &["aborted", "view-changed", "needs-sync", "indeterminate"])?;
            ensure!(Instant::now() < until, "no operation of all within {PATIENCE:?}: {failed:?}");
            needs_sync = !self.meet_in_sync()?;
        }
    }

    fn meet_in_sync(&mut self) -> Result<bool> {
        Ok(self.meet()?.iter().all(|context| context["in_sync"] == true))
    }
}
