//! The state of a node, from its log: the calls that are open, and the lanes that wait for a View.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use potluck_harness::history::record::{Call, call};
use serde_json::Value;

/// One running node.
pub struct Watch {
    pub node: String,
    open: BTreeMap<u64, Call>,
    /// The last call of each lane.
    called: BTreeMap<u32, (String, u64)>,
    /// Lanes that wait for a View, and since when.
    waits: BTreeMap<u32, u64>,
    lanes: BTreeSet<u32>,
    pub kept_out: Vec<String>,
    /// The last words of the node about itself.
    pub status: String,
    pub calls: u64,
}

impl Watch {
    pub fn new(node: &str) -> Watch {
        Watch {
            node: node.to_owned(),
            open: BTreeMap::new(),
            called: BTreeMap::new(),
            waits: BTreeMap::new(),
            lanes: BTreeSet::new(),
            kept_out: Vec::new(),
            status: String::new(),
            calls: 0,
        }
    }

    /// Takes in an event of the log.
    pub fn hear(&mut self, event: &Value) -> Result<()> {
        let at = event["t"].as_u64().context("no time")?;
        let lane = || event["lane"].as_u64().unwrap_or_default() as u32;
        match event["e"].as_str().unwrap_or_default() {
            "call" => {
                let call = call(at, event)?;
                self.calls += 1;
                self.called.insert(call.place.0, (call.place.1.clone(), call.place.2));
                self.open.insert(call.id, call);
            }
            "return" => {
                self.open.remove(&event["id"].as_u64().unwrap_or_default());
            }
            "waits" => {
                self.waits.insert(lane(), at);
                self.lanes.insert(lane());
            }
            "took" => {
                self.waits.remove(&lane());
            }
            "over" => {
                self.waits.remove(&lane());
                self.lanes.remove(&lane());
            }
            "status" => {
                self.status = event.to_string();
                let names = event["kept_out"].as_array().into_iter().flatten();
                self.kept_out = names.filter_map(|n| n.as_str().map(str::to_owned)).collect();
            }
            _ => {}
        }
        Ok(())
    }

    /// The calls that are open for longer than their own deadline, with this time.
    pub fn overdue(&self, at: u64) -> impl Iterator<Item = (&Call, u64)> {
        self.open.values().filter_map(move |call| {
            let due = call.at + call.limit_ms.unwrap_or(0) * 1000;
            (at > due).then(|| (call, at - due))
        })
    }

    /// Since when all lanes have waited for a View.
    pub fn without_view_since(&self) -> Option<u64> {
        let all = !self.lanes.is_empty() && self.waits.len() == self.lanes.len();
        self.waits.values().max().copied().filter(|_| all)
    }

    /// The node's last call in a lane.
    pub fn place(&self, lane: u32) -> String {
        match self.called.get(&lane) {
            Some((view, k)) => format!("View {view}, call {k}"),
            None => "nothing".to_owned(),
        }
    }

    /// The longest that a call has been open, in microseconds.
    pub fn longest(&self, at: u64) -> u64 {
        self.open.values().map(|call| at.saturating_sub(call.at)).max().unwrap_or(0)
    }
}
