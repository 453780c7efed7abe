//! The contract of [`Discovery`], as a test suite that the tests of every implementation run.

use super::Discovery;
use super::relation::Relation;
use super::roster::{Limits, Roster};
use super::sighting::{Advert, Sighting, Tag, Tags, advert};
use crate::identity::{Boot, Selector};
use crate::os::AddressPolicy;
use std::any::Any;
use std::future::Future;
use std::time::Duration;

/// Timeout for steps without a protocol timer. Generous, because tests share busy machines.
const DEADLINE: Duration = Duration::from_secs(20);

/// The network of one test story.
pub(super) trait Stage {
    /// A new node that has not announced anything.
    fn node(&mut self) -> Box<dyn Discovery>;

    /// Announces a raw record under our service name, until the result is dropped.
    fn noise(&mut self, instance: &str, port: u16, txt: &[(&str, &str)]) -> Box<dyn Any>;
}

/// Runs every story on its own stage. Each uses its own instance names, because the good-byes of
/// one story may still be in flight when the next begins.
pub(super) async fn suite<S: Stage>(mut stage: impl FnMut() -> S) {
    two_nodes_see_each_other(stage()).await;
    three_nodes_all_see_all(stage()).await;
    a_late_node_hears_who_is_there(stage()).await;
    a_withdrawn_advert_vanishes(stage()).await;
    a_changed_advert_is_seen_again(stage()).await;
    a_withdrawn_advert_may_come_back(stage()).await;
    garbage_is_skipped(stage()).await;
    other_namespaces_are_visible_and_never_due(stage()).await;
}

async fn two_nodes_see_each_other(mut stage: impl Stage) {
    let (mut a, mut b) = (stage.node(), stage.node());
    announce(&mut *a, &advert(1, Some([1; 8]))).await;
    announce(&mut *b, &advert(2, None)).await;
    let (of_a, of_b) =
        within("two nodes", async { tokio::join!(sees(&mut *a, 2), sees(&mut *b, 1)) }).await;
    assert_eq!((of_a, of_b), (advert(2, None), advert(1, Some([1; 8]))));
}

async fn three_nodes_all_see_all(mut stage: impl Stage) {
    let (mut a, mut b, mut c) = (stage.node(), stage.node(), stage.node());
    for (n, node) in [(13, &mut c), (11, &mut a), (12, &mut b)] {
        announce(&mut **node, &advert(n, None)).await;
    }
    let all = async {
        tokio::join!(
            sees_all(&mut *a, &[12, 13]),
            sees_all(&mut *b, &[11, 13]),
            sees_all(&mut *c, &[11, 12])
        );
    };
    within("three nodes", all).await;
}

async fn a_late_node_hears_who_is_there(mut stage: impl Stage) {
    let mut early = stage.node();
    announce(&mut *early, &advert(21, None)).await;
    let mut late = stage.node();
    within("a late node", sees(&mut *late, 21)).await;
}

async fn a_withdrawn_advert_vanishes(mut stage: impl Stage) {
    let (mut a, mut b) = (stage.node(), stage.node());
    announce(&mut *a, &advert(31, None)).await;
    within("before it goes", sees(&mut *b, 31)).await;
    a.withdraw().await;
    let gone = Sighting::Vanished { instance: advert(31, None).instance };
    within("a good-bye", async { while b.next().await != gone {} }).await;
}

async fn a_changed_advert_is_seen_again(mut stage: impl Stage) {
    let (mut a, mut b) = (stage.node(), stage.node());
    let open = Advert { pairing: Selector::of(42), ..advert(41, None) };
    announce(&mut *a, &advert(41, None)).await;
    within("the first advert", sees(&mut *b, 41)).await;
    announce(&mut *a, &open).await;
    within("the changed advert", async {
        while b.next().await != Sighting::Appeared(open.clone()) {}
    })
    .await;
}

async fn a_withdrawn_advert_may_come_back(mut stage: impl Stage) {
    let (mut a, mut b) = (stage.node(), stage.node());
    let other = Advert { suites: 9, ..advert(71, None) };
    announce(&mut *a, &advert(71, None)).await;
    within("the first time", sees(&mut *b, 71)).await;
    a.withdraw().await;
    announce(&mut *a, &other).await;
    within("the second time", async {
        while b.next().await != Sighting::Appeared(other.clone()) {}
    })
    .await;
}

async fn garbage_is_skipped(mut stage: impl Stage) {
    let mut a = stage.node();
    let _wrong = stage.noise("wrong", 40_100, &[("v", "2"), ("b", "xyz"), ("s", "01")]);
    let _empty = stage.noise("empty", 40_101, &[]);
    let _strange = stage.noise(
        "not a name of ours",
        40_102,
        &[("v", "2"), ("b", "0000000000000001"), ("s", "01")],
    );
    let mut b = stage.node();
    announce(&mut *b, &advert(52, None)).await;
    // The first advert is the readable one; a good-bye of the previous story may still arrive.
    let first = async {
        loop {
            if let Sighting::Appeared(advert) = a.next().await {
                return advert;
            }
        }
    };
    assert_eq!(within("a readable advert", first).await, advert(52, None));
}

async fn other_namespaces_are_visible_and_never_due(mut stage: impl Stage) {
    let (mut a, mut friend, mut stranger) = (stage.node(), stage.node(), stage.node());
    announce(&mut *stranger, &advert(61, Some([0xee; 8]))).await;
    announce(&mut *friend, &advert(62, Some(tag_of(Boot(62))))).await;
    let relation = |boot, tags: Tags| match tags.cluster == tag_of(boot) {
        true => Relation::SameJob,
        false => Relation::OtherCluster,
    };
    let mut roster = Roster::new(Limits::default(), AddressPolicy::Loopback, Boot(63), relation);
    let both = async {
        while roster.others().count() == 0 || roster.entries().is_empty() {
            roster.sighted(a.next().await, 0);
        }
    };
    within("friend and stranger", both).await;
    let others: Vec<Boot> = roster.others().map(|advert| advert.boot).collect();
    assert_eq!(others, [Boot(61)]);
    let due: Vec<u16> = roster.due(0).iter().map(|dial| dial.to.port()).collect();
    assert_eq!(due, [40_062]);
}

fn tag_of(boot: Boot) -> Tag {
    (boot.0 + 1).to_be_bytes()
}

async fn announce(node: &mut dyn Discovery, advert: &Advert) {
    node.announce(advert).await.expect("the stage carries adverts");
}

async fn sees(node: &mut dyn Discovery, boot: u64) -> Advert {
    loop {
        match node.next().await {
            Sighting::Appeared(advert) if advert.boot == Boot(boot) => return advert,
            _ => {}
        }
    }
}

async fn sees_all(node: &mut dyn Discovery, boots: &[u64]) {
    let mut missing = boots.to_vec();
    while !missing.is_empty() {
        if let Sighting::Appeared(advert) = node.next().await {
            missing.retain(|boot| advert.boot != Boot(*boot));
        }
    }
}

async fn within<T>(what: &str, story: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, story).await {
        Ok(result) => result,
        Err(_) => panic!("{what}: not seen within {DEADLINE:?}"),
    }
}
