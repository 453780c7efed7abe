//! A bound on how often a node may propose a View.
//!
//! Each proposal freezes the present View and costs a write to the disk, so a member that proposes
//! in a loop must not set the pace of the others' disks. A proposal beyond the bound is dropped, as
//! if the network had lost it: no member promises anything, and its proposer tries again after its
//! timeout. An honest member stays far below: it proposes once per View, and a View takes several
//! round trips and a write.

use crate::identity::NodeId;
use std::collections::BTreeMap;

/// The proposals of each node that still count against its bound.
#[derive(Debug, Default)]
pub(super) struct Proposals {
    /// By node, because a restart must not free its proposer: proposals above zero, in thousandths,
    /// and when that was, in milliseconds.
    spent: BTreeMap<NodeId, (u64, u64)>,
}

/// Proposals at once after a pause.
const BURST: u64 = 100;

/// Proposals per second, which is also thousandths per millisecond.
const PER_SECOND: u64 = 20;

/// Remembered nodes: more than may have links.
const NODES_MAX: usize = 64;

/// Thousandths of a proposal in one.
const ONE: u64 = 1000;

impl Proposals {
    /// Whether the proposal that `from` makes now is within its bound; then it counts.
    pub(super) fn admit(&mut self, now_ms: u64, from: NodeId) -> bool {
        let left = |(spent, at): (u64, u64)| {
            spent.saturating_sub(now_ms.saturating_sub(at).saturating_mul(PER_SECOND))
        };
        if self.spent.len() >= NODES_MAX && !self.spent.contains_key(&from) {
            self.spent.retain(|_, spent| left(*spent) > 0);
            // If all of them propose, the one that has done so least is forgotten.
            let least = self.spent.iter().min_by_key(|(_, spent)| left(**spent));
            if let Some(least) = least.map(|(node, _)| *node)
                && self.spent.len() >= NODES_MAX
            {
                self.spent.remove(&least);
            }
        }
        let spent = self.spent.get(&from).map_or(0, |spent| left(*spent)) + ONE;
        let is_within = spent <= BURST * ONE;
        if is_within {
            self.spent.insert(from, (spent, now_ms));
        }
        is_within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId([1; 32]);
    const B: NodeId = NodeId([2; 32]);

    fn admitted(proposals: &mut Proposals, times: impl Iterator<Item = u64>) -> usize {
        times.filter(|now| proposals.admit(*now, A)).count()
    }

    #[test]
    fn a_loop_is_bounded_and_ten_views_a_second_are_not() {
        let mut proposals = Proposals::default();
        assert_eq!(admitted(&mut proposals, (0..100_000).map(|_| 7)), 100, "at once");
        assert!(proposals.admit(7, B), "another one's proposals are its own");
        assert_eq!(admitted(&mut proposals, (0..10_000).map(|ms| 7 + ms)), 199, "in ten seconds");
        let mut proposals = Proposals::default();
        // Ten Views a second for an hour, all proposed by one node.
        assert_eq!(admitted(&mut proposals, (0..36_000).map(|n| 100 * n)), 36_000);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_no_loop_is_forgotten_for_others() {
        let mut proposals = Proposals::default();
        admitted(&mut proposals, (0..200).map(|_| 0));
        for n in 0..10_000_u32 {
            let mut id = [3; 32];
            id[..4].copy_from_slice(&n.to_le_bytes());
            assert!(proposals.admit(1, NodeId(id)));
        }
        assert!(proposals.spent.len() <= NODES_MAX);
        assert!(!proposals.admit(1, A));
    }
}
