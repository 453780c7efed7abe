//! A node with the key proposes Views in a loop.

use super::testing::{PATIENCE, begin, decided, in_world, ip, of_group, view_of};
use crate::link::{MemoryWorld, Net, Purpose, initiate, into_control};
use crate::os::Store;
use crate::protocol::{Ballot, Message, Outcome};
use crate::wire::Encode;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::{Instant, timeout};

/// Counts the states that it is told to save.
struct Counting(Arc<AtomicUsize>);

impl Store for Counting {
    fn save(&mut self, _state: Vec<u8>, done: Box<dyn FnOnce() + Send>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        done();
    }

    fn remember(&mut self, _peers: Vec<SocketAddr>) {}
}

/// Writes for the formation and for the members' own proposals meanwhile.
const OTHERS: usize = 40;

#[tokio::test]
async fn a_proposer_in_a_loop_does_not_set_the_pace_of_the_disk() {
    let world = MemoryWorld::new();
    let saves = Arc::new(AtomicUsize::new(0));
    let store = Counting(Arc::clone(&saves));
    let own = of_group("proposer", "one".to_owned());
    let (mut one, at) =
        in_world(&world, ip(1), own, move |_, doors| doors.tools.store = Box::new(store)).await;
    let own = of_group("proposer", "other".to_owned());
    let (mut other, _) = in_world(&world, ip(2), own, |_, _| ()).await;
    let id = view_of(2, &mut one).await.view().members.iter().map(|m| m.id).collect::<Vec<_>>();

    let (looping, _) =
        crate::api::open(of_group("proposer", "loop".to_owned()), crate::api::NodeRole::Member)
            .await
            .expect("an identity");
    let proposer = looping.local.hello.id;
    let stream = world.host(ip(9)).dial(at).await.expect("connected");
    let (stream, session) =
        initiate(stream, &looping.local, Purpose::Control, None).await.expect("a link");
    let (mut sender, mut receiver) = into_control(stream, session);
    // Answers are read, so that the node's queue does not fill up.
    let answers = tokio::spawn(async move { while receiver.recv().await.is_ok() {} });
    let (began, before) = (Instant::now(), saves.load(Ordering::SeqCst));
    let members: Vec<_> = id.into_iter().chain([proposer]).collect();
    for round in 1000..6000 {
        let proposal = Message::Prepare(Ballot { round, proposer }, members.clone());
        sender.send(&proposal.to_bytes()).await.expect("the link stands");
    }
    drop(sender);
    timeout(PATIENCE, answers).await.expect("the link ends").expect("no panic");
    let (took, written) = (began.elapsed(), saves.load(Ordering::SeqCst) - before);
    println!("measured: {written} writes for 5000 proposals in {took:?}");
    assert!(written <= 100 + 20 * (took.as_secs() as usize + 1) + OTHERS, "{written} writes");

    let (of_one, of_other) = (view_of(2, &mut one).await, view_of(2, &mut other).await);
    for (view, op) in [(&of_one, begin(&of_one)), (&of_other, begin(&of_other))] {
        assert_eq!(decided(view, op).await.outcome, Outcome::Committed);
    }
}
