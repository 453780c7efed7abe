//! `potluck up`: runs a node in the foreground, to test whether machines find each other.

use crate::args::{Where, Which};
use crate::document::{hex, status_line};
use crate::exit::{Exit, Stop};
use crate::output::Output;
use crate::status::LOOK;
use anyhow::Result;
use clap::{Args, ValueEnum};
use potluck::keys::{Keys, Trust};
use potluck::report::document::StatusDocument;
use potluck::report::{Membership, State};
use potluck::{Cluster, Config, Event, EventStream, Status, StatusStream, scan};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

/// Make the cluster key on the first machine; on every machine, try whether they find each other
///
/// Runs a node in the foreground and prints every change of the group until Ctrl-C. Its job is
/// `potluck`, so it forms a group with every other `potluck up` of the cluster, and with no program:
/// programs are nodes of their own jobs, and do not notice it.
///
/// Without a cluster key it first looks whether a cluster is on the network. If so, it makes no key
/// and says how to enter that one. JSON, one document per line: {event: "key-made", file}, {event:
/// "status", ...} as of `potluck status` for each change, {event: "alone", reasons}, {event:
/// "left"}.
#[derive(Args, Debug)]
pub struct Up {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Where,
    /// Make a new cluster key even when another cluster is on this network
    #[arg(long)]
    new: bool,
    /// Members that make a group, 1 to 16 [default: POTLUCK_MEMBERS, else 2]
    #[arg(long, value_name = "N")]
    min: Option<usize>,
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
        let mut config = self.config();
        let keys = Keys::of(&config)?;
        config.trust = self.trust(&keys)?;
        let cluster = Cluster::join_with(config).await?;
        let newcomers = cluster.events();
        let exit = tokio::select! {
            ended = watch(&cluster, output) => ended?,
            () = tell_newcomers(newcomers, output) => Exit::Failed,
            exit = signalled(&mut interrupt, &mut terminate) => exit,
        };
        cluster.leave().await;
        output.result(&json!({ "event": "left" }), || "left".to_owned())?;
        Ok(exit)
    }

    fn config(&self) -> Config {
        let mut config = self.place.config(&self.which);
        config.min_members = self.min;
        config.peers.clone_from(&self.peer);
        config.name.clone_from(&self.name);
        // This node has no state, so no member should wait for it to sync.
        config.stateless = true;
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
        let keys = Keys::of(&config)?;
        match (keys.cluster_key()?, self.new) {
            (Some(_), false) => return Ok(()),
            (Some(_), true) => {
                let sentence = "this machine has a cluster key already: choose another \
                    --namespace for a new cluster";
                return Err(Stop::with(Exit::Usage, "key-exists", sentence));
            }
            (None, true) => {}
            (None, false) => self.nobody_else_here(config, output).await?,
        }
        drop(keys.create_cluster_key()?);
        let file = keys.cluster_key_file();
        let made = json!({ "event": "key-made", "file": file });
        output.result(&made, || format!("Made a new cluster key: {}", file.display()))?;
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

    async fn nobody_else_here(&self, config: Config, output: &Output) -> Result<()> {
        output.say("No cluster key yet; looking for a cluster on this network for 2 s ...");
        let seen = scan(config, LOOK).await?;
        let flag = self.which.flag();
        let at = |membership| {
            let found = seen.neighbours.iter().find(|n| n.membership == membership)?;
            Some((
                found.version,
                found.addresses.first().map(|a| format!(" (at {a})")).unwrap_or_default(),
            ))
        };
        if let Some((_, at)) = at(Membership::Other) {
            let sentence = format!(
                "a cluster is on this network{at}, so no key was made. To enter it type: potluck \
                 join CODE{flag} (there, `potluck invite` shows a code). To make another cluster \
                 beside it: potluck up --new{flag}"
            );
            return Err(Stop::with(Exit::Key, "cluster-here", sentence));
        }
        if let Some((_, at)) = at(Membership::Invitation) {
            let sentence = format!(
                "a cluster on this network invites{at}, so no key was made. To enter it type: \
                 potluck join CODE, with the code that is shown there. To make another cluster \
                 beside it: potluck up --new{flag}"
            );
            return Err(Stop::with(Exit::Key, "cluster-here", sentence));
        }
        if let Some((version, at)) = at(Membership::OtherVersion) {
            let sentence = format!(
                "a node of another version (protocol {version}) is on this network{at}, so no key \
                 was made. Run the same version on all machines, or make a cluster of your own: \
                 potluck up --new{flag}"
            );
            return Err(Stop::with(Exit::OtherVersion, "other-version", sentence));
        }
        Ok(())
    }
}

/// Reports each node that is met for the first time.
async fn tell_newcomers(mut events: EventStream, output: &Output) {
    while let Some(event) = events.next().await {
        if let Event::FirstMet { peer, namesake } = event {
            let other = match namesake {
                Some(_) => ", and another node has had that name",
                None => "",
            };
            output.say(&format!(
                "{peer} is here for the first time{other}. To refuse it: potluck deny {}",
                hex(peer.node)
            ));
        }
    }
    // The node has ended, which its status says.
    std::future::pending::<()>().await;
}

async fn signalled(interrupt: &mut Signal, terminate: &mut Signal) -> Exit {
    tokio::select! {
        _ = interrupt.recv() => Exit::Interrupted,
        _ = terminate.recv() => Exit::Done,
    }
}

/// Prints each change of the status until the node ends by itself.
async fn watch(cluster: &Cluster, output: &Output) -> Result<Exit> {
    let mut changes = cluster.watch();
    let (mut shown, mut was_alone) = (None, false);
    // When to print the reasons for being alone; `None` if not alone, or once printed.
    let mut alone_at = None;
    while let Some(step) = step(&mut changes, alone_at).await {
        let Step::Changed(status) = step else {
            alone_at = None;
            show_alone(&cluster.status(), output)?;
            continue;
        };
        // The state as text, which omits figures that change while the state lasts.
        let key = (
            status.state.to_string(),
            status.view.as_ref().map(|view| view.id),
            status.others.clone(),
            status.duplicates.clone(),
        );
        if shown.as_ref() == Some(&key) {
            continue;
        }
        let alone = is_alone(&status.state);
        match alone {
            true if !std::mem::replace(&mut was_alone, alone) => {
                alone_at = Some(Instant::now() + ALONE);
            }
            true => {}
            false => (alone_at, was_alone) = (None, false),
        }
        shown = Some(key);
        show(&status, output)?;
    }
    Ok(Exit::Failed)
}

enum Step {
    Changed(Box<Status>),
    StillAlone,
}

async fn step(changes: &mut StatusStream, alone_at: Option<Instant>) -> Option<Step> {
    let still_alone = async {
        match alone_at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        status = changes.next() => Some(Step::Changed(Box::new(status?))),
        () = still_alone => Some(Step::StillAlone),
    }
}

fn is_alone(state: &State) -> bool {
    matches!(state, State::Alone { .. } | State::NotEnoughPeers { .. })
}

fn show(status: &Status, output: &Output) -> Result<()> {
    let document = StatusDocument::from(status);
    output.result(&event("status", serde_json::to_value(&document)?), || {
        let mut line = status_line(&document);
        for other in &status.others {
            line.push_str(&format!("\n  {other}"));
        }
        line
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
