//! Four nodes in a row, in memory: nodes without a direct connection are linked by the relays
//! between them.

use super::config::NodeConfig;
use super::doors::Doors;
use super::testing::{PATIENCE, REDIAL_MS, in_world, ip};
use crate::api::{Builder, Cluster, Config, Context};
use crate::link::MemoryWorld;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const PAUSE: Duration = Duration::from_millis(10);

async fn join(world: &MemoryWorld, n: usize) -> Cluster {
    let own = Builder::new(Config::local()).open_lan("row").name(format!("n{n}")).min_members(4);
    let patient = |node: &mut NodeConfig, _: &mut Doors| node.election.redial_ms = REDIAL_MS;
    Cluster::of(in_world(world, ip(n), own.into(), patient).await.0)
}

/// A group of four, connected between neighbours only.
async fn row(world: &MemoryWorld) -> (Vec<Cluster>, Vec<Context>) {
    for (a, b) in [(0, 2), (0, 3), (1, 3)] {
        world.cut(ip(a), ip(b));
    }
    let (mut clusters, mut contexts) = (Vec::new(), Vec::new());
    for n in 0..4 {
        clusters.push(join(world, n).await);
    }
    for cluster in &clusters {
        contexts
            .push(timeout(PATIENCE, cluster.context()).await.expect("in time").expect("it runs"));
    }
    (clusters, contexts)
}

async fn sum(contexts: &mut [Context]) {
    let [a, b, c, d] = contexts else { panic!("four") };
    let mut sums = [[1.0_f32; 300]; 4];
    let [of_a, of_b, of_c, of_d] = &mut sums;
    let calls = async {
        tokio::try_join!(
            a.all_reduce(of_a),
            b.all_reduce(of_b),
            c.all_reduce(of_c),
            d.all_reduce(of_d)
        )
    };
    timeout(PATIENCE, calls).await.expect("in time").expect("the View stands");
    assert_eq!(sums, [[4.0; 300]; 4]);
}

#[tokio::test]
async fn a_control_link_that_breaks_and_comes_back_costs_no_view_in_a_row() {
    let world = MemoryWorld::new();
    let (clusters, mut contexts) = row(&world).await;
    sum(&mut contexts).await;
    let views = |clusters: &[Cluster]| {
        clusters.iter().map(|c| c.status().counters.views).collect::<Vec<u64>>()
    };
    let before = views(&clusters);
    // In the middle, where three circuits pass, and at both ends, which have no other neighbour.
    for (a, b) in [(1, 2), (0, 1), (3, 2)] {
        let newest = || world.connections(ip(a), ip(b)).map(|(_, newest)| newest);
        let old = newest();
        world.sever(ip(a), ip(b));
        sum(&mut contexts).await;
        let made_anew = async {
            while newest() <= old {
                sleep(PAUSE).await;
            }
        };
        timeout(PATIENCE, made_anew).await.expect("they link again");
        sum(&mut contexts).await;
        assert_eq!(views(&clusters), before, "between {a} and {b}");
    }
}
