//! Bounds the handshakes that other nodes have begun with this node over circuits and not finished.
//!
//! Each neighbour has a bound of its own, so a neighbour that begins many handshakes and finishes
//! none does not keep out nodes that come over another neighbour.

use crate::identity::MemberId;
use std::collections::BTreeMap;

/// The number of unfinished handshakes per neighbour that relays them; never zero.
#[derive(Clone, Debug, Default)]
pub struct Answering {
    under_way: BTreeMap<MemberId, usize>,
}

impl Answering {
    /// Counts one more handshake and returns `true`, or returns `false` at a bound.
    pub fn begin(&mut self, neighbour: MemberId) -> bool {
        let own = self.under_way.get(&neighbour).copied().unwrap_or(0);
        let is_room = own < OF_ONE_MAX && self.under_way.values().sum::<usize>() < IN_ALL_MAX;
        if is_room {
            self.under_way.insert(neighbour, own + 1);
        }
        is_room
    }

    /// A counted handshake has ended.
    pub fn end(&mut self, neighbour: MemberId) {
        match self.under_way.get_mut(&neighbour) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(self.under_way.remove(&neighbour)),
        }
    }
}

/// Per neighbour: a View's worth, because at the end of a row of nodes all others come over one
/// neighbour.
const OF_ONE_MAX: usize = 32;
/// In all: two such neighbours. Each handshake may hold a window's worth of memory.
const IN_ALL_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::member_id;

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
