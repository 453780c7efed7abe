//! Tracks which ranks have started which operation with the same call.
//!
//! Until all have, the waits of an operation have no timeout, and a message from a rank that has
//! not announced its call may belong to another call.

use crate::collective::Retired;
use crate::protocol::{OpId, Rank};
use std::collections::BTreeMap;

/// The ranks that have started each operation.
#[derive(Debug)]
pub struct Turnout {
    size: usize,
    me: Rank,
    /// Per operation that is not over: one bit for each rank that has started it.
    started: BTreeMap<OpId, u32>,
    over: Retired,
}

impl Turnout {
    /// Makes the record of rank `me` in a View of `size`.
    pub fn new(me: Rank, size: usize) -> Turnout {
        Turnout { size, me, started: BTreeMap::new(), over: Retired::default() }
    }

    /// Records that `op` starts here. Returns `false` if it is over or was started before.
    pub fn start(&mut self, op: OpId) -> bool {
        if self.over.contains(op) {
            return false;
        }
        let bits = self.started.entry(op).or_default();
        let mine = 1 << self.me.0;
        let first = *bits & mine == 0;
        *bits |= mine;
        first
    }

    /// Records that `peer` has started `op` with the call that is made here.
    pub fn credit(&mut self, op: OpId, peer: Rank) {
        if !self.over.contains(op) && self.all(op) & (1 << peer.0) != 0 {
            *self.started.entry(op).or_default() |= 1 << peer.0;
        }
    }

    /// Whether all participants of `op`'s lane have started it.
    pub fn is_complete(&self, op: OpId) -> bool {
        self.started.get(&op) == Some(&self.all(op))
    }

    fn all(&self, op: OpId) -> u32 {
        op.lane.participants(self.size)
    }

    /// Whether `op` is not over, some rank has started it, and `peer` has not.
    pub fn is_unheard(&self, op: OpId, peer: Rank) -> bool {
        self.started.get(&op).is_some_and(|bits| bits & (1 << peer.0) == 0)
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
        OpId { lane: Lane(number % 3), number }
    }

    /// The record of rank 0 among three.
    fn turnout() -> Turnout {
        Turnout::new(Rank(0), 3)
    }

    #[test]
    fn an_operation_is_complete_whoever_came_last() {
        let steps: [fn(&mut Turnout); 3] = [
            |t| assert!(t.start(op(5))),
            |t| t.credit(op(5), Rank(1)),
            |t| t.credit(op(5), Rank(2)),
        ];
        for last in 0..3 {
            let mut turnout = turnout();
            for step in (0..3).filter(|step| *step != last) {
                steps[step](&mut turnout);
                assert!(!turnout.is_complete(op(5)));
            }
            steps[last](&mut turnout);
            assert!(turnout.is_complete(op(5)) && !turnout.start(op(5)));
        }
    }

    #[test]
    fn who_has_not_spoken_is_unheard_until_the_operation_is_over() {
        let mut turnout = turnout();
        assert!(!turnout.is_unheard(op(0), Rank(1)), "nobody has started it");
        assert!(turnout.start(op(0)));
        turnout.credit(op(0), Rank(2));
        assert!(turnout.is_unheard(op(0), Rank(1)) && !turnout.is_unheard(op(0), Rank(2)));
        turnout.end(op(0));
        assert!(!turnout.is_unheard(op(0), Rank(1)));
    }

    #[test]
    fn what_is_over_never_starts() {
        let mut turnout = turnout();
        turnout.end(op(0));
        (1..3).for_each(|peer| turnout.credit(op(0), Rank(peer)));
        assert!(!turnout.start(op(0)) && !turnout.is_complete(op(0)));
    }

    #[test]
    fn a_rank_that_is_none_counts_for_nobody() {
        let mut turnout = turnout();
        assert!(turnout.start(op(0)));
        turnout.credit(op(0), Rank(1));
        turnout.credit(op(0), Rank(7));
        assert!(!turnout.is_complete(op(0)));
    }
}
