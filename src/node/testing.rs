//! Helpers that the tests of whole nodes share.

use super::config::NodeConfig;
use super::control_loop::Handles;
use super::doors::Doors;
use crate::api::{Builder, Config, NodeRole};
use crate::collective::Input;
use crate::link::{MemoryWorld, Net};
use crate::memory::{DType, bytes_of};
use crate::protocol::{Call, CallKind, Lane, Mutation, OpId, ReduceOp};
use crate::report::{Event, LossReason};
use crate::session::{Decided, ViewSession};
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::time::timeout;

/// Longer than any of these waits takes on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// How long a link may be made anew, in milliseconds, on a machine that may be busy.
pub(super) const REDIAL_MS: u64 = 10_000;

/// A sum of four numbers.
pub(super) const SUM: Call = Call::new(CallKind::AllReduce(ReduceOp::Sum), DType::F32, 4);

/// A host of a world.
pub(super) fn ip(n: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, n as u8 + 1])
}

/// The configuration of a node of this group, which wants two members.
pub(super) fn of_group(group: &str, name: String) -> Config {
    Config::from(Builder::new(Config::local()).open_lan(group).name(name).min_members(2))
}

/// Starts a node on this host of a world, and returns its address. `adjust` changes its parts.
pub(super) async fn in_world(
    world: &MemoryWorld,
    ip: IpAddr,
    own: Config,
    adjust: impl FnOnce(&mut NodeConfig, &mut Doors) + Send + 'static,
) -> (Handles, SocketAddr) {
    in_world_as(NodeRole::Member, world, ip, own, adjust).await
}

/// The same, for a node in this role.
pub(super) async fn in_world_as(
    role: NodeRole,
    world: &MemoryWorld,
    ip: IpAddr,
    own: Config,
    adjust: impl FnOnce(&mut NodeConfig, &mut Doors) + Send + 'static,
) -> (Handles, SocketAddr) {
    let net = world.host(ip);
    let listener = net.listen(&[]).await.expect("a port");
    let at = SocketAddr::new(ip, listener.port());
    let on_host = move |node: &mut NodeConfig, doors: &mut Doors| {
        (doors.listener, doors.tools.net) = (listener, Arc::new(net));
        node.advertised = vec![at];
        adjust(node, doors);
    };
    (started_as(role, own, on_host).await, at)
}

/// Starts a node. `adjust` changes its parts.
pub(super) async fn started(
    own: Config,
    adjust: impl FnOnce(&mut NodeConfig, &mut Doors) + Send + 'static,
) -> Handles {
    started_as(NodeRole::Member, own, adjust).await
}

async fn started_as(
    role: NodeRole,
    own: Config,
    adjust: impl FnOnce(&mut NodeConfig, &mut Doors) + Send + 'static,
) -> Handles {
    let open = move || async move {
        let (mut node, mut doors) = crate::api::open(own, role).await?;
        adjust(&mut node, &mut doors);
        Ok((node, doors))
    };
    super::control_loop::spawn(open).await.expect("it runs")
}

/// Starts a node of this group that breaks a rule.
pub(super) async fn with_mutation(group: &str, name: &str, mutation: Mutation) -> Handles {
    let change = move |node: &mut NodeConfig, _: &mut Doors| {
        node.mutation = mutation;
        node.election.redial_ms = REDIAL_MS;
    };
    started(of_group(group, name.to_owned()), change).await
}

/// The next member that is lost, by name, and how.
pub(super) async fn lost(events: &mut Receiver<Event>) -> (String, LossReason) {
    let told = async {
        loop {
            if let Event::Lost { peer, why } = events.recv().await.expect("it runs") {
                return (peer.name.expect("a name").as_str().to_owned(), why);
            }
        }
    };
    timeout(PATIENCE, told).await.expect("nobody is lost")
}

/// The View of so many members, once this node has it.
pub(super) async fn view_of(size: usize, handles: &mut Handles) -> Arc<ViewSession> {
    let is_it = |session: &Option<Arc<ViewSession>>| {
        session.as_ref().is_some_and(|e| e.view().size() == size && !e.is_frozen())
    };
    let session = timeout(PATIENCE, handles.views.wait_for(is_it))
        .await
        .expect("in time")
        .expect("it runs")
        .clone();
    session.expect("a View")
}

/// Calls with a buffer of ones.
pub(super) fn begin(session: &Arc<ViewSession>) -> OpId {
    try_begin(session).expect("a number")
}

/// The same; `None` if the View is being replaced.
pub(super) fn try_begin(session: &Arc<ViewSession>) -> Option<OpId> {
    let op = session.call(Lane::MAIN, SUM).ok()?;
    session.begin(op, SUM, &Input::Borrowed(bytes_of(&[1f32; 4])));
    Some(op)
}

/// How the operation ends here.
pub(super) async fn decided(session: &Arc<ViewSession>, op: OpId) -> Decided {
    timeout(PATIENCE, poll_fn(|task| session.poll_decided(op, task)))
        .await
        .expect("the call stays open")
}
