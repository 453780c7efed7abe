//! Layer: Core.
//!
//! Which operations may begin: those that everybody has started alike.
//!
//! Nothing that members disagree about ever enters Gloo, where it would be waited for without end. Each operation is alone
//! in this: none waits for another one.

use crate::collective::retired::Retired;
use crate::view::{OpId, Rank};
use std::collections::BTreeMap;

/// Who has started which operation.
#[derive(Debug)]
pub struct Turnout {
    /// A bit for each rank that must have started an operation.
    all: u16,
    me: Rank,
    /// By operation that has not begun: a bit for each rank that has started it.
    started: BTreeMap<OpId, u16>,
    over: Retired,
}

impl Turnout {
    /// Of `me` in a View of `size`.
    pub fn new(me: Rank, size: usize) -> Turnout {
        let all = (0..size).fold(0, |bits, rank| bits | 1 << rank);
        Turnout { all, me, started: BTreeMap::new(), over: Retired::default() }
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
        if !self.over.contains(op) && self.all & (1 << peer.0) != 0 {
            *self.started.entry(op).or_default() |= 1 << peer.0;
        }
    }

    /// Whether everybody has started `op`; said once.
    pub fn takes_place(&mut self, op: OpId) -> bool {
        let complete = self.started.get(&op) == Some(&self.all);
        if complete {
            self.end(op);
        }
        complete
    }

    /// `op` does not begin any more. May be said at any time, also before anything else is.
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
    fn an_operation_begins_once_whatever_came_last() {
        let steps: [fn(&mut Turnout); 3] =
            [|t| assert!(t.start(op(5))), |t| t.credit(op(5), Rank(1)), |t| t.credit(op(5), Rank(2))];
        for last in 0..3 {
            let mut turnout = turnout();
            for step in (0..3).filter(|step| *step != last) {
                steps[step](&mut turnout);
                assert!(!turnout.takes_place(op(5)));
            }
            steps[last](&mut turnout);
            assert!(turnout.takes_place(op(5)) && !turnout.takes_place(op(5)));
            assert!(!turnout.start(op(5)), "it has begun");
        }
    }

    #[test]
    fn operations_do_not_wait_for_each_other() {
        let mut turnout = turnout();
        assert!(turnout.start(op(0)) && turnout.start(op(1)) && !turnout.start(op(1)));
        turnout.credit(op(0), Rank(1));
        (1..3).for_each(|peer| turnout.credit(op(1), Rank(peer)));
        assert!(turnout.takes_place(op(1)) && !turnout.takes_place(op(0)));
    }

    #[test]
    fn what_is_given_up_never_begins() {
        for before in [true, false] {
            let mut turnout = turnout();
            if before {
                turnout.end(op(0));
            }
            assert_eq!(turnout.start(op(0)), !before);
            (1..3).for_each(|peer| turnout.credit(op(0), Rank(peer)));
            if !before {
                turnout.end(op(0));
            }
            assert!(!turnout.takes_place(op(0)));
        }
    }

    #[test]
    fn a_rank_that_is_none_counts_for_nobody() {
        let mut turnout = turnout();
        assert!(turnout.start(op(0)));
        turnout.credit(op(0), Rank(1));
        turnout.credit(op(0), Rank(7));
        assert!(!turnout.takes_place(op(0)));
    }
}
