//! The rule for groups that may go on when the network is partitioned.

use super::rank::MEMBERS_MAX;
use crate::identity::{MemberId, NodeId};
use derive_more::Display;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::str::FromStr;

/// The rule for groups that may go on when the network is partitioned or machines are lost.
///
/// It must be the same on all nodes: nodes with different rules get no link, and the status says
/// so. It says which parts may go on; the sizes of the group
/// ([`Builder::members`](crate::Builder::members) and the like) say when calls may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Partition {
    /// Every part with enough members ([`Builder::min_members`](crate::Builder::min_members)) goes
    /// on. When parts meet again, one history wins and the other members must
    /// [`sync`](crate::Context::sync), which discards their results. The default.
    #[default]
    Continue,
    /// Only a part with more than half of these nodes goes on. So there is at most one, and no two
    /// members anywhere get different definite outcomes of an operation. All other nodes wait, and
    /// their calls in flight end with [`Error::Indeterminate`](crate::Error::Indeterminate).
    Majority {
        /// All nodes of the group, 1 to 32, in any order. No other node is admitted.
        roster: Vec<NodeId>,
    },
    /// Only all of these nodes together go on: for jobs of a fixed size.
    All {
        /// All nodes of the group, 1 to 32, in any order. No other node is admitted.
        roster: Vec<NodeId>,
    },
}

/// The reason for refusing a roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum RosterProblem {
    /// It is empty.
    #[display("it names nobody")]
    Empty,
    /// It names this many nodes, more than a View can have members.
    #[display("it names {_0} nodes, and a group has at most {MEMBERS_MAX}")]
    TooLong(usize),
    /// It names this node twice.
    #[display("it names {_0} twice")]
    Twice(NodeId),
    /// It does not name this node, which is to use it.
    #[display("it does not name this node, {_0}; `potluck identity` prints its public key")]
    WithoutThisNode(NodeId),
}

impl Partition {
    /// The least number of members of a View that may be made.
    pub fn members_wanted(&self) -> usize {
        match self {
            Partition::Continue => 1,
            Partition::Majority { roster } => roster.len() / 2 + 1,
            Partition::All { roster } => roster.len(),
        }
    }

    /// Whether a View of these members may be made.
    pub(crate) fn admits(&self, members: impl IntoIterator<Item = MemberId>) -> bool {
        let Some(roster) = self.roster() else { return true };
        let nodes: BTreeSet<NodeId> = members.into_iter().map(|member| member.node).collect();
        nodes.iter().all(|node| roster.contains(node)) && nodes.len() >= self.members_wanted()
    }

    /// Digest of the rule: equal for two nodes that may be in one group.
    pub(crate) fn digest(&self) -> [u8; 8] {
        let (kind, roster) = match self {
            Partition::Continue => return [0; 8],
            Partition::Majority { roster } => (1, roster),
            Partition::All { roster } => (2, roster),
        };
        let mut hash = Sha256::new_with_prefix(b"potluck/1/partition");
        hash.update([kind]);
        roster.iter().collect::<BTreeSet<_>>().into_iter().for_each(|node| hash.update(node.0));
        let mut digest = [0; 8];
        digest.copy_from_slice(&hash.finalize()[..8]);
        digest
    }

    /// Checks the roster for use on node `me`.
    pub(crate) fn check_roster(&self, me: NodeId) -> Result<(), RosterProblem> {
        let Some(roster) = self.roster() else { return Ok(()) };
        match roster.len() {
            0 => return Err(RosterProblem::Empty),
            1..=MEMBERS_MAX => {}
            more => return Err(RosterProblem::TooLong(more)),
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = roster.iter().find(|node| !seen.insert(**node)) {
            return Err(RosterProblem::Twice(*twice));
        }
        if seen.contains(&me) { Ok(()) } else { Err(RosterProblem::WithoutThisNode(me)) }
    }

    pub(crate) fn roster(&self) -> Option<&[NodeId]> {
        match self {
            Partition::Continue => None,
            Partition::Majority { roster } | Partition::All { roster } => Some(roster),
        }
    }
}

/// Parses `continue`, `majority:ID,ID,ID` or `all:ID,ID`, with public keys as `potluck identity`
/// prints them.
impl FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> Result<Partition, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let node =
            |id: &str| id.trim().parse::<NodeId>().map_err(|e| format!("{:?}: {e}", id.trim()));
        let roster = || rest.split(',').map(node).collect::<Result<Vec<NodeId>, String>>();
        match kind.trim() {
            "continue" if rest.is_empty() => Ok(Partition::Continue),
            "continue" => Err(format!("{text:?} has a number: POTLUCK_MEMBERS sets it")),
            "majority" => Ok(Partition::Majority { roster: roster()? }),
            "all" => Ok(Partition::All { roster: roster()? }),
            other => Err(format!("{other:?} is none of continue, majority and all")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::member_id;
    use super::*;

    fn node(n: u8) -> NodeId {
        member_id(n).node
    }

    fn roster(nodes: &[u8]) -> Vec<NodeId> {
        nodes.iter().map(|n| node(*n)).collect()
    }

    fn admits(partition: &Partition, nodes: &[u8]) -> bool {
        partition.admits(nodes.iter().map(|n| member_id(*n)))
    }

    #[test]
    fn who_may_go_on_as_a_table() {
        let (majority, all) = (
            Partition::Majority { roster: roster(&[1, 2, 3, 4]) },
            Partition::All { roster: roster(&[1, 2]) },
        );
        for (partition, members, may) in [
            (&Partition::default(), &[1][..], true),
            (&majority, &[1, 2], false),
            (&majority, &[1, 2, 4], true),
            (&majority, &[1, 2, 3, 4], true),
            (&majority, &[1, 2, 3, 5], false),
            (&all, &[1], false),
            (&all, &[2, 1], true),
            (&all, &[1, 2, 3], false),
        ] {
            assert_eq!(admits(partition, members), may, "{members:?} by {partition:?}");
        }
        // Two boots of one node count once.
        let twice = [
            member_id(1),
            member_id(2),
            MemberId { boot: crate::identity::Boot(99), ..member_id(2) },
        ];
        assert!(!majority.admits(twice));
    }

    #[test]
    fn any_two_majorities_share_a_node() {
        for n in 1..=7u8 {
            let nodes: Vec<u8> = (0..n).collect();
            let partition = Partition::Majority { roster: roster(&nodes) };
            let some = |bits: u32| {
                nodes.iter().copied().filter(|i| bits >> i & 1 == 1).collect::<Vec<u8>>()
            };
            for bits in 0..1u32 << n {
                assert!(
                    !(admits(&partition, &some(bits)) && admits(&partition, &some(!bits))),
                    "{bits:b} of {n}"
                );
            }
        }
    }

    #[test]
    fn a_digest_tells_kinds_and_rosters_apart_and_no_orders() {
        let majority = |nodes: &[u8]| Partition::Majority { roster: roster(nodes) }.digest();
        assert_eq!(majority(&[1, 2, 3]), majority(&[3, 1, 2]));
        assert_ne!(majority(&[1, 2, 3]), majority(&[1, 2, 4]));
        assert_ne!(majority(&[1, 2]), Partition::All { roster: roster(&[1, 2]) }.digest());
        assert_ne!(majority(&[1]), Partition::default().digest());
    }

    #[test]
    fn bad_rosters_are_named() {
        let check = |nodes: &[u8]| Partition::All { roster: roster(nodes) }.check_roster(node(1));
        assert_eq!(check(&[2, 1]), Ok(()));
        assert_eq!(check(&[]), Err(RosterProblem::Empty));
        assert_eq!(check(&[1, 2, 2]), Err(RosterProblem::Twice(node(2))));
        assert_eq!(check(&[2, 3]), Err(RosterProblem::WithoutThisNode(node(1))));
        assert_eq!(check(&(0..33).collect::<Vec<u8>>()), Err(RosterProblem::TooLong(33)));
        assert_eq!(Partition::default().check_roster(node(1)), Ok(()));
    }

    #[test]
    fn it_is_read_from_text() {
        let hex = |n: u8| format!("{n:02x}").repeat(32);
        let text = format!("majority: {}, {}", hex(0xa1), hex(2));
        assert_eq!(text.parse(), Ok(Partition::Majority { roster: roster(&[0xa1, 2]) }));
        assert_eq!(format!("all:{}", hex(3)).parse(), Ok(Partition::All { roster: roster(&[3]) }));
        assert_eq!("continue".parse(), Ok(Partition::Continue));
        for bad in [
            "",
            "continue:3",
            "continue:-1",
            "majority",
            "majority:",
            "all:12",
            "most:1",
            "majority:é",
        ] {
            assert!(bad.parse::<Partition>().is_err(), "{bad:?}");
        }
    }
}
