//! Decides which of two direct control links between the same two nodes stays.
//!
//! Both nodes dial all addresses of the other at once, so several links may be established within
//! milliseconds, and each end learns of them in its own order. The decision must not depend on that
//! order: if the two ends kept different links, each would close the link that the other one keeps.

use crate::identity::NodeId;
use std::time::Duration;

/// The properties of a link that both ends know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkPriority {
    pub(super) dialler: NodeId,
    /// Its dialler meant it to replace an earlier link.
    pub(super) relinks: bool,
    /// Random; see [`SecureChannel::number`](crate::link::SecureChannel).
    pub(super) number: u64,
}

/// Maximum time between two replacement links that both ends dial at the same time (glare).
pub(super) const FRESH: Duration = Duration::from_secs(1);

/// Maximum time between links that one end dials at once: a dial with its handshake, and a margin.
/// An end that dials later has lost its link.
const AT_ONCE: Duration = Duration::from_secs(5);

impl LinkPriority {
    /// Whether this link, established for `stood`, stays when `other` is established.
    ///
    /// ```text
    /// dialled by different nodes   the link of the smaller node id stays; but a link older than
    ///                              FRESH yields to any link that is meant to replace it
    /// dialled by the same node     the later link, if it is meant to replace another one, or comes
    ///                              after AT_ONCE: then the earlier one is dead at the other end;
    ///                              else the earlier one, if it is meant to replace another one;
    ///                              else the link with the larger number
    /// ```
    pub(super) fn stays(&self, stood: Duration, other: &LinkPriority, smaller: NodeId) -> bool {
        if self.dialler != other.dialler {
            // A link older than `FRESH` yields to a replacement by either dialler.
            return self.dialler == smaller && !(other.relinks && stood > FRESH);
        }
        !other.relinks && stood <= AT_ONCE && (self.relinks || self.number > other.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: NodeId = NodeId([1; 32]);
    const LARGE: NodeId = NodeId([2; 32]);

    fn priority(dialler: NodeId, number: u64) -> LinkPriority {
        LinkPriority { dialler, relinks: false, number }
    }

    /// The link kept by an end that learns of these in this order, each `apart` after the one
    /// before.
    fn kept(order: &[LinkPriority], apart: Duration) -> LinkPriority {
        let (mut kept, mut stood) = (order[0], Duration::ZERO);
        for next in &order[1..] {
            stood += apart;
            if !kept.stays(stood, next, SMALL) {
                (kept, stood) = (*next, Duration::ZERO);
            }
        }
        kept
    }

    fn orders(of: &[LinkPriority]) -> Vec<Vec<LinkPriority>> {
        if of.len() < 2 {
            return vec![of.to_vec()];
        }
        let first = |i: usize| {
            let rest: Vec<LinkPriority> = [&of[..i], &of[i + 1..]].concat();
            orders(&rest).into_iter().map(move |rest| [&[of[i]], &rest[..]].concat())
        };
        (0..of.len()).flat_map(first).collect()
    }

    #[test]
    fn both_ends_keep_the_same_one_in_whatever_order_they_hear_of_them() {
        let (a, b, c) = (priority(SMALL, 5), priority(SMALL, 9), priority(SMALL, 7));
        let (p, q) = (priority(LARGE, 6), priority(LARGE, 10));
        let relink = LinkPriority { relinks: true, ..priority(SMALL, 1) };
        for (links, stays) in [
            (&[a, b][..], b),
            (&[p, q], q),
            (&[a, p, q], a),
            (&[a, b, c, p, q], b),
            (&[a, b, relink, p], relink),
        ] {
            for order in orders(links) {
                for apart in [Duration::ZERO, Duration::from_millis(40)] {
                    assert_eq!(kept(&order, apart), stays, "{order:?}");
                }
            }
        }
    }

    #[test]
    fn who_dials_again_later_has_lost_what_was_there() {
        let (before, after) = (priority(SMALL, 9), priority(SMALL, 5));
        assert!(before.stays(AT_ONCE, &after, SMALL));
        assert!(!before.stays(AT_ONCE + Duration::from_millis(1), &after, SMALL));
    }

    #[test]
    fn what_is_meant_to_take_a_place_takes_that_of_any_that_has_stood() {
        let relink = |dialler| LinkPriority { relinks: true, ..priority(dialler, 1) };
        let before = priority(SMALL, 9);
        assert!(
            !before.stays(Duration::ZERO, &relink(SMALL), SMALL),
            "at most one dial of a node is under way, so it is the last one"
        );
        assert!(!relink(SMALL).stays(Duration::ZERO, &relink(SMALL), SMALL));
        assert!(
            before.stays(FRESH, &relink(LARGE), SMALL),
            "both dial at once, and the smaller one's is there"
        );
        assert!(!before.stays(FRESH + Duration::from_millis(1), &relink(LARGE), SMALL));
        assert!(!relink(LARGE).stays(Duration::ZERO, &relink(SMALL), SMALL));
    }
}
