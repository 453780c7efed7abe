//! A host with the key makes up more identities than a node has places for links.

use super::control_loop::Handles;
use super::testing::{PATIENCE, begin, decided, in_world, ip, of_group, view_of};
use crate::link::{Local, MemoryWorld, Net, Purpose, initiate, into_control};
use crate::protocol::{Heartbeat, Message, Outcome};
use crate::report::Status;
use crate::wire::Encode;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const CROWD: usize = super::peers::LINKS_MAX + 4;

/// The crowd connects again at once when a link ends, and says that it is alive.
const BEAT: Duration = Duration::from_millis(100);

async fn node(world: &MemoryWorld, n: usize) -> (Handles, SocketAddr) {
    in_world(world, ip(n), of_group("crowd", format!("n{n}")), |_, _| ()).await
}

/// Keeps a link with the node at `to` for ever.
async fn hold(net: Arc<dyn Net>, local: Arc<Local>, to: SocketAddr) {
    let beat = Heartbeat::default();
    let beat = Message::Heartbeat(beat).to_bytes();
    loop {
        if let Ok(stream) = net.dial(to).await
            && let Ok((stream, session)) = initiate(stream, &local, Purpose::Control, None).await
        {
            let (mut sender, _receiver) = into_control(stream, session);
            while sender.send(&beat).await.is_ok() {
                sleep(BEAT).await;
            }
        }
        sleep(BEAT).await;
    }
}

#[tokio::test]
async fn made_up_identities_of_one_host_do_not_keep_a_newcomer_out() {
    let world = MemoryWorld::new();
    let (mut one, at_one) = node(&world, 0).await;
    let (mut other, at_other) = node(&world, 1).await;
    view_of(2, &mut one).await;
    let mut crowd = JoinSet::new();
    for n in 0..CROWD {
        let (made_up, _) =
            crate::api::open(of_group("crowd", format!("x{n}")), crate::api::NodeRole::Member)
                .await
                .expect("an identity");
        for to in [at_one, at_other] {
            let net: Arc<dyn Net> = Arc::new(world.host(ip(9)));
            crowd.spawn(hold(net, Arc::clone(&made_up.local), to));
        }
    }
    for handles in [&mut one, &mut other] {
        let is_full = |status: &Status| status.peers.len() >= super::peers::LINKS_MAX;
        let waits = handles.status.wait_for(is_full);
        tokio::time::timeout(PATIENCE, waits).await.expect("in time").expect("it runs");
    }
    let began = Instant::now();
    let (mut newcomer, _) = node(&world, 2).await;
    let views =
        [view_of(3, &mut one).await, view_of(3, &mut other).await, view_of(3, &mut newcomer).await];
    println!("measured: a newcomer is in after {:?} beside {CROWD} made-up ones", began.elapsed());
    let calls = views.each_ref().map(|view| (view, begin(view)));
    for (view, op) in calls {
        assert_eq!(decided(view, op).await.outcome, Outcome::Committed);
    }
}
