//! The program under test: one process, one node, several tasks in lanes of their own.
//!
//! What all members call follows from the seed, the View, the lane and the number of the call
//! there; how each of them goes on with it, from its name as well. Every call is in the log before
//! it is made, and its end after it has come.

mod calls;
mod draw;
mod lane;
pub mod log;
mod number;
mod state;

use std::collections::BTreeSet;
use std::io::BufRead;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use draw::ROLES;
use lane::Lane;
use log::Log;
use potluck::{Builder, Cluster, Config, Event, KeptOut, Name, Status};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// What the tasks of a node share.
pub struct Node {
    cluster: Cluster,
    log: Log,
    seed: u64,
    name: String,
    life: u64,
    /// The program was asked to end, together with the others.
    asked: AtomicBool,
    over: AtomicBool,
}

impl Node {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// The lanes end together in this time. If a View ends meanwhile, one may wait for another one.
const TOGETHER: Duration = Duration::from_secs(20);
/// For calls that have not ended, from the moment at which the node leaves.
const LAST_CALLS: Duration = Duration::from_secs(10);

/// The program's words on its command line.
const USAGE: &str = "node NAME LIFE SEED LOG";

/// Runs the program until it is asked to end, by `finish` on standard input or by SIGTERM.
pub fn run(words: &[String]) -> ExitCode {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("POTLUCK_LOG"))
        .with_writer(std::io::stderr)
        .try_init();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = runtime.context("no runtime").and_then(|runtime| runtime.block_on(live(words)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn live(words: &[String]) -> Result<()> {
    let [name, life, seed, path] = words else { bail!("{USAGE}") };
    let (life, seed) = (life.parse().context("LIFE")?, seed.parse().context("SEED")?);
    let log = Log::create(Path::new(path))?;
    log.tell(json!({"e": "start", "node": name, "life": life, "pid": std::process::id()}));
    let mut terminated = signal(SignalKind::terminate())?;
    let cluster = Builder::new(Config::home())
        .name(name.as_str())
        .interfaces("eth0")
        .min_members(2)
        .join()
        .await?;
    log.tell(json!({"e": "joined", "id": cluster.status().node.to_string()}));
    let (asked, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let node = Arc::new(Node { cluster, log, seed, name: name.clone(), life, asked, over });
    let watches =
        [tokio::spawn(events(Arc::clone(&node))), tokio::spawn(statuses(Arc::clone(&node)))];
    let mut lanes = JoinSet::new();
    for role in ROLES {
        lanes.spawn(Lane::new(Arc::clone(&node), role).run());
    }
    let mut input = input()?;
    let mut late = std::pin::pin!(sleep(Duration::MAX));
    loop {
        tokio::select! {
            line = input.recv() => match line {
                Some(_) => {
                    node.asked.store(true, Ordering::Relaxed);
                    late.as_mut().reset(Instant::now() + TOGETHER);
                }
                // Whoever started this process has ended.
                None => break,
            },
            _ = terminated.recv() => break,
            () = late.as_mut() => break,
            ended = lanes.join_next() => match ended {
                Some(Ok(())) => {}
                Some(Err(error)) => bail!("a lane: {error}"),
                None => break,
            },
        }
    }
    leave(&node, &mut lanes).await?;
    watches.into_iter().for_each(|watch| watch.abort());
    Ok(())
}

/// The lines of standard input.
fn input() -> Result<mpsc::UnboundedReceiver<String>> {
    let (lines, input) = mpsc::unbounded_channel();
    let read = move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("input".to_owned()).spawn(read)?;
    Ok(input)
}

/// Leaves the group; open calls end with an error.
async fn leave(node: &Arc<Node>, lanes: &mut JoinSet<()>) -> Result<()> {
    node.over.store(true, Ordering::Relaxed);
    node.asked.store(true, Ordering::Relaxed);
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
        let name =
            |name: &Option<Name>| name.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
        for who in status.quarantined.iter().filter(|kept| kept.why == KeptOut::WithheldVote) {
            if known.insert(name(&who.name)) {
                node.log.tell(json!({"e": "withheld", "who": name(&who.name)}));
            }
        }
        let kept_out: Vec<String> =
            status.quarantined.iter().map(|kept| name(&kept.name)).collect();
        node.log.tell(json!({
            "e": "status", "state": status.state.to_string(), "view": status.view.as_ref().map(|view| view.id.to_string()),
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
