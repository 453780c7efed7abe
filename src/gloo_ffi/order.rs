//! Layer: Core.
//!
//! The turnstile: operations enter Gloo one at a time and in the same order on every member.
//!
//! Gloo's collectives on one context must be called alike everywhere, or they wait for each other for ever. So rank 0
//! numbers the operations 0, 1, 2, … as it calls them, and an operation passes when every lower number has, when it is
//! started here, and when all others have started it too and agree with it. One that is cancelled or decided meanwhile
//! is passed over.

use crate::view::{OPS_LISTED_MAX, OpId, Rank};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The operations before and in the turnstile.
#[derive(Debug)]
pub struct Order {
    /// A bit for each rank that must say that it has started an operation.
    peers: u16,
    ops: BTreeMap<OpId, Entry>,
    /// The operations of the numbers that have not passed.
    placed: BTreeMap<u64, OpId>,
    /// The lowest number that has not passed.
    number: u64,
    over: Over,
}

#[derive(Debug, Default)]
struct Entry {
    is_started: bool,
    /// It is inside, or was.
    has_passed: bool,
    /// A bit for each rank that has started it.
    credited: u16,
}

/// Operations that are over, so that what is still said about them is not taken for news.
///
/// Members are at most one round of listed operations apart, so older ones are not spoken of any more.
#[derive(Debug, Default)]
struct Over {
    ops: BTreeSet<OpId>,
    by_age: VecDeque<OpId>,
}

impl Order {
    /// Of `me` in a View of `size`.
    pub fn new(me: Rank, size: usize) -> Order {
        let all = (0..size).fold(0, |bits, rank| bits | 1 << rank);
        Order { peers: all & !(1 << me.0), ops: BTreeMap::new(), placed: BTreeMap::new(), number: 0, over: Over::default() }
    }

    /// Rank 0 gave `op` this number. Said twice it counts once.
    pub fn place(&mut self, op: OpId, number: u64) {
        // A member lists a bounded number of operations: what lies further ahead no honest rank 0 has said.
        if number >= self.number && number - self.number < OPS_LISTED_MAX as u64 {
            self.placed.entry(number).or_insert(op);
        }
    }

    /// `op` is started here. `false` when it is over, or was started before.
    pub fn start(&mut self, op: OpId) -> bool {
        if self.over.contains(op) {
            return false;
        }
        let entry = self.ops.entry(op).or_default();
        !std::mem::replace(&mut entry.is_started, true)
    }

    /// `peer` has started `op` and agrees with what is called here.
    pub fn credit(&mut self, op: OpId, peer: Rank) {
        if !self.over.contains(op) && usize::from(peer.0) < u16::BITS as usize {
            self.ops.entry(op).or_default().credited |= 1 << peer.0;
        }
    }

    /// `op` is given up or decided: it does not pass any more. May be said at any time, also before anything else is.
    pub fn end(&mut self, op: OpId) {
        self.ops.remove(&op);
        self.over.insert(op);
    }

    /// The operation whose turn it is, once. It counts as passed then.
    pub fn next(&mut self) -> Option<OpId> {
        loop {
            let op = *self.placed.get(&self.number)?;
            if !self.over.contains(op) {
                let entry = self.ops.get_mut(&op)?;
                if !entry.is_started || entry.credited & self.peers != self.peers {
                    return None;
                }
                // A second number for it passes nobody.
                let again = std::mem::replace(&mut entry.has_passed, true);
                self.pass();
                if !again {
                    return Some(op);
                }
                continue;
            }
            self.pass();
        }
    }

    fn pass(&mut self) {
        self.placed.remove(&self.number);
        self.number += 1;
    }
}

impl Over {
    fn contains(&self, op: OpId) -> bool {
        self.ops.contains(&op)
    }

    fn insert(&mut self, op: OpId) {
        if !self.ops.insert(op) {
            return;
        }
        self.by_age.push_back(op);
        if self.by_age.len() > 2 * OPS_LISTED_MAX
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.ops.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Lane;

    fn op(number: u64) -> OpId {
        OpId { lane: Lane(number % 3), number }
    }

    fn credit_all(order: &mut Order, op: OpId) {
        (1..3).for_each(|peer| order.credit(op, Rank(peer)));
    }

    /// Rank 0 of three.
    fn order() -> Order {
        Order::new(Rank(0), 3)
    }

    #[test]
    fn an_operation_passes_when_all_is_there_whatever_came_last() {
        let steps: [fn(&mut Order); 4] = [
            |order| order.place(op(5), 0),
            |order| assert!(order.start(op(5))),
            |order| order.credit(op(5), Rank(1)),
            |order| order.credit(op(5), Rank(2)),
        ];
        for last in 0..4 {
            let mut order = order();
            (0..4).filter(|i| *i != last).for_each(|i| steps[i](&mut order));
            assert_eq!(order.next(), None);
            steps[last](&mut order);
            assert_eq!(order.next(), Some(op(5)));
            assert_eq!(order.next(), None, "once");
        }
    }

    #[test]
    fn a_higher_number_waits_for_the_lower_ones() {
        let mut order = order();
        for number in [2, 0, 1] {
            order.place(op(10 + number), number);
        }
        for number in [12, 11] {
            order.start(op(number));
            credit_all(&mut order, op(number));
        }
        assert_eq!(order.next(), None);
        order.start(op(10));
        assert_eq!(order.next(), None);
        credit_all(&mut order, op(10));
        assert_eq!([order.next(), order.next(), order.next(), order.next()], [Some(op(10)), Some(op(11)), Some(op(12)), None]);
    }

    #[test]
    fn what_is_over_is_passed_over_whenever_that_is_said() {
        // Before it is placed, before it is started, and when all is there.
        let endings: [fn(&mut Order); 3] = [
            |order| {
                order.end(op(0));
                order.place(op(0), 0);
                assert!(!order.start(op(0)));
            },
            |order| {
                order.place(op(0), 0);
                order.end(op(0));
                assert!(!order.start(op(0)));
            },
            |order| {
                order.place(op(0), 0);
                order.start(op(0));
                credit_all(order, op(0));
                order.end(op(0));
            },
        ];
        for ending in endings {
            let mut order = order();
            ending(&mut order);
            order.place(op(1), 1);
            order.start(op(1));
            credit_all(&mut order, op(1));
            credit_all(&mut order, op(0));
            assert_eq!([order.next(), order.next()], [Some(op(1)), None]);
            assert!(order.over.contains(op(0)) && !order.ops.contains_key(&op(0)));
        }
    }

    #[test]
    fn alone_nobody_else_is_asked() {
        let mut order = Order::new(Rank(0), 1);
        order.start(op(0));
        order.place(op(0), 0);
        assert_eq!(order.next(), Some(op(0)));
    }

    #[test]
    fn a_number_said_twice_counts_once_and_the_first_word_stands() {
        let mut order = order();
        order.place(op(0), 0);
        order.place(op(9), 0);
        order.place(op(0), 1);
        for number in [0, 9] {
            order.start(op(number));
            credit_all(&mut order, op(number));
        }
        assert_eq!(order.next(), Some(op(0)));
        order.place(op(0), 0);
        order.place(op(9), 2);
        assert_eq!([order.next(), order.next()], [Some(op(9)), None]);
    }

    #[test]
    fn starting_twice_is_refused() {
        let mut order = order();
        assert!(order.start(op(0)));
        assert!(!order.start(op(0)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut order = order();
        for number in 0..10_000 {
            order.end(op(number));
            order.place(op(number + 20_000), 20_000 - number);
        }
        assert!(order.over.ops.len() <= 2 * OPS_LISTED_MAX && order.over.by_age.len() == order.over.ops.len());
        assert!(order.placed.is_empty());
        (0..10_000).for_each(|number| order.place(op(number), number));
        assert_eq!(order.placed.len(), OPS_LISTED_MAX);
    }

    /// Every member gets the words about all operations in an order of its own, and cancels the same ones.
    #[test]
    fn all_members_let_the_same_operations_pass_in_the_same_order() {
        for seed in 0..200u64 {
            let mut state = seed;
            let mut below = |n: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % n
            };
            let cancelled: Vec<u64> = (0..20).filter(|_| below(4) == 0).collect();
            for me in 0..3 {
                let mut words: Vec<(u64, u64)> = (0..20).flat_map(|number| (0..4).map(move |word| (number, word))).collect();
                words.extend(cancelled.iter().map(|number| (*number, 4)));
                let (mut order, mut passed) = (Order::new(Rank(me), 3), Vec::new());
                while !words.is_empty() {
                    let at = below(words.len() as u64) as usize;
                    let (number, word) = words.swap_remove(at);
                    match word {
                        0 => order.place(op(number), number),
                        1 => drop(order.start(op(number))),
                        4 => order.end(op(number)),
                        nth => order.credit(op(number), Rank((me + nth as u8 - 1) % 3)),
                    }
                    passed.extend(std::iter::from_fn(|| order.next()));
                }
                let due: Vec<OpId> = (0..20).filter(|number| !cancelled.contains(number)).map(op).collect();
                let on_time: Vec<OpId> = passed.into_iter().filter(|op| due.contains(op)).collect();
                assert_eq!(on_time, due, "seed {seed}, rank {me}");
            }
        }
    }
}
