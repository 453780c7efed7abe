//! Layer: Host.
//!
//! Which of two direct control links between the same two nodes stays.
//!
//! A node dials all addresses of another one at once, and so does that one, so several links may
//! stand within milliseconds. Each end hears of them in an order of its own. So the answer must not
//! depend on that order: of ends that keep different links each closes, in the end, the one that
//! the other has kept.

use crate::identity::NodeId;
use std::time::Duration;

/// What both ends know of a link, and know alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) dialler: NodeId,
    /// It is meant to take the place of another one.
    pub(super) relinks: bool,
    /// Chance; see [`Session::number`](crate::link::Session).
    pub(super) number: u64,
}

/// Of two links that are dialled at once by both ends, to take the place of the same one, the
/// second one comes sooner than this.
pub(super) const FRESH: Duration = Duration::from_secs(1);

/// Of links that one end dials at once the last one comes sooner than this: what a dial and its
/// handshake may take, and some. Who dials later had none any more.
const AT_ONCE: Duration = Duration::from_secs(5);

impl Claim {
    /// Whether this link, which has stood for so long, stays when the other one comes. Those
    /// dialled by the node with the smaller id do. Of those dialled by the same node the last one
    /// does that was meant to take a place; without such a one, of those dialled at once, the one
    /// with the largest number; and a later one takes the place of an earlier one, which is dead at
    /// the other end.
    pub(super) fn stays(&self, stood: Duration, other: &Claim, smaller: NodeId) -> bool {
        if self.dialler != other.dialler {
            // One that has stood for a while gives way to one that is meant to take its place,
            // whoever dialled that.
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

    fn claim(dialler: NodeId, number: u64) -> Claim {
        Claim { dialler, relinks: false, number }
    }

    /// What an end keeps that hears of these in this order, each so long after the one before.
    fn kept(order: &[Claim], apart: Duration) -> Claim {
        let (mut kept, mut stood) = (order[0], Duration::ZERO);
        for next in &order[1..] {
            stood += apart;
            if !kept.stays(stood, next, SMALL) {
                (kept, stood) = (*next, Duration::ZERO);
            }
        }
        kept
    }

    fn orders(of: &[Claim]) -> Vec<Vec<Claim>> {
        if of.len() < 2 {
            return vec![of.to_vec()];
        }
        let first = |i: usize| {
            let rest: Vec<Claim> = [&of[..i], &of[i + 1..]].concat();
            orders(&rest).into_iter().map(move |rest| [&[of[i]], &rest[..]].concat())
        };
        (0..of.len()).flat_map(first).collect()
    }

    #[test]
    fn both_ends_keep_the_same_one_in_whatever_order_they_hear_of_them() {
        let (a, b, c) = (claim(SMALL, 5), claim(SMALL, 9), claim(SMALL, 7));
        let (p, q) = (claim(LARGE, 6), claim(LARGE, 10));
        let relink = Claim { relinks: true, ..claim(SMALL, 1) };
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
        let (before, after) = (claim(SMALL, 9), claim(SMALL, 5));
        assert!(before.stays(AT_ONCE, &after, SMALL));
        assert!(!before.stays(AT_ONCE + Duration::from_millis(1), &after, SMALL));
    }

    #[test]
    fn what_is_meant_to_take_a_place_takes_that_of_any_that_has_stood() {
        let relink = |dialler| Claim { relinks: true, ..claim(dialler, 1) };
        let before = claim(SMALL, 9);
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
