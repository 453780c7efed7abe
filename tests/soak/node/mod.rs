//! The program under test: one node, several tasks in lanes of their own.
//!
//! The call that all members make follows from the seed, the View, the lane and the number of the
//! call in that lane. Each member's further choices also follow from its name. Every call is in the
//! log before it is made, and its end after it has come.
//!
//! `tests/soak` runs it as real processes, `src/sim` in virtual time.

pub mod calls;
mod draw;
mod lane;
pub mod log;
mod number;
mod state;
pub mod watch;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use draw::ROLES;
use lane::Lane;
use log::Log;
use potluck::report::{Name, QuarantineReason};
use potluck::{Cluster, Event, Status};
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// The state that the tasks of a node share.
pub struct Node {
    cluster: Cluster,
    log: Log,
    program: Program,
    /// The program was asked to end, together with the others.
    asked: AtomicBool,
    over: AtomicBool,
}

/// The parameters from which the choices of a program follow.
pub struct Program {
    pub seed: u64,
    /// The node's name, and which of its lives this is.
    pub name: String,
    pub life: u64,
    pub pace: Pace,
}

/// How much a program does; the same for all members.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Buffers are shorter by this factor.
    pub shorter: usize,
    /// Pauses between calls are longer by this factor.
    pub slower: u32,
}

impl Node {
    pub fn new(cluster: Cluster, log: Log, program: Program) -> Node {
        let (asked, over) = (AtomicBool::new(false), AtomicBool::new(false));
        Node { cluster, log, program, asked, over }
    }

    /// Asks the program to end, together with those of the other members.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Starts the tasks of the lanes.
    pub fn lanes(self: &Arc<Node>) -> JoinSet<()> {
        let mut lanes = JoinSet::new();
        for role in ROLES {
            lanes.spawn(Lane::new(Arc::clone(self), role).run());
        }
        lanes
    }

    /// Starts the tasks that write events and states of the node to its log.
    pub fn watches(self: &Arc<Node>) -> [JoinHandle<()>; 2] {
        [tokio::spawn(events(Arc::clone(self))), tokio::spawn(statuses(Arc::clone(self)))]
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// For calls that have not ended, from the moment at which the node leaves.
const LAST_CALLS: Duration = Duration::from_secs(10);

/// Leaves the group; open calls end with an error.
pub async fn leave(node: &Arc<Node>, lanes: &mut JoinSet<()>) -> Result<()> {
    node.over.store(true, Ordering::Relaxed);
    node.ask();
    node.log.tell(json!({"e": "leaves"}));
    node.cluster.clone().leave().await;
    let all = async {
        while let Some(ended) = lanes.join_next().await {
            ended.context("a lane")?;
        }
        Ok::<(), anyhow::Error>(())
    };
    timeout(LAST_CALLS, all).await.context("a call is open after the node has left")??;
    node.log.tell(json!({"e": "left"}));
    Ok(())
}

/// Writes every View that the node installs.
async fn events(node: Arc<Node>) {
    let mut events = node.cluster.events();
    while let Some(event) = events.next().await {
        if let Event::Installed { view, members, in_sync } = event {
            let members: Vec<&str> = members.iter().map(|peer| peer.name.as_str()).collect();
            node.log.tell(json!({
                "e": "installed", "view": view.to_string(), "members": members, "in_sync": in_sync,
            }));
        } else {
            node.log.tell(json!({"e": "event", "text": event.to_string()}));
        }
    }
}

/// Writes the state of the node once a second, and whom it knows to withhold votes.
async fn statuses(node: Arc<Node>) {
    let mut known = BTreeSet::new();
    loop {
        let status = node.cluster.status();
        let name = |name: &Option<Name>| name.as_ref().map_or("?", Name::as_str).to_owned();
        for who in
            status.quarantined.iter().filter(|kept| kept.why == QuarantineReason::WithheldVote)
        {
            if known.insert(name(&who.name)) {
                node.log.tell(json!({"e": "withheld", "who": name(&who.name)}));
            }
        }
        let kept_out: Vec<String> =
            status.quarantined.iter().map(|kept| name(&kept.name)).collect();
        node.log.tell(json!({
            "e": "status", "state": status.state.to_string(),
            "view": status.view.as_ref().map(|view| view.id.to_string()),
            "kept_out": kept_out, "waiting": waiting(&status),
            "disk_waits_ms": status.disk_waits.map(|waits| waits.as_millis() as u64),
        }));
        sleep(Duration::from_secs(1)).await;
    }
}

/// The call that waits for members that have not made it.
fn waiting(status: &Status) -> Option<String> {
    status.waiting.as_ref().map(|waiting| {
        let ranks: Vec<&str> = waiting.ranks.iter().map(|peer| peer.name.as_str()).collect();
        format!("{} waits for {ranks:?} since {} ms", waiting.op, waiting.since.as_millis())
    })
}
