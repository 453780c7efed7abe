//! Links that live long get fresh keys while their members compute.

use super::testing::{in_world, ip, of_group};
use crate::api::{Cluster, Context};
use crate::link::MemoryWorld;
use crate::report::Event;
use std::time::Duration;
use tokio::time::{Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

/// In place of a day.
const RENEW_AFTER: Duration = Duration::from_millis(700);

async fn join(world: &MemoryWorld, n: usize) -> Cluster {
    let own = of_group("renewal", format!("n{n}"));
    let (handles, _) = in_world(world, ip(n), own, |node, _| node.renew_after = RENEW_AFTER).await;
    Cluster::of(handles)
}

async fn sum(a: &mut Context, b: &mut Context) {
    let (mut of_a, mut of_b) = (vec![1.0_f32; 20_000], vec![2.0_f32; 20_000]);
    let calls = async { tokio::try_join!(a.all_reduce(&mut of_a), b.all_reduce(&mut of_b)) };
    timeout(PATIENCE, calls).await.expect("in time").expect("the View stands");
    assert!(of_a.iter().chain(&of_b).all(|x| *x == 3.0));
}

#[tokio::test]
async fn old_links_get_fresh_keys_and_no_call_notices() {
    let world = MemoryWorld::new();
    let (one, other) = (join(&world, 0).await, join(&world, 1).await);
    let (a, b) = tokio::join!(one.context(), other.context());
    let (mut a, mut b) = (a.expect("it runs"), b.expect("it runs"));
    sum(&mut a, &mut b).await;
    let (_, newest) = world.connections(ip(0), ip(1)).expect("they are linked");
    let views = (one.status().counters.views, other.status().counters.views);
    let mut events = one.events();
    let (began, mut sums) = (Instant::now(), 0);
    // Both the control link and the data link of the start are gone, and so are their successors.
    let (mut passed, mut newest) = (0, newest);
    while passed < 2 {
        assert!(began.elapsed() < PATIENCE, "no fresh keys: {sums} sums, {passed} renewals");
        sum(&mut a, &mut b).await;
        sums += 1;
        let (oldest, last) = world.connections(ip(0), ip(1)).expect("they are linked");
        if oldest > newest {
            (passed, newest) = (passed + 1, last);
        }
    }
    println!("measured: {sums} sums over two renewals in {:?}", began.elapsed());
    assert_eq!((one.status().counters.views, other.status().counters.views), views);
    while let Ok(Some(event)) = timeout(Duration::ZERO, events.next()).await {
        assert!(!matches!(event, Event::PathChanged { .. }), "{event}");
    }
}
