//! Which of the nodes that hold the cluster key are admitted.

use super::testing::{in_world, ip, of_group};
use crate::api::{Cluster, Config};
use crate::identity::{NodeId, Trust};
use crate::link::MemoryWorld;
use crate::report::Event;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// How long a node that is out is watched.
const STAYS_OUT: Duration = Duration::from_secs(2);

async fn join(world: &MemoryWorld, group: &str, n: usize, trust: Trust) -> Cluster {
    let own = Config { trust, ..of_group(group, format!("n{n}")) };
    Cluster::of(in_world(world, ip(n), own, |_, _| ()).await.0)
}

async fn meets(cluster: &Cluster, others: usize) {
    let met = async {
        while cluster.status().view.is_none_or(|view| view.members.len() != others + 1) {
            sleep(PAUSE).await;
        }
    };
    timeout(PATIENCE, met).await.expect("they meet");
}

#[tokio::test]
async fn who_is_not_pinned_is_in_no_view_with_the_others() {
    let world = MemoryWorld::new();
    let a = join(&world, "pinned", 1, Trust::KeyHolders).await;
    let b = join(&world, "pinned", 2, Trust::Pinned([a.status().node].into())).await;
    meets(&a, 1).await;
    let before = b.status().counters.strangers;
    let c = join(&world, "pinned", 3, Trust::KeyHolders).await;
    let is_refused = async {
        while b.status().counters.strangers == before {
            sleep(PAUSE).await;
        }
    };
    timeout(PATIENCE, is_refused).await.expect("it tries");
    sleep(STAYS_OUT).await;
    meets(&b, 1).await;
    let peers: Vec<NodeId> = b.status().peers.iter().map(|peer| peer.node).collect();
    assert_eq!(peers, [a.status().node]);
    let node_b = b.status().node;
    assert!(c.status().view.is_none_or(|view| view.members.iter().all(|m| m.node != node_b)));
}

#[tokio::test]
async fn a_newcomer_is_asked_about_once_and_admitted_from_then_on() {
    let world = MemoryWorld::new();
    let (asked, admits) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(true)));
    let trust = {
        let (asked, admits) = (Arc::clone(&asked), Arc::clone(&admits));
        Trust::tofu_if(move |newcomer| {
            asked.lock().expect("no panic").push((newcomer.node, newcomer.namesake));
            admits.load(Ordering::Relaxed)
        })
    };
    let a = join(&world, "tofu", 1, trust).await;
    let mut events = a.events();
    let b = join(&world, "tofu", 2, Trust::KeyHolders).await;
    meets(&a, 1).await;
    let node_b = b.status().node;
    assert_eq!(*asked.lock().expect("no panic"), [(node_b, None)]);
    let told = async {
        loop {
            let event = events.next().await.expect("it runs");
            if let Event::FirstMet { peer, namesake: None } = event {
                break peer.node;
            }
        }
    };
    assert_eq!(timeout(PATIENCE, told).await.expect("told"), node_b);
    // The next newcomer is not admitted.
    admits.store(false, Ordering::Relaxed);
    let c = join(&world, "tofu", 3, Trust::KeyHolders).await;
    let node_c = c.status().node;
    let is_asked = async {
        while asked.lock().expect("no panic").len() < 2 {
            sleep(PAUSE).await;
        }
    };
    timeout(PATIENCE, is_asked).await.expect("it is asked about");
    sleep(STAYS_OUT).await;
    assert!(a.status().peers.iter().all(|peer| peer.node == node_b), "{:?}", a.status().peers);
    let asked = asked.lock().expect("no panic").clone();
    assert!(asked.len() > 1 && asked[1..].iter().all(|(node, _)| *node == node_c), "{asked:?}");
}
