//! Observers beside the groups of their cluster.

use super::config::NodeConfig;
use super::control_loop::{Command, Handles};
use super::doors::Doors;
use super::testing::{PATIENCE, in_world, in_world_as, ip, of_group, view_of};
use crate::api::{Config, NodeRole};
use crate::identity::Name;
use crate::link::MemoryWorld;
use crate::report::document::{StatusDocument, ViewDocument};
use crate::report::{Event, Sight, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;
use tokio::time::timeout;

async fn member(world: &MemoryWorld, group: &str, n: usize, job: &str) -> Handles {
    let own = of_group(group, format!("n{n}"));
    in_world(world, ip(n), Config { job: Some(job.to_owned()), ..own }, |_, _| ()).await.0
}

async fn observer(world: &MemoryWorld, group: &str, n: usize) -> Handles {
    let own = of_group(group, format!("o{n}"));
    in_world_as(NodeRole::Observer, world, ip(n), own, |_, _| ()).await.0
}

/// Waits until the documents that it has heard are as wanted.
async fn hears(observer: &mut Handles, wanted: impl Fn(&[StatusDocument]) -> bool) {
    let heard = timeout(PATIENCE, observer.observed.wait_for(|heard| wanted(heard))).await;
    drop(heard.expect("in time").expect("it runs"));
}

async fn leave(node: Handles) {
    let (done, gone) = tokio::sync::oneshot::channel();
    node.commands.send(Command::Leave(done)).await.expect("it runs");
    gone.await.expect("it has left");
}

fn lines(heard: &[StatusDocument]) -> Vec<String> {
    heard.iter().map(|node| format!("{} {} {}", node.job, node.name, node.state)).collect()
}

#[tokio::test]
async fn an_observer_sees_every_job_and_no_job_sees_it() {
    let world = MemoryWorld::new();
    let group = "observed";
    let mut first = observer(&world, group, 0).await;
    let mut train =
        [member(&world, group, 1, "train").await, member(&world, group, 2, "train").await];
    let alone = member(&world, group, 3, "eval").await;
    let views = [view_of(2, &mut train[0]).await, view_of(2, &mut train[1]).await];
    let second = observer(&world, group, 4).await;
    let seconds_job = second.status.borrow().job.clone();
    hears(&mut first, |heard| {
        let others = ["eval n3 alone", "train n1 in", "train n2 in"];
        let mut all = vec![format!("{seconds_job} o4 observing")];
        all.extend(others.map(str::to_owned));
        all.sort();
        lines(heard) == all
    })
    .await;
    assert_eq!(first.status.borrow().state, State::Observing { nodes: 4 });
    let train_0 = first.observed.borrow().iter().find(|node| node.name == "n1").cloned();
    let view = train_0.and_then(|node| node.view).expect("a View");
    assert_eq!(view.members.len(), 2);
    // No member has a link with an observer, counts it or names it.
    for node in [&train[0], &train[1], &alone] {
        let status = node.status.borrow();
        assert!(status.peers.iter().all(|peer| peer.name.as_str().starts_with('n')), "{status:?}");
        assert!(status.other_jobs.iter().all(|job| job.job != seconds_job), "{status:?}");
    }
    // Its documents follow the events there.
    drop(alone);
    hears(&mut first, |heard| heard.iter().all(|node| node.job != "eval")).await;
    for (node, view) in train.iter().zip(&views) {
        let now = node.views.borrow().clone().expect("a View");
        assert!(Arc::ptr_eq(&now, view), "the View was replaced");
    }
}

/// Both members of a View name the same View and the same members.
#[tokio::test]
async fn members_say_the_same_of_their_view() {
    let world = MemoryWorld::new();
    let group = "alike";
    let mut eye = observer(&world, group, 0).await;
    let _members =
        [member(&world, group, 1, "train").await, member(&world, group, 2, "train").await];
    hears(&mut eye, |heard| {
        let views: Vec<_> = heard.iter().filter_map(|node| node.view.as_ref()).collect();
        let [first, second] = views[..] else { return false };
        let names = |view: &ViewDocument| {
            let mut names: Vec<_> = view.members.iter().map(|of| of.name.clone()).collect();
            names.sort();
            names
        };
        first.id == second.id && [first, second].map(names) == [["n1", "n2"]; 2]
    })
    .await;
}

#[tokio::test]
async fn whoever_is_left_of_two_has_not_enough_peers() {
    let world = MemoryWorld::new();
    let group = "left";
    let mut eye = observer(&world, group, 0).await;
    let _stays = member(&world, group, 1, "train").await;
    let leaver = member(&world, group, 2, "train").await;
    hears(&mut eye, |heard| lines(heard) == ["train n1 in", "train n2 in"]).await;
    leave(leaver).await;
    hears(&mut eye, |heard| lines(heard) == ["train n1 not-enough-peers"]).await;
}

#[tokio::test]
async fn the_oldest_observer_gives_way() {
    let world = MemoryWorld::new();
    let node = member(&world, "crowded", 0, "train").await;
    let mut observers = Vec::new();
    for n in 1..=super::status_links::OBSERVERS_MAX + 1 {
        let mut observer = observer(&world, "crowded", n).await;
        hears(&mut observer, |heard| heard.iter().any(|node| node.name == "n0")).await;
        observers.push(observer);
    }
    // It comes back at once, and the next one gives way.
    hears(&mut observers[0], |heard| heard.iter().any(|node| node.name == "n0")).await;
    assert_eq!(node.status.borrow().counters.misbehaviours, 0);
}

/// An observer says which node has left. A node that ends without a word is only missed.
#[tokio::test]
async fn an_observer_is_told_who_leaves() {
    let world = MemoryWorld::new();
    let group = "leaving";
    let mut eye = observer(&world, group, 0).await;
    let (leaver, second) =
        (member(&world, group, 1, "train").await, observer(&world, group, 2).await);
    hears(&mut eye, |heard| heard.len() == 2).await;
    let mut events = eye.happened.resubscribe();
    for (handles, name) in [(leaver, "n1"), (second, "o2")] {
        leave(handles).await;
        let told = timeout(PATIENCE, events.recv()).await.expect("in time").expect("it runs");
        let Event::Left(who) = &told else { panic!("{told}") };
        assert_eq!(who.name.as_ref().map(Name::as_str), Some(name));
    }
    hears(&mut eye, <[StatusDocument]>::is_empty).await;
}

/// A node that accepts no connection dials the observer itself, and so does an observer.
#[tokio::test]
async fn whoever_reaches_the_other_one_dials() {
    let world = MemoryWorld::new();
    let group = "one-way";
    for n in 1..3 {
        world.close(ip(0), ip(n));
    }
    let mut eye = observer(&world, group, 0).await;
    let _nodes = (member(&world, group, 1, "train").await, observer(&world, group, 2).await);
    hears(&mut eye, |heard| heard.len() == 2).await;
}

/// Two nodes that dial each other at the same moment keep one link.
#[tokio::test]
async fn of_two_links_one_stays() {
    for round in 0..20 {
        let world = MemoryWorld::new();
        let group = format!("both-{round}");
        let (mut one, mut two) =
            tokio::join!(observer(&world, &group, 0), observer(&world, &group, 1));
        hears(&mut one, |heard| heard.len() == 1).await;
        hears(&mut two, |heard| heard.len() == 1).await;
        let spoken = [&one, &two].map(|node| node.status.borrow().others.clone());
        assert_eq!(spoken, [vec![], vec![]], "round {round}");
    }
}

/// All nodes say whether they hear and reach the observer that asks.
#[tokio::test]
async fn nodes_look_back() {
    let world = MemoryWorld::new();
    let group = "looking-back";
    world.close(ip(2), ip(0));
    let mut eye = observer(&world, group, 0).await;
    let _nodes = (member(&world, group, 1, "train").await, member(&world, group, 2, "eval").await);
    hears(&mut eye, |heard| heard.len() == 2).await;
    ask(&mut eye).await;
    let answered = eye.looked_back.wait_for(|round| round.waits_for.is_empty());
    let round = timeout(PATIENCE, answered).await.expect("in time").expect("it runs").clone();
    let heard = eye.observed.borrow().clone();
    assert_eq!(round.answers.len(), 2);
    for (node, sight) in round.answers {
        let sight = sight.expect("an answer");
        let name = &heard.iter().find(|of| of.is_of(node)).expect("it is observed").name;
        assert!(sight.hears && sight.clock_ahead_ms.abs() < 20_000, "{name}: {sight:?}");
        let [dial] = &sight.dials[..] else { panic!("{name}: {sight:?}") };
        assert_eq!(dial.error.is_none(), name == "n1", "{name}: {dial:?}");
    }
}

/// Lets it ask all others to look back.
async fn ask(eye: &mut Handles) {
    let (begun, begins) = tokio::sync::oneshot::channel();
    eye.commands.send(Command::LookBack(begun)).await.expect("it runs");
    begins.await.expect("it runs");
}

/// The answers, once all are in.
async fn answers(eye: &mut Handles) -> Vec<Option<Sight>> {
    let answered = eye.looked_back.wait_for(|round| round.waits_for.is_empty());
    let round = timeout(PATIENCE, answered).await.expect("in time").expect("it runs").clone();
    round.answers.into_iter().map(|(_, sight)| sight).collect()
}

/// The later question gets the answers, and no link ends. The first search for faults ends only
/// when both have been asked.
#[tokio::test]
async fn a_second_look_back_before_the_first_is_answered() {
    let world = MemoryWorld::new();
    let group = "looking-back-twice";
    let mut eye = observer(&world, group, 0).await;
    let (searches, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (counted, opened) = (Arc::clone(&searches), Arc::clone(&gate));
    let held = move |_: &mut NodeConfig, doors: &mut Doors| {
        doors.tools.faults = Arc::new(move || {
            let number = counted.fetch_add(1, Ordering::Relaxed) + 1;
            let opened = Arc::clone(&opened);
            Box::pin(async move {
                drop(opened.acquire().await);
                vec![format!("search {number}")]
            })
        });
    };
    let _node = in_world(&world, ip(1), of_group(group, "n1".to_owned()), held).await;
    hears(&mut eye, |heard| heard.len() == 1).await;
    let mut events = eye.happened.resubscribe();
    for _ in 0..2 {
        ask(&mut eye).await;
    }
    gate.add_permits(1);
    let answers = answers(&mut eye).await;
    let [Some(sight)] = &answers[..] else { panic!("{answers:?}") };
    assert!(sight.hears && sight.faults == ["search 2"], "{sight:?}");
    assert_eq!(eye.observed.borrow().len(), 1);
    while let Ok(event) = events.try_recv() {
        assert!(!matches!(event, Event::Left(_) | Event::Lost { .. }), "{event}");
    }
}

/// An observer that names the address of another node, of the same job or not.
#[tokio::test]
async fn another_node_at_the_address_of_the_observer_is_not_taken_for_it() {
    let world = MemoryWorld::new();
    let group = "looking-back-elsewhere";
    let own = |name: &str, job: &str| Config {
        job: Some(job.to_owned()),
        ..of_group(group, name.to_owned())
    };
    let (_named, at) = in_world(&world, ip(1), own("n1", "train"), |_, _| ()).await;
    let _others = (member(&world, group, 2, "eval").await, member(&world, group, 3, "train").await);
    let claims = move |node: &mut NodeConfig, _: &mut Doors| node.advertised = vec![at];
    let liar = own("o0", "train");
    let (mut eye, _) = in_world_as(NodeRole::Observer, &world, ip(0), liar, claims).await;
    hears(&mut eye, |heard| heard.len() == 3).await;
    ask(&mut eye).await;
    let sights = answers(&mut eye).await.into_iter();
    let dials: Vec<_> = sights.flat_map(|sight| sight.expect("an answer").dials).collect();
    assert!(dials.len() >= 2 && dials.iter().all(|dial| dial.error.is_some()), "{dials:?}");
}

/// Full-size packets have passed over a link that has carried documents.
#[tokio::test]
async fn a_pulled_cable_is_not_taken_for_lost_packets() {
    let world = MemoryWorld::new();
    let group = "pulled";
    let mut eye = observer(&world, group, 0).await;
    let _node = member(&world, group, 1, "train").await;
    hears(&mut eye, |heard| heard.len() == 1).await;
    world.cut(ip(0), ip(1));
    hears(&mut eye, <[StatusDocument]>::is_empty).await;
    let others = eye.status.borrow().others.clone();
    assert!(others.iter().all(|of| of.why.code() != "silent"), "{others:?}");
}
