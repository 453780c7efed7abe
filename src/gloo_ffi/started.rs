//! Tracks which ranks have started which operation with the same call.
//!
//! Until all have, the waits of an operation have no timeout, and a message from a rank that has
//! not announced its call may belong to another call.

use crate::collective::Retired;
use crate::protocol::{OpId, Rank, RankSet};
use std::collections::BTreeMap;

/// The ranks that have started each operation.
#[derive(Debug)]
pub struct Started {
    size: usize,
    me: Rank,
    /// Per operation that is not over: the ranks that have started it.
    started: BTreeMap<OpId, RankSet>,
    over: Retired,
}

impl Started {
    /// Makes the record of rank `me` in a View of `size`.
    pub fn new(me: Rank, size: usize) -> Started {
        Started { size, me, started: BTreeMap::new(), over: Retired::default() }
    }

    /// Records that `op` starts here. Returns `false` if it is over or was started before.
    pub fn start(&mut self, op: OpId) -> bool {
        if self.over.contains(op) {
            return false;
        }
        self.started.entry(op).or_default().insert(self.me)
    }

    /// Records that `peer` has started `op` with the call that is made here.
    pub fn credit(&mut self, op: OpId, peer: Rank) {
        if !self.over.contains(op) && self.all(op).contains(peer) {
            self.started.entry(op).or_default().insert(peer);
        }
    }

    /// Whether all participants of `op`'s lane have started it.
    pub fn is_complete(&self, op: OpId) -> bool {
        self.started.get(&op) == Some(&self.all(op))
    }

    fn all(&self, op: OpId) -> RankSet {
        op.lane.participants(self.size)
    }

    /// Whether `op` is not over, some rank has started it, and `peer` has not.
    pub fn is_unheard(&self, op: OpId, peer: Rank) -> bool {
        self.started.get(&op).is_some_and(|ranks| !ranks.contains(peer))
    }

    /// Whether `op` was given up or decided.
    #[cfg(feature = "gloo")]
    pub fn is_over(&self, op: OpId) -> bool {
        self.over.contains(op)
    }

    /// Records that `op` is over. May be called at any time, also before any other call.
    pub fn end(&mut self, op: OpId) {
        self.started.remove(&op);
        self.over.insert(op);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Lane;

    fn op(number: u64) -> OpId {
        OpId { lane: Lane::of_view(number % 3), number }
    }

    /// The record of rank 0 among three.
    fn started() -> Started {
        Started::new(Rank(0), 3)
    }

    #[test]
    fn an_operation_is_complete_whoever_came_last() {
        let steps: [fn(&mut Started); 3] = [
            |t| assert!(t.start(op(5))),
            |t| t.credit(op(5), Rank(1)),
            |t| t.credit(op(5), Rank(2)),
        ];
        for last in 0..3 {
            let mut started = started();
            for step in (0..3).filter(|step| *step != last) {
                steps[step](&mut started);
                assert!(!started.is_complete(op(5)));
            }
            steps[last](&mut started);
            assert!(started.is_complete(op(5)) && !started.start(op(5)));
        }
    }

    #[test]
    fn who_has_not_spoken_is_unheard_until_the_operation_is_over() {
        let mut started = started();
        assert!(!started.is_unheard(op(0), Rank(1)), "nobody has started it");
        assert!(started.start(op(0)));
        started.credit(op(0), Rank(2));
        assert!(started.is_unheard(op(0), Rank(1)) && !started.is_unheard(op(0), Rank(2)));
        started.end(op(0));
        assert!(!started.is_unheard(op(0), Rank(1)));
    }

    #[test]
    fn what_is_over_never_starts() {
        let mut started = started();
        started.end(op(0));
        (1..3).for_each(|peer| started.credit(op(0), Rank(peer)));
        assert!(!started.start(op(0)) && !started.is_complete(op(0)));
    }

    #[test]
    fn a_rank_that_is_none_counts_for_nobody() {
        let mut started = started();
        assert!(started.start(op(0)));
        started.credit(op(0), Rank(1));
        started.credit(op(0), Rank(7));
        assert!(!started.is_complete(op(0)));
    }
}
