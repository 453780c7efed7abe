//! A group changes its cluster key and denies a node while its members compute.

use super::admission::{Admission, Admissions};
use super::config::NodeConfig;
use super::control_loop::{Command, Handles};
use super::doors::Doors;
use super::testing::{in_world_as, ip, of_group};
use crate::api::{Cluster, Context, NodeRole};
use crate::identity::{ClusterKey, ClusterKeys, Namespace, NamespaceName, NodeId};
use crate::link::MemoryWorld;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Cluster keys, by the byte of which they consist.
const OLD: u8 = 1;
const NEW: u8 = 2;

/// The admission that the node reads at its next look.
#[derive(Clone, Default)]
struct Board(Arc<Mutex<Option<Admission>>>);

impl Board {
    fn put(&self, keys: &[u8], denied: &[NodeId]) {
        let denied = denied.iter().copied().collect();
        let admission = Admission { denied, ..Admission::to(namespace(keys)) };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(admission);
    }

    /// Whether the node has been told.
    fn is_read(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl Admissions for Board {
    fn look(&mut self) -> Option<Admission> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn namespace(keys: &[u8]) -> Namespace {
    let mut keys = keys.iter().map(|key| ClusterKey::from_bytes(&[*key; 32]));
    let keys = ClusterKeys { current: keys.next().expect("a key"), next: keys.next() };
    Namespace::with_keys(NamespaceName::default(), keys)
}

/// A bit shorter than in a real node.
const GRACE: Duration = Duration::from_secs(8);

/// How long a node that is out is watched.
const STAYS_OUT: Duration = Duration::from_secs(3);

struct Member {
    cluster: Cluster,
    board: Board,
    node: NodeId,
}

async fn join(world: &MemoryWorld, group: &str, n: usize) -> Member {
    join_with(world, group, n, GRACE).await
}

async fn join_with(world: &MemoryWorld, group: &str, n: usize, grace: Duration) -> Member {
    let (handles, board) = start(NodeRole::Member, world, group, n, grace, |_, _| ()).await;
    let cluster = Cluster::of(handles);
    let node = cluster.status().node;
    Member { cluster, board, node }
}

/// Starts a node with the old key.
async fn start(
    role: NodeRole,
    world: &MemoryWorld,
    group: &str,
    n: usize,
    grace: Duration,
    change: impl FnOnce(&mut NodeConfig, &mut Doors) + Send + 'static,
) -> (Handles, Board) {
    let own = of_group(group, format!("n{n}"));
    let board = Board::default();
    let door = board.clone();
    let adjust = move |node: &mut NodeConfig, doors: &mut Doors| {
        node.admission = Admission::to(namespace(&[OLD]));
        node.local.set_psks(node.admission.namespace.psks());
        node.grace = grace;
        doors.tools.admissions = Box::new(door);
        change(node, doors);
    };
    let (handles, _) = in_world_as(role, world, ip(n), own, adjust).await;
    (handles, board)
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(PAUSE).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("in time");
}

async fn three(world: &MemoryWorld, group: &str) -> ([Member; 3], [Context; 3]) {
    let members =
        [join(world, group, 0).await, join(world, group, 1).await, join(world, group, 2).await];
    let [a, b, c] = &members;
    let contexts = [of(a, 3).await, of(b, 3).await, of(c, 3).await];
    (members, contexts)
}

/// The context of a View of so many members.
async fn of(member: &Member, size: usize) -> Context {
    let found = async {
        loop {
            let context = member.cluster.context().await.expect("it runs");
            if context.size() == size {
                return context;
            }
            sleep(PAUSE).await;
        }
    };
    timeout(PATIENCE, found).await.expect("such a View")
}

async fn sum([a, b, c]: &mut [Context; 3]) {
    let [mut of_a, mut of_b, mut of_c] = [1.0, 2.0, 3.0].map(|x: f32| vec![x; 20_000]);
    let calls = async {
        tokio::try_join!(a.all_reduce(&mut of_a), b.all_reduce(&mut of_b), c.all_reduce(&mut of_c))
    };
    timeout(PATIENCE, calls).await.expect("in time").expect("the View stands");
    assert!([of_a, of_b, of_c].iter().flatten().all(|x| *x == 6.0));
}

/// Sums until `is_so`; returns how often.
async fn sum_until(contexts: &mut [Context; 3], mut is_so: impl FnMut() -> bool) -> usize {
    let (began, mut sums) = (Instant::now(), 0);
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "it does not come about in {sums} sums");
        sum(contexts).await;
        sums += 1;
    }
    sums
}

/// The number of the newest connection of each pair.
fn newest_connections(world: &MemoryWorld) -> [u64; 3] {
    let newest = |(a, b)| world.connections(ip(a), ip(b)).expect("they are linked").1;
    [(0, 1), (0, 2), (1, 2)].map(newest)
}

/// Only the member that no longer accepts the old key renews its links, those with all others.
#[tokio::test]
async fn a_larger_group_changes_its_key_in_time() {
    const MEMBERS: usize = 12;
    let (world, mut members) = (MemoryWorld::new(), Vec::new());
    for n in 0..MEMBERS {
        members.push(join_with(&world, "large-new-key", n, GRACE).await);
    }
    for member in &members {
        of(member, MEMBERS).await;
        member.board.put(&[OLD, NEW], &[]);
    }
    until(|| members.iter().all(|member| member.board.is_read())).await;
    let views = |member: &Member| member.cluster.status().counters.views;
    let before: Vec<u64> = members.iter().map(views).collect();
    members[0].board.put(&[NEW], &[]);
    until(|| members[0].board.is_read()).await;
    // A link that was not renewed would end with the grace, and the View with it.
    sleep(GRACE + Duration::from_secs(1)).await;
    assert_eq!(members.iter().map(views).collect::<Vec<u64>>(), before);
}

#[tokio::test]
async fn a_group_changes_its_key_and_no_call_notices() {
    let world = MemoryWorld::new();
    let (members, mut contexts) = three(&world, "new-key").await;
    sum(&mut contexts).await;
    let views = members.each_ref().map(|m| m.cluster.status().counters.views);
    for member in &members {
        member.board.put(&[OLD, NEW], &[]);
        sum_until(&mut contexts, || member.board.is_read()).await;
    }
    let before = newest_connections(&world);
    for member in &members {
        member.board.put(&[NEW], &[]);
        sum_until(&mut contexts, || member.board.is_read()).await;
    }
    let read = Instant::now();
    // A link that was not renewed would end with the grace, and the View with it.
    let is_over = || read.elapsed() > GRACE + Duration::from_secs(1);
    let sums = sum_until(&mut contexts, is_over).await;
    println!("measured: {sums} sums while the links were renewed");
    assert_eq!(members.each_ref().map(|m| m.cluster.status().counters.views), views);
    let after = newest_connections(&world);
    assert!(
        before.iter().zip(after).all(|(before, after)| *before < after),
        "{before:?} {after:?}"
    );
    // A node with the old key alone is not admitted. A node with the new key is.
    let late = join(&world, "new-key", 3).await;
    sleep(STAYS_OUT).await;
    assert!(late.cluster.status().peers.is_empty());
    late.board.put(&[NEW], &[]);
    of(&late, 4).await;
}

/// Two observers and a member. The first to drop the old key renews its links before the others
/// drop it, whether it has the smaller node id of the two or not.
#[tokio::test]
async fn no_observer_misses_a_node_while_the_key_changes() {
    const GRACE: Duration = Duration::from_secs(4);
    const OBSERVERS: [usize; 2] = [0, 1];
    for first in [0, 1, 2] {
        let (world, group) = (MemoryWorld::new(), format!("observed-new-key-{first}"));
        let mut nodes = Vec::new();
        for role in [NodeRole::Observer, NodeRole::Observer, NodeRole::Member] {
            nodes.push(start(role, &world, &group, nodes.len(), GRACE, |_, _| ()).await);
        }
        let seen =
            |nodes: &[(Handles, Board)]| OBSERVERS.map(|n| nodes[n].0.observed.borrow().len());
        until(|| seen(&nodes) == [2, 2]).await;
        nodes.iter().for_each(|(_, board)| board.put(&[OLD, NEW], &[]));
        until(|| nodes.iter().all(|(_, board)| board.is_read())).await;
        let before = newest_connections(&world);
        nodes[first].1.put(&[NEW], &[]);
        until(|| {
            let after = newest_connections(&world);
            let pairs = before.iter().zip(after).zip([(0, 1), (0, 2), (1, 2)]);
            let mut own = pairs.filter(|(_, (a, b))| [*a, *b].contains(&first));
            own.all(|((before, after), _)| *before < after) && seen(&nodes) == [2, 2]
        })
        .await;
        nodes.iter().for_each(|(_, board)| board.put(&[NEW], &[]));
        until(|| nodes.iter().all(|(_, board)| board.is_read())).await;
        // A link that was not renewed would end with the grace.
        let read = Instant::now();
        while read.elapsed() < GRACE + Duration::from_secs(1) {
            assert_eq!(seen(&nodes), [2, 2], "node {first} was the first");
            sleep(PAUSE).await;
        }
        let after = newest_connections(&world);
        assert!(before.iter().zip(after).all(|(before, after)| *before < after), "{before:?}");
    }
}

/// The node that is asked does not end its search for faults while its first link stands. It is
/// asked again over the link that replaces it.
#[tokio::test]
async fn a_look_back_goes_on_when_its_link_is_replaced() {
    let (world, group) = (MemoryWorld::new(), "looking-back-new-key");
    let searches = Arc::new(AtomicUsize::new(0));
    let begun = Arc::clone(&searches);
    let slow = move |_: &mut NodeConfig, doors: &mut Doors| {
        doors.tools.faults = Arc::new(move || {
            let is_first = begun.fetch_add(1, Ordering::Relaxed) == 0;
            Box::pin(async move {
                if is_first {
                    std::future::pending::<()>().await;
                }
                Vec::new()
            })
        });
    };
    let (eye, of_eye) = start(NodeRole::Observer, &world, group, 0, GRACE, |_, _| ()).await;
    let (_node, of_node) = start(NodeRole::Member, &world, group, 1, GRACE, slow).await;
    until(|| eye.observed.borrow().len() == 1).await;
    let boards = [of_eye, of_node];
    boards.iter().for_each(|board| board.put(&[OLD, NEW], &[]));
    until(|| boards.iter().all(Board::is_read)).await;
    let (begun, begins) = tokio::sync::oneshot::channel();
    eye.commands.send(Command::LookBack(begun)).await.expect("it runs");
    begins.await.expect("it runs");
    until(|| searches.load(Ordering::Relaxed) == 1).await;
    assert_eq!(eye.looked_back.borrow().waits_for.len(), 1);
    boards.iter().for_each(|board| board.put(&[NEW], &[]));
    until(|| eye.looked_back.borrow().waits_for.is_empty()).await;
    assert!(matches!(&eye.looked_back.borrow().answers[..], [(_, Some(_))]));
    assert_eq!(searches.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn who_does_not_follow_the_change_of_the_key_is_parted_from() {
    let world = MemoryWorld::new();
    let ([a, b, c], mut contexts) = three(&world, "thief").await;
    sum(&mut contexts).await;
    [&a, &b].iter().for_each(|m| m.board.put(&[OLD, NEW], &[]));
    sum_until(&mut contexts, || a.board.is_read() && b.board.is_read()).await;
    [&a, &b].iter().for_each(|m| m.board.put(&[NEW], &[]));
    tokio::join!(of(&a, 2), of(&b, 2));
    sleep(STAYS_OUT).await;
    assert!(c.cluster.status().peers.is_empty(), "{:?}", c.cluster.status());
    assert_eq!((of(&a, 2).await.size(), of(&b, 2).await.size()), (2, 2));
}

#[tokio::test]
async fn a_denied_node_is_out_at_once_and_stays_out_until_it_is_allowed() {
    let world = MemoryWorld::new();
    let ([a, b, c], mut contexts) = three(&world, "denied").await;
    sum(&mut contexts).await;
    let began = Instant::now();
    [&a, &b].iter().for_each(|m| m.board.put(&[OLD], &[c.node]));
    tokio::join!(of(&a, 2), of(&b, 2));
    println!("measured: out after {:?}", began.elapsed());
    let is_out_at =
        |member: &Member| member.cluster.status().peers.iter().all(|peer| peer.node != c.node);
    // The View of two may come before the second of them has looked at its list.
    until(|| [&a, &b].iter().all(|m| m.board.is_read() && is_out_at(m))).await;
    let refused = || [&a, &b].map(|m| m.cluster.status().counters.strangers).iter().sum::<u64>();
    let (before, watched) = (refused(), Instant::now());
    while watched.elapsed() < STAYS_OUT {
        for member in [&a, &b] {
            let status = member.cluster.status();
            assert!(is_out_at(member), "{status:?}");
            assert_eq!(status.view.map(|view| view.members.len()), Some(2));
        }
        sleep(PAUSE).await;
    }
    // It has tried.
    until(|| refused() > before).await;
    [&a, &b].iter().for_each(|m| m.board.put(&[OLD], &[]));
    tokio::join!(of(&a, 3), of(&b, 3), of(&c, 3));
}
