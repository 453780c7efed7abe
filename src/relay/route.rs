//! Computes the path of a circuit: breadth-first search for the fewest nodes, over the direct
//! links that their ends report.

use crate::identity::MemberId;
use crate::protocol::CIRCUIT_NODES_MAX;
use crate::topology::LinkMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The nodes from `me` to `to`, both included, over at least one other node. The path begins
/// with one of `first`, nodes to which `me` has direct links. It has the fewest nodes; among
/// such paths smaller ids are preferred, because the search visits nodes in the order of ids.
/// `None` if there is no path, or only one with more than [`CIRCUIT_NODES_MAX`] nodes.
pub fn route(
    links: &LinkMap,
    me: MemberId,
    to: MemberId,
    first: &BTreeSet<MemberId>,
) -> Option<Vec<MemberId>> {
    let mut before: BTreeMap<MemberId, MemberId> =
        first.iter().filter(|id| **id != to).map(|id| (*id, me)).collect();
    let mut open: VecDeque<MemberId> = before.keys().copied().collect();
    while let Some(at) = open.pop_front() {
        if links.is_direct(at, to) {
            let mut nodes: Vec<MemberId> =
                std::iter::successors(Some(at), |id| before.get(id).copied()).collect();
            nodes.reverse();
            nodes.push(to);
            return (nodes.len() <= CIRCUIT_NODES_MAX).then_some(nodes);
        }
        for next in links.direct_from(at).into_iter().filter(|next| *next != me) {
            before.entry(next).or_insert_with(|| {
                open.push_back(next);
                at
            });
        }
    }
    None
}

/// The members to which [`route`] finds a path that begins with one of `first`. The set never
/// contains members of `first` themselves.
pub fn within_reach(
    links: &LinkMap,
    me: MemberId,
    first: &BTreeSet<MemberId>,
) -> BTreeSet<MemberId> {
    let (mut reached, mut edge) = (BTreeSet::new(), first.clone());
    // This node and the first relay are already two nodes.
    for _ in 2..CIRCUIT_NODES_MAX {
        let next: BTreeSet<MemberId> = edge.iter().flat_map(|at| links.direct_from(*at)).collect();
        edge = next
            .into_iter()
            .filter(|id| *id != me && !first.contains(id) && !reached.contains(id))
            .collect();
        reached.extend(edge.iter().copied());
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::member_id;
    use crate::topology::Path;

    /// Direct links, each reported by both ends.
    fn links(pairs: &[(u8, u8)]) -> LinkMap {
        let mut links = LinkMap::new();
        for (a, b) in pairs.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]) {
            links.observe(member_id(a), member_id(b), Path::unmeasured(100));
        }
        links
    }

    fn found(links: &LinkMap, to: u8, first: &[u8]) -> Option<Vec<u8>> {
        let nodes = route(
            links,
            member_id(1),
            member_id(to),
            &first.iter().copied().map(member_id).collect(),
        );
        nodes.map(|nodes| nodes.iter().map(|id| id.node.0[0]).collect())
    }

    #[test]
    fn who_is_within_reach_is_who_has_a_route() {
        let all = [
            links(&[(1, 2), (2, 3), (3, 4), (4, 5), (5, 1), (6, 7)]),
            links(&(1..=12).map(|n| (n, n + 1)).collect::<Vec<_>>()),
            links(&[(1, 2), (1, 3), (2, 3), (3, 4)]),
        ];
        for links in all {
            for first in [&[2][..], &[2, 5], &[2, 3], &[]] {
                let ids: BTreeSet<MemberId> = first.iter().copied().map(member_id).collect();
                let reached = within_reach(&links, member_id(1), &ids);
                for to in (2..=13).filter(|to| !first.contains(to)) {
                    assert_eq!(
                        reached.contains(&member_id(to)),
                        found(&links, to, first).is_some(),
                        "{to} by {first:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_fewest_hops_and_then_the_smaller_ids() {
        let ring = links(&[(1, 2), (2, 3), (3, 4), (4, 5), (5, 1)]);
        assert_eq!(found(&ring, 3, &[2, 5]), Some(vec![1, 2, 3]));
        assert_eq!(found(&ring, 4, &[2, 5]), Some(vec![1, 5, 4]));
        assert_eq!(
            found(&ring, 3, &[5]),
            Some(vec![1, 5, 4, 3]),
            "the other way round, where the first is no more"
        );
        let square = links(&[(1, 2), (2, 3), (3, 4), (4, 1)]);
        assert_eq!(found(&square, 3, &[2, 4]), Some(vec![1, 2, 3]));
    }

    #[test]
    fn what_others_pass_on_already_is_no_way() {
        let mut chain = links(&[(1, 2), (2, 3), (3, 4), (2, 4)]);
        chain.set_relayed(member_id(2), &[member_id(4)].into());
        assert_eq!(found(&chain, 4, &[2]), Some(vec![1, 2, 3, 4]));
        chain.set_relayed(member_id(3), &[member_id(4)].into());
        assert_eq!(found(&chain, 4, &[2]), None);
        assert_eq!(found(&chain, 9, &[2]), None, "nobody knows it");
        assert_eq!(found(&chain, 3, &[]), None);
    }

    #[test]
    fn never_straight_and_never_through_the_end_itself() {
        let lost = links(&[(1, 2), (2, 3), (1, 3)]);
        assert_eq!(found(&lost, 3, &[2, 3]), Some(vec![1, 2, 3]));
        assert_eq!(found(&links(&[(1, 3)]), 3, &[3]), None);
    }

    #[test]
    fn a_way_too_long_for_any_view_is_none() {
        let row: Vec<(u8, u8)> = (1..40).map(|n| (n, n + 1)).collect();
        assert_eq!(found(&links(&row), 32, &[2]).map(|way| way.len()), Some(32));
        assert_eq!(found(&links(&row), 33, &[2]), None);
    }
}
