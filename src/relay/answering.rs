//! Layer: Core.
//!
//! How many handshakes others may have begun over circuits to this node and not ended.
//!
//! Each neighbour has a bound of its own: one that begins many and ends none keeps nobody out that
//! comes over another one.

use crate::identity::MemberId;
use std::collections::BTreeMap;

/// By the neighbour that they come over; none is kept at zero.
#[derive(Clone, Debug, Default)]
pub struct Answering {
    under_way: BTreeMap<MemberId, usize>,
}

impl Answering {
    /// One more begins, unless there are too many.
    pub fn begin(&mut self, neighbour: MemberId) -> bool {
        let own = self.under_way.get(&neighbour).copied().unwrap_or(0);
        let is_room = own < OF_ONE_MAX && self.under_way.values().sum::<usize>() < IN_ALL_MAX;
        if is_room {
            self.under_way.insert(neighbour, own + 1);
        }
        is_room
    }

    /// One that has begun is over.
    pub fn end(&mut self, neighbour: MemberId) {
        match self.under_way.get_mut(&neighbour) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(self.under_way.remove(&neighbour)),
        }
    }
}

/// A View's worth: at the end of a row all others come over one neighbour.
const OF_ONE_MAX: usize = 16;
/// Four such neighbours; each handshake may hold a window's worth of memory.
const IN_ALL_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::member_id;

    #[test]
    fn a_neighbour_that_begins_many_keeps_nobody_else_out() {
        let mut answering = Answering::default();
        let taken = (0..100).filter(|_| answering.begin(member_id(1))).count();
        assert_eq!(taken, OF_ONE_MAX);
        assert!(answering.begin(member_id(2)));
        answering.end(member_id(1));
        assert!(answering.begin(member_id(1)) && !answering.begin(member_id(1)));
    }

    #[test]
    fn all_together_have_a_bound_and_nothing_is_kept_of_who_is_done() {
        let mut answering = Answering::default();
        let begun: Vec<MemberId> =
            (0..=255).map(member_id).filter(|id| (0..3).all(|_| answering.begin(*id))).collect();
        assert_eq!(begun.len(), IN_ALL_MAX / 3);
        let mut under_way = answering.clone().under_way;
        for (id, n) in std::mem::take(&mut under_way) {
            (0..n).for_each(|_| answering.end(id));
        }
        answering.end(member_id(9));
        assert!(answering.under_way.is_empty());
    }
}
