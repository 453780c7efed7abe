//! Members with a fast uplink in the trees send without the codec, beside others whose sums are
//! encoded.

use super::coded::{call, expected, plan, some};
use super::door::DOOR;
use crate::collective::input::Input;
use crate::collective::suite::{Chance, assert_gives, bytes, op};
use crate::compression::codec;
use crate::link::{DataHeader, DataLink, DataReceiver, DataSender, Phase, Shutdown, narrow};
use crate::memory::{bytes_of, elements_of};
use crate::os::Mutex;
use crate::os::lock;
use crate::protocol::{
    Algorithm, AutoCodecs, Coarsest, CodecId, Coding, Plan, Rank, RankSet, ReduceOp, Tree,
    TreeShare,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A tree given by each rank's parent, 9 for the root, and its share.
fn tree(parents: &[u8], ppm: u32) -> TreeShare {
    TreeShare {
        tree: Tree {
            parents: parents.iter().map(|parent| (*parent != 9).then_some(Rank(*parent))).collect(),
        },
        ppm,
    }
}

/// A plan of these trees, in which the `plain` members skip the codec.
fn plan_of(trees: Vec<TreeShare>, plain: &[u8]) -> Arc<Plan> {
    let plain: RankSet = plain.iter().copied().map(Rank).collect();
    let mut plan = Arc::unwrap_or_clone(plan(2624, Algorithm::Trees { trees }));
    plan.classes[1].auto = AutoCodecs::new(|coarsest| Coding::but_for(coarsest.id(), plain));
    Arc::new(plan)
}

/// Trees for a group of this size, each with several sets of members that skip the codec.
fn plans(size: usize) -> Vec<Arc<Plan>> {
    let of = |trees: &[TreeShare], plains: &[&[u8]]| {
        plains.iter().map(|plain| plan_of(trees.to_vec(), plain)).collect::<Vec<_>>()
    };
    let one = |parents: &[u8]| vec![tree(parents, 1_000_000)];
    let two = |a: &[u8], b: &[u8]| vec![tree(a, 400_000), tree(b, 600_000)];
    match size {
        2 => of(&one(&[9, 0]), &[&[], &[0], &[1]]),
        // A chain whose middle rank skips the codec or not, and two stars.
        3 => [
            of(&one(&[9, 0, 1]), &[&[], &[0], &[0, 1], &[0, 2], &[1, 2]]),
            of(&two(&[9, 0, 0], &[1, 9, 1]), &[&[2], &[0, 1], &[1]]),
        ]
        .concat(),
        // Two ranks under one rank under the root, beside a leaf; and a root that is not rank 0.
        _ => [
            of(&one(&[9, 0, 1, 1, 0]), &[&[0, 1], &[1], &[0, 2, 4], &[0, 1, 2, 3], &[3]]),
            of(&two(&[3, 3, 1, 9, 2], &[2, 0, 9, 0, 3]), &[&[], &[1, 3], &[0, 1, 2, 4]]),
        ]
        .concat(),
    }
}

#[test]
fn sums_are_those_of_a_reference_and_the_same_everywhere() {
    let mut chance = Chance(21);
    println!("seed {}", chance.0);
    let mut number = 0;
    for size in [2, 3, 5] {
        let group = DOOR.group(size);
        for plan in plans(size) {
            assert!(plan.fits(size), "{plan:?}");
            for (coarsest, reduce) in Coarsest::ALL
                .into_iter()
                .flat_map(|c| [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max].map(|op| (c, op)))
            {
                for count in [1, 257, 5003] {
                    let inputs: Vec<_> = (0..size).map(|_| some(count, &mut chance)).collect();
                    let call = call(CodecId::Auto(coarsest), reduce, count);
                    let expected = expected(&call, &plan, &inputs);
                    let of = op(0, number);
                    assert_gives(&group, of, call, &plan, &inputs, &expected, &mut chance);
                    number += 1;
                }
            }
        }
    }
}

/// With lent inputs, so that unencoded data is sent from the caller's memory.
#[test]
fn what_is_handed_over_comes_to_the_same() {
    let mut chance = Chance(22);
    println!("seed {}", chance.0);
    let (group, size, count) = (DOOR.group(5), 5, 5003);
    for (number, plan) in (0..).zip(plans(size)) {
        let inputs: Vec<_> = (0..size).map(|_| some(count, &mut chance)).collect();
        let call = call(CodecId::Auto(Coarsest::Int8), ReduceOp::Sum, count);
        let op = op(0, number);
        for me in chance.shuffled(group.ranks().collect()) {
            group.begin(me, op, call, None, &plan, None);
            group.backends[me.index()]
                .feed(op, &Input::lent(&Arc::new(inputs[me.index()].clone())));
            group.credit_from(op, me);
        }
        for _ in 0..size {
            let (rank, _, result) = group.outcome();
            assert!(
                bytes(&result.expect("a sum")) == bytes_of(&expected(&call, &plan, &inputs)),
                "rank {rank}, {plan:?}"
            );
        }
        group.retire(op);
    }
}

/// A value far below the codec's step size survives, after all larger values have cancelled out.
#[test]
fn what_is_not_encoded_is_exact() {
    let (group, mut chance) = (DOOR.group(3), Chance(23));
    let fine = 2f32.powi(-14);
    let inputs = [vec![-2.0; 1000], vec![1.0 + fine; 1000], vec![1.0f32; 1000]];
    let raw: Vec<_> = inputs.iter().map(|input| bytes_of(input).to_vec()).collect();
    // Rank 1 is an inner rank or a leaf; rank 2 is below it or beside it.
    for (number, (parents, plain, arrives)) in (0..).zip([
        ([9, 0, 1], &[0u8, 1][..], true),
        ([9, 0, 0], &[0, 1], true),
        ([9, 0, 0], &[1], true),
        ([9, 0, 0], &[0], false),
        ([9, 0, 0], &[0, 2], false),
    ]) {
        let plan = plan_of(vec![tree(&parents, 1_000_000)], plain);
        let call = call(CodecId::Auto(Coarsest::Bf16), ReduceOp::Sum, 1000);
        for finished in group.run(op(0, number), call, None, &plan, &raw, &mut chance) {
            let got = bytes(&finished);
            let sum = elements_of::<f32>(&got).expect("f32");
            assert!(
                sum.iter().all(|x| *x == if arrives { fine } else { 0.0 }),
                "{parents:?} without {plain:?}: {}",
                sum[0]
            );
        }
    }
}

/// Bytes that each rank has sent towards the root.
type Sent = Arc<Mutex<BTreeMap<Rank, usize>>>;

struct Counted(Box<dyn DataLink>, Rank, Sent);
struct CountedSender(Box<dyn DataSender>, Rank, Sent);

impl DataLink for Counted {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        let (sender, receiver, shutdown) = self.0.split();
        (Box::new(CountedSender(sender, self.1, self.2)), receiver, shutdown)
    }
}

impl DataSender for CountedSender {
    fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        if header.phase == Phase::Reduce {
            *lock(&self.2).entry(self.1).or_default() += payload.len();
        }
        self.0.send(header, payload)
    }
}

#[test]
fn four_bytes_an_element_go_up_a_fast_way_and_those_of_the_codec_up_a_slow_one() {
    let (sent, mut chance, count) = (Sent::default(), Chance(24), 20_000);
    let counted =
        |me, link| -> Box<dyn DataLink> { Box::new(Counted(link, me, Arc::clone(&sent))) };
    let group = DOOR.apart(4).linked_as(narrow, counted);
    // Ranks 3 and 2 under 1 under 0.
    let plan = plan_of(vec![tree(&[9, 0, 1, 1], 1_000_000)], &[0, 1, 3]);
    let raw: Vec<_> = (0..4).map(|_| bytes_of(&some(count, &mut chance)).to_vec()).collect();
    for (number, coarsest) in (0..).zip(Coarsest::ALL) {
        lock(&sent).clear();
        group.run(
            op(0, number),
            call(CodecId::Auto(coarsest), ReduceOp::Sum, count),
            None,
            &plan,
            &raw,
            &mut chance,
        );
        // Flows are cut only between blocks, so the pieces have the length of the whole.
        let coded = codec(coarsest.id()).expect("a codec").encoded_len(count);
        assert_eq!(
            *lock(&sent),
            BTreeMap::from([(Rank(1), 4 * count), (Rank(2), coded), (Rank(3), 4 * count)])
        );
        // A call that names the codec uses it on every edge.
        lock(&sent).clear();
        group.run(
            op(0, 10 + number),
            call(coarsest.id(), ReduceOp::Sum, count),
            None,
            &plan,
            &raw,
            &mut chance,
        );
        assert_eq!(*lock(&sent), BTreeMap::from([1, 2, 3].map(|rank| (Rank(rank), coded))));
    }
}
