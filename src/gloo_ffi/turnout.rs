//! Layer: Core.
//!
//! Which operations everybody has started alike.
//!
//! Until then one of them may be waited for without end, and what comes from a member that has not
//! said what it calls may belong to something else.

use crate::collective::retired::Retired;
use crate::view::{OpId, Rank};
use std::collections::BTreeMap;

/// Who has started which operation.
#[derive(Debug)]
pub struct Turnout {
    size: usize,
    me: Rank,
    /// By operation that is not over: a bit for each rank that has started it.
    started: BTreeMap<OpId, u32>,
    over: Retired,
}

impl Turnout {
    /// Of `me` in a View of `size`.
    pub fn new(me: Rank, size: usize) -> Turnout {
        Turnout { size, me, started: BTreeMap::new(), over: Retired::default() }
    }

    /// `op` is started here. `false` when it is over, or was started before.
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

    /// `peer` has started `op` and agrees with what is called here.
    pub fn credit(&mut self, op: OpId, peer: Rank) {
        if !self.over.contains(op) && self.all(op) & (1 << peer.0) != 0 {
            *self.started.entry(op).or_default() |= 1 << peer.0;
        }
    }

    /// Whether everybody has started `op`.
    pub fn is_complete(&self, op: OpId) -> bool {
        self.started.get(&op) == Some(&self.all(op))
    }

    fn all(&self, op: OpId) -> u32 {
        op.lane.participants(self.size)
    }

    /// Whether `op` goes on, and it is not known what `peer` calls.
    pub fn is_unheard(&self, op: OpId, peer: Rank) -> bool {
        self.started.get(&op).is_some_and(|bits| bits & (1 << peer.0) == 0)
    }

    /// Whether `op` was given up or decided.
    #[cfg(feature = "gloo")]
    pub fn is_over(&self, op: OpId) -> bool {
        self.over.contains(op)
    }

    /// `op` is over. May be said at any time, also before anything else is.
    pub fn end(&mut self, op: OpId) {
        self.started.remove(&op);
        self.over.insert(op);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Lane;

    fn op(number: u64) -> OpId {
        OpId { lane: Lane(number % 3), number }
    }

    /// Rank 0 of three.
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
