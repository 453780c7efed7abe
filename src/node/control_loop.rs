//! The loop of a node: takes inputs, runs the control plane, drains its outputs.

use super::config::NodeConfig;
use super::control_plane::ControlPlane;
use super::doors::{Doors, Queues};
use super::event::Event;
use super::look_back::LookBackRound;
use super::notices::Waits;
use super::own_thread::own_thread;
use super::published::Published;
use crate::relay::Tunnels;
use crate::report::document::StatusDocument;
use crate::report::{ConfigProblem, Error, Result, Status};
use crate::session::{Meter, ViewSession};
use crate::trace;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// A request from a cluster handle to its control loop.
#[derive(Debug)]
pub enum Command {
    /// Leave the group, answer, and end the control loop.
    Leave(oneshot::Sender<()>),
    /// Ask all observed nodes to look back. Their answers come in the round that begins with this.
    LookBack(oneshot::Sender<()>),
}

/// The handles' side of the channels to one control loop.
pub struct Handles {
    /// Requests to the control loop. The node leaves when the last sender is dropped.
    pub commands: mpsc::Sender<Command>,
    /// The session (`ViewSession`) of the newest View; `None` without one, or if the View has not
    /// begun or has fewer than `min_members` members.
    pub views: watch::Receiver<Option<Arc<ViewSession>>>,
    /// The newest status.
    pub status: watch::Receiver<Status>,
    /// The newest documents of the nodes that this node observes, if it is an observer: by job,
    /// name, key.
    pub observed: watch::Receiver<Vec<StatusDocument>>,
    /// The answers of these nodes to the last question for a look back.
    pub looked_back: watch::Receiver<LookBackRound>,
    /// Counters of the operations.
    pub meter: Arc<Meter>,
    /// Counts the futures that wait for a View.
    pub waits: Waits,
    /// Events. A later subscriber gets only the events sent after it subscribed (`resubscribe`).
    pub happened: broadcast::Receiver<crate::report::Event>,
}

/// The control loop's side of [`Handles`].
pub struct Outlets {
    commands: mpsc::Receiver<Command>,
    told: Published,
}

/// Capacity of the event channel, enough for many Views. A slower subscriber loses the oldest
/// events.
const EVENTS_KEPT: usize = 256;

/// Creates both sides of the channels, with `status` as the first status.
pub fn channels(status: Status) -> (Handles, Outlets) {
    let (command_tx, command_rx) = mpsc::channel(8);
    let (view_tx, view_rx) = watch::channel(None);
    let (status_tx, status_rx) = watch::channel(status);
    let (observed_tx, observed) = watch::channel(Vec::new());
    let (looked_back_tx, looked_back) = watch::channel(LookBackRound::default());
    let (happened_tx, happened) = broadcast::channel(EVENTS_KEPT);
    let (meter, waits) = (Arc::new(Meter::new()), Waits::default());
    let handles = Handles {
        commands: command_tx,
        views: view_rx,
        status: status_rx,
        observed,
        looked_back,
        meter: Arc::clone(&meter),
        waits: waits.clone(),
        happened,
    };
    let told = Published {
        views: view_tx,
        status: status_tx,
        observed: observed_tx,
        looked_back: looked_back_tx,
        meter,
        waits,
        happened: happened_tx,
    };
    (handles, Outlets { commands: command_rx, told })
}

/// Runs the control loop on its own thread and returns when it has started. The thread ends after
/// [`Command::Leave`], or when all command senders are dropped. `open` is called on that thread,
/// inside its runtime, because sockets belong to a runtime.
///
/// If this future is dropped, the control loop does not run, or leaves at once.
///
/// # Errors
/// That of `open`. [`ConfigProblem::NoPort`] if the thread or its runtime cannot be created.
/// [`Error::Closed`] if the thread has ended before it answered.
pub async fn spawn<F, O>(open: O) -> Result<Handles>
where
    O: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<(NodeConfig, Doors)>>,
{
    let start = own_thread("potluck-control", no_port, |started| async move {
        match open().await {
            Err(error) => drop(started.send(Err(error))),
            Ok((config, doors)) => {
                let (handles, outlets) = channels(config.first_status(doors.listener.port()));
                if started.send(Ok(handles)).is_ok() {
                    run(config, doors, outlets).await;
                }
            }
        }
    });
    start?.await.map_err(|_| Error::Closed)?
}

/// The system gives this node no port, no thread or no runtime.
pub fn no_port(error: &io::Error) -> Error {
    Error::Config(ConfigProblem::NoPort(error.kind()))
}

/// Runs the control plane of one node until it leaves.
pub async fn run(config: NodeConfig, doors: Doors, outlets: Outlets) {
    let Doors { mut listener, mut discovery, status_socket, tools } = doors;
    let Outlets { mut commands, told } = outlets;
    // Its end removes the file of the socket.
    let mut serving = JoinSet::new();
    if let Some(socket) = status_socket {
        serving.spawn(socket.serve(told.status.subscribe(), told.observed.subscribe()));
    }
    let (events_tx, mut events) = mpsc::channel(super::event::QUEUE);
    // Unbounded, because the disk must not wait for the control loop. The disk sends at most one
    // ticket for each save.
    let (durable_tx, mut durable) = mpsc::unbounded_channel();
    let (ends_tx, mut ends) = mpsc::unbounded_channel();
    let (tunnels, mut said) = Tunnels::new();
    let queues = Queues { tunnels, events: events_tx, ends: ends_tx, durable: durable_tx };
    let mut node = ControlPlane::new(config, listener.port(), tools, queues, told);
    if let Err(problem) = discovery.announce(&node.advert()).await {
        trace::warn!(%problem, "this node cannot be discovered by others");
    }
    let mut listens = true;
    loop {
        let pause = node.pause();
        tokio::select! {
            Some(event) = events.recv() => node.on_event(event),
            Some(ticket) = durable.recv() => node.on_durable(ticket),
            Some(end) = ends.recv() => node.on_link_end(end),
            Some(outgoing) = node.outgoing() => node.on_outgoing(outgoing),
            Some(said) = said.recv() => node.on_said(said),
            command = commands.recv() => {
                if let Some(Command::LookBack(begun)) = command {
                    node.ask_to_look_back();
                    // The receiver may be dropped.
                    let _ = begun.send(());
                    announce_anew(&mut node, discovery.as_mut()).await;
                    continue;
                }
                node.leave();
                node.leave_relayed(&mut said).await;
                // Before another node may use the slot, and with it the name of this socket.
                serving.shutdown().await;
                leave(node, discovery.as_mut(), events).await;
                if let Some(Command::Leave(done)) = command {
                    // The receiver may be dropped.
                    let _ = done.send(());
                }
                return;
            }
            accepted = listener.accept(), if listens => match accepted {
                Ok((stream, from)) => node.on_accepted(stream, from),
                Err(error) => {
                    trace::error!(%error, "this node takes no connections any more; it dials as \
                        before");
                    listens = false;
                }
            },
            sighting = discovery.next() => node.on_sighting(sighting),
            () = tokio::time::sleep(pause) => {}
        }
        // Inputs that are ready now belong to the same turn.
        for _ in 0..super::event::BATCH {
            let Ok(event) = events.try_recv() else { break };
            node.on_event(event);
        }
        for _ in 0..super::event::BATCH {
            let Ok(said) = said.try_recv() else { break };
            node.on_said(said);
        }
        for _ in 0..super::event::BATCH {
            let Some(outgoing) = node.outgoing_now() else { break };
            node.on_outgoing(outgoing);
        }
        node.turn(discovery.as_mut());
        announce_anew(&mut node, discovery.as_mut()).await;
    }
}

/// Announces the node again if its advert has changed.
async fn announce_anew(node: &mut ControlPlane, discovery: &mut dyn crate::discovery::Discovery) {
    if node.has_new_advert()
        && let Err(problem) = discovery.announce(&node.advert()).await
    {
        trace::warn!(%problem, "this node cannot be discovered by others");
    }
}

/// Sends the good-byes before the sockets close, and withdraws the announcement. Both run
/// concurrently, and each may take 500 ms.
async fn leave(
    node: ControlPlane,
    discovery: &mut dyn crate::discovery::Discovery,
    events: mpsc::Receiver<Event>,
) {
    let flushed = node.close();
    // A full event queue must not delay the good-byes.
    drop(events);
    let patience = Duration::from_millis(500);
    let (node, _) = tokio::join!(
        tokio::time::timeout(patience, flushed),
        tokio::time::timeout(patience, discovery.withdraw())
    );
    // This may wait for the disk.
    drop(node);
}
