//! `potluck up`: observes the cluster in the foreground, and shows whether machines find each
//! other.

use crate::args::{Where, Which};
use crate::document::{cluster_text, hex};
use crate::exit::{Exit, Stop};
use crate::first_key::{self, Beside};
use crate::output::Output;
use crate::selection::LOOK_JOB;
use anyhow::Result;
use clap::{Args, ValueEnum};
use potluck::keys::{Keys, Trust};
use potluck::report::State;
use potluck::report::document::StatusDocument;
use potluck::{Config, Event, EventStream, Observer, Status, local_nodes};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

/// Make the cluster key on the first machine; on every machine, show the nodes of the cluster
///
/// Observes the cluster in the foreground, and prints every change until Ctrl-C: the jobs, their
/// members, why they wait, and other observers. It is a member of no group, and no program notices
/// it.
///
/// Without a cluster key it first looks whether a cluster is on the network. If so, it makes no key
/// and says how to enter that one. JSON, one document per line: {event: "key-made", file}, {event:
/// "status", ...} as of `potluck status` for each change, with a status of each node in `observed`,
/// {event: "node-left", node, name} of another node, {event: "alone", reasons}, {event: "left"}.
#[derive(Args, Debug)]
pub struct Up {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Where,
    /// Make a new cluster key even when another cluster is on this network
    #[arg(long)]
    new: bool,
    /// Start even if another `potluck up` of the namespace runs on this machine
    #[arg(long)]
    again: bool,
    /// A peer to dial besides those that are found, as host or host:port; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    peer: Vec<String>,
    /// The name of this node [default: the host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Which nodes that hold the cluster key are admitted
    #[arg(long, value_enum, default_value_t = Admits::Key)]
    trust: Admits,
}

/// Which nodes that hold the cluster key are admitted.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Admits {
    /// All of them
    Key,
    /// All; those that are met for the first time are told and recorded, see `potluck known`
    Tofu,
    /// Those that `potluck known` lists
    Pinned,
}

impl Up {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        // Installed first, so that an early Ctrl-C is handled like a late one.
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            ready = self.key(output) => ready?,
            _ = interrupt.recv() => return Ok(Exit::Interrupted),
            _ = terminate.recv() => return Ok(Exit::Done),
        }
        self.alone_here().await?;
        let mut config = self.config();
        let keys = Keys::of(&config)?;
        config.trust = self.trust(&keys)?;
        let mut observer = Observer::start(config).await?;
        let events = observer.events();
        let exit = tokio::select! {
            ended = watch(&mut observer, output) => ended?,
            ended = tell_comings_and_goings(events, output) => ended?,
            exit = signalled(&mut interrupt, &mut terminate) => exit,
        };
        observer.leave().await;
        output.result(&json!({ "event": "left" }), || "left".to_owned())?;
        Ok(exit)
    }

    /// Fails if another `potluck up` of the namespace runs on this machine.
    async fn alone_here(&self) -> Result<()> {
        let local = local_nodes(self.config()).await?;
        match local.nodes.iter().find(|node| is_up(node)) {
            Some(other) if !self.again => {
                let sentence = format!(
                    "`potluck up` of namespace {} runs on this machine already (process {}): \
                     `potluck top` shows what it sees; --again starts another one",
                    other.namespace, other.process
                );
                Err(Stop::with(Exit::Failed, "already-running", sentence))
            }
            _ => Ok(()),
        }
    }

    fn config(&self) -> Config {
        let mut config = self.place.config(&self.which);
        config.peers.clone_from(&self.peer);
        config.name.clone_from(&self.name);
        config
    }

    fn trust(&self, keys: &Keys) -> Result<Trust> {
        Ok(match self.trust {
            Admits::Key => Trust::KeyHolders,
            Admits::Tofu => Trust::tofu(),
            Admits::Pinned => Trust::Pinned(keys.known()?.into_keys().collect()),
        })
    }

    /// Makes sure that there is a cluster key, or fails with the reason why none is made.
    async fn key(&self, output: &Output) -> Result<()> {
        let config = self.config();
        if self.new && Keys::of(&config)?.cluster_key()?.is_some() {
            let sentence = "this machine has a cluster key already: choose another --namespace \
                for a new cluster";
            return Err(Stop::with(Exit::Usage, "key-exists", sentence));
        }
        let beside = if self.new { Beside::Make } else { Beside::Refuse };
        if !first_key::make_if_missing(config, &self.which, beside, output).await? {
            return Ok(());
        }
        let flag = self.which.flag();
        output.say(&format!(
            "To let the next machine in, type here in another window: potluck invite{flag}"
        ));
        output.say("It shows a code, for `potluck join CODE` on that machine.");
        output.say(&format!(
            "Or print the key here, and type it at `potluck join` there: potluck key --show{flag}"
        ));
        Ok(())
    }
}

/// Whether it is another `potluck up`, and not about to end.
fn is_up(node: &StatusDocument) -> bool {
    node.observer && node.job != LOOK_JOB && node.state != "closed"
}

/// Reports each node that is met for the first time, and each that leaves.
async fn tell_comings_and_goings(mut events: EventStream, output: &Output) -> Result<Exit> {
    while let Some(event) = events.next().await {
        match event {
            Event::FirstMet { peer, namesake } => {
                let other = match namesake {
                    Some(_) => ", and another node has had that name",
                    None => "",
                };
                output.say(&format!(
                    "{peer} is here for the first time{other}. To refuse it: potluck deny {}",
                    hex(peer.node)
                ));
            }
            Event::Left(peer) => {
                let name = peer.name.as_ref().map(|name| name.as_str().to_owned());
                let document =
                    json!({ "event": "node-left", "node": hex(peer.node), "name": name });
                output.result(&document, || format!("{peer} left"))?;
            }
            _ => {}
        }
    }
    // The node has ended, which its status says.
    std::future::pending().await
}

async fn signalled(interrupt: &mut Signal, terminate: &mut Signal) -> Exit {
    tokio::select! {
        _ = interrupt.recv() => Exit::Interrupted,
        _ = terminate.recv() => Exit::Done,
    }
}

/// Prints each change of the cluster until the observer ends by itself.
async fn watch(observer: &mut Observer, output: &Output) -> Result<Exit> {
    let (mut shown, mut was_alone) = (None, false);
    // When to print the reasons for being alone; `None` if not alone, or once printed.
    let mut alone_at = None;
    while let Some(step) = step(observer, alone_at).await {
        let status = observer.status();
        if let Step::StillAlone = step {
            alone_at = None;
            show_alone(&status, output)?;
            continue;
        }
        let nodes = observer.nodes();
        let key = key_of(&status, &nodes);
        if shown.as_ref() == Some(&key) {
            continue;
        }
        let is_alone = matches!(status.state, State::Alone { .. });
        if is_alone && !was_alone {
            alone_at = Some(Instant::now() + ALONE);
        } else if !is_alone {
            alone_at = None;
        }
        (was_alone, shown) = (is_alone, Some(key));
        show(&status, nodes, output)?;
    }
    Ok(Exit::Failed)
}

enum Step {
    Changed,
    StillAlone,
}

async fn step(observer: &mut Observer, alone_at: Option<Instant>) -> Option<Step> {
    let still_alone = async {
        match alone_at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        is_alive = observer.changed() => is_alive.then_some(Step::Changed),
        () = still_alone => Some(Step::StillAlone),
    }
}

/// The parts of the status and the nodes that are shown when they change: not the figures, which
/// change all the time.
fn key_of(status: &Status, nodes: &[StatusDocument]) -> Vec<String> {
    // Not the errors of the dials, which come and go, and not each port.
    let others = status.others.iter().map(|of| {
        let host = of.addresses.first().map(SocketAddr::ip);
        format!("{} {host:?}", of.why.code())
    });
    let own = others.chain(status.duplicates.iter().map(|node| hex(*node)));
    let of_node = |node: &StatusDocument| {
        if node.observer {
            return node.node.clone();
        }
        let view = node.view.as_ref().map(|view| (&view.id, view.members.len(), view.in_sync));
        format!("{} {} {} {view:?}", node.node, node.job, node.state)
    };
    own.chain(nodes.iter().map(of_node)).collect()
}

fn show(status: &Status, nodes: Vec<StatusDocument>, output: &Output) -> Result<()> {
    let mut document = StatusDocument::from(status);
    document.observed = nodes;
    output.result(&event("status", serde_json::to_value(&document)?), || {
        let mut text = cluster_text(&document);
        let others = || status.others.iter().map(ToString::to_string).collect();
        let lines = if status.state == State::Duplicate { status.reasons() } else { others() };
        lines.iter().for_each(|line| text.push_str(&format!("\n  {line}")));
        text
    })
}

fn show_alone(status: &Status, output: &Output) -> Result<()> {
    let reasons = status.reasons();
    let document = event("alone", json!({ "reasons": reasons }));
    output.result(&document, || format!("still {}:\n  {}", status.state, reasons.join("\n  ")))
}

fn event(name: &str, mut document: Value) -> Value {
    document["event"] = json!(name);
    document
}

/// After this time alone, the reasons are printed.
const ALONE: Duration = Duration::from_millis(4500);
